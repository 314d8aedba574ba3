/*
 * vector_coded.h -- the fast coders, once for each width: behind vector.h, whose vectors and loads
 * they use. The including file defines
 *
 *   CODERS                     their name
 *   signed_load, signed_store  bytes to 32-bit lanes, as many as a vector has, and back
 *
 * A unit of int8 is folded vector by vector into floats on the stack, then measured and rounded:
 * both passes are short, in the first cache, and read and write memory once.
 */
#include "collectives/reduce/coded_unit.h"

#define VECTORS (RB_CODE_INT8_VALUES / LANES(f32)) /* Of a unit. */

INLINE v_f32 load_bytes(const void *at)
{
	return __builtin_convertvector((v_i32)signed_load(at), v_f32);
}

INLINE void store_bytes(void *at, v_f32 value)
{
	signed_store(at, __builtin_convertvector(value, v_i32));
}

INLINE v_f32 all_f32(float value)
{
	return value - (v_f32) { 0 }; /* Not added: -0 would become 0. */
}

INLINE v_f32 picked(v_i32 first, v_f32 a, v_f32 b)
{
	return (v_f32)(((v_i32)a & first) | ((v_i32)b & ~first));
}

/* ---- bfloat16 ---- */

INLINE void round_bf16(const struct rb_coded *c, uint64_t i, v_f32 value)
{
	char *to = (char *)c->to + i * BYTES_bf16;

	if (c->residual != NULL)
		value += load_f32(c->residual + i);
	value = finish_f32(value);
	store_bf16(to, value, false);
	if (c->residual != NULL) {
		v_f32 lost = value - load_bf16(to);
		v_i32 finite = ((v_i32)lost & 0x7f800000) != 0x7f800000;

		store_f32(c->residual + i, (v_f32)((v_i32)lost & finite), false);
	}
}

TARGET static void encode_bf16(const struct rb_coded *c)
{
	uint64_t i = 0, lanes = LANES(f32);

	for (; c->count - i >= lanes; i += lanes)
		round_bf16(c, i, load_f32((const char *)c->from[0] + i * BYTES_f32));
	rb_encode_bf16_part(c, i);
}

TARGET static void decode_bf16(const struct rb_coded *c)
{
	uint64_t i = 0, lanes = LANES(f32);

	for (; c->count - i >= lanes; i += lanes)
		store_f32((char *)c->to + i * BYTES_f32,
			  finish_f32(load_bf16((const char *)c->from[0] + i * BYTES_bf16)), false);
	rb_decode_bf16_part(c, i);
}

TARGET static void reduce_bf16(const struct rb_coded *c, float factor)
{
	uint64_t i = 0, lanes = LANES(f32);

	for (; c->count - i >= lanes; i += lanes) {
		v_f32 value = load_bf16((const char *)c->from[0] + i * BYTES_bf16);

		for (uint32_t k = 1; k < c->from_count; k++)
			value += load_bf16((const char *)c->from[k] + i * BYTES_bf16);
		round_bf16(c, i, c->final_count > 1 ? value * factor : value);
	}
	rb_reduce_bf16_part(c, factor, i);
}

/* ---- int8 ---- */

/* The bits of the largest magnitude, with what is left from before added. */
INLINE uint32_t unit_measure(v_f32 values[VECTORS], const float *residual)
{
	v_i32 most = { 0 };
	uint32_t largest = 0;

	for (uint32_t v = 0; v < VECTORS; v++) {
		if (residual != NULL)
			values[v] += load_f32(residual + v * LANES(f32));
		v_i32 magnitude = (v_i32)values[v] & 0x7fffffff, more = magnitude > most;

		most = (magnitude & more) | (most & ~more);
	}
	for (uint32_t i = 0; i < LANES(f32); i++)
		largest = (uint32_t)most[i] > largest ? (uint32_t)most[i] : largest;
	return largest;
}

INLINE void round_unit(v_f32 values[VECTORS], uint8_t *to, float *residual)
{
	struct rb_unit_scale scale = rb_unit_scale_of(unit_measure(values, residual));
	v_f32 divisor = all_f32(scale.divisor), times = all_f32(scale.scale);
	v_f32 most = all_f32(RB_CODE_INT8_MOST), whole = all_f32(RB_TO_WHOLE);

	memcpy(to, &scale.scale, sizeof(scale.scale));
	if (!scale.finite) {
		memset(to + sizeof(float), 0, RB_CODE_INT8_VALUES);
		if (residual != NULL)
			memset(residual, 0, RB_CODE_INT8_VALUES * sizeof(*residual));
		return;
	}
	for (uint32_t v = 0; v < VECTORS; v++) {
		v_f32 code = values[v] / divisor;

		code = picked(code > most, most, code);
		code = picked(code < -most, -most, code);
		code = code + whole - whole;
		store_bytes(to + sizeof(float) + v * LANES(f32), code);
		if (residual != NULL)
			store_f32(residual + v * LANES(f32), values[v] - times * code, false);
	}
}

INLINE v_f32 load_unit(const uint8_t *unit, uint32_t v)
{
	float scale;

	memcpy(&scale, unit, sizeof(scale));
	return all_f32(scale) * load_bytes(unit + sizeof(float) + v * LANES(f32));
}

TARGET static void encode_unit(const float *from, uint8_t *to, float *residual)
{
	v_f32 values[VECTORS];

	memcpy(values, from, sizeof(values));
	round_unit(values, to, residual);
}

TARGET static void decode_unit(const uint8_t *unit, float *to)
{
	for (uint32_t v = 0; v < VECTORS; v++)
		store_f32(to + v * LANES(f32), finish_f32(load_unit(unit, v)), false);
}

TARGET static void reduce_int8(const struct rb_coded *c, float factor)
{
	float *residual = c->residual;

	for (uint64_t u = 0; u < c->count; u++) {
		uint64_t at = u * RB_UNIT_BYTES;
		v_f32 values[VECTORS];

		for (uint32_t v = 0; v < VECTORS; v++)
			values[v] = load_unit((const uint8_t *)c->from[0] + at, v);
		for (uint32_t k = 1; k < c->from_count; k++)
			for (uint32_t v = 0; v < VECTORS; v++)
				values[v] += load_unit((const uint8_t *)c->from[k] + at, v);
		for (uint32_t v = 0; c->final_count > 1 && v < VECTORS; v++)
			values[v] *= factor;
		round_unit(values, (uint8_t *)c->to + at,
			   residual != NULL ? residual + u * RB_CODE_INT8_VALUES : NULL);
	}
}

/* ---- All ---- */

static void encode(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		encode_bf16(c);
	else
		rb_encode_units(c, encode_unit);
	rb_float_mode_leave(mode);
}

static void decode(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		decode_bf16(c);
	else
		rb_decode_units(c, decode_unit);
	rb_float_mode_leave(mode);
}

static void reduce(const struct rb_coded *c)
{
	uint32_t mode = rb_float_mode_enter();
	float factor = rb_code_factor(c);

	if (c->wire == RUBATO_WIRE_BFLOAT16)
		reduce_bf16(c, factor);
	else
		reduce_int8(c, factor);
	rb_float_mode_leave(mode);
}

const struct rb_coders CODERS = { encode, decode, reduce };
