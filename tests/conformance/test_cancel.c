/* test_cancel.c -- after a cancel the buffer is quiet and the endpoint is as good as new. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

#include "tests/length.h"

#define MIB (1u << 20)

/* From one number of polls to the next to be tried; odd, as odd and even ones differ. */
static uint32_t polls_step(void)
{
	return test_is_interpreted() ? 5 : test_length() == TEST_SHORT ? 3 : 1;
}

/* Messages both ways: whatever happened before, nothing is stuck or left over. */
static void exchange(struct conform_rank *r, uint64_t tag, size_t size_bytes)
{
	uint8_t *out = malloc(size_bytes + 1), *in = malloc(size_bytes + 1);
	struct conform_request send, recv;

	CONFORM(out != NULL && in != NULL, "memory");
	conform_fill(out, size_bytes, tag + r->rank);
	conform_recv(r, &recv, 1 - r->rank, tag, in, size_bytes);
	conform_send(r, &send, 1 - r->rank, tag, out, size_bytes);
	conform_finish_ok(r, &recv);
	conform_finish_ok(r, &send);
	conform_verify(in, size_bytes, tag + 1 - r->rank);
	free(out);
	free(in);
}

/* ---- Receives ---- */

struct visited {
	uint64_t count, tag_sum;
	uint32_t peer;
	uint64_t stop_after;
};

static bool visit(void *arg, uint32_t peer, struct rb_tag tag, const struct rb_signature *signature)
{
	struct visited *v = arg;
	const struct rb_signature expected = conform_signature(sizeof(uint64_t));

	if (tag.step == 100)
		return false; /* The sender has gone on to what follows. */
	CONFORM(rb_signature_same(signature, &expected), "the message's own signature");
	v->count++;
	v->tag_sum += tag.step;
	v->peer = peer;
	return v->count == v->stop_after;
}

/* A receive that is taken back leaves its message to be seen, and to the next receive. */
static void receive_recalled(struct conform_rank *r)
{
	struct visited v = { .stop_after = 0 };
	struct conform_request c[3], send;
	uint64_t words[3] = { 0 };

	conform_barrier(r, "receives");
	if (r->rank == 0) {
		for (uint64_t i = 0; i < 3; i++)
			conform_recv(r, &c[i], 1, 7 + i, &words[i], sizeof(words[i]));
		CONFORM(r->ops->recall(r->ep, &c[0].request), "unmet");
		CONFORM(c[0].request.state == RB_REQUEST_IDLE, "as if never posted");
		CONFORM(r->ops->recall(r->ep, &c[2].request), "unmet");
		CONFORM(!r->ops->unmatched(r->ep, visit, &v) && v.count == 0, "nothing came");
		conform_barrier(r, "recalled");
		conform_finish_ok(r, &c[1]);
		CONFORM(!r->ops->recall(r->ep, &c[1].request), "it is done");
		conform_barrier(r, "sent");
		for (uint64_t since = r->ops->now_ns(r->ep); v.count != 2;) {
			v = (struct visited) { .stop_after = 0 };
			CONFORM(!r->ops->unmatched(r->ep, visit, &v), "nobody stopped it");
			CONFORM(v.count <= 2, "the second one was received");
			if (!conform_poll(r))
				conform_pause(r);
			conform_expire(r, since, "two messages without a receive");
		}
		CONFORM(v.tag_sum == 16 && v.peer == 1, "tags 7 and 9, of rank 1");
		v = (struct visited) { .stop_after = 1 };
		CONFORM(r->ops->unmatched(r->ep, visit, &v) && v.count == 1, "stopped");
		for (uint64_t i = 0; i < 3; i += 2) {
			conform_recv(r, &c[i], 1, 7 + i, &words[i], sizeof(words[i]));
			conform_finish_ok(r, &c[i]);
		}
		for (uint64_t i = 0; i < 3; i++)
			ck_assert_uint_eq(words[i], 50 + i);
		v = (struct visited) { .stop_after = 0 };
		CONFORM(!r->ops->unmatched(r->ep, visit, &v) && v.count == 0, "all received");
	} else {
		conform_barrier(r, "recalled");
		for (uint64_t i = 0; i < 3; i++) {
			uint64_t word = 50 + i;

			conform_send(r, &send, 0, 7 + i, &word, sizeof(word));
			conform_finish_ok(r, &send);
		}
		conform_barrier(r, "sent");
	}
	exchange(r, 100, MIB);
}

