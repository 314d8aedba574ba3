/* image.h -- kernels.cu as nvcc made it, part of the library: what cuModuleLoadData takes. There
 * only where RB_HAVE_CUDA is defined. */
#ifndef RB_CUDA_IMAGE_H
#define RB_CUDA_IMAGE_H

#include <stddef.h>

extern const unsigned char rb_cuda_image[];
extern const size_t rb_cuda_image_bytes;

#endif
