/*
 * fake_cudnn.c -- a libcudnn.so.9 of the few functions that the trainer calls, as documented: NCHW
 * tensors of floats, alpha and beta the host's, what beta = 0 multiplies is not read.
 *
 * Each convolution has two algorithms: one that cuDNN calls not deterministic, whose sums go
 * another way every second time, and one that needs a workspace, in which it keeps its input.
 */
#include <cudnn.h>
#include <math.h>
#include <string.h>

#include "tests/cuda/fake/fake_library.h"

#define FASTEST 0 /* Of every kind of convolution; not deterministic. */
#define REPEATABLE 1

struct cudnnContext {
	unsigned tag;
	CUstream stream;
	unsigned calls;
};
struct cudnnTensorStruct {
	unsigned tag;
	int n, c, h, w;
};
struct cudnnFilterStruct {
	unsigned tag;
	int k, c, h, w;
};
struct cudnnConvolutionStruct {
	unsigned tag;
	int pad_h, pad_w, stride_h, stride_w;
	bool set;
	cudnnMathType_t math;
};
enum { HANDLE = 0xd001, TENSOR, FILTER, CONVOLUTION };

#define ASKED()                                                                                    \
	do {                                                                                       \
		CUresult asked_ = fake_cuda_asked(__func__);                                       \
		if (asked_ == CUDA_ERROR_OUT_OF_MEMORY)                                            \
			return CUDNN_STATUS_ALLOC_FAILED;                                          \
		if (asked_ != CUDA_SUCCESS)                                                        \
			return CUDNN_STATUS_EXECUTION_FAILED;                                      \
	} while (0)
#define WANT(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return CUDNN_STATUS_BAD_PARAM;                                             \
	} while (0)
#define ASKED_HANDLE()                                                                             \
	do {                                                                                       \
		ASKED();                                                                           \
		WANT(handle != NULL && handle->tag == HANDLE);                                     \
	} while (0)

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
	return status == CUDNN_STATUS_BAD_PARAM          ? "CUDNN_STATUS_BAD_PARAM"
	       : status == CUDNN_STATUS_ALLOC_FAILED     ? "CUDNN_STATUS_ALLOC_FAILED"
	       : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
							 : "another status";
}

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
	ASKED();
	MAKE(handle, HANDLE);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
	ASKED_HANDLE();
	free(handle);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	ASKED_HANDLE();
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- Descriptors ---- */

EXPORT cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor)
{
	ASKED();
	MAKE(tensor, TENSOR);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor,
						cudnnTensorFormat_t format, cudnnDataType_t type,
						int n, int c, int h, int w)
{
	ASKED();
	WANT(tensor != NULL && tensor->tag == TENSOR && format == CUDNN_TENSOR_NCHW &&
	     type == CUDNN_DATA_FLOAT && n > 0 && c > 0 && h > 0 && w > 0);
	*tensor = (struct cudnnTensorStruct) { TENSOR, n, c, h, w };
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
	WANT(tensor != NULL && tensor->tag == TENSOR);
	free(tensor);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter)
{
	ASKED();
	MAKE(filter, FILTER);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter,
						cudnnDataType_t type, cudnnTensorFormat_t format,
						int k, int c, int h, int w)
{
	ASKED();
	WANT(filter != NULL && filter->tag == FILTER && format == CUDNN_TENSOR_NCHW &&
	     type == CUDNN_DATA_FLOAT && k > 0 && c > 0 && h > 0 && w > 0);
	*filter = (struct cudnnFilterStruct) { FILTER, k, c, h, w };
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
	WANT(filter != NULL && filter->tag == FILTER);
	free(filter);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution)
{
	ASKED();
	MAKE(convolution, CONVOLUTION);
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution,
						     int pad_h, int pad_w, int stride_h,
						     int stride_w, int dilation_h, int dilation_w,
						     cudnnConvolutionMode_t mode,
						     cudnnDataType_t type)
{
	ASKED();
	WANT(convolution != NULL && convolution->tag == CONVOLUTION && pad_h >= 0 && pad_w >= 0 &&
	     stride_h > 0 && stride_w > 0 && dilation_h == 1 && dilation_w == 1 &&
	     mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT);
	*convolution = (struct cudnnConvolutionStruct) { CONVOLUTION,       pad_h,    pad_w,
							 stride_h,          stride_w, true,
							 CUDNN_DEFAULT_MATH };
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
						 cudnnMathType_t math)
{
	ASKED();
	WANT(convolution != NULL && convolution->tag == CONVOLUTION);
	convolution->math = math;
	return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution)
{
	WANT(convolution != NULL && convolution->tag == CONVOLUTION);
	free(convolution);
	return CUDNN_STATUS_SUCCESS;
}

