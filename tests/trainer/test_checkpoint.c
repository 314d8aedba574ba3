/*
 * test_checkpoint.c -- an archive is read whole or refused; and by the program (argument 1): a run
 * that is resumed ends with the same bits as one that was never interrupted, under every rule that
 * repeats, and in virtual time under every rule; also when it was killed. What a disk does to
 * checkpoints ends no run.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"
#include "trainer/checkpoint/archive.h"
#include "trainer/rules/rule.h"
#include "trainer/settings.h"

static const char *train[] = { NULL, "--data", "npy:data", "--quiet", NULL };

/* ---- Archives ---- */

struct content {
	uint32_t number;
	float vector[5];
	char text[3];
};

static rubato_status keep(struct tr_archive *archive, struct content *c, struct tr_error *error)
{
	TR_TRY(tr_archive_bytes(archive, "number", &c->number, sizeof(c->number), error));
	TR_TRY(tr_archive_bytes(archive, "nothing", NULL, 0, error));
	TR_TRY(tr_archive_bytes(archive, "vector", c->vector, sizeof(c->vector), error));
	return tr_archive_bytes(archive, "text", c->text, sizeof(c->text), error);
}

static const struct content first = { 7, { 1, -2, 0.5f, 1e30f, 0 }, "ab" };

static void save(const char *path)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_error error;

	ck_assert_int_eq(tr_archive_create(&archive, path, &error), RUBATO_OK);
	ck_assert(!tr_archive_loading(archive));
	ck_assert_int_eq(keep(archive, &c, &error), RUBATO_OK);
	ck_assert_int_ne(access(path, F_OK), 0); /* Not before it is whole. */
	ck_assert_int_eq(tr_archive_finish(archive, &error), RUBATO_OK);
	tr_archive_close(archive);
}

static rubato_status load(const char *path, struct content *c, struct tr_error *error)
{
	struct tr_archive *archive;
	rubato_status err = tr_archive_open(&archive, path, error);

	if (err)
		return err;
	ck_assert(tr_archive_loading(archive));
	err = keep(archive, c, error);
	if (err == RUBATO_OK)
		err = tr_archive_finish(archive, error);
	tr_archive_close(archive);
	return err;
}

START_TEST(an_archive_gives_back_what_it_got)
{
	struct content c = { 0 };
	struct tr_archive *archive;
	struct tr_error error;

	save("a");
	ck_assert_int_eq(load("a", &c, &error), RUBATO_OK);
	ck_assert_int_eq(memcmp(&c, &first, sizeof(c)), 0);
	/* Given up, it leaves nothing; and the older one stays. */
	ck_assert_int_eq(tr_archive_create(&archive, "a", &error), RUBATO_OK);
	tr_archive_close(archive);
	ck_assert_int_eq(load("a", &c, &error), RUBATO_OK);
	ck_assert_uint_eq(folder_count("."), 2); /* And the data. */
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_error error;

	save("a");
	ck_assert_int_eq(tr_archive_open(&archive, "a", &error), RUBATO_OK);
	ck_assert_int_eq(tr_archive_bytes(archive, "vectors", c.vector, sizeof(c.vector), &error),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "no 'vectors'"));
	ck_assert_int_eq(tr_archive_bytes(archive, "vector", c.vector, 16, &error),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "20 bytes, and 16"));
	ck_assert_int_eq(tr_archive_bytes(archive, "vector", c.vector, sizeof(c.vector), &error),
			 RUBATO_OK);
	ck_assert_int_eq(tr_archive_finish(archive, &error), RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "'number'"));
	tr_archive_close(archive);
	ck_assert_int_eq(tr_archive_open(&archive, "b", &error), RUBATO_ERR_SYSTEM);
	ck_assert_int_eq(tr_archive_create(&archive, "none/b", &error), RUBATO_ERR_SYSTEM);
}
END_TEST

START_TEST(every_damage_is_found)
{
	struct content c;
	struct tr_error error;
	size_t size_bytes;
	uint8_t *bytes;

	save("a");
	bytes = file_read("a", &size_bytes);
	for (size_t i = 0; i < size_bytes; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		file_write("b", bytes, size_bytes);
		bytes[i] ^= (uint8_t)(1u << i % 8);
		ck_assert_msg(load("b", &c, &error) == RUBATO_ERR_ARGUMENT, "byte %zu", i);
		file_write("b", bytes, i);
		ck_assert_msg(load("b", &c, &error) == RUBATO_ERR_ARGUMENT, "%zu bytes", i);
	}
	bytes[size_bytes] = 0;
	file_write("b", bytes, size_bytes + 1);
	ck_assert_int_eq(load("b", &c, &error), RUBATO_ERR_ARGUMENT);
	free(bytes);
}
END_TEST

