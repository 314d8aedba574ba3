/*
 * partial.h -- what the files of the partial allreduce share: partial_create.c (making and ending),
 * partial.c (at work: events into the protocol machine, its actions carried out),
 * partial_recovery.c (those of survivors), partial_state.c (what a drained one hands on),
 * partial_report.c (what one tells of itself).
 *
 * What is decided is the machine's (collectives/partial/rounds.h); here are buffers, runs and
 * clocks. One slab of memory per rank, whose address all know, is cut into buffers of one vector:
 *
 *   0 .. 3   contributions: leased, pending, the round's; what survivors fetch
 *   4        the operator's identity, for rounds that find nothing pending
 *   5 ..     results, by the machine's slots; the last one is followed by the algorithm's scratch
 *
 * Records carry the numbers of the buffers that a rank brings to a round, so that peers find them.
 */
#ifndef RB_RUNTIME_PARTIAL_H
#define RB_RUNTIME_PARTIAL_H

#include "collectives/partial/rounds.h"
#include "runtime/comm.h"
#include "runtime/devices/device_copy.h"
#include "runtime/engine/converted.h"
#include "runtime/engine/run.h"
#include "runtime/relaxed/contributions.h"
#include "runtime/relaxed/protocol_driver.h"

#define RB_PARTIAL_CONTRIBUTIONS 4u
#define RB_PARTIAL_IDENTITY 4u
#define RB_PARTIAL_RESULTS 5u /* The first one's buffer. */
#define RB_PARTIAL_NONE UINT32_MAX

struct rb_partial_vector {          /* What is reduced. */
	uint64_t count, user_bytes; /* As the application has it, */
	uint64_t units, bytes;      /* and as it lies in the slab, is reduced and travels. */
	rubato_wire wire;
	rubato_type type;
	rubato_operator op;
	rb_reduce_fn reduce;
};

/* The slab, and who has which of its buffers. `leased` belongs to the application's thread, the
 * rest is under the lock. */
struct rb_partial_buffers {
	struct rb_memory *slab; /* NULL: it is a device's. */
	uint8_t *base;
	uint64_t stride;
	uint8_t **bases; /* Per rank: its slab as mapped here. */
	uint32_t lease;  /* Always one: the next to be written into. */
	bool leased;
	uint32_t pending, joined;
};

/* Where the wire has another form than the vector: all else is in the slab. `lease` and the first
 * half of the residual are the application's thread's. All of it lies where the slab does. */
struct rb_partial_coded {
	struct rb_converted reduction; /* Its executor; and the residual. */
	float *lease, *result, *left;  /* What the application writes and reads; `left` when a loss
					  has ended the rounds. NULL: not coded. */
};

/* Where the slab is a device's memory (partial_device.c). executor NULL: it is the host's. */
struct rb_partial_device {
	bool wanted;
	struct rb_executor *executor;
	struct rb_executor *executors[2]; /* The host's, and it: rb_run.executors. */
	struct rb_device_copy watch;      /* Polls it, for what no run waits for. */
	uint64_t slab_bytes;
	void *scratch[2]; /* The host's, and the device's. */
	/* The slab, and that, where messages read and write them; else NULL. */
	struct rb_memory *registered, *scratch_registered;
	void *stages[RB_STAGE_COUNT];
	/* Where the reduction's plans work in peers' slabs: those by messages, to be used if some
	 * rank cannot. NULL: they are these. */
	struct rb_plan *apart, **group_apart;
	bool shared;       /* bases are opened ones. */
	uint32_t restored; /* Joined in vain, to be merged into what is pending. */
};

struct rb_partial_result { /* Of a slot: a completed round, or the running one's target. */
	uint32_t buffer;
	struct rb_contributions contributions;
	rubato_round summary;
};

struct rb_partial_results {
	struct rb_partial_result *slots; /* As the machine numbers them. */
	uint32_t slot_count;
	bool filled; /* The running round's says what it holds. */
	/* As they were exchanged: of the last completed round, survivors fetch them; and of the
	 * running one, if it is filled. */
	struct rb_rounds_record *newest, *running;
	rubato_contribution *lent_ranks; /* What the application reads of the lent one. */
};

struct rb_partial_exchange { /* Of records: an allgather. */
	struct rb_run run;
	struct rb_plan *plan;
	void *scratch;
	uint64_t value; /* Of the machine's EXCHANGE. */
};

