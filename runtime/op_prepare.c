/* op_prepare.c -- see op_prepare.h. */
#include "runtime/op_prepare.h"

#include <stdlib.h>
#include <string.h>

#include "base/hollow.h"
#include "base/rng.h"
#include "runtime/arguments.h"
#include "runtime/engine/straight.h"
#include "runtime/op_exchange.h"
#include "runtime/op_stage.h"

static rubato_status plan_of(struct rubato_op *op, uint8_t algorithm, const struct rb_shape *shape,
			     struct rb_plan **out)
{
	struct rubato_comm *comm = op->comm;
	bool in_place = (op->kind == RB_KIND_ALLTOALL || op->kind == RB_KIND_ALLTOALLV) &&
			rb_op_in_place(op);
	struct rb_plan_key key = {
		.count = op->count,
		.shape = shape != NULL ? shape->hash : 0,
		.root = rb_algorithm_rooted(&rb_algorithms[algorithm]) ? op->root : 0,
		.kind = (uint8_t)op->kind,
		.element_bytes = rb_op_element_bytes(op),
		.algorithm = algorithm,
		.in_place = in_place,
		.coded = rb_op_coded(op),
		.apart_bytes = shape != NULL && shape->apart != NULL ? RB_APART_GIVEN
								     : op->choice.apart_bytes,
	};
	struct rb_plan *plan = rb_plan_cache_find(&comm->plans.cache, &key, shape);

	if (plan == NULL) {
		struct rb_build who = rb_comm_build(comm);

		RB_TRY(rb_plan_make(&key, shape, &op->choice, &who, &plan));
		rb_plan_cache_add(&comm->plans.cache, plan);
	}
	plan->users++;
	*out = plan;
	return RUBATO_OK;
}

static rubato_status plan_get(struct rubato_op *op, uint8_t algorithm, struct rb_plan **out)
{
	return plan_of(op, algorithm, rb_kind_uneven(op->kind) ? &op->shape : NULL, out);
}

static rubato_status choice_get(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	uint8_t element_bytes = rb_op_element_bytes(op);
	bool coded = rb_op_coded(op);
	int forced = op->named == RB_KIND_NONE ? comm->choices.forced[op->kind] : -1;
	/* No rank knows the counts of the others' alltoallv. */
	uint64_t count = op->kind == RB_KIND_ALLTOALLV ? 0 : op->count;
	uint64_t hash = rb_mix(count * 64 + (uint64_t)op->kind * 16 + element_bytes + coded);
	struct rb_memo *memo = &comm->choices.memos[hash & (RB_MEMO_COUNT - 1)];

	if (memo->kind != (uint8_t)op->kind || memo->count != count ||
	    memo->element_bytes != element_bytes || memo->coded != coded ||
	    memo->forced != forced) {
		struct rb_choice_facts facts = comm->choices.facts;

		facts.coded = coded;
		memo->kind = 0;
		RB_TRY(rb_choose(&facts, op->kind,
				 rb_plan_total(op->kind, count, comm->engine.rank_count),
				 element_bytes, forced, &memo->choice));
		memo->forced = forced;
		memo->count = count;
		memo->element_bytes = element_bytes;
		memo->coded = coded;
		memo->kind = (uint8_t)op->kind;
	}
	op->choice = memo->choice;
	return RUBATO_OK;
}

static bool mapped_fits(const struct rubato_op *op, uint64_t bytes, uint64_t room)
{
	const struct rb_op_scratch *s = &op->scratch;
	bool solid =
		(op->in != NULL || op->out != NULL) && !rb_hollow(op->in) && !rb_hollow(op->out);

	return s->memory != NULL && s->room == room && s->memory->size_bytes >= bytes + room &&
	       !(solid && rb_hollow(s->memory->base));
}

/* Without room a rank does not go ahead: it does not matter to others. */
static rubato_status mapped_prepare(struct rubato_op *op, uint64_t bytes)
{
	const struct rb_plan *plan = op->plan_staged != NULL ? op->plan_staged : op->plan;
	struct rb_memories *memories = &op->comm->memory;
	struct rb_op_scratch *s = &op->scratch;
	bool ahead = plan->goes_ahead && !op->persistent && !s->cramped;
	uint64_t room = ahead ? 2 * RB_AHEAD_ROOM : s->room;
	struct rb_memory *memory = NULL;

	if (mapped_fits(op, bytes, room))
		return RUBATO_OK;
	if (room > 0 &&
	    rb_memory_alloc_for(memories, bytes + room, op->in, op->out, &memory) != RUBATO_OK) {
		s->cramped = true;
		room = 0;
		if (mapped_fits(op, bytes, room))
			return RUBATO_OK;
	}
	if (room == 0)
		RB_TRY(rb_memory_alloc_for(memories, bytes, op->in, op->out, &memory));
	/* A slower rank may still read it in the call before: it goes after the next exchange.
	 * Unless there was none since it came: then no rank knows it. */
	if (s->retired != NULL && s->memory != NULL)
		rb_memory_drop(memories, s->memory);
	else
		s->retired = s->memory;
	s->memory = memory;
	s->room = room;
	return RUBATO_OK;
}

