/* known.c -- see known.h. */
#include "tools/known/known.h"

#include "programs/rng.h"
#include "tools/known/elements.h"

#define CUT_STRIDE 1657 /* Its multiples come to all places of the period before one twice. */

/* ---- Patterns ---- */

/* A signed integer of so few bits that the sum over ranks fits into `bits`. */
static int64_t narrow(uint64_t random, uint32_t bits, uint32_t rank_count)
{
	uint32_t keep = bits;

	for (uint32_t ranks = rank_count - 1; ranks > 0 && keep > 2; ranks >>= 1)
		keep--;
	return (int64_t)random >> (64 - keep);
}

/* What all ranks' sum is exact with. Of many ranks the last add 0 in 16 bits: no room for more. */
static double float_of(uint64_t random, rubato_type type, rubato_wire wire, uint32_t rank,
		       uint32_t rank_count)
{
	switch (wire != RUBATO_WIRE_SAME ? RUBATO_BFLOAT16 : type) {
	case RUBATO_FLOAT32:
		return (double)narrow(random, 24, rank_count);
	case RUBATO_FLOAT16:
		return rank < 512 ? (double)narrow(random, 11, rank_count) : 0;
	case RUBATO_BFLOAT16:
		return rank < 64 ? (double)narrow(random, 8, rank_count) : 0;
	default:
		return (double)narrow(random, 53, rank_count);
	}
}

/* Plus or minus 1; of the first eight ranks also 2 and 0.5: products are exact in every type. */
static double factor_of(uint64_t random, uint32_t rank)
{
	double value = rank >= 8 || random >> 63 ? 1 : (random & 2) != 0 ? 2 : 0.5;

	return (random & 1) != 0 ? -value : value;
}

uint64_t known_cut(uint32_t rank)
{
	return (uint64_t)(rank / KNOWN_SEQUENCES) * CUT_STRIDE % PATTERN_ELEMENTS;
}

/* 16-bit sums have room for some ranks only, factors for some that are not 1. */
bool known_may_cut(const struct operation_call *call)
{
	return call->type != RUBATO_FLOAT16 && call->type != RUBATO_BFLOAT16 &&
	       !(operation_reduces(call->op) && call->reduction == RUBATO_PROD);
}

/* What rank `rank` puts in, from element `first` on. */
static void pattern_of_rank(struct pattern *pattern, const struct known *known,
			    const struct operation_call *call, uint32_t rank, uint64_t first,
			    uint64_t count)
{
	uint32_t origin = known->cuts ? rank % KNOWN_SEQUENCES : rank;
	uint64_t seed = rng_mix(rng_mix(known->number + 1) ^ ((uint64_t)origin << 32));
	uint64_t cut = known->cuts ? known_cut(rank) : 0;

	pattern->type = call->type;
	pattern->first = first;
	pattern->used = count < PATTERN_ELEMENTS ? count : PATTERN_ELEMENTS;
	for (uint64_t k = 0; k < pattern->used; k++) {
		uint64_t i = (first + k) % PATTERN_ELEMENTS;
		uint64_t place = (i + cut) % PATTERN_ELEMENTS;
		uint64_t random = rng_mix(seed + place * 0x9e3779b97f4a7c15u);

		if (!type_is_float(call->type))
			integer_set(call->type, &pattern->at, i, random >> 8 | random << 56);
		else if (operation_reduces(call->op) && call->reduction == RUBATO_PROD)
			float_set(call->type, &pattern->at, i, factor_of(random, rank));
		else
			float_set(
				call->type, &pattern->at, i,
				float_of(random, call->type, known->wire, rank, known->rank_count));
	}
}

/* to = op(to, from), on element i. */
static void element_join(struct pattern *to, const struct pattern *from, rubato_operator op,
			 uint64_t i)
{
	rubato_type type = to->type;

	if (type_is_float(type))
		float_set(type, &to->at, i,
			  float_reduced(op, float_get(type, &to->at, i),
					float_get(type, &from->at, i)));
	else
		integer_set(type, &to->at, i,
			    integer_reduced(type, op, integer_get(type, &to->at, i),
					    integer_get(type, &from->at, i)));
}

