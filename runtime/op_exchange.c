/* op_exchange.c -- see op_exchange.h. */
#include "runtime/op_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/op_stage.h"

#define PAIR_RECORD 2u /* in, out: the blocks that the two have for each other */
#define WORD_RECORD 3u /* in, out, scratch */
#define PUT_RECORD 4u  /* and 1: puts do not reach all that they write; then keys */
#define KEY_HEAD 2u    /* offset, key bytes; then the key */
/* In two bits of a word that transports leave alone: the kind of memory that the buffer is, or that
 * there is no buffer. */
#define KIND_SHIFT 58
#define KIND_BITS (UINT64_C(3) << KIND_SHIFT)
#define NO_KIND 3u
#define WORD_EMPTY (~KIND_BITS)           /* Nothing to be mapped. */
#define SHARED (UINT64_C(1) << 60)        /* The word is that of a share (executor.h). */
#define AHEAD (UINT64_C(1) << KIND_SHIFT) /* Of scratch: its slots are full (RB_STEP_AHEAD). */

/* What puts may write. Records have their keys in this order, for every transport that some rank
 * has an endpoint of. */
static const enum rb_buffer targets[] = { RB_BUF_OUT, RB_BUF_SCRATCH };
#define TARGETS (sizeof(targets) / sizeof(targets[0]))

/* Of a target's keys for the transports before this one; RB_ENDPOINTS_MAX: for all. */
static uint32_t key_words(const struct rubato_comm *comm, uint32_t transport)
{
	uint32_t words = 0;

	for (uint32_t i = 0; i < transport; i++)
		words += comm->key_words[i] > 0 ? KEY_HEAD + comm->key_words[i] : 0;
	return words;
}

static uint32_t key_record(const struct rubato_comm *comm)
{
	return PUT_RECORD + (uint32_t)TARGETS * key_words(comm, RB_ENDPOINTS_MAX);
}

/* Where a record has a target's key for a transport. */
static uint32_t key_at(const struct rubato_comm *comm, uint32_t target, uint32_t transport)
{
	return PUT_RECORD + target * key_words(comm, RB_ENDPOINTS_MAX) + key_words(comm, transport);
}

/* The communicator's, made when it is first asked for: each has a step for every rank. */
static rubato_status exchange_plan(struct rubato_comm *comm, enum rb_exchange which,
				   struct rb_plan **out)
{
	static const struct {
		enum rb_kind kind;
		uint32_t words; /* 0: as key_record says. */
	} exchanges[RB_EXCHANGE_COUNT] = {
		[RB_EXCHANGE_WORDS] = { RB_KIND_ALLGATHER, WORD_RECORD },
		[RB_EXCHANGE_KEYS] = { RB_KIND_ALLGATHER, 0 },
		[RB_EXCHANGE_NODE] = { RB_KIND_ALLGATHER, WORD_RECORD },
		[RB_EXCHANGE_OPENED] = { RB_KIND_ALLGATHER, 1 },
		[RB_EXCHANGE_NODE_OPENED] = { RB_KIND_ALLGATHER, 1 },
	};
	int flat = rb_algorithm_find(exchanges[which].kind, "flat");
	uint32_t words = exchanges[which].words > 0 ? exchanges[which].words : key_record(comm);
	struct rb_plan_key key = { .count = words,
				   .kind = (uint8_t)exchanges[which].kind,
				   .element_bytes = 8,
				   .algorithm = (uint8_t)flat };
	struct rb_choice choice = { .align = 1, .chunk = words };
	struct rb_build who = { .rank = comm->engine.rank, .rank_count = comm->engine.rank_count };

	RB_ASSERT(flat >= 0);
	if (which == RB_EXCHANGE_NODE || which == RB_EXCHANGE_NODE_OPENED) {
		const struct rb_nodes *nodes = &comm->choices.nodes;

		who.rank_count = rb_node_size(nodes, nodes->node_of[who.rank]);
		who.rank = nodes->place_of[who.rank];
	}
	if (comm->plans.exchange[which] == NULL)
		RB_TRY(rb_plan_make(&key, NULL, &choice, &who, &comm->plans.exchange[which]));
	*out = comm->plans.exchange[which];
	return RUBATO_OK;
}

