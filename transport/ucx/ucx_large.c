/*
 * ucx_large.c -- messages in pieces, at both ends.
 *
 * A piece says whose it is (the sender's flight), how long the whole message is, and what it is
 * for, so whatever comes first announces the message, and pieces may overtake each other. A sender
 * does not wait for its receive: pieces leave on credit, up to a reserve for small messages, and
 * are kept where they find no receive. Once CLEAR is there the rest leaves without credit.
 *
 * At the receiver a message is one of three things:
 *
 *   waiting  in the matcher, with what has come of it, which holds credit
 *   met      with its receive: pieces go where they belong
 *   dead     refused (mismatch), left by its receive (cancelled), or stopped: pieces are dropped
 *
 * It ends when as many bytes have come as were sent. That is all of them, or what the sender says,
 * once: STOPPED if it was cancelled, ENDED if it is told that nobody wants the message. So nothing
 * that still comes of a message is taken for another one, and all credit comes back. A message of
 * no bytes waits for CLEAR like others (a flood of them is bounded by that) and is always ended so.
 *
 * Until all has left the sender may take the message back. So a receive that was met has its
 * result, MISMATCH too, only when the message is whole or ENDED; after STOPPED it waits again.
 */
#include <stdlib.h>

#include "transport/ucx/ucx.h"

/* ---- The sender ---- */

static bool is_cleared(const struct rb_request *request)
{
	return request->kind == RB_REQUEST_PUT || request->backend[RB_UCX_OTHER] != 0;
}

/* What is put in one piece needs no PUT_END: one message. */
static void head_of_piece(const struct rb_request *request, uint64_t moved, size_t piece,
			  struct rb_ucx_head *head)
{
	bool put = request->kind == RB_REQUEST_PUT;
	uint64_t region = put ? ((struct rb_ucx_remote *)request->remote)->region : 0;

