/*
 * worlds.h -- all ranks' schedules of one collective, and the layouts that tests run them on.
 */
#ifndef RB_TESTS_COLLECTIVES_WORLDS_H
#define RB_TESTS_COLLECTIVES_WORLDS_H

#include "collectives/checker.h"

struct world {
	const struct rb_algorithm *algorithm;
	uint32_t rank_count, root;
	struct rb_schedule *schedules; /* One per rank. */
};

/* Builds every rank's schedule, each into arrays of just the right size. */
void world_build(struct world *world, const struct rb_algorithm *algorithm, uint32_t rank_count,
		 uint32_t root);
void world_free(struct world *world);

/* Runs the checker; true when it proves the world. `result` may be NULL. */
bool world_prove(const struct world *world, const struct rb_layout *layout, bool in_place,
		 uint32_t instances, struct rb_check_result *result);

/* "allreduce ring, 5 ranks root 0, count 17 chunk 2, in place": for messages. Returns text. */
const char *world_text(const struct world *world, const struct rb_layout *layout, bool in_place,
		       char *text, size_t text_bytes);

/* A layout for the algorithm: `offsets` (block_count + 1 of them, or NULL) apply per rank only. */
struct rb_layout world_layout(const struct world *world, uint64_t count, uint64_t chunk,
			      uint32_t align, const uint64_t *offsets);

/* Uneven shares, some of them empty: `offsets` has room for rank_count + 1. Returns the count. */
uint64_t uneven_offsets(uint64_t *offsets, uint32_t rank_count, uint64_t scale, uint64_t seed);

#endif
