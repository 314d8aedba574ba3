/* reduce_plain.c -- the twin that says what is right: element by element, operand by operand. */
#include "collectives/reduce/kernels.h"
#include "collectives/reduce/scalar.h"

typedef void (*part_fn)(const struct rb_reduce *reduce, uint64_t first, uint64_t end);

#define PLAIN(verb, T)                                                                             \
	static void plain_##verb##_##T(const struct rb_reduce *r, uint64_t first, uint64_t end)    \
	{                                                                                          \
		for (uint64_t i = first; i < end; i++) {                                           \
			rb_##T value = rb_load_##T(r->from[0], i);                                 \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++)                               \
				value = rb_##verb##_##T(value, rb_load_##T(r->from[k], i));        \
			if (r->op == RUBATO_AVG && r->final_count > 1)                             \
				value = rb_divide_##T(value, r->final_count);                      \
			rb_store_##T(r->to, i, rb_finish_##T(value));                              \
		}                                                                                  \
	}
#define PLAIN_OPS(T) PLAIN(sum, T) PLAIN(prod, T) PLAIN(max, T) PLAIN(min, T)

PLAIN_OPS(f32)
PLAIN_OPS(f64)
PLAIN_OPS(f16)
PLAIN_OPS(bf16)
PLAIN_OPS(i8)
PLAIN_OPS(i16)
PLAIN_OPS(i32)
PLAIN_OPS(i64)
PLAIN_OPS(u8)
PLAIN_OPS(u16)
PLAIN_OPS(u32)
PLAIN_OPS(u64)

#define ROW(T)                                                                                     \
	{                                                                                          \
		[RUBATO_SUM] = plain_sum_##T, [RUBATO_PROD] = plain_prod_##T,                      \
		[RUBATO_MAX] = plain_max_##T, [RUBATO_MIN] = plain_min_##T,                        \
		[RUBATO_AVG] = plain_sum_##T                                                       \
	}

static const part_fn table[RUBATO_TYPE_COUNT][RUBATO_OPERATOR_COUNT] = {
	[RUBATO_FLOAT32] = ROW(f32), [RUBATO_FLOAT64] = ROW(f64), [RUBATO_INT32] = ROW(i32),
	[RUBATO_INT64] = ROW(i64),   [RUBATO_FLOAT16] = ROW(f16), [RUBATO_BFLOAT16] = ROW(bf16),
	[RUBATO_INT8] = ROW(i8),     [RUBATO_INT16] = ROW(i16),   [RUBATO_UINT8] = ROW(u8),
	[RUBATO_UINT16] = ROW(u16),  [RUBATO_UINT32] = ROW(u32),  [RUBATO_UINT64] = ROW(u64),
};

void rb_reduce_plain_part(const struct rb_reduce *reduce, uint64_t first, uint64_t count)
{
	uint32_t mode;

	RB_ASSERT((unsigned)reduce->type < RUBATO_TYPE_COUNT && reduce->from_count > 0);
	RB_ASSERT((unsigned)reduce->op < RUBATO_OPERATOR_COUNT);
	mode = rb_float_mode_enter();
	table[reduce->type][reduce->op](reduce, first, first + count);
	rb_float_mode_leave(mode);
	if (reduce->also != NULL)
		memcpy((uint8_t *)reduce->also + first * rubato_type_bytes(reduce->type),
		       (const uint8_t *)reduce->to + first * rubato_type_bytes(reduce->type),
		       (size_t)count * rubato_type_bytes(reduce->type));
}

bool rb_reduce_copies(const struct rb_reduce *reduce)
{
	if (reduce->from_count != 1 || (reduce->op == RUBATO_AVG && reduce->final_count > 1))
		return false;
	size_t size_bytes = (size_t)reduce->count * rubato_type_bytes(reduce->type);

	if (reduce->to != reduce->from[0] && reduce->count > 0)
		memcpy(reduce->to, reduce->from[0], size_bytes);
	if (reduce->also != NULL && reduce->also != reduce->from[0] && reduce->count > 0)
		memcpy(reduce->also, reduce->from[0], size_bytes);
	return true;
}

void rb_reduce_plain(const struct rb_reduce *reduce)
{
	if (!rb_reduce_copies(reduce))
		rb_reduce_plain_part(reduce, 0, reduce->count);
}

#define CONVERT(T)                                                                                 \
	static void widen_##T(const struct rb_convert *c)                                          \
	{                                                                                          \
		for (uint64_t i = 0; i < c->count; i++)                                            \
			rb_store_f32(c->to, i, rb_finish_f32(rb_load_##T(c->from, i)));            \
	}                                                                                          \
	static void narrow_##T(const struct rb_convert *c)                                         \
	{                                                                                          \
		for (uint64_t i = 0; i < c->count; i++)                                            \
			rb_store_##T(c->to, i, rb_finish_f32(rb_load_f32(c->from, i)));            \
	}
CONVERT(f16)
CONVERT(bf16)

void rb_convert_plain(const struct rb_convert *convert)
{
	uint32_t mode = rb_float_mode_enter();

	RB_ASSERT(convert->half == RUBATO_FLOAT16 || convert->half == RUBATO_BFLOAT16);
	if (convert->half == RUBATO_FLOAT16)
		(convert->narrow ? narrow_f16 : widen_f16)(convert);
	else
		(convert->narrow ? narrow_bf16 : widen_bf16)(convert);
	rb_float_mode_leave(mode);
}
