/*
 * test_past.c -- results that nobody reads soon go past the caches, and reductions write what would
 * be copied from them: of which algorithms, from which length on, and that all is right. An
 * executor in front of the host's counts.
 */
#include "runtime/engine/node_speed.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"

#define COUNT 30001u      /* Of float32: one chunk. */
#define LONG_COUNT 600001 /* Likewise: more than 2 MiB. */

struct counting {
	struct rb_executor base;
	struct rb_executor *host;
	uint32_t past, works, twice;
};

static void counting_start(struct rb_executor *executor, struct rb_work *work)
{
	struct counting *counting = (struct counting *)executor;

	counting->past += work->reduce.past;
	counting->twice += work->reduce.also != NULL;
	counting->works++;
	counting->host->ops->start(counting->host, work);
}

static struct rb_work *counting_poll(struct rb_executor *executor)
{
	struct counting *counting = (struct counting *)executor;

	return counting->host->ops->poll(counting->host);
}

static void counting_cancel(struct rb_executor *executor, struct rb_work *work)
{
	struct counting *counting = (struct counting *)executor;

	counting->host->ops->cancel(counting->host, work);
}

static bool counting_busy(struct rb_executor *executor)
{
	struct counting *counting = (struct counting *)executor;

	return counting->host->ops->busy(counting->host);
}

static void counting_now(struct rb_executor *executor, const struct rb_reduce *reduce,
			 uint32_t element_bytes)
{
	struct counting *counting = (struct counting *)executor;

	counting->host->ops->now(counting->host, reduce, element_bytes);
}

static const struct rb_executor_ops counting_ops = {
	.name = "counting",
	.start = counting_start,
	.poll = counting_poll,
	.cancel = counting_cancel,
	.busy = counting_busy,
	.now = counting_now,
};

/* So many works of rank 0 and of each other one, of three ranks; allocated or plain buffers. */
static const struct row {
	const char *kind, *algorithm;
	bool allocated;
	uint32_t first, others;
} rows[] = {
	{ "allreduce", "staged", false, 3, 3 },
	{ "allreduce", "direct", true, 2, 2 }, /* Not what it reduces: it copies that to all. */
	{ "allreduce", "ring", false, 0, 0 },  /* What a rank has reduced it sends on. */
	{ "reduce_scatter", "staged", false, 1, 1 },
	{ "reduce_scatter", "direct", true, 1, 1 },
	{ "allgather", "staged", false, 3, 3 },
	{ "allgather", "direct", true, 3, 3 },
	{ "allgather", "flat", false, 1, 1 },
	{ "alltoall", "staged", false, 3, 3 },
	{ "broadcast", "staged", false, 0, 1 },
	{ "broadcast", "direct", true, 2, 1 }, /* To each a part, and the other by itself. */
};

struct asked {
	uint64_t past_bytes;
	bool wanted;
};

static rubato_status rows_main(rubato_comm *comm, void *arg)
{
	const struct asked *asked = arg;
	struct counting counting = { .base.ops = &counting_ops, .host = comm->engine.executor };
	rubato_status err = RUBATO_OK;

	struct rb_shared_cache cache;

	rb_shared_cache_of(rb_cpu_here(), &cache);
	EXPECT(comm->engine.past_bytes == rb_past_bytes(&cache, 3));
	comm->engine.past_bytes = asked->past_bytes;
	comm->engine.executor = &counting.base;
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && err == RUBATO_OK; i++) {
		const struct row *row = &rows[i];
		struct exercise e = { .kind = row->kind,
				      .algorithm = row->algorithm,
				      .count = COUNT,
				      .allocated = row->allocated,
				      .times = 1,
				      .salt = i };
		uint32_t before = counting.past, each, wanted;

		err = exercise_run(comm, &e, NULL);
		each = counting.past - before;
		wanted = !asked->wanted ? 0 : rubato_rank(comm) == 0 ? row->first : row->others;
		if (err == RUBATO_OK && each != wanted)
			err = RB_FAIL(RUBATO_ERR_MISMATCH, "%s %s: %u, not %u", row->kind,
				      row->algorithm, each, wanted);
	}
	comm->engine.executor = counting.host;
	return err;
}

static void rows_run(uint64_t past_bytes, bool wanted)
{
	const struct rb_transport_ops *const transports[] = { local_transport("shm"), NULL };
	struct asked asked = { past_bytes, wanted };

	ck_assert_msg(local_run(3, transports, rows_main, &asked, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}

START_TEST(results_of_long_vectors_go_past_the_caches)
{
	rows_run(1, true);
	rows_run(UINT64_MAX, false);
	rows_run(0, false); /* A machine of which nothing is known. */
}
END_TEST

/* ---- Two targets ---- */

static rubato_status twice_one(rubato_comm *comm, struct counting *counting, struct exercise e,
			       uint32_t *works, uint32_t *twice)
{
	*works = counting->works;
	*twice = counting->twice;
	RB_TRY(exercise_run(comm, &e, NULL));
	*works = counting->works - *works;
	*twice = counting->twice - *twice;
	return RUBATO_OK;
}

/* The same by an executor that writes twice and by one that does not: the copies are fewer by as
 * many as there are of these. `wanted`: there are some. */
static rubato_status twice_compare(rubato_comm *comm, struct exercise e, bool wanted)
{
	struct rb_executor_ops ops = counting_ops;
	struct counting counting = { .base.ops = &ops, .host = comm->engine.executor };
	uint32_t works[2] = { 0, 0 }, twice[2] = { 0, 0 };
	rubato_status err = RUBATO_OK;

	comm->engine.executor = &counting.base;
	for (uint32_t i = 0; i < 2 && err == RUBATO_OK; i++) {
		ops.writes_twice = i != 0;
		err = twice_one(comm, &counting, e, &works[i], &twice[i]);
	}
	comm->engine.executor = counting.host;
	RB_TRY(err);
	EXPECT(twice[0] == 0 && (twice[1] > 0) == wanted);
	EXPECT(works[0] == works[1] + twice[1]);
	return RUBATO_OK;
}

static rubato_status twice_main(rubato_comm *comm, void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < 16; i++) {
		bool allocated = i % 2 != 0, is_long = i / 2 % 2 != 0;
		struct exercise e = { .kind = "allreduce",
				      .algorithm = allocated ? "direct" : "staged",
				      .count = is_long ? LONG_COUNT : COUNT,
				      .op = i / 4 % 2 != 0 ? RUBATO_AVG : RUBATO_SUM,
				      .allocated = allocated,
				      .in_place = i / 8 != 0,
				      .times = 2,
				      .salt = i };

		RB_TRY(twice_compare(comm, e, !allocated || is_long));
		e.kind = "reduce_scatter"; /* Nothing is copied of a result. */
		RB_TRY(twice_compare(comm, e, false));
	}
	return RUBATO_OK;
}

START_TEST(reductions_write_what_would_be_copied_from_them)
{
	const struct rb_transport_ops *const transports[] = { local_transport("shm"), NULL };

	for (uint32_t n = 2; n <= 3; n++)
		ck_assert_msg(local_run(n, transports, twice_main, NULL, NULL) == RUBATO_OK, "%s",
			      rubato_error_text());
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("past");

	tcase_add_test(tc, reductions_write_what_would_be_copied_from_them);
	tcase_add_test(tc, results_of_long_vectors_go_past_the_caches);
	return check_main("past", tc);
}
