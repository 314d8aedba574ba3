/* backend_shm_processes.c -- shm between processes. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "shm_processes",
	.ops = &rb_transport_shm,
	.run = conform_run_processes,
};
