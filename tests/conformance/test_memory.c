/* test_memory.c -- regions, keys, puts, mapped memory, words. Skips what a transport lacks. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define MIB (1u << 20)

/* Every rank's key, by way of the test's own memory. */
static void keys_share(struct conform_rank *r, struct rb_region *region)
{
	rubato_status err;

	r->shared->key[r->rank].size_bytes = RB_KEY_BYTES_MAX;
	err = r->ops->region_key(r->ep, region, r->shared->key[r->rank].bytes,
				 &r->shared->key[r->rank].size_bytes);
	ck_assert_msg(err == RUBATO_OK, "key: %s", rubato_error_text());
	ck_assert_uint_le(r->shared->key[r->rank].size_bytes, RB_KEY_BYTES_MAX);
	conform_barrier(r, "keys");
}

static struct rb_remote *remote_of(struct conform_rank *r, uint32_t peer, size_t size_bytes)
{
	struct rb_remote *remote = NULL;
	rubato_status err = r->ops->remote_open(r->ep, peer, r->shared->key[peer].bytes,
						r->shared->key[peer].size_bytes, &remote);

	ck_assert_msg(err == RUBATO_OK, "remote of rank %u: %s", peer, rubato_error_text());
	ck_assert_uint_eq(remote->peer, peer);
	ck_assert_uint_eq(remote->size_bytes, size_bytes);
	return remote;
}

static struct rb_region *region_of(struct conform_rank *r, size_t size_bytes)
{
	struct rb_region *region = NULL;
	rubato_status err = r->ops->region_alloc(r->ep, size_bytes, &region);
	const uint8_t *bytes;

	ck_assert_msg(err == RUBATO_OK, "region of %zu bytes: %s", size_bytes, rubato_error_text());
	ck_assert_uint_eq(region->size_bytes, size_bytes);
	ck_assert(region->allocated);
	ck_assert_uint_eq((uintptr_t)region->base % 4096, 0);
	bytes = region->base;
	for (size_t i = 0; i < size_bytes; i++)
		CONFORM(bytes[i] == 0, "byte %zu is not zero", i);
	return region;
}

/* ---- Allocation ---- */

/* Regions do not overlap, and come zeroed also the second time. */
static void regions(struct conform_rank *r)
{
	enum { COUNT = 40, ROUNDS = 4 };
	struct rb_region *all[COUNT] = { NULL };

	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < COUNT; i++) {
			if (all[i] != NULL && rb_rng_below(&r->rng, 2) == 0) {
				conform_verify(all[i]->base, all[i]->size_bytes, i);
				r->ops->region_drop(r->ep, all[i]);
				all[i] = NULL;
			}
			if (all[i] == NULL) {
				all[i] = region_of(r, 1 + rb_rng_below(&r->rng, 60000));
				conform_fill(all[i]->base, all[i]->size_bytes, i);
			}
		}
	}
	for (uint32_t i = 0; i < COUNT; i += 2) { /* The rest is left to close. */
		conform_verify(all[i]->base, all[i]->size_bytes, i);
		r->ops->region_drop(r->ep, all[i]);
	}
}

START_TEST(test_regions)
{
	conform_run(2, regions);
}
END_TEST

/* ---- Puts ---- */

static const size_t put_bytes[] = { 0, 1, 8, 4096, 40000, MIB, 3 * MIB + 5 };
#define PUT_COUNT (sizeof(put_bytes) / sizeof(put_bytes[0]))
#define PUT_REGION (4 * MIB)

/*
 * Everybody puts into the next rank's region, at an odd offset; when the empty message is there the
 * bytes are, and no others have changed.
 */
static void put_ring(struct conform_rank *r, uint8_t *memory)
{
	uint32_t next = (r->rank + 1) % r->rank_count;
	uint32_t before = (r->rank + r->rank_count - 1) % r->rank_count;
	struct rb_remote *remote = remote_of(r, next, PUT_REGION);
	uint8_t *source = malloc(PUT_REGION);

	ck_assert_ptr_nonnull(source);
	for (uint64_t i = 0; i < PUT_COUNT; i++) {
		struct conform_request put, recv;
		uint64_t offset = 3 + i;

		memset(memory, 0x5a, PUT_REGION);
		conform_barrier(r, "targets are ready");
		if (i % 2 == 0)
			conform_recv(r, &recv, before, i, NULL, 0);
		conform_fill(source, put_bytes[i], 100 * i + r->rank);
		conform_put(r, &put, next, i, source, put_bytes[i], remote, offset);
		if (i % 2 == 1)
			conform_recv(r, &recv, before, i, NULL, 0);
		conform_finish_ok(r, &recv);
		conform_verify(memory + offset, put_bytes[i], 100 * i + before);
		ck_assert_uint_eq(memory[offset - 1], 0x5a);
		ck_assert_uint_eq(memory[offset + put_bytes[i]], 0x5a);
		conform_finish_ok(r, &put);
		conform_barrier(r, "puts are done");
	}
	r->ops->remote_close(r->ep, remote);
	free(source);
}

