/*
 * test_signals.c -- an application with a clock of its own: a signal interrupts whatever waits, in
 * any thread, and each call ends as if there were none; with SA_RESTART, and without. Name of the
 * transport as argument.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>

#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

#define PERIOD_US 300
#define RANKS 3
#define LONG 200000u /* Elements: beyond what leaves without its receive. */
#define LATE_NS 3000000u

static const struct rb_transport_ops *transports[2];
static atomic_uint interruptions;

static void interrupted(int signal)
{
	(void)signal;
	atomic_fetch_add(&interruptions, 1);
}

static rubato_status collectives(rubato_comm *comm, float *in, float *out)
{
	static const uint32_t counts[] = { 1, 5000, LONG };
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	rubato_op *op;

	RB_TRY(rubato_op_allreduce(comm, in, out, LONG, RUBATO_FLOAT32, RUBATO_SUM, &op));
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t count = counts[i % 3];

		if (i % n == rank)
			rubato_sleep(comm, LATE_NS);
		out[0] = out[count - 1] = 0;
		RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM));
		EXPECT(out[0] == 6 && out[count - 1] == 6);
		out[0] = out[LONG - 1] = 0;
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
		EXPECT(out[0] == 6 && out[LONG - 1] == 6);
	}
	rubato_op_free(op);
	return RUBATO_OK;
}

/* Around the ring, one after the other. */
static rubato_status messages(rubato_comm *comm, float *buffer, uint32_t count)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);

	buffer[count - 1] = rank == 0 ? 7 : 0;
	if (rank > 0)
		RB_TRY(rubato_recv(comm, buffer, count, RUBATO_FLOAT32, rank - 1, 5));
	rubato_sleep(comm, LATE_NS);
	RB_TRY(rubato_send(comm, buffer, count, RUBATO_FLOAT32, (rank + 1) % n, 5));
	if (rank == 0)
		RB_TRY(rubato_recv(comm, buffer, count, RUBATO_FLOAT32, n - 1, 5));
	EXPECT(buffer[count - 1] == 7);
	return RUBATO_OK;
}

static rubato_status rounds(rubato_comm *comm, const float *in, float *out)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *p;

	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = rubato_size(comm);
	RB_TRY(rubato_partial_create(comm, 100, RUBATO_FLOAT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < 4; step++) {
		bool collected = false;

		if (step % RANKS == rubato_rank(comm))
			rubato_sleep(comm, LATE_NS);
		RB_TRY(rubato_partial_contribute(p, in, step, 1));
		RB_TRY(rubato_partial_collect(p, out, &collected, NULL, 0));
		EXPECT(collected && out[99] == 6);
	}
	return rubato_partial_free(p);
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	float *in = malloc(LONG * sizeof(float)), *out = malloc(LONG * sizeof(float));
	rubato_comm *child;

	(void)arg;
	EXPECT(in != NULL && out != NULL);
	for (uint32_t i = 0; i < LONG; i++)
		in[i] = (float)(rubato_rank(comm) + 1);
	RB_TRY(collectives(comm, in, out));
	RB_TRY(messages(comm, out, 1));
	RB_TRY(messages(comm, out, LONG));
	RB_TRY(rounds(comm, in, out));
	RB_TRY(rubato_split(comm, 0, 0, &child));
	RB_TRY(rubato_barrier(child));
	free(in);
	free(out);
	return rubato_finalize(child);
}

START_TEST(calls_go_on)
{
	struct sigaction action = { .sa_handler = interrupted, .sa_flags = _i ? SA_RESTART : 0 };
	struct itimerval clock = { { 0, PERIOD_US }, { 0, PERIOD_US } },
			 none = { { 0, 0 }, { 0, 0 } };
	rubato_status err;

	atomic_store(&interruptions, 0);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &clock, NULL), 0);
	err = local_run(RANKS, transports, rank_main, NULL, NULL);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &none, NULL), 0);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
	ck_assert_uint_gt(atomic_load(&interruptions), 10);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("signals");

	transports[0] = local_transport(argc > 1 ? argv[1] : "shm");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, calls_go_on, 0, 2);
	return check_main("signals", tc);
}
