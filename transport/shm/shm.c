/*
 * shm.c -- the transport between ranks of one host: processes, or threads of one process.
 *
 * Each rank owns a memfd segment that its peers map once, when they connect (shm_segment.c,
 * shm_connect.c); shm.h draws it. From then on all is loads and stores: messages through one ring
 * for each ordered pair (shm_send.c, shm_receive.c), regions by address (shm_region.c,
 * shm_heap.c). This file has the table, progress, the end of peers, and sleep.
 *
 * The end of a peer's process is told by the kernel: by a descriptor of the process, or, where
 * there is none, by the socket over which it was met (shm_connect.c). A peer that ends without its
 * process, in good order or not, marks its header and rings. What it had published by then lies in
 * our own segment and is delivered first.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/process.h"

#define POLLS_PER_NOTICE 4096u /* Guess: the sockets cost a poller a system call per 0.2 ms. */
#define EXIT_NS 100000000u     /* Guess: from the end of a process's sockets to its own. */

/* ---- Requests ---- */

void rb_shm_queue_add(struct rb_shm_queue *queue, struct rb_request *request)
{
	RB_QUEUE_ADD(queue->first, queue->last, request);
}

void rb_shm_queue_push(struct rb_shm_queue *queue, struct rb_request *request)
{
	RB_QUEUE_PUSH(queue->first, queue->last, request);
}

void rb_shm_queue_remove(struct rb_shm_queue *queue, struct rb_request *request)
{
	RB_QUEUE_REMOVE(queue->first, queue->last, request);
	request->next = NULL;
	request->previous = NULL;
}

void rb_shm_complete(struct rb_shm_endpoint *ep, struct rb_request *request, rubato_status status)
{
	request->status = status;
	request->state = RB_REQUEST_DONE;
	if (request != ep->posting)
		rb_shm_queue_add(&ep->done, request);
}

static void shm_cancel(struct rb_endpoint *base, struct rb_request *request)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	if (request->state != RB_REQUEST_PENDING)
		return;
	request->status = RUBATO_ERR_CANCELLED;
	if (request->kind == RB_REQUEST_RECV)
		rb_shm_cancel_recv(ep, request);
	else if (!rb_shm_cancel_send(ep, request))
		request->status = RUBATO_OK;
	request->state = RB_REQUEST_DONE;
}

static bool shm_leave(struct rb_endpoint *base, struct rb_request *request)
{
	if (request->state == RB_REQUEST_PENDING &&
	    rb_shm_leave_recv((struct rb_shm_endpoint *)base, request))
		return true;
	shm_cancel(base, request);
	return false;
}

static bool shm_recall(struct rb_endpoint *base, struct rb_request *request)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	if (request->state != RB_REQUEST_PENDING ||
	    request->backend[RB_SHM_STAGE] != RB_SHM_MATCHING ||
	    !rb_match_remove_receive(&ep->peers[request->peer].match, request))
		return false;
	request->state = RB_REQUEST_IDLE;
	return true;
}

static bool shm_unmatched(struct rb_endpoint *base, rb_unmatched_visit *visit, void *arg)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	for (uint32_t i = 0; i < ep->active_count; i++)
		if (rb_match_visit(&ep->peers[ep->active[i]].match, ep->active[i], visit, arg))
			return true;
	return false;
}

/* ---- The end of a peer ---- */

static void queue_fail(struct rb_shm_endpoint *ep, struct rb_shm_queue *queue, bool ids)
{
	while (queue->first != NULL) {
		struct rb_request *request = queue->first;

		rb_shm_queue_remove(queue, request);
		if (ids && request->kind != RB_REQUEST_PUT)
			rb_shm_id_give(&ep->ids, request->backend[RB_SHM_ID]);
		rb_shm_complete(ep, request, RUBATO_ERR_PEER);
	}
}

static void announced_fail(struct rb_shm_endpoint *ep, struct rb_shm_queue *queue)
{
	for (struct rb_request *r = queue->first; r != NULL; r = r->next)
		rb_shm_id_give(&ep->ids, r->backend[RB_SHM_ID]);
	queue_fail(ep, queue, false);
}

/* What came whole stays, to be received; what was only announced is not coming. */
static void arrivals_fail(struct rb_shm_peer *peer, bool all)
{
	struct rb_arrival *arrival, *whole = NULL;

	while ((arrival = rb_match_any_arrival(&peer->match)) != NULL) {
		if (all || ((struct rb_shm_arrival *)arrival)->their_id != RB_SHM_ID_NONE) {
			free(arrival);
			continue;
		}
		arrival->next = whole;
		whole = arrival;
	}
	while (whole != NULL) {
		arrival = whole;
		whole = arrival->next;
		rb_match_add_arrival(&peer->match, arrival);
	}
}

