/* launcher_ptx.c -- the PTX that the library carries, interpreted. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/launcher.h"
#include "tests/cuda/ptx/ptx.h"

const uint32_t launcher_slower = 8;

static struct ptx *ptx;

bool launcher_open(void)
{
	static const char path[] = KERNELS_PTX;
	FILE *file = fopen(path, "r");
	char *text = calloc(1, 8 << 20), error[512] = "it cannot be read";

	if (file != NULL && text != NULL && fread(text, 1, (8 << 20) - 1, file) > 0)
		ptx = ptx_read(text, error, sizeof(error));
	if (file != NULL)
		(void)fclose(file);
	free(text);
	if (ptx != NULL)
		return true;
	(void)fprintf(stderr, "%s: %s\n", path, error);
	exit(EXIT_FAILURE);
}

void *launcher_memory(size_t bytes)
{
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void launcher_forget(void *memory)
{
	free(memory);
}

const char *launcher_run(const char *kernel, unsigned grid, unsigned block, const void *parameters,
			 size_t parameter_bytes, const struct launcher_span *spans,
			 uint32_t span_count)
{
	return ptx_run(ptx, kernel, grid, block, parameters, parameter_bytes, spans, span_count);
}