/* ---- Convolutions ---- */

static size_t tensor_bytes(const struct cudnnTensorStruct *t)
{
	return (size_t)t->n * (size_t)t->c * (size_t)t->h * (size_t)t->w * sizeof(float);
}

static size_t filter_bytes(const struct cudnnFilterStruct *f)
{
	return (size_t)f->k * (size_t)f->c * (size_t)f->h * (size_t)f->w * sizeof(float);
}

/* Whether y is what x becomes: 1 + (x + 2 pad - filter) / stride. */
static bool fits(const struct cudnnTensorStruct *x, const struct cudnnFilterStruct *w,
		 const struct cudnnConvolutionStruct *how, const struct cudnnTensorStruct *y)
{
	return x != NULL && x->tag == TENSOR && x->n > 0 && w != NULL && w->tag == FILTER &&
	       how != NULL && how->tag == CONVOLUTION && how->set && y != NULL &&
	       y->tag == TENSOR && y->n == x->n && y->c == w->k && x->c == w->c &&
	       (how->math == CUDNN_FMA_MATH || how->math == CUDNN_TENSOR_OP_MATH) &&
	       y->h == 1 + (x->h + 2 * how->pad_h - w->h) / how->stride_h &&
	       y->w == 1 + (x->w + 2 * how->pad_w - w->w) / how->stride_w;
}

enum what { FORWARD, DATA, WEIGHTS };
struct convolution {
	enum what what;
	struct cudnnTensorStruct x, y;
	struct cudnnFilterStruct w;
	struct cudnnConvolutionStruct how;
	const float *in[2]; /* x w, w dy, x dy */
	float *out, *workspace;
	float alpha, beta;
	bool backwards; /* The sums, over the images. */
};

/*
 * Sums of neighbouring channels go side by side, each in a plain loop's order: the other side's
 * channels, then the filter's weights (of a weight's gradient, the outputs).
 */
#define LANES 16
typedef float four __attribute__((vector_size(16)));
union lanes {
	float each[LANES];
	four of[LANES / 4];
};
struct pair {
	size_t lanes, value; /* What is multiplied by what. */
};

static void *zeros(size_t count, size_t bytes)
{
	void *memory = calloc(count + 1, bytes);

	if (memory == NULL)
		abort();
	return memory;
}

static void pairs_add(union lanes *sums, const struct pair *pairs, const struct pair *end,
		      const union lanes *lanes, const float *values)
{
	four a = sums->of[0], b = sums->of[1], c = sums->of[2], d = sums->of[3];

	for (; pairs < end; pairs++) {
		const union lanes *with = &lanes[pairs->lanes];
		const float value = values[pairs->value];
		const four by = { value, value, value, value };

		a += with->of[0] * by;
		b += with->of[1] * by;
		c += with->of[2] * by;
		d += with->of[3] * by;
	}
	*sums = (union lanes) { .of = { a, b, c, d } };
}

/* What lies `apart` in each channel, laid side by side: `outer` times `inner` values, one after
 * another, the former `stride` apart. What is missing of the last lanes is 0. */
