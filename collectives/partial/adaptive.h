/*
 * adaptive.h -- a quorum chosen from replicated history: now and then, replay the last
 * durations of each rank's work through the round rules for each k, and take the largest k that
 * costs little time over the fastest; none below a given least one. No randomness; the same history
 * gives the same k on every rank, bit for bit (integers only). docs/relaxed.md has the rules.
 */
#ifndef RB_COLLECTIVES_ADAPTIVE_H
#define RB_COLLECTIVES_ADAPTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RB_ADAPTIVE_PERIOD 4   /* Durations per rank, in the mean, between two decisions. */
#define RB_ADAPTIVE_HISTORY 32 /* Durations kept per rank. */

struct rb_adaptive;

size_t rb_adaptive_bytes(uint32_t rank_count);
/* depth: results that a rank may be behind before it holds rounds up; 0: any number. least: the
 * smallest quorum that may be chosen, 1 to rank_count (where fewer ranks are left, all of them). */
void rb_adaptive_init(struct rb_adaptive *a, uint32_t rank_count, bool free_rounds, uint32_t depth,
		      uint32_t least);
/* One piece of work of `rank`, as its record told it. */
void rb_adaptive_add(struct rb_adaptive *a, uint32_t rank, uint64_t duration_ns);
/* A round is over. */
void rb_adaptive_round(struct rb_adaptive *a, uint64_t round);
uint32_t rb_adaptive_quorum(const struct rb_adaptive *a);
/* The history and the decision in force, as words: for another one of as many ranks. */
size_t rb_adaptive_words(uint32_t rank_count);
void rb_adaptive_save(const struct rb_adaptive *a, uint64_t *words);
/* False: no history could be so. */
bool rb_adaptive_restore(struct rb_adaptive *a, const uint64_t *words);

#endif
