/*
 * test_text.c -- the trainer's kernels for models of text, wherever they run (launcher.h), give the
 * bits of the plain loops below, and write nothing beside. Where a warp adds up, the loops do so in
 * its order. NaNs are one. With TEXT_FAULTS: copies of the kernels with a fault each
 * (text_faults.py) do not, as the list says.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/check_main.h"
#include "tests/cuda/areas.h"
#include "tests/length.h"
#include "trainer/cuda/kernels.h"
#include "trainer/models/activations.h"

/* Cells are the host's own. */
#define tr_compute_lstm_plain tr_compute_lstm_twin
#define tr_compute_lstm_dnnl tr_compute_lstm_dnnl_twin
#include "trainer/models/compute_lstm.c"

#define WARP 32u

enum kernel {
	EMBED,
	SPLIT,
	MERGE,
	GELU,
	GELU_BACK,
	COLUMNS,
	NORM_COLUMNS,
	GATHER,
	NORM,
	SUM_NORM,
	NORM_BACK,
	SOFTEN,
	SOFTEN_BACK,
	TOKENS,
	CELL,
	CELL_BACK,
	KERNELS
};

struct draw {
	struct areas *a;
	struct rb_rng *rng;
	unsigned grid, block;
	uint32_t rows, count;
	const char *copy; /* With a fault: its kernel. */
};

static uint32_t below(struct draw *d, uint32_t n)
{
	return (uint32_t)rb_rng_below(d->rng, n);
}

static float *host(const struct draw *d, uint32_t area)
{
	return areas_host(d->a, area, 4);
}

static float *device(const struct draw *d, uint32_t area, size_t count, bool written)
{
	return areas_give(d->a, area, 4, count * sizeof(float), written);
}

/* Numbers below `most`, rising from 0 to it if they shall. */
static int32_t *numbers(struct draw *d, uint32_t area, size_t count, uint32_t most, bool rising)
{
	int32_t *at = areas_host(d->a, area, 4), value = 0;

	for (size_t i = 0; i < count; i++) {
		value = rising ? value + (int32_t)below(d, 3) : (int32_t)below(d, most);
		at[i] = i == 0 && rising ? 0 : value < (int32_t)most ? value : (int32_t)most;
		value = at[i];
	}
	memcpy(d->a->device[area], d->a->host[area], AREA_BYTES);
	return at;
}

/* Values as steps of training have them, in place of hostile ones. */
static void gentle(struct draw *d, uint32_t area, size_t count, double spread)
{
	for (size_t i = 0; i < count; i++)
		host(d, area)[i] = (float)(spread * (rb_rng_unit(d->rng) - 0.5));
	memcpy(d->a->device[area], d->a->host[area], AREA_BYTES);
}

/* Its struct gives areas: they are counted when that is made. */
static const char *launch(const struct draw *d, const char *kernel, const void *call, size_t bytes)
{
	return launcher_run(d->copy != NULL ? d->copy : kernel, d->grid, d->block, call, bytes,
			    d->a->spans, d->a->span_count);
}

