/*
 * data.h -- training and test samples: images of Fashion-MNIST and CIFAR-10, .npy files, or rows
 * that are drawn from the seed.
 *
 * Images stay bytes until a batch is gathered (a quarter of the memory, and every rank of a node
 * holds them all); a table for each channel turns a byte into the pixel value. Drawn rows are
 * computed when they are gathered, from the seed and their number alone.
 */
#ifndef TR_DATA_H
#define TR_DATA_H

#include "trainer/models/compute.h"

#define TR_PIXEL_CHANNELS 3
#define TR_FASHION_MNIST_DIR "/usr/share/datasets/fashion-mnist" /* Debian's package. */

struct tr_part {
	uint64_t rows;         /* 0: this part is absent. */
	const uint8_t *pixels; /* [rows][features]; or */
	const float *values;   /* [rows][features]; or drawn, where both are NULL: */
	uint64_t first_row;    /* the number of its first row. */
	int32_t *labels;       /* [rows], non-negative; or */
	float *targets;        /* [rows][outputs]; or drawn, or in the text, where both are NULL. */
	void *samples_memory;  /* What to free for pixels or values. */
};

struct tr_data {
	struct tr_part train, test;
	struct tr_shape shape; /* Of one sample; vectors have only channels. */
	uint32_t output_count; /* Classes (largest label + 1), or targets of a sample. */
	enum tr_loss loss;     /* What the answers ask for. */
	float pixel[TR_PIXEL_CHANNELS][256];
	uint64_t seed; /* Of drawn rows, */
	float *normal; /* [features]: and the plane that their targets lie around. */
	uint64_t hash; /* tr_data_hash(), once. */
};

/* `source`: "fashion-mnist[:DIR]", "cifar10:DIR", "npy:DIR" or "synthetic[:ROWSxDIMS]", in words
 * that the options have checked, but for the size. */
rubato_status tr_data_open(struct tr_data *data, const char *source, uint64_t seed,
			   struct tr_error *error);
void tr_data_close(struct tr_data *data);
/* Of samples, labels and targets; of drawn ones, whose seed says all, a constant. */
uint64_t tr_data_hash(const struct tr_data *data);

/* Copies rows indices[0 .. rows-1] (or first .. first + rows - 1 where indices is NULL) as
 * floats. */
void tr_data_gather(const struct tr_data *data, const struct tr_part *part, const uint32_t *indices,
		    uint64_t first, uint32_t rows, float *x, int32_t *labels, float *targets);

/* How a text is cut into rows of `context` tokens and one before them (sequence.h). */
enum tr_text_rows {
	TR_TEXT_LINES, /* A line each, without its end, cut off after `context` bytes. */
	TR_TEXT_BLOCKS /* All bytes, in pieces of `context`; a shorter last one is left out. */
};

/* Every tenth row is test data. data->output_count: the vocabulary. Refuses bytes 0. */
rubato_status tr_text_open(struct tr_data *data, const char *path, enum tr_text_rows kind,
			   uint32_t context, struct tr_error *error);

/* The table of a channel: bytes become (byte / 255 - mean) / deviation. */
void tr_data_scale(struct tr_data *data, uint32_t channel, float mean, float deviation);

/* Where the sources start. `size`: "ROWSxDIMS"; NULL: 32768x8192. */
rubato_status tr_idx_open(struct tr_data *data, const char *dir, struct tr_error *error);
rubato_status tr_cifar_open(struct tr_data *data, const char *dir, struct tr_error *error);
rubato_status tr_arrays_open(struct tr_data *data, const char *dir, struct tr_error *error);
rubato_status tr_synthetic_open(struct tr_data *data, const char *size, struct tr_error *error);
void tr_synthetic_row(const struct tr_data *data, uint64_t row, float *x, float *target);

#endif
