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
 * tells of a counted reference to the segment object, left at the other's door (shm_door.c),
 * instead of descriptors.
 */
#include "transport/lost.h"
#include "transport/shm/shm.h"

#include <errno.h>
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
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"

#define MAGIC 0x6f746172u
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Younger than this machine's headers. */
#endif
#define RETRY_MS 10         /* A full backlog raises no event. */
#define EXIT_MS 50          /* Guess: from one end of a process to the next that it brings about; */
#define EXITS_NS 300000000u /* and of all together. */
#define STRANGERS_MAX 64u
#define STRANGER_GRACE_NS 250000000u /* Guess: a HELLO follows its call within microseconds. */
#define ACCEPTS_MAX 128u             /* In a row, before those that are there get their turn. */
#define LEAVES 2u                    /* In hello.done: the caller gives up; no memory is told. */

struct hello {
	uint32_t magic, version, rank, rank_count;
	uint8_t job[16];
	uint64_t heap_bytes;
	uint64_t object; /* Which segment lies at the door, in the same process; or 0. */
	int32_t process;
	uint32_t done;            /* 1: the sender needs this socket no more; or LEAVES. */
	uint64_t probe, probe_at; /* A word of the sender's memory, and where; 0: not to be
				   * attached. */
};
_Static_assert(sizeof(struct hello) == 72, "travels as it is");

/* ---- Address ---- */

struct host { /* What two ranks must share to be able to meet here. */
	uint8_t boot[RB_BOOT_ID_BYTES];
	uint64_t network, users; /* Namespaces. */
	uint32_t user;
};

static rubato_status host_read(struct host *host)
{
	struct stat network, users;

	if (!rb_boot_id(host->boot) || stat("/proc/self/ns/net", &network) != 0 ||
	    stat("/proc/self/ns/user", &users) != 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "shm: /proc does not tell the host: %s",
			       RB_ERRNO_TEXT(errno));
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
			       RB_ERRNO_TEXT(errno));
	rb_shm_door_open(&ep->door, ep->name);
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

#define HEAD_BYTES (4 + 4 + RB_BOOT_ID_BYTES + 8 + 8 + 4)
#define ADDRESS_BYTES (HEAD_BYTES + 8 + 8 + 4 + 16)

struct address {             /* What follows the head. */
	uint64_t room_bytes; /* Address space that is left to it; UINT64_MAX: without limit. */
	uint64_t processes;  /* The namespace in which the process has its number. */
	int32_t process;
	uint8_t name[16];
};

static uint64_t processes_namespace(void)
{
	struct stat about;

	return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

static uint64_t room_here(void)
{
	struct rb_limit l = rb_limit_address_space();

	return l.limit == UINT64_MAX ? UINT64_MAX : l.limit > l.used ? l.limit - l.used : 0;
}

static struct address address_read(const void *bytes)
{
	struct rb_wire w = rb_wire_over((uint8_t *)(uintptr_t)bytes, ADDRESS_BYTES);
	struct address a;

	w.at += HEAD_BYTES;
	a.room_bytes = rb_wire_get_u64(&w);
	a.processes = rb_wire_get_u64(&w);
	a.process = (int32_t)rb_wire_get_u32(&w);
	rb_wire_get_bytes(&w, a.name, sizeof(a.name));
	return a;
}

rubato_status rb_shm_address(struct rb_endpoint *base, void *bytes, size_t *size_bytes)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct rb_wire w = rb_wire_over(bytes, ADDRESS_BYTES);
	struct host host;

	RB_TRY(host_read(&host));
	address_head(&w, &host);
	rb_wire_put_u64(&w, room_here());
	rb_wire_put_u64(&w, processes_namespace());
	rb_wire_put_u32(&w, (uint32_t)getpid());
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

/* Over whom we then give up, others are told. */
static rubato_status process_ended(struct rb_shm_endpoint *ep, const struct rb_shm_peer *peer)
{
	ep->base.blames = peer->rank + 1;
	return RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u is lost: process %d ended", peer->rank,
		       (int)peer->process);
}

/*
 * A descriptor of the peer's process, by the number that its address tells. None is no error, if
 * this kernel has no such descriptors.
 */
