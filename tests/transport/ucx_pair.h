/*
 * ucx_pair.h -- for tests of UCX's backend: two ranks that one thread drives by turns.
 */
#ifndef RB_TESTS_UCX_PAIR_H
#define RB_TESTS_UCX_PAIR_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "tests/check_main.h"
#include "transport/ucx/ucx.h"

#define SECOND_NS 1000000000u
#define DEADLINE_NS (20ull * SECOND_NS)
#define LARGE (8u << 20)

static const struct rb_transport_ops *const ops = &rb_transport_ucx;

struct address {
	size_t size_bytes;
	uint8_t bytes[RB_ADDRESS_BYTES_MAX];
};

static inline struct rb_endpoint *open_rank(uint32_t rank, uint32_t rank_count, bool tcp_only,
					    struct address *address)
{
	struct rb_transport_options options = {
		.rank = rank,
		.rank_count = rank_count,
		.tcp_only = tcp_only,
		.interface = tcp_only ? "lo" : NULL,
		.job = { 1, 2, 3 },
	};
	struct rb_endpoint *ep;

	ck_assert_msg(ops->open(&options, &ep) == RUBATO_OK, "open: %s", rubato_error_text());
	address->size_bytes = sizeof(address->bytes);
	ck_assert_int_eq(ops->address(ep, address->bytes, &address->size_bytes), RUBATO_OK);
	return ep;
}

static inline rubato_status connect_rank(struct rb_endpoint *ep, const struct address *address,
					 uint64_t wait_ns)
{
	const void *bytes[4];
	size_t sizes[4];
	bool use[4] = { true, true, true, true };

	for (uint32_t r = 0; r < ep->rank_count; r++) {
		bytes[r] = address[r].bytes;
		sizes[r] = address[r].size_bytes;
	}
	return ops->connect(ep, bytes, sizes, use, rb_clock_ns() + wait_ns);
}

struct pair { /* Two ranks that one thread drives in turn, once they are connected. */
	struct rb_endpoint *ep[2];
	struct address address[2];
	rubato_status status;
};

static inline void *connect_second(void *arg)
{
	struct pair *pair = arg;

	pair->status = connect_rank(pair->ep[1], pair->address, DEADLINE_NS);
	return NULL;
}

static inline void pair_open(struct pair *pair, bool tcp_only)
{
	pthread_t thread;

	for (uint32_t r = 0; r < 2; r++)
		pair->ep[r] = open_rank(r, 2, tcp_only, &pair->address[r]);
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_second, pair), 0);
	ck_assert_msg(connect_rank(pair->ep[0], pair->address, DEADLINE_NS) == RUBATO_OK, "%s",
		      rubato_error_text());
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(pair->status, RUBATO_OK);
}

static inline void pair_poll(struct pair *pair)
{
	(void)ops->poll(pair->ep[0]);
	(void)ops->poll(pair->ep[1]);
}

static inline void pair_close(struct pair *pair)
{
	for (uint32_t r = 0; r < 2; r++)
		ops->close(pair->ep[r], false, rb_clock_ns() + SECOND_NS);
}

static inline void prepare(struct rb_request *q, uint32_t peer, uint64_t tag, void *buffer,
			   size_t size_bytes)
{
	memset(q, 0, sizeof(*q));
	q->peer = peer;
	q->tag = (struct rb_tag) { 0, tag };
	q->buffer = buffer;
	q->size_bytes = size_bytes;
}

#define UNTIL(step, condition)                                                                     \
	do {                                                                                       \
		uint64_t until_end_ns_ = rb_clock_ns() + DEADLINE_NS;                              \
		while (!(condition)) {                                                             \
			ck_assert_msg(rb_clock_ns() < until_end_ns_, "in vain: %s", #condition);   \
			step;                                                                      \
			rb_yield();                                                                \
		}                                                                                  \
	} while (0)

static inline struct rb_ucx *ux_of(struct pair *pair, uint32_t rank)
{
	return (struct rb_ucx *)pair->ep[rank];
}

#endif
