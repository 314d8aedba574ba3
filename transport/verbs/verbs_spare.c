/*
 * verbs_spare.c -- the stream and the writes to a peer to which no rail is left, over TCP.
 *
 * TCP loses nothing and keeps order, and a connection that fails is a peer that is lost: so nothing
 * is numbered, acknowledged or done again here, and there are no slots to count. What is handed to
 * the kernel is done with. Writes go in the same order as the stream; who takes one looks up the
 * memory that it gave out, by the invitation or the region's key.
 *
 *   to TCP    the last rail has failed, and is compared as any: RESUME, and all that it did not
 *             bring, go here.
 *   from TCP  a link that is made anew (RISE goes here) and greeted does not live before the other
 *             end has taken all that went here: LEAVE says that this was it, and LEFT answers. Till
 *             then the stream waits. Each end does so by itself, when it likes; if the link fails
 *             meanwhile, the stream goes on here.
 *
 * Frames are gathered, and handed over when a post or a poll is through with the peer.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_posts.h"
#include "transport/verbs/verbs_spare.h"

#define WRITE_BYTES 16384u /* Of a frame. */
#define READS_MAX 4u       /* At a time. */
#define FAREWELLS_MAX 256u /* At a time: each takes a descriptor. */
#define FAREWELL_LOOK_MS 1 /* What the kernel still owes rings no bell. */

enum kind { MESSAGE = 1, WRITE, LEAVE, LEFT };

struct frame {
	uint32_t kind;
	uint32_t bytes;  /* That follow. */
	uint64_t flight; /* WRITE: the receiver's, that invited it; 0: into a region. */
	uint64_t address;
	uint32_t key;
	uint32_t number; /* LEAVE, LEFT. */
};
_Static_assert(sizeof(struct frame) == 32, "travels as it is");
_Static_assert(sizeof(struct frame) + WRITE_BYTES <= RB_VERBS_TCP_BYTES, "a frame fits");

/* ---- Beginning and end ---- */

struct rb_verbs_spare *rb_verbs_spare_of(struct rb_verbs_peer *peer)
{
	struct rb_verbs_spare *spare = peer->spare;

	if (spare != NULL)
		return spare;
	spare = peer->spare = calloc(1, sizeof(*spare));
	if (spare == NULL)
		return NULL;
	spare->peer = peer;
	spare->out_fd = spare->in_fd = -1;
	return spare;
}

bool rb_verbs_spare_can(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	/* While connecting: of a peer that was met, by a rail or by what it says over TCP. */
	bool met = !vb->connecting || peer->live > 0 || peer->spare != NULL;

	return rb_verbs_ways_to(vb, peer->rank)->count > 0 && met && !vb->base.on_trial;
}

bool rb_verbs_spare_begin(struct rb_verbs *vb, struct rb_verbs_peer *peer, const char *why)
{
	struct rb_verbs_spare *spare = rb_verbs_spare_of(peer);

	if (spare == NULL)
		return false;
	peer->by_tcp = true;
	vb->by_tcp++;
	(void)snprintf(spare->why, sizeof(spare->why), "%s", why);
	rb_verbs_stir(vb, peer);
	return true;
}

void rb_verbs_spare_end(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	vb->by_tcp -= peer->by_tcp;
	peer->by_tcp = false;
}

void rb_verbs_spare_shut(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_spare *spare = peer->spare;

	rb_verbs_spare_end(vb, peer);
	if (spare == NULL)
		return;
	rb_verbs_fd_close(&spare->out_fd);
	rb_verbs_fd_close(&spare->in_fd);
	spare->call = RB_VERBS_CALL_NONE;
	spare->filled = spare->sent = 0;
}

void rb_verbs_spare_free(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	rb_verbs_spare_shut(vb, peer);
	free(peer->spare);
	peer->spare = NULL;
}

static void farewell_end(struct rb_verbs_spare *spare)
{
	rb_verbs_fd_close(&spare->out_fd);
	spare->call = RB_VERBS_CALL_NONE;
	spare->farewell = RB_VERBS_FAREWELL_NONE;
}

