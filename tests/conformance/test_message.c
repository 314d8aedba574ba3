/* test_message.c -- what is sent arrives, once, where it belongs; what does not fit is said. */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)

/* Below, at and above the places where implementations change their ways. */
static const size_t sizes[] = { 0,   1,    7,    8,    31,    32,    33,    63,    64,     65,
				200, 1000, 4096, 8000, 16384, 32767, 32768, 32769, 262144, MIB };
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

static uint64_t key_of(uint32_t source, uint32_t target, uint64_t tag)
{
	return ((uint64_t)source << 56) ^ ((uint64_t)target << 48) ^ tag;
}

/* ---- Connecting ---- */

static void everybody_meets(struct conform_rank *r)
{
	struct conform_request sends[CONFORM_RANKS_MAX], recvs[CONFORM_RANKS_MAX];
	uint64_t out = 1000 + r->rank, in[CONFORM_RANKS_MAX];

	for (uint32_t i = 0; i < r->rank_count; i++)
		conform_recv(r, &recvs[i], i, 7, &in[i], sizeof(in[i]));
	for (uint32_t i = 0; i < r->rank_count; i++)
		conform_send(r, &sends[i], i, 7, &out, sizeof(out));
	for (uint32_t i = 0; i < r->rank_count; i++) {
		conform_finish_ok(r, &recvs[i]);
		conform_finish_ok(r, &sends[i]);
		ck_assert_uint_eq(in[i], 1000 + i);
	}
	ck_assert_uint_ge(r->ep->bytes_sent, sizeof(out) * (r->rank_count - 1));
	ck_assert_uint_ge(r->ep->bytes_received, sizeof(out) * (r->rank_count - 1));
}

START_TEST(test_meet)
{
	static const uint32_t counts[] = { 1, 2, 3, 5 };

	conform_run(counts[_i], everybody_meets);
}
END_TEST

/* ---- Sizes, and who is first ---- */

static void one_way(struct conform_rank *r, size_t size_bytes, uint64_t tag, bool receive_first)
{
	struct conform_request c;
	uint8_t *buffer = malloc(size_bytes + 1);
	uint8_t zero = 0;
	struct conform_request go;

	ck_assert_ptr_nonnull(buffer);
	if (r->rank == 0) {
		conform_fill(buffer, size_bytes, tag);
		if (receive_first) {
			conform_recv(r, &go, 1, tag + 1, NULL, 0);
			conform_finish_ok(r, &go);
		}
		conform_send(r, &c, 1, tag, buffer, size_bytes);
		if (!receive_first) {
			/* The message is on its way, then the receive is posted. */
			conform_send(r, &go, 1, tag + 1, &zero, 1);
			conform_finish_ok(r, &go);
		}
		conform_finish_ok(r, &c);
	} else {
		memset(buffer, 0xee, size_bytes + 1);
		if (!receive_first) {
			conform_recv(r, &go, 0, tag + 1, &zero, 1);
			conform_finish_ok(r, &go);
		}
		conform_recv(r, &c, 0, tag, buffer, size_bytes);
		if (receive_first) {
			conform_send(r, &go, 0, tag + 1, NULL, 0);
			conform_finish_ok(r, &go);
		}
		conform_finish_ok(r, &c);
		conform_verify(buffer, size_bytes, tag);
		ck_assert_uint_eq(buffer[size_bytes], 0xee);
	}
	free(buffer);
}

static void receive_first(struct conform_rank *r)
{
	for (uint64_t i = 0; i < SIZE_COUNT; i++)
		one_way(r, sizes[i], 100 * i, true);
	one_way(r, 9 * MIB, 9000, true);
}

static void send_first(struct conform_rank *r)
{
	for (uint64_t i = 0; i < SIZE_COUNT; i++)
		one_way(r, sizes[i], 100 * i, false);
	one_way(r, 9 * MIB, 9000, false);
}

START_TEST(test_receive_first)
{
	conform_run(2, receive_first);
}
END_TEST

START_TEST(test_send_first)
{
	conform_run(2, send_first);
}
END_TEST

