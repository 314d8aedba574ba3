/*
 * test_verbs_start.c -- what may be wrong when ranks find each other by RDMA: the datagrams by
 * which they do, addresses that do not lead there, machines that differ, and devices that have
 * little. Each job is right, or each rank has an error that says whom, where and from which port,
 * in time.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"
#include "tests/side_by_side.h"
#include "transport/verbs/verbs.h"

#define SILENT_NS 1000000000ull /* Of a job in which a rank stops. */
#define FAULTY_MAX 12u          /* Datagrams of a rank: the first ones, one by one. */

/* ---- Datagrams ---- */

enum change {
	LOST,
	TWICE,
	LATE, /* Behind the next one. */
	CUT,
	LENGTHENED,
	OF_ANOTHER_JOB,
	OF_ANOTHER_VERSION,
	OF_ANOTHER_RANK,
	OF_ANOTHER_RAIL,
	OF_ANOTHER_LIFE,
	CHANGES,
};
static const char *const change_names[CHANGES] = {
	"lost",
	"doubled",
	"late",
	"cut",
	"lengthened",
	"of another job",
	"of another version",
	"of a rank that is not there",
	"of a rail that is not there",
	"of another life",
};

struct fault {
	enum change change;
	uint32_t rank;
	bool onwards; /* All from the kth on. */
	uint64_t k, seen;
	struct job *job;
};

static enum mock_fate datagram_change(enum change change, struct rb_verbs_greeting *g,
				      uint32_t *size_bytes)
{
	switch (change) {
	case LOST:
		return MOCK_LOST;
	case TWICE:
		return MOCK_TWICE;
	case LATE:
		return MOCK_LATE;
	case CUT:
		*size_bytes -= 1;
		break;
	case LENGTHENED:
		*size_bytes += 1;
		break;
	case OF_ANOTHER_JOB:
		g->job[3] ^= 1;
		break;
	case OF_ANOTHER_VERSION:
		g->version++;
		break;
	case OF_ANOTHER_RANK:
		g->rank = 2;
		break;
	case OF_ANOTHER_RAIL:
		g->rail = 2;
		break;
	case OF_ANOTHER_LIFE:
		g->life++;
		break;
	case CHANGES:
		break;
	}
	return MOCK_ARRIVES;
}

/* Nodes are ranks. Holds the mock's lock, so one at a time. */
static enum mock_fate carry(void *arg, uint32_t node, void *bytes, uint32_t *size_bytes)
{
	struct fault *fault = arg;

	if (node != fault->rank || *size_bytes != sizeof(struct rb_verbs_greeting))
		return MOCK_ARRIVES;
	fault->seen++;
	if (fault->onwards ? fault->seen < fault->k : fault->seen != fault->k)
		return MOCK_ARRIVES;
	fault->job->fired++;
	return datagram_change(fault->change, bytes, size_bytes);
}

static void datagrams_watch(struct job *job)
{
	struct fault *fault = job->arg;

	fault->job = job;
	job_mock.carry_datagrams(carry, fault);
}

/* One that is missing is sent again. All of them: none comes. */
static bool is_harmless(const struct fault *fault)
{
	return !fault->onwards || fault->change == TWICE || fault->change == LATE;
}

static void prepare(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes)
{
	struct fault *fault = arg; /* A copy: this is a process of its own. */

	fault->k = k;
	job->arg = fault;
	job->prepared = datagrams_watch;
	(void)snprintf(name, name_bytes, "datagram %llu of rank %u%s: %s", (unsigned long long)k,
		       fault->rank, fault->onwards ? " and all that follow" : "",
		       change_names[fault->change]);
}

/* Whom, where, from which port: if not in the rank's own words, then in what the other one heard of
 * it. */
static bool is_named(const struct job *job, uint32_t rank)
{
	const char *text = job->texts[rank];

	return strstr(text, "GID") != NULL && strstr(text, "mock") != NULL &&
	       strstr(text, "port 1") != NULL && strstr(text, "rank") != NULL;
}

static bool judge(const struct job *job, void *arg, char *text, size_t text_bytes)
{
	const struct fault *fault = arg;
	bool harmless = is_harmless(fault);

	(void)snprintf(text, text_bytes, "%s: %s; %s", harmless ? "not right" : "unnamed",
		       job->texts[0], job->texts[1]);
	return job_is_right(job) || (!harmless && (is_named(job, 0) || is_named(job, 1)));
}

/* The first ones of each rank, over two rails; TEST_LENGTH=short: some of them. */
START_TEST(any_datagram_may_be_wrong)
{
	struct fault fault = { .change = (enum change)(_i % CHANGES),
			       .rank = (uint32_t)_i / CHANGES % 2,
			       .onwards = _i / CHANGES / 2 != 0 };
	struct job_series series = { .prepare = prepare,
				     .judge = judge,
				     .arg = &fault,
				     .step = test_length() == TEST_SHORT ? 5 : 1,
				     .last = FAULTY_MAX };

	ck_assert_msg(job_series_run(&series) > 0, "no datagram was ever %s",
		      change_names[fault.change]);
}
END_TEST

