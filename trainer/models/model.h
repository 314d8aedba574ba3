/*
 * model.h -- a model is a list of layers over one flat vector of parameters.
 *
 * The list is all that a compute backend needs: shapes, kinds, and where each layer's weights and
 * biases lie. Parameters come layer by layer, weights row-major with outputs first, then biases:
 *
 *   logistic  dense.weight [outputs][features], dense.bias [outputs]
 *   mlp       hidden.weight [hidden][features], hidden.bias, output.weight [outputs][hidden], ...
 *   cnn       conv1.weight [16][1][3][3], conv1.bias, conv2.weight [32][16][3][3], conv2.bias,
 *             output.weight [outputs][32 * h/4 * w/4], output.bias
 *   resnet20  conv.weight [16][c][3][3], norm.scale [16], norm.shift [16], then the same of two
 *             convolutions for each of nine blocks (16, 32, 64 channels, three blocks each),
 *             output.weight [outputs][64], output.bias
 *   hyperplane  plane.weight [1][features]
 *
 * The models of text, lstm and gpt, have no such list: sequence.h says what they are.
 *
 * In the cnn pooling comes before the rectifier: both keep order, so the function is the usual one,
 * and the rectifier sees a quarter of the values.
 *
 * resnet20 is He, Zhang, Ren, Sun 2016 (section 4.2): where a block halves the image, its shortcut
 * takes every second pixel, and 0 for the channels that are new (their option A).
 *
 * Layer i reads value i, which is the input of the model or the output of layer i - 1.
 */
#ifndef TR_MODEL_H
#define TR_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/error.h"
#include "trainer/models/sequence.h"

enum tr_model_kind { TR_LOGISTIC, TR_MLP, TR_CNN, TR_RESNET20, TR_HYPERPLANE, TR_LSTM, TR_GPT };
extern const char *const tr_model_names[]; /* NULL-terminated, by kind. */

enum tr_layer_kind {
	TR_DENSE,
	TR_CONV,
	TR_RELU,
	TR_MAXPOOL,
	TR_AVGPOOL,
	TR_NORM, /* Over the rows of the batch and the pixels, for each channel. */
	TR_ADD,  /* An earlier value, every stride-th pixel of it; new channels are left alone. */
};
enum tr_loss {
	TR_CROSS_ENTROPY, /* Of the softmax, with integer labels. */
	TR_HALF_SQUARE,   /* Half the squared error, summed over outputs. */
};

#define TR_LAYERS_MAX 72 /* resnet20 has 68. */
#define TR_CONV1_CHANNELS 16
#define TR_CONV2_CHANNELS 32
#define TR_CONV_KERNEL 3
#define TR_RESNET_CHANNELS 16 /* Of its first stage; each stage doubles them. */
#define TR_NORM_EPSILON 1e-5  /* Is added to variances. */
#define TR_NORM_MOMENTUM 0.9  /* Of the running statistics. */

struct tr_shape {
	uint32_t channels, height, width;
};

struct tr_layer {
	enum tr_layer_kind kind;
	const char *name; /* Of its parameters; NULL: it has none. */
	struct tr_shape in, out;
	uint32_t kernel; /* CONV: odd, padded by half of it. Pooling: and stride. */
	uint32_t stride; /* CONV, ADD. */
	uint32_t from;   /* ADD: the number of the value. */
	bool rectified;  /* A rectifier follows: initialise for it. */
	size_t weight_offset, weight_count; /* Floats in the flat vector; NORM: the scales, */
	size_t bias_offset, bias_count;     /* and the shifts. */
	size_t statistics_offset;           /* NORM: means [channels], then variances [channels]. */
};

struct tr_model {
	enum tr_model_kind kind;
	enum tr_loss loss;
	struct tr_shape in;
	uint32_t feature_count, output_count;
	uint32_t layer_count;
	struct tr_layer layers[TR_LAYERS_MAX];
	size_t parameter_count;
	size_t statistics_count;
	struct tr_sequence sequence; /* Of lstm and gpt. */
};

static inline size_t tr_shape_count(struct tr_shape s)
{
	return (size_t)s.channels * s.height * s.width;
}

/* Whether it predicts a text's tokens: rows are as sequence.h says, scores count tokens. */
bool tr_model_reads_text(enum tr_model_kind kind);

/* lstm and gpt: `sequence` says everything. */
rubato_status tr_model_build_text(struct tr_model *model, enum tr_model_kind kind,
				  const struct tr_sequence *sequence, struct tr_error *error);

/* The others. Errors: ARGUMENT, a mistake of the command line, when the model cannot take such
 * samples or answers. */
rubato_status tr_model_build(struct tr_model *model, enum tr_model_kind kind, enum tr_loss loss,
			     struct tr_shape in, uint32_t output_count, uint32_t hidden_count,
			     struct tr_error *error);

/* He uniform before a rectifier, Glorot uniform elsewhere, biases zero, from the seed alone; scales
 * of a normalisation are 1, the hyperplane begins at 0. */
void tr_model_init(const struct tr_model *model, uint64_t seed, float *parameters);

/* Running means 0, variances 1. */
void tr_statistics_init(const struct tr_model *model, float *statistics);
/* One more batch, with these moments over `count` values of each channel: s = 0.9 s + 0.1 m, with
 * the unbiased variance. */
void tr_statistics_follow(const struct tr_layer *layer, float *statistics, const float *mean,
			  const float *variance, uint64_t count);

#endif
