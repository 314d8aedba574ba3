/*
 * sim_cache.c -- what lies in the caches of a simulated cluster's cores.
 *
 * Each core has one, of so many lines, the least recently used goes first. A line that a core reads
 * or writes lies in its own cache, in another core's, which wrote it last or has read it since this
 * one wrote it, or in memory: the first two take bytes / cached_bandwidth and bytes /
 * shared_bandwidth, and what is left moves through the node's memory. Until the first byte of
 * another's comes a read waits, shared_latency; a write does not: the core goes on meanwhile.
 *
 * Lines are found by address. Only whether two accesses meet counts, so a run is the same wherever
 * its memory lies, as long as that begins and ends at the same places within pages: as in another
 * process that does the same, not as in a second run of the same process.
 */
#include "transport/sim/sim_cache.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

#define LINE_BYTES 1024u /* Coarser than any processor's, so that large vectors cost little. */
#define NONE UINT32_MAX

struct entry { /* Of a cache. */
	uint64_t line, version;
	uint32_t newer, older;
};

struct cache {
	uint32_t *places; /* By line; entries + 1, 0: none. */
	struct entry *entries;
	uint32_t count, newest, oldest;
};

struct line { /* That somebody has written. */
	uint64_t number, version;
	uint32_t writer;
	bool read; /* By another since. */
};

struct rb_sim_caches {
	struct cache *caches;
	uint32_t cache_count, capacity, place_mask;
	double cached_ns, shared_ns; /* A byte. */
	double latency_ns;           /* Of a read from another core's cache. */
	struct line *lines;          /* By number; version 0: none. */
	uint64_t line_count, line_mask;
};

/* ---- One cache ---- */

static uint32_t *place_of(const struct rb_sim_caches *all, const struct cache *c, uint64_t line)
{
	uint32_t at = (uint32_t)rb_mix(line) & all->place_mask;

	while (c->places[at] != 0 && c->entries[c->places[at] - 1].line != line)
		at = (at + 1) & all->place_mask;
	return &c->places[at];
}

/* Closes the gap: those behind it that would not be found beyond it move up. */
static void place_clear(const struct rb_sim_caches *all, struct cache *c, uint32_t *place)
{
	uint32_t gap = (uint32_t)(place - c->places), at = gap;

	for (;;) {
		at = (at + 1) & all->place_mask;
		if (c->places[at] == 0)
			break;
		uint32_t home =
			(uint32_t)rb_mix(c->entries[c->places[at] - 1].line) & all->place_mask;

		if (((at - home) & all->place_mask) < ((at - gap) & all->place_mask))
			continue;
		c->places[gap] = c->places[at];
		gap = at;
	}
	c->places[gap] = 0;
}

static void unlink_entry(struct cache *c, struct entry *e)
{
	*(e->newer != NONE ? &c->entries[e->newer].older : &c->newest) = e->older;
	*(e->older != NONE ? &c->entries[e->older].newer : &c->oldest) = e->newer;
}

static void newest_is(struct cache *c, struct entry *e)
{
	uint32_t index = (uint32_t)(e - c->entries);

	e->newer = NONE;
	e->older = c->newest;
	*(c->newest != NONE ? &c->entries[c->newest].newer : &c->oldest) = index;
	c->newest = index;
}

/* The line's entry, the newest now; `was`: the version that lay there, UINT64_MAX: none did. */
static struct entry *take_in(const struct rb_sim_caches *all, struct cache *c, uint64_t line,
			     uint64_t *was)
{
	uint32_t *place = place_of(all, c, line);
	struct entry *e;

	*was = UINT64_MAX;
	if (*place != 0) {
		e = &c->entries[*place - 1];
		*was = e->version;
		unlink_entry(c, e);
	} else if (c->count < all->capacity) {
		e = &c->entries[c->count++];
		*place = c->count;
	} else {
		e = &c->entries[c->oldest];
		unlink_entry(c, e);
		place_clear(all, c, place_of(all, c, e->line));
		*place_of(all, c, line) = (uint32_t)(e - c->entries) + 1;
	}
	e->line = line;
	newest_is(c, e);
	return e;
}

static bool holds(const struct rb_sim_caches *all, uint32_t cache, const struct line *line)
{
	const struct cache *c = &all->caches[cache];
	uint32_t place = *place_of(all, c, line->number);

	return place != 0 && c->entries[place - 1].version == line->version;
}

/* ---- Lines ---- */

static struct line *line_of(const struct rb_sim_caches *all, uint64_t number)
{
	uint64_t at = rb_mix(number) & all->line_mask;

	while (all->lines[at].version != 0 && all->lines[at].number != number)
		at = (at + 1) & all->line_mask;
	return &all->lines[at];
}

/* For one more; false: there is no memory. */
static bool lines_grow(struct rb_sim_caches *all)
{
	struct rb_sim_caches old = *all;

	if (2 * (old.line_count + 1) <= old.line_mask)
		return true;
	all->line_mask = 2 * old.line_mask + 1;
	all->lines = calloc(all->line_mask + 1, sizeof(*all->lines));
	if (all->lines == NULL) {
		*all = old;
		return false;
	}
	for (uint64_t i = 0; i <= old.line_mask; i++)
		if (old.lines[i].version != 0)
			*line_of(all, old.lines[i].number) = old.lines[i];
	free(old.lines);
	return true;
}

