/* tally.c -- a persistent send on each rank, a persistent receive for each on rank 0. */
#include "trainer/records/tally.h"

#include <stdlib.h>

#include "trainer/base/replicas.h"

#define TAG 0x7a11

struct line { /* Between one rank and rank 0. */
	rubato_op *op;
	bool in_flight;
	struct tr_tally moving, newest;
};

struct tr_tellers {
	rubato_comm *comm;
	uint32_t rank, line_count;
	struct line *lines; /* Rank 0: of each rank, its own without an operation; else one. */
};

void tr_tally_add(struct tr_tally *sum, const struct tr_tally *other)
{
	double *to = (double *)sum;
	const double *from = (const double *)other;

	for (size_t i = 0; i < TR_TALLY_COUNT; i++)
		to[i] += from[i];
}

rubato_status tr_tally_gather(rubato_comm *comm, const struct tr_tally *mine, struct tr_tally **all,
			      struct tr_error *error)
{
	rubato_status err = RUBATO_OK;

	*all = NULL;
	if (rubato_rank(comm) == 0) {
		*all = calloc(rubato_size(comm), sizeof(**all));
		if (*all == NULL)
			err = tr_fail(error, RUBATO_ERR_MEMORY, "tallies: out of memory");
	}
	err = tr_agree(comm, err, error);
	if (err == RUBATO_OK)
		err = tr_check(error,
			       rubato_gather(comm, mine, *all, TR_TALLY_COUNT, RUBATO_FLOAT64, 0),
			       "gather of tallies");
	if (err) {
		free(*all);
		*all = NULL;
	}
	return err;
}

void tr_tellers_close(struct tr_tellers *tellers)
{
	if (tellers == NULL)
		return;
	for (uint32_t i = 0; i < tellers->line_count; i++)
		rubato_op_free(tellers->lines[i].op);
	free(tellers->lines);
	free(tellers);
}

static rubato_status open_line(struct tr_tellers *t, uint32_t i, struct tr_error *error)
{
	struct line *line = &t->lines[i];

	if (t->rank != 0)
		return tr_check(error,
				rubato_op_send(t->comm, &line->moving, TR_TALLY_COUNT,
					       RUBATO_FLOAT64, 0, TAG, &line->op),
				"op_send of tallies");
	if (i == 0)
		return RUBATO_OK;
	TR_TRY(tr_check(error,
			rubato_op_recv(t->comm, &line->moving, TR_TALLY_COUNT, RUBATO_FLOAT64, i,
				       TAG, &line->op),
			"op_recv of tallies"));
	line->in_flight = true;
	return tr_check(error, rubato_start(line->op), "start of a tally");
}

rubato_status tr_tellers_open(struct tr_tellers **out, rubato_comm *comm, struct tr_error *error)
{
	struct tr_tellers *t = calloc(1, sizeof(*t));
	rubato_status err = RUBATO_OK;

	if (t == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "tallies: out of memory");
	t->comm = comm;
	t->rank = rubato_rank(comm);
	t->line_count = t->rank == 0 ? rubato_size(comm) : 1;
	t->lines = calloc(t->line_count, sizeof(*t->lines));
	if (t->lines == NULL)
		err = tr_fail(error, RUBATO_ERR_MEMORY, "tallies: out of memory");
	for (uint32_t i = 0; err == RUBATO_OK && i < t->line_count; i++)
		err = open_line(t, i, error);
	if (err) {
		tr_tellers_close(t);
		return err;
	}
	*out = t;
	return RUBATO_OK;
}

/* Rank 0: takes what has arrived on a line and listens for the next, unless it was the last. */
static rubato_status hear(struct line *line, struct tr_error *error)
{
	bool done = true;

	while (line->in_flight && done) {
		TR_TRY(tr_check(error, rubato_test(line->op, &done), "test of a tally"));
		if (!done)
			break;
		line->newest = line->moving;
		line->in_flight = line->newest.over == 0.0;
		if (line->in_flight)
			TR_TRY(tr_check(error, rubato_start(line->op), "start of a tally"));
	}
	return RUBATO_OK;
}

rubato_status tr_tellers_tell(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error)
{
	struct line *line = &tellers->lines[0];
	bool done = true;

	line->newest = *mine;
	if (tellers->rank == 0)
		return RUBATO_OK;
	if (line->in_flight)
		TR_TRY(tr_check(error, rubato_test(line->op, &done), "test of a tally"));
	if (!done)
		return RUBATO_OK;
	line->moving = *mine;
	line->in_flight = true;
	return tr_check(error, rubato_start(line->op), "start of a tally");
}

rubato_status tr_tellers_sum(struct tr_tellers *tellers, struct tr_tally *sum,
			     struct tr_error *error)
{
	*sum = (struct tr_tally) { 0 };
	for (uint32_t i = 0; i < tellers->line_count; i++) {
		TR_TRY(hear(&tellers->lines[i], error));
		tr_tally_add(sum, &tellers->lines[i].newest);
	}
	return RUBATO_OK;
}

static rubato_status wait_line(struct line *line, struct tr_error *error)
{
	if (!line->in_flight)
		return RUBATO_OK;
	TR_TRY(tr_check(error, rubato_wait(line->op, RUBATO_TIMEOUT_DEFAULT), "wait for a tally"));
	line->in_flight = false;
	return RUBATO_OK;
}

static rubato_status tell_last(struct line *line, const struct tr_tally *mine,
			       struct tr_error *error)
{
	TR_TRY(wait_line(line, error));
	line->moving = *mine;
	line->moving.over = 1.0;
	TR_TRY(tr_check(error, rubato_start(line->op), "start of a tally"));
	line->in_flight = true;
	return wait_line(line, error);
}

static rubato_status hear_last(struct line *line, struct tr_error *error)
{
	while (line->in_flight) {
		TR_TRY(wait_line(line, error));
		line->newest = line->moving;
		if (line->newest.over != 0.0)
			break;
		line->in_flight = true;
		TR_TRY(tr_check(error, rubato_start(line->op), "start of a tally"));
	}
	return RUBATO_OK;
}

rubato_status tr_tellers_last(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error)
{
	if (tellers->rank != 0)
		return tell_last(&tellers->lines[0], mine, error);
	tellers->lines[0].newest = *mine;
	for (uint32_t i = 1; i < tellers->line_count; i++)
		TR_TRY(hear_last(&tellers->lines[i], error));
	return RUBATO_OK;
}

rubato_status tr_tellers_meet(struct tr_tellers *tellers, const struct tr_tally *mine,
			      struct tr_error *error)
{
	TR_TRY(tr_tellers_last(tellers, mine, error));
	for (uint32_t i = 1; i < tellers->line_count; i++) { /* On rank 0. */
		struct line *line = &tellers->lines[i];

		line->newest.over = 0.0;
		line->in_flight = true;
		TR_TRY(tr_check(error, rubato_start(line->op), "start of a tally"));
	}
	return RUBATO_OK;
}
