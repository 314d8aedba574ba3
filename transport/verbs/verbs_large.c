/*
 * verbs_large.c -- messages that are announced and invited, at both ends; and what puts share with
 * them.
 *
 * The sender has a matcher of its own: announced sends in the place of receives, and invitations in
 * that of messages. Whichever comes second finds the other by its tag, so an announcement and an
 * invitation may cross. An invitation is used up by one message, or refused by one that does not
 * fit, or given back by one that is cancelled (STOPPED): then its receive waits for the next.
 *
 * Who stops a message that is on its way is told which of both came first: its sender had taken it
 * back (STOPPED), or has sent it, and nobody has it (ENDED). A receive that is left waits for that,
 * or for an end that had been said before, without its buffer.
 *
 *                  invite                    FIN, DATA, REFUSED
 *   receive  MATCHING --------> (invited) ------------------------------> done
 *                 \  ANNOUNCE                 \  STOP; STOPPED or ENDED
 *                  `--------> RECEIVING        `-> cancelled, or MISMATCH
 *
 *   send     WAITING --CLEAR--> SENDING --written--> done
 *
 * Receives of user messages invite only when their message is announced: they may be recalled, and
 * one that has invited cannot be without asking the peer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "transport/verbs/verbs_cache.h"
#include "transport/verbs/verbs_large.h"
#include "transport/verbs/verbs_payload.h"

#define REVOKE_NS 200000000u /* Guess: for an answer, where there is another way. */
#define STOP_NS 2000000000u  /* Guess: a peer that computes may not answer. */
#define INVITES_KEPT 64u     /* Of those that are over. Guess. */
#define STOP_UNLESS_BEGUN 1u /* Of STOP's size_bytes. */

void rb_verbs_say(struct rb_verbs *vb, uint32_t rank, enum rb_verbs_message message,
		  struct rb_tag tag, uint64_t id, uint64_t size_bytes)
{
	struct rb_verbs_head head = {
		.message = (uint8_t)message, .tag = tag, .id = id, .size_bytes = size_bytes
	};

	rb_verbs_tell(vb, rank, &head, NULL, 0);
}

static void say_of(struct rb_verbs *vb, const struct rb_request *request,
		   enum rb_verbs_message message, uint64_t id)
{
	struct rb_verbs_head head = { .message = (uint8_t)message,
				      .tag = request->tag,
				      .signature = request->signature,
				      .size_bytes = request->size_bytes,
				      .id = id };

	rb_verbs_tell(vb, request->peer, &head, NULL, 0);
}

/* Behind all that was written for a flight, whose links have said so: FIN, PUT, STOPPED, ENDED. */
static void say_end(struct rb_verbs *vb, const struct rb_verbs_flight *flight,
		    enum rb_verbs_message message)
{
	const struct rb_request *request = flight->request;
	struct rb_verbs_head head = {
		.message = (uint8_t)message,
		.rails = flight->marked,
		.tag = request->tag,
		.signature = request->signature,
		.size_bytes = flight->marked != 0 ? rb_verbs_flight_id(flight) : 0,
		.id = flight->invite,
	};

	rb_verbs_tell(vb, request->peer, &head, NULL, 0);
}

/* ---- The sender ---- */

void rb_verbs_flight_push_begin(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_verbs_peer *peer = &vb->peers[flight->request->peer];

	flight->active = true;
	peer->amiss = true;
	RB_QUEUE_ADD(peer->active_first, peer->active_last, flight);
	if (vb->posting == flight->request)
		rb_verbs_push(vb, flight);
	else
		rb_verbs_stir(vb, peer); /* Perhaps it is stopped by what comes next. */
}

void rb_verbs_flight_rest(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_verbs_peer *peer = &vb->peers[flight->request->peer];

	if (!flight->active)
		return;
	flight->active = false;
	RB_QUEUE_REMOVE(peer->active_first, peer->active_last, flight);
}

