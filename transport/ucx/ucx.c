/*
 * ucx.c -- the UCX backend: its table, posts and cancel, flights, sleeping. ucx.h has the idea.
 *
 * One UCP context and one worker per endpoint, in SERIALIZED mode: whoever holds the engine's lock
 * drives it. wake() touches only an event descriptor of our own.
 */
#include "transport/ucx/ucx.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/sync.h"

#define API_MAJOR 1 /* Of UCX's that is used here, */
#define API_MINOR 13

#define ROUNDS_PER_CHECK 1024 /* Guess: polls between two looks at the process descriptors. */
#define BUSY_ARMS_MAX 3       /* What had come is told by the poll after the first one. */
#define MOVE_MS_MAX 10        /* UCX connects in a thread of its own, and wakes nobody. */
#define NAP_NS 1000000        /* Guess: a peer's shared memory may have room again. */
/* UCX ends processes in which it gets none. It took 14 with one device, without connections. */
#define DESCRIPTORS_LEAST 32

rubato_status rb_ucx_failed(const struct rb_ucx *ux, ucs_status_t status, const char *what)
{
	const char *text = ux->api.ucs_status_string(status);

	switch (status) {
	case UCS_ERR_NO_MEMORY:
		return RB_FAIL(RUBATO_ERR_MEMORY, "UCX: %s: %s", what, text);
	case UCS_ERR_UNSUPPORTED:
	case UCS_ERR_NO_DEVICE:
	case UCS_ERR_NOT_IMPLEMENTED:
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "UCX: %s: %s", what, text);
	case UCS_ERR_UNREACHABLE:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_REJECTED:
		return RB_FAIL(RUBATO_ERR_PEER, "UCX: %s: %s", what, text);
	default:
		return RB_FAIL(RUBATO_ERR_SYSTEM, "UCX: %s: %s", what, text);
	}
}

void rb_ucx_complete(struct rb_ucx *ux, struct rb_request *request, rubato_status status)
{
	rb_ucx_flight_end(ux, request);
	request->backend[RB_UCX_STAGE] = RB_UCX_STAGE_NONE;
	request->status = status;
	if (ux->posting == request) {
		request->state = RB_REQUEST_DONE;
		return;
	}
	request->backend[RB_UCX_LISTED] = 1;
	RB_QUEUE_ADD(ux->done_first, ux->done_last, request);
}

static void unlist(struct rb_ucx *ux, struct rb_request *request)
{
	RB_QUEUE_REMOVE(ux->done_first, ux->done_last, request);
	request->next = request->previous = NULL;
	request->backend[RB_UCX_LISTED] = 0;
}

/* ---- Flights ---- */

