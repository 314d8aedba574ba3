/*
 * shm_receive.c -- the way in: what peers' cells say, and receives that wait.
 *
 * A cell is dealt with when it is read, whatever is posted: a message without receive is copied to
 * private memory (bounded by the credit of its sender) or, if announced, noted. So no ring and no
 * bulk buffer ever waits for the application.
 *
 * Nothing that a peer writes is trusted, nor believed to stay: what a cell says is read once, into
 * a copy, and only the copy is judged and used. Ids are looked up: pieces for a receive that was
 * cancelled find no one and are dropped. Payloads alone are read where they lie.
 */
#include "transport/shm/shm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MASK (RB_SHM_CELLS - 1)

static inline struct rb_shm_cell *cell_at(const struct rb_shm_inbound *in, uint32_t position)
{
	return &in->ring->cells[position & MASK];
}

/* A field of shared memory, read once: the compiler must not look again after it was judged. */
#define ONCE(field) (*(const volatile __typeof__(field) *)&(field))

/* What a cell says, but its word; `args`: the rest is no payload. */
static inline void cell_read(const struct rb_shm_cell *shared, bool args, struct rb_shm_cell *cell)
{
	cell->tag = ONCE(shared->tag);
	cell->signature = ONCE(shared->signature);
	for (uint32_t i = 0; args && i < 3; i++)
		cell->arg[i] = ONCE(shared->arg[i]);
}

static void payload_read(const struct rb_shm_inbound *in, uint8_t *target, size_t size_bytes)
{
	uint32_t position = in->position;
	const struct rb_shm_cell *cell = cell_at(in, position);
	size_t left;

	if (size_bytes == 8) {
		memcpy(target, cell->payload, 8);
		return;
	}
	if (size_bytes <= RB_SHM_CELL_PAYLOAD) {
		if (size_bytes > 0)
			memcpy(target, cell->payload, size_bytes);
		return;
	}
	memcpy(target, cell->payload, RB_SHM_CELL_PAYLOAD);
	target += RB_SHM_CELL_PAYLOAD;
	/* Of a known size they are some moves, not calls: so whole cells are apart. */
	for (left = size_bytes - RB_SHM_CELL_PAYLOAD; left >= RB_SHM_CHAIN_PAYLOAD;
	     left -= RB_SHM_CHAIN_PAYLOAD, target += RB_SHM_CHAIN_PAYLOAD)
		memcpy(target, &cell_at(in, ++position)->tag, RB_SHM_CHAIN_PAYLOAD);
	if (left > 0)
		memcpy(target, &cell_at(in, ++position)->tag, left);
}

static inline uint32_t cells_of(size_t size_bytes)
{
	if (size_bytes <= RB_SHM_CELL_PAYLOAD)
		return 1;
	return 1 + (uint32_t)((size_bytes - RB_SHM_CELL_PAYLOAD + RB_SHM_CHAIN_PAYLOAD - 1) /
			      RB_SHM_CHAIN_PAYLOAD);
}

static void consumed_store(struct rb_shm_inbound *in)
{
	atomic_store_explicit(&in->credit->consumed, in->position, memory_order_release);
}

static void release(struct rb_shm_inbound *in, uint64_t size_bytes)
{
	in->released += size_bytes + RB_SHM_ARRIVAL_BYTES;
	atomic_store_explicit(&in->credit->released, in->released, memory_order_release);
}

/* Whether the message is what the receive waits for. */
static bool fits(struct rb_request *request, const struct rb_signature *signature,
		 uint64_t size_bytes)
{
	if (__builtin_expect(request->size_bytes == size_bytes &&
				     rb_signature_same(&request->signature, signature),
			     1))
		return true;
	request->theirs = *signature;
	request->their_bytes = size_bytes;
	return false;
}

/* Completes the receive if the message, which is here, does not fit. */
static bool mismatched(struct rb_shm_endpoint *ep, struct rb_request *request,
		       const struct rb_signature *signature, uint64_t size_bytes)
{
	if (fits(request, signature, size_bytes))
		return false;
	rb_shm_complete(ep, request, RUBATO_ERR_MISMATCH);
	return true;
}

static void received(struct rb_shm_endpoint *ep, struct rb_request *request)
{
	ep->base.bytes_received += request->size_bytes;
	rb_shm_complete(ep, request, RUBATO_OK);
}

struct rb_shm_announced {
	struct rb_signature signature;
	uint64_t size_bytes, their_id, joint;
};