START_TEST(test_receive_recalled)
{
	conform_run(2, receive_recalled);
}
END_TEST

static void receive_unmatched(struct conform_rank *r)
{
	struct conform_request c[3];
	uint64_t words[3] = { 1, 2, 3 };

	for (uint64_t i = 0; i < 3; i++)
		conform_recv(r, &c[i], 1 - r->rank, i, &words[i], sizeof(words[i]));
	conform_cancel(r, &c[1]);
	ck_assert_int_eq(c[1].request.status, RUBATO_ERR_CANCELLED);
	conform_barrier(r, "cancelled receives");
	for (uint64_t i = 0; i < 3; i++) {
		struct conform_request send;
		uint64_t word = 40 + i;

		conform_send(r, &send, 1 - r->rank, i, &word, sizeof(word));
		conform_finish_ok(r, &send); /* Small: needs no receive. */
	}
	conform_finish_ok(r, &c[0]);
	conform_finish_ok(r, &c[2]);
	ck_assert_uint_eq(words[0], 40);
	ck_assert_uint_eq(words[1], 2); /* Not touched. */
	ck_assert_uint_eq(words[2], 42);
	/* The message of the cancelled receive still comes to the next one. */
	conform_recv(r, &c[1], 1 - r->rank, 1, &words[1], sizeof(words[1]));
	conform_finish_ok(r, &c[1]);
	ck_assert_uint_eq(words[1], 41);
	exchange(r, 100, MIB);
}

START_TEST(test_receive_unmatched)
{
	conform_run(2, receive_unmatched);
}
END_TEST

static void poll_times(struct conform_rank *r, struct conform_request *c, uint64_t polls)
{
	for (uint64_t i = 0; i < polls && c->request.state != RB_REQUEST_DONE; i++) {
		(void)conform_poll(r);
		conform_pause(r);
	}
}

/* The buffer is the backend's, and may be written by another thread: it is only looked at. */
__attribute__((noinline, no_sanitize("thread"))) static uint64_t peek(const void *place)
{
	return *(const volatile uint64_t *)place;
}

/* Until eight bytes of the message, somewhere in its middle, have come. */
static void poll_until_written(struct conform_rank *r, struct conform_request *c,
			       const uint8_t *place)
{
	const uint64_t blank = UINT64_C(0x0101010101010101);
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (c->request.state != RB_REQUEST_DONE && peek(place) == blank) {
		if (conform_poll(r))
			continue;
		conform_expire(r, since_ns, "the middle of a message");
		conform_pause(r);
	}
}

/*
 * A large receive is cancelled at every stage that a number of polls can reach. The sender's
 * request ends, or is cancelled; then all goes on.
 */
static void receive_midway(struct conform_rank *r)
{
	uint8_t *large = malloc(3 * MIB), *copy = malloc(3 * MIB);
	uint64_t tag = 0;

	CONFORM(large != NULL && copy != NULL, "memory");
	for (uint32_t polls = 0; polls < 24; polls += polls_step()) {
		struct conform_request c;

		tag += 2;
		conform_barrier(r, "the next receive to be cancelled");
		if (r->rank == 0) {
			conform_fill(large, 3 * MIB, tag);
			conform_send(r, &c, 1, tag, large, 3 * MIB);
			conform_barrier(r, "a cancelled receive");
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
		} else {
			memset(large, 1, 3 * MIB);
			conform_recv(r, &c, 0, tag, large, 3 * MIB);
			if (polls % 2 == 0)
				poll_times(r, &c, polls);
			else
				poll_until_written(r, &c, large + polls * 120000);
			if (c.request.state != RB_REQUEST_DONE) {
				conform_cancel(r, &c);
				memcpy(copy, large, 3 * MIB);
			} else {
				memcpy(copy, large, 3 * MIB);
				conform_verify(large, 3 * MIB, tag);
			}
			conform_barrier(r, "a cancelled receive");
		}
		exchange(r, tag + 1, 200000);
		if (r->rank == 1)
			CONFORM(memcmp(copy, large, 3 * MIB) == 0, "written after cancel");
	}
	free(large);
	free(copy);
}

START_TEST(test_receive_midway)
{
	conform_run(2, receive_midway);
}
END_TEST

/* ---- Sends ---- */

