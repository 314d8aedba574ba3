/*
 * hollow.h -- addresses of memory that is not there. Of simulations that only ask how long
 * something takes: what is said to lie at such an address is sent, copied and reduced in time, but
 * nobody touches it. No processor that this runs on can map the addresses: a stray access ends the
 * program.
 */
#ifndef RB_BASE_HOLLOW_H
#define RB_BASE_HOLLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RB_HOLLOW_BIT 62 /* The highest that is set in all of them, and only in them. */

static inline bool rb_hollow(const void *address)
{
	return (uint64_t)(uintptr_t)address >> RB_HOLLOW_BIT == 1;
}

static inline void rb_hollow_copy(void *to, const void *from, size_t bytes)
{
	if (bytes > 0 && !rb_hollow(to) && !rb_hollow(from))
		memcpy(to, from, bytes);
}

#endif
