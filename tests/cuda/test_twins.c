/*
 * test_twins.c -- the kernels of cuda/kernels.cu, wherever they run (launcher.h), give the bits of
 * their twins on the host: every type, operator and number of operands, around the ends of vectors,
 * blocks and grids, from and to any address. TEST_SEED takes back the seed of a failure.
 */
#include <stdio.h>

#include "base/rng.h"
#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/twins.h"
#include "tests/length.h"

/* Counts around what the threads of a grid do at once, in vectors: 0 or more of it. */
static uint64_t count_around(const struct twins_place *p, rubato_type type, struct rb_rng *rng)
{
	uint64_t elements = 16 / rubato_type_bytes(type), units[] = { 1, p->block, 0 };

	units[2] = (uint64_t)p->block * p->grid;
	uint64_t unit = units[rb_rng_below(rng, 3)] * elements;
	uint64_t count = unit * rb_rng_below(rng, 4) + rb_rng_below(rng, 4 * elements + 1);

	return count < TWINS_COUNT_MAX ? count : count % TWINS_COUNT_MAX;
}

static void expect_twins(struct twins_bench *b, struct rb_reduce r, const struct twins_place *p,
			 uint64_t seed)
{
	const char *error = twins_compare(b, r, p);

	if (error != NULL) /* ck_assert writes to a pipe, also where it holds: too slow here. */
		ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
}

/* Every shift and every count of few vectors, then draws of everything. */
static void twins_of(struct twins_bench *b, struct rb_reduce r, bool divide, bool many,
		     uint64_t seed)
{
	static const uint32_t blocks[] = { 1, 2, 31, 32, 33, 64, RB_CUDA_BLOCK };
	struct rb_rng rng = { rb_mix(seed) + (uint64_t)r.type * 64 + (uint64_t)r.op * 4 +
			      divide * 2 + many };
	const uint32_t draws = (test_length() == TEST_SHORT    ? 60
				: test_length() == TEST_NORMAL ? 400
							       : 20000) /
			       launcher_slower;
	const uint32_t few = 4 * 16 / (uint32_t)rubato_type_bytes(r.type) + 2;
	char kernel[32];
	const uint32_t most = many ? TWINS_OPERANDS : RB_CUDA_OPERANDS, least = divide ? 1 : 2;

	(void)snprintf(kernel, sizeof(kernel), "rb_reduce_%s%s", many ? "many_" : "",
		       twins_types[r.type]);
	twins_fill(b, r.type, most, seed + (uint64_t)r.type);
	r.from_count = 2;
	r.final_count = divide ? 3 : 0;
	for (uint32_t i = 0; i < 16 * few; i += launcher_slower) {
		struct twins_place p = { kernel, many, 2, 2, .alias = i % 3, .shift = i / few };

		r.count = i % few;
		expect_twins(b, r, &p, seed);
	}
	for (uint32_t i = 0; i < draws; i++) {
		struct twins_place p = {
			.kernel = kernel,
			.many = many,
			.grid = 1 + (uint32_t)rb_rng_below(&rng, 5),
			.block = blocks[rb_rng_below(&rng, sizeof(blocks) / sizeof(*blocks))],
			.shift = (uint32_t)rb_rng_below(&rng, 16),
			.differs = (uint32_t)(rb_rng_below(&rng, 2) * rb_rng_below(&rng, 16)),
		};

		/* Every number of them in turn, each as the target in turn. */
		r.from_count = least + i % (9 - least + 1);
		if (r.from_count > most || (many && rb_rng_below(&rng, 8) == 0))
			r.from_count = most;
		p.alias = (uint32_t)rb_rng_below(&rng, r.from_count + 2);
		if (divide)
			r.final_count = 2 + (uint32_t)rb_rng_below(
						    &rng, (1ull << rb_rng_below(&rng, 33)) - 1);
		r.count = count_around(&p, r.type, &rng);
		expect_twins(b, r, &p, seed);
	}
}

START_TEST(kernels_are_twins)
{
	struct rb_reduce r = { .type = (rubato_type)_i };
	struct twins_bench *b = launcher_memory(sizeof(*b));
	uint64_t seed = 1;

	(void)seeds_given(&seed);
	ck_assert(b != NULL);
	for (int many = 0; many < 2; many++) {
		for (uint32_t op = 0; op < RUBATO_OPERATOR_COUNT; op++) {
			r.op = (rubato_operator)op;
			twins_of(b, r, false, many != 0, seed);
		}
		r.op = RUBATO_AVG;
		twins_of(b, r, true, many != 0, seed);
	}
	launcher_forget(b);
}
END_TEST

/* What rb_cuda_grid says is enough, and not zero. */
START_TEST(grids_are_bounded)
{
	for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) {
		const uint64_t block = RB_CUDA_BLOCK * (16 / bytes);
		const uint32_t most = 132 * RB_CUDA_BLOCKS_PER_MULTIPROCESSOR;

		ck_assert_uint_eq(rb_cuda_grid(0, bytes, 132), 1);
		ck_assert_uint_eq(rb_cuda_grid(block - 1, bytes, 132), 1);
		ck_assert_uint_eq(rb_cuda_grid(10 * block, bytes, 132), 11);
		ck_assert_uint_eq(rb_cuda_grid(most * block, bytes, 132), most);
		ck_assert_uint_eq(rb_cuda_grid(UINT64_MAX, bytes, 132), most);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("twins");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, kernels_are_twins, 0, RUBATO_TYPE_COUNT);
	tcase_add_test(tc, grids_are_bounded);
	return check_main("cuda", tc);
}
