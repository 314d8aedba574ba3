/* sampler.c -- see sampler.h. */
#include "trainer/data/sampler.h"

#include <stdlib.h>

#define DEPTH_LEAST 64
#define DEPTH_MOST 4096         /* The library's. */
#define RECORDS_MOST (1u << 19) /* Ranks times depth, 64 bytes each: memory ends somewhere. */

struct tr_sampler {
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

/* See sampler.h; in a memory of reasonable size. */
static uint32_t depth_of(uint32_t gradient_depth, uint32_t rank_count)
{
	uint64_t depth = 2 * ((uint64_t)gradient_depth + 2) * rank_count;

	depth = depth < DEPTH_LEAST ? DEPTH_LEAST : depth;
	if (depth > RECORDS_MOST / rank_count)
		depth = RECORDS_MOST / rank_count;
	return (uint32_t)(depth > DEPTH_MOST ? DEPTH_MOST : depth);
}

static rubato_status create(struct tr_sampler *sampler, struct tr_error *error)
{
	return tr_check(error,
			rubato_partial_create(sampler->comm, 1, RUBATO_UINT64, RUBATO_SUM,
					      &sampler->options, &sampler->tickets),
			"shared work");
}

static rubato_status open_tickets(struct tr_sampler *sampler, uint32_t gradient_depth,
				  struct tr_error *error)
{
	sampler->options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	sampler->options.policy = RUBATO_POLICY_SOLO;
	sampler->options.rounds = RUBATO_ROUNDS_FREE;
	sampler->options.depth = depth_of(gradient_depth, rubato_size(sampler->comm));
	sampler->taken = rubato_size(sampler->comm);
	sampler->batch = sampler->rank;
	sampler->holds = true;
	return create(sampler, error);
}

rubato_status tr_sampler_open(struct tr_sampler **out, enum tr_sampler_kind kind,
			      uint32_t gradient_depth, struct tr_shuffle *shuffle,
			      rubato_comm *comm, uint64_t step_count, struct tr_error *error)
{
	struct tr_sampler *sampler = calloc(1, sizeof(*sampler));
	rubato_status err = RUBATO_OK;

	if (sampler == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "sampler: out of memory");
	sampler->comm = comm;
	sampler->shuffle = shuffle;
	sampler->step_count = step_count;
	sampler->rank = rubato_rank(comm);
	sampler->batch_count = step_count * rubato_size(comm);
	if (kind == TR_SAMPLER_SHARED)
		err = open_tickets(sampler, gradient_depth, error);
	if (err) {
		free(sampler);
		return err;
	}
	*out = sampler;
	return RUBATO_OK;
}

/* `weight` 1: for a batch; 0: for another round, in which the one asked for will be. */
static rubato_status ask(struct tr_sampler *sampler, uint64_t weight, struct tr_error *error)
{
	uint64_t one = weight;

	sampler->waits = true;
	return tr_check(error,
			rubato_partial_contribute(sampler->tickets, &one, sampler->asked++, weight),
			"shared work");
}

/* Whether this round gave this rank a batch, and which. */
static bool round_read(struct tr_sampler *sampler, const rubato_round *round, uint64_t *batch)
{
	bool mine = round->ranks[sampler->rank].weight > 0;
	uint64_t place = sampler->taken;

	for (uint32_t i = 0; i < sampler->rank; i++)
		place += round->ranks[i].weight;
	sampler->taken += round->weight;
	if (mine)
		*batch = place;
	return mine;
}

/* All rounds that are over are read, so that what is asked for next is in time for one; and, where
 * a ticket was asked for, those until it is there. */
static rubato_status draw(struct tr_sampler *sampler, struct tr_error *error)
{
	const void *result;

	for (;;) {
		rubato_round round = { .size_bytes = sizeof(round) };

		TR_TRY(tr_check(error,
				rubato_partial_collect_view(sampler->tickets, &result, &round,
							    RUBATO_TIMEOUT_DEFAULT),
				"shared work"));
		if (result == NULL && !sampler->waits)
			return RUBATO_OK;
		if (result == NULL) { /* It came too late for a round, and waits for another. */
			TR_TRY(ask(sampler, 0, error));
			continue;
		}
		if (round_read(sampler, &round, &sampler->batch))
			sampler->waits = false;
		TR_TRY(tr_check(error, rubato_partial_release(sampler->tickets), "shared work"));
	}
}

static rubato_status next_shared(struct tr_sampler *sampler, struct tr_batch *out,
				 struct tr_error *error)
{
	if (!sampler->holds)
		TR_TRY(draw(sampler, error));
	sampler->holds = true;
	*out = (struct tr_batch) { NULL, sampler->batch * sampler->shuffle->batch };
	if (sampler->batch < sampler->batch_count)
		out->rows = tr_shuffle_rows(sampler->shuffle, out->first_place);
	return RUBATO_OK;
}

rubato_status tr_sampler_next(struct tr_sampler *sampler, uint64_t step, struct tr_batch *batch,
			      struct tr_error *error)
{
	if (sampler->tickets != NULL)
		return next_shared(sampler, batch, error);
	*batch = (struct tr_batch) { NULL, tr_shuffle_place(sampler->shuffle, step) };
	if (step < sampler->step_count)
		batch->rows = tr_shuffle_batch(sampler->shuffle, step);
	return RUBATO_OK;
}

rubato_status tr_sampler_take(struct tr_sampler *sampler, struct tr_error *error)
{
	sampler->holds = false;
	return sampler->tickets == NULL ? RUBATO_OK : ask(sampler, 1, error);
}

uint64_t tr_sampler_reached(const struct tr_sampler *sampler, const struct tr_batch *batch)
{
	return batch->first_place / sampler->shuffle->batch / sampler->shuffle->rank_count;
}

rubato_status tr_sampler_leave(struct tr_sampler *sampler, struct tr_error *error)
{
	return sampler->tickets == NULL
		       ? RUBATO_OK
		       : tr_check(error, rubato_partial_leave(sampler->tickets), "shared work");
}

/* ---- Checkpoints ---- */

rubato_status tr_sampler_stop(struct tr_sampler *sampler, struct tr_error *error)
{
	return sampler->tickets == NULL ? RUBATO_OK
					: tr_check(error, rubato_partial_drain(sampler->tickets),
						   "shared work: drain");
}

rubato_status tr_sampler_settle(struct tr_sampler *sampler, struct tr_error *error)
{
	return sampler->tickets == NULL ? RUBATO_OK : draw(sampler, error);
}

static rubato_status keep_tickets(struct tr_sampler *sampler, struct tr_archive *archive,
				  void *saved, uint64_t saved_bytes, struct tr_error *error)
{
	rubato_partial *begun = sampler->tickets;
	rubato_status err;

	if (!tr_archive_loading(archive)) {
		TR_TRY(tr_check(error, rubato_partial_save(sampler->tickets, saved, &saved_bytes),
				"shared work: save"));
		return tr_archive_bytes(archive, "work.rounds", saved, saved_bytes, error);
	}
	TR_TRY(tr_archive_bytes(archive, "work.rounds", saved, saved_bytes, error));
	sampler->tickets = NULL;
	TR_TRY(tr_check(error, rubato_partial_free(begun), "shared work"));
	sampler->options.state = saved;
	sampler->options.state_bytes = saved_bytes;
	err = create(sampler, error);
	sampler->options.state = NULL;
	return err;
}

rubato_status tr_sampler_keep(struct tr_sampler *sampler, struct tr_archive *archive,
			      struct tr_error *error)
{
	uint64_t numbers[] = { sampler->taken, sampler->asked, sampler->batch }, saved_bytes = 0;
	rubato_status err;
	void *saved;

	if (sampler->tickets == NULL)
		return RUBATO_OK;
	TR_TRY(tr_archive_bytes(archive, "work", numbers, sizeof(numbers), error));
	sampler->taken = numbers[0];
	sampler->asked = numbers[1];
	sampler->batch = numbers[2];
	sampler->holds = true;
	TR_TRY(tr_check(error, rubato_partial_save(sampler->tickets, NULL, &saved_bytes),
			"shared work: save"));
	saved = malloc(saved_bytes);
	if (saved == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "shared work: no memory");
	err = keep_tickets(sampler, archive, saved, saved_bytes, error);
	free(saved);
	return err;
}

void tr_sampler_close(struct tr_sampler *sampler)
{
	if (sampler == NULL)
		return;
	(void)rubato_partial_free(sampler->tickets);
	free(sampler);
}
