/*
 * profile.h -- what a file says of the links between nodes and of the memory within them, in place
 * of what is measured or guessed: RUBATO_PROFILE. The format is that of rubato-sim's --profile, a
 * line each, a name and a value, '#' begins a comment. Names that only the simulator has a use for
 * are read, and say nothing here.
 */
#ifndef RB_RUNTIME_PROFILE_H
#define RB_RUNTIME_PROFILE_H

#include "base/link.h"
#include "base/status.h"

struct rb_profile { /* What it does not say is 0. */
	struct rb_link network;
	struct rb_node_speed node;
};

/* Errors: ARGUMENT (what cannot be read, with its line; a latency between nodes without a
 * bandwidth, or the other way round; what the kernel copies without what a core does). */
RB_NODISCARD rubato_status rb_profile_read(const char *path, struct rb_profile *profile);

#endif
