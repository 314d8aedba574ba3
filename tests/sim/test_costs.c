/*
 * test_costs.c -- nodes, cards, memory and processors of simulated clusters: every time is computed
 * by hand from the model of docs/simulator.md.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/sim/sim_program.h"

/* 1 us and 1 byte a ns between nodes, 100 ns and 2 bytes a ns within. */
#define OPTIONS(ranks)                                                                             \
	{                                                                                          \
		.rank_count = (ranks), .latency_ns = 1000, .bandwidth = 1e9,                       \
		.node_latency_ns = 100, .node_bandwidth = 2e9                                      \
	}
#define LARGE_BYTES 40000u

static uint8_t source[1 << 20], target[1 << 20];

static void move_bytes(struct rb_endpoint *ep, uint64_t bytes)
{
	rb_transport_sim.work(ep, &(struct rb_touch) { .size_bytes = bytes }, 1);
}

/* ---- Nodes ---- */

/* Bit i: an empty message of rank i has come before 500 ns. */
static rubato_status near_ranks(struct program_rank *r)
{
	struct rb_request q[16], out;
	uint64_t near = 0;

	for (uint32_t i = 0; i < r->rank_count; i++)
		program_recv(r, &q[i], i, 1, NULL, 0);
	for (uint32_t i = 0; i < r->rank_count; i++)
		program_send(r, &out, i, 1, NULL, 0);
	rb_transport_sim.sleep(r->ep, 500);
	(void)rb_transport_sim.poll(r->ep);
	for (uint32_t i = 0; i < r->rank_count; i++)
		near |= (uint64_t)(q[i].state == RB_REQUEST_DONE) << i;
	for (uint32_t i = 0; i < r->rank_count; i++)
		ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
	r->program->word[r->rank] = near;
	return program_now(r) <= 1000 ? RUBATO_OK : RUBATO_ERR_INTERNAL;
}

START_TEST(nodes_may_be_uneven)
{
	static const uint32_t sizes[] = { 3, 1 };
	static const uint64_t near[] = { 7, 7, 7, 8, 0x70, 0x70, 0x70, 0x80, 0x100 };
	struct program p = { .options = OPTIONS(9), .body = near_ranks };

	p.options.node_ranks = sizes;
	p.options.node_count = 2;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 9; i++)
		ck_assert_uint_eq(p.word[i], near[i]);
}
END_TEST

/* ---- Cards ---- */

/* word[16 + r]: to whom rank r sends 500 bytes, + 1; word[r]: when it had what came. */
static rubato_status cross(struct program_rank *r)
{
	uint64_t *word = r->program->word;
	struct rb_request in, out;

	if (word[16 + r->rank] > 0)
		program_send(r, &out, (uint32_t)word[16 + r->rank] - 1, 1, source, 500);
	for (uint32_t i = 0; i < r->rank_count; i++) {
		if (word[16 + i] != r->rank + 1)
			continue;
		program_recv(r, &in, i, 1, target + r->rank * 1000, 500);
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
		word[r->rank] = program_now(r);
	}
	return RUBATO_OK;
}

START_TEST(a_nodes_cards_are_shared)
{
	/* Cards; when the messages of ranks 0, 1 and 2 of one node have come to 3, 4 and 5. */
	static const uint64_t rows[][4] = {
		{ 0, 1500, 1500, 1500 },
		{ 1, 1500, 2000, 2500 },
		{ 2, 1500, 1500, 2000 }, /* Ranks 0 and 2 share one. */
		{ 4000000000, 1500, 1500, 1500 },
	};
	struct program p = { .options = OPTIONS(6), .body = cross };

	p.options.ranks_per_node = 3;
	p.options.costs.cards = (uint32_t)rows[_i][0];
	for (uint32_t i = 0; i < 3; i++)
		p.word[16 + i] = i + 3 + 1;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(p.word[3 + i], rows[_i][1 + i]);
}
END_TEST

START_TEST(a_card_takes_in_one_message_at_a_time)
{
	static const uint32_t sizes[] = { 1, 1, 2 };
	struct program p = { .options = OPTIONS(4), .body = cross };

	p.options.node_ranks = sizes;
	p.options.node_count = 3;
	p.options.costs.cards = 1;
	p.word[16] = 2 + 1;
	p.word[17] = 3 + 1;
	program_run(&p);
	ck_assert_uint_eq(p.word[2], 1500);
	ck_assert_uint_eq(p.word[3], 2000);
}
END_TEST

START_TEST(a_card_is_not_for_messages_within_a_node)
{
	struct program p = { .options = OPTIONS(4), .body = cross };

	p.options.ranks_per_node = 4;
	p.options.costs.cards = 1;
	p.options.costs.gap_ns = 70;
	p.word[16] = 1 + 1;
	p.word[18] = 3 + 1;
	program_run(&p);
	ck_assert_uint_eq(p.word[1], 350);
	ck_assert_uint_eq(p.word[3], 350);
}
END_TEST

