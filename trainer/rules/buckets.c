/* buckets.c -- see buckets.h. */
#include "trainer/rules/buckets.h"

#include <string.h>

rubato_status tr_cut_make(struct tr_cut *cut, size_t total, uint64_t size_bytes,
			  struct tr_error *error)
{
	uint64_t size = size_bytes / (TR_BUCKET_ALIGN * sizeof(float)) * TR_BUCKET_ALIGN;
	uint64_t count = size == 0 ? 1 : (total + size - 1) / size;

	if (count > TR_BUCKETS_MAX)
		return tr_refuse(error,
				 "--bucket %llu would cut %zu parameters into %llu buckets; at "
				 "most %d",
				 (unsigned long long)size_bytes, total, (unsigned long long)count,
				 TR_BUCKETS_MAX);
	*cut = (struct tr_cut) { .total = total,
				 .size = count == 1 ? total : size,
				 .count = (uint32_t)count };
	return RUBATO_OK;
}

size_t tr_cut_begin(const struct tr_cut *cut, uint32_t bucket)
{
	if (bucket + 1 >= cut->count)
		return 0;
	size_t begin = cut->total - (bucket + 1) * cut->size;
	return (begin + TR_BUCKET_ALIGN - 1) / TR_BUCKET_ALIGN * TR_BUCKET_ALIGN;
}

size_t tr_cut_end(const struct tr_cut *cut, uint32_t bucket)
{
	return bucket == 0 ? cut->total : tr_cut_begin(cut, bucket - 1);
}

rubato_status tr_buckets_open(struct tr_buckets *buckets, rubato_comm *comm,
			      const struct tr_vectors *vectors, const struct tr_cut *cut,
			      float *vector, struct tr_error *error)
{
	memset(buckets, 0, sizeof(*buckets));
	buckets->comm = comm;
	buckets->vectors = vectors;
	buckets->cut = *cut;
	for (uint32_t i = 0; i < cut->count; i++) {
		size_t begin = tr_cut_begin(cut, i);
		float *at = vector + begin;

		TR_TRY(tr_check(error,
				rubato_op_allreduce(comm, at, at, tr_cut_end(cut, i) - begin,
						    RUBATO_FLOAT32, RUBATO_AVG,
						    &buckets->average[i]),
				"op_allreduce of a bucket"));
	}
	return RUBATO_OK;
}

void tr_buckets_close(struct tr_buckets *buckets)
{
	for (uint32_t i = 0; i < buckets->cut.count; i++)
		rubato_op_free(buckets->average[i]);
	buckets->cut.count = 0;
}

rubato_status tr_buckets_ready(struct tr_buckets *buckets, size_t first, struct tr_error *error)
{
	while (buckets->started < buckets->cut.count &&
	       tr_cut_begin(&buckets->cut, buckets->started) >= first)
		TR_TRY(buckets->vectors->start(buckets->vectors,
					       buckets->average[buckets->started++],
					       "start of a bucket's allreduce", error));
	return RUBATO_OK;
}

rubato_status tr_buckets_over(struct tr_buckets *buckets, uint32_t *over, struct tr_error *error)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	TR_TRY(tr_check(error, rubato_get_stats(buckets->comm, &stats), "get_stats"));
	*over = stats.operations_in_flight < buckets->started
			? buckets->started - stats.operations_in_flight
			: 0;
	return RUBATO_OK;
}

rubato_status tr_buckets_wait(struct tr_buckets *buckets, uint32_t bucket, struct tr_error *error)
{
	return tr_check(error, rubato_wait(buckets->average[bucket], RUBATO_TIMEOUT_DEFAULT),
			"allreduce of a bucket");
}

void tr_buckets_again(struct tr_buckets *buckets)
{
	buckets->started = 0;
}
