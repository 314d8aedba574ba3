/*
 * test_match.c -- the matcher's receives: each message finds its own, in whatever order receives
 * come and go, and without a search where both come in the same order, however many are open.
 */
#include "base/rng.h"
#include "tests/check_main.h"
#include "transport/match.h"

#define COUNT 4096u

static struct rb_match_peer peer;
static struct rb_request requests[COUNT];

static struct rb_tag tag_of(uint32_t i)
{
	return (struct rb_tag) { .call = i, .step = i % 7 };
}

static void empty(void)
{
	memset(&peer, 0, sizeof(peer));
	memset(requests, 0, sizeof(requests));
	for (uint32_t i = 0; i < COUNT; i++)
		requests[i].tag = tag_of(i);
}

START_TEST(in_order_it_is_the_first)
{
	empty();
	for (uint32_t i = 0; i < COUNT; i++)
		rb_match_add_receive(&peer, &requests[i]);
	for (uint32_t i = 0; i < COUNT; i++) {
		ck_assert_ptr_eq(peer.receives[rb_match_bucket(tag_of(i))], &requests[i]);
		ck_assert_ptr_eq(rb_match_receive(&peer, tag_of(i)), &requests[i]);
	}
	ck_assert_ptr_null(rb_match_any_receive(&peer));
}
END_TEST

START_TEST(whatever_comes_and_goes)
{
	struct seeds seeds = seeds_from(__func__, 1, 20);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_rng rng = { seed };
		bool open[COUNT] = { false };
		uint32_t count = 0;

		empty();
		for (uint32_t k = 0; k < 8 * COUNT; k++) {
			uint32_t i = (uint32_t)rb_rng_below(&rng, COUNT);

			if (!open[i]) {
				ck_assert_ptr_null(rb_match_receive(&peer, tag_of(i)));
				ck_assert(!rb_match_remove_receive(&peer, &requests[i]));
				rb_match_add_receive(&peer, &requests[i]);
			} else if (rb_rng_below(&rng, 2) == 0) {
				ck_assert_ptr_eq(rb_match_receive(&peer, tag_of(i)), &requests[i]);
			} else {
				ck_assert(rb_match_remove_receive(&peer, &requests[i]));
			}
			open[i] = !open[i];
			count += open[i] ? 1u : UINT32_MAX;
		}
		ck_assert_uint_gt(count, 0);
		while (rb_match_any_receive(&peer) != NULL)
			count--;
		ck_assert_uint_eq(count, 0);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("match");

	tcase_add_test(tc, in_order_it_is_the_first);
	tcase_add_test(tc, whatever_comes_and_goes);
	return check_main("match", tc);
}
