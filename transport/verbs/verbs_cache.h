/*
 * verbs_cache.h -- registrations of plain memory that are kept from one message to the next.
 *
 * A buffer that is used a second time stays registered, until its memory changes (verbs_watch.h),
 * room is needed, or close. It is found by where it begins. Its key goes to a message only at a
 * moment at which the memory is known to be what was registered; what changes under a message is
 * its owner's fault, and goes to the old pages, which the registration holds, never to anybody
 * else's. Memory that changes often is left alone for a while, what cannot be watched for longer:
 * it is registered for one message.
 *
 * A cancelled receive whose key must go takes its registration out of the cache first; where other
 * messages use it as well, the key stays, as a region's does (verbs_large.c).
 */
#ifndef RB_TRANSPORT_VERBS_CACHE_H
#define RB_TRANSPORT_VERBS_CACHE_H

#include "transport/verbs/verbs.h"

struct rb_verbs_cached {
	struct ibv_mr *mrs[RB_VERBS_RAILS_MAX]; /* Of the first `rails`. */
	uint8_t *base;
	size_t bytes;
	int access;
	uint32_t rails;
	uint32_t users;               /* Messages. */
	bool listed;                  /* Else it ends with its last user. */
	struct rb_verbs_cached *next; /* In its bucket; of the free ones. */
	struct rb_verbs_cached *newer, *older;
};

/* NULL: register it for one message. Else it is the caller's until it is given back. */
struct rb_verbs_cached *rb_verbs_cache_find(struct rb_verbs *vb, void *base, size_t bytes,
					    uint32_t rails, int access);
static inline struct rb_verbs_cached *rb_verbs_cache_take(struct rb_verbs *vb, void *base,
							  size_t bytes, uint32_t rails, int access)
{
	return vb->cache_bytes == 0 ? NULL : rb_verbs_cache_find(vb, base, bytes, rails, access);
}
/* False: its registration could not be ended. */
bool rb_verbs_cache_give(struct rb_verbs *vb, struct rb_verbs_cached *cached);
/* Nobody else's, now and from now on: giving it back ends it. False: others use it. NULL: true. */
bool rb_verbs_cache_claim(struct rb_verbs *vb, struct rb_verbs_cached *cached);
/* What nobody uses goes. False: there is no such. */
bool rb_verbs_cache_shrink(struct rb_verbs *vb);
/* What has changed, and nobody uses. */
void rb_verbs_cache_tick(struct rb_verbs *vb);
void rb_verbs_cache_close(struct rb_verbs *vb);

#endif
