/*
 * shm_connect.c -- how ranks of one host meet: a socket for each pair, over which descriptors go.
 *
 * A rank listens on an abstract name that its address tells. Of a pair the lower rank calls. Each
 * checks first that the other is the same user's: the kernel lists abstract names for all users,
 * and nothing stops anybody from connecting. The caller then sends HELLO with its memory and
 * doorbell; the listener checks the job's nonce before it answers in kind.
 *
 * Then the socket is needed no more, but for two things. Where the kernel has no descriptor for the
 * peer's process, its end is the peer's end; and a process that runs another program (exec) is
 * alive, while its sockets are closed: so the highest rank of the host keeps its own with all
 * others, and tells them. A forked child keeps its parent's sockets open, so none that should be
 * seen to end is only closed: it is shut down.
 *
 * Strangers of another user are hung up on at once, and take no place. Those of the same user who
 * say nothing take one of STRANGERS_MAX, until a newcomer needs it.
 *
 * Between threads of one process (the kernel says so: equal process ids in the credentials) HELLO
 * carries a counted reference to the segment object instead of descriptors. The reference travels
 * with the message; whoever closes a socket reads what is left in it, so that none is lost.
 */
#include "transport/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

#define MAGIC 0x6f746172u
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Younger than this machine's headers. */
#endif
#define RETRY_MS 10 /* A full backlog raises no event. */
#define STRANGERS_MAX 64u
#define STRANGER_GRACE_NS 250000000u /* Guess: a HELLO follows its call within microseconds. */
#define ACCEPTS_MAX 128u             /* In a row, before those that are there get their turn. */
#define QUEUED_MAX 8192u             /* More than any backlog: what is left in it at the end. */

struct hello {
	uint32_t magic, version, rank, rank_count;
	uint8_t job[16];
	uint64_t heap_bytes;
	uint64_t object; /* struct rb_shm_segment *, in the same process; or 0. */
	int32_t process;
	uint32_t done; /* 1: the sender needs this socket no more. */
};
_Static_assert(sizeof(struct hello) == 56, "travels as it is");

/* ---- Address ---- */

struct host { /* What two ranks must share to be able to meet here. */
	uint8_t boot[36];
	uint64_t network, users; /* Namespaces. */
	uint32_t user;
};

static rubato_status host_read(struct host *host)
{
	struct stat network, users;
	int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t count = boot < 0 ? -1 : read(boot, host->boot, sizeof(host->boot));

	if (boot >= 0)
		(void)close(boot);
	if (count != (ssize_t)sizeof(host->boot) || stat("/proc/self/ns/net", &network) != 0 ||
	    stat("/proc/self/ns/user", &users) != 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "shm: /proc does not tell the host");
	host->network = network.st_ino;
	host->users = users.st_ino;
	host->user = geteuid();
	return RUBATO_OK;
}

static socklen_t socket_name(const uint8_t name[16], struct sockaddr_un *out)
{
	int at = 0;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	at = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "rubato-");
	for (int i = 0; i < 16; i++)
		at += snprintf(out->sun_path + 1 + at, sizeof(out->sun_path) - 1 - (size_t)at,
			       "%02x", name[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at);
}

static int socket_new(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

rubato_status rb_shm_listen(struct rb_shm_endpoint *ep)
{
	struct sockaddr_un name;
	socklen_t name_bytes = socket_name(ep->name, &name);

	ep->listener = socket_new();
	if (ep->listener < 0 ||
	    bind(ep->listener, (const struct sockaddr *)&name, name_bytes) != 0 ||
	    listen(ep->listener, SOMAXCONN) != 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "shm: an abstract socket: %s",
			       strerror(errno));
	return RUBATO_OK;
}

static void address_head(struct rb_wire *w, const struct host *host)
{
	rb_wire_put_u32(w, MAGIC);
	rb_wire_put_u32(w, RB_SHM_VERSION);
	rb_wire_put_bytes(w, host->boot, sizeof(host->boot));
	rb_wire_put_u64(w, host->network);
	rb_wire_put_u64(w, host->users);
	rb_wire_put_u32(w, host->user);
}

#define HEAD_BYTES (4 + 4 + 36 + 8 + 8 + 4)
#define ADDRESS_BYTES (HEAD_BYTES + 16)

rubato_status rb_shm_address(struct rb_endpoint *base, void *bytes, size_t *size_bytes)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_wire w = rb_wire_over(bytes, ADDRESS_BYTES);
	struct host host;

	RB_TRY(host_read(&host));
	address_head(&w, &host);
	rb_wire_put_bytes(&w, ep->name, sizeof(ep->name));
	RB_ASSERT(!w.bad && w.at == w.end);
	*size_bytes = ADDRESS_BYTES;
	return RUBATO_OK;
}

