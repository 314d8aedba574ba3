/*
 * test_puts.c -- algorithms by puts: several transports in one communicator, what a start sends,
 * what restarts leave behind, and where puts are chosen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

/*
 * ---- Nodes of two threads each: shared memory within, UCX's TCP between ----
 *
 * ThreadSanitizer does not see that messages of UCX order what threads do in shared memory, and
 * some builds have none: there it is shared memory again, as of another job, where nothing is
 * mapped.
 */

#define PAIR 2u
#define RANK_BYTES sizeof(uint32_t) /* Behind the address. */

static rubato_status pairs_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	RB_TRY(rb_transport_shm.address(ep, bytes, size_bytes));
	memcpy((uint8_t *)bytes + *size_bytes, &ep->rank, RANK_BYTES);
	*size_bytes += RANK_BYTES;
	return RUBATO_OK;
}

static bool pairs_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	uint32_t rank;

	if (size_bytes < RANK_BYTES)
		return false;
	memcpy(&rank, (const uint8_t *)address + size_bytes - RANK_BYTES, RANK_BYTES);
	return rank / PAIR == ep->rank / PAIR &&
	       rb_transport_shm.reachable(ep, address, size_bytes - RANK_BYTES);
}

static rubato_status pairs_connect(struct rb_endpoint *ep, const void *const *addresses,
				   const size_t *address_bytes, const bool *use,
				   uint64_t deadline_ns)
{
	size_t bytes[16];

	EXPECT(ep->rank_count <= 16);
	for (uint32_t r = 0; r < ep->rank_count; r++)
		bytes[r] = use[r] ? address_bytes[r] - RANK_BYTES : 0;
	return rb_transport_shm.connect(ep, addresses, bytes, use, deadline_ns);
}

static rubato_status far_open(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	struct rb_transport_options other = *options;

	other.job[0] ^= 1;
	return rb_transport_shm.open(&other, out);
}

#define FORMS 8u

/* Every algorithm by puts, in a few forms, which differ from one to the next. */
static rubato_status all_puts(rubato_comm *comm, uint32_t forms)
{
	uint32_t ran = 0;

	for (uint32_t a = 0; a < rb_algorithm_count; a++) {
		if (!(rb_algorithms[a].flags & RB_SCHEDULE_PUT))
			continue;
		for (uint32_t f = 0; f < forms; f++) {
			uint32_t form = (f * 3 + a) % FORMS;
			struct exercise e = { .kind = rb_kind_name(rb_algorithms[a].kind),
					      .algorithm = rb_algorithms[a].name,
					      .count = f % 2 == 0 ? 3001 : 70001,
					      .type = RUBATO_INT32,
					      .root = ran % rubato_size(comm),
					      .in_place = form & 1,
					      .allocated = form & 2,
					      .mixed = form == 3 || form == 6,
					      .persistent = form & 4,
					      .times = 3,
					      .salt = a * 31 + f };

			RB_TRY(exercise_run(comm, &e, NULL));
			ran++;
		}
	}
	EXPECT(ran >= 17 * forms);
	return RUBATO_OK;
}

static rubato_status mixed_main(rubato_comm *comm, void *arg)
{
	const struct rb_transport_ops *far = arg;
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), few = 0;
	bool alone = rank == n - 1 && n % PAIR == 1;

	/* What is to be shown: two transports; with UCX, keys are not equally long. */
	EXPECT(comm->choices.nodes.count == (n + PAIR - 1) / PAIR);
	EXPECT(alone || comm->engine.endpoint_count == 2);
	EXPECT(comm->key_words[0] > 0 && comm->key_words[1] == (far->key_bytes + 7) / 8);
	EXPECT(comm->choices.facts.put && !comm->choices.facts.puts_between);
	RB_TRY(all_puts(comm, test_length() == TEST_SHORT ? 2 : FORMS));
	/* Under the lock: the progress thread may still send for the operations' own ends. */
	rb_engine_enter(&comm->engine);
	for (uint32_t i = 0; i < comm->engine.endpoint_count; i++)
		few += comm->engine.endpoints[i]->bytes_sent <= 100000;
	rb_engine_leave(&comm->engine);
	EXPECT(alone || few == 0);
	return RUBATO_OK;
}

