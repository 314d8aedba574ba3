/*
 * ucx_device.c -- a device's memory, where UCX handles CUDA's and RUBATO_UCX_DEVICE asks for it.
 *
 * Pieces of it leave from rooms on the device, of ours, and land in rooms there; the device copies
 * between them and callers' buffers. So what the top of ucx.h says holds for it, too, and UCX
 * registers rooms alone, which stay, whatever becomes of callers' memory.
 *
 * UCX asks the receiver where a piece goes before it moves it (a rendezvous), and moves it from
 * memory to memory by what it has: a network that reads it, CUDA IPC, or copies by way of the
 * host's. Which, it does not say. A landing is such a piece, from when it is announced until it is
 * here; then it is a message like any other. Its sender's request is done when UCX holds none of
 * its pieces, so that BYE comes behind them; the receiver does not look at BYE before they are
 * here. Short messages are copied, and go as the host's do.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/ucx/ucx.h"

/* Guesses: pieces take microseconds; what the device was given may have to await others' work. */
#define PIECES_NS 50000000u
#define COPIES_NS 2000000000u

struct rb_ucx_landing {
	struct rb_ucx_landing *next, *previous;
	struct rb_ucx *ux;
	struct rb_ucx_head head;
	struct rb_ucx_room *room; /* NULL: `bytes`. */
	size_t size_bytes;
	uint8_t bytes[];
};

/* ---- What there is ---- */

void rb_ucx_device_ask(struct rb_ucx *ux)
{
	ucp_context_attr_t attr = { .field_mask = UCP_ATTR_FIELD_MEMORY_TYPES };

	ux->cuda = ux->api.ucp_context_query(ux->context, &attr) == UCS_OK &&
		   (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

/* ---- Rooms ---- */

static ucs_status_t room_make(struct rb_ucx *ux, struct rb_ucx_room *room)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.length = RB_UCX_ROOM_BYTES,
		.flags = UCP_MEM_MAP_ALLOCATE,
		.memory_type = UCS_MEMORY_TYPE_CUDA,
	};
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	ucs_status_t status;

	rb_ucx_enter(ux);
	status = ux->api.ucp_mem_map(ux->context, &params, &room->registered);
	if (status == UCS_OK)
		status = ux->api.ucp_mem_query(room->registered, &attr);
	rb_ucx_leave(ux);
	room->memory = attr.address;
	return status;
}

