/*
 * reduce_neon.c -- vectors of 16 bytes: what every aarch64 has, conversions of float16 included.
 *
 * Nothing is written past the caches: these processors see for themselves where whole lines are
 * written one after the other, and do not read them first.
 */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_NEON
#include <arm_neon.h>
#include <string.h>

#define KERNEL rb_reduce_neon
#define CONVERSION rb_convert_neon
#define CODERS rb_coders_neon
#define TARGET
#define VECTOR_BYTES 16
#include "collectives/reduce/vector_types.h"

/* The instructions order zeros, and give a NaN for each NaN. */
#define NATIVE(verb, T, suffix, vector)                                                            \
	INLINE v_##T verb##_##T(v_##T a, v_##T b)                                                  \
	{                                                                                          \
		return (v_##T)v##verb##q_##suffix((vector)a, (vector)b);                           \
	}
#define NATIVE_BOTH(T, suffix, vector) NATIVE(max, T, suffix, vector) NATIVE(min, T, suffix, vector)
NATIVE_BOTH(f32, f32, float32x4_t)
NATIVE_BOTH(f64, f64, float64x2_t)
NATIVE_BOTH(i8, s8, int8x16_t)
NATIVE_BOTH(i16, s16, int16x8_t)
NATIVE_BOTH(i32, s32, int32x4_t)
NATIVE_BOTH(u8, u8, uint8x16_t)
NATIVE_BOTH(u16, u16, uint16x8_t)
NATIVE_BOTH(u32, u32, uint32x4_t)
PICK_BOTH(i64)
PICK_BOTH(u64)

INLINE v_u32 nan_f32(v_f32 a)
{
	return ~(v_u32)vceqq_f32((float32x4_t)a, (float32x4_t)a);
}

INLINE v_u64 nan_f64(v_f64 a)
{
	return ~(v_u64)vceqq_f64((float64x2_t)a, (float64x2_t)a);
}

INLINE v_u16 upper_16(v_u16 x, const struct rb_divisor *d)
{
	uint16x8_t all = (uint16x8_t)x, magic = vdupq_n_u16((uint16_t)d->magic);
	uint32x4_t low = vmull_u16(vget_low_u16(all), vget_low_u16(magic));
	uint32x4_t high = vmull_high_u16(all, magic);

	return (v_u16)vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}

INLINE v_u32 upper_32(v_u32 x, const struct rb_divisor *d)
{
	uint32x4_t all = (uint32x4_t)x, magic = vdupq_n_u32((uint32_t)d->magic);
	uint64x2_t low = vmull_u32(vget_low_u32(all), vget_low_u32(magic));
	uint64x2_t high = vmull_high_u32(all, magic);

	return (v_u32)vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
}

INLINE v_u64 multiply(v_u64 a, v_u64 b)
{
	return (v_u64)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
}

INLINE v_u16 shift_right_16(v_u16 x, int count)
{
	return (v_u16)vshlq_u16((uint16x8_t)x, vdupq_n_s16((int16_t)-count));
}

INLINE v_u32 shift_right_32(v_u32 x, int count)
{
	return (v_u32)vshlq_u32((uint32x4_t)x, vdupq_n_s32(-count));
}

INLINE v_u64 shift_right_64(v_u64 x, int count)
{
	return (v_u64)vshlq_u64((uint64x2_t)x, vdupq_n_s64(-count));
}

INLINE v_u16 bytes_first(v_u8 x)
{
	return (v_u16)vmovl_u8(vget_low_u8((uint8x16_t)x));
}

INLINE v_u16 bytes_second(v_u8 x)
{
	return (v_u16)vmovl_high_u8((uint8x16_t)x);
}

INLINE v_u8 bytes_join(v_u16 first, v_u16 second)
{
	return (v_u8)vuzp1q_u8((uint8x16_t)first, (uint8x16_t)second);
}

/* By memcpy: elements need not be aligned. */
INLINE uint16x4_t half_load(const void *at)
{
	uint16x4_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

INLINE void half_store(void *at, uint16x4_t value)
{
	memcpy(at, &value, sizeof(value));
}

#define HALF uint16x4_t
#define halves_widen(half) vmovl_u16(half)
#define halves_narrow(value) vmovn_u32((uint32x4_t)(value))
#define f16_widen(half) vcvt_f32_f16(vreinterpret_f16_u16(half))
#define f16_narrow(value) vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(value)))
#define STREAMS false
#define int_stream(at, value) ((void)(at), (void)(value))
#define half_stream(at, value) ((void)(at), (void)(value))
#define stream_end() ((void)0)
#include "collectives/reduce/vector.h"

INLINE int32x4_t signed_load(const void *at)
{
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word)))));
}

INLINE void signed_store(void *at, v_i32 value)
{
	int16x4_t pairs = vmovn_s32((int32x4_t)value);
	uint32_t word =
		vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(pairs, pairs))), 0);

	memcpy(at, &word, sizeof(word));
}
#include "collectives/reduce/vector_coded.h"
#endif
