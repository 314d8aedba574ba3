/*
 * test_ucx_pieces.c -- messages in pieces: what leaves before its receive is there, what is kept of
 * it, and every order in which posts, cancels and what crosses the wire can meet.
 */
#include "base/rng.h"
#include "tests/length.h"
#include "tests/seeds.h"
#include "tests/side_by_side.h"
#include "tests/transport/ucx_pair.h"

static void buffers(uint8_t **out, uint8_t **in, size_t size_bytes)
{
	*out = malloc(size_bytes);
	*in = calloc(1, size_bytes);
	ck_assert(*out != NULL && *in != NULL);
	for (size_t i = 0; i < size_bytes; i++)
		(*out)[i] = (uint8_t)(rb_mix(i) >> 8);
}

/* Nothing is left of any message, and all credit is where it was. */
static bool is_quiet(struct pair *pair)
{
	for (uint32_t r = 0; r < 2; r++) {
		struct rb_ucx *ux = ux_of(pair, r);
		struct rb_ucx_peer *peer = &ux->peers[1 - r];
		uint32_t owed = ux_of(pair, 1 - r)->peers[r].owed;

		for (uint32_t b = 0; b < RB_UCX_LARGE_BUCKETS; b++)
			if (peer->large[b] != NULL)
				return false;
		if (peer->credit + owed != RB_UCX_CREDIT_MAX || peer->held != 0 ||
		    peer->waiting != 0 || peer->match.arrival_count != 0)
			return false;
	}
	return true;
}

static void expect_quiet(struct pair *pair)
{
	UNTIL(pair_poll(pair), is_quiet(pair));
}

static void poll_one(struct pair *pair, uint32_t rank, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		(void)ops->poll(pair->ep[rank]);
}

/* A sender needs no answer for what it has credit for: one latency. Here it hears none. */
START_TEST(large_message_leaves_without_an_answer)
{
	enum { BYTES = 600000 };
	bool receive_first = _i == 1;
	struct pair pair;
	struct rb_request send, recv;
	uint8_t *out, *in;

	buffers(&out, &in, BYTES);
	pair_open(&pair, true);
	prepare(&recv, 1, 7, in, BYTES);
	prepare(&send, 0, 7, out, BYTES);
	ux_of(&pair, 0)->base.rank = 17; /* To rank 1 a stranger. */
	if (receive_first)
		ops->recv(pair.ep[0], &recv);
	ops->send(pair.ep[1], &send);
	UNTIL(pair_poll(&pair), send.state == RB_REQUEST_DONE && ops->left(pair.ep[1]));
	if (!receive_first)
		ops->recv(pair.ep[0], &recv);
	UNTIL(pair_poll(&pair), recv.state == RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_OK);
	ck_assert(memcmp(in, out, BYTES) == 0);
	ux_of(&pair, 0)->base.rank = 0;
	pair_close(&pair);
	free(out);
	free(in);
}
END_TEST

/* What leaves before its receive is there is bounded, and leaves room for small messages. */
START_TEST(large_messages_keep_credit_for_small_ones)
{
	struct pair pair;
	struct rb_request send[3], recv[3], small, noted;
	uint64_t out_word = 5, in_word = 0;
	uint8_t *out, *in;

	buffers(&out, &in, LARGE);
	pair_open(&pair, _i == 1);
	for (uint64_t i = 0; i < 3; i++) {
		prepare(&send[i], 0, i, out, LARGE);
		ops->send(pair.ep[1], &send[i]);
	}
	UNTIL(pair_poll(&pair), ux_of(&pair, 0)->peers[1].held > RB_UCX_CREDIT_MAX / 2 &&
					ux_of(&pair, 0)->peers[1].waiting == 3);
	for (int i = 0; i < 2000; i++)
		pair_poll(&pair);
	ck_assert_uint_ge(ux_of(&pair, 1)->peers[0].credit, RB_UCX_CREDIT_KEPT);
	ck_assert_uint_le(ux_of(&pair, 0)->peers[1].held, RB_UCX_CREDIT_MAX - RB_UCX_CREDIT_KEPT);
	prepare(&small, 0, 9, &out_word, sizeof(out_word));
	ops->send(pair.ep[1], &small);
	ck_assert_int_eq(small.state, RB_REQUEST_DONE);
	prepare(&noted, 1, 9, &in_word, sizeof(in_word));
	ops->recv(pair.ep[0], &noted);
	UNTIL(pair_poll(&pair), noted.state == RB_REQUEST_DONE);
	ck_assert_uint_eq(in_word, 5);
	for (uint64_t i = 3; i-- > 0;) {
		memset(in, 0, LARGE);
		prepare(&recv[i], 1, i, in, LARGE);
		ops->recv(pair.ep[0], &recv[i]);
		UNTIL(pair_poll(&pair), recv[i].state == RB_REQUEST_DONE);
		ck_assert(memcmp(in, out, LARGE) == 0);
	}
	expect_quiet(&pair);
	pair_close(&pair);
	free(out);
	free(in);
}
END_TEST

