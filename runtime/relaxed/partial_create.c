/*
 * partial_create.c -- makes partial allreduces, and ends them.
 *
 * Making: every rank tells the others its options, which must agree, and where its slab is; then
 * whether it could open it: either all ranks have it or none. Ending: all ranks drain once more,
 * which leaves no round that anyone could wait for; a barrier says that all are here, neighbours
 * exchange a last message, so that none comes later, and a second barrier says that nobody touches
 * anybody's slab any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hollow.h"
#include "base/limits.h"
#include "collectives/reduce/identity.h"
#include "rubato_cuda.h"
#include "runtime/call.h"
#include "runtime/engine/absent.h"
#include "runtime/op_prepare.h"
#include "runtime/relaxed/partial.h"

#define DEPTH_DEFAULT 8u
#define DEPTH_MAX 4096u

/* ---- Options ---- */

/* What ranks tell each other and compare, a row each: its word, its name in errors, its value for
 * the operation `p` with the options `o`. */
#define COMPARED(ROW)                                                                              \
	ROW(COUNT, "count", p->vector.count)                                                       \
	ROW(TYPE, "type", p->vector.type)                                                          \
	ROW(OPERATOR, "operator", p->vector.op)                                                    \
	ROW(POLICY, "policy", o->policy)                                                           \
	ROW(ROUNDS, "rounds", o->rounds)                                                           \
	ROW(LATE, "late", o->late)                                                                 \
	ROW(COLLECTION, "collection", o->collection)                                               \
	ROW(NORMALISE, "normalise", o->normalise)                                                  \
	ROW(MEMBERS, "members", o->members)                                                        \
	ROW(QUORUM, "quorum", o->quorum)                                                           \
	ROW(GROUP, "group", o->group)                                                              \
	ROW(DEADLINE, "deadline_ns", o->deadline_ns)                                               \
	ROW(WINDOW, "window_ns", o->window_ns)                                                     \
	ROW(DEPTH, "depth", o->depth)                                                              \
	ROW(FULL_EVERY, "full_every", o->full_every)                                               \
	ROW(MAX_ABSENCE, "max_absence", o->max_absence)                                            \
	ROW(SEED, "seed", o->seed)                                                                 \
	ROW(WIRE, "wire", o->wire)                                                                 \
	ROW(DEVICE, "device", p->device.wanted)                                                    \
	ROW(ALGORITHM, "algorithm of allreduces", algorithm_of(p, p->reduction.plan))              \
	ROW(GROUPS, "algorithm of groups",                                                         \
	    algorithm_of(p,                                                                        \
			 p->reduction.group_plans != NULL ? p->reduction.group_plans[0] : NULL))   \
	ROW(STATE, "state", p->state_hash)
/* size_bytes, zeroed, feedback and the state itself are each rank's own. */
_Static_assert(sizeof(rubato_partial_options) == 104,
	       "a field more: is it compared, checked, and has it a default?");

#define WORD_ENUM(word, name, value) WORD_##word,
#define WORD_NAME(word, name, value) [WORD_##word] = (name),
#define WORD_FILL(word, name, value) words[WORD_##word] = (uint64_t)(value);

enum word {
	WORD_STATUS,
	WORD_SLAB,
	WORD_SLAB_BYTES, /* Ranks differ: in a tree some need more scratch. */
	COMPARED(WORD_ENUM) WORDS
};

_Static_assert((uint32_t)WORDS >= RB_PARTIAL_WORDS_MIN, "room for what devices' owners say");

static const char *const word_names[WORDS] = { COMPARED(WORD_NAME) };

/* One that rubato_set_algorithm has forced, for one: + 1; 0: none. For slabs on devices it is each
 * rank's choice what it can touch. */
static uint64_t algorithm_of(const struct rubato_partial *p, const struct rb_plan *plan)
{
	return plan != NULL && p->device.executor == NULL ? plan->key.algorithm + UINT64_C(1) : 0;
}

static void words_fill(const struct rubato_partial *p, uint64_t words[WORDS])
{
	const rubato_partial_options *o = &p->config.options;

	COMPARED(WORD_FILL)
}

