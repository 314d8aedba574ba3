/*
 * ucx_message.c -- posts, and what is done with each message that arrives.
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

void rb_ucx_wrong(struct rb_ucx *ux, uint32_t peer, const char *what)
{
	char reason[sizeof(ux->peers[peer].reason)];

	(void)snprintf(reason, sizeof(reason), "rank %u broke the protocol: %s", peer, what);
	rb_ucx_lose(ux, peer, reason);
}

/* Gives credit back at once when there is much to give; the rest rides on other messages. */
static void repay(struct rb_ucx *ux, uint32_t peer)
{
	if (ux->peers[peer].owed >= RB_UCX_CREDIT_MAX / 4 && !ux->peers[peer].lost)
		rb_ucx_tell(ux, peer, RB_UCX_CREDIT, RB_UCX_NO_TAG, 0, 0);
}

/* ---- Sending ---- */

bool rb_ucx_fits(struct rb_request *receive, const struct rb_signature *signature,
		 uint64_t size_bytes)
{
	if (size_bytes == receive->size_bytes && rb_signature_same(signature, &receive->signature))
		return true;
	receive->theirs = *signature;
	receive->their_bytes = size_bytes;
	return false;
}

/* `device`: the data are one's. */
static rubato_status finish_copy(struct rb_ucx *ux, struct rb_request *receive,
				 const struct rb_signature *signature, const void *data,
				 uint64_t size_bytes, bool device)
{
	if (!rb_ucx_fits(receive, signature, size_bytes))
		return RUBATO_ERR_MISMATCH;
	RB_TRY(rb_ucx_move_bytes(ux, device || rb_ucx_is_device(receive), receive->buffer, data,
				 size_bytes));
	ux->base.bytes_received += size_bytes;
	return RUBATO_OK;
}

struct rb_ucx_arrival *rb_ucx_arrival_make(size_t payload_bytes)
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
		rb_ucx_complete(ux, receive,
				finish_copy(ux, receive, &send->signature, send->buffer,
					    send->size_bytes, rb_ucx_is_device(send)));
		rb_ucx_complete(ux, send, RUBATO_OK);
		return;
	}
	arrival = rb_ucx_arrival_make(0);
	if (arrival != NULL)
		arrival->base.signature = send->signature;
	if (arrival == NULL) {
		rb_ucx_complete(ux, send, RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a message"));
		return;
	}
	arrival->base.tag = send->tag;
	arrival->size_bytes = send->size_bytes;
	arrival->self = send;
	send->backend[RB_UCX_STAGE] = RB_UCX_STAGE_SELF;
	send->backend[RB_UCX_OTHER] = (uint64_t)(uintptr_t)arrival;
	rb_match_add_arrival(match, &arrival->base);
}

static void send_eager(struct rb_ucx *ux, struct rb_request *request)
{
	size_t size = request->size_bytes;
	struct rb_ucx_slot *slot =
		rb_ucx_slot_take(ux, size <= RB_UCX_SMALL_MAX    ? RB_UCX_SLOT_SMALL
				     : size <= RB_UCX_MIDDLE_MAX ? RB_UCX_SLOT_MIDDLE
								 : RB_UCX_SLOT_PIECE);
	enum rb_ucx_sent sent;
	rubato_status status;

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
	status = rb_ucx_move_bytes(ux, rb_ucx_is_device(request), slot->payload, request->buffer,
				   size);
	if (status != RUBATO_OK) {
		rb_ucx_slot_give(slot);
		rb_ucx_complete(ux, request, status);
		return;
	}
	ux->peers[request->peer].credit -= rb_ucx_units(size);
	sent = rb_ucx_slot_send(slot, size);
	if (sent == RB_UCX_LOST) {
		rb_ucx_complete(ux, request, RUBATO_ERR_PEER);
		return;
	}
	ux->base.bytes_sent += size;
	rb_ucx_complete(ux, request, RUBATO_OK);
}

void rb_ucx_post_send(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_ucx_peer *peer = &ux->peers[request->peer];

	if (request->peer == ux->base.rank)
		send_self(ux, request);
	else if (peer->lost)
		rb_ucx_complete(ux, request, RB_FAIL(RUBATO_ERR_PEER, "%s", peer->reason));
	else if (request->size_bytes <=
			 (rb_ucx_is_device(request) ? RB_UCX_COPIED_MAX : RB_UCX_EAGER_MAX) &&
		 peer->credit >= rb_ucx_units(request->size_bytes))
		send_eager(ux, request);
	else
		rb_ucx_large_send(ux, request);
}

/* ---- Receiving ---- */

/* Before a request ends early: takes it out of the matcher, and lets the peer know. */
void rb_ucx_withdraw(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_match_peer *match = &ux->peers[request->peer].match;

	switch ((enum rb_ucx_stage)request->backend[RB_UCX_STAGE]) {
	case RB_UCX_STAGE_MATCHING:
		(void)rb_match_remove_receive(match, request);
		break;
	case RB_UCX_STAGE_SELF:
		rb_match_remove_arrival(
			match, (struct rb_arrival *)(uintptr_t)request->backend[RB_UCX_OTHER]);
		free((void *)(uintptr_t)request->backend[RB_UCX_OTHER]);
		break;
	case RB_UCX_STAGE_SENDING:
		rb_ucx_large_stop(ux, request);
		break;
	case RB_UCX_STAGE_PUTTING:
		rb_ucx_tell(ux, request->peer, RB_UCX_PUT_STOPPED, request->tag,
			    request->backend[RB_UCX_OTHER], 0);
		break;
	case RB_UCX_STAGE_RECEIVING:
		rb_ucx_large_leave(ux, request);
		break;
	case RB_UCX_STAGE_NONE:
		break;
	}
}

