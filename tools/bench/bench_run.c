/* bench_run.c -- one rank's part of the measurement. See bench.h for what is timed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "programs/clock.h"
#include "programs/figures.h"
#include "programs/launch/launch.h"
#include "tools/bench/bench.h"

#define SLICES 16 /* Of a case's iterations, where peers take turns. */

struct call {
	struct operation_call made;
	rubato_op *ops[2]; /* To start and wait for; the first NULL: a blocking call is made. */
};

struct calls { /* What is timed at once. */
	struct call *list;
	uint32_t count;
};

static double now_us(void)
{
	return (double)clock_ns() * 1e-3;
}

void bench_check(const struct bench *bench, rubato_status status, const char *what)
{
	char rank[32] = ""; /* Of a communicator that is not there none is known. */

	if (status == RUBATO_OK)
		return;
	if (bench->rank_count > 0)
		(void)snprintf(rank, sizeof(rank), "rank %u: ", bench->rank);
	(void)fprintf(stderr, "%s: %s%s: %s (%s)\n", BENCH, rank, what, rubato_error_text(),
		      rubato_status_name(status));
	/* The others hear of it, and nothing of ours runs on while the process ends. */
	if (bench->comm != NULL && rubato_abort(bench->comm) == RUBATO_OK)
		(void)rubato_finalize(bench->comm);
	exit(EXIT_FAILURE);
}

static void *memory(size_t size_bytes)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 4096, size_bytes) != 0) {
		(void)fprintf(stderr, "%s: out of memory: %zu bytes\n", BENCH, size_bytes);
		exit(EXIT_FAILURE);
	}
	memset(memory, 0, size_bytes); /* So that no page is first touched inside a timed call. */
	return memory;
}

int bench_start(uint32_t rank_count, bool bind, int (*rank_main)(void *arg, int line_fd), void *arg)
{
	if (rank_count == 0)
		return rank_main(arg, -1);
	if (getenv("RUBATO_RANK") != NULL)
		option_fail(BENCH, "-n inside a job (RUBATO_RANK is set): leave it out to join");
	return launch_ranks(&(struct launch) { .program = BENCH,
					       .rank_main = rank_main,
					       .arg = arg,
					       .rank_count = rank_count,
					       .bind_cores = bind,
					       .output = LAUNCH_ERROR_LINES });
}

static uint32_t calls_of(const struct bench_options *options)
{
	return options->aggregate > 0 ? options->aggregate : 1;
}

static bool on_one_host(const struct bench *bench)
{
	rubato_peer own = { .size_bytes = sizeof(own) }, peer = own;
	bool same = true;

	bench_check(bench, rubato_get_peer(bench->comm, bench->rank, &own), "own host");
	for (uint32_t r = 0; r < bench->rank_count && same; r++) {
		bench_check(bench, rubato_get_peer(bench->comm, r, &peer), "a rank's host");
		same = peer.host == own.host;
	}
	return same;
}

/* All have begun a barrier before any has left it: else their clocks differ, as containers' may. */
static bool on_one_clock(const struct bench *bench)
{
	struct peer_time own = { .begin_us = now_us() };
	struct peer_time *all = memory(bench->rank_count * sizeof(*all));
	double begin = 0, end = INFINITY;

	bench_check(bench, rubato_barrier(bench->comm), "barrier");
	own.end_us = now_us();
	bench_check(bench, rubato_allgather(bench->comm, &own, all, 2, RUBATO_FLOAT64), "clocks");
	for (uint32_t r = 0; r < bench->rank_count; r++) {
		begin = fmax(begin, all[r].begin_us);
		end = fmin(end, all[r].end_us);
	}
	free(all);
	return begin <= end;
}

