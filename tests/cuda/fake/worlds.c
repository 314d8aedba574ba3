/* worlds.c -- see worlds.h. */
#include "tests/cuda/fake/worlds.h"

#include <string.h>

#include "base/rng.h"
#include "base/status.h"
#include "rubato_cuda.h"
#include "tests/coded.h"

static uint32_t below(struct rb_rng *rng, uint32_t bound)
{
	return (uint32_t)rb_rng_below(rng, bound);
}

static const char *const operations[] = {
	"allreduce", "reduce",   "broadcast",  "allgather", "reduce_scatter",  "gather",
	"scatter",   "alltoall", "allgatherv", "alltoallv", "reduce_scatterv",
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* The same on all ranks, but for where their buffers lie. */
static struct exercise draw(const struct cuda_app *app, struct rb_rng *rng, uint32_t rank,
			    uint32_t n)
{
	static const uint64_t counts[] = { 1, 3, 64, 1000, 4097, 40009, 300001 };
	const char *kind = operations[below(rng, OPERATIONS)];
	uint32_t algorithms = 0, uniform = below(rng, 3), kinds = below(rng, 9);
	struct rb_rng own = { rb_rng_next(rng) + rank };

	while (exercise_algorithm(kind, algorithms) != NULL)
		algorithms++;
	struct exercise e = { .kind = kind,
			      .algorithm = exercise_algorithm(kind, below(rng, algorithms)),
			      .count = counts[below(rng, 7)] / (strchr(kind, 'l') ? 1 : n) + 1,
			      .type = (rubato_type)below(rng, RUBATO_TYPE_COUNT),
			      .op = below(rng, 2) ? RUBATO_SUM : RUBATO_MAX,
			      .root = below(rng, n),
			      .in_place = below(rng, 2),
			      .persistent = below(rng, 3) == 0,
			      .nonblocking = below(rng, 3) == 0,
			      .times = 2,
			      .salt = rb_rng_next(rng),
			      .memory = cuda_app_memory(app) };

	if (below(rng, 4) == 0)
		e.algorithm = "auto";
	if (e.persistent)
		e.nonblocking = false;
	if ((e.type == RUBATO_FLOAT32 || e.type == RUBATO_FLOAT64) && below(rng, 4) == 0)
		e.op = RUBATO_AVG;
	if ((e.type == RUBATO_FLOAT16 || e.type == RUBATO_BFLOAT16) && below(rng, 2))
		e.accumulate = RUBATO_ACCUMULATE_WHOLE;
	if (uniform == 0)
		kinds = below(&own, 9);
	if (uniform == 1)
		kinds = 4; /* All on the device. */
	e.kinds[0] = (enum exercise_kind)(kinds % 3);
	e.kinds[1] = (enum exercise_kind)(kinds / 3);
	return e;
}

static _Thread_local CUstream rank_stream;

static rubato_status start_on_stream(rubato_op *op)
{
	return rubato_cuda_start(op, rank_stream);
}

/* As it is, and on the host's memory: the same bits. */
static rubato_status both_run(rubato_comm *comm, struct cuda_world *w, struct exercise e)
{
	uint64_t there = 0, here = 0;
	rubato_status err = exercise_run(comm, &e, &there);

	if (rubato_rank(comm) == 0)
		*(err == RUBATO_ERR_UNSUPPORTED ? &w->skipped : &w->ran) += 1;
	if (err != RUBATO_OK)
		return err == RUBATO_ERR_UNSUPPORTED ? RUBATO_OK : err;
	e.kinds[0] = e.kinds[1] = EXERCISE_HOST;
	e.start = NULL;
	RB_TRY(exercise_run(comm, &e, &here));
	if (here != there)
		return RB_FAIL(RUBATO_ERR_MISMATCH, "%s %s: other bits than the host's", e.kind,
			       e.algorithm);
	return RUBATO_OK;
}

rubato_status cuda_world_main(rubato_comm *comm, void *arg)
{
	struct cuda_world *w = arg;
	struct rb_rng rng = { w->seed };

	rank_stream = cuda_app_stream(w->app);
	for (uint32_t i = 0; i < 6; i++) {
		struct exercise e = draw(w->app, &rng, rubato_rank(comm), rubato_size(comm));

		if (w->streams && (e.persistent || e.nonblocking))
			e.start = start_on_stream;
		RB_TRY(both_run(comm, w, e));
	}
	CUDA_APP(w->app, cuStreamDestroy, rank_stream);
	return RUBATO_OK;
}

rubato_status cuda_coded_main(rubato_comm *comm, void *arg)
{
	struct cuda_world *w = arg;
	struct coded_world coded = { .seed = w->seed,
				     .memory = cuda_app_memory(w->app),
				     .start = w->streams ? start_on_stream : NULL };

	rank_stream = cuda_app_stream(w->app);
	RB_TRY(coded_world_run(comm, &coded));
	CUDA_APP(w->app, cuStreamDestroy, rank_stream);
	if (rubato_rank(comm) == 0) {
		w->ran += coded.ran;
		w->skipped += coded.skipped;
	}
	return RUBATO_OK;
}

rubato_status cuda_every_main(rubato_comm *comm, void *arg)
{
	static const char *const reducing[] = { "allreduce", "reduce", "reduce_scatter",
						"reduce_scatterv" };
	struct cuda_world *w = arg;

	for (uint32_t i = 0; i < OPERATIONS; i++) {
		bool reduces = false;

		for (uint32_t r = 0; r < sizeof(reducing) / sizeof(reducing[0]); r++)
			reduces = reduces || strcmp(operations[i], reducing[r]) == 0;
		for (uint32_t type = 0; type < RUBATO_TYPE_COUNT; type++)
			for (uint32_t op = 0; op < (reduces ? RUBATO_OPERATOR_COUNT : 1); op++) {
				struct exercise e = { .kind = operations[i],
						      .algorithm = "auto",
						      .count = 5003,
						      .type = (rubato_type)type,
						      .op = (rubato_operator)op,
						      .times = 1,
						      .salt = i,
						      .kinds = { EXERCISE_DEVICE, EXERCISE_DEVICE },
						      .memory = cuda_app_memory(w->app) };

				RB_TRY(both_run(comm, w, e));
			}
	}
	return RUBATO_OK;
}
