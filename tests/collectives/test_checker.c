/*
 * test_checker.c -- proves every algorithm: for many rank counts, roots, counts and chunks, in
 * place and not, three instances in a row. TEST_EFFORT=long: every rank count up to 64.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/effort.h"
#include "worlds.h"

#define INSTANCES 3

static bool wants_ranks(uint32_t n)
{
	switch (effort_wanted()) {
	case EFFORT_SHORT:
		return n <= 5 || n == 8;
	case EFFORT_NORMAL:
		return n <= 17 || (n >= 31 && n <= 33) || n == 64;
	case EFFORT_LONG:
		break;
	}
	return true;
}

static uint64_t proofs; /* Of one test: so that a spread that became empty is noticed. */

enum places { APART = 1, IN_PLACE = 2, BOTH = 3 };

static void prove(const struct world *world, enum places places, struct layouts *layouts)
{
	char text[200];
	struct rb_check_result result;
	bool told = world_told_in_place(world->algorithm->kind) && !world->in_place;

	for (int in_place = 0; in_place <= !told; in_place++) {
		if (!(places & (in_place ? IN_PLACE : APART)) && !told)
			continue;
		if (!world_prove(world, layouts, in_place, INSTANCES, &result))
			ck_abort_msg("%s: %s",
				     world_text(world, layouts, in_place, text, sizeof(text)),
				     result.text);
		proofs++;
	}
	layouts_free(layouts);
}

static void prove_even(const struct world *world, enum places places, uint64_t count,
		       uint64_t chunk, uint32_t align)
{
	struct layouts layouts;

	layouts_even(&layouts, world, count, chunk, align);
	prove(world, places, &layouts);
}

static void prove_uneven(const struct world *world, enum places places, uint64_t chunk,
			 enum gaps gaps, uint64_t seed)
{
	struct lengths_random random = { seed, 9 };
	struct layouts layouts;

	if (!world_takes_uneven(world))
		return;
	layouts_uneven(&layouts, world, chunk, gaps, lengths_random, &random);
	prove(world, places, &layouts);
}

/* Counts around the number of blocks and of chunks; even and uneven blocks. */
static void prove_wide(const struct world *world)
{
	static const uint64_t chunks[] = { 2, 1, 7, 1000 };
	uint64_t n = rb_algorithm_blocks(world->algorithm, world->rank_count);

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t chunk = chunks[i], counts[] = {
			0, 1, n - 1, n, n + 1, 31, 97, n * chunk - 1, n * chunk + 1, 13 * chunk
		};

		for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
			if (counts[c] <= 14 * n * chunk)
				prove_even(world, BOTH, counts[c], chunk, 1);
	}
	prove_even(world, BOTH, 16 * n * 3 + 5, 16, 16);
	prove_even(world, BOTH, (uint64_t)1 << 33, ((uint64_t)1 << 33) / 3, 16);
	for (uint64_t seed = 2; seed <= 5; seed++)
		prove_uneven(world, BOTH, 2, GAPS_NONE, seed);
}

/* More chunks than slots, uneven blocks, and more elements than 31 bits count. */
static void prove_narrow(const struct world *world, bool narrowest)
{
	uint64_t n = rb_algorithm_blocks(world->algorithm, world->rank_count);
	uint64_t big = ((uint64_t)1 << 31) + 5;

	if (narrowest &&
	    world->schedules[0].scratch_shelves > 1) /* A copy for each item and round. */
		prove_even(world, IN_PLACE, n, 7, 1);
	else
		prove_even(world, narrowest ? IN_PLACE : BOTH, (narrowest ? 3 : 6) * n * 2 - 1, 2,
			   1);
	prove_uneven(world, APART, narrowest ? 6 : 3, GAPS_NONE, 1);
	if (!narrowest)
		prove_even(world, IN_PLACE, big, big / 3 / n + 11, 16);
}

/* What a V adds: gaps, and starts that only their owner knows. */
static void prove_v(const struct world *world, bool narrowest)
{
	prove_uneven(world, BOTH, narrowest ? 6 : 2, GAPS_PER_RANK, world->rank_count);
	if (narrowest)
		return;
	for (uint64_t seed = 10; seed <= 12; seed++) {
		prove_uneven(world, BOTH, seed - 9, GAPS_SAME, seed);
		prove_uneven(world, BOTH, seed - 9, GAPS_PER_RANK, seed);
	}
}

static void prove_world(const struct world *world)
{
	uint32_t n = world->rank_count, wide = effort_wanted() == EFFORT_LONG ? 17 : 5;
	enum rb_kind kind = world->algorithm->kind;

	if (kind == RB_KIND_BARRIER)
		prove_even(world, APART, 0, 1, 1);
	else if (rb_kind_uneven(kind))
		prove_v(world, n > 17);
	else
		prove_narrow(world, n > 17);
	if (kind != RB_KIND_BARRIER && n <= wide &&
	    (!rb_kind_uneven(kind) || effort_wanted() == EFFORT_LONG))
		prove_wide(world);
}

START_TEST(every_algorithm_is_right)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	uint32_t most = a->rank_max < 64 ? a->rank_max : 64;

	proofs = 0;
	for (uint32_t n = 1; n <= most; n++) {
		uint32_t roots = !wants_ranks(n) ? 0 : rb_kind_rooted(a->kind) ? n : 1;

		if (rb_kind_uneven(a->kind) && effort_wanted() == EFFORT_NORMAL && n > 17 &&
		    n != 33)
			continue; /* The others' builders, proved there. */
		for (uint32_t root = 0; root < roots; root++) {
			struct world world;

			if (n > 7 && root > 1 && root != n / 2 && root != n - 1)
				continue;
			for (int told = 0; told <= world_told_in_place(a->kind); told++) {
				world_build(&world, a, n, root, told);
				prove_world(&world);
				world_free(&world);
			}
		}
	}
	ck_assert_uint_ge(proofs, effort_wanted() == EFFORT_SHORT ? 6u
				  : a->kind == RB_KIND_BARRIER    ? 20u
								  : 40u);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("proofs");

	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(tc, every_algorithm_is_right, 0, (int)rb_algorithm_count);

	return check_main("checker", tc);
}