START_TEST(a_full_disk_is_said_at_the_end)
{
	struct content c = first;
	struct tr_archive *archive;
	struct tr_error error;

	ck_assert_int_eq(symlink("/dev/full", "a.part"), 0);
	ck_assert_int_eq(tr_archive_create(&archive, "a", &error), RUBATO_OK);
	ck_assert_int_eq(keep(archive, &c, &error), RUBATO_OK);
	ck_assert_int_eq(tr_archive_finish(archive, &error), RUBATO_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(error.text, "No space left"));
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

static void file_copy(const char *from, const char *to)
{
	size_t size_bytes;
	char *text = file_read(from, &size_bytes);

	ck_assert_ptr_nonnull(text);
	file_write(to, text, size_bytes);
	free(text);
}

#define RUN                                                                                        \
	"--batch 4 --steps 40 --seed 4 --report-every 7 --eval-every 1 --lr 0.02 "                 \
	"--lr-schedule cosine "
#define MLP "--model mlp --hidden 8 "
#define KEPT "--checkpoint ck --checkpoint-every 10 "

static const char *const rules[] = {
	"--algorithm sync --model cnn --momentum 0.9",
	MLP "--algorithm sync --optimizer adam",
	/* Its statistics show in the tests' lines. */
	"--algorithm sync --model resnet20 --momentum 0.9",
	MLP "--algorithm kavg --k 7 --outer nesterov --opt-state average --momentum 0.9",
	MLP "--algorithm kavg --k 7 --wire int8 --momentum 0.9",
	MLP "--algorithm hier --k1 3 --k2 12 --group 2 --outer slowmo --momentum 0.9",
	MLP "--algorithm periodic --schedule post-local --momentum 0.9",
	MLP "--algorithm periodic --schedule adacomm --optimizer adam",
	MLP "--algorithm adpsgd --wire bf16 --momentum 0.9",
	MLP "--algorithm local --k 7 --outer block --optimizer adamw",
	MLP "--algorithm local --k 7 --pull 0.3 --momentum 0.9",
	MLP "--algorithm laga --accumulate 3 --rate-by-count --clip 1 --momentum 0.9",
	MLP "--algorithm laga --accumulate 7 --lag 2 --optimizer adam",
	MLP "--algorithm laga --lag 3 --first-step zero --lag-comp lookahead --momentum 0.9",
};
#define RULE_COUNT ((int)(sizeof(rules) / sizeof(rules[0])))

START_TEST(every_rule_is_resumed)
{
	for (const char *const *name = tr_rule_names(); *name != NULL; name++) {
		char option[64];
		bool found = strcmp(*name, "eager") == 0; /* In `timely`. */

		snprintf(option, sizeof(option), "--algorithm %s", *name);
		for (int i = 0; i < RULE_COUNT; i++)
			found |= strstr(rules[i], option) != NULL;
		ck_assert_msg(found, "no run of --algorithm %s is resumed here", *name);
	}
}
END_TEST

/* The newest checkpoint loses its manifest, as if the run had been killed just before that. */
START_TEST(a_resumed_run_ends_with_the_same_bits)
{
	static const char *const places[] = { "--simulate --ranks 4 --compute-time 3ms",
					      "--ranks 3" };
	const char *rule = rules[_i / 2], *place = places[_i % 2];
	char line[1024];

	/* Short: each rule in one of the places. */
	if (test_length() == TEST_SHORT && !test_is_threads_only() && (_i / 2 + _i) % 2 != 0)
		return;
	if (test_is_threads_only() && _i % 2 == 0)
		return;
	snprintf(line, sizeof(line), RUN KEPT "%s %s --no-report --out a", rule, place);
	line_succeed(train, line);
	ck_assert_uint_eq(folder_count("ck"), 2); /* The last two. */
	for (int back = 0; back < 2; back++) {
		if (back == 0)
			ck_assert_int_eq(unlink("ck/step-40/manifest.ckpt"), 0);
		snprintf(line, sizeof(line), RUN KEPT "%s %s --no-report --out b --resume", rule,
			 place);
		line_succeed(train, line);
		files_compare("a/final.npy", "b/final.npy");
		files_compare("a/initial.npy", "b/initial.npy");
		files_compare("a/ledger.jsonl", "b/ledger.jsonl");
		ck_assert_uint_eq(folder_count("ck"), 2);
	}
	/* Where the files of the run lie, its lines go on. */
	ck_assert_int_eq(unlink("ck/step-40/manifest.ckpt"), 0);
	ck_assert_int_eq(rename("a/metrics.jsonl", "a.jsonl"), 0);
	file_copy("a.jsonl", "b/metrics.jsonl");
	line_succeed(train, line);
	must_tell_the_same("a.jsonl", "b/metrics.jsonl");
}
END_TEST

/* ---- In virtual time ---- */

#define WORLD                                                                                      \
	"--simulate --ranks 4 --batch 4 --seed 4 --report-every 7 --eval-every 1 --lr 0.02 "       \
	"--compute-time 1ms "

#define SELDOM "--checkpoint ck --checkpoint-every 20 "

#define EVEN MLP "--momentum 0.5 "

/* Ranks of unequal speed, whose rounds depend on time. */
static const char *const timely[] = {
	EVEN "--algorithm eager --policy quorum:2 --rounds free --delay random:2ms",
	EVEN "--algorithm eager --policy solo --rounds free --delay random:2ms --jitter 2",
	EVEN "--algorithm eager --policy majority --rounds free --delay random:2ms --latency 100us",
	EVEN "--algorithm eager --policy majority --delay random:2ms",
	EVEN "--algorithm eager --policy adaptive --delay random:1ms,3ms",
	EVEN "--algorithm eager --policy adaptive --rounds free --delay rotating:3ms",
	EVEN "--algorithm eager --policy wagma:2 --full-every 7 --delay random:2ms",
	EVEN "--algorithm eager --policy wagma:2 --late drop --collect latest --delay random:2ms",
	EVEN "--algorithm eager --policy deadline:500us --window 300us --delay rotating:3ms",
	EVEN "--algorithm eager --policy quorum:2 --full-every 7 --collect own --delay random:2ms",
	EVEN
	"--algorithm eager --policy quorum:2 --late latest --collect latest --delay random:2ms",
	EVEN "--algorithm eager --policy quorum:2 --late drop --max-absence 3 --delay random:2ms",
	EVEN "--algorithm eager --policy quorum:3 --model-sync-every 8 --delay random:2ms",
	EVEN "--algorithm eager --policy solo --lag-comp lookahead --normalise samples --delay "
	     "random:2ms",
	EVEN "--algorithm eager --policy quorum:2 --work shared --delay rank:1:3ms",
	EVEN "--algorithm eager --policy adaptive --work shared --normalise contributors --delay "
	     "random:2ms",
	EVEN "--algorithm eager --policy solo --work shared --topology nodes:2 --delay linear:2ms",
	EVEN "--algorithm laga --accumulate until-done --delay random:2ms --latency 1ms",
	EVEN "--algorithm laga --accumulate until-done --lag 2 --work shared --delay rank:1:3ms",
	EVEN "--algorithm sync --delay random:2ms --jitter 0.5",
	EVEN "--algorithm local --k 7 --pull 0.3 --delay random:2ms --latency 2ms",
	EVEN "--algorithm hier --k1 3 --k2 12 --group 2 --wire bf16 --delay random:2ms",
	EVEN "--algorithm hier --k1 16 --k2 48 --topology nodes:2", /* Its group meets late. */
};
#define TIMELY_COUNT ((int)(sizeof(timely) / sizeof(timely[0])))

static void folders_compare(void)
{
	files_compare("a/final.npy", "b/final.npy");
	files_compare("a/initial.npy", "b/initial.npy");
	files_compare("a/ledger.jsonl", "b/ledger.jsonl");
	files_compare("a/metrics.jsonl", "b/metrics.jsonl"); /* Times and bytes, too. */
	files_compare("a/summary.json", "b/summary.json");
	files_compare("a/run.json", "b/run.json");
}

/* Ranks meet for a checkpoint whatever rounds they wait for, and the run that goes on from there is
 * the one that was never interrupted. */
START_TEST(a_resumed_simulation_is_the_same_run)
{
	char line[1024];

	if (test_length() == TEST_SHORT && _i % 3 != 0)
		return;
	snprintf(line, sizeof(line),
		 WORLD "--steps 60 --lr-schedule cosine %s " SELDOM "--no-report --out a",
		 timely[_i]);
	line_succeed(train, line);
	ck_assert_uint_eq(folder_count("ck"), 2);
	ck_assert_int_eq(unlink("ck/step-60/manifest.ckpt"), 0);
	ck_assert_int_eq(mkdir("b", 0777), 0);
	file_copy("a/metrics.jsonl", "b/metrics.jsonl");
	snprintf(line, sizeof(line),
		 WORLD "--steps 60 --lr-schedule cosine %s " SELDOM "--resume --no-report --out b",
		 timely[_i]);
	line_succeed(train, line);
	folders_compare();
}
END_TEST

/* A run that was over goes on, as one would that was longer from the beginning. */
START_TEST(a_run_is_extended)
{
	const char *rule = _i < TIMELY_COUNT ? timely[_i] : rules[_i - TIMELY_COUNT];
	char line[1024];

	/* Short: what a rule keeps, a run that is resumed shows. */
	if (test_length() == TEST_SHORT && (_i % 3 != 1 || _i >= TIMELY_COUNT))
		return;
	if (strstr(rule, "adpsgd") != NULL || strstr(rule, "adacomm") != NULL ||
	    strstr(rule, "post-local") != NULL)
		return; /* They take a share of the run to look around. */
	snprintf(line, sizeof(line),
		 WORLD "%s --steps 40 --checkpoint ck-a --checkpoint-every 20 "
		       "--no-report --out a",
		 rule);
	line_succeed(train, line);
	snprintf(line, sizeof(line), WORLD "%s --steps 20 " SELDOM "--no-report --out b", rule);
	line_succeed(train, line);
	snprintf(line, sizeof(line), WORLD "%s --steps 40 " SELDOM "--resume --no-report --out b",
		 rule);
	line_succeed(train, line);
	folders_compare();
	snprintf(line, sizeof(line), WORLD "%s --steps 39 " SELDOM "--resume --no-report --out b",
		 rule);
	line_fail(train, line, 1, "of step 40, the run is to end at 39");
}
END_TEST

/* Where time is real, too, nobody waits for ever, and every batch is drawn. */
START_TEST(ranks_that_run_apart_meet)
{
	static const char *const apart[] = {
		"--algorithm eager --policy quorum:2 --rounds free --delay random:20ms",
		"--algorithm eager --policy quorum:2 --work shared --delay rank:1:20ms",
		"--algorithm laga --accumulate until-done --work shared --delay rank:1:20ms",
	};
	char line[1024];

	for (int back = 0; back < 2; back++) {
		snprintf(line, sizeof(line),
			 RUN KEPT MLP "--ranks 3 --compute-time 3ms %s --no-report --out b %s",
			 apart[_i], back ? "--resume" : "");
		line_succeed(train, line);
		ck_assert_uint_eq(folder_count("ck"), 2);
		ck_assert_double_eq(number_first("b/summary.json", "samples"), 3 * 40 * 4);
		if (!back)
			ck_assert_int_eq(unlink("ck/step-40/manifest.ckpt"), 0);
	}
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

/* Ranks end after the program that started them was killed; until then the folder is theirs. */
static void wait_for_ranks(const char *where)
{
	int folder = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(folder, 0);
	ck_assert_int_eq(flock(folder, LOCK_EX), 0);
	close(folder);
}

START_TEST(a_killed_run_is_resumed)
{
	static const char line[] =
		RUN KEPT MLP "--ranks 3 --compute-time 10ms --no-report --out b ";
	struct command command;
	char more[1024];
	int status;
	pid_t pid;

	line_succeed(train, RUN MLP "--ranks 3 --no-report --out a");
	ck_assert_int_eq(mkdir("ck", 0777), 0);
	line_split(train, line, &command);
	pid = process_start(command.argv, STDOUT_FILENO, STDERR_FILENO);
	/* The second begins when the first is complete. */
	wait_for_file("ck", "ck/step-20");
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status), "it was over before it was killed");
	ck_assert_int_ne(access("b/summary.json", F_OK), 0);
	wait_for_ranks("ck");
	snprintf(more, sizeof(more), "%s--resume", line);
	line_succeed(train, more);
	files_compare("a/final.npy", "b/final.npy");
	files_compare("a/ledger.jsonl", "b/ledger.jsonl");
	must_tell_the_same("a/metrics.jsonl", "b/metrics.jsonl");
}
END_TEST

