/* backend_verbs_threads.c -- verbs on a mock device; ranks are threads. */
#include "conformance.h"

const struct conform_backend conform_backend = {
	.name = "verbs threads",
	.ops = &rb_transport_verbs,
	.run = conform_run_threads,
};
