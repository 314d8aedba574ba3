/*
 * test_verbs_spare.c -- two ends of the verbs transport whose only rail falls, and what comes to
 * them over TCP: the stream, strangers, peers that lie, connections that are full or end.
 *
 * Both ends are moved by one thread. Where rank 1 is to lie the test is rank 1: it has the job's
 * key, and sends frames of its own making.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs_spare.h"

#define LIMIT_NS 60000000000u
#define LARGE (8u << 20) /* More than sockets hold. */
#define STRANGERS 40u    /* More than a rank listens to at a time. */

static struct side {
	struct rb_endpoint *ep;
	struct rb_transport_options options;
	struct rb_region *region, *regions[1];
	struct rb_where where;
	struct rb_remote *remote;
} sides[2];
static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
static size_t address_bytes[2];

static const struct rb_transport_ops *const ops = &rb_transport_verbs;

static struct rb_verbs_peer *peer_of(uint32_t rank)
{
	return &((struct rb_verbs *)sides[rank].ep)->peers[1 - rank];
}

static _Thread_local uint32_t connecting; /* Of this thread the rank, + 1. */

static void *connect_main(void *arg)
{
	const void *all[2] = { addresses[0], addresses[1] };
	bool use[2] = { true, true };

	connecting = 1 + (uint32_t)((struct side *)arg - sides);
	ck_assert_int_eq(ops->connect(((struct side *)arg)->ep, all, address_bytes, use,
				      rb_clock_ns() + LIMIT_NS),
			 RUBATO_OK);
	return NULL;
}

static void *close_main(void *arg)
{
	ops->close(((struct side *)arg)->ep, false, rb_clock_ns() + LIMIT_NS);
	return NULL;
}

/* Connecting and closing wait for the other end. */
static void both(void *(*main)(void *))
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, main, &sides[1]), 0);
	(void)main(&sides[0]);
	(void)pthread_join(thread, NULL);
}

/* `same_key`: both have the job's. */
static void sides_make(bool same_key)
{
	struct mock_config config;

	mock_config_default(&config);
	config.devices = 1;
	ck_assert_int_eq(mock_reset(&config), 0);
	for (uint32_t r = 0; r < 2; r++) {
		struct side *side = &sides[r];

		*side = (struct side) { .options = { .rank = r, .rank_count = 2 } };
		memset(side->options.key, same_key ? 7 : 7 + (int)r, RB_JOB_KEY_BYTES);
		ck_assert_int_eq(ops->open(&side->options, &side->ep), RUBATO_OK);
		ck_assert_int_eq(ops->address(side->ep, addresses[r], &address_bytes[r]),
				 RUBATO_OK);
		ck_assert_int_eq(ops->region_alloc(side->ep, 2 * LARGE, &side->region), RUBATO_OK);
		side->regions[0] = side->region;
		side->where =
			(struct rb_where) { side->region->base, RB_MEMORY_HOST, side->regions };
	}
}

static void sides_meet(void)
{
	both(connect_main);
	for (uint32_t r = 0; r < 2; r++) {
		uint8_t key[RB_KEY_BYTES_MAX];
		size_t bytes = sizeof(key);

		ck_assert_int_eq(ops->region_key(sides[1 - r].ep, sides[1 - r].region, key, &bytes),
				 RUBATO_OK);
		ck_assert_int_eq(ops->remote_open(sides[r].ep, 1 - r, key, bytes, &sides[r].remote),
				 RUBATO_OK);
	}
}

static void sides_open(bool same_key)
{
	sides_make(same_key);
	sides_meet();
}

static void poll_both(void)
{
	for (uint32_t r = 0; r < 2; r++)
		(void)ops->poll(sides[r].ep);
}

/* Until it is so, `what`. */
static void await(bool (*is_so)(void), const char *what)
{
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;

	while (!is_so()) {
		poll_both();
		ck_assert_msg(rb_clock_ns() < until_ns, "too late: %s; rank 0: %s; rank 1: %s",
			      what, peer_of(0)->reason, peer_of(1)->reason);
	}
}

static bool both_by_tcp(void)
{
	return peer_of(0)->by_tcp && peer_of(1)->by_tcp && rb_verbs_is_open(peer_of(0)->spare) &&
	       rb_verbs_is_open(peer_of(1)->spare) && peer_of(0)->held_by == 0 &&
	       peer_of(1)->held_by == 0;
}

static bool both_by_rail(void)
{
	return peer_of(0)->live == 1 && peer_of(1)->live == 1;
}

static bool first_lost(void)
{
	return peer_of(0)->lost;
}

static bool both_lost(void)
{
	return peer_of(0)->lost && peer_of(1)->lost;
}

