/*
 * seeds.h -- the seeds that a test walks through, and the one at which it ended.
 *
 *   struct seeds seeds = seeds_from(__func__, 1, 250);
 *
 *   for (uint64_t seed; seeds_next(&seeds, &seed);)
 *           ...
 *
 * TEST_SEED=N takes that seed alone, SEEDS=FIRST:COUNT others. A test that fails, crashes or hangs
 * within its walk leaves the seed behind in memory that it shares with the program, which says how
 * to meet it again.
 */
#ifndef RB_TESTS_SEEDS_H
#define RB_TESTS_SEEDS_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEEDS_LEFT_MAX 64

struct seeds_left { /* A walk that is not over. */
	char test[64];
	uint64_t seed;
	bool open;
};

struct seeds {
	uint64_t next, left;
	struct seeds_left *note; /* NULL: no room, or not under check_suite(). */
};

/* The table of this program, made before tests fork; NULL: there is none. */
static inline struct seeds_left **seeds_table(void)
{
	static struct seeds_left *table;

	return &table;
}

static inline void seeds_open(void)
{
	void *memory = mmap(NULL, SEEDS_LEFT_MAX * sizeof(struct seeds_left),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*seeds_table() = memory == MAP_FAILED ? NULL : (struct seeds_left *)memory;
}

static inline void seeds_report(void)
{
	struct seeds_left *table = *seeds_table();

	for (uint32_t i = 0; table != NULL && i < SEEDS_LEFT_MAX && table[i].open; i++)
		(void)fprintf(stderr, "again: TEST_ONLY=%s TEST_SEED=%" PRIu64 "\n", table[i].test,
			      table[i].seed);
}

/* A decimal number at *text, behind which it then is, up to `end`. */
static inline bool seeds_number(const char **text, char end, uint64_t *number)
{
	char *stop = NULL;

	errno = 0;
	*number = strtoull(*text, &stop, 10);
	if (errno != 0 || **text < '0' || **text > '9' || *stop != end)
		return false;
	*text = stop;
	return true;
}

static inline bool seeds_given(uint64_t *seed)
{
	const char *text = getenv("TEST_SEED"), *at = text;

	if (text == NULL)
		return false;
	if (!seeds_number(&at, '\0', seed)) {
		(void)fprintf(stderr, "TEST_SEED takes a number, not '%s'\n", text);
		exit(EXIT_FAILURE);
	}
	return true;
}

/* By TEST_SEED, or else SEEDS. */
static inline bool seeds_span(uint64_t *first, uint64_t *count)
{
	const char *text = getenv("SEEDS"), *at = text;

	if (seeds_given(first)) {
		*count = 1;
		return true;
	}
	if (text == NULL)
		return false;
	if (!seeds_number(&at, ':', first) || (at++, !seeds_number(&at, '\0', count)) ||
	    *count == 0 || *count - 1 > UINT64_MAX - *first) {
		(void)fprintf(stderr, "SEEDS takes FIRST:COUNT, not '%s'\n", text);
		exit(EXIT_FAILURE);
	}
	return true;
}

/* Whether these choose: what must be so over the test's own seeds need not be so there. */
static inline bool seeds_chosen(void)
{
	uint64_t first, count;

	return seeds_span(&first, &count);
}

/* For the test whose __func__ this is. */
static inline struct seeds seeds_from(const char *function, uint64_t first, uint64_t count)
{
	struct seeds seeds = { first, count, *seeds_table() };
	size_t length = strlen(function);

	(void)seeds_span(&seeds.next, &seeds.left);
	for (uint32_t i = 0; seeds.note != NULL && i < SEEDS_LEFT_MAX && seeds.note->open; i++)
		seeds.note = i + 1 < SEEDS_LEFT_MAX ? seeds.note + 1 : NULL;
	if (seeds.note == NULL)
		return seeds;
	if (length > 3 && strcmp(function + length - 3, "_fn") == 0)
		length -= 3; /* Check's own ending. */
	(void)snprintf(seeds.note->test, sizeof(seeds.note->test), "%.*s", (int)length, function);
	return seeds;
}

static inline bool seeds_next(struct seeds *seeds, uint64_t *seed)
{
	bool more = seeds->left > 0;

	if (seeds->note != NULL)
		seeds->note->open = more;
	if (!more)
		return false;
	seeds->left--;
	*seed = seeds->next++;
	if (seeds->note != NULL)
		seeds->note->seed = *seed;
	return true;
}

#endif
