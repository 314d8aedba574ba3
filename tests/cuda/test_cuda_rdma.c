/*
 * test_cuda_rdma.c -- collectives on a CUDA device's memory over verbs: they go by dma-buf, without
 * the host's memory between, and what cannot goes through it, with the same values; what the
 * network wrote is flushed where a device needs that. On the fake driver and the mock libibverbs.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato_cuda.h"
#include "runtime/comm.h"
#include "tests/check_main.h"
#include "tests/cuda/fake/exchanges.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

#define RANKS 3u
#define WORDS 100003u

static struct cuda_app app;

static void app_open(const struct fake_cuda_control *control)
{
	char why[200];

	ck_assert_msg(cuda_app_open(&app, why, sizeof(why)), "%s", why);
	ck_assert_msg(app.fake_control != NULL, "only for the fake driver");
	app.fake_control(control);
}

static void app_close(void)
{
	app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
	struct fake_cuda_counts counts = app.fake_counts();

	cuda_app_close(&app);
	ck_assert_uint_eq(counts.memory_bytes, 0);
	ck_assert_uint_eq(counts.events, 0);
	ck_assert_uint_eq(counts.contexts_retained, 1); /* The test's own. */
}

struct job {
	local_main body;
	void *arg;
	bool first_only; /* The others have no device. */
};

static rubato_status entered(rubato_comm *comm, void *arg)
{
	const struct job *job = arg;
	rubato_status err = RUBATO_OK;

	cuda_app_enter(&app);
	if (!job->first_only || rubato_rank(comm) == 0)
		err = rubato_cuda_use(comm, RUBATO_CUDA_CURRENT);
	if (err == RUBATO_OK)
		err = job->body(comm, job->arg);
	cuda_app_leave(&app);
	return err;
}

static rubato_status ranks_run(local_main body, void *arg, bool first_only)
{
	static const struct rb_transport_ops *transports[2];
	struct job job = { body, arg, first_only };
	rubato_status status[RANKS];

	transports[0] = local_transport("verbs");
	return local_run(RANKS, transports, entered, &job, status);
}

/* ---- Which way they go ---- */