/* Three messages of word[16] bytes in a row; word[i]: when each has come. */
static rubato_status train(struct program_rank *r)
{
	struct rb_request q[3];

	for (uint64_t i = 0; i < 3; i++) {
		if (r->rank == 0)
			program_send(r, &q[i], 1, i, source, r->program->word[16]);
		else
			program_recv(r, &q[i], 0, i, target, r->program->word[16]);
	}
	for (uint32_t i = 0; i < 3 && r->rank == 1; i++) {
		ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
		r->program->word[i] = program_now(r);
	}
	return RUBATO_OK;
}

START_TEST(a_networks_code_takes_either_processor)
{
	/* Of each message; when they have come. Of two pieces the receiver takes the first one
	 * through before the second one is there. */
	static const uint64_t rows[][4] = {
		{ 500, 3500, 4500, 5500 },
		{ 130000, 456000, 716000, 976000 },
	};
	struct program p = { .options = OPTIONS(2), .body = train };

	p.options.costs.stack_bandwidth = 0.5e9;
	p.word[16] = rows[_i][0];
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(p.word[i], rows[_i][1 + i]);
}
END_TEST

START_TEST(a_message_holds_its_card_for_the_gap)
{
	struct program p = { .options = OPTIONS(2), .body = train };

	p.options.costs.gap_ns = 200;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 1200);
	ck_assert_uint_eq(p.word[1], 1400);
	ck_assert_uint_eq(p.word[2], 1600);
}
END_TEST

/* Three of 1000 bytes at a byte a ns: of the first two 1600 pass at once. */
START_TEST(a_card_lets_a_burst_pass_at_once)
{
	struct program p = { .options = OPTIONS(2), .body = train, .word[16] = 1000 };

	p.options.costs.burst_bytes = 1600;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 1000);
	ck_assert_uint_eq(p.word[1], 1400);
	ck_assert_uint_eq(p.word[2], 2400);
}
END_TEST

/* Ranks 0 and 1 send rank 2 word[16 + r] bytes each, after word[20 + r]; word[r]: when it had them.
 * It posts its receives after word[22]. */
static rubato_status pour(struct program_rank *r)
{
	uint64_t *word = r->program->word;
	struct rb_request q[2];

	if (word[20 + r->rank] > 0)
		rb_transport_sim.sleep(r->ep, word[20 + r->rank]);
	if (r->rank < 2) {
		program_send(r, &q[0], 2, 1, source, word[16 + r->rank]);
		return program_finish(r, &q[0]);
	}
	for (uint32_t i = 0; i < 2; i++)
		program_recv(r, &q[i], i, 1, target, word[16 + i]);
	while (word[0] == 0 || word[1] == 0) {
		for (uint32_t i = 0; i < 2; i++)
			if (word[i] == 0 && q[i].state == RB_REQUEST_DONE)
				word[i] = program_now(r);
		rb_transport_sim.sleep(r->ep, 500);
		(void)rb_transport_sim.poll(r->ep);
	}
	return RUBATO_OK;
}

/* Two of 1000 bytes come at once, and 1600 pass. */
START_TEST(a_burst_that_comes_is_taken_out_of_the_bucket)
{
	struct program p = { .options = OPTIONS(3), .body = pour };

	p.word[16] = p.word[17] = 1000;
	p.options.costs.burst_bytes = 1600;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 1000);
	ck_assert_uint_eq(p.word[1], 1400);
}
END_TEST

/* The card has begun with the long one, which comes as fast as it goes in. */
START_TEST(a_short_message_waits_for_a_long_one_that_comes)
{
	struct program p = { .options = OPTIONS(3), .body = pour };

	p.word[16] = 60000;
	p.word[17] = 500;
	p.word[21] = 30000;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 61000);
	ck_assert_uint_eq(p.word[1], 61500);
}
END_TEST

/* 780000 bytes of each are there when the receives are: it is the others that come one by one. */
START_TEST(what_goes_ahead_is_taken_in_as_it_comes)
{
	struct program p = { .options = OPTIONS(3), .body = pour };

	p.word[16] = p.word[17] = 1000000;
	p.word[22] = 5000000;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 5000000 + 2000 + 220000);
	ck_assert_uint_eq(p.word[1], 5000000 + 2000 + 440000);
}
END_TEST

/* ---- Memory ---- */

