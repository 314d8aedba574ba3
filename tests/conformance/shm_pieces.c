/*
 * shm_pieces.c -- eager messages of several bulk buffers, piece by piece: what a receiver makes of
 * them while not all pieces are there, and a sender while not all buffers are free. Rank 1 is
 * nobody: its cells are written by hand.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/shm/shm.h"

const struct conform_backend conform_backend = {
	.name = "shm_pieces",
	.ops = &rb_transport_shm,
	.run = conform_run_threads,
};

#define PIECES 3u
#define LINES_BYTES 1000
#define LONG_BYTES ((PIECES - 1) * RB_SHM_BULK_BYTES + 1000u)

struct world {
	struct rb_endpoint *base;
	struct rb_shm_peer *peer;
	uint32_t position, bulk; /* Of who writes, */
	uint32_t given;          /* who has given back so many. */
	uint8_t *buffer;
};

static struct world world_open(void)
{
	struct rb_transport_options options = { .rank_count = 2, .heap_bytes = 1u << 20 };
	struct rb_shm_segment *theirs = NULL;
	struct world w = { .base = NULL };
	struct rb_shm_endpoint *ep;

	ck_assert_int_eq(rb_transport_shm.open(&options, &w.base), RUBATO_OK);
	ep = (struct rb_shm_endpoint *)w.base;
	ck_assert_int_eq(rb_shm_segment_open(ep, UINT64_MAX), RUBATO_OK);
	ck_assert_int_eq(rb_shm_segment_create(2, 1u << 20, UINT64_MAX, &theirs), RUBATO_OK);
	rb_shm_wire(ep, &ep->peers[1], theirs);
	w.peer = &ep->peers[1];
	w.buffer = calloc(1, LONG_BYTES);
	ck_assert_ptr_nonnull(w.buffer);
	return w;
}

static void world_close(struct world *w)
{
	rb_transport_shm.close(w->base, true, 0);
	free(w->buffer);
}

static uint8_t pattern(uint64_t tag, size_t at)
{
	return (uint8_t)(tag * 37 + at * 13 + at / RB_SHM_BULK_BYTES * 101 + 1);
}

/* The piece-th of a message of LONG_BYTES. */
static void piece_write(struct world *w, uint64_t tag, uint32_t piece)
{
	struct rb_shm_inbound *in = &w->peer->in;
	struct rb_shm_cell *cell = &in->ring->cells[w->position % RB_SHM_CELLS];
	uint64_t slot = w->bulk++ * 7 % RB_SHM_BULKS; /* In any order: the cell says it. */
	uint8_t *bulk = w->peer->bulks.own + slot * RB_SHM_BULK_BYTES;
	size_t first = (size_t)piece * RB_SHM_BULK_BYTES;
	enum rb_shm_cell_kind kind = piece == 0 ? RB_SHM_BULK : RB_SHM_MORE;

	for (size_t i = 0; i < RB_SHM_BULK_BYTES && first + i < LONG_BYTES; i++)
		bulk[i] = pattern(tag, first + i);
	cell->tag = (struct rb_tag) { 0, tag };
	cell->signature = (struct rb_signature) { 0 };
	cell->arg[0] = LONG_BYTES;
	slot |= (uint64_t)(w->given & 0xff) << 8;
	atomic_store(&cell->word, (uint64_t)++w->position | (uint64_t)kind << 32 | slot << 48);
}

static void pieces_write(struct world *w, uint64_t tag, uint32_t from)
{
	for (uint32_t i = from; i < PIECES; i++)
		piece_write(w, tag, i);
}

/* Of LONG_BYTES, as recv_now is asked for it. */
static struct rb_message whole_message(const struct world *w, const struct rb_signature *signature)
{
	return (struct rb_message) { .peer = 1,
				     .tag = { 0, 5 },
				     .signature = signature,
				     .buffer = w->buffer,
				     .size_bytes = LONG_BYTES };
}

