/*
 * test_verbs_links.c -- a rail of the verbs transport fails, and nothing is lost or done twice.
 *
 * Ranks as threads on mock devices (tests/verbs-mock), a rail each. While they call allreduce of
 * random sizes, a rail's link falls and comes back, loses all in silence, or a completion ends with
 * an error: each result is that of a job in which nothing happened. Where no rail is left, TCP goes
 * on; where that is not to be had either, the error names the peer, in time.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "tests/side_by_side.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs.h"

#define ELEMENTS_MAX 150000u
#define RANKS_MAX 4u
#define NTH_MAX 600u          /* More is a job that goes on for ever. */
#define LIMIT_NS 50000000000u /* Of a job: below the deadline of its waits, 60 s. */
#define LIVES_NS 10000000000u /* Until a link is back. */
#define SHORT_FLAPS_NS 3000000000u
#define FLAPS_NS 5000000000u
#define LONG_FLAPS_NS 60000000000u
#define FLAPS_MORE_NS 60000000000u /* Where ranks hardly get to run. */
#define FLAPS_MIN 5u

struct counts {
	uint64_t failed, risen, again, by_clock, spares;
};

struct job {
	rubato_status (*main)(rubato_comm *comm, struct job *job);
	uint32_t rank_count, rails;
	uint64_t seed;
	/* A fault at the nth completion from where all are open. */
	bool receive, delivered;
	enum ibv_wc_status status;
	uint64_t nth;
	int fault;
	bool fired;
	/* Flaps of a rail. */
	uint32_t rail;
	uint64_t until_ns;
	bool over;
	_Atomic uint64_t flaps;
	uint64_t results;
	pthread_barrier_t barrier;
	struct counts counts[RANKS_MAX];
	char texts[RANKS_MAX][400];
};

/* Whether this program's ranks can listen, and are answered: see the spare link. */
static _Atomic bool listen_fails, connect_fails;
static _Atomic uint32_t listen_failed, connect_failed;

int listen(int fd, int backlog)
{
	if (atomic_load(&listen_fails)) {
		atomic_fetch_add(&listen_failed, 1);
		errno = EADDRNOTAVAIL;
		return -1;
	}
	return (int)syscall(SYS_listen, fd, backlog);
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t address_bytes)
{
	if (atomic_load(&connect_fails)) {
		atomic_fetch_add(&connect_failed, 1);
		errno = ECONNREFUSED;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, address.__sockaddr__, address_bytes);
}

static struct rb_verbs *verbs_of(rubato_comm *comm)
{
	ck_assert_ptr_eq(rb_comm_endpoint(comm)->ops, &rb_transport_verbs);
	return (struct rb_verbs *)rb_comm_endpoint(comm);
}

/* Of a rank, a place and a round: sums of whole numbers, which are exact. */
static float element(uint32_t rank, uint32_t i, uint64_t round)
{
	return (float)((i * 7 + rank * 3 + round * 11) % 1000);
}

static rubato_status sums(rubato_comm *comm, uint32_t count, uint64_t round)
{
	static _Thread_local float in[ELEMENTS_MAX], out[ELEMENTS_MAX];
	uint32_t ranks = rubato_size(comm);

	for (uint32_t i = 0; i < count; i++)
		in[i] = element(rubato_rank(comm), i, round);
	RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM));
	for (uint32_t i = 0; i < count; i++) {
		float sum = 0;

		for (uint32_t r = 0; r < ranks; r++)
			sum += element(r, i, round);
		if (out[i] != sum)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u is %g, not %g",
				       i, count, (double)out[i], (double)sum);
	}
	return RUBATO_OK;
}

/* Announced both ways, and from a buffer that is reused at once. */
static rubato_status messages(rubato_comm *comm, uint64_t round)
{
	static _Thread_local float data[40000], got[40000];
	uint32_t rank = rubato_rank(comm), ranks = rubato_size(comm);
	uint32_t next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
	const uint32_t sizes[] = { 1, 3000, 40000 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (uint32_t i = 0; i < sizes[s]; i++)
			data[i] = element(rank, i, round + s);
		if (rank % 2 == 0) {
			RB_TRY(rubato_send(comm, data, sizes[s], RUBATO_FLOAT32, next, 3));
			RB_TRY(rubato_recv(comm, got, sizes[s], RUBATO_FLOAT32, last, 3));
		} else {
			RB_TRY(rubato_recv(comm, got, sizes[s], RUBATO_FLOAT32, last, 3));
			RB_TRY(rubato_send(comm, data, sizes[s], RUBATO_FLOAT32, next, 3));
		}
		for (uint32_t i = 0; i < sizes[s]; i++)
			if (got[i] != element(last, i, round + s))
				return RB_FAIL(RUBATO_ERR_INTERNAL,
					       "wrong: element %u of %u from rank %u is %g", i,
					       sizes[s], last, (double)got[i]);
	}
	return RUBATO_OK;
}

