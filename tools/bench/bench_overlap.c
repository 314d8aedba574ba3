/*
 * bench_overlap.c -- `rubato-bench --overlap OP`: how much of an operation is hidden behind the
 * computation of the ranks that have started it.
 *
 * Three kinds of iterations, SLICES of each in turn, each after a barrier: started and waited for
 * at once (alone); started, then a computation, then waited for; and the same computation with
 * nothing in flight. A computation either sleeps or adds up numbers that lie in the first-level
 * cache, for twice as long as the operation takes alone. What is exposed of the operation is what
 * it adds: behind a sleep the time in start and wait, behind a computation, from which progress
 * takes the core now and then, the whole time less that of the same computation with nothing in
 * flight. Hidden is the rest, as a share of the operation alone. Times are means over ranks, then
 * medians; the interval is ratio_figures' (programs/figures.h).
 *
 * What a computation adds up is drawn from how long a unit of it takes at best. Whoever measures
 * that while others take the core's time or its other thread finds too much, and too little would
 * be computed later: a case in which a computation was over early is measured again, with the unit
 * that was seen there.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs/clock.h"
#include "programs/launch/launch.h"
#include "tools/bench/bench.h"

#define SLICES 16
#define TIMES_AS_LONG 2
#define NUMBERS 1024u /* 8 KiB. */
#define UNITS 100u
#define CALIBRATION_NS 20000000u
#define TOO_EARLY 0.9 /* Of the time that a computation was to last. */

static const char *const operations[] = { "allreduce", "reduce_scatter", "allgather",
					  "broadcast", "alltoall",       NULL };
static const enum operation operation_of[] = { OP_ALLREDUCE, OP_REDUCE_SCATTER, OP_ALLGATHER,
					       OP_BROADCAST, OP_ALLTOALL };
enum { PLAIN, REGISTERED, ALLOC, KINDS };
static const char *const kinds[] = { "plain", "registered", "alloc", "all", NULL };
enum { SLEEPING, COMPUTING, BEHINDS };
static const char *const behinds[] = { "sleeping", "computing", "both", NULL };
enum { ALONE, START, COMPUTATION, WAIT, UNDISTURBED, SERIES };

struct given {
	uint32_t rank_count, transport, op, kind, behind, warmups, iterations, like;
	struct bench_sizes sizes;
	uint64_t factor, computation_ns;
	char json[PATH_MAX], csv[PATH_MAX];
	bool always;
	int argc;
	char **argv;
};

struct overlap {
	const struct given *given;
	struct bench bench;
	enum operation op;
	double *own, *all;    /* [SERIES][iterations]; of all ranks, one after the other. */
	double *mean[SERIES]; /* Over ranks. */
	double *exposed;
	double unit_ns; /* Of computing. */
	uint64_t wrong;
	json_t *results;
	bool text; /* This rank prints the table. */
};

struct row {
	uint64_t size_bytes, count;
	int kind, behind;
	double us[SERIES], exposed_us;
	struct ratio_figures exposed;
	uint64_t wrong;
};

static void check(struct overlap *o, rubato_status status)
{
	bench_check(&o->bench, status, "--overlap");
}

/* ---- Computations ---- */

static double numbers[NUMBERS];
static volatile double computed;

/* Some 1 us. The compiler shall not know what lies there: it would compute nothing. */
static void unit(void)
{
	double sum = 0;

	__asm__ volatile("" : : "r"(numbers) : "memory");
	for (uint32_t i = 0; i < NUMBERS; i++)
		sum += numbers[i];
	computed = sum;
}

static double unit_measure(void)
{
	uint64_t until = clock_ns() + CALIBRATION_NS, begin, end;
	double best = 1e30;

	do {
		begin = clock_ns();
		for (uint32_t k = 0; k < UNITS; k++)
			unit();
		end = clock_ns();
		best = (double)(end - begin) / UNITS < best ? (double)(end - begin) / UNITS : best;
	} while (end < until);
	return best > 1 ? best : 1;
}