static rubato_status process_open(struct rb_shm_peer *peer, const struct address *address)
{
	peer->process = address->process;
	if (address->processes != processes_namespace() || address->process == getpid())
		return RUBATO_OK;
	peer->process_fd = rb_process_open(address->process);
	if (peer->process_fd >= 0)
		return RUBATO_OK;
	if (errno == ESRCH) {
		peer->gone = true;
		return RUBATO_OK;
	}
	if (errno == EMFILE || errno == ENFILE)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: watching rank %u: %s", peer->rank,
			       RB_ERRNO_TEXT(errno));
	return RUBATO_OK;
}

/* Of one in another namespace, where numbers say nothing (since Linux 6.5). */
static void process_take(struct rb_shm_peer *peer, int socket, const struct ucred *process)
{
	socklen_t size_bytes = sizeof(peer->process_fd);

	if (peer->process_fd >= 0 || process->pid == getpid())
		return;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &peer->process_fd, &size_bytes) != 0)
		peer->process_fd = -1;
}

/* ---- HELLO ---- */

struct waited {
	enum { LISTENER, STRANGER, CALL, PROCESS } kind;
	uint32_t index; /* Rank, or place among the strangers. */
};

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
	struct waited *waited; /* What each of `polls` is. */
	uint32_t poll_count;
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
		.probe = ep->probe,
		.probe_at = ep->attach == RB_ATTACH_NEVER ? 0 : (uintptr_t)&ep->probe,
	};
	int descriptors[2] = { ep->segment->memory, ep->segment->doorbell };
	struct iovec part = { &hello, sizeof(hello) };
	union control_space control;
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	memcpy(hello.job, ep->job, sizeof(hello.job));
	memset(&control, 0, sizeof(control));
	if (same_process)
		RB_TRY(rb_shm_door_leave(address_read(m->addresses[r]).name, ep->segment,
					 &same_process));
	hello.done = socket_done(m, r, same_process);
	if (same_process) {
		hello.object = (uintptr_t)ep->segment;
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
	return RB_FAIL(errno == EPIPE || errno == ECONNRESET ? RUBATO_ERR_PEER : RUBATO_ERR_SYSTEM,
		       "shm: rank %u left while connecting: %s", r, RB_ERRNO_TEXT(errno));
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

enum hello_result { HELLO_NONE, HELLO_GOOD, HELLO_BAD, HELLO_CLOSED, HELLO_CUT, HELLO_LEAVES };

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
static enum hello_result hello_recv(struct rb_shm_endpoint *ep, int socket, struct greeting *g)
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
	if ((message.msg_flags & MSG_CTRUNC) != 0 && g->memory < 0)
		return HELLO_CUT; /* There was no place here for what it sent along. */
	if (g->hello.done == LEAVES)
		return HELLO_LEAVES;
	if (g->hello.object != 0) {
		if (peer.pid != getpid() || g->hello.process != getpid())
			return HELLO_BAD;
		g->object = rb_shm_door_take(&ep->door, g->hello.object);
	}
	return g->object != NULL || g->memory >= 0 ? HELLO_GOOD : HELLO_BAD;
}

static rubato_status descriptors_missing(uint32_t rank)
{
	return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: the memory of rank %u: %s", rank,
		       RB_ERRNO_TEXT(EMFILE));
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
	peer->in.credit = (struct rb_shm_credit *)(void *)(here + mine->credits) + r;
	peer->out.ring = (struct rb_shm_ring *)(void *)(there + theirs->rings) + own;
	peer->out.credit = (struct rb_shm_credit *)(void *)(there + theirs->credits) + own;
	peer->out.header = rb_shm_header(segment);
	peer->out.copy = ep->copy;
	peer->bulks = (struct rb_shm_bulks) { .theirs = there + theirs->bulks + own * bulks_bytes,
					      .own = here + mine->bulks + r * bulks_bytes,
					      .theirs_credit = peer->out.credit,
					      .own_credit = peer->in.credit };
	rb_shm_bulks_reset(&peer->bulks);
	peer->state = RB_SHM_CONNECTED;
	ep->active[ep->active_count++] = r;
}

