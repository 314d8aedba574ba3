/*
 * test_verbs_calls.c -- whichever call of libibverbs fails, at either rank, with whatever its
 * manual names: results are right, or an error names the other rank or the device; nothing hangs,
 * leaks or is reached outside of what is registered.
 *
 * The kth call of each function that the transport calls, by rank 0 or 1, for each k that a run
 * has: that one alone, or from it on all.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"
#include "tests/side_by_side.h"

#define ERRORS 4

static const struct function {
	const char *name;
	int errors[ERRORS]; /* 0: no more. */
	uint32_t step;      /* Of k, where a test is not long: of what is called often. */
	bool destroys;      /* What is left then is not the transport's fault. */
	bool sleeps;        /* It is called by who sleeps, or is told of events. */
} functions[] = {
	{ "ibv_get_device_list", { EPERM, ENOSYS, ENOMEM }, 1, false, false },
	{ "ibv_open_device", { ENOMEM, EMFILE, EACCES, EIO }, 1, false, false },
	{ "ibv_query_device", { ENOMEM, EIO }, 1, false, false },
	{ "ibv_query_port", { ENOMEM, EIO, EINVAL }, 1, false, false },
	{ "ibv_query_gid_ex", { ENODATA, EIO, ENOSYS }, 1, false, false },
	{ "ibv_alloc_pd", { ENOMEM }, 1, false, false },
	{ "ibv_reg_mr", { ENOMEM, EINVAL, EFAULT, EAGAIN }, 1, false, false },
	{ "ibv_create_comp_channel", { ENOMEM, EMFILE }, 1, false, false },
	{ "ibv_create_cq", { ENOMEM, EINVAL }, 1, false, false },
	{ "ibv_create_qp", { ENOMEM, EINVAL, ENOSYS, EPERM }, 1, false, false },
	{ "ibv_modify_qp", { ENOMEM, EINVAL, ETIMEDOUT }, 1, false, false },
	{ "ibv_create_ah", { ENOMEM, EINVAL, ETIMEDOUT }, 1, false, false },
	{ "ibv_post_send", { ENOMEM, EINVAL, EFAULT }, 1, false, false },
	{ "ibv_post_recv", { ENOMEM, EINVAL, EFAULT }, 3, false, false },
	{ "ibv_poll_cq", { EINVAL, EIO }, 997, false, false },
	{ "ibv_req_notify_cq", { EINVAL, ENOMEM }, 1, false, true },
	{ "ibv_get_cq_event", { EINTR, EIO, EBADF }, 1, false, true },
	{ "ibv_get_async_event", { EINTR, EIO, EBADF }, 1, false, true },
	{ "ibv_dereg_mr", { EBUSY, EINVAL, EIO }, 1, true, false },
	{ "ibv_destroy_qp", { EBUSY, EINVAL, EIO }, 1, true, false },
	{ "ibv_destroy_ah", { EINVAL, EIO }, 1, true, false },
	{ "ibv_destroy_cq", { EBUSY, EINVAL }, 1, true, false },
	{ "ibv_destroy_comp_channel", { EBUSY, EINVAL }, 1, true, false },
	{ "ibv_dealloc_pd", { EBUSY, EINVAL }, 1, true, false },
	{ "ibv_close_device", { EINVAL, EIO }, 1, true, false },
};
#define FUNCTIONS ((int)(sizeof(functions) / sizeof(functions[0])))

struct fault {
	const struct function *function;
	uint32_t rank;
	bool onwards;
	int error; /* Of each. 0: one after the other. */
	uint64_t k;
};

static int fails(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct fault *fault = job->arg;

	if (strcmp(function, "ibv_post_send") == 0 && fault->function->sleeps)
		job_mock.device_event(rank, 0, 1, IBV_EVENT_SM_CHANGE); /* There is one to take. */
	if (rank != fault->rank || strcmp(function, fault->function->name) != 0 ||
	    (fault->onwards ? nth < fault->k : nth != fault->k))
		return 0;
	job->fired++;
	return fault->error;
}

static void prepare(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes)
{
	struct fault *fault = arg; /* A copy: this is a process of its own. */
	uint32_t errors = 0;

	while (errors < ERRORS && fault->function->errors[errors] != 0)
		errors++;
	if (fault->error == 0)
		fault->error = fault->function->errors[k % errors];
	fault->k = k;
	job->at_call = fails;
	job->arg = fault;
	job->abrupt = fault->function->destroys;
	job->sleepy = fault->function->sleeps;
	(void)snprintf(name, name_bytes, "rank %u: call %llu of %s%s: %s", fault->rank,
		       (unsigned long long)k, fault->function->name,
		       fault->onwards ? ", and all that follow" : "", strerror(fault->error));
}

/*
 * Each fifth call with one error, those of a run in turn; TEST_LENGTH=long: each with each. Under
 * sanitizers each eleventh (ThreadSanitizer: each 31st): one at rank 0 and all that follow at rank
 * 1, or the other way round, by turns of the functions.
 */
START_TEST(any_call_may_fail)
{
	const struct function *f = &functions[_i / 4];
	struct fault fault = { .function = f, .rank = (uint32_t)_i % 2, .onwards = _i / 2 % 2 };
	struct job_series series = {
		.prepare = prepare, .arg = &fault, .step = f->step, .misses = f->sleeps ? 23 : 0
	};
	uint64_t fired = 0;

	if (test_length() == TEST_SHORT && (_i / 4 + _i + _i / 2) % 2 != 0)
		return;
	if (test_length() != TEST_LONG && series.step < 100)
		series.step *= test_is_threads_only() ? 31 : test_length() == TEST_SHORT ? 11 : 5;
	if (test_length() == TEST_LONG)
		series.step = 1;
	for (uint32_t e = 0; e < ERRORS && f->errors[e] != 0; e++) {
		fault.error = test_length() == TEST_LONG ? f->errors[e] : 0;
		if (e == 0 || fault.error != 0)
			fired += job_series_run(&series);
	}
	ck_assert_msg(fired > 0, "%s is never called", f->name);
	(void)fprintf(stderr, "%s by rank %u%s: %llu jobs\n", f->name, fault.rank,
		      fault.onwards ? " onwards" : "", (unsigned long long)fired);
}
END_TEST

START_TEST(a_job_without_a_fault_is_right)
{
	struct job job;
	char text[600];

	job_init(&job);
	job_run(&job);
	ck_assert_msg(job_is_good(&job, text, sizeof(text)), "%s", text);
	ck_assert(job_is_right(&job));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("calls");

	side_by_side(4);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_job_without_a_fault_is_right);
	tcase_add_loop_test(tc, any_call_may_fail, 0, FUNCTIONS * 4);
	return check_main("verbs-calls", tc);
}
