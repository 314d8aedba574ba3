/* peers.c -- see peers.h: leads a peer's ranks over their sockets. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/clock.h"
#include "tools/bench/peers_inside.h"

#define START_NS 60000000000u
#define END_NS 10000000000u

/* ---- Sockets ---- */

static bool whole(int fd, void *bytes, size_t count, bool out, uint64_t deadline_ns)
{
	for (size_t done = 0; done < count;) {
		struct pollfd wait = { .fd = fd, .events = out ? POLLOUT : POLLIN };
		uint64_t now = clock_ns();
		ssize_t length;

		if (now >= deadline_ns)
			return false;
		if (poll(&wait, 1, (int)((deadline_ns - now) / 1000000 + 1)) < 0 && errno != EINTR)
			return false;
		length = out ? send(fd, (char *)bytes + done, count - done,
				    MSG_NOSIGNAL | MSG_DONTWAIT)
			     : recv(fd, (char *)bytes + done, count - done, MSG_DONTWAIT);
		if (length > 0)
			done += (size_t)length;
		else if (length == 0 || (errno != EAGAIN && errno != EINTR))
			return false;
	}
	return true;
}

static int listener_open(struct peer *peer, char *path, size_t path_bytes)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(peer->folder, sizeof(peer->folder), "/tmp/rubato-peer-XXXXXX");
	if (fd < 0 || mkdtemp(peer->folder) == NULL) {
		peer->folder[0] = '\0';
		return fd;
	}
	(void)snprintf(path, path_bytes, "%s/s", peer->folder);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(fd, (int)peer->rank_count) != 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static bool rank_accept(struct peer *peer, int listener, uint64_t deadline_ns)
{
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	struct ucred who;
	socklen_t who_bytes = sizeof(who);
	struct peer_hello hello;
	int fd = -1;

	while (fd < 0) {
		if (clock_ns() >= deadline_ns) {
			peer_why(peer, "not all of its ranks came");
			return false;
		}
		if (waitpid(peer->pid, NULL, WNOHANG) == peer->pid) {
			peer->pid = 0;
			peer_why(peer, "it ended at once");
			return false;
		}
		if (poll(&wait, 1, 100) > 0)
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	}
	if (!whole(fd, &hello, sizeof(hello), false, deadline_ns) || hello.magic != PEER_MAGIC ||
	    hello.rank >= peer->rank_count || hello.rank_count != peer->rank_count ||
	    peer->sockets[hello.rank] >= 0) {
		(void)close(fd);
		peer_why(peer, "a rank said something else than expected");
		return false;
	}
	/* The kernel's word for which process it is: we shall stop it. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_bytes) != 0) {
		(void)close(fd);
		peer_why(peer, strerror(errno));
		return false;
	}
	peer->pids[hello.rank] = who.pid;
	peer->sockets[hello.rank] = fd;
	hello.library[PEER_TEXT_BYTES - 1] = '\0';
	memcpy(peer->library, hello.library, PEER_TEXT_BYTES);
	return true;
}

/* The last line of what it printed. */
static void output_note(struct peer *peer)
{
	char text[4096], *line;
	ssize_t length = pread(peer->output, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return;
	text[length] = '\0';
	while (length > 0 && text[length - 1] == '\n')
		text[--length] = '\0';
	line = strrchr(text, '\n');
	line = line != NULL ? line + 1 : text;
	size_t used = strlen(peer->why_not);

	(void)snprintf(peer->why_not + used, sizeof(peer->why_not) - used, " (%.100s)", line);
}

/* ---- For the benchmark ---- */

bool peer_open(struct peer *peer, const char *name, const struct peer_place *place,
	       uint32_t rank_count, uint64_t timeout_ns)
{
	uint64_t deadline_ns = clock_ns() + START_NS;
	char path[128] = "";
	int listener;
	bool good;

	*peer = (struct peer) {
		.rank_count = rank_count, .timeout_ns = timeout_ns, .output = -1, .helper_pipe = -1
	};
	(void)snprintf(peer->name, sizeof(peer->name), "%s", name);
	peer->sockets = malloc(rank_count * sizeof(*peer->sockets));
	peer->pids = calloc(rank_count, sizeof(*peer->pids));
	if (peer->sockets == NULL || peer->pids == NULL) {
		peer_why(peer, "out of memory");
		free(peer->sockets);
		free(peer->pids);
		return false;
	}
	memset(peer->sockets, 0xff, rank_count * sizeof(*peer->sockets));
	listener = listener_open(peer, path, sizeof(path));
	good = listener >= 0 && path[0] != '\0';
	if (!good)
		peer_why(peer, "no socket to lead it");
	if (good)
		good = peer_start(peer, place, path);
	for (uint32_t i = 0; i < rank_count && good; i++)
		good = rank_accept(peer, listener, deadline_ns);
	if (good)
		good = peer_hold(peer);
	if (listener >= 0)
		(void)close(listener);
	if (path[0] != '\0')
		(void)unlink(path);
	peer->running = good;
	if (!good && peer->output >= 0)
		output_note(peer);
	if (!good)
		peer_close(peer);
	return good;
}

bool peer_run(struct peer *peer, const struct peer_command *command, struct peer_time *times,
	      uint64_t *wrong)
{
	uint64_t deadline_ns = clock_ns() + peer->timeout_ns;
	struct peer_command copy = *command;
	struct peer_answer answer;
	bool supported = true;

	*wrong = 0;
	copy.magic = PEER_MAGIC;
	peer_go(peer);
	for (uint32_t i = 0; i < peer->rank_count && peer->running; i++)
		peer->running = whole(peer->sockets[i], &copy, sizeof(copy), true, deadline_ns);
	for (uint32_t i = 0; i < peer->rank_count && peer->running; i++) {
		peer->running =
			whole(peer->sockets[i], &answer, sizeof(answer), false, deadline_ns) &&
			answer.magic == PEER_MAGIC;
		if (peer->running && answer.unsupported) {
			answer.text[PEER_TEXT_BYTES - 1] = '\0';
			peer_why(peer, answer.text);
			supported = false;
			continue;
		}
		*wrong += peer->running ? answer.wrong : 0;
		if (peer->running)
			peer->running =
				whole(peer->sockets[i], times + (size_t)i * command->iterations,
				      command->iterations * sizeof(*times), false, deadline_ns);
	}
	if (peer->running)
		peer->running = peer_stop(peer);
	else
		peer_why(peer, "it did not answer in time, or ended");
	if (!peer->running)
		output_note(peer);
	return peer->running && supported;
}

static bool ended(struct peer *peer, uint64_t deadline_ns)
{
	while (waitpid(peer->pid, NULL, WNOHANG) == 0) {
		if (clock_ns() >= deadline_ns)
			return false;
		(void)poll(NULL, 0, 10);
	}
	return true;
}

void peer_close(struct peer *peer)
{
	struct peer_command end = { .magic = PEER_MAGIC, .end = 1 };
	uint64_t deadline_ns = clock_ns() + END_NS;

	peer_free(peer);
	for (uint32_t i = 0; peer->sockets != NULL && i < peer->rank_count; i++) {
		if (peer->sockets[i] < 0)
			continue;
		if (peer->running)
			(void)whole(peer->sockets[i], &end, sizeof(end), true, deadline_ns);
		(void)close(peer->sockets[i]);
	}
	free(peer->sockets);
	free(peer->pids);
	peer->sockets = NULL;
	peer->pids = NULL;
	if (peer->pid > 0 && !ended(peer, peer->running ? deadline_ns : 0)) {
		(void)kill(-peer->pid, SIGTERM);
		if (!ended(peer, clock_ns() + END_NS)) {
			(void)kill(-peer->pid, SIGKILL);
			(void)ended(peer, clock_ns() + END_NS);
		}
	}
	peer->pid = 0;
	if (peer->output >= 0)
		(void)close(peer->output);
	peer->output = -1;
	if (peer->folder[0] != '\0')
		(void)rmdir(peer->folder);
	peer->folder[0] = '\0';
	peer->running = false;
}