static rubato_status wire_check(const struct rubato_partial *p)
{
	const rubato_partial_options *o = &p->config.options;
	bool adds = p->vector.op == RUBATO_SUM || p->vector.op == RUBATO_AVG;

	if ((unsigned)o->wire >= RUBATO_WIRE_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: wire %d", (int)o->wire);
	if (o->feedback > 1)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: feedback %u", o->feedback);
	if (o->wire != RUBATO_WIRE_SAME && (!adds || p->vector.type != RUBATO_FLOAT32))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial: a %s of %s cannot travel as %s: only sums and averages "
			       "of float32 can",
			       rubato_operator_name(p->vector.op), rubato_type_name(p->vector.type),
			       rubato_wire_name(o->wire));
	return RUBATO_OK;
}

static rubato_status options_check(const struct rubato_partial *p)
{
	const rubato_partial_options *o = &p->config.options;
	uint64_t element = rubato_type_bytes(p->vector.type);

	if (o->size_bytes < sizeof(*o))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial: options: start from RUBATO_PARTIAL_OPTIONS_INIT");
	if (element == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: unknown type %d",
			       (int)p->vector.type);
	if ((unsigned)p->vector.op >= RUBATO_OPERATOR_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: unknown operator %d",
			       (int)p->vector.op);
	if (p->vector.count > RB_BUFFER_BYTES_MAX / element / (DEPTH_MAX + 8))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: %llu elements do not fit memory",
			       (unsigned long long)p->vector.count);
	if ((unsigned)o->rounds > RUBATO_ROUNDS_FREE)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: rounds %d", (int)o->rounds);
	if ((unsigned)o->collection > RUBATO_COLLECT_LATEST)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: collection %d", (int)o->collection);
	if ((unsigned)o->normalise > RUBATO_BY_REMAINING)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: normalise %d", (int)o->normalise);
	if (o->depth > DEPTH_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: depth %u is more than %u", o->depth,
			       DEPTH_MAX);
	if (o->zeroed > 1)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: zeroed %u", o->zeroed);
	return wire_check(p);
}

static void options_default(rubato_partial_options *o, uint32_t member_count)
{
	if (o->quorum == 0)
		o->quorum = (member_count + 1) / 2;
	if (o->group == 0)
		o->group = member_count;
	if (o->depth == 0)
		o->depth = DEPTH_DEFAULT;
}

/* ---- Memory and plans ---- */

/* For slabs on devices: what works in peers' ones, or (apart) goes by messages. */
static rubato_status choose_there(const struct rubato_partial *p,
				  const struct rb_choice_facts *facts, uint32_t element_bytes,
				  bool apart, struct rb_choice *choice)
{
	uint32_t flags = rb_algorithms[choice->algorithm].flags;

	if (rb_partial_device_suits(p, flags) && !apart)
		return RUBATO_OK;
	if ((flags & (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH | RB_SCHEDULE_PUT)) ==
	    0)
		return RUBATO_OK;
	return rb_choose_without_puts(facts, RB_KIND_ALLREDUCE, p->vector.units, element_bytes,
				      choice);
}

static rubato_status plan_make(struct rubato_partial *p, uint32_t rank, uint32_t rank_count,
			       bool apart, struct rb_plan **plan)
{
	struct rb_choice_facts facts = p->comm->choices.facts;
	struct rb_build who = rb_comm_build(p->comm);
	int forced = p->comm->choices.forced[RB_KIND_ALLREDUCE];
	bool coded = p->vector.wire != RUBATO_WIRE_SAME;
	uint32_t element_bytes =
		coded ? rb_code_bytes(p->vector.wire) : (uint32_t)rubato_type_bytes(p->vector.type);
	struct rb_plan_key key = { .count = p->vector.units,
				   .kind = RB_KIND_ALLREDUCE,
				   .element_bytes = (uint8_t)element_bytes,
				   .coded = coded };
	struct rb_choice choice;

	facts.put = facts.ahead = false; /* Slabs have no keys; nobody goes ahead. */
	if (forced >= 0 && rb_algorithms[forced].flags & RB_SCHEDULE_PUT)
		forced = -1;
	/* Whoever comes may be of any node; and sums of nodes would be coded on the host. */
	if (rank_count != facts.rank_count || (coded && p->device.executor != NULL))
		facts.nodes = who.nodes = NULL;
	facts.rank_count = who.rank_count = rank_count;
	who.rank = rank;
	if (facts.host_ranks > rank_count)
		facts.host_ranks = rank_count;
	facts.coded = coded;
	RB_TRY(rb_choose(&facts, RB_KIND_ALLREDUCE, p->vector.units, element_bytes, forced,
			 &choice));
	if (p->device.executor != NULL)
		RB_TRY(choose_there(p, &facts, element_bytes, apart, &choice));
	key.algorithm = choice.algorithm;
	RB_TRY(rb_plan_make(&key, NULL, &choice, &who, plan));
	return rb_run_init(&p->reduction.run, *plan);
}

