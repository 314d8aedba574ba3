/*
 * facts.c -- see facts.h.
 *
 * Each rank allocates a little and tells all where it lies; each looks whose it can map, and tells
 * all of whom that is true: not in a list, which would be quadratic, but as the lowest of them,
 * their number and a sum over them. Those who say the same, and are those of whom it is said, are a
 * node. A rank that maps others one way only, or not all of those that map each other, stands
 * alone: it is reached by messages.
 *
 * A card is what carries a rank's messages to other nodes, as far as the rank can see: the devices
 * that it uses in a network of its kernel. Ranks in network namespaces of their own have cards of
 * their own, whatever lies behind.
 */
#include "runtime/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"

#define PROBE_BYTES 4096
#define SET_BYTES (4 + 4 + 8 + 8 + 8 + 4 + 1 + RB_ENDPOINTS_MAX) /* What own_write writes. */

/* All endpoints put; and do so well, to all within the node, to all others. */
#define PUTS 1u
#define PUTS_WITHIN 2u
#define PUTS_BETWEEN 4u

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

/* What a rank has found out. */
struct own {
	struct rb_mapped_set set;
	uint8_t puts;
	uint8_t key_words[RB_ENDPOINTS_MAX];
};

static void endpoints_look(const struct rb_engine *engine, struct own *own)
{
	own->puts = PUTS | PUTS_WITHIN | PUTS_BETWEEN;
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		const struct rb_transport_ops *ops = engine->endpoints[i]->ops;

		if (ops->caps & RB_CAP_PUT)
			own->key_words[engine->transport[i]] = (uint8_t)((ops->key_bytes + 7) / 8);
		else
			own->puts = 0;
	}
}

static void peer_look(const struct rb_engine *engine, uint32_t rank, bool mapped, struct own *own)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, rank);

	if (rank != engine->rank && (ep->ops->puts_well == NULL || !ep->ops->puts_well(ep, rank)))
		own->puts &= (uint8_t) ~(mapped ? PUTS_WITHIN : PUTS_BETWEEN);
	if (!mapped)
		return;
	own->set.lowest = rank < own->set.lowest ? rank : own->set.lowest;
	own->set.count++;
	own->set.hash += rb_mapped_hash(rank);
}

static rubato_status words_exchange(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
				    uint64_t deadline_ns, const struct rb_memory *probe,
				    struct own *own)
{
	const struct rb_engine *engine = &comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	const void *const *blobs;
	const size_t *bytes;
	uint64_t word = 0;

	if (probe != NULL)
		word = ep->ops->word_of(ep, probe->base, PROBE_BYTES);
	RB_TRY(bootstrap->allgather(bootstrap, &word, sizeof(word), &blobs, &bytes, deadline_ns));
	*own = (struct own) { .set = { .lowest = UINT32_MAX } };
	endpoints_look(engine, own);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		uint64_t theirs = 0;

		if (bytes[r] == sizeof(theirs))
			memcpy(&theirs, blobs[r], sizeof(theirs));
		peer_look(engine, r, is_mapped(engine, r, word, theirs), own);
	}
	comm->choices.facts.mapped = word != 0;
	comm->choices.facts.ahead = true;
	return RUBATO_OK;
}

struct said { /* By each rank. */
	struct rb_mapped_set *sets;
	struct rb_whereabouts *places;
};

static void own_write(const struct rubato_comm *comm, const struct own *own,
		      const struct rb_whereabouts *here, uint8_t bytes[SET_BYTES])
{
	struct rb_wire w = rb_wire_over(bytes, SET_BYTES);
	struct rb_endpoint *ep = comm->engine.endpoints[0];

	rb_wire_put_u32(&w, own->set.lowest);
	rb_wire_put_u32(&w, own->set.count);
	rb_wire_put_u64(&w, own->set.hash);
	rb_wire_put_u64(&w, here->host);
	rb_wire_put_u64(&w, ep->ops->card != NULL ? ep->ops->card(ep) : here->card);
	rb_wire_put_u32(&w, here->domain);
	rb_wire_put_u8(&w, own->puts);
	rb_wire_put_bytes(&w, own->key_words, sizeof(own->key_words));
	RB_ASSERT(!w.bad && w.at == w.end);
}

/* Of puts all must be able to do what all do; a key's words are those of the longest. */
static void puts_read(struct rubato_comm *comm, struct rb_wire *w, uint8_t *puts)
{
	*puts &= rb_wire_get_u8(w);
	for (uint32_t i = 0; i < RB_ENDPOINTS_MAX; i++) {
		uint8_t words = rb_wire_get_u8(w);

		if (words > RB_KEY_BYTES_MAX / 8)
			w->bad = true;
		else if (words > comm->key_words[i])
			comm->key_words[i] = words;
	}
}

