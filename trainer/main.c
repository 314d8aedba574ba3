/*
 * main.c -- rubato-train: trains a model on the ranks of a job, or starts such a job here
 * (--ranks).
 *
 * Exit status: 0 done; 1 the run failed; 2 a bad option or value. One line on standard error says
 * why.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trainer/launch.h"
#include "trainer/train.h"

/* One write, so that lines of several ranks do not mix. Empty: another rank says it. */
static int say(const struct tr_note *note, int fd)
{
	char line[sizeof(note->text) + 32];
	int count;

	if (note->text[0] != '\0') {
		count = snprintf(line, sizeof(line), "rubato-train: %s\n", note->text);
		if (write(fd, line, (size_t)count) != count)
			return note->exit_code; /* Nobody listens any more. */
	}
	return note->exit_code;
}

static int run_rank(void *arg, int line_fd)
{
	const struct tr_options *options = arg;
	struct tr_note note = { .exit_code = TR_EXIT_FAILURE };

	if (tr_train(options, &note) != RUBATO_OK)
		return say(&note, line_fd);
	return 0;
}

int main(int argc, const char **argv)
{
	struct tr_note note = { .exit_code = TR_EXIT_FAILURE };
	struct tr_options options;
	enum tr_options_verdict verdict;
	int status;

	signal(SIGPIPE, SIG_IGN);
	if (tr_options_parse(&options, argc, argv, &verdict, &note) != RUBATO_OK)
		return say(&note, STDERR_FILENO);
	if (verdict == TR_OPTIONS_DONE)
		status = 0;
	else if (options.ranks > 0)
		status = tr_launch(options.ranks, run_rank, &options);
	else
		status = run_rank(&options, STDERR_FILENO);
	tr_options_close(&options);
	return status;
}
