/*
 * hosts.c -- see hosts.h.
 *
 * What a part is told: its length in a line, then words that end with a zero each: host, size,
 * first, count, bind, keep-going, root, secret, folder, number of variables, the variables, the
 * command.
 */
#include "programs/launch/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "programs/launch/launch_inside.h"
#include "programs/lines.h"

#define LINE_BYTES 1024 /* Of a file: far more than a host takes. */
#define TOLD_MAX 60000u /* A pipe takes so much at once. */
#define PORT_MIN 20000u /* Below those that systems give out by themselves. */
#define PORTS 10000u

extern char **environ;

/* ---- Who the hosts are ---- */

static bool bad(struct option_error *error, const char *what, const char *why)
{
	return option_refuse(error, "--hosts: %.100s: %s", what, why);
}

static bool room_read(const char *text, uint32_t *room)
{
	char *end = NULL;
	unsigned long number = strtoul(text, &end, 10);

	if (*text < '1' || *text > '9' || *end != '\0' || number > LAUNCH_RANKS_MAX)
		return false;
	*room = (uint32_t)number;
	return true;
}

/* "node1", "node1:4", "[fd00::1]:4", "user@node1". */
static bool host_add(struct hosts *hosts, char *word, const char *room, struct option_error *error)
{
	char *colon = strrchr(word, ':'), *bracket = strrchr(word, ']');
	uint32_t said = 0;

	if (colon != NULL && (bracket == NULL || colon > bracket)) {
		*colon = '\0';
		room = colon + 1;
	}
	if (*word == '\0' || *word == '-' || strlen(word) >= HOST_NAME_BYTES)
		return bad(error, word, "this is no host's name");
	if (room != NULL && !room_read(room, &said))
		return bad(error, room, "a host has room for 1 to 4096 ranks");
	for (uint32_t i = 0; i < hosts->count; i++) {
		struct host *old = &hosts->list[i];

		if (strcmp(old->name, word) != 0)
			continue;
		old->room = (old->room > 0 ? old->room : 1) + (said > 0 ? said : 1);
		return true;
	}
	if (hosts->count == HOSTS_MAX)
		return bad(error, word, "there are more than 256 hosts");
	struct host *host = &hosts->list[hosts->count++];

	*host = (struct host) { .room = said };
	(void)snprintf(host->name, sizeof(host->name), "%s", word);
	return true;
}

static bool line_take(char *line, struct hosts *hosts, struct option_error *error)
{
	const char *room = NULL;
	char *rest = NULL;

	line[strcspn(line, "#\n")] = '\0';
	char *name = strtok_r(line, " \t\r", &rest), *more = strtok_r(NULL, " \t\r", &rest);

	if (name == NULL)
		return true;
	if (more != NULL && strncmp(more, "slots=", 6) == 0)
		room = more + 6;
	else if (more != NULL)
		return bad(error, more, "expected slots=N behind a host's name");
	return host_add(hosts, name, room, error);
}

/* What is behind the cut of a line, or behind a byte 0, must not pass for a host. */
static bool file_read(FILE *file, const char *name, struct hosts *hosts, struct option_error *error)
{
	char line[LINE_BYTES];

	while (fgets(line, sizeof(line), file) != NULL) {
		if (strchr(line, '\n') == NULL && !feof(file))
			return option_refuse(error,
					     "--hosts: %s: a line of more than %d bytes, or with a "
					     "byte 0",
					     name, LINE_BYTES - 2);
		if (!line_take(line, hosts, error))
			return false;
	}
	return !ferror(file) || bad(error, name, strerror(errno));
}

bool hosts_read(const char *text, struct hosts *hosts, struct option_error *error)
{
	FILE *file = fopen(text, "re");
	char *rest = NULL;
	bool good = true;

	*hosts = (struct hosts) { 0 };
	if (file != NULL) {
		good = file_read(file, text, hosts, error);
		(void)fclose(file);
	} else if (strchr(text, '/') != NULL) {
		return bad(error, text, strerror(errno));
	} else {
		char *copy = strdup(text);

		for (char *word = copy == NULL ? NULL : strtok_r(copy, ",", &rest);
		     good && word != NULL; word = strtok_r(NULL, ",", &rest))
			good = host_add(hosts, word, NULL, error);
		free(copy);
	}
	return good && (hosts->count > 0 || bad(error, text, "there is no host in it"));
}

