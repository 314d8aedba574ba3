/* plan.c -- see plan.h. */
#include "runtime/engine/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define STAGE_DEPTH 4u /* Guess: one is copied in, one sent, and each has one ready behind it. */

uint64_t rb_plan_total(enum rb_kind kind, uint64_t count, uint32_t rank_count)
{
	switch (kind) {
	case RB_KIND_REDUCE_SCATTER:
	case RB_KIND_ALLGATHER:
	case RB_KIND_GATHER:
	case RB_KIND_SCATTER:
	case RB_KIND_ALLTOALL:
		return count * rank_count;
	default:
		return count;
	}
}

/* ---- Uneven blocks ---- */

static uint64_t hash_side(uint64_t hash, const uint64_t *counts, const uint64_t *offsets,
			  uint32_t rank_count)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < rank_count; i++) {
		hash = rb_mix(hash ^ counts[i]);
		hash = rb_mix(hash + (offsets != NULL ? offsets[i] : start));
		start += counts[i];
	}
	return hash;
}

uint64_t rb_shape_hash(const struct rb_shape *shape, uint32_t rank_count)
{
	uint64_t hash = hash_side(1, shape->counts, shape->offsets, rank_count);

	if (shape->out_counts != NULL)
		hash = hash_side(hash, shape->out_counts, shape->out_offsets, rank_count);
	return hash != 0 ? hash : 1;
}

static void side_copy(uint64_t *starts, uint64_t *lengths, const uint64_t *counts,
		      const uint64_t *offsets, uint32_t rank_count)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < rank_count; i++) {
		starts[i] = offsets != NULL ? offsets[i] : start;
		lengths[i] = counts[i];
		start += counts[i];
	}
}

static bool side_same(const uint64_t *starts, const uint64_t *lengths, const uint64_t *counts,
		      const uint64_t *offsets, uint32_t rank_count)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < rank_count; i++) {
		if (lengths[i] != counts[i] || starts[i] != (offsets != NULL ? offsets[i] : start))
			return false;
		start += counts[i];
	}
	return true;
}

static rubato_status blocks_copy(struct rb_plan *plan, const struct rb_shape *shape, uint32_t n)
{
	struct rb_layout *layout = &plan->layout;
	uint64_t *at = calloc((size_t)n * 4, sizeof(*at));

	if (at == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "blocks of %u ranks", n);
	plan->blocks = at;
	side_copy(at, at + n, shape->counts, shape->offsets, n);
	layout->starts = at;
	layout->lengths = at + n;
	if (shape->out_counts == NULL)
		return RUBATO_OK;
	side_copy(at + 2 * n, at + 3 * n, shape->out_counts, shape->out_offsets, n);
	layout->out_starts = at + 2 * n;
	layout->out_lengths = at + 3 * n;
	layout->per_peer = true;
	return RUBATO_OK;
}

/* Both of a pair know how long their blocks for each other are, and so decide alike. */
static rubato_status apart_find(struct rb_plan *plan, const struct rb_shape *shape, uint32_t n)
{
	uint64_t most = plan->key.apart_bytes / plan->key.element_bytes;

	plan->apart = calloc(n, sizeof(*plan->apart));
	if (plan->apart == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "blocks of %u ranks", n);
	for (uint32_t r = 0; r < n; r++)
		plan->apart[r] = plan->key.apart_bytes == RB_APART_GIVEN
					 ? shape->apart[r]
					 : shape->counts[r] <= most && shape->out_counts[r] <= most;
	return RUBATO_OK;
}

bool rb_plan_has_blocks(const struct rb_plan *plan, const struct rb_shape *shape)
{
	const struct rb_layout *layout = &plan->layout;
	uint32_t n = plan->schedule.rank_count;

	if (shape == NULL)
		return true;
	return side_same(layout->starts, layout->lengths, shape->counts, shape->offsets, n) &&
	       (plan->key.apart_bytes != RB_APART_GIVEN ||
		memcmp(plan->apart, shape->apart, n) == 0) &&
	       (shape->out_counts == NULL || side_same(layout->out_starts, layout->out_lengths,
						       shape->out_counts, shape->out_offsets, n));
}

/* ---- Plans ---- */

static rubato_status arrays_allocate(struct rb_schedule *s, uint32_t steps, uint32_t spans,
				     uint32_t deps)
{
	s->steps = calloc(steps + 1, sizeof(*s->steps));
	s->spans = calloc(spans + 1, sizeof(*s->spans));
	s->deps = calloc(deps + 1, sizeof(*s->deps));
	if (s->steps == NULL || s->spans == NULL || s->deps == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "schedule of %u steps", steps);
	return RUBATO_OK;
}

static void arrays_free(struct rb_schedule *s)
{
	free(s->steps);
	free(s->spans);
	free(s->deps);
	s->steps = NULL;
	s->spans = NULL;
	s->deps = NULL;
}

