/*
 * test_still.c -- point to point among ranks that make no progress but in their calls: threads that
 * meet outside the library. Name of the transport as argument: shm, ucx, verbs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sync.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

#define SHORT_NS 20000000u
#define LARGE 200000 /* Elements: announced, not sent at once. */
#define BEGUN 250000 /* Elements: more than leaves before its receive is there. */
#define PATIENCE_NS 1000000000u
#define BURST 50
#define WITHDRAWN 3

static void meet(pthread_barrier_t *barrier)
{
	(void)pthread_barrier_wait(barrier);
}

/* Of rank 0: a receive that its transport does not give back may take so long from then on. */
static struct {
	rubato_comm *comm;
	const struct rb_transport_ops *ops;
	uint64_t more_ns;
	_Atomic bool refused;
} recalls;

static bool recall_watched(struct rb_endpoint *ep, struct rb_request *request)
{
	bool recalled = recalls.ops->recall(ep, request);

	if (!recalled) {
		recalls.comm->timeout_ns = recalls.more_ns;
		atomic_store(&recalls.refused, true);
	}
	return recalled;
}

static rubato_status begun_receiver(rubato_comm *comm, pthread_barrier_t *barrier, int64_t *data)
{
	static struct rb_transport_ops watched;
	uint64_t patient = comm->timeout_ns;
	int64_t value = 0;
	rubato_status err;

	recalls.comm = comm;
	recalls.ops = rb_comm_endpoint(comm)->ops;
	recalls.more_ns = patient;
	watched = *recalls.ops;
	watched.recall = recall_watched;
	local_transport_replace(comm, &watched);
	RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 6));
	comm->timeout_ns = SHORT_NS;
	meet(barrier);
	RB_TRY(rubato_recv(comm, data, BEGUN, RUBATO_INT64, 1, 5));
	EXPECT(atomic_load(&recalls.refused) && data[BEGUN - 1] == 1);
	RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 6));
	comm->timeout_ns = recalls.more_ns = SHORT_NS;
	meet(barrier);
	err = rubato_recv(comm, data, BEGUN, RUBATO_INT64, 1, 5);
	EXPECT(err == RUBATO_ERR_TIMEOUT && strstr(rubato_error_text(), "has begun") != NULL);
	EXPECT(strstr(rubato_error_text(), "after 0.04 s") != NULL);
	meet(barrier);
	comm->timeout_ns = patient;
	local_transport_replace(comm, recalls.ops);
	return rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 5);
}

/* A receive whose message has begun to come when its time is over waits once more as long, then
 * takes the message along. */
static rubato_status begun_main(rubato_comm *comm, void *arg)
{
	int64_t *data = calloc(BEGUN, sizeof(*data)), value = 0;
	rubato_op *op;

	if (rubato_rank(comm) == 0)
		RB_TRY(begun_receiver(comm, arg, data));
	for (data[BEGUN - 1] = 1; rubato_rank(comm) == 1 && data[BEGUN - 1] <= 2;
	     data[BEGUN - 1]++) {
		RB_TRY(rubato_op_send(comm, data, BEGUN, RUBATO_INT64, 0, 5, &op));
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_send(comm, data, 1, RUBATO_INT64, 0, 6));
		meet(arg); /* From here on nothing of it leaves, */
		while (data[BEGUN - 1] == 1 && !atomic_load(&recalls.refused))
			rb_clock_sleep_until(rb_clock_ns() + SHORT_NS / 20);
		if (data[BEGUN - 1] == 2)
			meet(arg); /* until the receiver's time is over. */
		RB_TRY(rubato_wait(op, 0));
		rubato_op_free(op);
	}
	free(data);
	return rubato_rank(comm) == 1 ? rubato_send(comm, &value, 1, RUBATO_INT64, 0, 5)
				      : RUBATO_OK;
}

/* Long sends whose time is over count as never called, though their receives, of what was sent
 * instead, are called before their rank has read anything of either. */