static void control_free(struct rb_shm_peer *peer)
{
	while (peer->control_first != NULL) {
		struct rb_shm_control *next = peer->control_first->next;

		free(peer->control_first);
		peer->control_first = next;
	}
	peer->control_last = NULL;
}

void rb_shm_lose(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, const char *text)
{
	struct rb_request *request;

	peer->state = RB_SHM_GONE;
	for (uint32_t i = 0; i < ep->active_count; i++) {
		if (ep->active[i] == peer->rank)
			ep->active[i--] = ep->active[--ep->active_count];
	}
	if (text != NULL) {
		(void)snprintf(peer->text, sizeof(peer->text), "%s", text);
		peer->untold = true;
		ep->untold++;
	}
	rb_shm_part_all(ep, peer);
	ep->base.leaving -= peer->outgoing;
	peer->outgoing = 0;
	control_free(peer);
	queue_fail(ep, &peer->sends, false);
	queue_fail(ep, &peer->copies, false);
	queue_fail(ep, &peer->streams, true);
	announced_fail(ep, &peer->announced);
	queue_fail(ep, &peer->incoming, true);
	rb_shm_pieces_lose(ep, peer);
	while ((request = rb_match_any_receive(&peer->match)) != NULL)
		rb_shm_complete(ep, request, RUBATO_ERR_PEER);
	arrivals_fail(peer, false);
	rb_shm_hang_up_on(ep, peer);
}

static uint32_t life_of(const struct rb_shm_peer *peer)
{
	return atomic_load_explicit(&peer->out.header->life, memory_order_acquire);
}

static void peer_ended(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	uint32_t life = life_of(peer);
	char text[sizeof(peer->text)];

	/* All that it ever published is visible now: its end came after, through the kernel or by
	 * its mark. */
	for (uint32_t i = 0; i < 2; i++)
		rb_shm_drain(ep, peer, true);
	if (life != RB_SHM_ALIVE) {
		peer->blames =
			atomic_load_explicit(&peer->out.header->blames, memory_order_relaxed);
		peer->gave_up = true;
		peer->spoke = life == RB_SHM_ABORTED &&
			      atomic_load_explicit(&peer->out.header->spoke, memory_order_relaxed);
		if (peer->spoke)
			memcpy(peer->last_words, peer->out.header->last_words,
			       sizeof(peer->last_words));
		(void)snprintf(text, sizeof(text), "it gave up");
	} else if (peer->closed_ns > 0 && !rb_process_ended(peer->process_fd))
		(void)snprintf(text, sizeof(text), "process %d runs another program",
			       (int)peer->process);
	else
		(void)snprintf(text, sizeof(text), "process %d ended", (int)peer->process);
	rb_shm_lose(ep, peer, life == RB_SHM_LEFT ? NULL : text);
}

/* A process that ends closes its sockets first: only one that goes on has another program. */
static void socket_ended(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	rb_shm_socket_end(ep, peer);
	peer->closed_ns = rb_clock_ns();
}

static bool runs_another(const struct rb_shm_peer *peer)
{
	return peer->closed_ns > 0 && rb_clock_ns() >= rb_deadline(peer->closed_ns, EXIT_NS);
}

static void processor_say(struct rb_shm_endpoint *ep)
{
	uint32_t cpu = rb_cpu_here();

	if (cpu != RB_CPU_NONE)
		atomic_store_explicit(&rb_shm_header(ep->segment)->cpu, cpu + 1,
				      memory_order_relaxed);
}

static uint32_t shm_processor(struct rb_endpoint *base, uint32_t r)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	const struct rb_shm_peer *peer = &ep->peers[r];
	uint32_t said = 0;

	if (r == base->rank)
		processor_say(ep);
	if (peer->state == RB_SHM_CONNECTED)
		said = atomic_load_explicit(&peer->out.header->cpu, memory_order_relaxed);
	return said > 0 ? said - 1 : RB_CPU_NONE;
}

static uint32_t shm_copies(struct rb_endpoint *base, uint32_t r)
{
	return ((struct rb_shm_endpoint *)base)->peers[r].attach != RB_SHM_ATTACH_NO ? 1 : 2;
}

static bool shm_in_process(const struct rb_endpoint *base, uint32_t r)
{
	const struct rb_shm_segment *segment =
		((const struct rb_shm_endpoint *)base)->peers[r].segment;

	return r == base->rank || (segment != NULL && segment->memory >= 0);
}

