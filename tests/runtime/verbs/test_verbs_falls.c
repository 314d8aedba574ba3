/*
 * test_verbs_falls.c -- two ends of the verbs transport in one thread, which moves both: links that
 * fail, what is done again of theirs, and links that come back.
 *
 * Each test brings about one order of what happens at the two ends, which in a job comes about once
 * in many thousand falls.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/ends.h"
#include "tests/side_by_side.h"
#include "tests/verbs-mock/mock.h"

#define NTH_MAX 200u /* More is a link that is made for ever. */

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

static int events_are_held(void *held, const char *function)
{
	if (strcmp(function, "ibv_get_async_event") != 0)
		return 0;
	++*(uint32_t *)held;
	return EAGAIN;
}

static int events_are_asked_for(void *asked, const char *function)
{
	*(uint32_t *)asked += strcmp(function, "ibv_get_async_event") == 0;
	return 0;
}

/* The event of a port that fell is read when the port, and the link, are there again. */
START_TEST(an_event_that_is_read_late_fails_no_link)
{
	uint32_t held = 0, asked = 0;

	ends_open(2, 0);
	mock_watch_calls(events_are_held, &held);
	mock_link(0, 1, 1, false);
	for (uint32_t i = 0; i < 2000; i++)
		move();
	mock_link(0, 1, 1, true);
	ck_assert_uint_gt(held, 0);
	ck_assert_uint_eq(verbs_of(0)->counts.failed + verbs_of(1)->counts.failed, 0);
	mock_watch_calls(events_are_asked_for, &asked);
	for (uint32_t i = 0; i < 2000000 && asked < 6; i++) /* Both of each end, and no more. */
		move();
	mock_watch_calls(NULL, NULL);
	ck_assert_uint_ge(asked, 6);
	ck_assert_uint_eq(verbs_of(0)->counts.failed + verbs_of(1)->counts.failed, 0);
	message(0, LARGE, true);
	all_rests("after a port was down and up");
	ends_close();
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
		mock_link(0, peer_of(0)->main->index, 1, false);
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

/* ---- Keys that are taken back ---- */

/* The sender stands still between its look at what has come and its writes, as one whose processor
 * is taken away; meanwhile the receive is cancelled. */
static int cancel_before_the_post(void *arg, const char *function)
{
	struct rb_request **receive = arg, *cancelled = *receive;

	if (cancelled == NULL || strcmp(function, "ibv_post_send") != 0)
		return 0;
	*receive = NULL;
	rb_transport_verbs.cancel(ends.ep[1], cancelled);
	return 0;
}

static bool is_invited(void *unused)
{
	(void)unused;
	return peer_of(0)->waiting > 0;
}

START_TEST(a_write_whose_key_was_taken_back_costs_a_link_but_no_peer)
{
	static const size_t sizes[] = { LARGE, VAST }; /* All by one doorbell, or not. */
	size_t bytes = sizes[_i % 2];
	struct rb_request send, receive, *cancelled = &receive;

	ends_open(1 + (uint32_t)_i / 2, 0);
	ends.call++;
	ends.stale = 1;
	memset(sent, 2, bytes);
	memset(got, 1, bytes);
	request_set(&send, 0, sent, bytes);
	request_set(&receive, 1, got, bytes);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	await(is_invited, NULL, "an invitation");
	mock_watch_calls(cancel_before_the_post, &cancelled);
	rb_transport_verbs.send(ends.ep[0], &send);
	mock_watch_calls(NULL, NULL);
	ck_assert_ptr_null(cancelled);
	ck_assert_int_eq(receive.state, RB_REQUEST_DONE);
	ck_assert_int_eq(receive.status, RUBATO_ERR_CANCELLED);
	await(is_done, &send, "a send whose receive was cancelled");
	ck_assert_int_eq(send.status, RUBATO_OK);
	ck_assert_uint_gt(verbs_of(0)->counts.failed, 0);
	ck_assert_uint_gt(peer_of(0)->borne, 0);
	await(all_live_ticking, NULL, "the link that failed");
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != 1)
			ck_abort_msg("byte %zu was written after the cancel", i);
	ck_assert(!peer_of(0)->lost && !peer_of(1)->lost);
	messages_all("after a key was taken back");
	ends_close();
}
END_TEST

