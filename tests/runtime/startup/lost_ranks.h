/*
 * lost_ranks.h -- for tests that kill ranks: whom an error names, and what those that end by
 * themselves have said.
 */
#ifndef RB_TESTS_LOST_RANKS_H
#define RB_TESTS_LOST_RANKS_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "rank 12" as a word of its own. */
static inline bool names(const char *text, uint32_t rank)
{
	char name[32];
	size_t size;

	size = (size_t)snprintf(name, sizeof(name), "rank %u", rank);
	for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
		if (!isdigit((unsigned char)at[size]))
			return true;
	/* Who is missing: "ranks 1, 3-5 (4 of 6)". */
	for (const char *at = strstr(text, "ranks "); at != NULL; at = strstr(at + 1, "ranks ")) {
		const char *end = strchr(at, '(');
		uint32_t low = 0, high = 0;
		int used = 0;

		at += 6;
		while (end != NULL && at < end && sscanf(at, "%u%n", &low, &used) == 1) {
			at += used;
			high = low;
			if (sscanf(at, "-%u%n", &high, &used) == 1)
				at += used;
			if (low <= rank && rank <= high)
				return true;
			at += strspn(at, ", ");
		}
	}
	return false;
}

/* What the ranks have said last, on one line. */
static inline void said_last(int output, char *text, size_t text_bytes)
{
	off_t end = lseek(output, 0, SEEK_END);
	off_t from = end > (off_t)text_bytes - 1 ? end - (off_t)text_bytes + 1 : 0;
	ssize_t count = pread(output, text, text_bytes - 1, from);

	text[count > 0 ? count : 0] = '\0';
	for (char *at = text; (at = strchr(at, '\n')) != NULL;)
		*at = '|';
}

/*
 * UCX 1.13 ends a process in which a connection is lost while it is being made: by an assertion of
 * its own, here and there (three in 400 kills), and 1.22 by another one. No text is to be had then.
 */
static inline bool ended_by_ucx(int output)
{
	char text[8192];

	said_last(output, text, sizeof(text));
	return strstr(text, "Assertion `") != NULL &&
	       (strstr(text, "tcp_ep.c") != NULL || strstr(text, "wireup") != NULL ||
		strstr(text, "stubs.c") != NULL);
}

#endif
