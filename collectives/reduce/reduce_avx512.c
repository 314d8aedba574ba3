/* reduce_avx512.c -- vectors of 64 bytes. */
#include "collectives/reduce/kernels.h"

#ifdef RB_REDUCE_X86
#define KERNEL rb_reduce_avx512
#define TARGET __attribute__((target("avx512f,avx512dq")))
#define VECTOR_BYTES 64
#define REGISTER "v"
#include "collectives/reduce/vector.h"
#endif