static struct rb_request receive(struct world *w, uint64_t tag, size_t size_bytes)
{
	memset(w->buffer, 0, LONG_BYTES);
	return (struct rb_request) {
		.peer = 1, .tag = { 0, tag }, .buffer = w->buffer, .size_bytes = size_bytes
	};
}

static void right(const struct world *w, uint64_t tag)
{
	for (size_t i = 0; i < LONG_BYTES; i++)
		ck_assert_msg(w->buffer[i] == pattern(tag, i), "byte %zu", i);
}

/* With all that came before dealt with: a message as it should be. */
static void next_is_right(struct world *w, uint64_t tag)
{
	struct rb_request q = receive(w, tag, LONG_BYTES);

	rb_transport_shm.recv(w->base, &q);
	pieces_write(w, tag, 0);
	ck_assert_ptr_eq(rb_transport_shm.poll(w->base), &q);
	ck_assert_int_eq(q.status, RUBATO_OK);
	right(w, tag);
	ck_assert_uint_eq(w->peer->match.arrival_count, 0);
	ck_assert_uint_eq(w->peer->in.held, 0);
	ck_assert_uint_eq(w->peer->in.bulk, w->bulk);
	ck_assert_uint_eq(atomic_load(&w->peer->in.credit->consumed), w->position);
	ck_assert_int_eq(w->peer->doom, RUBATO_OK);
}

/* The receive is posted before piece `_i`; with 0 before all, with PIECES after all. */
START_TEST(test_posted_between)
{
	struct world w = world_open();
	struct rb_request q = receive(&w, 5, LONG_BYTES);

	for (uint32_t piece = 0; piece < PIECES; piece++) {
		if (piece == (uint32_t)_i)
			rb_transport_shm.recv(w.base, &q);
		ck_assert_int_ne(q.state, RB_REQUEST_DONE);
		ck_assert_ptr_null(rb_transport_shm.poll(w.base));
		piece_write(&w, 5, piece);
	}
	if (_i < (int)PIECES) {
		ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &q);
	} else {
		ck_assert_ptr_null(rb_transport_shm.poll(w.base));
		ck_assert_uint_eq(w.peer->match.arrival_count, 1);
		rb_transport_shm.recv(w.base, &q);
	}
	ck_assert_int_eq(q.state, RB_REQUEST_DONE);
	ck_assert_int_eq(q.status, RUBATO_OK);
	right(&w, 5);
	ck_assert_uint_eq(atomic_load(&w.peer->in.credit->released),
			  LONG_BYTES + RB_SHM_ARRIVAL_BYTES);
	next_is_right(&w, 6);
	world_close(&w);
}
END_TEST

/* A receive that has met its message is not taken back; cancelled, the rest is nobody's. */
START_TEST(test_cancelled_between)
{
	struct world w = world_open();
	struct rb_request q = receive(&w, 5, LONG_BYTES);

	rb_transport_shm.recv(w.base, &q);
	piece_write(&w, 5, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert(!rb_transport_shm.recall(w.base, &q));
	ck_assert_int_eq(q.state, RB_REQUEST_PENDING);
	rb_transport_shm.cancel(w.base, &q);
	ck_assert_int_eq(q.status, RUBATO_ERR_CANCELLED);
	memset(w.buffer, 0, LONG_BYTES);
	pieces_write(&w, 5, 1);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	for (size_t i = 0; i < LONG_BYTES; i++)
		ck_assert_uint_eq(w.buffer[i], 0);
	ck_assert_uint_eq(w.peer->bulks.held, RB_SHM_BULKS + PIECES);
	next_is_right(&w, 5);
	world_close(&w);
}
END_TEST

START_TEST(test_mismatched)
{
	struct world w = world_open();
	struct rb_request q = receive(&w, 5, LONG_BYTES - 1);

	rb_transport_shm.recv(w.base, &q);
	piece_write(&w, 5, 0);
	ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &q);
	ck_assert_int_eq(q.status, RUBATO_ERR_MISMATCH);
	ck_assert_uint_eq(q.their_bytes, LONG_BYTES);
	pieces_write(&w, 5, 1);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	next_is_right(&w, 6);
	world_close(&w);
}
END_TEST

