/*
 * settings.c -- what a world is like: by default, by environment, by a test.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

static struct mock_config given;
static bool is_given;

static uint64_t *field(struct mock_config *config, const char *name, size_t length)
{
#define MOCK_NAMED(known, value)                                                                   \
	if (strlen(#known) == length && strncmp(#known, name, length) == 0)                        \
		return &config->known;
	MOCK_CONFIG(MOCK_NAMED)
#undef MOCK_NAMED
	return NULL;
}

static void config_read(struct mock_config *config, const char *text)
{
	while (*text != '\0') {
		size_t name = strcspn(text, "="), all = strcspn(text, ",");
		uint64_t *at = name < all ? field(config, text, name) : NULL;
		char *end = NULL;

		if (at != NULL)
			*at = strtoull(text + name + 1, &end, 10);
		if (at == NULL || end != text + all) {
			(void)fprintf(stderr,
				      "verbs-mock: VERBS_MOCK_CONFIG: '%.*s' is no setting\n",
				      (int)all, text);
			abort();
		}
		text += all + (text[all] == ',');
	}
}

MOCK_API void mock_config_default(struct mock_config *config)
{
	const char *text = getenv("VERBS_MOCK_CONFIG");

	if (is_given) {
		*config = given;
		return;
	}
#define MOCK_VALUE(name, value) .name = value,
	*config = (struct mock_config) { MOCK_CONFIG(MOCK_VALUE) };
#undef MOCK_VALUE
	if (text != NULL)
		config_read(config, text);
	if (config->devices > WORLD_DEVICES || config->ports < 1 || config->ports > WORLD_PORTS ||
	    config->mtu < IBV_MTU_256 || config->mtu > IBV_MTU_4096 || config->time_divisor == 0) {
		(void)fprintf(stderr, "verbs-mock: VERBS_MOCK_CONFIG '%s' is out of range\n", text);
		abort();
	}
}

MOCK_API int mock_reset(const struct mock_config *config)
{
	if (process.contexts != NULL)
		return EBUSY;
	world_detach();
	is_given = config != NULL;
	if (config != NULL)
		given = *config;
	return world_attach() == NULL ? errno : 0;
}

MOCK_API void mock_counters(struct mock_counters *counters)
{
	struct world *world = world_attach();

	world_lock(world);
	*counters = world->counters;
	world_unlock(world);
}

struct mock_config config_now(struct world *world)
{
	struct mock_config config;

	world_lock(world);
	config = world->config;
	world_unlock(world);
	return config;
}

MOCK_API void mock_set(const char *name, uint64_t value)
{
	struct world *world = world_attach();
	uint64_t *at = field(&world->config, name, strlen(name));

	if (at == NULL) {
		(void)fprintf(stderr, "verbs-mock: mock_set: '%s' is no setting\n", name);
		abort();
	}
	world_lock(world);
	*at = value;
	if (at == &world->config.devices)
		for (uint32_t i = 0; i < WORLD_NODES; i++)
			world->devices_of[i] = (uint32_t)value;
	world_unlock(world);
}
