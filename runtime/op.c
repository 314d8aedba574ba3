/*
 * op.c -- one operation: choice, plan, buffers, the exchange of their addresses, the run.
 *
 *   IDLE --start--> EXCHANGING --all records here--> RUNNING --all steps done--> IDLE
 *    |   `--no peer memory needed, or known already----^
 *    `--free--> FAREWELL --every rank has freed it--> gone
 *
 * Algorithms that touch peers' memory need its addresses. A persistent operation exchanges them
 * once, when it is created; a one-shot does so at every call, by an allgather of one record per
 * rank, which serves as the entry synchronisation too (RB_STEP_ENTRY steps are then left out).
 * Every rank sees all records, so all see alike whether all buffers are mapped: if not, all take
 * the algorithm that stages the data through mapped scratch. So callers may mix plain and allocated
 * buffers as they like.
 *
 * One-shots run one at a time (api.c), so they share one scratch: the exchange shows that every
 * rank has finished the operation before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "runtime/comm.h"

#define WORD_RECORD 3u                              /* in, out, scratch */
#define PEER_RECORD 4u                              /* and what we send them, in elements */
#define KEY_WORDS (1u + 1u + RB_KEY_BYTES_MAX / 8u) /* offset, key bytes, key */
#define FULL_RECORD (WORD_RECORD + RB_BUFFER_COUNT * KEY_WORDS)
#define WORD_EMPTY UINT64_MAX /* Nothing to be mapped. */

static rubato_status plan_get(struct rubato_op *op, uint8_t algorithm, struct rb_plan **out)
{
	struct rubato_comm *comm = op->comm;
	const struct rb_shape *shape = rb_kind_uneven(op->kind) ? &op->shape : NULL;
	bool in_place = (op->kind == RB_KIND_ALLTOALL || op->kind == RB_KIND_ALLTOALLV) &&
			op->in == op->out;
	struct rb_plan_key key = {
		.count = op->count,
		.shape = shape != NULL ? shape->hash : 0,
		.root = rb_kind_rooted(op->kind) ? op->root : 0,
		.kind = (uint8_t)op->kind,
		.element_bytes = (uint8_t)rubato_type_bytes(op->type),
		.algorithm = algorithm,
		.in_place = in_place,
	};
	struct rb_plan *plan = rb_plan_cache_find(&comm->plans, &key, shape);

	if (plan == NULL) {
		RB_TRY(rb_plan_make(&key, shape, &op->choice, comm->engine.rank,
				    comm->engine.rank_count, &plan));
		rb_plan_cache_add(&comm->plans, plan);
	}
	plan->users++;
	*out = plan;
	return RUBATO_OK;
}

static rubato_status choice_get(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	uint8_t element_bytes = (uint8_t)rubato_type_bytes(op->type);
	/* No rank knows the counts of the others' alltoallv. */
	uint64_t count = op->kind == RB_KIND_ALLTOALLV ? 0 : op->count;
	uint64_t hash = rb_mix(count * 64 + (uint64_t)op->kind * 16 + element_bytes);
	struct rb_memo *memo = &comm->memos[hash & (RB_MEMO_COUNT - 1)];

	if (memo->kind != (uint8_t)op->kind || memo->count != count ||
	    memo->element_bytes != element_bytes) {
		memo->kind = 0;
		RB_TRY(rb_choose(&comm->facts, op->kind,
				 rb_plan_total(op->kind, count, comm->engine.rank_count),
				 element_bytes, comm->forced[op->kind], &memo->choice));
		memo->count = count;
		memo->element_bytes = element_bytes;
		memo->kind = (uint8_t)op->kind;
	}
	op->choice = memo->choice;
	return RUBATO_OK;
}

static uint32_t plan_needs(const struct rb_plan *plan)
{
	if (plan->schedule.rank_count == 1)
		return 0;
	return plan->schedule.flags &
	       (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH | RB_SCHEDULE_PUT);
}

