/*
 * ucx_slot.c -- slots, which hold what leaves until UCX is through with it, and when all has left.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/ucx/ucx.h"

/* ---- Slots ---- */

struct rb_ucx_slot *rb_ucx_slot_take(struct rb_ucx *ux, enum rb_ucx_slot_class slot_class)
{
	static const size_t payload_bytes[RB_UCX_SLOT_CLASSES] = { RB_UCX_SMALL_MAX,
								   RB_UCX_MIDDLE_MAX,
								   RB_UCX_PIECE_BYTES };
	struct rb_ucx_slot *slot = ux->slots[slot_class];

	if (slot != NULL) {
		ux->slots[slot_class] = slot->next;
		return slot;
	}
	slot = malloc(sizeof(*slot) + payload_bytes[slot_class]);
	if (slot == NULL)
		return NULL;
	slot->ux = ux;
	slot->room = NULL;
	slot->slot_class = slot_class;
	slot->next_made = ux->slots_made;
	ux->slots_made = slot;
	return slot;
}

void rb_ucx_slot_give(struct rb_ucx_slot *slot)
{
	if (slot->room != NULL)
		rb_ucx_room_give(slot->ux, slot->room);
	slot->room = NULL;
	slot->next = slot->ux->slots[slot->slot_class];
	slot->ux->slots[slot->slot_class] = slot;
}

void rb_ucx_slots_free(struct rb_ucx *ux)
{
	while (ux->slots_made != NULL) {
		struct rb_ucx_slot *slot = ux->slots_made;

		ux->slots_made = slot->next_made;
		free(slot);
	}
}

static void slot_sent(void *ucp_request, ucs_status_t status, void *arg)
{
	struct rb_ucx_slot *slot = arg;
	struct rb_ucx *ux = slot->ux;
	struct rb_ucx_peer *peer = &ux->peers[slot->peer];
	struct rb_request *request = NULL;
	uint32_t peer_rank = slot->peer;
	uint64_t flight = slot->flight;

	ux->api.ucp_request_free(ucp_request);
	peer->out--;
	ux->base.leaving -= !peer->lost;
	rb_ucx_slot_give(slot);
	if (status != UCS_OK && !peer->lost)
		rb_ucx_lose_by_status(ux, peer_rank, status);
	if (flight == 0)
		return;
	request = rb_ucx_flight_find(ux, flight, peer_rank, RB_UCX_STAGE_SENDING);
	if (request == NULL)
		request = rb_ucx_flight_find(ux, flight, peer_rank, RB_UCX_STAGE_PUTTING);
	if (request == NULL)
		return;
	request->backend[RB_UCX_OUT]--;
	rb_ucx_push(ux, request);
}

enum rb_ucx_sent rb_ucx_slot_send(struct rb_ucx_slot *slot, size_t payload_bytes)
{
	struct rb_ucx *ux = slot->ux;
	struct rb_ucx_peer *peer = &ux->peers[slot->peer];
	uint32_t credit = peer->owed > UINT16_MAX ? UINT16_MAX : peer->owed;
	size_t head_bytes =
		slot->head.message == RB_UCX_EAGER ? RB_UCX_HEAD_SHORT : sizeof(slot->head);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = slot_sent,
		.user_data = slot,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	const void *bytes = slot->payload;
	ucs_status_ptr_t sent;

