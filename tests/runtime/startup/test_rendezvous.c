/*
 * test_rendezvous.c -- the rendezvous machine on a simulated network, thousands of seeds: either
 * all ranks end up with the same tables, or each failure has the status and the text that it
 * should.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/startup/rendezvous_world.h"

#define SEEDS (test_length() == TEST_SHORT ? 40u : 250u) /* Of each scenario. */

static void member_good(const struct world *w, const struct actor *a, uint64_t seed)
{
	ck_assert_msg(a->status == RUBATO_OK && a->rounds == WORLD_ROUNDS && a->tables_right,
		      "seed %llu, rank %u of %u: %s after %u rounds: %s", (unsigned long long)seed,
		      a->rank, w->rank_count, rubato_status_name(a->status), a->rounds, a->text);
	ck_assert_mem_eq(rb_rv_job(a->machine), rb_rv_job(w->actors[0].machine), 16);
}

static void failed_as(const struct actor *a, uint64_t seed, rubato_status status, const char *text)
{
	ck_assert_msg(a->status == status && strstr(a->text, text) != NULL,
		      "seed %llu, rank %u: %s: \"%s\", expected %s: \"%s\"",
		      (unsigned long long)seed, a->rank, rubato_status_name(a->status), a->text,
		      rubato_status_name(status), text);
}

/* Few ranks mostly, sometimes many; whatever else a seed decides without naming a fault. */
static struct world *world_of(uint64_t seed)
{
	struct rb_rng rng = { seed ^ 0x5eedu };
	uint32_t n = 1 + (uint32_t)rb_rng_below(&rng, 8);

	if (rb_rng_below(&rng, 20) == 0)
		n = 1 + (uint32_t)rb_rng_below(&rng, WORLD_RANKS_MAX);
	struct world *w = world_make(seed, n, rb_rng_below(&rng, 3) > 0);

	if (rb_rng_below(&rng, 4) == 0 && n <= 4)
		w->piece_max = 1;
	if (rb_rng_below(&rng, 8) == 0 && n <= 8) {
		w->blob_max = RB_BLOB_BYTES_MAX;
		w->piece_max = 20000;
	}
	return w;
}

START_TEST(all_come_and_exchange)
{
	uint32_t bytewise = 0, large = 0, many = 0;
	/* Fewer have no large world among them. */
	struct seeds seeds = seeds_from(__func__, 1, SEEDS > 80 ? SEEDS : 80);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_of(seed);

		w->strangers = (uint32_t)(seed % 5);
		w->drops = (uint32_t)(seed % 4);
		bytewise += w->piece_max == 1;
		large += w->blob_max == RB_BLOB_BYTES_MAX;
		many += w->rank_count > 32;
		world_run(w);
		for (uint32_t i = 0; i < w->rank_count; i++)
			member_good(w, &w->actors[i], seed);
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(bytewise, 0);
	ck_assert_uint_gt(large, 0);
	ck_assert_uint_gt(many, 0);
}
END_TEST

START_TEST(faults_before_the_start_are_survived)
{
	uint32_t drops = 0, strangers = 0;
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 12), seed % 2);

		w->strangers = 20;
		w->drops = 20;
		world_run(w);
		drops += w->drops_fired;
		strangers += w->strangers_fired;
		for (uint32_t i = 0; i < w->rank_count; i++)
			member_good(w, &w->actors[i], seed);
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(drops, SEEDS);
	ck_assert_uint_gt(strangers, SEEDS);
}
END_TEST

/* A connection that the root believes alive may be started: then that is known, and said. */
START_TEST(losses_that_the_root_sees_late)
{
	uint32_t fired = 0, failed = 0, survived = 0;
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 6), true);

		w->late_drops = 8;
		/* All at once, so that some are lost when the last of them comes. */
		for (uint32_t i = 0; i < w->rank_count; i++)
			w->actors[i].starts_ns /= 1000;
		world_run(w);
		fired += w->late_drops_fired;
		for (uint32_t i = 0; i < w->rank_count; i++) {
			struct actor *a = &w->actors[i];

			ck_assert(a->tables_right);
			if (w->actors[0].status == RUBATO_OK) {
				member_good(w, a, seed);
			} else if (a->status == RUBATO_ERR_TIMEOUT) {
				failed_as(a, seed, RUBATO_ERR_TIMEOUT, "root:4000");
			} else {
				failed_as(a, seed, RUBATO_ERR_PEER, "rank ");
			}
		}
		failed += w->actors[0].status != RUBATO_OK;
		survived += w->actors[0].status == RUBATO_OK;
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(fired, SEEDS);
	ck_assert_uint_gt(failed, 0);
	ck_assert_uint_gt(survived, 0);
}
END_TEST