static rubato_status scratch_prepare(struct rubato_op *op, uint64_t bytes, bool mapped)
{
	op->scratch_mapped = mapped && bytes > 0;
	if (bytes == 0)
		return RUBATO_OK;
	if (mapped && (op->scratch == NULL || op->scratch->size_bytes < bytes)) {
		/* A slower rank may still read it in the call before: it goes after the next
		 * exchange. Unless there was none since it came: then no rank knows it. */
		if (op->scratch_retired != NULL && op->scratch != NULL)
			rb_memory_drop(op->comm, op->scratch);
		else
			op->scratch_retired = op->scratch;
		op->scratch = NULL;
		RB_TRY(rb_memory_alloc(op->comm, bytes, &op->scratch));
	} else if (!mapped && op->scratch_bytes < bytes) {
		free(op->plain_scratch);
		op->scratch_bytes = 0;
		op->plain_scratch = NULL;
		if (posix_memalign(&op->plain_scratch, 64, bytes) != 0)
			return RB_FAIL(RUBATO_ERR_MEMORY, "scratch: %llu bytes",
				       (unsigned long long)bytes);
		op->scratch_bytes = bytes;
	}
	return RUBATO_OK;
}

static rubato_status exchange_prepare(struct rubato_op *op)
{
	uint32_t n = op->comm->engine.rank_count;
	bool keys = (plan_needs(op->plan) & RB_SCHEDULE_PUT) != 0,
	     per_peer = op->plan->layout.per_peer;
	uint32_t words = per_peer ? PEER_RECORD : keys ? FULL_RECORD : WORD_RECORD;
	size_t own = per_peer ? (size_t)n * words : words;
	struct rb_plan *plan;

	RB_ASSERT(!(keys && per_peer));
	if (op->peers == NULL)
		op->peers = calloc(n, sizeof(*op->peers));
	if (op->record_room < words || op->own_room < own) {
		free(op->records);
		free(op->own_record);
		op->records = calloc((size_t)n * words, sizeof(*op->records));
		op->own_record = calloc(own, sizeof(*op->own_record));
		op->record_room = words;
		op->own_room = own;
	}
	if (op->peers == NULL || op->records == NULL || op->own_record == NULL) {
		op->record_room = 0;
		return RB_FAIL(RUBATO_ERR_MEMORY, "records of %u ranks", n);
	}
	op->record_words = words;
	RB_TRY(rb_comm_exchange_plan(op->comm,
				     per_peer ? RB_EXCHANGE_PER_PEER
				     : keys   ? RB_EXCHANGE_KEYS
					      : RB_EXCHANGE_WORDS,
				     &plan));
	return rb_run_init(&op->exchange, plan);
}

/* ---- Preparation ---- */

/* All that distinguishes a call of even blocks from another, but for its count. */
static inline uint64_t prepared_what(const struct rubato_op *op)
{
	return (uint64_t)op->root << 32 | (uint64_t)op->kind << 24 | (uint64_t)op->named << 16 |
	       (uint64_t)op->type << 9 | (uint64_t)op->op << 1 | (op->in == op->out);
}

_Static_assert(RUBATO_TYPE_COUNT < 128 && RUBATO_OPERATOR_COUNT < 256 && RB_KIND_COUNT < 256,
	       "the bits of prepared_what");

/* Where this call's like has its place; NULL: it is none of those that are kept. */
static inline struct rb_prepared *prepared_place(const struct rubato_op *op, uint64_t what)
{
	struct rubato_comm *comm = op->comm;
	uint64_t hash = op->count * 0x9e3779b97f4a7c15u + what;

	if (op->kind == RB_KIND_SENDRECV || rb_kind_uneven(op->kind) ||
	    (unsigned)op->type >= RUBATO_TYPE_COUNT || (unsigned)op->op >= RUBATO_OPERATOR_COUNT ||
	    comm->accumulate != RUBATO_ACCUMULATE_STEP)
		return NULL;
	return &comm->prepared[(hash * 0xbf58476d1ce4e5b9u) >> 58 & (RB_MEMO_COUNT - 1)];
}

