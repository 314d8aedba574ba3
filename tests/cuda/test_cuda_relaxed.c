/*
 * test_cuda_relaxed.c -- partial and lagged allreduces of vectors in the memory of a CUDA device:
 * whoever waits for whom, what was contributed is what results hold; a buffer is its owner's again
 * when the call returns; and what happens when the driver fails. On the fake driver with delays
 * from a seed, or on a real one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/cuda/app.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/runtime/relaxed/rounds.h"
#include "tests/seeds.h"

static struct cuda_app app;
static struct rounds world; /* Each test runs in a process of its own. */

static void app_open(uint64_t seed)
{
	cuda_app_begin(&app, seed);
}

static void app_close(void)
{
	cuda_app_end(&app);
}

static rubato_status ranks_run(uint32_t ranks, local_main body, void *arg)
{
	return cuda_app_ranks(&app, "shm", ranks, body, arg);
}

/* ---- Partial ---- */

static void world_draw(struct rb_rng *rng, uint32_t n)
{
	/* The last two take several pieces (device_copy.c). */
	static const uint64_t counts[] = { 1, 100, 8191, 70001, 200003 };
	rubato_partial_options *o;

	rounds_init(&world);
	o = &world.options;
	o->policy = (rubato_policy)rb_rng_below(rng, RUBATO_POLICY_COUNT);
	o->deadline_ns = 200000;
	o->group = o->policy == RUBATO_POLICY_WAGMA && n % 2 == 0 ? n / 2 : 0;
	o->rounds = (rubato_rounds)rb_rng_below(rng, 2);
	o->late = (rubato_late)rb_rng_below(rng, 3);
	o->collection = (rubato_collection)rb_rng_below(rng, 3);
	o->normalise = (rubato_normalise)rb_rng_below(rng, 3);
	o->depth = rb_rng_below(rng, 2) ? 2 : 0;
	o->zeroed = (uint32_t)rb_rng_below(rng, 2);
	world.floats = rb_rng_below(rng, 2);
	if (world.floats && n > 1)
		o->wire = (rubato_wire)rb_rng_below(rng, RUBATO_WIRE_COUNT);
	world.count = counts[rb_rng_below(rng, 5)];
	world.steps = 8;
	world.delay_ns = rb_rng_below(rng, 2) ? 1000000 : 0;
	world.rotating = true;
	world.eras = 1 + (uint32_t)rb_rng_below(rng, 2);
	world.memory = cuda_app_memory(&app);
}

/* `there`: buffers are the device's, too. */
static void rounds_run(const char *test, bool there)
{
	uint64_t times = test_length() == TEST_SHORT ? 3 : test_length() == TEST_NORMAL ? 15 : 2000;
	struct seeds seeds = seeds_from(test, 1, times);
	uint64_t launches = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_rng rng = { seed };
		uint64_t draw = rb_rng_below(&rng, 4);
		struct fake_cuda_counts counts = { .host_copies = UINT64_MAX };
		char name[64];
		uint32_t n;

		app_open(seed);
		n = cuda_app_ranks_drawn(&app, draw);
		world_draw(&rng, n);
		world.there = there;
		(void)snprintf(name, sizeof(name), "seed %llu: %s", (unsigned long long)seed,
			       rubato_policy_name(world.options.policy));
		ck_assert_msg(ranks_run(n, rounds_main, &world) == RUBATO_OK, "%s: %s", name,
			      rubato_error_text());
		if (app.fake_counts != NULL)
			counts = app.fake_counts();
		app_close();
		rounds_check(&world, n, name);
		ck_assert_uint_ge(counts.host_copies, there ? 1 : 4 * n * world.steps);
		launches += counts.launches;
	}
	ck_assert_msg(!there || app.fake_counts == NULL || launches >= times || seeds_chosen(),
		      "%llu kernels", (unsigned long long)launches);
}

START_TEST(rounds_hold_what_devices_held)
{
	rounds_run(__func__, false);
}
END_TEST

