/*
 * test_verbs_ends.c -- two ends of the verbs transport in one thread, which moves both: what they
 * count, who is asked whether he is there, and links that come back.
 *
 * When nothing is under way any more, each end's counts say so: whatever was spent is back, nothing
 * waits, every slot is free. A count that only grows shows here after one message; in a job it
 * would after millions of them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs.h"

#define LIMIT_NS 20000000000u
#define LARGE 300001u
#define NTH_MAX 200u /* More is a link that is made for ever. */
#define TICKS 60u    /* Three times as many as a device has to answer. */

static struct {
	struct rb_endpoint *ep[2];
	uint8_t bytes[2][RB_ADDRESS_BYTES_MAX];
	size_t size_bytes[2];
	pthread_barrier_t barrier;
	uint64_t call;      /* Of the next message's tag. */
	uint64_t resend_ns; /* Or 0. */
} ends;

static void *connect_main(void *arg)
{
	uint32_t rank = (uint32_t)(uintptr_t)arg;
	struct rb_transport_options options = { .rank = rank,
						.rank_count = 2,
						.resend_ns = ends.resend_ns };
	const void *addresses[2] = { ends.bytes[0], ends.bytes[1] };
	bool use[2] = { true, true };
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

static void ends_open(uint32_t rails, uint64_t seed)
{
	struct mock_config config;

	mock_config_default(&config);
	config.devices = rails;
	config.seed = seed;
	config.stale_cqes = 1; /* Some devices tell of queue pairs that are gone. */
	ck_assert_int_eq(mock_reset(&config), 0);
	ck_assert_int_eq(pthread_barrier_init(&ends.barrier, NULL, 2), 0);
	both(connect_main);
}

static void ends_close(void)
{
	struct mock_counters counters;

	both(close_main);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.rnr, 0);
	ck_assert_uint_eq(counters.outside_local, 0);
	ck_assert_uint_eq(counters.outside_remote, 0);
	ck_assert_uint_eq(counters.left_open, 0);
}

static struct rb_verbs *verbs_of(uint32_t rank)
{
	return (struct rb_verbs *)ends.ep[rank];
}

static struct rb_verbs_peer *peer_of(uint32_t rank)
{
	return &verbs_of(rank)->peers[1 - rank];
}

static void move(void)
{
	for (uint32_t r = 0; r < 2; r++) {
		(void)rb_transport_verbs.poll(ends.ep[r]);
		rb_transport_verbs.look(ends.ep[r]);
	}
}

/* Moves both until it is so. */
static void await(bool (*is_so)(void *arg), void *arg, const char *what)
{
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;

	while (!is_so(arg)) {
		move();
		if (rb_clock_ns() > until_ns)
			ck_abort_msg("in vain: %s", what);
	}
}

static bool is_done(void *request)
{
	return ((struct rb_request *)request)->state == RB_REQUEST_DONE;
}

static bool nothing_is_posted(void *unused)
{
	(void)unused;
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t i = 0; i < peer_of(r)->link_count; i++)
			if (peer_of(r)->links[i].posted != peer_of(r)->links[i].retired)
				return false;
	return true;
}

static bool all_live(void *unused)
{
	(void)unused;
	return peer_of(0)->live == peer_of(0)->link_count &&
	       peer_of(1)->live == peer_of(1)->link_count;
}

/* ---- Messages ---- */

static void request_set(struct rb_request *request, uint32_t from, void *buffer, size_t bytes)
{
	*request = (struct rb_request) { .peer = 1 - from,
					 .tag = rb_tag(0, RB_TAG_ONESHOT, ends.call, 0),
					 .signature = { .kind = 1, .count = bytes },
					 .buffer = buffer,
					 .size_bytes = bytes };
}

static uint8_t sent[LARGE], got[LARGE];

