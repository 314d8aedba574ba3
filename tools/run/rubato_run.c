/* rubato_run.c -- rubato-run: N ranks of a program, here or on hosts. The work is in launch.c. */
#include <stddef.h>
#include <string.h>

#include "programs/launch/hosts.h"
#include "programs/launch/launch.h"
#include "programs/options.h"

#define PROGRAM "rubato-run"

static const char about[] =
	"Runs PROGRAM as N ranks on this machine, or on hosts that ssh reaches without a\n"
	"password. Each gets RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT and RUBATO_SECRET_FILE, so\n"
	"that rubato_init(&comm, NULL) joins them.\n";
static const char notes[] =
	"\n"
	"Each line of output begins with its rank: \"[3] text\". Lines over 1 MiB come in pieces.\n"
	"Standard input goes to rank 0. When a rank fails, the others get SIGTERM and, 3 s\n"
	"later, SIGKILL; the exit status is that of the first failure (128 + signal for a\n"
	"signal), 127 when PROGRAM does not exist, 2 for a bad option. SIGUSR1 and SIGUSR2 go\n"
	"to the ranks (not with --hosts); other signals end them in the same way.\n"
	"\n"
	"With --hosts rubato-run and PROGRAM lie at the same place on all hosts, and run in\n"
	"the same folder. Variables RUBATO_*, UCX_*, OMP_*, LD_LIBRARY_PATH and PYTHONPATH go\n"
	"along, standard input does not. The first host's name is one that all others know: rank\n"
	"0 listens there, at a port from 20000 to 29999. FILE has a host a line (\"node1\",\n"
	"\"node1:4\" or \"node1 slots=4\"), LIST is \"node1:4,node2:4\"; where no room is given,\n"
	"ranks are dealt evenly. When a host is lost, the ranks of the others are ended.\n";

enum { BIND_CORE, BIND_NONE };
static const char *const binds[] = { "core", "none", NULL };

struct given {
	struct launch launch;
	uint32_t bind;
	const char *hosts, *ssh;
	bool part;
};

#define AT(member) offsetof(struct given, member)

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(launch.rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "how many (1 to 4096)" },
	{ "bind", 0, OPTION_CHOICE, AT(bind), "TO", .forms = binds, .preset = "none",
	  .help = "%s; rank i to the i-th core that may be used, counted round" },
	{ "timeout", 0, OPTION_TIME, AT(launch.timeout_ns), "T", .min = 1,
	  .help = "end all ranks after T, such as 500ms or 30s; exit status 124" },
	{ "hosts", 0, OPTION_STRING, AT(hosts), "FILE|LIST",
	  .help = "run on these hosts; -n may then be left out" },
	{ "ssh", 0, OPTION_STRING, AT(ssh), "COMMAND", .preset = "ssh -T -oBatchMode=yes",
	  .help = "words before a host's name that run a command there" },
	/* How hosts.c starts us on a host. */
	{ .name = "part", .kind = OPTION_FLAG, .at = AT(part) },
	{ "keep-going", 0, OPTION_FLAG, AT(launch.keep_going),
	  .help = "a failed rank does not end the others" },
	{ 0 },
};

static int run_on_hosts(const struct given *given, const struct launch *launch)
{
	struct option_error error;
	struct hosts hosts;
	uint32_t words = 0;

	for (const char *at = given->ssh; *(at += strspn(at, " ")) != '\0'; at += strcspn(at, " "))
		words++;
	if (words == 0 || words > HOSTS_SSH_WORDS)
		option_fail(PROGRAM, "--ssh takes 1 to %d words, not '%s'", HOSTS_SSH_WORDS,
			    given->ssh);
	if (!hosts_read(given->hosts, &hosts, &error) ||
	    !hosts_deal(&hosts, launch->rank_count, &error))
		option_fail(PROGRAM, "%s", error.text);
	return hosts_launch(&hosts, launch, given->ssh);
}

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

	if (given.part)
		return hosts_part(PROGRAM);
	launch = given.launch;
	launch.bind_cores = given.bind == BIND_CORE;
	if (launch.rank_count == 0 && given.hosts == NULL)
		option_fail(PROGRAM, "-n N is missing: how many ranks?");
	if (first == (uint32_t)argc)
		option_fail(PROGRAM, "PROGRAM is missing: what shall the ranks run?");
	launch.argv = argv + first;
	if (given.hosts != NULL)
		return run_on_hosts(&given, &launch);
	launch_cores_say(&launch);
	return launch_ranks(&launch);
}
