/*
 * emulated.h -- the kernels of cuda/ and trainer/cuda/, compiled for this processor: blocks one
 * after another, a block's threads one after another; those of a warp that meets are fibers. From
 * any thread.
 */
#ifndef RB_TESTS_EMULATED_H
#define RB_TESTS_EMULATED_H

#include <stddef.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* By its name on the device; NULL: there is none. */
void *emulated_find(const char *kernel_name);
size_t emulated_parameter_bytes(const void *kernel);
/* `parameters`: the kernel's struct (kernels.h). */
void emulated_launch(void *kernel, unsigned grid, unsigned block, const void *parameters);

#if defined(__cplusplus)
}
#endif

#endif
