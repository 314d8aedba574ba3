/*
 * effort.h -- how much a test does: TEST_EFFORT=short (under sanitizers and valgrind, which take up
 * to fifty times as long), normal, or long (once, by hand; docs/testing.md has the figures).
 */
#ifndef TESTS_EFFORT_H
#define TESTS_EFFORT_H

#include <stdlib.h>
#include <string.h>

enum effort { EFFORT_SHORT, EFFORT_NORMAL, EFFORT_LONG };

static inline enum effort effort_wanted(void)
{
	const char *text = getenv("TEST_EFFORT");

	if (text != NULL && strcmp(text, "short") == 0)
		return EFFORT_SHORT;
	return text != NULL && strcmp(text, "long") == 0 ? EFFORT_LONG : EFFORT_NORMAL;
}

#endif