void rb_verbs_spare_failed(struct rb_verbs *vb, struct rb_verbs_spare *spare, const char *what)
{
	struct rb_verbs_peer *peer = spare->peer;
	char reason[RB_VERBS_REASON_BYTES];

	if (spare->farewell != RB_VERBS_FAREWELL_NONE) { /* It has heard, or does not want to. */
		farewell_end(spare);
		return;
	}
	if (spare->failed)
		return; /* From within the following. */
	spare->failed = true;
	rb_verbs_hear_out(vb, peer);
	if (peer->lost || rb_verbs_lose_ended(vb, peer->rank))
		return;
	(void)snprintf(reason, sizeof(reason), "rank %u: TCP: %.40s%s%.120s", peer->rank, what,
		       spare->why[0] != '\0' ? "; " : "", spare->why);
	rb_verbs_lose(vb, peer->rank, reason);
}

void rb_verbs_spare_opened(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	enum rb_log_level level = RB_LOG_INFO;

	if (peer->spare->farewell != RB_VERBS_FAREWELL_NONE)
		return;
	if (vb->counts.spares++ == 0)
		level = RB_LOG_WARN;
	RB_LOG(level, "verbs: degraded: TCP to rank %u, until a rail is back", peer->rank);
	rb_verbs_stir(vb, peer);
}

