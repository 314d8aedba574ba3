/*
 * shm_bulks.h -- bulk buffers, which the two ranks of a pair hand to each other.
 *
 * A buffer is held by one of the two. Who sends a piece gives its buffer away with it; who has read
 * the piece holds it, and may fill it with one of its own. So in an exchange each writes where it
 * has just read, which is faster than a buffer that has always the same writer (measured:
 * docs/performance.md, "Plain buffers"). Who would hold more than RB_SHM_BULKS_KEPT gives back the
 * rest, by number, in the credit; a stream one way goes so.
 *
 * When all pieces are read each side holds RB_SHM_PIECES or more, what the longest message that
 * leaves at once needs. For each piece tells how many buffers were given back before it left: who
 * reads it takes those first. Who gave some back after its last piece held just RB_SHM_BULKS_KEPT
 * then, and has sent nothing since: it still does. So what it gave, all that the other holds and
 * all that is under way are RB_SHM_PIECES until its next piece: to take never makes too many.
 *
 * The next piece goes into the buffer on top, whose lines are asked for when the piece before has
 * left (next_bulk_prefetch); what was read comes below it.
 */
#ifndef RB_TRANSPORT_SHM_BULKS_H
#define RB_TRANSPORT_SHM_BULKS_H

#include "base/sync.h"
#include "transport/shm_pieces.h"

#define RB_SHM_BULKS_KEPT (2 * RB_SHM_BULKS - RB_SHM_PIECES)
#define RB_SHM_BULKS_GIVEN 64u /* Not yet taken: never as many. */
#define RB_SHM_BULKS_UNSEEN 8u /* So many pieces leave before one looks what was given back. */
/* Of a buffer's number, as its holder has it: it lies in the holder's segment, not the peer's. */
#define RB_SHM_BULK_OWN 0x80u
_Static_assert(2 * RB_SHM_BULKS <= RB_SHM_BULKS_GIVEN && RB_SHM_BULKS <= RB_SHM_BULK_OWN, "fits");
_Static_assert(RB_SHM_BULKS <= RB_SHM_BULKS_KEPT, "those of the begin may be kept");

struct rb_shm_credit {             /* Lines in pairs: neighbours are prefetched so. */
	_Atomic uint32_t consumed; /* Cells, counted mod 2^32. */
	_Atomic uint32_t given;    /* Bulk buffers given back, likewise; */
	_Atomic uint64_t released; /* Bytes of eager messages that met their receive. */
	uint8_t pad[48];
	/* their numbers, as who takes them has them. */
	_Atomic uint8_t which[RB_SHM_BULKS_GIVEN];
};
_Static_assert(sizeof(struct rb_shm_credit) == 128, "two cache lines");

struct rb_shm_bulks {
	uint8_t *theirs, *own; /* Those in the peer's segment, in ours. */
	struct rb_shm_credit *theirs_credit, *own_credit; /* The peer writes the first, we ours. */
	uint32_t held;
	uint32_t given, taken;          /* By us; of the peer's: counted on. */
	uint32_t unseen;                /* Pieces sent since we looked. */
	uint8_t free[2 * RB_SHM_BULKS]; /* The last is on top. */
};

/* What a cell's word says of its piece: the buffer's number, and what was given back so far. */
static inline uint32_t rb_shm_bulk_number(uint64_t word)
{
	return (uint32_t)(word >> 48) & 0xffu;
}

static inline bool rb_shm_bulk_exists(uint64_t word)
{
	return (rb_shm_bulk_number(word) & ~RB_SHM_BULK_OWN) < RB_SHM_BULKS;
}

static inline uint8_t *rb_shm_bulk_at(const struct rb_shm_bulks *b, uint32_t number)
{
	return ((number & RB_SHM_BULK_OWN) != 0 ? b->own : b->theirs) +
	       (size_t)(number & ~RB_SHM_BULK_OWN) % RB_SHM_BULKS * RB_SHM_BULK_BYTES;
}

/* shm_bulks.c: those in the peer's segment are held, and nothing was given back. */
void rb_shm_bulks_reset(struct rb_shm_bulks *b);
/* Takes so many of those that the peer gave back. */
void rb_shm_bulks_take(struct rb_shm_bulks *b, uint32_t count);
/* Whether so many are held; looks for what was given back. */
bool rb_shm_bulks_free(struct rb_shm_bulks *b, uint32_t count);
/* The piece that this word tells of was read. */
void rb_shm_bulk_read(struct rb_shm_bulks *b, uint64_t word);

#endif
