/*
 * verbs_fast.c -- what nearly every message takes: posts of small ones, and what completes.
 *
 * A message that fits into a slot, of a peer to which nothing waits or is amiss, leaves by one
 * request that is filled where it is posted from, and arrives straight in its receive. Each step
 * is tried here by its conditions alone, before anything is changed; where one does not hold the
 * way that knows all cases is taken (verbs.c, verbs_message.c, verbs_queue.c). Both do the same.
 */
#include <stdio.h>
#include <string.h>

#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define ROUNDS 4       /* Of progress, in a poll. Guess. */
#define COMPLETIONS 16 /* Taken at a time. */

/* ---- Posts ---- */

/* So many small messages find room: at the peer, so that nobody need look for more, in the queue,
 * and by their units. */
static uint32_t room_of(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	const struct rb_verbs_link *link = rb_verbs_main(peer);
	uint32_t most = peer->half, under_way = link->posted - link->retired;
	uint32_t used = rb_verbs_slots_used(link);
	uint32_t units = (RB_VERBS_UNITS_MAX - (peer->spent - peer->spent_known)) /
			 rb_verbs_units(RB_VERBS_PAYLOAD_MAX);
	uint32_t room = used < most ? most - used : 0;
	/* Beside all writes that may be under way, one of whose ends is a message, too. */
	uint32_t beside = vb->queue_messages - vb->queue_writes - 1;

	if (under_way >= vb->queue_messages)
		return 0;
	room = room < vb->queue_messages - under_way ? room : vb->queue_messages - under_way;
	room = room < beside ? room : beside;
	return room < units ? room : units;
}

static bool is_whole(const struct rb_verbs_peer *peer)
{
	return peer->link_count > 0 && peer->live == peer->link_count;
}

void rb_verbs_settle(struct rb_verbs_peer *peer)
{
	peer->amiss = !is_whole(peer) || peer->coming.left_bytes > 0 || rb_verbs_waits(peer) ||
		      rb_verbs_owes_units(peer);
}

bool rb_verbs_refill(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	if (rank >= vb->base.rank_count || peer->may > 0)
		return false;
	peer->may = is_whole(peer) && rb_verbs_is_free(vb, peer) ? room_of(vb, peer) : 0;
	return peer->may > 0;
}

/* The way that knows all cases; it may be that only room has to be looked for. */
static __attribute__((noinline)) void send_any(struct rb_endpoint *ep, struct rb_request *request)
{
	if (rb_verbs_refill((struct rb_verbs *)ep, request->peer))
		rb_verbs_send(ep, request);
	else
		rb_verbs_post(ep, request, RB_REQUEST_SEND, rb_verbs_post_send);
}

static __attribute__((noinline)) void recv_any(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_verbs_post(ep, request, RB_REQUEST_RECV, rb_verbs_post_recv);
}

/* Such a payload is copied by two words, which may overlap: a call takes longer. */
static ALWAYS_INLINE bool is_short(size_t bytes)
{
	return bytes - 8 <= 8;
}

static ALWAYS_INLINE void copy_short(void *to, const void *from, size_t bytes)
{
	uint64_t first, last;

	memcpy(&first, from, 8);
	memcpy(&last, (const uint8_t *)from + bytes - 8, 8);
	memcpy(to, &first, 8);
	memcpy((uint8_t *)to + bytes - 8, &last, 8);
}

static ALWAYS_INLINE void copy(void *to, const void *from, size_t bytes)
{
	if (is_short(bytes))
		copy_short(to, from, bytes);
	else if (bytes > 0)
		memcpy(to, from, bytes);
}

/* There is room, and a slot. */
static ALWAYS_INLINE void send_now(struct rb_verbs *vb, struct rb_request *request, bool is_short)
{
	struct rb_verbs_peer *peer = rb_verbs_peer_of(vb, request->peer);
	struct rb_verbs_slot *slot = vb->free_slots;
	size_t bytes = request->size_bytes;

	if (is_short)
		copy_short(slot->head + 1, request->buffer, bytes);
	request->kind = RB_REQUEST_SEND;
	request->state = RB_REQUEST_DONE;
	request->status = RUBATO_OK;
	rb_verbs_settled_check(vb, peer);
	peer->may--;
	peer->spent += rb_verbs_units(bytes);
	vb->base.bytes_sent += bytes;
	vb->free_slots = slot->next;
	rb_verbs_head_set(slot->head, peer, request, RB_VERBS_EAGER, (uint32_t)bytes, bytes, 0);
	rb_verbs_slot_send(vb, rb_verbs_main(peer), peer, slot, RB_VERBS_EAGER, (uint32_t)bytes);
}