/* Sockets are silent while their owner lives, and so are processes: any event is the end. */
static void notice(struct rb_shm_endpoint *ep)
{
	struct epoll_event events[16];
	int count = epoll_wait(ep->epoll, events, 16, 0);

	for (int i = 0; i < count; i++) {
		uint32_t r = events[i].data.u32;
		struct rb_shm_peer *peer = r < ep->base.rank_count ? &ep->peers[r] : NULL;

		if (peer == NULL || peer->state != RB_SHM_CONNECTED)
			continue;
		if (peer->process_fd >= 0 && !rb_process_ended(peer->process_fd))
			socket_ended(ep, peer);
		else
			peer_ended(ep, peer);
	}
	ep->notice = count == 16;
	processor_say(ep);
	for (uint32_t i = ep->active_count; i-- > 0;) { /* Who is lost makes room for the last. */
		struct rb_shm_peer *peer = &ep->peers[ep->active[i]];

		if (peer->doom != RUBATO_OK)
			rb_shm_lose(ep, peer, "its messages are damaged, or memory ran out");
		else if (life_of(peer) != RB_SHM_ALIVE || runs_another(peer))
			peer_ended(ep, peer);
	}
}

static void shm_look(struct rb_endpoint *base)
{
	notice((struct rb_shm_endpoint *)base);
}

static bool shm_failure(struct rb_endpoint *base, struct rb_failure *out)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	if (ep->untold == 0)
		return false;
	for (uint32_t r = 0; r < base->rank_count; r++) {
		struct rb_shm_peer *peer = &ep->peers[r];

		if (!peer->untold)
			continue;
		peer->untold = false;
		ep->untold--;
		out->peer = r;
		out->status = RUBATO_ERR_PEER;
		out->gave_up = peer->gave_up;
		out->blames = peer->blames;
		out->spoke = peer->spoke;
		memcpy(out->last_words, peer->last_words, sizeof(out->last_words));
		(void)snprintf(out->text, sizeof(out->text), "%s", peer->text);
		return true;
	}
	return false;
}

/* ---- Progress and sleep ---- */

static void flush_all(struct rb_shm_endpoint *ep)
{
	for (uint32_t i = 0; i < ep->active_count; i++) {
		struct rb_shm_peer *peer = &ep->peers[ep->active[i]];

		if (peer->outgoing > 0)
			rb_shm_flush(ep, peer);
	}
}

static struct rb_request *shm_poll(struct rb_endpoint *base)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_request *done;

	for (uint32_t i = 0; i < ep->active_count; i++) {
		struct rb_shm_peer *peer = &ep->peers[ep->active[i]];

		if (rb_shm_inbox_full(peer))
			rb_shm_drain(ep, peer, false);
	}
	if (ep->base.leaving > 0)
		flush_all(ep);
	if (++ep->polls % POLLS_PER_NOTICE == 0 || ep->notice)
		notice(ep);
	done = ep->done.first;
	ep->done = (struct rb_shm_queue) { NULL, NULL };
	return done;
}

static void sleeping_next(struct rb_shm_endpoint *ep)
{
	_Atomic uint32_t *word = &rb_shm_header(ep->segment)->sleeping;

	/* We are its only writer. */
	atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + 1,
			      memory_order_seq_cst);
}

static bool is_sleeping(const struct rb_shm_endpoint *ep)
{
	return (atomic_load_explicit(&rb_shm_header(ep->segment)->sleeping, memory_order_relaxed) &
		1) != 0;
}

/* Why no wake-up is lost: see the top of shm_send.c. */
static bool shm_arm(struct rb_endpoint *base)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	bool quiet = !ep->notice;

	processor_say(ep);
	if (!is_sleeping(ep))
		sleeping_next(ep);
	for (uint32_t i = 0; i < ep->active_count && quiet; i++) {
		struct rb_shm_peer *peer = &ep->peers[ep->active[i]];

		quiet = !rb_shm_inbox_full(peer) &&
			(peer->outgoing == 0 || rb_shm_blocked(ep, peer));
	}
	if (!quiet)
		sleeping_next(ep);
	else
		ep->base.sleeps++;
	return quiet;
}

static void shm_disarm(struct rb_endpoint *base)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	uint64_t rings;

	if (!is_sleeping(ep))
		return;
	sleeping_next(ep);
	(void)!read(ep->segment->doorbell, &rings, sizeof(rings));
	ep->notice = true;
}

static void shm_wake(struct rb_endpoint *base)
{
	rb_shm_doorbell(((struct rb_shm_endpoint *)base)->segment);
}

