/* backend_verbs_processes.c -- verbs on a mock device; ranks are processes. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "verbs processes",
	.ops = &rb_transport_verbs,
	.run = conform_run_processes,
};
