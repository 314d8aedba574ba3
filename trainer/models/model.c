/* model.c -- the models as layer lists, and their first parameters. */
#include "trainer/models/model.h"

#include <math.h>
#include <string.h>

#include "trainer/base/streams.h"

const char *const tr_model_names[] = { "logistic",   "mlp",  "cnn", "resnet20",
				       "hyperplane", "lstm", "gpt", NULL };

bool tr_model_reads_text(enum tr_model_kind kind)
{
	return kind == TR_LSTM || kind == TR_GPT;
}

static uint32_t text_arrays(const struct tr_model *model, struct tr_array arrays[TR_ARRAYS_MAX])
{
	return model->kind == TR_LSTM ? tr_lstm_arrays(&model->sequence, arrays)
				      : tr_gpt_arrays(&model->sequence, arrays);
}

rubato_status tr_model_build_text(struct tr_model *model, enum tr_model_kind kind,
				  const struct tr_sequence *sequence, struct tr_error *error)
{
	struct tr_array arrays[TR_ARRAYS_MAX];
	uint32_t count;

	if (kind == TR_GPT && sequence->width % sequence->heads != 0)
		return tr_refuse(error, "--width: %u does not divide among %u heads",
				 sequence->width, sequence->heads);
	*model = (struct tr_model) { .kind = kind,
				     .loss = TR_CROSS_ENTROPY,
				     .in = { 1, 1, sequence->length + 1 },
				     .feature_count = sequence->length + 1,
				     .output_count = sequence->vocabulary,
				     .sequence = *sequence };
	count = text_arrays(model, arrays);
	model->parameter_count = arrays[count - 1].offset + arrays[count - 1].count;
	return RUBATO_OK;
}

static void init_text(const struct tr_model *model, uint64_t seed, float *parameters)
{
	struct tr_array arrays[TR_ARRAYS_MAX];
	uint32_t count = text_arrays(model, arrays);

	for (uint32_t i = 0; i < count; i++) {
		struct rng rng = rng_open(seed, TR_STREAM_INIT, i);
		float *at = parameters + arrays[i].offset;

		for (size_t k = 0; k < arrays[i].count; k++)
			at[k] = arrays[i].bound == 0.0
					? arrays[i].fill
					: (float)(arrays[i].bound * (2.0 * rng_unit(&rng) - 1.0));
	}
}

/* Of the value that the next layer reads. */
static struct tr_shape last_shape(const struct tr_model *model)
{
	return model->layer_count == 0 ? model->in : model->layers[model->layer_count - 1].out;
}

static struct tr_layer *add_layer(struct tr_model *model, enum tr_layer_kind kind, const char *name,
				  uint32_t kernel, struct tr_shape out)
{
	struct tr_shape in = last_shape(model);
	struct tr_layer *layer = &model->layers[model->layer_count++];

	*layer = (struct tr_layer) {
		.kind = kind, .name = name, .kernel = kernel, .stride = 1, .in = in, .out = out
	};
	return layer;
}

static void add_parameters(struct tr_model *model, struct tr_layer *layer, size_t weight_count,
			   size_t bias_count)
{
	layer->weight_offset = model->parameter_count;
	layer->weight_count = weight_count;
	layer->bias_offset = layer->weight_offset + weight_count;
	layer->bias_count = bias_count;
	model->parameter_count = layer->bias_offset + bias_count;
}

static void add_dense(struct tr_model *model, const char *name, uint32_t outputs, bool biased,
		      bool rectified)
{
	struct tr_layer *layer =
		add_layer(model, TR_DENSE, name, 0, (struct tr_shape) { outputs, 1, 1 });

	layer->rectified = rectified;
	add_parameters(model, layer, tr_shape_count(layer->in) * outputs, biased ? outputs : 0);
	if (rectified)
		add_layer(model, TR_RELU, NULL, 0, layer->out);
}

static void add_conv(struct tr_model *model, const char *name, uint32_t channels, uint32_t stride,
		     bool biased)
{
	struct tr_shape in = last_shape(model);
	struct tr_shape out = { channels, (in.height + stride - 1) / stride,
				(in.width + stride - 1) / stride };
	struct tr_layer *conv = add_layer(model, TR_CONV, name, TR_CONV_KERNEL, out);

	conv->stride = stride;
	conv->rectified = true;
	add_parameters(model, conv,
		       (size_t)channels * in.channels * TR_CONV_KERNEL * TR_CONV_KERNEL,
		       biased ? channels : 0);
}

/* Convolution, pooling by two, rectifier. */
static void add_conv_pool(struct tr_model *model, const char *name, uint32_t channels)
{
	struct tr_shape in = last_shape(model);
	struct tr_shape half = { channels, in.height / 2, in.width / 2 };

	add_conv(model, name, channels, 1, true);
	add_layer(model, TR_MAXPOOL, NULL, 2, half);
	add_layer(model, TR_RELU, NULL, 0, half);
}

/* Convolution without biases (the shifts do their work), normalisation. */
static void add_conv_norm(struct tr_model *model, uint32_t channels, uint32_t stride)
{
	add_conv(model, "conv", channels, stride, false);
	struct tr_layer *norm = add_layer(model, TR_NORM, "norm", 0, last_shape(model));
	add_parameters(model, norm, channels, channels);
	norm->statistics_offset = model->statistics_count;
	model->statistics_count += 2 * (size_t)channels;
}