	if (slot->room != NULL) { /* The receiver says where on its side they go. */
		bytes = slot->room->memory;
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
		param.flags = UCP_AM_SEND_FLAG_RNDV;
		param.memory_type = UCS_MEMORY_TYPE_CUDA;
		param.memh = slot->room->registered;
	}
	slot->head.job = ux->job;
	slot->head.sender = ux->base.rank;
	slot->head.version = RB_UCX_VERSION;
	slot->head.credit = (uint16_t)credit;
	peer->owed -= credit;
	ux->handed++;
	ux->base.leaving += !ux->unflushed;
	ux->unflushed = true;
	if (slot->room != NULL)
		rb_ucx_enter(ux);
	sent = ux->api.ucp_am_send_nbx(peer->ucp, RB_UCX_AM_ID, &slot->head, head_bytes, bytes,
				       payload_bytes, &param);
	if (slot->room != NULL)
		rb_ucx_leave(ux);
	if (sent == NULL) {
		rb_ucx_slot_give(slot);
		return RB_UCX_SENT;
	}
	if (UCS_PTR_IS_ERR(sent)) {
		uint32_t lost = slot->peer;

		rb_ucx_slot_give(slot);
		rb_ucx_lose_by_status(ux, lost, UCS_PTR_STATUS(sent));
		return RB_UCX_LOST;
	}
	peer->out++;
	ux->base.leaving++;
	return RB_UCX_HELD;
}

/* ---- Leaving ---- */

static void flush_over(struct rb_ucx *ux)
{
	ux->unflushed = false;
	ux->base.leaving--;
}

/* UCX's: inside progress. */
static void flushed(void *ucp_request, ucs_status_t status, void *arg)
{
	struct rb_ucx *ux = arg;

	(void)status; /* Failures are told by endpoints. */
	ux->api.ucp_request_free(ucp_request);
	ux->flushing = false;
	if (ux->unflushed && ux->handed == ux->flushed)
		flush_over(ux);
}

/*
 * UCX gives a slot back when it has the bytes, which a socket may not have taken yet: a flush of
 * the worker tells. Bytes of a connection that has ended are never flushed, so it is not asked any
 * more then: the communicator has ended, or its survivors are driven by what they agree upon.
 *
 * A flush under way holds the worker's first endpoint, and one that never ends must not hold one
 * that was closed: UCX would end the process with its worker. So the first one is to ourselves.
 */
bool rb_ucx_left(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = flushed,
		.user_data = ux,
	};
	ucs_status_ptr_t flush = NULL;

	if (ep->leaving != ux->unflushed)
		return false;
	if (ux->unflushed && !ux->deserted && !ux->flushing && ux->anchor != NULL) {
		ux->flushed = ux->handed;
		flush = ux->api.ucp_worker_flush_nbx(ux->worker, &param);
		ux->flushing = UCS_PTR_IS_PTR(flush);
	}
	if (ux->unflushed && (ux->deserted || !ux->flushing))
		flush_over(ux);
	return !ux->unflushed;
}

static void tell_all(struct rb_ucx *ux, uint32_t peer, const struct rb_ucx_head *head,
		     const void *payload, size_t payload_bytes)
{
	struct rb_ucx_slot *slot;

	if (ux->peers[peer].lost || ux->peers[peer].ucp == NULL)
		return;
	slot = rb_ucx_slot_take(ux, RB_UCX_SLOT_SMALL);
	if (slot == NULL) {
		rb_ucx_lack(ux, peer, "no memory for a message to it");
		return;
	}
	slot->peer = peer;
	slot->flight = 0;
	slot->head = *head;
	rb_ucx_copy(slot->payload, payload, payload_bytes);
	(void)rb_ucx_slot_send(slot, payload_bytes);
}

void rb_ucx_tell_head(struct rb_ucx *ux, uint32_t peer, const struct rb_ucx_head *head)
{
	tell_all(ux, peer, head, NULL, 0);
}

void rb_ucx_tell(struct rb_ucx *ux, uint32_t peer, enum rb_ucx_message message, struct rb_tag tag,
		 uint64_t id, uint64_t offset)
{
	struct rb_ucx_head head = {
		.message = (uint8_t)message, .tag = tag, .id = id, .offset = offset
	};

	rb_ucx_tell_head(ux, peer, &head);
}

void rb_ucx_tell_abort(struct rb_ucx *ux, uint32_t peer)
{
	struct rb_ucx_head head = { .message = RB_UCX_ABORT,
				    .tag = RB_UCX_NO_TAG,
				    .id = ux->base.blames };

	tell_all(ux, peer, &head, ux->base.last_words,
		 ux->base.last_words != NULL ? RB_LAST_WORDS_BYTES : 0);
}
