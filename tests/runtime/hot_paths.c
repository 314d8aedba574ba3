/*
 * hot_paths.c -- a rank that makes one small call again and again, for test_hot_paths.py to count
 * what it costs: hot_paths CALL TIMES [FIFO]; the first FEW, and all that makes and ends the
 * communicator, are apart (counting() is entered there). With a FIFO, rank 0 begins each call after
 * rank 1, so that it finds there what it waits for, also where both have one core. At its end it
 * says how often it was switched away from meanwhile, since it slept and since it did not (yields
 * are of these).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rubato.h"

#define FEW 10

/* A tool dumps what it has counted whenever this is entered. */
static __attribute__((noinline)) void counting(void)
{
	__asm__ volatile("" ::: "memory");
}

struct calls {
	rubato_comm *comm;
	double *blocks; /* Two to send, and two that come. */
	double in, out[2];
	rubato_op *op, *send, *recv;
	rubato_partial *rounds;
	uint64_t step;
	uint32_t root;
};

static rubato_status allreduce(struct calls *c)
{
	return rubato_allreduce(c->comm, &c->in, c->out, 1, RUBATO_FLOAT64, RUBATO_SUM);
}

static rubato_status barrier(struct calls *c)
{
	return rubato_barrier(c->comm);
}

/* From each rank in turn: one that is always the root runs ahead until the other's ring is full,
 * and then counts what it does to try again. */
static rubato_status broadcast(struct calls *c)
{
	c->root = 1 - c->root;
	return rubato_broadcast(c->comm, c->out, 1, RUBATO_FLOAT64, c->root);
}

static rubato_status allgather(struct calls *c)
{
	return rubato_allgather(c->comm, &c->in, c->out, 1, RUBATO_FLOAT64);
}

static rubato_status alltoallv(struct calls *c)
{
	static const uint64_t counts[] = { 1, 1 };

	return rubato_alltoallv(c->comm, c->blocks, counts, NULL, c->blocks + 2, counts, NULL,
				RUBATO_FLOAT64);
}

static rubato_status persistent(struct calls *c)
{
	rubato_status err = rubato_start(c->op);

	return err == RUBATO_OK ? rubato_wait(c->op, RUBATO_TIMEOUT_DEFAULT) : err;
}

static rubato_status sendrecv(struct calls *c)
{
	uint32_t peer = rubato_rank(c->comm) ^ 1;

	return rubato_sendrecv(c->comm, &c->in, 1, peer, 0, c->out, 1, peer, 0, RUBATO_FLOAT64);
}

static rubato_status send_and_recv(struct calls *c)
{
	uint32_t peer = rubato_rank(c->comm) ^ 1;
	rubato_status err = rubato_send(c->comm, &c->in, 1, RUBATO_FLOAT64, peer, 0);

	return err == RUBATO_OK ? rubato_recv(c->comm, c->out, 1, RUBATO_FLOAT64, peer, 0) : err;
}

/* As these, by persistent operations: the receive first, as who exchanges long ones has to. */
static rubato_status exchange(struct calls *c)
{
	rubato_status err = rubato_start(c->recv);

	err = err == RUBATO_OK ? rubato_start(c->send) : err;
	err = err == RUBATO_OK ? rubato_wait(c->recv, RUBATO_TIMEOUT_DEFAULT) : err;
	return err == RUBATO_OK ? rubato_wait(c->send, RUBATO_TIMEOUT_DEFAULT) : err;
}

/* A round of all ranks: what is committed is collected, and then there is no more. */
static rubato_status partial(struct calls *c)
{
	void *lease;
	const void *result = NULL;
	rubato_status err = rubato_partial_acquire(c->rounds, &lease);

	if (err == RUBATO_OK)
		err = rubato_partial_commit(c->rounds, c->step++, 1);
	if (err == RUBATO_OK)
		err = rubato_partial_collect_view(c->rounds, &result, NULL, RUBATO_TIMEOUT_DEFAULT);
	if (err == RUBATO_OK)
		err = rubato_partial_release(c->rounds);
	if (err == RUBATO_OK)
		err = rubato_partial_collect_view(c->rounds, &result, NULL, RUBATO_TIMEOUT_DEFAULT);
	return err == RUBATO_OK && result != NULL ? RUBATO_ERR_INTERNAL : err;
}

