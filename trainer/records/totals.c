/* totals.c -- a persistent send on each rank, a persistent receive for each on rank 0. */
#include "trainer/records/totals.h"

#include <stdlib.h>

#include "trainer/base/agree.h"

#define TAG 0x7a11

struct line { /* Between one rank and rank 0. */
	rubato_op *op;
	bool in_flight;
	struct tr_totals moving, newest;
};

struct tr_totals_channel {
	rubato_comm *comm;
	uint32_t rank, line_count;
	struct line *lines; /* Rank 0: of each rank, its own without an operation; else one. */
};

rubato_status tr_totals_gather(rubato_comm *comm, const struct tr_totals *mine,
			       struct tr_totals **all, struct tr_error *error)
{
	rubato_status err = RUBATO_OK;

	*all = NULL;
	if (rubato_rank(comm) == 0) {
		*all = calloc(rubato_size(comm), sizeof(**all));
		if (*all == NULL)
			err = tr_fail(error, RUBATO_ERR_MEMORY, "totals: out of memory");
	}
	err = tr_agree(comm, err, error);
	if (err == RUBATO_OK)
		err = tr_check(error,
			       rubato_gather(comm, mine, *all, TR_TOTALS_COUNT, RUBATO_FLOAT64, 0),
			       "gather of totals");
	if (err) {
		free(*all);
		*all = NULL;
	}
	return err;
}

void tr_totals_channel_close(struct tr_totals_channel *channel)
{
	if (channel == NULL)
		return;
	for (uint32_t i = 0; i < channel->line_count; i++)
		rubato_op_free(channel->lines[i].op);
	free(channel->lines);
	free(channel);
}

static rubato_status start(struct line *line, struct tr_error *error)
{
	line->in_flight = true;
	return tr_check(error, rubato_start(line->op), "start of totals");
}

static rubato_status open_line(struct tr_totals_channel *t, uint32_t i, struct tr_error *error)
{
	struct line *line = &t->lines[i];

	if (t->rank != 0)
		return tr_check(error,
				rubato_op_send(t->comm, &line->moving, TR_TOTALS_COUNT,
					       RUBATO_FLOAT64, 0, TAG, &line->op),
				"op_send of totals");
	if (i == 0)
		return RUBATO_OK;
	TR_TRY(tr_check(error,
			rubato_op_recv(t->comm, &line->moving, TR_TOTALS_COUNT, RUBATO_FLOAT64, i,
				       TAG, &line->op),
			"op_recv of totals"));
	return start(line, error);
}

rubato_status tr_totals_channel_open(struct tr_totals_channel **out, rubato_comm *comm,
				     struct tr_error *error)
{
	struct tr_totals_channel *t = calloc(1, sizeof(*t));
	rubato_status err = RUBATO_OK;

	if (t == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "totals: out of memory");
	t->comm = comm;
	t->rank = rubato_rank(comm);
	t->line_count = t->rank == 0 ? rubato_size(comm) : 1;
	t->lines = calloc(t->line_count, sizeof(*t->lines));
	if (t->lines == NULL)
		err = tr_fail(error, RUBATO_ERR_MEMORY, "totals: out of memory");
	for (uint32_t i = 0; err == RUBATO_OK && i < t->line_count; i++)
		err = open_line(t, i, error);
	if (err) {
		tr_totals_channel_close(t);
		return err;
	}
	*out = t;
	return RUBATO_OK;
}

/* Rank 0: takes what has arrived on a line and listens for the next, unless it was the last. */
static rubato_status receive(struct line *line, struct tr_error *error)
{
	bool done = true;

	while (line->in_flight && done) {
		TR_TRY(tr_check(error, rubato_test(line->op, &done), "test of totals"));
		if (!done)
			break;
		line->newest = line->moving;
		line->in_flight = false;
		if (line->newest.over == 0.0)
			TR_TRY(start(line, error));
	}
	return RUBATO_OK;
}

rubato_status tr_totals_send(struct tr_totals_channel *channel, const struct tr_totals *mine,
			     struct tr_error *error)
{
	struct line *line = &channel->lines[0];
	bool done = true;

	line->newest = *mine;
	if (channel->rank == 0)
		return RUBATO_OK;
	if (line->in_flight)
		TR_TRY(tr_check(error, rubato_test(line->op, &done), "test of totals"));
	if (!done)
		return RUBATO_OK;
	line->moving = *mine;
	return start(line, error);
}

rubato_status tr_totals_sum(struct tr_totals_channel *channel, struct tr_totals *sum,
			    struct tr_error *error)
{
	*sum = (struct tr_totals) { 0 };
	for (uint32_t i = 0; i < channel->line_count; i++) {
		TR_TRY(receive(&channel->lines[i], error));
		for (size_t k = 0; k < TR_TOTALS_COUNT; k++)
			((double *)sum)[k] += ((const double *)&channel->lines[i].newest)[k];
	}
	return RUBATO_OK;
}

static rubato_status wait_line(struct line *line, struct tr_error *error)
{
	if (!line->in_flight)
		return RUBATO_OK;
	TR_TRY(tr_check(error, rubato_wait(line->op, RUBATO_TIMEOUT_DEFAULT), "wait for totals"));
	line->in_flight = false;
	return RUBATO_OK;
}

static rubato_status send_last(struct line *line, const struct tr_totals *mine,
			       struct tr_error *error)
{
	TR_TRY(wait_line(line, error));
	line->moving = *mine;
	line->moving.over = 1.0;
	TR_TRY(start(line, error));
	return wait_line(line, error);
}

static rubato_status receive_last(struct line *line, struct tr_error *error)
{
	while (line->in_flight) {
		TR_TRY(wait_line(line, error));
		line->newest = line->moving;
		if (line->newest.over == 0.0)
			TR_TRY(start(line, error));
	}
	return RUBATO_OK;
}

rubato_status tr_totals_finish(struct tr_totals_channel *channel, const struct tr_totals *mine,
			       struct tr_error *error)
{
	if (channel->rank != 0)
		return send_last(&channel->lines[0], mine, error);
	channel->lines[0].newest = *mine;
	for (uint32_t i = 1; i < channel->line_count; i++)
		TR_TRY(receive_last(&channel->lines[i], error));
	return RUBATO_OK;
}

rubato_status tr_totals_sync(struct tr_totals_channel *channel, const struct tr_totals *mine,
			     struct tr_error *error)
{
	TR_TRY(tr_totals_finish(channel, mine, error));
	for (uint32_t i = 1; i < channel->line_count; i++) { /* On rank 0. */
		channel->lines[i].newest.over = 0.0;
		TR_TRY(start(&channel->lines[i], error));
	}
	return RUBATO_OK;
}