static inline bool prepared_fits(const struct rb_prepared *p, const struct rubato_op *op,
				 uint64_t what)
{
	return p->count == op->count && p->what == what && p->plan != NULL &&
	       p->evictions == op->comm->plans.evictions && (p->in_bytes == 0 || op->in != NULL) &&
	       (p->out_bytes == 0 || op->out != NULL);
}

static void prepared_keep(struct rb_prepared *p, const struct rubato_op *op, uint64_t what,
			  uint64_t scratch_bytes)
{
	*p = (struct rb_prepared) { .number = ++op->comm->prepared_count,
				    .plan = op->plan,
				    .plan_staged = op->plan_staged,
				    .evictions = op->comm->plans.evictions,
				    .choice = op->choice,
				    .signature = op->signature,
				    .count = op->count,
				    .what = what,
				    .in_bytes = op->in_bytes,
				    .out_bytes = op->out_bytes,
				    .scratch_bytes = scratch_bytes };
}

/* Of no elements: a barrier, so that a rank that has some is found out. */
static void nothing_plan(struct rubato_op *op)
{
	op->plan = op->comm->barrier_plan;
	op->plan->users++;
}

static rubato_status plans_find(struct rubato_op *op, uint64_t *scratch_bytes)
{
	RB_TRY(choice_get(op));
	op->signature.algorithm = op->choice.algorithm;
	RB_TRY(plan_get(op, op->choice.algorithm, &op->plan));
	*scratch_bytes = op->plan->scratch_bytes;
	if (!(op->plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) ||
	    op->choice.staged == op->choice.algorithm)
		return RUBATO_OK;
	RB_TRY(plan_get(op, op->choice.staged, &op->plan_staged));
	if (op->plan_staged->scratch_bytes > *scratch_bytes)
		*scratch_bytes = op->plan_staged->scratch_bytes;
	return RUBATO_OK;
}

static rubato_status first_prepare(struct rubato_op *op, uint64_t *scratch_bytes)
{
	RB_TRY(rb_op_check(op));
	RB_TRY(rb_wide_prepare(op));
	op->signature = rb_op_signature(op);
	if (op->kind == RB_KIND_SENDRECV)
		return RUBATO_OK;
	if (op->count == 0 && op->kind != RB_KIND_ALLTOALLV)
		nothing_plan(op);
	else
		RB_TRY(plans_find(op, scratch_bytes));
	op->shape = (struct rb_shape) { 0 }; /* The plan has copies; the caller's may go. */
	return RUBATO_OK;
}

static void prepared_use(const struct rb_prepared *p, struct rubato_op *op)
{
	if (op->prepared != p->number) {
		op->prepared = p->number;
		op->choice = p->choice;
		op->signature = p->signature;
		op->in_bytes = p->in_bytes;
		op->out_bytes = p->out_bytes;
		op->wide.active = false;
	}
	op->plan = p->plan;
	op->plan->users++;
	if (op->plan != op->comm->barrier_plan)
		rb_plan_cache_touch(&op->comm->plans, op->plan);
	op->plan_staged = p->plan_staged;
	if (op->plan_staged != NULL)
		op->plan_staged->users++;
}

rubato_status rb_op_prepare(struct rubato_op *op)
{
	uint64_t what = prepared_what(op), scratch_bytes = 0;
	struct rb_prepared *prepared = prepared_place(op, what);
	bool mapped;

	op->done = true;
	if (prepared != NULL && prepared_fits(prepared, op, what)) {
		prepared_use(prepared, op);
		scratch_bytes = prepared->scratch_bytes;
	} else {
		op->prepared = 0;
		RB_TRY(first_prepare(op, &scratch_bytes));
		if (prepared != NULL)
			prepared_keep(prepared, op, what, scratch_bytes);
	}
	if (op->kind == RB_KIND_SENDRECV)
		return RUBATO_OK;
	mapped = plan_needs(op->plan) != 0;
	RB_TRY(scratch_prepare(op, scratch_bytes, mapped));
	if (mapped)
		RB_TRY(exchange_prepare(op));
	return rb_run_init(&op->run, op->plan);
}

