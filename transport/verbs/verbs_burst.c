/*
 * verbs_burst.c -- puts and large messages of which one doorbell posts all.
 *
 * The writes are filled where they are posted from, each in the place of one that was like it, and
 * behind them the message that ends them, whose completion tells of all. They are folded: the
 * queue has places for them, but only the message's entry is filled, and has how many there are;
 * all have the number of the first. Where something fails they are unfolded, and are as others
 * are. So go requests of a few pieces, to a peer that has one link, to which nothing waits or is
 * amiss: that is tried before anything is changed. What does not leave so goes by the way that
 * knows all cases (verbs_memory.c, verbs_large.c); what becomes of it is the same.
 */
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"

#define BYTES_MAX (RB_VERBS_PIECES_OUT * RB_VERBS_PIECE_BYTES)

/* ---- Posts ---- */

/* A message may leave for a peer of one link, and has all that a flight needs. */
static inline bool has_way(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	return peer->may > 0 && peer->link_count == 1 && vb->free_slots != NULL &&
	       vb->flight_free != NULL;
}

/* Likewise, with writes before it, which do not tell their completions. */
static inline bool has_way_for_writes(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	return has_way(vb, peer) && rb_verbs_has_entries(peer->links, vb->queue_burst);
}

/* The registration of the region that holds the request's buffer, the host's; or NULL. */
static inline const struct ibv_mr *region_of(const struct rb_verbs *vb,
					     const struct rb_request *request)
{
	const struct rb_where *where = request->where;
	const struct rb_verbs_region *region;

	if (where == NULL || where->regions == NULL || where->kind == RB_MEMORY_DEVICE)
		return NULL;
	region = (const struct rb_verbs_region *)where->regions[vb->base.index];
	return region != NULL && rb_verbs_is_inside(region, request) ? region->mrs[0] : NULL;
}

static inline void begin(struct rb_request *request, enum rb_request_kind kind,
			 enum rb_verbs_stage stage)
{
	request->kind = kind;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	memset(request->backend, 0, RB_VERBS_WORDS * sizeof(request->backend[0]));
	request->backend[RB_VERBS_STAGE] = stage;
}

static inline struct rb_verbs_slot *slot_of(struct rb_verbs *vb)
{
	struct rb_verbs_slot *slot = vb->free_slots;

	vb->free_slots = slot->next;
	return slot;
}

/* ---- Writes ---- */

/* How many of the burst's posts from `first` on were not posted. */
static uint32_t unposted_of(const struct rb_verbs *vb, const struct rb_verbs_post *first,
			    const struct ibv_send_wr *bad)
{
	const struct rb_verbs_post *end = vb->burst + RB_VERBS_PIECES_OUT + 1, *at = first;

	while (at < end && &at->request != bad)
		at++;
	return (uint32_t)(end - (at < end ? at : first));
}

/* All of a flight, between registered memory, and its end: `message`. */
static inline void burst(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			 struct rb_verbs_flight *flight, uint8_t message)
{
	struct rb_verbs_link *link = peer->links;
	const struct rb_request *request = flight->request;
	size_t bytes = request->size_bytes;
	uintptr_t from = (uintptr_t)request->buffer, to = flight->address;
	uint32_t writes = (uint32_t)((bytes - 1) / RB_VERBS_PIECE_BYTES) + 1;
	uint32_t number = link->posted + writes;
	uint64_t name = link->word | link->posted;
	struct rb_verbs_post *end = &vb->burst[RB_VERBS_PIECES_OUT], *first = end - writes;
	struct rb_verbs_slot *slot = slot_of(vb);
	struct rb_verbs_entry *last = rb_verbs_entry_at(vb, link, number);
	struct ibv_send_wr *bad = NULL;
	int error;

	rb_verbs_settled_check(vb, peer);
	flight->rails = 1;
	flight->finished = true;
	flight->out = writes;
	flight->moved = bytes;
	link->bytes_out += bytes;
	vb->base.bytes_sent += bytes;
	peer->may--; /* Writes leave room for as many messages as it counts. */
	end[-1].part.length = (uint32_t)((bytes - 1) % RB_VERBS_PIECE_BYTES) + 1;
	for (struct rb_verbs_post *post = first; post < end; post++) {
		post->request.wr_id = name;
		post->part.addr = from;
		post->part.lkey = flight->local_keys[0];
		post->request.wr.rdma.remote_addr = to;
		post->request.wr.rdma.rkey = flight->keys[0];
		from += RB_VERBS_PIECE_BYTES;
		to += RB_VERBS_PIECE_BYTES;
	}
	link->posted = number + 1;
	link->untold = link->tell_each;
	link->folded++;
	end->request.wr_id = link->word | number;
	rb_verbs_head_set(slot->head, peer, request, message, 0, 0, flight->invite);
	rb_verbs_message_set(vb, link, peer, end, last, slot, message, 0, IBV_SEND_SIGNALED);
	last->flight = rb_verbs_flight_id(flight);
	last->burst = flight;
	last->writes = (uint16_t)writes;
	error = ibv_post_send(link->qp, &first->request, &bad);
	if (error != 0)
		rb_verbs_post_failed(vb, link, unposted_of(vb, first, bad), error);
}

