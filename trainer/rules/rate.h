/*
 * rate.h -- the learning rate as a function of local steps, read when an update is applied.
 *
 *   constant            1
 *   cosine              (1 + cos(pi * p)) / 2
 *   linear              1 - p
 *   step:EVERY:FACTOR   FACTOR ^ floor(step / EVERY)
 *
 * times --lr; p goes from 0, where the warm-up ends, to 1, where the run ends. A warm-up of N steps
 * comes first: (step + 1) / N times --lr.
 */
#ifndef TR_RATE_H
#define TR_RATE_H

#include "programs/values.h"

enum tr_rate_kind { TR_RATE_CONSTANT, TR_RATE_COSINE, TR_RATE_LINEAR, TR_RATE_STEP };

struct tr_rate {
	enum tr_rate_kind kind;
	double base;    /* --lr. */
	double factor;  /* STEP. */
	uint64_t every; /* STEP: local steps. */
	uint64_t warmup_steps;
	uint64_t step_count; /* Of the whole run. */
};

extern const char *const tr_rate_names[]; /* NULL-terminated, by kind. */

/* For struct option: reads "[warmup:N,]NAME" into a struct tr_rate: fills kind, factor, every and,
 * where it is named, warmup_steps. */
bool tr_rate_parse(const char *option, const char *text, void *to, struct option_error *error);

double tr_rate_at(const struct tr_rate *rate, uint64_t step);

#endif
