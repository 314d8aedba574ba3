/* bench_run.c -- one rank's part of the measurement. See bench.h for what is timed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/bench.h"

struct call { /* One call's arguments, and the persistent pair of sendrecv. */
	void *in, *out;
	rubato_op *send, *recv;
};

static double now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

void bench_check(const struct bench *bench, rubato_status status, const char *what)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s: rank %u: %s: %s (%s)\n", BENCH, bench->rank, what,
		      rubato_error_text(), rubato_status_name(status));
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

void bench_open(struct bench *bench, const struct bench_options *options, uint64_t buffer_bytes)
{
	rubato_options init = RUBATO_OPTIONS_INIT;

	*bench = (struct bench) { .options = options, .buffer_bytes = buffer_bytes };
	if (strcmp(options->transport, "auto") != 0)
		init.transport = options->transport;
	bench_check(bench, rubato_init(&bench->comm, &init), "start");
	bench->rank = rubato_rank(bench->comm);
	bench->rank_count = rubato_size(bench->comm);

	/* Scattered operations of tiny sizes still have one element of each rank. */
	size_t least = (size_t)bench->rank_count * 8;
	size_t bytes = buffer_bytes < least ? least : buffer_bytes;

	if (options->registered) {
		bench_check(bench, rubato_alloc(bench->comm, bytes, &bench->in), "rubato_alloc");
		bench_check(bench, rubato_alloc(bench->comm, bytes, &bench->out), "rubato_alloc");
		memset(bench->in, 0, bytes);
		memset(bench->out, 0, bytes);
	} else {
		bench->in = memory(bytes);
		bench->out = memory(bytes);
	}
	bench->mine = memory(sizeof(*bench->mine));
	bench->expected = memory(sizeof(*bench->expected));
	bench->scratch = memory(sizeof(*bench->scratch));
	bench->times = memory(options->iterations * sizeof(double));
	bench->all_times = memory(bench->rank_count * (size_t)options->iterations * sizeof(double));
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
	free(bench->mine);
	free(bench->expected);
	free(bench->scratch);
	free(bench->times);
	free(bench->all_times);
	bench_check(bench, rubato_finalize(bench->comm), "end");
}

/* ---- One call ---- */

/* Where the call reads and writes; broadcast has one buffer, `in`. */
static void place(const struct bench *bench, const struct bench_case *what, struct call *call)
{
	size_t part_bytes = what->count * rubato_type_bytes(what->type);

	call->in = bench->in;
	call->out = bench->out;
	if (!what->in_place)
		return;
	if (bench->options->op == BENCH_REDUCE_SCATTER)
		call->out = (char *)bench->in + bench->rank * part_bytes;
	else if (bench->options->op == BENCH_ALLGATHER)
		call->in = (char *)bench->out + bench->rank * part_bytes;
	else
		call->out = bench->in;
}

/* Elements that this rank puts in. */
static uint64_t in_count(const struct bench *bench, const struct bench_case *what)
{
	return what->count * (bench->options->op == BENCH_REDUCE_SCATTER ? bench->rank_count : 1);
}

static void write_inputs(struct bench *bench, const struct bench_case *what, struct call *call)
{
	uint64_t count = in_count(bench, what);

	pattern_of_rank(bench->mine, what->type, what->op, count, bench->rank, bench->rank_count,
			bench->calls);
	pattern_fill(bench->mine, 0, count, call->in);
}

static rubato_status sendrecv(const struct call *call)
{
	rubato_status status = rubato_start(call->recv);

	if (status == RUBATO_OK)
		status = rubato_start(call->send);
	if (status == RUBATO_OK)
		status = rubato_wait(call->recv, RUBATO_TIMEOUT_DEFAULT);
	if (status == RUBATO_OK)
		status = rubato_wait(call->send, RUBATO_TIMEOUT_DEFAULT);
	return status;
}

static rubato_status call_once(const struct bench *bench, const struct bench_case *what,
			       const struct call *call)
{
	rubato_comm *comm = bench->comm;
	uint32_t root = bench->options->root;

	switch (bench->options->op) {
	case BENCH_ALLREDUCE:
		return rubato_allreduce(comm, call->in, call->out, what->count, what->type,
					what->op);
	case BENCH_REDUCE_SCATTER:
		return rubato_reduce_scatter(comm, call->in, call->out, what->count, what->type,
					     what->op);
	case BENCH_ALLGATHER:
		return rubato_allgather(comm, call->in, call->out, what->count, what->type);
	case BENCH_BROADCAST:
		return rubato_broadcast(comm, call->in, what->count, what->type, root);
	case BENCH_REDUCE:
		return rubato_reduce(comm, call->in, call->out, what->count, what->type, what->op,
				     root);
	case BENCH_BARRIER:
		return rubato_barrier(comm);
	case BENCH_SENDRECV:
		return sendrecv(call);
	}
	return RUBATO_ERR_ARGUMENT;
}