/* Nothing was taken back: who is refused has a key that is wrong, or its peer has. */
START_TEST(a_write_that_is_refused_for_another_reason_loses_the_peer)
{
	struct rb_request send, receive;
	int fault;

	ends_open(1 + (uint32_t)_i, 0);
	ends.call++;
	request_set(&send, 0, sent, LARGE);
	request_set(&receive, 1, got, LARGE);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	await(is_invited, NULL, "an invitation");
	fault = mock_fail_send(1, IBV_WC_REM_ACCESS_ERR, false);
	rb_transport_verbs.send(ends.ep[0], &send);
	await(first_has_lost, NULL, "the peer");
	ck_assert_uint_eq(mock_fired(fault), 1);
	ck_assert_int_eq(send.status, RUBATO_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(peer_of(0)->reason, "RDMA write of "));
	ck_assert_ptr_nonnull(strstr(peer_of(0)->reason, " bytes to rank 1: remote access error"));
	ends_close();
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

/* Its device has told that the message came, and nobody has asked yet, when the clock ends the
 * link's drain: `look` alone runs the clock of who computes. */
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
	link = peer_of(1)->main;
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

/* Moves one rank until its end of link `index` has said what it took. */
static void compare_half(uint32_t rank, uint32_t index)
{
	const struct rb_verbs_link *link = &peer_of(rank)->links[index];
	uint64_t until_ns = rb_clock_ns() + LIMIT_NS;

	while (link->state != RB_VERBS_LINK_COMPARING || link->resume_owed) {
		(void)rb_transport_verbs.poll(ends.ep[rank]);
		ck_assert_uint_lt(rb_clock_ns(), until_ns);
	}
}

/*
 * Rail 0 brings nothing, and rail 1, over which a part of that is done again before its window is
 * full, does neither: that part comes before the rest.
 */
START_TEST(what_is_done_again_twice_keeps_its_order)
{
	enum { COUNT = 40, WINDOW = 6 };
	static struct rb_request sends[COUNT], receives[COUNT];
	static uint8_t from[COUNT], to[COUNT];
	uint64_t until_ns;
	uint8_t window;

	ends_open(3, 0);
	message(0, 100, true);
	all_rests("at first");
	ck_assert_uint_eq(peer_of(0)->main->index, 0);
	mock_loss(0, 0, 1, 1000);
	for (uint32_t k = 0; k < COUNT; k++) {
		ends.call++;
		from[k] = (uint8_t)(k + 1);
		to[k] = 0;
		request_set(&receives[k], 1, &to[k], 1);
		rb_transport_verbs.recv(ends.ep[1], &receives[k]);
		request_set(&sends[k], 0, &from[k], 1);
		rb_transport_verbs.send(ends.ep[0], &sends[k]);
	}
	compare_half(0, 0);
	compare_half(1, 0);
	mock_loss(0, 1, 1, 1000);
	window = peer_of(0)->window;
	peer_of(0)->window = WINDOW;
	until_ns = rb_clock_ns() + LIMIT_NS;
	while (rb_verbs_is_live(&peer_of(0)->links[1])) {
		(void)rb_transport_verbs.poll(ends.ep[0]);
		ck_assert_uint_lt(rb_clock_ns(), until_ns);
	}
	peer_of(0)->window = window;
	ck_assert_ptr_nonnull(peer_of(0)->redo);
	ck_assert_uint_eq(verbs_of(0)->base.mending, 1);
	ck_assert_uint_gt(verbs_of(0)->counts.again, 0);
	ck_assert_uint_lt(verbs_of(0)->counts.again, COUNT);
	for (uint32_t k = 0; k < COUNT; k++) {
		await(is_done, &receives[k], "a message that was done again twice");
		ck_assert_int_eq(receives[k].status, RUBATO_OK);
		ck_assert_uint_eq(to[k], from[k]);
	}
	for (uint32_t i = 0; i < 2; i++)
		mock_loss(0, i, 1, 0);
	await(all_live_ticking, NULL, "three links");
	messages_all("after two links have failed");
	ends_close();
}
END_TEST

/* Of rank 1, who says what he pleases of link 1. */
static void resume_say(uint32_t life, uint32_t taken)
{
	struct rb_verbs_head head = {
		.message = RB_VERBS_RESUME, .rails = 1, .size_bytes = taken, .id = life
	};

	ck_assert(rb_verbs_link_say(verbs_of(1), rb_verbs_main(peer_of(1)), &head, NULL, 0));
	rb_verbs_ring(verbs_of(1));
}

/* It is said again when the link that was to bring it fails, and may come twice. */
START_TEST(what_is_said_of_an_earlier_life_is_late)
{
	uint64_t failed;

	ends_open(2, 0);
	fall(1);
	mock_link(0, 1, 1, true);
	await(all_live_ticking, NULL, "the next life of a link");
	failed = verbs_of(0)->counts.failed;
	ck_assert_uint_eq(peer_of(1)->links[1].life, 1);
	resume_say(0, RB_VERBS_COUNTS_FROM);
	for (uint32_t i = 0; i < 50; i++)
		move();
	ck_assert(all_live(NULL));
	ck_assert_uint_eq(verbs_of(0)->counts.failed, failed);
	messages_all("after a late word");
	ends_close();
}
END_TEST

/* What a device tells when its queue pair is long gone, and the next one is there. */
static struct {
	int (*poll)(struct ibv_cq *cq, int entries, struct ibv_wc *wc);
	struct ibv_cq *cq;
	uint64_t wr_id; /* 0: it was told. */
} late;

static int poll_late(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	if (cq != late.cq || late.wr_id == 0)
		return late.poll(cq, entries, wc);
	memset(wc, 0, sizeof(*wc));
	wc->status = IBV_WC_WR_FLUSH_ERR;
	wc->wr_id = late.wr_id;
	late.wr_id = 0;
	return 1;
}

START_TEST(what_a_device_tells_late_is_not_taken)
{
	struct rb_verbs_link *link;
	uint64_t word, failed;

	ends_open(2, 0);
	link = &peer_of(0)->links[1];
	word = link->word;
	fall(1);
	mock_link(0, 1, 1, true);
	await(all_live_ticking, NULL, "the next life of a link");
	ck_assert_uint_ne(link->word, word);
	failed = verbs_of(0)->counts.failed;
	late.cq = link->rail->cq;
	late.poll = late.cq->context->ops.poll_cq;
	late.cq->context->ops.poll_cq = poll_late;
	for (uint32_t what = 0; what < 2; what++) {
		late.wr_id = word | (what == 0 ? RB_VERBS_RECEIVED | 3 : link->retired);
		for (uint32_t i = 0; i < 20; i++)
			move();
		ck_assert_uint_eq(late.wr_id, 0);
	}
	late.cq->context->ops.poll_cq = late.poll;
	ck_assert(all_live(NULL));
	ck_assert_uint_eq(verbs_of(0)->counts.failed, failed);
	messages_all("after late completions");
	ends_close();
}
END_TEST

/* Its port says that it is active, and nothing arrives: it is tried, more and more seldom. */
START_TEST(a_link_that_does_not_come_back_is_tried_seldom)
{
	uint32_t lives;

	ends_open(2, 0);
	message(0, 100, true);
	mock_loss(0, 1, 1, 1000);
	rb_verbs_link_fail(verbs_of(0), &peer_of(0)->links[1], "for a test");
	for (uint32_t tick = 0; tick < 120; tick++) {
		for (uint32_t r = 0; r < 2; r++)
			rb_verbs_link_tick(verbs_of(r), &peer_of(r)->links[1], false);
		for (uint32_t i = 0; i < 50; i++)
			move();
	}
	lives = peer_of(0)->links[1].life;
	ck_assert_msg(lives >= 3 && lives <= 16, "%u lives in 120 ticks", lives);
	mock_loss(0, 1, 1, 0);
	await(all_live_ticking, NULL, "a link again");
	messages_all("after many tries");
	ends_close();
}
END_TEST

/*
 * A receive has met its message, and its sender's host is gone without a word. Nothing is under way
 * to it, so nobody else would ask.
 */
START_TEST(who_is_silent_before_he_writes_is_asked)
{
	struct rb_request send, receive;
	struct rb_verbs_link *link;
	uint64_t until_ns;

	ends_open(1, 0);
	message(0, 100, true);
	all_rests("at first");
	ends.call++;
	request_set(&send, 0, sent, LARGE);
	rb_transport_verbs.send(ends.ep[0], &send);
	request_set(&receive, 1, got, LARGE);
	until_ns = rb_clock_ns() + LIMIT_NS;
	while (peer_of(1)->match.arrival_count == 0 && rb_clock_ns() < until_ns)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	link = &peer_of(1)->links[0];
	while (link->posted != link->retired && rb_clock_ns() < until_ns)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	ck_assert_uint_eq(receive.backend[RB_VERBS_STAGE], RB_VERBS_STAGE_RECEIVING);
	mock_loss(0, 0, 1, 1000);
	while (rb_verbs_is_live(link) && rb_clock_ns() < until_ns)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	ck_assert(!rb_verbs_is_live(link));
	mock_loss(0, 0, 1, 0);
	await(is_done, &receive, "the message");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert(memcmp(sent, got, LARGE) == 0);
	await(is_done, &send, "its send");
	await(all_live_ticking, NULL, "the link again");
	messages_all("after that");
	ends_close();
}
END_TEST

/* More than was sent; less than its device has acknowledged. */
START_TEST(who_has_taken_what_cannot_be_is_lost)
{
	uint32_t taken = RB_VERBS_COUNTS_FROM + (_i == 0 ? 1000 : 0);

	ends_open(2, 0);
	message(0, LARGE, true);
	all_rests("at first");
	ck_assert_uint_gt(peer_of(0)->links[1].sent, RB_VERBS_COUNTS_FROM);
	resume_say(0, taken);
	await(first_has_lost, NULL, "rank 1 is lost");
	ck_assert_msg(strstr(peer_of(0)->reason, "has not got what its device") != NULL, "%s",
		      peer_of(0)->reason);
	for (uint32_t r = 0; r < 2; r++)
		rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
}
END_TEST

/* Rank 0 writes for an invitation, and is in the midst of it, as rail 1 is slow. */
static void vast_begin(struct rb_request *send)
{
	const struct rb_verbs_flight *flight;

	mock_slow(0, 1, 1, 1000000);
	request_set(send, 0, sent, VAST);
	rb_transport_verbs.send(ends.ep[0], send);
	flight = rb_verbs_flight_find(verbs_of(0), send->backend[RB_VERBS_FLIGHT]);
	ck_assert_ptr_nonnull(flight);
	ck_assert(flight->rails == 3 && !flight->finished);
}

/* All of it, by the other one, and no word of the one that is gone. */
START_TEST(a_message_in_whose_midst_a_link_fails_ends_without_it)
{
	struct rb_request send, receive;

	ends_open(2, 0);
	message(0, 100, true);
	ends.call++;
	for (size_t i = 0; i < VAST; i++) {
		sent[i] = (uint8_t)(i / 1000);
		got[i] = 0;
	}
	request_set(&receive, 1, got, VAST);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	vast_begin(&send);
	mock_link(0, 1, 1, false);
	await(is_done, &receive, "a message in whose midst a link has failed");
	await(is_done, &send, "its send");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got, VAST), 0);
	ck_assert_uint_gt(verbs_of(0)->counts.again, 0);
	ck_assert_uint_eq(peer_of(0)->live, 1);
	mock_slow(0, 1, 1, 0);
	mock_link(0, 1, 1, true);
	await(all_live_ticking, NULL, "a link again");
	all_rests("after a link has failed in the midst of a message");
	ends_close();
}
END_TEST

