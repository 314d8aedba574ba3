/*
 * verbs.c -- the verbs backend: its table, posts and cancel, flights, sleeping. The idea is in
 * verbs.h.
 *
 * One context, protection domain and completion queue a rail; whoever holds the engine's lock
 * drives them. wake() touches only an event descriptor of our own.
 */
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/sync.h"

#define LOOK_NS 200000000u /* Guess: of what a failed rail has kept from its peer. */
#define MOVE_MS_MAX 10
#define RESEND_NS 67000000u
#define CQ_EVENTS_MAX 1000 /* Before they are acknowledged, which takes a lock. */

static void unlist(struct rb_verbs *vb, struct rb_request *request)
{
	struct rb_request **at = &vb->done;

	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
	if (*at == NULL)
		vb->done_end = at;
	request->next = NULL;
	request->backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_NONE;
}

/* ---- Flights ---- */

rubato_status rb_verbs_flights_grow(struct rb_verbs *vb)
{
	uint32_t chunks = vb->flight_count / RB_VERBS_FLIGHTS_EACH;
	struct rb_verbs_flight **table =
		realloc(vb->flights, (chunks + 1) * sizeof(struct rb_verbs_flight *));
	struct rb_verbs_flight *chunk = calloc(RB_VERBS_FLIGHTS_EACH, sizeof(*chunk));

	if (table != NULL)
		vb->flights = table;
	if (table == NULL || chunk == NULL) {
		free(chunk);
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for %u requests under way",
			       vb->flight_count + RB_VERBS_FLIGHTS_EACH);
	}
	table[chunks] = chunk;
	for (uint32_t i = RB_VERBS_FLIGHTS_EACH; i-- > 0;) {
		chunk[i].index = vb->flight_count + i;
		chunk[i].next = vb->flight_free;
		vb->flight_free = &chunk[i];
	}
	vb->flight_count += RB_VERBS_FLIGHTS_EACH;
	return RUBATO_OK;
}

struct rb_verbs_flight *rb_verbs_flight_of(struct rb_verbs *vb, uint64_t id, uint32_t peer,
					   enum rb_verbs_stage stage)
{
	struct rb_verbs_flight *flight = rb_verbs_flight_find(vb, id);

	return flight != NULL && flight->request->peer == peer &&
			       flight->request->backend[RB_VERBS_STAGE] == stage
		       ? flight
		       : NULL;
}

/* ---- Posts ---- */

void rb_verbs_post(struct rb_endpoint *ep, struct rb_request *request, enum rb_request_kind kind,
		   void (*carry_out)(struct rb_verbs *vb, struct rb_request *request))
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer;

	request->kind = kind;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	request->next = request->previous = NULL;
	memset(request->backend, 0, RB_VERBS_WORDS * sizeof(request->backend[0]));
	if (request->peer >= ep->rank_count || !vb->peers[request->peer].used) {
		request->status = RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u is not connected here",
					  request->peer);
		request->state = RB_REQUEST_DONE;
		return;
	}
	peer = &vb->peers[request->peer];
	/* Who only posts learns of room, too, and which invitations are there. */
	if (rb_verbs_is_full(peer) ||
	    (kind == RB_REQUEST_SEND &&
	     (peer->outgoing.arrival_count > 0 || request->size_bytes > RB_VERBS_EAGER_MAX)))
		(void)rb_verbs_progress(vb);
	vb->posting = request;
	carry_out(vb, request);
	rb_verbs_ring(vb);
	vb->posting = NULL;
	rb_verbs_settle(peer);
}

static bool verbs_recall(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	if (request->state != RB_REQUEST_PENDING ||
	    request->backend[RB_VERBS_STAGE] != RB_VERBS_STAGE_MATCHING)
		return false;
	if (request->backend[RB_VERBS_FLIGHT] != 0 && !rb_verbs_recall_invited(vb, request))
		return false;
	if (!rb_match_remove_receive(&vb->peers[request->peer].match, request))
		return false;
	request->state = RB_REQUEST_IDLE;
	return true;
}

