/*
 * main.c -- rubato-train: trains a model on the ranks of a job, or starts such a job here
 * (--ranks), or simulates one (--simulate).
 *
 * Exit status: 0 done; 1 the run failed; 2 a bad option or value. One line on standard error says
 * why.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "programs/launch/launch.h"
#include "programs/standard.h"
#include "trainer/report.h"
#include "trainer/simulate.h"
#include "trainer/train.h"

/* Guess: long enough for ranks to say why, short enough not to be taken for a hang. */
#define PATIENCE_NS UINT64_C(1000000000)

static rubato_status join_and_train(const struct tr_options *options, int line_fd, bool *first,
				    struct tr_error *error)
{
	rubato_comm *comm;
	rubato_status err, end;

	/* The same bits on every run: algorithms are not chosen by what was measured. */
	(void)setenv("RUBATO_MEASURE", "0", 0);
	/* To load a kernel when it is first used may wait for streams which wait for peers. */
	(void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	TR_TRY(tr_check(error, rubato_init(&comm, NULL), "joining the job"));
	*first = rubato_rank(comm) == 0;
	err = tr_train(comm, options, NULL, line_fd, error);
	end = rubato_finalize(comm);
	return err == RUBATO_OK ? tr_check(error, end, "leaving the job") : err;
}

/* What is printed is the last of a run: its files are there. */
static rubato_status printed(struct tr_error *error)
{
	char text[128];

	return standard_flush(text, sizeof(text)) ? RUBATO_OK
						  : tr_fail(error, RUBATO_ERR_SYSTEM, "%s", text);
}

static int run_rank(void *arg, int line_fd)
{
	const struct tr_options *options = arg;
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };
	bool first = false;

	if (join_and_train(options, line_fd, &first, &error) == RUBATO_OK) {
		if (first && options->out != NULL && !options->no_report)
			tr_report_make(options->out);
		if (!first || printed(&error) == RUBATO_OK)
			return 0;
	}
	tr_error_print(&error, line_fd);
	return error.exit_code;
}

static int run_simulation(const struct tr_options *options)
{
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };

	if (tr_simulate(options, &error) == RUBATO_OK) {
		if (options->out != NULL && !options->no_report)
			tr_report_make(options->out);
		if (printed(&error) == RUBATO_OK)
			return 0;
	}
	tr_error_print(&error, STDERR_FILENO);
	return error.exit_code;
}

static int launch_here(struct tr_options *options)
{
	const struct launch launch = {
		.program = "rubato-train",
		.rank_main = run_rank,
		.arg = options,
		.rank_count = options->ranks,
		.patience_ns = PATIENCE_NS,
		.output = LAUNCH_RAW,
	};

	return launch_ranks(&launch);
}

int main(int argc, const char **argv)
{
	struct tr_error error = { .exit_code = TR_EXIT_FAILURE };
	struct tr_options options;
	enum tr_options_verdict verdict;
	int status;

	signal(SIGPIPE, SIG_IGN);
	if (tr_options_parse(&options, argc, argv, &verdict, &error) != RUBATO_OK) {
		tr_error_print(&error, STDERR_FILENO);
		tr_options_close(&options);
		return error.exit_code;
	}
	if (verdict == TR_OPTIONS_DONE)
		status = standard_written("rubato-train") ? 0 : TR_EXIT_FAILURE;
	else if (options.simulate)
		status = run_simulation(&options);
	else if (options.ranks > 0)
		status = launch_here(&options);
	else
		status = run_rank(&options, STDERR_FILENO);
	tr_options_close(&options);
	return status;
}