static void fall(void)
{
	mock_link(0, 0, 1, false);
}

/* ---- Messages ---- */

static struct rb_request sends[2], receives[2];
static uint64_t call;

static bool all_done(void)
{
	return sends[0].state == RB_REQUEST_DONE && sends[1].state == RB_REQUEST_DONE &&
	       receives[0].state == RB_REQUEST_DONE && receives[1].state == RB_REQUEST_DONE;
}

static uint8_t byte_of(uint32_t rank, size_t i)
{
	return (uint8_t)(rank * 17 + i * 7 + i / 251 + call * 5);
}

/* Both to each other; puts: into the second half of the other's region. */
static void messages_post(size_t size_bytes, bool put)
{
	struct rb_tag tag = rb_tag_message(0, RB_TAG_ONESHOT, ++call, 0);

	for (uint32_t r = 0; r < 2; r++) {
		uint8_t *own = sides[r].region->base;

		for (size_t i = 0; i < size_bytes; i++)
			own[i] = byte_of(r, i);
		memset(own + LARGE, 0, size_bytes);
	}
	for (uint32_t r = 0; r < 2; r++) {
		uint8_t *own = sides[r].region->base;

		receives[r] = (struct rb_request) { .peer = 1 - r,
						    .tag = tag,
						    .buffer = own + LARGE,
						    .size_bytes = put ? 0 : size_bytes,
						    .where = &sides[r].where };
		ops->recv(sides[r].ep, &receives[r]);
		sends[r] = (struct rb_request) { .peer = 1 - r,
						 .tag = tag,
						 .buffer = own,
						 .size_bytes = size_bytes,
						 .where = &sides[r].where,
						 .remote = put ? sides[r].remote : NULL,
						 .remote_offset = LARGE };
		(put ? ops->put : ops->send)(sides[r].ep, &sends[r]);
	}
}

static void messages_check(size_t size_bytes)
{
	for (uint32_t r = 0; r < 2; r++) {
		const uint8_t *got = (const uint8_t *)sides[r].region->base + LARGE;

		ck_assert_int_eq(sends[r].status, RUBATO_OK);
		ck_assert_int_eq(receives[r].status, RUBATO_OK);
		for (size_t i = 0; i < size_bytes; i++)
			if (got[i] != byte_of(1 - r, i))
				ck_abort_msg("byte %zu of %zu is wrong", i, size_bytes);
	}
}

