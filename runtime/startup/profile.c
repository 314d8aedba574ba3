/* profile.c -- see profile.h. */
#include "runtime/startup/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"

#define FILE_BYTES_MAX 65536
#define DIGITS_MAX UINT64_C(99999999999999999) /* More are no measurement. */
#define REASON_BYTES 160

enum kind { TIME, RATE, COUNT, SIZE }; /* us; us a byte; any number; bytes. */

struct unit {
	const char *name;
	enum kind kind;
	double us; /* TIME: of one. RATE: of a byte at one. Others: how many. */
};

static const struct unit units[] = {
	{ "us", TIME, 1 },      { "ms", TIME, 1e3 },    { "s", TIME, 1e6 },     { "Mbit", RATE, 8 },
	{ "Gbit", RATE, 8e-3 }, { "GB/s", RATE, 1e-3 }, { "", COUNT, 1 },       { "", SIZE, 1 },
	{ "K", SIZE, 1 << 10 }, { "M", SIZE, 1 << 20 }, { "G", SIZE, 1 << 30 },
};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

/* What a file says; `said`: it does. The simulator's own need no place in a profile. */
struct said {
	double latency, bandwidth, burst, send, receive;
	double near_latency, near_send, near_receive;
	double core, memory, attach, cache, work, turn;
	double simulated;
};

struct name {
	const char *name;
	enum kind kind;
	size_t at;
};
#define AT(member) offsetof(struct said, member)

static const struct name names[] = {
	{ "latency", TIME, AT(latency) },
	{ "bandwidth", RATE, AT(bandwidth) },
	{ "send", TIME, AT(send) },
	{ "receive", TIME, AT(receive) },
	{ "node-latency", TIME, AT(near_latency) },
	{ "node-send", TIME, AT(near_send) },
	{ "node-receive", TIME, AT(near_receive) },
	{ "core-bandwidth", RATE, AT(core) },
	{ "memory-bandwidth", RATE, AT(memory) },
	{ "attach-bandwidth", RATE, AT(attach) },
	{ "cache", SIZE, AT(cache) },
	{ "work", TIME, AT(work) },
	{ "turn", TIME, AT(turn) },
	{ "cards", COUNT, AT(simulated) },
	{ "cores", COUNT, AT(simulated) },
	{ "machine", COUNT, AT(simulated) },
	{ "stack-bandwidth", RATE, AT(simulated) },
	{ "puts", COUNT, AT(simulated) },
	{ "gap", TIME, AT(simulated) },
	{ "burst", SIZE, AT(burst) },
	{ "cached-bandwidth", RATE, AT(simulated) },
	{ "reduced-bandwidth", RATE, AT(simulated) },
	{ "outer-cache", SIZE, AT(simulated) },
	{ "outer-bandwidth", RATE, AT(simulated) },
	{ "shared-bandwidth", RATE, AT(simulated) },
	{ "shared-latency", TIME, AT(simulated) },
	{ "node-bandwidth", RATE, AT(simulated) },
};
#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

static bool value_read(const struct name *name, const char *text, double *out)
{
	uint64_t digits, scale;
	const char *end = rb_parse_decimal(text, &digits, &scale);
	double number = (double)digits / (double)scale;

	if (digits > DIGITS_MAX)
		end = NULL;
	for (size_t i = 0; end != NULL && i < UNIT_COUNT; i++) {
		if (units[i].kind != name->kind || strcmp(end, units[i].name) != 0)
			continue;
		if (name->kind == RATE)
			*out = number > 0 ? units[i].us / number : 0;
		else
			*out = number * units[i].us;
		return name->kind != RATE || number > 0;
	}
	*out = 0;
	return end != NULL && name->kind == TIME && number == 0 && *end == '\0';
}