static union lanes *lanes_of(const float *from, size_t channels, size_t apart, size_t outer,
			     size_t stride, size_t inner)
{
	union lanes *to = zeros((channels + LANES - 1) / LANES * outer * inner, sizeof(*to));

	for (size_t channel = 0; channel < channels; channel++)
		for (size_t o = 0; o < outer; o++)
			for (size_t i = 0; i < inner; i++)
				to[(channel / LANES * outer + o) * inner + i]
					.each[channel % LANES] =
					from[channel * apart + o * stride + i];
	return to;
}

static void lanes_store(const union lanes *sums, size_t channel, size_t channels, float *to,
			size_t apart)
{
	for (size_t lane = 0; lane < LANES && channel + lane < channels; lane++)
		to[lane * apart] += sums->each[lane];
}

/* What an output reads of an axis, or (DATA) which output reads this: negative is none. */
static int met(enum what what, int at, int tap, int stride, int pad, int end)
{
	at = what != DATA                     ? at * stride + tap - pad
	     : (at + pad - tap) % stride == 0 ? (at + pad - tap) / stride
					      : -1;
	return at < end ? at : -1;
}

/* Pixel `at` of the outputs (DATA: inputs) through one weight: whether there is such a pair. */
static size_t pair_make(const struct convolution *c, int at, int tap, struct pair *pair)
{
	const struct cudnnTensorStruct *from = c->what == DATA ? &c->x : &c->y;
	const struct cudnnTensorStruct *to = c->what == DATA ? &c->y : &c->x;
	const int y =
		met(c->what, at / from->w, tap / c->w.w, c->how.stride_h, c->how.pad_h, to->h);
	const int x =
		met(c->what, at % from->w, tap % c->w.w, c->how.stride_w, c->how.pad_w, to->w);

	if (x < 0 || y < 0)
		return 0;
	*pair = c->what == WEIGHTS ? (struct pair) { (size_t)(y * to->w + x), (size_t)at }
				   : (struct pair) { (size_t)tap, (size_t)(y * to->w + x) };
	return 1;
}

static size_t out_count(const struct convolution *c)
{
	return (c->what == FORWARD ? tensor_bytes(&c->y)
		: c->what == DATA  ? tensor_bytes(&c->x)
				   : filter_bytes(&c->w)) /
	       sizeof(float);
}

static size_t first_in_bytes(const struct convolution *c)
{
	return c->what == DATA ? filter_bytes(&c->w) : tensor_bytes(&c->x);
}

static size_t second_in_bytes(const struct convolution *c)
{
	return c->what == FORWARD ? filter_bytes(&c->w) : tensor_bytes(&c->y);
}

/* What each pixel of the sums (WEIGHTS: each weight) adds up, and where that ends. */
static struct pair *pairs_make(const struct convolution *c, size_t *ends)
{
	const int pixels = c->what == DATA ? c->x.h * c->x.w : c->y.h * c->y.w;
	const int taps = c->w.h * c->w.w;
	struct pair *pairs = zeros((size_t)pixels * (size_t)taps, sizeof(*pairs));
	size_t count = 0;

	if (c->what == WEIGHTS)
		for (int tap = 0; tap < taps; tap++) {
			for (int at = 0; at < pixels; at++)
				count += pair_make(c, at, tap, &pairs[count]);
			ends[tap] = count;
		}
	else
		for (int at = 0; at < pixels; at++) {
			for (int tap = 0; tap < taps; tap++)
				count += pair_make(c, at, tap, &pairs[count]);
			ends[at] = count;
		}
	return pairs;
}

struct planes {
	size_t x, y, taps, in, out; /* Pixels, weights, channels. */
	struct pair *pairs;
	size_t *ends;
};

