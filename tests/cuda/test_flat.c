/*
 * test_flat.c -- kernels of conversions and of the coded wire, wherever they run (launcher.h), give
 * the bits of their twins on the host: counts around the ends of batches, units, warps and grids,
 * any address, with a residual and without. TEST_SEED takes back the seed of a failure.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/reduce/coded.h"
#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/areas.h"
#include "tests/length.h"

static struct areas *areas_open(struct rb_rng *rng, uint64_t *seed)
{
	struct areas *a = launcher_memory(sizeof(*a));

	*seed = 1;
	(void)seeds_given(seed);
	rng->state = *seed;
	ck_assert(a != NULL);
	return a;
}

static uint32_t draws(uint32_t normal)
{
	uint32_t count = normal / launcher_slower;

	return test_length() == TEST_SHORT ? count / 4 : count;
}

static uint32_t shift_drawn(struct rb_rng *rng)
{
	return (uint32_t)(rb_rng_below(rng, 2) * rb_rng_below(rng, 16));
}

/* Some floats that int8 keeps: of one size, but here and there. */
static void ordinary(struct areas *a, uint32_t area, struct rb_rng *rng)
{
	for (uint32_t at = 0; at + 4 <= AREA_BYTES; at += 4) {
		float value = (float)(rb_rng_unit(rng) - 0.5);

		if (rb_rng_below(rng, 500) != 0)
			memcpy(&a->host[area][at], &value, 4);
	}
	memcpy(a->device[area], a->host[area], AREA_BYTES);
}

/* ---- Conversions ---- */

static const char *conversion(struct areas *a, struct rb_rng *rng, char *text, size_t text_bytes)
{
	static const char *const kernels[2][2] = { { "rb_widen_f16", "rb_narrow_f16" },
						   { "rb_widen_bf16", "rb_narrow_bf16" } };
	const bool bf16 = rb_rng_below(rng, 2) != 0, narrow = rb_rng_below(rng, 2) != 0;
	const uint32_t from_shift = shift_drawn(rng), to_shift = shift_drawn(rng);
	const size_t from_size = narrow ? 4 : 2, to_size = narrow ? 2 : 4;
	struct rb_convert twin = { bf16 ? RUBATO_BFLOAT16 : RUBATO_FLOAT16, narrow,
				   .count = rb_rng_below(rng, 300) };
	struct rb_cuda_convert call = { .count = twin.count };
	const unsigned grid = 1 + (unsigned)rb_rng_below(rng, 3);
	const char *error;

	areas_fill(a, rng);
	twin.from = areas_host(a, 0, from_shift);
	twin.to = areas_host(a, 1, to_shift);
	call.from = areas_give(a, 0, from_shift, twin.count * from_size, false);
	call.to = areas_give(a, 1, to_shift, twin.count * to_size, true);
	rb_convert_plain(&twin);
	error = launcher_run(kernels[bf16][narrow], grid, 1 + (unsigned)rb_rng_below(rng, 40),
			     &call, sizeof(call), a->spans, a->span_count);
	if (error == NULL)
		error = areas_differ(a, text, text_bytes);
	if (error != NULL && error != text)
		(void)snprintf(text, text_bytes, "%s", error);
	if (error != NULL)
		(void)snprintf(text + strlen(text), text_bytes - strlen(text),
			       ": %s, count %lu, shifts %u and %u", kernels[bf16][narrow],
			       (unsigned long)twin.count, from_shift, to_shift);
	return error != NULL ? text : NULL;
}

