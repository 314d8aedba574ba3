/*
 * adaptive.h -- a quorum chosen from replicated history: every so many rounds, replay the last
 * durations of each rank's work through the round rules for each k, and take the largest k whose
 * time is at most 1.10 times the least. No randomness; the same history gives the same k on every
 * rank, bit for bit (integers only). Source: CALIBRATION.md, "adaptive".
 */
#ifndef RB_COLLECTIVES_ADAPTIVE_H
#define RB_COLLECTIVES_ADAPTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RB_ADAPTIVE_EVERY 16   /* Rounds between two decisions. */
#define RB_ADAPTIVE_HISTORY 32 /* Durations kept per rank. */

struct rb_adaptive;

size_t rb_adaptive_bytes(uint32_t rank_count);
void rb_adaptive_init(struct rb_adaptive *a, uint32_t rank_count, bool free_rounds);
/* One piece of work of `rank`, as its record told it. */
void rb_adaptive_note(struct rb_adaptive *a, uint32_t rank, uint64_t duration_ns);
/* A round is over (its reduction took round_ns, alike on all ranks: 0 if unknown). */
void rb_adaptive_round(struct rb_adaptive *a, uint64_t round);
uint32_t rb_adaptive_quorum(const struct rb_adaptive *a);

#endif