static void compute(const struct overlap *o, int behind, uint64_t span_ns)
{
	const struct timespec span = { (time_t)(span_ns / 1000000000u),
				       (long)(span_ns % 1000000000u) };

	if (behind == SLEEPING) {
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
		return;
	}
	for (double left = (double)span_ns; left > 0; left -= o->unit_ns)
		unit();
}

/* ---- One case ---- */

static void all_here(struct overlap *o)
{
	check(o, rubato_barrier(o->bench.comm));
}

static double since_us(uint64_t begin_ns)
{
	return (double)(clock_ns() - begin_ns) * 1e-3;
}

/* Started and waited for, with a computation between if span_ns > 0. */
static void started(struct overlap *o, const struct operation_call *call, rubato_op *op, int behind,
		    uint64_t span_ns, double us[SERIES])
{
	uint64_t begin, computed_ns, wait;

	o->bench.known->number++;
	known_write(o->bench.known, call);
	all_here(o);
	begin = clock_ns();
	check(o, rubato_start(op));
	us[START] = since_us(begin);
	if (span_ns > 0) {
		computed_ns = clock_ns();
		compute(o, behind, span_ns);
		us[COMPUTATION] = since_us(computed_ns);
	}
	wait = clock_ns();
	check(o, rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	us[WAIT] = since_us(wait);
	us[ALONE] = since_us(begin);
	all_here(o); /* Before any checks: ranks may share cores. */
	o->wrong += known_wrong(o->bench.known, call);
}

static double undisturbed(struct overlap *o, int behind, uint64_t span_ns)
{
	uint64_t begin;

	all_here(o);
	begin = clock_ns();
	if (behind == COMPUTING)
		compute(o, behind, span_ns);
	return since_us(begin);
}

/* Iterations first .. end - 1: those alone, those behind computations, and computations. The
 * library learns whether what is started is waited for at once, so each kind has warm-ups. */
static void turn(struct overlap *o, const struct operation_call *call, rubato_op *op, int behind,
		 uint64_t span_ns, uint32_t first, uint32_t end)
{
	uint32_t count = o->given->iterations, warmups = o->given->warmups;
	double us[SERIES];

	for (int series = 0; series < 2; series++)
		for (uint32_t i = 0; i < warmups + end - first; i++) {
			started(o, call, op, behind, series == 0 ? 0 : span_ns, us);
			if (i < warmups)
				continue;
			if (series == 0)
				o->own[ALONE * count + first + i - warmups] = us[ALONE];
			for (size_t s = START; series == 1 && s <= WAIT; s++)
				o->own[s * count + first + i - warmups] = us[s];
		}
	for (uint32_t i = first; i < end; i++)
		o->own[UNDISTURBED * count + i] = undisturbed(o, behind, span_ns);
}

/* The same on all ranks. */
static uint64_t span_choose(struct overlap *o, const struct operation_call *call, rubato_op *op)
{
	double us[SERIES], best = 1e30, most;

	if (o->given->computation_ns > 0)
		return o->given->computation_ns;
	for (uint32_t i = 0; i < o->given->warmups + 3; i++) {
		started(o, call, op, SLEEPING, 0, us);
		best = us[ALONE] < best ? us[ALONE] : best;
	}
	check(o, rubato_allreduce(o->bench.comm, &best, &most, 1, RUBATO_FLOAT64, RUBATO_MAX));
	return (uint64_t)(TIMES_AS_LONG * 1e3 * most) + 1;
}

/* A computation of some rank was over too early: its unit is shorter than it had seemed. The same
 * on all ranks. Each time a unit is a tenth shorter at least, so that it ends. */
static bool over_early(struct overlap *o, int behind, uint64_t span_ns)
{
	uint32_t count = o->given->iterations;
	double least_us = 1e30, least_ns;
	int32_t own, any = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (o->own[COMPUTATION * count + i] < least_us)
			least_us = o->own[COMPUTATION * count + i];
		if (o->own[UNDISTURBED * count + i] < least_us)
			least_us = o->own[UNDISTURBED * count + i];
	}
	least_ns = least_us * 1e3;
	own = behind == COMPUTING && least_ns < TOO_EARLY * (double)span_ns;
	if (own)
		o->unit_ns *= least_ns / (double)span_ns;
	check(o, rubato_allreduce(o->bench.comm, &own, &any, 1, RUBATO_INT32, RUBATO_MAX));
	return any != 0;
}