/* Runs the builder; when the arrays are too short it has counted how long they must be. */
static rubato_status schedule_build(const struct rb_algorithm *algorithm,
				    const struct rb_build *build, uint32_t block_count,
				    struct rb_schedule *schedule)
{
	uint32_t steps = 16, spans = 32, deps = 32;

	for (;;) {
		struct rb_writer w = { .step_capacity = steps,
				       .span_capacity = spans,
				       .dep_capacity = deps };
		rubato_status err = arrays_allocate(schedule, steps, spans, deps);

		if (err == RUBATO_OK) {
			rb_writer_init(&w, schedule, build->rank, build->rank_count, block_count);
			algorithm->build(&w, build);
			if (rb_writer_fits(&w))
				return RUBATO_OK;
			steps = schedule->step_count;
			spans = schedule->span_count;
			deps = schedule->dep_count;
		}
		arrays_free(schedule);
		if (err != RUBATO_OK)
			return err;
	}
}

static rubato_status derived_allocate(struct rb_plan *plan)
{
	const struct rb_schedule *s = &plan->schedule;

	plan->iterations = calloc(s->step_count + 1, sizeof(*plan->iterations));
	plan->range = calloc(s->step_count + 1, sizeof(*plan->range));
	plan->span_start = calloc(s->span_count + 1, sizeof(*plan->span_start));
	plan->successors = calloc(s->dep_count + 1, sizeof(*plan->successors));
	plan->successor_first = calloc(s->step_count + 2, sizeof(*plan->successor_first));
	plan->span_first = calloc(s->span_count + 1, sizeof(*plan->span_first));
	if (s->flags & (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH)) {
		plan->reach = calloc((size_t)s->rank_count * RB_BUFFER_COUNT, sizeof(*plan->reach));
		if (plan->reach == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "plan of %u ranks", s->rank_count);
	}
	if (s->flags & RB_SCHEDULE_PUT) {
		plan->put_reach =
			calloc((size_t)s->rank_count * RB_BUFFER_COUNT, sizeof(*plan->put_reach));
		if (plan->put_reach == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "plan of %u ranks", s->rank_count);
	}
	if (plan->iterations == NULL || plan->range == NULL || plan->span_start == NULL ||
	    plan->successors == NULL || plan->successor_first == NULL || plan->span_first == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "plan of %u steps", s->step_count);
	return RUBATO_OK;
}

static void derive_successors(struct rb_plan *plan)
{
	const struct rb_schedule *s = &plan->schedule;
	uint32_t *first = plan->successor_first;

	for (uint32_t i = 0; i < s->dep_count; i++)
		first[s->deps[i].step + 1]++;
	for (uint32_t i = 0; i < s->step_count; i++)
		first[i + 1] += first[i];
	for (uint32_t i = s->step_count; i-- > 0;) {
		const struct rb_step *step = &s->steps[i];

		for (uint32_t d = 0; d < step->dep_count; d++)
			plan->successors[first[s->deps[step->dep + d].step]++] = i;
	}
	/* Filling moved each first to the next one's: move them back. */
	for (uint32_t i = s->step_count; i > 0; i--)
		first[i] = first[i - 1];
	first[0] = 0;
}

/* Vector slots come first: where they lie is then the same on all ranks, whatever else theirs
 * have. No chunk is longer than the vector, so slots are not either: do not reserve what cannot
 * come. */
static void derive_scratch(struct rb_plan *plan, uint8_t element_bytes)
{
	const struct rb_schedule *s = &plan->schedule;
	const struct rb_layout *layout = &plan->layout;
	uint64_t slot = layout->chunk < layout->count ? layout->chunk : layout->count;

	plan->slots_at = s->scratch_vector_slots * layout->count * element_bytes;
	plan->slots_at = (plan->slots_at + 63) & ~(uint64_t)63;
	plan->set_bytes = plan->slots_at + s->scratch_slots * slot * element_bytes;
	plan->set_bytes = (plan->set_bytes + 63) & ~(uint64_t)63;
	plan->blocks_at = plan->set_bytes;
	if (s->scratch_block_slots > 0)
		plan->set_bytes +=
			s->scratch_block_slots * rb_layout_longest(layout) * element_bytes;
	plan->set_bytes = (plan->set_bytes + 63) & ~(uint64_t)63;
	plan->scratch_bytes = plan->set_bytes * s->scratch_copies;
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		plan->stage_bytes[i] = s->stage_slots[i] * slot * element_bytes;
}

static uint64_t span_start(const struct rb_plan *plan, const struct rb_step *step, uint32_t index)
{
	return rb_span_offset(&plan->layout, step, &plan->schedule.spans[index], 0);
}

uint64_t rb_plan_slot(const struct rb_plan *plan, uint8_t buffer, uint32_t slot)
{
	uint64_t chunk = plan->layout.chunk;
	uint64_t length = chunk < plan->layout.count ? chunk : plan->layout.count;

	return (buffer == RB_BUF_SCRATCH ? plan->slots_at : 0) +
	       slot * length * plan->key.element_bytes;
}

