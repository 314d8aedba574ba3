/*
 * data.h -- training and test samples in memory, from Fashion-MNIST's files or from .npy files.
 *
 * Images stay bytes until a batch is gathered (a quarter of the memory, and every rank of a node
 * holds them all); the table turns a byte into the pixel value.
 */
#ifndef TR_DATA_H
#define TR_DATA_H

#include "trainer/compute.h"

#define TR_FASHION_MNIST_DIR "/usr/share/datasets/fashion-mnist" /* Debian's package. */

struct tr_part {
	uint64_t rows;         /* 0: this part is absent. */
	const uint8_t *pixels; /* [rows][features]; or */
	const float *values;   /* [rows][features]; one of the two is NULL. */
	int32_t *labels;       /* [rows], non-negative; or */
	float *targets;        /* [rows][outputs]; one of the two is NULL, both of a text. */
	void *samples_memory;  /* What to free for pixels or values. */
};

struct tr_data {
	struct tr_part train, test;
	struct tr_shape shape; /* Of one sample; vectors have only channels. */
	uint32_t output_count; /* Classes (largest label + 1), or targets of a sample. */
	enum tr_loss loss;     /* What the answers ask for. */
	float pixel[256];
};

/* `source`: "fashion-mnist", "fashion-mnist:DIR" or "npy:DIR" (checked by the options). */
rubato_status tr_data_open(struct tr_data *data, const char *source, struct tr_note *note);
void tr_data_close(struct tr_data *data);

/* Copies rows order[0 .. rows-1] (or first .. first + rows - 1 where order is NULL) as floats. */
void tr_data_gather(const struct tr_data *data, const struct tr_part *part, const uint32_t *order,
		    uint64_t first, uint32_t rows, float *x, int32_t *labels, float *targets);

/* How a text is cut into rows of `context` tokens and one before them (sequence.h). */
enum tr_text_rows {
	TR_TEXT_LINES, /* A line each, without its end, cut off after `context` bytes. */
	TR_TEXT_BLOCKS /* All bytes, in pieces of `context`; a shorter one at the end is left out.
			*/
};

/* Every tenth row is test data. data->output_count: the vocabulary. Refuses bytes 0. */
rubato_status tr_text_open(struct tr_data *data, const char *path, enum tr_text_rows kind,
			   uint32_t context, struct tr_note *note);

/* Where the readers of the two formats start. */
rubato_status tr_idx_open(struct tr_data *data, const char *dir, struct tr_note *note);
rubato_status tr_arrays_open(struct tr_data *data, const char *dir, struct tr_note *note);

#endif
