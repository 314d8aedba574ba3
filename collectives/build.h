/*
 * build.h -- what builders share: the few shapes that several of them write.
 *
 * Depths: a slot is written again `depth` chunks later, so writers depend on readers with that lag.
 */
#ifndef RB_COLLECTIVES_BUILD_H
#define RB_COLLECTIVES_BUILD_H

#include "collectives/algorithms.h"

#define RB_DEPTH 4 /* Slots of received chunks. Guess: covers one chunk in flight each way. */
/* Of a chain that reduces: over TCP at 1 Gbit/s, with chunks of 63 KiB, 4 slots reach 0.89 of the
 * rate and 8 or 16 do 0.95. */
#define RB_DEPTH_CHAIN 16
#define RB_DEPTH_RING 2   /* As RB_DEPTH, for rings, which need so many for each rank. */
#define RB_DEPTH_MAPPED 2 /* Slots that peers map: few, so that they stay in the cache. */

/* The longest vector, and the most ranks, of which RB_STEP_AHEAD steps are left out: it costs two
 * sets of slots, and a schedule of few steps. */
#define RB_AHEAD_BYTES (128u << 10)
#define RB_AHEAD_RANKS 10

#define RB_PAIRWISE_AT_ONCE 2 /* Of pairwise exchanges. Guess: one ends while one begins. */

/* The rank `distance` places to the right of `rank` (wrapping); distance <= rank_count. */
static inline uint32_t rb_right(const struct rb_build *build, uint32_t rank, uint32_t distance)
{
	return (uint32_t)(((uint64_t)rank + distance) % build->rank_count);
}

static inline uint32_t rb_left(const struct rb_build *build, uint32_t rank, uint32_t distance)
{
	return rb_right(build, rank, build->rank_count - distance);
}

/* Largest power of two up to n. */
static inline uint32_t rb_power_below(uint32_t n)
{
	return 1u << (31 - (uint32_t)__builtin_clz(n));
}

/* RB_BLOCKS_OTHERS: one for each rank but the root; of a single rank, too. */
static inline uint32_t rb_blocks_others(uint32_t n)
{
	return n > 1 ? n - 1 : 1;
}

/* Position in a tree or chain that begins at the root. */
static inline uint32_t rb_from_root(const struct rb_build *build)
{
	return rb_left(build, build->rank, build->root);
}

/* Whom the rank meets in round i < n of pairwise exchanges, itself perhaps: the same for both. */
static inline uint32_t rb_partner(const struct rb_build *build, uint32_t i)
{
	return rb_left(build, i, build->rank);
}

/* ---- The binomial tree, counted from the root: v's children are v + 1, 2, 4 ... ---- */

/* How many ranks v has below it, itself included: those from v on. */
static inline uint32_t rb_below(const struct rb_build *build, uint32_t v)
{
	uint32_t rest = build->rank_count - v, lowest = v & (~v + 1);

	return v == 0 || rest < lowest ? rest : lowest;
}

/* Their blocks: one range, or two, where it goes beyond the last rank to the first. */
struct rb_pieces {
	uint32_t count, block[2], blocks[2];
};
struct rb_pieces rb_pieces_below(const struct rb_build *build, uint32_t v);
uint64_t rb_pieces_length(const struct rb_layout *layout, const struct rb_build *build, uint32_t v);

/* ---- Ways: by SEND and RECV, or by PUT and WAIT, straight to where it is used ---- */

/* To `to`, where the peer has it: given as its own (rb_span_in and so on of RB_SELF). */
uint32_t rb_write_give(struct rb_writer *w, bool put, uint32_t peer, uint16_t channel,
		       struct rb_span from, struct rb_span to, uint32_t block, uint32_t blocks);
uint32_t rb_write_take(struct rb_writer *w, bool put, uint32_t peer, uint16_t channel,
		       struct rb_span to, uint32_t block, uint32_t blocks);

/* Says to `from` that it may put, and waits for the same word of `to`: the WAIT, on which puts to
 * it depend. */
uint32_t rb_write_ready(struct rb_writer *w, uint32_t from, uint32_t to, uint16_t channel);

/* The SEND that is written next to last in the row of all that a rank sends at once: it waits for
 * the one RB_PACE before it. So cards carry long blocks for few ranks at a time, as those come in
 * that order; short ones are copied, and wait for nothing. */
