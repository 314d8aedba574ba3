/*
 * shm_send.c -- the way out: cells, bulk buffers, announced messages, puts.
 *
 * A message goes one of three ways. Up to RB_SHM_INLINE_MAX bytes travel in cells, up to
 * RB_SHM_EAGER_MAX in bulk buffers, piece by piece, so that the receiver empties one while the next
 * is filled here; both are eager: they need credit, since the receiver must take them out of the
 * ring whether it waits for them or not. What is larger, or finds no credit, is announced; when its
 * receive is posted the receiver clears it, and it streams through the bulk buffers, as they become
 * free. Only the sender ever touches the source, so a cancel is over when WITHDRAW is queued: a
 * late CLEAR finds its id gone. Or both ends copy it at once, without a buffer between:
 * shm_attach.c.
 *
 * Room in the ring is the receiver's doing alone, and it empties its ring whatever is posted: what
 * waits here for room waits for the peer's next poll and nothing else, so there is no deadlock.
 *
 * Lines. A cell that is written lies in the receiver's cache, and comes from there first. It polls
 * the next one meanwhile, and may take that away again between two stores: a message's first cell
 * is written at once, last of all, and no atomic exchange gets it a second time. Those behind it
 * are asked for when the message before is out, as many as that one had.
 *
 * Sleep. A sender stores a cell, then, behind a fence, loads the receiver's `sleeping`; a receiver
 * stores `sleeping`, then loads the cell, both sequentially consistent. So at least one sees the
 * other's store: either the receiver does not fall asleep or the sender rings. One ring per sleep
 * is enough: the doorbell stays readable until disarm, which first makes the word even. A sender
 * that waits for room puts a WANT cell behind all others (one cell of the ring is kept for it)
 * before it sleeps; the receiver rings when it gets there, and by then everything before is
 * consumed.
 */
#include "transport/shm/shm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define MASK (RB_SHM_CELLS - 1)

void rb_shm_doorbell(const struct rb_shm_segment *segment)
{
	uint64_t one = 1;

	(void)!write(segment->doorbell, &one, sizeof(one));
}

