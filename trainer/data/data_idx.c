/*
 * data_idx.c -- the MNIST family's IDX files, gzipped: a big-endian magic (0, 0, 8 for bytes, the
 * number of dimensions), the dimensions, the bytes, and nothing after them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "trainer/data/data.h"

#define SIDE_MAX 4096                 /* Pixels. */
#define BYTES_MAX ((uint64_t)1 << 32) /* Of one file: 60 times the training images. */

struct idx {
	uint32_t dims[3];
	uint8_t *bytes;
};

static rubato_status read_failed(gzFile file, const char *path, struct tr_error *error)
{
	int code = Z_OK;
	const char *why = gzerror(file, &code);

	if (code == Z_OK || code == Z_BUF_ERROR)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: truncated", path);
	if (code == Z_ERRNO)
		why = strerror(errno);
	return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: damaged: %s", path, why);
}

static rubato_status read_bytes(gzFile file, const char *path, uint8_t *out, uint64_t count,
				struct tr_error *error)
{
	while (count > 0) {
		unsigned part = count > (1u << 24) ? 1u << 24 : (unsigned)count;
		int got = gzread(file, out, part);

		if (got <= 0 || (unsigned)got != part)
			return read_failed(file, path, error);
		out += part;
		count -= part;
	}
	return RUBATO_OK;
}

static uint32_t big_endian(const uint8_t *b)
{
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static rubato_status read_dims(gzFile file, const char *path, uint32_t rank, uint32_t *dims,
			       uint64_t *count, struct tr_error *error)
{
	uint8_t head[16];

	TR_TRY(read_bytes(file, path, head, 4, error));
	if (big_endian(head) != (0x800u | rank))
		return tr_fail(
			error, RUBATO_ERR_ARGUMENT,
			"%s: wrong magic %08x, %08x is an IDX file of bytes in %u dimensions", path,
			big_endian(head), 0x800u | rank, rank);
	TR_TRY(read_bytes(file, path, head, rank * 4, error));
	*count = 1;
	for (uint32_t i = 0; i < rank; i++) {
		dims[i] = big_endian(head + 4 * (size_t)i);
		if (i > 0 && (dims[i] == 0 || dims[i] > SIDE_MAX))
			return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: images with a side of %u",
				       path, dims[i]);
		*count *= dims[i];
	}
	if (*count > BYTES_MAX)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: %llu bytes are too many", path,
			       (unsigned long long)*count);
	return RUBATO_OK;
}

static rubato_status read_idx(const char *path, uint32_t rank, struct idx *out,
			      struct tr_error *error)
{
	gzFile file = gzopen(path, "rbe");
	struct idx idx = { 0 };
	uint64_t count = 0;
	uint8_t extra;
	rubato_status err;

	if (file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	gzbuffer(file, 1u << 17);
	err = read_dims(file, path, rank, idx.dims, &count, error);
	if (err)
		goto close;
	idx.bytes = malloc(count == 0 ? 1 : count);
	if (idx.bytes == NULL) {
		err = tr_fail(error, RUBATO_ERR_MEMORY, "%s: no memory for %llu bytes", path,
			      (unsigned long long)count);
		goto close;
	}
	err = read_bytes(file, path, idx.bytes, count, error);
	if (err == RUBATO_OK) {
		int got = gzread(file, &extra, 1); /* Also checks gzip's own checksum. */
		if (got > 0)
			err = tr_fail(error, RUBATO_ERR_ARGUMENT,
				      "%s: too long: more data than the header promises", path);
		else if (got < 0)
			err = read_failed(file, path, error);
	}
close:
	gzclose_r(file);
	if (err) {
		free(idx.bytes);
		return err;
	}
	*out = idx;
	return RUBATO_OK;
}

static rubato_status open_part(struct tr_part *part, struct tr_shape *shape, const char *dir,
			       const char *name, struct tr_error *error)
{
	char images_path[TR_PATH_BYTES], labels_path[TR_PATH_BYTES];
	struct idx images, labels;

	TR_TRY(tr_path(images_path, error, "%s/%s-images-idx3-ubyte.gz", dir, name));
	TR_TRY(tr_path(labels_path, error, "%s/%s-labels-idx1-ubyte.gz", dir, name));
	TR_TRY(read_idx(images_path, 3, &images, error));
	part->pixels = part->samples_memory = images.bytes;
	part->rows = images.dims[0];
	*shape = (struct tr_shape) { 1, images.dims[1], images.dims[2] };
	TR_TRY(read_idx(labels_path, 1, &labels, error));
	part->labels = malloc((size_t)labels.dims[0] * sizeof(*part->labels) + 1);
	for (uint32_t i = 0; part->labels != NULL && i < labels.dims[0]; i++)
		part->labels[i] = labels.bytes[i];
	free(labels.bytes);
	if (part->labels == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "%s: out of memory", labels_path);
	if (labels.dims[0] != part->rows)
		return tr_fail(error, RUBATO_ERR_ARGUMENT, "%s: %u labels for %llu images",
			       labels_path, labels.dims[0], (unsigned long long)part->rows);
	return RUBATO_OK;
}

rubato_status tr_idx_open(struct tr_data *data, const char *dir, struct tr_error *error)
{
	struct tr_shape test;

	tr_data_scale(data, 0, 0.286f, 0.353f);
	TR_TRY(open_part(&data->train, &data->shape, dir, "train", error));
	TR_TRY(open_part(&data->test, &test, dir, "t10k", error));
	if (test.height != data->shape.height || test.width != data->shape.width)
		return tr_fail(error, RUBATO_ERR_ARGUMENT,
			       "%s: test images are %u x %u, training images %u x %u", dir,
			       test.height, test.width, data->shape.height, data->shape.width);
	return RUBATO_OK;
}
