/*
 * packing.h -- lines of different lengths, step after step, without padding: rows are taken longest
 * first; step t works on the first active[t] of them, and token number first[t] + j is the one of
 * row order[j] at step t.
 */
#ifndef TR_PACKING_H
#define TR_PACKING_H

#include "trainer/models/compute.h"

struct tr_packing {
	uint32_t *order, *tokens, *active; /* [capacity], [capacity], [length + 1]. */
	size_t *first;                     /* [length + 1]. */
	uint32_t step_count;               /* Tokens of the longest row. */
};

/* False: out of memory, as rooms->lost says, too. */
bool tr_packing_open(struct tr_packing *packing, struct tr_rooms *rooms, size_t capacity,
		     size_t length);
/* Of x[rows][length + 1]; writes the packed tokens and those that follow them, returns their
 * number. */
size_t tr_pack(struct tr_packing *packing, const struct tr_sequence *sequence, const float *x,
	       uint32_t rows, int32_t *in, int32_t *out);

#endif