/* Words in plain memory: by messages. */
static rubato_status exchange_plan_make(struct rubato_partial *p)
{
	const struct rb_engine *engine = &p->comm->engine;
	struct rb_plan_key key = { .count = RB_ROUNDS_RECORD_WORDS,
				   .kind = RB_KIND_ALLGATHER,
				   .element_bytes = 8 };
	uint32_t mapped = RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH | RB_SCHEDULE_PUT;
	struct rb_choice_facts facts = p->comm->choices.facts;
	struct rb_build who = rb_comm_build(p->comm);
	struct rb_choice choice;
	uint64_t chunk;

	facts.put = facts.ahead = false;
	RB_TRY(rb_choose(&facts, RB_KIND_ALLGATHER,
			 (uint64_t)RB_ROUNDS_RECORD_WORDS * engine->rank_count, 8, -1, &choice));
	key.algorithm = choice.staged;
	/* Bruck passes on many records at once: in one message, not in pieces of a few records. */
	chunk = (uint64_t)engine->rank_count * RB_ROUNDS_RECORD_WORDS;
	if (chunk > facts.chunk_bytes_max / sizeof(uint64_t))
		chunk = facts.chunk_bytes_max / sizeof(uint64_t);
	choice.chunk = choice.chunk > chunk ? choice.chunk : chunk;
	RB_ASSERT((rb_algorithms[key.algorithm].flags & mapped) == 0);
	RB_TRY(rb_plan_make(&key, NULL, &choice, &who, &p->exchange.plan));
	if (p->exchange.plan->scratch_bytes > 0 &&
	    posix_memalign(&p->exchange.scratch, 64, p->exchange.plan->scratch_bytes) != 0)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: scratch of %llu bytes",
			       (unsigned long long)p->exchange.plan->scratch_bytes);
	return rb_run_init(&p->exchange.run, p->exchange.plan);
}

static rubato_status reductions_make(struct rubato_partial *p, bool apart, struct rb_plan **plan,
				     struct rb_plan ***group_plans)
{
	uint32_t n = p->config.rank_count, group = rb_rounds_group_ranks(&p->config);

	RB_TRY(plan_make(p, p->config.rank, n, apart, plan));
	if (!rb_rounds_grouped(&p->config))
		return RUBATO_OK;
	*group_plans = calloc(group, sizeof(struct rb_plan *));
	if (*group_plans == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: %u plans", group);
	for (uint32_t i = 0; i < group; i++)
		RB_TRY(plan_make(p, i, group, apart, &(*group_plans)[i]));
	return RUBATO_OK;
}

static rubato_status plans_make(struct rubato_partial *p)
{
	struct rb_partial_reduction *r = &p->reduction;
	uint32_t flags;

	if (!rb_rounds_meets(&p->config))
		RB_TRY(exchange_plan_make(p));
	RB_TRY(reductions_make(p, false, &r->plan, &r->group_plans));
	if (p->device.executor == NULL)
		return RUBATO_OK;
	flags = r->plan->schedule.flags;
	if (r->group_plans != NULL)
		flags |= r->group_plans[0]->schedule.flags;
	if (p->config.rank_count > 1 && flags & RB_SCHEDULE_MAPPED_BUFFERS)
		RB_TRY(reductions_make(p, true, &p->device.apart, &p->device.group_apart));
	return rb_partial_device_rooms(p);
}

static uint64_t scratch_bytes(const struct rubato_partial *p)
{
	uint64_t bytes = p->reduction.plan->scratch_bytes;

	for (uint32_t i = 0;
	     p->reduction.group_plans != NULL && i < rb_rounds_group_ranks(&p->config); i++)
		if (p->reduction.group_plans[i]->scratch_bytes > bytes)
			bytes = p->reduction.group_plans[i]->scratch_bytes;
	return bytes;
}

static rubato_status host_slab_make(struct rubato_partial *p, uint32_t buffers)
{
	RB_TRY(rb_memory_alloc(&p->comm->memory,
			       (size_t)(p->buffers.stride * buffers + scratch_bytes(p)),
			       &p->buffers.slab));
	p->buffers.base = p->buffers.slab->base;
	if (rb_hollow(p->buffers.base))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "partial: this simulation has no memory");
	/* Memory is zero as it comes. */
	if (p->vector.op != RUBATO_SUM && p->vector.op != RUBATO_AVG)
		rb_reduce_identity(p->vector.type, p->vector.op,
				   rb_partial_buffer(p, RB_PARTIAL_IDENTITY), p->vector.count);
	return RUBATO_OK;
}