/* ---- Records ---- */

static void buffers_list(const struct rubato_op *op, void *base[RB_BUFFER_COUNT],
			 uint64_t bytes[RB_BUFFER_COUNT])
{
	base[RB_BUF_IN] = (void *)(uintptr_t)op->in;
	base[RB_BUF_OUT] = op->out;
	base[RB_BUF_SCRATCH] = op->scratch_mapped ? op->scratch->base : op->plain_scratch;
	bytes[RB_BUF_IN] = op->in_bytes;
	bytes[RB_BUF_OUT] = op->out_bytes;
	bytes[RB_BUF_SCRATCH] = op->scratch_mapped ? op->scratch->size_bytes : 0;
}

static struct rb_memory *memory_for_put(struct rubato_op *op, enum rb_buffer buffer, void *base,
					uint64_t bytes)
{
	struct rb_memory *memory = rb_memory_find(op->comm, base, bytes);

	if (memory == NULL && rb_memory_add(op->comm, base, bytes, &memory) == RUBATO_OK) {
		op->added[buffer] = memory;
		op->puts = true;
	}
	return memory;
}

static void key_write(struct rubato_op *op, enum rb_buffer buffer, void *base, uint64_t bytes)
{
	struct rubato_comm *comm = op->comm;
	uint64_t *words = op->own_record + WORD_RECORD + (uint32_t)buffer * KEY_WORDS;
	struct rb_endpoint *ep = comm->engine.endpoints[0];
	size_t key_bytes = 0;
	struct rb_memory *memory;

	memset(words, 0, KEY_WORDS * sizeof(*words));
	if (bytes == 0 || base == NULL)
		return;
	memory = memory_for_put(op, buffer, base, bytes);
	if (memory == NULL || memory->regions[0] == NULL ||
	    ep->ops->region_key(ep, memory->regions[0], words + 2, &key_bytes) != RUBATO_OK)
		return;
	words[0] = (uint64_t)((uint8_t *)base - (uint8_t *)memory->regions[0]->base);
	words[1] = key_bytes;
}

static uint64_t word_of(struct rubato_op *op, const void *base, uint64_t bytes)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];

	if (bytes == 0)
		return WORD_EMPTY;
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

/* One record for each peer: the blocks that concern it. That a buffer is not mapped all see
 * alike. */
static void peer_records_write(struct rubato_op *op, void *const base[RB_BUFFER_COUNT],
			       const uint64_t whole[RB_BUFFER_COUNT])
{
	const struct rb_layout *layout = &op->plan->layout;
	uint64_t element = op->plan->key.element_bytes;

	for (uint32_t r = 0; r < op->comm->engine.rank_count; r++) {
		uint64_t *words = op->own_record + (size_t)r * PEER_RECORD;

		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			words[b] = whole[b];
			if (b == RB_BUF_SCRATCH || whole[b] == 0 || whole[b] == WORD_EMPTY)
				continue;
			uint64_t length, first = peer_block(layout, b, r, &length);

			words[b] =
				word_of(op, (uint8_t *)base[b] + first * element, length * element);
		}
		words[WORD_RECORD] = rb_layout_length(layout, r, 1);
	}
}

static void record_write(struct rubato_op *op)
{
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT], words[RB_BUFFER_COUNT];

	buffers_list(op, base, bytes);
	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
		words[b] = word_of(op, base[b], bytes[b]);
		if (b == RB_BUF_SCRATCH && bytes[b] == 0)
			words[b] = 0;
	}
	if (op->plan->layout.per_peer) {
		peer_records_write(op, base, words);
		return;
	}
	memcpy(op->own_record, words, sizeof(words));
	for (uint32_t b = 0; b < RB_BUFFER_COUNT && op->record_words == FULL_RECORD; b++)
		key_write(op, (enum rb_buffer)b, base[b], bytes[b]);
}

/* Where rank r's `buffer` is here, as the plan's spans count. NULL: not to be mapped so far as our
 * plan goes, or nothing that it touches (a gather's other senders: they may have freed it). */
