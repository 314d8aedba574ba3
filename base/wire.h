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
	RB_KIND_CONTROL, /* The library's own: buffer tables, goodbyes, protocol machines. */
};
#define RB_KIND_COUNT 16
const char *rb_kind_name(enum rb_kind kind);

/* Rides in every message; the receiver compares it with its own (RUBATO_ERR_MISMATCH). */
struct rb_signature {
	uint8_t kind;      /* enum rb_kind. */
	uint8_t type;      /* rubato_type; 0xff: none. */
	uint8_t op;        /* rubato_operator; 0xff: none. */
	uint8_t algorithm; /* Index in rb_algorithms: catches ranks that chose differently. */
	uint32_t root;     /* Rank; V-kinds: a hash of their blocks; UINT32_MAX: none. */
	uint64_t count;    /* Elements; in messages of ALLTOALLV the pair's. */
};
_Static_assert(sizeof(struct rb_signature) == 16, "travels as it is");

/* "allreduce float32 x 1024 sum ring": at most `text_bytes`, for messages. Returns text. */
char *rb_signature_text(const struct rb_signature *signature, char *text, size_t text_bytes);

static inline bool rb_signature_same(const struct rb_signature *a, const struct rb_signature *b)
{
	return __builtin_memcmp(a, b, sizeof(*a)) == 0;
}

/*
 * The 64-bit tag that names one message between two ranks: epoch | class | sequence | channel |
 * iteration. At most one message with a given tag is in flight from one rank to another, so
 * transports may reorder freely. Sequence wraps: a rank can be ahead by the credits of its peers
 * only, far less than half of 2^22 operations.
 */
enum rb_tag_class { RB_TAG_ONESHOT, RB_TAG_PERSISTENT, RB_TAG_P2P, RB_TAG_CONTROL };
#define RB_TAG_EPOCH_BITS 8
#define RB_TAG_SEQUENCE_BITS 22
#define RB_TAG_CHANNEL_BITS 12
#define RB_TAG_ITERATION_BITS 20
#define RB_CHANNEL_MAX (1u << RB_TAG_CHANNEL_BITS)
#define RB_ITERATION_MAX (1u << RB_TAG_ITERATION_BITS)

static inline uint64_t rb_tag(uint32_t epoch, enum rb_tag_class tag_class, uint32_t sequence)
{
	return ((uint64_t)(epoch & 0xffu) << 56) | ((uint64_t)tag_class << 54) |
	       ((uint64_t)(sequence & ((1u << RB_TAG_SEQUENCE_BITS) - 1)) << 32);
}

static inline uint64_t rb_tag_step(uint64_t tag, uint32_t channel, uint32_t iteration)
{
	return tag | ((uint64_t)channel << RB_TAG_ITERATION_BITS) | iteration;
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
