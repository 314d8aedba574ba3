/*
 * rubato.h -- collective communication that need not wait for the slowest rank.
 *
 * A communicator joins `size` ranks, numbered from 0. Every rank calls the same collectives in the
 * same order; ranks may be processes, on one machine or several, or threads of one process.
 *
 *   rubato_comm *comm;
 *   rubato_init(&comm, NULL);        // from the environment: see docs/start-up.md
 *   rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM);
 *   rubato_finalize(comm);
 *
 * Conventions
 *   Counts      are elements (not bytes) and 64 bits wide; 0 is allowed everywhere.
 *   In place    where a function names an in-place form, the two buffers may be that one; any other
 *               overlap of input and output is an error of the caller that is not detected.
 *   Errors      every function returns RUBATO_OK (0) or a negative rubato_status and then leaves
 *               its outputs unset; rubato_error_text() has the sentence. "Not yet" is never an
 *               error. The library never exits, aborts, raises signals or writes to stdout.
 *   Threads     a communicator may be used by several threads; collectives are matched in the order
 *               in which they are called on it, so that order must not depend on a race. A thread
 *               must not be cancelled (pthread_cancel) within a call.
 *   Fork        in a child made by fork(), calls on its parent's communicators and on what was made
 *               of them return ARGUMENT and do nothing, also those that free. Its own work over
 *               shared memory. rubato_alloc's is the parent's. clone() and _Fork() go unnoticed.
 *   Waiting     every wait has a deadline: that of the call, or options.timeout_ns.
 *   Bits        a collective gives the same bits on every rank that receives the same element, and
 *               the same bits again when repeated: operand order is fixed by rank number. Of
 *               other jobs docs/tuning.md tells ("The same bits in every job").
 *   Poison      when a collective fails on a rank (lost peer, timeout, cancel, mismatch, no memory
 *               for it), that rank's communicator is poisoned: later operations return the first
 *               error at once; rubato_dump, rubato_abort and rubato_finalize alone are of use. A
 *               timeout of rubato_wait does not poison, nor does cancelling a message.
 */
#ifndef RUBATO_H
#define RUBATO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RUBATO_VERSION_MAJOR 0
#define RUBATO_VERSION_MINOR 1
#define RUBATO_VERSION_PATCH 0

#if defined(__GNUC__)
#define RUBATO_API __attribute__((visibility("default")))
#define RUBATO_NODISCARD __attribute__((warn_unused_result))
#else
#define RUBATO_API
#define RUBATO_NODISCARD
#endif

typedef enum rubato_status {
	RUBATO_OK = 0,
	RUBATO_ERR_ARGUMENT = -1, /* The caller's mistake: NULL, unknown enum, impossible size. */
	RUBATO_ERR_MEMORY = -2,   /* Memory or another local resource ran out. */
	RUBATO_ERR_TIMEOUT = -3,  /* The deadline passed; the text says who was absent. */
	RUBATO_ERR_PEER = -4,     /* Another rank ended, left or became unreachable. */
	RUBATO_ERR_MISMATCH = -5, /* Ranks called different things; the text prints both sides. */
	RUBATO_ERR_UNSUPPORTED = -6, /* Not in this build, on this transport or on this machine. */
	RUBATO_ERR_SYSTEM = -7,      /* The operating system or a library below refused. */
	RUBATO_ERR_AUTH = -8,        /* A peer did not prove that it knows the job's secret. */
	RUBATO_ERR_CANCELLED = -9,   /* Ended by rubato_cancel, rubato_abort or rubato_finalize. */
	RUBATO_ERR_INTERNAL = -10,   /* A broken invariant of ours; the dump has been written. */
} rubato_status;

typedef enum rubato_type {
	RUBATO_FLOAT32 = 0,
	RUBATO_FLOAT64 = 1,
	RUBATO_INT32 = 2,
	RUBATO_INT64 = 3,
	RUBATO_FLOAT16 = 4,  /* IEEE 754 binary16, as its bits in a uint16_t. */
	RUBATO_BFLOAT16 = 5, /* The upper half of a float32, likewise. */
	RUBATO_INT8 = 6,
	RUBATO_INT16 = 7,
	RUBATO_UINT8 = 8,
	RUBATO_UINT16 = 9,
	RUBATO_UINT32 = 10,
	RUBATO_UINT64 = 11,
} rubato_type;
#define RUBATO_TYPE_COUNT 12

/*
 * Operators, all of them for all types, the same bits on every rank:
 *   Integers  sums and products wrap around; the average is the wrapped sum divided, toward zero.
 *   Floats    max and min have -0 below +0. An element that is NaN on any rank, or becomes NaN, is
 *             the quiet NaN with a positive sign and no payload, for every operator. (A single
 *             rank's input is copied as it is.) Subnormals are kept.
 *   16 bits   float16 and bfloat16 are added up in float32 within each step of the algorithm, which
 *             combines two ranks' data or more, and rounded (to nearest, ties to even) after it;
 *             rubato_set_accumulate does better, at a price. A float16 sum beyond 65504 is
 *             infinite, also within an average.
 */
typedef enum rubato_operator {
	RUBATO_SUM = 0,
	RUBATO_MAX = 1,
	RUBATO_MIN = 2,
	RUBATO_AVG = 3, /* The sum times 1/size (floating types), taken once, at the end. */
	RUBATO_PROD = 4,
} rubato_operator;
#define RUBATO_OPERATOR_COUNT 5

/* In what form float32 travels: rubato_set_wire. */
typedef enum rubato_wire {
	RUBATO_WIRE_SAME = 0,
	RUBATO_WIRE_BFLOAT16 = 1,
	RUBATO_WIRE_INT8 = 2,
} rubato_wire;
#define RUBATO_WIRE_COUNT 3

typedef struct rubato_comm rubato_comm; /* A communicator. */
typedef struct rubato_op rubato_op;     /* A persistent, non-blocking operation. */

/* Timeouts are in nanoseconds; two values have names: */
#define RUBATO_TIMEOUT_DEFAULT 0 /* That of the communicator: options.timeout_ns. */
#define RUBATO_NO_WAIT 1         /* Makes progress once, and waits for nothing. */

/* Options of rubato_init*. Always start from RUBATO_OPTIONS_INIT; 0 and NULL mean the default. */
typedef struct rubato_options {
	uint32_t size_bytes;   /* sizeof(rubato_options) at the caller: the version. */
	uint32_t flags;        /* None defined yet: 0. */
	uint64_t timeout_ns;   /* Of every wait without its own (RUBATO_TIMEOUT, 60 s). */
	const char *transport; /* As RUBATO_TRANSPORT: "auto", or "shm,ucx", best first (auto). */
	const char *secret;    /* The job's secret, as RUBATO_SECRET_FILE holds it. */
	uint64_t secret_bytes; /* Its length. */
	uint64_t heap_bytes;   /* Room for rubato_alloc (RUBATO_HEAP): address space, not memory. */
} rubato_options;
#define RUBATO_OPTIONS_INIT                                                                        \
	{                                                                                          \
		(uint32_t)sizeof(rubato_options), 0, 0, NULL, NULL, 0, 0                           \
	}

