/*
 * ledger.h -- what went into each round that rank 0 has applied, one line of JSON a round:
 *
 *   {"policy":"solo","update":3,"round":3,"weight_denominator":1,"discarded":0,
 *    "contributions":[[0,3,3],[2,1,3]],"fresh":[0]}
 *
 * contributions: [rank, first step, last step]. Where a round was reduced in groups (wagma) the
 * line has "group", the ranks of rank 0's, too; contributions are those of all ranks.
 */
#ifndef PROGRAMS_LEDGER_H
#define PROGRAMS_LEDGER_H

#include "rubato.h"

struct ledger;

/* Written beside `path`, which appears when ledger_close finds that all is well. NULL: cannot. */
struct ledger *ledger_open(const char *path);
void ledger_round(struct ledger *ledger, const char *policy, uint64_t update,
		  const rubato_round *round, uint32_t rank_count);
/* `keep`: complete; otherwise nothing stays. false: not everything could be written. */
bool ledger_close(struct ledger *ledger, bool keep);

#endif
