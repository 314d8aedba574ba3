/*
 * launcher_device.c -- on the first GPU, from the image that the library carries. Memory is the
 * host's, which the GPU reaches. The driver knows no forks: CK_FORK=no.
 */
#include "tests/cuda/device.h"
#include "tests/cuda/launcher.h"

const uint32_t launcher_slower = 4;

static struct device device;

bool launcher_open(void)
{
	return device_open(&device);
}

void *launcher_memory(size_t bytes)
{
	void *at;

	return device.host_alloc(&at, bytes, 0) == 0 ? at : NULL;
}

void launcher_forget(void *memory)
{
	(void)device.host_free(memory);
}

const char *launcher_run(const char *kernel, unsigned grid, unsigned block, const void *parameters,
			 size_t parameter_bytes, const struct launcher_span *spans,
			 uint32_t span_count)
{
	int error = device_run(&device, kernel, grid, block, parameters);

	(void)parameter_bytes, (void)spans, (void)span_count;
	if (error == 0)
		error = device.context_wait();
	return device_error(&device, error);
}
