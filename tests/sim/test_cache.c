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

START_TEST(the_least_recently_used_goes)
{
	struct rb_sim_caches *c = caches_open(2, LINES);

	costs(c, 0, 0, 4 * LINE, true, 0, 4 * LINE);
	costs(c, 0, 0, LINE, false, LINE, 0);
	costs(c, 0, 4 * LINE, LINE, false, 0, LINE); /* The second goes. */
	costs(c, 0, 0, LINE, false, LINE, 0);
	costs(c, 0, LINE, LINE, false, 0, LINE);     /* And now the third. */
	costs(c, 1, 2 * LINE, LINE, false, 0, LINE); /* Nobody has it any more. */
	costs(c, 1, 3 * LINE, LINE, false, 2 * LINE + 100, 0);
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

	costs(c, 0, 0, 4 * LINE, true, 0, 4 * LINE);
	costs(c, 0, 8 * LINE, 4 * LINE, false, 0, 4 * LINE);
	costs(c, 0, 0, LINE, false, 1.5 * LINE, 0); /* The first of those that were read goes. */
	costs(c, 0, 0, LINE, false, LINE, 0);
	costs(c, 0, 8 * LINE, LINE, false, 1.5 * LINE, 0);
	costs(c, 1, LINE, LINE, false, 2 * LINE, 0);    /* Another one wrote it. */
	costs(c, 1, 2 * LINE, LINE, true, 2 * LINE, 0); /* Likewise; what went is old now. */
	costs(c, 0, 2 * LINE, LINE, false, 2148, 0);
	costs(c, 1, 40 * LINE, 4 * LINE, false, 0, 4 * LINE);
	costs(c, 0, 50 * LINE, LINE, false, 0, LINE);
	/* Another node's is not there. */
	ck_assert_uint_eq(
		rb_sim_caches_access(c, (struct rb_sim_place) { 2, 1 }, &touch, 1).memory_bytes,
		LINE);
	rb_sim_caches_close(c);
}
END_TEST

/* Of T lines, round and round, a share x is not found: 1 - x = exp(-x T / lines). */
START_TEST(of_a_little_more_than_fits_a_little_goes)
{
	static const struct {
		uint32_t outer, least, most; /* Lines; of a thousand that are not found. */
	} rows[] = {
		{ 64, 0, 0 }, { 60, 0, 0 }, { 50, 120, 360 }, { 40, 400, 600 }, { 20, 850, 990 }
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rb_sim_caches *c = outer_open(rows[i].outer);
		struct rb_touch touch = { memory, 64 * LINE, false };
		uint64_t bytes = 0;

		for (uint32_t k = 0; k < 120; k++) {
			struct rb_sim_access cost =
				rb_sim_caches_access(c, (struct rb_sim_place) { 0, 0 }, &touch, 1);

			bytes += k >= 20 ? cost.memory_bytes : 0;
		}
		uint64_t share = bytes * 1000 / (100 * 64 * LINE);

		ck_assert_uint_ge(share, rows[i].least);
		ck_assert_uint_le(share, rows[i].most);
		rb_sim_caches_close(c);
	}
}
END_TEST

/* ---- Against a model ---- */

#define RANKS 3u
#define PLACES 64u
#define CAPACITY 7u

struct model {
	uint64_t version[PLACES], has[RANKS][PLACES], used[RANKS][PLACES]; /* used 0: not there. */
	uint32_t writer[PLACES];
	bool read[PLACES];
	uint64_t now;
};

static void model_make_room(struct model *m, uint32_t rank)
{
	uint32_t count = 0, oldest = PLACES;

	for (uint32_t i = 0; i < PLACES; i++) {
		if (m->used[rank][i] == 0)
			continue;
		count++;
		if (oldest == PLACES || m->used[rank][i] < m->used[rank][oldest])
			oldest = i;
	}
	if (count == CAPACITY)
		m->used[rank][oldest] = 0;
}

static double model_access(struct model *m, uint32_t rank, uint32_t at, bool writes)
{
	bool there = m->used[rank][at] != 0 && m->has[rank][at] == m->version[at];
	uint32_t writer = m->writer[at];
	double ns = 0, other = 2 * LINE + (writes ? 0 : 100);

	if (m->used[rank][at] == 0)
		model_make_room(m, rank);
	if (there)
		ns = writes && m->version[at] > 0 && writer == rank && m->read[at] ? other : LINE;
	else if (m->version[at] > 0 && writer != rank && m->used[writer][at] != 0 &&
		 m->has[writer][at] == m->version[at])
		ns = other;
	if (writes) {
		m->version[at]++;
		m->writer[at] = rank;
		m->read[at] = false;
	} else if (m->version[at] > 0 && writer != rank) {
		m->read[at] = true;
	}
	m->has[rank][at] = m->version[at];
	m->used[rank][at] = ++m->now;
	return ns;
}

START_TEST(as_a_model_that_looks_through_all)
{
	static struct model m;
	struct rb_sim_caches *c = caches_open(RANKS, CAPACITY);
	struct rb_rng rng = { 7 };
	uint32_t seen[3] = { 0, 0, 0 };
	uint32_t accesses = test_is_interpreted() ? 25000 : 100000;

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
	tcase_add_test(tc, the_least_recently_used_goes);
	tcase_add_test(tc, without_caches_or_a_place_it_is_memory);
	tcase_add_test(tc, reductions_may_be_slower);
	tcase_add_test(tc, what_goes_lies_in_the_outer_one);
	tcase_add_test(tc, of_a_little_more_than_fits_a_little_goes);
	tcase_add_test(tc, as_a_model_that_looks_through_all);
	return check_main("cache", tc);
}
