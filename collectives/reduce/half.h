/*
 * half.h -- 16-bit floats, carried as their bits: to float32 exactly, back by rounding to nearest,
 * ties to even. Subnormals are kept, what is too large becomes infinite, a NaN stays one (made
 * quiet, with its sign and the upper bits of its payload): bit by bit what the processors'
 * conversions of float16 give. Nothing here depends on the thread's rounding mode.
 */
#ifndef RB_COLLECTIVES_REDUCE_HALF_H
#define RB_COLLECTIVES_REDUCE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t rb_float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float rb_bits_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float rb_f16_widen(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;

	if (exponent == 31) /* Infinite, or NaN: quiet. */
		return rb_bits_float(sign | 0x7f800000 | fraction << 13 |
				     (fraction != 0 ? 0x00400000 : 0));
	if (exponent > 0)
		return rb_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
	/* Subnormal there, a whole number of 2^-24: exact here. */
	return rb_bits_float(sign | rb_float_bits((float)fraction * 0x1p-24f));
}

static inline uint16_t rb_f16_narrow(float value)
{
	uint32_t bits = rb_float_bits(value), magnitude = bits & 0x7fffffff;
	uint32_t sign = bits >> 16 & 0x8000, shift, kept, rest, half;

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x477ff000) /* 65520 and more: nearer to 2^16 than to 65504, or a tie. */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x33000000) /* Less than half of 2^-24. */
		return (uint16_t)sign;
	if (magnitude >= 0x38800000) { /* 2^-14: a normal number. */
		shift = 13;
		kept = magnitude - (112u << 23);
	} else {
		shift = 126 - (magnitude >> 23);
		kept = (magnitude & 0x7fffff) | 0x800000;
	}
	rest = kept & ((1u << shift) - 1);
	half = 1u << (shift - 1);
	kept >>= shift;
	/* A carry out of the fraction is the next exponent: right as it is. */
	return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1) != 0))));
}

static inline float rb_bf16_widen(uint16_t half)
{
	uint32_t quiet = (half & 0x7fff) > 0x7f80 ? 0x00400000 : 0;

	return rb_bits_float((uint32_t)half << 16 | quiet);
}

static inline uint16_t rb_bf16_narrow(float value)
{
	uint32_t bits = rb_float_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