/* To oneself, in either order. */
static void self(struct conform_rank *r)
{
	for (uint64_t i = 0; i < 2 * SIZE_COUNT; i++) {
		size_t size_bytes = sizes[i / 2];
		uint8_t *out = malloc(size_bytes + 1), *in = malloc(size_bytes + 1);
		struct conform_request send, recv;

		ck_assert(out != NULL && in != NULL);
		conform_fill(out, size_bytes, i);
		if (i % 2 == 0)
			conform_recv(r, &recv, r->rank, i, in, size_bytes);
		conform_send(r, &send, r->rank, i, out, size_bytes);
		if (i % 2 == 1)
			conform_recv(r, &recv, r->rank, i, in, size_bytes);
		conform_finish_ok(r, &recv);
		conform_finish_ok(r, &send);
		conform_verify(in, size_bytes, i);
		free(out);
		free(in);
	}
}

START_TEST(test_self)
{
	conform_run((uint32_t)_i, self);
}
END_TEST

/* ---- Soak: all pairs, many tags, any order ---- */

#define SOAK_ROUNDS 6
#define SOAK_MESSAGES 24 /* Per pair and round. */

struct soak_item {
	struct conform_request c;
	uint8_t *buffer;
	size_t size_bytes;
	uint32_t peer;
	uint64_t tag;
	bool send;
};

/* Both ends know the size of a message from its name. */
static size_t soak_size(uint32_t source, uint32_t target, uint64_t tag)
{
	uint64_t draw = rb_mix(key_of(source, target, tag));

	switch (draw % 8) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return (draw >> 8) % 64;
	case 4:
	case 5:
		return (draw >> 8) % 3000;
	case 6:
		return (draw >> 8) % 40000;
	default:
		return (draw >> 8) % 200000;
	}
}

static void soak_round(struct conform_rank *r, struct soak_item *items, uint64_t round)
{
	uint32_t count = 0;

	for (uint32_t peer = 0; peer < r->rank_count; peer++) {
		for (uint64_t i = 0; i < 2 * SOAK_MESSAGES; i++) {
			struct soak_item *it = &items[count++];

			it->peer = peer;
			it->send = i % 2 == 0;
			it->tag = (uint64_t)round << 32 | (i / 2 % 3) << 20 | i / 2;
			it->size_bytes = it->send ? soak_size(r->rank, peer, it->tag)
						  : soak_size(peer, r->rank, it->tag);
			it->buffer = malloc(it->size_bytes + 1);
			ck_assert_ptr_nonnull(it->buffer);
			if (it->send)
				conform_fill(it->buffer, it->size_bytes,
					     key_of(r->rank, peer, it->tag));
		}
	}
	for (uint32_t i = count; i > 1; i--) { /* Fisher and Yates. */
		uint32_t j = (uint32_t)rb_rng_below(&r->rng, i);
		struct soak_item swap = items[i - 1];

		items[i - 1] = items[j];
		items[j] = swap;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct soak_item *it = &items[i];

		if (it->send)
			conform_send(r, &it->c, it->peer, it->tag, it->buffer, it->size_bytes);
		else
			conform_recv(r, &it->c, it->peer, it->tag, it->buffer, it->size_bytes);
		if (rb_rng_below(&r->rng, 4) == 0)
			(void)conform_poll(r);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct soak_item *it = &items[i];

		conform_finish_ok(r, &it->c);
		if (!it->send)
			conform_verify(it->buffer, it->size_bytes,
				       key_of(it->peer, r->rank, it->tag));
		free(it->buffer);
	}
}

/* No barrier between rounds: fast ranks run ahead into slower ones' rounds. */
static void soak(struct conform_rank *r)
{
	struct soak_item *items =
		calloc((size_t)r->rank_count * 2 * SOAK_MESSAGES, sizeof(struct soak_item));

	ck_assert_ptr_nonnull(items);
	for (uint64_t round = 0; round < SOAK_ROUNDS; round++)
		soak_round(r, items, round);
	free(items);
}

START_TEST(test_soak)
{
	static const uint32_t counts[] = { 2, 3, 5 };

	conform_run(counts[_i], soak);
}
END_TEST

/* ---- What does not fit ---- */

static void mismatch_once(struct conform_rank *r, uint64_t tag, size_t sent_bytes,
			  size_t expected_bytes, bool receive_first_)
{
	uint8_t *buffer = calloc(1, sent_bytes + expected_bytes + 1);
	struct conform_request c, go;

	ck_assert_ptr_nonnull(buffer);
	if (r->rank == 0) {
		if (receive_first_) {
			conform_recv(r, &go, 1, tag + 1, NULL, 0);
			conform_finish_ok(r, &go);
		}
		conform_send(r, &c, 1, tag, buffer, sent_bytes);
		conform_finish(r, &c); /* How it ends for the sender is not said. */
	} else {
		conform_recv(r, &c, 0, tag, buffer, expected_bytes);
		if (receive_first_) {
			conform_send(r, &go, 0, tag + 1, NULL, 0);
			conform_finish_ok(r, &go);
		}
		conform_finish(r, &c);
		ck_assert_int_eq(c.request.status, RUBATO_ERR_MISMATCH);
		ck_assert_uint_eq(c.request.their_bytes, sent_bytes);
		ck_assert_uint_eq(c.request.theirs.count, sent_bytes);
		ck_assert_uint_eq(c.request.signature.count, expected_bytes);
	}
	free(buffer);
}