/* Processes that do not belong to the job get their answer, and the job goes on. */
/* It has the ranks' proofs before it, and counts them when it goes on: none may have left then. */
START_TEST(a_root_that_stalls_is_waited_for)
{
	uint32_t fired = 0;
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_of(seed);

		w->several = true;
		w->stalls = 1 + (uint32_t)(seed % 3);
		w->stall_ns = RB_RV_ATTEMPT_NS * (1 + seed % 5);
		world_run(w);
		for (uint32_t i = 0; i < w->rank_count; i++)
			member_good(w, &w->actors[i], seed);
		fired += w->stalls_fired;
		world_free(w);
	}
	if (!seeds_chosen())
		ck_assert_uint_gt(fired, SEEDS / 2);
}
END_TEST

START_TEST(outsiders_are_refused)
{
	static const struct {
		enum actor_kind kind;
		rubato_status status;
		const char *text;
	} cases[] = {
		{ ACTOR_WRONG_SECRET, RUBATO_ERR_AUTH, "refused this process: the secrets differ" },
		{ ACTOR_WRONG_JOB, RUBATO_ERR_MISMATCH, "belongs to another job" },
		{ ACTOR_WRONG_SIZE, RUBATO_ERR_MISMATCH, "says that the job has" },
	};
	uint32_t answered = 0, late = 0;
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 9), true);
		struct actor *a = world_add(w, cases[_i].kind, 1, true);

		w->drops = (uint32_t)(seed % 3);
		world_run(w);
		for (uint32_t i = 0; i < w->rank_count; i++)
			member_good(w, &w->actors[i], seed);
		/* Who comes when the job has started finds nobody. */
		if (a->status == RUBATO_ERR_TIMEOUT)
			failed_as(a, seed, RUBATO_ERR_TIMEOUT, "");
		else
			failed_as(a, seed, cases[_i].status, cases[_i].text);
		late += a->status == RUBATO_ERR_TIMEOUT;
		answered += a->status != RUBATO_ERR_TIMEOUT;
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(answered, SEEDS / 2);
	ck_assert_uint_gt(late, 0);
}
END_TEST

START_TEST(of_two_namesakes_one_joins)
{
	uint32_t answered = 0;
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 3 + (uint32_t)(seed % 6), seed % 2);
		uint32_t rank = 1 + (uint32_t)(seed % (w->rank_count - 1));
		struct actor *a = &w->actors[rank], *b = world_add(w, ACTOR_MEMBER, rank, seed % 2);

		w->drops = (uint32_t)(seed % 3);
		world_run(w);
		ck_assert((a->status == RUBATO_OK) != (b->status == RUBATO_OK));
		for (uint32_t i = 0; i < w->rank_count; i++)
			if (i != rank)
				member_good(w, &w->actors[i], seed);
		member_good(w, a->status == RUBATO_OK ? a : b, seed);
		struct actor *loser = a->status == RUBATO_OK ? b : a;

		if (loser->status != RUBATO_ERR_TIMEOUT) {
			failed_as(loser, seed, RUBATO_ERR_MISMATCH,
				  "two processes call themselves");
			answered++;
		}
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(answered, SEEDS / 4);
}
END_TEST

START_TEST(missing_ranks_are_named_by_all)
{
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 4 + (uint32_t)(seed % 5), seed % 2);
		char expected[64];

		w->actors[2].starts_ns = w->actors[2].ended_ns = 0;
		w->actors[2].ended = true; /* Never comes. */
		w->strangers = (uint32_t)(seed % 4);
		w->actors[0].starts_ns = 0; /* Its deadline is the first. */
		world_run(w);
		(void)snprintf(expected, sizeof(expected),
			       "rank 2 (1 of %u) did not come to root:4000", w->rank_count);
		failed_as(&w->actors[0], seed, RUBATO_ERR_TIMEOUT, expected);
		ck_assert_uint_gt(w->reports, 5); /* And it said so while it waited. */
		for (uint32_t i = 1; i < w->rank_count; i++) {
			if (i == 2)
				continue;
			failed_as(&w->actors[i], seed, RUBATO_ERR_TIMEOUT, expected);
		}
		world_free(w);
	}
}
END_TEST

