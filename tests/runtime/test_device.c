/*
 * test_device.c -- collectives on the memory of simulated devices: right bits, the host's, wherever
 * each rank's buffers lie; what is touched from the wrong side is found; and copies, messages and
 * reductions overlap.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/coded.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/relaxed/rounds.h"
#include "tests/seeds.h"

static const char *const operations[] = {
	"allreduce", "reduce",   "broadcast",  "allgather", "reduce_scatter",  "gather",
	"scatter",   "alltoall", "allgatherv", "alltoallv", "reduce_scatterv",
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static rubato_sim_device device_of(bool network)
{
	return (rubato_sim_device) { .present = 1,
				     .network = network,
				     .launch_ns = 3000,
				     .copy_bandwidth = 10e9,
				     .memory_bandwidth = 200e9 };
}

/* ---- Right bits ---- */

struct world {
	uint64_t seed;
	bool network;
	uint32_t ran, skipped; /* Of rank 0. */
};

static uint32_t below(struct rb_rng *rng, uint32_t bound)
{
	return (uint32_t)rb_rng_below(rng, bound);
}

/* The same on all ranks, but for where their buffers lie. */
static struct exercise draw(struct rb_rng *rng, uint32_t rank, uint32_t n)
{
	static const uint64_t counts[] = { 1, 3, 64, 1000, 4097, 40009 };
	const char *kind = operations[below(rng, OPERATIONS)];
	uint32_t algorithms = 0, uniform = below(rng, 3), kinds = below(rng, 9);
	struct rb_rng own = { rb_rng_next(rng) + rank };

	while (exercise_algorithm(kind, algorithms) != NULL)
		algorithms++;
	struct exercise e = { .kind = kind,
			      .algorithm = exercise_algorithm(kind, below(rng, algorithms)),
			      .count = counts[below(rng, 6)] / (strchr(kind, 'l') ? 1 : n) + 1,
			      .type = below(rng, 2) ? RUBATO_FLOAT32 : RUBATO_INT16,
			      .op = below(rng, 2) ? RUBATO_SUM : RUBATO_MAX,
			      .root = below(rng, n),
			      .in_place = below(rng, 2),
			      .persistent = below(rng, 3) == 0,
			      .nonblocking = below(rng, 3) == 0,
			      .times = 2,
			      .salt = rb_rng_next(rng) };

	if (e.persistent)
		e.nonblocking = false;
	if (e.type == RUBATO_FLOAT32 && below(rng, 4) == 0)
		e.op = RUBATO_AVG;
	if (uniform == 0)
		kinds = below(&own, 9);
	if (e.type == RUBATO_FLOAT32 && below(rng, 3) == 0)
		e.type = RUBATO_BFLOAT16;
	if (e.type == RUBATO_BFLOAT16 && below(rng, 2))
		e.accumulate = RUBATO_ACCUMULATE_WHOLE;
	e.kinds[0] = (enum exercise_kind)(kinds % 3);
	e.kinds[1] = (enum exercise_kind)(kinds / 3);
	return e;
}

static rubato_status world_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	struct rb_rng rng = { w->seed };

	for (uint32_t i = 0; i < 8; i++) {
		struct exercise e = draw(&rng, rubato_rank(comm), rubato_size(comm));
		uint64_t there = 0, here = 0;
		rubato_status err = exercise_run(comm, &e, &there);

		if (rubato_rank(comm) == 0)
			*(err == RUBATO_ERR_UNSUPPORTED ? &w->skipped : &w->ran) += 1;
		if (err == RUBATO_ERR_UNSUPPORTED)
			continue;
		RB_TRY(err);
		e.kinds[0] = e.kinds[1] = EXERCISE_HOST;
		RB_TRY(exercise_run(comm, &e, &here));
		if (here != there)
			return RB_FAIL(RUBATO_ERR_MISMATCH, "%s %s: other bits than the host's",
				       e.kind, e.algorithm);
	}
	return RUBATO_OK;
}