/* Among `count` ranks, of which this one is the first: so many words from each to each other. */
static rubato_status pairs_plan(struct rubato_op *op, uint32_t count, uint32_t words)
{
	struct rb_plan_cache *cache = &op->comm->plans.cache;
	int flat = rb_algorithm_find(RB_KIND_ALLTOALL, "flat");
	struct rb_plan_key key = { .count = words,
				   .root = count, /* Tells it from others; of no other use. */
				   .kind = RB_KIND_ALLTOALL,
				   .element_bytes = 8,
				   .algorithm = (uint8_t)flat };
	struct rb_choice choice = { .align = 1, .chunk = words };
	struct rb_build who = { .rank = 0, .rank_count = count };
	struct rb_plan *plan = rb_plan_cache_find(cache, &key, NULL);

	RB_ASSERT(flat >= 0 && count > 1);
	if (plan == NULL) {
		RB_TRY(rb_plan_make(&key, NULL, &choice, &who, &plan));
		rb_plan_cache_add(cache, plan);
	}
	if (op->exchange.plan != NULL)
		op->exchange.plan->users--;
	op->exchange.plan = plan;
	plan->users++;
	return rb_run_init(&op->exchange.run, plan);
}

/* By pairs: those whose memory the plan works in, or where it is persistent, all. */
static rubato_status pairs_find(struct rubato_op *op)
{
	struct rb_op_exchange *x = &op->exchange;
	uint32_t n = op->comm->engine.rank_count, rank = op->comm->engine.rank;

	if (x->pairs == NULL)
		x->pairs = calloc(n, sizeof(*x->pairs));
	if (x->opening == NULL)
		x->opening = calloc(n, sizeof(*x->opening));
	if (x->apart == NULL)
		x->apart = calloc(n, sizeof(*x->apart));
	if (x->pairs == NULL || x->opening == NULL || x->apart == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "records of %u ranks", n);
	memcpy(x->apart, op->plan->apart, n);
	x->ranks = x->pairs;
	x->rank_count = 0;
	x->pairs[x->rank_count++] = rank;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t r = (rank + i) % n;

		/* Those of other nodes count as apart, where their blocks are short. */
		if (op->persistent || (!x->apart[r] && rb_comm_maps(op->comm, r)))
			x->pairs[x->rank_count++] = r;
	}
	return RUBATO_OK;
}

/* Who takes part: all ranks, or, where the algorithm touches the node's memory alone, its ranks.
 * Puts go beyond. What is persistent is made by all together, and so compared. */
static void ranks_find(struct rubato_op *op)
{
	const struct rb_nodes *nodes = &op->comm->choices.nodes;
	uint32_t node = nodes->node_of[op->comm->engine.rank];
	bool by_node = op->plan->algorithm->by_node && nodes->count > 1 && !op->persistent &&
		       !(op->plan->schedule.flags & RB_SCHEDULE_PUT);

	op->exchange.ranks = by_node ? nodes->ranks + nodes->first[node] : NULL;
	op->exchange.rank_count = by_node ? rb_node_size(nodes, node) : nodes->rank_count;
}

/* The rank whose record is the i-th. */
static uint32_t rank_at(const struct rubato_op *op, uint32_t i)
{
	return op->exchange.ranks != NULL ? op->exchange.ranks[i] : i;
}

static const uint64_t *record_at(const struct rubato_op *op, uint32_t i)
{
	return op->exchange.records + (size_t)i * op->exchange.record_words;
}

static enum rb_exchange exchange_of(const struct rubato_op *op, bool keys)
{
	bool by_node = op->exchange.ranks != NULL;

	if (keys)
		return RB_EXCHANGE_KEYS;
	return by_node ? RB_EXCHANGE_NODE : RB_EXCHANGE_WORDS;
}

/* What has words for a buffer on a device, if not the transport. */
static const struct rb_executor *speaker(const struct rubato_op *op, uint32_t buffer)
{
	const struct rb_executor *device = op->device.executor;

	return buffer != RB_BUF_SCRATCH && op->device.kinds[buffer] == RB_MEMORY_DEVICE &&
			       device->ops->word_of != NULL
		       ? device
		       : NULL;
}

#define SHARES_WHOLE 2u /* Of IN and OUT; then of each peer's blocks there. */

/* Room for what other processes find buffers on a device by, where they may want to. */
static rubato_status shares_prepare(struct rubato_op *op)
{
	const struct rb_executor *device = op->device.executor;
	bool pairs = rb_plan_by_pairs(op->plan);
	size_t count = SHARES_WHOLE + (pairs ? 2 * (size_t)op->exchange.rank_count : 0);
	struct rb_memory **shares = &op->exchange.shares;

	if (device == NULL || device->ops->share_of == NULL || rb_comm_in_process(op->comm) ||
	    !(op->plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) ||
	    (*shares != NULL && (*shares)->size_bytes >= count * sizeof(struct rb_share)))
		return RUBATO_OK;
	if (*shares != NULL)
		rb_memory_drop(&op->comm->memory, *shares);
	*shares = NULL;
	return rb_memory_alloc(&op->comm->memory, count * sizeof(struct rb_share), shares);
}

