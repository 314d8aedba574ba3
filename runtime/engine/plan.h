/*
 * plan.h -- a schedule made ready to run for one signature: which algorithm, how the vector is cut,
 * and what the engine would otherwise compute again at every call (iterations, span starts,
 * successors).
 *
 * The cache holds config.cache plans and evicts the least recently used. A plan is this rank's own
 * affair: ranks need not hit and miss alike.
 */
#ifndef RB_RUNTIME_PLAN_H
#define RB_RUNTIME_PLAN_H

#include "collectives/algorithms.h"
#include "collectives/build.h"
#include "collectives/stage.h"
#include "transport/transport.h"

struct rb_plan_key {
	uint64_t count; /* As in the public call; uneven blocks: of all, ALLTOALLV's longer side. */
	uint64_t shape; /* rb_shape.hash, or 0. */
	uint32_t root;
	uint8_t kind, element_bytes;
	uint8_t algorithm;    /* Index. */
	uint8_t in_place;     /* ALLTOALL(V): IN is OUT. */
	uint8_t coded;        /* Chosen among those that may be (rb_choice_facts): cut otherwise. */
	uint32_t apart_bytes; /* As chosen (rb_choice); or RB_APART_GIVEN. */
};
#define RB_APART_GIVEN UINT32_MAX /* The shape says who is apart. */

/* Uneven blocks, as the caller gives them: rank_count entries each, in elements. */
struct rb_shape {
	const uint64_t *counts, *offsets;         /* ALLTOALLV: IN's. No offsets: packed. */
	const uint64_t *out_counts, *out_offsets; /* ALLTOALLV: OUT's. */
	uint64_t hash;                            /* By rb_shape_hash. */
	const uint8_t *apart;                     /* RB_APART_GIVEN: per rank (rb_build). */
};

#define RB_PLAN_STEPS_SHORT 64
/* Room for one set of slots: RB_DEPTH of the vector, or of each rank's part, which is padded. */
#define RB_AHEAD_ROOM ((RB_DEPTH + 1) * (uint64_t)RB_AHEAD_BYTES)
#define RB_STRAIGHT_BYTES 4096u /* Guess: what any of its messages or its work takes at most. */
#define RB_STRAIGHT_OPERANDS 32u

/* Of a short plan's step: what the start of its message would work out again at each call. */
struct rb_plan_message {
	bool simple; /* SEND, NOTIFY, RECV or WAIT of this rank's own memory; else the rest is 0. */
	bool sends;
	uint8_t buffer;
	uint64_t tag_step;       /* As rb_tag_step adds it. */
	uint64_t at, size_bytes; /* In the buffer; SCRATCH: in the set. */
};

/* A step of the order, as straight.h carries it out. */
struct rb_plan_place { /* In a buffer, bytes from its begin; SCRATCH: from the set's. */
	uint64_t at;
	uint8_t buffer;
};
struct rb_plan_act {
	uint32_t messages; /* From this one on, up to the next that is work; 0: this is. */
	uint32_t from_count;
	const struct rb_plan_place *from;
	struct rb_plan_place to;
	uint64_t count; /* Elements. */
	bool final;     /* AVG divides here. */
};

/* What the ranks of a run have done before they start it. */
enum rb_met {
	RB_MET_NOT,
	RB_MET_ENTERED, /* RB_STEP_ENTRY steps are left out. */
	RB_MET_AHEAD,   /* RB_STEP_AHEAD steps, too. */
	RB_MET_COUNT
};

struct rb_plan {
	struct rb_plan_key key;
	const struct rb_algorithm *algorithm;
	struct rb_schedule schedule;
	struct rb_layout layout;
	uint64_t scratch_bytes; /* Of all sets. */
	uint64_t set_bytes;     /* Of one set of slots and vector slots. */
	uint64_t slots_at;      /* In a set: behind the vector slots. */
	uint64_t blocks_at;     /* Likewise: the block slots, behind those. */
	uint32_t turns;         /* rb_schedule_turns */
	uint32_t pending_steps; /* With at least one iteration. */
	uint32_t *iterations;   /* Per step. */
	uint64_t *range;        /* Per step: elements of its range. */
	uint64_t *span_start;   /* Per span: element offset at iteration 0, but in slots. */
	uint64_t *span_first; /* Per span: offset in bytes at iteration 0, from its set's begin. */
	uint32_t *successors; /* Steps that depend on a step: successor_first[s] .. [s + 1] - 1. */
	uint32_t *successor_first;
	uint64_t *blocks; /* The layout's arrays, where it has some. */
	uint8_t *apart;   /* As the builder was told, this rank's own copy; or NULL. */
	/*
	 * Short: at most 64 steps, each at most once (all small operations). Bit i is step i: what
	 * it needs, who needs it, which steps there are, which need none, by enum rb_met.
	 */
	bool is_short;
	uint64_t *needs, *wakes;
	uint64_t live[RB_MET_COUNT], first[RB_MET_COUNT];
	uint32_t live_count[RB_MET_COUNT];
	bool goes_ahead; /* RB_STEP_AHEAD steps may be left out; all ranks see it alike. */
	struct rb_plan_message *messages;
	/* Its steps, in an order for straight.h: sends and work as soon as they can be. 0: none. */
	uint8_t order[RB_PLAN_STEPS_SHORT], order_count;
	/* In this order: the acts, and those that are messages. Then all operands of the acts.
	 * NULL: nobody has carried it out so yet. */
	struct rb_plan_act *acts;
	struct rb_parcel *parcels;
	struct rb_plan_place *operands;
	/* Of each rank's buffers, how many bytes from the begin are touched in mapped memory:
	 * reach[rank * RB_BUFFER_COUNT + buffer]. NULL: no peer's memory is. */
	uint64_t *reach;
	uint64_t *put_reach; /* The same of what our puts write; NULL: there are none. */
	/* Per REDUCE, the COPY that is TAKEN by it, + 1; 0: none. NULL: there is none at all. */
	uint32_t *also;
	/* Of a staged plan (rb_plan_staged): which buffers' kinds it is for, the bytes of its slots
	 * of each kind. Those of one plan are a list, and end with it. */
	uint8_t kinds[RB_BUFFER_COUNT];
	uint8_t ways; /* rb_staging's. */
	uint64_t stage_bytes[RB_STAGE_COUNT];
	bool staged;
	struct rb_plan *staged_next;
	uint32_t users; /* Runs and operations that hold it: not evicted while positive. */
	struct rb_plan *older, *newer, *bucket_next;
};