void bench_open(struct bench *bench, const struct bench_options *options)
{
	rubato_options init = RUBATO_OPTIONS_INIT;

	*bench = (struct bench) { .options = options };
	if (strcmp(options->transport, "auto") != 0)
		init.transport = options->transport;
	bench_check(bench, rubato_init(&bench->comm, &init), "start");
	bench->rank = rubato_rank(bench->comm);
	bench->rank_count = rubato_size(bench->comm);

	bench_check(bench, rubato_set_wire(bench->comm, options->wire, false), "set_wire");

	/* Scattered operations of tiny sizes still have one element of each rank. */
	size_t least = (size_t)bench->rank_count * 8;
	size_t bytes = options->sizes.end_bytes < least ? least : options->sizes.end_bytes;
	uint32_t calls = calls_of(options);

	if (operation_uneven(options->op)) /* All of a rank's blocks may be twice as long. */
		bytes *= 2;
	bytes = (bytes + 4095) / 4096 * 4096;
	bench->call_bytes = bytes;
	if (__builtin_mul_overflow(bytes, calls, &bytes))
		option_fail(BENCH, "--aggregate %u: too much memory", calls);

	if (options->registered) {
		bench_check(bench, rubato_alloc(bench->comm, bytes, &bench->in), "rubato_alloc");
		bench_check(bench, rubato_alloc(bench->comm, bytes, &bench->out), "rubato_alloc");
		memset(bench->in, 0, bytes);
		memset(bench->out, 0, bytes);
	} else {
		bench->in = memory(bytes);
		bench->out = memory(bytes);
	}
	bench->known = memory(calls * sizeof(*bench->known));
	for (uint32_t k = 0; k < calls; k++) {
		struct known *known = &bench->known[k];

		known->number = k;
		known->rank = bench->rank;
		known->wire = options->wire;
		known->rank_count = bench->rank_count;
		known->from = (bench->rank + bench->rank_count - 1) % bench->rank_count;
	}
	bench->counts = memory(bench->rank_count * sizeof(*bench->counts));
	bench->times = memory(options->iterations * sizeof(*bench->times));
	bench->sorted = memory(options->iterations * sizeof(double));
	bench->means = memory(options->iterations * sizeof(double));
	bench->wholes = memory(options->iterations * sizeof(double));
	bench->all_times =
		memory(bench->rank_count * (size_t)options->iterations * sizeof(*bench->times));
	bench->one_clock = on_one_clock(bench) && on_one_host(bench);
	bench->peers = options->peers;
	bench_peers_open(&bench->peers, bench->comm);
}

void bench_close(struct bench *bench)
{
	if (bench->options->registered) {
		bench_check(bench, rubato_free(bench->comm, bench->in), "rubato_free");
		bench_check(bench, rubato_free(bench->comm, bench->out), "rubato_free");
	} else {
		free(bench->in);
		free(bench->out);
	}
	free(bench->known);
	free(bench->counts);
	free(bench->times);
	free(bench->sorted);
	free(bench->means);
	free(bench->wholes);
	free(bench->all_times);
	bench_peers_close(&bench->peers);
	rubato_comm *comm = bench->comm;

	bench->comm = NULL;
	bench_check(bench, rubato_finalize(comm), "end");
}

/* ---- One call ---- */

/* Where call k of those that are timed at once reads and writes; broadcast has one buffer, that of
 * inputs. */
static void place(const struct bench *bench, const struct bench_case *what, uint32_t k,
		  struct call *call)
{
	char *in = (char *)bench->in + k * bench->call_bytes;
	char *out = (char *)bench->out + k * bench->call_bytes;
	size_t start_bytes = operation_start(bench->options->op, what->count, bench->rank) *
			     rubato_type_bytes(what->type);
	bool root = bench->rank == bench->options->root;

	call->made.in = in;
	call->made.out = bench->options->op == OP_BROADCAST ? in : out;
	if (!what->in_place)
		return;
	switch (bench->options->op) {
	case OP_SCATTER:
		if (!root)
			break;
		/* fall through */
	case OP_REDUCE_SCATTER:
	case OP_REDUCE_SCATTERV:
		call->made.out = in + start_bytes;
		break;
	case OP_GATHER:
		if (!root)
			break;
		/* fall through */
	case OP_ALLGATHER:
	case OP_ALLGATHERV:
		call->made.in = out + start_bytes;
		break;
	default:
		call->made.out = in;
		break;
	}
}

