/*
 * stage.c -- see stage.h.
 *
 * A step becomes itself, with copies before and after it. Who depended on it depends on what ends
 * it: the copy out of its slot, or, of a message from a slot, the copy into it. A slot is written
 * again when who reads it is through with what was there so many chunks ago.
 */
#include "collectives/stage.h"

struct stage {
	struct rb_writer *w;
	const struct rb_schedule *from;
	const struct rb_staging *staging;
	uint32_t *first;                /* Per step: the first of what it becomes. */
	uint32_t slots[RB_STAGE_COUNT]; /* Taken so far. */
};

/* How a step is carried out. */
struct shape {
	bool device;            /* The step itself is the device's. */
	bool sends;             /* From a slot: the copy before ends it. */
	uint32_t before, after; /* Copies, */
	uint32_t chain;         /* of which so many, one behind the other, are an operand's. */
	enum rb_buffer operand; /* before > 0: where their last slot is. */
	enum rb_buffer target;  /* after > 0: where the slot of its target is. */
};

static enum rb_memory_kind kind_of(const struct stage *s, uint32_t span)
{
	return (enum rb_memory_kind)s->staging->kinds[s->from->spans[span].buffer];
}

static bool takes(const struct stage *s, const struct rb_step *step)
{
	return s->staging->takes != NULL && s->staging->takes(s->staging->arg, step->peer);
}

/* A kernel reaches managed memory, too. A copy between that and a device is taken for one between
 * host and device, which goes by a slot. */
static bool copied_before(const struct stage *s, const struct rb_step *step, uint32_t i)
{
	enum rb_memory_kind kind = kind_of(s, step->from + i);

	return step->kind == RB_STEP_REDUCE || (step->flags & RB_STEP_FINAL)
		       ? kind == RB_MEMORY_HOST
		       : kind != RB_MEMORY_DEVICE;
}

static uint32_t operands_of(const struct stage *s, const struct rb_step *step, bool before)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < step->from_count; i++)
		count += before ? copied_before(s, step, i)
				: kind_of(s, step->from + i) == RB_MEMORY_DEVICE;
	return count;
}

static struct shape copy_shape(bool from_device, bool to_device)
{
	struct shape shape = { .device = from_device || to_device,
			       .chain = 1,
			       .operand = RB_BUF_STAGE_HOST,
			       .target = RB_BUF_STAGE_HOST };

	shape.before = to_device && !from_device;
	shape.after = from_device && !to_device;
	return shape;
}

static struct shape shape_of(const struct stage *s, const struct rb_step *step)
{
	bool computes = step->kind == RB_STEP_REDUCE ||
			(step->kind == RB_STEP_COPY && (step->flags & RB_STEP_FINAL));
	bool on_device = operands_of(s, step, false) > 0;
	enum rb_memory_kind to = step->to != RB_NO_SPAN ? kind_of(s, step->to) : RB_MEMORY_HOST;

	switch ((enum rb_step_kind)step->kind) {
	case RB_STEP_SEND:
	case RB_STEP_PUT:
		if (on_device && !takes(s, step))
			return (struct shape) {
				.sends = true, .before = 1, .chain = 1, .operand = RB_BUF_STAGE_HOST
			};
		return (struct shape) { .device = false };
	case RB_STEP_RECV:
		if (to == RB_MEMORY_DEVICE && !takes(s, step))
			return (struct shape) { .after = 1, .target = RB_BUF_STAGE_HOST };
		return (struct shape) { .device = false };
	case RB_STEP_COPY:
	case RB_STEP_REDUCE:
		if (!computes)
			return copy_shape(on_device, to == RB_MEMORY_DEVICE);
		if (on_device)
			return (struct shape) { .device = true,
						.before = 2 * operands_of(s, step, true),
						.after = to == RB_MEMORY_HOST ? 2 : 0,
						.chain = 2,
						.operand = RB_BUF_STAGE_DEVICE,
						.target = RB_BUF_STAGE_DEVICE };
		return (struct shape) { .after = to == RB_MEMORY_DEVICE,
					.target = RB_BUF_STAGE_HOST };
	default:
		return (struct shape) { .device = false };
	}
}

/* What ends step `index` of `from`, for those that depend on it. */
static uint32_t end_of(const struct stage *s, uint32_t index)
{
	struct shape shape = shape_of(s, &s->from->steps[index]);

	return shape.sends ? s->first[index] : s->first[index] + shape.before + shape.after;
}

