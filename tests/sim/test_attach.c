/*
 * test_attach.c -- long messages within a simulated node, which the kernel copies: at which speed,
 * and from where to where. Every time is computed by hand from the model of docs/simulator.md.
 */
#include "tests/sim/sim_program.h"
#include "transport/shm_pieces.h"

#define LINE 1024u
#define HALF_BYTES (100 * LINE)

static uint8_t source[1 << 20] __attribute__((aligned(LINE)));
static uint8_t target[1 << 20] __attribute__((aligned(LINE)));

static void touch(struct program_rank *r, const void *at, uint64_t bytes, bool writes)
{
	rb_transport_sim.work(r->ep, &(struct rb_touch) { at, bytes, writes }, 1);
}

/* Rank 0 sends word[16] bytes to rank 1; word[r]: when each was done with it. */
static rubato_status pass(struct program_rank *r)
{
	struct rb_request q;

	if (r->rank == 0)
		program_send(r, &q, 1, 1, source, r->program->word[16]);
	else
		program_recv(r, &q, 0, 1, target, r->program->word[16]);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	r->program->word[r->rank] = program_now(r);
	return RUBATO_OK;
}

struct passing {
	uint64_t size_bytes;
	double attach, memory;
	uint64_t sent_ns, received_ns;
};

/* A core moves 2 bytes a ns. */
START_TEST(the_kernel_makes_long_copies)
{
	static const struct passing rows[] = {
		/* Each makes half of the copy, as a core does, */
		{ 131072, 0, 0, 310 + 65536, 330 + 65536 },
		{ 131072, 4e9, 0, 310 + 65536, 330 + 65536 },
		/* or slower, the receiver one byte more; */
		{ 131072, 1e9, 0, 310 + 131072, 330 + 131072 },
		{ 200001, 1e9, 0, 310 + 200000, 330 + 200002 },
		{ 1000000, 0.8e9, 0, 310 + 1250000, 330 + 1250000 },
		/* what it takes longer takes no memory: 20 ns alone (40 bytes), then half. */
		{ 131072, 1e9, 2e9, 330 + 65536 + 131032, 330 + 65536 + 131032 + 20 },
		/* Short ones never go through the kernel. */
		{ 131071, 1e9, 0, 131081, 131181 + 20 + 32767 },
		/* If that takes four copies none do: all leaves at once, */
		{ 131072, 0.5e9, 0, 131082, 131182 + 20 + 32768 },
		{ 524288, 0.5e9, 0, 524298, 524398 + 20 + 32768 },
		/* or is asked for, and each copies all of it, one behind the other. */
		{ 524289, 0.5e9, 0, 310 + 524289, 330 + 524289 },
		{ 524289, 0.51e9, 0, 310 + 1028016, 330 + 1028020 },
	};
	const struct passing *row = &rows[_i];
	struct program p = {
		.options = { .rank_count = 2, .node_latency_ns = 100, .ranks_per_node = 2 },
		.body = pass
	};

	p.options.costs = (rubato_sim_costs) { .node_send_ns = 10,
					       .node_receive_ns = 20,
					       .core_bandwidth = 2e9,
					       .memory_bandwidth = row->memory,
					       .attach_bandwidth = row->attach };
	p.word[16] = row->size_bytes;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], row->sent_ns);
	ck_assert_uint_eq(p.word[1], row->received_ns);
}
END_TEST

/* As pass(), of what each has in its cache; then rank 1 reads the second half of what came, and
 * rank 0 writes the first half of what went. */
static rubato_status pass_cached(struct program_rank *r)
{
	uint64_t *word = r->program->word;

	touch(r, r->rank == 0 ? source : target, 2 * HALF_BYTES, true);
	word[16] = 2 * HALF_BYTES;
	ck_assert_int_eq(pass(r), RUBATO_OK);
	if (r->rank == 0)
		touch(r, source, HALF_BYTES, true);
	else
		touch(r, target + HALF_BYTES, HALF_BYTES, false);
	word[2 + r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(a_copy_goes_from_buffer_to_buffer)
{
	/* By the core's own cache a quarter of a ns a byte, by the other's 1, and 50 ns to read;
	 * the kernel takes half a ns longer for each byte that it reads or writes. */
	const uint64_t own = HALF_BYTES / 4, others = HALF_BYTES, kernel = _i == 0 ? 0 : HALF_BYTES;
	const uint64_t begin = HALF_BYTES + 300;
	struct program p = {
		.options = { .rank_count = 2, .node_latency_ns = 100, .ranks_per_node = 2 },
		.body = pass_cached
	};

	p.options.costs = (rubato_sim_costs) { .core_bandwidth = 2e9,
					       .cache_bytes = 1 << 20,
					       .cached_bandwidth = 4e9,
					       .shared_bandwidth = 1e9,
					       .shared_latency_ns = 50,
					       .attach_bandwidth = _i == 0 ? 0 : 1e9 };
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	/* The sender writes the second half where the receiver has it, who reads the first one. */
	ck_assert_uint_eq(p.word[0], begin + own + others + kernel);
	ck_assert_uint_eq(p.word[1], begin + others + 50 + own + kernel);
	ck_assert_uint_eq(p.word[2], p.word[0] + others);
	ck_assert_uint_eq(p.word[3], p.word[1] + others + 50);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("attach");

	tcase_add_loop_test(tc, the_kernel_makes_long_copies, 0, 11);
	tcase_add_loop_test(tc, a_copy_goes_from_buffer_to_buffer, 0, 2);
	return check_main("attach", tc);
}
