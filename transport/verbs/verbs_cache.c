/* verbs_cache.c -- registrations of plain memory that are kept: verbs_cache.h. */
#include "transport/verbs/verbs_cache.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/rng.h"
#include "transport/verbs/verbs_payload.h"
#include "transport/verbs/verbs_watch.h"

#define ENTRIES 1024u
#define BUCKETS 1024u     /* A power of 2. */
#define SEEN 4096u        /* Likewise: buffers that are known to have been used. */
#define PASS_CHANGED 15u  /* Guess: so often it is passed over when it has changed, */
#define PASS_REFUSED 255u /* or cannot be kept. */

struct seen {
	uintptr_t base;
	uint32_t pass; /* So often it is not kept. */
};

struct rb_verbs_cache {
	struct rb_verbs_watch *watch;
	struct rb_verbs_cached *free;
	struct rb_verbs_cached *newest, *oldest; /* Of those that are listed. */
	size_t bytes;                            /* Of all rails'. */
	struct {
		uint64_t hits, kept, changed, evicted, refused;
	} counts;
	struct rb_verbs_cached *buckets[BUCKETS];
	struct seen seen[SEEN];
	struct rb_verbs_cached entries[ENTRIES]; /* Each has the watch's range of its index. */
};

static uint32_t index_of(const struct rb_verbs_cache *cache, const struct rb_verbs_cached *cached)
{
	return (uint32_t)(cached - cache->entries);
}

static struct rb_verbs_cached **bucket_of(struct rb_verbs_cache *cache, const void *base)
{
	return &cache->buckets[rb_mix((uintptr_t)base) & (BUCKETS - 1)];
}

static struct seen *seen_of(struct rb_verbs_cache *cache, const void *base)
{
	return &cache->seen[rb_mix((uintptr_t)base) & (SEEN - 1)];
}

static void pass_over(struct rb_verbs_cache *cache, const void *base, uint32_t times)
{
	*seen_of(cache, base) = (struct seen) { (uintptr_t)base, times };
}

/* ---- The list ---- */

static void list(struct rb_verbs_cache *cache, struct rb_verbs_cached *cached)
{
	struct rb_verbs_cached **bucket = bucket_of(cache, cached->base);

	cached->listed = true;
	cached->next = *bucket;
	*bucket = cached;
	cached->newer = NULL;
	cached->older = cache->newest;
	*(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = cached;
	cache->newest = cached;
}

static void unlist(struct rb_verbs_cache *cache, struct rb_verbs_cached *cached)
{
	struct rb_verbs_cached **at = bucket_of(cache, cached->base);

	while (*at != cached)
		at = &(*at)->next;
	*at = cached->next;
	*(cached->newer != NULL ? &cached->newer->older : &cache->newest) = cached->older;
	*(cached->older != NULL ? &cached->older->newer : &cache->oldest) = cached->newer;
	cached->listed = false;
}

/* One that is not listed, and nobody uses. False: a registration stays. */
static bool drop(struct rb_verbs *vb, struct rb_verbs_cached *cached)
{
	struct rb_verbs_cache *cache = vb->cache;
	bool gone = true;

	for (uint32_t i = 0; i < cached->rails; i++)
		if (cached->mrs[i] != NULL)
			gone &= rb_verbs_mr_drop(vb, &vb->rails[i], cached->mrs[i]);
	memset(cached->mrs, 0, sizeof(cached->mrs));
	cache->bytes -= cached->bytes * cached->rails;
	cached->next = cache->free;
	cache->free = cached;
	return gone;
}

/* Nobody finds it any more. */
static void forget(struct rb_verbs *vb, struct rb_verbs_cached *cached)
{
	unlist(vb->cache, cached);
	rb_verbs_watch_end(vb->cache->watch, index_of(vb->cache, cached));
	if (cached->users == 0)
		(void)drop(vb, cached);
}

/* What has changed. */
static void sift(struct rb_verbs *vb)
{
	struct rb_verbs_cache *cache = vb->cache;
	struct rb_verbs_cached *older;

	for (struct rb_verbs_cached *at = cache->newest; at != NULL; at = older) {
		older = at->older;
		if (!rb_verbs_watch_changed(cache->watch, index_of(cache, at)))
			continue;
		cache->counts.changed++;
		pass_over(cache, at->base, PASS_CHANGED);
		forget(vb, at);
	}
}

/* Until so many bytes more are allowed, and there is a free entry. False: all are in use. */
static bool evict(struct rb_verbs *vb, size_t bytes)
{
	struct rb_verbs_cache *cache = vb->cache;
	struct rb_verbs_cached *newer;

	if (bytes > vb->cache_bytes)
		return false;
	for (struct rb_verbs_cached *at = cache->oldest;
	     at != NULL && (cache->free == NULL || cache->bytes + bytes > vb->cache_bytes);
	     at = newer) {
		newer = at->newer;
		if (at->users > 0)
			continue;
		cache->counts.evicted++;
		forget(vb, at);
	}
	return cache->free != NULL && cache->bytes + bytes <= vb->cache_bytes;
}

/* ---- Opening ---- */

/* Locked memory is needed for other things, too. */
static size_t limit_of(size_t bytes)
{
	struct rlimit locked;

	if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0 || locked.rlim_cur == RLIM_INFINITY ||
	    locked.rlim_cur / 2 > bytes)
		return bytes;
	return (size_t)locked.rlim_cur / 2;
}

