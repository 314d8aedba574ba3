/*
 * tally.h -- how far the ranks are, told to rank 0 without anybody waiting.
 *
 * A tally only grows: it counts from the beginning of the run. So a rank that could not tell one
 * (the last was still on its way) loses nothing, and rank 0 adds up the newest that it has of each.
 */
#ifndef TR_TALLY_H
#define TR_TALLY_H

#include "trainer/base/error.h"

struct tr_tally { /* Doubles only: it travels as such. */
	double steps, samples;
	double loss, correct, rows; /* Sums over rows. */
	double compute_seconds, communication_seconds;
	double reductions, bytes_sent;
	double seconds; /* The whole run, by the rank's own clock; 0 until it is over. */
	double over;    /* 1 in a rank's last before all meet. */
};
#define TR_TALLY_COUNT (sizeof(struct tr_tally) / sizeof(double))

struct tr_tellers;

/* Local (but all ranks must do it). */
rubato_status tr_tellers_open(struct tr_tellers **out, rubato_comm *comm, struct tr_error *error);
void tr_tellers_close(struct tr_tellers *tellers); /* NULL is fine. */
/* Tells rank 0 unless the last is still on its way; on rank 0 it is kept. Does not block. */
rubato_status tr_tellers_tell(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error);
/* Rank 0: the sum over ranks of what has arrived. Does not block. */
rubato_status tr_tellers_sum(struct tr_tellers *tellers, struct tr_tally *sum,
			     struct tr_error *error);
/* Each rank's newest: returns when it is told, on rank 0 when those of all ranks have arrived. */
rubato_status tr_tellers_meet(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error);
/* The same, and there is no more to tell. */
rubato_status tr_tellers_last(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error);

void tr_tally_add(struct tr_tally *sum, const struct tr_tally *other);
/* Collective. Rank 0: those of all ranks, for free(); elsewhere NULL. */
rubato_status tr_tally_gather(rubato_comm *comm, const struct tr_tally *mine, struct tr_tally **all,
			      struct tr_error *error);

#endif