bool rb_shm_reachable(struct rb_endpoint *base, const void *address, size_t size_bytes)
{
	uint8_t ours[HEAD_BYTES];
	struct rb_wire w = rb_wire_over(ours, sizeof(ours));
	struct host host;

	(void)base;
	if (size_bytes != ADDRESS_BYTES || host_read(&host) != RUBATO_OK)
		return false;
	address_head(&w, &host);
	return memcmp(address, ours, sizeof(ours)) == 0;
}

/* ---- The end ---- */

/* No forked child holds up a shutdown. */
static void socket_end(int socket)
{
	(void)shutdown(socket, SHUT_RDWR);
	(void)close(socket);
}

/* Closing alone would leave it in the epoll set while a forked child holds it. */
void rb_shm_socket_end(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	if (peer->socket < 0)
		return;
	(void)epoll_ctl(ep->epoll, EPOLL_CTL_DEL, peer->socket, NULL);
	socket_end(peer->socket);
	peer->socket = -1;
}

void rb_shm_hang_up_on(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	rb_shm_socket_end(ep, peer);
	if (peer->process_fd < 0)
		return;
	(void)epoll_ctl(ep->epoll, EPOLL_CTL_DEL, peer->process_fd, NULL);
	(void)close(peer->process_fd);
	peer->process_fd = -1;
}

/*
 * A descriptor of the process at the other end, into peer->process_fd. None is no error: of a
 * process that has just ended, of an old kernel, of a namespace where it has no number.
 */
static rubato_status process_find(struct rb_shm_peer *peer, int socket, const struct ucred *process)
{
	socklen_t size_bytes = sizeof(peer->process_fd);

	if (process->pid == getpid())
		return RUBATO_OK;
	/* Since Linux 6.5, and better: numbers may mean another process by now. */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &peer->process_fd, &size_bytes) != 0)
		peer->process_fd = rb_process_open(process->pid);
	if (peer->process_fd < 0 && (errno == EMFILE || errno == ENFILE))
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: watching rank %u: %s", peer->rank,
			       strerror(errno));
	return RUBATO_OK;
}

/* ---- HELLO ---- */

struct stranger {
	int socket;
	uint64_t since_ns;
};

struct meeting { /* The state of one rb_shm_connect. */
	struct rb_shm_endpoint *ep;
	const void *const *addresses;
	const bool *use;
	int *calls;                               /* Per rank: our call to it, greeted; -1: none. */
	struct stranger strangers[STRANGERS_MAX]; /* Accepted, not yet introduced; oldest first. */
	uint32_t stranger_count;
	uint32_t missing;
	uint32_t keeper; /* The highest rank here: it keeps its sockets. */
	struct pollfd *polls;
};

static bool credentials(int socket, struct ucred *out)
{
	socklen_t size_bytes = sizeof(*out);

	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, out, &size_bytes) == 0 &&
	       out->uid == geteuid();
}

union control_space {
	struct cmsghdr head;
	uint8_t bytes[CMSG_SPACE(2 * sizeof(int))];
};

/* Whether rank `r`'s socket is needed for nothing more, as far as we are concerned. */
static bool socket_done(const struct meeting *m, uint32_t r, bool same_process)
{
	bool keeper = m->keeper == r || m->keeper == m->ep->base.rank;

	return same_process || (m->ep->peers[r].process_fd >= 0 && !keeper);
}