static rubato_status flights_grow(struct rb_ucx *ux)
{
	uint32_t count = ux->flight_count == 0 ? 64 : 2 * ux->flight_count;
	struct rb_ucx_flight *flights;

	if (count < ux->flight_count)
		return RB_FAIL(RUBATO_ERR_MEMORY, "too many requests under way");
	flights = realloc(ux->flights, count * sizeof(*flights));
	if (flights == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for %u requests under way", count);
	for (uint32_t i = count; i-- > ux->flight_count;) {
		flights[i] = (struct rb_ucx_flight) { .next_free = ux->flight_free };
		ux->flight_free = i + 1;
	}
	ux->flights = flights;
	ux->flight_count = count;
	return RUBATO_OK;
}

rubato_status rb_ucx_flight_begin(struct rb_ucx *ux, struct rb_request *request,
				  enum rb_ucx_stage stage)
{
	struct rb_ucx_flight *flight;
	uint32_t index;

	if (ux->flight_free == 0)
		RB_TRY(flights_grow(ux));
	index = ux->flight_free - 1;
	flight = &ux->flights[index];
	ux->flight_free = flight->next_free;
	flight->request = request;
	request->backend[RB_UCX_STAGE] = stage;
	request->backend[RB_UCX_FLIGHT] = ((uint64_t)flight->generation << 32) | (index + 1);
	return RUBATO_OK;
}

void rb_ucx_flight_end(struct rb_ucx *ux, struct rb_request *request)
{
	uint32_t index = (uint32_t)request->backend[RB_UCX_FLIGHT];
	struct rb_ucx_flight *flight;

	if (index == 0)
		return;
	flight = &ux->flights[index - 1];
	RB_ASSERT(flight->request == request);
	flight->request = NULL;
	flight->generation++; /* Whatever still speaks of this id finds nothing. */
	flight->next_free = ux->flight_free;
	ux->flight_free = index;
	request->backend[RB_UCX_FLIGHT] = 0;
}

struct rb_request *rb_ucx_flight_find(struct rb_ucx *ux, uint64_t id, uint32_t peer,
				      enum rb_ucx_stage stage)
{
	uint32_t index = (uint32_t)id;
	struct rb_request *request;

	if (index == 0 || index > ux->flight_count ||
	    ux->flights[index - 1].generation != (uint32_t)(id >> 32))
		return NULL;
	request = ux->flights[index - 1].request;
	if (request == NULL || request->peer != peer || request->backend[RB_UCX_STAGE] != stage)
		return NULL;
	return request;
}

/* ---- Posts ---- */

static void post(struct rb_endpoint *ep, struct rb_request *request, enum rb_request_kind kind,
		 void (*carry_out)(struct rb_ucx *ux, struct rb_request *request))
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	request->kind = kind;
	request->state = RB_REQUEST_PENDING;
	request->status = RUBATO_OK;
	request->next = request->previous = NULL;
	memset(request->backend, 0, sizeof(request->backend));
	ux->posting = request;
	if (request->peer >= ep->rank_count || !ux->peers[request->peer].used)
		rb_ucx_complete(ux, request,
				RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u is not connected here",
					request->peer));
	else
		carry_out(ux, request);
	ux->posting = NULL;
}

static void ucx_send(struct rb_endpoint *ep, struct rb_request *request)
{
	post(ep, request, RB_REQUEST_SEND, rb_ucx_post_send);
}

static void ucx_recv(struct rb_endpoint *ep, struct rb_request *request)
{
	post(ep, request, RB_REQUEST_RECV, rb_ucx_post_recv);
}

static void ucx_put(struct rb_endpoint *ep, struct rb_request *request)
{
	post(ep, request, RB_REQUEST_PUT, rb_ucx_post_put);
}

static bool ucx_recall(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	if (request->state != RB_REQUEST_PENDING ||
	    request->backend[RB_UCX_STAGE] != RB_UCX_STAGE_MATCHING ||
	    !rb_match_remove_receive(&ux->peers[request->peer].match, request))
		return false;
	request->state = RB_REQUEST_IDLE;
	return true;
}

static bool ucx_unmatched(struct rb_endpoint *ep, rb_unmatched_visit *visit, void *arg)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	for (uint32_t r = 0; r < ep->rank_count; r++)
		if (rb_match_visit(&ux->peers[r].match, r, visit, arg))
			return true;
	return false;
}

static void ucx_cancel(struct rb_endpoint *ep, struct rb_request *request)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	if (request->state != RB_REQUEST_PENDING)
		return;
	if (request->backend[RB_UCX_LISTED] != 0) {
		unlist(ux, request);
		request->state = RB_REQUEST_DONE;
		return;
	}
	rb_ucx_withdraw(ux, request);
	if (request->backend[RB_UCX_LISTED] != 0)
		unlist(ux, request); /* Its peer was lost as it was told. */
	ux->posting = request;       /* Not to be listed. */
	rb_ucx_complete(ux, request, RUBATO_ERR_CANCELLED);
	ux->posting = NULL;
}

static bool ucx_leave(struct rb_endpoint *ep, struct rb_request *request)
{
	if (request->state == RB_REQUEST_PENDING && request->backend[RB_UCX_LISTED] == 0 &&
	    request->backend[RB_UCX_STAGE] == RB_UCX_STAGE_RECEIVING) {
		rb_ucx_large_let((struct rb_ucx *)ep, request);
		return true;
	}
	ucx_cancel(ep, request);
	return false;
}

unsigned rb_ucx_progress(const struct rb_ucx *ux)
{
	unsigned moved;

	rb_ucx_enter(ux);
	moved = ux->api.ucp_worker_progress(ux->worker);
	rb_ucx_leave(ux);
	return moved;
}

