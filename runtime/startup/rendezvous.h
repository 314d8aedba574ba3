/*
 * rendezvous.h -- how the processes of a job find each other, as a pure machine.
 *
 * Events go in, actions come out; no socket, clock, lock or chance inside. rendezvous_socket.c
 * carries the actions out for real, tests/runtime/startup/rendezvous_world.c in virtual time. The
 * caller gives one event, then takes all actions, then gives the next. Bytes to be sent wait in an
 * outbox per connection: it is sent as far as it goes, and SENT says how far.
 *
 * Rank 0 (the root) listens; each other rank holds one connection, number 0, to it.
 */
#ifndef RB_RUNTIME_RENDEZVOUS_H
#define RB_RUNTIME_RENDEZVOUS_H

#include "base/log.h"
#include "runtime/startup/bootstrap.h"

#define RB_RV_RANKS_MAX 65536
#define RB_RV_STRANGERS_MAX 64 /* Connections at the root that have proved nothing yet. */
#define RB_RV_ADDRESS_MAX 80
#define RB_RV_TEXT_MAX 440
#define RB_RV_RANDOM_BYTES 32

/* Times, in ns. All guesses, long against a round trip and short against a person's patience. */
#define RB_RV_REPORT_NS UINT64_C(5000000000)    /* Between lines about who is missing. */
#define RB_RV_HANDSHAKE_NS UINT64_C(5000000000) /* For a connection to prove itself. */
#define RB_RV_ATTEMPT_NS UINT64_C(750000000)    /* The first at one of several addresses. */
#define RB_RV_GRACE_NS UINT64_C(250000000)      /* A stranger younger than this is not evicted. */
#define RB_RV_BACKOFF_MIN_NS UINT64_C(10000000)
#define RB_RV_BACKOFF_MAX_NS UINT64_C(500000000)
#define RB_RV_LINGER_NS UINT64_C(250000000) /* For telling the others why we give up. */
#define RB_RV_WORD_NS                                                                              \
	UINT64_C(500000000) /* For the root's word, after the deadline or a failure. */
#define RB_RV_LISTEN_NS UINT64_C(500000000) /* For a port in use to become free. */

#define RB_RV_STATES(X)                                                                            \
	X(IDLE)       /* Nothing asked for yet. */                                                 \
	X(JOINING)    /* Root: ranks arrive. Others: looking for the root, proving, waiting. */    \
	X(STARTING)   /* Root only: START is on its way to all. */                                 \
	X(READY)      /* All are here; no exchange in progress. */                                 \
	X(EXCHANGING) /* An allgather. */                                                          \
	X(FAILING)    /* Telling the others, or the root, why. */                                  \
	X(FAILED)

enum rb_rv_state {
#define X(name) RB_RV_##name,
	RB_RV_STATES(X)
#undef X
};
const char *rb_rv_state_name(enum rb_rv_state state);

enum rb_rv_event_kind {
	RB_RV_EV_OPEN,          /* Begin; deadline_ns. */
	RB_RV_EV_LISTENING,     /* Root: strangers may come. */
	RB_RV_EV_LISTEN_FAILED, /* status, text; retry: worth trying again; more: until the
				   deadline. */
	RB_RV_EV_ACCEPTED, /* Root: connection (a number not in use), text (its address), random. */
	RB_RV_EV_CONNECTING,     /* Others: the attempt is under way; more. */
	RB_RV_EV_CONNECTED,      /* Others: text (the address reached), random. */
	RB_RV_EV_CONNECT_FAILED, /* status, text; retry, more. */
	RB_RV_EV_RECEIVED,       /* connection, bytes: at most rb_rv_room(). */
	RB_RV_EV_SENT,           /* connection, size_bytes of its outbox. */
	RB_RV_EV_CLOSED,         /* connection: by the peer or the network; its number is free.
				    text: what else is known of it; NULL: nothing. */
	RB_RV_EV_TICK,           /* rb_rv_wake_ns() has come. */
	RB_RV_EV_GATHER,         /* An allgather: bytes (this rank's blob), deadline_ns. */
	RB_RV_EV_GIVE_UP,        /* Start-up has failed here, in between: text. Ends with FAIL. */
};