static rubato_status sets_exchange(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
				   uint64_t deadline_ns, const uint8_t own[SET_BYTES],
				   struct said *said)
{
	uint8_t puts = PUTS | PUTS_WITHIN | PUTS_BETWEEN;
	const void *const *blobs;
	const size_t *bytes;

	RB_TRY(bootstrap->allgather(bootstrap, own, SET_BYTES, &blobs, &bytes, deadline_ns));
	/* Not before: simulated ranks would all have theirs at the same time. */
	said->sets = calloc(2 * (size_t)comm->engine.rank_count, sizeof(*said->sets));
	said->places = calloc(comm->engine.rank_count, sizeof(*said->places));
	if (said->sets == NULL || said->places == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "facts of %u ranks", comm->engine.rank_count);
	for (uint32_t r = 0; r < comm->engine.rank_count; r++) {
		struct rb_wire w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);

		said->sets[r].lowest = rb_wire_get_u32(&w);
		said->sets[r].count = rb_wire_get_u32(&w);
		said->sets[r].hash = rb_wire_get_u64(&w);
		said->places[r].host = rb_wire_get_u64(&w);
		said->places[r].card = rb_wire_get_u64(&w);
		said->places[r].domain = rb_wire_get_u32(&w);
		puts_read(comm, &w, &puts);
		if (w.bad || bytes[r] != SET_BYTES)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "rank %u's start-up facts are malformed", r);
	}
	comm->choices.facts.put = (puts & PUTS) != 0;
	comm->choices.facts.puts_within = (puts & PUTS_WITHIN) != 0;
	comm->choices.facts.puts_between = (puts & PUTS_BETWEEN) != 0;
	return RUBATO_OK;
}

static rubato_status sets_find(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			       const struct rb_whereabouts *here, uint64_t deadline_ns,
			       struct said *said)
{
	struct rb_memory *probe = NULL;
	struct own own;
	uint8_t bytes[SET_BYTES];
	rubato_status err;

	rb_engine_enter(&comm->engine);
	if (comm->engine.endpoints[0]->ops->word_of != NULL &&
	    rb_memory_alloc(&comm->memory, PROBE_BYTES, &probe) != RUBATO_OK)
		probe = NULL; /* Then this rank maps nobody. */
	rb_engine_leave(&comm->engine);
	err = words_exchange(comm, bootstrap, deadline_ns, probe, &own);
	if (err == RUBATO_OK) {
		own_write(comm, &own, here, bytes);
		err = sets_exchange(comm, bootstrap, deadline_ns, bytes, said);
	}
	rb_engine_enter(&comm->engine);
	if (probe != NULL) /* Peers that tell what they saw look at it no more. */
		rb_memory_drop(&comm->memory, probe);
	rb_engine_leave(&comm->engine);
	return err;
}