START_TEST(within_nodes_and_between_them)
{
	struct rb_transport_ops pairs = rb_transport_shm, far = *local_transport("tcp");
	const struct rb_transport_ops *transports[] = { &pairs, local_transport("tcp"), NULL };

	if (transports[1] == &rb_transport_shm || test_is_threads_only()) {
		far = rb_transport_shm;
		far.open = far_open;
		transports[1] = &far;
	}
	pairs.address = pairs_address;
	pairs.reachable = pairs_reachable;
	pairs.connect = pairs_connect;
	ck_assert_int_eq(local_run((uint32_t)_i, transports, mixed_main, &far, NULL), RUBATO_OK);
}
END_TEST

/* ---- Simulated ---- */

static rubato_status nodes_main(rubato_comm *comm, void *arg)
{
	(void)arg;
	EXPECT(comm->choices.nodes.count == 4);
	return all_puts(comm, FORMS);
}

START_TEST(on_uneven_nodes)
{
	static const uint32_t nodes[] = { 3, 1 };
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 8;
	options.node_count = 2;
	options.node_ranks = nodes;
	options.reorder = 1;
	options.jitter = 1;
	ck_assert_msg(rubato_sim_run(&options, nodes_main, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

#define COUNT 70001u

struct starts { /* Of one run: how many, and what a schedule sends on all ranks. */
	const struct rb_algorithm *algorithm;
	uint32_t times;
	uint64_t sends;
};

static uint64_t sends_of(const struct rb_plan *plan)
{
	uint64_t sends = 0;

	for (uint32_t s = 0; s < plan->schedule.step_count; s++) {
		uint8_t kind = plan->schedule.steps[s].kind;

		if (kind == RB_STEP_SEND || kind == RB_STEP_PUT || kind == RB_STEP_NOTIFY)
			sends += plan->iterations[s];
	}
	return sends;
}

static rubato_status op_make(rubato_comm *comm, enum rb_kind kind, int32_t *in, int32_t *out,
			     rubato_op **op)
{
	uint64_t each = COUNT / rubato_size(comm);

	switch (kind) {
	case RB_KIND_BROADCAST:
		return rubato_op_broadcast(comm, out, COUNT, RUBATO_INT32, 0, op);
	case RB_KIND_ALLREDUCE:
		return rubato_op_allreduce(comm, in, out, COUNT, RUBATO_INT32, RUBATO_SUM, op);
	case RB_KIND_REDUCE_SCATTER:
		return rubato_op_reduce_scatter(comm, in, out, each, RUBATO_INT32, RUBATO_SUM, op);
	case RB_KIND_ALLGATHER:
		return rubato_op_allgather(comm, in, out, each, RUBATO_INT32, op);
	default:
		return rubato_op_alltoall(comm, in, out, each, RUBATO_INT32, op);
	}
}

static rubato_status starts_main(rubato_comm *comm, void *arg)
{
	struct starts *starts = arg;
	int32_t *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
	rubato_op *op = NULL;
	rubato_status err;

	EXPECT(in != NULL && out != NULL);
	err = rubato_set_algorithm(comm, rb_kind_name(starts->algorithm->kind),
				   starts->algorithm->name);
	if (err == RUBATO_OK)
		err = op_make(comm, starts->algorithm->kind, in, out, &op);
	if (err == RUBATO_OK)
		starts->sends += sends_of(op->plan);
	for (uint32_t i = 0; err == RUBATO_OK && i < starts->times; i++) {
		err = rubato_start(op);
		if (err == RUBATO_OK)
			err = rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	}
	rubato_op_free(op);
	free(in);
	free(out);
	return err;
}

/* Bound when they are made, operations exchange nothing when they are started. */
START_TEST(a_start_sends_its_schedule_and_no_more)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	uint32_t checked = 0;

	options.rank_count = 6;
	options.ranks_per_node = 2;
	for (uint32_t a = 0; a < rb_algorithm_count; a++) {
		struct starts few = { &rb_algorithms[a], 2, 0 }, many = { &rb_algorithms[a], 7, 0 };
		rubato_sim_result first, second;

		if (!(rb_algorithms[a].flags & RB_SCHEDULE_PUT))
			continue;
		ck_assert_int_eq(rubato_sim_run(&options, starts_main, &few, &first), RUBATO_OK);
		ck_assert_int_eq(rubato_sim_run(&options, starts_main, &many, &second), RUBATO_OK);
		ck_assert_uint_gt(many.sends, 0);
		ck_assert_msg(second.messages - first.messages == 5 * many.sends,
			      "%s %s: %llu messages in 5 starts of %llu",
			      rb_kind_name(rb_algorithms[a].kind), rb_algorithms[a].name,
			      (unsigned long long)(second.messages - first.messages),
			      (unsigned long long)many.sends);
		checked++;
	}
	ck_assert_uint_ge(checked, 9);
}
END_TEST

/* ---- Where puts do not reach ---- */

#define UNREACHED 1u /* The rank whose memory it is. */

/* What a persistent operation has bound to. */
static rubato_status puts_bound(rubato_comm *comm, const struct rb_algorithm *a, int32_t *in,
				int32_t *out, bool *puts)
{
	rubato_op *op;

	RB_TRY(rubato_set_algorithm(comm, rb_kind_name(a->kind), a->name));
	RB_TRY(op_make(comm, a->kind, in, out, &op));
	*puts = (op->plan->schedule.flags & RB_SCHEDULE_PUT) != 0;
	RB_TRY(rubato_start(op));
	RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
	rubato_op_free(op);
	return RUBATO_OK;
}

/* Every algorithm by puts: all ranks take another one where one's output takes none, and it itself
 * where all do. `there` may be on a device of the rank UNREACHED. */
static rubato_status unreached_check(rubato_comm *comm, int32_t *in, int32_t *here, int32_t *there)
{
	for (uint32_t i = 0; i < rb_algorithm_count; i++) {
		const struct rb_algorithm *a = &rb_algorithms[i];
		bool puts;

		if (!(a->flags & RB_SCHEDULE_PUT))
			continue;
		RB_TRY(puts_bound(comm, a, in, there, &puts));
		if (puts)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "%s %s puts all the same",
				       rb_kind_name(a->kind), a->name);
		RB_TRY(puts_bound(comm, a, in, here, &puts));
		if (!puts)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "%s %s does not put",
				       rb_kind_name(a->kind), a->name);
	}
	return RUBATO_OK;
}