static void *record_map(struct rubato_op *op, const struct rb_plan *plan, uint32_t r,
			uint32_t buffer, void *own)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];
	uint64_t word = op->records[(size_t)r * op->record_words + buffer];
	uint64_t reach =
		plan->reach != NULL ? plan->reach[(size_t)r * RB_BUFFER_COUNT + buffer] : 0;
	uint64_t length;

	if (r == op->comm->engine.rank) {
		if (!plan->layout.per_peer || buffer == RB_BUF_SCRATCH || own == NULL)
			return own;
		return (uint8_t *)own +
		       peer_block(&plan->layout, buffer, r, &length) * plan->key.element_bytes;
	}
	if (reach == 0 || word == 0 || word == WORD_EMPTY || ep->ops->word_map == NULL)
		return NULL;
	return ep->ops->word_map(ep, r, word, reach);
}

/* *all: every rank's buffers that `plan` may touch in place can be mapped here. Errors: PEER. */
static rubato_status words_map(struct rubato_op *op, const struct rb_plan *plan, bool *all)
{
	struct rb_engine *engine = &op->comm->engine;
	bool buffers = (plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) != 0;
	bool scratch = (plan->schedule.flags & RB_SCHEDULE_MAPPED_SCRATCH) != 0;
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT];

	buffers_list(op, base, bytes);
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		const uint64_t *words = op->records + (size_t)r * op->record_words;

		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			bool needed = b == RB_BUF_SCRATCH ? scratch : buffers;

			op->peers[r].mapped[b] = record_map(op, plan, r, b, base[b]);
			*all = !(needed && words[b] == 0);
			if (!*all)
				return RUBATO_OK; /* Every rank sees the same zero. */
			if (needed && op->peers[r].mapped[b] == NULL && r != engine->rank &&
			    plan->reach[(size_t)r * RB_BUFFER_COUNT + b] > 0)
				return RB_FAIL(RUBATO_ERR_PEER,
					       "%s: rank %u says that its buffer lies where none "
					       "of its memory is",
					       rb_kind_name(op->kind), r);
		}
	}
	return RUBATO_OK;
}

/* Of an alltoallv without messages: whether each rank sends us what we expect. */
static rubato_status peer_records_check(const struct rubato_op *op)
{
	const struct rb_layout *layout = &op->plan->layout;

	for (uint32_t r = 0; layout->per_peer && r < op->comm->engine.rank_count; r++) {
		uint64_t theirs = op->records[(size_t)r * PEER_RECORD + WORD_RECORD];
		uint64_t ours = rb_layout_out_length(layout, r, 1);

		if (theirs != ours)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "alltoallv: rank %u sends rank %u %llu elements, which "
				       "expects %llu",
				       r, op->comm->engine.rank, (unsigned long long)theirs,
				       (unsigned long long)ours);
	}
	return RUBATO_OK;
}

static void remotes_close(struct rubato_op *op)
{
	struct rb_endpoint *ep = op->comm->engine.endpoints[0];

	for (uint32_t r = 0; op->peers != NULL && r < op->comm->engine.rank_count; r++) {
		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			if (op->peers[r].remote[b] != NULL)
				ep->ops->remote_close(ep, op->peers[r].remote[b]);
			op->peers[r].remote[b] = NULL;
		}
	}
}

static rubato_status remotes_open(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	struct rb_endpoint *ep = engine->endpoints[0];

	remotes_close(op);
	op->puts = true;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
			const uint64_t *words = op->records + (size_t)r * op->record_words +
						WORD_RECORD + b * KEY_WORDS;

			if (words[1] == 0 || words[1] > RB_KEY_BYTES_MAX || r == engine->rank)
				continue;
			RB_TRY(ep->ops->remote_open(ep, r, words + 2, (size_t)words[1],
						    &op->peers[r].remote[b]));
			op->peers[r].remote_offset[b] = words[0];
		}
	}
	return RUBATO_OK;
}

