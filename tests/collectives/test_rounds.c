/* test_rounds.c -- the partial allreduce's machines: by hand, and many together under the laws. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "base/rng.h"
#include "collectives/partial/rounds_inside.h"
#include "rounds_world.h"
#include "tests/check_main.h"
#include "tests/length.h"

/* ---- Activation alone ---- */

#define FLOOD_MAX 1024

struct hop { /* A message under way. */
	uint32_t from, to;
	uint8_t message[RB_PROTOCOL_MESSAGE_BYTES];
};

struct flood {
	uint32_t n, count, sent;
	struct rb_rounds *machines[FLOOD_MAX];
	struct hop *hops;
	bool *edges; /* Told in this round: n * n. */
};

static void flood_event(struct flood *f, uint32_t r, struct rb_protocol_event *event)
{
	struct rb_protocol_actions actions = { .count = 0 };

	ck_assert(rb_rounds_valid(f->machines[r]));
	rb_rounds_step(f->machines[r], event, &actions);
	for (uint32_t i = 0; i < actions.count; i++) {
		const struct rb_protocol_action *action = &actions.item[i];

		if (action->act != RB_PROTOCOL_SEND)
			continue;
		ck_assert_uint_lt(action->peer, f->n);
		ck_assert(!f->edges[r * f->n + action->peer]);
		f->edges[r * f->n + action->peer] = true;
		f->hops[f->count] = (struct hop) { .from = r, .to = action->peer };
		memcpy(f->hops[f->count++].message, action->message, sizeof(action->message));
		f->sent++;
	}
}

static void flood_open(struct flood *f, uint32_t n)
{
	struct rb_rounds_config config = { .rank_count = n, .options.depth = 1 };

	*f = (struct flood) { .n = n };
	f->hops = calloc((size_t)n * 16, sizeof(*f->hops));
	f->edges = calloc((size_t)n * n, sizeof(*f->edges));
	ck_assert(f->hops != NULL && f->edges != NULL);
	for (config.rank = 0; config.rank < n; config.rank++) {
		f->machines[config.rank] = malloc(rb_rounds_bytes(&config));
		ck_assert_ptr_nonnull(f->machines[config.rank]);
		ck_assert_int_eq(rb_rounds_init(f->machines[config.rank], &config), RUBATO_OK);
	}
}

static void flood_close(struct flood *f)
{
	for (uint32_t r = 0; r < f->n; r++)
		free(f->machines[r]);
	free(f->hops);
	free(f->edges);
}

static void flood_commit(struct flood *f, uint32_t r)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = RB_ROUNDS_COMMIT };

	flood_event(f, r, &event);
}

static void flood_deliver(struct flood *f, uint32_t at)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE, .peer = f->hops[at].from };
	uint32_t to = f->hops[at].to;

	memcpy(event.message, f->hops[at].message, sizeof(event.message));
	f->hops[at] = f->hops[--f->count];
	flood_event(f, to, &event);
}

static uint32_t levels(uint32_t n)
{
	uint32_t l = 0;

	while (1u << l < n)
		l++;
	return l;
}

static void flood_check(const struct flood *f)
{
	for (uint32_t r = 0; r < f->n; r++)
		ck_assert_msg(rb_rounds_view_of(f->machines[r]).phase == RB_ROUNDS_EXCHANGING,
			      "%u ranks: rank %u was not told", f->n, r);
	ck_assert_uint_le(f->sent, f->n * levels(f->n));
}

/* All messages of a step arrive before any of the next: returns the steps. */
static uint32_t flood_steps(uint32_t n, const uint32_t *openers, uint32_t opener_count)
{
	struct flood f;
	uint32_t steps = 0;

	flood_open(&f, n);
	for (uint32_t i = 0; i < opener_count; i++)
		flood_commit(&f, openers[i]);
	for (; f.count > 0; steps++) {
		uint32_t begun = f.count;
		struct hop *hops = malloc(begun * sizeof(*hops));

		ck_assert_ptr_nonnull(hops);
		memcpy(hops, f.hops, begun * sizeof(*hops));
		f.count = 0;
		for (uint32_t i = 0; i < begun; i++) {
			struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE,
							   .peer = hops[i].from };

			memcpy(event.message, hops[i].message, sizeof(event.message));
			flood_event(&f, hops[i].to, &event);
		}
		free(hops);
	}
	flood_check(&f);
	flood_close(&f);
	return steps;
}

