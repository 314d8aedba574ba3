/*
 * test_partial_state.c -- a partial allreduce that goes on from the state of another, in another
 * world, holds the rounds that the first one goes on to hold: the same ranks in them, opened at the
 * same times, with the same numbers and bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "tests/check_main.h"

#define RANKS 8
#define STEPS 60
#define ROUNDS_MAX 512
#define STATE_MAX 8192
#define LOST_MAX 512 /* Two units of INT8. */

struct seen { /* Of one round of the second era. */
	uint64_t round, at_ns, staleness, discarded, hash;
	uint32_t fresh, contributors, quorum;
	rubato_contribution ranks[RANKS];
};

struct story { /* Of one rank. */
	struct seen rounds[ROUNDS_MAX];
	uint32_t count;
	rubato_partial_stats stats;
};

struct world {
	rubato_partial_options options;
	bool resumed; /* Only the second era. */
	bool afresh;  /* And without the state, */
	bool forgets; /* or only without what rounding has lost. */
	uint8_t state[RANKS][STATE_MAX];
	uint64_t state_bytes[RANKS];
	float lost[RANKS][LOST_MAX];
	uint64_t lost_count[RANKS];
	struct story story[RANKS];
	char wrong[128];
	uint32_t went_on; /* Rounds had run when a rank saved that was late. */
};

static struct world world; /* Each test runs in a process of its own. */

/* Work of very different length, the same in both runs. */
static uint64_t work_ns(uint32_t rank, uint64_t step)
{
	uint64_t draw = rb_mix(rank + 1) ^ rb_mix(step + 100);

	return 1000000 + (rb_mix(draw) % 4 == 0 ? 3000000 + rank * 1000 : rank * 777);
}

static void note(struct world *w, uint32_t me, rubato_comm *comm, rubato_partial *p,
		 const rubato_round *round, const float *result, uint64_t origin_ns)
{
	rubato_partial_stats stats = { .size_bytes = sizeof(stats) };
	struct story *story = &w->story[me];
	struct seen *seen = &story->rounds[story->count++ % ROUNDS_MAX];

	if (rubato_partial_get_stats(p, &stats) != RUBATO_OK)
		return;
	*seen = (struct seen) { .round = round->round,
				.at_ns = rubato_now(comm) - origin_ns,
				.staleness = round->staleness_max,
				.discarded = round->discarded,
				.fresh = round->fresh,
				.contributors = round->contributors,
				.quorum = stats.quorum };
	memcpy(seen->ranks, round->ranks, sizeof(seen->ranks));
	for (int i = 0; i < 4; i++) {
		uint32_t bits;

		memcpy(&bits, result + i, sizeof(bits));
		seen->hash = rb_mix(seen->hash + bits);
	}
}

static rubato_status collect(struct world *w, rubato_comm *comm, rubato_partial *p,
			     uint64_t origin_ns)
{
	const void *result;

	for (;;) {
		rubato_round round = { .size_bytes = sizeof(round) };
		rubato_status err = rubato_partial_collect_view(p, &result, &round, 0);

		if (err != RUBATO_OK || result == NULL)
			return err;
		if (origin_ns > 0)
			note(w, rubato_rank(comm), comm, p, &round, result, origin_ns);
		err = rubato_partial_release(p);
		if (err != RUBATO_OK)
			return err;
	}
}

static rubato_status era(struct world *w, rubato_comm *comm, rubato_partial *p, uint64_t first,
			 uint64_t origin_ns)
{
	uint32_t me = rubato_rank(comm);
	rubato_status err = RUBATO_OK;

	for (uint64_t step = first; err == RUBATO_OK && step < first + STEPS; step++) {
		float values[4] = { 1.1f * (float)me, 1.3f * (float)step, 1.7f,
				    0.3f * (float)(me * step % 7) };

		rubato_sleep(comm, work_ns(me, step));
		err = rubato_partial_contribute(p, values, step, 1 + me);
		if (err == RUBATO_OK)
			err = collect(w, comm, p, origin_ns);
	}
	if (err == RUBATO_OK)
		err = rubato_partial_drain(p);
	return err == RUBATO_OK ? collect(w, comm, p, origin_ns) : err;
}

