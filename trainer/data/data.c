/* data.c -- choosing the reader, what all formats must satisfy, and gathering batches. */
#include "trainer/data/data.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "trainer/base/agree.h"

#define CLASSES_MAX 65536 /* More would be targets in disguise; a bound on the output layer. */

static rubato_status check_labels(const struct tr_part *part, const char *name, int32_t *largest,
				  struct tr_error *error)
{
	for (uint64_t row = 0; row < part->rows; row++) {
		if (part->labels[row] < 0 || part->labels[row] >= CLASSES_MAX)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s labels: row %llu has %d; labels are 0 to %d", name,
				       (unsigned long long)row, part->labels[row], CLASSES_MAX - 1);
		if (part->labels[row] > *largest)
			*largest = part->labels[row];
	}
	return RUBATO_OK;
}

static rubato_status finish(struct tr_data *data, struct tr_error *error)
{
	int32_t largest = 0;

	if (data->train.rows == 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "the training set is empty");
	if (data->train.rows > UINT32_MAX)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "more than 2^32 - 1 samples");
	if (data->train.labels == NULL) {
		data->loss = TR_HALF_SQUARE;
		return RUBATO_OK;
	}
	data->loss = TR_CROSS_ENTROPY;
	TR_TRY(check_labels(&data->train, "training", &largest, error));
	TR_TRY(check_labels(&data->test, "test", &largest, error));
	data->output_count = (uint32_t)largest + 1;
	return RUBATO_OK;
}

void tr_data_scale(struct tr_data *data, uint32_t channel, float mean, float deviation)
{
	for (int i = 0; i < 256; i++)
		data->pixel[channel][i] = ((float)i / 255.0f - mean) / deviation;
}

rubato_status tr_data_open(struct tr_data *data, const char *source, uint64_t seed,
			   struct tr_error *error)
{
	const char *colon = strchr(source, ':');
	rubato_status err;

	*data = (struct tr_data) { .seed = seed };
	if (strncmp(source, "npy:", 4) == 0)
		err = tr_arrays_open(data, source + 4, error);
	else if (strncmp(source, "cifar10:", 8) == 0)
		err = tr_cifar_open(data, source + 8, error);
	else if (strncmp(source, "synthetic", 9) == 0)
		err = tr_synthetic_open(data, colon == NULL ? NULL : colon + 1, error);
	else
		err = tr_idx_open(data, colon == NULL ? TR_FASHION_MNIST_DIR : colon + 1, error);
	if (err == RUBATO_OK)
		err = finish(data, error);
	if (err)
		tr_data_close(data);
	return err;
}

static void close_part(struct tr_part *part)
{
	free(part->samples_memory);
	free(part->labels);
	free(part->targets);
	*part = (struct tr_part) { 0 };
}

void tr_data_close(struct tr_data *data)
{
	close_part(&data->train);
	close_part(&data->test);
	free(data->normal);
	data->normal = NULL;
}

/* CRCs: they take a small part of the time that reading the files takes. */
static uint64_t part_hash(uint64_t hash, const struct tr_data *data, const struct tr_part *part)
{
	size_t samples = part->rows * tr_shape_count(data->shape);
	size_t targets = part->rows * data->output_count;
	uLong sums[3] = { 0 };

	if (part->pixels != NULL)
		sums[0] = crc32_z(0, part->pixels, samples);
	else if (part->values != NULL)
		sums[0] = crc32_z(0, (const Bytef *)part->values, samples * sizeof(float));
	if (part->labels != NULL)
		sums[1] = crc32_z(0, (const Bytef *)part->labels, part->rows * sizeof(int32_t));
	if (part->targets != NULL)
		sums[2] = crc32_z(0, (const Bytef *)part->targets, targets * sizeof(float));
	return tr_hash(hash, sums, sizeof(sums));
}

uint64_t tr_data_hash(const struct tr_data *data)
{
	return part_hash(part_hash(TR_HASH_INIT, data, &data->train), data, &data->test);
}

/* Bytes to floats: each channel of an image has its table, numbers of a vector share one. */
static void scale_pixels(const struct tr_data *data, const uint8_t *pixels, float *to)
{
	size_t plane = (size_t)data->shape.height * data->shape.width;

	for (uint32_t c = 0; c < data->shape.channels; c++) {
		const float *table = data->pixel[plane > 1 ? c : 0];

		for (size_t k = 0; k < plane; k++)
			to[c * plane + k] = table[pixels[c * plane + k]];
	}
}

void tr_data_gather(const struct tr_data *data, const struct tr_part *part, const uint32_t *indices,
		    uint64_t first, uint32_t rows, float *x, int32_t *labels, float *targets)
{
	size_t features = tr_shape_count(data->shape), outputs = data->output_count;

	for (uint32_t i = 0; i < rows; i++) {
		uint64_t row = indices == NULL ? first + i : indices[i];
		float *to = x + i * features;

		if (part->pixels != NULL)
			scale_pixels(data, part->pixels + row * features, to);
		else if (part->values == NULL)
			tr_synthetic_row(data, part->first_row + row, to, targets + i);
		else
			memcpy(to, part->values + row * features, features * sizeof(*to));
		if (part->labels != NULL)
			labels[i] = part->labels[row];
		else if (part->targets != NULL)
			memcpy(targets + i * outputs, part->targets + row * outputs,
			       outputs * sizeof(*targets));
	}
}