/* Elements of this rank's result that are wrong. */
static uint64_t wrong_results(struct bench *bench, const struct bench_case *what,
			      const struct call *call)
{
	uint32_t ranks = bench->rank_count, from = bench->options->root;
	size_t part_bytes = what->count * rubato_type_bytes(what->type);
	uint64_t wrong = 0, first = 0;

	switch (bench->options->op) {
	case BENCH_BARRIER:
		return 0;
	case BENCH_ALLGATHER:
		for (uint32_t rank = 0; rank < ranks; rank++) {
			pattern_of_rank(bench->expected, what->type, what->op, what->count, rank,
					ranks, bench->calls);
			wrong += pattern_wrong(bench->expected, 0, what->count,
					       (char *)call->out + rank * part_bytes);
		}
		return wrong;
	case BENCH_SENDRECV:
		from = (bench->rank + ranks - 1) % ranks;
		/* fall through */
	case BENCH_BROADCAST:
		pattern_of_rank(bench->expected, what->type, what->op, what->count, from, ranks,
				bench->calls);
		return pattern_wrong(bench->expected, 0, what->count,
				     bench->options->op == BENCH_SENDRECV ? call->out : call->in);
	case BENCH_REDUCE:
		if (bench->rank != from)
			return 0;
		break;
	case BENCH_REDUCE_SCATTER:
		first = bench->rank * what->count;
		break;
	case BENCH_ALLREDUCE:
		break;
	}
	pattern_of_all(bench->expected, bench->scratch, what->type, what->op, in_count(bench, what),
		       ranks, bench->calls);
	return pattern_wrong(bench->expected, first, what->count, call->out);
}

/* Out of place, the inputs must be as they were. */
static uint64_t wrong_inputs(const struct bench *bench, const struct bench_case *what,
			     const struct call *call)
{
	if (what->in_place || bench->options->op == BENCH_BROADCAST ||
	    bench->options->op == BENCH_BARRIER)
		return 0;
	return pattern_wrong(bench->mine, 0, in_count(bench, what), call->in);
}

/* ---- Many calls ---- */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* `sorted` holds `count` ascending values; the p-quantile by the nearest rank above. */
static double quantile(const double *sorted, uint32_t count, double p)
{
	uint32_t index = (uint32_t)((double)count * p);

	return sorted[index < count ? index : count - 1];
}

static double median(const double *sorted, uint32_t count)
{
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static rubato_status summarise(struct bench *bench, uint64_t wrong, struct bench_result *result)
{
	uint32_t count = bench->options->iterations, ranks = bench->rank_count;
	int64_t own = (int64_t)wrong, all = 0;
	rubato_status status = rubato_allgather(bench->comm, bench->times, bench->all_times, count,
						RUBATO_FLOAT64);

	if (status == RUBATO_OK)
		status = rubato_allreduce(bench->comm, &own, &all, 1, RUBATO_INT64, RUBATO_SUM);
	if (status != RUBATO_OK)
		return status;
	for (int slowest = 1; slowest >= 0; slowest--) {
		for (uint32_t i = 0; i < count; i++) {
			double sum = 0, max = 0;

			for (uint32_t rank = 0; rank < ranks; rank++) {
				double one = bench->all_times[(size_t)rank * count + i];

				sum += one;
				max = one > max ? one : max;
			}
			bench->times[i] = slowest ? max : sum / ranks;
		}
		qsort(bench->times, count, sizeof(double), compare);
		if (slowest)
			result->slowest_us = median(bench->times, count);
	}
	result->median_us = median(bench->times, count);
	result->min_us = bench->times[0];
	result->p99_us = quantile(bench->times, count, 0.99);
	result->wrong = (uint64_t)all;
	result->ran = true;
	return RUBATO_OK;
}

static rubato_status repeat(struct bench *bench, const struct bench_case *what, struct call *call,
			    struct bench_result *result)
{
	uint32_t warmups = bench->options->warmups;
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < warmups + bench->options->iterations; i++) {
		bench->calls++;
		write_inputs(bench, what, call);
		bench_check(bench, rubato_barrier(bench->comm), "barrier");

		double begin = now_us();
		rubato_status status = call_once(bench, what, call);
		double end = now_us();

		if (status != RUBATO_OK)
			return status;
		if (i >= warmups)
			bench->times[i - warmups] = end - begin;
		/* Where ranks share cores, checking would keep slower ranks from their operation.
		 */
		bench_check(bench, rubato_barrier(bench->comm), "barrier");
		wrong += wrong_results(bench, what, call) + wrong_inputs(bench, what, call);
	}
	return summarise(bench, wrong, result);
}

rubato_status bench_measure(struct bench *bench, const struct bench_case *what,
			    struct bench_result *result)
{
	uint32_t ranks = bench->rank_count, rank = bench->rank;
	struct call call = { 0 };
	rubato_status status = RUBATO_OK;

	*result = (struct bench_result) { 0 };
	place(bench, what, &call);
	if (bench->options->op == BENCH_SENDRECV) {
		status = rubato_op_send(bench->comm, call.in, what->count, what->type,
					(rank + 1) % ranks, 0, &call.send);
		if (status == RUBATO_OK)
			status = rubato_op_recv(bench->comm, call.out, what->count, what->type,
						(rank + ranks - 1) % ranks, 0, &call.recv);
	}
	if (status == RUBATO_OK)
		status = repeat(bench, what, &call, result);
	rubato_op_free(call.send);
	rubato_op_free(call.recv);
	return status;
}
