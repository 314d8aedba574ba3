/* kernels.h -- the fast twins, where the compiler can make them. */
#ifndef RB_COLLECTIVES_REDUCE_KERNELS_H
#define RB_COLLECTIVES_REDUCE_KERNELS_H

#include "collectives/reduce/reduce.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define RB_REDUCE_X86 1
void rb_reduce_avx2(const struct rb_reduce *reduce);
void rb_reduce_avx512(const struct rb_reduce *reduce);
#endif

#endif
