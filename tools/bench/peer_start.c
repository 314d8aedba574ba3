/*
 * peer_start.c -- what is run for a peer, and with which settings.
 *
 * All are started without binding: where ranks are bound, each peer's rank binds itself to the core
 * of ours (peer.h). Where they share cores, those that can are told to yield. glibc must not give
 * large blocks back to the system at each call, which doubles the time of all of them at 64 MiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench/peers_inside.h"

#define WORDS_MAX 40

extern char **environ;

enum kind { OPENMPI, MPICH, INTELMPI, GLOO, BOUND };

static const struct {
	const char *folder; /* In PREFIX: tools/peers. */
	enum kind kind;
	const char *start[3];  /* What starts it, by name in PATH. */
	const char *own_start; /* In its folder; NULL: nothing starts it but itself. */
	const char *program;   /* Beside rubato-bench; NULL: never built with it. */
} kinds[] = {
	{ "openmpi", OPENMPI, { "mpirun.openmpi" }, "bin/mpirun", "rubato-peer-openmpi" },
	{ "openmpi", OPENMPI, { "mpirun.openmpi" }, "bin/mpirun", "rubato-peer-openmpi" },
	{ "mpich",
	  MPICH,
	  { "mpirun.mpich", "mpiexec.hydra" },
	  "bin/mpiexec.hydra",
	  "rubato-peer-mpich" },
	{ "intelmpi", INTELMPI, { NULL }, "bin/mpiexec.hydra", NULL },
	{ "gloo", GLOO, { "python3" }, "bin/python3", "rubato-peer-gloo" },
	{ "bound", BOUND, { NULL }, NULL, "rubato-peer-bound" },
};
const char *const peer_names[] = { "openmpi", "openmpi-ucx", "mpich", "intelmpi",
				   "gloo",    "bound",       NULL };

void peer_why(struct peer *peer, const char *text)
{
	(void)snprintf(peer->why_not, sizeof(peer->why_not), "%s: %s", peer->name, text);
}

struct words { /* Of a command line, or of an environment. */
	char *at[WORDS_MAX + 1];
	uint32_t count;
};

__attribute__((format(printf, 2, 3))) static void word_add(struct words *words, const char *form,
							   ...)
{
	va_list values;

	va_start(values, form);
	if (words->count < WORDS_MAX && vasprintf(&words->at[words->count], form, values) >= 0)
		words->count++;
	va_end(values);
}

static void words_free(struct words *words)
{
	for (uint32_t i = 0; i < words->count; i++)
		free(words->at[i]);
	words->count = 0;
}

/* ---- Where its programs are ---- */

struct found {
	char start[1200], program[1200];
	char folder[1024]; /* Under PREFIX; empty: it is the system's. */
	enum kind kind;
};

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

bool bench_helper_find(const char *name, char *path, size_t path_bytes)
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

/* What tools/peers has put there before what the system has. */
static bool peer_find(struct peer *peer, const char *prefix, struct found *found)
{
	uint32_t i = 0;

	while (strcmp(peer_names[i], peer->name) != 0)
		i++;
	found->kind = kinds[i].kind;
	found->folder[0] = '\0';
	if (prefix[0] != '\0' && kinds[i].own_start != NULL) {
		(void)snprintf(found->folder, sizeof(found->folder), "%s/%s", prefix,
			       kinds[i].folder);
		(void)snprintf(found->start, sizeof(found->start), "%s/%s", found->folder,
			       kinds[i].own_start);
		(void)snprintf(found->program, sizeof(found->program), "%s/libexec/rubato-peer",
			       found->folder);
		if (access(found->start, X_OK) == 0 && access(found->program, R_OK) == 0)
			return true;
		found->folder[0] = '\0';
	}
	found->start[0] = '\0';
	if (kinds[i].program == NULL)
		peer_why(peer, "tools/peers PREFIX installs it, --peers PREFIX finds it");
	else if (kinds[i].own_start != NULL &&
		 !program_find(kinds[i].start, found->start, sizeof(found->start)))
		peer_why(peer, found->kind == GLOO ? "python3 is not installed"
						   : "its mpirun is not installed");
	else if (!bench_helper_find(kinds[i].program, found->program, sizeof(found->program)))
		peer_why(peer, "this build has no program for it (its compiler was missing)");
	else
		return true;
	return false;
}

/* ---- What is run ---- */

static bool crowded(const struct peer *peer, const struct peer_place *place)
{
	return peer->rank_count > (uint32_t)CPU_COUNT(&place->allowed);
}

static void words_openmpi(const struct peer *peer, const struct peer_place *place,
			  struct words *words)
{
	static const char *const fair[] = {
		"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml"
	};
	/* Else it takes UCX for networks only. */
	static const char *const any[] = { "--mca", "pml_ucx_tls",     "any",
					   "--mca", "pml_ucx_devices", "any" };