/* _i 0: with its receive; 1: without. */
START_TEST(test_lost_between)
{
	struct world w = world_open();
	struct rb_request q = receive(&w, 5, LONG_BYTES), later = receive(&w, 5, LONG_BYTES);

	if (_i == 0)
		rb_transport_shm.recv(w.base, &q);
	piece_write(&w, 5, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	rb_shm_lose((struct rb_shm_endpoint *)w.base, w.peer, "lost");
	if (_i == 0) {
		ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &q);
		ck_assert_int_eq(q.status, RUBATO_ERR_PEER);
	}
	rb_transport_shm.recv(w.base, &later); /* Half a message is none. */
	ck_assert_int_eq(later.status, RUBATO_ERR_PEER);
	world_close(&w);
}
END_TEST

/* A piece of no message; a message amid another one; more than all buffers hold. */
START_TEST(test_nonsense_pieces)
{
	struct world w = world_open();

	if (_i == 0) {
		piece_write(&w, 5, 1);
	} else if (_i == 1) {
		piece_write(&w, 5, 0);
		piece_write(&w, 6, 0);
	} else {
		piece_write(&w, 5, 0);
		w.peer->in.ring->cells[0].arg[0] = RB_SHM_EAGER_MAX + 1;
	}
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_int_eq(w.peer->state, RB_SHM_GONE);
	world_close(&w);
}
END_TEST

/* A cell of each kind that says which bulk buffer it is in, and says one more than there are. */
START_TEST(test_no_such_buffer)
{
	static const enum rb_shm_cell_kind kinds[] = { RB_SHM_BULK, RB_SHM_MORE, RB_SHM_DATA,
						       RB_SHM_WRITE };
	enum rb_shm_cell_kind kind = kinds[_i / 4];
	uint64_t slot = (_i % 2 == 0 ? RB_SHM_BULKS - 1 : RB_SHM_BULKS) |
			(_i % 4 < 2 ? 0 : RB_SHM_BULK_OWN);
	struct world w = world_open();
	struct rb_shm_cell *cell;

	if (kind == RB_SHM_MORE)
		piece_write(&w, 5, 0);
	cell = &w.peer->in.ring->cells[w.position];
	piece_write(&w, 5, kind == RB_SHM_MORE);
	if (kind == RB_SHM_DATA || kind == RB_SHM_WRITE) /* Of nobody: as such it is dropped. */
		cell->arg[0] = cell->arg[1] = cell->arg[2] = 77;
	atomic_store(&cell->word, (uint64_t)w.position | (uint64_t)kind << 32 | slot << 48);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_int_eq(w.peer->state, _i % 2 == 0 ? RB_SHM_CONNECTED : RB_SHM_GONE);
	world_close(&w);
}
END_TEST

/* At once only when all pieces are there; before that nothing has happened. */
START_TEST(test_now)
{
	struct world w = world_open();
	struct rb_signature signature = { 0 };
	const struct rb_message m = whole_message(&w, &signature);

	for (uint32_t piece = 0; piece < PIECES; piece++) {
		ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m),
				 piece == 0 ? RB_NOW_ABSENT : RB_NOW_REFUSED);
		ck_assert_uint_eq(w.peer->in.position, 0);
		piece_write(&w, 5, piece);
	}
	ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m), RB_NOW_DONE);
	right(&w, 5);
	next_is_right(&w, 6);
	world_close(&w);
}
END_TEST

enum wrong { NO_BUFFER, NO_PIECE, OTHER_PIECE, WRONGS };

static uint64_t wrong_word(enum wrong wrong, uint64_t good)
{
	uint64_t kind = good >> 32 & 0xffff,
		 other = kind == RB_SHM_BULK ? RB_SHM_MORE : RB_SHM_BULK;

	if (wrong == NO_BUFFER)
		return (good & UINT64_C(0xffffffffffff)) | (uint64_t)RB_SHM_BULKS << 48;
	return (good & ~UINT64_C(0xffff00000000)) | (wrong == NO_PIECE ? RB_SHM_WANT : other) << 32;
}

