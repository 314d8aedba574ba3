/*
 * ucx_connect.c -- addresses, hello, lost peers, close.
 *
 * A peer on this host gets a UCX endpoint without error handling, because UCX has no shared memory
 * otherwise. All others, and with TCP those on this host too, get UCX's peer error handling. That a
 * process of this host ended is told by a process descriptor: a forked child of it may hold its
 * connections. connect() ends when every peer has answered HELLO; a peer that leaves says BYE
 * behind everything else, so that what UCX or the kernel reports about it later is no failure.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "transport/lost.h"
#include "transport/ucx/ucx.h"

#define ADDRESS_MAGIC 0x58554252u /* "RBUX" */
#define DRAIN_ROUNDS_MAX 100000
#define BYE_GRACE_NS 200000000u /* Guess: how long close() waits for answers to BYE. */
/* How long ABORT may take to get into the network. Guess: a connection that is just being made
 * needs the peer's turns of the scheduler. */
#define ABORT_GRACE_NS 500000000u
/* How long UCX may take to give up connections that nobody needs any more. Guess: it does so by
 * itself, but in rounds; a flush to a peer that has gone never ends. */
#define CLOSE_GRACE_NS 100000000u
#define ENDED_GRACE_NS 50000000u /* Guess: what it said is on this host, or nowhere. */

struct blob { /* An address, taken apart. */
	uint8_t tcp_only;
	uint64_t job, host;
	uint32_t rank, pid;
	const void *worker;
};

rubato_status rb_ucx_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct rb_wire w = rb_wire_over(bytes, RB_ADDRESS_BYTES_MAX);
	ucp_address_t *worker;
	size_t worker_bytes;
	ucs_status_t status = ux->api.ucp_worker_get_address(ux->worker, &worker, &worker_bytes);

	if (status != UCS_OK)
		return rb_ucx_failed(ux, status, "getting its address");
	rb_wire_put_u32(&w, ADDRESS_MAGIC);
	rb_wire_put_u8(&w, RB_UCX_VERSION);
	rb_wire_put_u8(&w, ux->tcp_only);
	rb_wire_put_u64(&w, ux->job);
	rb_wire_put_u32(&w, ep->rank);
	rb_wire_put_u32(&w, (uint32_t)getpid());
	rb_wire_put_u64(&w, ux->host);
	rb_wire_put_u32(&w, (uint32_t)worker_bytes);
	rb_wire_put_bytes(&w, worker, worker_bytes);
	ux->api.ucp_worker_release_address(ux->worker, worker);
	if (w.bad)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "UCX's address has %zu bytes: too many network devices, name those "
			       "to use in RUBATO_INTERFACE",
			       worker_bytes);
	*size_bytes = (size_t)(w.at - (uint8_t *)bytes);
	return RUBATO_OK;
}

static bool blob_read(const void *address, size_t size_bytes, struct blob *blob)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)address, size_bytes);
	uint32_t magic = rb_wire_get_u32(&w);
	uint8_t version = rb_wire_get_u8(&w);
	uint32_t worker_bytes;

	blob->tcp_only = rb_wire_get_u8(&w);
	blob->job = rb_wire_get_u64(&w);
	blob->rank = rb_wire_get_u32(&w);
	blob->pid = rb_wire_get_u32(&w);
	blob->host = rb_wire_get_u64(&w);
	worker_bytes = rb_wire_get_u32(&w);
	blob->worker = w.at;
	return !w.bad && magic == ADDRESS_MAGIC && version == RB_UCX_VERSION && worker_bytes > 0 &&
	       worker_bytes == (size_t)(w.end - w.at);
}

bool rb_ucx_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct blob blob;

	return address != NULL && blob_read(address, size_bytes, &blob) && blob.job == ux->job &&
	       blob.rank < ep->rank_count && blob.tcp_only == ux->tcp_only;
}

/* ---- Lost peers ---- */