static rubato_status withdrawn_main(rubato_comm *comm, void *arg)
{
	int64_t *data = calloc(BEGUN, sizeof(*data)), values[WITHDRAWN], value = 0;
	rubato_op *ops[WITHDRAWN];

	for (int64_t i = 0; rubato_rank(comm) == 0 && i < WITHDRAWN; i++) {
		RB_TRY(rubato_set_timeout(comm, SHORT_NS));
		EXPECT(rubato_send(comm, data, BEGUN, RUBATO_INT64, 1, 5) == RUBATO_ERR_TIMEOUT);
		RB_TRY(rubato_set_timeout(comm, RUBATO_TIMEOUT_DEFAULT));
		values[i] = i;
		RB_TRY(rubato_op_send(comm, &values[i], 1, RUBATO_INT64, 1, 5, &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	meet(arg);
	for (int64_t i = 0; rubato_rank(comm) == 1 && i < WITHDRAWN; i++) {
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5));
		EXPECT(value == i);
	}
	for (int64_t i = 0; rubato_rank(comm) == 0 && i < WITHDRAWN; i++) {
		RB_TRY(rubato_wait(ops[i], 0));
		rubato_op_free(ops[i]);
	}
	free(data);
	return RUBATO_OK;
}

/* A receive has met a message, of another size or its own, and is given up; its sender takes
 * that back before it has heard of either. What it sends next, with its number, is the next
 * receive's. */
static rubato_status left_main(rubato_comm *comm, void *arg)
{
	int64_t *data = calloc(BEGUN, sizeof(*data)), value = 7;
	uint64_t patient = comm->timeout_ns;
	rubato_op *op;

	for (uint64_t count = 1; count <= BEGUN; count += BEGUN - 1) {
		if (rubato_rank(comm) == 0) {
			RB_TRY(rubato_op_send(comm, data, BEGUN, RUBATO_INT64, 1, 5, &op));
			RB_TRY(rubato_start(op));
			meet(arg);
			meet(arg);
			EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
			rubato_op_free(op);
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 5));
			continue;
		}
		meet(arg);
		comm->timeout_ns = SHORT_NS;
		EXPECT(rubato_recv(comm, data, count, RUBATO_INT64, 0, 5) == RUBATO_ERR_TIMEOUT);
		comm->timeout_ns = patient;
		meet(arg);
		value = 0;
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5));
		EXPECT(value == 7);
	}
	free(data);
	return RUBATO_OK;
}

/* Likewise, and numbers begin anew before the receiver hears that it was taken back. */
static rubato_status left_anew_main(rubato_comm *comm, void *arg)
{
	int64_t *data = calloc(BEGUN, sizeof(*data)), value = 7, other = 0;
	rubato_op *op, *last;
	bool done = false;

	for (uint32_t tag = 1; tag < RB_FLOWS_MAX; tag++)
		RB_TRY((rubato_rank(comm) == 0
				? rubato_send(comm, &other, 1, RUBATO_INT64, 1, 1000 + tag)
				: rubato_recv(comm, &other, 1, RUBATO_INT64, 0, 1000 + tag)));
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_op_send(comm, data, BEGUN, RUBATO_INT64, 1, 5, &op));
		RB_TRY(rubato_op_recv(comm, &other, 1, RUBATO_INT64, 1, 6, &last));
		RB_TRY(rubato_start(op));
		meet(arg);
		meet(arg);
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		RB_TRY(rubato_send(comm, &other, 1, RUBATO_INT64, 1, 6));
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 5));
		meet(arg);
		meet(arg);
		RB_TRY(rubato_start(last));
		RB_TRY(rubato_wait(last, 0)); /* It answers. */
	} else {
		RB_TRY(rubato_op_recv(comm, data, 1, RUBATO_INT64, 0, 5, &op));
		RB_TRY(rubato_op_recv(comm, &other, 1, RUBATO_INT64, 0, 6, &last));
		meet(arg);
		RB_TRY(rubato_start(op));
		for (uint32_t i = 0; i < 100; i++) /* It meets the announcement. */
			RB_TRY(rubato_test(op, &done));
		EXPECT(!done && rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		meet(arg);
		meet(arg);
		RB_TRY(rubato_start(last)); /* Behind the list. */
		RB_TRY(rubato_wait(last, 0));
		meet(arg);
		RB_TRY(rubato_send(comm, &other, 1, RUBATO_INT64, 0, 6));
		value = 0;
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5));
		EXPECT(value == 7 && comm->flows.left_count == 0);
	}
	rubato_op_free(op);
	rubato_op_free(last);
	free(data);
	return RUBATO_OK;
}

