/*
 * test_inner.c -- what an application forces is for its own calls: collectives that the library
 * calls itself, where communicators and relaxed operations are made or end, go on as they were, and
 * neither takes what was remembered of the other. Name of the transport as argument: shm, ucx, tcp,
 * verbs.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

#define RANKS_MAX 3u
#define COUNT_MAX 48u /* More than the library tells in one call. */
#define INNER_MAX 8u

static const struct rb_transport_ops *transports[2];

struct inner { /* What one rank has seen of the library's own calls: the first time. */
	struct rb_signature calls[INNER_MAX];
	uint32_t count;
};

static bool algorithms_same(const struct rb_signature *a, const struct rb_signature *b)
{
	return a->kind == b->kind && a->count == b->count && a->algorithm == b->algorithm;
}

/* All that makes something, one after the other. */
static rubato_status make_all(rubato_comm *comm)
{
	rubato_comm *child = NULL;
	rubato_lagged *lagged = NULL;
	rubato_partial *partial = NULL;

	RB_TRY(rubato_split(comm, 0, 0, &child));
	RB_TRY(rubato_finalize(child));
	RB_TRY(rubato_lagged_create(comm, 5, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	RB_TRY(rubato_lagged_free(lagged));
	RB_TRY(rubato_partial_create(comm, 5, RUBATO_FLOAT32, RUBATO_SUM, NULL, &partial));
	return rubato_partial_free(partial);
}

static rubato_status make(rubato_comm *comm, struct inner *inner)
{
	bool first = inner->count == 0;
	uint64_t from = comm->oneshots.sequence, calls;

	RB_TRY(make_all(comm));
	calls = comm->oneshots.sequence - from;
	EXPECT(calls >= 4 && calls <= INNER_MAX);
	if (first)
		inner->count = (uint32_t)calls;
	EXPECT(calls == inner->count);
	for (uint32_t i = 0; i < calls; i++) {
		const struct rb_signature *call =
			&comm->oneshots.called[(from + i) % RB_CALLS_REMEMBERED];

		EXPECT(call->kind != RB_KIND_ALLGATHER);
		if (first)
			inner->calls[i] = *call;
		EXPECT(algorithms_same(call, &inner->calls[i]));
	}
	return RUBATO_OK;
}

/* The application's, of as many words as the library's and others. They go by what is forced, if
 * anything is, or cannot. */
static rubato_status gather(rubato_comm *comm, int forced)
{
	static const int64_t in[COUNT_MAX];
	int64_t out[RANKS_MAX * COUNT_MAX];
	char text[2000];

	for (uint32_t count = 1; count <= COUNT_MAX; count++) {
		rubato_status expected =
			rubato_explain(comm, "allgather", count, RUBATO_INT64, text, sizeof(text));
		uint64_t number = comm->oneshots.sequence;
		rubato_status err = rubato_allgather(comm, in, out, count, RUBATO_INT64);

		EXPECT(err == expected);
		EXPECT(err == RUBATO_OK || (err == RUBATO_ERR_UNSUPPORTED && forced >= 0));
		EXPECT(err != RUBATO_OK || forced < 0 ||
		       comm->oneshots.called[number % RB_CALLS_REMEMBERED].algorithm == forced);
	}
	return RUBATO_OK;
}

static rubato_status alternate(rubato_comm *comm, struct inner *inner, int forced)
{
	RB_TRY(gather(comm, forced));
	RB_TRY(make(comm, inner));
	RB_TRY(gather(comm, forced));
	return make(comm, inner);
}

/* Each algorithm in turn; what comes first is remembered. */
static rubato_status allgathers_main(rubato_comm *comm, void *arg)
{
	struct inner inner = { .count = 0 };
	const char *name;

	(void)arg;
	RB_TRY(make(comm, &inner));
	RB_TRY(alternate(comm, &inner, -1));
	for (uint32_t i = 0; (name = rubato_algorithm_name("allgather", i)) != NULL; i++) {
		RB_TRY(rubato_set_algorithm(comm, "allgather", name));
		RB_TRY(alternate(comm, &inner, rb_algorithm_find(RB_KIND_ALLGATHER, name)));
	}
	RB_TRY(rubato_set_algorithm(comm, "allgather", "auto"));
	return alternate(comm, &inner, -1);
}

/* The communicator ends while it is forced. */
static rubato_status forced_from_the_start_main(rubato_comm *comm, void *arg)
{
	struct inner inner = { .count = 0 };
	const char *name = arg;

	RB_TRY(rubato_set_algorithm(comm, "allgather", name));
	RB_TRY(rubato_set_algorithm(comm, "barrier", "hierarchical"));
	RB_TRY(make(comm, &inner));
	return alternate(comm, &inner, rb_algorithm_find(RB_KIND_ALLGATHER, name));
}

/* Of the persistent ones there are, those within a lagged allreduce alone are the library's. */
static bool weights_apart(const rubato_comm *comm, int forced)
{
	bool seen[2] = { false, false };

	for (uint32_t i = 0; i < RB_OP_LISTS; i++)
		for (const rubato_op *op = comm->operations[i]; op != NULL; op = op->next) {
			bool own = op->named == RB_KIND_NONE;

			seen[own] = true;
			if (own != (op->choice.algorithm == forced))
				return false;
		}
	return seen[0] && seen[1];
}

static rubato_status weights_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *lagged = NULL;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_lagged_create(comm, 5, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	EXPECT(weights_apart(comm, rb_algorithm_find(RB_KIND_ALLREDUCE, "ring")));
	return rubato_lagged_free(lagged);
}

/* Their vectors are the application's. */
static rubato_status vectors_main(rubato_comm *comm, void *arg)
{
	rubato_lagged *lagged = NULL;
	rubato_partial *partial = NULL;
	rubato_comm *child = NULL;
	rubato_status expected;
	char text[2000];

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "direct"));
	expected = rubato_explain(comm, "allreduce", 5, RUBATO_FLOAT32, text, sizeof(text));
	EXPECT(rubato_lagged_create(comm, 5, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged) == expected);
	EXPECT(rubato_partial_create(comm, 5, RUBATO_FLOAT32, RUBATO_SUM, NULL, &partial) ==
	       expected);
	RB_TRY(rubato_lagged_free(lagged));
	RB_TRY(rubato_partial_free(partial));
	RB_TRY(rubato_split(comm, 0, 0, &child));
	return rubato_finalize(child);
}