static rubato_status slab_make(struct rubato_partial *p)
{
	uint32_t buffers = RB_PARTIAL_RESULTS + p->results.slot_count;

	p->buffers.stride = (p->vector.bytes + 127) / 128 * 128;
	RB_TRY(p->device.executor != NULL ? rb_partial_device_slab(p, buffers)
					  : host_slab_make(p, buffers));
	for (uint32_t i = 0; i < p->results.slot_count; i++) {
		struct rb_partial_result *r = &p->results.slots[i];

		r->buffer = RB_PARTIAL_RESULTS + i;
		RB_TRY(rb_contributions_init(&r->contributions, p->config.rank_count));
	}
	return RUBATO_OK;
}

static rubato_status tables_make(struct rubato_partial *p)
{
	uint32_t n = p->config.rank_count;

	p->buffers.pending = p->buffers.joined = RB_PARTIAL_NONE;
	p->results.slot_count = rb_rounds_slots(&p->config.options);
	p->vector.reduce = rb_reduce_best();
	p->machine = calloc(1, rb_rounds_bytes(&p->config));
	p->buffers.bases = calloc(n, sizeof(*p->buffers.bases));
	p->results.slots = calloc(p->results.slot_count, sizeof(*p->results.slots));
	p->results.newest = calloc(n, sizeof(*p->results.newest));
	p->results.running = calloc(n, sizeof(*p->results.running));
	p->results.lent_ranks = calloc(n, sizeof(*p->results.lent_ranks));
	p->reduction.peers = calloc(n, sizeof(*p->reduction.peers));
	p->reduction.members = calloc(n, sizeof(*p->reduction.members));
	if (p->machine == NULL || p->buffers.bases == NULL || p->results.slots == NULL ||
	    p->results.newest == NULL || p->results.running == NULL ||
	    p->results.lent_ranks == NULL || p->reduction.peers == NULL ||
	    p->reduction.members == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: tables of %u ranks", n);
	return RUBATO_OK;
}

/* One rank alone rounds nothing. */
static void vector_measure(struct rubato_partial *p)
{
	struct rb_partial_vector *v = &p->vector;

	v->user_bytes = v->bytes = v->count * rubato_type_bytes(v->type);
	v->units = v->count;
	v->wire = p->config.rank_count > 1 ? p->config.options.wire : RUBATO_WIRE_SAME;
	if (v->wire == RUBATO_WIRE_SAME)
		return;
	v->units = rb_code_units(v->wire, v->count);
	v->bytes = v->units * rb_code_bytes(v->wire);
}

static rubato_status coded_make(struct rubato_partial *p)
{
	struct rb_partial_coded *c = &p->coded;

	if (p->vector.wire == RUBATO_WIRE_SAME)
		return RUBATO_OK;
	c->reduction.wire = p->vector.wire;
	rb_converted_executor(&c->reduction, &p->comm->engine);
	if (p->device.executor != NULL)
		return RUBATO_OK; /* rb_partial_device_slab has room for these. */
	c->lease = calloc(p->vector.count + 1, sizeof(*c->lease));
	c->result = calloc(p->vector.count + 1, sizeof(*c->result));
	c->left = calloc(p->vector.count + 1, sizeof(*c->left));
	if (c->lease == NULL || c->result == NULL || c->left == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: vectors of %llu elements",
			       (unsigned long long)p->vector.count);
	return p->config.options.feedback ? rb_converted_residual(&c->reduction, p->vector.units)
					  : RUBATO_OK;
}

/* All that one rank does alone. Under the lock. */
static rubato_status prepare(struct rubato_partial *p)
{
	RB_TRY(options_check(p));
	RB_TRY(rb_partial_device_find(p));
	options_default(&p->config.options, rb_rounds_member_count(&p->config));
	vector_measure(p);
	RB_TRY(tables_make(p));
	RB_TRY(coded_make(p));
	RB_TRY(rb_rounds_init(p->machine, &p->config));
	RB_TRY(rb_partial_state_take(p));
	RB_TRY(plans_make(p));
	return slab_make(p);
}

static void memory_release(struct rubato_partial *p, bool quiet)
{
	/* Where it may still be written to it stays until the communicator goes. */
	if (p->buffers.slab != NULL && quiet)
		rb_memory_drop(&p->comm->memory, p->buffers.slab);
	rb_run_fini(&p->exchange.run);
	rb_run_fini(&p->reduction.run);
	rb_partial_device_release(p, quiet);
	for (uint32_t i = 0;
	     p->reduction.group_plans != NULL && i < rb_rounds_group_ranks(&p->config); i++)
		rb_plan_free(p->reduction.group_plans[i]);
	free(p->reduction.group_plans);
	rb_plan_free(p->reduction.plan);
	rb_plan_free(p->exchange.plan);
	for (uint32_t i = 0; p->results.slots != NULL && i < p->results.slot_count; i++)
		rb_contributions_free(&p->results.slots[i].contributions);
	free(p->exchange.scratch);
	rb_device_copy_fini(&p->copy);
	rb_converted_fini(&p->coded.reduction);
	free(p->coded.lease);
	free(p->coded.result);
	free(p->coded.left);
	free(p->results.slots);
	free(p->results.newest);
	free(p->results.running);
	free(p->results.lent_ranks);
	free(p->reduction.peers);
	free(p->reduction.members);
	free(p->buffers.bases);
	free(p->machine);
	free(p);
}

/* ---- Opening ---- */

static bool neighbour(const struct rb_protocol_driver *driver, uint32_t peer)
{
	const struct rubato_partial *p = driver->owner;

	return rb_rounds_neighbour(&p->config, peer);
}

static const char *word_text(enum word word, uint64_t value, char number[24])
{
	switch (word) {
	case WORD_TYPE:
		return rubato_type_name((rubato_type)value);
	case WORD_OPERATOR:
		return rubato_operator_name((rubato_operator)value);
	case WORD_POLICY:
		return rubato_policy_name((rubato_policy)value);
	case WORD_WIRE:
		return rubato_wire_name((rubato_wire)value);
	case WORD_ALGORITHM:
	case WORD_GROUPS:
		if (value == 0 || value > rb_algorithm_count)
			return "none";
		return rb_algorithms[value - 1].name;
	default:
		(void)snprintf(number, 24, "%llu", (unsigned long long)value);
		return number;
	}
}

static rubato_status words_compare(const struct rubato_partial *p, const uint64_t *all)
{
	uint32_t n = p->comm->engine.rank_count, me = p->comm->engine.rank;
	const uint64_t *ours = all + (size_t)me * WORDS;
	char numbers[2][24];

	for (uint32_t r = 0; r < n; r++) {
		const uint64_t *theirs = all + (size_t)r * WORDS;
		rubato_status status = (rubato_status)(int64_t)theirs[WORD_STATUS];

		if (status != RUBATO_OK)
			return RB_FAIL(status, "partial: rank %u could not make it: %s", r,
				       rubato_status_name(status));
		for (uint32_t w = WORD_COUNT; w < WORDS; w++)
			if (theirs[w] != ours[w])
				return RB_FAIL(RUBATO_ERR_MISMATCH,
					       "partial: %s is %s on rank %u, %s on rank %u",
					       word_names[w],
					       word_text((enum word)w, ours[w], numbers[0]), me,
					       word_text((enum word)w, theirs[w], numbers[1]), r);
	}
	return RUBATO_OK;
}

/* Where everybody's slab is, if the algorithm touches them in place. */
static rubato_status bases_map(struct rubato_partial *p, const uint64_t *all)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	uint32_t mapped = RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH;
	uint32_t flags = p->reduction.plan->schedule.flags;

	if (p->reduction.group_plans != NULL)
		flags |= p->reduction.group_plans[0]->schedule.flags;
	if ((flags & mapped) == 0 || engine->rank_count == 1 || p->device.executor != NULL)
		return RUBATO_OK;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		const uint64_t *theirs = all + (size_t)r * WORDS;
		uint64_t word = theirs[WORD_SLAB];

		p->buffers.bases[r] = r == engine->rank ? p->buffers.slab->base : NULL;
		if (!rb_comm_maps(p->comm, r))
			continue; /* No plan touches it. */
		if (r != engine->rank && word != 0)
			p->buffers.bases[r] =
				ep->ops->word_map(ep, r, word, theirs[WORD_SLAB_BYTES]);
		if (p->buffers.bases[r] == NULL)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "partial: rank %u's memory cannot be mapped", r);
	}
	return RUBATO_OK;
}