/* A receive is cancelled when it has met what says that its message was taken back, and has not
 * heard of that: what it had posted meanwhile has moved the transport. */
static rubato_status voided_main(rubato_comm *comm, void *arg)
{
	int64_t *data = calloc(BEGUN, sizeof(*data)), value = 7;
	rubato_op *op, *small, *large;
	bool done = false;

	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_op_send(comm, data, BEGUN, RUBATO_INT64, 1, 5, &op));
		RB_TRY(rubato_op_recv(comm, data, BEGUN, RUBATO_INT64, 1, 6, &large));
		RB_TRY(rubato_op_send(comm, &value, 1, RUBATO_INT64, 1, 5, &small));
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_start(small));
		meet(arg);
		meet(arg);
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		RB_TRY(rubato_start(large));
		for (uint32_t i = 0; i < 100; i++) /* It answers. */
			RB_TRY(rubato_test(large, &done));
		meet(arg);
		RB_TRY(rubato_wait(large, 0));
		RB_TRY(rubato_wait(small, 0));
		rubato_op_free(small);
	} else {
		RB_TRY(rubato_op_recv(comm, data, 1, RUBATO_INT64, 0, 5, &op));
		RB_TRY(rubato_op_send(comm, data, BEGUN, RUBATO_INT64, 0, 6, &large));
		meet(arg);
		RB_TRY(rubato_start(op));
		for (uint32_t i = 0; i < 100; i++) /* It meets the announcement. */
			RB_TRY(rubato_test(op, &done));
		EXPECT(!done);
		meet(arg);
		meet(arg);
		RB_TRY(rubato_start(large));
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		RB_TRY(rubato_wait(large, 0));
		value = 0;
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 5));
		EXPECT(value == 7);
	}
	rubato_op_free(op);
	rubato_op_free(large);
	free(data);
	return RUBATO_OK;
}

/* Receives whose messages are all there move what else is in flight: rank 0 passes on what comes
 * from rank 2 while it takes what rank 1 has sent. */
static rubato_status burst_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	int64_t passed = rank, value;
	rubato_op *op;

	RB_TRY(rubato_set_algorithm(comm, "broadcast", "chain"));
	RB_TRY(rubato_op_broadcast(comm, &passed, 1, RUBATO_INT64, 2, &op));
	if (rank == 0)
		RB_TRY(rubato_start(op));
	meet(arg);
	if (rank != 0)
		RB_TRY(rubato_start(op));
	for (value = 0; rank == 1 && value < BURST; value++)
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 0, 5));
	meet(arg);
	for (int64_t i = 0; rank == 0 && i < BURST; i++) {
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 5));
		EXPECT(value == i);
	}
	if (rank == 1)
		RB_TRY(rubato_wait(op, 5 * (uint64_t)PATIENCE_NS));
	meet(arg);
	if (rank != 1)
		RB_TRY(rubato_wait(op, 0));
	EXPECT(passed == 2);
	rubato_op_free(op);
	return RUBATO_OK;
}

/* Nor does who receives, and never waits, miss that a third rank has gone. */
static rubato_status notice_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	rubato_status err = RUBATO_OK;
	int64_t value = 0;

	if (rank == 2)
		RB_TRY(rubato_abort(comm));
	if (rank == 1) /* Where rank 0 has stopped, nothing makes room. */
		comm->timeout_ns = PATIENCE_NS;
	for (uint32_t k = 0; k < 8; k++) { /* Each burst is there before rank 0 looks. */
		for (int64_t i = 0; rank == 1 && err == RUBATO_OK && i < BURST; i++)
			err = rubato_send(comm, &value, 1, RUBATO_INT64, 0, 5);
		meet(arg);
		for (int64_t i = 0; rank == 0 && err == RUBATO_OK && i < BURST; i++)
			err = rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 5);
		meet(arg);
	}
	(void)rubato_finalize(comm);
	EXPECT(rank != 0 || err == RUBATO_ERR_PEER);
	return RUBATO_OK;
}