rubato_status rb_ucx_room_take(struct rb_ucx *ux, struct rb_ucx_room **out)
{
	struct rb_ucx_room *room = ux->rooms;
	ucs_status_t status;

	if (room != NULL) {
		ux->rooms = room->next;
		*out = room;
		return RUBATO_OK;
	}
	room = calloc(1, sizeof(*room));
	if (room == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a room on the device");
	status = room_make(ux, room);
	if (status != UCS_OK) {
		free(room);
		return rb_ucx_failed(ux, status, "memory on the device");
	}
	room->next_made = ux->rooms_made;
	ux->rooms_made = room;
	*out = room;
	return RUBATO_OK;
}

void rb_ucx_room_give(struct rb_ucx *ux, struct rb_ucx_room *room)
{
	room->next = ux->rooms;
	ux->rooms = room;
}

/* ---- Devices ---- */

void rb_ucx_devices_changed(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	const char *why = NULL;

	if (ux->device.ways == NULL || (ux->device.ways(ux->device.arg, &why) == 0 && why == NULL))
		return; /* There is none. */
	ux->device_lacking = !ux->cuda            ? "this UCX does not handle CUDA's memory here"
			     : !ux->device_wanted ? "UCX could take it: RUBATO_UCX_DEVICE is not 1"
						  : NULL;
	if (ux->device_lacking == NULL) {
		ep->takes = 1u << RB_MEMORY_DEVICE; /* From now on UCX has a context. */
		if (ux->spare == NULL && rb_ucx_room_take(ux, &ux->spare) != RUBATO_OK) {
			ep->takes = 0;
			ux->device_lacking = "UCX has no memory on the device";
		}
	}
	ep->makes_streams = ep->takes != 0;
	RB_LOG(RB_LOG_INFO, "ucx: device memory goes %s%s",
	       ep->takes != 0 ? "to UCX as it is" : "through the host's: ",
	       ep->takes != 0 ? "" : ux->device_lacking);
}

size_t rb_ucx_device_path(const struct rb_ucx *ux, char *text, size_t text_bytes)
{
	text[0] = '\0';
	if (ux->base.takes != 0)
		return (size_t)snprintf(text, text_bytes, "device memory by UCX; ");
	return ux->device_lacking == NULL
		       ? 0
		       : (size_t)snprintf(text, text_bytes,
					  "device memory through the host's (%s); ",
					  ux->device_lacking);
}

/* ---- Landings ---- */

static void landing_free(struct rb_ucx_landing *landing)
{
	struct rb_ucx *ux = landing->ux;

	RB_LIST_REMOVE(ux->landings, landing);
	if (landing->room != NULL)
		rb_ucx_room_give(ux, landing->room);
	free(landing);
}

static void landing_over(struct rb_ucx_landing *landing, ucs_status_t status)
{
	struct rb_ucx *ux = landing->ux;
	struct rb_ucx_head head = landing->head;
	struct rb_ucx_peer *peer = &ux->peers[head.sender];

	peer->landings--;
	if (!peer->lost && status != UCS_OK) {
		rb_ucx_lose_by_status(ux, head.sender, status);
	} else if (!peer->lost) {
		if (landing->room != NULL && ux->device.flush(ux->device.arg) != RUBATO_OK)
			rb_ucx_lack(ux, head.sender, rubato_error_text());
		else
			rb_ucx_heard(ux, &head,
				     landing->room != NULL ? landing->room->memory : landing->bytes,
				     landing->size_bytes);
	}
	landing_free(landing);
	if (peer->bye_waits && !peer->lost) {
		head.message = RB_UCX_BYE;
		rb_ucx_heard(ux, &head, NULL, 0);
	}
}

/* UCX's: inside progress. */
static void landed(void *ucp_request, ucs_status_t status, size_t size_bytes, void *arg)
{
	struct rb_ucx_landing *landing = arg;

	landing->ux->api.ucp_request_free(ucp_request);
	landing_over(landing, status == UCS_OK && size_bytes != landing->size_bytes
				      ? UCS_ERR_MESSAGE_TRUNCATED
				      : status);
}

/* Whether its bytes are wanted, and a device's are; false where they go to nowhere. *wrong: the
 * peer broke the protocol. */
static bool is_wanted(struct rb_ucx *ux, const struct rb_ucx_head *head, bool *device,
		      const char **wrong)
{
	const struct rb_ucx_arrival *message;
	const struct rb_ucx_region *region;

	*device = false;
	if (head->message == RB_UCX_PUT || head->message == RB_UCX_PUT_DATA) {
		region = rb_ucx_region_find(ux, head->message == RB_UCX_PUT ? head->id
									    : head->tag.call);
		*device = region != NULL && region->base.kind == RB_MEMORY_DEVICE;
		return true;
	}
	if (head->message != RB_UCX_DATA) {
		*wrong = "a message is to be fetched that is short";
		return false;
	}
	message = rb_ucx_message_find(ux, head->sender, head->id);
	if (message == NULL || message->dead)
		return false;
	if (message->receive == NULL) {
		*wrong = "a piece that nobody asked for";
		return false;
	}
	*device = rb_ucx_is_device(message->receive);
	return true;
}

static rubato_status landing_make(struct rb_ucx *ux, const struct rb_ucx_head *head,
				  size_t size_bytes, bool device, struct rb_ucx_landing **out)
{
	struct rb_ucx_landing *landing = calloc(1, sizeof(*landing) + (device ? 0 : size_bytes));
	rubato_status status = RUBATO_OK;

	if (landing == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for a message from it");
	landing->ux = ux;
	landing->head = *head;
	landing->size_bytes = size_bytes;
	if (device)
		status = rb_ucx_room_take(ux, &landing->room);
	if (status != RUBATO_OK) {
		free(landing);
		return status;
	}
	RB_LIST_PUSH(ux->landings, landing);
	ux->peers[head->sender].landings++;
	*out = landing;
	return RUBATO_OK;
}

static void landing_fetch(struct rb_ucx_landing *landing, void *data)
{
	struct rb_ucx *ux = landing->ux;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE |
				(landing->room != NULL ? UCP_OP_ATTR_FIELD_MEMH : 0),
		.cb.recv_am = landed,
		.user_data = landing,
		.memory_type = landing->room != NULL ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST,
		.memh = landing->room != NULL ? landing->room->registered : NULL,
	};
	ucs_status_ptr_t fetch = ux->api.ucp_am_recv_data_nbx(
		ux->worker, data, landing->room != NULL ? landing->room->memory : landing->bytes,
		landing->size_bytes, &param);

	if (!UCS_PTR_IS_PTR(fetch))
		landing_over(landing, UCS_PTR_STATUS(fetch));
}

ucs_status_t rb_ucx_landing_begin(struct rb_ucx *ux, const struct rb_ucx_head *head, void *data,
				  size_t data_bytes)
{
	struct rb_ucx_peer *peer = &ux->peers[head->sender];
	struct rb_ucx_landing *landing;
	const char *wrong = NULL;
	bool device;

	if (data_bytes > RB_UCX_ROOM_BYTES || peer->landings >= RB_UCX_LANDINGS_MAX)
		wrong = "it sends too much at a time";
	else if (!is_wanted(ux, head, &device, &wrong) && wrong == NULL)
		rb_ucx_heard(ux, head, NULL, data_bytes); /* Counted, not looked at. */
	else if (wrong == NULL && landing_make(ux, head, data_bytes, device, &landing) != RUBATO_OK)
		rb_ucx_lack(ux, head->sender, rubato_error_text());
	else if (wrong == NULL) {
		landing_fetch(landing, data);
		return UCS_INPROGRESS;
	}
	if (wrong != NULL)
		rb_ucx_wrong(ux, head->sender, wrong);
	return UCS_OK; /* UCX forgets it, and its sender has it back. */
}

static void room_unmap(struct rb_ucx *ux, struct rb_ucx_room *room)
{
	rb_ucx_enter(ux);
	(void)ux->api.ucp_mem_unmap(ux->context, room->registered);
	rb_ucx_leave(ux);
	room->registered = NULL;
}

static bool has_pieces(const struct rb_ucx *ux)
{
	bool has = ux->landings != NULL;

	for (uint32_t r = 0; r < ux->base.rank_count; r++)
		has = has || ux->peers[r].out != 0;
	return has;
}

/* The device is through with what it was given when some of its memory has been freed. */
static bool device_sync(struct rb_ucx *ux)
{
	struct rb_ucx_room *room;

	if (rb_ucx_room_take(ux, &room) != RUBATO_OK)
		return false;
	room_unmap(ux, room);
	return true;
}

/*
 * What is not fetched goes with the worker, and with it UCX's own memory, which the device may
 * still copy to, and events of copies that UCX has not looked at: 1.22.0 then reads what it has
 * freed. So nothing is under way when it goes: all copies are done, and UCX, asked after that, has
 * nothing to go on with, which could have begun another one.
 */
bool rb_ucx_device_settle(struct rb_ucx *ux)
{
	uint64_t until_ns = rb_clock_ns() + PIECES_NS;

	if (ux->spare == NULL)
		return true;
	while (has_pieces(ux) && rb_clock_ns() < until_ns)
		(void)rb_ucx_progress(ux);
	rb_ucx_room_give(ux, ux->spare);
	ux->spare = NULL;
	until_ns = rb_clock_ns() + COPIES_NS;
	do {
		while (rb_ucx_progress(ux) != 0 && rb_clock_ns() < until_ns)
			;
		if (!device_sync(ux))
			return false;
		if (rb_ucx_progress(ux) == 0)
			return true;
	} while (rb_clock_ns() < until_ns);
	return false;
}

void rb_ucx_device_close(struct rb_ucx *ux)
{
	while (ux->landings != NULL)
		landing_free(ux->landings);
	while (ux->rooms_made != NULL) {
		struct rb_ucx_room *room = ux->rooms_made;

		ux->rooms_made = room->next_made;
		if (room->registered != NULL)
			room_unmap(ux, room);
		free(room);
	}
}