static struct rb_request *ucx_poll(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct rb_request *done;

	/* A few rounds for one poll: what arrives together is told together. */
	for (int i = 0; i < 8 && rb_ucx_progress(ux) != 0; i++)
		ux->busy_arms = 0;
	if (++ux->rounds >= ROUNDS_PER_CHECK || ux->to_close != 0)
		rb_ucx_check_peers(ux);
	done = ux->done_first;
	ux->done_first = ux->done_last = NULL;
	for (struct rb_request *r = done; r != NULL; r = r->next) {
		r->backend[RB_UCX_LISTED] = 0;
		r->state = RB_REQUEST_DONE;
	}
	return done;
}

static bool ucx_failure(struct rb_endpoint *ep, struct rb_failure *out)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	if (ux->to_tell == 0)
		return false;
	for (uint32_t r = 0; r < ep->rank_count; r++) {
		struct rb_ucx_peer *peer = &ux->peers[r];

		if (!peer->lost || peer->left || peer->told)
			continue;
		peer->told = true;
		ux->to_tell--;
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

/* ---- Sleeping ---- */

static int ucx_descriptor(struct rb_endpoint *ep)
{
	return ((struct rb_ucx *)ep)->epoll_fd;
}

static void ucx_heed(struct rb_ucx *ux, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = ux->ucx_fd };

	(void)epoll_ctl(ux->epoll_fd, EPOLL_CTL_MOD, ux->ucx_fd, &event);
}

/*
 * UCX does not sleep while a peer's shared memory has no room for what is to leave, and nothing
 * tells when it has: then the sleep ends after a while, and by nothing of UCX's, whose descriptor
 * is not to be relied upon unarmed. False: poll once more first.
 */
static bool nap_set(struct rb_ucx *ux)
{
	static const struct itimerspec nap = { .it_value = { .tv_nsec = NAP_NS } };

	if (ux->base.leaving == 0 || ++ux->busy_arms < BUSY_ARMS_MAX)
		return false;
	ux->napping = timerfd_settime(ux->nap_fd, 0, &nap, NULL) == 0;
	if (ux->napping)
		ucx_heed(ux, 0);
	return ux->napping;
}

static void nap_end(struct rb_ucx *ux)
{
	static const struct itimerspec none = { .it_value = { 0 } };
	uint64_t count;

	if (!ux->napping)
		return;
	ux->napping = false;
	ucx_heed(ux, EPOLLIN);
	(void)timerfd_settime(ux->nap_fd, 0, &none, NULL);
	(void)!read(ux->nap_fd, &count, sizeof(count));
}

static bool worker_arm(struct rb_ucx *ux)
{
	if (ux->api.ucp_worker_arm(ux->worker) != UCS_OK)
		return nap_set(ux);
	ux->busy_arms = 0;
	/* A completion queue of verbs tells of what comes after it was armed, so UCX, which does
	 * not look once more, may have missed what came just before. */
	return rb_ucx_progress(ux) == 0;
}

void rb_ucx_move(struct rb_ucx *ux, uint64_t until_ns)
{
	struct pollfd fd = { .fd = ux->epoll_fd, .events = POLLIN };
	uint64_t now_ns, left_ms, count;

	if (rb_ucx_progress(ux) != 0) {
		ux->busy_arms = 0;
		ux->idle_moves = 0;
		return;
	}
	now_ns = rb_clock_ns();
	left_ms = now_ns < until_ns ? (until_ns - now_ns) / 1000000 + 1 : 0;
	if (worker_arm(ux)) {
		ux->idle_moves = 0;
		if (poll(&fd, 1, left_ms < MOVE_MS_MAX ? (int)left_ms : MOVE_MS_MAX) > 0)
			(void)!read(ux->wake_fd, &count, sizeof(count));
	} else if (++ux->idle_moves >= BUSY_ARMS_MAX) {
		/* UCX will not sleep, for something that does not come from here. */
		rb_clock_sleep_until(now_ns + NAP_NS < until_ns ? now_ns + NAP_NS : until_ns);
	}
	nap_end(ux);
}

static bool ucx_arm(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	if (ux->done_first != NULL || ux->to_tell != 0 || ux->to_close != 0)
		return false;
	return worker_arm(ux) && ux->done_first == NULL && ux->to_tell == 0 && ux->to_close == 0;
}

