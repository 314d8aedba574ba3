/*
 * schedule.h -- a collective as data: a graph of steps over spans, one graph per rank.
 *
 * Geometry. A vector of `count` elements is cut into blocks (rb_layout: even ones, or each with a
 * start and a length of its own), and each range of blocks that a step works on into chunks of
 * `chunk` elements. A step is repeated once per chunk of its range (or once in all, RB_STEP_ONCE);
 * iteration c touches chunk c of the range in each of its spans. So a schedule knows neither count
 * nor chunk, and one graph serves every count.
 *
 * Time. A step's iterations start in order, and iteration c starts when every dependency (step,
 * lag) of the same rank is met: lag >= 0, iterations 0 .. min(c - lag, last) of that step are
 * complete; RB_DEP_ALL, all of them are. Nothing else orders steps. What completion means:
 *
 *   SEND          the source may be overwritten (the receiver need not have it yet)
 *   RECV          the bytes are there; matched by (peer, channel, iteration)
 *   PUT           the source may be overwritten; the target sees bytes and notification when its
 *                 WAIT completes, and then the source is read no more
 *   NOTIFY        nothing; whatever completed before it started is visible once the peer's WAIT
 *                 completes
 *   WAIT          the peer's NOTIFY or PUT with this channel and iteration has come
 *   COPY, REDUCE  the target is written
 *
 * REDUCE: to = op(...op(op(from[0], from[1]), from[2])...), operand order as written: builders
 * order it by rank wherever two ranks compute the same. RB_STEP_FINAL: this reduction is an
 * element's last one; AVG divides here, once.
 *
 * The instance is complete when all steps are; its rank may then reuse IN and OUT at once. So no
 * peer may still read or write them in place: the builder must wait for that. Scratch is the
 * schedule's own until the next instance, which has `scratch_copies` sets of it in turn (instance i
 * uses set i modulo it): `scratch_slots` slots of a chunk each, for what is in flight, and before
 * them `scratch_vector_slots` vector slots, each as long as the vector and cut like it, for blocks
 * that must lie side by side; then `scratch_block_slots` block slots, each as long as the longest
 * block, for one that must be there whole. Who touches a peer's scratch has as many vector slots
 * and sets as it, and touches no block slots.
 *
 * Slots may alternate: two ranks have as many each, and change sides after each lap of `depth`
 * iterations; instances count on where the last one ended (rb_schedule_turns). So a rank writes
 * where it has just read, and needs no word of the other that a slot is free again. Blocks are
 * equally long then, and scratch is one set without vector slots.
 *
 * checker.h proves these graphs; runtime/engine/run.c executes them.
 */
#ifndef RB_COLLECTIVES_SCHEDULE_H
#define RB_COLLECTIVES_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/wire.h"

#define RB_SELF UINT32_MAX /* In a span: the executing rank's own memory. */
#define RB_DEP_ALL (-1)
#define RB_NO_SPAN UINT32_MAX

enum rb_buffer { RB_BUF_IN, RB_BUF_OUT, RB_BUF_SCRATCH, RB_BUF_STAGE_HOST, RB_BUF_STAGE_DEVICE };
#define RB_BUFFER_COUNT 3 /* Those of builders; peers may know them. */
#define RB_STAGE_COUNT 2  /* Behind them: slots of the rank alone that stage.h adds. */
#define RB_BUFFERS_ALL (RB_BUFFER_COUNT + RB_STAGE_COUNT)

struct rb_span {
	uint32_t rank;  /* RB_SELF, or a peer: mapped (COPY, REDUCE), or writable (PUT's target). */
	uint8_t buffer; /* enum rb_buffer. */
	uint8_t part;   /* IN, OUT: 1 when the buffer holds just this step's range, from 0 on. */
	uint16_t depth; /* SCRATCH, STAGE: iteration c uses slot + c % depth, or RB_VECTOR_SLOT,
			 * RB_BLOCK_SLOT. */
	uint32_t slot;  /* SCRATCH, STAGE: first slot; or which vector or block slot. */
	/* SCRATCH's slots, of COPY and REDUCE: odd laps lie elsewhere. */
	bool alternates;
	uint32_t odd_rank, odd_slot;
	/* IN, OUT, vector slots: the range begins so many blocks (modulo their number) after the
	 * step's. Only where all blocks are equally long. */
	uint32_t shift;
};
#define RB_VECTOR_SLOT 0         /* As a span's depth. */
#define RB_BLOCK_SLOT UINT16_MAX /* Likewise; the step's range is one block. */