static rubato_status calls(rubato_comm *comm, uint64_t round)
{
	RB_TRY(sums(comm, 64, round));
	RB_TRY(sums(comm, 40000, round));
	RB_TRY(messages(comm, round));
	RB_TRY(sums(comm, ELEMENTS_MAX, round));
	return rubato_barrier(comm);
}

#define TAIL_NS 20000000u /* For a completion that is on its way. */

/* Whose last message was on a link that has failed does not call meanwhile: its progress thread
 * finds out, or nobody sends it again. */
static void wait_until_all_are_through(rubato_comm *comm, struct job *job)
{
	uint64_t until_ns;

	(void)pthread_barrier_wait(&job->barrier);
	until_ns = rb_clock_ns() + TAIL_NS;
	while (rb_clock_ns() < until_ns) {
		rb_engine_enter(&comm->engine);
		(void)rb_engine_progress(&comm->engine);
		rb_engine_leave(&comm->engine);
		rb_yield();
	}
}

static rubato_status faulty_main(rubato_comm *comm, struct job *job);

static rubato_status job_main(rubato_comm *comm, void *arg)
{
	struct job *job = arg;
	uint32_t rank = rubato_rank(comm);
	const struct rb_verbs *vb = verbs_of(comm);
	rubato_status status;

	ck_assert_uint_eq(vb->rail_count, job->rails);
	(void)pthread_barrier_wait(&job->barrier); /* All are open. */
	status = job->main(comm, job);
	if (status != RUBATO_OK)
		(void)snprintf(job->texts[rank], sizeof(job->texts[rank]), "%s: %s",
			       rubato_status_name(status), rubato_error_text());
	if (rank == 0 && job->nth > 0 && job->main == faulty_main)
		job->fired = mock_fired(job->fault) > 0;
	wait_until_all_are_through(comm, job);
	rb_engine_enter(&comm->engine);
	job->counts[rank] = (struct counts) { vb->counts.failed, vb->counts.risen, vb->counts.again,
					      vb->counts.by_clock, vb->counts.spares };
	rb_engine_leave(&comm->engine);
	(void)pthread_barrier_wait(&job->barrier);
	return RUBATO_OK;
}

static void job_run(struct job *job)
{
	static const struct rb_transport_ops *const transports[] = { &rb_transport_verbs, NULL };
	struct mock_counters counters;
	struct mock_config config;

	mock_config_default(&config);
	config.devices = job->rails;
	config.seed = job->seed;
	ck_assert_int_eq(mock_reset(&config), 0);
	ck_assert_int_eq(pthread_barrier_init(&job->barrier, NULL, job->rank_count), 0);
	(void)local_run(job->rank_count, transports, job_main, job, NULL);
	(void)pthread_barrier_destroy(&job->barrier);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.rnr, 0);
	ck_assert_uint_eq(counters.outside_local, 0);
	ck_assert_uint_eq(counters.outside_remote, 0);
	ck_assert_uint_eq(counters.cq_overruns, 0);
}

/* The devices answered to the last: no drain waited for the clock. */
static void all_right(const struct job *job, const char *name)
{
	for (uint32_t r = 0; r < job->rank_count; r++) {
		if (job->texts[r][0] != '\0')
			ck_abort_msg("%s: rank %u: %s", name, r, job->texts[r]);
		ck_assert_msg(job->counts[r].by_clock == 0,
			      "%s: rank %u: the clock ended %llu drains", name, r,
			      (unsigned long long)job->counts[r].by_clock);
	}
}

static uint64_t sum_again(const struct job *job)
{
	uint64_t sum = 0;

	for (uint32_t r = 0; r < job->rank_count; r++)
		sum += job->counts[r].again;
	return sum;
}

/* ---- One completion fails ---- */

static rubato_status faulty_main(rubato_comm *comm, struct job *job)
{
	if (rubato_rank(comm) == 0 && job->nth > 0)
		job->fault = job->receive ? mock_fail_receive(job->nth, job->status)
					  : mock_fail_send(job->nth, job->status, job->delivered);
	(void)pthread_barrier_wait(&job->barrier);
	return calls(comm, 0);
}

static const struct {
	bool receive, delivered;
	enum ibv_wc_status status;
	const char *name;
} faults[] = {
	{ false, false, IBV_WC_RETRY_EXC_ERR, "a send that nobody answers" },
	{ false, true, IBV_WC_RETRY_EXC_ERR, "a send whose answers get lost" },
	{ true, false, IBV_WC_GENERAL_ERR, "a receive that fails" },
	{ false, true, IBV_WC_WR_FLUSH_ERR, "a send that is flushed when it is there" },
};
#define FAULTS (int)(sizeof(faults) / sizeof(faults[0]))

static uint64_t sum_spares(const struct job *job)
{
	uint64_t sum = 0;

	for (uint32_t r = 0; r < job->rank_count; r++)
		sum += job->counts[r].spares;
	return sum;
}

