/* test_failure.c -- a peer that vanishes is told of once; who needs it is told too; others go
 * on. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define VICTIM 1u

/* Messages between two survivors. */
static void survivors_exchange(struct conform_rank *r, uint32_t other, uint64_t tag)
{
	for (uint64_t i = 0; i < 20; i++) {
		struct conform_request send, recv;
		uint64_t out = tag + i, in = 0;

		conform_recv(r, &recv, other, tag + i, &in, sizeof(in));
		conform_send(r, &send, other, tag + i, &out, sizeof(out));
		conform_finish_ok(r, &recv);
		conform_finish_ok(r, &send);
		CONFORM(in == out, "%llu", (unsigned long long)in);
	}
}

static void expect_peer(struct conform_rank *r, struct conform_request *c)
{
	conform_finish(r, c);
	ck_assert_int_eq(c->request.status, RUBATO_ERR_PEER);
}

/* Blames rank 0, and says why, to the last byte. */
static void words_fill(uint8_t words[RB_LAST_WORDS_BYTES])
{
	for (uint32_t i = 0; i < RB_LAST_WORDS_BYTES; i++)
		words[i] = (uint8_t)(i * 5 + 1);
}

static void vanish(struct conform_rank *r)
{
	uint8_t words[RB_LAST_WORDS_BYTES];

	words_fill(words);
	r->ep->blames = 1;
	r->ep->last_words = words;
	conform_barrier(r, "requests that will be lost");
	r->ops->close(r->ep, true, r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
	r->closed = true;
}

static void survive(struct conform_rank *r)
{
	uint32_t other = 2 - r->rank;
	uint8_t *large = calloc(1, 4 * MIB);
	struct conform_request recv, second, send, late, between;
	struct rb_failure failure = { 0 };
	uint64_t since_ns, word = 0, sum = 0;
	uint8_t words[RB_LAST_WORDS_BYTES];

	CONFORM(large != NULL, "memory");
	conform_recv(r, &between, other, 9999, &sum, sizeof(sum));
	conform_recv(r, &recv, VICTIM, 1, &word, sizeof(word));
	conform_recv(r, &second, VICTIM, 2, large + 2 * MIB, 2 * MIB);
	conform_send(r, &send, VICTIM, 3, large, 2 * MIB);
	conform_barrier(r, "requests that will be lost");
	conform_leave(&(struct conform_rank) { .shared = r->shared, .rank = VICTIM });
	since_ns = r->ops->now_ns(r->ep);
	while (!r->ops->failure(r->ep, &failure)) {
		(void)conform_poll(r);
		conform_expire(r, since_ns, "the failure of rank 1");
		conform_pause(r);
	}
	ck_assert_uint_eq(failure.peer, VICTIM);
	ck_assert_int_eq(failure.status, RUBATO_ERR_PEER);
	ck_assert_uint_gt(strlen(failure.text), 0);
	words_fill(words);
	CONFORM(failure.gave_up && failure.spoke && failure.blames == 1, "%s", failure.text);
	CONFORM(memcmp(failure.last_words, words, sizeof(words)) == 0, "%s", failure.text);
	expect_peer(r, &recv);
	expect_peer(r, &second);
	expect_peer(r, &send);
	conform_recv(r, &late, VICTIM, 4, &word, sizeof(word));
	expect_peer(r, &late);
	conform_send(r, &late, VICTIM, 5, &word, sizeof(word));
	expect_peer(r, &late);
	survivors_exchange(r, other, 100);
	word = 77;
	conform_send(r, &late, other, 9999, &word, sizeof(word));
	conform_finish_ok(r, &late);
	conform_finish_ok(r, &between); /* Posted before, with another peer: untouched. */
	ck_assert_uint_eq(sum, 77);
	ck_assert_msg(!r->ops->failure(r->ep, &failure), "rank %u failed: %s", failure.peer,
		      failure.text);
	free(large);
}

static void abort_one(struct conform_rank *r)
{
	if (r->rank == VICTIM)
		vanish(r);
	else
		survive(r);
}

START_TEST(test_abort)
{
	if (!conform_backend.no_abort)
		conform_run(3, abort_one);
}
END_TEST

/* Who leaves in good order is no failure. */
static void leave_one(struct conform_rank *r)
{
	struct rb_failure failure = { 0 };
	uint32_t other = 2 - r->rank;

	for (uint32_t i = 0; i < 3; i++) { /* All have met all. */
		struct conform_request send, recv;
		uint64_t word = 0;

		conform_recv(r, &recv, i, 1, &word, sizeof(word));
		conform_send(r, &send, i, 1, &word, sizeof(word));
		conform_finish_ok(r, &recv);
		conform_finish_ok(r, &send);
	}
	conform_barrier(r, "messages before the goodbye");
	if (r->rank == VICTIM) {
		r->ops->close(r->ep, false, r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
		r->closed = true;
		atomic_store(&r->shared->word[0], 1);
		return;
	}
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (atomic_load(&r->shared->word[0]) == 0) {
		(void)conform_poll(r);
		conform_expire(r, since_ns, "the goodbye of rank 1");
		conform_pause(r);
	}
	for (uint64_t i = 0; i < 50; i++) {
		survivors_exchange(r, other, 100 * i);
		for (int k = 0; k < 1000; k++)
			(void)conform_poll(r);
		ck_assert_msg(!r->ops->failure(r->ep, &failure), "rank %u failed: %s", failure.peer,
			      failure.text);
	}
}

START_TEST(test_leave)
{
	conform_run(3, leave_one);
}
END_TEST

/* Closing with requests of all kinds under way drops them; nobody crashes, nothing leaks. */
static void close_busy(struct conform_rank *r)
{
	uint8_t *bytes = calloc(1, 4 * MIB);
	struct conform_request *c = calloc(200, sizeof(*c));
	uint32_t other = 1 - r->rank;

	CONFORM(bytes != NULL && c != NULL, "memory");
	for (uint64_t i = 0; i < 100; i++)
		conform_send(r, &c[i], other, i, bytes, 10000 * i);
	for (uint64_t i = 0; i < 20; i++)
		conform_recv(r, &c[100 + i], other, i * 5, bytes + 2 * MIB, 50000 * i);
	for (int i = 0; i < 5; i++)
		(void)conform_poll(r);
	r->ops->close(r->ep, false, r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
	r->closed = true;
	free(bytes);
	free(c);
}

START_TEST(test_close_busy)
{
	conform_run(2, close_busy);
}
END_TEST

TCase *conform_failure_case(void)
{
	TCase *t = tcase_create("failure");

	tcase_add_test(t, test_abort);
	tcase_add_test(t, test_leave);
	tcase_add_test(t, test_close_busy);
	return t;
}
