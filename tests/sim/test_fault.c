/* test_fault.c -- frozen, cut, crashed, gone: what peers see, when, and what is left behind. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_program.h"

#define OPTIONS(ranks)                                                                             \
	{                                                                                          \
		.rank_count = (ranks), .latency_ns = 1000, .bandwidth = 1e9, .detect_ns = 20000    \
	}

static uint8_t source[4 << 20], target[4 << 20];

static void program_faults(struct program *p, const rubato_sim_fault *faults, uint32_t count)
{
	p->options.faults = faults;
	p->options.fault_count = count;
	program_run(p);
}

/* Rank 0 sends three messages of 100 bytes at once; rank 1 notes when each arrives. */
static rubato_status three_messages(struct program_rank *r)
{
	struct rb_request q[3];

	for (uint64_t i = 0; i < 3; i++) {
		if (r->rank == 0)
			program_send(r, &q[i], 1, i, source, 100);
		else if (r->rank == 1)
			program_recv(r, &q[i], 0, i, target, 100);
	}
	for (uint64_t i = 0; i < 3 && r->rank == 1; i++) {
		ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
		r->program->word[i] = program_now(r);
	}
	return RUBATO_OK;
}

START_TEST(a_frozen_rank_neither_runs_nor_receives)
{
	static const rubato_sim_fault faults[] = {
		{ .kind = RUBATO_SIM_FREEZE, .rank = 1, .at_ns = 1150, .for_ns = 5000 },
		{ .kind = RUBATO_SIM_FREEZE, .rank = 1, .at_ns = 6000, .for_ns = 1000 },
		{ .kind = RUBATO_SIM_FREEZE, .rank = 0, .at_ns = 500, .for_ns = 1000 },
	};
	struct program p = { .options = OPTIONS(2), .body = three_messages };

	program_faults(&p, faults, 3);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 1100);
	ck_assert_uint_eq(p.word[1], 7000); /* The second freeze begins before the first ends. */
	ck_assert_uint_eq(p.word[2], 7100); /* The link takes one at a time. */
	ck_assert_uint_eq(p.result.faults_fired, 2); /* Rank 0 had returned. */
}
END_TEST

