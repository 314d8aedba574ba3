/* test_config.c -- settings: defaults, values, refusals, unknown names. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "tests/check_main.h"

static struct rb_config config;

/* Runs rb_config_read with standard error in a file, whose text ends up in `said`. */
static rubato_status read_saying(char *said, size_t said_bytes)
{
	char path[] = "/tmp/rubato_test_config_XXXXXX";
	int file = mkstemp(path), before = dup(STDERR_FILENO);

	ck_assert_int_ge(file, 0);
	ck_assert_int_ge(before, 0);
	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	rubato_status err = rb_config_read(&config);
	(void)fflush(stderr);
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	ssize_t n = pread(file, said, said_bytes - 1, 0);
	ck_assert_int_ge(n, 0);
	said[n] = '\0';
	(void)close(before);
	(void)close(file);
	(void)unlink(path);
	return err;
}

static void refused(const char *variable, const char *value, const char *text)
{
	ck_assert_int_eq(setenv(variable, value, 1), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_ERR_ARGUMENT);
	ck_assert_str_eq(rubato_error_text(), text);
	ck_assert_int_eq(unsetenv(variable), 0);
}

START_TEST(nothing_set_gives_the_defaults)
{
	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_OK);
	ck_assert_uint_eq(config.timeout.number, UINT64_C(60000000000));
	ck_assert_uint_eq(config.chunk.number, 262144);
	ck_assert_uint_eq(config.background.number, 1);
	ck_assert_str_eq(config.transport.text, "auto");
	ck_assert_str_eq(config.root.text, "");
	ck_assert_uint_eq(config.source.rank, RB_CONFIG_DEFAULT);
	ck_assert_uint_eq(config.source.chunk, RB_CONFIG_DEFAULT);
	ck_assert(rb_log_enabled(RB_LOG_WARN));
	ck_assert(!rb_log_enabled(RB_LOG_INFO));
}
END_TEST

START_TEST(transports_are_a_list)
{
	static const char *const good[] = { "verbs", "shm,ucx", "shm,verbs,ucx" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_int_eq(clearenv(), 0);
		ck_assert_int_eq(setenv("RUBATO_TRANSPORT", good[i], 1), 0);
		ck_assert_int_eq(rb_config_read(&config), RUBATO_OK);
		ck_assert_str_eq(config.transport.text, good[i]);
	}
}
END_TEST

START_TEST(values_are_read_with_their_source)
{
	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(setenv("RUBATO_RANK", "0", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_SIZE", "4294967295", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_ROOT", "[::1]:4000", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_TIMEOUT", "1.5ms", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_CHUNK", "1M", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_LOG", "debug", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_CACHE", "", 1), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_OK);
	ck_assert_uint_eq(config.rank.number, 0);
	ck_assert_uint_eq(config.source.rank, RB_CONFIG_ENVIRONMENT);
	ck_assert_uint_eq(config.size.number, UINT32_MAX);
	ck_assert_str_eq(config.root.text, "[::1]:4000");
	ck_assert_uint_eq(config.timeout.number, 1500000);
	ck_assert_uint_eq(config.chunk.number, 1048576);
	ck_assert_uint_eq(config.cache.number, 256);
	ck_assert_uint_eq(config.source.cache, RB_CONFIG_DEFAULT);
	ck_assert(rb_log_enabled(RB_LOG_DEBUG));
	ck_assert(!rb_log_enabled(RB_LOG_DATA));
}
END_TEST

