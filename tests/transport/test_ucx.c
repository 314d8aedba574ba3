/*
 * test_ucx.c -- what only UCX's backend has to withstand: hostile messages, foreign addresses, and
 * peers that are killed or stopped in the middle of things. Behaviour in peace: conformance/.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "tests/side_by_side.h"
#include "tests/transport/ucx_pair.h"

/* ---- Hostile messages ---- */

/* Rank 1 sends `head` to rank 0, which must lose it, once, with `words` in the text. */
static void expect_loss(struct pair *pair, const struct rb_ucx_head *head, const char *words)
{
	struct rb_failure failure;
	struct rb_request pending;
	uint64_t word = 0;

	prepare(&pending, 1, 999, &word, sizeof(word));
	ops->recv(pair->ep[0], &pending);
	rb_ucx_tell_head(ux_of(pair, 1), 0, head);
	UNTIL(pair_poll(pair), ops->failure(pair->ep[0], &failure));
	ck_assert_uint_eq(failure.peer, 1);
	ck_assert_int_eq(failure.status, RUBATO_ERR_PEER);
	ck_assert_msg(strstr(failure.text, words) != NULL, "%s", failure.text);
	ck_assert(!ops->failure(pair->ep[0], &failure));
	UNTIL(pair_poll(pair), pending.state == RB_REQUEST_DONE);
	ck_assert_int_eq(pending.status, RUBATO_ERR_PEER);
	ops->send(pair->ep[0], &pending);
	ck_assert_int_eq(pending.state, RB_REQUEST_DONE);
	ck_assert_int_eq(pending.status, RUBATO_ERR_PEER);
}

static const struct {
	struct rb_ucx_head head;
	const char *words;
} hostile[] = {
	{ { .message = 0 }, "unknown kind" },
	{ { .message = 200 }, "unknown kind" },
	{ { .message = RB_UCX_EAGER, .size_bytes = 5 }, "size" },
	{ { .message = RB_UCX_EAGER, .size_bytes = UINT64_MAX }, "size" },
	{ { .message = RB_UCX_AHEAD, .id = 0, .size_bytes = LARGE }, "without a number" },
	{ { .message = RB_UCX_AHEAD, .id = 1, .size_bytes = 7, .offset = 8 },
	  "outside its message" },
	{ { .message = RB_UCX_AHEAD, .id = 1, .offset = UINT64_MAX }, "outside its message" },
	{ { .message = RB_UCX_STOPPED, .id = 1, .size_bytes = 7, .offset = 8 }, "cannot be" },
	{ { .message = RB_UCX_STOPPED, .id = 0 }, "without a number" },
	{ { .message = RB_UCX_PUT, .id = 1, .offset = 4097 }, "outside its region" },
	{ { .message = RB_UCX_PUT, .id = 1, .offset = UINT64_MAX }, "outside its region" },
	{ { .message = RB_UCX_PUT_DATA, .tag = { 1, 0 }, .id = 3, .offset = 1ull << 63 },
	  "outside its region" },
};

START_TEST(hostile_message_loses_its_sender)
{
	struct pair pair;
	struct rb_region *region;

	pair_open(&pair, true);
	ck_assert_int_eq(ops->region_alloc(pair.ep[0], 4096, &region), RUBATO_OK);
	expect_loss(&pair, &hostile[_i].head, hostile[_i].words);
	for (size_t i = 0; i < 4096; i++)
		ck_assert_uint_eq(((uint8_t *)region->base)[i], 0);
	pair_close(&pair);
}
END_TEST

START_TEST(credit_never_spent_loses_its_sender)
{
	struct pair pair;
	struct rb_ucx_head head = { .message = RB_UCX_CREDIT };

	pair_open(&pair, true);
	ux_of(&pair, 1)->peers[0].owed = 1;
	expect_loss(&pair, &head, "credit");
	pair_close(&pair);
}
END_TEST

