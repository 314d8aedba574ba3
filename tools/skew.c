/* skew.c -- see skew.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/skew.h"

#define PARETO_SHAPE 2.0 /* Heavy tail, finite mean. */
#define TRACE_MAX (1u << 24)

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint32_t trace_line(const char *program, char *line, uint64_t **times, uint32_t used)
{
	uint32_t columns = 0;
	char *word;

	while ((word = strsep(&line, " \t,\r\n")) != NULL) {
		if (*word == '\0')
			continue;
		if (used + columns >= TRACE_MAX)
			option_fail(program, "--skew trace: more than %u times", TRACE_MAX);
		uint64_t *more = realloc(*times, (used + columns + 1) * sizeof(**times));

		if (more == NULL)
			option_fail(program, "--skew trace: out of memory");
		*times = more;
		more[used + columns++] = option_time_ns(program, "--skew trace:", word);
	}
	return columns;
}

static void trace_read(const char *program, const char *path, struct skew *skew)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;

	if (file == NULL)
		option_fail(program, "--skew trace: cannot read %s", path);
	while (getline(&line, &room, file) > 0) {
		uint32_t columns;

		if (line[0] == '#')
			continue;
		columns = trace_line(program, line, &skew->trace,
				     skew->trace_lines * skew->trace_ranks);
		if (columns == 0)
			continue;
		if (skew->trace_lines > 0 && columns != skew->trace_ranks)
			option_fail(program, "--skew trace: line %u of %s has %u times, not %u",
				    skew->trace_lines + 1, path, columns, skew->trace_ranks);
		skew->trace_ranks = columns;
		skew->trace_lines++;
	}
	free(line);
	(void)fclose(file);
	if (skew->trace_lines == 0)
		option_fail(program, "--skew trace: %s has no times", path);
}

static void rank_read(const char *program, const char *text, struct skew *skew)
{
	char number[16];
	const char *colon = strchr(text, ':');

	if (colon == NULL || (size_t)(colon - text) >= sizeof(number))
		option_fail(program, "--skew rank: takes RANK:TIME, not '%s'", text);
	(void)snprintf(number, sizeof(number), "%.*s", (int)(colon - text), text);
	skew->rank = (uint32_t)option_number(program, "--skew rank:", number, 0, UINT32_MAX - 1);
	skew->time_ns = option_time_ns(program, "--skew", colon + 1);
}

void skew_read(const char *program, const char *text, struct skew *skew)
{
	static const char *const kinds[] = { "none",      "linear:", "exp:",  "pareto:",
					     "rotating:", "rank:",   "trace:" };
	uint64_t seed = skew->seed;

	*skew = (struct skew) { .seed = seed };
	if (strcmp(text, kinds[SKEW_NONE]) == 0)
		return;
	for (uint32_t i = SKEW_LINEAR; i <= SKEW_TRACE; i++) {
		size_t length = strlen(kinds[i]);

		if (strncmp(text, kinds[i], length) != 0)
			continue;
		skew->kind = (enum skew_kind)i;
		if (i == SKEW_TRACE)
			trace_read(program, text + length, skew);
		else if (i == SKEW_RANK)
			rank_read(program, text + length, skew);
		else
			skew->time_ns = option_time_ns(program, "--skew", text + length);
		return;
	}
	option_fail(program,
		    "--skew takes none, linear:T, exp:T, pareto:T, rotating:T, rank:R:T or "
		    "trace:FILE, not '%s'",
		    text);
}

void skew_fit(const char *program, const struct skew *skew, uint32_t rank_count)
{
	if (skew->kind == SKEW_TRACE && skew->trace_ranks != rank_count)
		option_fail(program, "--skew trace: lines of %u times for %u ranks",
			    skew->trace_ranks, rank_count);
	if (skew->kind == SKEW_RANK && skew->rank >= rank_count)
		option_fail(program, "--skew rank:%u: there are %u ranks", skew->rank, rank_count);
}

uint64_t skew_ns(const struct skew *skew, uint32_t rank, uint32_t rank_count, uint32_t iteration)
{
	double d = (double)skew->time_ns;
	uint64_t random = mix(mix(skew->seed + 3) ^ ((uint64_t)iteration << 32 | rank));
	double u = (double)(random >> 11) * 0x1p-53;
	double last = rank_count > 1 ? rank_count - 1 : 1;

	switch (skew->kind) {
	case SKEW_NONE:
		break;
	case SKEW_LINEAR:
		return (uint64_t)(d * rank / last);
	case SKEW_EXP:
		return (uint64_t)(-d * log(1 - u));
	case SKEW_PARETO: /* Lomax: from 0 on, with this mean. */
		return (uint64_t)(d * (PARETO_SHAPE - 1) * (pow(1 - u, -1 / PARETO_SHAPE) - 1));
	case SKEW_ROTATING:
		return (uint64_t)(d * ((rank + iteration) % rank_count) / last);
	case SKEW_RANK:
		return rank == skew->rank ? skew->time_ns : 0;
	case SKEW_TRACE:
		return skew
			->trace[(size_t)(iteration % skew->trace_lines) * skew->trace_ranks + rank];
	}
	return 0;
}

uint64_t skew_largest_ns(const struct skew *skew, uint32_t rank_count, uint32_t iterations)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < iterations; i++)
		for (uint32_t r = 0; r < rank_count; r++) {
			uint64_t ns = skew_ns(skew, r, rank_count, i);

			largest = ns > largest ? ns : largest;
		}
	return largest;
}
