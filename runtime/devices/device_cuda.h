/* device_cuda.h -- a CUDA device, as an executor. */
#ifndef RB_RUNTIME_DEVICES_CUDA_H
#define RB_RUNTIME_DEVICES_CUDA_H

#include "runtime/engine/executor.h"

#define RB_CUDA_CURRENT (-1) /* The device of the calling thread's current context. */

#ifdef RB_HAVE_CUDA
/*
 * `number` as the driver counts devices. *out NULL: the driver is not in this process and `load`
 * says not to bring it, or the calling thread has no context, of which the current device would be.
 * Kernels are loaded and streams made here, so that nothing of that happens while streams of the
 * application wait for us.
 */
RB_NODISCARD rubato_status rb_device_cuda_open(int number, bool load, struct rb_executor **out);
bool rb_device_is_cuda(const struct rb_executor *executor);
int rb_device_cuda_number(const struct rb_executor *executor);
/* Whether it is this one; RB_CUDA_CURRENT: of the calling thread's context. */
RB_NODISCARD rubato_status rb_device_cuda_is(struct rb_executor *executor, int number, bool *same);
/* Its number, its name, and which compute capability it has, in one line. */
void rb_device_cuda_describe(struct rb_executor *executor, char *text, size_t text_bytes);
/* Whether `memory` is a begin of what memory_new gave, and has not come back. */
bool rb_device_cuda_gave(const struct rb_executor *executor, const void *memory);
#else
static inline rubato_status rb_device_cuda_open(int number, bool load, struct rb_executor **out)
{
	(void)number;
	*out = NULL;
	return load ? RB_FAIL(RUBATO_ERR_UNSUPPORTED, "this library was built without CUDA")
		    : RUBATO_OK;
}
static inline bool rb_device_is_cuda(const struct rb_executor *executor)
{
	(void)executor;
	return false;
}
/* Of no executor are these ever asked. */
static inline int rb_device_cuda_number(const struct rb_executor *executor)
{
	(void)executor;
	return RB_CUDA_CURRENT;
}
static inline rubato_status rb_device_cuda_is(struct rb_executor *executor, int number, bool *same)
{
	(void)executor;
	(void)number;
	*same = false;
	return RUBATO_OK;
}
static inline void rb_device_cuda_describe(struct rb_executor *executor, char *text,
					   size_t text_bytes)
{
	(void)executor;
	if (text_bytes > 0)
		text[0] = '\0';
}
static inline bool rb_device_cuda_gave(const struct rb_executor *executor, const void *memory)
{
	(void)executor;
	return memory == NULL;
}
#endif

#endif