static rubato_status watch(struct rb_shm_endpoint *ep, int fd, uint32_t rank)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.u32 = rank };

	if (fd >= 0 && epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: epoll: %s", RB_ERRNO_TEXT(errno));
	return RUBATO_OK;
}

/* Takes over the greeting's contents and, on success, the socket. */
static rubato_status peer_attach(const struct meeting *m, struct rb_shm_peer *peer, int socket,
				 struct greeting *g)
{
	struct rb_shm_endpoint *ep = m->ep;
	struct rb_shm_segment *segment = g->object;
	bool done = g->hello.done == 1 && socket_done(m, peer->rank, segment != NULL);
	struct ucred process = { 0 };
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
	(void)credentials(socket, &process);
	if (done)
		socket_end(socket); /* What we said stays there to be read. */
	else
		peer->socket = socket;
	peer->process = g->hello.process;
	rb_shm_wire(ep, peer, segment);
	rb_shm_attach_try(ep, peer, process.pid, g->hello.probe_at, g->hello.probe);
	return RUBATO_OK;
}

/* ---- Connecting ---- */

static int dial(const void *to, int socket)
{
	struct address address = address_read(to);
	struct sockaddr_un name;
	socklen_t name_bytes = socket_name(address.name, &name);

	return connect(socket, (const struct sockaddr *)&name, name_bytes);
}

void rb_shm_call_off(struct rb_endpoint *base, uint32_t rank, const void *address,
		     size_t address_bytes)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct hello hello = { .magic = MAGIC,
			       .version = RB_SHM_VERSION,
			       .rank = base->rank,
			       .rank_count = base->rank_count,
			       .done = LEAVES };
	int socket = -1;

	if (rank > base->rank && ep->peers[rank].state == RB_SHM_UNUSED &&
	    rb_shm_reachable(base, address, address_bytes))
		socket = socket_new();
	if (socket < 0)
		return;
	memcpy(hello.job, ep->job, sizeof(hello.job));
	if (dial(address, socket) == 0)
		(void)send(socket, &hello, sizeof(hello), MSG_NOSIGNAL);
	(void)close(socket); /* What we said stays there to be read. */
}