static void messages(void)
{
	static const size_t sizes[] = { 0, 1, 5000, 16384, 16385, 300001 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (int put = 0; put < 2; put++) {
			messages_post(sizes[s], put == 1);
			await(all_done, "messages");
			messages_check(sizes[s]);
		}
}

START_TEST(messages_go_over_tcp_and_back)
{
	sides_open(true);
	for (uint32_t round = 0; round < 5; round++) {
		messages();
		messages_post(300001, round % 2 == 1);
		fall(); /* In their midst. */
		await(all_done, "messages");
		messages_check(300001);
		await(both_by_tcp, "TCP");
		messages();
		messages_post(LARGE, round % 2 == 0);
		mock_link(0, 0, 1, true);
		await(all_done, "messages");
		messages_check(LARGE);
		await(both_by_rail, "a rail");
	}
	for (uint32_t r = 0; r < 2; r++) /* It was kept. */
		ck_assert_uint_eq(((struct rb_verbs *)sides[r].ep)->counts.spares, 1);
	fall();
	await(both_by_tcp, "TCP");
	both(close_main);
}
END_TEST

START_TEST(what_the_other_end_does_not_take_waits)
{
	uint64_t until_ns;

	sides_open(true);
	fall();
	await(both_by_tcp, "TCP");
	messages_post(LARGE, true);
	until_ns = rb_clock_ns() + 300000000u;
	while (rb_clock_ns() < until_ns) /* Rank 1 computes. */
		(void)ops->poll(sides[0].ep);
	ck_assert(peer_of(0)->spare->full);
	ck_assert_int_eq(sends[0].state, RB_REQUEST_PENDING);
	await(all_done, "messages");
	messages_check(LARGE);
	ck_assert(!peer_of(0)->spare->full);
	both(close_main);
}
END_TEST

/* ---- A doorbell of which the device takes part ---- */

#define BURST ((size_t)1 << 20)
#define BURST_REQUESTS 5u /* Four writes, and the message behind them. */

static struct {
	int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	struct ibv_qp *qp;
	uint32_t takes, refused; /* Of one chain. */
} partly;

static int post_partly(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *last = NULL, *rest = wr;

	if (qp != partly.qp || wr->next == NULL || partly.refused > 0)
		return partly.post(qp, wr, bad);
	for (uint32_t i = 0; i < partly.takes; i++) {
		last = rest;
		rest = rest->next;
	}
	if (last != NULL) {
		last->next = NULL;
		ck_assert_int_eq(partly.post(qp, wr, bad), 0);
		last->next = rest;
	}
	for (const struct ibv_send_wr *at = rest; at != NULL; at = at->next)
		partly.refused++;
	*bad = rest;
	return ENOMEM;
}

/* Rank 1's put, or its message, whose invitation has come. */
START_TEST(of_a_doorbell_the_device_takes_part)
{
	bool put = _i % 2 == 1;
	struct ibv_context *context;

	if (test_length() == TEST_SHORT && _i % 3 != 0)
		return; /* None, one, three and four of five are taken. */
	sides_open(true);
	messages();
	partly.qp = peer_of(1)->links[0].qp;
	partly.takes = (uint32_t)_i / 2;
	partly.refused = 0;
	context = partly.qp->context;
	partly.post = context->ops.post_send;
	context->ops.post_send = post_partly;
	messages_post(BURST, put);
	ck_assert_uint_eq(partly.refused, BURST_REQUESTS - partly.takes);
	await(all_done, "messages");
	messages_check(BURST);
	ck_assert_uint_eq(peer_of(1)->vb->counts.failed, 1);
	messages();
	context->ops.post_send = partly.post;
	both(close_main);
}
END_TEST

static void poll_a_while(void)
{
	uint64_t until_ns = rb_clock_ns() + 50000000u;

	while (rb_clock_ns() < until_ns) {
		poll_both();
		for (uint32_t r = 0; r < 2; r++)
			ops->look(sides[r].ep);
	}
}

static void rank_poll(uint32_t rank)
{
	(void)ops->poll(sides[rank].ep);
	ops->look(sides[rank].ep);
}

static void small_send(uint32_t k)
{
	uint8_t *from = sides[0].region->base, *to = sides[1].region->base;
	struct rb_tag tag = rb_tag_message(0, RB_TAG_ONESHOT, ++call, 0);

	from[k] = (uint8_t)(k + 1);
	to[LARGE + k] = 0;
	receives[k] = (struct rb_request) { .tag = tag, .buffer = to + LARGE + k, .size_bytes = 1 };
	ops->recv(sides[1].ep, &receives[k]);
	sends[k] =
		(struct rb_request) { .peer = 1, .tag = tag, .buffer = from + k, .size_bytes = 1 };
	ops->send(sides[0].ep, &sends[k]);
}

static bool has_greeted(uint32_t rank)
{
	const struct rb_verbs_link *link = &peer_of(rank)->links[0];

	return link->state == RB_VERBS_LINK_MAKING && link->heard;
}

/* Rank 1 has greeted by a rail, and computes: what rank 0 sent over TCP before it saw that is not
 * overtaken, whatever rank 1 still says of an earlier try. */
START_TEST(a_rail_waits_until_tcp_is_taken)
{
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;
	struct rb_verbs_peer *peer;
	uint32_t number;

	sides_open(true);
	fall();
	await(both_by_tcp, "TCP");
	messages();
	mock_link(0, 0, 1, true);
	for (uint32_t r = 1; !has_greeted(1) && rb_clock_ns() < until_ns; r = 1 - r)
		rank_poll(r);
	peer = peer_of(0);
	ck_assert(has_greeted(1) && peer->links[0].state == RB_VERBS_LINK_MAKING);
	ck_assert(!peer->links[0].greeted);
	number = peer->number;
	small_send(0);
	ck_assert_uint_eq(peer->number, number + 1);
	while (!peer->links[0].greeted && rb_clock_ns() < until_ns)
		rank_poll(0);
	ck_assert(peer->links[0].greeted && peer->spare->leaving);
	small_send(1);
	peer_of(1)->spare->left = peer->spare->leave - 1;
	peer_of(1)->spare->left_owed = true;
	rb_verbs_spare_step(peer_of(1)->vb, peer_of(1));
	ck_assert(!peer_of(1)->spare->left_owed);
	for (uint32_t i = 0; i < 50; i++)
		rank_poll(0);
	ck_assert_uint_eq(peer->number, number + 1); /* The stream waits. */
	ck_assert(peer->live == 0 && peer->spare->leaving);
	for (uint32_t k = 0; k < 2; k++) {
		while (receives[k].state != RB_REQUEST_DONE && rb_clock_ns() < until_ns)
			poll_both();
		ck_assert_int_eq(receives[k].state, RB_REQUEST_DONE);
		ck_assert_int_eq(receives[k].status, RUBATO_OK);
		ck_assert_uint_eq(((uint8_t *)receives[k].buffer)[0], k + 1);
	}
	await(both_by_rail, "a rail");
	messages();
	both(close_main);
}
END_TEST

static void *cancel_main(void *arg)
{
	ops->cancel(sides[0].ep, arg);
	return NULL;
}

static bool has_invited(void)
{
	return peer_of(0)->outgoing.arrival_count > 0;
}

/*
 * A send, or a put, has said its end, and is cancelled while the rail takes its writes along: who
 * waits gets them, and does not take what was there before for them.
 */
START_TEST(what_has_said_its_end_is_written_over_tcp_though_cancelled)
{
	const size_t bytes = 300001;
	bool put = _i == 1;
	const struct rb_verbs_flight *flight;
	pthread_t thread;
	uint8_t *to;

	sides_open(true);
	to = (uint8_t *)sides[1].region->base + LARGE;
	memset(sides[0].region->base, 9, bytes);
	memset(to, 0, bytes);
	sends[0] = (struct rb_request) { .peer = 1,
					 .tag = rb_tag(0, RB_TAG_ONESHOT, 9, 9),
					 .buffer = sides[0].region->base,
					 .size_bytes = bytes,
					 .where = &sides[0].where,
					 .remote = put ? sides[0].remote : NULL,
					 .remote_offset = LARGE };
	receives[1] = (struct rb_request) { .tag = sends[0].tag,
					    .buffer = to,
					    .size_bytes = put ? 0 : bytes,
					    .where = &sides[1].where };
	ops->recv(sides[1].ep, &receives[1]);
	if (!put)
		await(has_invited, "an invitation");
	mock_loss(0, 0, 1, 1000);
	(put ? ops->put : ops->send)(sides[0].ep, &sends[0]);
	flight = rb_verbs_flight_find((struct rb_verbs *)sides[0].ep,
				      sends[0].backend[RB_VERBS_FLIGHT]);
	ck_assert(flight != NULL && flight->finished && flight->out > 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancel_main, &sends[0]), 0);
	while (receives[1].state != RB_REQUEST_DONE && !peer_of(1)->lost)
		(void)ops->poll(sides[1].ep);
	(void)pthread_join(thread, NULL);
	ck_assert(receives[1].status == RUBATO_OK && to[0] == 9 && !memcmp(to, to + 1, bytes - 1));
	ck_assert(((struct rb_verbs *)sides[0].ep)->counts.again > 0 && both_by_tcp());
	mock_loss(0, 0, 1, 0);
	both(close_main);
}
END_TEST

