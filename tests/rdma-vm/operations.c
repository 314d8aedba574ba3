/*
 * operations.c -- a rank of a job: every operation, and messages, in one process, as the start of
 * one takes seconds in a guest.
 *
 * Plain memory in blocking calls, and registered memory in persistent operations; of sizes that
 * are sent, sent in pieces, and written; and plain memory that is used again and again, and is
 * mapped anew or discarded in between: a device writes to the pages that it was told of. Every
 * element of every result is checked. Rank 0 prints how many there were.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rubato.h"
#include "tests/runtime/exercise.h"

static const char *const kinds[] = {
	"barrier",   "broadcast",  "reduce", "allreduce", "reduce_scatter", "reduce_scatterv",
	"allgather", "allgatherv", "gather", "scatter",   "alltoall",       "alltoallv",
};
static const uint64_t counts[] = { 2, 1500, 18000 };

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define COUNT_MAX 18000

static unsigned checked;

static rubato_status operations_run(rubato_comm *comm, bool registered)
{
	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		for (size_t c = 0; c < COUNT_OF(counts); c++) {
			struct exercise e = {
				.kind = kinds[k],
				.algorithm = "auto",
				.count = counts[c],
				.type = RUBATO_FLOAT32,
				.op = RUBATO_SUM,
				.root = rubato_size(comm) - 1,
				.allocated = registered,
				.persistent = registered,
				.times = registered ? 2 : 1, /* The second start finds all bound. */
				.salt = 100 * k + 10 * c + registered,
			};
			rubato_status status = exercise_run(comm, &e, NULL);

			if (status != RUBATO_OK)
				return status;
			checked += e.times;
		}
	}
	return RUBATO_OK;
}

/* What rank `from` sends at element i. */
static uint32_t sent(uint32_t from, size_t count, size_t i)
{
	return from * 1000003u + (uint32_t)count * 31u + (uint32_t)i;
}

/* To the next rank, from the one before. */
static rubato_status message_run(rubato_comm *comm, uint32_t *out, uint32_t *in, size_t count)
{
	uint32_t rank = rubato_rank(comm), n = rubato_size(comm), from = (rank + n - 1) % n;
	rubato_op *send = NULL;
	rubato_status status;

	for (size_t i = 0; i < count; i++)
		out[i] = sent(rank, count, i);
	memset(in, 0xa5, count * sizeof(*in));
	status = rubato_op_send(comm, out, count, RUBATO_UINT32, (rank + 1) % n, 7, &send);
	if (status == RUBATO_OK)
		status = rubato_start(send);
	if (status == RUBATO_OK)
		status = rubato_recv(comm, in, count, RUBATO_UINT32, from, 7);
	if (status == RUBATO_OK)
		status = rubato_wait(send, RUBATO_TIMEOUT_DEFAULT);
	rubato_op_free(send);
	for (size_t i = 0; status == RUBATO_OK && i < count; i++) {
		if (in[i] == sent(from, count, i))
			continue;
		(void)fprintf(stderr, "operations: a message of %zu: element %zu is %u, not %u\n",
			      count, i, in[i], sent(from, count, i));
		exit(1);
	}
	checked++;
	return status;
}

static rubato_status messages_run(rubato_comm *comm, uint32_t *out, uint32_t *in)
{
	for (size_t c = 0; c < COUNT_OF(counts); c++) {
		rubato_status status = message_run(comm, out, in, counts[c]);

		if (status != RUBATO_OK)
			return status;
	}
	return RUBATO_OK;
}

/* The same addresses, other pages. */
static void change(uint32_t *memory, size_t bytes, bool discard)
{
	void *at = discard ? memory
			   : mmap(memory, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (at != memory || (discard && madvise(memory, bytes, MADV_DONTNEED) != 0)) {
		perror("operations: change");
		exit(1);
	}
}

/* So many between two changes that a registration is kept and used again before each. */
static rubato_status changes_run(rubato_comm *comm)
{
	enum { CHANGES = 4, TIMES = 24 };
	size_t bytes = COUNT_MAX * sizeof(uint32_t);
	uint32_t *memory[2];
	rubato_status status = RUBATO_OK;

	for (int i = 0; i < 2; i++)
		memory[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
	if (memory[0] == MAP_FAILED || memory[1] == MAP_FAILED)
		return RUBATO_ERR_MEMORY;
	for (int i = 0; status == RUBATO_OK && i < CHANGES * TIMES; i++) {
		if (i > 0 && i % TIMES == 0)
			for (int m = 0; m < 2; m++)
				change(memory[m], bytes, i / TIMES % 2 == 0);
		status = message_run(comm, memory[0], memory[1], COUNT_MAX);
	}
	for (int i = 0; i < 2; i++)
		(void)munmap(memory[i], bytes);
	return status;
}

static rubato_status all_run(rubato_comm *comm)
{
	static uint32_t plain[2][COUNT_MAX];
	void *registered[2];
	rubato_status status = operations_run(comm, false);

	if (status == RUBATO_OK)
		status = messages_run(comm, plain[0], plain[1]);
	if (status == RUBATO_OK)
		status = changes_run(comm);
	if (status == RUBATO_OK)
		status = operations_run(comm, true);
	for (int i = 0; status == RUBATO_OK && i < 2; i++)
		status = rubato_alloc(comm, sizeof(plain[i]), &registered[i]);
	if (status == RUBATO_OK)
		status = messages_run(comm, registered[0], registered[1]);
	return status;
}

int main(void)
{
	rubato_comm *comm;
	rubato_status status = rubato_init(&comm, NULL);

	if (status == RUBATO_OK)
		status = all_run(comm);
	if (status == RUBATO_OK && rubato_rank(comm) == 0)
		(void)printf("%u results of %u ranks are right\n", checked, rubato_size(comm));
	if (status == RUBATO_OK)
		status = rubato_finalize(comm);
	if (status != RUBATO_OK)
		(void)fprintf(stderr, "operations: %s\n", rubato_error_text());
	return status != RUBATO_OK;
}
