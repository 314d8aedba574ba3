/*
 * test_checker.c -- proves every algorithm: for many rank counts, roots, counts and chunks, in
 * place and not, three instances in a row. TEST_LENGTH=long: every rank count up to 64.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "collectives/checker/joint.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define INSTANCES 3

static bool wants_ranks(uint32_t n)
{
	switch (test_length()) {
	case TEST_SHORT:
		return n <= 4 || (!test_is_interpreted() && n == 8);
	case TEST_NORMAL:
		return n <= 9 || n == 13 || (n >= 15 && n <= 17) || n == 33;
	case TEST_LONG:
		break;
	}
	return true;
}

/* Which pairs of a node are apart: none, some, and all. */
#define APART_FORMS 3
static const uint8_t *apart_fill(const struct rb_algorithm *a, uint8_t *apart, uint32_t n, int form)
{
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t p = 0; p < n; p++)
			apart[r * n + p] = form == 2 || rb_mix(r * p + r + p) % 2 == 0;
	return form > 0 && a->kind == RB_KIND_ALLTOALLV && a->flags != 0 ? apart : NULL;
}

static uint64_t proofs; /* Of one test: so that a spread that became empty is noticed. */

enum places { APART = 1, IN_PLACE = 2, BOTH = 3 };

static void prove(const struct rb_joint *joint, enum places places,
		  struct rb_joint_layouts *layouts)
{
	char text[200];
	struct rb_check_result result;
	bool told = rb_joint_told_in_place(joint->algorithm->kind) && !joint->in_place;

	for (int in_place = 0; in_place <= !told; in_place++) {
		if (!(places & (in_place ? IN_PLACE : APART)) && !told)
			continue;
		ck_assert_int_eq(rb_joint_check(joint, layouts, in_place, INSTANCES, NULL, &result),
				 RUBATO_OK);
		if (!result.proved)
			ck_abort_msg("%s: %s",
				     rb_joint_text(joint, layouts, in_place, text, sizeof(text)),
				     result.text);
		proofs++;
	}
	rb_joint_layouts_free(layouts);
}

static void prove_even(const struct rb_joint *joint, enum places places, uint64_t count,
		       uint64_t chunk, uint32_t align)
{
	struct rb_joint_layouts layouts;

	ck_assert_int_eq(rb_joint_even(&layouts, joint, count, chunk, align), RUBATO_OK);
	prove(joint, places, &layouts);
}

/* Some of them 0. */
struct lengths_random {
	uint64_t seed, scale;
};

static uint64_t lengths_random(const void *arg, uint32_t s, uint32_t d)
{
	const struct lengths_random *random = arg;
	struct rb_rng rng = { random->seed + s * 1000 + d };
	uint64_t draw = rb_rng_next(&rng);
	uint64_t length = draw % 4 == 0 ? 0 : (draw >> 8) % (random->scale + 1);

	return draw % 16 == 1 ? 5 * random->scale : length;
}

static void prove_uneven(const struct rb_joint *joint, enum places places, uint64_t chunk,
			 enum rb_gaps gaps, uint64_t seed)
{
	struct lengths_random random = { seed, 9 };
	struct rb_joint_layouts layouts;

	if (!rb_joint_takes_uneven(joint))
		return;
	ck_assert_int_eq(rb_joint_uneven(&layouts, joint, chunk, gaps, lengths_random, &random),
			 RUBATO_OK);
	prove(joint, places, &layouts);
}

