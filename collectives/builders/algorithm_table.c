/* algorithm_table.c -- the table, of algorithm_rows.h; and what to find in it. */
#include <string.h>

#include "collectives/builders/builders.h"

#define ANY UINT32_MAX
#define MPICH "Thakur, Rabenseifner and Gropp 2005"
#define RING "Patarasuk and Yuan 2009"
#define LANED "rings over nodes, in lanes; after Traeff and Hunold 2020"
#define CHAINED "chains over nodes, in lanes; after Traeff and Hunold 2020"
#define STAR "a message from or to each node; after Traeff 2004"
#define DIRECT "in mapped memory; after Jain et al. 2018"

#define ROW(enum_kind, text, needs, max, cut, function, origin, ...)                               \
	{ .kind = enum_kind,                                                                       \
	  .name = text,                                                                            \
	  .flags = needs,                                                                          \
	  .rank_max = max,                                                                         \
	  .blocks = RB_BLOCKS_##cut,                                                               \
	  .build = rb_build_##function,                                                            \
	  .bytes_sent = rb_sent_##function,                                                        \
	  .source = origin,                                                                        \
	  __VA_ARGS__ },
#define COST(...) .cost = { __VA_ARGS__ }
#define PHASES(...) .phases = { __VA_ARGS__ }
#define MESSAGES(...) .messages = { __VA_ARGS__ }
#define AHEAD_PHASES(...) .ahead_phases = { __VA_ARGS__ }
#define AHEAD_MESSAGES(...) .ahead_messages = { __VA_ARGS__ }
#define SENT(...) .sent = { __VA_ARGS__ }
#define REACH(how) .reach = RB_REACH_##how
#define VECTORS(...) .vectors = { __VA_ARGS__ }
#define IN_ALL(...) .messages_all = { __VA_ARGS__ }
#define MOVED(...) .vectors_all = { __VA_ARGS__ }
#define CROSSED(...) .crossed = { __VA_ARGS__ }
#define CROSSED_IN_ALL(...) .crossed_all = { __VA_ARGS__ }
/* Every rank but one gets the vector by a message. */
#define FROM_ROOT IN_ALL(.all = 2), MOVED(.all = 4), CROSSED_IN_ALL(.all = 2)

/* Of even blocks and of uneven ones. */
#define COST_GATHER_FLAT                                                                           \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), SENT(.share = 1),                               \
	     VECTORS(.one = 2, .share = 2), CROSSED(.share = 2))
#define COST_GATHER_RING                                                                           \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), REACH(NEXT),                  \
	     VECTORS(.one = 2, .share = 2), CROSSED(.share = 2))
#define COST_GATHER_DIRECT                                                                         \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2), CROSSED(.share = 1))
#define COST_GATHER_NODES                                                                          \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), VECTORS(.one = 2, .share = 2))
#define COST_GATHER_NODES_STAGED                                                                   \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), VECTORS(.one = 4, .share = 2))
#define COST_SCATTER_FLAT                                                                          \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), SENT(.share = 1),                               \
	     VECTORS(.one = 2, .share = 3), CROSSED(.share = 2))
#define COST_SCATTER_RING                                                                          \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), REACH(NEXT),                  \
	     VECTORS(.share = 7), CROSSED(.share = 2)),                                            \
		.slots_per_rank = true
#define COST_SCATTER_DIRECT                                                                        \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2, .share = -1),                 \
	     CROSSED(.share = 1))
#define COST_SCATTER_STAGED                                                                        \
	COST(PHASES(.one = 2), MESSAGES(.all = 4), VECTORS(.one = 2, .share = 1),                  \
	     CROSSED(.share = 2), .by_chunk = true)
#define COST_SCATTER_NODES                                                                         \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), VECTORS(.share = 4))
#define COST_SCATTER_NODES_STAGED                                                                  \
	COST(PHASES(.all = 1), MESSAGES(.all = 2), SENT(.share = 1), VECTORS(.share = 8))
#define COST_ROOT_FLAT                                                                             \
	COST(PHASES(.one = 1), MESSAGES(.all = 1), SENT(.share = 1), VECTORS(.one = 2),            \
	     CROSSED(.share = 1), IN_ALL(.all = 2), MOVED(.one = 2, .share = 2),                   \
	     CROSSED_IN_ALL(.share = 2))
#define COST_ROOT_TREE                                                                             \
	COST(PHASES(.log = 1), MESSAGES(.log = 1), SENT(.share = 1), VECTORS(.one = 2),            \
	     CROSSED(.share = 1), IN_ALL(.all = 2), MOVED(.one = 1, .log = 2),                     \
	     CROSSED_IN_ALL(.log = 1))
#define COST_ROOT_DIRECT                                                                           \
	COST(PHASES(.one = 1), MESSAGES(.all = 1), VECTORS(.one = 2, .share = -2),                 \
	     CROSSED(.one = 1, .share = -1), IN_ALL(.all = 2), MOVED(.one = 2),                    \
	     CROSSED_IN_ALL(.share = 1))
#define COST_ALL_FLAT                                                                              \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), SENT(.share = 1),                               \
	     VECTORS(.one = 2, .share = 2), CROSSED(.share = 2))
#define COST_ALL_PAIRWISE                                                                          \
	COST(PHASES(.one = 0.5, .all = 0.5), MESSAGES(.all = 2), SENT(.share = 1), REACH(PAIRS),   \
	     VECTORS(.one = 2, .share = 2), CROSSED(.share = 2))
#define COST_ALL_DIRECT                                                                            \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), VECTORS(.one = 2), CROSSED(.share = 1),         \
	     .by_chunk = true)
#define COST_ALL_NODES                                                                             \
	COST(PHASES(.one = 1), MESSAGES(.all = 2), SENT(.share = 1), REACH(FAR),                   \
	     VECTORS(.share = 4))
#define COST_STAR                                                                                  \
	COST(PHASES(.one = 1), MESSAGES(.one = 5, .all = 1), SENT(.share = 1), VECTORS(.share = 6))
#define COST_STAR_STAGED                                                                           \
	COST(PHASES(.one = 1), MESSAGES(.one = 4, .all = 1), SENT(.share = 1), VECTORS(.share = 9))

const struct rb_algorithm rb_algorithms[] = {
#include "collectives/algorithm_rows.h"
};
const uint32_t rb_algorithm_count = sizeof(rb_algorithms) / sizeof(rb_algorithms[0]);
_Static_assert(sizeof(rb_algorithms) / sizeof(rb_algorithms[0]) < 256, "travels as one byte");

uint32_t rb_algorithm_blocks(const struct rb_algorithm *algorithm, uint32_t rank_count,
			     const struct rb_nodes *nodes)
{
	switch (algorithm->blocks) {
	case RB_BLOCKS_RANKS:
		return rank_count;
	case RB_BLOCKS_POWER:
		return rb_power_below(rank_count);
	case RB_BLOCKS_OTHERS:
		return rb_blocks_others(rank_count);
	case RB_BLOCKS_LANES:
		return nodes != NULL ? nodes->count * nodes->least : rank_count;
	case RB_BLOCKS_LANES_POWER:
		return nodes != NULL ? rb_power_below(nodes->count) * nodes->least : rank_count;
	case RB_BLOCKS_ONE:
		break;
	}
	return 1;
}

int rb_algorithm_find(enum rb_kind kind, const char *name)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (rb_algorithms[i].kind == kind && strcmp(rb_algorithms[i].name, name) == 0)
			return (int)i;
	return -1;
}