static rubato_status call(struct meeting *m, uint32_t rank)
{
	struct ucred peer;
	int socket = socket_new();
	rubato_status err;

	if (socket < 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: socket: %s", RB_ERRNO_TEXT(errno));
	if (dial(m->addresses[rank], socket) != 0) {
		err = errno == EAGAIN || errno == EINTR ? RUBATO_OK
							: /* Its backlog is full: again, later. */
			      RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u does not listen: %s", rank,
				      strerror(errno));
		(void)close(socket);
		return err;
	}
	if (!credentials(socket, &peer)) {
		(void)close(socket);
		return RB_FAIL(RUBATO_ERR_AUTH, "shm: rank %u belongs to another user", rank);
	}
	process_take(&m->ep->peers[rank], socket, &peer);
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
	enum hello_result result = hello_recv(m->ep, m->calls[rank], &g);

	if (result == HELLO_NONE)
		return RUBATO_OK;
	if (result == HELLO_CLOSED)
		return RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u left while connecting", rank);
	if (result == HELLO_CUT) {
		greeting_drop(&g);
		return descriptors_missing(rank);
	}
	if (result != HELLO_GOOD || !hello_fits(m->ep, &g.hello) || g.hello.rank != rank) {
		greeting_drop(&g);
		return RB_FAIL(RUBATO_ERR_AUTH,
			       "shm: the process that answers for rank %u is not of this job",
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
	enum hello_result result = hello_recv(ep, socket, &g);

	if (result == HELLO_NONE)
		return RUBATO_OK;
	stranger_remove(m, index);
	if (result == HELLO_CUT && hello_fits(ep, &g.hello)) {
		greeting_drop(&g);
		socket_end(socket);
		return descriptors_missing(g.hello.rank);
	}
	if ((result != HELLO_GOOD && result != HELLO_LEAVES) || !hello_fits(ep, &g.hello) ||
	    g.hello.rank >= ep->base.rank || !m->use[g.hello.rank] ||
	    ep->peers[g.hello.rank].state != RB_SHM_UNUSED) {
		RB_LOG(RB_LOG_INFO, "shm: a caller that is not of this job was refused");
		greeting_drop(&g);
		socket_end(socket);
		return RUBATO_OK;
	}
	if (result == HELLO_LEAVES) {
		greeting_drop(&g);
		socket_end(socket);
		return RB_FAIL(RUBATO_ERR_PEER, "shm: rank %u gave up", g.hello.rank);
	}
	peer = &ep->peers[g.hello.rank];
	(void)credentials(socket, &process);
	process_take(peer, socket, &process);
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

/* *any false: nobody calls. */
static rubato_status accept_one(struct meeting *m, uint64_t now_ns, bool *any)
{
	int socket = accept4(m->ep->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer;

	*any = socket >= 0;
	if (socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: cannot accept a connection: %s",
			       RB_ERRNO_TEXT(errno));
	if (socket < 0)
		return RUBATO_OK;
	if (!credentials(socket, &peer)) {
		RB_LOG(RB_LOG_INFO, "shm: a caller of another user was refused");
		(void)close(socket);
		return RUBATO_OK;
	}
	if (m->stranger_count == STRANGERS_MAX) {
		RB_LOG(RB_LOG_INFO, "shm: a caller that said nothing made room for another");
		socket_end(m->strangers[0].socket);
		stranger_remove(m, 0);
	}
	m->strangers[m->stranger_count++] = (struct stranger) { socket, now_ns };
	return RUBATO_OK;
}

static rubato_status accept_all(struct meeting *m)
{
	uint64_t now_ns = rb_clock_ns();
	bool any = true;

	for (uint32_t i = 0; any && i < ACCEPTS_MAX && place_free_ns(m) <= now_ns; i++)
		RB_TRY(accept_one(m, now_ns, &any));
	return RUBATO_OK;
}

static bool is_missing(const struct meeting *m, uint32_t r)
{
	return m->use[r] && m->ep->peers[r].state == RB_SHM_UNUSED;
}

/* Calls all whom we have to call, and have not yet. */
static rubato_status call_all(struct meeting *m, bool *again)
{
	*again = false;
	for (uint32_t r = m->ep->base.rank + 1; r < m->ep->base.rank_count; r++) {
		if (!is_missing(m, r) || m->calls[r] >= 0)
			continue;
		RB_TRY(call(m, r));
		*again |= m->calls[r] < 0;
	}
	return RUBATO_OK;
}

static void poll_add(struct meeting *m, int fd, struct waited what)
{
	if (fd < 0)
		return;
	m->polls[m->poll_count] = (struct pollfd) { fd, POLLIN, 0 };
	m->waited[m->poll_count++] = what;
}

static void polls_fill(struct meeting *m, bool listen)
{
	m->poll_count = 0;
	if (listen)
		poll_add(m, m->ep->listener, (struct waited) { LISTENER, 0 });
	for (uint32_t i = 0; i < m->stranger_count; i++)
		poll_add(m, m->strangers[i].socket, (struct waited) { STRANGER, i });
	for (uint32_t r = 0; r < m->ep->base.rank_count; r++) {
		if (!is_missing(m, r))
			continue;
		poll_add(m, m->calls[r], (struct waited) { CALL, r });
		poll_add(m, m->ep->peers[r].process_fd, (struct waited) { PROCESS, r });
	}
}

static rubato_status event_take(struct meeting *m, struct waited what)
{
	switch (what.kind) {
	case LISTENER:
		return accept_all(m);
	case STRANGER:
		return introduce(m, what.index);
	case CALL:
		return answer(m, what.index);
	case PROCESS: /* What it said before it ended came first. */
		return is_missing(m, what.index) ? process_ended(m->ep, &m->ep->peers[what.index])
						 : RUBATO_OK;
	}
	return RUBATO_OK;
}

/* Strangers from the last to the first, since each goes from its place; then newcomers. */
static rubato_status events_take(struct meeting *m)
{
	uint32_t strangers = 0;

	while (strangers < m->poll_count && m->waited[strangers].kind <= STRANGER)
		strangers++;
	for (uint32_t i = strangers; i-- > 0;)
		if (m->polls[i].revents != 0)
			RB_TRY(event_take(m, m->waited[i]));
	for (uint32_t i = strangers; i < m->poll_count; i++)
		if (m->polls[i].revents != 0)
			RB_TRY(event_take(m, m->waited[i]));
	return RUBATO_OK;
}

static rubato_status timed_out(const struct meeting *m)
{
	uint32_t r = 0;

	while (!is_missing(m, r))
		r++;
	return RB_FAIL(RUBATO_ERR_TIMEOUT, "shm: rank %u did not connect (%u missing)", r,
		       m->missing);
}

static rubato_status meeting_wait(struct meeting *m, bool again, uint64_t deadline_ns)
{
	uint64_t now_ns = rb_clock_ns(), free_ns = place_free_ns(m), until_ns = deadline_ns;
	int count;

	if (now_ns >= deadline_ns)
		return timed_out(m);
	if (free_ns > now_ns && free_ns < until_ns)
		until_ns = free_ns;
	polls_fill(m, free_ns <= now_ns);
	now_ns = (until_ns - now_ns) / 1000000 + 1;
	count = poll(m->polls, m->poll_count,
		     again           ? RETRY_MS
		     : now_ns > 1000 ? 1000
				     : (int)now_ns);
	if (count < 0 && errno != EINTR)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "shm: poll of %u: %s", m->poll_count,
			       RB_ERRNO_TEXT(errno));
	return count > 0 ? events_take(m) : RUBATO_OK;
}

static bool has_ended(const struct rb_shm_peer *peer)
{
	return peer->gone || (peer->process_fd >= 0 && rb_process_ended(peer->process_fd));
}

/* Our call to it was hung up on. */
static bool has_hung_up(const struct meeting *m, uint32_t r)
{
	char byte;
	ssize_t count;

	if (m->calls[r] < 0)
		return false;
	count = recv(m->calls[r], &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
	return count == 0 || (count < 0 && errno == ECONNRESET);
}

/* Waits until no more processes end. One that was killed closes its sockets first: those who saw
 * that may have given up, and have ended, before it is seen to. */
static void ends_await(struct meeting *m)
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), EXITS_NS);

	do {
		m->poll_count = 0;
		for (uint32_t r = 0; r < m->ep->base.rank_count; r++) {
			const struct rb_shm_peer *peer = &m->ep->peers[r];

			if (m->use[r] && !has_ended(peer))
				poll_add(m, peer->process_fd, (struct waited) { PROCESS, r });
		}
	} while (m->poll_count > 0 && poll(m->polls, m->poll_count, EXIT_MS) > 0 &&
		 rb_clock_ns() < until_ns);
}

/* Whoever fails to meet somebody may have met one that gave up because of a third: all
 * are named who have ended, or hung up. */
static rubato_status cause_find(struct meeting *m, rubato_status err)
{
	struct rb_lost lost = { .count = 0 };
	char first[200];

	if (err != RUBATO_ERR_PEER)
		return err;
	(void)snprintf(first, sizeof(first), "%s", rubato_error_text());
	ends_await(m);
	for (uint32_t r = 0; r < m->ep->base.rank_count; r++) {
		if (!m->use[r] || !(has_ended(&m->ep->peers[r]) || has_hung_up(m, r)))
			continue;
		if (m->ep->base.blames == 0)
			m->ep->base.blames = r + 1;
		rb_lost_add(&lost, r);
	}
	return lost.count == 0 ? RB_FAIL(err, "%s", first)
			       : RB_FAIL(err, "%s; gone by now: ranks %s (%u of %u)", first,
					 lost.ranks, lost.count, m->ep->base.rank_count);
}

/*
 * What is to be met, and what that takes. Every rank maps the segments of all: so none is larger
 * than the least room that one of them has, divided by all of them and one more, which is left to
 * the process.
 */
static rubato_status addresses_take(struct meeting *m, const size_t *address_bytes,
				    uint64_t *share_bytes)
{
	struct rb_shm_endpoint *ep = m->ep;
	uint64_t room_bytes = UINT64_MAX, descriptors = 2; /* Memory and doorbell. */

	for (uint32_t r = 0; r < ep->base.rank_count; r++) {
		struct address address;

		if (!m->use[r])
			continue;
		if (address_bytes[r] != ADDRESS_BYTES)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "shm: rank %u has no shm address", r);
		address = address_read(m->addresses[r]);
		room_bytes = address.room_bytes < room_bytes ? address.room_bytes : room_bytes;
		if (r == ep->base.rank)
			continue;
		m->missing++;
		m->keeper = r > m->keeper ? r : m->keeper;
		/* Process, doorbell, and the socket until they have met; of a thread the latter. */
		descriptors += address.process == getpid() ? 1 : 3;
	}
	*share_bytes = room_bytes == UINT64_MAX ? UINT64_MAX : room_bytes / (m->missing + 2);
	return m->missing == 0 ? RUBATO_OK
			       : rb_limit_descriptors_check("shm, for the ranks of this machine,",
							    descriptors);
}

