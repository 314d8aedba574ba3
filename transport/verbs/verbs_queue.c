/*
 * verbs_queue.c -- what leaves: slots, the peer's window, the send queue, the doorbell.
 *
 * What is to leave is gathered in a chain, which one doorbell posts when a post or a poll is over,
 * or its peer changes. A queue's entries are numbered; one in RB_VERBS_SIGNAL_EACH tells its
 * completion, and so do those that a request waits for: it stands for all before it, as RC
 * completes in order. A message that finds no room at the peer, or in the queue, is copied and
 * leaves when there is some, in order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transport/verbs/verbs.h"

#define CHUNK_SLOTS 64u
#define KEPT_FOR_CREDIT 8u /* Entries of a queue. */
#define KEPT_FOR_SENDS 48u

/* ---- Slots ---- */

rubato_status rb_verbs_slots_make(struct rb_verbs *vb)
{
	struct rb_verbs_chunk *chunk =
		calloc(1, sizeof(*chunk) + CHUNK_SLOTS * sizeof(chunk->slots[0]));
	size_t bytes = CHUNK_SLOTS * RB_VERBS_SLOT_BYTES;
	void *memory = NULL;

	if (chunk == NULL || posix_memalign(&memory, 4096, bytes) != 0) {
		free(chunk);
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory to send from");
	}
	chunk->memory = memory;
	chunk->mr = vb->api.ibv_reg_mr(vb->pd, memory, bytes, 0);
	if (chunk->mr == NULL) {
		int error = errno;

		free(memory);
		free(chunk);
		return rb_verbs_failed(vb, error, "registering memory to send from");
	}
	for (uint32_t i = 0; i < CHUNK_SLOTS; i++) {
		struct rb_verbs_slot *slot = &chunk->slots[i];

		slot->head = (struct rb_verbs_head *)(void *)((uint8_t *)memory +
							      i * RB_VERBS_SLOT_BYTES);
		slot->key = chunk->mr->lkey;
		slot->next = vb->free_slots;
		vb->free_slots = slot;
	}
	chunk->next = vb->chunks;
	vb->chunks = chunk;
	return RUBATO_OK;
}

void rb_verbs_slots_free(struct rb_verbs *vb)
{
	while (vb->chunks != NULL) {
		struct rb_verbs_chunk *chunk = vb->chunks;

		vb->chunks = chunk->next;
		(void)vb->api.ibv_dereg_mr(chunk->mr);
		free(chunk->memory);
		free(chunk);
	}
	vb->free_slots = NULL;
}

static struct rb_verbs_slot *slot_take(struct rb_verbs *vb)
{
	struct rb_verbs_slot *slot;

	if (vb->free_slots == NULL && rb_verbs_slots_make(vb) != RUBATO_OK)
		return NULL;
	slot = vb->free_slots;
	vb->free_slots = slot->next;
	return slot;
}

static void slot_give(struct rb_verbs *vb, struct rb_verbs_slot *slot)
{
	slot->next = vb->free_slots;
	vb->free_slots = slot;
}

/* ---- Room ---- */

static bool has_entries(const struct rb_verbs_peer *peer, uint32_t kept)
{
	return peer->posted - peer->retired < RB_VERBS_QUEUE - kept;
}

static uint32_t slots_used(const struct rb_verbs_peer *peer)
{
	return peer->sent - peer->sent_known;
}

static bool has_room(const struct rb_verbs_peer *peer)
{
	return slots_used(peer) < RB_VERBS_WINDOW && has_entries(peer, KEPT_FOR_CREDIT);
}

/* ---- The doorbell ---- */