/* Short: 1 to 9, 16, 23 ... */
static uint32_t more_ranks(uint32_t n)
{
	return test_length() == TEST_SHORT && n > 8 ? n + 7 : n + 1;
}

START_TEST(activation_takes_log2_steps_for_every_rank_count_and_opener)
{
	for (uint32_t n = 1; n <= 64; n = more_ranks(n))
		for (uint32_t opener = 0; opener < n; opener++)
			ck_assert_uint_le(flood_steps(n, &opener, 1), levels(n));
	for (uint32_t opener = 0; opener < 1024; opener += 341)
		ck_assert_uint_eq(flood_steps(1024, &opener, 1), 10);
}
END_TEST

START_TEST(activation_reaches_all_from_any_openers_in_any_order)
{
	struct rb_rng rng = { 7 };
	uint32_t sets = test_length() == TEST_SHORT ? 10 : 160;

	for (uint32_t n = 1; n <= 64; n = more_ranks(n))
		for (uint32_t i = 0; i < sets; i++) {
			uint32_t openers = 1 + (uint32_t)rb_rng_below(&rng, n);
			struct flood f;

			flood_open(&f, n);
			while (openers > 0 || f.count > 0) {
				bool opens = openers > 0 && (f.count == 0 || rb_rng_below(&rng, 3));
				uint32_t r = (uint32_t)rb_rng_below(&rng, n);

				openers -= opens;
				if (!opens)
					flood_deliver(&f, (uint32_t)rb_rng_below(&rng, f.count));
				else if (rb_rounds_view_of(f.machines[r]).committed == 0)
					flood_commit(&f, r);
			}
			if (f.sent > 0 || n == 1)
				flood_check(&f);
			flood_close(&f);
		}
}
END_TEST

/* ---- One machine by hand ---- */

static struct rb_rounds *machine_of(const struct rb_rounds_config *config)
{
	struct rb_rounds *machine = malloc(rb_rounds_bytes(config));

	ck_assert_ptr_nonnull(machine);
	ck_assert_int_eq(rb_rounds_init(machine, config), RUBATO_OK);
	return machine;
}

