/*
 * soak.c -- ranks whose threads all use the library at once, for as long as one likes: the
 * application's thread in partial allreduces, another one in allreduces and messages of a second
 * communicator, and both communicators' progress threads. A lost wake-up ends in a timeout; every
 * result is checked.
 *
 *   soak [SECONDS]    0, the default: each policy once
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/runtime/local.h"
#include "tests/runtime/relaxed/rounds.h"

#define RANKS 3
#define CALLS 120
#define NS_PER_SECOND UINT64_C(1000000000)

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
static struct rounds world;

struct beside { /* What the other thread of a rank does. */
	rubato_comm *comm;
	rubato_status status;
	uint64_t wrong;
};

static rubato_status beside_calls(struct beside *b)
{
	uint32_t n = rubato_size(b->comm), rank = rubato_rank(b->comm);
	int64_t vector[512], token;

	for (int call = 0; call < CALLS; call++) {
		uint64_t count = call % 7 == 0 ? 512 : 1;

		for (uint64_t i = 0; i < count; i++)
			vector[i] = (int64_t)(rank + i) + call;
		RB_TRY(rubato_allreduce(b->comm, vector, vector, count, RUBATO_INT64, RUBATO_SUM));
		for (uint64_t i = 0; i < count; i++)
			b->wrong +=
				vector[i] != (int64_t)(n * (n - 1) / 2 + n * i) + (int64_t)n * call;
		if (rank == 0)
			RB_TRY(rubato_send(b->comm, &vector[0], 1, RUBATO_INT64, 1, 3));
		else if (rank == 1) {
			RB_TRY(rubato_recv(b->comm, &token, 1, RUBATO_INT64, 0, 3));
			b->wrong += token != vector[0];
		}
		if (call % 11 == (int)rank)
			rubato_sleep(b->comm, 200000); /* So that the others wait asleep. */
	}
	return RUBATO_OK;
}

static void *beside_main(void *arg)
{
	struct beside *b = arg;

	b->status = beside_calls(b);
	return NULL;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct beside beside = { .status = RUBATO_OK };
	rubato_status err, end;
	pthread_t thread;

	RB_TRY(rubato_split(comm, 0, 0, &beside.comm));
	if (pthread_create(&thread, NULL, beside_main, &beside) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "soak: no thread");
	err = rounds_main(comm, arg);
	(void)pthread_join(thread, NULL);
	end = rubato_finalize(beside.comm);
	if (beside.wrong > 0)
		rounds_wrong(arg, "%llu wrong values beside", (unsigned long long)beside.wrong);
	return err != RUBATO_OK ? err : beside.status != RUBATO_OK ? beside.status : end;
}

static bool pass(uint64_t number)
{
	rubato_status status[RANKS];

	rounds_init(&world);
	world.options.policy = (rubato_policy)(number % 5); /* wagma wants even groups. */
	world.options.deadline_ns = 200000;
	world.options.rounds = number / 5 % 2 == 0 ? RUBATO_ROUNDS_ALIGNED : RUBATO_ROUNDS_FREE;
	world.delay_ns = number / 10 % 2 == 0 ? 0 : 300000;
	world.rotating = true;
	if (local_run(RANKS, shm, rank_main, &world, status) != RUBATO_OK) {
		for (int r = 0; r < RANKS; r++)
			fprintf(stderr, "soak: pass %llu: rank %d: %s\n",
				(unsigned long long)number, r, rubato_status_name(status[r]));
		return false;
	}
	if (world.wrong > 0)
		fprintf(stderr, "soak: pass %llu: %s\n", (unsigned long long)number, world.first);
	return world.wrong == 0;
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, number = 0, rounds = 0;
	uint64_t until = rb_clock_ns() + seconds * NS_PER_SECOND;

	for (; number < 20 || rb_clock_ns() < until; number++) {
		if (!pass(number))
			return EXIT_FAILURE;
		for (uint32_t r = 0; r < RANKS; r++)
			rounds += world.stats[r].rounds;
	}
	printf("%llu passes, %llu rounds, %llu calls beside, nothing lost\n",
	       (unsigned long long)number, (unsigned long long)rounds,
	       (unsigned long long)number * RANKS * CALLS * 4 / 3);
	return EXIT_SUCCESS;
}
