/*
 * wrong_results.c -- loaded before the library: flips one bit of one float32 allreduce's result on
 * rank 1, so that the benchmark's check has something to find. Says so when it has done it.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "rubato.h"

typedef rubato_status allreduce_fn(rubato_comm *comm, const void *in, void *out, uint64_t count,
				   rubato_type type, rubato_operator op);

rubato_status rubato_allreduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, rubato_operator op)
{
	static int calls; /* One thread calls. */
	union {
		void *data;
		allreduce_fn *call;
	} real = { dlsym(RTLD_NEXT, "rubato_allreduce") };
	rubato_status status = real.call(comm, in, out, count, type, op);

	if (rubato_rank(comm) == 1 && type == RUBATO_FLOAT32 && calls++ == 2) {
		((uint32_t *)out)[count - 1] ^= 1;
		(void)fprintf(stderr, "fault fired\n");
	}
	return status;
}
