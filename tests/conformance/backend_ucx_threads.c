/* backend_ucx_threads.c -- UCX with all it has on one node; ranks are threads. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "ucx threads",
	.ops = &rb_transport_ucx,
	.tcp_only = false,
	.run = conform_run_threads,
};