/*
 * A posted receive met an announced message. Whatever comes of it, the sender has the last word:
 * until it has read our answer it may take the message back, and then the receive waits for the
 * next one.
 */
static void answer(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request,
		   const struct rb_shm_announced *a)
{
	bool fit = fits(request, &a->signature, a->size_bytes);
	bool moves = fit && a->size_bytes > 0;
	uint64_t id = rb_shm_id_take(&ep->ids, request);

	if (id == RB_SHM_ID_NONE) {
		rb_shm_say(ep, peer, RB_SHM_ENOUGH, request->tag, a->their_id, 0, 0);
		rb_shm_complete(ep, request,
				RB_FAIL(RUBATO_ERR_MEMORY, "shm: the id of a receive"));
		return;
	}
	request->backend[RB_SHM_STAGE] = moves ? RB_SHM_INCOMING : RB_SHM_SETTLING;
	request->status = fit ? RUBATO_OK : RUBATO_ERR_MISMATCH;
	request->backend[RB_SHM_ID] = id;
	request->backend[RB_SHM_THEIR_ID] = a->their_id;
	request->backend[RB_SHM_OFFSET] = 0;
	request->backend[RB_SHM_JOINT] = 0;
	rb_shm_queue_add(&peer->incoming, request);
	if (moves)
		rb_shm_say(ep, peer, RB_SHM_CLEAR, request->tag, a->their_id, id,
			   rb_shm_join(ep, peer, request, a->joint));
	else
		rb_shm_say(ep, peer, RB_SHM_SETTLE, request->tag, a->their_id, id, 0);
}

/* What lay here whole, to its receive. */
static void arrival_give(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			 struct rb_request *request, struct rb_shm_arrival *arrival)
{
	release(&peer->in, arrival->size_bytes);
	peer->in.held -= arrival->size_bytes + RB_SHM_ARRIVAL_BYTES;
	if (!mismatched(ep, request, &arrival->base.signature, arrival->size_bytes)) {
		if (arrival->size_bytes > 0)
			memcpy(request->buffer, arrival->payload, arrival->size_bytes);
		received(ep, request);
	}
	free(arrival);
}

/* True: the request is dealt with; false: nothing has come for it. */
static bool take_arrival(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			 struct rb_request *request)
{
	struct rb_shm_arrival *arrival =
		(struct rb_shm_arrival *)rb_match_arrival(&peer->match, request->tag);

	if (arrival == NULL)
		return false;
	if (arrival->their_id == RB_SHM_ID_NONE) {
		arrival_give(ep, peer, request, arrival);
		return true;
	}
	answer(ep, peer, request,
	       &(struct rb_shm_announced) { arrival->base.signature, arrival->size_bytes,
					    arrival->their_id, arrival->joint });
	free(arrival);
	return true;
}

static void post(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request)
{
	if (take_arrival(ep, peer, request))
		return;
	if (peer->state != RB_SHM_CONNECTED) {
		rb_shm_complete(ep, request,
				RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u is %s", peer->rank,
					peer->state == RB_SHM_GONE ? "gone" : "not connected"));
		return;
	}
	request->backend[RB_SHM_STAGE] = RB_SHM_MATCHING;
	rb_match_add_receive(&peer->match, request);
}

void rb_shm_recv(struct rb_endpoint *base, struct rb_request *request)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	request->kind = RB_REQUEST_RECV;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	ep->posting = request;
	if (request->peer >= ep->base.rank_count)
		rb_shm_complete(ep, request,
				RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: no rank %u", request->peer));
	else
		post(ep, &ep->peers[request->peer], request);
	ep->posting = NULL;
}

void rb_shm_cancel_recv(struct rb_shm_endpoint *ep, struct rb_request *request)
{
	struct rb_shm_peer *peer = &ep->peers[request->peer];

	if (request->backend[RB_SHM_STAGE] == RB_SHM_MATCHING) {
		bool there = rb_match_remove_receive(&peer->match, request);

		RB_ASSERT(there);
		return;
	}
	if (request->backend[RB_SHM_STAGE] == RB_SHM_IN_PIECES) {
		peer->in.pieces.request = NULL;
		return;
	}
	(void)rb_shm_part_early(ep, peer, request);
	rb_shm_queue_remove(&peer->incoming, request);
	rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
	rb_shm_say(ep, peer, RB_SHM_ENOUGH, request->tag, request->backend[RB_SHM_THEIR_ID], 0, 0);
}