/* Its writes were lost with the rail. */
START_TEST(what_was_stopped_is_not_written_over_tcp)
{
	uint8_t *from, *to;
	struct rb_verbs_flight *flight;

	sides_open(true);
	from = sides[0].region->base;
	to = (uint8_t *)sides[1].region->base + LARGE;
	memset(from, 9, LARGE);
	memset(to, 0, LARGE);
	receives[1] = receives[0] = (struct rb_request) { .tag = rb_tag(0, RB_TAG_ONESHOT, 9, 9),
							  .buffer = to,
							  .size_bytes = LARGE,
							  .where = &sides[1].where };
	ops->recv(sides[1].ep, &receives[1]);
	for (uint32_t i = 0; i < 1000 && peer_of(0)->outgoing.arrival_count == 0; i++)
		poll_both();
	mock_loss(0, 0, 1, 1000);
	sends[0] = receives[0];
	sends[0].peer = 1;
	sends[0].buffer = from;
	sends[0].where = &sides[0].where;
	sends[1] = sends[0];
	ops->send(sides[0].ep, &sends[0]);
	flight = rb_verbs_flight_find((struct rb_verbs *)sides[0].ep,
				      sends[0].backend[RB_VERBS_FLIGHT]);
	ck_assert_ptr_nonnull(flight);
	ck_assert_uint_gt(flight->out, 0);
	flight->halted = flight->stopping = true; /* As STOP does, of a receive that was left. */
	flight = rb_verbs_flight_find((struct rb_verbs *)sides[1].ep,
				      receives[1].backend[RB_VERBS_FLIGHT]);
	ck_assert_ptr_nonnull(flight);
	rb_match_unlink(&peer_of(1)->match, &receives[1]);
	receives[1].backend[RB_VERBS_STAGE] = RB_VERBS_STAGE_RECEIVING;
	flight->halt = RB_VERBS_LEFT;
	await(both_by_tcp, "TCP");
	for (uint32_t i = 0; i < 10000 && sends[0].state != RB_REQUEST_DONE; i++)
		poll_both();
	ck_assert_int_eq(sends[0].state, RB_REQUEST_DONE);
	poll_a_while();
	ck_assert(to[0] == 0 && memcmp(to, to + 1, LARGE - 1) == 0);
	ck_assert_uint_gt(((struct rb_verbs *)sides[0].ep)->counts.again, 0);
	ck_assert_int_eq(receives[1].state, RB_REQUEST_DONE);
	ck_assert_int_eq(receives[1].status, RUBATO_OK); /* It was sent. */
	receives[1] = receives[0];
	ops->recv(sides[1].ep, &receives[1]);
	sends[0] = receives[0] = (struct rb_request) { .state = RB_REQUEST_DONE };
	ops->send(sides[0].ep, &sends[1]);
	await(all_done, "the next message");
	ck_assert_int_eq(receives[1].status, RUBATO_OK);
	ck_assert_int_eq(memcmp(to, from, LARGE), 0);
	mock_loss(0, 0, 1, 0);
	both(close_main);
}
END_TEST