/* Pieces in slots, for a receive that gave no key. */
static void data_push(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_request *send = flight->request;
	uint64_t id = rb_verbs_flight_id(flight);
	bool through = false;

	while (!through) {
		size_t left = send->size_bytes - flight->moved;
		size_t piece = left < RB_VERBS_PAYLOAD_MAX ? left : RB_VERBS_PAYLOAD_MAX;
		struct rb_verbs_head head = { .message = RB_VERBS_DATA,
					      .tag = send->tag,
					      .signature = send->signature,
					      .size_bytes = flight->moved,
					      .id = flight->invite };
		const uint8_t *from = rb_verbs_source(flight);

		if (!rb_verbs_piece(vb, send->peer, &head,
				    from == NULL ? NULL : from + head.size_bytes, piece))
			return;
		if (rb_verbs_flight_find(vb, id) == NULL)
			return; /* The peer is lost. */
		vb->base.bytes_sent += piece;
		flight->moved += piece;
		through = flight->moved == send->size_bytes;
	}
	rb_verbs_complete(vb, send, RUBATO_OK);
}

/* Nothing more is written for the invitation; its receiver waits for this. The send has ended. */
static void stop_push(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	uint64_t id = rb_verbs_flight_id(flight);

	if (!rb_verbs_mark(vb, flight))
		return;
	flight->finished = true;
	rb_verbs_flight_rest(vb, flight);
	say_end(vb, flight, RB_VERBS_ENDED);
	if (rb_verbs_flight_find(vb, id) != NULL && flight->out == 0)
		rb_verbs_complete(vb, flight->request, RUBATO_OK);
}

void rb_verbs_push(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_request *request = flight->request;
	uint64_t id = rb_verbs_flight_id(flight);

	if (flight->finished)
		return;
	if (flight->stopping) {
		stop_push(vb, flight);
		return;
	}
	if (flight->halted)
		return;
	if (flight->invite != 0 && flight->keys[0] == 0) {
		data_push(vb, flight);
		return;
	}
	if (!rb_verbs_write_pieces(vb, flight) || !rb_verbs_mark(vb, flight))
		return;
	flight->finished = true;
	rb_verbs_flight_rest(vb, flight);
	say_end(vb, flight, request->kind == RB_REQUEST_PUT ? RB_VERBS_PUT : RB_VERBS_FIN);
	if (rb_verbs_flight_find(vb, id) != NULL && flight->out == 0)
		rb_verbs_complete(vb, request, RUBATO_OK);
}

void rb_verbs_written_last(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	if (flight->finished)
		rb_verbs_complete(vb, flight->request, RUBATO_OK);
}

static void begin_service(struct rb_verbs *vb, struct rb_verbs_flight *flight,
			  const struct rb_verbs_invite *invite)
{
	struct rb_request *send = flight->request;
	rubato_status status = RUBATO_OK;

	flight->invite = invite->id;
	flight->address = invite->target.address;
	memcpy(flight->keys, invite->target.keys, sizeof(flight->keys));
	send->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_SENDING;
	if (flight->keys[0] != 0 || rb_verbs_is_device(send))
		status = rb_verbs_register(vb, flight, false);
	if (status == RUBATO_OK) {
		rb_verbs_flight_push_begin(vb, flight);
		return;
	}
	rb_verbs_say(vb, send->peer, RB_VERBS_STOPPED, send->tag, invite->id, 0);
	rb_verbs_complete(vb, send, status);
}

static bool invites(const struct rb_verbs_invite *invite, const struct rb_request *send)
{
	return invite->size_bytes == send->size_bytes &&
	       rb_signature_same(&invite->base.signature, &send->signature);
}

/* The send has met an invitation; it may have a flight. False: there is no memory for one. */
static bool meet_invite(struct rb_verbs *vb, struct rb_request *send,
			const struct rb_verbs_invite *invite)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, send->backend[RB_VERBS_FLIGHT]);

	if (!invites(invite, send)) {
		say_of(vb, send, RB_VERBS_REFUSED, invite->id);
		if (send->backend[RB_VERBS_STAGE] != RB_VERBS_STAGE_LISTED &&
		    send->state == RB_REQUEST_PENDING)
			rb_verbs_complete(vb, send,
					  vb->peers[send->peer].lost ? RUBATO_ERR_PEER : RUBATO_OK);
		return true;
	}
	if (flight == NULL && rb_verbs_flight_begin(vb, send, &flight) != RUBATO_OK)
		return false;
	begin_service(vb, flight, invite);
	return true;
}

