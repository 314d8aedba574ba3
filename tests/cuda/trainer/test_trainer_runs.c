/*
 * test_trainer_runs.c -- whole runs of rubato-train with --device cuda, on the driver, cuBLAS and
 * cuDNN without a device: every model, every update rule; ranks that are threads and share the
 * device. Their losses, step by step, are those of --device cpu up to rounding; where these depend
 * on time, what a ledger says is computed anew on the processor. They come from the device's
 * memory, and all of that is given back.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/cuda/fakes.h"
#include "tests/length.h"
#include "tests/trainer/support.h"
#include "trainer/base/npy.h"
#include "trainer/train.h"

#define RANKS 2u
#define RULE_RANKS 4u
#define LINES_MAX 64

struct rank {
	const rubato_id *id;
	const struct tr_options *options;
	uint32_t number, count;
	rubato_status status;
	struct tr_error error;
	pthread_t thread;
};

static void *rank_main(void *arg)
{
	struct rank *r = arg;
	rubato_comm *comm;

	r->status = rubato_init_id(&comm, r->id, r->number, r->count, NULL);
	if (r->status == RUBATO_OK) {
		r->status = tr_train(comm, r->options, NULL, -1, &r->error);
		(void)rubato_finalize(comm);
	}
	return NULL;
}

/* What the first rank that failed says; "": all is well. */
static void run(const char *line, const char *device, uint32_t ranks, char *said, size_t said_bytes)
{
	static const char *const first[] = { "rubato-train", NULL };
	struct rank all[RULE_RANKS] = { 0 };
	struct tr_error error = { 0 };
	enum tr_options_verdict verdict;
	struct tr_options options;
	struct command command;
	/* Under sanitizers: these take most of the time. */
	const bool less = test_length() == TEST_SHORT &&
			  (strstr(line, "--model gpt") != NULL ||
			   strstr(line, "--steps 50 --model resnet20") != NULL);
	char text[512];
	int count = 0;
	rubato_id id;

	(void)snprintf(text, sizeof(text),
		       "%s%s -q --report-every 1 --final-rows 0 --no-report --out %s --device %s",
		       line, less ? " --steps 10" : "", device, device);
	line_split(first, text, &command);
	while (command.argv[count] != NULL)
		count++;
	ck_assert_msg(tr_options_parse(&options, count, command.argv, &verdict, &error) ==
			      RUBATO_OK,
		      "%s: %s", text, error.text);
	ck_assert_int_eq(rubato_id_create(&id), RUBATO_OK);
	for (uint32_t i = 0; i < ranks; i++) {
		all[i] = (struct rank) {
			.id = &id, .options = &options, .number = i, .count = ranks
		};
		all[i].error.exit_code = TR_EXIT_FAILURE;
		ck_assert_int_eq(pthread_create(&all[i].thread, NULL, rank_main, &all[i]), 0);
	}
	said[0] = '\0';
	for (uint32_t i = 0; i < ranks; i++) {
		ck_assert_int_eq(pthread_join(all[i].thread, NULL), 0);
		if (all[i].status != RUBATO_OK && said[0] == '\0')
			(void)snprintf(said, said_bytes, "%s: rank %u: %d, %s", text, i,
				       all[i].status, all[i].error.text);
	}
	tr_options_close(&options);
}