rubato_status rb_exchange_prepare(struct rubato_op *op)
{
	uint32_t n = op->comm->engine.rank_count;
	bool keys = (op->plan->schedule.flags & RB_SCHEDULE_PUT) != 0;
	bool pairs = rb_plan_by_pairs(op->plan);
	uint32_t words = pairs ? PAIR_RECORD : keys ? key_record(op->comm) : WORD_RECORD;
	size_t own = pairs ? (size_t)n * words : words;
	struct rb_plan *plan;

	RB_ASSERT(!(keys && pairs));
	if (pairs)
		RB_TRY(pairs_find(op));
	else
		ranks_find(op);
	if (op->comm->engine.device_count > 0)
		RB_TRY(shares_prepare(op));
	if (op->exchange.peers == NULL)
		op->exchange.peers = calloc(n, sizeof(*op->exchange.peers));
	if (op->exchange.record_room < words || op->exchange.own_room < own) {
		free(op->exchange.records);
		free(op->exchange.own_record);
		op->exchange.records = calloc((size_t)n * words, sizeof(*op->exchange.records));
		op->exchange.own_record = calloc(own, sizeof(*op->exchange.own_record));
		op->exchange.record_room = words;
		op->exchange.own_room = own;
	}
	if (op->exchange.peers == NULL || op->exchange.records == NULL ||
	    op->exchange.own_record == NULL) {
		op->exchange.record_room = 0;
		return RB_FAIL(RUBATO_ERR_MEMORY, "records of %u ranks", n);
	}
	op->exchange.record_words = words;
	op->exchange.run.ranks = op->exchange.ranks;
	op->exchange.run.pairs = pairs ? &op->plan->layout : NULL;
	if (pairs)
		return pairs_plan(op, op->exchange.rank_count, PAIR_RECORD);
	RB_TRY(exchange_plan(op->comm, exchange_of(op, keys), &plan));
	return rb_run_init(&op->exchange.run, plan);
}

/* ---- Records ---- */

static struct rb_memory *memory_for_put(struct rubato_op *op, enum rb_buffer buffer, void *base,
					uint64_t bytes)
{
	struct rb_memory *memory = rb_memory_find(&op->comm->memory, base, bytes);
	bool new = memory == NULL;

	if (new &&rb_memory_add(&op->comm->memory, base, bytes, &memory) != RUBATO_OK)
		return NULL;
	if (memory->allocated)
		return memory;
	memory->users++;
	op->exchange.added[buffer] = memory;
	op->exchange.holds = true;
	return memory;
}

static bool key_write(struct rubato_op *op, const struct rb_memory *memory, const void *base,
		      uint32_t endpoint, uint64_t *words)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[endpoint];
	struct rb_region *region = memory->regions[endpoint];
	uint8_t key[RB_KEY_BYTES_MAX] = { 0 };
	size_t key_bytes = 0;

	if (region == NULL || ep->ops->region_key(ep, region, key, &key_bytes) != RUBATO_OK)
		return false;
	RB_ASSERT(key_bytes > 0 && key_bytes <= ep->ops->key_bytes);
	words[0] = (uint64_t)((const uint8_t *)base - (const uint8_t *)region->base);
	words[1] = key_bytes;
	memcpy(words + KEY_HEAD, key, key_bytes);
	return true;
}

/* One for each endpoint that this rank has: a peer takes that of the transport between us. Whether
 * there are all: some memory cannot be registered, and devices are not reached by all. */
static bool keys_write(struct rubato_op *op, uint32_t target, void *base, uint64_t bytes)
{
	struct rubato_comm *comm = op->comm;
	uint64_t *record = op->exchange.own_record;
	bool source = op->kind == RB_KIND_BROADCAST && op->root == comm->engine.rank &&
		      targets[target] == RB_BUF_OUT;
	struct rb_memory *memory;
	bool all;

	memset(record + key_at(comm, target, 0), 0,
	       key_words(comm, RB_ENDPOINTS_MAX) * sizeof(*record));
	if (bytes == 0 || base == NULL || source)
		return true;
	memory = memory_for_put(op, targets[target], base, bytes);
	all = memory != NULL;
	for (uint32_t i = 0; memory != NULL && i < comm->engine.endpoint_count; i++)
		all &= key_write(op, memory, base, i,
				 record + key_at(comm, target, comm->engine.transport[i]));
	return all;
}

/* 0: it cannot be shared. Peers have read what stood there before, or never will: op_exchange.h. */
static uint64_t share_word(struct rubato_op *op, uint32_t buffer, uint32_t place, const void *base)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];
	struct rb_executor *device = op->device.executor;
	struct rb_share *share;
	uint64_t word;

	if (op->exchange.shares == NULL || op->comm->sharing_refused || ep->ops->word_of == NULL)
		return 0;
	share = (struct rb_share *)(void *)op->exchange.shares->base + 2 * place + buffer;
	if (!device->ops->share_of(device, base, share))
		return 0;
	word = ep->ops->word_of(ep, share, sizeof(*share));
	return word != 0 ? word | SHARED : 0;
}

