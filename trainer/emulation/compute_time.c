/* compute_time.c -- see compute_time.h. */
#include "trainer/emulation/compute_time.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/values.h"

#define TRACE_MAX ((size_t)1 << 26) /* Lines: a bound on files that are no trace. */

static rubato_status read_lines(struct tr_compute_time *compute_time, FILE *file, const char *path,
				struct tr_error *error)
{
	char line[64], name[256];
	size_t room = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		snprintf(name, sizeof(name), "--compute-time trace:%.150s line %zu", path,
			 compute_time->trace_count + 1);
		if (compute_time->trace_count == room) {
			size_t more = room == 0 ? 1024 : 2 * room;
			uint64_t *grown = more > TRACE_MAX ? NULL
							   : realloc(compute_time->trace_ns,
								     more * sizeof(*grown));

			if (grown == NULL)
				return tr_fail(error, RUBATO_ERR_MEMORY, "%s: too many", name);
			compute_time->trace_ns = grown;
			room = more;
		}
		line[strcspn(line, "\n")] = '\0';
		TR_TRY(tr_parse_time(name, line, &compute_time->trace_ns[compute_time->trace_count],
				     error));
		compute_time->trace_count++;
	}
	if (ferror(file))
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (compute_time->trace_count == 0)
		return tr_refuse(error, "--compute-time: '%s' has no times", path);
	return RUBATO_OK;
}

rubato_status tr_compute_time_parse(struct tr_compute_time *compute_time, const char *text,
				    struct tr_error *error)
{
	const char *slash = strrchr(text, '/');
	rubato_status err;
	char time[64];
	FILE *file;

	if (strncmp(text, "trace:", 6) == 0) {
		compute_time->kind = TR_COMPUTE_TIME_TRACE;
		file = fopen(text + 6, "re");
		if (file == NULL)
			return tr_refuse(error, "--compute-time: %s: %s", text + 6,
					 strerror(errno));
		err = read_lines(compute_time, file, text + 6, error);
		fclose(file);
		return err;
	}
	compute_time->kind = TR_COMPUTE_TIME_STEP;
	if (slash == NULL || strcmp(slash, "/token") != 0)
		return tr_parse_time("--compute-time", text, &compute_time->span_ns, error);
	compute_time->kind = TR_COMPUTE_TIME_TOKEN;
	snprintf(time, sizeof(time), "%.*s", (int)(slash - text < 63 ? slash - text : 63), text);
	return tr_parse_time("--compute-time", time, &compute_time->span_ns, error);
}

void tr_compute_time_close(struct tr_compute_time *compute_time)
{
	free(compute_time->trace_ns);
	compute_time->trace_ns = NULL;
}

uint64_t tr_compute_time_span(const struct tr_compute_time *compute_time, uint32_t rank,
			      uint32_t rank_count, uint64_t step, uint64_t tokens)
{
	switch (compute_time->kind) {
	case TR_COMPUTE_TIME_NONE:
		return 0;
	case TR_COMPUTE_TIME_STEP:
		return compute_time->span_ns;
	case TR_COMPUTE_TIME_TOKEN:
		return compute_time->span_ns * tokens;
	case TR_COMPUTE_TIME_TRACE:
		return compute_time
			->trace_ns[(step * rank_count + rank) % compute_time->trace_count];
	}
	return 0;
}

static void pass_until(rubato_comm *comm, uint64_t due_ns)
{
	uint64_t now_ns = rubato_now(comm);

	if (now_ns < due_ns)
		rubato_sleep(comm, due_ns - now_ns);
}

rubato_status tr_compute_time_pass(const struct tr_compute_time *compute_time, uint64_t span_ns,
				   rubato_comm *comm, const struct tr_cut *cut, uint64_t begin_ns,
				   const struct tr_ready *ready)
{
	double forward_ns = compute_time->forward * (double)span_ns;
	double backward_ns = (double)span_ns - forward_ns;

	for (uint32_t i = 0; i < cut->count; i++) {
		size_t first = tr_cut_begin(cut, i);
		double done = (double)(cut->total - first) / (double)cut->total;

		pass_until(comm, begin_ns + (uint64_t)(forward_ns + backward_ns * done));
		TR_TRY(ready->call(ready->arg, first));
	}
	return RUBATO_OK;
}
