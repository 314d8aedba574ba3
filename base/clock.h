/*
 * clock.h -- the real clock. Read by real transports, the socket shell and tools; the core asks its
 * transport instead (struct rb_transport_ops.now_ns), so that simulated runs see virtual time.
 */
#ifndef RB_BASE_CLOCK_H
#define RB_BASE_CLOCK_H

#include <stdint.h>

uint64_t rb_clock_ns(void);                  /* CLOCK_MONOTONIC. */
void rb_clock_sleep_until(uint64_t when_ns); /* Returns at once when that has passed. */

/* now + span, or UINT64_MAX where that overflows. */
static inline uint64_t rb_deadline(uint64_t now_ns, uint64_t span_ns)
{
	return span_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + span_ns;
}

#endif
