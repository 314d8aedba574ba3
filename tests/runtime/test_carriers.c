/*
 * test_carriers.c -- which network carries what: the list, the choice by times, and what happens
 * where a network does not lead to a peer.
 *
 * Ranks as threads, each on a node of its own of the mock libibverbs, with UCX beside it. What a
 * case breaks it breaks at the mock's ports or GIDs, and says so by the mock's counters.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "runtime/startup/carriers.h"
#include "tests/check_main.h"
#include "tests/runtime/local.h"
#include "tests/verbs-mock/late.h"
#include "tests/verbs-mock/mock.h"

#define RANKS 4u
#define LARGE 60000u
#define VERBS 1u /* In the lists of the pure tests: shm, verbs, ucx. */
#define UCX 2u
#define BOTH (1u << VERBS | 1u << UCX)
#define SLOW_US 10000u /* Of a message by a slow way: a hundred times what another one takes. */
/* Less than a job's start has (local.c), which a try would take that nothing else bounds. */
#define BOUND_NS 50000000000u

/* ---- The list ---- */

static void expect_list(const char *text, const char *const *names, bool tcp)
{
	const struct rb_transport_ops *out[RB_CARRIERS_MAX + 1];
	bool is_tcp;
	uint32_t i = 0;

	ck_assert_msg(rb_carriers_list(text, out, &is_tcp) == RUBATO_OK, "%s: %s", text,
		      rubato_error_text());
	for (; names[i] != NULL && out[i] != NULL; i++)
		ck_assert_str_eq(out[i]->name, names[i]);
	ck_assert_msg(names[i] == NULL && out[i] == NULL, "%s: another count", text);
	ck_assert_int_eq(is_tcp, tcp);
}

START_TEST(list_is_read)
{
	expect_list("auto", (const char *[]) { "shm", "ucx", NULL }, false);
	expect_list("shm", (const char *[]) { "shm", NULL }, false);
	expect_list("tcp", (const char *[]) { "ucx", NULL }, true);
	expect_list("verbs", (const char *[]) { "verbs", NULL }, false);
	expect_list("shm,verbs,ucx", (const char *[]) { "shm", "verbs", "ucx", NULL }, false);
	expect_list("ucx,verbs", (const char *[]) { "ucx", "verbs", NULL }, false);
	/* Shared memory is first in any case. */
	expect_list("verbs,tcp,shm", (const char *[]) { "shm", "verbs", "ucx", NULL }, true);
}
END_TEST

START_TEST(list_that_is_wrong)
{
	static const char *const wrong[][2] = {
		{ "", "expected auto, or some of shm, ucx, tcp and verbs" },
		{ "shm,", "expected auto" },
		{ "auto,shm", "expected auto" },
		{ "rdma", "RUBATO_TRANSPORT=rdma: expected" },
		{ "shm,verbs,shm", "RUBATO_TRANSPORT=shm,verbs,shm: shm is named twice" },
		{ "ucx,tcp", "ucx is named twice (tcp is ucx" },
	};
	const struct rb_transport_ops *out[RB_CARRIERS_MAX + 1];
	bool tcp;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(rb_carriers_list(wrong[i][0], out, &tcp), RUBATO_ERR_ARGUMENT);
		ck_assert_msg(strstr(rubato_error_text(), wrong[i][1]) != NULL, "%s: %s",
			      wrong[i][0], rubato_error_text());
	}
}
END_TEST

/* ---- The choice by times ---- */

static void link_is(struct rb_carrier_view *views, uint32_t count, uint32_t g, double verbs,
		    double ucx)
{
	views[g].next[VERBS] = views[(g + 1) % count].previous[VERBS] = verbs;
	views[g].next[UCX] = views[(g + 1) % count].previous[UCX] = ucx;
}