static rubato_status sleep_a_while(struct program_rank *r)
{
	rb_transport_sim.sleep(r->ep, 3000);
	r->program->word[r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(a_frozen_sleeper_oversleeps)
{
	static const rubato_sim_fault faults[] = {
		{ .kind = RUBATO_SIM_FREEZE, .rank = 1, .at_ns = 2000, .for_ns = 5000 },
		{ .kind = RUBATO_SIM_FREEZE, .rank = 2, .at_ns = 1000, .for_ns = 500 },
	};
	struct program p = { .options = OPTIONS(3), .body = sleep_a_while };

	program_faults(&p, faults, 2);
	ck_assert_uint_eq(p.word[0], 3000);
	ck_assert_uint_eq(p.word[1], 7000);
	ck_assert_uint_eq(p.word[2], 3000);
	ck_assert_uint_eq(p.result.faults_fired, 2);
}
END_TEST

START_TEST(a_cut_holds_messages_back_in_order)
{
	static const rubato_sim_fault faults[] = {
		{ .kind = RUBATO_SIM_CUT, .rank = 1, .peer = 0, .at_ns = 1150, .for_ns = 5000 },
		{ .kind = RUBATO_SIM_CUT, .rank = 0, .peer = 1, .at_ns = 6000, .for_ns = 1000 },
		{ .kind = RUBATO_SIM_CUT, .rank = 2, .peer = 1, .at_ns = 10, .for_ns = 9000 },
	};
	struct program p = { .options = OPTIONS(3), .body = three_messages };

	program_faults(&p, faults, 3);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 1100);
	ck_assert_uint_eq(p.word[1], 7000);
	ck_assert_uint_eq(p.word[2], 7100);
	ck_assert_uint_eq(p.result.faults_fired,
			  2); /* Between 1 and 2 there was nothing to hold. */
}
END_TEST

/* Rank 1 waits for what never comes and holds memory; 0 and 2 wait for it, 2 then talks to 0. */
static rubato_status one_dies(struct program_rank *r)
{
	struct program *p = r->program;
	struct rb_failure failure;
	struct rb_request q, large;
	rubato_status err;

	if (r->rank == 1) {
		void *held = malloc(100000);
		struct rb_region *region;

		ck_assert_int_eq(rb_transport_sim.region_alloc(r->ep, 5000, &region), RUBATO_OK);
		program_send(r, &q, 0, 9, source, 10);
		program_recv(r, &q, 0, 1, held, 100000);
		err = program_finish(r, &q);
		p->word[8]++; /* Only a ghost comes here. */
		ck_assert_int_eq(err, RUBATO_ERR_TIMEOUT);
		free(held);
		return err;
	}
	program_send(r, &large, 1, 2, source, 1000000); /* Not all of it leaves. */
	program_recv(r, &q, 1, 1, target, 10);
	ck_assert(!rb_transport_sim.failure(r->ep, &failure));
	ck_assert_int_eq(program_finish(r, &q), RUBATO_ERR_PEER);
	p->word[r->rank] = program_now(r);
	ck_assert_int_eq(program_finish(r, &large), RUBATO_ERR_PEER);
	ck_assert(rb_transport_sim.failure(r->ep, &failure));
	ck_assert_uint_eq(failure.peer, 1);
	ck_assert_int_eq(failure.status, RUBATO_ERR_PEER);
	ck_assert_str_eq(failure.text, "it crashed");
	ck_assert(!rb_transport_sim.failure(r->ep, &failure));
	program_send(r, &q, 1, 3, source, 10);
	ck_assert_int_eq(q.state, RB_REQUEST_DONE);
	ck_assert_int_eq(q.status, RUBATO_ERR_PEER);
	if (r->rank == 0) {
		program_recv(r, &q, 1, 9, target, 10); /* Had arrived before the end. */
		ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
		program_recv(r, &q, 2, 4, target, 100000);
	} else {
		program_send(r, &q, 0, 4, source, 100000);
	}
	p->word[8 + r->rank] = p->word[8];
	return program_finish(r, &q);
}

START_TEST(peers_of_a_crashed_rank_learn_of_it)
{
	static const rubato_sim_fault faults[] = {
		{ .kind = RUBATO_SIM_CRASH, .rank = 1, .at_ns = 2500 },
		{ .kind = RUBATO_SIM_CRASH, .rank = 1, .at_ns = 2600 },
	};
	struct program p = { .options = OPTIONS(3), .body = one_dies };

	program_faults(&p, faults, 2);
	ck_assert_int_eq(p.status, RUBATO_OK); /* The crashed rank's error does not count. */
	ck_assert_uint_eq(p.word[0], 22500);
	ck_assert_uint_eq(p.word[2], 22500);
	ck_assert_uint_eq(p.word[8], 1);
	ck_assert_uint_eq(p.word[10], 0); /* While others ran, it did not. */
	ck_assert_uint_eq(p.result.faults_fired, 1);
	ck_assert_uint_lt(p.result.end_ns, 1000000);
}
END_TEST

#define ASKED_BYTES 4000000u /* 780000 of them leave ahead. */

/* Crashes at every stage of a large message, on either side. */
static rubato_status die_in_transfer(struct program_rank *r)
{
	struct rb_request q;

	if (r->rank == 0)
		program_send(r, &q, 1, 1, source, ASKED_BYTES);
	else
		program_recv(r, &q, 0, 1, target, ASKED_BYTES);
	r->program->word[r->rank] = 1 + (uint64_t)-program_finish(r, &q);
	return RUBATO_OK;
}

START_TEST(a_crash_in_mid_transfer_ends_the_other_side)
{
	static const uint64_t times_ns[] = { 1, 999, 65999, 66000, 66500, 67000, 1000000, 4000999 };
	rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH,
				   .rank = (uint32_t)_i % 2,
				   .at_ns = times_ns[_i / 2] };
	struct program p = { .options = OPTIONS(2), .body = die_in_transfer };

	program_faults(&p, &fault, 1);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.result.faults_fired, 1);
	ck_assert_uint_eq(p.word[1 - fault.rank], 1 + (uint64_t)-RUBATO_ERR_PEER);
	ck_assert_uint_eq(p.word[fault.rank], 1 + (uint64_t)-RUBATO_ERR_TIMEOUT);
	ck_assert_uint_eq(p.result.end_ns, fault.at_ns + 20000);
}
END_TEST