struct rb_rv_event {
	enum rb_rv_event_kind kind;
	uint32_t connection;
	uint64_t now_ns, deadline_ns;
	const void *bytes;
	size_t size_bytes;
	const char *text;
	uint32_t blames; /* GIVE_UP: over this rank, + 1; 0: nobody. */
	rubato_status status;
	bool retry;   /* Not a mistake of anybody: try again, later. */
	bool more;    /* Further addresses of the root remain to be tried at once. */
	bool refused; /* CONNECT_FAILED: nobody listens there. */
	uint8_t random[RB_RV_RANDOM_BYTES];
};

enum rb_rv_act {
	RB_RV_ACT_LISTEN,
	RB_RV_ACT_UNLISTEN,
	RB_RV_ACT_CONNECT, /* Try the next address of the root. */
	RB_RV_ACT_SEND,    /* The connection's outbox has bytes. */
	RB_RV_ACT_CLOSE,   /* The connection; its number is free from here on. */
	RB_RV_ACT_REPORT,  /* level, text: a line for people. */
	RB_RV_ACT_DONE,    /* Of OPEN or GATHER. */
	RB_RV_ACT_FAIL,    /* status, text, blames. Terminal: close everything. */
};

struct rb_rv_action {
	enum rb_rv_act act;
	uint32_t connection;
	rubato_status status;
	enum rb_log_level level;
	const char *text; /* Until the next event. */
	uint32_t blames;  /* The rank over which, + 1; 0: nobody. */
};

struct rb_rv_options {
	uint32_t rank, rank_count;
	const char *root; /* For texts; copied. */
	const void *secret;
	size_t secret_bytes;
	bool searches;   /* Other jobs may listen at the root's addresses: no refusal is final. */
	bool listens;    /* The root does so before anybody looks for it. */
	uint8_t job[16]; /* Root: the job's nonce. Others: the one expected, or zeros. */
	uint8_t instance[16];   /* Drawn by this process: tells a reconnect from a namesake. */
	uint32_t strangers_max; /* Root: at once; 0: RB_RV_STRANGERS_MAX. */
	uint64_t host;          /* rb_process_host() and getpid(): told to the others. */
	int32_t process;
};

struct rb_rv; /* The machine. */

RB_NODISCARD rubato_status rb_rv_init(const struct rb_rv_options *options, struct rb_rv **out);
void rb_rv_fini(struct rb_rv *m); /* NULL is fine. Wipes keys. */

void rb_rv_step(struct rb_rv *m, const struct rb_rv_event *event);
bool rb_rv_next(struct rb_rv *m, struct rb_rv_action *action);

uint64_t rb_rv_wake_ns(const struct rb_rv *m); /* When TICK is due; UINT64_MAX: never. */
bool rb_rv_accepts(const struct rb_rv *m, uint64_t now_ns);
size_t rb_rv_room(const struct rb_rv *m, uint32_t connection); /* Bytes it may be given now. */
size_t rb_rv_outbox(const struct rb_rv *m, uint32_t connection, const uint8_t **bytes);
uint32_t rb_rv_connection_count(const struct rb_rv *m); /* Numbers are below this. */
/* The number of the process at the other end, where it is on this host and has proved itself; else
 * 0. Its end is to be told as CLOSED, whoever holds its sockets open. */
int32_t rb_rv_process(const struct rb_rv *m, uint32_t connection);

enum rb_rv_state rb_rv_state_of(const struct rb_rv *m);
const uint8_t *rb_rv_job(const struct rb_rv *m);                            /* 16 bytes. */
const void *rb_rv_blob(const struct rb_rv *m, uint32_t rank, size_t *size); /* After DONE. */
bool rb_rv_valid(const struct rb_rv *m);

#endif