enum rb_step_kind {
	RB_STEP_SEND,   /* from[0] to peer */
	RB_STEP_RECV,   /* peer into to */
	RB_STEP_PUT,    /* from[0] into `to` (a span of peer's), then notify */
	RB_STEP_NOTIFY, /* peer */
	RB_STEP_WAIT,   /* peer */
	RB_STEP_COPY,   /* from[0] into to */
	RB_STEP_REDUCE, /* from[...] into to */
};
#define RB_STEP_KIND_COUNT 7

/* ONCE: one iteration, whatever the count; the range is one chunk, or there are no data. */
#define RB_STEP_ONCE 1u
/* FINAL, of REDUCE and COPY: the last operation on these elements. AVG divides here. */
#define RB_STEP_FINAL 2u
/* ENTRY, of NOTIFY and WAIT: synchronises the entry into the instance, so that peers' buffers may
 * be touched. Left out when the ranks have just exchanged addresses, which does the same. */
#define RB_STEP_ENTRY 4u
/* AHEAD, of a COPY out of its own buffer into its own scratch (if that alternates, its even side),
 * and of NOTIFY and WAIT that say that a slot is full for the first time, or free again. Such
 * copies may be done before the ranks meet, where slots are of another set than those of the call
 * before. Left out when all have told each other, with the addresses, that they did. In schedules
 * of one iteration only. */
#define RB_STEP_AHEAD 32u
/* OUT: the range is one of OUT's blocks, where their lengths are not IN's
 * (rb_layout.out_lengths). */
#define RB_STEP_OUT 8u
/* DEVICE, of COPY and REDUCE: the device's executor carries it out (stage.h). */
#define RB_STEP_DEVICE 16u
/* LAST, of COPY and REDUCE into OUT: no step reads what it writes. Plans find it out: it changes
 * nothing but the time that this takes. */
#define RB_STEP_LAST 64u
/* TAKEN, of COPY: a REDUCE whose result it copies writes that there as well (rb_plan.also), where
 * its executor does so. */
#define RB_STEP_TAKEN 128u

struct rb_step {
	uint8_t kind; /* enum rb_step_kind. */
	uint8_t flags;
	uint16_t channel; /* Of SEND/RECV and PUT, NOTIFY/WAIT: unique per ordered pair of ranks. */
	uint32_t peer;    /* Likewise; RB_SELF for COPY and REDUCE. */
	uint32_t block, blocks; /* The range: this many consecutive blocks. */
	uint32_t to;            /* Index into spans, RB_NO_SPAN where there is none. */
	uint32_t from;          /* First of from_count indices into spans. */
	uint16_t from_count;
	uint16_t dep_count;
	uint32_t dep; /* First of dep_count indices into deps. */
};

struct rb_dep {
	uint32_t step; /* Of the same rank. */
	int32_t lag;
};

#define RB_SCHEDULE_MAPPED_BUFFERS 1u /* Spans name peers' IN or OUT (or PUT into them). */
#define RB_SCHEDULE_MAPPED_SCRATCH 2u /* Spans name peers' SCRATCH. */
#define RB_SCHEDULE_PUT 4u            /* Has PUT steps: peers' buffers must be registered. */
/* Chunk by chunk through all steps that can start, not step by step: who feeds several peers feeds
 * them at the same time. It orders the starts only: nothing may depend on it. */
#define RB_SCHEDULE_IN_TURNS 8u

/* Arrays belong to the caller; counts are what is used. */
struct rb_schedule {
	uint32_t rank, rank_count;
	uint32_t block_count;          /* The layout must have as many. */
	uint32_t scratch_slots;        /* Of one set. */
	uint32_t scratch_vector_slots; /* Likewise. */
	uint32_t scratch_block_slots;  /* Likewise. */
	uint32_t scratch_copies;       /* Sets; at least 1. */
	/* By stage.h: slots in the host's memory and on the device, one set, and where the others
	 * lie (enum rb_memory_kind). */
	uint32_t stage_slots[RB_STAGE_COUNT];
	uint8_t kinds[RB_BUFFER_COUNT];
	uint32_t flags;
	uint32_t step_count, span_count, dep_count;
	struct rb_step *steps;
	struct rb_span *spans;
	struct rb_dep *deps;
};

/* ---- Geometry ---- */

