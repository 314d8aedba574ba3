/*
 * verbs_tcp.c -- who connects over TCP: listening, addresses, proofs.
 *
 * Each rank listens; where, travels with the addresses of its rails. To whom no rail is left, one
 * connects, and is connected to: a connection carries what the end sends that made it, so that it
 * does not matter who begins, or that both do. Both prove that they have the job's key, by
 * HMAC-SHA256 over a nonce of each. Without a secret that is no proof, and only this machine's own
 * address is used.
 *
 *	listens                connects
 *	   nonce   ------------->
 *	           <------------- greeting: who, to whom, nonce, proof
 *	   proof   ------------->
 *	           <------------- frames ...
 *
 * A peer that computes answers late: who is connected and hears nothing tries its other addresses,
 * and this one again. A peer that refuses at all of them has gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs_spare.h"

#define MAGIC 0x53524252u /* "RBRS" */
#define STRANGERS 16u     /* Who have not proved themselves, at a time. */
#define STRANGER_TICKS 5u /* Then they go. */
#define CALL_TICKS 3u     /* For one address; where it is silent, */
#define PATIENCE_MAX 8u   /* as often twice as many: what it has not taken waits there. */
#define ROUNDS_MAX 3u     /* Of addresses at which somebody hangs up. */
#define QUIET_S 10        /* Of a connection: then the other end's machine has gone. */
#define BACKLOG 64
#define LABEL_CONNECTS "rubato verbs connects"
#define LABEL_LISTENS "rubato verbs listens"

_Static_assert(RB_VERBS_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "of HMAC-SHA256");

struct greeting {
	uint32_t magic, rank, to;
	uint8_t nonce[RB_VERBS_NONCE_BYTES];
	uint8_t proof[RB_VERBS_PROOF_BYTES];
};
_Static_assert(sizeof(struct greeting) == 12 + RB_VERBS_NONCE_BYTES + RB_VERBS_PROOF_BYTES,
	       "travels as it is");

struct stranger {
	int fd;
	uint32_t ticks;
	size_t got;
	uint8_t nonce[RB_VERBS_NONCE_BYTES];
	struct greeting greeting;
};

struct rb_verbs_listener {
	int fd;
	struct rb_verbs_ways own, *theirs; /* One for each rank. */
	uint8_t key[RB_JOB_KEY_BYTES];
	struct stranger strangers[STRANGERS];
};

void rb_verbs_fd_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static bool would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool rb_verbs_fd_watch(struct rb_verbs *vb, int how, int fd, uint32_t events, uint32_t what)
{
	struct epoll_event event = { .events = events, .data.u32 = what };

	return epoll_ctl(vb->watch_fd, how, fd, &event) == 0;
}

/* A machine that has gone is found; one whose process computes answers by its kernel. */
static void fd_set_up(int fd)
{
	const int on = 1, idle = 1, times = QUIET_S, limit_ms = QUIET_S * 1000;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
}

/* ---- Proofs ---- */

static void proof_make(const struct rb_verbs *vb, const char *label,
		       const uint8_t nonce[RB_VERBS_NONCE_BYTES], const struct greeting *greeting,
		       uint8_t proof[RB_VERBS_PROOF_BYTES])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, vb->listener->key, RB_JOB_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label) + 1);
	crypto_auth_hmacsha256_update(&state, vb->job, sizeof(vb->job));
	crypto_auth_hmacsha256_update(&state, nonce, RB_VERBS_NONCE_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)greeting,
				      offsetof(struct greeting, proof));
	crypto_auth_hmacsha256_final(&state, proof);
	sodium_memzero(&state, sizeof(state));
}

static bool is_proved(const struct rb_verbs *vb, const char *label,
		      const uint8_t nonce[RB_VERBS_NONCE_BYTES], const struct greeting *greeting,
		      const uint8_t theirs[RB_VERBS_PROOF_BYTES])
{
	uint8_t proof[RB_VERBS_PROOF_BYTES];

	proof_make(vb, label, nonce, greeting, proof);
	return sodium_memcmp(proof, theirs, sizeof(proof)) == 0;
}