static int by_word(const void *a, const void *b)
{
	const struct rb_numbered *x = a, *y = b;

	if (x->word != y->word)
		return x->word < y->word ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

uint32_t rb_words_number(const uint64_t *words, uint32_t count, uint32_t *number_of,
			 struct rb_numbered *order)
{
	uint32_t numbers = 0;
	bool rising = true; /* As a rule: all equal, or in the order of ranks. */

	for (uint32_t i = 0; i < count; i++) {
		order[i] = (struct rb_numbered) { words[i], i };
		rising &= i == 0 || words[i - 1] <= words[i];
	}
	if (!rising)
		qsort(order, count, sizeof(*order), by_word);
	for (uint32_t i = 0, first = 0; i < count; i++) {
		first = order[i].word == order[first].word ? first : i;
		number_of[order[i].index] = order[first].index;
	}
	for (uint32_t i = 0; i < count; i++)
		number_of[i] = number_of[i] == i ? numbers++ : number_of[number_of[i]];
	return numbers;
}

/* Of what all have said, once nodes are known. */
static rubato_status locality_make(struct rubato_comm *comm, const struct rb_whereabouts *places)
{
	const struct rb_nodes *nodes = &comm->choices.nodes;
	struct rb_locality *l = &comm->locality;
	bool simulated = rb_engine_time_is_virtual(&comm->engine); /* Then a node is a host. */
	uint32_t n = nodes->rank_count;
	struct rb_numbered *order = calloc(n, sizeof(*order));
	uint64_t *words = calloc(n, sizeof(*words));
	rubato_status err = RUBATO_OK;

	l->card_of = calloc(n, sizeof(*l->card_of));
	l->host_of = calloc(nodes->count, sizeof(*l->host_of));
	l->domain_of = calloc(n, sizeof(*l->domain_of));
	if (order == NULL || words == NULL || l->card_of == NULL || l->host_of == NULL ||
	    l->domain_of == NULL) {
		err = RB_FAIL(RUBATO_ERR_MEMORY, "facts of %u ranks", n);
	} else {
		for (uint32_t r = 0; r < n; r++) {
			words[r] = places[r].card;
			l->domain_of[r] = places[r].domain < RB_LOCALITY_NONE
						  ? (uint16_t)places[r].domain
						  : RB_LOCALITY_NONE;
		}
		l->card_count = rb_words_number(words, n, l->card_of, order);
		for (uint32_t i = 0; i < nodes->count; i++)
			words[i] = simulated ? i : places[rb_node_rank(nodes, i, 0)].host;
		l->host_count = rb_words_number(words, nodes->count, l->host_of, order);
	}
	free(order);
	free(words);
	return err;
}

/* What each rank says becomes what all know. */
static rubato_status facts_make(struct rubato_comm *comm, const struct said *said)
{
	uint32_t n = comm->engine.rank_count;
	uint32_t *name_of = calloc(n, sizeof(*name_of));
	uint32_t *words = calloc(RB_NODES_WORDS(n), sizeof(*words));
	struct rb_choices *choices = &comm->choices;

	if (name_of == NULL || words == NULL) {
		free(name_of);
		free(words);
		return RB_FAIL(RUBATO_ERR_MEMORY, "facts of %u ranks", n);
	}
	rb_nodes_name(said->sets, n, name_of, said->sets + n);
	rb_nodes_make(&choices->nodes, words, name_of, n);
	free(name_of);
	RB_TRY(locality_make(comm, said->places));
	choices->facts.rank_count = n;
	choices->facts.nodes = &choices->nodes;
	choices->facts.mapped &= choices->nodes.count == 1;
	choices->facts.card_ranks = (n + comm->locality.card_count - 1) / comm->locality.card_count;
	choices->facts.own_links = choices->nodes.count == n && comm->locality.card_count == n;
	RB_LOG(RB_LOG_INFO, "%u ranks on %u nodes, %u or more on each; %u cards, %u hosts", n,
	       choices->nodes.count, choices->nodes.least, comm->locality.card_count,
	       comm->locality.host_count);
	return RUBATO_OK;
}

/* Of the bootstrap's, for one of ours; *at stays ours where there is no memory. */
static bool keep(struct rb_bootstrap *bootstrap, void **at, size_t bytes)
{
	void *kept = bootstrap->keep(bootstrap, *at, bytes);

	if (kept == NULL)
		return false;
	free(*at);
	*at = kept;
	return true;
}

/* Many ranks of a process need not have tables each. */
static rubato_status facts_keep(struct rubato_comm *comm, struct rb_bootstrap *bootstrap)
{
	struct rb_nodes *nodes = &comm->choices.nodes;
	struct rb_locality *l = &comm->locality;
	size_t n = nodes->rank_count;
	void *words = nodes->node_of, *cards = l->card_of, *hosts = l->host_of,
	     *domains = l->domain_of;
	bool kept = keep(bootstrap, &words, RB_NODES_WORDS(n) * sizeof(*nodes->node_of));

	rb_nodes_move(nodes, words);
	comm->kept.nodes = kept;
	comm->kept.cards = kept && keep(bootstrap, &cards, n * sizeof(*l->card_of));
	comm->kept.hosts =
		comm->kept.cards && keep(bootstrap, &hosts, nodes->count * sizeof(*l->host_of));
	comm->kept.domains =
		comm->kept.hosts && keep(bootstrap, &domains, n * sizeof(*l->domain_of));
	l->card_of = cards;
	l->host_of = hosts;
	l->domain_of = domains;
	return comm->kept.domains ? RUBATO_OK : RB_FAIL(RUBATO_ERR_MEMORY, "facts of %zu ranks", n);
}

rubato_status rb_facts_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
			     const struct rb_whereabouts *here, uint64_t deadline_ns)
{
	struct said said = { NULL, NULL };
	rubato_status err = sets_find(comm, bootstrap, here, deadline_ns, &said);

	if (err == RUBATO_OK)
		err = facts_make(comm, &said);
	if (err == RUBATO_OK && bootstrap->keep != NULL)
		err = facts_keep(comm, bootstrap);
	free(said.sets);
	free(said.places);
	return err;
}
