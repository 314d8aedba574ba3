/* devices.c -- see devices.h. */
#include "runtime/devices/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "rubato_cuda.h"
#include "runtime/devices/device_cuda.h"
#include "runtime/devices/device_sim.h"

#define CUDA_NUMBER_MAX 65535

rubato_status rb_devices_cuda_read(const char *text, int *number)
{
	char *end;
	unsigned long value;

	*number = strcmp(text, "off") == 0 ? RB_CUDA_OFF : RB_CUDA_AUTO;
	if (*number == RB_CUDA_OFF || strcmp(text, "auto") == 0)
		return RUBATO_OK;
	value = strtoul(text, &end, 10);
	if (*end != '\0' || text[0] < '0' || text[0] > '9' || value > CUDA_NUMBER_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "RUBATO_CUDA=%s: expected auto, off or a device's number", text);
	*number = (int)value;
	return RUBATO_OK;
}

struct rb_executor *rb_devices_cuda(const struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->device_count; i++)
		if (rb_device_is_cuda(engine->devices[i]))
			return engine->devices[i];
	return NULL;
}

/* ---- For transports ---- */

/* NULL: there is none whose memory the network reaches. */
static struct rb_executor *reached(void *arg)
{
	const struct rb_engine *engine = arg;

	for (uint32_t i = 0; i < engine->device_count; i++)
		if (engine->devices[i]->ops->ways != NULL)
			return engine->devices[i];
	return NULL;
}

static uint32_t memory_ways(void *arg, const char **why)
{
	struct rb_executor *device = reached(arg);

	*why = NULL;
	return device != NULL ? device->ops->ways(device, why) : 0;
}

static bool memory_knows(void *arg, const void *address, size_t size_bytes)
{
	struct rb_executor *device = reached(arg);
	enum rb_memory_kind kind = RB_MEMORY_HOST;

	return device != NULL && device->ops->knows(device, address, &kind) >= size_bytes &&
	       kind == RB_MEMORY_DEVICE;
}

static rubato_status memory_export(void *arg, const void *address, size_t size_bytes, int *fd,
				   uint64_t *offset)
{
	struct rb_executor *device = reached(arg);

	return device->ops->export_dmabuf(device, address, size_bytes, fd, offset);
}

static rubato_status memory_copy(void *arg, void *to, const void *from, size_t size_bytes)
{
	struct rb_executor *device = reached(arg);

	return device->ops->copy(device, to, from, size_bytes);
}

static rubato_status memory_flush(void *arg)
{
	struct rb_executor *device = reached(arg);

	return device->ops->flush(device);
}

static void memory_enter(void *arg)
{
	struct rb_executor *device = reached(arg);

	device->ops->enter(device);
}

static void memory_leave(void *arg)
{
	struct rb_executor *device = reached(arg);

	device->ops->leave(device);
}

struct rb_device_memory rb_devices_memory(struct rb_engine *engine)
{
	return (struct rb_device_memory) { .arg = engine,
					   .ways = memory_ways,
					   .knows = memory_knows,
					   .export_dmabuf = memory_export,
					   .copy = memory_copy,
					   .flush = memory_flush,
					   .enter = memory_enter,
					   .leave = memory_leave };
}

/* ---- Opening ---- */

static void device_add(struct rb_engine *engine, struct rb_executor *device)
{
	char text[256];

	engine->devices[engine->device_count++] = device;
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (engine->endpoints[i]->ops->devices_changed != NULL)
			engine->endpoints[i]->ops->devices_changed(engine->endpoints[i]);
	if (!rb_device_is_cuda(device))
		return;
	rb_device_cuda_describe(device, text, sizeof(text));
	RB_LOG(RB_LOG_INFO, "rank %u: %s", engine->rank, text);
}

/* Nobody has asked for it, so that it cannot be used is no error; but who hands us its memory hears
 * why that is none to us. */
static rubato_status cuda_open(struct rb_engine *engine, int number)
{
	struct rb_executor *device = NULL;
	rubato_status err;

	if (number == RB_CUDA_OFF)
		return RUBATO_OK;
	err = rb_device_cuda_open(number, number != RB_CUDA_AUTO, &device);
	if (err != RUBATO_OK && number != RB_CUDA_AUTO)
		return err;
	if (err != RUBATO_OK)
		RB_LOG(RB_LOG_WARN,
		       "rank %u: device memory cannot be used: %s (RUBATO_CUDA=off says nothing)",
		       engine->rank, rubato_error_text());
	if (device != NULL)
		device_add(engine, device);
	return RUBATO_OK;
}

rubato_status rb_devices_open(struct rb_engine *engine, int cuda)
{
	struct rb_executor *device;

	RB_TRY(rb_device_sim_open(engine->endpoints[0], &device));
	if (device != NULL)
		device_add(engine, device);
	return rb_engine_time_is_virtual(engine) ? RUBATO_OK : cuda_open(engine, cuda);
}

rubato_status rb_devices_cuda_use(struct rb_engine *engine, int number)
{
	struct rb_executor *has = rb_devices_cuda(engine), *device = NULL;
	bool same = false;

	if (rb_engine_time_is_virtual(engine))
		return RB_FAIL(
			RUBATO_ERR_UNSUPPORTED,
			"cuda use: a simulated rank has no other device than the simulated one");
	if (number < RUBATO_CUDA_CURRENT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda use: device %d", number);
	if (has != NULL) {
		RB_TRY(rb_device_cuda_is(has, number, &same));
		return same ? RUBATO_OK
			    : RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda use: this communicator uses "
							   "another device already, and "
							   "has one at most");
	}
	if (engine->device_count == RB_DEVICES_MAX)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "cuda use: %d devices are in use",
			       RB_DEVICES_MAX);
	RB_TRY(rb_device_cuda_open(number, true, &device));
	if (device == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "cuda use: the calling thread has no context: none is current");
	device_add(engine, device);
	return RUBATO_OK;
}