static rubato_sim_options options_draw(struct world *w)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	struct rb_rng rng = { w->seed + 1000000 };

	options.seed = w->seed;
	options.rank_count = 1 + below(&rng, 6);
	options.ranks_per_node = below(&rng, 4);
	options.reorder = below(&rng, 2);
	options.jitter = below(&rng, 2) ? 0.5 : 0;
	w->network = below(&rng, 3) == 0;
	options.device = device_of(w->network);
	if (below(&rng, 4) == 0) {
		options.device.launch_ns = 0;
		options.device.copy_bandwidth = options.device.memory_bandwidth = 0;
	}
	return options;
}

/* How many a test draws. */
static uint64_t worlds(uint64_t few, uint64_t some, uint64_t many)
{
	if (test_is_interpreted())
		return (few + 7) / 8;
	return test_length() == TEST_SHORT ? few : test_length() == TEST_NORMAL ? some : many;
}

static void worlds_run(struct seeds *seeds, rubato_sim_main rank_main, uint32_t *ran,
		       uint32_t *skipped)
{
	*ran = *skipped = 0;
	for (uint64_t seed; seeds_next(seeds, &seed);) {
		struct world w = { .seed = seed };
		rubato_sim_options options = options_draw(&w);
		rubato_sim_result result;

		ck_assert_msg(rubato_sim_run(&options, rank_main, &w, &result) == RUBATO_OK,
			      "seed %llu, rank %u: %s", (unsigned long long)seed,
			      result.failed_rank, rubato_error_text());
		*ran += w.ran;
		*skipped += w.skipped;
	}
}

START_TEST(ranks_have_buffers_where_they_like)
{
	struct seeds seeds = seeds_from(__func__, 1, worlds(40, 250, 5000));
	uint32_t ran, skipped;

	worlds_run(&seeds, world_main, &ran, &skipped);
	ck_assert_uint_gt(ran, skipped); /* These: mapped memory on flat networks. */
}
END_TEST

/* In fewer bits, in several nodes, too, whose sums are rounded. */
static rubato_status coded_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	struct coded_world coded = { .seed = w->seed, .memory = &exercise_simulated };

	RB_TRY(coded_world_run(comm, &coded));
	if (rubato_rank(comm) == 0) {
		w->ran += coded.ran;
		w->skipped += coded.skipped;
	}
	return RUBATO_OK;
}

START_TEST(what_travels_in_fewer_bits_is_the_hosts)
{
	struct seeds seeds = seeds_from(__func__, 1, worlds(20, 250, 5000));
	uint32_t ran, skipped;

	worlds_run(&seeds, coded_main, &ran, &skipped);
	if (!seeds_chosen())
		ck_assert_uint_gt(ran, skipped);
}
END_TEST

/* Crashes, at any time: an error where it is one, and nobody touches what is not theirs. */
static rubato_status crash_main(rubato_comm *comm, void *arg)
{
	struct world *w = arg;
	struct rb_rng rng = { w->seed };

	for (uint32_t i = 0; i < 8; i++) {
		struct exercise e = draw(&rng, rubato_rank(comm), rubato_size(comm));
		rubato_status err;

		e.nonblocking =
			false; /* Who has crashed and asks for ever is abandoned, and leaks. */
		err = exercise_run(comm, &e, NULL);

		if (err != RUBATO_OK && err != RUBATO_ERR_UNSUPPORTED)
			return err == RUBATO_ERR_PEER ? RUBATO_OK : err;
	}
	return RUBATO_OK;
}

START_TEST(a_crash_leaves_devices_alone)
{
	uint64_t times = worlds(20, 100, 3000);
	struct seeds seeds = seeds_from(__func__, 1, times);
	uint32_t fired = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world w = { .seed = seed };
		rubato_sim_options options = options_draw(&w);
		rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH };
		rubato_sim_result result;

		options.rank_count++;
		fault.rank = (uint32_t)seed % options.rank_count;
		fault.at_ns = rb_mix(seed) % 400000;
		options.faults = &fault;
		options.fault_count = 1;
		rubato_status err = rubato_sim_run(&options, crash_main, &w, &result);

		/* Who had not called anything when it happened hears it when the job ends. */
		ck_assert_msg(err == RUBATO_OK || err == RUBATO_ERR_PEER, "seed %llu, rank %u: %s",
			      (unsigned long long)seed, result.failed_rank, rubato_error_text());
		fired += result.faults_fired;
	}
	ck_assert_uint_gt(fired, 2);
}
END_TEST