static bool verbs_unmatched(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	for (uint32_t r = 0; r < ep->rank_count; r++)
		if (rb_match_visit(&vb->peers[r].match, r, visit, arg))
			return true;
	return false;
}

static void verbs_cancel(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	if (request->state != RB_REQUEST_PENDING)
		return;
	if (request->backend[RB_VERBS_STAGE] != RB_VERBS_STAGE_LISTED)
		rb_verbs_withdraw(vb, request);
	rb_verbs_ring(vb);
	/* It has ended, perhaps meanwhile. */
	if (request->backend[RB_VERBS_STAGE] == RB_VERBS_STAGE_LISTED) {
		unlist(vb, request);
		request->state = RB_REQUEST_DONE;
		return;
	}
	vb->posting = request; /* Not to be listed. */
	rb_verbs_complete(vb, request, RUBATO_ERR_CANCELLED);
	vb->posting = NULL;
}

static bool verbs_leave(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	if (request->state == RB_REQUEST_PENDING && rb_verbs_leave_recv(vb, request)) {
		rb_verbs_ring(vb);
		return true;
	}
	verbs_cancel(ep, request);
	return false;
}

/* ---- Sleeping ---- */

static int verbs_descriptor(struct rb_endpoint *ep)
{
	return ((struct rb_verbs *)ep)->epoll_fd;
}

static bool notify(struct rb_verbs *vb)
{
	bool good = true;

	for (uint32_t i = 0; i < vb->rail_count; i++)
		good &= vb->rails[i].dead || ibv_req_notify_cq(vb->rails[i].cq, 0) == 0;
	return good;
}

static bool verbs_arm(struct rb_endpoint *ep)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	if (vb->done != NULL || vb->to_tell != 0)
		return false;
	if (!notify(vb))
		return false;
	/* What came before the request rings no bell. */
	return rb_verbs_progress(vb) == 0 && vb->done == NULL && vb->to_tell == 0 &&
	       vb->stirred == NULL;
}

static void bell_read(struct rb_verbs *vb)
{
	struct ibv_cq *cq;
	uint64_t count;
	void *context;

	for (uint32_t i = 0; i < vb->rail_count; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];

		while (vb->api.ibv_get_cq_event(rail->channel, &cq, &context) == 0)
			rail->cq_events++;
		if (rail->cq_events >= CQ_EVENTS_MAX) {
			vb->api.ibv_ack_cq_events(rail->cq, rail->cq_events);
			rail->cq_events = 0;
		}
	}
	(void)!read(vb->wake_fd, &count, sizeof(count));
}

static void verbs_disarm(struct rb_endpoint *ep)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	bell_read(vb);
	vb->rounds = 1; /* The next poll looks at what is watched. */
	ep->sleeps++;
}

static void verbs_wake(struct rb_endpoint *ep)
{
	uint64_t one = 1;

	(void)!write(((struct rb_verbs *)ep)->wake_fd, &one, sizeof(one));
}

void rb_verbs_move(struct rb_verbs *vb, uint64_t until_ns)
{
	struct pollfd fd = { .fd = vb->epoll_fd, .events = POLLIN };
	uint64_t now_ns, left_ms;

	rb_verbs_ring(vb);
	if (rb_verbs_progress(vb) != 0)
		return;
	now_ns = rb_clock_ns();
	left_ms = now_ns < until_ns ? (until_ns - now_ns) / 1000000 + 1 : 0;
	if (notify(vb) && rb_verbs_progress(vb) == 0 && vb->stirred == NULL &&
	    poll(&fd, 1, left_ms < MOVE_MS_MAX ? (int)left_ms : MOVE_MS_MAX) > 0)
		bell_read(vb);
	rb_verbs_check_peers(vb);
}

static uint64_t verbs_now_ns(struct rb_endpoint *ep)
{
	(void)ep;
	return rb_clock_ns();
}