/* An arrival that was whole, and is no more. */
static void arrival_end(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *arrival)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];

	if (arrival->units != 0) {
		peer->held -= arrival->units;
		peer->owed += arrival->units;
	} else if (arrival->self == NULL) {
		peer->waiting--;
	}
	free(arrival);
}

void rb_ucx_post_recv(struct rb_ucx *ux, struct rb_request *receive)
{
	uint32_t rank = receive->peer;
	struct rb_ucx_peer *peer = &ux->peers[rank];
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
	if (arrival->id != 0) {
		rb_ucx_large_meet(ux, receive, arrival);
	} else {
		struct rb_request *send = arrival->self;

		rb_ucx_complete(ux, receive,
				finish_copy(ux, receive, &arrival->base.signature,
					    send != NULL ? send->buffer : arrival->payload,
					    arrival->size_bytes,
					    send != NULL && rb_ucx_is_device(send)));
		if (send != NULL)
			rb_ucx_complete(ux, send, RUBATO_OK);
		arrival_end(ux, rank, arrival);
	}
	repay(ux, rank);
}

/* Keeps a message whose receive is not there yet, within bounds. */
static void keep(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data, uint32_t cost)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	struct rb_ucx_arrival *arrival;

	if (cost > RB_UCX_CREDIT_MAX - peer->held || peer->waiting >= RB_UCX_WAITING_MAX) {
		rb_ucx_wrong(ux, head->sender, "it sent more than its credit");
		return;
	}
	arrival = rb_ucx_arrival_make((size_t)head->size_bytes);
	if (arrival == NULL) {
		rb_ucx_lack(ux, head->sender, "no memory for a message from it");
		return;
	}
	arrival->base.tag = head->tag;
	arrival->base.signature = head->signature;
	arrival->units = cost;
	arrival->size_bytes = head->size_bytes;
	rb_ucx_copy(arrival->payload, data, (size_t)head->size_bytes);
	peer->held += cost;
	peer->waiting += cost == 0;
	rb_match_add_arrival(&peer->match, &arrival->base);
}

void rb_ucx_deliver(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data)
{
	uint32_t cost = head->message == RB_UCX_EAGER ? rb_ucx_units(head->size_bytes) : 0;
	struct rb_request *receive = rb_match_receive(&ux->peers[head->sender].match, head->tag);

	if (receive == NULL) {
		keep(ux, head, data, cost);
		return;
	}
	rb_ucx_complete(ux, receive,
			finish_copy(ux, receive, &head->signature, data, head->size_bytes, false));
	ux->peers[head->sender].owed += cost;
}

static void left(struct rb_ucx *ux, uint32_t rank)
{
	char reason[sizeof(ux->peers[rank].reason)];

	ux->peers[rank].bye_waits = ux->peers[rank].landings > 0;
	if (ux->peers[rank].bye_waits)
		return;
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
			rb_ucx_wrong(ux, rank, "a message's size is not what its head says");
		return;
	case RB_UCX_AHEAD:
	case RB_UCX_DATA:
		rb_ucx_piece_arrived(ux, head, data, data_bytes);
		return;
	case RB_UCX_CLEAR:
		rb_ucx_cleared(ux, head);
		return;
	case RB_UCX_STOPPED:
	case RB_UCX_ENDED:
		rb_ucx_stopped(ux, head);
		return;
	case RB_UCX_PUT:
	case RB_UCX_PUT_DATA:
	case RB_UCX_PUT_END:
	case RB_UCX_PUT_STOPPED:
		if (!rb_ucx_put_arrived(ux, head, data, data_bytes, &what))
			rb_ucx_wrong(ux, rank, what);
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
	rb_ucx_wrong(ux, rank, "a message of an unknown kind");
}

void rb_ucx_heard(struct rb_ucx *ux, const struct rb_ucx_head *head, void *data, size_t data_bytes)
{
	dispatch(ux, head, data, data_bytes);
	repay(ux, head->sender);
}

ucs_status_t rb_ucx_arrived(void *arg, const void *header, size_t header_bytes, void *data,
			    size_t data_bytes, const ucp_am_recv_param_t *param)
{
	struct rb_ucx *ux = arg;
	struct rb_ucx_head head = { 0 };
	struct rb_ucx_peer *peer;

	if (header_bytes < RB_UCX_HEAD_SHORT || header_bytes > sizeof(head))
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
		rb_ucx_wrong(ux, head.sender, "a head is cut off");
		return UCS_OK;
	}
	if (head.credit > RB_UCX_CREDIT_MAX - peer->credit) {
		rb_ucx_wrong(ux, head.sender, "it gave back more credit than was spent");
		return UCS_OK;
	}
	peer->credit += head.credit;
	if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
		return rb_ucx_landing_begin(ux, &head, data, data_bytes);
	rb_ucx_heard(ux, &head, data, data_bytes);
	return UCS_OK;
}

void rb_ucx_arrivals_drop(struct rb_ucx *ux, uint32_t rank)
{
	struct rb_arrival *arrival;

	while ((arrival = rb_match_any_arrival(&ux->peers[rank].match)) != NULL)
		free(arrival);
}