/*
 * A receive has invited its message, and another one of its tag, which does not fit, has come:
 * who writes is stopped, and the link with his writes fails. They are not done again, and end.
 */
static size_t bytes_come(size_t size_bytes)
{
	size_t come = 0;

	for (size_t i = 0; i < size_bytes; i++)
		come += got[i] != 0;
	return come;
}

START_TEST(writes_of_a_message_that_was_stopped_end_with_their_link)
{
	struct rb_request small, send, receive;
	const struct rb_verbs_flight *flight;
	size_t come;

	ends_open(2, 0);
	message(0, 100, true);
	ends.call++;
	memset(sent, 9, VAST);
	memset(got, 0, VAST);
	request_set(&receive, 1, got, VAST);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	request_set(&small, 0, sent, 100);
	rb_transport_verbs.send(ends.ep[0], &small);
	vast_begin(&send);
	(void)rb_transport_verbs.poll(ends.ep[1]);
	(void)rb_transport_verbs.poll(ends.ep[0]);
	flight = rb_verbs_flight_find(verbs_of(0), send.backend[RB_VERBS_FLIGHT]);
	ck_assert_ptr_nonnull(flight);
	ck_assert(flight->halted && flight->out > 0);
	come = bytes_come(VAST);
	ck_assert_uint_gt(come, 0);
	mock_link(0, 1, 1, false);
	await(is_done, &receive, "a receive that has met what does not fit");
	await(is_done, &send, "a send that was stopped");
	ck_assert_uint_eq(bytes_come(VAST), come);
	ck_assert_int_eq(receive.status, RUBATO_ERR_MISMATCH);
	ck_assert_uint_gt(verbs_of(0)->counts.again, 0);
	mock_slow(0, 1, 1, 0);
	mock_link(0, 1, 1, true);
	await(all_live_ticking, NULL, "a link again");
	messages_all("after a message was stopped");
	ends_close();
}
END_TEST

