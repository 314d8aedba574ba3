/* snapshots.c -- a list. */
#include "trainer/records/snapshots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tr_snapshots_open(struct tr_snapshots *snapshots)
{
	*snapshots = (struct tr_snapshots) { .end = &snapshots->first };
}

void tr_snapshots_close(struct tr_snapshots *snapshots)
{
	struct tr_snapshot *next;

	for (struct tr_snapshot *s = snapshots->first; s != NULL; s = next) {
		next = s->next;
		free(s->parameters);
		free(s);
	}
	snapshots->first = NULL;
}

rubato_status tr_snapshots_take(struct tr_snapshots *snapshots, const struct tr_metrics_line *line,
				const float *parameters, size_t parameter_count,
				const float *statistics, size_t statistics_count,
				struct tr_error *error)
{
	struct tr_snapshot *s = calloc(1, sizeof(*s));

	if (s != NULL && parameters != NULL) {
		s->parameters = malloc((parameter_count + statistics_count) * sizeof(float));
		if (s->parameters == NULL) {
			free(s);
			s = NULL;
		}
	}
	if (s == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY,
			       "no memory for another snapshot of the parameters (--eval-every)");
	s->line = *line;
	if (parameters != NULL) {
		memcpy(s->parameters, parameters, parameter_count * sizeof(float));
		s->statistics = s->parameters + parameter_count;
		if (statistics_count > 0)
			memcpy(s->statistics, statistics, statistics_count * sizeof(float));
	}
	*snapshots->end = s;
	snapshots->end = &s->next;
	snapshots->count++;
	return RUBATO_OK;
}

static rubato_status keep_one(struct tr_snapshot *s, uint32_t number, struct tr_archive *archive,
			      size_t float_count, struct tr_error *error)
{
	char name[48];

	snprintf(name, sizeof(name), "snapshot %u line", number);
	TR_TRY(tr_archive_bytes(archive, name, &s->line, sizeof(s->line), error));
	if (s->parameters == NULL)
		return RUBATO_OK;
	snprintf(name, sizeof(name), "snapshot %u", number);
	return tr_archive_bytes(archive, name, s->parameters, float_count * sizeof(float), error);
}

rubato_status tr_snapshots_keep(struct tr_snapshots *snapshots, struct tr_archive *archive,
				size_t parameter_count, size_t statistics_count,
				bool with_parameters, struct tr_error *error)
{
	const struct tr_metrics_line nothing = { 0 };
	uint32_t count = snapshots->count, number = 0;
	float *room = NULL;

	TR_TRY(tr_archive_bytes(archive, "snapshots", &count, sizeof(count), error));
	if (tr_archive_loading(archive) && with_parameters) {
		room = calloc(parameter_count + statistics_count, sizeof(float));
		if (room == NULL)
			return tr_fail(error, RUBATO_ERR_MEMORY, "no memory for a snapshot");
	}
	while (snapshots->count < count) {
		rubato_status err = tr_snapshots_take(snapshots, &nothing, room, parameter_count,
						      room == NULL ? NULL : room + parameter_count,
						      statistics_count, error);

		if (err) {
			free(room);
			return err;
		}
	}
	free(room);
	for (struct tr_snapshot *s = snapshots->first; s != NULL; s = s->next)
		TR_TRY(keep_one(s, number++, archive, parameter_count + statistics_count, error));
	return RUBATO_OK;
}
