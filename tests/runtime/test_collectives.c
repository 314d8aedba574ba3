/*
 * test_collectives.c -- every operation, algorithm, type, operator and form, with real
 * communicators on ranks that are threads of this process, or simulated. The transport as argument:
 * shm, ucx, sim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/reduce/half.h"
#include "rubato_sim.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/exercise.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

static const struct rb_transport_ops *transports[2];
static bool simulated;

/* Ranks as threads; simulated, as fibers: on one node, each on its own, and on several nodes. */
static rubato_status job_run(uint32_t n, local_main rank_main, void *arg)
{
	rubato_sim_options options = RUBATO_SIM_OPTIONS_INIT;
	rubato_sim_result result;
	rubato_status err;

	if (!simulated)
		return local_run(n, transports, rank_main, arg, NULL);
	options.rank_count = n;
	options.seed = n;
	options.ranks_per_node = n;
	err = rubato_sim_run(&options, rank_main, arg, &result);
	if (err == RUBATO_OK) {
		options.ranks_per_node = 0;
		options.reorder = 1;
		options.jitter = 1;
		err = rubato_sim_run(&options, rank_main, arg, &result);
	}
	if (err == RUBATO_OK && n > 2) { /* Several nodes, the last one smaller perhaps. */
		options.ranks_per_node = n % 2 + 2;
		err = rubato_sim_run(&options, rank_main, arg, &result);
	}
	if (err != RUBATO_OK)
		fprintf(stderr, "simulated: %s\n", rubato_error_text());
	return err;
}

static const uint32_t rank_counts[] = { 1, 2, 3, 4, 5, 7, 8, 12 };
static const char *const kinds[] = {
	"barrier",   "broadcast",  "reduce", "allreduce", "reduce_scatter", "reduce_scatterv",
	"allgather", "allgatherv", "gather", "scatter",   "alltoall",       "alltoallv",
};
#define KINDS 12
#define REDUCING_FIRST 2 /* reduce to reduce_scatterv. */
#define REDUCING_LAST 5

struct sweep {
	const char *kind;
	uint32_t skipped; /* Algorithms that cannot run on this transport, by rank 0's word. */
	uint32_t ran;
};

/* One combination; algorithms that need what the transport lacks are counted, not passed over. */
static rubato_status one(rubato_comm *comm, struct sweep *sweep, const struct exercise *e)
{
	uint64_t hash = 0, low, high;
	rubato_status err = exercise_run(comm, e, &hash);
	bool everywhere = strcmp(e->kind, "allreduce") == 0 || strcmp(e->kind, "broadcast") == 0 ||
			  strncmp(e->kind, "allgather", 9) == 0;

	if (err == RUBATO_ERR_UNSUPPORTED) {
		if (rubato_rank(comm) == 0)
			sweep->skipped++;
		return RUBATO_OK;
	}
	RB_TRY(err);
	if (rubato_rank(comm) == 0)
		sweep->ran++;
	if (!everywhere)
		return RUBATO_OK;
	hash >>= 1; /* As int64: no sign. */
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "auto"));
	RB_TRY(rubato_allreduce(comm, &hash, &low, 1, RUBATO_INT64, RUBATO_MIN));
	RB_TRY(rubato_allreduce(comm, &hash, &high, 1, RUBATO_INT64, RUBATO_MAX));
	return low == high ? RUBATO_OK
			   : RB_FAIL(RUBATO_ERR_MISMATCH, "%s %s: ranks hold different bits",
				     e->kind, e->algorithm);
}

/* In place or not, plain or allocated memory (or both mixed), blocking, persistent,
 * non-blocking. */
#define FORMS 12

static rubato_status one_form(rubato_comm *comm, struct sweep *sweep, struct exercise e,
			      uint32_t form)
{
	e.in_place = form & 1;
	e.allocated = form & 2;
	e.persistent = form / 4 == 1;
	e.nonblocking = form / 4 == 2;
	e.mixed = form == 3 || form == 6 || form == 10;
	if (e.mixed && strcmp(e.algorithm, "direct") == 0 && strcmp(e.kind, "reduce") == 0)
		e.mixed = false;
	return one(comm, sweep, &e);
}

/* Each combination by each form: over shared memory. Less shows what is a transport's own. */
static bool is_thorough(void)
{
	return test_length() != TEST_SHORT && transports[0] == &rb_transport_shm && !simulated;
}

/* A third of the forms: three turns in a row are all of them. Or one, where it takes long: twelve
 * turns are. */