/* Apart, as what is in registers does not survive a call. */
static __attribute__((noinline)) void send_longer(struct rb_verbs *vb, struct rb_request *request)
{
	if (request->size_bytes > 0)
		memcpy(vb->free_slots->head + 1, request->buffer, request->size_bytes);
	send_now(vb, request, false);
}

static ALWAYS_INLINE void send_small(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	const struct rb_verbs_peer *peer = rb_verbs_peer_of(vb, request->peer);

	if (request->peer >= ep->rank_count || request->size_bytes > RB_VERBS_PAYLOAD_MAX ||
	    peer->may == 0 || peer->outgoing.arrival_count > 0 || vb->free_slots == NULL ||
	    rb_verbs_is_device(request))
		send_any(ep, request);
	else if (is_short(request->size_bytes))
		send_now(vb, request, true);
	else
		send_longer(vb, request);
}

void rb_verbs_send(struct rb_endpoint *ep, struct rb_request *request)
{
	if (request->size_bytes > RB_VERBS_EAGER_MAX)
		rb_verbs_send_large(ep, request);
	else
		send_small(ep, request);
}

/* Its message has not come: it waits for it. */
static ALWAYS_INLINE void recv_await(struct rb_verbs_peer *peer, struct rb_request *request)
{
	request->kind = RB_REQUEST_RECV;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	memset(request->backend, 0, RB_VERBS_WORDS * sizeof(request->backend[0]));
	request->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_MATCHING;
	rb_match_add_receive(&peer->match, request);
}

/* Others lie aside, as a probe may for long. */
static __attribute__((noinline)) void recv_beside(struct rb_endpoint *ep,
						  struct rb_request *request)
{
	struct rb_verbs_peer *peer = rb_verbs_peer_of((struct rb_verbs *)ep, request->peer);

	if (request->peer >= ep->rank_count || peer->amiss ||
	    rb_match_has_arrival(&peer->match, request->tag))
		recv_any(ep, request);
	else
		recv_await(peer, request);
}

static ALWAYS_INLINE void recv_small(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs_peer *peer = rb_verbs_peer_of((struct rb_verbs *)ep, request->peer);

	if (request->peer >= ep->rank_count || peer->amiss || peer->match.arrival_count > 0)
		recv_beside(ep, request);
	else
		recv_await(peer, request);
}

void rb_verbs_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	if (request->size_bytes > RB_VERBS_EAGER_MAX)
		rb_verbs_recv_large(ep, request);
	else
		recv_small(ep, request);
}

/* ---- Receives that complete ---- */

static void receive_failed(struct rb_verbs *vb, struct rb_verbs_link *link, const struct ibv_wc *wc)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "a receive from rank %u", link->peer->rank);
	if (link->state != RB_VERBS_LINK_DRAINING)
		rb_verbs_link_fail_by(vb, link, what, wc);
}

static void received(struct rb_verbs *vb, struct rb_verbs_link *link, const struct ibv_wc *wc)
{
	struct rb_verbs_peer *peer = link->peer;
	uint32_t slot = (uint32_t)wc->wr_id;

	link->receives--;
	if (peer->lost)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		receive_failed(vb, link, wc);
		return;
	}
	/* Of a link that has failed, too: what is here is told to be here. */
	link->taken++;
	rb_verbs_arrived(vb, link->peer, link, link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES,
			 wc->byte_len);
	if (link->state != RB_VERBS_LINK_LIVE && link->state != RB_VERBS_LINK_MAKING)
		return;
	rb_verbs_repost(vb, link, slot);
	link->reposted++;
}