START_TEST(rounds_are_the_devices)
{
	rounds_run(__func__, true);
}
END_TEST

#define NEAR_COUNT 300000u

/* Contributions of the device's, to rounds of the device's, whose results stay there: nothing goes
 * by way of the host, and rank 0's second commit is added to the first by a kernel. */
static rubato_status near_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	size_t bytes = NEAR_COUNT * sizeof(float);
	float *here = malloc(bytes), *there = cuda_app_alloc(&app, bytes);
	struct fake_cuda_counts before = { 0 }, after = { 0 };
	rubato_round round = { .size_bytes = sizeof(round) };
	bool some = true;
	void *leased;
	rubato_partial *p;

	(void)arg;
	EXPECT(here != NULL);
	options.rounds = RUBATO_ROUNDS_FREE;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = n;
	options.zeroed = 1;
	RB_TRY(rubato_cuda_partial_create(comm, NEAR_COUNT, RUBATO_FLOAT32, RUBATO_MAX, &options,
					  &p));
	RB_TRY(rubato_partial_acquire(p, &leased));
	cuda_app_copy(&app, here, leased, bytes);
	for (uint32_t i = 0; i < NEAR_COUNT; i++)
		EXPECT(here[i] == -INFINITY);
	for (uint32_t i = 0; i < NEAR_COUNT; i++)
		here[i] = (float)((rank + 1) * i);
	cuda_app_copy(&app, there, here, bytes);
	RB_TRY(rubato_barrier(comm));
	if (app.fake_counts != NULL)
		before = app.fake_counts();
	RB_TRY(rubato_barrier(comm));
	RB_TRY(rubato_partial_contribute(p, there, 0, 1));
	RB_TRY(rubato_partial_collect(p, there, &some, &round, 0));
	EXPECT(some && round.contributors == n);
	RB_TRY(rubato_barrier(comm));
	if (app.fake_counts != NULL)
		after = app.fake_counts();
	RB_TRY(rubato_barrier(comm));
	EXPECT(after.host_copies == before.host_copies);
	EXPECT(app.fake_counts == NULL || after.launches >= before.launches + n);
	cuda_app_copy(&app, here, there, bytes);
	for (uint32_t i = 0; i < NEAR_COUNT; i++)
		EXPECT(here[i] == (float)(n * i));
	RB_TRY(rubato_partial_free(p));
	free(here);
	cuda_app_free(&app, there);
	return RUBATO_OK;
}

