/* peers.c -- see peers.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/clock.h"
#include "tools/bench/peers.h"

#define ARGS_MAX 40
#define START_NS 60000000000u
#define END_NS 10000000000u

extern char **environ;

const char *const peer_names[] = { "openmpi", "openmpi-ucx", "mpich", "gloo", NULL };

static void why(struct peer *peer, const char *text)
{
	(void)snprintf(peer->why_not, sizeof(peer->why_not), "%s: %s", peer->name, text);
}

/* ---- What is run ---- */

struct words {
	char *at[ARGS_MAX + 1];
	uint32_t count;
};

static void word_add(struct words *words, const char *text)
{
	if (words->count < ARGS_MAX)
		words->at[words->count++] = strdup(text);
}

static void words_free(struct words *words)
{
	for (uint32_t i = 0; i < words->count; i++)
		free(words->at[i]);
	words->count = 0;
}

/* The first of the names that PATH has. */
static bool program_find(const char *const *names, char *path, size_t path_bytes)
{
	const char *folders = getenv("PATH");

	for (; *names != NULL; names++) {
		for (const char *at = folders; at != NULL && *at != '\0';) {
			size_t length = strcspn(at, ":");

			(void)snprintf(path, path_bytes, "%.*s/%s", (int)length, at, *names);
			if (access(path, X_OK) == 0)
				return true;
			at += length + (at[length] == ':');
		}
	}
	return false;
}

/* The peer's program: beside us, or where it is installed, which is told from where we are. */
static bool helper_find(const char *name, char *path, size_t path_bytes)
{
	char self[1024];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (length <= 0)
		return false;
	self[length] = '\0';
	*strrchr(self, '/') = '\0';
	(void)snprintf(path, path_bytes, "%s/%s", self, name);
	if (access(path, R_OK) == 0)
		return true;
	if (RUBATO_LIBEXEC[0] == '/')
		(void)snprintf(path, path_bytes, "%s/%s", RUBATO_LIBEXEC, name);
	else
		(void)snprintf(path, path_bytes, "%s/%s/%s", self, RUBATO_LIBEXEC, name);
	return access(path, R_OK) == 0;
}

