/* ledger_inside.h -- what a rank has recorded: words, entry after entry; inside ledger*.c. */
#ifndef TR_LEDGER_INSIDE_H
#define TR_LEDGER_INSIDE_H

#include "trainer/records/ledger.h"

enum tr_entry {                  /* The first word of an entry; then: */
		TR_ENTRY_UPDATE, /* round, denominator, rate, next step, shares n, n * (rank, first,
				    last) */
		TR_ENTRY_DRAW,   /* step, first place, rows */
		TR_ENTRY_AVERAGE, /* scope, first, stride, ranks, step, period */
};

struct tr_ledger {
	bool wanted, lost; /* lost: memory has ended. */
	uint32_t rank, rank_count;
	uint64_t *words;
	size_t count, room;
	size_t update; /* Where the newest update begins in `words`. */
};

#endif