/* Makes the cells up to and including `count` from the position visible, the first one last. */
static void publish(struct rb_shm_peer *peer, struct rb_shm_cell *cell, enum rb_shm_cell_kind kind,
		    size_t size_bytes, uint32_t count)
{
	struct rb_shm_outbound *out = &peer->out;
	uint32_t sleeping;

	atomic_store_explicit(&cell->word, rb_shm_cell_word(out->position, kind, size_bytes),
			      memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	out->position += count;
	sleeping = atomic_load_explicit(&out->header->sleeping, memory_order_relaxed);
	if (__builtin_expect((sleeping & 1) != 0 && sleeping != out->rung, 0)) {
		out->rung = sleeping;
		rb_shm_doorbell(peer->segment);
	}
}

static void consumed_refresh(struct rb_shm_outbound *out)
{
	out->consumed = atomic_load_explicit(&out->credit->consumed, memory_order_acquire);
	if (out->want && (int32_t)(out->consumed - out->want_at) > 0)
		out->want = false;
}

/* The last cell is kept for WANT. */
static bool cells_free(struct rb_shm_outbound *out, uint32_t count)
{
	if (__builtin_expect(out->position - out->consumed + count < RB_SHM_CELLS, 1))
		return true;
	consumed_refresh(out);
	return out->position - out->consumed + count < RB_SHM_CELLS;
}

/* Fills the next bulk buffer for the cell that is published next; returns what that says. */
static uint32_t bulk_fill(struct rb_shm_peer *peer, const void *source, size_t size_bytes)
{
	struct rb_shm_bulks *b = &peer->bulks;
	uint32_t number = b->free[--b->held];

	b->unseen++;
	peer->out.copy(rb_shm_bulk_at(b, number), source, size_bytes);
	return number | (b->given & 0xffu) << 8;
}

static inline struct rb_shm_cell *cell_at(struct rb_shm_outbound *out, uint32_t position)
{
	return &out->ring->cells[position & MASK];
}

/* A put's message is its notification: empty. */
static size_t message_bytes(const struct rb_request *request)
{
	return request->kind == RB_REQUEST_SEND ? request->size_bytes : 0;
}

static void request_done(struct rb_shm_endpoint *ep, struct rb_request *request)
{
	ep->base.bytes_sent += request->size_bytes;
	rb_shm_complete(ep, request, RUBATO_OK);
}

/* ---- The three ways ---- */

static inline uint32_t cells_for(size_t size_bytes)
{
	if (size_bytes <= RB_SHM_CELL_PAYLOAD)
		return 1;
	return 1 + (uint32_t)((size_bytes - RB_SHM_CELL_PAYLOAD + RB_SHM_CHAIN_PAYLOAD - 1) /
			      RB_SHM_CHAIN_PAYLOAD);
}

static void chain_write(struct rb_shm_outbound *out, const uint8_t *source, size_t size_bytes)
{
	uint32_t position = out->position + 1;

	while (size_bytes > 0) {
		struct rb_shm_cell *cell = cell_at(out, position);
		size_t piece =
			size_bytes < RB_SHM_CHAIN_PAYLOAD ? size_bytes : RB_SHM_CHAIN_PAYLOAD;

		/* Not polled while the first cell is not there: relaxed will do. */
		atomic_store_explicit(&cell->word, rb_shm_cell_word(position, RB_SHM_CHAIN, piece),
				      memory_order_relaxed);
		if (piece == RB_SHM_CHAIN_PAYLOAD) /* Some moves, not a call. */
			memcpy(&cell->tag, source, RB_SHM_CHAIN_PAYLOAD);
		else
			memcpy(&cell->tag, source, piece);
		source += piece;
		size_bytes -= piece;
		position++;
	}
}

/* A few that are shorter, as a barrier's are, do not show what comes. */
#define SHORTER_MAX 4
#define PREFETCHED_MAX 8192u /* Measured: docs/performance.md; beyond, some lose. */

void rb_shm_next_prefetch(struct rb_shm_outbound *out, uint32_t count)
{
	if (count > 1) {
		out->further = count - 1;
		out->shorter = 0;
	} else if (out->further > 0 && ++out->shorter > SHORTER_MAX) {
		out->further = 0;
	}
	for (uint32_t i = 1; i <= out->further; i++)
		rb_prefetch_write(cell_at(out, out->position + i));
}

/* Credit is there; false: no room now, and nothing happened. */
static inline bool write_inline(struct rb_shm_peer *peer, struct rb_tag tag,
				const struct rb_signature *signature, const void *buffer,
				size_t size_bytes)
{
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = cell_at(out, out->position);
	uint32_t count = cells_for(size_bytes);

	if (!cells_free(out, count))
		return false;
	out->spent += size_bytes + RB_SHM_ARRIVAL_BYTES;
	if (size_bytes > RB_SHM_CELL_PAYLOAD)
		chain_write(out, (const uint8_t *)buffer + RB_SHM_CELL_PAYLOAD,
			    size_bytes - RB_SHM_CELL_PAYLOAD);
	cell->tag = tag;
	cell->signature = *signature;
	if (size_bytes == 8)
		memcpy(cell->payload, buffer, 8);
	else if (size_bytes >= RB_SHM_CELL_PAYLOAD)
		memcpy(cell->payload, buffer, RB_SHM_CELL_PAYLOAD);
	else if (size_bytes > 0)
		memcpy(cell->payload, buffer, size_bytes);
	publish(peer, cell, RB_SHM_EAGER, size_bytes, count);
	rb_shm_next_prefetch(out, count);
	return true;
}

/* What the next message goes to if it is one as this, and short. */
static void next_bulk_prefetch(const struct rb_shm_bulks *b, size_t size_bytes)
{
	uint8_t *next = rb_shm_bulk_at(b, b->held > 0 ? b->free[b->held - 1] : 0);

	for (size_t at = 0; b->held > 0 && at < size_bytes; at += sizeof(struct rb_shm_cell))
		rb_prefetch_write(next + at);
}

/* Likewise. All pieces or none: nothing else comes between them. Streams that wait then have as
 * many buffers before the next one: else messages in a row would hold them up for ever. */
static bool write_bulk(struct rb_shm_peer *peer, struct rb_tag tag,
		       const struct rb_signature *signature, const void *buffer, size_t size_bytes)
{
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = cell_at(out, out->position);
	enum rb_shm_cell_kind kind = RB_SHM_BULK;
	uint32_t pieces = (uint32_t)((size_bytes + RB_SHM_BULK_BYTES - 1) / RB_SHM_BULK_BYTES);
	uint32_t slot;

	if ((peer->streams.first != NULL && out->owed > 0) || !cells_free(out, pieces) ||
	    !rb_shm_bulks_free(&peer->bulks, pieces))
		return false;
	out->owed = peer->streams.first != NULL ? pieces : 0;
	out->spent += size_bytes + RB_SHM_ARRIVAL_BYTES;
	for (size_t at = 0; at < size_bytes; at += RB_SHM_BULK_BYTES) {
		slot = bulk_fill(peer, (const uint8_t *)buffer + at, rb_shm_piece(size_bytes - at));
		if (at == 0) {
			cell->tag = tag;
			cell->signature = *signature;
			cell->arg[0] = size_bytes;
			cell->arg[1] = rb_shm_long_sent(&peer->longs, size_bytes);
		}
		publish(peer, cell_at(out, out->position), kind, slot, 1);
		kind = RB_SHM_MORE;
	}
	if (size_bytes <= PREFETCHED_MAX)
		next_bulk_prefetch(&peer->bulks, size_bytes);
	return true;
}

static inline bool write_eager(struct rb_shm_peer *peer, struct rb_tag tag,
			       const struct rb_signature *signature, const void *buffer,
			       size_t size_bytes)
{
	if (size_bytes <= RB_SHM_INLINE_MAX)
		return write_inline(peer, tag, signature, buffer, size_bytes);
	return write_bulk(peer, tag, signature, buffer, size_bytes);
}

static bool send_announce(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			  struct rb_request *request, size_t size_bytes)
{
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = cell_at(out, out->position);

	if (!cells_free(out, 1))
		return false;
	request->backend[RB_SHM_ID] = rb_shm_id_take(&ep->ids, request);
	if (request->backend[RB_SHM_ID] == RB_SHM_ID_NONE) {
		rb_shm_complete(ep, request, RB_FAIL(RUBATO_ERR_MEMORY, "shm: the id of a send"));
		return true;
	}
	request->backend[RB_SHM_STAGE] = RB_SHM_ANNOUNCED;
	rb_shm_queue_add(&peer->announced, request);
	cell->tag = request->tag;
	cell->signature = request->signature;
	cell->arg[0] = request->backend[RB_SHM_ID];
	cell->arg[1] = size_bytes;
	cell->arg[2] = rb_shm_offer(ep, peer, request, size_bytes) |
		       (uint64_t)rb_shm_long_sent(&peer->longs, size_bytes) << 32;
	request->backend[RB_SHM_THEIR_ADDRESS] = 0;
	publish(peer, cell, RB_SHM_ANNOUNCE, 0, 1);
	return true;
}

static bool credit_there(struct rb_shm_outbound *out, size_t size_bytes)
{
	uint64_t after = out->spent + size_bytes + RB_SHM_ARRIVAL_BYTES;

	if (__builtin_expect(after - out->released <= RB_UNEXPECTED_BYTES_MAX, 1))
		return true;
	out->released = atomic_load_explicit(&out->credit->released, memory_order_acquire);
	return after - out->released <= RB_UNEXPECTED_BYTES_MAX;
}

/* Not what both ends had better copy at once: a long message that goes alone, or to oneself. Where
 * two cross each end has one of its own to copy, and buffers that change hands are as fast. */
static inline bool is_eager(struct rb_shm_endpoint *ep, const struct rb_shm_peer *peer,
			    size_t size_bytes)
{
	if (__builtin_expect(size_bytes < RB_SHM_ATTACH_BYTES_MIN, 1))
		return true;
	return size_bytes <= RB_SHM_EAGER_MAX &&
	       ((peer->longs.cross && peer->rank != ep->base.rank) || !rb_shm_kernel_is_fast(ep));
}

/* False: no room now, and nothing happened. */
static bool send_try(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request)
{
	size_t size_bytes = message_bytes(request);

	if (!is_eager(ep, peer, size_bytes) || !credit_there(&peer->out, size_bytes))
		return send_announce(ep, peer, request, size_bytes);
	if (!write_eager(peer, request->tag, &request->signature, request->buffer, size_bytes))
		return false;
	request_done(ep, request);
	return true;
}

static void enqueue(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		    struct rb_shm_queue *queue, struct rb_request *request, enum rb_shm_stage stage)
{
	request->backend[RB_SHM_STAGE] = stage;
	rb_shm_queue_add(queue, request);
	peer->outgoing++;
	ep->base.leaving++;
}

static void dequeue(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		    struct rb_shm_queue *queue, struct rb_request *request)
{
	rb_shm_queue_remove(queue, request);
	peer->outgoing--;
	ep->base.leaving--;
}

static void send_or_queue(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			  struct rb_request *request)
{
	if (peer->sends.first != NULL || !send_try(ep, peer, request))
		enqueue(ep, peer, &peer->sends, request, RB_SHM_QUEUED);
}

static struct rb_shm_peer *post_begin(struct rb_shm_endpoint *ep, struct rb_request *request,
				      enum rb_request_kind kind)
{
	struct rb_shm_peer *peer = NULL;

	request->kind = (uint32_t)kind;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	ep->posting = request;
	if (request->peer < ep->base.rank_count)
		peer = &ep->peers[request->peer];
	if (peer == NULL || peer->state != RB_SHM_CONNECTED) {
		rb_shm_complete(ep, request,
				RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u is %s", request->peer,
					peer != NULL && peer->state == RB_SHM_GONE
						? "gone"
						: "not connected"));
		return NULL;
	}
	return peer;
}

