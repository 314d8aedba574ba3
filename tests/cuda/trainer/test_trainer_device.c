/*
 * test_trainer_device.c -- a rank's device (trainer/cuda/device.h) on the driver without one: what
 * is enqueued is done in order, every call that fails is named, and everything is given back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/cuda/fakes.h"
#include "trainer/cuda/device.h"

#define COUNT 1000u

static struct tr_cuda *open_device(uint32_t number)
{
	struct tr_error error = { 0 };
	struct tr_cuda *cuda;

	ck_assert_msg(tr_cuda_open(&cuda, number, &error) == RUBATO_OK, "%s", error.text);
	return cuda;
}

/* A copy, a kernel that reads it, a copy back, the kernel in place on another stream behind it. */
static rubato_status work(struct tr_cuda *cuda, float *host, void **memory, struct tr_error *error)
{
	struct tr_cuda_relu relu = { .count = COUNT };

	TR_TRY(tr_cuda_alloc(cuda, 2 * COUNT * sizeof(float), memory, error));
	relu.from = *memory;
	relu.to = (float *)*memory + COUNT;
	TR_TRY(tr_cuda_clear(cuda, *memory, 2 * COUNT * sizeof(float), error));
	TR_TRY(tr_cuda_copy(cuda, *memory, host, COUNT * sizeof(float), error));
	TR_TRY(tr_cuda_launch(cuda, TR_CUDA_relu, COUNT, &relu, error));
	TR_TRY(tr_cuda_order(cuda, cuda->stream, cuda->stream, error));
	TR_TRY(tr_cuda_copy(cuda, host, relu.to, COUNT * sizeof(float), error));
	return tr_cuda_wait(cuda, error);
}

START_TEST(what_is_enqueued_is_done_in_order)
{
	const struct fake_cuda_control delays = { .seed = (uint64_t)_i + 1, .delay_us_max = 200 };
	struct tr_error error = { 0 };
	struct tr_cuda *cuda;
	void *memory, *pinned;
	float *host;

	fake_control()(&delays);
	cuda = open_device((uint32_t)_i % 2);
	ck_assert_int_eq(tr_cuda_alloc_host(cuda, COUNT * sizeof(float), &pinned, &error),
			 RUBATO_OK);
	host = pinned;
	for (uint32_t i = 0; i < COUNT; i++)
		host[i] = (float)i - 500.0f;
	ck_assert_msg(work(cuda, host, &memory, &error) == RUBATO_OK, "%s", error.text);
	for (uint32_t i = 0; i < COUNT; i++)
		ck_assert_float_eq(host[i], i > 500 ? (float)i - 500.0f : 0.0f);
	tr_cuda_free(cuda, memory);
	tr_cuda_free_host(cuda, pinned);
	tr_cuda_close(cuda);
	fake_all_given_back();
}
END_TEST

START_TEST(a_device_that_is_not_there_is_a_mistake)
{
	struct tr_error error = { 0 };
	struct tr_cuda *cuda;

	ck_assert_int_eq(tr_cuda_open(&cuda, FAKE_CUDA_DEVICES, &error), RUBATO_ERR_ARGUMENT);
	ck_assert_str_eq(error.text, "--device cuda:4: there are 4 CUDA devices");
	fake_all_given_back();
}
END_TEST

/* By the name that stands in the trainer's table; the driver's own has its version. */
static const struct {
	const char *call, *text;
} calls[] = {
	{ "cuDeviceGetCount", "cuDeviceGetCount" },
	{ "cuDeviceGet", "cuDeviceGet" },
	{ "cuDeviceGetAttribute", "cuDeviceGetAttribute" },
	{ "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain" },
	{ "cuCtxPushCurrent_v2", "cuCtxPushCurrent" },
	{ "cuModuleLoadData", "cuModuleLoadData" },
	{ "cuModuleGetFunction", "cuModuleGetFunction" },
	{ "cuFuncLoad", "cuFuncLoad" },
	{ "cuStreamCreateWithPriority", "cuStreamCreateWithPriority" },
	{ "cuEventCreate", "cuEventCreate" },
	{ "cuMemAlloc_v2", "cuMemAlloc" },
	{ "cuMemHostAlloc", "cuMemHostAlloc" },
	{ "cuMemsetD8Async", "cuMemsetD8Async" },
	{ "cuMemcpyAsync", "cuMemcpyAsync" },
	{ "cuLaunchKernel", "cuLaunchKernel" },
	{ "cuEventRecord", "cuEventRecord" },
	{ "cuStreamWaitEvent", "cuStreamWaitEvent" },
	{ "cuStreamSynchronize", "cuStreamSynchronize" },
};

START_TEST(a_call_that_fails_is_named)
{
	struct fake_cuda_control control = { .fail_at = 1, .fail_with = CUDA_ERROR_OUT_OF_MEMORY };
	struct tr_error error = { 0 };
	struct tr_cuda *cuda = NULL;
	void *memory = NULL, *pinned = NULL;
	rubato_status status;
	char text[128];

	tr_cuda_close(open_device(0)); /* The driver is initialised. */
	(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", calls[_i].call);
	fake_control()(&control);
	status = tr_cuda_open(&cuda, 0, &error);
	if (status == RUBATO_OK)
		status = tr_cuda_alloc_host(cuda, COUNT * sizeof(float), &pinned, &error);
	if (status == RUBATO_OK)
		status = work(cuda, pinned, &memory, &error);
	ck_assert_int_eq(status, RUBATO_ERR_MEMORY);
	(void)snprintf(text, sizeof(text),
		       "--device cuda: %s: CUDA_ERROR_OUT_OF_MEMORY (by the fake driver)",
		       calls[_i].text);
	ck_assert_str_eq(error.text, text);
	if (cuda != NULL) {
		tr_cuda_free(cuda, memory);
		tr_cuda_free_host(cuda, pinned);
	}
	tr_cuda_close(cuda);
	fake_all_given_back();
}
END_TEST

START_TEST(a_library_that_is_missing_is_named)
{
	static const char *const none[] = { "libno-such-library.so.1", "libneither.so.0", NULL };
	struct tr_error error = { 0 };

	ck_assert_int_eq(tr_cuda_load(none, NULL, 0, &error), RUBATO_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "--device cuda: cannot load libno-such-library"));
	ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

START_TEST(a_function_that_is_missing_is_named)
{
	static const char *const driver[] = { "libcuda.so.1", NULL };
	void *function;
	const struct tr_cuda_symbol symbol = { "cuNoSuchFunction", &function };
	struct tr_error error = { 0 };

	ck_assert_int_eq(tr_cuda_load(driver, &symbol, 1, &error), RUBATO_ERR_UNSUPPORTED);
	ck_assert_str_eq(error.text,
			 "--device cuda: this machine's libcuda.so.1 has no cuNoSuchFunction");
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("device");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, what_is_enqueued_is_done_in_order, 0, 4);
	tcase_add_test(tests, a_device_that_is_not_there_is_a_mistake);
	tcase_add_loop_test(tests, a_call_that_fails_is_named, 0,
			    (int)(sizeof(calls) / sizeof(calls[0])));
	tcase_add_test(tests, a_library_that_is_missing_is_named);
	tcase_add_test(tests, a_function_that_is_missing_is_named);
	return check_main("cuda", tests);
}