static rubato_status hello_send(const struct meeting *m, uint32_t r, int socket, bool same_process)
{
	struct rb_shm_endpoint *ep = m->ep;
	struct hello hello = {
		.magic = MAGIC,
		.version = RB_SHM_VERSION,
		.rank = ep->base.rank,
		.rank_count = ep->base.rank_count,
		.heap_bytes = ep->segment->layout.heap_bytes,
		.process = getpid(),
		.done = socket_done(m, r, same_process),
	};
	int descriptors[2] = { ep->segment->memory, ep->segment->doorbell };
	struct iovec part = { &hello, sizeof(hello) };
	union control_space control;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	memcpy(hello.job, ep->job, sizeof(hello.job));
	memset(&control, 0, sizeof(control));
	if (same_process) {
		hello.object = (uintptr_t)ep->segment;
		rb_shm_segment_keep(ep->segment);
	} else {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(descriptors));
		memcpy(CMSG_DATA(&control.head), descriptors, sizeof(descriptors));
	}
	if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(hello))
		return RUBATO_OK;
	if (same_process)
		rb_shm_segment_drop(ep->segment);
	return RB_FAIL(errno == EPIPE || errno == ECONNRESET ? RUBATO_ERR_PEER : RUBATO_ERR_SYSTEM,
		       "shm: greeting a peer: %s", strerror(errno));
}

struct greeting { /* A HELLO that came: with either an object or descriptors. */
	struct hello hello;
	int memory, doorbell;
	struct rb_shm_segment *object;
};

static void greeting_drop(struct greeting *g)
{
	if (g->memory >= 0)
		(void)close(g->memory);
	if (g->doorbell >= 0)
		(void)close(g->doorbell);
	rb_shm_segment_drop(g->object);
	g->memory = -1;
	g->doorbell = -1;
	g->object = NULL;
}

enum hello_result { HELLO_NONE, HELLO_GOOD, HELLO_BAD, HELLO_CLOSED };

/* All that came along is ours to close; only two of them mean something. */
static void descriptors_take(struct msghdr *message, struct greeting *g)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		bool rights = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS;
		size_t count = rights ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

		for (size_t i = 0; i < count; i++) {
			int descriptor;

			memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (count == 2 && g->memory < 0)
				g->memory = descriptor;
			else if (count == 2 && g->doorbell < 0)
				g->doorbell = descriptor;
			else
				(void)close(descriptor);
		}
	}
}

/* Of one whose user has been checked. */
static enum hello_result hello_recv(int socket, struct greeting *g)
{
	struct iovec part = { &g->hello, sizeof(g->hello) };
	union control_space control;
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct ucred peer;
	ssize_t count;

	g->memory = g->doorbell = -1;
	g->object = NULL;
	memset(&control, 0, sizeof(control));
	count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return HELLO_NONE;
	if (count <= 0)
		return HELLO_CLOSED;
	descriptors_take(&message, g);
	if (count != (ssize_t)sizeof(g->hello) || !credentials(socket, &peer))
		return HELLO_BAD;
	if (g->hello.object != 0) {
		if (peer.pid != getpid() || g->hello.process != getpid())
			return HELLO_BAD;
		g->object = (struct rb_shm_segment *)(uintptr_t)g->hello.object;
	}
	return g->object != NULL || g->memory >= 0 ? HELLO_GOOD : HELLO_BAD;
}

/* Closes a socket on which a HELLO may wait. */
static void socket_drop(int socket)
{
	struct ucred peer;
	struct greeting g;

	if (credentials(socket, &peer)) {
		(void)hello_recv(socket, &g);
		greeting_drop(&g);
	}
	socket_end(socket);
}

static bool hello_fits(const struct rb_shm_endpoint *ep, const struct hello *hello)
{
	return hello->magic == MAGIC && hello->version == RB_SHM_VERSION &&
	       hello->rank_count == ep->base.rank_count && hello->rank < hello->rank_count &&
	       hello->heap_bytes <= RB_SHM_HEAP_MAX &&
	       memcmp(hello->job, ep->job, sizeof(ep->job)) == 0;
}

/* ---- A connected peer ---- */