void rb_shm_send(struct rb_endpoint *base, struct rb_request *request)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_peer *peer = post_begin(ep, request, RB_REQUEST_SEND);

	if (peer != NULL)
		send_or_queue(ep, peer, request);
	ep->posting = NULL;
}

enum rb_now rb_shm_send_now(struct rb_endpoint *base, const struct rb_message *m)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_peer *peer = &ep->peers[m->peer];

	if (peer->state != RB_SHM_CONNECTED || peer->sends.first != NULL ||
	    !is_eager(ep, peer, m->size_bytes) || !credit_there(&peer->out, m->size_bytes) ||
	    !write_eager(peer, m->tag, m->signature, m->buffer, m->size_bytes))
		return RB_NOW_REFUSED;
	ep->base.bytes_sent += m->size_bytes;
	return RB_NOW_DONE;
}

/* The peer has read the cells, a lap ago: to take them back costs more than to fill them. */
void rb_shm_send_soon(struct rb_endpoint *base, uint32_t rank)
{
	struct rb_shm_peer *peer = &((struct rb_shm_endpoint *)base)->peers[rank];

	if (peer->state != RB_SHM_CONNECTED)
		return;
	rb_prefetch_write(cell_at(&peer->out, peer->out.position));
	rb_prefetch_write(cell_at(&peer->out, peer->out.position + 1));
}