/* Names a job that is about to start: made by one process, handed to all over any side channel. */
typedef struct rubato_id {
	uint8_t bytes[256];
} rubato_id;

/* ---- Start and end ---- */

/*
 * Joins the job that the environment describes: RUBATO_RANK, RUBATO_SIZE and RUBATO_ROOT
 * (host:port), or else a launcher's variables (docs/start-up.md: torchrun, Open MPI, Slurm, PMI);
 * without any a communicator of one rank. Blocks until all ranks are there, at most the timeout.
 * Errors: ARGUMENT (bad or incomplete variables), TIMEOUT (the text names who is missing), AUTH
 * (wrong secret), MISMATCH (two ranks with one number, differing sizes), SYSTEM (port in use).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_init(rubato_comm **comm,
						      const rubato_options *options);

/* Writes, as one line of text, which job rubato_init would join, as what, and who says so. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_job_explain(char *text, size_t text_bytes);

/* Makes an id. The caller must then be one of the ranks of that job: rank 0. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_id_create(rubato_id *id);

/* Joins the job `id` as `rank` of `size`: a thread or process each. PEER: another one failed. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_init_id(rubato_comm **comm, const rubato_id *id,
							 uint32_t rank, uint32_t size,
							 const rubato_options *options);

/* An allgather of the caller's: `in` of every rank, size_bytes each, into `out` by rank, on every
 * rank; blocks. Returns 0, or another number when it failed. */
typedef int (*rubato_allgather_function)(void *arg, const void *in, void *out, size_t size_bytes);

/*
 * Joins a job whose processes can already talk to each other, through their own allgather: MPI's,
 * for one. Collective; needs neither environment, nor port, nor secret. `allgather` is called only
 * in here, by the calling thread, equally often on every rank, also when some rank fails, which all
 * then learn: either all ranks get their communicator or none does. The deadline counts between
 * calls: the library cannot end a call that blocks, so if a process may die meanwhile, let the
 * callback give up and return non-zero by itself. Errors: SYSTEM (the callback's), PEER (start-up
 * failed on another rank), MISMATCH (ranks or sizes differ), TIMEOUT; ARGUMENT without a call.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_init_oob(rubato_comm **comm,
							  rubato_allgather_function allgather,
							  void *arg, uint32_t rank, uint32_t size,
							  const rubato_options *options);

/*
 * Collective: waits (bounded) until every rank has come, so that no peer still needs our memory,
 * then frees everything, also when it returns an error: PEER or TIMEOUT because not all came,
 * MISMATCH when ranks have called different things or a message was never received. NULL is fine.
 */
RUBATO_API rubato_status rubato_finalize(rubato_comm *comm);

/* Not collective, bounded, from any thread: ends every operation of this communicator (CANCELLED)
 * and of its peers (PEER). rubato_finalize must follow its return, and then waits for none. */
RUBATO_API rubato_status rubato_abort(rubato_comm *comm);

#define RUBATO_COLOR_NONE UINT32_MAX

/*
 * Collective: makes communicators of the ranks that give the same `color`, numbered by `key` and,
 * where keys are equal, by their rank in `comm`. With RUBATO_COLOR_NONE a rank takes part and gets
 * NULL. The new communicator has endpoints, memory and a progress thread of its own, so it costs
 * what rubato_init costs, and shares nothing with `comm` from then on: either may be used by other
 * threads meanwhile, fail or be finalized first. Memory of `comm`'s rubato_alloc is plain memory to
 * it. Settings are those `comm` began with; rubato_set_algorithm's are not passed on. A split that
 * fails (as rubato_init fails) may have succeeded elsewhere: finalize that. MEMORY may poison.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_split(rubato_comm *comm, uint32_t color,
						       int32_t key, rubato_comm **out);

/* The number of this rank, from 0; of NULL UINT32_MAX. Local. */
RUBATO_API uint32_t rubato_rank(const rubato_comm *comm);
/* How many ranks the communicator has; NULL has 0. Local. */
RUBATO_API uint32_t rubato_size(const rubato_comm *comm);

#define RUBATO_DOMAIN_UNKNOWN UINT32_MAX
#define RUBATO_PROCESSOR_UNKNOWN UINT32_MAX

/* What was agreed about a rank when the communicator was made. Numbers count from 0 in the order of
 * ranks and are the same on all ranks. */
typedef struct rubato_peer {
	uint32_t size_bytes;   /* sizeof(rubato_peer) at the caller. */
	uint32_t node;         /* Ranks of one node map each other's memory from rubato_alloc. */
	uint32_t host;         /* Ranks of one host run on the same kernel. */
	uint32_t card;         /* What its messages to other nodes leave by; ranks may share it. */
	uint32_t numa_domain;  /* As its host numbers them; RUBATO_DOMAIN_UNKNOWN: it may run in
			       * several, or the host does not say. */
	uint32_t copies;       /* Of a long message from it between plain buffers on one host: 1
				* where the kernel lets this rank attach its memory
				* (docs/tuning.md), else 2; 0: over a network, to oneself, or not
				* known. */
	const char *transport; /* What carries messages between it and this rank: "shm", ... */
	/* Of the way to it: if it is on another node, of the slowest link from one node to the
	 * next, as found when the communicator was made; if on this one, of one copy. 0:
	 * not known. */
	double latency_us;
	double bandwidth; /* Bytes per second. */
	/* Where these two come from, if it is on this node: "measured", "profile", "simulated" or
	 * "built in", which has no figures here. */
	const char *source;
	/* The processor of its host that it was on when it last slept, as far as this rank sees it;
	 * RUBATO_PROCESSOR_UNKNOWN: it does not. Ranks of one host on one processor share it. */
	uint32_t processor;
	char path[192]; /* Over a network: what carries messages to it, device, port and address, as
			 * far as the transport knows; else empty. */
} rubato_peer;
/* Local. Errors: ARGUMENT (no such rank, size_bytes is not set). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_get_peer(rubato_comm *comm, uint32_t rank,
							  rubato_peer *peer);

/* ---- Text ---- */