uint64_t rb_plan_span_later(const struct rb_plan *plan, uint32_t span_index, uint32_t c)
{
	const struct rb_span *span = &plan->schedule.spans[span_index];
	uint64_t chunk = plan->layout.chunk;

	if (rb_span_in_slots(span))
		return rb_plan_slot(plan, span->buffer, span->slot + c % span->depth);
	if (span->buffer == RB_BUF_SCRATCH && span->depth == RB_BLOCK_SLOT)
		return plan->blocks_at +
		       (plan->span_start[span_index] + c * chunk) * plan->key.element_bytes;
	return (plan->span_start[span_index] + c * chunk) * plan->key.element_bytes;
}

uint64_t rb_plan_count(const struct rb_plan *plan, uint32_t step, uint32_t c)
{
	uint64_t at = c * plan->layout.chunk;
	uint64_t left = plan->range[step] > at ? plan->range[step] - at : 0;

	return left < plan->layout.chunk ? left : plan->layout.chunk;
}

/* As rb_plan_span_later, of iteration 0. */
static void derive_first(struct rb_plan *plan, uint8_t element_bytes)
{
	const struct rb_layout *layout = &plan->layout;
	uint64_t slot = layout->chunk < layout->count ? layout->chunk : layout->count;

	for (uint32_t i = 0; i < plan->schedule.span_count; i++) {
		const struct rb_span *span = &plan->schedule.spans[i];

		uint64_t first = plan->span_start[i] * element_bytes;

		if (rb_span_in_slots(span))
			first = span->slot * slot * element_bytes;
		if (rb_span_in_slots(span) && span->buffer == RB_BUF_SCRATCH)
			first += plan->slots_at;
		else if (span->buffer == RB_BUF_SCRATCH && span->depth == RB_BLOCK_SLOT)
			first += plan->blocks_at;
		plan->span_first[i] = first;
	}
}

static bool is_left_out(const struct rb_plan *plan, uint32_t step, enum rb_met met)
{
	static const uint8_t flags[RB_MET_COUNT] = {
		[RB_MET_ENTERED] = RB_STEP_ENTRY,
		[RB_MET_AHEAD] = RB_STEP_ENTRY | RB_STEP_AHEAD,
	};

	return (plan->schedule.steps[step].flags & flags[met]) != 0;
}

static void derive_message(struct rb_plan *plan, uint32_t index)
{
	const struct rb_step *step = &plan->schedule.steps[index];
	struct rb_plan_message *m = &plan->messages[index];
	uint32_t span = step->kind == RB_STEP_SEND   ? step->from
			: step->kind == RB_STEP_RECV ? step->to
						     : RB_NO_SPAN;

	m->simple = step->kind != RB_STEP_PUT && step->kind != RB_STEP_COPY &&
		    step->kind != RB_STEP_REDUCE &&
		    (span == RB_NO_SPAN || plan->schedule.spans[span].rank == RB_SELF);
	if (!m->simple)
		return;
	m->sends = step->kind == RB_STEP_SEND || step->kind == RB_STEP_NOTIFY;
	m->tag_step = rb_tag_step((struct rb_tag) { 0, 0 }, step->channel, 0).step;
	if (span == RB_NO_SPAN)
		return;
	m->buffer = plan->schedule.spans[span].buffer;
	m->at = plan->span_first[span];
	m->size_bytes = plan->range[index] * plan->key.element_bytes;
}

static bool straight_work(const struct rb_plan *plan, const struct rb_step *step, uint64_t bytes)
{
	const struct rb_span *spans = plan->schedule.spans;
	bool own = (step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE) &&
		   !(step->flags & RB_STEP_DEVICE) && spans[step->to].rank == RB_SELF &&
		   !spans[step->to].alternates;

	for (uint32_t i = 0; i < step->from_count; i++)
		own = own && spans[step->from + i].rank == RB_SELF &&
		      !spans[step->from + i].alternates;
	return own && step->from_count <= RB_STRAIGHT_OPERANDS &&
	       bytes * step->from_count <= RB_STRAIGHT_BYTES;
}

/* The first of these that need nothing but `done`; messages that come are waited for last. */
static uint32_t next_straight(const struct rb_plan *plan, uint64_t left, uint64_t done)
{
	uint32_t incoming = RB_PLAN_STEPS_SHORT;

	for (; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if ((plan->needs[i] & ~done) != 0)
			continue;
		if (!plan->messages[i].simple || plan->messages[i].sends)
			return i;
		if (incoming == RB_PLAN_STEPS_SHORT)
			incoming = i;
	}
	return incoming;
}

static struct rb_plan_place place_of(const struct rb_plan *plan, uint32_t span)
{
	return (struct rb_plan_place) { plan->span_first[span], plan->schedule.spans[span].buffer };
}

