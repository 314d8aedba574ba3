/*
 * vectors.h -- vectors in a device's memory: operations are kernels on the stream of computation,
 * so that what a rule asks for comes behind the gradient, and the next step behind that.
 */
#ifndef TR_CUDA_VECTORS_H
#define TR_CUDA_VECTORS_H

#include "trainer/base/vectors.h"

struct tr_cuda;

rubato_status tr_cuda_vectors_open(struct tr_vectors *out, struct tr_cuda *cuda,
				   struct tr_error *error);
void tr_cuda_vectors_close(struct tr_vectors *vectors); /* Of zeros is fine. */

#endif
