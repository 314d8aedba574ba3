/*
 * test_cuda_ipc.c -- ranks as processes that work in each other's device memory: the right bits,
 * nothing over the host; all go over the host where one cannot; what is mapped is closed in time,
 * also where memory comes to the addresses of what was freed, and where a rank is killed. On the
 * fake driver, in which a process maps another one's memory at other addresses.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/coded.h"
#include "tests/cuda/fake/processes.h"
#include "tests/cuda/fake/worlds.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/seeds.h"

#define COUNT 70001u

/* ---- Right bits ---- */

struct seen { /* By all. */
	uint32_t ran, skipped;
	uint64_t opens;
};

struct drawn {
	uint64_t seed;
	struct seen *seen;
};

static rubato_status drawn_main(struct cuda_app *app, rubato_comm *comm, void *arg)
{
	const struct drawn *drawn = arg;
	struct cuda_world w = { .app = app, .seed = drawn->seed, .streams = drawn->seed % 2 };

	RB_TRY(cuda_world_main(comm, &w));
	RB_TRY(cuda_coded_main(comm, &w));
	if (rubato_rank(comm) > 0)
		return RUBATO_OK;
	drawn->seen->ran += w.ran;
	drawn->seen->skipped += w.skipped;
	if (app->fake_counts != NULL)
		drawn->seen->opens += app->fake_counts().opens;
	return RUBATO_OK;
}

START_TEST(processes_have_the_hosts_bits)
{
	uint64_t times = test_length() == TEST_SHORT ? 4 : test_length() == TEST_NORMAL ? 12 : 2000;
	struct seeds seeds = seeds_from(__func__, 1, times);
	struct seen *seen = processes_memory(sizeof(*seen));
	bool real = getenv("CUDA_REAL") != NULL;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct drawn drawn = { seed, seen };
		struct processes p = { .count = 2 + (uint32_t)(rb_mix(seed) % 3),
				       .own_devices = !real && (rb_mix(seed) >> 8 & 1),
				       .control = { .seed = seed,
						    .delay_us_max = 200,
						    .queues = 32,
						    .addresses_again = rb_mix(seed) >> 9 & 1 },
				       .body = drawn_main,
				       .arg = &drawn };

		processes_run(&p);
	}
	ck_assert_uint_gt(seen->ran, 2 * seen->skipped);
	if (!real && !seeds_chosen())
		ck_assert_uint_gt(seen->opens, 0);
}
END_TEST

/* ---- In place ---- */

/* An allreduce of COUNT words behind `offset` words of an allocation; *copies: from or to the host,
 * that this process's driver was given for it. */
static rubato_status allreduce_check(struct cuda_app *app, rubato_comm *comm, uint32_t *memory,
				     uint32_t offset, uint32_t round, uint64_t *copies)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t *host = malloc(COUNT * 4), *at = memory + offset;
	uint64_t before;

	EXPECT(host != NULL);
	for (uint32_t i = 0; i < COUNT; i++)
		host[i] = i * (rank + 1) + round;
	cuda_app_copy(app, at, host, COUNT * 4);
	before = app->fake_counts().host_copies;
	RB_TRY(rubato_allreduce(comm, at, at, COUNT, RUBATO_UINT32, RUBATO_SUM));
	*copies = app->fake_counts().host_copies - before;
	cuda_app_copy(app, host, at, COUNT * 4);
	for (uint32_t i = 0; i < COUNT; i++)
		EXPECT(host[i] == i * (n * (n + 1) / 2) + n * round);
	free(host);
	return RUBATO_OK;
}

/* An alltoallv of long blocks, from the first half of COUNT words to the second; *copies as
 * above. */
static rubato_status alltoallv_check(struct cuda_app *app, rubato_comm *comm, uint32_t *memory,
				     uint32_t round, uint64_t *copies)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), block = COUNT / 2 / n;
	uint32_t *host = malloc(COUNT * 4);
	uint64_t before, *blocks = malloc(n * sizeof(*blocks));

	EXPECT(host != NULL && blocks != NULL);
	memset(host, 0xff, COUNT * 4);
	for (uint32_t r = 0; r < n; r++) {
		blocks[r] = block;
		for (uint32_t i = 0; i < block; i++)
			host[r * block + i] = i * 64 + rank * 8 + r + round;
	}
	cuda_app_copy(app, memory, host, COUNT * 4);
	before = app->fake_counts().host_copies;
	RB_TRY(rubato_set_algorithm(comm, "alltoallv", "direct"));
	RB_TRY(rubato_alltoallv(comm, memory, blocks, NULL, memory + COUNT / 2, blocks, NULL,
				RUBATO_UINT32));
	*copies = app->fake_counts().host_copies - before;
	cuda_app_copy(app, host, memory, COUNT * 4);
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t i = 0; i < block; i++)
			EXPECT(host[COUNT / 2 + r * block + i] == i * 64 + r * 8 + rank + round);
	free(host);
	free(blocks);
	return RUBATO_OK;
}