START_TEST(later_one_must_be_a_tenth_better)
{
	struct rb_carrier_view views[2] = { 0 };

	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), VERBS); /* Not timed. */
	link_is(views, 2, 0, 10, 9.5);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), VERBS);
	link_is(views, 2, 0, 10, 9);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), UCX);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 1, 0, BOTH), UCX);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, 1u << VERBS), VERBS);
	/* The slower of what both ends saw counts. */
	views[1].previous[UCX] = 11;
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), VERBS);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, 0), RB_CARRIER_NONE);
}
END_TEST

START_TEST(what_does_not_work_is_left)
{
	struct rb_carrier_view views[2] = { 0 };

	link_is(views, 2, 0, 10, 100);
	views[1].previous[VERBS] = -1; /* One end is enough. */
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), UCX);
	ck_assert_uint_eq(rb_carrier_between(views, 2, 1, 0, BOTH), UCX);
	views[0].next[UCX] = -1; /* Neither does: the first of the list. */
	ck_assert_uint_eq(rb_carrier_between(views, 2, 0, 1, BOTH), VERBS);
}
END_TEST

/* Of six in a ring, node 3 is slow by verbs; so are both of its links. */
START_TEST(slow_node_is_found)
{
	struct rb_carrier_view views[6] = { 0 };

	for (uint32_t g = 0; g < 6; g++)
		link_is(views, 6, g, g == 2 || g == 3 ? 500 : 10, 40);
	for (uint32_t a = 0; a < 6; a++)
		for (uint32_t b = 0; b < 6; b++)
			if (a != b)
				ck_assert_uint_eq(rb_carrier_between(views, 6, a, b, BOTH),
						  a == 3 || b == 3 ? UCX : VERBS);
	/* Ranks of no group: as if nothing had been timed. */
	ck_assert_uint_eq(rb_carrier_between(views, 6, UINT32_MAX, 3, BOTH), VERBS);
}
END_TEST

/* Whatever the times are, both ends come to the same, and never to what they do not reach. */
START_TEST(both_ends_choose_alike)
{
	struct rb_carrier_view views[7];
	struct rb_rng rng = { 20261124 };
	uint32_t by_ucx = 0;

	for (uint32_t trial = 0; trial < 2000; trial++) {
		uint32_t count = 2 + (uint32_t)(rb_rng_next(&rng) % 6);

		for (uint32_t g = 0; g < count; g++)
			for (uint32_t i = 0; i < RB_CARRIERS_MAX; i++) {
				views[g].next[i] = (double)(rb_rng_next(&rng) % 12) - 2;
				views[g].previous[i] = (double)(rb_rng_next(&rng) % 12) - 2;
			}
		for (uint32_t a = 0; a < count; a++)
			for (uint32_t b = 0; b < count; b++) {
				uint8_t reach = (uint8_t)(rb_rng_next(&rng) & BOTH);
				uint8_t it = rb_carrier_between(views, count, a, b, reach);

				by_ucx += it == UCX;
				ck_assert_uint_eq(it,
						  rb_carrier_between(views, count, b, a, reach));
				ck_assert(reach == 0 ? it == RB_CARRIER_NONE
						     : (reach & 1u << it) != 0);
			}
	}
	ck_assert_uint_gt(by_ucx, 1000);
}
END_TEST

/* ---- Jobs ---- */

static struct {
	int (*reset)(const struct mock_config *config);
	void (*config_default)(struct mock_config *config);
	void (*node)(uint32_t node);
	void (*loss)(uint32_t node, uint32_t device, uint32_t port, uint32_t permille);
	void (*slow)(uint32_t node, uint32_t device, uint32_t port, uint32_t microseconds);
	void (*gid)(uint32_t node, uint32_t device, uint32_t port, uint32_t index,
		    const union ibv_gid *gid);
	void (*counters)(struct mock_counters *counters);
	int (*fail_send)(uint64_t nth, enum ibv_wc_status status, bool delivered);
	uint64_t (*fired)(int fault);
} mock;