/* Its sender has left in good order; what it had sent on credit is there for a later receive. */
START_TEST(whole_message_of_one_who_left)
{
	enum { BYTES = 500000 };
	struct pair pair;
	struct rb_request send, recv, never;
	uint8_t *out, *in;

	buffers(&out, &in, LARGE);
	pair_open(&pair, _i == 1);
	prepare(&send, 0, 1, out, BYTES);
	ops->send(pair.ep[1], &send);
	UNTIL(pair_poll(&pair), send.state == RB_REQUEST_DONE && ops->left(pair.ep[1]));
	prepare(&never, 0, 2, out, LARGE);
	ops->send(pair.ep[1], &never);
	UNTIL(pair_poll(&pair), ops->left(pair.ep[1])); /* No more has credit. */
	ops->close(pair.ep[1], false, rb_clock_ns() + SECOND_NS / 10);
	UNTIL((void)ops->poll(pair.ep[0]), ux_of(&pair, 0)->peers[1].lost);
	prepare(&recv, 1, 1, in, BYTES);
	ops->recv(pair.ep[0], &recv);
	ck_assert_int_eq(recv.state, RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_OK);
	ck_assert(memcmp(in, out, BYTES) == 0);
	prepare(&recv, 1, 2, in, LARGE);
	ops->recv(pair.ep[0], &recv);
	ck_assert_int_eq(recv.state, RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_ERR_PEER);
	ck_assert_uint_eq(ux_of(&pair, 0)->peers[1].waiting, 0);
	ops->close(pair.ep[0], false, rb_clock_ns() + SECOND_NS);
	free(out);
	free(in);
}
END_TEST

/* STOPPED and a later message of the tag overtake what they are about; sent by hand. */
START_TEST(messages_that_overtake_each_other)
{
	struct pair pair;
	struct rb_ucx *from;
	struct rb_request recv;
	struct rb_failure failure;
	struct rb_ucx_head head = { .tag = { 0, 7 }, .size_bytes = 100000, .id = 1ull << 32 | 9 };
	uint8_t in[1] = { 3 };

	pair_open(&pair, true);
	from = ux_of(&pair, 1);
	prepare(&recv, 1, 7, in, sizeof(in));
	recv.size_bytes = 100000; /* Nothing is to be written. */
	if (_i % 2 == 0)
		ops->recv(pair.ep[0], &recv);
	head.message = _i / 2 == 0 ? RB_UCX_STOPPED : RB_UCX_AHEAD;
	rb_ucx_tell_head(from, 0, &head);
	UNTIL(pair_poll(&pair), ux_of(&pair, 0)->peers[1].waiting == 1);
	if (_i % 2 == 1)
		ops->recv(pair.ep[0], &recv);
	head.message = _i / 2 == 0 ? RB_UCX_AHEAD : RB_UCX_STOPPED;
	rb_ucx_tell_head(from, 0, &head);
	UNTIL(pair_poll(&pair), ux_of(&pair, 0)->peers[1].waiting == 0);
	ck_assert_int_eq(recv.state, RB_REQUEST_PENDING);
	ck_assert(ops->recall(pair.ep[0], &recv));
	ck_assert(!ops->failure(pair.ep[0], &failure));
	ck_assert_uint_eq(in[0], 3);
	expect_quiet(&pair);
	pair_close(&pair);
}
END_TEST