/* place 0: the buffer's; 1 and on: those of the blocks of who takes part. */
static uint64_t word_of(struct rubato_op *op, uint32_t buffer, uint32_t place, const void *base,
			uint64_t bytes)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];
	const struct rb_executor *device = speaker(op, buffer);

	if (bytes == 0)
		return WORD_EMPTY;
	if (device != NULL)
		return rb_comm_in_process(op->comm) ? device->ops->word_of(device, base)
						    : share_word(op, buffer, place, base);
	return ep->ops->word_of != NULL && base != NULL ? ep->ops->word_of(ep, base, bytes) : 0;
}

/* The block of IN or OUT that concerns rank r, in elements. */
static uint64_t peer_block(const struct rb_layout *layout, uint32_t buffer, uint32_t r,
			   uint64_t *length)
{
	if (buffer == RB_BUF_OUT) {
		*length = rb_layout_out_length(layout, r, 1);
		return rb_layout_out_offset(layout, r);
	}
	*length = rb_layout_length(layout, r, 1);
	return rb_layout_offset(layout, r);
}

/* Managed memory counts as the host's: whoever works in it reaches it. */
static void kinds_write(const struct rubato_op *op, const uint64_t bytes[RB_BUFFER_COUNT],
			uint64_t *words)
{
	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		bool device = op->device.kinds[b] == RB_MEMORY_DEVICE;
		uint64_t kind = bytes[b] == 0 ? NO_KIND
				: device      ? RB_MEMORY_DEVICE
					      : RB_MEMORY_HOST;

		words[b] = (words[b] & ~KIND_BITS) | kind << KIND_SHIFT;
	}
}

/* One record for each other that takes part: the blocks that concern it. */
static void pair_records_write(struct rubato_op *op, void *const base[RB_BUFFER_COUNT],
			       const uint64_t bytes[RB_BUFFER_COUNT])
{
	const struct rb_layout *layout = &op->plan->layout;
	uint64_t element = op->plan->key.element_bytes;

	for (uint32_t i = 1; i < op->exchange.rank_count; i++) {
		uint64_t *words = op->exchange.own_record + (size_t)i * PAIR_RECORD;

		for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
			uint64_t length, first = peer_block(layout, b, rank_at(op, i), &length);
			uint8_t *at = length > 0 ? (uint8_t *)base[b] + first * element : NULL;

			words[b] = word_of(op, b, 1 + i, at, length * element);
		}
		kinds_write(op, bytes, words);
	}
}

#define SEEN_UNMAPPED 12u

/* What the records of all who exchange say: bit 4 b + kind for IN and OUT, bit SEEN_UNMAPPED + b
 * where a rank's is not mapped. All see the same, before they touch any. */
static uint32_t words_look(const struct rubato_op *op)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < op->exchange.rank_count; i++) {
		const uint64_t *words = record_at(op, i);
		uint64_t in = words[RB_BUF_IN], out = words[RB_BUF_OUT];

		seen |= 1u << (in >> KIND_SHIFT & 3) | 16u << (out >> KIND_SHIFT & 3);
		seen |= (uint32_t)((in & ~KIND_BITS) == 0) << (SEEN_UNMAPPED + RB_BUF_IN);
		seen |= (uint32_t)((out & ~KIND_BITS) == 0) << (SEEN_UNMAPPED + RB_BUF_OUT);
		seen |= (uint32_t)(words[RB_BUF_SCRATCH] == 0) << (SEEN_UNMAPPED + RB_BUF_SCRATCH);
	}
	return seen;
}

/* Whether the words of buffers on devices are of devices that work in each other's memory. */
static bool kin(const struct rubato_op *op)
{
	const struct rb_executor *device = op->device.executor;
	uint32_t first = UINT32_MAX;

	if (device == NULL || device->ops->word_kin == NULL)
		return true;
	for (uint32_t i = 0; i < op->exchange.rank_count; i++)
		for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
			uint64_t word = record_at(op, i)[b];
			uint32_t its = device->ops->word_kin(word & ~KIND_BITS);

			if (word >> KIND_SHIFT != RB_MEMORY_DEVICE)
				continue; /* Or shared: whether that does is tried. */
			if (first != UINT32_MAX && its != first)
				return false;
			first = its;
		}
	return true;
}