/* FORWARD, DATA: of all images; the weights' lanes are channels of the sums. */
static void pixels_sum(const struct convolution *c, const struct planes *p, const float *values,
		       const float *weights, float *sums)
{
	const bool forward = c->what == FORWARD;
	const size_t channels = forward ? p->out : p->in, others = forward ? p->in : p->out;
	const size_t plane = forward ? p->y : p->x, values_plane = forward ? p->x : p->y;
	union lanes *lanes = lanes_of(weights, channels, forward ? p->in * p->taps : p->taps,
				      others, forward ? p->taps : p->in * p->taps, p->taps);

	for (size_t n = 0; n < (size_t)c->x.n; n++)
		for (size_t channel = 0; channel < channels; channel += LANES)
			for (size_t at = 0; at < plane; at++) {
				const struct pair *pairs =
					p->pairs + (at > 0 ? p->ends[at - 1] : 0);
				const union lanes *with =
					lanes + channel / LANES * others * p->taps;
				const float *by = values + n * others * values_plane;
				union lanes sum = { 0 };

				for (size_t o = 0; o < others; o++)
					pairs_add(&sum, pairs, p->pairs + p->ends[at],
						  with + o * p->taps, by + o * values_plane);
				lanes_store(&sum, channel, channels,
					    sums + (n * channels + channel) * plane + at, plane);
			}
	free(lanes);
}

/* WEIGHTS: of one image; the lanes are channels of x. */
static void weights_sum(const struct planes *p, const float *x, const float *y, float *sums)
{
	union lanes *lanes = lanes_of(x, p->in, p->x, 1, 0, p->x);

	for (size_t k = 0; k < p->out; k++)
		for (size_t channel = 0; channel < p->in; channel += LANES)
			for (size_t tap = 0; tap < p->taps; tap++) {
				union lanes sum = { 0 };

				pairs_add(&sum, p->pairs + (tap > 0 ? p->ends[tap - 1] : 0),
					  p->pairs + p->ends[tap], lanes + channel / LANES * p->x,
					  y + k * p->y);
				lanes_store(&sum, channel, p->in,
					    sums + (k * p->in + channel) * p->taps + tap, p->taps);
			}
	free(lanes);
}

static void convolution_sums(const struct convolution *c, const float *first, const float *second,
			     float *sums)
{
	struct planes p = { (size_t)(c->x.h * c->x.w),
			    (size_t)(c->y.h * c->y.w),
			    (size_t)(c->w.h * c->w.w),
			    (size_t)c->w.c,
			    (size_t)c->w.k,
			    NULL,
			    NULL };

	p.ends = zeros(p.x + p.y + p.taps, sizeof(*p.ends));
	p.pairs = pairs_make(c, p.ends);
	if (c->what == FORWARD)
		pixels_sum(c, &p, first, second, sums);
	else if (c->what == DATA)
		pixels_sum(c, &p, second, first, sums);
	for (int image = 0; c->what == WEIGHTS && image < c->x.n; image++) {
		const size_t n = (size_t)(c->backwards ? c->x.n - 1 - image : image);

		weights_sum(&p, first + n * p.in * p.x, second + n * p.out * p.y, sums);
	}
	free(p.pairs);
	free(p.ends);
}

/* As tensor cores take it. */
static float *taken(const float *from, size_t count)
{
	float *to = zeros(count, sizeof(*to));

	for (size_t i = 0; i < count; i++)
		to[i] = fake_rounded(from[i], 10);
	return to;
}

static void convolution_run(void *arg)
{
	const struct convolution *c = arg;
	const size_t count = out_count(c), bytes = first_in_bytes(c);
	const bool rounded = c->how.math == CUDNN_TENSOR_OP_MATH;
	const float *first = c->in[0], *second = c->in[1];
	float *sums = zeros(count, sizeof(*sums)), *firsts = NULL, *seconds = NULL;

	if (c->workspace != NULL)
		first = memcpy(c->workspace, c->in[0], bytes);
	if (rounded) {
		first = firsts = taken(first, bytes / sizeof(float));
		second = seconds = taken(second, second_in_bytes(c) / sizeof(float));
	}
	convolution_sums(c, first, second, sums);
	for (size_t i = 0; i < count; i++)
		c->out[i] = c->alpha * sums[i] + (c->beta == 0.0f ? 0.0f : c->beta * c->out[i]);
	free(firsts);
	free(seconds);
	free(sums);
}

