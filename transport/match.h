/*
 * match.h -- matching of messages and receives by (peer, tag), shared by the backends.
 *
 * For each peer two hashed lists: receives that wait for their message, and messages that came
 * first. A message that came first is the backend's object, which begins with struct rb_arrival;
 * the matcher only links it. No allocation here; lookups are O(1) while few are open, so that an
 * 8-byte exchange costs tens of nanoseconds, and where messages come in the order of receives.
 */
#ifndef RB_TRANSPORT_MATCH_H
#define RB_TRANSPORT_MATCH_H

#include "transport/transport.h"

#define RB_MATCH_BUCKETS 16 /* Per peer; a power of 2. */

struct rb_arrival {
	struct rb_arrival *next;
	struct rb_tag tag;
	struct rb_signature signature;
};

struct rb_match_peer {
	struct rb_request *receives[RB_MATCH_BUCKETS]; /* The oldest. */
	struct rb_request *newest[RB_MATCH_BUCKETS];
	struct rb_arrival *arrivals[RB_MATCH_BUCKETS];
	uint32_t arrival_count;
};

static inline uint32_t rb_match_bucket(struct rb_tag tag)
{
	uint64_t mixed = (tag.step + tag.call * 0xbf58476d1ce4e5b9u) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(mixed >> 60) & (RB_MATCH_BUCKETS - 1);
}

_Static_assert(RB_MATCH_BUCKETS == 16, "rb_match_bucket takes four bits");

static inline void rb_match_unlink(struct rb_match_peer *peer, struct rb_request *request)
{
	uint32_t bucket = rb_match_bucket(request->tag);

	RB_QUEUE_REMOVE(peer->receives[bucket], peer->newest[bucket], request);
	request->next = NULL;
	request->previous = NULL;
}

/* The receive that waits for `tag`, taken off its list, or NULL. */
static inline struct rb_request *rb_match_receive(struct rb_match_peer *peer, struct rb_tag tag)
{
	uint32_t bucket = rb_match_bucket(tag);
	struct rb_request *at = peer->receives[bucket];

	while (at != NULL && !rb_tag_same(at->tag, tag))
		at = at->next;
	if (at == NULL)
		return NULL;
	RB_QUEUE_REMOVE(peer->receives[bucket], peer->newest[bucket], at);
	at->next = at->previous = NULL;
	return at;
}

/* The arrival that waits with `tag`, taken off its list, or NULL. */
static inline struct rb_arrival *rb_match_arrival(struct rb_match_peer *peer, struct rb_tag tag)
{
	struct rb_arrival **link = &peer->arrivals[rb_match_bucket(tag)];
	struct rb_arrival *at;

	if (peer->arrival_count == 0)
		return NULL;
	while (*link != NULL && !rb_tag_same((*link)->tag, tag))
		link = &(*link)->next;
	at = *link;
	if (at != NULL) {
		*link = at->next;
		at->next = NULL;
		peer->arrival_count--;
	}
	return at;
}

static inline void rb_match_add_receive(struct rb_match_peer *peer, struct rb_request *request)
{
	uint32_t bucket = rb_match_bucket(request->tag);

	RB_QUEUE_ADD(peer->receives[bucket], peer->newest[bucket], request);
}

void rb_match_add_arrival(struct rb_match_peer *peer, struct rb_arrival *arrival);
/* Whether an arrival waits with `tag`; it stays. */
bool rb_match_has_arrival(const struct rb_match_peer *peer, struct rb_tag tag);
/* Takes a receive off its list (cancel); false when it is not there. */
bool rb_match_remove_receive(struct rb_match_peer *peer, struct rb_request *request);
/* Takes an arrival off its list; it must be there. */
void rb_match_remove_arrival(struct rb_match_peer *peer, struct rb_arrival *arrival);
/* Visits the arrivals of rank `rank` until a visit returns true; whether one did. */
bool rb_match_visit(const struct rb_match_peer *peer, uint32_t rank, rb_unmatched_visit *visit,
		    void *arg);
/* Any receive or arrival that is left, taken off, or NULL: to empty a lost peer. */
struct rb_request *rb_match_any_receive(struct rb_match_peer *peer);
struct rb_arrival *rb_match_any_arrival(struct rb_match_peer *peer);

#endif
