/*
 * persistent.c -- persistent operations: made, started again and again, waited for and freed, many
 * at a time, each rank in an order of its own where the order is its own.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "random.h"

#define POLL_SECONDS 30

static const uint64_t *offsets_of(const struct blocks *blocks)
{
	return blocks->packed ? NULL : blocks->offsets;
}

static rubato_status made(rubato_comm *comm, const struct call *c, rubato_op **op)
{
	const struct blocks *in = &c->in_blocks, *out = &c->out_blocks;

	switch (c->kind) {
	case ALLREDUCE:
		return rubato_op_allreduce(comm, c->in, c->out, c->count, c->type, c->op, op);
	case HELPED:
		return rubato_op_allreduce_helped(comm, c->in, c->out, c->count, c->type, c->op,
						  op);
	case REDUCE:
		return rubato_op_reduce(comm, c->in, c->out, c->count, c->type, c->op, c->root, op);
	case REDUCE_SCATTER:
		return rubato_op_reduce_scatter(comm, c->in, c->out, c->count, c->type, c->op, op);
	case ALLGATHER:
		return rubato_op_allgather(comm, c->in, c->out, c->count, c->type, op);
	case BROADCAST:
		return rubato_op_broadcast(comm, c->out, c->count, c->type, c->root, op);
	case ALLTOALL:
		return rubato_op_alltoall(comm, c->in, c->out, c->count, c->type, op);
	case GATHER:
		return rubato_op_gather(comm, c->in, c->out, c->count, c->type, c->root, op);
	case SCATTER:
		return rubato_op_scatter(comm, c->in, c->out, c->count, c->type, c->root, op);
	case ALLGATHERV:
		return rubato_op_allgatherv(comm, c->in, c->out, in->counts, offsets_of(in),
					    c->type, op);
	case REDUCE_SCATTERV:
		return rubato_op_reduce_scatterv(comm, c->in, c->out, in->counts, offsets_of(in),
						 c->type, c->op, op);
	case ALLTOALLV:
		return rubato_op_alltoallv(comm, c->in, in->counts, offsets_of(in), c->out,
					   out->counts, offsets_of(out), c->type, op);
	default:
		return rubato_op_barrier(comm, op);
	}
}

static void create(struct place *place, struct operation *o)
{
	rubato_status status;

	*o = (struct operation) { 0 };
	call_draw(place, &o->call, true);
	call_make(place, &o->call);
	call_say(place, &o->call, "op_");
	status = made(place->comm, &o->call, &o->op);
	if (unsupported(place, o->call.kind, status))
		status = made(place->comm, &o->call, &o->op);
	must(place, status);
	place->done[KINDS + o->call.kind]++;
	/* The arrays were read: they are the caller's again. */
	for (uint32_t r = 0; r < RANKS_MAX; r++)
		o->call.in_blocks.counts[r] = o->call.in_blocks.offsets[r] =
			o->call.out_blocks.counts[r] = o->call.out_blocks.offsets[r] = UINT64_MAX;
}

static void see(struct place *place, struct operation *o)
{
	if (!o->unseen)
		return;
	call_say(place, &o->call, "result of op_");
	call_check(place, &o->call);
	o->unseen = false;
}