/* Persistent operations for --aggregate. */
static rubato_status call_make(struct bench *bench, struct call *call)
{
	uint32_t ranks = bench->rank_count, rank = bench->rank;
	const struct operation_call *made = &call->made;

	if (bench->options->aggregate == 0)
		return RUBATO_OK;
	if (made->op != OP_SENDRECV)
		return operation_make(bench->comm, made, &call->ops[0]);
	rubato_status status = rubato_op_recv(bench->comm, made->out, made->count, made->type,
					      (rank + ranks - 1) % ranks, 0, &call->ops[0]);

	return status != RUBATO_OK ? status
				   : rubato_op_send(bench->comm, made->in, made->count, made->type,
						    (rank + 1) % ranks, 0, &call->ops[1]);
}

static rubato_status calls_run(const struct bench *bench, const struct calls *calls)
{
	rubato_status status = RUBATO_OK;

	if (calls->list[0].ops[0] == NULL)
		return operation_call(bench->comm, &calls->list[0].made);
	for (uint32_t i = 0; i < 2 * calls->count && status == RUBATO_OK; i++)
		if (calls->list[i / 2].ops[i % 2] != NULL)
			status = rubato_start(calls->list[i / 2].ops[i % 2]);
	for (uint32_t i = 0; i < 2 * calls->count && status == RUBATO_OK; i++)
		if (calls->list[i / 2].ops[i % 2] != NULL)
			status = rubato_wait(calls->list[i / 2].ops[i % 2], RUBATO_TIMEOUT_DEFAULT);
	return status;
}

/* Also out of place, the inputs must be as they were. */
static uint64_t wrong_elements(const struct bench *bench, const struct bench_case *what,
			       struct known *known, const struct call *call)
{
	uint64_t wrong = known_wrong(known, &call->made);

	if (what->in_place || bench->options->op == OP_BROADCAST ||
	    bench->options->op == OP_BARRIER)
		return wrong;
	return wrong + known_changed(known, &call->made);
}

/* ---- Many calls ---- */

/* `sorted` holds `count` ascending values; the p-quantile by the nearest rank above. */
static double nearest_above(const double *sorted, uint32_t count, double p)
{
	uint32_t index = (uint32_t)((double)count * p);

	return sorted[index < count ? index : count - 1];
}

