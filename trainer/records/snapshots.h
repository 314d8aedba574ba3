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
	float *model;                /* Parameters, then statistics; NULL on other ranks. */
	struct tr_snapshot *next;
};

struct tr_snapshots { /* All ranks count them; rank 0 has them. */
	struct tr_snapshot *first, **end;
	uint32_t count;
};

void tr_snapshots_open(struct tr_snapshots *snapshots);
void tr_snapshots_close(struct tr_snapshots *snapshots);
/* On rank 0. `model`, of malloc(), is the snapshot's from now on; NULL: there was no memory. */
rubato_status tr_snapshots_take(struct tr_snapshots *snapshots, const struct tr_metrics_line *line,
				float *model, struct tr_error *error);
/* They go to a checkpoint, or come from there (into an empty list). `float_count`: of a model;
 * `with_models`: this rank has them. */
rubato_status tr_snapshots_keep(struct tr_snapshots *snapshots, struct tr_archive *archive,
				size_t float_count, bool with_models, struct tr_error *error);

#endif
