/*
 * verbs_message.c -- posts of messages, and what is done with each that arrives.
 *
 * What arrives is checked before it is believed: head, counts, sizes, credit. A peer that breaks
 * the protocol is lost. A small message goes from its slots straight to its receive where
 * that is posted when the first piece comes; else it is gathered, and looks for its receive again
 * when it is whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/verbs/verbs_large.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"

/* ---- Sending ---- */

bool rb_verbs_fits(struct rb_request *receive, const struct rb_signature *signature,
		   uint64_t size_bytes)
{
	if (size_bytes == receive->size_bytes && rb_signature_same(signature, &receive->signature))
		return true;
	receive->theirs = *signature;
	receive->their_bytes = size_bytes;
	return false;
}

/* `device`: the data are one's. */
static rubato_status finish_copy(struct rb_verbs *vb, struct rb_request *receive,
				 const struct rb_signature *signature, const void *data,
				 uint64_t size_bytes, bool device)
{
	if (!rb_verbs_fits(receive, signature, size_bytes))
		return RUBATO_ERR_MISMATCH;
	RB_TRY(rb_verbs_copy(vb, device || rb_verbs_is_device(receive), receive->buffer, data,
			     size_bytes));
	vb->base.bytes_received += size_bytes;
	return RUBATO_OK;
}

static struct rb_verbs_arrival *arrival_make(struct rb_tag tag,
					     const struct rb_signature *signature,
					     uint64_t size_bytes, size_t payload_bytes)
{
	struct rb_verbs_arrival *arrival = malloc(sizeof(*arrival) + payload_bytes);

	if (arrival == NULL)
		return NULL;
	*arrival = (struct rb_verbs_arrival) { .base = { .tag = tag, .signature = *signature },
					       .size_bytes = size_bytes };
	return arrival;
}

static void send_self(struct rb_verbs *vb, struct rb_request *send)
{
	struct rb_match_peer *match = &vb->peers[send->peer].match;
	struct rb_request *receive = rb_match_receive(match, send->tag);
	struct rb_verbs_arrival *arrival;

	vb->base.bytes_sent += send->size_bytes;
	if (receive != NULL) {
		rb_verbs_complete(vb, receive,
				  finish_copy(vb, receive, &send->signature, send->buffer,
					      send->size_bytes, rb_verbs_is_device(send)));
		rb_verbs_complete(vb, send, RUBATO_OK);
		return;
	}
	arrival = arrival_make(send->tag, &send->signature, send->size_bytes, 0);
	if (arrival == NULL) {
		rb_verbs_complete(vb, send, RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a message"));
		return;
	}
	arrival->send = send;
	send->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_SELF;
	send->backend[RB_VERBS_OTHER] = (uint64_t)(uintptr_t)arrival;
	rb_match_add_arrival(match, &arrival->base);
}

static void send_eager(struct rb_verbs *vb, struct rb_request *request)
{
	struct rb_verbs_head head = { .message = RB_VERBS_EAGER,
				      .tag = request->tag,
				      .signature = request->signature,
				      .size_bytes = request->size_bytes };
	uint8_t copy[RB_VERBS_EAGER_MAX];
	const void *from = request->buffer;

	if (rb_verbs_is_device(request)) {
		rubato_status status = rb_verbs_copy(vb, rb_verbs_is_device(request), copy, from,
						     request->size_bytes);

		from = copy;
		if (status != RUBATO_OK) {
			rb_verbs_complete(vb, request, status);
			return;
		}
	}
	vb->peers[request->peer].spent += rb_verbs_units(request->size_bytes);
	rb_verbs_tell(vb, request->peer, &head, from, request->size_bytes);
	vb->base.bytes_sent += request->size_bytes;
	rb_verbs_complete(vb, request, vb->peers[request->peer].lost ? RUBATO_ERR_PEER : RUBATO_OK);
}

void rb_verbs_post_send(struct rb_verbs *vb, struct rb_request *request)
{
	struct rb_verbs_peer *peer = &vb->peers[request->peer];

	if (request->peer == vb->base.rank)
		send_self(vb, request);
	else if (peer->lost)
		rb_verbs_complete(vb, request, RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason));
	else if (peer->outgoing.arrival_count > 0 && rb_verbs_serve(vb, request))
		return;
	else if (request->size_bytes <= RB_VERBS_EAGER_MAX &&
		 rb_verbs_has_units(peer, rb_verbs_units(request->size_bytes)))
		send_eager(vb, request);
	else
		rb_verbs_announce(vb, request);
}

