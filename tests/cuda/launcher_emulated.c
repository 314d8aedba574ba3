/* launcher_emulated.c -- on this processor. The sanitizers see what is touched. */
#include <stdlib.h>

#include "tests/cuda/emulated.h"
#include "tests/cuda/launcher.h"

const uint32_t launcher_slower = 1;

bool launcher_open(void)
{
	return true;
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
	void *found = emulated_find(kernel);

	(void)parameter_bytes, (void)spans, (void)span_count;
	if (found == NULL)
		return "there is no such kernel";
	emulated_launch(found, grid, block, parameters);
	return NULL;
}
