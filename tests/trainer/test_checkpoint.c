/*
 * test_checkpoint.c -- an archive is read whole or refused; and by the program (argument 1): a run
 * that is resumed ends with the same bits as one that was never interrupted, under every rule that
 * repeats, also when it was killed.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/effort.h"
#include "tests/trainer/support.h"
#include "trainer/archive.h"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

/* ---- Archives ---- */

struct content {
	uint32_t number;
	float vector[5];
	char text[3];
};

static rubato_status keep(struct tr_archive *archive, struct content *c, struct tr_note *note)
{
	TR_TRY(tr_archive_bytes(archive, "number", &c->number, sizeof(c->number), note));
	TR_TRY(tr_archive_bytes(archive, "nothing", NULL, 0, note));
	TR_TRY(tr_archive_bytes(archive, "vector", c->vector, sizeof(c->vector), note));
	return tr_archive_bytes(archive, "text", c->text, sizeof(c->text), note);
}

static const struct content first = { 7, { 1, -2, 0.5f, 1e30f, 0 }, "ab" };

static void save(const char *path)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_note note;

	ck_assert_int_eq(tr_archive_create(&archive, path, &note), RUBATO_OK);
	ck_assert(!tr_archive_loading(archive));
	ck_assert_int_eq(keep(archive, &c, &note), RUBATO_OK);
	ck_assert_int_ne(access(path, F_OK), 0); /* Not before it is whole. */
	ck_assert_int_eq(tr_archive_finish(archive, &note), RUBATO_OK);
	tr_archive_close(archive);
}

static rubato_status load(const char *path, struct content *c, struct tr_note *note)
{
	struct tr_archive *archive;
	rubato_status err = tr_archive_open(&archive, path, note);

	if (err)
		return err;
	ck_assert(tr_archive_loading(archive));
	err = keep(archive, c, note);
	if (err == RUBATO_OK)
		err = tr_archive_finish(archive, note);
	tr_archive_close(archive);
	return err;
}

START_TEST(an_archive_gives_back_what_it_got)
{
	struct content c = { 0 };
	struct tr_archive *archive;
	struct tr_note note;

	save("a");
	ck_assert_int_eq(load("a", &c, &note), RUBATO_OK);
	ck_assert_int_eq(memcmp(&c, &first, sizeof(c)), 0);
	/* Given up, it leaves nothing; and the older one stays. */
	ck_assert_int_eq(tr_archive_create(&archive, "a", &note), RUBATO_OK);
	tr_archive_close(archive);
	ck_assert_int_eq(load("a", &c, &note), RUBATO_OK);
	ck_assert_uint_eq(folder_count("."), 2); /* And the data. */
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_note note;

	save("a");
	ck_assert_int_eq(tr_archive_open(&archive, "a", &note), RUBATO_OK);
	ck_assert_int_eq(tr_archive_bytes(archive, "vectors", c.vector, sizeof(c.vector), &note),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(note.text, "no 'vectors'"));
	ck_assert_int_eq(tr_archive_bytes(archive, "vector", c.vector, 16, &note),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(note.text, "20 bytes, and 16"));
	ck_assert_int_eq(tr_archive_bytes(archive, "vector", c.vector, sizeof(c.vector), &note),
			 RUBATO_OK);
	ck_assert_int_eq(tr_archive_finish(archive, &note), RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(note.text, "'number'"));
	tr_archive_close(archive);
	ck_assert_int_eq(tr_archive_open(&archive, "b", &note), RUBATO_ERR_SYSTEM);
	ck_assert_int_eq(tr_archive_create(&archive, "none/b", &note), RUBATO_ERR_SYSTEM);
}
END_TEST

START_TEST(every_damage_is_found)
{
	struct content c;
	struct tr_note note;
	size_t size_bytes;
	uint8_t *bytes;

	save("a");
	bytes = file_read("a", &size_bytes);
	for (size_t i = 0; i < size_bytes; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		file_write("b", bytes, size_bytes);
		bytes[i] ^= (uint8_t)(1u << i % 8);
		ck_assert_msg(load("b", &c, &note) == RUBATO_ERR_ARGUMENT, "byte %zu", i);
		file_write("b", bytes, i);
		ck_assert_msg(load("b", &c, &note) == RUBATO_ERR_ARGUMENT, "%zu bytes", i);
	}
	bytes[size_bytes] = 0;
	file_write("b", bytes, size_bytes + 1);
	ck_assert_int_eq(load("b", &c, &note), RUBATO_ERR_ARGUMENT);
	free(bytes);
}
END_TEST

