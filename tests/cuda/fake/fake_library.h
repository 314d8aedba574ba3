/*
 * fake_library.h -- what the fakes of cuBLAS and cuDNN share: a call is looked at when it is made,
 * and done in the order of its handle's stream by a plain loop. A handle without a stream uses the
 * default one, which waits for no other: there a call is done at once.
 */
#ifndef TESTS_CUDA_FAKE_LIBRARY_H
#define TESTS_CUDA_FAKE_LIBRARY_H

#include <stdlib.h>

#include "tests/cuda/fake/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

/* Makes a thing of a library that knows its kind again, and forgets it. */
#define MAKE(out, tag_of)                                                                          \
	do {                                                                                       \
		*(out) = calloc(1, sizeof(**(out)));                                               \
		(*(out))->tag = (tag_of);                                                          \
	} while (0)

static inline CUresult fake_do(CUstream stream, CUhostFn call, void *parameters, size_t bytes)
{
	if (stream != NULL)
		return fake_cuda_call(stream, call, parameters, bytes);
	call(parameters);
	return CUDA_SUCCESS;
}

#endif