bool rb_shm_leave_recv(struct rb_shm_endpoint *ep, struct rb_request *request)
{
	struct rb_shm_peer *peer = &ep->peers[request->peer];
	uint64_t stage = request->backend[RB_SHM_STAGE];

	if ((stage != RB_SHM_INCOMING && stage != RB_SHM_SETTLING) ||
	    rb_shm_part_early(ep, peer, request)) /* All of it is here. */
		return false;
	request->status = RUBATO_OK;
	request->backend[RB_SHM_STAGE] = RB_SHM_LETTING;
	if (stage == RB_SHM_INCOMING) /* Else it has been asked. */
		rb_shm_say(ep, peer, RB_SHM_SETTLE, request->tag, request->backend[RB_SHM_THEIR_ID],
			   request->backend[RB_SHM_ID], 0);
	return true;
}

/* ---- Cells ---- */

/* What a peer writes is never taken on trust; poll ends a peer that writes nonsense. */
static void broken(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	peer->doom = RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u wrote a broken cell", peer->rank);
	ep->notice = true;
}

/* their_id: RB_SHM_ID_NONE for a message that is here, whose size has been judged. */
static struct rb_shm_arrival *arrival_new(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
					  const struct rb_shm_cell *cell, uint64_t size_bytes,
					  uint64_t their_id)
{
	size_t payload_bytes = their_id == RB_SHM_ID_NONE ? size_bytes : 0;
	struct rb_shm_arrival *arrival;

	RB_ASSERT(payload_bytes <= RB_SHM_EAGER_MAX);
	if (their_id == RB_SHM_ID_NONE) {
		peer->in.held += size_bytes + RB_SHM_ARRIVAL_BYTES;
		if (peer->in.held > RB_UNEXPECTED_BYTES_MAX) { /* Beyond its credit. */
			broken(ep, peer);
			return NULL;
		}
	}
	arrival = malloc(sizeof(*arrival) + payload_bytes);
	if (arrival == NULL) {
		peer->doom = RB_FAIL(RUBATO_ERR_MEMORY, "shm: an unexpected message of rank %u",
				     peer->rank);
		ep->notice = true;
		return NULL;
	}
	arrival->base.tag = cell->tag;
	arrival->base.signature = cell->signature;
	arrival->size_bytes = size_bytes;
	arrival->their_id = their_id;
	arrival->joint = their_id != RB_SHM_ID_NONE ? (uint32_t)cell->arg[2] : 0;
	return arrival;
}

/*
 * Whether to leave a message without receive where it is: its receive is often posted in answer to
 * what this poll completes, and then it need not be put aside; nor do all that a fast sender has
 * put behind it meanwhile. Once each: what is behind it may be a receive's message, or the wish of
 * a sender that sleeps.
 */
static bool later(const struct rb_shm_endpoint *ep, struct rb_shm_inbound *in)
{
	if (ep->done.first == NULL || in->left == in->position + 1)
		return false;
	in->left = in->position + 1;
	return true;
}

/* False: later, unless all is to be taken. */
static bool take_eager(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       const struct rb_shm_cell *cell, size_t size_bytes, bool all)
{
	struct rb_request *request = rb_match_receive(&peer->match, cell->tag);

	if (request != NULL) {
		release(&peer->in, size_bytes);
		if (mismatched(ep, request, &cell->signature, size_bytes))
			return true;
		payload_read(&peer->in, request->buffer, size_bytes);
		received(ep, request);
	} else if (!all && later(ep, &peer->in)) {
		return false;
	} else {
		struct rb_shm_arrival *arrival =
			arrival_new(ep, peer, cell, size_bytes, RB_SHM_ID_NONE);

		if (arrival != NULL) {
			payload_read(&peer->in, arrival->payload, size_bytes);
			rb_match_add_arrival(&peer->match, &arrival->base);
		}
	}
	return true;
}

/* The next cell's; its word was judged, or nobody cares what is read. */
static const uint8_t *bulk_next(struct rb_shm_peer *peer, uint64_t word)
{
	peer->in.bulk++;
	return rb_shm_bulk_at(&peer->bulks, rb_shm_bulk_number(word) ^ RB_SHM_BULK_OWN);
}

static bool in_bulk(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t size_bytes)
{
	if (size_bytes > RB_SHM_BULK_BYTES)
		broken(ep, peer);
	return size_bytes <= RB_SHM_BULK_BYTES;
}

