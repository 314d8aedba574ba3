/*
 * wire.h -- what crosses between ranks: signatures, message heads, and a cursor that writes and
 * reads little-endian fields. Reading never runs past the end: it turns the cursor bad, and
 * rb_wire_end() says so once. docs/protocol.md has the table of messages.
 */
#ifndef RB_BASE_WIRE_H
#define RB_BASE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What an operation is: the first byte of its signature. */
enum rb_kind {
	RB_KIND_NONE,
	RB_KIND_BARRIER,
	RB_KIND_BROADCAST,
	RB_KIND_REDUCE,
	RB_KIND_ALLREDUCE,
	RB_KIND_REDUCE_SCATTER,
	RB_KIND_ALLGATHER,
	RB_KIND_GATHER,
	RB_KIND_SCATTER,
	RB_KIND_ALLTOALL,
	RB_KIND_ALLGATHERV,
	RB_KIND_REDUCE_SCATTERV,
	RB_KIND_ALLTOALLV,
	RB_KIND_SENDRECV,
	RB_KIND_SPLIT,
	RB_KIND_FINALIZE,
	RB_KIND_CONTROL, /* The library's own: buffer tables, goodbyes, protocol machines. */
	RB_KIND_LAGGED,  /* Where one is made; likewise. */
	RB_KIND_PARTIAL,
};
#define RB_KIND_COUNT 19
const char *rb_kind_name(enum rb_kind kind);
/* Of those that users name (not SENDRECV and what comes after it); RB_KIND_NONE: there is none. */
enum rb_kind rb_kind_find(const char *name);

static inline bool rb_kind_rooted(enum rb_kind kind)
{
	return kind == RB_KIND_BROADCAST || kind == RB_KIND_REDUCE || kind == RB_KIND_GATHER ||
	       kind == RB_KIND_SCATTER;
}

static inline bool rb_kind_reduces(enum rb_kind kind)
{
	return kind == RB_KIND_REDUCE || kind == RB_KIND_ALLREDUCE ||
	       kind == RB_KIND_REDUCE_SCATTER || kind == RB_KIND_REDUCE_SCATTERV;
}

/* The caller says how long each block is. */
static inline bool rb_kind_uneven(enum rb_kind kind)
{
	return kind == RB_KIND_ALLGATHERV || kind == RB_KIND_REDUCE_SCATTERV ||
	       kind == RB_KIND_ALLTOALLV;
}

/* Rides in every message; the receiver compares it with its own (RUBATO_ERR_MISMATCH). */
struct rb_signature {
	uint8_t kind;      /* enum rb_kind. */
	uint8_t type;      /* By rb_signature_type; 0xff: none. */
	uint8_t op;        /* rubato_operator; 0xff: none. */
	uint8_t algorithm; /* Index in rb_algorithms: catches ranks that chose differently. */
	uint32_t root;     /* Rank; V-kinds: a hash of their blocks; UINT32_MAX: none. */
	uint64_t count;    /* Elements; in messages of ALLTOALLV the pair's. */
};
_Static_assert(sizeof(struct rb_signature) == 16, "travels as it is");

/* A rubato_type, and in what form it travels: a rubato_wire, or, of one whose rounding is fed back,
 * RB_SIGNATURE_FED_BACK more. */
#define RB_SIGNATURE_WIRE_SHIFT 5
#define RB_SIGNATURE_FED_BACK (RUBATO_WIRE_COUNT - 1)
static inline uint8_t rb_signature_type(rubato_type type, rubato_wire wire, bool feedback)
{
	uint32_t form = (uint32_t)wire + (feedback ? RB_SIGNATURE_FED_BACK : 0);

	return (uint8_t)((uint32_t)type | form << RB_SIGNATURE_WIRE_SHIFT);
}
_Static_assert(RUBATO_TYPE_COUNT <= 1 << RB_SIGNATURE_WIRE_SHIFT && 2 * RUBATO_WIRE_COUNT < 8,
	       "both in a byte that is never 0xff");

/* "allreduce float32 x 1024 sum ring": at most `text_bytes`, for messages. Returns text. */
char *rb_signature_text(const struct rb_signature *signature, char *text, size_t text_bytes);

static inline bool rb_signature_same(const struct rb_signature *a, const struct rb_signature *b)
{
	uint64_t words[2][2];

	__builtin_memcpy(words[0], a, sizeof(*a));
	__builtin_memcpy(words[1], b, sizeof(*b));
	return words[0][0] == words[1][0] && words[0][1] == words[1][1];
}

/*
 * Names one message between two ranks. At most one message of a name is on its way from one rank
 * to another, so transports may reorder freely.
 *
 *   call   epoch (8) | class (4) | number (52)
 *   step   instance (24) | channel (12) | iteration (28); of RB_TAG_P2P, RB_TAG_PROTOCOL,
 *          RB_TAG_FETCH and RB_TAG_FLOWS the message's number
 *
 * No number comes twice: 2^52 calls of a microsecond take 142 years. Instances wrap: in one
 * operation a rank is ahead of another by its peers' credits at most, far less than 2^23 starts.
 */
struct rb_tag {
	uint64_t call, step;
};

