/* shm_pieces.h -- which messages within a node leave at once, and in which pieces: of shared
 * memory, and as the simulator has it (transport/sim/sim_way.h). */
#ifndef RB_TRANSPORT_SHM_PIECES_H
#define RB_TRANSPORT_SHM_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RB_SHM_INLINE_MAX 1088u  /* Up to here in cells, else in buffers. */
#define RB_SHM_BULKS 20u         /* Buffers in a segment for each peer. */
#define RB_SHM_PIECES 16u        /* At most, of a message that leaves at once. */
#define RB_SHM_BULK_BYTES 32768u /* Guess: half of a small first-level cache. */
#define RB_SHM_EAGER_MAX (RB_SHM_PIECES * RB_SHM_BULK_BYTES)
/* Measured, docs/performance.md, "Plain buffers": from here on a kernel that copies fast beats
 * them, but where two messages cross. */
#define RB_SHM_ATTACH_BYTES_MIN 131072u
/* Which is one whose copy takes less than so many of memcpy: rb_shm_kernel_judge. */
#define RB_SHM_KERNEL_COPIES 4

/* Who sends so many long ones in a row, and gets none, sends one way. */
#define RB_SHM_LONGS_ALONE 4

struct rb_shm_longs {         /* A pair's messages that could be attached, as one end has them. */
	uint32_t sent, taken; /* Sent or announced; met in the ring: counted mod 2^32. */
	bool cross;           /* The last one from the peer and ours were under way together, */
	uint32_t since;       /* and so many went since it came. */
};

/* A message leaves, or is announced. Returns what its cell says. */
static inline uint32_t rb_shm_long_sent(struct rb_shm_longs *longs, size_t size_bytes)
{
	if (size_bytes >= RB_SHM_ATTACH_BYTES_MIN) {
		longs->sent++;
		if (++longs->since >= RB_SHM_LONGS_ALONE)
			longs->cross = false;
	}
	return longs->taken;
}

/* One is met in the ring; its cell says what the peer had taken of ours. */
static inline void rb_shm_long_taken(struct rb_shm_longs *longs, uint64_t size_bytes,
				     uint32_t theirs_taken)
{
	if (size_bytes < RB_SHM_ATTACH_BYTES_MIN)
		return;
	longs->cross = theirs_taken != longs->sent;
	longs->since = 0;
	longs->taken++;
}

/* Of so many bytes what goes into the next bulk buffer. */
static inline size_t rb_shm_piece(size_t left)
{
	return left < RB_SHM_BULK_BYTES ? left : RB_SHM_BULK_BYTES;
}

#endif
