/*
 * allreduce_hierarchical_halving.c -- in lanes (lanes.h): recursive halving and doubling
 * (halving.h) over nodes, in which the rank that drives a lane adds the operands of all ranks of
 * its node, in one pass, straight out of their IN, when it first touches a range. Where the number
 * of nodes is a power of two, as few bytes cross as in allreduce_hierarchical's ring, in 2 log2(H)
 * instead of 2 (H-1) latencies. The others of the node copy results out of the OUT of the rank that
 * drives their lane, range by range as they come.
 *
 * The staged form is for memory that is not mapped: operands and results go in messages within the
 * node. Between nodes both send the same, so each node may take either.
 *
 * Lane l has the blocks l * power to (l + 1) * power - 1, where power is the largest power of two
 * among the nodes: RB_BLOCKS_LANES_POWER.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/sums.h"
#include "collectives/builders/halving.h"

/* Channels within a node. Ranges of results: what a round brings, and the own one, or all. */
#define RESULT(k) (uint16_t)(RB_HALVING_CHANNELS + (k))
#define RESULT_OWN RESULT(RB_HALVING_ROUNDS)
#define PART(i) (uint16_t)(RESULT_OWN + 1 + (i)) /* Of what goes first, and of what stays. */
#define EXIT (uint16_t)(PART(2))                 /* OUT is read no more. */

static struct rb_halving halving_of(const struct rb_lanes *l, uint32_t lane)
{
	struct rb_halving h;

	rb_halving_init(&h, l->node, l->nodes, lane * rb_power_below(l->nodes));
	return h;
}

/* Whether all of a lane's operands are summed up at once, or its first halves one by one. */
static bool sums_at_once(const struct rb_halving *h)
{
	return h->rounds == 0 || rb_halving_is_folded(h) || rb_halving_folds(h);
}

struct lane { /* That this rank drives. */
	const struct rb_lanes *l;
	struct rb_halving h;
	struct rb_sums sums;
};

/* The node's sum of a range, and of what comes from `from` on `channel` (RB_SELF: nothing does),
 * into OUT. */
static uint32_t write_sum(struct rb_writer *w, struct lane *lane, uint32_t part,
			  struct rb_range range, uint32_t from, uint16_t channel)
{
	struct rb_sums_range what = { range.block, range.blocks, PART(part) };
	struct rb_label reader = { 0 };
	struct rb_span slot = { 0 };
	uint32_t came = 0;

	if (from != RB_SELF) {
		slot = rb_sums_slots(&lane->sums);
		came = rb_write_recv(w, from, channel, slot, range.block, range.blocks);
		rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
	}
	lane->h.reduce = rb_sums_write(w, &lane->sums, &what, came, from != RB_SELF ? &slot : NULL,
				       rb_span_out(RB_SELF));
	lane->h.reduced = true;
	if (from != RB_SELF)
		rb_write_label(w, &reader);
	return lane->h.reduce;
}

/* The node's sum of a range to another node. Returns the step that reads IN last. */
static uint32_t write_given(struct rb_writer *w, struct lane *lane, struct rb_range range,
			    uint32_t to, uint16_t channel)
{
	struct rb_sums_range what = { range.block, range.blocks, PART(0) };
	struct rb_label reader = { 0 };

	if (lane->l->size == 1)
		return rb_write_send(w, to, channel, rb_span_in(RB_SELF), range.block,
				     range.blocks);
	struct rb_span slot = rb_sums_slots(&lane->sums);
	uint32_t sum = rb_sums_write(w, &lane->sums, &what, 0, NULL, slot);

	rb_write_dep_label(w, &reader, RB_SUMS_DEPTH);
	(void)rb_write_send(w, to, channel, slot, range.block, range.blocks);
	rb_write_label(w, &reader);
	rb_write_dep(w, sum, 0);
	return sum;
}

/* The others of the node get a range of OUT, which step `ready` writes. */
static void write_result(struct rb_writer *w, const struct rb_lanes *l, struct rb_range range,
			 uint16_t channel, uint32_t ready)
{
	for (uint32_t i = 1; i < l->size; i++) {
		uint32_t peer = rb_lanes_other(l, i);

		if (l->mapped)
			(void)rb_write_notify(w, peer, channel, range.block, range.blocks);
		else
			(void)rb_write_send(w, peer, channel, rb_span_out(RB_SELF), range.block,
					    range.blocks);
		rb_write_dep(w, ready, 0);
	}
}