/* From rank `from`, the receive first or the send. */
static void message(uint32_t from, size_t bytes, bool receive_first)
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
	memset(got, 0, sizeof(got));
	for (size_t i = 0; i < bytes; i++)
		sent[i] = (uint8_t)(i * 17 + ends.call);
	ck_assert_int_eq(rb_transport_verbs.region_add(to, got, sizeof(got), &region), RUBATO_OK);
	ck_assert_int_eq(rb_transport_verbs.region_key(to, region, key, &key_bytes), RUBATO_OK);
	ck_assert_int_eq(
		rb_transport_verbs.remote_open(ends.ep[from], 1 - from, key, key_bytes, &remote),
		RUBATO_OK);
	request_set(&put, from, sent, bytes);
	put.remote = remote;
	put.remote_offset = sizeof(got) - bytes;
	request_set(&receive, 1 - from, NULL, 0);
	receive.signature = put.signature;
	rb_transport_verbs.put(ends.ep[from], &put);
	rb_transport_verbs.recv(to, &receive);
	await(is_done, &put, "a put");
	await(is_done, &receive, "the message behind a put");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got + sizeof(got) - bytes, bytes), 0);
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

static void all_rests(const char *what)
{
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

/* Each kind of message, by what it may leave. */
static void messages_all(const char *when)
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

START_TEST(when_nothing_is_under_way_the_counts_say_so)
{
	uint32_t rails = (uint32_t)_i % 3 + 1;

	ends_open(rails, _i < 3 ? 0 : (uint64_t)_i);
	messages_all("at first");
	messages_all("again");
	ends_close();
}
END_TEST

/* ---- Credit ---- */

enum { HELD = 2 * RB_UNEXPECTED_BYTES_MAX / RB_VERBS_EAGER_MAX };
static struct rb_request held[HELD];

/* Rank 1 sends messages that nobody receives; `boldly`: whatever it has been given back. How many
 * rank 0 holds. */
static uint32_t held_send(bool boldly)
{
	uint32_t count = 0;

	while (count < HELD && !peer_of(0)->lost) {
		struct rb_verbs_peer *peer = peer_of(1);
		uint32_t before = peer->spent;

		if (boldly)
			peer->spent_known = peer->spent;
		ends.call++;
		request_set(&held[count], 1, sent, RB_VERBS_EAGER_MAX);
		rb_transport_verbs.send(ends.ep[1], &held[count]);
		if (peer->spent == before) { /* It is announced. */
			rb_transport_verbs.cancel(ends.ep[1], &held[count]);
			break;
		}
		for (uint32_t i = 0; i < 20; i++)
			move();
		count++;
	}
	return count;
}

/* Also where it has nothing else to say. */
START_TEST(what_is_taken_late_is_given_back)
{
	uint64_t first;
	uint32_t count;

	ends_open(1, 0);
	first = ends.call + 1;
	count = held_send(false);
	ck_assert_uint_gt(count, 4);
	ck_assert_uint_lt(count, HELD);
	for (uint32_t i = 0; i < count; i++) {
		struct rb_request receive;

		ends.call = first + i;
		request_set(&receive, 0, got, RB_VERBS_EAGER_MAX);
		rb_transport_verbs.recv(ends.ep[0], &receive);
		await(is_done, &receive, "what was held");
	}
	for (uint32_t i = 0; i < 100; i++)
		move();
	ck_assert_uint_lt(peer_of(1)->spent - peer_of(1)->spent_known, RB_VERBS_UNITS_MAX / 2);
	ends.call = first + HELD;
	ends_close();
}
END_TEST

static bool first_has_lost(void *unused)
{
	(void)unused;
	return peer_of(0)->lost;
}

enum breach { SLOTS_GIVEN_BACK, UNITS_GIVEN_BACK, UNITS_SPENT, BREACHES };

START_TEST(who_breaks_credit_is_lost)
{
	static const char *const words[BREACHES] = { "gave back more", "gave back more",
						     "more than its credit" };
	struct rb_request send;

	ends_open(1, 0);
	message(1, 100, true);
	if (_i == SLOTS_GIVEN_BACK)
		peer_of(1)->links[0].reposted += 1000;
	else if (_i == UNITS_GIVEN_BACK)
		peer_of(1)->freed += 1000;
	else
		(void)held_send(true);
	ends.call++;
	request_set(&send, 1, sent, 100);
	rb_transport_verbs.send(ends.ep[1], &send);
	await(first_has_lost, NULL, "rank 1 is lost");
	ck_assert_msg(strstr(peer_of(0)->reason, words[_i]) != NULL, "%s", peer_of(0)->reason);
	for (uint32_t r = 0; r < 2; r++)
		rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
}
END_TEST

/* ---- Who is asked ---- */

START_TEST(who_answers_whenever_he_is_asked_stays)
{
	ends_open(2, 0);
	message(0, 100, true);
	for (uint32_t k = 0; k < TICKS; k++) {
		for (uint32_t r = 0; r < 2; r++) {
			for (uint32_t i = 0; i < 2; i++) /* As each second of silence does. */
				rb_verbs_link_tick(verbs_of(r), &peer_of(r)->links[i], true);
			rb_verbs_ring(verbs_of(r));
		}
		await(nothing_is_posted, NULL, "an answer");
	}
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_uint_eq(verbs_of(r)->counts.failed, 0);
	ck_assert(all_live(NULL));
	messages_all("after many questions");
	ends_close();
}
END_TEST

/* ---- Links that come back ---- */

static bool link_is_down(void *index)
{
	uint32_t i = *(uint32_t *)index;

	return peer_of(0)->links[i].state == RB_VERBS_LINK_DOWN &&
	       peer_of(1)->links[i].state == RB_VERBS_LINK_DOWN;
}

/* Seconds need not pass for real. */
static bool all_live_ticking(void *unused)
{
	for (uint32_t r = 0; r < 2; r++) {
		for (uint32_t i = 0; i < peer_of(r)->link_count; i++)
			if (peer_of(r)->links[i].state == RB_VERBS_LINK_DOWN)
				rb_verbs_link_tick(verbs_of(r), &peer_of(r)->links[i], false);
	}
	return all_live(unused);
}

static void fall(uint32_t rail)
{
	mock_link(0, rail, 1, false);
	message(0, 100, true); /* By the other one, if it is there. */
	await(link_is_down, &rail, "both ends of a link to be down");
}

/* At one end, or the other, or both: the call fails when the link is made anew. */
START_TEST(a_link_that_cannot_be_made_at_first_is_made_later)
{
	static const char *const calls[] = { "ibv_create_qp", "ibv_modify_qp" };
	const char *call = calls[_i % 2];
	uint32_t rail = (uint32_t)_i / 2;

	for (uint64_t nth = 1, fired = 1; fired > 0; nth++) {
		/* A queue pair is tried with four sizes of what is sent inline. */
		uint64_t times = strcmp(call, "ibv_create_qp") == 0 ? 4 : 1;
		int fault;

		ends_open(2, 0);
		fall(rail);
		fault = mock_fail_call(call, nth, times, ENOMEM);
		mock_link(0, rail, 1, true);
		await(all_live_ticking, NULL, "a link that could not be made at first");
		fired = mock_fired(fault);
		ck_assert_msg(fired > 0 || nth > 2, "%s is not called at both ends", call);
		ck_assert_uint_lt(nth, NTH_MAX);
		message(0, LARGE, nth % 2 == 0);
		message(1, 100, true);
		all_rests("after it came back");
		ends_close();
	}
}
END_TEST

/* Two rails of three fail, the second one while the first one's messages are being done again. */
START_TEST(a_second_link_fails_while_the_first_ones_messages_are_done_again)
{
	enum { COUNT = 40 };
	static struct rb_request sends[COUNT], receives[COUNT];
	static uint8_t from[COUNT][2000], to[COUNT][2000];

	for (uint32_t gap = 0; gap < (test_length() == TEST_SHORT ? 6u : 24u); gap++) {
		ends_open(3, gap);
		for (uint32_t k = 0; k < COUNT; k++) {
			uint32_t bytes = k % 3 == 0 ? 2000 : 10;

			ends.call++;
			memset(from[k], (int)k + 1, sizeof(from[k]));
			memset(to[k], 0, sizeof(to[k]));
			request_set(&sends[k], 0, from[k], bytes);
			request_set(&receives[k], 1, to[k], bytes);
			rb_transport_verbs.recv(ends.ep[1], &receives[k]);
			if (k == COUNT / 2)
				mock_link(0, 0, 1, false);
			rb_transport_verbs.send(ends.ep[0], &sends[k]);
		}
		for (uint32_t i = 0; i < gap * 3; i++)
			move();
		mock_link(0, peer_of(0)->main, 1, false);
		for (uint32_t k = 0; k < COUNT; k++) {
			await(is_done, &receives[k], "a message after two links have failed");
			ck_assert_int_eq(receives[k].status, RUBATO_OK);
			ck_assert_int_eq(memcmp(from[k], to[k], receives[k].size_bytes), 0);
		}
		ck_assert_uint_gt(verbs_of(0)->counts.failed, 0);
		for (uint32_t i = 0; i < 3; i++)
			mock_link(0, i, 1, true);
		await(all_live_ticking, NULL, "three links");
		message(0, LARGE, true);
		message(1, LARGE, false);
		all_rests("after two links have failed");
		ends_close();
	}
}
END_TEST

/* What the device still tells of a queue pair that is gone is nothing of the next one's. */
START_TEST(what_is_told_of_a_link_that_is_gone_is_not_taken)
{
	for (uint32_t rail = 0; rail < 2; rail++) {
		ends_open(2, 0);
		for (uint32_t life = 0; life < 70; life++) { /* As many as the numbers of lives. */
			struct rb_verbs_link *link = &peer_of(0)->links[rail];

			rb_verbs_link_fail(verbs_of(0), link, "for a test");
			/* Two seconds later it is closed, whatever has not ended. */
			rb_verbs_link_tick(verbs_of(0), link, false);
			rb_verbs_link_tick(verbs_of(0), link, false);
			message(life % 2, 100, life % 4 < 2);
			await(all_live_ticking, NULL, "the next life of a link");
			message(life % 2, 70000, life % 4 < 2);
		}
		messages_all("after many lives");
		ends_close();
	}
}
END_TEST

/* Its device has told that the message came, and nobody has asked yet, when the clock ends the link's
 * drain: `look` alone runs the clock of who computes. */
START_TEST(what_has_come_is_taken_before_the_clock_ends_a_link)
{
	struct rb_request send, receive;
	struct rb_verbs_link *link;

	ends_open(2, 0);
	message(1, 100, true);
	ends.call++;
	memset(got, 0, 100);
	request_set(&receive, 0, got, 100);
	rb_transport_verbs.recv(ends.ep[0], &receive);
	request_set(&send, 1, sent, 100);
	rb_transport_verbs.send(ends.ep[1], &send);
	link = &peer_of(1)->links[peer_of(1)->main];
	rb_verbs_probe(verbs_of(1), link);
	rb_verbs_ring(verbs_of(1));
	while (link->posted != link->retired)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	link = &peer_of(0)->links[link->index];
	rb_verbs_link_fail(verbs_of(0), link, "for a test");
	link->receives++; /* Which the device never ends. */
	for (uint32_t tick = 0; tick < 2; tick++)
		rb_verbs_link_tick(verbs_of(0), link, false);
	ck_assert_uint_eq(verbs_of(0)->counts.by_clock, 1);
	await(is_done, &receive, "what had come");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got, 100), 0);
	await(all_live_ticking, NULL, "the link again");
	messages_all("after the clock has ended a link");
	ends_close();
}
END_TEST