void rb_ucx_lose(struct rb_ucx *ux, uint32_t rank, const char *reason)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];
	struct rb_request *request;

	if (peer->lost)
		return;
	peer->lost = true;
	ux->base.leaving -= peer->out;
	ux->deserted = true;
	(void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	if (!peer->left) {
		ux->to_tell++;
		peer->broken = true;
		ux->to_close++;
		RB_LOG(RB_LOG_INFO, "lost a peer: %s", reason);
	}
	while ((request = rb_match_any_receive(&peer->match)) != NULL)
		rb_ucx_complete(ux, request, RUBATO_ERR_PEER);
	for (uint32_t i = 0; i < ux->flight_count; i++) {
		request = ux->flights[i].request;
		if (request != NULL && request->peer == rank)
			rb_ucx_complete(ux, request, RUBATO_ERR_PEER);
	}
	rb_ucx_large_drop(ux, rank, false);
	rb_ucx_puts_drop(peer);
}

void rb_ucx_lack(struct rb_ucx *ux, uint32_t rank, const char *reason)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];

	if (peer->lost || peer->lacked)
		return;
	peer->lacked = true; /* To say so may take memory, too. */
	rb_ucx_tell_abort(ux, rank);
	rb_ucx_lose(ux, rank, reason);
}

void rb_ucx_lose_by_status(struct rb_ucx *ux, uint32_t rank, ucs_status_t status)
{
	char reason[sizeof(ux->peers[rank].reason)];

	(void)snprintf(reason, sizeof(reason), "rank %u: UCX: %s", rank,
		       ux->api.ucs_status_string(status));
	rb_ucx_lose(ux, rank, reason);
}

/* UCX's: inside progress, so the endpoint is only marked. */
static void endpoint_failed(void *arg, ucp_ep_h ucp, ucs_status_t status)
{
	struct rb_ucx_peer *peer = arg;

	(void)ucp;
	if (!peer->lost) {
		rb_ucx_lose_by_status(peer->ux, peer->rank, status);
	} else if (!peer->broken) {
		peer->broken = true; /* After BYE: no failure, but of no use any more. */
		peer->ux->to_close++;
	}
}

static void close_broken(struct rb_ucx *ux)
{
	ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				      .flags = UCP_EP_CLOSE_FLAG_FORCE };

	ux->to_close = 0;
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		struct rb_ucx_peer *peer = &ux->peers[r];
		ucs_status_ptr_t closing;

		/* Without error handling UCX cannot force: that endpoint goes with the worker. */
		if (!peer->broken || peer->ucp == NULL || peer->shared)
			continue;
		closing = ux->api.ucp_ep_close_nbx(peer->ucp, &force);
		peer->ucp = NULL;
		if (UCS_PTR_IS_PTR(closing))
			ux->api.ucp_request_free(closing);
	}
}

static void unwatch(struct rb_ucx *ux, struct rb_ucx_peer *peer)
{
	if (peer->pid_fd < 0)
		return;
	(void)epoll_ctl(ux->pids_fd, EPOLL_CTL_DEL, peer->pid_fd, NULL);
	(void)close(peer->pid_fd);
	peer->pid_fd = -1;
	ux->pid_count--;
}

static void process_ended(struct rb_ucx *ux, uint32_t rank)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];
	char reason[sizeof(peer->reason)];
	int quiet = 0;

	ux->ended_count -= peer->ended_ns > 0;
	peer->ended_ns = 0;

	/* Whatever it still said is here already, its BYE perhaps. */
	for (int i = 0; i < DRAIN_ROUNDS_MAX && quiet < 10; i++)
		quiet = rb_ucx_progress(ux) != 0 ? 0 : quiet + 1;
	unwatch(ux, peer);
	(void)snprintf(reason, sizeof(reason), "rank %u: process %u ended", rank, peer->pid);
	rb_ucx_lose(ux, rank, reason);
}

/* What a process said over connections may still be in the kernel: UCX has some time to read it,
 * and to find the end by itself. */
static void ended_check(struct rb_ucx *ux, uint64_t grace_ns)
{
	uint64_t now_ns = rb_clock_ns();

	for (uint32_t r = 0; r < ux->base.rank_count && ux->ended_count > 0; r++)
		if (ux->peers[r].ended_ns > 0 &&
		    now_ns >= rb_deadline(ux->peers[r].ended_ns, grace_ns))
			process_ended(ux, r);
}