/* From word[16 + r] on, rank r moves word[24 + r] bytes; word[r]: when it had. */
static rubato_status move(struct program_rank *r)
{
	uint64_t *word = r->program->word;

	if (word[16 + r->rank] > 0)
		rb_transport_sim.sleep(r->ep, word[16 + r->rank]);
	if (word[24 + r->rank] > 0)
		move_bytes(r->ep, word[24 + r->rank]);
	word[r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(memory_is_shared_evenly)
{
	struct program p = { .options = OPTIONS(4), .body = move };

	p.options.ranks_per_node = 3;
	p.options.costs.memory_bandwidth = 3e9;
	p.options.costs.core_bandwidth = 2e9;
	/* One alone moves 2 bytes a ns, two 1.5 each, three 1 each. */
	p.word[24] = 6000; /* 2000 until 1000, 3500 until 2000, 4500 until 3000, 5100 until 3400. */
	p.word[17] = 1000;
	p.word[25] = 3100; /* 1500 until 2000, 2500 until 3000, 3100 until 3400. */
	p.word[18] = 2000;
	p.word[26] = 1000; /* 1000 until 3000. */
	p.word[27] = 6000; /* On another node. */
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 3850);
	ck_assert_uint_eq(p.word[1], 3400);
	ck_assert_uint_eq(p.word[2], 3000);
	ck_assert_uint_eq(p.word[3], 3000);
}
END_TEST

START_TEST(a_core_alone_bounds_what_one_moves)
{
	struct program p = { .options = OPTIONS(2), .body = move };

	p.options.ranks_per_node = 2;
	p.options.costs.core_bandwidth = 4e9;
	p.options.costs.work_ns = 30;
	p.word[24] = p.word[25] = 6000;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 1530);
	ck_assert_uint_eq(p.word[1], 1530);
}
END_TEST

START_TEST(memory_alone_bounds_what_all_move)
{
	struct program p = { .options = OPTIONS(2), .body = move };

	p.options.ranks_per_node = 2;
	p.options.costs.memory_bandwidth = 4e9;
	p.word[24] = p.word[25] = 6000;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 3000);
	ck_assert_uint_eq(p.word[1], 3000);
}
END_TEST

START_TEST(the_crashed_move_nothing)
{
	rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH, .rank = 0, .at_ns = 1000 };
	struct program p = { .options = OPTIONS(2), .body = move };

	p.options.ranks_per_node = 2;
	p.options.costs.memory_bandwidth = p.options.costs.core_bandwidth = 2e9;
	p.options.faults = &fault;
	p.options.fault_count = 1;
	p.word[24] = p.word[25] = 4000;
	program_run(&p);
	ck_assert_uint_eq(p.result.faults_fired, 1);
	ck_assert_uint_eq(p.word[1], 1000 + 3000 / 2);
	ck_assert_uint_eq(p.word[0], p.word[1]); /* Its clock has not jumped: it was not waiting. */
}
END_TEST

START_TEST(the_frozen_go_on_when_they_thaw)
{
	rubato_sim_fault fault = {
		.kind = RUBATO_SIM_FREEZE, .rank = 0, .at_ns = 500, .for_ns = 9500
	};
	struct program p = { .options = OPTIONS(2), .body = move };

	p.options.ranks_per_node = 2;
	p.options.costs.core_bandwidth = 1e9;
	p.options.costs.work_ns = _i == 0 ? 0 : 600; /* Frozen in that, or as it moves. */
	p.options.faults = &fault;
	p.options.fault_count = 1;
	p.word[24] = p.word[25] = 1000;
	program_run(&p);
	ck_assert_uint_eq(p.result.faults_fired, 1);
	ck_assert_uint_eq(p.word[0], 10000 + (_i == 0 ? 0 : 1000));
	ck_assert_uint_eq(p.word[1], 1000 + p.options.costs.work_ns);
}
END_TEST

