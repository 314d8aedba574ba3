/*
 * rubato.h -- collective communication that need not wait for the slowest rank.
 *
 * A communicator joins `size` ranks, numbered from 0. Every rank calls the same collectives in the
 * same order; ranks may be processes, on one machine or several, or threads of one process.
 *
 *   rubato_comm *comm;
 *   rubato_init(&comm, NULL);                            // from the environment: see
 * docs/start-up.md rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM);
 *   rubato_finalize(comm);
 *
 * Conventions
 *   Counts      are elements (not bytes) and 64 bits wide; 0 is allowed everywhere.
 *   In place    where a function names an in-place form, the two buffers may be that one; any other
 *               overlap of input and output is an error of the caller that is not detected.
 *   Errors      every function returns RUBATO_OK (0) or a negative rubato_status and then leaves
 * its outputs unset; rubato_error_text() has the sentence. "Not yet" is never an error. The library
 * never exits, aborts, raises signals or prints to standard output. Threads     a communicator may
 * be used by several threads; collectives are matched in the order in which they are called on it,
 * so that order must not depend on a race. Waiting     every wait has a deadline: that of the call,
 * or options.timeout_ns. Bits        a collective gives the same bits on every rank that receives
 * the same element, and the same bits again when repeated: operand order is fixed by rank number.
 *   Poison      when a collective fails on a rank (lost peer, timeout, cancel, mismatch), that
 * rank's communicator is poisoned: later operations return the first error at once, and only
 *               rubato_dump, rubato_abort and rubato_finalize are of use. A timeout of rubato_wait
 * does not poison (the operation goes on), nor does cancelling a send or receive.
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
 *             combines two ranks' data or more, and rounded (to nearest, ties to even) when it
 *             ends. A float16 sum beyond 65504 is infinite, also as part of an average.
 */
typedef enum rubato_operator {
	RUBATO_SUM = 0,
	RUBATO_MAX = 1,
	RUBATO_MIN = 2,
	RUBATO_AVG = 3, /* The sum times 1/size (floating types), taken once, at the end. */
	RUBATO_PROD = 4,
} rubato_operator;
#define RUBATO_OPERATOR_COUNT 5

typedef struct rubato_comm rubato_comm; /* A communicator. */
typedef struct rubato_op rubato_op;     /* A persistent, non-blocking operation. */

#define RUBATO_TIMEOUT_DEFAULT 0 /* In place of a timeout: options.timeout_ns. */

