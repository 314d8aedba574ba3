/*
 * verbs_queue.c -- what leaves: slots, the peer's window, the send queue, the doorbell.
 *
 * What is to leave is gathered in a chain, which one doorbell posts when a post or a poll is over,
 * or its peer changes. A queue's entries are numbered; one in RB_VERBS_TELL_EACH tells its
 * completion, and so do those that a request waits for: it stands for all before it, as RC
 * completes in order. A message that finds no room at the peer, or in the queue, is copied and
 * leaves when there is some, in order. An entry keeps what it sends until it is acknowledged: it
 * may have to go another way.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"
#include "transport/verbs/verbs_spare.h"

#define CHUNK_SLOTS 64u
#define COPIES_OUT 16u /* Of a flight whose writes leave from slots. Guess. */
#define TRIES_MAX 3u   /* Of an entry that fails by itself. */

/* ---- Slots ---- */

static void chunk_free(struct rb_verbs *vb, struct rb_verbs_chunk *chunk)
{
	for (uint32_t i = 0; i < vb->rail_count; i++)
		if (chunk->mrs[i] != NULL)
			(void)vb->api.ibv_dereg_mr(chunk->mrs[i]);
	free(chunk->memory);
	free(chunk);
}

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
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		int error;

		chunk->mrs[i] = vb->api.ibv_reg_mr(vb->rails[i].pd, memory, bytes, 0);
		error = errno;
		if (chunk->mrs[i] != NULL)
			continue;
		chunk_free(vb, chunk);
		return rb_verbs_unregistered(&vb->rails[i], error, "to send from", bytes);
	}
	for (uint32_t i = 0; i < CHUNK_SLOTS; i++) {
		struct rb_verbs_slot *slot = &chunk->slots[i];

		slot->head = (struct rb_verbs_head *)(void *)((uint8_t *)memory +
							      i * RB_VERBS_SLOT_BYTES);
		slot->chunk = chunk;
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
		chunk_free(vb, chunk);
	}
	vb->free_slots = NULL;
}

/* ---- Room ---- */

/* ---- The doorbell ---- */

/* Empties it; how many there were. */
static uint32_t chain_take(struct rb_verbs *vb)
{
	uint32_t count = (uint32_t)(vb->chain.end - vb->chain.posts);

	vb->chain.end = vb->chain.posts;
	vb->chain.link = NULL;
	return count;
}

void rb_verbs_chain_drop(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	if (vb->chain.link == link)
		link->unposted += chain_take(vb);
}

void rb_verbs_post_failed(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t unposted,
			  int error)
{
	char reason[RB_VERBS_REASON_BYTES];

	link->unposted = unposted;
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: posting to rank %u: %s",
		       link->rail->port.device, link->rail->port.number, link->peer->rank,
		       strerror(error));
	rb_verbs_link_fail(vb, link, reason);
}

/* How many of the chain were not posted. */
static uint32_t unposted_of(const struct rb_verbs *vb, uint32_t count,
			    const struct ibv_send_wr *bad)
{
	uint32_t posted = 0;

	while (posted < count && bad != &vb->chain.posts[posted].request)
		posted++;
	return posted < count ? count - posted : count;
}

void rb_verbs_ring_chain(struct rb_verbs *vb)
{
	struct rb_verbs_link *link = vb->chain.link;
	struct ibv_send_wr *bad = NULL, *last, *behind;
	uint32_t count;
	int error;

	if (link->state != RB_VERBS_LINK_LIVE && link->state != RB_VERBS_LINK_MAKING) {
		rb_verbs_chain_drop(vb, link); /* It failed while this was added. */
		rb_verbs_stir(vb, link->peer);
		return;
	}
	last = &vb->chain.end[-1].request;
	behind = last->next;
	last->next = NULL;
	error = ibv_post_send(link->qp, &vb->chain.posts[0].request, &bad);
	last->next = behind;
	count = chain_take(vb);
	vb->due = vb->rail_count > 1 || vb->stirred != NULL;
	if (error != 0)
		rb_verbs_post_failed(vb, link, unposted_of(vb, count, bad), error);
}

/* ---- Messages ---- */