START_TEST(a_full_disk_is_said_at_the_end)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_note note;

	ck_assert_int_eq(symlink("/dev/full", "a.part"), 0);
	ck_assert_int_eq(tr_archive_create(&archive, "a", &note), RUBATO_OK);
	ck_assert_int_eq(keep(archive, &c, &note), RUBATO_OK);
	ck_assert_int_eq(tr_archive_finish(archive, &note), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(note.text, "No space left"));
	tr_archive_close(archive);
	ck_assert_uint_eq(folder_count("."), 1);
}
END_TEST

/* ---- Runs ---- */

/* The same lines up to their times and bytes, which a resumed run spends anew. */
static void must_tell_the_same(const char *a, const char *b)
{
	size_t a_bytes, b_bytes;
	char *a_text = file_read(a, &a_bytes), *b_text = file_read(b, &b_bytes);
	char *at = a_text, *bt = b_text;

	ck_assert_msg(a_text != NULL && b_text != NULL, "%s or %s is missing", a, b);
	ck_assert_uint_eq(line_count(a_text), line_count(b_text));
	for (unsigned i = line_count(a_text); i > 0; i--) {
		size_t length = (size_t)(strstr(at, ",\"time\"") - at);

		ck_assert_msg(strncmp(at, bt, length + 7) == 0, "'%.*s' and '%.*s'", (int)length,
			      at, (int)length, bt);
		at = strchr(at, '\n') + 1;
		bt = strchr(bt, '\n') + 1;
	}
	free(a_text);
	free(b_text);
}

#define RUN                                                                                        \
	"--model mlp --hidden 8 --batch 4 --steps 40 --momentum 0.9 --seed 4 --report-every 7 "    \
	"--eval-every 1 --lr 0.02 --lr-schedule cosine "
#define KEPT "--checkpoint ck --checkpoint-every 10 "

static const char *const rules[] = {
	"--algorithm sync --model cnn",
	"--algorithm sync --optimizer adam",
	"--algorithm sync --model resnet20", /* Its statistics show in the tests' lines. */
	"--algorithm kavg --k 7 --outer nesterov --opt-state average",
	"--algorithm kavg --k 7 --wire int8",
	"--algorithm hier --k1 3 --k2 12 --group 2 --outer slowmo",
	"--algorithm periodic --schedule post-local",
	"--algorithm periodic --schedule adacomm --optimizer adam",
	"--algorithm adpsgd --wire bf16",
	"--algorithm local --k 7 --outer block --optimizer adamw",
	"--algorithm local --k 7 --pull 0.3",
	"--algorithm laga --accumulate 3 --rate-by-count --clip 1",
	"--algorithm laga --accumulate 7 --lag 2 --optimizer adam",
	"--algorithm laga --lag 3 --first-step zero --lag-comp lookahead",
};
#define RULE_COUNT ((int)(sizeof(rules) / sizeof(rules[0])))

/* The newest checkpoint loses its manifest, as if the run had been killed just before that. */
START_TEST(a_resumed_run_ends_with_the_same_bits)
{
	static const char *const places[] = { "--simulate --ranks 4 --compute-time 3ms",
					      "--ranks 3" };
	const char *rule = rules[_i / 2], *place = places[_i % 2];
	char line[1024];

	/* Short: each rule in one of the places. */
	if (effort_wanted() == EFFORT_SHORT && !effort_is_threads_only() && (_i / 2 + _i) % 2 != 0)
		return;
	if (effort_is_threads_only() && _i % 2 == 0)
		return;
	snprintf(line, sizeof(line), RUN KEPT "%s %s --out a", rule, place);
	line_succeed(train, line);
	ck_assert_uint_eq(folder_count("ck"), 2); /* The last two. */
	for (int back = 0; back < 2; back++) {
		if (back == 0)
			ck_assert_int_eq(unlink("ck/step-40/manifest.ckpt"), 0);
		snprintf(line, sizeof(line), RUN KEPT "%s %s --out b --resume", rule, place);
		line_succeed(train, line);
		files_compare("a/final.npy", "b/final.npy");
		files_compare("a/initial.npy", "b/initial.npy");
		files_compare("a/ledger.jsonl", "b/ledger.jsonl");
		ck_assert_uint_eq(folder_count("ck"), 2);
	}
	/* Where the files of the run lie, its lines go on. */
	ck_assert_int_eq(unlink("ck/step-40/manifest.ckpt"), 0);
	ck_assert_int_eq(rename("a/metrics.jsonl", "a.jsonl"), 0);
	size_t size_bytes;
	char *text = file_read("a.jsonl", &size_bytes);
	file_write("b/metrics.jsonl", text, size_bytes);
	free(text);
	line_succeed(train, line);
	must_tell_the_same("a.jsonl", "b/metrics.jsonl");
}
END_TEST