/* Rail 0 comes back when the stream, on rail 1, counts as it did at its beginning: as if 2^32
 * messages had gone either way. */
START_TEST(the_stream_stays_where_its_count_comes_round)
{
	ends_open(2, 0);
	messages_all("at first");
	fall(0);
	messages_all("by rail 1");
	for (uint32_t r = 0; r < 2; r++)
		peer_of(r)->number = peer_of(r)->their_number = RB_VERBS_COUNTS_FROM;
	mock_link(0, 0, 1, true);
	await(all_live_ticking, NULL, "rail 0 again");
	for (uint32_t r = 0; r < 2; r++) {
		ck_assert_uint_eq(peer_of(r)->number, RB_VERBS_COUNTS_FROM);
		ck_assert_uint_eq(peer_of(r)->main, 1);
	}
	messages_all("by both");
	ends_close();
}
END_TEST

/* ---- What cannot be opened ---- */

/* The calloc() that fails: see meson.build. 0: none. */
static uint32_t callocs_left;

void *__real_calloc(size_t count, size_t size_bytes);
/* Sanitizers' libraries call it, too. */
__attribute__((visibility("default"))) void *__wrap_calloc(size_t count, size_t size_bytes);

void *__wrap_calloc(size_t count, size_t size_bytes)
{
	if (callocs_left > 0 && --callocs_left == 0)
		return NULL;
	return __real_calloc(count, size_bytes);
}

