/* devices.h -- which executors with memory of their own a rank has. */
#ifndef RB_RUNTIME_DEVICES_H
#define RB_RUNTIME_DEVICES_H

#include "runtime/engine/engine.h"

#define RB_CUDA_OFF (-2)
#define RB_CUDA_AUTO (-1) /* What the process uses already, if anything; RUBATO_CUDA_CURRENT. */

/* RUBATO_CUDA as a number: one of these, or a device's. Errors: ARGUMENT. */
RB_NODISCARD rubato_status rb_devices_cuda_read(const char *text, int *number);
/* Those of this rank: the simulated one, or `cuda`. */
RB_NODISCARD rubato_status rb_devices_open(struct rb_engine *engine, int cuda);
/* As rubato_cuda_use. */
RB_NODISCARD rubato_status rb_devices_cuda_use(struct rb_engine *engine, int number);
/* What transports are told of this rank's device, which may come after they are opened. */
struct rb_device_memory rb_devices_memory(struct rb_engine *engine);
/* NULL: there is none. */
struct rb_executor *rb_devices_cuda(const struct rb_engine *engine);

#endif