static struct greeting greeting_of(const struct rb_verbs *vb, const struct rb_verbs_spare *spare)
{
	struct greeting greeting = { .magic = MAGIC,
				     .rank = vb->base.rank,
				     .to = spare->peer->rank };

	memcpy(greeting.nonce, spare->ours, sizeof(greeting.nonce));
	return greeting;
}

/* ---- Connecting ---- */

static socklen_t way_address(const struct rb_verbs_way *way, uint16_t port,
			     struct sockaddr_storage *out)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;
	struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;

	memset(out, 0, sizeof(*out));
	if (way->is_ipv6) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		memcpy(&six->sin6_addr, way->bytes, 16);
		return sizeof(*six);
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(port);
	memcpy(&four->sin_addr, way->bytes, 4);
	return sizeof(*four);
}

/* By this address not, or not now. */
static void call_failed(struct rb_verbs *vb, struct rb_verbs_spare *spare, int error)
{
	(void)snprintf(spare->last, sizeof(spare->last), "%s", strerror(error));
	rb_verbs_fd_close(&spare->out_fd);
	spare->call = RB_VERBS_CALL_NONE;
	rb_verbs_stir(vb, spare->peer);
}

/* All addresses were tried. False: there is no use in another round. */
static bool round_begin(struct rb_verbs_spare *spare)
{
	bool again = spare->silent || (spare->refused && spare->rounds + 1 < ROUNDS_MAX);

	spare->rests = !spare->silent;
	spare->patience += spare->silent && spare->patience < PATIENCE_MAX;
	spare->rounds += !spare->silent;
	spare->way = 0;
	spare->silent = spare->refused = false;
	return again;
}

void rb_verbs_call(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	struct rb_verbs_peer *peer = spare->peer;
	const struct rb_verbs_ways *ways = rb_verbs_ways_to(vb, peer->rank);
	struct sockaddr_storage to;
	socklen_t to_bytes;

	if (spare->call != RB_VERBS_CALL_NONE || spare->rests)
		return;
	if (spare->way == ways->count) {
		if (!round_begin(spare))
			rb_verbs_spare_failed(vb, spare, spare->last);
		else
			rb_verbs_stir(vb, peer);
		return;
	}
	to_bytes = way_address(&ways->each[spare->way++], ways->port, &to);
	spare->got = 0;
	spare->ticks = 0;
	randombytes_buf(spare->ours, sizeof(spare->ours));
	spare->out_fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (spare->out_fd < 0) {
		call_failed(vb, spare, errno);
		return;
	}
	fd_set_up(spare->out_fd);
	spare->call = RB_VERBS_CALL_CONNECTS;
	if ((connect(spare->out_fd, (struct sockaddr *)&to, to_bytes) != 0 &&
	     errno != EINPROGRESS && errno != EINTR) ||
	    !rb_verbs_fd_watch(vb, EPOLL_CTL_ADD, spare->out_fd, EPOLLIN | EPOLLOUT,
			       RB_VERBS_WATCH_OUT | peer->rank))
		call_failed(vb, spare, errno);
}

/* TCP lets a socket connect to itself when it happens to get the port that it looks for. */
static bool is_own(int fd)
{
	struct sockaddr_storage here = { 0 }, there = { 0 };
	socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);

	return getsockname(fd, (struct sockaddr *)&here, &here_bytes) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_bytes) == 0 &&
	       memcmp(&here, &there, sizeof(here)) == 0;
}