static rubato_status scratch_prepare(struct rubato_op *op, uint64_t bytes, bool mapped)
{
	op->scratch.mapped = mapped && bytes > 0;
	if (bytes == 0)
		return RUBATO_OK;
	if (mapped)
		return mapped_prepare(op, bytes);
	if (op->scratch.plain_bytes < bytes) {
		rb_scratch_free(&op->scratch);
		if (rb_hollow(op->in) || rb_hollow(op->out)) {
			op->scratch.plain = (void *)(uintptr_t)(UINT64_C(1) << RB_HOLLOW_BIT);
			return RUBATO_OK;
		}
		if (posix_memalign(&op->scratch.plain, 64, bytes) != 0)
			return RB_FAIL(RUBATO_ERR_MEMORY, "scratch: %llu bytes",
				       (unsigned long long)bytes);
		op->scratch.plain_bytes = bytes;
	}
	return RUBATO_OK;
}

/* ---- Run in another form than the caller's: converted.h ---- */

static bool wide_wanted(const struct rubato_op *op)
{
	bool rounds = op->op != RUBATO_MAX && op->op != RUBATO_MIN;

	return op->comm->accumulate == RUBATO_ACCUMULATE_WHOLE && rb_kind_reduces(op->kind) &&
	       rounds && (op->type == RUBATO_FLOAT16 || op->type == RUBATO_BFLOAT16);
}

static bool coded_wanted(const struct rubato_op *op)
{
	return rb_wire_applies(op->comm, op->kind, op->type) &&
	       (op->op == RUBATO_SUM || op->op == RUBATO_AVG);
}

/* One-shots remember nothing. */
static bool feeds_back(const struct rubato_op *op)
{
	return op->persistent && op->comm->wire_feedback;
}

/* Where in IN the rank's result comes to lie: in place. */
static uint64_t result_first(const struct rubato_op *op)
{
	uint32_t rank = op->comm->engine.rank;
	uint64_t first = 0;

	if (op->kind == RB_KIND_REDUCE_SCATTER)
		return rank * op->count;
	if (op->kind != RB_KIND_REDUCE_SCATTERV)
		return 0;
	if (op->shape.offsets != NULL)
		return op->shape.offsets[rank];
	for (uint32_t r = 0; r < rank; r++)
		first += op->shape.counts[r];
	return first;
}

/* 16-bit floats: as they lie, gaps and all. */
static void wide_describe(const struct rubato_op *op, struct rb_converted *c)
{
	c->wire = RUBATO_WIRE_SAME;
	c->half = op->type;
	c->in_blocks = 1;
	c->block_values = c->block_units = op->in_bytes / 2;
	c->out_first = result_first(op);
	c->out_values = op->out_bytes / 2;
}

/* Float32: each rank's block begins with a unit. The operation counts in these. */
static void coded_describe(struct rubato_op *op, struct rb_converted *c)
{
	c->wire = op->comm->wire;
	c->block_values = c->out_values = op->count;
	c->in_blocks = op->kind == RB_KIND_REDUCE_SCATTER ? op->comm->engine.rank_count : 1;
	op->count = c->block_units = rb_code_units(c->wire, op->count);
	c->out_first = result_first(op);
}

/* After the arguments were checked and the signature made of them. */
static void converted_describe(struct rubato_op *op)
{
	struct rb_converted *c = &op->converted;
	bool coded = coded_wanted(op);
	uint32_t unit_bytes;

	c->active = (coded || wide_wanted(op)) && op->count > 0 && op->comm->engine.rank_count > 1;
	c->on.device = NULL;
	if (!c->active)
		return;
	c->in = op->in;
	c->out = op->out;
	if (coded)
		coded_describe(op, c);
	else
		wide_describe(op, c);
	unit_bytes = rb_converted_bytes(c);
	op->type = RUBATO_FLOAT32;
	op->in_bytes = c->in_blocks * c->block_units * unit_bytes;
	op->out_bytes = rb_code_units(c->wire, c->out_values) * unit_bytes;
}