/* ---- Strangers ---- */

static int dial(uint32_t rank)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(
					  rb_verbs_ways_to(peer_of(1 - rank)->vb, rank)->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_sec = 5 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

struct greeting { /* As verbs_tcp.c has it. */
	uint32_t magic, rank, to;
	uint8_t nonce[RB_VERBS_NONCE_BYTES];
	uint8_t proof[RB_VERBS_PROOF_BYTES];
};

static struct greeting greeting_make(const uint8_t nonce[RB_VERBS_NONCE_BYTES], const uint8_t *key,
				     uint32_t to)
{
	static const char label[] = "rubato verbs connects";
	struct greeting greeting = { .magic = 0x53524252u, .rank = 1 - to, .to = to };
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, RB_JOB_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, sizeof(label));
	crypto_auth_hmacsha256_update(&state, sides[0].options.job, sizeof(sides[0].options.job));
	crypto_auth_hmacsha256_update(&state, nonce, RB_VERBS_NONCE_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)&greeting,
				      offsetof(struct greeting, proof));
	crypto_auth_hmacsha256_final(&state, greeting.proof);
	return greeting;
}

/* How many bytes rank 0 answers. */
static size_t answered(int fd, const uint8_t *key, uint32_t to, bool replayed)
{
	uint8_t nonce[RB_VERBS_NONCE_BYTES], answer[64];
	struct greeting greeting;
	size_t got = 0;
	ssize_t n;

	poll_a_while();
	ck_assert_int_eq(recv(fd, nonce, sizeof(nonce), MSG_WAITALL), sizeof(nonce));
	nonce[0] ^= replayed; /* Of another one's. */
	greeting = greeting_make(nonce, key, to);
	ck_assert_int_eq(send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL), sizeof(greeting));
	poll_a_while();
	while ((n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT)) > 0)
		got += (size_t)n;
	return got;
}

START_TEST(strangers_are_not_answered)
{
	uint8_t wrong[RB_JOB_KEY_BYTES] = { 1 };
	int fds[STRANGERS], fd;

	sides_open(true);
	for (uint32_t i = 0; i < STRANGERS; i++) {
		fds[i] = dial(0);
		if (i % 3 == 1)
			ck_assert_int_eq(send(fds[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL),
					 18);
		if (i % 8 == 7)
			poll_a_while();
	}
	fd = dial(0);
	ck_assert_uint_eq(answered(fd, wrong, 0, false), 0);
	(void)close(fd);
	fd = dial(0);
	ck_assert_uint_eq(answered(fd, sides[0].options.key, 0, true), 0);
	(void)close(fd);
	fd = dial(0);
	ck_assert_uint_eq(answered(fd, sides[0].options.key, 1, false), 0); /* It is rank 0's. */
	(void)close(fd);
	fall();
	await(both_by_tcp, "TCP");
	messages();
	for (uint32_t i = 0; i < STRANGERS; i++)
		(void)close(fds[i]);
	both(close_main);
}
END_TEST

START_TEST(who_has_another_key_is_lost)
{
	sides_open(false);
	fall();
	await(both_lost, "it is lost");
	for (uint32_t r = 0; r < 2; r++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "rank %u: TCP", 1 - r);
		ck_assert_msg(strstr(peer_of(r)->reason, name) != NULL, "%s", peer_of(r)->reason);
		ck_assert_msg(strstr(peer_of(r)->reason, "mock0") != NULL, "%s",
			      peer_of(r)->reason);
	}
	both(close_main);
}
END_TEST