/* ---- Puts ---- */

/* One slice into mapped memory; true when all is there. */
static bool copy_slice(const struct rb_shm_peer *peer, struct rb_request *request)
{
	uint64_t *offset = &request->backend[RB_SHM_OFFSET];
	size_t left = request->size_bytes - *offset;
	size_t slice = left < RB_SHM_SLICE_BYTES ? left : RB_SHM_SLICE_BYTES;

	if (slice > 0)
		peer->out.copy((uint8_t *)request->remote->mapped + request->remote_offset +
				       *offset,
			       (const uint8_t *)request->buffer + *offset, slice);
	*offset += slice;
	return *offset == request->size_bytes;
}

void rb_shm_put(struct rb_endpoint *base, struct rb_request *request)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_peer *peer = post_begin(ep, request, RB_REQUEST_PUT);
	const struct rb_remote *remote = request->remote;

	request->backend[RB_SHM_OFFSET] = 0;
	if (peer == NULL) {
		ep->posting = NULL;
		return;
	}
	rubato_status kinds = rb_put_check(base, request);

	if (kinds != RUBATO_OK)
		rb_shm_complete(ep, request, kinds);
	else if (remote->peer != request->peer || request->remote_offset > remote->size_bytes ||
		 request->size_bytes > remote->size_bytes - request->remote_offset)
		rb_shm_complete(
			ep, request,
			RB_FAIL(RUBATO_ERR_ARGUMENT,
				"shm: a put of %zu bytes at %llu into a region of %zu of rank %u",
				request->size_bytes, (unsigned long long)request->remote_offset,
				remote->size_bytes, remote->peer));
	else if (remote->mapped == NULL && request->size_bytes > 0)
		enqueue(ep, peer, &peer->streams, request, RB_SHM_STREAMING);
	else if (remote->mapped == NULL || copy_slice(peer, request))
		send_or_queue(ep, peer, request);
	else
		enqueue(ep, peer, &peer->copies, request, RB_SHM_COPYING);
	ep->posting = NULL;
}

