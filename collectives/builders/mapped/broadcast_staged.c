/*
 * broadcast_staged.c -- broadcast_direct for buffers that peers cannot map: the root copies the
 * vector, chunk by chunk, into slots of mapped scratch, and every rank copies it out of them and
 * says so.
 */
#include "collectives/builders/builders.h"

#define PART 0
#define FREE 1

/* Two ranks keep pace, and few slots stay in their caches; of more, one may be a turn behind. */
static uint16_t depth(const struct rb_build *build)
{
	return build->rank_count == 2 ? RB_DEPTH_MAPPED : RB_DEPTH;
}

static struct rb_span slots(const struct rb_build *build, uint32_t rank)
{
	return rb_span_scratch(rank, 0, depth(build));
}

static void write_root(struct rb_writer *w, const struct rb_build *build)
{
	struct rb_row freed = { 0 };

	if (build->rank_count == 1)
		return;
	for (uint32_t i = 1; i < build->rank_count; i++)
		rb_row_add(&freed,
			   rb_write_ahead(w, rb_write_wait(w, rb_right(build, build->rank, i), FREE,
							   0, 1)));
	uint32_t staged = rb_write_ahead(
		w, rb_write_copy(w, rb_span_out(RB_SELF), slots(build, RB_SELF), 0, 1));

	rb_write_dep_row(w, &freed, depth(build));
	for (uint32_t i = 1; i < build->rank_count; i++) {
		(void)rb_write_ahead(
			w, rb_write_notify(w, rb_right(build, build->rank, i), PART, 0, 1));
		rb_write_dep(w, staged, 0);
	}
}

void rb_build_broadcast_staged(struct rb_writer *w, const struct rb_build *build)
{
	uint32_t root = build->root;

	rb_writer_init(w, w->schedule, build->rank, build->rank_count, 1);
	w->schedule->flags = RB_SCHEDULE_MAPPED_SCRATCH;
	if (build->rank == root) {
		write_root(w, build);
		return;
	}
	uint32_t there = rb_write_ahead(w, rb_write_wait(w, root, PART, 0, 1));
	uint32_t read = rb_write_copy(w, slots(build, root), rb_span_out(RB_SELF), 0, 1);

	rb_write_dep(w, there, 0);
	(void)rb_write_ahead(w, rb_write_notify(w, root, FREE, 0, 1));
	rb_write_dep(w, read, 0);
}

RB_SENDS_NOTHING(broadcast_staged)
