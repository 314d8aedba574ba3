/* reduce_avx2.c -- vectors of 32 bytes. */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#define KERNEL rb_reduce_avx2
#define TARGET __attribute__((target("avx2")))
#define VECTOR_BYTES 32
#define REGISTER "x"
#include "collectives/reduce/vector.h"
#endif
