/*
 * lost.h -- whom the error of a failed start names: the first loss that is seen need not be the
 * first that came, so all that are gone by then stand in it.
 */
#ifndef RB_TRANSPORT_LOST_H
#define RB_TRANSPORT_LOST_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

struct rb_lost {         /* Starts as zeros. */
	char ranks[160]; /* "0, 2, 3" */
	size_t at;
	uint32_t count;
};

static inline void rb_lost_add(struct rb_lost *lost, uint32_t rank)
{
	if (lost->at + 16 < sizeof(lost->ranks))
		lost->at += (size_t)snprintf(lost->ranks + lost->at, sizeof(lost->ranks) - lost->at,
					     "%s%u", lost->count > 0 ? ", " : "", rank);
	lost->count++;
}

/* Of the loss of `rank`, for `reason`; blames: over whom it gave up, + 1, or 0. */
static inline rubato_status rb_lost_fail(const struct rb_lost *lost, uint32_t rank_count,
					 uint32_t rank, const char *reason, uint32_t blames)
{
	if (blames > 0 && blames != rank + 1)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "while connecting: rank %u gave up because of rank %u", rank,
			       blames - 1);
	if (lost->count > 1)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "while connecting: %s; gone by now: ranks %s (%u of %u)", reason,
			       lost->ranks, lost->count, rank_count);
	return RB_FAIL(RUBATO_ERR_PEER, "while connecting: %s", reason);
}

#endif