static double median_of(const double *values, uint32_t count)
{
	double *sorted = malloc(count * sizeof(*sorted)), median;

	if (sorted == NULL)
		option_fail(BENCH, "--overlap: out of memory");
	memcpy(sorted, values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), ascending);
	median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
	free(sorted);
	return median;
}

static uint32_t turns(const struct given *given)
{
	return given->iterations < SLICES ? given->iterations : SLICES;
}

static void figures(struct overlap *o, struct row *row)
{
	uint32_t count = o->given->iterations, n = o->bench.rank_count;
	int64_t own = (int64_t)o->wrong, all = 0;

	check(o, rubato_allgather(o->bench.comm, o->own, o->all, (uint64_t)SERIES * count,
				  RUBATO_FLOAT64));
	check(o, rubato_allreduce(o->bench.comm, &own, &all, 1, RUBATO_INT64, RUBATO_SUM));
	row->wrong = (uint64_t)all;
	for (int s = 0; s < SERIES; s++) {
		for (uint32_t i = 0; i < count; i++) {
			o->mean[s][i] = 0;
			for (uint32_t r = 0; r < n; r++)
				o->mean[s][i] +=
					o->all[((size_t)r * SERIES + (size_t)s) * count + i] / n;
		}
		row->us[s] = median_of(o->mean[s], count);
	}
	for (uint32_t i = 0; i < count; i++) {
		o->exposed[i] = o->mean[START][i] + o->mean[WAIT][i];
		if (row->behind == COMPUTING)
			o->exposed[i] += o->mean[COMPUTATION][i] - o->mean[UNDISTURBED][i];
	}
	row->exposed_us = median_of(o->exposed, count);
	if (!ratio_figures(o->exposed, o->mean[ALONE], count, turns(o->given), &row->exposed))
		option_fail(BENCH, "--overlap: out of memory");
}

static void row_say(struct overlap *o, const struct row *row)
{
	const struct ratio_figures *e = &row->exposed;

	if (o->text) {
		(void)printf("%12llu %-10s %-9s %10.1f %11.1f %8.1f %8.1f %9.1f %7.1f",
			     (unsigned long long)row->size_bytes, kinds[row->kind],
			     behinds[row->behind], row->us[ALONE], row->us[COMPUTATION],
			     row->us[START], row->us[WAIT], row->exposed_us, 100 * (1 - e->ratio));
		if (e->low == e->low)
			(void)printf(" (%.1f..%.1f)", 100 * (1 - e->high), 100 * (1 - e->low));
		(void)printf("%s\n", row->wrong > 0 ? "  WRONG VALUES" : "");
		(void)fflush(stdout);
	}
	if (o->results == NULL)
		return;
	json_array_append_new(
		o->results,
		json_pack("{s:s,s:o,s:o,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:{s:o,s:o,s:o}}", "op",
			  operation_names[o->op], "size", results_whole(row->size_bytes), "count",
			  results_whole(row->count), "buffers", kinds[row->kind], "behind",
			  behinds[row->behind], "alone_us", results_real(row->us[ALONE]),
			  "computation_us", results_real(row->us[COMPUTATION]), "start_us",
			  results_real(row->us[START]), "wait_us", results_real(row->us[WAIT]),
			  "exposed_us", results_real(row->exposed_us), "wrong",
			  results_whole(row->wrong), "hidden", "share", results_real(1 - e->ratio),
			  "low", results_real(1 - e->high), "high", results_real(1 - e->low)));
}