/* "ok", "argument", ...; "unknown" for another value. */
RUBATO_API const char *rubato_status_name(rubato_status status);
/* The sentence of this thread's last error, until its next call of the library. Never NULL. */
RUBATO_API const char *rubato_error_text(void);
/* "float32", ...; "unknown" for another value. */
RUBATO_API const char *rubato_type_name(rubato_type type);
/* "sum", ...; "unknown" for another value. */
RUBATO_API const char *rubato_operator_name(rubato_operator op);
/* Of one element; 0 for an unknown type. */
RUBATO_API size_t rubato_type_bytes(rubato_type type);
/* "0.1.0". */
RUBATO_API const char *rubato_version(void);
/* Which kernels reduce here: "plain", "sse2", "avx2", "avx512" or "neon", the widest that was built
 * and this processor has. Ranks may differ: all give the same bits. */
RUBATO_API const char *rubato_reduction_kernel(void);

/* 16-bit floats are given as their bits. Exact. */
RUBATO_API float rubato_float16_to_float32(uint16_t bits);
/* To nearest, ties to even, too large to infinity; subnormals are kept, a NaN is made quiet. */
RUBATO_API uint16_t rubato_float32_to_float16(float value);
/* Exact. */
RUBATO_API float rubato_bfloat16_to_float32(uint16_t bits);
/* As rubato_float32_to_float16 rounds. */
RUBATO_API uint16_t rubato_float32_to_bfloat16(float value);

/* Writes a line for each operation in flight to `fd`; docs/testing.md has the columns. */
RUBATO_API void rubato_dump(rubato_comm *comm, int fd);

/* Calls row() for each setting of the environment (docs/tuning.md); source: who set it. */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_config_each(void (*row)(void *arg, const char *variable, const char *value,
			       const char *source, const char *help),
		   void *arg);
/* Processor time that a control group lets this process have (a container's --cpus), in thousandths
 * of a processor; 0: no limit. Ranks that share it wait, and choose algorithms, accordingly. */
RUBATO_API uint32_t rubato_processor_limit(void);

/* ---- Memory ---- */

/* Memory that this node's other ranks can read and write in place and that networks find
 * registered: collectives on it copy least. Zeroed, 4 KiB aligned. Local (not collective). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_alloc(rubato_comm *comm, size_t size_bytes,
						       void **memory);
/* Errors: ARGUMENT when `memory` is not from rubato_alloc, or an operation in flight works there.
 * NULL is fine. Once the communicator has failed, the memory goes with rubato_finalize. */
RUBATO_API rubato_status rubato_free(rubato_comm *comm, void *memory);

/*
 * Makes the caller's own memory known to the transports: networks then need not do so at each call.
 * Between ranks of one node it changes nothing, and that is no error: they map only what
 * rubato_alloc gives, since memory that exists already (malloc's, a framework's, a file that is
 * mapped) cannot be given to other processes afterwards. There it stays a plain buffer, whose long
 * messages are copied once if the kernel allows it (rubato_peer.copies), else twice; the log says
 * so (RUBATO_LOG=info).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_register(rubato_comm *comm, void *memory,
							  size_t size_bytes);
/* Persistent operations that were made meanwhile go on as they are. Errors: ARGUMENT when `memory`
 * is not registered, or an operation in flight works there. */
RUBATO_API rubato_status rubato_unregister(rubato_comm *comm, void *memory);

/* ---- Blocking operations ---- */

/* out[i] = op over ranks of in[i]; `count` elements each. In place: in == out. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_allreduce(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type, rubato_operator op);

/* As allreduce, with the result at `root` only; elsewhere `out` is ignored. In place: in == out. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_reduce(rubato_comm *comm, const void *in,
							void *out, uint64_t count, rubato_type type,
							rubato_operator op, uint32_t root);

/* `in` holds size * count elements, `out` count: rank r gets elements r*count up to (r+1)*count - 1
 * of the reduction. In place: out == in + rank*count elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_reduce_scatter(rubato_comm *comm, const void *in,
								void *out, uint64_t count,
								rubato_type type,
								rubato_operator op);

/* `in` holds count elements, `out` size * count: rank r's come to r*count. In place: in == out +
 * rank*count elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_allgather(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type);

/* `buffer` of `root` is copied to every rank's. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_broadcast(rubato_comm *comm, void *buffer,
							   uint64_t count, rubato_type type,
							   uint32_t root);

/* `in` holds size * count elements, `out` too: elements r*count up to (r+1)*count - 1 of `in` go to
 * rank r, those of `out` come from it. In place: in == out. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_alltoall(rubato_comm *comm, const void *in,
							  void *out, uint64_t count,
							  rubato_type type);

/* As allgather, the result at `root` only (elsewhere `out` is ignored). In place, at root: in ==
 * out + root*count elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_gather(rubato_comm *comm, const void *in,
							void *out, uint64_t count, rubato_type type,
							uint32_t root);

/* The other way: `in` of `root` (elsewhere ignored) holds size * count elements, rank r gets those
 * from r*count on. In place, at root: out == in + root*count elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_scatter(rubato_comm *comm, const void *in,
							 void *out, uint64_t count,
							 rubato_type type, uint32_t root);

/*
 * Uneven blocks. `counts` and `offsets` have an entry for each rank, in elements; block r is
 * counts[r] elements from offsets[r] on. offsets == NULL: packed, one after the other, in the order
 * of ranks. Blocks may leave gaps (which are not touched), lie in any order and be empty; they must
 * not overlap where they are written, which is not checked. The arrays are read before the function
 * returns, also where it makes a persistent operation. Errors: ARGUMENT (counts are NULL, a block
 * does not fit memory).
 */