/* The rest is filled in. */
static cudnnStatus_t convolve(cudnnHandle_t handle, struct convolution *c, const void *in_0,
			      size_t bytes_0, const void *in_1, size_t bytes_1, void *out,
			      int algorithm, void *workspace, size_t workspace_bytes)
{
	WANT(algorithm == FASTEST || algorithm == REPEATABLE);
	if (algorithm == REPEATABLE) {
		WANT(workspace != NULL && workspace_bytes >= bytes_0);
		c->workspace = fake_cuda_reach(workspace, workspace_bytes);
		if (c->workspace == NULL)
			return CUDNN_STATUS_EXECUTION_FAILED;
	}
	c->backwards = algorithm == FASTEST && handle->calls++ % 2 != 0;
	c->in[0] = fake_cuda_reach(in_0, bytes_0);
	c->in[1] = fake_cuda_reach(in_1, bytes_1);
	c->out = fake_cuda_reach(out, out_count(c) * sizeof(float));
	if (c->in[0] == NULL || c->in[1] == NULL || c->out == NULL)
		return CUDNN_STATUS_EXECUTION_FAILED;
	return fake_do(handle->stream, convolution_run, c, sizeof(*c)) == CUDA_SUCCESS
		       ? CUDNN_STATUS_SUCCESS
		       : CUDNN_STATUS_EXECUTION_FAILED;
}

