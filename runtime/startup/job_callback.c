/*
 * job_callback.c -- start-up over the caller's own allgather: MPI's, for one.
 *
 * The callback blocks, and we cannot interrupt it. So no rank may stay away from a call that others
 * are in, or about to make: whoever fails says so in the next one, whatever that was to be, and
 * from then on nobody calls again. Every call begins with one word of each rank: how many bytes it
 * brings, or that it is done, or that it has failed. When all are done, all have succeeded.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/wire.h"
#include "runtime/startup/bootstrap.h"

#define MAGIC UINT64_C(0x31424f4f54414252) /* "RBATOOB1" */
#define HELLO_BYTES 32                     /* magic 8, nonce 16, rank 4, size 4 */
#define PIECE_BYTES 4096                   /* Of a blob, in one call: most need one. */
#define DONE (UINT64_MAX - 1)
#define FAILED UINT64_MAX
#define FEW 1024u /* Ranks whose words lie on the stack. */

struct blobs { /* One exchange's result: handed out until close. */
	struct blobs *next;
	const void **out;
	size_t *out_bytes;
	uint8_t *bytes;
};

struct callback {
	struct rb_bootstrap base; /* First. */
	rubato_allgather_function gather;
	void *arg;
	uint64_t *words;
	uint8_t *pieces; /* Of all ranks, then this rank's own. */
	struct blobs *blobs;
	bool over; /* Nobody calls any more. */
};

static void blobs_free(struct blobs *blobs)
{
	free(blobs->out);
	free(blobs->out_bytes);
	free(blobs->bytes);
	free(blobs);
}

static struct blobs *blobs_new(uint32_t rank_count, size_t size_bytes)
{
	struct blobs *blobs = calloc(1, sizeof(*blobs));

	if (blobs == NULL)
		return NULL;
	blobs->out = calloc(rank_count, sizeof(*blobs->out));
	blobs->out_bytes = calloc(rank_count, sizeof(*blobs->out_bytes));
	blobs->bytes = calloc(rank_count, size_bytes + 1);
	if (blobs->out == NULL || blobs->out_bytes == NULL || blobs->bytes == NULL) {
		blobs_free(blobs);
		return NULL;
	}
	return blobs;
}

static rubato_status gather(struct callback *c, const void *in, void *out, size_t size_bytes)
{
	int rc = c->gather(c->arg, in, out, size_bytes);

	if (rc == 0)
		return RUBATO_OK;
	c->over = true;
	return RB_FAIL(RUBATO_ERR_SYSTEM, "the allgather given to rubato_init_oob returned %d", rc);
}

/* Everybody's word; an error when somebody has failed, or is elsewhere. */
static rubato_status words_gather(struct callback *c, uint64_t word)
{
	if (c->over)
		return RB_FAIL(RUBATO_ERR_PEER, "start-up has failed on another rank");
	RB_TRY(gather(c, &word, c->words, sizeof(word)));
	for (uint32_t r = 0; r < c->base.rank_count; r++) {
		if (c->words[r] != FAILED && (c->words[r] == DONE) == (word == DONE) &&
		    (c->words[r] <= RB_BLOB_BYTES_MAX || word == DONE))
			continue;
		c->over = true;
		if (r == c->base.rank)
			continue;
		c->base.blames = c->words[r] == FAILED ? r + 1 : 0;
		return c->words[r] == FAILED
			       ? RB_FAIL(RUBATO_ERR_PEER,
					 "start-up failed on rank %u: its own text says why", r)
			       : RB_FAIL(RUBATO_ERR_MISMATCH,
					 "start-up: rank %u says %llu, rank %u %llu: is the "
					 "allgather's order that of the ranks?",
					 r, (unsigned long long)c->words[r], c->base.rank,
					 (unsigned long long)word);
	}
	c->over |= word == DONE;
	return RUBATO_OK;
}

/* Bytes `at` and on of everybody's blob. Without memory for them (blobs is NULL) the call is made
 * all the same: the others are on their way into it. */
static rubato_status piece_gather(struct callback *c, struct blobs *blobs, const uint8_t *in,
				  size_t in_bytes, size_t at, size_t most)
{
	size_t size_bytes = most - at < PIECE_BYTES ? most - at : PIECE_BYTES;
	uint8_t *own = c->pieces + (size_t)c->base.rank_count * PIECE_BYTES;

	memset(own, 0, size_bytes);
	if (at < in_bytes)
		memcpy(own, in + at, in_bytes - at < size_bytes ? in_bytes - at : size_bytes);
	RB_TRY(gather(c, own, c->pieces, size_bytes));
	for (uint32_t r = 0; blobs != NULL && r < c->base.rank_count; r++)
		memcpy(blobs->bytes + r * most + at, c->pieces + r * size_bytes, size_bytes);
	return RUBATO_OK;
}

