/*
 * rubato_cuda.h -- memory and streams of CUDA devices.
 *
 * Collectives take device memory as they take the host's, on any rank, for input or output or both:
 * the same functions, the same bits. Which memory is a device's, the driver is asked, once for each
 * operation. Programs need no CUDA to be linked with, nor to run: the driver is loaded by name, and
 * kernels of the library's own reduce.
 *
 *   rubato_init(&comm, NULL);                // with a device current: it is the communicator's
 *   rubato_allreduce(comm, device_in, device_out, count, RUBATO_FLOAT32, RUBATO_SUM);
 *
 * A blocking call needs its input to be there when it is made, whatever stream wrote it, and its
 * result is there, for all streams, when it returns. On a stream:
 *
 *   rubato_op_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM, &op);
 *   write_gradients<<<..., stream>>>(in);
 *   rubato_cuda_start(op, stream);           // returns at once
 *   use_gradients<<<..., stream>>>(out);     // after the allreduce
 *
 * Sends and receives take it as well, with the host's memory at the other end or a device's.
 * Relaxed operations take it, too: rubato_partial_contribute and rubato_lagged_accumulate read a
 * device's vector, rubato_partial_collect writes one, and each is the caller's again when the call
 * returns; the input must be there when it is made. What is acquired or lent is the host's, but of
 * rubato_cuda_lagged_create and rubato_cuda_partial_create.
 *
 * Ranks that are processes of one node map each other's device memory, and keep it mapped for the
 * next call: memory of the application's own that collectives have used is not free for others when
 * it is freed, before the communicator ends; that of rubato_cuda_alloc is never freed too early.
 *
 * docs/gpu.md says how data travel, and what was measured.
 */
#ifndef RUBATO_CUDA_H
#define RUBATO_CUDA_H

#include "rubato.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RUBATO_CUDA_CURRENT (-1)

/*
 * From now on memory of CUDA device number `device` (as the driver counts them) is a device's to
 * this communicator; RUBATO_CUDA_CURRENT: of the device of the calling thread's context. Local.
 * rubato_init does this by itself as RUBATO_CUDA says: "auto", if the driver is in the process
 * already and the calling thread has a context. One device a communicator; the same one again is no
 * error. Loads kernels and makes streams, so it takes some milliseconds. Errors: UNSUPPORTED (no
 * driver, no device, or a library that was built without CUDA), ARGUMENT (no such device, no
 * current context, or another device is in use), SYSTEM, MEMORY.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_cuda_use(rubato_comm *comm, int device);

/* The communicator's device, in one line: "CUDA device 0, NVIDIA H100, compute capability 9.0, RDMA
 * by dma-buf"; or why there is no RDMA. Errors: UNSUPPORTED (it has none). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_cuda_describe(rubato_comm *comm, char *text,
							       size_t text_bytes);

/* Memory of that device, not cleared. Local. To free some waits for nothing: it stays the
 * library's, for who asks next, until no communicator of the process uses the device. Errors:
 * UNSUPPORTED (no device in use), MEMORY. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_cuda_alloc(rubato_comm *comm, size_t size_bytes,
							    void **memory);
/* Gives it back. Errors: ARGUMENT (not such memory). */
RUBATO_API rubato_status rubato_cuda_free(rubato_comm *comm, void *memory);

/*
 * Starts a persistent operation on a stream (CUstream, or cudaStream_t, of the communicator's
 * device; NULL: the default stream, which ranks that are threads on one device share, and so cannot
 * have): it begins when what is on the stream now is over, and what comes onto the stream from now
 * on begins when the operation is over. Does not wait for the stream: only, at most the
 * communicator's timeout, for this operation's own last start, if that is still in flight. Input
 * and output may lie on the device or the host, each rank's where it likes; the host's need not be
 * pinned. Needs the progress thread (RUBATO_BACKGROUND=1, which is usual).
 * All ranks must start the same operations, in the same order where they are on several streams,
 * each in whatever way it likes. While streams wait for operations, freeing device memory waits for
 * them, and making memory, streams, operations or communicators may: make them before. Ranks that
 * are threads of one process on one device make theirs before any of them starts, with a barrier
 * behind it, and free after a barrier; and they have at most as many such streams together as the
 * device has queues, 8 or CUDA_DEVICE_MAX_CONNECTIONS (docs/gpu.md, "Streams that wait").
 *
 * If the operation fails, or is cancelled, or the communicator is aborted, the stream goes on; the
 * error is what rubato_test and rubato_wait return, and every later call. The communicator must not
 * be finalized before the stream has come by. Errors: UNSUPPORTED (no device in use, no progress
 * thread, or a stream that is being captured into a graph), TIMEOUT.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_cuda_start(rubato_op *operation, void *stream);

/*
 * rubato_lagged_create, with vectors on the communicator's device: what rubato_lagged_acquire
 * gives, and collect and flush lend, is its memory; gradients may still lie anywhere. The device
 * adds them up and divides, with the host's bits, and the calls wait for that; the allreduces are
 * those of device memory. Other ranks may have theirs on the host. Memory on the device: 2 (lag +
 * 1) vectors, and one more for gradients of the host. Errors besides: UNSUPPORTED (no device in
 * use).
 */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_cuda_lagged_create(rubato_comm *comm, uint64_t count, rubato_type type, rubato_operator op,
			  uint32_t lag, rubato_lagged **lagged);

/*
 * rubato_partial_create, with buffers on the communicator's device, on all ranks: what
 * rubato_partial_acquire gives, and collect_view and pending lend, is its memory, which the
 * device reduces, with the host's bits; vectors of contribute and collect may lie anywhere. What a
 * stream writes into a leased buffer is over before the commit, what it reads of a lent one before
 * the release. Calls wait for the device's own copies and additions, never for a peer's.
 * Memory on the device: as rubato_partial_create says, what rubato_partial_residual lends among it.
 * In a simulation: on the simulated device. Errors besides: UNSUPPORTED (no device in use),
 * MISMATCH (some ranks have theirs on the host). An error of the device's poisons the communicator.
 */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_cuda_partial_create(rubato_comm *comm, uint64_t count, rubato_type type, rubato_operator op,
			   const rubato_partial_options *options, rubato_partial **partial);

#ifdef __cplusplus
}
#endif

#endif
