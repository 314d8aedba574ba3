/*
 * test_forked.c -- a forked child has nothing of its parent's communicators: each call on one is
 * refused there, before the lock, and the parent's job goes on. One of its own works, over shm:
 * what UCX, or AddressSanitizer's allocator, has locked on another thread at the fork stays so in
 * a child. Name of the transport as argument: shm, tcp.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/limit.h"
#include "tests/runtime/local.h"

#define RANKS 3
#define FORKER 1u
#define COUNT 100000u
#define CHILD_S 30u /* A call that waits for a lock that nobody drops does so for ever. */

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static const struct rb_transport_ops *transports[2];
static bool own_is_tried, over_at_once;

struct things { /* Of the parent. */
	rubato_comm *comm;
	rubato_op *op; /* In flight. */
	rubato_op *ended;
	rubato_partial *partial;
	rubato_lagged *lagged;
	float *in, *out;
	void *memory;
};

static void refused(rubato_status status, const char *call)
{
	if (status == RUBATO_ERR_ARGUMENT && strstr(rubato_error_text(), "the parent's") != NULL)
		return;
	(void)fprintf(stderr, "a child's %s: %s: %s\n", call, rubato_status_name(status),
		      rubato_error_text());
	_exit(EXIT_FAILURE);
}
#define REFUSED(call) refused((call), #call)

static void relaxed_refused(const struct things *t)
{
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	const void *result;
	uint64_t bytes;
	bool done;
	void *buffer;

	REFUSED(rubato_partial_acquire(t->partial, &buffer));
	REFUSED(rubato_partial_contribute(t->partial, t->in, 1, 1));
	REFUSED(rubato_partial_commit(t->partial, 1, 1));
	REFUSED(rubato_partial_collect(t->partial, t->out, &done, NULL, RUBATO_NO_WAIT));
	REFUSED(rubato_partial_collect_view(t->partial, &result, NULL, RUBATO_NO_WAIT));
	REFUSED(rubato_partial_release(t->partial));
	REFUSED(rubato_partial_drain(t->partial));
	REFUSED(rubato_partial_leave(t->partial));
	REFUSED(rubato_partial_pending(t->partial, &result, NULL));
	REFUSED(rubato_partial_save(t->partial, NULL, &bytes));
	REFUSED(rubato_partial_get_stats(t->partial, &stats));
	REFUSED(rubato_partial_free(t->partial));
	REFUSED(rubato_lagged_acquire(t->lagged, &buffer));
	REFUSED(rubato_lagged_accumulate(t->lagged, t->in, 1));
	REFUSED(rubato_lagged_begin(t->lagged));
	REFUSED(rubato_lagged_test(t->lagged, &done));
	REFUSED(rubato_lagged_collect(t->lagged, &result, NULL, RUBATO_NO_WAIT));
	REFUSED(rubato_lagged_flush(t->lagged, &result, NULL, RUBATO_NO_WAIT));
	REFUSED(rubato_lagged_free(t->lagged));
}

static void calls_refused(const struct things *t)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };
	rubato_peer peer = { .size_bytes = sizeof(peer) };
	rubato_partial *partial;
	rubato_lagged *lagged;
	rubato_comm *comm;
	void *memory;
	rubato_op *op;
	bool done;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	REFUSED(rubato_barrier(t->comm));
	REFUSED(rubato_allreduce(t->comm, t->in, t->out, COUNT, RUBATO_FLOAT32, RUBATO_SUM));
	REFUSED(rubato_send(t->comm, t->in, 1, RUBATO_FLOAT32, 0, 7));
	REFUSED(rubato_recv(t->comm, t->out, 1, RUBATO_FLOAT32, 0, 7));
	REFUSED(rubato_op_barrier(t->comm, &op));
	REFUSED(rubato_op_send(t->comm, t->in, 1, RUBATO_FLOAT32, 0, 7, &op));
	REFUSED(rubato_op_allreduce_helped(t->comm, t->in, t->out, COUNT, RUBATO_FLOAT32,
					   RUBATO_SUM, &op));
	REFUSED(rubato_split(t->comm, 0, 0, &comm));
	REFUSED(rubato_partial_create(t->comm, 1, RUBATO_FLOAT32, RUBATO_SUM, NULL, &partial));
	REFUSED(rubato_lagged_create(t->comm, 1, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	REFUSED(rubato_start(t->op));
	REFUSED(rubato_test(t->op, &done));
	REFUSED(rubato_wait(t->op, RUBATO_NO_WAIT));
	REFUSED(rubato_wait(t->ended, RUBATO_NO_WAIT));
	REFUSED(rubato_cancel(t->op));
	REFUSED(rubato_alloc(t->comm, 1 << 20, &memory));
	REFUSED(rubato_register(t->comm, t->in, COUNT));
	REFUSED(rubato_unregister(t->comm, t->in));
	REFUSED(rubato_free(t->comm, t->memory));
	REFUSED(rubato_set_timeout(t->comm, 1000000000));
	REFUSED(rubato_set_accumulate(t->comm, RUBATO_ACCUMULATE_WHOLE));
	REFUSED(rubato_set_wire(t->comm, RUBATO_WIRE_SAME, false));
	REFUSED(rubato_set_algorithm(t->comm, "allreduce", "auto"));
	REFUSED(rubato_get_peer(t->comm, 0, &peer));
	REFUSED(rubato_get_stats(t->comm, &stats));
	relaxed_refused(t);
	rubato_dump(t->comm, null);
	rubato_op_free(t->op);
	REFUSED(rubato_abort(t->comm));
	REFUSED(rubato_finalize(t->comm));
	(void)close(null);
}

static rubato_status own_works(void)
{
	rubato_comm *comm;
	rubato_id id;
	float in = 3, out = 0;

	RB_TRY(rubato_id_create(&id));
	RB_TRY(rubato_init_id(&comm, &id, 0, 1, NULL));
	RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM));
	RB_TRY(rubato_finalize(comm));
	return out == 3 ? RUBATO_OK : RUBATO_ERR_INTERNAL;
}