/* ---- What is said ---- */

static rubato_status explain_main(rubato_comm *comm, void *arg)
{
	const char *said = *(const bool *)arg
				   ? "; device memory is read by messages"
				   : "; device memory goes through the host's in messages";
	char text[800];

	RB_TRY(rubato_explain(comm, "allreduce", 1 << 20, RUBATO_FLOAT32, text, sizeof(text)));
	EXPECT(strstr(text, said) != NULL);
	EXPECT(strstr(text, ", in place where all ranks' buffers are of one kind") != NULL);
	RB_TRY(rubato_explain(comm, "allreduce", 1, RUBATO_FLOAT32, text, sizeof(text)));
	EXPECT(strstr(text, said) != NULL && strstr(text, "in place where") == NULL);
	return RUBATO_OK;
}

START_TEST(how_devices_are_reached_is_explained)
{
	for (uint32_t network = 0; network < 2; network++) {
		rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
		rubato_sim_result result;
		bool reads = network != 0;

		options.rank_count = 2;
		options.ranks_per_node = 2;
		options.device = device_of(reads);
		ck_assert_msg(rubato_sim_run(&options, explain_main, &reads, &result) == RUBATO_OK,
			      "%s", rubato_error_text());
	}
}
END_TEST

/* ---- Relaxed operations ---- */

static struct rounds rounds;

/* `there`: buffers are the devices', too. */
static void rounds_run(const char *test, bool there)
{
	uint64_t times = worlds(8, 40, 3000);
	struct seeds seeds = seeds_from(test, 0, times);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
		rubato_partial_options *o = &rounds.options;
		rubato_sim_result result;
		char name[64];

		rounds_init(&rounds);
		options.seed = seed;
		options.rank_count = 2 + (uint32_t)(seed % 7);
		options.ranks_per_node = seed % 4 < 2 ? 0 : 4;
		options.jitter = 0.5;
		options.device = device_of(false);
		options.device.copy_bandwidth = seed % 2 ? 10e9 : 0.1e9;
		o->policy = (rubato_policy)(seed % RUBATO_POLICY_COUNT);
		o->deadline_ns = 200000;
		o->rounds = (rubato_rounds)(seed / 3 % 2);
		o->late = (rubato_late)(seed / 2 % 3);
		o->collection = (rubato_collection)(seed / 6 % 3);
		rounds.count =
			seed % 8 == 5 ? 150001 : 1001; /* Of two and a half pieces, or one. */
		rounds.steps = 10;
		rounds.delay_ns = 100000 * (seed % 3);
		rounds.rotating = seed % 3 == 0;
		rounds.floats = seed % 5 == 0;
		if (rounds.floats)
			o->wire = (rubato_wire)(seed / 5 % RUBATO_WIRE_COUNT);
		rounds.memory = &exercise_simulated;
		rounds.there = there;
		(void)snprintf(name, sizeof(name), "seed %llu: %s", (unsigned long long)seed,
			       rubato_policy_name(o->policy));
		ck_assert_msg(rubato_sim_run(&options, rounds_main, &rounds, &result) == RUBATO_OK,
			      "%s: %s", name, rubato_error_text());
		rounds_check(&rounds, options.rank_count, name);
	}
}

/* While a rank's vector is copied, which takes its time, rounds come and go. */
START_TEST(rounds_hold_what_devices_held)
{
	rounds_run(__func__, false);
}
END_TEST

START_TEST(rounds_are_the_devices)
{
	rounds_run(__func__, true);
}
END_TEST