void await(struct place *place, rubato_op *op)
{
	time_t end = time(NULL) + POLL_SECONDS;
	bool done = false;
	uint32_t how = below(&place->own, 4), looks = below(&place->own, 4);

	for (; how > 0 && !done && (how == 1 || looks > 0); looks--) {
		if (how == 3) {
			rubato_status status = rubato_wait(op, RUBATO_NO_WAIT);

			done = status == RUBATO_OK;
			must_be(place, done ? RUBATO_OK : RUBATO_ERR_TIMEOUT, status);
		} else {
			must(place, rubato_test(op, &done));
		}
		if (!done)
			(void)sched_yield();
		if (time(NULL) > end)
			fail(place, "rubato_test: not done within %d s", POLL_SECONDS);
	}
	if (how == 1)
		count(place, POLLED);
	if (!done)
		must(place, rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
}

static void finish(struct place *place, struct operation *o)
{
	if (o->over)
		return;
	call_say(place, &o->call, "wait of op_");
	await(place, o->op);
	o->over = o->unseen = true;
	if (one_in(&place->own, 2))
		see(place, o);
}

static void start(struct place *place, struct operation *o)
{
	see(place, o);
	call_fill(place, &o->call);
	call_say(place, &o->call, "start of op_");
	must(place, rubato_start(o->op));
	o->over = false;
	if (o->turns++ > 0)
		count(place, STARTED_AGAIN);
	if (one_in(&place->own, 6))
		nap(place, below(&place->own, 300));
}

static bool any_flying(const struct place *place)
{
	for (uint32_t i = 0; i < OPS; i++)
		if (place->operations[i].op != NULL && place->operations[i].flying)
			return true;
	return false;
}

static void release(struct place *place, struct operation *o)
{
	bool first = one_in(&place->own, 2);

	see(place, o);
	call_say(place, &o->call, "free of op_");
	if (any_flying(place))
		count(place, FREED_BESIDE);
	if (first)
		call_free(place, &o->call);
	rubato_op_free(o->op);
	if (!first)
		call_free(place, &o->call);
	o->op = NULL;
}

static void create_some(struct place *place)
{
	uint32_t left = 1 + below(&place->common, 3);

	for (uint32_t i = 0; i < OPS && left > 0; i++) {
		if (place->operations[i].op != NULL)
			continue;
		create(place, &place->operations[i]);
		left--;
	}
}

enum change { START, FINISH, RELEASE };

/* Those of a set that all ranks draw, in the rank's own order. */
static void change_some(struct place *place, enum change change, uint32_t set)
{
	uint32_t order[OPS];
	uint32_t starting = 0;

	order_draw(&place->own, OPS, order);
	for (uint32_t k = 0; k < OPS; k++) {
		struct operation *o = &place->operations[order[k]];

		if (o->op == NULL || (set >> order[k] & 1) == 0 || o->flying != (change == FINISH))
			continue;
		starting |= 1u << order[k];
		if (change == FINISH)
			finish(place, o);
		else if (change == RELEASE)
			release(place, o);
	}
	/* Their values are of the program's order. */
	for (uint32_t i = 0; i < OPS; i++) {
		struct operation *o = &place->operations[i];

		if ((starting >> i & 1) == 0)
			continue;
		if (change == FINISH)
			o->flying = false;
		if (change != START)
			continue;
		see(place, o); /* By the values before. */
		o->flying = true;
		o->call.key = next_key(place);
	}
	for (uint32_t k = 0; k < OPS && change == START; k++)
		if (starting >> order[k] & 1)
			start(place, &place->operations[order[k]]);
	/* Others may be elsewhere meanwhile, where operations go on by themselves. */
	for (uint32_t k = 0; k < OPS && change == START && place->program->background; k++)
		if ((starting >> order[k] & 1) && one_in(&place->own, 4))
			finish(place, &place->operations[order[k]]);
}

void step_persistent(struct place *place)
{
	uint32_t what = below(&place->common, 7), set = below(&place->common, 1u << OPS);

	if (what < 2)
		create_some(place);
	else if (what < 4)
		change_some(place, START, set);
	else if (what < 6)
		change_some(place, FINISH, set);
	else
		change_some(place, RELEASE, set & below(&place->common, 1u << OPS));
}

/* Started again as soon as it is over: a rank that looks at results is behind others. */
void turns_run(struct place *place)
{
	struct operation *o = malloc(sizeof(*o));
	uint32_t turns = 2 + below(&place->common, 8);
	bool looks = one_in(&place->own, 2);

	if (o == NULL)
		fail(place, "no memory");
	create(place, o);
	for (uint32_t turn = 0; turn < turns; turn++) {
		o->call.key = next_key(place);
		call_fill(place, &o->call);
		must(place, rubato_start(o->op));
		must(place, rubato_wait(o->op, RUBATO_TIMEOUT_DEFAULT));
		if (looks || turn + 1 == turns)
			call_check(place, &o->call);
		o->turns++;
	}
	place->done[DONE_OTHER(STARTED_AGAIN)] += turns - 1;
	rubato_op_free(o->op);
	call_free(place, &o->call);
	free(o);
}

void operations_end(struct place *place)
{
	change_some(place, FINISH, UINT32_MAX);
	change_some(place, RELEASE, UINT32_MAX);
}
