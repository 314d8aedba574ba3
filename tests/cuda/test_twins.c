/*
 * test_twins.c -- the kernels of cuda/kernels.cu, wherever they run (launcher.h), give the bits of
 * their twins on the host: every type, operator and number of operands, around the ends of vectors,
 * blocks and grids, from and to any address. TEST_SEED takes back the seed of a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/reduce/reduce.h"
#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/launcher.h"
#include "tests/hostile.h"
#include "tests/length.h"

#define OPERANDS 40
#define COUNT_MAX 3000
#define GUARD_BYTES 64
#define ROOM (COUNT_MAX * 8 + 2 * GUARD_BYTES)
#define GUARD 0x5a

/* ck_assert writes to a pipe, also where it holds: too slow for what is asked a million times. */
#define EXPECT(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg(__VA_ARGS__);                                                 \
	} while (0)

static const char *const names[RUBATO_TYPE_COUNT] = {
	[RUBATO_FLOAT32] = "f32", [RUBATO_FLOAT64] = "f64", [RUBATO_INT32] = "i32",
	[RUBATO_INT64] = "i64",   [RUBATO_FLOAT16] = "f16", [RUBATO_BFLOAT16] = "bf16",
	[RUBATO_INT8] = "i8",     [RUBATO_INT16] = "i16",   [RUBATO_UINT8] = "u8",
	[RUBATO_UINT16] = "u16",  [RUBATO_UINT32] = "u32",  [RUBATO_UINT64] = "u64",
};

struct bench {
	_Alignas(64) unsigned char from[OPERANDS][ROOM], device[ROOM], plain[ROOM], saved[ROOM];
};

/* Where a call's buffers are. */
struct place {
	uint32_t grid, block;
	uint32_t alias;   /* `to` is this operand; none: a buffer of its own. */
	uint32_t shift;   /* All addresses modulo 16... */
	uint32_t differs; /* ...but operand k lies k * differs bytes behind that. */
};

static unsigned char *operand(struct bench *b, const struct place *p, uint32_t k)
{
	return b->from[k] + GUARD_BYTES / 2 + (p->shift + k * p->differs) % 16;
}

static const char *launch(const struct rb_reduce *r, const struct place *p, bool many)
{
	const size_t bytes = r->count * rubato_type_bytes(r->type);
	const uint32_t last = r->from_count;
	struct launcher_span spans[OPERANDS + 1];
	struct rb_cuda_reduce call = {
		.to = r->to,
		.count = r->count,
		.from_count = r->from_count,
		.op = (uint32_t)r->op,
		.final_count = r->final_count,
	};
	struct rb_cuda_reduce_many call_many = {
		.to = r->to,
		.count = r->count,
		.from_count = r->from_count,
		.op = (uint32_t)r->op,
		.final_count = r->final_count,
	};
	char name[32];

	(void)snprintf(name, sizeof(name), "rb_reduce_%s%s", many ? "many_" : "", names[r->type]);
	memcpy(many ? call_many.from : call.from, r->from, r->from_count * sizeof(*r->from));
	for (uint32_t k = 0; k < last; k++)
		spans[k] = (struct launcher_span) { r->from[k], bytes, r->from[k] == r->to };
	spans[last] = (struct launcher_span) { r->to, bytes, true };
	return launcher_run(
		name, p->grid, p->block, many ? (const void *)&call_many : (const void *)&call,
		many ? sizeof(call_many) : sizeof(call), spans, p->alias < last ? last : last + 1);
}

static void expect_guards(const unsigned char *buffer, const unsigned char *to, size_t bytes,
			  uint64_t seed)
{
	for (const unsigned char *at = buffer; at < buffer + ROOM; at++)
		EXPECT(*at == GUARD || (at >= to && at < to + bytes),
		       "byte %ld of a target of %zu bytes was written, TEST_SEED=%lu",
		       (long)(at - to), bytes, (unsigned long)seed);
}

