/*
 * match.c -- see match.h. Within a bucket the newest comes first: at most one message of a tag is
 * on its way, so order among equal tags has no meaning, and recent posts are the likely ones.
 */
#include "transport/match.h"

static inline uint32_t bucket_of(struct rb_tag tag)
{
	uint64_t mixed = (tag.step + tag.call * 0xbf58476d1ce4e5b9u) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(mixed >> 60) & (RB_MATCH_BUCKETS - 1);
}

_Static_assert(RB_MATCH_BUCKETS == 16, "bucket_of takes four bits");

static void unlink_receive(struct rb_match_peer *peer, struct rb_request *request)
{
	if (request->previous != NULL)
		request->previous->next = request->next;
	else
		peer->receives[bucket_of(request->tag)] = request->next;
	if (request->next != NULL)
		request->next->previous = request->previous;
	request->next = NULL;
	request->previous = NULL;
}

struct rb_request *rb_match_receive(struct rb_match_peer *peer, struct rb_tag tag)
{
	struct rb_request *at = peer->receives[bucket_of(tag)];

	while (at != NULL && !rb_tag_same(at->tag, tag))
		at = at->next;
	if (at != NULL)
		unlink_receive(peer, at);
	return at;
}

struct rb_arrival *rb_match_arrival(struct rb_match_peer *peer, struct rb_tag tag)
{
	struct rb_arrival **link = &peer->arrivals[bucket_of(tag)];
	struct rb_arrival *at;

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

void rb_match_add_receive(struct rb_match_peer *peer, struct rb_request *request)
{
	struct rb_request **first = &peer->receives[bucket_of(request->tag)];

	request->previous = NULL;
	request->next = *first;
	if (*first != NULL)
		(*first)->previous = request;
	*first = request;
}

void rb_match_add_arrival(struct rb_match_peer *peer, struct rb_arrival *arrival)
{
	struct rb_arrival **first = &peer->arrivals[bucket_of(arrival->tag)];

	arrival->next = *first;
	*first = arrival;
	peer->arrival_count++;
}

bool rb_match_remove_receive(struct rb_match_peer *peer, struct rb_request *request)
{
	struct rb_request *at = peer->receives[bucket_of(request->tag)];

	while (at != NULL && at != request)
		at = at->next;
	if (at == NULL)
		return false;
	unlink_receive(peer, at);
	return true;
}

struct rb_request *rb_match_any_receive(struct rb_match_peer *peer)
{
	for (uint32_t i = 0; i < RB_MATCH_BUCKETS; i++) {
		struct rb_request *request = peer->receives[i];

		if (request != NULL) {
			unlink_receive(peer, request);
			return request;
		}
	}
	return NULL;
}

struct rb_arrival *rb_match_any_arrival(struct rb_match_peer *peer)
{
	for (uint32_t i = 0; i < RB_MATCH_BUCKETS; i++) {
		struct rb_arrival *arrival = peer->arrivals[i];

		if (arrival != NULL) {
			peer->arrivals[i] = arrival->next;
			arrival->next = NULL;
			peer->arrival_count--;
			return arrival;
		}
	}
	return NULL;
}

bool rb_match_visit(const struct rb_match_peer *peer, uint32_t rank, rb_unmatched_visit *visit,
		    void *arg)
{
	for (uint32_t b = 0; b < RB_MATCH_BUCKETS && peer->arrival_count > 0; b++)
		for (const struct rb_arrival *at = peer->arrivals[b]; at != NULL; at = at->next)
			if (visit(arg, rank, at->tag, &at->signature))
				return true;
	return false;
}