/*
 * A storm: messages of all sizes both ways, posted in any order, cancelled and recalled at any
 * moment, whatever has arrived by then, for each end is polled when chance wants it. At the end
 * each message has come whole, or was given up by one of its ends, and nothing is left of any.
 */
#define STORM_MESSAGES 60

struct storm_item {
	struct rb_request send, recv;
	uint8_t *in;
	uint32_t sender;
	uint8_t sent, received; /* 0: to be posted; 1: is; 2: was given up. */
	bool misfit;
};

struct storm_tried {
	uint32_t cancelled, recalled, refused, whole;
};

struct storm {
	struct pair *pair;
	struct rb_rng rng;
	struct storm_item items[STORM_MESSAGES];
	uint8_t *out; /* All messages' bytes. */
	struct storm_tried tried;
};

static size_t storm_size(struct rb_rng *rng)
{
	switch (rb_rng_below(rng, 4)) {
	case 0:
		return rb_rng_below(rng, 100) * rb_rng_below(rng, 2);
	case 1:
		return rb_rng_below(rng, RB_UCX_EAGER_MAX + 1);
	case 2:
		return RB_UCX_EAGER_MAX + 1 + rb_rng_below(rng, 300000);
	default:
		return rb_rng_below(rng, 3u << 20);
	}
}

static void storm_give_up(struct storm *s, struct storm_item *it)
{
	bool end = rb_rng_below(&s->rng, 2) == 0;
	struct rb_endpoint *ep = s->pair->ep[end ? it->sender : 1 - it->sender];
	struct rb_request *q = end ? &it->send : &it->recv;

	if ((end ? it->sent : it->received) != 1 || q->state != RB_REQUEST_PENDING)
		return;
	if (!end && rb_rng_below(&s->rng, 2) == 0) {
		if (ops->recall(ep, q)) {
			it->received = 0; /* It is posted anew. */
			s->tried.recalled++;
		}
		return;
	}
	ops->cancel(ep, q);
	ck_assert_int_eq(q->state, RB_REQUEST_DONE);
	if (q->status != RUBATO_ERR_CANCELLED)
		return;
	s->tried.cancelled++;
	if (end) /* The tag comes again: a receive that waits for it gets the next one. */
		it->sent = 0;
	else
		it->received = 2;
}

static void storm_step(struct storm *s, bool posts_only)
{
	struct storm_item *it = &s->items[rb_rng_below(&s->rng, STORM_MESSAGES)];
	uint64_t draw = rb_rng_below(&s->rng, posts_only ? 6 : 8);

	if (draw < 2 && it->sent == 0) {
		ops->send(s->pair->ep[it->sender], &it->send);
		it->sent = 1;
	} else if (draw < 4 && it->received == 0) {
		ops->recv(s->pair->ep[1 - it->sender], &it->recv);
		it->received = 1;
	} else if (draw < 6) {
		poll_one(s->pair, (uint32_t)draw & 1, 1 + (uint32_t)rb_rng_below(&s->rng, 8));
	} else {
		storm_give_up(s, it);
	}
}

static bool storm_over(const struct storm *s)
{
	for (uint32_t i = 0; i < STORM_MESSAGES; i++) {
		const struct storm_item *it = &s->items[i];

		/* A send whose receive was cancelled before they met waits for the next one. */
		if (it->sent == 0 || it->received == 0 ||
		    (it->received == 1 && it->recv.state != RB_REQUEST_DONE))
			return false;
	}
	return true;
}

