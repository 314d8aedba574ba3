/*
 * outer.h -- how the global model moves, given the mean of the ranks' models: the reduction
 * momentum. w: the global model, m: the mean, d = m - w: the mean displacement, mu:
 * --outer-momentum, a: --outer-lr, g: --outer-gain (1, or 1 - mu), v: the velocity, 0 at first.
 *
 *   none      w = m
 *   block     v = mu v + a g d;  w += v
 *             (Cong, Yang, Zhou, ICPP-W 2019; Chen, Huo, ICASSP 2016)
 *   nesterov  unshifted: as block, but local steps start at w + mu v, and d is still measured from
 *             w (BMUF's block momentum of Nesterov's kind in CNTK);
 *             shifted: w is where they start: v = mu v + g d;  w += a (g d + mu v)
 *             (DiLoCo's outer optimizer, Douillard et al. 2023: SGD with Nesterov momentum, whose
 *             gradient is -d)
 *   slowmo    v = mu v - d / lr;  w -= a lr v, lr: the learning rate of the last local step
 *             (Wang et al., ICLR 2020). With lr 0 nothing has moved: w = m, v stays.
 */
#ifndef TR_OUTER_H
#define TR_OUTER_H

#include "trainer/checkpoint/archive.h"
#include "trainer/rules/shared_options.h"

struct tr_outer_state {
	const struct tr_vectors *vectors;
	const struct tr_outer_options *options;
	size_t count;
	float *model;    /* w; NULL: nobody asks (none). */
	float *velocity; /* NULL: none. */
	float *way;      /* Where there is a velocity: room for d, while w moves. */
};

/* `parameters`: the first global model. `model`: keep w even where the kind does not need it. */
rubato_status tr_outer_open(struct tr_outer_state *outer, const struct tr_vectors *vectors,
			    const struct tr_outer_options *options, bool model,
			    const float *parameters, size_t count, struct tr_error *error);
void tr_outer_close(struct tr_outer_state *outer);

/* `rate`: of the last local step. `start`: where the next local steps start; but for nesterov it
 * may be the model itself. */
void tr_outer_move(struct tr_outer_state *outer, double rate, const float *mean, float *start);
/* The mean as it is: w = mean, and local steps start there. mean == start is fine. */
void tr_outer_adopt(struct tr_outer_state *outer, const float *mean, float *start);

rubato_status tr_outer_keep(struct tr_outer_state *outer, struct tr_archive *archive,
			    struct tr_error *error);

#endif
