/* ends.c -- see ends.h. */
#include "tests/runtime/verbs/ends.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"

struct ends ends;
uint8_t sent[VAST], got[VAST];

static void *connect_main(void *arg)
{
	uint32_t rank = (uint32_t)(uintptr_t)arg;
	struct rb_transport_options options = { .rank = rank,
						.rank_count = ends.ranks > 0 ? ends.ranks : 2,
						.resend_ns = ends.resend_ns,
						.cache_bytes = ends.cache_bytes };
	const void *addresses[RANKS_MAX] = { ends.bytes[0], ends.bytes[1] };
	bool use[RANKS_MAX] = { true, true };
	struct rb_endpoint **ep = &ends.ep[rank];

	ck_assert_int_eq(rb_transport_verbs.open(&options, ep), RUBATO_OK);
	ck_assert_int_eq(rb_transport_verbs.address(*ep, ends.bytes[rank], &ends.size_bytes[rank]),
			 RUBATO_OK);
	(void)pthread_barrier_wait(&ends.barrier);
	ck_assert_int_eq(rb_transport_verbs.connect(*ep, addresses, ends.size_bytes, use,
						    rb_clock_ns() + LIMIT_NS),
			 RUBATO_OK);
	return NULL;
}

static void *close_main(void *arg)
{
	rb_transport_verbs.close(ends.ep[(uintptr_t)arg], false, rb_clock_ns() + LIMIT_NS);
	return NULL;
}

/* close() waits for the other end, too. */
static void both(void *(*main)(void *))
{
	pthread_t threads[2];

	for (uintptr_t r = 0; r < 2; r++)
		ck_assert_int_eq(pthread_create(&threads[r], NULL, main, (void *)r), 0);
	for (uint32_t r = 0; r < 2; r++)
		(void)pthread_join(threads[r], NULL);
}

void ends_open(uint32_t rails, uint64_t seed)
{
	struct mock_config config;

	mock_config_default(&config);
	config.devices = rails;
	config.seed = seed;
	config.max_cqe = 1 << 20;
	config.stale_cqes = 1; /* Some devices tell of queue pairs that are gone. */
	ck_assert_int_eq(mock_reset(&config), 0);
	ck_assert_int_eq(pthread_barrier_init(&ends.barrier, NULL, 2), 0);
	both(connect_main);
}

void ends_close(void)
{
	struct mock_counters counters;

	both(close_main);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.rnr, 0);
	ck_assert_uint_eq(counters.outside_local, 0);
	ck_assert_uint_eq(counters.outside_remote, counters.stale_remote);
	ck_assert(ends.stale > 0 ? counters.stale_remote >= ends.stale
				 : counters.stale_remote == 0);
	ends.stale = 0;
	ends.ranks = 0;
	ck_assert_uint_eq(counters.left_open, 0);
}

struct rb_verbs *verbs_of(uint32_t rank)
{
	return (struct rb_verbs *)ends.ep[rank];
}

struct rb_verbs_peer *peer_of(uint32_t rank)
{
	return &verbs_of(rank)->peers[1 - rank];
}

void move(void)
{
	for (uint32_t r = 0; r < 2; r++) {
		(void)rb_transport_verbs.poll(ends.ep[r]);
		rb_transport_verbs.look(ends.ep[r]);
	}
}

void await(bool (*is_so)(void *arg), void *arg, const char *what)
{
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;

	while (!is_so(arg)) {
		move();
		if (rb_clock_ns() > until_ns)
			ck_abort_msg("in vain: %s", what);
	}
}

bool is_done(void *request)
{
	return ((struct rb_request *)request)->state == RB_REQUEST_DONE;
}

bool nothing_is_posted(void *unused)
{
	(void)unused;
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t i = 0; i < peer_of(r)->link_count; i++)
			if (peer_of(r)->links[i].posted != peer_of(r)->links[i].retired)
				return false;
	return true;
}

bool all_live(void *unused)
{
	(void)unused;
	return peer_of(0)->live == peer_of(0)->link_count &&
	       peer_of(1)->live == peer_of(1)->link_count;
}