/* Killed before the oldest of three was removed, or while one was, or while one was written. */
START_TEST(what_a_killed_run_has_left_is_removed)
{
	static const char line[] = RUN KEPT MLP "--ranks 2 --no-report --out a ";
	char more[512];

	line_succeed(train, line);
	ck_assert_uint_eq(folder_count("ck"), 2);
	ck_assert_int_eq(rename("ck/step-40", "kept"), 0);
	ck_assert_int_eq(system("cp -r ck/step-30 ck/step-20 && cp -r ck/step-30 ck/step-10 && "
				"rm ck/step-10/manifest.ckpt ck/step-10/rank-0.ckpt && "
				"cp -r ck/step-10 ck/step-5 && cp -r ck/step-10 ck/step-6 && "
				"mv ck/step-5/rank-1.ckpt ck/step-5/rank-1.ckpt.part && "
				"touch ck/step-6/manifest.ckpt.damaged ck/other && "
				"mv kept ck/step-40"),
			 0);
	snprintf(more, sizeof(more), "%s--resume", line);
	line_succeed(train, more);
	ck_assert_int_eq(access("ck/step-40/manifest.ckpt", F_OK), 0);
	ck_assert_int_eq(access("ck/step-30/manifest.ckpt", F_OK), 0);
	ck_assert_int_ne(access("ck/step-20", F_OK), 0);
	ck_assert_int_ne(access("ck/step-10", F_OK), 0);
	ck_assert_int_ne(access("ck/step-5", F_OK), 0);
	/* Somebody may want to look at it. */
	ck_assert_int_eq(access("ck/step-6/rank-1.ckpt", F_OK), 0);
	ck_assert_int_eq(access("ck/other", F_OK), 0);
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
	line_fail(train, SHORT "--ranks 3 --resume --out out", 1, "--out");
	line_fail(train, "--steps 5 --resume", 2, "--checkpoint");
	line_fail(train, "--steps 5 --checkpoint-every 5", 2, "--checkpoint");
	line_fail(train, "--steps 5 --checkpoint ck --checkpoint-every 0", 2, "--checkpoint-every");
	line_fail(train, "--batch 4 --steps 5 --checkpoint none/ck", 1, "No such file");
	line_succeed(train, SHORT "--ranks 3 --resume"); /* All this has done no harm. */
}
END_TEST