static void *cancel_main(void *arg)
{
	rb_transport_verbs.cancel(ends.ep[0], arg);
	return NULL;
}

static bool has_invited(void *unused)
{
	(void)unused;
	return peer_of(0)->outgoing.arrival_count > 0;
}

/* A send has said its end, and is cancelled while a link takes writes of it along: its receive gets
 * them by the other one. (Else it would take what was there before for the message.) */
START_TEST(what_has_said_its_end_is_done_again_though_cancelled)
{
	struct rb_request send, receive;
	const struct rb_verbs_flight *flight;
	uint64_t until_ns;
	pthread_t thread;

	ends_open(2, 0);
	message(0, 100, true);
	ends.call++;
	memset(sent, 9, LARGE);
	memset(got, 0, LARGE);
	request_set(&receive, 1, got, LARGE);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	await(has_invited, NULL, "an invitation");
	mock_slow(0, 1, 1, 1000000);
	request_set(&send, 0, sent, LARGE);
	rb_transport_verbs.send(ends.ep[0], &send);
	flight = rb_verbs_flight_find(verbs_of(0), send.backend[RB_VERBS_FLIGHT]);
	ck_assert_ptr_nonnull(flight);
	ck_assert(flight->finished && flight->rails == 3 && flight->out > 0);
	mock_link(0, 1, 1, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancel_main, &send), 0);
	until_ns = rb_clock_ns() + LIMIT_NS;
	while (receive.state != RB_REQUEST_DONE && rb_clock_ns() < until_ns)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	(void)pthread_join(thread, NULL);
	ck_assert_int_eq(receive.state, RB_REQUEST_DONE);
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got, LARGE), 0);
	ck_assert_uint_gt(verbs_of(0)->counts.again, 0);
	mock_slow(0, 1, 1, 0);
	mock_link(0, 1, 1, true);
	await(all_live_ticking, NULL, "a link again");
	messages_all("after a message was cancelled");
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
		ck_assert_uint_eq(peer_of(r)->main->index, 1);
	}
	messages_all("by both");
	ends_close();
}
END_TEST

