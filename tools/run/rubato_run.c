/* rubato_run.c -- rubato-run: N ranks of a program on this machine. The work is in launch.c. */
#include <stddef.h>

#include "programs/launch/launch.h"
#include "programs/options.h"

#define PROGRAM "rubato-run"

static const char about[] =
	"Runs PROGRAM as N ranks on this machine. Each gets RUBATO_RANK, RUBATO_SIZE,\n"
	"RUBATO_ROOT and RUBATO_SECRET_FILE, so that rubato_init(&comm, NULL) joins them.\n"
	"On more machines start the same program with these variables set by other means.\n";
static const char notes[] =
	"\n"
	"Each line of output begins with its rank: \"[3] text\". Lines over 1 MiB come in pieces.\n"
	"Standard input goes to rank 0. When a rank fails, the others get SIGTERM and, 3 s\n"
	"later, SIGKILL; the exit status is that of the first failure (128 + signal for a\n"
	"signal), 127 when PROGRAM does not exist, 2 for a bad option.\n";

enum { BIND_CORE, BIND_NONE };
static const char *const binds[] = { "core", "none", NULL };

struct given {
	struct launch launch;
	uint32_t bind;
};

#define AT(member) offsetof(struct given, member)

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(launch.rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "how many (1 to 4096)" },
	{ "bind", 0, OPTION_CHOICE, AT(bind), "TO", .forms = binds, .preset = "none",
	  .help = "%s; rank i to the i-th core that may be used, counted round" },
	{ "timeout", 0, OPTION_TIME, AT(launch.timeout_ns), "T", .min = 1,
	  .help = "end all ranks after T, such as 500ms or 30s; exit status 124" },
	{ "keep-going", 0, OPTION_FLAG, AT(launch.keep_going),
	  .help = "a failed rank does not end the others" },
	{ 0 },
};

int main(int argc, char **argv)
{
	struct given given = { .launch.program = PROGRAM };
	struct launch launch;
	const struct option_table tables[] = { { .rows = rows, .to = &given }, { 0 } };
	const struct options options = {
		.program = PROGRAM,
		.usage = "-n N [options] [--] PROGRAM ARGUMENTS...",
		.about = about,
		.notes = notes,
		.tables = tables,
		.command = true,
	};
	uint32_t first = options_read(&options, argc, argv);

	launch = given.launch;
	launch.bind_cores = given.bind == BIND_CORE;
	if (launch.rank_count == 0)
		option_fail(PROGRAM, "-n N is missing: how many ranks?");
	if (first == (uint32_t)argc)
		option_fail(PROGRAM, "PROGRAM is missing: what shall the ranks run?");
	launch.argv = argv + first;
	return launch_ranks(&launch);
}