static void measure(struct overlap *o, const struct operation_call *call, rubato_op *op,
		    struct row *row)
{
	uint64_t span_ns = span_choose(o, call, op), count = o->given->iterations;
	uint32_t slices = turns(o->given);

	o->wrong = 0;
	do {
		for (uint32_t k = 0; k < slices; k++)
			turn(o, call, op, row->behind, span_ns, (uint32_t)(count * k / slices),
			     (uint32_t)(count * (k + 1) / slices));
	} while (over_early(o, row->behind, span_ns));
	figures(o, row);
	row_say(o, row);
}

/* ---- All cases ---- */

static void *memory_take(struct overlap *o, int kind, size_t size_bytes)
{
	void *memory = NULL;

	if (kind == ALLOC) {
		check(o, rubato_alloc(o->bench.comm, size_bytes, &memory));
	} else if (posix_memalign(&memory, 4096, size_bytes) != 0) {
		option_fail(BENCH, "--overlap: out of memory: %zu bytes", size_bytes);
	} else if (kind == REGISTERED) {
		check(o, rubato_register(o->bench.comm, memory, size_bytes));
	}
	memset(memory, 0, size_bytes);
	return memory;
}

static void memory_give(struct overlap *o, int kind, void *memory)
{
	if (kind == ALLOC) {
		check(o, rubato_free(o->bench.comm, memory));
		return;
	}
	if (kind == REGISTERED)
		check(o, rubato_unregister(o->bench.comm, memory));
	free(memory);
}

static uint64_t kind_run(struct overlap *o, int kind, uint64_t size)
{
	const struct given *given = o->given;
	uint32_t n = o->bench.rank_count;
	uint64_t share = 4 * (operation_scattered(o->op) ? (uint64_t)n : 1), wrong = 0;
	struct operation_call call = { .op = o->op,
				       .count = size / share > 0 ? size / share : 1,
				       .type = RUBATO_FLOAT32,
				       .reduction = RUBATO_SUM };
	uint64_t bytes = operation_whole(o->op, call.count, n) * 4;
	rubato_op *op = NULL;

	call.in = memory_take(o, kind, bytes);
	call.out = o->op == OP_BROADCAST ? call.in : memory_take(o, kind, bytes);
	check(o, operation_make(o->bench.comm, &call, &op));
	for (int behind = 0; behind < BEHINDS; behind++) {
		struct row row = {
			.size_bytes = bytes, .count = call.count, .kind = kind, .behind = behind
		};

		if (given->behind != BEHINDS && given->behind != (uint32_t)behind)
			continue;
		measure(o, &call, op, &row);
		wrong += row.wrong;
	}
	rubato_op_free(op);
	if (call.out != call.in)
		memory_give(o, kind, call.out);
	memory_give(o, kind, call.in);
	return wrong;
}

