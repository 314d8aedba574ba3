/*
 * facts.c -- see facts.h.
 *
 * Each rank allocates a little and tells all where it lies; each looks whose it can map, and tells
 * all of whom that is true: not in a list, which would be quadratic, but as the lowest of them,
 * their number and a sum over them. Those who say the same, and are those of whom it is said, are a
 * node. A rank that maps others one way only, or not all of those that map each other, stands
 * alone: it is reached by messages.
 */
#include "runtime/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"

#define PROBE_BYTES 4096
#define SET_BYTES (4 + 4 + 8 + 1) /* A set, and whether all endpoints put. */

uint64_t rb_mapped_hash(uint32_t rank)
{
	return rb_mix((uint64_t)rank + 1);
}

static bool same(const struct rb_mapped_set *a, const struct rb_mapped_set *b)
{
	return a->lowest == b->lowest && a->count == b->count && a->hash == b->hash;
}

/* found[l]: those who say that l is the lowest that they map; its `lowest`: they differ. */
void rb_nodes_name(const struct rb_mapped_set *sets, uint32_t rank_count, uint32_t *name_of,
		   struct rb_mapped_set *found)
{
	for (uint32_t r = 0; r < rank_count; r++)
		found[r] = (struct rb_mapped_set) { 0 };
	for (uint32_t r = 0; r < rank_count; r++) {
		uint32_t lowest = sets[r].lowest < rank_count ? sets[r].lowest : r;

		name_of[r] = lowest;
		found[lowest].count++;
		found[lowest].hash += rb_mapped_hash(r);
		found[lowest].lowest |= !same(&sets[r], &sets[lowest]);
	}
	for (uint32_t r = 0; r < rank_count; r++) {
		const struct rb_mapped_set *set = &sets[name_of[r]], *is = &found[name_of[r]];

		if (is->lowest != 0 || is->count != set->count || is->hash != set->hash)
			name_of[r] = r;
	}
}

/* Endpoint 0 allocates: where it names its memory, peers that it reaches may map it. */
static bool is_mapped(const struct rb_engine *engine, uint32_t rank, uint64_t own, uint64_t theirs)
{
	struct rb_endpoint *ep = engine->endpoints[0];

	if (rank == engine->rank)
		return true;
	/* A peer may name memory where this transport maps none. */
	return own != 0 && theirs != 0 && engine->route[rank] == 0 &&
	       ep->ops->word_map(ep, rank, theirs, PROBE_BYTES) != NULL;
}

static rubato_status words_exchange(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
				    uint64_t deadline_ns, const struct rb_memory *probe,
				    struct rb_mapped_set *own)
{
	const struct rb_engine *engine = &comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	const void *const *blobs;
	const size_t *bytes;
	uint64_t word = 0;

	if (probe != NULL)
		word = ep->ops->word_of(ep, probe->base, PROBE_BYTES);
	RB_TRY(bootstrap->allgather(bootstrap, &word, sizeof(word), &blobs, &bytes, deadline_ns));
	*own = (struct rb_mapped_set) { .lowest = UINT32_MAX };
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		uint64_t theirs = 0;

		if (bytes[r] == sizeof(theirs))
			memcpy(&theirs, blobs[r], sizeof(theirs));
		if (!is_mapped(engine, r, word, theirs))
			continue;
		own->lowest = r < own->lowest ? r : own->lowest;
		own->count++;
		own->hash += rb_mapped_hash(r);
	}
	comm->choices.facts.mapped = word != 0;
	return RUBATO_OK;
}

static bool all_put(const struct rb_engine *engine)
{
	/* With several transports, keys of the first would say nothing to peers on another. */
	return engine->endpoint_count == 1 && (engine->endpoints[0]->ops->caps & RB_CAP_PUT) != 0;
}

static rubato_status sets_exchange(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
				   uint64_t deadline_ns, const struct rb_mapped_set *own,
				   struct rb_mapped_set *sets)
{
	uint8_t bytes_own[SET_BYTES];
	struct rb_wire w = rb_wire_over(bytes_own, sizeof(bytes_own));
	const void *const *blobs;
	const size_t *bytes;

	rb_wire_put_u32(&w, own->lowest);
	rb_wire_put_u32(&w, own->count);
	rb_wire_put_u64(&w, own->hash);
	bytes_own[SET_BYTES - 1] = all_put(&comm->engine);
	RB_TRY(bootstrap->allgather(bootstrap, bytes_own, sizeof(bytes_own), &blobs, &bytes,
				    deadline_ns));
	comm->choices.facts.put = true;
	for (uint32_t r = 0; r < comm->engine.rank_count; r++) {
		w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);
		sets[r].lowest = rb_wire_get_u32(&w);
		sets[r].count = rb_wire_get_u32(&w);
		sets[r].hash = rb_wire_get_u64(&w);
		if (w.bad || bytes[r] != SET_BYTES)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "rank %u's start-up facts are malformed", r);
		comm->choices.facts.put &= ((const uint8_t *)blobs[r])[SET_BYTES - 1] == 1;
	}
	return RUBATO_OK;
}

static rubato_status sets_find(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			       uint64_t deadline_ns, struct rb_mapped_set *sets)
{
	struct rb_memory *probe = NULL;
	struct rb_mapped_set own;
	rubato_status err;

	if (comm->engine.endpoints[0]->ops->word_of != NULL &&
	    rb_memory_alloc(&comm->memory, PROBE_BYTES, &probe) != RUBATO_OK)
		probe = NULL; /* Then this rank maps nobody. */
	err = words_exchange(comm, bootstrap, deadline_ns, probe, &own);
	if (err == RUBATO_OK)
		err = sets_exchange(comm, bootstrap, deadline_ns, &own, sets);
	if (probe != NULL) /* Peers that tell what they saw look at it no more. */
		rb_memory_drop(&comm->memory, probe);
	return err;
}

rubato_status rb_facts_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			     uint64_t deadline_ns)
{
	uint32_t n = comm->engine.rank_count;
	struct rb_mapped_set *sets = calloc(2 * (size_t)n, sizeof(*sets));
	uint32_t *name_of = calloc(n, sizeof(*name_of));
	uint32_t *words = calloc(RB_NODES_WORDS(n), sizeof(*words));
	struct rb_choices *choices = &comm->choices;
	rubato_status err;

	if (sets == NULL || name_of == NULL || words == NULL)
		err = RB_FAIL(RUBATO_ERR_MEMORY, "facts of %u ranks", n);
	else
		err = sets_find(comm, bootstrap, deadline_ns, sets);
	if (err == RUBATO_OK) {
		rb_nodes_name(sets, n, name_of, sets + n);
		rb_nodes_make(&choices->nodes, words, name_of, n);
	}
	free(sets);
	free(name_of);
	if (err != RUBATO_OK) {
		free(words);
		return err;
	}
	choices->facts.rank_count = n;
	choices->facts.nodes = &choices->nodes;
	choices->facts.mapped &= choices->nodes.count == 1;
	RB_LOG(RB_LOG_INFO, "%u ranks on %u nodes, %u or more on each", n, choices->nodes.count,
	       choices->nodes.least);
	return RUBATO_OK;
}