START_TEST(late_contributions_open_nothing)
{
	/* Rank 0 of 3: it is the root of round 3, which it is late for three times. */
	struct rb_rounds_config config = {
		.rank_count = 3,
		.options = { .policy = RUBATO_POLICY_QUORUM,
			     .collection = RUBATO_COLLECT_LATEST,
			     .quorum = 2,
			     .depth = 4 },
	};
	struct rb_rounds *m = machine_of(&config);
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = RB_ROUNDS_COMMIT };
	struct rb_rounds_commit c = { .step = 0 };
	struct rb_protocol_actions actions = { .count = 0 };

	for (uint64_t round = 0; round < 3; round++) { /* It takes part with nothing. */
		struct rb_protocol_event activate = { .kind = RB_PROTOCOL_MESSAGE, .peer = 2 };
		struct rb_protocol_event run = { .kind = RB_PROTOCOL_RUN_DONE };
		struct rb_rounds_message text = { .kind = RB_ROUNDS_MESSAGE_ACTIVATE,
						  .round = round };

		memcpy(activate.message, &text, sizeof(text));
		actions.count = 0;
		rb_rounds_step(m, &activate, &actions);
		ck_assert_int_eq(rb_rounds_view_of(m).phase, RB_ROUNDS_EXCHANGING);
		for (uint32_t r = 0; r < 3; r++)
			rb_rounds_records(m, round)[r] =
				(struct rb_rounds_record) { .round = (uint32_t)round };
		for (uint64_t which = RB_ROUNDS_EXCHANGE; which <= RB_ROUNDS_REDUCE; which++) {
			run.value = round * RB_ROUNDS_RUNS + which;
			actions.count = 0;
			rb_rounds_step(m, &run, &actions);
		}
		ck_assert_uint_eq(rb_rounds_view_of(m).round, round + 1);
	}
	for (; c.step < 3; c.step++) { /* What it was late with: nothing is told to anyone. */
		memcpy(event.message, &c, sizeof(c));
		actions.count = 0;
		rb_rounds_step(m, &event, &actions);
		ck_assert_uint_eq(actions.count, 0);
		ck_assert(!rb_rounds_view_of(m).ready);
		ck_assert_int_eq(rb_rounds_view_of(m).verdict,
				 c.step == 0 ? RB_ROUNDS_TAKE : RB_ROUNDS_MERGE);
	}
	for (uint32_t i = 0; i < 2; i++) {
		event.value = RB_ROUNDS_MERGED;
		rb_rounds_step(m, &event, &actions);
	}
	ck_assert_uint_eq(actions.count, 0);
	memcpy(event.message, &c, sizeof(c)); /* Number 3 is for round 3. */
	event.value = RB_ROUNDS_COMMIT;
	rb_rounds_step(m, &event, &actions);
	ck_assert(rb_rounds_view_of(m).ready);
	ck_assert_uint_eq(rb_rounds_view_of(m).pending, 4);
	free(m);
}
END_TEST

/* ---- Where ranks meet ---- */

static void call(struct rb_rounds *m, enum rb_rounds_call what, uint64_t step,
		 struct rb_protocol_actions *out)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = what };
	struct rb_rounds_commit c = { .step = step };

	memcpy(event.message, &c, sizeof(c));
	out->count = 0;
	rb_rounds_step(m, &event, out);
}

static uint32_t count_of(const struct rb_protocol_actions *actions, enum rb_protocol_act act)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < actions->count; i++)
		count += actions->item[i].act == act;
	return count;
}

static void heard(struct hop *hops, uint32_t *count, uint32_t from,
		  const struct rb_protocol_actions *actions)
{
	for (uint32_t i = 0; i < actions->count; i++) {
		if (actions->item[i].act != RB_PROTOCOL_SEND_ALL)
			continue;
		hops[*count].from = from;
		memcpy(hops[(*count)++].message, actions->item[i].message, sizeof(hops->message));
	}
}

/* All tell all, and all records are here. Returns how often a machine has told all others. */
static uint32_t meet(rubato_policy policy, uint32_t n, uint32_t ready)
{
	struct rb_rounds_config config = {
		.rank_count = n,
		.options = { .policy = policy, .quorum = n, .deadline_ns = 9, .depth = 1 },
		.few = RB_ROUNDS_FEW,
	};
	struct rb_rounds *machines[RB_ROUNDS_FEW];
	struct hop hops[4 * RB_ROUNDS_FEW];
	uint32_t count = 0;

	for (config.rank = 0; config.rank < n; config.rank++)
		machines[config.rank] = machine_of(&config);
	for (uint32_t r = 0; r < n; r++) {
		struct rb_protocol_actions actions;

		if (r >= ready)
			break;
		call(machines[r], RB_ROUNDS_COMMIT, 0, &actions);
		heard(hops, &count, r, &actions);
		call(machines[r], RB_ROUNDS_COLLECT, 0, &actions);
		heard(hops, &count, r, &actions);
	}
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t r = 0; r < n; r++) {
			struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE,
							   .peer = hops[i].from };
			struct rb_protocol_actions actions = { .count = 0 };

			if (r == hops[i].from)
				continue;
			memcpy(event.message, hops[i].message, sizeof(event.message));
			rb_rounds_step(machines[r], &event, &actions);
			heard(hops, &count, r, &actions);
		}
	for (uint32_t r = 0; r < n; r++) {
		ck_assert_int_eq(rb_rounds_view_of(machines[r]).phase, RB_ROUNDS_REDUCING);
		free(machines[r]);
	}
	return count;
}