START_TEST(flood_beyond_credit_loses_its_sender)
{
	struct pair pair;
	struct rb_failure failure;
	struct rb_request send;
	uint8_t bytes[4096] = { 0 };
	uint64_t end_ns;

	pair_open(&pair, true);
	end_ns = rb_clock_ns() + DEADLINE_NS;
	for (uint64_t tag = 0; !ops->failure(pair.ep[0], &failure); tag++) {
		ux_of(&pair, 1)->peers[0].credit = RB_UCX_CREDIT_MAX; /* It cheats. */
		prepare(&send, 0, tag, bytes, sizeof(bytes));
		ops->send(pair.ep[1], &send);
		pair_poll(&pair);
		ck_assert_uint_lt(rb_clock_ns(), end_ns);
		ck_assert_uint_le(ux_of(&pair, 0)->peers[1].held, RB_UCX_CREDIT_MAX);
	}
	ck_assert_ptr_nonnull(strstr(failure.text, "credit"));
	pair_close(&pair);
}
END_TEST

/* Ids that never were, or are over, are met without harm. */
START_TEST(stale_ids_are_harmless)
{
	static const enum rb_ucx_message kinds[] = { RB_UCX_CLEAR, RB_UCX_DATA,
						     RB_UCX_PUT_STOPPED };
	static const uint64_t ids[] = { 0, 1, 64, 65, UINT32_MAX, UINT64_MAX, 1ull << 32 | 1 };
	struct pair pair;
	struct rb_failure failure;
	struct rb_request send, recv;
	uint64_t out = 5, in = 0;

	pair_open(&pair, true);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
			rb_ucx_tell(ux_of(&pair, 1), 0, kinds[k], (struct rb_tag) { 0, 7 }, ids[i],
				    ids[i]);
	prepare(&recv, 1, 7, &in, sizeof(in));
	ops->recv(pair.ep[0], &recv);
	prepare(&send, 0, 7, &out, sizeof(out));
	ops->send(pair.ep[1], &send);
	UNTIL(pair_poll(&pair), recv.state == RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_OK);
	ck_assert_uint_eq(in, 5);
	ck_assert(!ops->failure(pair.ep[0], &failure));
	ck_assert(!ops->failure(pair.ep[1], &failure));
	pair_close(&pair);
}
END_TEST

START_TEST(stranger_is_dropped)
{
	struct pair pair;
	struct rb_failure failure;
	struct rb_request send, recv;
	uint64_t out = 5, in = 0, job;

	pair_open(&pair, true);
	prepare(&recv, 1, 7, &in, sizeof(in));
	ops->recv(pair.ep[0], &recv);
	job = ux_of(&pair, 1)->job;
	ux_of(&pair, 1)->job ^= 1;
	out = 4;
	prepare(&send, 0, 7, &out, sizeof(out));
	ops->send(pair.ep[1], &send);
	ux_of(&pair, 1)->job = job;
	ux_of(&pair, 1)->base.rank = 17;
	ops->send(pair.ep[1], &send);
	ux_of(&pair, 1)->base.rank = 1;
	out = 5;
	ops->send(pair.ep[1], &send);
	UNTIL(pair_poll(&pair), recv.state == RB_REQUEST_DONE);
	ck_assert_uint_eq(in, 5);
	ck_assert(!ops->failure(pair.ep[0], &failure));
	pair_close(&pair);
}
END_TEST

/* ---- Addresses and keys ---- */

START_TEST(foreign_addresses_are_unreachable)
{
	struct address address[2], changed;
	struct rb_endpoint *ep = open_rank(0, 2, true, &address[0]);
	struct rb_endpoint *other = open_rank(1, 2, true, &address[1]);

	ck_assert(ops->reachable(ep, address[1].bytes, address[1].size_bytes));
	for (size_t size = 0; size < address[1].size_bytes; size++)
		ck_assert(!ops->reachable(ep, address[1].bytes, size));
	for (size_t i = 0; i < 18; i++) { /* Magic, version, mode, job, rank. */
		changed = address[1];
		changed.bytes[i] ^= 0x80;
		ck_assert_msg(!ops->reachable(ep, changed.bytes, changed.size_bytes), "byte %zu",
			      i);
	}
	ck_assert(!ops->reachable(ep, NULL, 0));
	ops->close(ep, true, 0);
	ops->close(other, true, 0);
}
END_TEST

