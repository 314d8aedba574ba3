/*
 * barrier_hierarchical.c -- the ranks of a node tell its first one that they have come; the nodes'
 * first ranks meet as in barrier_dissemination, over nodes; then each lets its node go. So a node's
 * card carries one notification a round, whatever its ranks.
 */
#include "collectives/builders/builders.h"
#include "collectives/builders/by_node/lanes.h"

/* Channels. Rounds over nodes have those from ROUNDS on. */
#define COME 0
#define GO 1
#define ROUNDS 2

/* A round begins when the one before it is over, the first when the node has come. Returns the
 * last one's steps. */
static struct rb_row write_rounds(struct rb_writer *w, const struct rb_lanes *l,
				  const struct rb_row *come)
{
	struct rb_row last = *come;

	for (uint32_t k = 0; k < 31 && 1u << k < l->nodes; k++) {
		uint32_t right = rb_lanes_node_left(l, l->nodes - (1u << k));
		uint32_t left = rb_lanes_node_left(l, 1u << k);
		uint16_t channel = (uint16_t)(ROUNDS + k);
		struct rb_row both = { 0 };

		rb_row_add(&both, rb_write_notify(w, rb_lanes_rank(l, right, 0), channel, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &last, 0);
		rb_row_add(&both, rb_write_wait(w, rb_lanes_rank(l, left, 0), channel, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE);
		last = both;
	}
	return last;
}

static void write_first(struct rb_writer *w, const struct rb_lanes *l)
{
	struct rb_row come = { 0 }, before;

	for (uint32_t p = 1; p < l->size; p++) {
		rb_row_add(&come, rb_write_wait(w, rb_lanes_local(l, p), COME, 0, 0));
		rb_write_flags(w, RB_STEP_ONCE);
	}
	before = write_rounds(w, l, &come);
	/* Whom the only other rank here need not be told of: itself. */
	if (l->size == 2 && l->nodes <= 2) {
		before.first = rb_row_at(&before, before.count - 1);
		before.count = l->nodes - 1;
	}
	for (uint32_t p = 1; p < l->size; p++) {
		uint32_t go = rb_write_notify(w, rb_lanes_local(l, p), GO, 0, 0);

		rb_write_flags(w, RB_STEP_ONCE);
		rb_write_dep_row(w, &before, 0);
		before = (struct rb_row) { 0 };
		rb_row_add(&before, go); /* The next one may go as soon as this one. */
	}
}

void rb_build_barrier_hierarchical(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_lanes l = rb_lanes_of(build, false);

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	if (l.place == 0) {
		write_first(w, &l);
		return;
	}
	(void)rb_write_notify(w, rb_lanes_local(&l, 0), COME, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
	(void)rb_write_wait(w, rb_lanes_local(&l, 0), GO, 0, 0);
	rb_write_flags(w, RB_STEP_ONCE);
}

RB_SENDS_NOTHING(barrier_hierarchical)
