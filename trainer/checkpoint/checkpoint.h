/*
 * checkpoint.h -- the checkpoints of a run: DIR/step-N/rank-R.ckpt of each rank, and
 * DIR/step-N/manifest.ckpt, which rank 0 writes when all of these are on the disk. Without a
 * manifest there is no checkpoint; the last two are kept.
 */
#ifndef TR_CHECKPOINT_H
#define TR_CHECKPOINT_H

#include "trainer/checkpoint/archive.h"

#define TR_CHECKPOINTS_KEPT 2

/* Passes all that a rank's run depends on through the archive: to save, locally; to load, on all
 * ranks together. */
typedef rubato_status (*tr_keep)(void *arg, struct tr_archive *archive);

struct tr_checkpoints {
	const char *folder; /* NULL: none are wanted. */
	rubato_comm *comm;
	uint64_t settings; /* A hash; a checkpoint of another run is refused. */
	uint64_t network;  /* Likewise, where both are simulated (not 0). */
	bool resume;
	uint32_t count;                            /* Of `steps`, oldest first. */
	uint64_t steps[TR_CHECKPOINTS_KEPT + 1];   /* What is there. */
	uint64_t damaged[TR_CHECKPOINTS_KEPT + 1]; /* What is there, and newer, and no good. */
	uint32_t damaged_count;
	struct tr_archive *archive; /* This rank's part of the newest good one, to be loaded. */
	bool locked;                /* Rank 0: the folder, by `lock`. */
	int lock;
};

/*
 * Collective; changes nothing on the disk. Resuming, it finds the newest checkpoint that is whole
 * on all ranks; those that are not are named on standard error. Errors: ARGUMENT when there is
 * nothing to resume, `folder` holds checkpoints that nobody resumes, or another run that is at work
 * writes there (which begin() may find, too); MISMATCH (of another run,
 * or later than `step_count`); what is wrong with the last one tried, if none is whole.
 */
rubato_status tr_checkpoints_open(struct tr_checkpoints *c, rubato_comm *comm, const char *folder,
				  bool resume, uint64_t settings, uint64_t network,
				  uint64_t step_count, struct tr_error *error);
void tr_checkpoints_close(struct tr_checkpoints *c);
/* The local steps that were done when the one to go on from was taken; 0: nothing is resumed. */
uint64_t tr_checkpoints_step(const struct tr_checkpoints *c);
/* Collective: makes the folder, or loads the checkpoint that open() found. */
rubato_status tr_checkpoints_begin(struct tr_checkpoints *c, tr_keep keep, void *arg,
				   struct tr_error *error);
/*
 * Collective, when all ranks have come to `step`. Where a rank cannot write (a full disk, for one),
 * there is no checkpoint, the older ones stay, a line on standard error says so, and the run goes
 * on: OK.
 */
rubato_status tr_checkpoints_save(struct tr_checkpoints *c, uint64_t step, tr_keep keep, void *arg,
				  struct tr_error *error);

#endif