/* Each option that changes what is computed, or what is told of it, makes another run. */
START_TEST(another_run_is_refused)
{
	static const char *const general[] = {
		"--lr 0.1",           "--lr-schedule linear",
		"--warmup 2",         "--momentum 0.5",
		"--batch 5",          "--weight-decay 0.1",
		"--optimizer adam",   "--seed 1",
		"--no-shuffle",       "--bucket 2K",
		"--report-every 3",   "--clip 1",
		"--compute-time 1us", "--delay random:1us",
		"--model mlp",        "--algorithm laga",
		"--delay linear:1us",
	};
	static const struct {
		const char *rule, *options[12];
	} own[] = {
		{ "laga --accumulate 2",
		  { "--accumulate 3", "--lag 2", "--lag-comp lookahead", "--first-step zero",
		    "--rate-by-count" } },
		{ "kavg --outer nesterov",
		  { "--k 2", "--outer block", "--outer-momentum 0.1", "--outer-lr 0.5",
		    "--outer-gain 1-mu", "--nesterov-base shifted", "--opt-state reset",
		    "--wire int8" } },
		{ "hier", { "--k1 1", "--k2 6", "--group 2" } },
		{ "adpsgd",
		  { "--period 2", "--period-max 3", "--adapt-low 0.1", "--adapt-high 2",
		    "--adapt-sample-steps 2" } },
		{ "local", { "--k 2", "--pull 0.5" } },
		{ "eager --policy quorum:2",
		  { "--policy quorum:1", "--policy solo", "--rounds free", "--late drop",
		    "--normalise samples", "--collect own", "--collect each:3", "--full-every 2",
		    "--max-absence 2", "--window 1ms", "--model-sync-every 2", "--work shared" } },
		{ "eager --policy deadline:1ms", { "--policy deadline:2ms" } },
		{ "eager --policy wagma:1", { "--policy wagma:3" } },
	};
	size_t every = test_length() == TEST_SHORT ? 4 : 1;
	char line[512];

	line_succeed(train, SHORT "--ranks 3");
	for (size_t i = 0; i < sizeof(general) / sizeof(general[0]); i += every) {
		snprintf(line, sizeof(line), SHORT "--ranks 3 --resume %s", general[i]);
		line_fail(train, line, 1, "other options");
	}
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		folder_remove("ck");
		snprintf(line, sizeof(line), SHORT "--ranks 3 --momentum 0.5 --algorithm %s",
			 own[i].rule);
		line_succeed(train, line);
		for (size_t k = i % every; k < 12 && own[i].options[k] != NULL; k += every) {
			snprintf(line, sizeof(line),
				 SHORT "--ranks 3 --resume --momentum 0.5 --algorithm %s %s",
				 own[i].rule, own[i].options[k]);
			line_fail(train, line, 1, "other options");
		}
	}
}
END_TEST