#define RUN(name, ...)                                                                             \
	launch(d, "tr_" #name, &(const struct tr_cuda_##name) { __VA_ARGS__ },                     \
	       sizeof(struct tr_cuda_##name))

/* ---- A warp's order ---- */

static float lanes_sum(const float each[WARP])
{
	float sums[WARP];

	memcpy(sums, each, sizeof(sums));
	for (uint32_t apart = WARP / 2; apart > 0; apart /= 2)
		for (uint32_t lane = 0; lane < apart; lane++)
			sums[lane] += sums[lane + apart];
	return sums[0];
}

static float along_sum(const float *x, const float *y, uint32_t count)
{
	float lanes[WARP] = { 0 };

	for (uint32_t k = 0; k < count; k++)
		lanes[k % WARP] += y == NULL ? x[k] : x[k] * y[k];
	return lanes_sum(lanes);
}

/* ---- Kernels ---- */

static const char *embed(struct draw *d)
{
	const uint32_t length = 1 + below(d, 5), vocabulary = 1 + below(d, 7);
	const int32_t *in = numbers(d, 3, d->rows, vocabulary, false);

	for (uint32_t i = 0; i < d->rows * d->count; i++)
		host(d, 0)[i] = host(d, 1)[(uint32_t)in[i / d->count] * d->count + i % d->count] +
				host(d, 2)[i / d->count % length * d->count + i % d->count];
	float *to = device(d, 0, d->rows * d->count, true);
	return RUN(embed, .to = to, .tokens = device(d, 1, vocabulary * d->count, false),
		   .positions = device(d, 2, length * d->count, false),
		   .in = (const int32_t *)device(d, 3, d->rows, false), .rows = d->rows,
		   .length = length, .count = d->count);
}

/* Both ways, element by element. */
static const char *heads(struct draw *d, bool back)
{
	const uint32_t length = 1 + below(d, 4), parts = 1 + 2 * below(d, 2);
	const uint32_t many = 1 + below(d, 4), size = 1 + below(d, 9), rows = 1 + below(d, 3);
	const uint32_t width = parts * many * size, all = rows * length * width;
	const bool biased = !back && below(d, 2) == 0;

	for (uint32_t row = 0; row < rows; row++)
		for (uint32_t t = 0; t < length; t++)
			for (uint32_t i = 0; i < width; i++) {
				const uint32_t part = i / size / many, head = i / size % many;
				const uint32_t lies = (row * length + t) * width + i;
				const uint32_t goes =
					(((part * rows + row) * many + head) * length + t) * size +
					i % size;

				if (back)
					host(d, 0)[lies] = host(d, 1)[goes];
				else
					host(d, 0)[goes] = biased ? host(d, 1)[lies] + host(d, 2)[i]
								  : host(d, 1)[lies];
			}
	float *to = device(d, 0, all, true), *from = device(d, 1, all, false);
	if (back)
		return RUN(merge, .to = to, .from = from, .rows = rows, .length = length,
			   .parts = parts, .heads = many, .size = size);
	return RUN(split, .to = to, .from = from,
		   .bias = biased ? device(d, 2, width, false) : NULL, .rows = rows,
		   .length = length, .parts = parts, .heads = many, .size = size);
}

static const char *gelu(struct draw *d, bool back)
{
	const uint32_t all = d->rows * d->count;

	for (uint32_t i = 0; i < all; i++) {
		const float x = host(d, 1)[i] + host(d, 2)[i % d->count];

		host(d, 0)[i] = back ? host(d, 0)[i] * tr_gelu_slope(x) : tr_gelu(x);
	}
	float *to = device(d, 0, all, true), *from = device(d, 1, all, false);
	float *bias = device(d, 2, d->count, false);
	if (back)
		return RUN(gelu_back, .slope = to, .from = from, .bias = bias, .rows = d->rows,
			   .count = d->count);
	return RUN(gelu, .to = to, .from = from, .bias = bias, .rows = d->rows, .count = d->count);
}

static const char *columns(struct draw *d, bool norm)
{
	const uint32_t chunks = 1 + below(d, 4), each = (d->rows + chunks - 1) / chunks;
	const uint32_t all = d->rows * d->count;

	for (uint32_t i = 0; i < chunks * d->count; i++) {
		const uint32_t chunk = i / d->count, k = i % d->count;
		float sum = 0.0f, along = 0.0f;

		for (uint32_t row = chunk * each; row < d->rows && row < (chunk + 1) * each;
		     row++) {
			const float slope = host(d, 1)[row * d->count + k];

			sum += slope;
			along += slope * ((host(d, 2)[row * d->count + k] - host(d, 3)[row]) *
					  host(d, 4)[row]);
		}
		host(d, 0)[norm ? (2 * chunk + 1) * d->count + k : i] = sum;
		if (norm)
			host(d, 0)[2 * chunk * d->count + k] = along;
	}
	float *to = device(d, 0, chunks * d->count * (norm ? 2 : 1), true);
	return RUN(columns, .to = to, .from = device(d, 1, all, false),
		   .value = norm ? device(d, 2, all, false) : NULL,
		   .mean = device(d, 3, d->rows, false), .inverse = device(d, 4, d->rows, false),
		   .rows = d->rows, .count = d->count, .chunks = chunks);
}

static const char *gather(struct draw *d)
{
	const uint32_t groups = 1 + below(d, 9);
	const int32_t *first = numbers(d, 2, groups + 1, 9, true);
	const bool ordered = below(d, 2) == 0;
	const int32_t *order = numbers(d, 3, 9, 9, false);

	for (uint32_t i = 0; i < groups * d->count; i++) {
		float sum = 0.0f;

		for (int32_t j = first[i / d->count]; j < first[i / d->count + 1]; j++)
			sum += host(
				d, 1)[(uint32_t)(ordered ? order[j] : j) * d->count + i % d->count];
		host(d, 0)[i] = sum;
	}
	float *to = device(d, 0, groups * d->count, true);
	return RUN(gather, .to = to, .from = device(d, 1, 9 * d->count, false),
		   .order = ordered ? (const int32_t *)device(d, 3, 9, false) : NULL,
		   .first = (const int32_t *)device(d, 2, groups + 1, false), .groups = groups,
		   .count = d->count);
}

static const char *norm(struct draw *d, bool added)
{
	const uint32_t n = d->count, all = d->rows * n;

	for (uint32_t row = 0; row < d->rows; row++) {
		float *x = host(d, added ? 0 : 4) + row * n, lanes[WARP] = { 0 }, mean, inverse;

		for (uint32_t k = 0; added && k < n; k++)
			x[k] = host(d, 4)[row * n + k] + (host(d, 5)[row * n + k] + host(d, 6)[k]);
		mean = along_sum(x, NULL, n) / (float)n;
		for (uint32_t k = 0; k < n; k++)
			lanes[k % WARP] += (x[k] - mean) * (x[k] - mean);
		inverse = 1.0f / sqrtf(lanes_sum(lanes) / (float)n + TR_CUDA_NORM_EPSILON);
		for (uint32_t k = 0; k < n; k++)
			host(d, 1)[row * n + k] =
				(x[k] - mean) * inverse * host(d, 7)[k] + host(d, 8)[k];
		host(d, 2)[row] = mean;
		host(d, 3)[row] = inverse;
	}
	float *sum = added ? device(d, 0, all, true) : NULL, *out = device(d, 1, all, true);
	float *mean = device(d, 2, d->rows, true), *inverse = device(d, 3, d->rows, true);
	return RUN(norm, .sum = sum, .out = out, .mean = mean, .inverse = inverse,
		   .in = device(d, 4, all, false), .part = device(d, 5, added ? all : 0, false),
		   .bias = device(d, 6, added ? n : 0, false), .gain = device(d, 7, n, false),
		   .shift = device(d, 8, n, false), .rows = d->rows, .count = n);
}

static const char *norm_back(struct draw *d)
{
	const uint32_t n = d->count, all = d->rows * n, add = below(d, 2);

	for (uint32_t row = 0; row < d->rows; row++) {
		const float *x = host(d, 1) + row * n, *slope = host(d, 4) + row * n;
		const float mean = host(d, 2)[row], inverse = host(d, 3)[row];
		float levels[WARP] = { 0 }, alongs[WARP] = { 0 }, level, along;

		for (uint32_t k = 0; k < n; k++) {
			const float s = slope[k] * host(d, 5)[k];

			levels[k % WARP] += s;
			alongs[k % WARP] += s * ((x[k] - mean) * inverse);
		}
		level = lanes_sum(levels) / (float)n;
		along = lanes_sum(alongs) / (float)n;
		for (uint32_t k = 0; k < n; k++) {
			float *to = &host(d, 0)[row * n + k];
			const float value = inverse * (slope[k] * host(d, 5)[k] - level -
						       (x[k] - mean) * inverse * along);

			*to = add != 0 ? *to + value : value;
		}
	}
	float *flow = device(d, 0, all, true);
	return RUN(norm_back, .flow = flow, .value = device(d, 1, all, false),
		   .mean = device(d, 2, d->rows, false), .inverse = device(d, 3, d->rows, false),
		   .slope = device(d, 4, all, false), .gain = device(d, 5, n, false),
		   .rows = d->rows, .count = n, .add = add);
}

static const char *soften(struct draw *d, bool back)
{
	const uint32_t n = d->count, all = d->rows * n;

	if (!back && below(d, 3) > 0)
		gentle(d, 0, all, below(d, 2) == 0 ? 200.0 : 8.0);
	for (uint32_t row = 0; row < d->rows; row++) {
		float *s = host(d, 0) + row * n, best = -3.4e38f, lanes[WARP] = { 0 }, sum;
		const float *p = host(d, 1) + row * n;
		const uint32_t seen = row % n + 1;

		for (uint32_t k = 0; k < seen; k++)
			best = s[k] > best ? s[k] : best;
		for (uint32_t k = 0; k < seen; k++) {
			s[k] = back ? s[k] : tr_exponential(s[k] - best);
			lanes[k % WARP] += back ? p[k] * s[k] : s[k];
		}
		sum = lanes_sum(lanes);
		for (uint32_t k = 0; k < n; k++)
			s[k] = k >= seen ? 0.0f : back ? p[k] * (s[k] - sum) : s[k] / sum;
	}
	float *to = device(d, 0, all, true);
	if (back)
		return RUN(soften_back, .slope = to, .chances = device(d, 1, all, false),
			   .rows = d->rows, .length = n);
	return RUN(soften, .scores = to, .rows = d->rows, .length = n);
}

static const char *tokens(struct draw *d)
{
	const uint32_t n = d->count, all = d->rows * n;
	const int32_t *labels = numbers(d, 3, d->rows, n, false);
	struct tr_cuda_row *rows = areas_host(d->a, 0, 0);
	const bool asked = below(d, 3) > 0;
	const float scale = 1.0f / (float)d->rows;

	gentle(d, 2, all, below(d, 4) == 0 ? 200.0 : 8.0);
	if (below(d, 3) == 0) /* Several that are the greatest. */
		for (uint32_t i = 0; i < all; i++)
			host(d, 2)[i] = floorf(host(d, 2)[i]);
	memcpy(d->a->device[2], d->a->host[2], AREA_BYTES);
	for (uint32_t row = 0; row < d->rows; row++) {
		const float *o = host(d, 2) + row * n;
		float lanes[WARP] = { 0 }, sum;
		uint32_t best = 0;

		for (uint32_t k = 1; k < n; k++)
			best = o[k] > o[best] ? k : best;
		for (uint32_t k = 0; k < n; k++)
			lanes[k % WARP] += tr_exponential(o[k] - o[best]);
		sum = lanes_sum(lanes);
		rows[row].sum = (double)sum;
		rows[row].gap = o[labels[row]] - o[best];
		rows[row].correct = best == (uint32_t)labels[row];
		for (uint32_t k = 0; asked && k < n; k++)
			host(d, 1)[row * n + k] = scale * tr_exponential(o[k] - o[best]) / sum -
						  (k == (uint32_t)labels[row] ? scale : 0.0f);
	}
	void *to = areas_give(d->a, 0, 0, d->rows * sizeof(*rows), true);
	float *slope = asked ? device(d, 1, all, true) : NULL;
	return RUN(loss_tokens, .rows = to, .outputs = device(d, 2, all, false),
		   .labels = (const int32_t *)device(d, 3, d->rows, false), .slope = slope,
		   .row_count = d->rows, .count = n, .scale = scale);
}

static const char *cells(struct draw *d)
{
	const uint32_t h = 1 + below(d, 40), all = d->rows * h, vocabulary = 1 + below(d, 7);
	const bool recurrent = below(d, 2) == 0;
	const uint32_t going_on = below(d, d->rows + 1);
	const int32_t *in = numbers(d, 7, d->rows, vocabulary, false);
	const float *before = recurrent ? host(d, 6) : NULL;

	for (uint32_t row = 0; row < d->rows; row++) {
		float *gates = host(d, 0) + row * 4 * h;
		const float *token = host(d, 5) + (uint32_t)in[row] * 4 * h;

		for (uint32_t k = 0; k < 4 * h; k++)
			gates[k] = recurrent ? gates[k] + token[k] : token[k];
		cell_forward(h, gates, before == NULL ? NULL : before + row * h,
			     host(d, 1) + row * h, host(d, 2) + row * h, host(d, 3) + row * h);
	}
	memcpy(host(d, 4), host(d, 3), (size_t)going_on * h * sizeof(float));
	float *gates = device(d, 0, 4 * all, true), *cell = device(d, 1, all, true);
	return RUN(cell, .gates = gates, .cell = cell, .squashed = device(d, 2, all, true),
		   .state = device(d, 3, all, true), .after = device(d, 4, going_on * h, true),
		   .table = device(d, 5, vocabulary * 4 * h, false),
		   .cell_before = recurrent ? device(d, 6, all, false) : NULL,
		   .in = (const int32_t *)device(d, 7, d->rows, false), .rows = d->rows,
		   .going_on = going_on, .hidden = h, .recurrent = recurrent);
}

static const char *cells_back(struct draw *d)
{
	const uint32_t h = 1 + below(d, 40), all = d->rows * h, going_on = below(d, d->rows + 1);
	const bool first = below(d, 2) == 0;

	for (uint32_t row = 0; row < d->rows; row++)
		cell_backward(h, host(d, 0) + row * 4 * h, first ? NULL : host(d, 2) + row * h,
			      host(d, 3) + row * h, host(d, 4) + row * h,
			      row < going_on ? host(d, 5) + row * h : NULL, host(d, 1) + row * h);
	float *gates = device(d, 0, 4 * all, true), *cell = device(d, 1, all, true);
	return RUN(cell_back, .gates = gates, .back_cell = cell,
		   .cell_before = first ? NULL : device(d, 2, all, false),
		   .squashed = device(d, 3, all, false), .state_slope = device(d, 4, all, false),
		   .back_state = device(d, 5, going_on * h, false), .rows = d->rows,
		   .going_on = going_on, .hidden = h);
}

static const char *run(struct draw *d, enum kernel kernel)
{
	switch (kernel) {
	case EMBED:
		return embed(d);
	case SPLIT:
	case MERGE:
		return heads(d, kernel == MERGE);
	case GELU:
	case GELU_BACK:
		return gelu(d, kernel == GELU_BACK);
	case COLUMNS:
	case NORM_COLUMNS:
		return columns(d, kernel == NORM_COLUMNS);
	case GATHER:
		return gather(d);
	case NORM:
	case SUM_NORM:
		return norm(d, kernel == SUM_NORM);
	case NORM_BACK:
		return norm_back(d);
	case SOFTEN:
	case SOFTEN_BACK:
		return soften(d, kernel == SOFTEN_BACK);
	case CELL:
		return cells(d);
	case CELL_BACK:
		return cells_back(d);
	default:
		return tokens(d);
	}
}

/* One NaN for all. */
static void alike(struct areas *a)
{
	for (uint32_t i = 0; i < AREAS; i++)
		for (uint32_t at = 0; at < AREA_BYTES; at += 4) {
			float one, other;

			memcpy(&one, &a->host[i][at], 4);
			memcpy(&other, &a->device[i][at], 4);
			if (isnan(one) && isnan(other))
				memcpy(&a->device[i][at], &a->host[i][at], 4);
		}
}

static const char *try(struct areas *a, struct rb_rng *rng, enum kernel kernel, const char *copy,
		       char *text, size_t text_bytes)
{
	struct draw d = { .a = a, .rng = rng, .copy = copy };
	const char *error;

	areas_fill(a, rng);
	d.grid = 1 + below(&d, 3);
	d.block = WARP * (1 + below(&d, 3));
	d.rows = 1 + below(&d, 12);
	d.count = 1 + below(&d, below(&d, 2) == 0 ? 12 : 80);
	if (below(&d, 3) > 0) /* Where hostile ones are added up, all sums are alike. */
		for (uint32_t i = 0; i < AREAS; i++)
			gentle(&d, i, AREA_BYTES / 4 - 17, 8.0);
	error = run(&d, kernel);
	alike(a);
	return error != NULL ? error : areas_differ(a, text, text_bytes);
}

#ifdef TEXT_FAULTS
#include "tests/cuda/text_faults.h"

#define TRIES 200
#define TESTS ((int)(sizeof(faults) / sizeof(*faults)))

START_TEST(text_kernels)
{
	struct areas *a = launcher_memory(sizeof(*a));
	const bool there = LAUNCHER_PTX || faults[_i].host != 0;
	const bool silent = !LAUNCHER_PTX && faults[_i].host == 1;
	struct rb_rng rng = { (uint64_t)_i + 1 };
	const char *error = NULL;
	char text[1024], copy[32];

	ck_assert(a != NULL);
	(void)snprintf(copy, sizeof(copy), "rb_fault_%d", _i);
	for (uint32_t i = 0; there && i < TRIES && error == NULL; i++)
		error = try(a, &rng, faults[_i].kernel, copy, text, sizeof(text));
	printf("%s: %s\n", faults[_i].what,
	       !there          ? "only on a device"
	       : error != NULL ? error
			       : "not noticed");
	if (there && silent)
		ck_assert_msg(error == NULL, "%s is noticed: %s", faults[_i].what, error);
	else if (there)
		ck_assert_msg(error != NULL &&
				      (!LAUNCHER_PTX || strstr(error, faults[_i].ptx) != NULL),
			      "%s: %s", faults[_i].what, error != NULL ? error : "not noticed");
	launcher_forget(a);
}
END_TEST
#else
#define TESTS KERNELS

START_TEST(text_kernels)
{
	struct areas *a = launcher_memory(sizeof(*a));
	uint64_t seed = 1;
	const uint32_t draws = (test_length() == TEST_SHORT ? 60 : 300) / launcher_slower;
	const char *error = NULL;
	char text[1024];

	(void)seeds_given(&seed);
	struct rb_rng rng = { seed };

	ck_assert(a != NULL);
	for (uint32_t i = 0; i < draws && error == NULL; i++) {
		error = try(a, &rng, (enum kernel)_i, NULL, text, sizeof(text));
		if (error != NULL)
			ck_abort_msg("kernel %d, draw %u: %s, TEST_SEED=%lu", _i, i, error,
				     (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST
#endif

int main(void)
{
	TCase *tc = tcase_create("text");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, text_kernels, 0, TESTS);
	return check_main("cuda", tc);
}
