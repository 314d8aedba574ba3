/*
 * test_leaving.c -- what left() says has left arrives, whatever its sender does then; and close()
 * lets leave what is complete.
 *
 * Rank 0 posts, polls until all is complete and has left, and then calls nothing of its endpoint
 * until rank 1 has told it, past the transport, that it has everything. Rank 1 comes late, so that
 * queues are full; on networks the sockets are small, too.
 */
#include "conformance.h"

#include <stdlib.h>

#include "tests/length.h"

#define SMALL_COUNT 120u
#define SMALL_BYTES 8000u
#define LARGE_COUNT 4u
#define LARGE_BYTES 1000000u
#define LATE_NS 400000000u

enum { POSTED, THERE }; /* Shared words. */

static void word_await(struct conform_rank *r, uint32_t word, const char *what)
{
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (atomic_load(&r->shared->word[word]) == 0) {
		conform_expire(r, since_ns, what);
		if (r->ops->caps & RB_CAP_VIRTUAL_TIME)
			r->ops->sleep(r->ep, r->ops->now_ns(r->ep) + 1000);
		else
			rb_yield();
	}
}

static void leave(struct conform_rank *r)
{
	atomic_store(&r->shared->word[POSTED], 1);
	conform_let_leave(r);
	word_await(r, THERE, "rank 1 to have everything that had left");
}

static void stream(struct conform_rank *r, uint32_t count, size_t size_bytes)
{
	uint8_t *bytes = malloc((size_t)count * size_bytes);
	struct conform_request *q = calloc(count, sizeof(*q));

	CONFORM(bytes != NULL && q != NULL, "memory");
	if (r->rank == 1)
		word_await(r, POSTED, "the posts");
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *at = bytes + (size_t)i * size_bytes;

		if (r->rank == 0) {
			conform_fill(at, size_bytes, i);
			conform_send(r, &q[i], 1, i, at, size_bytes);
		} else {
			conform_recv(r, &q[i], 0, i, at, size_bytes);
		}
	}
	if (r->rank == 0)
		atomic_store(&r->shared->word[POSTED], 1);
	for (uint32_t i = 0; i < count; i++)
		conform_finish_ok(r, &q[i]);
	if (r->rank == 0) {
		leave(r);
	} else {
		for (uint32_t i = 0; i < count; i++)
			conform_verify(bytes + (size_t)i * size_bytes, size_bytes, i);
		atomic_store(&r->shared->word[THERE], 1);
	}
	free(bytes);
	free(q);
}

static void small(struct conform_rank *r)
{
	stream(r, SMALL_COUNT, SMALL_BYTES);
}

static void large(struct conform_rank *r)
{
	stream(r, LARGE_COUNT, LARGE_BYTES);
}

static void put(struct conform_rank *r)
{
	struct conform_shared *w = r->shared;
	uint8_t *bytes = malloc(LARGE_BYTES);
	struct rb_region *region = NULL;
	struct rb_remote *remote = NULL;
	struct conform_request q;

	CONFORM(bytes != NULL, "memory");
	conform_fill(bytes, LARGE_BYTES, 7);
	if (r->rank == 1) {
		ck_assert_int_eq(r->ops->region_alloc(r->ep, LARGE_BYTES, &region), RUBATO_OK);
		w->key[1].size_bytes = sizeof(w->key[1].bytes);
		ck_assert_int_eq(
			r->ops->region_key(r->ep, region, w->key[1].bytes, &w->key[1].size_bytes),
			RUBATO_OK);
	}
	conform_barrier(r, "the key");
	if (r->rank == 1) {
		word_await(r, POSTED, "the put");
		conform_recv(r, &q, 0, 3, NULL, 0);
		q.request.signature = conform_signature(0);
		conform_finish_ok(r, &q);
		conform_verify(region->base, LARGE_BYTES, 7);
		atomic_store(&w->word[THERE], 1);
		r->ops->region_drop(r->ep, region);
	} else {
		ck_assert_int_eq(r->ops->remote_open(r->ep, 1, w->key[1].bytes,
						     w->key[1].size_bytes, &remote),
				 RUBATO_OK);
		conform_put(r, &q, 1, 3, bytes, LARGE_BYTES, remote, 0);
		atomic_store(&w->word[POSTED], 1);
		conform_finish_ok(r, &q);
		leave(r);
		r->ops->remote_close(r->ep, remote);
	}
	free(bytes);
}