static rubato_status leave_first(struct program_rank *r)
{
	struct rb_request q, last;
	struct rb_failure failure;
	bool abort = r->program->word[16] != 0;

	if (r->rank == 0) {
		program_send(r, &q, 1, 5, source, 100);
		rb_transport_sim.close(r->ep, abort, 0);
		r->closed = true;
		return RUBATO_OK;
	}
	program_recv(r, &q, 0, 5, target, 100);
	program_recv(r, &last, 0, 6, target, 100);
	ck_assert_int_eq(program_finish(r, &last), RUBATO_ERR_PEER);
	r->program->word[0] = program_now(r);
	r->program->word[1] = (uint64_t)-program_finish(r, &q);
	ck_assert_int_eq(rb_transport_sim.failure(r->ep, &failure), abort);
	if (abort)
		ck_assert_str_eq(failure.text, "it gave up");
	program_recv(r, &q, 0, 7, target, 100);
	ck_assert_int_eq(q.status, RUBATO_ERR_PEER);
	return RUBATO_OK;
}

START_TEST(what_a_leaver_sent_arrives_and_then_nothing)
{
	struct program p = { .options = OPTIONS(2), .body = leave_first };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 1100);
	ck_assert_uint_eq(p.word[1], 0);
}
END_TEST

START_TEST(an_abort_is_a_failure_at_the_peers)
{
	struct program p = { .options = OPTIONS(2), .body = leave_first };

	p.word[16] = 1;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 1000);
}
END_TEST

/* ---- Clusters that must be ended ---- */

static rubato_status wait_for_ever(struct program_rank *r)
{
	struct rb_request q;
	void *held = malloc(1000);

	program_recv(r, &q, 1 - r->rank, 1, held, 1000);
	rb_transport_sim.wait(r->ep, UINT64_MAX);
	ck_assert_int_eq(q.state, RB_REQUEST_PENDING);
	ck_assert_uint_eq(program_now(r), UINT64_MAX);
	rb_transport_sim.cancel(r->ep, &q);
	free(held);
	return RUBATO_ERR_TIMEOUT;
}

START_TEST(ranks_that_wait_for_ever_are_ended)
{
	struct program p = { .options = OPTIONS(2), .body = wait_for_ever };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_ERR_TIMEOUT);
	ck_assert_uint_eq(p.result.failed_rank, 0);
	ck_assert_int_eq(p.result.first_error, RUBATO_ERR_TIMEOUT);
	ck_assert_uint_eq(p.result.end_ns, 0);
}
END_TEST

static rubato_status ping_for_ever(struct program_rank *r)
{
	rubato_status err = RUBATO_OK;

	while (err == RUBATO_OK) {
		struct rb_request in, out;

		program_recv(r, &in, 1 - r->rank, 1, target, 100);
		program_send(r, &out, 1 - r->rank, 1, source, 100);
		err = program_finish(r, &in);
		rb_transport_sim.cancel(r->ep, &out);
	}
	return err;
}

START_TEST(a_run_ends_at_its_time)
{
	struct program p = { .options = OPTIONS(2), .body = ping_for_ever };

	p.options.time_max_ns = 1000000;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_ERR_TIMEOUT);
	ck_assert_uint_eq(p.result.end_ns, 1000000);
	ck_assert_int_eq(p.result.first_error, RUBATO_ERR_TIMEOUT);
}
END_TEST

