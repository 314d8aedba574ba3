/*
 * sim_way.h -- which way a message takes: how much of it leaves at once, and in which pieces, as
 * the real transports have it (transport/ucx/ucx.h between nodes, transport/shm/ within one).
 */
#ifndef RB_TRANSPORT_SIM_WAY_H
#define RB_TRANSPORT_SIM_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/shm_pieces.h"
#include "transport/transport.h"

/* Between nodes: a frame; and of how many pieces a copy may be on its way out. */
#define RB_SIM_PIECE_BYTES 65000u
#define RB_SIM_PIECES_OUT 4u
/* Within a node: the kernel copies fast, so that from where it beats pieces on both ends make one
 * copy, of what is asked for; where messages cross, of more than RB_SHM_EAGER_MAX. */
#define RB_SIM_NODE_EAGER_BYTES_MAX (RB_SHM_ATTACH_BYTES_MIN - 1)
/* Puts between nodes: what is copied, so that its source is free at once. Guess. */
#define RB_SIM_PUT_COPY_BYTES_MAX 16384u
/* Of what one may send another that has no receive yet, what large messages leave to others. */
#define RB_SIM_CREDIT_KEPT_BYTES (RB_UNEXPECTED_BYTES_MAX / 4)

enum rb_sim_way_kind {
	RB_SIM_COPIED, /* All leaves at once, from a copy: the send is done. */
	RB_SIM_AHEAD,  /* All leaves at once; done when a copy of the rest is few pieces. */
	RB_SIM_ASKED,  /* Some leaves at once, the rest when its receive is there. */
};

struct rb_sim_way {
	enum rb_sim_way_kind kind;
	uint64_t ahead_bytes;  /* Leave at once. */
	uint64_t credit_bytes; /* They hold, until the message meets its receive. */
};

/* Within a node: those of shared memory that it lies in, as their sender numbers them. */
struct rb_sim_buffers {
	uint8_t number[RB_SHM_PIECES];
	uint8_t count; /* 0: it lies in the slots. */
	uint8_t given; /* rb_shm_bulks.given when it left. */
	bool whole;    /* Left at once; else it is asked for. */
};

/* Of a message of so many bytes, where its pair's others hold credit for held_bytes; `pieces`:
 * within a node, where pieces are better than one copy: long ones go both ways at once, or the
 * kernel copies slowly. */
struct rb_sim_way rb_sim_way_of(bool near, bool pieces, uint64_t size_bytes, uint64_t held_bytes);

/* At least 1. */
static inline uint64_t rb_sim_pieces(bool near, uint64_t size_bytes)
{
	if (size_bytes == 0 || (near && size_bytes > RB_SHM_EAGER_MAX))
		return 1;
	return (size_bytes - 1) / (near ? RB_SHM_BULK_BYTES : RB_SIM_PIECE_BYTES) + 1;
}

/* The last of its pieces. */
static inline uint64_t rb_sim_last_piece_bytes(bool near, uint64_t size_bytes)
{
	return size_bytes - (rb_sim_pieces(near, size_bytes) - 1) *
				    (near ? RB_SHM_BULK_BYTES : RB_SIM_PIECE_BYTES);
}

#endif
