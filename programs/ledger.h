/*
 * ledger.h -- where every contribution went: lines of JSON that rubato-train, rubato-bench and
 * rubato-sim write alike, and tools/replay and rubato-report read.
 *
 *   {"update":3,"round":3,"weight_denominator":2,"contributions":[[0,3,3],[2,1,3]],...}
 *   {"update":4,"kind":"average","scope":"global","ranks":[0,1,2,3],"step":8,"period":8}
 *   {"kind":"draw","rank":1,"step":5,"first_row":96,"rows":32}
 *
 * An update is a reduction whose result was applied: the sum of contributions [rank, first step,
 * last step] over the denominator. rubato-train adds "rate" and "applied", [rank, step] for each
 * rank that applied it; the tools, which measure several policies in one run on rank 0, "policy",
 * "discarded" (the sum so far), "fresh" (ranks that were in time) and, where a round was reduced in
 * groups (wagma), "group": the ranks of rank 0's; contributions are those of all ranks. An average
 * is of models; a draw says which rows of the data a step read.
 */
#ifndef PROGRAMS_LEDGER_H
#define PROGRAMS_LEDGER_H

#include "rubato.h"

struct ledger;

/* Written beside `path`, which appears when ledger_close finds that all is well. NULL: errno. */
struct ledger *ledger_open(const char *path);
/* `keep`: complete; otherwise nothing stays. 0, or the errno: not everything could be written. */
int ledger_close(struct ledger *ledger, bool keep);

struct ledger_update {
	uint64_t update, round;
	double denominator;
	const uint64_t *contributions; /* Rank, first step, last step; the next one's. */
	uint64_t contribution_count;
	double rate;
	const uint64_t *applied; /* Rank, step; the next one's. */
	uint64_t applied_count;
};
void ledger_update(struct ledger *ledger, const struct ledger_update *update);
/* Of ranks first, first + stride, ... */
void ledger_average(struct ledger *ledger, uint64_t update, const char *scope, uint64_t first,
		    uint64_t stride, uint64_t rank_count, uint64_t step, uint64_t period);
void ledger_draw(struct ledger *ledger, uint64_t rank, uint64_t step, uint64_t first_row,
		 uint64_t rows);
/* An update of one of several policies, as the library tells of it. */
void ledger_round(struct ledger *ledger, const char *policy, uint64_t update,
		  const rubato_round *round, uint32_t rank_count);

#endif
