/*
 * ucx_message.c -- slots that hold what leaves, and what is done with each message that arrives.
 *
 * Everything that arrives is checked before it is believed: head, sender, ids, bounds, credit. A
 * peer that breaks the protocol is lost; a stranger's message is dropped. Messages may overtake
 * each other: ids that have ended are met by an answer, not by an assertion.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/ucx/ucx.h"

#define ARRIVAL_BYTES 128u /* What a waiting message costs besides its payload. */

enum sent { SENT, HELD, LOST }; /* HELD: the slot comes back in slot_sent(). */

static uint32_t units(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + ARRIVAL_BYTES + RB_UCX_CREDIT_UNIT - 1) /
			  RB_UCX_CREDIT_UNIT);
}

static void copy(void *to, const void *from, size_t size_bytes)
{
	if (size_bytes != 0)
		memcpy(to, from, size_bytes);
}

/* ---- Slots ---- */

static struct rb_ucx_slot *slot_take(struct rb_ucx *ux, enum rb_ucx_slot_class slot_class)
{
	static const size_t payload_bytes[RB_UCX_SLOT_CLASSES] = { RB_UCX_SMALL_MAX,
								   RB_UCX_MIDDLE_MAX,
								   RB_UCX_PIECE_BYTES };
	struct rb_ucx_slot *slot = ux->slots[slot_class];

	if (slot != NULL) {
		ux->slots[slot_class] = slot->next;
		return slot;
	}
	slot = malloc(sizeof(*slot) + payload_bytes[slot_class]);
	if (slot == NULL)
		return NULL;
	slot->ux = ux;
	slot->slot_class = slot_class;
	slot->next_made = ux->slots_made;
	ux->slots_made = slot;
	return slot;
}

static void slot_give(struct rb_ucx_slot *slot)
{
	slot->next = slot->ux->slots[slot->slot_class];
	slot->ux->slots[slot->slot_class] = slot;
}

void rb_ucx_slots_free(struct rb_ucx *ux)
{
	while (ux->slots_made != NULL) {
		struct rb_ucx_slot *slot = ux->slots_made;

		ux->slots_made = slot->next_made;
		free(slot);
	}
}

static void slot_sent(void *ucp_request, ucs_status_t status, void *arg)
{
	struct rb_ucx_slot *slot = arg;
	struct rb_ucx *ux = slot->ux;
	struct rb_ucx_peer *peer = &ux->peers[slot->peer];
	struct rb_request *request = NULL;
	uint32_t peer_rank = slot->peer;
	uint64_t flight = slot->flight;

	ux->api.ucp_request_free(ucp_request);
	peer->out--;
	ux->base.leaving -= !peer->lost;
	slot_give(slot);
	if (status != UCS_OK && !peer->lost)
		rb_ucx_lose_by_status(ux, peer_rank, status);
	if (flight == 0)
		return;
	request = rb_ucx_flight_find(ux, flight, peer_rank, RB_UCX_STAGE_SENDING);
	if (request == NULL)
		request = rb_ucx_flight_find(ux, flight, peer_rank, RB_UCX_STAGE_PUTTING);
	if (request == NULL)
		return;
	request->backend[RB_UCX_OUT]--;
	rb_ucx_push(ux, request);
}

/* Sends slot->head and the payload to slot->peer. The slot is no longer the caller's. */
static enum sent slot_send(struct rb_ucx_slot *slot, size_t payload_bytes)
{
	struct rb_ucx *ux = slot->ux;
	struct rb_ucx_peer *peer = &ux->peers[slot->peer];
	uint32_t credit = peer->owed > UINT16_MAX ? UINT16_MAX : peer->owed;
	size_t head_bytes =
		slot->head.message == RB_UCX_EAGER ? RB_UCX_HEAD_SHORT : sizeof(slot->head);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = slot_sent,
		.user_data = slot,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	ucs_status_ptr_t sent;

	slot->head.job = ux->job;
	slot->head.sender = ux->base.rank;
	slot->head.version = RB_UCX_VERSION;
	slot->head.credit = (uint16_t)credit;
	peer->owed -= credit;
	ux->handed++;
	ux->base.leaving += !ux->unflushed;
	ux->unflushed = true;
	sent = ux->api.ucp_am_send_nbx(peer->ucp, RB_UCX_AM_ID, &slot->head, head_bytes,
				       slot->payload, payload_bytes, &param);
	if (sent == NULL) {
		slot_give(slot);
		return SENT;
	}
	if (UCS_PTR_IS_ERR(sent)) {
		uint32_t lost = slot->peer;

		slot_give(slot);
		rb_ucx_lose_by_status(ux, lost, UCS_PTR_STATUS(sent));
		return LOST;
	}
	peer->out++;
	ux->base.leaving++;
	return HELD;
}