/* ---- Messages ---- */

void request_set(struct rb_request *request, uint32_t from, void *buffer, size_t bytes)
{
	*request = (struct rb_request) { .peer = 1 - from,
					 .tag = rb_tag(0, RB_TAG_ONESHOT, ends.call, 0),
					 .signature = { .kind = 1, .count = bytes },
					 .buffer = buffer,
					 .size_bytes = bytes };
}

void message(uint32_t from, size_t bytes, bool receive_first)
{
	struct rb_request send, receive;

	ends.call++;
	for (size_t i = 0; i < bytes; i++) {
		sent[i] = (uint8_t)(i * 31 + ends.call);
		got[i] = 0;
	}
	request_set(&send, from, sent, bytes);
	request_set(&receive, 1 - from, got, bytes);
	if (receive_first) {
		rb_transport_verbs.recv(ends.ep[1 - from], &receive);
		move();
	}
	rb_transport_verbs.send(ends.ep[from], &send);
	for (uint32_t i = 0; i < 50 && !receive_first; i++)
		move();
	if (!receive_first)
		rb_transport_verbs.recv(ends.ep[1 - from], &receive);
	await(is_done, &send, "a send");
	await(is_done, &receive, "a receive");
	ck_assert_int_eq(send.status, RUBATO_OK);
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got, bytes), 0);
}

/* A receive that has invited is cancelled, and then again a send that was announced. */
static void message_cancelled(uint32_t from, size_t bytes)
{
	struct rb_request send, receive;

	ends.call++;
	request_set(&receive, 1 - from, got, bytes);
	rb_transport_verbs.recv(ends.ep[1 - from], &receive);
	move();
	rb_transport_verbs.cancel(ends.ep[1 - from], &receive);
	ck_assert_int_eq(receive.status, RUBATO_ERR_CANCELLED);
	ends.call++;
	request_set(&send, from, sent, bytes);
	rb_transport_verbs.send(ends.ep[from], &send);
	move();
	if (send.state != RB_REQUEST_DONE)
		rb_transport_verbs.cancel(ends.ep[from], &send);
	for (uint32_t i = 0; i < 50; i++)
		move();
	if (send.status == RUBATO_OK) { /* It was small: it is here. */
		request_set(&receive, 1 - from, got, bytes);
		rb_transport_verbs.recv(ends.ep[1 - from], &receive);
		await(is_done, &receive, "what was sent before it was cancelled");
	}
}

static void message_put(uint32_t from, size_t bytes)
{
	struct rb_endpoint *to = ends.ep[1 - from];
	uint8_t key[RB_KEY_BYTES_MAX];
	struct rb_request put, receive;
	struct rb_region *region;
	struct rb_remote *remote;
	size_t key_bytes;

	ends.call++;
	memset(got, 0, LARGE);
	for (size_t i = 0; i < bytes; i++)
		sent[i] = (uint8_t)(i * 17 + ends.call);
	ck_assert_int_eq(rb_transport_verbs.region_add(to, got, LARGE, &region), RUBATO_OK);
	ck_assert_int_eq(rb_transport_verbs.region_key(to, region, key, &key_bytes), RUBATO_OK);
	ck_assert_int_eq(
		rb_transport_verbs.remote_open(ends.ep[from], 1 - from, key, key_bytes, &remote),
		RUBATO_OK);
	request_set(&put, from, sent, bytes);
	put.remote = remote;
	put.remote_offset = LARGE - bytes;
	request_set(&receive, 1 - from, NULL, 0);
	receive.signature = put.signature;
	rb_transport_verbs.put(ends.ep[from], &put);
	rb_transport_verbs.recv(to, &receive);
	await(is_done, &put, "a put");
	await(is_done, &receive, "the message behind a put");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got + LARGE - bytes, bytes), 0);
	rb_transport_verbs.remote_close(ends.ep[from], remote);
	rb_transport_verbs.region_drop(to, region);
}

