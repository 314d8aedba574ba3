/*
 * test_verbs_farewell.c -- a rank that gives up before it has met its peers, and how they hear of
 * it where its device carries no datagram any more: by another rail, or over TCP.
 *
 * Rank 1 waits in connect(), in a thread of its own. Rank 0 never comes there. What its devices do
 * with datagrams is changed at the functions of their contexts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs.h"

#define LIMIT_NS UINT64_C(60000000000) /* Of connect(): then nobody was told. */
#define MANY 1000u

static const struct rb_transport_ops *const ops = &rb_transport_verbs;
static struct rb_endpoint *eps[2];
static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
static size_t address_bytes[2];

/* ---- Devices of rank 0 ---- */

enum trouble { KEEPS, FAILS, REFUSES, TROUBLES }; /* No completion; one in error; no post. */

static struct {
	enum trouble trouble;
	uint32_t rails; /* The first so many. */
	uint32_t posts, fired;
	int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*poll)(struct ibv_cq *cq, int count, struct ibv_wc *wc);
} device;

static const struct rb_verbs_rail *rail_with(const struct ibv_context *context)
{
	const struct rb_verbs *vb = (const struct rb_verbs *)eps[0];

	for (uint32_t i = 0; i < device.rails; i++)
		if (vb->rails[i].context == context)
			return &vb->rails[i];
	ck_abort_msg("another device");
	return NULL;
}

static int post_seen(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	ck_assert_ptr_eq(rail_with(qp->context)->datagrams, qp);
	device.posts++;
	if (device.trouble != REFUSES)
		return device.post(qp, wr, bad);
	device.fired++;
	*bad = wr;
	return ENOMEM;
}

static int poll_changed(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int got = device.poll(cq, count, wc);
	int left = 0;

	(void)rail_with(cq->context);
	for (int i = 0; i < got; i++) {
		bool ours = (wc[i].wr_id & RB_VERBS_DATAGRAM) != 0 &&
			    (uint32_t)wc[i].wr_id >= RB_VERBS_DATAGRAMS;

		device.fired += ours;
		if (ours && device.trouble == KEEPS)
			continue;
		wc[left] = wc[i];
		if (ours)
			wc[left].status = IBV_WC_RETRY_EXC_ERR;
		left++;
	}
	return left;
}

static void devices_change(enum trouble trouble, uint32_t rails)
{
	struct rb_verbs *vb = (struct rb_verbs *)eps[0];

	device.trouble = trouble;
	device.rails = rails;
	device.posts = device.fired = 0;
	for (uint32_t i = 0; i < rails; i++) {
		struct ibv_context_ops *of = &vb->rails[i].context->ops;

		device.post = of->post_send;
		of->post_send = post_seen;
		device.poll = of->poll_cq;
		if (trouble != REFUSES)
			of->poll_cq = poll_changed;
	}
}

/* What the changed device does not say to have sent it has not: of what gives up, the first. */
static enum mock_fate carry(void *arg, uint32_t node, void *bytes, uint32_t *size_bytes)
{
	const struct rb_verbs_greeting *greeting = bytes;
	uint32_t *leaves = arg;

	(void)node;
	ck_assert_uint_eq(*size_bytes, sizeof(*greeting));
	if (greeting->ready != RB_VERBS_LEAVES || device.trouble == REFUSES)
		return MOCK_ARRIVES;
	return (*leaves)++ == 0 ? MOCK_LOST : MOCK_ARRIVES;
}

/* ---- Both ends ---- */

/* `same_key`: both have the job's. */
static void ends_open(uint32_t ranks, uint32_t devices, bool same_key)
{
	struct mock_config config;

	mock_config_default(&config);
	config.devices = devices;
	config.max_cqe = 1 << 20;
	ck_assert_int_eq(mock_reset(&config), 0);
	for (uint32_t r = 0; r < 2; r++) {
		struct rb_transport_options options = { .rank = r, .rank_count = ranks };

		memset(options.key, same_key ? 7 : 7 + (int)r, RB_JOB_KEY_BYTES);
		ck_assert_int_eq(ops->open(&options, &eps[r]), RUBATO_OK);
		ck_assert_int_eq(ops->address(eps[r], addresses[r], &address_bytes[r]), RUBATO_OK);
	}
}

static void *connect_main(void *arg)
{
	const void *all[2] = { addresses[0], addresses[1] };
	bool use[2] = { true, true };
	rubato_status err = ops->connect(eps[1], all, address_bytes, use, rb_clock_ns() + LIMIT_NS);

	ck_assert_msg(err == RUBATO_ERR_PEER && strstr(rubato_error_text(), "gave up") != NULL,
		      "%d: %s", (int)err, rubato_error_text());
	atomic_store((_Atomic bool *)arg, true);
	return NULL;
}

/* Over TCP it answers when it is in connect(), which makes the address of each peer. */
static int meets(void *arg, const char *function)
{
	if (strcmp(function, "ibv_create_ah") == 0)
		atomic_store((_Atomic bool *)arg, true);
	return 0;
}

/* Rank 1 hears of it before its own time is over. */
static void expect_heard(void)
{
	_Atomic bool met = false;
	_Atomic bool heard = false;
	uint32_t leaves = 0;
	pthread_t thread;

	mock_carry_datagrams(carry, &leaves);
	mock_watch_calls(meets, &met);
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_main, &heard), 0);
	while (!met)
		rb_clock_sleep_until(rb_clock_ns() + 1000000u);
	ops->call_off(eps[0], 1, addresses[1], address_bytes[1]);
	ops->close(eps[0], true, rb_clock_ns() + LIMIT_NS);
	(void)pthread_join(thread, NULL);
	ck_assert(heard);
	mock_watch_calls(NULL, NULL);
	mock_carry_datagrams(NULL, NULL);
	ops->close(eps[1], true, rb_clock_ns() + LIMIT_NS);
}

START_TEST(without_a_datagram_it_goes_over_tcp)
{
	if (rb_process_host() == 0)
		return; /* TCP without a secret is for ranks of one machine. */
	ends_open(2, 1, true);
	devices_change((enum trouble)_i, 1);
	expect_heard();
	ck_assert_uint_eq(device.posts, 1);
	ck_assert_uint_eq(device.fired, 1);
}
END_TEST

/* There TCP is refused. */
START_TEST(another_rail_carries_the_datagram)
{
	ends_open(2, 2, false);
	devices_change((enum trouble)_i, 1);
	expect_heard();
	ck_assert_uint_eq(device.posts, 1);
	ck_assert_uint_eq(device.fired, 1);
}
END_TEST

/* Who waited for each peer anew would do so a thousand times. */
START_TEST(a_device_that_completes_nothing_is_asked_once)
{
	ends_open(MANY, 2, true);
	devices_change(KEEPS, 2);
	for (uint32_t r = 1; r < MANY; r++)
		ops->call_off(eps[0], r, addresses[1], address_bytes[1]);
	ck_assert_uint_eq(device.posts, 2);
	ck_assert_uint_eq(device.fired, 2);
	for (uint32_t r = 0; r < 2; r++)
		ops->close(eps[r], true, rb_clock_ns() + LIMIT_NS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("farewell");

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, without_a_datagram_it_goes_over_tcp, 0, TROUBLES);
	tcase_add_loop_test(tc, another_rail_carries_the_datagram, 0, TROUBLES);
	tcase_add_test(tc, a_device_that_completes_nothing_is_asked_once);
	return check_main("verbs-farewell", tc);
}
