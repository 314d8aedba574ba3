/* backend_verbs_rdmacm_processes.c -- verbs on a mock device that rdmacm connects; ranks are
 * processes. */
#include "verbs_world.h"

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	(void)cluster;
	return verbs_world_processes("devices=1", rank_count, rank_main, arg);
}

const struct conform_backend conform_backend = {
	.name = "verbs by rdmacm, processes",
	.ops = &rb_transport_verbs,
	.connect = RB_CONNECT_RDMACM,
	.run = run,
};
