/* reduce_plain.c -- the twin that says what is right: element by element, operand by operand. */
#include "collectives/reduce/reduce.h"
#include "collectives/reduce/scalar.h"

#define PLAIN(verb, type)                                                                          \
	static void plain_##verb##_##type(const struct rb_reduce *r)                               \
	{                                                                                          \
		for (uint64_t i = 0; i < r->count; i++) {                                          \
			type value = rb_load_##type(r->from[0], i);                                \
                                                                                                   \
			for (uint32_t k = 1; k < r->from_count; k++)                               \
				value = rb_##verb##_##type(value, rb_load_##type(r->from[k], i));  \
			if (r->op == RUBATO_AVG && r->final_count > 0)                             \
				value = rb_average_##type(value, r->final_count);                  \
			rb_store_##type(r->to, i, value);                                          \
		}                                                                                  \
	}
#define PLAIN_OPS(type) PLAIN(add, type) PLAIN(max, type) PLAIN(min, type)

PLAIN_OPS(float)
PLAIN_OPS(double)
PLAIN_OPS(int32_t)
PLAIN_OPS(int64_t)

#define ROW(type)                                                                                  \
	{                                                                                          \
		plain_add_##type, plain_max_##type, plain_min_##type, plain_add_##type             \
	}

void rb_reduce_plain(const struct rb_reduce *reduce)
{
	static const rb_reduce_fn table[RUBATO_TYPE_COUNT][RUBATO_OPERATOR_COUNT] = {
		[RUBATO_FLOAT32] = ROW(float),
		[RUBATO_FLOAT64] = ROW(double),
		[RUBATO_INT32] = ROW(int32_t),
		[RUBATO_INT64] = ROW(int64_t),
	};

	RB_ASSERT((unsigned)reduce->type < RUBATO_TYPE_COUNT && reduce->from_count > 0);
	RB_ASSERT((unsigned)reduce->op < RUBATO_OPERATOR_COUNT);
	table[reduce->type][reduce->op](reduce);
}