/* ---- Flush ---- */

static bool control_try(struct rb_shm_peer *peer, enum rb_shm_cell_kind kind, struct rb_tag tag,
			const uint64_t arg[3])
{
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = cell_at(out, out->position);

	if (!cells_free(out, 1))
		return false;
	cell->tag = tag;
	memcpy(cell->arg, arg, sizeof(cell->arg));
	publish(peer, cell, kind, 0, 1);
	return true;
}

void rb_shm_say(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, enum rb_shm_cell_kind kind,
		struct rb_tag tag, uint64_t arg0, uint64_t arg1, uint64_t arg2)
{
	struct rb_shm_control *control;

	if (peer->control_first == NULL &&
	    control_try(peer, kind, tag, (const uint64_t[]) { arg0, arg1, arg2 }))
		return;
	control = malloc(sizeof(*control));
	if (control == NULL) {
		peer->doom = RB_FAIL(RUBATO_ERR_MEMORY, "shm: an answer to rank %u", peer->rank);
		ep->notice = true;
		return;
	}
	*control = (struct rb_shm_control) { NULL, kind, tag, { arg0, arg1, arg2 } };
	if (peer->control_last != NULL)
		peer->control_last->next = control;
	else
		peer->control_first = control;
	peer->control_last = control;
	peer->outgoing++;
	ep->base.leaving++;
}

static void flush_control(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	while (peer->control_first != NULL) {
		struct rb_shm_control *c = peer->control_first;

		if (!control_try(peer, c->kind, c->tag, c->arg))
			return;
		peer->control_first = c->next;
		if (peer->control_first == NULL)
			peer->control_last = NULL;
		peer->outgoing--;
		ep->base.leaving--;
		free(c);
	}
}

/* The last piece of a request is out. */
static void stream_end(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       struct rb_request *request)
{
	dequeue(ep, peer, &peer->streams, request);
	if (request->kind == RB_REQUEST_PUT) {
		send_or_queue(ep, peer, request);
		return;
	}
	rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
	request_done(ep, request);
}

static void stream_piece(struct rb_shm_peer *peer, struct rb_request *request)
{
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = cell_at(out, out->position);
	uint64_t offset = request->backend[RB_SHM_OFFSET];
	size_t left = request->size_bytes - offset;
	size_t piece = rb_shm_piece(left);
	uint32_t slot;

	bool shown = request->kind == RB_REQUEST_SEND && rb_shm_shows(offset);
	uint64_t begun_ns = shown ? rb_clock_ns() : 0;

	slot = bulk_fill(peer, (const uint8_t *)request->buffer + offset, piece);
	cell->tag = request->tag;
	if (request->kind == RB_REQUEST_PUT) {
		cell->arg[0] = ((const struct rb_shm_remote *)request->remote)->id;
		cell->arg[1] = request->remote_offset + offset;
		cell->arg[2] = piece;
		publish(peer, cell, RB_SHM_WRITE, slot, 1);
	} else {
		cell->arg[0] = request->backend[RB_SHM_THEIR_ID];
		cell->arg[1] = piece;
		cell->arg[2] = shown ? rb_clock_ns() - begun_ns : 0;
		publish(peer, cell, RB_SHM_DATA, slot, 1);
	}
	request->backend[RB_SHM_OFFSET] += piece;
}

/* A piece of each in turn: a long message does not hold up a shorter one. While a send waits, only
 * what they are owed: it may need all buffers. */
static void flush_streams(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	struct rb_shm_outbound *out = &peer->out;

	while (peer->streams.first != NULL && (peer->sends.first == NULL || out->owed > 0) &&
	       rb_shm_bulks_free(&peer->bulks, 1) && cells_free(out, 1)) {
		struct rb_request *request = peer->streams.first;

		out->owed -= out->owed > 0;
		stream_piece(peer, request);
		if (request->backend[RB_SHM_OFFSET] == request->size_bytes) {
			stream_end(ep, peer, request);
		} else if (request->next != NULL) {
			rb_shm_queue_remove(&peer->streams, request);
			rb_shm_queue_add(&peer->streams, request);
		}
	}
}