void rb_verbs_ring(struct rb_verbs *vb)
{
	struct rb_verbs_peer *peer = vb->chain.peer;
	uint32_t count = vb->chain.count;
	struct ibv_send_wr *bad = NULL;
	char reason[RB_VERBS_REASON_BYTES];
	int error = 0;

	if (count == 0)
		return;
	vb->chain.count = 0;
	vb->chain.peer = NULL;
	for (uint32_t i = 0; i + 1 < count; i++)
		vb->chain.requests[i].next = &vb->chain.requests[i + 1];
	vb->chain.requests[count - 1].next = NULL;
	if (!peer->lost)
		error = ibv_post_send(peer->qp, &vb->chain.requests[0], &bad);
	for (uint32_t i = 0; i < count; i++)
		if (vb->chain.slots[i] != NULL)
			slot_give(vb, vb->chain.slots[i]);
	if (error == 0)
		return;
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: posting to rank %u: %s",
		       vb->port.device, vb->port.number, peer->rank, strerror(error));
	rb_verbs_lose(vb, peer->rank, reason);
}

/* The next place in the chain. `flags` are completed. */
static struct ibv_send_wr *chain_add(struct rb_verbs *vb, struct rb_verbs_peer *peer,
				     const struct rb_verbs_entry *entry, bool tells)
{
	struct ibv_send_wr *wr;
	uint32_t i;

	if (vb->chain.count == RB_VERBS_CHAIN || vb->chain.peer != peer)
		rb_verbs_ring(vb);
	i = vb->chain.count++;
	vb->chain.peer = peer;
	vb->chain.slots[i] = NULL;
	wr = &vb->chain.requests[i];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = (uint64_t)peer->rank << 32 | peer->posted;
	wr->sg_list = &vb->chain.parts[i];
	peer->entries[peer->posted++ % RB_VERBS_QUEUE] = *entry;
	if (tells || ++peer->unsignalled >= RB_VERBS_SIGNAL_EACH) {
		peer->unsignalled = 0;
		wr->send_flags = IBV_SEND_SIGNALED;
	}
	return wr;
}

/* What is short leaves with its request, so that its slot is free at once. */
static void part_set(struct rb_verbs *vb, struct rb_verbs_peer *peer, struct ibv_send_wr *wr,
		     struct rb_verbs_slot *slot, uint32_t bytes)
{
	uint32_t i = vb->chain.count - 1;

	vb->chain.parts[i] = (struct ibv_sge) { (uintptr_t)slot->head, bytes, slot->key };
	wr->num_sge = 1;
	if (bytes > vb->inline_max)
		return;
	wr->send_flags |= IBV_SEND_INLINE;
	vb->chain.slots[i] = slot;
	peer->entries[(peer->posted - 1) % RB_VERBS_QUEUE].slot = NULL;
}

/* ---- Messages ---- */

/* Whether somebody waits for the completion of such a message, or of a write before it. */
static bool tells(uint8_t message)
{
	return message == RB_VERBS_FIN || message == RB_VERBS_PUT || message == RB_VERBS_STOPPED ||
	       message == RB_VERBS_BYE || message == RB_VERBS_ABORT || message == RB_VERBS_HELLO;
}

/* One slot's worth. False: there is no memory for it now. */
static bool slot_send(struct rb_verbs *vb, struct rb_verbs_peer *peer,
		      const struct rb_verbs_head *head, const void *payload, size_t bytes)
{
	struct rb_verbs_slot *slot = slot_take(vb);
	struct rb_verbs_entry entry = { .slot = slot, .message = head->message };
	struct ibv_send_wr *wr;

	if (slot == NULL)
		return false;
	*slot->head = *head;
	slot->head->version = RB_VERBS_VERSION;
	slot->head->bytes = (uint16_t)bytes;
	slot->head->consumed = peer->reposted_said = peer->reposted;
	slot->head->freed = peer->freed_said = peer->freed;
	rb_verbs_copy(slot->head + 1, payload, bytes);
	peer->sent++;
	wr = chain_add(vb, peer, &entry, tells(head->message));
	wr->opcode = IBV_WR_SEND;
	part_set(vb, peer, wr, slot, (uint32_t)(sizeof(*head) + bytes));
	return true;
}

bool rb_verbs_piece(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
		    const void *payload, size_t payload_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	return peer->out_first == NULL && has_room(peer) &&
	       slot_send(vb, peer, head, payload, payload_bytes);
}

