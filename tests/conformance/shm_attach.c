/*
 * shm_attach.c -- long messages by cross-memory attach: that they are, by both ends or by one
 * alone; and that they come through where the kernel refuses that memory, or any, to the receiver
 * or to the sender.
 */
#include "conformance.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "transport/shm/shm.h"

#define BYTES ((3u << 20) + 5)

const struct conform_backend conform_backend = {
	.name = "shm_attach",
	.ops = &rb_transport_shm,
	.run = conform_run_processes,
};

/* From now on this process may not attach another: the kernel answers `error`. */
static void refuse(uint32_t error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static struct rb_shm_peer *other(struct conform_rank *r)
{
	return &((struct rb_shm_endpoint *)r->ep)->peers[1 - r->rank];
}

/* Whatever this machine's kernel does: the first messages go the way that is usual. */
static void attach_at_first(struct conform_rank *r)
{
	((struct rb_shm_endpoint *)r->ep)->kernel = RB_SHM_KERNEL_FAST;
}

/* Who is away posts, and then does not poll before the other is done. */
static struct {
	bool sender_away, receiver_away;
	int refused; /* Rank: 0 sends, 1 receives; -1: none. */
	uint32_t error;
} how;

static void away_until(struct conform_rank *r, uint32_t word)
{
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (atomic_load(&r->shared->word[word]) == 0)
		conform_expire(r, since_ns, "the other to do it all");
}

static void send_main(struct conform_rank *r, uint8_t *buffer)
{
	struct conform_request send;

	conform_fill(buffer, BYTES, 7);
	conform_send(r, &send, 1, 3, buffer, BYTES);
	atomic_store(&r->shared->word[0], 1);
	if (how.sender_away)
		away_until(r, 1);
	if (how.refused == 0) { /* The fault has fired before the other goes on. */
		uint64_t since_ns = r->ops->now_ns(r->ep);

		while (other(r)->attached_sends.requests[0] != NULL &&
		       other(r)->attached_sends.requests[0]->backend[RB_SHM_THEIR_ADDRESS] == 0)
			(void)conform_poll(r);
		while (other(r)->attached_sends.active != 0) {
			(void)conform_poll(r);
			conform_expire(r, since_ns, "the refusal");
		}
		atomic_store(&r->shared->word[1], 1);
	}
	conform_finish_ok(r, &send);
	atomic_store(&r->shared->word[1], 1);
}

static void receive_main(struct conform_rank *r, uint8_t *buffer)
{
	struct conform_request receive;
	uint32_t bulk = other(r)->in.bulk;
	bool streamed = how.refused >= 0;

	away_until(r, 0);
	conform_recv(r, &receive, 0, 3, buffer, BYTES);
	if (how.receiver_away) { /* It has to see what was announced, to clear it. */
		/* Or the sender has been refused before we looked. */
		while (other(r)->receives.active == 0 && atomic_load(&r->shared->word[1]) == 0)
			(void)conform_poll(r);
		away_until(r, 1);
	}
	conform_finish_ok(r, &receive);
	atomic_store(&r->shared->word[1], 1);
	conform_verify(buffer, BYTES, 7);
	ck_assert_int_eq(other(r)->in.bulk != bulk, streamed);
	ck_assert_ptr_null(other(r)->receives.requests[0]);
}

static void body(struct conform_rank *r)
{
	uint8_t *buffer = malloc(BYTES);
	bool refused = how.refused == (int)r->rank;

	CONFORM(buffer != NULL, "memory");
	ck_assert_int_eq(other(r)->attach, RB_SHM_ATTACH_PROCESS);
	attach_at_first(r);
	if (refused)
		refuse(how.error);
	conform_barrier(r, "the start");
	if (r->rank == 0)
		send_main(r, buffer);
	else
		receive_main(r, buffer);
	ck_assert_int_eq(other(r)->attach,
			 refused && how.error != EFAULT ? RB_SHM_ATTACH_NO : RB_SHM_ATTACH_PROCESS);
	conform_barrier(r, "the end");
	ck_assert_uint_eq(other(r)->attached_sends.active | other(r)->receives.active, 0);
	free(buffer);
}

static void attach_run(bool sender_away, bool receiver_away, int refused, uint32_t error)
{
	how.sender_away = sender_away;
	how.receiver_away = receiver_away;
	how.refused = refused;
	how.error = error;
	conform_run(2, body);
}

START_TEST(test_both_ends)
{
	attach_run(false, false, -1, 0);
}
END_TEST

START_TEST(test_one_end)
{
	attach_run(_i == 0, _i == 1, -1, 0);
}
END_TEST

START_TEST(test_refused_to_receiver)
{
	attach_run(false, false, 1, _i == 0 ? EPERM : EFAULT);
}
END_TEST

START_TEST(test_refused_to_sender)
{
	attach_run(false, true, 0, _i == 0 ? EPERM : EFAULT);
}
END_TEST

/* ---- Messages that cross ---- */

#define CROSS_BYTES (2 * RB_SHM_ATTACH_BYTES_MIN)
#define CROSS_ROUNDS 6u

/* Without a poll, which would take what has come. */
static void together(struct conform_rank *r, uint32_t word, uint32_t round)
{
	uint64_t since_ns = rb_clock_ns();

	atomic_fetch_add(&r->shared->word[word], 1);
	while (atomic_load(&r->shared->word[word]) < 2 * (round + 1))
		conform_expire(r, since_ns, "the other");
}

/* Both have sent before either looks. True: what came went through bulk buffers. */
static bool crossed(struct conform_rank *r, uint8_t *out, uint8_t *in, uint32_t round)
{
	uint32_t bulk = other(r)->in.bulk, peer = 1 - r->rank;
	struct conform_request send, receive;

	conform_fill(out, CROSS_BYTES, r->rank + 2 * round);
	conform_barrier(r, "both");
	together(r, 2, round);
	conform_send(r, &send, peer, round, out, CROSS_BYTES);
	together(r, 3, round);
	conform_recv(r, &receive, peer, round, in, CROSS_BYTES);
	conform_finish_ok(r, &receive);
	conform_finish_ok(r, &send);
	conform_verify(in, CROSS_BYTES, peer + 2 * round);
	return other(r)->in.bulk != bulk;
}

/* Those that cross go through bulk buffers, but for the first: nobody knew. Then one rank sends
 * alone, and after some its messages are attached; then they take turns, and are attached. */
static void cross_body(struct conform_rank *r)
{
	uint8_t *out = malloc(CROSS_BYTES), *in = malloc(CROSS_BYTES);
	uint32_t bulk;

	CONFORM(out != NULL && in != NULL, "memory");
	ck_assert_int_eq(other(r)->attach, RB_SHM_ATTACH_PROCESS);
	attach_at_first(r);
	for (uint32_t i = 0; i < CROSS_ROUNDS; i++)
		ck_assert_int_eq(crossed(r, out, in, i), i > 0);
	for (uint32_t i = 0; i < 2 * CROSS_ROUNDS; i++) {
		uint32_t from = i < CROSS_ROUNDS ? 0 : i % 2;
		struct conform_request request;

		bulk = other(r)->in.bulk; /* Polls of the barrier may take the message. */
		conform_barrier(r, "one");
		if (r->rank == from) {
			conform_fill(out, CROSS_BYTES, i);
			conform_send(r, &request, 1 - from, CROSS_ROUNDS + i, out, CROSS_BYTES);
		} else {
			conform_recv(r, &request, from, CROSS_ROUNDS + i, in, CROSS_BYTES);
		}
		conform_finish_ok(r, &request);
		if (r->rank == from)
			continue;
		conform_verify(in, CROSS_BYTES, i);
		ck_assert_int_eq(other(r)->in.bulk != bulk, i < 4);
	}
	conform_barrier(r, "the end");
	free(out);
	free(in);
}

START_TEST(test_crossing)
{
	conform_run(2, cross_body);
}
END_TEST

/* ---- Which way ---- */

#define FIRST_CLASS 2
#define FIRST_BYTES (RB_SHM_EAGER_MAX + 1) /* Of the first class that is never eager, */
_Static_assert(RB_SHM_ATTACH_BYTES_MIN << FIRST_CLASS == RB_SHM_EAGER_MAX, "that class");
#define LAST_BYTES 20000000u /* and of the last. */
#define SLOW (UINT64_C(1) << 40)
#define TRIAL (4194304 / FIRST_BYTES)
#define TRIAL_FIRST 8 /* So much longer is the first. */
#define LAST_TRIAL 4

static struct rb_shm_ways *ways_of(struct conform_rank *r)
{
	return ((struct rb_shm_endpoint *)r->ep)->ways;
}

/* Rank 0 sends, 1 receives; there it tells how the message came. */
static enum rb_shm_way message(struct conform_rank *r, uint8_t *buffer, size_t bytes, uint32_t i)
{
	uint32_t bulk = other(r)->in.bulk;
	struct conform_request request;

	if (r->rank == 0) {
		conform_fill(buffer, bytes, i);
		conform_send(r, &request, 1, i, buffer, bytes);
	} else {
		conform_recv(r, &request, 0, i, buffer, bytes);
	}
	conform_finish_ok(r, &request);
	if (r->rank == 1)
		conform_verify(buffer, bytes, i);
	return other(r)->in.bulk != bulk ? RB_SHM_STREAMED : RB_SHM_ATTACHED;
}

/* Of `count` messages, how many came by each way. */
static void messages(struct conform_rank *r, uint8_t *buffer, uint32_t count, uint32_t came[2])
{
	came[0] = came[1] = 0;
	for (uint32_t i = 0; i < count; i++)
		came[message(r, buffer, FIRST_BYTES, i)]++;
}

/* All of the usual way, at first for long, all of the other; then for long those of the better one,
 * if it is much better. */
static void ways_body(struct conform_rank *r)
{
	uint8_t *buffer = malloc(LAST_BYTES);
	struct rb_shm_ways *first = ways_of(r) + FIRST_CLASS,
			   *last = ways_of(r) + RB_SHM_CLASSES - 1;
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)r->ep;
	bool fast = rb_shm_kernel_is_fast(ep);
	enum rb_shm_way usual = fast ? RB_SHM_ATTACHED : RB_SHM_STREAMED;
	uint32_t came[2];

	CONFORM(buffer != NULL, "memory");
	ep->kernel = fast ? RB_SHM_KERNEL_FAST : RB_SHM_KERNEL_SLOW;
	conform_barrier(r, "the start");
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t better = i % 2;
		bool little = i / 2 == 1;

		for (uint32_t turn = 0; turn < 2; turn++) {
			uint32_t way = turn == 0 ? usual : 1 - usual;
			uint32_t count = i == 0 && turn == 0 ? TRIAL_FIRST * TRIAL : TRIAL;

			messages(r, buffer, count, came);
			if (r->rank == 1) {
				ck_assert_uint_eq(came[way], count);
				ck_assert_uint_gt(first->each[way], 0);
				ck_assert_uint_lt(first->each[way], SLOW);
			}
		}
		first->each[better] = SLOW;
		first->each[1 - better] = little ? SLOW + SLOW / 8 : 2 * SLOW;
		messages(r, buffer, 64 * TRIAL, came);
		if (r->rank == 1) {
			ck_assert_uint_eq(came[little ? usual : better], 64 * TRIAL);
			ck_assert_uint_eq(first->each[better], SLOW);
		}
	}
	for (uint32_t i = 0; i <= TRIAL_FIRST * LAST_TRIAL - LAST_TRIAL / 2; i++) {
		ck_assert_uint_eq(last->each[usual], 0);
		(void)message(r, buffer, LAST_BYTES, 0);
	}
	if (r->rank == 1) /* The last half of a trial counts. */
		ck_assert_uint_gt(last->each[usual], 0);
	conform_barrier(r, "the end");
	free(buffer);
}