/* Sent, not received, withdrawn; a new message with the same tag is the one that arrives. */
static void send_unmatched(struct conform_rank *r)
{
	static const size_t sizes[] = { 100000, MIB, 5 * MIB };

	for (uint64_t i = 0; i < 3; i++) {
		uint8_t *large = malloc(sizes[i]);
		struct conform_request c;
		uint64_t gone;

		CONFORM(large != NULL, "memory");
		if (r->rank == 0) {
			conform_fill(large, sizes[i], 1);
			conform_send(r, &c, 1, i, large, sizes[i]);
			for (int k = 0; k < 10 * (int)i; k++)
				(void)conform_poll(r);
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
			/* Small ones may be on their way already: then that is what arrives. */
			gone = c.request.status == RUBATO_OK;
			ck_assert(!gone || sizes[i] < MIB);
			atomic_store(&r->shared->word[i], gone);
			conform_barrier(r, "a cancelled send");
			conform_fill(large, sizes[i], 2);
			if (!gone)
				conform_send(r, &c, 1, i, large, sizes[i]);
			conform_finish_ok(r, &c);
		} else {
			conform_barrier(r, "a cancelled send");
			gone = atomic_load(&r->shared->word[i]);
			conform_recv(r, &c, 0, i, large, sizes[i]);
			conform_finish_ok(r, &c);
			conform_verify(large, sizes[i], gone ? 1 : 2);
		}
		free(large);
	}
	exchange(r, 100, MIB);
}

START_TEST(test_send_unmatched)
{
	conform_run(2, send_unmatched);
}
END_TEST

#define LONG_BYTES (5 * MIB) /* More than several rails take at once. */

/*
 * A large send is cancelled after some polls, its source is overwritten, and the same tag is sent
 * again: the receive, posted once, gets the second message, whole. If the first went through
 * before the cancel, the receive has that, whole.
 */
static void send_midway(struct conform_rank *r)
{
	uint8_t *large = malloc(LONG_BYTES);
	uint32_t caught = 0;

	CONFORM(large != NULL, "memory");
	for (uint64_t polls = 0; polls < 24; polls += polls_step()) {
		struct conform_request c;
		uint64_t gone = 0;

		conform_barrier(r, "the next send to be cancelled");
		if (r->rank == 0) {
			conform_fill(large, LONG_BYTES, 1);
			conform_send(r, &c, 1, polls, large, LONG_BYTES);
			poll_times(r, &c, polls);
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
			gone = c.request.status == RUBATO_OK;
			caught += !gone;
			conform_fill(large, LONG_BYTES, 2);
			atomic_store(&r->shared->word[0], gone);
			if (!gone) {
				conform_send(r, &c, 1, polls, large, LONG_BYTES);
				conform_finish_ok(r, &c);
			}
		} else {
			conform_recv(r, &c, 0, polls, large, LONG_BYTES);
			conform_finish_ok(r, &c);
			conform_barrier(r, "a cancelled send");
			gone = atomic_load(&r->shared->word[0]);
			conform_verify(large, LONG_BYTES, gone ? 1 : 2);
			continue;
		}
		conform_barrier(r, "a cancelled send");
	}
	ck_assert(r->rank == 1 || caught > 0); /* Else this tested nothing. */
	free(large);
	exchange(r, 1000, MIB);
}

START_TEST(test_send_midway)
{
	conform_run(2, send_midway);
}
END_TEST

/* Does not poll: the endpoint knows only what it has read before. */
static void await_word(struct conform_rank *r, uint32_t index, const char *what)
{
	for (uint64_t since_ns = r->ops->now_ns(r->ep);
	     atomic_load(&r->shared->word[index]) == 0;) {
		conform_expire(r, since_ns, what);
		conform_pause(r);
	}
}

/*
 * A message is refused, as its receive is for another size, while its sender takes it back. Both
 * agree: it was sent, and the receive is MISMATCH; or it was not, and the receive has the next one.
 */