START_TEST(connect_names_who_is_absent)
{
	struct address address[2];
	struct rb_endpoint *ep = open_rank(0, 2, _i == 1, &address[0]);
	struct rb_endpoint *absent = open_rank(1, 2, _i == 1, &address[1]);

	ck_assert_int_eq(connect_rank(ep, address, SECOND_NS / 5), RUBATO_ERR_TIMEOUT);
	ck_assert_msg(strstr(rubato_error_text(), "ranks 1 ") != NULL, "%s", rubato_error_text());
	ops->close(ep, false, rb_clock_ns() + SECOND_NS / 5);
	ops->close(absent, false, 0);
}
END_TEST

START_TEST(bad_keys_are_refused)
{
	struct pair pair;
	uint8_t key[RB_KEY_BYTES_MAX] = { 0 };
	size_t key_bytes = sizeof(key);
	struct rb_region *region;
	struct rb_remote *remote;

	pair_open(&pair, _i == 1);
	ck_assert_int_eq(ops->region_alloc(pair.ep[1], 10000, &region), RUBATO_OK);
	ck_assert_int_eq(ops->region_key(pair.ep[1], region, key, &key_bytes), RUBATO_OK);
	for (size_t size = 0; size < key_bytes; size++)
		ck_assert_int_eq(ops->remote_open(pair.ep[0], 1, key, size, &remote),
				 RUBATO_ERR_PEER);
	ck_assert_int_eq(ops->remote_open(pair.ep[0], 2, key, key_bytes, &remote),
			 RUBATO_ERR_ARGUMENT);
	ck_assert_int_eq(ops->remote_open(pair.ep[0], 1, key, key_bytes, &remote), RUBATO_OK);
	ck_assert_uint_eq(remote->size_bytes, 10000);
	ck_assert_msg((remote->mapped != NULL) == (_i == 0), "mapped on one node, not over TCP");
	pair_close(&pair);
}
END_TEST

/* Dropped by its owner while a put is under way: nothing is written, and nobody is lost. */
START_TEST(put_into_a_dropped_region)
{
	struct pair pair;
	uint8_t key[RB_KEY_BYTES_MAX], *bytes = calloc(1, LARGE);
	size_t key_bytes = sizeof(key);
	struct rb_region *region;
	struct rb_remote *remote;
	struct rb_failure failure;
	struct rb_request put, note;

	ck_assert_ptr_nonnull(bytes);
	pair_open(&pair, true);
	ck_assert_int_eq(ops->region_alloc(pair.ep[1], LARGE, &region), RUBATO_OK);
	ck_assert_int_eq(ops->region_key(pair.ep[1], region, key, &key_bytes), RUBATO_OK);
	ck_assert_int_eq(ops->remote_open(pair.ep[0], 1, key, key_bytes, &remote), RUBATO_OK);
	prepare(&note, 0, 3, NULL, 0);
	ops->recv(pair.ep[1], &note);
	prepare(&put, 1, 3, bytes, LARGE);
	put.remote = remote;
	ops->put(pair.ep[0], &put);
	ops->region_drop(pair.ep[1], region);
	UNTIL(pair_poll(&pair), put.state == RB_REQUEST_DONE);
	for (int i = 0; i < 1000; i++)
		pair_poll(&pair);
	ck_assert_int_eq(note.state, RB_REQUEST_PENDING);
	ck_assert(!ops->failure(pair.ep[0], &failure));
	ck_assert(!ops->failure(pair.ep[1], &failure));
	ops->cancel(pair.ep[1], &note);
	pair_close(&pair);
	free(bytes);
}
END_TEST