/* Where the kernel is far too slow, no message goes its way. */
static void hopeless_body(struct conform_rank *r)
{
	const uint32_t count = TRIAL_FIRST * TRIAL + 2 * TRIAL;
	uint8_t *buffer = malloc(LAST_BYTES);
	uint32_t came[2];

	CONFORM(buffer != NULL, "memory");
	((struct rb_shm_endpoint *)r->ep)->kernel = RB_SHM_KERNEL_HOPELESS;
	conform_barrier(r, "the start");
	messages(r, buffer, count, came);
	if (r->rank == 1)
		ck_assert_uint_eq(came[RB_SHM_STREAMED], count);
	conform_barrier(r, "the end");
	free(buffer);
}

START_TEST(test_hopeless)
{
	conform_run(2, hopeless_body);
}
END_TEST

START_TEST(test_ways)
{
	conform_run(2, ways_body);
}
END_TEST

/* The sender claims a slice and is stopped there. */
static void stopped_sender(struct conform_rank *r, uint8_t *buffer)
{
	struct rb_shm_joint *joint = &other(r)->out.ring->joints[0];
	struct conform_request send;

	conform_fill(buffer, BYTES, 7);
	conform_send(r, &send, 1, 3, buffer, BYTES);
	atomic_fetch_add(&joint->word, UINT64_C(1) << 16);
	atomic_store(&r->shared->word[0], 1);
	away_until(r, 1);
	ck_assert_uint_ne(atomic_load(&joint->word) >> 47 & 1, 0);
	ck_assert_uint_eq(atomic_load(&joint->word) >> 16 & 0xffff, 1);
	conform_finish_ok(r, &send); /* The receiver wants no more. */
}