/* For so long that what a flow would have been served by then has wrapped. */
static rubato_status move_on(struct program_rank *r)
{
	if (r->rank == 1)
		move_bytes(r->ep, 2000000000000u);
	for (uint32_t i = 0; i < 6; i++)
		move_bytes(r->ep, 4000000000000u);
	r->program->word[r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(the_count_of_what_was_moved_may_wrap)
{
	struct program p = { .options = OPTIONS(2), .body = move_on };

	p.options.ranks_per_node = 2;
	p.options.costs.core_bandwidth = 1e12; /* 2^64 / 2^20 bytes in 17.6 s. */
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 24000000000u);
	ck_assert_uint_eq(p.word[1], 26000000000u);
}
END_TEST

/* ---- Messages ---- */

/* Rank 0 sends word[16] bytes to rank 1; word[r]: when each was done with it. Receives are posted
 * after word[17]. */
static rubato_status pass(struct program_rank *r)
{
	uint64_t *word = r->program->word;
	struct rb_request q;

	if (r->rank == 1 && word[17] > 0)
		rb_transport_sim.sleep(r->ep, word[17]);
	if (r->rank == 0)
		program_send(r, &q, 1, 1, source, word[16]);
	else
		program_recv(r, &q, 0, 1, target, word[16]);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	word[r->rank] = program_now(r);
	return RUBATO_OK;
}

struct passing {
	uint32_t per_node;
	uint64_t size_bytes, receive_at, sent_ns, received_ns;
	double memory;
};

START_TEST(processors_pay_for_messages)
{
	/* A core copies 1 byte in 1 ns: it moves 2. */
	static const struct passing rows[] = {
		{ 0, 0, 0, 100, 100 + 1000 + 50, 0 },
		/* Small ones are copied at both ends, */
		{ 0, 500, 0, 600, 600 + 1500 + 550, 0 },
		{ 0, 500, 5000, 600, 5550, 0 },
		/* of two pieces one as the other comes, if it can be; */
		{ 0, 130000, 0, 130200, 130200 + 65000 + 1000 + 100 + 65000, 0 },
		{ 0, 130000, 1000000, 130200, 1000000 + 100 + 130000, 0 },
		/* as much of it as there is time for while the second comes; */
		{ 0, 65536, 0, 65736, 65100 + 65536 + 1000 + 100 + 65000, 0 },
		{ 0, 130536, 0, 130836, 65100 + 130536 + 1000 + 150 + 65000, 0 },
		{ 0, 130536, 0, 261372, 261372 + 536 + 1000 + 150 + 261072 - 65536, 1e9 },
		/* within a node all are copied twice, instead of on a link, */
		{ 2, 500, 0, 510, 510 + 100 + 520, 0 },
		/* of two pieces the first one while the second is filled: for 7234 ns, */
		{ 2, LARGE_BYTES, 0, 40010, 40110 + 20 + LARGE_BYTES - 7234, 0 },
		/* half as fast, since two share memory; not before there is a receive; */
		{ 2, LARGE_BYTES, 0, 40010, 40110 + 20 + 36383, 2e9 },
		{ 2, LARGE_BYTES, 40100, 40010, 40110 + 20 + LARGE_BYTES - 10, 0 },
		/* the longest are asked for, and each makes half of one copy. */
		{ 2, 131071, 0, 131081, 131181 + 20 + 32767, 0 },
		{ 2, 131072, 0, 310 + 65536, 310 + 20 + 65536, 0 },
		/* Sharing memory: 20 ns alone (40 bytes), then half. */
		{ 2, 131072, 0, 330 + 131032, 330 + 131032 + 20, 2e9 },
		{ 2, 200000, 0, 310 + 100000, 310 + 20 + 100000, 0 },
	};
	const struct passing *row = &rows[_i];
	struct program p = { .options = OPTIONS(2), .body = pass };

	p.options.ranks_per_node = row->per_node;
	p.options.costs = (rubato_sim_costs) { .send_ns = 100,
					       .receive_ns = 50,
					       .node_send_ns = 10,
					       .node_receive_ns = 20,
					       .core_bandwidth = 2e9,
					       .memory_bandwidth = row->memory };
	p.word[16] = row->size_bytes;
	p.word[17] = row->receive_at;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], row->sent_ns);
	ck_assert_uint_eq(p.word[1], row->received_ns);
}
END_TEST

/* At half a byte a ns: the first piece is copied when the second one has come, the second while the
 * third one does, for 1072 ns. */
START_TEST(a_piece_is_copied_when_it_has_come)
{
	struct program p = { .options = OPTIONS(2), .body = pass };

	p.options.bandwidth = 0.5e9;
	p.options.costs.send_ns = 100;
	p.options.costs.receive_ns = 50;
	p.options.costs.core_bandwidth = 2e9;
	p.word[16] = 130536;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 300 + 130536);
	ck_assert_uint_eq(p.word[1], 65100 + 2 * 130536 + 1000 + 150 + 130536 - 65000 - 1072);
}
END_TEST

START_TEST(long_messages_leave_on_credit)
{
	static const struct passing rows[] = {
		/* Done as soon as a copy holds the rest: four pieces of 65000 bytes. */
		{ 0, 65001, 5000000, 0, 5000000, 0 },
		{ 0, 260000, 0, 0, 261000, 0 },
		{ 0, 260001, 0, 1, 261001, 0 },
		{ 0, 780000, 0, 520000, 781000, 0 },
		{ 0, 780000, 5000000, 520000, 5000000, 0 },
		/* Of more, 780000 bytes go ahead, the others when the receive is there: there and
		 * back while the first are still leaving, or after. */
		{ 0, 1000000, 0, 1001000, 1001000, 0 },
		{ 0, 1000000, 5000000, 5222000, 5222000, 0 },
	};
	const struct passing *row = &rows[_i];
	struct program p = { .options = OPTIONS(2), .body = pass };

	p.word[16] = row->size_bytes;
	p.word[17] = row->receive_at;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], row->sent_ns);
	ck_assert_uint_eq(p.word[1], row->received_ns);
}
END_TEST

