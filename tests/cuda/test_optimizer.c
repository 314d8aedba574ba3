/*
 * test_optimizer.c -- the kernels that update parameters, wherever they run (launcher.h), give the
 * bits of the trainer's optimizer over several updates; where one has a NaN, so has the other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/areas.h"
#include "tests/length.h"
#include "trainer/rules/optimizer.h"

#define UPDATES 3

enum area { PARAMETERS, GRADIENT, STATE_0, STATE_1 };

struct optimizer_case {
	struct tr_optimizer twin;
	double rate;
	uint32_t shifts[4];
	unsigned grid, block;
};

static const char *launch(struct areas *a, struct optimizer_case *c)
{
	const size_t bytes = c->twin.count * sizeof(float);
	const float rate = (float)c->rate, decay = c->twin.weight_decay;
	const double t = (double)c->twin.updates;
	float *at[4] = { NULL };

	a->span_count = 0;
	for (uint32_t i = 0; i < 2 + c->twin.state_count; i++)
		at[i] = areas_give(a, i, c->shifts[i], bytes, i != GRADIENT);
	struct rb_cuda_sgd sgd = {
		.parameters = at[PARAMETERS],
		.velocity = c->twin.state_count > 0 ? at[STATE_0] : NULL,
		.gradient = at[GRADIENT],
		.count = c->twin.count,
		.rate = rate,
		.momentum = c->twin.momentum,
		.weight_decay = decay,
	};
	if (c->twin.kind == TR_SGD)
		return launcher_run("rb_sgd", c->grid, c->block, &sgd, sizeof(sgd), a->spans,
				    a->span_count);
	struct rb_cuda_adam adam = {
		.parameters = at[PARAMETERS],
		.first = at[STATE_0],
		.second = at[STATE_1],
		.gradient = at[GRADIENT],
		.count = c->twin.count,
		.rate = rate,
		.beta1 = 0.9f,
		.beta2 = 0.999f,
		.epsilon = 1e-8f,
		.coupled = c->twin.kind == TR_ADAM ? decay : 0.0f,
		.decoupled = c->twin.kind == TR_ADAMW ? rate * decay : 0.0f,
		.scale1 = (float)(1.0 / (1.0 - pow(0.9f, t))),
		.scale2 = (float)(1.0 / (1.0 - pow(0.999f, t))),
	};
	return launcher_run("rb_adam", c->grid, c->block, &adam, sizeof(adam), a->spans,
			    a->span_count);
}

/* One NaN for all: which one arithmetic gives is not said. */
static void nans_alike(struct areas *a)
{
	for (uint32_t i = 0; i < AREAS; i++)
		for (uint32_t at = 0; at < AREA_BYTES; at += 4) {
			float host, device;

			memcpy(&host, &a->host[i][at], 4);
			memcpy(&device, &a->device[i][at], 4);
			if (isnan(host) && isnan(device))
				memcpy(&a->device[i][at], &a->host[i][at], 4);
		}
}

static const char *updates(struct areas *a, enum tr_optimizer_kind kind, struct rb_rng *rng,
			   char *text, size_t text_bytes)
{
	const bool momentum = rb_rng_below(rng, 2) != 0;
	const bool hostile = rb_rng_below(rng, 2) != 0;
	struct optimizer_case c = {
		.twin = { .vectors = &tr_vectors_host,
			  .kind = kind,
			  .momentum = momentum ? 0.9f : 0.0f,
			  .weight_decay = rb_rng_below(rng, 2) != 0 ? 0.01f : 0.0f,
			  .state_count = kind != TR_SGD ? 2 : momentum,
			  .count = rb_rng_below(rng, 400) },
		.rate = rb_rng_unit(rng),
		.grid = 1 + (unsigned)rb_rng_below(rng, 3),
		.block = 1 + (unsigned)rb_rng_below(rng, 40),
	};
	const uint32_t all = (uint32_t)rb_rng_below(rng, 4);
	const bool differ = rb_rng_below(rng, 4) == 0;
	const char *error = NULL;

	areas_fill(a, rng);
	for (uint32_t i = 0; i < 4; i++) {
		c.shifts[i] = 4 * (differ ? (uint32_t)rb_rng_below(rng, 4) : all);
		for (uint32_t at = 0; !hostile && at < AREA_BYTES; at += 4) {
			float value = (float)(rb_rng_unit(rng) - (i == STATE_1 ? 0.0 : 0.5));

			memcpy(&a->host[i][at], &value, 4);
		}
	}
	memcpy(a->device, a->host, sizeof(a->host));
	for (uint32_t i = 0; i < c.twin.state_count; i++)
		c.twin.states[i] = areas_host(a, STATE_0 + i, c.shifts[STATE_0 + i]);
	for (uint32_t u = 0; u < UPDATES && error == NULL; u++) {
		tr_optimizer_next(&c.twin);
		tr_optimizer_apply(&c.twin, c.rate, areas_host(a, GRADIENT, c.shifts[GRADIENT]),
				   areas_host(a, PARAMETERS, c.shifts[PARAMETERS]), 0,
				   c.twin.count);
		error = launch(a, &c);
		nans_alike(a);
		if (error == NULL)
			error = areas_differ(a, text, text_bytes);
	}
	if (error != NULL && error != text)
		(void)snprintf(text, text_bytes, "%s", error);
	if (error != NULL)
		(void)snprintf(text + strlen(text), text_bytes - strlen(text),
			       ": %s, count %zu, momentum %d, decay %g, shifts %u %u",
			       tr_optimizer_names[kind], c.twin.count, momentum,
			       (double)c.twin.weight_decay, c.shifts[0], c.shifts[1]);
	return error != NULL ? text : NULL;
}

START_TEST(updates_are_twins)
{
	struct areas *a = launcher_memory(sizeof(*a));
	uint64_t seed = 1;
	const uint32_t draws = (test_length() == TEST_SHORT ? 200 : 1000) / launcher_slower;
	char text[1024];

	(void)seeds_given(&seed);
	struct rb_rng rng = { seed };

	ck_assert(a != NULL);
	for (uint32_t i = 0; i < draws; i++) {
		const char *error =
			updates(a, (enum tr_optimizer_kind)_i, &rng, text, sizeof(text));

		if (error != NULL)
			ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("optimizer");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, updates_are_twins, TR_SGD, TR_ADAMW + 1);
	return check_main("cuda", tc);
}
