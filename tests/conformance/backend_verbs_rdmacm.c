/*
 * backend_verbs_rdmacm.c -- verbs on one to three mock devices that rdmacm connects; a seed draws
 * delays, of its events too: another one for each run, or TEST_SEED. Ranks are threads.
 */
#include "base/clock.h"
#include "verbs_world.h"

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	const char *text = getenv("TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : rb_clock_ns() % 1000000 + 1;
	char config[64];

	(void)cluster;
	(void)fprintf(stderr, "TEST_SEED=%llu\n", (unsigned long long)seed);
	(void)snprintf(config, sizeof(config), "seed=%llu,devices=%u", (unsigned long long)seed,
		       (unsigned)(1 + seed % 3));
	return verbs_world_threads(config, rank_count, rank_main, arg);
}

const struct conform_backend conform_backend = {
	.name = "verbs by rdmacm",
	.ops = &rb_transport_verbs,
	.connect = RB_CONNECT_RDMACM,
	.run = run,
};