static uint32_t depth_of(const struct stage *s, const struct rb_step *step)
{
	return step->flags & RB_STEP_ONCE ? 1 : s->staging->depth;
}

/* The next of its slots in that stage. */
static struct rb_span slot_take(struct stage *s, const struct rb_step *step, enum rb_buffer stage)
{
	uint32_t *next = &s->slots[stage - RB_BUF_STAGE_HOST], slot = *next;

	*next += depth_of(s, step);
	return (struct rb_span) { .rank = RB_SELF,
				  .buffer = (uint8_t)stage,
				  .slot = slot,
				  .depth = (uint16_t)depth_of(s, step) };
}

/* Operand i as the step itself has it: its own, or the slot that it is copied into; *slot is the
 * number of the next one there. */
static struct rb_span operand_of(const struct stage *s, const struct rb_step *step,
				 const struct shape *shape, uint32_t i, uint32_t *slot)
{
	struct rb_span span = s->from->spans[step->from + i];

	if (shape->before == 0 || !(shape->sends || copied_before(s, step, i)))
		return span;
	span = (struct rb_span) { .rank = RB_SELF,
				  .buffer = (uint8_t)shape->operand,
				  .slot = *slot,
				  .depth = (uint16_t)depth_of(s, step) };
	*slot += span.depth;
	return span;
}

static void deps_write(struct stage *s, const struct rb_step *step)
{
	const struct rb_dep *dep = &s->from->deps[step->dep];

	for (uint32_t i = 0; i < step->dep_count; i++, dep++)
		rb_write_dep(s->w, end_of(s, dep->step), dep->lag);
}

/* Until `reader` is through with the slot. */
static void slot_dep_write(struct stage *s, const struct rb_step *step, uint32_t reader)
{
	if (!(step->flags & RB_STEP_ONCE))
		rb_write_dep(s->w, reader, (int32_t)depth_of(s, step));
}

static bool on_device(const struct stage *s, struct rb_span span)
{
	return span.buffer == RB_BUF_STAGE_DEVICE ||
	       (span.buffer < RB_BUFFER_COUNT &&
		s->staging->kinds[span.buffer] == RB_MEMORY_DEVICE);
}

static void copy_write(struct stage *s, const struct rb_step *step, struct rb_span from,
		       struct rb_span to)
{
	bool device = on_device(s, from) || on_device(s, to);

	(void)rb_write_copy(s->w, from, to, step->block, step->blocks);
	rb_write_flags(s->w, (uint8_t)((step->flags & (RB_STEP_ONCE | RB_STEP_OUT)) |
				       (device ? RB_STEP_DEVICE : 0)));
}

/* The step itself, with these instead of its own spans; a reduction's operands follow. */
static void step_write(struct stage *s, const struct rb_step *step, struct rb_span from,
		       struct rb_span to)
{
	uint32_t block = step->block, blocks = step->blocks;

	switch ((enum rb_step_kind)step->kind) {
	case RB_STEP_SEND:
		(void)rb_write_send(s->w, step->peer, step->channel, from, block, blocks);
		break;
	case RB_STEP_RECV:
		(void)rb_write_recv(s->w, step->peer, step->channel, to, block, blocks);
		break;
	case RB_STEP_PUT:
		(void)rb_write_put(s->w, step->peer, step->channel, from, to, block, blocks);
		break;
	case RB_STEP_NOTIFY:
		(void)rb_write_notify(s->w, step->peer, step->channel, block, blocks);
		break;
	case RB_STEP_WAIT:
		(void)rb_write_wait(s->w, step->peer, step->channel, block, blocks);
		break;
	case RB_STEP_COPY:
		(void)rb_write_copy(s->w, from, to, block, blocks);
		break;
	case RB_STEP_REDUCE:
		(void)rb_write_reduce(s->w, to, block, blocks);
		break;
	}
	rb_write_flags(s->w, (uint8_t)(step->flags & ~(RB_STEP_LAST | RB_STEP_TAKEN)));
}

/* Copies of each operand that needs them: into the host's slot, from there into the device's. The
 * step itself, `self`, reads the last one. */
