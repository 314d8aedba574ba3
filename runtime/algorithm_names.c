/* algorithm_names.c -- the table of algorithms, for those outside. */
#include <string.h>

#include "collectives/algorithms.h"

const char *rubato_algorithm_name(const char *operation, uint32_t index)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		if (strcmp(rb_kind_name(rb_algorithms[i].kind), operation) == 0 && index-- == 0)
			return rb_algorithms[i].name;
	return NULL;
}