bool rb_verbs_serve(struct rb_verbs *vb, struct rb_request *send)
{
	struct rb_verbs_peer *peer = &vb->peers[send->peer];
	struct rb_verbs_invite *invite =
		(struct rb_verbs_invite *)rb_match_arrival(&peer->outgoing, send->tag);

	if (invite == NULL)
		return false;
	peer->waiting--;
	if (meet_invite(vb, send, invite)) {
		rb_verbs_invite_free(vb, invite);
		return true;
	}
	rb_match_add_arrival(&peer->outgoing, &invite->base);
	peer->waiting++;
	rb_verbs_complete(vb, send, RUBATO_ERR_MEMORY);
	return true;
}

void rb_verbs_announce(struct rb_verbs *vb, struct rb_request *send)
{
	struct rb_verbs_flight *flight;

	if (rb_verbs_flight_begin(vb, send, &flight) != RUBATO_OK) {
		rb_verbs_complete(vb, send, RUBATO_ERR_MEMORY);
		return;
	}
	send->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_WAITING;
	rb_match_add_receive(&vb->peers[send->peer].outgoing, send);
	say_of(vb, send, RB_VERBS_ANNOUNCE, rb_verbs_flight_id(flight));
}

/* The send that waits for this invitation, out of its matcher. */
static struct rb_request *announced_of(struct rb_verbs *vb, uint32_t rank,
				       const struct rb_verbs_invite *invite)
{
	struct rb_match_peer *outgoing = &vb->peers[rank].outgoing;
	struct rb_verbs_flight *flight;

	if (invite->target.send == 0)
		return rb_match_receive(outgoing, invite->base.tag);
	flight = rb_verbs_flight_of(vb, invite->target.send, rank, RB_VERBS_STAGE_WAITING);
	if (flight == NULL)
		return NULL;
	(void)rb_match_remove_receive(outgoing, flight->request);
	return flight->request;
}

/* It waits for its send. */
static void invite_keep(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_invite *invite)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_invite *kept = malloc(sizeof(*kept));

	if (kept == NULL) {
		rb_verbs_lose(vb, rank, "no memory for an invitation of it");
		return;
	}
	*kept = *invite;
	rb_match_add_arrival(&peer->outgoing, &kept->base);
	peer->waiting++;
}

static void clear_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			  const uint8_t *payload)
{
	struct rb_verbs_invite invite;
	struct rb_request *send;

	if (head->bytes != sizeof(invite.target) || head->id == 0) {
		rb_verbs_wrong(vb, rank, "a malformed invitation");
		return;
	}
	if (vb->peers[rank].waiting >= RB_VERBS_WAITING_MAX) {
		rb_verbs_wrong(vb, rank, "too many invitations at a time");
		return;
	}
	invite.base.next = NULL;
	invite.base.tag = head->tag;
	invite.base.signature = head->signature;
	invite.id = head->id;
	invite.size_bytes = head->size_bytes;
	memcpy(&invite.target, payload, sizeof(invite.target));
	send = announced_of(vb, rank, &invite);
	if (send != NULL) /* Announced, it has a flight. */
		(void)meet_invite(vb, send, &invite);
	else if (invite.target.send != 0) /* That was cancelled meanwhile. */
		rb_verbs_say(vb, rank, RB_VERBS_STOPPED, head->tag, head->id, 0);
	else
		invite_keep(vb, rank, &invite);
}

/* Nobody wants an announced message. */
static void drop_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	struct rb_verbs_flight *flight =
		rb_verbs_flight_of(vb, head->id, rank, RB_VERBS_STAGE_WAITING);

	if (flight == NULL)
		return; /* It was cancelled meanwhile. */
	(void)rb_match_remove_receive(&vb->peers[rank].outgoing, flight->request);
	rb_verbs_complete(vb, flight->request, RUBATO_OK);
}

/* What serves the peer's flight `id` and is not through. */
static struct rb_verbs_flight *servant_of(struct rb_verbs *vb, uint32_t rank, uint64_t id)
{
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used && flight->request->peer == rank && id != 0 &&
		    flight->invite == id && !flight->finished)
			return flight;
	}
	return NULL;
}

