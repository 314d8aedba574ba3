/* note.c -- one line of text for a failure, whatever the names in it contain. */
#include "trainer/base/note.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static void write_line(struct tr_note *note, int exit_code, const char *format, va_list args)
{
	vsnprintf(note->text, sizeof(note->text), format, args);
	for (char *c = note->text; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	note->exit_code = exit_code;
}

rubato_status tr_fail(struct tr_note *note, rubato_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(note, TR_EXIT_FAILURE, format, args);
	va_end(args);
	return status;
}

rubato_status tr_refuse(struct tr_note *note, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(note, TR_EXIT_USAGE, format, args);
	va_end(args);
	return RUBATO_ERR_ARGUMENT;
}

rubato_status tr_path(char *path, size_t path_bytes, struct tr_note *note, const char *format, ...)
{
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(path, path_bytes, format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= path_bytes)
		return tr_fail(note, RUBATO_ERR_ARGUMENT, "%.200s...: the name is too long", path);
	return RUBATO_OK;
}

rubato_status tr_check(struct tr_note *note, rubato_status status, const char *what)
{
	if (status == RUBATO_OK)
		return RUBATO_OK;
	return tr_fail(note, status, "%s: %s: %s", what, rubato_status_name(status),
		       rubato_error_text());
}

void tr_say(struct tr_note *note, int fd)
{
	char line[sizeof(note->text) + 32];
	int count = snprintf(line, sizeof(line), "rubato-train: %s\n", note->text);

	if (note->text[0] == '\0' || write(fd, line, (size_t)count) < 0)
		return; /* Another rank says it, or nobody listens: there is no one left to tell. */
	note->text[0] = '\0';
}
