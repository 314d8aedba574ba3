/*
 * totals.h -- how far the ranks are, sent to rank 0 without anybody waiting.
 *
 * Totals only grow: they count from the beginning of the run. So a rank that could not send them
 * (the last were still on their way) loses nothing, and rank 0 adds up the newest that it has of
 * each.
 */
#ifndef TR_TOTALS_H
#define TR_TOTALS_H

#include "trainer/base/error.h"

struct tr_totals { /* Doubles only: it travels as such. */
	double steps, samples;
	double loss, correct, rows; /* Sums over rows. */
	double compute_seconds, communication_seconds;
	double reductions, bytes_sent;
	double seconds; /* The whole run, by the rank's own clock; 0 until it is over. */
	double over;    /* 1 in a rank's last before all meet. */
};
#define TR_TOTALS_COUNT (sizeof(struct tr_totals) / sizeof(double))

struct tr_totals_channel;

/* Local (but all ranks must do it). */
rubato_status tr_totals_channel_open(struct tr_totals_channel **out, rubato_comm *comm,
				     struct tr_error *error);
void tr_totals_channel_close(struct tr_totals_channel *channel); /* NULL is fine. */
/* Sends to rank 0 unless the last are still on their way; on rank 0 they are kept. Does not
 * block. */
rubato_status tr_totals_send(struct tr_totals_channel *channel, const struct tr_totals *mine,
			     struct tr_error *error);
/* Rank 0: the sum over ranks of what has arrived. Does not block. */
rubato_status tr_totals_sum(struct tr_totals_channel *channel, struct tr_totals *sum,
			    struct tr_error *error);
/* Each rank's newest: returns when they are sent, on rank 0 when those of all have arrived. */
rubato_status tr_totals_sync(struct tr_totals_channel *channel, const struct tr_totals *mine,
			     struct tr_error *error);
/* The same, and there is no more to send. */
rubato_status tr_totals_finish(struct tr_totals_channel *channel, const struct tr_totals *mine,
			       struct tr_error *error);

/* Collective. Rank 0: those of all ranks, for free(); elsewhere NULL. */
rubato_status tr_totals_gather(rubato_comm *comm, const struct tr_totals *mine,
			       struct tr_totals **all, struct tr_error *error);

#endif
