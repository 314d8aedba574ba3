/* sim_way.c -- see sim_way.h. */
#include "transport/sim/sim_way.h"

/* What a message that waits costs besides its bytes, in units of this. */
#define HEAD_BYTES 128u
#define UNIT_BYTES 64u

static uint64_t credit_of(uint64_t size_bytes)
{
	return (size_bytes + HEAD_BYTES + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

/* Whole pieces, as long as credit is left for them and for what is kept. */
static struct rb_sim_way way_in_pieces(uint64_t size_bytes, uint64_t held_bytes)
{
	struct rb_sim_way way = { .kind = RB_SIM_ASKED };
	uint64_t most = RB_UNEXPECTED_BYTES_MAX - RB_SIM_CREDIT_KEPT_BYTES;

	while (way.ahead_bytes < size_bytes) {
		uint64_t left = size_bytes - way.ahead_bytes;
		uint64_t piece = left < RB_SIM_PIECE_BYTES ? left : RB_SIM_PIECE_BYTES;

		if (held_bytes + way.credit_bytes + credit_of(piece) > most)
			return way;
		way.ahead_bytes += piece;
		way.credit_bytes += credit_of(piece);
	}
	if (size_bytes > 0)
		way.kind = size_bytes <= RB_SIM_PIECES_OUT * RB_SIM_PIECE_BYTES ? RB_SIM_COPIED
										: RB_SIM_AHEAD;
	return way;
}

struct rb_sim_way rb_sim_way_of(bool near, bool pieces, uint64_t size_bytes, uint64_t held_bytes)
{
	uint64_t most = !near    ? RB_SIM_PIECE_BYTES
			: pieces ? RB_SHM_EAGER_MAX
				 : RB_SIM_NODE_EAGER_BYTES_MAX;

	if (size_bytes <= most && held_bytes + credit_of(size_bytes) <= RB_UNEXPECTED_BYTES_MAX)
		return (struct rb_sim_way) { RB_SIM_COPIED, size_bytes, credit_of(size_bytes) };
	if (near)
		return (struct rb_sim_way) { .kind = RB_SIM_ASKED };
	return way_in_pieces(size_bytes, held_bytes);
}
