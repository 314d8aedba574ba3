/*
 * test_partial_eras.c -- what rubato.h promises of drain, of numbers after it and of OWN's skipped
 * rounds, in simulated jobs: every rank writes down what it is given, and the lists are compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"

#define RANKS_MAX 6
#define SEEN_MAX 256
#define ERAS_MAX 4

struct seen { /* A round as a rank was given it. */
	uint64_t number, staleness_min, staleness_max, discarded;
	uint32_t own_first, own_last, own_count; /* Its own part. */
};

struct log {
	uint32_t count, ends[ERAS_MAX]; /* ends: count when collect said that there is none. */
	struct seen seen[SEEN_MAX];
	uint64_t delivered;
};

struct world {
	rubato_partial_options options;
	uint32_t n, steps, eras;
	uint32_t blind; /* Commits in a row without a collect. */
	struct log logs[RANKS_MAX];
};

#define EXPECT(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			(void)fprintf(stderr, "rank %u, line %d: %s: %s\n", rubato_rank(comm),     \
				      __LINE__, #what, rubato_error_text());                       \
			return RUBATO_ERR_INTERNAL;                                                \
		}                                                                                  \
	} while (0)

static void world_init(struct world *w, int policy, uint32_t n)
{
	memset(w, 0, sizeof(*w));
	w->options = (rubato_partial_options)RUBATO_PARTIAL_OPTIONS_INIT;
	w->options.policy = (rubato_policy)policy;
	w->options.deadline_ns = 50000;
	w->n = n;
	w->eras = 1;
}

static void world_run(struct world *w, rubato_sim_main rank_main, const char *name)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = w->n;
	options.timeout_ns = 5000000000u;
	ck_assert_msg(rubato_sim_run(&options, rank_main, w, &result) == RUBATO_OK,
		      "%s: rank %u: %s", name, result.failed_rank, rubato_error_text());
}

/* One result; *more: there was one. `apply_ns` passes while it is lent. */
static rubato_status take(struct world *w, rubato_comm *comm, rubato_partial *p, uint64_t apply_ns,
			  bool *more)
{
	struct log *log = &w->logs[rubato_rank(comm)];
	rubato_round round = { .size_bytes = sizeof(round) };
	const rubato_contribution *mine;
	const void *result = NULL;

	EXPECT(rubato_partial_collect_view(p, &result, &round, 0) == RUBATO_OK);
	*more = result != NULL;
	if (!*more)
		return RUBATO_OK;
	mine = &round.ranks[rubato_rank(comm)];
	EXPECT(log->count < SEEN_MAX);
	log->seen[log->count++] = (struct seen) { .number = round.round,
						  .staleness_min = round.staleness_min,
						  .staleness_max = round.staleness_max,
						  .discarded = round.discarded,
						  .own_first = (uint32_t)mine->first_step,
						  .own_last = (uint32_t)mine->last_step,
						  .own_count = mine->count };
	log->delivered += mine->count;
	rubato_sleep(comm, apply_ns);
	return rubato_partial_release(p);
}

static rubato_status take_all(struct world *w, rubato_comm *comm, rubato_partial *p,
			      uint64_t apply_ns)
{
	rubato_status err = RUBATO_OK;

	for (bool more = true; err == RUBATO_OK && more;)
		err = take(w, comm, p, apply_ns, &more);
	return err;
}

static rubato_status give(rubato_partial *p, uint64_t step)
{
	int64_t vector[3] = { (int64_t)step, 1, 2 };

	return rubato_partial_contribute(p, vector, step, 1);
}

static rubato_status create(struct world *w, rubato_comm *comm, rubato_partial **p)
{
	return rubato_partial_create(comm, 3, RUBATO_INT64, RUBATO_SUM, &w->options, p);
}

/* ---- Commits without a collect ---- */

static rubato_status blind_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	rubato_partial *p;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	for (uint64_t step = 0; step < w->steps; step++) {
		rubato_sleep(comm, 10000 + 7000 * ((rubato_rank(comm) + step) % w->n));
		EXPECT(give(p, step) == RUBATO_OK);
		if ((step + 1) % w->blind == 0)
			EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	}
	EXPECT(rubato_partial_drain(p) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_get_stats(p, &stats) == RUBATO_OK);
	EXPECT(stats.committed == w->steps && stats.delivered == w->steps && stats.pending == 0);
	return rubato_partial_free(p);
}

