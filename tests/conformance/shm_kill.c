/*
 * shm_kill.c -- a process is killed in the middle of its messages; those that remain learn which
 * one, also while they sleep, lose what they had with it, and go on.
 */
#include "conformance.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)
#define VICTIM 1u

/* All but the victim end well, the victim by its signal. */
static bool run(void *world, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	pid_t children[CONFORM_RANKS_MAX];
	bool good = true;

	(void)world;
	(void)fflush(NULL);
	for (uint32_t i = 0; i < rank_count; i++) {
		children[i] = fork();
		ck_assert_int_ge(children[i], 0);
		if (children[i] == 0) {
			rank_main(arg, i);
			_exit(0);
		}
	}
	for (uint32_t i = 0; i < rank_count; i++) {
		int status = 0;

		ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
		if (i == VICTIM)
			good = good && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		else
			good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	return good;
}

const struct conform_backend conform_backend = {
	.name = "shm_kill",
	.ops = &rb_transport_shm,
	.run = run,
};

static void victim(struct conform_rank *r)
{
	uint8_t *large = calloc(1, 4 * MIB);
	struct conform_request c[2 * CONFORM_RANKS_MAX];

	CONFORM(large != NULL, "memory");
	for (uint32_t i = 0; i < r->rank_count; i++) {
		conform_recv(r, &c[i], i, 10, large, 4 * MIB);
		conform_send(r, &c[CONFORM_RANKS_MAX + i], i, 10, large, 4 * MIB);
	}
	atomic_store(&r->world->word[0], (uint64_t)getpid());
	conform_barrier(r, "requests that will be lost");
	for (uint64_t polls = rb_rng_below(&r->rng, 30); polls > 0; polls--)
		(void)conform_poll(r);
	(void)raise(SIGKILL);
}

static void asleep_until_failure(struct conform_rank *r, struct rb_failure *failure)
{
	while (!r->ops->failure(r->ep, failure)) {
		if (conform_poll(r))
			continue;
		if (r->ops->arm(r->ep)) {
			struct pollfd p = { r->ops->descriptor(r->ep), POLLIN, 0 };

			CONFORM(poll(&p, 1, (int)(CONFORM_DEADLINE_NS / 1000000)) == 1,
				"rank %u was not woken by the end of a peer", r->rank);
		}
		r->ops->disarm(r->ep);
	}
}

static void survivor(struct conform_rank *r)
{
	uint8_t *large = calloc(1, 8 * MIB);
	struct conform_request recv, send, never;
	struct rb_failure failure = { 0 };
	char text[64];

	CONFORM(large != NULL, "memory");
	conform_recv(r, &never, VICTIM, 11, large, 8);
	conform_recv(r, &recv, VICTIM, 10, large, 4 * MIB);
	conform_send(r, &send, VICTIM, 10, large + 4 * MIB, 4 * MIB);
	conform_barrier(r, "requests that will be lost");
	conform_leave(&(struct conform_rank) { .world = r->world, .rank = VICTIM });
	asleep_until_failure(r, &failure);
	ck_assert_uint_eq(failure.peer, VICTIM);
	(void)snprintf(text, sizeof(text), "process %d ended",
		       (int)atomic_load(&r->world->word[0]));
	ck_assert_str_eq(failure.text, text);
	conform_finish(r, &never);
	ck_assert_int_eq(never.request.status, RUBATO_ERR_PEER);
	conform_finish(r, &recv); /* May have come through in time. */
	conform_finish(r, &send);
	for (uint32_t i = 0; i < r->rank_count; i++) {
		if (i == VICTIM)
			continue;
		conform_recv(r, &recv, i, 20, large, 3 * MIB);
		conform_send(r, &send, i, 20, large + 4 * MIB, 3 * MIB);
		conform_finish_ok(r, &recv);
		conform_finish_ok(r, &send);
	}
	ck_assert(!r->ops->failure(r->ep, &failure));
	free(large);
}

static void killed(struct conform_rank *r)
{
	if (r->rank == VICTIM)
		victim(r);
	else
		survivor(r);
}

START_TEST(test_kill)
{
	conform_run(_i % 2 == 0 ? 2 : 4, killed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm_kill");
	TCase *t = tcase_create("kill");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_kill, 0, 10);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