/* Work in each other's buffers is for memory of one kind, IN's and OUT's: *one. */
static rubato_status kinds_agree(struct rubato_op *op, uint32_t seen, bool *one)
{
	enum rb_memory_kind kinds[2];

	*one = true;
	if ((seen & (1u << RB_MEMORY_DEVICE | 16u << RB_MEMORY_DEVICE)) == 0)
		return RUBATO_OK;
	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		uint32_t its = seen >> 4 * b;

		kinds[b] = its >> RB_MEMORY_DEVICE & 1 ? RB_MEMORY_DEVICE : RB_MEMORY_HOST;
		*one = *one && !(its >> RB_MEMORY_DEVICE & its >> RB_MEMORY_HOST & 1);
	}
	if (*one)
		RB_TRY(rb_op_kinds_agree(op, kinds));
	*one = *one && kin(op);
	return RUBATO_OK;
}

bool rb_exchange_is_staged(const struct rubato_op *op)
{
	const uint64_t *words = op->exchange.own_record;
	bool unmapped =
		(words[RB_BUF_IN] & ~KIND_BITS) == 0 || (words[RB_BUF_OUT] & ~KIND_BITS) == 0;

	return words[RB_BUF_SCRATCH] != 0 &&
	       (unmapped || !(op->plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS));
}

void rb_exchange_ahead(struct rubato_op *op)
{
	op->exchange.own_record[RB_BUF_SCRATCH] |= AHEAD;
}

void rb_exchange_write(struct rubato_op *op)
{
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT], words[RB_BUFFER_COUNT];

	op->exchange.sharing = RB_SHARES_NONE;
	rb_op_buffers(op, base, bytes);
	if (rb_plan_by_pairs(op->plan)) {
		pair_records_write(op, base, bytes);
		return;
	}
	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
		words[b] = word_of(op, b, 0, base[b], bytes[b]);
		if (b == RB_BUF_SCRATCH && bytes[b] == 0)
			words[b] = 0;
	}
	memcpy(op->exchange.own_record, words, sizeof(words));
	kinds_write(op, bytes, op->exchange.own_record);
	if (op->exchange.record_words == WORD_RECORD)
		return;
	op->exchange.own_record[WORD_RECORD] = 0;
	for (uint32_t t = 0; t < TARGETS; t++)
		if (!keys_write(op, t, base[targets[t]], bytes[targets[t]]))
			op->exchange.own_record[WORD_RECORD] = 1;
}

/* NULL: it cannot be, and op->comm's rank cannot know why before it has tried. */
static void *share_open(struct rubato_op *op, uint32_t r, uint64_t word, uint64_t reach)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];
	struct rb_executor *device = op->device.executor;
	const struct rb_share *share = ep->ops->word_map(ep, r, word, sizeof(*share));
	void *address = NULL;

	if (share != NULL && device->ops->share_open != NULL &&
	    device->ops->share_open(device, share, reach, &address) != RUBATO_OK)
		RB_LOG(RB_LOG_INFO, "rank %u: device memory of rank %u: %s", op->comm->engine.rank,
		       r, rubato_error_text());
	return address;
}

/* Where rank r's `buffer` is here, as the plan's spans count. NULL: not to be mapped so far as our
 * plan goes, or nothing that it touches (a gather's other senders: they may have freed it). */
static void *record_map(struct rubato_op *op, const struct rb_plan *plan, uint32_t r,
			uint32_t buffer, uint64_t word, void *own)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];
	uint64_t reach =
		plan->reach != NULL ? plan->reach[(size_t)r * RB_BUFFER_COUNT + buffer] : 0;

	if (r == op->comm->engine.rank)
		return own;
	if (reach == 0 || word == 0 || word == WORD_EMPTY || !rb_comm_maps(op->comm, r))
		return NULL;
	if (speaker(op, buffer) == NULL)
		return ep->ops->word_map(ep, r, word, reach);
	return word & SHARED ? share_open(op, r, word & ~SHARED, reach)
			     : op->device.executor->ops->word_map(op->device.executor, word, reach);
}

/* *all: every rank's buffers that `plan` may touch in place can be mapped here. Errors: PEER. */
static rubato_status words_map(struct rubato_op *op, const struct rb_plan *plan, bool *all)
{
	struct rb_engine *engine = &op->comm->engine;
	bool buffers = (plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) != 0;
	bool scratch = (plan->schedule.flags & RB_SCHEDULE_MAPPED_SCRATCH) != 0;
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT];

	uint32_t seen = words_look(op), needs = (buffers ? 3u : 0) | (scratch ? 4u : 0);

	*all = (seen >> SEEN_UNMAPPED & needs) == 0;
	if (*all && buffers)
		RB_TRY(kinds_agree(op, seen, all));
	if (!*all)
		return RUBATO_OK;
	rb_op_buffers(op, base, bytes);
	for (uint32_t i = 0; i < op->exchange.rank_count; i++) {
		const uint64_t *words = record_at(op, i);
		uint32_t r = rank_at(op, i);

		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			bool needed = b == RB_BUF_SCRATCH ? scratch : buffers;
			uint64_t word = words[b] & ~KIND_BITS;

			op->exchange.peers[r].mapped[b] = record_map(op, plan, r, b, word, base[b]);
			if (needed && op->exchange.peers[r].mapped[b] == NULL &&
			    r != engine->rank && plan->reach[(size_t)r * RB_BUFFER_COUNT + b] > 0)
				return RB_FAIL(RUBATO_ERR_PEER,
					       "%s: rank %u says that its buffer lies where none "
					       "of its memory is",
					       rb_kind_name(op->kind), r);
		}
	}
	return RUBATO_OK;
}

