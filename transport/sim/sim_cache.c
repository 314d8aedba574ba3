/*
 * sim_cache.c -- what lies in the caches of a simulated cluster's cores.
 *
 * Each core has one, of so many lines; one by chance makes room. A line that a core reads
 * or writes lies in its own cache, in another core's, which wrote it last or has read it since this
 * one wrote it, or in memory: the first two take bytes / cached_bandwidth and bytes /
 * shared_bandwidth, and what is left moves through the node's memory. Until the first byte of
 * another's comes a read waits, shared_latency; a write does not: the core goes on meanwhile.
 *
 * What goes from a core's cache lies in its node's outer one, if there is any, until a core wants
 * it or it has to make room: one by chance. So of a little more than fits a little goes, as of real
 * ones; of the least recently used all would, where a program goes round.
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

/* Where something lies; OUTER_OTHER: where another core's is that wrote it. */
enum where { OWN, OTHER, OUTER, OUTER_OTHER, MEMORY, PLACE_COUNT };

struct entry { /* Of a cache. */
	uint64_t line, version;
};

struct cache {
	uint32_t *places; /* By line; entries + 1, 0: none. */
	struct entry *entries;
	uint32_t capacity, place_mask;
	uint32_t count;
};

struct line { /* That somebody has written. */
	uint64_t number, version;
	uint32_t writer;
	bool read; /* By another since. */
};

struct rb_sim_caches {
	struct cache *caches, *outer; /* Of cores, of nodes (or NULL). */
	uint32_t cache_count, outer_count;
	uint64_t chance;        /* Numbers who makes room. */
	double ns[PLACE_COUNT]; /* A byte. */
	double slower;          /* Of reductions, so many times, in cores' caches. */
	double latency_ns;      /* Of a read from another core's cache. */
	struct line *lines;     /* By number; version 0: none. */
	uint64_t line_count, line_mask;
};

/* ---- One cache ---- */

static uint32_t *place_of(const struct cache *c, uint64_t line)
{
	uint32_t at = (uint32_t)rb_mix(line) & c->place_mask;

	while (c->places[at] != 0 && c->entries[c->places[at] - 1].line != line)
		at = (at + 1) & c->place_mask;
	return &c->places[at];
}

/* Closes the gap: those behind it that would not be found beyond it move up. */
static void place_clear(struct cache *c, uint32_t *place)
{
	uint32_t gap = (uint32_t)(place - c->places), at = gap;

	for (;;) {
		at = (at + 1) & c->place_mask;
		if (c->places[at] == 0)
			break;
		uint32_t home =
			(uint32_t)rb_mix(c->entries[c->places[at] - 1].line) & c->place_mask;

		if (((at - home) & c->place_mask) < ((at - gap) & c->place_mask))
			continue;
		c->places[gap] = c->places[at];
		gap = at;
	}
	c->places[gap] = 0;
}

/* Takes the line out; the version that lay there, UINT64_MAX: none did. */
static uint64_t take_out(struct cache *c, uint64_t line)
{
	uint32_t *place = place_of(c, line);
	struct entry *e, *last;
	uint64_t version;

	if (*place == 0)
		return UINT64_MAX;
	e = &c->entries[*place - 1];
	last = &c->entries[c->count - 1];
	version = e->version;
	place_clear(c, place);
	if (e != last) {
		*place_of(c, last->line) = (uint32_t)(e - c->entries) + 1;
		*e = *last;
	}
	c->count--;
	return version;
}

/* The line's entry; `was`: the version that lay there, UINT64_MAX: none did; `gone`: what made
 * room, of version UINT64_MAX: nothing. */
