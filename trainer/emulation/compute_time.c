/* compute_time.c -- see compute_time.h. */
#include "trainer/emulation/compute_time.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_MAX ((size_t)1 << 26) /* Lines: a bound on files that are no trace. */

static bool lines_read(const char *option, FILE *file, const char *path,
		       struct tr_compute_time *time, struct option_error *error)
{
	char line[64], name[256];
	size_t room = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		snprintf(name, sizeof(name), "%s trace:%.150s line %zu", option, path,
			 time->trace_count + 1);
		if (time->trace_count == room) {
			size_t more = room == 0 ? 1024 : 2 * room;
			uint64_t *grown = more > TRACE_MAX
						  ? NULL
						  : realloc(time->trace_ns, more * sizeof(*grown));

			if (grown == NULL)
				return option_refuse(error, "%s: too many", name);
			time->trace_ns = grown;
			room = more;
		}
		line[strcspn(line, "\n")] = '\0';
		if (!value_time(name, line, 1, &time->trace_ns[time->trace_count], error))
			return false;
		time->trace_count++;
	}
	if (ferror(file))
		return option_refuse(error, "%s: %s: %s", option, path, strerror(errno));
	return time->trace_count > 0 || option_refuse(error, "%s: '%s' has no times", option, path);
}

static bool trace_read(const char *option, const char *path, struct tr_compute_time *time,
		       struct option_error *error)
{
	FILE *file = fopen(path, "re");
	bool good;

	time->kind = TR_COMPUTE_TIME_TRACE;
	if (file == NULL)
		return option_refuse(error, "%s: %s: %s", option, path, strerror(errno));
	good = lines_read(option, file, path, time, error);
	fclose(file);
	return good;
}

bool tr_compute_time_parse(const char *option, const char *text, void *to,
			   struct option_error *error)
{
	struct tr_compute_time *time = to;
	const char *slash = strrchr(text, '/');
	char word[64];

	tr_compute_time_close(time);
	*time = (struct tr_compute_time) { .forward = time->forward };
	if (strncmp(text, "trace:", 6) == 0)
		return trace_read(option, text + 6, time, error);
	time->kind = TR_COMPUTE_TIME_STEP;
	if (slash == NULL || strcmp(slash, "/token") != 0)
		return value_time(option, text, 1, &time->span_ns, error);
	time->kind = TR_COMPUTE_TIME_TOKEN;
	snprintf(word, sizeof(word), "%.*s", (int)(slash - text < 63 ? slash - text : 63), text);
	return value_time(option, word, 1, &time->span_ns, error);
}

void tr_compute_time_close(struct tr_compute_time *time)
{
	free(time->trace_ns);
	time->trace_ns = NULL;
}

uint64_t tr_compute_time_span(const struct tr_compute_time *time, uint32_t rank,
			      uint32_t rank_count, uint64_t step, uint64_t tokens)
{
	switch (time->kind) {
	case TR_COMPUTE_TIME_NONE:
		return 0;
	case TR_COMPUTE_TIME_STEP:
		return time->span_ns;
	case TR_COMPUTE_TIME_TOKEN:
		return time->span_ns * tokens;
	case TR_COMPUTE_TIME_TRACE:
		return time->trace_ns[(step * rank_count + rank) % time->trace_count];
	}
	return 0;
}

static void pass_until(rubato_comm *comm, uint64_t due_ns)
{
	uint64_t now_ns = rubato_now(comm);

	if (now_ns < due_ns)
		rubato_sleep(comm, due_ns - now_ns);
}

rubato_status tr_compute_time_pass(const struct tr_compute_time *time, uint64_t span_ns,
				   rubato_comm *comm, const struct tr_cut *cut, uint64_t begin_ns,
				   const struct tr_ready *ready)
{
	double forward_ns = time->forward * (double)span_ns;
	double backward_ns = (double)span_ns - forward_ns;

	for (uint32_t i = 0; i < cut->count; i++) {
		size_t first = tr_cut_begin(cut, i);
		double done = (double)(cut->total - first) / (double)cut->total;

		pass_until(comm, begin_ns + (uint64_t)(forward_ns + backward_ns * done));
		TR_TRY(ready->call(ready->arg, first));
	}
	return RUBATO_OK;
}