/* As a node that gives all it has to another one, and gets the results from it. */
static void write_folded(struct rb_writer *w, struct lane *lane, uint32_t peer)
{
	struct rb_range all = lane->h.have[0];
	uint32_t read = write_given(w, lane, all, peer, RB_HALVING_FOLD);
	uint32_t got = rb_write_recv(w, peer, RB_HALVING_RESULT, rb_span_out(RB_SELF), all.block,
				     all.blocks);

	rb_write_dep(w, read, 0); /* In place OUT is IN. */
	write_result(w, lane->l, all, RESULT_OWN, got);
}

static void write_rounds(struct rb_writer *w, struct lane *lane)
{
	struct rb_halving *h = &lane->h;
	uint32_t first = 0;

	for (uint32_t k = 0; k < h->rounds; k++)
		h->peer[k] = rb_lanes_rank(lane->l, rb_halving_meets(h, k), lane->l->place);
	if (rb_halving_folds(h)) {
		(void)write_sum(w, lane, 0, h->have[0],
				rb_lanes_rank(lane->l, lane->l->node + 1, lane->l->place),
				RB_HALVING_FOLD);
	} else if (h->rounds == 0) {
		(void)write_sum(w, lane, 0, h->have[0], RB_SELF, 0);
		rb_write_flags(w, RB_STEP_FINAL);
	} else {
		h->have[1] = rb_halving_half(h, 0, false);
		h->sends[0] = write_given(w, lane, rb_halving_half(h, 0, true), h->peer[0], 0);
		(void)write_sum(w, lane, 1, h->have[1], h->peer[0], 0);
		if (h->rounds == 1)
			rb_write_flags(w, RB_STEP_FINAL);
		first = 1;
	}
	h->slots = lane->sums.slots;
	rb_halving_rounds(w, h, first);
}

static void write_driven(struct rb_writer *w, const struct rb_lanes *l)
{
	struct lane lane = { .l = l, .h = halving_of(l, l->place), .sums = { .l = l } };
	struct rb_halving *h = &lane.h;

	rb_sums_enter(w, &lane.sums);
	if (rb_halving_is_folded(h)) {
		write_folded(w, &lane, rb_lanes_rank(l, l->node - 1, l->place));
	} else {
		write_rounds(w, &lane);
		write_result(w, l, h->have[h->rounds], RESULT_OWN, h->reduce);
		rb_halving_gather(w, h);
		for (uint32_t k = h->rounds; k-- > 0;)
			write_result(w, l, rb_halving_half(h, k, true), RESULT(k), h->recvs[k]);
	}
	if (rb_halving_folds(h)) {
		struct rb_range all = h->have[0];

		(void)rb_write_send(w, rb_lanes_rank(l, l->node + 1, l->place), RB_HALVING_RESULT,
				    rb_span_out(RB_SELF), all.block, all.blocks);
		rb_halving_after_results(w, h, 0, all);
	}
	for (uint32_t i = 1; l->mapped && i < l->size; i++) {
		(void)rb_write_wait(w, rb_lanes_other(l, i), EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
	}
}

/* A range of a lane that another rank of the node drives; not mapped, after its operands have been
 * sent. */
static void write_got(struct rb_writer *w, const struct rb_lanes *l, uint32_t driver,
		      struct rb_range range, uint16_t channel, struct rb_row *copies)
{
	if (!l->mapped) {
		(void)rb_write_recv(w, driver, channel, rb_span_out(RB_SELF), range.block,
				    range.blocks);
		return;
	}
	uint32_t ready = rb_write_wait(w, driver, channel, range.block, range.blocks);

	rb_row_add(copies, rb_write_copy(w, rb_span_out(driver), rb_span_out(RB_SELF), range.block,
					 range.blocks));
	rb_write_dep(w, ready, 0);
}

struct given { /* Not mapped: what went to the driver of a lane. */
	uint32_t count, step[2];
	struct rb_range range[2];
};

static struct given write_parts(struct rb_writer *w, const struct rb_lanes *l,
				const struct rb_halving *h, uint32_t driver)
{
	struct given g = { .count = sums_at_once(h) ? 1 : 2, .range = { h->have[0] } };

	if (g.count == 2) {
		g.range[0] = rb_halving_half(h, 0, true);
		g.range[1] = rb_halving_half(h, 0, false);
	}
	for (uint32_t i = 0; !l->mapped && i < g.count; i++)
		g.step[i] = rb_write_send(w, driver, PART(i), rb_span_in(RB_SELF), g.range[i].block,
					  g.range[i].blocks);
	return g;
}

/* In place, what is received is where operands are sent from. */
static void after_parts(struct rb_writer *w, const struct given *g, struct rb_range range)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (range.block < g->range[i].block + g->range[i].blocks &&
		    g->range[i].block < range.block + range.blocks)
			rb_halving_after(w, g->step[i], g->range[i], range);
}

