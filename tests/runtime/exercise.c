/*
 * exercise.c -- inputs are small integers that depend on (salt, call, rank, element), so that sums
 * and products are exact in every floating type (bfloat16: up to 64 ranks) and each rank can
 * compute what every other contributed.
 *
 * A result is a list of pieces, each the input of one rank or the reduction of all ranks', from
 * some element on. What lies between the pieces must not be touched.
 */
#include "tests/runtime/exercise.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/algorithms.h"
#include "collectives/reduce/half.h"
#include "rubato_sim.h"

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

#define BLOCK 256u /* Elements that are computed at once: a loop for each kind of them. */

/* Of functions that have nothing but what their caller's stack has: no other thread reads or writes
 * that. Buffers are read and written by memcpy, as one range, where sanitizers see it. */
#define OWN __attribute__((no_sanitize("thread")))

/* One draw gives eight elements a byte each. */
OWN static void input_bytes(const struct exercise *e, uint32_t call, uint32_t rank, uint64_t first,
			    uint64_t count, uint8_t *bytes)
{
	uint64_t key = e->salt + call * 0x9e3779b97f4a7c15u + rank * 0x632be59bd9b4e019u;
	uint64_t skipped = first % 8, draw = rb_mix(key + first / 8) >> skipped * 8;

	for (uint64_t i = 0; i < count;) {
		uint64_t length = 8 - skipped < count - i ? 8 - skipped : count - i;

		memcpy(bytes + i, &draw, length);
		i += length;
		skipped = 0;
		draw = rb_mix(key + (first + i) / 8);
	}
}

