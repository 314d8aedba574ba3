/* bench_relaxed.c -- rubato-bench partial and lagged: relaxed.h's measurement between processes. */
#include <stdlib.h>
#include <string.h>

#include "programs/clock.h"
#include "programs/launch/launch.h"
#include "tools/bench/bench.h"
#include "tools/relaxed/relaxed.h"

#define LEAD_NS 5000000u             /* From the command to the first iteration's begin. */
#define LEAD_TIMEOUT_NS 60000000000u /* Beyond the iterations' own time. */

struct given {
	uint32_t rank_count, transport;
	char json[PATH_MAX];
	struct bench_peers peers;
	struct relaxed_options relaxed;
	int argc;
	char **argv;
};

static bool lead_slice(void *arg, uint32_t number, uint32_t first, uint32_t count,
		       uint64_t period_ns, double *times, uint64_t *wrong)
{
	struct given *given = arg;
	const struct relaxed_options *o = &given->relaxed;
	struct peer *peer = &given->peers.list[number];
	struct peer_command command = { .iterations = count,
					.count = o->size_bytes / (o->type % 2 == 1 ? 8 : 4),
					.call = first,
					.skew_kind = o->skew.kind,
					.skew_ns = o->skew.time_ns,
					.skew_seed = o->skew.seed,
					.skew_rank = o->skew.rank,
					.first_iteration = first,
					.period_ns = period_ns };
	command.t0_ns = clock_ns() + LEAD_NS;
	(void)snprintf(command.op, sizeof(command.op), "allreduce");
	(void)snprintf(command.type, sizeof(command.type), "%s", relaxed_types[o->type]);
	(void)snprintf(command.reduction, sizeof(command.reduction), "%s",
		       relaxed_reductions[o->reduction]);
	peer->timeout_ns = LEAD_TIMEOUT_NS + count * period_ns;
	size_t all = (size_t)peer->rank_count * count;
	struct peer_time *each = malloc(all * sizeof(*each) + 1);
	bool good = each != NULL && peer_run(peer, &command, each, wrong);

	for (size_t i = 0; i < all && good; i++)
		times[i] = each[i].end_us - each[i].begin_us;
	if (!good)
		(void)fprintf(stderr, "%s: %s\n", BENCH,
			      each == NULL ? "out of memory for a peer's times" : peer->why_not);
	free(each);
	return good;
}

/* Prints and writes on rank 0; the exit status, the same on every rank. */
static int relaxed_report(const struct given *given, rubato_comm *comm,
			  const struct relaxed_form *forms, int form_count)
{
	const struct relaxed_options *o = &given->relaxed;
	uint32_t n = rubato_size(comm);
	bool written = true;
	uint64_t wrong = 0;
	char where[64];

	for (int i = 0; i < form_count; i++)
		wrong += forms[i].wrong;
	if (rubato_rank(comm) != 0)
		return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	(void)snprintf(where, sizeof(where), "transport %s", bench_transports[given->transport]);
	if (strcmp(given->json, "-") != 0) {
		relaxed_text(stdout, o, where, n, forms, form_count);
		written = fflush(stdout) == 0;
	}
	if (given->json[0] != '\0')
		written = results_write(given->json,
					json_pack("{s:s,s:o,s:i,s:o}", "version", rubato_version(),
						  "args", bench_args_json(given->argc, given->argv),
						  "ranks", (int)n, "results",
						  relaxed_json(o, n, forms, form_count))) &&
			  written;
	if (!written)
		(void)fprintf(stderr, "%s: the results could not be written\n", BENCH);
	return wrong == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int relaxed_rank(void *arg, int line_fd)
{
	struct given *given = arg;
	struct relaxed_options *o = &given->relaxed;
	struct relaxed_form forms[RELAXED_FORMS_MAX];
	struct bench bench = { 0 };
	rubato_options init = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	int count, status;

	(void)line_fd;
	if (given->transport > 0)
		init.transport = bench_transports[given->transport];
	bench_check(&bench, rubato_init(&bench.comm, &init), "start");
	bench.rank = rubato_rank(bench.comm);
	bench.rank_count = rubato_size(bench.comm);
	relaxed_fit(o, rubato_size(bench.comm));
	if (bench.rank == 0)
		bench_results_check(given->json, "");
	bench_peers_open(&given->peers, bench.comm);
	o->peer_count = given->peers.count;
	for (uint32_t i = 0; i < o->peer_count; i++)
		o->peer_names[i] = given->peers.names[i];
	o->peer_slice = lead_slice;
	o->peer_arg = given;
	count = relaxed_measure(bench.comm, o, true, forms);
	if (count < 0)
		bench_check(&bench, (rubato_status)count, bench_commands[o->lagged]);
	status = relaxed_report(given, bench.comm, forms, count);
	bench_peers_close(&given->peers);
	comm = bench.comm;
	bench.comm = NULL;
	bench_check(&bench, rubato_finalize(comm), "the end");
	return status;
}

#define AT(member) offsetof(struct given, member)

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "transport", 0, OPTION_CHOICE, AT(transport), "NAME", .forms = bench_transports,
	  .preset = "auto", .help = "%s" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "results for programs; - is standard output, then without the table" },
	{ "peer", 0, OPTION_OTHER, AT(peers), "LIST", .read = bench_peers_read, .forms = peer_names,
	  .help = "other libraries' allreduce in the same run: %s" },
	{ "peers", 0, OPTION_TEXT, AT(peers.place.prefix), "PREFIX", .max = 1000,
	  .help = "those that tools/peers has put there, before the system's" },
	{ "bind", 0, OPTION_CHOICE, AT(peers.bind), "WHEN", .forms = bench_binds, .preset = "auto",
	  .help = "rank i to the i-th core, peers' ranks too: %s (where there are peers and enough "
		  "cores)" },
	{ 0 },
};

int bench_relaxed(int argc, char **argv, bool lagged)
{
	static struct given given; /* Large. */
	const struct option_table tables[] = {
		{ .rows = rows, .to = &given },
		{ .rows = relaxed_rows, .to = &given.relaxed },
		{ .rows = lagged ? relaxed_rows_lagged : relaxed_rows_partial,
		  .to = &given.relaxed },
		{ 0 },
	};
	const struct options options = {
		.program = BENCH,
		.usage = lagged ? "lagged [options]" : "partial [options]",
		.about = lagged ? "Times lagged allreduces beside blocking ones.\n"
				: "Times partial allreduces beside the synchronous one, with ranks "
				  "that arrive at absolute\ntimes of their own, and checks every "
				  "result.\n",
		.notes = "\nin call: what a rank spends in the call (commit and collect), over "
			 "ranks and iterations.\n",
		.tables = tables,
	};
	char **words = calloc((size_t)argc + 1, sizeof(*words));
	uint32_t word_count = 0;

	if (words == NULL)
		option_fail(BENCH, "out of memory");
	for (int i = 0; i < argc; i++) /* All but the word that brought us here. */
		if (i == 0 || strcmp(argv[i], bench_commands[lagged]) != 0)
			words[word_count++] = argv[i];
	given = (struct given) { .argc = argc, .argv = argv };
	relaxed_init(&given.relaxed, BENCH, lagged);
	(void)options_read(&options, (int)word_count, words);
	relaxed_fit(&given.relaxed, given.rank_count);
	if (given.rank_count > 0)
		bench_results_check(given.json, "");
	free(words);
	return bench_start(given.rank_count, bench_bind(&given.peers, given.rank_count),
			   relaxed_rank, &given);
}