static void stopped_receiver(struct conform_rank *r, uint8_t *buffer)
{
	struct conform_request receive;
	uint64_t begun_ns;

	away_until(r, 0);
	conform_recv(r, &receive, 0, 3, buffer, BYTES);
	while (other(r)->receives.requests[0] == NULL || other(r)->receives.active != 0)
		(void)conform_poll(r);
	ck_assert_int_eq(receive.request.state, RB_REQUEST_PENDING);
	begun_ns = r->ops->now_ns(r->ep);
	r->ops->cancel(r->ep, &receive.request);
	ck_assert_int_eq(receive.request.state, RB_REQUEST_DONE);
	ck_assert_int_eq(receive.request.status, RUBATO_ERR_CANCELLED);
	ck_assert_uint_ge(r->ops->now_ns(r->ep) - begun_ns, 1000000000u);
	ck_assert_ptr_null(other(r)->receives.requests[0]);
	atomic_store(&r->shared->word[1], 1);
}

static void stopped_body(struct conform_rank *r)
{
	uint8_t *buffer = malloc(BYTES);

	CONFORM(buffer != NULL, "memory");
	attach_at_first(r);
	conform_barrier(r, "the start");
	if (r->rank == 0)
		stopped_sender(r, buffer);
	else
		stopped_receiver(r, buffer);
	conform_barrier(r, "the end");
	free(buffer);
}

/* Whoever takes back a receive waits for the slice, and not for ever. */
START_TEST(test_stopped)
{
	conform_run(2, stopped_body);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm_attach");
	TCase *t = tcase_create("attach");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_both_ends, 0, 5);
	tcase_add_loop_test(t, test_one_end, 0, 2);
	tcase_add_loop_test(t, test_refused_to_receiver, 0, 2);
	tcase_add_loop_test(t, test_refused_to_sender, 0, 2);
	tcase_add_test(t, test_crossing);
	if (!test_is_threads_only()) { /* They count which way is taken: both are seen above. */
		tcase_add_test(t, test_ways);
		tcase_add_test(t, test_hopeless);
	}
	tcase_add_test(t, test_stopped);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
