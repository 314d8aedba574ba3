/*
 * rendezvous_socket.c -- the rendezvous on TCP: one thread, poll(2), non-blocking sockets.
 *
 * The shell keeps no state of the protocol: it carries out what the machine asks for and tells it
 * what happened. It decides two things itself, for they are about addresses: which to listen on and
 * connect to, and that without a secret these are loopback ones.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/process.h"
#include "runtime/startup/endpoint.h"
#include "runtime/startup/rendezvous.h"
#include "runtime/startup/rendezvous_wire.h"

#define BACKLOG 4096 /* The kernel lowers it to net.core.somaxconn. */
#define LISTENER UINT32_MAX
#define STRANGERS_LEAST 4u /* Places for those who still have to prove themselves. */
#define ACCEPTS_MAX 8      /* In a row, before those that are there get their turn. */
#define PROCESSES_NS UINT64_C(1000000000) /* Between looks at the others' processes. */
#define HEARD_MAX 1000u /* Rounds of what is there already, before this rank gives up. */
#define NO_SECRET_HELP                                                                             \
	"without a secret only loopback addresses are used: set RUBATO_SECRET_FILE (or, on a "     \
	"network that you trust, RUBATO_INSECURE=1)"

struct blobs { /* One exchange's result: handed out until close. */
	struct blobs *next;
	const void **out;
	size_t *out_bytes;
	uint8_t bytes[];
};

struct rendezvous {
	struct rb_bootstrap base; /* First: the caller sees this. */
	bool leaving;             /* Start-up has failed here, and that is on its way. */
	struct rb_rv *machine;
	const struct rb_job *job; /* Valid inside rb_rendezvous_open() only. */
	struct rb_endpoints endpoints;
	uint32_t endpoint;                   /* Of the next address to be tried. */
	struct addrinfo *resolved, *address; /* Of that endpoint; NULL: not resolved. */
	int listener;
	uint32_t connection_count;
	int *sockets; /* By connection number; -1: free. */
	struct pollfd *polls;
	uint32_t *polled; /* Which connection each of `polls` is, or LISTENER. */
	uint32_t poll_count;
	bool connecting, connect_wanted, listen_wanted;
	uint64_t processes_ns; /* When to look at the others' processes next. */
	struct blobs *blobs;
	rubato_status ended; /* Once failed, always failed. */
};

/* ---- Events ---- */

static struct rb_rv_event event_now(enum rb_rv_event_kind kind, uint32_t connection)
{
	return (struct rb_rv_event) { .kind = kind,
				      .connection = connection,
				      .now_ns = rb_clock_ns() };
}

static void socket_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void tell_closed(struct rendezvous *r, uint32_t connection, const char *text)
{
	struct rb_rv_event e = event_now(RB_RV_EV_CLOSED, connection);

	e.text = text;
	socket_close(&r->sockets[connection]);
	rb_rv_step(r->machine, &e);
}

/* ---- Listening ---- */

static void tell_listen_failed(struct rendezvous *r, bool retry, bool more, rubato_status status,
			       const char *text)
{
	struct rb_rv_event e = event_now(RB_RV_EV_LISTEN_FAILED, 0);

	e.retry = retry;
	e.more = more;
	e.status = status;
	e.text = text;
	rb_rv_step(r->machine, &e);
}

/* One address; 0, or an errno. */
static int listen_at(const struct addrinfo *a, int *out)
{
	int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->ai_family == AF_INET6) /* The one for all takes IPv4 along. */
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int) { 0 }, sizeof(int));
	if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
		int why = errno;

		(void)close(fd);
		return why;
	}
	*out = fd;
	return 0;
}

static bool address_allowed(const struct rendezvous *r, const struct addrinfo *a)
{
	return r->job->secret_bytes > 0 || r->job->insecure ||
	       rb_address_loopback(a->ai_addr, a->ai_addrlen);
}