/* ---- Accesses ---- */

enum where { OWN, OTHER, MEMORY };

static enum where line_access(struct rb_sim_caches *all, uint32_t cache, uint64_t number,
			      bool writes)
{
	struct line *line;
	struct entry *e;
	enum where where;
	uint64_t was;

	if (writes && !lines_grow(all))
		return MEMORY;
	line = line_of(all, number);
	e = take_in(all, &all->caches[cache], number, &was);
	if (line->version == 0) /* Nobody has written it. */
		where = was != UINT64_MAX ? OWN : MEMORY;
	else if (was == line->version)
		where = writes && line->writer == cache && line->read ? OTHER : OWN;
	else
		where = line->writer != cache && holds(all, line->writer, line) ? OTHER : MEMORY;
	if (writes) {
		all->line_count += line->version == 0;
		*line = (struct line) { number, line->version + 1, cache, false };
	} else if (line->writer != cache) {
		line->read = true;
	}
	e->version = line->version;
	return where;
}

static struct rb_sim_access range_access(struct rb_sim_caches *all, uint32_t cache, uint64_t begin,
					 uint64_t end, bool writes)
{
	struct rb_sim_access sum = { 0, 0 };
	uint64_t bytes[3] = { 0, 0, 0 };

	while (begin < end) {
		uint64_t next = (begin / LINE_BYTES + 1) * LINE_BYTES;

		next = next < end ? next : end;
		bytes[line_access(all, cache, begin / LINE_BYTES, writes)] += next - begin;
		begin = next;
	}
	sum.busy_ns = (double)bytes[OWN] * all->cached_ns + (double)bytes[OTHER] * all->shared_ns;
	sum.busy_ns += bytes[OTHER] > 0 && !writes ? all->latency_ns : 0;
	sum.memory_bytes = bytes[MEMORY];
	return sum;
}

struct rb_sim_access rb_sim_caches_access(struct rb_sim_caches *all, uint32_t cache,
					  const struct rb_touch *touches, uint32_t count)
{
	struct rb_sim_access sum = { 0, 0 };

	for (uint32_t i = 0; i < count; i++) {
		uint64_t begin = (uintptr_t)touches[i].at;
		struct rb_sim_access one = { 0, touches[i].size_bytes };

		if (all != NULL && touches[i].at != NULL)
			one = range_access(all, cache, begin, begin + touches[i].size_bytes,
					   touches[i].writes);
		sum.busy_ns += one.busy_ns;
		sum.memory_bytes += one.memory_bytes;
	}
	return sum;
}

/* ---- All of them ---- */

rubato_status rb_sim_caches_open(const rubato_sim_options *options, struct rb_sim_caches **out)
{
	const rubato_sim_costs *costs = &options->costs;
	uint32_t count = options->rank_count;
	uint64_t lines = costs->cache_bytes / LINE_BYTES;
	struct rb_sim_caches *all;
	bool whole = true;

	*out = NULL;
	if (lines == 0)
		return RUBATO_OK;
	if (lines > UINT32_MAX / 4)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: caches of %llu bytes",
			       (unsigned long long)costs->cache_bytes);
	all = calloc(1, sizeof(*all));
	if (all == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: caches");
	all->capacity = (uint32_t)lines;
	for (all->place_mask = 1; all->place_mask < 2 * lines;)
		all->place_mask = 2 * all->place_mask + 1;
	all->cached_ns = costs->cached_bandwidth > 0 ? 1e9 / costs->cached_bandwidth : 0;
	all->shared_ns = costs->shared_bandwidth > 0 ? 1e9 / costs->shared_bandwidth : 0;
	all->latency_ns = (double)costs->shared_latency_ns;
	all->line_mask = 1023;
	all->lines = calloc(all->line_mask + 1, sizeof(*all->lines));
	all->caches = calloc(count, sizeof(*all->caches));
	whole = all->lines != NULL && all->caches != NULL;
	for (; whole && all->cache_count < count; all->cache_count++) {
		struct cache *c = &all->caches[all->cache_count];

		c->newest = c->oldest = NONE;
		c->places = calloc((size_t)all->place_mask + 1, sizeof(*c->places));
		c->entries = calloc(lines, sizeof(*c->entries));
		whole = c->places != NULL && c->entries != NULL;
	}
	if (!whole) {
		rb_sim_caches_close(all);
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u caches", count);
	}
	*out = all;
	return RUBATO_OK;
}

void rb_sim_caches_close(struct rb_sim_caches *all)
{
	if (all == NULL)
		return;
	for (uint32_t i = 0; i < all->cache_count; i++) {
		free(all->caches[i].places);
		free(all->caches[i].entries);
	}
	free(all->caches);
	free(all->lines);
	free(all);
}
