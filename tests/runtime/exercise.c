/*
 * exercise.c -- inputs are small integers that depend on (salt, call, rank, element), so that sums
 * and products are exact in every floating type (bfloat16: up to 64 ranks) and each rank can
 * compute what every other contributed.
 */
#include "tests/runtime/exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/algorithms.h"
#include "collectives/reduce/half.h"

const char *exercise_algorithm(const char *kind, uint32_t index)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (strcmp(rb_kind_name(rb_algorithms[i].kind), kind) == 0 && index-- == 0)
			return rb_algorithms[i].name;
	return NULL;
}

static bool is_unsigned(rubato_type type)
{
	return type == RUBATO_UINT8 || type == RUBATO_UINT16 || type == RUBATO_UINT32 ||
	       type == RUBATO_UINT64;
}

static int64_t input_value(const struct exercise *e, uint32_t call, uint32_t rank, uint64_t i)
{
	uint64_t draw =
		rb_mix(e->salt + call * 0x9e3779b97f4a7c15u + rank * 0x632be59bd9b4e019u + i);
	int64_t half = e->type == RUBATO_BFLOAT16 ? 3 : 20, value;

	if (e->op == RUBATO_PROD) { /* 1 and -1; of the first eight ranks 2 and -2 too. */
		value = rank < 8 ? 1 + (int64_t)(draw & 1) : 1;
		return draw & 2 && !is_unsigned(e->type) ? -value : value;
	}
	value = (int64_t)(draw % (uint64_t)(2 * half + 1));
	return is_unsigned(e->type) ? value : value - half;
}

#define EVERY_TYPE(CASE)                                                                           \
	CASE(RUBATO_FLOAT32, float, , )                                                            \
	CASE(RUBATO_FLOAT64, double, , )                                                           \
	CASE(RUBATO_INT32, int32_t, , )                                                            \
	CASE(RUBATO_INT64, int64_t, , )                                                            \
	CASE(RUBATO_FLOAT16, uint16_t, rb_f16_widen, half_of_f16)                                  \
	CASE(RUBATO_BFLOAT16, uint16_t, rb_bf16_widen, half_of_bf16)                               \
	CASE(RUBATO_INT8, int8_t, , )                                                              \
	CASE(RUBATO_INT16, int16_t, , )                                                            \
	CASE(RUBATO_UINT8, uint8_t, , )                                                            \
	CASE(RUBATO_UINT16, uint16_t, , )                                                          \
	CASE(RUBATO_UINT32, uint32_t, , )                                                          \
	CASE(RUBATO_UINT64, uint64_t, , )

static uint16_t half_of_f16(double value)
{
	return rb_f16_narrow((float)value);
}

static uint16_t half_of_bf16(double value)
{
	return rb_bf16_narrow((float)value);
}

static void element_set(void *buffer, rubato_type type, uint64_t i, double value)
{
	switch (type) {
#define SET(type, element, WIDEN, NARROW)                                                          \
	case type:                                                                                 \
		((element *)buffer)[i] = (element)NARROW(value);                                   \
		break;
		EVERY_TYPE(SET)
	}
}

static double element_get(const void *buffer, rubato_type type, uint64_t i)
{
	switch (type) {
#define GET(type, element, WIDEN, NARROW)                                                          \
	case type:                                                                                 \
		return (double)WIDEN(((const element *)buffer)[i]);
		EVERY_TYPE(GET)
	}
	return 0;
}

/* An integer as its type holds it: integers wrap, floats are exact. */
static int64_t wrapped(rubato_type type, int64_t value)
{
	switch (type) {
	case RUBATO_INT8:
		return (int8_t)value;
	case RUBATO_UINT8:
		return (uint8_t)value;
	case RUBATO_INT16:
		return (int16_t)value;
	case RUBATO_UINT16:
		return (uint16_t)value;
	default:
		return value; /* Nothing here comes near 2^31. */
	}
}

static double average(const struct exercise *e, int64_t sum, uint32_t n)
{
	switch (e->type) {
	case RUBATO_FLOAT32:
		return (double)((float)sum * (float)(1.0 / n));
	case RUBATO_FLOAT64:
		return (double)sum * (1.0 / n);
	case RUBATO_FLOAT16:
		return (double)rb_f16_widen(rb_f16_narrow((float)sum * (float)(1.0 / n)));
	case RUBATO_BFLOAT16:
		return (double)rb_bf16_widen(rb_bf16_narrow((float)sum * (float)(1.0 / n)));
	default:
		return (double)(wrapped(e->type, sum) / (int64_t)n);
	}
}

