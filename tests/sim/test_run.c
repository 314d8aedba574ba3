/* test_run.c -- whole programs in a simulated cluster, through the public functions alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "tests/check_main.h"

#define RANKS_MAX 64

struct notes {
	uint64_t word[RANKS_MAX];
	uint64_t count;
	uint32_t crashing; /* The rank that will not come through. */
};

/* ---- Right values, equal bits, the same again ---- */

/* Small integers: every order of summation is exact. */
static float value_of(uint32_t rank, uint64_t i)
{
	return (float)((rank * 31 + i * 7) % 101);
}

static rubato_status sums(rubato_comm *comm, void *arg)
{
	struct notes *notes = arg;
	uint32_t n = rubato_size(comm), me = rubato_rank(comm);
	float *in = malloc(5000 * sizeof(*in)), *out = malloc(5000 * sizeof(*out));
	rubato_status err = RUBATO_OK;

	ck_assert(in != NULL && out != NULL);
	for (uint64_t count = 1; count <= 5000 && err == RUBATO_OK; count = count * 3 + 1) {
		for (uint64_t i = 0; i < count; i++)
			in[i] = value_of(me, i);
		err = rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM);
		for (uint64_t i = 0; i < count && err == RUBATO_OK; i++) {
			float sum = 0;

			for (uint32_t r = 0; r < n; r++)
				sum += value_of(r, i);
			notes->count += out[i] != sum;
		}
		if (err == RUBATO_OK)
			err = rubato_barrier(comm);
	}
	free(in);
	free(out);
	notes->word[me] = rubato_now(comm);
	return err;
}

static rubato_status run(rubato_sim_options *options, rubato_sim_main program, struct notes *notes,
			 rubato_sim_result *result)
{
	memset(notes->word, 0, sizeof(notes->word));
	notes->count = 0;
	return rubato_sim_run(options, program, notes, result);
}

START_TEST(values_are_right_and_runs_repeat)
{
	static const uint32_t ranks[] = { 1, 2, 3, 5, 8, 13 };
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result first, second;
	struct notes a = { .count = 0 }, b = { .count = 0 };
	struct seeds seeds = seeds_from(__func__, 1, 6);

	options.rank_count = ranks[_i];
	options.jitter = 0.7;
	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		options.seed = seed;
		options.reorder = seed % 2 == 0;
		options.ranks_per_node = (uint32_t)seed % 3 * 2;
		ck_assert_msg(run(&options, sums, &a, &first) == RUBATO_OK, "seed %llu: %s",
			      (unsigned long long)seed, rubato_error_text());
		ck_assert_int_eq(run(&options, sums, &b, &second), RUBATO_OK);
		ck_assert_uint_eq(a.count, 0); /* Wrong elements. */
		ck_assert_uint_eq(first.trace_hash, second.trace_hash);
		ck_assert_uint_eq(first.events, second.events);
		ck_assert_mem_eq(a.word, b.word, sizeof(a.word));
		ck_assert_uint_eq(first.failed_rank, UINT32_MAX);
		options.seed = seed + 100;
		ck_assert_int_eq(run(&options, sums, &b, &second), RUBATO_OK);
		if (options.rank_count > 1)
			ck_assert_uint_ne(first.trace_hash, second.trace_hash);
	}
}
END_TEST

/* ---- Time ---- */

static rubato_status sleep_then_meet(rubato_comm *comm, void *arg)
{
	struct notes *notes = arg;
	uint64_t begin_ns = rubato_now(comm);

	rubato_sleep(comm, 1000000u * (rubato_rank(comm) + 1));
	ck_assert_uint_eq(rubato_now(comm) - begin_ns, 1000000u * (rubato_rank(comm) + 1));
	if (rubato_barrier(comm) != RUBATO_OK)
		return RUBATO_ERR_INTERNAL;
	notes->word[rubato_rank(comm)] = rubato_now(comm) - begin_ns;
	return RUBATO_OK;
}

START_TEST(a_barrier_waits_for_the_slowest)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	struct notes notes = { .count = 0 };

	options.rank_count = 6;
	ck_assert_int_eq(run(&options, sleep_then_meet, &notes, &result), RUBATO_OK);
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert_uint_ge(notes.word[i], 6000000);
		ck_assert_uint_lt(notes.word[i], 6200000);
	}
}
END_TEST

/* An operation that all but its start leave to the background goes on while ranks compute. */
static rubato_status reduce_behind_work(rubato_comm *comm, void *arg)
{
	struct notes *notes = arg;
	rubato_op *op;
	uint64_t begin_ns;
	float *data = calloc(100000, sizeof(*data));
	rubato_status err;

	ck_assert_ptr_nonnull(data);
	err = rubato_op_allreduce(comm, data, data, 100000, RUBATO_FLOAT32, RUBATO_SUM, &op);
	if (err == RUBATO_OK) {
		err = rubato_start(op);
		rubato_sleep(comm, 50000000);
		begin_ns = rubato_now(comm);
		if (err == RUBATO_OK)
			err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
		notes->word[rubato_rank(comm)] = rubato_now(comm) - begin_ns;
		rubato_op_free(op);
	}
	free(data);
	return err;
}