static rubato_status deaf(struct program_rank *r)
{
	do {
		rb_transport_sim.sleep(r->ep, program_now(r) + 1000);
	} while (program_now(r) > 0);
	return RUBATO_OK;
}

START_TEST(a_ghost_that_does_not_end_is_left)
{
	struct program p = { .options = OPTIONS(2), .body = deaf };

	p.options.time_max_ns = 1000000;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_ERR_TIMEOUT);
}
END_TEST

/* Every program above under every fault at every moment: no hang, no lost memory, the same
 * again. */
static rubato_status pairs_and_ring(struct program_rank *r)
{
	uint32_t n = r->rank_count;
	rubato_status err = RUBATO_OK;

	for (uint64_t i = 0; i < 12 && err == RUBATO_OK; i++) {
		uint32_t shift = i % 2 == 0 ? 1 : n / 2;
		size_t size_bytes = i % 3 == 0 ? 60000 : 700;
		uint8_t *into = malloc(size_bytes);
		struct rb_request in, out;

		program_recv(r, &in, (r->rank + n - shift) % n, i, into, size_bytes);
		program_send(r, &out, (r->rank + shift) % n, i, source, size_bytes);
		err = program_finish(r, &in);
		if (err == RUBATO_OK)
			err = program_finish(r, &out);
		rb_transport_sim.cancel(r->ep, &in);
		rb_transport_sim.cancel(r->ep, &out);
		if (err == RUBATO_OK)
			ck_assert_mem_eq(into, source, size_bytes);
		free(into);
	}
	return err;
}

START_TEST(no_fault_at_any_time_confuses_the_cluster)
{
	for (uint64_t at_ns = 0; at_ns < 400000; at_ns += 4001) {
		rubato_sim_fault fault = { .kind = (uint32_t)_i,
					   .rank = (uint32_t)(at_ns % 5),
					   .peer = (uint32_t)((at_ns + 1) % 5),
					   .at_ns = at_ns,
					   .for_ns = 30000 };
		struct program a = { .options = OPTIONS(5), .body = pairs_and_ring }, b = a;

		a.options.jitter = b.options.jitter = 1.0;
		a.options.reorder = b.options.reorder = at_ns % 2 == 0;
		a.options.seed = b.options.seed = at_ns;
		program_faults(&a, &fault, 1);
		program_faults(&b, &fault, 1);
		ck_assert_uint_eq(a.result.trace_hash, b.result.trace_hash);
		ck_assert_uint_eq(a.result.faults_fired, b.result.faults_fired);
		if (_i != RUBATO_SIM_CRASH)
			ck_assert_int_eq(a.status, RUBATO_OK);
		else if (a.result.faults_fired == 1 && at_ns < 100000)
			ck_assert_int_eq(a.status, RUBATO_ERR_PEER);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fault");
	Suite *suite = suite_create("sim");

	tcase_add_test(tc, a_frozen_rank_neither_runs_nor_receives);
	tcase_add_test(tc, a_frozen_sleeper_oversleeps);
	tcase_add_test(tc, a_cut_holds_messages_back_in_order);
	tcase_add_test(tc, peers_of_a_crashed_rank_learn_of_it);
	tcase_add_loop_test(tc, a_crash_in_mid_transfer_ends_the_other_side, 0, 16);
	tcase_add_test(tc, what_a_leaver_sent_arrives_and_then_nothing);
	tcase_add_test(tc, an_abort_is_a_failure_at_the_peers);
	tcase_add_test(tc, ranks_that_wait_for_ever_are_ended);
	tcase_add_test(tc, a_run_ends_at_its_time);
	tcase_add_test(tc, a_ghost_that_does_not_end_is_left);
	tcase_add_loop_test(tc, no_fault_at_any_time_confuses_the_cluster, RUBATO_SIM_FREEZE,
			    RUBATO_SIM_CUT + 1);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
