/*
 * verbs_posts.h -- what leaves and what is posted again, piece by piece: slots, room, places in the
 * chain. Inline, as each message takes all of it.
 */
#ifndef RB_TRANSPORT_VERBS_POSTS_H
#define RB_TRANSPORT_VERBS_POSTS_H

#include "transport/verbs/verbs.h"

/* ---- Slots ---- */

/* NULL: there is no memory for one now. */
static inline struct rb_verbs_slot *rb_verbs_slot_take(struct rb_verbs *vb)
{
	struct rb_verbs_slot *slot;

	if (vb->free_slots == NULL && rb_verbs_slots_make(vb) != RUBATO_OK)
		return NULL;
	slot = vb->free_slots;
	vb->free_slots = slot->next;
	return slot;
}

static inline void rb_verbs_slot_give(struct rb_verbs *vb, struct rb_verbs_slot *slot)
{
	if (slot == NULL)
		return;
	slot->next = vb->free_slots;
	vb->free_slots = slot;
}

/* ---- Room ---- */

/* Fewer than `most` are under way. */
static inline bool rb_verbs_has_entries(const struct rb_verbs_link *link, uint32_t most)
{
	return link->posted - link->retired < most;
}

static inline uint32_t rb_verbs_slots_used(const struct rb_verbs_link *link)
{
	return link->sent - link->sent_known;
}

/* Such a message has room on that link. */
static inline bool rb_verbs_has_room(const struct rb_verbs_link *link)
{
	return rb_verbs_slots_used(link) < link->peer->window &&
	       rb_verbs_has_entries(link, link->peer->vb->queue_messages);
}

/* Whether the stream goes on now. */
static inline bool rb_verbs_flows(const struct rb_verbs_peer *peer)
{
	return peer->held_by == 0 && peer->redo == NULL && !peer->lost &&
	       rb_verbs_is_live(rb_verbs_main(peer)) && rb_verbs_has_room(rb_verbs_main(peer));
}

/* A peer's credit for what may find no receive. */
static inline bool rb_verbs_has_units(const struct rb_verbs_peer *peer, uint32_t units)
{
	return peer->spent - peer->spent_known <= RB_VERBS_UNITS_MAX - units;
}

/* Nothing is in the way of what leaves for a peer now. */
static inline bool rb_verbs_is_free(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	return (peer->halts | (uintptr_t)peer->out_first | (uintptr_t)peer->redo |
		(uintptr_t)vb->chain.link) == 0;
}

/* Something of a peer's waits for room, or is owed by slots. */
static inline bool rb_verbs_waits(const struct rb_verbs_peer *peer)
{
	return (peer->halts | (uintptr_t)peer->out_first | (uintptr_t)peer->active_first |
		(uintptr_t)peer->redo) != 0;
}

/* What the short ways go by is so. */
static inline void rb_verbs_settled_check(const struct rb_verbs *vb,
					  const struct rb_verbs_peer *peer)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* Where time does not count. */
	bool whole = peer->live == peer->link_count;

	RB_ASSERT(peer->amiss || (whole && peer->coming.left_bytes == 0 && !rb_verbs_waits(peer)));
	RB_ASSERT(peer->may == 0 || (whole && peer->halts == 0 && peer->out_first == NULL &&
				     peer->redo == NULL && rb_verbs_has_room(peer->main) &&
				     (vb->chain.link == NULL || vb->chain.link->peer != peer)));
#else
	(void)vb, (void)peer;
#endif
}

/* Counts anew how many messages may leave, where that was 0 (verbs_fast.c). True: there is room. */
bool rb_verbs_refill(struct rb_verbs *vb, uint32_t rank);

/* Before entries of a link are looked at one by one (verbs_burst.c). */
void rb_verbs_unfold(struct rb_verbs *vb, struct rb_verbs_link *link);

/* ---- The chain ---- */

/* Of the link's next entry: whether its completion is told, which somebody may wait for. */
static inline unsigned int rb_verbs_flags(struct rb_verbs_link *link, bool tells)
{
	if (--link->untold > 0 && !tells)
		return 0;
	link->untold = link->tell_each;
	return IBV_SEND_SIGNALED;
}

/* The next entry of the link's queue, and what its request has of it. */
static inline struct rb_verbs_entry *rb_verbs_entry_add(const struct rb_verbs *vb,
							struct rb_verbs_link *link,
							struct ibv_send_wr *request)
{
	uint32_t number = link->posted++;

	request->wr_id = link->word | number;
	return rb_verbs_entry_at(vb, link, number);
}

/* Likewise, with the next place in the chain; the caller sets what its opcode has, and the entry.
 */
static inline struct rb_verbs_post *rb_verbs_chain_add(struct rb_verbs *vb,
						       struct rb_verbs_link *link, bool tells,
						       struct rb_verbs_entry **entry)
{
	struct rb_verbs_post *post;

	if (vb->chain.link != link || vb->chain.end == &vb->chain.posts[RB_VERBS_CHAIN])
		rb_verbs_ring(vb);
	vb->chain.link = link;
	vb->due = true;
	link->peer->may = 0; /* Something else takes room. */
	post = vb->chain.end++;
	post->request.num_sge = 1;
	post->request.send_flags = rb_verbs_flags(link, tells);
	*entry = rb_verbs_entry_add(vb, link, &post->request);
	return post;
}