bool rb_verbs_spare_owes(const struct rb_verbs_peer *peer)
{
	const struct rb_verbs_spare *spare = peer->spare;
	int bytes = 0;

	if (spare == NULL || !rb_verbs_is_open(spare))
		return false;
	return spare->sent != spare->filled ||
	       (ioctl(spare->out_fd, SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

bool rb_verbs_spare_mends(const struct rb_verbs_peer *peer)
{
	const struct rb_verbs_spare *spare = peer->spare;

	return spare != NULL &&
	       (spare->filled > spare->sent || spare->leaving || spare->left_owed ||
		(peer->by_tcp && (!rb_verbs_is_open(spare) || spare->in_fd < 0)));
}

/* ---- What leaves ---- */

/* As much as the kernel takes. What fails is said later: here somebody may be in the midst. */
static void flush(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	bool full;

	while (spare->error == 0 && spare->sent < spare->filled) {
		ssize_t put = send(spare->out_fd, spare->out + spare->sent,
				   spare->filled - spare->sent, MSG_NOSIGNAL);

		if (put > 0)
			spare->sent += (size_t)put;
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			break;
		else if (errno != EINTR)
			spare->error = errno;
	}
	memmove(spare->out, spare->out + spare->sent, spare->filled - spare->sent);
	spare->filled -= spare->sent;
	spare->sent = 0;
	full = spare->filled > 0;
	if (full != spare->full && spare->error == 0 &&
	    !rb_verbs_fd_watch(vb, EPOLL_CTL_MOD, spare->out_fd,
			       full ? EPOLLIN | EPOLLOUT : EPOLLIN,
			       RB_VERBS_WATCH_OUT | spare->peer->rank))
		spare->error = errno;
	spare->full = full;
}

/* Where the bytes of a frame go, which is on its way with that. NULL: no room now. */
static uint8_t *frame_add(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  const struct frame *frame)
{
	struct rb_verbs_spare *spare = peer->spare;
	size_t bytes = sizeof(*frame) + frame->bytes;
	uint8_t *at;

	if (!rb_verbs_is_open(spare) || spare->error != 0)
		return NULL;
	if (sizeof(spare->out) - spare->filled < bytes)
		flush(vb, spare);
	if (sizeof(spare->out) - spare->filled < bytes)
		return NULL; /* It is watched for room. */
	at = spare->out + spare->filled;
	memcpy(at, frame, sizeof(*frame));
	spare->filled += bytes;
	rb_verbs_stir(vb, peer);
	return at + sizeof(*frame);
}

static bool message_add(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			const struct rb_verbs_head *head, const void *payload, size_t bytes)
{
	const struct frame frame = { .kind = MESSAGE, .bytes = (uint32_t)(sizeof(*head) + bytes) };
	struct rb_verbs_head said = *head;
	uint8_t *at = frame_add(vb, peer, &frame);

	if (at == NULL)
		return false;
	said.bytes = (uint16_t)bytes;
	said.consumed = 0;
	said.freed = peer->freed_said = peer->freed;
	memcpy(at, &said, sizeof(said));
	if (bytes > 0)
		memcpy(at + sizeof(said), payload, bytes);
	return true;
}

bool rb_verbs_spare_say(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			const struct rb_verbs_head *head, const void *payload, size_t bytes)
{
	return message_add(vb, peer, head, payload, bytes);
}

bool rb_verbs_spare_flows(const struct rb_verbs_peer *peer)
{
	return peer->by_tcp && peer->held_by == 0 && !peer->spare->leaving && !peer->lost;
}

bool rb_verbs_spare_stream(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			   const struct rb_verbs_head *head, uint8_t message, const void *payload,
			   size_t bytes)
{
	struct rb_verbs_head numbered = *head;

	if (!rb_verbs_spare_flows(peer) || peer->redo != NULL)
		return false;
	numbered.message = message;
	numbered.number = peer->number;
	if (!message_add(vb, peer, &numbered, payload, bytes))
		return false;
	peer->number++;
	return true;
}

/* Bytes of a flight's, from `from`, to where its `offset` is. */
static bool write_add(struct rb_verbs *vb, const struct rb_verbs_flight *flight, uint64_t offset,
		      const void *from, uint32_t bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[flight->request->peer];
	bool device = from == (const uint8_t *)flight->request->buffer + offset &&
		      rb_verbs_is_device(flight->request);
	const struct frame frame = { .kind = WRITE,
				     .bytes = bytes,
				     .flight = flight->invite,
				     .address = flight->address + offset,
				     .key = flight->keys[0] };
	uint8_t *at = frame_add(vb, peer, &frame);

	if (at == NULL)
		return false;
	if (rb_verbs_copy(vb, device, at, from, bytes) == RUBATO_OK)
		return true;
	rb_verbs_lose(vb, peer->rank, rubato_error_text());
	return false;
}

static uint32_t piece_of(size_t bytes)
{
	return bytes < WRITE_BYTES ? (uint32_t)bytes : WRITE_BYTES;
}

bool rb_verbs_spare_write(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	const struct rb_request *request = flight->request;
	const struct rb_verbs_peer *peer = &vb->peers[request->peer];
	const uint8_t *from = rb_verbs_source(flight);

	if (!rb_verbs_spare_flows(peer) || peer->redo != NULL)
		return false;
	while (flight->moved < request->size_bytes) {
		uint32_t bytes = piece_of(request->size_bytes - flight->moved);

		if (!write_add(vb, flight, flight->moved, from + flight->moved, bytes))
			return false;
		flight->moved += bytes;
		vb->base.bytes_sent += bytes;
	}
	return true;
}

static bool write_again(struct rb_verbs *vb, struct rb_verbs_entry *entry)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, entry->flight);

	while (rb_verbs_is_awaited(flight) && entry->bytes > 0) {
		const uint8_t *from = entry->slot != NULL ? (const uint8_t *)entry->slot->head
							  : rb_verbs_source(flight) + entry->offset;
		uint32_t bytes = piece_of(entry->bytes);

		RB_ASSERT(entry->slot == NULL || bytes == entry->bytes);
		if (!write_add(vb, flight, entry->offset, from, bytes))
			return false;
		entry->offset += bytes;
		entry->bytes -= bytes;
	}
	rb_verbs_slot_give(vb, entry->slot);
	if (flight != NULL)
		rb_verbs_written(vb, flight);
	return true;
}

bool rb_verbs_spare_redo(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			 struct rb_verbs_entry *entry)
{
	const struct rb_verbs_head *head;

	if (entry->message != RB_VERBS_RESUME && entry->message != RB_VERBS_RISE &&
	    !rb_verbs_spare_flows(peer))
		return false;
	if (entry->message == 0) {
		if (!write_again(vb, entry))
			return false;
	} else {
		head = entry->slot->head;
		if (!message_add(vb, peer, head, head + 1, head->bytes))
			return false;
		rb_verbs_slot_give(vb, entry->slot);
	}
	vb->counts.again++;
	return true;
}

/* ---- Farewells ---- */

void rb_verbs_farewell_owe(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_spare *spare;

	if (peer->spare != NULL || peer->number != RB_VERBS_COUNTS_FROM ||
	    rb_verbs_ways_to(vb, peer->rank)->count == 0)
		return;
	spare = rb_verbs_spare_of(peer);
	if (spare != NULL)
		spare->farewell = RB_VERBS_FAREWELL_OWED;
}

/* It is open: ABORT, as the first of the stream. */
static void farewell_say(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	const struct rb_verbs_head head = { .message = RB_VERBS_ABORT,
					    .number = RB_VERBS_COUNTS_FROM,
					    .id = vb->base.blames };
	size_t words_bytes = vb->base.last_words != NULL ? RB_LAST_WORDS_BYTES : 0;

	if (spare->farewell == RB_VERBS_FAREWELL_OWED &&
	    message_add(vb, spare->peer, &head, vb->base.last_words, words_bytes))
		spare->farewell = RB_VERBS_FAREWELL_SAID;
	flush(vb, spare);
	if (spare->error != 0 || !rb_verbs_spare_owes(spare->peer))
		farewell_end(spare);
}

/* *calls are under way. Whether the peer may hear of it yet. */
static bool farewell_step(struct rb_verbs *vb, struct rb_verbs_spare *spare, uint32_t *calls)
{
	const struct rb_verbs_ways *ways = rb_verbs_ways_to(vb, spare->peer->rank);

	if (spare->call == RB_VERBS_CALL_NONE &&
	    (spare->farewell == RB_VERBS_FAREWELL_SAID || spare->way == ways->count))
		farewell_end(spare);
	else if (spare->call == RB_VERBS_CALL_NONE && *calls < FAREWELLS_MAX) {
		rb_verbs_call(vb, spare);
		*calls += spare->call != RB_VERBS_CALL_NONE;
	}
	if (rb_verbs_is_open(spare))
		farewell_say(vb, spare);
	return spare->farewell != RB_VERBS_FAREWELL_NONE;
}

/* Whether any peer may hear of it yet. */
static bool farewells_step(struct rb_verbs *vb)
{
	uint32_t calls = 0;
	bool waits = false;

	for (int turn = 0; turn < 2; turn++)
		for (uint32_t r = 0; r < vb->base.rank_count; r++) {
			struct rb_verbs_spare *spare = vb->peers[r].spare;

			if (spare == NULL || spare->farewell == RB_VERBS_FAREWELL_NONE)
				continue;
			if (turn == 0 && spare->call != RB_VERBS_CALL_NONE)
				calls++;
			else if (turn == 1)
				waits |= farewell_step(vb, spare, &calls);
		}
	return waits;
}

/* Whether or not a peer is lost here: whom this rank cannot tell anything it has lost. */
void rb_verbs_farewells(struct rb_verbs *vb, uint64_t until_ns)
{
	struct pollfd fd = { .fd = vb->watch_fd, .events = POLLIN };

	while (farewells_step(vb) && rb_clock_ns() < until_ns)
		if (poll(&fd, 1, FAREWELL_LOOK_MS) > 0)
			rb_verbs_check_peers(vb);
}

/* ---- To a rail ---- */

void rb_verbs_spare_leave(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_spare *spare = peer->spare;

	if (!spare->leaving)
		spare->leave++;
	spare->leave_owed |= !spare->leaving;
	spare->leaving = true;
	rb_verbs_stir(vb, peer);
}

void rb_verbs_spare_stay(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (!peer->by_tcp)
		return;
	for (uint32_t i = 0; i < peer->link_count; i++)
		if (peer->links[i].state == RB_VERBS_LINK_MAKING && peer->links[i].greeted)
			return;
	peer->spare->leaving = peer->spare->leave_owed = false;
	rb_verbs_stir(vb, peer);
}

/* All has been taken: the links that wait for this live. */
static void leave(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	peer->spare->leaving = false;
	for (uint32_t i = 0; i < peer->link_count && !peer->lost; i++)
		if (peer->links[i].state == RB_VERBS_LINK_MAKING && peer->links[i].greeted)
			rb_verbs_link_lives(vb, &peer->links[i]);
}

void rb_verbs_spare_step(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct rb_verbs_spare *spare = peer->spare;
	struct frame frame = { .kind = LEAVE, .number = spare->leave };

	if (peer->by_tcp)
		rb_verbs_call(vb, spare);
	if (peer->lost || !rb_verbs_is_open(spare))
		return;
	if (spare->leave_owed && frame_add(vb, peer, &frame) != NULL)
		spare->leave_owed = false;
	frame.kind = LEFT;
	frame.number = spare->left;
	if (spare->left_owed && frame_add(vb, peer, &frame) != NULL)
		spare->left_owed = false;
	flush(vb, spare);
	if (spare->error != 0)
		rb_verbs_spare_failed(vb, spare, strerror(spare->error));
}

/* ---- What comes ---- */

/* Where a write goes. NULL: nobody waits for it any more, or the peer is lost. */
static uint8_t *target_of(struct rb_verbs *vb, uint32_t rank, const struct frame *frame,
			  bool *device)
{
	const struct rb_verbs_region *region = vb->regions;
	const struct rb_verbs_flight *flight;
	uint64_t base = 0, size_bytes = 0;

	if (frame->flight != 0) {
		flight = rb_verbs_flight_find(vb, frame->flight);
		if (flight == NULL || flight->halt == RB_VERBS_LEFT)
			return NULL;
		if (flight->request->peer == rank && flight->request->kind == RB_REQUEST_RECV &&
		    flight->keys[0] != 0 && flight->keys[0] == frame->key) {
			*device = rb_verbs_is_device(flight->request);
			base = (uintptr_t)flight->request->buffer;
			size_bytes = flight->request->size_bytes;
		}
	} else {
		while (region != NULL &&
		       (region->mrs[0] == NULL || region->mrs[0]->rkey != frame->key))
			region = region->next;
		*device = region != NULL && region->device;
		base = region != NULL ? (uintptr_t)region->base.base : 0;
		size_bytes = region != NULL ? region->base.size_bytes : 0;
	}
	/* Below `base` the difference is beyond every memory's size. */
	if (frame->bytes > size_bytes || frame->address - base > size_bytes - frame->bytes) {
		rb_verbs_wrong(vb, rank, "it writes outside the memory that it was given");
		return NULL;
	}
	return (uint8_t *)(uintptr_t)frame->address;
}

static bool is_well_formed(const struct frame *frame)
{
	switch ((enum kind)frame->kind) {
	case MESSAGE:
		return frame->bytes >= sizeof(struct rb_verbs_head) &&
		       frame->bytes <= RB_VERBS_SLOT_BYTES;
	case WRITE:
		return frame->bytes > 0 && frame->bytes <= WRITE_BYTES;
	case LEAVE:
	case LEFT:
		return frame->bytes == 0;
	}
	return false;
}

static void frame_take(struct rb_verbs *vb, struct rb_verbs_spare *spare, const struct frame *frame,
		       const uint8_t *bytes)
{
	struct rb_verbs_peer *peer = spare->peer;
	uint64_t slot[RB_VERBS_SLOT_BYTES / sizeof(uint64_t)];
	bool device = false;
	uint8_t *to;

	switch ((enum kind)frame->kind) {
	case MESSAGE:
		memcpy(slot, bytes, frame->bytes);
		rb_verbs_arrived(vb, peer, NULL, slot, frame->bytes);
		return;
	case WRITE:
		to = target_of(vb, peer->rank, frame, &device);
		if (to != NULL && rb_verbs_copy(vb, device, to, bytes, frame->bytes) != RUBATO_OK)
			rb_verbs_lose(vb, peer->rank, rubato_error_text());
		return;
	case LEAVE:
		spare->left = frame->number;
		spare->left_owed = true;
		return;
	case LEFT: /* Else the link that it was about has failed meanwhile. */
		if (spare->leaving && frame->number == spare->leave)
			leave(vb, peer);
	}
}

/* What is there in whole frames. */
static void frames_take(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	struct rb_verbs_peer *peer = spare->peer;
	struct frame frame;
	size_t at = 0;

	while (!peer->lost && spare->have - at >= sizeof(frame)) {
		memcpy(&frame, spare->in + at, sizeof(frame));
		if (!is_well_formed(&frame)) {
			rb_verbs_wrong(vb, peer->rank, "a malformed frame");
			return;
		}
		if (spare->have - at < sizeof(frame) + frame.bytes)
			break;
		spare->heard = true;
		frame_take(vb, spare, &frame, spare->in + at + sizeof(frame));
		at += sizeof(frame) + frame.bytes;
	}
	memmove(spare->in, spare->in + at, spare->have - at);
	spare->have -= at;
}

/* Also of a peer by whose rails all is well. */
static void step_soon(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	rb_verbs_trouble(peer);
	rb_verbs_stir(vb, peer);
}

/* What the kernel has. 0: nothing now, or the peer is lost; 1: there was something; else the
 * connection has ended. */
static int take(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	ssize_t got;

	if (spare->in_fd < 0 || spare->peer->lost)
		return 0;
	got = recv(spare->in_fd, spare->in + spare->have, sizeof(spare->in) - spare->have, 0);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (got <= 0)
		return got == 0 ? -1 : -errno;
	spare->have += (size_t)got;
	spare->peer->quiet = false;
	frames_take(vb, spare);
	step_soon(vb, spare->peer);
	return 1;
}

bool rb_verbs_spare_look(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	return peer->spare != NULL && take(vb, peer->spare) == 1;
}

static void in_event(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	int taken = 1;

	for (uint32_t i = 0; i < READS_MAX && taken == 1; i++)
		taken = take(vb, spare);
	if (taken >= 0 || spare->peer->lost)
		return;
	rb_verbs_fd_close(&spare->in_fd);
	/* Before anything came, its end may have given up this way for another one. */
	if (spare->heard)
		rb_verbs_spare_failed(vb, spare,
				      taken == -1 ? "its end is closed" : strerror(-taken));
}

/* Nothing comes by it but its end. */
static void out_event(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	uint8_t byte;
	ssize_t got;

	if (!rb_verbs_is_open(spare)) {
		rb_verbs_call_event(vb, spare);
		return;
	}
	got = recv(spare->out_fd, &byte, 1, 0);
	if (got > 0)
		rb_verbs_wrong(vb, spare->peer->rank, "it answers where nothing is asked");
	else if (got == 0)
		rb_verbs_spare_failed(vb, spare, "its end is closed");
	else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		rb_verbs_spare_failed(vb, spare, strerror(errno));
	if (rb_verbs_is_open(spare))
		flush(vb, spare);
	step_soon(vb, spare->peer);
}

void rb_verbs_spare_event(struct rb_verbs *vb, uint32_t what)
{
	struct rb_verbs_spare *spare;

	if ((what & (RB_VERBS_WATCH_LISTENER | RB_VERBS_WATCH_STRANGER)) != 0) {
		rb_verbs_listener_event(vb, what);
		return;
	}
	spare = vb->peers[what & ((1u << RB_VERBS_RANK_BITS) - 1)].spare;
	if (spare != NULL && (what & RB_VERBS_WATCH_OUT) != 0 && spare->out_fd >= 0)
		out_event(vb, spare);
	else if (spare != NULL && (what & RB_VERBS_WATCH_IN) != 0 && spare->in_fd >= 0)
		in_event(vb, spare);
	rb_verbs_ring(vb);
}

void rb_verbs_spare_tick(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->spare == NULL || peer->lost)
		return;
	rb_verbs_call_tick(vb, peer->spare);
	rb_verbs_stir(vb, peer);
}
