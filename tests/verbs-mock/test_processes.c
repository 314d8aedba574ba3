/*
 * test_processes.c -- ranks are processes that share the mock's world: what they send arrives, what
 * they inject is their own, and of one that dies nothing is left but what its peers are told.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check_main.h"
#include "tests/child_fork.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

#define BYTES 100000u
#define VOLLEYS 500u

struct other { /* Process. */
	char path[64];
	pid_t pid;
	int fd;
};

static void world_make(struct other *other)
{
	int file;

	(void)snprintf(other->path, sizeof(other->path), "/dev/shm/verbs-mock-XXXXXX");
	file = mkstemp(other->path);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(close(file), 0);
	ck_assert_int_eq(setenv("VERBS_MOCK", other->path, 1), 0);
}

/* Whether this is the other one. */
static bool other_start(struct other *other)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	other->pid = child_fork();
	other->fd = pair[other->pid == 0];
	ck_assert_int_eq(close(pair[other->pid != 0]), 0);
	return other->pid == 0;
}

static void other_done(struct other *other)
{
	int status;

	ck_assert_int_eq(waitpid(other->pid, &status, 0), other->pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
	ck_assert_int_eq(close(other->fd), 0);
}

static void meet(int fd)
{
	char byte = 0;

	ck_assert_int_eq(write(fd, "", 1), 1);
	ck_assert_int_eq(read(fd, &byte, 1), 1);
}

/* Connects to the other process's end; each has a receive posted, and its queue armed. */
static void connect_over(int fd, struct end *end, struct address *peer)
{
	struct address own = end_address(end);

	ck_assert_int_eq(write(fd, &own, sizeof(own)), sizeof(own));
	ck_assert_int_eq(read(fd, peer, sizeof(*peer)), sizeof(*peer));
	end_connect(end, peer);
	end_receive(end, 1, 0, END_BYTES);
	ck_assert_int_eq(ibv_req_notify_cq(end->cq, 0), 0);
	meet(fd);
}

static void sleep_for_completion(struct end *end)
{
	struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	ck_assert_int_eq(poll(&readable, 1, 20000), 1);
	ck_assert_int_eq(ibv_get_cq_event(end->channel, &cq, &context), 0);
	ck_assert_ptr_eq(cq, end->cq);
	ck_assert_ptr_eq(context, end);
	ibv_ack_cq_events(cq, 1);
}

static void answerer(int fd)
{
	struct address peer;
	struct ibv_wc wc;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	sleep_for_completion(&end);
	wc = end_wait(&end);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, BYTES);
	for (uint32_t i = 0; i < BYTES; i++)
		end.memory[i]++;
	ck_assert_int_eq(end_send(&end, 2, IBV_WR_RDMA_WRITE_WITH_IMM, 0, BYTES, &peer), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	meet(fd);
	end_close(&end);
	exit(0);
}

START_TEST(a_sleeper_is_woken_and_answers)
{
	struct other other;
	struct address peer;
	struct end end;

	world_make(&other);
	if (other_start(&other))
		answerer(other.fd);
	end_open(&end, (struct end_options) { 0 });
	connect_over(other.fd, &end, &peer);
	for (uint32_t i = 0; i < BYTES; i++)
		end.memory[i] = (unsigned char)(i * 7);
	ck_assert_int_eq(end_send(&end, 4, IBV_WR_SEND, 0, BYTES, NULL), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(end_wait(&end).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	for (uint32_t i = 0; i < BYTES; i++)
		ck_assert_uint_eq(end.memory[i], (unsigned char)(i * 7 + 1));
	meet(other.fd);
	other_done(&other);
	end_close(&end);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

/* Sleeps until a message is there. */
static void message_await(struct end *end)
{
	struct ibv_wc wc;

	for (;;) {
		while (ibv_poll_cq(end->cq, 1, &wc) == 1) {
			ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV)
				return;
		}
		ck_assert_int_eq(ibv_req_notify_cq(end->cq, 0), 0);
		if (ibv_poll_cq(end->cq, 1, &wc) == 0)
			sleep_for_completion(end);
		else if (wc.opcode == IBV_WC_RECV)
			return;
	}
}

static void volley(int fd, bool first)
{
	struct address peer;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	for (uint32_t i = 0; i < VOLLEYS; i++) {
		if (first)
			ck_assert_int_eq(end_send(&end, 2, IBV_WR_SEND, 0, 8, NULL), 0);
		message_await(&end);
		end_receive(&end, 1, 0, END_BYTES);
		if (!first)
			ck_assert_int_eq(end_send(&end, 2, IBV_WR_SEND, 0, 8, NULL), 0);
	}
	meet(fd);
	end_close(&end);
}

/* Where nothing but being called wakes the threads, a call that is lost is an end. */
START_TEST(no_call_of_a_sleeper_is_lost)
{
	struct other other;

	ck_assert_int_eq(setenv("VERBS_MOCK_CONFIG", "sleep_ms=60000", 1), 0);
	world_make(&other);
	if (other_start(&other)) {
		volley(other.fd, false);
		exit(0);
	}
	volley(other.fd, true);
	other_done(&other);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

/* Its sends are carried out while it sleeps, too, whether or not it calls anything. */
static void idler(int fd)
{
	struct address peer;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	ck_assert_int_eq(end_send(&end, 2, IBV_WR_SEND, 0, BYTES, NULL), 0);
	meet(fd); /* Which the other one does when it has it. */
	end_close(&end);
	exit(0);
}

START_TEST(who_sleeps_has_its_sends_carried_out)
{
	struct other other;
	struct address peer;
	struct end end;

	world_make(&other);
	if (other_start(&other))
		idler(other.fd);
	end_open(&end, (struct end_options) { 0 });
	connect_over(other.fd, &end, &peer);
	sleep_for_completion(&end);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	meet(other.fd);
	other_done(&other);
	end_close(&end);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

static void victim(int fd)
{
	struct address peer;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	meet(fd);
	for (;;)
		(void)pause();
}

/* Before its parent waits for it, too: the kernel has taken its queue pairs at once. */
START_TEST(of_a_dead_process_nothing_is_left)
{
	struct mock_counters counters;
	struct other other;
	struct address peer;
	struct end end;
	siginfo_t info;

	world_make(&other);
	if (other_start(&other))
		victim(other.fd);
	end_open(&end, (struct end_options) { 0 });
	connect_over(other.fd, &end, &peer);
	meet(other.fd);
	ck_assert_int_eq(kill(other.pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)other.pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(end_send(&end, 1, _i ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, 0, 0, &peer), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_RETRY_EXC_ERR);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.processes_died, 1);
	ck_assert_int_eq(waitpid(other.pid, NULL, 0), other.pid);
	end_close(&end);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

static void talker(int fd)
{
	struct address peer;
	struct end end;

	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	meet(fd);
	for (uint64_t i = 0;; i++) {
		(void)end_send(&end, i, IBV_WR_RDMA_WRITE, 0, (uint32_t)(i * 4099 % BYTES), &peer);
		(void)end_wait(&end);
	}
}

/* Wherever it is killed, in the middle of a copy and with the world's lock, others go on. */
START_TEST(a_process_may_die_anywhere)
{
	struct mock_counters counters;
	struct other other;
	struct end end;

	world_make(&other);
	for (int i = 0; i < 30; i++) {
		struct timespec pause = { .tv_nsec = i * 97000 };
		struct address peer;

		if (other_start(&other))
			talker(other.fd);
		end_open(&end, (struct end_options) { 0 });
		connect_over(other.fd, &end, &peer);
		meet(other.fd);
		(void)nanosleep(&pause, NULL);
		ck_assert_int_eq(kill(other.pid, SIGKILL), 0);
		ck_assert_int_eq(waitpid(other.pid, NULL, 0), other.pid);
		ck_assert_int_eq(close(other.fd), 0);
		ck_assert_int_eq(end_send(&end, 1, IBV_WR_SEND, 0, 10, NULL), 0);
		ck_assert_int_eq(end_wait(&end).status, IBV_WC_RETRY_EXC_ERR);
		end_close(&end);
	}
	mock_counters(&counters);
	ck_assert_uint_eq(counters.processes_died, 30);
	ck_assert_uint_eq(counters.outside_remote + counters.rnr, 0);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

static void faulty(int fd)
{
	struct address peer;
	struct end end;

	ck_assert_int_eq(setenv("VERBS_MOCK_FAULTS",
				"call:ibv_query_pkey:2:5,send:1:9:delivered,receive:3:4", 1),
			 0);
	end_open(&end, (struct end_options) { 0 });
	for (int i = 0; i < 3; i++) {
		__be16 key;

		ck_assert_int_eq(ibv_query_pkey(end.context, 1, 0, &key), i == 1 ? -1 : 0);
	}
	connect_over(fd, &end, &peer);
	ck_assert_int_eq(end_send(&end, 2, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_REM_INV_REQ_ERR);
	meet(fd);
	end_close(&end);
	exit(0);
}

START_TEST(faults_of_a_process_are_its_own)
{
	struct mock_counters counters;
	struct other other;
	struct address peer;
	struct end end;

	world_make(&other);
	if (other_start(&other))
		faulty(other.fd);
	end_open(&end, (struct end_options) { 0 });
	connect_over(other.fd, &end, &peer);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS); /* It was delivered. */
	meet(other.fd);
	other_done(&other);
	mock_counters(&counters);
	ck_assert_uint_eq(counters.faults_fired, 2);
	ck_assert_uint_eq(mock_call_count("ibv_query_pkey"), 3);
	end_close(&end);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

static void on_node_1(int fd)
{
	struct address peer;
	struct end end;

	ck_assert_int_eq(setenv("VERBS_MOCK_NODE", "1", 1), 0);
	end_open(&end, (struct end_options) { 0 });
	connect_over(fd, &end, &peer);
	ck_assert_int_eq(end_event(&end).event_type, IBV_EVENT_PORT_ERR);
	meet(fd);
	end_close(&end);
	exit(0);
}

START_TEST(nodes_have_devices_of_their_own)
{
	struct other other;
	struct address peer, own;
	struct end end;

	world_make(&other);
	if (other_start(&other))
		on_node_1(other.fd);
	end_open(&end, (struct end_options) { 0 });
	own = end_address(&end);
	connect_over(other.fd, &end, &peer);
	ck_assert_int_ne(memcmp(&own.gid, &peer.gid, sizeof(own.gid)), 0);
	ck_assert_int_eq(end_send(&end, 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_SUCCESS);
	mock_link(1, 0, 1, false);
	ck_assert(end_no_event(&end)); /* It is not this node's. */
	ck_assert_int_eq(end_send(&end, 1, IBV_WR_SEND, 0, 10, NULL), 0);
	ck_assert_int_eq(end_wait(&end).status, IBV_WC_RETRY_EXC_ERR);
	meet(other.fd);
	other_done(&other);
	end_close(&end);
	ck_assert_int_eq(unlink(other.path), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verbs-mock-processes");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, a_sleeper_is_woken_and_answers);
	tcase_add_test(tc, no_call_of_a_sleeper_is_lost);
	tcase_add_test(tc, who_sleeps_has_its_sends_carried_out);
	tcase_add_loop_test(tc, of_a_dead_process_nothing_is_left, 0, 2);
	tcase_add_test(tc, a_process_may_die_anywhere);
	tcase_add_test(tc, faults_of_a_process_are_its_own);
	tcase_add_test(tc, nodes_have_devices_of_their_own);
	return check_main("verbs-mock-processes", tc);
}
