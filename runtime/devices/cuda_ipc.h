/*
 * cuda_ipc.h -- device memory of other processes of this node, mapped here by CUDA IPC, and what
 * they find ours by.
 *
 * What is mapped stays so, for who opens it next, until it is known that the owner has freed it
 * (other memory is at its place), is about to (forget), or too much is mapped. CUDA calls it
 * undefined to free memory that others have mapped: the library's own is freed after all have
 * forgotten it, when a communicator ends; when the application frees its own, nobody says.
 *
 * A communicator's; the driver counts those of several that map the same.
 */
#ifndef RB_RUNTIME_DEVICES_CUDA_IPC_H
#define RB_RUNTIME_DEVICES_CUDA_IPC_H

#include "runtime/devices/cuda_memory.h"
#include "runtime/engine/executor.h"

struct rb_cuda_ipc {
	struct rb_cuda_opened *at;
	uint32_t count, room;
	uint64_t clock; /* Opens so far. */
	bool said;      /* Why memory is not shared. */
};

/* False: it cannot be shared, as the log then says. */
bool rb_cuda_ipc_share(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc,
		       const void *address, struct rb_share *share);
/* Errors: PEER (it does not lie there), those of the driver. */
RB_NODISCARD rubato_status rb_cuda_ipc_open(const struct rb_cuda_context *context,
					    struct rb_cuda_ipc *ipc, const struct rb_share *share,
					    uint64_t size_bytes, void **address);
void rb_cuda_ipc_close(struct rb_cuda_ipc *ipc, const void *address);
/* What is not open is unmapped; `all`: at the end, whatever is. */
void rb_cuda_ipc_forget(const struct rb_cuda_context *context, struct rb_cuda_ipc *ipc, bool all);

#endif
