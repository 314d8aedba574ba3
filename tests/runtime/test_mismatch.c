/*
 * test_mismatch.c -- two ranks call different things: an error on both, with both sides in its
 * text, and no hang. Engine tests have those of the reductions.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

#define ELEMENTS 600000

struct side { /* One rank's call; to and from: of the other rank, in the v-variants. */
	enum rb_kind kind;
	uint64_t count;
	uint32_t root;
	uint64_t to, from, offset;
};

struct row {
	const char *name;
	struct side sides[2];
};

#define COUNT(k, n, r)                                                                             \
	{                                                                                          \
		.kind = RB_KIND_##k, .count = (n), .root = (r)                                     \
	}
#define BLOCKS(k, t, f)                                                                            \
	{                                                                                          \
		.kind = RB_KIND_##k, .to = (t), .from = (f)                                        \
	}

static const struct row rows[] = {
	{ "alltoall counts", { COUNT(ALLTOALL, 64, 0), COUNT(ALLTOALL, 32, 0) } },
	{ "alltoall and allgather", { COUNT(ALLTOALL, 64, 0), COUNT(ALLGATHER, 64, 0) } },
	{ "gather counts", { COUNT(GATHER, 64, 0), COUNT(GATHER, 32, 0) } },
	{ "scatter counts", { COUNT(SCATTER, 64, 1), COUNT(SCATTER, 32, 1) } },
	{ "gather and alltoall", { COUNT(GATHER, 64, 0), COUNT(ALLTOALL, 64, 0) } },
	{ "gather roots", { COUNT(GATHER, 64, 0), COUNT(GATHER, 64, 1) } },
	{ "scatter roots", { COUNT(SCATTER, 64, 1), COUNT(SCATTER, 64, 0) } },
	{ "allgatherv counts", { BLOCKS(ALLGATHERV, 32, 16), BLOCKS(ALLGATHERV, 16, 48) } },
	{ "allgatherv, one sum", { BLOCKS(ALLGATHERV, 32, 16), BLOCKS(ALLGATHERV, 32, 16) } },
	{ "reduce_scatterv offsets",
	  { BLOCKS(REDUCE_SCATTERV, 32, 32),
	    { .kind = RB_KIND_REDUCE_SCATTERV, .to = 32, .from = 32, .offset = 1 } } },
	{ "alltoallv", { BLOCKS(ALLTOALLV, 5, 7), BLOCKS(ALLTOALLV, 7, 6) } },
	{ "alltoallv, unexpected", { BLOCKS(ALLTOALLV, 5, 7), BLOCKS(ALLTOALLV, 7, 0) } },
	{ "alltoallv, nothing comes", { BLOCKS(ALLTOALLV, 5, 7), BLOCKS(ALLTOALLV, 0, 5) } },
	{ "alltoallv, beyond a chunk",
	  { BLOCKS(ALLTOALLV, 250000, 7), BLOCKS(ALLTOALLV, 7, 180000) } },
	/* One takes the pair for one that sends messages, the other for one that does not. */
	{ "alltoallv, a long one comes",
	  { BLOCKS(ALLTOALLV, 5, 7), BLOCKS(ALLTOALLV, 7, 250000) } },
	{ "alltoallv, a long one goes", { BLOCKS(ALLTOALLV, 5, 7), BLOCKS(ALLTOALLV, 250000, 5) } },
	{ "alltoallv, nothing and a long one",
	  { BLOCKS(ALLTOALLV, 0, 0), BLOCKS(ALLTOALLV, 250000, 250000) } },
	{ "alltoallv and alltoall", { BLOCKS(ALLTOALLV, 64, 64), COUNT(ALLTOALL, 64, 0) } },
	{ "split and barrier", { COUNT(SPLIT, 0, 0), COUNT(BARRIER, 0, 0) } },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static rubato_status call(rubato_comm *comm, const struct side *side, const void *in, void *out)
{
	uint32_t rank = rubato_rank(comm);
	uint64_t to[2] = { 9, 9 }, from[2] = { 9, 9 }, starts[2] = { side->offset, 1000 };
	rubato_comm *half;

	to[1 - rank] = side->to;
	from[1 - rank] = side->from;
	if (side->kind != RB_KIND_ALLTOALLV)
		to[rank] = side->from;
	switch (side->kind) {
	case RB_KIND_BARRIER:
		return rubato_barrier(comm);
	case RB_KIND_ALLGATHER:
		return rubato_allgather(comm, in, out, side->count, RUBATO_FLOAT32);
	case RB_KIND_GATHER:
		return rubato_gather(comm, in, out, side->count, RUBATO_FLOAT32, side->root);
	case RB_KIND_SCATTER:
		return rubato_scatter(comm, in, out, side->count, RUBATO_FLOAT32, side->root);
	case RB_KIND_ALLTOALL:
		return rubato_alltoall(comm, in, out, side->count, RUBATO_FLOAT32);
	case RB_KIND_ALLGATHERV:
		return rubato_allgatherv(comm, in, out, to, NULL, RUBATO_FLOAT32);
	case RB_KIND_REDUCE_SCATTERV:
		return rubato_reduce_scatterv(comm, in, out, to, starts, RUBATO_FLOAT32,
					      RUBATO_SUM);
	case RB_KIND_ALLTOALLV:
		return rubato_alltoallv(comm, in, to, NULL, out, from, NULL, RUBATO_FLOAT32);
	case RB_KIND_SPLIT:
		return rubato_split(comm, 0, 0, &half);
	default:
		return RUBATO_ERR_INTERNAL;
	}
}

struct trial {
	const struct row *row;
	bool allocated;
	pthread_barrier_t
		both; /* Whoever leaves at once might be missed before it is understood. */
};

static rubato_status trial_main(rubato_comm *comm, void *arg)
{
	struct trial *trial = arg;
	const struct side *side = &trial->row->sides[rubato_rank(comm)];
	void *in = calloc(ELEMENTS, 4), *out = calloc(ELEMENTS, 4);
	rubato_status err;
	char text[256];

	if (trial->allocated) {
		free(in);
		free(out);
		RB_TRY(rubato_alloc(comm, ELEMENTS * 4, &in));
		RB_TRY(rubato_alloc(comm, ELEMENTS * 4, &out));
	}
	err = call(comm, side, in, out);
	if (err == RUBATO_OK) /* One that only sends may be through before the other looks. */
		err = rubato_barrier(comm);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	(void)pthread_barrier_wait(&trial->both);
	(void)rubato_finalize(comm);
	if (!trial->allocated) {
		free(in);
		free(out);
	}
	if (err != RUBATO_ERR_MISMATCH || strstr(text, "rank 0") == NULL ||
	    strstr(text, "rank 1") == NULL)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%s, allocated %d: %s: %s", trial->row->name,
			       trial->allocated, rubato_status_name(err), text);
	return RUBATO_OK;
}