/* Every PUT of the plan has a target. */
static bool puts_possible(const struct rubato_op *op, const struct rb_plan *plan)
{
	for (uint32_t s = 0; s < plan->schedule.step_count; s++) {
		const struct rb_step *step = &plan->schedule.steps[s];

		if (step->kind == RB_STEP_PUT && plan->iterations[s] > 0 &&
		    op->peers[step->peer].remote[plan->schedule.spans[step->to].buffer] == NULL)
			return false;
	}
	return true;
}

/* ---- Execution ---- */

void rb_op_end(struct rubato_op *op, rubato_status status, const char *text)
{
	struct rb_engine *engine = &op->comm->engine;

	op->state = RB_OP_IDLE;
	op->done = true;
	op->status = status;
	op->failure[0] = '\0';
	if (status != RUBATO_OK)
		(void)snprintf(op->failure, sizeof(op->failure), "%s", text);
	if (op->persistent)
		engine->in_flight--;
	engine->completed = true;
	engine->operations++;
	if (status != RUBATO_OK && op->kind != RB_KIND_SENDRECV)
		rb_engine_poison(engine, status, text);
}

static void main_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	(void)engine;
	if (op->wide.active && run->status == RUBATO_OK)
		rb_wide_start(op, true, rb_op_end);
	else
		rb_op_end(op, run->status, run->failure);
}

static struct rb_tag op_tag(const struct rubato_op *op, bool exchange)
{
	uint32_t epoch = op->comm->engine.epoch;

	if (op->persistent) /* Its exchange is instance 0. */
		return rb_tag(epoch, RB_TAG_PERSISTENT, op->number, op->instance);
	return rb_tag(epoch, exchange ? RB_TAG_EXCHANGE : RB_TAG_ONESHOT, op->number, 0);
}

static void run_start(struct rubato_op *op, struct rb_plan *plan, bool entered)
{
	void *base[RB_BUFFER_COUNT];
	uint64_t bytes[RB_BUFFER_COUNT];

	buffers_list(op, base, bytes);
	op->state = RB_OP_RUNNING;
	op->run.plan = plan;
	memcpy(op->run.buffers, base, sizeof(base));
	op->run.peers = op->peers;
	op->run.type = op->type;
	op->run.op = op->op;
	op->run.tag = op_tag(op, false);
	op->run.signature = op->signature;
	op->run.instance = op->persistent ? op->instance : 0;
	op->run.entered = entered;
	op->run.done = main_done;
	op->run.owner = op;
	rb_run_start(&op->comm->engine, &op->run);
}

/* With all records here: which plan can run, the same on every rank. */
static rubato_status records_use(struct rubato_op *op, struct rb_plan **out)
{
	struct rb_plan *plan = op->plan;
	bool all;

	RB_TRY(peer_records_check(op));
	RB_TRY(words_map(op, plan, &all));
	if (!all && !(plan->schedule.flags & RB_SCHEDULE_PUT)) {
		plan = op->plan_staged;
		all = false;
		if (plan != NULL)
			RB_TRY(words_map(op, plan, &all));
		if (!all)
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "%s by %s needs memory from rubato_alloc on every rank",
				       rb_kind_name(op->kind), op->plan->algorithm->name);
		RB_TRY(rb_run_init(&op->run, plan));
	}
	if (plan->schedule.flags & RB_SCHEDULE_PUT) {
		RB_TRY(remotes_open(op));
		if (!puts_possible(op, plan))
			return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
				       "%s by %s: a rank's buffer could not be registered",
				       rb_kind_name(op->kind), plan->algorithm->name);
	}
	*out = plan;
	return RUBATO_OK;
}

static void exchange_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;
	struct rb_plan *plan = NULL;
	rubato_status err = run->status;

	(void)engine;
	if (err != RUBATO_OK) {
		rb_op_end(op, err, run->failure);
		return;
	}
	if (op->persistent) { /* rb_op_agree waits for this. */
		op->state = RB_OP_IDLE;
		op->done = true;
		op->status = RUBATO_OK;
		return;
	}
	if (op->scratch_retired != NULL)
		rb_memory_drop(op->comm, op->scratch_retired);
	op->scratch_retired = NULL;
	err = records_use(op, &plan);
	if (err != RUBATO_OK)
		rb_op_end(op, err, rubato_error_text());
	else
		run_start(op, plan, true);
}