/* Somebody listens where rank 1 did, and has not the key. */
START_TEST(who_answers_without_the_key_is_not_it)
{
	struct sockaddr_in here = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	uint8_t greeting[sizeof(struct greeting)], bytes[RB_VERBS_PROOF_BYTES] = { 0 };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), fd = -1;
	struct rb_verbs_ways ways = { .count = 1, .each = { { .bytes = { 127, 0, 0, 1 } } } };
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;
	socklen_t here_bytes = sizeof(here);
	ssize_t got = 0;

	ck_assert_int_ge(listener, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&here, sizeof(here)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&here, &here_bytes), 0);
	sides_open(true);
	ways.port = ntohs(here.sin_port);
	rb_verbs_ways_keep((struct rb_verbs *)sides[0].ep, 1, &ways, true);
	fall();
	while (fd < 0 && rb_clock_ns() < until_ns) {
		poll_both();
		fd = accept(listener, NULL, NULL);
	}
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(send(fd, bytes, RB_VERBS_NONCE_BYTES, MSG_NOSIGNAL), RB_VERBS_NONCE_BYTES);
	while (got != sizeof(greeting) && rb_clock_ns() < until_ns) {
		poll_both();
		got = recv(fd, greeting, sizeof(greeting), MSG_DONTWAIT | MSG_PEEK);
	}
	ck_assert_int_eq(got, sizeof(greeting));
	ck_assert_int_eq(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	await(first_lost, "it is lost");
	ck_assert_msg(strstr(peer_of(0)->reason, "rank 1: TCP: Permission denied") != NULL, "%s",
		      peer_of(0)->reason);
	(void)close(fd);
	(void)close(listener);
	both(close_main);
}
END_TEST

/* ---- A peer that lies ---- */

struct frame { /* As verbs_spare.c has it. */
	uint32_t kind, bytes;
	uint64_t flight, address;
	uint32_t key, number;
};

enum lie {
	TRUTH,
	OF_NO_KIND,
	TOO_LONG,
	EMPTY_WRITE,
	SHORT_HEAD,
	WRONG_HEAD,
	WRONG_NUMBER,
	HELLO,
	WRONG_KEY,
	BEFORE,
	BEHIND,
	WRAPPED,
	FLIGHT_WRITE,
	KEYLESS,
	ANOTHERS,
	OF_A_SEND,
	CUT,
	LIES
};

static const struct {
	const char *words; /* Why rank 1 is lost, to rank 0. */
} lies[LIES] = {
	[TRUTH] = { NULL },
	[OF_NO_KIND] = { "a malformed frame" },
	[TOO_LONG] = { "a malformed frame" },
	[EMPTY_WRITE] = { "a malformed frame" },
	[SHORT_HEAD] = { "a malformed frame" },
	[WRONG_HEAD] = { "a malformed head" },
	[WRONG_NUMBER] = { "a message is missing" },
	[HELLO] = { "an unknown kind" },
	[WRONG_KEY] = { "outside the memory" },
	[BEFORE] = { "outside the memory" },
	[BEHIND] = { "outside the memory" },
	[WRAPPED] = { "outside the memory" },
	[FLIGHT_WRITE] = { "outside the memory" },
	[KEYLESS] = { "outside the memory" },
	[ANOTHERS] = { "outside the memory" },
	[OF_A_SEND] = { "outside the memory" },
	[CUT] = { "TCP: its end is closed" },
};

/* A request of rank 0's that is under way, and a write of rank 1 to its buffer: a receive's without
 * a key comes in pieces, a send's key is rank 1's own. */
static void flight_name(struct frame *frame, enum lie lie)
{
	struct rb_verbs_flight *flight;

	sends[0] =
		(struct rb_request) { .peer = lie == ANOTHERS ? 0 : 1,
				      .kind = lie == OF_A_SEND ? RB_REQUEST_SEND : RB_REQUEST_RECV,
				      .buffer = (uint8_t *)sides[0].region->base + LARGE,
				      .size_bytes = frame->bytes };
	ck_assert_int_eq(rb_verbs_flight_begin((struct rb_verbs *)sides[0].ep, &sends[0], &flight),
			 RUBATO_OK);
	flight->keys[0] = frame->key = lie == KEYLESS ? 0 : 77;
	frame->flight = rb_verbs_flight_id(flight);
	frame->address = (uintptr_t)sends[0].buffer;
}

/* The receive that rank 0 has posted, and a write beyond its end. */
static void receive_name(struct frame *frame)
{
	const struct rb_verbs_flight *flight = rb_verbs_flight_find(
		(struct rb_verbs *)sides[0].ep, receives[0].backend[RB_VERBS_FLIGHT]);

	ck_assert_ptr_nonnull(flight);
	frame->flight = rb_verbs_flight_id(flight);
	frame->address = (uintptr_t)receives[0].buffer + receives[0].size_bytes - 99;
	frame->key = flight->keys[0];
}