static void partials_end(struct rubato_comm *comm);

static const struct rb_relaxed_ops relaxed_ops = {
	.text = rb_partials_text,
	.dump = rb_partials_dump,
	.end = partials_end,
};

/* Once all ranks have been found to have it alike: so all give it the same numbers. */
static rubato_status opened(struct rubato_partial *p)
{
	struct rubato_comm *comm = p->comm;

	p->driver = (struct rb_protocol_driver) { .name = "partial",
						  .number = comm->partial_sequence++,
						  .event = rb_partial_driver_event,
						  .ended = rb_partial_driver_ended,
						  .neighbour = neighbour,
						  .survives = true,
						  .owner = p };
	p->clocks.phase_since_ns = rb_engine_now(&comm->engine);
	p->next = comm->partials;
	comm->partials = p;
	comm->relaxed = &relaxed_ops;
	comm->engine.in_flight++;
	if (p->device.executor != NULL)
		rb_device_watch(&p->device.watch, p->device.executor);
	return rb_protocol_open(&comm->engine, &p->driver);
}

static void unlink_it(struct rubato_partial *p)
{
	struct rubato_partial **at = &p->comm->partials;

	while (*at != NULL && *at != p)
		at = &(*at)->next;
	if (*at != p)
		return;
	*at = p->next;
	p->comm->engine.in_flight--;
}

