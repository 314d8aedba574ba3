/*
 * executor.h -- who carries out copies and reductions. Every piece of work starts and later
 * completes, also on the host, so that device streams (and the fake asynchronous executor of the
 * tests) fit in without a second engine.
 *
 *   start   the work is then DONE, or PENDING and listed by exactly one poll
 *   poll    bounded: at most RB_SLICE_BYTES of copying or reducing, so that progress stays fair
 *   cancel  after it the work is DONE (completed, or CANCELLED) and its buffers are not touched
 *           again
 *
 * Events. Work on an executor that waits by itself need not be started only after what it depends
 * on has been heard of: each piece of work is an event, and one that is started names those that
 * must have come before it begins (`after`). A device then goes from one to the next without the
 * host.
 *
 * Memory. An executor that has some knows its own (`knows`): that is how a caller's buffer is found
 * to be a device's (struct rb_op_device). The host's memory is what nobody knows.
 */
#ifndef RB_RUNTIME_EXECUTOR_H
#define RB_RUNTIME_EXECUTOR_H

#include "base/memory_kind.h"
#include "base/status.h"
#include "collectives/reduce/reduce.h"

#define RB_SLICE_BYTES (256u << 10)
#define RB_OPERANDS_INLINE 8

enum rb_work_state { RB_WORK_IDLE, RB_WORK_PENDING, RB_WORK_DONE };

struct rb_executor;
struct rb_gate;

struct rb_event { /* That the work which was given this number by this executor is over. */
	const struct rb_executor *executor;
	uint64_t number;
};

struct rb_work {
	struct rb_reduce reduce; /* A copy is a reduction of one operand without division; of none,
				  * which devices alone are given, zeros. */
	const void *operands[RB_OPERANDS_INLINE]; /* Where reduce.from may point. */
	uint32_t element_bytes;
	enum rb_work_state state;
	rubato_status status;
	uint64_t done_count; /* Elements finished so far: the executor's. */
	/* Of executors with `waits_for`: what must be over before it begins, valid during start();
	 * and its own event's number, which start() sets. */
	const struct rb_event *after;
	uint32_t after_count;
	uint64_t number;
	struct rb_work *next, *previous;
	void *owner;
};

struct rb_share {                   /* A device's memory, to other processes. */
	uint64_t context;           /* Where it was allocated: a number that no other one has. */
	uint64_t address;           /* All addresses are those there. */
	uint64_t start, size_bytes; /* Of the allocation that this is part of. */
	uint64_t id;                /* Its: not that of a later one in its place. */
	uint8_t handle[64];         /* Of the whole. */
};

struct rb_executor_ops { /* NULL: not this executor's. */
	const char *name;
	bool writes_twice; /* Heeds rb_reduce.also. */
	void (*start)(struct rb_executor *executor, struct rb_work *work);
	struct rb_work *(*poll)(
		struct rb_executor *executor); /* Completed, linked by next, or NULL. */
	void (*cancel)(struct rb_executor *executor, struct rb_work *work);
	/* What its work failed with last, for people; NULL: it does not say. */
	const char *(*why)(const struct rb_executor *executor);
	/* Whether poll must be called again soon, without anything that would wake a sleeper. */
	bool (*busy)(struct rb_executor *executor);
	void (*close)(struct rb_executor *executor);

	/* Carries out at once what takes but a moment (RB_STRAIGHT_BYTES of plan.h). */
	void (*now)(struct rb_executor *executor, const struct rb_reduce *reduce,
		    uint32_t element_bytes);
	/* Copies at once into what peers read (base/copy.h). */
	void (*copy_across)(struct rb_executor *executor, void *to, const void *from,
			    size_t size_bytes);

	/* Whether its work can wait for that one's events. */
	bool (*waits_for)(const struct rb_executor *executor, const struct rb_executor *other);
	/* Where time is virtual: when poll has something; UINT64_MAX: nothing is under way. */
	uint64_t (*next_ns)(const struct rb_executor *executor);

	/* So many bytes from `address` on are memory of this kind, of this executor's device; 0:
	 * not its own. FOREIGN: it is, but of a device that it cannot use, and why() says which. */
	size_t (*knows)(const struct rb_executor *executor, const void *address,
			enum rb_memory_kind *kind);
	/* For ranks of this process: a word of at most 58 bits that names an address of its memory,
	 * 0 where that cannot be, and back; NULL if so many bytes from there on are not its own.
	 * Words of which word_kin differs are of devices that do not work in each other's memory.
	 * All NULL: the transport has words for it, or nobody. */
	uint64_t (*word_of)(const struct rb_executor *executor, const void *address);
	uint32_t (*word_kin)(uint64_t word);
	void *(*word_map)(const struct rb_executor *executor, uint64_t word, uint64_t size_bytes);
	/* For ranks of other processes: what they find an address of its memory by, false where
	 * that cannot be; that opened, for so many bytes from there on, until it is closed, which
	 * happens once for each open; and what nobody has open any more let go: peers are about to
	 * free it. All NULL: nobody finds it. */
	bool (*share_of)(struct rb_executor *executor, const void *address, struct rb_share *out);
	rubato_status (*share_open)(struct rb_executor *executor, const struct rb_share *share,
				    uint64_t size_bytes, void **address);
	void (*share_close)(struct rb_executor *executor, void *address);
	void (*shares_forget)(struct rb_executor *executor);
	/* DEVICE: its own. HOST: such that copies from and to it are fast. */
	rubato_status (*memory_new)(struct rb_executor *executor, enum rb_memory_kind kind,
				    size_t size_bytes, void **out);
	void (*memory_free)(struct rb_executor *executor, void *memory);
	/* RDMA to its memory, as struct rb_device_memory in transport/transport.h has it. All NULL:
	 * there is none. */
	uint32_t (*ways)(struct rb_executor *executor, const char **why);
	rubato_status (*export_dmabuf)(struct rb_executor *executor, const void *address,
				       size_t size_bytes, int *fd, uint64_t *offset);
	rubato_status (*copy)(struct rb_executor *executor, void *to, const void *from,
			      size_t size_bytes);
	rubato_status (*flush)(struct rb_executor *executor);
	void (*enter)(struct rb_executor *executor);
	void (*leave)(struct rb_executor *executor);
	/* For streams of the application. */
	rubato_status (*gate_new)(struct rb_executor *executor, struct rb_gate **out);
};

struct rb_executor {
	const struct rb_executor_ops *ops;
};

RB_NODISCARD rubato_status rb_executor_host_open(struct rb_executor **out);

/* From now on what this executor (the host's) does takes as long as the endpoint's work() says. */
struct rb_endpoint;
void rb_executor_host_time(struct rb_executor *executor, struct rb_endpoint *ep);

#endif
