/* worlds.c -- see worlds.h. */
#include "worlds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tests/check_main.h"

static void build_rank(struct rb_schedule *schedule, const struct world *world, uint32_t rank)
{
	struct rb_build build = { .rank = rank,
				  .rank_count = world->rank_count,
				  .root = world->root,
				  .in_place = world->in_place };
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
		 uint32_t root, bool in_place)
{
	*world = (struct world) { algorithm, rank_count, root, in_place, NULL };
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

bool world_told_in_place(enum rb_kind kind)
{
	return kind == RB_KIND_ALLTOALL || kind == RB_KIND_ALLTOALLV;
}

bool world_takes_uneven(const struct world *world)
{
	if (world->algorithm->blocks != RB_BLOCKS_RANKS ||
	    world->algorithm->kind == RB_KIND_ALLTOALL)
		return false;
	for (uint32_t r = 0; r < world->rank_count; r++) {
		if (world->schedules[r].scratch_shelves > 0)
			return false;
		for (uint32_t i = 0; i < world->schedules[r].step_count; i++)
			if (world->schedules[r].steps[i].blocks > 1)
				return false;
	}
	return true;
}

/* ---- Layouts ---- */

static void layouts_allocate(struct layouts *layouts, const struct world *world, uint64_t numbers)
{
	layouts->rank_count = world->rank_count;
	layouts->each = calloc(world->rank_count, sizeof(*layouts->each));
	layouts->numbers = calloc(numbers + 1, sizeof(*layouts->numbers));
	ck_assert(layouts->each && layouts->numbers);
}

void layouts_even(struct layouts *layouts, const struct world *world, uint64_t count,
		  uint64_t chunk, uint32_t align)
{
	uint32_t n = world->rank_count;

	layouts_allocate(layouts, world, 0);
	layouts->name = "";
	if (world_told_in_place(world->algorithm->kind)) {
		count = count / n * n;
		align = 1;
	}
	for (uint32_t r = 0; r < n; r++)
		layouts->each[r] = (struct rb_layout) {
			.count = count,
			.block_count = rb_algorithm_blocks(world->algorithm, n),
			.align = align,
			.chunk = chunk,
		};
}

/* Lays blocks of these lengths out; by `salt`, in rising or falling order, with gaps or without. */
static uint64_t place(uint64_t *starts, const uint64_t *lengths, uint32_t n, enum gaps gaps,
		      uint32_t salt)
{
	uint64_t at = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t b = gaps != GAPS_NONE && salt % 2 == 1 ? n - 1 - i : i;

		at += gaps == GAPS_NONE ? 0 : (i + salt) % 3;
		starts[b] = at;
		at += lengths[b];
		sum += lengths[b];
	}
	return sum;
}

void layouts_uneven(struct layouts *layouts, const struct world *world, uint64_t chunk,
		    enum gaps gaps, uint64_t (*length)(const void *arg, uint32_t s, uint32_t d),
		    const void *arg)
{
	uint32_t n = world->rank_count;
	bool all = world->algorithm->kind == RB_KIND_ALLTOALLV;

	ck_assert(world_takes_uneven(world));
	layouts_allocate(layouts, world, (uint64_t)4 * n * n);
	layouts->name = gaps == GAPS_NONE ? " uneven" : " uneven with gaps";
	for (uint32_t r = 0; r < n; r++) {
		uint64_t *numbers = layouts->numbers + (uint64_t)4 * n * r, sum, out_sum;
		uint64_t *lengths = numbers + n, *out_starts = numbers + 2 * n;
		uint64_t *out_lengths = numbers + 3 * n;

		for (uint32_t b = 0; b < n; b++) {
			bool swap = all && world->in_place && r > b;

			lengths[b] = length(arg, !all ? 0 : swap ? b : r, swap ? r : b);
			out_lengths[b] = all && !world->in_place ? length(arg, b, r) : lengths[b];
		}
		sum = place(numbers, lengths, n, gaps, gaps == GAPS_PER_RANK ? r : 1);
		out_sum = place(out_starts, out_lengths, n, gaps, r + 1);
		layouts->each[r] = (struct rb_layout) {
			.count = sum > out_sum ? sum : out_sum,
			.chunk = chunk,
			.block_count = n,
			.align = 1,
			.starts = numbers,
			.lengths = lengths,
			.out_starts = all && !world->in_place ? out_starts : NULL,
			.out_lengths = all && !world->in_place ? out_lengths : NULL,
			.per_peer = all || gaps == GAPS_PER_RANK,
		};
	}
}

uint64_t lengths_random(const void *arg, uint32_t s, uint32_t d)
{
	const struct lengths_random *random = arg;
	struct rb_rng rng = { random->seed + s * 1000 + d };
	uint64_t draw = rb_rng_next(&rng);
	uint64_t length = draw % 4 == 0 ? 0 : (draw >> 8) % (random->scale + 1);

	return draw % 16 == 1 ? 5 * random->scale : length;
}

void layouts_free(struct layouts *layouts)
{
	free(layouts->each);
	free(layouts->numbers);
}

/* ---- Proofs ---- */

bool world_prove(const struct world *world, const struct layouts *layouts, bool in_place,
		 uint32_t instances, struct rb_check_result *result)
{
	struct rb_check check = { .kind = world->algorithm->kind,
				  .schedules = world->schedules,
				  .rank_count = world->rank_count,
				  .root = world->root,
				  .layouts = layouts->each,
				  .in_place = in_place,
				  .instances = instances,
				  .algorithm = world->algorithm,
				  .implied_rank = RB_NO_SPAN };
	struct rb_check_result own;

	ck_assert(layouts->rank_count == world->rank_count);
	ck_assert_int_eq(rb_check_schedules(&check, result ? result : &own), RUBATO_OK);
	return (result ? result : &own)->proved;
}

const char *world_text(const struct world *world, const struct layouts *layouts, bool in_place,
		       char *text, size_t text_bytes)
{
	(void)snprintf(text, text_bytes,
		       "%s %s, %u ranks root %u, count %" PRIu64 " chunk %" PRIu64 "%s%s%s",
		       rb_kind_name(world->algorithm->kind), world->algorithm->name,
		       world->rank_count, world->root, layouts->each[0].count,
		       layouts->each[0].chunk, layouts->name, in_place ? " in place" : "",
		       world->in_place ? " (told)" : "");
	return text;
}