/* ---- Leaving ---- */

static void flush_over(struct rb_ucx *ux)
{
	ux->unflushed = false;
	ux->base.leaving--;
}

/* UCX's: inside progress. */
static void flushed(void *ucp_request, ucs_status_t status, void *arg)
{
	struct rb_ucx *ux = arg;

	(void)status; /* Failures are told by endpoints. */
	ux->api.ucp_request_free(ucp_request);
	ux->flushing = false;
	if (ux->unflushed && ux->handed == ux->flushed)
		flush_over(ux);
}

/*
 * UCX gives a slot back when it has the bytes, which a socket may not have taken yet: a flush of
 * the worker tells. Bytes of a connection that has ended are never flushed, so it is not asked any
 * more then: the communicator has ended, or its survivors are driven by what they agree upon.
 *
 * A flush under way holds the worker's first endpoint, and one that never ends must not hold one
 * that was closed: UCX would end the process with its worker. So the first one is to ourselves.
 */
bool rb_ucx_left(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = flushed,
		.user_data = ux,
	};
	ucs_status_ptr_t flush = NULL;

	if (ep->leaving != ux->unflushed)
		return false;
	if (ux->unflushed && !ux->deserted && !ux->flushing && ux->anchor != NULL) {
		ux->flushed = ux->handed;
		flush = ux->api.ucp_worker_flush_nbx(ux->worker, &param);
		ux->flushing = UCS_PTR_IS_PTR(flush);
	}
	if (ux->unflushed && (ux->deserted || !ux->flushing))
		flush_over(ux);
	return !ux->unflushed;
}

static void tell_all(struct rb_ucx *ux, uint32_t peer, const struct rb_ucx_head *head,
		     const void *payload, size_t payload_bytes)
{
	struct rb_ucx_slot *slot;

	if (ux->peers[peer].lost || ux->peers[peer].ucp == NULL)
		return;
	slot = slot_take(ux, RB_UCX_SLOT_SMALL);
	if (slot == NULL) {
		rb_ucx_lose(ux, peer, "no memory for a message to it");
		return;
	}
	slot->peer = peer;
	slot->flight = 0;
	slot->head = *head;
	copy(slot->payload, payload, payload_bytes);
	(void)slot_send(slot, payload_bytes);
}

void rb_ucx_tell_head(struct rb_ucx *ux, uint32_t peer, const struct rb_ucx_head *head)
{
	tell_all(ux, peer, head, NULL, 0);
}

void rb_ucx_tell(struct rb_ucx *ux, uint32_t peer, enum rb_ucx_message message, struct rb_tag tag,
		 uint64_t id, uint64_t offset)
{
	struct rb_ucx_head head = {
		.message = (uint8_t)message, .tag = tag, .id = id, .offset = offset
	};

	rb_ucx_tell_head(ux, peer, &head);
}

void rb_ucx_tell_abort(struct rb_ucx *ux, uint32_t peer)
{
	struct rb_ucx_head head = { .message = RB_UCX_ABORT,
				    .tag = RB_UCX_NO_TAG,
				    .id = ux->base.blames };

	tell_all(ux, peer, &head, ux->base.last_words,
		 ux->base.last_words != NULL ? RB_LAST_WORDS_BYTES : 0);
}

static void wrong(struct rb_ucx *ux, uint32_t peer, const char *what)
{
	char reason[sizeof(ux->peers[peer].reason)];

	(void)snprintf(reason, sizeof(reason), "rank %u broke the protocol: %s", peer, what);
	rb_ucx_lose(ux, peer, reason);
}

/* Gives credit back at once when there is much to give; the rest rides on other messages. */
static void consumed(struct rb_ucx *ux, uint32_t peer, uint32_t count)
{
	ux->peers[peer].owed += count;
	if (ux->peers[peer].owed >= RB_UCX_CREDIT_MAX / 4)
		rb_ucx_tell(ux, peer, RB_UCX_CREDIT, RB_UCX_NO_TAG, 0, 0);
}

/* ---- Sending ---- */