/* ---- Killed and stopped ---- */

struct shared { /* Between this process and its children. */
	_Atomic uint32_t ready, go;
	struct address address[4];
};

static struct shared *shared_make(void)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(s, MAP_FAILED);
	return s;
}

/* A peer process: connects, then either echoes 8 bytes for ever or sits there without progress. */
static void child_main(struct shared *s, uint32_t rank, uint32_t rank_count, bool tcp_only,
		       bool echo)
{
	struct rb_endpoint *ep = open_rank(rank, rank_count, tcp_only, &s->address[rank]);
	struct rb_request q;
	uint64_t word = 0;

	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->ready) < rank_count)
		rb_yield();
	if (connect_rank(ep, s->address, DEADLINE_NS) != RUBATO_OK)
		_exit(1);
	atomic_fetch_add(&s->go, 1);
	while (!echo)
		(void)pause();
	for (uint64_t tag = 0;; tag++) {
		prepare(&q, 0, tag, &word, sizeof(word));
		ops->recv(ep, &q);
		while (q.state != RB_REQUEST_DONE) {
			(void)ops->poll(ep);
			rb_yield();
		}
		if (q.status != RUBATO_OK)
			_exit(0);
		prepare(&q, 0, tag, &word, sizeof(word));
		ops->send(ep, &q);
	}
}

static struct rb_endpoint *with_children(struct shared *s, pid_t *children, uint32_t rank_count,
					 bool tcp_only)
{
	struct rb_endpoint *ep;

	for (uint32_t r = 1; r < rank_count; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			child_main(s, r, rank_count, tcp_only, r > 1);
	}
	ep = open_rank(0, rank_count, tcp_only, &s->address[0]);
	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->ready) < rank_count)
		rb_yield();
	ck_assert_msg(connect_rank(ep, s->address, DEADLINE_NS) == RUBATO_OK, "%s",
		      rubato_error_text());
	UNTIL((void)ops->poll(ep), atomic_load(&s->go) == rank_count - 1);
	return ep;
}