/* Where the operation itself works, once it is known where its caller's buffers lie. */
static rubato_status converted_place(struct rubato_op *op)
{
	struct rb_converted *c = &op->converted;
	bool feedback = rb_op_coded(op) && feeds_back(op);
	uint8_t *base;

	if (!c->active)
		return RUBATO_OK;
	if (op->device.executor != NULL)
		RB_TRY(rb_converted_prepare_on(c, op->device.executor, feedback));
	else
		RB_TRY(rb_converted_prepare(c, &op->comm->memory, feedback));
	base = op->device.executor != NULL ? c->on.units : c->memory->base;
	op->in = base;
	op->out = op->out_bytes > 0 ? base + c->out_first * rb_converted_bytes(c) : NULL;
	return RUBATO_OK;
}

/* ---- Preparation ---- */

/* Nothing of it has to be asked of peers, or got ready: again.c. */
static bool at_once(const struct rubato_op *op)
{
	return op->plan->is_short && op->plan_staged == NULL && !rb_plan_needs_peers(op->plan) &&
	       op->plan->schedule.scratch_copies <= 1 && op->comm->engine.device_count == 0 &&
	       op->in_bytes < RB_WHERE_BYTES_MIN && op->out_bytes < RB_WHERE_BYTES_MIN &&
	       rb_straight_can(&op->comm->engine, op->plan);
}

static void prepared_keep(struct rb_prepared *p, const struct rubato_op *op, uint64_t count,
			  uint64_t what, uint64_t scratch_bytes)
{
	*p = (struct rb_prepared) { .number = ++op->comm->prepared_count,
				    .plan = op->plan,
				    .plan_staged = op->plan_staged,
				    .evictions = op->comm->plans.cache.evictions,
				    .choice = op->choice,
				    .signature = op->signature,
				    .count = count,
				    .total = op->count,
				    .what = what,
				    .in_bytes = op->in_bytes,
				    .out_bytes = op->out_bytes,
				    .scratch_bytes = scratch_bytes,
				    .uneven = rb_kind_uneven(op->kind),
				    .at_once = at_once(op) };
}

/* Of no elements: a barrier, so that a rank that has some is found out. */
static void nothing_plan(struct rubato_op *op)
{
	op->plan = op->comm->plans.barrier;
	op->plan->users++;
}

/* Of one that is helped. */
static rubato_status late_choose(struct rubato_op *op)
{
	struct rb_choice_facts facts = op->comm->choices.facts;

	facts.coded = rb_op_coded(op);
	return rb_choose(&facts, op->kind, op->count, rb_op_element_bytes(op),
			 rb_algorithm_find(RB_KIND_ALLREDUCE, "two_shot_late"), &op->choice);
}

static rubato_status plans_find(struct rubato_op *op, uint64_t *scratch_bytes)
{
	RB_TRY(op->helped != NULL ? late_choose(op) : choice_get(op));
	op->signature.algorithm = op->choice.algorithm;
	RB_TRY(plan_get(op, op->choice.algorithm, &op->plan));
	*scratch_bytes = op->plan->scratch_bytes;
	if (!(op->plan->schedule.flags & RB_SCHEDULE_MAPPED_BUFFERS) ||
	    rb_plan_by_pairs(op->plan) || op->choice.staged == op->choice.algorithm)
		return RUBATO_OK;
	RB_TRY(plan_get(op, op->choice.staged, &op->plan_staged));
	if (op->plan_staged->scratch_bytes > *scratch_bytes)
		*scratch_bytes = op->plan_staged->scratch_bytes;
	return RUBATO_OK;
}

static rubato_status first_prepare(struct rubato_op *op, uint64_t *scratch_bytes)
{
	RB_TRY(rb_op_check(op));
	op->signature = rb_op_signature(op);
	if (coded_wanted(op))
		op->signature.type = rb_signature_type(op->type, op->comm->wire, feeds_back(op));
	if (wide_wanted(op))
		op->signature.type = RUBATO_FLOAT32;
	converted_describe(op);
	if (op->kind == RB_KIND_SENDRECV)
		return RUBATO_OK;
	if (op->count == 0 && op->kind != RB_KIND_ALLTOALLV && op->kind != RB_KIND_BARRIER)
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
		op->converted.active = false;
	}
	op->count = p->total;
	op->shape = (struct rb_shape) { 0 };
	op->plan = p->plan;
	op->plan->users++;
	if (op->plan != op->comm->plans.barrier)
		rb_plan_cache_touch(&op->comm->plans.cache, op->plan);
	op->plan_staged = p->plan_staged;
	if (op->plan_staged != NULL)
		op->plan_staged->users++;
}

