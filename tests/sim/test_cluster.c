/* test_cluster.c -- virtual time, and what messages do in it: computed by hand, then at random. */
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

static uint8_t source[4 << 20], target[4 << 20];

/* ---- How long a message takes ---- */

/* All but the last rank send word[16 + rank] bytes to it; it notes when each has come. */
static rubato_status gather_times(struct program_rank *r)
{
	struct rb_request q[4];
	uint64_t *word = r->program->word;
	uint32_t last = r->rank_count - 1;

	if (r->rank < last) {
		program_send(r, &q[0], last, 5, source, word[16 + r->rank]);
		return program_finish(r, &q[0]);
	}
	for (uint32_t i = 0; i < last; i++)
		program_recv(r, &q[i], i, 5, target + (i << 20), word[16 + i]);
	for (uint32_t i = 0; i < last; i++) {
		ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
		word[i] = program_now(r);
	}
	return RUBATO_OK;
}

START_TEST(a_message_takes_latency_and_its_bytes)
{
	static const struct {
		uint64_t size_bytes, arrives_ns;
	} rows[] = {
		{ 0, 1000 },
		{ 500, 1500 },
		{ 65001, 66001 },
		{ 1000000, 1001000 }, /* The last of it is granted when it may leave. */
	};
	struct program p = { .options = OPTIONS(2), .body = gather_times };

	p.word[16] = rows[_i].size_bytes;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], rows[_i].arrives_ns);
	ck_assert_uint_eq(p.result.end_ns, rows[_i].arrives_ns);
	ck_assert_uint_eq(p.result.messages, 1);
	ck_assert_uint_eq(p.result.message_bytes, rows[_i].size_bytes);
}
END_TEST

START_TEST(within_a_node_it_is_faster)
{
	struct program p = { .options = OPTIONS(2), .body = gather_times };

	p.options.ranks_per_node = 2;
	p.word[16] = 500;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 100 + 250);
}
END_TEST

START_TEST(the_receivers_link_takes_one_at_a_time)
{
	struct program p = { .options = OPTIONS(3), .body = gather_times };

	p.word[16] = 500;
	p.word[17] = 700;
	program_run(&p);
	ck_assert_uint_eq(p.word[0], 1500);
	ck_assert_uint_eq(p.word[1], 1500 + 700);
}
END_TEST

static rubato_status scatter_times(struct program_rank *r)
{
	struct rb_request q[2];

	if (r->rank == 0) {
		program_send(r, &q[0], 1, 5, source, 500);
		program_send(r, &q[1], 2, 5, source, 700);
		ck_assert_int_eq(q[0].state, RB_REQUEST_DONE); /* Small: copied. */
		return program_now(r) == 0 ? RUBATO_OK : RUBATO_ERR_INTERNAL;
	}
	program_recv(r, &q[0], 0, 5, target, r->rank == 1 ? 500 : 700);
	ck_assert_int_eq(program_finish(r, &q[0]), RUBATO_OK);
	r->program->word[r->rank] = program_now(r);
	return RUBATO_OK;
}

START_TEST(the_senders_link_sends_one_at_a_time)
{
	struct program p = { .options = OPTIONS(3), .body = scatter_times };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[1], 1500);
	ck_assert_uint_eq(p.word[2], 500 + 1700);
}
END_TEST

static rubato_status talk_to_oneself(struct program_rank *r)
{
	struct rb_request q[2];

	memset(target, 0, 70000);
	program_send(r, &q[0], 0, 1, source, 70000);
	program_recv(r, &q[1], 0, 1, target, 70000);
	ck_assert_int_eq(program_finish(r, &q[0]), RUBATO_OK);
	ck_assert_int_eq(program_finish(r, &q[1]), RUBATO_OK);
	ck_assert_mem_eq(source, target, 70000);
	return RUBATO_OK;
}

START_TEST(a_message_to_oneself_takes_no_time)
{
	struct program p = { .options = OPTIONS(1), .body = talk_to_oneself };

	memset(source, 0x5a, 70000);
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.result.end_ns, 0);
	ck_assert_uint_eq(p.result.messages, 0);
}
END_TEST

/* ---- Put ---- */