static void listen_refused(struct rendezvous *r, int why)
{
	char text[RB_RV_TEXT_MAX];
	const char *advice = "";

	if (why == EADDRINUSE)
		advice = "; another job? choose another port in RUBATO_ROOT";
	else if (why == EADDRNOTAVAIL)
		advice = "; rank 0 must run on the host that RUBATO_ROOT names";
	(void)snprintf(text, sizeof(text), "rank 0 cannot listen at %.100s: %s%s", r->job->root,
		       RB_ERRNO_TEXT(why), advice);
	tell_listen_failed(r, why == EADDRINUSE, false, RUBATO_ERR_SYSTEM, text);
}

/* Whether this machine has the address. */
static bool address_here(const struct addrinfo *a)
{
	struct sockaddr_storage any_port;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(&any_port, a->ai_addr, a->ai_addrlen);
	((struct sockaddr_in *)(void *)&any_port)->sin_port = 0; /* In the same place in IPv6. */
	bool here = fd >= 0 && bind(fd, (struct sockaddr *)&any_port, a->ai_addrlen) == 0;

	socket_close(&fd);
	return here;
}

/*
 * At all addresses of this machine: what the root's name means here need not be what it means to
 * the others (127.0.1.1, says many an /etc/hosts), and they may come through several networks.
 * 0, or an errno.
 */
static int listen_everywhere(const struct addrinfo *a, int *out)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct addrinfo six = { .ai_family = AF_INET6,
				.ai_addr = (struct sockaddr *)&any6,
				.ai_addrlen = sizeof(any6) };
	struct addrinfo four = { .ai_family = AF_INET,
				 .ai_addr = (struct sockaddr *)&any4,
				 .ai_addrlen = sizeof(any4) };

	if (!address_here(a))
		return EADDRNOTAVAIL;
	any4.sin_port = any6.sin6_port = ((const struct sockaddr_in *)(void *)a->ai_addr)->sin_port;
	int why = listen_at(&six, out);

	return why == 0 || why == EADDRINUSE ? why : listen_at(&four, out);
}

#define NOT_ALLOWED (-1) /* No errno: the system may refuse, too. */

/* One endpoint: what its host means, in turn; 0, or an errno; NOT_ALLOWED: not without a secret. */
static int listen_endpoint(struct rendezvous *r, const struct addrinfo *list, bool everywhere)
{
	int why = EADDRNOTAVAIL;

	for (const struct addrinfo *a = list; a != NULL && r->listener < 0; a = a->ai_next) {
		if (!address_allowed(r, a))
			return NOT_ALLOWED;
		why = everywhere ? listen_everywhere(a, &r->listener) : listen_at(a, &r->listener);
		if (why == EADDRINUSE)
			break; /* Not the next: two jobs would share one host:port. */
	}
	return why;
}

/* Several addresses, or a name other than localhost: with the right to serve others, to all. */
static bool listens_everywhere(const struct rendezvous *r)
{
	const char *host = r->endpoints.items[0].host;
	uint8_t bytes[16];
	bool number = inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
	bool several = r->endpoints.count > 1 && !r->endpoints.range;

	return (r->job->secret_bytes > 0 || r->job->insecure) &&
	       (several || (!number && strcmp(host, "localhost") != 0));
}