/* All are looked at, so that all that have ended can be named. */
static rubato_status processes_open(struct meeting *m)
{
	rubato_status err = RUBATO_OK;

	for (uint32_t r = 0; r < m->ep->base.rank_count; r++) {
		struct rb_shm_peer *peer = &m->ep->peers[r];
		struct address address;

		if (!m->use[r] || r == m->ep->base.rank)
			continue;
		address = address_read(m->addresses[r]);
		RB_TRY(process_open(peer, &address));
		if (err == RUBATO_OK && has_ended(peer))
			err = process_ended(m->ep, peer);
	}
	return err;
}

static rubato_status meet(struct meeting *m, const size_t *address_bytes, uint64_t deadline_ns)
{
	struct rb_shm_endpoint *ep = m->ep;
	uint64_t share_bytes;
	bool again;

	RB_TRY(addresses_take(m, address_bytes, &share_bytes));
	RB_TRY(processes_open(m));
	RB_TRY(rb_shm_segment_open(ep, share_bytes));
	rb_shm_segment_keep(ep->segment);
	rb_shm_wire(ep, &ep->peers[ep->base.rank], ep->segment);
	rb_shm_attach_try(ep, &ep->peers[ep->base.rank], getpid(), (uintptr_t)&ep->probe,
			  ep->probe);
	while (m->missing > 0) {
		RB_TRY(call_all(m, &again));
		RB_TRY(meeting_wait(m, again, deadline_ns));
	}
	return RUBATO_OK;
}

