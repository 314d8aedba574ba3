/*
 * verbs_peer.c -- lost peers: who notices, and what ends with them.
 *
 * Three ways tell of a loss. A send or write that is not acknowledged fails by itself, which is the
 * end of its link; the end of its last link is that of a peer. A process of this host is watched by
 * its descriptor, which is quicker and says more. And who only waits hears nothing: so a peer that
 * something is waited for from, and that has been silent from one tick of a clock to the next, is
 * asked by a write of no bytes on each link, which its device answers without it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "transport/verbs/verbs_cache.h"
#include "transport/verbs/verbs_large.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_spare.h"

#define EVENTS_MAX 64u
#define DRAIN_ROUNDS_MAX 100000

/* ---- Losing ---- */

static void requests_end(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct rb_request *request;

	while ((request = rb_match_any_receive(&peer->match)) != NULL)
		rb_verbs_complete(vb, request, RUBATO_ERR_PEER);
	while ((request = rb_match_any_receive(&peer->outgoing)) != NULL)
		rb_verbs_complete(vb, request, RUBATO_ERR_PEER);
	if (peer->coming.receive != NULL)
		rb_verbs_complete(vb, peer->coming.receive, RUBATO_ERR_PEER);
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used && flight->request->peer == rank)
			rb_verbs_complete(vb, flight->request, RUBATO_ERR_PEER);
	}
}

void rb_verbs_lose(struct rb_verbs *vb, uint32_t rank, const char *reason)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	if (peer->lost)
		return;
	peer->lost = true;
	rb_verbs_amiss(peer);
	(void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	if (!peer->left) {
		vb->to_tell++;
		RB_LOG(RB_LOG_INFO, "lost a peer: %s", reason);
	}
	/* First of all: from here on nobody reads or writes what the requests named. */
	rb_verbs_links_end(vb, peer);
	rb_verbs_outs_drop(vb, peer);
	rb_verbs_shared_drop(peer);
	requests_end(vb, rank);
	rb_verbs_invites_drop(vb, rank);
	rb_verbs_arrivals_drop(vb, rank, false);
}

void rb_verbs_wrong(struct rb_verbs *vb, uint32_t rank, const char *what)
{
	char reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(reason, sizeof(reason), "rank %u broke the protocol: %s", rank, what);
	rb_verbs_lose(vb, rank, reason);
}

void rb_verbs_hear_out(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	int quiet = 0;

	for (int i = 0; i < DRAIN_ROUNDS_MAX && quiet < 10 && !peer->lost; i++)
		quiet = rb_verbs_spare_look(vb, peer) || rb_verbs_progress(vb) != 0 ? 0 : quiet + 1;
}

static void process_ended(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	char reason[RB_VERBS_REASON_BYTES];

	rb_verbs_unwatch(vb, peer);
	/* Whatever it still said is here already, its BYE perhaps. */
	rb_verbs_hear_out(vb, peer);
	(void)snprintf(reason, sizeof(reason), "rank %u: process %u ended", rank, peer->pid);
	rb_verbs_lose(vb, rank, reason);
}

bool rb_verbs_lose_ended(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	char reason[RB_VERBS_REASON_BYTES];

	if (peer->pid_fd < 0 || !rb_process_ended(peer->pid_fd))
		return false;
	rb_verbs_unwatch(vb, peer);
	(void)snprintf(reason, sizeof(reason), "rank %u: process %u ended", rank, peer->pid);
	rb_verbs_lose(vb, rank, reason);
	return true;
}

/* ---- Watching ---- */

/* One that has ended is lost: the others are to be reached before we give up, and are told. */
rubato_status rb_verbs_watch_process(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = peer->rank };

	if (peer->pid == (uint32_t)getpid())
		return RUBATO_OK;
	peer->pid_fd = rb_process_open((int32_t)peer->pid);
	if (peer->pid_fd < 0 && errno == ESRCH) {
		char reason[RB_VERBS_REASON_BYTES];

		(void)snprintf(reason, sizeof(reason), "rank %u: process %u ended", peer->rank,
			       peer->pid);
		rb_verbs_lose(vb, peer->rank, reason);
		return RUBATO_OK;
	}
	if (peer->pid_fd < 0)
		return RUBATO_OK; /* Its device tells, later. */
	if (epoll_ctl(vb->watch_fd, EPOLL_CTL_ADD, peer->pid_fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	return RUBATO_OK;
}

void rb_verbs_unwatch(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	if (peer->pid_fd < 0)
		return;
	(void)epoll_ctl(vb->watch_fd, EPOLL_CTL_DEL, peer->pid_fd, NULL);
	(void)close(peer->pid_fd);
	peer->pid_fd = -1;
}

/* ---- Events of the device ---- */

static void queue_failed(struct rb_verbs *vb, struct rb_verbs_rail *rail, const struct ibv_qp *qp,
			 const char *what)
{
	char reason[RB_VERBS_REASON_BYTES];

	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		if (rail->index >= peer->link_count || peer->links[rail->index].qp != qp)
			continue;
		(void)snprintf(reason, sizeof(reason),
			       "verbs: %s port %u: the queue pair to rank %u: %s",
			       rail->port.device, rail->port.number, r, what);
		rb_verbs_link_fail(vb, &peer->links[rail->index], reason);
	}
}