bool hosts_deal(struct hosts *hosts, uint32_t ranks, struct option_error *error)
{
	uint32_t room = 0, first = 0;
	bool said = false;

	for (uint32_t i = 0; i < hosts->count; i++) {
		said |= hosts->list[i].room > 0;
		room += hosts->list[i].room > 0 ? hosts->list[i].room : 1;
	}
	ranks = ranks > 0 ? ranks : room;
	if ((said && ranks > room) || ranks > LAUNCH_RANKS_MAX)
		return option_refuse(error, "--hosts: there is room for %u ranks, not for %u",
				     said ? room : LAUNCH_RANKS_MAX, ranks);
	for (uint32_t i = 0; i < hosts->count; i++) {
		struct host *host = &hosts->list[i];
		uint32_t most = host->room > 0 ? host->room : 1;

		if (!said)
			most = ranks / hosts->count + (i < ranks % hosts->count);
		host->first = first;
		host->count = most < ranks - first ? most : ranks - first;
		first += host->count;
	}
	while (hosts->count > 0 && hosts->list[hosts->count - 1].count == 0)
		hosts->count--;
	return true;
}

/* ---- What a part is told ---- */

static void word_add(struct buffer *told, const char *word)
{
	buffer_add(told, word, strlen(word) + 1);
}

static void number_add(struct buffer *told, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", number);
	word_add(told, text);
}

/* The settings of Rubato and of what it loads go along; what tells a rank its place does not. */
static bool goes_along(const char *variable)
{
	static const char *const begin[] = { "RUBATO_", "UCX_", "OMP_",
					     "LD_LIBRARY_PATH=", "PYTHONPATH=" };
	static const char *const stay[] = { "RUBATO_RANK=", "RUBATO_SIZE=", "RUBATO_ROOT=",
					    "RUBATO_SECRET_FILE=" };

	for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++)
		if (strncmp(variable, stay[i], strlen(stay[i])) == 0)
			return false;
	for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++)
		if (strncmp(variable, begin[i], strlen(begin[i])) == 0)
			return true;
	return false;
}

static bool told_make(const struct hosts *hosts, uint32_t which, const struct launch *launch,
		      const char *root, const char *secret, struct buffer *told)
{
	const struct host *host = &hosts->list[which], *last = &hosts->list[hosts->count - 1];
	char folder[4096], length[16];
	struct buffer words = { 0 };
	uint32_t variables = 0;

	if (getcwd(folder, sizeof(folder)) == NULL)
		return false;
	word_add(&words, host->name);
	number_add(&words, last->first + last->count);
	number_add(&words, host->first);
	number_add(&words, host->count);
	number_add(&words, launch->bind_cores);
	number_add(&words, launch->keep_going);
	word_add(&words, root);
	word_add(&words, secret);
	word_add(&words, folder);
	for (char **at = environ; *at != NULL; at++)
		variables += goes_along(*at);
	number_add(&words, variables);
	for (char **at = environ; *at != NULL; at++)
		if (goes_along(*at))
			word_add(&words, *at);
	for (char *const *at = launch->argv; *at != NULL; at++)
		word_add(&words, *at);
	(void)snprintf(length, sizeof(length), "%zu\n", words.used);
	buffer_add(told, length, strlen(length));
	buffer_add(told, words.data, words.used);
	buffer_fini(&words);
	errno = E2BIG;
	return told->used <= TOLD_MAX;
}

/* ---- Here: one ssh a host ---- */

static bool port_draw(uint32_t *port)
{
	if (getrandom(port, sizeof(*port), 0) != (ssize_t)sizeof(*port))
		return false;
	*port = PORT_MIN + *port % PORTS;
	return true;
}

/* "exec '/opt/rubato/bin/rubato-run' --part": for the shell that ssh starts there. */
static bool part_command(char *text, size_t text_bytes)
{
	char path[4096];
	ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (bytes <= 0)
		return false;
	path[bytes] = '\0';
	errno = EINVAL;
	return strchr(path, '\'') == NULL &&
	       (size_t)snprintf(text, text_bytes, "exec '%s' --part", path) < text_bytes;
}

