/*
 * test_phases.c -- flat algorithms take the time that their latencies and bytes ask for, where
 * every rank has a link of its own: phases of chunks that overlap, and nobody who feeds several
 * peers feeds one after the other. Times are virtual: the same on every machine.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"

#define RANKS 8
#define BEGIN_NS 1000000000u
#define LATENCY_NS 5000000u
#define BANDWIDTH 12.5e6

struct row {
	const char *operation, *algorithm; /* NULL: as chosen. */
	uint64_t bytes;
	double latencies, vectors; /* That the last rank leaves after: of LATENCY_NS, on a link. */
	double slack;
};

#define SHARE (double)(RANKS - 1) / RANKS

static const struct row rows[] = {
	{ "barrier", "flat", 0, 1, 0, 1.001 },
	{ "broadcast", "flat", 1024, 1, RANKS - 1, 1.001 },
	{ "reduce", "flat", 1024, 1, RANKS - 1, 1.001 },
	{ "allreduce", "two_shot", 64 << 10, 2, 2 * SHARE, 1.001 },
	{ "allreduce", "two_shot", 1 << 20, 2, 2 * SHARE, 1.001 },
	{ "broadcast", "scatter_allgather", 64 << 10, 2, 1, 1.15 },
	{ "broadcast", "scatter_allgather", 1 << 20, 2, 1, 1.08 },
	{ "reduce", "scatter_gather", 1 << 20, 2, 1, 1.2 },
	{ "barrier", NULL, 0, 1, 0, 1.001 },
	{ "broadcast", NULL, 1024, 1, RANKS - 1, 1.001 },
	{ "allreduce", NULL, 64 << 10, 2, 2 * SHARE, 1.001 },
	{ "broadcast", NULL, 1 << 20, 2, 1, 1.08 },
	{ "reduce", NULL, 1 << 20, 2, 1, 1.2 },
};

struct measured {
	const struct row *row;
	uint64_t end_ns; /* Of the last rank. */
};

static rubato_status call(rubato_comm *comm, const struct row *row, float *in, float *out)
{
	uint64_t count = row->bytes / sizeof(*in);

	if (strcmp(row->operation, "barrier") == 0)
		return rubato_barrier(comm);
	if (strcmp(row->operation, "broadcast") == 0)
		return rubato_broadcast(comm, out, count, RUBATO_FLOAT32, 1);
	if (strcmp(row->operation, "reduce") == 0)
		return rubato_reduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM, 1);
	return rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM);
}

static rubato_status call_together(rubato_comm *comm, void *arg)
{
	struct measured *m = arg;
	float *in = calloc(m->row->bytes + 1, 1), *out = calloc(m->row->bytes + 1, 1);
	rubato_status err = RUBATO_OK;

	ck_assert(in != NULL && out != NULL);
	if (m->row->algorithm != NULL)
		err = rubato_set_algorithm(comm, m->row->operation, m->row->algorithm);
	ck_assert_uint_lt(rubato_now(comm), BEGIN_NS);
	rubato_sleep(comm, BEGIN_NS - rubato_now(comm));
	if (err == RUBATO_OK)
		err = call(comm, m->row, in, out);
	if (rubato_now(comm) > m->end_ns)
		m->end_ns = rubato_now(comm);
	free(in);
	free(out);
	return err;
}

START_TEST(as_long_as_latencies_and_bytes_take)
{
	const struct row *row = &rows[_i];
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	struct measured measured = { row, 0 };
	rubato_sim_result result;
	double ideal_ns =
		row->latencies * LATENCY_NS + row->vectors * (double)row->bytes / BANDWIDTH * 1e9;

	options.rank_count = RANKS;
	options.latency_ns = LATENCY_NS;
	options.bandwidth = BANDWIDTH;
	ck_assert_msg(rubato_sim_run(&options, call_together, &measured, &result) == RUBATO_OK,
		      "%s", rubato_error_text());
	double took_ns = (double)(measured.end_ns - BEGIN_NS);

	ck_assert_msg(took_ns <= row->slack * ideal_ns, "%s %s of %llu bytes: %.0f us, not %.0f",
		      row->operation, row->algorithm != NULL ? row->algorithm : "as chosen",
		      (unsigned long long)row->bytes, took_ns / 1e3, ideal_ns / 1e3);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("phases");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, as_long_as_latencies_and_bytes_take, 0,
			    sizeof(rows) / sizeof(rows[0]));
	return check_main("phases", tc);
}