static void mock_reset_default(void)
{
	struct mock_config config;

	mock_config_default(&config);
	ck_assert_int_eq(mock_reset(&config), 0);
}

/* Of ranks that open, and do nothing else. */
static uint8_t others[3][RB_ADDRESS_BYTES_MAX];
static size_t other_bytes[3];

static void others_ask(uint32_t rank_count)
{
	for (uint32_t r = 1; r < rank_count; r++) {
		struct rb_transport_options options = { .rank = r, .rank_count = rank_count };
		struct rb_endpoint *ep;

		ck_assert_int_eq(rb_transport_verbs.open(&options, &ep), RUBATO_OK);
		ck_assert_int_eq(rb_transport_verbs.address(ep, others[r], &other_bytes[r]),
				 RUBATO_OK);
		rb_transport_verbs.close(ep, true, rb_clock_ns());
	}
}

/* Rank 0, to which nobody answers. */
static rubato_status lonely(uint32_t rank_count)
{
	struct rb_transport_options options = { .rank_count = rank_count };
	const void *addresses[3] = { others[0], others[1], others[2] };
	const bool use[3] = { false, true, true };
	struct rb_endpoint *ep = NULL;
	rubato_status status = rb_transport_verbs.open(&options, &ep);

	if (status == RUBATO_OK)
		status = rb_transport_verbs.address(ep, others[0], &other_bytes[0]);
	if (status == RUBATO_OK)
		status = rb_transport_verbs.connect(ep, addresses, other_bytes, use,
						    rb_clock_ns() + 10000000u);
	callocs_left = 0;
	rb_transport_verbs.close(ep, true, rb_clock_ns());
	return status;
}