static uint64_t verbs_random(struct rb_endpoint *ep)
{
	struct rb_rng rng = { ((struct rb_verbs *)ep)->random };
	uint64_t value = rb_rng_next(&rng);

	((struct rb_verbs *)ep)->random = rng.state;
	return value;
}

static void verbs_sleep(struct rb_endpoint *ep, uint64_t until_ns)
{
	(void)ep;
	rb_clock_sleep_until(until_ns);
}

/* ---- Dump ---- */

struct lines {
	void (*line)(void *arg, const char *text);
	void *arg;
};

static void dump_request(struct rb_verbs *vb, const struct lines *to, const struct rb_request *q)
{
	static const char *const kinds[] = { "send", "recv", "put" };
	static const char *const stages[] = { "done",    "matching",  "self",  "waiting",
					      "sending", "receiving", "listed" };
	const struct rb_verbs_flight *flight =
		rb_verbs_flight_find(vb, q->backend[RB_VERBS_FLIGHT]);
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "verbs %s peer %u tag %llx:%llx bytes %zu %s, %llu moved, %u out%s",
		       kinds[q->kind], q->peer, (unsigned long long)q->tag.call,
		       (unsigned long long)q->tag.step, q->size_bytes,
		       stages[q->backend[RB_VERBS_STAGE]],
		       (unsigned long long)(flight != NULL ? flight->moved : 0),
		       flight != NULL ? flight->out : 0,
		       flight != NULL && q->kind == RB_REQUEST_RECV ? ", invited" : "");
	to->line(to->arg, text);
}

static void dump_link(const struct lines *to, const struct rb_verbs_link *link)
{
	static const char *const states[] = { "being made", "live", "draining", "being compared",
					      "down" };
	char text[160];

	(void)snprintf(text, sizeof(text), "verbs link to rank %u by %s port %u: %s, %u under way",
		       link->peer->rank, link->rail->port.device, link->rail->port.number,
		       states[link->state], link->posted - link->retired);
	to->line(to->arg, text);
}

static void verbs_dump(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct lines to = { line, arg };

	for (uint32_t r = 0; r < ep->rank_count; r++)
		for (uint32_t i = 0; i < vb->peers[r].link_count; i++)
			if (!rb_verbs_is_live(&vb->peers[r].links[i]))
				dump_link(&to, &vb->peers[r].links[i]);
	for (uint32_t r = 0; r < ep->rank_count; r++)
		for (size_t b = 0; b < RB_MATCH_BUCKETS; b++)
			for (struct rb_request *q = vb->peers[r].match.receives[b]; q != NULL;
			     q = q->next)
				dump_request(vb, &to, q);
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		const struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used &&
		    flight->request->backend[RB_VERBS_STAGE] != RB_VERBS_STAGE_MATCHING)
			dump_request(vb, &to, flight->request);
	}
}

/* ---- Opening ---- */

static rubato_status watch(int epoll_fd, int fd, uint32_t what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = what };

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	return RUBATO_OK;
}

static bool unblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static rubato_status sleeping_open(struct rb_verbs *vb)
{
	vb->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	vb->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	vb->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	vb->clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (vb->epoll_fd < 0 || vb->watch_fd < 0 || vb->wake_fd < 0 || vb->clock_fd < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "no descriptors to sleep on: %s",
			       strerror(errno));
	RB_TRY(watch(vb->epoll_fd, vb->wake_fd, 0));
	RB_TRY(watch(vb->epoll_fd, vb->watch_fd, 0));
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		const struct rb_verbs_rail *rail = &vb->rails[i];

		if (!unblock(rail->channel->fd) || !unblock(rail->context->async_fd))
			return RB_FAIL(RUBATO_ERR_SYSTEM, "no descriptors to sleep on: %s",
				       strerror(errno));
		RB_TRY(watch(vb->epoll_fd, rail->channel->fd, 0));
		RB_TRY(watch(vb->watch_fd, rail->context->async_fd, RB_VERBS_WATCH_EVENTS + i));
	}
	if (vb->cm != NULL && !unblock(rb_verbs_cm_fd(vb)))
		return RB_FAIL(RUBATO_ERR_SYSTEM, "no descriptors to sleep on: %s",
			       strerror(errno));
	if (vb->cm != NULL)
		RB_TRY(watch(vb->watch_fd, rb_verbs_cm_fd(vb), RB_VERBS_WATCH_CM));
	return watch(vb->watch_fd, vb->clock_fd, RB_VERBS_WATCH_CLOCK);
}

