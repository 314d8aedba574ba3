/*
 * store_pmi.c -- PMI 1 as a rank speaks it: a line out, a line back, over the descriptor that
 * PMI_FD names. "cmd=get kvsname=K key=rubato" is answered "cmd=get_result rc=0 value=V".
 *
 * The launcher closes its end when it is told "finalize", so one process can do this once.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/config.h"
#include "runtime/startup/store.h"

#define LINE_BYTES 4096
#define CLOSE_MS 1000 /* To say goodbye. */

/* ---- Lines ---- */

static rubato_status line_send(const struct rb_store *store, const char *line)
{
	size_t bytes = strlen(line), done = 0;

	while (done < bytes) {
		ssize_t put = send(store->fd, line + done, bytes - done, MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return RB_FAIL(RUBATO_ERR_SYSTEM,
				       "the launcher cannot be reached by PMI (PMI_FD=%d): %s; a "
				       "process can meet others by it once",
				       store->fd, strerror(errno));
		done += (size_t)put;
	}
	return RUBATO_OK;
}

static rubato_status readable_wait(int fd, uint64_t deadline_ns, const char *awaited)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	for (;;) {
		uint64_t now = rb_clock_ns();
		uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / 1000000 + 1 : 0;
		int found = poll(&one, 1, left_ms > 60000 ? 60000 : (int)left_ms);

		if (found > 0)
			return RUBATO_OK;
		if (found < 0 && errno != EINTR)
			return RB_FAIL(RUBATO_ERR_SYSTEM, "PMI: %s", strerror(errno));
		if (rb_clock_ns() >= deadline_ns)
			return RB_FAIL(RUBATO_ERR_TIMEOUT,
				       "the launcher did not answer %s by PMI: has a rank not "
				       "called rubato_init?",
				       awaited);
	}
}

/* A byte at a time: what follows the line is not ours to take. */
static rubato_status line_receive(const struct rb_store *store, char *line, const char *awaited,
				  uint64_t deadline_ns)
{
	for (size_t at = 0; at < LINE_BYTES; at++) {
		ssize_t got;

		RB_TRY(readable_wait(store->fd, deadline_ns, awaited));
		do {
			got = recv(store->fd, line + at, 1, 0);
		} while (got < 0 && errno == EINTR);
		if (got <= 0)
			return RB_FAIL(RUBATO_ERR_SYSTEM,
				       "the launcher closed its PMI before it answered %s: a "
				       "process can meet others by it once",
				       awaited);
		if (line[at] != '\n')
			continue;
		line[at] = '\0';
		return RUBATO_OK;
	}
	return RB_FAIL(RUBATO_ERR_MISMATCH, "the launcher's answer to %s by PMI has no end",
		       awaited);
}

/* The value of `key` in "cmd=maxes kvsname_max=256 ..."; false: it is not there, or too long. */
static bool value_of(const char *line, const char *key, char *value, size_t value_bytes)
{
	size_t key_bytes = strlen(key);

	for (const char *word = line; *word != '\0';) {
		size_t bytes = strcspn(word, " ");

		if (bytes > key_bytes && word[key_bytes] == '=' &&
		    strncmp(word, key, key_bytes) == 0) {
			size_t length = bytes - key_bytes - 1;

			if (length >= value_bytes)
				return false;
			memcpy(value, word + key_bytes + 1, length);
			value[length] = '\0';
			return true;
		}
		word += bytes;
		word += strspn(word, " ");
	}
	return false;
}

/* Says `line`, and waits for an answer that is an `answer` and no error. */
static rubato_status ask(const struct rb_store *store, const char *line, const char *answer,
			 char *got, uint64_t deadline_ns)
{
	char awaited[32], word[64];

	(void)snprintf(awaited, sizeof(awaited), "%.*s", (int)strcspn(line, " \n"), line);
	RB_TRY(line_send(store, line));
	RB_TRY(line_receive(store, got, awaited, deadline_ns));
	if (!value_of(got, "cmd", word, sizeof(word)) || strcmp(word, answer) != 0 ||
	    (value_of(got, "rc", word, sizeof(word)) && strcmp(word, "0") != 0))
		return RB_FAIL(RUBATO_ERR_MISMATCH,
			       "the launcher answers %s by PMI with \"%.200s\"", awaited, got);
	return RUBATO_OK;
}

/* ---- The store ---- */

rubato_status rb_store_pmi_open(struct rb_store *store, uint64_t deadline_ns)
{
	const char *fd = rb_config_foreign("PMI_FD");
	char line[LINE_BYTES], number[16];
	char *end = NULL;

	store->fd = fd != NULL ? (int)strtol(fd, &end, 10) : -1;
	if (fd == NULL || *fd < '0' || *fd > '9' || *end != '\0')
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "PMI_FD=%.32s: expected a descriptor",
			       fd != NULL ? fd : "");
	RB_TRY(ask(store, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", line,
		   deadline_ns));
	RB_TRY(ask(store, "cmd=get_maxes\n", "maxes", line, deadline_ns));
	if (!value_of(line, "vallen_max", number, sizeof(number)))
		return RB_FAIL(RUBATO_ERR_MISMATCH, "PMI says no vallen_max: \"%.200s\"", line);
	store->value_max = strtoul(number, NULL, 10);
	RB_TRY(ask(store, "cmd=get_my_kvsname\n", "my_kvsname", line, deadline_ns));
	if (!value_of(line, "kvsname", store->space, sizeof(store->space)))
		return RB_FAIL(RUBATO_ERR_MISMATCH, "PMI says no kvsname: \"%.200s\"", line);
	return RUBATO_OK;
}

rubato_status rb_store_pmi_pass(struct rb_store *store, uint32_t rank, char *text,
				size_t text_bytes, uint64_t deadline_ns)
{
	char line[LINE_BYTES];

	if (rank == 0) {
		if (strlen(text) >= store->value_max)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "the launcher's PMI keeps values below %zu bytes: %zu are "
				       "needed",
				       store->value_max, strlen(text) + 1);
		(void)snprintf(line, sizeof(line), "cmd=put kvsname=%s key=rubato value=%s\n",
			       store->space, text);
		RB_TRY(ask(store, line, "put_result", line, deadline_ns));
	}
	/* What was put before is seen behind it. */
	RB_TRY(ask(store, "cmd=barrier_in\n", "barrier_out", line, deadline_ns));
	if (rank == 0)
		return RUBATO_OK;
	(void)snprintf(line, sizeof(line), "cmd=get kvsname=%s key=rubato\n", store->space);
	RB_TRY(ask(store, line, "get_result", line, deadline_ns));
	if (!value_of(line, "value", text, text_bytes))
		return RB_FAIL(RUBATO_ERR_MISMATCH, "PMI says no value, or a longer one: \"%.64s\"",
			       line);
	return RUBATO_OK;
}

/* A rank that leaves without it counts as one that crashed. Says nothing: an error before it is the
 * one to be told. */
void rb_store_pmi_close(struct rb_store *store)
{
	static const char goodbye[] = "cmd=finalize\n";
	struct pollfd one = { .fd = store->fd, .events = POLLIN };
	ssize_t bytes = sizeof(goodbye) - 1;
	char answer[64];

	if (send(store->fd, goodbye, sizeof(goodbye) - 1, MSG_NOSIGNAL) == bytes &&
	    poll(&one, 1, CLOSE_MS) > 0)
		(void)!recv(store->fd, answer, sizeof(answer), 0);
}
