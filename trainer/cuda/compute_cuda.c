/*
 * compute_cuda.c -- the layers on a CUDA device: dense layers by cuBLAS, convolutions and
 * normalisations by cuDNN, the rest and the losses by kernels of our own, all on one stream.
 *
 * A step only enqueues: rows and answers from pinned memory, the forward pass, the loss, the
 * scores' way back, the backward pass. Then the host waits for the scores, once; the backward pass
 * may still go on. Only algorithms that give equal bits for equal inputs are taken.
 *
 * Parameters, gradient and statistics are the caller's, on the device. Layer l reads value[l] and
 * writes value[l + 1]; backward it reads slope[l + 1] and writes slope[l], or adds to it, where a
 * shortcut has been before.
 */
#include <math.h>
#include <string.h>

#include "trainer/cuda/libraries.h"
#include "trainer/models/compute.h"

#define ALGORITHMS_MAX 16
#define MEMORIES_MAX (2 * TR_LAYERS_MAX + 8)

struct plan { /* What depends on the number of rows. */
	uint32_t rows;
	cudnnTensorDescriptor_t value[TR_LAYERS_MAX + 1];
	cudnnConvolutionFwdAlgo_t forward[TR_LAYERS_MAX];
	cudnnConvolutionBwdDataAlgo_t data[TR_LAYERS_MAX];
	cudnnConvolutionBwdFilterAlgo_t filter[TR_LAYERS_MAX];
};

struct tr_compute {
	struct tr_model model;
	struct tr_cuda *cuda;
	struct tr_blas blas;
	struct tr_dnn dnn; /* Of models with convolutions. */
	const float *parameters;
	float *gradient, *statistics;
	enum tr_precision precision;
	struct plan training, scoring;
	cudnnFilterDescriptor_t weight[TR_LAYERS_MAX];
	cudnnConvolutionDescriptor_t convolution[TR_LAYERS_MAX];
	cudnnTensorDescriptor_t channels[TR_LAYERS_MAX]; /* Biases; scales, shifts, moments. */
	/* On the device: */
	float *value[TR_LAYERS_MAX + 1], *slope[TR_LAYERS_MAX + 1];
	bool begun[TR_LAYERS_MAX + 1]; /* The slope has something to add to, in this pass. */
	float *moments;                /* Of the last batch: means, 1 / deviations. */
	float *ones;                   /* [batch] */
	void *answers, *workspace;
	size_t workspace_bytes;
	struct tr_cuda_row *rows;
	void *memories[MEMORIES_MAX]; /* All of these. */
	uint32_t memory_count;
	/* Pinned: */
	void *host_x, *host_answers;
	struct tr_cuda_row *host_rows;
	CUevent scored;         /* host_rows have come, and the other two were read. */
	bool in_use;            /* Until then. */
	struct tr_error *error; /* Of the call that is under way. */
};

#define DRIVER(call, ...) TR_CUDA_TRY(&c->cuda->driver, c->error, call, __VA_ARGS__)
/* Names are taken as they stand: some are macros. */
#define BLAS(call, ...)                                                                            \
	TR_TRY(tr_blas_check(&c->blas, c->blas.p_##call(c->blas.handle, __VA_ARGS__), #call,       \
			     c->error))