/* One slot's worth of a message, of kind `message`. False: there is no memory for it now. */
static inline bool say(struct rb_verbs *vb, struct rb_verbs_link *link,
		       const struct rb_verbs_head *head, uint8_t message, uint32_t number,
		       const void *payload, size_t bytes)
{
	struct rb_verbs_slot *slot = rb_verbs_slot_take(vb);
	struct rb_verbs_head *to;

	if (slot == NULL)
		return false;
	to = slot->head;
	*to = *head;
	to->message = message;
	to->number = number;
	to->bytes = (uint16_t)bytes;
	if (bytes > 0)
		memcpy(to + 1, payload, bytes);
	rb_verbs_slot_post(vb, link, slot, message, (uint32_t)bytes, 0);
	return true;
}

bool rb_verbs_link_say(struct rb_verbs *vb, struct rb_verbs_link *link,
		       const struct rb_verbs_head *head, const void *payload, size_t bytes)
{
	return say(vb, link, head, head->message, 0, payload, bytes);
}

/* Likewise, of the stream. */
static bool stream_say(struct rb_verbs *vb, struct rb_verbs_peer *peer,
		       const struct rb_verbs_head *head, uint8_t message, const void *payload,
		       size_t bytes)
{
	if (!say(vb, rb_verbs_main(peer), head, message, peer->number, payload, bytes))
		return false;
	peer->number++;
	return true;
}

bool rb_verbs_piece(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
		    const void *payload, size_t payload_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	if (peer->out_first != NULL)
		return false;
	return rb_verbs_flows(peer)
		       ? stream_say(vb, peer, head, head->message, payload, payload_bytes)
		       : rb_verbs_spare_stream(vb, peer, head, head->message, payload,
					       payload_bytes);
}

/* As many pieces as there is room for; how many bytes are through. */
static size_t pieces_send(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  const struct rb_verbs_head *head, const uint8_t *payload,
			  size_t size_bytes, size_t moved, bool *through)
{
	*through = false;
	while (rb_verbs_flows(peer)) {
		size_t left = size_bytes - moved;
		size_t piece = left < RB_VERBS_PAYLOAD_MAX ? left : RB_VERBS_PAYLOAD_MAX;

		if (!stream_say(vb, peer, head, moved > 0 ? RB_VERBS_MORE : head->message,
				payload == NULL ? NULL : payload + moved, piece))
			break;
		moved += piece;
		*through = moved == size_bytes;
		if (*through)
			break;
	}
	return moved;
}