static uint32_t cores(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static bool words_mpi(struct peer *peer, struct words *words, const char *socket_path)
{
	static const char *const openmpi[] = { "mpirun.openmpi", NULL };
	static const char *const mpich[] = { "mpirun.mpich", "mpiexec.hydra", NULL };
	bool is_mpich = strcmp(peer->name, "mpich") == 0;
	char path[1200], count[16];

	if (!program_find(is_mpich ? mpich : openmpi, path, sizeof(path))) {
		why(peer, "its mpirun is not installed");
		return false;
	}
	word_add(words, path);
	if (!is_mpich) {
		/* Else it takes UCX for networks only. */
		static const char *const any[] = { "--mca", "pml_ucx_tls",     "any",
						   "--mca", "pml_ucx_devices", "any" };
		static const char *const fair[] = { "--allow-run-as-root",
						    "--oversubscribe",
						    "--bind-to",
						    "none",
						    "--mca",
						    "pml" };

		for (size_t i = 0; i < sizeof(fair) / sizeof(fair[0]); i++)
			word_add(words, fair[i]);
		word_add(words, strcmp(peer->name, "openmpi") == 0 ? "ob1" : "ucx");
		for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
			word_add(words, any[i]);
		if (peer->rank_count > cores()) {
			word_add(words, "--mca");
			word_add(words, "mpi_yield_when_idle");
			word_add(words, "1");
		}
	}
	(void)snprintf(count, sizeof(count), "%u", peer->rank_count);
	word_add(words, "-n");
	word_add(words, count);
	if (!helper_find(is_mpich ? "rubato-peer-mpich" : "rubato-peer-openmpi", path,
			 sizeof(path))) {
		why(peer, "this build has no program for it (its compiler was missing)");
		return false;
	}
	word_add(words, path);
	word_add(words, socket_path);
	return true;
}

/* One Python process that forks a process a rank. */
static bool words_gloo(struct peer *peer, struct words *words, const char *socket_path)
{
	static const char *const python[] = { "python3", NULL };
	char path[1200], count[16];

	if (!program_find(python, path, sizeof(path))) {
		why(peer, "python3 is not installed");
		return false;
	}
	word_add(words, path);
	if (!helper_find("rubato-peer-gloo", path, sizeof(path))) {
		why(peer, "rubato-peer-gloo is not installed");
		return false;
	}
	(void)snprintf(count, sizeof(count), "%u", peer->rank_count);
	word_add(words, path);
	word_add(words, socket_path);
	word_add(words, count);
	return true;
}

/* Ours is not theirs; and glibc must not give large blocks back to the system at each call, which
 * doubles the peers' time at 64 MiB. */
static char **environment_new(void)
{
	static char *const fair[] = { "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=68719476736",
				      "OMPI_ALLOW_RUN_AS_ROOT=1",
				      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMP_NUM_THREADS=1" };
	size_t count = 0, fair_count = sizeof(fair) / sizeof(fair[0]);
	char **list;

	while (environ[count] != NULL)
		count++;
	list = calloc(count + fair_count + 1, sizeof(*list));
	if (list == NULL)
		return NULL;
	memcpy(list, fair, sizeof(fair));
	for (size_t i = 0, to = fair_count; i < count; i++)
		if (strncmp(environ[i], "RUBATO_", 7) != 0)
			list[to++] = environ[i];
	return list;
}

static bool spawn(struct peer *peer, struct words *words)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char **list = environment_new();
	int rc;

	peer->output = memfd_create("peer", MFD_CLOEXEC);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
	(void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, peer->output, 1);
	(void)posix_spawn_file_actions_adddup2(&actions, peer->output, 2);
	words->at[words->count] = NULL;
	rc = list == NULL || peer->output < 0 ? ENOMEM
					      : posix_spawn(&peer->pid, words->at[0], &actions,
							    &attributes, words->at, list);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	free(list);
	if (rc != 0) {
		peer->pid = 0;
		why(peer, strerror(rc));
	}
	return rc == 0;
}

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
	struct peer_hello hello;
	int fd = -1;

	while (fd < 0) {
		if (clock_ns() >= deadline_ns) {
			why(peer, "not all of its ranks came");
			return false;
		}
		if (waitpid(peer->pid, NULL, WNOHANG) == peer->pid) {
			peer->pid = 0;
			why(peer, "it ended at once");
			return false;
		}
		if (poll(&wait, 1, 100) > 0)
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	}
	if (!whole(fd, &hello, sizeof(hello), false, deadline_ns) || hello.magic != PEER_MAGIC ||
	    hello.rank >= peer->rank_count || hello.rank_count != peer->rank_count ||
	    peer->sockets[hello.rank] >= 0) {
		(void)close(fd);
		why(peer, "a rank said something else than expected");
		return false;
	}
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

bool peer_open(struct peer *peer, const char *name, uint32_t rank_count, uint64_t timeout_ns)
{
	uint64_t deadline_ns = clock_ns() + START_NS;
	struct words words = { .count = 0 };
	char path[128] = "";
	int listener;
	bool good;

	*peer = (struct peer) { .rank_count = rank_count, .timeout_ns = timeout_ns, .output = -1 };
	(void)snprintf(peer->name, sizeof(peer->name), "%s", name);
	peer->sockets = malloc(rank_count * sizeof(*peer->sockets));
	if (peer->sockets == NULL)
		return false;
	memset(peer->sockets, 0xff, rank_count * sizeof(*peer->sockets));
	listener = listener_open(peer, path, sizeof(path));
	good = listener >= 0 && path[0] != '\0';
	if (!good)
		why(peer, "no socket to lead it");
	if (good)
		good = strcmp(name, "gloo") == 0 ? words_gloo(peer, &words, path)
						 : words_mpi(peer, &words, path);
	if (good)
		good = spawn(peer, &words);
	words_free(&words);
	for (uint32_t i = 0; i < rank_count && good; i++)
		good = rank_accept(peer, listener, deadline_ns);
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

bool peer_run(struct peer *peer, const struct peer_command *command, double *times, uint64_t *wrong)
{
	uint64_t deadline_ns = clock_ns() + peer->timeout_ns;
	struct peer_command copy = *command;
	struct peer_answer answer;
	bool supported = true;

	*wrong = 0;
	copy.magic = PEER_MAGIC;
	for (uint32_t i = 0; i < peer->rank_count && peer->running; i++)
		peer->running = whole(peer->sockets[i], &copy, sizeof(copy), true, deadline_ns);
	for (uint32_t i = 0; i < peer->rank_count && peer->running; i++) {
		peer->running =
			whole(peer->sockets[i], &answer, sizeof(answer), false, deadline_ns) &&
			answer.magic == PEER_MAGIC;
		if (peer->running && answer.unsupported) {
			answer.text[PEER_TEXT_BYTES - 1] = '\0';
			why(peer, answer.text);
			supported = false;
			continue;
		}
		*wrong += peer->running ? answer.wrong : 0;
		if (peer->running)
			peer->running =
				whole(peer->sockets[i], times + (size_t)i * command->iterations,
				      command->iterations * sizeof(double), false, deadline_ns);
	}
	if (!peer->running) {
		why(peer, "it did not answer in time, or ended");
		output_note(peer);
		return false;
	}
	return supported;
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

	for (uint32_t i = 0; peer->sockets != NULL && i < peer->rank_count; i++) {
		if (peer->sockets[i] < 0)
			continue;
		if (peer->running)
			(void)whole(peer->sockets[i], &end, sizeof(end), true, deadline_ns);
		(void)close(peer->sockets[i]);
	}
	free(peer->sockets);
	peer->sockets = NULL;
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
