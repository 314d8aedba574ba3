/*
 * schedule.c -- where a step's bytes lie, and how builders write steps down.
 *
 * Even blocks are cut in units of `align` elements: the first (units % blocks) blocks have one unit
 * more. Products stay below count + align, so counts up to 2^60 do not overflow.
 */
#include "collectives/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t even_offset(const struct rb_layout *layout, uint32_t block)
{
	uint64_t align = layout->align;
	uint64_t units = layout->count / align + (layout->count % align != 0);
	uint64_t share = units / layout->block_count, extra = units % layout->block_count;
	uint64_t first = (block * share + (block < extra ? block : extra)) * align;

	return first < layout->count ? first : layout->count;
}

static uint64_t start(const struct rb_layout *layout, const uint64_t *starts, uint32_t block)
{
	RB_ASSERT(block < layout->block_count + !starts && layout->align > 0);
	return starts ? starts[block] : even_offset(layout, block);
}

static uint64_t length(const struct rb_layout *layout, const uint64_t *lengths, uint32_t block,
		       uint32_t blocks)
{
	uint64_t sum = 0;

	RB_ASSERT((uint64_t)block + blocks <= layout->block_count);
	if (!lengths)
		return even_offset(layout, block + blocks) - even_offset(layout, block);
	for (uint32_t b = block; b < block + blocks; b++)
		sum += lengths[b];
	return sum;
}

uint64_t rb_layout_offset(const struct rb_layout *layout, uint32_t block)
{
	return start(layout, layout->starts, block);
}

uint64_t rb_layout_length(const struct rb_layout *layout, uint32_t block, uint32_t blocks)
{
	return length(layout, layout->lengths, block, blocks);
}

uint64_t rb_layout_out_offset(const struct rb_layout *layout, uint32_t block)
{
	return start(layout, layout->out_starts ? layout->out_starts : layout->starts, block);
}

uint64_t rb_layout_out_length(const struct rb_layout *layout, uint32_t block, uint32_t blocks)
{
	return length(layout, layout->out_lengths ? layout->out_lengths : layout->lengths, block,
		      blocks);
}

uint64_t rb_layout_extent(const struct rb_layout *layout, enum rb_buffer buffer)
{
	bool out = buffer == RB_BUF_OUT && layout->out_starts;
	const uint64_t *starts = out ? layout->out_starts : layout->starts;
	const uint64_t *lengths = out ? layout->out_lengths : layout->lengths;
	uint64_t end = 0;

	if (!starts)
		return layout->count;
	for (uint32_t b = 0; b < layout->block_count; b++)
		if (lengths[b] > 0 && starts[b] + lengths[b] > end)
			end = starts[b] + lengths[b];
	return end;
}

uint64_t rb_step_range(const struct rb_layout *layout, const struct rb_step *step)
{
	if (step->flags & RB_STEP_OUT)
		return rb_layout_out_length(layout, step->block, step->blocks);
	return rb_layout_length(layout, step->block, step->blocks);
}

uint32_t rb_step_iterations(const struct rb_layout *layout, const struct rb_step *step)
{
	if (step->flags & RB_STEP_ONCE)
		return 1;
	uint64_t range = rb_step_range(layout, step);
	uint64_t chunks = range / layout->chunk + (range % layout->chunk != 0);

	RB_ASSERT(chunks <= RB_ITERATION_MAX);
	return (uint32_t)chunks;
}

uint64_t rb_step_length(const struct rb_layout *layout, const struct rb_step *step, uint32_t c)
{
	uint64_t range = rb_step_range(layout, step);
	uint64_t done = c * layout->chunk;

	RB_ASSERT(done <= range);
	return range - done < layout->chunk ? range - done : layout->chunk;
}

uint64_t rb_layout_longest(const struct rb_layout *layout)
{
	uint64_t longest = 0;

	if (!layout->lengths)
		return even_offset(layout, 1);
	for (uint32_t b = 0; b < layout->block_count; b++)
		longest = layout->lengths[b] > longest ? layout->lengths[b] : longest;
	return longest;
}