/* As allgather: `in` holds counts[rank] elements; rank r's come to offsets[r] in `out`. Counts and
 * offsets must be the same on all ranks: MISMATCH otherwise. In place: in == out + offsets[rank]
 * elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_allgatherv(rubato_comm *comm, const void *in,
							    void *out, const uint64_t *counts,
							    const uint64_t *offsets,
							    rubato_type type);

/* As reduce_scatter: `in` holds all blocks, `out` gets counts[rank] elements: the reduction of
 * block number `rank`. Counts and offsets must be the same on all ranks: MISMATCH otherwise. In
 * place: out == in + offsets[rank] elements. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_reduce_scatterv(rubato_comm *comm, const void *in,
								 void *out, const uint64_t *counts,
								 const uint64_t *offsets,
								 rubato_type type,
								 rubato_operator op);

/*
 * As alltoall: block r of `in`, by the send counts and offsets, goes to rank r; block r of `out`,
 * by the receive counts and offsets, comes from it. A rank knows its own counts only; what one
 * sends and the other expects must be equal, also where it is nothing: MISMATCH otherwise. In
 * place: in == out, neither empty; then the send and receive arrays must say the same (ARGUMENT).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_alltoallv(rubato_comm *comm, const void *in,
							   const uint64_t *send_counts,
							   const uint64_t *send_offsets, void *out,
							   const uint64_t *receive_counts,
							   const uint64_t *receive_offsets,
							   rubato_type type);

/* Returns when every rank has called it. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_barrier(rubato_comm *comm);

/*
 * Point to point, matched by (peer, tag) in the order of the calls. A send may return before the
 * receive has been called, or wait for it. Counts and types must agree: MISMATCH otherwise. One
 * that ends with TIMEOUT, or is cancelled, counts as never called: the same message may be sent,
 * or received, by the next call. But a receive whose message has begun to come takes it along (so
 * it waits as long again before TIMEOUT); if that is taken back, it gets one after those under way.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_send(rubato_comm *comm, const void *buffer,
						      uint64_t count, rubato_type type,
						      uint32_t peer, uint32_t tag);
/* The other side: `buffer` holds the message when it returns OK. Errors: as of send. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_recv(rubato_comm *comm, void *buffer,
						      uint64_t count, rubato_type type,
						      uint32_t peer, uint32_t tag);
/* Both at once, neither waiting for the other; over when both are. In and out are apart. The error
 * is the receive's, else the send's; the other may be done. Of ARGUMENT neither is. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_sendrecv(rubato_comm *comm, const void *in,
							  uint64_t send_count, uint32_t to,
							  uint32_t send_tag, void *out,
							  uint64_t receive_count, uint32_t from,
							  uint32_t receive_tag, rubato_type type);

/* ---- Persistent, non-blocking operations ----
 *
 * Created once (collectively: every rank, in the same order; send and receive excepted), started
 * any number of times, one at a time. Progress is made in the background and by whoever waits.
 * Buffers belong to the library from start until the operation is complete. Creation waits for all
 * ranks and compares what they make: MISMATCH when they differ, then the communicator is poisoned.
 * It also binds them: where buffers are and how they are written is exchanged then, and not again
 * when operations are started. Starts meet the others' starts of the same operation, creations
 * their creations, and no blocking call: who makes that instead ends at its deadline, MISMATCH.
 */
/* rubato_allreduce as a persistent operation, which rubato_start starts and rubato_op_free ends. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_allreduce(rubato_comm *comm, const void *in,
							      void *out, uint64_t count,
							      rubato_type type, rubato_operator op,
							      rubato_op **operation);
/*
 * The same result, for ranks that start it at different times: while the last one is awaited the
 * others reduce what they have, and when it comes about half of an allreduce is left. Exact, not
 * relaxed: every rank's input is in it. The bits do not depend on who was late; they need not be
 * those of rubato_op_allreduce, as ranks are reduced in groups of four, then four groups together,
 * and so on, each time in rank order. Who is late is agreed on in every start, which takes a
 * message to ranks 0 to 2 and one back: what it costs if nobody is late. It moves messages, also
 * where ranks share memory. Of two ranks, or of less than 64 KiB, it is rubato_op_allreduce. Not
 * with a wire type (rubato_set_wire): UNSUPPORTED.
 * Source: StragglAR (Devraj et al., arXiv 2505.23523); docs/relaxed.md has its times.
 */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_op_allreduce_helped(rubato_comm *comm, const void *in, void *out, uint64_t count,
			   rubato_type type, rubato_operator op, rubato_op **operation);
/* rubato_reduce as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_reduce(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type, rubato_operator op,
							   uint32_t root, rubato_op **operation);
/* rubato_reduce_scatter as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_reduce_scatter(rubato_comm *comm,
								   const void *in, void *out,
								   uint64_t count, rubato_type type,
								   rubato_operator op,
								   rubato_op **operation);
/* rubato_allgather as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_allgather(rubato_comm *comm, const void *in,
							      void *out, uint64_t count,
							      rubato_type type,
							      rubato_op **operation);
/* rubato_broadcast as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_broadcast(rubato_comm *comm, void *buffer,
							      uint64_t count, rubato_type type,
							      uint32_t root, rubato_op **operation);
/* rubato_alltoall as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_alltoall(rubato_comm *comm, const void *in,
							     void *out, uint64_t count,
							     rubato_type type,
							     rubato_op **operation);
/* rubato_gather as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_gather(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type, uint32_t root,
							   rubato_op **operation);
/* rubato_scatter as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_scatter(rubato_comm *comm, const void *in,
							    void *out, uint64_t count,
							    rubato_type type, uint32_t root,
							    rubato_op **operation);
/* rubato_allgatherv as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_allgatherv(rubato_comm *comm, const void *in,
							       void *out, const uint64_t *counts,
							       const uint64_t *offsets,
							       rubato_type type,
							       rubato_op **operation);
/* rubato_reduce_scatterv as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_reduce_scatterv(
	rubato_comm *comm, const void *in, void *out, const uint64_t *counts,
	const uint64_t *offsets, rubato_type type, rubato_operator op, rubato_op **operation);
/* rubato_alltoallv as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_op_alltoallv(rubato_comm *comm, const void *in, const uint64_t *send_counts,
		    const uint64_t *send_offsets, void *out, const uint64_t *receive_counts,
		    const uint64_t *receive_offsets, rubato_type type, rubato_op **operation);
/* rubato_barrier as a persistent operation. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_barrier(rubato_comm *comm,
							    rubato_op **operation);
/* rubato_send, likewise. Local. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_send(rubato_comm *comm, const void *buffer,
							 uint64_t count, rubato_type type,
							 uint32_t peer, uint32_t tag,
							 rubato_op **operation);
/* rubato_recv, likewise. Local. The message is there when the operation is complete. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_recv(rubato_comm *comm, void *buffer,
							 uint64_t count, rubato_type type,
							 uint32_t peer, uint32_t tag,
							 rubato_op **operation);

/* Errors: ARGUMENT when the operation is in flight already. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_start(rubato_op *operation);
/* Makes progress once; *done: the operation is complete. The error is the operation's. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_test(rubato_op *operation, bool *done);
/* Blocks until complete. TIMEOUT: still in flight; wait again, or cancel. (That it is not complete
 * yet after RUBATO_NO_WAIT is TIMEOUT, too: rubato_test says so without an error.) */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_wait(rubato_op *operation, uint64_t timeout_ns);
/*
 * Ends an operation in flight and returns when its buffers are quiet: no one will touch them again.
 * OK: it was not in flight, or had completed. CANCELLED: it was ended; a collective then has
 * poisoned the communicator, a send or receive has not.
 */
RUBATO_API rubato_status rubato_cancel(rubato_op *operation);
/* Cancels first if need be. NULL is fine. Local. */
RUBATO_API void rubato_op_free(rubato_op *operation);

