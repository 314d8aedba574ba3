/* coded_unit.h -- what the plain coder and the fast ones share. */
#ifndef RB_COLLECTIVES_CODED_UNIT_H
#define RB_COLLECTIVES_CODED_UNIT_H

#include <math.h>
#include <string.h>

#include "collectives/reduce/coded.h"
#include "collectives/reduce/half.h"

/* A unit of int8. */
#define RB_UNIT_BYTES (sizeof(float) + RB_CODE_INT8_VALUES)

/* Added and taken away again it leaves a whole number, ties to even, of all up to 2^22. */
#define RB_TO_WHOLE 0x1.8p23f

struct rb_unit_scale {
	float scale;   /* NaN: a value is not finite. */
	float divisor; /* The scale; 1 where it is 0 or NaN. */
	bool finite;
};

/* `most`: the bits of the largest magnitude. */
static inline struct rb_unit_scale rb_unit_scale_of(uint32_t most)
{
	struct rb_unit_scale s = { .finite = most < 0x7f800000 };

	s.scale = s.finite ? rb_bits_float(most) / RB_CODE_INT8_MOST : (float)NAN;
	s.divisor = s.scale > 0.0f ? s.scale : 1.0f;
	return s;
}

static inline float rb_lost(float value, float kept)
{
	float lost = value - kept;

	return (rb_float_bits(lost) & 0x7f800000) != 0x7f800000 ? lost : 0.0f;
}

/* In the right mode: it is rounded. */
static inline float rb_code_factor(const struct rb_coded *c)
{
	return c->final_count > 1 ? 1.0f / (float)c->final_count : 1.0f;
}

/* ---- Unit by unit; the last one, where it is not full, through a copy ---- */

static inline void rb_encode_units(const struct rb_coded *c,
				   void (*unit)(const float *from, uint8_t *to, float *residual))
{
	const float *from = c->from[0];
	uint8_t *to = c->to;
	float *residual = c->residual;
	uint64_t i = 0;

	for (; c->count - i >= RB_CODE_INT8_VALUES; i += RB_CODE_INT8_VALUES, to += RB_UNIT_BYTES)
		unit(from + i, to, residual != NULL ? residual + i : NULL);
	if (i < c->count) {
		float rest[RB_CODE_INT8_VALUES] = { 0 };

		memcpy(rest, from + i, (c->count - i) * sizeof(*rest));
		unit(rest, to, residual != NULL ? residual + i : NULL);
	}
}

static inline void rb_decode_units(const struct rb_coded *c,
				   void (*unit)(const uint8_t *from, float *to))
{
	const uint8_t *from = c->from[0];
	float *to = c->to;
	uint64_t i = 0;

	for (; c->count - i >= RB_CODE_INT8_VALUES; i += RB_CODE_INT8_VALUES, from += RB_UNIT_BYTES)
		unit(from, to + i);
	if (i < c->count) {
		float rest[RB_CODE_INT8_VALUES];

		unit(from, rest);
		memcpy(to + i, rest, (c->count - i) * sizeof(*rest));
	}
}

/* ---- Of the plain twin, from value `first` on ---- */

void rb_encode_bf16_part(const struct rb_coded *coded, uint64_t first);
void rb_decode_bf16_part(const struct rb_coded *coded, uint64_t first);
void rb_reduce_bf16_part(const struct rb_coded *coded, float factor, uint64_t first);

#endif
