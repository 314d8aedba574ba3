/* data_npy.c -- a folder with x.npy and y.npy, and perhaps x_test.npy and y_test.npy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/npy.h"
#include "trainer/data/data.h"

#define FEATURES_MAX ((uint64_t)1 << 26)
#define OUTPUTS_MAX 65536

static const char *type_text(const struct tr_npy *a, char *text, size_t text_bytes)
{
	static const char *const names[] = { "float", "int", "uint" };

	snprintf(text, text_bytes, "%s%u", names[a->kind], a->item_bytes * 8);
	return text;
}

static rubato_status check_finite(const char *path, const float *values, uint64_t rows,
				  uint64_t row_count, struct tr_error *error)
{
	for (uint64_t k = 0; k < rows * row_count; k++)
		if (!isfinite(values[k]))
			return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: row %llu holds %s", path,
				       (unsigned long long)(k / row_count),
				       isnan(values[k]) ? "NaN" : "an infinity");
	return RUBATO_OK;
}

/* The shape of one sample: (n, h, w) is an image of one channel, (n, c, h, w) one of c. */
static rubato_status sample_shape(const char *path, const struct tr_npy *a, struct tr_shape *shape,
				  struct tr_error *error)
{
	uint64_t features = 1;

	for (uint32_t i = 1; i < a->rank; i++)
		if (__builtin_mul_overflow(features, a->shape[i], &features))
			features = UINT64_MAX;
	if (a->rank < 1 || features == 0 || features > FEATURES_MAX)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: x needs samples first and 1 to %llu values in each", path,
			       (unsigned long long)FEATURES_MAX);
	if (a->rank == 3)
		*shape = (struct tr_shape) { 1, (uint32_t)a->shape[1], (uint32_t)a->shape[2] };
	else if (a->rank == 4)
		*shape = (struct tr_shape) { (uint32_t)a->shape[1], (uint32_t)a->shape[2],
					     (uint32_t)a->shape[3] };
	else
		*shape = (struct tr_shape) { (uint32_t)features, 1, 1 };
	return RUBATO_OK;
}

/* Bytes are taken for pixels: 0 to 1. */
static rubato_status pixels_scale(struct tr_npy *a, const char *path, struct tr_error *error)
{
	rubato_status err = tr_npy_float32(a, path, error);

	for (uint64_t k = 0; err == RUBATO_OK && k < a->count; k++)
		((float *)a->bytes)[k] /= 255.0f;
	return err;
}

static rubato_status open_samples(struct tr_part *part, struct tr_shape *shape, const char *path,
				  struct tr_error *error)
{
	struct tr_npy a;
	char type[24];
	rubato_status err;

	TR_TRY(tr_npy_read(path, &a, error));
	if (a.kind == TR_NPY_FLOAT)
		err = tr_npy_float32(&a, path, error);
	else if (a.kind == TR_NPY_UNSIGNED && a.item_bytes == 1)
		err = pixels_scale(&a, path, error);
	else
		err = tr_fail(error, RUBATO_ERR_ARGUMENT,
			      "%s: x must be float16, float32, float64 or uint8, this is %s", path,
			      type_text(&a, type, sizeof(type)));
	part->samples_memory = a.bytes;
	part->values = a.bytes;
	if (err)
		return err;
	TR_TRY(sample_shape(path, &a, shape, error));
	part->rows = a.shape[0];
	return check_finite(path, a.bytes, part->rows, tr_shape_count(*shape), error);
}

static rubato_status copy_labels(struct tr_part *part, const char *path, const struct tr_npy *a,
				 struct tr_error *error)
{
	if (a->rank != 1)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: labels need one dimension, not %u",
			       path, a->rank);
	part->labels = malloc(a->count * sizeof(*part->labels) + 1);
	if (part->labels == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", path);
	for (uint64_t k = 0; k < a->count; k++) {
		int64_t label = tr_npy_integer(a, k);

		if (label < 0 && a->kind == TR_NPY_SIGNED)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s: row %llu has the negative label %lld", path,
				       (unsigned long long)k, (long long)label);
		if (label < 0 || label > INT32_MAX)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s: the label of row %llu is out of range", path,
				       (unsigned long long)k);
		part->labels[k] = (int32_t)label;
	}
	return RUBATO_OK;
}

static rubato_status take_targets(struct tr_part *part, const char *path, struct tr_npy *a,
				  uint32_t *output_count, struct tr_error *error)
{
	if ((a->rank != 1 && a->rank != 2) ||
	    (a->rank == 2 && (a->shape[1] == 0 || a->shape[1] > OUTPUTS_MAX)))
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: targets need the shape (n) or (n, k), k from 1 to %d", path,
			       OUTPUTS_MAX);
	*output_count = a->rank == 1 ? 1 : (uint32_t)a->shape[1];
	part->targets = a->bytes;
	a->bytes = NULL;
	return check_finite(path, part->targets, a->shape[0], *output_count, error);
}

static rubato_status open_answers(struct tr_part *part, uint32_t *output_count, const char *path,
				  struct tr_error *error)
{
	struct tr_npy a;
	rubato_status err;

	TR_TRY(tr_npy_read(path, &a, error));
	if (a.rank == 0 || a.shape[0] != part->rows)
		err = tr_fail(error, RUBATO_ERR_ARGUMENT,
			      "%s: shapes do not match: %llu answers for %llu samples", path,
			      (unsigned long long)(a.rank == 0 ? 1 : a.shape[0]),
			      (unsigned long long)part->rows);
	else if (a.kind != TR_NPY_FLOAT)
		err = copy_labels(part, path, &a, error);
	else if ((err = tr_npy_float32(&a, path, error)) == RUBATO_OK)
		err = take_targets(part, path, &a, output_count, error);
	free(a.bytes);
	return err;
}

static rubato_status open_test(struct tr_data *data, const char *x_path, const char *y_path,
			       struct tr_error *error)
{
	struct tr_shape shape;
	uint32_t output_count = 0;

	TR_TRY(open_samples(&data->test, &shape, x_path, error));
	TR_TRY(open_answers(&data->test, &output_count, y_path, error));
	if (memcmp(&shape, &data->shape, sizeof(shape)) != 0)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: samples are %u x %u x %u, those of x.npy %u x %u x %u", x_path,
			       shape.channels, shape.height, shape.width, data->shape.channels,
			       data->shape.height, data->shape.width);
	if ((data->test.targets == NULL) != (data->train.targets == NULL) ||
	    output_count != data->output_count)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: answers are not of the kind and shape of y.npy", y_path);
	return RUBATO_OK;
}

rubato_status tr_arrays_open(struct tr_data *data, const char *dir, struct tr_error *error)
{
	char x[TR_PATH_BYTES], y[TR_PATH_BYTES];
	bool has_x, has_y;

	TR_TRY(tr_path(x, error, "%s/x.npy", dir));
	TR_TRY(tr_path(y, error, "%s/y.npy", dir));
	TR_TRY(open_samples(&data->train, &data->shape, x, error));
	TR_TRY(open_answers(&data->train, &data->output_count, y, error));
	TR_TRY(tr_path(x, error, "%s/x_test.npy", dir));
	TR_TRY(tr_path(y, error, "%s/y_test.npy", dir));
	has_x = access(x, F_OK) == 0;
	has_y = access(y, F_OK) == 0;
	if (has_x != has_y)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: missing, but its partner is there",
			       has_x ? y : x);
	return has_x ? open_test(data, x, y, error) : RUBATO_OK;
}