static rubato_status put_and_look(struct program_rank *r)
{
	uint64_t *word = r->program->word, size_bytes = word[16];
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
		program_send(r, &q, 0, 1, key, key_bytes);
		rb_transport_sim.sleep(r->ep, word[17] - 1);
		ck_assert_uint_eq(target[100], 0);
		program_recv(r, &q, 0, 2, NULL, 0);
		ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
		word[0] = program_now(r);
		ck_assert_uint_eq(target[99], 0);
		ck_assert_mem_eq(target + 100, source, size_bytes);
		ck_assert_uint_eq(target[100 + size_bytes], 0);
		return RUBATO_OK;
	}
	program_recv(r, &q, 1, 1, key, 16);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	ck_assert_int_eq(rb_transport_sim.remote_open(r->ep, 1, key, 16, &remote), RUBATO_OK);
	ck_assert_ptr_null(remote->mapped);
	program_put(r, &q, remote, 2, source, size_bytes, sizeof(target) - 1);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_ERR_ARGUMENT); /* Over the end. */
	program_put(r, &q, remote, 2, source, size_bytes, 100);
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	rb_transport_sim.remote_close(r->ep, remote);
	return RUBATO_OK;
}

START_TEST(a_put_writes_then_notifies)
{
	static const uint64_t sizes[] = { 500, 100000 };
	struct program p = { .options = OPTIONS(2), .body = put_and_look };

	memset(source, 0xa5, sizes[_i]);
	memset(target, 0, sizeof(target));
	p.word[16] = sizes[_i];
	p.word[17] = 1016 + 1000 + sizes[_i]; /* The key, then the put. */
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.word[0], p.word[17]);
}
END_TEST

/* ---- Memory of the node ---- */

static rubato_status look_around(struct program_rank *r)
{
	struct rb_region *region;
	struct program *p = r->program;
	uint8_t key[RB_KEY_BYTES_MAX];
	size_t key_bytes = sizeof(key);
	struct rb_remote *remote;
	struct rb_request q;

	ck_assert_int_eq(rb_transport_sim.region_alloc(r->ep, 10000, &region), RUBATO_OK);
	ck_assert_uint_eq((uintptr_t)region->base % 4096, 0);
	p->pointer[r->rank] = region->base;
	p->word[r->rank] = rb_transport_sim.word_of(r->ep, (uint8_t *)region->base + 8, 10000 - 8);
	ck_assert_uint_eq(rb_transport_sim.word_of(r->ep, source, 1), 0);
	ck_assert_uint_eq(rb_transport_sim.word_of(r->ep, region->base, 10001), 0);
	ck_assert_int_eq(rb_transport_sim.region_key(r->ep, region, key, &key_bytes), RUBATO_OK);
	for (uint32_t i = 0; i < 4; i++)
		program_send(r, &q, i, 1, key, key_bytes);
	for (uint32_t i = 0; i < 4; i++) {
		bool near = p->options.ranks_per_node == 2 && i / 2 == r->rank / 2;
		bool reached = near || i == r->rank;
		void *mapped;

		program_recv(r, &q, i, 1, key, key_bytes);
		ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
		ck_assert_int_eq(rb_transport_sim.remote_open(r->ep, i, key, key_bytes, &remote),
				 RUBATO_OK);
		ck_assert_ptr_eq(remote->mapped, near ? p->pointer[i] : NULL);
		mapped = rb_transport_sim.word_map(r->ep, i, p->word[i], 10000 - 8);
		ck_assert_ptr_eq(mapped, reached ? (uint8_t *)p->pointer[i] + 8 : NULL);
		ck_assert_ptr_null(rb_transport_sim.word_map(r->ep, i, p->word[i], 10001 - 8));
	}
	rb_transport_sim.sleep(r->ep, 1000000);
	return RUBATO_OK;
}