static void send_refused(struct conform_rank *r)
{
	uint8_t *large = malloc(MIB);
	uint32_t caught = 0;

	CONFORM(large != NULL, "memory");
	for (uint32_t i = 0; i < 24; i++) {
		struct conform_request c;
		uint64_t word = 0;

		conform_barrier(r, "the next send to be refused");
		if (r->rank == 0) {
			conform_fill(large, MIB, 1);
			conform_send(r, &c, 1, i, large, MIB);
			conform_barrier(r, "its announcement");
			await_word(r, 2 * i, "a receive of another size");
			poll_times(r, &c, i / 2);
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
			caught += c.request.status == RUBATO_ERR_CANCELLED;
			atomic_store(&r->shared->word[2 * i + 1],
				     c.request.status == RUBATO_OK ? 1 : 2);
			word = 1000 + i;
			conform_send(r, &c, 1, i, &word, sizeof(word));
			conform_finish_ok(r, &c);
			continue;
		}
		conform_barrier(r, "its announcement");
		conform_recv(r, &c, 0, i, &word, sizeof(word));
		poll_times(r, &c, i % 2 * 10);
		atomic_store(&r->shared->word[2 * i], 1);
		conform_finish(r, &c);
		await_word(r, 2 * i + 1, "the end of the send");
		if (atomic_load(&r->shared->word[2 * i + 1]) == 1) {
			ck_assert_int_eq(c.request.status, RUBATO_ERR_MISMATCH);
			ck_assert_uint_eq(c.request.their_bytes, MIB);
			conform_recv(r, &c, 0, i, &word, sizeof(word));
			conform_finish(r, &c);
		}
		ck_assert_int_eq(c.request.status, RUBATO_OK);
		ck_assert_uint_eq(word, 1000 + i);
	}
	/* Else this tested nothing; in virtual time both hear of a refusal at once. */
	ck_assert(r->rank == 1 || caught > 0 || (r->ops->caps & RB_CAP_VIRTUAL_TIME) != 0);
	free(large);
	exchange(r, 1000, MIB);
}

START_TEST(test_send_refused)
{
	conform_run(2, send_refused);
}
END_TEST

static bool visit_empty(void *arg, uint32_t peer, struct rb_tag tag,
			const struct rb_signature *signature)
{
	(void)peer;
	(void)signature;
	*(uint32_t *)arg += tag.step >= 10000 && tag.step < 20000;
	return false;
}

/* Empty messages beyond the credit, taken back while they are received: each is there once. */
static void send_empty(struct conform_rank *r)
{
	enum { COUNT = 500, BYTES = 9000, EMPTY = 60, TAG = 10000 };
	struct conform_request *c = calloc(COUNT + EMPTY, sizeof(*c));
	uint8_t *bytes = calloc(1, BYTES);
	uint32_t caught = 0, held_back = 0, left_over = 0;

	CONFORM(c != NULL && bytes != NULL, "memory");
	if (r->rank == 0) {
		for (uint64_t i = 0; i < COUNT; i++)
			conform_send(r, &c[i], 1, i, bytes, BYTES);
		for (uint64_t i = COUNT; i < COUNT + EMPTY; i++)
			conform_send(r, &c[i], 1, TAG + i, NULL, 0);
		poll_times(r, &c[COUNT + EMPTY - 1], 1000); /* What may leave does. */
		conform_barrier(r, "announcements");
		atomic_store(&r->shared->word[1], 1); /* No polls from here on. */
		await_word(r, 0, "receives of empty messages");
		for (uint64_t i = COUNT; i < COUNT + EMPTY; i++)
			held_back += c[i].request.state != RB_REQUEST_DONE;
		for (uint64_t i = COUNT + EMPTY; i-- > COUNT;) { /* The last are held back. */
			poll_times(r, &c[i], i > COUNT + EMPTY / 2 ? 0 : i % 3);
			if (c[i].request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c[i]);
			if (c[i].request.status == RUBATO_OK)
				continue;
			caught++;
			conform_send(r, &c[i], 1, TAG + i, NULL, 0);
		}
		for (uint64_t i = 0; i < COUNT; i++)
			if (c[i].request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c[i]);
		/* Over verbs they take slots, not credit, and none is held back. */
		ck_assert(caught > 0 || held_back == 0 ||
			  (r->ops->caps & RB_CAP_VIRTUAL_TIME) != 0);
	} else {
		conform_barrier(r, "announcements");
		await_word(r, 1, "a sender that does not poll");
		for (uint64_t i = COUNT; i < COUNT + EMPTY; i++)
			conform_recv(r, &c[i], 0, TAG + i, NULL, 0);
		atomic_store(&r->shared->word[0], 1);
	}
	for (uint64_t i = COUNT; i < COUNT + EMPTY; i++)
		conform_finish_ok(r, &c[i]);
	exchange(r, 30000, MIB);
	(void)r->ops->unmatched(r->ep, visit_empty, &left_over);
	CONFORM(left_over == 0, "%u empty messages came twice", left_over);
	free(c);
	free(bytes);
}