/* Whether there is a rank whose buffers puts do not all reach: all see it alike. */
static bool puts_refused(const struct rubato_op *op)
{
	uint64_t refused = 0;

	for (uint32_t i = 0; i < op->exchange.rank_count; i++)
		refused |= record_at(op, i)[WORD_RECORD];
	return refused != 0;
}

static bool is_shared(uint64_t word)
{
	return word >> KIND_SHIFT == (SHARED >> KIND_SHIFT | RB_MEMORY_DEVICE);
}

/* Whether all lies on devices, and some of it in processes that have to open each other's: all see
 * it alike. */
static bool opens(const struct rubato_op *op)
{
	const struct rb_schedule *schedule = &op->plan->schedule;
	uint32_t seen = words_look(op), host = 1u << RB_MEMORY_HOST, there = 1u << RB_MEMORY_DEVICE;
	bool shared = false;

	for (uint32_t i = 0; i < op->exchange.rank_count; i++)
		shared = shared || is_shared(record_at(op, i)[RB_BUF_IN]) ||
			 is_shared(record_at(op, i)[RB_BUF_OUT]);
	return shared && (schedule->flags & RB_SCHEDULE_MAPPED_BUFFERS) &&
	       (seen >> SEEN_UNMAPPED & 3u) == 0 &&
	       !((seen & host && seen & there) || (seen >> 4 & host && seen >> 4 & there)) &&
	       !((schedule->flags & RB_SCHEDULE_PUT) && puts_refused(op));
}

static void share_close(struct rubato_op *op, uint32_t i)
{
	struct rb_executor *device = op->device.executor;

	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		void **mapped = &op->exchange.peers[rank_at(op, i)].mapped[b];

		if (*mapped != NULL && rank_at(op, i) != op->comm->engine.rank &&
		    is_shared(record_at(op, i)[b]))
			device->ops->share_close(device, *mapped);
		*mapped = NULL;
	}
}

static void shares_close(struct rubato_op *op)
{
	for (uint32_t i = 0; op->exchange.sharing != RB_SHARES_NONE && i < op->exchange.rank_count;
	     i++)
		share_close(op, i);
	op->exchange.sharing = RB_SHARES_NONE;
}

/* ---- By pairs ---- */

/* Whether it and we can work in each other's memory, as far as the two records say: both see it
 * alike. Where that is a device's, both have some in both buffers, and of the same kinds: then it
 * is the same for all that a rank works with. *shared: it is opened first. */
static bool pair_maps(const struct rubato_op *op, uint32_t i, bool *shared)
{
	const uint64_t *theirs = record_at(op, i);
	const uint64_t *ours = op->exchange.own_record + (size_t)i * PAIR_RECORD;
	const struct rb_executor *device = op->device.executor;
	bool on_device = false, same = true;
	uint32_t first = UINT32_MAX;

	*shared = false;
	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		uint64_t words[2] = { theirs[b], ours[b] };
		uint64_t kinds[2];

		for (uint32_t k = 0; k < 2; k++) {
			kinds[k] = words[k] >> KIND_SHIFT & 3;
			on_device |= kinds[k] == RB_MEMORY_DEVICE;
			*shared |= is_shared(words[k]);
			if ((words[k] & ~KIND_BITS) == 0)
				return false;
		}
		same &= kinds[0] == kinds[1];
	}
	if (!on_device)
		return true;
	for (uint32_t k = 0; same && k < 2 * PAIR_RECORD; k++) {
		uint64_t word = k < PAIR_RECORD ? theirs[k] : ours[k - PAIR_RECORD];
		bool names = word >> KIND_SHIFT == RB_MEMORY_DEVICE && device != NULL &&
			     device->ops->word_kin != NULL;
		uint32_t its = names ? device->ops->word_kin(word & ~KIND_BITS) : first;

		same = first == UINT32_MAX || its == first;
		first = its;
	}
	return same && device != NULL;
}