/* What rounding has lost is kept by the first run, and put back by another. */
static rubato_status lost(struct world *w, uint32_t me, rubato_partial *p)
{
	uint64_t count;
	float *at;
	rubato_status err;

	if (!w->options.feedback || w->forgets || w->afresh)
		return RUBATO_OK;
	err = rubato_partial_residual(p, &at, &count);
	if (err != RUBATO_OK || count == 0 || count > LOST_MAX)
		return err != RUBATO_OK ? err : RUBATO_ERR_ARGUMENT;
	if (w->resumed && count == w->lost_count[me])
		memcpy(at, w->lost[me], count * sizeof(*at));
	else
		memcpy(w->lost[me], at, count * sizeof(*at));
	w->lost_count[me] = count;
	return RUBATO_OK;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	rubato_partial_options options = w->options;
	uint32_t me = rubato_rank(comm);
	rubato_status err = RUBATO_OK;
	uint64_t meeting_ns = 1000000000u + me; /* Nothing is on its way, and no two are equal. */
	rubato_partial *p;

	if (w->resumed && !w->afresh) {
		options.state = w->state[me];
		options.state_bytes = w->state_bytes[me];
	}
	err = rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_AVG, &options, &p);
	if (err != RUBATO_OK)
		return err;
	if (!w->resumed) {
		err = era(w, comm, p, 0, 0);
		w->state_bytes[me] = STATE_MAX;
		if (err == RUBATO_OK)
			err = rubato_partial_save(p, w->state[me], &w->state_bytes[me]);
	}
	if (err == RUBATO_OK)
		err = lost(w, me, p);
	if (err != RUBATO_OK)
		return err;
	if (rubato_now(comm) >= meeting_ns)
		snprintf(w->wrong, sizeof(w->wrong), "the first era was not over in time");
	rubato_sleep(comm, meeting_ns - rubato_now(comm));
	err = era(w, comm, p, STEPS, meeting_ns);
	w->story[me].stats = (rubato_partial_stats) { .size_bytes = sizeof(rubato_partial_stats) };
	if (err == RUBATO_OK)
		err = rubato_partial_get_stats(p, &w->story[me].stats);
	return err == RUBATO_OK ? rubato_partial_free(p) : err;
}

static void run(bool resumed, bool afresh)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = RANKS;
	options.ranks_per_node = world.options.members == RUBATO_MEMBERS_NODES ? 2 : 0;
	options.seed = 3;
	world.resumed = resumed;
	world.afresh = afresh;
	memset(world.story, 0, sizeof(world.story));
	ck_assert_msg(rubato_sim_run(&options, rank_main, &world, &result) == RUBATO_OK,
		      "rank %u: %s", result.failed_rank, rubato_error_text());
	ck_assert_str_eq(world.wrong, "");
}

static const struct setting {
	const char *name;
	rubato_partial_options options;
	bool counts; /* Its policy counts rounds: without the state other rounds must come. */
} settings[] = {
	{ "solo", { .policy = RUBATO_POLICY_SOLO }, false },
	{ "solo, own", { .collection = RUBATO_COLLECT_OWN }, false },
	{ "majority", { .policy = RUBATO_POLICY_MAJORITY, .seed = 9 }, true },
	{ "majority, free",
	  { .policy = RUBATO_POLICY_MAJORITY, .rounds = RUBATO_ROUNDS_FREE, .seed = 9 },
	  true },
	{ "quorum", { .policy = RUBATO_POLICY_QUORUM, .quorum = 5 }, false },
	{ "quorum, full rounds",
	  { .policy = RUBATO_POLICY_QUORUM, .quorum = 3, .full_every = 7 },
	  true },
	{ "quorum, free, absence, drop",
	  { .policy = RUBATO_POLICY_QUORUM,
	    .quorum = 3,
	    .rounds = RUBATO_ROUNDS_FREE,
	    .max_absence = 3,
	    .late = RUBATO_LATE_DROP },
	  false },
	{ "deadline, window",
	  { .policy = RUBATO_POLICY_DEADLINE, .deadline_ns = 500000, .window_ns = 200000 },
	  false },
	{ "adaptive", { .policy = RUBATO_POLICY_ADAPTIVE }, true },
	{ "adaptive, nodes",
	  { .policy = RUBATO_POLICY_ADAPTIVE, .members = RUBATO_MEMBERS_NODES },
	  true },
	{ "adaptive, free",
	  { .policy = RUBATO_POLICY_ADAPTIVE, .rounds = RUBATO_ROUNDS_FREE },
	  true },
	{ "wagma",
	  { .policy = RUBATO_POLICY_WAGMA,
	    .group = 2,
	    .full_every = 5,
	    .late = RUBATO_LATE_LATEST,
	    .collection = RUBATO_COLLECT_OWN },
	  true },
	{ "quorum, bfloat16",
	  { .policy = RUBATO_POLICY_QUORUM,
	    .quorum = 5,
	    .wire = RUBATO_WIRE_BFLOAT16,
	    .feedback = 1 },
	  false },
	{ "solo, int8", { .wire = RUBATO_WIRE_INT8, .feedback = 1 }, false },
	{ "latest",
	  { .policy = RUBATO_POLICY_QUORUM,
	    .quorum = 2,
	    .late = RUBATO_LATE_LATEST,
	    .collection = RUBATO_COLLECT_LATEST,
	    .full_every = 7 },
	  true },
};
#define SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))