/* Each piece in turn names a buffer that there is not, is no piece, or the first one instead of
 * another or the other way round: refused, with nothing read; then poll ends the peer. */
START_TEST(test_now_broken)
{
	struct world w = world_open();
	struct rb_signature signature = { 0 };
	const struct rb_message m = whole_message(&w, &signature);
	uint32_t piece = (uint32_t)_i % PIECES;
	_Atomic uint64_t *word;

	pieces_write(&w, 5, 0);
	word = &w.peer->in.ring->cells[piece].word;
	atomic_store(word, wrong_word((enum wrong)((uint32_t)_i / PIECES), atomic_load(word)));
	ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m), RB_NOW_REFUSED);
	ck_assert_uint_eq(w.peer->in.position, 0);
	for (size_t i = 0; i < LONG_BYTES; i++)
		ck_assert_uint_eq(w.buffer[i], 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_int_eq(w.peer->state, RB_SHM_GONE);
	world_close(&w);
}
END_TEST

/* A piece that is not there, though the last one is: nothing is read until it is. */
START_TEST(test_now_hole)
{
	struct world w = world_open();
	struct rb_signature signature = { 0 };
	const struct rb_message m = whole_message(&w, &signature);
	_Atomic uint64_t *word;
	uint64_t good;

	pieces_write(&w, 5, 0);
	word = &w.peer->in.ring->cells[1].word;
	good = atomic_load(word);
	atomic_store(word, good - 1);
	ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m), RB_NOW_REFUSED);
	ck_assert_uint_eq(w.peer->in.position, 0);
	for (size_t i = 0; i < LONG_BYTES; i++)
		ck_assert_uint_eq(w.buffer[i], 0);
	atomic_store(word, good);
	ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m), RB_NOW_DONE);
	world_close(&w);
}
END_TEST

static void line_keep(void *text, const char *line)
{
	size_t had = strlen(text);

	(void)snprintf((char *)text + had, LINES_BYTES - had, "%s\n", line);
}

/* What has met its message is told, with what has come of it. */
START_TEST(test_dump)
{
	struct world w = world_open();
	struct rb_request q = receive(&w, 5, LONG_BYTES);
	char text[LINES_BYTES] = "";

	rb_transport_shm.recv(w.base, &q);
	piece_write(&w, 5, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	rb_transport_shm.dump(w.base, line_keep, text);
	ck_assert_msg(strstr(text, "recv from 1 ") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "incoming 32768:") != NULL, "%s", text);
	pieces_write(&w, 5, 1);
	ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &q);
	text[0] = '\0';
	rb_transport_shm.dump(w.base, line_keep, text);
	ck_assert_str_eq(text, "");
	world_close(&w);
}
END_TEST

static enum rb_shm_cell_kind kind_at(const struct rb_shm_outbound *out, uint32_t position)
{
	return (enum rb_shm_cell_kind)(
		atomic_load(&out->ring->cells[position % RB_SHM_CELLS].word) >> 32 & 0xffff);
}

static struct rb_request sent(uint64_t tag, uint8_t *bytes, size_t size_bytes)
{
	return (struct rb_request) {
		.peer = 1, .tag = { 0, tag }, .buffer = bytes, .size_bytes = size_bytes
	};
}

/* Rank 1 has read the piece in that cell, and gives its buffer back. */
static void give_back(struct world *w, uint32_t position)
{
	struct rb_shm_outbound *out = &w->peer->out;
	uint32_t given = atomic_load(&out->credit->given);
	uint64_t word = atomic_load(&out->ring->cells[position % RB_SHM_CELLS].word);

	atomic_store(&out->credit->which[given % RB_SHM_BULKS_GIVEN], (uint8_t)(word >> 48));
	atomic_store(&out->credit->given, given + 1);
	atomic_store(&out->credit->consumed, position + 1);
}

/* What is held when all is read; also where counts wrap. A piece that tells of buffers that were
 * given back brings them; who holds as many as one may gives back what it reads. */
