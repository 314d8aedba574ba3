/* test_partial.c -- partial allreduces over the whole runtime: ranks as threads, and simulated. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/relaxed/partial.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/runtime/relaxed/rounds.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
#ifdef RB_HAVE_UCX
static const struct rb_transport_ops *const ucx[] = { &rb_transport_ucx, NULL };
#endif

static struct rounds world; /* Each test runs in a process of its own. */

static void threads_run(uint32_t n, const char *name)
{
	ck_assert_msg(local_run(n, shm, rounds_main, &world, NULL) == RUBATO_OK, "%s on %u threads",
		      name, n);
	rounds_check(&world, n, name);
}

static void simulated_run(rubato_sim_options *options, const char *name)
{
	rubato_sim_result result;

	world.simulated = true;
	ck_assert_msg(rubato_sim_run(options, rounds_main, &world, &result) == RUBATO_OK,
		      "%s on %u ranks, seed %llu: rank %u: %s", name, options->rank_count,
		      (unsigned long long)options->seed, result.failed_rank, rubato_error_text());
	rounds_check(&world, options->rank_count, name);
}

static void policy_set(uint32_t index, uint32_t n)
{
	world.options.policy = (rubato_policy)index;
	world.options.deadline_ns = 200000;
	world.options.group = (rubato_policy)index == RUBATO_POLICY_WAGMA && n % 2 == 0 ? n / 2 : 0;
}

START_TEST(every_policy_on_threads)
{
	for (uint32_t n = 1; n <= 4; n++) {
		if (test_is_threads_only() && (n + (uint32_t)_i) % 2 != 0)
			continue;
		rounds_init(&world);
		policy_set((uint32_t)_i, n);
		threads_run(n, rubato_policy_name((rubato_policy)_i));
		rounds_init(&world);
		policy_set((uint32_t)_i, n);
		world.options.rounds = RUBATO_ROUNDS_FREE;
		world.delay_ns = 300000;
		world.rotating = true;
		world.count = 20000; /* Merges without the lock. */
		threads_run(n, rubato_policy_name((rubato_policy)_i));
		rounds_init(&world);
		policy_set((uint32_t)_i, n);
		world.options.rounds = RUBATO_ROUNDS_FREE;
		world.options.wire = (rubato_wire)(1 + ((uint32_t)_i + n) % 2);
		world.floats = true;
		world.delay_ns = 200000;
		world.count = 40001;
		threads_run(n, rubato_policy_name((rubato_policy)_i));
	}
}
END_TEST

#ifdef RB_HAVE_UCX
START_TEST(every_policy_over_ucx)
{
	rounds_init(&world);
	policy_set((uint32_t)_i, 2);
	world.delay_ns = 1000000;
	ck_assert_msg(local_run(2, ucx, rounds_main, &world, NULL) == RUBATO_OK, "%s over UCX",
		      rubato_policy_name((rubato_policy)_i));
	rounds_check(&world, 2, rubato_policy_name((rubato_policy)_i));
}
END_TEST
#endif

/* Aligned and free, all late rules, all collections, on networks that reorder and on nodes. */
START_TEST(every_option_simulated)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	const uint64_t step = test_length() == TEST_SHORT ? 13 : 1;
	struct seeds seeds = seeds_from(__func__, 0, 108);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		char name[64];

		if (seed % step != 0 && !seeds_chosen())
			continue;
		rounds_init(&world);
		options.seed = seed + 1;
		options.rank_count = (uint32_t)(2 + seed % 7);
		options.reorder = seed % 2 == 0;
		options.jitter = 0.5;
		options.ranks_per_node = seed % 4 < 2 ? 0 : 4;
		policy_set((uint32_t)_i, options.rank_count);
		world.options.rounds = (rubato_rounds)(seed / 3 % 2);
		world.options.late = (rubato_late)(seed % 3);
		world.options.collection = (rubato_collection)(seed / 6 % 3);
		world.options.normalise = (rubato_normalise)(seed / 9 % 3);
		world.options.window_ns = seed % 5 == 0 ? 300000 : 0;
		world.options.depth = seed % 4 == 1 ? 2 : 0;
		world.options.full_every = seed % 7 == 3 ? 4 : 0;
		world.options.max_absence = seed % 6 == 5 ? 3 : 0;
		world.options.zeroed = seed % 2 == 1;
		world.options.seed = seed;
		world.options.members = seed % 12 > 8 ? RUBATO_MEMBERS_NODES : RUBATO_MEMBERS_RANKS;
		if (seed % 12 > 8) /* Nodes may be uneven. */
			world.options.group = 0;
		world.floats = seed % 3 == 1;
		if (world.floats)
			world.options.wire = (rubato_wire)(seed / 3 % 3);
		world.delay_ns = seed % 5 * 250000;
		world.rotating = seed % 2 == 1;
		world.eras = seed % 4 == 2 ? 3 : 1;
		world.leaving = seed % 9 == 4 && world.eras == 1;
		world.extra = world.options.rounds == RUBATO_ROUNDS_FREE ? 7 : 0;
		(void)snprintf(name, sizeof(name), "%s, seed %llu",
			       rubato_policy_name((rubato_policy)_i), (unsigned long long)seed);
		simulated_run(&options, name);
	}
}
END_TEST

