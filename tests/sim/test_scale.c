/*
 * test_scale.c -- rounds of the solo partial allreduce on 16 to 1,024 simulated ranks: one rank
 * commits, the others compute. What a round costs is the difference between a longer and a shorter
 * run, and must grow as the logarithm of the ranks does, in time and in messages of a rank.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define LATENCY_NS 5000u
#define GAP_NS 2000000u /* From round to round: longer than any takes. */
#define SHORT 2u
#define LONG 6u
#define SLACK 1.5

struct scale {
	uint32_t rounds;
	uint64_t opener_ns; /* From commit to result, over rounds. */
	uint64_t wrong, seen;
	char exchange[256], reduce[256];
};

struct cost {
	double round_us, messages, megabytes;
};

static uint32_t log2_up(uint32_t n)
{
	uint32_t log = 0;

	while ((1u << log) < n)
		log++;
	return log;
}

static rubato_status collect_one(rubato_partial *partial, uint32_t r, uint32_t opener,
				 struct scale *scale)
{
	rubato_round round = { .size_bytes = sizeof(round) };
	const void *result = NULL;
	rubato_status err = rubato_partial_collect_view(partial, &result, &round, 0);

	if (err != RUBATO_OK || result == NULL)
		return err != RUBATO_OK ? err : RUBATO_ERR_INTERNAL;
	scale->seen++;
	scale->wrong += round.round != r || *(const int64_t *)result != (int64_t)r + 100 ||
			round.contributors != 1 || round.ranks[opener].fresh != 1;
	return rubato_partial_release(partial);
}

static void sleep_until(rubato_comm *comm, uint64_t at_ns)
{
	uint64_t now = rubato_now(comm);

	if (at_ns > now)
		rubato_sleep(comm, at_ns - now);
}

static rubato_status rounds_run(rubato_comm *comm, rubato_partial *partial, struct scale *scale)
{
	uint32_t n = rubato_size(comm), me = rubato_rank(comm);
	uint64_t start_ns = (rubato_now(comm) / GAP_NS + 2) * GAP_NS;
	rubato_status err = RUBATO_OK;

	for (uint32_t r = 0; r < scale->rounds && err == RUBATO_OK; r++) {
		uint32_t opener = r * 7 % n;
		int64_t value = (int64_t)r + 100;
		uint64_t begin_ns;

		sleep_until(comm, start_ns + (opener == me ? r * GAP_NS : (r + 1) * GAP_NS - 1000));
		begin_ns = rubato_now(comm);
		if (opener == me)
			err = rubato_partial_contribute(partial, &value, r, 1);
		if (err == RUBATO_OK)
			err = collect_one(partial, r, opener, scale);
		if (opener == me)
			scale->opener_ns += rubato_now(comm) - begin_ns;
	}
	return err;
}

static rubato_status scale_rank(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	struct scale *scale = arg;
	rubato_partial *partial = NULL;
	rubato_status err, end;

	options.depth = 1;
	err = rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, &options, &partial);
	if (err == RUBATO_OK && rubato_rank(comm) == 0) /* Of 64-byte records. */
		err = rubato_explain(comm, "allgather", 8, RUBATO_INT64, scale->exchange,
				     sizeof(scale->exchange));
	if (err == RUBATO_OK && rubato_rank(comm) == 0)
		err = rubato_explain(comm, "allreduce", 1, RUBATO_INT64, scale->reduce,
				     sizeof(scale->reduce));
	if (err == RUBATO_OK)
		err = rounds_run(comm, partial, scale);
	end = rubato_partial_free(partial);
	return err != RUBATO_OK ? err : end;
}

static rubato_sim_result cluster_run(uint32_t n, uint32_t rounds, struct scale *scale)
{
	rubato_sim_options cluster = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	*scale = (struct scale) { .rounds = rounds };
	cluster.rank_count = n;
	cluster.latency_ns = LATENCY_NS;
	err = rubato_sim_run(&cluster, scale_rank, scale, &result);
	ck_assert_msg(err == RUBATO_OK, "%u ranks: %s", n, rubato_error_text());
	ck_assert_uint_eq(scale->seen, (uint64_t)n * rounds);
	ck_assert_uint_eq(scale->wrong, 0);
	return result;
}

static struct cost cost_of(uint32_t n)
{
	struct scale few, many;
	rubato_sim_result a = cluster_run(n, SHORT, &few), b = cluster_run(n, LONG, &many);
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
	struct cost cost = {
		.round_us = (double)(many.opener_ns - few.opener_ns) * 1e-3 / (LONG - SHORT),
		.messages = (double)(b.messages - a.messages) / (LONG - SHORT),
		.megabytes = (double)usage.ru_maxrss / 1024,
	};

	(void)printf("%4u ranks: %.2f us and %.0f messages a round (%.2f a rank), %.0f MiB so far; "
		     "%.17s, %.29s\n",
		     n, cost.round_us, cost.messages, cost.messages / n, cost.megabytes,
		     many.exchange, many.reduce);
	(void)fflush(stdout);
	ck_assert_ptr_ne(strstr(many.exchange, "bruck"), NULL);
	ck_assert_ptr_ne(strstr(many.reduce, "recursive_doubling"), NULL);
	return cost;
}

/* Sixteen ranks have a logarithm of 4: that is what the others are held to. */
START_TEST(a_round_costs_a_logarithm)
{
	uint32_t most = test_length() == TEST_SHORT ? 64 : 1024;
	struct cost first = cost_of(16);

	for (uint32_t n = 64; n <= most; n *= 4) {
		struct cost cost = cost_of(n);
		double log = log2_up(n);

		ck_assert_double_le(cost.round_us, SLACK * first.round_us * log / 4);
		ck_assert_double_le(cost.messages / n, SLACK * first.messages / 16 * log / 4);
		/* The opening reaches all in so many hops, records and values take as many each. */
		ck_assert_double_le(cost.round_us * 1000, 1.1 * 3 * log * LATENCY_NS);
		if (n == 1024) /* Of all ranks together. */
			ck_assert_double_le(cost.megabytes, 1536);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("scale");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_round_costs_a_logarithm);
	return check_main("scale", tc);
}