/* Times and numbers of rounds are compared only with the state: a new one counts from 0. */
static bool same(const struct story *a, const struct story *b, bool numbers)
{
	if (a->count != b->count || a->count == 0 || a->count > ROUNDS_MAX)
		return false;
	for (uint32_t i = 0; i < a->count; i++) {
		struct seen x = a->rounds[i], y = b->rounds[i];

		if (!numbers)
			x.round = y.round = x.at_ns = y.at_ns = x.discarded = y.discarded = 0;
		if (memcmp(&x, &y, sizeof(x)) != 0)
			return false;
	}
	return true;
}

START_TEST(rounds_go_on_as_they_would_have)
{
	const struct setting *s = &settings[_i];
	static struct story whole[RANKS];
	bool all = true;

	world.options = s->options;
	world.options.size_bytes = sizeof(world.options);
	run(false, false);
	memcpy(whole, world.story, sizeof(whole));
	run(true, false);
	for (uint32_t r = 0; r < RANKS; r++) {
		const rubato_partial_stats *a = &whole[r].stats, *b = &world.story[r].stats;

		ck_assert_msg(same(&whole[r], &world.story[r], true), "%s: rank %u", s->name, r);
		ck_assert_msg(a->rounds == b->rounds && a->full_rounds == b->full_rounds &&
				      a->committed == b->committed &&
				      a->delivered == b->delivered &&
				      a->discarded == b->discarded && a->merged == b->merged,
			      "%s: rank %u counts otherwise", s->name, r);
	}
	world.forgets = s->options.feedback;
	if (!s->counts && !world.forgets)
		return;
	run(true, !world.forgets);
	for (uint32_t r = 0; r < RANKS; r++)
		all = all && same(&whole[r], &world.story[r], world.forgets);
	ck_assert_msg(!all, "%s: the state makes no difference", s->name);
}
END_TEST

/* ---- What is refused ---- */

static rubato_status create(rubato_comm *comm, const void *state, uint64_t bytes,
			    rubato_policy policy, rubato_partial **p)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	options.policy = policy;
	options.state = state;
	options.state_bytes = bytes;
	return rubato_partial_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, &options, p);
}

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			snprintf(world.wrong, sizeof(world.wrong), "line %d: %.90s", __LINE__,     \
				 rubato_error_text());                                             \
			return RUBATO_ERR_ARGUMENT;                                                \
		}                                                                                  \
	} while (0)

static void three_run(rubato_status (*body)(rubato_comm *comm, void *arg))
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = 3;
	err = rubato_sim_run(&options, body, NULL, &result);
	ck_assert_msg(err == RUBATO_OK, "%s; %s", world.wrong, rubato_error_text());
}

