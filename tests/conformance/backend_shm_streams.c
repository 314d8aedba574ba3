/* backend_shm_streams.c -- shm between processes that never attach each other's memory. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "shm_streams",
	.ops = &rb_transport_shm,
	.attach = RB_ATTACH_NEVER,
	.run = conform_run_processes,
};