/* Whether these receives, named by their tags, are put off, in this order, and no other one. */
static bool are_put_off(const rubato_comm *comm, uint32_t polled, const char *tags)
{
	const struct rb_receives *receives = &comm->receives;
	bool same =
		receives->count == strlen(tags) && comm->engine.polled == polled + receives->count;

	for (uint32_t i = 0; same && i < receives->count; i++)
		same = receives->at[i]->user_tag == (uint32_t)(tags[i] - '0');
	return same;
}

static rubato_status put_off_send(rubato_comm *comm, void *arg, const char *tags)
{
	meet(arg);
	for (; *tags != '\0'; tags++) {
		int64_t value = 100 + *tags;

		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, (uint32_t)(*tags - '0')));
	}
	meet(arg);
	return RUBATO_OK;
}

static rubato_status put_off_wait(rubato_op *op, const int64_t *value, char tag)
{
	RB_TRY(rubato_wait(op, 0));
	return *value == 100 + tag ? RUBATO_OK : RB_FAIL(RUBATO_ERR_INTERNAL, "not of %c", tag);
}

/* Receives are put off until somebody polls; who waits takes what is here, and leaves the rest. */
static rubato_status put_off_main(rubato_comm *comm, void *arg)
{
	uint32_t polled = comm->engine.polled;
	int64_t values[10];
	rubato_op *ops[10];

	if (rb_engine_endpoint(&comm->engine, 1 - rubato_rank(comm))->ops->recv_now == NULL)
		return RUBATO_OK;
	if (rubato_rank(comm) == 0) {
		RB_TRY(put_off_send(comm, arg, "33477"));
		RB_TRY(put_off_send(comm, arg, "0"));
		RB_TRY(put_off_send(comm, arg, "347"));
		RB_TRY(put_off_send(comm, arg, "8"));
		RB_TRY(put_off_send(comm, arg, "1569"));
		return put_off_send(comm, arg, "12");
	}
	for (uint32_t i = 0; i < 10; i++)
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 0, i, &ops[i]));
	/* Those to come are no tag's first ones. */
	meet(arg);
	meet(arg);
	for (const char *tag = "33477"; *tag != '\0'; tag++)
		RB_TRY(rubato_recv(comm, &values[0], 1, RUBATO_INT64, 0, (uint32_t)(*tag - '0')));
	for (uint32_t i = 1; i < 9; i++)
		RB_TRY(rubato_start(ops[i]));
	EXPECT(are_put_off(comm, polled, "12345678"));
	EXPECT(rubato_start(ops[1]) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_cancel(ops[2]) == RUBATO_ERR_CANCELLED);
	EXPECT(are_put_off(comm, polled, "1345678"));
	/* What has come is taken by who starts its receive, though others are put off. */
	meet(arg);
	meet(arg);
	RB_TRY(rubato_start(ops[0]));
	EXPECT(ops[0]->done && values[0] == 100 + '0' && are_put_off(comm, polled, "1345678"));
	RB_TRY(rubato_wait(ops[0], 0));
	/* Who waits takes all that have come, one after the other. */
	meet(arg);
	meet(arg);
	RB_TRY(put_off_wait(ops[4], &values[4], '4'));
	EXPECT(ops[3]->done && ops[7]->done && are_put_off(comm, polled, "1568"));
	RB_TRY(put_off_wait(ops[3], &values[3], '3'));
	RB_TRY(put_off_wait(ops[7], &values[7], '7'));
	EXPECT(comm->flows.at[ops[7]->message.flow].first == NULL);
	/* What has come from this peer is not its message: it is posted. */
	meet(arg);
	meet(arg);
	RB_TRY(rubato_start(ops[9]));
	EXPECT(are_put_off(comm, polled, "1568") && ops[9]->message.slot != NULL);
	RB_TRY(put_off_wait(ops[8], &values[8], '8'));
	EXPECT(are_put_off(comm, polled, "156"));
	/* Nothing has come: one round posts them all. */
	EXPECT(rubato_wait(ops[5], RUBATO_NO_WAIT) == RUBATO_ERR_TIMEOUT);
	EXPECT(are_put_off(comm, polled, ""));
	meet(arg);
	meet(arg);
	for (const char *tag = "1569"; *tag != '\0'; tag++)
		RB_TRY(put_off_wait(ops[*tag - '0'], &values[*tag - '0'], *tag));
	/* Nine are one too many. */
	for (uint32_t i = 0; i < 10; i++)
		RB_TRY(rubato_start(ops[i]));
	EXPECT(comm->receives.count == RB_RECEIVES_PUT_OFF);
	EXPECT(comm->engine.polled == polled + comm->receives.count);
	/* The first one was over in its start before, and is not now. */
	EXPECT(rubato_wait(ops[0], RUBATO_NO_WAIT) == RUBATO_ERR_TIMEOUT);
	meet(arg);
	meet(arg);
	RB_TRY(put_off_wait(ops[1], &values[1], '1'));
	RB_TRY(put_off_wait(ops[2], &values[2], '2'));
	for (uint32_t i = 0; i < 10; i++)
		rubato_op_free(ops[i]);
	EXPECT(are_put_off(comm, polled, "") && comm->engine.in_flight == 0);
	return RUBATO_OK;
}