static void ucx_disarm(struct rb_endpoint *ep)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	uint64_t count;

	(void)!read(ux->wake_fd, &count, sizeof(count));
	nap_end(ux);
	ux->rounds = ROUNDS_PER_CHECK; /* The next poll looks at the processes. */
	ep->sleeps++;
}

static void ucx_wake(struct rb_endpoint *ep)
{
	uint64_t one = 1;

	(void)!write(((struct rb_ucx *)ep)->wake_fd, &one, sizeof(one));
}

static uint64_t ucx_now_ns(struct rb_endpoint *ep)
{
	(void)ep;
	return rb_clock_ns();
}

static uint64_t ucx_random(struct rb_endpoint *ep)
{
	struct rb_rng rng = { ((struct rb_ucx *)ep)->random };
	uint64_t value = rb_rng_next(&rng);

	((struct rb_ucx *)ep)->random = rng.state;
	return value;
}

static void ucx_sleep(struct rb_endpoint *ep, uint64_t until_ns)
{
	(void)ep;
	rb_clock_sleep_until(until_ns);
}

struct lines {
	void (*line)(void *arg, const char *text);
	void *arg;
};

static void dump_request(const struct lines *to, const struct rb_request *q)
{
	static const char *const kinds[] = { "send", "recv", "put" };
	static const char *const stages[] = { "done",    "matching",  "self",
					      "sending", "receiving", "putting" };
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "ucx %s peer %u tag %llx:%llx bytes %zu %s, %llu moved, %llu out",
		       kinds[q->kind], q->peer, (unsigned long long)q->tag.call,
		       (unsigned long long)q->tag.step, q->size_bytes,
		       stages[q->backend[RB_UCX_STAGE]],
		       (unsigned long long)q->backend[RB_UCX_MOVED],
		       (unsigned long long)q->backend[RB_UCX_OUT]);
	to->line(to->arg, text);
}

static void ucx_dump(struct rb_endpoint *ep, void (*line)(void *arg, const char *text), void *arg)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct lines to = { line, arg };

	for (uint32_t r = 0; r < ep->rank_count; r++) {
		struct rb_ucx_peer *peer = &ux->peers[r];

		for (size_t b = 0; b < RB_MATCH_BUCKETS; b++)
			for (struct rb_request *q = peer->match.receives[b]; q != NULL; q = q->next)
				dump_request(&to, q);
		for (size_t b = 0; b < RB_UCX_LARGE_BUCKETS; b++) {
			struct rb_ucx_arrival *m = peer->large[b];

			for (; m != NULL; m = m->next_by_id)
				if (m->receive != NULL)
					dump_request(&to, m->receive);
		}
	}
	for (uint32_t i = 0; i < ux->flight_count; i++)
		if (ux->flights[i].request != NULL)
			dump_request(&to, ux->flights[i].request);
}

/* ---- Opening ---- */