/* The losses of metrics.jsonl. */
static uint32_t losses(const char *folder, double out[LINES_MAX])
{
	char path[64], *text, *at;
	uint32_t count = 0;
	size_t size_bytes;

	(void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
	text = file_read(path, &size_bytes);
	ck_assert_ptr_nonnull(text);
	for (at = text; (at = strstr(at, "\"loss\":")) != NULL && count < LINES_MAX; count++) {
		at += strlen("\"loss\":");
		out[count] = strtod(at, NULL);
	}
	free(text);
	return count;
}

static const struct {
	uint32_t ranks;
	double tolerance; /* Of a loss. */
	const char *line;
} runs[] = {
	/* Models. */
	{ RANKS, 1e-5, "--steps 20 --model hyperplane --data synthetic:400x24 --lr 0.02" },
	{ RANKS, 1e-5, "--steps 20 --model logistic --data npy:data --momentum 0.9 --clip 0.5" },
	{ RANKS, 1e-5, "--steps 20 --model mlp --hidden 8 --data npy:data --bucket 1024" },
	{ RANKS, 1e-4,
	  "--steps 20 --model cnn --data npy:data --batch 6 --optimizer adam --lr 0.002" },
	{ RANKS, 1e-5,
	  "--steps 50 --model gpt --data text:text --batch 3 --context 8 --width 16 --heads 2 "
	  "--optimizer adam --lr 0.003 --bucket 4096" },
	{ RANKS, 1e-5,
	  "--steps 50 --model lstm --hidden 12 --data text:text --batch 3 --lr 0.5 --momentum 0.5 "
	  "--clip 1" },
	/* Slowly: faster, rounding decides which of two paths it takes (docs/gpu.md). */
	{ 1, 1e-4, "--steps 50 --model resnet20 --data npy:data --batch 16 --lr 0.0001" },
	{ RANKS, 1e-4, "--steps 3 --model resnet20 --data npy:data --batch 8 --lr 0.0001" },
	{ RANKS, 1e-2, "--steps 20 --model mlp --hidden 8 --data npy:data --precision tf32" },
	{ RANKS, 1e-1,
	  "--steps 20 --model gpt --data text:text --batch 3 --context 8 --width 16 --heads 2 "
	  "--precision bfloat16" },
	/* Rules. */
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm laga "
	  "--momentum 0.9 --lag-comp lookahead" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm laga "
	  "--accumulate 2 --first-step zero" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm kavg --k 3 "
	  "--outer block --optimizer adamw --opt-state average" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm hier --k1 2 "
	  "--k2 6 --group 2 --outer slowmo --wire bf16" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm periodic "
	  "--schedule post-local --momentum 0.9" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm adpsgd" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm local --k 4 "
	  "--pull 0.5" },
	{ RULE_RANKS, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm local --k 4 "
	  "--outer nesterov --opt-state reset --optimizer adam --lr 0.01" },
	/* One rank: what it takes part in does not depend on time. */
	{ 1, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm eager "
	  "--policy solo --normalise samples --clip 0.5 --momentum 0.9" },
	{ 1, 1e-5,
	  "--steps 20 --model mlp --hidden 8 --data npy:data --algorithm eager "
	  "--policy wagma:1" },
};

/* The processor has one precision: the option, which comes last, is cut off. */
static const char *here_line(const char *given, char *line, size_t line_bytes)
{
	const char *precision = strstr(given, " --precision");

	(void)snprintf(line, line_bytes, "%.*s",
		       (int)(precision != NULL ? precision - given : (long)strlen(given)), given);
	return line;
}

START_TEST(losses_are_those_of_the_processor)
{
	double here[LINES_MAX], there[LINES_MAX];
	struct fake_cuda_counts before, after;
	char said[1024], line[512];
	uint32_t count;

	run(here_line(runs[_i].line, line, sizeof(line)), "cpu", runs[_i].ranks, said,
	    sizeof(said));
	ck_assert_str_eq(said, "");
	before = fake_counts();
	run(runs[_i].line, "cuda", runs[_i].ranks, said, sizeof(said));
	ck_assert_str_eq(said, "");
	after = fake_counts();
	ck_assert(file_holds("cuda/summary.json", "\"compute\": \"CUDA\""));
	count = losses("cpu", here);
	ck_assert_uint_ge(count, 3);
	ck_assert_uint_ge(after.launches - before.launches, count * runs[_i].ranks);
	ck_assert_uint_eq(losses("cuda", there), count);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_msg(fabs(here[i] - there[i]) <=
				      runs[_i].tolerance * (1.0 + fabs(here[i])),
			      "%s: line %u: %.9g, on the device %.9g", runs[_i].line, i, here[i],
			      there[i]);
	fake_all_given_back();
}
END_TEST