/* Returns where the next one's operands are to be written. */
static struct rb_plan_place *derive_work(const struct rb_plan *plan, uint32_t index,
					 struct rb_plan_place *from, struct rb_plan_act *act)
{
	const struct rb_step *step = &plan->schedule.steps[index];

	*act = (struct rb_plan_act) { .from_count = step->from_count,
				      .from = from,
				      .to = place_of(plan, step->to),
				      .count = plan->range[index],
				      .final = (step->flags & RB_STEP_FINAL) != 0 };
	for (uint32_t i = 0; i < step->from_count; i++)
		*from++ = place_of(plan, step->from + i);
	return from;
}

bool rb_plan_acts_make(struct rb_plan *plan)
{
	struct rb_plan_place *from;

	if (plan->acts != NULL)
		return true;
	plan->acts = calloc(plan->order_count, sizeof(*plan->acts));
	plan->parcels = calloc(plan->order_count, sizeof(*plan->parcels));
	plan->operands = calloc((size_t)plan->schedule.span_count + 1, sizeof(*plan->operands));
	if (plan->acts == NULL || plan->parcels == NULL || plan->operands == NULL) {
		free(plan->acts);
		plan->acts = NULL;
		plan->order_count = 0; /* No memory: step by step. */
		return false;
	}
	from = plan->operands;
	for (uint32_t i = 0; i < plan->order_count; i++) {
		const struct rb_plan_message *m = &plan->messages[plan->order[i]];

		if (!m->simple)
			from = derive_work(plan, plan->order[i], from, &plan->acts[i]);
		else
			plan->parcels[i] = (struct rb_parcel) {
				.peer = plan->schedule.steps[plan->order[i]].peer,
				.size_bytes = (uint32_t)m->size_bytes,
				.tag_step = m->tag_step,
				.at = m->at,
				.buffer = m->buffer,
				.sends = m->sends,
			};
	}
	for (uint32_t i = plan->order_count, messages = 0; i-- > 0;) {
		messages = plan->messages[plan->order[i]].simple ? messages + 1 : 0;
		plan->acts[i].messages = messages;
	}
	return true;
}

static void derive_order(struct rb_plan *plan)
{
	uint64_t left = plan->live[0];
	bool messages = false;

	for (uint64_t steps = left; steps != 0; steps &= steps - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(steps);
		uint64_t bytes = plan->range[i] * plan->key.element_bytes;

		messages |= plan->messages[i].simple;
		if (plan->messages[i].simple
			    ? plan->messages[i].size_bytes > RB_STRAIGHT_BYTES
			    : !straight_work(plan, &plan->schedule.steps[i], bytes))
			return;
	}
	while (messages && left != 0) {
		uint32_t i = next_straight(plan, left, ~left);

		RB_ASSERT(i < RB_PLAN_STEPS_SHORT);
		plan->order[plan->order_count++] = (uint8_t)i;
		left &= ~(UINT64_C(1) << i);
	}
}

static bool is_short(const struct rb_plan *plan)
{
	if (plan->schedule.step_count > RB_PLAN_STEPS_SHORT || plan->staged)
		return false;
	for (uint32_t i = 0; i < plan->schedule.step_count; i++)
		if (plan->iterations[i] > 1)
			return false;
	return true;
}

static void derive_short(struct rb_plan *plan)
{
	const struct rb_schedule *s = &plan->schedule;

	if (!is_short(plan))
		return;
	plan->needs = calloc(2 * (size_t)s->step_count + 1, sizeof(*plan->needs));
	plan->messages = calloc(s->step_count + 1, sizeof(*plan->messages));
	plan->is_short = plan->needs != NULL && plan->messages != NULL;
	if (!plan->is_short)
		return; /* No memory: it goes as long ones do. */
	plan->wakes = plan->needs + s->step_count;
	for (uint32_t i = 0; i < s->step_count; i++) {
		const struct rb_dep *dep = &s->deps[s->steps[i].dep];

		if (plan->iterations[i] == 0)
			continue;
		derive_message(plan, i);
		for (enum rb_met met = RB_MET_NOT; met < RB_MET_COUNT; met++)
			plan->live[met] |= (uint64_t)!is_left_out(plan, i, met) << i;
		for (uint32_t d = 0; d < s->steps[i].dep_count; d++, dep++) {
			if (dep->lag > 0 || plan->iterations[dep->step] == 0)
				continue;
			plan->needs[i] |= UINT64_C(1) << dep->step;
			plan->wakes[dep->step] |= UINT64_C(1) << i;
		}
	}
	for (uint32_t i = 0; i < s->step_count; i++)
		for (uint32_t k = 0; k < RB_MET_COUNT; k++)
			if ((plan->live[k] >> i & 1) && (plan->needs[i] & plan->live[k]) == 0)
				plan->first[k] |= UINT64_C(1) << i;
	for (uint32_t k = 0; k < RB_MET_COUNT; k++)
		plan->live_count[k] = (uint32_t)__builtin_popcountll(plan->live[k]);
	derive_order(plan);
}

