/*
 * random.h -- what the parts of random_program share: draws, places, values, buffers, failures.
 *
 * A place is a communicator with all that a program does on it: the draws that its ranks have in
 * common, and so make alike; this rank's own, which say how it behaves; its operations, messages
 * and results that nobody has looked at yet. So two threads may each work in a place of their own.
 */
#ifndef RANDOM_H
#define RANDOM_H

#include <rubato.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 8u
#define OPS 8u     /* Persistent operations of a place. */
#define HELD 3u    /* Results that are looked at later. */
#define PARCELS 8u /* Messages under way at a time. */

/* ---- Draws: splitmix64 ---- */

struct draws {
	uint64_t state;
};

uint64_t mixed(uint64_t a, uint64_t b);
uint64_t draw(struct draws *draws);
uint32_t below(struct draws *draws, uint32_t bound);
bool one_in(struct draws *draws, uint32_t bound);
/* 0 .. count - 1 in any order. */
void order_draw(struct draws *draws, uint32_t count, uint32_t *order);

/* ---- Collectives ---- */

enum kind {
	ALLREDUCE,
	REDUCE,
	REDUCE_SCATTER,
	ALLGATHER,
	BROADCAST,
	ALLTOALL,
	GATHER,
	SCATTER,
	ALLGATHERV,
	REDUCE_SCATTERV,
	ALLTOALLV,
	BARRIER,
	HELPED, /* Persistent only. */
	KINDS,
};

/* What the last line counts: blocking and persistent kinds, then these. */
enum other {
	PLAIN_IN_PLACE,
	ALLOCATED,
	HELD_LONG,
	POLLED,
	EMPTY,
	ODD_FLOATS,
	STARTED_AGAIN,
	FREED_BESIDE,
	MESSAGES_ANY_ORDER,
	MESSAGES_BLOCKING,
	MESSAGES_EXPECTED,
	MESSAGES_WAITING,
	MESSAGES_UNEXPECTED,
	MESSAGES_TO_SELF,
	MESSAGES_BOTH_WAYS,
	WOKEN,
	RECEIVE_CANCELLED,
	RECEIVE_TIMED_OUT,
	CANCEL_RACED,
	SEND_CANCELLED,
	SPLIT,
	SPLIT_OFF_CHILD,
	CHILD_FINALIZED,
	CHILD_STEPS,
	BESIDE,
	MEMORY,
	REGISTERED,
	FORCED,
	UNSUPPORTED,
	WIRE,
	ACCUMULATE,
	REFUSED,
	LAGGED,
	PARTIAL,
	NAP,
	LOOK,
	OTHERS,
};

#define DONE_OTHER(what) (2 * KINDS + (uint32_t)(what))
#define DONE_TYPE(type) (2 * KINDS + OTHERS + (uint32_t)(type))
#define DONE_OPERATOR(op) (2 * KINDS + OTHERS + RUBATO_TYPE_COUNT + (uint32_t)(op))
#define DONE_POLICY(policy)                                                                        \
	(2 * KINDS + OTHERS + RUBATO_TYPE_COUNT + RUBATO_OPERATOR_COUNT + (uint32_t)(policy))
#define DONE_COUNT DONE_POLICY(RUBATO_POLICY_COUNT)

struct buffer {
	uint8_t *memory, *at; /* `at`: where the elements begin; */
	uint8_t *shadow;      /* what the memory should hold. */
	size_t bytes, room;   /* Elements'; in all. */
	rubato_comm *comm;    /* Of rubato_alloc; NULL: plain memory. */
};

struct blocks {
	uint64_t counts[RANKS_MAX], offsets[RANKS_MAX], extent;
	bool packed; /* Offsets are given as NULL. */
};

struct piece {
	uint64_t first, count; /* Elements of a buffer; */
	uint32_t stream;       /* whose values they are, or EVERYBODY's reduced, */
	uint64_t from;         /* from this one on. */
};
#define EVERYBODY UINT32_MAX

struct call {
	enum kind kind;
	rubato_type type;
	rubato_operator op;
	rubato_wire wire;
	uint32_t root;
	uint64_t count, key; /* `key`: which values. */
	bool odd;            /* NaN, infinities and -0 are among them. */
	bool symmetric;      /* Of alltoallv: both ways as much. */
	bool in_place;
	struct blocks in_blocks, out_blocks;
	struct piece in_pieces[RANKS_MAX], out_pieces[RANKS_MAX];
	uint32_t in_piece_count, out_piece_count;
	struct buffer in_buffer, out_buffer; /* In place: `out_buffer` alone. */
	const void *in;
	void *out;
};