int hosts_launch(const struct hosts *hosts, const struct launch *launch, const char *ssh)
{
	char secret[LAUNCH_SECRET_TEXT], root[HOST_NAME_BYTES + 16], command[4200];
	char *argv[HOSTS_MAX][HOSTS_SSH_WORDS + 3], *const *argvs[HOSTS_MAX], *rest = NULL;
	const char *names[HOSTS_MAX], *first = hosts->list[0].name;
	struct buffer told[HOSTS_MAX] = { { 0 } };
	struct launch all = *launch;
	char *words = strdup(ssh);
	uint32_t port, count = 0;
	bool good = words != NULL && launch_secret_draw(secret) && port_draw(&port) &&
		    part_command(command, sizeof(command));

	for (char *word = good ? strtok_r(words, " ", &rest) : NULL; word != NULL;
	     word = strtok_r(NULL, " ", &rest))
		if (count < HOSTS_SSH_WORDS)
			argv[0][count++] = word;
	if (good)
		(void)snprintf(root, sizeof(root), "%s:%u",
			       strchr(first, '@') != NULL ? strchr(first, '@') + 1 : first, port);
	for (uint32_t i = 0; good && i < hosts->count; i++) {
		names[i] = hosts->list[i].name;
		memcpy(argv[i], argv[0], count * sizeof(argv[0][0]));
		argv[i][count] = (char *)(uintptr_t)names[i];
		argv[i][count + 1] = command;
		argv[i][count + 2] = NULL;
		argvs[i] = argv[i];
		good = told_make(hosts, i, launch, root, secret, &told[i]);
	}
	all.rank_count = hosts->count;
	all.hosts = names;
	all.argvs = argvs;
	all.told = told;
	all.bind_cores = false;
	if (!good)
		perror(launch->program);

	int status = good ? launch_ranks(&all) : EXIT_FAILURE;

	for (uint32_t i = 0; i < hosts->count; i++)
		buffer_fini(&told[i]);
	free(words);
	explicit_bzero(secret, sizeof(secret));
	return status;
}

/* ---- There: the part of one host ---- */

/* NULL: it was not told, or not all of it. */
static char *told_read(size_t *bytes)
{
	char line[16] = "";
	size_t at = 0;

	while (at + 1 < sizeof(line) && read(0, line + at, 1) == 1 && line[at] != '\n')
		at++;
	*bytes = strtoul(line, NULL, 10);
	if (line[at] != '\n' || *bytes == 0 || *bytes > TOLD_MAX)
		return NULL;
	char *told = malloc(*bytes + 1);

	for (at = 0; told != NULL && at < *bytes;) {
		ssize_t got = read(0, told + at, *bytes - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			free(told);
			return NULL;
		}
		at += (size_t)got;
	}
	if (told != NULL)
		told[*bytes] = '\0';
	return told;
}

static char *next(char **at, const char *end)
{
	char *word = *at;

	if (word >= end)
		return NULL;
	*at += strlen(word) + 1;
	return word;
}

static uint32_t next_number(char **at, const char *end)
{
	const char *word = next(at, end);

	return word != NULL ? (uint32_t)strtoul(word, NULL, 10) : 0;
}

/* The command's words, after the rest is in `launch`; NULL: something is missing. */
static char **part_take(char *told, size_t bytes, struct launch *launch, char **host)
{
	char *at = told;
	const char *end = told + bytes;

	*host = next(&at, end);
	launch->size = next_number(&at, end);
	launch->first = next_number(&at, end);
	launch->rank_count = next_number(&at, end);
	launch->bind_cores = next_number(&at, end) != 0;
	launch->keep_going = next_number(&at, end) != 0;
	launch->root = next(&at, end);
	launch->secret = next(&at, end);

	const char *folder = next(&at, end);
	uint32_t variables = next_number(&at, end), count = 0;

	for (uint32_t i = 0; i < variables && at < end; i++)
		(void)putenv(next(&at, end));
	char **argv = calloc(bytes + 1, sizeof(*argv));

	while (argv != NULL && at < end)
		argv[count++] = next(&at, end);
	if (argv == NULL || count == 0 || launch->rank_count == 0 ||
	    launch->rank_count > LAUNCH_RANKS_MAX) {
		free(argv);
		return NULL;
	}
	if (chdir(folder) != 0) {
		(void)fprintf(stderr, "%s: %s: %s: %s\n", launch->program, *host, folder,
			      strerror(errno));
		exit(EXIT_CANNOT_RUN);
	}
	return argv;
}

int hosts_part(const char *program)
{
	struct launch launch = { .program = program, .held = true };
	char name[HOST_NAME_BYTES + 32], *host;
	size_t bytes;
	char *told = told_read(&bytes);
	char **argv = told != NULL ? part_take(told, bytes, &launch, &host) : NULL;

	if (argv == NULL) {
		(void)fprintf(stderr, "%s: --part is for rubato-run --hosts to give\n", program);
		free(told);
		return EXIT_CANNOT_RUN;
	}
	(void)snprintf(name, sizeof(name), "%s: %s", program, host);
	launch.program = name;
	launch.argv = argv;
	launch_cores_say(&launch);

	int status = launch_ranks(&launch);

	free(argv);
	free(told); /* Variables lie in it: nothing of ours runs after this. */
	return status;
}