/* With one rail TCP goes on. */
START_TEST(any_completion_may_fail)
{
	const int f = _i / 2;
	uint32_t rails = 1 + (uint32_t)(_i % 2);
	uint64_t nth = 1, again = 0, spares = 0;
	uint64_t step = test_length() == TEST_SHORT ? 11 : test_length() == TEST_LONG ? 1 : 5;
	struct job job;

	do {
		uint64_t begun_ns = rb_clock_ns();
		char name[100];

		job = (struct job) { .main = faulty_main,
				     .rank_count = 2,
				     .rails = rails,
				     .receive = faults[f].receive,
				     .delivered = faults[f].delivered,
				     .status = faults[f].status,
				     .nth = nth };
		(void)snprintf(name, sizeof(name), "%s, number %llu, %u rails", faults[f].name,
			       (unsigned long long)nth, rails);
		job_run(&job);
		all_right(&job, name);
		ck_assert_msg(rb_clock_ns() - begun_ns < LIMIT_NS, "%s: too late", name);
		ck_assert_msg(!job.fired || job.counts[0].failed + job.counts[1].failed > 0,
			      "%s: no link has failed", name);
		again += sum_again(&job);
		spares += sum_spares(&job);
		nth += step;
		ck_assert_uint_lt(nth, NTH_MAX);
	} while (job.fired);
	ck_assert_uint_gt(nth, 2 * step); /* The first has fired. */
	ck_assert_uint_gt(again, 0);
	ck_assert((spares > 0) == (rails == 1));
}
END_TEST

/* ---- A link falls ---- */

enum how { LINK_DOWN, LOSS, SILENCE, HOWS };

static rubato_status await_lives(rubato_comm *comm)
{
	const struct rb_verbs *vb = verbs_of(comm);
	uint64_t until_ns = rb_clock_ns() + LIVES_NS;
	float missing = 1;

	while (missing != 0) { /* At any rank: they go on together. */
		float mine = 0;

		rb_engine_enter(&comm->engine);
		for (uint32_t r = 0; r < vb->base.rank_count; r++)
			mine += (float)(vb->peers[r].link_count - vb->peers[r].live);
		rb_engine_leave(&comm->engine);
		if (mine != 0 && rb_clock_ns() >= until_ns)
			return RB_FAIL(RUBATO_ERR_TIMEOUT, "a link does not come back");
		RB_TRY(rubato_allreduce(comm, &mine, &missing, 1, RUBATO_FLOAT32, RUBATO_SUM));
	}
	return RUBATO_OK;
}

/* Of rank 0's queue pair to rank 1. */
static uint32_t number_of(rubato_comm *comm, uint32_t rail)
{
	uint32_t number;

	rb_engine_enter(&comm->engine);
	number = verbs_of(comm)->peers[1].links[rail].qp->qp_num;
	rb_engine_leave(&comm->engine);
	return number;
}

static void rail_break(struct job *job, enum how how, rubato_comm *comm)
{
	if (how == LINK_DOWN)
		mock_link(0, job->rail, 1, false);
	else if (how == LOSS)
		mock_loss(0, job->rail, 1, 1000);
	else
		mock_silence(number_of(comm, job->rail), true);
}

static void rail_mend(struct job *job, enum how how)
{
	if (how == LINK_DOWN)
		mock_link(0, job->rail, 1, true);
	else if (how == LOSS)
		mock_loss(0, job->rail, 1, 0);
}

static rubato_status falling_main(rubato_comm *comm, struct job *job)
{
	enum how how = (enum how)(job->nth / 2);
	bool during = job->nth % 2 == 1;

	RB_TRY(calls(comm, 0));
	if (rubato_rank(comm) == 0 && !during)
		rail_break(job, how, comm);
	RB_TRY(rubato_barrier(comm));
	if (during && rubato_rank(comm) == 0)
		rail_break(job, how, comm); /* While the others have begun. */
	for (uint64_t round = 1; round <= 3; round++)
		RB_TRY(calls(comm, round));
	if (rubato_rank(comm) == 0)
		rail_mend(job, how);
	RB_TRY(await_lives(comm));
	RB_TRY(calls(comm, 4));
	return await_lives(comm); /* What was sent before it was mended may have failed late. */
}

/* Of the only one the job goes on over TCP meanwhile. */
START_TEST(a_rail_that_falls_comes_back)
{
	static const char *const names[HOWS] = { "its link is down", "all is lost in silence",
						 "a queue pair is silent" };
	enum how how = (enum how)(_i / 2 % HOWS);
	uint32_t rails = _i / 2 / HOWS == 2 ? 1 : 2;
	uint32_t rail = (uint32_t)(_i / 2 / HOWS) % 2;

	for (uint32_t ranks = 2; ranks <= (rails == 1 ? 4u : 3u); ranks++) {
		if (test_length() == TEST_SHORT && (_i + _i / 2 / HOWS + (int)ranks) % 2 != 0)
			continue; /* Under sanitizers every other one. */
		struct job job = { .main = falling_main,
				   .rank_count = ranks,
				   .rails = rails,
				   .rail = rail,
				   .nth = (uint64_t)how * 2 + (uint64_t)(_i % 2) };
		char name[100];

		(void)snprintf(name, sizeof(name), "rail %u of %u, %u ranks: %s", rail, rails,
			       ranks, names[how]);
		job_run(&job);
		all_right(&job, name);
		/* Silence is of the queue pair of one pair. */
		ck_assert_msg(job.counts[0].failed > 0 && job.counts[1].failed > 0,
			      "%s: no link has failed", name);
		ck_assert_msg((sum_spares(&job) > 0) == (rails == 1), "%s: %llu by TCP", name,
			      (unsigned long long)sum_spares(&job));
		for (uint32_t r = 0; r < ranks; r++)
			ck_assert_msg(job.counts[r].failed == job.counts[r].risen,
				      "%s: rank %u: %llu failed, %llu rose", name, r,
				      (unsigned long long)job.counts[r].failed,
				      (unsigned long long)job.counts[r].risen);
	}
}
END_TEST