/* ---- A rail that fails in between ---- */

/* Of a wait: 340 messages there and back, each of which may wait for a processor. */
#define LOSS_TIMEOUT_NS (2 * JOB_TIMEOUT_NS)
#define LOSSES_WIDE 2u     /* Who measures polls, and answers each other in turn. */
#define MEASURED 340u      /* Sends that measuring takes, of both ranks. */
#define DATAGRAMS 8u       /* Those before it, where both come at once, */
#define LATE_NS 300000000u /* or the more of them the later one comes. */
#define STEP 5u            /* So many of these are left out after each, */
#define STEP_SHORT 61u     /* where a test is short; primes: each kind of message has its turn. */

struct loss {
	bool delivered;
	uint32_t devices;
	bool meeting;     /* Counted from the first datagram; else once both ranks have met. */
	uint64_t late_ns; /* So much later rank 1 comes to connecting. */
	uint64_t nth;
	_Atomic uint32_t met;
	_Atomic int fault; /* 0: none yet. */
};

static void loss_begin(struct loss *loss)
{
	loss->fault = job_mock.fail_send(loss->nth, IBV_WC_RETRY_EXC_ERR, loss->delivered);
}

static void loss_prepared(struct job *job)
{
	struct loss *loss = job->arg;

	if (loss->meeting)
		loss_begin(loss);
}

/* Neither rank works yet: what one waits for the other one may have done already. */
static int loss_at_call(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	struct loss *loss = job->arg;

	if (rank == 1 && nth == 1 && strcmp(function, "ibv_create_ah") == 0)
		rb_clock_sleep_until(rb_clock_ns() + loss->late_ns);
	/* Who has met its peer sends no datagrams any more; nobody measures before both have. */
	if (!loss->meeting && nth == 1 && strcmp(function, "ibv_destroy_ah") == 0 &&
	    ++loss->met == 2)
		loss_begin(loss);
	if (job->fired == 0 && loss->fault != 0 && job->stage[0] == JOB_STARTS &&
	    job->stage[1] == JOB_STARTS)
		job->fired = (uint32_t)job_mock.fired(loss->fault);
	return 0;
}

static void loss_prepare(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes)
{
	struct loss *loss = arg;

	loss->nth = k;
	job->arg = loss;
	job->config.devices = loss->devices;
	job->measures = true;
	job->timeout_ns = LOSS_TIMEOUT_NS;
	job->prepared = loss_prepared;
	job->at_call = loss_at_call;
	(void)snprintf(name, name_bytes, "%s send %llu is lost",
		       loss->delivered ? "a delivered" : "a", (unsigned long long)k);
}

static bool loss_judge(const struct job *job, void *arg, char *text, size_t text_bytes)
{
	(void)arg;
	(void)snprintf(text, text_bytes, "not right: %s; %s", job->texts[0], job->texts[1]);
	return job_is_right(job);
}

/* Who has sent its last message waits outside of the engine, and has to look after it all the
 * same. */
START_TEST(a_rail_may_fail_while_links_are_measured)
{
	struct loss loss = { .delivered = _i != 0, .devices = 1 };
	struct job_series series = { .prepare = loss_prepare,
				     .judge = loss_judge,
				     .arg = &loss,
				     .step = test_length() == TEST_NORMAL ? STEP : STEP_SHORT,
				     .last = MEASURED,
				     .wide = LOSSES_WIDE };

	ck_assert_uint_gt(job_series_run(&series), MEASURED / series.step / 2);
}
END_TEST

/* It is no matter how many datagrams were sent before. */
START_TEST(a_rail_may_fail_while_links_to_a_late_rank_are_measured)
{
	struct loss loss = { .delivered = _i != 0, .devices = 1, .late_ns = LATE_NS };
	struct job_series series = { .prepare = loss_prepare,
				     .judge = loss_judge,
				     .arg = &loss,
				     .step = 1,
				     .last = DATAGRAMS,
				     .wide = LOSSES_WIDE };

	ck_assert_uint_eq(job_series_run(&series), DATAGRAMS);
}
END_TEST

/* Without another rail they may not meet: then one finds out, and tells the other, over TCP where
 * what carries datagrams has failed. */