/* Where nothing is found the answer is on its way: an end, or REFUSED. */
static void stop_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_invite *invite =
		(struct rb_verbs_invite *)rb_match_arrival(&peer->outgoing, head->tag);
	struct rb_verbs_flight *flight;

	if (invite != NULL && invite->id == head->id) {
		peer->waiting--;
		rb_verbs_invite_free(vb, invite);
		rb_verbs_say(vb, rank, RB_VERBS_STOPPED, head->tag, head->id, 0);
		return;
	}
	if (invite != NULL)
		rb_match_add_arrival(&peer->outgoing, &invite->base);
	flight = servant_of(vb, rank, head->id);
	if (flight == NULL || flight->halted)
		return;
	if (head->size_bytes == STOP_UNLESS_BEGUN) {
		rb_verbs_say(vb, rank, RB_VERBS_KEPT, head->tag, head->id, 0);
		return;
	}
	flight->halted = flight->stopping = true;
	rb_verbs_push(vb, flight);
}

/* ---- The receiver ---- */

static void say_clear(struct rb_verbs *vb, struct rb_verbs_flight *flight, uint64_t send)
{
	const struct rb_request *receive = flight->request;
	struct rb_verbs_head head = { .message = RB_VERBS_CLEAR,
				      .tag = receive->tag,
				      .signature = receive->signature,
				      .size_bytes = receive->size_bytes,
				      .id = rb_verbs_flight_id(flight) };
	struct rb_verbs_target target = { .address = (uintptr_t)receive->buffer, .send = send };

	memcpy(target.keys, flight->keys, sizeof(target.keys));
	rb_verbs_tell(vb, receive->peer, &head, &target, sizeof(target));
}

void rb_verbs_invite(struct rb_verbs *vb, struct rb_request *receive)
{
	struct rb_verbs_flight *flight;

	if (receive->size_bytes <= RB_VERBS_EAGER_MAX || receive->peer == vb->base.rank ||
	    rb_tag_class_of(receive->tag) == RB_TAG_P2P ||
	    rb_verbs_flight_begin(vb, receive, &flight) != RUBATO_OK)
		return;
	if (rb_verbs_register(vb, flight, true) == RUBATO_OK && flight->keys[0] != 0)
		say_clear(vb, flight, 0);
	else
		rb_verbs_flight_end(vb, flight); /* When it is announced there may be a way. */
}

void rb_verbs_meet(struct rb_verbs *vb, struct rb_request *receive, uint64_t id,
		   const struct rb_signature *signature, uint64_t size_bytes)
{
	struct rb_verbs_flight *flight;
	rubato_status status = rb_verbs_flight_begin(vb, receive, &flight);

	/* One that does not fit is invited, too: its sender says REFUSED, or has taken it back. */
	if (status == RUBATO_OK && rb_verbs_fits(receive, signature, size_bytes) &&
	    receive->size_bytes > RB_VERBS_EAGER_MAX)
		status = rb_verbs_register(vb, flight, true);
	if (status != RUBATO_OK) {
		rb_verbs_say(vb, receive->peer, RB_VERBS_DROP, receive->tag, id, 0);
		rb_verbs_complete(vb, receive, status);
		return;
	}
	receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_RECEIVING;
	say_clear(vb, flight, id);
}

/* A receive with a flight, wherever it is, ends. */
static void receive_over(struct rb_verbs *vb, struct rb_verbs_flight *flight, rubato_status status)
{
	struct rb_request *receive = flight->request;

	if (flight->halt == RB_VERBS_LEFT) { /* Nobody has it, though it was sent. */
		rb_verbs_complete(vb, receive, RUBATO_OK);
		return;
	}
	if (receive->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_MATCHING)
		(void)rb_match_remove_receive(&vb->peers[receive->peer].match, receive);
	if (status == RUBATO_OK)
		vb->base.bytes_received += receive->size_bytes;
	rb_verbs_complete(vb, receive, flight->mismatched ? RUBATO_ERR_MISMATCH : status);
}

static void data_arrived(struct rb_verbs *vb, struct rb_verbs_flight *flight,
			 const struct rb_verbs_head *head, const uint8_t *payload)
{
	struct rb_request *receive = flight->request;
	uint64_t offset = head->size_bytes;
	rubato_status status = RUBATO_OK;

	if (flight->keys[0] != 0 || offset != flight->moved ||
	    head->bytes > receive->size_bytes - offset ||
	    (head->bytes == 0 && receive->size_bytes > 0)) {
		rb_verbs_wrong(vb, receive->peer, "a piece lies outside its message");
		return;
	}
	if (flight->halt != RB_VERBS_LEFT)
		status = rb_verbs_copy(vb, rb_verbs_is_device(receive),
				       (uint8_t *)receive->buffer + offset, payload, head->bytes);
	flight->moved += head->bytes;
	if (flight->moved == receive->size_bytes || status != RUBATO_OK)
		receive_over(vb, flight, status);
}