/* Nine contributions and more before the first look at a result; rounds that OWN skips hold nobody
 * up. */
START_TEST(commits_without_collects_hang_nobody)
{
	static const uint32_t ranks[] = { 1, 2, 3, 5 }, depths[] = { 1, 2, 8 };
	static struct world w;
	char name[96];

	for (uint32_t i = 0; i < 4 * 3 * 3 * 2; i++) {
		world_init(&w, _i, ranks[i % 4]);
		w.options.depth = depths[i / 4 % 3];
		w.options.collection = (rubato_collection)(i / 12 % 3);
		w.options.rounds = (rubato_rounds)(i / 36);
		w.steps = 40;
		for (w.blind = 9; w.blind <= 20; w.blind += 11) {
			memset(w.logs, 0, sizeof(w.logs));
			(void)snprintf(name, sizeof(name),
				       "%s, %u ranks, depth %u, collect %d, rounds %d",
				       rubato_policy_name((rubato_policy)_i), w.n, w.options.depth,
				       (int)w.options.collection, (int)w.options.rounds);
			world_run(&w, blind_main, name);
		}
	}
}
END_TEST

/* ---- The cut ---- */

static rubato_status cut_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	uint32_t me = rubato_rank(comm);
	uint64_t apply_ns = me == 1 ? 300000 : 0; /* Applies slowly. */
	uint64_t step = 0;
	rubato_partial *p;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	for (uint32_t era = 0; era < w->eras; era++) {
		for (uint32_t k = 0; k < w->steps; k++, step++) {
			rubato_sleep(comm, 20000 + 5000 * me);
			EXPECT(give(p, step) == RUBATO_OK);
			EXPECT(take_all(w, comm, p, apply_ns) == RUBATO_OK);
		}
		EXPECT(rubato_partial_drain(p) == RUBATO_OK);
		EXPECT(take_all(w, comm, p, apply_ns) == RUBATO_OK);
		w->logs[me].ends[era] = w->logs[me].count;
	}
	return rubato_partial_free(p);
}

static void cut_check(const struct world *w, const char *name)
{
	const struct log *first = &w->logs[0];

	for (uint32_t r = 0; r < w->n; r++) {
		const struct log *log = &w->logs[r];

		ck_assert_msg(log->ends[w->eras - 1] == log->count, "%s: rank %u", name, r);
		for (uint32_t era = 0; era < w->eras; era++) {
			uint32_t end = log->ends[era], end0 = first->ends[era];

			ck_assert_msg(end > 0 && log->seen[end - 1].number ==
							 first->seen[end0 - 1].number,
				      "%s: era %u ends with round %llu on rank 0, %llu on rank %u",
				      name, era, (unsigned long long)first->seen[end0 - 1].number,
				      (unsigned long long)log->seen[end - 1].number, r);
			if (w->options.collection == RUBATO_COLLECT_EACH)
				ck_assert_msg(end == end0, "%s: %u rounds on rank 0, %u on rank %u",
					      name, end0, end, r);
		}
	}
}

/* Rank 1 takes long to apply a result, so that the others begin the next era, or free, before it
 * has come to the end of this one. */
START_TEST(drain_is_a_cut)
{
	static struct world w;
	char name[96];

	for (uint32_t i = 0; i < 3 * 2 * 3; i++) {
		world_init(&w, _i, 4);
		w.options.collection = (rubato_collection)(i % 3);
		w.options.rounds = (rubato_rounds)(i / 3 % 2);
		w.options.depth = (uint32_t[]) { 1, 3, 8 }[i / 6];
		w.steps = 8;
		w.eras = 3;
		(void)snprintf(name, sizeof(name), "%s, collect %d, rounds %d, depth %u",
			       rubato_policy_name((rubato_policy)_i), (int)w.options.collection,
			       (int)w.options.rounds, w.options.depth);
		world_run(&w, cut_main, name);
		cut_check(&w, name);
	}
}
END_TEST

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	rubato_partial *p;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	EXPECT(give(p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_drain(p) == RUBATO_OK);
	rubato_sleep(comm, 10000000); /* All have drained long ago; nobody has been told. */
	EXPECT(give(p, 1) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "drain") != NULL);
	EXPECT(rubato_partial_drain(p) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_partial_leave(p) == RUBATO_ERR_ARGUMENT);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	EXPECT(give(p, 1) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_leave(p) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	return rubato_partial_free(p);
}

