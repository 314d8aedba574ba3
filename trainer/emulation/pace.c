/* pace.c -- see pace.h. */
#include "trainer/emulation/pace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/values.h"

#define TRACE_MAX ((size_t)1 << 26) /* Lines: a bound on files that are no trace. */

static rubato_status read_lines(struct tr_pace *pace, FILE *file, const char *path,
				struct tr_error *error)
{
	char line[64], name[256];
	size_t room = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		snprintf(name, sizeof(name), "--compute-time trace:%.150s line %zu", path,
			 pace->trace_count + 1);
		if (pace->trace_count == room) {
			size_t more = room == 0 ? 1024 : 2 * room;
			uint64_t *grown = more > TRACE_MAX
						  ? NULL
						  : realloc(pace->trace_ns, more * sizeof(*grown));

			if (grown == NULL)
				return tr_fail(error, RUBATO_ERR_MEMORY, "%s: too many", name);
			pace->trace_ns = grown;
			room = more;
		}
		line[strcspn(line, "\n")] = '\0';
		TR_TRY(tr_parse_time(name, line, &pace->trace_ns[pace->trace_count], error));
		pace->trace_count++;
	}
	if (ferror(file))
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (pace->trace_count == 0)
		return tr_refuse(error, "--compute-time: '%s' has no times", path);
	return RUBATO_OK;
}

rubato_status tr_pace_parse(struct tr_pace *pace, const char *text, struct tr_error *error)
{
	const char *slash = strrchr(text, '/');
	rubato_status err;
	char time[64];
	FILE *file;

	if (strncmp(text, "trace:", 6) == 0) {
		pace->kind = TR_PACE_TRACE;
		file = fopen(text + 6, "re");
		if (file == NULL)
			return tr_refuse(error, "--compute-time: %s: %s", text + 6,
					 strerror(errno));
		err = read_lines(pace, file, text + 6, error);
		fclose(file);
		return err;
	}
	pace->kind = TR_PACE_STEP;
	if (slash == NULL || strcmp(slash, "/token") != 0)
		return tr_parse_time("--compute-time", text, &pace->span_ns, error);
	pace->kind = TR_PACE_TOKEN;
	snprintf(time, sizeof(time), "%.*s", (int)(slash - text < 63 ? slash - text : 63), text);
	return tr_parse_time("--compute-time", time, &pace->span_ns, error);
}

void tr_pace_close(struct tr_pace *pace)
{
	free(pace->trace_ns);
	pace->trace_ns = NULL;
}

uint64_t tr_pace_span(const struct tr_pace *pace, uint32_t rank, uint32_t rank_count, uint64_t step,
		      uint64_t tokens)
{
	switch (pace->kind) {
	case TR_PACE_NONE:
		return 0;
	case TR_PACE_STEP:
		return pace->span_ns;
	case TR_PACE_TOKEN:
		return pace->span_ns * tokens;
	case TR_PACE_TRACE:
		return pace->trace_ns[(step * rank_count + rank) % pace->trace_count];
	}
	return 0;
}

static void pass_until(rubato_comm *comm, uint64_t due_ns)
{
	uint64_t now_ns = rubato_now(comm);

	if (now_ns < due_ns)
		rubato_sleep(comm, due_ns - now_ns);
}

rubato_status tr_pace_pass(const struct tr_pace *pace, uint64_t span_ns, rubato_comm *comm,
			   const struct tr_cut *cut, uint64_t begin_ns,
			   const struct tr_ready *ready)
{
	double forward_ns = pace->forward * (double)span_ns;
	double backward_ns = (double)span_ns - forward_ns;

	for (uint32_t i = 0; i < cut->count; i++) {
		size_t first = tr_cut_begin(cut, i);
		double done = (double)(cut->total - first) / (double)cut->total;

		pass_until(comm, begin_ns + (uint64_t)(forward_ns + backward_ns * done));
		TR_TRY(ready->call(ready->arg, first));
	}
	return RUBATO_OK;
}