static bool fits(struct rb_request *receive, const struct rb_signature *signature,
		 uint64_t size_bytes)
{
	if (size_bytes == receive->size_bytes && rb_signature_same(signature, &receive->signature))
		return true;
	receive->theirs = *signature;
	receive->their_bytes = size_bytes;
	return false;
}

static rubato_status finish_copy(struct rb_ucx *ux, struct rb_request *receive,
				 const struct rb_signature *signature, const void *data,
				 uint64_t size_bytes)
{
	if (!fits(receive, signature, size_bytes))
		return RUBATO_ERR_MISMATCH;
	copy(receive->buffer, data, size_bytes);
	ux->base.bytes_received += size_bytes;
	return RUBATO_OK;
}

static struct rb_ucx_arrival *arrival_make(size_t payload_bytes)
{
	return calloc(1, sizeof(struct rb_ucx_arrival) + payload_bytes);
}

static void send_self(struct rb_ucx *ux, struct rb_request *send)
{
	struct rb_match_peer *match = &ux->peers[send->peer].match;
	struct rb_request *receive = rb_match_receive(match, send->tag);
	struct rb_ucx_arrival *arrival;

	ux->base.bytes_sent += send->size_bytes;
	if (receive != NULL) {
		rb_ucx_complete(
			ux, receive,
			finish_copy(ux, receive, &send->signature, send->buffer, send->size_bytes));
		rb_ucx_complete(ux, send, RUBATO_OK);
		return;
	}
	arrival = arrival_make(0);
	if (arrival != NULL)
		arrival->base.signature = send->signature;
	if (arrival == NULL) {
		rb_ucx_complete(ux, send, RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a message"));
		return;
	}
	arrival->base.tag = send->tag;
	arrival->self = send;
	send->backend[RB_UCX_STAGE] = RB_UCX_STAGE_SELF;
	rb_match_add_arrival(match, &arrival->base);
}

static void send_eager(struct rb_ucx *ux, struct rb_request *request)
{
	size_t size = request->size_bytes;
	struct rb_ucx_slot *slot = slot_take(ux, size <= RB_UCX_SMALL_MAX    ? RB_UCX_SLOT_SMALL
						 : size <= RB_UCX_MIDDLE_MAX ? RB_UCX_SLOT_MIDDLE
									     : RB_UCX_SLOT_PIECE);
	enum sent sent;

	if (slot == NULL) {
		rb_ucx_complete(ux, request, RB_FAIL(RUBATO_ERR_MEMORY, "no memory to send"));
		return;
	}
	slot->peer = request->peer;
	slot->flight = 0;
	slot->head = (struct rb_ucx_head) { .message = RB_UCX_EAGER,
					    .tag = request->tag,
					    .signature = request->signature,
					    .size_bytes = size };
	copy(slot->payload, request->buffer, size);
	ux->peers[request->peer].credit -= units(size);
	sent = slot_send(slot, size);
	if (sent == LOST) {
		rb_ucx_complete(ux, request, RUBATO_ERR_PEER);
		return;
	}
	ux->base.bytes_sent += size;
	rb_ucx_complete(ux, request, RUBATO_OK);
}

static void send_announce(struct rb_ucx *ux, struct rb_request *request)
{
	rubato_status status = rb_ucx_flight_begin(ux, request, RB_UCX_STAGE_ANNOUNCED);
	struct rb_ucx_head head = { .message = RB_UCX_ANNOUNCE,
				    .tag = request->tag,
				    .signature = request->signature,
				    .size_bytes = request->size_bytes,
				    .id = request->backend[RB_UCX_FLIGHT] };

	if (status != RUBATO_OK)
		rb_ucx_complete(ux, request, status);
	else
		rb_ucx_tell_head(ux, request->peer, &head); /* A loss completes the request. */
}

void rb_ucx_post_send(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_ucx_peer *peer = &ux->peers[request->peer];

	if (request->peer == ux->base.rank)
		send_self(ux, request);
	else if (peer->lost)
		rb_ucx_complete(ux, request, RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason));
	else if (request->size_bytes <= RB_UCX_EAGER_MAX &&
		 peer->credit >= units(request->size_bytes))
		send_eager(ux, request);
	else
		send_announce(ux, request);
}

/* What is put in one piece needs no PUT_END: one message. */
static void head_of_piece(const struct rb_request *request, uint64_t moved, size_t piece,
			  struct rb_ucx_head *head)
{
	bool put = request->kind == RB_REQUEST_PUT;
	uint64_t region = put ? ((struct rb_ucx_remote *)request->remote)->region : 0;

