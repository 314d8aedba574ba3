/*
 * ping.h -- messages there and back between two ranks, timed, when a communicator is made. A few
 * messages one way and a small one back; the fastest of some such trips counts, as others only
 * waited longer, and not the first, which opens connections and their windows.
 */
#ifndef RB_RUNTIME_PING_H
#define RB_RUNTIME_PING_H

#include "runtime/engine/engine.h"

#define RB_PING_SMALL_BYTES 8u
#define RB_PING_LARGE_BYTES (192u << 10)

struct rb_ping;

/* Between ranks[0] and ranks[1], of which this rank is one; the first begins. Pings of the same
 * two have different numbers. */
RB_NODISCARD rubato_status rb_ping_new(struct rb_engine *engine, const uint32_t ranks[2],
				       uint32_t number, uint64_t deadline_ns, struct rb_ping **out);
void rb_ping_free(struct rb_ping *ping);
/* `count` messages there and a small one back. */
RB_NODISCARD rubato_status rb_ping_time(struct rb_ping *ping, uint64_t bytes, uint32_t count,
					uint32_t times, uint64_t *best_ns);
/* Each sends the other so many bytes at the same time, and copies them once for itself. */
#define RB_PING_EXCHANGE_BYTES (64u << 10)
RB_NODISCARD rubato_status rb_ping_exchange(struct rb_ping *ping, uint64_t bytes, uint32_t times,
					    uint64_t *best_ns);

#endif