static void mismatches(struct conform_rank *r)
{
	static const size_t pairs[][2] = { { 8, 16 },     { 16, 8 },        { 0, 8 },
					   { 8, 0 },      { 500, 5000 },    { 70000, 70008 },
					   { 8, 500000 }, { 3 * MIB, 1000 } };

	for (uint64_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		mismatch_once(r, 10 * i, pairs[i][0], pairs[i][1], true);
		mismatch_once(r, 10 * i + 5, pairs[i][0], pairs[i][1], false);
	}
	one_way(r, 100000, 777, true); /* And life goes on. */
}

START_TEST(test_mismatch)
{
	conform_run(2, mismatches);
}
END_TEST

/* Equal sizes, another signature: reported as well, with theirs. */
static void signature_mismatch(struct conform_rank *r)
{
	uint64_t word = 5;
	struct rb_request *q;
	struct conform_request c;

	memset(&c, 0, sizeof(c));
	q = &c.request;
	q->peer = 1 - r->rank;
	q->tag = (struct rb_tag) { 0, 3 };
	q->signature = conform_signature(2);
	q->buffer = &word;
	q->size_bytes = sizeof(word);
	q->owner = &c;
	if (r->rank == 0) {
		q->signature.algorithm = 9;
		r->ops->send(r->ep, q);
	} else {
		r->ops->recv(r->ep, q);
	}
	c.done_at_post = q->state == RB_REQUEST_DONE;
	conform_finish(r, &c);
	if (r->rank == 1) {
		ck_assert_int_eq(q->status, RUBATO_ERR_MISMATCH);
		ck_assert_uint_eq(q->theirs.algorithm, 9);
		ck_assert_uint_eq(q->their_bytes, sizeof(word));
	}
}

START_TEST(test_signature_mismatch)
{
	conform_run(2, signature_mismatch);
}
END_TEST

/* ---- Floods ---- */

#define FLOOD_MESSAGES 3000

struct flood {
	struct conform_request c[FLOOD_MESSAGES];
	uint32_t count;
	uint8_t *bytes;
};

static uint32_t flood_done(const struct flood *f)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < f->count; i++)
		done += f->c[i].request.state == RB_REQUEST_DONE;
	return done;
}

/*
 * Rank 0 sends far more than the credit before any receive is posted. What completed early is
 * bounded: those bytes lie at the receiver. In between, another pair of messages goes through.
 * Then, posted last first, all arrive, and are waited for in that order: one that waits for its
 * receive may be served after all others, which a slow machine moves for longer than a wait lasts.
 */
static void flood_of(struct conform_rank *r, size_t size_bytes)
{
	struct flood *f = calloc(1, sizeof(*f));
	/* Half of them are still beyond any credit, but where they have 8 bytes. */
	uint32_t count = test_length() == TEST_SHORT ? FLOOD_MESSAGES / 2 : FLOOD_MESSAGES;
	struct conform_request probe;
	uint8_t *large = malloc(MIB);

	ck_assert(f != NULL && large != NULL);
	f->count = count;
	f->bytes = malloc(count * size_bytes);
	ck_assert_ptr_nonnull(f->bytes);
	if (r->rank == 0) {
		conform_fill(f->bytes, count * size_bytes, size_bytes);
		for (uint32_t i = 0; i < count; i++)
			conform_send(r, &f->c[i], 1, i, f->bytes + i * size_bytes, size_bytes);
		for (int i = 0; i < 1000; i++)
			(void)conform_poll(r);
		ck_assert_uint_le(flood_done(f) * size_bytes, 2 * RB_UNEXPECTED_BYTES_MAX);
		conform_fill(large, MIB, 4711);
		conform_send(r, &probe, 1, 1u << 20, large, MIB);
		conform_finish_ok(r, &probe);
		for (uint32_t i = count; i-- > 0;)
			conform_finish_ok(r, &f->c[i]);
	} else {
		conform_recv(r, &probe, 0, 1u << 20, large, MIB);
		conform_finish_ok(r, &probe); /* The unmatched flood did not stand in its way. */
		conform_verify(large, MIB, 4711);
		for (uint32_t i = count; i-- > 0;)
			conform_recv(r, &f->c[i], 0, i, f->bytes + i * size_bytes, size_bytes);
		for (uint32_t i = count; i-- > 0;)
			conform_finish_ok(r, &f->c[i]);
		conform_verify(f->bytes, count * size_bytes, size_bytes);
	}
	free(f->bytes);
	free(f);
	free(large);
}

