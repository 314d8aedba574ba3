/*
 * oneway.c -- what one way between two ranks takes, measured as perftest does it.
 *
 *	oneway latency SIZE ROUNDS     half a round trip, blocking calls: median and mean, in us
 *	oneway persistent SIZE ROUNDS  the same by persistent operations
 *	oneway stream SIZE COUNT       10^6 bytes a second, DEPTH messages under way at a time
 *
 * A rank of a job of two; rank 0 prints the figure. Memory is rubato_alloc's, as perftest's is
 * registered. What arrives is looked at: a figure of wrong data is an exit status of 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/clock.h"
#include "rubato.h"

#define DEPTH 16
#define WARMUP 20
#define SIZE_MAX_BYTES (64UL << 20)
#define COUNT_MAX 1000000UL

static rubato_comm *comm;

static void check(rubato_status status, const char *what)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "oneway: %s: %s\n", what, rubato_error_text());
	exit(1);
}

static uint8_t *memory(size_t size_bytes)
{
	void *got;

	check(rubato_alloc(comm, size_bytes, &got), "rubato_alloc");
	return got;
}

/* What message `round` is to have at its first and its last byte. */
static uint8_t mark(unsigned long round)
{
	return (uint8_t)(round * 37 + 11);
}

static void write_mark(uint8_t *bytes, size_t size_bytes, unsigned long round)
{
	bytes[0] = bytes[size_bytes - 1] = mark(round);
}

static void read_mark(const uint8_t *bytes, size_t size_bytes, unsigned long round)
{
	if (bytes[0] == mark(round) && bytes[size_bytes - 1] == mark(round))
		return;
	(void)fprintf(stderr, "oneway: message %lu has %u and %u at its ends, not %u\n", round,
		      bytes[0], bytes[size_bytes - 1], mark(round));
	exit(1);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ---- Half a round trip ---- */

struct ends {
	uint8_t *in, *out;
	size_t size_bytes;
	uint32_t peer;
	rubato_op *send, *recv; /* NULL: blocking calls. */
};

static void give(const struct ends *e)
{
	if (e->send == NULL) {
		check(rubato_send(comm, e->out, e->size_bytes, RUBATO_UINT8, e->peer, 1), "send");
		return;
	}
	check(rubato_start(e->send), "start");
	check(rubato_wait(e->send, RUBATO_TIMEOUT_DEFAULT), "wait");
}

static void take(const struct ends *e)
{
	if (e->recv == NULL) {
		check(rubato_recv(comm, e->in, e->size_bytes, RUBATO_UINT8, e->peer, 1), "recv");
		return;
	}
	check(rubato_start(e->recv), "start");
	check(rubato_wait(e->recv, RUBATO_TIMEOUT_DEFAULT), "wait");
}

static double half_round_us(const struct ends *e, unsigned long round)
{
	uint64_t from = clock_ns();

	write_mark(e->out, e->size_bytes, round);
	if (e->peer == 1)
		give(e);
	take(e);
	read_mark(e->in, e->size_bytes, round);
	if (e->peer == 0)
		give(e);
	return (double)(clock_ns() - from) / 2e3;
}

static void latency(size_t size_bytes, unsigned long rounds, bool persistent)
{
	struct ends e = { .in = memory(size_bytes),
			  .out = memory(size_bytes),
			  .size_bytes = size_bytes,
			  .peer = 1 - rubato_rank(comm) };
	double *times = calloc(rounds, sizeof(*times)), sum = 0;

	if (times == NULL)
		exit(1);
	if (persistent) {
		check(rubato_op_send(comm, e.out, size_bytes, RUBATO_UINT8, e.peer, 1, &e.send),
		      "op_send");
		check(rubato_op_recv(comm, e.in, size_bytes, RUBATO_UINT8, e.peer, 1, &e.recv),
		      "op_recv");
	}
	for (unsigned long i = 0; i < WARMUP; i++)
		(void)half_round_us(&e, i);
	for (unsigned long i = 0; i < rounds; i++)
		times[i] = half_round_us(&e, i);
	for (unsigned long i = 0; i < rounds; i++)
		sum += times[i];
	qsort(times, rounds, sizeof(*times), ascending);
	if (e.peer == 1)
		(void)printf("%.3f %.3f\n", times[rounds / 2], sum / (double)rounds);
	rubato_op_free(e.send);
	rubato_op_free(e.recv);
	free(times);
}

/* ---- A stream ---- */

struct lane {
	uint8_t *bytes;
	rubato_op *op;
};

static void lane_end(const struct lane *lane, size_t size_bytes, unsigned long i)
{
	check(rubato_wait(lane->op, RUBATO_TIMEOUT_DEFAULT), "wait");
	if (rubato_rank(comm) == 1)
		read_mark(lane->bytes, size_bytes, i);
}

static double stream_us(struct lane *lanes, size_t size_bytes, unsigned long count)
{
	uint64_t from;

	check(rubato_barrier(comm), "barrier");
	from = clock_ns();
	for (unsigned long i = 0; i < count + DEPTH; i++) {
		struct lane *lane = &lanes[i % DEPTH];

		if (i >= DEPTH)
			lane_end(lane, size_bytes, i - DEPTH);
		if (i >= count)
			continue;
		if (rubato_rank(comm) == 0)
			write_mark(lane->bytes, size_bytes, i);
		check(rubato_start(lane->op), "start");
	}
	check(rubato_barrier(comm), "barrier"); /* All has come, too. */
	return (double)(clock_ns() - from) * 1e-3;
}

static void stream(size_t size_bytes, unsigned long count)
{
	struct lane lanes[DEPTH];
	double us;

	for (uint32_t i = 0; i < DEPTH; i++) {
		lanes[i].bytes = memory(size_bytes);
		if (rubato_rank(comm) == 0)
			check(rubato_op_send(comm, lanes[i].bytes, size_bytes, RUBATO_UINT8, 1, i,
					     &lanes[i].op),
			      "op_send");
		else
			check(rubato_op_recv(comm, lanes[i].bytes, size_bytes, RUBATO_UINT8, 0, i,
					     &lanes[i].op),
			      "op_recv");
	}
	(void)stream_us(lanes, size_bytes, DEPTH);
	us = stream_us(lanes, size_bytes, count);
	if (rubato_rank(comm) == 0)
		(void)printf("%.3f\n", (double)size_bytes * (double)count / us);
	for (uint32_t i = 0; i < DEPTH; i++)
		rubato_op_free(lanes[i].op);
}

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end == '\0' && value >= 1 && value <= most)
		return value;
	(void)fprintf(stderr, "oneway: a number from 1 to %lu, not '%s'\n", most, text);
	exit(2);
}

int main(int argc, char **argv)
{
	unsigned long size_bytes, count;

	if (argc != 4 || (strcmp(argv[1], "latency") != 0 && strcmp(argv[1], "persistent") != 0 &&
			  strcmp(argv[1], "stream") != 0)) {
		(void)fprintf(stderr, "usage: oneway latency|persistent|stream SIZE COUNT\n");
		return 2;
	}
	size_bytes = number(argv[2], SIZE_MAX_BYTES);
	count = number(argv[3], COUNT_MAX);
	check(rubato_init(&comm, NULL), "start");
	if (rubato_size(comm) != 2) {
		(void)fprintf(stderr, "oneway: 2 ranks, not %u\n", rubato_size(comm));
		return 2;
	}
	if (strcmp(argv[1], "stream") == 0)
		stream(size_bytes, count);
	else
		latency(size_bytes, count, strcmp(argv[1], "persistent") == 0);
	check(rubato_finalize(comm), "end");
	return 0;
}
