/* device.c -- nothing of CUDA is linked, and no header of it read. */
#include "tests/cuda/device.h"

#include <dlfcn.h>
#include <stdio.h>

#include "cuda/image.h"

static bool driver_load(struct device *d)
{
	const struct {
		const char *name;
		void **to;
	} functions[] = {
		{ "cuInit", (void **)&d->init },
		{ "cuDeviceGet", (void **)&d->get },
		{ "cuDeviceGetName", (void **)&d->name },
		{ "cuDeviceGetAttribute", (void **)&d->attribute },
		{ "cuDevicePrimaryCtxRetain", (void **)&d->context_retain },
		{ "cuCtxSetCurrent", (void **)&d->context_set },
		{ "cuCtxSynchronize", (void **)&d->context_wait },
		{ "cuModuleLoadData", (void **)&d->module_load },
		{ "cuModuleGetFunction", (void **)&d->module_function },
		{ "cuMemHostAlloc", (void **)&d->host_alloc },
		{ "cuMemFreeHost", (void **)&d->host_free },
		{ "cuMemAlloc_v2", (void **)&d->alloc },
		{ "cuMemcpyDtoD_v2", (void **)&d->copy },
		{ "cuLaunchKernel", (void **)&d->launch },
		{ "cuGetErrorName", (void **)&d->error_name },
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	for (size_t i = 0; library != NULL && i < sizeof(functions) / sizeof(*functions); i++)
		if ((*functions[i].to = dlsym(library, functions[i].name)) == NULL)
			return false;
	return library != NULL;
}

const char *device_error(const struct device *d, int error)
{
	const char *name = "an unknown error";

	if (error == 0)
		return NULL;
	(void)d->error_name(error, &name);
	return name;
}

bool device_open(struct device *d)
{
	const char *error;
	void *context;

	if (!driver_load(d)) {
		(void)fprintf(stderr, "skipped: no CUDA driver\n");
		return false;
	}
	if ((error = device_error(d, d->init(0))) != NULL ||
	    (error = device_error(d, d->get(&d->number, 0))) != NULL ||
	    (error = device_error(d, d->context_retain(&context, d->number))) != NULL ||
	    (error = device_error(d, d->context_set(context))) != NULL ||
	    (error = device_error(d, d->module_load(&d->module, rb_cuda_image))) != NULL)
		(void)fprintf(stderr, "skipped: %s\n", error);
	return error == NULL;
}

int device_run(const struct device *d, const char *kernel, unsigned grid, unsigned block,
	       const void *parameters)
{
	void *given[] = { (void *)(uintptr_t)parameters }, *function;
	int error = d->module_function(&function, d->module, kernel);

	return error != 0 ? error
			  : d->launch(function, grid, 1, 1, block, 1, 1, 0, NULL, given, NULL);
}