/* ---- Who leaves ---- */

/* A message's end and BYE are here by rail 0, and what rail 1 carried of it is not. */
START_TEST(who_says_goodbye_stays_until_his_messages_have_ended)
{
	static const struct rb_verbs_head bye = { .message = RB_VERBS_BYE };
	struct rb_request send, receive;

	ends_open(2, 0);
	message(0, 100, true);
	ends.call++;
	memset(sent, 7, LARGE);
	memset(got, 0, LARGE);
	request_set(&receive, 1, got, LARGE);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	mock_slow(0, 1, 1, 1000000);
	request_set(&send, 0, sent, LARGE);
	rb_transport_verbs.send(ends.ep[0], &send);
	rb_verbs_tell(verbs_of(0), 1, &bye, NULL, 0);
	rb_verbs_ring(verbs_of(0));
	for (uint64_t until_ns = rb_clock_ns() + LIMIT_NS;
	     !peer_of(1)->leaving && rb_clock_ns() < until_ns;)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	ck_assert(peer_of(1)->leaving && !peer_of(1)->left);
	ck_assert_int_eq(receive.state, RB_REQUEST_PENDING);
	mock_slow(0, 1, 1, 0);
	await(is_done, &receive, "a message whose sender has said goodbye");
	ck_assert_int_eq(receive.status, RUBATO_OK);
	ck_assert_int_eq(memcmp(sent, got, LARGE), 0);
	ck_assert(peer_of(1)->left);
	for (uint32_t r = 0; r < 2; r++)
		rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
}
END_TEST