/* The entries of a burst's writes, as if each had been posted by itself. */
static void unfold_one(struct rb_verbs *vb, struct rb_verbs_link *link, struct rb_verbs_entry *last,
		       uint32_t number)
{
	const struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, last->flight);
	uint64_t bytes = flight != NULL ? flight->moved : 0; /* It may have ended with its peer. */

	for (uint32_t i = 0; i < last->writes; i++) {
		uint64_t offset = (uint64_t)i * RB_VERBS_PIECE_BYTES;
		uint64_t left = bytes > offset ? bytes - offset : 0;

		*rb_verbs_entry_at(vb, link, number - last->writes + i) = (struct rb_verbs_entry) {
			.flight = last->flight,
			.offset = offset,
			.bytes = left < RB_VERBS_PIECE_BYTES ? (uint32_t)left : RB_VERBS_PIECE_BYTES
		};
	}
	last->writes = 0;
}

void rb_verbs_unfold(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	uint32_t number = link->posted; /* From the end: before it there is nothing to be read. */

	while (link->folded > 0 && number != link->retired) {
		struct rb_verbs_entry *entry = rb_verbs_entry_at(vb, link, --number);
		uint32_t writes = entry->writes;

		if (writes == 0)
			continue;
		unfold_one(vb, link, entry, number);
		number -= writes;
		link->folded--;
	}
	RB_ASSERT(link->folded == 0);
}

static __attribute__((noinline)) void put_any(struct rb_endpoint *ep, struct rb_request *put)
{
	if (rb_verbs_refill((struct rb_verbs *)ep, put->peer))
		rb_verbs_put(ep, put);
	else
		rb_verbs_post(ep, put, RB_REQUEST_PUT, rb_verbs_post_put);
}

void rb_verbs_put(struct rb_endpoint *ep, struct rb_request *put)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer = rb_verbs_peer_of(vb, put->peer);
	const struct rb_verbs_remote *remote = (const struct rb_verbs_remote *)put->remote;
	const struct ibv_mr *mr = region_of(vb, put);
	struct rb_verbs_flight *flight;

	if (mr == NULL || put->peer >= ep->rank_count || put->size_bytes - 1 >= BYTES_MAX ||
	    !has_way_for_writes(vb, peer) || remote->base.peer != put->peer ||
	    put->size_bytes > remote->base.size_bytes ||
	    put->remote_offset > remote->base.size_bytes - put->size_bytes) {
		put_any(ep, put);
		return;
	}
	begin(put, RB_REQUEST_PUT, RB_VERBS_STAGE_SENDING);
	flight = rb_verbs_flight_take(vb, put);
	flight->address = remote->address + put->remote_offset;
	flight->keys[0] = remote->keys[0];
	flight->local_keys[0] = mr->lkey;
	burst(vb, peer, flight, RB_VERBS_PUT);
}

/* The first invitation where that of the send would be, if it is that; NULL: it has to be looked
 * for, or is for something else. */
static inline struct rb_verbs_invite *invite_of(struct rb_arrival *first,
						const struct rb_request *send)
{
	struct rb_verbs_invite *invite = (struct rb_verbs_invite *)first;

	return invite != NULL && rb_tag_same(invite->base.tag, send->tag) &&
			       invite->size_bytes == send->size_bytes &&
			       rb_signature_same(&invite->base.signature, &send->signature) &&
			       invite->target.keys[0] != 0
		       ? invite
		       : NULL;
}

/* The keys of its own memory. False: there are none. */
static inline bool registered(struct rb_verbs *vb, struct rb_verbs_flight *flight,
			      const struct ibv_mr *mr, bool written)
{
	int access = written ? RB_VERBS_ACCESS_REMOTE : 0;

	if (mr == NULL && vb->cache_bytes > 0)
		mr = rb_verbs_flight_register(vb, flight, 1, access) ? flight->mrs[0] : NULL;
	else if (mr == NULL)
		mr = flight->mrs[0] =
			rb_verbs_host_register(vb, vb->rails[0].pd, flight->request->buffer,
					       flight->request->size_bytes, access);
	if (mr == NULL)
		return false;
	flight->local_keys[0] = mr->lkey;
	if (written)
		flight->keys[0] = mr->rkey;
	return true;
}

