/*
 * hot_paths.c -- a rank that makes one small call again and again, for test_hot_paths.py to count
 * what it costs: hot_paths CALL TIMES.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rubato.h"

struct calls {
	rubato_comm *comm;
	double in, out[2];
	rubato_op *op;
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

static rubato_status persistent(struct calls *c)
{
	rubato_status err = rubato_start(c->op);

	return err == RUBATO_OK ? rubato_wait(c->op, RUBATO_TIMEOUT_DEFAULT) : err;
}

static rubato_status sendrecv(struct calls *c)
{
	uint32_t peer = 1 - rubato_rank(c->comm);
	rubato_status err = rubato_send(c->comm, &c->in, 1, RUBATO_FLOAT64, peer, 0);

	return err == RUBATO_OK ? rubato_recv(c->comm, c->out, 1, RUBATO_FLOAT64, peer, 0) : err;
}

static const struct {
	const char *name;
	rubato_status (*call)(struct calls *c);
} all[] = {
	{ "allreduce", allreduce }, { "barrier", barrier },       { "broadcast", broadcast },
	{ "allgather", allgather }, { "persistent", persistent }, { "sendrecv", sendrecv },
};

int main(int argc, char **argv)
{
	struct calls c = { .in = 1 };
	rubato_status err = RUBATO_OK;
	size_t k = 0;

	while (argc == 3 && k < sizeof(all) / sizeof(all[0]) && strcmp(argv[1], all[k].name) != 0)
		k++;
	if (argc != 3 || k == sizeof(all) / sizeof(all[0]))
		return fprintf(stderr, "hot_paths: CALL TIMES\n"), 2;
	if (rubato_init(&c.comm, NULL) != RUBATO_OK ||
	    rubato_op_allreduce(c.comm, &c.in, c.out, 1, RUBATO_FLOAT64, RUBATO_SUM, &c.op) !=
		    RUBATO_OK)
		return fprintf(stderr, "%s\n", rubato_error_text()), 1;
	for (long i = strtol(argv[2], NULL, 10); i > 0 && err == RUBATO_OK; i--)
		err = all[k].call(&c);
	if (err != RUBATO_OK)
		return fprintf(stderr, "%s\n", rubato_error_text()), 1;
	rubato_op_free(c.op);
	return rubato_finalize(c.comm) == RUBATO_OK ? 0 : 1;
}