START_TEST(rounds_pass_no_host_memory)
{
	app_open(23);
	ck_assert_msg(ranks_run(3, near_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

#define CODED_COUNT 70001u
#define CODED_STEPS 6u

struct coded {
	rubato_wire wire;
	bool feedback;
	const char *algorithm;
};

static rubato_status coded_commit(rubato_partial *p, struct rb_rng *rng, float *values,
				  uint64_t step)
{
	void *leased;

	for (uint32_t i = 0; i < CODED_COUNT; i++)
		values[i] = (float)rb_rng_below(rng, 100000) * 0.0137f - 500;
	RB_TRY(rubato_partial_acquire(p, &leased));
	cuda_app_copy(&app, leased, values, CODED_COUNT * sizeof(float));
	return rubato_partial_commit(p, step, 1);
}

/* Rounds that all ranks are in, rank 0 with two commits that were added up. */
static rubato_status coded_rounds(rubato_comm *comm, const struct coded *coded, bool there,
				  float *values, float *results)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	rubato_round round = { .size_bytes = sizeof(round) };
	struct rb_rng rng = { rank + 1 };
	rubato_partial *p;

	options.rounds = RUBATO_ROUNDS_FREE;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = n;
	options.zeroed = 1;
	options.wire = coded->wire;
	options.feedback = coded->feedback;
	RB_TRY((there ? rubato_cuda_partial_create : rubato_partial_create)(
		comm, CODED_COUNT, RUBATO_FLOAT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < CODED_STEPS; step++) {
		const void *result;

		if (rank == 0) {
			RB_TRY(coded_commit(p, &rng, values, 2 * step));
			RB_TRY(coded_commit(p, &rng, values, 2 * step + 1));
		}
		RB_TRY(rubato_barrier(comm));
		if (rank > 0)
			RB_TRY(coded_commit(p, &rng, values, 2 * step + 1));
		RB_TRY(rubato_partial_collect_view(p, &result, &round, RUBATO_TIMEOUT_DEFAULT));
		EXPECT(result != NULL && round.weight == n + 1);
		cuda_app_copy(&app, results + (size_t)step * CODED_COUNT, result,
			      CODED_COUNT * sizeof(float));
		RB_TRY(rubato_partial_release(p));
	}
	return rubato_partial_free(p);
}

/* In host memory, then on the device: the same bits, whatever rounding has left from the rounds
 * before. */
static rubato_status coded_main(rubato_comm *comm, void *arg)
{
	size_t all = (size_t)CODED_STEPS * CODED_COUNT;
	float *results[] = { malloc(all * 4), malloc(all * 4) }, *values = malloc(all * 4);
	const struct coded *coded = arg;
	struct fake_cuda_counts before = { 0 }, after = { 0 };

	RB_TRY(rubato_set_algorithm(comm, "allreduce", coded->algorithm));
	EXPECT(values != NULL && results[0] != NULL && results[1] != NULL);
	RB_TRY(coded_rounds(comm, coded, false, values, results[0]));
	if (app.fake_counts != NULL)
		before = app.fake_counts();
	RB_TRY(coded_rounds(comm, coded, true, values, results[1]));
	if (app.fake_counts != NULL)
		after = app.fake_counts();
	/* Coded, decoded, each time. */
	EXPECT(app.fake_counts == NULL || after.launches >= before.launches + 2 * CODED_STEPS);
	EXPECT(memcmp(results[0], results[1], all * 4) == 0);
	free(values);
	free(results[0]);
	free(results[1]);
	return RUBATO_OK;
}

START_TEST(rounds_in_fewer_bits_are_the_hosts)
{
	/* In peers' buffers, and by messages, in several chunks. */
	static const char *const algorithms[] = { "auto", "two_shot" };

	/* Short: any two of the three choices in each way. */
	for (uint32_t i = 0; i < 8; i++) {
		if (test_length() == TEST_SHORT && (i + i / 2 + i / 4) % 2 != 0)
			continue;
		struct coded coded = { i % 2 ? RUBATO_WIRE_INT8 : RUBATO_WIRE_BFLOAT16, i / 2 % 2,
				       algorithms[i / 4] };

		app_open(31 + i);
		ck_assert_msg(ranks_run(3, coded_main, &coded) == RUBATO_OK, "%u: %s", i,
			      rubato_error_text());
		app_close();
	}
}
END_TEST

/* More operands than the kernels for few take. */
START_TEST(rounds_of_nine_ranks_are_the_hosts)
{
	struct coded coded = { _i ? RUBATO_WIRE_INT8 : RUBATO_WIRE_BFLOAT16, true, "direct" };

	app_open(41);
	ck_assert_msg(ranks_run(9, coded_main, &coded) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

/* What is not to be had, and what ranks must have alike. */
static rubato_status differing_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm);
	rubato_partial *p;

	(void)arg;
	EXPECT((rank == 0 ? rubato_cuda_partial_create
			  : rubato_partial_create)(comm, 1000, RUBATO_FLOAT32, RUBATO_SUM, &options,
						   &p) == RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "partial: device is ") != NULL);
	return RUBATO_OK;
}

/* Some rank's driver has no more memory: no rank has it then, and the next one succeeds. */
static rubato_status lacking_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_control control = { .fail_at = 1, .fail_with = CUDA_ERROR_OUT_OF_MEMORY };
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint64_t failed = app.fake_counts().failed;
	rubato_partial *p;

	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", (const char *)arg);
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 1)
		app.fake_control(&control);
	RB_TRY(rubato_barrier(comm));
	EXPECT(rubato_cuda_partial_create(comm, 70001, RUBATO_FLOAT32, RUBATO_MAX, &options, &p) ==
	       RUBATO_ERR_MEMORY);
	EXPECT(strstr(rubato_error_text(), "CUDA_ERROR_OUT_OF_MEMORY") != NULL ||
	       strstr(rubato_error_text(), " could not make it: memory") != NULL);
	RB_TRY(rubato_barrier(comm));
	EXPECT(app.fake_counts().failed == failed + 1);
	RB_TRY(rubato_cuda_partial_create(comm, 70001, RUBATO_FLOAT32, RUBATO_MAX, &options, &p));
	return rubato_partial_free(p);
}

