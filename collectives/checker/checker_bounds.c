/* checker_bounds.c -- what can be seen in one step, or in the two ends of a message. */
#include <inttypes.h>
#include <stdlib.h>

#include "collectives/checker/checker_inside.h"
#include "collectives/stage.h"

/* ---- Spans ---- */

static bool check_side(struct checker *k, uint32_t r, uint32_t index, const struct rb_span *span,
		       bool target)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];
	bool local = span->rank == RB_SELF, put = step->kind == RB_STEP_PUT && target;

	if (!local && (span->rank >= k->n || span->rank == r))
		return check_fail(k, r, index, 0, "a span names rank %u", span->rank);
	if (put ? span->rank != step->peer
		: !local && step->kind != RB_STEP_COPY && step->kind != RB_STEP_REDUCE)
		return check_fail(k, r, index, 0, "a span names memory of the wrong rank");
	if (!local && !put && k->in->nodes != NULL &&
	    k->in->nodes->node_of[span->rank] != k->in->nodes->node_of[r])
		return check_fail(k, r, index, 0, "a span names memory of rank %u, on another node",
				  span->rank);
	uint32_t needs = put                              ? RB_SCHEDULE_PUT
			 : local                          ? 0
			 : span->buffer == RB_BUF_SCRATCH ? RB_SCHEDULE_MAPPED_SCRATCH
							  : RB_SCHEDULE_MAPPED_BUFFERS;
	if (needs & ~s->flags)
		return check_fail(k, r, index, 0, "needs flags %u, the schedule has %u", needs,
				  s->flags);
	if (target && span->buffer == RB_BUF_IN)
		return check_fail(k, r, index, 0, "writes IN");
	if (span->buffer >= RB_BUF_STAGE_HOST && span->buffer < RB_BUFFERS_ALL) {
		uint32_t has = s->stage_slots[span->buffer - RB_BUF_STAGE_HOST];

		if (!local || span->depth == 0 || (uint64_t)span->slot + span->depth > has)
			return check_fail(k, r, index, 0, "stage slots %u+%u of %u", span->slot,
					  span->depth, has);
		return true;
	}
	if (span->buffer == RB_BUF_SCRATCH) {
		const struct rb_schedule *owner = k->ranks[local ? r : span->rank].schedule;
		uint64_t end = (uint64_t)span->slot + (rb_span_in_slots(span) ? span->depth : 1);

		if (end > (rb_span_in_slots(span)          ? owner->scratch_slots
			   : span->depth == RB_VECTOR_SLOT ? owner->scratch_vector_slots
							   : owner->scratch_block_slots))
			return check_fail(k, r, index, 0,
					  "slots %u+%u of %u, vector slots %u, block slots %u",
					  span->slot, span->depth, owner->scratch_slots,
					  owner->scratch_vector_slots, owner->scratch_block_slots);
		if (span->depth == RB_BLOCK_SLOT && (!local || step->blocks != 1))
			return check_fail(k, r, index, 0, "%u blocks in a block slot of rank %u",
					  step->blocks, local ? r : span->rank);
		if (!local && (owner->scratch_vector_slots != s->scratch_vector_slots ||
			       (owner->scratch_copies > 1 &&
				(owner->scratch_slots != s->scratch_slots ||
				 owner->scratch_block_slots != s->scratch_block_slots))))
			return check_fail(k, r, index, 0,
					  "rank %u's scratch has another shape: cannot be found",
					  span->rank);
		return true;
	}
	if (span->buffer >= RB_BUFFER_COUNT ||
	    (span->part != 0) != check_buffer_is_part(k, span->buffer))
		return check_fail(k, r, index, 0, "takes a part for the whole, or the reverse");
	return true;
}

