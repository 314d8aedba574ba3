/* test_nodes.c -- which ranks make a node, and the algorithms that know nodes: proved over nodes
 * and ranks of each, even and uneven, in any order of the ranks. */
#include <stdlib.h>
#include <string.h>

#include "collectives/checker/joint.h"
#include "collectives/checker/proof.h"
#include "tests/check_main.h"
#include "tests/length.h"

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

/* ---- Algorithms ---- */

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

static const struct {
	uint32_t count, sizes[8];
} placements[] = {
	{ 1, { 3 } },
	{ 2, { 1, 1 } },
	{ 2, { 2, 2 } },
	{ 2, { 4, 4 } },
	{ 3, { 1, 1, 1 } },
	{ 3, { 2, 2, 2 } },
	{ 4, { 2, 2, 2, 2 } },
	{ 2, { 1, 3 } },
	{ 2, { 3, 2 } },
	{ 3, { 4, 2, 3 } },
	{ 5, { 1, 2, 1, 3, 1 } },
	{ 4, { 1, 1, 1, 5 } },
	{ 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
};
#define PLACEMENTS (sizeof(placements) / sizeof(placements[0]))

static uint32_t proved;

static void prove(const struct rb_algorithm *a, const struct rb_nodes *nodes, uint64_t count)
{
	struct rb_proof_case what = { .algorithm = a,
				      .rank_count = nodes->rank_count,
				      .root = RB_PROOF_ROOTS_ALL,
				      .count = count,
				      .nodes = nodes };
	struct rb_proof proof;

	ck_assert_int_eq(rb_prove(&what, NULL, &proof), RUBATO_OK);
	ck_assert_msg(proof.proved, "%u nodes, the smallest of %u: %s", nodes->count, nodes->least,
		      proof.text);
	proved += proof.cases;
}

/* Of the placements, those that there is time for. */
static bool wants_placement(uint32_t i, bool cyclic)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < placements[i].count; k++)
		n += placements[i].sizes[k];
	return test_length() != TEST_SHORT || ((i + (uint32_t)cyclic) % 3 == 0 && n <= 6);
}

START_TEST(algorithms_are_right_on_any_nodes)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];

	if (!a->by_node)
		return;
	proved = 0;
	for (uint32_t i = 0; i < PLACEMENTS; i++) {
		for (int cyclic = 0; cyclic <= 1; cyclic++) {
			struct rb_nodes nodes;

			if (!wants_placement(i, cyclic))
				continue;
			make(&nodes, placements[i].sizes, placements[i].count, cyclic);
			prove(a, &nodes, 0);
			if (!test_is_interpreted()) /* More of the same steps. */
				prove(a, &nodes, 1000003 * nodes.rank_count);
		}
	}
	uint32_t each = test_length() == TEST_SHORT ? 1 : 8;
	size_t least = each * PLACEMENTS / (test_is_interpreted() ? 2 : 1);

	ck_assert_uint_gt(proved, least - (a->kind == RB_KIND_BARRIER)); /* It has no counts. */
}
END_TEST

/* ---- What the two forms of one algorithm have in common ---- */

struct message {
	uint8_t kind;
	uint16_t channel;
	uint32_t peer, block, blocks;
};

/* Channels tell one pair's messages apart, so it does not matter in which order steps stand. */
static int by_peer(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct message));
}

/* What a rank sends to other nodes and gets from there. */
static uint32_t between(const struct rb_joint *joint, uint32_t rank, struct message *out,
			uint32_t most)
{
	const struct rb_schedule *s = &joint->schedules[rank];
	uint32_t count = 0;

	for (uint32_t i = 0; i < s->step_count; i++) {
		const struct rb_step *step = &s->steps[i];

		if (step->peer == RB_SELF ||
		    joint->nodes->node_of[step->peer] == joint->nodes->node_of[rank])
			continue;
		ck_assert_uint_lt(count, most);
		memset(&out[count], 0, sizeof(out[count]));
		out[count].kind = step->kind;
		out[count].channel = step->channel;
		out[count].peer = step->peer;
		out[count].block = step->block;
		out[count++].blocks = step->blocks;
	}
	qsort(out, count, sizeof(*out), by_peer);
	return count;
}

START_TEST(both_forms_send_the_same_between_nodes)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	static struct message of[2][4096];
	uint32_t messages = 0;

	if (a->staged == NULL)
		return;
	ck_assert(a->by_node && (a->flags & RB_SCHEDULE_MAPPED_BUFFERS));
	for (uint32_t i = 0; i < PLACEMENTS; i++) {
		struct rb_nodes nodes;

		if (test_is_interpreted() && i % 3 != 2)
			continue;
		make(&nodes, placements[i].sizes, placements[i].count, i % 2 == 1);
		for (uint32_t root = 0; root < (rb_algorithm_rooted(a) ? nodes.rank_count : 1);
		     root++) {
			struct rb_joint joints[2] = {
				{ .algorithm = a,
				  .rank_count = nodes.rank_count,
				  .root = root,
				  .nodes = &nodes },
			};

			joints[1] = joints[0];
			joints[1].algorithm = &rb_algorithms[rb_algorithm_find(a->kind, a->staged)];
			ck_assert_uint_eq(joints[1].algorithm->flags, a->flags & RB_SCHEDULE_PUT);
			ck_assert_int_eq(joints[1].algorithm->blocks, a->blocks);
			for (uint32_t k = 0; k < 2; k++)
				ck_assert_int_eq(rb_joint_build(&joints[k]), RUBATO_OK);
			for (uint32_t r = 0; r < nodes.rank_count; r++) {
				uint32_t count = between(&joints[0], r, of[0], 4096);

				ck_assert_uint_eq(between(&joints[1], r, of[1], 4096), count);
				ck_assert_int_eq(memcmp(of[0], of[1], count * sizeof(of[0][0])), 0);
				messages += count;
			}
			for (uint32_t k = 0; k < 2; k++)
				rb_joint_free(&joints[k]);
		}
	}
	ck_assert_uint_gt(messages, test_is_interpreted() ? 50 : 100);
}
END_TEST

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
	tcase_add_loop_test(tc, algorithms_are_right_on_any_nodes, 0, (int)rb_algorithm_count);
	tcase_add_loop_test(tc, both_forms_send_the_same_between_nodes, 0, (int)rb_algorithm_count);
	tcase_add_test(tc, memory_of_another_node_is_refused);
	return check_main("nodes", tc);
}