START_TEST(bad_values_name_variable_value_and_range)
{
	char long_host[300];

	ck_assert_int_eq(clearenv(), 0);
	refused("RUBATO_RANK", "-1",
		"RUBATO_RANK=\"-1\": expected a whole number from 0 to 4294967294");
	refused("RUBATO_RANK", "4294967295",
		"RUBATO_RANK=\"4294967295\": expected a whole number from 0 to 4294967294");
	refused("RUBATO_SIZE", "0",
		"RUBATO_SIZE=\"0\": expected a whole number from 1 to 4294967295");
	refused("RUBATO_SIZE", "2.0",
		"RUBATO_SIZE=\"2.0\": expected a whole number from 1 to 4294967295");
	refused("RUBATO_SIZE", "99999999999999999999999",
		"RUBATO_SIZE=\"99999999999999999999999\": expected a whole number from 1 to "
		"4294967295");
	refused("RUBATO_CHUNK", "63", "RUBATO_CHUNK=\"63\": expected a size from 64 to 256M");
	refused("RUBATO_CHUNK", "1 M", "RUBATO_CHUNK=\"1 M\": expected a size from 64 to 256M");
	refused("RUBATO_TIMEOUT", "60",
		"RUBATO_TIMEOUT=\"60\": expected a time from 1ms to 86400s");
	refused("RUBATO_TRANSPORT", "smh",
		"RUBATO_TRANSPORT=\"smh\": expected auto, or of shm, ucx, tcp, verbs, best first");
	refused("RUBATO_TRANSPORT", "shm,",
		"RUBATO_TRANSPORT=\"shm,\": expected auto, or of shm, ucx, tcp, verbs, best first");
	refused("RUBATO_TRANSPORT", "shm,uc",
		"RUBATO_TRANSPORT=\"shm,uc\": expected auto, or of shm, ucx, tcp, verbs, best "
		"first");
	refused("RUBATO_LOG", "warn,info",
		"RUBATO_LOG=\"warn,info\": expected none, warn, info, debug or data");
	refused("RUBATO_LOG", "trace",
		"RUBATO_LOG=\"trace\": expected none, warn, info, debug or data");
	refused("RUBATO_ATTACH", "always",
		"RUBATO_ATTACH=\"always\": expected auto, never or offer");
	memset(long_host, 'h', sizeof(long_host));
	long_host[sizeof(long_host) - 1] = '\0';
	ck_assert_int_eq(setenv("RUBATO_ROOT", long_host, 1), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "299 characters, expected 0 to 255"));
}
END_TEST

START_TEST(a_refusal_leaves_the_struct_alone)
{
	ck_assert_int_eq(clearenv(), 0);
	memset(&config, 0x5a, sizeof(config));
	refused("RUBATO_CACHE", "0", "RUBATO_CACHE=\"0\": expected a whole number from 1 to 65536");
	for (size_t i = 0; i < sizeof(config); i++)
		ck_assert_uint_eq(((const uint8_t *)&config)[i], 0x5a);
}
END_TEST