static inline bool send_large(struct rb_verbs *vb, struct rb_request *send)
{
	struct rb_verbs_peer *peer = rb_verbs_peer_of(vb, send->peer);
	const struct ibv_mr *mr = region_of(vb, send);
	struct rb_verbs_invite *invite;
	struct rb_verbs_flight *flight;
	struct rb_arrival **bucket;

	if (send->peer >= vb->base.rank_count || peer->link_count != 1 ||
	    send->size_bytes > BYTES_MAX || rb_verbs_is_device(send))
		return false;
	rb_verbs_glance(vb); /* Perhaps its invitation has come. */
	bucket = &peer->outgoing.arrivals[rb_match_bucket(send->tag)];
	invite = invite_of(*bucket, send);
	if (invite == NULL || !has_way_for_writes(vb, peer))
		return false;
	begin(send, RB_REQUEST_SEND, RB_VERBS_STAGE_SENDING);
	flight = rb_verbs_flight_take(vb, send);
	flight->keys[0] = invite->target.keys[0];
	if (!registered(vb, flight, mr, false)) {
		rb_verbs_flight_end(vb, flight);
		return false;
	}
	flight->invite = invite->id;
	flight->address = invite->target.address;
	*bucket = invite->base.next;
	peer->outgoing.arrival_count--;
	peer->waiting--;
	rb_verbs_invite_free(vb, invite);
	burst(vb, peer, flight, RB_VERBS_FIN);
	return true;
}

static __attribute__((noinline)) void send_large_any(struct rb_endpoint *ep,
						     struct rb_request *send)
{
	if (rb_verbs_refill((struct rb_verbs *)ep, send->peer))
		rb_verbs_send_large(ep, send);
	else
		rb_verbs_post(ep, send, RB_REQUEST_SEND, rb_verbs_post_send);
}

void rb_verbs_send_large(struct rb_endpoint *ep, struct rb_request *send)
{
	if (!send_large((struct rb_verbs *)ep, send))
		send_large_any(ep, send);
}

/* ---- Invitations ---- */

static inline bool recv_large(struct rb_verbs *vb, struct rb_request *receive)
{
	struct rb_verbs_peer *peer = rb_verbs_peer_of(vb, receive->peer);
	const struct ibv_mr *mr = region_of(vb, receive);
	struct rb_verbs_target *target;
	struct rb_verbs_flight *flight;
	struct rb_verbs_slot *slot;

	if (receive->peer >= vb->base.rank_count || !has_way(vb, peer) ||
	    (peer->match.arrival_count > 0 && rb_match_has_arrival(&peer->match, receive->tag)) ||
	    rb_verbs_is_device(receive) || rb_tag_class_of(receive->tag) == RB_TAG_P2P)
		return false;
	begin(receive, RB_REQUEST_RECV, RB_VERBS_STAGE_MATCHING);
	flight = rb_verbs_flight_take(vb, receive);
	if (!registered(vb, flight, mr, true) || flight->keys[0] == 0) {
		rb_verbs_flight_end(vb, flight);
		return false;
	}
	rb_match_add_receive(&peer->match, receive);
	slot = slot_of(vb);
	rb_verbs_head_set(slot->head, peer, receive, RB_VERBS_CLEAR, sizeof(*target),
			  receive->size_bytes, rb_verbs_flight_id(flight));
	target = (struct rb_verbs_target *)(void *)(slot->head + 1);
	target->address = (uintptr_t)receive->buffer;
	memset(target->keys, 0, sizeof(target->keys));
	target->keys[0] = flight->keys[0];
	target->send = 0;
	peer->may--;
	rb_verbs_slot_send(vb, peer->links, peer, slot, RB_VERBS_CLEAR, sizeof(*target));
	return true;
}

static __attribute__((noinline)) void recv_large_any(struct rb_endpoint *ep,
						     struct rb_request *receive)
{
	if (rb_verbs_refill((struct rb_verbs *)ep, receive->peer))
		rb_verbs_recv_large(ep, receive);
	else
		rb_verbs_post(ep, receive, RB_REQUEST_RECV, rb_verbs_post_recv);
}

void rb_verbs_recv_large(struct rb_endpoint *ep, struct rb_request *receive)
{
	if (!recv_large((struct rb_verbs *)ep, receive))
		recv_large_any(ep, receive);
}