/* All but the last one: what is said of the first goes by the second, which fails, too. */
static rubato_status two_fall_main(rubato_comm *comm, struct job *job)
{
	enum how how = (enum how)(job->nth);

	RB_TRY(calls(comm, 0));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		for (job->rail = 0; job->rail < 2; job->rail++)
			rail_break(job, how, comm);
	for (uint64_t round = 1; round <= 3; round++)
		RB_TRY(calls(comm, round));
	if (rubato_rank(comm) == 0)
		for (job->rail = 0; job->rail < 2; job->rail++)
			rail_mend(job, how);
	RB_TRY(await_lives(comm));
	return calls(comm, 4);
}

START_TEST(two_rails_of_three_fall_together)
{
	struct job job = {
		.main = two_fall_main, .rank_count = 2, .rails = 3, .nth = (uint64_t)_i
	};
	uint64_t begun_ns = rb_clock_ns();

	job_run(&job);
	all_right(&job, "two rails of three");
	ck_assert_uint_lt(rb_clock_ns() - begun_ns, LIMIT_NS);
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_uint_ge(job.counts[r].failed, 2);
}
END_TEST

#define SLOW_US 50u
#define MANY_MESSAGES 400u

/* From rank 0 to 1: many are on their way all the time, and rail 2 fails in their midst. */
static rubato_status many_messages(rubato_comm *comm)
{
	static _Thread_local float data[100];

	for (uint32_t n = 0; n < MANY_MESSAGES; n++) {
		if (rubato_rank(comm) == 0) {
			for (uint32_t i = 0; i < 100; i++)
				data[i] = element(0, i, n);
			if (n == MANY_MESSAGES / 2)
				mock_link(0, 2, 1, false);
			RB_TRY(rubato_send(comm, data, 100, RUBATO_FLOAT32, 1, 3));
			continue;
		}
		RB_TRY(rubato_recv(comm, data, 100, RUBATO_FLOAT32, 0, 3));
		for (uint32_t i = 0; i < 100; i++)
			if (data[i] != element(0, i, n))
				return RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: message %u", n);
	}
	return RUBATO_OK;
}

/* Both ends have seen that rail 2 fell: one of them hears of it by the other. */
static rubato_status await_fall(rubato_comm *comm)
{
	const struct rb_verbs *vb = verbs_of(comm);
	int32_t lives = 1, any = 1;

	for (uint32_t i = 0; i < 100000 && any != 0; i++) {
		rb_engine_enter(&comm->engine);
		lives = rb_verbs_is_live(&vb->peers[1 - rubato_rank(comm)].links[2]);
		rb_engine_leave(&comm->engine);
		RB_TRY(rubato_allreduce(comm, &lives, &any, 1, RUBATO_INT32, RUBATO_MAX));
	}
	return any == 0 ? RUBATO_OK : RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: rail 2 lives");
}

/* Rail 0 fell and is back, so that the stream goes by rail 1. */
static rubato_status another_falls_main(rubato_comm *comm, struct job *job)
{
	const struct rb_verbs *vb = verbs_of(comm);

	RB_TRY(calls(comm, 0));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		rail_break(job, LINK_DOWN, comm);
	RB_TRY(calls(comm, 1));
	if (rubato_rank(comm) == 0)
		rail_mend(job, LINK_DOWN);
	RB_TRY(await_lives(comm));
	rb_engine_enter(&comm->engine);
	ck_assert_uint_eq(vb->peers[1 - rubato_rank(comm)].main->index, 1);
	rb_engine_leave(&comm->engine);
	if (rubato_rank(comm) == 0)
		mock_slow(0, 1, 1, SLOW_US);
	RB_TRY(rubato_barrier(comm));
	RB_TRY(many_messages(comm));
	RB_TRY(await_fall(comm));
	rb_engine_enter(&comm->engine);
	ck_assert_uint_eq(vb->peers[1 - rubato_rank(comm)].main->index, 1);
	rb_engine_leave(&comm->engine);
	return RUBATO_OK;
}

START_TEST(the_stream_stays_where_another_rail_fails)
{
	struct job job = { .main = another_falls_main, .rank_count = 2, .rails = 3 };

	job_run(&job);
	all_right(&job, "another rail");
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_uint_eq(job.counts[r].failed, 2);
}
END_TEST

