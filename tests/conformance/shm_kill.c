/*
 * shm_kill.c -- a process is killed in the middle of its messages; those that remain learn which
 * one, also while they sleep, lose what they had with it, and go on. Also when it has a forked
 * child that lives on with copies of all its descriptors, and where some kernel, or none of them,
 * has descriptors for processes.
 */
#include "conformance.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

#define MIB (1u << 20)
#define VICTIM 1u

static bool forks;          /* The victim leaves a child behind. */
static uint32_t restricted; /* Bit r: rank r gets no descriptor of a process. */

/* What old kernels and some containers answer: there is no such call, no such option. */
static void processes_hide(void)
{
	/* nr, then of getsockopt the option. */
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77 /* SO_PEERPIDFD */, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_eq(rb_process_open(getpid()), -1);
}

/* All but the victim end well, the victim by its signal. */
static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	pid_t children[CONFORM_RANKS_MAX];
	bool good = true;

	(void)cluster;
	(void)fflush(NULL);
	for (uint32_t i = 0; i < rank_count; i++) {
		children[i] = fork();
		ck_assert_int_ge(children[i], 0);
		if (children[i] == 0) {
			if ((restricted >> i & 1) != 0)
				processes_hide();
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

static void child_leave(struct conform_rank *r)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		(void)sleep(60);
		_exit(0);
	}
	atomic_store(&r->shared->word[1], (uint64_t)child);
}

static void victim(struct conform_rank *r)
{
	uint8_t *large = calloc(1, 4 * MIB);
	struct conform_request c[2 * CONFORM_RANKS_MAX];

	CONFORM(large != NULL, "memory");
	for (uint32_t i = 0; i < r->rank_count; i++) {
		conform_recv(r, &c[i], i, 10, large, 4 * MIB);
		conform_send(r, &c[CONFORM_RANKS_MAX + i], i, 10, large, 4 * MIB);
	}
	atomic_store(&r->shared->word[0], (uint64_t)getpid());
	if (forks)
		child_leave(r);
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
	conform_leave(&(struct conform_rank) { .shared = r->shared, .rank = VICTIM });
	asleep_until_failure(r, &failure);
	ck_assert_uint_eq(failure.peer, VICTIM);
	(void)snprintf(text, sizeof(text), "process %d ended",
		       (int)atomic_load(&r->shared->word[0]));
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
	/* The one that is left of the victim lives still: nobody waited for its end. */
	if (forks && r->rank == 0)
		ck_assert_int_eq(kill((pid_t)atomic_load(&r->shared->word[1]), SIGKILL), 0);
}

START_TEST(test_kill)
{
	forks = false;
	restricted = _i / 2 % 3 == 0 ? 0 : _i / 2 % 3 == 1 ? 0xf : 0x5;
	conform_run(_i % 2 == 0 ? 2 : 4, killed);
}
END_TEST

START_TEST(test_kill_with_child)
{
	forks = true;
	restricted = 0;
	conform_run(_i % 2 == 0 ? 2 : 4, killed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm_kill");
	TCase *t = tcase_create("kill");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_kill, 0, 18);
	tcase_add_loop_test(t, test_kill_with_child, 0, 6);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
