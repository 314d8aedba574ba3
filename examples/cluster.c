/*
 * cluster.c -- 64 ranks on 8 nodes, simulated in this process in virtual time: what a step takes
 * when all wait for all, and when a round needs three quarters of the ranks, where each rank's step
 * takes 10 to 20 ms by chance. No rubato-run: ./cluster
 */
#include <stdio.h>

#include <rubato.h>
#include <rubato_sim.h>

enum { RANKS = 64, COUNT = 1 << 16, STEPS = 50 };

static float in[RANKS][COUNT], out[RANKS][COUNT];

static void compute(rubato_comm *comm, uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	rubato_sleep(comm, 10000000 + (*state >> 33) % 10000000);
}

static rubato_status wait_for_all(rubato_comm *comm, void *arg)
{
	uint64_t rank = rubato_rank(comm), state = rank;
	rubato_status status = RUBATO_OK;

	(void)arg;
	for (int step = 0; step < STEPS && status == RUBATO_OK; step++) {
		compute(comm, &state);
		status = rubato_allreduce(comm, in[rank], out[rank], COUNT, RUBATO_FLOAT32,
					  RUBATO_AVG);
	}
	return status;
}

static rubato_status wait_for_most(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint64_t rank = rubato_rank(comm), state = rank;
	rubato_partial *partial;
	rubato_status status;
	bool collected;

	(void)arg;
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = RANKS * 3 / 4;
	status = rubato_partial_create(comm, COUNT, RUBATO_FLOAT32, RUBATO_AVG, &options, &partial);
	for (uint64_t step = 1; step <= STEPS && status == RUBATO_OK; step++) {
		compute(comm, &state);
		status = rubato_partial_contribute(partial, in[rank], step, 1);
		if (status == RUBATO_OK)
			status = rubato_partial_collect(partial, out[rank], &collected, NULL,
							RUBATO_TIMEOUT_DEFAULT);
	}
	return status != RUBATO_OK ? status : rubato_partial_free(partial);
}

int main(void)
{
	rubato_sim_options cluster = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result all, most;

	cluster.rank_count = RANKS;
	cluster.ranks_per_node = 8;
	cluster.seed = 1;
	if (rubato_sim_run(&cluster, wait_for_all, NULL, &all) != RUBATO_OK ||
	    rubato_sim_run(&cluster, wait_for_most, NULL, &most) != RUBATO_OK) {
		(void)fprintf(stderr, "%s\n", rubato_error_text());
		return 1;
	}
	(void)printf("all: %.1f ms a step; three quarters: %.1f ms\n",
		     (double)all.end_ns / 1e6 / STEPS, (double)most.end_ns / 1e6 / STEPS);
	return 0;
}