START_TEST(ranks_that_wait_meet_once)
{
	for (uint32_t n = 2; n <= RB_ROUNDS_FEW; n++) {
		ck_assert_uint_eq(meet(RUBATO_POLICY_QUORUM, n, n), n);
		ck_assert_uint_eq(meet(RUBATO_POLICY_DEADLINE, n, n), n);
		ck_assert_uint_eq(meet(RUBATO_POLICY_SOLO, n, 1), n);
	}
}
END_TEST

/* A timeout, or another operation that needs it, ends a wait without a result. */
START_TEST(who_has_waited_once_waits_no_more_when_it_commits)
{
	struct rb_rounds_config config = {
		.rank_count = 2,
		.options = { .policy = RUBATO_POLICY_QUORUM,
			     .rounds = RUBATO_ROUNDS_FREE,
			     .quorum = 2,
			     .depth = 4 },
		.few = RB_ROUNDS_FEW,
	};
	struct rb_rounds *m = machine_of(&config);
	struct rb_protocol_actions actions;
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_MESSAGE, .peer = 1 };
	struct rb_rounds_message text = { .kind = RB_ROUNDS_MESSAGE_MEET,
					  .value = RB_ROUNDS_COUNTS | RB_ROUNDS_WANTS |
						   RB_ROUNDS_JOINS };

	call(m, RB_ROUNDS_COMMIT, 0, &actions); /* It says that it is ready, */
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_SEND_ALL), 1);
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_RUN), 0);
	call(m, RB_ROUNDS_COLLECT, 0, &actions); /* and joins when its application waits. */
	ck_assert_int_eq(rb_rounds_view_of(m).offer, RB_ROUNDS_WAIT);
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_RUN), 1);
	call(m, RB_ROUNDS_COLLECT, 0, &actions);
	ck_assert_uint_eq(actions.count, 0);
	memcpy(event.message, &text, sizeof(text));
	actions.count = 0;
	rb_rounds_step(m, &event, &actions); /* All are here: it is reduced. */
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_RUN), 1);
	call(m, RB_ROUNDS_COLLECT, 0, &actions);
	ck_assert_uint_eq(actions.count, 0);
	event = (struct rb_protocol_event) { .kind = RB_PROTOCOL_RUN_DONE,
					     .value = RB_ROUNDS_REDUCE };
	actions.count = 0;
	rb_rounds_step(m, &event, &actions);
	call(m, RB_ROUNDS_COMMIT, 1, &actions); /* It has waited, and does so no more. */
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_RUN), 0);
	call(m, RB_ROUNDS_COMMIT, 2, &actions);
	ck_assert_int_eq(rb_rounds_view_of(m).verdict, RB_ROUNDS_MERGE);
	call(m, RB_ROUNDS_MERGED, 0, &actions);
	ck_assert_uint_eq(count_of(&actions, RB_PROTOCOL_RUN), 0);
	ck_assert_uint_eq(rb_rounds_view_of(m).pending, 2);
	free(m);
}
END_TEST

/* Takes one machine through a round. */
static void turn(struct rb_rounds *m, uint32_t n, uint64_t round)
{
	struct rb_protocol_event event = { .kind = RB_PROTOCOL_START, .value = RB_ROUNDS_COMMIT };
	struct rb_rounds_commit c = { .step = round };
	struct rb_protocol_actions actions = { .count = 0 };

	memcpy(event.message, &c, sizeof(c));
	rb_rounds_step(m, &event, &actions);
	for (uint32_t r = 0; r < n; r++)
		rb_rounds_records(m, round)[r] =
			(struct rb_rounds_record) { .round = (uint32_t)round };
	event.kind = RB_PROTOCOL_RUN_DONE;
	for (uint64_t which = RB_ROUNDS_EXCHANGE; which <= RB_ROUNDS_REDUCE; which++) {
		event.value = round * RB_ROUNDS_RUNS + which;
		actions.count = 0;
		rb_rounds_step(m, &event, &actions);
	}
	ck_assert_uint_eq(rb_rounds_view_of(m).round, round + 1);
}