static bool check_span(struct checker *k, uint32_t r, uint32_t index, uint32_t span_index,
		       bool target)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];

	if (span_index >= s->span_count)
		return check_fail(k, r, index, 0, "span %u of %u", span_index, s->span_count);
	const struct rb_span *span = &s->spans[span_index];

	if (!span->alternates)
		return check_side(k, r, index, span, target);
	if (span->buffer != RB_BUF_SCRATCH || !rb_span_in_slots(span) ||
	    (step->kind != RB_STEP_COPY && step->kind != RB_STEP_REDUCE))
		return check_fail(k, r, index, 0, "alternates where there are no slots");
	if (check_layout(k, r)->starts)
		return check_fail(k, r, index, 0, "slots of uneven blocks alternate");
	if (s->scratch_copies > 1 || s->scratch_vector_slots > 0)
		return check_fail(k, r, index, 0, "alternates in %u sets, beside %u vector slots",
				  s->scratch_copies, s->scratch_vector_slots);
	if (span->depth & (span->depth - 1))
		return check_fail(k, r, index, 0, "counts laps of %u, which do not wrap",
				  span->depth);
	for (int odd = 0; odd < 2; odd++) {
		struct rb_span side = rb_span_side(*span, odd);

		if (!check_side(k, r, index, &side, target))
			return false;
	}
	return true;
}

/* What one span is in all iterations: blocks that its owner has, as long there as here. */
static bool check_range_of(struct checker *k, uint32_t r, uint32_t index,
			   const struct rb_span *span)
{
	const struct rb_step *step = &k->ranks[r].schedule->steps[index];
	const struct rb_layout *layout = check_layout(k, r);
	uint32_t owner = span->rank == RB_SELF ? r : span->rank;
	uint32_t block = check_span_block(k, r, step, span);
	uint64_t length = rb_step_range(layout, step), there = 0;
	bool scratch = span->buffer >= RB_BUF_SCRATCH;

	if (length == 0 || (scratch && span->depth != RB_VECTOR_SLOT))
		return true;
	if (step->blocks > 1 && layout->starts)
		return check_fail(k, r, index, 0, "takes uneven blocks for adjoining ones");
	if (block + (uint64_t)step->blocks > layout->block_count)
		return check_fail(k, r, index, 0, "%u blocks from %u of %u", step->blocks, block,
				  layout->block_count);
	if (scratch && layout->starts)
		return check_fail(k, r, index, 0, "uneven blocks in a vector slot");
	struct check_range has = { 0, layout->block_count };

	if (!scratch)
		has = check_blocks(k, owner, span->buffer);
	if (block < has.lo || block + (uint64_t)step->blocks > has.hi)
		return check_fail(k, r, index, 0,
				  "touches block %u+%u of a buffer that has %" PRIu64
				  " to %" PRIu64,
				  block, step->blocks, has.lo, has.hi);
	if (layout->per_peer && owner != r && block != r)
		return check_fail(k, r, index, 0,
				  "touches block %u of rank %u, which does not "
				  "concern it",
				  block, owner);
	for (uint32_t b = block; b < block + step->blocks; b++) {
		struct check_range range =
			check_block(k, owner, scratch ? RB_BUF_IN : span->buffer, b);

		there += range.hi - range.lo;
	}
	if (there != length)
		return check_fail(k, r, index, 0,
				  "%" PRIu64 " elements in a range that has %" PRIu64
				  " in rank %u's buffer",
				  length, there, owner);
	return true;
}

/* `to` is one of from[], or apart from it. */
static bool check_overlap(struct checker *k, uint32_t r, uint32_t index, const struct rb_span *from,
			  uint32_t c, uint64_t length)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];
	struct check_place a = check_place(k, r, step, from, 0, c);
	struct check_place b = check_place(k, r, step, &s->spans[step->to], 0, c);
	uint64_t apart = a.offset > b.offset ? a.offset - b.offset : b.offset - a.offset;

	if (a.space == b.space && apart > 0 && apart < length)
		return check_fail(k, r, index, c, "target and operand overlap");
	return true;
}

