/* partial_forms.c -- see partial_forms.h. */
#include "programs/partial_forms.h"

#include <stddef.h>

const char *const partial_rounds[] = { "aligned", "free", NULL };
const char *const partial_lates[] = { "accumulate", "latest", "drop", NULL };
const char *const partial_normalises[] = { "ranks", "contributors", "samples", NULL };
const char *const partial_collections[] = { "each[:D]", "own", "latest", NULL };