static void refused_arrived(struct rb_verbs *vb, struct rb_verbs_flight *flight,
			    const struct rb_verbs_head *head)
{
	struct rb_request *receive = flight->request;

	if (!flight->mismatched) {
		receive->theirs = head->signature;
		receive->their_bytes = head->size_bytes;
	}
	receive_over(vb, flight, RUBATO_ERR_MISMATCH);
}

/* Its message was cancelled: it waits for the next one of its tag. */
static void wait_again(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_request *receive = flight->request;

	rb_verbs_flight_end(vb, flight);
	if (receive->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_MATCHING) {
		rb_verbs_invite(vb, receive);
	} else {
		receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_NONE;
		rb_verbs_post_recv(vb, receive);
	}
}

/* Answers to STOP; STOPPED comes from senders that stop by themselves, too. What has met a receive
 * that did not expect it was sent, whatever becomes of what that had invited. */
static void answer_arrived(struct rb_verbs *vb, struct rb_verbs_flight *flight,
			   const struct rb_verbs_head *head)
{
	bool ended = head->message == RB_VERBS_ENDED;

	if (head->message == RB_VERBS_KEPT) {
		if (flight->halt == RB_VERBS_RECALLED)
			flight->halt = RB_VERBS_IS_MET;
	} else if (flight->mismatched) {
		receive_over(vb, flight, RUBATO_ERR_MISMATCH);
	} else if (flight->halt == RB_VERBS_LEFT) {
		rb_verbs_complete(vb, flight->request, ended ? RUBATO_OK : RUBATO_ERR_CANCELLED);
	} else if (flight->halt == RB_VERBS_ASKED || flight->halt == RB_VERBS_RECALLED) {
		flight->halt = ended ? RB_VERBS_IS_ENDED : RB_VERBS_IS_OVER;
	} else if (!ended) {
		wait_again(vb, flight);
	} else {
		rb_verbs_wrong(vb, flight->request->peer, "it ended what nobody stopped");
	}
}

/* What speaks of a flight of this rank's receives. */
static void invited_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			    const uint8_t *payload)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, head->id);

	/* A cancelled one has not always waited for its answer. */
	if (flight == NULL)
		return;
	if (flight->request->peer != rank || flight->request->kind != RB_REQUEST_RECV) {
		rb_verbs_wrong(vb, rank, "it speaks of a receive that is not there");
		return;
	}
	if (head->message == RB_VERBS_DATA)
		data_arrived(vb, flight, head, payload);
	else if (head->message == RB_VERBS_REFUSED)
		refused_arrived(vb, flight, head);
	else if (head->message == RB_VERBS_FIN && flight->keys[0] != 0)
		receive_over(vb, flight,
			     rb_verbs_is_device(flight->request) ? rb_verbs_flush(vb) : RUBATO_OK);
	else if (head->message == RB_VERBS_FIN)
		rb_verbs_wrong(vb, rank, "it wrote without a key");
	else
		answer_arrived(vb, flight, head);
}

void rb_verbs_large_arrived(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
			    const uint8_t *payload)
{
	if (head->message == RB_VERBS_CLEAR)
		clear_arrived(vb, rank, head, payload);
	else if (head->message == RB_VERBS_DROP)
		drop_arrived(vb, rank, head);
	else if (head->message == RB_VERBS_STOP)
		stop_arrived(vb, rank, head);
	else
		invited_arrived(vb, rank, head, payload);
}

void rb_verbs_revoke(struct rb_verbs *vb, struct rb_request *receive)
{
	struct rb_verbs_flight *flight =
		rb_verbs_flight_find(vb, receive->backend[RB_VERBS_FLIGHT]);

	receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_RECEIVING;
	flight->mismatched = true;
	rb_verbs_say(vb, receive->peer, RB_VERBS_STOP, receive->tag, rb_verbs_flight_id(flight), 0);
}

/* ---- Ending early ---- */