static void peers_check(struct rb_ucx *ux, uint64_t grace_ns)
{
	struct epoll_event event;

	ux->rounds = 0;
	while (ux->pid_count != 0 && epoll_wait(ux->pids_fd, &event, 1, 0) == 1) {
		struct rb_ucx_peer *peer = &ux->peers[event.data.u32];

		if (peer->shared || peer->lost) {
			process_ended(ux, event.data.u32);
			continue;
		}
		unwatch(ux, peer);
		peer->ended_ns = rb_clock_ns();
		ux->ended_count++;
	}
	if (ux->ended_count != 0)
		ended_check(ux, grace_ns);
	if (ux->to_close != 0)
		close_broken(ux);
}

void rb_ucx_check_peers(struct rb_ucx *ux)
{
	peers_check(ux, ENDED_GRACE_NS);
}

void rb_ucx_look(struct rb_endpoint *ep)
{
	peers_check((struct rb_ucx *)ep, 0);
}

/* One that has ended is lost: the others are to be reached before we give up, and are told. */
static rubato_status watch_process(struct rb_ucx *ux, struct rb_ucx_peer *peer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = peer->rank };

	if (peer->pid == (uint32_t)getpid())
		return RUBATO_OK;
	peer->pid_fd = rb_process_open((int32_t)peer->pid);
	if (peer->pid_fd < 0 && errno == ESRCH) {
		char reason[sizeof(peer->reason)];

		(void)snprintf(reason, sizeof(reason), "rank %u: process %u ended", peer->rank,
			       peer->pid);
		rb_ucx_lose(ux, peer->rank, reason);
		return RUBATO_OK;
	}
	if (peer->pid_fd < 0 && !peer->shared && errno != EMFILE)
		return RUBATO_OK; /* Its connections tell. */
	if (peer->pid_fd < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "rank %u: watching process %u: %s", peer->rank,
			       peer->pid, strerror(errno));
	ux->pid_count++;
	if (epoll_ctl(ux->pids_fd, EPOLL_CTL_ADD, peer->pid_fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	return RUBATO_OK;
}

/* ---- Connecting ---- */

/* Over whom we then give up, others are told. */
static rubato_status lost_while_connecting(struct rb_ucx *ux, uint32_t rank)
{
	uint32_t blames = ux->peers[rank].blames, cause = rank;
	struct rb_lost lost = { .count = 0 };

	rb_ucx_look(&ux->base);
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		const struct rb_ucx_peer *peer = &ux->peers[r];

		if (!peer->lost || peer->left)
			continue;
		rb_lost_add(&lost, r);
		blames = blames > 0 ? blames : peer->blames;
		cause = ux->peers[cause].gave_up ? r : cause; /* Rather one that said nothing. */
	}
	ux->base.blames = blames > 0 ? blames : cause + 1;
	return rb_lost_fail(&lost, ux->base.rank_count, rank, ux->peers[rank].reason, blames);
}

static rubato_status peer_open(struct rb_ucx *ux, uint32_t rank, const void *address,
			       size_t size_bytes)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_handler = { .cb = endpoint_failed, .arg = peer },
	};
	struct blob blob;
	ucs_status_t status;
	rubato_status err;
	bool here;

	if (!rb_ucx_reachable(&ux->base, address, size_bytes) ||
	    !blob_read(address, size_bytes, &blob) || blob.rank != rank)
		return RB_FAIL(RUBATO_ERR_PEER, "rank %u gave an address that is not its own",
			       rank);
	peer->pid = blob.pid;
	here = ux->host != 0 && blob.host == ux->host;
	peer->shared = !ux->tcp_only && here;
	params.address = blob.worker;
	params.err_mode = peer->shared ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
	if (here)
		RB_TRY(watch_process(ux, peer));
	if (peer->lost)
		return RUBATO_OK;
	status = ux->api.ucp_ep_create(ux->worker, &params, &peer->ucp);
	if (status == UCS_OK)
		return RUBATO_OK;
	peer->ucp = NULL;
	err = rb_ucx_failed(ux, status, "connecting to a peer");
	if (err != RUBATO_ERR_PEER)
		return err;
	rb_ucx_lose_by_status(ux, rank, status); /* The others are to be told: see above. */
	return RUBATO_OK;
}

/* Which of the used peers have not answered: "1,4 (2 of 7)". 0: none. */
static uint32_t missing(struct rb_ucx *ux, char *text, size_t text_bytes)
{
	uint32_t count = 0, used = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		if (!ux->peers[r].used || r == ux->base.rank)
			continue;
		used++;
		if (ux->peers[r].welcomed)
			continue;
		if (at + 32 < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at,
					       count == 0 ? "%u" : ",%u", r);
		count++;
	}
	if (at + 32 < text_bytes)
		(void)snprintf(text + at, text_bytes - at, " (%u of %u)", count, used);
	return count;
}

