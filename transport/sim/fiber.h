/*
 * fiber.h -- a function that can be left in the middle and entered again: the simulator's ranks.
 *
 * One host (the thread's own stack) enters fibers one at a time; a fiber leaves to the host only.
 * All of a fiber's calls come from one thread. The stack ends in a guard page: running over it
 * faults instead of corrupting a neighbour. The sanitizers and valgrind are told of every switch.
 */
#ifndef RB_TRANSPORT_FIBER_H
#define RB_TRANSPORT_FIBER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct rb_fiber;

/* Makes a fiber that runs main(arg) when it is first entered; stack_bytes is rounded up to pages.
 * Errors: MEMORY. */
RB_NODISCARD rubato_status rb_fiber_open(size_t stack_bytes, void (*main)(void *), void *arg,
					 struct rb_fiber **out);
/* From the host: runs the fiber until it leaves or its main returns. It must not be done. */
void rb_fiber_enter(struct rb_fiber *fiber);
/* From inside the fiber: back to the host, until it is entered again. */
void rb_fiber_leave(struct rb_fiber *fiber);
/* Whether main has returned. */
bool rb_fiber_done(const struct rb_fiber *fiber);
/* From the host. A fiber that is not done is dropped where it stands: what only its stack held is
 * lost. NULL is fine. */
void rb_fiber_close(struct rb_fiber *fiber);

#endif