EXPORT cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
					     const cudnnTensorDescriptor_t x_desc, const void *x,
					     const cudnnFilterDescriptor_t w_desc, const void *w,
					     const cudnnConvolutionDescriptor_t how,
					     cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
					     size_t workspace_bytes, const void *beta,
					     const cudnnTensorDescriptor_t y_desc, void *y)
{
	struct convolution c = { .what = FORWARD };

	ASKED_HANDLE();
	WANT(alpha != NULL && beta != NULL && fits(x_desc, w_desc, how, y_desc));
	c.x = *x_desc, c.y = *y_desc, c.w = *w_desc, c.how = *how;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	return convolve(handle, &c, x, tensor_bytes(x_desc), w, filter_bytes(w_desc), y,
			(int)algorithm, workspace, workspace_bytes);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardData(
	cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t w_desc,
	const void *w, const cudnnTensorDescriptor_t dy_desc, const void *dy,
	const cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdDataAlgo_t algorithm,
	void *workspace, size_t workspace_bytes, const void *beta,
	const cudnnTensorDescriptor_t dx_desc, void *dx)
{
	struct convolution c = { .what = DATA };

	ASKED_HANDLE();
	WANT(alpha != NULL && beta != NULL && fits(dx_desc, w_desc, how, dy_desc));
	c.x = *dx_desc, c.y = *dy_desc, c.w = *w_desc, c.how = *how;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	return convolve(handle, &c, w, filter_bytes(w_desc), dy, tensor_bytes(dy_desc), dx,
			(int)algorithm, workspace, workspace_bytes);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardFilter(
	cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc,
	const void *x, const cudnnTensorDescriptor_t dy_desc, const void *dy,
	const cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdFilterAlgo_t algorithm,
	void *workspace, size_t workspace_bytes, const void *beta,
	const cudnnFilterDescriptor_t dw_desc, void *dw)
{
	struct convolution c = { .what = WEIGHTS };

	ASKED_HANDLE();
	WANT(alpha != NULL && beta != NULL && fits(x_desc, dw_desc, how, dy_desc));
	c.x = *x_desc, c.y = *dy_desc, c.w = *dw_desc, c.how = *how;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	return convolve(handle, &c, x, tensor_bytes(x_desc), dy, tensor_bytes(dy_desc), dw,
			(int)algorithm, workspace, workspace_bytes);
}

#define FOUND(kind, x, w, how, y, in_bytes)                                                        \
	do {                                                                                       \
		ASKED_HANDLE();                                                                    \
		WANT(fits(x, w, how, y) && asked >= 2 && count != NULL && found != NULL);          \
		found[0] = (__typeof__(*found)) { .algo = (__typeof__(found->algo))FASTEST,        \
						  .determinism = CUDNN_NON_DETERMINISTIC,          \
						  .mathType = CUDNN_FMA_MATH };                    \
		found[1] = (__typeof__(*found)) { .algo = (__typeof__(found->algo))REPEATABLE,     \
						  .memory = (in_bytes),                            \
						  .determinism = CUDNN_DETERMINISTIC,              \
						  .mathType = CUDNN_FMA_MATH };                    \
		*count = 2;                                                                        \
		return CUDNN_STATUS_SUCCESS;                                                       \
	} while (0)

EXPORT cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
	cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
	const cudnnConvolutionDescriptor_t how, const cudnnTensorDescriptor_t y, const int asked,
	int *count, cudnnConvolutionFwdAlgoPerf_t *found)
{
	FOUND(Fwd, x, w, how, y, tensor_bytes(x));
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
	cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
	const cudnnConvolutionDescriptor_t how, const cudnnTensorDescriptor_t x, const int asked,
	int *count, cudnnConvolutionBwdDataAlgoPerf_t *found)
{
	FOUND(BwdData, x, w, how, y, filter_bytes(w));
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
	cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
	const cudnnConvolutionDescriptor_t how, const cudnnFilterDescriptor_t w, const int asked,
	int *count, cudnnConvolutionBwdFilterAlgoPerf_t *found)
{
	FOUND(BwdFilter, x, w, how, y, tensor_bytes(x));
}

/* ---- By channel: biases, normalisations ---- */

struct by_channel {
	struct cudnnTensorStruct t;
	const float *x, *dy, *scale, *shift, *mean, *deviation; /* Or variances; inverses. */
	float *to, *first, *second, *running_mean, *running_variance;
	double factor, epsilon;
	float alpha, beta, parameter_alpha, parameter_beta;
};

/* Of channel k: its j-th value. */
static size_t place(const struct cudnnTensorStruct *t, int k, size_t j)
{
	const size_t plane = (size_t)(t->h * t->w);

	return (j / plane * (size_t)t->c + (size_t)k) * plane + j % plane;
}

static size_t per_channel(const struct cudnnTensorStruct *t)
{
	return (size_t)t->n * (size_t)(t->h * t->w);
}

static void blend(float *to, float value, float alpha, float beta)
{
	*to = alpha * value + (beta == 0.0f ? 0.0f : beta * *to);
}

static void bias_run(void *arg)
{
	const struct by_channel *c = arg;

	for (int k = 0; k < c->t.c; k++) {
		float sum = 0.0f;

		for (size_t j = 0; j < per_channel(&c->t); j++)
			sum += c->dy[place(&c->t, k, j)];
		blend(&c->to[k], sum, c->alpha, c->beta);
	}
}

static bool is_channels(const struct cudnnTensorStruct *t, const struct cudnnTensorStruct *of)
{
	return t != NULL && t->tag == TENSOR && of != NULL && of->tag == TENSOR && t->n == 1 &&
	       t->c == of->c && t->h == 1 && t->w == 1;
}

static bool is_same(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b)
{
	return a != NULL && b != NULL && memcmp(a, b, sizeof(*a)) == 0;
}

#define REACH(pointer, address, bytes)                                                             \
	do {                                                                                       \
		(pointer) = fake_cuda_reach((address), (bytes));                                   \
		if ((pointer) == NULL)                                                             \
			return CUDNN_STATUS_EXECUTION_FAILED;                                      \
	} while (0)

static cudnnStatus_t by_channel_do(cudnnHandle_t handle, CUhostFn run, struct by_channel *c)
{
	return fake_do(handle->stream, run, c, sizeof(*c)) == CUDA_SUCCESS
		       ? CUDNN_STATUS_SUCCESS
		       : CUDNN_STATUS_EXECUTION_FAILED;
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
						  const cudnnTensorDescriptor_t dy_desc,
						  const void *dy, const void *beta,
						  const cudnnTensorDescriptor_t db_desc, void *db)
{
	struct by_channel c = { .t = { 0 } };

	ASKED_HANDLE();
	WANT(alpha != NULL && beta != NULL && is_channels(db_desc, dy_desc));
	c.t = *dy_desc;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	REACH(c.dy, dy, tensor_bytes(dy_desc));
	REACH(c.to, db, tensor_bytes(db_desc));
	return by_channel_do(handle, bias_run, &c);
}

static void norm_training_run(void *arg)
{
	const struct by_channel *c = arg;
	const size_t count = per_channel(&c->t);

	for (int k = 0; k < c->t.c; k++) {
		double mean = 0.0, square = 0.0, inverse;

		for (size_t j = 0; j < count; j++)
			mean += (double)c->x[place(&c->t, k, j)] / (double)count;
		for (size_t j = 0; j < count; j++) {
			const double d = (double)c->x[place(&c->t, k, j)] - mean;

			square += d * d;
		}
		inverse = 1.0 / sqrt(square / (double)count + c->epsilon);
		c->first[k] = (float)mean;
		c->second[k] = (float)inverse;
		c->running_mean[k] =
			(float)(c->factor * mean + (1.0 - c->factor) * (double)c->running_mean[k]);
		c->running_variance[k] =
			(float)(c->factor * square / (double)(count - 1) +
				(1.0 - c->factor) * (double)c->running_variance[k]);
		for (size_t j = 0; j < count; j++) {
			const size_t at = place(&c->t, k, j);

			blend(&c->to[at],
			      (float)((double)c->scale[k] * ((double)c->x[at] - mean) * inverse +
				      (double)c->shift[k]),
			      c->alpha, c->beta);
		}
	}
}

EXPORT cudnnStatus_t cudnnBatchNormalizationForwardTraining(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
	const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc,
	void *y, const cudnnTensorDescriptor_t channels, const void *scale, const void *shift,
	double factor, void *running_mean, void *running_variance, double epsilon, void *saved_mean,
	void *saved_inverse)
{
	struct by_channel c = { .factor = factor, .epsilon = epsilon };

	ASKED_HANDLE();
	WANT(mode == CUDNN_BATCHNORM_SPATIAL && alpha != NULL && beta != NULL &&
	     is_channels(channels, x_desc) && is_same(x_desc, y_desc) &&
	     epsilon >= CUDNN_BN_MIN_EPSILON && per_channel(x_desc) > 1);
	c.t = *x_desc;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	REACH(c.x, x, tensor_bytes(x_desc));
	REACH(c.to, y, tensor_bytes(y_desc));
	REACH(c.scale, scale, tensor_bytes(channels));
	REACH(c.shift, shift, tensor_bytes(channels));
	REACH(c.running_mean, running_mean, tensor_bytes(channels));
	REACH(c.running_variance, running_variance, tensor_bytes(channels));
	REACH(c.first, saved_mean, tensor_bytes(channels));
	REACH(c.second, saved_inverse, tensor_bytes(channels));
	return by_channel_do(handle, norm_training_run, &c);
}

static void norm_inference_run(void *arg)
{
	const struct by_channel *c = arg;

	for (int k = 0; k < c->t.c; k++) {
		const float factor =
			(float)((double)c->scale[k] / sqrt((double)c->deviation[k] + c->epsilon));

		for (size_t j = 0; j < per_channel(&c->t); j++) {
			const size_t at = place(&c->t, k, j);

			blend(&c->to[at], factor * (c->x[at] - c->mean[k]) + c->shift[k], c->alpha,
			      c->beta);
		}
	}
}

EXPORT cudnnStatus_t cudnnBatchNormalizationForwardInference(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
	const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc,
	void *y, const cudnnTensorDescriptor_t channels, const void *scale, const void *shift,
	const void *mean, const void *variance, double epsilon)
{
	struct by_channel c = { .epsilon = epsilon };

	ASKED_HANDLE();
	WANT(mode == CUDNN_BATCHNORM_SPATIAL && alpha != NULL && beta != NULL &&
	     is_channels(channels, x_desc) && is_same(x_desc, y_desc));
	c.t = *x_desc;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	REACH(c.x, x, tensor_bytes(x_desc));
	REACH(c.to, y, tensor_bytes(y_desc));
	REACH(c.scale, scale, tensor_bytes(channels));
	REACH(c.shift, shift, tensor_bytes(channels));
	REACH(c.mean, mean, tensor_bytes(channels));
	REACH(c.deviation, variance, tensor_bytes(channels));
	return by_channel_do(handle, norm_inference_run, &c);
}

static void norm_backward_run(void *arg)
{
	const struct by_channel *c = arg;
	const size_t count = per_channel(&c->t);

	for (int k = 0; k < c->t.c; k++) {
		const double mean = (double)c->mean[k], inverse = (double)c->deviation[k];
		double sum = 0.0, product = 0.0;

		for (size_t j = 0; j < count; j++) {
			const size_t at = place(&c->t, k, j);

			sum += (double)c->dy[at];
			product += (double)c->dy[at] * ((double)c->x[at] - mean) * inverse;
		}
		blend(&c->first[k], (float)product, c->parameter_alpha, c->parameter_beta);
		blend(&c->second[k], (float)sum, c->parameter_alpha, c->parameter_beta);
		for (size_t j = 0; j < count; j++) {
			const size_t at = place(&c->t, k, j);
			const double u = ((double)c->x[at] - mean) * inverse;

			blend(&c->to[at],
			      (float)((double)c->scale[k] * inverse *
				      ((double)c->dy[at] - sum / (double)count -
				       u * product / (double)count)),
			      c->alpha, c->beta);
		}
	}
}

EXPORT cudnnStatus_t cudnnBatchNormalizationBackward(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
	const void *parameter_alpha, const void *parameter_beta,
	const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t dy_desc,
	const void *dy, const cudnnTensorDescriptor_t dx_desc, void *dx,
	const cudnnTensorDescriptor_t channels, const void *scale, void *scale_slope,
	void *shift_slope, double epsilon, const void *saved_mean, const void *saved_inverse)
{
	struct by_channel c = { .epsilon = epsilon };

	ASKED_HANDLE();
	WANT(mode == CUDNN_BATCHNORM_SPATIAL && alpha != NULL && beta != NULL &&
	     parameter_alpha != NULL && parameter_beta != NULL && is_channels(channels, x_desc) &&
	     is_same(x_desc, dy_desc) && is_same(x_desc, dx_desc) && saved_mean != NULL &&
	     saved_inverse != NULL);
	c.t = *x_desc;
	c.alpha = *(const float *)alpha, c.beta = *(const float *)beta;
	c.parameter_alpha = *(const float *)parameter_alpha;
	c.parameter_beta = *(const float *)parameter_beta;
	REACH(c.x, x, tensor_bytes(x_desc));
	REACH(c.dy, dy, tensor_bytes(dy_desc));
	REACH(c.to, dx, tensor_bytes(dx_desc));
	REACH(c.scale, scale, tensor_bytes(channels));
	REACH(c.first, scale_slope, tensor_bytes(channels));
	REACH(c.second, shift_slope, tensor_bytes(channels));
	REACH(c.mean, saved_mean, tensor_bytes(channels));
	REACH(c.deviation, saved_inverse, tensor_bytes(channels));
	return by_channel_do(handle, norm_backward_run, &c);
}
