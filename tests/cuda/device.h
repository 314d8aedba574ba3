/* device.h -- the first GPU, for test programs: the driver's functions by name, and the kernels. */
#ifndef RB_TESTS_DEVICE_H
#define RB_TESTS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_MULTIPROCESSORS 16 /* An attribute: cuda.h has its name. */

struct device {
	int (*init)(unsigned flags);
	int (*get)(int *device, int ordinal);
	int (*name)(char *name, int bytes, int device);
	int (*attribute)(int *value, int attribute, int device);
	int (*context_retain)(void **context, int device);
	int (*context_set)(void *context);
	int (*context_wait)(void);
	int (*module_load)(void **module, const void *image);
	int (*module_function)(void **function, void *module, const char *name);
	int (*host_alloc)(void **at, size_t bytes, unsigned flags);
	int (*host_free)(void *at);
	int (*alloc)(uint64_t *at, size_t bytes);
	int (*copy)(uint64_t to, uint64_t from, size_t bytes);
	int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
		      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
		      void *stream, void **parameters, void **extra);
	int (*error_name)(int error, const char **name);
	int number;
	void *module; /* The kernels. */
};

/* False: there is none here, and it has been said why. */
bool device_open(struct device *device);
const char *device_error(const struct device *device, int error); /* NULL: none. */
/* `parameters`: the kernel's struct. Waits for nothing. */
int device_run(const struct device *device, const char *kernel, unsigned grid, unsigned block,
	       const void *parameters);

#endif
