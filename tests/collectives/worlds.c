/* worlds.c -- see worlds.h. */
#include "worlds.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

static void build_rank(struct rb_schedule *schedule, const struct world *world, uint32_t rank)
{
	struct rb_build build = { .rank = rank,
				  .rank_count = world->rank_count,
				  .root = world->root };
	struct rb_writer w = { .schedule = schedule };

	world->algorithm->build(&w, &build); /* Without room: it counts. */
	w.step_capacity = schedule->step_count;
	w.span_capacity = schedule->span_count;
	w.dep_capacity = schedule->dep_count;
	schedule->steps = calloc(w.step_capacity + 1, sizeof(*schedule->steps));
	schedule->spans = calloc(w.span_capacity + 1, sizeof(*schedule->spans));
	schedule->deps = calloc(w.dep_capacity + 1, sizeof(*schedule->deps));
	ck_assert(schedule->steps && schedule->spans && schedule->deps);
	world->algorithm->build(&w, &build);
	ck_assert(rb_writer_fits(&w));
}

void world_build(struct world *world, const struct rb_algorithm *algorithm, uint32_t rank_count,
		 uint32_t root)
{
	*world = (struct world) { algorithm, rank_count, root, NULL };
	world->schedules = calloc(rank_count, sizeof(*world->schedules));
	ck_assert(world->schedules != NULL);
	for (uint32_t r = 0; r < rank_count; r++)
		build_rank(&world->schedules[r], world, r);
}

void world_free(struct world *world)
{
	for (uint32_t r = 0; r < world->rank_count; r++) {
		free(world->schedules[r].steps);
		free(world->schedules[r].spans);
		free(world->schedules[r].deps);
	}
	free(world->schedules);
}

bool world_prove(const struct world *world, const struct rb_layout *layout, bool in_place,
		 uint32_t instances, struct rb_check_result *result)
{
	struct rb_check check = { .kind = world->algorithm->kind,
				  .schedules = world->schedules,
				  .rank_count = world->rank_count,
				  .root = world->root,
				  .layout = layout,
				  .in_place = in_place,
				  .instances = instances,
				  .algorithm = world->algorithm,
				  .implied_rank = RB_NO_SPAN };
	struct rb_check_result own;

	ck_assert_int_eq(rb_check_schedules(&check, result ? result : &own), RUBATO_OK);
	return (result ? result : &own)->proved;
}

const char *world_text(const struct world *world, const struct rb_layout *layout, bool in_place,
		       char *text, size_t text_bytes)
{
	(void)snprintf(text, text_bytes,
		       "%s %s, %u ranks root %u, count %" PRIu64 " chunk %" PRIu64 "%s%s",
		       rb_kind_name(world->algorithm->kind), world->algorithm->name,
		       world->rank_count, world->root, layout->count, layout->chunk,
		       layout->offsets ? " uneven" : "", in_place ? " in place" : "");
	return text;
}

struct rb_layout world_layout(const struct world *world, uint64_t count, uint64_t chunk,
			      uint32_t align, const uint64_t *offsets)
{
	bool per_rank = world->algorithm->block_per_rank;

	return (struct rb_layout) { .count = count,
				    .block_count = per_rank ? world->rank_count : 1,
				    .align = align,
				    .offsets = per_rank ? offsets : NULL,
				    .chunk = chunk };
}

uint64_t uneven_offsets(uint64_t *offsets, uint32_t rank_count, uint64_t scale, uint64_t seed)
{
	struct rb_rng rng = { seed };

	offsets[0] = 0;
	for (uint32_t r = 0; r < rank_count; r++) {
		uint64_t draw = rb_rng_next(&rng);
		uint64_t length = draw % 4 == 0 ? 0 : (draw >> 8) % (scale + 1);

		offsets[r + 1] = offsets[r] + (draw % 16 == 1 ? 5 * scale : length);
	}
	return offsets[rank_count];
}