/* As rb_plan_span_later counts. */
static void reach_of(struct rb_plan *plan, uint64_t *reaches, uint32_t step, uint32_t index,
		     const struct rb_span *span)
{
	uint64_t element_bytes = plan->key.element_bytes, end;
	uint64_t *reach;

	if (span->rank == RB_SELF || plan->iterations[step] == 0)
		return;
	reach = &reaches[(size_t)span->rank * RB_BUFFER_COUNT + span->buffer];
	if (span->buffer != RB_BUF_SCRATCH)
		end = (plan->span_start[index] + plan->range[step]) * element_bytes;
	else if (!rb_span_in_slots(span))
		end = plan->scratch_bytes - plan->set_bytes +
		      (plan->span_start[index] + plan->range[step]) * element_bytes;
	else
		end = plan->scratch_bytes - plan->set_bytes +
		      rb_plan_slot(plan, RB_BUF_SCRATCH, span->slot + span->depth);
	*reach = end > *reach ? end : *reach;
}

static void reach_add(struct rb_plan *plan, uint64_t *reaches, uint32_t step, uint32_t index)
{
	const struct rb_span *span = &plan->schedule.spans[index];
	struct rb_span odd = rb_span_side(*span, true);

	reach_of(plan, reaches, step, index, span);
	if (span->alternates)
		reach_of(plan, reaches, step, index, &odd);
}

static void derive_reach(struct rb_plan *plan)
{
	bool any = plan->reach != NULL || plan->put_reach != NULL;

	for (uint32_t i = 0; any && i < plan->schedule.step_count; i++) {
		const struct rb_step *step = &plan->schedule.steps[i];

		if (step->kind == RB_STEP_PUT)
			reach_add(plan, plan->put_reach, i, step->to);
		if (step->kind == RB_STEP_PUT || plan->reach == NULL)
			continue;
		for (uint32_t k = 0; k < step->from_count; k++)
			reach_add(plan, plan->reach, i, step->from + k);
		if (step->to != RB_NO_SPAN)
			reach_add(plan, plan->reach, i, step->to);
	}
}

static void derive(struct rb_plan *plan, uint8_t element_bytes)
{
	const struct rb_schedule *s = &plan->schedule;

	derive_scratch(plan, element_bytes);
	plan->turns = rb_schedule_turns(s, &plan->layout);
	RB_ASSERT(plan->turns == 0 || (s->scratch_copies == 1 && s->scratch_vector_slots == 0));
	for (uint32_t i = 0; i < s->step_count; i++) {
		const struct rb_step *step = &s->steps[i];

		plan->iterations[i] = rb_step_iterations(&plan->layout, step);
		plan->range[i] = rb_step_range(&plan->layout, step);
		/* Pairs compare what they send and expect, also where that is nothing. */
		if (plan->layout.per_peer && plan->iterations[i] == 0 &&
		    (step->kind == RB_STEP_SEND || step->kind == RB_STEP_RECV))
			plan->iterations[i] = 1;
		plan->pending_steps += plan->iterations[i] > 0;
		for (uint32_t k = 0; k < step->from_count; k++)
			plan->span_start[step->from + k] = span_start(plan, step, step->from + k);
		if (step->to != RB_NO_SPAN)
			plan->span_start[step->to] = span_start(plan, step, step->to);
	}
	plan->goes_ahead = s->rank_count <= RB_AHEAD_RANKS &&
			   s->flags & RB_SCHEDULE_MAPPED_SCRATCH && !plan->layout.per_peer &&
			   plan->layout.count * element_bytes <= RB_AHEAD_BYTES;
	RB_ASSERT(RB_IMPLIES(plan->goes_ahead, plan->set_bytes <= RB_AHEAD_ROOM));
	derive_successors(plan);
	derive_first(plan, element_bytes);
	derive_short(plan);
	derive_reach(plan);
}

/* Of schedules that are alike on all ranks, as those are that know no nodes: what this one does not
 * read, nor do the others. */
static void last_find(struct rb_schedule *s)
{
	bool read[2] = { false }; /* OUT of this rank; of a peer. */

	for (uint32_t i = 0; i < s->step_count; i++) {
		const struct rb_span *from = &s->spans[s->steps[i].from];

		for (uint32_t k = 0; k < s->steps[i].from_count; k++)
			if (from[k].buffer == RB_BUF_OUT)
				read[from[k].rank != RB_SELF] = true;
	}
	for (uint32_t i = 0; i < s->step_count; i++) {
		struct rb_step *step = &s->steps[i];
		bool computes = step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE;

		if (computes && s->spans[step->to].buffer == RB_BUF_OUT &&
		    !read[s->spans[step->to].rank != RB_SELF])
			step->flags |= RB_STEP_LAST;
	}
}

