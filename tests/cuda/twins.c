/* twins.c -- a target lies between guard bytes; an operand that is the target is restored. */
#include "tests/cuda/twins.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "cuda/kernels.h"
#include "tests/hostile.h"

#define GUARD 0x5a

const char *const twins_types[RUBATO_TYPE_COUNT] = {
	[RUBATO_FLOAT32] = "f32", [RUBATO_FLOAT64] = "f64", [RUBATO_INT32] = "i32",
	[RUBATO_INT64] = "i64",   [RUBATO_FLOAT16] = "f16", [RUBATO_BFLOAT16] = "bf16",
	[RUBATO_INT8] = "i8",     [RUBATO_INT16] = "i16",   [RUBATO_UINT8] = "u8",
	[RUBATO_UINT16] = "u16",  [RUBATO_UINT32] = "u32",  [RUBATO_UINT64] = "u64",
};

void twins_fill(struct twins_bench *b, rubato_type type, uint32_t operands, uint64_t seed)
{
	const size_t size = rubato_type_bytes(type);
	struct rb_rng rng = { rb_mix(seed) };

	for (uint32_t k = 0; k < operands; k++) {
		scramble(b->from[k], TWINS_ROOM / 8, 8, &rng);
		scramble(b->from[k] + 48, (TWINS_ROOM - 48) / size / 2, size, &rng);
	}
	/* Here and there all operands are the same: -0, if it is a float, or anything. */
	for (size_t at = 32; at + size < TWINS_ROOM / 2; at += size) {
		const uint64_t draw = rb_rng_below(&rng, 16);
		unsigned char same[8] = { [7] = 0x80 };

		if (draw == 0)
			scramble(same + 8 - size, 1, size, &rng);
		for (uint32_t k = 0; k < operands && draw < 2; k++)
			memcpy(b->from[k] + at, same + 8 - size, size);
	}
}

static unsigned char *operand(struct twins_bench *b, const struct twins_place *p, uint32_t k)
{
	return b->from[k] + TWINS_GUARD_BYTES / 2 + (p->shift + k * p->differs) % 16;
}

static const char *launch(const struct rb_reduce *r, const struct twins_place *p)
{
	const size_t bytes = r->count * rubato_type_bytes(r->type);
	const uint32_t last = r->from_count;
	struct launcher_span spans[TWINS_OPERANDS + 1];
	struct rb_cuda_reduce call = {
		.to = r->to,
		.count = r->count,
		.from_count = r->from_count,
		.op = (uint32_t)r->op,
		.final_count = r->final_count,
	};
	struct rb_cuda_reduce_many many = {
		.to = r->to,
		.count = r->count,
		.from_count = r->from_count,
		.op = (uint32_t)r->op,
		.final_count = r->final_count,
	};

	memcpy(p->many ? many.from : call.from, r->from, r->from_count * sizeof(*r->from));
	for (uint32_t k = 0; k < last; k++)
		spans[k] = (struct launcher_span) { r->from[k], bytes, k == p->alias };
	spans[last] = (struct launcher_span) { r->to, bytes, true };
	return launcher_run(
		p->kernel, p->grid, p->block, p->many ? (const void *)&many : (const void *)&call,
		p->many ? sizeof(many) : sizeof(call), spans, p->alias < last ? last : last + 1);
}

/* Of a buffer whose bytes were `was`, or all GUARD: none but the target's has changed. */
static bool beside(const unsigned char *buffer, const unsigned char *was, const unsigned char *to,
		   size_t bytes)
{
	for (size_t i = 0; i < TWINS_ROOM; i++)
		if (buffer[i] != (was != NULL ? was[i] : GUARD) &&
		    (buffer + i < to || buffer + i >= to + bytes))
			return true;
	return false;
}

static const char *differs(struct twins_bench *b, const char *what, const struct rb_reduce *r,
			   const struct twins_place *p)
{
	(void)snprintf(b->error, sizeof(b->error),
		       "%s: %s, %s: %u operands, count %" PRIu64 ", final %u, alias %u, shift %u, "
		       "differs %u, grid %u, block %u",
		       what, p->kernel, rubato_operator_name(r->op), r->from_count, r->count,
		       r->final_count, p->alias, p->shift, p->differs, p->grid, p->block);
	return b->error;
}

const char *twins_compare(struct twins_bench *b, struct rb_reduce r, const struct twins_place *p)
{
	const size_t bytes = r.count * rubato_type_bytes(r.type);
	const bool alone = p->alias >= r.from_count;
	unsigned char *buffer = alone ? b->device : b->from[p->alias];
	const void *from[TWINS_OPERANDS];
	const char *error;

	for (uint32_t k = 0; k < r.from_count; k++)
		from[k] = operand(b, p, k);
	r.from = from;
	r.to = b->plain;
	rb_reduce_plain(&r);
	r.to = alone ? b->device + TWINS_GUARD_BYTES / 2 + p->shift : operand(b, p, p->alias);
	if (alone)
		memset(b->device, GUARD, TWINS_ROOM);
	else
		memcpy(b->saved, buffer, TWINS_ROOM);
	error = launch(&r, p);
	if (error == NULL && memcmp(r.to, b->plain, bytes) != 0)
		error = "other bits";
	if (error == NULL && beside(buffer, alone ? NULL : b->saved, r.to, bytes))
		error = "written beside the target";
	if (!alone)
		memcpy(buffer, b->saved, TWINS_ROOM);
	return error != NULL ? differs(b, error, &r, p) : NULL;
}