uint32_t rb_schedule_turns(const struct rb_schedule *schedule, const struct rb_layout *layout)
{
	uint64_t longest = rb_layout_longest(layout);

	for (uint32_t i = 0; i < schedule->span_count; i++)
		if (schedule->spans[i].alternates)
			return (uint32_t)((longest + layout->chunk - 1) / layout->chunk);
	return 0;
}

uint64_t rb_span_offset(const struct rb_layout *layout, const struct rb_step *step,
			const struct rb_span *span, uint32_t c)
{
	bool scratch = span->buffer >= RB_BUF_SCRATCH;
	uint64_t base = 0;

	if (rb_span_in_slots(span))
		return ((uint64_t)span->slot + c % span->depth) * layout->chunk;
	if (scratch && span->depth == RB_BLOCK_SLOT)
		return span->slot * rb_layout_longest(layout) + c * layout->chunk;
	uint32_t block =
		span->shift == 0 ? step->block : (step->block + span->shift) % layout->block_count;

	if (scratch)
		base = span->slot * layout->count + even_offset(layout, block);
	else if (!span->part && !(layout->per_peer && span->rank != RB_SELF))
		base = span->buffer == RB_BUF_OUT ? rb_layout_out_offset(layout, block)
						  : rb_layout_offset(layout, block);
	return base + c * layout->chunk;
}

void rb_writer_init(struct rb_writer *w, struct rb_schedule *schedule, uint32_t rank,
		    uint32_t rank_count, uint32_t block_count)
{
	schedule->rank = rank;
	schedule->rank_count = rank_count;
	schedule->block_count = block_count;
	schedule->scratch_slots = schedule->scratch_vector_slots = 0;
	schedule->scratch_block_slots = 0;
	schedule->scratch_copies = 1;
	memset(schedule->stage_slots, 0, sizeof(schedule->stage_slots));
	memset(schedule->kinds, 0, sizeof(schedule->kinds));
	schedule->flags = 0;
	schedule->step_count = schedule->span_count = schedule->dep_count = 0;
	w->schedule = schedule;
	w->open = 0;
}

bool rb_writer_fits(const struct rb_writer *w)
{
	const struct rb_schedule *s = w->schedule;
	const bool each_label_that_is_waited_for_is_placed = w->open == 0;

	RB_ASSERT(each_label_that_is_waited_for_is_placed);
	return s->step_count <= w->step_capacity && s->span_count <= w->span_capacity &&
	       s->dep_count <= w->dep_capacity;
}

static uint32_t add_span(struct rb_writer *w, struct rb_span span)
{
	struct rb_schedule *s = w->schedule;
	uint32_t index = s->span_count++;

	if (index < w->span_capacity)
		s->spans[index] = span;
	if (span.buffer == RB_BUF_SCRATCH && span.depth == RB_VECTOR_SLOT) {
		if (span.slot >= s->scratch_vector_slots)
			s->scratch_vector_slots = span.slot + 1;
	} else if (span.buffer == RB_BUF_SCRATCH && span.depth == RB_BLOCK_SLOT) {
		if (span.slot >= s->scratch_block_slots)
			s->scratch_block_slots = span.slot + 1;
	} else if (span.buffer >= RB_BUF_SCRATCH) {
		uint32_t *slots = span.buffer == RB_BUF_SCRATCH
					  ? &s->scratch_slots
					  : &s->stage_slots[span.buffer - RB_BUF_STAGE_HOST];

		if (span.slot + span.depth > *slots)
			*slots = span.slot + span.depth;
		if (span.alternates && span.odd_slot + span.depth > *slots)
			*slots = span.odd_slot + span.depth;
	}
	return index;
}

static struct rb_step *last_step(struct rb_writer *w)
{
	uint32_t count = w->schedule->step_count;

	return count > 0 && count <= w->step_capacity ? &w->schedule->steps[count - 1] : NULL;
}