START_TEST(test_hands)
{
	struct world w = world_open();
	struct rb_shm_bulks *b = &w.peer->bulks;
	uint8_t *bytes = calloc(1, LONG_BYTES);
	struct rb_request q = sent(1, bytes, LONG_BYTES), in = receive(&w, 5, LONG_BYTES);
	uint32_t start = 0u - (uint32_t)_i;

	ck_assert_ptr_nonnull(bytes);
	b->given = b->taken = start;
	atomic_store(&b->own_credit->given, start);
	atomic_store(&b->theirs_credit->given, start);
	rb_transport_shm.send(w.base, &q);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS - PIECES);
	for (uint32_t i = 0; i < PIECES; i++)
		give_back(&w, i);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS - PIECES);
	rb_transport_shm.recv(w.base, &in);
	for (w.given = start + 1; w.position < PIECES; w.given++) /* Each tells of one more. */
		piece_write(&w, 5, w.position);
	w.given--;
	ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &in);
	ck_assert_uint_eq(b->taken, start + PIECES);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS + PIECES);
	ck_assert_uint_eq(atomic_load(&b->own_credit->given), start);
	while (b->held < RB_SHM_BULKS_KEPT)
		next_is_right(&w, 6);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS_KEPT);
	next_is_right(&w, 7);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS_KEPT);
	ck_assert_uint_ge(b->given - start, PIECES);
	ck_assert_uint_eq(atomic_load(&b->own_credit->given), b->given);
	world_close(&w);
	free(bytes);
}
END_TEST

/* So many buffers were given back, and taken, after this piece had left. */
START_TEST(test_hands_ahead)
{
	struct world w = world_open();
	struct rb_shm_bulks *b = &w.peer->bulks;

	b->taken = (uint32_t)_i;
	atomic_store(&b->theirs_credit->given, b->taken);
	piece_write(&w, 5, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_uint_eq(b->taken, (uint32_t)_i);
	ck_assert_uint_eq(b->held, RB_SHM_BULKS + 1);
	world_close(&w);
}
END_TEST

/* Who says that more was given back than there is brings no more than one may hold. */
START_TEST(test_hands_lie)
{
	struct world w = world_open();
	struct rb_shm_bulks *b = &w.peer->bulks;

	w.given = RB_SHM_BULKS_GIVEN;
	atomic_store(&b->theirs_credit->given, w.given);
	piece_write(&w, 5, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_uint_eq(b->held, RB_SHM_BULKS_KEPT);
	ck_assert_uint_eq(b->taken, RB_SHM_BULKS_KEPT - RB_SHM_BULKS);
	ck_assert_uint_eq(atomic_load(&b->own_credit->given), 1);
	ck_assert(rb_shm_bulks_free(b, RB_SHM_PIECES));
	b->unseen = RB_SHM_BULKS_UNSEEN; /* It looks again. */
	ck_assert(rb_shm_bulks_free(b, RB_SHM_PIECES));
	ck_assert_uint_eq(b->held, RB_SHM_BULKS_KEPT);
	world_close(&w);
}
END_TEST

static void long_write(struct world *w, uint64_t tag, uint32_t theirs_taken)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct rb_shm_cell *cell = &w->peer->in.ring->cells[w->position % RB_SHM_CELLS];
		cell->tag = (struct rb_tag) { 0, tag };
		cell->signature = (struct rb_signature) { 0 };
		cell->arg[0] = RB_SHM_ATTACH_BYTES_MIN;
		cell->arg[1] = theirs_taken;
		atomic_store(&cell->word, (uint64_t)++w->position |
						  (uint64_t)(i == 0 ? RB_SHM_BULK : RB_SHM_MORE)
							  << 32 |
						  (uint64_t)i << 48);
	}
}

