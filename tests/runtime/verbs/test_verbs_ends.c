/*
 * test_verbs_ends.c -- two ends of the verbs transport in one thread, which moves both: what they
 * count, who breaks credit, who is asked whether he is there, and what cannot be opened.
 *
 * When nothing is under way any more, each end's counts say so: whatever was spent is back, nothing
 * waits, every slot is free. A count that only grows shows here after one message; in a job it
 * would after millions of them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/runtime/verbs/ends.h"
#include "tests/side_by_side.h"
#include "tests/verbs-mock/mock.h"

#define NTH_MAX 200u
#define TICKS 60u /* Three times as many as a device has to answer. */

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

/* What is more waits here: the slots beyond the window are for CREDIT. */
START_TEST(nobody_sends_more_than_a_window)
{
	enum { COUNT = 3 * RB_VERBS_SLOTS_MAX };
	static struct rb_request sends[COUNT], receives[COUNT];
	static const struct {
		uint32_t ranks, rails, slots;
	} jobs[] = { { 2, 1, 64 }, { 1000, 4, 14 }, { RANKS_MAX, 2, 14 } };
	const struct rb_verbs_link *link;

	ends.ranks = jobs[_i].ranks;
	ends_open(jobs[_i].rails, 0);
	ck_assert_uint_eq(peer_of(0)->slots_each, jobs[_i].slots);
	message(0, 100, true);
	all_rests("at first");
	for (uint32_t k = 0; k < COUNT; k++) {
		ends.call++;
		request_set(&receives[k], 1, NULL, 0);
		rb_transport_verbs.recv(ends.ep[1], &receives[k]);
		request_set(&sends[k], 0, NULL, 0);
		rb_transport_verbs.send(ends.ep[0], &sends[k]);
	}
	link = peer_of(0)->main;
	ck_assert_uint_eq(link->sent - link->sent_known, peer_of(0)->window);
	ck_assert_uint_lt(peer_of(0)->window + 3u, peer_of(0)->slots_each);
	for (uint32_t k = 0; k < COUNT; k++)
		await(is_done, &receives[k], "what had waited");
	all_rests("after a window");
	messages_all("after a window");
	ends_close();
}
END_TEST

START_TEST(writes_leave_room_for_messages)
{
	enum { COUNT = 12, BYTES = 16000 }; /* In copies: sixteen writes each. */
	static struct rb_request puts[COUNT], receives[COUNT];
	struct rb_verbs_link *link;
	struct rb_region *region;
	struct rb_remote *remote;
	uint8_t key[RB_KEY_BYTES_MAX];
	struct rb_request send, receive;
	uint32_t under_way;
	size_t key_bytes;

	ends_open(1, 0);
	ck_assert_int_eq(rb_transport_verbs.region_add(ends.ep[1], got, BYTES, &region), RUBATO_OK);
	ck_assert_int_eq(rb_transport_verbs.region_key(ends.ep[1], region, key, &key_bytes),
			 RUBATO_OK);
	ck_assert_int_eq(rb_transport_verbs.remote_open(ends.ep[0], 1, key, key_bytes, &remote),
			 RUBATO_OK);
	message(0, 100, true);
	all_rests("at first");
	mock_slow(0, 0, 1, 1000000);
	for (uint32_t k = 0; k < COUNT; k++) {
		ends.call++;
		request_set(&puts[k], 0, sent, BYTES);
		puts[k].remote = remote;
		rb_transport_verbs.put(ends.ep[0], &puts[k]);
		request_set(&receives[k], 1, NULL, 0);
		receives[k].signature = puts[k].signature;
		rb_transport_verbs.recv(ends.ep[1], &receives[k]);
	}
	link = &peer_of(0)->links[0];
	under_way = link->posted - link->retired;
	ck_assert_uint_gt(under_way, RB_VERBS_QUEUE_MAX / 2); /* No more writes find room. */
	ck_assert_int_eq(puts[COUNT - 1].state, RB_REQUEST_PENDING);
	ends.call++;
	request_set(&receive, 1, NULL, 0);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	request_set(&send, 0, NULL, 0);
	rb_transport_verbs.send(ends.ep[0], &send);
	ck_assert_uint_eq(link->posted - link->retired, under_way + 1);
	ck_assert_ptr_null(peer_of(0)->out_first);
	mock_slow(0, 0, 1, 0);
	await(is_done, &receive, "a message behind writes");
	for (uint32_t k = 0; k < COUNT; k++) {
		await(is_done, &receives[k], "the message behind a put");
		await(is_done, &puts[k], "a put");
	}
	rb_transport_verbs.remote_close(ends.ep[0], remote);
	rb_transport_verbs.region_drop(ends.ep[1], region);
	all_rests("after many puts");
	ends_close();
}
END_TEST

