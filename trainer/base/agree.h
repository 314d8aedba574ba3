/*
 * agree.h -- agreement among the ranks of a run: that nobody failed, that all were started alike,
 * that all hold the same parameters.
 */
#ifndef TR_AGREE_H
#define TR_AGREE_H

#include "trainer/base/error.h"

/* Collective. Where some rank comes with an error, all return one, with its exit code; only the
 * lowest such rank keeps its sentence. */
rubato_status tr_agree(rubato_comm *comm, rubato_status mine, struct tr_error *error);

/* Collective. Errors: MISMATCH with `what` on all ranks when the hashes are not all equal. */
rubato_status tr_agree_equal(rubato_comm *comm, uint64_t hash, const char *what,
			     struct tr_error *error);

/* FNV-1a (Fowler, Noll, Vo), continued from `hash`; start from TR_HASH_INIT. */
#define TR_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t tr_hash(uint64_t hash, const void *bytes, size_t size_bytes);

#endif
