/* test_replace.c -- a file is there whole, or what was there before is. */
#include "programs/replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/ledger.h"
#include "tests/check_main.h"

static char folder[64], path[128];

static void opened(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/rubato-replace-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/file", folder);
}

static void closed(void)
{
	(void)unlink(path);
	ck_assert_int_eq(rmdir(folder), 0); /* Nothing else is left. */
}

static const char *content(void)
{
	static char text[256];
	FILE *file = fopen(path, "r");
	size_t got;

	if (file == NULL)
		return NULL;
	got = fread(text, 1, sizeof(text) - 1, file);
	text[got] = '\0';
	(void)fclose(file);
	return text;
}

static int put(const char *text, bool keep)
{
	struct replacement r;

	ck_assert(replacement_open(&r, path));
	ck_assert_int_eq(fputs(text, r.file) >= 0, 1);
	return replacement_close(&r, keep);
}

START_TEST(whole_or_as_before)
{
	struct replacement r;

	ck_assert_int_eq(put("one", false), 0);
	ck_assert_ptr_null(content());
	ck_assert_int_eq(put("two", true), 0);
	ck_assert_str_eq(content(), "two");
	ck_assert_int_eq(put("three", false), 0);
	ck_assert_str_eq(content(), "two");
	ck_assert(replacement_open(&r, path));
	ck_assert_str_eq(content(), "two");
	ck_assert_int_eq(fputs("four", r.file) >= 0, 1);
	ck_assert_int_eq(fflush(r.file), 0);
	ck_assert_str_eq(content(), "two");
	ck_assert_int_eq(replacement_close(&r, true), 0);
	ck_assert_str_eq(content(), "four");
}
END_TEST

/* A limit in place of a full disk. */
START_TEST(no_room_is_said)
{
	struct rlimit least = { 4096, RLIM_INFINITY };
	struct replacement r;
	char block[1024];

	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(put("before", true), 0);
	(void)signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &least), 0);
	ck_assert(replacement_open(&r, path));
	for (int i = 0; i < 64; i++)
		(void)fwrite(block, 1, sizeof(block), r.file);
	ck_assert(ferror(r.file) != 0); /* It has happened. */
	ck_assert_int_eq(replacement_close(&r, true), EIO);
	ck_assert_str_eq(content(), "before");
}
END_TEST

START_TEST(left_over_from_a_process_of_this_number)
{
	char beside[160];

	(void)snprintf(beside, sizeof(beside), "%s.%ld.part", path, (long)getpid());
	ck_assert_int_eq(symlink("/nowhere", beside), 0);
	ck_assert_int_eq(put("new", true), 0);
	ck_assert_str_eq(content(), "new");
}
END_TEST

START_TEST(what_cannot_be_opened)
{
	char name[REPLACE_PATH_BYTES + 8];
	struct replacement r;

	(void)snprintf(name, sizeof(name), "%s/none/file", folder);
	ck_assert(!replacement_open(&r, name));
	ck_assert_int_eq(errno, ENOENT);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ck_assert(!replacement_open(&r, name));
	ck_assert_int_eq(errno, ENAMETOOLONG);
}
END_TEST

/* What is no regular file stays what it is. */
START_TEST(pipes_and_links_stay)
{
	char target[160], got[8] = "";
	struct stat there;
	int reader;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	reader = open(path, O_RDONLY | O_NONBLOCK);
	ck_assert_int_ge(reader, 0);
	ck_assert_int_eq(put("piped", true), 0);
	ck_assert_int_eq(read(reader, got, sizeof(got)), 5);
	ck_assert_str_eq(got, "piped");
	ck_assert_int_eq(close(reader), 0);
	ck_assert_int_eq(lstat(path, &there), 0);
	ck_assert(S_ISFIFO(there.st_mode));
	ck_assert_int_eq(unlink(path), 0);
	(void)snprintf(target, sizeof(target), "%s/target", folder);
	ck_assert_int_eq(symlink(target, path), 0);
	ck_assert_int_eq(put("linked", true), 0);
	ck_assert_str_eq(content(), "linked");
	ck_assert_int_eq(put("half", false), 0);
	ck_assert_str_eq(content(), "linked"); /* Whole or not at all, there too. */
	ck_assert_int_eq(put("again", true), 0);
	ck_assert_str_eq(content(), "again");
	ck_assert_int_eq(lstat(path, &there), 0);
	ck_assert(S_ISLNK(there.st_mode));
	ck_assert_int_eq(unlink(target), 0);
}
END_TEST

/* As /dev/stdout is, where it is a file. */
START_TEST(what_is_open_is_not_replaced)
{
	struct stat before, after;
	struct replacement r;
	char name[32];
	int fd;

	ck_assert_int_eq(put("before", true), 0);
	fd = open(path, O_WRONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &before), 0);
	(void)snprintf(name, sizeof(name), "/dev/fd/%d", fd);
	ck_assert(replacement_open(&r, name));
	ck_assert_int_ge(fputs("after", r.file), 0);
	ck_assert_int_eq(replacement_close(&r, true), 0);
	ck_assert_str_eq(content(), "after");
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(a_full_device_is_said)
{
	struct stat there;

	ck_assert_int_eq(symlink("/dev/full", path), 0);
	ck_assert_int_eq(put("lost", true), ENOSPC);
	ck_assert_int_eq(stat("/dev/full", &there), 0);
	ck_assert(S_ISCHR(there.st_mode));
}
END_TEST

START_TEST(lines_of_a_ledger)
{
	static const uint64_t contributions[] = { 0, 3, 3, 2, 1, 3 }, applied[] = { 0, 4 };
	static const char *const expected =
		"{\"kind\":\"draw\",\"rank\":1,\"step\":5,\"first_row\":96,\"rows\":32}\n"
		"{\"update\":3,\"round\":2,\"rate\":0.5,\"weight_denominator\":4,"
		"\"contributions\":[[0,3,3],[2,1,3]],\"applied\":[[0,4]]}\n"
		"{\"update\":4,\"kind\":\"average\",\"scope\":\"local\",\"ranks\":[1,3,5],"
		"\"step\":8,\"period\":7}\n";
	struct ledger *ledger = ledger_open(path);

	ck_assert_ptr_nonnull(ledger);
	ledger_draw(ledger, 1, 5, 96, 32);
	ledger_update(ledger, &(struct ledger_update) { .update = 3,
							.round = 2,
							.denominator = 4,
							.contributions = contributions,
							.contribution_count = 2,
							.rate = 0.5,
							.applied = applied,
							.applied_count = 1 });
	ledger_average(ledger, 4, "local", 1, 2, 3, 8, 7);
	ck_assert_int_eq(ledger_close(ledger, true), 0);
	ck_assert_str_eq(content(), expected);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("replace");

	tcase_add_checked_fixture(tc, opened, closed);
	tcase_add_test(tc, whole_or_as_before);
	tcase_add_test(tc, no_room_is_said);
	tcase_add_test(tc, left_over_from_a_process_of_this_number);
	tcase_add_test(tc, what_cannot_be_opened);
	tcase_add_test(tc, pipes_and_links_stay);
	tcase_add_test(tc, what_is_open_is_not_replaced);
	tcase_add_test(tc, a_full_device_is_said);
	tcase_add_test(tc, lines_of_a_ledger);
	return check_main("replace", tc);
}