struct operation {
	rubato_op *op; /* NULL: there is none. */
	struct call call;
	bool flying, over, unseen; /* `over`: this rank has waited; `unseen`: has not looked. */
	uint32_t turns;
};

struct parcel { /* A message. */
	rubato_op *op;
	struct buffer buffer;
	uint32_t from, to, tag;
	rubato_type type;
	uint64_t count, key;
	bool started;
};

struct program;

struct place {
	struct program *program;
	rubato_comm *comm; /* NULL: this rank is not in it. */
	uint32_t rank, size;
	struct draws common, own;
	uint64_t keys; /* So many calls were drawn. */
	rubato_wire wire;
	bool feedback;
	enum kind wanted; /* What the next call is, if not KINDS. */
	struct operation operations[OPS];
	struct call held[HELD];
	bool holds[HELD];
	struct parcel late[PARCELS]; /* Sent, and not received yet. */
	uint32_t late_count;
	uint64_t done[DONE_COUNT];
	char doing[160];
};

#define PLACES 4u

struct program {
	uint64_t seed;
	uint32_t step, rank, size;
	bool background; /* Operations go on while their rank is elsewhere. */
	struct draws common, own;
	struct place places[PLACES]; /* The first is everybody's. */
};

/* ---- Failures: one line, and the end ---- */

__attribute__((format(printf, 2, 3))) void doing(struct place *place, const char *format, ...);
__attribute__((format(printf, 2, 3), noreturn)) void fail(const struct place *place,
							  const char *format, ...);
/* It went well. */
void must(const struct place *place, rubato_status status);
/* It was refused. */
void must_be(const struct place *place, rubato_status expected, rubato_status status);
void nap(struct place *place, uint32_t us);
void nap_unseen(uint32_t us); /* Not counted. */
void count(struct place *place, enum other what);

/* ---- Values ---- */

rubato_type type_draw(struct draws *draws);
bool is_float(rubato_type type);
/* Fills with what moves as it is: any bits. */
void values_moved(uint64_t key, uint32_t stream, uint64_t from, uint64_t count, rubato_type type,
		  uint8_t *out);
/* What is reduced: any integers, floats of which no sum is rounded. */
void values_reduced(const struct call *call, uint32_t stream, uint64_t from, uint64_t count,
		    uint8_t *out);
/* Their reduction over ranks. */
void values_expected(const struct call *call, uint32_t ranks, uint64_t from, uint64_t count,
		     uint8_t *out);

/* ---- Buffers ---- */

void buffer_make(struct place *place, struct buffer *buffer, size_t bytes, size_t element);
void buffer_free(struct place *place, struct buffer *buffer);
/* Notes what it holds as what it should hold. */
void buffer_note(struct buffer *buffer);
/* It holds what it should. */
void buffer_check(const struct place *place, const struct buffer *buffer, size_t element,
		  const char *name);

/* ---- Steps ---- */

void call_draw(struct place *place, struct call *call, bool persistent);
void call_make(struct place *place, struct call *call);
void call_fill(struct place *place, struct call *call);
void call_check(struct place *place, struct call *call);
void call_free(struct place *place, struct call *call);
void call_say(struct place *place, const struct call *call, const char *prefix);
uint64_t next_key(struct place *place);
const char *kind_name(enum kind kind);

void step_call(struct place *place);
void held_check(struct place *place);
void step_persistent(struct place *place);
void turns_run(struct place *place);
void operations_end(struct place *place);
/* Waits in one of many ways. */
void await(struct place *place, rubato_op *op);
void step_messages(struct place *place);
/* Once, before anything else. */
void step_woken(struct place *place);
void parcels_end(struct place *place);
void step_cancel(struct place *place);
void step_settings(struct place *place);
/* Whether it was: an algorithm that was forced for this kind cannot run here. On all ranks; none is
 * then, and those of other kinds stay. */
bool unsupported(struct place *place, enum kind kind, rubato_status status);
void step_memory(struct place *place);
void step_refused(struct place *place);
void step_look(struct place *place);
void step_lagged(struct place *place);
void step_partial(struct place *place);

void place_step(struct place *place);
/* Nothing is under way there any more. */
void place_end(struct place *place);

#endif