START_TEST(work_hides_communication)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	struct notes notes = { .count = 0 };

	options.rank_count = 7;
	ck_assert_int_eq(run(&options, reduce_behind_work, &notes, &result), RUBATO_OK);
	for (uint32_t i = 0; i < 7; i++)
		ck_assert_uint_eq(notes.word[i], 0);
}
END_TEST

/* ---- Faults ---- */

static rubato_status sums_until_trouble(rubato_comm *comm, void *arg)
{
	struct notes *notes = arg;
	uint64_t *held = malloc(4096 * sizeof(*held));
	void *mapped = NULL;
	rubato_status err = rubato_alloc(comm, 65536, &mapped);

	ck_assert_ptr_nonnull(held);
	memset(held, 0, 4096 * sizeof(*held));
	for (uint32_t i = 0; i < 100 && err == RUBATO_OK; i++) {
		err = rubato_allreduce(comm, held, held, 4096, RUBATO_INT64, RUBATO_SUM);
		if (err == RUBATO_OK)
			err = rubato_allreduce(comm, mapped, mapped, 8192, RUBATO_INT64,
					       RUBATO_MAX);
	}
	if (rubato_rank(comm) != notes->crashing)
		notes->count += err == RUBATO_ERR_PEER;
	notes->word[rubato_rank(comm)] = 1 + (uint64_t)-err;
	if (mapped != NULL)
		(void)rubato_free(comm, mapped);
	free(held);
	return err;
}

START_TEST(survivors_of_a_crash_get_the_error)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH, .rank = 2, .at_ns = 200000 };
	rubato_sim_result result;
	struct notes notes = { .crashing = 2 };

	options.rank_count = 6;
	options.faults = &fault;
	options.fault_count = 1;
	for (uint32_t per_node = 0; per_node <= 6; per_node += 3) {
		options.ranks_per_node = per_node;
		for (fault.at_ns = 100; fault.at_ns < 1000000; fault.at_ns *= 2) {
			rubato_status err = run(&options, sums_until_trouble, &notes, &result);

			if (result.faults_fired == 0)
				continue;
			ck_assert_msg(err == RUBATO_ERR_PEER, "%u a node, at %llu ns: %d: %s",
				      per_node, (unsigned long long)fault.at_ns, (int)err,
				      rubato_error_text());
			ck_assert_uint_lt(result.end_ns, 100000000);
			ck_assert_uint_eq(notes.count, 5);
			notes.word[63]++;
		}
	}
}
END_TEST

/* ---- One rank calls something else ---- */

struct odd {
	uint32_t rank, what;
	rubato_status status[RANKS_MAX];
	char text[RANKS_MAX][256];
};

#define ODD_COUNT 6000

/* Of the first four the messages meet, so that whoever gets one of the odd rank finds out. Of the
 * others they lie unmatched: ranks that sleep are asked what they wait for. */
static rubato_status call_of(rubato_comm *comm, uint32_t what, bool odd, float *in, float *out)
{
	switch (what) {
	case 0:
		return rubato_allreduce(comm, in, out, odd ? 9 : 8, RUBATO_FLOAT32, RUBATO_SUM);
	case 1:
		return rubato_allreduce(comm, in, out, ODD_COUNT, RUBATO_FLOAT32,
					odd ? RUBATO_MIN : RUBATO_MAX);
	case 2:
		return rubato_reduce(comm, in, out, 64, RUBATO_FLOAT32,
				     odd ? RUBATO_MAX : RUBATO_SUM, 0);
	case 3:
		return rubato_allgather(comm, in, out, odd ? 65 : 64, RUBATO_FLOAT32);
	case 4:
		return odd ? rubato_barrier(comm)
			   : rubato_allreduce(comm, in, out, 2, RUBATO_FLOAT32, RUBATO_SUM);
	default:
		return odd ? rubato_broadcast(comm, in, 2, RUBATO_FLOAT32, 0)
			   : rubato_barrier(comm);
	}
}

/* Each leaves as soon as it knows. */
static rubato_status one_is_odd(rubato_comm *comm, void *arg)
{
	struct odd *odd = arg;
	uint32_t me = rubato_rank(comm);
	float *in = calloc(ODD_COUNT, sizeof(*in)), *out = calloc(ODD_COUNT, sizeof(*out));
	rubato_status err = rubato_barrier(comm);

	ck_assert(in != NULL && out != NULL);
	if (err == RUBATO_OK)
		err = call_of(comm, odd->what, me == odd->rank, in, out);
	if (err == RUBATO_OK) /* Its part was through before anybody knew. */
		err = rubato_barrier(comm);
	odd->status[me] = err;
	(void)snprintf(odd->text[me], sizeof(odd->text[me]), "%s", rubato_error_text());
	free(in);
	free(out);
	return RUBATO_OK;
}

