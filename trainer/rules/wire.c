/* wire.c -- a piece is extras (doubles), scales (int8: a float a block), codes, and zeros up to a
 * multiple of 8 bytes. */
#include "trainer/rules/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT8_MOST 127.0f

struct tr_wire_mean {
	rubato_comm *comm;
	enum tr_wire kind;
	uint32_t rank, rank_count, extra_count;
	size_t count, shard; /* Floats: of the vector, of the longest shard. */
	size_t out_bytes;    /* Of a piece that goes to a shard; */
	size_t back_bytes;   /* of one that comes back: it has no extras. */
	uint8_t *pieces;     /* [rank_count] there, then in their place: from all. */
	uint8_t *returns;    /* [rank_count] */
	float *lost;         /* [count]: by rounding of this rank's vector, */
	float *shard_lost;   /* [shard]: and of the mean of its shard. */
	float *mean;         /* [shard]: scratch. */
	rubato_op *there, *back;
};

static size_t block_count(size_t count)
{
	return (count + TR_WIRE_BLOCK - 1) / TR_WIRE_BLOCK;
}

static size_t piece_bytes(const struct tr_wire_mean *wire, size_t count, uint32_t extra_count)
{
	size_t bytes = extra_count * sizeof(double);

	if (wire->kind == TR_WIRE_INT8)
		bytes += block_count(count) * sizeof(float) + count;
	else
		bytes += count * sizeof(uint16_t);
	return (bytes + 7) / 8 * 8;
}

static size_t shard_begin(const struct tr_wire_mean *wire, uint32_t rank)
{
	size_t begin = rank * wire->shard;

	return begin < wire->count ? begin : wire->count;
}

/* ---- Rounding: of `values`, which afterwards hold what it lost ---- */

static void encode_bf16(float *values, size_t count, uint8_t *at)
{
	for (size_t i = 0; i < count; i++) {
		uint16_t code = rubato_float32_to_bfloat16(values[i]);

		memcpy(at + i * sizeof(code), &code, sizeof(code));
		values[i] -= rubato_bfloat16_to_float32(code);
	}
}

static void encode_block(float *values, size_t count, float *scale, int8_t *codes)
{
	float most = 0.0f;
	bool finite = true;

	for (size_t i = 0; i < count; i++) {
		finite = finite && isfinite(values[i]);
		most = fmaxf(most, fabsf(values[i]));
	}
	*scale = finite ? most / INT8_MOST : NAN;
	for (size_t i = 0; i < count; i++) {
		float code = *scale > 0.0f ? rintf(values[i] / *scale) : 0.0f;

		if (!(fabsf(code) <= INT8_MOST)) /* The scale is subnormal, and coarse. */
			code = code > 0.0f ? INT8_MOST : -INT8_MOST;
		codes[i] = (int8_t)code;
		values[i] -= *scale * code;
	}
}

static void encode(enum tr_wire kind, float *values, size_t count, uint8_t *at)
{
	size_t blocks = block_count(count);
	int8_t *codes = (int8_t *)(at + blocks * sizeof(float));

	if (kind == TR_WIRE_BF16) {
		encode_bf16(values, count, at);
		return;
	}
	for (size_t b = 0; b < blocks; b++) {
		size_t first = b * TR_WIRE_BLOCK, left = count - first;
		float scale;

		encode_block(values + first, left < TR_WIRE_BLOCK ? left : TR_WIRE_BLOCK, &scale,
			     codes + first);
		memcpy(at + b * sizeof(scale), &scale, sizeof(scale));
	}
}

/* sum[i] += what was encoded. */
static void decode_add(enum tr_wire kind, const uint8_t *at, size_t count, float *sum)
{
	const int8_t *codes = (const int8_t *)(at + block_count(count) * sizeof(float));

	for (size_t i = 0; kind == TR_WIRE_BF16 && i < count; i++) {
		uint16_t code;

		memcpy(&code, at + i * sizeof(code), sizeof(code));
		sum[i] += rubato_bfloat16_to_float32(code);
	}
	for (size_t i = 0; kind == TR_WIRE_INT8 && i < count; i++) {
		float scale;

		memcpy(&scale, at + i / TR_WIRE_BLOCK * sizeof(scale), sizeof(scale));
		sum[i] += scale * (float)codes[i];
	}
}

/* ---- The mean ---- */

void tr_wire_close(struct tr_wire_mean *wire)
{
	if (wire == NULL)
		return;
	rubato_op_free(wire->there);
	rubato_op_free(wire->back);
	(void)rubato_free(wire->comm, wire->pieces);
	(void)rubato_free(wire->comm, wire->returns);
	free(wire->lost);
	free(wire->shard_lost);
	free(wire->mean);
	free(wire);
}

