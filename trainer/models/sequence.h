/*
 * sequence.h -- the models of text: what a row of tokens means, and how their parameters lie.
 *
 * A row has length + 1 tokens, as floats. Token k + 1 is what the model predicts after tokens 0 to
 * k, so a row holds questions and answers both. Token 0 stands for no byte: for what comes before a
 * text (first in a row) and for its end. The first 0 after the first token is the last that is
 * predicted; what follows is padding, and neither costs nor counts.
 *
 *   lstm  embedding[V][E], input[4H][E], recurrent[4H][H], bias[4H], output[V][H], bias[V]
 *         (gates in the order input, forget, cell, output; E is TR_LSTM_EMBEDDING)
 *   gpt   tokens[V][D], positions[C][D]; for each of the layers: norm gain[D], shift[D],
 *         qkv[3D][D], bias[3D], mix[D][D], bias[D], norm gain[D], shift[D], up[4D][D], bias[4D],
 *         down[D][4D], bias[D]; then norm gain[D], shift[D], output[V][D]
 */
#ifndef TR_SEQUENCE_H
#define TR_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/base/error.h"

#define TR_LSTM_EMBEDDING 32
#define TR_LSTM_HIDDEN 128
#define TR_LSTM_CONTEXT 512 /* Longest line; the rest of a longer one is cut off. */
#define TR_GPT_CONTEXT 64
#define TR_GPT_LAYERS 2
#define TR_GPT_WIDTH 64
#define TR_GPT_HEADS 4
#define TR_GPT_LAYERS_MAX 12
#define TR_CONTEXT_MAX 65536

struct tr_sequence {
	uint32_t vocabulary;           /* Tokens, with token 0. */
	uint32_t length;               /* Predicted tokens of a row, at most. */
	uint32_t hidden;               /* lstm. */
	uint32_t layers, width, heads; /* gpt. */
};

/* One array of the flat vector. First values: `fill`, or uniform in -bound .. bound. */
struct tr_array {
	const char *name;
	size_t offset, count;
	double bound;
	float fill;
};

enum { /* Arrays of lstm. */
       TR_LSTM_TOKENS,
       TR_LSTM_INPUT,
       TR_LSTM_RECURRENT,
       TR_LSTM_BIAS, /* bias[4H] in three: of the input gate, */
       TR_LSTM_FORGET_BIAS,
       TR_LSTM_OTHER_BIAS,
       TR_LSTM_OUTPUT,
       TR_LSTM_OUTPUT_BIAS,
       TR_LSTM_ARRAYS
};

enum { /* Arrays of gpt: two, those of each layer, three. */
       TR_GPT_TOKENS = 0,
       TR_GPT_POSITIONS,
       TR_GPT_FIRST_LAYER,
       TR_GPT_GAIN1 = 0, /* Within a layer. */
       TR_GPT_SHIFT1,
       TR_GPT_QKV,
       TR_GPT_QKV_BIAS,
       TR_GPT_MIX,
       TR_GPT_MIX_BIAS,
       TR_GPT_GAIN2,
       TR_GPT_SHIFT2,
       TR_GPT_UP,
       TR_GPT_UP_BIAS,
       TR_GPT_DOWN,
       TR_GPT_DOWN_BIAS,
       TR_GPT_LAYER_ARRAYS,
       TR_GPT_GAIN = 0, /* After the last layer. */
       TR_GPT_SHIFT,
       TR_GPT_OUTPUT,
       TR_GPT_LAST_ARRAYS
};
#define TR_ARRAYS_MAX                                                                              \
	(TR_GPT_FIRST_LAYER + TR_GPT_LAYER_ARRAYS * TR_GPT_LAYERS_MAX + TR_GPT_LAST_ARRAYS)

/* Write the arrays in their order and return their number. */
uint32_t tr_lstm_arrays(const struct tr_sequence *s, struct tr_array arrays[TR_ARRAYS_MAX]);
uint32_t tr_gpt_arrays(const struct tr_sequence *s, struct tr_array arrays[TR_ARRAYS_MAX]);

/* How many tokens of a row are predicted: 1 to `length`. */
uint32_t tr_row_tokens(const float *row, uint32_t length);

#endif