static bool is_same_place(const struct rb_span *a, const struct rb_span *b)
{
	return a->rank == b->rank && a->buffer == b->buffer && a->part == b->part &&
	       a->depth == b->depth && a->slot == b->slot && a->alternates == b->alternates &&
	       a->odd_rank == b->odd_rank && a->odd_slot == b->odd_slot && a->shift == b->shift;
}

/* Measured, 2 ranks: shorter vectors of a peer's memory are better copied, line by line as it gives
 * them up (base/copy.h). */
#define TAKEN_ACROSS_BYTES (2u << 20)

/* Whether the step is a copy that waits for the reduction of what it copies, and for nothing else:
 * so it may as well be made with it. */
static bool is_taken(const struct rb_plan *plan, const struct rb_step *step)
{
	const struct rb_schedule *s = &plan->schedule;
	const struct rb_dep *dep = &s->deps[step->dep];
	bool is_long = plan->layout.count * plan->key.element_bytes >= TAKEN_ACROSS_BYTES;
	const struct rb_step *reduce;

	if (step->kind != RB_STEP_COPY || step->flags & RB_STEP_FINAL || step->dep_count != 1 ||
	    dep->lag != 0 || s->spans[step->to].buffer != RB_BUF_OUT ||
	    (s->spans[step->to].rank != RB_SELF && !is_long))
		return false;
	reduce = &s->steps[dep->step];
	return reduce->kind == RB_STEP_REDUCE && reduce->block == step->block &&
	       reduce->blocks == step->blocks &&
	       ((reduce->flags ^ step->flags) & (RB_STEP_ONCE | RB_STEP_OUT)) == 0 &&
	       is_same_place(&s->spans[reduce->to], &s->spans[step->from]);
}

/* Both at once take less than one after the other: what is written waits while operands come. */
static void taken_find(struct rb_plan *plan)
{
	struct rb_schedule *s = &plan->schedule;

	for (uint32_t i = 0; i < s->step_count; i++) {
		struct rb_step *step = &s->steps[i];
		uint32_t reduce;

		if (!is_taken(plan, step))
			continue;
		reduce = s->deps[step->dep].step;
		if (plan->also == NULL)
			plan->also = calloc(s->step_count, sizeof(*plan->also));
		if (plan->also == NULL)
			return; /* No memory: one after the other. */
		if (plan->also[reduce] != 0)
			continue;
		/* What goes straight on knows nothing of this. */
		RB_ASSERT(plan->order_count == 0 || plan->iterations[reduce] == 0);
		plan->also[reduce] = i + 1;
		step->flags |= RB_STEP_TAKEN;
	}
}

rubato_status rb_plan_make(const struct rb_plan_key *key, const struct rb_shape *shape,
			   const struct rb_choice *choice, const struct rb_build *who,
			   struct rb_plan **out)
{
	const struct rb_algorithm *algorithm = &rb_algorithms[key->algorithm];
	uint32_t rank_count = who->rank_count;
	struct rb_build build = { .rank = who->rank,
				  .rank_count = rank_count,
				  .root = key->root,
				  .nodes = who->nodes,
				  .in_place = key->in_place != 0 };
	uint32_t block_count = rb_algorithm_blocks(algorithm, rank_count, who->nodes);
	struct rb_plan *plan = calloc(1, sizeof(*plan));
	rubato_status err;

	if (plan == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "plan: %zu bytes", sizeof(*plan));
	plan->key = *key;
	plan->algorithm = algorithm;
	plan->layout = (struct rb_layout) {
		.count = rb_plan_total((enum rb_kind)key->kind, key->count, rank_count),
		.block_count = block_count,
		.align = choice->align > 0 ? choice->align : 1,
		.chunk = choice->chunk > 0 ? choice->chunk : 1,
	};
	err = RUBATO_OK;
	if (key->kind == RB_KIND_ALLTOALLV && algorithm->flags & RB_SCHEDULE_MAPPED_BUFFERS)
		err = apart_find(plan, shape, rank_count);
	build.apart = plan->apart;
	if (err == RUBATO_OK)
		err = schedule_build(algorithm, &build, block_count, &plan->schedule);
	if (err == RUBATO_OK && shape != NULL)
		err = blocks_copy(plan, shape, rank_count);
	if (err == RUBATO_OK)
		err = derived_allocate(plan);
	if (err != RUBATO_OK) {
		rb_plan_free(plan);
		return err;
	}
	derive(plan, key->element_bytes);
	if (!algorithm->by_node)
		last_find(&plan->schedule);
	taken_find(plan);
	*out = plan;
	return RUBATO_OK;
}