/* The network makes a simulated run's times; ranks that are real have none of these. */
START_TEST(another_network_is_refused)
{
	static const char *const other[] = {
		"--latency 1ms",      "--bandwidth 1GB/s", "--node-latency 1us",
		"--topology nodes:3", "--jitter 0.5",      "--gap 1us",
	};
	char line[512];

	line_succeed(train, SHORT "--simulate --ranks 3 --topology nodes:2");
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		snprintf(line, sizeof(line),
			 SHORT "--simulate --ranks 3 --topology nodes:2 --resume %s", other[i]);
		line_fail(train, line, 1, "other options of its simulated network");
	}
	line_succeed(train, SHORT "--simulate --ranks 3 --topology nodes:2 --resume");
	line_succeed(train, SHORT "--ranks 3 --steps 9 --resume");
	line_succeed(train, SHORT "--simulate --ranks 3 --latency 1ms --steps 12 --resume");
}
END_TEST

/* What a run reads is part of it, not only how much of it there is. */
START_TEST(other_contents_are_refused)
{
	struct tr_npy init;
	struct tr_error error;
	float *values;

	line_succeed(train, SHORT "--ranks 3 --no-report --out first");
	ck_assert_int_eq(tr_npy_read("first/final.npy", &init, &error), RUBATO_OK);
	line_fail(train, SHORT "--ranks 3 --resume --init first/final.npy", 1, "other options");
	folder_remove("ck");
	line_succeed(train, SHORT "--ranks 3 --init first/final.npy");
	values = (float *)init.bytes;
	values[0] += 1;
	ck_assert_int_eq(tr_npy_write("other.npy", values, init.count, &error), RUBATO_OK);
	free(init.bytes);
	line_fail(train, SHORT "--ranks 3 --resume --init other.npy", 1, "other options");
	line_fail(train, SHORT "--ranks 3 --resume", 1, "other options");
	damage("data/x.npy", 600);
	line_fail(train, SHORT "--ranks 3 --resume --init first/final.npy", 1, "other options");
	damage("data/x.npy", 600);
	damage("data/y.npy", 128);
	line_fail(train, SHORT "--simulate --ranks 3 --resume --init first/final.npy", 1,
		  "other options");
	damage("data/y.npy", 128);
	line_succeed(train, SHORT "--ranks 3 --resume --init first/final.npy");
}
END_TEST

