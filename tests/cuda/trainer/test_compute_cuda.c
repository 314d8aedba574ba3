/*
 * test_compute_cuda.c -- the device's backends, on fakes of the
 * driver, cuBLAS and cuDNN: what tests/trainer/test_compute.c holds every backend to, and that a
 * call which fails is named and leaves nothing behind.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/trainer/compute.h"
#include "tests/length.h"

/* What costs little: a cnn has everything but normalisations. */
static const struct shape_case cnn = { TR_CNN, TR_CROSS_ENTROPY, { 1, 6, 6 }, 3, 0, 2 };
/* Five rows: normalised pairs have slopes that are differences of nearly equal numbers. */
static const struct shape_case resnet = { TR_RESNET20, TR_CROSS_ENTROPY, { 3, 4, 4 }, 4, 0, 5 };

/* Those that cost little in plain loops. */
static bool is_small(const struct shape_case *c)
{
	return tr_shape_count(c->in) < 200;
}

START_TEST(device_backend_equals_plain)
{
	const struct shape_case *c = &cases[_i];
	const char *error;

	if (test_length() == TEST_SHORT && !is_small(c))
		return;
	if (test_length() == TEST_SHORT && c->kind == TR_RESNET20)
		c = &resnet;
	error = device_differs(&tr_compute_cuda, c, (uint64_t)_i + 1);
	if (error != NULL)
		ck_abort_msg("case %d: %s", _i, error);
}
END_TEST

START_TEST(text_equals_plain)
{
	const struct shape_case *c = &text_cases[_i];
	const char *error = device_differs(tr_compute_device(c->kind), c, (uint64_t)_i + 1);

	if (error != NULL)
		ck_abort_msg("case %d: %s", _i, error);
}
END_TEST

/* Those that cost little: lists of layers, the last of them normalised; then of text. NULL: it
 * costs much. */
#define LITTLE_COUNT (SHALLOW_COUNT + 1 + TEXT_COUNT)
static const struct shape_case *little(int number)
{
	if (number > SHALLOW_COUNT)
		return &text_cases[number - SHALLOW_COUNT - 1];
	if (!is_small(&cases[number]))
		return NULL;
	return number == SHALLOW_COUNT ? &resnet : &cases[number];
}

START_TEST(evaluation_counts_the_first_rows_only)
{
	const uint32_t rows[] = { 1, 5, TR_EVAL_ROWS };
	const struct shape_case *c = little(_i);
	struct on_device d;

	if (c == NULL)
		return;
	device_open(&d, tr_compute_device(c->kind), c);
	const struct tr_answers answers = { d.b.labels, d.b.targets };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct tr_score want = { 0 }, have = { 0 };

		ck_assert_int_eq(
			d.plain->evaluate(d.twin, d.b.x, answers, rows[r], &want, &d.b.error),
			RUBATO_OK);
		ck_assert_int_eq(
			d.ops->evaluate(d.compute, d.b.x, answers, rows[r], &have, &d.b.error),
			RUBATO_OK);
		ck_assert_uint_eq(have.rows, want.rows);
		ck_assert_uint_eq(have.correct, want.correct);
		ck_assert_double_eq_tol(have.loss, want.loss, 1e-5 * (1.0 + fabs(want.loss)));
	}
	device_close(&d);
}
END_TEST

struct watch { /* What ready() says during one train(). */
	struct on_device *d;
	size_t final, calls;
	size_t refuse_at; /* Call number whose answer is an error; 0: none. */
};

/* Where its last weights lie, which are final first; how often something is. */
static size_t last_weights(const struct tr_model *model)
{
	struct tr_array arrays[TR_ARRAYS_MAX];

	if (model->kind == TR_LSTM && tr_lstm_arrays(&model->sequence, arrays) > 0)
		return arrays[TR_LSTM_OUTPUT].offset;
	if (model->kind == TR_GPT)
		return arrays[tr_gpt_arrays(&model->sequence, arrays) - 1].offset;
	return model->layers[model->layer_count - 1].weight_offset;
}