/* Whether the other ranks have drained meanwhile makes no difference to what a call returns. */
START_TEST(between_drain_and_its_end_nothing_may_be_committed)
{
	static struct world w;

	world_init(&w, _i, 3);
	world_run(&w, refused_main, rubato_policy_name((rubato_policy)_i));
}
END_TEST

/* ---- Numbers after a drain ---- */

static rubato_status base_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	uint32_t me = rubato_rank(comm);
	rubato_partial *p;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	EXPECT(give(p, 0) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_drain(p) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	/* The last rank opens the era's first round with nothing, so that number 100 is late for it
	 * everywhere; rank 1 takes part for long before it commits at all. */
	if (me == w->n - 1) {
		EXPECT(rubato_partial_leave(p) == RUBATO_OK);
		EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
		return rubato_partial_free(p);
	}
	rubato_sleep(comm, me == 1 ? 3000000 : 1000000);
	for (uint64_t step = 100; step < 100 + w->steps; step++) {
		EXPECT(give(p, step) == RUBATO_OK);
		EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
		rubato_sleep(comm, 100000);
	}
	EXPECT(rubato_partial_drain(p) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	return rubato_partial_free(p);
}

/* Ranks that have seen the same round say the same of it; and OWN gives a rank the round that its
 * number is for. */
static void base_check(const struct world *w, const char *name)
{
	for (uint32_t r = 1; r + 1 < w->n; r++)
		for (uint32_t i = 0; i < w->logs[0].count; i++)
			for (uint32_t k = 0; k < w->logs[r].count; k++) {
				const struct seen *a = &w->logs[0].seen[i],
						  *b = &w->logs[r].seen[k];

				if (a->number != b->number)
					continue;
				ck_assert_msg(a->staleness_min == b->staleness_min &&
						      a->staleness_max == b->staleness_max,
					      "%s: round %llu: staleness %llu .. %llu on rank 0, "
					      "%llu .. %llu "
					      "on rank %u",
					      name, (unsigned long long)a->number,
					      (unsigned long long)a->staleness_min,
					      (unsigned long long)a->staleness_max,
					      (unsigned long long)b->staleness_min,
					      (unsigned long long)b->staleness_max, r);
			}
}

START_TEST(numbers_after_a_drain_are_everybodys)
{
	static struct world w;
	char name[96];

	for (uint32_t i = 0; i < 3 * 2; i++) {
		world_init(&w, _i, 3);
		w.options.late = (rubato_late)(i % 3);
		w.options.collection = i / 3 == 0 ? RUBATO_COLLECT_EACH : RUBATO_COLLECT_OWN;
		w.steps = 8;
		(void)snprintf(name, sizeof(name), "%s, late %d, collect %d",
			       rubato_policy_name((rubato_policy)_i), (int)w.options.late,
			       (int)w.options.collection);
		world_run(&w, base_main, name);
		base_check(&w, name);
	}
}
END_TEST

static rubato_status differ_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	rubato_partial *p;
	const void *result = NULL;
	rubato_status err = RUBATO_OK;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	EXPECT(give(p, 0) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_drain(p) == RUBATO_OK);
	EXPECT(take_all(w, comm, p, 0) == RUBATO_OK);
	for (uint64_t step = 10 + rubato_rank(comm); step < 100 && err == RUBATO_OK; step++) {
		rubato_sleep(comm, 100000);
		err = give(p, step);
		if (err == RUBATO_OK)
			err = rubato_partial_collect_view(p, &result, NULL, 0);
		if (err == RUBATO_OK && result != NULL)
			err = rubato_partial_release(p);
	}
	EXPECT(err == RUBATO_ERR_MISMATCH);
	EXPECT(strstr(rubato_error_text(), "10 on rank 0") != NULL &&
	       strstr(rubato_error_text(), "11 on rank 1") != NULL);
	EXPECT(rubato_partial_free(p) == RUBATO_ERR_MISMATCH);
	return RUBATO_ERR_MISMATCH;
}

START_TEST(differing_numbers_after_a_drain_are_a_mismatch)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	static struct world w;

	world_init(&w, _i, 2);
	options.rank_count = 2;
	ck_assert_int_eq(rubato_sim_run(&options, differ_main, &w, &result), RUBATO_ERR_MISMATCH);
}
END_TEST