static struct job {
	uint32_t alone;               /* The rank that the case is about. */
	bool splits;                  /* And the parts have the same. */
	_Atomic uint32_t asked_later; /* Peers that verbs was to connect to, of the parts. */
	/* carried[a][b]: what a says. */
	char carried[8][8][16], carried_later[8][8][16];
	bool met;                             /* What a case waits for has come. */
	bool rail_fails;                      /* The other one is left. */
	void (*opened)(uint32_t rank);        /* Its verbs is open; */
	void (*connected)(uint32_t rank);     /* its verbs is connected. */
	rubato_status (*open)(uint32_t rank); /* What opening says, instead. */
	struct rb_transport_ops verbs, ucx, slow;
	const struct rb_transport_ops *list[3];
	char said[20000]; /* Standard error. */
} job;

static void mock_find(void)
{
	const struct mock_symbol symbols[] = {
		{ "mock_reset", (void **)&mock.reset },
		{ "mock_config_default", (void **)&mock.config_default },
		{ "mock_node", (void **)&mock.node },
		{ "mock_loss", (void **)&mock.loss },
		{ "mock_slow", (void **)&mock.slow },
		{ "mock_gid", (void **)&mock.gid },
		{ "mock_counters", (void **)&mock.counters },
		{ "mock_fail_send", (void **)&mock.fail_send },
		{ "mock_fired", (void **)&mock.fired },
	};

	mock_symbols_find(symbols, sizeof(symbols) / sizeof(symbols[0]));
}

static rubato_status open_on_node(const struct rb_transport_options *options,
				  struct rb_endpoint **out)
{
	static _Thread_local bool
		placed; /* Later opens are those of communicators that are split off. */

	if (placed)
		return rb_transport_verbs.open(options, out);
	placed = true;
	mock.node(options->rank);
	if (job.open != NULL)
		RB_TRY(job.open(options->rank));
	RB_TRY(rb_transport_verbs.open(options, out));
	if (job.opened != NULL)
		job.opened(options->rank);
	return RUBATO_OK;
}

static void asked_note(const struct rb_endpoint *ep, const bool *use)
{
	static _Thread_local bool later;

	for (uint32_t r = 0; later && r < ep->rank_count; r++)
		job.asked_later += use[r] && r != ep->rank;
	later = true;
}

/* Where no other network could carry what goes to a rank: so it is in the parts. */
static rubato_status connect_all(struct rb_endpoint *ep, const void *const *addresses,
				 const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	asked_note(ep, use);
	return rb_transport_verbs.connect(ep, addresses, address_bytes, use, deadline_ns);
}

static rubato_status connect_then(struct rb_endpoint *ep, const void *const *addresses,
				  const size_t *address_bytes, bool *use, uint64_t deadline_ns)
{
	asked_note(ep, use);
	RB_TRY(rb_transport_verbs.connect_some(ep, addresses, address_bytes, use, deadline_ns));
	if (job.connected != NULL)
		job.connected(ep->rank);
	return RUBATO_OK;
}

static void slow_send(struct rb_endpoint *ep, struct rb_request *request)
{
	if (rb_tag_class_of(request->tag) == RB_TAG_CARRIER)
		rb_clock_sleep_until(rb_clock_ns() + SLOW_US * UINT64_C(1000));
	rb_transport_ucx.send(ep, request);
}

static rubato_status open_slow(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	RB_TRY(rb_transport_ucx.open(options, out));
	(*out)->ops = &job.slow;
	return RUBATO_OK;
}

static void job_new(bool measure)
{
	struct mock_config config;

	mock_find();
	mock.config_default(&config);
	ck_assert_int_eq(mock.reset(&config), 0);
	memset(&job, 0, sizeof(job));
	job.alone = RANKS;
	job.verbs = rb_transport_verbs;
	job.verbs.open = open_on_node;
	job.verbs.connect_some = connect_then;
	job.verbs.connect = connect_all;
	job.ucx = rb_transport_ucx;
	job.slow = rb_transport_ucx;
	job.slow.send = slow_send;
	job.list[0] = &job.verbs;
	job.list[1] = &job.ucx;
	ck_assert_int_eq(setenv("RUBATO_MEASURE", measure ? "1" : "0", 1), 0);
	ck_assert_int_eq(setenv("RUBATO_LOG", "info", 1), 0);
}