/* ---- Receiving ---- */

/* One that was in the matcher, and is no more: whole or announced. */
static void arrival_end(struct rb_verbs *vb, uint32_t rank, struct rb_verbs_arrival *arrival)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	peer->held -= arrival->units;
	peer->freed += arrival->units;
	peer->waiting -= arrival->units == 0 && arrival->send == NULL;
	free(arrival);
}

void rb_verbs_post_recv(struct rb_verbs *vb, struct rb_request *receive)
{
	uint32_t rank = receive->peer;
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_arrival *arrival =
		(struct rb_verbs_arrival *)rb_match_arrival(&peer->match, receive->tag);
	struct rb_request *send;

	if (arrival == NULL && peer->lost) {
		rb_verbs_complete(vb, receive, RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason));
		return;
	}
	if (arrival == NULL) {
		receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_MATCHING;
		rb_match_add_receive(&peer->match, receive);
		rb_verbs_invite(vb, receive);
		return;
	}
	if (arrival->id != 0) {
		rb_verbs_meet(vb, receive, arrival->id, &arrival->base.signature,
			      arrival->size_bytes);
		arrival_end(vb, rank, arrival);
		return;
	}
	send = arrival->send;
	rb_verbs_complete(vb, receive,
			  finish_copy(vb, receive, &arrival->base.signature,
				      send != NULL ? send->buffer : arrival->payload,
				      arrival->size_bytes,
				      send != NULL && rb_verbs_is_device(send)));
	if (send != NULL)
		rb_verbs_complete(vb, send, RUBATO_OK);
	arrival_end(vb, rank, arrival);
	rb_verbs_repay(vb, peer);
}

/* False: the peer is lost. */
static bool is_bearable(struct rb_verbs *vb, uint32_t rank, uint32_t cost)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	if (cost <= RB_VERBS_UNITS_MAX - peer->held && peer->waiting < RB_VERBS_WAITING_MAX)
		return true;
	rb_verbs_wrong(vb, rank, "it sent more than its credit");
	return false;
}

/* A message without its receive: into the matcher. NULL: the peer is lost. */
static struct rb_verbs_arrival *keep(struct rb_verbs *vb, uint32_t rank,
				     const struct rb_verbs_head *head, uint32_t cost,
				     size_t payload_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_arrival *arrival;

	if (!is_bearable(vb, rank, cost))
		return NULL;
	arrival = arrival_make(head->tag, &head->signature, head->size_bytes, payload_bytes);
	if (arrival == NULL) {
		rb_verbs_lose(vb, rank, "no memory for a message from it");
		return NULL;
	}
	arrival->units = cost;
	peer->held += cost;
	peer->waiting += cost == 0;
	return arrival;
}

/* Ends a receive that a message has met which does not fit. */
static void mismatch(struct rb_verbs *vb, struct rb_request *receive)
{
	if (receive->backend[RB_VERBS_FLIGHT] != 0)
		rb_verbs_revoke(vb, receive);
	else
		rb_verbs_complete(vb, receive, RUBATO_ERR_MISMATCH);
}

static void announced(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	struct rb_match_peer *match = &vb->peers[rank].match;
	struct rb_request *receive = rb_match_receive(match, head->tag);
	struct rb_verbs_arrival *arrival;

	if (receive != NULL && receive->backend[RB_VERBS_FLIGHT] != 0) {
		rb_match_add_receive(match, receive); /* Its sender finds the invitation. */
		return;
	}
	if (receive != NULL) {
		rb_verbs_meet(vb, receive, head->id, &head->signature, head->size_bytes);
		return;
	}
	arrival = keep(vb, rank, head, 0, 0);
	if (arrival == NULL)
		return;
	arrival->id = head->id;
	rb_match_add_arrival(match, &arrival->base);
}

