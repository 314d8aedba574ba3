/* test_facts.c -- who is a node, by what ranks say of whom they map. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "runtime/facts.h"
#include "tests/check_main.h"
#include "tests/runtime/local.h"

#define RANKS 12

/* maps[a] has bit b where rank a maps rank b; a rank always maps itself. */
static void name(const uint32_t *maps, uint32_t n, uint32_t *name_of)
{
	struct rb_mapped_set sets[RANKS], found[RANKS];

	for (uint32_t r = 0; r < n; r++) {
		sets[r] = (struct rb_mapped_set) { .lowest = UINT32_MAX };
		for (uint32_t s = n; s-- > 0;) {
			if (s != r && !(maps[r] >> s & 1))
				continue;
			sets[r].lowest = s;
			sets[r].count++;
			sets[r].hash += rb_mapped_hash(s);
		}
	}
	rb_nodes_name(sets, n, name_of, found);
}

static void expect(const uint32_t *maps, uint32_t n, const uint32_t *names)
{
	uint32_t name_of[RANKS];

	name(maps, n, name_of);
	for (uint32_t r = 0; r < n; r++)
		ck_assert_msg(name_of[r] == names[r], "rank %u is of node %u, not %u", r,
			      name_of[r], names[r]);
}

START_TEST(those_who_map_each_other_are_a_node)
{
	expect((const uint32_t[]) { 0x3, 0x3, 0xc, 0xc }, 4, (const uint32_t[]) { 0, 0, 2, 2 });
	expect((const uint32_t[]) { 0x5, 0xa, 0x5, 0xa }, 4, (const uint32_t[]) { 0, 1, 0, 1 });
	expect((const uint32_t[]) { 0, 0, 0 }, 3, (const uint32_t[]) { 0, 1, 2 });
	expect((const uint32_t[]) { 1 }, 1, (const uint32_t[]) { 0 });
}
END_TEST

/* One way only, or not all: nobody of them is trusted. The others keep theirs. */
START_TEST(those_who_do_not_agree_stand_alone)
{
	expect((const uint32_t[]) { 0x3, 0x2, 0xc, 0xc }, 4, (const uint32_t[]) { 0, 1, 2, 2 });
	expect((const uint32_t[]) { 0x3, 0x7, 0x6, 0x18, 0x18 }, 5,
	       (const uint32_t[]) { 0, 1, 2, 3, 3 });
	expect((const uint32_t[]) { 0x3, 0x7, 0x7 }, 3, (const uint32_t[]) { 0, 1, 2 });
}
END_TEST

/* Whatever is mapped: two ranks share a name only if they map the same ranks, each other among
 * them, and are all of these. */
START_TEST(any_relation_gives_nodes)
{
	struct rb_rng rng = { 5 };
	uint32_t shared = 0;

	for (int i = 0; i < 200000; i++) {
		uint32_t n = 1 + (uint32_t)rb_rng_below(&rng, 6), maps[RANKS], name_of[RANKS];
		uint32_t group = (uint32_t)rb_rng_below(&rng, 1u << n);

		for (uint32_t r = 0; r < n; r++) {
			maps[r] = (group >> r & 1 ? group : ~group) & ((1u << n) - 1);
			if (rb_rng_below(&rng, 4) == 0)
				maps[r] ^= 1u << rb_rng_below(&rng, n);
			maps[r] |= 1u << r;
		}
		name(maps, n, name_of);
		for (uint32_t a = 0; a < n; a++) {
			uint32_t members = 0;

			for (uint32_t b = 0; b < n; b++)
				members |= (uint32_t)(name_of[b] == name_of[a]) << b;
			shared += members != 1u << a;
			/* Each of Check's own writes a file: a million of them took 30 s. */
			if (name_of[a] >= n || (members != 1u << a && maps[a] != members))
				ck_abort_msg("draw %d: rank %u of %u maps %x, and is with %x", i, a,
					     n, maps[a], members);
		}
	}
	ck_assert_uint_gt(shared, 100000);
}
END_TEST

static void expect_numbers(const uint64_t *words, uint32_t n, const uint32_t *want, uint32_t count)
{
	uint32_t number_of[RANKS];
	struct rb_numbered order[RANKS];

	ck_assert_uint_eq(rb_words_number(words, n, number_of, order), count);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(number_of[i], want[i]);
}

START_TEST(words_are_numbered_by_their_first)
{
	expect_numbers((const uint64_t[]) { 9, 9, 2, 9, UINT64_MAX, 2 }, 6,
		       (const uint32_t[]) { 0, 0, 1, 0, 2, 1 }, 3);
	expect_numbers((const uint64_t[]) { 0 }, 1, (const uint32_t[]) { 0 }, 1);
	expect_numbers((const uint64_t[]) { 5, 4, 3, 4, 5 }, 5,
		       (const uint32_t[]) { 0, 1, 2, 1, 0 }, 3);
}
END_TEST