static void do_listen(struct rendezvous *r)
{
	struct rb_rv_event e = event_now(RB_RV_EV_LISTENING, 0);
	char text[RB_RV_TEXT_MAX];
	struct addrinfo *list;
	int why = EADDRNOTAVAIL;

	r->listen_wanted = false;
	if (r->listener >= 0) { /* Came with the id. */
		rb_rv_step(r->machine, &e);
		return;
	}
	for (uint32_t i = 0; i < r->endpoints.count && r->listener < 0 && why != NOT_ALLOWED; i++) {
		int rc = rb_endpoint_resolve(&r->endpoints.items[i], true, &list);

		if (rc != 0) {
			(void)snprintf(text, sizeof(text),
				       "cannot resolve the root's host in %.100s: %s", r->job->root,
				       gai_strerror(rc));
			tell_listen_failed(r, true, true, RUBATO_ERR_SYSTEM, text);
			return;
		}
		why = listen_endpoint(r, list, listens_everywhere(r));
		freeaddrinfo(list);
		if (why == EADDRINUSE && !r->endpoints.range)
			break;
	}
	if (why == NOT_ALLOWED) {
		(void)snprintf(text, sizeof(text), "rank 0 will not listen at %.100s: %s",
			       r->job->root, NO_SECRET_HELP);
		tell_listen_failed(r, false, false, RUBATO_ERR_ARGUMENT, text);
		return;
	}
	if (r->listener < 0)
		listen_refused(r, why);
	else
		rb_rv_step(r->machine, &e);
}

static void accept_failed(struct rendezvous *r, int why)
{
	char text[RB_RV_TEXT_MAX];

	(void)snprintf(text, sizeof(text), "rank 0 cannot take another connection at %.100s: %s",
		       r->job->root, RB_ERRNO_TEXT(why));
	tell_listen_failed(r, false, false, RUBATO_ERR_SYSTEM, text);
}

static uint32_t free_connection(const struct rendezvous *r)
{
	uint32_t i = 0;

	while (i < r->connection_count && r->sockets[i] >= 0)
		i++;
	return i;
}

/* False: nobody waits. */
static bool accept_one(struct rendezvous *r)
{
	struct rb_rv_event e = event_now(RB_RV_EV_ACCEPTED, free_connection(r));
	struct sockaddr_storage from;
	socklen_t from_bytes = sizeof(from);
	char text[RB_RV_ADDRESS_MAX];
	int on = 1, fd = accept4(r->listener, (struct sockaddr *)&from, &from_bytes,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			accept_failed(r, errno);
		return false;
	}
	RB_ASSERT(e.connection < r->connection_count);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	r->sockets[e.connection] = fd;
	rb_address_print((struct sockaddr *)&from, from_bytes, text, sizeof(text));
	e.text = text;
	randombytes_buf(e.random, sizeof(e.random));
	rb_rv_step(r->machine, &e);
	return true;
}

/* ---- Connecting ---- */

static bool more_addresses(const struct rendezvous *r)
{
	return r->address != NULL || r->endpoint + 1 < r->endpoints.count;
}

static void tell_connect_failed(struct rendezvous *r, bool retry, bool refused,
				rubato_status status, const char *text)
{
	struct rb_rv_event e = event_now(RB_RV_EV_CONNECT_FAILED, 0);

	socket_close(&r->sockets[0]);
	r->connecting = false;
	e.retry = retry;
	e.refused = refused;
	e.more = more_addresses(r);
	e.status = status;
	e.text = text;
	rb_rv_step(r->machine, &e);
}

/* The next address, endpoint after endpoint, round and round; NULL: the machine has been told. */
static const struct addrinfo *next_address(struct rendezvous *r)
{
	if (r->address == NULL) {
		if (r->resolved != NULL) {
			freeaddrinfo(r->resolved);
			r->resolved = NULL;
			r->endpoint = (r->endpoint + 1) % r->endpoints.count;
		}
		int rc = rb_endpoint_resolve(&r->endpoints.items[r->endpoint], false, &r->resolved);

		if (rc != 0) {
			char text[RB_RV_TEXT_MAX];

			(void)snprintf(text, sizeof(text), "cannot resolve %.100s: %s",
				       r->endpoints.items[r->endpoint].host, gai_strerror(rc));
			r->resolved = NULL;
			tell_connect_failed(r, true, false, RUBATO_ERR_SYSTEM, text);
			r->endpoint = (r->endpoint + 1) % r->endpoints.count;
			return NULL;
		}
		r->address = r->resolved;
	}
	const struct addrinfo *a = r->address;

	r->address = a->ai_next;
	return a;
}

