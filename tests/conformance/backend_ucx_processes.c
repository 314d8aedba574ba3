/* backend_ucx_processes.c -- UCX with all it has on one node; ranks are processes. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "ucx processes",
	.ops = &rb_transport_ucx,
	.tcp_only = false,
	.run = conform_run_processes,
};