/* At most BLOCK. */
OWN static void input_values(const struct exercise *e, uint32_t call, uint32_t rank, uint64_t first,
			     uint64_t count, int64_t *values)
{
	int32_t half = e->type == RUBATO_BFLOAT16 ? 3 : 20, low = is_unsigned(e->type) ? 0 : half;
	int32_t range = 2 * half + 1;
	bool negative = !is_unsigned(e->type);
	uint8_t bytes[BLOCK];

	input_bytes(e, call, rank, first, count, bytes);
	if (e->op != RUBATO_PROD) {
		for (uint64_t i = 0; i < count; i++)
			values[i] = (bytes[i] * range >> 8) - low;
		return;
	}
	for (uint64_t i = 0; i < count; i++) { /* 1, -1; of eight ranks 2 and -2 too. */
		int32_t value = rank < 8 ? 1 + (bytes[i] & 1) : 1;

		values[i] = bytes[i] & 2 && negative ? -value : value;
	}
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

static uint16_t half_of_f16(int64_t value)
{
	return rb_f16_narrow((float)value);
}

static uint16_t half_of_bf16(int64_t value)
{
	return rb_bf16_narrow((float)value);
}

OWN static void elements_set(uint8_t *elements, rubato_type type, uint64_t count,
			     const int64_t *values)
{
	switch (type) {
#define SET(type, element, WIDEN, NARROW)                                                          \
	case type:                                                                                 \
		for (uint64_t i = 0; i < count; i++) {                                             \
			element value = (element)NARROW(values[i]);                                \
                                                                                                   \
			memcpy(elements + i * sizeof(value), &value, sizeof(value));               \
		}                                                                                  \
		break;
		EVERY_TYPE(SET)
	}
}

OWN static void elements_get(const uint8_t *elements, rubato_type type, uint64_t count,
			     double *values)
{
	switch (type) {
#define GET(type, element, WIDEN, NARROW)                                                          \
	case type:                                                                                 \
		for (uint64_t i = 0; i < count; i++) {                                             \
			element value;                                                             \
                                                                                                   \
			memcpy(&value, elements + i * sizeof(value), sizeof(value));               \
			values[i] = (double)WIDEN(value);                                          \
		}                                                                                  \
		break;
		EVERY_TYPE(GET)
	}
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

OWN static void fold(rubato_operator op, uint64_t count, const int64_t *values, int64_t *results)
{
	switch (op) {
	case RUBATO_MAX:
		for (uint64_t i = 0; i < count; i++)
			results[i] = values[i] > results[i] ? values[i] : results[i];
		break;
	case RUBATO_MIN:
		for (uint64_t i = 0; i < count; i++)
			results[i] = values[i] < results[i] ? values[i] : results[i];
		break;
	case RUBATO_PROD:
		for (uint64_t i = 0; i < count; i++)
			results[i] *= values[i];
		break;
	default:
		for (uint64_t i = 0; i < count; i++)
			results[i] += values[i];
		break;
	}
}

/* The reduction of elements of the whole vector. */
static void reduced_values(const struct exercise *e, uint32_t call, uint32_t n, uint64_t first,
			   uint64_t count, double *wanted)
{
	int64_t results[BLOCK], values[BLOCK];

	input_values(e, call, 0, first, count, results);
	for (uint32_t r = 1; r < n; r++) {
		input_values(e, call, r, first, count, values);
		fold(e->op, count, values, results);
	}
	for (uint64_t i = 0; i < count; i++)
		wanted[i] = e->op == RUBATO_AVG ? average(e, results[i], n)
						: (double)wrapped(e->type, results[i]);
}

/* ---- What a rank has before and after ---- */

#define RANKS_MAX 64
#define EVERYBODY UINT32_MAX /* As a piece's source: the reduction. */

struct piece {
	uint64_t first, count; /* In OUT. */
	uint32_t source;
	uint64_t from; /* The first element in its IN. */
};

struct blocks {
	uint64_t counts[RANKS_MAX], starts[RANKS_MAX];
	const uint64_t *offsets; /* As the call takes them. */
};

struct shape {
	enum rb_kind kind;
	uint64_t in_count, out_count;
	bool has_in, has_out;
	uint64_t in_offset, out_offset; /* In place: of IN in OUT, or of OUT in IN, in elements. */
	struct blocks blocks, out_blocks;
	struct piece pieces[RANKS_MAX];
	uint32_t piece_count;
};

static enum rb_kind kind_of(const char *name)
{
	for (int k = 0; k < RB_KIND_COUNT; k++)
		if (strcmp(rb_kind_name((enum rb_kind)k), name) == 0)
			return (enum rb_kind)k;
	return RB_KIND_NONE;
}

/* Empty, small and large ones: what rank a sends rank b, in the v-variants. */
static uint64_t block_count(const struct exercise *e, uint32_t a, uint32_t b)
{
	uint32_t low = a < b ? a : b, high = a < b ? b : a;

	if (e->in_place) /* One place for what goes and what comes. */
		return e->count * (rb_mix(e->salt + low * 64 + high) % 5) / 2;
	return e->count * (rb_mix(e->salt + a * 64 + b) % 5) / 2;
}

/* Where they lie: packed, with gaps, or with gaps and backwards. */
static uint64_t blocks_place(const struct exercise *e, uint32_t n, struct blocks *blocks)
{
	uint32_t how = (uint32_t)(e->salt % 3);
	uint64_t at = how > 0 ? 2 : 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = how == 2 ? n - 1 - i : i;

		blocks->starts[r] = at;
		at += blocks->counts[r] + (how > 0 ? 3 + i : 0);
	}
	blocks->offsets = how > 0 ? blocks->starts : NULL;
	return at;
}

static void piece_add(struct shape *s, uint64_t first, uint64_t count, uint32_t source,
		      uint64_t from)
{
	s->pieces[s->piece_count++] = (struct piece) { first, count, source, from };
}

static void shape_uneven(const struct exercise *e, uint32_t rank, uint32_t n, struct shape *s)
{
	uint64_t extent, own;

	for (uint32_t r = 0; r < n; r++) {
		bool pairs = s->kind == RB_KIND_ALLTOALLV;

		s->blocks.counts[r] = block_count(e, pairs ? rank : 0, r);
		s->out_blocks.counts[r] = block_count(e, r, rank);
	}
	extent = blocks_place(e, n, &s->blocks);
	own = s->blocks.counts[rank];
	s->in_count = s->kind == RB_KIND_ALLGATHERV ? own : extent;
	s->out_count = s->kind == RB_KIND_ALLGATHERV ? extent : own;
	if (s->kind == RB_KIND_ALLTOALLV) {
		s->out_count = blocks_place(e, n, &s->out_blocks);
	} else if (s->kind == RB_KIND_ALLGATHERV) {
		s->in_offset = s->blocks.starts[rank];
	} else {
		s->out_offset = s->blocks.starts[rank];
		piece_add(s, 0, own, EVERYBODY, s->blocks.starts[rank]);
	}
	for (uint32_t r = 0; r < n && s->kind == RB_KIND_ALLGATHERV; r++)
		piece_add(s, s->blocks.starts[r], s->blocks.counts[r], r, 0);
	for (uint32_t r = 0; r < n && s->kind == RB_KIND_ALLTOALLV; r++) {
		struct blocks theirs;

		for (uint32_t to = 0; to < n; to++)
			theirs.counts[to] = block_count(e, r, to);
		(void)blocks_place(e, n, &theirs);
		piece_add(s, s->out_blocks.starts[r], s->out_blocks.counts[r], r,
			  theirs.starts[rank]);
	}
}

static void shape_even(const struct exercise *e, uint32_t rank, uint32_t n, struct shape *s)
{
	uint64_t count = e->count, whole = count * n;

	s->in_count = s->out_count = count;
	switch (s->kind) {
	case RB_KIND_BROADCAST:
		s->has_in = rank == e->root;
		piece_add(s, 0, count, e->root, 0);
		break;
	case RB_KIND_REDUCE_SCATTER:
		s->in_count = whole;
		s->out_offset = count * rank;
		piece_add(s, 0, count, EVERYBODY, count * rank);
		break;
	case RB_KIND_GATHER:
	case RB_KIND_ALLGATHER:
		s->has_out = s->kind == RB_KIND_ALLGATHER || rank == e->root;
		s->out_count = whole;
		s->in_offset = count * rank;
		for (uint32_t r = 0; r < n; r++)
			piece_add(s, count * r, count, r, 0);
		break;
	case RB_KIND_SCATTER:
		s->has_in = rank == e->root;
		s->in_count = whole;
		s->out_offset = count * rank;
		piece_add(s, 0, count, e->root, count * rank);
		break;
	case RB_KIND_ALLTOALL:
		s->in_count = s->out_count = whole;
		for (uint32_t r = 0; r < n; r++)
			piece_add(s, count * r, count, r, count * rank);
		break;
	default:
		s->has_out = s->kind != RB_KIND_REDUCE || rank == e->root;
		piece_add(s, 0, count, EVERYBODY, 0);
		break;
	}
}

static void shape_of(const struct exercise *e, uint32_t rank, uint32_t n, struct shape *s)
{
	memset(s, 0, sizeof(*s));
	s->kind = kind_of(e->kind);
	if (s->kind == RB_KIND_BARRIER)
		return;
	s->has_in = s->has_out = true;
	if (s->kind == RB_KIND_ALLGATHERV || s->kind == RB_KIND_REDUCE_SCATTERV ||
	    s->kind == RB_KIND_ALLTOALLV)
		shape_uneven(e, rank, n, s);
	else
		shape_even(e, rank, n, s);
}

/* Gather and scatter are in place at the root only. */
static bool one_buffer(const struct exercise *e, const struct shape *s, uint32_t rank)
{
	if (s->kind == RB_KIND_GATHER || s->kind == RB_KIND_SCATTER)
		return e->in_place && rank == e->root;
	return e->in_place || s->kind == RB_KIND_BROADCAST;
}

/* ---- Calls ---- */

static rubato_status blocking(rubato_comm *comm, const struct exercise *e, const struct shape *s,
			      const void *in, void *out)
{
	const struct blocks *to = &s->blocks, *from = &s->out_blocks;

	switch (s->kind) {
	case RB_KIND_BARRIER:
		return rubato_barrier(comm);
	case RB_KIND_BROADCAST:
		return rubato_broadcast(comm, out, e->count, e->type, e->root);
	case RB_KIND_REDUCE:
		return rubato_reduce(comm, in, out, e->count, e->type, e->op, e->root);
	case RB_KIND_REDUCE_SCATTER:
		return rubato_reduce_scatter(comm, in, out, e->count, e->type, e->op);
	case RB_KIND_ALLGATHER:
		return rubato_allgather(comm, in, out, e->count, e->type);
	case RB_KIND_GATHER:
		return rubato_gather(comm, in, out, e->count, e->type, e->root);
	case RB_KIND_SCATTER:
		return rubato_scatter(comm, in, out, e->count, e->type, e->root);
	case RB_KIND_ALLTOALL:
		return rubato_alltoall(comm, in, out, e->count, e->type);
	case RB_KIND_ALLGATHERV:
		return rubato_allgatherv(comm, in, out, to->counts, to->offsets, e->type);
	case RB_KIND_REDUCE_SCATTERV:
		return rubato_reduce_scatterv(comm, in, out, to->counts, to->offsets, e->type,
					      e->op);
	case RB_KIND_ALLTOALLV:
		return rubato_alltoallv(comm, in, to->counts, to->offsets, out, from->counts,
					from->offsets, e->type);
	default:
		return rubato_allreduce(comm, in, out, e->count, e->type, e->op);
	}
}

static rubato_status make(rubato_comm *comm, const struct exercise *e, const struct shape *s,
			  const void *in, void *out, rubato_op **op)
{
	const struct blocks *to = &s->blocks, *from = &s->out_blocks;

	switch (s->kind) {
	case RB_KIND_BARRIER:
		return rubato_op_barrier(comm, op);
	case RB_KIND_BROADCAST:
		return rubato_op_broadcast(comm, out, e->count, e->type, e->root, op);
	case RB_KIND_REDUCE:
		return rubato_op_reduce(comm, in, out, e->count, e->type, e->op, e->root, op);
	case RB_KIND_REDUCE_SCATTER:
		return rubato_op_reduce_scatter(comm, in, out, e->count, e->type, e->op, op);
	case RB_KIND_ALLGATHER:
		return rubato_op_allgather(comm, in, out, e->count, e->type, op);
	case RB_KIND_GATHER:
		return rubato_op_gather(comm, in, out, e->count, e->type, e->root, op);
	case RB_KIND_SCATTER:
		return rubato_op_scatter(comm, in, out, e->count, e->type, e->root, op);
	case RB_KIND_ALLTOALL:
		return rubato_op_alltoall(comm, in, out, e->count, e->type, op);
	case RB_KIND_ALLGATHERV:
		return rubato_op_allgatherv(comm, in, out, to->counts, to->offsets, e->type, op);
	case RB_KIND_REDUCE_SCATTERV:
		return rubato_op_reduce_scatterv(comm, in, out, to->counts, to->offsets, e->type,
						 e->op, op);
	case RB_KIND_ALLTOALLV:
		return rubato_op_alltoallv(comm, in, to->counts, to->offsets, out, from->counts,
					   from->offsets, e->type, op);
	default:
		return rubato_op_allreduce(comm, in, out, e->count, e->type, e->op, op);
	}
}

/* The counts that were given may change once the operation is made: they are its own. */
static rubato_status make_and_forget(rubato_comm *comm, const struct exercise *e,
				     const struct shape *s, const void *in, void *out,
				     rubato_op **op)
{
	struct shape *copy = malloc(sizeof(*copy));
	rubato_status err;

	if (copy == NULL)
		return RUBATO_ERR_MEMORY;
	*copy = *s;
	if (s->blocks.offsets != NULL)
		copy->blocks.offsets = copy->blocks.starts;
	if (s->out_blocks.offsets != NULL)
		copy->out_blocks.offsets = copy->out_blocks.starts;
	err = make(comm, e, copy, in, out, op);
	memset(copy, 0xff, sizeof(*copy));
	free(copy);
	return err;
}

static rubato_status finish(const struct exercise *e, rubato_op *op, bool by_tests)
{
	bool done = false;

	RB_TRY(e->start != NULL ? e->start(op) : rubato_start(op));
	while (by_tests && !done) {
		RB_TRY(rubato_test(op, &done));
		if (!done) /* There may be more ranks than cores. */
			(void)sched_yield();
	}
	return rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
}

static rubato_status call_once(rubato_comm *comm, const struct exercise *e, const struct shape *s,
			       const void *in, void *out, rubato_op *op)
{
	rubato_status err;

	if (e->persistent)
		return finish(e, op, false);
	if (!e->nonblocking)
		return blocking(comm, e, s, in, out);
	RB_TRY(make_and_forget(comm, e, s, in, out, &op));
	err = finish(e, op, true);
	rubato_op_free(op);
	return err;
}

/* ---- Buffers ---- */

const struct exercise_memory exercise_simulated = {
	.alloc = rubato_sim_device_alloc,
	.free = rubato_sim_device_free,
	.copy = rubato_sim_device_copy,
};

struct buffers {
	const struct exercise_memory *of_device;
	void *memory[2]; /* As allocated: IN and OUT, or one of them when in place. */
	uint8_t *in, *out;
	bool library;
	/* What calls are given: these, or a device's, which are copied from and to these. */
	uint64_t bytes;
	void *device[2];
	uint8_t *call_in, *call_out;
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
		if (b->device[i] != NULL)
			(void)b->of_device->free(comm, b->device[i]);
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
	bool one = one_buffer(e, s, rubato_rank(comm));

	*b = (struct buffers) {
		.of_device = e->memory != NULL ? e->memory : &exercise_simulated,
		.library = e->allocated && (!e->mixed || rubato_rank(comm) % 3 != 0),
	};
	RB_TRY(buffer_get(comm, b->library, most * element, &b->memory[0]));
	if (!one)
		RB_TRY(buffer_get(comm, b->library, most * element, &b->memory[1]));
	b->in = (uint8_t *)b->memory[0] + (one ? s->in_offset * element : 0);
	b->out = one ? (uint8_t *)b->memory[0] + s->out_offset * element : b->memory[1];
	b->call_in = b->in;
	b->call_out = b->out;
	b->bytes = most * element;
	for (int i = 0; i < 2; i++) {
		if (e->kinds[i] == EXERCISE_HOST || b->memory[i] == NULL)
			continue;
		RB_TRY(b->of_device->alloc(comm, b->bytes, e->kinds[i] == EXERCISE_MANAGED,
					   &b->device[i]));
		if (i == 0)
			b->call_in = (uint8_t *)b->device[0] + (b->in - (uint8_t *)b->memory[0]);
		if (i == (one ? 0 : 1))
			b->call_out = (uint8_t *)b->device[i] + (b->out - (uint8_t *)b->memory[i]);
	}
	return RUBATO_OK;
}

static void device_copy(rubato_comm *comm, const struct buffers *b, bool back)
{
	for (int i = 0; i < 2; i++) {
		if (b->device[i] == NULL)
			continue;
		b->of_device->copy(comm, back ? b->memory[i] : b->device[i],
				   back ? b->device[i] : b->memory[i], b->bytes);
	}
}

static void inputs_write(const struct exercise *e, const struct shape *s, uint32_t call,
			 uint32_t rank, const struct buffers *b)
{
	if (b->memory[1] != NULL)
		memset(b->out, 0xa5, s->out_count * rubato_type_bytes(e->type));
	for (uint64_t i = 0; s->has_in && i < s->in_count; i += BLOCK) {
		uint64_t count = s->in_count - i < BLOCK ? s->in_count - i : BLOCK;
		uint64_t element = rubato_type_bytes(e->type);
		uint8_t elements[BLOCK * sizeof(uint64_t)];
		int64_t values[BLOCK];

		input_values(e, call, rank, i, count, values);
		elements_set(elements, e->type, count, values);
		memcpy(b->in + i * element, elements, count * element);
	}
}

static rubato_status wrong(const struct exercise *e, uint32_t call, uint32_t n, uint64_t i,
			   double got, double want)
{
	return RB_FAIL(RUBATO_ERR_MISMATCH,
		       "%s %s n %u count %llu %s %s root %u in_place %d alloc %d persistent %d "
		       "nonblocking %d salt %llu call %u: element %llu is %g, not %g",
		       e->kind, e->algorithm, n, (unsigned long long)e->count,
		       rubato_type_name(e->type), rubato_operator_name(e->op), e->root, e->in_place,
		       e->allocated, e->persistent, e->nonblocking, (unsigned long long)e->salt,
		       call, (unsigned long long)i, got, want);
}

/* What the ranks of a process want alike, which one of them computes: the reduction in a call. */
static struct wanted {
	struct exercise e;
	uint32_t call, n;
	uint64_t count;
	double *values;
} wanted_by_call[2]; /* Of the last two calls: some ranks may be one ahead. */
static pthread_mutex_t wanted_lock = PTHREAD_MUTEX_INITIALIZER;

static bool wanted_is_of(const struct wanted *w, const struct exercise *e, uint32_t call,
			 uint32_t n, uint64_t count)
{
	const struct exercise *o = &w->e;

	return w->values != NULL && w->call == call && w->n == n && w->count == count &&
	       o->salt == e->salt && o->type == e->type && o->op == e->op;
}

/* Of `count` elements; NULL where there is no memory. With the lock held. */
static const double *wanted_reduction(const struct exercise *e, uint32_t call, uint32_t n,
				      uint64_t count)
{
	struct wanted *w = &wanted_by_call[call % 2];

	if (wanted_is_of(w, e, call, n, count))
		return w->values;
	free(w->values);
	*w = (struct wanted) { *e, call, n, count, calloc(count, sizeof(double)) };
	for (uint64_t i = 0; w->values != NULL && i < count; i += BLOCK)
		reduced_values(e, call, n, i, count - i < BLOCK ? count - i : BLOCK, w->values + i);
	return w->values;
}

/* `count` where there is none. What is wanted was made by this thread, or under a lock. */
OWN static uint64_t first_other(const double *got, const double *wanted, uint64_t count)
{
	uint64_t i = 0;

	while (i < count && got[i] == wanted[i])
		i++;
	return i;
}

static rubato_status block_check(const struct exercise *e, uint32_t call, uint32_t n,
				 uint64_t first, uint64_t count, const double *wanted,
				 const struct buffers *b)
{
	uint64_t element = rubato_type_bytes(e->type), i;
	uint8_t elements[BLOCK * sizeof(uint64_t)];
	double got[BLOCK];

	memcpy(elements, b->out + first * element, count * element);
	elements_get(elements, e->type, count, got);
	i = first_other(got, wanted, count);
	return i == count ? RUBATO_OK : wrong(e, call, n, first + i, got[i], wanted[i]);
}

static rubato_status piece_check(const struct exercise *e, uint32_t call, uint32_t n,
				 const struct piece *piece, const double *reduction,
				 const struct buffers *b)
{
	for (uint64_t from = 0; from < piece->count; from += BLOCK) {
		uint64_t count = piece->count - from < BLOCK ? piece->count - from : BLOCK;
		const double *wanted = reduction + piece->from + from;
		int64_t values[BLOCK];
		double inputs[BLOCK];

		if (piece->source != EVERYBODY) {
			input_values(e, call, piece->source, piece->from + from, count, values);
			for (uint64_t i = 0; i < count; i++)
				inputs[i] = (double)values[i];
			wanted = inputs;
		}
		RB_TRY(block_check(e, call, n, piece->first + from, count, wanted, b));
	}
	return RUBATO_OK;
}

static rubato_status outputs_check(const struct exercise *e, const struct shape *s, uint32_t call,
				   uint32_t n, const struct buffers *b)
{
	rubato_status err = RUBATO_OK;

	for (uint32_t p = 0; err == RUBATO_OK && s->has_out && p < s->piece_count; p++) {
		const struct piece *piece = &s->pieces[p];

		if (piece->source != EVERYBODY || piece->count == 0) {
			err = piece_check(e, call, n, piece, NULL, b);
			continue;
		}
		pthread_mutex_lock(&wanted_lock);
		const double *reduction = wanted_reduction(e, call, n, s->in_count);
		err = reduction != NULL ? piece_check(e, call, n, piece, reduction, b)
					: RUBATO_ERR_MEMORY;
		pthread_mutex_unlock(&wanted_lock);
	}
	return err;
}

static uint64_t bits_hash(uint64_t hash, const uint8_t *bytes, uint64_t count)
{
	for (uint64_t i = 0; i < count; i += 8) {
		uint64_t word = 0;

		memcpy(&word, bytes + i, count - i < 8 ? count - i : 8);
		hash = (hash ^ word) * 0x100000001b3u;
	}
	return hash;
}

/* Hashes the pieces, and sees that nothing was written but them. */
static rubato_status outputs_hash(const struct exercise *e, const struct shape *s,
				  const struct buffers *b, uint64_t *hash)
{
	uint64_t element = rubato_type_bytes(e->type), bytes = s->out_count * element;

	for (uint32_t p = 0; s->has_out && p < s->piece_count; p++) {
		const struct piece *piece = &s->pieces[p];
		uint8_t *at = b->out + piece->first * element;

		if (hash != NULL)
			*hash = bits_hash(*hash, at, piece->count * element);
		if (b->memory[1] != NULL)
			memset(at, 0xa5, piece->count * element);
	}
	/* The first byte, and each as the one before: a sanitizer looks once, not at each. */
	if (b->memory[1] == NULL || bytes == 0 ||
	    (b->out[0] == 0xa5 && memcmp(b->out, b->out + 1, bytes - 1) == 0))
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_MISMATCH, "%s %s salt %llu: bytes between blocks", e->kind,
		       e->algorithm, (unsigned long long)e->salt);
}

