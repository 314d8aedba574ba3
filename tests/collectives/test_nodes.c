/* test_nodes.c -- nodes, and what the checker makes of them. */
#include <string.h>

#include "collectives/checker/proof.h"
#include "tests/check_main.h"

#define RANKS_MAX 64

/* ---- Numbering ---- */

START_TEST(nodes_are_numbered_by_their_lowest_ranks)
{
	static const uint32_t name_of[] = { 4, 1, 4, 1, 6, 4, 0 };
	static const uint32_t node_of[] = { 0, 1, 0, 1, 2, 0, 3 };
	static const uint32_t place_of[] = { 0, 0, 1, 1, 0, 2, 0 };
	static const uint32_t ranks[] = { 0, 2, 5, 1, 3, 4, 6 };
	uint32_t words[RB_NODES_WORDS(7)];
	struct rb_nodes nodes;

	memset(words, 0xff, sizeof(words));
	rb_nodes_make(&nodes, words, name_of, 7);
	ck_assert_uint_eq(nodes.count, 4);
	ck_assert_uint_eq(nodes.least, 1);
	ck_assert_int_eq(memcmp(nodes.node_of, node_of, sizeof(node_of)), 0);
	ck_assert_int_eq(memcmp(nodes.place_of, place_of, sizeof(place_of)), 0);
	ck_assert_int_eq(memcmp(nodes.ranks, ranks, sizeof(ranks)), 0);
	ck_assert_uint_eq(rb_node_size(&nodes, 0), 3);
	ck_assert_uint_eq(rb_node_rank(&nodes, 1, 1), 3);
}
END_TEST

/* ---- The checker ---- */

static uint32_t words[RB_NODES_WORDS(RANKS_MAX)]; /* Of one at a time. */

static void make(struct rb_nodes *nodes, const uint32_t *sizes, uint32_t count, bool cyclic)
{
	uint32_t name_of[RANKS_MAX], n = 0, left[RANKS_MAX];

	memcpy(left, sizes, count * sizeof(*sizes));
	for (uint32_t node = 0; !cyclic && node < count; node++)
		for (uint32_t i = 0; i < sizes[node]; i++)
			name_of[n++] = node;
	for (bool more = cyclic; more;) {
		more = false;
		for (uint32_t node = 0; node < count; node++) {
			if (left[node] == 0)
				continue;
			left[node]--;
			name_of[n++] = node;
			more = true;
		}
	}
	ck_assert_uint_le(n, RANKS_MAX);
	rb_nodes_make(nodes, words, name_of, n);
}

/* Memory of another node is none that a span may name. */
START_TEST(memory_of_another_node_is_refused)
{
	static const uint32_t sizes[] = { 2, 2 };
	const struct rb_algorithm *direct =
		&rb_algorithms[rb_algorithm_find(RB_KIND_ALLREDUCE, "direct")];
	struct rb_proof proof;
	struct rb_nodes nodes;

	make(&nodes, sizes, 2, false);
	struct rb_proof_case what = { .algorithm = direct, .rank_count = 4, .nodes = &nodes };

	ck_assert_int_eq(rb_prove(&what, NULL, &proof), RUBATO_OK);
	ck_assert(!proof.proved);
	ck_assert_msg(strstr(proof.text, "names memory of rank 2, on another node") != NULL, "%s",
		      proof.text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("nodes");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, nodes_are_numbered_by_their_lowest_ranks);
	tcase_add_test(tc, memory_of_another_node_is_refused);
	return check_main("nodes", tc);
}
