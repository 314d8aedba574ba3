/* test_sleep.c -- arm, disarm, wake: who sleeps is woken, by messages and by wake(). */
#include "conformance.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

/*
 * Sleeps until something happens, as the engine does. A wake-up that is lost shows as a sleep that
 * lasts until the deadline of the suite, and fails.
 */
static void sleep_once(struct conform_rank *r, const char *what)
{
	if (r->ops->caps & RB_CAP_VIRTUAL_TIME) {
		uint64_t deadline_ns = r->ops->now_ns(r->ep) + CONFORM_DEADLINE_NS;

		r->ops->wait(r->ep, deadline_ns);
		CONFORM(r->ops->now_ns(r->ep) < deadline_ns, "rank %u was not woken for: %s",
			r->rank, what);
		return;
	}
	if (r->ops->arm(r->ep)) {
		struct pollfd p = { r->ops->descriptor(r->ep), POLLIN, 0 };
		int ready = poll(&p, 1, (int)(CONFORM_DEADLINE_NS / 1000000));

		CONFORM(ready == 1, "rank %u was not woken for: %s", r->rank, what);
	}
	r->ops->disarm(r->ep);
}

static void finish_asleep(struct conform_rank *r, struct conform_request *c, const char *what)
{
	while (c->request.state != RB_REQUEST_DONE) {
		if (!conform_poll(r))
			sleep_once(r, what);
	}
	CONFORM(c->request.status == RUBATO_OK, "%s: %s", what,
		rubato_status_name(c->request.status));
}

/* Both sides sleep between messages, in thousands of rounds, with some jitter in between. */
static void hammer(struct conform_rank *r)
{
	const uint32_t rounds = conform_rounds(3000);

	for (uint64_t i = 0; i < rounds; i++) {
		struct conform_request send, recv;
		uint64_t out = i, in = 0;
		uint64_t spins = rb_rng_below(&r->rng, 200);

		conform_recv(r, &recv, 1 - r->rank, i, &in, sizeof(in));
		if (r->rank == 1)
			finish_asleep(r, &recv, "a ping");
		for (uint64_t k = 0; k < spins; k++)
			rb_pause();
		conform_send(r, &send, 1 - r->rank, i, &out, sizeof(out));
		finish_asleep(r, &send, "a sent word");
		if (r->rank == 0)
			finish_asleep(r, &recv, "a pong");
		CONFORM(in == i, "round %llu brought %llu", (unsigned long long)i,
			(unsigned long long)in);
	}
}

START_TEST(test_hammer)
{
	conform_run(2, hammer);
}
END_TEST

/*
 * A message that comes after the last poll and before arm: the one that arm must look for. No
 * chance here, the ranks wait for each other.
 */
static void late(struct conform_rank *r)
{
	_Atomic uint64_t *turn = &r->shared->word[0];
	const uint32_t rounds = conform_rounds(200);

	for (uint64_t i = 0; i < rounds; i++) {
		struct conform_request c;
		uint64_t word = i, since_ns = r->ops->now_ns(r->ep);

		if (r->rank == 0) {
			conform_recv(r, &c, 1, i, &word, sizeof(word));
			(void)conform_poll(r);
			atomic_store(turn, 2 * i + 1);
		}
		while (atomic_load(turn) != 2 * i + 1 + (r->rank == 0)) {
			conform_expire(r, since_ns, "the other's turn");
			conform_pause(r);
		}
		if (r->rank == 1) {
			conform_send(r, &c, 0, i, &word, sizeof(word));
			conform_finish_ok(r, &c);
			conform_let_leave(r); /* From here on this rank polls no more. */
			atomic_store(turn, 2 * i + 2);
			continue;
		}
		do
			sleep_once(r, "a message between poll and arm");
		while (!conform_poll(r) && c.request.state != RB_REQUEST_DONE);
		finish_asleep(r, &c, "a message between poll and arm");
	}
}

START_TEST(test_late)
{
	conform_run(2, late);
}
END_TEST

/* Hammering with messages that need several steps of both sides, and floods that fill all
 * queues. */
