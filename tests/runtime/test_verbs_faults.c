/*
 * test_verbs_faults.c -- whatever a completion of the verbs transport says, both ranks of a job
 * have the right result, or an error that names the other one.
 *
 * Two ranks as threads, on mock devices (tests/verbs-mock). Once the communicator is open, the nth
 * send or receive from there on ends with a status, before or after it was delivered: for every nth
 * until one is too late to fire, and every status that libibverbs has.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "tests/verbs-mock/late.h"
#include "tests/verbs-mock/mock.h"

#define SMALL 64u
#define LARGE 40000u          /* Written, not sent: 160 KB. */
#define NTH_MAX 400u          /* More is a job that goes on for ever. */
#define STEP_SHORT 7u         /* Of nth, where a test is short. */
#define LIMIT_NS 50000000000u /* Of a job with a fault: below the deadline of its waits, 60 s. */

enum where { SEND, SEND_DELIVERED, RECEIVE, WHERES };
static const char *const where_names[WHERES] = { "send", "delivered send", "receive" };

struct job {
	enum where where;
	enum ibv_wc_status status;
	uint64_t nth; /* 0: no fault. */
	int fault;
	bool fired;
	pthread_barrier_t barrier;
	char texts[2][400];
};

static struct {
	int (*reset)(const struct mock_config *config);
	void (*config_default)(struct mock_config *config);
	int (*fail_send)(uint64_t nth, enum ibv_wc_status status, bool delivered);
	int (*fail_receive)(uint64_t nth, enum ibv_wc_status status);
	uint64_t (*fired)(int fault);
	void (*counters)(struct mock_counters *counters);
} mock;

static void mock_find(void)
{
	const struct mock_symbol symbols[] = {
		{ "mock_reset", (void **)&mock.reset },
		{ "mock_config_default", (void **)&mock.config_default },
		{ "mock_fail_send", (void **)&mock.fail_send },
		{ "mock_fail_receive", (void **)&mock.fail_receive },
		{ "mock_fired", (void **)&mock.fired },
		{ "mock_counters", (void **)&mock.counters },
	};

	mock_symbols_find(symbols, sizeof(symbols) / sizeof(symbols[0]));
}

static rubato_status sums(rubato_comm *comm, uint32_t count)
{
	static _Thread_local float in[LARGE], out[LARGE];

	for (uint32_t i = 0; i < count; i++)
		in[i] = (float)(i % 1000 + rubato_rank(comm));
	RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM));
	for (uint32_t i = 0; i < count; i++)
		if (out[i] != (float)(2 * (i % 1000) + 1))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u is %g", i,
				       count, (double)out[i]);
	return RUBATO_OK;
}

static rubato_status calls(rubato_comm *comm)
{
	uint32_t other = 1 - rubato_rank(comm);
	uint64_t word = rubato_rank(comm), got = 7;

	RB_TRY(sums(comm, SMALL));
	RB_TRY(sums(comm, LARGE));
	if (other == 1) {
		RB_TRY(rubato_send(comm, &word, 1, RUBATO_UINT64, other, 3));
		RB_TRY(rubato_recv(comm, &got, 1, RUBATO_UINT64, other, 3));
	} else {
		RB_TRY(rubato_recv(comm, &got, 1, RUBATO_UINT64, other, 3));
		RB_TRY(rubato_send(comm, &word, 1, RUBATO_UINT64, other, 3));
	}
	if (got != other)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: rank %u sent %llu", other,
			       (unsigned long long)got);
	return rubato_barrier(comm);
}

static rubato_status job_main(rubato_comm *comm, void *arg)
{
	struct job *job = arg;
	uint32_t rank = rubato_rank(comm);
	rubato_status status;

	(void)pthread_barrier_wait(&job->barrier); /* Both are open. */
	if (rank == 0 && job->nth > 0)
		job->fault = job->where == RECEIVE ? mock.fail_receive(job->nth, job->status)
						   : mock.fail_send(job->nth, job->status,
								    job->where == SEND_DELIVERED);
	(void)pthread_barrier_wait(&job->barrier);
	status = calls(comm);
	if (status != RUBATO_OK)
		(void)snprintf(job->texts[rank], sizeof(job->texts[rank]), "%s: %s",
			       rubato_status_name(status), rubato_error_text());
	/* Who waits outside now would not answer the other one, whose last message may be lost. */
	return RUBATO_OK;
}