static void child(const struct things *t)
{
	rubato_status own = RUBATO_OK;

	limit_start(CHILD_S);
	calls_refused(t);
	if (own_is_tried)
		own = own_works();
	if (own != RUBATO_OK)
		(void)fprintf(stderr, "a child's own communicator: %s\n", rubato_error_text());
	_exit(own == RUBATO_OK ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* locked: a thread that the child does not have holds the lock. */
static int child_run(const struct things *t, bool locked)
{
	int status;
	pid_t pid;

	if (locked)
		rb_engine_enter(&t->comm->engine);
	pid = fork();
	if (locked && pid != 0)
		rb_engine_leave(&t->comm->engine);
	if (pid == 0)
		child(t); /* Which speaks to nobody of Check. */
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static rubato_status job_goes_on(struct things *t)
{
	const void *result;

	RB_TRY(rubato_wait(t->op, RUBATO_TIMEOUT_DEFAULT));
	for (uint32_t i = 0; i < COUNT; i++)
		EXPECT(t->out[i] == 3);
	for (uint32_t k = 0; k < 20; k++) {
		t->in[0] = (float)(rubato_rank(t->comm) + k);
		RB_TRY(rubato_allreduce(t->comm, t->in, t->out, 100, RUBATO_FLOAT32, RUBATO_SUM));
		EXPECT(t->out[0] == 3 + 3 * (float)k);
	}
	for (size_t i = 0; i < COUNT; i++)
		EXPECT(((char *)t->memory)[i] == 0);
	RB_TRY(rubato_lagged_accumulate(t->lagged, t->in, 1));
	RB_TRY(rubato_lagged_begin(t->lagged));
	RB_TRY(rubato_lagged_flush(t->lagged, &result, NULL, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(((const float *)result)[1] == 3);
	RB_TRY(rubato_lagged_free(t->lagged));
	RB_TRY(rubato_partial_free(t->partial));
	rubato_op_free(t->op);
	rubato_op_free(t->ended);
	return rubato_free(t->comm, t->memory);
}

/* Over shared memory a start like the last one is over at once, and its wait needs no lock. */
static rubato_status ended_make(struct things *t)
{
	RB_TRY(rubato_op_broadcast(t->comm, t->out, 1, RUBATO_FLOAT32, FORKER, &t->ended));
	for (uint32_t i = 0; i < 3; i++) {
		RB_TRY(rubato_start(t->ended));
		RB_TRY(rubato_wait(t->ended, RUBATO_TIMEOUT_DEFAULT));
		RB_TRY(rubato_barrier(t->comm));
	}
	EXPECT(rubato_rank(t->comm) != FORKER || !over_at_once || atomic_load(&t->ended->over));
	return RUBATO_OK;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	static float in[RANKS][COUNT], out[RANKS][COUNT];
	const bool *locked = arg;
	uint32_t rank = rubato_rank(comm);
	struct things t = { .comm = comm, .in = in[rank], .out = out[rank] };
	int32_t ended = -1;

	for (uint32_t i = 0; i < COUNT; i++)
		t.in[i] = 1;
	RB_TRY(ended_make(&t));
	RB_TRY(rubato_op_allreduce(comm, t.in, t.out, COUNT, RUBATO_FLOAT32, RUBATO_SUM, &t.op));
	RB_TRY(rubato_partial_create(comm, COUNT, RUBATO_FLOAT32, RUBATO_SUM, NULL, &t.partial));
	RB_TRY(rubato_lagged_create(comm, COUNT, RUBATO_FLOAT32, RUBATO_SUM, 1, &t.lagged));
	RB_TRY(rubato_alloc(comm, COUNT, &t.memory));
	if (rank == FORKER) { /* The others do not start it before. */
		RB_TRY(rubato_start(t.op));
		ended = child_run(&t, *locked);
	}
	RB_TRY(rubato_broadcast(comm, &ended, 1, RUBATO_INT32, FORKER));
	EXPECT(ended == 0);
	if (rank != FORKER)
		RB_TRY(rubato_start(t.op));
	return job_goes_on(&t);
}

START_TEST(a_child_is_refused_and_the_job_goes_on)
{
	bool locked = _i == 1;
	rubato_status status[RANKS];

	(void)local_run(RANKS, transports, rank_main, &locked, status);
	for (uint32_t r = 0; r < RANKS; r++)
		ck_assert_msg(status[r] == RUBATO_OK, "rank %u: %s", r,
			      rubato_status_name(status[r]));
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("forked");
	TCase *tc = tcase_create("forked");
	const char *name = argc > 1 ? argv[1] : "shm";

	transports[0] = local_transport(name);
	over_at_once = strcmp(name, "shm") == 0;
	own_is_tried = over_at_once && !SANITIZED;
	if (setenv("RUBATO_TRANSPORT", name, 1) != 0)
		return EXIT_FAILURE;
	tcase_add_loop_test(tc, a_child_is_refused_and_the_job_goes_on, 0, 2);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
