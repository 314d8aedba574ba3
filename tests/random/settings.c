/*
 * settings.c -- what changes how operations run, or nothing at all: algorithms that are forced,
 * forms in which values travel, memory that is allocated and registered, calls that are refused.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"

#define MEMORY_MOST (600u << 10)

/* ---- Settings that all ranks make alike ---- */

static uint32_t operation_count(void)
{
	uint32_t operations = 0;

	while (rubato_operation_name(operations) != NULL)
		operations++;
	return operations;
}

static void force(struct place *place)
{
	const char *operation = rubato_operation_name(below(&place->common, operation_count()));
	const char *algorithm = "auto";
	uint32_t algorithms = 0;

	while (rubato_algorithm_name(operation, algorithms) != NULL)
		algorithms++;
	if (algorithms > 0 && !one_in(&place->common, 4))
		algorithm = rubato_algorithm_name(operation, below(&place->common, algorithms));
	doing(place, "rubato_set_algorithm %s %s", operation, algorithm);
	must(place, rubato_set_algorithm(place->comm, operation, algorithm));
	count(place, FORCED);
	for (uint32_t kind = 0; kind < HELPED; kind++)
		if (strcmp(kind_name((enum kind)kind), operation) == 0)
			place->wanted = (enum kind)kind;
	if (place->wanted != KINDS) {
		step_call(place);
		step_call(place);
		turns_run(place);
	}
	place->wanted = KINDS;
}

bool unsupported(struct place *place, enum kind kind, rubato_status status)
{
	const char *operation = kind_name(kind == HELPED ? ALLREDUCE : kind);

	if (status != RUBATO_ERR_UNSUPPORTED)
		return false;
	must(place, rubato_set_algorithm(place->comm, operation, "auto"));
	count(place, UNSUPPORTED);
	return true;
}

void step_settings(struct place *place)
{
	uint32_t what = below(&place->common, 8);

	if (what < 5) {
		force(place);
	} else if (what == 5) {
		must(place, rubato_set_accumulate(place->comm,
						  (rubato_accumulate)below(&place->common, 2)));
		count(place, ACCUMULATE);
	} else {
		place->wire = (rubato_wire)below(&place->common, 2);
		place->feedback = place->wire != RUBATO_WIRE_SAME && one_in(&place->common, 2);
		must(place, rubato_set_wire(place->comm, place->wire, place->feedback));
		count(place, WIRE);
	}
}

/* ---- Memory: each rank's own matter ---- */

static void allocated(struct place *place)
{
	size_t bytes = 1 + below(&place->own, MEMORY_MOST);
	uint8_t *memory, other;
	void *found;

	doing(place, "rubato_alloc of %zu bytes", bytes);
	must(place, rubato_alloc(place->comm, bytes, &found));
	memory = found;
	if ((uintptr_t)memory % 4096 != 0)
		fail(place, "it is not aligned");
	for (size_t i = 0; i < bytes; i++)
		if (memory[i] != 0)
			fail(place, "byte: index %zu: expected 0, got %u", i, memory[i]);
	memset(memory, 0x77, bytes);
	other = 0;
	must_be(place, RUBATO_ERR_ARGUMENT, rubato_free(place->comm, &other));
	must(place, rubato_free(place->comm, memory));
}

static void registered(struct place *place)
{
	size_t bytes = 1 + below(&place->own, MEMORY_MOST);
	void *memory = malloc(bytes);

	doing(place, "rubato_register of %zu bytes", bytes);
	if (memory == NULL)
		fail(place, "no memory");
	must_be(place, RUBATO_ERR_ARGUMENT, rubato_unregister(place->comm, memory));
	must(place, rubato_register(place->comm, memory, bytes));
	must(place, rubato_unregister(place->comm, memory));
	free(memory);
	count(place, REGISTERED);
}

void step_memory(struct place *place)
{
	if (one_in(&place->own, 3))
		registered(place);
	else
		allocated(place);
	count(place, MEMORY);
}

/* ---- Looking, which changes nothing ---- */