rubato_status rb_plan_from(const struct rb_schedule *schedule, const struct rb_layout *layout,
			   uint8_t element_bytes, struct rb_plan **out)
{
	struct rb_plan *plan = calloc(1, sizeof(*plan));
	rubato_status err;

	if (plan == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "plan: %zu bytes", sizeof(*plan));
	plan->key.element_bytes = element_bytes;
	plan->schedule = *schedule;
	plan->layout = *layout;
	err = arrays_allocate(&plan->schedule, schedule->step_count, schedule->span_count,
			      schedule->dep_count);
	if (err == RUBATO_OK)
		err = derived_allocate(plan);
	if (err != RUBATO_OK) {
		rb_plan_free(plan);
		return err;
	}
	memcpy(plan->schedule.steps, schedule->steps,
	       schedule->step_count * sizeof(struct rb_step));
	memcpy(plan->schedule.spans, schedule->spans,
	       schedule->span_count * sizeof(struct rb_span));
	memcpy(plan->schedule.deps, schedule->deps, schedule->dep_count * sizeof(struct rb_dep));
	derive(plan, element_bytes);
	*out = plan;
	return RUBATO_OK;
}

/* ---- For other memory than the host's ---- */

static rubato_status schedule_stage(const struct rb_plan *plan, const struct rb_staging *staging,
				    struct rb_schedule *out)
{
	uint32_t *first = calloc(plan->schedule.step_count + 1, sizeof(*first));
	struct rb_writer w = { .schedule = out };
	rubato_status err;

	if (first == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "plan of %u steps", plan->schedule.step_count);
	rb_stage(&w, &plan->schedule, staging, first); /* Without room: it counts. */
	w.step_capacity = out->step_count;
	w.span_capacity = out->span_count;
	w.dep_capacity = out->dep_count;
	err = arrays_allocate(out, w.step_capacity, w.span_capacity, w.dep_capacity);
	if (err == RUBATO_OK)
		rb_stage(&w, &plan->schedule, staging, first);
	free(first);
	return err;
}

/* Guess: what a device works through in several times what it takes to be told so, and what stays
 * in its cache from a reduction to the copies of its result. */
#define DEVICE_CHUNK_BYTES (8u << 20)

/* Of one rank alone, mostly. */
static bool is_local(const struct rb_plan *plan)
{
	for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
		enum rb_step_kind kind = (enum rb_step_kind)plan->schedule.steps[i].kind;

		if (kind != RB_STEP_COPY && kind != RB_STEP_REDUCE)
			return false;
	}
	return plan->scratch_bytes == 0;
}

/* Where all ranks work in each other's buffers on devices, as all know, and send nothing besides,
 * chunks that suit processors are too short. By pairs nobody knows what others' pairs do. */
static void layout_for_devices(const struct rb_plan *plan, struct rb_plan *staged)
{
	uint64_t chunk = DEVICE_CHUNK_BYTES / staged->key.element_bytes;
	bool direct = (plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) != 0 &&
		      !plan->algorithm->by_node && !rb_plan_by_pairs(plan);

	if ((direct || is_local(plan)) && staged->kinds[RB_BUF_IN] == RB_MEMORY_DEVICE &&
	    staged->kinds[RB_BUF_OUT] == RB_MEMORY_DEVICE && staged->layout.chunk < chunk)
		staged->layout.chunk = chunk;
}

static rubato_status staged_make(const struct rb_plan *plan, const struct rb_staging *staging,
				 struct rb_plan *staged)
{
	struct rb_staging deep = *staging;
	uint32_t longest = 1;

	for (uint32_t i = 0; i < plan->schedule.step_count; i++)
		if (plan->iterations[i] > longest)
			longest = plan->iterations[i];
	deep.depth = longest < STAGE_DEPTH ? longest : STAGE_DEPTH;
	staged->key = plan->key;
	staged->algorithm = plan->algorithm;
	staged->layout = plan->layout; /* Its arrays are the plan's, which lives as long. */
	staged->staged = true;
	memcpy(staged->kinds, staging->kinds, sizeof(staged->kinds));
	staged->ways = staging->ways;
	RB_TRY(schedule_stage(plan, &deep, &staged->schedule));
	layout_for_devices(plan, staged);
	RB_TRY(derived_allocate(staged));
	derive(staged, plan->key.element_bytes);
	return RUBATO_OK;
}

rubato_status rb_plan_staged(struct rb_plan *plan, const struct rb_staging *staging,
			     struct rb_plan **out)
{
	struct rb_plan *staged = plan->staged_next;
	rubato_status err;

	while (staged != NULL &&
	       (staged->ways != staging->ways ||
		memcmp(staged->kinds, staging->kinds, sizeof(staged->kinds)) != 0))
		staged = staged->staged_next;
	if (staged == NULL) {
		staged = calloc(1, sizeof(*staged));
		if (staged == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "plan: %zu bytes", sizeof(*staged));
		err = staged_make(plan, staging, staged);
		if (err != RUBATO_OK) {
			rb_plan_free(staged);
			return err;
		}
		staged->staged_next = plan->staged_next;
		plan->staged_next = staged;
	}
	*out = staged;
	return RUBATO_OK;
}

