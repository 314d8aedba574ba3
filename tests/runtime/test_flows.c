/*
 * test_flows.c -- messages of many tags: what is remembered of each is forgotten again, on both
 * sides, and each message still meets its receive. Name of the transport as argument: shm, ucx,
 * sim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

#define GO 0xffffffffu /* A tag. */
#define LARGE 200000   /* Elements: announced, not sent at once. */
/* Those of both directions, what is in the rings, and the pairs. */
#define COUNT_MAX (2 * RB_FLOWS_MAX + 128)

static uint32_t flows_count(rubato_comm *comm)
{
	uint32_t count;

	rb_engine_enter(&comm->engine);
	count = comm->flows.count;
	rb_engine_leave(&comm->engine);
	return count;
}

/* What peers are told of flows that were forgotten is not kept either. */
static bool all_told(rubato_comm *comm)
{
	bool told;

	rb_engine_enter(&comm->engine);
	told = comm->flows.lists == NULL && comm->engine.in_flight == 0;
	rb_engine_leave(&comm->engine);
	return told;
}

static uint32_t tags_count(void)
{
	return test_length() == TEST_SHORT ? 10000 : 100000;
}

static rubato_status many_blocking(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);

	(void)arg;
	for (uint32_t tag = 0; tag < tags_count(); tag++) {
		int64_t value = 3 * (int64_t)tag;

		if (tag / 2 % 2 == rank) {
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1 - rank, tag));
		} else {
			value = 0;
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1 - rank, tag));
			EXPECT(value == 3 * (int64_t)tag);
		}
		EXPECT(tag % 100 != 0 || flows_count(comm) < COUNT_MAX);
	}
	return RUBATO_OK;
}

/* Receives are in flight when the sender forgets the flows that they would be of. */
#define WINDOW 200

static rubato_status many_persistent(rubato_comm *comm, void *arg)
{
	uint32_t rank = rubato_rank(comm);
	int64_t go = 0;

	(void)arg;
	for (uint32_t first = 0; first < tags_count(); first += WINDOW) {
		bool sends = first / WINDOW % 2 == rank;
		rubato_op *ops[WINDOW];
		int64_t values[WINDOW];

		if (sends)
			RB_TRY(rubato_recv(comm, &go, 1, RUBATO_INT64, 1 - rank, GO));
		for (uint32_t i = 0; i < WINDOW; i++) {
			values[i] = sends ? first + i : 0;
			RB_TRY((sends ? rubato_op_send(comm, &values[i], 1, RUBATO_INT64, 1 - rank,
						       first + i, &ops[i])
				      : rubato_op_recv(comm, &values[i], 1, RUBATO_INT64, 1 - rank,
						       first + i, &ops[i])));
			RB_TRY(rubato_start(ops[i]));
		}
		if (!sends)
			RB_TRY(rubato_send(comm, &go, 1, RUBATO_INT64, 1 - rank, GO));
		EXPECT(flows_count(comm) < COUNT_MAX + WINDOW);
		for (uint32_t i = 0; i < WINDOW; i++) {
			RB_TRY(rubato_wait(ops[i], 0));
			EXPECT(values[i] == first + i);
			rubato_op_free(ops[i]);
		}
	}
	EXPECT(flows_count(comm) < COUNT_MAX);
	return RUBATO_OK;
}

/* What has come is received last sent first, when its flows were forgotten where it was sent. */
#define LATE (3 * RB_FLOWS_MAX)

static rubato_status late_main(rubato_comm *comm, void *arg)
{
	int64_t value = 0;

	(void)arg;
	if (rubato_rank(comm) == 0) {
		for (uint32_t turn = 0; turn < 2; turn++)
			for (uint32_t tag = 0; tag < LATE; tag++) {
				value = 2 * (int64_t)tag + turn;
				RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag));
			}
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, GO));
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, GO));
		EXPECT(flows_count(comm) <= RB_FLOWS_MAX + 3 && all_told(comm));
		return RUBATO_OK;
	}
	RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, GO));
	for (uint32_t tag = LATE; tag-- > 0;)
		for (uint32_t turn = 0; turn < 2; turn++) {
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, tag));
			EXPECT(value == 2 * (int64_t)tag + turn);
		}
	EXPECT(flows_count(comm) <= RB_FLOWS_MAX + 3);
	return rubato_send(comm, &value, 1, RUBATO_INT64, 0, GO);
}