/* The next piece; of nobody's message it is dropped. All of it here: it is as if it came now. */
static void piece_take(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t word)
{
	struct rb_shm_pieces *p = &peer->in.pieces, whole;
	size_t size_bytes = rb_shm_piece(p->left);
	const uint8_t *source = bulk_next(peer, word);
	struct rb_request *request;

	if (p->request != NULL)
		memcpy((uint8_t *)p->request->buffer + p->here, source, size_bytes);
	else if (p->arrival != NULL)
		memcpy(p->arrival->payload + p->here, source, size_bytes);
	p->here += size_bytes;
	p->left -= size_bytes;
	if (p->left > 0)
		return;
	whole = *p;
	*p = (struct rb_shm_pieces) { .left = 0 };
	if (whole.request != NULL) {
		received(ep, whole.request);
	} else if (whole.arrival != NULL) {
		request = rb_match_receive(&peer->match, whole.arrival->base.tag);
		if (request != NULL)
			arrival_give(ep, peer, request, whole.arrival);
		else
			rb_match_add_arrival(&peer->match, &whole.arrival->base);
	}
}

/* As take_eager. */
static bool take_bulk(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		      const struct rb_shm_cell *cell, uint64_t word, bool all)
{
	struct rb_shm_pieces *p = &peer->in.pieces;
	uint64_t size_bytes = cell->arg[0];
	struct rb_request *request;

	if (size_bytes > RB_SHM_EAGER_MAX) {
		broken(ep, peer);
		return true;
	}
	request = rb_match_receive(&peer->match, cell->tag);
	if (request == NULL && !all && later(ep, &peer->in))
		return false;
	rb_shm_long_taken(&peer->longs, size_bytes, (uint32_t)cell->arg[1]);
	*p = (struct rb_shm_pieces) { .left = size_bytes, .request = request };
	if (p->request != NULL) {
		release(&peer->in, size_bytes);
		if (mismatched(ep, p->request, &cell->signature, size_bytes))
			p->request = NULL;
		else
			p->request->backend[RB_SHM_STAGE] = RB_SHM_IN_PIECES;
	} else {
		p->arrival = arrival_new(ep, peer, cell, size_bytes, RB_SHM_ID_NONE);
	}
	piece_take(ep, peer, word);
	return true;
}

void rb_shm_pieces_lose(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	struct rb_shm_pieces pieces = peer->in.pieces;

	peer->in.pieces = (struct rb_shm_pieces) { .left = 0 };
	free(pieces.arrival);
	if (pieces.request != NULL)
		rb_shm_complete(ep, pieces.request, RUBATO_ERR_PEER);
}

static void take_announce(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			  const struct rb_shm_cell *cell)
{
	struct rb_shm_arrival *arrival;
	struct rb_request *request;

	if (cell->arg[0] == RB_SHM_ID_NONE) { /* It stands for "here", and nobody's id is so. */
		broken(ep, peer);
		return;
	}
	rb_shm_long_taken(&peer->longs, cell->arg[1], (uint32_t)(cell->arg[2] >> 32));
	request = rb_match_receive(&peer->match, cell->tag);
	if (request != NULL)
		answer(ep, peer, request,
		       &(struct rb_shm_announced) { cell->signature, cell->arg[1], cell->arg[0],
						    (uint32_t)cell->arg[2] });
	else if ((arrival = arrival_new(ep, peer, cell, cell->arg[1], cell->arg[0])) != NULL)
		rb_match_add_arrival(&peer->match, &arrival->base);
}

static void incoming_end(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			 struct rb_request *request)
{
	rb_shm_way_note(ep, request);
	rb_shm_queue_remove(&peer->incoming, request);
	rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
	received(ep, request);
}

/* Of a message of which nothing is received. */
static void settled(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		    struct rb_request *request, rubato_status status)
{
	rb_shm_queue_remove(&peer->incoming, request);
	rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
	rb_shm_complete(ep, request, status);
}

