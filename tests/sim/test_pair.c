/*
 * test_pair.c -- messages of two ranks of a simulated node: which long ones leave at once, and in
 * whose buffers they lie. Every time is computed by hand from the model of docs/simulator.md.
 */
#include "tests/sim/sim_program.h"
#include "transport/shm_pieces.h"

/* 100 ns within a node. */
#define OPTIONS(ranks)                                                                             \
	{                                                                                          \
		.rank_count = (ranks), .node_latency_ns = 100, .ranks_per_node = (ranks)           \
	}

static uint8_t source[1 << 20], target[1 << 20];

#define CROSSING_BYTES 131072u

/* Two rounds in which both send, then five messages of rank 0; word[i]: how long each took it, of
 * the latter until they were sent. */
static rubato_status cross_twice(struct program_rank *r)
{
	uint64_t *word = r->program->word, begin_ns, took_ns;
	struct rb_request in[5], out;

	for (uint32_t i = 0; i < 7; i++) {
		begin_ns = program_now(r);
		if (i < 2 || r->rank == 1)
			program_recv(r, &in[i < 2 ? 0 : i - 2], 1 - r->rank, i,
				     target + r->rank * 2u * CROSSING_BYTES, CROSSING_BYTES);
		if (i < 2 || r->rank == 0) {
			program_send(r, &out, 1 - r->rank, i, source, CROSSING_BYTES);
			ck_assert_int_eq(program_finish(r, &out), RUBATO_OK);
		}
		if (i < 2)
			ck_assert_int_eq(program_finish(r, &in[0]), RUBATO_OK);
		took_ns = program_now(r) - begin_ns;
		if (r->rank == 0)
			word[i] = took_ns;
	}
	for (uint32_t i = 0; i < 5 && r->rank == 1; i++)
		ck_assert_int_eq(program_finish(r, &in[i]), RUBATO_OK);
	return RUBATO_OK;
}

START_TEST(long_messages_that_cross_leave_at_once)
{
	/* Asked for: each makes half of two copies. Then, as those crossed, each makes two; the
	 * messages of one that gets none are soon asked for again. */
	const uint64_t asked = 310 + 20 + CROSSING_BYTES, whole = 10 + CROSSING_BYTES;
	const uint64_t expected[] = { asked, whole + 20 + CROSSING_BYTES, whole, whole, whole,
				      whole, 310 + CROSSING_BYTES / 2 };
	struct program p = { .options = OPTIONS(2), .body = cross_twice };

	p.options.costs = (rubato_sim_costs) { .node_send_ns = 10,
					       .node_receive_ns = 20,
					       .core_bandwidth = 2e9 };
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 0; i < 7; i++)
		ck_assert_uint_eq(p.word[i], expected[i]);
}
END_TEST

/* Rank 1 answers rank 0, four times; word[0]: how long the last time took. Before that rank 0 takes
 * word[16] messages back. */
static rubato_status answer(struct program_rank *r)
{
	uint64_t begin_ns = 0;
	struct rb_request q;

	for (uint32_t i = 0; i < r->program->word[16] && r->rank == 0; i++) {
		program_send(r, &q, 1, 100 + i, source, CROSSING_BYTES);
		r->ep->ops->cancel(r->ep, &q);
		ck_assert_int_eq(q.status, RUBATO_ERR_CANCELLED);
	}
	for (uint32_t i = 0; i < 8; i++) {
		if (i % 2 == 0)
			begin_ns = program_now(r);
		if (i % 2 == r->rank)
			program_send(r, &q, 1 - r->rank, i, source, CROSSING_BYTES);
		else
			program_recv(r, &q, 1 - r->rank, i, target + r->rank * 2u * CROSSING_BYTES,
				     CROSSING_BYTES);
		ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	}
	if (r->rank == 0)
		r->program->word[0] = program_now(r) - begin_ns;
	return RUBATO_OK;
}

START_TEST(long_messages_in_turn_are_asked_for)
{
	struct program p = { .options = OPTIONS(2), .body = answer };

	p.word[16] = (uint64_t)_i;
	p.options.costs = (rubato_sim_costs) { .node_send_ns = 10,
					       .node_receive_ns = 20,
					       .core_bandwidth = 2e9 };
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], 2 * (310 + 20 + CROSSING_BYTES / 2));
}
END_TEST

/* Word[17] messages in turn that are not of the length that they are awaited with. */
static void mismatch(struct program_rank *r)
{
	struct rb_request q;

	for (uint32_t i = 0; i < r->program->word[17]; i++) {
		if (i % 2 == r->rank) {
			program_send(r, &q, 1 - r->rank, 100 + i, source, RB_SHM_BULK_BYTES);
			ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
			continue;
		}
		program_recv(r, &q, 1 - r->rank, 100 + i, target, RB_SHM_BULK_BYTES - 1);
		ck_assert_int_eq(program_finish(r, &q), RUBATO_ERR_MISMATCH);
	}
}

/* Both send word[16] bytes, again and again; word[r]: how long the last time took. */
static rubato_status exchange(struct program_rank *r)
{
	uint64_t *word = r->program->word, begin_ns = 0;
	struct rb_request in, out;

	mismatch(r);
	for (uint32_t i = 0; i < 80; i++) {
		begin_ns = program_now(r);
		program_recv(r, &in, 1 - r->rank, i, target + r->rank * CROSSING_BYTES, word[16]);
		program_send(r, &out, 1 - r->rank, i, source + r->rank * CROSSING_BYTES, word[16]);
		ck_assert_int_eq(program_finish(r, &out), RUBATO_OK);
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
	}
	word[r->rank] = program_now(r) - begin_ns;
	return RUBATO_OK;
}

START_TEST(buffers_change_hands)
{
	/* What is copied lies in the own cache, and what it is copied to; but for what comes, */
	static const uint64_t rows[][2] = {
		{ 1092, 100 + 1092 / 4 * 3 + 1092 },
		{ 32768, 100 + 32768 / 4 * 3 + 32768 },
		/* and for what the other one has read where always the same one writes. */
		{ 1088, 100 + 1088 / 4 * 2 + 1088 * 2 },
	};
	struct program p = { .options = OPTIONS(2), .body = exchange };

	p.options.costs = (rubato_sim_costs) { .core_bandwidth = 1e8,
					       .cache_bytes = 1 << 20,
					       .cached_bandwidth = 4e9,
					       .shared_bandwidth = 1e9 };
	p.word[16] = rows[_i / 2][0];
	p.word[17] = _i % 2 == 0 ? 0 : 100; /* Their buffers are not lost. */
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	/* Their messages left one a way's time apart. */
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_uint_ge(p.word[i] + (_i % 2 == 0 ? 0 : 100), rows[_i / 2][1]);
		ck_assert_uint_le(p.word[i], rows[_i / 2][1] + (_i % 2 == 0 ? 0 : 100));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("pair");

	tcase_add_test(tc, long_messages_that_cross_leave_at_once);
	tcase_add_loop_test(tc, long_messages_in_turn_are_asked_for, 0, 2);
	tcase_add_loop_test(tc, buffers_change_hands, 0, 6);
	return check_main("pair", tc);
}
