/*
 * vector.h -- the fast kernels, once for each width: the including file defines
 *
 *   KERNEL(name)   its prefix         TARGET         the attribute of its functions
 *   VECTOR_BYTES   32 or 64           REGISTER       asm constraint of a vector register
 *
 * Four vectors of every operand at a time, folded in registers: each operand is read once and the
 * target written once, after all operands of those elements have been read, so that it may be one
 * of them. Sums are written in asm, because a compiler may swap the operands of `+`, and the first
 * one's NaN must win.
 */
#include "collectives/reduce/kernels.h"
#include "collectives/reduce/scalar.h"

#define LANES(type) (VECTOR_BYTES / sizeof(type))
#define VECTOR(type) v_##type
#define DECLARE(type, bits)                                                                        \
	typedef type v_##type __attribute__((vector_size(VECTOR_BYTES)));                          \
	typedef type v_any_##type                                                                  \
		__attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));                 \
	typedef bits v_bits_##type __attribute__((vector_size(VECTOR_BYTES)));

DECLARE(float, int32_t)
DECLARE(double, int64_t)
DECLARE(int32_t, int32_t)
DECLARE(int64_t, int64_t)

#define ASM_ADD(instruction, a, b)                                                                 \
	__asm__(instruction " %2, %1, %0" : "=" REGISTER(a) : REGISTER(a), REGISTER "m"(b))
#define VECTOR_add_float(a, b) ASM_ADD("vaddps", a, b)
#define VECTOR_add_double(a, b) ASM_ADD("vaddpd", a, b)
#define VECTOR_add_int32_t(a, b) (a) = (v_int32_t)((v_uint32)(a) + (v_uint32)(b))
#define VECTOR_add_int64_t(a, b) (a) = (v_int64_t)((v_uint64)(a) + (v_uint64)(b))
typedef uint32_t v_uint32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t v_uint64 __attribute__((vector_size(VECTOR_BYTES)));

#define PICK(type, a, b, mask)                                                                     \
	(a) = (v_##type)(((v_bits_##type)(a) & (mask)) | ((v_bits_##type)(b) & ~(mask)))
#define VECTOR_max_float(a, b) PICK(float, a, b, ((a) > (b)) | ((a) != (a)))
#define VECTOR_min_float(a, b) PICK(float, a, b, ((a) < (b)) | ((a) != (a)))
#define VECTOR_max_double(a, b) PICK(double, a, b, ((a) > (b)) | ((a) != (a)))
#define VECTOR_min_double(a, b) PICK(double, a, b, ((a) < (b)) | ((a) != (a)))
#define VECTOR_max_int32_t(a, b) PICK(int32_t, a, b, (a) > (b))
#define VECTOR_min_int32_t(a, b) PICK(int32_t, a, b, (a) < (b))
#define VECTOR_max_int64_t(a, b) PICK(int64_t, a, b, (a) > (b))
#define VECTOR_min_int64_t(a, b) PICK(int64_t, a, b, (a) < (b))

#define AT(type, base, i) ((const v_any_##type *)((const char *)(base) + (i) * sizeof(type)))
#define AT_TO(type, base, i) ((v_any_##type *)((char *)(base) + (i) * sizeof(type)))

/* Elements from `first` up to `end`. */
#define FAST(verb, type)                                                                           \
	TARGET static void fast_##verb##_##type(const struct rb_reduce *r, uint64_t first,         \
						uint64_t end)                                      \
	{                                                                                          \
		uint64_t i = first;                                                                \
                                                                                                   \
		for (; end - i >= 4 * LANES(type); i += 4 * LANES(type)) {                         \
			const v_any_##type *at = AT(type, r->from[0], i);                          \
			v_##type a = at[0], b = at[1], c = at[2], d = at[3];                       \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++) {                             \
				at = AT(type, r->from[k], i);                                      \
				v_##type e = at[0], f = at[1], g = at[2], h = at[3];               \
                                                                                                   \
				VECTOR_##verb##_##type(a, e);                                      \
				VECTOR_##verb##_##type(b, f);                                      \
				VECTOR_##verb##_##type(c, g);                                      \
				VECTOR_##verb##_##type(d, h);                                      \
			}                                                                          \
			v_any_##type *to = AT_TO(type, r->to, i);                                  \
                                                                                                   \
			to[0] = a;                                                                 \
			to[1] = b;                                                                 \
			to[2] = c;                                                                 \
			to[3] = d;                                                                 \
		}                                                                                  \
		for (; i < end; i++) {                                                             \
			type value = rb_load_##type(r->from[0], i);                                \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++)                               \
				value = rb_##verb##_##type(value, rb_load_##type(r->from[k], i));  \
			rb_store_##type(r->to, i, value);                                          \
		}                                                                                  \
	}

/* While the piece is in the cache. Floats are multiplied lane by lane; no vector divides integers.
 */
#define AVERAGE(type)                                                                              \
	TARGET static void fast_average_##type(const struct rb_reduce *r, uint64_t first,          \
					       uint64_t end)                                       \
	{                                                                                          \
		for (uint64_t i = first; i < end; i++)                                             \
			rb_store_##type(                                                           \
				r->to, i,                                                          \
				rb_average_##type(rb_load_##type(r->to, i), r->final_count));      \
	}

#define ALL(type) FAST(add, type) FAST(max, type) FAST(min, type) AVERAGE(type)
ALL(float)
ALL(double)
ALL(int32_t)
ALL(int64_t)

#define PIECE 2048 /* Elements: at most 16 KiB, half of the first-level cache. */
typedef void (*piece_fn)(const struct rb_reduce *reduce, uint64_t first, uint64_t end);
#define ROW(type)                                                                                  \
	{                                                                                          \
		fast_add_##type, fast_max_##type, fast_min_##type, fast_add_##type                 \
	}

void KERNEL(const struct rb_reduce *reduce)
{
	static const piece_fn table[RUBATO_TYPE_COUNT][RUBATO_OPERATOR_COUNT] = {
		[RUBATO_FLOAT32] = ROW(float),
		[RUBATO_FLOAT64] = ROW(double),
		[RUBATO_INT32] = ROW(int32_t),
		[RUBATO_INT64] = ROW(int64_t),
	};
	static const piece_fn average[RUBATO_TYPE_COUNT] = {
		[RUBATO_FLOAT32] = fast_average_float,
		[RUBATO_FLOAT64] = fast_average_double,
		[RUBATO_INT32] = fast_average_int32_t,
		[RUBATO_INT64] = fast_average_int64_t,
	};

	RB_ASSERT((unsigned)reduce->type < RUBATO_TYPE_COUNT && reduce->from_count > 0);
	RB_ASSERT((unsigned)reduce->op < RUBATO_OPERATOR_COUNT);
	piece_fn fold = table[reduce->type][reduce->op];

	if (reduce->op != RUBATO_AVG || reduce->final_count == 0) {
		fold(reduce, 0, reduce->count);
		return;
	}
	for (uint64_t i = 0; i < reduce->count; i += PIECE) {
		uint64_t end = reduce->count - i < PIECE ? reduce->count : i + PIECE;

		fold(reduce, i, end);
		average[reduce->type](reduce, i, end);
	}
}