#define DNN(call, ...)                                                                             \
	TR_TRY(tr_dnn_check(&c->dnn, c->dnn.p_##call(c->dnn.handle, __VA_ARGS__), #call, c->error))
#define DESCRIBE(call, ...)                                                                        \
	TR_TRY(tr_dnn_check(&c->dnn, c->dnn.p_##call(__VA_ARGS__), #call, c->error))
/* A kernel with its struct. */
#define LAUNCH(kernel, threads, ...)                                                               \
	tr_cuda_launch(c->cuda, TR_CUDA_##kernel, (threads),                                       \
		       &(const struct tr_cuda_##kernel) { __VA_ARGS__ }, c->error)

static const float zero = 0.0f, one = 1.0f;

static uint32_t count_of(struct tr_shape s, uint32_t rows)
{
	return (uint32_t)(rows * tr_shape_count(s)); /* open() has seen that it fits. */
}

static uint32_t plane_of(struct tr_shape s)
{
	return s.height * s.width;
}

/* What slope i is multiplied with before something is added: 0, or 1 where there is something. */
static const float *blend(struct tr_compute *c, uint32_t i)
{
	const float *beta = c->begun[i] ? &one : &zero;

	c->begun[i] = true;
	return beta;
}

/* ---- Dense layers ---- */

/* to[m][n] = a[m][k] b[k][n] + keep * to. */
static rubato_status product(struct tr_compute *c, size_t m, size_t n, size_t k, struct tr_factor a,
			     struct tr_factor b, float keep, float *to)
{
	return tr_blas_product(&c->blas, 1, m, n, k, 1.0f, a, b, keep, to, n, c->error);
}

static rubato_status dense_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const size_t ins = tr_shape_count(l->in), outs = l->out.channels;

	TR_TRY(product(c, p->rows, outs, ins, tr_plain(c->value[i], ins),
		       tr_turned(c->parameters + l->weight_offset, ins), 0.0f, c->value[i + 1]));
	if (l->bias_count == 0)
		return RUBATO_OK;
	return LAUNCH(bias, count_of(l->out, p->rows), .to = c->value[i + 1],
		      .bias = c->parameters + l->bias_offset, .count = count_of(l->out, p->rows),
		      .channels = l->out.channels, .plane = 1);
}

static rubato_status dense_parameters(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const size_t ins = tr_shape_count(l->in), outs = l->out.channels;
	const size_t rows = c->training.rows;

	TR_TRY(product(c, outs, ins, rows, tr_turned(c->slope[i + 1], outs),
		       tr_plain(c->value[i], ins), 0.0f, c->gradient + l->weight_offset));
	if (l->bias_count > 0)
		BLAS(cublasSgemv, CUBLAS_OP_N, (int)outs, (int)rows, &one, c->slope[i + 1],
		     (int)outs, c->ones, 1, &zero, c->gradient + l->bias_offset, 1);
	return RUBATO_OK;
}

static rubato_status dense_backward(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const size_t ins = tr_shape_count(l->in), outs = l->out.channels;

	return product(c, c->training.rows, ins, outs, tr_plain(c->slope[i + 1], outs),
		       tr_plain(c->parameters + l->weight_offset, ins), *blend(c, i), c->slope[i]);
}

/* ---- Convolutions ---- */

static rubato_status conv_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];

	DNN(cudnnConvolutionForward, &one, p->value[i], c->value[i], c->weight[i],
	    c->parameters + l->weight_offset, c->convolution[i], p->forward[i], c->workspace,
	    c->workspace_bytes, &zero, p->value[i + 1], c->value[i + 1]);
	if (l->bias_count == 0)
		return RUBATO_OK;
	return LAUNCH(bias, count_of(l->out, p->rows), .to = c->value[i + 1],
		      .bias = c->parameters + l->bias_offset, .count = count_of(l->out, p->rows),
		      .channels = l->out.channels, .plane = plane_of(l->out));
}

static rubato_status conv_parameters(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const struct plan *p = &c->training;

	DNN(cudnnConvolutionBackwardFilter, &one, p->value[i], c->value[i], p->value[i + 1],
	    c->slope[i + 1], c->convolution[i], p->filter[i], c->workspace, c->workspace_bytes,
	    &zero, c->weight[i], c->gradient + l->weight_offset);
	if (l->bias_count > 0)
		DNN(cudnnConvolutionBackwardBias, &one, p->value[i + 1], c->slope[i + 1], &zero,
		    c->channels[i], c->gradient + l->bias_offset);
	return RUBATO_OK;
}

static rubato_status conv_backward(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const struct plan *p = &c->training;

	DNN(cudnnConvolutionBackwardData, &one, c->weight[i], c->parameters + l->weight_offset,
	    p->value[i + 1], c->slope[i + 1], c->convolution[i], p->data[i], c->workspace,
	    c->workspace_bytes, blend(c, i), p->value[i], c->slope[i]);
	return RUBATO_OK;
}

/* ---- Normalisations ---- */

static rubato_status norm_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const float *scale = c->parameters + l->weight_offset;
	const float *shift = c->parameters + l->bias_offset;
	float *running = c->statistics + l->statistics_offset;
	float *moments = c->moments + l->statistics_offset;

	if (p == &c->training)
		DNN(cudnnBatchNormalizationForwardTraining, CUDNN_BATCHNORM_SPATIAL, &one, &zero,
		    p->value[i], c->value[i], p->value[i + 1], c->value[i + 1], c->channels[i],
		    scale, shift, 1.0 - TR_NORM_MOMENTUM, running, running + l->in.channels,
		    TR_NORM_EPSILON, moments, moments + l->in.channels);
	else
		DNN(cudnnBatchNormalizationForwardInference, CUDNN_BATCHNORM_SPATIAL, &one, &zero,
		    p->value[i], c->value[i], p->value[i + 1], c->value[i + 1], c->channels[i],
		    scale, shift, running, running + l->in.channels, TR_NORM_EPSILON);
	return RUBATO_OK;
}

/* Its parameters' slopes and those of what it read, in one call. */
static rubato_status norm_parameters(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const struct plan *p = &c->training;
	const float *moments = c->moments + l->statistics_offset;

	DNN(cudnnBatchNormalizationBackward, CUDNN_BATCHNORM_SPATIAL, &one, blend(c, i), &one,
	    &zero, p->value[i], c->value[i], p->value[i + 1], c->slope[i + 1], p->value[i],
	    c->slope[i], c->channels[i], c->parameters + l->weight_offset,
	    c->gradient + l->weight_offset, c->gradient + l->bias_offset, TR_NORM_EPSILON, moments,
	    moments + l->in.channels);
	return RUBATO_OK;
}

/* ---- The rest ---- */

static rubato_status relu_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const uint32_t count = count_of(c->model.layers[i].in, p->rows);

	return LAUNCH(relu, count, .to = c->value[i + 1], .from = c->value[i], .count = count);
}

static rubato_status relu_backward(struct tr_compute *c, uint32_t i)
{
	const uint32_t count = count_of(c->model.layers[i].in, c->training.rows);

	return LAUNCH(relu_back, count, .to = c->slope[i], .value = c->value[i],
		      .slope = c->slope[i + 1], .count = count, .add = blend(c, i) == &one);
}

static rubato_status pool_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];

	return LAUNCH(pool, count_of(l->out, p->rows), .to = c->value[i + 1], .from = c->value[i],
		      .planes = p->rows * l->in.channels, .kernel = l->kernel,
		      .in_height = l->in.height, .in_width = l->in.width,
		      .out_height = l->out.height, .out_width = l->out.width);
}