	*head = (struct rb_ucx_head) {
		.message = RB_UCX_DATA,
		.tag = request->tag,
		.signature = request->signature,
		.size_bytes = piece,
		.id = request->backend[RB_UCX_THEIRS],
		.offset = put ? request->remote_offset + moved : moved,
	};
	if (put && piece == request->size_bytes) {
		head->message = RB_UCX_PUT;
		head->id = region;
	} else if (put) {
		head->message = RB_UCX_PUT_DATA;
		head->tag.call = region;
	}
}

/* A piece of the request in a slot; false when there is no memory for one now. */
static bool push_piece(struct rb_ucx *ux, struct rb_request *request, enum sent *sent)
{
	uint64_t moved = request->backend[RB_UCX_MOVED];
	size_t left = request->size_bytes - moved;
	size_t piece = left < RB_UCX_PIECE_BYTES ? left : RB_UCX_PIECE_BYTES;
	struct rb_ucx_slot *slot = slot_take(ux, RB_UCX_SLOT_PIECE);

	if (slot == NULL)
		return false;
	slot->peer = request->peer;
	slot->flight = request->backend[RB_UCX_FLIGHT];
	head_of_piece(request, moved, piece, &slot->head);
	copy(slot->payload, (const uint8_t *)request->buffer + moved, piece);
	request->backend[RB_UCX_MOVED] += piece;
	request->backend[RB_UCX_OUT]++;
	ux->base.bytes_sent += piece;
	*sent = slot_send(slot, piece);
	if (*sent == SENT)
		request->backend[RB_UCX_OUT]--;
	return true;
}

void rb_ucx_push(struct rb_ucx *ux, struct rb_request *request)
{
	bool ends = request->kind == RB_REQUEST_PUT && request->size_bytes > RB_UCX_PIECE_BYTES;

	while (request->backend[RB_UCX_MOVED] < request->size_bytes) {
		enum sent sent = SENT;

		if (request->backend[RB_UCX_OUT] >= RB_UCX_PIECES_OUT)
			return;
		if (!push_piece(ux, request, &sent)) {
			if (request->backend[RB_UCX_OUT] != 0)
				return; /* The next slot that comes back goes on. */
			rb_ucx_withdraw(ux, request);
			rb_ucx_complete(ux, request,
					RB_FAIL(RUBATO_ERR_MEMORY, "no memory to send"));
			return;
		}
		if (sent == LOST)
			return; /* The loss has completed the request. */
	}
	if (ends) {
		struct rb_ucx_head end = { .message = RB_UCX_PUT_END,
					   .tag = request->tag,
					   .signature = request->signature,
					   .id = request->backend[RB_UCX_THEIRS],
					   .offset = request->size_bytes };

		rb_ucx_tell_head(ux, request->peer, &end);
		if (request->backend[RB_UCX_STAGE] == RB_UCX_STAGE_NONE)
			return; /* Lost, and so completed. */
	}
	rb_ucx_complete(ux, request, RUBATO_OK);
}

/* ---- Receiving ---- */

static void self_remove(struct rb_match_peer *match, struct rb_request *send)
{
	struct rb_arrival *others = NULL, *arrival;

	for (;;) {
		arrival = rb_match_arrival(match, send->tag);
		if (arrival == NULL || ((struct rb_ucx_arrival *)arrival)->self == send)
			break;
		arrival->next = others;
		others = arrival;
	}
	free(arrival);
	while (others != NULL) {
		arrival = others;
		others = others->next;
		rb_match_add_arrival(match, arrival);
	}
}

/* Before a request ends early: takes it out of the matcher, and lets the peer know. */
void rb_ucx_withdraw(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_match_peer *match = &ux->peers[request->peer].match;

	switch ((enum rb_ucx_stage)request->backend[RB_UCX_STAGE]) {
	case RB_UCX_STAGE_MATCHING:
		(void)rb_match_remove_receive(match, request);
		break;
	case RB_UCX_STAGE_SELF:
		self_remove(match, request);
		break;
	case RB_UCX_STAGE_ANNOUNCED:
		rb_ucx_tell(ux, request->peer, RB_UCX_WITHDRAW, request->tag,
			    request->backend[RB_UCX_FLIGHT], 0);
		break;
	case RB_UCX_STAGE_SENDING:
		rb_ucx_tell(ux, request->peer, RB_UCX_STOPPED, request->tag,
			    request->backend[RB_UCX_THEIRS], 0);
		break;
	case RB_UCX_STAGE_PUTTING:
		rb_ucx_tell(ux, request->peer, RB_UCX_PUT_STOPPED, request->tag,
			    request->backend[RB_UCX_THEIRS], 0);
		break;
	case RB_UCX_STAGE_RECEIVING: /* What still comes finds no flight and is dropped. */
	case RB_UCX_STAGE_NONE:
		break;
	}
}