static bool check_iteration(struct checker *k, uint32_t r, uint32_t index, uint32_t c)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];
	uint64_t length = check_length(k, r, step, c);

	for (uint32_t i = 0; step->to != RB_NO_SPAN && i < step->from_count; i++)
		if (!check_overlap(k, r, index, &s->spans[step->from + i], c, length))
			return false;
	return true;
}

static bool check_ranges(struct checker *k, uint32_t r, uint32_t index)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];

	for (uint32_t i = 0; i < step->from_count; i++)
		if (!check_range_of(k, r, index, &s->spans[step->from + i]))
			return false;
	return step->to == RB_NO_SPAN || check_range_of(k, r, index, &s->spans[step->to]);
}

/* ---- Steps ---- */

static bool check_shape(struct checker *k, uint32_t r, uint32_t index)
{
	static const struct {
		bool to, peer;
		uint16_t from_min, from_max;
	} shapes[RB_STEP_KIND_COUNT] = {
		[RB_STEP_SEND] = { false, true, 1, 1 },
		[RB_STEP_RECV] = { true, true, 0, 0 },
		[RB_STEP_PUT] = { true, true, 1, 1 },
		[RB_STEP_NOTIFY] = { false, true, 0, 0 },
		[RB_STEP_WAIT] = { false, true, 0, 0 },
		[RB_STEP_COPY] = { true, false, 1, 1 },
		[RB_STEP_REDUCE] = { true, false, 1, UINT16_MAX },
	};
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];

	if (step->kind >= RB_STEP_KIND_COUNT)
		return check_fail(k, r, index, 0, "unknown kind %u", step->kind);
	bool peer = step->peer < k->n && step->peer != r, has_to = step->to != RB_NO_SPAN;

	if (shapes[step->kind].peer ? !peer : step->peer != RB_SELF)
		return check_fail(k, r, index, 0, "peer %u", step->peer);
	if (step->channel >= RB_CHANNEL_MAX)
		return check_fail(k, r, index, 0, "channel %u", step->channel);
	if (shapes[step->kind].to != has_to || step->from_count < shapes[step->kind].from_min ||
	    step->from_count > shapes[step->kind].from_max)
		return check_fail(k, r, index, 0, "%u operands, %s target", step->from_count,
				  has_to ? "a" : "no");
	if (step->flags & RB_STEP_FINAL && shapes[step->kind].peer)
		return check_fail(k, r, index, 0, "final, but nothing is computed");
	for (uint32_t i = 0; i < step->from_count; i++)
		if (!check_span(k, r, index, step->from + i, false))
			return false;
	if (has_to && !check_span(k, r, index, step->to, true))
		return false;
	bool data = has_to || step->from_count > 0;

	if (data && step->flags & RB_STEP_ONCE &&
	    rb_step_range(check_layout(k, r), step) > check_layout(k, r)->chunk)
		return check_fail(k, r, index, 0, "once, but longer than a chunk");
	if (check_iterations(k, r, index) >= RB_ITERATION_MAX)
		return check_fail(k, r, index, 0, "more chunks than a tag can count");
	for (uint32_t i = 0; i < step->dep_count; i++) {
		uint64_t d = (uint64_t)step->dep + i;

		if (d >= s->dep_count || s->deps[d].step >= s->step_count ||
		    s->deps[d].lag < RB_DEP_ALL)
			return check_fail(k, r, index, 0, "bad dependency");
	}
	if (data && !check_ranges(k, r, index))
		return false;
	for (uint32_t c = 0; data && c < check_iterations(k, r, index); c++)
		if (!check_iteration(k, r, index, c))
			return false;
	return true;
}

/* ---- Kinds of memory ---- */

static enum rb_memory_kind check_kind(const struct rb_schedule *s, const struct rb_span *span)
{
	if (span->buffer < RB_BUFFER_COUNT)
		return (enum rb_memory_kind)s->kinds[span->buffer];
	return span->buffer == RB_BUF_STAGE_DEVICE ? RB_MEMORY_DEVICE : RB_MEMORY_HOST;
}

