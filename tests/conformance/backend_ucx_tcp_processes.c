/* backend_ucx_tcp_processes.c -- UCX over TCP alone, as between nodes; ranks are processes. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "ucx tcp processes",
	.ops = &rb_transport_ucx,
	.tcp_only = true,
	.run = conform_run_processes,
};
