/*
 * rendezvous_inside.h -- the machine's insides, shared by its three files: rendezvous.c (the
 * machine and its connections), rendezvous_root.c (rank 0), rendezvous_rank.c (all others).
 */
#ifndef RB_RUNTIME_RENDEZVOUS_INSIDE_H
#define RB_RUNTIME_RENDEZVOUS_INSIDE_H

#include "base/clock.h" /* rb_deadline() only: time comes with events. */
#include "base/rng.h"
#include "runtime/startup/rendezvous.h"
#include "runtime/startup/rendezvous_wire.h"

#define NO_CONNECTION UINT32_MAX
#define IN_BYTES RB_RV_MESSAGE_MAX
#define OUT_BYTES (RB_RV_MESSAGE_MAX + RB_RV_FAIL_BYTES_MAX) /* The last word finds room. */
#define REPORTS_MAX 4                                        /* Most that one event leads to. */

/* Of a connection. */
enum phase {
	PHASE_FREE,
	PHASE_CONNECTING, /* Rank: the network has not answered yet. */
	PHASE_HELLO,      /* Root: waits for HELLO. */
	PHASE_CHALLENGE,  /* Rank: has sent HELLO, waits for CHALLENGE. */
	PHASE_PROOF,      /* Root: has sent CHALLENGE, waits for PROOF. */
	PHASE_WELCOME,    /* Rank: has sent PROOF, waits for WELCOME. */
	PHASE_MEMBER,     /* Both sides have proved themselves. */
	PHASE_LEAVING,    /* Root: refused; closes when its outbox is empty. */
};

struct connection {
	enum phase phase;
	uint32_t rank;           /* Of the peer, once MEMBER. */
	uint64_t since_ns;       /* When it was accepted, or when this attempt began. */
	uint64_t sent, received; /* Frames with a session's MAC, in each direction. */
	uint32_t table_next;     /* First rank whose blob has not been sent to, or come from, it. */
	uint32_t in_count, out_at, out_count; /* Bytes. */
	uint32_t transcript_bytes;
	bool peer_has_secret;
	uint64_t host; /* Of the peer, and its process there. */
	int32_t process;
	char address[RB_RV_ADDRESS_MAX];
	uint8_t nonce[RB_RV_NONCE_BYTES]; /* Ours. */
	uint8_t instance[16];             /* The peer's, at the root. */
	uint8_t session[RB_RV_KEY_BYTES];
	uint8_t transcript[RB_RV_TRANSCRIPT_BYTES]; /* HELLO, CHALLENGE, PROOF as they crossed. */
	uint8_t *in;                                /* IN_BYTES: at most one message. */
	uint8_t *out;                               /* OUT_BYTES. */
};

struct table {          /* The blobs of one exchange, by rank. */
	uint32_t round; /* Of the exchange in progress, from 1; 0: none yet. */
	uint32_t have_count, finished_count;
	uint32_t *have; /* The round whose blob this is. */
	uint32_t *size_bytes;
	uint8_t *blobs; /* RB_BLOB_BYTES_MAX each; pages that nobody writes cost nothing. */
};

struct queue {
	uint32_t capacity, head, count;
	struct rb_rv_action *items;
	uint32_t report_count;
	char reports[REPORTS_MAX][RB_RV_TEXT_MAX];
};

struct reason { /* Why somebody was turned away, or why we were: for the last word. */
	rubato_status status;
	uint32_t blames; /* The rank that it is about, + 1; 0: none. */
	char text[RB_RV_TEXT_MAX];
};

struct rb_rv {
	enum rb_rv_state state;
	uint32_t rank, rank_count;
	uint64_t now_ns, deadline_ns;
	bool has_secret, searches, listens;
	char root[256];
	uint8_t key[RB_RV_KEY_BYTES], job[16], instance[16];
	uint64_t host;
	int32_t process;
	struct rb_rng rng;
	uint32_t connection_count;
	struct connection *connections;
	uint8_t *buffers; /* Of the connections; pages that nobody writes cost nothing. */
	struct table table;
	struct queue queue;
	struct reason fail, refusal;
	uint64_t report_ns; /* When the next line about who is missing is due. */
	uint64_t retry_ns;  /* When to listen or connect again; UINT64_MAX: not planned. */
	uint64_t linger_ns; /* FAILING: until then. */
	/* Root. */
	uint32_t *member; /* Connection of each rank, or NO_CONNECTION. */
	uint32_t member_count, stranger_count, strangers_max, noise_count;
	uint64_t listen_until_ns;
	bool listening;
	bool left; /* A rank has given up: the next exchange fails with m->fail. */
	/* Others. */
	uint8_t job_expected[16]; /* Zeros: any. */
	uint64_t backoff_ns, handshake_ns;
	bool more, several, was_member;
	bool other; /* Some address of this round has done other than to refuse. */
};

void rb_rv_move(struct rb_rv *m, enum rb_rv_state next);
void rb_rv_act(struct rb_rv *m, enum rb_rv_act act, uint32_t connection);
void rb_rv_report(struct rb_rv *m, enum rb_log_level level, const char *format, ...)
	RB_PRINTF(3, 4);
void rb_rv_reason_set(struct reason *reason, rubato_status status, const char *format, ...)
	RB_PRINTF(3, 4);
/* The same of a rank that is lost, or gave up (over `blames`, if that is not 0). */
void rb_rv_reason_peer(struct reason *reason, uint32_t rank, uint32_t blames, const char *format,
		       ...) RB_PRINTF(4, 5);
void rb_rv_fail_act(struct rb_rv *m); /* Ends the machine with m->fail. */
/* FAIL or LEAVE, with the reason. */
void rb_rv_put_reason(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind,
		      const struct reason *reason);
/* The reason in such a message, fit to be printed. */
void rb_rv_get_reason(const struct rb_rv *m, struct connection *c, struct reason *reason);

static inline uint32_t connection_number(const struct rb_rv *m, const struct connection *c)
{
	return (uint32_t)(c - m->connections);
}

/* A message into the outbox, in two halves; `session`: with the connection's running MAC. */
struct rb_wire rb_rv_put_begin(struct connection *c, enum rb_rv_kind kind);
void rb_rv_put_end(struct rb_rv *m, struct connection *c, const struct rb_wire *w, bool session);
uint8_t *rb_rv_put_at(struct connection *c); /* Where the message being put starts. */
void rb_rv_session_make(struct rb_rv *m, struct connection *c);
void rb_rv_transcript_add(struct connection *c, const uint8_t *bytes, size_t size_bytes);
/* Whether the frame in c->in carries the right MAC; counts it. */
bool rb_rv_frame_good(struct rb_rv *m, struct connection *c);
/* A cursor over the payload of the message in c->in. */
struct rb_wire rb_rv_payload(struct connection *c);
void rb_rv_connection_reset(struct connection *c, enum phase phase, uint64_t now_ns);

/* The two roles. `got` is told of one whole message; `bad` of bytes that are none. */
void rb_rv_root_step(struct rb_rv *m, const struct rb_rv_event *e);
void rb_rv_root_got(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind);
void rb_rv_root_bad(struct rb_rv *m, struct connection *c, enum rb_rv_verdict verdict);
uint64_t rb_rv_root_wake_ns(const struct rb_rv *m);
void rb_rv_rank_step(struct rb_rv *m, const struct rb_rv_event *e);
void rb_rv_rank_got(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind);
void rb_rv_rank_bad(struct rb_rv *m, struct connection *c, const struct rb_rv_head *head,
		    enum rb_rv_verdict verdict);
uint64_t rb_rv_rank_wake_ns(const struct rb_rv *m);

#endif
