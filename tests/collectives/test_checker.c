/*
 * test_checker.c -- proves every algorithm: for many rank counts, roots, counts and chunks, in
 * place and not, three instances in a row. TEST_EFFORT=long: every rank count up to 64.
 */
#include <check.h>
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

static void prove(const struct world *world, enum places places, struct rb_layout layout)
{
	char text[200];
	struct rb_check_result result;

	for (int in_place = 0; in_place <= 1; in_place++) {
		if (!(places & (in_place ? IN_PLACE : APART)))
			continue;
		if (!world_prove(world, &layout, in_place, INSTANCES, &result))
			ck_abort_msg("%s: %s",
				     world_text(world, &layout, in_place, text, sizeof(text)),
				     result.text);
		proofs++;
	}
}

/* Counts around the number of blocks and of chunks; even and uneven blocks. */
static void prove_wide(const struct world *world)
{
	static const uint64_t chunks[] = { 2, 1, 7, 1000 };
	uint64_t offsets[65], n = world->algorithm->block_per_rank ? world->rank_count : 1;

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t chunk = chunks[i], counts[] = {
			0, 1, n - 1, n, n + 1, 31, 97, n * chunk - 1, n * chunk + 1, 13 * chunk
		};

		for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
			if (counts[c] <= 14 * n * chunk)
				prove(world, BOTH, world_layout(world, counts[c], chunk, 1, NULL));
	}
	prove(world, BOTH, world_layout(world, 16 * n * 3 + 5, 16, 16, NULL));
	prove(world, BOTH,
	      world_layout(world, (uint64_t)1 << 33, ((uint64_t)1 << 33) / 3, 16, NULL));
	for (uint64_t seed = 2; seed <= 5; seed++) {
		uint64_t total = uneven_offsets(offsets, world->rank_count, 9, seed);

		prove(world, BOTH, world_layout(world, total, 2, 1, offsets));
	}
}

/* More chunks than slots, uneven blocks, and more elements than 31 bits count. */
static void prove_narrow(const struct world *world, bool narrowest)
{
	uint64_t offsets[65], n = world->algorithm->block_per_rank ? world->rank_count : 1;
	uint64_t big = ((uint64_t)1 << 31) + 5;
	uint64_t total = uneven_offsets(offsets, world->rank_count, 9, 1);

	prove(world, narrowest ? IN_PLACE : BOTH,
	      world_layout(world, (narrowest ? 3 : 6) * n * 2 - 1, 2, 1, NULL));
	prove(world, APART, world_layout(world, total, narrowest ? 6 : 3, 1, offsets));
	if (!narrowest)
		prove(world, IN_PLACE, world_layout(world, big, big / 3 / n + 11, 16, NULL));
}

START_TEST(every_algorithm_is_right)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	bool rooted = a->kind == RB_KIND_BROADCAST || a->kind == RB_KIND_REDUCE;
	uint32_t most = a->rank_max < 64 ? a->rank_max : 64;

	proofs = 0;
	for (uint32_t n = 1; n <= most; n++) {
		for (uint32_t root = 0; wants_ranks(n) && root < (rooted ? n : 1); root++) {
			struct world world;

			if (n > 7 && root > 1 && root != n / 2 && root != n - 1)
				continue;
			world_build(&world, a, n, root);
			if (a->kind == RB_KIND_BARRIER)
				prove(&world, APART, world_layout(&world, 0, 1, 1, NULL));
			else
				prove_narrow(&world, n > 17);
			if (a->kind != RB_KIND_BARRIER &&
			    n <= (effort_wanted() == EFFORT_LONG ? 17 : 5))
				prove_wide(&world);
			world_free(&world);
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