static void undo(struct rubato_partial *p)
{
	rb_partial_quiet(p);
	rb_protocol_close(&p->comm->engine, &p->driver);
	unlink_it(p);
}

/* What came of it. Touched: others may have, so its memory stays until the communicator goes.
 * Orphan: the application has not got it, but it is at work. */
enum fate { FATE_MADE, FATE_UNTOUCHED, FATE_TOUCHED, FATE_ORPHAN };

/* This rank's words: the others must hear of a failure, or they would wait. */
static rubato_status words_make(struct rubato_partial *p, uint64_t *words)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	rubato_status err = rb_engine_check(engine);

	if (err == RUBATO_OK)
		err = prepare(p);
	words_fill(p, words);
	words[WORD_STATUS] = (uint64_t)(int64_t)err;
	if (err == RUBATO_OK && ep->ops->word_of != NULL && p->buffers.slab != NULL) {
		words[WORD_SLAB] =
			ep->ops->word_of(ep, p->buffers.slab->base, p->buffers.slab->size_bytes);
		words[WORD_SLAB_BYTES] = p->buffers.slab->size_bytes;
	}
	return err;
}

/* Some ranks may have failed to open it, alone: then none has it. */
static rubato_status all_agree(struct rubato_partial *p, rubato_status mine, uint64_t *all)
{
	int64_t status = mine, *each = (int64_t *)all;

	RB_TRY(rb_call_gather(p->comm, RB_KIND_PARTIAL, &status, each, 1, NULL));
	for (uint32_t r = 0; r < p->comm->engine.rank_count; r++)
		if (each[r] != RUBATO_OK)
			return RB_FAIL((rubato_status)each[r],
				       "partial: rank %u could not open it: %s", r,
				       rubato_status_name((rubato_status)each[r]));
	return RUBATO_OK;
}

/*
 * Opens it, and hears whether all have. If a rank is lost meanwhile the operation may be complete
 * elsewhere: whoever has it waits for all survivors to agree. So this rank then takes part, in the
 * background and until finalize, as one that has been in no round.
 */
static rubato_status open_with_all(struct rubato_partial *p, uint64_t *all, enum fate *fate)
{
	struct rb_engine *engine = &p->comm->engine;
	rubato_status err, mine;
	char text[RB_TEXT_BYTES];

	rb_engine_enter(engine);
	mine = opened(p);
	if (mine == RUBATO_OK)
		mine = bases_map(p, all);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_leave(engine);
	err = all_agree(p, mine, all);
	if (mine == RUBATO_OK)
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_enter(engine);
	*fate = err == RUBATO_OK ? FATE_MADE : FATE_TOUCHED;
	p->clocks.work_since_ns = rb_engine_now(engine);
	p->clocks.measured = rb_rounds_learns(&p->config) || p->vector.wire != RUBATO_WIRE_SAME;
	if (err == RUBATO_ERR_PEER && mine == RUBATO_OK)
		*fate = FATE_ORPHAN;
	if (*fate == FATE_TOUCHED)
		undo(p);
	rb_engine_leave(engine);
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(mine != RUBATO_OK ? mine : err, "%s", text);
}

