/*
 * test_verbs_rdmacm.c -- jobs of two ranks over the verbs transport, which rdmacm connects: over
 * RoCE, InfiniBand and iWARP, with whatever goes wrong with connections.
 *
 * Any call of librdmacm may fail, any try to connect may end in any error, any connection may end,
 * at each moment that a run has; and strangers ask to be let in. Results are right, or an error
 * names the other rank or the device; nothing hangs, leaks or is reached outside of what is
 * registered.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/conformance/netdevs.h"
#include "tests/length.h"
#include "tests/runtime/verbs/job.h"
#include "tests/side_by_side.h"
#include "tests/verbs-mock/late.h"
#include "transport/transport.h"

#define WAIT_NS 20000000000u

static struct {
	int (*fail_connect)(uint64_t nth, uint32_t event, int status);
	int (*disconnect)(uint32_t qp_number);
	uint64_t (*fired)(int fault);
} mock;

static void mock_find_more(void)
{
	const struct mock_symbol symbols[] = {
		{ "mock_fail_connect", (void **)&mock.fail_connect },
		{ "mock_disconnect", (void **)&mock.disconnect },
		{ "mock_fired", (void **)&mock.fired },
	};

	mock_symbols_find(symbols, sizeof(symbols) / sizeof(symbols[0]));
}

/* ---- Networks ---- */

static const struct network {
	const char *name;
	uint64_t devices, infiniband, iwarp;
} networks[] = {
	{ "RoCE", 1, 0, 0 },       { "RoCE, two rails", 2, 0, 0 },
	{ "InfiniBand", 1, 1, 0 }, { "InfiniBand, two rails", 2, 1, 0 },
	{ "iWARP", 2, 0, 1 },
};
#define NETWORKS ((int)(sizeof(networks) / sizeof(networks[0])))
#define ROCE 0
#define ROCE_RAILS 1
#define IWARP 4

static void network_set(struct job *job, const struct network *network)
{
	mock_find_more();
	job->config.devices = network->devices;
	job->config.infiniband = network->infiniband;
	job->config.iwarp = network->iwarp;
	/* iWARP has no other way, and finds that by itself. */
	if (network->iwarp == 0)
		ck_assert_int_eq(setenv("RUBATO_VERBS_CONNECT", "rdmacm", 1), 0);
	else
		ck_assert_int_eq(unsetenv("RUBATO_VERBS_CONNECT"), 0);
}

START_TEST(seeded_jobs_are_right)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 3 : 30);

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		const struct network *network = &networks[_i];
		struct job job;
		char text[600];

		job_init(&job);
		network_set(&job, network);
		job.config.seed = seed;
		job.sleepy = seed % 4 == 0;
		job_run(&job);
		if (!job_is_good(&job, text, sizeof(text)) || !job_is_right(&job))
			ck_abort_msg("%s, seed %llu: %s", network->name, (unsigned long long)seed,
				     text);
		ck_assert_uint_gt(job_mock.call_count("rdma_connect"), 0);
		ck_assert_uint_eq(job.counters.early_sends, 0);
		ck_assert_uint_eq(job.counters.sent_in_place, 0);
		ck_assert_uint_eq(job_mock.call_count("ibv_create_ah"), 0); /* No datagrams. */
	}
}
END_TEST

/* ---- Calls that fail ---- */

static const struct function {
	const char *name;
	int error;
	bool destroys; /* What is left then is not the transport's fault. */
} functions[] = {
	{ "rdma_create_event_channel", ENODEV, false },
	{ "rdma_create_id", ENOMEM, false },
	{ "rdma_bind_addr", EADDRNOTAVAIL, false },
	{ "rdma_listen", EADDRINUSE, false },
	{ "rdma_resolve_addr", ENETUNREACH, false },
	{ "rdma_resolve_route", EINVAL, false },
	{ "rdma_connect", ENOMEM, false },
	{ "rdma_accept", EINVAL, false },
	{ "rdma_establish", EINVAL, false },
	{ "rdma_init_qp_attr", EINVAL, false },
	{ "rdma_get_cm_event", EIO, false },
	{ "rdma_destroy_id", EIO, true },
};
#define FUNCTIONS ((int)(sizeof(functions) / sizeof(functions[0])))

#define CALLS_EACH 6u        /* Of a function by a rank, at most. */
#define SHORT_NS 1500000000u /* Where nothing but time ends a wait. */

