/*
 * peer_mpi.c -- a rank of an MPI library that rubato-bench leads: see peer.h. Built once for each,
 * with ours or by tools/peers. Values, barriers, and what is timed are rubato-bench's.
 */
#include <errno.h>
#include <math.h>
#include <mpi.h>
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
#include "tools/bench/peer.h"
#include "tools/known/known.h"

struct peer_rank {
	int socket;
	uint32_t rank, rank_count;
	struct peer_command command;
	struct operation_call call; /* What it asks for. */
	MPI_Datatype mpi_type;
	MPI_Op mpi_op;
	void *in, *out;
	int *counts, *starts; /* Of the v-variants: operations.h. */
	size_t bytes;         /* Of in and of out. */
	struct known known;
};

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
	static const MPI_Datatype types[RUBATO_TYPE_COUNT + 1] = {
		[RUBATO_FLOAT32] = MPI_FLOAT,   [RUBATO_FLOAT64] = MPI_DOUBLE,
		[RUBATO_INT8] = MPI_INT8_T,     [RUBATO_INT16] = MPI_INT16_T,
		[RUBATO_INT32] = MPI_INT32_T,   [RUBATO_INT64] = MPI_INT64_T,
		[RUBATO_UINT8] = MPI_UINT8_T,   [RUBATO_UINT16] = MPI_UINT16_T,
		[RUBATO_UINT32] = MPI_UINT32_T, [RUBATO_UINT64] = MPI_UINT64_T,
	};
	static const MPI_Op reductions[RUBATO_OPERATOR_COUNT + 1] = { [RUBATO_SUM] = MPI_SUM,
								      [RUBATO_MAX] = MPI_MAX,
								      [RUBATO_MIN] = MPI_MIN,
								      [RUBATO_PROD] = MPI_PROD };
	const struct peer_command *c = &p->command;
	enum operation op = operation_find(c->op);
	uint32_t type = type_find(c->type), reduction = operator_find(c->reduction);

	if ((uint32_t)op == OPERATION_COUNT)
		return "this operation is not measured with MPI";
	if (c->count > INT32_MAX)
		return "MPI takes no such count";
	if (types[type] == 0)
		return "MPI has no such type";
	if (operation_reduces(op) && reductions[reduction] == 0)
		return "MPI has no such operator";
	p->call = (struct operation_call) { .op = op,
					    .count = c->count,
					    .type = (rubato_type)type,
					    .reduction = (rubato_operator)reduction,
					    .root = c->root };
	p->mpi_type = types[type];
	p->mpi_op = reductions[reduction];
	return NULL;
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

/* ---- One call ---- */

static void call_once(struct peer_rank *p)
{
	const struct peer_command *c = &p->command;
	bool place = c->in_place != 0, at_root = p->rank == c->root;
	int count = (int)c->count, root = (int)c->root;
	int right = (int)((p->rank + 1) % p->rank_count);
	int left = (int)((p->rank + p->rank_count - 1) % p->rank_count);
	const void *in = place ? MPI_IN_PLACE : p->in;
	MPI_Comm world = MPI_COMM_WORLD;

	switch (p->call.op) {
	case OP_ALLREDUCE:
		(void)MPI_Allreduce(in, p->out, count, p->mpi_type, p->mpi_op, world);
		break;
	case OP_REDUCE_SCATTER:
		(void)MPI_Reduce_scatter_block(in, p->out, count, p->mpi_type, p->mpi_op, world);
		break;
	case OP_ALLGATHER:
		(void)MPI_Allgather(in, count, p->mpi_type, p->out, count, p->mpi_type, world);
		break;
	case OP_BROADCAST:
		(void)MPI_Bcast(p->in, count, p->mpi_type, root, world);
		break;
	case OP_REDUCE:
		(void)MPI_Reduce(place && at_root ? MPI_IN_PLACE : p->call.in, p->out, count,
				 p->mpi_type, p->mpi_op, root, world);
		break;
	case OP_BARRIER:
		(void)MPI_Barrier(world);
		break;
	case OP_SENDRECV:
		(void)MPI_Sendrecv(p->in, count, p->mpi_type, right, 1, p->out, count, p->mpi_type,
				   left, 1, world, MPI_STATUS_IGNORE);
		break;
	case OP_ALLTOALL:
		(void)MPI_Alltoall(in, count, p->mpi_type, p->out, count, p->mpi_type, world);
		break;
	case OP_GATHER:
		(void)MPI_Gather(place && at_root ? MPI_IN_PLACE : p->call.in, count, p->mpi_type,
				 p->out, count, p->mpi_type, root, world);
		break;
	case OP_SCATTER:
		(void)MPI_Scatter(p->in, count, p->mpi_type,
				  place && at_root ? MPI_IN_PLACE : p->out, count, p->mpi_type,
				  root, world);
		break;
	case OP_ALLGATHERV:
		(void)MPI_Allgatherv(in, p->counts[p->rank], p->mpi_type, p->out, p->counts,
				     p->starts, p->mpi_type, world);
		break;
	case OP_REDUCE_SCATTERV:
		(void)MPI_Reduce_scatter(in, p->out, p->counts, p->mpi_type, p->mpi_op, world);
		break;
	case OP_ALLTOALLV:
		(void)MPI_Alltoallv(in, p->counts, p->starts, p->mpi_type, p->out, p->counts,
				    p->starts, p->mpi_type, world);
		break;
	}
}