static void exchange_start(struct rubato_op *op)
{
	op->state = RB_OP_EXCHANGING;
	if (plan_needs(op->plan) != 0) {
		record_write(op);
		op->exchange.buffers[RB_BUF_IN] = op->own_record;
		op->exchange.buffers[RB_BUF_OUT] = op->records;
		op->exchange.type = RUBATO_INT64;
	}
	op->exchange.tag = op_tag(op, true);
	op->exchange.signature = op->signature;
	op->exchange.done = exchange_done;
	op->exchange.owner = op;
	rb_run_start(&op->comm->engine, &op->exchange);
}

rubato_status rb_op_agree(struct rubato_op *op, uint64_t deadline_ns)
{
	struct rb_engine *engine = &op->comm->engine;
	bool addresses = plan_needs(op->plan) != 0;
	struct rb_plan *plan = NULL;
	rubato_status err;

	if (!addresses) /* A barrier: its messages carry the signature, which is all there is. */
		RB_TRY(rb_run_init(&op->exchange, op->comm->barrier_plan));
	op->done = false;
	engine->in_flight++;
	exchange_start(op);
	err = rb_engine_wait(engine, &op->done, deadline_ns);
	if (op->state == RB_OP_IDLE && op->status == RUBATO_OK && err == RUBATO_OK)
		engine->in_flight--;
	if (err != RUBATO_OK) {
		char name[96], absent[128], text[320];

		(void)rb_signature_text(&op->signature, name, sizeof(name));
		(void)rb_run_absent(&op->exchange, absent, sizeof(absent));
		(void)snprintf(text, sizeof(text),
			       "%s, number %llu: rank %u waited in vain for%s when it was made",
			       name, (unsigned long long)op->number, engine->rank,
			       absent[0] != '\0' ? absent : " its own work");
		rb_engine_poison(engine, err, text);
		return rb_engine_check(engine);
	}
	RB_TRY(op->status == RUBATO_OK ? RUBATO_OK : RB_FAIL(op->status, "%s", op->failure));
	if (!addresses)
		return RUBATO_OK;
	RB_TRY(records_use(op, &plan));
	if (plan != op->plan) {
		op->plan->users--;
		op->plan = op->plan_staged;
		op->plan_staged = NULL;
	}
	op->exchanged = true;
	return RUBATO_OK;
}

/* ---- Start, cancel, release ---- */

/* What a collective does with its input in place. */
static void collective_start(struct rubato_op *op, rubato_status status, const char *text)
{
	if (status != RUBATO_OK) {
		rb_op_end(op, status, text);
	} else if (plan_needs(op->plan) != 0 && !op->exchanged) {
		exchange_start(op);
	} else {
		if (op->persistent)
			op->instance++;
		run_start(op, op->plan, false);
	}
}

void rb_op_start(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;

	op->done = false;
	op->status = RUBATO_OK;
	if (op->persistent)
		engine->in_flight++;
	if (engine->poison != RUBATO_OK) {
		rb_op_end(op, engine->poison, engine->poison_text);
	} else if (op->kind == RB_KIND_SENDRECV) {
		rb_message_start(op);
	} else if (op->wide.active) {
		rb_wide_start(op, false, collective_start);
	} else {
		collective_start(op, RUBATO_OK, "");
	}
}

static void farewell_done(struct rb_engine *engine, struct rb_run *run)
{
	struct rubato_op *op = run->owner;

	engine->in_flight--;
	op->state = RB_OP_IDLE;
	op->done = true;
	rb_op_forget(op);
}

/*
 * Peers that lag behind may still read our scratch in the last instance. So a barrier of its own,
 * in the background, ends an operation with mapped scratch: when it is over, every rank has freed
 * its side.
 */