static int shm_descriptor(struct rb_endpoint *base)
{
	return ((struct rb_shm_endpoint *)base)->epoll;
}

/* ---- Time, chance, dump ---- */

static uint64_t shm_now_ns(struct rb_endpoint *base)
{
	(void)base;
	return rb_clock_ns();
}

static uint64_t shm_random(struct rb_endpoint *base)
{
	return rb_rng_next(&((struct rb_shm_endpoint *)base)->rng);
}

static void shm_sleep(struct rb_endpoint *base, uint64_t until_ns)
{
	(void)base;
	rb_clock_sleep_until(until_ns);
}

struct line {
	void (*call)(void *arg, const char *text);
	void *arg;
};

static void request_line(const struct rb_request *request, const char *stage,
			 const struct line *line)
{
	static const char *const kinds[] = { "send to", "recv from", "put to" };
	char text[256], signature[96];

	(void)snprintf(text, sizeof(text), "shm %s %u tag %llx:%llx bytes %zu %s %llu: %s",
		       kinds[request->kind % 3], request->peer,
		       (unsigned long long)request->tag.call, (unsigned long long)request->tag.step,
		       request->size_bytes, stage,
		       (unsigned long long)request->backend[RB_SHM_OFFSET],
		       rb_signature_text(&request->signature, signature, sizeof(signature)));
	line->call(line->arg, text);
}

static void queue_lines(const struct rb_request *first, const char *stage, const struct line *line)
{
	for (const struct rb_request *r = first; r != NULL; r = r->next)
		request_line(r, stage, line);
}

static void shm_dump(struct rb_endpoint *base, void (*call)(void *arg, const char *text), void *arg)
{
	const struct rb_shm_endpoint *ep = (const struct rb_shm_endpoint *)base;
	const struct line line = { call, arg };

	for (uint32_t r = 0; r < base->rank_count; r++) {
		const struct rb_shm_peer *peer = &ep->peers[r];

		queue_lines(peer->sends.first, "queued", &line);
		queue_lines(peer->copies.first, "copying", &line);
		queue_lines(peer->streams.first, "streaming", &line);
		queue_lines(peer->announced.first, "announced", &line);
		queue_lines(peer->incoming.first, "incoming", &line);
		if (peer->in.pieces.request != NULL) {
			struct rb_request shown = *peer->in.pieces.request;

			shown.backend[RB_SHM_OFFSET] = peer->in.pieces.here;
			request_line(&shown, "incoming", &line);
		}
		for (uint32_t i = 0; i < RB_MATCH_BUCKETS; i++)
			queue_lines(peer->match.receives[i], "waiting", &line);
	}
}

/* ---- Open and close ---- */

static void endpoint_free(struct rb_shm_endpoint *ep)
{
	rb_shm_hang_up(ep);
	if (ep->segment != NULL)
		rb_shm_regions_fini(ep);
	for (uint32_t r = 0; ep->peers != NULL && r < ep->base.rank_count; r++) {
		arrivals_fail(&ep->peers[r], true);
		free(ep->peers[r].in.pieces.arrival);
		control_free(&ep->peers[r]);
		rb_shm_segment_drop(ep->peers[r].segment);
	}
	if (ep->epoll >= 0)
		(void)close(ep->epoll);
	rb_shm_segment_drop(ep->segment);
	rb_shm_heap_fini(&ep->heap);
	rb_shm_ids_fini(&ep->ids);
	rb_shm_ids_fini(&ep->region_ids);
	free(ep->active);
	free(ep->peers);
	free(ep);
}

