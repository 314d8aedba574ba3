/* report.c -- a child of its own, after the ranks have left: nothing of the run waits for it. */
#include "trainer/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "rubato-report"
#define LIMIT_S 120   /* For files of a million events; usually it takes a fraction of one. */
#define NOT_THERE 127 /* As a shell says it. */

/* The name in this program's own folder; where there is none, as PATH finds it. */
static void find_program(char *path, size_t path_bytes)
{
	char self[4096];
	ssize_t count = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (count > 0) {
		self[count] = '\0';
		slash = strrchr(self, '/');
		if (slash != NULL) {
			snprintf(path, path_bytes, "%.*s/" PROGRAM, (int)(slash - self), self);
			if (access(path, X_OK) == 0)
				return;
		}
	}
	snprintf(path, path_bytes, PROGRAM);
}

/* What it has to say is said by us, in one line. */
static void become(const char *path, const char *folder)
{
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

	alarm(LIMIT_S);
	if (nowhere >= 0) {
		dup2(nowhere, STDIN_FILENO);
		dup2(nowhere, STDOUT_FILENO);
		dup2(nowhere, STDERR_FILENO);
	}
	execlp(path, PROGRAM, "--", folder, (char *)NULL);
	_exit(NOT_THERE);
}

void tr_report_make(const char *folder)
{
	char path[4200];
	int wait_status = 0;
	pid_t pid;

	find_program(path, sizeof(path));
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become(path, folder);
	while (pid > 0 && waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
		return;
	if (pid > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == NOT_THERE)
		fprintf(stderr, "rubato-train: no report.html: " PROGRAM
				" or its Python is not installed\n");
	else
		fprintf(stderr,
			"rubato-train: no report.html: " PROGRAM " failed; '" PROGRAM
			" %s' says why\n",
			folder);
}