/* Rank 0's calls of its first device while it closes: rank 1 moves in their midst, or not. */
static struct {
	int (*poll)(struct ibv_cq *cq, int entries, struct ibv_wc *wc);
	struct ibv_cq *cq;
	uint32_t waits; /* Times that nothing was under way, and not all was done again. */
} leaver;

static int poll_leaving(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	struct rb_verbs_peer *peer = peer_of(0);
	struct rb_verbs_link *rest = &peer->links[1];
	bool compared = peer->links[0].state == RB_VERBS_LINK_DOWN;

	if (cq != leaver.cq)
		return leaver.poll(cq, entries, wc);
	if (!compared) {
		peer->window = 4; /* Of what is done again. */
	} else if (leaver.waits == 0 && rest->posted != rest->retired) {
		if (!rest->probing) /* As after a second of silence. */
			rb_verbs_probe(verbs_of(0), rest);
		rest->probing = true;
	} else if (leaver.waits < 10 && peer->redo != NULL) {
		leaver.waits++;
	} else {
		peer->window = RB_VERBS_SLOTS_MIN;
	}
	if (!compared || peer->window != 4) /* Else rank 1 computes. */
		(void)rb_transport_verbs.poll(ends.ep[1]);
	return leaver.poll(cq, entries, wc);
}