/* By one byte: it is registered for its message. */
START_TEST(a_buffer_that_goes_beyond_its_region_is_not_of_it)
{
	struct rb_region *region;
	struct rb_where where = { got, RB_MEMORY_HOST, &region };
	struct rb_request send, receive;

	ends_open(2, 0);
	ck_assert_int_eq(rb_transport_verbs.region_add(ends.ep[1], got, LARGE - 1, &region),
			 RUBATO_OK);
	ends.call++;
	memset(sent, 5, LARGE);
	memset(got, 0, LARGE);
	request_set(&receive, 1, got + 1, LARGE - 1);
	receive.where = &where;
	rb_transport_verbs.recv(ends.ep[1], &receive);
	request_set(&send, 0, sent, LARGE - 1);
	rb_transport_verbs.send(ends.ep[0], &send);
	await(is_done, &send, "a send");
	await(is_done, &receive, "a receive");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got + 1, LARGE - 1), 0);
	rb_transport_verbs.region_drop(ends.ep[1], region);
	all_rests("after a buffer that goes beyond its region");
	ends_close();
}
END_TEST

/* On one rail of two: nothing of what the other one has is used. */
START_TEST(what_only_one_rail_registers_is_not_registered)
{
	for (uint64_t nth = 1; nth <= 2; nth++) {
		struct rb_request send, receive;
		int fault;

		ends_open(2, 0);
		ends.call++;
		memset(sent, 5 + (int)nth, LARGE);
		memset(got, 0, LARGE);
		request_set(&receive, 1, got, LARGE);
		rb_transport_verbs.recv(ends.ep[1], &receive);
		fault = mock_fail_call("ibv_reg_mr", nth, 1, ENOMEM);
		request_set(&send, 0, sent, LARGE);
		rb_transport_verbs.send(ends.ep[0], &send);
		await(is_done, &send, "a send");
		await(is_done, &receive, "a receive");
		ck_assert_uint_eq(mock_fired(fault), 1);
		ck_assert_int_eq(receive.status, RUBATO_OK);
		ck_assert_int_eq(memcmp(sent, got, LARGE), 0);
		all_rests("after a registration has failed");
		ends_close();
	}
}
END_TEST

static const struct {
	uint64_t offset;
	uint32_t bytes, key; /* With a key it is written, not sent. */
} pieces[] = { { 0, 101, 0 }, { 1, 50, 0 }, { 0, 0, 0 }, { 0, 100, 77 } };
#define PIECES (int)(sizeof(pieces) / sizeof(pieces[0]))

/* To a receive of 100 bytes, which was invited. */
START_TEST(who_sends_a_piece_beside_its_message_is_lost)
{
	struct rb_verbs_head head = { .message = RB_VERBS_DATA, .size_bytes = pieces[_i].offset };
	struct rb_verbs_flight *flight;
	struct rb_request receive;

	ends_open(1, 0);
	message(1, 200, true);
	memset(got, 0, 200);
	request_set(&receive, 0, got, 100);
	receive.kind = RB_REQUEST_RECV;
	ck_assert_int_eq(rb_verbs_flight_begin(verbs_of(0), &receive, &flight), RUBATO_OK);
	flight->keys[0] = pieces[_i].key;
	head.id = rb_verbs_flight_id(flight);
	rb_verbs_tell(verbs_of(1), 0, &head, sent, pieces[_i].bytes);
	rb_verbs_ring(verbs_of(1));
	await(first_has_lost, NULL, "rank 1 is lost");
	ck_assert_msg(strstr(peer_of(0)->reason, "a piece lies outside") != NULL, "%s",
		      peer_of(0)->reason);
	for (uint32_t i = 0; i < 200; i++)
		ck_assert_uint_eq(got[i], 0);
	for (uint32_t r = 0; r < 2; r++)
		rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
}
END_TEST