static rubato_status refusals_main(rubato_comm *comm, void *arg)
{
	uint8_t state[STATE_MAX], changed[STATE_MAX];
	uint64_t bytes = 0, room, step = 0;
	rubato_partial *p, *q;
	const void *result;
	float one = 1;

	(void)arg;
	MUST(create(comm, NULL, 0, RUBATO_POLICY_ADAPTIVE, &p) == RUBATO_OK);
	MUST(rubato_partial_save(p, NULL, &bytes) == RUBATO_OK && bytes < STATE_MAX);
	room = bytes;
	MUST(rubato_partial_save(p, state, &room) == RUBATO_ERR_ARGUMENT); /* Not drained. */
	for (; step < 3; step++)
		MUST(rubato_partial_contribute(p, &one, step, 1) == RUBATO_OK);
	MUST(rubato_partial_drain(p) == RUBATO_OK);
	MUST(rubato_partial_save(p, state, &room) == RUBATO_ERR_ARGUMENT); /* Not collected. */
	MUST(rubato_partial_collect_view(p, &result, NULL, 0) == RUBATO_OK && result != NULL);
	MUST(rubato_partial_save(p, state, &room) == RUBATO_ERR_ARGUMENT); /* Lent. */
	MUST(rubato_partial_release(p) == RUBATO_OK);
	MUST(collect(&world, comm, p, 0) == RUBATO_OK);
	room = bytes - 1;
	MUST(rubato_partial_save(p, state, &room) == RUBATO_ERR_ARGUMENT && room == bytes);
	MUST(rubato_partial_save(p, state, &room) == RUBATO_OK && room == bytes);
	MUST(rubato_partial_contribute(p, &one, step, 1) == RUBATO_OK);
	MUST(rubato_partial_save(p, changed, &room) == RUBATO_ERR_ARGUMENT); /* It holds one. */
	MUST(rubato_partial_free(p) == RUBATO_OK);

	for (uint64_t i = 0; i < bytes; i++) {
		memcpy(changed, state, bytes);
		changed[i] ^= (uint8_t)(1u << i % 8);
		MUST(create(comm, changed, bytes, RUBATO_POLICY_ADAPTIVE, &p) ==
		     RUBATO_ERR_ARGUMENT);
		i += i > 64 ? 30 : 0;
	}
	for (uint64_t i = 0; i < bytes; i += 1 + i / 4)
		MUST(create(comm, state, i, RUBATO_POLICY_ADAPTIVE, &p) == RUBATO_ERR_ARGUMENT);
	MUST(create(comm, state, bytes, RUBATO_POLICY_SOLO, &p) == RUBATO_ERR_ARGUMENT);
	MUST(create(comm, NULL, bytes, RUBATO_POLICY_ADAPTIVE, &p) == RUBATO_ERR_ARGUMENT);

	/* What one rank alone goes on from is found. */
	MUST(create(comm, rubato_rank(comm) == 1 ? NULL : state, rubato_rank(comm) == 1 ? 0 : bytes,
		    RUBATO_POLICY_ADAPTIVE, &p) == RUBATO_ERR_MISMATCH);
	MUST(strstr(rubato_error_text(), "state is") != NULL);

	/* A state just taken can be saved again; numbers must go on growing. */
	MUST(create(comm, state, bytes, RUBATO_POLICY_ADAPTIVE, &q) == RUBATO_OK);
	MUST(rubato_partial_save(q, changed, &room) == RUBATO_OK);
	MUST(memcmp(state, changed, bytes) == 0);
	MUST(rubato_partial_contribute(q, &one, step - 1, 1) == RUBATO_ERR_ARGUMENT);
	MUST(rubato_partial_contribute(q, &one, step, 1) == RUBATO_OK);
	return rubato_partial_free(q);
}

START_TEST(what_is_no_state_is_refused)
{
	three_run(refusals_main);
}
END_TEST

static rubato_status lost_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint64_t count = 0;
	rubato_partial *p;
	const void *result;
	float *at, value = 1.3f;

	(void)arg;
	MUST(create(comm, NULL, 0, RUBATO_POLICY_SOLO, &p) == RUBATO_OK);
	MUST(rubato_partial_residual(p, &at, &count) == RUBATO_ERR_ARGUMENT); /* There is none. */
	MUST(rubato_partial_free(p) == RUBATO_OK);
	options.wire = RUBATO_WIRE_BFLOAT16;
	options.feedback = 1;
	MUST(rubato_partial_create(comm, 1, RUBATO_FLOAT32, RUBATO_SUM, &options, &p) == RUBATO_OK);
	MUST(rubato_partial_residual(p, NULL, &count) == RUBATO_ERR_ARGUMENT);
	MUST(rubato_partial_residual(p, &at, &count) == RUBATO_OK && count == 2);
	MUST(at[0] == 0 && at[1] == 0);
	MUST(rubato_partial_contribute(p, &value, 0, 1) == RUBATO_OK);
	MUST(rubato_partial_residual(p, &at, &count) == RUBATO_ERR_ARGUMENT); /* Not drained. */
	MUST(rubato_partial_drain(p) == RUBATO_OK);
	MUST(rubato_partial_collect_view(p, &result, NULL, 0) == RUBATO_OK && result != NULL);
	MUST(rubato_partial_residual(p, &at, &count) == RUBATO_ERR_ARGUMENT); /* Lent. */
	MUST(rubato_partial_release(p) == RUBATO_OK);
	MUST(collect(&world, comm, p, 0) == RUBATO_OK);
	MUST(rubato_partial_residual(p, &at, &count) == RUBATO_OK && count == 2 && at[0] != 0);
	return rubato_partial_free(p);
}

