/* results.c -- see results.h. */
#include "programs/results.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/options.h"
#include "programs/replace.h"

/* Else errno says why. */
static bool writable(const char *path)
{
	char folder[PATH_MAX];
	struct stat there;

	if (stat(path, &there) == 0 && S_ISDIR(there.st_mode)) {
		errno = EISDIR;
		return false;
	}
	if (!replacement_fits(path))
		return access(path, W_OK) == 0 || errno == ENOENT; /* A link to nothing yet. */
	(void)snprintf(folder, sizeof(folder), "%s", path);
	return access(dirname(folder), W_OK) == 0;
}

void results_check(const char *program, const char *option, const char *path)
{
	if (path[0] != '\0' && strcmp(path, "-") != 0 && !writable(path))
		option_fail(program, "%s: cannot write %s: %s", option, path, strerror(errno));
}

void results_apart(const char *program, const char *json, const char *csv)
{
	if (json[0] == '\0' || strcmp(json, csv) != 0)
		return;
	if (strcmp(json, "-") == 0)
		option_fail(program, "--json - and --csv -: there is one standard output");
	option_fail(program, "--json and --csv: both to %s", json);
}

struct document {
	json_t *root;
	const char *const *names; /* Of columns; NULL: JSON. */
};

static bool dump_json(json_t *root, FILE *file)
{
	bool good = json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;

	return fputc('\n', file) != EOF && good;
}

static json_t *member(json_t *object, const char *name)
{
	const char *dot = strchr(name, '.');
	char first[64];

	if (dot == NULL)
		return json_object_get(object, name);
	(void)snprintf(first, sizeof(first), "%.*s", (int)(dot - name), name);
	return member(json_object_get(object, first), dot + 1);
}

/* Our words have neither commas nor quotes. */
static void cell(const json_t *value, FILE *file)
{
	if (json_is_string(value))
		(void)fputs(json_string_value(value), file);
	else if (json_is_integer(value))
		(void)fprintf(file, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_real(value))
		(void)fprintf(file, "%.9g", json_real_value(value));
	else if (json_is_boolean(value))
		(void)fputc(json_is_true(value) ? '1' : '0', file);
}

static bool dump_csv(json_t *rows, const char *const *names, FILE *file)
{
	for (uint32_t i = 0; names[i] != NULL; i++)
		(void)fprintf(file, "%s%s", i > 0 ? "," : "", names[i]);
	(void)fputc('\n', file);
	for (size_t r = 0; r < json_array_size(rows); r++) {
		for (uint32_t i = 0; names[i] != NULL; i++) {
			(void)fputs(i > 0 ? "," : "", file);
			cell(member(json_array_get(rows, r), names[i]), file);
		}
		(void)fputc('\n', file);
	}
	return ferror(file) == 0;
}

static bool dump(const struct document *document, FILE *file)
{
	bool good;

	errno = 0;
	good = document->names == NULL ? dump_json(document->root, file)
				       : dump_csv(document->root, document->names, file);

	if (!good && errno == 0)
		errno = EIO; /* Or there was no memory: jansson does not say. */
	return fflush(file) == 0 && good;
}

static bool document_write(const char *path, const struct document *document)
{
	struct replacement to;
	int reason, closed;

	if (strcmp(path, "-") == 0)
		return dump(document, stdout);
	if (!replacement_open(&to, path))
		return false;
	reason = dump(document, to.file) ? 0 : errno;
	closed = replacement_close(&to, reason == 0);
	errno = reason != 0 ? reason : closed;
	return errno == 0;
}

bool results_write(const char *path, json_t *root)
{
	bool good = document_write(path, &(struct document) { .root = root });
	int reason = errno;

	json_decref(root);
	errno = reason;
	return good;
}

bool results_csv(const char *path, json_t *rows, const char *const *names)
{
	return document_write(path, &(struct document) { rows, names });
}

json_t *results_text(const char *text)
{
	json_t *string = json_string(text);

	return string != NULL ? string : json_null();
}

json_t *results_whole(uint64_t number)
{
	return number <= INT64_MAX ? json_integer((json_int_t)number)
				   : json_sprintf("%" PRIu64, number);
}

json_t *results_real(double number)
{
	return isfinite(number) ? json_real(number) : json_null();
}