static rubato_status await_welcomes(struct rb_ucx *ux, uint64_t deadline_ns)
{
	char text[160];

	while (missing(ux, text, sizeof(text)) != 0) {
		rb_ucx_move(ux, deadline_ns);
		rb_ucx_check_peers(ux);
		for (uint32_t r = 0; r < ux->base.rank_count; r++) {
			if (ux->peers[r].lost && !ux->peers[r].left)
				return lost_while_connecting(ux, r);
		}
		if (rb_clock_ns() >= deadline_ns && missing(ux, text, sizeof(text)) != 0)
			return RB_FAIL(RUBATO_ERR_TIMEOUT, "UCX: no answer from ranks %s", text);
	}
	return RUBATO_OK;
}

static void anchor_open(struct rb_ucx *ux)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_address_t *address;
	size_t address_bytes;

	if (ux->api.ucp_worker_get_address(ux->worker, &address, &address_bytes) != UCS_OK)
		return;
	params.address = address;
	if (ux->api.ucp_ep_create(ux->worker, &params, &ux->anchor) != UCS_OK)
		ux->anchor = NULL;
	ux->api.ucp_worker_release_address(ux->worker, address);
}

static void peer_use(struct rb_ucx *ux, uint32_t rank)
{
	struct rb_ucx_peer *peer = &ux->peers[rank];

	peer->ux = ux;
	peer->rank = rank;
	peer->used = true;
	peer->credit = RB_UCX_CREDIT_MAX;
}

rubato_status rb_ucx_connect(struct rb_endpoint *ep, const void *const *addresses,
			     const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;

	anchor_open(ux);
	for (uint32_t r = 0; r < ep->rank_count; r++) {
		peer_use(ux, r);
		ux->peers[r].used = use[r];
		if (use[r] && r != ep->rank)
			RB_TRY(peer_open(ux, r, addresses[r], address_bytes[r]));
	}
	for (uint32_t r = 0; r < ep->rank_count; r++)
		if (ux->peers[r].ucp != NULL)
			rb_ucx_tell(ux, r, RB_UCX_HELLO, RB_UCX_NO_TAG, 0, 0);
	RB_TRY(await_welcomes(ux, deadline_ns));
	rb_ucx_paths_log(ux);
	return RUBATO_OK;
}

/* Where UCX tells failures, that this rank goes is one. Else close() says so, once it can. */
void rb_ucx_call_off(struct rb_endpoint *ep, uint32_t rank, const void *address, size_t size_bytes)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	struct blob blob;

	if (rank == ep->rank || ux->tcp_only || ux->peers[rank].ucp != NULL ||
	    ux->peers[rank].lost || !rb_ucx_reachable(ep, address, size_bytes) ||
	    !blob_read(address, size_bytes, &blob) || ux->host == 0 || blob.host != ux->host)
		return;
	if (ux->anchor == NULL)
		anchor_open(ux);
	peer_use(ux, rank);
	if (peer_open(ux, rank, address, size_bytes) != RUBATO_OK)
		RB_LOG(RB_LOG_DEBUG, "rank %u does not hear that this one gives up: %s", rank,
		       rubato_error_text());
}

/* ---- Close ---- */

static bool all_answered(const struct rb_ucx *ux)
{
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		const struct rb_ucx_peer *peer = &ux->peers[r];

		if (peer->ucp != NULL && !peer->lost && !peer->bye_seen)
			return false;
	}
	return true;
}

/*
 * What was completed is the peers', so it has until the deadline; an answer is a courtesy. But who
 * aborts also closes by force, and a connection that is reset takes along what was not read yet.
 */