static rubato_status pair_map(struct rubato_op *op, uint32_t i, void *const base[RB_BUFFER_COUNT])
{
	uint32_t r = rank_at(op, i);

	for (uint32_t b = RB_BUF_IN; b <= RB_BUF_OUT; b++) {
		void **mapped = &op->exchange.peers[r].mapped[b];

		*mapped = record_map(op, op->plan, r, b, record_at(op, i)[b] & ~KIND_BITS, base[b]);
		if (*mapped == NULL && op->plan->reach[(size_t)r * RB_BUFFER_COUNT + b] > 0)
			return RB_FAIL(RUBATO_ERR_PEER,
				       "%s: rank %u says that its buffer lies where none of its "
				       "memory is",
				       rb_kind_name(op->kind), r);
	}
	return RUBATO_OK;
}

/* Maps what can be. What is shared, its own exchange follows for: whether both could open it. */
static rubato_status pairs_map(struct rubato_op *op, bool *asks)
{
	struct rb_op_exchange *x = &op->exchange;
	uint32_t n = op->comm->engine.rank_count;
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT];

	memset(x->peers, 0, n * sizeof(*x->peers));
	rb_op_buffers(op, base, bytes);
	x->opening_count = 0;
	x->opening[x->opening_count++] = 0;
	for (uint32_t i = 1; i < x->rank_count; i++) {
		uint32_t r = rank_at(op, i);
		bool shared;

		if (x->apart[r] || !rb_comm_maps(op->comm, r))
			continue;
		x->apart[r] = !pair_maps(op, i, &shared);
		if (x->apart[r])
			continue;
		if (!shared) {
			RB_TRY(pair_map(op, i, base));
			continue;
		}
		if (x->opened == NULL)
			x->opened = calloc(n, sizeof(*x->opened));
		if (x->all_opened == NULL)
			x->all_opened = calloc(n, sizeof(*x->all_opened));
		if (x->opened == NULL || x->all_opened == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "records of %u ranks", n);
		x->sharing = RB_SHARES_OPEN;
		x->holds = true;
		x->opened[x->opening_count] = pair_map(op, i, base) == RUBATO_OK;
		x->opening[x->opening_count++] = i;
	}
	*asks = x->opening_count > 1;
	if (!*asks)
		return RUBATO_OK;
	/* From places to ranks, as the run takes them. */
	for (uint32_t k = 0; k < x->opening_count; k++)
		x->opening[k] = rank_at(op, x->opening[k]);
	x->run.ranks = x->opening;
	return pairs_plan(op, x->opening_count, 1);
}

static void refused_say(struct rubato_op *op, const char *to)
{
	op->comm->sharing_refused = true;
	RB_LOG(RB_LOG_INFO,
	       "rank %u: device memory goes to other processes through the host's from now on, as "
	       "%s could open it",
	       op->comm->engine.rank, to);
}

static void pairs_opened(struct rubato_op *op)
{
	struct rb_op_exchange *x = &op->exchange;
	uint32_t k = 1;

	for (uint32_t i = 1; i < x->rank_count && k < x->opening_count; i++) {
		uint32_t r = rank_at(op, i);

		if (r != x->opening[k])
			continue;
		x->apart[r] = x->opened[k] != 1 || x->all_opened[k] != 1;
		k++;
		if (!x->apart[r])
			continue;
		share_close(op, i);
		refused_say(op, "not both");
	}
}

rubato_status rb_exchange_open(struct rubato_op *op, bool *asks)
{
	struct rb_op_device device = op->device;
	uint32_t n = op->comm->engine.rank_count;
	struct rb_plan *plan;
	bool all = false;

	if (rb_plan_by_pairs(op->plan))
		return pairs_map(op, asks);
	*asks = opens(op);
	if (!*asks)
		return RUBATO_OK;
	if (op->exchange.opened == NULL)
		op->exchange.opened = calloc(n, sizeof(*op->exchange.opened));
	if (op->exchange.all_opened == NULL)
		op->exchange.all_opened = calloc(n, sizeof(*op->exchange.all_opened));
	if (op->exchange.opened == NULL || op->exchange.all_opened == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "records of %u ranks", n);
	memset(op->exchange.peers, 0, n * sizeof(*op->exchange.peers));
	op->exchange.sharing = RB_SHARES_OPEN;
	op->exchange.holds = true;
	op->exchange.opened[0] = words_map(op, op->plan, &all) == RUBATO_OK && all;
	if (!op->exchange.opened[0]) {
		shares_close(op);
		op->device = device;
	}
	RB_TRY(exchange_plan(
		op->comm, op->exchange.ranks != NULL ? RB_EXCHANGE_NODE_OPENED : RB_EXCHANGE_OPENED,
		&plan));
	return rb_run_init(&op->exchange.run, plan);
}

void rb_exchange_opened(struct rubato_op *op)
{
	bool all = true;

	if (rb_plan_by_pairs(op->plan)) {
		pairs_opened(op);
		return;
	}
	for (uint32_t i = 0; i < op->exchange.rank_count; i++)
		all = all && op->exchange.all_opened[i] == 1;
	if (all)
		return;
	shares_close(op);
	op->exchange.sharing = RB_SHARES_REFUSED;
	refused_say(op, "not all ranks");
}