/* So that its messages that are timed are slower than those of verbs, whatever else this machine
 * does. */
static void ucx_slow(void)
{
	job.ucx.open = open_slow;
}

static rubato_status sums_check(rubato_comm *comm, uint32_t count)
{
	uint32_t n = rubato_size(comm), me = rubato_rank(comm);
	float *in = malloc(count * sizeof(*in)), *out = malloc(count * sizeof(*out));
	rubato_status err;

	for (uint32_t i = 0; i < count; i++)
		in[i] = (float)(i % 1000 + me);
	err = rubato_allreduce(comm, in, out, count, RUBATO_FLOAT32, RUBATO_SUM);
	for (uint32_t i = 0; i < count && err == RUBATO_OK; i++)
		if (out[i] != (float)(n * (i % 1000) + n * (n - 1) / 2))
			err = RB_FAIL(RUBATO_ERR_INTERNAL, "wrong: element %u of %u", i, count);
	free(in);
	free(out);
	return err;
}

static rubato_status carried_note(rubato_comm *comm, char carried[8][16])
{
	for (uint32_t r = 0; r < rubato_size(comm); r++) {
		rubato_peer peer = { .size_bytes = sizeof(peer) };

		RB_TRY(rubato_get_peer(comm, r, &peer));
		if (r != rubato_rank(comm) &&
		    strstr(peer.path,
			   strcmp(peer.transport, "verbs") != 0 ? "/"
			   : job.rail_fails ? " port 1, RoCE v2, GID 3 ::ffff:10."
					    : "mock0 port 1, RoCE v2, GID 3 ::ffff:10.0.") == NULL)
			return RB_FAIL(RUBATO_ERR_INTERNAL, "by %s: %s", peer.transport, peer.path);
		(void)snprintf(carried[r], 16, "%s", peer.transport);
	}
	return RUBATO_OK;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	uint32_t me = rubato_rank(comm);
	rubato_comm *child = NULL;

	(void)arg;
	RB_TRY(carried_note(comm, job.carried[me]));
	RB_TRY(sums_check(comm, 1));
	RB_TRY(sums_check(comm, LARGE));
	if (!job.splits)
		return RUBATO_OK;
	RB_TRY(rubato_split(comm, 0, (int32_t)(rubato_size(comm) - me), &child));
	RB_TRY(carried_note(child, job.carried_later[rubato_rank(child)]));
	RB_TRY(sums_check(child, LARGE));
	return rubato_finalize(child);
}

/* Of a failure: what all ranks said is longer than what Check takes. */
static const char *words(void)
{
	(void)fputs(job.said, stderr);
	return "see above";
}

/* Of all ranks, with what they say. */
static rubato_status job_try(uint32_t ranks)
{
	FILE *file = tmpfile();
	int saved = dup(2);
	uint64_t begin_ns = rb_clock_ns(), ns;
	rubato_status err;
	size_t bytes;

	ck_assert(file != NULL && saved >= 0 && dup2(fileno(file), 2) == 2);
	err = local_run(ranks, job.list, rank_main, NULL, NULL);
	ns = rb_clock_ns() - begin_ns;
	ck_assert_int_eq(dup2(saved, 2), 2);
	rewind(file);
	bytes = fread(job.said, 1, sizeof(job.said) - 1, file);
	job.said[bytes] = '\0';
	(void)fclose(file);
	(void)close(saved);
	ck_assert_msg(ns < BOUND_NS, "the job took %.1f s, %s", (double)ns / 1e9, words());
	return err;
}