/* Results, and calls that are not bound. */
static rubato_status unreached_exercise(rubato_comm *comm, enum exercise_kind out)
{
	uint32_t forms = test_length() == TEST_SHORT ? 2 : FORMS;

	for (uint32_t i = 0; i < rb_algorithm_count; i++)
		for (uint32_t f = 0; f < forms && rb_algorithms[i].flags & RB_SCHEDULE_PUT; f++) {
			struct exercise e = { .kind = rb_kind_name(rb_algorithms[i].kind),
					      .algorithm = rb_algorithms[i].name,
					      .count = f & 4 ? 70001 : 3001,
					      .type = RUBATO_INT32,
					      .root = f & 2 ? 0 : UNREACHED,
					      .persistent = f & 1,
					      .times = 3,
					      .salt = f };

			if (rubato_rank(comm) == UNREACHED)
				e.kinds[e.kind[0] == 'b' ? 0 : 1] = out;
			RB_TRY(exercise_run(comm, &e, NULL));
		}
	return RUBATO_OK;
}

static rubato_status device_main(rubato_comm *comm, void *arg)
{
	bool is_it = rubato_rank(comm) == UNREACHED;
	int32_t *in = calloc(COUNT, sizeof(*in)), *here = calloc(COUNT, sizeof(*here));
	void *device;
	rubato_status err;

	(void)arg;
	EXPECT(in != NULL && here != NULL);
	RB_TRY(rubato_sim_device_alloc(comm, COUNT * sizeof(*in), false, &device));
	err = unreached_check(comm, in, here, is_it ? device : here);
	free(in);
	free(here);
	RB_TRY(err);
	RB_TRY(rubato_sim_device_free(comm, device));
	return unreached_exercise(comm, EXERCISE_DEVICE);
}

