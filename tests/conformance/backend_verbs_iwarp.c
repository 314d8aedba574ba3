/*
 * backend_verbs_iwarp.c -- verbs on a mock iWARP device: no datagrams, connected by rdmacm of
 * itself, and who was connected to never sends first. Ranks are threads.
 */
#include "tests/conformance/netdevs.h"
#include "verbs_world.h"

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	(void)cluster;
	return verbs_world_threads("devices=2,iwarp=1", rank_count, rank_main, arg);
}

const struct conform_backend conform_backend = {
	.name = "verbs on iWARP",
	.ops = &rb_transport_verbs,
	.run = run,
};
