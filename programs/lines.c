/* lines.c -- see lines.h. */
#include "programs/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_add(struct buffer *buffer, const void *data, size_t size_bytes)
{
	if (size_bytes == 0)
		return;
	if (buffer->capacity - buffer->used < size_bytes) {
		size_t capacity = 2 * (buffer->used + size_bytes);
		char *grown = realloc(buffer->data, capacity);

		if (grown == NULL) {
			(void)fprintf(stderr, "out of memory: %zu bytes of output\n", capacity);
			exit(EXIT_FAILURE);
		}
		buffer->data = grown;
		buffer->capacity = capacity;
	}
	memcpy(buffer->data + buffer->used, data, size_bytes);
	buffer->used += size_bytes;
}

void buffer_fini(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer) { 0 };
}

void lines_init(struct lines *lines, uint32_t rank)
{
	*lines = (struct lines) { 0 };
	(void)snprintf(lines->prefix, sizeof(lines->prefix), "[%u] ", rank);
}

static void line_out(struct lines *lines, struct buffer *out)
{
	buffer_add(out, lines->prefix, strlen(lines->prefix));
	buffer_add(out, lines->held.data, lines->held.used);
	buffer_add(out, "\n", 1);
	lines->held.used = 0;
}

void lines_feed(struct lines *lines, const char *data, size_t size_bytes, struct buffer *out)
{
	const char *end = data + size_bytes;

	while (data < end) {
		const char *newline = memchr(data, '\n', (size_t)(end - data));
		const char *stop = newline != NULL ? newline : end;
		size_t room = LINES_BYTES_MAX - lines->held.used;
		size_t take = (size_t)(stop - data) < room ? (size_t)(stop - data) : room;

		buffer_add(&lines->held, data, take);
		data += take;
		if (data < stop) { /* More of this line, but no room for it. */
			line_out(lines, out);
		} else if (newline != NULL) {
			line_out(lines, out);
			data++;
		}
	}
}

void lines_end(struct lines *lines, struct buffer *out)
{
	if (lines->held.used > 0)
		line_out(lines, out);
}

void lines_fini(struct lines *lines)
{
	buffer_fini(&lines->held);
}