/* close() at once; the receiver looks for the first time long after that. */
static void closing(struct conform_rank *r)
{
	uint8_t *bytes = malloc((size_t)SMALL_COUNT * SMALL_BYTES);
	struct conform_request *q = calloc(SMALL_COUNT, sizeof(*q));

	CONFORM(bytes != NULL && q != NULL, "memory");
	if (r->rank == 1) {
		word_await(r, POSTED, "the posts");
		r->ops->sleep(r->ep, r->ops->now_ns(r->ep) + LATE_NS);
	}
	for (uint32_t i = 0; i < SMALL_COUNT; i++) {
		uint8_t *at = bytes + (size_t)i * SMALL_BYTES;

		if (r->rank == 0) {
			conform_fill(at, SMALL_BYTES, i);
			conform_send(r, &q[i], 1, i, at, SMALL_BYTES);
		} else {
			conform_recv(r, &q[i], 0, i, at, SMALL_BYTES);
		}
	}
	if (r->rank == 0)
		atomic_store(&r->shared->word[POSTED], 1);
	for (uint32_t i = 0; i < SMALL_COUNT; i++) {
		conform_finish_ok(r, &q[i]);
		if (r->rank == 1)
			conform_verify(bytes + (size_t)i * SMALL_BYTES, SMALL_BYTES, i);
	}
	if (r->rank == 0) {
		r->ops->close(r->ep, false, r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
		r->closed = true;
	}
	free(bytes);
	free(q);
}

/* Of what came whole before its sender ended, one is waited for already and the others are not. */
static void ahead(struct conform_rank *r)
{
	enum { COUNT = 6 };
	uint8_t bytes[COUNT][8];
	struct conform_request q[COUNT];

	for (uint32_t i = 0; i < COUNT && r->rank == 0; i++) {
		conform_fill(bytes[i], sizeof(bytes[i]), i);
		conform_send(r, &q[i], 1, i, bytes[i], sizeof(bytes[i]));
		conform_finish_ok(r, &q[i]);
	}
	if (r->rank == 0) {
		atomic_store(&r->shared->word[POSTED], 1);
		r->ops->close(r->ep, false, r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS);
		r->closed = true;
		return;
	}
	conform_recv(r, &q[0], 0, 0, bytes[0], sizeof(bytes[0]));
	word_await(r, POSTED, "the posts");
	r->ops->sleep(r->ep, r->ops->now_ns(r->ep) + LATE_NS);
	if (r->ops->look != NULL)
		r->ops->look(r->ep);
	(void)conform_poll(r);
	for (uint32_t i = 0; i < COUNT; i++) {
		if (i > 0)
			conform_recv(r, &q[i], 0, i, bytes[i], sizeof(bytes[i]));
		conform_finish_ok(r, &q[i]);
		conform_verify(bytes[i], sizeof(bytes[i]), i);
	}
}

static void (*const bodies[])(struct conform_rank *r) = { small, large, put, closing, ahead };

START_TEST(what_has_left_arrives)
{
	/* Of UCX: as little as a slow link takes at a time. */
	ck_assert_int_eq(setenv("UCX_TCP_SNDBUF", "128k", 1), 0);
	ck_assert_int_eq(setenv("UCX_TCP_RCVBUF", "128k", 1), 0);
	for (uint32_t i = 0; i < (test_is_interpreted() ? 2 : 5); i++)
		conform_run(2, bodies[_i]);
}
END_TEST

TCase *conform_leaving_case(void)
{
	TCase *t = tcase_create("leaving");

	tcase_add_loop_test(t, what_has_left_arrives, 0, (int)(sizeof(bodies) / sizeof(bodies[0])));
	return t;
}
