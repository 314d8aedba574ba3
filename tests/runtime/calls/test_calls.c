/*
 * test_calls.c -- rank 1 calls something else than the others, or a little of it, again and again:
 * every rank learns it, with both sides in the text, though no two of them may ever wait for each
 * other. Name of the transport as argument: shm, ucx, tcp, sim.
 */
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "transport/transport.h"

#define COUNT 64

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

struct side {
	enum rb_kind kind;
	uint64_t count;
	uint32_t root;
	const char *algorithm; /* NULL: its own choice. */
};

static const struct row {
	const char *name;
	struct side all, one; /* What rank 1 calls. */
	uint32_t times;
} rows[] = {
	{ "broadcast roots",
	  { RB_KIND_BROADCAST, 64, 0, NULL },
	  { RB_KIND_BROADCAST, 64, 1, NULL },
	  200 },
	{ "one broadcast",
	  { RB_KIND_BROADCAST, 64, 0, NULL },
	  { RB_KIND_BROADCAST, 64, 1, NULL },
	  1 },
	{ "scatter roots",
	  { RB_KIND_SCATTER, 16, 2, NULL },
	  { RB_KIND_SCATTER, 16, 1, NULL },
	  200 },
	{ "broadcast, reduce",
	  { RB_KIND_BROADCAST, 64, 1, NULL },
	  { RB_KIND_REDUCE, 64, 1, NULL },
	  200 },
	{ "reduce, broadcast",
	  { RB_KIND_REDUCE, 64, 0, NULL },
	  { RB_KIND_BROADCAST, 64, 1, NULL },
	  200 },
	{ "gather, scatter",
	  { RB_KIND_GATHER, 16, 0, NULL },
	  { RB_KIND_SCATTER, 16, 1, NULL },
	  200 },
	{ "scatter, gather",
	  { RB_KIND_SCATTER, 16, 0, NULL },
	  { RB_KIND_GATHER, 16, 0, NULL },
	  200 },
	{ "gather roots", { RB_KIND_GATHER, 16, 0, NULL }, { RB_KIND_GATHER, 16, 1, NULL }, 1 },
	{ "reduce roots", { RB_KIND_REDUCE, 16, 0, NULL }, { RB_KIND_REDUCE, 16, 1, NULL }, 1 },
	{ "count 0", { RB_KIND_ALLREDUCE, 64, 0, NULL }, { RB_KIND_ALLREDUCE, 0, 0, NULL }, 1 },
	{ "count 0 of many",
	  { RB_KIND_ALLREDUCE, 0, 0, NULL },
	  { RB_KIND_ALLREDUCE, 64, 0, NULL },
	  1 },
	{ "count 0 broadcast",
	  { RB_KIND_BROADCAST, 64, 1, NULL },
	  { RB_KIND_BROADCAST, 0, 1, NULL },
	  1 },
	{ "algorithms",
	  { RB_KIND_ALLREDUCE, 64, 0, "recursive_doubling" },
	  { RB_KIND_ALLREDUCE, 64, 0, "recursive_halving_doubling" },
	  1 },
	{ "ring and flat",
	  { RB_KIND_ALLREDUCE, 64, 0, "ring" },
	  { RB_KIND_ALLREDUCE, 64, 0, "flat" },
	  1 },
	{ "chain and binomial",
	  { RB_KIND_BROADCAST, 64, 0, "chain" },
	  { RB_KIND_BROADCAST, 64, 0, "binomial" },
	  1 },
	{ "one call less", { RB_KIND_BROADCAST, 64, 0, NULL }, { RB_KIND_NONE, 0, 0, NULL }, 1 },
	{ "one call more", { RB_KIND_NONE, 0, 0, NULL }, { RB_KIND_BROADCAST, 64, 1, NULL }, 1 },
	{ "one barrier less", { RB_KIND_BARRIER, 0, 0, NULL }, { RB_KIND_NONE, 0, 0, NULL }, 1 },
	{ "one barrier more", { RB_KIND_NONE, 0, 0, NULL }, { RB_KIND_BARRIER, 0, 0, NULL }, 1 },
	{ "accumulate", { RB_KIND_ALLREDUCE, 64, 0, NULL }, { RB_KIND_CONTROL, 64, 0, NULL }, 1 },
};
#define ROWS (int)(sizeof(rows) / sizeof(rows[0]))

