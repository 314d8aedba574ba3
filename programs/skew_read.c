/* skew_read.c -- the words of --skew: see skew.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/skew.h"

#define TRACE_MAX (1u << 24)

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

/* In the order of enum skew_kind. */
const char *const skew_names[] = { "none",       "linear:T", "exp:T",      "pareto:T",
				   "rotating:T", "rank:R:T", "trace:FILE", NULL };

void skew_read(const char *program, const char *text, struct skew *skew)
{
	uint64_t seed = skew->seed;
	const char *value;

	*skew = (struct skew) { .seed = seed };
	skew->kind = (enum skew_kind)option_word(program, "--skew", text, skew_names, &value);
	if (skew->kind == SKEW_TRACE)
		trace_read(program, value, skew);
	else if (skew->kind == SKEW_RANK)
		rank_read(program, value, skew);
	else if (skew->kind != SKEW_NONE)
		skew->time_ns = option_time_ns(program, "--skew", value);
}

void skew_fit(const char *program, const struct skew *skew, uint32_t rank_count)
{
	if (skew->kind == SKEW_TRACE && skew->trace_ranks != rank_count)
		option_fail(program, "--skew trace: lines of %u times for %u ranks",
			    skew->trace_ranks, rank_count);
	if (skew->kind == SKEW_RANK && skew->rank >= rank_count)
		option_fail(program, "--skew rank:%u: there are %u ranks", skew->rank, rank_count);
}
