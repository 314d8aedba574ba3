/* crowd.c -- see crowd.h. Machines lie in an array, found by an open hash table over it. */
#include "runtime/crowd.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define MACHINES_FIRST 8u
#define SLOTS_A_MACHINE 4u /* Of the array's capacity: the table is at most a quarter full. */

struct rb_crowd_machine {
	uint64_t host;
	uint64_t cores[RB_CPU_WORDS]; /* All that its ranks may use together. */
	uint32_t ranks, cores_max;
};

/* The slot of `host`, or the free one where it belongs. */
static uint32_t *slot_of(struct rb_crowd *crowd, uint64_t host)
{
	uint32_t at = (uint32_t)rb_mix(host) & (crowd->slot_count - 1);

	crowd->looks++;
	while (crowd->slots[at] != 0 && crowd->machines[crowd->slots[at] - 1].host != host) {
		crowd->looks++;
		at = (at + 1) & (crowd->slot_count - 1);
	}
	return &crowd->slots[at];
}

static bool grow(struct rb_crowd *crowd)
{
	uint32_t capacity =
		crowd->machine_capacity == 0 ? MACHINES_FIRST : 2 * crowd->machine_capacity;
	uint32_t *slots = calloc((size_t)capacity * SLOTS_A_MACHINE, sizeof(*slots));
	struct rb_crowd_machine *machines = realloc(crowd->machines, capacity * sizeof(*machines));

	if (machines != NULL)
		crowd->machines = machines;
	if (machines == NULL || slots == NULL) {
		free(slots);
		return false;
	}
	free(crowd->slots);
	crowd->slots = slots;
	crowd->slot_count = capacity * SLOTS_A_MACHINE;
	crowd->machine_capacity = capacity;
	for (uint32_t i = 0; i < crowd->machine_count; i++)
		*slot_of(crowd, machines[i].host) = i + 1;
	return true;
}

rubato_status rb_crowd_add(struct rb_crowd *crowd, const struct rb_seat *seat)
{
	struct rb_crowd_machine *machine;
	uint32_t *slot;

	if (crowd->machine_count == crowd->machine_capacity && !grow(crowd))
		return RB_FAIL(RUBATO_ERR_MEMORY, "table of %u machines", crowd->machine_count);
	slot = slot_of(crowd, seat->host);
	if (*slot == 0) {
		machine = &crowd->machines[crowd->machine_count++];
		*machine = (struct rb_crowd_machine) { .host = seat->host };
		*slot = crowd->machine_count;
	}
	machine = &crowd->machines[*slot - 1];
	machine->ranks++;
	if (seat->cores_max > 0 &&
	    (machine->cores_max == 0 || seat->cores_max < machine->cores_max))
		machine->cores_max = seat->cores_max;
	for (uint32_t k = 0; k < RB_CPU_WORDS; k++)
		machine->cores[k] |= seat->cores[k];
	return RUBATO_OK;
}

void rb_crowd_fini(struct rb_crowd *crowd)
{
	free(crowd->machines);
	free(crowd->slots);
	*crowd = (struct rb_crowd) { 0 };
}

static struct rb_crowding crowding_of(const struct rb_crowd_machine *machine)
{
	uint32_t cores = rb_cpus_count(machine->cores);

	if (machine->cores_max > 0 && cores > machine->cores_max)
		cores = machine->cores_max;
	return (struct rb_crowding) { .ranks = machine->ranks, .cores = cores > 0 ? cores : 1 };
}

struct rb_crowding rb_crowd_at(struct rb_crowd *crowd, uint64_t host)
{
	uint32_t number = crowd->machine_count > 0 ? *slot_of(crowd, host) : 0;

	if (number == 0)
		return (struct rb_crowding) { 1, 1 };
	return crowding_of(&crowd->machines[number - 1]);
}

struct rb_crowding rb_crowd_worst(const struct rb_crowd *crowd)
{
	struct rb_crowding worst = { 1, 1 };

	for (uint32_t i = 0; i < crowd->machine_count; i++) {
		struct rb_crowding one = crowding_of(&crowd->machines[i]);
		uint64_t left = (uint64_t)one.ranks * worst.cores;
		uint64_t right = (uint64_t)worst.ranks * one.cores;

		if (i == 0 || left > right || (left == right && one.ranks > worst.ranks))
			worst = one;
	}
	return worst;
}
