/*
 * test_where.c -- what requests say of the memory that they are for: the region of what is
 * registered, of IN, OUT and scratch, in collectives and messages, one-shot and persistent; nothing
 * of plain memory, and nothing any more of what was registered once.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "runtime/comm.h"
#include "tests/check_main.h"
#include "tests/expect.h"

#define COUNT 200000u     /* Floats: regions matter, whatever a ring cuts them to. */
#define LONG_BYTES 20000u /* Shorter posts are the library's own. */

/* The simulated transport's table, with posts that look. A rank at a time runs, in one process. */
static struct {
	struct rb_transport_ops ops;
	uint32_t posts, told, wrong;
} spy;

static void look(struct rb_endpoint *ep, const struct rb_request *r)
{
	const struct rb_region *region = rb_request_region(ep, r);
	const uint8_t *from = r->buffer;

	if (r->size_bytes < LONG_BYTES)
		return;
	spy.posts++;
	spy.told += region != NULL;
	spy.wrong += region != NULL &&
		     (from < (uint8_t *)region->base ||
		      from + r->size_bytes > (uint8_t *)region->base + region->size_bytes);
}

static void spy_send(struct rb_endpoint *ep, struct rb_request *r)
{
	look(ep, r);
	rb_transport_sim.send(ep, r);
}

static void spy_recv(struct rb_endpoint *ep, struct rb_request *r)
{
	look(ep, r);
	rb_transport_sim.recv(ep, r);
}

static void spy_put(struct rb_endpoint *ep, struct rb_request *r)
{
	look(ep, r);
	rb_transport_sim.put(ep, r);
}

static void spy_reset(void)
{
	spy.posts = spy.told = spy.wrong = 0;
}

struct buffers {
	float *in, *out;
};

/* Of all posts of a call, on all ranks, so many must have been told. */
static rubato_status all_told(rubato_comm *comm, bool told)
{
	RB_TRY(rubato_barrier(comm));
	EXPECT(spy.wrong == 0 && spy.posts > 0);
	EXPECT(spy.told == (told ? spy.posts : 0));
	RB_TRY(rubato_barrier(comm));
	spy_reset();
	return rubato_barrier(comm);
}

static rubato_status calls(rubato_comm *comm, const struct buffers *b, bool told)
{
	uint32_t n = rubato_size(comm), r = rubato_rank(comm);
	rubato_op *op;

	/* Sends of IN and OUT, receives in OUT: all in the caller's memory. */
	RB_TRY(rubato_set_algorithm(comm, "allgather", "ring"));
	RB_TRY(rubato_allgather(comm, b->in, b->out, COUNT, RUBATO_FLOAT32));
	RB_TRY(all_told(comm, told));
	RB_TRY(rubato_op_allgather(comm, b->in, b->out, COUNT, RUBATO_FLOAT32, &op));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(all_told(comm, told));
	rubato_op_free(op);
	if (r == 0)
		RB_TRY(rubato_send(comm, b->in, COUNT, RUBATO_FLOAT32, n - 1, 7));
	else if (r == n - 1)
		RB_TRY(rubato_recv(comm, b->out, COUNT, RUBATO_FLOAT32, 0, 7));
	return all_told(comm, told);
}

static rubato_status where_main(rubato_comm *comm, void *arg)
{
	size_t bytes = COUNT * sizeof(float), all = bytes * rubato_size(comm);
	struct buffers plain = { calloc(1, bytes), calloc(1, all) }, own = { NULL, NULL };
	rubato_op *op;

	(void)arg;
	EXPECT(plain.in != NULL && plain.out != NULL);
	spy.ops = rb_transport_sim;
	spy.ops.send = spy_send;
	spy.ops.recv = spy_recv;
	spy.ops.put = spy_put;
	comm->engine.endpoints[0]->ops = &spy.ops;
	RB_TRY(rubato_barrier(comm));
	RB_TRY(calls(comm, &plain, false));
	RB_TRY(rubato_alloc(comm, bytes, (void **)&own.in));
	RB_TRY(rubato_alloc(comm, all, (void **)&own.out));
	RB_TRY(calls(comm, &plain, false));
	RB_TRY(calls(comm, &own, true));
	/* Foreign memory, between registering and unregistering it; also of an operation that was
	 * made before. */
	RB_TRY(rubato_op_allgather(comm, plain.in, plain.out, COUNT, RUBATO_FLOAT32, &op));
	RB_TRY(rubato_register(comm, plain.in, bytes));
	RB_TRY(rubato_register(comm, plain.out, all));
	RB_TRY(calls(comm, &plain, true));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(all_told(comm, true));
	RB_TRY(rubato_unregister(comm, plain.in));
	RB_TRY(rubato_unregister(comm, plain.out));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(all_told(comm, false));
	rubato_op_free(op);
	/* A put's source. */
	RB_TRY(rubato_set_algorithm(comm, "allgather", "ring_put"));
	RB_TRY(rubato_allgather(comm, own.in, own.out, COUNT, RUBATO_FLOAT32));
	RB_TRY(all_told(comm, true));
	comm->engine.endpoints[0]->ops = &rb_transport_sim;
	RB_TRY(rubato_free(comm, own.in));
	RB_TRY(rubato_free(comm, own.out));
	free(plain.in);
	free(plain.out);
	return RUBATO_OK;
}

START_TEST(requests_say_where_their_buffers_lie)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	spy_reset();
	options.rank_count = (uint32_t)_i;
	ck_assert_msg(rubato_sim_run(&options, where_main, NULL, &result) == RUBATO_OK,
		      "rank %u: %s", result.failed_rank, rubato_error_text());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("where");
	TCase *tc = tcase_create("requests");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, requests_say_where_their_buffers_lie, 2, 5);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