static rubato_status calls_run(rubato_comm *comm, const struct exercise *e, const struct shape *s,
			       const struct buffers *b, uint64_t *hash)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	rubato_op *op = NULL;
	rubato_status err = RUBATO_OK;

	if (e->persistent)
		RB_TRY(make_and_forget(comm, e, s, b->call_in, b->call_out, &op));
	for (uint32_t call = 0; err == RUBATO_OK && call < e->times; call++) {
		inputs_write(e, s, call, rank, b);
		device_copy(comm, b, false);
		err = call_once(comm, e, s, b->call_in, b->call_out, op);
		device_copy(comm, b, true);
		if (err == RUBATO_OK)
			err = outputs_check(e, s, call, n, b);
		if (err == RUBATO_OK)
			err = outputs_hash(e, s, b, hash);
	}
	rubato_op_free(op);
	return err;
}

rubato_status exercise_run(rubato_comm *comm, const struct exercise *e, uint64_t *hash)
{
	struct shape *s = malloc(sizeof(*s));
	struct buffers b = { 0 };
	rubato_status err;

	if (s == NULL || rubato_size(comm) > RANKS_MAX) {
		free(s);
		return RB_FAIL(RUBATO_ERR_MEMORY, "exercise: %u ranks", rubato_size(comm));
	}
	shape_of(e, rubato_rank(comm), rubato_size(comm), s);
	err = rubato_set_algorithm(comm, e->kind, e->algorithm);
	if (err == RUBATO_OK)
		err = rubato_set_accumulate(comm, e->accumulate);
	if (err == RUBATO_OK)
		err = buffers_make(comm, e, s, &b);
	if (err == RUBATO_OK)
		err = calls_run(comm, e, s, &b, hash);
	buffers_free(comm, &b);
	free(s);
	return err;
}