/* Counts around the number of blocks and of chunks; even and uneven blocks. */
static void prove_wide(const struct rb_joint *joint)
{
	static const uint64_t chunks[] = { 2, 1, 7, 1000 };
	uint64_t n = rb_algorithm_blocks(joint->algorithm, joint->rank_count, joint->nodes);

	for (uint32_t i = 0; i < 4; i++) {
		uint64_t chunk = chunks[i], counts[] = {
			0, 1, n - 1, n, n + 1, 31, 97, n * chunk - 1, n * chunk + 1, 13 * chunk
		};

		for (uint32_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
			if (counts[c] <= 14 * n * chunk)
				prove_even(joint, BOTH, counts[c], chunk, 1);
	}
	prove_even(joint, BOTH, 16 * n * 3 + 5, 16, 16);
	prove_even(joint, BOTH, (uint64_t)1 << 33, ((uint64_t)1 << 33) / 3, 16);
	for (uint64_t seed = 2; seed <= 5; seed++)
		prove_uneven(joint, BOTH, 2, RB_GAPS_NONE, seed);
}

/* More chunks than slots, uneven blocks, and more elements than 31 bits count. */
static void prove_narrow(const struct rb_joint *joint, bool narrowest)
{
	uint64_t n = rb_algorithm_blocks(joint->algorithm, joint->rank_count, joint->nodes);
	uint64_t big = ((uint64_t)1 << 31) + 5;

	if (narrowest &&
	    joint->schedules[0].scratch_vector_slots > 1) /* A copy for each item and round. */
		prove_even(joint, IN_PLACE, n, 7, 1);
	else
		prove_even(joint, narrowest ? IN_PLACE : BOTH, (narrowest ? 3 : 6) * n * 2 - 1, 2,
			   1);
	prove_uneven(joint, APART, narrowest ? 6 : 3, RB_GAPS_NONE, 1);
	if (!narrowest)
		prove_even(joint, IN_PLACE, big, big / 3 / n + 11, 16);
}

/* What a V adds: gaps, and starts that only their owner knows. */
static void prove_v(const struct rb_joint *joint, bool narrowest)
{
	prove_uneven(joint, BOTH, narrowest ? 6 : 2, rb_joint_gaps(joint), joint->rank_count);
	if (narrowest)
		return;
	for (uint64_t seed = 10; seed <= 12; seed++) {
		prove_uneven(joint, BOTH, seed - 9, RB_GAPS_SAME, seed);
		prove_uneven(joint, BOTH, seed - 9, rb_joint_gaps(joint), seed);
	}
}

static void prove_joint(const struct rb_joint *joint)
{
	uint32_t n = joint->rank_count;
	uint32_t wide = test_length() == TEST_LONG    ? 17
			: test_is_interpreted()       ? 2
			: test_length() == TEST_SHORT ? 3
						      : 5;
	enum rb_kind kind = joint->algorithm->kind;

	if (kind == RB_KIND_BARRIER)
		prove_even(joint, APART, 0, 1, 1);
	else if (rb_kind_uneven(kind))
		prove_v(joint, n > 17);
	else
		prove_narrow(joint, n > 17);
	if (kind != RB_KIND_BARRIER && n <= wide &&
	    (!rb_kind_uneven(kind) || test_length() == TEST_LONG))
		prove_wide(joint);
}

START_TEST(every_algorithm_is_right)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	uint32_t most = a->rank_max < 64 ? a->rank_max : 64;
	int forms = a->kind == RB_KIND_ALLTOALLV && a->flags != 0 ? APART_FORMS : 1;
	uint8_t apart[64 * 64];

	proofs = 0;
	for (uint32_t n = 1; n <= most; n++) {
		uint32_t roots = !wants_ranks(n) ? 0 : rb_algorithm_rooted(a) ? n : 1;

		if (rb_kind_uneven(a->kind) && test_length() == TEST_NORMAL && n > 17 && n != 33)
			continue; /* The others' builders, proved there. */
		for (uint32_t root = 0; root < roots; root++) {
			if (n > 7 && root > 1 && root != n / 2 && root != n - 1)
				continue;
			int tolds = 1 + rb_joint_told_in_place(a->kind);

			for (int i = 0; i < tolds * forms; i++) {
				struct rb_joint joint = { .algorithm = a,
							  .rank_count = n,
							  .root = root,
							  .apart = apart_fill(a, apart, n,
									      i / tolds),
							  .in_place = i % tolds };

				ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
				prove_joint(&joint);
				rb_joint_free(&joint);
			}
		}
	}
	ck_assert_uint_ge(proofs, test_is_interpreted()         ? 4u
				  : test_length() == TEST_SHORT ? 5u
				  : a->kind == RB_KIND_BARRIER  ? 14u
								: 40u);
}
END_TEST

/* How often a rank reduces an element, by the schedules. */
static enum rb_reductions reductions_of(const struct rb_joint *joint)
{
	enum rb_reductions found = RB_REDUCTIONS_ONE;

	for (uint32_t r = 0; r < joint->rank_count; r++) {
		const struct rb_schedule *s = &joint->schedules[r];
		uint8_t seen[64] = { 0 };

		ck_assert_uint_le(s->block_count, sizeof(seen));
		for (uint32_t i = 0; i < s->step_count; i++) {
			const struct rb_step *step = &s->steps[i];

			if (step->kind != RB_STEP_REDUCE)
				continue;
			if (step->from_count < joint->rank_count && found == RB_REDUCTIONS_ONE)
				found = RB_REDUCTIONS_CHAINED;
			for (uint32_t b = step->block; b < step->block + step->blocks; b++)
				if (seen[b]++ > 0)
					found = RB_REDUCTIONS_SOME;
		}
	}
	return found;
}

/* What is rounded on its way has a residual for each element: rows must not say less than is so. */
START_TEST(rows_say_how_often_an_element_is_reduced)
{
	uint32_t said[3] = { 0 };

	for (uint32_t a = 0; a < rb_algorithm_count; a++) {
		enum rb_kind kind = rb_algorithms[a].kind;

		if (kind != RB_KIND_ALLREDUCE && kind != RB_KIND_REDUCE_SCATTER)
			continue;
		said[rb_algorithms[a].reductions]++;
		for (uint32_t n = 2; n <= 8; n++) {
			uint32_t words[RB_NODES_WORDS(8)], name_of[8];
			struct rb_joint joint = { .algorithm = &rb_algorithms[a], .rank_count = n };
			struct rb_nodes nodes;

			for (uint32_t r = 0; r < n; r++)
				name_of[r] = r / 2;
			rb_nodes_make(&nodes, words, name_of, n);
			joint.nodes = rb_algorithms[a].by_node ? &nodes : NULL;
			ck_assert_int_eq(rb_joint_build(&joint), RUBATO_OK);
			ck_assert_msg(rb_algorithms[a].reductions <= reductions_of(&joint),
				      "%s %s, %u ranks", rb_kind_name(kind), rb_algorithms[a].name,
				      n);
			rb_joint_free(&joint);
		}
	}
	ck_assert(said[0] > 0 && said[1] > 0 && said[2] > 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("proofs");

	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(tc, every_algorithm_is_right, 0, (int)rb_algorithm_count);
	tcase_add_test(tc, rows_say_how_often_an_element_is_reduced);

	return check_main("checker", tc);
}