/* Whether the environment, or a file of UCX's, sets what is "all" by default. */
static bool chosen(const struct rb_ucx *ux, const ucp_config_t *config, const char *name)
{
	char *text = NULL, *rest, *line;
	size_t text_bytes, name_bytes = strlen(name);
	FILE *stream = open_memstream(&text, &text_bytes);
	bool found = false;

	if (stream == NULL)
		return false;
	ux->api.ucp_config_print(config, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
	rest = fclose(stream) == 0 ? text : NULL;
	while ((line = strsep(&rest, "\n")) != NULL)
		found |= strncmp(line, name, name_bytes) == 0 && line[name_bytes] == '=' &&
			 strcmp(line + name_bytes, "=all") != 0;
	free(text);
	return found;
}

static bool uses_tcp(const struct rb_ucx *ux)
{
	char *text = NULL;
	size_t text_bytes;
	FILE *stream = open_memstream(&text, &text_bytes);
	bool found;

	if (stream == NULL)
		return false;
	ux->api.ucp_context_print_info(ux->context, stream);
	found = fclose(stream) == 0 && strstr(text, " tcp/") != NULL;
	free(text);
	return found;
}

static bool is_of_1_17(const struct rb_ucx *ux)
{
	unsigned major, minor, release;

	ux->api.ucp_get_version(&major, &minor, &release);
	return major > 1 || minor >= 17;
}

/* Of TCP. Since 1.17 the names of a transport's options begin with the transport's. */
static const char *segment_option(const struct rb_ucx *ux)
{
	return is_of_1_17(ux) ? "TCP_TX_SEG_SIZE" : "TX_SEG_SIZE";
}

/* What somebody has chosen in UCX's own way goes before what we only prefer. */
static rubato_status options_set(const struct rb_ucx *ux, ucp_config_t *config,
				 const struct rb_transport_options *options)
{
	const char *transports = options->tcp_only && options->ucx_device ? "tcp,self,cuda_copy"
				 : options->tcp_only                      ? "tcp,self"
				 : chosen(ux, config, "UCX_TLS")          ? NULL
									  : "^posix";
	const char *devices = options->interface;

	if (devices == NULL && !chosen(ux, config, "UCX_NET_DEVICES"))
		devices = options->reaching;

	const struct {
		const char *name, *value;
		bool needed;
	} settings[] = {
		/* 1.13.1's TCP ends the process when a connection breaks under a zero-copy send. */
		{ "ZCOPY_THRESH", "inf", false },
		{ segment_option(ux), "64k", false }, /* With 8 KiB half the bandwidth is left. */
		/* It takes no device's memory where the CUDA runtime is not watched; and what UCX
		 * registers here is ours. */
		{ "RCACHE_ENABLE", ux->device_wanted && is_of_1_17(ux) ? "n" : NULL, false },
		/* Else a sender maps what its peer may have freed: 1.22.0 does not look whether it
		 * could. */
		{ "RNDV_PIPELINE_SHM_ENABLE", ux->device_wanted ? "n" : NULL, false },
		/* Else a flush waits for the peers' answers, which may compute. */
		{ "FLUSH_WORKER_EPS", "n", false },
		/* posix leaves a file behind when its process is killed while making it. */
		{ "TLS", transports, true },
		{ "NET_DEVICES", devices, true },
	};

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		ucs_status_t status = UCS_OK;

		if (settings[i].value != NULL)
			status = ux->api.ucp_config_modify(config, settings[i].name,
							   settings[i].value);
		if (status != UCS_OK && settings[i].needed)
			return rb_ucx_failed(ux, status, settings[i].name);
		if (status != UCS_OK)
			rb_ucx_option_unknown(settings[i].name);
	}
	return RUBATO_OK;
}

static rubato_status context_open(struct rb_ucx *ux, const struct rb_transport_options *options)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
			      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		/* RMA only for the mapping of regions. */
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP |
			    (options->tcp_only ? 0 : UCP_FEATURE_RMA),
		.mt_workers_shared = 0,
		.estimated_num_eps = options->rank_count,
	};
	ucp_config_t *config;
	ucs_status_t status = ux->api.ucp_config_read(NULL, NULL, &config);
	rubato_status err;

	if (status != UCS_OK)
		return rb_ucx_failed(ux, status, "reading its configuration");
	err = options_set(ux, config, options);
	if (err == RUBATO_OK)
		status = ux->api.ucp_init_version(API_MAJOR, API_MINOR, &params, config,
						  &ux->context);
	ux->api.ucp_config_release(config);
	return err != RUBATO_OK || status == UCS_OK
		       ? err
		       : rb_ucx_failed(ux, status, "opening its devices");
}

static rubato_status worker_open(struct rb_ucx *ux)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
		/* To say of a device's piece that it was not fetched, 1.22.0 reads what is gone. */
		.flags = ux->device_wanted ? UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK : 0,
	};
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = RB_UCX_AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = rb_ucx_arrived,
		.arg = ux,
	};
	ucs_status_t status;

	(void)rb_ucx_option_unused();
	rb_ucx_device_ask(ux);
	status = ux->api.ucp_worker_create(ux->context, &params, &ux->worker);
	/* Before 1.17 only this tells that a transport which is there has no such option. */
	if (rb_ucx_option_unused() && uses_tcp(ux))
		rb_ucx_option_unknown(segment_option(ux));
	if (status == UCS_OK)
		status = ux->api.ucp_worker_set_am_recv_handler(ux->worker, &handler);
	return status == UCS_OK ? RUBATO_OK : rb_ucx_failed(ux, status, "making a worker");
}

static rubato_status watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.fd = fd;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	return RUBATO_OK;
}