/* Two rounds of a partial allreduce whose buffers are the device's; *copies as above. */
static rubato_status partial_check(struct cuda_app *app, rubato_comm *comm, uint64_t *copies)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t *host = malloc(COUNT * 4), *there = cuda_app_alloc(app, COUNT * 4);
	rubato_partial *p;
	uint64_t before;
	bool some;

	EXPECT(host != NULL);
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = n;
	*copies = 0;
	RB_TRY(rubato_cuda_partial_create(comm, COUNT, RUBATO_UINT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < 2; step++) {
		for (uint32_t i = 0; i < COUNT; i++)
			host[i] = i * (rank + 1) + step;
		cuda_app_copy(app, there, host, COUNT * 4);
		before = app->fake_counts().host_copies;
		RB_TRY(rubato_partial_contribute(p, there, step, 1));
		RB_TRY(rubato_partial_collect(p, there, &some, NULL, 0));
		*copies += app->fake_counts().host_copies - before;
		EXPECT(some);
		cuda_app_copy(app, host, there, COUNT * 4);
		for (uint32_t i = 0; i < COUNT; i++)
			EXPECT(host[i] == i * (n * (n + 1) / 2) + n * step);
	}
	free(host);
	cuda_app_free(app, there);
	return rubato_partial_free(p);
}

/* Sums in fewer bits, with the bits of those on the host; *bytes: copied from or to the host,
 * beside the test's own. */
static rubato_status coded_check(struct cuda_app *app, rubato_comm *comm, uint64_t *bytes)
{
	size_t all = CODED_ROUNDS * (size_t)COUNT * 4;
	float *there = malloc(all), *here = malloc(all);
	struct coded c = { .feedback = true,
			   .algorithm = "direct",
			   .op = RUBATO_SUM,
			   .memory = cuda_app_memory(app) };

	EXPECT(there != NULL && here != NULL);
	*bytes = 0;
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t own, before = app->fake_counts().host_bytes;
		uint32_t blocks;

		c.wire = i == 0 ? RUBATO_WIRE_BFLOAT16 : RUBATO_WIRE_INT8;
		c.scatter = i == 2;
		c.count = c.scatter ? COUNT / 4 + 3 : COUNT;
		blocks = c.scatter ? rubato_size(comm) : 1;
		own = CODED_ROUNDS * (blocks + 1) * c.count * 4 + 4 * CODED_BEHIND * sizeof(float);
		c.kinds[0] = c.kinds[1] = EXERCISE_DEVICE;
		RB_TRY(coded_run(comm, &c, there));
		*bytes += app->fake_counts().host_bytes - before - own;
		c.kinds[0] = c.kinds[1] = EXERCISE_HOST;
		RB_TRY(coded_run(comm, &c, here));
		EXPECT(memcmp(there, here, CODED_ROUNDS * c.count * 4) == 0);
	}
	free(there);
	free(here);
	return RUBATO_OK;
}

static void *kept; /* Of this process. */