START_TEST(both_sides_learn)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };
	struct trial trial = { .row = &rows[_i / 2], .allocated = _i % 2 == 1 };

	ck_assert_int_eq(pthread_barrier_init(&trial.both, NULL, 2), 0);
	ck_assert_int_eq(local_run_raw(2, shm, trial_main, &trial, NULL), RUBATO_OK);
	(void)pthread_barrier_destroy(&trial.both);
}
END_TEST

/* ---- One makes a persistent operation, where another calls one ---- */

static const struct side called[] = { COUNT(ALLGATHER, 1, 0), COUNT(ALLGATHER, 100000, 0),
				      COUNT(SPLIT, 0, 0), COUNT(BARRIER, 0, 0) };
#define CALLED (sizeof(called) / sizeof(called[0]))
#ifdef RB_HAVE_UCX
#define MADE_TRIALS (2 * (int)CALLED + 2)
#else
#define MADE_TRIALS (2 * (int)CALLED)
#endif

static rubato_status made_main(rubato_comm *comm, void *arg)
{
	uint32_t maker = *(const uint32_t *)arg % 2, which = *(const uint32_t *)arg / 2;
	float *in = calloc(ELEMENTS, 4), *out = calloc(ELEMENTS, 4);
	bool makes = rubato_rank(comm) == maker;
	rubato_op *op = NULL;
	rubato_status err;
	char text[400], wanted[2][64];

	RB_TRY(rubato_barrier(comm));
	/* Neither is sure before: another thread may yet make the same here. */
	RB_TRY(rubato_set_timeout(comm, 1000000000));
	if (makes && which % 2 == 0)
		err = rubato_op_barrier(comm, &op);
	else if (makes)
		err = rubato_op_allreduce(comm, in, out, 9, RUBATO_FLOAT32, RUBATO_SUM, &op);
	else
		err = call(comm, &called[which], in, out);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	(void)rubato_finalize(comm);
	free(in);
	free(out);
	/* Whose deadline came first: one of two sentences, each with both sides. */
	(void)snprintf(wanted[0], sizeof(wanted[0]), "; rank %u makes persistent operation 0, %s",
		       maker, which % 2 == 0 ? "barrier" : "allreduce float32 x 9 sum");
	(void)snprintf(wanted[1], sizeof(wanted[1]), "; rank %u is in %s", 1 - maker,
		       rb_kind_name(called[which].kind));
	if (err != RUBATO_ERR_MISMATCH ||
	    (strstr(text, wanted[0]) == NULL && strstr(text, wanted[1]) == NULL))
		return RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u: %s: %s", rubato_rank(comm),
			       rubato_status_name(err), text);
	return RUBATO_OK;
}

