/*
 * sharing.h -- ranks that are more on one core than they need be.
 *
 * The system wakes a sleeper where it slept, and moves only who competes for a core. Ranks that
 * each sleep before the other has run long never compete, so they stay together for as long as they
 * wait for each other, at two switches a message. With more ranks than cores it leaves five on one
 * of two cores and three on the other, or three and one, for the yields of those that wait look
 * like work. Ranks of a machine tell each other where they are (rb_transport_ops.processor). A rank
 * that waits looks: a core has a share, which is what it would have if all that this rank may use
 * had as many; of those on one core the lowest ones stay, up to its share, each other goes to a
 * core which has less, and is then as free as it was. That such a core is free cannot be seen: who
 * has to wait there for a turn goes back, and tries another one later. All are looked at in the
 * same order, so that they go apart, too.
 */
#ifndef RB_RUNTIME_SHARING_H
#define RB_RUNTIME_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sync.h"
#include "runtime/startup/topology.h"

#define RB_SHARING_PATIENCE_NS 1000000u /* Guess: less than a turn of somebody else. */

/* Of a rank that may use `theirs`, evenly, what falls to the cores `mine`. */
double rb_sharing_load(const uint64_t mine[RB_CPU_WORDS], const uint64_t theirs[RB_CPU_WORDS]);
/* Of each of so many cores, to which that falls of all ranks. */
uint32_t rb_sharing_share(double load, uint32_t cores);

struct rb_sharing {
	/* Of each core of the job here, a processor; all zero: this rank stays where it is. */
	uint64_t cores[RB_CPU_WORDS];
	uint32_t share;           /* Of a core: ranks. */
	uint64_t next_ns, gap_ns; /* Of tries; the gap is twice as long after each of a series. */
	uint32_t tries;
	uint64_t moves;
};

/* Whether to look now. */
bool rb_sharing_due(struct rb_sharing *sharing, uint64_t now_ns);
/* There was something to be tried, and whether it went well. */
void rb_sharing_tried(struct rb_sharing *sharing, bool moved, uint64_t now_ns);

/* ---- A look; pure. Zeroed but for `share`; then all ranks of the machine, in their order ---- */

struct rb_sharing_look {
	uint32_t share;
	uint32_t stay[64 * RB_CPU_WORDS]; /* On each processor: up to its share. */
	uint32_t movers;                  /* So far: who is there besides. */
	uint32_t number;                  /* Ours among them, */
	bool moves;                       /* if we are one. */
};

/* `cpu` may be RB_CPU_NONE. */
void rb_sharing_add(struct rb_sharing_look *look, uint32_t cpu, bool own);
/* Which of `allowed` to go to; RB_CPU_NONE: none. */
uint32_t rb_sharing_target(const struct rb_sharing *sharing, const struct rb_sharing_look *look,
			   const uint64_t allowed[RB_CPU_WORDS]);

#endif