/* At offsets that ranks do not share; each peer's memory is opened once. */
static rubato_status in_place_main(struct cuda_app *app, rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t *memory = cuda_app_alloc(app, (COUNT + 40) * 4);
	uint64_t copies;
	rubato_op *op;
	void *own;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	for (uint32_t round = 0; round < 4; round++) {
		RB_TRY(allreduce_check(app, comm, memory, 7 * rank + round, round, &copies));
		EXPECT(copies == 0);
	}
	for (uint32_t round = 0; round < 2; round++) {
		RB_TRY(alltoallv_check(app, comm, memory, round, &copies));
		EXPECT(copies == 0);
	}
	EXPECT(app->fake_counts().opens == n - 1);
	RB_TRY(rubato_op_allreduce(comm, memory, memory, COUNT, RUBATO_UINT32, RUBATO_SUM, &op));
	/* While that has it open. */
	RB_TRY(allreduce_check(app, comm, memory, 1, 9, &copies));
	EXPECT(copies == 0);
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	EXPECT(app->fake_counts().opens == n - 1);
	RB_TRY(rubato_barrier(comm));
	EXPECT(app->fake_counts().opened == n - 1);
	RB_TRY(rubato_cuda_alloc(comm, (COUNT + 40) * 4, &own));
	RB_TRY(allreduce_check(app, comm, own, 3, 5, &copies));
	EXPECT(copies == 0);
	EXPECT(app->fake_counts().opened == 2 * (n - 1));
	RB_TRY(partial_check(app, comm, &copies));
	EXPECT(copies == 0);
	EXPECT(app->fake_counts().opened == 3 * (n - 1));
	RB_TRY(coded_check(app, comm, &copies));
	EXPECT(copies == 0);
	kept = memory;
	return RUBATO_OK;
}

/* The library's own memory has gone, after all had closed it; the application's goes now. */
static rubato_status in_place_after(struct cuda_app *app)
{
	EXPECT(app->fake_counts().freed_mapped == 0);
	cuda_app_free(app, kept);
	return RUBATO_OK;
}

static void in_place_run(bool own_devices, uint32_t count)
{
	struct processes p = { .count = count,
			       .own_devices = own_devices,
			       .control = { .seed = 3, .delay_us_max = 200 },
			       .body = in_place_main,
			       .after = in_place_after };

	processes_run(&p);
}

START_TEST(processes_on_one_device_work_in_place)
{
	in_place_run(false, 3);
}
END_TEST

START_TEST(processes_with_a_device_each_work_in_place)
{
	in_place_run(true, 2);
}
END_TEST

/* ---- Over the host ---- */

struct refusal {
	const char *call; /* That fails on rank 1, each time; NULL: none does. */
	bool alone;       /* Rank 1's memory cannot be shared. */
};

/* All go over the host, and nobody tries again. */
static rubato_status refused_main(struct cuda_app *app, rubato_comm *comm, void *arg)
{
	const struct refusal *refusal = arg;
	struct fake_cuda_control control = { .fail_at = 1,
					     .fail_count = UINT32_MAX - 1,
					     .fail_with = CUDA_ERROR_MAP_FAILED,
					     .no_peers = refusal->call == NULL && !refusal->alone,
					     .memory_alone = refusal->alone };
	uint32_t *memory;
	uint64_t failed, copies;
	rubato_comm *child;

	if (refusal->call != NULL)
		(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", refusal->call);
	if (rubato_rank(comm) == 1)
		app->fake_control(&control);
	memory = cuda_app_alloc(app, COUNT * 4);
	/* Of a communicator that has not tried yet. */
	RB_TRY(rubato_split(comm, 0, 0, &child));
	RB_TRY(partial_check(app, child, &copies));
	EXPECT(copies > 0);
	RB_TRY(rubato_finalize(child));
	RB_TRY(rubato_split(comm, 0, 0, &child));
	for (uint32_t round = 0; round < 3; round++) { /* By pairs: rank 1 is in one with each. */
		RB_TRY(alltoallv_check(app, child, memory, round, &copies));
		EXPECT(copies > 0);
	}
	RB_TRY(rubato_finalize(child));
	RB_TRY(rubato_split(comm, 0, 0, &child));
	RB_TRY(coded_check(app, child, &copies));
	EXPECT(copies > 0);
	RB_TRY(rubato_finalize(child));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	RB_TRY(allreduce_check(app, comm, memory, 0, 1, &copies));
	EXPECT(copies > 0);
	failed = app->fake_counts().failed;
	if (rubato_rank(comm) == 1)
		EXPECT((failed > 0) == (refusal->call != NULL));
	RB_TRY(allreduce_check(app, comm, memory, 0, 2, &copies));
	EXPECT(copies > 0);
	if (refusal->call != NULL && strcmp(refusal->call, "cuIpcOpenMemHandle_v2") == 0)
		EXPECT(app->fake_counts().failed == failed);
	RB_TRY(rubato_barrier(comm));
	cuda_app_free(app, memory);
	return RUBATO_OK;
}

START_TEST(all_go_over_the_host_where_one_must)
{
	static struct refusal refusals[] = { { .call = "cuIpcOpenMemHandle_v2" },
					     { .call = "cuIpcGetMemHandle" },
					     { .alone = true },
					     { .call = NULL } };

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct processes p = { .count = 3,
				       .own_devices = true,
				       .control = { .seed = i + 1, .delay_us_max = 100 },
				       .body = refused_main,
				       .arg = &refusals[i] };

		processes_run(&p);
	}
}
END_TEST

