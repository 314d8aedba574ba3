/*
 * lines.h -- cuts a rank's output into whole lines and puts the rank before each: "[3] text".
 *
 * Any byte but the newline is just data. A line longer than LINES_BYTES_MAX is given out in pieces
 * of that size, each a line of its own, so that no rank can make us hold its output without bound.
 */
#ifndef PROGRAMS_LINES_H
#define PROGRAMS_LINES_H

#include <stddef.h>
#include <stdint.h>

#define LINES_BYTES_MAX (1u << 20)

struct buffer { /* Grows; all zero to begin with. Ends the program when memory runs out. */
	char *data;
	size_t used, capacity;
};

void buffer_add(struct buffer *buffer, const void *data, size_t size_bytes);
void buffer_fini(struct buffer *buffer);

struct lines {
	char prefix[16];
	struct buffer held; /* The line that has no end yet: at most LINES_BYTES_MAX bytes. */
};

void lines_init(struct lines *lines, uint32_t rank);
/* Appends to `out` every line that `data` completes. */
void lines_feed(struct lines *lines, const char *data, size_t size_bytes, struct buffer *out);
/* Appends the last line, with a newline of ours, when it had none. */
void lines_end(struct lines *lines, struct buffer *out);
void lines_fini(struct lines *lines);

#endif