/* What was reduced is fetched by survivors, and what was joined in vain is given back. */
START_TEST(survivors_have_what_devices_held)
{
	uint64_t times = worlds(20, 60, 5000);
	struct seeds seeds = seeds_from(__func__, 0, times);
	uint32_t fired = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_rng rng = { seed };
		rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
		rubato_sim_fault fault = { .kind = RUBATO_SIM_CRASH, .rank = (uint32_t)(seed % 3) };
		rubato_sim_result result;
		rubato_status err;
		uint32_t survivors;
		char name[64];

		rounds_init(&rounds);
		options.seed = seed + 1;
		options.rank_count = 3 + (uint32_t)below(&rng, 5);
		options.ranks_per_node = below(&rng, 2) ? 4 : 0;
		options.jitter = 0.5;
		options.detect_ns = 1000 + below(&rng, 7) * 20000;
		options.device = device_of(false);
		fault.at_ns = 30000 + below(&rng, 3000000);
		options.faults = &fault;
		options.fault_count = 1;
		rounds.options.policy = (rubato_policy)below(&rng, RUBATO_POLICY_COUNT);
		rounds.options.deadline_ns = 20000;
		rounds.options.rounds = (rubato_rounds)below(&rng, 2);
		rounds.count = below(&rng, 2) ? 1000 : 40000;
		rounds.steps = 40;
		rounds.delay_ns = below(&rng, 4) * 20000;
		rounds.rotating = true;
		rounds.floats = below(&rng, 3) == 0;
		rounds.memory = &exercise_simulated;
		rounds.there = true;
		rounds.victims = 1u << fault.rank;
		(void)snprintf(name, sizeof(name), "seed %llu: %s", (unsigned long long)seed,
			       rubato_policy_name(rounds.options.policy));
		err = rubato_sim_run(&options, rounds_main, &rounds, &result);
		survivors = rounds_check_survivors(&rounds, options.rank_count, name);
		if (err == RUBATO_OK || survivors == 0)
			continue; /* All had returned, or not begun. */
		ck_assert_msg(survivors == options.rank_count - 1, "%s: %u of %u: rank %u: %s",
			      name, survivors, options.rank_count, result.failed_rank,
			      rubato_error_text());
		ck_assert_int_eq(result.first_error, RUBATO_ERR_PEER);
		fired++;
	}
	ck_assert_uint_ge(fired, seeds_chosen() ? 0 : times / 3);
}
END_TEST

/* ---- What is refused ---- */

/* The copies of relaxed operations, whose 11 elements would end behind the memory's. */
static rubato_status relaxed_refused(rubato_comm *comm, char *memory)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *partial;
	rubato_lagged *lagged;
	bool collected;

	memory += 4000 - 40;
	RB_TRY(rubato_partial_create(comm, 11, RUBATO_FLOAT32, RUBATO_SUM, &options, &partial));
	EXPECT(rubato_partial_contribute(partial, memory, 0, 1) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "partial contribute: a buffer of 44 bytes in device "
					   "memory that ends after 40"));
	EXPECT(rubato_partial_collect(partial, memory, &collected, NULL, RUBATO_NO_WAIT) ==
	       RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_partial_free(partial));
	RB_TRY(rubato_lagged_create(comm, 11, RUBATO_FLOAT32, RUBATO_SUM, 1, &lagged));
	EXPECT(rubato_lagged_accumulate(lagged, memory, 1) == RUBATO_ERR_ARGUMENT);
	RB_TRY(rubato_lagged_accumulate(lagged, NULL, 1));
	return rubato_lagged_free(lagged);
}

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	void *memory;

	(void)arg;
	RB_TRY(rubato_sim_device_alloc(comm, 4000, false, &memory));
	EXPECT(rubato_allreduce(comm, memory, memory, 1001, RUBATO_FLOAT32, RUBATO_SUM) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "4004 bytes in device memory that ends after 4000"));
	RB_TRY(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE));
	EXPECT(rubato_allreduce(comm, memory, memory, 2001, RUBATO_FLOAT16, RUBATO_SUM) ==
	       RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "4002 bytes in device memory that ends after 4000"));
	RB_TRY(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_STEP));
	RB_TRY(rubato_allreduce(comm, memory, memory, 100, RUBATO_FLOAT16, RUBATO_SUM));
	RB_TRY(relaxed_refused(comm, memory));
	EXPECT(rubato_sim_device_free(comm, (uint8_t *)memory + 1) == RUBATO_ERR_ARGUMENT);
	return rubato_sim_device_free(comm, memory);
}