/* The receive meets an announcement: asks for the data, or says that none is wanted. */
static void receive_announced(struct rb_ucx *ux, struct rb_request *receive,
			      const struct rb_signature *signature, uint64_t size_bytes,
			      uint64_t theirs)
{
	rubato_status status = RUBATO_OK;

	if (!fits(receive, signature, size_bytes))
		status = RUBATO_ERR_MISMATCH;
	else if (size_bytes != 0)
		status = rb_ucx_flight_begin(ux, receive, RB_UCX_STAGE_RECEIVING);
	if (status != RUBATO_OK || size_bytes == 0) {
		rb_ucx_tell(ux, receive->peer, RB_UCX_CLEAR, receive->tag, theirs, 0);
		rb_ucx_complete(ux, receive, status);
		return;
	}
	receive->backend[RB_UCX_MOVED] = 0;
	rb_ucx_tell(ux, receive->peer, RB_UCX_CLEAR, receive->tag, theirs,
		    receive->backend[RB_UCX_FLIGHT]);
}

/* The arrival stops waiting. */
static void arrival_end(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *arrival)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];

	if (arrival->units != 0) {
		peer->held -= arrival->units;
		consumed(ux, rank, arrival->units);
	} else if (arrival->self == NULL) {
		peer->waiting--;
	}
	free(arrival);
}

void rb_ucx_post_recv(struct rb_ucx *ux, struct rb_request *receive)
{
	struct rb_ucx_peer *peer = &ux->peers[receive->peer];
	struct rb_ucx_arrival *arrival =
		(struct rb_ucx_arrival *)rb_match_arrival(&peer->match, receive->tag);

	if (arrival == NULL && peer->lost) {
		rb_ucx_complete(ux, receive, RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason));
		return;
	}
	if (arrival == NULL) {
		receive->backend[RB_UCX_STAGE] = RB_UCX_STAGE_MATCHING;
		rb_match_add_receive(&peer->match, receive);
		return;
	}
	if (arrival->self != NULL) {
		struct rb_request *send = arrival->self;

		rb_ucx_complete(
			ux, receive,
			finish_copy(ux, receive, &send->signature, send->buffer, send->size_bytes));
		rb_ucx_complete(ux, send, RUBATO_OK);
	} else if (arrival->message == RB_UCX_ANNOUNCE) {
		receive_announced(ux, receive, &arrival->base.signature, arrival->size_bytes,
				  arrival->id);
	} else {
		rb_ucx_complete(ux, receive,
				finish_copy(ux, receive, &arrival->base.signature, arrival->payload,
					    arrival->size_bytes));
	}
	arrival_end(ux, receive->peer, arrival);
}

/* Keeps a message whose receive is not there yet, within bounds. */
static void keep(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
		 uint32_t message, uint32_t cost)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	size_t payload_bytes = message == RB_UCX_ANNOUNCE ? 0 : (size_t)head->size_bytes;
	struct rb_ucx_arrival *arrival;

	if (cost > RB_UCX_CREDIT_MAX - peer->held || peer->waiting >= RB_UCX_WAITING_MAX) {
		wrong(ux, head->sender, "it sent more than its credit");
		return;
	}
	arrival = arrival_make(payload_bytes);
	if (arrival == NULL) {
		rb_ucx_lose(ux, head->sender, "no memory for a message from it");
		return;
	}
	arrival->base.tag = head->tag;
	arrival->message = message;
	arrival->units = cost;
	arrival->base.signature = head->signature;
	arrival->size_bytes = head->size_bytes;
	arrival->id = message == RB_UCX_ANNOUNCE ? head->id : 0;
	copy(arrival->payload, data, payload_bytes);
	peer->held += cost;
	peer->waiting += cost == 0;
	rb_match_add_arrival(&peer->match, &arrival->base);
}