/* As rubato.h says of RUBATO_AVG: floats times 1/size, integers divided toward zero. */
static void element_average(struct pattern *pattern, rubato_wire wire, uint32_t rank_count,
			    uint64_t i)
{
	rubato_type type = pattern->type;

	if (type == RUBATO_FLOAT64)
		pattern->at.f64[i] *= 1.0 / (double)rank_count;
	else if (type_is_float(type))
		float_set(type, &pattern->at, i,
			  (double)((float)float_get(type, &pattern->at, i) *
				   (1.0f / (float)rank_count)));
	else
		integer_set(type, &pattern->at, i,
			    integer_divided(type, integer_get(type, &pattern->at, i), rank_count));
	if (wire == RUBATO_WIRE_BFLOAT16)
		pattern->at.f32[i] =
			rubato_bfloat16_to_float32(rubato_float32_to_bfloat16(pattern->at.f32[i]));
}

static bool is_sum_of(const struct known *known, const struct operation_call *call, uint64_t first,
		      uint64_t used)
{
	const struct known_sum *sum = &known->sum;

	return sum->rank_count == known->rank_count && sum->number == known->number &&
	       sum->op == call->op && sum->reduction == call->reduction &&
	       sum->pattern.used == used && sum->pattern.type == call->type &&
	       sum->pattern.first == first;
}

/* What the reduction of all ranks' must be, from element `first` on. */
static void pattern_of_all(struct known *known, const struct operation_call *call, uint64_t first,
			   uint64_t count)
{
	struct pattern *pattern = &known->sum.pattern;

	if (is_sum_of(known, call, first, count < PATTERN_ELEMENTS ? count : PATTERN_ELEMENTS))
		return;
	pattern_of_rank(pattern, known, call, 0, first, count);
	known->sum.op = call->op;
	known->sum.reduction = call->reduction;
	known->sum.rank_count = known->rank_count;
	known->sum.number = known->number;
	for (uint32_t rank = 1; rank < known->rank_count; rank++) {
		pattern_of_rank(&known->scratch, known, call, rank, first, count);
		for (uint64_t k = 0; k < pattern->used; k++)
			element_join(pattern, &known->scratch, call->reduction,
				     (first + k) % PATTERN_ELEMENTS);
	}
	for (uint64_t k = 0; k < pattern->used && call->reduction == RUBATO_AVG; k++)
		element_average(pattern, known->wire, known->rank_count,
				(first + k) % PATTERN_ELEMENTS);
}

/* How many elements, from `first` on, lie in one piece of the pattern: at most `count`. */
static uint64_t piece(uint64_t first, uint64_t count, uint64_t *place)
{
	*place = first % PATTERN_ELEMENTS;
	return count < PATTERN_ELEMENTS - *place ? count : PATTERN_ELEMENTS - *place;
}

/* How many of the elements from the pattern's first one on differ. */
static uint64_t pattern_wrong(const struct pattern *pattern, uint64_t count, const void *got)
{
	size_t bytes = rubato_type_bytes(pattern->type);
	const char *expected = (const char *)&pattern->at;
	const char *at = got;
	uint64_t first = pattern->first, place, wrong = 0;

	while (count > 0) {
		uint64_t length = piece(first, count, &place);

		if (memcmp(at, expected + place * bytes, length * bytes) != 0)
			for (uint64_t i = 0; i < length; i++)
				wrong += memcmp(at + i * bytes, expected + (place + i) * bytes,
						bytes) != 0;
		at += length * bytes;
		first += length;
		count -= length;
	}
	return wrong;
}

/* How many of the elements are farther off than roundings explain: of inputs up to 128 / ranks, of
 * sums up to 128 on the way, half a step of a 127th each. */
static uint64_t pattern_far(const struct known *known, rubato_operator reduction, uint64_t count,
			    const float *got)
{
	const struct pattern *pattern = &known->sum.pattern;
	float most = 0.51f * (float)(known->rank_count + 2);
	uint64_t wrong = 0;

	if (reduction == RUBATO_AVG)
		most /= (float)known->rank_count;
	for (uint64_t i = 0; i < count; i++) {
		float want = pattern->at.f32[(pattern->first + i) % PATTERN_ELEMENTS];

		wrong += !(fabsf(got[i] - want) <= most);
	}
	return wrong;
}

/* ---- Inputs ---- */

