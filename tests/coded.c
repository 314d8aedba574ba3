/* coded.c -- see coded.h. */
#include "tests/coded.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/status.h"
#include "tests/expect.h"

#define BEHIND_BYTES (CODED_BEHIND * sizeof(float))
#define UNTOUCHED 1e9f

struct buffers {
	uint64_t counts[2]; /* Of in and out. */
	float *at[2];
	float *host; /* What goes in. */
};

static rubato_status buffers_make(rubato_comm *comm, const struct coded *c, struct buffers *b)
{
	float behind[CODED_BEHIND];

	for (uint32_t i = 0; i < CODED_BEHIND; i++)
		behind[i] = UNTOUCHED;
	b->counts[0] = c->scatter ? rubato_size(comm) * c->count : c->count;
	b->counts[1] = c->count;
	b->host = malloc(b->counts[0] * 4 + 4);
	EXPECT(b->host != NULL);
	for (uint32_t side = 0; side < (c->in_place ? 1 : 2); side++) {
		size_t bytes = b->counts[side] * 4 + BEHIND_BYTES;
		void *memory = malloc(bytes);

		if (c->kinds[side] != EXERCISE_HOST) {
			free(memory);
			RB_TRY(c->memory->alloc(comm, bytes, c->kinds[side] == EXERCISE_MANAGED,
						&memory));
		}
		EXPECT(memory != NULL);
		b->at[side] = memory;
		c->memory->copy(comm, b->at[side] + b->counts[side], behind, BEHIND_BYTES);
	}
	if (c->in_place)
		b->at[1] = b->at[0];
	return RUBATO_OK;
}

static rubato_status buffers_free(rubato_comm *comm, const struct coded *c, struct buffers *b)
{
	float behind[CODED_BEHIND];

	for (uint32_t side = 0; side < (c->in_place ? 1 : 2); side++) {
		c->memory->copy(comm, behind, b->at[side] + b->counts[side], BEHIND_BYTES);
		for (uint32_t i = 0; i < CODED_BEHIND; i++)
			EXPECT(behind[i] == UNTOUCHED);
		if (c->kinds[side] == EXERCISE_HOST)
			free(b->at[side]);
		else
			RB_TRY(c->memory->free(comm, b->at[side]));
	}
	free(b->host);
	return RUBATO_OK;
}

static rubato_status once(rubato_comm *comm, const struct coded *c, const struct buffers *b)
{
	return c->scatter ? rubato_reduce_scatter(comm, b->at[0], b->at[1], c->count,
						  RUBATO_FLOAT32, c->op)
			  : rubato_allreduce(comm, b->at[0], b->at[1], c->count, RUBATO_FLOAT32,
					     c->op);
}

static rubato_status made(rubato_comm *comm, const struct coded *c, const struct buffers *b,
			  rubato_op **op)
{
	return c->scatter ? rubato_op_reduce_scatter(comm, b->at[0], b->at[1], c->count,
						     RUBATO_FLOAT32, c->op, op)
			  : rubato_op_allreduce(comm, b->at[0], b->at[1], c->count, RUBATO_FLOAT32,
						c->op, op);
}

static rubato_status started(const struct coded *c, rubato_op *op)
{
	RB_TRY(c->start != NULL ? c->start(op) : rubato_start(op));
	return rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
}

rubato_status coded_run(rubato_comm *comm, const struct coded *c, float *results)
{
	const char *kind = c->scatter ? "reduce_scatter" : "allreduce";
	struct buffers b = { .host = NULL };
	rubato_op *op = NULL;
	rubato_status err;

	RB_TRY(rubato_set_wire(comm, c->wire, c->feedback));
	RB_TRY(rubato_set_algorithm(comm, kind, c->algorithm != NULL ? c->algorithm : "auto"));
	RB_TRY(buffers_make(comm, c, &b));
	err = c->once ? RUBATO_OK : made(comm, c, &b, &op);
	for (uint32_t round = 0; round < CODED_ROUNDS && err == RUBATO_OK; round++) {
		for (uint64_t i = 0; i < b.counts[0]; i++)
			b.host[i] = (float)((i * 7 + round * 13 + rubato_rank(comm) * 5 + c->salt) %
					    1009) *
				    0.37f;
		c->memory->copy(comm, b.at[0], b.host, b.counts[0] * 4);
		err = c->once ? once(comm, c, &b) : started(c, op);
		if (err == RUBATO_OK)
			c->memory->copy(comm, results + round * c->count, b.at[1], c->count * 4);
	}
	rubato_op_free(op);
	RB_TRY(buffers_free(comm, c, &b));
	RB_TRY(rubato_set_wire(comm, RUBATO_WIRE_SAME, false));
	return err;
}