START_TEST(who_finds_no_memory_closes)
{
	rubato_status status = RUBATO_ERR_MEMORY;
	uint32_t nth = 0;

	while (status == RUBATO_ERR_MEMORY) {
		struct mock_counters counters;

		ck_assert_uint_lt(++nth, NTH_MAX);
		mock_reset_default();
		others_ask(2);
		callocs_left = nth;
		status = lonely(2);
		mock_counters(&counters);
		ck_assert_uint_eq(counters.left_open, 0);
	}
	ck_assert_int_eq(status, RUBATO_ERR_TIMEOUT); /* All was there. */
	ck_assert_uint_gt(nth, 5);
}
END_TEST

START_TEST(who_gets_an_address_that_is_none_closes)
{
	struct mock_counters counters;

	mock_reset_default();
	others_ask(3);
	other_bytes[2]--;
	ck_assert_int_eq(lonely(3), RUBATO_ERR_PEER);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.left_open, 0);
}
END_TEST

/* ---- What is set ---- */

static const struct {
	const char *interface;
	bool is_one;
} interfaces[] = {
	{ "mock0:1:0", true },  { "mock0:1", true },   { "mock0:", false },
	{ "mock0:1:", false },  { "mock0:x", false },  { "mock0:1:x", false },
	{ "mock0:1x", false },  { "mock0:+1", false }, { "mock0:1:-1", false },
	{ "mock0:1::", false }, { "mock0: 1", false }, { "mock0:1:4294967296", false },
};
#define INTERFACES (int)(sizeof(interfaces) / sizeof(interfaces[0]))