/* All has come, and that flows were forgotten, before the first receive. */
static rubato_status unasked_main(rubato_comm *comm, void *arg)
{
	int64_t value;

	(void)arg;
	for (uint32_t tag = 0; rubato_rank(comm) == 0 && tag < LATE; tag++) {
		value = tag;
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag));
	}
	RB_TRY(rubato_barrier(comm));
	for (uint32_t tag = 0; rubato_rank(comm) == 1 && tag < LATE; tag++) {
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, tag));
		EXPECT(value == tag);
	}
	return RUBATO_OK;
}

/* Receives that nothing is sent for, and that are taken back, leave nothing. */
static rubato_status idle_main(rubato_comm *comm, void *arg)
{
	int64_t value = 0;
	rubato_op *op;

	(void)arg;
	if (rubato_rank(comm) == 0)
		return rubato_send(comm, &value, 1, RUBATO_INT64, 1, GO);
	for (uint32_t tag = 0; tag < 2000; tag++) {
		RB_TRY(rubato_op_recv(comm, &value, 1, RUBATO_INT64, 0, tag, &op));
		RB_TRY(rubato_start(op));
		EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
		rubato_op_free(op);
	}
	EXPECT(flows_count(comm) == 1);
	return rubato_recv(comm, &value, 1, RUBATO_INT64, 0, GO);
}

/* A send is taken back when its flow was forgotten: no new one loses a number for it. */
static rubato_status taken_back_main(rubato_comm *comm, void *arg)
{
	int64_t *large = calloc(LARGE, sizeof(*large)), value = 0;
	rubato_op *op;

	(void)arg;
	for (uint32_t turn = 0; turn < 4; turn++) {
		uint32_t tag = 1000000 + turn / 2;

		if (rubato_rank(comm) == 0) {
			RB_TRY(rubato_op_send(comm, large, LARGE, RUBATO_INT64, 1, tag, &op));
			RB_TRY(rubato_start(op));
			for (uint32_t i = 0; i <= RB_FLOWS_MAX; i++)
				RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1,
						   i + turn * RB_FLOWS_MAX));
			value = 7 + turn;
			if (turn % 2 != 0)
				RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag));
			EXPECT(rubato_cancel(op) == RUBATO_ERR_CANCELLED);
			rubato_op_free(op);
			if (turn % 2 == 0)
				RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag));
			RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, GO));
			continue;
		}
		for (uint32_t i = 0; i <= RB_FLOWS_MAX; i++)
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0,
					   i + turn * RB_FLOWS_MAX));
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, GO));
		RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, tag));
		EXPECT(value == 7 + turn);
	}
	free(large);
	return RUBATO_OK;
}

/* The first message after a flow was forgotten is void, and may come before that is known. */
static rubato_status void_send_main(rubato_comm *comm, int64_t *large[3], uint32_t turn)
{
	int64_t value = 0;
	rubato_op *ops[3];
	uint32_t tag = 1, count = RB_FLOWS_MAX;
	bool gone;

	RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1, GO));
	for (uint32_t before = 0; before <= flows_count(comm); tag++) { /* It begins anew. */
		before = flows_count(comm);
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag));
	}
	for (; count > 1; count--) /* The next flow is one too many. */
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, tag++));
	for (uint32_t i = 0; i < 3; i++) {
		large[i][0] = large[i][LARGE - 1] = 10 * turn + i;
		RB_TRY(rubato_op_send(comm, large[i], LARGE, RUBATO_INT64, 1, 1000000 + turn,
				      &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	gone = rubato_cancel(ops[0]) == RUBATO_ERR_CANCELLED; /* Or it was received meanwhile. */
	value = gone ? -(int64_t)tag : tag;
	RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 1, GO));
	RB_TRY(rubato_wait(ops[1], 0));
	if (gone)
		RB_TRY(rubato_wait(ops[2], 0));
	for (uint32_t i = 0; i < 3; i++)
		rubato_op_free(ops[i]);
	return RUBATO_OK;
}