/* ---- Relaxed operations: partial allreduce ----
 *
 * An allreduce that does not wait for the slowest. It runs rounds r = 0, 1, 2, ...; every rank
 * takes part in each, in the background if its application is computing, with all that it has
 * committed and no round has consumed, or with the identity. Who opens a round is the policy's.
 *
 * Laws, for every policy and any number of ranks:
 *   whole nodes   where nodes are counted (RUBATO_MEMBERS_NODES), a round holds something of all
 *                 live ranks of a node, or of none (side by side: see below).
 *   conservation  delivered + pending + discarded (by `late`) = committed; nothing counts twice.
 *   agreement     all ranks get the same rounds, with the same contributors and the same bits
 *                 (wagma: within a group).
 *   staleness     no rank is left out for more than max_absence rounds; under RUBATO_COLLECT_EACH
 *                 no rank computes on results more than `depth` rounds old.
 *   cut           when collect says after a drain that there is none, all ranks have had the same
 *                 rounds (OWN, LATEST: the same last one), whatever the others do next.
 *   progress      a round completes as long as every process lives and enough ranks are ready; none
 *                 runs that nobody is ready for.
 *
 * One step of an application, on every rank:
 *   rubato_partial_acquire(p, &buffer);             // write the gradient into it
 *   rubato_partial_commit(p, step, weight);
 *   while (rubato_partial_collect_view(p, &result, &round, RUBATO_TIMEOUT_DEFAULT) == RUBATO_OK &&
 *          result != NULL) {
 *           apply(result); rubato_partial_release(p);
 *   }
 * One thread of an application at a time per partial operation.
 *
 * Several may live side by side (one per bucket), with the same options or others: commit to all
 * before collecting from any, and collect from all. So that none waits for ever, a rank that waits
 * in one for a round which is not open yet counts as ready in those with free rounds, with what it
 * has pending there or nothing, and in those with aligned ones where an earlier round has taken its
 * contribution: their quorums and full rounds may hold fewer fresh ranks, and nothing of some rank
 * of a node. And collect says that there is none, although a round will come, where another
 * operation cannot go on without this rank's next commit (max_absence, majority's draw) or
 * collection (depth). While ranks drain, collect from each in turn, with short timeouts: a rank
 * that waits for the end of one lets the others' results pile up, which holds up the others.
 *
 * Collectives that block (rubato_barrier, rubato_allreduce, creating and freeing) beside rounds: a
 * rank that waits there commits nothing, and a round that needs it does not open, while who waits
 * for that round does not come to the collective. That is a deadlock by construction, of all
 * policies where one ready rank is not enough, full rounds included; the error TIMEOUT names both.
 * So call them where all ranks have committed equally often and collected until there was none
 * (aligned rounds of one operation), or after a drain. Li et al., PPoPP 2020; docs/relaxed.md.
 */
typedef enum rubato_policy {
	RUBATO_POLICY_SOLO = 0,     /* The first rank that is ready opens the round. */
	RUBATO_POLICY_MAJORITY = 1, /* One drawn from the seed does: half are in, in expectation. */
	RUBATO_POLICY_QUORUM = 2,   /* The quorum-th ready rank does: a guarantee. */
	RUBATO_POLICY_DEADLINE = 3, /* deadline_ns after the first, or when all are ready. */
	RUBATO_POLICY_ADAPTIVE = 4, /* Quorum; k, from `quorum` on, by the last durations, the same
				       on all ranks. */
	RUBATO_POLICY_WAGMA = 5,    /* As solo; reduces within rotating groups of `group` ranks. */
} rubato_policy;
#define RUBATO_POLICY_COUNT 6

typedef enum rubato_rounds {
	RUBATO_ROUNDS_ALIGNED = 0, /* Contribution k is for round k. One whose round has run already
				      neither opens nor delays anything: it is in the next. */
	RUBATO_ROUNDS_FREE = 1,    /* Any commit may open the next round. */
} rubato_rounds;

/* A contribution that missed its round: */
typedef enum rubato_late {
	RUBATO_LATE_ACCUMULATE = 0, /* is added to what the rank brings to the next, */
	RUBATO_LATE_LATEST = 1,     /* replaces an older one that waits, */
	RUBATO_LATE_DROP = 2,       /* or is dropped. What these discard is counted. */
} rubato_late;

typedef enum rubato_collection {
	RUBATO_COLLECT_EACH = 0,   /* All finished rounds in order, up to the newest. */
	RUBATO_COLLECT_OWN = 1,    /* The one round of one's own last contribution (the paper's; of
				      one that is late, free: the newest it missed); after drain
				      all that follow. */
	RUBATO_COLLECT_LATEST = 2, /* The newest; older ones are skipped (its released code's). */
} rubato_collection;

/* What RUBATO_AVG divides the sum by: */
typedef enum rubato_normalise {
	RUBATO_BY_RANKS = 0,
	RUBATO_BY_CONTRIBUTORS = 1,
	RUBATO_BY_WEIGHT = 2,    /* The sum of the weights committed (samples, for one). */
	RUBATO_BY_REMAINING = 3, /* Ranks that had not left before the round. */
} rubato_normalise;

/* Whom the policy counts: its quorum, least quorum and group are numbers of these. */
typedef enum rubato_members {
	RUBATO_MEMBERS_RANKS = 0,
	/* Nodes, the ranks that map each other's memory: a round holds the contributions of whole
	 * nodes. A node is ready when all its live ranks are; what some of its ranks have while
	 * others have nothing has missed the round, as if it had come late. */
	RUBATO_MEMBERS_NODES = 1,
} rubato_members;

typedef struct rubato_partial_options { /* The same on every rank; 0 is the default. */
	uint32_t size_bytes; /* sizeof(rubato_partial_options) at the caller: the version. */
	rubato_policy policy;
	rubato_rounds rounds;
	rubato_late late;
	rubato_collection collection;
	rubato_normalise normalise;
	uint32_t quorum;      /* Of RUBATO_POLICY_QUORUM; of ADAPTIVE the least: 1 .. M members,
				 0: (M + 1) / 2. */
	uint32_t group;       /* Of RUBATO_POLICY_WAGMA; divides M (nodes: of equal size).
				 0: all. */
	uint64_t deadline_ns; /* Of RUBATO_POLICY_DEADLINE. */
	uint64_t window_ns;   /* How long a round waits for a rank that it opens without; 0: not. */
	uint32_t depth;       /* Results kept; a rank that far behind holds up the next round
				 (EACH, OWN: what it skips it is not behind with). 0: 8. */
	uint32_t full_every;  /* Every full_every-th round waits for all; 0: none. */
	uint32_t max_absence; /* So does the round after max_absence without some rank; 0: none. */
	uint32_t zeroed;      /* 1: leased buffers hold the operator's identity: add into them. */
	uint64_t seed;        /* Of majority's draw. */
	const void *state;    /* Of rubato_partial_save: goes on from there; NULL: begins. */
	uint64_t state_bytes;
	/* In what form contributions and sums travel, as rubato_set_wire says: of SUM and AVG of
	 * float32. A contribution is rounded when it is committed, and again when it is added to
	 * one that waits. What is fed back of it, also of one that is discarded, comes into this
	 * rank's next; it is not in a saved state (rubato_partial_residual). */
	rubato_wire wire;
	uint32_t feedback; /* 1: what rounding loses is added to what is rounded next. */
	rubato_members members;
	uint32_t reserved; /* 0 */
} rubato_partial_options;
#define RUBATO_PARTIAL_OPTIONS_INIT                                                                \
	{                                                                                          \
		(uint32_t)sizeof(rubato_partial_options), RUBATO_POLICY_SOLO,                      \
			RUBATO_ROUNDS_ALIGNED, RUBATO_LATE_ACCUMULATE, RUBATO_COLLECT_EACH,        \
			RUBATO_BY_RANKS, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, RUBATO_WIRE_SAME, 0,  \
			RUBATO_MEMBERS_RANKS, 0                                                    \
	}