void rb_shm_wire(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		 struct rb_shm_segment *segment)
{
	const struct rb_shm_layout *mine = &ep->segment->layout, *theirs = &segment->layout;
	uint8_t *here = ep->segment->base, *there = segment->base;
	uint32_t own = ep->base.rank, r = peer->rank;
	size_t bulks_bytes = (size_t)RB_SHM_BULKS * RB_SHM_BULK_BYTES;

	peer->segment = segment;
	peer->in.ring = (struct rb_shm_ring *)(void *)(here + mine->rings) + r;
	peer->in.bulks = here + mine->bulks + r * bulks_bytes;
	peer->in.credit = (struct rb_shm_credit *)(void *)(here + mine->credits) + r;
	peer->out.ring = (struct rb_shm_ring *)(void *)(there + theirs->rings) + own;
	peer->out.bulks = there + theirs->bulks + own * bulks_bytes;
	peer->out.credit = (struct rb_shm_credit *)(void *)(there + theirs->credits) + own;
	peer->out.header = rb_shm_header(segment);
	peer->state = RB_SHM_CONNECTED;
	ep->active[ep->active_count++] = r;
}

static rubato_status watch(struct rb_shm_endpoint *ep, int fd, uint32_t rank)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.u32 = rank };

	if (fd >= 0 && epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: epoll: %s", strerror(errno));
	return RUBATO_OK;
}

/* Takes over the greeting's contents and, on success, the socket. */
static rubato_status peer_attach(const struct meeting *m, struct rb_shm_peer *peer, int socket,
				 struct greeting *g)
{
	struct rb_shm_endpoint *ep = m->ep;
	struct rb_shm_segment *segment = g->object;
	bool done = g->hello.done == 1 && socket_done(m, peer->rank, segment != NULL);
	rubato_status err;

	g->object = NULL;
	if (segment == NULL) {
		struct rb_shm_layout layout =
			rb_shm_layout_of(ep->base.rank_count, g->hello.heap_bytes);
		int memory = g->memory, doorbell = g->doorbell;

		g->memory = g->doorbell = -1;
		RB_TRY(rb_shm_segment_map(memory, doorbell, &layout, &segment));
	}
	err = watch(ep, peer->process_fd, peer->rank);
	if (err == RUBATO_OK && !done)
		err = watch(ep, socket, peer->rank);
	if (err != RUBATO_OK) {
		rb_shm_segment_drop(segment);
		return err;
	}
	if (done)
		socket_end(socket); /* What we said stays there to be read. */
	else
		peer->socket = socket;
	peer->process = g->hello.process;
	rb_shm_wire(ep, peer, segment);
	return RUBATO_OK;
}

/* ---- Connecting ---- */

static rubato_status call(struct meeting *m, uint32_t rank)
{
	const uint8_t *name = (const uint8_t *)m->addresses[rank] + HEAD_BYTES;
	struct sockaddr_un to;
	socklen_t to_bytes = socket_name(name, &to);
	struct ucred peer;
	int socket = socket_new();
	rubato_status err;

	if (socket < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: socket: %s", strerror(errno));
	if (connect(socket, (const struct sockaddr *)&to, to_bytes) != 0) {
		err = errno == EAGAIN || errno == EINTR ? RUBATO_OK
							: /* Its backlog is full: again, later. */
			      RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u does not listen: %s", rank,
				      strerror(errno));
		(void)close(socket);
		return err;
	}
	if (!credentials(socket, &peer)) {
		(void)close(socket);
		return RB_FAIL(RUBATO_ERR_AUTH, "shm: rank %u is another user's", rank);
	}
	err = process_find(&m->ep->peers[rank], socket, &peer);
	if (err == RUBATO_OK)
		err = hello_send(m, rank, socket, peer.pid == getpid());
	if (err != RUBATO_OK) {
		socket_end(socket);
		return err;
	}
	m->calls[rank] = socket;
	return RUBATO_OK;
}