static rubato_status forms(rubato_comm *comm, struct sweep *sweep, const struct exercise *e,
			   uint32_t turn)
{
	bool large = e->count * rubato_size(comm) > 200000;
	uint32_t step = large || !is_thorough() ? FORMS : 3;

	for (uint32_t form = turn % step; form < FORMS; form += step)
		RB_TRY(one_form(comm, sweep, *e, form));
	return RUBATO_OK;
}

/* Many ranks on few cores take their time, and so does everything under ThreadSanitizer: then every
 * third count, or every ninth. */
static uint32_t counts_skipped(uint32_t n)
{
	if (test_length() != TEST_SHORT)
		return n > 3 ? 3 : 1;
	return transports[0] == &rb_transport_shm && !test_is_threads_only() ? 3 : 9;
}

static rubato_status sweep_main(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { 0, 1, 2, 3, 7, 64, 1000, 4097, 40009 };
	struct sweep *sweep = arg;
	uint32_t n = rubato_size(comm), variant = 0;
	const char *algorithm;

	for (uint32_t a = 0; (algorithm = exercise_algorithm(sweep->kind, a)) != NULL; a++) {
		uint32_t turn = 0;

		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
			if ((c + a + n) % counts_skipped(n) != 0)
				continue;
			struct exercise e = {
				.kind = sweep->kind,
				.algorithm = algorithm,
				.count = counts[c],
				.type = (rubato_type)(variant % RUBATO_TYPE_COUNT),
				.op = (rubato_operator)(variant / 3 % RUBATO_OPERATOR_COUNT),
				.root = variant % n,
				.times = n > 3 ? 2 : 3,
				.salt = variant * 977 + n,
			};

			if (!is_thorough())
				turn = variant * 5 + n; /* 5 and FORMS have no common divisor. */
			variant++;
			RB_TRY(forms(comm, sweep, &e, turn++));
		}
	}
	return RUBATO_OK;
}

/* UCX under ThreadSanitizer takes minutes for what takes seconds elsewhere. */
static uint32_t ranks_wanted(void)
{
	if (test_length() != TEST_SHORT)
		return UINT32_MAX;
	if (transports[0] != &rb_transport_shm)
		return 2;
	return test_is_threads_only() || test_is_interpreted() ? 3 : 5;
}

/* Short: simulated are two ranks, and five, which are on uneven nodes; of types a quarter. What
 * executes steps and the kernels are the same over shared memory. */
static bool is_wanted(uint32_t n, bool types)
{
	if (test_length() == TEST_SHORT && simulated && (types ? n != 3 : n == 3 || n == 4))
		return false;
	return n <= ranks_wanted();
}

START_TEST(every_algorithm_gives_right_values)
{
	struct sweep sweep = { .kind = kinds[_i % KINDS] };
	uint32_t n = rank_counts[_i / KINDS];

	if (!is_wanted(n, false))
		return;
	ck_assert_int_eq(job_run(n, sweep_main, &sweep), RUBATO_OK);
	ck_assert_uint_gt(sweep.ran, 0);
}
END_TEST

/* Short: of the four kinds one for each pair, with each rank count another. */
static rubato_status types_main(rubato_comm *comm, void *arg)
{
	struct sweep *sweep = arg;
	uint32_t n = rubato_size(comm);

	for (uint32_t t = 0; t < RUBATO_TYPE_COUNT; t++) {
		for (uint32_t o = 0; o < RUBATO_OPERATOR_COUNT; o++) {
			for (uint32_t k = REDUCING_FIRST; k <= REDUCING_LAST; k++) {
				if (test_length() == TEST_SHORT && (k + o + t) % 4 != n % 4)
					continue;
				struct exercise e = { .kind = kinds[k],
						      .algorithm = "auto",
						      .count = 1237,
						      .type = (rubato_type)t,
						      .op = (rubato_operator)o,
						      .times = 2,
						      .salt = t * 100 + o };

				RB_TRY(one_form(comm, sweep, e, (k + o + t) % FORMS));
			}
		}
	}
	return RUBATO_OK;
}

START_TEST(every_type_and_operator)
{
	static const uint32_t counts[] = { 1, 2, 3, 4 };
	struct sweep sweep = { 0 };

	if (!is_wanted(counts[_i], true))
		return;
	ck_assert_int_eq(job_run(counts[_i], types_main, &sweep), RUBATO_OK);
	ck_assert_uint_eq(sweep.skipped, 0);
}
END_TEST