/* ---- What it is for ---- */

/* A slow rank delays nobody: calls of the others take no time to speak of. */
START_TEST(solo_waits_for_nobody)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	options.rank_count = 8;
	options.seed = 1;
	rounds_init(&world);
	world.slow_rank = 5;
	world.delay_ns = 10000000;
	world.options.depth = 64;
	simulated_run(&options, "solo");
	for (uint32_t r = 0; r < 8; r++)
		ck_assert_uint_lt(world.in_steps_ns[r], 2000000);
	/* Whereas full rounds wait for it every time. */
	rounds_init(&world);
	world.slow_rank = 5;
	world.delay_ns = 10000000;
	world.options.full_every = 1;
	simulated_run(&options, "full");
	for (uint32_t r = 0; r < 8; r++)
		ck_assert(r == 5 || world.in_steps_ns[r] > 190000000);
	ck_assert_uint_ge(world.stats[0].full_rounds, 20);
}
END_TEST

/* Node 0, ranks 0 and 1, is as late as rank 1; it delays no other node, nor rank 0, whose
 * contributions wait for rank 1's. Where all ranks are one node, they wait for each other. */
START_TEST(a_late_node_delays_no_other)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	options.rank_count = 6;
	options.ranks_per_node = 2;
	options.seed = 1;
	rounds_init(&world);
	world.slow_rank = 1;
	world.delay_ns = 10000000;
	world.options.depth = 64;
	world.options.members = RUBATO_MEMBERS_NODES;
	simulated_run(&options, "solo of nodes");
	for (uint32_t r = 0; r < 6; r++)
		ck_assert_uint_lt(world.in_steps_ns[r], 2000000);
	ck_assert_uint_gt(world.stats[0].merged, 0);
	ck_assert_uint_eq(world.stats[2].merged, 0);
	ck_assert_uint_eq(world.seen[0].contributors, 4);
	rounds_init(&world);
	world.slow_rank = 1;
	world.delay_ns = 10000000;
	world.options.members = RUBATO_MEMBERS_NODES;
	options.ranks_per_node = 6;
	simulated_run(&options, "one node");
	for (uint32_t r = 0; r < 6; r++)
		ck_assert(r == 1 || world.in_steps_ns[r] > 190000000);
	ck_assert_uint_eq(world.seen[0].contributors, 6);
}
END_TEST

/* ---- What rounding loses is fed back ---- */

#define FED_COUNT 300
#define FED_STEPS 30

struct fed {
	rubato_wire wire;
	pthread_mutex_t lock;
	double in[FED_COUNT], out[FED_COUNT]; /* What was committed and came out, */
	double left[FED_COUNT];               /* and what the ranks have left of it. */
	uint64_t merged;
};

static void fed_commit(struct fed *f, float *buffer, uint32_t rank, uint32_t step)
{
	for (uint32_t i = 0; i < FED_COUNT; i++) {
		buffer[i] = (float)((rank * 7919 + step * 31 + i * 13) % 1999) - 1000.0f;
		(void)pthread_mutex_lock(&f->lock);
		f->in[i] += (double)buffer[i];
		(void)pthread_mutex_unlock(&f->lock);
	}
}

static rubato_status fed_collect(struct fed *f, rubato_comm *comm, rubato_partial *p)
{
	const void *result;

	for (;;) {
		RB_TRY(rubato_partial_collect_view(p, &result, NULL, RUBATO_TIMEOUT_DEFAULT));
		if (result == NULL)
			return RUBATO_OK;
		for (uint32_t i = 0; rubato_rank(comm) == 0 && i < FED_COUNT; i++)
			f->out[i] += (double)((const float *)result)[i];
		RB_TRY(rubato_partial_release(p));
	}
}

static void fed_left(struct fed *f, rubato_comm *comm, rubato_partial *p)
{
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	const struct rb_converted *c = &p->coded.reduction;

	rb_engine_enter(&comm->engine);
	(void)pthread_mutex_lock(&f->lock);
	for (uint32_t i = 0; i < FED_COUNT; i++)
		f->left[i] +=
			(double)c->residual[i] + (double)c->residual[c->residual_count / 2 + i];
	(void)pthread_mutex_unlock(&f->lock);
	rb_engine_leave(&comm->engine);
	ck_assert_int_eq(rubato_partial_get_stats(p, &stats), RUBATO_OK);
	if (rubato_rank(comm) == 2)
		f->merged = stats.merged;
}

