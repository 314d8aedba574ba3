/*
 * test_cuda_ucx.c -- a device's memory over UCX that handles CUDA's: it is UCX that moves it, none
 * of our copies between, with the host's values, between threads and processes; what becomes of
 * others when one dies or the driver fails; and what is refused. On the fake driver.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato_cuda.h"
#include "runtime/comm.h"
#include "tests/check_main.h"
#include "tests/cuda/fake/exchanges.h"
#include "tests/cuda/fake/processes.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"
#include "transport/ucx/ucx.h"

#define RANKS 3u
#define WORDS                                                                                      \
	360003u /* Of a third, and of chunks of that, no piece is so short that it is copied. */

static struct cuda_app app;

static void app_open(uint64_t seed)
{
	cuda_app_begin(&app, seed);
	ck_assert_msg(app.fake_control != NULL, "only for the fake driver");
}

static rubato_status ranks_run(local_main body, void *arg)
{
	return cuda_app_ranks(&app, "ucx", RANKS, body, arg);
}

/* ---- Which way they go ---- */

/* Long ones alone, which are not copied for the sake of a latency: UCX copies, we do not. */
static rubato_status direct_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_counts before, after;
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_path_has(comm, "device memory by UCX"));
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_set_algorithm(comm, "allgather", "ring_put"));
	RB_TRY(rubato_barrier(comm));
	before = app.fake_counts();
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < 2; i++) {
		RB_TRY(rubato_allreduce(comm, b.in, b.out, WORDS, RUBATO_UINT32, RUBATO_SUM));
		RB_TRY(rubato_allgather(comm, b.in, b.out, WORDS, RUBATO_UINT32));
	}
	RB_TRY(rubato_barrier(comm));
	after = app.fake_counts();
	EXPECT(after.host_copies == before.host_copies);
	EXPECT(after.foreign_bytes - before.foreign_bytes >= UINT64_C(2) * RANKS * WORDS * 4);
	RB_TRY(rubato_barrier(comm));
	RB_TRY(exchange_all(comm, &b, 1));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(collectives_go_by_ucx)
{
	app_open(3);
	ck_assert_msg(ranks_run(direct_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

static rubato_status values_main(rubato_comm *comm, void *arg)
{
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_buffers_make(&app, rubato_rank(comm) == 0, RANKS, WORDS, &b));
	RB_TRY(exchange_all(comm, &b, 1));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(the_other_end_may_be_the_hosts)
{
	app_open(7);
	ck_assert_msg(ranks_run(values_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_gt(app.fake_counts().foreign_copies, 0);
	cuda_app_end(&app);
}
END_TEST

#define STEPS 3u

static rubato_status partial_main(rubato_comm *comm, void *arg)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t rank = rubato_rank(comm);
	struct fake_cuda_counts before, after;
	struct exchange_buffers b;
	rubato_partial *p;
	bool some;

	(void)arg;
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = RANKS;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_cuda_partial_create(comm, WORDS, RUBATO_UINT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < STEPS; step++) {
		for (uint32_t i = 0; i < WORDS; i++)
			b.host[i] = exchange_word(rank, i, step);
		exchange_move(&b, b.in, b.host, WORDS * 4);
		RB_TRY(rubato_barrier(comm));
		before = app.fake_counts();
		RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_partial_contribute(p, b.in, step, 1));
		RB_TRY(rubato_partial_collect(p, b.in, &some, NULL, 0));
		RB_TRY(rubato_barrier(comm));
		after = app.fake_counts();
		RB_TRY(rubato_barrier(comm));
		EXPECT(some && after.host_copies == before.host_copies);
		EXPECT(after.foreign_copies > before.foreign_copies);
		exchange_move(&b, b.host, b.in, WORDS * 4);
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT(b.host[i] == exchange_word(0, i, step) + exchange_word(1, i, step) +
						    exchange_word(2, i, step));
	}
	RB_TRY(rubato_partial_free(p));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(rounds_go_by_ucx)
{
	app_open(5);
	ck_assert_msg(ranks_run(partial_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

/* ---- Processes ---- */

static rubato_status process_body(struct cuda_app *of, rubato_comm *comm, void *arg)
{
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_path_has(comm, "device memory by UCX"));
	RB_TRY(exchange_buffers_make(of, true, RANKS, WORDS, &b));
	RB_TRY(exchange_all(comm, &b, 1));
	RB_TRY(rubato_barrier(comm));
	EXPECT(of->fake_counts().foreign_copies > 0);
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(processes_have_the_same_values)
{
	struct processes p = { .count = RANKS,
			       .own_devices = _i == 1,
			       .transport = _i == 2 ? "tcp" : "ucx",
			       .control = { .seed = 11, .delay_us_max = 100 },
			       .body = process_body };

	processes_run(&p);
}
END_TEST

/* The last rank is killed among allreduces; the others hear of it. */
static rubato_status death_body(struct cuda_app *of, rubato_comm *comm, void *arg)
{
	rubato_status err = RUBATO_OK;
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_buffers_make(of, true, RANKS, WORDS, &b));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	for (uint32_t i = 0; i < 1000 && err == RUBATO_OK; i++) {
		if (i == 5 && rubato_rank(comm) == RANKS - 1)
			(void)kill(getpid(), SIGKILL);
		err = rubato_allreduce(comm, b.in, b.out, WORDS, RUBATO_UINT32, RUBATO_SUM);
	}
	EXPECT(err == RUBATO_ERR_PEER);
	_exit(0); /* What is left of the communicator fails. */
}

START_TEST(a_death_is_told)
{
	struct processes p = { .count = RANKS,
			       .dies = RANKS - 1,
			       .transport = "ucx",
			       .control = { .seed = 13, .delay_us_max = 100 },
			       .body = death_body };

	processes_run(&p);
}
END_TEST

/* ---- When the driver fails ---- */

static rubato_status failing_main(rubato_comm *comm, void *arg)
{
	const struct fake_cuda_control *control = arg;
	rubato_status err = RUBATO_OK;
	struct exchange_buffers b;

	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		app.fake_control(control);
	for (uint32_t i = 0; i < 20 && err == RUBATO_OK; i++)
		err = rubato_allreduce(comm, b.in, b.out, i % 2 == 0 ? WORDS : 1001, RUBATO_UINT32,
				       RUBATO_SUM);
	EXPECT(err == RUBATO_OK || err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_PEER ||
	       err == RUBATO_ERR_MEMORY);
	free(b.host);
	return RUBATO_OK; /* The device's memory stays: peers may still be at it. */
}

START_TEST(an_error_of_the_driver_ends_the_call)
{
	/* Not cuEventCreate: UCX 1.22.0 then destroys what it has not made. */
	static const char *const calls[] = { "cuMemcpyAsync",      "cuEventQuery",
					     "cuEventRecord",      "cuStreamCreate",
					     "cuMemAlloc_v2",      "cuPointerGetAttributes",
					     "cuStreamAddCallback" };
	uint32_t failed = 0;

	for (uint32_t at = 1; at < 40; at += 13) {
		struct fake_cuda_control control = { .seed = at,
						     .delay_us_max = 3000,
						     .fail_at = at,
						     .fail_with = CUDA_ERROR_LAUNCH_FAILED };
		uint64_t before;
		rubato_status err;

		(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s", calls[_i]);
		app_open(at);
		before = app.fake_counts().failed;
		err = ranks_run(failing_main, &control);
		ck_assert_msg(err != RUBATO_ERR_INTERNAL && err != RUBATO_ERR_TIMEOUT,
			      "%s, call %u: %s", calls[_i], at, rubato_error_text());
		failed += app.fake_counts().failed > before;
		app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
		cuda_app_close(&app);
	}
	ck_assert_msg(failed > 0 || _i > 2, "%s was never called", calls[_i]);
}
END_TEST

/* ---- What is not done ---- */

static rubato_status streams_main(rubato_comm *comm, void *arg)
{
	CUstream stream = cuda_app_stream(&app);
	struct exchange_buffers b;
	rubato_op *op;

	(void)arg;
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(rubato_op_allreduce(comm, b.in, b.out, WORDS, RUBATO_UINT32, RUBATO_SUM, &op));
	EXPECT(rubato_cuda_start(op, stream) == RUBATO_ERR_UNSUPPORTED);
	EXPECT(strstr(rubato_error_text(), "RUBATO_UCX_DEVICE") != NULL);
	rubato_op_free(op);
	CUDA_APP(&app, cuStreamDestroy, stream);
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(nothing_starts_on_streams)
{
	app_open(17);
	ck_assert_msg(ranks_run(streams_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	cuda_app_end(&app);
}
END_TEST

static rubato_status staged_main(rubato_comm *comm, void *arg)
{
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_path_has(comm, "device memory through the host's"));
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(exchange_all(comm, &b, 1));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(who_does_not_ask_is_staged)
{
	(void)unsetenv("RUBATO_UCX_DEVICE");
	app_open(19);
	ck_assert_msg(ranks_run(staged_main, NULL) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_eq(app.fake_counts().foreign_copies, 0);
	ck_assert_uint_gt(app.fake_counts().host_copies, 0);
	cuda_app_end(&app);
}
END_TEST

/* Asked in a process of its own: a driver that has begun is of no use to children. */
static bool ucx_has_cuda(void)
{
	struct rb_transport_options options = { .rank_count = 1, .ucx_device = true };
	struct rb_endpoint *ep;
	pid_t pid = fork();
	int end = 1;

	if (pid == 0)
		_exit(rb_transport_ucx.open(&options, &ep) != RUBATO_OK ||
		      !((struct rb_ucx *)ep)->cuda);
	return waitpid(pid, &end, 0) == pid && end == 0;
}

int main(void)
{
	TCase *tc = tcase_create("ucx");

	(void)setenv("RUBATO_MEASURE", "0", 1);
	(void)setenv("RUBATO_UCX_DEVICE", "1", 1);
	if (!ucx_has_cuda()) {
		(void)printf("skipped: this UCX does not handle CUDA's memory\n");
		return 77;
	}
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, collectives_go_by_ucx);
	tcase_add_test(tc, the_other_end_may_be_the_hosts);
	tcase_add_test(tc, rounds_go_by_ucx);
	tcase_add_loop_test(tc, processes_have_the_same_values, 0, 3);
	tcase_add_test(tc, a_death_is_told);
	tcase_add_loop_test(tc, an_error_of_the_driver_ends_the_call, 0, 7);
	tcase_add_test(tc, nothing_starts_on_streams);
	tcase_add_test(tc, who_does_not_ask_is_staged);
	return check_main("cuda ucx", tc);
}