/* Each long message counts once, however it is met; also where counts wrap. */
START_TEST(test_longs)
{
	struct world w = world_open();
	uint8_t *bytes = calloc(1, RB_SHM_ATTACH_BYTES_MIN);
	struct rb_signature signature = { 0 };
	struct rb_message m = whole_message(&w, &signature);
	struct rb_request q = {
		.peer = 1, .tag = { 0, 6 }, .buffer = bytes, .size_bytes = RB_SHM_ATTACH_BYTES_MIN
	};
	struct rb_shm_longs *l = &w.peer->longs;

	l->sent = 2;
	m.buffer = bytes;
	m.size_bytes = RB_SHM_ATTACH_BYTES_MIN;
	long_write(&w, 5, UINT32_MAX);
	ck_assert_int_eq(rb_transport_shm.recv_now(w.base, &m), RB_NOW_DONE);
	ck_assert_uint_eq(l->taken, 1);
	ck_assert(l->cross);
	rb_transport_shm.recv(w.base, &q);
	long_write(&w, 6, 2);
	long_write(&w, 7, UINT32_MAX); /* Without a receive: it is left for the next poll. */
	ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &q);
	ck_assert_uint_eq(l->taken, 2);
	ck_assert(!l->cross);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_uint_eq(l->taken, 3);
	ck_assert(l->cross);
	world_close(&w);
	free(bytes);
}
END_TEST

#define STREAM_LAPS 3u
#define STREAM_FIRST (1 + RB_SHM_BULKS) /* An announcement, and as many pieces as there is room. */

/* It has all buffers. Returns its bytes. */
static uint8_t *stream_begin(struct world *w, struct rb_request *stream)
{
	struct rb_shm_outbound *out = &w->peer->out;
	struct rb_shm_cell *cell = &w->peer->in.ring->cells[0];
	uint8_t *bytes = calloc(1, STREAM_LAPS * RB_SHM_EAGER_MAX);

	ck_assert_ptr_nonnull(bytes);
	*stream = sent(1, bytes, STREAM_LAPS * RB_SHM_EAGER_MAX);
	((struct rb_shm_endpoint *)w->base)->kernel = RB_SHM_KERNEL_SLOW;
	rb_transport_shm.send(w->base, stream);
	cell->arg[0] = stream->backend[RB_SHM_ID];
	cell->arg[1] = cell->arg[2] = 0;
	atomic_store(&cell->word, 1 | (uint64_t)RB_SHM_CLEAR << 32);
	ck_assert_ptr_null(rb_transport_shm.poll(w->base));
	ck_assert_uint_eq(out->position, STREAM_FIRST);
	ck_assert_int_eq(kind_at(out, STREAM_FIRST - 1), RB_SHM_DATA);
	return bytes;
}

/* All buffers are free, but of cells only _i: a message goes when each piece has one. */
START_TEST(test_full_ring)
{
	struct world w = world_open();
	struct rb_shm_outbound *out = &w.peer->out;
	uint8_t *bytes = calloc(1, RB_SHM_EAGER_MAX);
	struct rb_request message = sent(2, bytes, RB_SHM_EAGER_MAX);
	uint32_t full = RB_SHM_CELLS - 1, before = full - (uint32_t)_i;

	ck_assert_ptr_nonnull(bytes);
	((struct rb_shm_endpoint *)w.base)->kernel = RB_SHM_KERNEL_SLOW;
	for (uint32_t i = 0; i < before; i++) {
		struct rb_request small = sent(1, bytes, 8);

		rb_transport_shm.send(w.base, &small);
		ck_assert_int_eq(small.state, RB_REQUEST_DONE);
	}
	ck_assert_uint_eq(out->position, before);
	rb_transport_shm.send(w.base, &message);
	if (_i < (int)RB_SHM_PIECES) {
		ck_assert_ptr_null(rb_transport_shm.poll(w.base));
		ck_assert_uint_eq(out->position, before);
		atomic_store(&out->credit->consumed, RB_SHM_PIECES - (uint32_t)_i);
		ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &message);
	}
	ck_assert_int_eq(message.state, RB_REQUEST_DONE);
	ck_assert_uint_eq(out->position, before + RB_SHM_PIECES);
	world_close(&w);
	free(bytes);
}
END_TEST

