/*
 * conformance_rdmacm.c -- verbs on the real devices of a guest with one rail, connected by rdmacm;
 * RDMA_VM_DEVICES=siw: on Soft-iWARP's. Ranks are threads, each at its end of the wire.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conformance.h"

static const char *device(uint32_t rank)
{
	const char *devices = getenv("RDMA_VM_DEVICES");

	if (devices != NULL && strcmp(devices, "siw") == 0)
		return rank % 2 == 0 ? "siw0" : "siw1";
	return rank % 2 == 0 ? "rxe0" : "rxe1";
}

const struct conform_backend conform_backend = {
	.name = "verbs by rdmacm, threads",
	.ops = &rb_transport_verbs,
	.connect = RB_CONNECT_RDMACM,
	.interface = device,
	.run = conform_run_threads,
};