/* The reduction of element i of the whole vector. */
static double reduced(const struct exercise *e, uint32_t call, uint32_t n, uint64_t i)
{
	int64_t result = input_value(e, call, 0, i);

	for (uint32_t r = 1; r < n; r++) {
		int64_t v = input_value(e, call, r, i);

		if (e->op == RUBATO_MAX)
			result = v > result ? v : result;
		else if (e->op == RUBATO_MIN)
			result = v < result ? v : result;
		else if (e->op == RUBATO_PROD)
			result *= v;
		else
			result += v;
	}
	return e->op == RUBATO_AVG ? average(e, result, n) : (double)wrapped(e->type, result);
}

struct shape { /* What a rank has before and after, by kind. */
	uint64_t in_count, out_count;
	bool has_in, has_out;
	uint64_t in_offset, out_offset; /* In place: of IN in OUT, or of OUT in IN, in elements. */
};

static struct shape shape_of(const struct exercise *e, uint32_t rank, uint32_t n)
{
	struct shape s = { e->count, e->count, true, true, 0, 0 };

	if (strcmp(e->kind, "allgather") == 0) {
		s.out_count = e->count * n;
		s.in_offset = e->count * rank;
	} else if (strcmp(e->kind, "reduce_scatter") == 0) {
		s.in_count = e->count * n;
		s.out_offset = e->count * rank;
	} else if (strcmp(e->kind, "broadcast") == 0) {
		s.has_in = rank == e->root;
	} else if (strcmp(e->kind, "reduce") == 0) {
		s.has_out = rank == e->root;
	}
	return s;
}

static double expected(const struct exercise *e, uint32_t call, uint32_t rank, uint32_t n,
		       uint64_t i)
{
	if (strcmp(e->kind, "allgather") == 0)
		return (double)input_value(e, call, (uint32_t)(i / e->count), i % e->count);
	if (strcmp(e->kind, "broadcast") == 0)
		return (double)input_value(e, call, e->root, i);
	if (strcmp(e->kind, "reduce_scatter") == 0)
		return reduced(e, call, n, rank * e->count + i);
	return reduced(e, call, n, i);
}

static rubato_status blocking(rubato_comm *comm, const struct exercise *e, const void *in,
			      void *out)
{
	if (strcmp(e->kind, "barrier") == 0)
		return rubato_barrier(comm);
	if (strcmp(e->kind, "broadcast") == 0)
		return rubato_broadcast(comm, out, e->count, e->type, e->root);
	if (strcmp(e->kind, "reduce") == 0)
		return rubato_reduce(comm, in, out, e->count, e->type, e->op, e->root);
	if (strcmp(e->kind, "reduce_scatter") == 0)
		return rubato_reduce_scatter(comm, in, out, e->count, e->type, e->op);
	if (strcmp(e->kind, "allgather") == 0)
		return rubato_allgather(comm, in, out, e->count, e->type);
	return rubato_allreduce(comm, in, out, e->count, e->type, e->op);
}

static rubato_status persistent(rubato_comm *comm, const struct exercise *e, const void *in,
				void *out, rubato_op **op)
{
	if (strcmp(e->kind, "barrier") == 0)
		return rubato_op_barrier(comm, op);
	if (strcmp(e->kind, "broadcast") == 0)
		return rubato_op_broadcast(comm, out, e->count, e->type, e->root, op);
	if (strcmp(e->kind, "reduce") == 0)
		return rubato_op_reduce(comm, in, out, e->count, e->type, e->op, e->root, op);
	if (strcmp(e->kind, "reduce_scatter") == 0)
		return rubato_op_reduce_scatter(comm, in, out, e->count, e->type, e->op, op);
	if (strcmp(e->kind, "allgather") == 0)
		return rubato_op_allgather(comm, in, out, e->count, e->type, op);
	return rubato_op_allreduce(comm, in, out, e->count, e->type, e->op, op);
}

struct buffers {
	void *memory[2]; /* As allocated: IN and OUT, or one of them when in place. */
	uint8_t *in, *out;
	bool library;
};