START_TEST(test_send_empty)
{
	conform_run(2, send_empty);
}
END_TEST

/*
 * A receive is left whose message, of its size or another, its sender takes back at that moment.
 * Both agree whether it was sent, and nothing comes into the buffer any more.
 */
static void receive_left(struct conform_rank *r)
{
	uint8_t *large = malloc(MIB);
	uint32_t asked = 0;

	CONFORM(large != NULL, "memory");
	for (uint32_t i = 0; i < 24; i++) {
		struct conform_request c;
		uint64_t word = 0;
		bool sent, pending;

		conform_barrier(r, "the next receive to be left");
		if (r->rank == 0) {
			conform_fill(large, MIB, 1);
			conform_send(r, &c, 1, i, large, MIB);
			conform_barrier(r, "its announcement");
			await_word(r, 2 * i, "a receive that is left");
			poll_times(r, &c, i / 4);
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
			sent = c.request.status == RUBATO_OK;
			atomic_store(&r->shared->word[2 * i + 1], sent ? 1 : 2);
			word = 1000 + i;
			conform_send(r, &c, 1, i, &word, sizeof(word));
			conform_finish_ok(r, &c);
			continue;
		}
		conform_barrier(r, "its announcement");
		conform_recv(r, &c, 0, i, large, i % 2 == 0 ? MIB : sizeof(word));
		poll_times(r, &c, i % 3);
		if (c.request.state == RB_REQUEST_DONE) { /* It was quick. */
			atomic_store(&r->shared->word[2 * i], 1);
			pending = false;
		} else {
			pending = r->ops->leave(r->ep, &c.request);
			memset(large, 9, MIB);
			atomic_store(&r->shared->word[2 * i], 1);
		}
		asked += pending;
		if (pending)
			conform_finish(r, &c);
		await_word(r, 2 * i + 1, "the end of the send");
		sent = atomic_load(&r->shared->word[2 * i + 1]) == 1;
		if (pending) {
			ck_assert_int_eq(c.request.status, sent ? RUBATO_OK : RUBATO_ERR_CANCELLED);
			for (uint32_t k = 0; k < MIB; k++)
				CONFORM(large[k] == 9, "written after it was left");
		}
		conform_recv(r, &c, 0, i, &word, sizeof(word));
		conform_finish_ok(r, &c);
		ck_assert_uint_eq(word, 1000 + i);
	}
	ck_assert(r->rank == 0 || asked > 0); /* Else this tested nothing. */
	free(large);
	exchange(r, 1000, MIB);
}

START_TEST(test_receive_left)
{
	if (conform_backend.ops->leave != NULL)
		conform_run(2, receive_left);
}
END_TEST

/*
 * A receive that is left when its message has been written by its sender alone, which has begun
 * with the next one since: that it was sent is heard of all the same.
 */
static void receive_left_written(struct conform_rank *r)
{
	uint8_t *large = malloc(MIB);
	uint32_t pending = 0;

	CONFORM(large != NULL, "memory");
	for (uint32_t i = 0; i < 24; i++) {
		struct conform_request c, next;

		conform_barrier(r, "a receive to be left");
		if (r->rank == 0) {
			conform_fill(large, MIB, i);
			conform_send(r, &c, 1, 2 * i, large, MIB);
			conform_barrier(r, "its announcement");
			await_word(r, 2 * i, "a receive that has met it");
			poll_times(r, &c, 3000);
			conform_send(r, &next, 1, 2 * i + 1, large, MIB);
			atomic_store(&r->shared->word[2 * i + 1], 1);
			conform_finish_ok(r, &c);
			conform_finish_ok(r, &next);
			continue;
		}
		conform_recv(r, &c, 0, 2 * i, large, MIB);
		conform_barrier(r, "its announcement");
		poll_times(r, &c, 1 + i % 8);
		atomic_store(&r->shared->word[2 * i], 1);
		await_word(r, 2 * i + 1, "the next one");
		if (c.request.state != RB_REQUEST_DONE && r->ops->leave(r->ep, &c.request)) {
			pending++;
			conform_finish_ok(r, &c);
		} else if (c.request.status == RUBATO_ERR_CANCELLED) { /* It had met nothing. */
			conform_recv(r, &c, 0, 2 * i, large, MIB);
			conform_finish_ok(r, &c);
		}
		conform_recv(r, &next, 0, 2 * i + 1, large, MIB);
		conform_finish_ok(r, &next);
		conform_verify(large, MIB, i);
	}
	if (r->rank == 1 && strcmp(conform_backend.name, "shm_processes") == 0)
		ck_assert_uint_gt(pending, 0); /* Else this tested nothing. */
	free(large);
	exchange(r, 1000, MIB);
}