START_TEST(what_cannot_be_is_said)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 2;
	options.device = device_of(false);
	ck_assert_msg(rubato_sim_run(&options, refused_main, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

static rubato_status message_main(rubato_comm *comm, void *arg)
{
	uint32_t sent[1000], got[1000] = { 0 };
	void *memory;

	(void)arg;
	for (uint32_t i = 0; i < 1000; i++)
		sent[i] = i * 7;
	RB_TRY(rubato_sim_device_alloc(comm, sizeof(sent), false, &memory));
	if (rubato_rank(comm) == 0) {
		rubato_sim_device_copy(comm, memory, sent, sizeof(sent));
		RB_TRY(rubato_send(comm, memory, sizeof(sent), RUBATO_INT8, 1, 0));
	} else {
		RB_TRY(rubato_recv(comm, memory, sizeof(sent), RUBATO_INT8, 0, 0));
		rubato_sim_device_copy(comm, got, memory, sizeof(got));
		EXPECT(memcmp(sent, got, sizeof(got)) == 0);
	}
	return rubato_sim_device_free(comm, memory);
}

/* 0: the network does not; 1: it does. */
START_TEST(messages_reach_devices)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 2;
	options.device = device_of(_i != 0);
	ck_assert_msg(rubato_sim_run(&options, message_main, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

/* ---- What is said ---- */

static rubato_status dump_main(rubato_comm *comm, void *arg)
{
	char text[4096] = { 0 };
	void *memory;
	rubato_op *op;
	int ends[2];

	(void)arg;
	RB_TRY(rubato_sim_device_alloc(comm, 4000, false, &memory));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_op_allreduce(comm, memory, memory, 1000, RUBATO_FLOAT32, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	EXPECT(pipe(ends) == 0);
	rubato_dump(comm, ends[1]);
	close(ends[1]);
	EXPECT(read(ends[0], text, sizeof(text) - 1) > 0);
	close(ends[0]);
	EXPECT(strstr(text, " in device out device, ") != NULL && strstr(text, " bytes staged"));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	return rubato_sim_device_free(comm, memory);
}

START_TEST(a_dump_says_what_is_staged)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 2;
	options.device = device_of(false);
	ck_assert_msg(rubato_sim_run(&options, dump_main, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

/* ---- The wrong side ---- */

#define FAULT_EXIT 42

/* Who touches device memory, is told by the fault: here by the handler. */
static struct {
	uint8_t *base;
	size_t bytes;
} guarded[3]; /* Per rank. */

static void fault_handler(int number, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;

	(void)number;
	(void)context;
	for (uint32_t r = 0; r < 3; r++)
		if (at >= guarded[r].base && at < guarded[r].base + guarded[r].bytes)
			_exit(FAULT_EXIT);
	_exit(1);
}

enum wrong { BY_THE_PROGRAM, BY_THE_HOST_EXECUTOR, BY_A_MESSAGE, BY_THE_DEVICE };

/* The staged plan of an operation is made wrong: steps change hands. */
static void plan_spoil(struct rb_plan *plan, enum wrong wrong)
{
	for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
		struct rb_step *step = &plan->schedule.steps[i];
		bool work = step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE;

		if (wrong == BY_THE_HOST_EXECUTOR && work)
			step->flags &= (uint8_t)~RB_STEP_DEVICE;
		if (wrong == BY_THE_DEVICE && step->kind == RB_STEP_REDUCE)
			step->flags |= RB_STEP_DEVICE;
		if (wrong == BY_A_MESSAGE && step->kind == RB_STEP_RECV) {
			plan->schedule.spans[step->to] = rb_span_out(RB_SELF);
			plan->span_start[step->to] = plan->span_first[step->to] = 0;
		}
	}
}

/* IN lies on the host where the device shall be wrong, and is reduced by the host. */
static rubato_status wrong_main(rubato_comm *comm, void *arg)
{
	enum wrong wrong = *(enum wrong *)arg;
	static float in[1000];
	rubato_op *op;
	void *memory;

	RB_TRY(rubato_sim_device_alloc(comm, sizeof(in), false, &memory));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "two_shot"));
	RB_TRY(rubato_op_allreduce(comm, wrong == BY_THE_DEVICE ? in : memory, memory, 1000,
				   RUBATO_FLOAT32, RUBATO_SUM, &op));
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT)); /* Right, so far. */
	RB_TRY(rubato_barrier(comm));
	EXPECT(op->plan->staged_next != NULL);
	guarded[rubato_rank(comm)].base = memory;
	guarded[rubato_rank(comm)].bytes = sizeof(in);
	RB_TRY(rubato_barrier(comm));
	if (wrong == BY_THE_PROGRAM)
		in[0] = ((float *)memory)[1];
	plan_spoil(op->plan->staged_next, wrong);
	RB_TRY(rubato_start(op));
	return rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
}

static rubato_status wrong_run(enum wrong wrong)
{
	struct sigaction action = { .sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO };
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	(void)sigaction(SIGSEGV, &action, NULL);
	options.rank_count = 3;
	options.device = device_of(false);
	return rubato_sim_run(&options, wrong_main, &wrong, &result);
}

START_TEST(a_processor_on_device_memory_faults)
{
	(void)wrong_run((enum wrong)_i);
}
END_TEST

START_TEST(a_device_that_computes_on_host_memory_fails)
{
	ck_assert_int_eq(wrong_run(BY_THE_DEVICE), RUBATO_ERR_INTERNAL);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "a local copy or reduction failed"));
}
END_TEST

