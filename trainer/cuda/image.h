/* image.h -- the trainer's kernels.cu as nvcc made it: what cuModuleLoadData takes. */
#ifndef TR_CUDA_IMAGE_H
#define TR_CUDA_IMAGE_H

#include <stddef.h>

extern const unsigned char tr_cuda_image[];
extern const size_t tr_cuda_image_bytes;

#endif