/* Rank 2 is late, and commits three times as often: what waits is added up. */
static rubato_status fed_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm);
	struct fed *f = arg;
	rubato_partial *p;
	void *buffer;

	options.rounds = RUBATO_ROUNDS_FREE;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = 3;
	options.wire = f->wire;
	options.feedback = 1;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	RB_TRY(rubato_partial_create(comm, FED_COUNT, RUBATO_FLOAT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < FED_STEPS; step++) {
		for (uint32_t k = 0; k < (rank == 2 ? 3 : 1); k++) {
			RB_TRY(rubato_partial_acquire(p, &buffer));
			fed_commit(f, buffer, rank, 3 * step + k);
			RB_TRY(rubato_partial_commit(p, 3 * step + k, 1));
		}
		RB_TRY(fed_collect(f, comm, p));
	}
	RB_TRY(rubato_partial_drain(p));
	RB_TRY(fed_collect(f, comm, p));
	RB_TRY(rubato_barrier(comm));
	fed_left(f, comm, p);
	RB_TRY(rubato_barrier(comm));
	return rubato_partial_free(p);
}

/* Of bfloat16 to the last bit: all are whole numbers. */
START_TEST(what_is_fed_back_adds_up)
{
	struct fed *f = calloc(1, sizeof(*f));
	double most = 0;

	ck_assert(f != NULL);
	f->wire = (rubato_wire)_i;
	ck_assert_int_eq(pthread_mutex_init(&f->lock, NULL), 0);
	ck_assert_int_eq(local_run(3, shm, fed_main, f, NULL), RUBATO_OK);
	ck_assert_uint_gt(f->merged, 0);
	for (uint32_t i = 0; i < FED_COUNT; i++) {
		double lost = f->in[i] - f->out[i] - f->left[i];

		ck_assert_msg(_i == RUBATO_WIRE_INT8 ? lost < 0.1 && lost > -0.1 : lost == 0,
			      "element %u: %g in, %g out, %g left", i, f->in[i], f->out[i],
			      f->left[i]);
		most = f->left[i] > most ? f->left[i] : most;
	}
	ck_assert(most > 0 && most < 100);
	free(f);
}
END_TEST

/* What cannot be coded is refused, on all ranks; and so is what they do not say alike. */
static rubato_status wires_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm);
	rubato_partial *p;

	(void)arg;
	options.wire = RUBATO_WIRE_INT8;
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT32, RUBATO_MAX, &options, &p),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_ne(strstr(rubato_error_text(), "only sums and averages"), NULL);
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT64, RUBATO_SUM, &options, &p),
			 RUBATO_ERR_ARGUMENT);
	options.wire = (rubato_wire)(1 + rank);
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT32, RUBATO_SUM, &options, &p),
			 RUBATO_ERR_MISMATCH);
	ck_assert_ptr_ne(strstr(rubato_error_text(), "wire is"), NULL);
	options.wire = RUBATO_WIRE_SAME;
	options.members = (rubato_members)rank;
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT32, RUBATO_SUM, &options, &p),
			 RUBATO_ERR_MISMATCH);
	ck_assert_ptr_ne(strstr(rubato_error_text(), "members is"), NULL);
	options.members = RUBATO_MEMBERS_NODES; /* They share memory: one node. */
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = 2;
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT32, RUBATO_SUM, &options, &p),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_ne(strstr(rubato_error_text(), "quorum 2 of 1 nodes"), NULL);
	options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	options.size_bytes -= rank; /* The others hear of it: else they would meet its next one. */
	ck_assert_int_eq(rubato_partial_create(comm, 9, RUBATO_FLOAT32, RUBATO_SUM, &options, &p),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_ptr_ne(
		strstr(rubato_error_text(), rank == 1 ? "RUBATO_PARTIAL_OPTIONS_INIT" : "rank 1"),
		NULL);
	return RUBATO_OK;
}

START_TEST(options_are_compared)
{
	ck_assert_int_eq(local_run(2, shm, wires_main, NULL, NULL), RUBATO_OK);
}
END_TEST

struct bystander {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over;
};

/* Rank 1 does not call the library while rank 0 makes its rounds. */
static rubato_status bystander_main(rubato_comm *comm, void *arg)
{
	struct bystander *b = arg;
	rubato_partial *p;
	int64_t one[50] = { 1 }, sum[50];
	bool collected;

	RB_TRY(rubato_partial_create(comm, 50, RUBATO_INT64, RUBATO_SUM, NULL, &p));
	if (rubato_rank(comm) == 0) {
		for (uint64_t k = 0; k < 8; k++) {
			RB_TRY(rubato_partial_contribute(p, one, k, 1));
			RB_TRY(rubato_partial_collect(p, sum, &collected, NULL, 0));
			ck_assert(collected && sum[0] == 1);
		}
		(void)pthread_mutex_lock(&b->lock);
		b->over = true;
		(void)pthread_cond_signal(&b->changed);
		(void)pthread_mutex_unlock(&b->lock);
	} else {
		(void)pthread_mutex_lock(&b->lock);
		while (!b->over)
			(void)pthread_cond_wait(&b->changed, &b->lock);
		(void)pthread_mutex_unlock(&b->lock);
	}
	return rubato_partial_free(p);
}