static void connect_ended(struct rendezvous *r, int why)
{
	struct rb_rv_event e = event_now(RB_RV_EV_CONNECTED, 0);
	struct sockaddr_storage here, there;
	socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
	char text[RB_RV_ADDRESS_MAX];

	r->connecting = false;
	if (why == 0 && (getsockname(r->sockets[0], (struct sockaddr *)&here, &here_bytes) != 0 ||
			 getpeername(r->sockets[0], (struct sockaddr *)&there, &there_bytes) != 0))
		why = errno;
	/* TCP lets a socket connect to itself when it happens to get the port it looks for. */
	if (why == 0 && here_bytes == there_bytes && memcmp(&here, &there, here_bytes) == 0)
		why = ECONNREFUSED;
	if (why != 0) {
		tell_connect_failed(r, true, why == ECONNREFUSED, RUBATO_ERR_SYSTEM, strerror(why));
		return;
	}
	rb_address_print((struct sockaddr *)&there, there_bytes, text, sizeof(text));
	e.text = text;
	e.more = more_addresses(r);
	randombytes_buf(e.random, sizeof(e.random));
	rb_rv_step(r->machine, &e);
}

static void do_connect(struct rendezvous *r)
{
	char text[RB_RV_TEXT_MAX];
	int on = 1;

	r->connect_wanted = false;
	const struct addrinfo *a = next_address(r);

	if (a == NULL)
		return;
	if (!address_allowed(r, a)) {
		(void)snprintf(text, sizeof(text), "rank %u will not connect to %.100s: %s",
			       r->base.rank, r->job->root, NO_SECRET_HELP);
		tell_connect_failed(r, false, false, RUBATO_ERR_ARGUMENT, text);
		return;
	}
	r->sockets[0] = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->sockets[0] < 0) {
		bool family = errno == EAFNOSUPPORT; /* The name's other addresses may do. */

		(void)snprintf(text, sizeof(text), "no socket for %.100s: %s", r->job->root,
			       RB_ERRNO_TEXT(errno));
		tell_connect_failed(r, family, false, RUBATO_ERR_SYSTEM, text);
		return;
	}
	(void)setsockopt(r->sockets[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	r->connecting = true;
	struct rb_rv_event e = event_now(RB_RV_EV_CONNECTING, 0);

	e.more = more_addresses(r);
	rb_rv_step(r->machine, &e);
	if (connect(r->sockets[0], a->ai_addr, a->ai_addrlen) == 0)
		connect_ended(r, 0);
	else if (errno != EINPROGRESS && errno != EINTR)
		connect_ended(r, errno);
}

/* ---- Bytes ---- */

static void receive(struct rendezvous *r, uint32_t connection)
{
	uint8_t bytes[4096];
	size_t room = rb_rv_room(r->machine, connection);
	ssize_t got =
		recv(r->sockets[connection], bytes, room < sizeof(bytes) ? room : sizeof(bytes), 0);

	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (got <= 0) {
		tell_closed(r, connection, NULL);
		return;
	}
	struct rb_rv_event e = event_now(RB_RV_EV_RECEIVED, connection);

	e.bytes = bytes;
	e.size_bytes = (size_t)got;
	rb_rv_step(r->machine, &e);
}

/* Sends what the kernel takes. An error is left for receive() to find, with what came before it. */
static void transmit(struct rendezvous *r, uint32_t connection)
{
	const uint8_t *bytes = NULL;
	size_t size_bytes = rb_rv_outbox(r->machine, connection, &bytes);

	if (size_bytes == 0)
		return;
	ssize_t put = send(r->sockets[connection], bytes, size_bytes, MSG_NOSIGNAL);

	if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (put < 0 && rb_rv_room(r->machine, connection) > 0)
		return;
	if (put < 0) {
		tell_closed(r, connection, NULL);
		return;
	}
	struct rb_rv_event e = event_now(RB_RV_EV_SENT, connection);

	e.size_bytes = (size_t)put;
	rb_rv_step(r->machine, &e);
}

/* ---- The loop ---- */

static void report(const struct rb_rv_action *a)
{
	RB_LOG(a->level, "%s", a->text);
}

/* Carries out what the last event led to. *done: DONE was among it. */
static rubato_status actions_take(struct rendezvous *r, bool *done)
{
	struct rb_rv_action a;

	while (rb_rv_next(r->machine, &a)) {
		switch (a.act) {
		case RB_RV_ACT_LISTEN:
			r->listen_wanted = true;
			break;
		case RB_RV_ACT_UNLISTEN:
			socket_close(&r->listener);
			break;
		case RB_RV_ACT_CONNECT:
			r->connect_wanted = true;
			break;
		case RB_RV_ACT_SEND: /* poll() says when. */
			break;
		case RB_RV_ACT_CLOSE:
			socket_close(&r->sockets[a.connection]);
			r->connecting = false;
			break;
		case RB_RV_ACT_REPORT:
			report(&a);
			break;
		case RB_RV_ACT_DONE:
			*done = true;
			break;
		case RB_RV_ACT_FAIL:
			r->base.blames = a.blames;
			return RB_FAIL(a.status, "%s", a.text);
		}
	}
	return RUBATO_OK;
}

static void poll_add(struct rendezvous *r, uint32_t connection, int fd, short events)
{
	r->polls[r->poll_count] = (struct pollfd) { .fd = fd, .events = events };
	r->polled[r->poll_count++] = connection;
}

/* Open sockets only: the kernel takes no more entries than it would give descriptors. */
static void polls_fill(struct rendezvous *r)
{
	r->poll_count = 0;
	for (uint32_t i = 0; i < r->connection_count; i++) {
		const uint8_t *bytes;
		short events = 0;

		if (r->sockets[i] < 0)
			continue;
		if (rb_rv_room(r->machine, i) > 0)
			events |= POLLIN;
		if (r->connecting || rb_rv_outbox(r->machine, i, &bytes) > 0)
			events |= POLLOUT;
		/* Without interest it is left out: poll() would report a hang-up for ever. */
		if (events != 0)
			poll_add(r, i, r->sockets[i], events);
	}
	if (r->listener >= 0 && rb_rv_accepts(r->machine, rb_clock_ns()))
		poll_add(r, LISTENER, r->listener, POLLIN);
}

static int poll_timeout_ms(const struct rendezvous *r)
{
	uint64_t now_ns = rb_clock_ns(), wake_ns = rb_rv_wake_ns(r->machine);

	if (wake_ns <= now_ns)
		return 0;
	uint64_t ms = (wake_ns - now_ns + 999999) / 1000000;

	return ms > 1000 ? 1000 : (int)ms;
}

static void connection_ready(struct rendezvous *r, uint32_t i, short revents)
{
	if (r->connecting) {
		int why = 0;
		socklen_t why_bytes = sizeof(why);

		if (getsockopt(r->sockets[i], SOL_SOCKET, SO_ERROR, &why, &why_bytes) != 0)
			why = errno;
		connect_ended(r, why);
	} else if ((revents & (POLLIN | POLLHUP | POLLERR)) && rb_rv_room(r->machine, i) > 0) {
		receive(r, i);
	} else {
		transmit(r, i);
	}
}

/* One round: at most one event per socket, actions after each. */
static rubato_status events_give(struct rendezvous *r, bool *done)
{
	bool called = false;

	for (uint32_t i = 0; i < r->poll_count; i++) {
		uint32_t connection = r->polled[i];

		if (r->polls[i].revents == 0)
			continue;
		if (connection == LISTENER) {
			called = true;
			continue;
		}
		/* An earlier event of this round may have closed it, or ended it all. */
		if (r->sockets[connection] != r->polls[i].fd)
			continue;
		connection_ready(r, connection, r->polls[i].revents);
		RB_TRY(actions_take(r, done));
		if (*done)
			return RUBATO_OK;
	}
	for (uint32_t k = 0; called && k < ACCEPTS_MAX; k++) {
		if (r->listener < 0 || !rb_rv_accepts(r->machine, rb_clock_ns()) || !accept_one(r))
			break;
		RB_TRY(actions_take(r, done));
	}
	return actions_take(r, done); /* Of an accept that failed. */
}

/* Whether something is there that the other end had still said. */
static bool unread(int fd)
{
	uint8_t byte;

	return recv(fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) > 0;
}

/*
 * Processes of this host, once a second: a forked child may hold the sockets of one that has ended.
 * Descriptors are opened for the moment only, so that start-up needs one for each rank and not two.
 */
static rubato_status processes_check(struct rendezvous *r, bool *done)
{
	uint64_t now_ns = rb_clock_ns();
	char text[64];

	if (now_ns < r->processes_ns)
		return RUBATO_OK;
	r->processes_ns = rb_deadline(now_ns, PROCESSES_NS);
	for (uint32_t i = 0; i < r->connection_count && !*done; i++) {
		int32_t process = rb_rv_process(r->machine, i);

		if (process <= 0 || r->sockets[i] < 0 || !rb_process_gone(process) ||
		    unread(r->sockets[i]))
			continue;
		(void)snprintf(text, sizeof(text), "ended (process %d)", (int)process);
		tell_closed(r, i, text);
		RB_TRY(actions_take(r, done));
	}
	return RUBATO_OK;
}

static rubato_status events_wait(struct rendezvous *r, bool *done)
{
	int count;

	polls_fill(r);
	count = poll(r->polls, r->poll_count, poll_timeout_ms(r));
	if (count < 0 && errno != EINTR && errno != EAGAIN)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "start-up: poll of %u sockets: %s", r->poll_count,
			       RB_ERRNO_TEXT(errno));
	return count > 0 ? events_give(r, done) : RUBATO_OK;
}

