/*
 * run.c -- threads one after another, each until it ends or meets its warp; memory with a shadow
 * that remembers who touched what.
 *
 * Threads of different warps are never ordered; those of one warp are by the barriers between them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/ptx/inside.h"

#define WARP 32
#define STEPS_MAX 50000000u /* Of a thread: more is taken for no end. */

/* Of a byte that may be written: who wrote it last, who read it, in which phase of its warp. */
enum readers { NONE, ONE, SOME_OF_A_WARP, SOME_OF_SEVERAL };
struct touch {
	uint32_t writer, write_phase; /* Threads from 1; 0: none. */
	uint32_t reader, read_phase;  /* The last. */
	enum readers readers;
};

struct region {
	uint64_t at, bytes;
	bool written;
	struct touch *touches; /* Where it may be written. */
};

struct thread {
	uint64_t *values; /* By slot. */
	uint8_t *known;
	uint32_t at, number, phase;
	uint64_t steps;
	bool ended, meeting;
};

struct run {
	struct ptx *ptx;
	const struct ptx_kernel *kernel;
	const uint8_t *parameters;
	struct region *regions;
	uint32_t region_count, region_last;
	const struct ptx_instruction *now;
	const struct thread *thread;
};

static bool wrong(struct run *r, const char *what, uint64_t value)
{
	(void)snprintf(r->ptx->error, sizeof(r->ptx->error), "%s (%" PRIx64 "): thread %u: %.200s",
		       what, value, r->thread != NULL ? r->thread->number - 1 : 0,
		       r->now != NULL ? r->now->text : "");
	return false;
}

/* ---- Memory ---- */

static struct region *region_of(struct run *r, uint64_t at, uint32_t bytes)
{
	for (uint32_t i = 0; i < r->region_count; i++) {
		uint32_t j = (r->region_last + i) % r->region_count;
		struct region *region = &r->regions[j];

		if (at >= region->at && at - region->at < region->bytes &&
		    region->bytes - (at - region->at) >= bytes) {
			r->region_last = j;
			return region;
		}
	}
	return NULL;
}

static bool same_warp(const struct thread *t, uint32_t other)
{
	return (other - 1) / WARP == (t->number - 1) / WARP;
}

/* Whether what `other` did in `phase` of its warp comes before what this thread does now. */
static bool ordered(const struct thread *t, uint32_t other, uint32_t phase)
{
	return other == 0 || other == t->number || (same_warp(t, other) && phase < t->phase);
}

static bool touch(const struct thread *t, struct touch *touch, bool write)
{
	if (!ordered(t, touch->writer, touch->write_phase))
		return false;
	if (write) {
		const bool after =
			touch->readers == NONE ||
			(touch->readers == ONE && ordered(t, touch->reader, touch->read_phase)) ||
			(touch->readers == SOME_OF_A_WARP && same_warp(t, touch->reader) &&
			 touch->read_phase < t->phase);

		touch->writer = t->number;
		touch->write_phase = t->phase;
		return after;
	}
	if (touch->readers == NONE)
		touch->readers = ONE;
	else if (!same_warp(t, touch->reader))
		touch->readers = SOME_OF_SEVERAL;
	else if (touch->reader != t->number && touch->readers == ONE)
		touch->readers = SOME_OF_A_WARP;
	touch->reader = t->number;
	touch->read_phase = t->phase;
	return true;
}

static bool memory(struct run *r, struct thread *t, const struct ptx_instruction *in)
{
	const uint32_t bytes = in->type.bits / 8u, all = bytes * in->to_count;
	const uint64_t at = t->values[in->from[0]] + (uint64_t)in->offset;
	const bool write = in->op == PTX_ST;
	struct region *region;

	if (at % all != 0)
		return wrong(r, "an address that is not aligned", at);
	region = region_of(r, at, all);
	if (region == NULL)
		return wrong(r, "memory beyond what was given", at);
	if (write && !region->written)
		return wrong(r, "memory that is only read", at);
	for (uint32_t i = 0; region->touches != NULL && i < all; i++)
		if (!touch(t, &region->touches[at - region->at + i], write))
			return wrong(r, "a race", at + i);
	for (uint32_t i = 0; i < in->to_count; i++) {
		void *place = (void *)(uintptr_t)(at + i * bytes); /* Little-endian, as here. */

		if (write) {
			memcpy(place, &t->values[in->to[i]], bytes);
			continue;
		}
		t->values[in->to[i]] = 0;
		memcpy(&t->values[in->to[i]], place, bytes);
		if (in->type.kind == PTX_SIGNED && (t->values[in->to[i]] >> (8 * bytes - 1)) != 0)
			t->values[in->to[i]] |= UINT64_MAX << (8 * bytes - 1);
		t->known[in->to[i]] = 1;
	}
	return true;
}