void rb_ucx_deliver(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data)
{
	uint32_t cost = head->message == RB_UCX_EAGER ? units(head->size_bytes) : 0;
	struct rb_request *receive = rb_match_receive(&ux->peers[head->sender].match, head->tag);

	if (receive == NULL) {
		keep(ux, head, data, RB_UCX_EAGER, cost);
		return;
	}
	rb_ucx_complete(ux, receive,
			finish_copy(ux, receive, &head->signature, data, head->size_bytes));
	consumed(ux, head->sender, cost);
}

static void announced(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_request *receive = rb_match_receive(&ux->peers[head->sender].match, head->tag);

	if (receive == NULL)
		keep(ux, head, NULL, RB_UCX_ANNOUNCE, 0);
	else
		receive_announced(ux, receive, &head->signature, head->size_bytes, head->id);
}

static void cleared(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_request *send =
		rb_ucx_flight_find(ux, head->id, head->sender, RB_UCX_STAGE_ANNOUNCED);

	if (send == NULL) { /* Cancelled meanwhile. */
		if (head->offset != 0)
			rb_ucx_tell(ux, head->sender, RB_UCX_STOPPED, head->tag, head->offset, 0);
		return;
	}
	if (head->offset == 0) {
		rb_ucx_complete(ux, send, RUBATO_OK);
		return;
	}
	send->backend[RB_UCX_STAGE] = RB_UCX_STAGE_SENDING;
	send->backend[RB_UCX_THEIRS] = head->offset;
	rb_ucx_push(ux, send);
}

static void withdrawn(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	struct rb_arrival *others = NULL, *arrival;

	for (;;) {
		arrival = rb_match_arrival(&peer->match, head->tag);
		if (arrival == NULL ||
		    (((struct rb_ucx_arrival *)arrival)->message == RB_UCX_ANNOUNCE &&
		     ((struct rb_ucx_arrival *)arrival)->id == head->id))
			break;
		arrival->next = others;
		others = arrival;
	}
	if (arrival != NULL)
		arrival_end(ux, head->sender, (struct rb_ucx_arrival *)arrival);
	while (others != NULL) {
		arrival = others;
		others = others->next;
		rb_match_add_arrival(&peer->match, arrival);
	}
}

static void piece_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			  size_t data_bytes)
{
	struct rb_request *receive =
		rb_ucx_flight_find(ux, head->id, head->sender, RB_UCX_STAGE_RECEIVING);

	if (receive == NULL)
		return; /* Cancelled. */
	if (head->offset > receive->size_bytes || data_bytes > receive->size_bytes - head->offset ||
	    data_bytes > receive->size_bytes - receive->backend[RB_UCX_MOVED]) {
		wrong(ux, head->sender, "a piece lies outside its message");
		return;
	}
	copy((uint8_t *)receive->buffer + head->offset, data, data_bytes);
	receive->backend[RB_UCX_MOVED] += data_bytes;
	ux->base.bytes_received += data_bytes;
	if (receive->backend[RB_UCX_MOVED] == receive->size_bytes)
		rb_ucx_complete(ux, receive, RUBATO_OK);
}

/* The sender cancelled: the receive waits for the next message with its tag. */
static void stopped(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_request *receive =
		rb_ucx_flight_find(ux, head->id, head->sender, RB_UCX_STAGE_RECEIVING);

	if (receive == NULL)
		return;
	rb_ucx_flight_end(ux, receive);
	rb_ucx_post_recv(ux, receive);
}

static void left(struct rb_ucx *ux, uint32_t rank)
{
	char reason[sizeof(ux->peers[rank].reason)];

	rb_ucx_tell(ux, rank, RB_UCX_BYE_SEEN, RB_UCX_NO_TAG, 0, 0);
	ux->peers[rank].left = true;
	ux->peers[rank].welcomed = true; /* It was quick: connected, done and gone before us. */
	(void)snprintf(reason, sizeof(reason), "rank %u has left", rank);
	rb_ucx_lose(ux, rank, reason);
}

static void aborted(struct rb_ucx *ux, uint32_t rank, uint64_t blames, const void *words,
		    size_t words_bytes)
{
	char reason[sizeof(ux->peers[rank].reason)];

	rb_ucx_tell(ux, rank, RB_UCX_BYE_SEEN, RB_UCX_NO_TAG, 0, 0);
	ux->peers[rank].gave_up = true;
	ux->peers[rank].spoke = words_bytes == RB_LAST_WORDS_BYTES;
	if (ux->peers[rank].spoke)
		memcpy(ux->peers[rank].last_words, words, words_bytes);
	ux->peers[rank].blames = blames <= ux->base.rank_count ? (uint32_t)blames : 0;
	(void)snprintf(reason, sizeof(reason), "rank %u: it gave up", rank);
	rb_ucx_lose(ux, rank, reason);
}