static void take_data(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		      const struct rb_shm_cell *cell, uint64_t word)
{
	const uint8_t *source = bulk_next(peer, word);
	struct rb_request *request = rb_shm_id_find(&ep->ids, cell->arg[0]);
	uint64_t size_bytes = cell->arg[1], begun_ns = 0;
	uint64_t sender_ns = cell->arg[2] < UINT32_MAX ? cell->arg[2] : UINT32_MAX;
	uint64_t offset;
	bool left;

	if (!in_bulk(ep, peer, size_bytes) || request == NULL || request->peer != peer->rank ||
	    request->kind != RB_REQUEST_RECV)
		return; /* Cancelled meanwhile. */
	left = request->backend[RB_SHM_STAGE] == RB_SHM_LETTING;
	if (request->backend[RB_SHM_JOINT] != 0 ||
	    (request->backend[RB_SHM_STAGE] != RB_SHM_INCOMING && !left)) {
		broken(ep, peer);
		return;
	}
	offset = request->backend[RB_SHM_OFFSET];
	if (size_bytes > request->size_bytes - offset) {
		broken(ep, peer);
		return;
	}
	if (!left && rb_shm_shows(offset) && request->backend[RB_SHM_SHOWN] != 0)
		begun_ns = rb_clock_ns();
	if (!left)
		memcpy((uint8_t *)request->buffer + offset, source, size_bytes);
	if (begun_ns > 0)
		rb_shm_way_add(request, size_bytes, rb_clock_ns() - begun_ns + sender_ns);
	request->backend[RB_SHM_OFFSET] = offset + size_bytes;
	if (offset + size_bytes < request->size_bytes)
		return;
	if (left)
		settled(ep, peer, request, RUBATO_OK);
	else
		incoming_end(ep, peer, request);
}

void rb_shm_received(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request)
{
	rb_shm_say(ep, peer, RB_SHM_ENOUGH, request->tag, request->backend[RB_SHM_THEIR_ID], 0, 0);
	incoming_end(ep, peer, request);
}

static void take_written(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			 const struct rb_shm_cell *cell)
{
	struct rb_request *request = rb_shm_id_find(&ep->ids, cell->arg[0]);

	if (request == NULL || request->peer != peer->rank || request->kind != RB_REQUEST_RECV)
		return; /* Cancelled meanwhile. */
	if (request->backend[RB_SHM_STAGE] == RB_SHM_LETTING) {
		if (cell->arg[1] != 0) /* Before it was asked, so it does not answer. */
			settled(ep, peer, request, RUBATO_OK);
		return;
	}
	if (request->backend[RB_SHM_JOINT] == 0)
		return; /* Asked for piece by piece. */
	if (cell->arg[1] == 0) {
		rb_shm_stream_instead(ep, peer, request);
	} else { /* Its joint may be another message's by now. */
		rb_shm_part(ep, peer, request);
		incoming_end(ep, peer, request);
	}
}

/* A region that is gone has nobody left who would look: the piece is dropped. */
static void take_write(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       const struct rb_shm_cell *cell, uint64_t word)
{
	const uint8_t *source = bulk_next(peer, word);
	const struct rb_shm_region *region = rb_shm_id_find(&ep->region_ids, cell->arg[0]);
	uint64_t offset = cell->arg[1], size_bytes = cell->arg[2];

	if (!in_bulk(ep, peer, size_bytes) || region == NULL)
		return;
	if (offset > region->base.size_bytes || size_bytes > region->base.size_bytes - offset) {
		broken(ep, peer);
		return;
	}
	memcpy((uint8_t *)region->base.base + offset, source, size_bytes);
}

/* To what we announced. */
static void take_answer(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			const struct rb_shm_cell *cell, uint32_t kind)
{
	if (kind == RB_SHM_CLEAR) {
		if (!rb_shm_cleared(ep, peer, cell->arg[0], cell->arg[1], cell->arg[2]))
			broken(ep, peer);
	} else if (rb_shm_enough(ep, peer, cell->arg[0]) && kind == RB_SHM_SETTLE) {
		rb_shm_say(ep, peer, RB_SHM_SETTLED, cell->tag, cell->arg[1], 0, 0);
	}
}

static void take_settled(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			 const struct rb_shm_cell *cell)
{
	struct rb_request *request = rb_shm_id_find(&ep->ids, cell->arg[0]);

	if (request == NULL || request->peer != peer->rank || request->kind != RB_REQUEST_RECV)
		return; /* Cancelled meanwhile. */
	if (request->backend[RB_SHM_STAGE] != RB_SHM_SETTLING &&
	    request->backend[RB_SHM_STAGE] != RB_SHM_LETTING)
		broken(ep, peer);
	else
		settled(ep, peer, request, request->status);
}

