/*
 * explore_sync.h -- comes before the first line of each file under test (the compiler's -include)
 * and puts the explorer under its atomics and system calls; futexes and threads, which sync_os.c
 * has, are replaced by linking.
 */
#ifndef RB_TESTS_EXPLORE_SYNC_H
#define RB_TESTS_EXPLORE_SYNC_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/sync.h"

struct explore_place {
	const char *function;
	int line;
};

uint64_t explore_load(const volatile void *at, size_t size_bytes, int order,
		      struct explore_place place);
void explore_store(volatile void *at, size_t size_bytes, uint64_t value, int order,
		   struct explore_place place);
uint64_t explore_exchange(volatile void *at, size_t size_bytes, uint64_t value, int order,
			  struct explore_place place);
uint64_t explore_add(volatile void *at, size_t size_bytes, uint64_t value, int order,
		     struct explore_place place);
/* Whether *at was `seen`, which it is afterwards in any case. */
bool explore_compare(volatile void *at, size_t size_bytes, void *seen, uint64_t value, int order,
		     struct explore_place place);
void explore_fence(int order, struct explore_place place);
void explore_pause(void);
void *explore_copy(void *to, const void *from, size_t size_bytes, struct explore_place place);
int explore_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *span,
		  const sigset_t *mask);
int explore_epoll(int epoll, struct epoll_event *events, int count, int span_ms);
ssize_t explore_write(int fd, const void *data, size_t size_bytes, struct explore_place place);
ssize_t explore_read(int fd, void *data, size_t size_bytes, struct explore_place place);

#define EXPLORE_HERE ((struct explore_place) { __func__, __LINE__ })
#define EXPLORE_TYPE(at) __typeof__((void)0, *(at))
/* A value that may go unused, as those of the real ones may. */
#define EXPLORE_VALUE(at, call) __extension__({ (EXPLORE_TYPE(at))(call); })

#undef atomic_load_explicit
#undef atomic_load
#undef atomic_store_explicit
#undef atomic_store
#undef atomic_exchange_explicit
#undef atomic_exchange
#undef atomic_fetch_add_explicit
#undef atomic_fetch_add
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_sub
#undef atomic_compare_exchange_strong_explicit
#undef atomic_thread_fence

#define atomic_load_explicit(at, order)                                                            \
	((EXPLORE_TYPE(at))explore_load((at), sizeof(*(at)), (int)(order), EXPLORE_HERE))
#define atomic_load(at) atomic_load_explicit(at, memory_order_seq_cst)
#define atomic_store_explicit(at, value, order)                                                    \
	explore_store((at), sizeof(*(at)), (uint64_t)(value), (int)(order), EXPLORE_HERE)
#define atomic_store(at, value) atomic_store_explicit(at, value, memory_order_seq_cst)
#define atomic_exchange_explicit(at, value, order)                                                 \
	EXPLORE_VALUE(at, explore_exchange((at), sizeof(*(at)), (uint64_t)(value), (int)(order),   \
					   EXPLORE_HERE))
#define atomic_exchange(at, value) atomic_exchange_explicit(at, value, memory_order_seq_cst)
#define atomic_fetch_add_explicit(at, value, order)                                                \
	EXPLORE_VALUE(at, explore_add((at), sizeof(*(at)), (uint64_t)(value), (int)(order),        \
				      EXPLORE_HERE))
#define atomic_fetch_add(at, value) atomic_fetch_add_explicit(at, value, memory_order_seq_cst)
#define atomic_fetch_sub_explicit(at, value, order)                                                \
	EXPLORE_VALUE(at, explore_add((at), sizeof(*(at)), UINT64_C(0) - (uint64_t)(value),        \
				      (int)(order), EXPLORE_HERE))
#define atomic_fetch_sub(at, value) atomic_fetch_sub_explicit(at, value, memory_order_seq_cst)
#define atomic_compare_exchange_strong_explicit(at, seen, value, order, order_failed)              \
	explore_compare((at), sizeof(*(at)), (seen), (uint64_t)(value), (int)(order), EXPLORE_HERE)
#define atomic_thread_fence(order) explore_fence((int)(order), EXPLORE_HERE)

#define rb_pause explore_pause
#define ppoll explore_ppoll
#define epoll_wait(epoll, events, count, span_ms) explore_epoll(epoll, events, count, span_ms)
#define write(fd, data, size_bytes) explore_write(fd, data, size_bytes, EXPLORE_HERE)
#define read(fd, data, size_bytes) explore_read(fd, data, size_bytes, EXPLORE_HERE)
#undef memcpy
#define memcpy(to, from, size_bytes) explore_copy(to, from, size_bytes, EXPLORE_HERE)

#endif