/* Likewise, over TCP: apart, so that the other one stays short where it is called. */
static __attribute__((noinline)) size_t pieces_by_tcp(struct rb_verbs *vb,
						      struct rb_verbs_peer *peer,
						      const struct rb_verbs_head *head,
						      const uint8_t *payload, size_t size_bytes,
						      size_t moved, bool *through)
{
	while (!*through) {
		size_t left = size_bytes - moved;
		size_t piece = left < RB_VERBS_PAYLOAD_MAX ? left : RB_VERBS_PAYLOAD_MAX;

		if (!rb_verbs_spare_stream(vb, peer, head,
					   moved > 0 ? RB_VERBS_MORE : head->message,
					   payload == NULL ? NULL : payload + moved, piece))
			break;
		moved += piece;
		*through = moved == size_bytes;
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
	if (out->size_bytes > 0)
		memcpy(out->payload, payload + moved, out->size_bytes);
	if (peer->out_last != NULL)
		peer->out_last->next = out;
	else
		peer->out_first = out;
	peer->out_last = out;
	rb_verbs_amiss(peer);
	vb->base.leaving++;
}

void rb_verbs_tell(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_head *head,
		   const void *payload, size_t payload_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	size_t moved = 0;
	bool through = false;

	if (peer->halts == 0 && peer->out_first == NULL && peer->link_count > 0 &&
	    payload_bytes <= RB_VERBS_PAYLOAD_MAX && rb_verbs_flows(peer) &&
	    stream_say(vb, peer, head, head->message, payload, payload_bytes))
		return; /* Nearly always. */
	if (peer->lost || peer->parted || peer->link_count == 0)
		return;
	if (peer->out_first == NULL)
		moved = pieces_send(vb, peer, head, payload, payload_bytes, 0, &through);
	if (!through && peer->by_tcp && peer->out_first == NULL)
		moved = pieces_by_tcp(vb, peer, head, payload, payload_bytes, moved, &through);
	if (!through && !peer->lost)
		out_add(vb, peer, head, payload, payload_bytes, moved);
}

static void outs_send(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	while (peer->out_first != NULL && (rb_verbs_flows(peer) || rb_verbs_spare_flows(peer))) {
		struct rb_verbs_out *out = peer->out_first;
		bool through;

		out->moved = pieces_send(vb, peer, &out->head, out->payload, out->size_bytes,
					 out->moved, &through);
		if (!through && peer->by_tcp)
			out->moved = pieces_by_tcp(vb, peer, &out->head, out->payload,
						   out->size_bytes, out->moved, &through);
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

void rb_verbs_pump_waiting(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_flight *flight, *next;

	if (peer->troubled && !peer->lost)
		rb_verbs_links_step(vb, peer);
	if ((peer->redo != NULL || peer->words != NULL) && !peer->lost)
		rb_verbs_redo(vb, peer);
	if (peer->lost || peer->link_count == 0)
		return;
	outs_send(vb, peer);
	for (flight = peer->active_first; flight != NULL && !peer->lost; flight = next) {
		next = flight->next;
		rb_verbs_push(vb, flight);
	}
	if (peer->spare != NULL && !peer->lost)
		rb_verbs_spare_step(vb, peer);
	if (peer->troubled || peer->mends)
		rb_verbs_mends(vb, peer);
}

static const struct rb_verbs_head credit = { .message = RB_VERBS_CREDIT };

static void link_repay(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	const struct rb_verbs_peer *peer = link->peer;
	uint32_t used = rb_verbs_slots_used(link);
	bool due = (rb_verbs_owes_slots(link) && used < peer->window + peer->reserve) ||
		   (link == peer->main && rb_verbs_owes_units(peer) &&
		    used < peer->window + peer->units_over);

	if (due && rb_verbs_is_live(link) && rb_verbs_has_entries(link, vb->queue))
		(void)rb_verbs_link_say(vb, link, &credit, NULL, 0); /* Else the next round does. */
}

void rb_verbs_repay_much(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->lost || (peer->parted && peer->out_first == NULL))
		return;
	peer->owes = false;
	for (uint32_t i = 0; i < peer->link_count; i++) {
		link_repay(vb, &peer->links[i]);
		peer->owes |= rb_verbs_owes_slots(&peer->links[i]);
	}
	if (peer->owes)
		rb_verbs_amiss(peer);
	if (peer->by_tcp && rb_verbs_owes_units(peer))
		(void)rb_verbs_spare_say(vb, peer, &credit, NULL, 0);
}

/* ---- Writes ---- */

static struct rb_verbs_link *least_busy(const struct rb_verbs_peer *peer)
{
	uint32_t most = peer->vb->queue_writes;
	struct rb_verbs_link *best = NULL;

	for (uint32_t i = 0; i < peer->link_count; i++) {
		struct rb_verbs_link *link = &peer->links[i];

		if (rb_verbs_is_live(link) && rb_verbs_has_entries(link, most) &&
		    (best == NULL || link->bytes_out < best->bytes_out))
			best = link;
	}
	return best;
}

/* `slot`: of a copy, else registered memory. */
static inline void write_post(struct rb_verbs *vb, struct rb_verbs_link *link,
			      struct rb_verbs_flight *flight, const struct rb_verbs_entry *entry,
			      bool tells)
{
	const uint8_t *from = flight->request->buffer;
	struct rb_verbs_entry *to;
	struct rb_verbs_post *post = rb_verbs_chain_add(vb, link, tells, &to);

	flight->rails |= (uint8_t)(1u << link->index);
	link->bytes_out += entry->bytes;
	*to = *entry;
	post->request.opcode = IBV_WR_RDMA_WRITE;
	post->request.wr.rdma.remote_addr = flight->address + entry->offset;
	post->request.wr.rdma.rkey = flight->keys[link->index];
	if (entry->slot != NULL)
		rb_verbs_slot_set(vb, link, post, to, entry->slot, entry->bytes,
				  post->request.send_flags);
	else
		rb_verbs_part_set(post, from + entry->offset, entry->bytes,
				  flight->local_keys[link->index]);
}

/* Of a write; 0: pieces are not to be spread. */
static size_t spread_bytes(const struct rb_verbs_peer *peer, size_t size_bytes)
{
	size_t share;

	if (peer->live < 2 || size_bytes < RB_VERBS_SPREAD_MIN)
		return 0;
	share = (size_bytes / peer->live + 4095) & ~(size_t)4095;
	share = share < RB_VERBS_PIECE_LEAST ? RB_VERBS_PIECE_LEAST : share;
	return share < RB_VERBS_PIECE_BYTES ? share : RB_VERBS_PIECE_BYTES;
}

/* From registered memory. */
static inline void registered_write(struct rb_verbs *vb, struct rb_verbs_link *link,
				    struct rb_verbs_flight *flight, uint64_t id, uint32_t bytes,
				    bool tells)
{
	const uint8_t *from = flight->request->buffer;
	uint64_t offset = flight->moved;
	struct rb_verbs_entry *entry;
	struct rb_verbs_post *post = rb_verbs_chain_add(vb, link, tells, &entry);

	entry->slot = NULL;
	entry->flight = id;
	entry->offset = offset;
	entry->bytes = bytes;
	entry->message = entry->tries = 0;
	entry->writes = 0;
	flight->rails |= (uint8_t)(1u << link->index);
	link->bytes_out += bytes;
	post->request.opcode = IBV_WR_RDMA_WRITE;
	post->request.wr.rdma.remote_addr = flight->address + offset;
	post->request.wr.rdma.rkey = flight->keys[link->index];
	rb_verbs_part_set(post, from + offset, bytes, flight->local_keys[link->index]);
}

/* From a copy in a slot. False: there is no memory for one now. */
static bool copied_write(struct rb_verbs *vb, struct rb_verbs_link *link,
			 struct rb_verbs_flight *flight, uint64_t id, uint32_t bytes, bool tells)
{
	struct rb_verbs_entry entry = { .flight = id, .offset = flight->moved, .bytes = bytes };

	RB_ASSERT(bytes <= RB_VERBS_SLOT_BYTES);
	entry.slot = rb_verbs_slot_take(vb);
	if (entry.slot == NULL)
		return false;
	memcpy(entry.slot->head, rb_verbs_source(flight) + entry.offset, bytes);
	write_post(vb, link, flight, &entry, tells);
	return true;
}

bool rb_verbs_write_pieces(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_request *request = flight->request;
	struct rb_verbs_peer *peer = &vb->peers[request->peer];
	uint64_t id = rb_verbs_flight_id(flight);
	bool registered = flight->local_keys[0] != 0;
	size_t spread = registered ? spread_bytes(peer, request->size_bytes) : 0;
	size_t piece_max = spread != 0  ? spread
			   : registered ? RB_VERBS_PIECE_BYTES
					: RB_VERBS_SLOT_BYTES;
	uint32_t out_max =
		!registered ? COPIES_OUT : RB_VERBS_PIECES_OUT * (spread != 0 ? peer->live : 1u);

	while (flight->moved < request->size_bytes) {
		struct rb_verbs_link *link = spread != 0 ? least_busy(peer) : rb_verbs_main(peer);
		size_t left = request->size_bytes - flight->moved;
		size_t piece = left < piece_max ? left : piece_max;
		/* A piece waits for its end; that of the last ones is told by what follows. */
		bool tells = registered && left > out_max * piece_max;

		if (flight->out >= out_max)
			return false;
		if (link == NULL || !rb_verbs_is_live(link) ||
		    !rb_verbs_has_entries(link, vb->queue_writes))
			return rb_verbs_spare_write(vb, flight);
		if (registered)
			registered_write(vb, link, flight, id, (uint32_t)piece, tells);
		else if (!copied_write(vb, link, flight, id, (uint32_t)piece, tells))
			return rb_verbs_spare_write(vb, flight);
		if (peer->lost)
			return false; /* And the flight has ended. */
		vb->base.bytes_sent += piece;
		flight->moved += piece;
		flight->out++;
	}
	return true;
}

/* False: no room now. */
static bool redo_one(struct rb_verbs *vb, struct rb_verbs_link *link,
		     const struct rb_verbs_entry *entry)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, entry->flight);

	if (entry->message != 0) {
		if (!rb_verbs_has_room(link))
			return false;
		rb_verbs_slot_post(vb, link, entry->slot, entry->message, entry->slot->head->bytes,
				   entry->tries);
	} else if (!rb_verbs_is_awaited(flight)) {
		rb_verbs_slot_give(vb, entry->slot);
		if (flight != NULL)
			rb_verbs_written(vb, flight);
	} else {
		if (!rb_verbs_has_entries(link, vb->queue_writes))
			return false;
		write_post(vb, link, flight, entry, true);
	}
	vb->counts.again++;
	return true;
}

