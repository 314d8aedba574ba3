/*
 * verbs_spare.h -- TCP to a peer to which no rail is left: verbs_tcp.c and verbs_spare.c.
 */
#ifndef RB_TRANSPORT_VERBS_SPARE_H
#define RB_TRANSPORT_VERBS_SPARE_H

#include "transport/verbs/verbs.h"

#define RB_VERBS_NONCE_BYTES 16u
#define RB_VERBS_PROOF_BYTES 32u

/* What this end's connection to the other one's listener is at. */
enum rb_verbs_call {
	RB_VERBS_CALL_NONE,
	RB_VERBS_CALL_CONNECTS,
	RB_VERBS_CALL_HEARS, /* The nonce, */
	RB_VERBS_CALL_ASKS,  /* and the answer, are to come. */
	RB_VERBS_CALL_OPEN,
};

/* That this rank gives up, before both have met. */
enum rb_verbs_farewell { RB_VERBS_FAREWELL_NONE, RB_VERBS_FAREWELL_OWED, RB_VERBS_FAREWELL_SAID };

struct rb_verbs_spare {
	struct rb_verbs_peer *peer;
	int out_fd, in_fd; /* What this end sends; what the other one sends. -1: none yet. */
	enum rb_verbs_call call;
	/* While it is being made: */
	uint32_t way, rounds, ticks; /* The next address; all were tried so often; this one. */
	bool silent, refused;        /* Somebody in this round did not answer; hung up. */
	bool rests;                  /* Until the clock ticks. */
	uint32_t patience;           /* Rounds in which somebody was silent. */
	size_t got;
	uint8_t back[RB_VERBS_PROOF_BYTES];
	uint8_t theirs[RB_VERBS_NONCE_BYTES], ours[RB_VERBS_NONCE_BYTES];
	char last[64];                   /* Why the last address failed; */
	char why[RB_VERBS_REASON_BYTES]; /* and the last rail. */
	enum rb_verbs_farewell farewell;
	/* Frames. */
	int error;                /* The connection has failed. */
	bool failed;              /* So the peer is lost, when what had come is taken. */
	bool full;                /* It is watched for room. */
	bool heard;               /* A frame has come. */
	bool leaving, leave_owed; /* The stream goes to a rail when LEAVE is answered. */
	bool left_owed;           /* Such an answer: */
	uint32_t leave, left;     /* ours, theirs. */
	size_t filled, sent;      /* Of `out`. */
	size_t have;              /* Of `in`. */
	uint8_t out[RB_VERBS_TCP_BYTES], in[RB_VERBS_TCP_BYTES];
};

#define RB_VERBS_WAYS_MAX 4u

struct rb_verbs_ways { /* By which a rank is reached over TCP. */
	uint16_t port;
	uint8_t count; /* 0: it does not listen. */
	struct rb_verbs_way {
		bool is_ipv6;
		uint8_t bytes[16];
	} each[RB_VERBS_WAYS_MAX];
};

/* ---- Of use to the others ---- */

/* verbs_tcp.c */
void rb_verbs_listener_close(struct rb_verbs *vb);
void rb_verbs_listener_tick(struct rb_verbs *vb);
void rb_verbs_listener_event(struct rb_verbs *vb, uint32_t what);
/* This rank's, in its address; a peer's, out of that: false, malformed. */
void rb_verbs_ways_put(const struct rb_verbs *vb, struct rb_wire *w);
bool rb_verbs_ways_get(struct rb_wire *w, struct rb_verbs_ways *ways);
/* Those of `rank`; `here`: it is of this machine. */
void rb_verbs_ways_keep(struct rb_verbs *vb, uint32_t rank, const struct rb_verbs_ways *ways,
			bool here);
/* None where one of both does not listen. */
const struct rb_verbs_ways *rb_verbs_ways_to(const struct rb_verbs *vb, uint32_t rank);

/* verbs_spare.c: while `by_tcp` is set. */
bool rb_verbs_spare_can(const struct rb_verbs *vb, const struct rb_verbs_peer *peer);
/* Sets it. False: no memory. */
bool rb_verbs_spare_begin(struct rb_verbs *vb, struct rb_verbs_peer *peer, const char *why);
/* Clears it: a link lives. */
void rb_verbs_spare_end(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_spare_opened(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* The stream and writes may go there, but for what is to be done again. */
bool rb_verbs_spare_flows(const struct rb_verbs_peer *peer);
/* These are false where there is no room now. What is not of the stream; */
bool rb_verbs_spare_say(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			const struct rb_verbs_head *head, const void *payload, size_t bytes);
/* of it; */
bool rb_verbs_spare_stream(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			   const struct rb_verbs_head *head, uint8_t message, const void *payload,
			   size_t bytes);
/* all that is left of a flight; */
bool rb_verbs_spare_write(struct rb_verbs *vb, struct rb_verbs_flight *flight);
/* what a failed link did not bring over: it changes as parts of it leave. */
bool rb_verbs_spare_redo(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			 struct rb_verbs_entry *entry);
/* A link was greeted, and is to live; or will not. */
void rb_verbs_spare_leave(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_spare_stay(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Of a peer that has a spare way, whether or not it is in use: whatever can go on. */
void rb_verbs_spare_step(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_spare_tick(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* One of the descriptors that are watched for WATCH_LISTENER to WATCH_IN. */
void rb_verbs_spare_event(struct rb_verbs *vb, uint32_t what);
/* Takes some of what is here already. False: there is nothing. */
bool rb_verbs_spare_look(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* One of both directions is not connected, or has something to say. */
bool rb_verbs_spare_mends(const struct rb_verbs_peer *peer);
/* The peer's machine does not have all that was sent. */
bool rb_verbs_spare_owes(const struct rb_verbs_peer *peer);
/* The peer, with which there is nothing over TCP yet, is to be told that this rank gives up; */
void rb_verbs_farewell_owe(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* is told, as are all others, if they answer in time. */
void rb_verbs_farewells(struct rb_verbs *vb, uint64_t until_ns);
/* Nothing comes or leaves any more. */
void rb_verbs_spare_shut(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_spare_free(struct rb_verbs *vb, struct rb_verbs_peer *peer);

/* ---- To each other ---- */

/* verbs_tcp.c */
/* Connects to the peer's next address; what fails is tried again by the step, or loses it. */
void rb_verbs_call(struct rb_verbs *vb, struct rb_verbs_spare *spare);
/* Whatever has come of it, while it is not open. */
void rb_verbs_call_event(struct rb_verbs *vb, struct rb_verbs_spare *spare);
void rb_verbs_call_tick(struct rb_verbs *vb, struct rb_verbs_spare *spare);
void rb_verbs_fd_close(int *fd);
bool rb_verbs_fd_watch(struct rb_verbs *vb, int how, int fd, uint32_t events, uint32_t what);
static inline bool rb_verbs_is_open(const struct rb_verbs_spare *spare)
{
	return spare->call == RB_VERBS_CALL_OPEN;
}

/* verbs_spare.c */
/* Of a peer, made when there is none yet; NULL: no memory. */
struct rb_verbs_spare *rb_verbs_spare_of(struct rb_verbs_peer *peer);
/* Neither way goes on: the peer is lost, unless what had come, by rails too, says that it has
 * left. */
void rb_verbs_spare_failed(struct rb_verbs *vb, struct rb_verbs_spare *spare, const char *what);

#endif
