/*
 * fake_cuda.h -- a libcuda.so.1 without a device: the driver's functions that Rubato, its tests and
 * UCX's modules for CUDA call, as documented, and no others.
 *
 *   memory    a device's lies in pages that no processor may touch: who does, faults there. Only
 *             the fake's own threads reach it, by another mapping of the same pages. To free some
 *             waits for all streams, as drivers do
 *   streams   a thread each, which does what was enqueued in its order, with delays drawn from a
 *             seed: an order that nobody asked for shows as wrong values
 *             The default stream is one more: others do not wait for it, nor it for them
 *   queues    of a device, which streams share where there are fewer: a stream gets the one that
 *             the fewest have. A queue does what its streams were given one by one, in the order
 *             in which it was given: what waits at its head holds up all behind it, of whichever
 *             stream. How real queues are shared is not documented: that streams of another
 *             priority have queues of their own is an assumption, and can be taken back here
 *   IPC       a handle is of memory in a file, which the process that opens it maps at addresses of
 *             its own; to close it waits for all streams, too. What the owner frees while another
 *             process has it open is counted
 *   kernels   those of cuda/, compiled for the processor (tests/cuda/emulated.h); rb_gate, which
 *             waits, is done by the stream itself
 *   dma-bufs  the file that a device's memory is; where one begins is where its descriptor stands.
 *             With FAKE_CUDA_UDMABUF=1 a kernel's, of the same pages, made by /dev/udmabuf. What a
 *             network that asks (fake_cuda_remote_write) writes there stays under way, if control
 *             says so, until it is flushed or the network reads: as posted writes may
 *   waits     of calls that make something, and of copies of memory that is not pinned, while
 *             streams wait: if control says so. With FAKE_CUDA_AS_SEEN=1 programs that know
 *             nothing of this control have both, and 32 queues, as seen on an H200
 *   contexts  each call looks whether the calling thread has one
 *
 * Tests find this control by dlsym ("fake_cuda_control"); the real driver has none, so that a test
 * which only asks for right values runs on either.
 */
#ifndef TESTS_CUDA_FAKE_CUDA_H
#define TESTS_CUDA_FAKE_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_CUDA_CALL_BYTES 48
#define FAKE_CUDA_DEVICES 4
#define FAKE_CUDA_QUEUES_MAX 64

struct fake_cuda_control {
	uint64_t seed;         /* Of delays; 0: none. */
	uint32_t delay_us_max; /* Of those that are long: one in eight. */
	/* The `fail_at`-th call of this name from now on, from 1, and `fail_count` behind it, end
	 * with `fail_with`. */
	char fail_call[FAKE_CUDA_CALL_BYTES];
	uint32_t fail_at, fail_count;
	CUresult fail_with;
	/* The device is lost at that time: every later call of any name ends so, too. */
	bool fail_for_good;
	/* Queues of each device for streams of the usual priority, and for all others; 0: each
	 * stream has its own. Of streams that are made from now on. */
	uint32_t queues;
	bool queues_together; /* Streams of all priorities share the same. */
	/* While a stream waits at a gate, calls on its device that make something do not return:
	 * memory, streams, events, modules. Those that free memory never do (below). */
	bool making_waits;
	/* So do copies from or to the host's memory that is not pinned, as on an H200 (docs/gpu.md,
	 * "Streams that wait"). */
	bool pageable_waits;
	/* RDMA to this memory: none; and whether remote writes must be flushed. */
	bool no_rdma, writes_stay;
	/* Of memory that is made from now on: there is no handle (as of most pools). */
	bool memory_alone;
	bool no_peers; /* No device reaches another one's memory. */
	/* The next memory of as many pages comes to where the last was that was freed. */
	bool addresses_again;
	/* Planted in the fake, for tests of tests: waits for events are ignored. */
	bool waits_ignored;
};

struct fake_cuda_counts {
	uint64_t failed;                  /* Calls that failed as asked for. */
	uint64_t copies, launches, waits; /* That streams have done. */
	uint64_t host_copies, host_bytes; /* That we enqueued, from or to the host. */
	/* All copies on streams of others, who name no priority: UCX's. */
	uint64_t foreign_copies, foreign_bytes;
	uint64_t pageable; /* Of these, of memory not pinned, on streams of unusual priority. */
	uint64_t waited;   /* Of `waits`: what they waited for was not over. */
	uint64_t memory_bytes, streams, events; /* That there are. */
	uint64_t opened;                        /* Other processes' memory; now, */
	uint64_t opens;                         /* and so far. */
	uint64_t freed_mapped;                  /* While another process had it open. */
	uint64_t contexts_retained;
	uint64_t exported;        /* dma-bufs. */
	uint64_t flushes, stayed; /* And remote writes that were under way at some time. */
};

/* For fakes of the libraries above the driver: whether a call of this name is to fail, or has no
 * context; where a stream reaches memory of the device, NULL: nothing is there; and what a stream
 * does in its turn, with parameters that are copied. */
CUresult fake_cuda_asked(const char *name);
void *fake_cuda_reach(const void *address, size_t bytes);
CUresult fake_cuda_call(CUstream stream, CUhostFn call, const void *parameters, size_t bytes);

typedef void (*fake_cuda_control_function)(const struct fake_cuda_control *control);
typedef struct fake_cuda_counts (*fake_cuda_counts_function)(void);
/* For networks: whether the driver keeps that write, to memory that a dma-buf maps here; all that
 * it keeps is to be written now. */
typedef bool (*fake_cuda_remote_write_function)(void *to, const void *from, size_t bytes);
typedef void (*fake_cuda_remote_settle_function)(void);

#endif