/* "solo", ...; "unknown" for any other value. */
RUBATO_API const char *rubato_policy_name(rubato_policy policy);
/* What rubato_policy_parse reads, in the order of the enum, then NULL: "solo", "majority",
 * "quorum:K", "deadline:T", "adaptive[:K]", "wagma:S". K and S are numbers of members, T is a time
 * (250us, 1.5ms, 30s); what stands in brackets may be left out. */
RUBATO_API const char *const *rubato_policy_forms(void);
/* Sets policy, quorum, group and deadline_ns of *options, 0 what the text does not say. ARGUMENT:
 * the sentence says what it takes; *options is as before. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_policy_parse(const char *text,
							      rubato_partial_options *options);
/* What rubato_policy_parse reads as this: "solo", "quorum:3", "deadline:1500us"; 32 bytes suffice.
 * Returns text. */
RUBATO_API char *rubato_policy_format(const rubato_partial_options *options, char *text,
				      size_t text_bytes);

typedef struct rubato_partial rubato_partial;

typedef struct rubato_contribution {    /* One rank's part in a round. */
	uint64_t first_step, last_step; /* Smallest and largest number in it; count > 0 only. */
	uint64_t weight;
	uint32_t count;  /* Contributions in it; 0: the identity. */
	uint32_t fresh;  /* 1: the rank was ready for this very round. */
	uint32_t member; /* 1: it is in the result here; 0: in that of another of wagma's groups. */
	uint32_t reserved;
} rubato_contribution;

typedef struct rubato_round { /* What a round held: the same on every rank. */
	uint32_t size_bytes;  /* sizeof(rubato_round) at the caller; set it before the call. */
	uint32_t contributors, fresh; /* Ranks. */
	uint64_t round;
	uint64_t weight;                       /* Sum over contributions. */
	double divisor;                        /* What AVG divided by; 1 for other operators. */
	uint64_t staleness_min, staleness_max; /* Rounds between the one that a contribution is for
						  and this one, over contributions (aligned; free:
						  0). */
	uint64_t discarded;                    /* So far, on all ranks together. */
	const rubato_contribution *ranks;      /* [size], valid until the next collection. */
} rubato_round;

/*
 * Makes one for vectors of `count` elements. Collective. Operators: all (avg, max, min, sum,
 * prod). Memory, of rubato_alloc's heap: 5 + depth vectors (at least 8; RUBATO_COLLECT_LATEST: 8);
 * with options.wire these are coded, and 3 vectors, or 5 with feedback, are not.
 * Errors: ARGUMENT (the text names the field; `state` is damaged, or of another policy or number of
 * ranks, or of other `members`), MISMATCH (options differ between ranks; the text names the field
 * and both values).
 */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_partial_create(rubato_comm *comm, uint64_t count, rubato_type type, rubato_operator op,
		      const rubato_partial_options *options, rubato_partial **partial);
/* Leases a buffer of `count` elements to write the next contribution into; what it holds is
 * undefined unless options.zeroed. A second call before commit gives the same buffer. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_acquire(rubato_partial *partial,
								 void **buffer);
/* Publishes the leased buffer as contribution `step` (it must grow from call to call), counting
 * `weight` (samples, or 1; below 2^32, as is a round's sum where RUBATO_AVG divides by it). Does
 * not block. Errors: ARGUMENT (nothing leased, step not larger, that weight, after leave, or after
 * drain until collect has said that there is none), or how the operation ended (PEER, ...). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_commit(rubato_partial *partial,
								uint64_t step, uint64_t weight);
/* acquire, copy, commit. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_contribute(rubato_partial *partial,
								    const void *buffer,
								    uint64_t step, uint64_t weight);
/*
 * Lends the next result, by options.collection: *result is NULL when there is none to wait for.
 * Blocks while this rank waits for a round (its last contribution came in time, or it drains) and
 * that round has not completed. `round` may be NULL. Errors: TIMEOUT (still waiting: call again),
 * PEER (a rank was lost: what all survivors agreed on has been collected), MISMATCH (see drain).
 * ARGUMENT: the last result was not released, or round->size_bytes is not set.
 * With RUBATO_NO_WAIT *result is NULL also when there is none yet, so that does not tell the end of
 * a drain: a call that may wait does. Nor does a rank that only looks count as waiting for the
 * others' rounds.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_collect_view(rubato_partial *partial,
								      const void **result,
								      rubato_round *round,
								      uint64_t timeout_ns);
/* Gives the lent result back. */
RUBATO_API rubato_status rubato_partial_release(rubato_partial *partial);
/* collect_view into the caller's buffer, and release; *collected false: there was none (with
 * RUBATO_NO_WAIT: yet). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_collect(rubato_partial *partial, void *out,
								 bool *collected,
								 rubato_round *round,
								 uint64_t timeout_ns);
/*
 * Collective, though it does not block: every rank calls it equally often. Then collect until there
 * is none, which is after the round that the last rank drained into, the end of an era: all that
 * was committed is delivered, and this rank has been given the same rounds as all others. Until
 * then commit, drain and leave are refused; rounds that others open meanwhile, by what they commit
 * next or by rubato_partial_free, are given to it afterwards. Aligned rounds: the first number of
 * an era, the same on all ranks (all get MISMATCH if not), is for its first round; in the first era
 * that is number 0. Where ranks do not drain equally often, rubato_partial_free is TIMEOUT on all
 * (or PEER, where another had that first).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_drain(rubato_partial *partial);
/*
 * What a drained partial allreduce goes on from, for `state` of another one's options, in this job
 * or in a later one of as many ranks (a checkpoint). Its rounds are numbered on, and its policy
 * decides as that of the first would have: majority's draw, wagma's rotation, the count of
 * full_every and adaptive's durations are in it. Local; after a drain, when collect has said that
 * there is none, and before this rank's next commit: what others do meanwhile does not matter.
 * *state_bytes: the room in `state`, then the bytes that are needed (state NULL: only these).
 * Errors: ARGUMENT (not drained, not all collected, a rank has left; too little room).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_save(rubato_partial *partial, void *state,
							      uint64_t *state_bytes);
/*
 * This rank commits no more; its process goes on relaying until rubato_partial_free (which waits at
 * most the timeout for the others). It may still collect until there is none, which is when all
 * that it had committed has been reduced. But nothing is held up for it: what comes later is not
 * for it, and of what it has not collected in time, old results may be missing.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_leave(rubato_partial *partial);
/* After PEER: contributions not in any round that the survivors completed. *buffer (NULL: none) is
 * lent until free. ARGUMENT while the rounds go on. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_pending(rubato_partial *partial,
								 const void **buffer,
								 rubato_contribution *contribution);

typedef struct rubato_partial_stats {
	uint32_t size_bytes;          /* sizeof(rubato_partial_stats) at the caller. */
	uint32_t quorum;              /* Members that the open round needs. */
	uint64_t rounds, full_rounds; /* Completed here. */
	uint64_t committed, delivered, discarded, pending; /* Of this rank: conservation. */
	uint64_t merged;      /* Commits that were added to one that waited. */
	uint64_t round_ns[4]; /* Summed over rounds: open (waiting for activation), joining,
				 exchanging records, reducing. */
	uint64_t wait_ns[4];  /* Of those, what the application waited in collect. */
	uint64_t call_ns;     /* In commit, collect and release otherwise, to its last event. */
} rubato_partial_stats;
/* Local, at any time until free. Errors: ARGUMENT (size_bytes is not set). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_get_stats(rubato_partial *partial,
								   rubato_partial_stats *stats);
/*
 * Collective: ends it on every rank; NULL is fine. All ranks drain once more, so what is pending is
 * reduced, but nobody collects it: drain and collect first. Ranks that still commit meanwhile go on
 * until they come here, too. TIMEOUT when not all came; or how the operation ended (PEER, ...).
 */
