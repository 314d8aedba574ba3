/*
 * ledger.h -- where every contribution went: what each applied update held, which rows each step
 * read, which models were averaged. tools/replay recomputes a run from it.
 *
 * Each rank records what it applied itself, in memory; tr_ledger_write() brings all together on
 * rank 0 and writes ledger.jsonl, updates in the order of their rounds.
 */
#ifndef TR_LEDGER_H
#define TR_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/checkpoint/archive.h"

enum tr_scope { TR_SCOPE_GLOBAL, TR_SCOPE_LOCAL };

struct tr_ledger;

/* `wanted`, the same on all ranks, false: nothing is recorded, and every call is cheap. */
rubato_status tr_ledger_open(struct tr_ledger **out, bool wanted, uint32_t rank,
			     uint32_t rank_count, struct tr_error *error);
void tr_ledger_close(struct tr_ledger *ledger); /* NULL is fine. */

/* Reduction `round` was applied here: a sum over `denominator`, at learning rate `rate`;
 * `next_step` is the first local step computed after it. Recording cannot fail: when memory ends,
 * tr_ledger_write() says so. */
void tr_ledger_update(struct tr_ledger *ledger, uint64_t round, double denominator, double rate,
		      uint64_t next_step);
/* Then one rank's part in it: its local steps first to last. */
void tr_ledger_share(struct tr_ledger *ledger, uint32_t rank, uint64_t first_step,
		     uint64_t last_step);
/* Both: step `step` was applied, the mean of all ranks' gradients of that step. */
void tr_ledger_step(struct tr_ledger *ledger, uint64_t step, double rate);
/* Shared work: local step `step` here read places first_row .. first_row + rows - 1 of the
 * shuffle. */
void tr_ledger_draw(struct tr_ledger *ledger, uint64_t step, uint64_t first_row, uint32_t rows);
/* The models of `rank_count` ranks first, first + stride, ... were averaged after `step` local
 * steps. `period`: local steps since the last. */
void tr_ledger_average(struct tr_ledger *ledger, enum tr_scope scope, uint32_t first,
		       uint32_t stride, uint32_t rank_count, uint64_t step, uint64_t period);

/* What was recorded goes to a checkpoint, or comes from there. */
rubato_status tr_ledger_keep(struct tr_ledger *ledger, struct tr_archive *archive,
			     struct tr_error *error);

/* Collective. Rank 0 writes folder/ledger.jsonl whole or not at all; the others need no folder. */
rubato_status tr_ledger_write(struct tr_ledger *ledger, rubato_comm *comm, const char *folder,
			      struct tr_error *error);

#endif
