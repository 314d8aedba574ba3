/* launch_child.c -- see launch_child.h. */
#include "programs/launch/launch_inside.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_NOT_RUN 8u /* MFD_NOEXEC_SEAL, which older headers lack and some systems demand. */
#define SWEEPS_MAX                                                                                 \
	1000 /* Of at most 10 ms each: a process that survives SIGKILL hangs in a driver. */

/* ---- The secret ---- */

bool launch_secret_draw(char text[LAUNCH_SECRET_TEXT])
{
	uint8_t random[(LAUNCH_SECRET_TEXT - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return false;
	for (size_t i = 0; i < sizeof(random); i++)
		(void)snprintf(text + 2 * i, 3, "%02x", random[i]);
	return true;
}

static bool secret_write(int fd, const char *given)
{
	char text[LAUNCH_SECRET_TEXT];

	if (given == NULL && !launch_secret_draw(text))
		return false;
	given = given != NULL ? given : text;
	return write(fd, given, strlen(given)) == (ssize_t)strlen(given);
}

/* This process, as /proc names it: that may be another process namespace's. */
static long own_number(void)
{
	char text[24];
	ssize_t bytes = readlink("/proc/self", text, sizeof(text) - 1);

	text[bytes > 0 ? bytes : 0] = '\0';
	return bytes > 0 ? atol(text) : (long)getpid();
}

/*
 * A file without a name in any folder, so that nothing is left whatever ends us. Ranks find it
 * among our descriptors, not among their own: a program between us and a rank may close those.
 */
bool launch_secret_make(struct launch_secret *secret, const char *given, const char *program)
{
	secret->fd = memfd_create("rubato-secret", MFD_CLOEXEC | MEMORY_NOT_RUN);
	if (secret->fd < 0 && errno == EINVAL) /* Linux before 6.3. */
		secret->fd = memfd_create("rubato-secret", MFD_CLOEXEC);
	if (secret->fd < 0 || fchmod(secret->fd, 0600) != 0 || !secret_write(secret->fd, given)) {
		(void)fprintf(stderr, "%s: no file for the job's secret: %s\n", program,
			      strerror(errno));
		launch_secret_remove(secret);
		return false;
	}
	(void)snprintf(secret->file, sizeof(secret->file), "/proc/%ld/fd/%d", own_number(),
		       secret->fd);
	return true;
}

void launch_secret_remove(struct launch_secret *secret)
{
	if (secret->fd >= 0)
		(void)close(secret->fd);
	secret->fd = -1;
}

/* ---- The port ---- */

/* A socket that is bound and does not listen keeps the port; rank 0 binds beside it, as both say
 * that they may share. */
bool launch_root_pick(char *root, size_t root_bytes, const char *program, int *held)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t at_bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;
	/* Said before bind(), that could give it a port that another one keeps like this. */
	bool good = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
		    getsockname(fd, (struct sockaddr *)&at, &at_bytes) == 0;

	if (good)
		(void)snprintf(root, root_bytes, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
	else
		(void)fprintf(stderr, "%s: no free port on 127.0.0.1: %s\n", program,
			      strerror(errno));
	*held = fd;
	return good;
}

/* ---- One rank ---- */

static void bind_core(const struct places *places, uint32_t rank)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	if (places->count == 0)
		return;
	CPU_SET(places->cpus[rank % places->count], &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

static void environment_set(const struct launch_child *child)
{
	const struct launch *launch = child->launch;
	char number[16];

	(void)snprintf(number, sizeof(number), "%u", launch->first + child->rank);
	(void)setenv("RUBATO_RANK", number, 1);
	(void)snprintf(number, sizeof(number), "%u",
		       launch->size > 0 ? launch->size : launch->rank_count);
	(void)setenv("RUBATO_SIZE", number, 1);
	(void)setenv("RUBATO_ROOT", child->root, 1);
	(void)setenv("RUBATO_SECRET_FILE", child->secret_file, 1);
}

/* A fork of ours that goes on as a rank: it keeps nothing of the launcher's, as a program does not,
 * but its line. */
static _Noreturn void child_call(const struct launch_child *child, int report)
{
	DIR *open = opendir("/proc/self/fd");

	for (struct dirent *entry; open != NULL && (entry = readdir(open)) != NULL;) {
		int fd = atoi(entry->d_name);

		if (fd > 2 && fd != child->line && fd != report && fd != dirfd(open) &&
		    fcntl(fd, F_GETFD) == FD_CLOEXEC)
			(void)close(fd);
	}
	if (open != NULL)
		(void)closedir(open);
	(void)close(report); /* It runs, whatever /proc said. */
	exit(child->launch->rank_main(child->launch->arg, child->line));
}

/* In the child. Returns only when the program cannot be run: errno says why. */
static void child_become(const struct launch_child *child, pid_t parent, int report)
{
	const struct launch *launch = child->launch;

	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* It ended before we asked to be told. */
		_exit(EXIT_FAILURE);
	(void)signal(SIGPIPE, child->on_pipe);
	(void)signal(SIGTTIN, child->on_input);
	(void)sigprocmask(SIG_SETMASK, &child->mask, NULL);
	(void)setrlimit(RLIMIT_NOFILE, &child->files);
	if (dup2(child->in, 0) < 0 || dup2(child->out, 1) < 0 || dup2(child->err, 2) < 0)
		return;
	if (launch->hosts != NULL) {
		(void)execvp(launch->argvs[child->rank][0], launch->argvs[child->rank]);
		return;
	}
	environment_set(child);
	if (launch->bind_cores)
		bind_core(child->places, child->rank);
	if (launch->rank_main != NULL)
		child_call(child, report);
	(void)execvp(launch->argv[0], launch->argv);
}

int launch_child_start(const struct launch_child *child, pid_t *pid)
{
	int report[2]; /* Closed by a successful exec; else it carries the errno. */
	int reason = 0;
	pid_t parent = getpid();

	if (pipe2(report, O_CLOEXEC) != 0)
		return errno;
	*pid = fork();
	if (*pid == 0) {
		(void)close(report[0]);
		child_become(child, parent, report[1]);
		reason = errno;
		(void)!write(report[1], &reason, sizeof(reason));
		_exit(EXIT_NOT_FOUND);
	}
	reason = *pid < 0 ? errno : 0;
	(void)close(report[1]);
	if (*pid > 0) {
		ssize_t got;

		(void)setpgid(*pid, *pid); /* Both sides do it: no signal may come too early. */
		do {
			got = read(report[0], &reason, sizeof(reason));
		} while (got < 0 && errno == EINTR);
		if (got == (ssize_t)sizeof(reason))
			(void)waitpid(*pid, NULL, 0);
		else
			reason = 0;
	}
	(void)close(report[0]);
	return reason;
}

/* ---- What is left ---- */

/* The parent of process `name`, a number as text, or 0. */
static pid_t parent_of(const char *name)
{
	char path[64], text[512];
	int parent = 0;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, sizeof(text) - 1);

	(void)close(fd);
	text[got > 0 ? got : 0] = '\0';
	/* "pid (name) state parent": the name may hold anything, brackets too. */
	const char *after = strrchr(text, ')');

	if (after == NULL || sscanf(after + 1, " %*c %d", &parent) != 1)
		return 0;
	return (pid_t)parent;
}

static void children_kill(void)
{
	DIR *processes = opendir("/proc");
	pid_t self = getpid();

	if (processes == NULL)
		return;
	for (struct dirent *entry = readdir(processes); entry != NULL; entry = readdir(processes))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    parent_of(entry->d_name) == self)
			(void)kill((pid_t)atoi(entry->d_name), SIGKILL);
	(void)closedir(processes);
}

void launch_sweep(void)
{
	const struct timespec nap = { 0, 10000000 };
	sigset_t child_ended;

	(void)sigemptyset(&child_ended);
	(void)sigaddset(&child_ended, SIGCHLD);
	for (uint32_t i = 0; i < SWEEPS_MAX; i++) {
		pid_t ended;

		/* Their children become ours one by one: hence the loop. */
		do {
			ended = waitpid(-1, NULL, WNOHANG);
		} while (ended > 0);
		if (ended < 0 && errno == ECHILD)
			return;
		children_kill();
		(void)sigtimedwait(&child_ended, NULL, &nap);
	}
}