static void job_run(uint32_t ranks)
{
	rubato_status err = job_try(ranks);

	ck_assert_msg(err == RUBATO_OK, "%s", words());
}

/* Pairs with `alone` by UCX, the others by verbs; both ends say so. */
static void expect_apart(uint32_t ranks, char carried[8][8][16], uint32_t alone)
{
	for (uint32_t a = 0; a < ranks; a++)
		for (uint32_t b = 0; b < ranks; b++)
			if (a != b)
				ck_assert_msg(
					strcmp(carried[a][b],
					       a == alone || b == alone ? "ucx" : "verbs") == 0,
					"rank %u to %u: %s, %s", a, b, carried[a][b], words());
}

static bool said(const char *text)
{
	return strstr(job.said, text) != NULL;
}

START_TEST(list_alone_says_it)
{
	job_new(false);
	job_run(RANKS);
	expect_apart(RANKS, job.carried, RANKS);
	ck_assert_msg(said("verbs carries what goes to 3 of 3 ranks (the list says it)"), "%s",
		      words());
	job_new(false);
	job.list[0] = &job.ucx;
	job.list[1] = &job.verbs;
	job_run(2);
	ck_assert_str_eq(job.carried[0][1], "ucx");
	ck_assert_str_eq(job.carried[1][0], "ucx");
}
END_TEST

START_TEST(faster_one_is_found)
{
	job_new(true);
	ucx_slow();
	job.list[0] = &job.ucx;
	job.list[1] = &job.verbs;
	job_run(RANKS);
	expect_apart(RANKS, job.carried, RANKS);
	ck_assert_msg(said("verbs carries what goes to 3 of 3 ranks (links were timed)"), "%s",
		      words());
	ck_assert_msg(said("ucx carries what goes to 0 of 3 ranks"), "%s", words());
}
END_TEST

static rubato_status no_device(uint32_t rank)
{
	return rank == job.alone ? RB_FAIL(RUBATO_ERR_UNSUPPORTED, "no RDMA device on this one")
				 : RUBATO_OK;
}

START_TEST(rank_without_a_device)
{
	job_new(_i != 0);
	ucx_slow();
	job.alone = 2;
	job.open = no_device;
	job_run(RANKS);
	expect_apart(RANKS, job.carried, 2);
}
END_TEST

START_TEST(nobody_has_a_device)
{
	struct mock_config config;

	job_new(true);
	mock.config_default(&config);
	config.devices = 0;
	ck_assert_int_eq(mock.reset(&config), 0);
	job_run(2);
	ck_assert_str_eq(job.carried[0][1], "ucx");
	ck_assert_msg(said("this machine has no RDMA device"), "%s", words());
}
END_TEST

/* All that goes to or comes from a node gets lost. */
static void node_silent(uint32_t rank)
{
	if (rank != job.alone)
		return;
	mock.loss(rank, 0, 1, 1000);
	mock.loss(rank, 1, 1, 1000);
}

static void expect_lost_packets(void)
{
	struct mock_counters counters;

	mock.counters(&counters);
	ck_assert_uint_gt(counters.packets_lost + counters.retries_exhausted, 0);
}

START_TEST(path_that_leads_nowhere)
{
	job_new(_i != 0);
	ucx_slow();
	job.alone = 1;
	job.opened = node_silent;
	job.splits = true;
	job_run(RANKS);
	expect_lost_packets();
	expect_apart(RANKS, job.carried, 1);
	/* Who, where, from which port. */
	ck_assert_msg(said("verbs: rank 1 at GID ::ffff:"), "%s", words());
	ck_assert_msg(said("is not reached by mock"), "%s", words());
	ck_assert_msg(said("another network is used"), "%s", words());
	/* A child does not try again: it has its ranks in reverse. */
	expect_apart(RANKS, job.carried_later, RANKS - 1 - 1);
	ck_assert_uint_eq(job.asked_later, (RANKS - 1) * (RANKS - 2));
}
END_TEST

