/* cuda_context.c -- see cuda_context.h. */
#include "runtime/devices/cuda_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/log.h"
#include "cuda/image.h"
#include "runtime/devices/cuda_gate.h"

static struct {
	struct rb_lock lock;
	struct rb_cuda_context *first;
} contexts;

/* Now: else the first launch does, and waits for all streams, as it may. */
static rubato_status kernel_load(struct rb_cuda_context *context, const char *name,
				 CUfunction *kernel)
{
	const struct rb_cuda_driver *cuda = &context->cuda;

	RB_CUDA_TRY(cuda, cuModuleGetFunction, kernel, context->module, name);
	RB_CUDA_TRY(cuda, cuFuncLoad, *kernel);
	return RUBATO_OK;
}

static rubato_status kernels_load(struct rb_cuda_context *context)
{
	static const char *const types[RUBATO_TYPE_COUNT] = {
		[RUBATO_FLOAT32] = "f32", [RUBATO_FLOAT64] = "f64", [RUBATO_INT32] = "i32",
		[RUBATO_INT64] = "i64",   [RUBATO_FLOAT16] = "f16", [RUBATO_BFLOAT16] = "bf16",
		[RUBATO_INT8] = "i8",     [RUBATO_INT16] = "i16",   [RUBATO_UINT8] = "u8",
		[RUBATO_UINT16] = "u16",  [RUBATO_UINT32] = "u32",  [RUBATO_UINT64] = "u64",
	};
	static const char *const wires[RB_CUDA_WIRES] = { [RUBATO_WIRE_BFLOAT16 - 1] = "bf16",
							  [RUBATO_WIRE_INT8 - 1] = "int8" };
	static const char *const codings[] = { [RB_CODING_ENCODE - 1] = "encode",
					       [RB_CODING_DECODE - 1] = "decode",
					       [RB_CODING_REDUCE - 1] = "reduce_coded" };
	char name[64];

	RB_CUDA_TRY(&context->cuda, cuModuleLoadData, &context->module, rb_cuda_image);
	for (uint32_t t = 0; t < RUBATO_TYPE_COUNT; t++)
		for (enum rb_cuda_kernel k = 0; k < RB_CUDA_KERNELS; k++) {
			(void)snprintf(name, sizeof(name), "rb_reduce_%s%s",
				       k == RB_CUDA_MANY ? "many_" : "", types[t]);
			RB_TRY(kernel_load(context, name, &context->kernels[t][k]));
		}
	for (uint32_t w = 0; w < RB_CUDA_WIRES; w++) {
		for (uint32_t c = 0; c < RB_CODING_REDUCE; c++) {
			(void)snprintf(name, sizeof(name), "rb_%s_%s", codings[c], wires[w]);
			RB_TRY(kernel_load(context, name, &context->coders[w][c]));
		}
		(void)snprintf(name, sizeof(name), "rb_reduce_coded_many_%s", wires[w]);
		RB_TRY(kernel_load(context, name, &context->coded_many[w]));
	}
	return kernel_load(context, "rb_gate", &context->gate);
}

static rubato_status parts_make(struct rb_cuda_context *context)
{
	const struct rb_cuda_driver *cuda = &context->cuda;
	int value = 0, last = 0, first = 0;

	/* Streams share a few queues of the device with others of their priority, and one that
	 * waits at a gate holds its queue up. So ours have another priority than is usual. */
	RB_CUDA_TRY(cuda, cuCtxGetStreamPriorityRange, &last, &first);
	RB_CUDA_TRY(cuda, cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
		    context->number);
	context->multiprocessors = (uint32_t)value;
	for (uint32_t s = 0; s < RB_CUDA_STREAMS; s++)
		RB_CUDA_TRY(cuda, cuStreamCreateWithPriority, &context->streams[s],
			    CU_STREAM_NON_BLOCKING, first);
	RB_TRY(kernels_load(context));
	return rb_cuda_gates_make(context);
}

static void context_free(struct rb_cuda_context *context)
{
	rb_cuda_enter(context);
	if (rb_cuda_gates_close(context))
		rb_cuda_rooms_release(context);
	else
		RB_LOG(RB_LOG_WARN,
		       "CUDA device %d: a stream has not come to where an operation was started on "
		       "it: some memory stays",
		       context->number);
	for (uint32_t s = 0; s < RB_CUDA_STREAMS; s++)
		if (context->streams[s] != NULL)
			(void)context->cuda.p_cuStreamDestroy(context->streams[s]);
	if (context->module != NULL)
		(void)context->cuda.p_cuModuleUnload(context->module);
	rb_cuda_leave(context);
	(void)context->cuda.p_cuDevicePrimaryCtxRelease(context->number);
	free(context);
}

static rubato_status context_make(const struct rb_cuda_driver *cuda, CUdevice number,
				  struct rb_cuda_context **out)
{
	struct rb_cuda_context *context = calloc(1, sizeof(*context));
	CUresult result;
	rubato_status err;

	if (context == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "CUDA device: %zu bytes", sizeof(*context));
	context->cuda = *cuda;
	context->number = number;
	result = cuda->p_cuDevicePrimaryCtxRetain(&context->context, number);
	if (result != CUDA_SUCCESS) {
		free(context);
		return rb_cuda_failed(cuda, "cuDevicePrimaryCtxRetain", result);
	}
	rb_lock_init(&context->lock);
	rb_cuda_enter(context);
	err = getrandom(&context->nonce, sizeof(context->nonce), 0) ==
			      (ssize_t)sizeof(context->nonce)
		      ? parts_make(context)
		      : RB_FAIL(RUBATO_ERR_SYSTEM, "CUDA device: getrandom");
	rb_cuda_leave(context);
	if (err != RUBATO_OK) {
		context_free(context);
		return err;
	}
	*out = context;
	return RUBATO_OK;
}

rubato_status rb_cuda_context_open(const struct rb_cuda_driver *cuda, CUdevice number,
				   struct rb_cuda_context **out, uint32_t *lane)
{
	struct rb_cuda_context *context;
	rubato_status err = RUBATO_OK;

	rb_lock_take(&contexts.lock);
	for (context = contexts.first; context != NULL; context = context->next)
		if (context->number == number)
			break;
	if (context == NULL) {
		err = context_make(cuda, number, &context);
		if (err == RUBATO_OK) {
			context->next = contexts.first;
			contexts.first = context;
		}
	}
	if (err == RUBATO_OK) {
		context->users++;
		*lane = context->lane;
		context->lane = (context->lane + 1) % RB_CUDA_LANES;
		*out = context;
	}
	rb_lock_drop(&contexts.lock);
	return err;
}

void rb_cuda_context_close(struct rb_cuda_context *context)
{
	struct rb_cuda_context **at = &contexts.first;

	rb_lock_take(&contexts.lock);
	if (--context->users == 0) {
		while (*at != context)
			at = &(*at)->next;
		*at = context->next;
		context_free(context);
	}
	rb_lock_drop(&contexts.lock);
}