/* Long ones alone, which are not copied for the sake of a latency: nothing passes the host. */
static rubato_status direct_main(rubato_comm *comm, void *arg)
{
	struct fake_cuda_counts before, after;
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(exchange_path_has(comm, "device memory by dma-buf"));
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_set_algorithm(comm, "allgather", "ring_put"));
	RB_TRY(rubato_barrier(comm));
	before = app.fake_counts();
	RB_TRY(rubato_barrier(comm));
	for (uint32_t i = 0; i < 4; i++) {
		RB_TRY(rubato_allreduce(comm, b.in, b.out, WORDS, RUBATO_UINT32, RUBATO_SUM));
		RB_TRY(rubato_allgather(comm, b.in, b.out, WORDS, RUBATO_UINT32));
	}
	RB_TRY(rubato_barrier(comm));
	after = app.fake_counts();
	EXPECT(after.host_copies == before.host_copies);
	EXPECT(after.exported - before.exported >= RANKS * 8);
	RB_TRY(rubato_barrier(comm));
	RB_TRY(exchange_all(comm, &b, 2));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(collectives_go_by_dmabuf)
{
	app_open(&(struct fake_cuda_control) { .seed = 3, .delay_us_max = 200 });
	ck_assert_msg(ranks_run(direct_main, NULL, false) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_eq(app.fake_counts().flushes, 0); /* The device needs none. */
	app_close();
}
END_TEST

/* What is registered stays so, with what operations keep on the device: after the first one of each
 * nothing is. A longer one takes more of it, once. */
static rubato_status once_main(rubato_comm *comm, void *arg)
{
	static const char *const algorithms[] = { "ring", "two_shot" };
	uint64_t exported[2];
	struct exchange_buffers b;

	(void)arg;
	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(rubato_register(comm, b.in_room, RANKS * WORDS * 4 + EXCHANGE_AWAY));
	RB_TRY(rubato_register(comm, b.out_room, RANKS * WORDS * 4 + EXCHANGE_AWAY));
	for (uint32_t a = 0; a < 2; a++) {
		RB_TRY(rubato_set_algorithm(comm, "allreduce", algorithms[a]));
		for (uint32_t longer = 1; longer <= RANKS; longer += RANKS - 1) {
			RB_TRY(rubato_barrier(comm));
			exported[0] = app.fake_counts().exported;
			RB_TRY(rubato_barrier(comm));
			RB_TRY(exchange_allreduce(comm, &b, longer * WORDS, 1));
			RB_TRY(rubato_barrier(comm));
			exported[1] = app.fake_counts().exported;
			RB_TRY(rubato_barrier(comm));
			for (uint32_t i = 0; i < 4; i++)
				RB_TRY(exchange_allreduce(comm, &b, longer * WORDS, i));
			RB_TRY(rubato_barrier(comm));
			EXPECT(a > 0 || exported[1] - exported[0] >= RANKS);
			EXPECT(app.fake_counts().exported == exported[1]);
			RB_TRY(rubato_barrier(comm));
		}
	}
	RB_TRY(rubato_unregister(comm, b.in_room));
	RB_TRY(rubato_unregister(comm, b.out_room));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

#define STEPS 4u

/* Rounds of a partial allreduce that lies on the device: what they hold, and whether the host's
 * memory is passed, or memory registered after the first. */
static rubato_status partial_main(rubato_comm *comm, void *arg)
{
	const bool direct = *(const bool *)arg;
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm), *host = malloc(WORDS * 4);
	void *there = cuda_app_alloc(&app, WORDS * 4);
	struct fake_cuda_counts before, after;
	rubato_partial *p;
	bool some;

	EXPECT(host != NULL);
	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = n;
	RB_TRY(rubato_set_algorithm(comm, "allreduce", "ring"));
	RB_TRY(rubato_cuda_partial_create(comm, WORDS, RUBATO_UINT32, RUBATO_SUM, &options, &p));
	for (uint32_t step = 0; step < STEPS; step++) {
		for (uint32_t i = 0; i < WORDS; i++)
			host[i] = exchange_word(rank, i, step);
		cuda_app_copy(&app, there, host, WORDS * 4);
		RB_TRY(rubato_barrier(comm));
		before = app.fake_counts();
		RB_TRY(rubato_barrier(comm));
		RB_TRY(rubato_partial_contribute(p, there, step, 1));
		RB_TRY(rubato_partial_collect(p, there, &some, NULL, 0));
		RB_TRY(rubato_barrier(comm));
		after = app.fake_counts();
		RB_TRY(rubato_barrier(comm));
		EXPECT(some);
		EXPECT((after.host_copies == before.host_copies) == direct);
		EXPECT(step == 0 || after.exported == before.exported);
		cuda_app_copy(&app, host, there, WORDS * 4);
		for (uint32_t i = 0; i < WORDS; i++)
			EXPECT(host[i] == exchange_word(0, i, step) + exchange_word(1, i, step) +
						  exchange_word(2, i, step));
	}
	RB_TRY(rubato_partial_free(p));
	free(host);
	cuda_app_free(&app, there);
	return RUBATO_OK;
}

START_TEST(rounds_go_by_dmabuf)
{
	for (uint32_t i = 0; i < 3; i++) { /* The last one has no RDMA. */
		const struct fake_cuda_control control = {
			.seed = 5 + i, .delay_us_max = 100, .no_rdma = i == 2, .writes_stay = i == 1
		};
		struct fake_cuda_counts before, after;
		bool direct = i < 2;

		app_open(&control);
		before = app.fake_counts();
		ck_assert_msg(ranks_run(partial_main, &direct, false) == RUBATO_OK, "%u: %s", i,
			      rubato_error_text());
		after = app.fake_counts();
		ck_assert((after.exported > before.exported) == direct);
		ck_assert((after.stayed > before.stayed) == (i == 1));
		app_close();
	}
}
END_TEST

START_TEST(scratch_is_registered_once)
{
	app_open(&(struct fake_cuda_control) { .seed = 4, .delay_us_max = 100 });
	ck_assert_msg(ranks_run(once_main, NULL, false) == RUBATO_OK, "%s", rubato_error_text());
	app_close();
}
END_TEST

static rubato_status values_main(rubato_comm *comm, void *arg)
{
	struct exchange_buffers b;

	RB_TRY(exchange_buffers_make(&app, arg == NULL || rubato_rank(comm) == 0, RANKS, WORDS,
				     &b));
	RB_TRY(exchange_all(comm, &b, 2));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(what_the_network_wrote_is_flushed)
{
	app_open(&(struct fake_cuda_control) {
		.seed = 5, .delay_us_max = 100, .writes_stay = true });
	ck_assert_msg(ranks_run(values_main, NULL, false) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_gt(app.fake_counts().stayed, 0);
	ck_assert_uint_gt(app.fake_counts().flushes, 0);
	app_close();
}
END_TEST

/* One rank's buffers are a device's, the others' the host's, and these have no device. */
START_TEST(the_other_end_need_not_have_a_device)
{
	bool first_only = true;

	app_open(&(struct fake_cuda_control) { .seed = 7, .delay_us_max = 100 });
	ck_assert_msg(ranks_run(values_main, &first_only, true) == RUBATO_OK, "%s",
		      rubato_error_text());
	ck_assert_uint_gt(app.fake_counts().exported, 0);
	app_close();
}
END_TEST

/* ---- Where it does not go ---- */

static rubato_status staged_main(rubato_comm *comm, void *arg)
{
	(void)arg;
	RB_TRY(exchange_path_has(comm, "device memory through the host's"));
	return values_main(comm, NULL);
}

START_TEST(a_device_without_rdma_is_staged)
{
	app_open(&(struct fake_cuda_control) { .seed = 9, .no_rdma = true });
	ck_assert_msg(ranks_run(staged_main, NULL, false) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_eq(app.fake_counts().exported, 0);
	ck_assert_uint_gt(app.fake_counts().host_copies, 0);
	app_close();
}
END_TEST

/* From some registration on none can be made, on whichever rank: what is under way goes in pieces,
 * what comes later is staged, and the path says so. */
static rubato_status refused_main(rubato_comm *comm, void *arg)
{
	const struct fake_cuda_control *control = arg;
	struct exchange_buffers b;

	RB_TRY(exchange_buffers_make(&app, true, RANKS, WORDS, &b));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		app.fake_control(control);
	RB_TRY(rubato_barrier(comm));
	RB_TRY(exchange_all(comm, &b, 2));
	RB_TRY(exchange_path_has(comm, "device memory through the host's"));
	exchange_buffers_free(&b);
	return RUBATO_OK;
}

START_TEST(what_cannot_be_registered_goes_through_the_host)
{
	static const uint32_t first[] = { 1, 2, 7, 12, 30 };

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		struct fake_cuda_control control = { .seed = first[i],
						     .fail_call = "cuMemGetHandleForAddressRange",
						     .fail_at = first[i],
						     .fail_count = 1u << 30,
						     .fail_with = CUDA_ERROR_NOT_SUPPORTED };

		struct fake_cuda_counts before, after;

		app_open(&(struct fake_cuda_control) { .seed = first[i] });
		before = app.fake_counts();
		ck_assert_msg(ranks_run(refused_main, &control, false) == RUBATO_OK, "from %u: %s",
			      first[i], rubato_error_text());
		after = app.fake_counts();
		ck_assert_uint_ge(after.failed - before.failed, RANKS); /* Each rank gave it up. */
		ck_assert_uint_gt(after.host_copies, before.host_copies);
		app_close();
	}
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
	for (uint32_t i = 0; i < 100 && err == RUBATO_OK; i++)
		err = rubato_allreduce(comm, b.in, b.out, i % 2 == 0 ? WORDS : 1001, RUBATO_UINT32,
				       RUBATO_SUM);
	EXPECT(err == RUBATO_ERR_SYSTEM || err == RUBATO_ERR_PEER);
	if (err == RUBATO_ERR_SYSTEM)
		EXPECT(strstr(rubato_error_text(), control->fail_call) != NULL);
	free(b.host);
	return RUBATO_OK; /* The device's memory stays: peers may still be at it. */
}

START_TEST(an_error_of_the_driver_is_an_error_of_the_call)
{
	static const char *const calls[] = { "cuFlushGPUDirectRDMAWrites", "cuMemcpyAsync",
					     "cuEventQuery" };

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		for (uint32_t at = 1; at < 20; at += 9) {
			struct fake_cuda_control control = { .seed = at,
							     .writes_stay = true,
							     .fail_at = at,
							     .fail_with =
								     CUDA_ERROR_LAUNCH_FAILED };
			rubato_status err;
			uint64_t before;

			(void)snprintf(control.fail_call, sizeof(control.fail_call), "%s",
				       calls[i]);
			app_open(&(struct fake_cuda_control) { .seed = at, .writes_stay = true });
			before = app.fake_counts().failed;
			err = ranks_run(failing_main, &control, false);
			ck_assert_msg(err != RUBATO_ERR_INTERNAL, "%s, call %u: %s", calls[i], at,
				      rubato_error_text());
			ck_assert_uint_eq(app.fake_counts().failed - before, 1);
			app.fake_control(&(struct fake_cuda_control) { .seed = 0 });
			cuda_app_close(&app);
		}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("rdma");

	/* On a slow network chunks are short, and short messages are copied. */
	(void)setenv("RUBATO_MEASURE", "0", 1);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, collectives_go_by_dmabuf);
	tcase_add_test(tc, scratch_is_registered_once);
	tcase_add_test(tc, rounds_go_by_dmabuf);
	tcase_add_test(tc, what_the_network_wrote_is_flushed);
	tcase_add_test(tc, the_other_end_need_not_have_a_device);
	tcase_add_test(tc, a_device_without_rdma_is_staged);
	tcase_add_test(tc, what_cannot_be_registered_goes_through_the_host);
	tcase_add_test(tc, an_error_of_the_driver_is_an_error_of_the_call);
	return check_main("cuda rdma", tc);
}
