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

#include "programs/replace.h"

/* Whether `path` is, or will be, a file that can be replaced. */
static bool replaceable(const char *path)
{
	struct stat there;

	return lstat(path, &there) != 0 || S_ISREG(there.st_mode);
}

bool results_writable(const char *path)
{
	char folder[PATH_MAX];
	struct stat there;

	if (strcmp(path, "-") == 0)
		return true;
	if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
		return false;
	if (!replaceable(path))
		return access(path, W_OK) == 0 || errno == ENOENT; /* A link to nothing yet. */
	(void)snprintf(folder, sizeof(folder), "%s", path);
	return access(dirname(folder), W_OK) == 0;
}

static bool dump(json_t *root, FILE *file)
{
	bool good = json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;

	return fputc('\n', file) != EOF && fflush(file) == 0 && good;
}

bool results_write(const char *path, json_t *root)
{
	struct replacement to;
	bool good;

	if (strcmp(path, "-") == 0) {
		good = dump(root, stdout);
	} else if (replaceable(path)) {
		good = replacement_open(&to, path);
		if (good) {
			good = dump(root, to.file);
			good = replacement_close(&to, good) == 0 && good;
		}
	} else { /* A device, a pipe or a link. */
		FILE *file = fopen(path, "we");

		good = file != NULL && dump(root, file);
		if (file != NULL)
			good = fclose(file) == 0 && good;
	}
	json_decref(root);
	return good;
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