static uint32_t add_step(struct rb_writer *w, enum rb_step_kind kind, uint32_t peer,
			 uint16_t channel, uint32_t block, uint32_t blocks)
{
	struct rb_schedule *s = w->schedule;
	uint32_t index = s->step_count++;
	struct rb_step *step = last_step(w);

	if (step)
		*step = (struct rb_step) { .kind = (uint8_t)kind,
					   .channel = channel,
					   .peer = peer,
					   .block = block,
					   .blocks = blocks,
					   .to = RB_NO_SPAN,
					   .from = s->span_count,
					   .dep = s->dep_count };
	return index;
}

static void set_to(struct rb_writer *w, struct rb_span to)
{
	uint32_t index = add_span(w, to);
	struct rb_step *step = last_step(w);

	if (step) {
		step->to = index;
		step->from = w->schedule->span_count;
	}
}

uint32_t rb_write_send(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span from,
		       uint32_t block, uint32_t blocks)
{
	uint32_t index = add_step(w, RB_STEP_SEND, peer, channel, block, blocks);

	rb_write_operand(w, from);
	return index;
}

uint32_t rb_write_recv(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span to,
		       uint32_t block, uint32_t blocks)
{
	uint32_t index = add_step(w, RB_STEP_RECV, peer, channel, block, blocks);

	set_to(w, to);
	return index;
}

uint32_t rb_write_put(struct rb_writer *w, uint32_t peer, uint16_t channel, struct rb_span from,
		      struct rb_span to, uint32_t block, uint32_t blocks)
{
	uint32_t index = add_step(w, RB_STEP_PUT, peer, channel, block, blocks);

	set_to(w, to);
	rb_write_operand(w, from);
	return index;
}

uint32_t rb_write_notify(struct rb_writer *w, uint32_t peer, uint16_t channel, uint32_t block,
			 uint32_t blocks)
{
	return add_step(w, RB_STEP_NOTIFY, peer, channel, block, blocks);
}

uint32_t rb_write_wait(struct rb_writer *w, uint32_t peer, uint16_t channel, uint32_t block,
		       uint32_t blocks)
{
	return add_step(w, RB_STEP_WAIT, peer, channel, block, blocks);
}

uint32_t rb_write_copy(struct rb_writer *w, struct rb_span from, struct rb_span to, uint32_t block,
		       uint32_t blocks)
{
	uint32_t index = add_step(w, RB_STEP_COPY, RB_SELF, 0, block, blocks);

	set_to(w, to);
	rb_write_operand(w, from);
	return index;
}

uint32_t rb_write_reduce(struct rb_writer *w, struct rb_span to, uint32_t block, uint32_t blocks)
{
	uint32_t index = add_step(w, RB_STEP_REDUCE, RB_SELF, 0, block, blocks);

	set_to(w, to);
	return index;
}

void rb_write_operand(struct rb_writer *w, struct rb_span from)
{
	struct rb_step *step = last_step(w);

	(void)add_span(w, from);
	if (step)
		step->from_count++;
}

void rb_write_flags(struct rb_writer *w, uint8_t flags)
{
	struct rb_step *step = last_step(w);

	if (step)
		step->flags |= flags;
}

void rb_write_dep(struct rb_writer *w, uint32_t step, int32_t lag)
{
	struct rb_schedule *s = w->schedule;
	struct rb_step *last = last_step(w);
	uint32_t index = s->dep_count++;

	if (index < w->dep_capacity)
		s->deps[index] = (struct rb_dep) { .step = step, .lag = lag };
	if (last)
		last->dep_count++;
}

/* What waits for a label is a list through the dependencies themselves, those that have room. */
void rb_write_dep_label(struct rb_writer *w, struct rb_label *label, int32_t lag)
{
	uint32_t index = w->schedule->dep_count;

	rb_write_dep(w, label->last_dep, lag);
	if (index >= w->dep_capacity)
		return;
	label->last_dep = index + 1;
	w->open++;
}

void rb_write_label(struct rb_writer *w, struct rb_label *label)
{
	struct rb_schedule *s = w->schedule;

	RB_ASSERT(s->step_count > 0);
	while (label->last_dep > 0) {
		struct rb_dep *dep = &s->deps[label->last_dep - 1];

		label->last_dep = dep->step;
		dep->step = s->step_count - 1;
		w->open--;
	}
}