static rubato_status loop(struct rendezvous *r)
{
	bool done = false;

	RB_TRY(actions_take(r, &done));
	while (!done) {
		if (r->listen_wanted)
			do_listen(r);
		else if (r->connect_wanted)
			do_connect(r);
		else
			RB_TRY(events_wait(r, &done));
		RB_TRY(actions_take(r, &done));
		RB_TRY(processes_check(r, &done));
		if (!done && rb_rv_wake_ns(r->machine) <= rb_clock_ns()) {
			struct rb_rv_event e = event_now(RB_RV_EV_TICK, 0);

			rb_rv_step(r->machine, &e);
			RB_TRY(actions_take(r, &done));
		}
	}
	return RUBATO_OK;
}

/* ---- The bootstrap ---- */

static rubato_status blobs_keep(struct rendezvous *r)
{
	size_t total = 0, n = r->base.rank_count, size_bytes;

	for (uint32_t i = 0; i < n; i++) {
		(void)rb_rv_blob(r->machine, i, &size_bytes);
		total += (size_bytes + 7) / 8 * 8;
	}
	struct blobs *kept = malloc(sizeof(*kept) + total);
	const void **out = malloc(n * sizeof(*out));
	size_t *out_bytes = malloc(n * sizeof(*out_bytes));

	if (kept == NULL || out == NULL || out_bytes == NULL) {
		free(kept);
		free(out);
		free(out_bytes);
		return RB_FAIL(RUBATO_ERR_MEMORY, "start-up: no %zu bytes for %zu blobs", total, n);
	}
	total = 0;
	for (uint32_t i = 0; i < n; i++) {
		const void *blob = rb_rv_blob(r->machine, i, &size_bytes);

		memcpy(kept->bytes + total, blob, size_bytes);
		out[i] = kept->bytes + total;
		out_bytes[i] = size_bytes;
		total += (size_bytes + 7) / 8 * 8;
	}
	*kept = (struct blobs) { .next = r->blobs, .out = out, .out_bytes = out_bytes };
	r->blobs = kept;
	return RUBATO_OK;
}

