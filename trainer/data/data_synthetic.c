/*
 * data_synthetic.c -- a plane with noise, as the hyperplane regression of eager-SGD's authors has
 * it: y = a . x + e / 8, where x and e are standard normal and a is normal with length about 1.
 *
 * Row i is a function of the seed and of i alone, and is computed when it is gathered: the usual
 * 32,768 rows of 8,192 numbers would take each rank 1 GB. A byte of splitmix64 picks one of 256
 * equally likely values, the middles of as many slices of the normal distribution, scaled to
 * variance 1. The table is written out, products of two floats are exact in double, and sums have
 * one order, so all machines draw the same numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/streams.h"
#include "trainer/data/data.h"

#define ROWS_DEFAULT 32768
#define DIMS_DEFAULT 8192
#define ROWS_MAX 2000000000u
#define DIMS_MAX (1u << 24)
#define TEST_SHARE 16    /* One test row for so many training rows. */
#define NOISE 0.125      /* A power of two: exact. */
#define PLANE UINT64_MAX /* The number of the row that is the plane's normal. */

/* The upper half; the lower is its mirror. */
static const float upper_half[128] = {
	0.00490811f, 0.01472479f, 0.02454288f, 0.03436333f, 0.04418708f, 0.05401507f, 0.06384826f,
	0.07368759f, 0.08353403f, 0.09338853f, 0.10325206f, 0.11312560f, 0.12301012f, 0.13290662f,
	0.14281609f, 0.15273953f, 0.16267795f, 0.17263240f, 0.18260389f, 0.19259348f, 0.20260223f,
	0.21263121f, 0.22268153f, 0.23275427f, 0.24285056f, 0.25297155f, 0.26311838f, 0.27329224f,
	0.28349433f, 0.29372586f, 0.30398808f, 0.31428225f, 0.32460966f, 0.33497164f, 0.34536953f,
	0.35580471f, 0.36627858f, 0.37679259f, 0.38734820f, 0.39794694f, 0.40859034f, 0.41927999f,
	0.43001753f, 0.44080463f, 0.45164301f, 0.46253444f, 0.47348074f, 0.48448378f, 0.49554549f,
	0.50666787f, 0.51785297f, 0.52910290f, 0.54041986f, 0.55180611f, 0.56326400f, 0.57479593f,
	0.58640443f, 0.59809210f, 0.60986163f, 0.62171582f, 0.63365758f, 0.64568994f, 0.65781604f,
	0.67003916f, 0.68236270f, 0.69479023f, 0.70732545f, 0.71997225f, 0.73273468f, 0.74561698f,
	0.75862359f, 0.77175917f, 0.78502860f, 0.79843701f, 0.81198979f, 0.82569262f, 0.83955147f,
	0.85357266f, 0.86776283f, 0.88212903f, 0.89667870f, 0.91141973f, 0.92636051f, 0.94150993f,
	0.95687745f, 0.97247317f, 0.98830787f, 1.00439305f, 1.02074104f, 1.03736507f, 1.05427935f,
	1.07149920f, 1.08904112f, 1.10692298f, 1.12516413f, 1.14378560f, 1.16281029f, 1.18226322f,
	1.20217179f, 1.22256608f, 1.24347928f, 1.26494808f, 1.28701319f, 1.30972002f, 1.33311939f,
	1.35726846f, 1.38223184f, 1.40808298f, 1.43490586f, 1.46279718f, 1.49186908f, 1.52225264f,
	1.55410253f, 1.58760311f, 1.62297663f, 1.66049459f, 1.70049369f, 1.74339893f, 1.78975789f,
	1.84029387f, 1.89599147f, 1.95824229f, 2.02911021f, 2.11185852f, 2.21213150f, 2.34111330f,
	2.52684899f, 2.89290111f,
};

static float normal_of(uint8_t byte)
{
	return byte < 128 ? upper_half[byte] : -upper_half[255 - byte];
}

static void draw(struct rng *rng, size_t count, float *out)
{
	float values[256];

	for (int i = 0; i < 256; i++)
		values[i] = normal_of((uint8_t)i);
	for (size_t i = 0; i < count; i += 8) {
		uint64_t word = rng_next(rng);
		size_t end = i + 8 < count ? i + 8 : count;

		for (size_t k = i; k < end; k++, word >>= 8)
			out[k] = values[word & 255];
	}
}

void tr_synthetic_row(const struct tr_data *data, uint64_t row, float *x, float *target)
{
	struct rng rng = rng_open(data->seed, TR_STREAM_SYNTHETIC, row);
	size_t count = tr_shape_count(data->shape);
	double sums[8] = { 0 };
	float noise;

	draw(&rng, count, x);
	draw(&rng, 1, &noise);
	for (size_t i = 0; i < count; i++)
		sums[i % 8] += (double)x[i] * (double)data->normal[i];
	for (int k = 1; k < 8; k++)
		sums[0] += sums[k];
	*target = (float)(sums[0] + NOISE * (double)noise);
}

static rubato_status read_size(const char *size, uint64_t *rows, uint64_t *dims,
			       struct tr_error *error)
{
	unsigned long long r, d;
	int end = 0;

	*rows = ROWS_DEFAULT;
	*dims = DIMS_DEFAULT;
	if (size == NULL)
		return RUBATO_OK;
	if (size[strspn(size, "0123456789x")] != '\0' ||
	    sscanf(size, "%10llux%9llu%n", &r, &d, &end) != 2 || size[end] != '\0' || r < 1 ||
	    r > ROWS_MAX || d < 1 || d > DIMS_MAX)
		return tr_refuse(error,
				 "--data synthetic: '%s' is no size ROWSxDIMS of 1 to %u rows and "
				 "1 to %u dimensions",
				 size, ROWS_MAX, DIMS_MAX);
	*rows = r;
	*dims = d;
	return RUBATO_OK;
}

rubato_status tr_synthetic_open(struct tr_data *data, const char *size, struct tr_error *error)
{
	struct rng rng = rng_open(data->seed, TR_STREAM_SYNTHETIC, PLANE);
	uint64_t rows, dims;

	TR_TRY(read_size(size, &rows, &dims, error));
	data->shape = (struct tr_shape) { (uint32_t)dims, 1, 1 };
	data->output_count = 1;
	data->train.rows = rows;
	data->test = (struct tr_part) { .rows = (rows + TEST_SHARE - 1) / TEST_SHARE,
					.first_row = rows };
	data->normal = malloc(dims * sizeof(float));
	if (data->normal == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "synthetic: no memory for %llu dimensions",
			       (unsigned long long)dims);
	draw(&rng, dims, data->normal);
	for (uint64_t i = 0; i < dims; i++)
		data->normal[i] /= sqrtf((float)dims);
	return RUBATO_OK;
}
