/* work.c -- see work.h. */
#include "trainer/data/work.h"

#include <stdlib.h>

#define DEPTH_LEAST 64
#define DEPTH_MOST 4096         /* The library's. */
#define RECORDS_MOST (1u << 19) /* Ranks times depth, 64 bytes each: memory ends somewhere. */

struct tr_work {
	struct tr_shuffle *shuffle;
	uint64_t step_count;
	uint32_t rank;
	/* Shared: */
	rubato_comm *comm;
	rubato_partial_options options;
	rubato_partial *tickets; /* NULL: static. */
	uint64_t batch_count;    /* Of all ranks. */
	uint64_t taken;          /* Batches that rounds so far have given away, */
	uint64_t asked;          /* and commits of this rank: their numbers. */
	uint64_t batch;          /* In hand. */
	bool holds;
	bool waits; /* For the ticket asked for. */
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

static rubato_status create(struct tr_work *work, struct tr_error *error)
{
	return tr_check(error,
			rubato_partial_create(work->comm, 1, RUBATO_UINT64, RUBATO_SUM,
					      &work->options, &work->tickets),
			"shared work");
}

static rubato_status open_tickets(struct tr_work *work, uint32_t gradient_depth,
				  struct tr_error *error)
{
	work->options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	work->options.policy = RUBATO_POLICY_SOLO;
	work->options.rounds = RUBATO_ROUNDS_FREE;
	work->options.depth = depth_of(gradient_depth, rubato_size(work->comm));
	work->taken = rubato_size(work->comm);
	work->batch = work->rank;
	work->holds = true;
	return create(work, error);
}

rubato_status tr_work_open(struct tr_work **out, enum tr_work_kind kind, uint32_t gradient_depth,
			   struct tr_shuffle *shuffle, rubato_comm *comm, uint64_t step_count,
			   struct tr_error *error)
{
	struct tr_work *work = calloc(1, sizeof(*work));
	rubato_status err = RUBATO_OK;

	if (work == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "work: out of memory");
	work->comm = comm;
	work->shuffle = shuffle;
	work->step_count = step_count;
	work->rank = rubato_rank(comm);
	work->batch_count = step_count * rubato_size(comm);
	if (kind == TR_WORK_SHARED)
		err = open_tickets(work, gradient_depth, error);
	if (err) {
		free(work);
		return err;
	}
	*out = work;
	return RUBATO_OK;
}

/* `weight` 1: for a batch; 0: for another round, in which the one asked for will be. */
static rubato_status ask(struct tr_work *work, uint64_t weight, struct tr_error *error)
{
	uint64_t one = weight;

	work->waits = true;
	return tr_check(error,
			rubato_partial_contribute(work->tickets, &one, work->asked++, weight),
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

/* All rounds that are over are read, so that what is asked for next is in time for one; and, where
 * a ticket was asked for, those until it is there. */
static rubato_status draw(struct tr_work *work, struct tr_error *error)
{
	const void *result;

	for (;;) {
		rubato_round round = { .size_bytes = sizeof(round) };

		TR_TRY(tr_check(error,
				rubato_partial_collect_view(work->tickets, &result, &round,
							    RUBATO_TIMEOUT_DEFAULT),
				"shared work"));
		if (result == NULL && !work->waits)
			return RUBATO_OK;
		if (result == NULL) { /* It came too late for a round, and waits for another. */
			TR_TRY(ask(work, 0, error));
			continue;
		}
		if (round_read(work, &round, &work->batch))
			work->waits = false;
		TR_TRY(tr_check(error, rubato_partial_release(work->tickets), "shared work"));
	}
}

static rubato_status next_shared(struct tr_work *work, struct tr_batch *out, struct tr_error *error)
{
	if (!work->holds)
		TR_TRY(draw(work, error));
	work->holds = true;
	*out = (struct tr_batch) { NULL, work->batch * work->shuffle->batch };
	if (work->batch < work->batch_count)
		out->rows = tr_shuffle_rows(work->shuffle, out->first_place);
	return RUBATO_OK;
}

rubato_status tr_work_next(struct tr_work *work, uint64_t step, struct tr_batch *batch,
			   struct tr_error *error)
{
	if (work->tickets != NULL)
		return next_shared(work, batch, error);
	*batch = (struct tr_batch) { NULL, tr_shuffle_place(work->shuffle, step) };
	if (step < work->step_count)
		batch->rows = tr_shuffle_batch(work->shuffle, step);
	return RUBATO_OK;
}

rubato_status tr_work_take(struct tr_work *work, struct tr_error *error)
{
	work->holds = false;
	return work->tickets == NULL ? RUBATO_OK : ask(work, 1, error);
}

uint64_t tr_work_reached(const struct tr_work *work, const struct tr_batch *batch)
{
	return batch->first_place / work->shuffle->batch / work->shuffle->rank_count;
}

rubato_status tr_work_leave(struct tr_work *work, struct tr_error *error)
{
	return work->tickets == NULL
		       ? RUBATO_OK
		       : tr_check(error, rubato_partial_leave(work->tickets), "shared work");
}

/* ---- Checkpoints ---- */

rubato_status tr_work_stop(struct tr_work *work, struct tr_error *error)
{
	return work->tickets == NULL
		       ? RUBATO_OK
		       : tr_check(error, rubato_partial_drain(work->tickets), "shared work: drain");
}

rubato_status tr_work_settle(struct tr_work *work, struct tr_error *error)
{
	return work->tickets == NULL ? RUBATO_OK : draw(work, error);
}

static rubato_status keep_tickets(struct tr_work *work, struct tr_archive *archive, void *saved,
				  uint64_t saved_bytes, struct tr_error *error)
{
	rubato_partial *begun = work->tickets;
	rubato_status err;

	if (!tr_archive_loading(archive)) {
		TR_TRY(tr_check(error, rubato_partial_save(work->tickets, saved, &saved_bytes),
				"shared work: save"));
		return tr_archive_bytes(archive, "work.rounds", saved, saved_bytes, error);
	}
	TR_TRY(tr_archive_bytes(archive, "work.rounds", saved, saved_bytes, error));
	work->tickets = NULL;
	TR_TRY(tr_check(error, rubato_partial_free(begun), "shared work"));
	work->options.state = saved;
	work->options.state_bytes = saved_bytes;
	err = create(work, error);
	work->options.state = NULL;
	return err;
}

rubato_status tr_work_keep(struct tr_work *work, struct tr_archive *archive, struct tr_error *error)
{
	uint64_t numbers[] = { work->taken, work->asked, work->batch }, saved_bytes = 0;
	rubato_status err;
	void *saved;

	if (work->tickets == NULL)
		return RUBATO_OK;
	TR_TRY(tr_archive_bytes(archive, "work", numbers, sizeof(numbers), error));
	work->taken = numbers[0];
	work->asked = numbers[1];
	work->batch = numbers[2];
	work->holds = true;
	TR_TRY(tr_check(error, rubato_partial_save(work->tickets, NULL, &saved_bytes),
			"shared work: save"));
	saved = malloc(saved_bytes);
	if (saved == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "shared work: no memory");
	err = keep_tickets(work, archive, saved, saved_bytes, error);
	free(saved);
	return err;
}

void tr_work_close(struct tr_work *work)
{
	if (work == NULL)
		return;
	(void)rubato_partial_free(work->tickets);
	free(work);
}
