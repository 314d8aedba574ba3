/* test_profile.c -- profiles: what they say, and what is refused, with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/startup/profile.h"
#include "tests/check_main.h"

static char path[] = "/tmp/rubato-profile-XXXXXX";

static rubato_status read_text(const char *text, size_t bytes, struct rb_profile *profile)
{
	int file;
	rubato_status err;

	memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
	file = mkstemp(path);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(write(file, text, bytes), (ssize_t)bytes);
	ck_assert_int_eq(close(file), 0);
	err = rb_profile_read(path, profile);
	ck_assert_int_eq(unlink(path), 0);
	return err;
}

static void close_to(double a, double b)
{
	ck_assert_msg(a > b * (1 - 1e-12) && a < b * (1 + 1e-12), "%.17g is not %.17g", a, b);
}

START_TEST(every_name_lands_in_its_place)
{
	static const char text[] =
		"# Links\n"
		"latency 1.5ms # far\n"
		"\tbandwidth   100Mbit\r\n"
		"send 0.5us\n"
		"receive 1.5us\n"
		"\n"
		"node-latency 0.000002s\n"
		"node-send 0.25us\n"
		"node-receive 0.75us\n"
		"core-bandwidth 12.5GB/s\n"
		"memory-bandwidth 160Gbit\n"
		"attach-bandwidth 5GB/s\n"
		"work 0\n"
		"turn 3us\n"
		"work 0.125us\n"
		"cores 2\nmachine 4\nstack-bandwidth 2GB/s\n"
		"cards 2\nputs 1\ngap 5us\nburst 64K\ncache 3M\nshared-latency 1us\n"
		"reduced-bandwidth 9GB/s\nouter-cache 30M\nouter-bandwidth 8GB/s\n"
		"cached-bandwidth 80GB/s\nshared-bandwidth 20GB/s\nnode-bandwidth 3GB/s";
	struct rb_profile p;

	ck_assert_int_eq(read_text(text, strlen(text), &p), RUBATO_OK);
	close_to(p.network.latency_us, 1500);
	close_to(p.network.byte_us, 0.08);
	close_to(p.network.message_us, 1);
	close_to(p.network.burst_bytes, 64 << 10);
	close_to(p.node.latency_us, 2);
	close_to(p.node.message_us, 0.5);
	close_to(p.node.core_byte_us, 1 / 12.5e3);
	close_to(p.node.memory_byte_us, 1 / 20e3);
	close_to(p.node.attach_copies, 2.5);
	close_to(p.node.cache_bytes, 3 << 20);
	close_to(p.node.work_us, 0.125);
	close_to(p.node.turn_us, 3);
	ck_assert(p.network.eager_bytes == 0);
}
END_TEST

START_TEST(what_it_does_not_say_is_not_known)
{
	static const struct rb_profile nothing = { 0 };
	struct rb_profile p;

	ck_assert_int_eq(read_text("", 0, &p), RUBATO_OK);
	ck_assert_mem_eq(&p, &nothing, sizeof(p));
}
END_TEST

static const struct {
	const char *text, *why;
} refusals[] = {
	{ "send 1us\nlattency 5us\n", ", line 2: nothing is named lattency" },
	{ "latency\n", ", line 1: latency takes a time, such as 250us or 1.5ms" },
	{ "latency 5", ", line 1: latency takes a time, such as 250us or 1.5ms, not 5" },
	{ "latency -5us", ", line 1: latency takes a time, such as 250us or 1.5ms, not -5us" },
	{ "turn 5us 6us", ", line 1: turn takes a time, such as 250us or 1.5ms, not 5us" },
	{ "turn 1.us", ", line 1: turn takes a time, such as 250us or 1.5ms, not 1.us" },
	{ "turn 123456789012345678us", ", line 1: turn takes a time, such as 250us or 1.5ms, not "
				       "123456789012345678us" },
	{ "turn 5GB/s", ", line 1: turn takes a time, such as 250us or 1.5ms, not 5GB/s" },
	{ "core-bandwidth 0GB/s",
	  ", line 1: core-bandwidth takes a bandwidth, such as 10Gbit or 12.5GB/s, not 0GB/s" },
	{ "core-bandwidth 10",
	  ", line 1: core-bandwidth takes a bandwidth, such as 10Gbit or 12.5GB/s, not 10" },
	{ "burst 64us", ", line 1: burst takes a size, such as 125000 or 64K, not 64us" },
	{ "cards two", ", line 1: cards takes a number, not two" },
	{ "latency 5us", ": latency and bandwidth are given together, or neither" },
	{ "attach-bandwidth 5GB/s", ": attach-bandwidth is given with core-bandwidth" },
	{ "bandwidth 1Gbit", ": latency and bandwidth are given together, or neither" },
};

START_TEST(what_is_wrong_is_named)
{
	struct rb_profile p;
	char whole[300];

	ck_assert_int_eq(read_text(refusals[_i].text, strlen(refusals[_i].text), &p),
			 RUBATO_ERR_ARGUMENT);
	(void)snprintf(whole, sizeof(whole), "RUBATO_PROFILE=%s%s", path, refusals[_i].why);
	ck_assert_str_eq(rubato_error_text(), whole);
}
END_TEST

START_TEST(what_is_no_such_file_is_refused)
{
	static char much[65536 + 1];
	char pipe[sizeof(path) + 8], text[128];
	struct rb_profile p;

	ck_assert_int_eq(rb_profile_read("/nonexistent/profile", &p), RUBATO_ERR_ARGUMENT);
	ck_assert_str_eq(rubato_error_text(),
			 "RUBATO_PROFILE=/nonexistent/profile: No such file or directory");
	ck_assert_int_eq(rb_profile_read("/tmp", &p), RUBATO_ERR_ARGUMENT);
	ck_assert_str_eq(rubato_error_text(), "RUBATO_PROFILE=/tmp: Is a directory");
	/* Nobody writes to it: it would be waited for. */
	memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(path));
	(void)snprintf(pipe, sizeof(pipe), "%s/pipe", path);
	ck_assert_int_eq(mkfifo(pipe, 0600), 0);
	ck_assert_int_eq(rb_profile_read(pipe, &p), RUBATO_ERR_ARGUMENT);
	(void)snprintf(text, sizeof(text), "RUBATO_PROFILE=%s: no regular file", pipe);
	ck_assert_str_eq(rubato_error_text(), text);
	ck_assert_int_eq(unlink(pipe), 0);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(read_text("turn 5us\0\n", 10, &p), RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), ": no text of less than 65536 bytes"));
	memset(much, '\n', sizeof(much));
	ck_assert_int_eq(read_text(much, sizeof(much), &p), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(read_text(much, sizeof(much) - 2, &p), RUBATO_OK);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("profile");

	tcase_add_test(tc, every_name_lands_in_its_place);
	tcase_add_test(tc, what_it_does_not_say_is_not_known);
	tcase_add_loop_test(tc, what_is_wrong_is_named, 0,
			    (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_test(tc, what_is_no_such_file_is_refused);
	return check_main("profile", tc);
}
