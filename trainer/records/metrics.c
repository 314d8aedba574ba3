/* metrics.c -- jansson makes the text; one write() a line, so that a reader never sees half of
 * one. */
#include "trainer/records/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/npy.h"
#include "trainer/records/events.h"

rubato_status tr_metrics_clear(const char *folder, struct tr_error *error)
{
	static const char *const names[] = { "summary.json", "ledger.jsonl", "final.npy",
					     "trace.json", "report.html" };
	char path[TR_PATH_BYTES];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		TR_TRY(tr_path(path, error, "%s/%s", folder, names[i]));
		if (unlink(path) != 0 && errno != ENOENT)
			return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	}
	return RUBATO_OK;
}

/* Whole lines of steps 1 to `last_step`, perhaps none with tests, in `text`, closed up. */
static size_t keep_lines(char *text, size_t size_bytes, uint64_t last_step, bool with_tests)
{
	char *at = text, *to = text, *end;

	while ((end = memchr(at, '\n', size_bytes - (size_t)(at - text))) != NULL) {
		size_t line_bytes = (size_t)(end - at) + 1;
		json_t *o = json_loadb(at, line_bytes, 0, NULL);
		json_t *step = json_object_get(o, "step");

		if (json_is_integer(step) && json_integer_value(step) > 0 &&
		    (uint64_t)json_integer_value(step) <= last_step &&
		    (with_tests || json_object_get(o, "test_loss") == NULL)) {
			memmove(to, at, line_bytes);
			to += line_bytes;
		}
		json_decref(o);
		at = end + 1;
	}
	return (size_t)(to - text);
}

/* Takes the other lines out of the file, if there is one. */
static rubato_status cut_lines(const char *path, uint64_t last_step, bool with_tests,
			       struct tr_error *error)
{
	FILE *file = fopen(path, "rbe");
	struct stat st;
	char *text;
	rubato_status err;

	if (file == NULL && errno == ENOENT)
		return RUBATO_OK;
	if (file == NULL || fstat(fileno(file), &st) != 0) {
		err = tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
		if (file != NULL)
			fclose(file);
		return err;
	}
	text = malloc((size_t)st.st_size + 1);
	if (text == NULL)
		err = tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", path);
	else if (fread(text, 1, (size_t)st.st_size, file) != (size_t)st.st_size)
		err = tr_fail(error, RUBATO_ERR_SYSTEM, "%s: cannot be read", path);
	else
		err = tr_file_replace(path, text,
				      keep_lines(text, (size_t)st.st_size, last_step, with_tests),
				      "", 0, error);
	fclose(file);
	free(text);
	return err;
}

/* From the first event on, with those of the lines that are there. */
static rubato_status events_open(struct tr_metrics *metrics, const char *lines_path,
				 struct tr_error *error)
{
	char path[TR_PATH_BYTES], *line = NULL;
	size_t room = 0;
	ssize_t count;
	bool good;

	TR_TRY(tr_path(path, error, "%s/%s", metrics->folder, TR_EVENTS_NAME));
	metrics->events = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	FILE *lines = fopen(lines_path, "re");

	good = metrics->events >= 0 && lines != NULL && tr_events_begin(metrics->events);
	while (good && (count = getline(&line, &room, lines)) > 0)
		good = tr_events_line(metrics->events, line, (size_t)count);
	if (!good)
		tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (lines != NULL)
		fclose(lines);
	free(line);
	return good ? RUBATO_OK : RUBATO_ERR_SYSTEM;
}

rubato_status tr_metrics_folder(const char *folder, struct tr_error *error)
{
	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "--out %s: %s", folder, strerror(errno));
	return RUBATO_OK;
}