/* The announced message was cancelled; one that was met has an invitation, which stays. */
static void gone(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	struct rb_match_peer *match = &vb->peers[rank].match;
	struct rb_verbs_arrival *arrival =
		(struct rb_verbs_arrival *)rb_match_arrival(match, head->tag);

	if (arrival != NULL && arrival->id == head->id)
		arrival_end(vb, rank, arrival);
	else if (arrival != NULL)
		rb_match_add_arrival(match, &arrival->base);
}

/* ---- Small messages ---- */

/* Whole, and not on its way to a receive: it looks for one, or waits. */
static void gathered(struct rb_verbs *vb, uint32_t rank, struct rb_verbs_arrival *arrival)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_request *receive = rb_match_receive(&peer->match, arrival->base.tag);
	rubato_status status;

	if (receive == NULL) {
		rb_match_add_arrival(&peer->match, &arrival->base);
		return;
	}
	status = finish_copy(vb, receive, &arrival->base.signature, arrival->payload,
			     arrival->size_bytes, false);
	if (status != RUBATO_ERR_MISMATCH)
		rb_verbs_complete(vb, receive, status);
	else
		mismatch(vb, receive);
	arrival_end(vb, rank, arrival);
}

static void piece_take(struct rb_verbs *vb, uint32_t rank, const uint8_t *payload, uint32_t bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_request *receive = peer->coming.receive;
	struct rb_verbs_arrival *arrival = peer->coming.arrival;

	if (bytes > 0 && receive != NULL)
		memcpy((uint8_t *)receive->buffer + peer->coming.moved, payload, bytes);
	else if (bytes > 0 && arrival != NULL)
		memcpy(arrival->payload + peer->coming.moved, payload, bytes);
	peer->coming.moved += bytes;
	peer->coming.left_bytes -= bytes;
	if (peer->coming.left_bytes > 0)
		return;
	peer->coming.receive = NULL;
	peer->coming.arrival = NULL;
	if (arrival == NULL)
		peer->freed += peer->coming.cost;
	if (receive != NULL) {
		vb->base.bytes_received += peer->coming.moved;
		rb_verbs_complete(vb, receive, RUBATO_OK);
	} else if (arrival != NULL) {
		gathered(vb, rank, arrival);
	}
}

static void eager_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			  const uint8_t *payload)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	uint32_t cost = rb_verbs_units(head->size_bytes);
	struct rb_request *receive;
	struct rb_verbs_arrival *arrival = NULL;

	if (peer->coming.left_bytes > 0 || head->size_bytes > RB_VERBS_EAGER_MAX ||
	    head->bytes > head->size_bytes || (head->bytes == 0) != (head->size_bytes == 0)) {
		rb_verbs_wrong(vb, rank, "a message's size is not what its head says");
		return;
	}
	receive = rb_match_receive(&peer->match, head->tag);
	if (receive != NULL && !rb_verbs_fits(receive, &head->signature, head->size_bytes)) {
		mismatch(vb, receive);
		receive = NULL;
	} else if (receive != NULL && head->bytes == head->size_bytes) { /* Nearly always. */
		rubato_status status = rb_verbs_copy(vb, rb_verbs_is_device(receive),
						     receive->buffer, payload, head->bytes);

		peer->freed += cost;
		vb->base.bytes_received += head->bytes;
		rb_verbs_complete(vb, receive, status);
		return;
	} else if (receive != NULL && !rb_verbs_is_device(receive)) {
		receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_RECEIVING;
	} else {
		if (receive != NULL) /* It is copied as a whole. */
			rb_match_add_receive(&peer->match, receive);
		receive = NULL;
		arrival = keep(vb, rank, head, cost, (size_t)head->size_bytes);
		if (arrival == NULL)
			return;
	}
	peer->coming.receive = receive;
	peer->coming.arrival = arrival;
	peer->coming.cost = cost;
	peer->coming.moved = 0;
	peer->coming.left_bytes = head->size_bytes;
	piece_take(vb, rank, payload, head->bytes);
}

