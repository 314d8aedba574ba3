/* vectors.c -- see vectors.h: on the host, element by element. */
#include "trainer/base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rubato_status host_make(const struct tr_vectors *v, rubato_comm *comm, size_t count,
			       const char *what, float **vector, struct tr_error *error)
{
	void *memory;

	(void)v;
	if (comm == NULL) {
		*vector = calloc(count, sizeof(float));
		return *vector != NULL || count == 0
			       ? RUBATO_OK
			       : tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", what);
	}
	TR_TRY(tr_check(error, rubato_alloc(comm, count * sizeof(float), &memory), what));
	memset(memory, 0, count * sizeof(float));
	*vector = memory;
	return RUBATO_OK;
}

static void host_free(const struct tr_vectors *v, rubato_comm *comm, float *vector)
{
	(void)v;
	if (comm == NULL)
		free(vector);
	else
		(void)rubato_free(comm, vector);
}

static rubato_status host_wait(const struct tr_vectors *v, struct tr_error *error)
{
	(void)v;
	(void)error;
	return RUBATO_OK;
}

static rubato_status host_start(const struct tr_vectors *v, rubato_op *op, const char *what,
				struct tr_error *error)
{
	(void)v;
	return tr_check(error, rubato_start(op), what);
}

static void host_copy(const struct tr_vectors *v, float *to, const float *from, size_t count)
{
	(void)v;
	if (to != from && count > 0)
		memcpy(to, from, count * sizeof(float));
}

static void host_zero(const struct tr_vectors *v, float *to, size_t count)
{
	(void)v;
	if (count > 0)
		memset(to, 0, count * sizeof(float));
}

static void host_add(const struct tr_vectors *v, float *to, const float *x, size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] += x[i];
}

static void host_subtract(const struct tr_vectors *v, float *to, const float *x, const float *y,
			  size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] = x[i] - y[i];
}

static void host_scale(const struct tr_vectors *v, float *to, float factor, size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] *= factor;
}

static void host_divide(const struct tr_vectors *v, float *to, const float *x, float divisor,
			size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] = x[i] / divisor;
}

static void host_combine(const struct tr_vectors *v, float *to, float a, const float *x, float b,
			 const float *y, size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] = a * x[i] + b * y[i];
}

static void host_approach(const struct tr_vectors *v, float *to, float a, const float *x,
			  size_t count)
{
	(void)v;
	for (size_t i = 0; i < count; i++)
		to[i] += a * (x[i] - to[i]);
}

static double host_square(const struct tr_vectors *v, const float *x, size_t count)
{
	double sum = 0.0;

	(void)v;
	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * x[i];
	return sum;
}

static double host_square_between(const struct tr_vectors *v, const float *x, const float *y,
				  size_t count)
{
	double sum = 0.0;

	(void)v;
	for (size_t i = 0; i < count; i++) {
		float way = x[i] - y[i]; /* Rounded, as it travels. */

		sum += (double)way * way;
	}
	return sum;
}

static void host_sgd(const struct tr_vectors *vectors, const struct tr_sgd *update)
{
	float lr = update->rate, mu = update->momentum, wd = update->weight_decay;
	float *w = update->parameters, *v = update->velocity;
	const float *g = update->gradient;
	size_t count = update->count;

	(void)vectors;
	for (size_t i = 0; v != NULL && i < count; i++) {
		v[i] = mu * v[i] + (g[i] + wd * w[i]);
		w[i] -= lr * v[i];
	}
	for (size_t i = 0; v == NULL && i < count; i++)
		w[i] -= lr * (g[i] + wd * w[i]);
}

static void host_adam(const struct tr_vectors *vectors, const struct tr_adam *update)
{
	const struct tr_adam u = *update; /* Which no vector overlaps. */

	(void)vectors;
	for (size_t i = 0; i < u.count; i++) {
		float g = u.gradient[i] + u.coupled * u.parameters[i];

		u.first[i] = u.beta1 * u.first[i] + (1.0f - u.beta1) * g;
		u.second[i] = u.beta2 * u.second[i] + (1.0f - u.beta2) * g * g;
		u.parameters[i] -= u.decoupled * u.parameters[i];
		u.parameters[i] -= u.rate * (u.first[i] * u.scale1) /
				   (sqrtf(u.second[i] * u.scale2) + u.epsilon);
	}
}

const struct tr_vectors tr_vectors_host = {
	.is_host = true,
	.make = host_make,
	.free = host_free,
	.wait = host_wait,
	.start = host_start,
	.put = host_copy,
	.get = host_copy,
	.zero = host_zero,
	.copy = host_copy,
	.add = host_add,
	.subtract = host_subtract,
	.scale = host_scale,
	.divide = host_divide,
	.combine = host_combine,
	.approach = host_approach,
	.square = host_square,
	.square_between = host_square_between,
	.sgd = host_sgd,
	.adam = host_adam,
};

/* ---- Of any table ---- */

const float *tr_vectors_take(const struct tr_vectors *v, const float *host, float *room,
			     size_t count)
{
	if (v->is_host)
		return host;
	v->put(v, room, host, count);
	return room;
}

rubato_status tr_vectors_map(const struct tr_vectors *v, float *vector, size_t count, float **host,
			     struct tr_error *error)
{
	float *copy = vector;

	if (!v->is_host) {
		copy = malloc(count * sizeof(float));
		if (copy == NULL && count > 0)
			return tr_fail(error, RUBATO_ERR_MEMORY,
				       "a copy of a vector: out of memory");
		v->get(v, copy, vector, count);
		rubato_status err = v->wait(v, error);

		if (err) {
			free(copy);
			return err;
		}
	}
	*host = copy;
	return RUBATO_OK;
}

void tr_vectors_unmap(const struct tr_vectors *v, float *vector, size_t count, float *host,
		      bool changed)
{
	if (v->is_host)
		return;
	if (changed)
		v->put(v, vector, host, count);
	free(host);
}
