/*
 * info_cuda.c -- the doctor's lines on CUDA devices. A communicator of one rank is what knows a
 * device, so each is asked in one of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "rubato_cuda.h"
#include "tools/info/info.h"

#define DEVICES_MAX 64
#define VARIABLE "RUBATO_CUDA"

static rubato_status device_ask(int device, char *text, size_t text_bytes)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm = NULL;
	rubato_status status;
	rubato_id id;

	options.transport = "shm";
	status = rubato_id_create(&id);
	if (status == RUBATO_OK)
		status = rubato_init_id(&comm, &id, 0, 1, &options);
	if (status == RUBATO_OK)
		status = rubato_cuda_use(comm, device);
	if (status == RUBATO_OK)
		status = rubato_cuda_describe(comm, text, text_bytes);
	if (status != RUBATO_OK)
		(void)snprintf(text, text_bytes, "%s", rubato_error_text());
	if (comm != NULL)
		(void)rubato_finalize(comm);
	return status;
}

/* Whether UCX takes a device's memory: as two ranks say that have the first one. */
static void ucx_say(struct info *info)
{
	struct info_probe probe = { .transport = "ucx", .device = true };

	info_probe_one(&probe);
	info_say(info, "CUDA UCX", true, "%s", probe.works ? probe.way : probe.text);
}

/* What stands behind the line's name: "CUDA device 0", or "CUDA: there is none". */
static const char *behind_name(const char *text)
{
	return strncmp(text, "CUDA: ", 6) == 0  ? text + 6
	       : strncmp(text, "CUDA ", 5) == 0 ? text + 5
						: text;
}

static void devices_say(struct info *info)
{
	rubato_status status = RUBATO_OK;
	char text[400];
	const char *said;

	for (int device = 0; device < DEVICES_MAX && status != RUBATO_ERR_ARGUMENT; device++) {
		status = device_ask(device, text, sizeof(text));
		said = behind_name(text);
		if (status == RUBATO_OK)
			info_say(info, "CUDA", true, "%s", said);
		if (status == RUBATO_OK && device == 0)
			ucx_say(info);
		if (status == RUBATO_OK)
			continue;
		if (status == RUBATO_ERR_UNSUPPORTED && device == 0)
			info_say(info, "CUDA", true, "none: %s", said);
		else if (status != RUBATO_ERR_ARGUMENT || device == 0)
			info_say(info, "CUDA", false, "device %d: %s", device, said);
		if (status == RUBATO_ERR_UNSUPPORTED)
			return;
	}
}

void info_cuda(struct info *info)
{
	const char *given = getenv(VARIABLE);
	char *kept = given != NULL ? strdup(given) : NULL;

	/* Else the communicators begin with the device that it names. */
	if ((given != NULL && kept == NULL) || setenv(VARIABLE, "off", 1) != 0) {
		info_say(info, "CUDA", false, "not asked: out of memory");
		free(kept);
		return;
	}
	devices_say(info);
	if (kept != NULL)
		(void)setenv(VARIABLE, kept, 1);
	else
		(void)unsetenv(VARIABLE);
	free(kept);
}