static void say_goodbye(struct rb_ucx *ux, bool abort, uint64_t deadline_ns)
{
	uint64_t until_ns = abort ? rb_deadline(rb_clock_ns(), ABORT_GRACE_NS) : deadline_ns;

	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		if (abort)
			rb_ucx_tell_abort(ux, r);
		else
			rb_ucx_tell(ux, r, RB_UCX_BYE, RB_UCX_NO_TAG, 0, 0);
	}
	while (!rb_ucx_left(&ux->base) && rb_clock_ns() < until_ns) {
		rb_ucx_move(ux, until_ns);
		rb_ucx_check_peers(ux);
	}
	until_ns = rb_deadline(rb_clock_ns(), BYE_GRACE_NS);
	until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
	while (!all_answered(ux) && rb_clock_ns() < until_ns) {
		rb_ucx_move(ux, until_ns);
		rb_ucx_check_peers(ux);
	}
}

/* Requests are their owners' again; what UCX still calls back about finds nothing. */
static void forget_all(struct rb_ucx *ux)
{
	for (uint32_t i = 0; i < ux->flight_count; i++) {
		ux->flights[i].request = NULL;
		ux->flights[i].generation++;
	}
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		struct rb_ucx_peer *peer = &ux->peers[r];

		peer->lost = peer->left = true;
		while (rb_match_any_receive(&peer->match) != NULL)
			;
		rb_ucx_large_drop(ux, r, true);
		rb_ucx_arrivals_drop(ux, r);
		rb_ucx_puts_drop(peer);
		unwatch(ux, peer);
	}
}

static bool all_closed(const struct rb_ucx *ux)
{
	for (uint32_t r = 0; r < ux->base.rank_count; r++)
		if (ux->peers[r].closing != NULL &&
		    ux->api.ucp_request_check_status(ux->peers[r].closing) == UCS_INPROGRESS)
			return false;
	return true;
}

/*
 * What is not closed in time (a peer does not answer the flush) goes with the worker. `awaited`:
 * what was completed may still be on its way to a peer, and has until the deadline.
 */
static void endpoints_close(struct rb_ucx *ux, bool abort, bool awaited, uint64_t deadline_ns)
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), CLOSE_GRACE_NS);

	if (awaited && until_ns < deadline_ns)
		until_ns = deadline_ns;
	for (uint32_t r = 0; r < ux->base.rank_count; r++) {
		struct rb_ucx_peer *peer = &ux->peers[r];
		bool force = abort || peer->broken || peer->out != 0;
		ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					      .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0 };

		if (peer->ucp == NULL || (force && peer->shared))
			continue; /* The latter goes with the worker. */
		peer->closing = ux->api.ucp_ep_close_nbx(peer->ucp, &param);
		peer->ucp = NULL;
		if (!UCS_PTR_IS_PTR(peer->closing))
			peer->closing = NULL;
	}
	while (!all_closed(ux) && rb_clock_ns() < until_ns)
		rb_ucx_move(ux, until_ns);
	for (uint32_t r = 0; r < ux->base.rank_count; r++)
		if (ux->peers[r].closing != NULL)
			ux->api.ucp_request_free(ux->peers[r].closing);
}

void rb_ucx_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct rb_ucx *ux = (struct rb_ucx *)ep;
	bool awaited;

	if (ep == NULL)
		return;
	if (ux->worker != NULL) {
		say_goodbye(ux, abort, deadline_ns);
		awaited = !abort && !all_answered(ux);
		forget_all(ux);
		while (ux->remotes != NULL)
			rb_ucx_remote_close(ep, &ux->remotes->base);
		endpoints_close(ux, abort, awaited, deadline_ns);
	}
	while (ux->regions != NULL)
		rb_ucx_region_drop(ep, &ux->regions->base);
	if (ux->epoll_fd >= 0)
		(void)close(ux->epoll_fd);
	if (!rb_ucx_device_settle(ux)) {
		RB_LOG(RB_LOG_WARN,
		       "ucx: the device does not end its copies: UCX's worker stays as it is");
		return;
	}
	rb_ucx_enter(ux);
	if (ux->worker != NULL)
		ux->api.ucp_worker_destroy(ux->worker);
	rb_ucx_leave(ux);
	rb_ucx_device_close(ux);
	if (ux->context != NULL)
		ux->api.ucp_cleanup(ux->context);
	if (ux->pids_fd >= 0)
		(void)close(ux->pids_fd);
	if (ux->wake_fd >= 0)
		(void)close(ux->wake_fd);
	if (ux->nap_fd >= 0)
		(void)close(ux->nap_fd);
	rb_ucx_slots_free(ux);
	free(ux->flights);
	free(ux);
}