	*head = (struct rb_ucx_head) {
		.message = is_cleared(request) ? RB_UCX_DATA : RB_UCX_AHEAD,
		.tag = request->tag,
		.signature = request->signature,
		.size_bytes = put ? piece : request->size_bytes,
		.id = request->backend[put ? RB_UCX_OTHER : RB_UCX_FLIGHT],
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

static size_t next_piece(const struct rb_request *request)
{
	size_t left = request->size_bytes - request->backend[RB_UCX_MOVED];

	size_t most = rb_ucx_is_device(request) ? RB_UCX_ROOM_BYTES : RB_UCX_PIECE_BYTES;

	return left < most ? left : most;
}

/* Whether a piece may leave now; if not, a slot that comes back or CLEAR goes on. */
static bool may_leave(const struct rb_ucx *ux, const struct rb_request *request)
{
	return request->backend[RB_UCX_OUT] < RB_UCX_PIECES_OUT &&
	       (is_cleared(request) ||
		(!rb_ucx_is_device(request) &&
		 ux->peers[request->peer].credit >=
			 rb_ucx_units(next_piece(request)) + RB_UCX_CREDIT_KEPT));
}

/* Its bytes into the slot, or beside it where they are a device's. Errors: MEMORY (for now), the
 * device's. */
static rubato_status slot_fill(struct rb_ucx *ux, struct rb_ucx_slot *slot, const void *from,
			       size_t piece, bool device)
{
	if (device)
		RB_TRY(rb_ucx_room_take(ux, &slot->room));
	return rb_ucx_move_bytes(ux, device, device ? slot->room->memory : slot->payload, from,
				 piece);
}

/* A piece of the request in a slot. Errors: as slot_fill. */
static rubato_status push_piece(struct rb_ucx *ux, struct rb_request *request,
				enum rb_ucx_sent *sent)
{
	bool device = rb_ucx_is_device(request);
	rubato_status status;
	uint64_t moved = request->backend[RB_UCX_MOVED];
	size_t piece = next_piece(request);
	struct rb_ucx_slot *slot =
		rb_ucx_slot_take(ux, device ? RB_UCX_SLOT_SMALL : RB_UCX_SLOT_PIECE);

	if (slot == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory to send");
	status = slot_fill(ux, slot, (const uint8_t *)request->buffer + moved, piece, device);
	if (status != RUBATO_OK) {
		rb_ucx_slot_give(slot);
		return status;
	}
	slot->peer = request->peer;
	slot->flight = request->backend[RB_UCX_FLIGHT];
	head_of_piece(request, moved, piece, &slot->head);
	if (!is_cleared(request))
		ux->peers[request->peer].credit -= rb_ucx_units(piece);
	request->backend[RB_UCX_MOVED] += piece;
	request->backend[RB_UCX_OUT]++;
	ux->base.bytes_sent += piece;
	*sent = rb_ucx_slot_send(slot, piece);
	if (*sent == RB_UCX_SENT)
		request->backend[RB_UCX_OUT]--;
	return RUBATO_OK;
}

/* All has left. A loss on the way completes the request by itself. */
static void pushed(struct rb_ucx *ux, struct rb_request *request)
{
	struct rb_ucx_head end = { .message = RB_UCX_PUT_END,
				   .tag = request->tag,
				   .signature = request->signature,
				   .id = request->backend[RB_UCX_OTHER],
				   .offset = request->size_bytes };
	size_t whole = rb_ucx_is_device(request) ? RB_UCX_ROOM_BYTES : RB_UCX_PIECE_BYTES;

	if (request->kind == RB_REQUEST_PUT && request->size_bytes > whole)
		rb_ucx_tell_head(ux, request->peer, &end);
	if (request->backend[RB_UCX_STAGE] != RB_UCX_STAGE_NONE)
		rb_ucx_complete(ux, request, RUBATO_OK);
}

static void give_up(struct rb_ucx *ux, struct rb_request *request, rubato_status status)
{
	rb_ucx_withdraw(ux, request);
	if (request->backend[RB_UCX_STAGE] != RB_UCX_STAGE_NONE)
		rb_ucx_complete(ux, request, status);
}

void rb_ucx_push(struct rb_ucx *ux, struct rb_request *request)
{
	while (request->backend[RB_UCX_MOVED] < request->size_bytes) {
		enum rb_ucx_sent sent = RB_UCX_SENT;
		rubato_status status;

		if (!may_leave(ux, request))
			return;
		status = push_piece(ux, request, &sent);
		if (status == RUBATO_ERR_MEMORY && request->backend[RB_UCX_OUT] != 0)
			return; /* The next slot that comes back goes on. */
		if (status != RUBATO_OK) {
			give_up(ux, request, status);
			return;
		}
		if (sent == RB_UCX_LOST)
			return; /* The loss has completed the request. */
	}
	/* What UCX holds of a device's memory the peer has yet to fetch: BYE must not be first. */
	if (request->size_bytes > 0 &&
	    (!rb_ucx_is_device(request) || request->backend[RB_UCX_OUT] == 0))
		pushed(ux, request);
}

static void message_tell(struct rb_ucx *ux, const struct rb_request *send,
			 enum rb_ucx_message message)
{
	struct rb_ucx_head head = { .message = (uint8_t)message,
				    .tag = send->tag,
				    .signature = send->signature,
				    .size_bytes = send->size_bytes,
				    .id = send->backend[RB_UCX_FLIGHT],
				    .offset = send->backend[RB_UCX_MOVED] };

	rb_ucx_tell_head(ux, send->peer, &head);
}

void rb_ucx_large_send(struct rb_ucx *ux, struct rb_request *send)
{
	rubato_status status = rb_ucx_flight_begin(ux, send, RB_UCX_STAGE_SENDING);

	if (status != RUBATO_OK) {
		rb_ucx_complete(ux, send, status);
		return;
	}
	rb_ucx_push(ux, send);
	if (send->backend[RB_UCX_STAGE] == RB_UCX_STAGE_SENDING && send->backend[RB_UCX_MOVED] == 0)
		message_tell(ux, send, RB_UCX_AHEAD);
}

void rb_ucx_large_stop(struct rb_ucx *ux, struct rb_request *send)
{
	message_tell(ux, send, RB_UCX_STOPPED);
}

void rb_ucx_cleared(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_request *send =
		rb_ucx_flight_find(ux, head->id, head->sender, RB_UCX_STAGE_SENDING);

	if (send == NULL)
		return; /* All has left, or the receiver knows by now how much. */
	if (head->offset == 0 && send->size_bytes > 0) {
		send->backend[RB_UCX_OTHER] = 1;
		rb_ucx_push(ux, send);
		return;
	}
	message_tell(ux, send, RB_UCX_ENDED);
	if (send->backend[RB_UCX_STAGE] != RB_UCX_STAGE_NONE)
		rb_ucx_complete(ux, send, RUBATO_OK);
}

/* ---- The receiver ---- */

static struct rb_ucx_arrival **message_at(struct rb_ucx_peer *peer, uint64_t id)
{
	struct rb_ucx_arrival **at = &peer->large[id % RB_UCX_LARGE_BUCKETS];

	while (*at != NULL && (*at)->id != id)
		at = &(*at)->next_by_id;
	return at;
}

struct rb_ucx_arrival *rb_ucx_message_find(struct rb_ucx *ux, uint32_t rank, uint64_t id)
{
	return *message_at(&ux->peers[rank], id);
}

/* NULL: the peer is lost. */
static struct rb_ucx_arrival *message_make(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	struct rb_ucx_arrival **at, *message;

	if (peer->waiting >= RB_UCX_WAITING_MAX || head->id == 0) {
		rb_ucx_wrong(ux, head->sender,
			     head->id == 0 ? "a message without a number"
					   : "too many messages at a time");
		return NULL;
	}
	message = rb_ucx_arrival_make(0);
	if (message == NULL) {
		rb_ucx_lack(ux, head->sender, "no memory for a message from it");
		return NULL;
	}
	message->base.tag = head->tag;
	message->base.signature = head->signature;
	message->size_bytes = message->end_bytes = head->size_bytes;
	message->id = head->id;
	at = &peer->large[head->id % RB_UCX_LARGE_BUCKETS];
	message->next_by_id = *at;
	*at = message;
	peer->waiting++;
	return message;
}

/* A message's bytes to its receive, where they belong. Errors: the device's; the receive has ended
 * with it, and nobody wants the message. */
static rubato_status receive_fill(struct rb_ucx *ux, struct rb_ucx_arrival *message,
				  uint64_t offset, const void *data, size_t data_bytes)
{
	struct rb_request *receive = message->receive;
	rubato_status status =
		rb_ucx_move_bytes(ux, rb_ucx_is_device(receive),
				  (uint8_t *)receive->buffer + offset, data, data_bytes);

	if (status == RUBATO_OK) {
		ux->base.bytes_received += data_bytes;
		return RUBATO_OK;
	}
	message->receive = NULL;
	message->answered = false; /* It was wanted. */
	message->dead = true;
	rb_ucx_complete(ux, receive, status);
	return status;
}

/* Takes what was kept, to its receive where it is wanted, or to nowhere; its credit goes back. */
static void pieces_take(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message)
{
	while (message->pieces != NULL) {
		struct rb_ucx_piece *piece = message->pieces;

		message->pieces = piece->next;
		if (message->receive != NULL && !message->dead)
			(void)receive_fill(ux, message, piece->offset, piece->bytes,
					   piece->size_bytes);
		free(piece);
	}
	ux->peers[rank].held -= message->units;
	ux->peers[rank].owed += message->units;
	message->units = 0;
}

static void message_free(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];

	*message_at(peer, message->id) = message->next_by_id;
	peer->waiting--;
	pieces_take(ux, rank, message);
	free(message);
}

/* Whether nothing more can come of it. */
static bool is_over(const struct rb_ucx_arrival *message)
{
	return message->began && message->came_bytes == message->end_bytes &&
	       (message->size_bytes > 0 || message->stopped);
}

/* It does not come back to its sender. */
static bool is_final(const struct rb_ucx_arrival *message)
{
	return is_over(message) || (message->stopped && message->receive != NULL);
}

/* After each step of a message: what it has come to, and what its sender is to know. The last thing
 * that is done, as telling may lose the peer, and the message with it. */
static void settle(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message)
{
	bool refused = message->dead;
	struct rb_request *receive = message->receive;

	if (receive != NULL && is_final(message)) {
		message->receive = NULL;
		message->dead = true;
		rb_ucx_complete(ux, receive,
				refused && !message->left ? RUBATO_ERR_MISMATCH : RUBATO_OK);
	}
	if (message->dead && is_over(message)) {
		message_free(ux, rank, message);
		return;
	}
	if (message->answered || message->stopped || (receive == NULL && !message->dead))
		return;
	message->answered = true;
	rb_ucx_tell(ux, rank, RB_UCX_CLEAR, message->base.tag, message->id, refused);
}

/* They are each other's, also if they do not fit. */
static void join(struct rb_ucx *ux, struct rb_request *receive, struct rb_ucx_arrival *message)
{
	message->dead = !rb_ucx_fits(receive, &message->base.signature, message->size_bytes);
	message->receive = receive;
	receive->backend[RB_UCX_STAGE] = RB_UCX_STAGE_RECEIVING;
	receive->backend[RB_UCX_OTHER] = (uint64_t)(uintptr_t)message;
	pieces_take(ux, receive->peer, message);
}

void rb_ucx_large_meet(struct rb_ucx *ux, struct rb_request *receive,
		       struct rb_ucx_arrival *message)
{
	uint32_t rank = receive->peer;

	join(ux, receive, message);
	settle(ux, rank, message);
}

void rb_ucx_large_leave(struct rb_ucx *ux, struct rb_request *receive)
{
	struct rb_ucx_arrival *message =
		(struct rb_ucx_arrival *)(uintptr_t)receive->backend[RB_UCX_OTHER];

	message->receive = NULL;
	if (!message->dead)
		message->answered = false; /* It was wanted. */
	message->dead = true;
	settle(ux, receive->peer, message);
}

void rb_ucx_large_let(struct rb_ucx *ux, struct rb_request *receive)
{
	struct rb_ucx_arrival *message =
		(struct rb_ucx_arrival *)(uintptr_t)receive->backend[RB_UCX_OTHER];

	if (!message->dead)
		message->answered = false; /* It was wanted. */
	message->dead = message->left = true;
	settle(ux, receive->peer, message);
}

/* False: the peer is lost. */
static bool piece_keep(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message,
		       const struct rb_ucx_head *head, const void *data, size_t data_bytes)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];
	struct rb_ucx_piece *piece;
	uint32_t cost = rb_ucx_units(data_bytes);

