/*
 * peer_mpi.c -- a rank of Open MPI or MPICH that rubato-bench leads: see peer.h. Built once with
 * each one's compiler. Values, barriers, and what is timed are as in bench.h.
 */
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "programs/clock.h"
#include "programs/operations.h"
#include "programs/skew.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"

enum peer_op {
	PEER_ALLREDUCE,
	PEER_REDUCE_SCATTER,
	PEER_ALLGATHER,
	PEER_BROADCAST,
	PEER_REDUCE,
	PEER_BARRIER,
	PEER_SENDRECV,
	PEER_ALLTOALL,
	PEER_GATHER,
	PEER_SCATTER,
	PEER_ALLGATHERV,
	PEER_REDUCE_SCATTERV,
	PEER_ALLTOALLV,
	PEER_OPS,
};
static const char *const op_names[PEER_OPS] = { "allreduce", "reduce_scatter", "allgather",
						"broadcast", "reduce",         "barrier",
						"sendrecv",  "alltoall",       "gather",
						"scatter",   "allgatherv",     "reduce_scatterv",
						"alltoallv" };

struct peer_rank {
	int socket;
	uint32_t rank, rank_count;
	struct peer_command command;
	enum peer_op op;
	rubato_type type;
	rubato_operator reduction;
	MPI_Datatype mpi_type;
	MPI_Op mpi_op;
	void *in, *out;
	int *counts, *starts; /* Of the v-variants: operations.h. */
	size_t bytes;         /* Of in and of out. */
	struct pattern mine, expected, scratch;
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

static bool type_find(struct peer_rank *p)
{
	static const struct {
		const char *name;
		MPI_Datatype type;
	} types[] = {
		{ "float32", MPI_FLOAT },   { "float64", MPI_DOUBLE },  { "int8", MPI_INT8_T },
		{ "int16", MPI_INT16_T },   { "int32", MPI_INT32_T },   { "int64", MPI_INT64_T },
		{ "uint8", MPI_UINT8_T },   { "uint16", MPI_UINT16_T }, { "uint32", MPI_UINT32_T },
		{ "uint64", MPI_UINT64_T },
	};

	for (uint32_t i = 0; i < RUBATO_TYPE_COUNT; i++) {
		const char *name = rubato_type_name((rubato_type)i);

		if (strcmp(name, p->command.type) != 0)
			continue;
		p->type = (rubato_type)i;
		for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
			if (strcmp(types[k].name, name) == 0) {
				p->mpi_type = types[k].type;
				return true;
			}
	}
	return false;
}

static bool reduction_find(struct peer_rank *p)
{
	static const struct {
		const char *name;
		MPI_Op op;
	} ops[] = {
		{ "sum", MPI_SUM }, { "max", MPI_MAX }, { "min", MPI_MIN }, { "prod", MPI_PROD }
	};

	if (strcmp(p->command.reduction, "none") == 0)
		return true;
	for (uint32_t i = 0; i < RUBATO_OPERATOR_COUNT; i++) {
		const char *name = rubato_operator_name((rubato_operator)i);

		if (strcmp(name, p->command.reduction) != 0)
			continue;
		p->reduction = (rubato_operator)i;
		for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
			if (strcmp(ops[k].name, name) == 0) {
				p->mpi_op = ops[k].op;
				return true;
			}
	}
	return false;
}

static const char *command_fit(struct peer_rank *p)
{
	int op = 0;

	while (op < PEER_OPS && strcmp(op_names[op], p->command.op) != 0)
		op++;
	p->op = (enum peer_op)op;
	if (op == PEER_OPS)
		return "this operation is not measured with MPI";
	if (p->command.count > INT32_MAX)
		return "MPI takes no such count";
	if (!type_find(p))
		return "MPI has no such type";
	return reduction_find(p) ? NULL : "MPI has no such operator";
}

static bool scattered(const struct peer_rank *p)
{
	return p->op == PEER_REDUCE_SCATTER || p->op == PEER_ALLTOALL || p->op == PEER_SCATTER;
}

static uint64_t in_count(const struct peer_rank *p)
{
	if (p->op == PEER_ALLGATHERV)
		return uneven_count(p->command.count, 0, p->rank);
	if (p->op == PEER_REDUCE_SCATTERV || p->op == PEER_ALLTOALLV)
		return uneven_start(p->command.count, p->op == PEER_ALLTOALLV ? p->rank : 0,
				    p->rank_count);
	return p->command.count * (scattered(p) ? p->rank_count : 1);
}

/* MPI's in-place forms have the data in one buffer: the larger one's place of ours. */
static char *in_at(const struct peer_rank *p)
{
	size_t part = p->command.count * rubato_type_bytes(p->type);

	if (!p->command.in_place)
		return p->in;
	if (p->op == PEER_ALLGATHERV)
		return (char *)p->out +
		       uneven_start(p->command.count, 0, p->rank) * rubato_type_bytes(p->type);
	return p->op == PEER_ALLGATHER || p->op == PEER_GATHER ? (char *)p->out + p->rank * part
							       : p->out;
}

static bool memory_fit(struct peer_rank *p)
{
	/* Uneven blocks are up to twice as long. */
	size_t bytes = 2 * p->command.count * rubato_type_bytes(p->type) * p->rank_count + 64;

	for (uint32_t i = 0; i < p->rank_count; i++) {
		uint32_t a = p->op == PEER_ALLTOALLV ? p->rank : 0;

		p->counts[i] = (int)uneven_count(p->command.count, a, i);
		p->starts[i] = (int)uneven_start(p->command.count, a, i);
	}

	if (bytes <= p->bytes)
		return true;
	free(p->in);
	free(p->out);
	p->in = malloc(bytes);
	p->out = malloc(bytes);
	p->bytes = p->in != NULL && p->out != NULL ? bytes : 0;
	if (p->bytes > 0) {
		memset(p->in, 0, bytes);
		memset(p->out, 0, bytes);
	}
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
	MPI_Comm world = MPI_COMM_WORLD;

	switch (p->op) {
	case PEER_ALLREDUCE:
		(void)MPI_Allreduce(place ? MPI_IN_PLACE : p->in, p->out, count, p->mpi_type,
				    p->mpi_op, world);
		break;
	case PEER_REDUCE_SCATTER:
		(void)MPI_Reduce_scatter_block(place ? MPI_IN_PLACE : p->in, p->out, count,
					       p->mpi_type, p->mpi_op, world);
		break;
	case PEER_ALLGATHER:
		(void)MPI_Allgather(place ? MPI_IN_PLACE : p->in, count, p->mpi_type, p->out, count,
				    p->mpi_type, world);
		break;
	case PEER_BROADCAST:
		(void)MPI_Bcast(p->in, count, p->mpi_type, root, world);
		break;
	case PEER_REDUCE:
		(void)MPI_Reduce(place && at_root ? MPI_IN_PLACE : (place ? p->out : p->in), p->out,
				 count, p->mpi_type, p->mpi_op, root, world);
		break;
	case PEER_BARRIER:
		(void)MPI_Barrier(world);
		break;
	case PEER_SENDRECV:
		(void)MPI_Sendrecv(p->in, count, p->mpi_type, right, 1, p->out, count, p->mpi_type,
				   left, 1, world, MPI_STATUS_IGNORE);
		break;
	case PEER_ALLTOALL:
		(void)MPI_Alltoall(place ? MPI_IN_PLACE : p->in, count, p->mpi_type, p->out, count,
				   p->mpi_type, world);
		break;
	case PEER_GATHER:
		(void)MPI_Gather(place && at_root ? MPI_IN_PLACE : in_at(p), count, p->mpi_type,
				 p->out, count, p->mpi_type, root, world);
		break;
	case PEER_SCATTER:
		(void)MPI_Scatter(p->in, count, p->mpi_type,
				  place && at_root ? MPI_IN_PLACE : p->out, count, p->mpi_type,
				  root, world);
		break;
	case PEER_ALLGATHERV:
		(void)MPI_Allgatherv(place ? MPI_IN_PLACE : p->in, p->counts[p->rank], p->mpi_type,
				     p->out, p->counts, p->starts, p->mpi_type, world);
		break;
	case PEER_REDUCE_SCATTERV:
		(void)MPI_Reduce_scatter(place ? MPI_IN_PLACE : p->in, p->out, p->counts,
					 p->mpi_type, p->mpi_op, world);
		break;
	case PEER_ALLTOALLV:
		(void)MPI_Alltoallv(place ? MPI_IN_PLACE : p->in, p->counts, p->starts, p->mpi_type,
				    p->out, p->counts, p->starts, p->mpi_type, world);
		break;
	case PEER_OPS:
		break;
	}
}

/* A block from each rank, one after the other. */
static uint64_t wrong_blocks(struct peer_rank *p, uint64_t call)
{
	uint64_t share = p->command.count, wrong = 0;
	const char *at = p->out;

	for (uint32_t r = 0; r < p->rank_count; r++) {
		uint64_t count = share, first = 0;

		if (p->op == PEER_ALLTOALL) {
			first = p->rank * share;
		} else if (p->op == PEER_ALLGATHERV) {
			count = uneven_count(share, 0, r);
		} else if (p->op == PEER_ALLTOALLV) {
			first = uneven_start(share, r, p->rank);
			count = uneven_count(share, r, p->rank);
		}
		pattern_of_rank(&p->expected, p->type, p->reduction, first + count, r,
				p->rank_count, call);
		wrong += pattern_wrong(&p->expected, first, count, at);
		at += count * rubato_type_bytes(p->type);
	}
	return wrong;
}

static uint64_t wrong_results(struct peer_rank *p, uint64_t call)
{
	uint32_t from = p->command.root;
	uint64_t first = 0, count = p->command.count;

	switch (p->op) {
	case PEER_BARRIER:
	case PEER_OPS:
		return 0;
	case PEER_ALLGATHER:
	case PEER_ALLTOALL:
	case PEER_ALLGATHERV:
	case PEER_ALLTOALLV:
		return wrong_blocks(p, call);
	case PEER_GATHER:
		return p->rank == from ? wrong_blocks(p, call) : 0;
	case PEER_SENDRECV:
		from = (p->rank + p->rank_count - 1) % p->rank_count;
		/* fall through */
	case PEER_BROADCAST:
	case PEER_SCATTER:
		pattern_of_rank(&p->expected, p->type, p->reduction, in_count(p), from,
				p->rank_count, call);
		if (p->op == PEER_SCATTER && p->command.in_place && p->rank == from)
			return 0; /* MPI leaves the root's part where it is. */
		return pattern_wrong(&p->expected,
				     p->op == PEER_SCATTER ? p->rank * p->command.count : 0,
				     p->command.count, p->op == PEER_BROADCAST ? p->in : p->out);
	case PEER_REDUCE:
		if (p->rank != from)
			return 0;
		break;
	case PEER_REDUCE_SCATTER:
		first = p->rank * count;
		break;
	case PEER_REDUCE_SCATTERV:
		first = uneven_start(p->command.count, 0, p->rank);
		count = uneven_count(p->command.count, 0, p->rank);
		break;
	case PEER_ALLREDUCE:
		break;
	}
	pattern_of_all(&p->expected, &p->scratch, p->type, p->reduction, in_count(p), p->rank_count,
		       call);
	return pattern_wrong(&p->expected, first, count, p->out);
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
	bool scattering = p->op == PEER_SCATTER || p->op == PEER_BROADCAST;
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < c->iterations; i++) {
		uint64_t call = c->call + i, filled = in_count(p);
		char *in = scattering ? p->in : in_at(p);

		pattern_of_rank(&p->mine, p->type, p->reduction, filled, p->rank, p->rank_count,
				call);
		pattern_fill(&p->mine, 0, filled, in);
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
		wrong += wrong_results(p, call);
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

int main(int argc, char **argv)
{
	static struct peer_rank p; /* Large. */
	int rank, size;

	if (argc != 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return EXIT_FAILURE;
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &size);
	p.rank = (uint32_t)rank;
	p.rank_count = (uint32_t)size;
	p.counts = calloc(p.rank_count, sizeof(*p.counts));
	p.starts = calloc(p.rank_count, sizeof(*p.starts));
	if (p.counts == NULL || p.starts == NULL || !hello(&p, argv[1]))
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