static rubato_status fallen_main(rubato_comm *comm, struct job *job)
{
	rubato_status status = calls(comm, 0);
	uint64_t begun_ns;

	RB_TRY(status);
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0)
		for (uint32_t i = 0; i < job->rails; i++)
			mock_link(0, i, 1, false);
	begun_ns = rb_clock_ns();
	for (uint64_t round = 0; status == RUBATO_OK && round < job->nth; round++)
		status = calls(comm, round);
	if (rb_clock_ns() - begun_ns > LIMIT_NS)
		return RB_FAIL(RUBATO_ERR_TIMEOUT, "too late");
	return status;
}

START_TEST(without_a_rail_tcp_goes_on)
{
	struct job job = {
		.main = fallen_main, .rank_count = 1 + (uint32_t)_i, .rails = (uint32_t)_i, .nth = 4
	};

	job_run(&job);
	all_right(&job, "no rail is left");
	for (uint32_t r = 0; r < job.rank_count; r++)
		ck_assert_uint_gt(job.counts[r].spares, 0);
}
END_TEST

START_TEST(without_any_way_the_peer_is_named)
{
	bool deaf = _i % 2 == 0;
	struct job job = {
		.main = fallen_main, .rank_count = 2, .rails = 1 + (uint32_t)_i / 2, .nth = 100
	};

	atomic_store(&listen_fails, deaf);
	atomic_store(&connect_fails, !deaf);
	job_run(&job);
	ck_assert_uint_gt(atomic_load(deaf ? &listen_failed : &connect_failed), 0);
	for (uint32_t r = 0; r < 2; r++) {
		char other[16];

		(void)snprintf(other, sizeof(other), "rank %u", 1 - r);
		ck_assert_msg(strstr(job.texts[r], other) != NULL &&
				      (deaf || strstr(job.texts[r], "TCP") != NULL) &&
				      strstr(job.texts[r], "wrong") == NULL,
			      "rank %u: %s", r, job.texts[r]);
	}
}
END_TEST

/* ---- What the device says ---- */

static const struct {
	enum ibv_event_type type;
	bool of_queue;
	bool may_lose; /* What had come may be lost with it: then the peer is, and is named. */
} events[] = {
	{ IBV_EVENT_QP_FATAL, true, false },      { IBV_EVENT_QP_REQ_ERR, true, false },
	{ IBV_EVENT_QP_ACCESS_ERR, true, false }, { IBV_EVENT_PORT_ERR, false, false },
	{ IBV_EVENT_CQ_ERR, true, true },         { IBV_EVENT_DEVICE_FATAL, false, true },
};
#define EVENTS (int)(sizeof(events) / sizeof(events[0]))

static rubato_status told_main(rubato_comm *comm, struct job *job)
{
	RB_TRY(calls(comm, 0));
	RB_TRY(rubato_barrier(comm));
	if (rubato_rank(comm) == 0) {
		uint32_t number = number_of(comm, job->rail);
		enum ibv_event_type type = events[job->nth].type;

		if (type == IBV_EVENT_CQ_ERR)
			ck_assert_int_eq(mock_cq_error(number), 0);
		else if (events[job->nth].of_queue)
			ck_assert_int_eq(mock_qp_event(number, type), 0);
		else
			mock_device_event(0, job->rail, 1, type);
	}
	for (uint64_t round = 1; round <= 3; round++)
		RB_TRY(calls(comm, round));
	return RUBATO_OK;
}

START_TEST(what_a_device_tells_of_a_rail_leaves_the_other)
{
	for (uint32_t rail = 0; rail < 2; rail++) {
		struct job job = { .main = told_main,
				   .rank_count = 2,
				   .rails = 2,
				   .rail = rail,
				   .nth = (uint64_t)_i };

		job_run(&job);
		for (uint32_t r = 0; r < 2; r++) {
			const char *text = job.texts[r];
			char other[16];

			(void)snprintf(other, sizeof(other), "rank %u", 1 - r);
			ck_assert_msg(text[0] == '\0' ||
					      (events[_i].may_lose && strstr(text, other) != NULL &&
					       strstr(text, "wrong") == NULL),
				      "event %u on rail %u: rank %u: %s", events[_i].type, rail, r,
				      text);
		}
		ck_assert_uint_gt(job.counts[0].failed, 0);
	}
}
END_TEST

/* ---- Two ends, without a runtime ---- */

#define MANY 1000u /* Ranks, of which two are there. */

struct pair {
	uint32_t rank_count;
	pthread_barrier_t barrier;
	uint8_t bytes[2][RB_ADDRESS_BYTES_MAX];
	size_t size_bytes[2];
	uint64_t each[2]; /* For a peer: slots, entries, what we keep of it. */
	uint64_t slots[2];
	const char *interfaces[2];
	char devices[2][64]; /* Of the main link. */
	uint32_t links[2], live[2];
	char texts[2][300];
};