/* False: the rest waits. */
static bool redo_first(struct rb_verbs *vb, struct rb_verbs_peer *peer, struct rb_verbs_redo **list)
{
	struct rb_verbs_link *main = rb_verbs_main(peer);
	struct rb_verbs_redo *redo = *list;

	*list = redo->next; /* What fails on the way takes all that is there. */
	if (peer->by_tcp ? !rb_verbs_spare_redo(vb, peer, &redo->entry)
			 : !rb_verbs_is_live(main) || !redo_one(vb, main, &redo->entry)) {
		redo->next = *list;
		*list = redo;
		return false;
	}
	free(redo);
	return true;
}

void rb_verbs_redo(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	while (peer->words != NULL && !peer->lost)
		if (!redo_first(vb, peer, &peer->words))
			return;
	while (peer->redo != NULL && peer->held_by == 0 && !peer->lost)
		if (!redo_first(vb, peer, &peer->redo))
			return;
}

void rb_verbs_probe(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_entry *entry;
	struct rb_verbs_post *post;

	if (!rb_verbs_has_entries(link, vb->queue))
		return;
	post = rb_verbs_chain_add(vb, link, true, &entry);
	*entry = (struct rb_verbs_entry) { 0 };
	post->request.opcode = IBV_WR_RDMA_WRITE;
	post->request.num_sge = 0;
}