static void put_allocated(struct conform_rank *r)
{
	struct rb_region *region = region_of(r, PUT_REGION);

	keys_share(r, region);
	put_ring(r, region->base);
	r->ops->region_drop(r->ep, region);
}

static void put_added(struct conform_rank *r)
{
	uint8_t *memory = malloc(PUT_REGION);
	struct rb_region *region = NULL;
	rubato_status err;

	ck_assert_ptr_nonnull(memory);
	err = r->ops->region_add(r->ep, memory, PUT_REGION, &region);
	ck_assert_msg(err == RUBATO_OK, "add: %s", rubato_error_text());
	ck_assert(!region->allocated);
	ck_assert_ptr_eq(region->base, memory);
	keys_share(r, region);
	put_ring(r, memory);
	r->ops->region_drop(r->ep, region);
	free(memory);
}

START_TEST(test_put_allocated)
{
	static const uint32_t counts[] = { 1, 2, 3 };

	if ((conform_backend.ops->caps & RB_CAP_PUT) != 0)
		conform_run(counts[_i], put_allocated);
}
END_TEST

START_TEST(test_put_added)
{
	static const uint32_t counts[] = { 1, 2, 3 };

	if ((conform_backend.ops->caps & RB_CAP_PUT) != 0)
		conform_run(counts[_i], put_added);
}
END_TEST

/* A put beyond the region ends with an error here, and writes nothing there. */
static void put_outside(struct conform_rank *r)
{
	struct rb_region *region = region_of(r, 8192);
	uint8_t bytes[100] = { 1 };
	struct conform_request c;
	struct rb_remote *remote;

	keys_share(r, region);
	remote = remote_of(r, 1 - r->rank, 8192);
	conform_put(r, &c, 1 - r->rank, 1, bytes, sizeof(bytes), remote, 8100);
	conform_finish(r, &c);
	ck_assert_int_eq(c.request.status, RUBATO_ERR_ARGUMENT);
	conform_put(r, &c, 1 - r->rank, 1, bytes, sizeof(bytes), remote, UINT64_MAX - 50);
	conform_finish(r, &c);
	ck_assert_int_eq(c.request.status, RUBATO_ERR_ARGUMENT);
	conform_barrier(r, "bad puts");
	for (size_t i = 0; i < 8192; i++)
		CONFORM(((uint8_t *)region->base)[i] == 0, "byte %zu was written", i);
}

START_TEST(test_put_outside)
{
	if ((conform_backend.ops->caps & RB_CAP_PUT) != 0)
		conform_run(2, put_outside);
}
END_TEST

/* A key says what memory it is of: what no endpoint here takes is not opened, nor put into. */
static void put_kinds(struct conform_rank *r)
{
	bool simulated = (r->ops->caps & RB_CAP_VIRTUAL_TIME) != 0; /* Which knows the truth. */
	bool far = strcmp(r->ops->name, "verbs") == 0; /* Where it is its owner's affair. */
	struct rb_region *region = region_of(r, 8192);
	uint8_t bytes[100] = { 1 };
	struct rb_remote *remote = NULL;
	struct conform_request c;
	rubato_status err;

	region->kind = RB_MEMORY_DEVICE;
	keys_share(r, region);
	err = r->ops->remote_open(r->ep, 1 - r->rank, r->shared->key[1 - r->rank].bytes,
				  r->shared->key[1 - r->rank].size_bytes, &remote);
	if (far) { /* test_cuda_rdma.c puts there. */
		ck_assert_int_eq(err, RUBATO_OK);
		r->ops->remote_close(r->ep, remote);
		return;
	}
	ck_assert_int_eq(err, simulated ? RUBATO_ERR_PEER : RUBATO_ERR_UNSUPPORTED);
	ck_assert_ptr_null(remote);
	conform_barrier(r, "device");
	region->kind = simulated ? RB_MEMORY_HOST : RB_MEMORY_MANAGED;
	keys_share(r, region);
	remote = remote_of(r, 1 - r->rank, 8192);
	ck_assert_int_eq(remote->kind, region->kind);
	remote->kind = RB_MEMORY_DEVICE;
	conform_put(r, &c, 1 - r->rank, 1, bytes, sizeof(bytes), remote, 0);
	conform_finish(r, &c);
	ck_assert_int_eq(c.request.status, RUBATO_ERR_UNSUPPORTED);
	conform_barrier(r, "kinds");
	for (size_t i = 0; i < 8192; i++)
		CONFORM(((uint8_t *)region->base)[i] == 0, "byte %zu was written", i);
	r->ops->remote_close(r->ep, remote);
}

START_TEST(test_put_kinds)
{
	if ((conform_backend.ops->caps & RB_CAP_PUT) != 0)
		conform_run(2, put_kinds);
}
END_TEST