/* ---- Other memory at the same addresses ---- */

#define AGAIN 80u /* More than are kept mapped. */

static rubato_status again_main(struct cuda_app *app, rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm);
	void *first = NULL;
	uint64_t copies;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	for (uint32_t i = 0; i < AGAIN; i++) {
		uint32_t *memory = cuda_app_alloc(app, (COUNT + i % 2) * 4);

		if (first == NULL)
			first = memory;
		EXPECT(memory == first);
		RB_TRY(allreduce_check(app, comm, memory, i % 2, i, &copies));
		EXPECT(copies == 0);
		EXPECT(app->fake_counts().opened == n - 1);
		cuda_app_free(app, memory);
	}
	/* And elsewhere, again and again. */
	app->fake_control(&(struct fake_cuda_control) { .addresses_again = false });
	for (uint32_t i = 0; i < AGAIN; i++) {
		uint32_t *memory = cuda_app_alloc(app, COUNT * 4);

		RB_TRY(rubato_allreduce(comm, memory, memory, COUNT, RUBATO_UINT32, RUBATO_SUM));
		RB_TRY(rubato_barrier(comm));
		cuda_app_free(app, memory);
	}
	EXPECT(app->fake_counts().opens >= AGAIN * 2);
	EXPECT(app->fake_counts().opened == 64);
	return RUBATO_OK;
}

START_TEST(what_was_freed_is_told_from_what_came_there)
{
	struct processes p = { .count = 2,
			       .control = { .addresses_again = true },
			       .body = again_main };

	processes_run(&p);
}
END_TEST

/* ---- A rank is killed ---- */

static rubato_status killed_main(struct cuda_app *app, rubato_comm *comm, void *arg)
{
	uint32_t n = rubato_size(comm);
	uint32_t *memory = cuda_app_alloc(app, COUNT * 4);
	rubato_status err = RUBATO_OK;
	atomic_uint *through = *(atomic_uint *const *)arg;
	uint64_t copies;

	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	for (uint32_t round = 0; round < 3; round++)
		RB_TRY(allreduce_check(app, comm, memory, 0, round, &copies));
	EXPECT(app->fake_counts().opened == n - 1);
	atomic_fetch_add(through, 1);
	if (rubato_rank(comm) == n - 1) {
		while (*through < n) /* No earlier call of the others' is hit. */
			(void)usleep(1000);
		(void)kill(getpid(), SIGKILL);
		(void)pause();
	}
	while (err == RUBATO_OK)
		err = rubato_allreduce(comm, memory, memory, COUNT, RUBATO_UINT32, RUBATO_SUM);
	EXPECT(err == RUBATO_ERR_PEER);
	EXPECT(strstr(rubato_error_text(), "rank 2") != NULL);
	EXPECT(rubato_finalize(comm) != RUBATO_OK);
	EXPECT(app->fake_counts().opened == 0);
	cuda_app_free(app, memory);
	EXPECT(app->fake_counts().memory_bytes == 0);
	cuda_app_leave(app);
	cuda_app_close(app);
	_exit(0);
}

START_TEST(a_killed_ranks_memory_is_closed)
{
	atomic_uint *through = processes_memory(sizeof(*through));
	struct processes p = { .count = 3,
			       .dies = 2,
			       .control = { .seed = 5, .delay_us_max = 200 },
			       .body = killed_main,
			       .arg = &through };

	processes_run(&p);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ipc");

	if (!cuda_app_may_run())
		return 77;
	/* By what is measured an alltoallv sends longer blocks by messages, through the host. */
	(void)setenv("RUBATO_MEASURE", "0", 1);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, processes_have_the_hosts_bits);
	tcase_add_test(tc, processes_on_one_device_work_in_place);
	tcase_add_test(tc, processes_with_a_device_each_work_in_place);
	tcase_add_test(tc, all_go_over_the_host_where_one_must);
	tcase_add_test(tc, what_was_freed_is_told_from_what_came_there);
	tcase_add_test(tc, a_killed_ranks_memory_is_closed);
	return check_main("cuda-ipc", tc);
}