/* The next message of the stream, which says of credit what can be. */
static ALWAYS_INLINE bool is_plain(const struct rb_verbs_link *link,
				   const struct rb_verbs_peer *peer,
				   const struct rb_verbs_head *head, const struct ibv_wc *wc)
{
	return ((unsigned int)wc->status | peer->amiss) == 0 &&
	       wc->byte_len == sizeof(*head) + head->bytes && head->number == peer->their_number &&
	       head->consumed - link->sent_known <= link->sent - link->sent_known &&
	       head->freed - peer->spent_known <= peer->spent - peer->spent_known;
}

/* Its receive, which takes it as it is; NULL: none, or it has to be looked for. */
static ALWAYS_INLINE struct rb_request *receive_of(struct rb_request *first,
						   const struct rb_verbs_head *head)
{
	return first != NULL && rb_tag_same(first->tag, head->tag) &&
			       first->size_bytes == head->bytes &&
			       rb_signature_same(&head->signature, &first->signature) &&
			       !rb_verbs_is_device(first)
		       ? first
		       : NULL;
}

/* Likewise the second of a bucket, whose first is one that always stands, as a failure notice's. */
static __attribute__((noinline)) struct rb_request *second_take(struct rb_match_peer *match,
								uint32_t bucket,
								const struct rb_verbs_head *head)
{
	struct rb_request *first = match->receives[bucket];
	struct rb_request *receive = first != NULL ? receive_of(first->next, head) : NULL;

	if (receive != NULL)
		RB_QUEUE_REMOVE(match->receives[bucket], match->newest[bucket], receive);
	return receive;
}

static ALWAYS_INLINE struct rb_request *receive_take(struct rb_match_peer *match,
						     const struct rb_verbs_head *head)
{
	uint32_t bucket = rb_match_bucket(head->tag);
	struct rb_request *receive = receive_of(match->receives[bucket], head), *next;

	if (receive == NULL)
		return second_take(match, bucket, head);
	next = receive->next;
	match->receives[bucket] = next;
	if (next != NULL)
		next->previous = NULL;
	else
		match->newest[bucket] = NULL;
	return receive;
}

/* Each: false, it is another, or nobody waits for it; nothing has changed. */

/* A message that is all here, or what ends a put: of no bytes, and no units. */
static ALWAYS_INLINE bool small_taken(struct rb_verbs *vb, struct rb_verbs_peer *peer,
				      const struct rb_verbs_head *head, uint32_t units)
{
	struct rb_request *receive = receive_take(&peer->match, head);
	uint32_t bytes = head->bytes;

	if (receive == NULL)
		return false;
	peer->freed += units;
	vb->base.bytes_received += bytes;
	rb_verbs_done_add(vb, receive);
	copy(receive->buffer, head + 1, bytes);
	return true;
}

/* The request of a flight that pushes nothing ends well. */
static ALWAYS_INLINE void flight_done(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	if (flight->mrs[0] != NULL)
		(void)rb_verbs_unregister(vb, flight);
	rb_verbs_flight_free(vb, flight);
	rb_verbs_done_add(vb, flight->request);
}

/* The end of what was written for a receive's invitation. */
static ALWAYS_INLINE bool fin_taken(struct rb_verbs *vb, struct rb_verbs_peer *peer,
				    const struct rb_verbs_head *head)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, head->id);
	struct rb_request *receive;

	if (flight == NULL || flight->keys[0] == 0 || flight->mismatched || head->rails != 0)
		return false;
	receive = flight->request;
	if (receive->peer != peer->rank || receive->kind != RB_REQUEST_RECV ||
	    rb_verbs_is_device(receive))
		return false;
	if (receive->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_MATCHING)
		rb_match_unlink(&peer->match, receive);
	vb->base.bytes_received += receive->size_bytes;
	flight_done(vb, flight);
	return true;
}

