/*
 * sim_call.c -- calls whose results are known exactly.
 *
 * Inputs are small integers in every type, different for each rank, place and call, so that sums
 * are exact in any order and what comes from a wrong place differs.
 */
#include <stdlib.h>
#include <string.h>

#include "programs/operations.h"
#include "tools/sim/sim.h"

#define SMALL 61 /* Values 0 .. 60; a prime, so that no block or chunk repeats it. */

/* In 16-bit floats sums are exact up to 2048 and 256: only the first ranks add to reductions. */
static uint64_t value(const struct sim_call *call, uint32_t rank, uint64_t i)
{
	bool reduces = operation_reduces(call->op);
	uint64_t x = (i * 7 + rank * 13u + call->salt + i / SMALL) % SMALL;

	if (reduces && call->reduction == RUBATO_PROD)
		return rank < 8 ? 1 + (x & 1) : 1;
	if (reduces && call->type == RUBATO_FLOAT16)
		return rank < 32 ? x : 0;
	if (reduces && call->type == RUBATO_BFLOAT16)
		return rank < 32 ? x % 8 : 0;
	return x;
}

static void store(void *to, rubato_type type, uint64_t i, double x)
{
	switch (type) {
	case RUBATO_FLOAT32:
		((float *)to)[i] = (float)x;
		break;
	case RUBATO_FLOAT64:
		((double *)to)[i] = x;
		break;
	case RUBATO_FLOAT16:
		((uint16_t *)to)[i] = rubato_float32_to_float16((float)x);
		break;
	case RUBATO_BFLOAT16:
		((uint16_t *)to)[i] = rubato_float32_to_bfloat16((float)x);
		break;
	case RUBATO_INT8:
	case RUBATO_UINT8: /* What is too large wraps. */
		((uint8_t *)to)[i] = (uint8_t)(uint64_t)x;
		break;
	case RUBATO_INT16:
	case RUBATO_UINT16:
		((uint16_t *)to)[i] = (uint16_t)(uint64_t)x;
		break;
	case RUBATO_INT32:
	case RUBATO_UINT32:
		((uint32_t *)to)[i] = (uint32_t)(uint64_t)x;
		break;
	case RUBATO_INT64:
	case RUBATO_UINT64:
		((uint64_t *)to)[i] = (uint64_t)x;
		break;
	}
}

/* The sum times 1/size; of integers the quotient of the sum as the type holds it. */
static void store_average(void *to, rubato_type type, uint64_t sum, uint32_t rank_count)
{
	switch (type) {
	case RUBATO_FLOAT64:
		*(double *)to = (double)sum * (1.0 / (double)rank_count);
		break;
	case RUBATO_FLOAT32:
	case RUBATO_FLOAT16:
	case RUBATO_BFLOAT16:
		store(to, type, 0, (double)((float)sum * (1.0f / (float)rank_count)));
		break;
	case RUBATO_INT8:
		*(int8_t *)to = (int8_t)((int64_t)(int8_t)sum / (int64_t)rank_count);
		break;
	case RUBATO_INT16:
		*(int16_t *)to = (int16_t)((int64_t)(int16_t)sum / (int64_t)rank_count);
		break;
	case RUBATO_UINT8:
		*(uint8_t *)to = (uint8_t)((uint8_t)sum / rank_count);
		break;
	case RUBATO_UINT16:
		*(uint16_t *)to = (uint16_t)((uint16_t)sum / rank_count);
		break;
	default: /* Too wide to wrap. */
		store(to, type, 0, (double)(sum / rank_count));
	}
}

/* Exact: by small integers, except for the average, whose one rounding is the definition's. */
static void store_reduced(void *to, const struct sim_call *call, uint32_t rank_count, uint64_t i)
{
	uint64_t sum = 0, product = 1, max = 0, min = SMALL;

	for (uint32_t r = 0; r < rank_count; r++) {
		uint64_t x = value(call, r, i);

		sum += x;
		product *= x;
		max = x > max ? x : max;
		min = x < min ? x : min;
	}
	switch (call->reduction) {
	case RUBATO_SUM:
		store(to, call->type, 0, (double)sum);
		break;
	case RUBATO_MAX:
		store(to, call->type, 0, (double)max);
		break;
	case RUBATO_MIN:
		store(to, call->type, 0, (double)min);
		break;
	case RUBATO_PROD:
		store(to, call->type, 0, (double)product);
		break;
	case RUBATO_AVG:
		store_average(to, call->type, sum, rank_count);
		break;
	}
}

uint64_t sim_call_whole(const struct sim_call *call, uint32_t rank_count)
{
	return operation_uneven(call->op) ? uneven_start(call->count, 0, rank_count) : call->count;
}

uint64_t sim_call_count(enum operation op, rubato_type type, uint32_t rank_count,
			uint64_t size_bytes)
{
	uint64_t elements = size_bytes / rubato_type_bytes(type);

	if (op == OP_BARRIER)
		return 0;
	return operation_scattered(op) ? elements / rank_count : elements;
}

