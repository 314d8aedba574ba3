/*
 * fake_library.h -- what the fakes of cuBLAS and cuDNN share: a call is looked at when it is made,
 * and done in the order of its handle's stream by a plain loop. A handle without a stream uses the
 * default one, which waits for no other: there a call is done at once.
 */
#ifndef TESTS_CUDA_FAKE_LIBRARY_H
#define TESTS_CUDA_FAKE_LIBRARY_H

#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fake/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

/* Makes a thing of a library that knows its kind again, and forgets it. */
#define MAKE(out, tag_of)                                                                          \
	do {                                                                                       \
		*(out) = calloc(1, sizeof(**(out)));                                               \
		(*(out))->tag = (tag_of);                                                          \
	} while (0)

/* To so many bits behind the point, ties to even. */
static inline float fake_rounded(float value, unsigned bits)
{
	const unsigned cut = 23 - bits;
	uint32_t word;

	memcpy(&word, &value, sizeof(word));
	if ((word & 0x7f800000) != 0x7f800000) /* Neither infinite nor a NaN. */
		word = (word + (1u << (cut - 1)) - 1 + (word >> cut & 1)) >> cut << cut;
	memcpy(&value, &word, sizeof(word));
	return value;
}

static inline CUresult fake_do(CUstream stream, CUhostFn call, void *parameters, size_t bytes)
{
	if (stream != NULL)
		return fake_cuda_call(stream, call, parameters, bytes);
	call(parameters);
	return CUDA_SUCCESS;
}

#endif