#define RB_PACE 3
static inline void rb_write_pace(struct rb_writer *w, const struct rb_row *sends)
{
	if (sends->count > RB_PACE)
		rb_write_dep(w, rb_row_at(sends, sends->count - 1 - RB_PACE), RB_DEP_ALL);
}

/* ---- Shapes ---- */

/* In mapped memory, the root copies its own block, lets all others at its buffer and waits until
 * they are done (channels 0 and 1); another rank waits for that, copies `block`, and says so. */
void rb_write_lend(struct rb_writer *w, const struct rb_build *build, struct rb_span from,
		   struct rb_span to);
void rb_write_borrow(struct rb_writer *w, uint32_t root, struct rb_span from, struct rb_span to,
		     uint32_t block);

/* Where another rank stands in a row that has one step for each, the right neighbour's first. */
static inline uint32_t rb_other(const struct rb_build *build, uint32_t peer)
{
	return rb_left(build, peer, build->rank) - 1;
}

/* NOTIFY to every other rank, which waits for nothing; WAIT for every other rank. Once each, with
 * these flags besides. */
void rb_write_notify_all(struct rb_writer *w, const struct rb_build *build, uint16_t channel,
			 uint8_t flags);
struct rb_row rb_write_wait_all(struct rb_writer *w, const struct rb_build *build, uint16_t channel,
				uint8_t flags);

/* "I am here": tells every other rank and waits for all of them, on one channel: the WAITs. */
struct rb_row rb_write_entry(struct rb_writer *w, const struct rb_build *build, uint16_t channel);

/*
 * In mapped memory, block r of everybody's IN reduced into `result` between two meetings of all
 * ranks (channels 0 and 1): IN is whole when the first is over, free again after the second.
 */
void rb_write_meet_reduce(struct rb_writer *w, const struct rb_build *build, struct rb_span result);

/*
 * With one partner after the other, blocks of an ALLTOALL(V), by messages: a few partners at a
 * time. In place a block arrives in slots and takes its place when the old one is sent. Begins as
 * zeros, but for the first of its RB_PAIRWISE_AT_ONCE * RB_DEPTH slots. Nothing else is written in
 * between.
 */
struct rb_exchanges {
	uint32_t slots, count;
	struct rb_row sends, recvs, copies; /* By partner. */
};
void rb_write_exchange(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
		       struct rb_exchanges *x);

/*
 * The same in mapped memory: the block that is for the rank is copied out of the peer's IN once
 * `entry` has come, and the peer told so. In place, where the new block must not come before the
 * old one has been fetched, a chunk waits in a slot for such a word, on channel 1. Of
 * RB_PAIRWISE_AT_ONCE * RB_DEPTH_MAPPED slots.
 */
struct rb_fetches {
	uint32_t slots, count;
	struct rb_row put_down; /* In place: by peer. */
};
void rb_write_fetch(struct rb_writer *w, const struct rb_build *build, uint32_t peer,
		    uint32_t entry, struct rb_fetches *f);

/*
 * The ring's first half: rank r ends with block r reduced, in `result`. Two ranks or more. By puts
 * partial sums go into a vector slot of the right neighbour, so that none waits for room there, but
 * after step `ready`: RB_RING_FREE, that it has read those of the instance before is known.
 */
struct rb_ring { /* The last reduction writes the result. */
	uint32_t first_send;
	struct rb_row reduces; /* n - 1, by turn. */
};
#define RB_RING_FREE UINT32_MAX
struct rb_ring rb_write_ring_reduce(struct rb_writer *w, const struct rb_build *build, bool put,
				    uint32_t ready, struct rb_span result);

/* In mapped scratch, what rank `from` has for rank `to`, one of which is the executing one. Their
 * slots alternate, RB_DEPTH_MAPPED deep. */
struct rb_span rb_staged_way(const struct rb_build *build, uint32_t from, uint32_t to);

/* Elements of all blocks but `block`, in bytes. */
static inline uint64_t rb_bytes_without(const struct rb_layout *layout, uint32_t block,
					uint32_t element_bytes)
{
	return (rb_layout_length(layout, 0, layout->block_count) -
		rb_layout_length(layout, block, 1)) *
	       element_bytes;
}

#endif