RUBATO_API rubato_status rubato_partial_free(rubato_partial *partial);

/* ---- Relaxed operations: lagged allreduce ----
 *
 * Gradients of step j are applied at step j + lag, while their allreduce runs in the background
 * (LAGA: Hakimi et al., ICDM 2021). lag + 1 accumulation buffers. Every rank calls begin equally
 * often; how much it has accumulated by then may differ, and travels along.
 *
 *   rubato_lagged_acquire(l, &buffer);              // add gradients into it (it starts at zero)
 *   rubato_lagged_accumulate(l, gradient, weight);  // or let the library add
 *   rubato_lagged_begin(l);                         // starts its allreduce, swaps
 *   rubato_lagged_collect(l, &result, &weight, RUBATO_TIMEOUT_DEFAULT);
 *                                                   // that of `lag` begins ago, or NULL
 */
typedef struct rubato_lagged rubato_lagged;

/* Collective. lag: 1 to 1024. Operators: SUM, AVG (the sum divided by the sum of weights), both of
 * floating types. Memory: 2 (lag + 1) vectors. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_create(rubato_comm *comm, uint64_t count,
							       rubato_type type, rubato_operator op,
							       uint32_t lag,
							       rubato_lagged **lagged);
/* The accumulation buffer: valid until begin. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_acquire(rubato_lagged *lagged,
								void **buffer);
/* Adds `gradient` (NULL: the caller has added into the acquired buffer, or has nothing to add) and
 * counts `weight` (micro-batches, or samples): ARGUMENT above 2^63 / ranks between begins. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_accumulate(rubato_lagged *lagged,
								   const void *gradient,
								   uint64_t weight);
/* *done: the oldest allreduce in flight is over, or there is none. Does not block. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_test(rubato_lagged *lagged, bool *done);
/* Starts the allreduce of what was accumulated. ARGUMENT: lag + 1 are in flight, collect first. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_begin(rubato_lagged *lagged);
/* Waits for the allreduce begun `lag` begins before the last; *result NULL: there is none yet (with
 * RUBATO_NO_WAIT: or it is still running). *weight: the sum over ranks; from 2^32 on an AVG is
 * ARGUMENT on all ranks, and given up. Lent until the next begin. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_collect(rubato_lagged *lagged,
								const void **result,
								uint64_t *weight,
								uint64_t timeout_ns);
/* The next of those still in flight, oldest first, however young; *result NULL: none is left (with
 * RUBATO_NO_WAIT: or it is still running, which rubato_lagged_test tells). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_lagged_flush(rubato_lagged *lagged,
							      const void **result, uint64_t *weight,
							      uint64_t timeout_ns);
/* Every rank calls it. Waits for what is in flight; the error is how that ended. NULL is fine. */
RUBATO_API rubato_status rubato_lagged_free(rubato_lagged *lagged);

/* ---- Insight ---- */

/* Writes, as one line of text, the algorithm that the operation would use, its chunk and why, the
 * time that the cost model gives it, and those that it gives the others; cut off where it does not
 * fit. `count` as in the call; of allgatherv and reduce_scatterv, the sum of counts; of alltoallv
 * it does not matter. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_explain(rubato_comm *comm, const char *operation,
							 uint64_t count, rubato_type type,
							 char *text, size_t text_bytes);

/* Name of kind of operation number `index`, from 0, that has algorithms; NULL: no more of them. */
RUBATO_API const char *rubato_operation_name(uint32_t index);
/* Name of algorithm number `index`, from 0, of one kind of operation; NULL: no more of them. */
RUBATO_API const char *rubato_algorithm_name(const char *operation, uint32_t index);