/* Who missed a message when it was looked for does not look at the next start, but in the wait; who
 * found it there looks again. */
static rubato_status missed_main(rubato_comm *comm, void *arg)
{
	static const struct {
		bool missed;            /* The message before, if the test says so. */
		bool sent_before, over; /* Its message; its start. */
	} starts[] = { { false, true, true },  { false, true, true },   { false, false, false },
		       { false, true, true },  { true, true, false },   { false, true, true },
		       { true, false, false }, { false, false, false }, { true, true, false } };
	int64_t value = 0;
	rubato_op *op;

	if (rb_engine_endpoint(&comm->engine, 1 - rubato_rank(comm))->ops->recv_now == NULL)
		return RUBATO_OK;
	if (rubato_rank(comm) == 1)
		RB_TRY(rubato_op_recv(comm, &value, 1, RUBATO_INT64, 0, 3, &op));
	for (int64_t i = 0; i < 9; i++) {
		int64_t sent = 50 + i;

		if (rubato_rank(comm) == 0 && starts[i].sent_before)
			RB_TRY(rubato_send(comm, &sent, 1, RUBATO_INT64, 1, 3));
		meet(arg);
		if (rubato_rank(comm) == 1) {
			op->message.missed |= starts[i].missed;
			RB_TRY(rubato_start(op));
			EXPECT(op->done == starts[i].over);
			EXPECT(op->message.missed != starts[i].over);
			EXPECT(comm->receives.count == !starts[i].over);
		}
		meet(arg);
		if (rubato_rank(comm) == 0 && !starts[i].sent_before)
			RB_TRY(rubato_send(comm, &sent, 1, RUBATO_INT64, 1, 3));
		meet(arg);
		if (rubato_rank(comm) == 1) {
			RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
			EXPECT(value == 50 + i && !op->message.missed);
		}
	}
	if (rubato_rank(comm) == 1)
		rubato_op_free(op);
	return RUBATO_OK;
}

static uint32_t looks;

static bool look_counted(struct rb_endpoint *ep, uint32_t peer)
{
	(void)ep;
	(void)peer;
	looks++;
	return false;
}

/* Whose message was set aside before its start does not linger for it in the wait. */
static rubato_status set_aside_main(rubato_comm *comm, void *arg)
{
	struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, 1 - rubato_rank(comm));
	const struct rb_transport_ops *ops = ep->ops;
	static struct rb_transport_ops counting;
	int64_t value = 60, other = 0;
	rubato_op *op;

	if (ops->recv_now == NULL)
		return RUBATO_OK;
	if (rubato_rank(comm) == 0) {
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 3));
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 4));
		meet(arg);
		meet(arg);
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 3));
		return RUBATO_OK;
	}
	value = 0;
	RB_TRY(rubato_op_recv(comm, &value, 1, RUBATO_INT64, 0, 3, &op));
	RB_TRY(rubato_recv(comm, &other, 1, RUBATO_INT64, 0, 4));
	meet(arg);
	counting = *ops;
	counting.here = look_counted;
	ep->ops = &counting;
	op->message.missed = true;
	RB_TRY(rubato_start(op));
	EXPECT(comm->receives.count == 1);
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	EXPECT(value == 60 && looks == 0);
	/* It does for one that has not come. */
	RB_TRY(rubato_start(op));
	EXPECT(rubato_wait(op, SHORT_NS) == RUBATO_ERR_TIMEOUT && looks > 0);
	ep->ops = ops;
	meet(arg);
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	return RUBATO_OK;
}