/* What rank 1 sends, in which a thing is wrong. */
static size_t lie_make(enum lie lie, uint8_t *out)
{
	const struct rb_verbs_region *region = (const struct rb_verbs_region *)sides[0].region;
	struct frame frame = { .kind = 2,
			       .bytes = 100,
			       .address = (uintptr_t)region->base.base,
			       .key = region->mrs[0]->rkey };
	struct rb_verbs_head head = { .message = RB_VERBS_PUT };

	head.number = peer_of(0)->their_number;
	head.freed = peer_of(0)->spent_known;
	memset(out, 9, 4096);
	switch (lie) {
	case TRUTH:
	case LIES:
		break;
	case OF_NO_KIND:
		frame.kind = 9;
		break;
	case TOO_LONG:
		frame.bytes = 1 << 20;
		break;
	case EMPTY_WRITE:
		frame.bytes = 0;
		break;
	case SHORT_HEAD:
		frame = (struct frame) { .kind = 1, .bytes = 63 };
		break;
	case WRONG_HEAD:
		head.bytes = 5;
		frame = (struct frame) { .kind = 1, .bytes = 64 };
		break;
	case WRONG_NUMBER:
		head.number++;
		frame = (struct frame) { .kind = 1, .bytes = 64 };
		break;
	case HELLO:
		head.message = RB_VERBS_HELLO;
		frame = (struct frame) { .kind = 1, .bytes = 64 };
		break;
	case WRONG_KEY:
		frame.key ^= 0x40;
		break;
	case BEFORE:
		frame.address -= 1;
		break;
	case BEHIND:
		frame.address += region->base.size_bytes - 99;
		break;
	case WRAPPED:
		frame.address = UINT64_MAX - 50;
		break;
	case FLIGHT_WRITE:
		receive_name(&frame);
		break;
	case KEYLESS:
	case ANOTHERS:
	case OF_A_SEND:
		flight_name(&frame, lie);
		break;
	case CUT:
		break;
	}
	memcpy(out, &frame, sizeof(frame));
	if (frame.kind == 1)
		memcpy(out + sizeof(frame), &head, sizeof(head));
	return lie == CUT ? sizeof(frame) + 50 : sizeof(frame) + 100;
}

START_TEST(a_peer_that_lies_is_lost)
{
	enum lie lie = (enum lie)_i;
	uint8_t bytes[4096], *base;
	size_t size_bytes;
	int fd;

	sides_open(true);
	base = sides[0].region->base;
	memset(base, 0, 2 * LARGE);
	receives[0] = (struct rb_request) { .peer = 1,
					    .tag = rb_tag(0, RB_TAG_ONESHOT, 7, 1),
					    .buffer = base + 1000,
					    .size_bytes = 100000,
					    .where = &sides[0].where };
	ops->recv(sides[0].ep, &receives[0]);
	poll_both();
	fd = dial(0);
	ck_assert_uint_eq(answered(fd, sides[0].options.key, 0, false), RB_VERBS_PROOF_BYTES);
	size_bytes = lie_make(TRUTH, bytes);
	ck_assert_int_eq(send(fd, bytes, size_bytes, MSG_NOSIGNAL), (ssize_t)size_bytes);
	poll_a_while();
	ck_assert(!peer_of(0)->lost);
	for (uint32_t i = 0; i < 200; i++)
		ck_assert_uint_eq(base[i], i < 100 ? 9 : 0); /* It was written. */
	memset(base, 0, 100);
	if (lie != TRUTH) {
		size_bytes = lie_make(lie, bytes);
		ck_assert_int_eq(send(fd, bytes, size_bytes, MSG_NOSIGNAL), (ssize_t)size_bytes);
		if (lie == CUT)
			ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
		for (uint32_t i = 0; i < 100 && !first_lost(); i++)
			poll_a_while();
		ck_assert(peer_of(0)->lost);
		ck_assert_msg(strstr(peer_of(0)->reason, lies[lie].words) != NULL &&
				      strstr(peer_of(0)->reason, "rank 1") != NULL,
			      "%s", peer_of(0)->reason);
	}
	for (size_t i = 0; i < 2 * LARGE; i++)
		if (base[i] != 0)
			ck_abort_msg("byte %zu was written", i);
	(void)close(fd);
	both(close_main);
}
END_TEST

/* ---- The end ---- */