START_TEST(conversions_are_twins)
{
	struct rb_rng rng;
	uint64_t seed;
	struct areas *a = areas_open(&rng, &seed);
	char text[1024];

	for (uint32_t i = 0; i < draws(2000); i++) {
		const char *error = conversion(a, &rng, text, sizeof(text));

		if (error != NULL)
			ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

/* Every 16-bit value, to float32 and back. */
START_TEST(all_halfs_are_twins)
{
	static const char *const kernels[] = { "rb_widen_f16", "rb_widen_bf16", "rb_narrow_f16",
					       "rb_narrow_bf16" };
	const rubato_type half = _i % 2 == 0 ? RUBATO_FLOAT16 : RUBATO_BFLOAT16;
	struct {
		uint16_t halfs[65536], back[65536], plain[65536];
		float device[65536], host[65536];
	} *m = launcher_memory(sizeof(*m));
	struct rb_convert twin = { half, false, m->halfs, m->host, 65536 };
	struct rb_cuda_convert call = { m->device, m->halfs, 65536 };
	struct launcher_span spans[] = { { m->halfs, sizeof(m->halfs), false },
					 { m->device, sizeof(m->device), true } };

	ck_assert(m != NULL);
	for (uint32_t i = 0; i < 65536; i++)
		m->halfs[i] = (uint16_t)i;
	rb_convert_plain(&twin);
	ck_assert_ptr_null(launcher_run(kernels[_i], 4, 64, &call, sizeof(call), spans, 2));
	ck_assert_int_eq(memcmp(m->host, m->device, sizeof(m->host)), 0);
	twin = (struct rb_convert) { half, true, m->host, m->plain, 65536 };
	call = (struct rb_cuda_convert) { m->back, m->device, 65536 };
	spans[0] = (struct launcher_span) { m->back, sizeof(m->back), true };
	spans[1].written = false;
	rb_convert_plain(&twin);
	ck_assert_ptr_null(launcher_run(kernels[2 + _i], 4, 64, &call, sizeof(call), spans, 2));
	ck_assert_int_eq(memcmp(m->plain, m->back, sizeof(m->back)), 0);
	launcher_forget(m);
}
END_TEST

/* ---- The coded wire ---- */

enum verb { ENCODE, DECODE, REDUCE };

static const char *const coded_kernels[2][3] = {
	{ "rb_encode_bf16", "rb_decode_bf16", "rb_reduce_coded_bf16" },
	{ "rb_encode_int8", "rb_decode_int8", "rb_reduce_coded_int8" },
};

struct coded_case {
	enum verb verb;
	bool int8;
	uint32_t to_area, to_shift, residual_shift, shifts[RB_CUDA_OPERANDS];
};

static struct rb_coded coded_drawn(struct coded_case *c, struct rb_rng *rng)
{
	struct rb_coded twin = { c->int8 ? RUBATO_WIRE_INT8 : RUBATO_WIRE_BFLOAT16,
				 .from_count = 1 };

	c->verb = (enum verb)rb_rng_below(rng, 3);
	twin.count = rb_rng_below(rng, c->verb == REDUCE && c->int8 ? 12 : 1400);
	if (c->verb == REDUCE) {
		twin.from_count = 1 + (uint32_t)rb_rng_below(rng, RB_CUDA_OPERANDS);
		twin.final_count = (uint32_t)(rb_rng_below(rng, 2) * rb_rng_below(rng, 9));
	}
	c->to_area = RB_CUDA_OPERANDS;
	c->to_shift = shift_drawn(rng);
	c->residual_shift = shift_drawn(rng) & ~3u;
	for (uint32_t k = 0; k < twin.from_count; k++)
		c->shifts[k] = shift_drawn(rng);
	if (c->verb == REDUCE && rb_rng_below(rng, 2) == 0) { /* In place. */
		c->to_area = (uint32_t)rb_rng_below(rng, twin.from_count);
		c->to_shift = c->shifts[c->to_area];
	}
	return twin;
}

static const char *coded(struct areas *a, bool int8, struct rb_rng *rng, char *text,
			 size_t text_bytes)
{
	struct coded_case c = { .int8 = int8 };
	struct rb_coded twin = coded_drawn(&c, rng);
	const uint64_t units = c.verb == REDUCE ? twin.count : rb_code_units(twin.wire, twin.count);
	const size_t coded_bytes = units * rb_code_bytes(twin.wire);
	const size_t floats = units * rb_code_values(twin.wire) * 4, whole = twin.count * 4;
	const bool keeps = c.verb != DECODE && rb_rng_below(rng, 2) != 0;
	const size_t from_bytes = c.verb == ENCODE ? whole : coded_bytes;
	struct rb_cuda_coded call = { .count = twin.count,
				      .from_count = twin.from_count,
				      .final_count = twin.final_count };
	const unsigned block = int8 ? 32 * (1 + (unsigned)rb_rng_below(rng, 3))
				    : 1 + (unsigned)rb_rng_below(rng, 40);
	const void *from[RB_CUDA_OPERANDS];
	const char *error;

	areas_fill(a, rng);
	for (uint32_t k = 0; k < AREAS && rb_rng_below(rng, 4) != 0; k++)
		ordinary(a, k, rng);
	for (uint32_t k = 0; k < twin.from_count; k++) {
		from[k] = areas_host(a, k, c.shifts[k]);
		call.from[k] = areas_give(a, k, c.shifts[k], from_bytes, k == c.to_area);
	}
	twin.from = from;
	twin.to = areas_host(a, c.to_area, c.to_shift);
	call.to = c.to_area < twin.from_count
			  ? (void *)(uintptr_t)call.from[c.to_area]
			  : areas_give(a, c.to_area, c.to_shift,
				       c.verb == DECODE ? whole : coded_bytes, true);
	if (keeps) {
		twin.residual = areas_host(a, AREAS - 1, c.residual_shift);
		call.residual = areas_give(a, AREAS - 1, c.residual_shift, floats, true);
	}
	(c.verb == ENCODE   ? rb_coders_plain.encode
	 : c.verb == DECODE ? rb_coders_plain.decode
			    : rb_coders_plain.reduce)(&twin);
	error = launcher_run(coded_kernels[int8][c.verb], 1 + (unsigned)rb_rng_below(rng, 3), block,
			     &call, sizeof(call), a->spans, a->span_count);
	if (error == NULL)
		error = areas_differ(a, text, text_bytes);
	if (error != NULL && error != text)
		(void)snprintf(text, text_bytes, "%s", error);
	if (error != NULL)
		(void)snprintf(text + strlen(text), text_bytes - strlen(text),
			       ": %s, count %lu, operands %u, final %u, to area %u, residual %d, "
			       "block %u",
			       coded_kernels[int8][c.verb], (unsigned long)twin.count,
			       twin.from_count, twin.final_count, c.to_area, keeps, block);
	return error != NULL ? text : NULL;
}

START_TEST(coders_are_twins)
{
	struct rb_rng rng;
	uint64_t seed;
	struct areas *a = areas_open(&rng, &seed);
	char text[1024];

	for (uint32_t i = 0; i < draws(3000); i++) {
		const char *error = coded(a, _i != 0, &rng, text, sizeof(text));

		if (error != NULL)
			ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("flat");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, conversions_are_twins);
	tcase_add_loop_test(tc, all_halfs_are_twins, 0, 2);
	tcase_add_loop_test(tc, coders_are_twins, 0, 2);
	return check_main("cuda", tc);
}