static rubato_status void_main(rubato_comm *comm, void *arg)
{
	int64_t *large[3], value = 0, tags;
	rubato_op *ops[2];

	(void)arg;
	for (uint32_t i = 0; i < 3; i++)
		large[i] = calloc(LARGE, sizeof(int64_t));
	for (uint32_t turn = 0; turn < 4; turn++) {
		int64_t first = 10 * turn, *late;

		if (rubato_rank(comm) == 0) {
			RB_TRY(void_send_main(comm, large, turn));
			continue;
		}
		for (uint32_t i = 0; i < 2; i++) {
			RB_TRY(rubato_op_recv(comm, large[i], LARGE, RUBATO_INT64, 0,
					      1000000 + turn, &ops[i]));
			RB_TRY(rubato_start(ops[i]));
		}
		RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, 0, GO));
		RB_TRY(rubato_wait(ops[0], 0));
		RB_TRY(rubato_wait(ops[1], 0));
		RB_TRY(rubato_recv(comm, &tags, 1, RUBATO_INT64, 0, GO));
		/* The second one may have met its message before the first one met what is void. */
		first += tags < 0;
		late = large[tags > 0 || large[0][0] == first];
		EXPECT(large[0][0] + large[1][0] == 2 * first + 1 && late[0] == first + 1);
		EXPECT(late[LARGE - 1] == first + 1);
		for (uint32_t tag = 1; tag < llabs(tags); tag++)
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 0, tag));
		rubato_op_free(ops[0]);
		rubato_op_free(ops[1]);
	}
	for (uint32_t i = 0; i < 3; i++)
		free(large[i]);
	return RUBATO_OK;
}

/* ---- Random ---- */

#define SENDS 2400
#define TAGS 1500

/* What is sent in a turn, which both ranks know: message i has tags[i], and is the orders[i]-th of
 * it. */
struct plan {
	uint32_t tags[SENDS], orders[SENDS], counts[TAGS];
};

static void plan_draw(struct plan *plan, struct rb_rng *rng)
{
	memset(plan, 0, sizeof(*plan));
	for (uint32_t i = 0; i < SENDS; i++) {
		plan->tags[i] = (uint32_t)rb_rng_below(rng, TAGS);
		plan->orders[i] = plan->counts[plan->tags[i]]++;
	}
}

static int64_t value_of(uint32_t turn, uint32_t tag, uint32_t order)
{
	return (int64_t)turn << 40 | (int64_t)tag << 20 | order;
}

static rubato_status plan_send(rubato_comm *comm, const struct plan *plan, uint32_t turn,
			       struct rb_rng *rng)
{
	uint32_t peer = 1 - rubato_rank(comm);
	rubato_op *ops[64];
	int64_t values[64];
	uint32_t count = 0;

	for (uint32_t i = 0; i < SENDS; i++) {
		values[count] = value_of(turn, plan->tags[i], plan->orders[i]);
		if (rb_rng_below(rng, 2) == 0) {
			RB_TRY(rubato_send(comm, &values[count], 1, RUBATO_INT64, peer,
					   plan->tags[i]));
		} else {
			RB_TRY(rubato_op_send(comm, &values[count], 1, RUBATO_INT64, peer,
					      plan->tags[i], &ops[count]));
			RB_TRY(rubato_start(ops[count++]));
		}
		while (count == 64 || (i + 1 == SENDS && count > 0)) {
			RB_TRY(rubato_wait(ops[--count], 0));
			rubato_op_free(ops[count]);
		}
	}
	return RUBATO_OK;
}

struct receive {
	rubato_op *op;
	int64_t value;
	uint32_t tag;
};

/* Some receives are started before anything is sent, of which some are taken back. */
static rubato_status plan_receive(rubato_comm *comm, const struct plan *plan, uint32_t turn,
				  struct rb_rng *rng)
{
	struct receive *receives = calloc(SENDS, sizeof(*receives));
	uint32_t peer = 1 - rubato_rank(comm), count = 0, left[TAGS], next[TAGS] = { 0 };
	int64_t value = 0;

