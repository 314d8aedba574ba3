/* sharing.c -- see sharing.h. */
#include "runtime/engine/sharing.h"

#define GAP_NS_MIN 1000000u /* Guess: a try takes some 50 us, and 1 ms where it goes wrong. */
#define GAP_NS_MAX 1000000000u
#define GAPS_APART 16 /* Tries that are so many gaps apart have nothing to do with each other. */

#define ROUNDING 1e-6 /* Of thirds that are added up. */

double rb_sharing_load(const uint64_t mine[RB_CPU_WORDS], const uint64_t theirs[RB_CPU_WORDS])
{
	uint32_t all = rb_cpus_count(theirs);
	uint64_t both[RB_CPU_WORDS];

	for (uint32_t i = 0; i < RB_CPU_WORDS; i++)
		both[i] = mine[i] & theirs[i];
	return all > 0 ? (double)rb_cpus_count(both) / all : 0;
}

uint32_t rb_sharing_share(double load, uint32_t cores)
{
	double each = cores > 0 ? load / cores : load;
	uint32_t share = (uint32_t)each;

	return each > share + ROUNDING || share == 0 ? share + 1 : share;
}

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
	if (cpu >= 64 * RB_CPU_WORDS)
		return;
	if (look->stay[cpu] < look->share) {
		look->stay[cpu]++;
		return;
	}
	look->moves |= own;
	look->number = own ? look->movers : look->number;
	look->movers++;
}

/* The skip-th place, first of the processors that have least; without one `*count` says how many
 * there are. */
static uint32_t place_find(const struct rb_sharing_look *look, const uint64_t may[RB_CPU_WORDS],
			   uint32_t skip, uint32_t *count)
{
	*count = 0;
	for (uint32_t level = 0; level < look->share; level++)
		for (uint32_t cpu = 0; cpu < 64 * RB_CPU_WORDS; cpu++) {
			if ((may[cpu / 64] >> cpu % 64 & 1) == 0 || look->stay[cpu] > level)
				continue;
			if ((*count)++ == skip)
				return cpu;
		}
	return RB_CPU_NONE;
}

uint32_t rb_sharing_target(const struct rb_sharing *sharing, const struct rb_sharing_look *look,
			   const uint64_t allowed[RB_CPU_WORDS])
{
	uint64_t may[RB_CPU_WORDS];
	uint32_t count;

	if (!look->moves)
		return RB_CPU_NONE;
	for (uint32_t i = 0; i < RB_CPU_WORDS; i++)
		may[i] = sharing->cores[i] & allowed[i];
	(void)place_find(look, may, UINT32_MAX, &count);
	if (count == 0)
		return RB_CPU_NONE;
	return place_find(look, may, (look->number + sharing->tries) % count, &count);
}