/* Simulated nodes of two ranks that share a card. */
static rubato_status locality_main(rubato_comm *comm, void *arg)
{
	uint32_t *seen = arg;

	for (uint32_t r = 0; r < 5; r++) {
		rubato_peer peer = { .size_bytes = sizeof(peer) };
		bool far = r / 2 != rubato_rank(comm) / 2;

		ck_assert_int_eq(rubato_get_peer(comm, r, &peer), RUBATO_OK);
		ck_assert_uint_eq(peer.node, r / 2);
		ck_assert_uint_eq(peer.host, r / 2);
		ck_assert_uint_eq(peer.card, r / 2);
		ck_assert_uint_eq(peer.numa_domain, RUBATO_DOMAIN_UNKNOWN);
		ck_assert_str_eq(peer.transport, "sim");
		ck_assert_double_eq(peer.latency_us, far ? 50 : 0);
		ck_assert_double_eq_tol(peer.bandwidth, far ? 1e9 : 0, 1);
	}
	rubato_peer peer = { .size_bytes = sizeof(peer) };

	ck_assert_int_eq(rubato_get_peer(comm, 5, &peer), RUBATO_ERR_ARGUMENT);
	peer.size_bytes = 0;
	ck_assert_int_eq(rubato_get_peer(comm, 0, &peer), RUBATO_ERR_ARGUMENT);
	++*seen;
	return RUBATO_OK;
}

START_TEST(peers_are_told)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	uint32_t seen = 0;

	options.rank_count = 5;
	options.ranks_per_node = 2;
	options.latency_ns = 50000;
	options.bandwidth = 1e9;
	options.costs.cards = 1;
	ck_assert_int_eq(rubato_sim_run(&options, locality_main, &seen, &result), RUBATO_OK);
	ck_assert_uint_eq(seen, 5);
}
END_TEST

/* ---- Links between nodes: threads that map nothing, each a node ---- */

#define COPIED_BYTES 5000u
#define SLOW_FROM 2u /* To the next: its messages leave late. */
#define SLOW_NS 2000000u
#define TRIES 10u /* Another link seems as slow where a rank of it has no processor meanwhile. */

static struct rb_transport_ops apart, copying; /* The second says how much processors copy. */
static _Atomic uint32_t delayed;

static rubato_status apart_open(const struct rb_transport_options *options,
				struct rb_endpoint **out)
{
	RB_TRY(rb_transport_shm.open(options, out));
	(*out)->ops = options->rank == 0 ? &copying : &apart;
	return RUBATO_OK;
}

static void slow_send(struct rb_endpoint *ep, struct rb_request *request)
{
	if (ep->rank == SLOW_FROM && request->peer == SLOW_FROM + 1) {
		struct timespec late = { .tv_nsec = SLOW_NS };

		(void)nanosleep(&late, NULL);
		delayed++;
	}
	rb_transport_shm.send(ep, request);
}

struct seen_links {
	struct rb_link link[8];
	struct rb_link_spread spread[8];
	bool told[8]; /* Which link it is. */
};

static rubato_status links_main(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	struct seen_links *seen = arg;
	rubato_comm *child;
	char text[500], want[100];
	double child_us;

	if (comm->choices.nodes.count != n)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%u nodes", comm->choices.nodes.count);
	seen->link[rank] = comm->choices.facts.network;
	seen->spread[rank] = comm->origin.spread;
	RB_TRY(rubato_explain(comm, "allreduce", 2, RUBATO_FLOAT32, text, sizeof(text)));
	(void)snprintf(want, sizeof(want), " us from node %u to %u, down to ", SLOW_FROM,
		       (SLOW_FROM + 1) % n);
	seen->told[rank] = strstr(text, want) != NULL;
	if (strstr(text, "measured at creation") == NULL)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "explained: %s", text);
	RB_TRY(rubato_split(comm, rank < 2, 0, &child));
	child_us = child->choices.facts.network.latency_us;
	RB_TRY(rubato_finalize(child));
	if (child_us != seen->link[rank].latency_us)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "a child measures anew: %g us", child_us);
	return RUBATO_OK;
}

/* An even ring, and an odd one, which takes a round more. */
START_TEST(the_slowest_link_counts)
{
	const struct rb_transport_ops *transports[] = { &apart, NULL };
	struct seen_links seen = { 0 };
	uint32_t n = (uint32_t)_i;

	delayed = 0;
	apart = rb_transport_shm;
	apart.open = apart_open;
	apart.send = slow_send;
	apart.word_of = NULL;
	apart.word_map = NULL;
	copying = apart;
	copying.copied_bytes = COPIED_BYTES;
	for (uint32_t tries = 0; tries < TRIES && !seen.told[0]; tries++)
		ck_assert_int_eq(local_run(n, transports, links_main, &seen, NULL), RUBATO_OK);
	ck_assert_uint_gt(delayed, 0);
	ck_assert(seen.link[0].latency_us >= SLOW_NS / 2e3);
	ck_assert(seen.link[0].message_us >= SLOW_NS / 2e3);
	ck_assert_uint_eq(seen.spread[0].far_node, SLOW_FROM);
	ck_assert(seen.link[0].copied_bytes == COPIED_BYTES); /* What node 0 says counts for all. */
	for (uint32_t r = 0; r < n; r++) {
		ck_assert(seen.told[r]);
		ck_assert_mem_eq(&seen.link[r], &seen.link[0], sizeof(seen.link[0]));
		ck_assert_mem_eq(&seen.spread[r], &seen.spread[0], sizeof(seen.spread[0]));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("facts");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, those_who_map_each_other_are_a_node);
	tcase_add_test(tc, those_who_do_not_agree_stand_alone);
	tcase_add_test(tc, any_relation_gives_nodes);
	tcase_add_test(tc, words_are_numbered_by_their_first);
	tcase_add_test(tc, peers_are_told);
	tcase_add_loop_test(tc, the_slowest_link_counts, 4, 6);
	return check_main("facts", tc);
}