uint64_t sim_call_bytes(const struct sim_call *call, uint32_t rank_count)
{
	uint64_t elements = sim_call_whole(call, rank_count);

	if (call->op == OP_ALLTOALLV)
		elements = uneven_mean(call->count, rank_count);
	else if (operation_scattered(call->op) && !operation_uneven(call->op))
		elements *= rank_count;
	return elements * rubato_type_bytes(call->type);
}

/* ---- The call ---- */

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

static rubato_status perform(rubato_comm *comm, const struct sim_call *call, void *in, void *out)
{
	uint32_t n = rubato_size(comm), from = call->op == OP_ALLTOALLV ? rubato_rank(comm) : 0;
	struct operation_call c = { call->op,        in,        out, call->count, NULL, call->type,
				    call->reduction, call->root };
	uint64_t *counts = NULL;
	rubato_status err;

	if (call->op == OP_SENDRECV)
		return exchange(comm, call, in, out);
	if (operation_uneven(call->op)) {
		counts = malloc(n * sizeof(*counts));
		if (counts == NULL)
			return RUBATO_ERR_MEMORY;
		uneven_fill(call->count, from, n, counts);
		c.counts = counts;
	}
	err = operation_call(comm, &c);
	free(counts);
	return err;
}

/* Element i of an output of blocks: whose it is, and which of theirs. */
static double gathered(const struct sim_call *call, uint32_t rank, uint64_t i)
{
	uint32_t from = 0, a = call->op == OP_ALLTOALLV ? rank : 0;

	if (operation_uneven(call->op)) {
		while (i >= uneven_count(call->count, a, from))
			i -= uneven_count(call->count, a, from++);
	} else {
		from = (uint32_t)(i / call->count);
		i %= call->count;
	}
	if (call->op == OP_ALLTOALL)
		i += rank * call->count;
	if (call->op == OP_ALLTOALLV)
		i += uneven_start(call->count, from, rank);
	return (double)value(call, from, i);
}

/* The element of the output that must be there; false: any. */
static bool expected(const struct sim_call *call, uint32_t rank, uint32_t rank_count, uint64_t i,
		     void *to)
{
	uint32_t partner = partner_of(rank, rank_count);

	switch (call->op) {
	case OP_ALLREDUCE:
		store_reduced(to, call, rank_count, i);
		return true;
	case OP_REDUCE:
		store_reduced(to, call, rank_count, i);
		return rank == call->root;
	case OP_REDUCE_SCATTER:
		store_reduced(to, call, rank_count, rank * call->count + i);
		return true;
	case OP_REDUCE_SCATTERV:
		store_reduced(to, call, rank_count, uneven_start(call->count, 0, rank) + i);
		return true;
	case OP_GATHER:
	case OP_ALLGATHER:
	case OP_ALLGATHERV:
	case OP_ALLTOALL:
	case OP_ALLTOALLV:
		store(to, call->type, 0, gathered(call, rank, i));
		return call->op != OP_GATHER || rank == call->root;
	case OP_SCATTER:
		i += rank * call->count;
		/* fall through */
	case OP_BROADCAST:
		store(to, call->type, 0, (double)value(call, call->root, i));
		return true;
	case OP_SENDRECV:
		store(to, call->type, 0, (double)value(call, partner, i));
		return partner != rank;
	case OP_BARRIER:
		break;
	}
	return false;
}

rubato_status sim_call_make(rubato_comm *comm, const struct sim_call *call, void *in, void *out,
			    struct sim_times *times, uint64_t *wrong)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	uint64_t outs = operation_out(call->op, call->count, rank, n), want = 0;
	size_t bytes = rubato_type_bytes(call->type);
	double unit = call->rough ? 0.1 : 1;
	rubato_status err;

	for (uint64_t i = 0; i < operation_in(call->op, call->count, rank, n); i++)
		store(in, call->type, i, (double)value(call, rank, i) * unit);
	memset(out, 0x5a, outs * bytes);
	if (call->op == OP_BROADCAST && rank == call->root)
		memcpy(out, in, outs * bytes);
	if (times->enter_ns > rubato_now(comm))
		rubato_sleep(comm, times->enter_ns - rubato_now(comm));
	times->enter_ns = rubato_now(comm);
	err = perform(comm, call, in, out);
	times->leave_ns = rubato_now(comm);
	for (uint64_t i = 0; i < outs && err == RUBATO_OK && !call->rough; i++) {
		if (expected(call, rank, n, i, &want))
			*wrong += memcmp(&want, (uint8_t *)out + i * bytes, bytes) != 0;
	}
	return err;
}

uint64_t sim_call_digest(rubato_comm *comm, const struct sim_call *call, const void *out)
{
	uint64_t bytes =
		operation_out(call->op, call->count, rubato_rank(comm), rubato_size(comm)) *
		rubato_type_bytes(call->type);
	uint64_t digest = 1;

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