struct fault {
	const struct network *network;
	const struct function *function;
	uint32_t rank;
	bool onwards;
	uint64_t k;
};

static int fails(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct fault *fault = job->arg;

	if (rank != fault->rank || strcmp(function, fault->function->name) != 0 ||
	    (fault->onwards ? nth < fault->k : nth != fault->k))
		return 0;
	job->fired++;
	return fault->function->error;
}

/* Of rank 0 and 1 in turn. */
static void calls_prepare(struct job *job, void *arg, uint64_t k, char *name, size_t name_bytes)
{
	struct fault *fault = arg; /* A copy: this is a process of its own. */

	fault->rank = (uint32_t)k % 2;
	fault->k = (k + 1) / 2;
	network_set(job, fault->network);
	job->at_call = fails;
	job->arg = fault;
	job->abrupt = fault->function->destroys;
	job->timeout_ns = fault->onwards ? SHORT_NS : 0;
	(void)snprintf(name, name_bytes, "%s: call %llu of %s%s by rank %u", fault->network->name,
		       (unsigned long long)fault->k, fault->function->name,
		       fault->onwards ? ", and all that follow," : "", fault->rank);
}

START_TEST(any_call_may_fail)
{
	static const int chosen[] = { ROCE, ROCE_RAILS, IWARP, ROCE };
	const struct function *f = &functions[_i / 4];
	struct fault fault = { .network = &networks[chosen[_i % 4]],
			       .function = f,
			       .onwards = _i % 4 == 3 };
	struct job_series series = { .prepare = calls_prepare,
				     .arg = &fault,
				     .step = 1,
				     .last = fault.onwards ? 4 : 2 * CALLS_EACH,
				     .whole = true }; /* One of the ranks connects. */
	bool is_iwarp = fault.network->iwarp != 0;

	if (test_length() == TEST_SHORT)
		series.last = 2;
	if (is_iwarp &&
	    (strcmp(f->name, "rdma_establish") == 0 || strcmp(f->name, "rdma_init_qp_attr") == 0))
		ck_assert_uint_eq(job_series_run(&series), 0); /* The system moves queue pairs. */
	else
		ck_assert_uint_gt(job_series_run(&series), 0);
}
END_TEST

/* ---- Tries that end in an error ---- */

static const struct ending {
	enum rdma_cm_event_type type;
	int status;
	const char *text;
} endings[] = {
	{ RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, "ADDR_ERROR" },
	{ RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, "ROUTE_ERROR" },
	{ RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "UNREACHABLE" },
	{ RDMA_CM_EVENT_REJECTED, 8, "REJECTED" },
	{ RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO, "CONNECT_ERROR" },
};
#define ENDINGS ((int)(sizeof(endings) / sizeof(endings[0])))

/* At the first call that anybody makes the world is there. */
static int tries_end(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct ending *ending = job->arg;
	uint64_t last = job->rounds_more == 0 ? 60 : 3;

	if (rank != 0 || nth != 1 || strcmp(function, "rdma_create_event_channel") != 0)
		return 0;
	for (uint64_t k = 1; k <= last; k++)
		(void)mock.fail_connect(k, ending->type, ending->status);
	job->fired++;
	return 0;
}

START_TEST(a_try_that_failed_is_made_again)
{
	const struct ending *ending = &endings[_i / NETWORKS];
	struct job job;

	job_init(&job);
	network_set(&job, &networks[_i % NETWORKS]);
	job.at_call = tries_end;
	job.arg = (void *)(uintptr_t)ending;
	job.rounds_more = 1;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	ck_assert_uint_ge(job.counters.faults_fired, 3);
	if (!job_is_right(&job))
		ck_abort_msg("%s: %s; %s", ending->text, job.texts[0], job.texts[1]);
}
END_TEST

START_TEST(what_keeps_failing_is_named)
{
	const struct ending *ending = &endings[_i];
	struct job job;
	char text[600];

	job_init(&job);
	network_set(&job, &networks[ROCE]);
	job.at_call = tries_end;
	job.arg = (void *)(uintptr_t)ending;
	job.timeout_ns = SHORT_NS;
	job_run(&job);
	ck_assert_msg(job_is_good(&job, text, sizeof(text)), "%s", text);
	/* Rank 1 may give up first, and say so. */
	ck_assert_msg(strstr(job.texts[0], ending->text) != NULL &&
			      (strstr(job.texts[0], "ranks 1") != NULL ||
			       strstr(job.texts[0], "rank 1: it gave up") != NULL),
		      "%s", job.texts[0]);
	ck_assert_msg(strstr(job.texts[1], "rank") != NULL, "%s", job.texts[1]);
}
END_TEST