/* What rubato_dump writes. */
static rubato_status dump_read(rubato_comm *comm, char *text, size_t text_bytes)
{
	int ends[2];
	ssize_t got;

	EXPECT(pipe(ends) == 0);
	rubato_dump(comm, ends[1]);
	(void)close(ends[1]);
	got = read(ends[0], text, text_bytes - 1);
	(void)close(ends[0]);
	EXPECT(got > 0);
	text[got] = '\0';
	return RUBATO_OK;
}

static uint32_t lines_with(const char *text, const char *what)
{
	uint32_t count = 0;

	for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
		count++;
	return count;
}

#define EARLY 70 /* More than a dump has lines for. */

/* A dump tells of receives that are put off, and of what came before its receive. */
static rubato_status dump_main(rubato_comm *comm, void *arg)
{
	bool puts_off = rb_engine_endpoint(&comm->engine, 0)->ops->recv_now != NULL;
	int64_t value = 0, values[2];
	char text[32768];
	rubato_op *ops[2];

	if (rubato_rank(comm) == 0) {
		meet(arg);
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 8));
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 9));
		for (uint32_t i = 0; i < EARLY; i++)
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, i == 0 ? 5 : 6));
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, 7));
		meet(arg); /* What comes at the end is early, too. */
		return RUBATO_OK;
	}
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 0, 8 + i, &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	RB_TRY(dump_read(comm, text, sizeof(text)));
	EXPECT(lines_with(text, "put off") == (puts_off ? 2 : 0));
	EXPECT(!puts_off || strstr(text, "r1 recv from 0 tag 9 put off: sendrecv int64 x 1\n"));
	EXPECT(lines_with(text, "early") == 0);
	meet(arg);
	RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, 7));
	RB_TRY(dump_read(comm, text, sizeof(text)));
	EXPECT(lines_with(text, "put off") == 0);
	EXPECT(lines_with(text, "r1 early from 0 tag ") == 64);
	EXPECT(strstr(text, "05:0: sendrecv int64 x 1\n") && strstr(text, "r1 early: 6 more\n"));
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_wait(ops[i], 0));
		rubato_op_free(ops[i]);
	}
	for (uint32_t i = 0; i < EARLY; i++)
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, i == 0 ? 5 : 6));
	RB_TRY(dump_read(comm, text, sizeof(text)));
	EXPECT(lines_with(text, "early") == 0);
	meet(arg);
	return RUBATO_OK;
}

#define ABORT_NS 50000000u

static void *abort_later(void *arg)
{
	rb_clock_sleep_until(rb_clock_ns() + ABORT_NS);
	return rubato_abort(arg) == RUBATO_OK ? arg : NULL;
}

/* Messages in flight end when a communicator is aborted, here and at the peers: receives that are
 * waited for, posted, and put off; sends that are waited for, and started. */
static rubato_status abort_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	int64_t *large = calloc(LARGE, sizeof(*large)), value = 0, values[4];
	rubato_op *receives[4], *send = NULL;
	uint64_t began = rb_clock_ns();
	rubato_status err, expected = rank == 2 ? RUBATO_ERR_CANCELLED : RUBATO_ERR_PEER;
	pthread_t thread;
	void *aborted = comm;

	for (uint32_t i = 0; i < 4; i++) { /* Of a tag, the first is put off. */
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, (rank + 1) % 3, 6 + i / 2,
				      &receives[i]));
		RB_TRY(rubato_start(receives[i]));
	}
	RB_TRY(rubato_op_send(comm, large, LARGE, RUBATO_INT64, (rank + 1) % 3, 5, &send));
	RB_TRY(rubato_start(send));
	meet(arg);
	if (rank == 2)
		EXPECT(pthread_create(&thread, NULL, abort_later, comm) == 0);
	err = rank == 1 ? rubato_send(comm, large, LARGE, RUBATO_INT64, 0, 10)
			: rubato_recv(comm, &value, 1, RUBATO_INT64, (rank + 1) % 3, 9);
	if (rank == 2)
		EXPECT(pthread_join(thread, &aborted) == 0 && aborted != NULL);
	EXPECT(err == expected);
	EXPECT(rubato_wait(send, 0) == expected);
	for (uint32_t i = 0; i < 4; i++)
		EXPECT(rubato_wait(receives[i], 0) == expected);
	EXPECT(rb_clock_ns() - began < comm->timeout_ns);
	for (uint32_t i = 0; i < 4; i++)
		rubato_op_free(receives[i]);
	rubato_op_free(send);
	meet(arg);
	(void)rubato_finalize(comm);
	free(large);
	return RUBATO_OK;
}

