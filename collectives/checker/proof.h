/*
 * proof.h -- what the checker shows of one algorithm on one number of ranks, in sentences: over
 * cases that differ in counts, chunks and places, three operations in a row in each, which is a
 * steady state. A schedule knows neither count nor chunk, so that what can go wrong shows in small
 * ones: more chunks than slots, one chunk, fewer elements than blocks, blocks of uneven length.
 */
#ifndef RB_COLLECTIVES_PROOF_H
#define RB_COLLECTIVES_PROOF_H

#include "collectives/checker/checker.h"

#define RB_PROOF_TEXT 1024
#define RB_PROOF_ROOTS_ALL UINT32_MAX

struct rb_proof {
	bool proved;
	uint32_t cases;
	uint64_t events, pairs; /* Over all cases: see checker.h. */
	char text[RB_PROOF_TEXT];
};

struct rb_proof_case {
	const struct rb_algorithm *algorithm;
	uint32_t rank_count;
	uint32_t root;                /* One, or RB_PROOF_ROOTS_ALL; asked where there is one. */
	uint64_t count;               /* Elements of the whole vector; 0: several counts. */
	const struct rb_nodes *nodes; /* NULL: all ranks are on one. */
};

/* `limits` may be NULL. Errors: ARGUMENT (the count cannot be cut as the algorithm wants it), and
 * MEMORY, UNSUPPORTED, TIMEOUT: checker.h. */
RB_NODISCARD rubato_status rb_prove(const struct rb_proof_case *what,
				    const struct rb_check_limits *limits, struct rb_proof *proof);

#endif