static uint32_t below(struct rb_rng *rng, uint32_t bound)
{
	return (uint32_t)rb_rng_below(rng, bound);
}

/* The same on all ranks, but for where their buffers lie: a third of them all on the device. */
static struct coded draw(struct rb_rng *rng, uint32_t rank, uint32_t n)
{
	static const uint64_t counts[] = { 1, 127, 128, 1000, 4097, 40009, 300001 };
	uint32_t uniform = below(rng, 3), kinds = below(rng, 9), algorithms = 0;
	struct rb_rng own = { rb_rng_next(rng) + rank };
	struct coded c = { .wire = below(rng, 2) ? RUBATO_WIRE_INT8 : RUBATO_WIRE_BFLOAT16,
			   .feedback = below(rng, 2),
			   .scatter = below(rng, 2),
			   .once = below(rng, 3) == 0,
			   .in_place = below(rng, 3) == 0,
			   .count = counts[below(rng, 7)],
			   .op = below(rng, 2) ? RUBATO_SUM : RUBATO_AVG,
			   .salt = below(rng, 1009) };
	const char *kind = c.scatter ? "reduce_scatter" : "allreduce";

	while (exercise_algorithm(kind, algorithms) != NULL)
		algorithms++;
	if (below(rng, 3) > 0)
		c.algorithm = exercise_algorithm(kind, below(rng, algorithms));
	/* Where a buffer takes no puts, all take another one, which may round elsewhere. */
	if (c.algorithm != NULL && strstr(c.algorithm, "_put") != NULL)
		c.algorithm = NULL;
	c.in_place = c.in_place && !c.scatter;
	if (c.scatter)
		c.count = c.count / n + 1;
	if (uniform == 0)
		kinds = below(&own, 9);
	if (uniform == 1)
		kinds = 4;
	c.kinds[0] = (enum exercise_kind)(kinds % 3);
	c.kinds[1] = c.in_place ? c.kinds[0] : (enum exercise_kind)(kinds / 3);
	return c;
}

rubato_status coded_world_run(rubato_comm *comm, struct coded_world *w)
{
	struct rb_rng rng = { w->seed };

	for (uint32_t i = 0; i < 6; i++) {
		struct coded c = draw(&rng, rubato_rank(comm), rubato_size(comm));
		size_t bytes = CODED_ROUNDS * c.count * 4;
		float *there = malloc(bytes), *here = malloc(bytes);
		rubato_status err;

		EXPECT(there != NULL && here != NULL);
		c.memory = w->memory;
		c.start = c.once ? NULL : w->start;
		err = coded_run(comm, &c, there);
		*(err == RUBATO_ERR_UNSUPPORTED ? &w->skipped : &w->ran) += 1;
		if (err == RUBATO_OK) {
			c.kinds[0] = c.kinds[1] = EXERCISE_HOST;
			c.start = NULL;
			RB_TRY(coded_run(comm, &c, here));
			if (memcmp(there, here, bytes) != 0)
				return RB_FAIL(RUBATO_ERR_MISMATCH,
					       "%s of %llu in %s, %s: other bits than the host's",
					       c.scatter ? "reduce_scatter" : "allreduce",
					       (unsigned long long)c.count,
					       rubato_wire_name(c.wire),
					       c.algorithm != NULL ? c.algorithm : "auto");
		} else if (err != RUBATO_ERR_UNSUPPORTED) {
			return err;
		}
		free(there);
		free(here);
	}
	return RUBATO_OK;
}