static rubato_status endpoint_fill(struct rb_shm_endpoint *ep,
				   const struct rb_transport_options *options)
{
	ep->heap_bytes = options->heap_bytes;
	ep->copy = rb_copy_across();
	ep->peers = calloc(options->rank_count, sizeof(*ep->peers));
	ep->active = calloc(options->rank_count, sizeof(*ep->active));
	if (ep->peers == NULL || ep->active == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: %u peers", options->rank_count);
	for (uint32_t r = 0; r < options->rank_count; r++) {
		ep->peers[r].rank = r;
		ep->peers[r].socket = ep->peers[r].process_fd = -1;
	}
	if (getrandom(&ep->rng, sizeof(ep->rng), 0) != (ssize_t)sizeof(ep->rng) ||
	    getrandom(ep->name, sizeof(ep->name), 0) != (ssize_t)sizeof(ep->name))
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: getrandom: %s", strerror(errno));
	rb_shm_attach_open(ep, options->attach);
	/* Whether there is such memory here; how much is right the peers' addresses tell. */
	RB_TRY(rb_shm_memory_try());
	ep->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (ep->epoll < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: epoll: %s", RB_ERRNO_TEXT(errno));
	return rb_shm_listen(ep);
}

rubato_status rb_shm_segment_open(struct rb_shm_endpoint *ep, uint64_t share_bytes)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = UINT32_MAX };

	RB_TRY(rb_shm_segment_create(ep->base.rank_count, ep->heap_bytes, share_bytes,
				     &ep->segment));
	RB_TRY(rb_shm_heap_init(&ep->heap, ep->segment->layout.heap_bytes));
	if (epoll_ctl(ep->epoll, EPOLL_CTL_ADD, ep->segment->doorbell, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: epoll: %s", RB_ERRNO_TEXT(errno));
	return RUBATO_OK;
}

static rubato_status shm_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct rb_shm_endpoint *ep;
	rubato_status err;

	if (options->rank_count == 0 || options->rank >= options->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: rank %u of %u", options->rank,
			       options->rank_count);
	if (options->heap_bytes > RB_SHM_HEAP_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: a heap of %llu bytes is too large",
			       (unsigned long long)options->heap_bytes);
	ep = calloc(1, sizeof(*ep));
	if (ep == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: endpoint of %zu bytes", sizeof(*ep));
	ep->base.ops = &rb_transport_shm;
	ep->base.rank = options->rank;
	ep->base.rank_count = options->rank_count;
	ep->listener = -1;
	ep->epoll = -1;
	memcpy(ep->job, options->job, sizeof(ep->job));
	err = endpoint_fill(ep, options);
	if (err != RUBATO_OK) {
		endpoint_free(ep);
		return err;
	}
	*out = &ep->base;
	return RUBATO_OK;
}

static void shm_close(struct rb_endpoint *base, bool abort, uint64_t deadline_ns)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	(void)deadline_ns; /* Nothing here waits. */
	if (ep == NULL)
		return;
	if (ep->segment == NULL) { /* Never connected. */
		endpoint_free(ep);
		return;
	}
	struct rb_shm_header *header = rb_shm_header(ep->segment);

	atomic_store_explicit(&header->blames, base->blames, memory_order_relaxed);
	if (base->last_words != NULL)
		memcpy(header->last_words, base->last_words, sizeof(header->last_words));
	atomic_store_explicit(&header->spoke, base->last_words != NULL, memory_order_relaxed);
	atomic_store_explicit(&header->life, abort ? RB_SHM_ABORTED : RB_SHM_LEFT,
			      memory_order_release);
	for (uint32_t i = 0; i < ep->active_count; i++) {
		rb_shm_part_all(ep, &ep->peers[ep->active[i]]);
		rb_shm_doorbell(ep->peers[ep->active[i]].segment);
	}
	endpoint_free(ep);
}

const struct rb_transport_ops rb_transport_shm = {
	.name = "shm",
	.caps = RB_CAP_MAP | RB_CAP_PUT,
	.key_bytes = RB_SHM_KEY_BYTES,
	.open = shm_open,
	.address = rb_shm_address,
	.reachable = rb_shm_reachable,
	.connect = rb_shm_connect,
	.call_off = rb_shm_call_off,
	.close = shm_close,
	.region_alloc = rb_shm_region_alloc,
	.region_add = rb_shm_region_add,
	.region_drop = rb_shm_region_drop,
	.region_key = rb_shm_region_key,
	.remote_open = rb_shm_remote_open,
	.remote_close = rb_shm_remote_close,
	.word_of = rb_shm_word_of,
	.word_map = rb_shm_word_map,
	.send = rb_shm_send,
	.recv = rb_shm_recv,
	.put = rb_shm_put,
	.cancel = shm_cancel,
	.leave = shm_leave,
	.recall = shm_recall,
	.send_now = rb_shm_send_now,
	.recv_now = rb_shm_recv_now,
	.here = rb_shm_here,
	.parcels_now = rb_shm_parcels_now,
	.send_soon = rb_shm_send_soon,
	.unmatched = shm_unmatched,
	.poll = shm_poll,
	.failure = shm_failure,
	.look = shm_look,
	.descriptor = shm_descriptor,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.wake = shm_wake,
	.node_speed = rb_shm_node_speed,
	.copies = shm_copies,
	.in_process = shm_in_process,
	.processor = shm_processor,
	.now_ns = shm_now_ns,
	.random = shm_random,
	.sleep = shm_sleep,
	.dump = shm_dump,
};