/* As the kernel does it for a process that is killed. */
START_TEST(a_peer_whose_connection_ends_is_lost)
{
	struct rb_verbs_spare *theirs;

	sides_open(true);
	fall();
	await(both_by_tcp, "TCP");
	messages_post(LARGE, true);
	theirs = peer_of(1)->spare;
	(void)shutdown(_i == 0 ? theirs->in_fd : theirs->out_fd, SHUT_RDWR);
	for (uint32_t i = 0; i < 100 && !first_lost(); i++)
		poll_a_while();
	ck_assert(peer_of(0)->lost && !peer_of(0)->left);
	ck_assert_msg(strstr(peer_of(0)->reason, "rank 1: TCP") != NULL, "%s", peer_of(0)->reason);
	ck_assert_msg(strstr(peer_of(0)->reason, "mock0") != NULL, "%s", peer_of(0)->reason);
	await(all_done, "requests end");
	ck_assert_int_eq(receives[0].status, RUBATO_ERR_PEER);
	both(close_main);
}
END_TEST

/* Who leaves, whose last message is on its way. */
START_TEST(who_leaves_over_tcp_has_left)
{
	sides_open(true);
	fall();
	await(both_by_tcp, "TCP");
	messages();
	messages_post(3000, false);
	await(all_done, "messages");
	ops->close(sides[1].ep, false, rb_clock_ns() + LIMIT_NS);
	for (uint32_t i = 0; i < 100 && !first_lost(); i++) {
		(void)ops->poll(sides[0].ep);
		ops->look(sides[0].ep);
	}
	ck_assert(peer_of(0)->left);
	ops->close(sides[0].ep, false, rb_clock_ns() + LIMIT_NS);
}
END_TEST

/* By a rail, while the connection is kept: its end is seen before what came by the rail is. */
START_TEST(who_leaves_by_a_rail_after_tcp_has_left)
{
	sides_open(true);
	fall();
	await(both_by_tcp, "TCP");
	messages();
	mock_link(0, 0, 1, true);
	await(both_by_rail, "a rail");
	messages();
	ops->close(sides[1].ep, false, rb_clock_ns() + LIMIT_NS);
	ops->look(sides[0].ep);
	ck_assert(peer_of(0)->lost);
	ck_assert_msg(peer_of(0)->left, "%s", peer_of(0)->reason);
	ops->close(sides[0].ep, false, rb_clock_ns() + LIMIT_NS);
}
END_TEST

/* ---- A rail that fails between greetings ---- */

static _Atomic bool failed;

/* The rail has brought the peer's greeting, and has yet to bring this rank's. */
static int fail_between(void *arg, const char *function)
{
	const struct rb_verbs_link *link = connecting > 0 ? peer_of(connecting - 1)->links : NULL;

	(void)arg;
	(void)function;
	if (link != NULL && link->state == RB_VERBS_LINK_LIVE && link->qp != NULL &&
	    link->retired == RB_VERBS_COUNTS_FROM && !atomic_exchange(&failed, true))
		ck_assert_int_eq(mock_qp_event(link->qp->qp_num, IBV_EVENT_QP_FATAL), 0);
	return 0;
}

/* They have met: TCP carries what follows, until the rail is back. */
START_TEST(who_has_been_greeted_by_a_rail_goes_over_tcp)
{
	sides_make(true);
	mock_slow(0, 0, 1, 50000);
	mock_watch_calls(fail_between, NULL);
	sides_meet();
	mock_watch_calls(NULL, NULL);
	ck_assert(failed);
	mock_slow(0, 0, 1, 0);
	messages();
	await(both_by_rail, "a rail");
	messages();
	both(close_main);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("spare");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, messages_go_over_tcp_and_back);
	tcase_add_test(tc, what_the_other_end_does_not_take_waits);
	tcase_add_loop_test(tc, of_a_doorbell_the_device_takes_part, 0, 2 * BURST_REQUESTS);
	tcase_add_test(tc, a_rail_waits_until_tcp_is_taken);
	tcase_add_loop_test(tc, what_has_said_its_end_is_written_over_tcp_though_cancelled, 0, 2);
	tcase_add_test(tc, what_was_stopped_is_not_written_over_tcp);
	tcase_add_test(tc, strangers_are_not_answered);
	tcase_add_test(tc, who_has_another_key_is_lost);
	tcase_add_test(tc, who_answers_without_the_key_is_not_it);
	tcase_add_loop_test(tc, a_peer_that_lies_is_lost, 0, LIES);
	tcase_add_loop_test(tc, a_peer_whose_connection_ends_is_lost, 0, 2);
	tcase_add_test(tc, who_leaves_over_tcp_has_left);
	tcase_add_test(tc, who_leaves_by_a_rail_after_tcp_has_left);
	tcase_add_test(tc, who_has_been_greeted_by_a_rail_goes_over_tcp);
	return check_main("verbs-spare", tc);
}