static size_t ready_calls(const struct tr_model *model)
{
	size_t calls = model->kind == TR_GPT    ? 2 + 2 * model->sequence.layers
		       : model->kind == TR_LSTM ? 3
						: 0;

	for (uint32_t i = 0; i < model->layer_count; i++)
		calls += model->layers[i].weight_count > 0;
	return calls;
}

/* A copy behind what the stream has now takes what is final. */
static rubato_status watch_ready(void *arg, size_t first)
{
	struct watch *w = arg;
	const struct tr_model *model = &w->d->b.model;

	ck_assert_uint_lt(first, w->final);
	if (w->calls == 0)
		ck_assert_uint_eq(first, last_weights(model));
	ck_assert_int_eq(tr_cuda_copy(w->d->cuda, w->d->seen + first, w->d->gradient + first,
				      (w->final - first) * sizeof(float), &w->d->b.error),
			 RUBATO_OK);
	w->final = first;
	w->calls++;
	return w->calls == w->refuse_at ? RUBATO_ERR_CANCELLED : RUBATO_OK;
}

START_TEST(ready_tells_what_is_final_on_the_stream)
{
	const struct fake_cuda_control delays = { .seed = 5, .delay_us_max = 100 };
	const struct shape_case *c = little(_i);
	struct tr_score score = { 0 };
	struct on_device d;
	size_t calls;
	float *final;

	if (c == NULL)
		return;
	fake_control()(&delays);
	device_open(&d, tr_compute_device(c->kind), c);
	calls = ready_calls(&d.b.model);
	const struct tr_answers answers = { d.b.labels, d.b.targets };
	struct watch watch = { .d = &d, .final = d.b.model.parameter_count };
	const struct tr_ready ready = { watch_ready, &watch };
	ck_assert_int_eq(d.ops->train(d.compute, d.b.x, answers, &ready, &score, &d.b.error),
			 RUBATO_OK);
	ck_assert_uint_eq(watch.final, 0);
	ck_assert_uint_eq(watch.calls, calls);
	final = room(d.b.model.parameter_count, sizeof(float));
	device_copy(&d, final, d.gradient, d.b.model.parameter_count);
	ck_assert_int_eq(memcmp(d.seen, final, d.b.model.parameter_count * sizeof(float)), 0);
	free(final);
	watch = (struct watch) { &d, d.b.model.parameter_count, 0, calls };
	ck_assert_int_eq(d.ops->train(d.compute, d.b.x, answers, &ready, &score, &d.b.error),
			 RUBATO_ERR_CANCELLED);
	device_close(&d);
}
END_TEST

static rubato_status all_of_it(struct on_device *d, const struct shape_case *c)
{
	struct tr_score score = { 0 };
	rubato_status status;

	if (!device_try(d, tr_compute_device(c->kind), c))
		return RUBATO_ERR_SYSTEM;
	const struct tr_answers answers = { d->b.labels, d->b.targets };
	status = d->ops->train(d->compute, d->b.x, answers, NULL, &score, &d->b.error);
	if (status == RUBATO_OK)
		status = d->ops->evaluate(d->compute, d->b.x, answers, 2, &score, &d->b.error);
	device_close(d);
	return status;
}

static const char *const calls[] = {
	"cublasCreate_v2",
	"cublasSetStream_v2",
	"cublasSetMathMode",
	"cublasSgemv_v2",
	"cublasGemmEx",
	"cublasGemmStridedBatchedEx",
	"cudnnCreate",
	"cudnnSetStream",
	"cudnnCreateTensorDescriptor",
	"cudnnSetTensor4dDescriptor",
	"cudnnCreateFilterDescriptor",
	"cudnnSetFilter4dDescriptor",
	"cudnnCreateConvolutionDescriptor",
	"cudnnSetConvolution2dDescriptor",
	"cudnnSetConvolutionMathType",
	"cudnnGetConvolutionForwardAlgorithm_v7",
	"cudnnGetConvolutionBackwardDataAlgorithm_v7",
	"cudnnGetConvolutionBackwardFilterAlgorithm_v7",
	"cudnnConvolutionForward",
	"cudnnConvolutionBackwardData",
	"cudnnConvolutionBackwardFilter",
	"cudnnConvolutionBackwardBias",
	"cudnnBatchNormalizationForwardTraining",
	"cudnnBatchNormalizationForwardInference",
	"cudnnBatchNormalizationBackward",
	"cuLaunchKernel",
	"cuEventRecord",
	"cuEventSynchronize",
};