#define RUBATO_PROVE_ROOTS_ALL UINT32_MAX
#define RUBATO_PROVE_RANKS_MAX 256
/*
 * Proves an algorithm: writes the schedules of all `ranks` ranks, joins them, three operations in a
 * row, and shows, for several counts and lengths of chunks, even blocks and (where it takes them)
 * uneven ones, in place and not, that
 *   - it ends, even if every send waits until it is received: there is no deadlock;
 *   - each element of each result has every rank's input in it exactly once, reduced in the same
 *     order wherever it is reduced; or is the very element that the operation says it is;
 *   - of any two accesses to the same memory of a rank, one of them a write, one comes after the
 *     other by what messages and dependencies guarantee, also between two operations;
 *   - every rank sends the bytes that the algorithm's formula says.
 * That is of the algorithm, not of what executes it. Needs no communicator; local. `node_of`: per
 * rank the number of its node, less than `ranks`, whose ranks map each other's memory; NULL: all
 * are on one. `root`: one, or RUBATO_PROVE_ROOTS_ALL; of an algorithm for a late rank, that one;
 * ignored where there is none. `count`: elements of the whole vector, a multiple of `ranks` where
 * the algorithm takes equally long blocks only; 0: several counts. Proofs of many ranks are long:
 * timeout_ns (RUBATO_TIMEOUT_DEFAULT: 60 s). `text` (1 KiB is enough) gets what was shown, in
 * sentences. Errors: INTERNAL (it is wrong: `text` and rubato_error_text() name rank and step),
 * ARGUMENT, TIMEOUT, MEMORY, UNSUPPORTED (the proof would need more than some 3 GiB).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_prove(const char *operation, const char *algorithm,
						       uint32_t ranks, const uint32_t *node_of,
						       uint32_t root, uint64_t count,
						       uint64_t timeout_ns, char *text,
						       size_t text_bytes);

/* Forces an algorithm by name for one kind of operation ("allreduce", "ring") that the application
 * itself calls; "auto" undoes it. All ranks must say the same, between operations. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_set_algorithm(rubato_comm *comm,
							       const char *operation,
							       const char *algorithm);

/*
 * The deadline of every wait without its own that begins from now on, in place of
 * options.timeout_ns, to which RUBATO_TIMEOUT_DEFAULT goes back: so a blocking call gets one of its
 * own. Local: ranks may differ. Between calls of this rank; rubato_split passes on the first one.
 * Errors: ARGUMENT (RUBATO_NO_WAIT).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_set_timeout(rubato_comm *comm,
							     uint64_t timeout_ns);

/*
 * How sums, products and averages of float16 and bfloat16 are accumulated by operations that begin
 * (persistent ones: are created) from now on. Collective in the sense that all ranks must say the
 * same, between operations: otherwise MISMATCH.
 *   STEP   in float32 within each step of the algorithm, rounded to 16 bits after it: the default.
 *   WHOLE  in float32 from the inputs to the result, which alone is rounded. The price: the
 *          operation runs as one of float32, so twice the bytes travel; 4 bytes of memory for each
 *          element of the input, and two passes to convert. Texts and dumps call it float32.
 */
typedef enum rubato_accumulate {
	RUBATO_ACCUMULATE_STEP = 0,
	RUBATO_ACCUMULATE_WHOLE = 1,
} rubato_accumulate;
/* From the next operation on. Errors: ARGUMENT (unknown value). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_set_accumulate(rubato_comm *comm,
								rubato_accumulate accumulate);

/*
 * In what form sums and averages of float32 travel: allreduces and reduce_scatters that begin
 * (persistent ones: are created) from now on; all other operations, types and operators travel as
 * they are. A partial allreduce has an option of its own. Collective in the sense that all ranks
 * must say the same, between operations: otherwise MISMATCH.
 *   SAME      as float32: the default.
 *   BFLOAT16  half the bytes. Rounded to nearest, ties to even; too large becomes infinite.
 *   INT8      a quarter and a thirty-second: each 128 values (counted from the begin of a rank's
 *             block, of an allreduce from that of the vector) have a scale s, their largest
 *             magnitude / 127, and travel as round(value / s). An infinity or NaN among them makes
 *             all 128 NaN; -0 becomes 0.
 * Each rank's input x is rounded, Q(x); a reduction step of the algorithm adds up in float32, in
 * the order of ranks, divides where it is the last and the operator AVG, and is rounded again. So
 *   - all ranks get the same bits, the same again when repeated;
 *   - where one step reduces all ranks' inputs (flat, two_shot, direct, staged) the result is
 *     Q(sum of Q(x)): two roundings however many ranks there are, the same bits by each of these;
 *   - over nodes of several ranks (hierarchical) a node's sum is rounded, too, each time it is
 *     sent on: one rounding for the input and one for each node. Ring and other forms by which each
 *     rank adds its own are taken only if asked for by name; where a rank reduces an element twice
 *     (recursive ones) they are UNSUPPORTED.
 * On a single rank nothing travels, and nothing is rounded. A rank's own memory and that of its
 * node hold the same values as the wire, so who shares a node changes no more than this.
 *
 * `feedback`: what rounding loses is added to what is rounded next at the same place,
 *     y = x + e, sends Q(y), e = y - Q(y),
 * of each persistent operation by itself, with e = 0 at first (Seide et al., 1-bit SGD, Interspeech
 * 2014; Karimireddy et al., ICML 2019), and likewise by who rounds a sum (both sides, as in Tang et
 * al., 1-bit Adam, ICML 2021). Over many starts nothing is lost but the last e: the sum of the
 * results is the sum of the inputs, less what e holds, the rounding of float32 itself aside. Where
 * y is not finite, or becomes infinite, e is 0 (INT8: of all 128). One-shots are rounded without.
 * Memory: the vector coded, with feedback 8 bytes an element; on a device if both buffers are.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_set_wire(rubato_comm *comm, rubato_wire wire,
							  bool feedback);
/* "float32", "bfloat16", "int8"; "unknown" for another value. */
RUBATO_API const char *rubato_wire_name(rubato_wire wire);
/* What rounding has lost so far, of a persistent operation that feeds it back: *count floats, lent
 * until it is freed, which may be read and written while it is not in flight: saved, and put back
 * into one made alike. Their order is the library's own; they lie where the coded vector does.
 * Errors: ARGUMENT (it has none; in flight), the device's. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_residual(rubato_op *operation, float **residual,
							     uint64_t *count);
/* That of a partial allreduce with options.feedback, likewise: before the first commit, and when
 * rubato_partial_save would work (ARGUMENT: at other times). Rounds that others open change it, so
 * a barrier stands between this and the next commit on any rank. One rank has 0 floats. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_partial_residual(rubato_partial *partial,
								  float **residual,
								  uint64_t *count);

/* This rank's clock, in ns: monotonic; in a simulation (rubato_sim.h) virtual time; 0 of NULL. */
RUBATO_API uint64_t rubato_now(rubato_comm *comm);
/* Stands for computation: this rank does nothing for that long, while its background progress
 * goes on. With NULL it returns at once. */
RUBATO_API void rubato_sleep(rubato_comm *comm, uint64_t duration_ns);

typedef struct rubato_stats {
	uint32_t size_bytes; /* sizeof(rubato_stats) at the caller. */
	uint32_t operations_in_flight;
	uint64_t operations; /* Completed, blocking and persistent starts together. */
	uint64_t bytes_sent; /* Payload handed to transports (sends and puts). */
	uint64_t bytes_received;
	uint64_t bytes_mapped;     /* Read from or written to peers' memory in place. */
	uint64_t wait_ns;          /* Time that callers spent blocked in the library. */
	uint64_t sleeps;           /* How often a waiting thread went to sleep. */
	uint64_t background_polls; /* Polls by the progress thread. */
} rubato_stats;
/* Local: since the communicator was made. Errors: ARGUMENT (size_bytes is not set). */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_get_stats(rubato_comm *comm, rubato_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
