/*
 * test_hollow.c -- simulations without memory: the same events at the same times as with it; what
 * needs to touch memory is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"

#define RANKS 8
#define BYTES_MAX (2u << 20)

struct row {
	const char *operation, *algorithm;
	uint32_t ranks_per_node;
	uint32_t plain;
};

static const struct row rows[] = {
	{ "allreduce", "auto", 0, 0 },         { "allreduce", "auto", 4, 0 },
	{ "allreduce", "auto", 4, 1 },         { "allreduce", "staged", 8, 1 },
	{ "allreduce", "direct", 8, 0 },       { "allreduce", "ring", 0, 1 },
	{ "allreduce", "hierarchical", 4, 0 }, { "allreduce", "recursive_halving_doubling", 0, 1 },
	{ "broadcast", "auto", 0, 1 },         { "broadcast", "hierarchical", 4, 0 },
	{ "broadcast", "direct", 8, 0 },       { "allgather", "bruck", 0, 1 },
	{ "allgather", "ring_put", 0, 0 },     { "alltoall", "hierarchical", 4, 0 },
	{ "alltoall", "bruck", 4, 1 },         { "reduce_scatter", "auto", 4, 0 },
};

struct job {
	const struct row *row;
	bool hollow;
	uint64_t count;
	uint64_t end_ns;
};

/* In a simulation with memory, of either kind, or without. */
static void *memory(rubato_comm *comm, const struct job *job)
{
	void *at = NULL;

	if (!job->row->plain)
		ck_assert_int_eq(rubato_alloc(comm, BYTES_MAX, &at), RUBATO_OK);
	else
		at = job->hollow ? rubato_sim_hollow(comm, BYTES_MAX) : calloc(BYTES_MAX, 1);
	ck_assert_ptr_nonnull(at);
	return at;
}

static rubato_status call(rubato_comm *comm, const struct job *job, void *in, void *out)
{
	uint64_t share = job->count / RANKS;

	switch (job->row->operation[0] == 'a' ? job->row->operation[3] : job->row->operation[0]) {
	case 'b':
		return rubato_broadcast(comm, out, job->count, RUBATO_FLOAT32, 0);
	case 'g':
		return rubato_allgather(comm, in, out, share, RUBATO_FLOAT32);
	case 't':
		return rubato_alltoall(comm, in, out, share, RUBATO_FLOAT32);
	case 'r':
		return job->row->operation[0] == 'a'
			       ? rubato_allreduce(comm, in, out, job->count, RUBATO_FLOAT32,
						  RUBATO_SUM)
			       : rubato_reduce_scatter(comm, in, out, share, RUBATO_FLOAT32,
						       RUBATO_SUM);
	default:
		return RUBATO_ERR_ARGUMENT;
	}
}

static rubato_status job_rank(rubato_comm *comm, void *arg)
{
	struct job *job = arg;
	void *in = memory(comm, job), *out = memory(comm, job);
	rubato_status err = rubato_set_algorithm(comm, job->row->operation, job->row->algorithm);

	for (uint32_t i = 0; i < 2 && err == RUBATO_OK; i++)
		err = call(comm, job, in, out);
	job->end_ns = rubato_now(comm);
	if (job->row->plain && !job->hollow) {
		free(in);
		free(out);
	}
	return err;
}

