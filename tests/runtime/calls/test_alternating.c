/*
 * test_alternating.c -- operations whose slots of mapped scratch alternate between two ranks
 * (schedule.h): results are right in every instance, of any number of chunks, whoever is late, and
 * where what counts the iterations wraps.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

#define CHUNK_WORDS 64u
#define CHUNKS_MAX 7u
#define BLOCK_MAX ((uint64_t)CHUNKS_MAX * CHUNK_WORDS)
#define OPERATIONS 6u
#define INSTANCES 24u
#define RANKS_MAX 5u

static const struct rb_transport_ops *const transports[] = { &rb_transport_shm, NULL };

enum { ALLTOALL, REDUCE_SCATTER, ALLGATHER, KINDS };

struct operation {
	uint32_t kind;
	uint64_t count;
	rubato_op *op;
	int32_t in[RANKS_MAX * BLOCK_MAX], out[RANKS_MAX * BLOCK_MAX];
	uint32_t instance; /* What is in flight, or was last. */
	bool in_flight;
};

static int32_t value(uint32_t instance, uint32_t rank, uint64_t i)
{
	return (int32_t)(instance * 7919 + rank * 104729 + i * 31);
}

static rubato_status operation_make(rubato_comm *comm, struct operation *o, struct rb_rng *rng)
{
	uint32_t n = rubato_size(comm);

	o->kind = (uint32_t)rb_rng_below(rng, KINDS);
	o->count = 1 + rb_rng_below(rng, BLOCK_MAX);
	o->instance = 0;
	o->in_flight = false;
	if (o->kind == ALLTOALL)
		RB_TRY(rubato_op_alltoall(comm, o->in, o->out, o->count, RUBATO_INT32, &o->op));
	else if (o->kind == REDUCE_SCATTER)
		RB_TRY(rubato_op_reduce_scatter(comm, o->in, o->out, o->count, RUBATO_INT32,
						RUBATO_SUM, &o->op));
	else
		RB_TRY(rubato_op_allgather(comm, o->in, o->out, o->count, RUBATO_INT32, &o->op));
	uint32_t chunks = (uint32_t)((o->count + CHUNK_WORDS - 1) / CHUNK_WORDS);
	bool alternates = o->kind != ALLGATHER || n == 2;

	EXPECT(o->op->plan->turns == (alternates ? chunks : 0));
	/* As if it had run so often: the same number on all ranks. */
	o->op->run.turns_next = (uint32_t)rb_rng_below(rng, 4) - 3 * chunks;
	return RUBATO_OK;
}

static rubato_status operation_start(rubato_comm *comm, struct operation *o)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint64_t ins = o->kind == ALLGATHER ? o->count : n * o->count;

	o->instance++;
	for (uint64_t i = 0; i < ins; i++)
		o->in[i] = value(o->instance, rank, i);
	memset(o->out, -1, sizeof(o->out));
	o->in_flight = true;
	return rubato_start(o->op);
}

static rubato_status operation_end(rubato_comm *comm, struct operation *o)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint64_t outs = o->kind == REDUCE_SCATTER ? o->count : n * o->count;

	RB_TRY(rubato_wait(o->op, RUBATO_TIMEOUT_DEFAULT));
	o->in_flight = false;
	for (uint64_t i = 0; i < outs; i++) {
		uint32_t from = (uint32_t)(i / o->count);
		uint64_t at = i % o->count;
		int32_t sum = 0;

		for (uint32_t r = 0; r < n; r++)
			sum += value(o->instance, r, rank * o->count + at);
		EXPECT(o->kind != ALLTOALL ||
		       o->out[i] == value(o->instance, from, rank * o->count + at));
		EXPECT(o->kind != REDUCE_SCATTER || o->out[i] == sum);
		EXPECT(o->kind != ALLGATHER || o->out[i] == value(o->instance, from, at));
	}
	return RUBATO_OK;
}

static void nap(struct rb_rng *rng)
{
	struct timespec span = { .tv_nsec = (long)rb_rng_below(rng, 200) * 1000 };

	if (rb_rng_below(rng, 8) == 0)
		(void)nanosleep(&span, NULL);
}

