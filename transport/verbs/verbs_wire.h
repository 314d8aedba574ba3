/*
 * verbs_wire.h -- what travels between two ranks of the verbs backend; the idea is in verbs.h.
 */
#ifndef RB_TRANSPORT_VERBS_WIRE_H
#define RB_TRANSPORT_VERBS_WIRE_H

#include "base/wire.h"

#define RB_VERBS_VERSION 8u
#define RB_VERBS_RAILS_MAX 4u
#define RB_VERBS_SLOT_BYTES 1024u

enum rb_verbs_message {
	RB_VERBS_HELLO = 1, /* connect(): the job and the rank; over the path that data takes. */
	RB_VERBS_EAGER,     /* A message, or the first piece of one. */
	RB_VERBS_MORE,      /* The next piece of the last EAGER. */
	RB_VERBS_ANNOUNCE,  /* The sender's flight `id` waits for its invitation. */
	RB_VERBS_CLEAR,     /* Invites: the receiver's flight `id`; a struct rb_verbs_target. */
	RB_VERBS_REFUSED,   /* The message of that tag does not fit what flight `id` invites. */
	RB_VERBS_DROP,      /* Nobody wants the announced flight `id`. */
	RB_VERBS_GONE,      /* The announced flight `id` was cancelled. */
	RB_VERBS_DATA,      /* A piece of what the receiver's flight `id` invited without a key. */
	RB_VERBS_FIN,       /* What flight `id` invited is written. */
	RB_VERBS_STOP,      /* Is flight `id` being served? Then stop (`size_bytes` 1: go on). */
	RB_VERBS_STOPPED, /* Nobody writes for flight `id` any more: its message was taken back, or
			     * there was none. */
	RB_VERBS_ENDED,   /* Likewise, as it was stopped: the message is gone, and was sent. */
	RB_VERBS_KEPT,    /* Flight `id` is being served. */
	RB_VERBS_PUT,     /* The empty message behind a put. */
	/* Not of the stream: */
	RB_VERBS_CREDIT, /* Only what every head says. */
	RB_VERBS_MARK,   /* What this link carried of the sender's flight `id` is there. */
	RB_VERBS_RESUME, /* Of link `rails` in its life `id`, `size_bytes` messages were taken; the
			  * tag's step: so many keys were taken back from its peer, ever. */
	RB_VERBS_RISE,   /* A link is made anew: a greeting. */
	/* And again of it: */
	RB_VERBS_BYE,   /* The last message of a rank that leaves in good order. */
	RB_VERBS_ABORT, /* The last message of one that does not: blames `id`; last words. */
};

static inline bool rb_verbs_is_numbered(uint8_t message)
{
	return message > RB_VERBS_HELLO && (message < RB_VERBS_CREDIT || message > RB_VERBS_RISE);
}

/* Before each payload. Little-endian hosts only. */
struct rb_verbs_head {
	uint8_t message;   /* enum rb_verbs_message. */
	uint8_t rails;     /* FIN, PUT, STOPPED, ENDED: bits, of the MARKs to wait for;
			    * MARK: its bit. */
	uint16_t bytes;    /* Of payload behind this head. */
	uint32_t consumed; /* Slots of this link that were posted again, ever. */
	uint32_t freed;    /* Units of credit given back, ever. */
	uint32_t number;   /* In the stream. */
	struct rb_tag tag;
	struct rb_signature signature;
	uint64_t size_bytes; /* Of the whole message; DATA: where this piece belongs; where `rails`
			      * has bits: the sender's flight, as MARKs name it. */
	uint64_t id;
};
_Static_assert(sizeof(struct rb_verbs_head) == 64, "travels as it is");
#define RB_VERBS_PAYLOAD_MAX (RB_VERBS_SLOT_BYTES - (uint32_t)sizeof(struct rb_verbs_head))

struct rb_verbs_target { /* The payload of CLEAR. */
	uint64_t address;
	uint32_t keys[RB_VERBS_RAILS_MAX]; /* 0: none. */
	uint64_t send; /* The announced flight that it is for; 0: whichever has its tag. */
};

/* The payload of HELLO and RISE; and before connecting, over UD, or what rdmacm carries. */
#define RB_VERBS_LEAVES 2u /* The sender gives up: it has no queue pair. Over UD alone. */
struct rb_verbs_greeting {
	uint32_t rank, qp_number;
	uint32_t life; /* Of the link. */
	uint8_t job[16];
	uint8_t version, rail;
	uint8_t ready;   /* 1: the addressee's was heard: that queue pair receives. Or LEAVES. */
	uint8_t attempt; /* rdmacm: of this life. */
};

#endif
