/* rate.c -- parsing and evaluating --lr-schedule. */
#include "trainer/rules/rate.h"

#include <math.h>
#include <string.h>

#include "trainer/base/values.h"

static rubato_status parse_step(struct tr_rate *rate, const char *text, struct tr_error *error)
{
	const char *colon = strchr(text, ':');
	char every[32];

	if (colon == NULL || (size_t)(colon - text) >= sizeof(every))
		return tr_refuse(error, "--lr-schedule: step wants step:EVERY:FACTOR");
	memcpy(every, text, (size_t)(colon - text));
	every[colon - text] = '\0';
	TR_TRY(tr_parse_count("--lr-schedule step", every, 1, UINT32_MAX, &rate->every, error));
	return tr_parse_number("--lr-schedule step", colon + 1, 0.0, 1e6, &rate->factor, error);
}

static rubato_status parse_warmup(struct tr_rate *rate, const char **text, struct tr_error *error)
{
	const char *first = *text + strlen("warmup:"), *comma = strchr(first, ',');
	char steps[32];

	if (comma == NULL || (size_t)(comma - first) >= sizeof(steps))
		return tr_refuse(error, "--lr-schedule: warmup wants warmup:N,SCHEDULE");
	memcpy(steps, first, (size_t)(comma - first));
	steps[comma - first] = '\0';
	*text = comma + 1;
	return tr_parse_count("--lr-schedule warmup", steps, 0, UINT32_MAX, &rate->warmup_steps,
			      error);
}

const char *const tr_rate_names[] = { "constant", "cosine", "linear", "step:EVERY:FACTOR", NULL };

rubato_status tr_rate_parse(struct tr_rate *rate, const char *text, struct tr_error *error)
{
	unsigned kind;

	if (strncmp(text, "warmup:", 7) == 0)
		TR_TRY(parse_warmup(rate, &text, error));
	TR_TRY(tr_parse_choice("--lr-schedule", text, tr_rate_names, &kind, &text, error));
	rate->kind = (enum tr_rate_kind)kind;
	return rate->kind == TR_RATE_STEP ? parse_step(rate, text, error) : RUBATO_OK;
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