START_TEST(rounds_go_on_without_calls)
{
	struct bystander b = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };

	ck_assert_int_eq(local_run(2, shm, bystander_main, &b, NULL), RUBATO_OK);
#ifdef RB_HAVE_UCX
	b.over = false;
	ck_assert_int_eq(local_run(2, ucx, bystander_main, &b, NULL), RUBATO_OK);
#endif
}
END_TEST

/* ---- Beside each other, and beside other collectives ---- */

#define BESIDE_MAX 8

static rubato_status beside_main(rubato_comm *comm, void *arg)
{
	uint32_t many = *(const uint32_t *)arg, me = rubato_rank(comm), n = rubato_size(comm);
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *p[BESIDE_MAX];
	int64_t vector[700], total[BESIDE_MAX] = { 0 };

	for (uint32_t i = 0; i < many; i++) {
		options.policy = (rubato_policy)(i % 5);
		options.full_every = i % 3;
		RB_TRY(rubato_partial_create(comm, 700, RUBATO_INT64, RUBATO_SUM, &options, &p[i]));
	}
	for (uint64_t step = 0; step <= 15; step++) {
		for (uint32_t k = 0; k < many; k++) { /* Every rank in its own order. */
			uint32_t i = (k * (me % 2 ? 1 : many - 1) + me + (uint32_t)step) % many;

			for (uint32_t e = 0; e < 700; e++)
				vector[e] = 1;
			if (step < 15)
				RB_TRY(rubato_partial_contribute(p[i], vector, step, 1));
			else
				RB_TRY(rubato_partial_drain(p[i]));
		}
		for (uint32_t k = 0; k < many; k++) {
			uint32_t i = (k + 2 * me) % many;
			bool more = true;

			while (more) {
				RB_TRY(rubato_partial_collect(p[i], vector, &more, NULL, 0));
				total[i] += more ? vector[699] : 0;
			}
		}
		if (step % 5 == 0)
			RB_TRY(rubato_allreduce(comm, vector, vector, 3, RUBATO_INT64, RUBATO_MAX));
	}
	for (uint32_t i = 0; i < many; i++) {
		if (total[i] != 15 * (int64_t)n)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u: %u gave %lld", me, i,
				       (long long)total[i]);
		RB_TRY(rubato_partial_free(p[i]));
	}
	return RUBATO_OK;
}

START_TEST(side_by_side_in_any_order)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	uint32_t many = (uint32_t)_i;

	options.rank_count = 6;
	ck_assert_int_eq(rubato_sim_run(&options, beside_main, &many, &result), RUBATO_OK);
	for (uint32_t n = 2; n <= 4; n++)
		ck_assert_int_eq(local_run(n, shm, beside_main, &many, NULL), RUBATO_OK);
}
END_TEST

/* ---- Full rounds are synchronous allreduces ---- */

/* Left to choose, a partial may take another algorithm than a call, which can go ahead: one that
 * adds in another order. */
struct synchronous {
	uint64_t count;
	const char *algorithm;
};

static rubato_status synchronous_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	const struct synchronous *what = arg;
	uint64_t count = what->count;
	float *in, *want; /* In memory as a partial's own. */
	rubato_partial *p;
	bool same = true;

	RB_TRY(rubato_set_algorithm(comm, "allreduce", what->algorithm));
	RB_TRY(rubato_alloc(comm, count * sizeof(*in), (void **)&in));
	RB_TRY(rubato_alloc(comm, count * sizeof(*want), (void **)&want));
	options.full_every = 1;
	RB_TRY(rubato_partial_create(comm, count, RUBATO_FLOAT32, RUBATO_AVG, &options, &p));
	for (uint32_t step = 0; step < 10 && same; step++) {
		const void *result;

		for (uint64_t i = 0; i < count; i++)
			in[i] = 1.0f /
				(float)(1 + (i * 7 + step * 31 + rubato_rank(comm) * 13) % 997);
		RB_TRY(rubato_partial_contribute(p, in, step, 1));
		RB_TRY(rubato_partial_collect_view(p, &result, NULL, 0));
		RB_TRY(rubato_allreduce(comm, in, want, count, RUBATO_FLOAT32, RUBATO_AVG));
		same = result != NULL && memcmp(result, want, count * sizeof(*want)) == 0;
		RB_TRY(rubato_partial_release(p));
	}
	RB_TRY(rubato_free(comm, in));
	RB_TRY(rubato_free(comm, want));
	RB_TRY(rubato_partial_free(p));
	return same ? RUBATO_OK : RB_FAIL(RUBATO_ERR_INTERNAL, "%s: other bits", what->algorithm);
}

START_TEST(full_rounds_equal_the_allreduce)
{
	static const char *const algorithms[] = { "flat",   "two_shot", "recursive_doubling",
						  "direct", "staged",   "ring" };

	for (uint64_t count = 1; count < 300000; count = count * 41 + 5)
		for (uint32_t n = 1; n <= 4; n++)
			for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
				struct synchronous what = { count, algorithms[a] };

				ck_assert_int_eq(local_run(n, shm, synchronous_main, &what, NULL),
						 RUBATO_OK);
			}
}
END_TEST