static void hammer_large(struct conform_rank *r)
{
	enum { COUNT = 20, BYTES = 100000 };
	const uint32_t rounds = conform_rounds(40);
	uint8_t *out = malloc(BYTES), *in = malloc((size_t)COUNT * BYTES);
	struct conform_request sends[COUNT], recvs[COUNT];

	CONFORM(out != NULL && in != NULL, "memory");
	for (uint64_t i = 0; i < rounds; i++) {
		for (uint64_t k = 0; k < COUNT; k++)
			conform_recv(r, &recvs[k], 1 - r->rank, i * COUNT + k, in + k * BYTES,
				     BYTES - k * 5000);
		conform_fill(out, BYTES, i);
		for (uint64_t k = 0; k < COUNT; k++)
			conform_send(r, &sends[k], 1 - r->rank, i * COUNT + k, out,
				     BYTES - k * 5000);
		for (uint64_t k = 0; k < COUNT; k++) {
			finish_asleep(r, &sends[k], "a large send");
			finish_asleep(r, &recvs[k], "a large receive");
		}
		for (uint64_t k = 0; k < COUNT; k++)
			conform_verify(in + k * BYTES, (BYTES - k * 5000) / 8 * 8, i);
	}
	free(out);
	free(in);
}

START_TEST(test_hammer_large)
{
	conform_run(2, hammer_large);
}
END_TEST

/* A ring of sleepers: the token wakes one after the other. */
static void token(struct conform_rank *r)
{
	const uint32_t rounds = conform_rounds(300);
	uint32_t next = (r->rank + 1) % r->rank_count;
	uint32_t before = (r->rank + r->rank_count - 1) % r->rank_count;

	for (uint64_t i = 0; i < rounds; i++) {
		struct conform_request send, recv;
		uint64_t value = i * 10;

		if (r->rank > 0) {
			conform_recv(r, &recv, before, i, &value, sizeof(value));
			finish_asleep(r, &recv, "the token");
			value++;
		}
		conform_send(r, &send, next, i, &value, sizeof(value));
		finish_asleep(r, &send, "passing the token");
		if (r->rank == 0) {
			conform_recv(r, &recv, before, i, &value, sizeof(value));
			finish_asleep(r, &recv, "the token's return");
			CONFORM(value == i * 10 + r->rank_count - 1, "the token is %llu",
				(unsigned long long)value);
		}
	}
}

START_TEST(test_token)
{
	conform_run(4, token);
}
END_TEST

/* wake() before the sleep ends it at once, and only once; spurious disarms do no harm. */
static void wake_first(struct conform_rank *r)
{
	for (int i = 0; i < 3; i++) {
		r->ops->wake(r->ep);
		sleep_once(r, "a wake-up from before");
	}
	if (r->ops->disarm != NULL) {
		r->ops->disarm(r->ep);
		r->ops->disarm(r->ep);
	}
}

START_TEST(test_wake_first)
{
	conform_run(1, wake_first);
}
END_TEST

/* wake() from another thread, thousands of times, against the sleeper's arming. */
struct waker {
	struct conform_rank *r;
	_Atomic uint32_t asked, woken;
};

static void *waker_main(void *arg)
{
	struct waker *w = arg;
	uint32_t seen = 0;

	while (seen != UINT32_MAX) {
		uint32_t asked = atomic_load(&w->asked);

		if (asked != seen) {
			seen = asked;
			atomic_store(&w->woken, seen);
			w->r->ops->wake(w->r->ep);
		} else {
			rb_yield();
		}
	}
	return NULL;
}

static void wake_hammer(struct conform_rank *r)
{
	const uint32_t rounds = conform_rounds(3000);
	struct waker w = { .r = r };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, waker_main, &w), 0);
	for (uint32_t i = 1; i <= rounds; i++) {
		atomic_store(&w.asked, i);
		while (atomic_load(&w.woken) != i) {
			(void)conform_poll(r);
			sleep_once(r, "another thread's wake");
		}
	}
	atomic_store(&w.asked, UINT32_MAX);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(test_wake_hammer)
{
	if (conform_backend.ops->descriptor != NULL) /* Fibers have one thread. */
		conform_run(1, wake_hammer);
}
END_TEST

TCase *conform_sleep_case(void)
{
	TCase *t = tcase_create("sleep");

	tcase_add_test(t, test_hammer);
	tcase_add_test(t, test_late);
	tcase_add_test(t, test_hammer_large);
	tcase_add_test(t, test_token);
	tcase_add_test(t, test_wake_first);
	tcase_add_test(t, test_wake_hammer);
	return t;
}