static inline void rb_verbs_part_set(struct rb_verbs_post *post, const void *from, uint32_t bytes,
				     uint32_t key)
{
	post->part = (struct ibv_sge) { (uintptr_t)from, bytes, key };
}

/* The entry's slot. What is short leaves with its request. */
static inline void rb_verbs_slot_set(const struct rb_verbs *vb, const struct rb_verbs_link *link,
				     struct rb_verbs_post *post, struct rb_verbs_entry *entry,
				     struct rb_verbs_slot *slot, uint32_t bytes, unsigned int flags)
{
	entry->slot = slot;
	post->part.addr = (uintptr_t)slot->head;
	post->part.length = bytes;
	if (bytes <= vb->inline_max)
		flags |= IBV_SEND_INLINE; /* Then nobody reads the key. */
	else
		post->part.lkey = slot->chunk->mrs[link->index]->lkey;
	post->request.send_flags = flags;
}

/* Whether somebody waits for the completion of such a message, or of a write before it. */
static inline bool rb_verbs_tells(uint8_t message)
{
	static const uint32_t telling = 1u << RB_VERBS_FIN | 1u << RB_VERBS_PUT |
					1u << RB_VERBS_MARK | 1u << RB_VERBS_STOPPED |
					1u << RB_VERBS_ENDED | 1u << RB_VERBS_BYE |
					1u << RB_VERBS_ABORT | 1u << RB_VERBS_HELLO;

	return (telling >> message & 1u) != 0;
}

/* A slot that holds a message of that kind, with so many bytes behind its head. */
static inline void rb_verbs_message_set(const struct rb_verbs *vb, struct rb_verbs_link *link,
					struct rb_verbs_peer *peer, struct rb_verbs_post *post,
					struct rb_verbs_entry *entry, struct rb_verbs_slot *slot,
					uint8_t message, uint32_t bytes, unsigned int flags)
{
	struct rb_verbs_head *head = slot->head;

	head->consumed = link->reposted_said = link->reposted;
	head->freed = peer->freed_said = peer->freed;
	link->sent++;
	entry->message = message;
	entry->tries = 0;
	entry->writes = 0;
	rb_verbs_slot_set(vb, link, post, entry, slot, (uint32_t)sizeof(*head) + bytes, flags);
}

/* Likewise, the head of one that a request sends. */
static inline void rb_verbs_head_set(struct rb_verbs_head *head, struct rb_verbs_peer *peer,
				     const struct rb_request *request, uint8_t message,
				     uint32_t bytes, uint64_t size_bytes, uint64_t id)
{
	head->message = message;
	head->rails = 0;
	head->bytes = (uint16_t)bytes;
	head->number = peer->number++;
	head->tag = request->tag;
	head->signature = request->signature;
	head->size_bytes = size_bytes;
	head->id = id;
}

/* A slot that holds one, by a doorbell of its own. */
static inline void rb_verbs_slot_send(struct rb_verbs *vb, struct rb_verbs_link *link,
				      struct rb_verbs_peer *peer, struct rb_verbs_slot *slot,
				      uint8_t message, uint32_t bytes)
{
	struct rb_verbs_post *post = &vb->alone;
	struct ibv_send_wr *bad;
	int error;

	rb_verbs_message_set(vb, link, peer, post, rb_verbs_entry_add(vb, link, &post->request),
			     slot, message, bytes, rb_verbs_flags(link, false));
	error = ibv_post_send(link->qp, &post->request, &bad);
	if (error != 0)
		rb_verbs_post_failed(link->peer->vb, link, 1, error);
}

static inline void rb_verbs_slot_post(struct rb_verbs *vb, struct rb_verbs_link *link,
				      struct rb_verbs_slot *slot, uint8_t message, uint32_t bytes,
				      uint8_t tries)
{
	struct rb_verbs_entry *entry;
	struct rb_verbs_post *post = rb_verbs_chain_add(vb, link, rb_verbs_tells(message), &entry);

	rb_verbs_message_set(vb, link, link->peer, post, entry, slot, message, bytes,
			     post->request.send_flags);
	entry->tries = tries;
	post->request.opcode = IBV_WR_SEND;
}

/* ---- Receives ---- */

/* One slot of the link's. 0, or errno. */
static inline int rb_verbs_receive_post(struct rb_verbs_rail *rail,
					const struct rb_verbs_link *link, uint64_t wr_id,
					uint32_t slot)
{
	struct ibv_recv_wr *bad;

	rail->receive.wr_id = wr_id;
	rail->receive_part.addr = (uintptr_t)(link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES);
	return ibv_post_recv(link->qp, &rail->receive, &bad);
}

/* Of writes that are to be done again. Of a flight that was halted only where its FIN or PUT has
 * been said: then the other end takes it for whole. */
static inline bool rb_verbs_is_awaited(const struct rb_verbs_flight *flight)
{
	return flight != NULL && (!flight->halted || (flight->finished && !flight->stopping));
}

#endif