START_TEST(a_missing_root_is_named_by_all)
{
	struct seeds seeds = seeds_from(__func__, 1, SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 5), seed % 2);

		w->actors[0].ended = true;
		world_run(w);
		for (uint32_t i = 1; i < w->rank_count; i++)
			failed_as(&w->actors[i], seed, RUBATO_ERR_TIMEOUT,
				  "no answer from root:4000: is rank 0 running there?");
		world_free(w);
	}
}
END_TEST

START_TEST(a_dead_rank_is_named_by_all_at_once)
{
	uint32_t fired = 0, named = 0, in_time = 0;
	struct seeds seeds = seeds_from(__func__, 1, 2 * SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 9), seed % 2);
		uint32_t victim = (uint32_t)(seed / 2 % w->rank_count);
		char name[32];

		w->kill_actor = victim;
		world_run(w);
		fired += w->kills_fired;
		(void)snprintf(name, sizeof(name), "rank %u ", victim);
		for (uint32_t i = 0; i < w->rank_count; i++) {
			struct actor *a = &w->actors[i];

			ck_assert(a->tables_right);
			if (i == victim || a->status == RUBATO_OK)
				continue;
			/* A root that dies on its way to START: its ranks hope for another. */
			if (victim == 0 && a->status == RUBATO_ERR_TIMEOUT) {
				failed_as(a, seed, RUBATO_ERR_TIMEOUT, "root:4000");
				continue;
			}
			/* When the root gave up and left, others may see the root go first. */
			ck_assert_msg(a->status == RUBATO_ERR_PEER, "seed %llu: %s",
				      (unsigned long long)seed, a->text);
			named += strstr(a->text, name) != NULL;
			ck_assert_msg(strstr(a->text, name) != NULL, "seed %llu, victim %u: %s",
				      (unsigned long long)seed, victim, a->text);
			in_time += a->ended_ns < WORLD_DEADLINE_NS;
		}
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(fired, SEEDS);
	ck_assert_uint_gt(named, SEEDS);
	ck_assert_uint_eq(in_time, named);
}
END_TEST

START_TEST(altered_bytes_never_give_a_wrong_table)
{
	uint32_t fired = 0, failed = 0, good = 0;
	struct seeds seeds = seeds_from(__func__, 1, 2 * SEEDS);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *w = world_make(seed, 2 + (uint32_t)(seed % 5), true);

		w->flips = 1 + (uint32_t)(seed % 3);
		world_run(w);
		fired += w->flips_fired;
		for (uint32_t i = 0; i < w->rank_count; i++) {
			struct actor *a = &w->actors[i];

			ck_assert(a->tables_right);
			ck_assert_msg(a->status == RUBATO_OK || a->text[0] != '\0', "seed %llu",
				      (unsigned long long)seed);
			failed += a->status != RUBATO_OK;
			good += a->status == RUBATO_OK;
		}
		world_free(w);
	}
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(fired, SEEDS);
	ck_assert_uint_gt(failed, SEEDS);
	ck_assert_uint_gt(good, SEEDS / 4);
}
END_TEST

START_TEST(a_seed_is_a_run)
{
	struct seeds seeds = seeds_from(__func__, 1, 20);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		uint64_t hashes[2];

		for (int i = 0; i < 2; i++) {
			struct world *w = world_of(seed);

			w->strangers = w->drops = 5;
			world_run(w);
			hashes[i] = w->hash;
			world_free(w);
		}
		ck_assert_uint_eq(hashes[0], hashes[1]);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("rendezvous");

	rb_log_level_set(RB_LOG_WARN);
	/* Machines reserve much and touch little: keep their memory apart, so that it comes
	 * zeroed. */
	(void)mallopt(M_MMAP_THRESHOLD, 1 << 17);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, all_come_and_exchange);
	tcase_add_test(tc, faults_before_the_start_are_survived);
	tcase_add_test(tc, losses_that_the_root_sees_late);
	tcase_add_test(tc, a_root_that_stalls_is_waited_for);
	tcase_add_loop_test(tc, outsiders_are_refused, 0, 3);
	tcase_add_test(tc, of_two_namesakes_one_joins);
	tcase_add_test(tc, missing_ranks_are_named_by_all);
	tcase_add_test(tc, a_missing_root_is_named_by_all);
	tcase_add_test(tc, a_dead_rank_is_named_by_all_at_once);
	tcase_add_test(tc, altered_bytes_never_give_a_wrong_table);
	tcase_add_test(tc, a_seed_is_a_run);
	return check_main("runtime", tc);
}
