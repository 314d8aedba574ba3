/*
 * flat.h -- a call of a conversion or a coder, drawn at random: the kernel (launcher.h) does what
 * its twin does on the host, in all of memory.
 */
#ifndef RB_TESTS_FLAT_H
#define RB_TESTS_FLAT_H

#include "tests/cuda/areas.h"

/* A copy with a fault: it runs where `of` is called for, and nothing else does. */
struct flat_fault {
	const char *of, *kernel;
};

/* NULL, or what differs. */
const char *flat_conversion(struct areas *areas, struct rb_rng *rng, const struct flat_fault *fault,
			    char *text, size_t text_bytes);
const char *flat_coded(struct areas *areas, bool int8, struct rb_rng *rng,
		       const struct flat_fault *fault, char *text, size_t text_bytes);

#endif
