/* coded_plain.c -- the twin that says what is right: value by value. */
#include "collectives/reduce/coded_unit.h"
#include "collectives/reduce/kernels.h"
#include "collectives/reduce/scalar.h"

/* ---- bfloat16 ---- */

static void round_bf16(const struct rb_coded *c, uint64_t i, float value)
{
	if (c->residual != NULL)
		value += c->residual[i];
	value = rb_finish_f32(value);
	rb_store_bf16(c->to, i, value);
	if (c->residual != NULL)
		c->residual[i] = rb_lost(value, rb_load_bf16(c->to, i));
}

void rb_encode_bf16_part(const struct rb_coded *c, uint64_t first)
{
	for (uint64_t i = first; i < c->count; i++)
		round_bf16(c, i, rb_load_f32(c->from[0], i));
}

void rb_reduce_bf16_part(const struct rb_coded *c, float factor, uint64_t first)
{
	for (uint64_t i = first; i < c->count; i++) {
		float value = rb_load_bf16(c->from[0], i);

		for (uint32_t k = 1; k < c->from_count; k++)
			value += rb_load_bf16(c->from[k], i);
		round_bf16(c, i, c->final_count > 1 ? value * factor : value);
	}
}

void rb_decode_bf16_part(const struct rb_coded *c, uint64_t first)
{
	for (uint64_t i = first; i < c->count; i++)
		rb_store_f32(c->to, i, rb_finish_f32(rb_load_bf16(c->from[0], i)));
}

/* ---- int8 ---- */

static void round_unit(float values[RB_CODE_INT8_VALUES], uint8_t *to, float *residual)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < RB_CODE_INT8_VALUES; i++) {
		if (residual != NULL)
			values[i] += residual[i];
		uint32_t magnitude = rb_float_bits(values[i]) & 0x7fffffff;

		most = magnitude > most ? magnitude : most;
	}
	struct rb_unit_scale scale = rb_unit_scale_of(most);

	rb_store_f32(to, 0, scale.scale);
	for (uint32_t i = 0; i < RB_CODE_INT8_VALUES; i++) {
		float value = scale.finite ? values[i] : 0.0f, code = value / scale.divisor;

		code = code > RB_CODE_INT8_MOST ? RB_CODE_INT8_MOST : code;
		code = code < -RB_CODE_INT8_MOST ? -RB_CODE_INT8_MOST : code;
		code = code + RB_TO_WHOLE - RB_TO_WHOLE;
		((int8_t *)to)[sizeof(float) + i] = (int8_t)code;
		if (residual != NULL)
			residual[i] = scale.finite ? value - scale.scale * code : 0.0f;
	}
}

static float decoded(const uint8_t *unit, uint32_t i)
{
	return rb_load_f32(unit, 0) * (float)((const int8_t *)unit)[sizeof(float) + i];
}

static void encode_unit(const float *from, uint8_t *to, float *residual)
{
	float values[RB_CODE_INT8_VALUES];

	memcpy(values, from, sizeof(values));
	round_unit(values, to, residual);
}

static void reduce_unit(const struct rb_coded *c, float factor, uint64_t u)
{
	float values[RB_CODE_INT8_VALUES];
	uint64_t at = u * RB_UNIT_BYTES;

	for (uint32_t i = 0; i < RB_CODE_INT8_VALUES; i++) {
		values[i] = decoded((const uint8_t *)c->from[0] + at, i);
		for (uint32_t k = 1; k < c->from_count; k++)
			values[i] += decoded((const uint8_t *)c->from[k] + at, i);
		if (c->final_count > 1)
			values[i] *= factor;
	}
	round_unit(values, (uint8_t *)c->to + at,
		   c->residual != NULL ? c->residual + u * RB_CODE_INT8_VALUES : NULL);
}

static void decode_unit(const uint8_t *unit, float *to)
{
	for (uint32_t i = 0; i < RB_CODE_INT8_VALUES; i++)
		rb_store_f32(to, i, rb_finish_f32(decoded(unit, i)));
}

/* ---- All ---- */

static void encode_plain(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		rb_encode_bf16_part(c, 0);
	else
		rb_encode_units(c, encode_unit);
	rb_float_mode_leave(mode);
}

static void decode_plain(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		rb_decode_bf16_part(c, 0);
	else
		rb_decode_units(c, decode_unit);
	rb_float_mode_leave(mode);
}

static void reduce_plain(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();
	float factor = rb_code_factor(c);

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		rb_reduce_bf16_part(c, factor, 0);
	for (uint64_t u = 0; c->wire == RUBATO_WIRE_INT8 && u < c->count; u++)
		reduce_unit(c, factor, u);
	rb_float_mode_leave(mode);
}

const struct rb_coders rb_coders_plain = { encode_plain, decode_plain, reduce_plain };