static void overlap_open(struct overlap *o, const struct given *given)
{
	rubato_options init = RUBATO_OPTIONS_INIT;
	size_t count = (size_t)SERIES * given->iterations;

	*o = (struct overlap) { .given = given, .op = operation_of[given->op] };
	if (given->transport > 0)
		init.transport = bench_transports[given->transport];
	check(o, rubato_init(&o->bench.comm, &init));
	o->bench.rank = rubato_rank(o->bench.comm);
	o->bench.rank_count = rubato_size(o->bench.comm);
	o->bench.known = calloc(1, sizeof(*o->bench.known));
	o->own = calloc(count, sizeof(*o->own));
	o->all = calloc(count * o->bench.rank_count, sizeof(*o->all));
	o->exposed = calloc(count + given->iterations, sizeof(*o->exposed));
	if (o->bench.known == NULL || o->own == NULL || o->all == NULL || o->exposed == NULL)
		option_fail(BENCH, "--overlap: out of memory");
	for (size_t s = 0; s < SERIES; s++)
		o->mean[s] = o->exposed + (s + 1) * given->iterations;
	o->bench.known->rank = o->bench.rank;
	o->bench.known->rank_count = o->bench.rank_count;
	o->unit_ns = unit_measure();
	if (o->bench.rank != 0)
		return;
	bench_results_check(given->json, given->csv);
	if (given->json[0] != '\0' || given->csv[0] != '\0')
		o->results = json_array();
	o->text = strcmp(given->json, "-") != 0 && strcmp(given->csv, "-") != 0;
	if (!o->text)
		return;
	(void)printf("# rubato-bench %s --overlap %s: %u ranks, transport %s, warm-up %u, "
		     "iterations %u, values checked\n",
		     rubato_version(), operation_names[o->op], o->bench.rank_count,
		     bench_transports[given->transport], given->warmups, given->iterations);
	(void)printf("#%11s %-10s %-9s %10s %11s %8s %8s %9s %7s\n#%11s %-10s %-9s %10s %11s %8s "
		     "%8s %9s %7s\n",
		     "size", "buffers", "behind", "alone", "computation", "in start", "in wait",
		     "exposed", "hidden", "(B)", "", "", "(us)", "(us)", "(us)", "(us)", "(us)",
		     "(%)");
}

static int overlap_close(struct overlap *o, uint64_t wrong)
{
	static const char *const columns[] = {
		"op",           "size",           "count",       "buffers", "behind",
		"alone_us",     "computation_us", "start_us",    "wait_us", "exposed_us",
		"hidden.share", "hidden.low",     "hidden.high", "wrong",   NULL
	};
	const struct given *given = o->given;
	rubato_comm *comm = o->bench.comm;
	bool written = fflush(stdout) == 0;

	if (given->csv[0] != '\0' && o->results != NULL)
		written = results_csv(given->csv, o->results, columns) && written;
	if (given->json[0] == '\0')
		json_decref(o->results);
	else if (o->results != NULL)
		written = results_write(given->json,
					json_pack("{s:s,s:o,s:i,s:o}", "version", rubato_version(),
						  "args", bench_args_json(given->argc, given->argv),
						  "ranks", (int)o->bench.rank_count, "results",
						  o->results)) &&
			  written;
	if (!written)
		(void)fprintf(stderr, "%s: the results could not be written\n", BENCH);
	free(o->bench.known);
	free(o->own);
	free(o->all);
	free(o->exposed);
	o->bench.comm = NULL;
	check(o, rubato_finalize(comm));
	return wrong == 0 && written ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int overlap_rank(void *arg, int line_fd)
{
	const struct given *given = arg;
	struct overlap o;
	uint64_t wrong = 0;

	(void)line_fd;
	overlap_open(&o, given);
	for (uint64_t size = given->sizes.begin_bytes; size <= given->sizes.end_bytes;
	     size *= given->factor) {
		for (int kind = 0; kind < KINDS; kind++)
			if (given->kind == KINDS || given->kind == (uint32_t)kind)
				wrong += kind_run(&o, kind, size);
		if (size > UINT64_MAX / given->factor)
			break;
	}
	return overlap_close(&o, wrong);
}

#define AT(member) offsetof(struct given, member)

static const char *const likes[] = { "rubato", "osu", NULL };

static const struct option rows[] = {
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "begin", 'b', OPTION_BYTES, AT(sizes.begin_bytes), "SIZE", .min = 1, .preset = "64K",
	  .help = "smallest size" },
	{ "end", 'e', OPTION_BYTES, AT(sizes.end_bytes), "SIZE", .min = 1, .preset = "16M",
	  .help = "largest size" },
	{ "factor", 'f', OPTION_U64, AT(factor), "N", .min = 2, .max = 1u << 20, .preset = "16",
	  .help = "each size is this many times the one before" },
	{ "warmup", 'w', OPTION_U32, AT(warmups), "N", .max = 1000000, .preset = "3",
	  .help = "iterations before the timed ones, in each turn" },
	{ "iterations", 't', OPTION_U32, AT(iterations), "N", .min = 1, .max = 1000000,
	  .preset = "32", .help = "timed ones of each kind" },
	{ 0 },
};