static void compare(struct bench *b, struct rb_reduce r, const struct place *p, bool many,
		    uint64_t seed)
{
	const size_t bytes = r.count * rubato_type_bytes(r.type);
	const bool alone = p->alias >= r.from_count;
	const void *from[OPERANDS];
	const char *error;

	for (uint32_t k = 0; k < r.from_count; k++)
		from[k] = operand(b, p, k);
	r.from = from;
	r.to = b->plain;
	rb_reduce_plain(&r);
	r.to = alone ? b->device + GUARD_BYTES / 2 + p->shift : operand(b, p, p->alias);
	if (alone)
		memset(b->device, GUARD, ROOM);
	else
		memcpy(b->saved, b->from[p->alias], ROOM);
	error = launch(&r, p, many);
	EXPECT(error == NULL && memcmp(r.to, b->plain, bytes) == 0,
	       "%s: %s%s %s: %u operands, count %lu, final %u, alias %u, shift %u, differs %u, "
	       "grid %u, block %u, TEST_SEED=%lu",
	       error != NULL ? error : "other bits", names[r.type], many ? " many" : "",
	       rubato_operator_name(r.op), r.from_count, (unsigned long)r.count, r.final_count,
	       p->alias, p->shift, p->differs, p->grid, p->block, (unsigned long)seed);
	if (alone) {
		expect_guards(b->device, r.to, bytes, seed);
		return;
	}
	memcpy(r.to, b->saved + ((unsigned char *)r.to - b->from[p->alias]), bytes);
	EXPECT(memcmp(b->saved, b->from[p->alias], ROOM) == 0,
	       "beside a target that is an operand, TEST_SEED=%lu", (unsigned long)seed);
}

/* Counts around what the threads of a grid do at once, in vectors: 0 or more of it. */
static uint64_t count_around(const struct place *p, rubato_type type, struct rb_rng *rng)
{
	uint64_t elements = 16 / rubato_type_bytes(type), units[] = { 1, p->block, 0 };

	units[2] = (uint64_t)p->block * p->grid;
	uint64_t unit = units[rb_rng_below(rng, 3)] * elements;
	uint64_t count = unit * rb_rng_below(rng, 4) + rb_rng_below(rng, 4 * elements + 1);

	return count < COUNT_MAX ? count : count % COUNT_MAX;
}

/* Every shift and every count of few vectors, then draws of everything. */
static void twins_of(struct bench *b, struct rb_reduce r, bool divide, bool many, uint64_t seed)
{
	static const uint32_t blocks[] = { 1, 2, 31, 32, 33, 64, RB_CUDA_BLOCK };
	struct rb_rng rng = { rb_mix(seed) + (uint64_t)r.type * 64 + (uint64_t)r.op * 4 +
			      divide * 2 + many };
	const uint32_t draws = (test_length() == TEST_SHORT    ? 60
				: test_length() == TEST_NORMAL ? 400
							       : 20000) /
			       launcher_slower;
	const uint32_t few = 4 * 16 / (uint32_t)rubato_type_bytes(r.type) + 2;
	const uint32_t most = many ? OPERANDS : RB_CUDA_OPERANDS, least = divide ? 1 : 2;

	for (uint32_t k = 0; k < most; k++)
		scramble(b->from[k], ROOM / 8, 8, &rng);
	for (uint32_t k = 0; k < most; k++)
		scramble(b->from[k] + 48, (ROOM - 48) / rubato_type_bytes(r.type) / 2,
			 rubato_type_bytes(r.type), &rng);
	r.from_count = 2;
	r.final_count = divide ? 3 : 0;
	for (uint32_t i = 0; i < 16 * few; i += launcher_slower) {
		struct place p = { .grid = 2, .block = 2, .alias = i % 3, .shift = i / few };

		r.count = i % few;
		compare(b, r, &p, many, seed);
	}
	for (uint32_t i = 0; i < draws; i++) {
		struct place p = {
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
		compare(b, r, &p, many, seed);
	}
}

START_TEST(kernels_are_twins)
{
	struct rb_reduce r = { .type = (rubato_type)_i };
	struct bench *b = launcher_memory(sizeof(*b));
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