/* ---- Misuse, and unusual ends ---- */

static rubato_status misuse_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_round round = { .size_bytes = sizeof(round) };
	const void *result;
	rubato_partial *p;
	void *buffer;

	(void)arg;
	options.quorum = 1 + rubato_rank(comm);
	options.policy = RUBATO_POLICY_QUORUM;
	EXPECT(rubato_partial_create(comm, 5, RUBATO_INT32, RUBATO_SUM, &options, &p) ==
	       RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "quorum is ") != NULL);
	/* By messages here, in mapped memory there: neither would hear of the other. */
	if (rubato_rank(comm) == 1)
		RB_TRY(rubato_set_algorithm(comm, "allreduce", "flat"));
	options.quorum = 1;
	EXPECT(rubato_partial_create(comm, 100000, RUBATO_INT32, RUBATO_SUM, &options, &p) ==
	       RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "algorithm of allreduces is ") != NULL);
	EXPECT(strstr(rubato_error_text(), "flat on rank 1") != NULL);
	EXPECT(strstr(rubato_error_text(), "direct on rank ") != NULL);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "auto"));
	options.policy = rubato_rank(comm) == 1 ? RUBATO_POLICY_SOLO : RUBATO_POLICY_MAJORITY;
	EXPECT(rubato_partial_create(comm, 5, RUBATO_INT32, RUBATO_SUM, &options, &p) ==
	       RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "policy is ") != NULL);
	EXPECT(strstr(rubato_error_text(), "solo on rank 1") != NULL);
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = 17;
	EXPECT(rubato_partial_create(comm, 5, RUBATO_INT32, RUBATO_SUM, &options, &p) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "quorum 17") != NULL);
	options.quorum = 0;
	options.policy = RUBATO_POLICY_SOLO;
	RB_TRY(rubato_partial_create(comm, 5, RUBATO_INT32, RUBATO_MAX, &options, &p));
	EXPECT(rubato_partial_commit(p, 0, 1) == RUBATO_ERR_ARGUMENT); /* Nothing leased. */
	EXPECT(rubato_partial_release(p) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_partial_pending(p, &result, NULL) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_partial_acquire(p, &buffer));
	memset(buffer, 0, 20);
	RB_TRY(rubato_partial_commit(p, 3, 1));
	RB_TRY(rubato_partial_acquire(p, &buffer));
	memset(buffer, 0, 20);
	EXPECT(rubato_partial_commit(p, 3, 1) == RUBATO_ERR_ARGUMENT); /* Not larger. */
	RB_TRY(rubato_partial_collect_view(p, &result, &round, 0));
	EXPECT(result != NULL && *(const int32_t *)result == 0);
	EXPECT(rubato_partial_collect_view(p, &result, NULL, 0) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_partial_release(p));
	if (rubato_rank(comm) == 1) /* Once all have drained, a commit begins anew. */
		RB_TRY(rubato_barrier(comm));
	RB_TRY(rubato_partial_drain(p));
	if (rubato_rank(comm) == 0) {
		EXPECT(rubato_partial_commit(p, 4, 1) == RUBATO_ERR_ARGUMENT);
		EXPECT(rubato_partial_drain(p) == RUBATO_ERR_ARGUMENT);
		RB_TRY(rubato_barrier(comm));
	}
	return rubato_partial_free(p); /* Drains to the end. */
}

START_TEST(misuse_is_refused)
{
	ck_assert_int_eq(local_run(2, shm, misuse_main, NULL, NULL), RUBATO_OK);
}
END_TEST

static void *unmapped(struct rb_endpoint *ep, uint32_t peer, uint64_t word, uint64_t size_bytes)
{
	(void)ep, (void)peer, (void)word, (void)size_bytes;
	return NULL;
}

/* Rank 1 alone cannot map the others' memory. */
static rubato_status unmapped_main(rubato_comm *comm, void *arg)
{
	const struct rb_transport_ops *ops = comm->engine.endpoints[0]->ops;
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	struct rb_transport_ops lame = *ops;
	int64_t one = 1, sum = 0;
	rubato_partial *p;
	bool collected;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	lame.word_map = unmapped;
	local_transport_replace(comm, rubato_rank(comm) == 1 ? &lame : ops);
	EXPECT(rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, NULL, &p) ==
	       RUBATO_ERR_UNSUPPORTED);
	EXPECT(rubato_rank(comm) == 1 || strstr(rubato_error_text(), "rank 1 ") != NULL);
	local_transport_replace(comm, ops);
	options.full_every = 1;
	RB_TRY(rubato_partial_create(comm, 1, RUBATO_INT64, RUBATO_SUM, &options, &p));
	RB_TRY(rubato_partial_contribute(p, &one, 0, 1));
	RB_TRY(rubato_partial_collect(p, &sum, &collected, NULL, 0));
	EXPECT(collected && sum == 3);
	return rubato_partial_free(p);
}