static rubato_sim_result run(struct job *job, bool hollow)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = RANKS;
	options.ranks_per_node = job->row->ranks_per_node;
	options.hollow = hollow;
	options.costs = (rubato_sim_costs) { .send_ns = 300,
					     .receive_ns = 200,
					     .node_send_ns = 100,
					     .node_receive_ns = 50,
					     .work_ns = 30,
					     .gap_ns = 20,
					     .memory_bandwidth = 40e9,
					     .core_bandwidth = 10e9,
					     .cards = 1 };
	job->hollow = hollow;
	ck_assert_msg(rubato_sim_run(&options, job_rank, job, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
	return result;
}

START_TEST(the_same_events)
{
	struct job job = { .row = &rows[_i] };

	for (job.count = 64; job.count <= BYTES_MAX / 4; job.count *= 16) {
		rubato_sim_result full = run(&job, false);
		uint64_t end_ns = job.end_ns;
		rubato_sim_result hollow = run(&job, true);

		ck_assert_uint_gt(full.messages, 0);
		ck_assert_uint_eq(hollow.end_ns, full.end_ns);
		ck_assert_uint_eq(job.end_ns, end_ns);
		ck_assert_uint_eq(hollow.messages, full.messages);
		ck_assert_uint_eq(hollow.message_bytes, full.message_bytes);
		ck_assert_uint_eq(hollow.events, full.events);
		ck_assert_uint_eq(hollow.trace_hash, full.trace_hash);
	}
}
END_TEST

static rubato_status widened_rank(rubato_comm *comm, void *arg)
{
	void *at;

	(void)arg;
	ck_assert_int_eq(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE), RUBATO_OK);
	at = rubato_sim_hollow(comm, 2000);
	return rubato_allreduce(comm, at, at, 1000, RUBATO_BFLOAT16, RUBATO_SUM);
}

static rubato_status refused_rank(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *partial = NULL;

	ck_assert_int_eq(
		rubato_partial_create(comm, 10, RUBATO_FLOAT32, RUBATO_SUM, &options, &partial),
		RUBATO_ERR_UNSUPPORTED);
	(void)arg;
	return RUBATO_OK;
}

static rubato_status lagged_rank(rubato_comm *comm, void *arg)
{
	rubato_lagged *lagged = NULL;

	(void)arg;
	ck_assert_int_eq(rubato_lagged_create(comm, 10, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged),
			 RUBATO_ERR_UNSUPPORTED);
	return RUBATO_OK;
}

/* 1 TiB, of which a page may be between. */
static rubato_status used_up_rank(rubato_comm *comm, void *arg)
{
	void *at = NULL;

	(void)arg;
	ck_assert_ptr_nonnull(rubato_sim_hollow(comm, (size_t)1 << 39));
	ck_assert_ptr_nonnull(rubato_sim_hollow(comm, ((size_t)1 << 39) - (1 << 20)));
	ck_assert_ptr_null(rubato_sim_hollow(comm, 1 << 20));
	ck_assert_ptr_null(rubato_sim_hollow(comm, SIZE_MAX));
	ck_assert_int_eq(rubato_alloc(comm, 1 << 20, &at), RUBATO_ERR_MEMORY);
	return RUBATO_OK;
}

static rubato_status solid_rank(rubato_comm *comm, void *arg)
{
	(void)arg;
	ck_assert_ptr_null(rubato_sim_hollow(comm, 8));
	ck_assert_ptr_null(rubato_sim_hollow(NULL, 8));
	return RUBATO_OK;
}

#define LONG_BYTES ((uint64_t)18 << 30)

static rubato_status long_rank(rubato_comm *comm, void *arg)
{
	void *at = rubato_sim_hollow(comm, LONG_BYTES);

	(void)arg;
	ck_assert_ptr_nonnull(at);
	return rubato_rank(comm) == 0 ? rubato_send(comm, at, LONG_BYTES, RUBATO_UINT8, 1, 0)
				      : rubato_recv(comm, at, LONG_BYTES, RUBATO_UINT8, 0, 0);
}

/* A time too long to count is not taken for a shorter one, whatever it is that takes so long. */
START_TEST(time_has_an_end)
{
	static const uint64_t hour_ns = UINT64_C(3600000000000);
	static const rubato_sim_options cases[] = {
		{ .bandwidth = 1 },
		{ .node_bandwidth = 1, .ranks_per_node = 2 },
		{ .costs = { .stack_bandwidth = 1 } },
		{ .latency_ns = hour_ns, .jitter = 1e6, .reorder = 1, .seed = 1 },
		{ .costs = { .gap_ns = hour_ns } }, /* From here on it fits. */
		{ .costs = { .send_ns = hour_ns } },
		{ .costs = { .receive_ns = hour_ns } },
	};
	rubato_sim_result result;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool fits = cases[i].jitter == 0 && cases[i].bandwidth == 0 &&
			    cases[i].node_bandwidth == 0 && cases[i].costs.stack_bandwidth == 0;
		rubato_sim_options options = cases[i];
		rubato_status got;

		options.size_bytes = sizeof(options);
		options.rank_count = 2;
		options.hollow = 1;
		options.timeout_ns = UINT64_MAX;
		got = rubato_sim_run(&options, long_rank, NULL, &result);
		ck_assert_msg(got == (fits ? RUBATO_OK : RUBATO_ERR_TIMEOUT), "%zu: %d", i, got);
		if (fits)
			ck_assert_uint_gt(result.end_ns, LONG_BYTES / 65000 * hour_ns);
		else
			ck_assert_ptr_nonnull(strstr(rubato_error_text(),
						     "ended at 4611686018427387904 ns: virtual "
						     "time lasts no longer (2^62 ns)"));
	}
}
END_TEST