	for (size_t i = 0; i < sizeof(fair) / sizeof(fair[0]); i++)
		word_add(words, "%s", fair[i]);
	word_add(words, "%s", strcmp(peer->name, "openmpi") == 0 ? "ob1" : "ucx");
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
		word_add(words, "%s", any[i]);
	if (!crowded(peer, place))
		return;
	word_add(words, "--mca");
	word_add(words, "mpi_yield_when_idle");
	word_add(words, "1");
}

static void words_peer(const struct peer *peer, const struct found *found,
		       const struct peer_place *place, const char *socket_path, struct words *words)
{
	if (found->start[0] != '\0')
		word_add(words, "%s", found->start);
	if (found->kind == OPENMPI)
		words_openmpi(peer, place, words);
	if (found->kind != GLOO && found->kind != BOUND) { /* One process of theirs forks all. */
		word_add(words, "-n");
		word_add(words, "%u", peer->rank_count);
	}
	word_add(words, "%s", found->program);
	word_add(words, "%s", socket_path);
	word_add(words, "%s", place->cpus[0] != '\0' ? place->cpus : "-");
	if (found->kind == GLOO || found->kind == BOUND)
		word_add(words, "%u", peer->rank_count);
}

static void words_environment(const struct peer *peer, const struct found *found,
			      const struct peer_place *place, struct words *words)
{
	static const char *const fair[] = {
		"MALLOC_MMAP_MAX_=0",       "MALLOC_TRIM_THRESHOLD_=68719476736",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"OMP_NUM_THREADS=1"
	};
	const char *path = getenv("PATH"), *libraries = getenv("LD_LIBRARY_PATH");

	for (size_t i = 0; i < sizeof(fair) / sizeof(fair[0]); i++)
		word_add(words, "%s", fair[i]);
	if (found->folder[0] != '\0' && found->kind != GLOO) {
		word_add(words, "PATH=%s/bin:%s", found->folder, path != NULL ? path : "");
		word_add(words, "LD_LIBRARY_PATH=%s/lib%s%s", found->folder,
			 libraries != NULL ? ":" : "", libraries != NULL ? libraries : "");
	}
	if (found->kind == INTELMPI) {
		word_add(words, "I_MPI_ROOT=%s", found->folder);
		word_add(words, "I_MPI_FABRICS=shm");
		word_add(words, "I_MPI_HYDRA_BOOTSTRAP=fork");
		word_add(words, "I_MPI_PIN=0");
		if (crowded(peer, place))
			word_add(words, "I_MPI_THREAD_YIELD=2");
	}
}

/* Whether `words` has a variable of this name. */
static bool words_have(const struct words *words, const char *variable)
{
	size_t length = strcspn(variable, "=") + 1;

	for (uint32_t i = 0; i < words->count; i++)
		if (strncmp(words->at[i], variable, length) == 0)
			return true;
	return false;
}

/* Ours is not theirs. The list alone is the caller's. */
static char **environment_new(const struct words *fair)
{
	size_t count = 0, to = fair->count;
	char **list;

	while (environ[count] != NULL)
		count++;
	list = calloc(count + fair->count + 1, sizeof(*list));
	if (list == NULL)
		return NULL;
	memcpy(list, fair->at, fair->count * sizeof(*list));
	for (size_t i = 0; i < count; i++)
		if (strncmp(environ[i], "RUBATO_", 7) != 0 && !words_have(fair, environ[i]))
			list[to++] = environ[i];
	return list;
}

static bool spawn(struct peer *peer, const struct peer_place *place, struct words *words,
		  const struct words *fair)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char **list = environment_new(fair);
	cpu_set_t ours;
	int rc;

	peer->output = memfd_create("peer", MFD_CLOEXEC);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
	(void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, peer->output, 1);
	(void)posix_spawn_file_actions_adddup2(&actions, peer->output, 2);
	words->at[words->count] = NULL;
	(void)sched_getaffinity(0, sizeof(ours), &ours);
	(void)sched_setaffinity(0, sizeof(place->allowed), &place->allowed); /* It is inherited. */
	rc = list == NULL || peer->output < 0 ? ENOMEM
					      : posix_spawn(&peer->pid, words->at[0], &actions,
							    &attributes, words->at, list);
	(void)sched_setaffinity(0, sizeof(ours), &ours);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	free(list);
	if (rc != 0) {
		peer->pid = 0;
		peer_why(peer, strerror(rc));
	}
	return rc == 0;
}

bool peer_start(struct peer *peer, const struct peer_place *place, const char *socket_path)
{
	struct words words = { .count = 0 }, fair = { .count = 0 };
	struct found found;
	bool good = peer_find(peer, place->prefix, &found);

	if (good) {
		words_peer(peer, &found, place, socket_path, &words);
		words_environment(peer, &found, place, &fair);
		good = spawn(peer, place, &words, &fair);
	}
	words_free(&words);
	words_free(&fair);
	return good;
}