/* Who touches this span of the step: the processor or a message, the device, or its copy. */
static bool check_touch(struct checker *k, uint32_t r, uint32_t index, const struct rb_span *span)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	const struct rb_step *step = &s->steps[index];
	uint32_t owner = span->rank == RB_SELF ? r : span->rank;
	enum rb_memory_kind kind = check_kind(k->ranks[owner].schedule, span);
	bool device = step->flags & RB_STEP_DEVICE, message = step->peer != RB_SELF;
	bool computes = step->kind == RB_STEP_REDUCE || (step->flags & RB_STEP_FINAL);

	if (!message && check_kind(s, span) != kind)
		return check_fail(k, r, index, 0, "takes rank %u's memory for %s memory",
				  span->rank, rb_memory_kind_name(kind));
	if (kind == RB_MEMORY_DEVICE && !device && !(message && k->in->device_messages))
		return check_fail(k, r, index, 0, "touches device memory");
	if (kind == RB_MEMORY_HOST && device && computes)
		return check_fail(k, r, index, 0, "the device computes on host memory");
	return true;
}

static bool check_touches(struct checker *k, uint32_t r, uint32_t index, uint32_t span_index)
{
	const struct rb_span *span = &k->ranks[r].schedule->spans[span_index];

	for (int odd = 0; odd <= span->alternates; odd++) {
		struct rb_span side = rb_span_side(*span, odd);

		if (!check_touch(k, r, index, &side))
			return false;
	}
	return true;
}

static bool check_kinds(struct checker *k, uint32_t r, uint32_t index)
{
	const struct rb_step *step = &k->ranks[r].schedule->steps[index];

	if (step->flags & RB_STEP_DEVICE && step->peer != RB_SELF)
		return check_fail(k, r, index, 0, "no work for the device");
	for (uint32_t i = 0; i < step->from_count; i++)
		if (!check_touches(k, r, index, step->from + i))
			return false;
	return step->to == RB_NO_SPAN || check_touches(k, r, index, step->to);
}

static bool check_bytes(struct checker *k, uint32_t r)
{
	const struct rb_schedule *s = k->ranks[r].schedule;
	struct rb_build build = { .rank = r,
				  .rank_count = k->n,
				  .root = k->in->root,
				  .nodes = k->in->nodes,
				  .apart = rb_apart_of(k->in->apart, k->n, r) };
	uint64_t elements = 0;

	if (s->flags != k->in->algorithm->flags && (s->flags != 0 || build.apart == NULL))
		return check_fail(k, r, CHECK_NONE, 0, "flags %u, the algorithm says %u", s->flags,
				  k->in->algorithm->flags);
	for (uint32_t i = 0; i < s->step_count; i++)
		if (s->steps[i].kind == RB_STEP_SEND || s->steps[i].kind == RB_STEP_PUT)
			elements += rb_step_range(check_layout(k, r), &s->steps[i]);
	uint64_t formula = k->in->algorithm->bytes_sent(check_layout(k, r), &build, 1);

	if (elements != formula)
		return check_fail(k, r, CHECK_NONE, 0,
				  "sends %" PRIu64 " elements, the formula says %" PRIu64, elements,
				  formula);
	return true;
}

bool check_bounds(struct checker *k)
{
	for (uint32_t r = 0; r < k->n; r++) {
		const struct rb_schedule *s = k->ranks[r].schedule;

		if (s->rank != r || s->rank_count != k->n ||
		    s->block_count != check_layout(k, r)->block_count || s->scratch_copies < 1 ||
		    s->scratch_copies != k->ranks[0].schedule->scratch_copies ||
		    k->ranks[r].turns != k->ranks[0].turns ||
		    check_layout(k, r)->chunk != check_layout(k, 0)->chunk)
			return check_fail(k, r, CHECK_NONE, 0, "the schedule's head is wrong");
		for (uint32_t i = 0; i < s->step_count; i++)
			if (!check_shape(k, r, i) || !check_kinds(k, r, i))
				return false;
		if (k->in->algorithm && !check_bytes(k, r))
			return false;
	}
	return true;
}