static bool meeting_judge(const struct job *job, void *arg, char *text, size_t text_bytes)
{
	const struct loss *loss = arg;

	(void)snprintf(text, text_bytes, "%s: %s; %s", loss->devices > 1 ? "not right" : "waited",
		       job->texts[0], job->texts[1]);
	if (loss->devices > 1)
		return job_is_right(job);
	return job->status[0] != RUBATO_ERR_TIMEOUT && job->status[1] != RUBATO_ERR_TIMEOUT;
}

/* Datagrams, then what is first said on a rail itself, which the other end waits for. */
START_TEST(a_rail_may_fail_while_ranks_meet)
{
	struct loss loss = { .delivered = _i % 2 != 0,
			     .devices = 1 + (uint32_t)_i / 2,
			     .meeting = true };
	struct job_series series = { .prepare = loss_prepare,
				     .judge = meeting_judge,
				     .arg = &loss,
				     .step = 1,
				     .last = DATAGRAMS,
				     .wide = LOSSES_WIDE };

	ck_assert_uint_eq(job_series_run(&series), DATAGRAMS);
}
END_TEST

/* ---- Addresses that do not lead there ---- */

/* Once addresses have been told, the ports of rank 1 have others. */
static int gids_change(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	union ibv_gid other = { .raw = { [10] = 0xff, [11] = 0xff, 10, 99, 99, 99 } };

	if (rank != 1 || strcmp(function, "ibv_create_ah") != 0 || nth != 1)
		return 0;
	job->fired++;
	for (uint32_t device = 0; device < 2; device++)
		for (uint32_t i = 0; i < 4; i++)
			job_mock.gid(1, device, 1, i, i == 0 ? &other : NULL);
	return 0;
}

static void expect_good(const struct job *job)
{
	char text[600];

	ck_assert_msg(job_is_good(job, text, sizeof(text)), "%s", text);
}

static void expect_right(const struct job *job)
{
	expect_good(job);
	ck_assert_msg(job_is_right(job), "%s; %s", job->texts[0], job->texts[1]);
}

static void expect_says(const struct job *job, uint32_t rank, const char *text)
{
	ck_assert_msg(strstr(job->texts[rank], text) != NULL, "rank %u: '%s', not '%s'", rank,
		      job->texts[rank], text);
}

START_TEST(a_gid_that_leads_nowhere_is_named)
{
	struct job job;

	job_init(&job);
	job.at_call = gids_change;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	expect_good(&job);
	expect_says(&job, 0, "rank");
	expect_says(&job, 0, "GID ::ffff:10.0.1.1");
	expect_says(&job, 0, "mock0 port 1");
	ck_assert(job.texts[1][0] != '\0');
}
END_TEST

/* ---- Nodes that differ ---- */

static const struct node {
	const char *name;
	uint64_t value;
	const char *says[2]; /* NULL: the job is right. */
} nodes[] = {
	{ "mtu", IBV_MTU_256, { NULL, NULL } },
	{ "mtu", IBV_MTU_1024, { NULL, NULL } },
	{ "devices", 1, { NULL, NULL } },
	{ "devices", 3, { NULL, NULL } },
	{ "devices", 0, { "rank 1", "this machine has no RDMA device" } },
	{ "infiniband",
	  1,
	  { "rank 1: InfiniBand, GID fe80:", "rank 0: RoCE v2 over IPv4, GID ::ffff:10.0.0.1" } },
};
#define NODES ((int)(sizeof(nodes) / sizeof(nodes[0])))

static void node_change(struct job *job)
{
	const struct node *node = job->arg;

	job_mock.set_node(1, node->name, node->value);
	job->fired++;
}

START_TEST(nodes_may_differ)
{
	const struct node *node = &nodes[_i];
	struct job job;

	job_init(&job);
	job.prepared = node_change;
	job.arg = (void *)(uintptr_t)node;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	for (uint32_t r = 0; r < 2; r++)
		if (node->says[r] != NULL)
			expect_says(&job, r, node->says[r]);
	if (node->says[0] == NULL)
		expect_right(&job);
	else
		expect_good(&job);
	if (strcmp(node->name, "infiniband") == 0)
		for (uint32_t r = 0; r < 2; r++)
			expect_says(&job, r, "mock0 port 1");
}
END_TEST

/* A switch between them that lets less pass than both ports: what is long does not come through,
 * and goes over TCP. */
static int wire_narrows(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	if (rank == 1 && strcmp(function, "ibv_create_ah") == 0 && nth == 1) {
		job->fired++;
		job_mock.set("mtu", IBV_MTU_256);
	}
	return 0;
}

START_TEST(a_path_that_is_narrower_than_both_ends_is_done_without)
{
	struct job job;

	job_init(&job);
	job.config.devices = 1;
	job.at_call = wire_narrows;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	ck_assert_uint_gt(job.counters.retries_exhausted, 0);
	expect_good(&job);
	ck_assert_msg(job_is_right(&job), "%s; %s", job.texts[0], job.texts[1]);
}
END_TEST