static rubato_status open_pieces(struct tr_wire_mean *wire, struct tr_error *error)
{
	void *pieces, *returns;

	wire->lost = calloc(wire->count + 1, sizeof(float));
	wire->shard_lost = calloc(wire->shard + 1, sizeof(float));
	wire->mean = calloc(wire->shard + 1, sizeof(float));
	if (wire->lost == NULL || wire->shard_lost == NULL || wire->mean == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--wire: out of memory");
	TR_TRY(tr_check(error,
			rubato_alloc(wire->comm, wire->rank_count * wire->out_bytes, &pieces),
			"alloc of rounded values"));
	wire->pieces = pieces;
	TR_TRY(tr_check(error,
			rubato_alloc(wire->comm, wire->rank_count * wire->back_bytes, &returns),
			"alloc of rounded means"));
	wire->returns = returns;
	TR_TRY(tr_check(error,
			rubato_op_alltoall(wire->comm, pieces, pieces, wire->out_bytes,
					   RUBATO_UINT8, &wire->there),
			"op_alltoall of rounded values"));
	return tr_check(error,
			rubato_op_allgather(wire->comm,
					    wire->returns + wire->rank * wire->back_bytes, returns,
					    wire->back_bytes, RUBATO_UINT8, &wire->back),
			"op_allgather of rounded means");
}

rubato_status tr_wire_open(struct tr_wire_mean **out, rubato_comm *comm, enum tr_wire kind,
			   size_t count, uint32_t extra_count, struct tr_error *error)
{
	struct tr_wire_mean *wire = calloc(1, sizeof(*wire));
	rubato_status err;

	if (wire == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--wire: out of memory");
	wire->comm = comm;
	wire->kind = kind;
	wire->rank = rubato_rank(comm);
	wire->rank_count = rubato_size(comm);
	wire->extra_count = extra_count;
	wire->count = count;
	wire->shard = (count + wire->rank_count - 1) / wire->rank_count;
	wire->out_bytes = piece_bytes(wire, wire->shard, extra_count);
	wire->back_bytes = piece_bytes(wire, wire->shard, 0);
	err = open_pieces(wire, error);
	if (err) {
		tr_wire_close(wire);
		return err;
	}
	*out = wire;
	return RUBATO_OK;
}

rubato_status tr_wire_begin(struct tr_wire_mean *wire, const float *values, const double *extras,
			    struct tr_error *error)
{
	for (size_t i = 0; i < wire->count; i++)
		wire->lost[i] += values[i];
	for (uint32_t r = 0; r < wire->rank_count; r++) {
		size_t begin = shard_begin(wire, r), end = shard_begin(wire, r + 1);
		uint8_t *piece = wire->pieces + r * wire->out_bytes;

		if (wire->extra_count > 0)
			memcpy(piece, extras, wire->extra_count * sizeof(double));
		encode(wire->kind, wire->lost + begin, end - begin,
		       piece + wire->extra_count * sizeof(double));
	}
	return tr_check(error, rubato_start(wire->there), "start of rounded values");
}

/* The mean of what all ranks sent to this shard, to be returned. */
static void reduce_shard(struct tr_wire_mean *wire, double *extras)
{
	size_t begin = shard_begin(wire, wire->rank), end = shard_begin(wire, wire->rank + 1);
	float *mean = wire->mean;

	memset(mean, 0, wire->shard * sizeof(*mean));
	for (uint32_t e = 0; e < wire->extra_count; e++)
		extras[e] = 0.0;
	for (uint32_t r = 0; r < wire->rank_count; r++) {
		const uint8_t *piece = wire->pieces + r * wire->out_bytes;

		for (uint32_t e = 0; e < wire->extra_count; e++) {
			double extra;

			memcpy(&extra, piece + e * sizeof(extra), sizeof(extra));
			extras[e] += extra;
		}
		decode_add(wire->kind, piece + wire->extra_count * sizeof(double), end - begin,
			   mean);
	}
	for (uint32_t e = 0; e < wire->extra_count; e++)
		extras[e] /= wire->rank_count;
	for (size_t i = 0; i < end - begin; i++)
		wire->shard_lost[i] += mean[i] / (float)wire->rank_count;
	encode(wire->kind, wire->shard_lost, end - begin,
	       wire->returns + wire->rank * wire->back_bytes);
}

rubato_status tr_wire_end(struct tr_wire_mean *wire, float *mean, double *extras,
			  struct tr_error *error)
{
	TR_TRY(tr_check(error, rubato_wait(wire->there, RUBATO_TIMEOUT_DEFAULT),
			"wait for rounded values"));
	reduce_shard(wire, extras);
	TR_TRY(tr_check(error, rubato_start(wire->back), "start of rounded means"));
	TR_TRY(tr_check(error, rubato_wait(wire->back, RUBATO_TIMEOUT_DEFAULT),
			"wait for rounded means"));
	for (uint32_t r = 0; r < wire->rank_count; r++) {
		size_t begin = shard_begin(wire, r), end = shard_begin(wire, r + 1);

		memset(mean + begin, 0, (end - begin) * sizeof(*mean));
		decode_add(wire->kind, wire->returns + r * wire->back_bytes, end - begin,
			   mean + begin);
	}
	return RUBATO_OK;
}

rubato_status tr_wire_keep(struct tr_wire_mean *wire, const char *name, struct tr_archive *archive,
			   struct tr_error *error)
{
	char piece[64];

	snprintf(piece, sizeof(piece), "%s.lost", name);
	TR_TRY(tr_archive_bytes(archive, piece, wire->lost, wire->count * sizeof(float), error));
	snprintf(piece, sizeof(piece), "%s.shard_lost", name);
	return tr_archive_bytes(archive, piece, wire->shard_lost, wire->shard * sizeof(float),
				error);
}