static rubato_status rendezvous_allgather(struct rb_bootstrap *b, const void *in, size_t in_bytes,
					  const void *const **out, const size_t **out_bytes,
					  uint64_t deadline_ns)
{
	struct rendezvous *r = (struct rendezvous *)b;
	struct rb_rv_event e = event_now(RB_RV_EV_GATHER, 0);

	if (in_bytes > RB_BLOB_BYTES_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "start-up: a blob of %zu bytes, at most %d fit",
			       in_bytes, RB_BLOB_BYTES_MAX);
	if (r->ended != RUBATO_OK)
		return r->ended;
	e.bytes = in;
	e.size_bytes = in_bytes;
	e.deadline_ns = deadline_ns;
	rb_rv_step(r->machine, &e);
	r->ended = loop(r);
	if (r->ended == RUBATO_OK)
		r->ended = blobs_keep(r);
	if (r->ended != RUBATO_OK)
		return r->ended;
	*out = r->blobs->out;
	*out_bytes = r->blobs->out_bytes;
	return RUBATO_OK;
}

/* Whoever fails says why, and the root passes it on: else those that wait for it would see it go,
 * and take it for the cause. What others have said before counts more. */
static void rendezvous_leave(struct rb_bootstrap *b)
{
	struct rendezvous *r = (struct rendezvous *)b;
	struct rb_rv_event e;
	char text[RB_RV_TEXT_MAX];
	bool done = false;

	if (r->leaving || r->ended != RUBATO_OK)
		return;
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	for (uint32_t i = 0; i < HEARD_MAX && r->ended == RUBATO_OK; i++) {
		polls_fill(r);
		if (poll(r->polls, r->poll_count, 0) <= 0)
			break;
		r->ended = events_give(r, &done);
	}
	if (r->ended == RUBATO_OK) {
		r->leaving = true;
		e = event_now(RB_RV_EV_GIVE_UP, 0);
		e.text = text;
		e.blames = b->blames;
		rb_rv_step(r->machine, &e);
		r->ended = actions_take(r, &done);
	}
	for (uint32_t i = 0; r->ended == RUBATO_OK && i < r->connection_count; i++) {
		const uint8_t *bytes;

		if (r->sockets[i] < 0 || rb_rv_outbox(r->machine, i, &bytes) == 0)
			continue;
		transmit(r, i);
		r->ended = actions_take(r, &done);
	}
	(void)RB_FAIL(RUBATO_ERR_PEER, "%s", text);
}

