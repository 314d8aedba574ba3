/* json.c -- see json.h. */
#include "tools/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

bool json_open(struct json *json, const char *path)
{
	*json = (struct json) { .file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we") };
	return json->file != NULL;
}

bool json_close(struct json *json)
{
	(void)fputc('\n', json->file);
	bool good = fflush(json->file) == 0 && !ferror(json->file);

	if (json->file != stdout)
		good = fclose(json->file) == 0 && good;
	json->file = NULL;
	return good;
}

static void quoted(FILE *file, const char *text)
{
	(void)fputc('"', file);
	for (const char *at = text; *at != '\0'; at++) {
		unsigned char byte = (unsigned char)*at;

		if (byte == '"' || byte == '\\')
			(void)fprintf(file, "\\%c", byte);
		else if (byte < 0x20)
			(void)fprintf(file, "\\u%04x", byte);
		else
			(void)fputc(byte, file);
	}
	(void)fputc('"', file);
}

/* Everything that stands before a value. */
static void head(struct json *json, const char *key)
{
	bool *filled = &json->filled[json->depth];

	if (*filled)
		(void)fputc(',', json->file);
	if (json->depth > 0)
		(void)fprintf(json->file, "\n%*s", 2 * (int)json->depth, "");
	*filled = true;
	if (key != NULL) {
		quoted(json->file, key);
		(void)fputs(": ", json->file);
	}
}

void json_begin(struct json *json, const char *key, char bracket)
{
	assert(json->depth + 1 < JSON_DEPTH_MAX);
	head(json, key);
	(void)fputc(bracket, json->file);
	json->filled[++json->depth] = false;
}

void json_end(struct json *json, char bracket)
{
	assert(json->depth > 0);
	bool filled = json->filled[json->depth--];

	if (filled)
		(void)fprintf(json->file, "\n%*s", 2 * (int)json->depth, "");
	(void)fputc(bracket, json->file);
}

void json_text(struct json *json, const char *key, const char *text)
{
	head(json, key);
	quoted(json->file, text);
}

void json_integer(struct json *json, const char *key, uint64_t number)
{
	head(json, key);
	(void)fprintf(json->file, "%" PRIu64, number);
}

void json_number(struct json *json, const char *key, double number)
{
	head(json, key);
	if (isfinite(number))
		(void)fprintf(json->file, "%.9g", number);
	else
		(void)fputs("null", json->file);
}

void json_bool(struct json *json, const char *key, bool value)
{
	head(json, key);
	(void)fputs(value ? "true" : "false", json->file);
}