static void listener_end(struct rb_shm_endpoint *ep)
{
	if (ep->listener >= 0)
		socket_end(ep->listener);
	ep->listener = -1;
	rb_shm_door_close(&ep->door);
}

rubato_status rb_shm_connect(struct rb_endpoint *base, const void *const *addresses,
			     const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	struct meeting m = { .ep = ep, .addresses = addresses, .use = use, .keeper = base->rank };
	rubato_status err;

	m.calls = calloc(base->rank_count, sizeof(*m.calls));
	m.polls = calloc(2 * (size_t)base->rank_count + 1 + STRANGERS_MAX, sizeof(*m.polls));
	m.waited = calloc(2 * (size_t)base->rank_count + 1 + STRANGERS_MAX, sizeof(*m.waited));
	if (m.calls == NULL || m.polls == NULL || m.waited == NULL) {
		err = RB_FAIL(RUBATO_ERR_MEMORY, "shm: a meeting of %u", base->rank_count);
	} else {
		for (uint32_t r = 0; r < base->rank_count; r++)
			m.calls[r] = -1;
		err = cause_find(&m, meet(&m, address_bytes, deadline_ns));
		for (uint32_t r = 0; r < base->rank_count; r++) {
			if (m.calls[r] >= 0)
				socket_end(m.calls[r]);
		}
		for (uint32_t i = 0; i < m.stranger_count; i++)
			socket_end(m.strangers[i].socket);
		listener_end(ep);
	}
	free(m.polls);
	free(m.waited);
	free(m.calls);
	return err;
}

void rb_shm_hang_up(struct rb_shm_endpoint *ep)
{
	listener_end(ep);
	for (uint32_t r = 0; ep->peers != NULL && r < ep->base.rank_count; r++)
		rb_shm_hang_up_on(ep, &ep->peers[r]);
}