/* ---- Time ---- */

struct timed {
	bool device;
	uint64_t ns;
};

static rubato_status timed_main(rubato_comm *comm, void *arg)
{
	enum { COUNT = 4 << 20 };
	struct timed *timed = arg;
	void *memory;
	uint64_t begin;

	if (timed->device)
		RB_TRY(rubato_sim_device_alloc(comm, COUNT, false, &memory));
	else
		EXPECT((memory = calloc(1, COUNT)) != NULL);
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_barrier(comm));
	begin = rubato_now(comm);
	RB_TRY(rubato_allreduce(comm, memory, memory, COUNT / 4, RUBATO_FLOAT32, RUBATO_SUM));
	timed->ns = rubato_now(comm) - begin;
	if (timed->device)
		return rubato_sim_device_free(comm, memory);
	free(memory);
	return RUBATO_OK;
}

/* Copies as fast as the network: what is staged costs the pipeline's filling, not another time. */
START_TEST(staging_overlaps_with_messages)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	struct timed host = { .device = false }, device = { .device = true };
	rubato_sim_result result;

	options.rank_count = 4;
	options.bandwidth = 10e9;
	options.device = device_of(false);
	ck_assert_int_eq(rubato_sim_run(&options, timed_main, &host, &result), RUBATO_OK);
	ck_assert_int_eq(rubato_sim_run(&options, timed_main, &device, &result), RUBATO_OK);
	ck_assert_msg(device.ns > host.ns && device.ns < host.ns * 2, "host %llu ns, device %llu",
		      (unsigned long long)host.ns, (unsigned long long)device.ns);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("device");
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, ranks_have_buffers_where_they_like);
	tcase_add_test(tc, what_travels_in_fewer_bits_is_the_hosts);
	tcase_add_test(tc, a_crash_leaves_devices_alone);
	tcase_add_test(tc, how_devices_are_reached_is_explained);
	tcase_add_test(tc, rounds_hold_what_devices_held);
	tcase_add_test(tc, rounds_are_the_devices);
	if (!test_is_interpreted()) /* A second of one world: three minutes there. */
		tcase_add_test(tc, survivors_have_what_devices_held);
	tcase_add_test(tc, what_cannot_be_is_said);
	tcase_add_test(tc, a_dump_says_what_is_staged);
	tcase_add_loop_test(tc, messages_reach_devices, 0, 2);
	tcase_add_loop_exit_test(tc, a_processor_on_device_memory_faults, FAULT_EXIT,
				 BY_THE_PROGRAM, BY_A_MESSAGE + 1);
	tcase_add_test(tc, a_device_that_computes_on_host_memory_fails);
	tcase_add_test(tc, staging_overlaps_with_messages);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