/* Averages within groups, m times for n = s^m: every rank's share of every model is 1 / n. */
static void rotate(uint32_t n, uint32_t s, uint32_t m)
{
	struct rb_rounds_config config = {
		.rank_count = n,
		.options = { .policy = RUBATO_POLICY_WAGMA,
			     .collection = RUBATO_COLLECT_LATEST,
			     .group = s,
			     .depth = 1 },
	};
	double *share = calloc((size_t)n * n, sizeof(*share)), *next;
	uint32_t *ranks = calloc(n, sizeof(*ranks));

	ck_assert(share != NULL && ranks != NULL);
	for (uint32_t r = 0; r < n; r++)
		share[r * n + r] = 1;
	for (uint32_t t = 0; t < m; t++) {
		next = calloc((size_t)n * n, sizeof(*next));
		ck_assert_ptr_nonnull(next);
		for (config.rank = 0; config.rank < n; config.rank++) {
			struct rb_rounds *machine = machine_of(&config);

			for (uint64_t round = 0; round < t; round++)
				turn(machine, n, round);
			ck_assert_uint_eq(rb_rounds_members(machine, ranks), s);
			for (uint32_t i = 0; i < s; i++)
				for (uint32_t j = 0; j < n; j++)
					next[config.rank * n + j] += share[ranks[i] * n + j] / s;
			free(machine);
		}
		free(share);
		share = next;
	}
	for (uint32_t i = 0; i < n * n; i++)
		ck_assert_double_eq_tol(share[i], 1.0 / n, 1e-12);
	free(share);
	free(ranks);
}

START_TEST(groups_rotate_until_all_have_equal_shares)
{
	rotate(2, 2, 1);
	rotate(4, 2, 2);
	rotate(8, 2, 3);
	rotate(64, 2, 6);
	rotate(9, 3, 2);
	rotate(27, 3, 3);
	rotate(16, 4, 2);
	rotate(64, 8, 2);
	rotate(5, 5, 1);
}
END_TEST

START_TEST(impossible_settings_are_named)
{
	static const uint32_t names[] = { 0, 1, 1 };
	uint32_t words[RB_NODES_WORDS(3)];
	struct rb_nodes two;
	const struct {
		struct rb_rounds_config config;
		const char *word;
	} cases[] = {
		{ { .rank_count = 0, .options.depth = 1 }, "rank" },
		{ { .rank = 3, .rank_count = 3, .options.depth = 1 }, "rank" },
		{ { .rank_count = 3 }, "depth" },
		{ { .rank_count = 3, .options = { .depth = 1, .policy = RUBATO_POLICY_QUORUM } },
		  "quorum" },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = RUBATO_POLICY_QUORUM, .quorum = 4 } },
		  "quorum" },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = RUBATO_POLICY_WAGMA, .group = 2 } },
		  "group" },
		{ { .rank_count = 3, .options = { .depth = 1, .policy = (rubato_policy)9999 } },
		  "there is no policy 9999; policies are 0 to " },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = (rubato_policy)RUBATO_POLICY_COUNT } },
		  "there is no policy" },
		{ { .rank_count = 3, .options = { .depth = 1, .late = (rubato_late)3 } },
		  "there is no late 3; it is 0 to 2" },
		{ { .rank_count = 3, .options = { .depth = 1, .window_ns = UINT64_MAX } },
		  "window" },
		{ { .rank_count = 3, .options = { .depth = 1, .members = (rubato_members)2 } },
		  "there is no members 2; it is 0 or 1" },
		{ { .rank_count = 3, .options = { .depth = 1, .reserved = 1 } }, "reserved" },
		{ { .rank_count = 3, .options.depth = 1, .few = 33 }, "few 33: 32 is the most" },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = RUBATO_POLICY_QUORUM, .quorum = 3 },
		    .nodes = &two },
		  "quorum 3 of 2 nodes" },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = RUBATO_POLICY_WAGMA, .group = 3 },
		    .nodes = &two },
		  "group 3 does not divide 2 nodes" },
		{ { .rank_count = 3,
		    .options = { .depth = 1, .policy = RUBATO_POLICY_WAGMA, .group = 1 },
		    .nodes = &two },
		  "3 ranks lie unevenly on 2 nodes" },
	};

	rb_nodes_make(&two, words, names, 3);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		void *machine = malloc(4096);

		ck_assert_int_eq(rb_rounds_init(machine, &cases[i].config), RUBATO_ERR_ARGUMENT);
		ck_assert_msg(strstr(rubato_error_text(), cases[i].word) != NULL, "'%s' in '%s'",
			      cases[i].word, rubato_error_text());
		free(machine);
	}
}
END_TEST