START_TEST(unknown_names_get_the_nearest)
{
	char said[1024];

	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(setenv("RUBATO_TRANPSORT", "shm", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_SECRET", "correct horse battery", 1), 0);
	ck_assert_int_eq(setenv("RUBATOR", "x", 1), 0);
	ck_assert_int_eq(read_saying(said, sizeof(said)), RUBATO_OK);
	ck_assert_ptr_nonnull(strstr(said, "rubato: RUBATO_TRANPSORT is no setting and is ignored; "
					   "the nearest is RUBATO_TRANSPORT\n"));
	ck_assert_ptr_nonnull(strstr(said, "RUBATO_SECRET is no setting"));
	ck_assert_ptr_nonnull(strstr(said, "the nearest is RUBATO_SECRET_FILE\n"));
	ck_assert_ptr_null(strstr(said, "horse"));
	ck_assert_ptr_null(strstr(said, "RUBATOR"));

	ck_assert_int_eq(setenv("RUBATO_LOG", "none", 1), 0);
	ck_assert_int_eq(read_saying(said, sizeof(said)), RUBATO_OK);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(long_unknown_names_do_no_harm)
{
	char name[512], said[1024];

	ck_assert_int_eq(clearenv(), 0);
	memset(name, 'Q', sizeof(name));
	memcpy(name, "RUBATO_", 7);
	name[sizeof(name) - 1] = '\0';
	ck_assert_int_eq(setenv(name, "1", 1), 0);
	ck_assert_int_eq(read_saying(said, sizeof(said)), RUBATO_OK);
	ck_assert_ptr_nonnull(strstr(said, "QQQ... is no setting and is ignored\n"));
}
END_TEST

struct collected {
	uint32_t count;
	char text[8192];
};

static void collect(void *arg, const char *variable, const char *value, const char *source,
		    const char *help)
{
	struct collected *c = arg;
	size_t at = strlen(c->text);

	ck_assert_str_ne(help, "");
	(void)snprintf(c->text + at, sizeof(c->text) - at, "%s=%s (%s)\n", variable, value, source);
	c->count++;
}

START_TEST(each_prints_every_row_as_it_could_be_typed)
{
	static struct collected c;

	ck_assert_int_eq(clearenv(), 0);
	ck_assert_int_eq(setenv("RUBATO_TIMEOUT", "1.5s", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_RANK", "7", 1), 0);
	ck_assert_int_eq(rb_config_read(&config), RUBATO_OK);
	rb_config_each(&config, collect, &c);
	ck_assert_uint_eq(c.count, 25);
	ck_assert_ptr_nonnull(strstr(c.text, "RUBATO_TIMEOUT=1500ms (environment)\n"));
	ck_assert_ptr_nonnull(strstr(c.text, "RUBATO_RANK=7 (environment)\n"));
	ck_assert_ptr_nonnull(strstr(c.text, "RUBATO_SIZE= (default)\n"));
	ck_assert_ptr_nonnull(strstr(c.text, "RUBATO_CHUNK=256K (default)\n"));
	ck_assert_ptr_nonnull(strstr(c.text, "RUBATO_SPIN=0 (default)\n"));
}
END_TEST

START_TEST(sizes_and_times_are_exact_or_refused)
{
	static const struct {
		const char *text;
		uint64_t value;
	} sizes[] = { { "0", 0 },
		      { "64", 64 },
		      { "64K", 65536 },
		      { "1.5K", 1536 },
		      { "2G", UINT64_C(2147483648) },
		      { "1T", UINT64_C(1) << 40 },
		      { "0.5K", 512 },
		      { "8388607T", UINT64_C(8388607) << 40 } },
	  times[] = { { "0", 0 },
		      { "0s", 0 },
		      { "250us", 250000 },
		      { "1.5ms", 1500000 },
		      { "3s", UINT64_C(3000000000) },
		      { "0.000000001s", 1 },
		      { "18446744073709551615ns", UINT64_MAX },
		      { "0018446744.073709551s", UINT64_C(18446744073709551) },
		      { "7ns", 7 } };
	static const char *const bad_sizes[] = {
		"",      "K",      "-1",  "+1",        " 1",
		"1 ",    "1.",     ".5K", "1.5",       "1.0001K",
		"1KB",   "0x10",   "1e3", "16777216T", "99999999999999999999",
		"1..5K", "1.2.3K", "K1",  "1k",
	};
	static const char *const bad_times[] = {
		"",
		"1",
		"1.5",
		"s",
		"-1s",
		"0.5ns",
		"1.0000000001s",
		"1m",
		"1 s",
		"20000000000s",
		"1sec",
		"1S",
		"18446744073709551616ns",
		"0.00000000000000000000s",
	};
	uint64_t value;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_int_eq(rb_parse_bytes(sizes[i].text, &value), RUBATO_OK);
		ck_assert_uint_eq(value, sizes[i].value);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		ck_assert_int_eq(rb_parse_time(times[i].text, &value), RUBATO_OK);
		ck_assert_uint_eq(value, times[i].value);
	}
	value = 77;
	for (size_t i = 0; i < sizeof(bad_sizes) / sizeof(bad_sizes[0]); i++)
		ck_assert_msg(rb_parse_bytes(bad_sizes[i], &value) == RUBATO_ERR_ARGUMENT, "%s",
			      bad_sizes[i]);
	for (size_t i = 0; i < sizeof(bad_times) / sizeof(bad_times[0]); i++)
		ck_assert_msg(rb_parse_time(bad_times[i], &value) == RUBATO_ERR_ARGUMENT, "%s",
			      bad_times[i]);
	ck_assert_uint_eq(value, 77);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("config");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, nothing_set_gives_the_defaults);
	tcase_add_test(tc, transports_are_a_list);
	tcase_add_test(tc, values_are_read_with_their_source);
	tcase_add_test(tc, bad_values_name_variable_value_and_range);
	tcase_add_test(tc, a_refusal_leaves_the_struct_alone);
	tcase_add_test(tc, unknown_names_get_the_nearest);
	tcase_add_test(tc, long_unknown_names_do_no_harm);
	tcase_add_test(tc, each_prints_every_row_as_it_could_be_typed);
	tcase_add_test(tc, sizes_and_times_are_exact_or_refused);
	return check_main("base", tc);
}
