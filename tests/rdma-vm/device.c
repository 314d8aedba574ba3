/*
 * device.c -- a rank of a job whose buffers are a CUDA device's, by the driver without a device
 * (tests/cuda/fake), whose dma-bufs are a kernel's: ring allreduce, lagged, solo and majority.
 *
 * usage: device ring|lagged|solo|majority
 *
 * Every element of every result is checked. Vectors of lagged and partial allreduces are the
 * device's, too. Over verbs ring and lagged go by dma-bufs, and of ring nothing may pass the host's
 * memory but the test's own copies; rounds go through pinned memory over any network (docs/gpu.md),
 * and so does all over UCX. What went how is told, and demanded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_cuda.h"
#include "tests/cuda/app.h"
#include "tests/runtime/relaxed/rounds.h"

#define COUNT 65537u
#define STEPS 6u

static struct cuda_app app;

#define DEMAND(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			(void)fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #what,            \
				      rubato_error_text());                                        \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)
#define DO(call) DEMAND((call) == RUBATO_OK)

static float *host, *in, *out;

static bool over_verbs(void)
{
	const char *transport = getenv("RUBATO_TRANSPORT");

	return transport != NULL && strcmp(transport, "verbs") == 0;
}

/* A rank's input: small whole numbers, so that sums are exact. */
static void fill(uint32_t rank, uint32_t step)
{
	for (uint32_t i = 0; i < COUNT; i++)
		host[i] = (float)(rank + 1) * (float)(1 + (i + step) % 7);
	cuda_app_copy(&app, in, host, COUNT * 4);
}

/* Of ranks whose numbers + 1 add up to `weight`. */
static int check(double weight, uint32_t step)
{
	cuda_app_copy(&app, host, out, COUNT * 4);
	for (uint32_t i = 0; i < COUNT; i++)
		DEMAND(host[i] == (float)(weight * (1 + (i + step) % 7)));
	return 0;
}

static int ring(rubato_comm *comm)
{
	uint32_t n = rubato_size(comm);
	bool verbs = over_verbs();
	struct fake_cuda_counts before, after;

	DO(rubato_set_algorithm(comm, "allreduce", "ring"));
	for (uint32_t step = 0; step < STEPS; step++) {
		fill(rubato_rank(comm), step);
		before = app.fake_counts();
		DO(rubato_allreduce(comm, in, out, COUNT, RUBATO_FLOAT32, RUBATO_SUM));
		after = app.fake_counts();
		DEMAND(verbs == (after.host_copies == before.host_copies));
		if (check(n * (n + 1) / 2.0, step) != 0)
			return 1;
	}
	return 0;
}

static int lagged(rubato_comm *comm)
{
	uint32_t n = rubato_size(comm), seen = 0;
	const void *result;
	uint64_t weight;
	rubato_lagged *l;

	DO(rubato_cuda_lagged_create(comm, COUNT, RUBATO_FLOAT32, RUBATO_SUM, 1, &l));
	for (uint32_t step = 0; seen < STEPS; step++) {
		if (step < STEPS) {
			fill(rubato_rank(comm), step);
			DO(rubato_lagged_accumulate(l, in, 1));
			DO(rubato_lagged_begin(l));
			DO(rubato_lagged_collect(l, &result, &weight, RUBATO_TIMEOUT_DEFAULT));
		} else {
			DO(rubato_lagged_flush(l, &result, &weight, RUBATO_TIMEOUT_DEFAULT));
		}
		if (result == NULL)
			continue;
		DEMAND(weight == n);
		cuda_app_copy(&app, host, result, COUNT * 4);
		for (uint32_t i = 0; i < COUNT; i++)
			DEMAND(host[i] == (float)(n * (n + 1) / 2.0 * (1 + (i + seen) % 7)));
		seen++;
	}
	DO(rubato_lagged_free(l));
	return 0;
}

static int partial(rubato_comm *comm, rubato_policy policy)
{
	static struct rounds world;

	rounds_init(&world);
	world.options.policy = policy;
	world.count = COUNT;
	world.steps = STEPS;
	world.eras = 1;
	world.memory = cuda_app_memory(&app);
	world.there = true;
	DO(rounds_main(comm, &world));
	DEMAND(world.wrong == 0);
	DEMAND(world.collected[rubato_rank(comm)] > 0);
	return 0;
}

static int run(rubato_comm *comm, const char *what)
{
	host = malloc(COUNT * 4);
	in = cuda_app_alloc(&app, COUNT * 4);
	out = cuda_app_alloc(&app, COUNT * 4);
	DEMAND(host != NULL);
	if (strcmp(what, "ring") == 0)
		return ring(comm);
	if (strcmp(what, "lagged") == 0)
		return lagged(comm);
	return partial(comm,
		       strcmp(what, "solo") == 0 ? RUBATO_POLICY_SOLO : RUBATO_POLICY_MAJORITY);
}

int main(int argc, char **argv)
{
	rubato_comm *comm;
	char why[200];
	uint64_t exported;
	int failed;

	if (argc != 2 || !cuda_app_open(&app, why, sizeof(why)) || app.fake_counts == NULL) {
		(void)fprintf(stderr, "device: one word, and the driver without a device\n");
		return 2;
	}
	cuda_app_enter(&app);
	DO(rubato_init(&comm, NULL));
	DO(rubato_cuda_use(comm, RUBATO_CUDA_CURRENT));
	failed = run(comm, argv[1]);
	exported = app.fake_counts().exported;
	DEMAND(failed || over_verbs() == (exported > 0));
	DO(rubato_finalize(comm));
	cuda_app_leave(&app);
	(void)printf("%s: %s, %s (%llu dma-bufs)\n", argv[1], failed ? "wrong" : "right",
		     exported > 0 ? "dma-buf" : "staged", (unsigned long long)exported);
	return failed;
}