struct rb_partial_reduction {
	struct rb_run run;
	struct rb_plan *plan, **group_plans; /* Of all ranks; of a group, by position in it. */
	struct rb_peer_buffers *peers;       /* By position among the members. */
	uint32_t *members, member_count;
	uint64_t value; /* Of the machine's REDUCE. */
};

struct rb_partial_transfer { /* One message of a fetched or served result. */
	struct rb_slot *slot;
	struct rubato_partial *partial;
	bool fetching;
	struct rb_partial_transfer *next;
	uint32_t peer, part;
	uint64_t round, bytes;
	void *buffer; /* What it reads or writes; on a device, by way of */
	void *room;   /* pinned memory; NULL: not. */
};

struct rb_partial_transfers { /* Between survivors. */
	struct rb_partial_transfer *first;
	uint32_t missing; /* Fetched ones that are not here yet. */
	uint64_t value;   /* Of the machine's FETCH. */
};

struct rb_partial_clocks { /* since: 0 when it is not running. */
	/* Each call's begin matters: the policy learns from the time between a collect and the next
	 * commit, or collecting takes time, for it decodes. */
	bool measured;
	uint64_t work_since_ns;
	enum rb_rounds_phase phase;
	uint64_t phase_since_ns, phase_ns[4];
	uint64_t wait_since_ns, wait_ns[4]; /* The application waits. */
	uint64_t waited_ns;                 /* The sum. */
	uint64_t call_ns;                   /* The application's thread's. */
};

struct rubato_partial {
	struct rubato_comm *comm;
	struct rubato_partial *next; /* comm->partials */
	struct rb_rounds_config config;
	struct rb_rounds *machine;
	struct rb_protocol_driver driver;
	uint64_t state_hash; /* Of what all ranks must go on from alike; 0: it began. */
	bool changed;        /* A waiting application looks again. */
	struct rb_protocol_actions actions; /* Of one event: the machine is never entered twice. */

	struct rb_partial_vector vector;
	struct rb_partial_buffers buffers;
	struct rb_partial_coded coded;
	struct rb_device_copy copy; /* The application's thread's. */
	struct rb_partial_device device;
	struct rb_partial_results results;
	struct rb_partial_exchange exchange;
	struct rb_partial_reduction reduction;
	struct rb_partial_transfers transfers;
	struct rb_partial_clocks clocks;
};

static inline void *rb_partial_buffer(const struct rubato_partial *p, uint32_t index)
{
	return p->buffers.base + p->buffers.stride * index;
}

static inline struct rb_where rb_partial_where(const struct rubato_partial *p, uint32_t index)
{
	bool there = p->device.executor != NULL;
	struct rb_memory *memory = there ? p->device.registered : p->buffers.slab;

	return (struct rb_where) { .base = rb_partial_buffer(p, index),
				   .kind = there ? RB_MEMORY_DEVICE : RB_MEMORY_HOST,
				   .regions = memory != NULL ? memory->regions : NULL };
}

static inline uint64_t rb_partial_records_bytes(const struct rubato_partial *p)
{
	return (uint64_t)p->config.rank_count * sizeof(struct rb_rounds_record);
}

/* ---- partial.c: under the lock ---- */

/* What runs of an operation have in their tags, beside its number. */
enum rb_partial_tag {
	RB_PARTIAL_TAG_EXCHANGE,
	RB_PARTIAL_TAG_REDUCE,
	RB_PARTIAL_TAG_FINAL_BARRIER,
	RB_PARTIAL_TAGS
};
struct rb_tag rb_partial_run_tag(const struct rubato_partial *p, enum rb_partial_tag which,
				 uint64_t instance);

/* One event, and what comes of it, however much that is: *event is written on. */
void rb_partial_event(struct rubato_partial *p, struct rb_protocol_event *event);
/* The same, of a call of the application's that began at now_ns; 0: now. */
void rb_partial_call(struct rubato_partial *p, enum rb_rounds_call call, const void *argument,
		     size_t argument_bytes, uint64_t now_ns);
/* For the driver. */
void rb_partial_driver_event(struct rb_engine *engine, struct rb_protocol_driver *driver,
			     struct rb_protocol_event *event);
void rb_partial_driver_ended(struct rb_engine *engine, struct rb_protocol_driver *driver);
/* into = op(into, from), or op(from, into). `residual`: of the application's thread, or NULL. On a
 * device: without the lock, by the application's thread; elsewhere it cannot fail. */
