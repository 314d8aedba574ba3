/* test_launch.c -- ranks that are forks of the launcher: what is said about a failure, how long the
 * others have, and that nobody is left. tests/tools/test_run.py has ranks that are programs. */
#include "programs/launch/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check_main.h"

#define LONG_S 60

static unsigned rank_of(void)
{
	return (unsigned)atoi(getenv("RUBATO_RANK"));
}

static void line_write(int fd, const char *line)
{
	ck_assert_int_eq(write(fd, line, strlen(line)), (ssize_t)strlen(line));
}

/* Waits until a signal ends it, or the test has long failed. */
static int stays(void)
{
	const struct timespec rest = { LONG_S, 0 };

	(void)nanosleep(&rest, NULL);
	return 0;
}

static void nap(void)
{
	const struct timespec rest = { 0, 50000000 };

	(void)nanosleep(&rest, NULL);
}

static _Atomic pid_t *first; /* To end; of all ranks. */

/* Until the launcher has heard of its end, which may take long to come. */
static void first_await(void)
{
	const struct timespec rest = { 0, 1000000 };

	for (int i = 0; i < LONG_S * 1000 && (*first == 0 || kill(*first, 0) == 0); i++)
		(void)nanosleep(&rest, NULL);
}

static int all_well(void *arg, int line_fd)
{
	char secret[128];
	FILE *file = fopen(getenv("RUBATO_SECRET_FILE"), "r");
	bool good = file != NULL && fgets(secret, sizeof(secret), file) != NULL &&
		    strlen(secret) == 64 && strncmp(getenv("RUBATO_ROOT"), "127.0.0.1:", 10) == 0 &&
		    strcmp(getenv("RUBATO_SIZE"), "3") == 0 && arg != NULL;

	if (good)
		line_write(line_fd, "of no interest\n");
	return good ? 0 : 9;
}

/* Rank 1 fails first; the others learn of it, and say so later. */
static int one_fails(void *arg, int line_fd)
{
	(void)arg;
	if (rank_of() == 1) {
		*first = getpid();
		line_write(line_fd, "program: rank 1 has no data\n");
		return 7;
	}
	first_await();
	line_write(line_fd, "program: rank 1 is gone\n");
	return 1;
}

/* The victim of a signal says nothing: others speak first. */
static int one_is_killed(void *arg, int line_fd)
{
	(void)arg;
	if (rank_of() == 2) {
		nap();
		(void)raise(SIGKILL);
	}
	line_write(line_fd, "program: rank 2 is gone\n");
	return 1;
}

static int one_fails_in_silence(void *arg, int line_fd)
{
	(void)arg;
	(void)line_fd;
	return rank_of() == 0 ? 5 : 0;
}

/* Those that do not end by themselves are ended, also against their will. */
static int others_stay(void *arg, int line_fd)
{
	(void)arg;
	if (rank_of() == 1) {
		line_write(line_fd, "program: rank 1 fails\n");
		return 3;
	}
	if (rank_of() == 2)
		(void)signal(SIGTERM, SIG_IGN);
	return stays();
}

static int all_stay(void *arg, int line_fd)
{
	(void)line_fd;
	if (rank_of() == 0)
		(void)kill(*(const pid_t *)arg, SIGTERM);
	return stays();
}

static int one_fails_others_stay(void *arg, int line_fd)
{
	(void)arg;
	(void)line_fd;
	return rank_of() == 0 ? 5 : stays();
}

/* Of what the launcher has for itself, and exec would close, a rank holds its line alone. */
static int holds_its_line(void *arg, int line_fd)
{
	DIR *open = opendir("/proc/self/fd");
	int held = 0;

	(void)arg;
	for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
		int fd = atoi(entry->d_name);

		held += fd > 2 && fd != dirfd(open) && fcntl(fd, F_GETFD) == FD_CLOEXEC;
	}
	(void)closedir(open);
	return held == (line_fd >= 0) ? 0 : 10 + held;
}

static const struct {
	int (*rank_main)(void *arg, int line_fd);
	uint64_t patience_ns;
	int status;
	const char *says;
	enum launch_output output;
} rows[] = {
	/* Each line of standard error with its rank, and a sentence when it is known. */
	{ holds_its_line, 0, 0, "", LAUNCH_ERROR_LINES },
	{ one_fails_others_stay, 0, 5,
	  "test: rank 0 failed with exit status 5; ending the others\n", LAUNCH_ERROR_LINES },
	/* One line. */
	{ holds_its_line, 0, 0, "", LAUNCH_RAW },
	{ all_well, 1000000000, 0, "", LAUNCH_RAW },
	{ one_fails, 1000000000, 7, "program: rank 1 has no data\n", LAUNCH_RAW },
	{ one_fails, 0, 7, "program: rank 1 has no data\n", LAUNCH_RAW },
	{ one_is_killed, 10000000000, 128 + SIGKILL,
	  "test: rank 2 was ended by signal 9 (Killed)\n", LAUNCH_RAW },
	{ one_fails_in_silence, 1000000000, 5, "test: rank 0 failed with exit status 5\n",
	  LAUNCH_RAW },
	{ others_stay, 100000000, 3, "program: rank 1 fails\n", LAUNCH_RAW },
	{ all_stay, 1000000000, 128 + SIGTERM, "test: ended by signal 15 (Terminated)\n",
	  LAUNCH_RAW },
};

/* In a process of its own: the launcher becomes a subreaper, and its standard error is read. */
START_TEST(ranks_are_forks)
{
	char said[1024] = "";
	size_t used = 0;
	ssize_t got;
	int fds[2], status;
	pid_t pid;

	first = mmap(NULL, sizeof(*first), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(first, MAP_FAILED);
	ck_assert_int_eq(pipe(fds), 0);
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		pid_t self = getpid();
		const struct launch launch = {
			.program = "test",
			.rank_main = rows[_i].rank_main,
			.arg = &self,
			.rank_count = 3,
			.patience_ns = rows[_i].patience_ns,
			.output = rows[_i].output,
		};

		(void)signal(SIGTERM, SIG_DFL); /* Check's own ends the test. */
		(void)dup2(fds[1], 2);
		(void)close(fds[0]);
		(void)close(fds[1]);
		status = launch_ranks(&launch);
		if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
			(void)fprintf(stderr, "somebody is left\n");
		exit(status);
	}
	(void)close(fds[1]);
	while ((got = read(fds[0], said + used, sizeof(said) - 1 - used)) > 0)
		used += (size_t)got;
	(void)close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_str_eq(said, rows[_i].says);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), rows[_i].status);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("launch");

	tcase_set_timeout(tc, LONG_S);
	tcase_add_loop_test(tc, ranks_are_forks, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	return check_main("launch", tc);
}