static rubato_status pool_backward(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];

	return LAUNCH(pool_back, count_of(l->in, c->training.rows), .to = c->slope[i],
		      .value = c->value[i], .slope = c->slope[i + 1],
		      .planes = c->training.rows * l->in.channels, .kernel = l->kernel,
		      .in_height = l->in.height, .in_width = l->in.width,
		      .out_height = l->out.height, .out_width = l->out.width,
		      .add = blend(c, i) == &one);
}

static rubato_status average_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const uint32_t planes = p->rows * l->in.channels;

	return LAUNCH(average, planes, .to = c->value[i + 1], .from = c->value[i], .planes = planes,
		      .plane = plane_of(l->in));
}

static rubato_status average_backward(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];

	return LAUNCH(average_back, count_of(l->in, c->training.rows), .to = c->slope[i],
		      .slope = c->slope[i + 1], .planes = c->training.rows * l->in.channels,
		      .plane = plane_of(l->in), .add = blend(c, i) == &one);
}

static rubato_status add_forward(struct tr_compute *c, const struct plan *p, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const struct tr_shape wide = c->model.layers[l->from].in;

	return LAUNCH(add, count_of(l->out, p->rows), .to = c->value[i + 1], .from = c->value[i],
		      .early = c->value[l->from], .rows = p->rows, .stride = l->stride,
		      .wide_channels = wide.channels, .wide_height = wide.height,
		      .wide_width = wide.width, .channels = l->out.channels,
		      .height = l->out.height, .width = l->out.width);
}

/* Of the early value alone: the other's slope is that of the sum (open_memory). */
static rubato_status add_backward(struct tr_compute *c, uint32_t i)
{
	const struct tr_layer *l = &c->model.layers[i];
	const struct tr_shape wide = c->model.layers[l->from].in;

	return LAUNCH(add_back, count_of(wide, c->training.rows), .to = c->slope[l->from],
		      .slope = c->slope[i + 1], .rows = c->training.rows, .stride = l->stride,
		      .wide_channels = wide.channels, .wide_height = wide.height,
		      .wide_width = wide.width, .channels = l->out.channels,
		      .height = l->out.height, .width = l->out.width,
		      .add = blend(c, l->from) == &one);
}

/* ---- All layers ---- */