static rubato_status buffer_get(rubato_comm *comm, bool library, uint64_t bytes, void **out)
{
	if (library)
		return rubato_alloc(comm, bytes + 64, out);
	*out = malloc(bytes + 64);
	return *out != NULL ? RUBATO_OK : RUBATO_ERR_MEMORY;
}

static void buffers_free(rubato_comm *comm, struct buffers *b)
{
	for (int i = 0; i < 2; i++) {
		if (b->library)
			(void)rubato_free(comm, b->memory[i]);
		else
			free(b->memory[i]);
	}
}

static rubato_status buffers_make(rubato_comm *comm, const struct exercise *e,
				  const struct shape *s, struct buffers *b)
{
	uint64_t element = rubato_type_bytes(e->type);
	uint64_t most = s->in_count > s->out_count ? s->in_count : s->out_count;
	bool one = e->in_place || strcmp(e->kind, "broadcast") == 0;

	*b = (struct buffers) { .library =
					e->allocated && (!e->mixed || rubato_rank(comm) % 2 == 1) };
	RB_TRY(buffer_get(comm, b->library, most * element, &b->memory[0]));
	if (!one)
		RB_TRY(buffer_get(comm, b->library, most * element, &b->memory[1]));
	b->in = (uint8_t *)b->memory[0] + (one ? s->in_offset * element : 0);
	b->out = one ? (uint8_t *)b->memory[0] + s->out_offset * element : b->memory[1];
	return RUBATO_OK;
}

static void inputs_write(const struct exercise *e, const struct shape *s, uint32_t call,
			 uint32_t rank, const struct buffers *b)
{
	if (b->in != b->out && s->out_count > 0 && !e->in_place)
		memset(b->out, 0xa5, s->out_count * rubato_type_bytes(e->type));
	for (uint64_t i = 0; s->has_in && i < s->in_count; i++)
		element_set(b->in, e->type, i, (double)input_value(e, call, rank, i));
}

static rubato_status outputs_check(const struct exercise *e, const struct shape *s, uint32_t call,
				   uint32_t rank, uint32_t n, const struct buffers *b)
{
	for (uint64_t i = 0; s->has_out && i < s->out_count; i++) {
		double got = element_get(b->out, e->type, i), want = expected(e, call, rank, n, i);

		if (got != want)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "%s %s n %u count %llu %s %s root %u in_place %d alloc %d "
				       "persistent %d call %u: element %llu is %g, not %g",
				       e->kind, e->algorithm, n, (unsigned long long)e->count,
				       rubato_type_name(e->type), rubato_operator_name(e->op),
				       e->root, e->in_place, e->allocated, e->persistent, call,
				       (unsigned long long)i, got, want);
	}
	return RUBATO_OK;
}

static uint64_t bits_hash(uint64_t hash, const uint8_t *bytes, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

static rubato_status calls_run(rubato_comm *comm, const struct exercise *e, const struct shape *s,
			       const struct buffers *b, uint64_t *hash)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	bool barrier = strcmp(e->kind, "barrier") == 0;
	rubato_op *op = NULL;
	rubato_status err = RUBATO_OK;

	if (e->persistent)
		RB_TRY(persistent(comm, e, b->in, b->out, &op));
	for (uint32_t call = 0; err == RUBATO_OK && call < e->times; call++) {
		inputs_write(e, s, call, rank, b);
		if (e->persistent) {
			err = rubato_start(op);
			if (err == RUBATO_OK)
				err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
		} else {
			err = blocking(comm, e, b->in, b->out);
		}
		if (err == RUBATO_OK && !barrier)
			err = outputs_check(e, s, call, rank, n, b);
		if (s->has_out && !barrier && hash != NULL)
			*hash = bits_hash(*hash, b->out, s->out_count * rubato_type_bytes(e->type));
	}
	rubato_op_free(op);
	return err;
}

rubato_status exercise_run(rubato_comm *comm, const struct exercise *e, uint64_t *hash)
{
	struct shape s = shape_of(e, rubato_rank(comm), rubato_size(comm));
	struct buffers b;
	rubato_status err;

	RB_TRY(rubato_set_algorithm(comm, e->kind, e->algorithm));
	RB_TRY(rubato_set_accumulate(comm, e->accumulate));
	err = buffers_make(comm, e, &s, &b);
	if (err == RUBATO_OK)
		err = calls_run(comm, e, &s, &b, hash);
	buffers_free(comm, &b);
	return err;
}
