/* peer_rank.c -- see peer_rank.h. */
#include "tools/bench/peer_rank.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "programs/clock.h"
#include "programs/skew.h"

static double now_us(void)
{
	return (double)clock_ns() * 1e-3;
}

static bool whole(int fd, void *bytes, size_t count, bool out)
{
	for (size_t done = 0; done < count;) {
		ssize_t length = out ? send(fd, (char *)bytes + done, count - done, MSG_NOSIGNAL)
				     : read(fd, (char *)bytes + done, count - done);

		if (length > 0)
			done += (size_t)length;
		else if (length == 0 || errno != EINTR)
			return false;
	}
	return true;
}

/* ---- What the command means ---- */

/* By name; where it is none of them, their count. */
static enum operation operation_find(const char *name)
{
	uint32_t i = 0;

	while (operation_names[i] != NULL && strcmp(operation_names[i], name) != 0)
		i++;
	return (enum operation)i;
}

static uint32_t type_find(const char *name)
{
	uint32_t i = 0;

	while (i < RUBATO_TYPE_COUNT && strcmp(rubato_type_name((rubato_type)i), name) != 0)
		i++;
	return i;
}

static uint32_t operator_find(const char *name)
{
	uint32_t i = 0;

	while (i < RUBATO_OPERATOR_COUNT &&
	       strcmp(rubato_operator_name((rubato_operator)i), name) != 0)
		i++;
	return i;
}

static const char *command_fit(struct peer_rank *p)
{
	const struct peer_command *c = &p->command;
	enum operation op = operation_find(c->op);

	if ((uint32_t)op == OPERATION_COUNT)
		return "this operation is not measured here";
	p->call =
		(struct operation_call) { .op = op,
					  .count = c->count,
					  .type = (rubato_type)type_find(c->type),
					  .reduction = (rubato_operator)operator_find(c->reduction),
					  .root = c->root };
	if (c->in_place && !p->library->in_place)
		return "it has no in-place forms";
	return p->library->fit(p);
}

/* MPI's in-place forms have the data in one buffer: the larger one's place of ours. */
static char *in_at(const struct peer_rank *p)
{
	enum operation op = p->call.op;
	char *out = p->out;

	if (!p->command.in_place || op == OP_SCATTER || op == OP_BROADCAST)
		return p->in;
	return op == OP_ALLGATHER || op == OP_ALLGATHERV || op == OP_GATHER
		       ? out + operation_start(op, p->call.count, p->rank) *
					 rubato_type_bytes(p->call.type)
		       : out;
}

static bool memory_fit(struct peer_rank *p)
{
	/* Uneven blocks are up to twice as long. */
	size_t bytes = 2 * p->command.count * rubato_type_bytes(p->call.type) * p->rank_count + 64;

	for (uint32_t i = 0; i < p->rank_count; i++) {
		uint32_t a = p->call.op == OP_ALLTOALLV ? p->rank : 0;

		p->counts[i] = (int)uneven_count(p->command.count, a, i);
		p->starts[i] = (int)uneven_start(p->command.count, a, i);
	}

	if (bytes > p->bytes) {
		free(p->in);
		free(p->out);
		p->in = malloc(bytes);
		p->out = malloc(bytes);
		p->bytes = p->in != NULL && p->out != NULL ? bytes : 0;
		if (p->bytes > 0) {
			memset(p->in, 0, bytes);
			memset(p->out, 0, bytes);
		}
	}
	p->call.in = in_at(p);
	p->call.out = p->call.op == OP_BROADCAST ? p->in : p->out;
	return p->bytes > 0;
}

/* ---- Slices ---- */

static uint64_t wrong_results(struct peer_rank *p)
{
	if (p->call.op == OP_SCATTER && p->command.in_place && p->rank == p->call.root)
		return 0; /* MPI leaves the root's part where it is. */
	return known_wrong(&p->known, &p->call);
}

static void sleep_until_us(double us)
{
	struct timespec t = { (time_t)(us * 1e-6), 0 };

	t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static uint64_t slice(struct peer_rank *p, struct peer_time *times)
{
	const struct peer_command *c = &p->command;
	const struct skew skew = { .kind = (enum skew_kind)c->skew_kind,
				   .time_ns = c->skew_ns,
				   .seed = c->skew_seed,
				   .rank = c->skew_rank };
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < c->iterations; i++) {
		p->known.number = c->call + i;
		known_write(&p->known, &p->call);
		if (c->period_ns == 0)
			p->library->barrier(p);
		else
			sleep_until_us((double)(c->t0_ns + i * c->period_ns +
						skew_ns(&skew, p->rank, p->rank_count,
							c->first_iteration + i)) *
				       1e-3);
		times[i].begin_us = now_us();
		p->library->call(p);
		times[i].end_us = now_us();
		if (c->period_ns == 0)
			p->library->barrier(p);
		wrong += wrong_results(p);
	}
	return wrong;
}

static bool answer(struct peer_rank *p)
{
	struct peer_answer answer = { .magic = PEER_MAGIC };
	const char *why = command_fit(p);
	struct peer_time *times = malloc(p->command.iterations * sizeof(*times) + 1);
	bool good;

	if (why == NULL && (times == NULL || !memory_fit(p)))
		why = "out of memory";
	if (why != NULL) {
		answer.unsupported = 1;
		(void)snprintf(answer.text, sizeof(answer.text), "%s", why);
		good = whole(p->socket, &answer, sizeof(answer), true);
	} else {
		answer.wrong = slice(p, times);
		good = whole(p->socket, &answer, sizeof(answer), true) &&
		       whole(p->socket, times, p->command.iterations * sizeof(*times), true);
	}
	free(times);
	return good;
}

static bool hello(struct peer_rank *p, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct peer_hello hello = { .magic = PEER_MAGIC,
				    .rank = p->rank,
				    .rank_count = p->rank_count };

	(void)snprintf(hello.library, sizeof(hello.library), "%s", p->library->name);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	p->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return p->socket >= 0 &&
	       connect(p->socket, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	       whole(p->socket, &hello, sizeof(hello), true);
}

/* To the rank-th of "0,2,...". */
static bool bind_core(const char *cpus, uint32_t rank)
{
	cpu_set_t set;

	if (strcmp(cpus, "-") == 0)
		return true;
	for (; rank > 0 && cpus != NULL; rank--) {
		cpus = strchr(cpus, ',');
		cpus = cpus != NULL ? cpus + 1 : NULL;
	}
	CPU_ZERO(&set);
	if (cpus != NULL)
		CPU_SET(strtoul(cpus, NULL, 10), &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

bool peer_rank_run(struct peer_rank *p, const char *socket_path, const char *cpus)
{
	bool good;

	p->known.rank = p->rank;
	p->known.rank_count = p->rank_count;
	p->known.from = (p->rank + p->rank_count - 1) % p->rank_count;
	p->counts = calloc(p->rank_count, sizeof(*p->counts));
	p->starts = calloc(p->rank_count, sizeof(*p->starts));
	good = p->counts != NULL && p->starts != NULL && bind_core(cpus, p->rank) &&
	       hello(p, socket_path);
	while (good && whole(p->socket, &p->command, sizeof(p->command), false) && !p->command.end)
		good = p->command.magic == PEER_MAGIC && answer(p);
	if (p->socket >= 0)
		(void)close(p->socket);
	free(p->in);
	free(p->out);
	free(p->counts);
	free(p->starts);
	return good;
}
