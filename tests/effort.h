/*
 * effort.h -- how much a test does: TEST_EFFORT=short (under sanitizers and valgrind, which take up
 * to fifty times as long: each path, but not each combination), threads (short, and only what has
 * threads, under ThreadSanitizer), normal, or long (once, by hand; docs/testing.md has the
 * figures).
 */
#ifndef TESTS_EFFORT_H
#define TESTS_EFFORT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum effort { EFFORT_SHORT, EFFORT_NORMAL, EFFORT_LONG };

static inline bool effort_is(const char *name)
{
	const char *text = getenv("TEST_EFFORT");

	return text != NULL && strcmp(text, name) == 0;
}

/* Simulated ranks are fibers of one thread. */
static inline bool effort_is_threads_only(void)
{
	return effort_is("threads");
}

static inline enum effort effort_wanted(void)
{
	if (effort_is("short") || effort_is_threads_only())
		return EFFORT_SHORT;
	return effort_is("long") ? EFFORT_LONG : EFFORT_NORMAL;
}

#endif