/* Those of osu_iallreduce and its kin. */
static const struct option osu_rows[] = {
	{ "ranks", 0, OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "message-size", 'm', OPTION_OTHER, AT(sizes), "[MIN:]MAX", .read = bench_sizes_read,
	  .size = sizeof(struct bench_sizes), .preset = "1:1M", .help = "sizes, by factors of 2" },
	{ "warmup", 'x', OPTION_U32, AT(warmups), "N", .max = 1000000, .preset = "3",
	  .help = "iterations before the timed ones, in each turn" },
	{ "iterations", 'i', OPTION_U32, AT(iterations), "N", .min = 1, .max = 1000000,
	  .preset = "100", .help = "timed ones of each kind" },
	BENCH_OSU_ALWAYS(AT(always)),
	{ 0 },
};

static const struct option common_rows[] = {
	{ "overlap", 0, OPTION_CHOICE, AT(op), "OP", .forms = operations,
	  .help = "%s: its persistent form" },
	{ "buffers", 0, OPTION_CHOICE, AT(kind), "KIND", .forms = kinds, .preset = "all",
	  .help = "%s: any memory, the same after rubato_register, rubato_alloc's" },
	{ "behind", 0, OPTION_CHOICE, AT(behind), "WHAT", .forms = behinds, .preset = "both",
	  .help = "%s: what a rank does meanwhile" },
	{ "computation", 0, OPTION_TIME, AT(computation_ns), "TIME", .min = 1,
	  .help = "for how long (absent: twice what the operation takes alone)" },
	{ "transport", 0, OPTION_CHOICE, AT(transport), "NAME", .forms = bench_transports,
	  .preset = "auto", .help = "%s" },
	{ "json", 0, OPTION_TEXT, AT(json), "FILE", .max = PATH_MAX,
	  .help = "results for programs; - is standard output, then without the table" },
	{ "csv", 0, OPTION_TEXT, AT(csv), "FILE", .max = PATH_MAX,
	  .help = "the same, a line for each row" },
	{ "like", 0, OPTION_CHOICE, AT(like), "BENCHMARK", .forms = likes, .preset = "rubato",
	  .help = "letters, names and defaults of options are those of %s" },
	{ 0 },
};

int bench_overlap(int argc, char **argv)
{
	static struct given given; /* Large. */
	const struct option_table tables[] = {
		{ .rows = bench_like(argc, argv) == LIKE_OSU ? osu_rows : rows, .to = &given },
		{ .rows = common_rows, .to = &given },
		{ 0 }
	};
	const struct options options = {
		.program = BENCH,
		.usage = "--overlap OP [options]",
		.about = "Measures how much of an operation is hidden behind what ranks do after "
			 "they have started it,\nand checks every result.\n",
		.notes = "\nexposed: what the operation adds to the computation; hidden: the rest "
			 "of it, as a share of\nthe operation alone, and its 95 % interval, a "
			 "bootstrap over 16 turns.\n",
		.tables = tables,
	};

	given = (struct given) { .argc = argc, .argv = argv, .factor = 2 };
	(void)options_read(&options, argc, argv);
	if (given.sizes.end_bytes < given.sizes.begin_bytes)
		option_fail(BENCH, "-e is less than -b");
	results_apart(BENCH, given.json, given.csv);
	if (given.rank_count > 0)
		bench_results_check(given.json, given.csv);
	return bench_start(given.rank_count, false, overlap_rank, &given);
}