START_TEST(a_call_that_fails_is_named)
{
	struct fake_cuda_control control = { .fail_at = 1, .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	const bool norm = strstr(calls[_i], "BatchNorm") != NULL;
	const bool text = strstr(calls[_i], "Gemm") != NULL;
	char name[FAKE_CUDA_CALL_BYTES];
	struct on_device d;

	tr_cuda_driver_open(&(struct tr_cuda_driver) { 0 }, &d.b.error);
	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", calls[_i]);
	fake_control()(&control);
	ck_assert_int_ne(all_of_it(&d, text ? &text_cases[0] : norm ? &resnet : &cnn), RUBATO_OK);
	ck_assert_uint_eq(fake_counts().failed, 1);
	(void)snprintf(name, sizeof(name), "%s", calls[_i]);
	if (strstr(name, "_v2") != NULL)
		*strstr(name, "_v2") = '\0';
	ck_assert_msg(strncmp(d.b.error.text, "--device cuda: ", 15) == 0 &&
			      strstr(d.b.error.text, name) != NULL,
		      "%s: %s", name, d.b.error.text);
	fake_all_given_back();
}
END_TEST

/* Of memory for the backend: each piece in turn is the one that there is not. */
START_TEST(out_of_memory_leaves_nothing)
{
	const struct shape_case *c = _i < 2 ? &cnn : &text_cases[_i / 2 - 1];
	const bool pinned = _i % 2 == 1;
	static const char *const kinds[] = { "cuMemAlloc_v2", "cuMemHostAlloc" };
	struct fake_cuda_control control = { .fail_with = CUDA_ERROR_OUT_OF_MEMORY };
	uint32_t failures = 0;
	struct on_device d;

	if (test_length() == TEST_SHORT && tr_model_reads_text(c->kind) && c->in.width != 6)
		return; /* One of text is enough. */
	tr_cuda_driver_open(&(struct tr_cuda_driver) { 0 }, &d.b.error);
	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", kinds[pinned]);
	/* The first three are the test's own. */
	for (control.fail_at = pinned ? 1 : 4;; control.fail_at++) {
		fake_control()(&control);
		if (all_of_it(&d, c) == RUBATO_OK)
			break;
		ck_assert_ptr_nonnull(strstr(d.b.error.text, "CUDA_ERROR_OUT_OF_MEMORY"));
		fake_all_given_back();
		failures++;
	}
	ck_assert_uint_ge(failures, pinned ? 2 : 10);
	fake_all_given_back();
}
END_TEST

/* A second wait of either kind would fail. */
START_TEST(a_step_waits_once)
{
	static const char *const waits[] = { "cuEventSynchronize", "cuStreamSynchronize" };
	const struct shape_case *c = _i < 2 ? &cnn : &text_cases[_i / 2 - 1];
	struct fake_cuda_control control = { .fail_at = _i % 2 == 0 ? 2 : 1,
					     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
	const struct fake_cuda_control none = { 0 };
	struct tr_score score = { 0 };
	struct on_device d;

	device_open(&d, tr_compute_device(c->kind), c);
	const struct tr_answers answers = { d.b.labels, d.b.targets };
	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", waits[_i % 2]);
	fake_control()(&control);
	ck_assert_int_eq(d.ops->train(d.compute, d.b.x, answers, NULL, &score, &d.b.error),
			 RUBATO_OK);
	fake_control()(&none);
	device_close(&d);
}
END_TEST

/* Of its norm, how far the device's gradient is from the plain one; the loss alike. */
static double distance(const struct shape_case *c, enum tr_precision precision, double *loss)
{
	struct tr_score want = { 0 }, have = { 0 };
	double difference = 0.0, norm = 0.0;
	struct on_device d;

	device_precision = precision;
	device_open(&d, tr_compute_device(c->kind), c);
	device_precision = TR_FLOAT32;
	const struct tr_answers answers = { d.b.labels, d.b.targets };
	ck_assert_int_eq(d.plain->train(d.twin, d.b.x, answers, NULL, &want, &d.b.error),
			 RUBATO_OK);
	ck_assert_int_eq(d.ops->train(d.compute, d.b.x, answers, NULL, &have, &d.b.error),
			 RUBATO_OK);
	device_copy(&d, d.seen, d.gradient, d.b.model.parameter_count);
	for (size_t i = 0; i < d.b.model.parameter_count; i++) {
		const double value = (double)d.b.gradient[i];

		difference += ((double)d.seen[i] - value) * ((double)d.seen[i] - value);
		norm += value * value;
	}
	*loss = fabs(have.loss - want.loss) / want.loss;
	device_close(&d);
	return sqrt(difference / norm);
}

/* Products are rounded as asked for: TF32 has 10 bits, bfloat16 7. Nothing else is. */
START_TEST(precision_reaches_the_products)
{
	static const struct shape_case mlp = { TR_MLP, TR_CROSS_ENTROPY, { 13, 1, 1 }, 4, 11, 6 };
	const struct shape_case *all[] = { &mlp, &cnn, &text_cases[2], &text_cases[6] };
	const double most[] = { 2e-5, 1e-2, 8e-2 }, least[] = { 0.0, 5e-5, 5e-4 };
	struct on_device d;
	double loss;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (enum tr_precision p = TR_FLOAT32; p <= TR_BFLOAT16; p++) {
			if (p == TR_BFLOAT16 && all[i] == &cnn)
				continue;
			const double away = distance(all[i], p, &loss);

			ck_assert_msg(away <= most[p] && away >= least[p] && loss <= most[p],
				      "%zu, %s: gradient off by %g, loss by %g", i,
				      tr_precision_names[p], away, loss);
		}
	device_precision = TR_BFLOAT16;
	ck_assert(!device_try(&d, &tr_compute_cuda, &cnn));
	ck_assert_str_eq(d.b.error.text,
			 "--precision bfloat16: not for the convolutions of --model cnn");
	fake_all_given_back();
}
END_TEST

START_TEST(what_is_not_computed_is_refused)
{
	static const struct shape_case one = {
		TR_RESNET20, TR_CROSS_ENTROPY, { 1, 4, 4 }, 3, 0, 1
	};
	struct on_device d;

	ck_assert(!device_try(&d, &tr_compute_cuda, &one));
	ck_assert_str_eq(d.b.error.text, "--device cuda: --model resnet20 needs a --batch of more "
					 "than one such sample");
	fake_all_given_back();
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("compute");

	tcase_set_timeout(tests, 240);
	tcase_add_loop_test(tests, device_backend_equals_plain, 0,
			    test_length() == TEST_LONG ? ALL_COUNT : CASE_COUNT);
	tcase_add_loop_test(tests, text_equals_plain, 0, TEXT_COUNT);
	tcase_add_loop_test(tests, evaluation_counts_the_first_rows_only, 0, LITTLE_COUNT);
	tcase_add_loop_test(tests, ready_tells_what_is_final_on_the_stream, 0, LITTLE_COUNT);
	tcase_add_loop_test(tests, a_call_that_fails_is_named, 0,
			    (int)(sizeof(calls) / sizeof(calls[0])));
	tcase_add_loop_test(tests, out_of_memory_leaves_nothing, 0, 2 + 2 * TEXT_COUNT);
	tcase_add_loop_test(tests, a_step_waits_once, 0, 2 + 2 * TEXT_COUNT);
	tcase_add_test(tests, precision_reaches_the_products);
	tcase_add_test(tests, what_is_not_computed_is_refused);
	return check_main("cuda", tests);
}