/* Sends to rank 1 that find no receive; which are done after so long. */
static rubato_status spend(struct program_rank *r)
{
	static const uint32_t sizes[] = { 400000, 400000, 400000, 65000, 780000 };
	static const bool done[] = { true, false, false, true };
	struct rb_request q[5];

	for (uint32_t i = 0; i < 4 && r->rank == 0; i++)
		program_send(r, &q[i], 1, i, source + i, sizes[i]);
	rb_transport_sim.sleep(r->ep, 10000000);
	for (uint32_t i = 0; i < 4 && r->rank == 0; i++) {
		(void)rb_transport_sim.poll(r->ep);
		ck_assert_int_eq(q[i].state == RB_REQUEST_DONE, done[i]);
	}
	for (uint32_t i = 4; i-- > 0;) {
		if (r->rank == 1)
			program_recv(r, &q[i], 0, i, target, sizes[i]);
		ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
		if (r->rank == 1)
			ck_assert_mem_eq(target, source + i, sizes[i]);
	}
	if (r->rank == 0) {
		program_send(r, &q[4], 1, 4, source, sizes[4]);
		ck_assert_int_eq(program_finish(r, &q[4]), RUBATO_OK);
		return RUBATO_OK;
	}
	rb_transport_sim.sleep(r->ep, 20000000);
	program_recv(r, &q[4], 0, 4, target, sizes[4]);
	ck_assert_int_eq(q[4].state, RB_REQUEST_DONE); /* All of it was there. */
	return program_finish(r, &q[4]);
}

START_TEST(credit_is_a_pairs_and_comes_back)
{
	struct program p = { .options = OPTIONS(2), .body = spend };

	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)rb_mix(i);
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

START_TEST(a_processor_takes_one_message_after_the_other)
{
	struct program p = { .options = OPTIONS(2), .body = train };

	p.options.costs.send_ns = 100;
	p.options.costs.receive_ns = 300;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 100 + 1000 + 300);
	/* What has come meanwhile is paid for together. */
	ck_assert_uint_eq(p.word[1], 1400 + 600);
	ck_assert_uint_eq(p.word[2], 1400 + 600);
}
END_TEST

/* To rank 1 of the same node, which is told of it. */
static rubato_status put_near(struct program_rank *r)
{
	struct rb_region *region;
	struct rb_remote *remote;
	struct rb_request q;
	uint8_t key[RB_KEY_BYTES_MAX];
	size_t key_bytes = sizeof(key);

	if (r->rank == 1) {
		ck_assert_int_eq(
			rb_transport_sim.region_add(r->ep, target, sizeof(target), &region),
			RUBATO_OK);
		ck_assert_int_eq(rb_transport_sim.region_key(r->ep, region, key, &key_bytes),
				 RUBATO_OK);
		memcpy(r->program->word + 100, key, key_bytes);
		program_recv(r, &q, 0, 2, NULL, 0);
		ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
		r->program->word[1] = program_now(r);
		return RUBATO_OK;
	}
	rb_transport_sim.sleep(r->ep, 10000);
	ck_assert_int_eq(
		rb_transport_sim.remote_open(r->ep, 1, r->program->word + 100, 16, &remote),
		RUBATO_OK);
	program_put(r, &q, remote, 2, source, r->program->word[16], 0);
	r->program->word[0] = program_now(r);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	rb_transport_sim.remote_close(r->ep, remote);
	return RUBATO_OK;
}

START_TEST(who_puts_within_a_node_copies)
{
	static const uint64_t sizes[] = { 500, LARGE_BYTES };
	struct program p = { .options = OPTIONS(2), .body = put_near };

	p.options.ranks_per_node = 2;
	p.options.costs.node_send_ns = 10;
	p.options.costs.node_receive_ns = 20;
	p.options.costs.core_bandwidth = 2e9;
	p.word[16] = sizes[_i];
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 10000 + 10 + sizes[_i]);
	ck_assert_uint_eq(p.word[1], 10000 + 10 + sizes[_i] + 100 + 20);
}
END_TEST

/* ---- Schedules ---- */

struct timed_call {
	uint32_t rank_count;
	uint64_t count;
	rubato_type type;
	bool in_place, whole;
	uint64_t took_ns; /* By hand. */
};

/* One allreduce by recursive doubling, that all begin at once. */
static rubato_status call_timed(rubato_comm *comm, void *arg)
{
	const struct timed_call *call = arg;
	size_t bytes = (size_t)call->count * rubato_type_bytes(call->type);
	uint8_t *in = calloc(1, bytes), *out = call->in_place ? in : calloc(1, bytes);
	rubato_status err;
	uint64_t begin_ns;

	ck_assert(in != NULL && out != NULL);
	err = rubato_set_algorithm(comm, "allreduce", "recursive_doubling");
	if (err == RUBATO_OK && call->whole)
		err = rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE);
	rubato_sleep(comm, 1000000 - rubato_now(comm));
	begin_ns = rubato_now(comm);
	if (err == RUBATO_OK)
		err = rubato_allreduce(comm, in, out, call->count, call->type, RUBATO_SUM);
	ck_assert_uint_eq(rubato_now(comm) - begin_ns, call->took_ns);
	free(in);
	if (!call->in_place)
		free(out);
	return err;
}