static struct entry *take_in(struct rb_sim_caches *all, struct cache *c, uint64_t line,
			     uint64_t *was, struct entry *gone)
{
	uint32_t place = *place_of(c, line);

	*was = gone->version = UINT64_MAX;
	if (place != 0) {
		*was = c->entries[place - 1].version;
		return &c->entries[place - 1];
	}
	if (c->count == c->capacity) {
		*gone = c->entries[rb_mix(all->chance++) % c->count];
		(void)take_out(c, gone->line);
	}
	c->entries[c->count].line = line;
	*place_of(c, line) = ++c->count;
	return &c->entries[c->count - 1];
}

static bool holds(const struct rb_sim_caches *all, uint32_t cache, const struct line *line)
{
	const struct cache *c = &all->caches[cache];
	uint32_t place = *place_of(c, line->number);

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

struct core { /* Who accesses. */
	uint32_t cache;
	struct cache *outer; /* Its node's, or NULL. */
};

/* Of a line that the own cache has not, or an older version of it. */
static enum where elsewhere(const struct rb_sim_caches *all, const struct core *core,
			    const struct line *line, uint64_t outer)
{
	bool other = line->version > 0 && line->writer != core->cache;

	if (other && holds(all, line->writer, line))
		return OTHER;
	if (outer != line->version)
		return MEMORY;
	return other ? OUTER_OTHER : OUTER;
}

/* What went from a core's cache is old where somebody else has written it since. */
static void gone_put(struct rb_sim_caches *all, const struct core *core, const struct entry *gone)
{
	struct entry *e, pushed;
	uint64_t was;

	if (gone->version == UINT64_MAX || line_of(all, gone->line)->version != gone->version)
		return;
	e = take_in(all, core->outer, gone->line, &was, &pushed);
	e->version = gone->version;
}

static enum where line_access(struct rb_sim_caches *all, const struct core *core, uint64_t number,
			      bool writes)
{
	struct line *line;
	struct entry *e, gone;
	enum where where = OWN;
	uint64_t was, outer = UINT64_MAX;

	if (writes && !lines_grow(all))
		return MEMORY;
	line = line_of(all, number);
	e = take_in(all, &all->caches[core->cache], number, &was, &gone);
	if (core->outer != NULL && was != line->version)
		outer = take_out(core->outer, number);
	if (was != line->version)
		where = elsewhere(all, core, line, outer);
	else if (line->version > 0 && writes && line->writer == core->cache && line->read)
		where = OTHER;
	if (writes) {
		all->line_count += line->version == 0;
		*line = (struct line) { number, line->version + 1, core->cache, false };
	} else if (line->writer != core->cache) {
		line->read = true;
	}
	e->version = line->version;
	if (core->outer != NULL)
		gone_put(all, core, &gone);
	return where;
}

static struct rb_sim_access range_access(struct rb_sim_caches *all, const struct core *core,
					 const struct rb_touch *touch, double slower)
{
	struct rb_sim_access sum = { 0, 0 };
	uint64_t bytes[PLACE_COUNT] = { 0 }, begin = (uintptr_t)touch->at;
	uint64_t end = begin + touch->size_bytes;

	while (begin < end) {
		uint64_t next = (begin / LINE_BYTES + 1) * LINE_BYTES;

		next = next < end ? next : end;
		bytes[line_access(all, core, begin / LINE_BYTES, touch->writes)] += next - begin;
		begin = next;
	}
	for (int i = OWN; i < MEMORY; i++)
		sum.busy_ns += (double)bytes[i] * all->ns[i] * (i <= OTHER ? slower : 1);
	sum.busy_ns += bytes[OTHER] > 0 && !touch->writes ? all->latency_ns : 0;
	sum.memory_bytes = bytes[MEMORY];
	return sum;
}

struct rb_sim_access rb_sim_caches_access(struct rb_sim_caches *all, struct rb_sim_place place,
					  const struct rb_touch *touches, uint32_t count)
{
	struct core core = { place.cache, NULL };
	struct rb_sim_access sum = { 0, 0 };
	uint32_t operands = 0;

	if (all != NULL && all->outer != NULL)
		core.outer = &all->outer[place.node];
	for (uint32_t i = 0; i < count; i++)
		operands += !touches[i].writes && touches[i].size_bytes > 0;
	for (uint32_t i = 0; i < count; i++) {
		struct rb_sim_access one = { 0, touches[i].size_bytes };

		if (all != NULL && touches[i].at != NULL)
			one = range_access(all, &core, &touches[i], operands > 1 ? all->slower : 1);
		sum.busy_ns += one.busy_ns;
		sum.memory_bytes += one.memory_bytes;
	}
	return sum;
}

/* ---- All of them ---- */

static double byte_ns(double bandwidth)
{
	return bandwidth > 0 ? 1e9 / bandwidth : 0;
}

static rubato_status sizes_check(const rubato_sim_costs *costs)
{
	const uint64_t sizes[] = { costs->cache_bytes, costs->outer_bytes };

	for (int i = 0; i < 2; i++)
		if (sizes[i] / LINE_BYTES > UINT32_MAX / 4)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "sim: caches of %llu bytes",
				       (unsigned long long)sizes[i]);
	return RUBATO_OK;
}