/*
 * Where the blocks lie, in elements from the begin of IN and of OUT. Arrays have block_count
 * entries and are the caller's; uneven blocks may leave gaps, lie in any order, and be empty, but
 * not overlap in OUT. A step then works on one block, not on several (nothing says that they
 * adjoin).
 *
 * What two ranks exchange must be equally long on both: block r of IN at rank p and block p of OUT
 * at rank r in ALLTOALL(V), block b at every rank in the others. Where the blocks *start* may
 * differ from rank to rank if `per_peer` is set: then a peer's IN and OUT are given as the block
 * that concerns us (the peer's block number `rank`, ours; base address and all), and that is the
 * only one that a span may name there. Not set: all ranks have the same layout.
 */
struct rb_layout {
	uint64_t count;       /* Elements in all blocks together; ALLTOALLV: of the longer side. */
	uint64_t chunk;       /* Elements; at least 1. The same on all ranks. */
	uint32_t block_count; /* At least 1. */
	uint32_t align;       /* Even blocks begin at multiples of so many elements; at least 1. */
	const uint64_t *starts, *lengths;         /* Both, or NULL: even blocks without gaps. */
	const uint64_t *out_starts, *out_lengths; /* OUT's, or NULL: as IN's. */
	bool per_peer;
};

/* First element of `block` in IN; even blocks: block == block_count gives count. */
uint64_t rb_layout_offset(const struct rb_layout *layout, uint32_t block);
/* Elements in `blocks` blocks of IN from `block`. */
uint64_t rb_layout_length(const struct rb_layout *layout, uint32_t block, uint32_t blocks);
/* The same of OUT. */
uint64_t rb_layout_out_offset(const struct rb_layout *layout, uint32_t block);
uint64_t rb_layout_out_length(const struct rb_layout *layout, uint32_t block, uint32_t blocks);
/* Elements from the begin of IN or OUT to the end of its last block: what a whole one takes. */
uint64_t rb_layout_extent(const struct rb_layout *layout, enum rb_buffer buffer);
/* Elements of IN's longest block. */
uint64_t rb_layout_longest(const struct rb_layout *layout);
/* Elements of the step's range. */
uint64_t rb_step_range(const struct rb_layout *layout, const struct rb_step *step);
/* How often the step is repeated: 1 if RB_STEP_ONCE, else chunks of its range (0 for an empty
 * one). */
uint32_t rb_step_iterations(const struct rb_layout *layout, const struct rb_step *step);
/* By how many iterations an instance moves alternating slots on: the same on every rank. */
uint32_t rb_schedule_turns(const struct rb_schedule *schedule, const struct rb_layout *layout);
/* Elements that iteration c of the step touches in each span. */
uint64_t rb_step_length(const struct rb_layout *layout, const struct rb_step *step, uint32_t c);
/* Whether its iterations take slots of a chunk in turn. */
static inline bool rb_span_in_slots(const struct rb_span *span)
{
	return span->buffer >= RB_BUF_SCRATCH && span->depth != RB_VECTOR_SLOT &&
	       span->depth != RB_BLOCK_SLOT;
}
/* One of the two sides of an alternating span. */
static inline struct rb_span rb_span_side(struct rb_span span, bool odd)
{
	if (odd) {
		span.rank = span.odd_rank;
		span.slot = span.odd_slot;
	}
	span.alternates = false;
	return span;
}
/* Where an alternating span lies after `turns` iterations; they may wrap. */
static inline struct rb_span rb_span_in_turn(struct rb_span span, uint32_t turns)
{
	span = rb_span_side(span, (turns / span.depth) % 2 != 0);
	span.slot += turns % span.depth;
	span.depth = 1;
	return span;
}
/* Where in the span's buffer, in elements, of one that does not alternate. SCRATCH: from the
 * instance's first slot; in a vector or block slot: from the first of these. */
uint64_t rb_span_offset(const struct rb_layout *layout, const struct rb_step *step,
			const struct rb_span *span, uint32_t c);

/* ---- Building ----
 *
 * Builders are pure: they write into the caller's arrays through rb_writer, which counts on past
 * the capacity, so that a caller who gave too little knows what to give. They do not allocate.
 */
struct rb_writer {
	struct rb_schedule *schedule;
	uint32_t step_capacity, span_capacity, dep_capacity;
	uint32_t open; /* Dependencies on labels that stand nowhere yet. */
};

void rb_writer_init(struct rb_writer *w, struct rb_schedule *schedule, uint32_t rank,
		    uint32_t rank_count, uint32_t block_count);
