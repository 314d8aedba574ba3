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

#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"

#define ROUNDS 4       /* Of progress, in a poll. Guess. */
#define COMPLETIONS 16 /* Taken at a time. */

/* Most are short; a call takes longer than they do. */
static inline void copy(void *to, const void *from, size_t bytes)
{
	uint64_t first, last;

	if (bytes - 8 > 8) {
		if (bytes > 0)
			memcpy(to, from, bytes);
		return;
	}
	memcpy(&first, from, 8);
	memcpy(&last, (const uint8_t *)from + bytes - 8, 8);
	memcpy(to, &first, 8);
	memcpy((uint8_t *)to + bytes - 8, &last, 8);
}

/* ---- Posts ---- */

/* Nothing is in the way of a peer's stream. */
static inline bool is_free(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	return (peer->halts | (uintptr_t)peer->out_first | (uintptr_t)peer->redo |
		peer->outgoing.arrival_count | (uintptr_t)vb->chain.link) == 0;
}

/* So many small messages find room: at the peer, so that nobody need look for more, in the queue,
 * and by their units. */
static uint32_t room_of(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	const struct rb_verbs_link *link = rb_verbs_main(peer);
	uint32_t most = peer->window / 2u, under_way = link->posted - link->retired;
	uint32_t used = rb_verbs_slots_used(link);
	uint32_t units = (RB_VERBS_UNITS_MAX - (peer->spent - peer->spent_known)) /
			 rb_verbs_units(RB_VERBS_PAYLOAD_MAX);
	uint32_t room = used < most ? most - used : 0;

	if (under_way >= vb->queue_messages)
		return 0;
	room = room < vb->queue_messages - under_way ? room : vb->queue_messages - under_way;
	return room < units ? room : units;
}

static __attribute__((noinline)) void send_any(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer = &vb->peers[request->peer];

	rb_verbs_post(ep, request, RB_REQUEST_SEND, rb_verbs_post_send);
	if (request->peer < ep->rank_count && peer->link_count > 0 && is_free(vb, peer))
		peer->may = room_of(vb, peer);
}

static __attribute__((noinline)) void recv_any(struct rb_endpoint *ep, struct rb_request *request)
{
	rb_verbs_post(ep, request, RB_REQUEST_RECV, rb_verbs_post_recv);
}

void rb_verbs_send(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer = &vb->peers[request->peer];
	struct rb_verbs_slot *slot = vb->free_slots;
	struct rb_verbs_post *post = &vb->alone;
	size_t bytes = request->size_bytes;
	struct rb_verbs_link *link;
	struct rb_verbs_head *head;
	struct ibv_send_wr *bad;
	int error;

	if (request->peer >= ep->rank_count || bytes > RB_VERBS_PAYLOAD_MAX || peer->may == 0 ||
	    rb_verbs_is_device(request) || !is_free(vb, peer) || slot == NULL) {
		send_any(ep, request);
		return;
	}
	request->kind = RB_REQUEST_SEND;
	request->state = RB_REQUEST_DONE;
	request->status = RUBATO_OK;
	peer->may--;
	peer->spent += rb_verbs_units(bytes);
	vb->base.bytes_sent += bytes;
	vb->free_slots = slot->next;
	head = slot->head;
	head->message = RB_VERBS_EAGER;
	head->rails = 0;
	head->bytes = (uint16_t)bytes;
	head->number = peer->number++;
	head->tag = request->tag;
	head->signature = request->signature;
	head->size_bytes = bytes;
	head->id = 0;
	copy(head + 1, request->buffer, bytes);
	link = rb_verbs_main(peer);
	rb_verbs_message_set(vb, link, post, rb_verbs_entry_add(vb, link, false, &post->request),
			     slot, RB_VERBS_EAGER, (uint32_t)bytes);
	error = ibv_post_send(link->qp, &post->request, &bad);
	if (error != 0)
		rb_verbs_post_failed(vb, link, 1, error);
}