static const struct {
	const char *name;
	rubato_status (*call)(struct calls *c);
} all[] = {
	{ "allreduce", allreduce }, { "barrier", barrier },
	{ "broadcast", broadcast }, { "allgather", allgather },
	{ "alltoallv", alltoallv }, { "persistent", persistent },
	{ "sendrecv", sendrecv },   { "exchange", exchange },
	{ "partial", partial },     { "send and recv", send_and_recv },
};

/* False: the other has gone. Who slept here would be woken before the other has sent. */
static __attribute__((noinline)) bool follow(int fifo, uint32_t rank)
{
	char word = 0;
	ssize_t got;

	if (rank != 0)
		return write(fifo, &word, 1) == 1;
	while ((got = read(fifo, &word, 1)) < 0 && errno == EAGAIN)
		(void)sched_yield();
	for (volatile int i = 0; i < 1000; i++) /* It is about to send. */
		continue;
	return got == 1;
}

/* Only where it is called: messages of its rounds may come at any time, and are polled for. */
static rubato_status rounds_make(struct calls *c)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;

	options.policy = RUBATO_POLICY_QUORUM;
	options.quorum = rubato_size(c->comm);
	return rubato_partial_create(c->comm, 1, RUBATO_FLOAT32, RUBATO_SUM, &options, &c->rounds);
}

int main(int argc, char **argv)
{
	struct calls c = { .in = 1 };
	struct rusage before, after;
	rubato_status err = RUBATO_OK;
	size_t k = 0;
	uint32_t rank;
	int fifo = -1;
	long times;

	while ((argc == 3 || argc == 4) && k < sizeof(all) / sizeof(all[0]) &&
	       strcmp(argv[1], all[k].name) != 0)
		k++;
	if (argc < 3 || argc > 4 || k == sizeof(all) / sizeof(all[0]))
		return fprintf(stderr, "hot_paths: CALL TIMES [FIFO]\n"), 2;
	if (rubato_init(&c.comm, NULL) != RUBATO_OK)
		return fprintf(stderr, "%s\n", rubato_error_text()), 1;
	rank = rubato_rank(c.comm);
	/* Open at both ends before the first call. */
	if (argc == 4)
		fifo = open(argv[3], rank == 0 ? O_RDONLY : O_WRONLY);
	if (argc == 4 && (fifo < 0 || fcntl(fifo, F_SETFL, O_NONBLOCK) != 0))
		return perror(argv[3]), 1;
	if (all[k].call == partial)
		err = rounds_make(&c);
	if (err != RUBATO_OK ||
	    rubato_alloc(c.comm, 4 * sizeof(*c.blocks), (void **)&c.blocks) != RUBATO_OK ||
	    rubato_op_allreduce(c.comm, &c.in, c.out, 1, RUBATO_FLOAT64, RUBATO_SUM, &c.op) !=
		    RUBATO_OK ||
	    rubato_op_send(c.comm, &c.in, 1, RUBATO_FLOAT64, rubato_rank(c.comm) ^ 1, 1, &c.send) !=
		    RUBATO_OK ||
	    rubato_op_recv(c.comm, c.out, 1, RUBATO_FLOAT64, rubato_rank(c.comm) ^ 1, 1, &c.recv) !=
		    RUBATO_OK)
		return fprintf(stderr, "%s\n", rubato_error_text()), 1;
	(void)getrusage(RUSAGE_SELF, &before);
	times = strtol(argv[2], NULL, 10);
	for (long i = 0; i < times && err == RUBATO_OK; i++) {
		if (i == FEW)
			counting();
		if (fifo >= 0 && !follow(fifo, rank))
			return perror("hot_paths: the other rank"), 1;
		err = all[k].call(&c);
	}
	counting();
	if (err != RUBATO_OK)
		return fprintf(stderr, "%s\n", rubato_error_text()), 1;
	(void)getrusage(RUSAGE_SELF, &after);
	printf("slept %ld not %ld\n", after.ru_nvcsw - before.ru_nvcsw,
	       after.ru_nivcsw - before.ru_nivcsw);
	rubato_op_free(c.op);
	rubato_op_free(c.send);
	rubato_op_free(c.recv);
	if (c.rounds != NULL)
		err = rubato_partial_free(c.rounds);
	return err == RUBATO_OK && rubato_finalize(c.comm) == RUBATO_OK ? 0 : 1;
}