START_TEST(memory_is_mapped_within_a_node_only)
{
	struct program p = { .options = OPTIONS(4), .body = look_around };

	p.options.ranks_per_node = (uint32_t)_i * 2;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

/* ---- Order ---- */

#define TRAIN 200

static rubato_status train(struct program_rank *r)
{
	static struct rb_request q[TRAIN];
	struct rb_request *done;
	uint64_t count = 0;

	if (r->rank == 0) {
		for (uint64_t i = 0; i < TRAIN; i++)
			program_send(r, &q[0], 1, i, source, 8);
		return RUBATO_OK;
	}
	for (uint64_t i = 0; i < TRAIN; i++)
		program_recv(r, &q[i], 0, i, target, 8);
	while (count < TRAIN) {
		rb_transport_sim.wait(r->ep, UINT64_MAX);
		for (done = rb_transport_sim.poll(r->ep); done != NULL; done = done->next)
			r->program->word[count++] = done->tag.step;
	}
	return RUBATO_OK;
}

static uint32_t overtakings(double jitter, uint32_t reorder)
{
	struct program p = { .options = OPTIONS(2), .body = train };
	uint32_t count = 0;

	p.options.jitter = jitter;
	p.options.reorder = reorder;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	for (uint32_t i = 1; i < TRAIN; i++)
		count += p.word[i] < p.word[i - 1];
	return count;
}

START_TEST(a_pairs_messages_overtake_only_when_asked)
{
	ck_assert_uint_eq(overtakings(0, 0), 0);
	ck_assert_uint_eq(overtakings(3.0, 0), 0);
	ck_assert_uint_gt(overtakings(0, 1), 10);
	ck_assert_uint_gt(overtakings(3.0, 1), 10);
}
END_TEST

/* ---- The same run again ---- */

/* Random talk: everybody sends to random peers, in rounds that all know from the shared seed. */
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
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
		ck_assert_int_eq(program_finish(r, &out), RUBATO_OK);
		if (rb_transport_sim.random(r->ep) % 4 == 0)
			rb_transport_sim.sleep(r->ep, program_now(r) + 700);
		digest = rb_mix(digest ^ program_now(r));
	}
	r->program->word[r->rank] = digest;
	return RUBATO_OK;
}

static struct program chatter_run(uint64_t seed, double jitter)
{
	struct program p = { .options = OPTIONS(9), .body = chatter };

	p.options.seed = seed;
	p.options.jitter = jitter;
	p.options.ranks_per_node = 3;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	return p;
}

START_TEST(equal_seeds_give_equal_runs)
{
	struct seeds seeds = seeds_from(__func__, 1, 20);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct program a = chatter_run(seed, 0.5), b = chatter_run(seed, 0.5);
		struct program other = chatter_run(seed + 1000, 0.5);

		ck_assert_uint_eq(a.result.trace_hash, b.result.trace_hash);
		ck_assert_uint_eq(a.result.events, b.result.events);
		ck_assert_uint_eq(a.result.end_ns, b.result.end_ns);
		ck_assert_mem_eq(a.word, b.word, sizeof(a.word));
		ck_assert_uint_ne(a.result.trace_hash, other.result.trace_hash);
		ck_assert_uint_ne(a.result.end_ns, other.result.end_ns);
	}
}
END_TEST

static rubato_status draw(struct program_rank *r)
{
	r->program->word[r->rank] = rb_transport_sim.random(r->ep);
	return RUBATO_OK;
}

START_TEST(each_rank_has_a_stream_of_its_own)
{
	struct program a = { .options = OPTIONS(8), .body = draw }, b = a, c = a;

	c.options.seed = 1;
	program_run(&a);
	program_run(&b);
	program_run(&c);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(a.word[i], b.word[i]);
		ck_assert_uint_ne(a.word[i], c.word[i]);
		for (uint32_t j = 0; j < i; j++)
			ck_assert_uint_ne(a.word[i], a.word[j]);
	}
}
END_TEST

/* ---- Waiting ---- */

static rubato_status wait_a_day(struct program_rank *r)
{
	rb_transport_sim.wait(r->ep, 86400000000000u + r->rank);
	return program_now(r) == 86400000000000u + r->rank ? RUBATO_OK : RUBATO_ERR_INTERNAL;
}

START_TEST(time_jumps_to_the_next_deadline)
{
	struct program p = { .options = OPTIONS(3), .body = wait_a_day };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.result.end_ns, 86400000000002u);
}
END_TEST

static rubato_status spin(struct program_rank *r)
{
	uint8_t byte = 0;
	struct rb_request q;

	if (r->rank == 1) {
		rb_transport_sim.sleep(r->ep, 5000);
		program_send(r, &q, 0, 1, &byte, 1);
		return RUBATO_OK;
	}
	program_recv(r, &q, 1, 1, &byte, 1);
	while (q.state != RB_REQUEST_DONE) /* Never waits. */
		(void)rb_transport_sim.poll(r->ep);
	return program_now(r) < 10000 ? q.status : RUBATO_ERR_INTERNAL;
}