START_TEST(schedules_pay_for_what_they_move)
{
	static const struct timed_call rows[] = {
		/* Sent with a copy, taken in with a copy, and two operands reduced: a core moves 4
		 * bytes a ns. */
		{ 2, 4096, RUBATO_UINT8, false, false,
		  100 + 2048 + 1000 + 4096 + 50 + 2048 + 30 + 3072 },
		/* A copy in slices of 256 KiB, */
		{ 1, 1 << 20, RUBATO_UINT8, false, false, 4 * 30 + (2 << 20) / 4 },
		/* none, */
		{ 1, 1 << 20, RUBATO_UINT8, true, false, 0 },
		/* and 16 bits to 32 and back. */
		{ 2, 1000, RUBATO_BFLOAT16, true, true,
		  1530 + 100 + 2000 + 1000 + 4000 + 50 + 2000 + 3030 + 1530 },
	};
	struct timed_call call = rows[_i];
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = call.rank_count;
	options.latency_ns = 1000;
	options.bandwidth = 1e9;
	options.costs.send_ns = 100;
	options.costs.receive_ns = 50;
	options.costs.work_ns = 30;
	options.costs.core_bandwidth = 4e9;
	ck_assert_int_eq(rubato_sim_run(&options, call_timed, &call, &result), RUBATO_OK);
}
END_TEST

/* ---- The same run again ---- */

/* Random talk and work, in rounds that all know from the shared seed. */
static rubato_status chatter(struct program_rank *r)
{
	struct rb_rng shared = { 99 };
	uint64_t digest = 0;

	for (uint64_t round = 0; round < 40; round++) {
		uint32_t shift = 1 + (uint32_t)rb_rng_below(&shared, r->rank_count - 1);
		size_t size_bytes = (size_t)rb_rng_below(&shared, 40000);
		uint32_t n = r->rank_count;
		struct rb_request in, out;

		program_recv(r, &in, (r->rank + n - shift) % n, round, target + r->rank * 40000,
			     size_bytes);
		program_send(r, &out, (r->rank + shift) % n, round, source, size_bytes);
		move_bytes(r->ep, rb_transport_sim.random(r->ep) % 10000);
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
		ck_assert_int_eq(program_finish(r, &out), RUBATO_OK);
		digest = rb_mix(digest ^ program_now(r));
	}
	r->program->word[r->rank] = digest;
	return RUBATO_OK;
}

static struct program chatter_run(uint64_t seed, const rubato_sim_costs *costs)
{
	static const uint32_t sizes[] = { 3, 2 };
	struct program p = { .options = OPTIONS(9), .body = chatter };

	p.options.seed = seed;
	p.options.jitter = 0.5;
	p.options.node_ranks = sizes;
	p.options.node_count = 2;
	p.options.costs = *costs;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	return p;
}

START_TEST(equal_seeds_give_equal_runs)
{
	struct seeds seeds = seeds_from(__func__, 1, 20);
	const rubato_sim_costs none = { 0 };
	const rubato_sim_costs costs = { .send_ns = 130,
					 .receive_ns = 170,
					 .node_send_ns = 30,
					 .node_receive_ns = 40,
					 .work_ns = 20,
					 .gap_ns = 50,
					 .memory_bandwidth = 7e9,
					 .core_bandwidth = 3e9,
					 .cards = 2,
					 .cores = 2,
					 .turn_ns = 25 };

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct program a = chatter_run(seed, &costs), b = chatter_run(seed, &costs);
		struct program free_of_charge = chatter_run(seed, &none);

		ck_assert_uint_eq(a.result.trace_hash, b.result.trace_hash);
		ck_assert_uint_eq(a.result.events, b.result.events);
		ck_assert_uint_eq(a.result.end_ns, b.result.end_ns);
		ck_assert_mem_eq(a.word, b.word, sizeof(a.word));
		ck_assert_uint_gt(a.result.end_ns, free_of_charge.result.end_ns);
	}
}
END_TEST

/* ---- Cores ---- */

/* Ranks 0 to 2 of a node wait for a message each, from rank 3 of another; word[16 + r]: when that
 * comes, word[r]: when it was seen. word[20 + r]: until when the rank sleeps before it waits. */
static rubato_status look(struct program_rank *r)
{
	uint64_t *word = r->program->word;
	struct rb_request q[3];

	if (r->rank < 3) {
		if (word[20 + r->rank] > 0)
			rb_transport_sim.sleep(r->ep, word[20 + r->rank]);
		program_recv(r, &q[0], 3, 1, NULL, 0);
		ck_assert_int_eq(program_finish(r, &q[0]), RUBATO_OK);
		word[r->rank] = program_now(r);
		return RUBATO_OK;
	}
	for (uint32_t i = 0; i < 3; i++) {
		rb_transport_sim.sleep(r->ep, word[16 + i] - 1000);
		program_send(r, &q[i], i, 1, NULL, 0);
	}
	return RUBATO_OK;
}