rubato_status tr_metrics_open(struct tr_metrics *metrics, const char *folder, uint64_t last_step,
			      bool with_tests, struct tr_error *error)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (last_step == 0 ? O_TRUNC : 0);
	char path[TR_PATH_BYTES];

	*metrics = (struct tr_metrics) { .folder = folder, .lines = -1, .events = -1 };
	if (folder == NULL)
		return RUBATO_OK;
	TR_TRY(tr_path(path, error, "%s/metrics.jsonl", folder));
	if (last_step > 0)
		TR_TRY(cut_lines(path, last_step, with_tests, error));
	metrics->lines = open(path, flags, 0666);
	if (metrics->lines < 0)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	return events_open(metrics, path, error);
}

json_t *tr_optional(bool there, double value)
{
	return there ? json_real(value) : json_null();
}

/* 0, or why not: then nothing of it is there. */
static int whole_line(int fd, const char *text, size_t count)
{
	size_t done = 0;

	while (done < count) {
		ssize_t put = write(fd, text + done, count - done);
		int reason = put < 0 ? errno : 0;

		if (put > 0) {
			done += (size_t)put;
		} else if (reason != EINTR) {
			off_t end = lseek(fd, 0, SEEK_END);

			if (done > 0 && end >= (off_t)done)
				(void)!ftruncate(fd, end - (off_t)done);
			return reason == 0 ? EIO : reason;
		}
	}
	return 0;
}

rubato_status tr_metrics_line(struct tr_metrics *metrics, const struct tr_metrics_line *line,
			      struct tr_error *error)
{
	json_t *o;
	char *text;
	size_t count;
	int reason;
	bool event = true;

	if (metrics->folder == NULL)
		return RUBATO_OK;
	o = json_pack("{s:I,s:f,s:f,s:o,s:I,s:f,s:f,s:f,s:f,s:I,s:I}", "step",
		      (json_int_t)line->step, "epoch", line->epoch, "loss", line->loss, "accuracy",
		      tr_optional(line->has_accuracy, line->accuracy), "samples",
		      (json_int_t)line->samples, "time", line->time, "idle_time", line->idle_time,
		      "communication_time", line->communication_time, "learning_rate", line->rate,
		      "reductions", (json_int_t)line->reductions, "bytes", (json_int_t)line->bytes);
	if (line->period > 0)
		json_object_set_new(o, "period", json_integer((json_int_t)line->period));
	if (line->has_test) {
		json_object_set_new(o, "test_loss", json_real(line->test_loss));
		json_object_set_new(o, "test_accuracy",
				    tr_optional(line->has_accuracy, line->test_accuracy));
	}
	text = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER |
				     JSON_REAL_PRECISION(TR_METRICS_DIGITS));
	json_decref(o);
	if (text == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "metrics.jsonl: out of memory");
	count = strlen(text);
	text[count] = '\n'; /* In place of the end: write() needs none. */
	reason = whole_line(metrics->lines, text, count + 1);
	if (reason == 0)
		event = tr_events_line(metrics->events, text, count);
	free(text);
	if (reason != 0)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s/metrics.jsonl: %s", metrics->folder,
			       strerror(reason));
	if (!event)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s/%s: %s", metrics->folder,
			       TR_EVENTS_NAME, strerror(errno));
	return RUBATO_OK;
}

rubato_status tr_json_write(const char *folder, const char *name, json_t *object, size_t digits,
			    struct tr_error *error)
{
	char path[TR_PATH_BYTES], *text;
	rubato_status err;

	text = json_dumps(object,
			  JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
	json_decref(object);
	if (text == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", name);
	err = tr_path(path, error, "%s/%s", folder, name);
	if (err == RUBATO_OK)
		err = tr_file_replace(path, text, strlen(text), "\n", 1, error);
	free(text);
	return err;
}

void tr_metrics_close(struct tr_metrics *metrics)
{
	if (metrics->folder != NULL && metrics->lines >= 0)
		close(metrics->lines);
	if (metrics->folder != NULL && metrics->events >= 0)
		close(metrics->events);
	*metrics = (struct tr_metrics) { .lines = -1, .events = -1 };
}