static void remotes_close(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	for (uint32_t r = 0; op->exchange.peers != NULL && r < engine->rank_count; r++) {
		struct rb_endpoint *ep = rb_engine_endpoint(engine, r);

		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			if (op->exchange.peers[r].remote[b] != NULL)
				ep->ops->remote_close(ep, op->exchange.peers[r].remote[b]);
			op->exchange.peers[r].remote[b] = NULL;
		}
	}
}

/* A target of rank r, of which our puts write `reach` bytes, by the key that it gave for the
 * transport between us. */
static rubato_status remote_open(struct rubato_op *op, const struct rb_plan *plan, uint32_t r,
				 uint32_t target, uint64_t reach)
{
	struct rubato_comm *comm = op->comm;
	struct rb_engine *engine = &comm->engine;
	uint32_t transport = engine->transport[engine->route[r]], buffer = targets[target];
	struct rb_endpoint *ep = rb_engine_endpoint(engine, r);
	const uint64_t *words = record_at(op, r) + key_at(comm, target, transport);
	struct rb_remote **remote = &op->exchange.peers[r].remote[buffer];

	if (words[1] == 0)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "%s by %s: rank %u says that puts reach its buffers, and gave no "
			       "key",
			       rb_kind_name(op->kind), plan->algorithm->name, r);
	if (words[1] > 8 * (uint64_t)comm->key_words[transport])
		return RB_FAIL(RUBATO_ERR_PEER, "%s: rank %u gave a key of %llu bytes",
			       rb_kind_name(op->kind), r, (unsigned long long)words[1]);
	RB_TRY(ep->ops->remote_open(ep, r, words + KEY_HEAD, (size_t)words[1], remote));
	op->exchange.peers[r].remote_offset[buffer] = words[0];
	if (words[0] > (*remote)->size_bytes || reach > (*remote)->size_bytes - words[0])
		return RB_FAIL(RUBATO_ERR_PEER,
			       "%s: rank %u says that its buffer lies where none of its memory is",
			       rb_kind_name(op->kind), r);
	return RUBATO_OK;
}

static rubato_status remotes_open(struct rubato_op *op, const struct rb_plan *plan)
{
	remotes_close(op);
	op->exchange.holds = true;
	for (uint32_t r = 0; r < op->comm->engine.rank_count; r++)
		for (uint32_t t = 0; t < TARGETS; t++) {
			uint64_t reach = plan->put_reach[(size_t)r * RB_BUFFER_COUNT + targets[t]];

			if (reach > 0)
				RB_TRY(remote_open(op, plan, r, t, reach));
		}
	return RUBATO_OK;
}

/* All see it alike. What a rank said of slots that are not asked for then, nobody reads. */
static bool all_ahead(const struct rubato_op *op, const struct rb_plan *plan)
{
	uint64_t words = AHEAD;

	for (uint32_t i = 0; plan->goes_ahead && i < op->exchange.rank_count; i++)
		words &= record_at(op, i)[RB_BUF_SCRATCH];
	return plan->goes_ahead && words != 0;
}

rubato_status rb_exchange_use(struct rubato_op *op, struct rb_plan **out)
{
	struct rb_plan *plan = op->plan;
	bool all, puts = (plan->schedule.flags & RB_SCHEDULE_PUT) != 0;

	*out = NULL;
	if (rb_plan_by_pairs(plan)) {
		if (memcmp(op->exchange.apart, plan->apart, plan->schedule.rank_count) == 0)
			*out = plan;
		return RUBATO_OK;
	}
	if (puts && puts_refused(op)) {
		rb_exchange_release(op);
		return RUBATO_OK;
	}
	all = op->exchange.sharing == RB_SHARES_OPEN;
	if (op->exchange.sharing == RB_SHARES_NONE)
		RB_TRY(words_map(op, plan, &all));
	if (!all) {
		plan = op->plan_staged;
		if (plan != NULL)
			RB_TRY(words_map(op, plan, &all));
		if (!all)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "%s by %s needs memory from rubato_alloc on every rank",
				       rb_kind_name(op->kind), op->plan->algorithm->name);
		RB_TRY(rb_run_init(&op->run, plan));
	}
	if (puts)
		RB_TRY(remotes_open(op, plan));
	op->exchange.ahead = all_ahead(op, plan);
	*out = plan;
	return RUBATO_OK;
}

void rb_exchange_release(struct rubato_op *op)
{
	shares_close(op);
	remotes_close(op);
	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
		if (op->exchange.added[b] != NULL)
			rb_memory_release(&op->comm->memory, op->exchange.added[b]);
		op->exchange.added[b] = NULL;
	}
	op->exchange.holds = false;
}
