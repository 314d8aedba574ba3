/* rubato_run.c -- rubato-run: N ranks of a program on this machine. The work is in launch.c. */
#include <stdio.h>
#include <stdlib.h>

#include "rubato.h"
#include "tools/launch.h"
#include "tools/options.h"

#define PROGRAM "rubato-run"

static const char help[] =
	"usage: rubato-run -n N [options] [--] PROGRAM ARGUMENTS...\n"
	"\n"
	"Runs PROGRAM as N ranks on this machine. Each gets RUBATO_RANK, RUBATO_SIZE,\n"
	"RUBATO_ROOT and RUBATO_SECRET_FILE, so that rubato_init(&comm, NULL) joins them.\n"
	"On more machines start the same program with these variables set by other means.\n"
	"\n"
	"  -n, --ranks N       how many (1 to 4096)\n"
	"  --bind core|none    rank i on the i-th core that may be used, counted round (none)\n"
	"  --timeout T         end all ranks after T, such as 500ms or 30s; exit status 124\n"
	"  --keep-going        a failed rank does not end the others\n"
	"  --help, --version\n"
	"\n"
	"Each line of output begins with its rank: \"[3] text\". Lines over 1 MiB come in pieces.\n"
	"Standard input goes to rank 0. When a rank fails, the others get SIGTERM and, 3 s\n"
	"later, SIGKILL; the exit status is that of the first failure (128 + signal for a\n"
	"signal), 127 when PROGRAM does not exist, 2 for a bad option.\n";

enum { OPTION_BIND = 256, OPTION_TIMEOUT, OPTION_KEEP_GOING, OPTION_HELP, OPTION_VERSION };

static const struct option longs[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "bind", required_argument, NULL, OPTION_BIND },
	{ "timeout", required_argument, NULL, OPTION_TIMEOUT },
	{ "keep-going", no_argument, NULL, OPTION_KEEP_GOING },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

static void options_read(int argc, char **argv, struct launch *launch)
{
	static const char *const binds[] = { "core", "none", NULL };
	int found;

	while ((found = option_next(PROGRAM, argc, argv, "+:n:", longs)) != -1) {
		switch (found) {
		case 'n':
			launch->rank_count =
				(uint32_t)option_number(PROGRAM, "-n", optarg, 1, LAUNCH_RANKS_MAX);
			break;
		case OPTION_BIND:
			launch->bind_cores = option_choice(PROGRAM, "--bind", optarg, binds) == 0;
			break;
		case OPTION_TIMEOUT:
			launch->timeout_ns = option_time_ns(PROGRAM, "--timeout", optarg);
			if (launch->timeout_ns == 0)
				option_fail(PROGRAM, "--timeout takes a time above 0");
			break;
		case OPTION_KEEP_GOING:
			launch->keep_going = true;
			break;
		case OPTION_VERSION:
			(void)printf("rubato-run %s\n", rubato_version());
			exit(EXIT_SUCCESS);
		default:
			(void)fputs(help, stdout);
			exit(EXIT_SUCCESS);
		}
	}
}

int main(int argc, char **argv)
{
	struct launch launch = { .program = PROGRAM };

	options_read(argc, argv, &launch);
	if (launch.rank_count == 0)
		option_fail(PROGRAM, "-n N is missing: how many ranks?");
	if (optind == argc)
		option_fail(PROGRAM, "PROGRAM is missing: what shall the ranks run?");
	launch.argv = argv + optind;
	return launch_ranks(&launch);
}
