/*
 * worlds.h -- all ranks' schedules of one collective, and the layouts that tests run them on.
 */
#ifndef RB_TESTS_COLLECTIVES_WORLDS_H
#define RB_TESTS_COLLECTIVES_WORLDS_H

#include "collectives/checker/checker.h"

struct world {
	const struct rb_algorithm *algorithm;
	uint32_t rank_count, root;
	bool in_place;                 /* As the builder was told. */
	struct rb_schedule *schedules; /* One per rank. */
};

/* Builds every rank's schedule, each into arrays of just the right size. */
void world_build(struct world *world, const struct rb_algorithm *algorithm, uint32_t rank_count,
		 uint32_t root, bool in_place);
void world_free(struct world *world);

/* ALLTOALL(V): schedules for memory in place are others. */
bool world_told_in_place(enum rb_kind kind);
/* Whether steps take blocks one by one, so that these need not be even. */
bool world_takes_uneven(const struct world *world);

struct layouts { /* One per rank. */
	uint32_t rank_count;
	struct rb_layout *each;
	uint64_t *numbers; /* Where their arrays are. */
	const char *name;
};

/* The same even blocks everywhere. ALLTOALL(V): rounds the count down to equal ones. */
void layouts_even(struct layouts *layouts, const struct world *world, uint64_t count,
		  uint64_t chunk, uint32_t align);

enum gaps { GAPS_NONE, GAPS_SAME, GAPS_PER_RANK }; /* PER_RANK: starts differ from rank to rank. */

/*
 * Uneven blocks: length(arg, s, d) elements go from rank s to rank d in ALLTOALLV; in the others
 * d is the block and s is 0. Where the world is in place, ALLTOALLV takes min(s, d), max(s, d).
 */
void layouts_uneven(struct layouts *layouts, const struct world *world, uint64_t chunk,
		    enum gaps gaps, uint64_t (*length)(const void *arg, uint32_t s, uint32_t d),
		    const void *arg);
/* Lengths by chance, some of them 0: arg of layouts_uneven. */
struct lengths_random {
	uint64_t seed, scale;
};
uint64_t lengths_random(const void *arg, uint32_t s, uint32_t d);
void layouts_free(struct layouts *layouts);

/* Runs the checker; true when it proves the world. `result` may be NULL. */
bool world_prove(const struct world *world, const struct layouts *layouts, bool in_place,
		 uint32_t instances, struct rb_check_result *result);

/* "allreduce ring, 5 ranks root 0, count 17 chunk 2, in place": for messages. Returns text. */
const char *world_text(const struct world *world, const struct layouts *layouts, bool in_place,
		       char *text, size_t text_bytes);

#endif