static const struct {
	rubato_status (*forward)(struct tr_compute *c, const struct plan *p, uint32_t i);
	rubato_status (*parameters)(struct tr_compute *c, uint32_t i); /* Their slopes. */
	rubato_status (*backward)(struct tr_compute *c, uint32_t i);   /* The values'. */
} kinds[] = {
	[TR_DENSE] = { dense_forward, dense_parameters, dense_backward },
	[TR_CONV] = { conv_forward, conv_parameters, conv_backward },
	[TR_RELU] = { relu_forward, NULL, relu_backward },
	[TR_MAXPOOL] = { pool_forward, NULL, pool_backward },
	[TR_AVGPOOL] = { average_forward, NULL, average_backward },
	[TR_NORM] = { norm_forward, norm_parameters, NULL },
	[TR_ADD] = { add_forward, NULL, add_backward },
};

static rubato_status forward(struct tr_compute *c, const struct plan *p)
{
	for (uint32_t i = 0; i < c->model.layer_count; i++)
		TR_TRY(kinds[c->model.layers[i].kind].forward(c, p, i));
	return RUBATO_OK;
}

static rubato_status backward(struct tr_compute *c, const struct tr_ready *ready)
{
	memset(c->begun, 0, sizeof(c->begun));
	for (uint32_t i = c->model.layer_count; i-- > 0;) {
		const struct tr_layer *l = &c->model.layers[i];

		if (kinds[l->kind].parameters != NULL)
			TR_TRY(kinds[l->kind].parameters(c, i));
		if (ready != NULL && l->weight_count > 0)
			TR_TRY(ready->call(ready->arg, l->weight_offset));
		if (i > 0 && kinds[l->kind].backward != NULL)
			TR_TRY(kinds[l->kind].backward(c, i));
	}
	return RUBATO_OK;
}

/* ---- Rows in, scores out ---- */

static size_t answer_bytes(const struct tr_model *model)
{
	return model->loss == TR_CROSS_ENTROPY ? sizeof(int32_t)
					       : model->output_count * sizeof(float);
}

/* Until the stream is done with the pinned memory. */
static rubato_status pinned_wait(struct tr_compute *c)
{
	if (c->in_use)
		DRIVER(cuEventSynchronize, c->scored);
	c->in_use = false;
	return RUBATO_OK;
}

/* x[x_rows][features], of which the first answer_rows have answers. */
static rubato_status upload(struct tr_compute *c, const float *x, uint32_t x_rows,
			    struct tr_answers answers, uint32_t answer_rows)
{
	const size_t x_bytes = (size_t)x_rows * c->model.feature_count * sizeof(float);
	const size_t bytes = answer_rows * answer_bytes(&c->model);
	const void *from = c->model.loss == TR_CROSS_ENTROPY ? (const void *)answers.labels
							     : (const void *)answers.targets;

	TR_TRY(pinned_wait(c));
	memcpy(c->host_x, x, x_bytes);
	memcpy(c->host_answers, from, bytes);
	c->in_use = true;
	TR_TRY(tr_cuda_copy(c->cuda, c->value[0], c->host_x, x_bytes, c->error));
	return tr_cuda_copy(c->cuda, c->answers, c->host_answers, bytes, c->error);
}

static rubato_status score_begin(struct tr_compute *c, uint32_t rows, float *slope)
{
	const float *outputs = c->value[c->model.layer_count];
	const uint32_t count = c->model.output_count;
	const float scale = 1.0f / (float)rows;

	if (c->model.loss == TR_CROSS_ENTROPY)
		TR_TRY(LAUNCH(loss_labels, rows, .rows = c->rows, .outputs = outputs,
			      .labels = c->answers, .slope = slope, .row_count = rows,
			      .count = count, .scale = scale));
	else
		TR_TRY(LAUNCH(loss_targets, rows, .rows = c->rows, .outputs = outputs,
			      .targets = c->answers, .slope = slope, .row_count = rows,
			      .count = count, .scale = scale));
	TR_TRY(tr_cuda_copy(c->cuda, c->host_rows, c->rows, rows * sizeof(*c->rows), c->error));
	DRIVER(cuEventRecord, c->scored, c->cuda->stream);
	return RUBATO_OK;
}

