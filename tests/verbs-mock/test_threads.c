/*
 * test_threads.c -- ranks as threads of one process: each with a context, two queue pairs and one
 * completion queue of its own, in a ring, under seeds; they poll, or sleep until they are woken.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check_main.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"

#define RANKS 4u
#define MESSAGES 60u
#define HALF (END_BYTES / 2)

struct ring {
	uint64_t seed;
	pthread_barrier_t barrier;
	struct address left[RANKS], right[RANKS]; /* Of the queue pairs towards these neighbours. */
};

struct rank {
	struct ring *ring;
	uint32_t rank;
	struct end left, right; /* LEFT has the device and the queue of both. */
	uint32_t sent, received, acknowledged, sleeps;
};

static uint32_t chance(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33);
}

static uint32_t length_of(const struct rank *rank, uint32_t message, uint32_t of)
{
	uint64_t state = rank->ring->seed * 1000003 + of * 1009 + message;

	(void)chance(&state);
	return chance(&state) % 4 == 0 ? chance(&state) % (HALF / 8) : chance(&state) % 200;
}

static unsigned char byte_of(uint32_t message, uint32_t of, uint32_t at)
{
	return (unsigned char)(message * 31 + of * 7 + at);
}

static void rank_open(struct rank *rank)
{
	struct ring *ring = rank->ring;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
	uint32_t before = (rank->rank + RANKS - 1) % RANKS, after = (rank->rank + 1) % RANKS;

	end_open(&rank->left, (struct end_options) { .device = rank->rank % 2 });
	rank->right = rank->left;
	init.send_cq = init.recv_cq = rank->left.cq;
	rank->right.qp = ibv_create_qp(rank->left.pd, &init);
	ck_assert_ptr_nonnull(rank->right.qp);
	ring->left[rank->rank] = end_address(&rank->left);
	ring->right[rank->rank] = end_address(&rank->right);
	pthread_barrier_wait(&ring->barrier);
	end_connect(&rank->left, &ring->right[before]);
	end_connect(&rank->right, &ring->left[after]);
	for (uint32_t i = 0; i < 4; i++) {
		end_receive(&rank->left, 0, 0, 0);
		end_receive(&rank->right, 0, 0, 0);
	}
	pthread_barrier_wait(&ring->barrier);
}

/* To the right neighbour's upper half, when the last one has been acknowledged. */
static void send_next(struct rank *rank)
{
	const struct address *to = &rank->ring->left[(rank->rank + 1) % RANKS];
	uint32_t bytes = length_of(rank, rank->sent, rank->rank);
	struct ibv_sge sge = { (uintptr_t)rank->left.memory, bytes, rank->left.mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };

	if (rank->sent == MESSAGES || rank->sent != rank->acknowledged)
		return;
	for (uint32_t i = 0; i < bytes; i++)
		rank->left.memory[i] = byte_of(rank->sent, rank->rank, i);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.imm_data = htonl(rank->sent);
	wr.wr.rdma.remote_addr = to->memory + HALF;
	wr.wr.rdma.rkey = to->rkey;
	rank->sent++;
	ck_assert_int_eq(ibv_post_send(rank->right.qp, &wr, &bad), 0);
}

static void take(struct rank *rank, const struct ibv_wc *wc)
{
	uint32_t from = (rank->rank + RANKS - 1) % RANKS, wrong = 0;

	ck_assert_msg(wc->status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc->status));
	if (wc->opcode == IBV_WC_RECV) { /* The right neighbour has it. */
		rank->acknowledged++;
		end_receive(&rank->right, 0, 0, 0);
		return;
	}
	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		return;
	ck_assert_uint_eq(ntohl(wc->imm_data), rank->received);
	ck_assert_uint_eq(wc->byte_len, length_of(rank, rank->received, from));
	for (uint32_t i = 0; i < wc->byte_len; i++)
		wrong += rank->left.memory[HALF + i] != byte_of(rank->received, from, i);
	ck_assert_uint_eq(wrong, 0);
	rank->received++;
	end_receive(&rank->left, 0, 0, 0);
	ck_assert_int_eq(end_send(&rank->left, 2, IBV_WR_SEND, 0, 0, NULL), 0);
}

/* Arms the queue, looks once more, sleeps. */
static int sleep_then_poll(struct rank *rank, struct ibv_wc *wc)
{
	struct pollfd readable = { .fd = rank->left.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int got;

	ck_assert_int_eq(ibv_req_notify_cq(rank->left.cq, 0), 0);
	got = ibv_poll_cq(rank->left.cq, 4, wc);
	if (got > 0)
		return got;
	ck_assert_int_eq(poll(&readable, 1, 30000), 1);
	ck_assert_int_eq(ibv_get_cq_event(rank->left.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	rank->sleeps++;
	return ibv_poll_cq(rank->left.cq, 4, wc);
}

static void *rank_main(void *argument)
{
	struct rank *rank = argument;
	uint32_t idle = 0;

	rank_open(rank);
	while (rank->received < MESSAGES || rank->acknowledged < MESSAGES) {
		struct ibv_wc wc[4];
		int got;

		send_next(rank);
		got = idle < 50 ? ibv_poll_cq(rank->left.cq, 4, wc) : sleep_then_poll(rank, wc);
		ck_assert_int_ge(got, 0);
		idle = got > 0 ? 0 : idle + 1;
		for (int i = 0; i < got; i++)
			take(rank, &wc[i]);
	}
	pthread_barrier_wait(&rank->ring->barrier);
	ck_assert_int_eq(ibv_destroy_qp(rank->right.qp), 0);
	end_close(&rank->left);
	return NULL;
}

START_TEST(a_ring_of_threads_keeps_its_bytes)
{
	struct seeds seeds = seeds_from(__func__, 0, 12);
	uint32_t sleeps = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct ring ring = { .seed = seed };
		struct rank ranks[RANKS] = { { 0 } };
		struct mock_counters counters;
		struct mock_config config;
		pthread_t threads[RANKS];

		mock_config_default(&config);
		config.seed = seed;
		ck_assert_int_eq(mock_reset(&config), 0);
		ck_assert_int_eq(pthread_barrier_init(&ring.barrier, NULL, RANKS), 0);
		for (uint32_t i = 0; i < RANKS; i++) {
			ranks[i].ring = &ring;
			ranks[i].rank = i;
			ck_assert_int_eq(pthread_create(&threads[i], NULL, rank_main, &ranks[i]),
					 0);
		}
		for (uint32_t i = 0; i < RANKS; i++) {
			ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
			sleeps += ranks[i].sleeps;
		}
		ck_assert_int_eq(pthread_barrier_destroy(&ring.barrier), 0);
		mock_counters(&counters);
		ck_assert_uint_eq(counters.rnr + counters.outside_local + counters.outside_remote,
				  0);
		ck_assert_uint_eq(counters.left_open, 0);
	}
	ck_assert_uint_gt(sleeps, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("verbs-mock-threads");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, a_ring_of_threads_keeps_its_bytes);
	return check_main("verbs-mock-threads", tc);
}
