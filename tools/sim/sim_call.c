/* sim_call.c -- one call in virtual time, whose results are known. */
#include <stdlib.h>
#include <string.h>

#include "tools/known/elements.h"
#include "tools/known/known.h"
#include "tools/sim/sim.h"

#define CUTS_FROM_RANKS 128

/* Pairs (0, 1), (2, 3), ...: each exchanges with its other; who is left over has nothing to do. */
static uint32_t partner_of(uint32_t rank, uint32_t rank_count)
{
	uint32_t partner = rank ^ 1u;

	return partner < rank_count ? partner : rank;
}

static rubato_status exchange(rubato_comm *comm, const struct sim_call *call, const void *in,
			      void *out)
{
	uint32_t partner = partner_of(rubato_rank(comm), rubato_size(comm));
	rubato_op *send = NULL, *recv = NULL;
	rubato_status err;

	if (partner == rubato_rank(comm))
		return RUBATO_OK;
	err = rubato_op_recv(comm, out, call->count, call->type, partner, 1, &recv);
	if (err == RUBATO_OK)
		err = rubato_op_send(comm, in, call->count, call->type, partner, 1, &send);
	if (err == RUBATO_OK)
		err = rubato_start(recv);
	if (err == RUBATO_OK)
		err = rubato_start(send);
	if (err == RUBATO_OK)
		err = rubato_wait(recv, RUBATO_TIMEOUT_DEFAULT);
	if (err == RUBATO_OK)
		err = rubato_wait(send, RUBATO_TIMEOUT_DEFAULT);
	rubato_op_free(send);
	rubato_op_free(recv);
	return err;
}

static rubato_status perform(rubato_comm *comm, const struct sim_call *call,
			     struct operation_call *c)
{
	uint32_t n = rubato_size(comm), from = call->op == OP_ALLTOALLV ? rubato_rank(comm) : 0;
	uint64_t *counts = NULL;
	rubato_status err;

	if (call->started != NULL) {
		err = rubato_start(call->started);
		return err == RUBATO_OK ? rubato_wait(call->started, RUBATO_TIMEOUT_DEFAULT) : err;
	}
	if (call->op == OP_SENDRECV)
		return exchange(comm, call, c->in, c->out);
	if (operation_uneven(call->op)) {
		counts = malloc(n * sizeof(*counts));
		if (counts == NULL)
			return RUBATO_ERR_MEMORY;
		uneven_fill(call->count, from, n, counts);
		c->counts = counts;
	}
	err = operation_call(comm, c);
	free(counts);
	return err;
}

/* Large, so that all ranks have one: no other runs while a rank writes or checks. */
static struct known *known_of(rubato_comm *comm, const struct sim_call *call)
{
	static struct known known;

	known.rank = rubato_rank(comm);
	known.rank_count = rubato_size(comm);
	known.from = partner_of(known.rank, known.rank_count);
	known.number = call->salt;
	known.cuts = call->inputs != NULL;
	return &known;
}

/* Nothing comes to it. */
static bool is_alone(rubato_comm *comm, const struct sim_call *call)
{
	uint32_t rank = rubato_rank(comm);

	return call->op == OP_SENDRECV && partner_of(rank, rubato_size(comm)) == rank;
}

/* Floats that round: tenths. */
static void make_rough(const struct operation_call *c, uint64_t ins)
{
	for (uint64_t i = 0; i < ins; i++)
		float_set(c->type, c->in, i, float_get(c->type, c->in, i) * 0.1);
}

uint64_t sim_call_out_bytes(rubato_comm *comm, const struct sim_call *call)
{
	return operation_out(call->op, call->count, rubato_rank(comm), rubato_size(comm)) *
	       rubato_type_bytes(call->type);
}

bool sim_inputs_open(struct sim_inputs *inputs, struct sim_call *call, uint32_t rank_count)
{
	const struct operation_call c = { .op = call->op,
					  .type = call->type,
					  .reduction = call->reduction };
	uint64_t most = 0;

	*inputs = (struct sim_inputs) { .at = NULL };
	if (rank_count < CUTS_FROM_RANKS || call->rough || !known_may_cut(&c))
		return true;
	for (uint32_t rank = 0; rank < rank_count; rank++) {
		uint64_t count = operation_in(call->op, call->count, rank, rank_count);

		most = count > most ? count : most;
	}
	inputs->count = most + PATTERN_ELEMENTS;
	inputs->at = malloc(KNOWN_SEQUENCES * inputs->count * rubato_type_bytes(call->type));
	call->inputs = inputs;
	return inputs->at != NULL;
}

void *sim_inputs_of(const struct sim_call *call, uint32_t rank)
{
	const struct sim_inputs *inputs = call->inputs;
	uint64_t first = rank % KNOWN_SEQUENCES * inputs->count + known_cut(rank);

	return inputs->at + first * rubato_type_bytes(call->type);
}

/* Before each call all ranks are through the one before it: nobody reads what is written over. */
static void inputs_write(const struct sim_call *call, const struct operation_call *c,
			 struct known *known)
{
	struct sim_inputs *inputs = call->inputs;
	uint64_t bytes = inputs->count * rubato_type_bytes(call->type);

	if (inputs->written && inputs->salt == call->salt)
		return;
	for (uint32_t i = 0; i < KNOWN_SEQUENCES; i++)
		known_write_sequence(known, c, i, inputs->count, inputs->at + i * bytes);
	inputs->salt = call->salt;
	inputs->written = true;
}

rubato_status sim_call_make(rubato_comm *comm, const struct sim_call *call, void *in, void *out,
			    struct sim_times *times, uint64_t *wrong)
{
	struct operation_call c = { call->op,        in,        out, call->count, NULL, call->type,
				    call->reduction, call->root };
	rubato_status err;

	if (call->inputs != NULL)
		inputs_write(call, &c, known_of(comm, call));
	else
		known_write(known_of(comm, call), &c);
	if (call->rough)
		make_rough(&c, call->count);
	if (call->op == OP_BROADCAST && rubato_rank(comm) == call->root)
		memcpy(out, in, sim_call_out_bytes(comm, call));
	if (times->enter_ns > rubato_now(comm))
		rubato_sleep(comm, times->enter_ns - rubato_now(comm));
	times->enter_ns = rubato_now(comm);
	err = perform(comm, call, &c);
	times->leave_ns = rubato_now(comm);
	if (err == RUBATO_OK && !call->rough && !is_alone(comm, call))
		*wrong += known_wrong(known_of(comm, call), &c);
	return err;
}

uint64_t sim_call_digest(rubato_comm *comm, const struct sim_call *call, const void *out)
{
	uint64_t bytes = sim_call_out_bytes(comm, call), digest = 1;

	if (call->op != OP_ALLREDUCE && call->op != OP_ALLGATHER && call->op != OP_ALLGATHERV &&
	    call->op != OP_BROADCAST)
		return 0;
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = 0;

		memcpy(&word, (const uint8_t *)out + i, bytes - i < 8 ? bytes - i : 8);
		digest = rng_mix(digest ^ word) + i;
	}
	return digest != 0 ? digest : 1;
}