struct end {
	struct pair *pair;
	uint32_t rank;
};

static rubato_status end_open(struct pair *pair, uint32_t rank, struct rb_endpoint **out)
{
	struct rb_transport_options options = { .rank = rank,
						.rank_count = pair->rank_count,
						.interface = pair->interfaces[rank] };
	const void *addresses[MANY] = { pair->bytes[0], pair->bytes[1] };
	bool use[MANY] = { true, true };

	RB_TRY(rb_transport_verbs.open(&options, out));
	RB_TRY(rb_transport_verbs.address(*out, pair->bytes[rank], &pair->size_bytes[rank]));
	(void)pthread_barrier_wait(&pair->barrier);
	return rb_transport_verbs.connect(*out, addresses, pair->size_bytes, use,
					  rb_clock_ns() + LIMIT_NS);
}

static void *end_main(void *arg)
{
	const struct end *end = arg;
	struct pair *pair = end->pair;
	struct rb_endpoint *ep = NULL;

	if (end_open(pair, end->rank, &ep) != RUBATO_OK) {
		(void)snprintf(pair->texts[end->rank], sizeof(pair->texts[0]), "%s",
			       rubato_error_text());
	} else {
		const struct rb_verbs *vb = (const struct rb_verbs *)ep;
		const struct rb_verbs_peer *peer = &vb->peers[1 - end->rank];

		pair->slots[end->rank] = vb->slots_bytes;
		pair->links[end->rank] = peer->link_count;
		pair->live[end->rank] = peer->live;
		(void)snprintf(pair->devices[end->rank], sizeof(pair->devices[0]), "%s",
			       rb_verbs_main(peer)->rail->port.device);
		pair->each[end->rank] =
			vb->slots_bytes + sizeof(*peer) +
			peer->link_count * (sizeof(peer->links[0]) +
					    vb->queue * sizeof(peer->links[0].entries[0]));
	}
	(void)pthread_barrier_wait(&pair->barrier);
	rb_transport_verbs.close(ep, false, rb_clock_ns() + LIMIT_NS);
	return NULL;
}

static void ends_run(struct pair *pair, void *(*body)(void *), uint32_t devices, uint32_t fabrics)
{
	struct mock_config config;
	struct end ends[2] = { { pair, 0 }, { pair, 1 } };
	pthread_t threads[2];

	mock_config_default(&config);
	config.devices = devices;
	config.fabrics = fabrics;
	config.max_cqe = 1 << 20;
	ck_assert_int_eq(mock_reset(&config), 0);
	ck_assert_int_eq(pthread_barrier_init(&pair->barrier, NULL, 2), 0);
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_int_eq(pthread_create(&threads[r], NULL, body, &ends[r]), 0);
	for (uint32_t r = 0; r < 2; r++)
		(void)pthread_join(threads[r], NULL);
}

static void pair_run(struct pair *pair, uint32_t devices, uint32_t fabrics)
{
	ends_run(pair, end_main, devices, fabrics);
	for (uint32_t r = 0; r < 2; r++)
		ck_assert_str_eq(pair->texts[r], "");
}

static const struct {
	const char *interfaces[2], *mains[2];
	uint32_t devices, fabrics, links, live;
} namings[] = {
	{ { NULL, NULL }, { "mock0", "mock0" }, 3, 0, 3, 3 },
	{ { "mock1", NULL }, { "mock1", "mock0" }, 3, 0, 1, 1 }, /* The smaller number. */
	{ { "mock2,mock0", "mock1:1,mock2" }, { "mock2", "mock1" }, 3, 0, 2, 2 },
	{ { "^mock0", "^mock0" }, { "mock1", "mock1" }, 3, 0, 2, 2 },
	/* One that does not lead there is left out. */
	{ { "mock0,mock1", "mock0,mock2" }, { "mock0", "mock0" }, 3, 1, 2, 1 },
	{ { "mock1,mock0", "mock2,mock0" }, { "mock0", "mock0" }, 3, 1, 2, 1 },
};
#define NAMINGS (int)(sizeof(namings) / sizeof(namings[0]))

START_TEST(rails_are_those_that_are_named)
{
	static struct pair pair;

	pair.rank_count = 2;
	memcpy(pair.interfaces, namings[_i].interfaces, sizeof(pair.interfaces));
	pair_run(&pair, namings[_i].devices, namings[_i].fabrics);
	for (uint32_t r = 0; r < 2; r++) {
		ck_assert_uint_eq(pair.links[r], namings[_i].links);
		ck_assert_uint_eq(pair.live[r], namings[_i].live);
		ck_assert_str_eq(pair.devices[r], namings[_i].mains[r]);
	}
}
END_TEST

static const struct {
	uint32_t rank_count, rails, slots_kib, all_bytes_max;
} budgets[] = {
	{ 2, 1, 64, 72 << 10 },    { 2, 2, 128, 140 << 10 },  { 2, 4, 256, 276 << 10 },
	{ 65, 1, 64, 72 << 10 },   { 65, 2, 64, 76 << 10 },   { 65, 4, 64, 84 << 10 },
	{ MANY, 1, 32, 36 << 10 }, { MANY, 2, 32, 39 << 10 }, { MANY, 4, 56, 64 << 10 },
};
#define BUDGETS (int)(sizeof(budgets) / sizeof(budgets[0]))