START_TEST(what_is_refused)
{
	static const struct {
		rubato_sim_main main;
		uint32_t hollow;
	} cases[] = {
		{ widened_rank, 1 }, { refused_rank, 1 }, { lagged_rank, 1 },
		{ used_up_rank, 1 }, { solid_rank, 0 },
	};
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 2;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		options.hollow = cases[i].hollow;
		ck_assert_msg(rubato_sim_run(&options, cases[i].main, NULL, &result) == RUBATO_OK,
			      "%zu: %s", i, rubato_error_text());
	}
	options.hollow = 2;
	ck_assert_int_eq(rubato_sim_run(&options, solid_rank, NULL, &result), RUBATO_ERR_ARGUMENT);
}
END_TEST

/* What is there is sent and reduced as ever, also between calls on what is not, which leave the
 * library's own memory as they like it. */
static rubato_status mixed_rank(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { 1, 100, 900, 6000 };
	const uint64_t most = 6000;
	uint32_t n = rubato_size(comm);
	float *values = malloc((1 + n) * most * sizeof(*values)), *out = values + most;
	void *nowhere = rubato_sim_hollow(comm, 2 * n * most * sizeof(*values));
	rubato_status err = RUBATO_OK;

	(void)arg;
	ck_assert_ptr_nonnull(values);
	ck_assert_ptr_nonnull(nowhere);
	for (uint32_t i = 0; i < 48 && err == RUBATO_OK; i++) {
		uint64_t count = counts[i / 2 % 4], last = i / 24 % 2 == 0 ? count : n * count;
		float want = i / 24 % 2 == 0 ? (float)n : 1;
		bool hollow = i % 2 == 0;

		err = rubato_set_wire(comm, (rubato_wire)(i / 8 % 3), false);
		for (uint64_t k = 0; k < count; k++)
			values[k] = 1;
		out[0] = out[last - 1] = 0;
		if (err == RUBATO_OK && i / 24 % 2 == 0)
			err = rubato_allreduce(comm, hollow ? nowhere : values,
					       hollow ? nowhere : out, count, RUBATO_FLOAT32,
					       RUBATO_SUM);
		else if (err == RUBATO_OK)
			err = rubato_allgather(comm, hollow ? nowhere : values,
					       hollow ? nowhere : out, count, RUBATO_FLOAT32);
		if (err == RUBATO_OK && !hollow)
			ck_assert_msg(out[0] == want && out[last - 1] == want,
				      "%u ranks, call %u: %g and %g, not %g", n, i, (double)out[0],
				      (double)out[last - 1], (double)want);
	}
	free(values);
	return err;
}

START_TEST(what_is_there_moves)
{
	for (uint32_t n = 2; n <= 11; n += 4) {
		for (uint32_t per_node = 0; per_node <= 4; per_node += 4) {
			rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
			rubato_sim_result result;

			options.rank_count = n;
			options.ranks_per_node = per_node;
			options.hollow = 1;
			ck_assert_msg(rubato_sim_run(&options, mixed_rank, NULL, &result) ==
					      RUBATO_OK,
				      "%u ranks: %s", n, rubato_error_text());
		}
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("hollow");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, the_same_events, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tc, time_has_an_end);
	tcase_add_test(tc, what_is_refused);
	tcase_add_test(tc, what_is_there_moves);
	return check_main("hollow", tc);
}