/*
 * Those who find out tell their neighbours, and go; whoever hears of it by way of others sees them
 * go first, and must still learn why.
 */
START_TEST(all_learn_that_one_called_something_else)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	char culprit[32];

	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct odd odd = { .what = (uint32_t)_i };

		options.seed = seed;
		options.rank_count = 2 + (uint32_t)(rb_mix(seed) % 15);
		options.jitter = 10;
		options.reorder = seed % 2 == 0;
		options.ranks_per_node = seed % 3 == 0 ? 3 : 0;
		odd.rank = (uint32_t)(rb_mix(seed + 77) % options.rank_count);
		(void)snprintf(culprit, sizeof(culprit), "rank %u", odd.rank);
		ck_assert_int_ne(rubato_sim_run(&options, one_is_odd, &odd, &result), RUBATO_OK);
		for (uint32_t r = 0; r < options.rank_count; r++)
			ck_assert_msg(odd.status[r] == RUBATO_ERR_MISMATCH &&
					      strstr(odd.text[r], culprit) != NULL,
				      "seed %llu, rank %u of %u, %s is odd: %s: %s",
				      (unsigned long long)seed, r, options.rank_count, culprit,
				      rubato_status_name(odd.status[r]), odd.text[r]);
	}
}
END_TEST

START_TEST(a_frozen_rank_delays_and_harms_nothing)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_fault faults[2] = {
		{ .kind = RUBATO_SIM_FREEZE, .rank = 2, .at_ns = 60000, .for_ns = 50000000 },
		{ .kind = RUBATO_SIM_CUT, .rank = 0, .peer = 1, .at_ns = 30000, .for_ns = 900000 },
	};
	rubato_sim_result result;
	struct notes notes = { .crashing = UINT32_MAX };

	options.rank_count = 6;
	options.faults = faults;
	options.fault_count = 2;
	ck_assert_int_eq(run(&options, sums_until_trouble, &notes, &result), RUBATO_OK);
	ck_assert_uint_eq(result.faults_fired, 2);
	ck_assert_uint_ge(result.end_ns, 50000000);
}
END_TEST

/* A rank that never comes: the others' deadline names it, in virtual time. */
static rubato_status one_stays_away(rubato_comm *comm, void *arg)
{
	(void)arg;
	if (rubato_rank(comm) == 1) {
		rubato_sleep(comm, 300000000000u);
		return RUBATO_OK;
	}
	return rubato_barrier(comm);
}

START_TEST(a_deadline_passes_in_virtual_time)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	struct notes notes = { .count = 0 };

	options.rank_count = 3;
	options.timeout_ns = 5000000000u;
	ck_assert_int_ne(run(&options, one_stays_away, &notes, &result), RUBATO_OK);
	ck_assert_int_eq(result.first_error, RUBATO_ERR_TIMEOUT);
	ck_assert_uint_ne(result.failed_rank, 1);
	ck_assert_uint_ge(result.end_ns, 300000000000u);
}
END_TEST

#define EXCHANGES 20

struct chances {
	bool early;             /* Begins with the second part. */
	uint64_t ns[EXCHANGES]; /* What each exchange of the second part took. */
};

static rubato_status exchanges(rubato_comm *comm, struct chances *c, bool noted)
{
	for (int i = 0; i < EXCHANGES; i++) {
		uint64_t before = rubato_now(comm);
		rubato_status err = rubato_barrier(comm);

		if (err)
			return err;
		if (noted && rubato_rank(comm) == 0)
			c->ns[i] = rubato_now(comm) - before;
	}
	return RUBATO_OK;
}

static rubato_status two_parts(rubato_comm *comm, void *arg)
{
	struct chances *c = arg;
	rubato_status err = c->early ? RUBATO_OK : exchanges(comm, c, false);

	if (err)
		return err;
	rubato_sleep(comm, 1000000000u - rubato_now(comm));
	rubato_sim_reseed(comm, 5);
	rubato_sleep(comm, 2000000000u + rubato_rank(comm) - rubato_now(comm));
	return exchanges(comm, c, true);
}

