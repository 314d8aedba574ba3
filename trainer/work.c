/* work.c -- see work.h. */
#include "trainer/work.h"

#include <stdlib.h>

#define DEPTH_LEAST 64
#define DEPTH_MOST 4096         /* The library's. */
#define RECORDS_MOST (1u << 19) /* Ranks times depth, 64 bytes each: memory ends somewhere. */

struct tr_work {
	struct tr_order *order;
	uint64_t step_count;
	uint32_t rank;
	/* Shared: */
	rubato_partial *tickets; /* NULL: static. */
	uint64_t batch_count;    /* Of all ranks. */
	uint64_t taken;          /* Batches that rounds so far have given away, */
	uint64_t asked;          /* and commits of this rank: their numbers. */
	bool waits;              /* For the ticket asked for. */
};

/* See work.h; in a memory of reasonable size. */
static uint32_t depth_of(uint32_t gradient_depth, uint32_t rank_count)
{
	uint64_t depth = 2 * ((uint64_t)gradient_depth + 2) * rank_count;

	depth = depth < DEPTH_LEAST ? DEPTH_LEAST : depth;
	if (depth > RECORDS_MOST / rank_count)
		depth = RECORDS_MOST / rank_count;
	return (uint32_t)(depth > DEPTH_MOST ? DEPTH_MOST : depth);
}

static rubato_status open_tickets(struct tr_work *work, const struct tr_rule_options *own,
				  rubato_comm *comm, struct tr_note *note)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	options.policy = RUBATO_POLICY_SOLO;
	options.rounds = RUBATO_ROUNDS_FREE;
	options.depth = depth_of(own->partial.depth, rubato_size(comm));
	return tr_check(
		note,
		rubato_partial_create(comm, 1, RUBATO_UINT64, RUBATO_SUM, &options, &work->tickets),
		"shared work");
}

rubato_status tr_work_open(struct tr_work **out, const struct tr_rule_options *own,
			   struct tr_order *order, rubato_comm *comm, uint64_t step_count,
			   struct tr_note *note)
{
	struct tr_work *work = calloc(1, sizeof(*work));
	rubato_status err = RUBATO_OK;

	if (work == NULL)
		return tr_fail(note, RUBATO_ERR_MEMORY, "work: out of memory");
	work->order = order;
	work->step_count = step_count;
	work->rank = rubato_rank(comm);
	work->batch_count = step_count * rubato_size(comm);
	if (own->work == TR_WORK_SHARED)
		err = open_tickets(work, own, comm, note);
	if (err) {
		free(work);
		return err;
	}
	*out = work;
	return RUBATO_OK;
}

/* `weight` 1: for a batch; 0: for another round, in which the one asked for will be. */
static rubato_status ask(struct tr_work *work, uint64_t weight, struct tr_note *note)
{
	uint64_t one = weight;

	work->waits = true;
	return tr_check(note, rubato_partial_contribute(work->tickets, &one, work->asked++, weight),
			"shared work");
}

/* Whether this round gave this rank a batch, and which. */
static bool round_read(struct tr_work *work, const rubato_round *round, uint64_t *batch)
{
	bool mine = round->ranks[work->rank].weight > 0;
	uint64_t place = work->taken;

	for (uint32_t i = 0; i < work->rank; i++)
		place += round->ranks[i].weight;
	work->taken += round->weight;
	if (mine)
		*batch = place;
	return mine;
}

/* All rounds that are over are read, so that what is asked for next is in time for one. */
static rubato_status draw(struct tr_work *work, uint64_t *batch, struct tr_note *note)
{
	const void *result;

	for (;;) {
		rubato_round round = { .size_bytes = sizeof(round) };

		TR_TRY(tr_check(note,
				rubato_partial_collect_view(work->tickets, &result, &round,
							    RUBATO_TIMEOUT_DEFAULT),
				"shared work"));
		if (result == NULL && !work->waits)
			return RUBATO_OK;
		if (result == NULL) { /* It came too late for a round, and waits for another. */
			TR_TRY(ask(work, 0, note));
			continue;
		}
		if (round_read(work, &round, batch))
			work->waits = false;
		TR_TRY(tr_check(note, rubato_partial_release(work->tickets), "shared work"));
	}
}

static rubato_status next_shared(struct tr_work *work, struct tr_batch *out, struct tr_note *note)
{
	uint64_t batch = 0;

	if (work->asked == 0)
		TR_TRY(ask(work, 1, note));
	TR_TRY(draw(work, &batch, note));
	*out = (struct tr_batch) { NULL, batch * work->order->batch };
	if (batch >= work->batch_count)
		return tr_check(note, rubato_partial_leave(work->tickets), "shared work");
	out->rows = tr_order_rows(work->order, out->first_place);
	return ask(work, 1, note);
}

rubato_status tr_work_next(struct tr_work *work, uint64_t step, struct tr_batch *batch,
			   struct tr_note *note)
{
	if (work->tickets != NULL)
		return next_shared(work, batch, note);
	*batch = (struct tr_batch) { NULL, tr_order_place(work->order, step) };
	if (step < work->step_count)
		batch->rows = tr_order_batch(work->order, step);
	return RUBATO_OK;
}

void tr_work_close(struct tr_work *work)
{
	if (work == NULL)
		return;
	(void)rubato_partial_free(work->tickets);
	free(work);
}