/* When the first long message of plain memory leaves or comes. */
static void cache_open(struct rb_verbs *vb)
{
	struct rb_verbs_cache *cache = calloc(1, sizeof(*cache));
	rubato_status status;

	status = cache == NULL ? RB_FAIL(RUBATO_ERR_MEMORY, "no memory for them")
			       : rb_verbs_watch_open(ENTRIES, &cache->watch);
	if (status != RUBATO_OK) {
		RB_LOG(RB_LOG_INFO, "verbs: registrations of plain memory are not kept: %s",
		       rubato_error_text());
		free(cache);
		vb->cache_bytes = 0;
		return;
	}
	for (uint32_t i = ENTRIES; i-- > 0;) {
		cache->entries[i].next = cache->free;
		cache->free = &cache->entries[i];
	}
	vb->cache_bytes = limit_of(vb->cache_bytes);
	vb->cache = cache;
	RB_LOG(RB_LOG_INFO, "verbs: registrations of plain memory are kept, up to %zu KiB",
	       vb->cache_bytes >> 10);
}

void rb_verbs_cache_close(struct rb_verbs *vb)
{
	struct rb_verbs_cache *cache = vb->cache;

	if (cache == NULL)
		return;
	RB_LOG(RB_LOG_INFO,
	       "verbs: of plain memory %llu registrations were kept, and used again %llu times; "
	       "%llu ended as memory changed, %llu for want of room, %llu could not be kept",
	       (unsigned long long)cache->counts.kept, (unsigned long long)cache->counts.hits,
	       (unsigned long long)cache->counts.changed, (unsigned long long)cache->counts.evicted,
	       (unsigned long long)cache->counts.refused);
	while (cache->oldest != NULL) {
		RB_ASSERT(cache->oldest->users == 0);
		forget(vb, cache->oldest);
	}
	rb_verbs_watch_close(cache->watch);
	free(cache);
	vb->cache = NULL;
	vb->cache_bytes = 0;
}

/* ---- Use ---- */

/* Registers it. NULL: it cannot be kept. */
static struct rb_verbs_cached *keep(struct rb_verbs *vb, void *base, size_t bytes, uint32_t rails,
				    int access)
{
	struct rb_verbs_cache *cache = vb->cache;
	struct rb_verbs_cached *cached = cache->free;

	if (!rb_verbs_watch_begin(cache->watch, index_of(cache, cached), base, bytes))
		return NULL;
	cache->free = cached->next;
	*cached = (struct rb_verbs_cached) {
		.base = base, .bytes = bytes, .access = access, .rails = rails, .users = 1
	};
	cache->bytes += bytes * rails;
	for (uint32_t i = 0; i < rails; i++) {
		cached->mrs[i] = rb_verbs_host_register(vb, vb->rails[i].pd, base, bytes, access);
		if (cached->mrs[i] == NULL) {
			rb_verbs_watch_end(cache->watch, index_of(cache, cached));
			(void)drop(vb, cached);
			return NULL;
		}
	}
	return cached;
}

/* The second time that it is used, and not when it was passed over. */
static bool is_due(struct rb_verbs_cache *cache, const void *base)
{
	struct seen *seen = seen_of(cache, base);

	if (seen->base != (uintptr_t)base) {
		*seen = (struct seen) { (uintptr_t)base, 0 };
		return false;
	}
	if (seen->pass == 0)
		return true;
	seen->pass--;
	return false;
}

struct rb_verbs_cached *rb_verbs_cache_find(struct rb_verbs *vb, void *base, size_t bytes,
					    uint32_t rails, int access)
{
	struct rb_verbs_cache *cache;
	struct rb_verbs_cached *cached;

	if (vb->cache == NULL)
		cache_open(vb);
	cache = vb->cache;
	if (cache == NULL)
		return NULL;
	rb_verbs_cache_tick(vb);
	/* So that its pages are its own, and not those that all zeros are read from. */
	access |= IBV_ACCESS_LOCAL_WRITE;
	cached = *bucket_of(cache, base);
	while (cached != NULL && cached->base != base)
		cached = cached->next;
	if (cached != NULL && cached->bytes >= bytes && cached->rails >= rails &&
	    (cached->access & access) == access) {
		if (!rb_verbs_watch_same(cache->watch, index_of(cache, cached)))
			return NULL;
		cache->counts.hits++;
		unlist(cache, cached);
		list(cache, cached);
		cached->users++;
		return cached;
	}
	if (cached != NULL && cached->users > 0)
		return NULL;
	if (cached != NULL) {
		access |= cached->access;
		forget(vb, cached);
	} else if (!is_due(cache, base)) {
		return NULL;
	}
	cached = evict(vb, bytes * rails) ? keep(vb, base, bytes, rails, access) : NULL;
	if (cached == NULL) {
		cache->counts.refused++;
		pass_over(cache, base, PASS_REFUSED);
		return NULL;
	}
	cache->counts.kept++;
	list(cache, cached);
	return cached;
}

bool rb_verbs_cache_give(struct rb_verbs *vb, struct rb_verbs_cached *cached)
{
	RB_ASSERT(cached->users > 0);
	return --cached->users > 0 || cached->listed || drop(vb, cached);
}

bool rb_verbs_cache_claim(struct rb_verbs *vb, struct rb_verbs_cached *cached)
{
	if (cached == NULL)
		return true;
	if (cached->users > 1)
		return false;
	if (cached->listed)
		forget(vb, cached);
	return true;
}

bool rb_verbs_cache_shrink(struct rb_verbs *vb)
{
	struct rb_verbs_cached *newer;
	bool any = false;

	if (vb->cache == NULL)
		return false;
	for (struct rb_verbs_cached *at = vb->cache->oldest; at != NULL; at = newer) {
		newer = at->newer;
		if (at->users > 0)
			continue;
		vb->cache->counts.evicted++;
		forget(vb, at);
		any = true;
	}
	return any;
}

void rb_verbs_cache_tick(struct rb_verbs *vb)
{
	if (vb->cache != NULL && rb_verbs_watch_changes(vb->cache->watch) != 0)
		sift(vb);
}
