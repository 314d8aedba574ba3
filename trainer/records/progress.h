/*
 * progress.h -- what rank 0 shows on standard error while training, and while it tests at the end:
 * a bar on a terminal, else a line every few seconds.
 */
#ifndef TR_PROGRESS_H
#define TR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct tr_progress {
	bool on, terminal, drawn;
	uint64_t first_step;                         /* 0, or where a resumed run goes on. */
	uint64_t step_count, epoch_steps, step_rows; /* step_rows: of all ranks together. */
	uint64_t start_ns, next_ns;
	double loss_sum; /* Since what was shown last, of rank 0. */
	uint64_t loss_rows;
};

void tr_progress_open(struct tr_progress *progress, bool on, uint64_t first_step,
		      uint64_t step_count, uint64_t epoch_steps, uint64_t step_rows);
/* After step `step` (from 0), which had this summed loss over `rows` samples here. */
void tr_progress_step(struct tr_progress *progress, uint64_t step, double loss, uint64_t rows);
/* After the run: `done` of `all` rows have been looked at, to find `what`. */
void tr_progress_rows(struct tr_progress *progress, const char *what, uint64_t done, uint64_t all);
/* Clears the bar: something else is about to be printed, or the run is over. */
void tr_progress_close(struct tr_progress *progress);

#endif
