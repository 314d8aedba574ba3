/*
 * contributions.h -- who had what in a result, packed: of many ranks most have nothing in a round,
 * or the same as the one before them, and each rank keeps several results. A few bytes for a rank
 * that has something, none for one that has not; there is room for the worst, which untouched costs
 * no memory. Of few ranks they lie there as they are asked for: to pack them takes longer than to
 * keep them.
 */
#ifndef RB_RUNTIME_CONTRIBUTIONS_H
#define RB_RUNTIME_CONTRIBUTIONS_H

#include "collectives/partial/rounds.h"

struct rb_contributions {
	uint8_t *bytes;
	size_t used;
	uint32_t rank_count;
	bool members; /* Of the ranks that are not in it: they are in the result all the same. */
};

/* Errors: MEMORY. All zeros may be freed. */
RB_NODISCARD rubato_status rb_contributions_init(struct rb_contributions *c, uint32_t rank_count);
void rb_contributions_free(struct rb_contributions *c);

/* `records`: by rank. `members`: the ranks in the result, ascending. */
void rb_contributions_write(struct rb_contributions *c, const struct rb_rounds_record *records,
			    const uint32_t *members, uint32_t member_count);
/* One per rank. What a rank without contributions has is 0. */
void rb_contributions_read(const struct rb_contributions *c, rubato_contribution *out);

#endif
