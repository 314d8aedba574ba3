/*
 * mutant.h -- faults that a test variant of the relaxed operations' sources can be told to have,
 * one at a time: the laws must notice each (tests/tools/laws_mutants.c). Elsewhere they are not
 * compiled. The protocol machine has its own (collectives/partial_inside.h).
 */
#ifndef RB_RUNTIME_MUTANT_H
#define RB_RUNTIME_MUTANT_H

enum rb_fault {
	RB_FAULT_NONE,
	RB_FAULT_SHARE_BUFFER,
	RB_FAULT_READ_LEASED,
	RB_FAULT_NAME_IDENTITY,
	RB_FAULT_MERGE_TWICE,
	RB_FAULT_MERGE_AWAY,
	RB_FAULT_MERGE_UNCOUNTED,
	RB_FAULT_MERGE_UNTOLD,
	RB_FAULT_RESTORE_NOTHING,
	RB_FAULT_RESTORE_OVER,
	RB_FAULT_SERVE_IDENTITY,
	RB_FAULT_FETCH_HALF,
	RB_FAULT_OVERWRITE_NEWEST,
	RB_FAULT_RELEASE_AHEAD,
	RB_FAULT_DELIVER_TWICE,
	RB_FAULT_DELIVER_SKIPPING,
	RB_FAULT_OLD_RECORDS,
	RB_FAULT_DIVIDE_BY_RANKS,
	RB_FAULT_OWN_IS_NEXT,
	RB_FAULT_WAIT_SILENTLY,
	RB_FAULT_FREE_INTERESTED,
	RB_FAULT_LOSE_QUEUED,
	RB_FAULT_UNNUMBERED,
	RB_FAULT_DEAF_AFTER_LOSS,
	RB_FAULT_NO_ORPHAN,
	RB_FAULT_LAGGED_KEEP_SUM,
	RB_FAULT_LAGGED_KEEP_WEIGHT,
	RB_FAULT_LAGGED_EARLY,
	RB_FAULT_LAGGED_DROP_LAST,
	RB_FAULT_COUNT
};
#ifdef RB_MUTANTS
extern enum rb_fault rb_fault_chosen;
#define RB_FAULT(name) (rb_fault_chosen == RB_FAULT_##name)
#else
#define RB_FAULT(name) false
#endif

#endif