	memcpy(left, plan->counts, sizeof(left));
	for (uint32_t i = 0; i < SENDS; i++) {
		struct receive *r = &receives[count];

		if (plan->tags[i] % 3 == 0 || rb_rng_below(rng, 3) == 0)
			continue;
		r->tag = plan->tags[i];
		RB_TRY(rubato_op_recv(comm, &r->value, 1, RUBATO_INT64, peer, r->tag, &r->op));
		RB_TRY(rubato_start(r->op));
		count++;
	}
	for (uint32_t i = 0; i < count; i++)
		if (rb_rng_below(rng, 4) == 0) {
			EXPECT(rubato_cancel(receives[i].op) == RUBATO_ERR_CANCELLED);
			rubato_op_free(receives[i].op);
			receives[i].op = NULL;
		}
	RB_TRY(rubato_send(comm, &value, 1, RUBATO_INT64, peer, GO));
	for (uint32_t i = 0; i < count; i++) {
		if (receives[i].op == NULL)
			continue;
		RB_TRY(rubato_wait(receives[i].op, 0));
		EXPECT(receives[i].value ==
		       value_of(turn, receives[i].tag, next[receives[i].tag]++));
		left[receives[i].tag]--;
		rubato_op_free(receives[i].op);
	}
	for (uint32_t tag = TAGS; tag-- > 0;)
		for (; left[tag] > 0; left[tag]--) {
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, peer, tag));
			EXPECT(value == value_of(turn, tag, next[tag]++));
		}
	EXPECT(flows_count(comm) < COUNT_MAX + TAGS);
	free(receives);
	return RUBATO_OK;
}

static rubato_status random_main(rubato_comm *comm, void *arg)
{
	uint64_t seed = *(const uint64_t *)arg;
	struct rb_rng common = { seed }, own = { seed * 2 + rubato_rank(comm) + 1 };
	struct plan *plan = calloc(1, sizeof(*plan));

	for (uint32_t turn = 0; turn < 4; turn++) {
		int64_t value;

		plan_draw(plan, &common);
		if (turn % 2 == rubato_rank(comm)) {
			RB_TRY(rubato_recv(comm, &value, 1, RUBATO_INT64, 1 - turn % 2, GO));
			RB_TRY(plan_send(comm, plan, turn, &own));
		} else {
			RB_TRY(plan_receive(comm, plan, turn, &own));
		}
	}
	free(plan);
	return RUBATO_OK;
}

static void run_ranks(local_main rank_main, uint64_t seed)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = 2;
	options.seed = seed;
	options.reorder = 1;
	options.jitter = 3;
	options.ranks_per_node = seed % 2 == 0 ? 0 : 2;
	if (strcmp(transport_name, "sim") != 0)
		err = local_run(2, transports, rank_main, &seed, NULL);
	else
		err = rubato_sim_run(&options, rank_main, &seed, &result);
	ck_assert_msg(err == RUBATO_OK, "seed %llu: %s: %s", (unsigned long long)seed,
		      rubato_status_name(err), rubato_error_text());
}

static const struct {
	const char *name;
	local_main main;
} programs[] = {
	{ "blocking", many_blocking },
	{ "persistent", many_persistent },
	{ "late", late_main },
	{ "idle", idle_main },
	{ "taken back", taken_back_main },
	{ "unasked", unasked_main },
	{ "void", void_main },
};

START_TEST(flows_are_forgotten)
{
	uint32_t seeds = strcmp(transport_name, "sim") == 0 && _i > 1 ? 10 : 2;

	for (uint64_t seed = 1; seed <= seeds; seed++)
		run_ranks(programs[_i].main, seed);
}
END_TEST

START_TEST(random_messages_meet)
{
	uint32_t seeds = test_length() == TEST_SHORT ? 2 : 10;

	for (uint64_t seed = 1; seed <= seeds; seed++)
		run_ranks(random_main, seed);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("flows");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, flows_are_forgotten, 0,
			    (int)(sizeof(programs) / sizeof(programs[0])));
	tcase_add_test(tc, random_messages_meet);
	return check_main("flows", tc);
}
