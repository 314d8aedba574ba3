/* compute.h -- a backend on the fake device beside the plain one: where they differ. */
#ifndef RB_TESTS_CUDA_COMPUTE_H
#define RB_TESTS_CUDA_COMPUTE_H

#include "tests/cuda/fakes.h"
#include "tests/trainer/bench.h"
#include "trainer/cuda/device.h"

/* Of text: few tokens; several pieces of every sum, and more columns than a warp has lanes. */
static const struct shape_case text_cases[] = {
	{ TR_GPT, TR_CROSS_ENTROPY, { 1, 2, 6 }, 5, 8, 3 },
	{ TR_GPT, TR_CROSS_ENTROPY, { 2, 3, 1 }, 11, 6, 2 },
	{ TR_GPT, TR_CROSS_ENTROPY, { 2, 4, 10 }, 40, 36, 7 },
	{ TR_GPT, TR_CROSS_ENTROPY, { 1, 2, 40 }, 3, 4, 2 },
	{ TR_LSTM, TR_CROSS_ENTROPY, { 0, 0, 9 }, 7, 5, 6 },
	{ TR_LSTM, TR_CROSS_ENTROPY, { 0, 0, 1 }, 3, 3, 2 },
	{ TR_LSTM, TR_CROSS_ENTROPY, { 0, 0, 20 }, 40, 36, 11 },
};
#define TEXT_COUNT ((int)(sizeof(text_cases) / sizeof(text_cases[0])))

/* For models on a device from now on. */
extern enum tr_precision device_precision;

struct on_device { /* A model on the device, beside the same on the host. */
	struct bench b;
	const struct tr_compute_ops *ops, *plain;
	struct tr_cuda *cuda;
	float *parameters, *gradient, *statistics;
	float *seen, *seen_statistics; /* Copies of the device's. */
	struct tr_compute *compute, *twin;
};

/* False: the backend did not open, as d->b.error says; closed then. */
bool device_try(struct on_device *d, const struct tr_compute_ops *ops, const struct shape_case *c);
void device_open(struct on_device *d, const struct tr_compute_ops *ops, const struct shape_case *c);
void device_close(struct on_device *d);
/* To or from the device, at once. */
void device_copy(struct on_device *d, void *to, const void *from, size_t count);

/* Two steps, the second twice from the same statistics. NULL, or what was noticed. */
const char *device_differs(const struct tr_compute_ops *ops, const struct shape_case *c,
			   uint64_t seed);

#endif