static rubato_status call(rubato_comm *comm, const struct side *side, void *in, void *out)
{
	if (side->algorithm != NULL)
		RB_TRY(rubato_set_algorithm(comm, rb_kind_name(side->kind), side->algorithm));
	switch (side->kind) {
	case RB_KIND_BROADCAST:
		return rubato_broadcast(comm, out, side->count, RUBATO_FLOAT32, side->root);
	case RB_KIND_REDUCE:
		return rubato_reduce(comm, in, out, side->count, RUBATO_FLOAT32, RUBATO_SUM,
				     side->root);
	case RB_KIND_GATHER:
		return rubato_gather(comm, in, out, side->count, RUBATO_FLOAT32, side->root);
	case RB_KIND_SCATTER:
		return rubato_scatter(comm, in, out, side->count, RUBATO_FLOAT32, side->root);
	case RB_KIND_BARRIER:
		return rubato_barrier(comm);
	case RB_KIND_ALLREDUCE:
		return rubato_allreduce(comm, in, out, side->count, RUBATO_FLOAT16, RUBATO_SUM);
	case RB_KIND_CONTROL: /* The same, accumulated otherwise. */
		RB_TRY(rubato_set_accumulate(comm, RUBATO_ACCUMULATE_WHOLE));
		return rubato_allreduce(comm, in, out, side->count, RUBATO_FLOAT16, RUBATO_SUM);
	default:
		return RUBATO_OK;
	}
}

/* Simulated ranks are ended by who runs them. */
static bool simulated(void)
{
	return strcmp(transport_name, "sim") == 0;
}

/* Whether a rank learnt what it must: while it called, or at its end. */
static rubato_status learnt(rubato_comm *comm, const char *name, rubato_status err,
			    const char *word)
{
	rubato_status end = RUBATO_OK;
	char text[300];

	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	if (simulated() && err == RUBATO_OK)
		return RUBATO_OK;
	if (!simulated())
		end = rubato_finalize(comm);
	if (err == RUBATO_OK) {
		err = end;
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	}
	if (err != RUBATO_ERR_MISMATCH || strstr(text, "rank 1") == NULL ||
	    strstr(text, word) == NULL ||
	    (strstr(text, "rank 0") == NULL && strstr(text, "rank 2") == NULL))
		return RB_FAIL(RUBATO_ERR_INTERNAL, "%s: %s: %s", name, rubato_status_name(err),
			       err != RUBATO_OK ? text : "");
	return simulated() ? RB_FAIL(err, "%s", text) : RUBATO_OK;
}

static rubato_status row_main(rubato_comm *comm, void *arg)
{
	const struct row *row = arg;
	const struct side *side = rubato_rank(comm) == 1 ? &row->one : &row->all;
	void *in = calloc(COUNT * 4, 4), *out = calloc(COUNT * 4, 4);
	rubato_status err = RUBATO_OK;

	for (uint32_t i = 0; err == RUBATO_OK && i < row->times; i++)
		err = call(comm, side, in, out);
	err = learnt(comm, row->name, err, row->one.algorithm != NULL ? row->one.algorithm : "");
	free(in);
	free(out);
	return err;
}

/* Whether what ranks make, or send and receive, meets, when they come to their end. */
struct odd {
	const char *name;
	rubato_status (*main)(rubato_comm *comm, bool odd);
};

static rubato_status persistent_kinds(rubato_comm *comm, bool odd)
{
	static float in[3][64], out[3][64];
	uint32_t r = rubato_rank(comm);
	rubato_op *op;

	return odd ? rubato_op_allreduce(comm, in[r], out[r], 64, RUBATO_FLOAT32, RUBATO_SUM, &op)
		   : rubato_op_allreduce(comm, in[r], out[r], 64, RUBATO_FLOAT32, RUBATO_MAX, &op);
}

static rubato_status persistent_roots(rubato_comm *comm, bool odd)
{
	static float buffer[3][8];
	rubato_op *op;

	return rubato_op_broadcast(comm, buffer[rubato_rank(comm)], 8, RUBATO_FLOAT32, odd, &op);
}

static rubato_status persistent_starts(rubato_comm *comm, bool odd)
{
	static float buffer[3][8];
	rubato_op *op;

	RB_TRY(rubato_op_broadcast(comm, buffer[rubato_rank(comm)], 8, RUBATO_FLOAT32, 1, &op));
	for (uint32_t i = 0; i < 2u + odd; i++) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
	}
	return RUBATO_OK;
}

static rubato_status persistent_freed(rubato_comm *comm, bool odd)
{
	static float buffer[3][8];
	rubato_op *op;

	RB_TRY(rubato_op_broadcast(comm, buffer[rubato_rank(comm)], 8, RUBATO_FLOAT32, 1, &op));
	if (odd) {
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
	} else {
		rubato_op_free(op);
	}
	return RUBATO_OK;
}