static void run_on(uint32_t ranks, local_main rank_main, void *arg)
{
	rubato_status status[RANKS_MAX];
	rubato_status err = local_run(ranks, transports, rank_main, arg, status);

	ck_assert_msg(err == RUBATO_OK, "%u ranks: %s: %s", ranks, rubato_status_name(err),
		      rubato_error_text());
}

START_TEST(allgathers_are_forced_alone)
{
	run_on((uint32_t)_i, allgathers_main, NULL);
}
END_TEST

START_TEST(forced_from_the_start)
{
	char names[][16] = { "direct", "staged", "ring_put", "ring" };

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		run_on((uint32_t)_i, forced_from_the_start_main, names[i]);
}
END_TEST

START_TEST(vectors_go_by_what_allreduces_do)
{
	run_on((uint32_t)_i, vectors_main, NULL);
	run_on((uint32_t)_i, weights_main, NULL);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("inner");
	const char *name = argc > 1 ? argv[1] : "shm";

	transports[0] = local_transport(name);
	if (strcmp(name, "tcp") == 0 && setenv("RUBATO_TRANSPORT", "tcp", 1) != 0)
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, allgathers_are_forced_alone, 1, RANKS_MAX + 1);
	tcase_add_loop_test(tc, forced_from_the_start, 1, RANKS_MAX + 1);
	tcase_add_loop_test(tc, vectors_go_by_what_allreduces_do, 1, RANKS_MAX + 1);
	return check_main("inner", tc);
}
