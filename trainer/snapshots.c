/* snapshots.c -- a list. */
#include "trainer/snapshots.h"

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
				struct tr_note *note)
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
		return tr_fail(note, RUBATO_ERR_MEMORY,
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
