/*
 * launcher.h -- where the kernels run that a test looks at: compiled for this processor
 * (launcher_emulated.c), their PTX interpreted (launcher_ptx.c), or on a GPU (launcher_device.c).
 * Which of them, is said by what is linked.
 */
#ifndef RB_TESTS_LAUNCHER_H
#define RB_TESTS_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that a kernel may touch. */
struct launcher_span {
	const void *at;
	size_t bytes;
	bool written;
};

extern const uint32_t launcher_slower; /* How much less there is to do in the same time. */

bool launcher_open(void);            /* False: it cannot run here, and has said why. */
void *launcher_memory(size_t bytes); /* That kernels reach. */
void launcher_forget(void *memory);
/* `parameters`: the kernel's struct. NULL, or what went wrong. */
const char *launcher_run(const char *kernel, unsigned grid, unsigned block, const void *parameters,
			 size_t parameter_bytes, const struct launcher_span *spans,
			 uint32_t span_count);

#endif