static bool is_answered(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	(void)vb;
	return flight->halt != RB_VERBS_ASKED && flight->halt != RB_VERBS_RECALLED;
}

/* The device has nothing of it any more, and its links have said so where somebody waits. */
static bool is_quiet(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	return flight->out == 0 &&
	       (flight->invite == 0 || flight->finished || rb_verbs_mark(vb, flight));
}

/* Until flight `id` is as `is_so` wants it, or has ended. NULL: it has; else whether it is so. */
static struct rb_verbs_flight *await(struct rb_verbs *vb, uint64_t id, uint64_t span_ns,
				     bool (*is_so)(struct rb_verbs *, struct rb_verbs_flight *))
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), span_ns);
	struct rb_verbs_flight *flight;

	while ((flight = rb_verbs_flight_find(vb, id)) != NULL && !is_so(vb, flight) &&
	       rb_clock_ns() < until_ns)
		rb_verbs_move(vb, until_ns);
	return rb_verbs_flight_find(vb, id);
}

/* The peer's device did not do in time what it does without its processor, or could not be kept
 * from writing: from here on it is. */
static void lose_for(struct rb_verbs *vb, uint32_t rank, const char *what, uint64_t span_ns)
{
	const struct rb_verbs_port *port = &rb_verbs_main(&vb->peers[rank])->rail->port;
	char reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: rank %u %s within %u ms",
		       port->device, port->number, rank, what, (unsigned)(span_ns / 1000000u));
	rb_verbs_lose(vb, rank, reason);
}

/*
 * A peer that computes does not answer. It will read that it is to stop before it writes anything
 * more, as it takes all that has come before it goes on, and its device is long through with what
 * it had posted. So what was registered for this message alone need not wait for it: the key goes.
 * Should it be used nevertheless, as its processor was taken away between the two, no memory is
 * lost, but a link, which is compared and made anew as any that fails: what each end says of it
 * then has the number of keys that it took back, so that a write that is refused for another reason
 * is still a peer that is lost. A region's key stays, and one that other messages use as well, and
 * so may a message's own, if the device does not end it: then the peer is shut out.
 */
static void receive_halt(struct rb_verbs *vb, struct rb_verbs_flight *flight, uint64_t how)
{
	struct rb_request *receive = flight->request;
	uint32_t rank = receive->peer;
	uint64_t id = rb_verbs_flight_id(flight);
	bool revocable = flight->mrs[0] != NULL && rb_verbs_cache_claim(vb, flight->cached);

	flight->halt = how == STOP_UNLESS_BEGUN ? RB_VERBS_RECALLED : RB_VERBS_ASKED;
	if (!flight->mismatched) /* Else it has been asked. */
		rb_verbs_say(vb, rank, RB_VERBS_STOP, receive->tag, id, how);
	flight = await(vb, id, revocable ? REVOKE_NS : STOP_NS, is_answered);
	if (flight == NULL || is_answered(vb, flight))
		return;
	if (!revocable) {
		lose_for(vb, rank, "did not stop writing", STOP_NS);
		return;
	}
	if (how == STOP_UNLESS_BEGUN)
		return;
	vb->peers[rank].revoked++;
	if (!rb_verbs_unregister(vb, flight))
		lose_for(vb, rank, "did not stop writing, and its key stays,", REVOKE_NS);
}

static void send_halt(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_request *send = flight->request;
	struct rb_verbs_peer *peer = &vb->peers[send->peer];
	uint64_t id = rb_verbs_flight_id(flight);

	rb_verbs_flight_rest(vb, flight);
	flight->halted = true;
	if (!flight->finished)
		flight->halt = RB_VERBS_ASKED;
	/* The last of them may not tell its completion. */
	for (uint32_t i = 0; i < peer->link_count && flight->out > 0; i++)
		if ((flight->rails & 1u << i) != 0 && rb_verbs_is_live(&peer->links[i]))
			rb_verbs_probe(vb, &peer->links[i]);
	flight = await(vb, id, STOP_NS, is_quiet);
	if (flight != NULL && !is_quiet(vb, flight)) {
		lose_for(vb, peer->rank, "did not acknowledge a write", STOP_NS);
		return;
	}
	if (flight != NULL && flight->invite != 0)
		say_end(vb, flight, RB_VERBS_STOPPED);
}