/* What it would have written over stays. */
START_TEST(a_refused_run_leaves_the_folder_of_another)
{
	static const char *const files[] = { "run.json",      "summary.json", "ledger.jsonl",
					     "metrics.jsonl", "initial.npy",  "final.npy",
					     "trace.json" };
	char one[64], other[64];

	line_succeed(train, SHORT "--ranks 3 --no-report --out out");
	folder_remove("ck");
	ck_assert_int_eq(system("cp -r out kept"), 0);
	line_succeed(train, SHORT "--ranks 3 --seed 1");
	line_fail(train, SHORT "--ranks 3 --seed 1 --resume --out out", 1, "--out");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(one, sizeof(one), "out/%s", files[i]);
		snprintf(other, sizeof(other), "kept/%s", files[i]);
		files_compare(one, other);
	}
}
END_TEST

static unsigned lines_of(const char *path, const char *first_words)
{
	size_t size_bytes;
	char *text = file_read(path, &size_bytes);
	unsigned count;

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strncmp(text, first_words, strlen(first_words)) == 0, "%.60s", text);
	count = line_count(text);
	free(text);
	return count;
}

/* A run goes on in its own lines, wherever they lie; those of another are none of its. */
START_TEST(no_lines_of_another_run_stay)
{
	static const char each[] = SHORT "--ranks 3 --report-every 1 --no-report ";
	char line[512];

	snprintf(line, sizeof(line), "%s--out other", each);
	line_succeed(train, line);
	folder_remove("ck");
	snprintf(line, sizeof(line), "%s--seed 1 --steps 3 --out out", each);
	line_succeed(train, line);
	ck_assert_int_eq(system("cp -r ck kept && mv out moved"), 0);
	snprintf(line, sizeof(line), "%s--seed 1 --resume --out moved", each);
	line_succeed(train, line);
	ck_assert_uint_eq(lines_of("moved/metrics.jsonl", "{\"step\":1,"), 6);
	folder_remove("ck");
	ck_assert_int_eq(rename("kept", "ck"), 0);
	snprintf(line, sizeof(line), "%s--seed 1 --resume --out other", each);
	line_succeed(train, line);
	ck_assert_uint_eq(lines_of("other/metrics.jsonl", "{\"step\":4,"), 3);
}
END_TEST