/* The ranks agree by messages: how fast memory is here must not make them map each other's. */
START_TEST(creation_fails_everywhere_or_nowhere)
{
	ck_assert_int_eq(setenv("RUBATO_MEASURE", "0", 1), 0);
	ck_assert_int_eq(local_run(3, shm, unmapped_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* A message of a partial allreduce that nobody receives. */
static bool is_leftover(void *arg, uint32_t peer, struct rb_tag tag,
			const struct rb_signature *signature)
{
	const struct rb_tag *call = arg;

	(void)peer, (void)signature;
	return tag.call == call->call;
}

/* Operations come and go; no message of theirs may find them gone and stay. */
static rubato_status leftover_main(rubato_comm *comm, void *arg)
{
	struct rb_engine *engine = &comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	const uint64_t count = test_length() == TEST_SHORT ? 10 : 30;

	(void)arg;
	for (uint64_t number = 0; number < count; number++) {
		struct rb_tag tag = rb_tag(engine->epoch, RB_TAG_PROTOCOL, number, 0);
		int64_t vector[4] = { 1 };
		rubato_partial *p;

		RB_TRY(rubato_partial_create(comm, 4, RUBATO_INT64, RUBATO_SUM, NULL, &p));
		EXPECT(p->driver.number == number);
		for (uint64_t k = 0; k < 3;
		     k++) { /* Many open each round: more than enough is said. */
			bool more = true;

			RB_TRY(rubato_partial_contribute(p, vector, k, 1));
			while (more)
				RB_TRY(rubato_partial_collect(p, vector, &more, NULL, 0));
		}
		RB_TRY(rubato_partial_free(p));
		RB_TRY(rubato_barrier(comm));
		rb_engine_enter(engine);
		EXPECT(!ep->ops->unmatched(ep, is_leftover, &tag));
		rb_engine_leave(engine);
	}
	return RUBATO_OK;
}

START_TEST(nothing_is_left_of_what_was_freed)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	ck_assert_int_eq(local_run(4, shm, leftover_main, NULL, NULL), RUBATO_OK);
	options.rank_count = 7;
	options.jitter = 3;
	options.reorder = 1;
	for (options.seed = 1; options.seed <= 20; options.seed++)
		ck_assert_int_eq(rubato_sim_run(&options, leftover_main, NULL, &result), RUBATO_OK);
}
END_TEST

static rubato_status unfreed_main(rubato_comm *comm, void *arg)
{
	const bool *aborting = arg;
	int64_t vector[3000] = { 0 };
	rubato_partial *p;
	rubato_status err = RUBATO_OK;

	RB_TRY(rubato_partial_create(comm, 3000, RUBATO_INT64, RUBATO_SUM, NULL, &p));
	for (uint64_t k = 0; k < 20 && err == RUBATO_OK; k++) {
		bool more = true;

		err = rubato_partial_contribute(p, vector, k, 1);
		while (err == RUBATO_OK && more)
			err = rubato_partial_collect(p, vector, &more, NULL, 0);
		if (*aborting && rubato_rank(comm) == 1 && k == 10) {
			RB_TRY(rubato_abort(comm));
			EXPECT(rubato_partial_contribute(p, vector, 11, 1) == RUBATO_ERR_CANCELLED);
			EXPECT(rubato_partial_free(p) == RUBATO_ERR_CANCELLED);
			return RUBATO_OK;
		}
	}
	if (*aborting) {
		const void *result = NULL;

		while (err == RUBATO_OK) { /* The others' rounds have ended, too. */
			err = rubato_partial_drain(p);
			while (err == RUBATO_OK)
				err = rubato_partial_collect_view(p, &result, NULL, 0);
		}
		EXPECT(err == RUBATO_ERR_PEER);
		return RUBATO_OK;
	}
	return err;
}

START_TEST(finalize_and_abort_end_what_is_open)
{
	rubato_status status[3];
	bool aborting = false;

	ck_assert_int_eq(local_run(3, shm, unfreed_main, &aborting, NULL), RUBATO_OK);
	aborting = true;
	(void)!local_run(3, shm, unfreed_main, &aborting, status);
	ck_assert_int_eq(status[0], RUBATO_ERR_PEER); /* finalize's */
	ck_assert_int_eq(status[1], RUBATO_OK);
	ck_assert_int_eq(status[2], RUBATO_ERR_PEER);
}
END_TEST

/* ---- Losses ---- */

/* At any time, so in every phase; two crashes in half of the runs, the second during recovery. */
START_TEST(survivors_of_crashes_agree)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	uint32_t fired = 0, second = 0;

	const uint64_t step = test_length() == TEST_SHORT ? 13 : 1;
	struct seeds seeds = seeds_from(__func__, 0, 150);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		rubato_sim_fault faults[2] = {
			{ .kind = RUBATO_SIM_CRASH, .rank = (uint32_t)(seed % 3) },
			{ .kind = RUBATO_SIM_CRASH, .rank = 3 },
		};
		rubato_sim_result result;
		uint32_t survivors;
		char name[64];

		if (seed % step != 0 && !seeds_chosen())
			continue;
		rounds_init(&world);
		options.seed = seed + 1;
		options.rank_count = (uint32_t)(4 + seed % 5);
		options.ranks_per_node = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 4 : 16;
		options.jitter = 0.5;
		options.detect_ns = 1000 + seed % 7 * 20000;
		faults[0].at_ns = 20000 + seed * 7919 % 600000;
		faults[1].at_ns = faults[0].at_ns + options.detect_ns + seed % 11 * 3000;
		options.faults = faults;
		options.fault_count = 1 + seed % 2;
		policy_set((uint32_t)_i, options.rank_count);
		world.options.group = 0;
		world.options.deadline_ns = 20000;
		world.options.rounds = (rubato_rounds)(seed / 2 % 2);
		world.floats = seed % 3 == 2;
		if (world.floats)
			world.options.wire = (rubato_wire)(seed / 3 % 3);
		world.count = 1000;
		world.steps = 60;
		world.delay_ns = seed % 4 * 10000;
		world.rotating = true;
		world.victims = 1u << faults[0].rank | 1u << faults[1].rank;
		(void)snprintf(name, sizeof(name), "%s, seed %llu",
			       rubato_policy_name((rubato_policy)_i), (unsigned long long)seed);
		rubato_status err = rubato_sim_run(&options, rounds_main, &world, &result);

		survivors = rounds_check_survivors(&world, options.rank_count, name);
		if (err == RUBATO_OK || survivors == 0)
			continue; /* All had returned, or not begun. */
		ck_assert_msg(survivors == options.rank_count - 2,
			      "%s: %u of %u heard of %u crashes: rank %u: %s", name, survivors,
			      options.rank_count, result.faults_fired, result.failed_rank,
			      rubato_error_text());
		ck_assert_int_eq(result.first_error, RUBATO_ERR_PEER);
		fired++;
		second += result.faults_fired == 2;
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_ge(fired, 100 / step);
	ck_assert_uint_ge(second, 15 / step);
}
END_TEST

/* Rank 0 makes the job's id and hands it to the others through a pipe. */
static void process_main(struct rounds *w, uint32_t rank, uint32_t n, const int pipe_ends[2])
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	rubato_id id;

	options.transport = "shm";
	if (rank == 0 && rubato_id_create(&id) != RUBATO_OK)
		_exit(2);
	for (uint32_t r = 1; rank == 0 && r < n; r++)
		if (write(pipe_ends[1], &id, sizeof(id)) != (ssize_t)sizeof(id))
			_exit(2);
	if (rank != 0 && read(pipe_ends[0], &id, sizeof(id)) != (ssize_t)sizeof(id))
		_exit(2);
	if (rubato_init_id(&comm, &id, rank, n, &options) != RUBATO_OK)
		_exit(3);
	(void)rounds_main(comm, w);
	(void)rubato_finalize(comm);
	_exit(w->ended[rank] ? 0 : 4);
}

