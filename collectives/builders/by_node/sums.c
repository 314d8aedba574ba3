/* sums.c -- see sums.h. */
#include "collectives/builders/by_node/sums.h"

void rb_sums_enter(struct rb_writer *w, struct rb_sums *sums)
{
	for (uint32_t i = 1; sums->l->mapped && i < sums->l->size; i++) {
		rb_row_add(&sums->entry,
			   rb_write_wait(w, rb_lanes_other(sums->l, i), RB_SUMS_ENTRY, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
}

struct rb_span rb_sums_slots(struct rb_sums *sums)
{
	sums->slots += RB_SUMS_DEPTH;
	return rb_span_scratch(RB_SELF, sums->slots - RB_SUMS_DEPTH, RB_SUMS_DEPTH);
}

/* Not mapped: the node's parts of a range arrive. */
static struct rb_row write_parts(struct rb_writer *w, struct rb_sums *sums,
				 const struct rb_sums_range *range, struct rb_label *read)
{
	const struct rb_lanes *l = sums->l;
	struct rb_row parts = { 0 };

	for (uint32_t p = 0; p < l->size; p++) {
		if (p == l->place)
			continue;
		rb_row_add(&parts, rb_write_recv(w, rb_lanes_local(l, p), range->channel,
						 rb_sums_slots(sums), range->block, range->blocks));
		rb_write_dep_label(w, read, RB_SUMS_DEPTH);
	}
	return parts;
}

/* The operands of the node's ranks, in their order, for the reduction written last. */
static void write_operands(struct rb_writer *w, const struct rb_lanes *l, uint32_t first_slot)
{
	for (uint32_t p = 0; p < l->size; p++) {
		if (p == l->place) {
			rb_write_operand(w, rb_span_in(RB_SELF));
		} else if (l->mapped) {
			rb_write_operand(w, rb_span_in(rb_lanes_local(l, p)));
		} else {
			rb_write_operand(w, rb_span_scratch(RB_SELF, first_slot, RB_SUMS_DEPTH));
			first_slot += RB_SUMS_DEPTH;
		}
	}
}

uint32_t rb_sums_write(struct rb_writer *w, struct rb_sums *sums, const struct rb_sums_range *range,
		       uint32_t came, const struct rb_span *slot, struct rb_span to)
{
	uint32_t first_slot = sums->slots;
	struct rb_label read = { 0 };
	struct rb_row parts = { 0 };

	if (!sums->l->mapped)
		parts = write_parts(w, sums, range, &read);
	uint32_t reduce = rb_write_reduce(w, to, range->block, range->blocks);

	rb_write_label(w, &read);
	if (slot != NULL) {
		rb_write_operand(w, *slot);
		rb_write_dep(w, came, 0);
	}
	write_operands(w, sums->l, first_slot);
	rb_write_dep_row(w, &sums->entry, 0);
	rb_write_dep_row(w, &parts, 0);
	return reduce;
}

/* Out of `from`: to the next node, or (not mapped) to the rank of this one whose result it is. */
static void write_on(struct rb_writer *w, const struct rb_sums *sums,
		     const struct rb_sums_range *range, bool put, uint32_t to, struct rb_span from)
{
	(void)rb_write_give(w, put, to, range->channel, from, rb_span_vector_slot(0), range->block,
			    range->blocks);
	if (put)
		rb_write_dep(w, sums->ready, 0);
}

/* Where sums come and are added to. Slots of a chunk are used again; by puts each block has a place
 * of its own. */
static struct rb_span passing_slot(struct rb_sums *sums)
{
	return sums->l->put ? rb_span_vector_slot(0) : rb_sums_slots(sums);
}

void rb_sums_pass(struct rb_writer *w, struct rb_sums *sums, const struct rb_sums_range *range,
		  uint32_t from, uint32_t to, struct rb_span result)
{
	const struct rb_lanes *l = sums->l;
	bool begins = from == RB_SELF, ends = to == RB_SELF;
	bool writes = ends && (l->mapped || result.rank == RB_SELF);
	struct rb_label reader = { 0 }; /* The slot's last one. */
	struct rb_span slot = { 0 };
	uint32_t came = 0;

	if (begins && !ends && l->size == 1) {
		write_on(w, sums, range, l->put, to, rb_span_in(RB_SELF));
		return;
	}
	if (!begins || !writes)
		slot = passing_slot(sums);
	if (!begins) {
		came = rb_write_take(w, l->put, from, range->channel, slot, range->block,
				     range->blocks);
		if (!l->put)
			rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
	}
	uint32_t sum =
		rb_sums_write(w, sums, range, came, begins ? NULL : &slot, writes ? result : slot);

	if (begins && !writes && !l->put)
		rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
	if (ends)
		rb_write_flags(w, RB_STEP_FINAL);
	if (writes && !begins)
		rb_write_label(w, &reader);
	if (l->mapped)
		rb_row_add(ends ? &sums->last : begins ? &sums->first : &sums->middle, sum);
	if (writes)
		return;
	write_on(w, sums, range, l->put && !ends, ends ? result.rank : to, slot);
	rb_write_label(w, &reader);
	rb_write_dep(w, sum, 0);
}

void rb_sums_leave(struct rb_writer *w, const struct rb_sums *sums)
{
	for (uint32_t i = 1; sums->l->mapped && i < sums->l->size; i++) {
		(void)rb_write_notify(w, rb_lanes_other(sums->l, i), RB_SUMS_EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &sums->first, RB_DEP_ALL);
		rb_write_dep_row(w, &sums->middle, RB_DEP_ALL);
		rb_write_dep_row(w, &sums->last, RB_DEP_ALL);
	}
}

void rb_sums_lend(struct rb_writer *w, uint32_t driver)
{
	(void)rb_write_notify(w, driver, RB_SUMS_ENTRY, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	(void)rb_write_wait(w, driver, RB_SUMS_EXIT, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
}

uint32_t rb_sums_give(struct rb_writer *w, uint32_t driver, const struct rb_sums_range *range)
{
	return rb_write_send(w, driver, range->channel, rb_span_in(RB_SELF), range->block,
			     range->blocks);
}