static void add_block(struct tr_model *model, uint32_t channels, uint32_t stride)
{
	uint32_t from = model->layer_count;

	add_conv_norm(model, channels, stride);
	add_layer(model, TR_RELU, NULL, 0, last_shape(model));
	add_conv_norm(model, channels, 1);
	struct tr_layer *add = add_layer(model, TR_ADD, NULL, 0, last_shape(model));
	add->from = from;
	add->stride = stride;
	add_layer(model, TR_RELU, NULL, 0, last_shape(model));
}

static void add_resnet20(struct tr_model *model)
{
	add_conv_norm(model, TR_RESNET_CHANNELS, 1);
	add_layer(model, TR_RELU, NULL, 0, last_shape(model));
	for (uint32_t stage = 0; stage < 3; stage++)
		for (uint32_t block = 0; block < 3; block++)
			add_block(model, (uint32_t)TR_RESNET_CHANNELS << stage,
				  stage > 0 && block == 0 ? 2 : 1);
	struct tr_shape last = last_shape(model);
	add_layer(model, TR_AVGPOOL, NULL, last.height, (struct tr_shape) { last.channels, 1, 1 });
	add_dense(model, "output", model->output_count, true, false);
}

static rubato_status refuse_samples(const struct tr_model *model, const char *wants,
				    struct tr_error *error)
{
	return tr_refuse(error, "--model %s needs %s, but the data has samples of %u x %u x %u",
			 tr_model_names[model->kind], wants, model->in.channels, model->in.height,
			 model->in.width);
}

rubato_status tr_model_build(struct tr_model *model, enum tr_model_kind kind, enum tr_loss loss,
			     struct tr_shape in, uint32_t output_count, uint32_t hidden_count,
			     struct tr_error *error)
{
	bool square = in.height == in.width && in.height >= 4;

	*model = (struct tr_model) { .kind = kind, .loss = loss, .in = in };
	model->feature_count = (uint32_t)tr_shape_count(in);
	model->output_count = output_count;

	switch (kind) {
	case TR_LOGISTIC:
		add_dense(model, "dense", output_count, true, false);
		break;
	case TR_MLP:
		add_dense(model, "hidden", hidden_count, true, true);
		add_dense(model, "output", output_count, true, false);
		break;
	case TR_CNN:
		if (in.channels != 1 || !square)
			return refuse_samples(model, "square images of one channel, at least 4 x 4",
					      error);
		add_conv_pool(model, "conv1", TR_CONV1_CHANNELS);
		add_conv_pool(model, "conv2", TR_CONV2_CHANNELS);
		add_dense(model, "output", output_count, true, false);
		break;
	case TR_LSTM:
	case TR_GPT:
		return tr_refuse(error, "--model %s: needs --data text:FILE", tr_model_names[kind]);
	case TR_RESNET20:
		if (!square)
			return refuse_samples(model, "square images, at least 4 x 4", error);
		add_resnet20(model);
		break;
	case TR_HYPERPLANE:
		if (loss != TR_HALF_SQUARE || output_count != 1)
			return tr_refuse(error,
					 "--model hyperplane needs one float target a sample, but "
					 "the data has %s",
					 loss == TR_HALF_SQUARE ? "several" : "labels");
		add_dense(model, "plane", 1, false, false);
		break;
	}
	return RUBATO_OK;
}

void tr_model_init(const struct tr_model *model, uint64_t seed, float *parameters)
{
	if (tr_model_reads_text(model->kind)) {
		init_text(model, seed, parameters);
		return;
	}
	memset(parameters, 0, model->parameter_count * sizeof(*parameters));
	for (uint32_t i = 0; i < model->layer_count; i++) {
		const struct tr_layer *layer = &model->layers[i];
		struct rng rng = rng_open(seed, TR_STREAM_INIT, i);
		float *weight = parameters + layer->weight_offset;

		if (layer->kind == TR_NORM)
			for (size_t k = 0; k < layer->weight_count; k++)
				weight[k] = 1.0f;
		if (layer->kind == TR_NORM || layer->weight_count == 0 ||
		    model->kind == TR_HYPERPLANE)
			continue;
		double fan_in = (double)layer->weight_count / layer->out.channels;
		double fan_out = (double)layer->weight_count / layer->in.channels;
		if (layer->kind == TR_DENSE)
			fan_out = layer->out.channels;
		double bound =
			layer->rectified ? sqrt(6.0 / fan_in) : sqrt(6.0 / (fan_in + fan_out));
		for (size_t k = 0; k < layer->weight_count; k++)
			weight[k] = (float)(bound * (2.0 * rng_unit(&rng) - 1.0));
	}
}

void tr_statistics_init(const struct tr_model *model, float *statistics)
{
	for (uint32_t i = 0; i < model->layer_count; i++) {
		const struct tr_layer *layer = &model->layers[i];
		float *at = statistics + layer->statistics_offset;

		if (layer->kind != TR_NORM)
			continue;
		for (uint32_t k = 0; k < layer->out.channels; k++) {
			at[k] = 0.0f;
			at[layer->out.channels + k] = 1.0f;
		}
	}
}

void tr_statistics_follow(const struct tr_layer *layer, float *statistics, const float *mean,
			  const float *variance, uint64_t count)
{
	const float keep = (float)TR_NORM_MOMENTUM, take = (float)(1.0 - TR_NORM_MOMENTUM);
	float unbias = count > 1 ? (float)((double)count / (double)(count - 1)) : 1.0f;
	uint32_t channels = layer->out.channels;
	float *at = statistics + layer->statistics_offset;

	for (uint32_t k = 0; k < channels; k++) {
		at[k] = keep * at[k] + take * mean[k];
		at[channels + k] = keep * at[channels + k] + take * unbias * variance[k];
	}
}