static rubato_status rendezvous_end(struct rb_bootstrap *b, bool good)
{
	struct rendezvous *r = (struct rendezvous *)b;

	if (good)
		return RUBATO_OK;
	rendezvous_leave(b);
	if (r->ended == RUBATO_OK)
		r->ended = loop(r);
	return r->ended;
}

static void rendezvous_close(struct rb_bootstrap *b)
{
	struct rendezvous *r = (struct rendezvous *)b;

	for (uint32_t i = 0; r->sockets != NULL && i < r->connection_count; i++)
		socket_close(&r->sockets[i]);
	socket_close(&r->listener);
	while (r->blobs != NULL) {
		struct blobs *next = r->blobs->next;

		free(r->blobs->out);
		free(r->blobs->out_bytes);
		free(r->blobs);
		r->blobs = next;
	}
	if (r->resolved != NULL)
		freeaddrinfo(r->resolved);
	rb_rv_fini(r->machine);
	free(r->sockets);
	free(r->polls);
	free(r->polled);
	free(r);
}

/* The root takes a connection of every rank, and of some strangers: ranks are that, too, until they
 * have proved themselves. *strangers: for how many there is room besides. */
static rubato_status descriptors_check(const struct rb_job *job, uint32_t *strangers)
{
	uint64_t need = job->rank_count - 1 + STRANGERS_LEAST + (job->listener < 0);
	struct rb_limit l = rb_limit_descriptors();
	char who[64];

	*strangers = 0;
	if (job->rank != 0 || l.limit == UINT64_MAX || l.used == 0)
		return RUBATO_OK;
	(void)snprintf(who, sizeof(who), "rank 0 of %u, for the others' start-up,",
		       job->rank_count);
	RB_TRY(rb_limit_descriptors_check(who, need));
	*strangers = STRANGERS_LEAST + (uint32_t)(l.limit - l.used - need);
	return RUBATO_OK;
}

