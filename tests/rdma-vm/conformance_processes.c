/*
 * conformance_processes.c -- verbs on the real devices of a guest with one rail.
 *
 * Ranks are processes, each at its end of the wire. What only the mock can tell (no receive was
 * short, no access went astray) is not looked at.
 */
#include "tests/conformance/conformance.h"

static const char *device(uint32_t rank)
{
	return rank % 2 == 0 ? "rxe0" : "rxe1";
}

const struct conform_backend conform_backend = {
	.name = "verbs on Soft-RoCE, processes",
	.ops = &rb_transport_verbs,
	.interface = device,
	.run = conform_run_processes,
};