/* Fewer than that, and it could not even start. Others of the device may have taken some: then a
 * call fails later. */
static rubato_status limits_check(const struct rb_verbs *vb, const struct rb_verbs_rail *rail,
				  const struct ibv_device_attr *attr)
{
	const struct {
		const char *what;
		uint64_t has, needs;
	} limits[] = {
		{ "completions in a queue", (uint32_t)attr->max_cqe, vb->cq_entries },
		{ "queue pairs", (uint32_t)attr->max_qp, vb->base.rank_count },
		{ "entries in a queue pair", (uint32_t)attr->max_qp_wr, vb->queue },
		{ "pieces in an entry", (uint32_t)attr->max_sge, 1 },
		{ "completion queues", (uint32_t)attr->max_cq, 1 },
		{ "memory regions", (uint32_t)attr->max_mr, RB_VERBS_REGIONS_LEAST },
		{ "bytes in a memory region", attr->max_mr_size, rb_verbs_region_least(vb) },
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].has < limits[i].needs)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "verbs: %s has at most %llu %s; %u ranks need %llu",
				       rail->port.device, (unsigned long long)limits[i].has,
				       limits[i].what, vb->base.rank_count,
				       (unsigned long long)limits[i].needs);
	return RUBATO_OK;
}

static rubato_status queues_open(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	uint32_t entries = vb->cq_entries;
	struct ibv_device_attr attr;

	if (vb->api.ibv_query_device(rail->context, &attr) != 0)
		return rb_verbs_failed(rail, EIO, "asking what the device can");
	RB_TRY(limits_check(vb, rail, &attr));
	rail->regions_max = (uint32_t)attr.max_mr;
	rail->region_bytes_max = attr.max_mr_size;
	rail->pd = vb->api.ibv_alloc_pd(rail->context);
	if (rail->pd == NULL)
		return rb_verbs_failed(rail, errno, "making a protection domain");
	rail->channel = vb->api.ibv_create_comp_channel(rail->context);
	if (rail->channel == NULL)
		return rb_verbs_failed(rail, errno, "making a completion channel");
	rail->cq = vb->api.ibv_create_cq(rail->context, (int)entries, NULL, rail->channel, 0);
	if (rail->cq == NULL)
		return rb_verbs_failed(rail, errno, "making a completion queue");
	return RUBATO_OK;
}

static rubato_status connections_open(struct rb_verbs *vb, enum rb_connect connect)
{
	const struct rb_verbs_port *port = &vb->rails[0].port;

	if (connect == RB_CONNECT_EXCHANGE && port->iwarp)
		return RB_FAIL(
			RUBATO_ERR_UNSUPPORTED,
			"verbs: %s is iWARP, which only RUBATO_VERBS_CONNECT=rdmacm connects",
			port->device);
	if (connect != RB_CONNECT_RDMACM && !port->iwarp)
		return RUBATO_OK;
	return rb_verbs_cm_open(vb);
}

/* As an exponent: of 4.096 us, at least so long. */
static uint8_t resend_of(uint64_t ns)
{
	uint8_t exponent = 1;

	while (exponent < 31 && UINT64_C(4096) << exponent < ns)
		exponent++;
	return exponent;
}