START_TEST(time_passes_for_who_polls_in_a_loop)
{
	struct program p = { .options = OPTIONS(2), .body = spin };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

struct stepper {
	struct program_rank *r;
	uint64_t wanted_ns, count, at_ns[8];
};

static uint64_t note_time(void *arg)
{
	struct stepper *s = arg;

	if (rb_transport_sim.poll(s->r->ep) != NULL || program_now(s->r) == s->wanted_ns)
		s->at_ns[s->count++ % 8] = program_now(s->r);
	return program_now(s->r) < s->wanted_ns ? s->wanted_ns : UINT64_MAX;
}

static rubato_status work_and_progress(struct program_rank *r)
{
	struct stepper s = { r, 4200, 0, { 0 } };
	struct rb_request q[2];

	if (r->rank == 0) {
		rb_transport_sim.sleep(r->ep, 2000);
		program_send(r, &q[0], 1, 0, source, 100);
		rb_transport_sim.sleep(r->ep, 4000);
		program_send(r, &q[0], 1, 1, source, 100);
		return RUBATO_OK;
	}
	program_recv(r, &q[0], 0, 0, target, 100);
	program_recv(r, &q[1], 0, 1, target, 100);
	rb_transport_sim.drive(r->ep, note_time, &s);
	rb_transport_sim.sleep(r->ep, 9000);
	ck_assert_uint_eq(program_now(r), 9000);
	ck_assert_uint_eq(s.count, 3);
	ck_assert_uint_eq(s.at_ns[0], 3100);
	ck_assert_uint_eq(s.at_ns[1], 4200); /* Asked for. */
	ck_assert_uint_eq(s.at_ns[2], 5100);
	return RUBATO_OK;
}

START_TEST(progress_is_driven_during_sleep)
{
	struct program p = { .options = OPTIONS(2), .body = work_and_progress };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

/* ---- Credits and cancelling ---- */

#define FLOOD 200 /* Times 16 KiB: three times what may lie unmatched. */

static rubato_status flood(struct program_rank *r)
{
	static struct rb_request q[FLOOD];
	uint32_t eager = 0;

	if (r->rank == 0) {
		for (uint32_t i = 0; i < FLOOD; i++) {
			program_send(r, &q[i], 1, i, source + i * 16384, 16384);
			eager += q[i].state == RB_REQUEST_DONE;
		}
		ck_assert_uint_eq(eager, RB_UNEXPECTED_BYTES_MAX / (16384 + 128));
		for (uint32_t i = 0; i < FLOOD; i++)
			ck_assert_int_eq(program_finish(r, &q[i]), RUBATO_OK);
		return RUBATO_OK;
	}
	rb_transport_sim.sleep(r->ep, 1000000000);
	for (uint32_t i = FLOOD; i-- > 0;) {
		struct rb_request in;

		program_recv(r, &in, 0, i, target, 16384);
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
		ck_assert_mem_eq(target, source + i * 16384, 16384);
	}
	return RUBATO_OK;
}

START_TEST(unmatched_bytes_are_bounded)
{
	struct program p = { .options = OPTIONS(2), .body = flood };
	struct rb_rng rng = { 4 };

	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)rb_rng_next(&rng);
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

#define ASKED_BYTES 4000000u /* 780000 of them leave ahead. */

/* Large ones, cancelled on either side at each stage; then the same tag again, for good. */
static rubato_status change_ones_mind(struct program_rank *r)
{
	uint64_t at_ns = r->program->word[0];
	struct rb_request q, second;
	bool sender_cancels = r->program->word[1] != 0;

	if (r->rank == 0) {
		program_send(r, &q, 1, 3, source, ASKED_BYTES);
		program_send(r, &second, 1, 4, source, 10);
		if (sender_cancels) {
			rb_transport_sim.wait(r->ep, at_ns);
			rb_transport_sim.cancel(r->ep, &q);
			ck_assert_int_eq(q.state, RB_REQUEST_DONE);
			ck_assert_int_eq(q.status, RUBATO_ERR_CANCELLED);
			memset(target, 0, ASKED_BYTES);
			program_send(r, &q, 1, 3, source, ASKED_BYTES);
		}
		return program_finish(r, &q);
	}
	program_recv(r, &q, 0, 3, target, ASKED_BYTES);
	if (!sender_cancels) {
		rb_transport_sim.wait(r->ep, at_ns);
		rb_transport_sim.cancel(r->ep, &q);
		ck_assert_int_eq(q.state, RB_REQUEST_DONE);
		ck_assert_int_eq(q.status, RUBATO_ERR_CANCELLED);
		rb_transport_sim.sleep(r->ep, 10000000);
		ck_assert_uint_eq(target[0], 0);
		program_recv(r, &q, 0, 3, target, ASKED_BYTES);
	}
	ck_assert_int_eq(program_finish(r, &q), RUBATO_OK);
	ck_assert_mem_eq(target, source, ASKED_BYTES);
	program_recv(r, &second, 0, 4, target, 10);
	return program_finish(r, &second);
}

START_TEST(cancelled_is_as_if_never_met)
{
	static const uint64_t times_ns[] = { 1, 500, 65999, 66000, 66500, 67000, 1000000, 4000999 };
	struct program p = { .options = OPTIONS(2), .body = change_ones_mind };

	memset(source, 0x77, ASKED_BYTES);
	memset(target, 0, ASKED_BYTES);
	p.word[0] = times_ns[_i / 2];
	p.word[1] = (uint64_t)_i % 2;
	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
}
END_TEST

/* ---- Many ranks ---- */

static rubato_status disseminate(struct program_rank *r)
{
	uint64_t known = 1, got = 0;
	uint32_t n = r->rank_count;

	for (uint32_t shift = 1; shift < n; shift *= 2) {
		struct rb_request in, out;

		program_recv(r, &in, (r->rank + n - shift) % n, shift, &got, sizeof(got));
		program_send(r, &out, (r->rank + shift) % n, shift, &known, sizeof(known));
		ck_assert_int_eq(program_finish(r, &in), RUBATO_OK);
		known += got;
	}
	return known == n ? RUBATO_OK : RUBATO_ERR_INTERNAL;
}

START_TEST(a_thousand_ranks_meet)
{
	struct program p = { .options = OPTIONS(1024), .body = disseminate };

	program_run(&p);
	ck_assert_int_eq(p.status, RUBATO_OK);
	ck_assert_uint_eq(p.result.messages, 10240);
	ck_assert_uint_eq(p.result.end_ns, 10 * 1008);
}
END_TEST

START_TEST(nonsense_is_refused)
{
	rubato_sim_options rows[] = { OPTIONS(0), OPTIONS(2), OPTIONS(2), OPTIONS(2),
				      OPTIONS(2), OPTIONS(2), OPTIONS(2), OPTIONS(2),
				      OPTIONS(2), OPTIONS(2), OPTIONS(2), OPTIONS(2) };
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	rubato_sim_fault fault = { .kind = RUBATO_SIM_FREEZE, .rank = 2 };
	struct rb_sim_cluster *w;

	for (size_t i = 0; i < count; i++)
		rows[i].size_bytes = sizeof(rows[i]);
	rows[1].size_bytes = 1;
	rows[2].bandwidth = -1;
	rows[3].stack_bytes = 100;
	rows[4].faults = &fault;
	rows[4].fault_count = rows[5].fault_count = 1;
	rows[6].reorder = 2;
	rows[7].latency_ns = UINT64_MAX;
	rows[8].node_latency_ns = UINT64_C(3600000000001);
	rows[9].device.copy_bandwidth = 1e-300;
	rows[10].device.memory_bandwidth = (double)INFINITY;
	rows[11].device.launch_ns = UINT64_MAX;
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(rb_sim_cluster_open(&rows[i], &w), RUBATO_ERR_ARGUMENT);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("cluster");
	Suite *suite = suite_create("sim");

	tcase_add_loop_test(tc, a_message_takes_latency_and_its_bytes, 0, 4);
	tcase_add_test(tc, within_a_node_it_is_faster);
	tcase_add_test(tc, the_receivers_link_takes_one_at_a_time);
	tcase_add_test(tc, the_senders_link_sends_one_at_a_time);
	tcase_add_test(tc, a_message_to_oneself_takes_no_time);
	tcase_add_loop_test(tc, a_put_writes_then_notifies, 0, 2);
	tcase_add_loop_test(tc, memory_is_mapped_within_a_node_only, 0, 2);
	tcase_add_test(tc, a_pairs_messages_overtake_only_when_asked);
	tcase_add_test(tc, equal_seeds_give_equal_runs);
	tcase_add_test(tc, each_rank_has_a_stream_of_its_own);
	tcase_add_test(tc, time_jumps_to_the_next_deadline);
	tcase_add_test(tc, time_passes_for_who_polls_in_a_loop);
	tcase_add_test(tc, progress_is_driven_during_sleep);
	tcase_add_test(tc, unmatched_bytes_are_bounded);
	tcase_add_loop_test(tc, cancelled_is_as_if_never_met, 0, 16);
	tcase_add_test(tc, a_thousand_ranks_meet);
	tcase_add_test(tc, nonsense_is_refused);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
