/* open.h -- makes communicators: for rubato_init*, the simulator, splits and tests. */
#ifndef RB_RUNTIME_OPEN_H
#define RB_RUNTIME_OPEN_H

#include "runtime/startup/setup.h"

/* Errors: those of the transports and the bootstrap; MISMATCH when ranks' settings disagree. */
RB_NODISCARD rubato_status rb_comm_open(const struct rb_setup *setup, rubato_comm **out);

#endif