START_TEST(creation_fails_everywhere_or_nowhere)
{
	static const char *const calls[] = { "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyAsync" };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		app_open(0);
		if (app.fake_control != NULL)
			ck_assert_msg(ranks_run(2, lacking_main, (void *)(uintptr_t)calls[i]) ==
					      RUBATO_OK,
				      "%s: %s", calls[i], rubato_error_text());
		app_close();
	}
}
END_TEST

/* A device that fails in a round, or in a call, ends it for all. */
static rubato_status broken_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_control control = *(const struct fake_cuda_control *)arg;
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	void *there = cuda_app_alloc(&app, 4 * 70000);
	rubato_status err = RUBATO_OK;
	rubato_partial *p;
	bool some;

	RB_TRY(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	options.rounds = RUBATO_ROUNDS_FREE;
	options.zeroed = 1;
	RB_TRY(rubato_cuda_partial_create(comm, 70000, RUBATO_UINT32, RUBATO_SUM, &options, &p));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		app.fake_control(&control);
	for (uint64_t step = 0; err == RUBATO_OK && step < 200; step++) {
		void *leased;

		err = rubato_partial_acquire(p, &leased);
		if (err == RUBATO_OK)
			err = step % 2 ? rubato_partial_commit(p, step, 1)
				       : rubato_partial_contribute(p, there, step, 1);
		some = true;
		while (err == RUBATO_OK && some)
			err = rubato_partial_collect(p, there, &some, NULL, 0);
	}
	EXPECT(err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_PEER);
	EXPECT(strstr(rubato_error_text(), "CUDA_ERROR_LAUNCH_FAILED") != NULL ||
	       err == RUBATO_ERR_PEER);
	(void)rubato_partial_free(p);
	(void)app.driver.p_cuMemFree((CUdeviceptr)(uintptr_t)there);
	return RUBATO_OK;
}

static rubato_status broken_entered(rubato_comm *comm, void *arg)
{
	rubato_status err;

	cuda_app_enter(&app);
	err = broken_main(comm, arg);
	(void)rubato_finalize(comm);
	return err;
}