static bool parameter(struct run *r, struct thread *t, const struct ptx_instruction *in)
{
	const uint32_t bytes = in->type.bits / 8u, all = bytes * in->to_count;
	const uint64_t at = t->values[in->from[0]] + (uint64_t)in->offset;

	if (at % all != 0 || at > r->kernel->parameter_bytes - all)
		return wrong(r, "a parameter that is not there", at);
	for (uint32_t i = 0; i < in->to_count; i++) {
		t->values[in->to[i]] = 0;
		memcpy(&t->values[in->to[i]], r->parameters + at + i * bytes, bytes);
		t->known[in->to[i]] = 1;
	}
	return true;
}

/* ---- Threads ---- */

/* Of what an address or a store is made, or a warp is told, all is known. */
static bool known(struct run *r, const struct thread *t, const struct ptx_instruction *in)
{
	for (uint32_t i = 0; i < in->from_count; i++)
		if (t->known[in->from[i]] == 0)
			return wrong(r, "a register that nothing wrote", i);
	for (uint32_t i = 0; in->op == PTX_ST && i < in->to_count; i++)
		if (t->known[in->to[i]] == 0)
			return wrong(r, "what is stored, nothing wrote", i);
	return true;
}

/* Whether its guard lets it pass. */
static bool guarded(struct run *r, const struct thread *t, const struct ptx_instruction *in,
		    bool *passes)
{
	*passes = in->guard == PTX_NO_GUARD || (t->values[in->guard] != 0) != in->guard_not;
	return in->guard == PTX_NO_GUARD || t->known[in->guard] != 0 ||
	       wrong(r, "a guard that nothing wrote", 0);
}

/* What is made of an unknown value is unknown, unless it is chosen away. */
static uint8_t all_known(const struct thread *t, const struct ptx_instruction *in)
{
	uint8_t all = 1;

	if (in->op == PTX_SELP)
		return t->known[in->from[2]] &
		       t->known[in->from[(t->values[in->from[2]] & 1) != 0 ? 0 : 1]];
	for (uint32_t i = 0; i < in->from_count; i++) {
		const uint32_t slot = in->from[i];
		const uint64_t deciding = in->op == PTX_OR;

		if (in->type.kind == PTX_PRED && (in->op == PTX_AND || in->op == PTX_OR) &&
		    t->known[slot] != 0 && t->values[slot] == deciding)
			return 1;
		all &= t->known[slot];
	}
	return all;
}

static void several(struct thread *t, const struct ptx_instruction *in)
{
	const uint32_t count = in->op == PTX_PACK ? in->from_count : in->to_count;
	const uint32_t bits = in->type.bits / count;
	const uint8_t known = all_known(t, in);
	uint64_t value = in->op == PTX_PACK ? 0 : t->values[in->from[0]];

	for (uint32_t i = 0; i < count; i++) {
		uint64_t mask = (1ull << bits) - 1;

		if (in->op == PTX_PACK) {
			value |= (t->values[in->from[i]] & mask) << (bits * i);
			continue;
		}
		t->values[in->to[i]] = value >> (bits * i) & mask;
		t->known[in->to[i]] = known;
	}
	if (in->op == PTX_PACK) {
		t->values[in->to[0]] = value;
		t->known[in->to[0]] = known;
	}
}

static void compute(struct thread *t, const struct ptx_instruction *in)
{
	uint64_t from[PTX_OPERANDS] = { 0 };
	const uint8_t known = all_known(t, in);

	for (uint32_t i = 0; i < in->from_count; i++)
		from[i] = t->values[in->from[i]];
	t->values[in->to[0]] = ptx_compute(in, from);
	t->known[in->to[0]] = known;
}

/* Until it ends or meets its warp. */
static bool advance(struct run *r, struct thread *t)
{
	const struct ptx_kernel *k = r->kernel;

	r->thread = t;
	while (!t->ended && !t->meeting) {
		const struct ptx_instruction *in = r->now = &k->instructions[t->at];
		bool passes;

		if (t->at == k->instruction_count)
			return wrong(r, "the end of its text", t->at);
		if (t->steps++ == STEPS_MAX)
			return wrong(r, "no end", t->steps);
		if (!guarded(r, t, in, &passes))
			return false;
		t->at++;
		if (!passes)
			continue;
		switch (in->op) {
		case PTX_LD_PARAM:
			if (!known(r, t, in) || !parameter(r, t, in))
				return false;
			break;
		case PTX_LD:
		case PTX_ST:
			if (!known(r, t, in) || !memory(r, t, in))
				return false;
			break;
		case PTX_PACK:
		case PTX_UNPACK:
			several(t, in);
			break;
		case PTX_BRA:
			t->at = in->target;
			break;
		case PTX_RET:
			t->ended = true;
			break;
		case PTX_SLEEP:
			break;
		case PTX_WARP:
		case PTX_REDUX_MAX:
		case PTX_SHFL:
			if (!known(r, t, in))
				return false;
			t->meeting = true;
			break;
		default:
			compute(t, in);
		}
	}
	return true;
}

