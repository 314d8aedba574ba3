/*
 * child_fork.h -- a forked child that may call ck_assert, and be killed at any moment.
 *
 * Check's messages go to one file that a child inherits. A write that crosses a page is cut there
 * by a kill: Check finds half a message and ends the program ("Bad message type arg"). So what a
 * child says is dropped: that it failed shows in its exit status, which is 1.
 */
#ifndef RB_TESTS_CHILD_FORK_H
#define RB_TESTS_CHILD_FORK_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check_main.h"

/* Check's file has no name; shared memory that has none is not it. */
static inline void child_is_mute(void)
{
	DIR *open_files = opendir("/proc/self/fd");
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int found = 0;

	if (open_files == NULL || null < 0)
		abort();
	for (struct dirent *file; (file = readdir(open_files)) != NULL;) {
		char path[300], target[300];
		ssize_t size;
		int fd = atoi(file->d_name);

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", file->d_name);
		size = readlink(path, target, sizeof(target) - 1);
		if (fd <= STDERR_FILENO || size <= 10)
			continue;
		target[size] = '\0';
		if (strcmp(target + size - 10, " (deleted)") != 0 ||
		    strncmp(target, "/memfd:", 7) == 0 || strncmp(target, "/dev/shm/", 9) == 0)
			continue;
		if (dup2(null, fd) != fd)
			abort();
		found++;
	}
	if (found != 1) /* Then Check has changed, or a test has such a file. */
		abort();
	(void)closedir(open_files);
	(void)close(null);
}

static inline pid_t child_fork(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		child_is_mute();
	return pid;
}

#endif