/* A message that needs all buffers waits behind a stream that uses each as it becomes free. */
START_TEST(test_stream_makes_room)
{
	struct world w = world_open();
	struct rb_shm_outbound *out = &w.peer->out;
	struct rb_request stream;
	uint8_t *bytes = stream_begin(&w, &stream);
	struct rb_request message = sent(2, bytes, RB_SHM_EAGER_MAX);
	uint32_t first = STREAM_FIRST;

	rb_transport_shm.send(w.base, &message);
	for (uint32_t piece = 1; piece < RB_SHM_PIECES; piece++) {
		give_back(&w, piece);
		ck_assert_ptr_null(rb_transport_shm.poll(w.base));
		ck_assert_uint_eq(out->position, first);
	}
	give_back(&w, RB_SHM_PIECES);
	ck_assert_ptr_eq(rb_transport_shm.poll(w.base), &message);
	ck_assert_uint_eq(out->position, first + RB_SHM_PIECES);
	ck_assert_int_eq(kind_at(out, first), RB_SHM_BULK);
	for (uint32_t i = 1; i < RB_SHM_PIECES; i++)
		ck_assert_int_eq(kind_at(out, first + i), RB_SHM_MORE);
	give_back(&w, first);
	ck_assert_ptr_null(rb_transport_shm.poll(w.base));
	ck_assert_int_eq(kind_at(out, first + RB_SHM_PIECES), RB_SHM_DATA);
	world_close(&w);
	free(bytes);
}
END_TEST

/* Messages of _i + 1 buffers that follow each other leave a stream as many, each time. */
START_TEST(test_stream_goes_on)
{
	struct world w = world_open();
	struct rb_shm_outbound *out = &w.peer->out;
	struct rb_request stream, messages[STREAM_LAPS * RB_SHM_PIECES], *done;
	uint8_t *bytes = stream_begin(&w, &stream);
	uint32_t pieces = (uint32_t)_i + 1, data = RB_SHM_BULKS, eager = 0, given = 1;
	uint32_t count = STREAM_LAPS * RB_SHM_PIECES / pieces, seen = STREAM_FIRST;

	for (uint32_t i = 0; i < count; i++) {
		messages[i] = sent(2, bytes, pieces * RB_SHM_BULK_BYTES);
		rb_transport_shm.send(w.base, &messages[i]);
	}
	while (data < STREAM_LAPS * RB_SHM_PIECES) {
		atomic_store(&out->credit->released, out->spent);
		for (; given != out->position; given++)
			give_back(&w, given);
		for (done = rb_transport_shm.poll(w.base); done != NULL; done = done->next)
			ck_assert_int_eq(done->status, RUBATO_OK);
		ck_assert_uint_ne(out->position, seen);
		for (; seen != out->position; seen++) {
			data += kind_at(out, seen) == RB_SHM_DATA;
			eager += kind_at(out, seen) == RB_SHM_BULK;
		}
		ck_assert_uint_le(eager * pieces, data);
		ck_assert_uint_ge((eager + 1) * pieces, data - RB_SHM_BULKS);
	}
	world_close(&w);
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm_pieces");
	TCase *t = tcase_create("pieces");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_posted_between, 0, PIECES + 1);
	tcase_add_test(t, test_cancelled_between);
	tcase_add_test(t, test_mismatched);
	tcase_add_loop_test(t, test_lost_between, 0, 2);
	tcase_add_loop_test(t, test_nonsense_pieces, 0, 3);
	tcase_add_loop_test(t, test_no_such_buffer, 0, 16);
	tcase_add_test(t, test_now);
	tcase_add_loop_test(t, test_now_broken, 0, WRONGS * PIECES);
	tcase_add_test(t, test_now_hole);
	tcase_add_loop_test(t, test_hands, 0, 2 * PIECES);
	tcase_add_loop_test(t, test_hands_ahead, 0, 600);
	tcase_add_test(t, test_hands_lie);
	tcase_add_test(t, test_longs);
	tcase_add_test(t, test_dump);
	tcase_add_loop_test(t, test_full_ring, 0, RB_SHM_PIECES + 1);
	tcase_add_test(t, test_stream_makes_room);
	tcase_add_loop_test(t, test_stream_goes_on, 0, RB_SHM_PIECES);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
