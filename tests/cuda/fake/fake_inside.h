/* fake_inside.h -- what the files of the fake driver share. */
#ifndef TESTS_CUDA_FAKE_INSIDE_H
#define TESTS_CUDA_FAKE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/rng.h"
#include "tests/cuda/fake/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
#define DEVICE_BYTES (UINT64_C(1) << 37) /* Of address space: enough for 20,000 worlds. */
#define PAGE UINT64_C(4096)
#define STACK_DEPTH 64

/* ---- What there is ---- */

struct allocation {
	uint8_t *base;  /* As the application sees it. */
	uint8_t *alias; /* The same pages, for streams. */
	size_t bytes;
	enum { DEVICE, MANAGED, PINNED, REGISTERED } what; /* The last two: the host's. */
	CUdevice device;
	uint64_t id;
	bool alone;  /* Not to be shared. */
	pid_t owner; /* Another process, whose memory this one has open; 0: it is this one's. */
	uint32_t opens;
	struct allocation *next;
};

/* Behind a device's memory, in a page of its own: for who opens it. */
struct ipc_label {
	uint64_t id; /* 0: it has been freed. */
	_Atomic int32_t mapped;
};

struct ipc_label *fake_label(const struct allocation *a);
/* Addresses for so many bytes of a device, rounded, with a label's page; `again`: perhaps those of
 * what was freed. */
uint8_t *fake_room(size_t bytes, bool again);
struct allocation *fake_allocation_add(uint8_t *base, uint8_t *alias, size_t bytes, int what);
void fake_allocation_remove(struct allocation *a);
void fake_idle_wait(void); /* Until the current context's streams have nothing to do. */

enum what { COPY, SET, LAUNCH, RECORD, WAIT_EVENT, GATE, CALL };

struct remote_write { /* Under way to memory of a device. */
	struct remote_write *next;
	void *to;
	size_t bytes;
	uint8_t from[];
};

struct item {
	enum what what;
	uint8_t *to;
	const uint8_t *from;
	size_t bytes;
	CUfunction kernel;
	unsigned grid, block;
	CUevent event;
	uint64_t ticket;
	uint32_t value;
	bool said; /* Of a gate: that it is reached. */
	CUhostFn call;
	CUstreamCallback callback; /* In its place. */
	CUstream stream;
	void *arg;
	uint64_t place; /* In its queue. */
	struct item *next;
	_Alignas(16) uint8_t parameters[];
};

struct CUstream_st {
	pthread_t thread;
	pthread_cond_t given;      /* It has an item, or is to stop. */
	struct item *first, **end; /* The one that is being done is the first. */
	bool stop, foreign;        /* Of who names no priority: not ours. */
	int priority;
	struct rb_rng rng;
	CUcontext context;
	struct queue *queue; /* NULL: none but its own order. */
	struct CUstream_st *next;
};

struct CUevent_st {
	uint64_t recorded, over; /* Tickets. */
};

struct queue {
	uint32_t streams;
	uint64_t given, over; /* Items. */
};

struct CUctx_st { /* Of a device the primary one, which is all that there are. */
	int retained;
	uint32_t at_gates; /* Streams that wait at one. */
	struct CUstream_st *default_stream;
	struct queue queues[2][FAKE_CUDA_QUEUES_MAX];
};

struct CUmod_st {
	int unused;
};

struct CUfunc_st {
	void *kernel;
	size_t parameter_bytes;
	struct CUfunc_st *next;
};

extern struct fake_state {
	pthread_mutex_t lock;
	pthread_cond_t over; /* Some item is. */
	uint32_t over_awaited;
	atomic_uint streams_want;
	uint32_t running; /* Items that streams are at. */
	bool initialized, lost;
	CUresult lost_with;
	struct CUctx_st contexts[FAKE_CUDA_DEVICES];
	int memfd;
	uint8_t *base, *alias;
	uint64_t used;  /* Addresses are not used again: who keeps one too long is seen. Unless */
	uint8_t *again; /* control.addresses_again: the last that came back, of so many bytes. */
	size_t again_bytes;
	uint64_t ids;
	struct allocation *allocations;
	struct CUstream_st *streams;
	struct CUfunc_st *functions;
	uint64_t tickets, stream_count;
	struct fake_cuda_control control;
	uint32_t fail_calls;
	struct remote_write *staying, **staying_end;
	struct fake_cuda_counts counts;
} fake;

extern _Thread_local struct fake_here {
	CUcontext stack[STACK_DEPTH];
	uint32_t depth;
} fake_thread;

/* Each call takes the lock, and fails where it was told to; leave gives it back. */
CUresult fake_enter(const char *name);
CUresult fake_leave(CUresult result);
void fake_stream_lock(void); /* For streams: they come first. */
void fake_over_wait(void);   /* Until some item is over. */
struct allocation *fake_find(const void *address, size_t bytes);
/* What a stream touches there; NULL: it must not. */
uint8_t *fake_reach(const void *address, size_t bytes);
/* Of memory that may be nobody's: each is 0 then, or what says so. */
CUresult fake_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address);
CUcontext fake_current(void); /* NULL: the calling thread has none. */
CUdevice fake_device(CUcontext context);
void fake_making_waits(void); /* As control says. */
void fake_default_stream_end(CUcontext context);

#define ENTER()                                                                                    \
	do {                                                                                       \
		CUresult enter_ = fake_enter(__func__);                                            \
		if (enter_ != CUDA_SUCCESS)                                                        \
			return enter_;                                                             \
	} while (0)

/* And where the thread has no context that lives. */
#define ENTER_CONTEXT()                                                                            \
	do {                                                                                       \
		ENTER();                                                                           \
		if (fake_current() == NULL)                                                        \
			return fake_leave(CUDA_ERROR_INVALID_CONTEXT);                             \
		if (fake_current()->retained == 0)                                                 \
			return fake_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);                        \
	} while (0)

#define ENTER_MAKING()                                                                             \
	do {                                                                                       \
		ENTER_CONTEXT();                                                                   \
		fake_making_waits();                                                               \
	} while (0)

#endif