static bool farewell_start(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;

	if (!op->scratch_mapped || comm->closing || comm->engine.poison != RUBATO_OK ||
	    rb_run_init(&op->exchange, comm->barrier_plan) != RUBATO_OK)
		return false;
	op->state = RB_OP_FAREWELL;
	op->done = false;
	comm->engine.in_flight++;
	op->exchange.tag = rb_tag(comm->engine.epoch, RB_TAG_FAREWELL, op->number, 0);
	op->exchange.signature = op->signature;
	op->exchange.done = farewell_done;
	op->exchange.owner = op;
	rb_run_start(&comm->engine, &op->exchange);
	return true;
}

void rb_op_free(struct rubato_op *op)
{
	if (op->state == RB_OP_FAREWELL)
		return;
	rb_op_cancel(op);
	if (!farewell_start(op))
		rb_op_forget(op);
}

static struct rubato_op **list_of(struct rubato_comm *comm, uint64_t number)
{
	return &comm->operations[number % RB_OP_LISTS];
}

void rb_op_list(struct rubato_op *op)
{
	struct rubato_op **first = list_of(op->comm, op->number);

	op->next = *first;
	if (*first != NULL)
		(*first)->previous = op;
	*first = op;
}

struct rubato_op *rb_op_find(const struct rubato_comm *comm, uint64_t number)
{
	struct rubato_op *op = comm->operations[number % RB_OP_LISTS];

	while (op != NULL && (op->number != number || op->kind == RB_KIND_SENDRECV))
		op = op->next;
	return op;
}

void rb_op_forget(struct rubato_op *op)
{
	*(op->previous != NULL ? &op->previous->next : list_of(op->comm, op->number)) = op->next;
	if (op->next != NULL)
		op->next->previous = op->previous;
	rb_op_discard(op);
}

void rb_op_discard(struct rubato_op *op)
{
	rb_op_release(op);
	free(op);
}

struct rb_run *rb_op_current(struct rubato_op *op)
{
	if (op->state == RB_OP_CONVERTING)
		return &op->wide.run;
	return op->state == RB_OP_EXCHANGING ? &op->exchange : &op->run;
}

void rb_op_cancel(struct rubato_op *op)
{
	struct rb_engine *engine = &op->comm->engine;
	char text[224], name[96];

	if (op->done)
		return;
	(void)rb_signature_text(&op->signature, name, sizeof(name));
	(void)snprintf(text, sizeof(text), "%s was cancelled", name);
	if (op->kind == RB_KIND_SENDRECV) {
		rb_message_cancel(op, text);
		return;
	}
	rb_run_fail(engine, rb_op_current(op), RUBATO_ERR_CANCELLED, text);
	RB_ASSERT(op->done);
}

static void puts_release(struct rubato_op *op)
{
	remotes_close(op);
	for (uint32_t b = 0; b < RB_BUFFER_COUNT; b++) {
		if (op->added[b] != NULL)
			rb_memory_drop(op->comm, op->added[b]);
		op->added[b] = NULL;
	}
	op->puts = false;
}

void rb_op_release(struct rubato_op *op)
{
	RB_ASSERT(op->done);
	if (op->plan != NULL)
		op->plan->users--;
	if (op->plan_staged != NULL)
		op->plan_staged->users--;
	op->plan = op->plan_staged = NULL;
	if (op->puts)
		puts_release(op);
	op->exchanged = false;
	if (!op->persistent)
		return; /* The one-shot keeps its scratch and arrays for the next call. */
	if (op->scratch_retired != NULL)
		rb_memory_drop(op->comm, op->scratch_retired);
	if (op->scratch != NULL)
		rb_memory_drop(op->comm, op->scratch);
	free(op->plain_scratch);
	free(op->peers);
	free(op->records);
	free(op->own_record);
	rb_run_fini(&op->run);
	rb_run_fini(&op->exchange);
	if (op->wide.memory != NULL)
		rb_memory_drop(op->comm, op->wide.memory);
	rb_wide_fini(&op->wide);
}
