/*
 * data_cifar.c -- CIFAR-10's binary files (Krizhevsky 2009): records of one byte for the label and
 * 3 x 32 x 32 for the pixels, planes of red, green, blue. Five files of equally many records are
 * the training set, one is the test set.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/data.h"

#define CHANNELS 3
#define SIDE 32
#define PIXELS (CHANNELS * SIDE * SIDE)
#define RECORD (1 + PIXELS)
#define CLASSES 10
#define TRAIN_FILES 5
#define RECORDS_MAX 10000 /* Of a file: as published. */

/* One record, as row `row`. *more: false at the end of the file. */
static rubato_status read_record(FILE *file, const char *path, struct tr_part *part, uint64_t row,
				 bool *more, struct tr_error *error)
{
	uint8_t *pixels = (uint8_t *)part->samples_memory + row * PIXELS;
	uint8_t label;
	size_t got = fread(&label, 1, 1, file);

	*more = got == 1;
	if (*more)
		got = fread(pixels, 1, PIXELS, file);
	if (ferror(file))
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	if (!*more)
		return RUBATO_OK;
	if (got != PIXELS)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: truncated: it ends within a record of %d bytes", path, RECORD);
	if (label >= CLASSES)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: record %llu has the label %u; labels are 0 to %d", path,
			       (unsigned long long)row, label, CLASSES - 1);
	part->labels[row] = label;
	return RUBATO_OK;
}

/* Adds a file to `part`. */
static rubato_status read_file(struct tr_part *part, const char *dir, const char *name,
			       struct tr_error *error)
{
	char path[TR_PATH_BYTES];
	uint64_t first = part->rows;
	rubato_status err = RUBATO_OK;
	bool more = true;
	FILE *file;

	TR_TRY(tr_path(path, error, "%s/%s", dir, name));
	file = fopen(path, "rb");
	if (file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	while (err == RUBATO_OK && more && part->rows - first < RECORDS_MAX) {
		err = read_record(file, path, part, part->rows, &more, error);
		if (more)
			part->rows++;
	}
	if (err == RUBATO_OK && more && fgetc(file) != EOF)
		err = tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: too long: more than %d records",
			      path, RECORDS_MAX);
	else if (err == RUBATO_OK && part->rows == first)
		err = tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: empty", path);
	fclose(file);
	return err;
}

static rubato_status open_part(struct tr_part *part, size_t rows_max, struct tr_error *error)
{
	part->samples_memory = malloc(rows_max * PIXELS);
	part->labels = malloc(rows_max * sizeof(*part->labels));
	part->pixels = part->samples_memory;
	if (part->samples_memory == NULL || part->labels == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "cifar10: no memory for %zu images",
			       rows_max);
	return RUBATO_OK;
}

rubato_status tr_cifar_open(struct tr_data *data, const char *dir, struct tr_error *error)
{
	static const float means[CHANNELS] = { 0.4914f, 0.4822f, 0.4465f };
	static const float deviations[CHANNELS] = { 0.2470f, 0.2435f, 0.2616f };
	uint64_t each = 0;

	data->shape = (struct tr_shape) { CHANNELS, SIDE, SIDE };
	for (uint32_t c = 0; c < CHANNELS; c++)
		tr_data_scale(data, c, means[c], deviations[c]);
	TR_TRY(open_part(&data->train, (size_t)TRAIN_FILES * RECORDS_MAX, error));
	TR_TRY(open_part(&data->test, RECORDS_MAX, error));
	for (int i = 1; i <= TRAIN_FILES; i++) {
		uint64_t before = data->train.rows;
		char name[32];

		snprintf(name, sizeof(name), "data_batch_%d.bin", i);
		TR_TRY(read_file(&data->train, dir, name, error));
		if (i == 1)
			each = data->train.rows;
		if (data->train.rows - before != each)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "%s/%s: %llu records, but data_batch_1.bin has %llu", dir,
				       name, (unsigned long long)(data->train.rows - before),
				       (unsigned long long)each);
	}
	return read_file(&data->test, dir, "test_batch.bin", error);
}
