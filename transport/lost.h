/*
 * lost.h -- whom the error of a failed start names: the first loss that is seen need not be the
 * first that came, so all that are gone by then stand in it.
 */
#ifndef RB_TRANSPORT_LOST_H
#define RB_TRANSPORT_LOST_H

#include <stdint.h>
#include <stdio.h>

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

#endif