static rubato_status sleeping_open(struct rb_ucx *ux)
{
	ucs_status_t status = ux->api.ucp_worker_get_efd(ux->worker, &ux->ucx_fd);

	if (status != UCS_OK)
		return rb_ucx_failed(ux, status, "getting its event descriptor");
	ux->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ux->pids_fd = epoll_create1(EPOLL_CLOEXEC);
	ux->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ux->nap_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (ux->epoll_fd < 0 || ux->pids_fd < 0 || ux->wake_fd < 0 || ux->nap_fd < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "no descriptors to sleep on: %s",
			       strerror(errno));
	RB_TRY(watch(ux->epoll_fd, ux->ucx_fd));
	RB_TRY(watch(ux->epoll_fd, ux->wake_fd));
	RB_TRY(watch(ux->epoll_fd, ux->nap_fd));
	return watch(ux->epoll_fd, ux->pids_fd);
}

struct beginning {
	struct rb_ucx *ux;
	const struct rb_transport_options *options;
};

static rubato_status begin(void *arg)
{
	const struct beginning *b = arg;

	RB_TRY(rb_limit_descriptors_check("UCX, for one rank,", DESCRIPTORS_LEAST));
	RB_TRY(rb_ucx_load(&b->ux->api));
	RB_TRY(context_open(b->ux, b->options));
	return worker_open(b->ux);
}

static rubato_status ucx_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct rb_ucx *ux = calloc(1, sizeof(*ux) + options->rank_count * sizeof(ux->peers[0]));
	uint64_t halves[2];
	rubato_status status;

	if (ux == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for %u peers", options->rank_count);
	memcpy(halves, options->job, sizeof(halves));
	ux->base.ops = &rb_transport_ucx;
	ux->base.rank = options->rank;
	ux->base.rank_count = options->rank_count;
	ux->job = rb_mix(halves[0] ^ rb_mix(halves[1]));
	ux->random = rb_clock_ns() ^ rb_mix(options->rank);
	ux->tcp_only = options->tcp_only;
	ux->device = options->device;
	ux->device_wanted = options->ucx_device;
	ux->epoll_fd = ux->pids_fd = ux->wake_fd = ux->nap_fd = -1;
	for (uint32_t r = 0; r < options->rank_count; r++)
		ux->peers[r].pid_fd = -1;

	ux->host = rb_process_host();
	status = rb_ucx_begin(begin, &(struct beginning) { ux, options });
	if (status == RUBATO_OK)
		status = sleeping_open(ux);
	if (status != RUBATO_OK) {
		rb_ucx_close(&ux->base, true, 0);
		return status;
	}
	*out = &ux->base;
	return RUBATO_OK;
}

const struct rb_transport_ops rb_transport_ucx = {
	.name = "ucx",
	.caps = RB_CAP_PUT,
	.piece_bytes = RB_UCX_PIECE_BYTES,
	.copied_bytes = UINT32_MAX, /* All: by way of slots. */
	.key_bytes = RB_KEY_BYTES_MAX,
	.open = ucx_open,
	.address = rb_ucx_address,
	.reachable = rb_ucx_reachable,
	.connect = rb_ucx_connect,
	.call_off = rb_ucx_call_off,
	.close = rb_ucx_close,
	.region_alloc = rb_ucx_region_alloc,
	.region_add = rb_ucx_region_add,
	.region_drop = rb_ucx_region_drop,
	.region_key = rb_ucx_region_key,
	.remote_open = rb_ucx_remote_open,
	.remote_close = rb_ucx_remote_close,
	.devices_changed = rb_ucx_devices_changed,
	.send = ucx_send,
	.recv = ucx_recv,
	.put = ucx_put,
	.cancel = ucx_cancel,
	.leave = ucx_leave,
	.recall = ucx_recall,
	.unmatched = ucx_unmatched,
	.poll = ucx_poll,
	.left = rb_ucx_left,
	.failure = ucx_failure,
	.look = rb_ucx_look,
	.descriptor = ucx_descriptor,
	.arm = ucx_arm,
	.disarm = ucx_disarm,
	.wake = ucx_wake,
	.path = rb_ucx_path,
	.now_ns = ucx_now_ns,
	.random = ucx_random,
	.sleep = ucx_sleep,
	.dump = ucx_dump,
};