/* As of one that was started again while it still ran. */
START_TEST(two_runs_at_once_are_refused)
{
	int folder;

	ck_assert_int_eq(mkdir("ck", 0777), 0);
	folder = open("ck", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(folder, 0);
	ck_assert_int_eq(flock(folder, LOCK_EX | LOCK_NB), 0);
	line_fail(train, SHORT "--ranks 3", 1, "another run is at work in ck");
	ck_assert_uint_eq(folder_count("ck"), 0);
	ck_assert_int_eq(flock(folder, LOCK_UN), 0);
	line_succeed(train, SHORT "--ranks 3");
	ck_assert_int_eq(flock(folder, LOCK_EX | LOCK_NB), 0);
	line_fail(train, SHORT "--ranks 3 --resume", 1, "another run is at work in ck");
	line_fail(train, SHORT "--simulate --ranks 3 --resume", 1, "another run is at work in ck");
	close(folder);
	line_succeed(train, SHORT "--ranks 3 --resume");
}
END_TEST

#define COUNT(name) +1
#define ALL_RULES (0 TR_RULES(COUNT))

/* Each byte of an option makes another run. What lies between two is anybody's, and must not tell
 * ranks apart; where two lie in one place, the bytes are fewer. */
START_TEST(all_bytes_of_options_matter_and_no_others)
{
	const struct tr_rule *rule = tr_rule_at((size_t)_i);
	struct tr_options options = { .rule = rule, .own = tr_rule_options_new(rule) };
	struct tr_model model = { .kind = TR_MLP };
	struct tr_data data = { .train.rows = 7 };
	uint64_t hash = tr_settings_hash(&options, &model, &data), changed = 0, wanted = 0;
	uint8_t *bytes = (uint8_t *)options.own;

	for (size_t i = 0; i < rule->options_bytes; i++) {
		bytes[i] ^= 1;
		changed += tr_settings_hash(&options, &model, &data) != hash;
		bytes[i] ^= 1;
	}
	for (const struct tr_option_group *g = rule->groups; g != NULL && g->rows != NULL; g++)
		for (const struct option *row = g->rows; row->name != NULL; row++)
			wanted += options_size(row);
	ck_assert_uint_eq(changed, wanted);
	free(options.own);
}
END_TEST

/* ---- Disks ---- */

/* The run ends well, and says so once on standard error. */
static void line_warn(const char *line, const char *word)
{
	struct outcome got;

	line_run(train, line, &got);
	ck_assert_msg(got.status == 0 && line_count(got.out) == 1, "'%s': status %d: '%s'", line,
		      got.status, got.err);
	ck_assert_msg(line_count(got.err) == 1 && strstr(got.err, word) != NULL,
		      "'%s': '%s' lacks '%s'", line, got.err, word);
}

/* Of the newest checkpoint a file is damaged, cut off, or gone: the one before it is taken, once
 * for each way to start ranks; and it does not pass for whole later on. */
START_TEST(an_older_checkpoint_stands_in)
{
	static const char *const places[] = { "--ranks 3", "--simulate --ranks 3" };
	char line[512];

	snprintf(line, sizeof(line), SHORT "%s --no-report --out a", places[_i % 2]);
	line_succeed(train, line);
	if (_i / 2 == 0)
		damage("ck/step-6/rank-1.ckpt", 200);
	else if (_i / 2 == 1)
		ck_assert_int_eq(truncate("ck/step-6/rank-2.ckpt", 500), 0);
	else if (_i / 2 == 2)
		ck_assert_int_eq(unlink("ck/step-6/rank-0.ckpt"), 0);
	else
		damage("ck/step-6/manifest.ckpt", 30);
	snprintf(line, sizeof(line), SHORT "%s --no-report --out b --resume", places[_i % 2]);
	line_warn(line, "going on from step 3");
	files_compare("a/final.npy", "b/final.npy");
	ck_assert_int_eq(access("ck/step-6/manifest.ckpt.damaged", F_OK), 0);
	line_succeed(train, line); /* It was made anew. */

	/* Where none is whole, the last one's damage is the error. */
	damage("ck/step-6/rank-1.ckpt", 200);
	damage("ck/step-3/rank-2.ckpt", 200);
	struct outcome got;
	line_run(train, line, &got);
	ck_assert_int_eq(got.status, 1);
	ck_assert_uint_eq(line_count(got.err), 2);
	ck_assert_ptr_nonnull(strstr(got.err, "step-6/rank-1.ckpt: damaged"));
	ck_assert_ptr_nonnull(strstr(got.err, "step-3/rank-2.ckpt: damaged"));
}
END_TEST

/* A disk that is full for one rank, at one checkpoint: that one is not made, the older ones stay,
 * and the run goes on to the same end. */
START_TEST(a_full_disk_ends_no_run)
{
	static const char *const full[] = { "ck/step-20/rank-1.ckpt.part",
					    "ck/step-20/manifest.ckpt.part" };
	char line[512];

	line_succeed(train, RUN MLP "--ranks 3 --no-report --out a");
	ck_assert_int_eq(mkdir("ck", 0777), 0);
	ck_assert_int_eq(mkdir("ck/step-20", 0777), 0);
	ck_assert_int_eq(symlink("/dev/full", full[_i]), 0);
	snprintf(line, sizeof(line), RUN KEPT MLP "--ranks 3 --no-report --out b");
	line_warn(line, "No space left on device: the run goes on without a checkpoint of step 20");
	files_compare("a/final.npy", "b/final.npy");
	files_compare("a/ledger.jsonl", "b/ledger.jsonl");
	ck_assert_uint_eq(folder_count("ck"), 2); /* Of steps 30 and 40. */
	ck_assert_int_ne(access("ck/step-20", F_OK), 0);
	snprintf(line, sizeof(line), RUN KEPT MLP "--ranks 3 --no-report --out b --resume");
	line_succeed(train, line);
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
	tcase_add_test(tests, every_rule_is_resumed);
	tcase_add_loop_test(tests, a_resumed_run_ends_with_the_same_bits, 0, 2 * RULE_COUNT);
	tcase_add_test(tests, a_killed_run_is_resumed);
	tcase_add_test(tests, what_a_killed_run_has_left_is_removed);
	if (!test_is_threads_only()) {
		tcase_add_loop_test(tests, a_resumed_simulation_is_the_same_run, 0, TIMELY_COUNT);
		tcase_add_loop_test(tests, a_run_is_extended, 0, TIMELY_COUNT + RULE_COUNT);
		tcase_add_test(tests, another_run_is_refused);
		tcase_add_test(tests, another_network_is_refused);
		tcase_add_loop_test(tests, all_bytes_of_options_matter_and_no_others, 0, ALL_RULES);
	}
	tcase_add_loop_test(tests, ranks_that_run_apart_meet, 0, 3);
	tcase_add_test(tests, what_cannot_be_resumed_is_refused);
	tcase_add_test(tests, other_contents_are_refused);
	tcase_add_test(tests, a_refused_run_leaves_the_folder_of_another);
	tcase_add_test(tests, no_lines_of_another_run_stay);
	tcase_add_test(tests, two_runs_at_once_are_refused);
	tcase_add_loop_test(tests, an_older_checkpoint_stands_in, 0, 8);
	tcase_add_loop_test(tests, a_full_disk_ends_no_run, 0, 2);
	return check_main("checkpoint", tests);
}