static rubato_status score_end(struct tr_compute *c, uint32_t rows, struct tr_score *score)
{
	TR_TRY(pinned_wait(c));
	for (uint32_t i = 0; i < rows; i++) {
		const struct tr_cuda_row *row = &c->host_rows[i];

		score->loss += c->model.loss == TR_CROSS_ENTROPY ? log(row->sum) - (double)row->gap
								 : 0.5 * row->sum;
		score->correct += row->correct;
	}
	score->rows += rows;
	return RUBATO_OK;
}

static rubato_status cuda_train(struct tr_compute *c, const float *x, struct tr_answers answers,
				const struct tr_ready *ready, struct tr_score *score,
				struct tr_error *error)
{
	const uint32_t rows = c->training.rows;

	c->error = error;
	TR_TRY(upload(c, x, rows, answers, rows));
	TR_TRY(forward(c, &c->training));
	TR_TRY(score_begin(c, rows, c->slope[c->model.layer_count]));
	TR_TRY(backward(c, ready));
	return score_end(c, rows, score);
}

static rubato_status cuda_evaluate(struct tr_compute *c, const float *x, struct tr_answers answers,
				   uint32_t rows, struct tr_score *score, struct tr_error *error)
{
	c->error = error;
	TR_TRY(upload(c, x, TR_EVAL_ROWS, answers, rows));
	TR_TRY(forward(c, &c->scoring));
	TR_TRY(score_begin(c, rows, NULL));
	return score_end(c, rows, score);
}

/* ---- Open and close ---- */

static rubato_status memory(struct tr_compute *c, size_t count, size_t item_bytes, void *out)
{
	TR_TRY(tr_cuda_alloc(c->cuda, count * item_bytes, &c->memories[c->memory_count], c->error));
	memcpy(out, &c->memories[c->memory_count++], sizeof(void *));
	return RUBATO_OK;
}

static rubato_status open_memory(struct tr_compute *c)
{
	const uint32_t batch = c->training.rows;
	const size_t rows = batch > TR_EVAL_ROWS ? batch : TR_EVAL_ROWS;
	const size_t answer = answer_bytes(&c->model);
	float *ones;

	TR_TRY(memory(c, rows * c->model.feature_count, sizeof(float), &c->value[0]));
	for (uint32_t i = c->model.layer_count; i > 0; i--) {
		const size_t count = tr_shape_count(c->model.layers[i - 1].out);

		TR_TRY(memory(c, rows * count, sizeof(float), &c->value[i]));
		/* What only a sum reads has its slope. */
		if (i < c->model.layer_count && c->model.layers[i].kind == TR_ADD)
			c->slope[i] = c->slope[i + 1];
		else
			TR_TRY(memory(c, batch * count, sizeof(float), &c->slope[i]));
	}
	TR_TRY(memory(c, c->model.statistics_count, sizeof(float), &c->moments));
	TR_TRY(memory(c, batch, sizeof(float), &c->ones));
	TR_TRY(memory(c, rows, answer, &c->answers));
	TR_TRY(memory(c, rows, sizeof(*c->rows), &c->rows));
	TR_TRY(tr_cuda_alloc_host(c->cuda, rows * c->model.feature_count * sizeof(float),
				  &c->host_x, c->error));
	TR_TRY(tr_cuda_alloc_host(c->cuda, rows * answer, &c->host_answers, c->error));
	TR_TRY(tr_cuda_alloc_host(c->cuda, rows * sizeof(*c->rows), (void **)&c->host_rows,
				  c->error));
	DRIVER(cuEventCreate, &c->scored, CU_EVENT_DISABLE_TIMING);
	ones = c->host_x; /* It has room for one float a row. */
	for (uint32_t i = 0; i < batch; i++)
		ones[i] = 1.0f;
	TR_TRY(tr_cuda_copy(c->cuda, c->ones, ones, batch * sizeof(float), c->error));
	return tr_cuda_wait(c->cuda, c->error);
}

static rubato_status describe_tensor(struct tr_compute *c, cudnnTensorDescriptor_t *out,
				     uint32_t rows, struct tr_shape s)
{
	DESCRIBE(cudnnCreateTensorDescriptor, out);
	DESCRIBE(cudnnSetTensor4dDescriptor, *out, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, (int)rows,
		 (int)s.channels, (int)s.height, (int)s.width);
	return RUBATO_OK;
}

