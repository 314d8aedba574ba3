/*
 * areas.h -- memory twice: a twin works in one, a kernel in the other, and all of it is the same
 * before and afterwards.
 */
#ifndef RB_TESTS_AREAS_H
#define RB_TESTS_AREAS_H

#include <stdio.h>
#include <string.h>

#include "tests/cuda/launcher.h"
#include "tests/hostile.h"

#define AREAS 10
#define AREA_BYTES 12288

struct areas {
	_Alignas(64) uint8_t host[AREAS][AREA_BYTES], device[AREAS][AREA_BYTES];
	struct launcher_span spans[4 * AREAS];
	uint32_t span_count;
};

static inline void areas_fill(struct areas *a, struct rb_rng *rng)
{
	for (uint32_t i = 0; i < AREAS; i++)
		scramble(a->host[i], AREA_BYTES / 4, 4, rng);
	memcpy(a->device, a->host, sizeof(a->host));
	a->span_count = 0;
}

/* What a kernel is given of an area: where that is for the kernel. */
static inline void *areas_give(struct areas *a, uint32_t area, uint32_t shift, size_t bytes,
			       bool written)
{
	uint8_t *at = &a->device[area][64 + shift];

	a->spans[a->span_count++] = (struct launcher_span) { at, bytes, written };
	return at;
}

static inline void *areas_host(struct areas *a, uint32_t area, uint32_t shift)
{
	return &a->host[area][64 + shift];
}

/* NULL, or where they differ. */
static inline const char *areas_differ(const struct areas *a, char *text, size_t text_bytes)
{
	for (uint32_t i = 0; i < AREAS; i++)
		for (uint32_t at = 0; at < AREA_BYTES; at++)
			if (a->host[i][at] != a->device[i][at]) {
				(void)snprintf(text, text_bytes, "other bits: area %u, byte %d", i,
					       (int)at - 64);
				return text;
			}
	return NULL;
}

#endif