/* Whether everything fitted; if not, the schedule's three counts say how much is needed. Every
 * label that something depends on stands at a step by now. */
bool rb_writer_fits(const struct rb_writer *w);

/* Each adds one step over `blocks` blocks from `block` and returns its index. */
uint32_t rb_write_send(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span from,
		       uint32_t block, uint32_t blocks);
uint32_t rb_write_recv(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span to,
		       uint32_t block, uint32_t blocks);
uint32_t rb_write_put(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span from,
		      struct rb_span to, uint32_t block, uint32_t blocks);
uint32_t rb_write_notify(struct rb_writer *w, uint32_t peer, uint16_t channel, uint32_t block,
			 uint32_t blocks);
uint32_t rb_write_wait(struct rb_writer *w, uint32_t peer, uint16_t channel, uint32_t block,
		       uint32_t blocks);
uint32_t rb_write_copy(struct rb_writer *w, struct rb_span from, struct rb_span to, uint32_t block,
		       uint32_t blocks);
/* Operands follow with rb_write_operand, in order, before any other step is added. */
uint32_t rb_write_reduce(struct rb_writer *w, struct rb_span to, uint32_t block, uint32_t blocks);
void rb_write_operand(struct rb_writer *w, struct rb_span from);
/* For the step added last. */
void rb_write_flags(struct rb_writer *w, uint8_t flags);
static inline uint32_t rb_write_ahead(struct rb_writer *w, uint32_t step)
{
	rb_write_flags(w, RB_STEP_AHEAD);
	return step;
}
void rb_write_dep(struct rb_writer *w, uint32_t step, int32_t lag);

/* The name of a step that is still to come, for those before it that depend on it. Begins as { 0 };
 * rb_write_label gives it, once, to the step added last. */
struct rb_label {
	uint32_t last_dep; /* And one more: of a list through rb_dep.step; 0: empty. */
};
void rb_write_dep_label(struct rb_writer *w, struct rb_label *label, int32_t lag);
void rb_write_label(struct rb_writer *w, struct rb_label *label);

/* Steps that a loop adds, one each time round and always as far apart. Begins as { 0 };
 * rb_row_add takes the next one. */
struct rb_row {
	uint32_t first, stride, count;
};
void rb_row_add(struct rb_row *row, uint32_t step);
/* That of turn i of the loop, i < count. */
uint32_t rb_row_at(const struct rb_row *row, uint32_t i);
/* The step added last depends on all that are in the row. */
void rb_write_dep_row(struct rb_writer *w, const struct rb_row *row, int32_t lag);

static inline struct rb_span rb_span_in(uint32_t rank)
{
	return (struct rb_span) { .rank = rank, .buffer = RB_BUF_IN, .depth = 1 };
}
static inline struct rb_span rb_span_out(uint32_t rank)
{
	return (struct rb_span) { .rank = rank, .buffer = RB_BUF_OUT, .depth = 1 };
}
static inline struct rb_span rb_span_part(struct rb_span span)
{
	span.part = 1;
	return span;
}
static inline struct rb_span rb_span_scratch(uint32_t rank, uint32_t slot, uint16_t depth)
{
	return (struct rb_span) {
		.rank = rank, .buffer = RB_BUF_SCRATCH, .slot = slot, .depth = depth
	};
}

/* Of two that are equally deep, a power of two. */
static inline struct rb_span rb_span_alternating(struct rb_span even, struct rb_span odd)
{
	even.alternates = true;
	even.odd_rank = odd.rank;
	even.odd_slot = odd.slot;
	return even;
}

static inline struct rb_span rb_span_vector_slot(uint32_t slot)
{
	return (struct rb_span) { .rank = RB_SELF, .buffer = RB_BUF_SCRATCH, .slot = slot };
}
static inline struct rb_span rb_span_block_slot(uint32_t slot)
{
	return (struct rb_span) {
		.rank = RB_SELF, .buffer = RB_BUF_SCRATCH, .slot = slot, .depth = RB_BLOCK_SLOT
	};
}
static inline struct rb_span rb_span_shifted(struct rb_span span, uint32_t shift)
{
	span.shift = shift;
	return span;
}

/* One line per step, for --explain, tests and failure reports. Returns what snprintf would. */
int rb_step_text(const struct rb_schedule *schedule, uint32_t step, char *text, size_t text_bytes);

#endif