/* As many pieces as there is room for; how many bytes are through. */
static size_t pieces_send(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  struct rb_verbs_head head, const uint8_t *payload, size_t size_bytes,
			  size_t moved, bool *through)
{
	*through = false;
	while (has_room(peer) && !peer->lost) {
		size_t left = size_bytes - moved;
		size_t piece = left < RB_VERBS_PAYLOAD_MAX ? left : RB_VERBS_PAYLOAD_MAX;

		if (moved > 0)
			head.message = RB_VERBS_MORE;
		if (!slot_send(vb, peer, &head, payload == NULL ? NULL : payload + moved, piece))
			break;
		moved += piece;
		*through = moved == size_bytes;
		if (*through)
			break;
	}
	return moved;
}

static void out_add(struct rb_verbs *vb, struct rb_verbs_peer *peer,
		    const struct rb_verbs_head *head, const uint8_t *payload, size_t size_bytes,
		    size_t moved)
{
	struct rb_verbs_out *out = malloc(sizeof(*out) + size_bytes - moved);

	if (out == NULL) {
		rb_verbs_lose(vb, peer->rank, "no memory for a message to it");
		return;
	}
	out->next = NULL;
	out->head = *head;
	if (moved > 0)
		out->head.message = RB_VERBS_MORE;
	out->size_bytes = size_bytes - moved;
	out->moved = 0;
	rb_verbs_copy(out->payload, payload == NULL ? NULL : payload + moved, out->size_bytes);
	if (peer->out_last != NULL)
		peer->out_last->next = out;
	else
		peer->out_first = out;
	peer->out_last = out;
	vb->base.leaving++;
}

void rb_verbs_tell(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
		   const void *payload, size_t payload_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	size_t moved = 0;
	bool through = false;

	if (peer->lost || peer->parted || peer->qp == NULL)
		return;
	if (peer->out_first == NULL)
		moved = pieces_send(vb, peer, *head, payload, payload_bytes, 0, &through);
	if (!through && !peer->lost)
		out_add(vb, peer, head, payload, payload_bytes, moved);
}

static void outs_send(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	while (peer->out_first != NULL && has_room(peer) && !peer->lost) {
		struct rb_verbs_out *out = peer->out_first;
		bool through;

		if (out->moved > 0)
			out->head.message = RB_VERBS_MORE;
		out->moved = pieces_send(vb, peer, out->head, out->payload, out->size_bytes,
					 out->moved, &through);
		if (!through || peer->lost)
			return;
		peer->out_first = out->next;
		if (peer->out_first == NULL)
			peer->out_last = NULL;
		vb->base.leaving--;
		free(out);
	}
}

void rb_verbs_outs_drop(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	while (peer->out_first != NULL) {
		struct rb_verbs_out *out = peer->out_first;

		peer->out_first = out->next;
		vb->base.leaving--;
		free(out);
	}
	peer->out_last = NULL;
}

void rb_verbs_pump(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_flight *flight, *next;

	if (peer->lost)
		return;
	outs_send(vb, peer);
	for (flight = peer->active_first; flight != NULL && !peer->lost; flight = next) {
		next = flight->next;
		rb_verbs_push(vb, flight);
	}
}

void rb_verbs_repay(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	static const struct rb_verbs_head head = { .message = RB_VERBS_CREDIT };
	uint32_t slots = peer->reposted - peer->reposted_said;
	uint32_t units = peer->freed - peer->freed_said;
	uint32_t used = slots_used(peer);
	bool due =
		(slots >= RB_VERBS_WINDOW / 2 && used < RB_VERBS_WINDOW + RB_VERBS_RESERVE) ||
		(units >= RB_VERBS_UNITS_MAX / 4 && used < RB_VERBS_WINDOW + RB_VERBS_UNITS_OVER);

	bool over = peer->lost || peer->qp == NULL || (peer->parted && peer->out_first == NULL);

	if (due && !over && has_entries(peer, 0))
		(void)slot_send(vb, peer, &head, NULL, 0); /* Else the next round tries again. */
}