START_TEST(to_make_is_not_to_call)
{
	const struct rb_transport_ops *transports[] = { &rb_transport_shm, NULL };
	uint32_t which = (uint32_t)_i % (2 * CALLED);

#ifdef RB_HAVE_UCX
	if ((uint32_t)_i >= 2 * CALLED)
		transports[0] = &rb_transport_ucx;
#endif
	ck_assert_msg(local_run_raw(2, transports, made_main, &which, NULL) == RUBATO_OK, "%u: %s",
		      which, rubato_error_text());
}
END_TEST

#define MANY 16u /* Two that differ, and of the others one that is neighbour of neither. */
#define FAR 3u

struct parting {
	pthread_barrier_t gone;
	bool later; /* It first needs them when they have gone. */
};

/* Ranks 0 and 8 differ, and go. Another one needs them, and nobody passes it on. */
static rubato_status parting_main(rubato_comm *comm, void *arg)
{
	struct parting *p = arg;
	uint32_t me = rubato_rank(comm);
	float in[16] = { 0 }, out[16];
	bool differs = me % 8 == 0;
	rubato_status err = RUBATO_OK;
	char text[256];

	if (me == FAR && !p->later)
		err = rubato_recv(comm, in, 1, RUBATO_FLOAT32, 8, 1);
	if (differs)
		err = rubato_allreduce(comm, in, out, me + 1, RUBATO_FLOAT32, RUBATO_SUM);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (differs)
		(void)rubato_finalize(comm);
	(void)pthread_barrier_wait(&p->gone);
	if (me == FAR && p->later)
		err = rubato_broadcast(comm, in, 1, RUBATO_FLOAT32, 0);
	if (me == FAR && p->later)
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	(void)pthread_barrier_wait(&p->gone);
	if (!differs)
		(void)rubato_finalize(comm);
	if ((differs || me == FAR) &&
	    (err != RUBATO_ERR_MISMATCH || strstr(text, "rank 0 calls") == NULL ||
	     strstr(text, "rank 8 calls") == NULL))
		return RB_FAIL(RUBATO_ERR_INTERNAL, "rank %u: %s: %s", me, rubato_status_name(err),
			       text);
	return RUBATO_OK;
}