/* Writes into the line. False: `why` says what is wrong. */
static bool line_read(char *line, struct said *said, char why[REASON_BYTES])
{
	static const char blanks[] = " \t\r";
	static const char *const forms[] = { "a time, such as 250us or 1.5ms",
					     "a bandwidth, such as 10Gbit or 12.5GB/s", "a number",
					     "a size, such as 125000 or 64K" };
	char *rest = line, *name, *value;

	line[strcspn(line, "#")] = '\0';
	name = strtok_r(line, blanks, &rest);
	value = strtok_r(NULL, blanks, &rest);
	if (name == NULL)
		return true;
	for (size_t i = 0; i < NAME_COUNT; i++) {
		if (strcmp(names[i].name, name) != 0)
			continue;
		if (value != NULL && strtok_r(NULL, blanks, &rest) == NULL &&
		    value_read(&names[i], value, (double *)((char *)said + names[i].at)))
			return true;
		(void)snprintf(why, REASON_BYTES, "%s takes %s%s%.40s", name, forms[names[i].kind],
			       value != NULL ? ", not " : "", value != NULL ? value : "");
		return false;
	}
	(void)snprintf(why, REASON_BYTES, "nothing is named %.40s", name);
	return false;
}

/* 0, or why not. Non-blocking, so that a named pipe is refused, not waited for. */
static int file_open(const char *path, FILE **out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error = 0;
	struct stat about;

	if (fd < 0 || fstat(fd, &about) != 0)
		error = errno;
	else if (!S_ISREG(about.st_mode))
		error = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
	else if ((*out = fdopen(fd, "r")) == NULL)
		error = errno;
	if (error != 0 && fd >= 0)
		(void)close(fd);
	return error;
}

/* With a 0 at its end. */
static rubato_status file_read(const char *path, char *text)
{
	FILE *file;
	size_t bytes = 0;
	int error = file_open(path, &file);

	if (error == 0) {
		bytes = fread(text, 1, FILE_BYTES_MAX, file);
		error = ferror(file) != 0 ? errno : 0;
		(void)fclose(file);
	}
	if (error == EINVAL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "RUBATO_PROFILE=%s: no regular file", path);
	if (error != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "RUBATO_PROFILE=%s: %s", path, strerror(error));
	text[bytes < FILE_BYTES_MAX ? bytes : 0] = '\0';
	if (bytes == FILE_BYTES_MAX || strlen(text) != bytes)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "RUBATO_PROFILE=%s: no text of less than %d bytes", path,
			       FILE_BYTES_MAX);
	return RUBATO_OK;
}

static void speeds_make(const struct said *said, struct rb_profile *profile)
{
	*profile = (struct rb_profile) {
		.network = { .latency_us = said->latency,
			     .byte_us = said->bandwidth,
			     .message_us = (said->send + said->receive) / 2,
			     .burst_bytes = said->burst },
		.node = { .latency_us = said->near_latency,
			  .message_us = (said->near_send + said->near_receive) / 2,
			  .core_byte_us = said->core,
			  .memory_byte_us = said->memory,
			  .attach_copies = said->core > 0 ? said->attach / said->core : 0,
			  .cache_bytes = said->cache,
			  .work_us = said->work,
			  .turn_us = said->turn },
	};
}

rubato_status rb_profile_read(const char *path, struct rb_profile *profile)
{
	char *text = malloc(FILE_BYTES_MAX), *rest = text, *line;
	rubato_status err =
		text != NULL ? file_read(path, text)
			     : RB_FAIL(RUBATO_ERR_MEMORY, "profile: %d bytes", FILE_BYTES_MAX);
	struct said said = { 0 };
	char why[REASON_BYTES];

	for (uint32_t i = 1; err == RUBATO_OK && (line = strsep(&rest, "\n")) != NULL; i++)
		if (!line_read(line, &said, why))
			err = RB_FAIL(RUBATO_ERR_ARGUMENT, "RUBATO_PROFILE=%s, line %u: %s", path,
				      i, why);
	free(text);
	if (err == RUBATO_OK && (said.latency > 0) != (said.bandwidth > 0))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT,
			      "RUBATO_PROFILE=%s: latency and bandwidth are given together, or "
			      "neither",
			      path);
	if (err == RUBATO_OK && said.attach > 0 && said.core == 0)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT,
			      "RUBATO_PROFILE=%s: attach-bandwidth is given with core-bandwidth",
			      path);
	if (err == RUBATO_OK)
		speeds_make(&said, profile);
	return err;
}
