/* prove.c -- rubato_prove: the checker, for users. It needs no communicator. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "collectives/checker/proof.h"
#include "rubato.h"

#define EVENTS_MAX (1u << 22) /* Of one case: some 3 GiB at this many. */
#define MAPPED (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH)
#define TIMEOUT_NS UINT64_C(60000000000)
#define COUNT_MAX (UINT64_C(1) << 60)

static bool is_over(void *deadline_ns)
{
	return rb_clock_ns() >= *(const uint64_t *)deadline_ns;
}

static rubato_status find(const char *operation, const char *name, uint32_t ranks,
			  const struct rb_algorithm **algorithm)
{
	enum rb_kind kind = rb_kind_find(operation);
	int found = kind == RB_KIND_NONE ? -1 : rb_algorithm_find(kind, name);

	if (kind == RB_KIND_NONE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: unknown operation '%s'", operation);
	if (found < 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: %s has no algorithm '%s'", operation,
			       name);
	*algorithm = &rb_algorithms[found];
	if (ranks == 0 || ranks > RUBATO_PROVE_RANKS_MAX || ranks > (*algorithm)->rank_max)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: %u ranks: from 1 to %u", ranks,
			       (*algorithm)->rank_max < RUBATO_PROVE_RANKS_MAX
				       ? (*algorithm)->rank_max
				       : RUBATO_PROVE_RANKS_MAX);
	return RUBATO_OK;
}

/* *nodes: those that node_of tells of; its arrays, in *words, are the caller's to free. */
static rubato_status nodes_make(const uint32_t *node_of, uint32_t ranks, struct rb_nodes *nodes,
				uint32_t **words)
{
	for (uint32_t r = 0; r < ranks; r++)
		if (node_of[r] >= ranks)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: rank %u is on node %u of %u", r,
				       node_of[r], ranks);
	*words = calloc(RB_NODES_WORDS(ranks), sizeof(**words));
	if (*words == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "prove: nodes of %u ranks", ranks);
	rb_nodes_make(nodes, *words, node_of, ranks);
	return RUBATO_OK;
}

rubato_status rubato_prove(const char *operation, const char *algorithm, uint32_t ranks,
			   const uint32_t *node_of, uint32_t root, uint64_t count,
			   uint64_t timeout_ns, char *text, size_t text_bytes)
{
	uint64_t timeout = timeout_ns != RUBATO_TIMEOUT_DEFAULT ? timeout_ns : TIMEOUT_NS;
	uint64_t deadline_ns = rb_clock_ns();
	struct rb_check_limits limits = { EVENTS_MAX, is_over, &deadline_ns };
	const struct rb_algorithm *found;
	struct rb_nodes nodes;
	struct rb_proof proof;
	uint32_t *words = NULL;

	if (operation == NULL || algorithm == NULL || (text == NULL && text_bytes > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: NULL");
	RB_TRY(find(operation, algorithm, ranks, &found));
	if (root != RUBATO_PROVE_ROOTS_ALL && root >= ranks)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: root %u of %u ranks", root, ranks);
	if (count > COUNT_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "prove: more than 2^60 elements");
	deadline_ns = timeout < UINT64_MAX - deadline_ns ? deadline_ns + timeout : UINT64_MAX;
	if (node_of != NULL)
		RB_TRY(nodes_make(node_of, ranks, &nodes, &words));
	if (node_of != NULL && nodes.count > 1 && found->flags & MAPPED && !found->by_node) {
		free(words);
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "prove: %s %s is for ranks that all map each other's memory: for "
			       "one node",
			       operation, algorithm);
	}
	struct rb_proof_case what = { .algorithm = found,
				      .rank_count = ranks,
				      .root = root,
				      .count = count,
				      .nodes = node_of != NULL ? &nodes : NULL };
	rubato_status err = rb_prove(&what, &limits, &proof);

	free(words);
	if (err == RUBATO_ERR_TIMEOUT)
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "prove: %s %s on %u ranks: %u cases are proved, the time is over",
			       operation, algorithm, ranks, proof.cases);
	if (err != RUBATO_OK)
		return err;
	if (text_bytes > 0)
		(void)snprintf(text, text_bytes, "%s", proof.text);
	if (!proof.proved)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%s", proof.text);
	return RUBATO_OK;
}