static rubato_status machine_make(struct rendezvous *r, const struct rb_job *job)
{
	struct rb_rv_options o = {
		.rank = job->rank,
		.rank_count = job->rank_count,
		.root = job->root,
		.secret = job->secret,
		.secret_bytes = job->secret_bytes,
		.searches = job->searches,
		.listens = job->listens,
	};

	memcpy(o.job, job->nonce, sizeof(o.job));
	if (job->rank == 0 && sodium_is_zero(o.job, sizeof(o.job)))
		randombytes_buf(o.job, sizeof(o.job));
	randombytes_buf(o.instance, sizeof(o.instance));
	RB_TRY(descriptors_check(job, &o.strangers_max));
	o.host = rb_process_host();
	o.process = getpid();
	RB_TRY(rb_rv_init(&o, &r->machine));
	r->connection_count = rb_rv_connection_count(r->machine);
	r->sockets = malloc(r->connection_count * sizeof(*r->sockets));
	r->polls = calloc(r->connection_count + 1, sizeof(*r->polls));
	r->polled = calloc(r->connection_count + 1, sizeof(*r->polled));
	if (r->sockets == NULL || r->polls == NULL || r->polled == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "rendezvous: no memory for %u connections",
			       r->connection_count);
	for (uint32_t i = 0; i < r->connection_count; i++)
		r->sockets[i] = -1;
	return RUBATO_OK;
}

static rubato_status join(struct rendezvous *r, const struct rb_job *job, uint64_t deadline_ns)
{
	struct rb_rv_event e;

	if (sodium_init() < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "libsodium finds no source of randomness");
	if (job->rank_count > 1)
		RB_TRY(rb_endpoints_parse(job->root, &r->endpoints));
	RB_TRY(machine_make(r, job));
	e = event_now(RB_RV_EV_OPEN, 0);
	e.deadline_ns = deadline_ns;
	r->job = job;
	rb_rv_step(r->machine, &e);
	rubato_status err = loop(r);

	r->job = NULL;
	return err;
}

static void transports_key(struct rendezvous *r, const struct rb_job *job)
{
	uint8_t key[RB_RV_KEY_BYTES];

	rb_rv_key_make(job->secret, job->secret_bytes, key);
	rb_rv_mac(key, "rubato transports 1", r->base.job, sizeof(r->base.job), "", 0, r->base.key);
	sodium_memzero(key, sizeof(key));
	r->base.elsewhere = job->secret_bytes > 0 || job->insecure;
}

rubato_status rb_rendezvous_open(const struct rb_job *job, uint64_t deadline_ns,
				 struct rb_bootstrap **out)
{
	struct rendezvous *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		int listener = job->listener;

		socket_close(&listener);
		return RB_FAIL(RUBATO_ERR_MEMORY, "rendezvous: no %zu bytes", sizeof(*r));
	}
	r->base = (struct rb_bootstrap) {
		.rank = job->rank,
		.rank_count = job->rank_count,
		.allgather = rendezvous_allgather,
		.leave = rendezvous_leave,
		.end = rendezvous_end,
		.close = rendezvous_close,
	};
	r->listener = job->listener;
	rubato_status err = join(r, job, deadline_ns);

	if (err != RUBATO_OK) {
		rendezvous_close(&r->base);
		return err;
	}
	socket_close(&r->listener);
	memcpy(r->base.job, rb_rv_job(r->machine), sizeof(r->base.job));
	transports_key(r, job);
	*out = &r->base;
	return RUBATO_OK;
}