/* Ranks that are not in step: the run ends, and learns. */
START_TEST(late_ranks_on_one_device)
{
	static const char *const lines[] = {
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--momentum 0.9 --delay random:2ms",
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--policy wagma:2 --delay random:2ms",
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm laga "
		"--accumulate until-done --delay random:2ms",
	};
	double all[LINES_MAX];
	char said[1024];

	run(lines[_i], "cuda", RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	ck_assert_uint_ge(losses("cuda", all), 20);
	ck_assert_double_lt(number_last("cuda/metrics.jsonl", "loss"), all[0]);
	fake_all_given_back();
}
END_TEST

/* Rounds that wait for all do not depend on time; what was reported in between does. */
START_TEST(parameters_are_those_of_the_processor)
{
	static const char *const lines[] = {
		"--steps 20 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--policy quorum:4 --collect own --clip 0.5",
		"--steps 20 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--policy wagma:2 --full-every 1",
	};
	struct tr_error error = { 0 };
	struct tr_npy here, there;
	float most = 0.0f;
	char said[1024];

	run(lines[_i], "cpu", RULE_RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	run(lines[_i], "cuda", RULE_RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	ck_assert_int_eq(tr_npy_read("cpu/final.npy", &here, &error), RUBATO_OK);
	ck_assert_int_eq(tr_npy_read("cuda/final.npy", &there, &error), RUBATO_OK);
	ck_assert_uint_eq(here.count, there.count);
	for (size_t i = 0; i < here.count; i++) {
		const float x = ((const float *)here.bytes)[i], y = ((const float *)there.bytes)[i];

		ck_assert_msg(fabsf(x - y) <= 1e-4f, "%zu: %.9g, on the device %.9g", i, (double)x,
			      (double)y);
		most = fabsf(x) > most ? fabsf(x) : most;
	}
	ck_assert_float_gt(most, 0.1f);
	free(here.bytes);
	free(there.bytes);
	fake_all_given_back();
}
END_TEST

/* What four ranks did when some were late, by its ledger, in float64 on the processor. */
START_TEST(replays_give_the_same_parameters)
{
	static const char *const lines[] = {
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--momentum 0.9 --delay random:2ms",
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm eager "
		"--policy solo --delay random:2ms",
		"--steps 24 --model mlp --hidden 8 --data npy:data --algorithm laga "
		"--accumulate until-done --delay random:2ms",
	};
	static const char *const pythons[] = { "python3", "/usr/bin/python3" };
	char said[1024], text[1024];
	const char *python = NULL;

	for (int i = 0; i < 2 && python == NULL; i++) {
		(void)snprintf(text, sizeof(text), "%s -c 'import numpy' 2>/dev/null", pythons[i]);
		if (system(text) == 0)
			python = pythons[i];
	}
	if (python == NULL) {
		(void)printf("not replayed: no Python here has numpy (python3-numpy)\n");
		return;
	}
	run(lines[_i], "cuda", RULE_RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	(void)snprintf(text, sizeof(text), "%s -B %s cuda --switches 200", python, REPLAY);
	ck_assert_int_eq(system(text), 0);
	/* And would be noticed: another learning rate in one line. */
	ck_assert_int_eq(system("sed -i '0,/\"rate\":/s//\"rate\":1/' cuda/ledger.jsonl"), 0);
	ck_assert_int_ne(system(text), 0);
	fake_all_given_back();
}
END_TEST

/* A checkpoint holds what the device holds: the second half of a run is the same after it. */
START_TEST(checkpoints_go_on)
{
	const char *line = "--model mlp --hidden 8 --data npy:data --algorithm kavg --k 3 --outer "
			   "block --momentum 0.9 --checkpoint c --checkpoint-every 10";
	char said[1024], more[512];

	(void)snprintf(more, sizeof(more), "%s --steps 20 --save whole.npy", line);
	run(more, "cuda", RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	folder_remove("c");
	(void)snprintf(more, sizeof(more), "%s --steps 10", line);
	run(more, "cuda", RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	(void)snprintf(more, sizeof(more), "%s --steps 20 --resume --save resumed.npy", line);
	run(more, "cuda", RANKS, said, sizeof(said));
	ck_assert_str_eq(said, "");
	files_compare("whole.npy", "resumed.npy");
	fake_all_given_back();
}
END_TEST

START_TEST(what_is_not_there_is_said)
{
	char said[1024];

	run("--steps 2 --model logistic --data npy:data", "cuda:7", 1, said, sizeof(said));
	ck_assert_ptr_nonnull(strstr(said, "--device cuda:7: there are 4 CUDA devices"));
	fake_all_given_back();
}
END_TEST

/* With images in `data` and a text in `text`. */
static void runs_enter(void)
{
	FILE *file;

	images_enter();
	file = fopen("text", "w");
	ck_assert_ptr_nonnull(file);
	for (unsigned i = 0; i < 400; i++)
		ck_assert_int_ge(fprintf(file, "%u and %u are %u\n", i, i % 7, i + i % 7), 0);
	ck_assert_int_eq(fclose(file), 0);
}

int main(void)
{
	TCase *tests = tcase_create("runs");

	(void)setenv("RUBATO_MEASURE", "0", 1);
	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, runs_enter, folder_leave);
	tcase_add_loop_test(tests, losses_are_those_of_the_processor, 0,
			    (int)(sizeof(runs) / sizeof(runs[0])));
	tcase_add_loop_test(tests, late_ranks_on_one_device, 0, 3);
	tcase_add_loop_test(tests, parameters_are_those_of_the_processor, 0, 2);
	tcase_add_loop_test(tests, replays_give_the_same_parameters, 0, 3);
	tcase_add_test(tests, checkpoints_go_on);
	tcase_add_test(tests, what_is_not_there_is_said);
	return check_main("cuda", tests);
}