/* It bears the last entry's number: where it is the first that fails, all before it went well. */
void rb_verbs_drain_mark(struct rb_verbs_link *link)
{
	uint32_t end = link->posted - link->unposted;
	struct ibv_send_wr mark = { .wr_id = link->word | (end - 1),
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	if (end != link->retired && rb_verbs_has_entries(link, link->peer->vb->queue))
		(void)ibv_post_send(link->qp, &mark, &bad); /* Else the clock ends the drain. */
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

/* By a key that its owner may have taken back meanwhile: a cancelled receive's. */
static bool is_refused(struct rb_verbs *vb, const struct rb_verbs_entry *entry,
		       enum ibv_wc_status status)
{
	const struct rb_verbs_flight *flight = NULL;

	if (entry->message == 0 && status == IBV_WC_REM_ACCESS_ERR)
		flight = rb_verbs_flight_find(vb, entry->flight);
	return flight != NULL && flight->invite != 0;
}

/* An entry has failed, or was flushed behind one that has: it stays, for what may have to be done
 * again. */
static void entry_failed(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number,
			 const struct ibv_wc *wc)
{
	struct rb_verbs_entry *entry = rb_verbs_entry_at(vb, link, number);
	char text[80];

	link->ended = number + 1;
	if (link->broken)
		return;
	link->broken = true;
	rb_verbs_retire(vb, link, number); /* It is the first. */
	entry_text(entry, link->peer->rank, text, sizeof(text));
	link->refused = is_refused(vb, entry, wc->status) ? entry->bytes : 0;
	if (wc->status != IBV_WC_WR_FLUSH_ERR && link->refused == 0)
		entry->tries++;
	if (entry->tries > TRIES_MAX) {
		char reason[RB_VERBS_REASON_BYTES];

		(void)snprintf(reason, sizeof(reason), "verbs: %s failed %u times: %s (%d)", text,
			       entry->tries, vb->api.ibv_wc_status_str(wc->status),
			       (int)wc->status);
		rb_verbs_lose(vb, link->peer->rank, reason);
		return;
	}
	rb_verbs_link_fail_by(vb, link, text, wc);
}

void rb_verbs_ended(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t number,
		    const struct ibv_wc *wc)
{
	if (link->posted - number - 1 >= vb->queue || (int32_t)(number - link->retired) < 0)
		return; /* Of nothing that is in the queue: told twice. */
	rb_verbs_unfold(vb, link);
	if (wc->status != IBV_WC_SUCCESS && !link->peer->lost) {
		entry_failed(vb, link, number, wc);
		if (!link->peer->lost)
			return;
	}
	rb_verbs_retire(vb, link, number + 1);
	link->probing = false;
}

/* ---- Receives ---- */

void rb_verbs_repost_failed(struct rb_verbs *vb, struct rb_verbs_link *link, int error)
{
	char reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(reason, sizeof(reason),
		       "verbs: %s port %u: posting a receive from rank %u: %s",
		       link->rail->port.device, link->rail->port.number, link->peer->rank,
		       strerror(error));
	rb_verbs_link_fail(vb, link, reason);
}

void rb_verbs_repost(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t slot)
{
	int error = rb_verbs_receive_post(link->rail, link, RB_VERBS_RECEIVED | link->word | slot,
					  slot);

	if (error == 0)
		link->receives++;
	else
		rb_verbs_repost_failed(vb, link, error);
}