void step_look(struct place *place)
{
	const char *operation = rubato_operation_name(below(&place->own, operation_count()));
	uint32_t rank = below(&place->own, place->size);
	rubato_peer peer = { .size_bytes = sizeof(peer) };
	rubato_stats stats = { .size_bytes = sizeof(stats) };
	rubato_status got;
	char text[2000];
	int file = open("/dev/null", O_WRONLY | O_CLOEXEC);

	doing(place, "looking");
	must(place, rubato_get_peer(place->comm, rank, &peer));
	must(place, rubato_get_stats(place->comm, &stats));
	got = rubato_explain(place->comm, operation, below(&place->own, 100000),
			     type_draw(&place->own), text, sizeof(text));
	if (got != RUBATO_ERR_UNSUPPORTED) /* An algorithm that was forced. */
		must(place, got);
	rubato_dump(place->comm, file);
	(void)close(file);
	count(place, LOOK);
}

/* ---- Refused: one rank alone, and nothing changes ---- */

static const rubato_type int32 = RUBATO_INT32;

static rubato_status refused_operation(struct place *place, uint32_t what, void *in, void *out)
{
	rubato_comm *comm = place->comm;
	uint64_t counts[RANKS_MAX] = { 1 }, others[RANKS_MAX] = { 2 };

	switch (what) {
	case 0:
		return rubato_allreduce(comm, NULL, out, 3, int32, RUBATO_SUM);
	case 1:
		return rubato_allreduce(comm, in, out, 3, (rubato_type)99, RUBATO_SUM);
	case 2:
		return rubato_allreduce(comm, in, out, 3, int32, (rubato_operator)99);
	case 3:
		return rubato_reduce(comm, in, out, 3, int32, RUBATO_SUM, place->size);
	case 4:
		return rubato_broadcast(comm, in, UINT64_MAX / 2, int32, 0);
	case 5:
		return rubato_allgatherv(comm, in, out, NULL, NULL, int32);
	case 6:
		counts[0] = UINT64_MAX;
		return rubato_reduce_scatterv(comm, in, out, counts, NULL, int32, RUBATO_SUM);
	case 7:
		counts[place->rank] = 1;
		others[place->rank] = 2;
		return rubato_alltoallv(comm, in, counts, NULL, out, others, NULL, int32);
	case 8:
		return rubato_send(comm, in, 1, int32, place->size, 0);
	default:
		return rubato_recv(comm, NULL, 1, int32, 0, 0);
	}
}

static rubato_status refused_other(struct place *place, uint32_t what, void *in, void *out)
{
	rubato_comm *comm = place->comm;
	rubato_stats stats = { 0 };
	rubato_op *op = NULL;
	rubato_status got;

	switch (what) {
	case 0:
		got = rubato_op_alltoall(comm, in, NULL, 1, int32, &op);
		break;
	case 1:
		got = rubato_op_scatter(comm, in, out, 1, int32, place->size + 5, &op);
		break;
	case 2:
		got = rubato_op_send(comm, in, 1, (rubato_type)-1, 0, 0, &op);
		break;
	case 3:
		got = rubato_set_algorithm(comm, "allreduce", "no such");
		break;
	case 4:
		got = rubato_set_timeout(comm, RUBATO_NO_WAIT);
		break;
	case 5:
		got = rubato_get_stats(comm, &stats);
		break;
	case 6:
		got = rubato_set_wire(comm, (rubato_wire)77, false);
		break;
	default:
		got = rubato_split(comm, 0, 0, NULL);
		break;
	}
	if (op != NULL)
		fail(place, "an output was set");
	return got;
}

void step_refused(struct place *place)
{
	int32_t in[2 * RANKS_MAX] = { 0 }, out[2 * RANKS_MAX] = { 0 };
	uint32_t what = below(&place->own, 18);

	doing(place, "refused call %u", what);
	must_be(place, RUBATO_ERR_ARGUMENT,
		what < 10 ? refused_operation(place, what, in, out)
			  : refused_other(place, what - 10, in, out));
	for (uint32_t i = 0; i < 2 * RANKS_MAX; i++)
		if (out[i] != 0)
			fail(place, "out: index %u: expected 0, got %d", i, out[i]);
	count(place, REFUSED);
}