START_TEST(an_output_on_a_device_takes_another_algorithm)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;

	options.rank_count = 6;
	options.ranks_per_node = (uint32_t)_i;
	options.device.present = 1;
	ck_assert_msg(rubato_sim_run(&options, device_main, NULL, &result) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

static _Atomic uint32_t refusals;
static struct rb_transport_ops refusing;

static rubato_status refusing_open(const struct rb_transport_options *options,
				   struct rb_endpoint **out)
{
	RB_TRY(rb_transport_shm.open(options, out));
	(*out)->ops = &refusing;
	return RUBATO_OK;
}

static rubato_status refuse(struct rb_endpoint *ep, void *base, size_t size_bytes,
			    struct rb_region **out)
{
	if (ep->rank != UNREACHED)
		return rb_transport_shm.region_add(ep, base, size_bytes, out);
	refusals++;
	return RB_FAIL(refusals % 2 ? RUBATO_ERR_UNSUPPORTED : RUBATO_ERR_MEMORY, "refused");
}

static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	int32_t *in = calloc(COUNT, sizeof(*in)), *out = calloc(COUNT, sizeof(*out));
	void *allocated;
	rubato_status err;

	(void)arg;
	EXPECT(in != NULL && out != NULL);
	RB_TRY(rubato_alloc(comm, COUNT * sizeof(*in), &allocated));
	err = unreached_check(comm, in, allocated, out);
	free(in);
	free(out);
	RB_TRY(err);
	RB_TRY(rubato_free(comm, allocated));
	return unreached_exercise(comm, EXERCISE_HOST);
}

/* What this transport allocates itself is as before. */
START_TEST(memory_that_cannot_be_registered_takes_another_algorithm)
{
	const struct rb_transport_ops *transports[] = { &refusing, NULL };

	refusals = 0;
	refusing = rb_transport_shm;
	refusing.open = refusing_open;
	refusing.region_add = refuse;
	ck_assert_int_eq(local_run(4, transports, refused_main, NULL, NULL), RUBATO_OK);
	ck_assert_uint_ge(refusals, 9);
}
END_TEST

/* ---- What is left behind ---- */

/* Those that begin at `base`; NULL: all. The progress thread drops those of operations freed. */
static uint32_t memories(rubato_comm *comm, const void *base)
{
	uint32_t count = 0;

	rb_engine_enter(&comm->engine);
	for (const struct rb_memory *m = comm->memory.first; m != NULL; m = m->next)
		count += base == NULL || m->base == base;
	rb_engine_leave(&comm->engine);
	return count;
}

/* Plain buffers: they are registered as long as the operation lives. */
static rubato_status restarts_main(rubato_comm *comm, void *arg)
{
	uint32_t before = memories(comm, NULL), times = test_length() == TEST_SHORT ? 100 : 1000;
	struct exercise e = { .kind = "allreduce",
			      .algorithm = "ring_put",
			      .count = 257,
			      .type = RUBATO_INT64,
			      .persistent = true,
			      .times = times,
			      .salt = 5 };
	int32_t in[64] = { 0 }, out[64];
	rubato_op *op;

	(void)arg;
	RB_TRY(exercise_run(comm, &e, NULL));
	RB_TRY(rubato_op_allreduce(comm, in, out, 64, RUBATO_INT32, RUBATO_SUM, &op));
	EXPECT(memories(comm, NULL) > before);
	rubato_op_free(op);
	e.persistent = false;
	e.times = 20;
	RB_TRY(exercise_run(comm, &e, NULL));
	/* The operation goes when all have freed theirs: its end is in the background. One-shots
	 * keep their scratch. */
	for (uint32_t i = 0; memories(comm, NULL) > before + 1 && i < 100; i++)
		RB_TRY(rubato_barrier(comm));
	EXPECT(memories(comm, NULL) <= before + 1);
	return RUBATO_OK;
}