/* ---- At rest ---- */

static uint32_t slots_free(const struct rb_verbs *vb)
{
	uint32_t count = 0;

	for (const struct rb_verbs_slot *s = vb->free_slots; s != NULL; s = s->next)
		count++;
	return count;
}

static uint32_t flights_used(struct rb_verbs *vb)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < vb->flight_count; i++)
		count += rb_verbs_flight_at(vb, i)->used;
	return count;
}

static bool all_is_taken(void *unused)
{
	(void)unused;
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t i = 0; i < peer_of(r)->link_count; i++)
			if (peer_of(r)->links[i].sent != peer_of(1 - r)->links[i].taken)
				return false;
	return true;
}

void all_rests(const char *what)
{
	/* A sender may know that a message has come before the other end was moved again. */
	await(all_is_taken, NULL, what);
	for (uint32_t r = 0; r < 2; r++) {
		/* Not every entry of a queue tells its completion. */
		for (uint32_t i = 0; i < peer_of(r)->link_count; i++)
			if (rb_verbs_is_live(&peer_of(r)->links[i]))
				rb_verbs_probe(verbs_of(r), &peer_of(r)->links[i]);
		rb_verbs_ring(verbs_of(r));
	}
	await(nothing_is_posted, NULL, what);
	for (uint32_t r = 0; r < 2; r++) {
		struct rb_verbs *vb = verbs_of(r);
		const struct rb_verbs_peer *peer = peer_of(r), *other = peer_of(1 - r);
		uint32_t slots = 0;

		for (const struct rb_verbs_chunk *c = vb->chunks; c != NULL; c = c->next)
			slots += 64;
		ck_assert_msg(slots_free(vb) == slots, "%s: rank %u: %u of %u slots are free", what,
			      r, slots_free(vb), slots);
		ck_assert_msg(flights_used(vb) == 0, "%s: rank %u: %u flights", what, r,
			      flights_used(vb));
		ck_assert_msg(peer->held == 0 && peer->waiting == 0,
			      "%s: rank %u: %u units held, %u waiting", what, r, peer->held,
			      peer->waiting);
		ck_assert_msg(peer->spent == other->freed,
			      "%s: rank %u has spent %u units more than were given back", what, r,
			      peer->spent - other->freed);
		ck_assert_msg(peer->number == other->their_number, "%s: the stream of rank %u",
			      what, r);
		ck_assert(vb->base.leaving == 0 && peer->redo == NULL && peer->held_by == 0);
		ck_assert_uint_eq(vb->base.mending, 0);
		for (uint32_t i = 0; i < peer->link_count; i++) {
			ck_assert_msg(peer->links[i].bytes_out == 0,
				      "%s: rank %u: %llu bytes under way", what, r,
				      (unsigned long long)peer->links[i].bytes_out);
			ck_assert_msg(peer->links[i].sent == other->links[i].taken,
				      "%s: link %u of rank %u", what, i, r);
		}
	}
}

static const size_t sizes[] = { 0, 1, 200, 960, 961, 5000, 16384, 16385, 65537, LARGE };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

void messages_all(const char *when)
{
	char what[100];

	for (uint32_t from = 0; from < 2; from++)
		for (size_t s = 0; s < SIZES; s++) {
			for (uint32_t first = 0; first < 2; first++) {
				message(from, sizes[s], first == 1);
				(void)snprintf(what, sizeof(what), "%s, %zu bytes, %s first", when,
					       sizes[s], first ? "received" : "sent");
				all_rests(what);
			}
			message_put(from, sizes[s]);
			(void)snprintf(what, sizeof(what), "%s, a put of %zu bytes", when,
				       sizes[s]);
			all_rests(what);
			message_cancelled(from, sizes[s]);
			(void)snprintf(what, sizeof(what), "%s, %zu bytes cancelled", when,
				       sizes[s]);
			all_rests(what);
		}
}

bool first_has_lost(void *unused)
{
	(void)unused;
	return peer_of(0)->lost;
}