/* Messages that nobody wants any more are withdrawn, or fetched if they have arrived by now. */
static void storm_clear_up(struct storm *s)
{
	for (uint32_t i = 0; i < STORM_MESSAGES; i++) {
		struct storm_item *it = &s->items[i];
		struct rb_endpoint *to = s->pair->ep[1 - it->sender];
		struct rb_request fetch;

		/* One that was sent anew, after the receive had met the first. */
		if (it->received != 2 && it->recv.status != RUBATO_ERR_MISMATCH)
			continue;
		ops->cancel(s->pair->ep[it->sender], &it->send);
		prepare(&fetch, it->sender, it->recv.tag.step, it->in, it->recv.size_bytes);
		ops->recv(to, &fetch);
		for (int k = 0; k < 20 && fetch.state != RB_REQUEST_DONE; k++)
			pair_poll(s->pair);
		ops->cancel(to, &fetch);
	}
}

static void storm_look(struct storm *s)
{
	for (uint32_t i = 0; i < STORM_MESSAGES; i++) {
		const struct storm_item *it = &s->items[i];
		bool done = it->received == 1;

		s->tried.refused += done && it->recv.status == RUBATO_ERR_MISMATCH;
		s->tried.whole += done && it->recv.status == RUBATO_OK;
		ck_assert(!done ||
			  it->recv.status == (it->misfit ? RUBATO_ERR_MISMATCH : RUBATO_OK));
		ck_assert(!done || it->misfit ||
			  memcmp(it->in, it->send.buffer, it->send.size_bytes) == 0);
	}
}

static void storm_run(struct pair *pair, uint64_t seed, struct storm_tried *tried)
{
	struct storm *s = calloc(1, sizeof(*s));
	uint64_t steps = 0;
	uint8_t *none;

	ck_assert_ptr_nonnull(s);
	s->rng = (struct rb_rng) { rb_mix(seed) };
	buffers(&s->out, &none, 6u << 20);
	free(none);
	s->pair = pair;
	for (uint32_t i = 0; i < STORM_MESSAGES; i++) {
		struct storm_item *it = &s->items[i];
		size_t size = storm_size(&s->rng), expected = size;

		it->sender = i % 2;
		it->misfit = rb_rng_below(&s->rng, 8) == 0;
		if (it->misfit)
			expected = size > 1 && i % 4 < 2 ? size / 2 : size + 1;
		it->in = malloc(expected + 1);
		ck_assert_ptr_nonnull(it->in);
		prepare(&it->send, 1 - it->sender, seed << 8 | i,
			s->out + rb_rng_below(&s->rng, 1u << 20), size);
		prepare(&it->recv, it->sender, seed << 8 | i, it->in, expected);
	}
	UNTIL(storm_step(s, ++steps > 3000), storm_over(s));
	storm_look(s);
	storm_clear_up(s);
	UNTIL(storm_clear_up(s), is_quiet(s->pair));
	tried->cancelled += s->tried.cancelled;
	tried->recalled += s->tried.recalled;
	tried->refused += s->tried.refused;
	tried->whole += s->tried.whole;
	for (uint32_t i = 0; i < STORM_MESSAGES; i++)
		free(s->items[i].in);
	free(s->out);
	free(s);
}

START_TEST(storm_of_messages)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 12 : 30);
	struct storm_tried tried = { 0 };
	struct pair pairs[2];

	pair_open(&pairs[0], true);
	pair_open(&pairs[1], false);
	for (uint64_t seed; seeds_next(&seeds, &seed);)
		storm_run(&pairs[seed % 4 == 0], seed, &tried);
	ck_assert(seeds_chosen() || (tried.cancelled > 0 && tried.recalled > 0 &&
				     tried.refused > 0 && tried.whole > 0));
	pair_close(&pairs[0]);
	pair_close(&pairs[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ucx pieces");
	TCase *tests = tcase_create("pieces");

	side_by_side(3);
	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, large_message_leaves_without_an_answer, 0, 2);
	tcase_add_loop_test(tests, large_messages_keep_credit_for_small_ones, 0, 2);
	tcase_add_loop_test(tests, whole_message_of_one_who_left, 0, 2);
	tcase_add_loop_test(tests, messages_that_overtake_each_other, 0, 4);
	tcase_add_test(tests, storm_of_messages);
	suite_add_tcase(suite, tests);
	return check_suite(suite);
}
