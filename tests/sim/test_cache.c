/*
 * test_cache.c -- what accesses to caches cost, by hand, and against a model that looks through all
 * it knows each time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "transport/sim/sim_cache.h"

#define LINE 1024u
#define LINES 4u

static uint8_t memory[64 * LINE] __attribute__((aligned(LINE)));

static rubato_sim_options options_of(uint32_t ranks, uint32_t lines)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;

	options.rank_count = ranks;
	options.costs.cache_bytes = lines * LINE;
	options.costs.cached_bandwidth = 1e9;
	options.costs.shared_bandwidth = 0.5e9;
	options.costs.shared_latency_ns = 100;
	return options;
}

/* 1 ns a byte of the own cache, 2 of another's and 100 before they are read. */
static struct rb_sim_caches *caches_open(uint32_t ranks, uint32_t lines)
{
	rubato_sim_options options = options_of(ranks, lines);
	struct rb_sim_caches *caches;

	ck_assert_int_eq(rb_sim_caches_open(&options, 1, &caches), RUBATO_OK);
	return caches;
}

static void costs(struct rb_sim_caches *caches, uint32_t cache, uint64_t at, uint64_t bytes,
		  bool writes, double busy_ns, uint64_t memory_bytes)
{
	struct rb_touch touch = { memory + at, bytes, writes };
	struct rb_sim_access cost =
		rb_sim_caches_access(caches, (struct rb_sim_place) { cache, 0 }, &touch, 1);

	ck_assert_double_eq(cost.busy_ns, busy_ns);
	ck_assert_uint_eq(cost.memory_bytes, memory_bytes);
}

START_TEST(what_was_read_lies_in_the_cache)
{
	struct rb_sim_caches *c = caches_open(2, LINES);

	costs(c, 0, 0, 1500, false, 0, 1500);
	costs(c, 0, 0, 1500, false, 1500, 0);
	costs(c, 0, 1000, 1100, false, 1048, 52); /* Two lines of it, and some of the third. */
	costs(c, 1, 0, 1500, false, 0, 1500);     /* Memory has it, as nobody wrote. */
	rb_sim_caches_close(c);
}
END_TEST

START_TEST(what_another_wrote_lies_in_its_cache)
{
	struct rb_sim_caches *c = caches_open(3, LINES);

	costs(c, 0, 0, 1024, true, 0, 1024);
	costs(c, 0, 0, 1024, true, 1024, 0);
	costs(c, 1, 0, 1024, false, 2148, 0);
	costs(c, 1, 0, 1024, false, 1024, 0);
	costs(c, 0, 0, 1024, false, 1024, 0);
	costs(c, 0, 0, 1024, true, 2048, 0); /* The other one must let go of it. */
	costs(c, 0, 0, 1024, true, 1024, 0);
	costs(c, 1, 0, 1024, false, 2148, 0); /* What lay there is old. */
	costs(c, 2, 0, 1024, true, 2048, 0);  /* Who writes does not wait. */
	costs(c, 0, 0, 1024, false, 2148, 0);
	rb_sim_caches_close(c);
}
END_TEST

START_TEST(one_makes_room_for_another)
{
	struct rb_sim_caches *c = caches_open(2, LINES);
	uint64_t gone = LINES;

	costs(c, 0, 0, LINES * LINE, true, 0, LINES * LINE);
	costs(c, 0, LINES * LINE, LINE, false, 0, LINE);
	costs(c, 0, LINES * LINE, LINE, false, LINE, 0); /* It was not the last one to come. */
	for (uint64_t i = 0; i < LINES; i++) { /* Nobody has it any more; the others are there. */
		struct rb_touch touch = { memory + i * LINE, LINE, false };
		struct rb_sim_access cost =
			rb_sim_caches_access(c, (struct rb_sim_place) { 1, 0 }, &touch, 1);

		if (cost.memory_bytes == LINE) {
			ck_assert_uint_eq(gone, LINES);
			gone = i;
		} else {
			ck_assert_double_eq(cost.busy_ns, 2 * LINE + 100);
		}
	}
	ck_assert_uint_lt(gone, LINES);
	costs(c, 0, (gone + 1) % LINES * LINE, LINE, false, LINE, 0);
	costs(c, 0, gone * LINE, LINE, false, 0, LINE);
	rb_sim_caches_close(c);
}
END_TEST

START_TEST(without_caches_or_a_place_it_is_memory)
{
	struct rb_sim_caches *c = caches_open(1, LINES);
	struct rb_touch touches[] = { { memory, 10, false }, { NULL, 20, true } };
	const struct rb_sim_place first = { 0, 0 };
	struct rb_sim_access cost;

	(void)rb_sim_caches_access(c, first, touches, 2);
	cost = rb_sim_caches_access(c, first, touches, 2);
	ck_assert_double_eq(cost.busy_ns, 10);
	ck_assert_uint_eq(cost.memory_bytes, 20);
	rb_sim_caches_close(c);
	cost = rb_sim_caches_access(NULL, first, touches, 2);
	ck_assert_double_eq(cost.busy_ns, 0);
	ck_assert_uint_eq(cost.memory_bytes, 30);
	ck_assert_ptr_null(caches_open(5, 0));
}
END_TEST

