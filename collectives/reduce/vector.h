/*
 * vector.h -- the fast kernels, once for each width: the including file defines, besides what
 * vector_types.h asks for,
 *
 *   KERNEL, CONVERSION             its name, and its converter's
 *   max_T, min_T                   of all types T; NaN where either is
 *   nan_f32, nan_f64               all bits set where there is a NaN
 *   upper_16, upper_32             the upper half of x times a divisor's magic number
 *   multiply                       of the even 32-bit lanes, 64 bits wide
 *   shift_right_16, _32, _64       of unsigned lanes, by one count
 *   bytes_first, bytes_second      half of the 8-bit lanes each, made 16 bits wide;
 *   bytes_join                     the two together again
 *   HALF, half_load, half_store    a vector of VECTOR_BYTES / 4 elements of 16 bits
 *   halves_widen, halves_narrow    to 32 bits by zeros, and back
 *   f16_widen, f16_narrow          HALF to float32, and back
 *   STREAMS                        whether there are stores past the caches;
 *   int_stream, half_stream        they, and
 *   stream_end                     what orders them before later stores
 *
 * Four vectors of every operand at a time, folded in registers: each operand is read once and the
 * target written once, after all operands of those elements have been read, so that it may be one
 * of them. Which NaN comes out of an operation is left open, as in scalar.h: finish_ decides.
 */
#include <string.h>

#include "collectives/reduce/kernels.h"
#include "collectives/reduce/vector_types.h"

/* ---- Operators ---- */