/* Some start the persistent form of what others call: who calls learns it at its deadline. */
static rubato_status mixed(rubato_comm *comm, bool starts)
{
	static float in[3][64], out[3][64];
	uint32_t r = rubato_rank(comm);
	rubato_op *op;

	RB_TRY(rubato_op_allreduce(comm, in[r], out[r], 64, RUBATO_FLOAT32, RUBATO_SUM, &op));
	if (starts)
		RB_TRY(rubato_start(op));
	RB_TRY(rubato_barrier(comm));
	if (starts && simulated()) { /* Time is not this machine's. */
		rubato_status err = rubato_wait(op, 10 * (uint64_t)RB_OVERDUE_NS);

		if (err != RUBATO_ERR_TIMEOUT ||
		    strstr(rubato_error_text(), " is in allreduce float32 x 64 sum, call 1, which "
						"rank ") == NULL)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wait: %s", rubato_error_text());
	}
	if (starts)
		return rubato_wait(op, RUBATO_TIMEOUT_DEFAULT);
	RB_TRY(rubato_set_timeout(comm, 30 * (uint64_t)RB_OVERDUE_NS));
	return rubato_allreduce(comm, in[r], out[r], 64, RUBATO_FLOAT32, RUBATO_SUM);
}

static rubato_status one_is_persistent(rubato_comm *comm, bool odd)
{
	return mixed(comm, odd);
}

static rubato_status one_is_blocking(rubato_comm *comm, bool odd)
{
	return mixed(comm, !odd);
}

static rubato_status never_received(rubato_comm *comm, bool odd)
{
	float value = 1;

	return odd ? rubato_send(comm, &value, 1, RUBATO_FLOAT32, 2, 77) : RUBATO_OK;
}

static rubato_status lagged_lag(rubato_comm *comm, bool odd)
{
	rubato_lagged *l;

	return rubato_lagged_create(comm, 64, RUBATO_FLOAT32, RUBATO_AVG, 1 + odd, &l);
}

static rubato_status lagged_count(rubato_comm *comm, bool odd)
{
	rubato_lagged *l;

	return rubato_lagged_create(comm, 64 + odd, RUBATO_FLOAT32, RUBATO_AVG, 1, &l);
}

static rubato_status lagged_type(rubato_comm *comm, bool odd)
{
	rubato_lagged *l;

	return rubato_lagged_create(comm, 64, odd ? RUBATO_FLOAT64 : RUBATO_FLOAT32, RUBATO_AVG, 1,
				    &l);
}

static rubato_status lagged_operator(rubato_comm *comm, bool odd)
{
	rubato_lagged *l;

	return rubato_lagged_create(comm, 64, RUBATO_FLOAT32, odd ? RUBATO_SUM : RUBATO_AVG, 1, &l);
}

static const struct odd odds[] = {
	{ "operators of a persistent allreduce", persistent_kinds },
	{ "roots of a persistent broadcast", persistent_roots },
	{ "starts of a persistent broadcast", persistent_starts },
	{ "a persistent broadcast started by one, freed by others", persistent_freed },
	{ "one starts what others call", one_is_persistent },
	{ "one calls what others start", one_is_blocking },
	{ "a message that is never received", never_received },
	{ "lags", lagged_lag },
	{ "lagged counts", lagged_count },
	{ "lagged types", lagged_type },
	{ "lagged operators", lagged_operator },
};
#define ODDS (int)(sizeof(odds) / sizeof(odds[0]))

static rubato_status odd_main(rubato_comm *comm, void *arg)
{
	const struct odd *odd = arg;

	return learnt(comm, odd->name, odd->main(comm, rubato_rank(comm) == 1), "");
}

static void run_ranks(local_main rank_main, const void *arg, rubato_status simulated_end)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	options.rank_count = 3;
	if (!simulated()) {
		err = local_run_raw(3, transports, rank_main, (void *)(uintptr_t)arg, NULL);
		ck_assert_msg(err == RUBATO_OK, "%s", rubato_status_name(err));
	} else {
		err = rubato_sim_run(&options, rank_main, (void *)(uintptr_t)arg, &result);
		ck_assert_msg(result.first_error == simulated_end, "%s: %s",
			      rubato_status_name(err), rubato_error_text());
	}
}

START_TEST(all_learn_of_another_call)
{
	run_ranks(row_main, &rows[_i], RUBATO_ERR_MISMATCH);
}
END_TEST