void rb_plan_rename(struct rb_plan *plan, uint32_t (*name)(const void *arg, uint32_t peer),
		    const void *arg)
{
	for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
		struct rb_step *step = &plan->schedule.steps[i];

		if (step->peer != RB_SELF)
			step->peer = name(arg, step->peer);
	}
	for (uint32_t i = 0; plan->acts != NULL && i < plan->order_count; i++)
		if (plan->acts[i].messages > 0)
			plan->parcels[i].peer = plan->schedule.steps[plan->order[i]].peer;
}

void rb_plan_free(struct rb_plan *plan)
{
	if (plan == NULL)
		return;
	rb_plan_free(plan->staged_next);
	arrays_free(&plan->schedule);
	free(plan->iterations);
	free(plan->range);
	free(plan->span_start);
	free(plan->successors);
	free(plan->successor_first);
	free(plan->span_first);
	free(plan->needs);
	free(plan->messages);
	free(plan->acts);
	free(plan->parcels);
	free(plan->operands);
	free(plan->blocks);
	free(plan->apart);
	free(plan->reach);
	free(plan->put_reach);
	free(plan->also);
	free(plan);
}

/* ---- Cache ---- */

static uint32_t bucket_of(const struct rb_plan_cache *cache, const struct rb_plan_key *key)
{
	uint64_t hash = rb_mix(key->count + key->shape + ((uint64_t)key->root << 32) +
			       ((uint64_t)key->kind << 16) + ((uint64_t)key->element_bytes << 8) +
			       key->algorithm);

	return (uint32_t)hash & (cache->bucket_count - 1);
}

static bool key_same(const struct rb_plan_key *a, const struct rb_plan_key *b)
{
	return a->count == b->count && a->shape == b->shape && a->root == b->root &&
	       a->kind == b->kind && a->element_bytes == b->element_bytes &&
	       a->algorithm == b->algorithm && a->in_place == b->in_place && a->coded == b->coded &&
	       a->apart_bytes == b->apart_bytes;
}

rubato_status rb_plan_cache_init(struct rb_plan_cache *cache, uint32_t plan_max)
{
	uint32_t bucket_count = 16;

	while (bucket_count < plan_max)
		bucket_count *= 2;
	*cache = (struct rb_plan_cache) { .bucket_count = bucket_count, .plan_max = plan_max };
	cache->buckets = calloc(bucket_count, sizeof(struct rb_plan *));
	if (cache->buckets == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "plan cache: %u buckets", bucket_count);
	return RUBATO_OK;
}

static void order_remove(struct rb_plan_cache *cache, struct rb_plan *plan)
{
	*(plan->newer != NULL ? &plan->newer->older : &cache->newest) = plan->older;
	*(plan->older != NULL ? &plan->older->newer : &cache->oldest) = plan->newer;
	plan->newer = plan->older = NULL;
}

static void order_add(struct rb_plan_cache *cache, struct rb_plan *plan)
{
	plan->older = cache->newest;
	*(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = plan;
	cache->newest = plan;
}

struct rb_plan *rb_plan_cache_find(struct rb_plan_cache *cache, const struct rb_plan_key *key,
				   const struct rb_shape *shape)
{
	struct rb_plan *plan;

	if (cache->newest != NULL && key_same(&cache->newest->key, key) &&
	    rb_plan_has_blocks(cache->newest, shape))
		return cache->newest;
	plan = cache->buckets[bucket_of(cache, key)];
	while (plan != NULL && !(key_same(&plan->key, key) && rb_plan_has_blocks(plan, shape)))
		plan = plan->bucket_next;
	if (plan != NULL)
		rb_plan_cache_touch(cache, plan);
	return plan;
}

void rb_plan_cache_touch(struct rb_plan_cache *cache, struct rb_plan *plan)
{
	if (cache->newest == plan)
		return;
	order_remove(cache, plan);
	order_add(cache, plan);
}

static void evict(struct rb_plan_cache *cache, struct rb_plan *plan)
{
	struct rb_plan **at = &cache->buckets[bucket_of(cache, &plan->key)];

	while (*at != plan)
		at = &(*at)->bucket_next;
	*at = plan->bucket_next;
	order_remove(cache, plan);
	cache->plan_count--;
	cache->evictions++;
	rb_plan_free(plan);
}

void rb_plan_cache_add(struct rb_plan_cache *cache, struct rb_plan *plan)
{
	uint32_t bucket = bucket_of(cache, &plan->key);
	struct rb_plan *old = cache->oldest;

	while (cache->plan_count >= cache->plan_max && old != NULL) {
		struct rb_plan *next = old->newer;

		if (old->users == 0)
			evict(cache, old);
		old = next;
	}
	plan->bucket_next = cache->buckets[bucket];
	cache->buckets[bucket] = plan;
	order_add(cache, plan);
	cache->plan_count++;
}

void rb_plan_cache_fini(struct rb_plan_cache *cache)
{
	while (cache->newest != NULL)
		evict(cache, cache->newest);
	free(cache->buckets);
	cache->buckets = NULL;
}
