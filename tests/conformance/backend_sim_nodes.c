/* backend_sim_nodes.c -- ranks as fibers, in virtual time: one node, messages overtake each
 * other. */
#include "tests/conformance/conformance.h"

#include "transport/sim/sim_cluster.h"

struct program {
	void (*rank_main)(void *arg, uint32_t rank);
	void *arg;
};

static void *cluster_open(uint32_t rank_count)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	struct rb_sim_cluster *cluster;

	options.rank_count = rank_count;
	options.seed = 7 + rank_count;
	options.jitter = 0.5;
	options.reorder = 1;
	options.ranks_per_node = CONFORM_RANKS_MAX;
	ck_assert_int_eq(rb_sim_cluster_open(&options, &cluster), RUBATO_OK);
	return cluster;
}

static void cluster_close(void *cluster)
{
	rb_sim_cluster_close(cluster);
}

static rubato_status rank_run(struct rb_sim_process *process, void *arg)
{
	struct program *program = arg;

	program->rank_main(program->arg, rb_sim_process_rank(process));
	return RUBATO_OK;
}

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	struct program program = { rank_main, arg };

	(void)rank_count;
	return rb_sim_cluster_run(cluster, rank_run, &program) == RUBATO_OK;
}

const struct conform_backend conform_backend = {
	.name = "sim_nodes",
	.ops = &rb_transport_sim,
	.cluster_open = cluster_open,
	.cluster_close = cluster_close,
	.run = run,
};