START_TEST(all_learn_of_what_never_meets)
{
	run_ranks(odd_main, &odds[_i], RUBATO_ERR_MISMATCH);
}
END_TEST

/* On plain memory, so that all learn at creation that they must do otherwise than they chose. */
static rubato_status late_creation(rubato_comm *comm, uint32_t late)
{
	uint64_t *in = calloc(40009, sizeof(*in)), *out = calloc(3 * 40009, sizeof(*out));
	rubato_status err;
	rubato_op *op;

	if (rubato_rank(comm) == late)
		rubato_sleep(comm, 3 * (uint64_t)RB_OVERDUE_NS);
	RB_TRY(rubato_op_allgather(comm, in, out, 40009, RUBATO_UINT64, &op));
	if (rubato_rank(comm) == (late + 1) % 3) /* The other two look at what has come. */
		rubato_sleep(comm, 3 * (uint64_t)RB_OVERDUE_NS);
	RB_TRY(rubato_start(op));
	err = rubato_wait(op, 0);
	rubato_op_free(op);
	free(in);
	free(out);
	return err;
}

/* What one rank is late with, or ahead with, is no mismatch: probes go, and mean nothing. */
static rubato_status late_main(rubato_comm *comm, void *arg)
{
	float in[8] = { 0 }, out[8];
	uint32_t rank = rubato_rank(comm);
	rubato_op *op;

	(void)arg;
	RB_TRY(rubato_op_allreduce(comm, in, out, 8, RUBATO_FLOAT32, RUBATO_SUM, &op));
	for (uint32_t late = 0; late < 3; late++) {
		RB_TRY(late_creation(comm, late));
		if (rank == late)
			rubato_sleep(comm, 3 * (uint64_t)RB_OVERDUE_NS);
		RB_TRY(rubato_allreduce(comm, in, out, 8, RUBATO_FLOAT32, RUBATO_SUM));
		RB_TRY(rubato_gather(comm, in, rank == 2 ? in : NULL, 1, RUBATO_FLOAT32, 2));
		if (rank == late)
			rubato_sleep(comm, 3 * (uint64_t)RB_OVERDUE_NS);
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, 0));
	}
	for (uint32_t i = 0; i < 200; i++)
		RB_TRY(rubato_broadcast(comm, in, 8, RUBATO_FLOAT32, i % 2));
	rubato_op_free(op);
	return simulated() ? RUBATO_OK : rubato_finalize(comm);
}

START_TEST(late_ranks_are_no_mismatch)
{
	run_ranks(late_main, NULL, RUBATO_OK);
}
END_TEST

/* From the start of a communicator on. */
static rubato_status rounding_main(rubato_comm *comm, void *arg)
{
	static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD };
	uint32_t rank = rubato_rank(comm), two = rank < 2 ? 0 : RUBATO_COLOR_NONE;
	float in[64], out[2 * 64];
	rubato_comm *pair;

	(void)arg;
	for (uint32_t i = 0; i < 64; i++)
		in[i] = (float)(rank + i);
	EXPECT(fesetround(modes[rank]) == 0);
	RB_TRY(rubato_split(comm, two, 0, &pair));
	for (uint32_t count = 1; count <= 64 && pair != NULL; count++) {
		RB_TRY(rubato_allgather(pair, in, out, count, RUBATO_FLOAT32));
		EXPECT(out[0] == 0 && out[2 * count - 1] == (float)count);
		RB_TRY(rubato_allreduce(pair, in, out, count, RUBATO_FLOAT32, RUBATO_SUM));
		RB_TRY(rubato_reduce_scatter(pair, in, out, count / 2, RUBATO_FLOAT32, RUBATO_SUM));
	}
	RB_TRY(rubato_finalize(pair));
	EXPECT(fegetround() == modes[rank] && fesetround(FE_TONEAREST) == 0);
	return simulated() ? RUBATO_OK : rubato_finalize(comm);
}

START_TEST(ranks_that_round_differently_choose_alike)
{
	run_ranks(rounding_main, NULL, RUBATO_OK);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("calls");

	side_by_side(4);
	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	if (strcmp(transport_name, "tcp") == 0 && setenv("RUBATO_TRANSPORT", "tcp", 1) != 0)
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, all_learn_of_another_call, 0, ROWS);
	tcase_add_loop_test(tc, all_learn_of_what_never_meets, 0, ODDS);
	tcase_add_test(tc, late_ranks_are_no_mismatch);
	tcase_add_test(tc, ranks_that_round_differently_choose_alike);
	return check_main("calls", tc);
}