/* Small, and its message has not come: it waits for it. */
void rb_verbs_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer = &vb->peers[request->peer];

	if (request->peer >= ep->rank_count || peer->link_count == 0 || peer->lost ||
	    peer->match.arrival_count > 0 || request->size_bytes > RB_VERBS_EAGER_MAX) {
		recv_any(ep, request);
		return;
	}
	request->kind = RB_REQUEST_RECV;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	memset(request->backend, 0, RB_VERBS_WORDS * sizeof(request->backend[0]));
	request->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_MATCHING;
	rb_match_add_receive(&peer->match, request);
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

/* The next message of the stream, small and whole, that says of credit what can be; and nothing
 * waits for room, or is amiss. */
static inline bool is_plain(const struct rb_verbs_link *link, const struct rb_verbs_peer *peer,
			    const struct rb_verbs_head *head, const struct ibv_wc *wc)
{
	return wc->status == IBV_WC_SUCCESS && rb_verbs_is_live(link) &&
	       (peer->halts | peer->coming.left_bytes | (uintptr_t)peer->out_first |
		(uintptr_t)peer->active_first | (uintptr_t)peer->redo) == 0 &&
	       head->message == RB_VERBS_EAGER && wc->byte_len == sizeof(*head) + head->bytes &&
	       head->size_bytes == head->bytes && head->number == peer->their_number &&
	       head->consumed - link->sent_known <= link->sent - link->sent_known &&
	       head->freed - peer->spent_known <= peer->spent - peer->spent_known;
}

/* Its receive, which takes it as it is; NULL: none, or it has to be looked for. */
static inline struct rb_request *receive_of(struct rb_request *first,
					    const struct rb_verbs_head *head)
{
	return first != NULL && rb_tag_same(first->tag, head->tag) &&
			       first->size_bytes == head->bytes &&
			       rb_signature_same(&head->signature, &first->signature) &&
			       !rb_verbs_is_device(first)
		       ? first
		       : NULL;
}

/* False: it is another, or nobody waits for it; nothing has changed. What is owed by slots is paid
 * long before what is owed by units could be much. */
static inline bool small_received(struct rb_verbs *vb, struct rb_verbs_rail *rail,
				  struct rb_verbs_link *link, struct rb_verbs_peer *peer,
				  const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id, bytes;
	const struct rb_verbs_head *head =
		(const void *)(link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES);
	struct rb_request **bucket, *receive;
	int error;

	if (!is_plain(link, peer, head, wc))
		return false;
	bucket = &peer->match.receives[rb_match_bucket(head->tag)];
	receive = receive_of(*bucket, head);
	if (receive == NULL)
		return false;
	bytes = head->bytes;
	*bucket = receive->next;
	if (receive->next != NULL)
		receive->next->previous = NULL;
	link->sent_known = head->consumed;
	peer->spent_known = head->freed;
	peer->their_number++;
	peer->freed += rb_verbs_units(bytes);
	peer->quiet = false;
	link->taken++;
	link->reposted++;
	vb->base.bytes_received += bytes;
	receive->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_NONE;
	receive->backend[RB_VERBS_LISTED] = 1;
	RB_QUEUE_ADD(vb->done_first, vb->done_last, receive);
	copy(receive->buffer, head + 1, bytes);
	error = rb_verbs_receive_post(rail, link, wc->wr_id, slot);
	if (error != 0) {
		link->receives--;
		rb_verbs_repost_failed(vb, link, error);
	}
	if (rb_verbs_owes_slots(link)) {
		peer->owes = true;
		rb_verbs_stir(vb, peer);
	}
	return true;
}

/* ---- Completions ---- */

/* Something waits for room, or is owed. */
static inline bool is_due(const struct rb_verbs_peer *peer)
{
	return (peer->halts | (uintptr_t)peer->out_first | (uintptr_t)peer->active_first |
		(uintptr_t)peer->redo) != 0 ||
	       rb_verbs_owes_units(peer);
}