/* Elements that this rank puts in. */
static uint64_t in_count(const struct known *known, const struct operation_call *call)
{
	if (call->op == OP_SCATTER && known->rank != call->root)
		return 0;
	return operation_in(call->op, call->count, known->rank, known->rank_count);
}

/* From the pattern's first element on, which is 0. */
static void pattern_write(const struct pattern *pattern, uint64_t count, char *at)
{
	size_t bytes = rubato_type_bytes(pattern->type);
	uint64_t place = 0;

	for (uint64_t first = 0, length; first < count; first += length) {
		length = piece(first, count - first, &place);
		memcpy(at + first * bytes, &pattern->at, length * bytes);
	}
}

void known_write(struct known *known, const struct operation_call *call)
{
	uint64_t count = in_count(known, call);

	pattern_of_rank(&known->mine, known, call, known->rank, 0, count);
	pattern_write(&known->mine, count, call->in);
}

/* The rank of that number has the sequence from its begin on. */
void known_write_sequence(struct known *known, const struct operation_call *call, uint32_t sequence,
			  uint64_t count, void *at)
{
	pattern_of_rank(&known->scratch, known, call, sequence, 0, count);
	pattern_write(&known->scratch, count, at);
}

uint64_t known_changed(const struct known *known, const struct operation_call *call)
{
	return pattern_wrong(&known->mine, in_count(known, call), call->in);
}

/* ---- Results ---- */

/* Wrong elements among `count`, which must be those of rank `from` from its `first` on. */
static uint64_t wrong_copies(struct known *known, const struct operation_call *call, uint32_t from,
			     uint64_t first, uint64_t count, const void *got)
{
	pattern_of_rank(&known->expected, known, call, from, first, count);
	return pattern_wrong(&known->expected, count, got);
}

/* A block from each rank, one after the other. */
static uint64_t wrong_blocks(struct known *known, const struct operation_call *call)
{
	const char *at = call->out;
	uint64_t wrong = 0;

	for (uint32_t rank = 0; rank < known->rank_count; rank++) {
		uint64_t count = call->count, first = 0;

		if (call->op == OP_ALLTOALL) {
			first = known->rank * count;
		} else if (call->op == OP_ALLGATHERV) {
			count = uneven_count(call->count, 0, rank);
		} else if (call->op == OP_ALLTOALLV) {
			first = uneven_start(call->count, rank, known->rank);
			count = uneven_count(call->count, rank, known->rank);
		}
		wrong += wrong_copies(known, call, rank, first, count, at);
		at += count * rubato_type_bytes(call->type);
	}
	return wrong;
}

static uint64_t wrong_reductions(struct known *known, const struct operation_call *call,
				 uint64_t first, uint64_t count)
{
	pattern_of_all(known, call, first, count);
	if (known->wire == RUBATO_WIRE_INT8)
		return pattern_far(known, call->reduction, count, call->out);
	return pattern_wrong(&known->sum.pattern, count, call->out);
}

uint64_t known_wrong(struct known *known, const struct operation_call *call)
{
	bool at_root = known->rank == call->root;
	uint64_t start = operation_start(call->op, call->count, known->rank);
	uint64_t count = operation_out(call->op, call->count, known->rank, known->rank_count);

	switch (call->op) {
	case OP_BARRIER:
		return 0;
	case OP_GATHER:
		return at_root ? wrong_blocks(known, call) : 0;
	case OP_ALLGATHER:
	case OP_ALLGATHERV:
	case OP_ALLTOALL:
	case OP_ALLTOALLV:
		return wrong_blocks(known, call);
	case OP_SENDRECV:
		return wrong_copies(known, call, known->from, 0, count, call->out);
	case OP_BROADCAST:
		return wrong_copies(known, call, call->root, 0, count, call->out);
	case OP_SCATTER:
		return wrong_copies(known, call, call->root, start, count, call->out);
	case OP_REDUCE:
		return at_root ? wrong_reductions(known, call, 0, count) : 0;
	case OP_REDUCE_SCATTER:
	case OP_REDUCE_SCATTERV:
		return wrong_reductions(known, call, start, count);
	case OP_ALLREDUCE:
		return wrong_reductions(known, call, 0, count);
	}
	return 0;
}