static void call_connected(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	socklen_t bytes = sizeof(int);
	int error = 0;

	if (getsockopt(spare->out_fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
		error = errno;
	if (error == 0 && is_own(spare->out_fd))
		error = ECONNREFUSED;
	if (error == 0 && !rb_verbs_fd_watch(vb, EPOLL_CTL_MOD, spare->out_fd, EPOLLIN,
					     RB_VERBS_WATCH_OUT | spare->peer->rank))
		error = errno;
	if (error != 0)
		call_failed(vb, spare, error);
	else
		spare->call = RB_VERBS_CALL_HEARS;
}

/* So many bytes are there; else false, also when the other one has hung up. */
static bool call_got(struct rb_verbs *vb, struct rb_verbs_spare *spare, size_t bytes)
{
	ssize_t got = recv(spare->out_fd, spare->back + spare->got, bytes - spare->got, 0);

	if (got < 0 && would_block())
		return false;
	if (got > 0) {
		spare->got += (size_t)got;
		return spare->got == bytes;
	}
	spare->refused = true;
	call_failed(vb, spare, got == 0 ? ECONNABORTED : errno);
	return false;
}

static void call_greet(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	struct greeting ours = greeting_of(vb, spare);

	if (!call_got(vb, spare, RB_VERBS_NONCE_BYTES))
		return;
	spare->got = 0;
	memcpy(spare->theirs, spare->back, RB_VERBS_NONCE_BYTES);
	proof_make(vb, LABEL_CONNECTS, spare->theirs, &ours, ours.proof);
	if (send(spare->out_fd, &ours, sizeof(ours), MSG_NOSIGNAL) == (ssize_t)sizeof(ours))
		spare->call = RB_VERBS_CALL_ASKS;
	else
		call_failed(vb, spare, errno);
}

static void call_open(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	struct greeting ours = greeting_of(vb, spare);

	if (!call_got(vb, spare, RB_VERBS_PROOF_BYTES))
		return;
	if (!is_proved(vb, LABEL_LISTENS, spare->theirs, &ours, spare->back)) {
		call_failed(vb, spare, EACCES);
		return;
	}
	spare->call = RB_VERBS_CALL_OPEN;
	rb_verbs_spare_opened(vb, spare->peer);
}

void rb_verbs_call_event(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	if (spare->call == RB_VERBS_CALL_CONNECTS)
		call_connected(vb, spare);
	else if (spare->call == RB_VERBS_CALL_HEARS)
		call_greet(vb, spare);
	else if (spare->call == RB_VERBS_CALL_ASKS)
		call_open(vb, spare);
}

void rb_verbs_call_tick(struct rb_verbs *vb, struct rb_verbs_spare *spare)
{
	bool silent = spare->call != RB_VERBS_CALL_CONNECTS;

	spare->rests = false;
	if (spare->call == RB_VERBS_CALL_NONE || rb_verbs_is_open(spare) ||
	    ++spare->ticks < CALL_TICKS << (silent ? spare->patience : 0))
		return;
	spare->silent |= silent;
	call_failed(vb, spare, ETIMEDOUT);
}

/* ---- Strangers ---- */

static void stranger_drop(struct stranger *stranger)
{
	rb_verbs_fd_close(&stranger->fd);
	stranger->got = stranger->ticks = 0;
}

/* Of the places, a free one; else that of who has waited longest. */
static struct stranger *place_find(struct rb_verbs_listener *listener)
{
	struct stranger *oldest = listener->strangers;

	for (struct stranger *s = oldest; s < listener->strangers + STRANGERS; s++) {
		if (s->fd < 0)
			return s;
		if (s->ticks > oldest->ticks)
			oldest = s;
	}
	stranger_drop(oldest);
	return oldest;
}

static void stranger_take(struct rb_verbs *vb)
{
	struct rb_verbs_listener *listener = vb->listener;
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct stranger *stranger;

	if (fd < 0)
		return;
	stranger = place_find(listener);
	stranger->fd = fd;
	fd_set_up(fd);
	randombytes_buf(stranger->nonce, sizeof(stranger->nonce));
	if (send(fd, stranger->nonce, sizeof(stranger->nonce), MSG_NOSIGNAL) !=
		    (ssize_t)sizeof(stranger->nonce) ||
	    !rb_verbs_fd_watch(vb, EPOLL_CTL_ADD, fd, EPOLLIN,
			       RB_VERBS_WATCH_STRANGER |
				       (uint32_t)(stranger - listener->strangers)))
		stranger_drop(stranger);
}

/* False: it is of nobody to whom something is sent from here. */
static bool is_welcome(const struct rb_verbs *vb, const struct stranger *from)
{
	const struct greeting *greeting = &from->greeting;

	return greeting->magic == MAGIC && greeting->to == vb->base.rank &&
	       greeting->rank < vb->base.rank_count &&
	       is_proved(vb, LABEL_CONNECTS, from->nonce, greeting, greeting->proof) &&
	       vb->listener->theirs[greeting->rank].count > 0 && !vb->peers[greeting->rank].lost;
}

/* It is the peer that it says. An earlier connection, by which nothing came, was given up. */
static void stranger_admit(struct rb_verbs *vb, struct stranger *from)
{
	struct rb_verbs_spare *spare = rb_verbs_spare_of(&vb->peers[from->greeting.rank]);
	uint8_t answer[RB_VERBS_PROOF_BYTES];

	if (spare == NULL || spare->heard)
		return;
	proof_make(vb, LABEL_LISTENS, from->nonce, &from->greeting, answer);
	if (send(from->fd, answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer) ||
	    !rb_verbs_fd_watch(vb, EPOLL_CTL_MOD, from->fd, EPOLLIN,
			       RB_VERBS_WATCH_IN | spare->peer->rank))
		return;
	rb_verbs_fd_close(&spare->in_fd);
	spare->in_fd = from->fd;
	spare->have = 0;
	from->fd = -1;
}

static void stranger_event(struct rb_verbs *vb, struct stranger *stranger)
{
	struct greeting *greeting = &stranger->greeting;
	ssize_t got = recv(stranger->fd, (uint8_t *)greeting + stranger->got,
			   sizeof(*greeting) - stranger->got, 0);

	if (got < 0 && would_block())
		return;
	stranger->got += got > 0 ? (size_t)got : 0;
	if (got > 0 && stranger->got < sizeof(*greeting))
		return;
	if (got > 0 && is_welcome(vb, stranger))
		stranger_admit(vb, stranger);
	stranger_drop(stranger);
}

void rb_verbs_listener_event(struct rb_verbs *vb, uint32_t what)
{
	uint32_t which = what & ((1u << RB_VERBS_RANK_BITS) - 1);

	if ((what & RB_VERBS_WATCH_LISTENER) != 0)
		stranger_take(vb);
	else if (vb->listener->strangers[which].fd >= 0)
		stranger_event(vb, &vb->listener->strangers[which]);
}

void rb_verbs_listener_tick(struct rb_verbs *vb)
{
	for (uint32_t i = 0; i < STRANGERS; i++) {
		struct stranger *stranger = &vb->listener->strangers[i];

		if (stranger->fd >= 0 && ++stranger->ticks >= STRANGER_TICKS)
			stranger_drop(stranger);
	}
}

/* ---- Listening ---- */

static void way_add(struct rb_verbs_listener *listener, bool is_ipv6, const void *bytes)
{
	struct rb_verbs_way *way = &listener->own.each[listener->own.count];

	if (listener->own.count == RB_VERBS_WAYS_MAX)
		return;
	way->is_ipv6 = is_ipv6;
	memcpy(way->bytes, bytes, is_ipv6 ? 16 : 4);
	listener->own.count++;
}

static void network_add(struct rb_verbs_listener *listener, const struct sockaddr *address)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;

	if (address->sa_family == AF_INET)
		way_add(listener, false, &four->sin_addr);
	else if (!IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
		way_add(listener, true, &six->sin6_addr);
}

/* This machine's own address first; then, where others may come, those of its networks. */
static void ways_find(struct rb_verbs_listener *listener, bool elsewhere)
{
	const struct in_addr own = { htonl(INADDR_LOOPBACK) };
	struct ifaddrs *all = NULL;

	way_add(listener, false, &own);
	if (!elsewhere || getifaddrs(&all) != 0)
		return;
	for (int family = 0; family < 2; family++)
		for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
			if (a->ifa_addr != NULL && (a->ifa_flags & IFF_UP) != 0 &&
			    (a->ifa_flags & IFF_LOOPBACK) == 0 &&
			    a->ifa_addr->sa_family == (family == 0 ? AF_INET : AF_INET6))
				network_add(listener, a->ifa_addr);
	freeifaddrs(all);
}

static bool listen_at(struct rb_verbs_listener *listener, const struct sockaddr *address,
		      socklen_t bytes)
{
	struct sockaddr_storage bound;
	socklen_t bound_bytes = sizeof(bound);
	const int off = 0;

	listener->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd >= 0 && address->sa_family == AF_INET6) /* It takes IPv4 along. */
		(void)setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (listener->fd >= 0 && bind(listener->fd, address, bytes) == 0 &&
	    listen(listener->fd, BACKLOG) == 0 &&
	    getsockname(listener->fd, (struct sockaddr *)&bound, &bound_bytes) == 0) {
		/* At the same place in both families. */
		listener->own.port = ntohs(((struct sockaddr_in *)(void *)&bound)->sin_port);
		return true;
	}
	RB_LOG(RB_LOG_INFO, "verbs: no TCP where no rail is left: listening: %s", strerror(errno));
	rb_verbs_fd_close(&listener->fd);
	return false;
}

rubato_status rb_verbs_listener_open(struct rb_verbs *vb,
				     const struct rb_transport_options *options)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET };
	struct rb_verbs_listener *listener = calloc(1, sizeof(*listener));

	if (listener == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory to listen");
	vb->listener = listener;
	memcpy(listener->key, options->key, sizeof(listener->key));
	listener->fd = -1;
	listener->theirs = calloc(options->rank_count, sizeof(*listener->theirs));
	if (listener->theirs == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory for peers' addresses");
	for (uint32_t i = 0; i < STRANGERS; i++)
		listener->strangers[i].fd = -1;
	/* iWARP's completions do not say what has arrived: nothing could be compared. */
	if (vb->rails[0].port.iwarp || options->rank_count < 2 || sodium_init() < 0)
		return RUBATO_OK;
	four.sin_addr.s_addr = htonl(options->elsewhere ? INADDR_ANY : INADDR_LOOPBACK);
	if (!(options->elsewhere && listen_at(listener, (struct sockaddr *)&any6, sizeof(any6))) &&
	    !listen_at(listener, (struct sockaddr *)&four, sizeof(four)))
		return RUBATO_OK;
	ways_find(listener, options->elsewhere);
	if (!rb_verbs_fd_watch(vb, EPOLL_CTL_ADD, listener->fd, EPOLLIN, RB_VERBS_WATCH_LISTENER))
		return RB_FAIL(RUBATO_ERR_SYSTEM, "epoll_ctl: %s", strerror(errno));
	return RUBATO_OK;
}

void rb_verbs_listener_close(struct rb_verbs *vb)
{
	struct rb_verbs_listener *listener = vb->listener;

	if (listener == NULL)
		return;
	for (uint32_t i = 0; i < STRANGERS; i++)
		rb_verbs_fd_close(&listener->strangers[i].fd);
	rb_verbs_fd_close(&listener->fd);
	sodium_memzero(listener->key, sizeof(listener->key));
	free(listener->theirs);
	free(listener);
	vb->listener = NULL;
}

/* ---- Addresses ---- */

void rb_verbs_ways_put(const struct rb_verbs *vb, struct rb_wire *w)
{
	const struct rb_verbs_ways *ways = &vb->listener->own;

	rb_wire_put_u16(w, ways->port);
	rb_wire_put_u8(w, ways->count);
	for (uint32_t i = 0; i < ways->count; i++) {
		rb_wire_put_u8(w, ways->each[i].is_ipv6);
		rb_wire_put_bytes(w, ways->each[i].bytes, sizeof(ways->each[i].bytes));
	}
}

bool rb_verbs_ways_get(struct rb_wire *w, struct rb_verbs_ways *ways)
{
	ways->port = rb_wire_get_u16(w);
	ways->count = rb_wire_get_u8(w);
	if (ways->count > RB_VERBS_WAYS_MAX)
		return false;
	for (uint32_t i = 0; i < ways->count; i++) {
		ways->each[i].is_ipv6 = rb_wire_get_u8(w) != 0;
		rb_wire_get_bytes(w, ways->each[i].bytes, sizeof(ways->each[i].bytes));
	}
	return !w->bad;
}

void rb_verbs_ways_keep(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_ways *ways,
			bool here)
{
	struct rb_verbs_ways *to = &vb->listener->theirs[rank];

	*to = (struct rb_verbs_ways) { .port = ways->port };
	for (uint32_t i = here ? 0 : 1; vb->listener->fd >= 0 && i < ways->count; i++)
		to->each[to->count++] = ways->each[i];
}

const struct rb_verbs_ways *rb_verbs_ways_to(const struct rb_verbs *vb, uint32_t rank)
{
	return &vb->listener->theirs[rank];
}