/* An invitation whose send is still to be posted. */
static ALWAYS_INLINE bool clear_taken(struct rb_verbs *vb, struct rb_verbs_peer *peer,
				      const struct rb_verbs_head *head)
{
	const struct rb_verbs_target *target = (const void *)(head + 1);
	struct rb_verbs_invite *invite = vb->free_invites;
	uint32_t bucket = rb_match_bucket(head->tag);

	if (invite == NULL || head->bytes != sizeof(*target) || head->id == 0 ||
	    target->send != 0 || peer->outgoing.receives[bucket] != NULL ||
	    peer->waiting >= RB_VERBS_WAITING_MAX)
		return false;
	vb->free_invites = (struct rb_verbs_invite *)invite->base.next;
	vb->free_invite_count--;
	invite->base.tag = head->tag;
	invite->base.signature = head->signature;
	invite->id = head->id;
	invite->size_bytes = head->size_bytes;
	invite->target = *target;
	invite->base.next = peer->outgoing.arrivals[bucket];
	peer->outgoing.arrivals[bucket] = &invite->base;
	peer->outgoing.arrival_count++;
	peer->waiting++;
	return true;
}

static ALWAYS_INLINE bool plain_taken(struct rb_verbs *vb, struct rb_verbs_peer *peer,
				      const struct rb_verbs_head *head)
{
	if (head->message == RB_VERBS_EAGER)
		return head->size_bytes == head->bytes &&
		       small_taken(vb, peer, head, rb_verbs_units(head->bytes));
	if (head->message == RB_VERBS_PUT)
		return (head->rails | head->bytes) == 0 && vb->device_regions == 0 &&
		       small_taken(vb, peer, head, 0);
	if (head->message == RB_VERBS_FIN)
		return fin_taken(vb, peer, head);
	return head->message == RB_VERBS_CLEAR && clear_taken(vb, peer, head);
}

/* What is owed by slots is paid long before what is owed by units could be much. */
static ALWAYS_INLINE bool receive_taken(struct rb_verbs *vb, struct rb_verbs_rail *rail,
					struct rb_verbs_link *link, const struct ibv_wc *wc)
{
	struct rb_verbs_peer *peer = link->peer;
	uint32_t slot = (uint32_t)wc->wr_id;
	const struct rb_verbs_head *head =
		(const void *)(link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES);
	int error;

	rb_verbs_settled_check(vb, peer);
	if (!is_plain(link, peer, head, wc) || !plain_taken(vb, peer, head))
		return false;
	link->sent_known = head->consumed;
	peer->spent_known = head->freed;
	peer->their_number++;
	peer->quiet = false;
	link->taken++;
	link->reposted++;
	error = rb_verbs_receive_post(rail, link, wc->wr_id, slot);
	if (error != 0) {
		link->receives--;
		rb_verbs_repost_failed(vb, link, error);
	}
	if (link->reposted - link->reposted_said >= peer->half) { /* Owed. */
		peer->owes = true;
		rb_verbs_amiss(peer);
		rb_verbs_stir(vb, peer);
	}
	return true;
}

/* ---- What was sent ---- */

static void write_ended(struct rb_verbs *vb, const struct rb_verbs_link *link, uint64_t id)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, id);

	if (flight != NULL && !link->peer->lost)
		rb_verbs_written(vb, flight);
}

static ALWAYS_INLINE void retire(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number)
{
	struct rb_verbs_entry *entries = link->entries;
	uint32_t mask = vb->queue_mask, at = link->retired;

	while ((int32_t)(number - at) > 0) {
		struct rb_verbs_entry *entry = &entries[at++ & mask];

		rb_verbs_slot_give(vb, entry->slot);
		if (entry->message != 0)
			continue;
		link->bytes_out -= entry->bytes;
		link->retired = at;
		write_ended(vb, link, entry->flight);
	}
	link->retired = at;
}

void rb_verbs_retire(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number)
{
	rb_verbs_unfold(vb, link);
	retire(vb, link, number);
}

/* The flight whose writes, all that it has, are folded before entry `last`; or NULL. */
static ALWAYS_INLINE struct rb_verbs_flight *burst_of(const struct rb_verbs_entry *last)
{
	struct rb_verbs_flight *flight = last->burst;

	return last->writes != 0 && flight->generation == (uint32_t)(last->flight >> 32) &&
			       flight->out == last->writes
		       ? flight
		       : NULL;
}

/* They are through: the request ends. */
static ALWAYS_INLINE void burst_ended(struct rb_verbs *vb, struct rb_verbs_link *link,
				      const struct rb_verbs_entry *last,
				      struct rb_verbs_flight *flight)
{
	link->retired += last->writes + 1u;
	link->folded--;
	link->bytes_out -= flight->moved;
	last->slot->next = vb->free_slots;
	vb->free_slots = last->slot;
	flight_done(vb, flight);
}