/* What a completion said ends with its status: "(12)". */
static bool is_whole(const char *text)
{
	static const char *const begins[] = { "a message to rank", "a receive from rank",
					      "RDMA write of" };
	bool whole = true;

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		const char *at = strstr(text, begins[i]);

		whole &= at == NULL || strchr(at, ')') != NULL;
	}
	return whole;
}

/* Whether the fault has fired. */
static bool job_run(enum where where, enum ibv_wc_status status, uint64_t nth)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_verbs, NULL };
	struct job job = { .where = where, .status = status, .nth = nth };
	struct mock_counters counters;
	struct mock_config config;
	uint64_t begun_ns = rb_clock_ns();
	char name[120];

	(void)snprintf(name, sizeof(name), "%s %llu ends with status %u", where_names[where],
		       (unsigned long long)nth, status);
	mock_find();
	mock.config_default(&config);
	config.devices = 1; /* Of two rails one may fail: test_verbs_links.c. */
	ck_assert_int_eq(mock.reset(&config), 0);
	ck_assert_int_eq(pthread_barrier_init(&job.barrier, NULL, 2), 0);
	(void)local_run(2, transports, job_main, &job, NULL);
	(void)pthread_barrier_destroy(&job.barrier);
	job.fired = nth > 0 && mock.fired(job.fault) > 0;
	mock.counters(&counters);
	if (rb_clock_ns() - begun_ns > LIMIT_NS)
		ck_abort_msg("%s: %llu ms", name,
			     (unsigned long long)((rb_clock_ns() - begun_ns) / 1000000));
	if (counters.rnr + counters.outside_local + counters.outside_remote > 0)
		ck_abort_msg("%s: RNR, or an access outside what is registered", name);
	for (uint32_t r = 0; r < 2; r++) {
		const char *text = job.texts[r];
		char other[16];

		(void)snprintf(other, sizeof(other), "rank %u", 1 - r);
		if (text[0] != '\0' &&
		    (!job.fired || strstr(text, other) == NULL || strstr(text, "wrong") != NULL))
			ck_abort_msg("%s: rank %u: %s", name, r, text);
		ck_assert_msg(is_whole(text), "%s: rank %u: cut: %s", name, r, text);
	}
	return job.fired;
}

static void all_nth(enum where where, enum ibv_wc_status status, uint64_t step)
{
	uint64_t nth = 1;

	while (job_run(where, status, nth)) {
		nth += step;
		ck_assert_uint_lt(nth, NTH_MAX);
	}
	ck_assert_uint_gt(nth, step); /* The first has fired. */
}

static bool is_error(int status)
{
	return status != IBV_WC_SUCCESS && status <= IBV_WC_GENERAL_ERR;
}

START_TEST(a_job_without_a_fault_is_right)
{
	ck_assert(!job_run(SEND, IBV_WC_SUCCESS, 0));
}
END_TEST

START_TEST(every_completion_may_fail)
{
	enum where where = (enum where)(_i % WHERES);

	all_nth(where, IBV_WC_RETRY_EXC_ERR, test_length() == TEST_SHORT ? STEP_SHORT : 1);
}
END_TEST

START_TEST(every_status_may_come)
{
	enum where where = (enum where)(_i % WHERES);
	int status = _i / WHERES;
	uint64_t step = test_length() == TEST_LONG ? 1 : test_length() == TEST_NORMAL ? 11 : 41;

	if (test_is_threads_only() && status % 3 != 0)
		return; /* They differ in what is said. */
	if (is_error(status))
		all_nth(where, (enum ibv_wc_status)status, step);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("faults");

	side_by_side(4);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_job_without_a_fault_is_right);
	tcase_add_loop_test(tc, every_completion_may_fail, 0, WHERES);
	tcase_add_loop_test(tc, every_status_may_come, 0, (IBV_WC_GENERAL_ERR + 1) * WHERES);
	return check_main("verbs-faults", tc);
}
