/*
 * checkpoint.h -- the checkpoints of a run: DIR/step-N/rank-R.ckpt of each rank, and
 * DIR/step-N/manifest.ckpt, which rank 0 writes when all of these are on the disk. Without a
 * manifest there is no checkpoint; the last two are kept.
 */
#ifndef TR_CHECKPOINT_H
#define TR_CHECKPOINT_H

#include "trainer/archive.h"

#define TR_CHECKPOINTS_KEPT 2

/* Passes all that a rank's run depends on through the archive. Collective. */
typedef rubato_status (*tr_keep)(void *arg, struct tr_archive *archive);

struct tr_checkpoints {
	const char *folder; /* NULL: none are wanted. */
	rubato_comm *comm;
	uint64_t settings; /* A hash; a checkpoint of another run is refused. */
	bool resume;
	uint32_t count;                          /* Of `steps`, oldest first. */
	uint64_t steps[TR_CHECKPOINTS_KEPT + 1]; /* What is there. */
};

/* Collective; changes nothing on the disk. Errors: ARGUMENT when there is nothing to resume, or
 * `folder` holds checkpoints that nobody resumes. */
rubato_status tr_checkpoints_open(struct tr_checkpoints *checkpoints, rubato_comm *comm,
				  const char *folder, bool resume, uint64_t settings,
				  struct tr_note *note);
/* The local steps that were done when the newest was taken; 0: nothing is resumed. */
uint64_t tr_checkpoints_step(const struct tr_checkpoints *checkpoints);
/* Collective: makes the folder, or loads the newest checkpoint. */
rubato_status tr_checkpoints_begin(struct tr_checkpoints *checkpoints, tr_keep keep, void *arg,
				   struct tr_note *note);
/* Collective, after the same local step on all ranks. */
rubato_status tr_checkpoints_save(struct tr_checkpoints *checkpoints, uint64_t step, tr_keep keep,
				  void *arg, struct tr_note *note);

#endif