/* Once addresses are made the port has another GID: what peers were told is wrong. */
static void gid_wrong(uint32_t rank)
{
	union ibv_gid other = { .raw = { [10] = 0xff, [11] = 0xff, 10, 99, 99, 99 } };

	if (rank != job.alone)
		return;
	for (uint32_t device = 0; device < 2; device++)
		for (uint32_t i = 0; i < 4; i++)
			mock.gid(rank, device, 1, i, i == 0 ? &other : NULL);
}

START_TEST(gid_that_is_wrong)
{
	job_new(false);
	job.alone = 3;
	job.opened = gid_wrong;
	job_run(RANKS);
	expect_apart(RANKS, job.carried, 3);
	ck_assert_msg(said("verbs: rank 3 at GID ::ffff:"), "%s", words());
}
END_TEST

/* Its RoCE v2 is over IPv6 alone. */
static rubato_status no_ipv4(uint32_t rank)
{
	for (uint32_t device = 0; rank == job.alone && device < 2; device++)
		for (uint32_t i = 2; i < 4; i++)
			mock.gid(rank, device, 1, i, NULL);
	return RUBATO_OK;
}

START_TEST(gids_that_do_not_meet)
{
	job_new(false);
	job.alone = 1;
	job.open = no_ipv4;
	job.list[1] = NULL;
	ck_assert_int_eq(job_try(2), RUBATO_ERR_UNSUPPORTED);
	ck_assert_msg(said("no transport reaches rank 1 from rank 0: verbs: rank 1: "
			   "RoCE v2 over IPv6, GID fe80:"),
		      "%s", job.said);
	ck_assert_msg(said("does not meet mock0 port 1, RoCE v2, GID 3 ::ffff:"), "%s", job.said);
	ck_assert_msg(said("no transport reaches rank 0 from rank 1: verbs: rank 0: "
			   "RoCE v2 over IPv4, GID ::ffff:"),
		      "%s", job.said);
}
END_TEST

/* Who has the device cannot know what the other one lacks, but who can say it. */
START_TEST(rank_without_the_only_device)
{
	job_new(false);
	job.alone = 1;
	job.open = no_device;
	job.list[1] = NULL;
	ck_assert_int_eq(job_try(2), RUBATO_ERR_UNSUPPORTED);
	ck_assert_msg(said("no transport reaches rank 1 from rank 0: none could be opened there, "
			   "its own text says why"),
		      "%s", job.said);
	ck_assert_msg(said("no transport reaches rank 0 from rank 1: no RDMA device"), "%s",
		      job.said);
}
END_TEST

/* It greets, and then no message passes any more. */
START_TEST(path_that_breaks_when_timed)
{
	job_new(true);
	ucx_slow();
	job.alone = 1;
	job.connected = node_silent;
	job_run(RANKS);
	expect_lost_packets();
	expect_apart(RANKS, job.carried, 1);
	ck_assert_msg(said("do not pass, though it was reached"), "%s", words());
}
END_TEST

static void node_slow(uint32_t rank)
{
	if (rank != job.alone)
		return;
	mock.slow(rank, 0, 1, SLOW_US);
	mock.slow(rank, 1, 1, SLOW_US);
}

/* It works, and is the first of the list, but the other one is faster. */
START_TEST(path_that_is_slow)
{
	struct mock_counters counters;

	job_new(true);
	job.alone = 1;
	job.connected = node_slow;
	job_run(2);
	mock.counters(&counters);
	ck_assert_uint_gt(counters.slowed, 0);
	ck_assert_msg(strcmp(job.carried[0][1], "ucx") == 0, "%s", words());
	ck_assert_str_eq(job.carried[1][0], "ucx");
}
END_TEST

static void node_lossy(uint32_t rank)
{
	if (rank != job.alone)
		return;
	mock.loss(rank, 0, 1, 250);
	mock.loss(rank, 1, 1, 250);
}