/* Rank 2 is in a barrier, the others wait for a round that needs it. */
static rubato_status beside_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	rubato_partial *p, *other;
	const void *result;
	rubato_status err;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	EXPECT(create(w, comm, &other) == RUBATO_OK);
	if (rubato_rank(comm) == 2) {
		err = rubato_barrier(comm);
		EXPECT(err == RUBATO_ERR_TIMEOUT &&
		       strstr(rubato_error_text(),
			      "partial allreduce 0 (quorum): round 0 is open"));
	} else {
		EXPECT(give(p, 0) == RUBATO_OK);
		err = rubato_partial_collect_view(p, &result, NULL, 1000000000);
		EXPECT(err == RUBATO_ERR_TIMEOUT &&
		       strstr(rubato_error_text(),
			      "partial allreduce 0 (quorum): round 0 is open") &&
		       strstr(rubato_error_text(), "; partial allreduce 1 (quorum)"));
		EXPECT(rubato_rank(comm) == 1 ||
		       strstr(rubato_error_text(),
			      "; rank 2 is in barrier, call 4, which rank 0 has not called"));
		EXPECT(rubato_partial_collect_view(p, &result, NULL, 0) != RUBATO_OK);
	}
	w->logs[rubato_rank(comm)].count = 1; /* As expected: the job fails in any case. */
	(void)rubato_partial_free(other);
	(void)rubato_partial_free(p);
	return RUBATO_ERR_TIMEOUT;
}

START_TEST(a_collective_beside_a_round_is_named_with_it)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	static struct world w;

	world_init(&w, 2, 3);
	w.options.quorum = 3;
	options.rank_count = 3;
	options.timeout_ns = 5000000000u;
	ck_assert_int_ne(rubato_sim_run(&options, beside_main, &w, &result), RUBATO_OK);
	for (uint32_t r = 0; r < 3; r++)
		ck_assert_uint_eq(w.logs[r].count, 1);
}
END_TEST

/* A rank that holds a result when the job fails hears how it ended, not that it holds one. */
static rubato_status lent_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	uint32_t rank = rubato_rank(comm);
	int32_t in[2] = { 0 }, out[2];
	rubato_partial *p;
	const void *result;

	EXPECT(create(w, comm, &p) == RUBATO_OK);
	EXPECT(give(p, 0) == RUBATO_OK);
	EXPECT(rubato_partial_collect_view(p, &result, NULL, 0) == RUBATO_OK && result != NULL);
	EXPECT(rubato_allreduce(comm, in, out, 1 + rank, RUBATO_INT32, RUBATO_SUM) ==
	       RUBATO_ERR_MISMATCH);
	for (int i = 0; i < 3; i++) {
		(void)rubato_partial_release(p); /* Perhaps without effect by now. */
		EXPECT(rubato_partial_collect_view(p, &result, NULL, 0) == RUBATO_ERR_MISMATCH);
	}
	w->logs[rank].count = 1; /* As expected: the job fails in any case. */
	(void)rubato_partial_free(p);
	return RUBATO_ERR_MISMATCH;
}

START_TEST(a_loan_does_not_hide_the_end)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	static struct world w;

	world_init(&w, 0, 2);
	options.rank_count = 2;
	options.timeout_ns = 5000000000u;
	ck_assert_int_eq(rubato_sim_run(&options, lent_main, &w, &result), RUBATO_ERR_MISMATCH);
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_uint_eq(w.logs[r].count, 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("partial_eras");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, commits_without_collects_hang_nobody, 0, RUBATO_POLICY_COUNT);
	tcase_add_loop_test(tc, drain_is_a_cut, 0, RUBATO_POLICY_COUNT);
	tcase_add_loop_test(tc, between_drain_and_its_end_nothing_may_be_committed, 0,
			    RUBATO_POLICY_COUNT);
	tcase_add_loop_test(tc, numbers_after_a_drain_are_everybodys, 0, RUBATO_POLICY_COUNT);
	tcase_add_loop_test(tc, differing_numbers_after_a_drain_are_a_mismatch, 0,
			    RUBATO_POLICY_COUNT);
	tcase_add_test(tc, a_collective_beside_a_round_is_named_with_it);
	tcase_add_test(tc, a_loan_does_not_hide_the_end);
	return check_main("partial_eras", tc);
}
