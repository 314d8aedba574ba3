/*
 * json.h -- writes JSON, one value after the other; commas and indentation come by themselves.
 * Keys are NULL inside arrays and for the outermost value.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 16

struct json {
	FILE *file;
	uint32_t depth;
	bool filled[JSON_DEPTH_MAX]; /* Whether this level has a value already. */
};

/* "-" is standard output. false: errno says why. */
bool json_open(struct json *json, const char *path);
/* false: not everything could be written. */
bool json_close(struct json *json);

void json_begin(struct json *json, const char *key, char bracket); /* '{' or '['. */
void json_end(struct json *json, char bracket);                    /* '}' or ']'. */
void json_text(struct json *json, const char *key, const char *text);
void json_integer(struct json *json, const char *key, uint64_t number);
void json_number(struct json *json, const char *key, double number); /* null unless finite. */
void json_bool(struct json *json, const char *key, bool value);

#endif