static void *send_first(void *arg)
{
	int64_t *large = calloc(LARGE, sizeof(*large));
	rubato_status err = rubato_send(arg, large, LARGE, RUBATO_INT64, 0, 1);

	free(large);
	return err == RUBATO_OK ? arg : NULL;
}

/* Of two threads that send, who began last is through first. */
static rubato_status senders_main(rubato_comm *comm, void *arg)
{
	int64_t *large = calloc(LARGE, sizeof(*large));
	bool waits = false;
	pthread_t thread;
	void *sent = NULL;

	if (rubato_rank(comm) == 0) {
		meet(arg);
		RB_TRY(rubato_recv(comm, large, LARGE, RUBATO_INT64, 1, 2));
		RB_TRY(rubato_recv(comm, large, LARGE, RUBATO_INT64, 1, 1));
		free(large);
		return RUBATO_OK;
	}
	EXPECT(pthread_create(&thread, NULL, send_first, comm) == 0);
	while (!waits) {
		rb_engine_enter(&comm->engine);
		waits = comm->sends != NULL;
		rb_engine_leave(&comm->engine);
		rb_clock_sleep_until(rb_clock_ns() + 1000000);
	}
	meet(arg);
	RB_TRY(rubato_send(comm, large, LARGE, RUBATO_INT64, 0, 2));
	EXPECT(pthread_join(thread, &sent) == 0 && sent != NULL && comm->sends == NULL);
	free(large);
	return RUBATO_OK;
}

#define QUEUED 400 /* More than fit between two ranks. */

/* Who waits for a message that was done in its start waits until all has left, too: nobody else
 * sees to that. */
