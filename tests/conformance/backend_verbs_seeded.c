/*
 * backend_verbs_seeded.c -- verbs on one to three mock devices whose delays, and the order between
 * queue pairs, a seed draws: another one for each run, or TEST_SEED. Ranks are threads.
 */
#include "base/clock.h"
#include "verbs_world.h"

static bool run(void *cluster, uint32_t rank_count, void (*rank_main)(void *arg, uint32_t rank),
		void *arg)
{
	const char *text = getenv("TEST_SEED");
	unsigned long long seed =
		text != NULL ? strtoull(text, NULL, 10) : rb_clock_ns() % 1000000 + 1;
	char config[64];

	(void)cluster;
	(void)fprintf(stderr, "TEST_SEED=%llu\n", seed);
	(void)snprintf(config, sizeof(config), "seed=%llu,devices=%llu", seed, 1 + seed % 3);
	return verbs_world_threads(config, rank_count, rank_main, arg);
}

const struct conform_backend conform_backend = {
	.name = "verbs seeded",
	.ops = &rb_transport_verbs,
	.run = run,
};