START_TEST(a_peer_costs_no_more_than_is_said)
{
	static struct pair pair;

	pair.rank_count = budgets[_i].rank_count;
	pair_run(&pair, budgets[_i].rails, 0);
	for (uint32_t r = 0; r < 2; r++) {
		ck_assert_uint_eq(pair.slots[r], budgets[_i].slots_kib << 10);
		ck_assert_uint_le(pair.each[r], budgets[_i].all_bytes_max);
	}
}
END_TEST

/* ---- A registration that cannot be ended ---- */

#define KEY_BYTES 200000u

struct keyed {
	struct pair pair;
	bool computes; /* Rank 1, while rank 0 cancels. */
	int fault;
	bool lost;
	uint8_t got[KEY_BYTES], data[KEY_BYTES];
};

static void poll_until(struct rb_endpoint *ep, const struct rb_request *request, uint64_t span_ns)
{
	uint64_t until_ns = rb_clock_ns() + span_ns;

	while (request->state == RB_REQUEST_PENDING && rb_clock_ns() < until_ns)
		(void)ep->ops->poll(ep);
}

static void request_set(struct rb_request *request, uint32_t peer, void *buffer)
{
	*request = (struct rb_request) { .peer = peer,
					 .tag = rb_tag(0, RB_TAG_ONESHOT, 7, 1),
					 .buffer = buffer,
					 .size_bytes = KEY_BYTES };
}

static void receiver(struct keyed *keyed, struct rb_endpoint *ep)
{
	struct rb_request receive;
	struct rb_failure failure;

	(void)pthread_barrier_wait(
		&keyed->pair.barrier); /* Connecting is over: it has keys, too. */
	request_set(&receive, 1, keyed->got);
	ep->ops->recv(ep, &receive);
	keyed->fault = mock_fail_call("ibv_dereg_mr", 1, 1, EIO);
	(void)pthread_barrier_wait(&keyed->pair.barrier); /* It has invited. */
	if (keyed->computes)
		ep->ops->cancel(ep, &receive);
	else
		poll_until(ep, &receive, LIMIT_NS);
	ck_assert_int_eq(receive.state, RB_REQUEST_DONE);
	ck_assert_int_eq(receive.status, keyed->computes ? RUBATO_ERR_PEER : RUBATO_OK);
	ck_assert_uint_eq(mock_fired(keyed->fault), 1);
	keyed->lost = ep->ops->failure(ep, &failure);
	(void)pthread_barrier_wait(&keyed->pair.barrier);
}

static void sender(struct keyed *keyed, struct rb_endpoint *ep)
{
	struct rb_request send;

	(void)pthread_barrier_wait(&keyed->pair.barrier);
	(void)pthread_barrier_wait(&keyed->pair.barrier);
	request_set(&send, 0, keyed->data);
	if (keyed->computes)
		(void)pthread_barrier_wait(&keyed->pair.barrier);
	ep->ops->send(ep, &send);
	poll_until(ep, &send, LIMIT_NS);
	ck_assert_int_eq(send.state, RB_REQUEST_DONE);
	if (!keyed->computes)
		(void)pthread_barrier_wait(&keyed->pair.barrier);
}

static void *keyed_main(void *arg)
{
	const struct end *end = arg;
	struct keyed *keyed = (struct keyed *)end->pair;
	struct rb_endpoint *ep = NULL;

	ck_assert_int_eq(end_open(end->pair, end->rank, &ep), RUBATO_OK);
	if (end->rank == 0)
		receiver(keyed, ep);
	else
		sender(keyed, ep);
	rb_transport_verbs.close(ep, false, rb_clock_ns() + LIMIT_NS);
	return NULL;
}

START_TEST(a_key_that_stays_is_not_used)
{
	static struct keyed keyed;
	struct mock_counters counters;

	keyed.computes = _i == 1;
	keyed.pair.rank_count = 2;
	memset(keyed.data, 5, sizeof(keyed.data));
	ends_run(&keyed.pair, keyed_main, 1, 0);
	ck_assert(keyed.lost == keyed.computes);
	for (uint32_t i = 0; i < KEY_BYTES; i++)
		ck_assert_uint_eq(keyed.got[i], keyed.computes ? 0 : 5);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.left_open, 0); /* Ended at close. */
}
END_TEST

/* ---- Flapping ---- */

static void *flapper(void *arg)
{
	struct job *job = arg;
	struct rb_rng rng = { job->seed };

	while (!__atomic_load_n(&job->over, __ATOMIC_ACQUIRE)) {
		mock_link(0, job->rail, 1, false);
		(void)usleep((useconds_t)(1000 + rb_rng_next(&rng) % 40000));
		mock_link(0, job->rail, 1, true);
		(void)usleep((useconds_t)(1000 + rb_rng_next(&rng) % 60000));
		job->flaps++;
	}
	return NULL;
}