static __attribute__((noinline)) void take_any(struct rb_verbs *vb, struct rb_verbs_rail *rail,
					       const struct ibv_wc *wc)
{
	uint32_t rank = (uint32_t)(wc->wr_id >> 32) & ((1u << RB_VERBS_RANK_BITS) - 1);
	bool is_receive = (wc->wr_id & RB_VERBS_RECEIVED) != 0;
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_link *link;

	if (!is_receive && (wc->wr_id & RB_VERBS_DATAGRAM) != 0) {
		rb_verbs_datagram(vb, rail, wc);
		return;
	}
	link = &peer->links[rail->index];
	if (!rb_verbs_is_of_life(link, wc->wr_id) || link->qp == NULL)
		return; /* Of an earlier one: some devices tell of queue pairs that are gone. */
	if (is_receive)
		received(vb, link, wc);
	else
		rb_verbs_ended(vb, link, (uint32_t)wc->wr_id, wc);
	if (rb_verbs_owes_slots(link))
		peer->owes = true;
	peer->quiet = false;
	if (is_due(peer))
		rb_verbs_stir(vb, peer);
}

static inline void take(struct rb_verbs *vb, struct rb_verbs_rail *rail, const struct ibv_wc *wc)
{
	uint32_t rank = (uint32_t)(wc->wr_id >> 32) & ((1u << RB_VERBS_RANK_BITS) - 1);
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_link *link = &peer->links[rail->index];

	if ((wc->wr_id & RB_VERBS_RECEIVED) == 0 || !rb_verbs_is_of_life(link, wc->wr_id) ||
	    !small_received(vb, rail, link, peer, wc))
		take_any(vb, rail, wc);
}

/* What one call of libibverbs has given: so many, or less than none. */
static inline __attribute__((always_inline)) int taken(struct rb_verbs *vb,
						       struct rb_verbs_rail *rail)
{
	struct ibv_wc wc[COMPLETIONS];
	int count = ibv_poll_cq(rail->cq, COMPLETIONS, wc);

	for (const struct ibv_wc *at = wc, *end = wc + count; at < end; at++)
		take(vb, rail, at);
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
	return total;
}

uint32_t rb_verbs_progress(struct rb_verbs *vb)
{
	return progress_rest(vb, taken(vb, &vb->rails[0]));
}

/* A poll's first round goes on; and a few more, until there is something to tell. */
static __attribute__((noinline)) void poll_rest(struct rb_verbs *vb, int count)
{
	uint32_t total = progress_rest(vb, count);

	for (int i = 1; i < ROUNDS && total != 0 && vb->done_first == NULL; i++)
		total = rb_verbs_progress(vb);
}

static __attribute__((noinline)) void check(struct rb_verbs *vb)
{
	vb->rounds = 0;
	rb_verbs_check_peers(vb);
	if (vb->by_tcp > 0)
		vb->rounds = RB_VERBS_ROUNDS_PER_CHECK; /* That is how it moves. */
}

struct rb_request *rb_verbs_poll(struct rb_endpoint *ep)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_request *done;
	int count = taken(vb, &vb->rails[0]);

	/* Mostly what has come is one message, and nothing follows from it. */
	if (count == COMPLETIONS || count < 0 || vb->rail_count > 1 ||
	    ((uintptr_t)vb->stirred | (uintptr_t)vb->chain.link) != 0 ||
	    (count > 0 && vb->done_first == NULL))
		poll_rest(vb, count);
	if (++vb->rounds >= RB_VERBS_ROUNDS_PER_CHECK)
		check(vb);
	done = vb->done_first;
	vb->done_first = vb->done_last = NULL;
	for (struct rb_request *r = done; r != NULL; r = r->next) {
		r->backend[RB_VERBS_LISTED] = 0;
		r->state = RB_REQUEST_DONE;
	}
	return done;
}