/* The sender took its message back: an unmatched one is forgotten, a matched receive waits again
 * (for another message of this tag, which may be here already). */
static void take_withdraw(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_tag tag,
			  uint64_t their_id)
{
	struct rb_request *request = peer->incoming.first;
	struct rb_arrival *arrival, *others = NULL;

	if (their_id == RB_SHM_ID_NONE) {
		broken(ep, peer);
		return;
	}
	while (request != NULL && request->backend[RB_SHM_THEIR_ID] != their_id)
		request = request->next;
	if (request != NULL && request->backend[RB_SHM_STAGE] == RB_SHM_LETTING) {
		settled(ep, peer, request, RUBATO_ERR_CANCELLED);
		return;
	}
	if (request != NULL) {
		(void)rb_shm_part_early(ep, peer, request);
		rb_shm_queue_remove(&peer->incoming, request);
		rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
		post(ep, peer, request);
		return;
	}
	while ((arrival = rb_match_arrival(&peer->match, tag)) != NULL &&
	       ((struct rb_shm_arrival *)arrival)->their_id != their_id) {
		arrival->next = others;
		others = arrival;
	}
	free(arrival);
	while (others != NULL) {
		arrival = others;
		others = arrival->next;
		rb_match_add_arrival(&peer->match, arrival);
	}
}

static bool in_bulks(uint32_t kind)
{
	return kind == RB_SHM_BULK || kind == RB_SHM_MORE || kind == RB_SHM_DATA ||
	       kind == RB_SHM_WRITE;
}

/* False: it stays, for the next poll. */
static bool take_cell(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, uint64_t word, bool all)
{
	struct rb_shm_inbound *in = &peer->in;
	uint32_t kind = (uint32_t)(word >> 32) & 0xffffu, cells = 1;
	size_t size_bytes = (size_t)(word >> 48);
	struct rb_shm_cell copy, *cell = &copy;

	if ((kind == RB_SHM_MORE) != (in->pieces.left > 0)) {
		broken(ep, peer);
		return false;
	}
	if (in_bulks(kind) && !rb_shm_bulk_exists(word)) {
		broken(ep, peer);
		return false;
	}
	cell_read(cell_at(in, in->position), kind != RB_SHM_EAGER, &copy);
	switch (kind) {
	case RB_SHM_EAGER:
		if (size_bytes > RB_SHM_INLINE_MAX) {
			broken(ep, peer);
			break;
		}
		if (!take_eager(ep, peer, cell, size_bytes, all))
			return false;
		cells = cells_of(size_bytes);
		break;
	case RB_SHM_BULK:
		if (!take_bulk(ep, peer, cell, word, all))
			return false;
		break;
	case RB_SHM_MORE:
		piece_take(ep, peer, word);
		break;
	case RB_SHM_ANNOUNCE:
		take_announce(ep, peer, cell);
		break;
	case RB_SHM_CLEAR:
	case RB_SHM_ENOUGH:
	case RB_SHM_SETTLE:
		take_answer(ep, peer, cell, kind);
		break;
	case RB_SHM_SETTLED:
		take_settled(ep, peer, cell);
		break;
	case RB_SHM_WITHDRAW:
		take_withdraw(ep, peer, cell->tag, cell->arg[0]);
		break;
	case RB_SHM_DATA:
		take_data(ep, peer, cell, word);
		break;
	case RB_SHM_WRITE:
		take_write(ep, peer, cell, word);
		break;
	case RB_SHM_WRITTEN:
		take_written(ep, peer, cell);
		break;
	case RB_SHM_WANT:
		in->wanted = true;
		break;
	default:
		broken(ep, peer);
	}
	in->position += cells;
	if (in_bulks(kind)) {
		rb_shm_bulk_read(&peer->bulks, word);
		consumed_store(in); /* The sender may be waiting for the buffer. */
	}
	return true;
}

static uint64_t word_at(const struct rb_shm_inbound *in, uint32_t position)
{
	return atomic_load_explicit(&cell_at(in, position)->word, memory_order_relaxed);
}

/* Of a message that begins with the next cell: false: some of its pieces are not here yet, or are
 * what poll ends the peer for. */