/* All are started in the same order; each rank waits for them in its own, as late as it likes. */
static rubato_status operations_run(rubato_comm *comm, struct operation *all, struct rb_rng *rng,
				    struct rb_rng *own)
{
	for (uint32_t i = 0; i < OPERATIONS; i++)
		RB_TRY(operation_make(comm, &all[i], rng));
	for (uint32_t i = 0; i < OPERATIONS * INSTANCES; i++) {
		struct operation *o = &all[rb_rng_below(rng, OPERATIONS)];
		struct operation *other = &all[rb_rng_below(own, OPERATIONS)];

		nap(own);
		if (o->in_flight)
			RB_TRY(operation_end(comm, o));
		RB_TRY(operation_start(comm, o));
		if (other->in_flight && rb_rng_below(own, 2) == 0)
			RB_TRY(operation_end(comm, other));
	}
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		if (all[i].in_flight)
			RB_TRY(operation_end(comm, &all[i]));
		rubato_op_free(all[i].op);
	}
	return RUBATO_OK;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	const uint64_t *seed = arg;
	struct rb_rng rng = { .state = *seed }, own = { .state = *seed + 1 + rubato_rank(comm) };
	struct operation *all = calloc(OPERATIONS, sizeof(*all));
	rubato_status err = all != NULL ? RUBATO_OK : RUBATO_ERR_MEMORY;
	static const char *const names[] = { "alltoall", "reduce_scatter", "allgather" };

	comm->choices.facts.chunk_bytes_max = CHUNK_WORDS * sizeof(int32_t);
	for (uint32_t i = 0; i < KINDS && err == RUBATO_OK; i++)
		err = rubato_set_algorithm(comm, names[i], "staged");
	for (uint32_t i = 0; i < 3 && err == RUBATO_OK; i++)
		err = operations_run(comm, all, &rng, &own);
	if (err != RUBATO_OK) /* So that the others end, too. */
		(void)rubato_abort(comm);
	free(all);
	return err;
}

START_TEST(every_instance_is_right)
{
	uint32_t seeds = test_length() == TEST_SHORT ? 1 : 6;

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		rubato_status err = local_run((uint32_t)_i, transports, rank_main, &seed, NULL);

		ck_assert_msg(err == RUBATO_OK, "seed %u: %s", (uint32_t)seed, rubato_error_text());
	}
}
END_TEST

/* Rank 0 of three copies its block 1 into slots of `even`, then of `odd`. */
static struct rb_plan *plan_of(struct rb_span even, struct rb_span odd)
{
	struct rb_step step;
	struct rb_span spans[2];
	struct rb_dep none;
	struct rb_schedule schedule = { .steps = &step, .spans = spans, .deps = &none };
	struct rb_writer w = { .schedule = &schedule, .step_capacity = 1, .span_capacity = 2 };
	const struct rb_layout layout = {
		.count = 3 * BLOCK_MAX, .chunk = CHUNK_WORDS, .block_count = 3, .align = 1
	};
	struct rb_plan *plan;

	rb_writer_init(&w, &schedule, 0, 3, 3);
	schedule.flags = RB_SCHEDULE_MAPPED_SCRATCH;
	(void)rb_write_copy(&w, rb_span_in(RB_SELF), rb_span_alternating(even, odd), 1, 1);
	ck_assert(rb_writer_fits(&w));
	ck_assert_int_eq(rb_plan_from(&schedule, &layout, sizeof(int32_t), &plan), RUBATO_OK);
	return plan;
}

/* Peers' scratch is mapped as far as either side takes it. */
START_TEST(both_sides_are_mapped)
{
	static const struct {
		uint32_t rank, slot;
	} sides[][2] = {
		{ { 1, 0 }, { 2, 4 } }, { { 2, 4 }, { 1, 0 } },       { { 1, 6 }, { 1, 2 } },
		{ { 1, 2 }, { 1, 6 } }, { { RB_SELF, 8 }, { 2, 4 } }, { { 2, 4 }, { RB_SELF, 8 } },
	};

	for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
		uint64_t reach[3] = { 0 };

		for (uint32_t odd = 0; odd < 2; odd++) {
			uint32_t rank = sides[i][odd].rank;
			uint64_t end = (sides[i][odd].slot + 2) * CHUNK_WORDS * sizeof(int32_t);

			if (rank != RB_SELF && end > reach[rank])
				reach[rank] = end;
		}
		struct rb_plan *plan =
			plan_of(rb_span_scratch(sides[i][0].rank, sides[i][0].slot, 2),
				rb_span_scratch(sides[i][1].rank, sides[i][1].slot, 2));

		for (uint32_t r = 0; r < 3; r++)
			ck_assert_uint_eq(plan->reach[r * RB_BUFFER_COUNT + RB_BUF_SCRATCH],
					  reach[r]);
		rb_plan_free(plan);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("alternating");

	tcase_add_loop_test(tc, every_instance_is_right, 2, RANKS_MAX + 1);
	tcase_add_test(tc, both_sides_are_mapped);
	tcase_set_timeout(tc, 120);
	return check_main("alternating", tc);
}