/* A receive that has invited is cancelled while its sender computes. He is kept from its memory by
 * the key, which goes; or, where the device does not end that, is lost. */
START_TEST(who_does_not_answer_cannot_write)
{
	bool stays = _i == 1;
	struct rb_request receive;
	int fault = -1;

	ends_open(1, 0);
	message(0, 100, true);
	ends.call++;
	request_set(&receive, 1, got, LARGE);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	if (stays)
		fault = mock_fail_call("ibv_dereg_mr", 1, 1, EBUSY);
	rb_transport_verbs.cancel(ends.ep[1], &receive);
	ck_assert_int_eq(receive.state, RB_REQUEST_DONE);
	ck_assert(peer_of(1)->lost == stays);
	if (stays) {
		ck_assert_uint_eq(mock_fired(fault), 1);
		ck_assert_msg(strstr(peer_of(1)->reason, "its key stays") != NULL, "%s",
			      peer_of(1)->reason);
		for (uint32_t r = 0; r < 2; r++)
			rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
		return;
	}
	ck_assert_int_eq(receive.status, RUBATO_ERR_CANCELLED);
	message(0, LARGE, true);
	all_rests("after a receive was cancelled");
	ends_close();
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

/* Not that its port is down, which nobody has seen. */
START_TEST(a_device_that_cannot_be_opened_is_named)
{
	static const char *const calls[] = { "ibv_open_device", "ibv_query_device" };
	struct rb_transport_options options = { .rank_count = 2 };
	struct rb_endpoint *ep = NULL;
	struct mock_config config;
	int fault;

	mock_config_default(&config);
	ck_assert_int_eq(mock_reset(&config), 0);
	fault = mock_fail_call(calls[_i], 1, 2, EACCES);
	ck_assert_int_eq(rb_transport_verbs.open(&options, &ep), RUBATO_ERR_UNSUPPORTED);
	ck_assert_uint_eq(mock_fired(fault), 2);
	ck_assert_str_eq(rubato_error_text(), "verbs: 2 of 2 RDMA devices cannot be opened; "
					      "mock0: Permission denied");
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

	side_by_side(4);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, when_nothing_is_under_way_the_counts_say_so, 0, 6);
	tcase_add_test(tc, what_is_taken_late_is_given_back);
	tcase_add_loop_test(tc, who_breaks_credit_is_lost, 0, BREACHES);
	tcase_add_loop_test(tc, nobody_sends_more_than_a_window, 0, 3);
	tcase_add_test(tc, writes_leave_room_for_messages);
	tcase_add_test(tc, a_buffer_that_goes_beyond_its_region_is_not_of_it);
	tcase_add_test(tc, what_only_one_rail_registers_is_not_registered);
	tcase_add_loop_test(tc, who_sends_a_piece_beside_its_message_is_lost, 0, PIECES);
	tcase_add_loop_test(tc, who_does_not_answer_cannot_write, 0, 2);
	tcase_add_test(tc, who_answers_whenever_he_is_asked_stays);
	tcase_add_test(tc, who_finds_no_memory_closes);
	tcase_add_test(tc, who_gets_an_address_that_is_none_closes);
	tcase_add_loop_test(tc, what_names_no_port_is_said, 0, INTERFACES);
	tcase_add_loop_test(tc, a_device_that_cannot_be_opened_is_named, 0, 2);
	tcase_add_test(tc, a_device_waits_for_an_answer_as_long_as_is_set);
	return check_main("verbs-ends", tc);
}