/* Rank 0 has the core at 0, 1 at 1000, 2 at 2000, 0 at 3000 and so on, as long as all look. */
START_TEST(ranks_of_a_core_look_in_turn)
{
	static const uint32_t sizes[] = { 3, 1 };
	static const struct {
		uint64_t cores, turn_ns, sleeps[3], comes[3], seen[3];
	} rows[] = {
		{ 0, 1000, { 0 }, { 3500, 3600, 3700 }, { 3500, 3600, 3700 } },
		{ 3, 1000, { 0 }, { 3500, 3600, 3700 }, { 3500, 3600, 3700 } },
		{ 1, 0, { 0 }, { 3500, 3600, 3700 }, { 3500, 3600, 3700 } },
		/* 0 has it just then, and ends: 1 is next, then 2. */
		{ 1, 1000, { 0 }, { 3500, 3600, 3700 }, { 3500, 4500, 5500 } },
		/* At 4000 it is 1's. When 0 has ended at 6000: 1 at 7000, 2 at 8000, 1 at 9000. */
		{ 1, 1000, { 0 }, { 4000, 9100, 9200 }, { 6000, 9100, 10100 } },
		/* Ranks 0 and 2 share one, 1 has one: 2 has the first at 1000 and 3000. */
		{ 2, 1000, { 0 }, { 3100, 3100, 3100 }, { 4100, 3100, 3100 } },
		/* Who sleeps is left out: 0 is alone from 3000 on, when 2 has begun to sleep. */
		{ 1, 1000, { 0, 30000, 30000 }, { 3500, 30000, 30000 }, { 3500, 30000, 31000 } },
		{ 1, 1000, { 0, 30000, 30000 }, { 2500, 30000, 30000 }, { 3000, 30000, 31000 } },
	};
	struct program p = { .options = OPTIONS(4), .body = look };

	p.options.node_ranks = sizes;
	p.options.node_count = 2;
	p.options.costs.cores = (uint32_t)rows[_i].cores;
	p.options.costs.turn_ns = rows[_i].turn_ns;
	for (uint32_t i = 0; i < 3; i++) {
		p.word[16 + i] = rows[_i].comes[i];
		p.word[20 + i] = rows[_i].sleeps[i];
	}
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(p.word[i], rows[_i].seen[i]);
}
END_TEST

/* Each moves 5000 bytes; word[r]: when it has. */
static rubato_status toil(struct program_rank *r)
{
	move_bytes(r->ep, 5000);
	r->program->word[r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(work_keeps_the_core)
{
	static const struct {
		uint64_t cores, memory, done[3];
		uint32_t node, machine;
	} rows[] = {
		{ 1, 0, { 5000, 11000, 17000 }, 3, 0 },
		{ 2, 0, { 5000, 5000, 11000 }, 3, 0 },
		/* Two at once share the node's memory. */
		{ 2, 1, { 10000, 10000, 16000 }, 3, 0 },
		{ 3, 0, { 5000, 5000, 5000 }, 3, 0 },
		/* Nodes of one rank, and of two, on one machine, or two of them. */
		{ 1, 0, { 5000, 11000, 17000 }, 1, 3 },
		{ 1, 0, { 5000, 11000, 17000 }, 2, 2 },
		{ 1, 0, { 5000, 11000, 5000 }, 1, 2 },
		{ 1, 0, { 5000, 11000, 17000 }, 0, UINT32_MAX },
		{ 2, 1, { 5000, 5000, 11000 }, 1, 3 },
		{ 1, 0, { 5000, 5000, 5000 }, 1, 0 },
	};
	struct program p = { .options = OPTIONS(3), .body = toil };

	p.options.ranks_per_node = rows[_i].node;
	p.options.costs.machine_nodes = rows[_i].machine;
	p.options.costs.core_bandwidth = 1e9;
	p.options.costs.memory_bandwidth = 1e9 * (double)rows[_i].memory;
	p.options.costs.cores = (uint32_t)rows[_i].cores;
	p.options.costs.turn_ns = 1000;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(p.word[i], rows[_i].done[i]);
}
END_TEST

/* Rank 0 crashes at work at 3000: 1 has the core a turn later, 2 when that is through. */
START_TEST(the_crashed_leave_their_core)
{
	const rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH, .rank = 0, .at_ns = 3000 };
	struct program p = { .options = OPTIONS(3), .body = toil };

	p.options.ranks_per_node = 3;
	p.options.costs.core_bandwidth = 1e9;
	p.options.costs.cores = 1;
	p.options.costs.turn_ns = 1000;
	p.options.faults = &fault;
	p.options.fault_count = 1;
	program_run(&p);
	ck_assert_uint_eq(p.result.faults_fired, 1);
	ck_assert_uint_eq(p.word[1], 3000 + 1000 + 5000);
	ck_assert_uint_eq(p.word[2], 9000 + 1000 + 5000);
}
END_TEST

/* Rank 1 is frozen when its turn comes at 6000: 2 has it, and it has its own when it thaws. */
START_TEST(the_frozen_are_left_out)
{
	const rubato_sim_fault fault = {
		.kind = RUBATO_SIM_FREEZE, .rank = 1, .at_ns = 2000, .for_ns = 28000
	};
	struct program p = { .options = OPTIONS(3), .body = toil };

	p.options.ranks_per_node = 3;
	p.options.costs.core_bandwidth = 1e9;
	p.options.costs.cores = 1;
	p.options.costs.turn_ns = 1000;
	p.options.faults = &fault;
	p.options.fault_count = 1;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 5000);
	ck_assert_uint_eq(p.word[2], 6000 + 5000);
	ck_assert_uint_eq(p.word[1], 30000 + 5000);
}
END_TEST