enum rb_tag_class {
	RB_TAG_ONESHOT,       /* Number: the call's. */
	RB_TAG_EXCHANGE,      /* Of its buffers' addresses; likewise. */
	RB_TAG_PERSISTENT,    /* Number: the operation's. */
	RB_TAG_FINAL_BARRIER, /* Likewise: it is being freed. */
	RB_TAG_PARTIAL,       /* Number: one of those that a partial allreduce has. */
	RB_TAG_P2P,           /* Number: the user's tag. */
	RB_TAG_PROTOCOL,      /* Number: the driver's. */
	RB_TAG_FETCH,         /* Likewise. */
	RB_TAG_SPLIT,         /* Number: the exchange's. */
	RB_TAG_LINK,          /* Number: of the messages that measure it. */
	RB_TAG_NOTICE,
	RB_TAG_PROBE_ONESHOT,    /* Number: the call's. */
	RB_TAG_PROBE_PERSISTENT, /* Number: the operation's. */
	RB_TAG_FLOWS,            /* Number: the part. */
	RB_TAG_CARRIER,          /* Number: of the messages that time a network. */
};
#define RB_TAG_NUMBER_BITS 52
#define RB_TAG_CHANNEL_BITS 12
#define RB_TAG_ITERATION_BITS 28
#define RB_TAG_INSTANCE_SHIFT (RB_TAG_CHANNEL_BITS + RB_TAG_ITERATION_BITS)
#define RB_CHANNEL_MAX (1u << RB_TAG_CHANNEL_BITS)
#define RB_ITERATION_MAX (1u << RB_TAG_ITERATION_BITS)

static inline struct rb_tag rb_tag(uint32_t epoch, enum rb_tag_class tag_class, uint64_t number,
				   uint32_t instance)
{
	return (struct rb_tag) {
		.call = (uint64_t)(epoch & 0xffu) << 56 |
			(uint64_t)tag_class << RB_TAG_NUMBER_BITS |
			(number & ((UINT64_C(1) << RB_TAG_NUMBER_BITS) - 1)),
		.step = (uint64_t)instance << RB_TAG_INSTANCE_SHIFT,
	};
}

static inline struct rb_tag rb_tag_step(struct rb_tag tag, uint32_t channel, uint32_t iteration)
{
	tag.step |= (uint64_t)channel << RB_TAG_ITERATION_BITS | iteration;
	return tag;
}

/* Of those without channels: messages are numbered. */
static inline struct rb_tag rb_tag_message(uint32_t epoch, enum rb_tag_class tag_class,
					   uint64_t number, uint64_t message)
{
	struct rb_tag tag = rb_tag(epoch, tag_class, number, 0);

	tag.step = message;
	return tag;
}

static inline bool rb_tag_same(struct rb_tag a, struct rb_tag b)
{
	return a.call == b.call && a.step == b.step;
}

static inline enum rb_tag_class rb_tag_class_of(struct rb_tag tag)
{
	return (enum rb_tag_class)(tag.call >> RB_TAG_NUMBER_BITS & 0xf);
}

static inline bool rb_tag_is_probe(struct rb_tag tag)
{
	return rb_tag_class_of(tag) == RB_TAG_PROBE_ONESHOT ||
	       rb_tag_class_of(tag) == RB_TAG_PROBE_PERSISTENT;
}

static inline uint32_t rb_tag_channel_of(struct rb_tag tag)
{
	return (uint32_t)(tag.step >> RB_TAG_ITERATION_BITS) & (RB_CHANNEL_MAX - 1);
}

static inline uint64_t rb_tag_number_of(struct rb_tag tag)
{
	return tag.call & ((UINT64_C(1) << RB_TAG_NUMBER_BITS) - 1);
}

/* How many starts this message's is after start `instance`; negative: before. */
static inline int32_t rb_tag_lead(struct rb_tag tag, uint32_t instance)
{
	uint32_t theirs = (uint32_t)(tag.step >> RB_TAG_INSTANCE_SHIFT);

	return (int32_t)((theirs - instance) << 8) >> 8;
}

/* A cursor over a byte buffer; `bad` once something did not fit. */
struct rb_wire {
	uint8_t *at, *end;
	bool bad;
};

static inline struct rb_wire rb_wire_over(void *bytes, size_t size_bytes)
{
	return (struct rb_wire) { (uint8_t *)bytes, (uint8_t *)bytes + size_bytes, false };
}
void rb_wire_put_u8(struct rb_wire *w, uint8_t value);
void rb_wire_put_u16(struct rb_wire *w, uint16_t value);
void rb_wire_put_u32(struct rb_wire *w, uint32_t value);
void rb_wire_put_u64(struct rb_wire *w, uint64_t value);
void rb_wire_put_bytes(struct rb_wire *w, const void *bytes, size_t size_bytes);
uint8_t rb_wire_get_u8(struct rb_wire *w);
uint16_t rb_wire_get_u16(struct rb_wire *w);
uint32_t rb_wire_get_u32(struct rb_wire *w);
uint64_t rb_wire_get_u64(struct rb_wire *w);
void rb_wire_get_bytes(struct rb_wire *w, void *bytes, size_t size_bytes);

#endif