/* ---- Connections that end ---- */

static int disconnects(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct fault *fault = job->arg;

	if (rank != fault->rank || nth != fault->k || strcmp(function, "ibv_post_send") != 0)
		return 0;
	job->fired += mock.disconnect(0) == 0;
	return 0;
}

static void disconnects_prepare(struct job *job, void *arg, uint64_t k, char *name,
				size_t name_bytes)
{
	struct fault *fault = arg;

	fault->k = k;
	network_set(job, fault->network);
	job->at_call = disconnects;
	job->arg = fault;
	job->sleepy = true;
	(void)snprintf(name, name_bytes, "%s: a connection ends before post %llu of rank %u",
		       fault->network->name, (unsigned long long)k, fault->rank);
}

static bool disconnects_judge(const struct job *job, void *arg, char *text, size_t text_bytes)
{
	const struct fault *fault = arg;

	(void)snprintf(text, text_bytes, "not right: %s; %s", job->texts[0], job->texts[1]);
	return fault->network->devices == 1 || fault->network->iwarp != 0 || job_is_right(job);
}

START_TEST(any_connection_may_end)
{
	static const int chosen[] = { ROCE, ROCE_RAILS, IWARP };
	struct fault fault = { .network = &networks[chosen[_i / 2]], .rank = (uint32_t)_i % 2 };
	struct job_series series = { .prepare = disconnects_prepare,
				     .judge = disconnects_judge,
				     .arg = &fault,
				     .step = test_length() == TEST_SHORT ? 37 : 11 };

	series.last = 400;
	ck_assert_uint_gt(job_series_run(&series), 0);
}
END_TEST

/* ---- A rank that gives up ---- */

static _Atomic bool meets; /* The other one is in connect(). */

static int gives_up(struct job *job, uint32_t rank, const char *function, uint64_t nth)
{
	const struct fault *fault = job->arg;

	if (strcmp(function, "ibv_create_qp") != 0)
		return 0;
	if (rank != fault->rank) {
		meets = true;
		return 0;
	}
	while (!meets)
		rb_clock_sleep_until(rb_clock_ns() + 1000000u);
	job->fired += nth == 1;
	return ENOMEM;
}

/* There are no datagrams, so over TCP: but for iWARP, which has none. */
START_TEST(who_waits_hears_of_who_gives_up)
{
	struct fault fault = { .network = &networks[_i / 2], .rank = (uint32_t)_i % 2 };
	uint32_t other = 1 - fault.rank;
	struct job job;
	char text[600];

	job_init(&job);
	network_set(&job, fault.network);
	meets = false;
	job.at_call = gives_up;
	job.arg = &fault;
	job.timeout_ns = fault.network->iwarp != 0 ? SHORT_NS : 0;
	job_run(&job);
	ck_assert_uint_eq(job.fired, 1);
	ck_assert_msg(job_is_good(&job, text, sizeof(text)), "%s", text);
	ck_assert_msg(fault.network->iwarp != 0 ? job.status[other] == RUBATO_ERR_TIMEOUT
						: strstr(job.texts[other], "gave up") != NULL,
		      "%s: %s; %s", fault.network->name, job.texts[0], job.texts[1]);
}
END_TEST

/* ---- Strangers ---- */

#define CM_FUNCTIONS(X)                                                                            \
	X(rdma_create_event_channel)                                                               \
	X(rdma_destroy_event_channel)                                                              \
	X(rdma_create_id)                                                                          \
	X(rdma_destroy_id)                                                                         \
	X(rdma_resolve_addr)                                                                       \
	X(rdma_resolve_route) X(rdma_connect) X(rdma_get_cm_event) X(rdma_ack_cm_event)
#define CM_MEMBER(name) __typeof__(name) *name;
static struct {
	CM_FUNCTIONS(CM_MEMBER)
} cm;

static void cm_find(void)
{
	void *library = dlopen("librdmacm.so.1", RTLD_NOW);

	ck_assert_msg(library != NULL, "%s", dlerror());
#define CM_FIND(name) *(void **)(void *)&cm.name = dlsym(library, #name);
	CM_FUNCTIONS(CM_FIND)
#undef CM_FIND
	ck_assert(cm.rdma_ack_cm_event != NULL);
}