static void processes_run(struct rounds *w, uint32_t n)
{
	pid_t children[ROUNDS_RANKS_MAX];
	int pipe_ends[2];

	ck_assert_int_eq(pipe(pipe_ends), 0);
	(void)fflush(NULL);
	for (uint32_t r = 0; r < n; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			process_main(w, r, n, pipe_ends);
	}
	(void)close(pipe_ends[0]);
	(void)close(pipe_ends[1]);
	for (uint32_t r = 0; r < n; r++) {
		int status = 0;

		ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
		if ((w->victims & 1u << r) != 0)
			ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
				      "rank %u: status %x; %s", r, (unsigned)status, w->first);
	}
}

START_TEST(survivors_of_a_killed_process_agree)
{
	struct rounds *w =
		mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(w, MAP_FAILED);
	for (uint32_t i = 0; i < 6; i++) {
		rounds_init(w);
		w->count = i % 2 == 0 ? 200 : 100000;
		w->steps = 30;
		w->victims = 1u << i % 4;
		w->kill_step = 5 + 3 * i;
		w->options.full_every = i / 2 == 1 ? 1 : 0;
		w->options.policy = i / 2 == 2 ? RUBATO_POLICY_QUORUM : RUBATO_POLICY_SOLO;
		processes_run(w, 4);
		ck_assert_uint_eq(rounds_check_survivors(w, 4, "killed"), 3);
	}
	ck_assert_int_eq(munmap(w, sizeof(*w)), 0);
}
END_TEST

/* ---- Whom a round waits for ---- */

#define STUCK 1u /* Rank that does nothing for a while, its progress thread neither. */
#define STUCK_TIMEOUT_NS 300000000u

