/*
 * sampler.h -- which samples a rank's next step reads.
 *
 *   static   equal shards, fixed before the run (shuffle.h)
 *   shared   the next samples that nobody has drawn: a slow rank draws fewer (--work shared)
 *
 * Shared work needs no server. Each rank asks for a batch by a commit to a partial allreduce of its
 * own, whose rounds the first to ask opens. All ranks see the same rounds with the same ranks in
 * them, so each knows its place: behind all that earlier rounds gave away, and behind lower ranks
 * of its own. It asks while it still computes the batch before, so that it need not wait; at the
 * end that may leave it with one batch more to do than the others. The first batch of each rank is
 * given: whoever waited for it would count as ready in the gradients' free rounds, and the first of
 * these would run without a gradient.
 *
 * A checkpoint is taken when the run as a whole has come to a place in the shuffle: each rank stops
 * before the first batch from there on that it has drawn, and has asked for none after it. So what
 * is left is a batch in each rank's hand, and the number of the next one.
 *
 * A rank that computes collects no tickets, and `depth` rounds later it would hold the others'
 * tickets up. So the depth is chosen such that its missing gradients hold them up first: between
 * two rounds of gradients a rank makes at most two steps (one that is late, one that is in time),
 * which bounds the tickets that others draw while the gradients' own depth lasts.
 */
#ifndef TR_SAMPLER_H
#define TR_SAMPLER_H

#include "trainer/checkpoint/archive.h"
#include "trainer/data/shuffle.h"

struct tr_batch {
	const uint32_t *rows; /* [batch]; NULL: there is no more work. */
	uint64_t first_place; /* Its first place in the shuffle, counted through all epochs. */
};

struct tr_sampler;

enum tr_sampler_kind { TR_SAMPLER_STATIC, TR_SAMPLER_SHARED };

/* Collective. `step_count`: local steps of a rank; shared: their mean, and `gradient_depth` is that
 * of the partial allreduce that takes the gradients (0: none does). */
rubato_status tr_sampler_open(struct tr_sampler **out, enum tr_sampler_kind kind,
			      uint32_t gradient_depth, struct tr_shuffle *shuffle,
			      rubato_comm *comm, uint64_t step_count, struct tr_error *error);
/* The next batch, which stays the next until it is taken; `step`: local steps done here. */
rubato_status tr_sampler_next(struct tr_sampler *sampler, uint64_t step, struct tr_batch *batch,
			      struct tr_error *error);
/* It is about to be computed: the one after it may be asked for. */
rubato_status tr_sampler_take(struct tr_sampler *sampler, struct tr_error *error);
/* Local steps, in the mean over ranks, that lie before this batch. */
uint64_t tr_sampler_reached(const struct tr_sampler *sampler, const struct tr_batch *batch);
/* This rank needs no more. */
rubato_status tr_sampler_leave(struct tr_sampler *sampler, struct tr_error *error);

/* Before a checkpoint, all ranks with a batch in hand: they stop, each as it comes; when all have
 * come nothing is on its way. Between the two a rank may wait for the others elsewhere. */
rubato_status tr_sampler_stop(struct tr_sampler *sampler, struct tr_error *error);
rubato_status tr_sampler_settle(struct tr_sampler *sampler, struct tr_error *error);
/* What goes to a checkpoint (locally), or comes from there (on all ranks together). */
rubato_status tr_sampler_keep(struct tr_sampler *sampler, struct tr_archive *archive,
			      struct tr_error *error);
/* Collective. NULL is fine. */
void tr_sampler_close(struct tr_sampler *sampler);

#endif