/* ---- Messages ---- */

struct end { /* Of messages: from `sender` to `receiver` on `channel`. */
	uint32_t sender, receiver, channel;
	bool sends;
	uint32_t rank, step;
};

static int compare_ends(const void *left, const void *right)
{
	const struct end *a = left, *b = right;

	if (a->sender != b->sender)
		return a->sender < b->sender ? -1 : 1;
	if (a->receiver != b->receiver)
		return a->receiver < b->receiver ? -1 : 1;
	if (a->channel != b->channel)
		return a->channel < b->channel ? -1 : 1;
	return (int)b->sends - (int)a->sends;
}

/* The two ends of one channel belong together. */
static bool match_ends(struct checker *k, const struct end *a, const struct end *b)
{
	const struct rb_step *from = &k->ranks[a->rank].schedule->steps[a->step];
	const struct rb_step *to = &k->ranks[b->rank].schedule->steps[b->step];
	uint32_t count = check_iterations(k, a->rank, a->step);

	if ((from->kind == RB_STEP_SEND) != (to->kind == RB_STEP_RECV))
		return check_fail(k, a->rank, a->step, 0, "is met by a %s of rank %u",
				  to->kind == RB_STEP_RECV ? "RECV" : "WAIT", b->rank);
	if (count != check_iterations(k, b->rank, b->step))
		return check_fail(k, a->rank, a->step, 0, "%u messages, but rank %u expects %u",
				  count, b->rank, check_iterations(k, b->rank, b->step));
	for (uint32_t c = 0; from->kind != RB_STEP_NOTIFY && c < count; c++)
		if (check_length(k, a->rank, from, c) != check_length(k, b->rank, to, c))
			return check_fail(k, a->rank, a->step, c,
					  "%" PRIu64 " elements, but rank %u expects %" PRIu64,
					  check_length(k, a->rank, from, c), b->rank,
					  check_length(k, b->rank, to, c));
	k->ranks[a->rank].match[a->step] = b->step;
	k->ranks[b->rank].match[b->step] = a->step;
	return true;
}

bool check_match(struct checker *k)
{
	uint64_t total = 0, count = 0;

	for (uint32_t r = 0; r < k->n; r++)
		total += k->ranks[r].schedule->step_count;
	struct end *ends = check_alloc(k, total, sizeof(*ends));

	if (!ends)
		return false;
	for (uint32_t r = 0; r < k->n; r++) {
		const struct rb_schedule *s = k->ranks[r].schedule;

		for (uint32_t i = 0; i < s->step_count; i++) {
			const struct rb_step *step = &s->steps[i];
			bool sends = step->kind == RB_STEP_SEND || step->kind == RB_STEP_PUT ||
				     step->kind == RB_STEP_NOTIFY;

			k->ranks[r].match[i] = CHECK_NONE;
			if (step->peer == RB_SELF)
				continue;
			ends[count++] = (struct end) { sends ? r : step->peer,
						       sends ? step->peer : r,
						       step->channel,
						       sends,
						       r,
						       i };
		}
	}
	qsort(ends, count, sizeof(*ends), compare_ends);
	for (uint64_t i = 0; i < count; i += 2) {
		const struct end *a = &ends[i], *b = i + 1 < count ? &ends[i + 1] : NULL;

		if (b && compare_ends(a, b) == 0)
			return check_fail(k, a->rank, a->step, 0, "shares its tag with step %u",
					  b->step);
		if (!b || !a->sends || b->sends || a->sender != b->sender ||
		    a->receiver != b->receiver || a->channel != b->channel)
			return check_fail(k, a->rank, a->step, 0, "has no other end");
		if (!match_ends(k, a, b))
			return false;
	}
	return true;
}