static rubato_status callback_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
					const void *const **out, const size_t **out_bytes,
					uint64_t deadline_ns)
{
	struct callback *c = (struct callback *)b;
	size_t most = 0;

	RB_TRY(words_gather(c, in_bytes));
	for (uint32_t r = 0; r < b->rank_count; r++)
		most = c->words[r] > most ? (size_t)c->words[r] : most;
	struct blobs *blobs = blobs_new(b->rank_count, most);

	if (blobs != NULL) {
		blobs->next = c->blobs;
		c->blobs = blobs;
	}
	for (uint32_t r = 0; blobs != NULL && r < b->rank_count; r++) {
		blobs->out[r] = blobs->bytes + r * most;
		blobs->out_bytes[r] = (size_t)c->words[r];
	}
	for (size_t at = 0; at < most; at += PIECE_BYTES)
		RB_TRY(piece_gather(c, blobs, in, in_bytes, at, most));
	if (blobs == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: %u blobs of %zu bytes", b->rank_count,
			       most);
	if (rb_clock_ns() >= deadline_ns)
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "start-up: the allgather given to rubato_init_oob returned after "
			       "the deadline");
	*out = blobs->out;
	*out_bytes = blobs->out_bytes;
	return RUBATO_OK;
}

static rubato_status callback_end(struct rb_bootstrap *b, bool good)
{
	struct callback *c = (struct callback *)b;

	if (good)
		return words_gather(c, DONE);
	if (!c->over) {
		uint64_t word = FAILED;

		c->over = true;
		(void)c->gather(c->arg, &word, c->words, sizeof(word));
	}
	return RUBATO_OK;
}

static void callback_close(struct rb_bootstrap *b)
{
	struct callback *c = (struct callback *)b;

	while (c->blobs != NULL) {
		struct blobs *next = c->blobs->next;

		blobs_free(c->blobs);
		c->blobs = next;
	}
	free(c->words);
	free(c->pieces);
	free(c);
}

/* Who is where, and a nonce: rank 0's. */
static rubato_status hello(struct callback *c, uint64_t deadline_ns)
{
	uint8_t bytes[HELLO_BYTES], nonce[16];
	struct rb_wire w = rb_wire_over(bytes, sizeof(bytes));
	const void *const *all;
	const size_t *sizes;

	randombytes_buf(nonce, sizeof(nonce));
	rb_wire_put_u64(&w, MAGIC);
	rb_wire_put_bytes(&w, nonce, sizeof(nonce));
	rb_wire_put_u32(&w, c->base.rank);
	rb_wire_put_u32(&w, c->base.rank_count);
	RB_TRY(callback_allgather(&c->base, bytes, sizeof(bytes), &all, &sizes, deadline_ns));
	for (uint32_t r = 0; r < c->base.rank_count; r++) {
		w = rb_wire_over((void *)(uintptr_t)all[r], sizes[r]);
		uint64_t magic = rb_wire_get_u64(&w);

		rb_wire_get_bytes(&w, r == 0 ? c->base.job : nonce, sizeof(nonce));
		uint32_t rank = rb_wire_get_u32(&w), size = rb_wire_get_u32(&w);

		if (w.bad || magic != MAGIC)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "start-up: block %u of the allgather is not from Rubato", r);
		if (rank != r || size != c->base.rank_count)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "start-up: block %u of the allgather comes from a process "
				       "that calls itself rank %u of %u; here the job has %u",
				       r, rank, size, c->base.rank_count);
	}
	return RUBATO_OK;
}

void rb_callback_refuse(rubato_allgather_function function, void *arg, uint32_t rank_count)
{
	uint64_t few[FEW], word = FAILED;
	uint64_t *words = rank_count <= FEW ? few : calloc(rank_count, sizeof(*words));

	if (words != NULL)
		(void)function(arg, &word, words, sizeof(word));
	if (words != few)
		free(words);
}

rubato_status rb_callback_open(rubato_allgather_function function, void *arg, uint32_t rank,
			       uint32_t rank_count, uint64_t deadline_ns, struct rb_bootstrap **out)
{
	struct callback *c = calloc(1, sizeof(*c));
	uint64_t *words = calloc(rank_count, sizeof(*words));
	uint8_t *pieces = calloc((size_t)rank_count + 1, PIECE_BYTES);

	if (c == NULL || words == NULL || pieces == NULL || sodium_init() < 0) {
		free(c);
		free(words);
		free(pieces);
		rb_callback_refuse(function, arg, rank_count);
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up of %u ranks", rank_count);
	}
	c->base = (struct rb_bootstrap) {
		.rank = rank,
		.rank_count = rank_count,
		.allgather = callback_allgather,
		.end = callback_end,
		.close = callback_close,
	};
	c->gather = function;
	c->arg = arg;
	c->words = words;
	c->pieces = pieces;
	rubato_status err = hello(c, deadline_ns);

	if (err != RUBATO_OK) {
		(void)callback_end(&c->base, false);
		callback_close(&c->base);
		return err;
	}
	*out = &c->base;
	return RUBATO_OK;
}
