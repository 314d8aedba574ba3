/*
 * quota.h -- how much processor time control groups let this process have: a container with
 * --cpus=1 on a machine of 64 cores may use every core, and all of them together for one second a
 * second. Whoever spins there is stopped when its share is used up, and so is whoever it waits for.
 */
#ifndef RB_RUNTIME_QUOTA_H
#define RB_RUNTIME_QUOTA_H

#include <stdint.h>

struct rb_quota {
	uint32_t milli; /* Thousandths of a processor; 0: no limit. */
	uint64_t group; /* Names the control group that sets it; 0: none. */
};

/*
 * The narrowest limit among the group and those around it, of cgroup v2 (cpu.max) or v1
 * (cpu.cfs_quota_us), where systems mount them by custom. `root` stands before all paths: "" for
 * this machine. Where a container shows its own group as the uppermost, that one is read.
 */
struct rb_quota rb_quota_find(const char *root);

/* Cores that can be busy all the time, at least 1; 0: no limit. */
static inline uint32_t rb_quota_cores(const struct rb_quota *quota)
{
	return quota->milli >= 2000 ? quota->milli / 1000 : quota->milli > 0;
}

#endif
