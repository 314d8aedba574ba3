/*
 * rendezvous_wire.h -- the messages of the rendezvous: their bytes, their bounds, their proofs.
 *
 * Every message is a head of 12 bytes (magic, version, kind, two zero bytes, payload size), a
 * payload, and for most kinds 32 bytes of HMAC-SHA256. docs/protocol.md has the table. Magic and
 * version stay where they are in every later version.
 */
#ifndef RB_RUNTIME_RENDEZVOUS_WIRE_H
#define RB_RUNTIME_RENDEZVOUS_WIRE_H

#include "base/wire.h"
#include "runtime/startup/bootstrap.h"

#define RB_RV_MAGIC 0x5a524252u /* "RBRZ" */
#define RB_RV_VERSION 3
#define RB_RV_HEAD_BYTES 12
#define RB_RV_MAC_BYTES 32
#define RB_RV_NONCE_BYTES 32
#define RB_RV_KEY_BYTES 32
#define RB_RV_FAIL_TEXT_MAX 400

#define RB_RV_HELLO_BYTES (RB_RV_HEAD_BYTES + RB_RV_NONCE_BYTES + 8)
#define RB_RV_CHALLENGE_BYTES RB_RV_HELLO_BYTES
#define RB_RV_PROOF_BYTES (RB_RV_HEAD_BYTES + 4 + 4 + 16 + 16 + 8 + 4 + RB_RV_MAC_BYTES)
#define RB_RV_TRANSCRIPT_BYTES (RB_RV_HELLO_BYTES + RB_RV_CHALLENGE_BYTES + RB_RV_PROOF_BYTES)
#define RB_RV_TABLE_HEAD_BYTES 12 /* round, first rank, count: then each blob's size and bytes. */
#define RB_RV_PAYLOAD_MAX (RB_RV_TABLE_HEAD_BYTES + 4 + RB_BLOB_BYTES_MAX)
#define RB_RV_MESSAGE_MAX (RB_RV_HEAD_BYTES + RB_RV_PAYLOAD_MAX + RB_RV_MAC_BYTES)
#define RB_RV_FAIL_BYTES_MAX (RB_RV_HEAD_BYTES + 8 + RB_RV_FAIL_TEXT_MAX + RB_RV_MAC_BYTES)

enum rb_rv_kind {
	RB_RV_HELLO = 1, /* Rank to root: nonce, whether it has a secret. */
	RB_RV_CHALLENGE, /* Root to rank: the same of the root. */
	RB_RV_PROOF,     /* Rank to root: rank, size, instance, job expected, process; proof. */
	RB_RV_WELCOME,   /* Root to rank: the job's nonce, its process; proof. */
	RB_RV_START,     /* Root to rank: all ranks are here. */
	RB_RV_GATHER,    /* Rank to root: round, its blob. */
	RB_RV_TABLE,     /* Root to rank: round, some ranks' blobs. */
	RB_RV_REFUSE,    /* Root to a process that is none of this job's: a reason, no proof. */
	RB_RV_FAIL,      /* Root to a rank that has proved itself: status, over whom, text. */
	RB_RV_LEAVE,     /* Rank to root: the same: why it gives up. */
};
#define RB_RV_KIND_COUNT 11

enum rb_rv_reason { RB_RV_REASON_SECRET = 1, RB_RV_REASON_VERSION = 2, RB_RV_REASON_JOB = 3 };

/* What the first 12 bytes say. */
enum rb_rv_verdict { RB_RV_GOOD, RB_RV_JUNK, RB_RV_OTHER_VERSION };
struct rb_rv_head {
	enum rb_rv_kind kind;
	uint32_t payload_bytes;
	uint32_t total_bytes; /* Head, payload and MAC. */
	uint8_t version;      /* Good to read also when the verdict is OTHER_VERSION. */
};
enum rb_rv_verdict rb_rv_head_read(const uint8_t bytes[RB_RV_HEAD_BYTES], struct rb_rv_head *head);

/* Opens a message in `bytes`: the cursor stands at its payload. */
struct rb_wire rb_rv_message_begin(uint8_t *bytes, size_t room_bytes, enum rb_rv_kind kind);
/* Writes the payload's size into the head; returns head and payload together. */
size_t rb_rv_message_end(uint8_t *bytes, const struct rb_wire *w);

/* HMAC-SHA256 over label (with its 0), a, b. */
void rb_rv_mac(const uint8_t key[RB_RV_KEY_BYTES], const char *label, const void *a, size_t a_bytes,
	       const void *b, size_t b_bytes, uint8_t mac[RB_RV_MAC_BYTES]);
bool rb_rv_mac_same(const uint8_t a[RB_RV_MAC_BYTES], const uint8_t b[RB_RV_MAC_BYTES]);

/* From the secret (none is a secret like another, which everybody knows) to the job's key. */
void rb_rv_key_make(const void *secret, size_t secret_bytes, uint8_t key[RB_RV_KEY_BYTES]);

/* The MAC of frame `sequence` in one direction of one connection. */
void rb_rv_frame_mac(const uint8_t session[RB_RV_KEY_BYTES], bool from_root, uint64_t sequence,
		     const uint8_t *frame, size_t frame_bytes, uint8_t mac[RB_RV_MAC_BYTES]);

#endif