/* ---- Completions ---- */

/* Something waits for room, or is owed. */
static ALWAYS_INLINE bool is_due(const struct rb_verbs_peer *peer)
{
	return peer->amiss && (rb_verbs_waits(peer) || rb_verbs_owes_units(peer));
}

static ALWAYS_INLINE struct rb_verbs_link *link_of(struct rb_verbs *vb, uint32_t name)
{
	return &vb->links[name & ((1u << RB_VERBS_LINK_BITS) - 1)];
}

static __attribute__((noinline)) void take_any(struct rb_verbs *vb, struct rb_verbs_rail *rail,
					       const struct ibv_wc *wc)
{
	bool is_receive = (wc->wr_id & RB_VERBS_RECEIVED) != 0;
	struct rb_verbs_link *link = link_of(vb, (uint32_t)(wc->wr_id >> 32));
	struct rb_verbs_peer *peer = link->peer;

	if (!is_receive && (wc->wr_id & RB_VERBS_DATAGRAM) != 0) {
		rb_verbs_datagram(vb, rail, wc);
		return;
	}
	if (!rb_verbs_is_of_life(link, wc->wr_id) || link->qp == NULL)
		return; /* Of an earlier one: some devices tell of queue pairs that are gone. */
	if (is_receive)
		received(vb, link, wc);
	else
		rb_verbs_ended(vb, link, (uint32_t)wc->wr_id, wc);
	if (rb_verbs_owes_slots(link)) {
		peer->owes = true;
		rb_verbs_amiss(peer);
	}
	peer->quiet = false;
	rb_verbs_settle(peer);
	if (is_due(peer))
		rb_verbs_stir(vb, peer);
}

/* All before entry `number` has succeeded, too. False: it is not under way. */
static ALWAYS_INLINE bool is_retired(struct rb_verbs *vb, struct rb_verbs_link *link,
				     uint32_t number)
{
	struct rb_verbs_entry *entry = rb_verbs_entry_at(vb, link, number);
	struct rb_verbs_flight *flight = burst_of(entry);
	uint32_t before = number - link->retired;

	if (flight != NULL && before == entry->writes) {
		burst_ended(vb, link, entry, flight);
		return true;
	}
	if (before >= link->posted - link->retired)
		return false;
	if (link->folded > (flight != NULL)) { /* Others, too. */
		rb_verbs_unfold(vb, link);
		flight = NULL;
	}
	retire(vb, link, flight != NULL ? number - entry->writes : number + 1);
	if (flight != NULL)
		burst_ended(vb, link, entry, flight);
	return true;
}

/* It succeeded. */
static ALWAYS_INLINE bool sent_taken(struct rb_verbs *vb, struct rb_verbs_link *link,
				     const struct ibv_wc *wc)
{
	struct rb_verbs_peer *peer = link->peer;

	if (wc->status != IBV_WC_SUCCESS || !is_retired(vb, link, (uint32_t)wc->wr_id))
		return false;
	link->probing = false;
	peer->quiet = false;
	if (is_due(peer))
		rb_verbs_stir(vb, peer);
	return true;
}

static ALWAYS_INLINE void take(struct rb_verbs *vb, struct rb_verbs_rail *rail,
			       const struct ibv_wc *wc)
{
	uint32_t name = (uint32_t)(wc->wr_id >> 32);
	struct rb_verbs_link *link = link_of(vb, name);
	bool taken = false;

	if (name == link->received_as)
		taken = receive_taken(vb, rail, link, wc);
	else if (name == link->sent_as)
		taken = sent_taken(vb, link, wc);
	if (!taken)
		take_any(vb, rail, wc);
}

static ALWAYS_INLINE void take_each(struct rb_verbs *vb, struct rb_verbs_rail *rail,
				    const struct ibv_wc *wc, int count)
{
	do
		take(vb, rail, wc++);
	while (--count > 0);
}

static __attribute__((noinline)) void take_all(struct rb_verbs *vb, struct rb_verbs_rail *rail,
					       const struct ibv_wc *wc, int count)
{
	take_each(vb, rail, wc, count);
}