static bool pieces_read(struct rb_shm_peer *peer, uint8_t *target, size_t size_bytes)
{
	struct rb_shm_inbound *in = &peer->in;
	uint32_t first = in->position;
	uint32_t last = first + (uint32_t)((size_bytes - 1) / RB_SHM_BULK_BYTES);

	if ((uint32_t)atomic_load_explicit(&cell_at(in, last)->word, memory_order_acquire) !=
	    last + 1)
		return false;
	for (uint32_t i = first; i != last + 1; i++) {
		uint64_t word = word_at(in, i);
		uint32_t kind = (uint32_t)(word >> 32) & 0xffffu;

		if ((uint32_t)word != i + 1 || !rb_shm_bulk_exists(word) ||
		    kind != (i == first ? RB_SHM_BULK : RB_SHM_MORE))
			return false;
	}
	for (size_t at = 0; at < size_bytes; at += RB_SHM_BULK_BYTES) {
		uint64_t word = word_at(in, in->position++);

		memcpy(target + at, bulk_next(peer, word), rb_shm_piece(size_bytes - at));
		rb_shm_bulk_read(&peer->bulks, word);
	}
	return true;
}

/* As take_cell does it, if the next cell is the message's. */
static enum rb_now next_take(struct rb_shm_peer *peer, const struct rb_message *m, uint64_t word)
{
	struct rb_shm_inbound *in = &peer->in;
	const struct rb_shm_cell *cell = cell_at(in, in->position);
	uint32_t kind = (uint32_t)(word >> 32) & 0xffffu;
	struct rb_tag tag = ONCE(cell->tag);
	struct rb_signature signature = ONCE(cell->signature);

	if (!rb_tag_same(tag, m->tag) || !rb_signature_same(&signature, m->signature))
		return RB_NOW_REFUSED;
	if (kind == RB_SHM_EAGER && word >> 48 == m->size_bytes &&
	    m->size_bytes <= RB_SHM_INLINE_MAX) {
		payload_read(in, m->buffer, m->size_bytes);
		in->position += cells_of(m->size_bytes);
	} else if (kind != RB_SHM_BULK || ONCE(cell->arg[0]) != m->size_bytes ||
		   m->size_bytes <= RB_SHM_INLINE_MAX || m->size_bytes > RB_SHM_EAGER_MAX ||
		   !pieces_read(peer, m->buffer, m->size_bytes)) {
		return RB_NOW_REFUSED;
	} else {
		rb_shm_long_taken(&peer->longs, m->size_bytes, (uint32_t)ONCE(cell->arg[1]));
	}
	release(in, m->size_bytes);
	consumed_store(in);
	return RB_NOW_DONE;
}

enum rb_now rb_shm_recv_now(struct rb_endpoint *base, const struct rb_message *m)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_shm_peer *peer = &ep->peers[m->peer];
	uint64_t word;

	if (peer->state != RB_SHM_CONNECTED || peer->doom != RUBATO_OK)
		return RB_NOW_REFUSED;
	/* Others may lie aside for long: a probe does until a wait sleeps. */
	if (peer->match.arrival_count > 0 && rb_match_has_arrival(&peer->match, m->tag))
		return RB_NOW_REFUSED;
	word = atomic_load_explicit(&cell_at(&peer->in, peer->in.position)->word,
				    memory_order_acquire);
	if ((uint32_t)word != peer->in.position + 1)
		return RB_NOW_ABSENT;
	if (next_take(peer, m, word) != RB_NOW_DONE)
		return RB_NOW_REFUSED;
	ep->base.bytes_received += m->size_bytes;
	return RB_NOW_DONE;
}

bool rb_shm_here(struct rb_endpoint *base, uint32_t rank)
{
	const struct rb_shm_peer *peer = &((struct rb_shm_endpoint *)base)->peers[rank];

	return peer->state != RB_SHM_CONNECTED ||
	       (uint32_t)atomic_load_explicit(&cell_at(&peer->in, peer->in.position)->word,
					      memory_order_relaxed) == peer->in.position + 1;
}

void rb_shm_drain(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, bool all)
{
	struct rb_shm_inbound *in = &peer->in;

	/* One lap at most: a peer that writes as fast as we read must not starve the others. */
	for (uint32_t i = 0; i < RB_SHM_CELLS && peer->doom == RUBATO_OK; i++) {
		uint64_t word = atomic_load_explicit(&cell_at(in, in->position)->word,
						     memory_order_acquire);

		if ((uint32_t)word != in->position + 1)
			break;
		if (!take_cell(ep, peer, word, all))
			break;
	}
	consumed_store(in);
	if (in->wanted) {
		in->wanted = false;
		rb_shm_doorbell(peer->segment);
	}
}