/* Whatever chance was drawn before; and by another seed, or number, it is another. */
START_TEST(chance_goes_on_from_a_mark)
{
	struct chances whole = { .early = false }, part = { .early = true },
		       other = { .early = true };
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 4;
	options.jitter = 0.9;
	ck_assert_int_eq(rubato_sim_run(&options, two_parts, &whole, &result), RUBATO_OK);
	ck_assert_int_eq(rubato_sim_run(&options, two_parts, &part, &result), RUBATO_OK);
	ck_assert_int_eq(memcmp(whole.ns, part.ns, sizeof(whole.ns)), 0);
	options.seed = 1;
	ck_assert_int_eq(rubato_sim_run(&options, two_parts, &other, &result), RUBATO_OK);
	ck_assert_int_ne(memcmp(part.ns, other.ns, sizeof(part.ns)), 0);
}
END_TEST

/* ---- Ahead of the exchange (RB_STEP_AHEAD) ---- */

#define BLOCK_BYTES 70000u
#define CALLS 3u
#define MEETING_NS (100u + 2 * 2 * 24) /* Both ends copy a record of 24 bytes. */

struct gathers {
	uint64_t block_bytes;
	uint64_t ns[2][CALLS]; /* That each call took. */
	uint64_t wrong;
};

static rubato_status gather_calls(rubato_comm *comm, void *arg)
{
	struct gathers *g = arg;
	uint32_t me = rubato_rank(comm);
	uint8_t *in = malloc(BLOCK_BYTES), *out = malloc(2 * BLOCK_BYTES);
	rubato_status err = rubato_set_algorithm(comm, "allgather", "staged");

	ck_assert(in != NULL && out != NULL);
	for (uint32_t i = 0; i < CALLS && err == RUBATO_OK; i++) {
		uint64_t begin_ns = rubato_now(comm);

		memset(in, (int)(10 * i + me + 1), g->block_bytes);
		err = rubato_allgather(comm, in, out, g->block_bytes, RUBATO_UINT8);
		g->ns[me][i] = rubato_now(comm) - begin_ns;
		for (uint64_t k = 0; k < 2 * g->block_bytes; k++)
			g->wrong += out[k] != 10 * i + k / g->block_bytes + 1;
	}
	free(in);
	free(out);
	return err;
}

/* Each copies its part into its slots, meets the other, and copies both parts out: a byte takes 2
 * ns. What does not go ahead meets twice, with what says that the slots are full. */
START_TEST(who_goes_ahead_pays_for_it_and_meets_once)
{
	static const uint64_t blocks[] = { 4, 10000, BLOCK_BYTES };
	static const uint64_t meetings[] = { 1, 1, 2 };
	struct gathers g = { .block_bytes = blocks[_i] }, again = g;
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result, empty, same;

	options.rank_count = options.ranks_per_node = 2;
	options.node_latency_ns = 100;
	options.costs.core_bandwidth = 1e9;
	ck_assert_int_eq(rubato_sim_run(&options, gather_calls, &g, &result), RUBATO_OK);
	ck_assert_int_eq(rubato_sim_run(&options, gather_calls, &again, &same), RUBATO_OK);
	ck_assert_uint_eq(result.trace_hash, same.trace_hash);
	again.block_bytes = 0;
	ck_assert_int_eq(rubato_sim_run(&options, gather_calls, &again, &empty), RUBATO_OK);
	ck_assert_uint_eq(g.wrong, 0);
	for (uint32_t i = 0; i < 2 * CALLS; i++)
		ck_assert_uint_eq(g.ns[i % 2][i / 2], MEETING_NS + 3 * 2 * blocks[_i]);
	ck_assert_uint_eq(result.messages - empty.messages, 2 * CALLS * (meetings[_i] - 1));
}
END_TEST

START_TEST(nonsense_is_refused)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	ck_assert_int_eq(rubato_sim_run(NULL, sums, NULL, &result), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_sim_run(&options, sums, NULL, &result), RUBATO_ERR_ARGUMENT);
	options.rank_count = 1;
	ck_assert_int_eq(rubato_sim_run(&options, NULL, NULL, &result), RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(rubato_sim_run(&options, sums, NULL, NULL), RUBATO_ERR_ARGUMENT);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("run");
	Suite *suite = suite_create("sim");

	tcase_add_loop_test(tc, values_are_right_and_runs_repeat, 0, 6);
	tcase_add_test(tc, a_barrier_waits_for_the_slowest);
	tcase_add_test(tc, work_hides_communication);
	tcase_add_test(tc, survivors_of_a_crash_get_the_error);
	tcase_add_loop_test(tc, all_learn_that_one_called_something_else, 0, 6);
	tcase_add_test(tc, a_frozen_rank_delays_and_harms_nothing);
	tcase_add_test(tc, a_deadline_passes_in_virtual_time);
	tcase_add_test(tc, chance_goes_on_from_a_mark);
	tcase_add_loop_test(tc, who_goes_ahead_pays_for_it_and_meets_once, 0, 3);
	tcase_add_test(tc, nonsense_is_refused);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