static void copies_before(struct stage *s, const struct rb_step *step, const struct shape *shape,
			  uint32_t index, uint32_t self)
{
	uint32_t at = s->first[index];

	for (uint32_t i = 0; i < step->from_count && shape->before > 0; i++) {
		struct rb_span to;

		if (!shape->sends && !copied_before(s, step, i))
			continue;
		to = slot_take(s, step, RB_BUF_STAGE_HOST);
		copy_write(s, step, s->from->spans[step->from + i], to);
		deps_write(s, step);
		slot_dep_write(s, step, shape->chain > 1 ? at + 1 : self);
		if (shape->chain > 1) {
			copy_write(s, step, to, slot_take(s, step, RB_BUF_STAGE_DEVICE));
			rb_write_dep(s->w, at, 0);
			slot_dep_write(s, step, self);
		}
		at += shape->chain;
	}
}

static void itself(struct stage *s, uint32_t index, const struct shape *shape, uint32_t slot,
		   struct rb_span to)
{
	const struct rb_step *step = &s->from->steps[index];
	struct rb_span from = to;

	if (step->from_count > 0 && step->kind != RB_STEP_REDUCE)
		from = operand_of(s, step, shape, 0, &slot);
	step_write(s, step, from, to);
	for (uint32_t i = 0; i < step->from_count && step->kind == RB_STEP_REDUCE; i++)
		rb_write_operand(s->w, operand_of(s, step, shape, i, &slot));
	if (shape->device)
		rb_write_flags(s->w, RB_STEP_DEVICE);
	if (!shape->sends) /* That copy has waited for them. */
		deps_write(s, step);
	for (uint32_t i = shape->chain; i <= shape->before && shape->before > 0; i += shape->chain)
		rb_write_dep(s->w, s->first[index] + i - 1, 0);
	if (shape->after > 0)
		slot_dep_write(s, step, s->first[index] + shape->before + 1);
}

/* From the slot that it wrote to where it belongs: from a device to the host by a slot there. */
static void copies_after(struct stage *s, const struct rb_step *step, const struct shape *shape,
			 uint32_t self, struct rb_span from, struct rb_span to)
{
	if (shape->after > 1) {
		struct rb_span between = slot_take(s, step, RB_BUF_STAGE_HOST);

		copy_write(s, step, from, between);
		rb_write_dep(s->w, self++, 0);
		slot_dep_write(s, step, self + 1);
		from = between;
	}
	if (shape->after > 0) {
		copy_write(s, step, from, to);
		rb_write_dep(s->w, self, 0);
	}
}

static void become(struct stage *s, uint32_t index)
{
	const struct rb_step *step = &s->from->steps[index];
	struct shape shape = shape_of(s, step);
	uint32_t self = s->first[index] + shape.before;
	uint32_t slot = shape.before > 0 ? s->slots[shape.operand - RB_BUF_STAGE_HOST] : 0;
	struct rb_span to = { .rank = RB_SELF }, target;

	copies_before(s, step, &shape, index, self);
	if (step->to != RB_NO_SPAN)
		to = s->from->spans[step->to];
	target = shape.after > 0 ? slot_take(s, step, shape.target) : to;
	itself(s, index, &shape, slot, target);
	copies_after(s, step, &shape, self, target, to);
}

void rb_stage(struct rb_writer *w, const struct rb_schedule *from, const struct rb_staging *staging,
	      uint32_t *first)
{
	struct stage s = { .w = w, .from = from, .staging = staging, .first = first };
	struct rb_schedule *to = w->schedule;
	uint32_t next = 0;

	rb_writer_init(w, to, from->rank, from->rank_count, from->block_count);
	to->flags = from->flags;
	to->scratch_copies = from->scratch_copies;
	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++)
		to->kinds[b] = staging->kinds[b];
	for (uint32_t i = 0; i < from->step_count; i++) {
		struct shape shape = shape_of(&s, &from->steps[i]);

		first[i] = next;
		next += 1 + shape.before + shape.after;
	}
	for (uint32_t i = 0; i < from->step_count; i++)
		become(&s, i);
	RB_ASSERT(to->step_count == next);
	/* Peers reckon with the layout of our scratch. */
	to->scratch_slots = from->scratch_slots;
	to->scratch_vector_slots = from->scratch_vector_slots;
	to->scratch_block_slots = from->scratch_block_slots;
}