static rubato_status over_main(rubato_comm *comm, void *arg)
{
	int64_t value = 0, values[QUEUED] = { 0 };
	rubato_op *ops[QUEUED], *op;

	if (rubato_rank(comm) != 1) {
		uint32_t count = rubato_rank(comm) == 0 ? QUEUED : 1;

		meet(arg); /* Nothing is taken before. */
		for (uint32_t i = 0; i < count; i++)
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, 5));
		return RUBATO_OK;
	}
	for (uint32_t i = 0; i < QUEUED; i++) {
		RB_TRY(rubato_op_send(comm, &values[i], 1, RUBATO_INT64, 0, 5, &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	RB_TRY(rubato_op_send(comm, &value, 1, RUBATO_INT64, 2, 5, &op));
	RB_TRY(rubato_start(op));
	if (!ops[QUEUED - 1]->done) /* Elsewhere there may be room for all. */
		EXPECT(op->done && rubato_wait(op, 1000) == RUBATO_ERR_TIMEOUT);
	else
		EXPECT(strcmp(transport_name, "shm") != 0);
	meet(arg);
	RB_TRY(rubato_wait(op, 0));
	rubato_op_free(op);
	for (uint32_t i = 0; i < QUEUED; i++) {
		RB_TRY(rubato_wait(ops[i], 0));
		rubato_op_free(ops[i]);
	}
	return RUBATO_OK;
}

/* As they are put off. */
static rubato_status abort_put_off_main(rubato_comm *comm, void *arg)
{
	int64_t values[2];
	rubato_op *ops[2];

	(void)arg;
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 1 - rubato_rank(comm), i,
				      &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	meet(arg); /* Nobody has heard of an abort before. */
	RB_TRY(rubato_abort(comm));
	for (uint32_t i = 0; i < 2; i++) {
		EXPECT(ops[i]->done && ops[i]->status == RUBATO_ERR_CANCELLED);
		rubato_op_free(ops[i]);
	}
	EXPECT(comm->receives.count == 0);
	return rubato_finalize(comm);
}

struct meeting {
	pthread_barrier_t barrier;
	local_main rank_main;
};

/* The others would wait for one that fails where all meet. */
static rubato_status meeting_main(rubato_comm *comm, void *arg)
{
	struct meeting *meeting = arg;
	rubato_status err = meeting->rank_main(comm, &meeting->barrier);

	if (err != RUBATO_OK) {
		(void)fprintf(stderr, "rank %u: %s: %s\n", rubato_rank(comm),
			      rubato_status_name(err), rubato_error_text());
		_exit(EXIT_FAILURE);
	}
	return RUBATO_OK;
}

static void run_threads(uint32_t rank_count, local_main rank_main, bool raw)
{
	struct meeting meeting = { .rank_main = rank_main };
	rubato_status err;

	/* Of a child of its own, as every test is. */
	ck_assert_int_eq(setenv("RUBATO_BACKGROUND", "0", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_ATTACH", "never", 1), 0); /* It needs no sender. */
	ck_assert_int_eq(pthread_barrier_init(&meeting.barrier, NULL, rank_count), 0);
	err = (raw ? local_run_raw : local_run)(rank_count, transports, meeting_main, &meeting,
						NULL);
	ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err), rubato_error_text());
	(void)pthread_barrier_destroy(&meeting.barrier);
}

START_TEST(what_has_begun_is_waited_for)
{
	run_threads(2, begun_main, false);
}
END_TEST

START_TEST(what_was_taken_back_was_never_sent)
{
	run_threads(2, withdrawn_main, false);
}
END_TEST

START_TEST(what_was_met_and_left_comes_again)
{
	run_threads(2, left_main, false);
}
END_TEST

START_TEST(what_was_left_is_known_when_numbers_begin_anew)
{
	run_threads(2, left_anew_main, false);
}
END_TEST

START_TEST(what_is_void_is_no_mismatch)
{
	run_threads(2, voided_main, false);
}
END_TEST

START_TEST(receives_move_what_else_is_in_flight)
{
	run_threads(3, burst_main, false);
}
END_TEST

START_TEST(receives_notice_what_happens)
{
	run_threads(3, notice_main, true);
}
END_TEST

START_TEST(waits_are_for_what_leaves_too)
{
	run_threads(3, over_main, false);
}
END_TEST

START_TEST(sends_of_two_threads_are_through)
{
	run_threads(2, senders_main, false);
}
END_TEST

START_TEST(receives_are_put_off)
{
	run_threads(2, put_off_main, false);
}
END_TEST

START_TEST(receives_look_where_they_found)
{
	run_threads(2, missed_main, false);
}
END_TEST

START_TEST(set_aside_is_not_lingered_for)
{
	looks = 0;
	run_threads(2, set_aside_main, false);
}
END_TEST

START_TEST(dumps_tell_of_messages)
{
	run_threads(2, dump_main, false);
}
END_TEST

START_TEST(aborts_end_messages)
{
	run_threads(3, abort_main, true);
	run_threads(2, abort_put_off_main, true);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("still");

	side_by_side(3);
	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_has_begun_is_waited_for);
	tcase_add_test(tc, what_was_taken_back_was_never_sent);
	tcase_add_test(tc, what_was_met_and_left_comes_again);
	tcase_add_test(tc, what_was_left_is_known_when_numbers_begin_anew);
	tcase_add_test(tc, what_is_void_is_no_mismatch);
	tcase_add_test(tc, receives_move_what_else_is_in_flight);
	tcase_add_test(tc, receives_notice_what_happens);
	tcase_add_test(tc, waits_are_for_what_leaves_too);
	tcase_add_test(tc, sends_of_two_threads_are_through);
	tcase_add_test(tc, receives_are_put_off);
	tcase_add_test(tc, receives_look_where_they_found);
	tcase_add_test(tc, set_aside_is_not_lingered_for);
	tcase_add_test(tc, dumps_tell_of_messages);
	tcase_add_test(tc, aborts_end_messages);
	return check_main("still", tc);
}