	if (data_bytes == 0)
		return true;
	if (head->message == RB_UCX_DATA || cost > RB_UCX_CREDIT_MAX - peer->held) {
		rb_ucx_wrong(ux, rank,
			     head->message == RB_UCX_DATA ? "a piece that nobody asked for"
							  : "it sent more than its credit");
		return false;
	}
	piece = malloc(sizeof(*piece) + data_bytes);
	if (piece == NULL) {
		rb_ucx_lack(ux, rank, "no memory for a message from it");
		return false;
	}
	piece->offset = head->offset;
	piece->size_bytes = data_bytes;
	rb_ucx_copy(piece->bytes, data, data_bytes);
	piece->next = message->pieces;
	message->pieces = piece;
	message->units += cost;
	peer->held += cost;
	return true;
}

/* Something of a message comes first: it looks for its receive. */
static void begin(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message)
{
	struct rb_match_peer *match = &ux->peers[rank].match;
	struct rb_request *receive;

	message->began = true;
	if (message->dead)
		return; /* STOPPED has overtaken it. */
	receive = rb_match_receive(match, message->base.tag);
	if (receive != NULL)
		join(ux, receive, message);
	else
		rb_match_add_arrival(match, &message->base);
}

static bool is_inside(const struct rb_ucx_arrival *message, const struct rb_ucx_head *head,
		      size_t data_bytes)
{
	return head->size_bytes == message->size_bytes && head->offset <= message->size_bytes &&
	       data_bytes <= message->size_bytes - head->offset &&
	       data_bytes <= message->end_bytes - message->came_bytes;
}

