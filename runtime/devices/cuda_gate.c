/* cuda_gate.c -- see cuda_gate.h. */
#include "runtime/devices/cuda_gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda/kernels.h"

#define GATES 64u
#define LOOKS_PER_QUERY 1024u

struct gate {
	struct rb_gate base;
	struct rb_cuda_context *context;
	/* The stream writes how many gates it has reached and passed, and goes on when as many have
	 * been opened. So to look is to read. */
	struct gate_words {
		_Alignas(64) _Atomic uint32_t reached;
		_Atomic uint32_t passed, opened;
	} * words;
	uint32_t passes, looks;
	CUstream stream; /* The last. */
	bool taken;
};

struct rb_cuda_gates {
	struct gate gates[GATES];
	struct gate_words *words;
	struct rb_cuda_gates *next;
};

static rubato_status gate_close(struct gate *gate, CUstream stream)
{
	const struct rb_cuda_driver *cuda = &gate->context->cuda;
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	struct rb_cuda_gate call = { .reached = (uint32_t *)&gate->words->reached,
				     .passed = (uint32_t *)&gate->words->passed,
				     .opened = (uint32_t *)&gate->words->opened };
	void *parameters[] = { &call };

	RB_CUDA_TRY(cuda, cuStreamIsCapturing, stream, &capture);
	if (capture != CU_STREAM_CAPTURE_STATUS_NONE)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "start on a stream: it is being captured into a graph, whose "
			       "launches would all wait for this one start");
	call.value = gate->passes + 1;
	RB_CUDA_TRY(cuda, cuLaunchKernel, gate->context->gate, 1, 1, 1, 1, 1, 1, 0, stream,
		    parameters, NULL);
	gate->stream = stream;
	gate->passes = call.value; /* Nothing of ours is behind it: that would hold others up. */
	return RUBATO_OK;
}

static rubato_status gate_shut(struct rb_gate *base, void *stream)
{
	struct gate *gate = (struct gate *)base;
	rubato_status err;

	rb_cuda_enter(gate->context);
	err = gate_close(gate, stream);
	rb_cuda_leave(gate->context);
	if (err != RUBATO_OK) /* Some of it may be on the stream. */
		base->ops->open(base);
	return err;
}

/* What an operation that was ended early has left on a stream is still to come, and would write
 * over what another stream has written since. */
static bool is_awaited(const struct gate *gate)
{
	return atomic_load_explicit(&gate->words->reached, memory_order_acquire) != gate->passes;
}

static bool has_passed(const struct gate *gate)
{
	return atomic_load_explicit(&gate->words->passed, memory_order_acquire) == gate->passes;
}

/* On its own stream what it writes comes in order; on two it might not. */
static bool gate_awaited(const struct rb_gate *base, const void *stream)
{
	const struct gate *gate = (const struct gate *)base;

	return is_awaited(gate) || (stream != gate->stream && !has_passed(gate));
}

/* What became of the device any call tells; this one asks for nothing else. */
static CUresult device_state(const struct rb_cuda_context *context)
{
	CUresult result = context->cuda.p_cuStreamQuery(context->streams[RB_CUDA_OTHER]);

	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static rubato_status gate_look(struct rb_gate *base, bool *reached)
{
	struct gate *gate = (struct gate *)base;
	CUresult result;

	*reached =
		atomic_load_explicit(&gate->words->reached, memory_order_acquire) == gate->passes;
	if (*reached || ++gate->looks % LOOKS_PER_QUERY != 0)
		return RUBATO_OK;
	rb_cuda_enter(gate->context);
	result = device_state(gate->context);
	rb_cuda_leave(gate->context);
	return result == CUDA_SUCCESS
		       ? RUBATO_OK
		       : rb_cuda_failed(&gate->context->cuda, "cuStreamQuery", result);
}

static void gate_open(struct rb_gate *base)
{
	struct gate *gate = (struct gate *)base;

	atomic_store_explicit(&gate->words->opened, gate->passes, memory_order_release);
}

/* Its stream may have yet to look at the words: they stay as they are. The next to have the gate,
 * which is when the stream has come by, counts on. */
static void gate_free(struct rb_gate *base)
{
	struct gate *gate = (struct gate *)base;

	rb_lock_take(&gate->context->lock);
	gate->taken = false;
	rb_lock_drop(&gate->context->lock);
}

static const struct rb_gate_ops gate_ops = {
	.shut = gate_shut,
	.awaited = gate_awaited,
	.look = gate_look,
	.open = gate_open,
	.free = gate_free,
};

/* The words are a room of the context's, which ends with it. */
static rubato_status gates_fill(struct rb_cuda_context *context, struct rb_cuda_gates *gates)
{
	void *words;

	RB_TRY(rb_cuda_room_new(context, gates, RB_MEMORY_HOST, GATES * sizeof(*gates->words),
				&words));
	memset(words, 0, GATES * sizeof(*gates->words));
	gates->words = words;
	for (uint32_t i = 0; i < GATES; i++) {
		struct gate *gate = &gates->gates[i];

		gate->base.ops = &gate_ops;
		gate->context = context;
		gate->words = &gates->words[i];
	}
	return RUBATO_OK;
}

rubato_status rb_cuda_gates_make(struct rb_cuda_context *context)
{
	struct rb_cuda_gates *gates = calloc(1, sizeof(*gates));
	rubato_status err;

	if (gates == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "gates of streams: %zu bytes", sizeof(*gates));
	rb_cuda_enter(context);
	err = gates_fill(context, gates);
	rb_cuda_leave(context);
	if (err != RUBATO_OK) {
		free(gates);
		return err;
	}
	rb_lock_take(&context->lock);
	gates->next = context->gates;
	context->gates = gates;
	rb_lock_drop(&context->lock);
	return RUBATO_OK;
}

static struct gate *gate_take(struct rb_cuda_context *context)
{
	struct gate *found = NULL;

	rb_lock_take(&context->lock);
	for (struct rb_cuda_gates *g = context->gates; g != NULL && found == NULL; g = g->next)
		for (uint32_t i = 0; i < GATES && found == NULL; i++)
			found = g->gates[i].taken || !has_passed(&g->gates[i]) ? NULL
									       : &g->gates[i];
	if (found != NULL)
		found->taken = true;
	rb_lock_drop(&context->lock);
	return found;
}

rubato_status rb_cuda_gate_new(struct rb_cuda_context *context, struct rb_gate **out)
{
	struct gate *gate;

	while ((gate = gate_take(context)) == NULL)
		RB_TRY(rb_cuda_gates_make(context));
	*out = &gate->base;
	return RUBATO_OK;
}

bool rb_cuda_gates_close(struct rb_cuda_context *context)
{
	uint64_t until = rb_clock_ns() + RB_CUDA_PATIENCE_NS;
	bool all = true;

	while (context->gates != NULL) {
		struct rb_cuda_gates *gates = context->gates;

		for (uint32_t i = 0; i < GATES; i++) {
			const struct gate *gate = &gates->gates[i];

			while (!has_passed(gate) && device_state(context) == CUDA_SUCCESS &&
			       rb_clock_ns() < until)
				rb_yield();
			all &= has_passed(gate) || device_state(context) != CUDA_SUCCESS;
		}
		context->gates = gates->next;
		free(gates);
	}
	return all;
}