/* So that a peer takes no more than 64 KiB in jobs of 1,000 ranks, over four rails, too. */
static void queues_size(struct rb_verbs *vb)
{
	uint32_t ranks = vb->base.rank_count;

	vb->queue = RB_VERBS_QUEUE_MAX;
	if (ranks > 256)
		vb->queue /= vb->rail_count > 2 || ranks > 1024 ? 4 : 2;
	vb->queue_mask = vb->queue - 1;
	vb->queue_messages = vb->queue - vb->queue / 16;
	vb->queue_writes = vb->queue - vb->queue / 16 * 6;
	vb->queue_burst = vb->rails[0].port.iwarp ? 0 : vb->queue_writes - RB_VERBS_PIECES_OUT;
	vb->cq_entries =
		(ranks - 1) * (rb_verbs_slots_all(ranks) + vb->queue) + 2 * RB_VERBS_DATAGRAMS;
}

static rubato_status begin(struct rb_verbs *vb, const struct rb_transport_options *options)
{
	vb->cache_bytes = options->cache_bytes;
	vb->resend = resend_of(options->resend_ns != 0 ? options->resend_ns : RESEND_NS);
	RB_TRY(rb_verbs_load(&vb->api));
	rb_verbs_devices_changed(&vb->base);
	RB_TRY(rb_verbs_devices_open(vb, options->interface));
	queues_size(vb);
	RB_TRY(connections_open(vb, options->connect));
	for (uint32_t i = 0; i < vb->rail_count; i++)
		RB_TRY(queues_open(vb, &vb->rails[i]));
	RB_TRY(sleeping_open(vb));
	RB_TRY(rb_verbs_listener_open(vb, options));
	return rb_verbs_slots_make(vb);
}

static rubato_status verbs_open(const struct rb_transport_options *options,
				struct rb_endpoint **out)
{
	struct rb_verbs *vb = calloc(1, sizeof(*vb) + options->rank_count * sizeof(vb->peers[0]));
	rubato_status status;