/* Returns when the file is there; ends the test when it does not come. */
static void wait_for_file(const char *where, const char *path)
{
	int fd = inotify_init1(IN_CLOEXEC);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char events[4096];

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(inotify_add_watch(fd, where, IN_CREATE | IN_MOVED_TO), 0);
	while (access(path, F_OK) != 0) {
		ck_assert_int_eq(poll(&ready, 1, 120000), 1);
		ck_assert_int_gt(read(fd, events, sizeof(events)), 0);
	}
	close(fd);
}

START_TEST(a_killed_run_is_resumed)
{
	static const char line[] = RUN KEPT "--ranks 3 --compute-time 10ms --out b ";
	struct command command;
	char more[1024];
	int status;
	pid_t pid;

	line_succeed(train, RUN "--ranks 3 --out a");
	ck_assert_int_eq(mkdir("ck", 0777), 0);
	line_split(train, line, &command);
	pid = process_start(command.argv, STDOUT_FILENO, STDERR_FILENO);
	/* The second begins when the first is complete. */
	wait_for_file("ck", "ck/step-20");
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status), "it was over before it was killed");
	ck_assert_int_ne(access("b/summary.json", F_OK), 0);
	snprintf(more, sizeof(more), "%s--resume", line);
	line_succeed(train, more);
	files_compare("a/final.npy", "b/final.npy");
	files_compare("a/ledger.jsonl", "b/ledger.jsonl");
	must_tell_the_same("a/metrics.jsonl", "b/metrics.jsonl");
}
END_TEST

#define SHORT "--model logistic --batch 4 --steps 6 --checkpoint-every 3 --checkpoint ck "

static void damage(const char *path, size_t at)
{
	size_t size_bytes;
	uint8_t *bytes = file_read(path, &size_bytes);

	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_lt(at, size_bytes);
	bytes[at] ^= 1;
	file_write(path, bytes, size_bytes);
	free(bytes);
}

START_TEST(what_cannot_be_resumed_is_refused)
{
	line_fail(train, SHORT "--ranks 3 --resume", 1, "no complete checkpoint");
	line_succeed(train, SHORT "--ranks 3");
	line_fail(train, SHORT "--ranks 3", 1, "--resume");
	line_fail(train, SHORT "--ranks 2 --resume", 1, "written by 3 ranks");
	line_fail(train, SHORT "--ranks 3 --resume --lr 0.1", 1, "other options");
	line_fail(train, SHORT "--ranks 3 --resume --seed 1", 1, "other options");
	line_fail(train, SHORT "--ranks 3 --resume --out out", 1, "--out");
	line_fail(train, "--steps 5 --resume", 2, "--checkpoint");
	line_fail(train, "--steps 5 --checkpoint-every 5", 2, "--checkpoint");
	line_fail(train, "--steps 5 --checkpoint ck --checkpoint-every 0", 2, "--checkpoint-every");
	line_fail(train, "--batch 4 --steps 5 --checkpoint none/ck", 1, "No such file");
	line_succeed(train, SHORT "--ranks 3 --resume"); /* All this has done no harm. */
	line_fail(train, SHORT "--ranks 3 --algorithm eager --work shared --resume", 2, "shared");
	damage("ck/step-6/rank-1.ckpt", 200);
	line_fail(train, SHORT "--ranks 3 --resume", 1, "step-6/rank-1.ckpt: damaged");
	ck_assert_int_eq(rename("ck/step-6", "ck/aside"), 0);
	line_succeed(train, SHORT "--ranks 3 --resume");
	ck_assert_int_eq(unlink("ck/step-6/rank-2.ckpt"), 0);
	line_fail(train, SHORT "--ranks 3 --resume", 1, "No such file");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tests = tcase_create("checkpoint");

	if (argc != 2)
		return EXIT_FAILURE;
	train[0] = argv[1];
	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, images_enter, folder_leave);
	tcase_add_test(tests, an_archive_gives_back_what_it_got);
	tcase_add_test(tests, what_does_not_fit_is_refused);
	tcase_add_test(tests, every_damage_is_found);
	tcase_add_test(tests, a_full_disk_is_said_at_the_end);
	tcase_add_loop_test(tests, a_resumed_run_ends_with_the_same_bits, 0, 2 * RULE_COUNT);
	tcase_add_test(tests, a_killed_run_is_resumed);
	tcase_add_test(tests, what_cannot_be_resumed_is_refused);
	return check_main("checkpoint", tests);
}