static void reap(pid_t child, int sig)
{
	ck_assert_int_eq(kill(child, sig), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static void echo(struct rb_endpoint *ep, uint32_t peer, uint64_t tag)
{
	struct rb_request send, recv;
	uint64_t out = tag + 77, in = 0;

	prepare(&recv, peer, tag, &in, sizeof(in));
	ops->recv(ep, &recv);
	prepare(&send, peer, tag, &out, sizeof(out));
	ops->send(ep, &send);
	UNTIL((void)ops->poll(ep), recv.state == RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_OK);
	ck_assert_uint_eq(in, out);
}

/* Sleeps as the engine does until something comes. */
static void sleep_and_poll(struct rb_endpoint *ep)
{
	struct pollfd fd = { .fd = ops->descriptor(ep), .events = POLLIN };

	if (ops->arm(ep)) {
		ck_assert_int_eq(poll(&fd, 1, (int)(DEADLINE_NS / 1000000)), 1);
		ops->disarm(ep);
	}
	(void)ops->poll(ep);
}

START_TEST(killed_peer_is_lost_and_others_go_on)
{
	bool tcp_only = _i == 1;
	struct shared *s = shared_make();
	pid_t children[3];
	struct rb_endpoint *ep = with_children(s, children, 3, tcp_only);
	struct rb_request recv, send;
	struct rb_failure failure;
	uint8_t *large = calloc(1, LARGE);
	uint64_t word = 0;
	bool told = false;

	ck_assert_ptr_nonnull(large);
	echo(ep, 2, 0);
	prepare(&recv, 1, 1, &word, sizeof(word));
	ops->recv(ep, &recv);
	prepare(&send, 1, 2, large, LARGE);
	ops->send(ep, &send);
	reap(children[1], SIGKILL);
	UNTIL(sleep_and_poll(ep), (told = ops->failure(ep, &failure)));
	ck_assert_uint_eq(failure.peer, 1);
	ck_assert_int_eq(failure.status, RUBATO_ERR_PEER);
	UNTIL((void)ops->poll(ep), recv.state == RB_REQUEST_DONE && send.state == RB_REQUEST_DONE);
	ck_assert_int_eq(recv.status, RUBATO_ERR_PEER);
	ck_assert_int_eq(send.status, RUBATO_ERR_PEER);
	echo(ep, 2, 1);
	ck_assert(!ops->failure(ep, &failure));
	reap(children[2], SIGKILL);
	ops->close(ep, false, rb_clock_ns() + SECOND_NS);
	free(large);
	(void)munmap(s, sizeof(*s));
}
END_TEST

/*
 * A peer that does not progress (its process is stopped) keeps nobody from getting his buffers
 * back: sends that it never asked for, and a flood that UCX cannot get rid of.
 */
START_TEST(stopped_peer_does_not_hold_buffers)
{
	enum { COUNT = 2000 };
	bool tcp_only = _i == 1;
	struct shared *s = shared_make();
	pid_t children[2];
	struct rb_endpoint *ep = with_children(s, children, 2, tcp_only);
	struct rb_request *sends = calloc(COUNT, sizeof(*sends)), large;
	uint8_t *bytes = calloc(1, LARGE);
	uint32_t pending = 0;

	ck_assert(sends != NULL && bytes != NULL);
	ck_assert_int_eq(kill(children[1], SIGSTOP), 0);
	prepare(&large, 1, 1u << 20, bytes, LARGE);
	ops->send(ep, &large);
	ck_assert_int_eq(large.state, RB_REQUEST_PENDING);
	for (uint64_t i = 0; i < COUNT; i++) {
		prepare(&sends[i], 1, i, bytes, 4000);
		ops->send(ep, &sends[i]);
	}
	for (int i = 0; i < 100; i++)
		(void)ops->poll(ep);
	for (uint32_t i = 0; i < COUNT; i++) {
		pending += sends[i].state == RB_REQUEST_PENDING;
		ops->cancel(ep, &sends[i]);
		ck_assert_int_eq(sends[i].state, RB_REQUEST_DONE);
	}
	ck_assert_uint_gt(pending, COUNT / 2); /* 8 MB against 1 MiB of credit. */
	ops->cancel(ep, &large);
	ck_assert_int_eq(large.status, RUBATO_ERR_CANCELLED);
	memset(bytes, 0xff, LARGE);
	ck_assert_ptr_null(ops->poll(ep));
	ops->close(ep, false, rb_clock_ns() + SECOND_NS);
	reap(children[1], SIGKILL);
	free(sends);
	free(bytes);
	(void)munmap(s, sizeof(*s));
}
END_TEST

/* A peer that takes no more bytes keeps a flush from ending, but not the worker. */
START_TEST(flush_that_never_ends_ends_with_its_worker)
{
	struct shared *s = shared_make();
	pid_t children[2];
	struct rb_endpoint *ep;
	struct rb_ucx *ux;
	struct rb_request send;
	uint8_t bytes[8000] = { 0 };
	uint64_t tag = 0;

	ck_assert_int_eq(setenv("UCX_TCP_SNDBUF", "64k", 1), 0);
	ck_assert_int_eq(setenv("UCX_TCP_RCVBUF", "64k", 1), 0);
	ep = with_children(s, children, 2, true);
	ux = (struct rb_ucx *)ep;
	ck_assert_int_eq(kill(children[1], SIGSTOP), 0);
	do { /* Until the socket takes a part of one. */
		ck_assert_uint_lt(tag, 100);
		prepare(&send, 1, tag++, bytes, sizeof(bytes));
		ops->send(ep, &send);
		ck_assert_int_eq(send.state, RB_REQUEST_DONE);
	} while (ops->left(ep));
	ck_assert_uint_eq(ux->peers[1].out, 0);
	ck_assert(ux->flushing);
	ops->close(ep, _i == 1, rb_clock_ns() + SECOND_NS);
	reap(children[1], SIGKILL);
	(void)munmap(s, sizeof(*s));
}
END_TEST

/* ---- Options ---- */

static _Atomic size_t largest_send;

/* UCX's TCP finds this one instead of the C library's. */
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message,
						       int flags)
{
	size_t before = atomic_load(&largest_send), size_bytes = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++)
		size_bytes += message->msg_iov[i].iov_len;
	while (size_bytes > before &&
	       !atomic_compare_exchange_weak(&largest_send, &before, size_bytes))
		;
	return syscall(SYS_sendmsg, fd, message, flags);
}