static void dispatch(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
		     size_t data_bytes)
{
	uint32_t rank = head->sender;
	const char *what = NULL;

	switch ((enum rb_ucx_message)head->message) {
	case RB_UCX_HELLO:
		rb_ucx_tell(ux, rank, RB_UCX_WELCOME, RB_UCX_NO_TAG, 0, 0);
		return;
	case RB_UCX_WELCOME:
		ux->peers[rank].welcomed = true;
		return;
	case RB_UCX_EAGER:
		if (data_bytes == head->size_bytes && data_bytes <= RB_UCX_EAGER_MAX)
			rb_ucx_deliver(ux, head, data);
		else
			wrong(ux, rank, "a message's size is not what its head says");
		return;
	case RB_UCX_ANNOUNCE:
		announced(ux, head);
		return;
	case RB_UCX_CLEAR:
		cleared(ux, head);
		return;
	case RB_UCX_WITHDRAW:
		withdrawn(ux, head);
		return;
	case RB_UCX_DATA:
		piece_arrived(ux, head, data, data_bytes);
		return;
	case RB_UCX_STOPPED:
		stopped(ux, head);
		return;
	case RB_UCX_PUT:
	case RB_UCX_PUT_DATA:
	case RB_UCX_PUT_END:
	case RB_UCX_PUT_STOPPED:
		if (!rb_ucx_put_arrived(ux, head, data, data_bytes, &what))
			wrong(ux, rank, what);
		return;
	case RB_UCX_CREDIT:
	case RB_UCX_BYE_SEEN:
		return;
	case RB_UCX_BYE:
		left(ux, rank);
		return;
	case RB_UCX_ABORT:
		aborted(ux, rank, head->id, data, data_bytes);
		return;
	}
	wrong(ux, rank, "a message of an unknown kind");
}

ucs_status_t rb_ucx_arrived(void *arg, const void *header, size_t header_bytes, void *data,
			    size_t data_bytes, const ucp_am_recv_param_t *param)
{
	struct rb_ucx *ux = arg;
	struct rb_ucx_head head = { 0 };
	struct rb_ucx_peer *peer;

	/* Also drops what was not sent whole: nobody of ours does that. */
	if (header_bytes < RB_UCX_HEAD_SHORT || header_bytes > sizeof(head) ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
		return UCS_OK;
	memcpy(&head, header, header_bytes);
	if (head.version != RB_UCX_VERSION || head.job != ux->job ||
	    head.sender >= ux->base.rank_count || head.sender == ux->base.rank ||
	    !ux->peers[head.sender].used) {
		RB_LOG(RB_LOG_DEBUG, "dropped a message from a stranger");
		return UCS_OK;
	}
	peer = &ux->peers[head.sender];
	if (head.message == RB_UCX_BYE_SEEN)
		peer->bye_seen = true;
	if (peer->lost)
		return UCS_OK;
	if (head.message != RB_UCX_EAGER && header_bytes != sizeof(head)) {
		wrong(ux, head.sender, "a head is cut off");
		return UCS_OK;
	}
	if (head.credit > RB_UCX_CREDIT_MAX - peer->credit) {
		wrong(ux, head.sender, "it gave back more credit than was spent");
		return UCS_OK;
	}
	peer->credit += head.credit;
	dispatch(ux, &head, data, data_bytes);
	return UCS_OK;
}

void rb_ucx_arrivals_drop(struct rb_ucx *ux, uint32_t rank, bool all)
{
	struct rb_match_peer *match = &ux->peers[rank].match;
	struct rb_arrival *kept = NULL, *arrival;

	while ((arrival = rb_match_any_arrival(match)) != NULL) {
		struct rb_ucx_arrival *message = (struct rb_ucx_arrival *)arrival;

		if (all || message->message == RB_UCX_ANNOUNCE) {
			free(message);
		} else {
			arrival->next = kept;
			kept = arrival;
		}
	}
	while (kept != NULL) {
		arrival = kept;
		kept = kept->next;
		rb_match_add_arrival(match, arrival);
	}
}
