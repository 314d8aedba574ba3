/*
 * side_by_side.h -- a program whose tests mostly wait runs them in several processes at a time.
 *
 *   int main(void)
 *   {
 *           TCase *tc = tcase_create("links");
 *
 *           side_by_side(4);
 *           tcase_add_test(...)
 *
 * Four processes go on from there, and each takes every fourth test. Who names a test (TEST_ONLY,
 * CK_RUN_*) or forbids Check to fork (CK_FORK=no) has one process.
 */
#ifndef RB_TESTS_SIDE_BY_SIDE_H
#define RB_TESTS_SIDE_BY_SIDE_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check_main.h"

static inline bool side_by_side_may(void)
{
	static const char *const names[] = { "TEST_ONLY", "CK_RUN_SUITE", "CK_RUN_CASE",
					     "CK_INCLUDE_TAGS", "CK_EXCLUDE_TAGS" };
	const char *forks = getenv("CK_FORK");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) != NULL)
			return false;
	return forks == NULL || strcmp(forks, "no") != 0;
}

/* The process that was called ends in here, when the others have. */
static inline void side_by_side(uint32_t processes)
{
	pid_t parent = getpid(), children[16];
	int status = EXIT_SUCCESS;

	if (!side_by_side_may())
		return;
	(void)fflush(NULL);
	for (uint32_t p = 0; p < processes; p++) {
		children[p] = fork();
		if (children[p] < 0) {
			perror("fork");
			exit(EXIT_FAILURE); /* Those that run end with this one. */
		}
		if (children[p] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* Check ends its tests then. */
			if (getppid() != parent)
				_exit(EXIT_FAILURE);
			*check_share() = (struct check_share) { .of = processes, .number = p };
			return;
		}
	}
	for (uint32_t p = 0; p < processes; p++) {
		int ended = 0;

		if (waitpid(children[p], &ended, 0) != children[p] || !WIFEXITED(ended) ||
		    WEXITSTATUS(ended) != EXIT_SUCCESS)
			status = EXIT_FAILURE;
	}
	(void)fflush(NULL);
	_exit(status); /* Those that ran the tests have freed them. */
}

#endif