/* Where a slot lies: an offset in bytes from the begin of its set. */
uint64_t rb_plan_slot(const struct rb_plan *plan, uint8_t buffer, uint32_t slot);
/* Likewise iteration c > 0 of a span that does not alternate. */
uint64_t rb_plan_span_later(const struct rb_plan *plan, uint32_t span_index, uint32_t c);
/* Where in the vector iteration c of a step begins, in elements. */
static inline uint64_t rb_plan_first(const struct rb_plan *plan, uint32_t step, uint32_t c)
{
	return rb_layout_offset(&plan->layout, plan->schedule.steps[step].block) +
	       c * plan->layout.chunk;
}
/* Elements of iteration c of a step. */
uint64_t rb_plan_count(const struct rb_plan *plan, uint32_t step, uint32_t c);
/* How many iterations of its step must be done before `iteration` starts. */
static inline uint32_t rb_plan_need(const struct rb_plan *plan, const struct rb_dep *dep,
				    uint32_t iteration)
{
	uint32_t last = plan->iterations[dep->step];

	if (dep->lag < 0)
		return last;
	if (iteration < (uint32_t)dep->lag)
		return 0;
	iteration = iteration - (uint32_t)dep->lag + 1;
	return iteration < last ? iteration : last;
}

/* Whether it is for each pair of ranks to work in each other's memory or not. */
static inline bool rb_plan_by_pairs(const struct rb_plan *plan)
{
	return plan->apart != NULL;
}

/* Elements of the whole vector behind a public count: some operations count per rank. */
uint64_t rb_plan_total(enum rb_kind kind, uint64_t count, uint32_t rank_count);

/* Of starts and lengths, so that packed blocks are equal however they are given. Never 0. */
uint64_t rb_shape_hash(const struct rb_shape *shape, uint32_t rank_count);
/* Whether these are a plan's. */
bool rb_plan_has_blocks(const struct rb_plan *plan, const struct rb_shape *shape);
/* `shape`: of uneven blocks (copied), else NULL. `who`: the rank, its number and nodes; the rest is
 * the key's. */
RB_NODISCARD rubato_status rb_plan_make(const struct rb_plan_key *key, const struct rb_shape *shape,
					const struct rb_choice *choice, const struct rb_build *who,
					struct rb_plan **out);
/* From a schedule that is given (tests, protocol machines): copied. */
RB_NODISCARD rubato_status rb_plan_from(const struct rb_schedule *schedule,
					const struct rb_layout *layout, uint8_t element_bytes,
					struct rb_plan **out);
/* The plan for buffers of these kinds: made when it is first asked for, the plan's own. Errors:
 * MEMORY. */
RB_NODISCARD rubato_status rb_plan_staged(struct rb_plan *plan, const struct rb_staging *staging,
					  struct rb_plan **out);
/* Of one with an order; false: no memory, and it has none from now on. */
bool rb_plan_acts_make(struct rb_plan *plan);
/* Its peers are other ranks from now on: name() of those that it was made for. */
void rb_plan_rename(struct rb_plan *plan, uint32_t (*name)(const void *arg, uint32_t peer),
		    const void *arg);
void rb_plan_free(struct rb_plan *plan);

struct rb_plan_cache {
	struct rb_plan **buckets;
	uint32_t bucket_count, plan_count, plan_max;
	uint64_t evictions;
	struct rb_plan *newest, *oldest;
};

RB_NODISCARD rubato_status rb_plan_cache_init(struct rb_plan_cache *cache, uint32_t plan_max);
void rb_plan_cache_fini(struct rb_plan_cache *cache);
/* NULL when absent; makes it the newest. */
struct rb_plan *rb_plan_cache_find(struct rb_plan_cache *cache, const struct rb_plan_key *key,
				   const struct rb_shape *shape);
/* Makes one that was found before, and not evicted since, the newest. */
void rb_plan_cache_touch(struct rb_plan_cache *cache, struct rb_plan *plan);
/* The cache owns the plan from here on. */
void rb_plan_cache_add(struct rb_plan_cache *cache, struct rb_plan *plan);

#endif
