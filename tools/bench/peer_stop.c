/*
 * peer_stop.c -- a peer's ranks are stopped while others are measured: what polls in them, a thread
 * of the library or one that waits for its turn, takes no core and no bandwidth from anyone.
 *
 * Stopped processes would be left behind if we were killed. So a shell waits for the end of a pipe
 * that only we hold, and lets them go on: they then find their sockets closed, and end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs/clock.h"
#include "tools/bench/peers_inside.h"

#define STOP_NS 5000000000u
#define STOP_LOOK_NS 20000 /* Between two looks. */

extern char **environ;

/* Nanoseconds that the ranks have run. */
static uint64_t ran_ns(const struct peer *peer)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < peer->rank_count; i++) {
		struct timespec t;
		clockid_t clock;

		if (clock_getcpuclockid(peer->pids[i], &clock) == 0 &&
		    clock_gettime(clock, &t) == 0)
			sum += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	}
	return sum;
}

static void signal_all(const struct peer *peer, int number)
{
	for (uint32_t i = 0; i < peer->rank_count; i++)
		(void)kill(peer->pids[i], number);
}

/* Whether each thread has stopped; one that is gone has. */
static bool has_stopped(pid_t pid)
{
	char path[320], text[512];
	const struct dirent *entry;
	bool stopped = true;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks != NULL && stopped && (entry = readdir(tasks)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid,
			       entry->d_name);

		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		if (fd >= 0)
			(void)close(fd);
		text[length > 0 ? length : 0] = '\0';

		const char *state = strrchr(text, ')'); /* Its name may hold any other. */

		stopped = state == NULL || strchr("TtZX", state[2]) != NULL;
	}
	if (tasks != NULL)
		(void)closedir(tasks);
	return stopped;
}

bool peer_stop(struct peer *peer)
{
	uint64_t deadline_ns = clock_ns() + STOP_NS;

	if (peer->stopped)
		return true;
	signal_all(peer, SIGSTOP);
	for (uint32_t i = 0; i < peer->rank_count; i++) {
		while (!has_stopped(peer->pids[i])) {
			if (clock_ns() >= deadline_ns) {
				signal_all(peer, SIGCONT);
				peer_why(peer, "its ranks could not be stopped");
				return false;
			}
			(void)nanosleep(&(struct timespec) { 0, STOP_LOOK_NS }, NULL);
		}
	}
	peer->stopped = true;
	peer->turns++;
	uint64_t ran = ran_ns(peer);

	peer->turn_ns += ran - peer->ran_ns;
	peer->ran_ns = ran;
	return true;
}

void peer_go(struct peer *peer)
{
	if (!peer->stopped)
		return;
	uint64_t ran = ran_ns(peer);

	peer->between_ns += ran - peer->ran_ns;
	peer->ran_ns = ran;
	peer->stopped = false;
	signal_all(peer, SIGCONT);
}

static bool helper_start(struct peer *peer)
{
	char **words = calloc(5 + (size_t)peer->rank_count, sizeof(*words));
	char(*numbers)[16] = calloc(peer->rank_count, sizeof(*numbers));
	posix_spawn_file_actions_t actions;
	int ends[2] = { -1, -1 };
	bool good = words != NULL && numbers != NULL && pipe2(ends, O_CLOEXEC) == 0;

	if (good) {
		words[0] = words[3] = "sh";
		words[1] = "-c";
		words[2] = "read end; kill -CONT \"$@\"";
		for (uint32_t i = 0; i < peer->rank_count; i++) {
			(void)snprintf(numbers[i], sizeof(numbers[i]), "%d", (int)peer->pids[i]);
			words[4 + i] = numbers[i];
		}
		(void)posix_spawn_file_actions_init(&actions);
		(void)posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
		(void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
		(void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
		good = posix_spawn(&peer->helper, "/bin/sh", &actions, NULL, words, environ) == 0;
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	if (ends[0] >= 0)
		(void)close(ends[0]);
	peer->helper_pipe = ends[1];
	if (!good)
		peer->helper = 0;
	free(words);
	free(numbers);
	return good;
}

bool peer_hold(struct peer *peer)
{
	if (!helper_start(peer)) {
		peer_why(peer, "nobody would wake its ranks if we ended");
		return false;
	}
	peer->ran_ns = ran_ns(peer);
	return peer_stop(peer);
}

void peer_free(struct peer *peer)
{
	peer_go(peer);
	if (peer->helper > 0) {
		(void)kill(peer->helper, SIGKILL);
		while (waitpid(peer->helper, NULL, 0) < 0 && errno == EINTR)
			;
	}
	peer->helper = 0;
	if (peer->helper_pipe >= 0)
		(void)close(peer->helper_pipe);
	peer->helper_pipe = -1;
}