/* The answer to our call. */
static rubato_status answer(struct meeting *m, uint32_t rank)
{
	struct greeting g;
	rubato_status err;
	enum hello_result result = hello_recv(m->calls[rank], &g);

	if (result == HELLO_NONE)
		return RUBATO_OK;
	if (result == HELLO_CLOSED)
		return RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u left while connecting", rank);
	if (result == HELLO_BAD || !hello_fits(m->ep, &g.hello) || g.hello.rank != rank) {
		greeting_drop(&g);
		return RB_FAIL(RUBATO_ERR_AUTH, "shm: who answers for rank %u is not of this job",
			       rank);
	}
	err = peer_attach(m, &m->ep->peers[rank], m->calls[rank], &g);
	greeting_drop(&g);
	if (err == RUBATO_OK) {
		m->calls[rank] = -1;
		m->missing--;
	}
	return err;
}

static void stranger_remove(struct meeting *m, uint32_t index)
{
	memmove(&m->strangers[index], &m->strangers[index + 1],
		(--m->stranger_count - index) * sizeof(m->strangers[0]));
}

/* A caller's HELLO. Whoever is not of this job is hung up on, and that is all. */
static rubato_status introduce(struct meeting *m, uint32_t index)
{
	int socket = m->strangers[index].socket;
	struct rb_shm_endpoint *ep = m->ep;
	struct rb_shm_peer *peer;
	struct ucred process;
	struct greeting g;
	rubato_status err;
	enum hello_result result = hello_recv(socket, &g);

	if (result == HELLO_NONE)
		return RUBATO_OK;
	stranger_remove(m, index);
	if (result != HELLO_GOOD || !hello_fits(ep, &g.hello) || g.hello.rank >= ep->base.rank ||
	    !m->use[g.hello.rank] || ep->peers[g.hello.rank].state != RB_SHM_UNUSED) {
		RB_LOG(RB_LOG_INFO, "shm: a caller that is not of this job was refused");
		greeting_drop(&g);
		socket_end(socket);
		return RUBATO_OK;
	}
	peer = &ep->peers[g.hello.rank];
	(void)credentials(socket, &process);
	err = process_find(peer, socket, &process);
	if (err == RUBATO_OK)
		err = hello_send(m, peer->rank, socket, g.object != NULL);
	if (err == RUBATO_OK)
		err = peer_attach(m, peer, socket, &g);
	greeting_drop(&g);
	if (err != RUBATO_OK)
		socket_end(socket);
	else
		m->missing--;
	return err;
}

/* When a place is free, or the oldest stranger may be sent away for it. */
static uint64_t place_free_ns(const struct meeting *m)
{
	return m->stranger_count < STRANGERS_MAX
		       ? 0
		       : rb_deadline(m->strangers[0].since_ns, STRANGER_GRACE_NS);
}