#ifdef RB_HAVE_UCX
#define PARTINGS 3
#else
#define PARTINGS 2
#endif
START_TEST(who_sees_them_go_learns_why)
{
	const char *name = _i < 2 ? "shm" : "ucx"; /* UCX's last words go with its connections. */
	const struct rb_transport_ops *const transports[] = { local_transport(name), NULL };
	struct parting p = { .later = _i == 1 };

	ck_assert_int_eq(pthread_barrier_init(&p.gone, NULL, MANY), 0);
	ck_assert_msg(local_run_raw(MANY, transports, parting_main, &p, NULL) == RUBATO_OK,
		      "%s: %s", name, rubato_error_text());
	(void)pthread_barrier_destroy(&p.gone);
}
END_TEST

/* What is wrong by itself is refused before anybody is told. */
static rubato_status arguments_main(rubato_comm *comm, void *arg)
{
	uint64_t counts[2] = { 1, 2 }, others[2] = { 2, 2 }, huge[2] = { UINT64_MAX / 4, 1 };
	float in[8] = { 0 }, out[8];
	uint32_t rank = rubato_rank(comm);
	bool fine = true;

	(void)arg;
	others[rank] = counts[rank];
	fine &= rubato_allgatherv(comm, in, out, NULL, NULL, RUBATO_FLOAT32) == RUBATO_ERR_ARGUMENT;
	fine &= rubato_allgatherv(comm, in, NULL, counts, NULL, RUBATO_FLOAT32) ==
		RUBATO_ERR_ARGUMENT;
	fine &= rubato_allgatherv(comm, in, out, huge, NULL, RUBATO_FLOAT32) == RUBATO_ERR_ARGUMENT;
	huge[0] = UINT64_C(1) << 55; /* 2^57 bytes: no address space has them. */
	fine &= rubato_allgatherv(comm, in, out, huge, NULL, RUBATO_FLOAT32) == RUBATO_ERR_ARGUMENT;
	fine &= rubato_allreduce(comm, in, out, huge[0], RUBATO_FLOAT32, RUBATO_SUM) ==
		RUBATO_ERR_ARGUMENT;
	fine &= rubato_reduce_scatterv(comm, in, out, counts, huge, RUBATO_FLOAT32, RUBATO_SUM) ==
		RUBATO_ERR_ARGUMENT;
	fine &= rubato_alltoallv(comm, in, counts, NULL, out, NULL, NULL, RUBATO_FLOAT32) ==
		RUBATO_ERR_ARGUMENT;
	/* In place, both sides must have one layout; and a rank agrees with itself. */
	fine &= rubato_alltoallv(comm, out, counts, NULL, out, counts, huge, RUBATO_FLOAT32) ==
		RUBATO_ERR_ARGUMENT;
	others[rank]++;
	fine &= rubato_alltoallv(comm, in, counts, NULL, out, others, NULL, RUBATO_FLOAT32) ==
		RUBATO_ERR_ARGUMENT;
	fine &= rubato_gather(comm, in, out, 1, RUBATO_FLOAT32, 2) == RUBATO_ERR_ARGUMENT;
	fine &= rubato_scatter(comm, NULL, out, 1, RUBATO_FLOAT32, 0) == RUBATO_ERR_ARGUMENT;
	if (!fine)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "an argument was not refused");
	return RUBATO_OK;
}

START_TEST(arguments_are_refused)
{
	static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

	ck_assert_int_eq(local_run(1, shm, arguments_main, NULL, NULL), RUBATO_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mismatch");
	TCase *tc = tcase_create("mismatch");

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, both_sides_learn, 0, 2 * (int)ROWS);
	tcase_add_loop_test(tc, who_sees_them_go_learns_why, 0, PARTINGS);
	tcase_add_loop_test(tc, to_make_is_not_to_call, 0, MADE_TRIALS);
	tcase_add_test(tc, arguments_are_refused);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
