/*
 * backend_verbs_infiniband.c -- verbs over InfiniBand, where ports are found by their LIDs: mock
 * devices, two rails. Ranks are threads, each on a node of its own, so that all LIDs differ.
 */
#include "verbs_world.h"

struct ranks {
	void (*node)(uint32_t node);
	void (*rank_main)(void *arg, uint32_t rank);
	void *arg;
};

static void on_its_node(void *arg, uint32_t rank)
{
	const struct ranks *ranks = arg;

	ranks->node(rank);
	ranks->rank_main(ranks->arg, rank);
}

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	struct ranks ranks = {
		.node = (void (*)(uint32_t))(uintptr_t)verbs_world_symbol("mock_node"),
		.rank_main = rank_main,
		.arg = arg,
	};

	(void)cluster;
	return verbs_world_threads("devices=2,infiniband=1", rank_count, on_its_node, &ranks);
}

const struct conform_backend conform_backend = {
	.name = "verbs infiniband",
	.ops = &rb_transport_verbs,
	.run = run,
};
