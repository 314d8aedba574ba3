/*
 * laws_values.c -- what each contribution holds, drawn from (seed, operation, rank, number, place),
 * and what the reduction of some of them must be.
 *
 * Integers are any bits, reduced with wrap-around, and floats of 32 and 64 bits small whole
 * numbers, so that a result is right only if it holds exactly the contributions that its round
 * names. Real floats, and those of 16 bits, may differ by what rounding explains; that all ranks
 * have the same bits is compared apart.
 */
#include "tools/known/elements.h"
#include "tools/laws/laws.h"

#define BLOCK 256 /* Elements at a time. */
#define GOLDEN 0x9e3779b97f4a7c15u

uint64_t laws_mix(uint64_t seed, uint64_t a, uint64_t b)
{
	return rng_mix(rng_mix(seed ^ (a * GOLDEN)) + b);
}

static uint64_t key_of(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	return laws_mix(op->trial->seed, (uint64_t)op->index << 8 | 1,
			(uint64_t)rank << 32 | index);
}

static inline uint64_t hash_at(uint64_t key, uint64_t place)
{
	uint64_t x = (key + place) * GOLDEN;

	x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

/* Rounded on its way: that explains as much as if the type itself were short. */
static bool is_coded(const struct laws_op *op)
{
	return op->options.wire != RUBATO_WIRE_SAME;
}

static bool is_short(rubato_type type)
{
	return type == RUBATO_FLOAT16 || type == RUBATO_BFLOAT16;
}

/* ---- One element ---- */

/* Without the last `bits` of its significand, as converting there and back would leave it. */
static inline float rounded(float value, unsigned bits)
{
	uint32_t word;

	memcpy(&word, &value, sizeof(word));
	word += (UINT32_C(1) << (bits - 1)) - 1 + (word >> bits & 1);
	word &= ~((UINT32_C(1) << bits) - 1);
	memcpy(&value, &word, sizeof(value));
	return value;
}

/* Of float16 only what is small is left to the library: its significand is shorter. */
static inline double half_of(float value)
{
	if (fabsf(value) < 0x1p-14f)
		return (double)rubato_float16_to_float32(rubato_float32_to_float16(value));
	return (double)rounded(value, 13);
}

static double float_drawn(const struct laws_op *op, uint64_t hash)
{
	static const double factors[] = { 1, -1, 2, 0.5 };
	double value;

	if (op->nans && (hash >> 40) % 61 == 0)
		return NAN;
	if (op->reduction == RUBATO_PROD)
		return factors[hash % (is_short(op->type) ? 2 : 4)];
	if (!op->real && !is_short(op->type))
		return (double)(hash % 2001) - 1000;
	value = (double)(hash >> 40) / (1 << 23) - 1;
	if (op->type == RUBATO_FLOAT16)
		return half_of((float)value);
	if (op->type == RUBATO_BFLOAT16)
		return (double)rounded((float)value, 16);
	return value;
}

static double float_identity(rubato_operator reduction)
{
	if (reduction == RUBATO_MAX)
		return -(double)INFINITY;
	if (reduction == RUBATO_MIN)
		return (double)INFINITY;
	return reduction == RUBATO_PROD;
}

static uint64_t integer_identity(const struct laws_op *op)
{
	unsigned bits = 8 * (unsigned)rubato_type_bytes(op->type);
	uint64_t all = UINT64_MAX >> (64 - bits), top = UINT64_C(1) << (bits - 1);

	if (op->reduction == RUBATO_MAX)
		return type_is_signed(op->type) ? top : 0;
	if (op->reduction == RUBATO_MIN)
		return type_is_signed(op->type) ? all >> 1 : all;
	return op->reduction == RUBATO_PROD;
}

/* ---- Contributions ---- */

void laws_write(const struct laws_op *op, uint32_t rank, uint32_t index, void *buffer,
		uint64_t from, uint64_t to, bool add)
{
	uint64_t key = key_of(op, rank, index);

	for (uint64_t i = from; i < to; i++) {
		uint64_t hash = hash_at(key, i);

		if (type_is_float(op->type)) {
			double value = float_drawn(op, hash);

			if (add)
				value = float_reduced(op->reduction, float_get(op->type, buffer, i),
						      value);
			float_set(op->type, buffer, i, value);
		} else {
			if (add)
				hash = integer_reduced(op->type, op->reduction,
						       integer_get(op->type, buffer, i), hash);
			integer_set(op->type, buffer, i, hash);
		}
	}
}

bool laws_is_identity(const struct laws_op *op, const void *buffer)
{
	for (uint64_t i = 0; i < op->count; i++) {
		if (type_is_float(op->type)
			    ? float_get(op->type, buffer, i) != float_identity(op->reduction)
			    : integer_get(op->type, buffer, i) != integer_identity(op))
			return false;
	}
	return true;
}

uint64_t laws_weight(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	uint64_t hash = laws_mix(op->trial->seed, (uint64_t)op->index << 8 | 2,
				 (uint64_t)rank << 32 | index);

	switch (op->weights) {
	case 1:
		return 1 + hash % 5;
	case 2:
		return hash % 3 == 0 ? 0 : hash % 7;
	case 3:
		return hash % 2 == 0 ? UINT32_MAX - hash % 3 : hash % 5;
	default:
		return 1;
	}
}

uint64_t laws_gap(const struct laws_op *op, uint32_t rank, uint32_t index)
{
	uint32_t gaps = op->gaps;
	uint64_t hash = laws_mix(op->trial->seed, (uint64_t)op->index << 8 | 3,
				 gaps == 2 ? (uint64_t)rank << 32 | index : index);

	return gaps > 0 && hash % 6 == 0 ? 2 + hash % 3 : 1;
}

uint64_t laws_first_step(const struct laws_op *op, uint32_t rank, uint32_t era)
{
	bool own = op->options.rounds == RUBATO_ROUNDS_FREE;
	uint64_t hash = laws_mix(op->trial->seed, (uint64_t)op->index << 8 | 4,
				 own ? (uint64_t)rank << 32 | era : era);

	if (era == 0 && op->gaps == 0)
		return 0;
	if (rank == op->trial->differs && era == op->trial->differ_era)
		hash++; /* Modulo 50 it is another one. */
	return era * 100000 + hash % (era == 0 ? 3 : 50);
}

/* ---- Results ---- */

struct block {                            /* Of the reference. */
	double sums[BLOCK], sizes[BLOCK]; /* sizes: of what was added, without signs. */
	uint64_t words[BLOCK];
};

static void block_add(const struct laws_op *op, struct block *b, uint64_t key, uint64_t first,
		      uint64_t count)
{
	if (type_is_float(op->type)) {
		for (uint64_t i = 0; i < count; i++) {
			double value = float_drawn(op, hash_at(key, first + i));

			b->sums[i] = float_reduced(op->reduction, b->sums[i], value);
			b->sizes[i] += fabs(value);
		}
	} else if (op->reduction == RUBATO_SUM || op->reduction == RUBATO_AVG) {
		for (uint64_t i = 0; i < count; i++)
			b->words[i] += hash_at(key, first + i);
	} else {
		for (uint64_t i = 0; i < count; i++)
			b->words[i] = integer_reduced(op->type, op->reduction, b->words[i],
						      hash_at(key, first + i));
	}
}

/* Of `count` additions: what rounding may have done to them. */
static bool float_near(const struct laws_op *op, double want, double size, uint32_t count,
		       double divisor, double got)
{
	double epsilon = is_coded(op)                 ? 0x1p-7
			 : op->type == RUBATO_FLOAT64 ? 0x1p-52
			 : op->type == RUBATO_FLOAT32 ? 0x1p-23
			 : op->type == RUBATO_FLOAT16 ? 0x1p-10
						      : 0x1p-7;
	bool exact = (!op->real && !is_short(op->type) && !is_coded(op) && divisor == 1) ||
		     op->reduction == RUBATO_MAX || op->reduction == RUBATO_MIN ||
		     op->reduction == RUBATO_PROD;

	if (exact)
		return got == want;
	return fabs(got - want / divisor) <= epsilon * (count + 4) * size / divisor + 0x1p-23;
}

static bool is_canonical_nan(rubato_type type, const void *from, uint64_t i)
{
	uint64_t bits = integer_get(type, from, i);

	return bits == (type == RUBATO_FLOAT64   ? 0x7ff8000000000000u
			: type == RUBATO_FLOAT32 ? 0x7fc00000u
			: type == RUBATO_FLOAT16 ? 0x7e00u
						 : 0x7fc0u);
}

static bool element_right(const struct laws_op *op, const struct block *b, uint64_t k,
			  uint32_t count, double divisor, const void *result, uint64_t i)
{
	uint64_t word = b->words[k], got;

	if (type_is_float(op->type)) {
		if (isnan(b->sums[k]))
			return is_canonical_nan(op->type, result, i);
		return float_near(op, b->sums[k], b->sizes[k], count, divisor,
				  float_get(op->type, result, i));
	}
	got = integer_get(op->type, result, i);
	if (divisor != 1)
		word = integer_divided(op->type, word, (uint64_t)divisor);
	return memcmp(&got, &word, rubato_type_bytes(op->type)) == 0;
}

bool laws_result_right(const struct laws_op *op, const struct laws_part *parts, uint32_t part_count,
		       double divisor, const void *result, uint64_t *at)
{
	uint32_t count = op->trial->world.rank_count;
	struct block b;

	for (uint32_t p = 0; p < part_count; p++)
		count += parts[p].count;
	for (uint64_t first = 0; first < op->count; first += BLOCK) {
		uint64_t length = op->count - first < BLOCK ? op->count - first : BLOCK;

		for (uint64_t k = 0; k < length; k++) {
			b.sums[k] = float_identity(op->reduction);
			b.sizes[k] = 0;
			b.words[k] = integer_identity(op);
		}
		for (uint32_t p = 0; p < part_count; p++)
			for (uint32_t c = 0; c < parts[p].count; c++)
				block_add(op, &b, key_of(op, parts[p].rank, parts[p].first + c),
					  first, length);
		for (uint64_t k = 0; k < length; k++) {
			*at = first + k;
			if (!element_right(op, &b, k, count, divisor, result, first + k))
				return false;
		}
	}
	return true;
}

uint64_t laws_digest(const void *bytes, size_t size_bytes)
{
	const uint8_t *at = bytes;
	uint64_t digest = size_bytes, word = 0;

	for (; size_bytes >= 8; size_bytes -= 8, at += 8) {
		memcpy(&word, at, 8);
		digest = (digest ^ word) * GOLDEN;
		digest ^= digest >> 29;
	}
	word = 0;
	memcpy(&word, at, size_bytes);
	return rng_mix(digest ^ word) | 1;
}

/* ---- Memory of devices ---- */

void *laws_device_new(rubato_comm *comm, const struct laws_trial *trial, size_t bytes)
{
	void *there = NULL;

	if (!trial->device || rubato_sim_device_alloc(comm, bytes, false, &there) != RUBATO_OK)
		return NULL;
	return there;
}

const void *laws_device_put(rubato_comm *comm, void *there, const void *buffer, size_t bytes)
{
	if (there == NULL)
		return buffer;
	rubato_sim_device_copy(comm, there, buffer, bytes);
	return there;
}

void laws_device_spoil(rubato_comm *comm, void *there, size_t bytes)
{
	uint8_t other[4096];

	memset(other, 0x5a, sizeof(other));
	for (size_t at = 0; there != NULL && at < bytes; at += sizeof(other))
		rubato_sim_device_copy(comm, (uint8_t *)there + at, other,
				       bytes - at < sizeof(other) ? bytes - at : sizeof(other));
}