/* ---- Worlds ---- */

START_TEST(laws_hold_in_all_worlds)
{
	static const uint64_t counts[] = { 3000, 12000, 1000000 };
	struct seeds seeds =
		seeds_from(__func__, 1, test_is_interpreted() ? 600 : counts[test_length()]);
	uint64_t count = seeds.left;
	struct rounds_totals t = { 0 };
	char text[256];

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		const char *broken = rounds_world_run(seed, &t, text, sizeof(text));

		ck_assert_msg(broken == NULL, "TEST_SEED=%" PRIu64 ": %s", seed, broken);
	}
	printf("%" PRIu64 " worlds: %" PRIu64 " events, %" PRIu64 " rounds (%" PRIu64
	       " full, %" PRIu64 " at deadlines), %" PRIu64 " crashes (%" PRIu64
	       " after the end), %" PRIu64 " fetches, %" PRIu64 " restored, %" PRIu64
	       " late, %" PRIu64 " merges, %" PRIu64 " drains, %" PRIu64 " left, %" PRIu64
	       " freezes; %" PRIu64 " nodes in, %" PRIu64 " out of rounds, %" PRIu64
	       " joins of rounds not open\n",
	       count, t.events, t.rounds, t.full, t.deadlines, t.crashes, t.late_crashes, t.fetches,
	       t.restored, t.late, t.merges, t.drained, t.left, t.freezes, t.nodes_in, t.nodes_out,
	       t.early);
}
END_TEST

/* Nodes of one rank each are ranks: the same messages, records and runs, at the same times. */
START_TEST(nodes_of_one_rank_are_ranks)
{
	struct seeds seeds = seeds_from(__func__, 1,
					test_is_interpreted()         ? 100
					: test_length() == TEST_SHORT ? 500
								      : 5000);
	char text[256];

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rounds_totals ranks = { .members = ROUNDS_RANKS };
		struct rounds_totals alone = { .members = ROUNDS_ALONE };

		ck_assert_ptr_null(rounds_world_run(seed, &ranks, text, sizeof(text)));
		ck_assert_ptr_null(rounds_world_run(seed, &alone, text, sizeof(text)));
		ck_assert_msg(ranks.acts == alone.acts && ranks.events == alone.events,
			      "TEST_SEED=%" PRIu64, seed);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("partial");

	tcase_set_timeout(tc, test_length() == TEST_LONG ? 7200 : 600);
	tcase_add_test(tc, activation_takes_log2_steps_for_every_rank_count_and_opener);
	tcase_add_test(tc, activation_reaches_all_from_any_openers_in_any_order);
	tcase_add_test(tc, late_contributions_open_nothing);
	tcase_add_test(tc, ranks_that_wait_meet_once);
	tcase_add_test(tc, who_has_waited_once_waits_no_more_when_it_commits);
	tcase_add_test(tc, groups_rotate_until_all_have_equal_shares);
	tcase_add_test(tc, impossible_settings_are_named);
	tcase_add_test(tc, laws_hold_in_all_worlds);
	tcase_add_test(tc, nodes_of_one_rank_are_ranks);
	return check_main("partial", tc);
}