/* Counts, not time, say when enough has happened: where others keep the processors busy, links come
 * back so late that in 3 s two of 25 flaps met one that lived. */
static bool flapped_enough(rubato_comm *comm, const struct job *job)
{
	const struct rb_verbs *vb = verbs_of(comm);
	uint64_t now_ns = rb_clock_ns();
	bool enough;

	rb_engine_enter(&comm->engine);
	enough = vb->counts.failed > FLAPS_MIN && (job->rail != 0 || vb->counts.again > 0);
	rb_engine_leave(&comm->engine);
	enough = enough && atomic_load(&job->flaps) > FLAPS_MIN;
	return now_ns >= job->until_ns + (enough ? 0 : FLAPS_MORE_NS);
}

static rubato_status flapping_main(rubato_comm *comm, struct job *job)
{
	struct rb_rng sizes = { job->seed };
	uint64_t round = 0;
	rubato_status status = RUBATO_OK;
	pthread_t thread;
	float over = 0;

	if (rubato_rank(comm) == 0)
		ck_assert_int_eq(pthread_create(&thread, NULL, flapper, job), 0);
	for (; over == 0 && status == RUBATO_OK; round++) {
		uint32_t most = rb_rng_next(&sizes) % 4 == 0 ? ELEMENTS_MAX : 6000;
		float mine = rubato_rank(comm) == 0 && flapped_enough(comm, job);

		status = sums(comm, (uint32_t)(1 + rb_rng_next(&sizes) % most), round);
		if (status == RUBATO_OK && round % 8 == 0)
			status = messages(comm, round);
		if (status == RUBATO_OK)
			status =
				rubato_allreduce(comm, &mine, &over, 1, RUBATO_FLOAT32, RUBATO_SUM);
	}
	if (rubato_rank(comm) == 0) {
		__atomic_store_n(&job->over, true, __ATOMIC_RELEASE);
		(void)pthread_join(thread, NULL);
		job->results = round;
	}
	return status;
}

START_TEST(a_rail_flaps_and_every_result_is_right)
{
	uint64_t span_ns = test_length() == TEST_SHORT  ? SHORT_FLAPS_NS
			   : test_length() == TEST_LONG ? LONG_FLAPS_NS
							: FLAPS_NS;
	struct seeds seeds = seeds_from(__func__, (uint64_t)_i + 1, 1);

	/* Three of the six have each number of ranks and both rails. */
	if (test_length() == TEST_SHORT && _i % 2 == 0 && !seeds_chosen())
		return;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct job job = { .main = flapping_main,
				   .rank_count = 2 + (uint32_t)(seed % 3),
				   .rails = seed % 7 < 4 ? 1 : 2,
				   .seed = seed,
				   .rail = seed % 7 < 4 ? 0 : (uint32_t)(seed / 3 % 2),
				   .until_ns = rb_clock_ns() + span_ns };
		uint64_t failed = 0;

		job_run(&job);
		all_right(&job, "flapping");
		for (uint32_t r = 0; r < job.rank_count; r++)
			failed += job.counts[r].failed;
		(void)fprintf(stderr,
			      "%u ranks, rail %u of %u: %llu rounds, %llu flaps, %llu links "
			      "failed, %llu messages and writes done again\n",
			      job.rank_count, job.rail, job.rails, (unsigned long long)job.results,
			      (unsigned long long)job.flaps, (unsigned long long)failed,
			      (unsigned long long)sum_again(&job));
		ck_assert_uint_gt(job.flaps, FLAPS_MIN);
		ck_assert_uint_gt(failed, FLAPS_MIN);
		/* Messages go by rail 0; of rail 1 there may have been nothing under way. */
		ck_assert(job.rail != 0 || sum_again(&job) > 0);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("links");

	side_by_side(3);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, any_completion_may_fail, 0, 2 * FAULTS);
	tcase_add_loop_test(tc, a_rail_that_falls_comes_back, 0, 6 * HOWS);
	tcase_add_loop_test(tc, two_rails_of_three_fall_together, 0, HOWS);
	tcase_add_test(tc, the_stream_stays_where_another_rail_fails);
	tcase_add_loop_test(tc, without_a_rail_tcp_goes_on, 1, 4);
	tcase_add_loop_test(tc, without_any_way_the_peer_is_named, 0, 4);
	tcase_add_loop_test(tc, what_a_device_tells_of_a_rail_leaves_the_other, 0, EVENTS);
	tcase_add_loop_test(tc, rails_are_those_that_are_named, 0, NAMINGS);
	tcase_add_loop_test(tc, a_peer_costs_no_more_than_is_said, 0, BUDGETS);
	tcase_add_loop_test(tc, a_key_that_stays_is_not_used, 0, 2);
	tcase_add_loop_test(tc, a_rail_flaps_and_every_result_is_right, 0, 6);
	return check_main("verbs-links", tc);
}