rubato_status rb_op_prepare(struct rubato_op *op)
{
	uint64_t what = rb_prepared_what(op->kind, op->named, op->type, op->op, op->root,
					 op->in == op->out);
	struct rb_prepared *prepared = rb_prepared_place(op->comm, op->kind, op->type, op->op,
							 op->count, &op->shape, what);
	uint64_t count = op->count, scratch_bytes = 0;
	bool mapped;

	op->done = true;
	if (prepared != NULL &&
	    rb_prepared_fits(prepared, op->comm, op->in, op->out, count, &op->shape, what)) {
		prepared_use(prepared, op);
		scratch_bytes = prepared->scratch_bytes;
	} else {
		op->prepared = 0;
		RB_TRY(first_prepare(op, &scratch_bytes));
		if (prepared != NULL && RB_IMPLIES(rb_kind_uneven(op->kind), op->plan->blocks))
			prepared_keep(prepared, op, count, what, scratch_bytes);
	}
	op->at_once = prepared != NULL && prepared->at_once;
	if (op->comm->engine.device_count > 0)
		RB_TRY(rb_op_kinds_find(op));
	RB_TRY(converted_place(op));
	if (op->kind == RB_KIND_SENDRECV)
		return RUBATO_OK;
	mapped = rb_plan_needs_peers(op->plan) && !rb_plan_by_pairs(op->plan);
	RB_TRY(scratch_prepare(op, scratch_bytes, mapped));
	op->scratch.at = 0;
	if (rb_op_asks_peers(op))
		RB_TRY(rb_exchange_prepare(op));
	return rb_run_init(&op->run, op->plan);
}

/* ---- Where puts do not reach ---- */

rubato_status rb_choose_without_puts(const struct rb_choice_facts *facts, enum rb_kind kind,
				     uint64_t count, uint32_t element_bytes,
				     struct rb_choice *choice)
{
	struct rb_choice_facts apart = *facts;

	apart.put = apart.mapped = false;
	RB_TRY(rb_choose(&apart, kind, count, element_bytes, -1, choice));
	choice->algorithm = choice->staged; /* Nobody knows what is mapped. */
	return RUBATO_OK;
}

rubato_status rb_op_plan_without_puts(struct rubato_op *op)
{
	struct rubato_comm *comm = op->comm;
	struct rb_choice_facts facts = comm->choices.facts;
	struct rb_plan *plan;

	RB_ASSERT(!rb_kind_uneven(op->kind)); /* Its shape would be gone. */
	facts.coded = rb_op_coded(op);
	op->prepared = 0; /* The next call's choice is not this one. */
	RB_TRY(rb_choose_without_puts(&facts, op->kind,
				      rb_plan_total(op->kind, op->count, comm->engine.rank_count),
				      rb_op_element_bytes(op), &op->choice));
	RB_TRY(plan_get(op, op->choice.algorithm, &plan));
	RB_ASSERT(!rb_plan_needs_peers(plan));
	op->plan->users--;
	op->plan = plan;
	RB_TRY(scratch_prepare(op, plan->scratch_bytes, false));
	return rb_run_init(&op->run, plan);
}

/* ---- By pairs ---- */

rubato_status rb_op_plan_apart(struct rubato_op *op)
{
	const struct rb_layout *layout = &op->plan->layout;
	const struct rb_shape shape = { .counts = layout->lengths,
					.offsets = layout->starts,
					.out_counts = layout->out_lengths,
					.out_offsets = layout->out_starts,
					.hash = op->plan->key.shape,
					.apart = op->exchange.apart };
	struct rb_plan *plan;

	RB_TRY(plan_of(op, op->choice.algorithm, &shape, &plan));
	op->plan->users--;
	op->plan = plan;
	RB_TRY(scratch_prepare(op, plan->scratch_bytes, false));
	return rb_run_init(&op->run, plan);
}

/* ---- Helped against a late rank ---- */

rubato_status rb_op_prepare_late(struct rubato_op *op)
{
	uint64_t scratch_bytes = 0;

	op->done = true;
	op->prepared = 0;
	op->root = 0;
	RB_TRY(first_prepare(op, &scratch_bytes));
	if (op->comm->engine.device_count > 0)
		RB_TRY(rb_op_kinds_find(op));
	RB_TRY(converted_place(op));
	RB_TRY(scratch_prepare(op, scratch_bytes, false));
	return rb_run_init(&op->run, op->plan);
}

rubato_status rb_op_plan_late(struct rubato_op *op, uint32_t late)
{
	struct rb_plan *plan;

	if (op->root == late)
		return RUBATO_OK;
	op->root = late;
	RB_TRY(plan_get(op, op->choice.algorithm, &plan));
	op->plan->users--;
	op->plan = plan;
	RB_TRY(scratch_prepare(op, plan->scratch_bytes, false));
	return rb_run_init(&op->run, plan);
}

void rb_choices_forget(struct rubato_comm *comm)
{
	memset(comm->choices.memos, 0, sizeof(comm->choices.memos));
	memset(comm->prepared, 0, sizeof(comm->prepared));
}