START_TEST(reductions_may_be_slower)
{
	rubato_sim_options options = options_of(2, LINES);
	struct rb_touch touches[] = { { memory, LINE, false },
				      { memory + LINE, LINE, false },
				      { NULL, 0, false },
				      { memory + 2 * LINE, LINE, true } };
	const struct rb_sim_place first = { 0, 0 }, second = { 1, 0 };
	struct rb_sim_caches *c;

	options.costs.reduced_bandwidth = 0.8e9;
	ck_assert_int_eq(rb_sim_caches_open(&options, 1, &c), RUBATO_OK);
	ck_assert_uint_eq(rb_sim_caches_access(c, first, touches, 4).memory_bytes, 3 * LINE);
	ck_assert_double_eq(rb_sim_caches_access(c, first, touches, 4).busy_ns, 3.75 * LINE);
	ck_assert_double_eq(rb_sim_caches_access(c, first, touches + 1, 3).busy_ns, 2 * LINE);
	costs(c, 0, 0, LINE, true, LINE, 0);
	costs(c, 1, LINE, LINE, false, 0, LINE);
	costs(c, 1, 2 * LINE, LINE, true, 2 * LINE, 0);
	/* What another wrote, too, but not until it comes. */
	ck_assert_double_eq(rb_sim_caches_access(c, second, touches, 4).busy_ns, 5 * LINE + 100);
	rb_sim_caches_close(c);
	options.costs.reduced_bandwidth = 2e9; /* They are not faster. */
	ck_assert_int_eq(rb_sim_caches_open(&options, 1, &c), RUBATO_OK);
	(void)rb_sim_caches_access(c, first, touches, 4);
	ck_assert_double_eq(rb_sim_caches_access(c, first, touches, 4).busy_ns, 3 * LINE);
	rb_sim_caches_close(c);
}
END_TEST

/* ---- Outer caches ---- */

/* 1.5 ns a byte of the outer cache, of which each of two nodes has one. */
static struct rb_sim_caches *outer_open(uint32_t lines)
{
	rubato_sim_options options = options_of(3, LINES);
	struct rb_sim_caches *caches;

	options.costs.outer_bytes = lines * LINE;
	options.costs.outer_bandwidth = 1e9 / 1.5;
	ck_assert_int_eq(rb_sim_caches_open(&options, 2, &caches), RUBATO_OK);
	return caches;
}

START_TEST(what_goes_lies_in_the_outer_one)
{
	struct rb_sim_caches *c = outer_open(64);
	struct rb_touch touch = { memory + 9 * LINE, LINE, false };
	uint32_t outer = 0;

	costs(c, 0, 0, 4 * LINE, true, 0, 4 * LINE);
	costs(c, 0, 8 * LINE, 4 * LINE, false, 0, 4 * LINE);
	for (uint64_t i = 0; i < 40; i++) { /* Either in the core's, or outside. */
		touch.at = memory + (i % 4 + i / 4 % 2 * 8) * LINE;
		struct rb_sim_access cost =
			rb_sim_caches_access(c, (struct rb_sim_place) { 0, 0 }, &touch, 1);

		ck_assert_uint_eq(cost.memory_bytes, 0);
		ck_assert(cost.busy_ns == LINE || cost.busy_ns == 1.5 * LINE);
		outer += cost.busy_ns > LINE;
		costs(c, 0, (i % 4 + i / 4 % 2 * 8) * LINE, LINE, false, LINE, 0);
	}
	ck_assert_uint_ge(outer, 10); /* Of eight, four are outside. */
	costs(c, 0, 16 * LINE, 4 * LINE, false, 0, 4 * LINE);
	costs(c, 0, 20 * LINE, 64 * LINE - 20 * LINE, false, 0, 44 * LINE);
	costs(c, 1, LINE, LINE, false, 2 * LINE, 0);    /* Another one wrote it, and it has gone. */
	costs(c, 1, 2 * LINE, LINE, true, 2 * LINE, 0); /* Likewise; what went is old now. */
	costs(c, 0, 2 * LINE, LINE, false, 2148, 0);
	/* Another node's is not there. */
	touch.at = memory + 9 * LINE;
	ck_assert_uint_eq(
		rb_sim_caches_access(c, (struct rb_sim_place) { 2, 1 }, &touch, 1).memory_bytes,
		LINE);
	rb_sim_caches_close(c);
}
END_TEST