/* What one call of libibverbs has given: so many, or less than none. */
static ALWAYS_INLINE int taken(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	struct ibv_wc wc[COMPLETIONS];
	int count = ibv_poll_cq(rail->cq, COMPLETIONS, wc);

	if (count > 0)
		take_all(vb, rail, wc, count);
	return count;
}

/* The rest of a rail's, of which `count` were taken; how many there were. */
static uint32_t rail_progress(struct rb_verbs *vb, struct rb_verbs_rail *rail, int count)
{
	uint32_t total = 0;

	while (count == COMPLETIONS && total < vb->cq_entries) {
		total += (uint32_t)count;
		count = taken(vb, rail);
	}
	if (count >= 0)
		return total + (uint32_t)count;
	if (!rail->dead) {
		rail->dead = true;
		rb_verbs_rail_fail(vb, rail, "its completion queue has failed");
	}
	return total;
}

static void stirred_go_on(struct rb_verbs *vb)
{
	struct rb_verbs_peer *peer, *stirred = vb->stirred;

	vb->stirred = NULL; /* What these stir is for the next round. */
	while ((peer = stirred) != NULL) {
		stirred = peer->next_stirred;
		peer->is_stirred = false;
		rb_verbs_pump(vb, peer);
		rb_verbs_repay(vb, peer);
		rb_verbs_settle(peer);
	}
}

/* All that is there is taken before anything follows from it: what a peer has sent to stop us is
 * read before we go on. `count` were taken of the first rail. */
static uint32_t progress_rest(struct rb_verbs *vb, int count)
{
	uint32_t total = rail_progress(vb, &vb->rails[0], count);

	RB_ASSERT(vb->posting == NULL); /* Nobody looks for completions in the midst of a post. */
	for (uint32_t i = 1; i < vb->rail_count; i++)
		total += rail_progress(vb, &vb->rails[i], taken(vb, &vb->rails[i]));
	stirred_go_on(vb);
	rb_verbs_ring(vb);
	vb->due = vb->rail_count > 1 || vb->stirred != NULL;
	return total;
}

uint32_t rb_verbs_progress(struct rb_verbs *vb)
{
	return progress_rest(vb, taken(vb, &vb->rails[0]));
}

/* Mostly what has come is of one message, or nothing, and nothing follows from it. */
static ALWAYS_INLINE bool is_all(const struct rb_verbs *vb, int count)
{
	return (uint32_t)count < COMPLETIONS && !vb->due;
}

void rb_verbs_glance(struct rb_verbs *vb)
{
	int count = taken(vb, &vb->rails[0]);

	if (!is_all(vb, count))
		(void)progress_rest(vb, count);
}

/* A poll's first round goes on; and a few more, until there is something to tell. */
static __attribute__((noinline)) void poll_rest(struct rb_verbs *vb, int count)
{
	uint32_t total = progress_rest(vb, count);

	for (int i = 1; i < ROUNDS && total != 0 && vb->done == NULL; i++)
		total = rb_verbs_progress(vb);
}

static __attribute__((noinline)) void check(struct rb_verbs *vb)
{
	vb->rounds = RB_VERBS_ROUNDS_PER_CHECK;
	rb_verbs_check_peers(vb);
	if (vb->by_tcp > 0)
		vb->rounds = 1; /* That is how it moves. */
}

struct rb_request *rb_verbs_poll(struct rb_endpoint *ep)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct ibv_wc wc[COMPLETIONS];
	int count = ibv_poll_cq(vb->rails[0].cq, COMPLETIONS, wc);
	bool more = vb->due | (count < 0);
	struct rb_request *done;

	if (count > 0) {
		take_each(vb, &vb->rails[0], wc, count);
		more = vb->due | (count == COMPLETIONS) | (vb->done == NULL);
	}
	if (more)
		poll_rest(vb, count);
	if (--vb->rounds == 0)
		check(vb);
	done = vb->done;
	if (done == NULL)
		return NULL;
	vb->done = NULL;
	vb->done_end = &vb->done;
	for (struct rb_request *r = done; r != NULL; r = r->next)
		r->state = RB_REQUEST_DONE;
	return done;
}