void rb_verbs_withdraw(struct rb_verbs *vb, struct rb_request *request)
{
	struct rb_verbs_peer *peer = &vb->peers[request->peer];
	struct rb_verbs_flight *flight =
		rb_verbs_flight_find(vb, request->backend[RB_VERBS_FLIGHT]);

	switch ((enum rb_verbs_stage)request->backend[RB_VERBS_STAGE]) {
	case RB_VERBS_STAGE_MATCHING:
	case RB_VERBS_STAGE_RECEIVING:
		if (flight != NULL && flight->keys[0] != 0)
			receive_halt(vb, flight, 0);
		else if (flight != NULL)
			rb_verbs_say(vb, request->peer, RB_VERBS_STOP, request->tag,
				     rb_verbs_flight_id(flight), 0);
		if (peer->coming.receive == request)
			peer->coming.receive = NULL;
		if (request->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_MATCHING)
			(void)rb_match_remove_receive(&peer->match, request);
		break;
	case RB_VERBS_STAGE_SELF:
		rb_match_remove_arrival(
			&peer->match,
			(struct rb_arrival *)(uintptr_t)request->backend[RB_VERBS_OTHER]);
		free((void *)(uintptr_t)request->backend[RB_VERBS_OTHER]);
		break;
	case RB_VERBS_STAGE_WAITING:
		(void)rb_match_remove_receive(&peer->outgoing, request);
		say_of(vb, request, RB_VERBS_GONE, request->backend[RB_VERBS_FLIGHT]);
		break;
	case RB_VERBS_STAGE_SENDING:
		send_halt(vb, flight);
		break;
	case RB_VERBS_STAGE_NONE:
	case RB_VERBS_STAGE_LISTED:
		break;
	}
}

bool rb_verbs_leave_recv(struct rb_verbs *vb, struct rb_request *receive)
{
	uint64_t id = receive->backend[RB_VERBS_FLIGHT];
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, id);

	if (flight == NULL)
		return false; /* Nothing that may be taken back has met it. */
	if (flight->keys[0] != 0)
		receive_halt(vb, flight, 0);
	else
		rb_verbs_say(vb, receive->peer, RB_VERBS_STOP, receive->tag, id, 0);
	flight = rb_verbs_flight_find(vb, id);
	if (flight == NULL)
		return false; /* It has ended. */
	if (receive->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_MATCHING)
		(void)rb_match_remove_receive(&vb->peers[receive->peer].match, receive);
	receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_RECEIVING;
	if (is_answered(vb, flight) && flight->keys[0] != 0)
		rb_verbs_complete(vb, receive,
				  flight->halt == RB_VERBS_IS_OVER ? RUBATO_ERR_CANCELLED
								   : RUBATO_OK);
	else
		flight->halt = RB_VERBS_LEFT; /* It has no key any more. */
	return true;
}

bool rb_verbs_recall_invited(struct rb_verbs *vb, struct rb_request *receive)
{
	uint64_t id = receive->backend[RB_VERBS_FLIGHT];
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, id);
	bool stopped;

	receive_halt(vb, flight, STOP_UNLESS_BEGUN);
	flight = rb_verbs_flight_find(vb, id);
	if (flight == NULL)
		return false; /* It has ended. */
	stopped = flight->halt == RB_VERBS_IS_OVER;
	flight->halt = RB_VERBS_GOES_ON;
	if (stopped)
		rb_verbs_flight_end(vb, flight);
	return stopped;
}

void rb_verbs_invite_free(struct rb_verbs *vb, struct rb_verbs_invite *invite)
{
	if (vb->free_invite_count >= INVITES_KEPT) {
		free(invite);
		return;
	}
	vb->free_invite_count++;
	invite->base.next = (struct rb_arrival *)vb->free_invites;
	vb->free_invites = invite;
}

void rb_verbs_invites_free(struct rb_verbs *vb)
{
	while (vb->free_invites != NULL) {
		struct rb_verbs_invite *invite = vb->free_invites;

		vb->free_invites = (struct rb_verbs_invite *)invite->base.next;
		free(invite);
	}
}

void rb_verbs_invites_drop(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_arrival *invite;

	while ((invite = rb_match_any_arrival(&vb->peers[rank].outgoing)) != NULL)
		free(invite);
}
