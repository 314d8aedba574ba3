/* compressed_mean.c -- a piece is extras (doubles), scales (int8: a float a block), codes, and
 * zeros up to a multiple of 8 bytes. */
#include "trainer/rules/compressed_mean.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT8_MOST 127.0f

struct tr_compressed_mean {
	rubato_comm *comm;
	enum tr_compression kind;
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
	return (count + TR_SCALE_BLOCK - 1) / TR_SCALE_BLOCK;
}

static size_t piece_bytes(const struct tr_compressed_mean *compressed, size_t count,
			  uint32_t extra_count)
{
	size_t bytes = extra_count * sizeof(double);

	if (compressed->kind == TR_COMPRESSION_INT8)
		bytes += block_count(count) * sizeof(float) + count;
	else
		bytes += count * sizeof(uint16_t);
	return (bytes + 7) / 8 * 8;
}

static size_t shard_begin(const struct tr_compressed_mean *compressed, uint32_t rank)
{
	size_t begin = rank * compressed->shard;

	return begin < compressed->count ? begin : compressed->count;
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

static void encode(enum tr_compression kind, float *values, size_t count, uint8_t *at)
{
	size_t blocks = block_count(count);
	int8_t *codes = (int8_t *)(at + blocks * sizeof(float));

	if (kind == TR_COMPRESSION_BF16) {
		encode_bf16(values, count, at);
		return;
	}
	for (size_t b = 0; b < blocks; b++) {
		size_t first = b * TR_SCALE_BLOCK, left = count - first;
		float scale;

		encode_block(values + first, left < TR_SCALE_BLOCK ? left : TR_SCALE_BLOCK, &scale,
			     codes + first);
		memcpy(at + b * sizeof(scale), &scale, sizeof(scale));
	}
}

/* sum[i] += what was encoded. */
static void decode_add(enum tr_compression kind, const uint8_t *at, size_t count, float *sum)
{
	const int8_t *codes = (const int8_t *)(at + block_count(count) * sizeof(float));

	for (size_t i = 0; kind == TR_COMPRESSION_BF16 && i < count; i++) {
		uint16_t code;

		memcpy(&code, at + i * sizeof(code), sizeof(code));
		sum[i] += rubato_bfloat16_to_float32(code);
	}
	for (size_t i = 0; kind == TR_COMPRESSION_INT8 && i < count; i++) {
		float scale;

		memcpy(&scale, at + i / TR_SCALE_BLOCK * sizeof(scale), sizeof(scale));
		sum[i] += scale * (float)codes[i];
	}
}

/* ---- The mean ---- */

void tr_compressed_mean_close(struct tr_compressed_mean *compressed)
{
	if (compressed == NULL)
		return;
	rubato_op_free(compressed->there);
	rubato_op_free(compressed->back);
	(void)rubato_free(compressed->comm, compressed->pieces);
	(void)rubato_free(compressed->comm, compressed->returns);
	free(compressed->lost);
	free(compressed->shard_lost);
	free(compressed->mean);
	free(compressed);
}

static rubato_status open_pieces(struct tr_compressed_mean *compressed, struct tr_error *error)
{
	void *pieces, *returns;

	compressed->lost = calloc(compressed->count + 1, sizeof(float));
	compressed->shard_lost = calloc(compressed->shard + 1, sizeof(float));
	compressed->mean = calloc(compressed->shard + 1, sizeof(float));
	if (compressed->lost == NULL || compressed->shard_lost == NULL || compressed->mean == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--wire: out of memory");
	TR_TRY(tr_check(error,
			rubato_alloc(compressed->comm,
				     compressed->rank_count * compressed->out_bytes, &pieces),
			"alloc of rounded values"));
	compressed->pieces = pieces;
	TR_TRY(tr_check(error,
			rubato_alloc(compressed->comm,
				     compressed->rank_count * compressed->back_bytes, &returns),
			"alloc of rounded means"));
	compressed->returns = returns;
	TR_TRY(tr_check(error,
			rubato_op_alltoall(compressed->comm, pieces, pieces, compressed->out_bytes,
					   RUBATO_UINT8, &compressed->there),
			"op_alltoall of rounded values"));
	return tr_check(error,
			rubato_op_allgather(
				compressed->comm,
				compressed->returns + compressed->rank * compressed->back_bytes,
				returns, compressed->back_bytes, RUBATO_UINT8, &compressed->back),
			"op_allgather of rounded means");
}

rubato_status tr_compressed_mean_open(struct tr_compressed_mean **out, rubato_comm *comm,
				      enum tr_compression kind, size_t count, uint32_t extra_count,
				      struct tr_error *error)
{
	struct tr_compressed_mean *compressed = calloc(1, sizeof(*compressed));
	rubato_status err;

	if (compressed == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--wire: out of memory");
	compressed->comm = comm;
	compressed->kind = kind;
	compressed->rank = rubato_rank(comm);
	compressed->rank_count = rubato_size(comm);
	compressed->extra_count = extra_count;
	compressed->count = count;
	compressed->shard = (count + compressed->rank_count - 1) / compressed->rank_count;
	compressed->out_bytes = piece_bytes(compressed, compressed->shard, extra_count);
	compressed->back_bytes = piece_bytes(compressed, compressed->shard, 0);
	err = open_pieces(compressed, error);
	if (err) {
		tr_compressed_mean_close(compressed);
		return err;
	}
	*out = compressed;
	return RUBATO_OK;
}

rubato_status tr_compressed_mean_begin(struct tr_compressed_mean *compressed, const float *values,
				       const double *extras, struct tr_error *error)
{
	for (size_t i = 0; i < compressed->count; i++)
		compressed->lost[i] += values[i];
	for (uint32_t r = 0; r < compressed->rank_count; r++) {
		size_t begin = shard_begin(compressed, r), end = shard_begin(compressed, r + 1);
		uint8_t *piece = compressed->pieces + r * compressed->out_bytes;

		if (compressed->extra_count > 0)
			memcpy(piece, extras, compressed->extra_count * sizeof(double));
		encode(compressed->kind, compressed->lost + begin, end - begin,
		       piece + compressed->extra_count * sizeof(double));
	}
	return tr_check(error, rubato_start(compressed->there), "start of rounded values");
}

/* The mean of what all ranks sent to this shard, to be returned. */
static void reduce_shard(struct tr_compressed_mean *compressed, double *extras)
{
	size_t begin = shard_begin(compressed, compressed->rank),
	       end = shard_begin(compressed, compressed->rank + 1);
	float *mean = compressed->mean;

	memset(mean, 0, compressed->shard * sizeof(*mean));
	for (uint32_t e = 0; e < compressed->extra_count; e++)
		extras[e] = 0.0;
	for (uint32_t r = 0; r < compressed->rank_count; r++) {
		const uint8_t *piece = compressed->pieces + r * compressed->out_bytes;

		for (uint32_t e = 0; e < compressed->extra_count; e++) {
			double extra;

			memcpy(&extra, piece + e * sizeof(extra), sizeof(extra));
			extras[e] += extra;
		}
		decode_add(compressed->kind, piece + compressed->extra_count * sizeof(double),
			   end - begin, mean);
	}
	for (uint32_t e = 0; e < compressed->extra_count; e++)
		extras[e] /= compressed->rank_count;
	for (size_t i = 0; i < end - begin; i++)
		compressed->shard_lost[i] += mean[i] / (float)compressed->rank_count;
	encode(compressed->kind, compressed->shard_lost, end - begin,
	       compressed->returns + compressed->rank * compressed->back_bytes);
}

rubato_status tr_compressed_mean_end(struct tr_compressed_mean *compressed, float *mean,
				     double *extras, struct tr_error *error)
{
	TR_TRY(tr_check(error, rubato_wait(compressed->there, RUBATO_TIMEOUT_DEFAULT),
			"wait for rounded values"));
	reduce_shard(compressed, extras);
	TR_TRY(tr_check(error, rubato_start(compressed->back), "start of rounded means"));
	TR_TRY(tr_check(error, rubato_wait(compressed->back, RUBATO_TIMEOUT_DEFAULT),
			"wait for rounded means"));
	for (uint32_t r = 0; r < compressed->rank_count; r++) {
		size_t begin = shard_begin(compressed, r), end = shard_begin(compressed, r + 1);

		memset(mean + begin, 0, (end - begin) * sizeof(*mean));
		decode_add(compressed->kind, compressed->returns + r * compressed->back_bytes,
			   end - begin, mean + begin);
	}
	return RUBATO_OK;
}

rubato_status tr_compressed_mean_keep(struct tr_compressed_mean *compressed, const char *name,
				      struct tr_archive *archive, struct tr_error *error)
{
	char piece[64];

	snprintf(piece, sizeof(piece), "%s.lost", name);
	TR_TRY(tr_archive_bytes(archive, piece, compressed->lost, compressed->count * sizeof(float),
				error));
	snprintf(piece, sizeof(piece), "%s.shard_lost", name);
	return tr_archive_bytes(archive, piece, compressed->shard_lost,
				compressed->shard * sizeof(float), error);
}
