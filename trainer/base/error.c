/* error.c -- one line of text for a failure, whatever the names in it contain. */
#include "trainer/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static void write_line(struct tr_error *error, int exit_code, const char *format, va_list args)
{
	vsnprintf(error->text, sizeof(error->text), format, args);
	for (char *c = error->text; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	error->exit_code = exit_code;
}

rubato_status tr_fail(struct tr_error *error, rubato_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(error, TR_EXIT_FAILURE, format, args);
	va_end(args);
	return status;
}

rubato_status tr_refuse(struct tr_error *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(error, TR_EXIT_USAGE, format, args);
	va_end(args);
	return RUBATO_ERR_ARGUMENT;
}

rubato_status tr_take(struct tr_error *error, bool good, const struct option_error *said)
{
	return good ? RUBATO_OK : tr_refuse(error, "%s", said->text);
}

rubato_status tr_path(char path[TR_PATH_BYTES], struct tr_error *error, const char *format, ...)
{
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(path, TR_PATH_BYTES, format, args);
	va_end(args);
	if (length < 0 || length >= TR_PATH_BYTES)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%.200s...: the name is too long", path);
	return RUBATO_OK;
}

rubato_status tr_check(struct tr_error *error, rubato_status status, const char *what)
{
	if (status == RUBATO_OK)
		return RUBATO_OK;
	return tr_fail(error, status, "%s: %s: %s", what, rubato_status_name(status),
		       rubato_error_text());
}

void tr_error_print(struct tr_error *error, int fd)
{
	char line[sizeof(error->text) + 32];
	int count = snprintf(line, sizeof(line), "rubato-train: %s\n", error->text);

	if (error->text[0] == '\0' || write(fd, line, (size_t)count) < 0)
		return; /* Another rank says it, or nobody listens: there is no one left to tell. */
	error->text[0] = '\0';
}