START_TEST(what_names_no_port_is_said)
{
	struct rb_transport_options options = { .rank_count = 2,
						.interface = interfaces[_i].interface };
	struct rb_endpoint *ep = NULL;
	struct mock_config config;
	rubato_status status;
	char words[80];

	mock_config_default(&config);
	ck_assert_int_eq(mock_reset(&config), 0);
	status = rb_transport_verbs.open(&options, &ep);
	if (interfaces[_i].is_one) {
		ck_assert_int_eq(status, RUBATO_OK);
		rb_transport_verbs.close(ep, false, rb_clock_ns() + LIMIT_NS);
		return;
	}
	ck_assert_int_eq(status, RUBATO_ERR_UNSUPPORTED);
	(void)snprintf(words, sizeof(words), "RUBATO_INTERFACE=%s names none", options.interface);
	ck_assert_msg(strstr(rubato_error_text(), words) != NULL, "%s", rubato_error_text());
}
END_TEST

START_TEST(a_device_waits_for_an_answer_as_long_as_is_set)
{
	static const struct {
		uint64_t ns;
		uint8_t exponent; /* Of 4.096 us. */
	} cases[] = { { 0, 14 },      { 1000000, 8 },     { 1048576, 8 },
		      { 1048577, 9 }, { 1000000000, 18 }, { 8000000000, 21 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ibv_qp_attr attr = { 0 };
		struct ibv_qp_init_attr init;

		ends.resend_ns = cases[i].ns;
		ends_open(1, 0);
		ck_assert_int_eq(
			ibv_query_qp(peer_of(0)->links[0].qp, &attr, IBV_QP_TIMEOUT, &init), 0);
		ck_assert_uint_eq(attr.timeout, cases[i].exponent);
		ends_close();
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ends");

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, when_nothing_is_under_way_the_counts_say_so, 0, 6);
	tcase_add_test(tc, what_is_taken_late_is_given_back);
	tcase_add_loop_test(tc, who_breaks_credit_is_lost, 0, BREACHES);
	tcase_add_test(tc, who_answers_whenever_he_is_asked_stays);
	tcase_add_test(tc, what_has_come_is_taken_before_the_clock_ends_a_link);
	tcase_add_test(tc, the_stream_stays_where_its_count_comes_round);
	tcase_add_test(tc, who_finds_no_memory_closes);
	tcase_add_test(tc, who_gets_an_address_that_is_none_closes);
	tcase_add_loop_test(tc, what_names_no_port_is_said, 0, INTERFACES);
	tcase_add_test(tc, a_device_waits_for_an_answer_as_long_as_is_set);
	tcase_add_loop_test(tc, a_link_that_cannot_be_made_at_first_is_made_later, 0, 4);
	tcase_add_test(tc, a_second_link_fails_while_the_first_ones_messages_are_done_again);
	tcase_add_test(tc, what_is_told_of_a_link_that_is_gone_is_not_taken);
	return check_main("verbs-ends", tc);
}