static void write_other(struct rb_writer *w, const struct rb_lanes *l, uint32_t lane)
{
	struct rb_halving h = halving_of(l, lane);
	uint32_t driver = rb_lanes_local(l, lane);
	struct rb_row copies = { 0 };
	struct rb_range own = h.have[0];

	if (l->mapped) {
		(void)rb_write_notify(w, driver, RB_SUMS_ENTRY, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE | RB_STEP_ENTRY);
	}
	struct given parts = write_parts(w, l, &h, driver);
	uint32_t rounds = rb_halving_is_folded(&h) ? 0 : h.rounds;

	for (uint32_t k = 0; k < rounds; k++)
		own = h.have[k + 1] = rb_halving_half(&h, k, false);
	write_got(w, l, driver, own, RESULT_OWN, &copies);
	if (!l->mapped)
		after_parts(w, &parts, own);
	for (uint32_t k = rounds; k-- > 0;) {
		struct rb_range range = rb_halving_half(&h, k, true);

		write_got(w, l, driver, range, RESULT(k), &copies);
		if (!l->mapped)
			after_parts(w, &parts, range);
	}
	if (l->mapped) {
		(void)rb_write_notify(w, driver, EXIT, 0, 0);
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &copies, RB_DEP_ALL);
	}
}

static void build(struct rb_writer *w, const struct rb_build *who, bool mapped)
{
	struct rb_lanes l = rb_lanes_of(who, mapped);

	rb_writer_init(w, w->schedule, who->rank, who->rank_count,
		       l.lanes * rb_power_below(l.nodes));
	w->schedule->flags = mapped ? RB_SCHEDULE_MAPPED_BUFFERS : 0;
	if (who->rank_count == 1) {
		(void)rb_write_copy(w, rb_span_in(RB_SELF), rb_span_out(RB_SELF), 0, 1);
		rb_write_flags(w, RB_STEP_FINAL);
		return;
	}
	if (rb_lanes_drives(&l))
		write_driven(w, &l);
	for (uint32_t i = 0; i < l.lanes; i++)
		if (i != l.place)
			write_other(w, &l, i);
}

void rb_build_allreduce_hierarchical_halving(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, true);
}

void rb_build_allreduce_hierarchical_halving_staged(struct rb_writer *w, const struct rb_build *who)
{
	build(w, who, false);
}

uint64_t rb_sent_allreduce_hierarchical_halving(const struct rb_layout *layout,
						const struct rb_build *who, uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, true);
	struct rb_halving h = halving_of(&l, l.place);

	if (!rb_lanes_drives(&l) || l.nodes == 1)
		return 0;
	return rb_halving_sent(&h, layout) * element_bytes;
}

uint64_t rb_sent_allreduce_hierarchical_halving_staged(const struct rb_layout *layout,
						       const struct rb_build *who,
						       uint32_t element_bytes)
{
	struct rb_lanes l = rb_lanes_of(who, false);
	uint64_t sent = 0;

	for (uint32_t i = 0; i < l.lanes; i++) {
		struct rb_halving h = halving_of(&l, i);

		sent += rb_layout_length(layout, h.have[0].block, h.have[0].blocks) *
			(i == l.place ? l.size - 1 : 1);
	}
	return sent * element_bytes +
	       rb_sent_allreduce_hierarchical_halving(layout, who, element_bytes);
}