/* So many of them, of that size; `opened` counts. False: there is no memory. */
static bool array_open(struct cache **out, uint32_t *opened, uint32_t count, uint64_t size_bytes)
{
	uint64_t lines = size_bytes / LINE_BYTES;
	struct cache *caches = lines > 0 ? calloc(count, sizeof(*caches)) : NULL;

	*out = caches;
	if (caches == NULL)
		return lines == 0;
	while (*opened < count) {
		struct cache *c = &caches[(*opened)++];

		c->capacity = (uint32_t)lines;
		for (c->place_mask = 1; c->place_mask < 2 * lines;)
			c->place_mask = 2 * c->place_mask + 1;
		c->places = calloc((size_t)c->place_mask + 1, sizeof(*c->places));
		c->entries = calloc(lines, sizeof(*c->entries));
		if (c->places == NULL || c->entries == NULL)
			return false;
	}
	return true;
}

static void array_close(struct cache *caches, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		free(caches[i].places);
		free(caches[i].entries);
	}
	free(caches);
}

rubato_status rb_sim_caches_open(const rubato_sim_options *options, uint32_t node_count,
				 struct rb_sim_caches **out)
{
	const rubato_sim_costs *costs = &options->costs;
	struct rb_sim_caches *all;

	*out = NULL;
	if (costs->cache_bytes / LINE_BYTES == 0)
		return RUBATO_OK;
	RB_TRY(sizes_check(costs));
	all = calloc(1, sizeof(*all));
	if (all == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: caches");
	all->ns[OWN] = byte_ns(costs->cached_bandwidth);
	all->ns[OTHER] = byte_ns(costs->shared_bandwidth);
	all->ns[OUTER] = byte_ns(costs->outer_bandwidth);
	all->ns[OUTER_OTHER] = fmax(all->ns[OUTER], all->ns[OTHER]);
	all->slower = costs->reduced_bandwidth > 0
			      ? fmax(costs->cached_bandwidth / costs->reduced_bandwidth, 1)
			      : 1;
	all->latency_ns = (double)costs->shared_latency_ns;
	all->line_mask = 1023;
	all->lines = calloc(all->line_mask + 1, sizeof(*all->lines));
	if (all->lines == NULL ||
	    !array_open(&all->caches, &all->cache_count, options->rank_count, costs->cache_bytes) ||
	    !array_open(&all->outer, &all->outer_count, node_count, costs->outer_bytes)) {
		rb_sim_caches_close(all);
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %u caches", options->rank_count);
	}
	*out = all;
	return RUBATO_OK;
}

void rb_sim_caches_close(struct rb_sim_caches *all)
{
	if (all == NULL)
		return;
	array_close(all->caches, all->cache_count);
	array_close(all->outer, all->outer_count);
	free(all->lines);
	free(all);
}