static rubato_status describe_layers(struct tr_compute *c)
{
	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		const struct tr_layer *l = &c->model.layers[i];
		const int pad = (int)l->kernel / 2, stride = (int)l->stride;

		if (l->kind != TR_CONV && l->kind != TR_NORM)
			continue;
		TR_TRY(describe_tensor(c, &c->channels[i], 1,
				       (struct tr_shape) { l->out.channels, 1, 1 }));
		if (l->kind == TR_NORM)
			continue;
		DESCRIBE(cudnnCreateFilterDescriptor, &c->weight[i]);
		DESCRIBE(cudnnSetFilter4dDescriptor, c->weight[i], CUDNN_DATA_FLOAT,
			 CUDNN_TENSOR_NCHW, (int)l->out.channels, (int)l->in.channels,
			 (int)l->kernel, (int)l->kernel);
		DESCRIBE(cudnnCreateConvolutionDescriptor, &c->convolution[i]);
		DESCRIBE(cudnnSetConvolution2dDescriptor, c->convolution[i], pad, pad, stride,
			 stride, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
		DESCRIBE(cudnnSetConvolutionMathType, c->convolution[i],
			 c->precision == TR_TF32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
	}
	return RUBATO_OK;
}

/* The fastest algorithm, as cuDNN guesses, that gives equal bits every time and, unless TF32 was
 * asked for, computes floats as floats. The two other functions are the same for other types. */
#define CHOOSE(found, count, algorithm, bytes)                                                     \
	do {                                                                                       \
		int at_ = 0;                                                                       \
		while (at_ < (count) &&                                                            \
		       ((found)[at_].status != CUDNN_STATUS_SUCCESS ||                             \
			(found)[at_].determinism != CUDNN_DETERMINISTIC ||                         \
			(c->precision == TR_FLOAT32 && (found)[at_].mathType != CUDNN_FMA_MATH &&  \
			 (found)[at_].mathType != CUDNN_DEFAULT_MATH)))                            \
			at_++;                                                                     \
		if (at_ == (count))                                                                \
			return tr_fail(c->error, RUBATO_ERR_UNSUPPORTED,                           \
				       "--device cuda: cuDNN has no repeatable algorithm for a "   \
				       "convolution of this model");                               \
		*(algorithm) = (found)[at_].algo;                                                  \
		*(bytes) = (found)[at_].memory > *(bytes) ? (found)[at_].memory : *(bytes);        \
	} while (0)

static rubato_status choose_forward(struct tr_compute *c, struct plan *p, uint32_t i)
{
	cudnnConvolutionFwdAlgoPerf_t found[ALGORITHMS_MAX];
	int count = 0;

	DNN(cudnnGetConvolutionForwardAlgorithm_v7, p->value[i], c->weight[i], c->convolution[i],
	    p->value[i + 1], ALGORITHMS_MAX, &count, found);
	CHOOSE(found, count, &p->forward[i], &c->workspace_bytes);
	return RUBATO_OK;
}

static rubato_status choose_filter(struct tr_compute *c, struct plan *p, uint32_t i)
{
	cudnnConvolutionBwdFilterAlgoPerf_t found[ALGORITHMS_MAX];
	int count = 0;

	DNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7, p->value[i], p->value[i + 1],
	    c->convolution[i], c->weight[i], ALGORITHMS_MAX, &count, found);
	CHOOSE(found, count, &p->filter[i], &c->workspace_bytes);
	return RUBATO_OK;
}

static rubato_status choose_data(struct tr_compute *c, struct plan *p, uint32_t i)
{
	cudnnConvolutionBwdDataAlgoPerf_t found[ALGORITHMS_MAX];
	int count = 0;

	DNN(cudnnGetConvolutionBackwardDataAlgorithm_v7, c->weight[i], p->value[i + 1],
	    c->convolution[i], p->value[i], ALGORITHMS_MAX, &count, found);
	CHOOSE(found, count, &p->data[i], &c->workspace_bytes);
	return RUBATO_OK;
}

static rubato_status open_plan(struct tr_compute *c, struct plan *p)
{
	for (uint32_t i = 0; i <= c->model.layer_count; i++)
		TR_TRY(describe_tensor(c, &p->value[i], p->rows,
				       i == 0 ? c->model.in : c->model.layers[i - 1].out));
	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		if (c->model.layers[i].kind != TR_CONV)
			continue;
		TR_TRY(choose_forward(c, p, i));
		if (p == &c->training)
			TR_TRY(choose_filter(c, p, i));
		if (p == &c->training && i > 0)
			TR_TRY(choose_data(c, p, i));
	}
	return RUBATO_OK;
}