static void floods(struct conform_rank *r)
{
	flood_of(r, 2000); /* 6 MB. */
	conform_barrier(r, "end of the flood of 2000 bytes");
	flood_of(r, 8);
	conform_barrier(r, "end of the flood of 8 bytes");
	flood_of(r, 10000);
}

START_TEST(test_flood)
{
	conform_run(2, floods);
}
END_TEST

/* Both flood each other while a third exchanges with both. */
static void mutual_flood(struct conform_rank *r)
{
	enum { COUNT = 400, BYTES = 9000 };
	uint32_t other = 1 - r->rank;
	struct conform_request *sends = calloc(COUNT, sizeof(*sends));
	struct conform_request *recvs = calloc(COUNT, sizeof(*recvs));
	uint8_t *out = malloc(BYTES), *in = malloc((size_t)COUNT * BYTES);

	ck_assert(sends != NULL && recvs != NULL && out != NULL && in != NULL);
	if (r->rank < 2) {
		conform_fill(out, BYTES, r->rank);
		for (uint64_t i = 0; i < COUNT; i++)
			conform_send(r, &sends[i], other, i, out, BYTES);
	}
	for (uint64_t i = 0; i < 50; i++) {
		uint32_t from = r->rank == 2 ? (uint32_t)i % 2 : 2;
		uint64_t word = i, back = 0;
		struct conform_request a, b;

		if (r->rank < 2 && i % 2 != r->rank)
			continue;
		conform_recv(r, &a, from, 5000 + i, &back, sizeof(back));
		conform_send(r, &b, from, 5000 + i, &word, sizeof(word));
		conform_finish_ok(r, &a);
		conform_finish_ok(r, &b);
		ck_assert_uint_eq(back, i);
	}
	if (r->rank < 2) {
		for (uint64_t i = 0; i < COUNT; i++)
			conform_recv(r, &recvs[i], other, i, in + i * BYTES, BYTES);
		for (uint64_t i = 0; i < COUNT; i++) {
			conform_finish_ok(r, &recvs[i]);
			conform_finish_ok(r, &sends[i]);
			conform_verify(in + i * BYTES, BYTES, other);
		}
	}
	free(sends);
	free(recvs);
	free(out);
	free(in);
}

START_TEST(test_mutual_flood)
{
	conform_run(3, mutual_flood);
}
END_TEST

/* ---- Dump ---- */

static void count_line(void *arg, const char *text)
{
	ck_assert_ptr_null(strchr(text, '\n'));
	ck_assert_uint_gt(strlen(text), 0);
	++*(uint32_t *)arg;
}

static void dump(struct conform_rank *r)
{
	struct conform_request a, b;
	uint32_t lines = 0, word;

	conform_recv(r, &a, 1 - r->rank, 1, &word, sizeof(word));
	conform_recv(r, &b, 1 - r->rank, 2, &word, sizeof(word));
	r->ops->dump(r->ep, count_line, &lines);
	ck_assert_uint_eq(lines, 2);
	conform_cancel(r, &a);
	conform_cancel(r, &b);
	lines = 0;
	r->ops->dump(r->ep, count_line, &lines);
	ck_assert_uint_eq(lines, 0);
}

START_TEST(test_dump)
{
	conform_run(2, dump);
}
END_TEST

TCase *conform_message_case(void)
{
	TCase *t = tcase_create("message");

	tcase_add_loop_test(t, test_meet, 0, 4);
	tcase_add_test(t, test_receive_first);
	tcase_add_test(t, test_send_first);
	tcase_add_loop_test(t, test_self, 1, 3);
	tcase_add_loop_test(t, test_soak, 0, 3);
	tcase_add_test(t, test_mismatch);
	tcase_add_test(t, test_signature_mismatch);
	tcase_add_test(t, test_flood);
	tcase_add_test(t, test_mutual_flood);
	tcase_add_test(t, test_dump);
	return t;
}
