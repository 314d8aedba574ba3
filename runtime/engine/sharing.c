/* sharing.c -- see sharing.h. */
#include "runtime/engine/sharing.h"

#define GAP_NS_MIN 1000000u /* Guess: a try takes some 50 us, and 1 ms where it goes wrong. */
#define GAP_NS_MAX 1000000000u
#define GAPS_APART 16 /* Tries that are so many gaps apart have nothing to do with each other. */

bool rb_sharing_due(struct rb_sharing *sharing, uint64_t now_ns)
{
	if (now_ns < sharing->next_ns || rb_cpus_count(sharing->cores) == 0)
		return false;
	if (now_ns - sharing->next_ns > GAPS_APART * sharing->gap_ns)
		sharing->gap_ns = GAP_NS_MIN;
	sharing->next_ns = now_ns + GAP_NS_MIN;
	return true;
}

void rb_sharing_tried(struct rb_sharing *sharing, bool moved, uint64_t now_ns)
{
	sharing->tries++;
	sharing->moves += moved;
	sharing->next_ns = now_ns + sharing->gap_ns;
	sharing->gap_ns =
		2 * sharing->gap_ns < GAP_NS_MAX ? 2 * sharing->gap_ns : (uint64_t)GAP_NS_MAX;
}

void rb_sharing_add(struct rb_sharing_look *look, uint32_t cpu, bool own)
{
	uint64_t bit = UINT64_C(1) << cpu % 64;

	if (cpu >= 64 * RB_CPU_WORDS)
		return;
	if (look->taken[cpu / 64] & bit) {
		look->moves |= own;
		look->number = own ? look->movers : look->number;
		look->movers++;
	}
	look->taken[cpu / 64] |= bit;
}

uint32_t rb_sharing_target(const struct rb_sharing *sharing, const struct rb_sharing_look *look,
			   const uint64_t allowed[RB_CPU_WORDS])
{
	uint64_t free[RB_CPU_WORDS];
	uint32_t count, skip;

	for (uint32_t i = 0; i < RB_CPU_WORDS; i++)
		free[i] = sharing->cores[i] & allowed[i] & ~look->taken[i];
	count = rb_cpus_count(free);
	if (!look->moves || count == 0)
		return RB_CPU_NONE;
	skip = (look->number + sharing->tries) % count;
	for (uint32_t cpu = 0; cpu < 64 * RB_CPU_WORDS; cpu++)
		if ((free[cpu / 64] >> cpu % 64 & 1) != 0 && skip-- == 0)
			return cpu;
	return RB_CPU_NONE;
}