	if (vb == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for %u peers", options->rank_count);
	vb->base.ops = &rb_transport_verbs;
	vb->base.rank = options->rank;
	vb->base.rank_count = options->rank_count;
	vb->base.look_ns = LOOK_NS;
	vb->rounds = RB_VERBS_ROUNDS_PER_CHECK;
	vb->chain.end = vb->chain.posts;
	vb->done_end = &vb->done;
	vb->due = true;
	for (uint32_t i = 0; i < RB_VERBS_CHAIN; i++) {
		struct rb_verbs_post *post = &vb->chain.posts[i];

		post->request.sg_list = &post->part;
		post->request.next = i + 1 < RB_VERBS_CHAIN ? &post[1].request : NULL;
	}
	for (uint32_t i = 0; i <= RB_VERBS_PIECES_OUT; i++) {
		struct rb_verbs_post *post = &vb->burst[i];
		bool last = i == RB_VERBS_PIECES_OUT;

		post->request =
			(struct ibv_send_wr) { .sg_list = &post->part,
					       .num_sge = 1,
					       .next = last ? NULL : &post[1].request,
					       .opcode = last ? IBV_WR_SEND : IBV_WR_RDMA_WRITE };
		post->part.length = RB_VERBS_PIECE_BYTES;
	}
	vb->alone.request = (struct ibv_send_wr) { .sg_list = &vb->alone.part,
						   .num_sge = 1,
						   .opcode = IBV_WR_SEND };
	vb->inline_max = RB_VERBS_SLOT_BYTES;
	vb->device = options->device;
	memcpy(vb->job, options->job, sizeof(vb->job));
	vb->random = rb_clock_ns() ^ rb_mix(options->rank);
	vb->epoll_fd = vb->watch_fd = vb->wake_fd = vb->clock_fd = -1;
	for (uint32_t r = 0; r < options->rank_count; r++) {
		vb->peers[r].vb = vb;
		vb->peers[r].rank = r;
		vb->peers[r].pid_fd = -1;
		vb->peers[r].amiss = true;
		vb->peers[r].number = vb->peers[r].their_number = RB_VERBS_COUNTS_FROM;
		vb->peers[r].spent = vb->peers[r].spent_known = RB_VERBS_COUNTS_FROM;
		vb->peers[r].freed = vb->peers[r].freed_said = RB_VERBS_COUNTS_FROM;
	}
	vb->host = rb_process_host();
	status = begin(vb, options);
	if (status != RUBATO_OK) {
		rb_verbs_close(&vb->base, true, 0);
		return status;
	}
	*out = &vb->base;
	return RUBATO_OK;
}

static uint64_t verbs_card(struct rb_endpoint *ep)
{
	const struct rb_verbs *vb = (const struct rb_verbs *)ep;
	const struct rb_verbs_port *port = &vb->rails[0].port;
	uint64_t halves[2], hash = port->lid;

	memcpy(halves, port->gid.raw, sizeof(halves));
	hash = rb_mix(hash ^ halves[0]);
	return rb_mix(hash ^ halves[1]);
}

static bool verbs_puts_well(struct rb_endpoint *ep, uint32_t peer)
{
	(void)ep, (void)peer;
	return true;
}

/* Of all rails that work: "mlx5_0 port 1, RoCE v2, GID 3 ..., MTU 4096, to ...; and ...". */
static void verbs_path(struct rb_endpoint *ep, uint32_t rank, char *text, size_t text_bytes)
{
	const struct rb_verbs_peer *peer = &((struct rb_verbs *)ep)->peers[rank];
	char own[160], gid[RB_VERBS_GID_BYTES];
	size_t begin = rb_verbs_device_path(peer->vb, text, text_bytes), at = begin;

	for (uint32_t i = 0; i < peer->link_count && at < text_bytes && !peer->by_tcp; i++)
		if (peer->links[i].state == RB_VERBS_LINK_LIVE)
			at += (size_t)snprintf(
				text + at, text_bytes - at, "%s%s, to %s, by %s",
				at > begin ? "; " : "",
				rb_verbs_port_text(&peer->links[i].rail->port, own, sizeof(own)),
				rb_verbs_gid_text(&peer->links[i].gid, gid),
				peer->vb->cm != NULL ? "rdmacm" : "exchange");
	if (peer->by_tcp)
		at += (size_t)snprintf(text + at, text_bytes - at,
				       "TCP (degraded: no rail is left)");
	if (at == begin) /* To oneself. */
		text[0] = '\0';
}

const struct rb_transport_ops rb_transport_verbs = {
	.name = "verbs",
	.caps = RB_CAP_PUT | RB_CAP_REGIONS,
	.copied_bytes = RB_VERBS_EAGER_MAX,
	.key_bytes = RB_VERBS_KEY_BYTES,
	.open = verbs_open,
	.address = rb_verbs_address,
	.reachable = rb_verbs_reachable,
	.apart = rb_verbs_apart,
	.connect = rb_verbs_connect,
	.connect_some = rb_verbs_connect_some,
	.call_off = rb_verbs_call_off,
	.close = rb_verbs_close,
	.region_alloc = rb_verbs_region_alloc,
	.region_add = rb_verbs_region_add,
	.region_drop = rb_verbs_region_drop,
	.region_key = rb_verbs_region_key,
	.remote_open = rb_verbs_remote_open,
	.remote_close = rb_verbs_remote_close,
	.devices_changed = rb_verbs_devices_changed,
	.send = rb_verbs_send,
	.recv = rb_verbs_recv,
	.put = rb_verbs_put,
	.cancel = verbs_cancel,
	.leave = verbs_leave,
	.recall = verbs_recall,
	.unmatched = verbs_unmatched,
	.poll = rb_verbs_poll,
	.failure = rb_verbs_failure,
	.look = rb_verbs_look,
	.descriptor = verbs_descriptor,
	.arm = verbs_arm,
	.disarm = verbs_disarm,
	.wake = verbs_wake,
	.puts_well = verbs_puts_well,
	.card = verbs_card,
	.path = verbs_path,
	.now_ns = verbs_now_ns,
	.random = verbs_random,
	.sleep = verbs_sleep,
	.dump = verbs_dump,
};