void rb_ucx_piece_arrived(struct rb_ucx *ux, const struct rb_ucx_head *head, const void *data,
			  size_t data_bytes)
{
	uint32_t rank = head->sender;
	struct rb_ucx_arrival *message = *message_at(&ux->peers[rank], head->id);

	if (message == NULL && head->message == RB_UCX_DATA)
		return; /* What was cleared has a message, until it is over. */
	if (message == NULL)
		message = message_make(ux, head);
	if (message == NULL)
		return;
	if (!is_inside(message, head, data_bytes)) {
		rb_ucx_wrong(ux, rank, "a piece lies outside its message");
		return;
	}
	if (!message->began)
		begin(ux, rank, message);
	if (message->receive != NULL && !message->dead) {
		(void)receive_fill(ux, message, head->offset, data, data_bytes);
	} else if (!message->dead && !piece_keep(ux, rank, message, head, data, data_bytes)) {
		return;
	}
	if ((message->receive != NULL || message->dead) && head->message == RB_UCX_AHEAD &&
	    data_bytes > 0)
		ux->peers[rank].owed += rb_ucx_units(data_bytes);
	message->came_bytes += data_bytes;
	settle(ux, rank, message);
}

/* Whether its sender has been told that nothing of it is wanted, or that an empty one is. */
static bool may_end(const struct rb_ucx_arrival *message)
{
	return message->answered && (message->dead || message->size_bytes == 0);
}

