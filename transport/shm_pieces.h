/* shm_pieces.h -- which messages within a node leave at once, and in which pieces: of shared
 * memory, and as the simulator has it (transport/sim/sim_way.h). */
#ifndef RB_TRANSPORT_SHM_PIECES_H
#define RB_TRANSPORT_SHM_PIECES_H

#include <stddef.h>

#define RB_SHM_BULKS 20u         /* Buffers in a segment for each peer. */
#define RB_SHM_PIECES 16u        /* At most, of a message that leaves at once. */
#define RB_SHM_BULK_BYTES 32768u /* Guess: half of a small first-level cache. */
#define RB_SHM_EAGER_MAX (RB_SHM_PIECES * RB_SHM_BULK_BYTES)
/* Measured, docs/performance.md, "Plain buffers": from here on a kernel that copies fast beats
 * them, but where two messages cross. */
#define RB_SHM_ATTACH_BYTES_MIN 131072u
/* Which is one whose copy takes less than so many of memcpy: rb_shm_kernel_judge. */
#define RB_SHM_KERNEL_COPIES 4

/* Of so many bytes what goes into the next bulk buffer. */
static inline size_t rb_shm_piece(size_t left)
{
	return left < RB_SHM_BULK_BYTES ? left : RB_SHM_BULK_BYTES;
}

#endif
