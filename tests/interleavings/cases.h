/*
 * cases.h -- what is explored. To add a case: a file with its struct explore_case, a line here, in
 * all_cases (test_interleavings.c) and, for new code under test, in meson.build; then ways to break
 * that code in mutations.py, all of which it must catch.
 */
#ifndef RB_TESTS_CASES_H
#define RB_TESTS_CASES_H

#include "tests/interleavings/explore.h"

extern const struct explore_case case_lock, case_waiting;
extern const struct explore_case case_engine_one, case_engine_two, case_engine_chain,
	case_engine_left, case_engine_leaving, case_engine_reluctant, case_engine_local,
	case_engine_cancel, case_engine_stop;
extern const struct explore_case case_shm_sleep, case_shm_cells, case_shm_room, case_shm_bulk;
extern const struct explore_case case_shm_pieces, case_shm_hands, case_shm_now, case_shm_parcels;
extern const struct explore_case case_stack, case_swap, case_swap_latest;

#endif
