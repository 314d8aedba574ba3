/* checker_inside.h -- what the parts of the checker share. See checker.h. */
#ifndef RB_COLLECTIVES_CHECKER_INSIDE_H
#define RB_COLLECTIVES_CHECKER_INSIDE_H

#include "collectives/checker/checker.h"

#define CHECK_NONE UINT32_MAX

struct check_edges { /* Neighbours of event e: list[first[e]] up to list[first[e + 1]]. */
	uint32_t *first, *list;
};

struct check_rank {
	const struct rb_schedule *schedule;
	uint32_t *first; /* Per step, and one more: iterations of all steps before it. */
	uint32_t *match; /* Per step: the step of its peer at the other end, or CHECK_NONE. */
	uint32_t base;   /* First event of this rank within an instance. */
	uint32_t turns;  /* rb_schedule_turns */
};

struct checker {
	const struct rb_check *in;
	struct rb_check_result *out;
	struct check_memory *memory;
	bool no_memory, stopped;
	uint64_t too_many; /* Events, more than the limit; or 0. */
	uint32_t n, copies;
	struct check_rank *ranks;
	uint32_t instance_events, event_count;
	struct check_edges before;  /* Guaranteed predecessors. */
	uint32_t *order, *position; /* A topological order of all events, and its inverse. */
};

enum check_phase { CHECK_START, CHECK_COMPLETE, CHECK_PREFIX };

struct check_event { /* Decoded. step == CHECK_NONE: the instance's begin or end. */
	uint32_t instance, rank, step, iteration;
	enum check_phase phase; /* CHECK_START: also the begin; CHECK_COMPLETE: also the end. */
};

static inline uint32_t check_begin(const struct checker *k, uint32_t instance, uint32_t rank)
{
	return instance * k->instance_events + k->ranks[rank].base;
}
static inline uint32_t check_end(const struct checker *k, uint32_t instance, uint32_t rank)
{
	return check_begin(k, instance, rank) + 1;
}
static inline uint32_t check_at(const struct checker *k, uint32_t instance, uint32_t rank,
				uint32_t step, uint32_t iteration, enum check_phase phase)
{
	return check_begin(k, instance, rank) + 2 + 3 * (k->ranks[rank].first[step] + iteration) +
	       (uint32_t)phase;
}
static inline uint32_t check_iterations(const struct checker *k, uint32_t rank, uint32_t step)
{
	return k->ranks[rank].first[step + 1] - k->ranks[rank].first[step];
}
struct check_event check_decode(const struct checker *k, uint32_t event);

/* Freed all at once, when the check is over. NULL also sets no_memory. Zeroed. */
void *check_alloc(struct checker *k, uint64_t count, size_t bytes);
/* A larger copy of an array that holds `count`, when its capacity is used up. */
void *check_grow(struct checker *k, void *array, uint64_t count, uint64_t *capacity, size_t bytes);

/* Whether the caller wants the check to end, asked in one turn of a loop out of 1,024. */
static inline bool check_stopped(struct checker *k, uint32_t turn)
{
	if (turn % 1024 == 0 && k->in->limits.stop != NULL && k->in->limits.stop(k->in->limits.arg))
		k->stopped = true;
	return k->stopped;
}

/* Notes the first thing that is wrong, at a step (or CHECK_NONE). Returns false. */
bool check_fail(struct checker *k, uint32_t rank, uint32_t step, uint32_t iteration,
		const char *format, ...) RB_PRINTF(5, 6);

static inline const struct rb_layout *check_layout(const struct checker *k, uint32_t rank)
{
	return &k->in->layouts[rank];
}
static inline uint64_t check_length(const struct checker *k, uint32_t rank,
				    const struct rb_step *step, uint32_t iteration)
{
	return rb_step_length(check_layout(k, rank), step, iteration);
}

/* Where a span of rank's step lies in iteration c: which memory, and from which element. Memories
 * are numbered rank * check_spaces() + 0 IN, 1 OUT, 2.. sets of scratch, then slots on the host and
 * on the device; in place IN is OUT. */
struct check_place {
	uint32_t space;
	uint64_t offset;
};
struct check_place check_place(const struct checker *k, uint32_t rank, const struct rb_step *step,
			       const struct rb_span *span, uint32_t instance, uint32_t c);
uint64_t check_space_elements(const struct checker *k, uint32_t space);
static inline uint32_t check_spaces(const struct checker *k) /* Of a rank. */
{
	return 2 + k->copies + RB_STAGE_COUNT;
}
static inline uint32_t check_space(const struct checker *k, uint32_t rank, uint32_t which)
{
	return rank * check_spaces(k) + which;
}
/* The blocks of IN or OUT that `rank` has, and where one of them lies. Where a rank has just one,
 * its part, it is kept at the place that it has in the whole. */
struct check_range {
	uint64_t lo, hi;
};
struct check_range check_blocks(const struct checker *k, uint32_t rank, enum rb_buffer buffer);
struct check_range check_block(const struct checker *k, uint32_t rank, enum rb_buffer buffer,
			       uint32_t block);
/* The block that a span of rank's step begins with, in the layout of its owner. */
uint32_t check_span_block(const struct checker *k, uint32_t rank, const struct rb_step *step,
			  const struct rb_span *span);
bool check_buffer_is_part(const struct checker *k, enum rb_buffer buffer);

/* The four parts; each returns whether it found nothing wrong. */
bool check_bounds(struct checker *k);   /* checker_bounds.c */
bool check_match(struct checker *k);    /* checker_bounds.c */
bool check_progress(struct checker *k); /* checker_graph.c */
bool check_implied(struct checker *k);  /* checker_graph.c: answers, finds nothing wrong */
bool check_order(struct checker *k);    /* checker_order.c */
bool check_results(struct checker *k);  /* checker_results.c */

/* Whether a path leads from each pair's first event to its second: `ordered` is set. */
struct check_pair {
	uint32_t from, to;
	uint32_t first, second; /* The caller's: which accesses. */
	bool ordered;
};
bool check_reach(struct checker *k, struct check_pair *pairs, uint64_t count);

#endif
