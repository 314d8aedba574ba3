/*
 * vectors.c -- see vectors.h.
 *
 * Operations of collectives have a stream of their own, which waits for what computes and never the
 * other way round: the backward pass goes on while buckets of its gradient travel. Who wants a
 * result waits for it in rubato_wait, and what is asked for later comes later.
 */
#include "trainer/cuda/vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_cuda.h"
#include "trainer/cuda/device.h"

#define PIECE_BYTES ((size_t)1 << 20) /* Of a copy from or to memory that is not pinned. */
#define FOLD 256u                     /* Sums of squares that become one. */
#define FOLDED_MOST 256u              /* Of them at most, for the host to add. */
#define SQUARES_EACH 16u              /* Elements of a sum, at least. */

struct tr_vectors_own {
	struct tr_cuda *cuda;
	CUstream side;        /* Of collectives. */
	uint8_t *piece;       /* [PIECE_BYTES], pinned. */
	double *sums;         /* [FOLD * FOLDED_MOST], then [FOLDED_MOST], on the device. */
	rubato_status status; /* Of the first operation that failed; */
	struct tr_error failed;
};

/* Not of a table that has failed already. */
#define DO(own, call)                                                                              \
	do {                                                                                       \
		if ((own)->status == RUBATO_OK)                                                    \
			(own)->status = (call);                                                    \
	} while (0)

static rubato_status device_make(const struct tr_vectors *v, rubato_comm *comm, size_t count,
				 const char *what, float **vector, struct tr_error *error)
{
	struct tr_cuda *cuda = v->own->cuda;
	void *memory;

	(void)comm; /* Collectives ask the driver. */
	(void)what;
	TR_TRY(tr_cuda_alloc(cuda, count * sizeof(float), &memory, error));
	*vector = memory;
	return tr_cuda_clear(cuda, memory, count * sizeof(float), error);
}

static void device_free(const struct tr_vectors *v, rubato_comm *comm, float *vector)
{
	(void)comm;
	tr_cuda_free(v->own->cuda, vector);
}

static rubato_status device_wait(const struct tr_vectors *v, struct tr_error *error)
{
	struct tr_vectors_own *own = v->own;

	DO(own, tr_cuda_wait(own->cuda, &own->failed));
	if (own->status != RUBATO_OK) {
		memcpy(error->text, own->failed.text, sizeof(error->text));
		error->exit_code = own->failed.exit_code;
	}
	return own->status;
}

static rubato_status device_start(const struct tr_vectors *v, rubato_op *op, const char *what,
				  struct tr_error *error)
{
	struct tr_vectors_own *own = v->own;

	DO(own, tr_cuda_order(own->cuda, own->cuda->stream, own->side, &own->failed));
	if (own->status != RUBATO_OK)
		return device_wait(v, error);
	return tr_check(error, rubato_cuda_start(op, own->side), what);
}

/* ---- Copies ---- */

static rubato_status put(struct tr_vectors_own *own, uint8_t *to, const uint8_t *host, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
		size_t length = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		memcpy(own->piece, host + at, length);
		TR_TRY(tr_cuda_copy(own->cuda, to + at, own->piece, length, &own->failed));
		TR_TRY(tr_cuda_wait(own->cuda, &own->failed));
	}
	return RUBATO_OK;
}

static rubato_status get(struct tr_vectors_own *own, uint8_t *host, const uint8_t *from,
			 size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
		size_t length = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		TR_TRY(tr_cuda_copy(own->cuda, own->piece, from + at, length, &own->failed));
		TR_TRY(tr_cuda_wait(own->cuda, &own->failed));
		memcpy(host + at, own->piece, length);
	}
	return RUBATO_OK;
}

static void device_put(const struct tr_vectors *v, float *to, const float *host, size_t count)
{
	DO(v->own, put(v->own, (uint8_t *)to, (const uint8_t *)host, count * sizeof(float)));
}

static void device_get(const struct tr_vectors *v, float *host, const float *from, size_t count)
{
	DO(v->own, get(v->own, (uint8_t *)host, (const uint8_t *)from, count * sizeof(float)));
	if (v->own->status != RUBATO_OK && count > 0)
		memset(host, 0, count * sizeof(float)); /* wait() says that it is nothing. */
}

static void device_zero(const struct tr_vectors *v, float *to, size_t count)
{
	DO(v->own, tr_cuda_clear(v->own->cuda, to, count * sizeof(float), &v->own->failed));
}

static void device_copy(const struct tr_vectors *v, float *to, const float *from, size_t count)
{
	if (to != from)
		DO(v->own,
		   tr_cuda_copy(v->own->cuda, to, from, count * sizeof(float), &v->own->failed));
}

/* ---- Arithmetic ---- */

static void launch(const struct tr_vectors *v, enum tr_cuda_kernel kernel, uint64_t threads,
		   const void *call)
{
	DO(v->own, tr_cuda_launch(v->own->cuda, kernel, threads, call, &v->own->failed));
}

static void device_add(const struct tr_vectors *v, float *to, const float *x, size_t count)
{
	const struct tr_cuda_vector_add call = { to, x, count };

	launch(v, TR_CUDA_vector_add, count, &call);
}

static void device_subtract(const struct tr_vectors *v, float *to, const float *x, const float *y,
			    size_t count)
{
	const struct tr_cuda_vector_subtract call = { to, x, y, count };

	launch(v, TR_CUDA_vector_subtract, count, &call);
}