static bool needs_dnn(const struct tr_model *model)
{
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (model->layers[i].kind == TR_CONV || model->layers[i].kind == TR_NORM)
			return true;
	return false;
}

/* What this backend does not compute. */
static rubato_status refuse(struct tr_compute *c)
{
	const size_t rows = c->training.rows > TR_EVAL_ROWS ? c->training.rows : TR_EVAL_ROWS;

	if (c->precision == TR_BFLOAT16 && needs_dnn(&c->model))
		return tr_refuse(c->error,
				 "--precision bfloat16: not for the convolutions of --model %s",
				 tr_model_names[c->model.kind]);
	for (uint32_t i = 0; i < c->model.layer_count; i++) {
		const struct tr_layer *l = &c->model.layers[i];

		if (rows * tr_shape_count(l->in) > INT32_MAX ||
		    rows * tr_shape_count(l->out) > INT32_MAX)
			return tr_refuse(c->error, "--device cuda: --batch %u is too large here",
					 c->training.rows);
		if (l->kind == TR_NORM && c->training.rows == 1 && plane_of(l->in) == 1)
			return tr_refuse(c->error,
					 "--device cuda: --model %s needs a --batch of "
					 "more than one such sample",
					 tr_model_names[c->model.kind]);
	}
	return RUBATO_OK;
}

static rubato_status cuda_open(struct tr_compute *c, const struct tr_compute_ops *ops,
			       const struct tr_compute_setup *setup, struct tr_error *error)
{
	(void)ops;
	c->model = *setup->model;
	c->cuda = setup->device;
	c->parameters = setup->parameters;
	c->gradient = setup->gradient;
	c->statistics = setup->statistics;
	c->training.rows = setup->batch;
	c->scoring.rows = TR_EVAL_ROWS;
	c->precision = setup->precision;
	c->error = error;
	TR_TRY(refuse(c));
	TR_TRY(tr_blas_open(&c->blas, c->cuda, c->precision, error));
	TR_TRY(open_memory(c));
	if (!needs_dnn(&c->model))
		return RUBATO_OK;
	TR_TRY(tr_dnn_open(&c->dnn, c->cuda, error));
	TR_TRY(describe_layers(c));
	TR_TRY(open_plan(c, &c->training));
	TR_TRY(open_plan(c, &c->scoring));
	return memory(c, c->workspace_bytes, 1, &c->workspace);
}

static void close_descriptors(struct tr_compute *c)
{
	for (uint32_t i = 0; i <= TR_LAYERS_MAX; i++) {
		if (c->training.value[i] != NULL)
			(void)c->dnn.p_cudnnDestroyTensorDescriptor(c->training.value[i]);
		if (c->scoring.value[i] != NULL)
			(void)c->dnn.p_cudnnDestroyTensorDescriptor(c->scoring.value[i]);
	}
	for (uint32_t i = 0; i < TR_LAYERS_MAX; i++) {
		if (c->weight[i] != NULL)
			(void)c->dnn.p_cudnnDestroyFilterDescriptor(c->weight[i]);
		if (c->convolution[i] != NULL)
			(void)c->dnn.p_cudnnDestroyConvolutionDescriptor(c->convolution[i]);
		if (c->channels[i] != NULL)
			(void)c->dnn.p_cudnnDestroyTensorDescriptor(c->channels[i]);
	}
}

static void cuda_close(struct tr_compute *c)
{
	struct tr_error unheard;

	(void)tr_cuda_wait(c->cuda, &unheard); /* An error may have left something under way. */
	close_descriptors(c);
	tr_dnn_close(&c->dnn);
	tr_blas_close(&c->blas);
	if (c->scored != NULL)
		(void)c->cuda->driver.p_cuEventDestroy(c->scored);
	tr_cuda_free_host(c->cuda, c->host_x);
	tr_cuda_free_host(c->cuda, c->host_answers);
	tr_cuda_free_host(c->cuda, c->host_rows);
	while (c->memory_count > 0)
		tr_cuda_free(c->cuda, c->memories[--c->memory_count]);
}

const struct tr_compute_ops tr_compute_cuda = {
	.name = "CUDA",
	.state_bytes = sizeof(struct tr_compute),
	.open = cuda_open,
	.train = cuda_train,
	.evaluate = cuda_evaluate,
	.close = cuda_close,
};
