/* backend_ucx_tcp_threads.c -- UCX over TCP alone, as between nodes; ranks are threads. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "ucx tcp threads",
	.ops = &rb_transport_ucx,
	.tcp_only = true,
	.run = conform_run_threads,
};