/* ---- Options ---- */

START_TEST(nonsense_is_refused)
{
	static const uint32_t some[] = { 2, 0 };
	rubato_sim_options rows[17];
	struct rb_sim_cluster *w;

	for (uint32_t i = 0; i < 17; i++) {
		rows[i] = (rubato_sim_options)OPTIONS(2);
		rows[i].size_bytes = sizeof(rows[i]);
	}
	rows[0].costs.memory_bandwidth = -1;
	rows[1].costs.core_bandwidth = (double)NAN;
	rows[2].costs.memory_bandwidth = (double)INFINITY;
	rows[3].costs.core_bandwidth = -1e9;
	rows[4].node_count = 1;
	rows[5].node_count = 2;
	rows[5].node_ranks = some;
	rows[6].node_count = 1;
	rows[6].node_ranks = some;
	rows[6].ranks_per_node = 2;
	rows[7].costs.puts = 2;
	rows[8].costs.machine_nodes = 1; /* Without cores. */
	rows[9].costs.attach_bandwidth = -1;
	rows[10].bandwidth = 1e-300;
	rows[11].costs.send_ns = UINT64_MAX;
	rows[12].costs.gap_ns = UINT64_MAX;
	rows[13].costs.outer_bandwidth = -1;
	rows[14].costs.reduced_bandwidth = (double)NAN;
	rows[15].costs.stack_bandwidth = 1e-300;
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_int_eq(rb_sim_cluster_open(&rows[i], &w), RUBATO_ERR_ARGUMENT);
	rows[16].node_count = 1;
	rows[16].node_ranks = some;
	ck_assert_int_eq(rb_sim_cluster_open(&rows[16], &w), RUBATO_OK);
	rb_sim_cluster_close(w);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("costs");

	tcase_add_test(tc, nodes_may_be_uneven);
	tcase_add_loop_test(tc, a_nodes_cards_are_shared, 0, 4);
	tcase_add_test(tc, a_card_takes_in_one_message_at_a_time);
	tcase_add_test(tc, a_card_is_not_for_messages_within_a_node);
	tcase_add_loop_test(tc, a_networks_code_takes_either_processor, 0, 2);
	tcase_add_test(tc, a_message_holds_its_card_for_the_gap);
	tcase_add_test(tc, a_card_lets_a_burst_pass_at_once);
	tcase_add_test(tc, a_burst_that_comes_is_taken_out_of_the_bucket);
	tcase_add_test(tc, a_short_message_waits_for_a_long_one_that_comes);
	tcase_add_test(tc, what_goes_ahead_is_taken_in_as_it_comes);
	tcase_add_test(tc, memory_is_shared_evenly);
	tcase_add_test(tc, a_core_alone_bounds_what_one_moves);
	tcase_add_test(tc, memory_alone_bounds_what_all_move);
	tcase_add_test(tc, the_crashed_move_nothing);
	tcase_add_loop_test(tc, the_frozen_go_on_when_they_thaw, 0, 2);
	tcase_add_test(tc, the_count_of_what_was_moved_may_wrap);
	tcase_add_loop_test(tc, processors_pay_for_messages, 0, 16);
	tcase_add_test(tc, a_piece_is_copied_when_it_has_come);
	tcase_add_loop_test(tc, long_messages_leave_on_credit, 0, 7);
	tcase_add_test(tc, credit_is_a_pairs_and_comes_back);
	tcase_add_test(tc, a_processor_takes_one_message_after_the_other);
	tcase_add_loop_test(tc, who_puts_within_a_node_copies, 0, 2);
	tcase_add_loop_test(tc, schedules_pay_for_what_they_move, 0, 4);
	tcase_add_loop_test(tc, ranks_of_a_core_look_in_turn, 0, 8);
	tcase_add_loop_test(tc, work_keeps_the_core, 0, 10);
	tcase_add_test(tc, the_crashed_leave_their_core);
	tcase_add_test(tc, the_frozen_are_left_out);
	tcase_add_test(tc, equal_seeds_give_equal_runs);
	tcase_add_test(tc, nonsense_is_refused);
	tcase_set_timeout(tc, 120);
	return check_main("costs", tc);
}