static void more_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			 const uint8_t *payload)
{
	if (head->bytes == 0 || head->bytes > vb->peers[rank].coming.left_bytes)
		rb_verbs_wrong(vb, rank, "a piece of no message");
	else
		piece_take(vb, rank, payload, head->bytes);
}

/* The empty message behind a put, perhaps between the pieces of another one. */
static void put_take(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	struct rb_match_peer *match = &vb->peers[rank].match;
	struct rb_request *receive = rb_match_receive(match, head->tag);
	struct rb_verbs_head empty = *head;
	struct rb_verbs_arrival *arrival;
	rubato_status status = vb->device_regions > 0 ? rb_verbs_flush(vb) : RUBATO_OK;

	empty.size_bytes = 0; /* Where it came by several links it is something else. */
	if (receive == NULL) {
		arrival = keep(vb, rank, &empty, 0, 0);
		if (arrival != NULL)
			rb_match_add_arrival(match, &arrival->base);
	} else if (rb_verbs_fits(receive, &empty.signature, 0)) {
		rb_verbs_complete(vb, receive, status);
	} else {
		mismatch(vb, receive);
	}
}

/* What a put to oneself delivers. */
void rb_verbs_deliver_self(struct rb_verbs *vb, struct rb_request *put)
{
	struct rb_verbs_head head = { .message = RB_VERBS_PUT,
				      .tag = put->tag,
				      .signature = put->signature };

	put_take(vb, vb->base.rank, &head);
}

/* ---- Leaving ---- */

void rb_verbs_end_take(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	if (head->message == RB_VERBS_PUT)
		put_take(vb, rank, head);
	else
		rb_verbs_large_arrived(vb, rank, head, NULL);
}

void rb_verbs_leave(struct rb_verbs *vb, uint32_t rank)
{
	char reason[RB_VERBS_REASON_BYTES];

	vb->peers[rank].left = true;
	(void)snprintf(reason, sizeof(reason), "rank %u has left", rank);
	rb_verbs_lose(vb, rank, reason);
}

static void bye_arrived(struct rb_verbs *vb, uint32_t rank)
{
	vb->peers[rank].leaving = true;
	if (!rb_verbs_ends_wait(&vb->peers[rank]))
		rb_verbs_leave(vb, rank);
}

static void abort_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			  const uint8_t *payload)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	char reason[RB_VERBS_REASON_BYTES];

	peer->gave_up = true;
	peer->spoke = head->bytes == RB_LAST_WORDS_BYTES;
	if (peer->spoke)
		memcpy(peer->last_words, payload, RB_LAST_WORDS_BYTES);
	peer->blames = head->id <= vb->base.rank_count ? (uint32_t)head->id : 0;
	if (vb->connecting && peer->live == 0 && peer->link_count > 0) {
		rb_verbs_gave_up(vb, peer);
		return;
	}
	(void)snprintf(reason, sizeof(reason), "rank %u: it gave up", rank);
	rb_verbs_lose(vb, rank, reason);
}

/* ---- Heads ---- */

/* What is of a link, not of the stream. */
static void link_dispatch(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  struct rb_verbs_link *link, const struct rb_verbs_head *head,
			  const uint8_t *payload)
{
	switch ((enum rb_verbs_message)head->message) {
	case RB_VERBS_HELLO:
		if (link == NULL) /* Over TCP it is of none. */
			break;
		rb_verbs_greeted(vb, link, payload, head->bytes);
		return;
	case RB_VERBS_MARK:
		rb_verbs_mark_arrived(vb, peer, head);
		return;
	case RB_VERBS_RESUME:
		rb_verbs_resume_arrived(vb, peer, head);
		return;
	case RB_VERBS_RISE:
		rb_verbs_rise_arrived(vb, peer, payload, head->bytes);
		return;
	case RB_VERBS_CREDIT:
		return;
	default:
		break;
	}
	rb_verbs_wrong(vb, peer->rank, "a message of an unknown kind");
}