static void event_take(struct rb_verbs *vb, struct rb_verbs_rail *rail,
		       const struct ibv_async_event *event)
{
	const char *what = vb->api.ibv_event_type_str(event->event_type);
	bool ours = event->element.port_num == rail->port.number; /* Where it is of a port. */

	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR:
		rail->dead = true;
		rb_verbs_rail_fail(vb, rail, what);
		return;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		queue_failed(vb, rail, event->element.qp, what);
		return;
	case IBV_EVENT_COMM_EST: /* Also, again and again, of a queue in error: */
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return;
	default:
		RB_LOG(RB_LOG_INFO, "verbs: %s port %u: %s", rail->port.device, rail->port.number,
		       what);
		/* Read late, it may be of a time before the links that live now. */
		if (event->event_type == IBV_EVENT_PORT_ERR && ours &&
		    !rb_verbs_is_active(vb, rail))
			rb_verbs_rail_fail(vb, rail, what);
		else if (event->event_type == IBV_EVENT_PORT_ACTIVE && ours)
			rb_verbs_rail_rise(vb, rail);
	}
}

static void events_take(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	struct ibv_async_event event;

	while (vb->api.ibv_get_async_event(rail->context, &event) == 0) {
		/* Taking may end queue pairs, which waits for what is not acknowledged. */
		vb->api.ibv_ack_async_event(&event);
		event_take(vb, rail, &event);
	}
	if (errno == EAGAIN || errno == EINTR)
		return;
	/* The descriptor stays readable: who went on looking would never be through. */
	(void)epoll_ctl(vb->watch_fd, EPOLL_CTL_DEL, rail->context->async_fd, NULL);
	rail->dead = true;
	rb_verbs_rail_fail(vb, rail, "its events cannot be read");
}

/* rdmacm's. Without them no link is made any more; those that live go on. */
static void connections_take(struct rb_verbs *vb)
{
	if (rb_verbs_cm_take(vb))
		return;
	(void)epoll_ctl(vb->watch_fd, EPOLL_CTL_DEL, rb_verbs_cm_fd(vb), NULL);
	RB_LOG(RB_LOG_WARN, "verbs: events of rdmacm cannot be read: %s", strerror(errno));
}

/* ---- Silence ---- */

static bool any_receive(const struct rb_match_peer *match)
{
	for (uint32_t b = 0; b < RB_MATCH_BUCKETS; b++)
		if (match->receives[b] != NULL)
			return true;
	return false;
}

/* Neither matched nor ended: its sender is to write, and who is silent does not. */
static bool any_coming(struct rb_verbs *vb, uint32_t rank)
{
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		const struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used && flight->request != NULL && flight->request->peer == rank &&
		    flight->request->kind == RB_REQUEST_RECV)
			return true;
	}
	return false;
}

static bool is_waited_for(struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	for (uint32_t i = 0; i < peer->link_count; i++)
		if (peer->links[i].posted != peer->links[i].retired)
			return true;
	return any_receive(&peer->match) || any_receive(&peer->outgoing) ||
	       peer->out_first != NULL || peer->active_first != NULL || peer->held_by > 0 ||
	       peer->coming.receive != NULL || any_coming(vb, peer->rank);
}

static void ticks(struct rb_verbs *vb)
{
	uint64_t count;

	(void)!read(vb->clock_fd, &count, sizeof(count));
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];
		bool ask = peer->quiet && is_waited_for(vb, peer);

		for (uint32_t i = 0; i < peer->link_count && !peer->lost; i++)
			rb_verbs_link_tick(vb, &peer->links[i], ask);
		rb_verbs_spare_tick(vb, peer);
		peer->quiet = true;
		if (peer->troubled)
			rb_verbs_stir(vb, peer);
	}
	rb_verbs_listener_tick(vb);
	rb_verbs_cache_tick(vb);
	rb_verbs_ring(vb);
}

void rb_verbs_check_peers(struct rb_verbs *vb)
{
	struct epoll_event event;

	/* No more at a time: what cannot be taken now stays there. */
	for (uint32_t i = 0; i < EVENTS_MAX && epoll_wait(vb->watch_fd, &event, 1, 0) == 1; i++) {
		if (event.data.u32 == RB_VERBS_WATCH_CLOCK)
			ticks(vb);
		else if (event.data.u32 == RB_VERBS_WATCH_CM)
			connections_take(vb);
		else if (event.data.u32 >= RB_VERBS_WATCH_EVENTS)
			events_take(vb, &vb->rails[event.data.u32 - RB_VERBS_WATCH_EVENTS]);
		else if (event.data.u32 >= RB_VERBS_WATCH_LISTENER)
			rb_verbs_spare_event(vb, event.data.u32);
		else
			process_ended(vb, event.data.u32);
	}
}

void rb_verbs_look(struct rb_endpoint *ep)
{
	rb_verbs_check_peers((struct rb_verbs *)ep);
}

/* ---- Telling ---- */

bool rb_verbs_failure(struct rb_endpoint *ep, struct rb_failure *out)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	if (vb->to_tell == 0)
		return false;
	for (uint32_t r = 0; r < ep->rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		if (!peer->lost || peer->left || peer->told)
			continue;
		peer->told = true;
		vb->to_tell--;
		out->peer = r;
		out->status = RUBATO_ERR_PEER;
		out->gave_up = peer->gave_up;
		out->blames = peer->blames;
		out->spoke = peer->spoke;
		memcpy(out->last_words, peer->last_words, sizeof(out->last_words));
		(void)snprintf(out->text, sizeof(out->text), "%s", peer->reason);
		return true;
	}
	return false;
}