/* UCX takes options that it does not know, and goes on with 8 KiB. */
START_TEST(a_piece_leaves_in_one_frame)
{
	struct pair pair;
	struct rb_request out, in;
	uint8_t *bytes = calloc(2, LARGE);

	ck_assert_ptr_nonnull(bytes);
	pair_open(&pair, true);
	ck_assert_uint_gt(atomic_load(&largest_send), 0);
	prepare(&in, 1, 7, bytes, LARGE);
	ops->recv(pair.ep[0], &in);
	prepare(&out, 0, 7, bytes + LARGE, LARGE);
	ops->send(pair.ep[1], &out);
	UNTIL(pair_poll(&pair), in.state == RB_REQUEST_DONE && out.state == RB_REQUEST_DONE);
	ck_assert_uint_ge(atomic_load(&largest_send), RB_UCX_PIECE_BYTES);
	pair_close(&pair);
	free(bytes);
}
END_TEST

/* An older UCX only says so in its log. */
START_TEST(an_option_that_ucx_does_not_know_is_noticed)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_AM };
	ucp_worker_params_t worker_params = { .field_mask = 0 };
	struct address address;
	struct rb_endpoint *ep = open_rank(0, 1, true, &address);
	const struct rb_ucx_api *api = &((struct rb_ucx *)ep)->api;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_config_t *config;

	ck_assert(!rb_ucx_option_unused());
	ck_assert_int_eq(api->ucp_config_read(NULL, NULL, &config), UCS_OK);
	if (api->ucp_config_modify(config, "NO_SUCH_OPTION", "1") == UCS_OK) {
		ck_assert_int_eq(api->ucp_init_version(1, 13, &params, config, &context), UCS_OK);
		ck_assert_int_eq(api->ucp_worker_create(context, &worker_params, &worker), UCS_OK);
		ck_assert(rb_ucx_option_unused());
		ck_assert(!rb_ucx_option_unused());
		api->ucp_worker_destroy(worker);
		api->ucp_cleanup(context);
	}
	api->ucp_config_release(config);
	ops->close(ep, false, rb_clock_ns() + SECOND_NS);
}
END_TEST