static uint64_t wrong_results(struct peer_rank *p)
{
	if (p->call.op == OP_SCATTER && p->command.in_place && p->rank == p->call.root)
		return 0; /* MPI leaves the root's part where it is. */
	return known_wrong(&p->known, &p->call);
}

/* ---- Slices ---- */

static void sleep_until_us(double us)
{
	struct timespec t = { (time_t)(us * 1e-6), 0 };

	t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static uint64_t slice(struct peer_rank *p, double *times)
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
			(void)MPI_Barrier(MPI_COMM_WORLD);
		else
			sleep_until_us((double)(c->t0_ns + i * c->period_ns +
						skew_ns(&skew, p->rank, p->rank_count,
							c->first_iteration + i)) *
				       1e-3);
		double begin = now_us();

		call_once(p);
		times[i] = now_us() - begin;
		if (c->period_ns == 0)
			(void)MPI_Barrier(MPI_COMM_WORLD);
		wrong += wrong_results(p);
	}
	return wrong;
}

static bool answer(struct peer_rank *p)
{
	struct peer_answer answer = { .magic = PEER_MAGIC };
	const char *why = command_fit(p);
	double *times = malloc(p->command.iterations * sizeof(*times) + 1);
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
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;

	(void)MPI_Get_library_version(version, &length);
	version[strcspn(version, ",\n")] = '\0';
	for (char *at = version; *at != '\0'; at++)
		*at = *at == '\t' ? ' ' : *at;
	(void)snprintf(hello.library, sizeof(hello.library), "%.100s", version);
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

int main(int argc, char **argv)
{
	static struct peer_rank p; /* Large. */
	int rank, size;

	if (argc != 3 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return EXIT_FAILURE;
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &size);
	p.rank = (uint32_t)rank;
	p.rank_count = (uint32_t)size;
	p.known.rank = p.rank;
	p.known.rank_count = p.rank_count;
	p.known.from = (p.rank + p.rank_count - 1) % p.rank_count;
	p.counts = calloc(p.rank_count, sizeof(*p.counts));
	p.starts = calloc(p.rank_count, sizeof(*p.starts));
	if (p.counts == NULL || p.starts == NULL || !bind_core(argv[2], p.rank) ||
	    !hello(&p, argv[1]))
		(void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
	while (whole(p.socket, &p.command, sizeof(p.command), false) && !p.command.end)
		if (p.command.magic != PEER_MAGIC || !answer(&p))
			(void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
	(void)close(p.socket);
	free(p.in);
	free(p.out);
	free(p.counts);
	free(p.starts);
	(void)MPI_Finalize();
	return EXIT_SUCCESS;
}
