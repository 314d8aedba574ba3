/*
 * ends.h -- two ends of the verbs transport on mock devices, in one thread, which moves both:
 * messages of each kind, and what must be true when nothing is under way any more.
 */
#ifndef TESTS_RUNTIME_VERBS_ENDS_H
#define TESTS_RUNTIME_VERBS_ENDS_H

#include <pthread.h>

#include "transport/verbs/verbs_link.h"

#define LIMIT_NS 60000000000u
#define LARGE 300001u
#define RANKS_MAX 1100u
#define VAST (4u << 20) /* More pieces than are under way at a time. */

extern struct ends {
	struct rb_endpoint *ep[2];
	uint8_t bytes[2][RB_ADDRESS_BYTES_MAX];
	size_t size_bytes[RANKS_MAX];
	uint32_t ranks; /* Of the job, of which two are there; 0: no others. */
	pthread_barrier_t barrier;
	uint64_t call;        /* Of the next message's tag. */
	uint64_t resend_ns;   /* Or 0. */
	uint64_t cache_bytes; /* Or 0: nothing is kept. */
	uint64_t stale;       /* Writes by keys that were taken back are right: so many, or more. */
} ends;
extern uint8_t sent[VAST], got[VAST];

void ends_open(uint32_t rails, uint64_t seed);
/* In good order, and nothing was done that must not be. */
void ends_close(void);
struct rb_verbs *verbs_of(uint32_t rank);
/* The other rank, as that one sees it. */
struct rb_verbs_peer *peer_of(uint32_t rank);
void move(void);
/* Moves both until it is so. */
void await(bool (*is_so)(void *arg), void *arg, const char *what);
bool is_done(void *request);
bool nothing_is_posted(void *unused);
bool all_live(void *unused);
bool first_has_lost(void *unused);

/* For a message from rank `from`, or to it. */
void request_set(struct rb_request *request, uint32_t from, void *buffer, size_t bytes);
/* From rank `from`, the receive first or the send. */
void message(uint32_t from, size_t bytes, bool receive_first);
/* Whatever was spent is back, nothing waits, every slot is free. */
void all_rests(const char *what);
/* Each kind of message, by what it may leave. */
void messages_all(const char *when);

#endif