/* In one line, or in test builds by an end: so every test of UCX is one of its options' names. */
START_TEST(an_option_that_ucx_does_not_know_is_told)
{
	char said[1024];
	size_t at = 0;
	ssize_t count;
	int ends[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(ends[1], 2);
		for (int i = 0; i < 3; i++)
			rb_ucx_option_unknown("ANY");
		_exit(0);
	}
	(void)close(ends[1]);
	while ((count = read(ends[0], said + at, sizeof(said) - 1 - at)) > 0)
		at += (size_t)count;
	said[at] = '\0';
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(strstr(said, "UCX does not know its option ANY\n") != NULL, "%s", said);
#ifdef RB_ASSERT_ABORTS
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_ptr_eq(strchr(said, '\n'), said + at - 1);
#endif
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec now;

	ck_assert_int_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* It waits for answers that do not come, asleep. With a flood: for room that does not come. */
START_TEST(close_beside_a_stopped_peer_sleeps)
{
	enum { COUNT = 200 };
	bool tcp_only = _i % 2 == 1, flood = _i >= 2;
	struct shared *s = shared_make();
	pid_t children[2];
	struct rb_endpoint *ep = with_children(s, children, 2, tcp_only);
	struct rb_request *sends = calloc(COUNT, sizeof(*sends));
	uint8_t bytes[4000] = { 0 };
	uint64_t before_ns;

	ck_assert_ptr_nonnull(sends);
	ck_assert_int_eq(kill(children[1], SIGSTOP), 0);
	for (uint64_t i = 0; flood && i < COUNT; i++) {
		prepare(&sends[i], 1, i, bytes, sizeof(bytes));
		ops->send(ep, &sends[i]);
	}
	before_ns = cpu_ns();
	ops->close(ep, false, rb_clock_ns() + 2ull * SECOND_NS); /* The case's limit bounds it. */
	ck_assert_msg(cpu_ns() - before_ns < SECOND_NS / 4, "%llu ms of CPU",
		      (unsigned long long)(cpu_ns() - before_ns) / 1000000);
	reap(children[1], SIGKILL);
	free(sends);
	(void)munmap(s, sizeof(*s));
}
END_TEST

static _Atomic unsigned arms_refused, flushes_asked;

static ucs_status_t never_armed(ucp_worker_h worker)
{
	(void)worker;
	atomic_fetch_add(&arms_refused, 1);
	return UCS_ERR_BUSY;
}

static ucs_status_t never_closed(void *request)
{
	(void)request;
	atomic_fetch_add(&flushes_asked, 1);
	return UCS_INPROGRESS;
}

static ucs_status_ptr_t closing_for_ever(ucp_ep_h ep, const ucp_request_param_t *param)
{
	static uint64_t request;

	(void)ep, (void)param;
	return &request;
}

static void keep_request(void *request)
{
	(void)request;
}

/* A UCX that always has something to do, and never does it: as RDMA's with a peer that has gone. */
START_TEST(close_beside_a_ucx_that_never_sleeps_sleeps)
{
	struct shared *s = shared_make();
	pid_t children[2];
	struct rb_endpoint *ep = with_children(s, children, 2, true);
	uint64_t before_ns, cpu_spent_ns;

	ck_assert_int_eq(kill(children[1], SIGSTOP), 0);
	((struct rb_ucx *)ep)->api.ucp_worker_arm = never_armed;
	before_ns = cpu_ns();
	ops->close(ep, false, rb_clock_ns() + 2ull * SECOND_NS);
	cpu_spent_ns = cpu_ns() - before_ns;
	ck_assert_uint_gt(atomic_load(&arms_refused), 3);
	ck_assert_msg(cpu_spent_ns < SECOND_NS / 4, "%llu ms of CPU",
		      (unsigned long long)cpu_spent_ns / 1000000);
	reap(children[1], SIGKILL);
	(void)munmap(s, sizeof(*s));
}
END_TEST

static struct pair *late_pair;
static struct rb_request late_send;
static uint64_t late_word = 5;

static ucs_status_t armed_too_late(ucp_worker_h worker)
{
	(void)worker;
	if (late_send.size_bytes == 0) {
		prepare(&late_send, 0, 7, &late_word, sizeof(late_word));
		ops->send(late_pair->ep[1], &late_send);
		UNTIL((void)ops->poll(late_pair->ep[1]), ops->left(late_pair->ep[1]));
	}
	return UCS_OK;
}

/* What comes before the bell is armed, and after the last look, rings none: as with a verbs
 * completion queue. */
START_TEST(what_comes_before_the_bell_is_seen)
{
	struct pair pair;
	struct rb_request recv;
	uint64_t in = 0;

	pair_open(&pair, true);
	prepare(&recv, 1, 7, &in, sizeof(in));
	ops->recv(pair.ep[0], &recv);
	UNTIL((void)ops->poll(pair.ep[0]), ops->left(pair.ep[0]));
	late_pair = &pair;
	ux_of(&pair, 0)->api.ucp_worker_arm = armed_too_late;
	UNTIL((void)0, !ops->arm(pair.ep[0]));
	ck_assert_uint_eq(late_send.size_bytes, sizeof(late_word));
	UNTIL((void)ops->poll(pair.ep[0]), recv.state == RB_REQUEST_DONE);
	ck_assert_uint_eq(in, late_word);
	pair_close(&pair);
}
END_TEST

#define FAR_NS (3600ull * SECOND_NS) /* Who waits for that is stopped by the case's limit. */

static void *close_second(void *arg)
{
	struct pair *pair = arg;

	ops->close(pair->ep[1], false, rb_clock_ns() + FAR_NS);
	return NULL;
}

/* Peers have all that was sent, or this rank gives up: connections that UCX cannot end are left. */
START_TEST(connections_that_never_end_do_not_hold_close)
{
	struct pair pair;
	struct rb_ucx *ux;
	pthread_t thread;

	pair_open(&pair, true);
	ux = ux_of(&pair, 0);
	ux->api.ucp_ep_close_nbx = closing_for_ever;
	ux->api.ucp_request_check_status = never_closed;
	ux->api.ucp_request_free = keep_request;
	ck_assert_int_eq(pthread_create(&thread, NULL, close_second, &pair), 0);
	ops->close(pair.ep[0], _i == 1, rb_clock_ns() + FAR_NS);
	ck_assert_uint_gt(atomic_load(&flushes_asked), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* With -Ducx_prefix two are on the machine: headers of one with the library of the other would run,
 * and prove nothing. */
START_TEST(runs_the_ucx_it_was_built_with)
{
	unsigned major, minor, patch;
	struct rb_ucx_api api;

	ck_assert_msg(rb_ucx_load(&api) == RUBATO_OK, "%s", rubato_error_text());
	api.ucp_get_version(&major, &minor, &patch);
	ck_assert_uint_eq(UCP_VERSION(major, minor), UCP_API_VERSION);
	(void)printf("UCX %s\n", api.ucp_get_version_string());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ucx");
	TCase *messages = tcase_create("messages"), *peers = tcase_create("peers");

	side_by_side(3);
	tcase_set_timeout(messages, 60);
	tcase_set_timeout(peers, 60);
	tcase_add_test(messages, runs_the_ucx_it_was_built_with);
	tcase_add_test(messages, an_option_that_ucx_does_not_know_is_noticed);
	tcase_add_test(messages, an_option_that_ucx_does_not_know_is_told);
	tcase_add_test(messages, a_piece_leaves_in_one_frame);
	tcase_add_loop_test(messages, hostile_message_loses_its_sender, 0,
			    sizeof(hostile) / sizeof(hostile[0]));
	tcase_add_test(messages, credit_never_spent_loses_its_sender);
	tcase_add_test(messages, flood_beyond_credit_loses_its_sender);
	tcase_add_test(messages, stale_ids_are_harmless);
	tcase_add_test(messages, stranger_is_dropped);
	tcase_add_test(peers, foreign_addresses_are_unreachable);
	tcase_add_loop_test(peers, connect_names_who_is_absent, 0, 2);
	tcase_add_loop_test(peers, bad_keys_are_refused, 0, 2);
	tcase_add_test(peers, put_into_a_dropped_region);
	tcase_add_loop_test(peers, killed_peer_is_lost_and_others_go_on, 0, 2);
	tcase_add_loop_test(peers, stopped_peer_does_not_hold_buffers, 0, 2);
	tcase_add_loop_test(peers, close_beside_a_stopped_peer_sleeps, 0, 4);
	tcase_add_test(peers, close_beside_a_ucx_that_never_sleeps_sleeps);
	tcase_add_test(peers, what_comes_before_the_bell_is_seen);
	tcase_add_loop_test(peers, connections_that_never_end_do_not_hold_close, 0, 2);
	tcase_add_loop_test(peers, flush_that_never_ends_ends_with_its_worker, 0, 2);
	suite_add_tcase(suite, messages);
	suite_add_tcase(suite, peers);
	return check_suite(suite);
}