/* ---- 16-bit floats, accumulated in float32 over the whole reduction ---- */

static rubato_status whole_main(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { 5, 70001 }; /* The larger one in several slices. */
	static const rubato_operator operators[] = { RUBATO_SUM, RUBATO_AVG, RUBATO_PROD };
	struct sweep *sweep = arg;
	uint32_t n = rubato_size(comm);
	const char *algorithm;

	for (uint32_t k = REDUCING_FIRST; k <= REDUCING_LAST; k++) {
		for (uint32_t a = 0; (algorithm = exercise_algorithm(kinds[k], a)) != NULL; a++) {
			struct exercise e = {
				.kind = kinds[k],
				.algorithm = algorithm,
				.count = counts[(a + n) % 2],
				.type = a / 2 % 2 ? RUBATO_FLOAT16 : RUBATO_BFLOAT16,
				.op = operators[(a + k) % 3],
				.accumulate = RUBATO_ACCUMULATE_WHOLE,
				.root = 1,
				.times = 2,
				.salt = k * 31 + a,
			};

			RB_TRY(forms(comm, sweep, &e, a + 3 * k));
			if (test_length() == TEST_SHORT) /* Another number of ranks has it. */
				continue;
			e.count = counts[(a + n + 1) % 2];
			RB_TRY(one(comm, sweep, &e));
		}
	}
	return RUBATO_OK;
}

START_TEST(whole_accumulation_gives_right_values)
{
	struct sweep sweep = { 0 };
	uint32_t n = 2 + (uint32_t)_i;

	if (n > ranks_wanted() || (test_length() == TEST_SHORT && n > 3))
		return;
	ck_assert_int_eq(local_run(n, transports, whole_main, &sweep, NULL), RUBATO_OK);
	ck_assert_uint_gt(sweep.ran, 0);
}
END_TEST

#define ROUNDING_COUNT 999

static double rounding_input(uint32_t rank, uint64_t i)
{
	return (double)(rb_mix(rank * 7919 + i) % 4096) - 1024; /* 2048 and more: even ones. */
}

/* How many elements are not the exact sum, rounded once. */
static rubato_status rounding_call(rubato_comm *comm, rubato_accumulate accumulate, uint32_t *wrong)
{
	uint32_t n = rubato_size(comm);
	uint16_t in[ROUNDING_COUNT], out[ROUNDING_COUNT];

	for (uint64_t i = 0; i < ROUNDING_COUNT; i++)
		in[i] = rb_f16_narrow((float)rounding_input(rubato_rank(comm), i));
	RB_TRY(rubato_set_accumulate(comm, accumulate));
	RB_TRY(rubato_allreduce(comm, in, out, ROUNDING_COUNT, RUBATO_FLOAT16, RUBATO_SUM));
	*wrong = 0;
	for (uint64_t i = 0; i < ROUNDING_COUNT; i++) {
		float sum = 0; /* Exact: integers below 2^24. */

		for (uint32_t r = 0; r < n; r++)
			sum += rb_f16_widen(rb_f16_narrow((float)rounding_input(r, i)));
		*wrong += out[i] != rb_f16_narrow(sum);
	}
	return RUBATO_OK;
}

static rubato_status rounding_main(rubato_comm *comm, void *arg)
{
	uint32_t *wrong = arg; /* Rank 0's. */
	uint32_t mine[2];

	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring")); /* n - 1 steps of two operands. */
	RB_TRY(rounding_call(comm, RUBATO_ACCUMULATE_STEP, &mine[0]));
	RB_TRY(rounding_call(comm, RUBATO_ACCUMULATE_WHOLE, &mine[1]));
	if (rubato_rank(comm) == 0)
		memcpy(wrong, mine, sizeof(mine));
	return RUBATO_OK;
}

START_TEST(whole_accumulation_rounds_once)
{
	uint32_t wrong[2] = { 0, UINT32_MAX }, n = 5;

	if (n > ranks_wanted())
		return;
	ck_assert_int_eq(local_run(n, transports, rounding_main, wrong, NULL), RUBATO_OK);
	ck_assert_uint_gt(wrong[0], 0); /* There was something to do better. */
	ck_assert_uint_eq(wrong[1], 0);
}
END_TEST