static rubato_status create(struct rubato_partial *p, uint64_t *words, uint64_t *all,
			    enum fate *fate)
{
	struct rb_engine *engine = &p->comm->engine;
	rubato_status err, mine;
	char text[RB_TEXT_BYTES];

	*fate = FATE_UNTOUCHED;
	rb_engine_enter(engine);
	mine = words_make(p, words);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_leave(engine);
	err = rb_call_gather(p->comm, RB_KIND_PARTIAL, words, all, WORDS, NULL);
	if (mine != RUBATO_OK)
		return RB_FAIL(mine, "%s", text);
	RB_TRY(err);
	RB_TRY(words_compare(p, all)); /* What it says is the same everywhere. */
	if (p->device.executor != NULL)
		RB_TRY(rb_partial_device_meet(p, all));
	return open_with_all(p, all, fate);
}

static rubato_status make(rubato_comm *comm, uint64_t count, rubato_type type, rubato_operator op,
			  const rubato_partial_options *options, bool on_device,
			  rubato_partial **partial)
{
	static const rubato_partial_options defaults = RUBATO_PARTIAL_OPTIONS_INIT;
	bool short_of = options != NULL && options->size_bytes < sizeof(*options);
	uint64_t words[WORDS] = { 0 }, *all;
	struct rubato_partial *p;
	enum fate fate;
	rubato_status err;

	if (comm == NULL || partial == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: NULL");
	RB_TRY(rb_engine_ours(&comm->engine));
	p = calloc(1, sizeof(*p));
	all = calloc((size_t)comm->engine.rank_count * WORDS, sizeof(*all));
	if (p == NULL || all == NULL) {
		free(p);
		free(all);
		return rb_notice_memory_outside(
			&comm->engine,
			RB_FAIL(RUBATO_ERR_MEMORY, "partial: %zu bytes", sizeof(*p)));
	}
	p->comm = comm;
	p->copy.engine = p->device.watch.engine = &comm->engine;
	p->device.wanted = on_device;
	p->vector.count = count;
	p->vector.type = type;
	p->vector.op = op;
	p->config = (struct rb_rounds_config) {
		.rank = comm->engine.rank,
		.rank_count = comm->engine.rank_count,
		.average = op == RUBATO_AVG,
		.options = options == NULL || short_of ? defaults : *options,
		.few = RB_ROUNDS_FEW,
	};
	if (short_of) /* Refused with all others, who wait for it. */
		p->config.options.size_bytes = options->size_bytes;
	if (p->config.options.members == RUBATO_MEMBERS_NODES)
		p->config.nodes = &comm->choices.nodes;
	err = create(p, words, all, &fate);
	p->config.options.state = NULL; /* The caller's. */
	free(all);
	if (fate == FATE_UNTOUCHED || fate == FATE_TOUCHED) {
		rb_engine_enter(&comm->engine);
		memory_release(p, fate == FATE_UNTOUCHED);
		rb_engine_leave(&comm->engine);
	}
	if (err != RUBATO_OK)
		return err;
	*partial = p;
	return RUBATO_OK;
}

rubato_status rubato_partial_create(rubato_comm *comm, uint64_t count, rubato_type type,
				    rubato_operator op, const rubato_partial_options *options,
				    rubato_partial **partial)
{
	return make(comm, count, type, op, options, false, partial);
}

rubato_status rubato_cuda_partial_create(rubato_comm *comm, uint64_t count, rubato_type type,
					 rubato_operator op, const rubato_partial_options *options,
					 rubato_partial **partial)
{
	return make(comm, count, type, op, options, true, partial);
}

/* ---- The end ---- */

static rubato_status changed_wait(struct rubato_partial *p, uint64_t deadline_ns)
{
	char absent[160];
	rubato_status err;

	p->changed = false;
	err = rb_engine_wait(&p->comm->engine, &p->changed, deadline_ns);
	if (err != RUBATO_OK)
		return RB_FAIL(err, "partial free: round %llu did not end in time%s",
			       (unsigned long long)rb_rounds_view_of(p->machine).round,
			       rb_partial_absent(p, absent, sizeof(absent)));
	return RUBATO_OK;
}

/* No rank opens a round after this. */
static rubato_status drain_all(struct rubato_partial *p, uint64_t deadline_ns)
{
	rb_partial_call(p, RB_ROUNDS_PART, NULL, 0, 0);
	while (!rb_rounds_view_of(p->machine).parted && !rb_partial_over(p))
		RB_TRY(changed_wait(p, deadline_ns));
	/* It may be over before this rank has seen the loss itself: that is no OK. */
	return rb_partial_end_check(p);
}

static void barrier_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine;
	*(bool *)run->owner = true;
}