/* A fourth of its messages are sent again: all come, by whichever was faster. */
START_TEST(path_that_loses_some)
{
	job_new(true);
	job.alone = 1;
	job.connected = node_lossy;
	job_run(2);
	expect_lost_packets();
	ck_assert_str_eq(job.carried[1][0], job.carried[0][1]);
}
END_TEST

/* The last message by which a network is timed: who sends it waits for nothing of that network. */
#define LAST_OF_PASS 25u

static struct {
	uint32_t pass;
	bool delivered;
	_Atomic int fault; /* 0: it was not sent yet. */
} loss;

static void send_lost(struct rb_endpoint *ep, struct rb_request *request)
{
	uint64_t last = (uint64_t)loss.pass << 32 | LAST_OF_PASS;
	struct rb_tag tag = rb_tag(0, RB_TAG_CARRIER, last, 0);

	if (request->tag.call == tag.call && request->tag.step == tag.step)
		loss.fault = mock.fail_send(1, IBV_WC_RETRY_EXC_ERR, loss.delivered);
	rb_transport_verbs.send(ep, request);
}

static rubato_status open_lost(const struct rb_transport_options *options, struct rb_endpoint **out)
{
	RB_TRY(open_on_node(options, out));
	(*out)->ops = &job.verbs;
	return RUBATO_OK;
}

/* What it sent last by one of two rails gets lost, and it goes on to another network, or to what
 * ranks exchange: it has to send that again all the same. */
START_TEST(rail_that_fails_with_the_last_message)
{
	static const uint32_t passes[2][2] = { { 0, RB_CARRIERS_MAX }, { 1, RB_CARRIERS_MAX + 1 } };
	bool second = _i / 4 != 0; /* UCX is the first of the list. */

	job_new(true);
	ucx_slow();
	if (second) {
		job.list[0] = &job.ucx;
		job.list[1] = &job.verbs;
	}
	job.verbs.open = open_lost;
	job.verbs.send = send_lost;
	job.rail_fails = true;
	loss.pass = passes[second][_i % 2];
	loss.delivered = _i / 2 % 2 != 0;
	loss.fault = 0;
	job_run(2);
	ck_assert_int_ne(loss.fault, 0);
	ck_assert_uint_eq(mock.fired(loss.fault), 1);
	ck_assert_msg(!said("do not pass"), "%s", words());
	expect_apart(2, job.carried, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("carriers");
	TCase *pure = tcase_create("choice"), *jobs = tcase_create("jobs");

	tcase_add_test(pure, list_is_read);
	tcase_add_test(pure, list_that_is_wrong);
	tcase_add_test(pure, later_one_must_be_a_tenth_better);
	tcase_add_test(pure, what_does_not_work_is_left);
	tcase_add_test(pure, slow_node_is_found);
	tcase_add_test(pure, both_ends_choose_alike);
	suite_add_tcase(suite, pure);
	tcase_set_timeout(jobs, 60);
	tcase_add_test(jobs, list_alone_says_it);
	tcase_add_test(jobs, faster_one_is_found);
	tcase_add_loop_test(jobs, rank_without_a_device, 0, 2);
	tcase_add_test(jobs, nobody_has_a_device);
	tcase_add_loop_test(jobs, path_that_leads_nowhere, 0, 2);
	tcase_add_test(jobs, gid_that_is_wrong);
	tcase_add_test(jobs, gids_that_do_not_meet);
	tcase_add_test(jobs, rank_without_the_only_device);
	tcase_add_test(jobs, path_that_breaks_when_timed);
	tcase_add_test(jobs, path_that_is_slow);
	tcase_add_test(jobs, path_that_loses_some);
	tcase_add_loop_test(jobs, rail_that_fails_with_the_last_message, 0, 8);
	suite_add_tcase(suite, jobs);
	return check_suite(suite);
}