#define SUM_AND_PROD(T, U)                                                                         \
	INLINE v_##T sum_##T(v_##T a, v_##T b)                                                     \
	{                                                                                          \
		return (v_##T)((v_##U)a + (v_##U)b);                                               \
	}                                                                                          \
	INLINE v_##T prod_##T(v_##T a, v_##T b)                                                    \
	{                                                                                          \
		return (v_##T)((v_##U)a * (v_##U)b);                                               \
	}
#define FINISH_SAME(T)                                                                             \
	INLINE v_##T finish_##T(v_##T a)                                                           \
	{                                                                                          \
		return a;                                                                          \
	}
SUM_AND_PROD(f32, f32)
SUM_AND_PROD(f64, f64)
SUM_AND_PROD(i8, u8)
SUM_AND_PROD(i16, u16)
SUM_AND_PROD(i32, u32)
SUM_AND_PROD(i64, u64)
SUM_AND_PROD(u8, u8)
SUM_AND_PROD(u16, u16)
SUM_AND_PROD(u32, u32)
SUM_AND_PROD(u64, u64)
FINISH_SAME(i8)
FINISH_SAME(i16)
FINISH_SAME(i32)
FINISH_SAME(i64)
FINISH_SAME(u8)
FINISH_SAME(u16)
FINISH_SAME(u32)
FINISH_SAME(u64)

/* All NaNs become the canonical one. */
#define FINISH_FLOAT(T, B, canonical)                                                              \
	INLINE v_##T finish_##T(v_##T a)                                                           \
	{                                                                                          \
		v_##B all = nan_##T(a);                                                            \
                                                                                                   \
		return (v_##T)(((v_##B)a & ~all) | (all & (canonical)));                           \
	}
FINISH_FLOAT(f32, u32, 0x7fc00000)
FINISH_FLOAT(f64, u64, 0x7ff8000000000000)

/* ---- Division (kernels.h says how) ---- */

INLINE v_u64 upper_64(v_u64 x, const struct rb_divisor *d)
{
	v_u64 low = (v_u64) { 0 } + d->magic, high = low >> 32, upper = x >> 32;
	v_u64 middle = multiply(upper, low) + (multiply(x, low) >> 32);
	v_u64 other = multiply(x, high) + (middle & 0xffffffff);

	return multiply(upper, high) + (middle >> 32) + (other >> 32);
}

#define DIVIDE(bits)                                                                               \
	INLINE v_u##bits divide_u##bits(v_u##bits x, const struct rb_divisor *d)                   \
	{                                                                                          \
		v_u##bits t = upper_##bits(x, d);                                                  \
                                                                                                   \
		t += (x - t) >> 1;                                                                 \
		return shift_right_##bits(t, d->shift);                                            \
	}                                                                                          \
	INLINE v_i##bits divide_i##bits(v_i##bits x, const struct rb_divisor *d)                   \
	{                                                                                          \
		v_u##bits sign = (v_u##bits)(x < 0);                                               \
		v_u##bits q = divide_u##bits(((v_u##bits)x ^ sign) - sign, d);                     \
                                                                                                   \
		return (v_i##bits)((q ^ sign) - sign);                                             \
	}
DIVIDE(16)
DIVIDE(32)
DIVIDE(64)

INLINE v_u8 divide_u8(v_u8 x, const struct rb_divisor *d)
{
	return bytes_join(divide_u16(bytes_first(x), d), divide_u16(bytes_second(x), d));
}

INLINE v_i8 divide_i8(v_i8 x, const struct rb_divisor *d)
{
	v_u8 sign = (v_u8)(x < 0);

	return (v_i8)((divide_u8(((v_u8)x ^ sign) - sign, d) ^ sign) - sign);
}

INLINE v_f32 divide_f32(v_f32 x, const struct rb_divisor *d)
{
	return x * d->f32;
}

INLINE v_f64 divide_f64(v_f64 x, const struct rb_divisor *d)
{
	return x * d->f64;
}

/* ---- Memory ---- */

#define MEMORY(T)                                                                                  \
	INLINE v_##T load_##T(const void *at)                                                      \
	{                                                                                          \
		return *(const v_any_##T *)at;                                                     \
	}                                                                                          \
	INLINE void store_##T(void *at, v_##T value, bool stream)                                  \
	{                                                                                          \
		if (stream)                                                                        \
			int_stream(at, value);                                                     \
		else                                                                               \
			*(v_any_##T *)at = value;                                                  \
	}
MEMORY(f32)
MEMORY(f64)
MEMORY(i8)
MEMORY(i16)
MEMORY(i32)
MEMORY(i64)
MEMORY(u8)
MEMORY(u16)
MEMORY(u32)
MEMORY(u64)

INLINE void store_half(void *at, HALF value, bool stream)
{
	if (stream)
		half_stream(at, value);
	else
		half_store(at, value);
}

INLINE v_f32 load_f16(const void *at)
{
	return (v_f32)f16_widen(half_load(at));
}

INLINE void store_f16(void *at, v_f32 value, bool stream)
{
	store_half(at, f16_narrow(value), stream);
}

INLINE v_f32 load_bf16(const void *at)
{
	return (v_f32)((v_u32)halves_widen(half_load(at)) << 16);
}

INLINE void store_bf16(void *at, v_f32 value, bool stream)
{
	v_u32 bits = (v_u32)value; /* No NaN but the canonical one, which no rounding moves. */

	bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
	store_half(at, halves_narrow(bits), stream);
}

/* ---- Kernels ---- */

#define SAME(A, a) finish_##A(a)
#define DIVIDED(A, a) finish_##A(divide_##A(a, &d))
#define AT(k, i) ((const char *)r->from[k] + (i))

/* In bytes: `i`, `end`, `step`. What is left over goes through `pad`, element by element. */
#define FOLD(name, verb, T, A, END)                                                                \
	TARGET static void fold_##name##_##T(const struct rb_reduce *r, struct rb_divisor d,       \
					     uint64_t first, bool stream)                          \
	{                                                                                          \
		const uint64_t step = LANES(A) * BYTES_##T, end = r->count * BYTES_##T;            \
		char pad[VECTOR_BYTES] = { 0 }, *to = r->to, *also = r->also;                      \
		const bool past = stream && also == NULL;                                          \
		uint64_t i = first * BYTES_##T;                                                    \
                                                                                                   \
		(void)d;                                                                           \
		for (; end - i >= 4 * step; i += 4 * step) {                                       \
			v_##A a = load_##T(AT(0, i)), b = load_##T(AT(0, i + step));               \
			v_##A c = load_##T(AT(0, i + 2 * step)),                                   \
			      e = load_##T(AT(0, i + 3 * step));                                   \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++) {                             \
				const char *at = AT(k, i);                                         \
                                                                                                   \
				a = verb##_##A(a, load_##T(at));                                   \
				b = verb##_##A(b, load_##T(at + step));                            \
				c = verb##_##A(c, load_##T(at + 2 * step));                        \
				e = verb##_##A(e, load_##T(at + 3 * step));                        \
			}                                                                          \
			a = END(A, a), b = END(A, b), c = END(A, c), e = END(A, e);                \
			store_##T(to + i, a, past);                                                \
			store_##T(to + i + step, b, past);                                         \
			store_##T(to + i + 2 * step, c, past);                                     \
			store_##T(to + i + 3 * step, e, past);                                     \
			if (also == NULL)                                                          \
				continue;                                                          \
			store_##T(also + i, a, stream);                                            \
			store_##T(also + i + step, b, stream);                                     \
			store_##T(also + i + 2 * step, c, stream);                                 \
			store_##T(also + i + 3 * step, e, stream);                                 \
		}                                                                                  \
		for (; end - i >= step; i += step) {                                               \
			v_##A a = load_##T(AT(0, i));                                              \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++)                               \
				a = verb##_##A(a, load_##T(AT(k, i)));                             \
			a = END(A, a);                                                             \
			store_##T(to + i, a, past);                                                \
			if (also != NULL)                                                          \
				store_##T(also + i, a, stream);                                    \
		}                                                                                  \
		if (end - i > SCALAR_MAX * BYTES_##T) {                                            \
			v_##A a = load_##T(memcpy(pad, AT(0, i), end - i));                        \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++)                               \
				a = verb##_##A(a, load_##T(memcpy(pad, AT(k, i), end - i)));       \
			store_##T(pad, END(A, a), false);                                          \
			memcpy(to + i, pad, end - i);                                              \
			if (also != NULL)                                                          \
				memcpy(also + i, pad, end - i);                                    \
		} else if (i < end) {                                                              \
			rb_reduce_plain_part(r, i / BYTES_##T, (end - i) / BYTES_##T);             \
		}                                                                                  \
	}

#define SCALAR_MAX 4 /* So many elements are done sooner than copied. */

#define FOLDS(T, A)                                                                                \
	FOLD(sum, sum, T, A, SAME)                                                                 \
	FOLD(prod, prod, T, A, SAME)                                                               \
	FOLD(max, max, T, A, SAME)                                                                 \
	FOLD(min, min, T, A, SAME)                                                                 \
	FOLD(average, sum, T, A, DIVIDED)
FOLDS(f32, f32)
FOLDS(f64, f64)
FOLDS(f16, f32)
FOLDS(bf16, f32)
FOLDS(i8, i8)
FOLDS(i16, i16)
FOLDS(i32, i32)
FOLDS(i64, i64)
FOLDS(u8, u8)
FOLDS(u16, u16)
FOLDS(u32, u32)
FOLDS(u64, u64)

typedef void (*fold_fn)(const struct rb_reduce *reduce, struct rb_divisor divisor, uint64_t first,
			bool stream);
#define ROW(T)                                                                                     \
	{                                                                                          \
		[RUBATO_SUM] = fold_sum_##T, [RUBATO_PROD] = fold_prod_##T,                        \
		[RUBATO_MAX] = fold_max_##T, [RUBATO_MIN] = fold_min_##T,                          \
		[RUBATO_AVG] = fold_sum_##T, [RUBATO_OPERATOR_COUNT] = fold_average_##T            \
	}

/* Elements before the first place that is aligned; false: there is none, or it is not worth it. */
static bool stream_from(const struct rb_reduce *r, uint64_t *first)
{
	const void *to = r->also != NULL ? r->also : r->to;
	size_t element = rubato_type_bytes(r->type), skip = -(uintptr_t)to & (VECTOR_BYTES - 1);

	if (!STREAMS || !(r->past || r->count * element >= RB_STREAM_FROM) || skip % element != 0 ||
	    skip / element > r->count)
		return false;
	for (uint32_t k = 0; k < r->from_count; k++)
		if (r->from[k] == to)
			return false; /* Its lines come into the caches as it is. */
	*first = skip / element;
	return true;
}

void KERNEL(const struct rb_reduce *reduce)
{
	static const fold_fn table[RUBATO_TYPE_COUNT][RUBATO_OPERATOR_COUNT + 1] = {
		[RUBATO_FLOAT32] = ROW(f32), [RUBATO_FLOAT64] = ROW(f64),
		[RUBATO_INT32] = ROW(i32),   [RUBATO_INT64] = ROW(i64),
		[RUBATO_FLOAT16] = ROW(f16), [RUBATO_BFLOAT16] = ROW(bf16),
		[RUBATO_INT8] = ROW(i8),     [RUBATO_INT16] = ROW(i16),
		[RUBATO_UINT8] = ROW(u8),    [RUBATO_UINT16] = ROW(u16),
		[RUBATO_UINT32] = ROW(u32),  [RUBATO_UINT64] = ROW(u64),
	};
	uint32_t op = (uint32_t)reduce->op;
	struct rb_divisor divisor = { 0 };
	uint64_t first = 0;
	uint32_t mode;
	bool stream;

	RB_ASSERT((unsigned)reduce->type < RUBATO_TYPE_COUNT && reduce->from_count > 0);
	RB_ASSERT(op < RUBATO_OPERATOR_COUNT);
	if (rb_reduce_copies(reduce))
		return;
	if (reduce->count <= SCALAR_MAX ||
	    (op == RUBATO_AVG && reduce->final_count > RB_DIVISOR_MAX)) {
		rb_reduce_plain_part(reduce, 0, reduce->count);
		return;
	}
	if (op == RUBATO_AVG && reduce->final_count > 1)
		op = RUBATO_OPERATOR_COUNT;
	stream = stream_from(reduce, &first);
	if (stream)
		rb_reduce_plain_part(reduce, 0, first);
	mode = rb_float_mode_enter();
	if (op == RUBATO_OPERATOR_COUNT) { /* In the right mode: its reciprocals are rounded. */
		uint32_t bits = (uint32_t)rubato_type_bytes(reduce->type) * 8;

		divisor = rb_divisor_make(reduce->final_count, bits < 16 ? 16 : bits);
	}
	table[reduce->type][op](reduce, divisor, first, stream);
	rb_float_mode_leave(mode);
	if (stream)
		stream_end();
}

/* ---- Conversions ---- */

/* From the first element that makes no whole vector any more, the plain twin goes on. */
#define CONVERT(name, F, T)                                                                        \
	TARGET static uint64_t name(const struct rb_convert *c)                                    \
	{                                                                                          \
		uint64_t i = 0, lanes = LANES(f32);                                                \
                                                                                                   \
		for (; c->count - i >= lanes; i += lanes)                                          \
			store_##T((char *)c->to + i * BYTES_##T,                                   \
				  finish_f32(load_##F((const char *)c->from + i * BYTES_##F)),     \
				  false);                                                          \
		return i;                                                                          \
	}
CONVERT(widen_f16, f16, f32)
CONVERT(widen_bf16, bf16, f32)
CONVERT(narrow_f16, f32, f16)
CONVERT(narrow_bf16, f32, bf16)

void CONVERSION(const struct rb_convert *convert)
{
	struct rb_convert rest = *convert;
	uint32_t mode = rb_float_mode_enter();
	uint64_t done;

	RB_ASSERT(convert->half == RUBATO_FLOAT16 || convert->half == RUBATO_BFLOAT16);
	if (convert->half == RUBATO_FLOAT16)
		done = (convert->narrow ? narrow_f16 : widen_f16)(convert);
	else
		done = (convert->narrow ? narrow_bf16 : widen_bf16)(convert);
	rb_float_mode_leave(mode);
	rest.from = (const char *)convert->from + done * (convert->narrow ? 4 : 2);
	rest.to = (char *)convert->to + done * (convert->narrow ? 2 : 4);
	rest.count -= done;
	if (rest.count > 0)
		rb_convert_plain(&rest);
}
