/*
 * test_known.c -- inputs that are cuts of some sequences: sums over them are as known.h expects
 * them, and what is given twice, left out, moved or of another call is found.
 */
#include <stdlib.h>

#include "tests/check_main.h"
#include "tools/known/elements.h"
#include "tools/known/known.h"

#define COUNT 9000u /* More than two periods. */
#define RANKS 200u
#define ELEMENT_BYTES_MAX 8u

struct world {
	struct known known;
	struct operation_call call;
	char *sequences;
	uint64_t each; /* Elements of a sequence. */
	char out[COUNT * ELEMENT_BYTES_MAX];
};

static void world_open(struct world *w, enum operation op, rubato_type type, rubato_operator how)
{
	w->known = (struct known) { .rank_count = RANKS, .number = 7, .cuts = true };
	w->call = (struct operation_call) {
		.op = op, .out = w->out, .count = COUNT, .type = type, .reduction = how
	};
	w->each = COUNT + PATTERN_ELEMENTS;
	w->sequences = malloc(KNOWN_SEQUENCES * w->each * ELEMENT_BYTES_MAX);
	ck_assert_ptr_nonnull(w->sequences);
	ck_assert(known_may_cut(&w->call));
	for (uint32_t i = 0; i < KNOWN_SEQUENCES; i++)
		known_write_sequence(&w->known, &w->call, i, w->each,
				     w->sequences + i * w->each * rubato_type_bytes(type));
}

/* What a rank puts in. */
static const char *input(const struct world *w, uint32_t rank)
{
	uint64_t first = rank % KNOWN_SEQUENCES * w->each + known_cut(rank);

	return w->sequences + first * rubato_type_bytes(w->call.type);
}

/* to = op(to, what `rank` puts in, `moved` elements on). */
static void join(struct world *w, uint32_t rank, uint64_t moved)
{
	rubato_type type = w->call.type;
	const char *in = input(w, rank);

	for (uint64_t i = 0; i < COUNT; i++) {
		uint64_t from = (i + moved) % COUNT;

		if (type_is_float(type))
			float_set(type, w->out, i,
				  float_reduced(w->call.reduction, float_get(type, w->out, i),
						float_get(type, in, from)));
		else
			integer_set(type, w->out, i,
				    integer_reduced(type, w->call.reduction,
						    integer_get(type, w->out, i),
						    integer_get(type, in, from)));
	}
}

/* The reduction of all, but that `instead` comes in place of `left_out`. */
static uint64_t wrong_with(struct world *w, uint32_t left_out, uint32_t instead, uint64_t moved)
{
	bool first = true;

	for (uint32_t rank = 0; rank < RANKS; rank++) {
		uint32_t from = rank == left_out ? instead : rank;

		if (first)
			memcpy(w->out, input(w, from), COUNT * rubato_type_bytes(w->call.type));
		else
			join(w, from, rank == left_out ? moved : 0);
		first = false;
	}
	return known_wrong(&w->known, &w->call);
}

START_TEST(sums_of_cuts_are_known)
{
	static struct world w;
	const rubato_type types[] = { RUBATO_FLOAT32, RUBATO_FLOAT64, RUBATO_INT8, RUBATO_UINT64 };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		world_open(&w, OP_ALLREDUCE, types[i], RUBATO_SUM);
		ck_assert_uint_eq(wrong_with(&w, RANKS, 0, 0), 0);
		/* Another one twice: the next, of the same sequence, of the same place in it. */
		ck_assert_uint_gt(wrong_with(&w, 5, 6, 0), COUNT * 9 / 10);
		ck_assert_uint_gt(wrong_with(&w, 5, 5 + KNOWN_SEQUENCES, 0), COUNT * 9 / 10);
		ck_assert_uint_gt(wrong_with(&w, 5, 5 + 3 * KNOWN_SEQUENCES, 0), COUNT * 9 / 10);
		ck_assert_uint_gt(wrong_with(&w, 5, 5, 64), COUNT * 9 / 10);
		w.known.number++;
		ck_assert_uint_gt(wrong_with(&w, RANKS, 0, 0), COUNT * 9 / 10);
		free(w.sequences);
	}
}
END_TEST

START_TEST(copies_of_cuts_are_known)
{
	static struct world w;
	uint32_t none_like = 0;

	world_open(&w, OP_BROADCAST, RUBATO_INT32, RUBATO_SUM);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		w.call.root = rank;
		memcpy(w.out, input(&w, rank), COUNT * sizeof(int32_t));
		ck_assert_uint_eq(known_wrong(&w.known, &w.call), 0);
		w.call.root = (rank + 1) % RANKS;
		none_like += known_wrong(&w.known, &w.call) > COUNT * 9 / 10;
	}
	ck_assert_uint_eq(none_like, RANKS);
	free(w.sequences);
}
END_TEST

/* All that begin in the same sequence begin elsewhere, as long as there are places. */
START_TEST(cuts_differ)
{
	static bool taken[PATTERN_ELEMENTS];

	for (uint32_t i = 0; i < PATTERN_ELEMENTS; i++) {
		uint64_t cut = known_cut(3 + i * KNOWN_SEQUENCES);

		ck_assert_uint_lt(cut, PATTERN_ELEMENTS);
		ck_assert(!taken[cut]);
		taken[cut] = true;
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("known");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, sums_of_cuts_are_known);
	tcase_add_test(tc, copies_of_cuts_are_known);
	tcase_add_test(tc, cuts_differ);
	return check_main("known", tc);
}