rubato_status rb_partial_merge(struct rubato_partial *p, uint32_t into, uint32_t from,
			       bool from_first, float *residual);
/* What lies in a buffer, as the application has it: there, or decoded into `to`. Without the lock,
 * by the application's thread; elsewhere than on a device it cannot fail. */
RB_NODISCARD rubato_status rb_partial_decoded(struct rubato_partial *p, const char *call,
					      uint32_t index, float *to, const void **out);
uint32_t rb_partial_free_contribution(const struct rubato_partial *p);

/* Finds who takes part in the current round's reduction; this rank's place among them. */
uint32_t rb_partial_members_find(struct rubato_partial *p);
/* Whether no round will complete here any more. */
bool rb_partial_over(const struct rubato_partial *p);
/* How the operation ended, unless it goes on. */
RB_NODISCARD rubato_status rb_partial_end_check(const struct rubato_partial *p);

/* ---- partial_recovery.c: under the lock ---- */

/* Without it: what was joined in vain on a device is merged, for the application. */
RB_NODISCARD rubato_status rb_partial_restored(struct rubato_partial *p);

/* A RUN action that survivors of a loss need: `value` and `peer` as in the action. */
void rb_partial_recover(struct rubato_partial *p, uint64_t value, uint32_t peer);
/* Ends what is under way here; nothing of ours is posted afterwards. */
void rb_partial_quiet(struct rubato_partial *p);

/* ---- partial_device.c: under the lock, but for what says otherwise ---- */

#define RB_PARTIAL_WORDS_MIN 16u

/* device.executor, if it is wanted. Errors: UNSUPPORTED. */
RB_NODISCARD rubato_status rb_partial_device_find(struct rubato_partial *p);
/* Whether a schedule with these flags may work in peers' slabs. */
bool rb_partial_device_suits(const struct rubato_partial *p, uint32_t flags);
/* With all plans made: what their rounds need beside the slab. */
RB_NODISCARD rubato_status rb_partial_device_rooms(struct rubato_partial *p);
/* The slab, with the identity in it. Drops the lock meanwhile. */
RB_NODISCARD rubato_status rb_partial_device_slab(struct rubato_partial *p, uint32_t buffers);
/* Collective, without the lock: whether all ranks reach each other's slabs, or go by messages.
 * `words`: RB_PARTIAL_WORDS_MIN for each rank. */
RB_NODISCARD rubato_status rb_partial_device_meet(struct rubato_partial *p, uint64_t *words);
/* A round's run, with its plan and buffers set, becomes the device's. */
RB_NODISCARD rubato_status rb_partial_device_run(struct rubato_partial *p, struct rb_run *run);
/* Without the lock, by the application's thread: of what the device reaches. */
RB_NODISCARD rubato_status rb_partial_device_reduce(struct rubato_partial *p, const char *call,
						    const struct rb_reduce *reduce);
RB_NODISCARD rubato_status rb_partial_device_code(struct rubato_partial *p, const char *call,
						  enum rb_coding coding,
						  const struct rb_coded *coded);
RB_NODISCARD rubato_status rb_partial_device_identity(struct rubato_partial *p, void *to);
/* Peers' slabs are not reached any more. */
void rb_partial_device_close(struct rubato_partial *p);
/* quiet: nobody touches the slab. */
void rb_partial_device_release(struct rubato_partial *p, bool quiet);

/* ---- partial_state.c ---- */

/* Goes on from options.state, if there is one. ARGUMENT: it is none of this policy and number of
 * ranks. */
RB_NODISCARD rubato_status rb_partial_state_take(struct rubato_partial *p);

/* ---- partial_report.c ---- */

/* ": waits for rank 1, rank 2", or ": not ready: ..." of a round that is not open yet; empty: not
 * known. Returns text. */
char *rb_partial_absent(const struct rubato_partial *p, char *text, size_t text_bytes);
/* TIMEOUT: of a call that has waited for `timeout_ns`. */
RB_NODISCARD rubato_status rb_partial_timeout_fail(struct rubato_partial *p, uint64_t timeout_ns);
/* Poisons the engine: ranks' first numbers of an era differ. */
void rb_partial_mismatch(struct rb_engine *engine, const struct rubato_partial *p);

/* Of all partial operations of a communicator: rb_relaxed_ops. */
char *rb_partials_text(const struct rubato_comm *comm, char *text, size_t text_bytes);
void rb_partials_dump(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		      void *arg);

#endif