START_TEST(restarts_leave_nothing_behind)
{
	const struct rb_transport_ops *transports[] = { &rb_transport_shm, NULL };

	ck_assert_int_eq(local_run(3, transports, restarts_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* Two operations of one buffer, which is registered once: it stays so for the second when the first
 * is freed, whose own end is in the background. */
static rubato_status shared_main(rubato_comm *comm, void *arg)
{
	struct exercise e = { .kind = "allreduce",
			      .algorithm = "two_shot_put",
			      .count = 3,
			      .type = RUBATO_INT32,
			      .in_place = true,
			      .nonblocking = true,
			      .times = 30,
			      .salt = 7 };
	int32_t n = (int32_t)rubato_size(comm), in[64], out[64];
	rubato_op *ops[2];

	(void)arg;
	for (int i = 0; i < 64; i++)
		in[i] = i;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring_put"));
	for (int i = 0; i < 2; i++)
		RB_TRY(rubato_op_allreduce(comm, in, out, 64, RUBATO_INT32, RUBATO_SUM, &ops[i]));
	rubato_op_free(ops[0]);
	for (int call = 0; call < 5; call++) {
		memset(out, 0xa5, sizeof(out));
		RB_TRY(rubato_start(ops[1]));
		RB_TRY(rubato_wait(ops[1], RUBATO_TIMEOUT_DEFAULT));
		for (int i = 0; i < 64; i++)
			EXPECT(out[i] == n * i);
	}
	rubato_op_free(ops[1]);
	return exercise_run(comm, &e, NULL);
}

/* What the application unregisters stays registered for the operations that peers have keys of. */
static rubato_status unregistered_main(rubato_comm *comm, void *arg)
{
	int32_t n = (int32_t)rubato_size(comm), in[64], out[64];
	rubato_op *ops[2];

	(void)arg;
	for (int i = 0; i < 64; i++)
		in[i] = i;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring_put"));
	RB_TRY(rubato_register(comm, out, sizeof(out)));
	for (int i = 0; i < 2; i++)
		RB_TRY(rubato_op_allreduce(comm, in, out, 64, RUBATO_INT32, RUBATO_SUM, &ops[i]));
	rubato_op_free(ops[0]);
	if (rubato_rank(comm) != 1)
		RB_TRY(rubato_unregister(comm, out));
	EXPECT(rubato_rank(comm) == 1 || rubato_unregister(comm, out) == RUBATO_ERR_ARGUMENT);
	for (int call = 0; call < 5; call++) {
		memset(out, 0xa5, sizeof(out));
		RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_start(ops[1]));
		RB_TRY(rubato_wait(ops[1], RUBATO_TIMEOUT_DEFAULT));
		for (int i = 0; i < 64; i++)
			EXPECT(out[i] == n * i);
	}
	rubato_op_free(ops[1]);
	EXPECT(memories(comm, out) == 0 || rubato_rank(comm) == 1);
	return rubato_rank(comm) != 1 ? RUBATO_OK : rubato_unregister(comm, out);
}

/* What is worked in cannot be given up, allocated or registered, until that is over. */
static rubato_status busy_main(rubato_comm *comm, void *arg)
{
	uint32_t other = 1 - rubato_rank(comm);
	int32_t *memory, plain[64], in[4] = { 0 }, out[4];
	rubato_op *ops[2], *sum;

	(void)arg;
	RB_TRY(rubato_alloc(comm, 64 * sizeof(*memory), (void **)&memory));
	RB_TRY(rubato_register(comm, plain, sizeof(plain)));
	EXPECT(rubato_register(comm, in, SIZE_MAX - 8) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "address space") != NULL);
	RB_TRY(rubato_op_recv(comm, memory + 5, 50, RUBATO_INT32, other, 1, &ops[0]));
	RB_TRY(rubato_op_recv(comm, plain + 5, 50, RUBATO_INT32, other, 2, &ops[1]));
	for (int i = 0; i < 2; i++)
		RB_TRY(rubato_start(ops[i]));
	EXPECT(rubato_free(comm, memory) == RUBATO_ERR_ARGUMENT);
	EXPECT(strstr(rubato_error_text(), "in flight") != NULL);
	EXPECT(rubato_unregister(comm, plain) == RUBATO_ERR_ARGUMENT);
	for (int i = 0; i < 2; i++)
		EXPECT(rubato_cancel(ops[i]) == RUBATO_ERR_CANCELLED);
	RB_TRY(rubato_unregister(comm, plain));
	RB_TRY(rubato_register(comm, plain, sizeof(plain)));
	RB_TRY(rubato_op_allreduce(comm, in, plain + 60, 4, RUBATO_INT32, RUBATO_SUM, &sum));
	if (other == 1) { /* It comes when this rank has been refused. */
		RB_TRY(rubato_start(sum));
		EXPECT(rubato_unregister(comm, plain) == RUBATO_ERR_ARGUMENT);
	}
	RB_TRY(rubato_barrier(comm));
	if (other == 0)
		RB_TRY(rubato_start(sum));
	RB_TRY(rubato_wait(sum, RUBATO_TIMEOUT_DEFAULT));
	RB_TRY(rubato_unregister(comm, plain));
	RB_TRY(rubato_free(comm, memory));
	for (int i = 0; i < 2; i++)
		rubato_op_free(ops[i]);
	rubato_op_free(sum);
	return rubato_allreduce(comm, in, out, 4, RUBATO_INT32, RUBATO_SUM);
}

START_TEST(memory_in_use_is_not_given_up)
{
	const struct rb_transport_ops *transports[] = { &rb_transport_shm, NULL };

	ck_assert_msg(local_run(2, transports, busy_main, NULL, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

START_TEST(operations_keep_registrations)
{
	const struct rb_transport_ops *transports[] = { &rb_transport_shm, NULL };

	ck_assert_msg(local_run(3, transports, unregistered_main, NULL, NULL) == RUBATO_OK, "%s",
		      rubato_error_text());
}
END_TEST

START_TEST(operations_share_registrations)
{
	const struct rb_transport_ops *transports[] = { &rb_transport_shm, NULL };

	ck_assert_int_eq(local_run(4, transports, shared_main, NULL, NULL), RUBATO_OK);
}
END_TEST

/* ---- The choice ---- */

static rubato_status explain_main(rubato_comm *comm, void *arg)
{
	return rubato_explain(comm, "allreduce", 1u << 22, RUBATO_FLOAT32, arg, 500);
}

static rubato_status sum_main(rubato_comm *comm, void *arg)
{
	struct exercise e = { .kind = "allreduce",
			      .algorithm = arg,
			      .count = 1u << 20,
			      .type = RUBATO_INT32,
			      .times = 1 };

	return exercise_run(comm, &e, NULL);
}

/* In the simulator they are good where it is told so; and a large one then takes one latency, not
 * three. */
START_TEST(where_puts_are_good_they_are_chosen)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	char text[500] = "", ring[] = "ring", ring_put[] = "ring_put";
	rubato_sim_result messages, puts;

	options.rank_count = 4;
	options.latency_ns = 1000000;
	ck_assert_int_eq(rubato_sim_run(&options, explain_main, text, &puts), RUBATO_OK);
	ck_assert_msg(strstr(text, ", puts by messages") != NULL && strstr(text, "_put (") == NULL,
		      "%s", text);
	options.costs.puts = 1;
	ck_assert_int_eq(rubato_sim_run(&options, explain_main, text, &puts), RUBATO_OK);
	ck_assert_msg(strstr(text, ", puts good") != NULL && strstr(text, "_put (") != NULL &&
			      strstr(text, " where a buffer takes no puts") != NULL,
		      "%s", text);
	ck_assert_int_eq(rubato_sim_run(&options, sum_main, ring, &messages), RUBATO_OK);
	ck_assert_int_eq(rubato_sim_run(&options, sum_main, ring_put, &puts), RUBATO_OK);
	ck_assert_uint_lt(2 * puts.end_ns, messages.end_ns);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("puts");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, within_nodes_and_between_them, 4, 6);
	tcase_add_test(tc, restarts_leave_nothing_behind);
	tcase_add_test(tc, operations_share_registrations);
	tcase_add_test(tc, memory_in_use_is_not_given_up);
	tcase_add_test(tc, operations_keep_registrations);
	tcase_add_test(tc, memory_that_cannot_be_registered_takes_another_algorithm);
	if (!test_is_threads_only()) {
		tcase_add_test(tc, on_uneven_nodes);
		tcase_add_loop_test(tc, an_output_on_a_device_takes_another_algorithm, 1, 4);
		tcase_add_test(tc, a_start_sends_its_schedule_and_no_more);
		tcase_add_test(tc, where_puts_are_good_they_are_chosen);
	}
	return check_main("puts", tc);
}