static void says(const char *what)
{
	ck_assert_msg(strstr(rubato_error_text(), what) != NULL, "%s", rubato_error_text());
}

static rubato_status stuck_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	const char *missing[] = { "exchanging", ": waits for rank 1", "open",
				  ": not ready: rank 1" };
	float gradient[4] = { 1, 2, 3, 4 }, sum[4];
	pthread_barrier_t *barrier = arg;
	rubato_partial *p;
	bool collected;

	for (uint32_t i = 0; i < 2; i++) {
		/* Where one rank opens the round, the other one's contribution may be late. */
		bool waits = rubato_rank(comm) == 0 || (i == 1 && rubato_rank(comm) != STUCK);

		options.policy = i == 0 ? RUBATO_POLICY_SOLO : RUBATO_POLICY_QUORUM;
		options.quorum = i == 0 ? 0 : 3;
		RB_TRY(rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_SUM, &options, &p));
		if (rubato_rank(comm) == STUCK)
			rb_engine_enter(&comm->engine);
		(void)pthread_barrier_wait(barrier);
		if (waits) {
			RB_TRY(rubato_partial_contribute(p, gradient, 0, 1));
			ck_assert_int_eq(
				rubato_partial_collect(p, sum, &collected, NULL, STUCK_TIMEOUT_NS),
				RUBATO_ERR_TIMEOUT);
			says(missing[2 * i]);
			says(missing[2 * i + 1]);
		}
		(void)pthread_barrier_wait(barrier);
		if (rubato_rank(comm) == STUCK) {
			rb_engine_leave(&comm->engine);
			RB_TRY(rubato_partial_contribute(p, gradient, 0, 1));
		}
		if (waits) {
			RB_TRY(rubato_partial_collect(p, sum, &collected, NULL, 0));
			ck_assert(collected);
		}
		RB_TRY(rubato_partial_free(p));
	}
	return RUBATO_OK;
}

START_TEST(a_round_that_waits_says_for_whom)
{
	pthread_barrier_t barrier;

	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
	ck_assert_int_eq(local_run(3, shm, stuck_main, &barrier, NULL), RUBATO_OK);
	(void)pthread_barrier_destroy(&barrier);
}
END_TEST

/* Of one rank each round begins and ends within a commit; the newest result needs no collect. */
START_TEST(commits_count_what_they_take)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	rubato_partial *p;
	rubato_comm *comm;
	float one = 1;

	options.collection = RUBATO_COLLECT_LATEST;
	ck_assert_int_eq(rubato_init(&comm, NULL), RUBATO_OK);
	ck_assert_int_eq(rubato_partial_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, &options, &p),
			 RUBATO_OK);
	for (uint64_t step = 0; step < 100; step++)
		ck_assert_int_eq(rubato_partial_contribute(p, &one, step, 1), RUBATO_OK);
	ck_assert_int_eq(rubato_partial_get_stats(p, &stats), RUBATO_OK);
	ck_assert_uint_ge(stats.rounds, 100);
	ck_assert_uint_gt(stats.call_ns, 0);
	ck_assert_int_eq(rubato_partial_free(p), RUBATO_OK);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("partial");
	TCase *threads = tcase_create("threads"), *simulated = tcase_create("simulated");

	tcase_set_timeout(threads, 240);
	tcase_add_loop_test(threads, every_policy_on_threads, 0, RUBATO_POLICY_COUNT);
#ifdef RB_HAVE_UCX
	tcase_add_loop_test(threads, every_policy_over_ucx, 0, RUBATO_POLICY_COUNT);
#endif
	tcase_add_loop_test(threads, what_is_fed_back_adds_up, 1, RUBATO_WIRE_COUNT);
	tcase_add_test(threads, options_are_compared);
	tcase_add_test(threads, rounds_go_on_without_calls);
	tcase_add_loop_test(threads, side_by_side_in_any_order, 1, BESIDE_MAX + 1);
	tcase_add_test(threads, full_rounds_equal_the_allreduce);
	tcase_add_test(threads, a_round_that_waits_says_for_whom);
	tcase_add_test(threads, misuse_is_refused);
	tcase_add_test(threads, commits_count_what_they_take);
	tcase_add_test(threads, creation_fails_everywhere_or_nowhere);
	tcase_add_test(threads, nothing_is_left_of_what_was_freed);
	tcase_add_test(threads, finalize_and_abort_end_what_is_open);
	tcase_add_test(threads, survivors_of_a_killed_process_agree);
	tcase_set_timeout(simulated, 240);
	tcase_add_loop_test(simulated, every_option_simulated, 0, RUBATO_POLICY_COUNT);
	tcase_add_test(simulated, solo_waits_for_nobody);
	tcase_add_test(simulated, a_late_node_delays_no_other);
	tcase_add_loop_test(simulated, survivors_of_crashes_agree, 0, RUBATO_POLICY_COUNT);
	suite_add_tcase(suite, threads);
	if (!test_is_threads_only())
		suite_add_tcase(suite, simulated);
	return check_suite(suite);
}