START_TEST(a_device_that_fails_ends_its_rounds)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	static const char *const calls[] = { "cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord",
					     "cuEventQuery" };

	app_open(0);
	ck_assert_msg(ranks_run(2, differing_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
	for (uint32_t i = 0; i < 16; i++) {
		struct fake_cuda_control control = { .seed = i + 1,
						     .delay_us_max = 50,
						     .fail_at = 1 + i * 7 % 60,
						     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
		rubato_status status[2];

		(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", calls[i % 4]);
		app_open(i);
		if (app.fake_control == NULL) {
			cuda_app_close(&app);
			return;
		}
		ck_assert_msg(
			local_run_raw(2, transports, broken_entered, &control, status) == RUBATO_OK,
			"%s, call %u: %s", control.fail_call, control.fail_at, rubato_error_text());
		ck_assert_msg(app.fake_counts().failed > 0, "%s, call %u: failed %llu",
			      control.fail_call, control.fail_at,
			      (unsigned long long)app.fake_counts().failed);
		app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
		cuda_app_close(&app);
	}
}
END_TEST

/* ---- Lagged ---- */

#define LAGGED_COUNT 150001u /* Of float32 two pieces, and a part of one. */
#define BEGINS 6u

static float gradient_of(uint32_t rank, uint32_t step, uint32_t part, uint32_t i)
{
	return (float)((rank * 31 + step * 7 + part * 5 + i) % 97);
}

static rubato_status lagged_main(rubato_comm *comm, void *arg)
{
	size_t bytes = LAGGED_COUNT * sizeof(float);
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	float *host = malloc(bytes), *there = cuda_app_alloc(&app, bytes);
	const void *result;
	uint64_t weight;
	rubato_lagged *l;

	(void)arg;
	EXPECT(host != NULL);
	RB_TRY(rubato_lagged_create(comm, LAGGED_COUNT, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	for (uint32_t step = 0, seen = 0; seen < BEGINS; step++) {
		for (uint32_t part = 0; step < BEGINS && part < 3; part++) {
			for (uint32_t i = 0; i < LAGGED_COUNT; i++)
				host[i] = gradient_of(rank, step, part, i);
			cuda_app_copy(&app, there, host, bytes);
			/* One of three comes from the host. */
			RB_TRY(rubato_lagged_accumulate(l, part == step % 3 ? host : there, 1));
			memset(host, 0x5a, bytes);
			cuda_app_copy(&app, there, host, bytes);
		}
		if (step < BEGINS)
			RB_TRY(rubato_lagged_begin(l));
		if (step < BEGINS)
			RB_TRY(rubato_lagged_collect(l, &result, &weight, 0));
		else
			RB_TRY(rubato_lagged_flush(l, &result, &weight, 0));
		if (result == NULL)
			continue;
		EXPECT(weight == 3 * n);
		for (uint32_t i = 0; i < LAGGED_COUNT; i++) {
			float want = 0;

			for (uint32_t r = 0; r < n; r++)
				for (uint32_t part = 0; part < 3; part++)
					want += gradient_of(r, seen, part, i);
			EXPECT(((const float *)result)[i] == want);
		}
		seen++;
	}
	free(host);
	cuda_app_free(&app, there);
	return rubato_lagged_free(l);
}

START_TEST(gradients_of_devices_are_accumulated)
{
	app_open(9);
	ck_assert_msg(ranks_run(3, lagged_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

/* One whose vectors lie on the host beside one whose lie on the device (but on rank 0, if `host`):
 * the same gradients, from either side, give the same bits, averages and weights. */
static rubato_status twins_main(rubato_comm *comm, void *arg)
{
	size_t bytes = LAGGED_COUNT * sizeof(float);
	uint32_t rank = rubato_rank(comm);
	bool host = *(const bool *)arg && rank == 0;
	float *here = malloc(bytes), *seen = malloc(bytes), *there = cuda_app_alloc(&app, bytes);
	struct rb_rng rng = { rank + 1 };
	rubato_lagged *twins[2];
	void *buffer;

	EXPECT(here != NULL && seen != NULL);
	RB_TRY(rubato_lagged_create(comm, LAGGED_COUNT, RUBATO_FLOAT32, RUBATO_AVG, 1, &twins[0]));
	RB_TRY((host ? rubato_lagged_create : rubato_cuda_lagged_create)(
		comm, LAGGED_COUNT, RUBATO_FLOAT32, RUBATO_AVG, 1, &twins[1]));
	for (uint32_t step = 0; step < BEGINS; step++) {
		const void *results[2];
		uint64_t weights[2];

		for (uint32_t part = 0; part < (rank + step) % 4; part++) {
			const float *from = part == step % 3 ? here : there;

			for (uint32_t i = 0; i < LAGGED_COUNT; i++)
				here[i] = (float)rb_rng_below(&rng, 100000) * 0.0137f;
			cuda_app_copy(&app, there, here, bytes);
			for (uint32_t t = 0; t < 2; t++)
				RB_TRY(rubato_lagged_accumulate(twins[t], from, part + 1));
		}
		for (uint32_t t = 0; step == 2 && t < 2; t++) { /* Added to by hand. */
			RB_TRY(rubato_lagged_acquire(twins[t], &buffer));
			cuda_app_copy(&app, buffer, here, bytes);
		}
		for (uint32_t t = 0; t < 2; t++)
			RB_TRY(rubato_lagged_begin(twins[t]));
		for (uint32_t t = 0; t < 2; t++)
			RB_TRY(rubato_lagged_collect(twins[t], &results[t], &weights[t],
						     RUBATO_TIMEOUT_DEFAULT));
		EXPECT((results[0] == NULL) == (step < 1) && (results[1] == NULL) == (step < 1));
		if (step < 1)
			continue;
		EXPECT(weights[0] == weights[1]);
		cuda_app_copy(&app, seen, results[1], bytes);
		EXPECT(memcmp(seen, results[0], bytes) == 0);
	}
	RB_TRY(rubato_lagged_free(twins[0]));
	RB_TRY(rubato_lagged_free(twins[1]));
	free(here);
	free(seen);
	cuda_app_free(&app, there);
	return RUBATO_OK;
}

START_TEST(lagged_vectors_lie_on_the_device)
{
	for (int i = 0; i < 2; i++) {
		bool host = i == 1;

		app_open(21);
		ck_assert_msg(ranks_run(3, twins_main, &host) == RUBATO_OK, "%s",
			      rubato_error_text());
		if (app.fake_counts != NULL)
			ck_assert_uint_gt(app.fake_counts().launches, 2 * BEGINS);
		app_close();
	}
}
END_TEST

/* What is acquired is zeros, and none of them come from the host. */
static rubato_status acquiring_main(rubato_comm *comm, void *arg)
{
	size_t bytes = LAGGED_COUNT * sizeof(float);
	float *seen = malloc(bytes);
	struct fake_cuda_control control = { .fail_call = "cuMemsetD8Async",
					     .fail_at = 1,
					     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	rubato_lagged *l;
	void *buffer;

	(void)arg;
	EXPECT(seen != NULL);
	RB_TRY(rubato_cuda_lagged_create(comm, LAGGED_COUNT, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	for (uint32_t turn = 0; turn < 4; turn++) {
		uint64_t copies = app.fake_counts != NULL ? app.fake_counts().host_copies : 0;

		RB_TRY(rubato_lagged_acquire(l, &buffer));
		EXPECT(app.fake_counts == NULL || app.fake_counts().host_copies == copies);
		cuda_app_copy(&app, seen, buffer, bytes);
		for (uint32_t i = 0; i < LAGGED_COUNT; i++)
			EXPECT(seen[i] == 0);
		memset(seen, 0x5a, bytes);
		cuda_app_copy(&app, buffer, seen, bytes);
		RB_TRY(rubato_lagged_begin(l));
		RB_TRY(rubato_lagged_flush(l, (const void **)&buffer, NULL, 0));
	}
	if (app.fake_control != NULL) {
		app.fake_control(&control);
		EXPECT(rubato_lagged_acquire(l, &buffer) == RUBATO_ERR_SYSTEM);
		EXPECT(strstr(rubato_error_text(), "lagged acquire") != NULL &&
		       strstr(rubato_error_text(), "cuMemsetD8Async") != NULL);
		EXPECT(app.fake_counts().failed == 1);
	}
	free(seen);
	(void)rubato_lagged_free(l);
	return RUBATO_OK;
}

START_TEST(acquired_vectors_are_zeroed_there)
{
	app_open(22);
	ck_assert_msg(ranks_run(1, acquiring_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

static rubato_status unlucky_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_control control = { .fail_call = "cuLaunchKernel",
					     .fail_at = 1,
					     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	void *there = cuda_app_alloc(&app, 4000);
	rubato_lagged *l;

	(void)arg;
	EXPECT(rubato_cuda_lagged_create(comm, 1000, RUBATO_INT32, RUBATO_SUM, 1, &l) ==
	       RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_cuda_lagged_create(comm, 1000, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	RB_TRY(rubato_lagged_accumulate(l, there, 1));
	if (app.fake_control != NULL) {
		app.fake_control(&control);
		EXPECT(rubato_lagged_accumulate(l, there, 1) == RUBATO_ERR_SYSTEM);
		EXPECT(strstr(rubato_error_text(), "lagged accumulate") != NULL &&
		       strstr(rubato_error_text(), "cuLaunchKernel") != NULL);
		EXPECT(app.fake_counts().failed == 1);
	}
	(void)rubato_lagged_free(l);
	cuda_app_free(&app, there);
	return RUBATO_OK;
}

static rubato_status bare_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *l;

	(void)arg;
	EXPECT(rubato_cuda_lagged_create(comm, 1000, RUBATO_FLOAT32, RUBATO_SUM, 1, &l) ==
	       RUBATO_ERR_UNSUPPORTED);
	EXPECT(strstr(rubato_error_text(), "no CUDA device: rubato_cuda_use") != NULL);
	return RUBATO_OK;
}

START_TEST(lagged_on_a_device_says_why_not)
{
	const struct rb_transport_ops *transports[] = { local_transport("shm"), NULL };
	rubato_status status[2];

	app_open(0);
	ck_assert_msg(ranks_run(1, unlucky_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_msg(local_run(2, transports, bare_main, NULL, status) == RUBATO_OK, "%s",
		      rubato_error_text());
	app_close();
}
END_TEST

/* ---- When the driver fails ---- */

#define WORDS 100000u

/* A call that fails takes nothing with it: the next one, of the host's memory, succeeds. */
static rubato_status failing_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_control control = *(const struct fake_cuda_control *)arg;
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm);
	uint32_t *there = cuda_app_alloc(&app, WORDS * 4), *host = calloc(WORDS, 4);
	rubato_status err = RUBATO_OK;
	rubato_partial *p;
	bool some = true;

	EXPECT(host != NULL);
	RB_TRY(rubato_partial_create(comm, WORDS, RUBATO_UINT32, RUBATO_SUM, &options, &p));
	RB_TRY(rubato_barrier(comm));
	if (rank == 0)
		app.fake_control(&control);
	RB_TRY(rubato_barrier(comm));
	for (uint64_t step = 0; step < 8; step++) {
		for (uint32_t i = 0; i < WORDS; i++)
			host[i] = 1;
		err = rubato_partial_contribute(p, there, step, 1);
		if (err != RUBATO_OK) {
			EXPECT(err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_MEMORY);
			EXPECT(strstr(rubato_error_text(), "CUDA_ERROR_") ||
			       strstr(rubato_error_text(), "partial contribute: "));
			/* A lost device's memory is not told from the host's any more. */
			if (err == RUBATO_ERR_SYSTEM)
				break;
			RB_TRY(rubato_partial_contribute(p, host, step, 1));
		}
		some = true;
		while (err == RUBATO_OK && some)
			err = rubato_partial_collect(p, there, &some, NULL, 0);
		EXPECT(err == RUBATO_OK || err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_MEMORY);
		if (err == RUBATO_ERR_SYSTEM)
			break;
	}
	/* What is lent needs no device. */
	RB_TRY(rubato_partial_drain(p));
	for (const void *result = p; result != NULL;) {
		RB_TRY(rubato_partial_collect_view(p, &result, NULL, 0));
		if (result != NULL)
			RB_TRY(rubato_partial_release(p));
	}
	RB_TRY(rubato_partial_free(p));
	RB_TRY(rubato_barrier(comm));
	if (rank == 0)
		app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
	RB_TRY(rubato_barrier(comm));
	free(host);
	cuda_app_free(&app, there);
	return RUBATO_OK;
}

START_TEST(an_error_of_the_driver_is_an_error_of_the_call)
{
	static const struct {
		const char *call;
		CUresult with;
	} faults[] = {
		{ "cuMemcpyAsync", CUDA_ERROR_LAUNCH_FAILED },
		{ "cuEventRecord", CUDA_ERROR_LAUNCH_FAILED },
		{ "cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY },
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		for (uint32_t at = 1; at < 12; at += 5) {
			struct fake_cuda_control control = { .seed = at,
							     .delay_us_max = 100,
							     .fail_at = at,
							     .fail_with = faults[i].with };

			if (faults[i].with == CUDA_ERROR_OUT_OF_MEMORY && at > 1)
				continue; /* Memory is taken once. */
			(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s",
				       faults[i].call);
			app_open(at);
			if (app.fake_control == NULL) {
				cuda_app_close(&app);
				return;
			}
			ck_assert_msg(ranks_run(2, failing_main, &control) == RUBATO_OK,
				      "%s, call %u: %s", faults[i].call, at, rubato_error_text());
			ck_assert_msg(app.fake_counts().failed > 0, "%s, call %u", faults[i].call,
				      at);
			app_close();
		}
	}
}
END_TEST

/* ---- What is refused ---- */

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	CUcontext context;
	CUdevice device;
	rubato_partial *p;
	rubato_lagged *l;
	void *foreign;
	bool some;
	int count;

	(void)arg;
	CUDA_APP(&app, cuDeviceGetCount, &count);
	if (count < 2)
		return RUBATO_OK;
	CUDA_APP(&app, cuDeviceGet, &device, 1);
	CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, device);
	CUDA_APP(&app, cuCtxPushCurrent, context);
	foreign = cuda_app_alloc(&app, 4000);
	RB_TRY(rubato_partial_create(comm, 1000, RUBATO_FLOAT32, RUBATO_SUM, &options, &p));
	EXPECT(rubato_partial_contribute(p, foreign, 0, 1) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "partial contribute: a buffer lies in memory of CUDA "
					   "device 1, and this communicator uses CUDA device 0"));
	EXPECT(rubato_partial_collect(p, foreign, &some, NULL, 0) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_partial_free(p));
	RB_TRY(rubato_lagged_create(comm, 1000, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	EXPECT(rubato_lagged_accumulate(l, foreign, 1) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_free(l));
	cuda_app_free(&app, foreign);
	CUDA_APP(&app, cuCtxPopCurrent, &context);
	CUDA_APP(&app, cuDevicePrimaryCtxRelease, device);
	return RUBATO_OK;
}

START_TEST(another_devices_memory_is_refused)
{
	app_open(0);
	ck_assert_msg(ranks_run(1, refused_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("relaxed");

	if (!cuda_app_may_run())
		return 77;
	/* By what is measured a vector that is staged may be added up in another order. */
	(void)setenv("RUBATO_MEASURE", "0", 1);
	tcase_set_timeout(tc, 500);
	tcase_add_test(tc, rounds_hold_what_devices_held);
	tcase_add_test(tc, rounds_are_the_devices);
	tcase_add_test(tc, rounds_in_fewer_bits_are_the_hosts);
	tcase_add_loop_test(tc, rounds_of_nine_ranks_are_the_hosts, 0, 2);
	tcase_add_test(tc, rounds_pass_no_host_memory);
	tcase_add_test(tc, creation_fails_everywhere_or_nowhere);
	tcase_add_test(tc, a_device_that_fails_ends_its_rounds);
	tcase_add_test(tc, gradients_of_devices_are_accumulated);
	tcase_add_test(tc, lagged_vectors_lie_on_the_device);
	tcase_add_test(tc, acquired_vectors_are_zeroed_there);
	tcase_add_test(tc, lagged_on_a_device_says_why_not);
	tcase_add_test(tc, an_error_of_the_driver_is_an_error_of_the_call);
	tcase_add_test(tc, another_devices_memory_is_refused);
	return check_main("cuda-relaxed", tc);
}