/* Of a thousand: of the 64 lines of `memory`, read round and round. */
static uint64_t share_gone(struct rb_sim_caches *c)
{
	struct rb_touch touch = { memory, 64 * LINE, false };
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < 120; k++) {
		struct rb_sim_access cost =
			rb_sim_caches_access(c, (struct rb_sim_place) { 0, 0 }, &touch, 1);

		bytes += k >= 20 ? cost.memory_bytes : 0;
	}
	rb_sim_caches_close(c);
	return bytes * 1000 / (100 * 64 * LINE);
}

/* Of T lines a share x is not found: 1 - x = exp(-x T / lines). */
START_TEST(of_a_little_more_than_fits_a_little_goes)
{
	static const struct {
		uint32_t lines, least, most;
	} rows[] = { { 64, 0, 0 },
		     { 60, 0, 150 },
		     { 50, 300, 500 },
		     { 40, 500, 750 },
		     { 20, 880, 990 } },
	  outer[] = {
		  { 64, 0, 0 }, { 60, 0, 0 }, { 50, 120, 360 }, { 40, 400, 600 }, { 20, 850, 990 }
	  };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t own = share_gone(caches_open(1, rows[i].lines));
		uint64_t both = share_gone(outer_open(outer[i].lines));

		ck_assert_uint_ge(own, rows[i].least);
		ck_assert_uint_le(own, rows[i].most);
		ck_assert_uint_ge(both, outer[i].least);
		ck_assert_uint_le(both, outer[i].most);
	}
}
END_TEST

/* ---- Against a model ---- */

#define RANKS 3u
#define PLACES 64u
#define CAPACITY 7u

struct model {
	uint64_t version[PLACES], has[RANKS][PLACES]; /* has: UINT64_MAX: nothing. */
	uint32_t lines[RANKS][CAPACITY], count[RANKS];
	uint32_t writer[PLACES];
	bool read[PLACES];
	uint64_t draws;
};

static void model_take_in(struct model *m, uint32_t rank, uint32_t at)
{
	uint32_t *lines = m->lines[rank];

	if (m->count[rank] == CAPACITY) { /* By the same draw; the last one takes its place. */
		uint32_t goes = (uint32_t)(rb_mix(m->draws++) % CAPACITY);

		m->has[rank][lines[goes]] = UINT64_MAX;
		lines[goes] = lines[--m->count[rank]];
	}
	lines[m->count[rank]++] = at;
}

static double model_access(struct model *m, uint32_t rank, uint32_t at, bool writes)
{
	bool there = m->has[rank][at] == m->version[at];
	uint32_t writer = m->writer[at];
	double ns = 0, other = 2 * LINE + (writes ? 0 : 100);

	if (there)
		ns = writes && m->version[at] > 0 && writer == rank && m->read[at] ? other : LINE;
	if (m->has[rank][at] == UINT64_MAX)
		model_take_in(m, rank, at);
	if (!there && m->version[at] > 0 && writer != rank && m->has[writer][at] == m->version[at])
		ns = other;
	if (writes) {
		m->version[at]++;
		m->writer[at] = rank;
		m->read[at] = false;
	} else if (m->version[at] > 0 && writer != rank) {
		m->read[at] = true;
	}
	m->has[rank][at] = m->version[at];
	return ns;
}

START_TEST(as_a_model_that_looks_through_all)
{
	static struct model m;
	struct rb_sim_caches *c = caches_open(RANKS, CAPACITY);
	struct rb_rng rng = { 7 };
	uint32_t seen[3] = { 0, 0, 0 };
	uint32_t accesses = test_is_interpreted() ? 25000 : 100000;

	memset(m.has, 0xff, sizeof(m.has));
	for (uint32_t i = 0; i < accesses; i++) {
		uint32_t rank = (uint32_t)rb_rng_below(&rng, RANKS);
		uint32_t at = (uint32_t)rb_rng_below(&rng, 1 + rb_rng_below(&rng, PLACES));
		bool writes = rb_rng_below(&rng, 3) == 0;
		double ns = model_access(&m, rank, at, writes);

		costs(c, rank, at * LINE, LINE, writes, ns, ns > 0 ? 0 : LINE);
		seen[ns > LINE ? 2 : ns > 0 ? 1 : 0]++;
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_gt(seen[i], accesses / 100);
	rb_sim_caches_close(c);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("cache");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_was_read_lies_in_the_cache);
	tcase_add_test(tc, what_another_wrote_lies_in_its_cache);
	tcase_add_test(tc, one_makes_room_for_another);
	tcase_add_test(tc, without_caches_or_a_place_it_is_memory);
	tcase_add_test(tc, reductions_may_be_slower);
	tcase_add_test(tc, what_goes_lies_in_the_outer_one);
	tcase_add_test(tc, of_a_little_more_than_fits_a_little_goes);
	tcase_add_test(tc, as_a_model_that_looks_through_all);
	return check_main("cache", tc);
}