/* ---- A rank that stops ---- */

#define STOPS_NS (5 * SILENT_NS) /* Longer than the other one waits. */

static int rank_stops(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	(void)nth;
	if (rank == 1 && job->stage[1] == JOB_RUNS && job->fired == 0 &&
	    strcmp(function, "ibv_post_send") == 0) {
		job->fired++;
		rb_clock_sleep_until(rb_clock_ns() + STOPS_NS);
	}
	return 0;
}

START_TEST(one_that_stops_is_named_with_the_way_there)
{
	struct job job;

	job_init(&job);
	job.at_call = rank_stops;
	job.timeout_ns = SILENT_NS;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	expect_good(&job);
	expect_says(&job, 0, "waited 1 s for rank 1");
	expect_says(&job, 0,
		    "(by mock0 port 1, RoCE v2, GID 3 ::ffff:10.0.0.1, MTU 4096, to "
		    "::ffff:10.0.1.1, by exchange)");
}
END_TEST

/* ---- Devices that have little ---- */

#define CQ_LEAST (64u + 128u + 2u * 64u) /* Of two ranks: slots, entries, datagrams. */
#define LIMIT(name) #name, offsetof(struct mock_config, name)

static const struct limit {
	const char *name;
	size_t offset;
	uint64_t value;
	const char *says; /* NULL: lived with. */
} limits[] = {
	{ LIMIT(max_qp), 1, "has at most 1 queue pairs; 2 ranks need 2" },
	{ LIMIT(max_qp), 2, NULL },
	{ LIMIT(max_qp_wr), 127, "has at most 127 entries in a queue pair; 2 ranks need 128" },
	{ LIMIT(max_qp_wr), 128, NULL },
	{ LIMIT(max_cqe), CQ_LEAST - 1,
	  "has at most 319 completions in a queue; 2 ranks need 320" },
	{ LIMIT(max_cqe), CQ_LEAST, NULL },
	{ LIMIT(max_cq), 0, "has at most 0 completion queues; 2 ranks need 1" },
	{ LIMIT(max_cq), 1, NULL },
	{ LIMIT(max_sge), 0, "has at most 0 pieces in an entry; 2 ranks need 1" },
	{ LIMIT(max_sge), 1, NULL },
	{ LIMIT(max_inline), 0, NULL },
	{ LIMIT(max_inline), 63, NULL },
	{ LIMIT(max_mr), 2, "has at most 2 memory regions; 2 ranks need 3" },
	{ LIMIT(max_mr), 4, NULL }, /* What is registered for one message finds no room: pieces. */
	{ LIMIT(max_mr_size), 65535,
	  "has at most 65535 bytes in a memory region; 2 ranks need 65536" },
	{ LIMIT(max_mr_size), 65536, "registering 320000 bytes of the caller's: Invalid argument" },
	{ LIMIT(max_memlock), 65535,
	  "registering 65536 bytes to send from: Cannot allocate memory" },
	{ LIMIT(max_memlock), 300000, "of the caller's: Cannot allocate memory" },
};
#define LIMITS ((int)(sizeof(limits) / sizeof(limits[0])))

START_TEST(a_limit_is_lived_with_or_said)
{
	const struct limit *limit = &limits[_i];
	struct job job;

	job_init(&job);
	job.config.devices = 1;
	*(uint64_t *)((char *)&job.config + limit->offset) = limit->value;
	job.fired = 1; /* The device says so. */
	job_run(&job);
	if (limit->says == NULL) {
		expect_right(&job);
		return;
	}
	expect_good(&job);
	ck_assert_msg(strstr(job.texts[0], limit->says) != NULL ||
			      strstr(job.texts[1], limit->says) != NULL,
		      "%s %llu: '%s'; '%s'", limit->name, (unsigned long long)limit->value,
		      job.texts[0], job.texts[1]);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("start");

	side_by_side(4);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, any_datagram_may_be_wrong, 0, CHANGES * 4);
	tcase_add_loop_test(tc, a_rail_may_fail_while_links_are_measured, 0, 2);
	tcase_add_loop_test(tc, a_rail_may_fail_while_links_to_a_late_rank_are_measured, 0, 2);
	tcase_add_loop_test(tc, a_rail_may_fail_while_ranks_meet, 0, 4);
	tcase_add_test(tc, a_gid_that_leads_nowhere_is_named);
	tcase_add_loop_test(tc, nodes_may_differ, 0, NODES);
	tcase_add_test(tc, a_path_that_is_narrower_than_both_ends_is_done_without);
	tcase_add_test(tc, one_that_stops_is_named_with_the_way_there);
	tcase_add_loop_test(tc, a_limit_is_lived_with_or_said, 0, LIMITS);
	return check_main("verbs-start", tc);
}
