/* rate.c -- parsing and evaluating --lr-schedule. */
#include "trainer/rules/rate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is before `end`, as a number of steps. */
static bool steps_read(const char *option, const char *text, const char *end, uint64_t least,
		       uint64_t *steps, struct option_error *error)
{
	char word[32];

	snprintf(word, sizeof(word), "%.*s", (int)(end - text < 31 ? end - text : 31), text);
	return value_count(option, word, least, UINT32_MAX, steps, error);
}

static bool step_read(const char *option, const char *text, struct tr_rate *rate,
		      struct option_error *error)
{
	const char *colon = strchr(text, ':');
	char name[64];

	if (colon == NULL)
		return option_refuse(error, "%s: step takes step:EVERY:FACTOR", option);
	snprintf(name, sizeof(name), "%s step", option);
	return steps_read(name, text, colon, 1, &rate->every, error) &&
	       value_real(name, colon + 1, 0.0, 1e6, &rate->factor, error);
}

static bool warmup_read(const char *option, const char **text, struct tr_rate *rate,
			struct option_error *error)
{
	const char *first = *text + strlen("warmup:"), *comma = strchr(first, ',');
	char name[64];

	if (comma == NULL)
		return option_refuse(error, "%s: warmup takes warmup:N,SCHEDULE", option);
	*text = comma + 1;
	snprintf(name, sizeof(name), "%s warmup", option);
	return steps_read(name, first, comma, 0, &rate->warmup_steps, error);
}

const char *const tr_rate_names[] = { "constant", "cosine", "linear", "step:EVERY:FACTOR", NULL };

bool tr_rate_parse(const char *option, const char *text, void *to, struct option_error *error)
{
	struct tr_rate *rate = to;
	uint32_t kind;

	rate->warmup_steps = 0;
	if (strncmp(text, "warmup:", 7) == 0 && !warmup_read(option, &text, rate, error))
		return false;
	if (!value_choice(option, text, tr_rate_names, &kind, &text, error))
		return false;
	rate->kind = (enum tr_rate_kind)kind;
	return rate->kind != TR_RATE_STEP || step_read(option, text, rate, error);
}

/* How much of the run after the warm-up has passed: 0 to 1. */
static double passed(const struct tr_rate *rate, uint64_t step)
{
	if (rate->step_count <= rate->warmup_steps)
		return 0.0;
	if (step >= rate->step_count)
		return 1.0;
	return (double)(step - rate->warmup_steps) /
	       (double)(rate->step_count - rate->warmup_steps);
}

double tr_rate_at(const struct tr_rate *rate, uint64_t step)
{
	const double pi = 3.14159265358979323846;

	if (step < rate->warmup_steps)
		return rate->base * (double)(step + 1) / (double)rate->warmup_steps;
	switch (rate->kind) {
	case TR_RATE_CONSTANT:
		return rate->base;
	case TR_RATE_COSINE:
		return rate->base * 0.5 * (1.0 + cos(pi * passed(rate, step)));
	case TR_RATE_LINEAR:
		return rate->base * (1.0 - passed(rate, step));
	case TR_RATE_STEP:
		return rate->base * pow(rate->factor, (double)(step / rate->every));
	}
	return rate->base;
}