/* The next event, while the endpoint goes on. */
static enum rdma_cm_event_type event_await(struct rb_endpoint *ep, struct rdma_event_channel *from)
{
	uint64_t until_ns = rb_clock_ns() + WAIT_NS;
	struct pollfd fd = { .fd = from->fd, .events = POLLIN };
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;

	while (poll(&fd, 1, 1) == 0) {
		ck_assert_uint_lt(rb_clock_ns(), until_ns);
		(void)ep->ops->poll(ep);
		ep->ops->look(ep);
	}
	ck_assert_int_eq(cm.rdma_get_cm_event(from, &event), 0);
	type = event->event;
	ck_assert_int_eq(cm.rdma_ack_cm_event(event), 0);
	return type;
}

/* Knocks at 10.0.0.1, at a port, with these bytes; how it ended. */
static enum rdma_cm_event_type knock(struct rb_endpoint *ep, uint16_t port, const void *bytes,
				     uint8_t count)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000101) };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(0x0a000001),
				  .sin_port = htons(port) };
	struct rdma_event_channel *channel = cm.rdma_create_event_channel();
	struct rdma_conn_param param = { .private_data = bytes, .private_data_len = count };
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;

	ck_assert_ptr_nonnull(channel);
	job_mock.node(1);
	ck_assert_int_eq(cm.rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(
		cm.rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, 1000),
		0);
	ck_assert_int_eq(event_await(ep, channel), RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(cm.rdma_resolve_route(id, 1000), 0);
	ck_assert_int_eq(event_await(ep, channel), RDMA_CM_EVENT_ROUTE_RESOLVED);
	ck_assert_int_eq(cm.rdma_connect(id, &param), 0);
	type = event_await(ep, channel);
	ck_assert_int_eq(cm.rdma_destroy_id(id), 0);
	cm.rdma_destroy_event_channel(channel);
	job_mock.node(0);
	return type;
}

START_TEST(strangers_are_rejected)
{
	struct rb_transport_options options = {
		.rank = 1, .rank_count = 2, .job = "a job's", .connect = RB_CONNECT_RDMACM
	};
	uint8_t address[RB_ADDRESS_BYTES_MAX], bytes[56];
	size_t address_bytes;
	struct rb_endpoint *ep;
	struct mock_counters counters;
	struct job job;

	job_init(&job);
	network_set(&job, &networks[ROCE]);
	ck_assert_int_eq(job_mock.reset(&job.config), 0);
	cm_find();
	ck_assert_int_eq(rb_transport_verbs.open(&options, &ep), RUBATO_OK);
	ck_assert_int_eq(ep->ops->address(ep, address, &address_bytes), RUBATO_OK);
	for (uint32_t i = 0; i < (test_length() == TEST_SHORT ? 60 : 500); i++) {
		uint8_t count = (uint8_t)(i % (sizeof(bytes) + 1));

		for (size_t b = 0; b < sizeof(bytes); b++)
			bytes[b] = (uint8_t)(i * 2654435761u >> (b % 4 * 8));
		/* What begins as a greeting of this job does, of a link that nobody waits for. */
		if (i % 3 == 0) {
			memset(bytes, 0, 12);
			bytes[4] = 1;
			memcpy(bytes + 12, options.job, sizeof(options.job));
			bytes[28] = 3;
			bytes[29] = (uint8_t)(i % 5);
		}
		ck_assert_int_eq(knock(ep, 32768, bytes, count), RDMA_CM_EVENT_REJECTED);
	}
	ep->ops->close(ep, true, 0);
	job_mock.counters(&counters);
	ck_assert_uint_eq(counters.left_open, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("rdmacm");

	side_by_side(3);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, seeded_jobs_are_right, 0, NETWORKS);
	tcase_add_loop_test(tc, any_call_may_fail, 0, FUNCTIONS * 4);
	tcase_add_loop_test(tc, a_try_that_failed_is_made_again, 0, ENDINGS * NETWORKS);
	tcase_add_loop_test(tc, what_keeps_failing_is_named, 0, ENDINGS);
	tcase_add_loop_test(tc, any_connection_may_end, 0, 6);
	tcase_add_loop_test(tc, who_waits_hears_of_who_gives_up, 0, 2 * NETWORKS);
	tcase_add_test(tc, strangers_are_rejected);
	return check_main("verbs-rdmacm", tc);
}