static void dispatch(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
		     const uint8_t *payload)
{
	switch ((enum rb_verbs_message)head->message) {
	case RB_VERBS_EAGER:
		eager_arrived(vb, rank, head, payload);
		return;
	case RB_VERBS_MORE:
		more_arrived(vb, rank, head, payload);
		return;
	case RB_VERBS_ANNOUNCE:
		if (head->id == 0)
			rb_verbs_wrong(vb, rank, "a message without a number");
		else
			announced(vb, rank, head);
		return;
	case RB_VERBS_GONE:
		gone(vb, rank, head);
		return;
	case RB_VERBS_FIN:
	case RB_VERBS_PUT:
	case RB_VERBS_STOPPED:
	case RB_VERBS_ENDED:
		if (rb_verbs_end_arrived(vb, &vb->peers[rank], head))
			rb_verbs_end_take(vb, rank, head);
		return;
	case RB_VERBS_CLEAR:
	case RB_VERBS_REFUSED:
	case RB_VERBS_DROP:
	case RB_VERBS_DATA:
	case RB_VERBS_STOP:
	case RB_VERBS_KEPT:
		rb_verbs_large_arrived(vb, rank, head, payload);
		return;
	case RB_VERBS_BYE:
		bye_arrived(vb, rank);
		return;
	case RB_VERBS_ABORT:
		abort_arrived(vb, rank, head, payload);
		return;
	default:
		rb_verbs_wrong(vb, rank, "a message of an unknown kind");
	}
}

/* Counts say what is known already, or more: those of units come by several links, and those of
 * slots not over TCP. False: the peer is lost. */
static bool counts_take(struct rb_verbs *vb, struct rb_verbs_peer *peer, struct rb_verbs_link *link,
			const struct rb_verbs_head *head)
{
	uint32_t freed = head->freed - peer->spent_known;
	bool late = freed > INT32_MAX;

	if ((link != NULL && head->consumed - link->sent_known > link->sent - link->sent_known) ||
	    (!late && freed > peer->spent - peer->spent_known)) {
		rb_verbs_wrong(vb, peer->rank, "it gave back more than it was sent");
		return false;
	}
	if (link != NULL)
		link->sent_known = head->consumed;
	if (!late)
		peer->spent_known = head->freed;
	return true;
}

void rb_verbs_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer, struct rb_verbs_link *link,
		      const void *bytes, uint32_t byte_count)
{
	const uint8_t *payload = (const uint8_t *)bytes + sizeof(struct rb_verbs_head);
	const struct rb_verbs_head *head =
		bytes; /* Nobody writes there before it is posted again. */

	if (byte_count < sizeof(*head)) {
		rb_verbs_wrong(vb, peer->rank, "a head is cut off");
		return;
	}
	if (head->bytes != byte_count - sizeof(*head)) {
		rb_verbs_wrong(vb, peer->rank, "a malformed head");
		return;
	}
	if (link != NULL && !link->greeted && head->message != RB_VERBS_HELLO) {
		rb_verbs_wrong(vb, peer->rank, "its first message is no greeting");
		return;
	}
	if (!counts_take(vb, peer, link, head))
		return;
	if (!rb_verbs_is_numbered(head->message)) {
		link_dispatch(vb, peer, link, head, payload);
		return;
	}
	if (head->number != peer->their_number) {
		rb_verbs_wrong(vb, peer->rank, "a message is missing, or came twice");
		return;
	}
	peer->their_number++;
	dispatch(vb, peer->rank, head, payload);
}

void rb_verbs_arrivals_drop(struct rb_verbs *vb, uint32_t rank, bool all)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_arrival *whole = NULL;
	struct rb_arrival *arrival;

	free(peer->coming.arrival);
	memset(&peer->coming, 0, sizeof(peer->coming));
	while ((arrival = rb_match_any_arrival(&peer->match)) != NULL) {
		struct rb_verbs_arrival *own = (struct rb_verbs_arrival *)arrival;

		if (own->id != 0 || all) {
			free(own);
			continue;
		}
		own->base.next = (struct rb_arrival *)whole; /* Somebody may receive it yet. */
		whole = own;
	}
	while (whole != NULL) {
		struct rb_verbs_arrival *own = whole;

		whole = (struct rb_verbs_arrival *)own->base.next;
		rb_match_add_arrival(&peer->match, &own->base);
	}
}
