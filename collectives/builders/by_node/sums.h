/*
 * sums.h -- what hierarchical builders that reduce share: who drives a lane adds the operands of
 * all ranks of its node, in one pass, to what came from the node before. Mapped, they are read
 * straight out of the ranks' IN; else they come in messages.
 */
#ifndef RB_COLLECTIVES_SUMS_H
#define RB_COLLECTIVES_SUMS_H

#include "collectives/builders/by_node/lanes.h"

#define RB_SUMS_DEPTH RB_DEPTH_RING

/* Channels of the words within a node; messages there have others. */
#define RB_SUMS_ENTRY 0 /* Buffers may be touched. */
#define RB_SUMS_EXIT 1  /* They are touched no more. */

struct rb_sums { /* Of the lane that this rank drives: what is written so far. */
	const struct rb_lanes *l;
	struct rb_row entry; /* Mapped: WAITs for the others' buffers. */
	uint32_t ready;      /* By puts: what those to the next node come after. */
	uint32_t slots;
	struct rb_row first, middle, last; /* Of rb_sums_pass, by where their blocks were. */
};

/* Blocks that pass through the node together, and the channel of their messages: unique between
 * any two ranks. */
struct rb_sums_range {
	uint32_t block, blocks;
	uint16_t channel;
};

/* Mapped: waits until the others of the node are here. */
void rb_sums_enter(struct rb_writer *w, struct rb_sums *sums);
struct rb_span rb_sums_slots(struct rb_sums *sums);

/* The sum of a range over the node, and of what step `came` has brought to a slot (NULL: nothing
 * came), into `to`. Returns the step. */
uint32_t rb_sums_write(struct rb_writer *w, struct rb_sums *sums, const struct rb_sums_range *range,
		       uint32_t came, const struct rb_span *slot, struct rb_span to);

/*
 * A range on its way over nodes: received from rank `from` (RB_SELF: it begins here), summed up,
 * and sent to rank `to`; RB_SELF: it ends here, in `result`, which is an OUT of this node. Another
 * rank's is written where it lies or, not mapped, sent to it. A range that begins comes before
 * those that pass, and these before those that end. By puts sums have a place each in a vector slot
 * of the rank on the right, which has said, before `ready`, that it may be written.
 */
void rb_sums_pass(struct rb_writer *w, struct rb_sums *sums, const struct rb_sums_range *range,
		  uint32_t from, uint32_t to, struct rb_span result);

/* Mapped: tells the others of the node that their buffers are touched no more. */
void rb_sums_leave(struct rb_writer *w, const struct rb_sums *sums);

/* As one whose lane another rank drives. Mapped: its buffers are at the driver's disposal until it
 * says so. */
void rb_sums_lend(struct rb_writer *w, uint32_t driver);
/* Not mapped: a range goes to the driver. Returns the step. */
uint32_t rb_sums_give(struct rb_writer *w, uint32_t driver, const struct rb_sums_range *range);

#endif