static double median(const double *sorted, uint32_t count)
{
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* *own: the mean over ranks; *slowest: the largest; *whole: first begin to last end. */
static void iteration(const struct bench *bench, uint32_t i, double *own, double *slowest,
		      double *whole)
{
	double sum = 0, max = 0, begin = INFINITY, end = 0;
	uint32_t calls = calls_of(bench->options);

	for (uint32_t rank = 0; rank < bench->rank_count; rank++) {
		const struct peer_time *t =
			&bench->all_times[(size_t)rank * bench->options->iterations + i];

		sum += t->end_us - t->begin_us;
		max = fmax(max, t->end_us - t->begin_us);
		begin = fmin(begin, t->begin_us);
		end = fmax(end, t->end_us);
	}
	*own = sum / bench->rank_count / calls;
	*slowest = max / calls;
	*whole = (end - begin) / calls;
}

static double median_of(double *values, uint32_t count)
{
	qsort(values, count, sizeof(double), ascending);
	return median(values, count);
}

/* bench->all_times: [ranks][iterations]. means and wholes: of each iteration, in their order. */
static void summarise(struct bench *bench, struct bench_result *result, double *means,
		      double *wholes)
{
	uint32_t count = bench->options->iterations;
	double *sorted = bench->sorted;

	for (uint32_t i = 0; i < count; i++)
		iteration(bench, i, &means[i], &sorted[i], &wholes[i]);
	result->slowest_us = median_of(sorted, count);
	memcpy(sorted, wholes, count * sizeof(double));
	result->whole_us = bench->one_clock ? median_of(sorted, count) : NAN;
	memcpy(sorted, means, count * sizeof(double));
	result->median_us = median_of(sorted, count);
	result->mean_us = 0;
	for (uint32_t i = 0; i < count; i++)
		result->mean_us += sorted[i] / count;
	result->min_us = sorted[0];
	result->p90_us = nearest_above(sorted, count, 0.9);
	result->p99_us = nearest_above(sorted, count, 0.99);
	result->max_us = sorted[count - 1];
	result->ran = true;
}

static rubato_status gather(struct bench *bench, uint64_t wrong, struct bench_result *result)
{
	int64_t own = (int64_t)wrong, all = 0;
	rubato_status status =
		rubato_allgather(bench->comm, bench->times, bench->all_times,
				 2 * (uint64_t)bench->options->iterations, RUBATO_FLOAT64);

	if (status == RUBATO_OK)
		status = rubato_allreduce(bench->comm, &own, &all, 1, RUBATO_INT64, RUBATO_SUM);
	if (status != RUBATO_OK)
		return status;
	summarise(bench, result, bench->means, bench->wholes);
	result->wrong = (uint64_t)all;
	return RUBATO_OK;
}

/* Before iterations first .. end - 1: those of the case, or as many as bring back to the caches
 * what another's turn took from them. */
static uint32_t warmups_of(const struct bench_options *options, uint32_t first, uint32_t end)
{
	uint32_t again = end - first + 1;

	return first == 0 || again > options->warmups ? options->warmups : again;
}

static rubato_status slice(struct bench *bench, const struct bench_case *what,
			   const struct calls *calls, uint32_t first, uint32_t end, uint64_t *wrong)
{
	uint32_t warmups = warmups_of(bench->options, first, end);

	for (uint32_t i = 0; i < warmups + end - first; i++) {
		for (uint32_t k = 0; k < calls->count; k++) {
			bench->known[k].number += calls->count;
			known_write(&bench->known[k], &calls->list[k].made);
		}
		bench_check(bench, rubato_barrier(bench->comm), "barrier");

		double begin = now_us();
		rubato_status status = calls_run(bench, calls);
		double finish = now_us();

		if (status != RUBATO_OK)
			return status;
		if (i >= warmups)
			bench->times[first + i - warmups] = (struct peer_time) { begin, finish };
		/* Where ranks share cores, checking would keep slower ranks from their
		 * operation. */
		bench_check(bench, rubato_barrier(bench->comm), "barrier");
		for (uint32_t k = 0; k < calls->count && bench->options->checked; k++)
			*wrong += wrong_elements(bench, what, &bench->known[k], &calls->list[k]);
	}
	return RUBATO_OK;
}

/* ---- Other libraries ---- */

struct led {                             /* One peer's part of a case; on rank 0. */
	struct peer_time *times, *slice; /* [ranks][iterations]; of a slice. */
	double *means, *wholes;          /* iterations, in order. */
	uint64_t wrong;
	bool ran;
};

static void peer_slice(struct bench *bench, const struct bench_case *what, struct peer *peer,
		       struct led *led, uint32_t first, uint32_t end)
{
	const struct bench_options *options = bench->options;
	uint32_t warmups = warmups_of(options, first, end), all = warmups + end - first;
	struct peer_command command = { .root = options->root,
					.in_place = what->in_place,
					.iterations = all,
					.count = what->count,
					.size_bytes = what->size_bytes,
					.call = bench->known->number };
	uint64_t wrong = 0;

	(void)snprintf(command.op, sizeof(command.op), "%s", operation_names[options->op]);
	(void)snprintf(command.type, sizeof(command.type), "%s", rubato_type_name(what->type));
	(void)snprintf(command.reduction, sizeof(command.reduction), "%s",
		       operation_reduces(options->op) ? rubato_operator_name(what->op) : "none");
	led->ran = led->ran && peer->running && peer_run(peer, &command, led->slice, &wrong);
	led->wrong += wrong;
	for (uint32_t r = 0; r < bench->rank_count && led->ran; r++)
		memcpy(led->times + (size_t)r * options->iterations + first,
		       led->slice + (size_t)r * all + warmups, (end - first) * sizeof(*led->times));
}

static bool led_open(const struct bench *bench, struct led *led)
{
	size_t count = (size_t)bench->rank_count *
		       (bench->options->iterations + (size_t)bench->options->warmups);

	led->times = malloc(count * sizeof(*led->times));
	led->slice = malloc(count * sizeof(*led->slice));
	led->means = malloc(bench->options->iterations * sizeof(double) + 1);
	led->wholes = malloc(bench->options->iterations * sizeof(double) + 1);
	led->ran = led->times != NULL && led->slice != NULL && led->means != NULL &&
		   led->wholes != NULL;
	return led->ran;
}

static uint32_t pieces_of(const struct bench_options *options)
{
	return options->iterations < SLICES ? options->iterations : SLICES;
}

static struct ratio_figures ratio(const struct bench *bench, const double *ours,
				  const double *theirs)
{
	struct ratio_figures figures = { NAN, NAN, NAN };

	if (!ratio_figures(ours, theirs, bench->options->iterations, pieces_of(bench->options),
			   &figures))
		(void)fprintf(stderr, "%s: out of memory for a ratio\n", BENCH);
	return figures;
}

static void led_close(struct bench *bench, struct led *led, struct bench_result *result)
{
	*result = (struct bench_result) { 0 };
	if (led->ran) {
		memcpy(bench->all_times, led->times,
		       (size_t)bench->rank_count * bench->options->iterations *
			       sizeof(*led->times));
		summarise(bench, result, led->means, led->wholes);
		result->wrong = led->wrong;
		result->over = ratio(bench, bench->means, led->means);
		if (bench->one_clock)
			result->whole_over = ratio(bench, bench->wholes, led->wholes);
	}
	free(led->times);
	free(led->slice);
	free(led->means);
	free(led->wholes);
}

/* Ours and theirs in turn, so that a change of the machine's mood meets all. */
static rubato_status slices(struct bench *bench, const struct bench_case *what,
			    const struct calls *calls, struct bench_result *ours,
			    struct bench_result *theirs)
{
	struct bench_peers *peers = &bench->peers;
	uint32_t iterations = bench->options->iterations,
		 pieces = peers->count > 0 ? pieces_of(bench->options) : 1;
	struct led led[PEERS_MAX] = { 0 };
	rubato_status status = RUBATO_OK;
	uint64_t wrong = 0;

	for (uint32_t p = 0; p < peers->count && peers->leading; p++)
		if (!led_open(bench, &led[p]))
			(void)fprintf(stderr, "%s: out of memory for a peer's times\n", BENCH);
	for (uint32_t k = 0; k < pieces && status == RUBATO_OK; k++) {
		uint32_t first = (uint32_t)((uint64_t)iterations * k / pieces);
		uint32_t end = (uint32_t)((uint64_t)iterations * (k + 1) / pieces);

		status = slice(bench, what, calls, first, end, &wrong);
		for (uint32_t p = 0; p < peers->count && status == RUBATO_OK; p++) {
			if (peers->leading)
				peer_slice(bench, what, &peers->list[p], &led[p], first, end);
			/* The others sleep here meanwhile. */
			status = rubato_barrier(bench->comm);
		}
	}
	if (status == RUBATO_OK)
		status = gather(bench, wrong, ours);
	for (uint32_t p = 0; p < peers->count && peers->leading; p++)
		led_close(bench, &led[p], &theirs[p]);
	return status;
}

rubato_status bench_measure(struct bench *bench, const struct bench_case *what,
			    struct bench_result *ours, struct bench_result theirs[PEERS_MAX])
{
	const struct bench_options *options = bench->options;
	struct calls calls = { .count = calls_of(options) };
	rubato_status status = RUBATO_OK;

	*ours = (struct bench_result) { 0 };
	if (operation_uneven(options->op))
		uneven_fill(what->count, options->op == OP_ALLTOALLV ? bench->rank : 0,
			    bench->rank_count, bench->counts);
	calls.list = memory(calls.count * sizeof(*calls.list));
	for (uint32_t k = 0; k < calls.count && status == RUBATO_OK; k++) {
		struct call *call = &calls.list[k];

		call->made = (struct operation_call) { .op = options->op,
						       .count = what->count,
						       .counts = bench->counts,
						       .type = what->type,
						       .reduction = what->op,
						       .root = options->root };
		place(bench, what, k, call);
		status = call_make(bench, call);
	}
	if (status == RUBATO_OK)
		status = slices(bench, what, &calls, ours, theirs);
	for (uint32_t i = 0; i < 2 * calls.count; i++)
		rubato_op_free(calls.list[i / 2].ops[i % 2]);
	free(calls.list);
	return status;
}