static void device_scale(const struct tr_vectors *v, float *to, float factor, size_t count)
{
	const struct tr_cuda_vector_scale call = { to, count, factor, 0 };

	launch(v, TR_CUDA_vector_scale, count, &call);
}

static void device_divide(const struct tr_vectors *v, float *to, const float *x, float divisor,
			  size_t count)
{
	const struct tr_cuda_vector_divide call = { to, x, count, divisor, 0 };

	launch(v, TR_CUDA_vector_divide, count, &call);
}

static void device_combine(const struct tr_vectors *v, float *to, float a, const float *x, float b,
			   const float *y, size_t count)
{
	const struct tr_cuda_vector_combine call = { to, x, y, count, a, b };

	launch(v, TR_CUDA_vector_combine, count, &call);
}

static void device_approach(const struct tr_vectors *v, float *to, float a, const float *x,
			    size_t count)
{
	const struct tr_cuda_vector_approach call = { to, x, count, a, 0 };

	launch(v, TR_CUDA_vector_approach, count, &call);
}

/* In an order that depends on nothing but `count`. */
static double square(const struct tr_vectors *v, const float *x, const float *y, size_t count)
{
	struct tr_vectors_own *own = v->own;
	uint64_t folded = count / (FOLD * SQUARES_EACH) + 1;
	double sums[FOLDED_MOST], sum = 0.0;

	if (folded > FOLDED_MOST)
		folded = FOLDED_MOST;
	double *after = own->sums + folded * FOLD;
	const struct tr_cuda_vector_square squares = { own->sums, x, y, count, folded * FOLD };
	const struct tr_cuda_vector_fold fold = { after, own->sums, folded, FOLD };

	launch(v, TR_CUDA_vector_square, folded * FOLD, &squares);
	launch(v, TR_CUDA_vector_fold, folded, &fold);
	DO(own, get(own, (uint8_t *)sums, (const uint8_t *)after, folded * sizeof(*sums)));
	if (own->status != RUBATO_OK)
		return NAN;
	for (uint64_t i = 0; i < folded; i++)
		sum += sums[i];
	return sum;
}

static double device_square(const struct tr_vectors *v, const float *x, size_t count)
{
	return square(v, x, NULL, count);
}

static double device_square_between(const struct tr_vectors *v, const float *x, const float *y,
				    size_t count)
{
	return square(v, x, y, count);
}

static void device_sgd(const struct tr_vectors *v, const struct tr_sgd *update)
{
	const struct tr_cuda_vector_sgd call = {
		.parameters = update->parameters,
		.velocity = update->velocity,
		.gradient = update->gradient,
		.count = update->count,
		.rate = update->rate,
		.momentum = update->momentum,
		.weight_decay = update->weight_decay,
	};

	launch(v, TR_CUDA_vector_sgd, update->count, &call);
}

static void device_adam(const struct tr_vectors *v, const struct tr_adam *update)
{
	const struct tr_cuda_vector_adam call = {
		.parameters = update->parameters,
		.first = update->first,
		.second = update->second,
		.gradient = update->gradient,
		.count = update->count,
		.rate = update->rate,
		.beta1 = update->beta1,
		.beta2 = update->beta2,
		.epsilon = update->epsilon,
		.coupled = update->coupled,
		.decoupled = update->decoupled,
		.scale1 = update->scale1,
		.scale2 = update->scale2,
	};

	launch(v, TR_CUDA_vector_adam, update->count, &call);
}

/* ---- Open and close ---- */

static rubato_status open_own(struct tr_vectors_own *own, struct tr_error *error)
{
	struct tr_cuda *cuda = own->cuda;
	void *memory;

	TR_CUDA_TRY(&cuda->driver, error, cuStreamCreateWithPriority, &own->side,
		    CU_STREAM_NON_BLOCKING, 0);
	TR_TRY(tr_cuda_alloc_host(cuda, PIECE_BYTES, &memory, error));
	own->piece = memory;
	TR_TRY(tr_cuda_alloc(cuda, (FOLD + 1) * FOLDED_MOST * sizeof(double), &memory, error));
	own->sums = memory;
	return RUBATO_OK;
}

rubato_status tr_cuda_vectors_open(struct tr_vectors *out, struct tr_cuda *cuda,
				   struct tr_error *error)
{
	*out = (struct tr_vectors) {
		.own = calloc(1, sizeof(*out->own)),
		.make = device_make,
		.free = device_free,
		.wait = device_wait,
		.start = device_start,
		.put = device_put,
		.get = device_get,
		.zero = device_zero,
		.copy = device_copy,
		.add = device_add,
		.subtract = device_subtract,
		.scale = device_scale,
		.divide = device_divide,
		.combine = device_combine,
		.approach = device_approach,
		.square = device_square,
		.square_between = device_square_between,
		.sgd = device_sgd,
		.adam = device_adam,
	};
	if (out->own == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "--device cuda: out of memory");
	out->own->cuda = cuda;
	out->own->failed.exit_code = TR_EXIT_FAILURE;
	return open_own(out->own, error);
}

void tr_cuda_vectors_close(struct tr_vectors *vectors)
{
	struct tr_vectors_own *own = vectors->own;

	if (own == NULL)
		return;
	if (own->side != NULL) {
		(void)own->cuda->driver.p_cuStreamSynchronize(own->side);
		(void)own->cuda->driver.p_cuStreamDestroy(own->side);
	}
	tr_cuda_free(own->cuda, own->sums);
	tr_cuda_free_host(own->cuda, own->piece);
	free(own);
	vectors->own = NULL;
}