static rubato_status large_main(rubato_comm *comm, void *arg)
{
	/* One kind of memory; short, in the simulator, that of a third of the algorithms. */
	uint32_t step = is_thorough() ? 1 : simulated && test_length() == TEST_SHORT ? 6 : 2;
	struct sweep *sweep = arg;
	const char *algorithm;

	for (uint32_t k = 1; k < KINDS; k++) {
		for (uint32_t a = 0; (algorithm = exercise_algorithm(kinds[k], a)) != NULL; a++) {
			comm->engine.past_bytes = (k + a / 2) % 2; /* Of half of them, past. */
			struct exercise e = { .kind = kinds[k],
					      .algorithm = algorithm,
					      .count = 300007,
					      .root = rubato_size(comm) - 1,
					      .times = 2,
					      .salt = k * 31 + a };

			for (uint32_t allocated = 0; allocated < 2; allocated++) {
				if ((allocated + a + rubato_size(comm)) % step != 0)
					continue;
				e.allocated = allocated;
				RB_TRY(one(comm, sweep, &e));
			}
		}
	}
	return RUBATO_OK;
}

/* Short: two ranks or three, the more that there may be. Simulated: four else, on several nodes. */
START_TEST(large_vectors)
{
	static const uint32_t counts[] = { 2, 3, 4 };
	struct sweep sweep = { 0 };
	uint32_t n = counts[_i];

	if (n > ranks_wanted())
		return;
	if (test_length() == TEST_SHORT && n != (ranks_wanted() < 3 ? 2 : 3))
		return;
	if (test_length() == TEST_NORMAL && simulated && n != 4)
		return;
	ck_assert_int_eq(job_run(n, large_main, &sweep), RUBATO_OK);
	ck_assert_uint_gt(sweep.ran, 0);
}
END_TEST

/* Everybody sends to everybody, large and small, in an order that differs from the receives'. */
static rubato_status messages_main(rubato_comm *comm, void *arg)
{
	static const uint64_t counts[] = { 0, 1, 5, 100, 10000, 300000 };
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm);
	rubato_op *ops[64];
	int32_t *buffers[64];
	uint32_t made = 0;

	(void)arg;
	for (size_t c = 0; c < 6; c++) {
		for (uint32_t peer = 0; peer < n; peer++) {
			int32_t *in = malloc((counts[c] + 1) * sizeof(*in));

			RB_TRY(rubato_op_recv(comm, in, counts[c], RUBATO_INT32, peer, 7,
					      &ops[made]));
			buffers[made] = in;
			RB_TRY(rubato_start(ops[made++]));
		}
	}
	for (size_t c = 0; c < 6; c++) {
		int32_t *out = malloc((counts[c] + 1) * sizeof(*out));

		for (uint64_t i = 0; i < counts[c]; i++)
			out[i] = (int32_t)(rank * 1000003 + c * 101 + i);
		for (uint32_t peer = n; peer-- > 0;)
			RB_TRY(rubato_send(comm, out, counts[c], RUBATO_INT32, peer, 7));
		free(out);
	}
	for (uint32_t m = 0; m < made; m++) {
		size_t c = m / n;

		RB_TRY(rubato_wait(ops[m], RUBATO_TIMEOUT_DEFAULT));
		for (uint64_t i = 0; i < counts[c]; i++)
			if (buffers[m][i] != (int32_t)(m % n * 1000003 + c * 101 + i))
				return RB_FAIL(RUBATO_ERR_MISMATCH, "message %u element %llu", m,
					       (unsigned long long)i);
		rubato_op_free(ops[m]);
		free(buffers[m]);
	}
	return RUBATO_OK;
}

START_TEST(messages_in_order)
{
	static const uint32_t counts[] = { 1, 2, 3, 5 };

	ck_assert_int_eq(job_run(counts[_i], messages_main, NULL), RUBATO_OK);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("collectives");
	TCase *tc = tcase_create("values");

	transports[0] = local_transport(argc > 1 ? argv[1] : "shm");
	simulated = argc > 1 && strcmp(argv[1], "sim") == 0;
	tcase_set_timeout(tc, 900);
	tcase_add_loop_test(tc, every_algorithm_gives_right_values, 0,
			    KINDS * (int)(sizeof(rank_counts) / sizeof(rank_counts[0])));
	tcase_add_loop_test(tc, every_type_and_operator, 0, 4);
	tcase_add_loop_test(tc, whole_accumulation_gives_right_values, 0, 3);
	tcase_add_test(tc, whole_accumulation_rounds_once);
	tcase_add_loop_test(tc, large_vectors, 0, 3);
	tcase_add_loop_test(tc, messages_in_order, 0, 4);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
