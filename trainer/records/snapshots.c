/* snapshots.c -- a list. */
#include "trainer/records/snapshots.h"

#include <stdio.h>
#include <stdlib.h>

void tr_snapshots_open(struct tr_snapshots *snapshots)
{
	*snapshots = (struct tr_snapshots) { .end = &snapshots->first };
}

void tr_snapshots_close(struct tr_snapshots *snapshots)
{
	struct tr_snapshot *next;

	for (struct tr_snapshot *s = snapshots->first; s != NULL; s = next) {
		next = s->next;
		free(s->model);
		free(s);
	}
	snapshots->first = NULL;
}

static rubato_status add(struct tr_snapshots *snapshots, const struct tr_metrics_line *line,
			 float *model, bool lost, struct tr_error *error)
{
	struct tr_snapshot *s = lost ? NULL : calloc(1, sizeof(*s));

	if (s == NULL) {
		free(model);
		return tr_fail(error, RUBATO_ERR_MEMORY,
			       "no memory for another snapshot of the parameters (--eval-every)");
	}
	s->line = *line;
	s->model = model;
	*snapshots->end = s;
	snapshots->end = &s->next;
	snapshots->count++;
	return RUBATO_OK;
}

rubato_status tr_snapshots_take(struct tr_snapshots *snapshots, const struct tr_metrics_line *line,
				float *model, struct tr_error *error)
{
	return add(snapshots, line, model, model == NULL, error);
}

static rubato_status keep_one(struct tr_snapshot *s, uint32_t number, struct tr_archive *archive,
			      size_t float_count, struct tr_error *error)
{
	char name[48];

	snprintf(name, sizeof(name), "snapshot %u line", number);
	TR_TRY(tr_archive_value(archive, name, s->line, error));
	if (s->model == NULL)
		return RUBATO_OK;
	snprintf(name, sizeof(name), "snapshot %u", number);
	return tr_archive_bytes(archive, name, s->model, float_count * sizeof(float), error);
}

rubato_status tr_snapshots_keep(struct tr_snapshots *snapshots, struct tr_archive *archive,
				size_t float_count, bool with_models, struct tr_error *error)
{
	const struct tr_metrics_line nothing = { 0 };
	uint32_t count = snapshots->count, number = 0;

	TR_TRY(tr_archive_value(archive, "snapshots", count, error));
	while (snapshots->count < count) { /* Loading. */
		float *room = with_models ? calloc(float_count, sizeof(float)) : NULL;

		TR_TRY(add(snapshots, &nothing, room, with_models && room == NULL, error));
	}
	for (struct tr_snapshot *s = snapshots->first; s != NULL; s = s->next)
		TR_TRY(keep_one(s, number++, archive, float_count, error));
	return RUBATO_OK;
}
