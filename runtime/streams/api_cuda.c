/* api_cuda.c -- the public functions of rubato_cuda.h. */
#include "rubato_cuda.h"
#include "runtime/devices/device_cuda.h"
#include "runtime/devices/devices.h"
#include "runtime/streams/op_stream.h"

static rubato_status device_need(const struct rb_engine *engine, const char *call,
				 struct rb_executor **out)
{
	*out = rb_devices_cuda(engine);
	return *out != NULL
		       ? RUBATO_OK
		       : RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				 "%s: this communicator has no CUDA device: rubato_cuda_use", call);
}

rubato_status rubato_cuda_use(rubato_comm *comm, int device)
{
	rubato_status err;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda use: NULL");
	RB_TRY(rb_engine_call(&comm->engine));
	err = rb_engine_check(&comm->engine);
	if (err == RUBATO_OK)
		err = rb_devices_cuda_use(&comm->engine, device);
	if (err == RUBATO_OK)
		comm->origin.cuda = rb_device_cuda_number(rb_devices_cuda(&comm->engine));
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_cuda_describe(rubato_comm *comm, char *text, size_t text_bytes)
{
	struct rb_executor *device;
	rubato_status err;

	if (comm == NULL || (text == NULL && text_bytes > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda describe: NULL");
	RB_TRY(rb_engine_call(&comm->engine));
	err = device_need(&comm->engine, "cuda describe", &device);
	if (err == RUBATO_OK)
		rb_device_cuda_describe(device, text, text_bytes);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_cuda_alloc(rubato_comm *comm, size_t size_bytes, void **memory)
{
	struct rb_executor *device;
	rubato_status err;

	if (comm == NULL || memory == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda alloc: NULL");
	RB_TRY(rb_engine_call(&comm->engine));
	err = device_need(&comm->engine, "cuda alloc", &device);
	if (err == RUBATO_OK)
		err = device->ops->memory_new(device, RB_MEMORY_DEVICE, size_bytes, memory);
	rb_engine_leave(&comm->engine);
	return err;
}

rubato_status rubato_cuda_free(rubato_comm *comm, void *memory)
{
	struct rb_executor *device;
	rubato_status err;

	if (comm == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda free: NULL");
	if (memory == NULL)
		return RUBATO_OK;
	RB_TRY(rb_engine_call(&comm->engine));
	err = device_need(&comm->engine, "cuda free", &device);
	if (err == RUBATO_OK && !rb_device_cuda_gave(device, memory))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "cuda free: %p is not from rubato_cuda_alloc",
			      memory);
	if (err == RUBATO_OK)
		device->ops->memory_free(device, memory);
	rb_engine_leave(&comm->engine);
	return err;
}

static rubato_status start_on(struct rubato_op *op, void *stream)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_executor *device;

	RB_TRY(rb_engine_check(engine));
	RB_TRY(device_need(engine, "start on a stream", &device));
	if (!engine->background.thread.running)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "start on a stream: there is no progress thread "
			       "(RUBATO_BACKGROUND=0), and a stream does not drive");
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		if (engine->endpoints[i]->makes_streams)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "start on a stream: with RUBATO_UCX_DEVICE=1 UCX makes "
				       "streams, which could wait behind this one");
	if (!op->done && op->stream.ends == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "start on a stream: the operation is in flight already");
	if (!op->done)
		RB_TRY(rb_engine_wait_for(engine, &op->done, op->comm->timeout_ns));
	RB_TRY(rb_op_result(op));
	return rb_op_start_on(op, stream);
}

rubato_status rubato_cuda_start(rubato_op *op, void *stream)
{
	rubato_status err;

	if (op == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "start on a stream: NULL");
	RB_TRY(rb_engine_call(&op->comm->engine));
	err = start_on(op, stream);
	rb_engine_leave(&op->comm->engine);
	return err;
}