void rb_shm_flush(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	struct rb_request *copy = peer->copies.first;

	flush_control(ep, peer);
	while (peer->sends.first != NULL) {
		struct rb_request *request = peer->sends.first;

		dequeue(ep, peer, &peer->sends, request);
		if (!send_try(ep, peer, request)) {
			rb_shm_queue_push(&peer->sends, request);
			peer->outgoing++;
			ep->base.leaving++;
			break;
		}
	}
	flush_streams(ep, peer);
	if ((peer->receives.active | peer->attached_sends.active) != 0)
		rb_shm_attach_flush(ep, peer);
	if (copy != NULL && copy_slice(peer, copy)) {
		dequeue(ep, peer, &peer->copies, copy);
		send_or_queue(ep, peer, copy);
	}
}

bool rb_shm_blocked(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	struct rb_shm_outbound *out = &peer->out;
	uint32_t before = out->consumed;

	(void)ep;
	if (peer->copies.first != NULL ||
	    (peer->receives.active | peer->attached_sends.active) != 0)
		return false;
	consumed_refresh(out);
	if (out->consumed != before || out->consumed == out->position)
		return false;
	if (!out->want) {
		out->want = true;
		out->want_at = out->position;
		publish(peer, cell_at(out, out->position), RB_SHM_WANT, 0, 1);
	}
	return true;
}

/* ---- Answers ---- */

bool rb_shm_cleared(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t id,
		    uint64_t their_id, uint64_t address)
{
	struct rb_request *request = rb_shm_id_find(&ep->ids, id);

	if (request == NULL || request->peer != peer->rank ||
	    request->backend[RB_SHM_STAGE] != RB_SHM_ANNOUNCED)
		return true; /* Withdrawn meanwhile. */
	request->backend[RB_SHM_THEIR_ID] = their_id;
	if (address != 0)
		return rb_shm_joined(ep, peer, request, address);
	(void)rb_shm_part_early(ep, peer, request); /* It has to stream. */
	rb_shm_queue_remove(&peer->announced, request);
	request->backend[RB_SHM_OFFSET] = 0;
	enqueue(ep, peer, &peer->streams, request, RB_SHM_STREAMING);
	return true;
}

static void send_unlink(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			struct rb_request *request)
{
	switch ((enum rb_shm_stage)request->backend[RB_SHM_STAGE]) {
	case RB_SHM_QUEUED:
		dequeue(ep, peer, &peer->sends, request);
		break;
	case RB_SHM_COPYING:
		dequeue(ep, peer, &peer->copies, request);
		break;
	case RB_SHM_STREAMING:
		dequeue(ep, peer, &peer->streams, request);
		if (request->kind == RB_REQUEST_SEND)
			rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
		break;
	case RB_SHM_ANNOUNCED:
		rb_shm_part(ep, peer, request);
		rb_shm_queue_remove(&peer->announced, request);
		rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
		break;
	case RB_SHM_MATCHING:
	case RB_SHM_IN_PIECES:
	case RB_SHM_INCOMING:
	case RB_SHM_SETTLING:
	case RB_SHM_LETTING:
		RB_ASSERT(request->kind != RB_REQUEST_RECV);
	}
}

bool rb_shm_enough(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t id)
{
	struct rb_request *request = rb_shm_id_find(&ep->ids, id);

	if (request == NULL || request->peer != peer->rank || request->kind == RB_REQUEST_RECV)
		return false;
	send_unlink(ep, peer, request);
	request_done(ep, request);
	return true;
}

void rb_shm_sent(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request)
{
	send_unlink(ep, peer, request);
	request_done(ep, request);
}

bool rb_shm_cancel_send(struct rb_shm_endpoint *ep, struct rb_request *request)
{
	struct rb_shm_peer *peer = &ep->peers[request->peer];
	uint64_t stage = request->backend[RB_SHM_STAGE];
	bool sent = stage == RB_SHM_ANNOUNCED && rb_shm_part_early(ep, peer, request);

	send_unlink(ep, peer, request);
	if (sent)
		return false;
	if (stage == RB_SHM_ANNOUNCED ||
	    (stage == RB_SHM_STREAMING && request->kind == RB_REQUEST_SEND))
		rb_shm_say(ep, peer, RB_SHM_WITHDRAW, request->tag, request->backend[RB_SHM_ID], 0,
			   0);
	return true;
}