static rubato_status final_barrier(struct rubato_partial *p, struct rb_run *run, uint32_t number,
				   uint64_t deadline_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	bool done = false;
	rubato_status err;

	RB_TRY(rb_engine_check(engine));
	RB_TRY(rb_run_init(run, p->comm->plans.barrier));
	run->tag = rb_partial_run_tag(p, RB_PARTIAL_TAG_FINAL_BARRIER, number);
	run->signature = (struct rb_signature) {
		.kind = RB_KIND_BARRIER, .type = 0xff, .op = 0xff, .root = UINT32_MAX
	};
	run->done = barrier_done;
	run->owner = &done;
	rb_run_start(engine, run);
	err = rb_engine_wait(engine, &done, deadline_ns);
	if (err != RUBATO_OK)
		rb_run_give_up(engine, run, err, "partial free");
	return run->status == RUBATO_OK ? RUBATO_OK : RB_FAIL(run->status, "%s", run->failure);
}

/* So that no message finds the operation gone: it would lie about for ever. */
static rubato_status last_words(struct rubato_partial *p, uint64_t deadline_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	const char *loss;
	char text[RB_LOSS_BYTES];
	rubato_status err;

	rb_protocol_finish(engine, &p->driver);
	err = rb_engine_wait(engine, &p->driver.finished, deadline_ns);
	if (err == RUBATO_OK)
		return RUBATO_OK;
	loss = rb_loss_behind(&engine->losses, UINT32_MAX, text, sizeof(text));
	if (loss != NULL)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "partial free: a neighbour's last message is missing: %s", loss);
	return RB_FAIL(err, "partial free: a neighbour's last message is missing");
}

/* After a loss the others still need this rank until all agree. */
static void agreement_wait(struct rubato_partial *p, uint64_t deadline_ns)
{
	if (p->comm->engine.poison != RUBATO_ERR_PEER)
		return;
	while (!rb_partial_over(p) && changed_wait(p, deadline_ns) == RUBATO_OK)
		;
}

static rubato_status end(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	uint64_t deadline_ns = rb_deadline(rb_engine_now(engine), p->comm->timeout_ns);
	struct rb_run barrier = { .plan = NULL };
	rubato_status err = rb_engine_check(engine);

	if (err == RUBATO_OK)
		err = drain_all(p, deadline_ns);
	if (err == RUBATO_OK)
		err = final_barrier(p, &barrier, 0, deadline_ns);
	if (err == RUBATO_OK)
		err = last_words(p, deadline_ns);
	if (err != RUBATO_OK)
		rb_engine_poison(engine, err, rubato_error_text());
	agreement_wait(p, deadline_ns);
	rb_partial_quiet(p);
	rb_protocol_close(engine, &p->driver);
	if (err == RUBATO_OK)
		err = final_barrier(p, &barrier, 1, deadline_ns);
	if (err != RUBATO_OK)
		rb_engine_poison(engine, err, rubato_error_text());
	rb_run_fini(&barrier);
	return err;
}

rubato_status rubato_partial_free(rubato_partial *p)
{
	struct rb_engine *engine;
	rubato_status err;
	char text[RB_TEXT_BYTES];

	if (p == NULL)
		return RUBATO_OK;
	engine = &p->comm->engine;
	RB_TRY(rb_engine_call(engine));
	err = end(p);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	unlink_it(p);
	memory_release(p, err == RUBATO_OK);
	rb_engine_leave(engine);
	return err == RUBATO_OK ? RUBATO_OK : RB_FAIL(err, "%s", text);
}

static void partials_end(struct rubato_comm *comm)
{
	while (comm->partials != NULL) {
		struct rubato_partial *p = comm->partials;

		p->driver.over = true;
		rb_partial_quiet(p);
		rb_protocol_close(&comm->engine, &p->driver);
		unlink_it(p);
		memory_release(p, false);
	}
}