/* Garbage is no key. */
static void bad_key(struct conform_rank *r)
{
	uint8_t bytes[RB_KEY_BYTES_MAX];
	struct rb_remote *remote = NULL;

	memset(bytes, 0xff, sizeof(bytes));
	ck_assert_int_ne(r->ops->remote_open(r->ep, 1 - r->rank, bytes, 3, &remote), RUBATO_OK);
	ck_assert_ptr_null(remote);
}

START_TEST(test_bad_key)
{
	conform_run(2, bad_key);
}
END_TEST

/* ---- Mapped memory ---- */

/*
 * Rank 0 writes to its own memory and sends; rank 1 sees it through its mapping. Then rank 1
 * stores into rank 0's memory and sends; rank 0 sees it. Many rounds, so that order matters.
 */
static void mapped_rounds(struct conform_rank *r, uint64_t *words)
{
	enum { WORDS = 32 };
	const uint32_t rounds = conform_rounds(2000);

	for (uint64_t i = 0; i < rounds; i++) {
		struct conform_request c;
		uint64_t turn = i % 2, small = i;

		if (turn == r->rank) {
			for (uint64_t k = 0; k < WORDS; k++)
				words[k] = i * 1000 + k;
			conform_send(r, &c, 1 - r->rank, i, &small, sizeof(small));
			conform_finish_ok(r, &c);
		} else {
			conform_recv(r, &c, 1 - r->rank, i, &small, sizeof(small));
			conform_finish_ok(r, &c);
			for (uint64_t k = 0; k < WORDS; k++)
				CONFORM(words[k] == i * 1000 + k, "round %llu, word %llu is %llu",
					(unsigned long long)i, (unsigned long long)k,
					(unsigned long long)words[k]);
		}
	}
}

static void mapped(struct conform_rank *r)
{
	struct rb_region *region = region_of(r, 8192);
	struct rb_remote *remote;

	keys_share(r, region);
	remote = remote_of(r, 0, 8192);
	if (remote->mapped != NULL) /* Networks: NULL, rightly. */
		mapped_rounds(r, r->rank == 0 ? region->base : remote->mapped);
	else
		ck_assert_msg(conform_backend.no_map, "a region of rank 0 is not mapped");
	conform_barrier(r, "the end of mapped memory");
	r->ops->remote_close(r->ep, remote);
}

START_TEST(test_mapped)
{
	if ((conform_backend.ops->caps & RB_CAP_MAP) != 0)
		conform_run(2, mapped);
}
END_TEST

/* ---- Words ---- */

static void words(struct conform_rank *r)
{
	struct rb_region *region = region_of(r, 3 * 4096);
	uint8_t *bytes = region->base;
	uint64_t outside = 0, word;

	word = r->ops->word_of(r->ep, bytes + 5000, 100);
	ck_assert_uint_ne(word, 0);
	ck_assert_ptr_eq(r->ops->word_map(r->ep, r->rank, word, 100), bytes + 5000);
	ck_assert_ptr_null(r->ops->word_map(r->ep, r->rank, word, UINT64_MAX));
	ck_assert_ptr_null(r->ops->word_map(r->ep, r->rank, word, (uint64_t)1 << 46));
	ck_assert_uint_eq(r->ops->word_of(r->ep, &outside, sizeof(outside)), 0);
	ck_assert_ptr_null(r->ops->word_map(r->ep, 0, 0, 0));
	ck_assert_ptr_null(r->ops->word_map(r->ep, 0, UINT64_MAX, 0));
	ck_assert_ptr_null(r->ops->word_map(r->ep, r->rank_count, word, 100));
	conform_fill(bytes, region->size_bytes, r->rank);
	atomic_store(&r->shared->word[r->rank], r->ops->word_of(r->ep, bytes, region->size_bytes));
	conform_barrier(r, "words");
	for (uint32_t i = 0; i < r->rank_count; i++) {
		const void *theirs = r->ops->word_map(r->ep, i, atomic_load(&r->shared->word[i]),
						      region->size_bytes);

		if (theirs != NULL)
			conform_verify(theirs, region->size_bytes, i);
		else
			ck_assert_msg(conform_backend.no_map, "the word of rank %u means nothing",
				      i);
	}
	conform_barrier(r, "the end of words");
}

START_TEST(test_words)
{
	if (conform_backend.ops->word_of != NULL)
		conform_run(3, words);
}
END_TEST

TCase *conform_memory_case(void)
{
	TCase *t = tcase_create("memory");

	tcase_add_test(t, test_regions);
	tcase_add_loop_test(t, test_put_allocated, 0, 3);
	tcase_add_loop_test(t, test_put_added, 0, 3);
	tcase_add_test(t, test_put_outside);
	tcase_add_test(t, test_put_kinds);
	tcase_add_test(t, test_bad_key);
	tcase_add_test(t, test_mapped);
	tcase_add_test(t, test_words);
	return t;
}