/* ---- Writes ---- */

bool rb_verbs_write(struct rb_verbs *vb, uint32_t rank, struct rb_verbs_flight *flight,
		    const void *from, uint32_t bytes, uint64_t address, bool last)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_verbs_entry entry = { .flight = rb_verbs_flight_id(flight), .bytes = bytes };
	struct ibv_send_wr *wr;

	if (!has_entries(peer, KEPT_FOR_SENDS))
		return false;
	if (flight->local_key == 0) {
		RB_ASSERT(bytes <= RB_VERBS_SLOT_BYTES);
		entry.slot = slot_take(vb);
		if (entry.slot == NULL)
			return false;
		memcpy(entry.slot->head, from, bytes);
	}
	/* The last one's completion is told by what follows it. */
	wr = chain_add(vb, peer, &entry, flight->local_key != 0 && !last);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = address;
	wr->wr.rdma.rkey = flight->key;
	if (flight->local_key == 0) {
		part_set(vb, peer, wr, entry.slot, bytes);
		return true;
	}
	vb->chain.parts[vb->chain.count - 1] =
		(struct ibv_sge) { (uintptr_t)from, bytes, flight->local_key };
	wr->num_sge = 1;
	return true;
}

void rb_verbs_probe(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_entry entry = { 0 };
	struct ibv_send_wr *wr;

	if (!has_entries(peer, 0))
		return;
	wr = chain_add(vb, peer, &entry, true);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->sg_list = NULL;
}

/* ---- What completes ---- */

static void entry_text(const struct rb_verbs_entry *entry, uint32_t rank, char *text,
		       size_t text_bytes)
{
	if (entry->message != 0)
		(void)snprintf(text, text_bytes, "a message to rank %u", rank);
	else if (entry->bytes > 0)
		(void)snprintf(text, text_bytes, "RDMA write of %u bytes to rank %u", entry->bytes,
			       rank);
	else
		(void)snprintf(text, text_bytes, "asking whether rank %u is there", rank);
}

void rb_verbs_retire(struct rb_verbs *vb, uint32_t rank, uint32_t number, const struct ibv_wc *wc)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	char text[80];

	if (peer->posted - number - 1 >= RB_VERBS_QUEUE)
		return; /* Of nothing that is in the queue: told twice. */
	if (wc->status != IBV_WC_SUCCESS && !peer->lost) {
		entry_text(&peer->entries[number % RB_VERBS_QUEUE], rank, text, sizeof(text));
		rb_verbs_lose_by(vb, rank, text, wc);
	}
	while ((int32_t)(number - peer->retired) >= 0) {
		struct rb_verbs_entry entry = peer->entries[peer->retired++ % RB_VERBS_QUEUE];
		struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, entry.flight);

		if (entry.slot != NULL)
			slot_give(vb, entry.slot);
		if (flight != NULL)
			rb_verbs_written(vb, flight);
	}
	peer->probing = false;
}

/* ---- Receives ---- */

void rb_verbs_repost(struct rb_verbs *vb, struct rb_verbs_peer *peer, uint32_t slot)
{
	struct ibv_sge part = { (uintptr_t)(peer->slots + slot * RB_VERBS_SLOT_BYTES),
				RB_VERBS_SLOT_BYTES, vb->slots_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RB_VERBS_RECEIVED | (uint64_t)peer->rank << 32 | slot,
				  .sg_list = &part,
				  .num_sge = 1 },
			   *bad = NULL;
	char reason[RB_VERBS_REASON_BYTES];
	int error = ibv_post_recv(peer->qp, &wr, &bad);

	if (error == 0)
		return;
	(void)snprintf(reason, sizeof(reason),
		       "verbs: %s port %u: posting a receive from rank %u: %s", vb->port.device,
		       vb->port.number, peer->rank, strerror(error));
	rb_verbs_lose(vb, peer->rank, reason);
}
