/*
 * test_verbs_events.c -- asynchronous events of devices, ports and queues at any moment of a job:
 * those that are only told change nothing; the others end in right results, or an error that names
 * the other rank or the device.
 *
 * An event comes before the kth post of a send by a rank, for each k that a run has; waits sleep at
 * once, so that events are taken.
 */
#include <stdio.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"
#include "tests/side_by_side.h"

enum about { DEVICE, QP, CQ };

static const struct kind {
	enum ibv_event_type type;
	enum about about;
	bool harmless;  /* Ends nothing by itself. */
	uint32_t times; /* Of a queue's. */
} kinds[] = {
	{ IBV_EVENT_LID_CHANGE, DEVICE, true, 1 },
	{ IBV_EVENT_PKEY_CHANGE, DEVICE, true, 1 },
	{ IBV_EVENT_SM_CHANGE, DEVICE, true, 1 },
	{ IBV_EVENT_GID_CHANGE, DEVICE, true, 1 },
	{ IBV_EVENT_CLIENT_REREGISTER, DEVICE, true, 1 },
	{ IBV_EVENT_COMM_EST, QP, true, 1 },
	{ IBV_EVENT_SQ_DRAINED, QP, true, 1 },
	{ IBV_EVENT_PATH_MIG, QP, true, 1 },
	{ IBV_EVENT_PATH_MIG_ERR, QP, true, 1 },
	{ IBV_EVENT_QP_LAST_WQE_REACHED, QP, true, 1 },
	{ IBV_EVENT_QP_LAST_WQE_REACHED, QP, true, 50 },
	{ IBV_EVENT_PORT_ERR, DEVICE, false, 1 },
	{ IBV_EVENT_PORT_ACTIVE, DEVICE, true, 1 },
	{ IBV_EVENT_DEVICE_FATAL, DEVICE, false, 1 },
	{ IBV_EVENT_QP_FATAL, QP, false, 1 },
	{ IBV_EVENT_QP_REQ_ERR, QP, false, 1 },
	{ IBV_EVENT_QP_ACCESS_ERR, QP, false, 1 },
	{ IBV_EVENT_CQ_ERR, CQ, false, 1 },
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))
#define QPS_MAX 64u

struct moment {
	const struct kind *kind;
	uint32_t rank;
	uint64_t k;
};

static int told(const struct kind *kind, uint32_t number)
{
	return kind->about == CQ ? job_mock.cq_error(number)
				 : job_mock.qp_event(number, kind->type);
}

/* Of all queue pairs that there are. */
static void queues_told(const struct kind *kind)
{
	uint32_t numbers[QPS_MAX], count = job_mock.qp_numbers(numbers, QPS_MAX);

	ck_assert_uint_lt(count, QPS_MAX);
	for (uint32_t q = 0; q < count; q++)
		for (uint32_t i = 0; i < kind->times && told(kind, numbers[q]) == 0; i++)
			;
}

static int tell(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct moment *moment = job->arg;

	if (rank != moment->rank || nth != moment->k || strcmp(function, "ibv_post_send") != 0)
		return 0;
	job->fired++;
	if (moment->kind->about == DEVICE)
		job_mock.device_event(rank, 0, 1, moment->kind->type);
	else
		queues_told(moment->kind);
	return 0;
}

static void prepare(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes)
{
	struct moment *moment = arg;

	moment->k = k;
	job->at_call = tell;
	job->arg = moment;
	job->sleepy = true;
	(void)snprintf(name, name_bytes, "rank %u: event %u, %u times, before post %llu",
		       moment->rank, moment->kind->type, moment->kind->times,
		       (unsigned long long)k);
}

static bool judge(const struct job *job, void *arg, char *text, size_t text_bytes)
{
	const struct moment *moment = arg;

	(void)snprintf(text, text_bytes, "it has ended a job: %s; %s", job->texts[0],
		       job->texts[1]);
	return !moment->kind->harmless || job_is_right(job);
}

START_TEST(any_event_may_come)
{
	struct moment moment = { .kind = &kinds[_i / 2], .rank = (uint32_t)_i % 2 };
	struct job_series series = {
		.prepare = prepare, .judge = judge, .arg = &moment, .step = 1
	};

	if (test_length() == TEST_SHORT && (_i / 2 + _i) % 2 != 0)
		return; /* Under sanitizers the ranks take turns. */
	if (test_length() != TEST_LONG && (!moment.kind->harmless || moment.kind->times > 1))
		series.step = 5;
	if (test_length() == TEST_SHORT)
		series.step = test_is_threads_only() ? 41 : 17;
	ck_assert_uint_gt(job_series_run(&series), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("events");

	side_by_side(3);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, any_event_may_come, 0, KINDS * 2);
	return check_main("verbs-events", tc);
}