/* All of a warp stand at the same place, none has ended. */
static bool meet(struct run *r, struct thread *threads, uint32_t count)
{
	const struct ptx_instruction *in = &r->kernel->instructions[threads[0].at - 1];
	uint32_t greatest = 0, values[WARP];

	r->now = in;
	r->thread = &threads[0];
	if (count != WARP)
		return wrong(r, "a warp that is not whole", count);
	for (uint32_t i = 0; i < count; i++) {
		if (threads[i].ended || threads[i].at != threads[0].at)
			return wrong(r, "a warp of which not all meet", i);
		uint32_t value = (uint32_t)threads[i].values[in->from[0]];

		uint32_t mask = (uint32_t)threads[i].values[in->from[in->from_count - 1]];

		if (mask != UINT32_MAX)
			return wrong(r, "a meeting of a part of a warp", mask);
		greatest = value > greatest ? value : greatest;
		values[i] = value;
		if (in->op == PTX_SHFL && (threads[i].values[in->from[1]] >= WARP ||
					   threads[i].values[in->from[2]] != WARP - 1))
			return wrong(r, "a lane that is not there", i);
	}
	for (uint32_t i = 0; i < count; i++) {
		threads[i].meeting = false;
		if (in->op == PTX_WARP) {
			threads[i].phase++;
			continue;
		}
		threads[i].values[in->to[0]] =
			in->op == PTX_SHFL ? values[i ^ threads[i].values[in->from[1]]] : greatest;
		threads[i].known[in->to[0]] = 1;
	}
	return true;
}

static void thread_begin(const struct run *r, struct thread *t, unsigned grid, unsigned block,
			 unsigned at_block, unsigned at_thread)
{
	const uint32_t registers = r->kernel->registers;

	memset(t->known, 0, registers);
	memset(t->known, 1, PTX_SPECIALS);
	t->values[0] = at_thread;
	t->values[1] = block;
	t->values[2] = at_block;
	t->values[3] = grid;
	t->number = at_block * block + at_thread + 1;
	t->at = t->phase = 0;
	t->steps = 0;
	t->ended = t->meeting = false;
}

/* `count` threads of one warp, side by side. */
static bool warp_run(struct run *r, struct thread *threads, uint32_t count)
{
	for (bool more = true; more;) {
		more = false;
		for (uint32_t i = 0; i < count; i++) {
			if (!advance(r, &threads[i]))
				return false;
			more |= threads[i].meeting;
		}
		if (more && !meet(r, threads, count))
			return false;
	}
	return true;
}

static bool blocks_run(struct run *r, struct thread *threads, unsigned grid, unsigned block)
{
	for (unsigned b = 0; b < grid; b++)
		for (unsigned first = 0; first < block; first += WARP) {
			uint32_t count = block - first < WARP ? block - first : WARP;

			for (uint32_t i = 0; i < count; i++)
				thread_begin(r, &threads[i], grid, block, b, first + i);
			if (!warp_run(r, threads, count))
				return false;
		}
	return true;
}

/* ---- A launch ---- */

static bool threads_open(const struct ptx_kernel *k, struct thread threads[WARP])
{
	const size_t slots = (size_t)k->registers + k->constant_count;

	for (uint32_t i = 0; i < WARP; i++) {
		threads[i].values = calloc(slots, sizeof(*threads[i].values));
		threads[i].known = malloc(slots);
		if (threads[i].values == NULL || threads[i].known == NULL)
			return false;
		memset(threads[i].known, 1, slots);
		if (k->constant_count > 0)
			memcpy(threads[i].values + k->registers, k->constants,
			       k->constant_count * sizeof(*k->constants));
	}
	return true;
}

static bool regions_open(struct run *r, const struct launcher_span *spans, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct region *region = &r->regions[r->region_count];

		if (spans[i].bytes == 0)
			continue;
		*region = (struct region) { .at = (uintptr_t)spans[i].at,
					    .bytes = spans[i].bytes,
					    .written = spans[i].written };
		r->region_count++;
		if (region->written &&
		    (region->touches = calloc(spans[i].bytes, sizeof(*region->touches))) == NULL)
			return false;
	}
	return true;
}

const char *ptx_run(struct ptx *p, const char *kernel, unsigned grid, unsigned block,
		    const void *parameters, size_t parameter_bytes,
		    const struct launcher_span *spans, uint32_t span_count)
{
	struct run r = { .ptx = p, .parameters = parameters };
	struct thread threads[WARP] = { { 0 } };
	bool right = false;

	for (uint32_t i = 0; i < p->kernel_count; i++)
		if (strcmp(p->kernels[i].name, kernel) == 0)
			r.kernel = &p->kernels[i];
	if (r.kernel == NULL)
		return "there is no such kernel";
	if (r.kernel->parameter_bytes != parameter_bytes)
		return "its parameters are of another size";
	r.regions = calloc(span_count + 1, sizeof(*r.regions));
	(void)snprintf(p->error, sizeof(p->error), "out of memory");
	if (r.regions != NULL && threads_open(r.kernel, threads) &&
	    regions_open(&r, spans, span_count))
		right = blocks_run(&r, threads, grid, block);
	for (uint32_t i = 0; i < WARP; i++) {
		free(threads[i].values);
		free(threads[i].known);
	}
	for (uint32_t i = 0; r.regions != NULL && i < r.region_count; i++)
		free(r.regions[i].touches);
	free(r.regions);
	return right ? NULL : p->error;
}
