/*
 * match.c -- see match.h. At most one message of a tag is on its way, so order among equal tags
 * has no meaning. Within a bucket the oldest receive comes first: of many that are open messages
 * come mostly in their order. Of arrivals, which credit bounds, the newest does.
 */
#include "transport/match.h"

void rb_match_add_arrival(struct rb_match_peer *peer, struct rb_arrival *arrival)
{
	struct rb_arrival **first = &peer->arrivals[rb_match_bucket(arrival->tag)];

	arrival->next = *first;
	*first = arrival;
	peer->arrival_count++;
}

bool rb_match_has_arrival(const struct rb_match_peer *peer, struct rb_tag tag)
{
	const struct rb_arrival *at = peer->arrivals[rb_match_bucket(tag)];

	while (at != NULL && !rb_tag_same(at->tag, tag))
		at = at->next;
	return at != NULL;
}

void rb_match_remove_arrival(struct rb_match_peer *peer, struct rb_arrival *arrival)
{
	struct rb_arrival **link = &peer->arrivals[rb_match_bucket(arrival->tag)];

	while (*link != arrival)
		link = &(*link)->next;
	*link = arrival->next;
	arrival->next = NULL;
	peer->arrival_count--;
}

bool rb_match_remove_receive(struct rb_match_peer *peer, struct rb_request *request)
{
	struct rb_request *at = peer->receives[rb_match_bucket(request->tag)];

	while (at != NULL && at != request)
		at = at->next;
	if (at == NULL)
		return false;
	rb_match_unlink(peer, at);
	return true;
}

struct rb_request *rb_match_any_receive(struct rb_match_peer *peer)
{
	for (uint32_t i = 0; i < RB_MATCH_BUCKETS; i++) {
		struct rb_request *request = peer->receives[i];

		if (request != NULL) {
			rb_match_unlink(peer, request);
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