/* Options of rubato_init*. Always start from RUBATO_OPTIONS_INIT; 0 and NULL mean the default. */
typedef struct rubato_options {
	uint32_t size_bytes;   /* sizeof(rubato_options) at the caller: the version. */
	uint32_t flags;        /* None defined yet: 0. */
	uint64_t timeout_ns;   /* Of every wait without its own (RUBATO_TIMEOUT, 60 s). */
	const char *transport; /* "auto", "shm", "ucx", "tcp" (RUBATO_TRANSPORT, auto). */
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
 * (host:port); without them a communicator of one rank. Blocks until all ranks are there, at most
 * the timeout. Errors: ARGUMENT (bad or incomplete variables), TIMEOUT (the text names the ranks
 * that are missing), AUTH (wrong secret), MISMATCH (two ranks with one number, differing sizes),
 * SYSTEM (port in use).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_init(rubato_comm **comm,
						      const rubato_options *options);

/* Makes an id. The caller must then be one of the ranks of that job: rank 0. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_id_create(rubato_id *id);

/* Joins the job `id` as `rank` of `size`. One thread may do this for one rank, many threads for
 * many. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_init_id(rubato_comm **comm, const rubato_id *id,
							 uint32_t rank, uint32_t size,
							 const rubato_options *options);

/*
 * Collective: waits (bounded) until every rank has come, so that no peer still needs our memory,
 * then frees everything, also when it returns an error (PEER, TIMEOUT) because not all came. NULL
 * is fine.
 */
RUBATO_API rubato_status rubato_finalize(rubato_comm *comm);

/*
 * Not collective: ends every operation of this communicator with CANCELLED, from any thread, and
 * tells the peers, whose operations end with PEER. Bounded. rubato_finalize must follow and then
 * waits for none.
 */
RUBATO_API rubato_status rubato_abort(rubato_comm *comm);

RUBATO_API uint32_t rubato_rank(const rubato_comm *comm);
RUBATO_API uint32_t rubato_size(const rubato_comm *comm);

/* ---- Text ---- */

RUBATO_API const char *rubato_status_name(rubato_status status);
/* The sentence of this thread's last error: valid until its next call of the library. Never NULL.
 */
RUBATO_API const char *rubato_error_text(void);
RUBATO_API const char *rubato_type_name(rubato_type type);
RUBATO_API const char *rubato_operator_name(rubato_operator op);
RUBATO_API size_t rubato_type_bytes(rubato_type type); /* 0 for an unknown type. */
RUBATO_API const char *rubato_version(void);

/* 16-bit floats as their bits. To float32 exactly; back rounded to nearest, ties to even, too large
 * to infinity, subnormals kept, a NaN made quiet. */
RUBATO_API float rubato_float16_to_float32(uint16_t bits);
RUBATO_API uint16_t rubato_float32_to_float16(float value);
RUBATO_API float rubato_bfloat16_to_float32(uint16_t bits);
RUBATO_API uint16_t rubato_float32_to_bfloat16(float value);

/* Writes one line per operation in flight to file descriptor `fd`, columns as in docs/testing.md.
 */
RUBATO_API void rubato_dump(rubato_comm *comm, int fd);

/* Calls row() once per setting of the environment (docs/tuning.md), with where its value came from.
 */
RUBATO_API RUBATO_NODISCARD rubato_status
rubato_config_each(void (*row)(void *arg, const char *variable, const char *value,
			       const char *source, const char *help),
		   void *arg);

/* ---- Memory ---- */

/*
 * Memory that this node's other ranks can read and write in place and that networks find
 * registered: collectives on it copy least. Zeroed, 4 KiB aligned. Local (not collective).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_alloc(rubato_comm *comm, size_t size_bytes,
						       void **memory);
/* Errors: ARGUMENT when `memory` is none of rubato_alloc's. NULL is fine. */
RUBATO_API rubato_status rubato_free(rubato_comm *comm, void *memory);

/* Makes the caller's own memory fast where the transport can (elsewhere it does nothing, rightly).
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_register(rubato_comm *comm, void *memory,
							  size_t size_bytes);
RUBATO_API rubato_status rubato_unregister(rubato_comm *comm, void *memory);

/* ---- Blocking operations ---- */

/* out[i] = op over ranks of in[i]; `count` elements each. In place: in == out. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_allreduce(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type, rubato_operator op);

/* As allreduce, the result at `root` only (elsewhere `out` is ignored). In place: in == out at
 * root. */
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

/* Returns when every rank has called it. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_barrier(rubato_comm *comm);

/*
 * Point to point, matched by (peer, tag) in the order of the calls. A send may return before the
 * receive has been called; it may also wait for it. Counts and types must agree: MISMATCH
 * otherwise.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_send(rubato_comm *comm, const void *buffer,
						      uint64_t count, rubato_type type,
						      uint32_t peer, uint32_t tag);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_recv(rubato_comm *comm, void *buffer,
						      uint64_t count, rubato_type type,
						      uint32_t peer, uint32_t tag);

/* ---- Persistent, non-blocking operations ----
 *
 * Created once (collectively: every rank, in the same order; send and receive excepted), started as
 * often as liked, one start at a time. Progress is made in the background and by whoever waits.
 * Buffers belong to the library from start until the operation is complete.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_allreduce(rubato_comm *comm, const void *in,
							      void *out, uint64_t count,
							      rubato_type type, rubato_operator op,
							      rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_reduce(rubato_comm *comm, const void *in,
							   void *out, uint64_t count,
							   rubato_type type, rubato_operator op,
							   uint32_t root, rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_reduce_scatter(rubato_comm *comm,
								   const void *in, void *out,
								   uint64_t count, rubato_type type,
								   rubato_operator op,
								   rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_allgather(rubato_comm *comm, const void *in,
							      void *out, uint64_t count,
							      rubato_type type,
							      rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_broadcast(rubato_comm *comm, void *buffer,
							      uint64_t count, rubato_type type,
							      uint32_t root, rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_barrier(rubato_comm *comm,
							    rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_send(rubato_comm *comm, const void *buffer,
							 uint64_t count, rubato_type type,
							 uint32_t peer, uint32_t tag,
							 rubato_op **operation);
RUBATO_API RUBATO_NODISCARD rubato_status rubato_op_recv(rubato_comm *comm, void *buffer,
							 uint64_t count, rubato_type type,
							 uint32_t peer, uint32_t tag,
							 rubato_op **operation);

/* Errors: ARGUMENT when the operation is in flight already. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_start(rubato_op *operation);
/* Makes progress once; *done tells whether the operation is complete. The error is the operation's.
 */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_test(rubato_op *operation, bool *done);
/* Blocks until complete. TIMEOUT: still in flight; wait again, or cancel. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_wait(rubato_op *operation, uint64_t timeout_ns);
/*
 * Ends an operation in flight and returns when its buffers are quiet: no one will touch them again.
 * OK: it was not in flight, or had completed. CANCELLED: it was ended; a collective then has
 * poisoned the communicator, a send or receive has not.
 */
RUBATO_API rubato_status rubato_cancel(rubato_op *operation);
/* Cancels first if need be. NULL is fine. Local. */
RUBATO_API void rubato_op_free(rubato_op *operation);

/* ---- Insight ---- */

/* Writes, as one line of text, the algorithm that the operation would use, its chunk and why. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_explain(rubato_comm *comm, const char *operation,
							 uint64_t count, rubato_type type,
							 char *text, size_t text_bytes);

/* Name of algorithm number `index`, from 0, of one kind of operation; NULL: no more of them. */
RUBATO_API const char *rubato_algorithm_name(const char *operation, uint32_t index);

/* Forces an algorithm by name for one kind of operation ("allreduce", "ring"); "auto" undoes it.
 * Collective in the sense that all ranks must say the same, between operations. */
RUBATO_API RUBATO_NODISCARD rubato_status rubato_set_algorithm(rubato_comm *comm,
							       const char *operation,
							       const char *algorithm);

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
RUBATO_API RUBATO_NODISCARD rubato_status rubato_get_stats(rubato_comm *comm, rubato_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
