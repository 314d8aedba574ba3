/* skew_read.c -- the words of --skew: see skew.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "programs/skew.h"

#define TRACE_MAX (1u << 24)

/* The times of one line behind those that are there: as many as are in *columns. */
static bool trace_line(char *line, struct skew *skew, uint32_t *columns, struct option_error *error)
{
	uint32_t used = skew->trace_lines * skew->trace_ranks;
	char *word;

	*columns = 0;
	while ((word = strsep(&line, " \t,\r\n")) != NULL) {
		if (*word == '\0')
			continue;
		if (used + *columns >= TRACE_MAX)
			return option_refuse(error, "--skew trace: more than %u times", TRACE_MAX);
		uint64_t *more = realloc(skew->trace, (used + *columns + 1) * sizeof(*more));

		if (more == NULL)
			return option_refuse(error, "--skew trace: out of memory");
		skew->trace = more;
		if (!value_time("--skew trace:", word, 0, &more[used + *columns], error))
			return false;
		++*columns;
	}
	return true;
}

static bool trace_lines(FILE *file, const char *path, struct skew *skew, struct option_error *error)
{
	bool good = true;
	char *line = NULL;
	size_t room = 0;

	while (good && getline(&line, &room, file) > 0) {
		uint32_t columns;

		if (line[0] == '#')
			continue;
		good = trace_line(line, skew, &columns, error);
		if (!good || columns == 0)
			continue;
		if (skew->trace_lines > 0 && columns != skew->trace_ranks)
			good = option_refuse(
				error, "--skew trace: line %u of %s has %u times, not %u",
				skew->trace_lines + 1, path, columns, skew->trace_ranks);
		skew->trace_ranks = columns;
		skew->trace_lines++;
	}
	free(line);
	if (good && skew->trace_lines == 0)
		return option_refuse(error, "--skew trace: %s has no times", path);
	return good;
}

static bool trace_read(const char *path, struct skew *skew, struct option_error *error)
{
	FILE *file = fopen(path, "re");
	bool good;

	if (file == NULL)
		return option_refuse(error, "--skew trace: cannot read %s", path);
	good = trace_lines(file, path, skew, error);
	(void)fclose(file);
	return good;
}

static bool rank_read(const char *text, struct skew *skew, struct option_error *error)
{
	char number[16];
	const char *colon = strchr(text, ':');

	if (colon == NULL || (size_t)(colon - text) >= sizeof(number))
		return option_refuse(error, "--skew rank: takes RANK:TIME, not '%s'", text);
	(void)snprintf(number, sizeof(number), "%.*s", (int)(colon - text), text);
	return value_count32("--skew rank:", number, 0, UINT32_MAX - 1, &skew->rank, error) &&
	       value_time("--skew", colon + 1, 0, &skew->time_ns, error);
}

/* In the order of enum skew_kind. */
const char *const skew_names[] = { "none",       "linear:T", "exp:T",      "pareto:T",
				   "rotating:T", "rank:R:T", "trace:FILE", NULL };

bool skew_read(const char *option, const char *text, void *to, struct option_error *error)
{
	struct skew *skew = to;
	const char *value;
	uint32_t kind;

	if (!value_choice(option, text, skew_names, &kind, &value, error))
		return false;
	free(skew->trace); /* Given twice. */
	*skew = (struct skew) { .kind = (enum skew_kind)kind, .seed = skew->seed };
	if (kind == SKEW_TRACE)
		return trace_read(value, skew, error);
	if (kind == SKEW_RANK)
		return rank_read(value, skew, error);
	return kind == SKEW_NONE || value_time(option, value, 0, &skew->time_ns, error);
}

void skew_fit(const char *program, const struct skew *skew, uint32_t rank_count)
{
	if (skew->kind == SKEW_TRACE && skew->trace_ranks != rank_count)
		option_fail(program, "--skew trace: lines of %u times for %u ranks",
			    skew->trace_ranks, rank_count);
	if (skew->kind == SKEW_RANK && skew->rank >= rank_count)
		option_fail(program, "--skew rank:%u: there are %u ranks", skew->rank, rank_count);
}