/* No more comes of it. STOPPED: a receive that it had met waits for the next message of its tag. */
void rb_ucx_stopped(struct rb_ucx *ux, const struct rb_ucx_head *head)
{
	uint32_t rank = head->sender;
	struct rb_ucx_peer *peer = &ux->peers[rank];
	struct rb_ucx_arrival *message = *message_at(peer, head->id);
	struct rb_request *receive = NULL;
	bool ended = head->message == RB_UCX_ENDED, left;

	if (message == NULL)
		message = message_make(ux, head);
	if (message == NULL)
		return;
	if (head->size_bytes != message->size_bytes || head->offset > message->size_bytes ||
	    head->offset < message->came_bytes || message->stopped ||
	    (ended && !may_end(message))) {
		rb_ucx_wrong(ux, rank, "a message stopped where it cannot be");
		return;
	}
	if (message->began && !message->dead && message->receive == NULL)
		rb_match_remove_arrival(&peer->match, &message->base);
	pieces_take(ux, rank, message);
	message->stopped = true;
	message->end_bytes = head->offset;
	if (!ended) {
		receive = message->receive;
		message->receive = NULL;
		message->dead = true;
	}
	left = message->left;
	settle(ux, rank, message);
	if (receive != NULL && left) {
		rb_ucx_complete(ux, receive, RUBATO_ERR_CANCELLED);
	} else if (receive != NULL) {
		receive->backend[RB_UCX_STAGE] = RB_UCX_STAGE_NONE;
		rb_ucx_post_recv(ux, receive);
	}
}

static void message_drop(struct rb_ucx *ux, uint32_t rank, struct rb_ucx_arrival *message, bool all)
{
	bool waits = message->began && !message->dead && message->receive == NULL;

	if (waits && !all && is_over(message) && message->size_bytes > 0)
		return; /* It belongs to whoever receives it yet. */
	if (waits)
		rb_match_remove_arrival(&ux->peers[rank].match, &message->base);
	if (message->receive != NULL && !all)
		rb_ucx_complete(ux, message->receive, RUBATO_ERR_PEER);
	message_free(ux, rank, message);
}

void rb_ucx_large_drop(struct rb_ucx *ux, uint32_t rank, bool all)
{
	for (uint32_t b = 0; b < RB_UCX_LARGE_BUCKETS; b++) {
		struct rb_ucx_arrival *message = ux->peers[rank].large[b], *next;

		for (; message != NULL; message = next) {
			next = message->next_by_id;
			message_drop(ux, rank, message, all);
		}
	}
}