void rb_row_add(struct rb_row *row, uint32_t step)
{
	if (row->count == 0)
		row->first = step;
	else if (row->count == 1)
		row->stride = step - row->first;
	RB_ASSERT(step == row->first + row->count * row->stride);
	row->count++;
}

uint32_t rb_row_at(const struct rb_row *row, uint32_t i)
{
	RB_ASSERT(i < row->count);
	return row->first + i * row->stride;
}

void rb_write_dep_row(struct rb_writer *w, const struct rb_row *row, int32_t lag)
{
	for (uint32_t i = 0; i < row->count; i++)
		rb_write_dep(w, rb_row_at(row, i), lag);
}

/* ---- Text ---- */

struct text {
	char *at;
	size_t room;
	int length; /* Of the whole line, also what did not fit. */
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vsnprintf(t->at, t->room, format, args);
	va_end(args);
	if (n < 0)
		return;
	size_t used = (size_t)n < t->room ? (size_t)n : (t->room > 0 ? t->room - 1 : 0);

	t->length += n;
	t->at += used;
	t->room -= used;
}

static void add_span_text(struct text *t, const struct rb_schedule *s, uint32_t index)
{
	static const char *const names[RB_BUFFERS_ALL] = { "in", "out", "scratch", "host stage",
							   "device stage" };

	if (index >= s->span_count) {
		add(t, " span?");
		return;
	}
	const struct rb_span *span = &s->spans[index];

	add(t, " %s", span->buffer < RB_BUFFERS_ALL ? names[span->buffer] : "?");
	if (span->rank != RB_SELF)
		add(t, "@%u", span->rank);
	if (span->buffer == RB_BUF_SCRATCH && span->depth == RB_VECTOR_SLOT)
		add(t, " vector slot %u", span->slot);
	else if (span->buffer == RB_BUF_SCRATCH && span->depth == RB_BLOCK_SLOT)
		add(t, " block slot %u", span->slot);
	else if (span->buffer >= RB_BUF_SCRATCH)
		add(t, "[%u+%u]", span->slot, span->depth);
	else if (span->part)
		add(t, ".part");
	if (span->shift != 0)
		add(t, " shifted %u", span->shift);
	if (span->alternates && span->odd_rank != RB_SELF)
		add(t, " or @%u[%u]", span->odd_rank, span->odd_slot);
	else if (span->alternates)
		add(t, " or [%u]", span->odd_slot);
}

int rb_step_text(const struct rb_schedule *s, uint32_t index, char *text, size_t text_bytes)
{
	static const char *const names[RB_STEP_KIND_COUNT] = { "SEND", "RECV", "PUT",   "NOTIFY",
							       "WAIT", "COPY", "REDUCE" };
	const struct rb_step *step = &s->steps[index];
	struct text t = { text, text_bytes, 0 };

	add(&t, "%u %s", index, step->kind < RB_STEP_KIND_COUNT ? names[step->kind] : "?");
	if (step->peer != RB_SELF)
		add(&t, " peer %u channel %u", step->peer, step->channel);
	if (step->blocks > 0)
		add(&t, " blocks %u+%u", step->block, step->blocks);
	if (step->flags & RB_STEP_OUT)
		add(&t, " of out");
	if (step->flags & RB_STEP_ONCE)
		add(&t, " once");
	if (step->flags & RB_STEP_FINAL)
		add(&t, " final");
	if (step->flags & RB_STEP_DEVICE)
		add(&t, " on the device");
	for (uint32_t i = 0; i < step->from_count; i++) {
		add(&t, "%s", i == 0 ? " from" : ",");
		add_span_text(&t, s, step->from + i);
	}
	if (step->to != RB_NO_SPAN) {
		add(&t, " to");
		add_span_text(&t, s, step->to);
	}
	for (uint32_t i = 0; i < step->dep_count && step->dep + i < s->dep_count; i++) {
		const struct rb_dep *dep = &s->deps[step->dep + i];

		add(&t, "%s%u", i == 0 ? " after " : ",", dep->step);
		if (dep->lag == RB_DEP_ALL)
			add(&t, ":all");
		else if (dep->lag != 0)
			add(&t, "-%d", dep->lag);
	}
	return t.length;
}