/* False: nobody calls. */
static bool accept_one(struct meeting *m, uint64_t now_ns)
{
	int socket = accept4(m->ep->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer;

	if (socket < 0)
		return false;
	if (!credentials(socket, &peer)) {
		RB_LOG(RB_LOG_INFO, "shm: a caller of another user was refused");
		(void)close(socket);
		return true;
	}
	if (m->stranger_count == STRANGERS_MAX) {
		RB_LOG(RB_LOG_INFO, "shm: a caller that said nothing made room for another");
		socket_drop(m->strangers[0].socket);
		stranger_remove(m, 0);
	}
	m->strangers[m->stranger_count++] = (struct stranger) { socket, now_ns };
	return true;
}

static void accept_all(struct meeting *m)
{
	uint64_t now_ns = rb_clock_ns();

	for (uint32_t i = 0; i < ACCEPTS_MAX && place_free_ns(m) <= now_ns; i++)
		if (!accept_one(m, now_ns))
			return;
}

static rubato_status meeting_step(struct meeting *m)
{
	uint32_t own = m->ep->base.rank;

	for (uint32_t r = own + 1; r < m->ep->base.rank_count; r++) {
		if (!m->use[r] || m->ep->peers[r].state != RB_SHM_UNUSED)
			continue;
		if (m->calls[r] < 0)
			RB_TRY(call(m, r));
		if (m->calls[r] >= 0)
			RB_TRY(answer(m, r));
	}
	accept_all(m);
	for (uint32_t i = m->stranger_count; i-- > 0;)
		RB_TRY(introduce(m, i));
	return RUBATO_OK;
}

static rubato_status meeting_wait(struct meeting *m, uint64_t deadline_ns)
{
	uint64_t now_ns = rb_clock_ns(), free_ns = place_free_ns(m), until_ns = deadline_ns;
	uint32_t count = 0, absent = 0;
	bool retry = false;

	if (free_ns <= now_ns)
		m->polls[count++] = (struct pollfd) { m->ep->listener, POLLIN, 0 };
	else if (free_ns < until_ns)
		until_ns = free_ns;
	for (uint32_t i = 0; i < m->stranger_count; i++)
		m->polls[count++] = (struct pollfd) { m->strangers[i].socket, POLLIN, 0 };
	for (uint32_t r = m->ep->base.rank_count; r-- > 0;) {
		if (!m->use[r] || m->ep->peers[r].state != RB_SHM_UNUSED)
			continue;
		absent = r;
		if (m->calls[r] >= 0)
			m->polls[count++] = (struct pollfd) { m->calls[r], POLLIN, 0 };
		else if (r > m->ep->base.rank)
			retry = true;
	}
	if (now_ns >= deadline_ns)
		return RB_FAIL(RUBATO_ERR_TIMEOUT, "shm: rank %u did not connect (%u missing)",
			       absent, m->missing);
	now_ns = (until_ns - now_ns) / 1000000 + 1;
	(void)poll(m->polls, count, retry ? RETRY_MS : now_ns > 1000 ? 1000 : (int)now_ns);
	return RUBATO_OK;
}

static rubato_status meet(struct meeting *m, const size_t *address_bytes, uint64_t deadline_ns)
{
	struct rb_shm_endpoint *ep = m->ep;

	for (uint32_t r = 0; r < ep->base.rank_count; r++) {
		if (!m->use[r] || r == ep->base.rank)
			continue;
		if (address_bytes[r] != ADDRESS_BYTES)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: rank %u has no shm address", r);
		m->missing++;
		m->keeper = r > m->keeper ? r : m->keeper;
	}
	rb_shm_segment_keep(ep->segment);
	rb_shm_wire(ep, &ep->peers[ep->base.rank], ep->segment);
	RB_TRY(meeting_step(m));
	while (m->missing > 0) {
		RB_TRY(meeting_wait(m, deadline_ns));
		RB_TRY(meeting_step(m));
	}
	return RUBATO_OK;
}

static void listener_drop(struct rb_shm_endpoint *ep)
{
	int socket;

	if (ep->listener < 0)
		return;
	for (uint32_t i = 0; i < QUEUED_MAX; i++) {
		socket = accept4(ep->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (socket < 0)
			break;
		socket_drop(socket);
	}
	socket_end(ep->listener);
	ep->listener = -1;
}

rubato_status rb_shm_connect(struct rb_endpoint *base, const void *const *addresses,
			     const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct meeting m = { .ep = ep, .addresses = addresses, .use = use, .keeper = base->rank };
	rubato_status err;

	m.calls = calloc(base->rank_count, sizeof(*m.calls));
	m.polls = calloc((size_t)base->rank_count + 1 + STRANGERS_MAX, sizeof(*m.polls));
	if (m.calls == NULL || m.polls == NULL) {
		err = RB_FAIL(RUBATO_ERR_MEMORY, "shm: a meeting of %u", base->rank_count);
	} else {
		for (uint32_t r = 0; r < base->rank_count; r++)
			m.calls[r] = -1;
		err = meet(&m, address_bytes, deadline_ns);
		for (uint32_t r = 0; r < base->rank_count; r++) {
			if (m.calls[r] >= 0)
				socket_drop(m.calls[r]);
		}
		for (uint32_t i = 0; i < m.stranger_count; i++)
			socket_drop(m.strangers[i].socket);
		listener_drop(ep);
	}
	free(m.polls);
	free(m.calls);
	return err;
}

void rb_shm_hang_up(struct rb_shm_endpoint *ep)
{
	listener_drop(ep);
	for (uint32_t r = 0; ep->peers != NULL && r < ep->base.rank_count; r++)
		rb_shm_hang_up_on(ep, &ep->peers[r]);
}