START_TEST(test_receive_left_written)
{
	if (conform_backend.ops->leave != NULL)
		conform_run(2, receive_left_written);
}
END_TEST

/* Many sends, most of them queued or held back, all cancelled: no trace is left of them. */
static void send_many(struct conform_rank *r)
{
	enum { COUNT = 500, BYTES = 9000 };
	struct conform_request *c = calloc(COUNT, sizeof(*c));
	uint8_t *bytes = calloc(1, BYTES);
	uint32_t cancelled = 0;

	CONFORM(c != NULL && bytes != NULL, "memory");
	if (r->rank == 0) {
		for (uint64_t i = 0; i < COUNT; i++)
			conform_send(r, &c[i], 1, i, bytes, BYTES);
		for (uint64_t i = COUNT; i-- > 0;) {
			if (c[i].request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c[i]);
			cancelled += c[i].request.status == RUBATO_ERR_CANCELLED;
		}
		ck_assert_uint_gt(cancelled, 0);
	}
	conform_barrier(r, "many cancelled sends");
	for (uint64_t i = 0; i < 100; i++)
		exchange(r, 10000 + i, 200 * i);
	free(c);
	free(bytes);
}

START_TEST(test_send_many)
{
	conform_run(2, send_many);
}
END_TEST

/* A cancelled put: nothing is written after cancel() returns. */
static void put_midway(struct conform_rank *r)
{
	enum { BYTES = 4 * MIB };
	struct rb_region *region = NULL;
	struct rb_remote *remote = NULL;
	uint8_t *source = malloc(BYTES);
	struct conform_request c;

	CONFORM(source != NULL, "memory");
	ck_assert_int_eq(r->ops->region_alloc(r->ep, BYTES, &region), RUBATO_OK);
	r->shared->key[r->rank].size_bytes = RB_KEY_BYTES_MAX;
	ck_assert_int_eq(r->ops->region_key(r->ep, region, r->shared->key[r->rank].bytes,
					    &r->shared->key[r->rank].size_bytes),
			 RUBATO_OK);
	conform_barrier(r, "keys");
	ck_assert_int_eq(r->ops->remote_open(r->ep, 1 - r->rank, r->shared->key[1 - r->rank].bytes,
					     r->shared->key[1 - r->rank].size_bytes, &remote),
			 RUBATO_OK);
	memset(source, 7, BYTES);
	for (uint64_t i = 0; i < 8; i++) {
		if (r->rank == 0) {
			conform_put(r, &c, 1, i, source, BYTES, remote, 0);
			for (uint64_t k = 0; k < i && c.request.state != RB_REQUEST_DONE; k++)
				(void)conform_poll(r);
			if (c.request.state != RB_REQUEST_DONE)
				conform_cancel(r, &c);
		}
		exchange(r, 100 + i, 64);
	}
	r->ops->remote_close(r->ep, remote);
	free(source);
	exchange(r, 200, MIB);
}

START_TEST(test_put_midway)
{
	if ((conform_backend.ops->caps & RB_CAP_PUT) != 0)
		conform_run(2, put_midway);
}
END_TEST

TCase *conform_cancel_case(void)
{
	TCase *t = tcase_create("cancel");

	tcase_add_test(t, test_receive_recalled);
	tcase_add_test(t, test_receive_unmatched);
	tcase_add_test(t, test_receive_midway);
	tcase_add_test(t, test_send_unmatched);
	tcase_add_test(t, test_send_midway);
	tcase_add_test(t, test_send_refused);
	tcase_add_test(t, test_send_empty);
	tcase_add_test(t, test_receive_left);
	tcase_add_test(t, test_receive_left_written);
	tcase_add_test(t, test_send_many);
	tcase_add_test(t, test_put_midway);
	return t;
}
