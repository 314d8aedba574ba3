/* flat.c -- one call drawn at random, by a twin and by a kernel. */
#include "tests/cuda/flat.h"

#include <stdio.h>

#include "collectives/reduce/coded.h"
#include "cuda/kernels.h"

/* What runs where `kernel` is called for; NULL: nothing. */
static const char *chosen(const char *kernel, const struct flat_fault *fault)
{
	if (fault == NULL)
		return kernel;
	return strcmp(kernel, fault->of) == 0 ? fault->kernel : NULL;
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

/* Values halfway between two codes of int8, or next to that: units are where nothing is shifted. */
static void halfway(struct areas *a, uint32_t area, struct rb_rng *rng)
{
	for (uint32_t at = 64; at + 4 <= AREA_BYTES; at += 4) {
		const float most = 1.0f + (float)(rb_mix((at - 64) / 512) % 1000);
		float value = most / 127.0f * ((float)rb_rng_below(rng, 127) + 0.5f);

		if (at % 512 == 64)
			value = most;
		memcpy(&a->host[area][at], &value, 4);
	}
	memcpy(a->device[area], a->host[area], AREA_BYTES);
}

/* ---- Conversions ---- */

const char *flat_conversion(struct areas *a, struct rb_rng *rng, const struct flat_fault *fault,
			    char *text, size_t text_bytes)
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
	const char *kernel = chosen(kernels[bf16][narrow], fault), *error;

	if (kernel == NULL)
		return NULL;
	areas_fill(a, rng);
	twin.from = areas_host(a, 0, from_shift);
	twin.to = areas_host(a, 1, to_shift);
	call.from = areas_give(a, 0, from_shift, twin.count * from_size, false);
	call.to = areas_give(a, 1, to_shift, twin.count * to_size, true);
	rb_convert_plain(&twin);
	error = launcher_run(kernel, grid, 1 + (unsigned)rb_rng_below(rng, 40), &call, sizeof(call),
			     a->spans, a->span_count);
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

/* ---- The coded wire ---- */

enum verb { ENCODE, DECODE, REDUCE, REDUCE_MANY, VERBS };

static const char *const coded_kernels[2][VERBS] = {
	{ "rb_encode_bf16", "rb_decode_bf16", "rb_reduce_coded_bf16", "rb_reduce_coded_many_bf16" },
	{ "rb_encode_int8", "rb_decode_int8", "rb_reduce_coded_int8", "rb_reduce_coded_many_int8" },
};

#define MANY 30u         /* Operands, in the areas of the first eight, */
#define MANY_APART 3072u /* bytes apart. */

struct coded_case {
	enum verb verb;
	bool int8;
	uint32_t to_operand, to_shift, residual_shift, shifts[MANY]; /* to_operand MANY: none. */
};

static bool reduces(const struct coded_case *c)
{
	return c->verb >= REDUCE;
}

static uint32_t area_of(uint32_t operand)
{
	return operand % RB_CUDA_OPERANDS;
}

static struct rb_coded coded_drawn(struct coded_case *c, struct rb_rng *rng)
{
	struct rb_coded twin = { c->int8 ? RUBATO_WIRE_INT8 : RUBATO_WIRE_BFLOAT16,
				 .from_count = 1 };

	c->verb = (enum verb)rb_rng_below(rng, VERBS);
	twin.count = rb_rng_below(rng, reduces(c) && c->int8 ? 12 : 1400);
	if (reduces(c)) {
		twin.from_count = 1 + (uint32_t)rb_rng_below(rng, RB_CUDA_OPERANDS);
		twin.final_count = (uint32_t)(rb_rng_below(rng, 2) * rb_rng_below(rng, 9));
	}
	if (c->verb == REDUCE_MANY)
		twin.from_count = 1 + (uint32_t)rb_rng_below(rng, MANY);
	c->to_operand = MANY;
	c->to_shift = shift_drawn(rng);
	c->residual_shift = shift_drawn(rng) & ~3u;
	for (uint32_t k = 0; k < twin.from_count; k++)
		c->shifts[k] = shift_drawn(rng) + k / RB_CUDA_OPERANDS * MANY_APART;
	if (reduces(c) && rb_rng_below(rng, 2) == 0) { /* In place. */
		c->to_operand = (uint32_t)rb_rng_below(rng, twin.from_count);
		c->to_shift = c->shifts[c->to_operand];
	}
	return twin;
}

const char *flat_coded(struct areas *a, bool int8, struct rb_rng *rng,
		       const struct flat_fault *fault, char *text, size_t text_bytes)
{
	struct coded_case c = { .int8 = int8 };
	struct rb_coded twin = coded_drawn(&c, rng);
	const uint64_t units = reduces(&c) ? twin.count : rb_code_units(twin.wire, twin.count);
	const size_t coded_bytes = units * rb_code_bytes(twin.wire);
	const size_t floats = units * rb_code_values(twin.wire) * 4, whole = twin.count * 4;
	const bool keeps = c.verb != DECODE && rb_rng_below(rng, 2) != 0;
	const size_t from_bytes = c.verb == ENCODE ? whole : coded_bytes;
	struct rb_cuda_coded_many call = { .count = twin.count,
					   .from_count = twin.from_count,
					   .final_count = twin.final_count };
	const bool in_place = c.to_operand < MANY;
	const uint32_t to_area = in_place ? area_of(c.to_operand) : RB_CUDA_OPERANDS;
	const unsigned block = int8 ? 32 * (1 + (unsigned)rb_rng_below(rng, 3))
				    : 1 + (unsigned)rb_rng_below(rng, 40);
	const void *from[MANY];
	const char *kernel = chosen(coded_kernels[int8][c.verb], fault), *error;

	if (kernel == NULL)
		return NULL;
	areas_fill(a, rng);
	for (uint32_t k = 0; k < AREAS && rb_rng_below(rng, 4) != 0; k++)
		(rb_rng_below(rng, 4) == 0 ? halfway : ordinary)(a, k, rng);
	for (uint32_t k = 0; k < twin.from_count; k++) {
		from[k] = areas_host(a, area_of(k), c.shifts[k]);
		call.from[k] =
			areas_give(a, area_of(k), c.shifts[k], from_bytes, k == c.to_operand);
	}
	twin.from = from;
	twin.to = areas_host(a, to_area, c.to_shift);
	call.to = in_place ? (void *)(uintptr_t)call.from[c.to_operand]
			   : areas_give(a, to_area, c.to_shift,
					c.verb == DECODE ? whole : coded_bytes, true);
	if (keeps) {
		twin.residual = areas_host(a, AREAS - 1, c.residual_shift);
		call.residual = areas_give(a, AREAS - 1, c.residual_shift, floats, true);
	}
	(c.verb == ENCODE   ? rb_coders_plain.encode
	 : c.verb == DECODE ? rb_coders_plain.decode
			    : rb_coders_plain.reduce)(&twin);
	error = launcher_run(kernel, 1 + (unsigned)rb_rng_below(rng, 3), block, &call,
			     c.verb == REDUCE_MANY ? sizeof(call) : sizeof(struct rb_cuda_coded),
			     a->spans, a->span_count);
	if (error == NULL)
		error = areas_differ(a, text, text_bytes);
	if (error != NULL && error != text)
		(void)snprintf(text, text_bytes, "%s", error);
	if (error != NULL)
		(void)snprintf(
			text + strlen(text), text_bytes - strlen(text),
			": %s, count %lu, operands %u, final %u, to operand %u, residual %d, "
			"block %u",
			coded_kernels[int8][c.verb], (unsigned long)twin.count, twin.from_count,
			twin.final_count, c.to_operand, keeps, block);
	return error != NULL ? text : NULL;
}
