/*
 * length.h -- how much a test does: TEST_LENGTH=short (under sanitizers: each path, but not each
 * combination), threads (short, and only what has threads, under ThreadSanitizer), interpreted
 * (short, and fewer sizes, under valgrind and the emulator, which take up to fifty times as long),
 * normal, or long (once, by hand; docs/testing.md has the figures).
 */
#ifndef TESTS_LENGTH_H
#define TESTS_LENGTH_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum test_length { TEST_SHORT, TEST_NORMAL, TEST_LONG };

static inline bool test_length_is(const char *name)
{
	const char *text = getenv("TEST_LENGTH");

	return text != NULL && strcmp(text, name) == 0;
}

/* Simulated ranks are fibers of one thread. */
static inline bool test_is_threads_only(void)
{
	return test_length_is("threads");
}

/* What sanitizers have seen of more ranks, an interpreter need not. */
static inline bool test_is_interpreted(void)
{
	return test_length_is("interpreted");
}

static inline enum test_length test_length(void)
{
	if (test_length_is("short") || test_is_threads_only() || test_is_interpreted())
		return TEST_SHORT;
	return test_length_is("long") ? TEST_LONG : TEST_NORMAL;
}

#endif
