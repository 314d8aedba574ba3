/*
 * snapshots.h -- rank 0's parameters at moments of a run that nobody may stop, to be tested after
 * it.
 */
#ifndef TR_SNAPSHOTS_H
#define TR_SNAPSHOTS_H

#include "trainer/checkpoint/archive.h"
#include "trainer/records/metrics.h"

struct tr_snapshot {
	struct tr_metrics_line line; /* Of that moment, to be written again with the test. */
	float *parameters;           /* NULL on other ranks. */
	float *statistics;
	struct tr_snapshot *next;
};

struct tr_snapshots { /* All ranks count them; rank 0 has them. */
	struct tr_snapshot *first, **end;
	uint32_t count;
};

void tr_snapshots_open(struct tr_snapshots *snapshots);
void tr_snapshots_close(struct tr_snapshots *snapshots);
/* `parameters` NULL: another rank has them. */
rubato_status tr_snapshots_take(struct tr_snapshots *snapshots, const struct tr_metrics_line *line,
				const float *parameters, size_t parameter_count,
				const float *statistics, size_t statistics_count,
				struct tr_error *error);
/* They go to a checkpoint, or come from there (into an empty list). `with_parameters`: this rank
 * has them. */
rubato_status tr_snapshots_keep(struct tr_snapshots *snapshots, struct tr_archive *archive,
				size_t parameter_count, size_t statistics_count,
				bool with_parameters, struct tr_error *error);

#endif
