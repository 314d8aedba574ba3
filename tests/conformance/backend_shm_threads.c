/* backend_shm_threads.c -- shm between threads of one process. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "shm_threads",
	.ops = &rb_transport_shm,
	.run = conform_run_threads,
};