START_TEST(what_rounding_lost_is_read_between_eras)
{
	three_run(lost_main);
}
END_TEST

/* Its rank could not go on. */
static rubato_status leaver_main(rubato_comm *comm, void *arg)
{
	uint32_t me = rubato_rank(comm);
	uint64_t bytes = STATE_MAX;
	uint8_t state[STATE_MAX];
	rubato_partial *p;
	float one = 1;

	(void)arg;
	MUST(create(comm, NULL, 0, RUBATO_POLICY_QUORUM, &p) == RUBATO_OK);
	MUST(rubato_partial_contribute(p, &one, 0, 1) == RUBATO_OK);
	MUST(collect(&world, comm, p, 0) == RUBATO_OK);
	MUST((me == 1 ? rubato_partial_leave(p) : rubato_partial_drain(p)) == RUBATO_OK);
	MUST(collect(&world, comm, p, 0) == RUBATO_OK);
	rubato_sleep(comm, 1000000000);
	MUST(rubato_partial_save(p, state, &bytes) == RUBATO_ERR_ARGUMENT);
	return rubato_partial_free(p);
}

START_TEST(nothing_is_saved_without_all_ranks)
{
	three_run(leaver_main);
}
END_TEST

/* A rank saves when others have begun the next era, or are ending the operation: all states are of
 * the same cut. Rank 0 goes on at once, each other one later than the one before. */
static rubato_status late_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = *(const rubato_partial_options *)arg;
	uint32_t me = rubato_rank(comm);
	uint64_t bytes = STATE_MAX;
	uint8_t state[STATE_MAX];
	rubato_partial *p, *q;
	uint64_t rounds;

	for (int frees = 0; frees < 2; frees++) {
		rubato_partial_stats stats = { .size_bytes = sizeof(stats) };

		MUST(rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_AVG, &options, &p) ==
		     RUBATO_OK);
		MUST(era(&world, comm, p, 0, 0) == RUBATO_OK);
		MUST(rubato_partial_get_stats(p, &stats) == RUBATO_OK);
		rounds = stats.rounds;
		rubato_sleep(comm, me * 20000000u);
		MUST(rubato_partial_get_stats(p, &stats) == RUBATO_OK);
		if (me == RANKS - 1)
			world.went_on += stats.rounds > rounds;
		bytes = STATE_MAX;
		MUST(rubato_partial_save(p, state, &bytes) == RUBATO_OK);
		if (!frees) {
			MUST(era(&world, comm, p, STEPS, 0) == RUBATO_OK);
			MUST(rubato_partial_save(p, state, &bytes) == RUBATO_OK);
		}
		MUST(rubato_partial_free(p) == RUBATO_OK);
		options.state = state;
		options.state_bytes = bytes;
		MUST(rubato_partial_create(comm, 4, RUBATO_FLOAT32, RUBATO_AVG, &options, &q) ==
		     RUBATO_OK);
		MUST(era(&world, comm, q, 2 * STEPS, 0) == RUBATO_OK);
		MUST(rubato_partial_free(q) == RUBATO_OK);
		options.state = NULL;
		options.state_bytes = 0;
	}
	return RUBATO_OK;
}

START_TEST(what_others_do_next_is_not_in_a_state)
{
	const struct setting *setting = &settings[_i];
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_partial_options given = setting->options;
	rubato_sim_result result;
	rubato_status err;

	given.size_bytes = sizeof(given);
	options.rank_count = RANKS;
	options.ranks_per_node = given.members == RUBATO_MEMBERS_NODES ? 2 : 0;
	options.seed = 3;
	err = rubato_sim_run(&options, late_main, &given, &result);
	ck_assert_msg(err == RUBATO_OK, "%s: rank %u: %s; %s", setting->name, result.failed_rank,
		      world.wrong, rubato_error_text());
	/* One that is enough to open a round has done so before the last one saved. */
	if (given.policy == RUBATO_POLICY_SOLO)
		ck_assert_uint_eq(world.went_on, 2);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("partial state");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, rounds_go_on_as_they_would_have, 0, SETTINGS);
	tcase_add_test(tests, what_is_no_state_is_refused);
	tcase_add_test(tests, what_rounding_lost_is_read_between_eras);
	tcase_add_test(tests, nothing_is_saved_without_all_ranks);
	tcase_add_loop_test(tests, what_others_do_next_is_not_in_a_state, 0, SETTINGS);
	return check_main("partial state", tests);
}