/* Its last messages were on a link that failed, and not all of them have room on the other one. */
START_TEST(who_leaves_waits_for_what_is_done_again)
{
	enum { COUNT = 12 };
	static struct rb_request sends[COUNT], receives[COUNT];
	static uint8_t from[COUNT], to[COUNT];
	struct mock_counters counters;
	uint64_t until_ns;

	ends_open(2, 0);
	message(0, 100, true);
	all_rests("at first");
	ck_assert_uint_eq(peer_of(0)->main->index, 0);
	mock_loss(0, 0, 1, 1000);
	for (uint32_t k = 0; k < COUNT; k++) {
		ends.call++;
		from[k] = (uint8_t)(k + 1);
		to[k] = 0;
		request_set(&receives[k], 1, &to[k], 1);
		rb_transport_verbs.recv(ends.ep[1], &receives[k]);
		request_set(&sends[k], 0, &from[k], 1);
		rb_transport_verbs.send(ends.ep[0], &sends[k]);
	}
	leaver.waits = 0;
	leaver.cq = peer_of(0)->links[0].rail->cq;
	leaver.poll = leaver.cq->context->ops.poll_cq;
	leaver.cq->context->ops.poll_cq = poll_leaving;
	until_ns = rb_clock_ns() + LIMIT_NS;
	rb_transport_verbs.close(ends.ep[0], false, until_ns);
	ck_assert_uint_eq(leaver.waits, 10);
	for (uint32_t k = 0; k < COUNT; k++) {
		while (receives[k].state != RB_REQUEST_DONE && rb_clock_ns() < until_ns)
			(void)rb_transport_verbs.poll(ends.ep[1]);
		ck_assert_int_eq(receives[k].state, RB_REQUEST_DONE);
		ck_assert_int_eq(receives[k].status, RUBATO_OK);
		ck_assert_uint_eq(to[k], from[k]);
	}
	while (!peer_of(1)->lost && rb_clock_ns() < until_ns)
		(void)rb_transport_verbs.poll(ends.ep[1]);
	ck_assert_msg(peer_of(1)->left, "%s", peer_of(1)->reason);
	rb_transport_verbs.close(ends.ep[1], false, until_ns);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.rnr, 0);
	ck_assert_uint_eq(counters.left_open, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("falls");

	side_by_side(3);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, what_has_come_is_taken_before_the_clock_ends_a_link);
	tcase_add_test(tc, what_is_done_again_twice_keeps_its_order);
	tcase_add_test(tc, what_is_said_of_an_earlier_life_is_late);
	tcase_add_test(tc, what_a_device_tells_late_is_not_taken);
	tcase_add_test(tc, a_link_that_does_not_come_back_is_tried_seldom);
	tcase_add_test(tc, who_is_silent_before_he_writes_is_asked);
	tcase_add_loop_test(tc, who_has_taken_what_cannot_be_is_lost, 0, 2);
	tcase_add_test(tc, a_message_in_whose_midst_a_link_fails_ends_without_it);
	tcase_add_test(tc, writes_of_a_message_that_was_stopped_end_with_their_link);
	tcase_add_test(tc, what_has_said_its_end_is_done_again_though_cancelled);
	tcase_add_test(tc, the_stream_stays_where_its_count_comes_round);
	tcase_add_test(tc, who_says_goodbye_stays_until_his_messages_have_ended);
	tcase_add_test(tc, who_leaves_waits_for_what_is_done_again);
	tcase_add_loop_test(tc, a_link_that_cannot_be_made_at_first_is_made_later, 0, 4);
	tcase_add_test(tc, an_event_that_is_read_late_fails_no_link);
	tcase_add_test(tc, a_second_link_fails_while_the_first_ones_messages_are_done_again);
	tcase_add_loop_test(tc, a_write_whose_key_was_taken_back_costs_a_link_but_no_peer, 0, 6);
	tcase_add_loop_test(tc, a_write_that_is_refused_for_another_reason_loses_the_peer, 0, 2);
	tcase_add_test(tc, what_is_told_of_a_link_that_is_gone_is_not_taken);
	return check_main("verbs-falls", tc);
}
