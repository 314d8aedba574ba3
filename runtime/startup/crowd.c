/* crowd.c -- see crowd.h. What is counted lies in arrays, found by open hash tables over them. */
#include "runtime/startup/crowd.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define ENTRIES_FIRST 8u
#define SLOTS_AN_ENTRY 4u /* Of the array's capacity: the table is at most a quarter full. */

struct rb_crowd_entry { /* A machine (group 0), or a control group of one. */
	uint64_t host, group;
	uint64_t cores[RB_CPU_WORDS]; /* All that its ranks may use together. */
	uint32_t ranks;
	uint32_t cores_max; /* Of a group: its limit; 0: none. */
	uint64_t allowed;   /* Of a machine: what its groups may use, added up. */
};

/* The slot of what has this name, or the free one where it belongs. */
static uint32_t *slot_of(struct rb_crowd *crowd, struct rb_crowd_table *t, uint64_t host,
			 uint64_t group)
{
	uint32_t at = (uint32_t)rb_mix(host ^ rb_mix(group)) & (t->slot_count - 1);

	crowd->looks++;
	while (t->slots[at] != 0 && (t->entries[t->slots[at] - 1].host != host ||
				     t->entries[t->slots[at] - 1].group != group)) {
		crowd->looks++;
		at = (at + 1) & (t->slot_count - 1);
	}
	return &t->slots[at];
}

static bool grow(struct rb_crowd *crowd, struct rb_crowd_table *t)
{
	uint32_t capacity = t->capacity == 0 ? ENTRIES_FIRST : 2 * t->capacity;
	uint32_t *slots = calloc((size_t)capacity * SLOTS_AN_ENTRY, sizeof(*slots));
	struct rb_crowd_entry *entries = realloc(t->entries, capacity * sizeof(*entries));

	if (entries != NULL)
		t->entries = entries;
	if (entries == NULL || slots == NULL) {
		free(slots);
		return false;
	}
	free(t->slots);
	t->slots = slots;
	t->slot_count = capacity * SLOTS_AN_ENTRY;
	t->capacity = capacity;
	for (uint32_t i = 0; i < t->count; i++)
		*slot_of(crowd, t, entries[i].host, entries[i].group) = i + 1;
	return true;
}

/* NULL: no memory. */
static struct rb_crowd_entry *entry_of(struct rb_crowd *crowd, struct rb_crowd_table *t,
				       uint64_t host, uint64_t group)
{
	uint32_t *slot;

	if (t->count == t->capacity && !grow(crowd, t))
		return NULL;
	slot = slot_of(crowd, t, host, group);
	if (*slot == 0) {
		t->entries[t->count++] = (struct rb_crowd_entry) { .host = host, .group = group };
		*slot = t->count;
	}
	return &t->entries[*slot - 1];
}

/* Its number, from 1; 0: it is not there. */
static uint32_t find(struct rb_crowd *crowd, struct rb_crowd_table *t, uint64_t host,
		     uint64_t group)
{
	return t->count > 0 ? *slot_of(crowd, t, host, group) : 0;
}

static void ranks_add(struct rb_crowd_entry *entry, const struct rb_seat *seat, uint32_t ranks)
{
	entry->ranks += ranks;
	for (uint32_t k = 0; k < RB_CPU_WORDS; k++)
		entry->cores[k] |= seat->cores[k];
}

static uint32_t group_cores(const struct rb_crowd_entry *group)
{
	uint32_t cores = rb_cpus_count(group->cores);

	return group->cores_max > 0 && cores > group->cores_max ? group->cores_max : cores;
}

rubato_status rb_crowd_add(struct rb_crowd *crowd, const struct rb_seat *seat, uint32_t ranks)
{
	struct rb_crowd_entry *machine = entry_of(crowd, &crowd->machines, seat->host, 0);
	struct rb_crowd_entry *group = entry_of(crowd, &crowd->groups, seat->host, seat->group);

	if (machine == NULL || group == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "table of %u machines", crowd->machines.count);
	machine->allowed -= group_cores(group);
	ranks_add(machine, seat, ranks);
	ranks_add(group, seat, ranks);
	if (seat->cores_max > 0 && (group->cores_max == 0 || seat->cores_max < group->cores_max))
		group->cores_max = seat->cores_max;
	machine->allowed += group_cores(group);
	return RUBATO_OK;
}

void rb_crowd_fini(struct rb_crowd *crowd)
{
	free(crowd->machines.entries);
	free(crowd->machines.slots);
	free(crowd->groups.entries);
	free(crowd->groups.slots);
	*crowd = (struct rb_crowd) { 0 };
}

static struct rb_crowding group_crowding(const struct rb_crowd_entry *group)
{
	uint32_t cores = group_cores(group);

	return (struct rb_crowding) { .ranks = group->ranks, .cores = cores > 0 ? cores : 1 };
}

static struct rb_crowding machine_crowding(const struct rb_crowd_entry *machine)
{
	uint32_t cores = rb_cpus_count(machine->cores);

	if (cores > machine->allowed)
		cores = (uint32_t)machine->allowed;
	return (struct rb_crowding) { .ranks = machine->ranks, .cores = cores > 0 ? cores : 1 };
}

/* The one with more ranks a core; of two alike the one with more ranks. */
static struct rb_crowding worse(struct rb_crowding a, struct rb_crowding b)
{
	uint64_t left = (uint64_t)a.ranks * b.cores, right = (uint64_t)b.ranks * a.cores;

	return left > right || (left == right && a.ranks > b.ranks) ? a : b;
}

struct rb_crowding rb_crowd_at(struct rb_crowd *crowd, uint64_t host, uint64_t group)
{
	uint32_t machine = find(crowd, &crowd->machines, host, 0);
	uint32_t number = find(crowd, &crowd->groups, host, group);

	/* Of two that belong together one may be missing: memory ran out between them. */
	if (machine == 0 || number == 0)
		return (struct rb_crowding) { 1, 1 };
	return worse(machine_crowding(&crowd->machines.entries[machine - 1]),
		     group_crowding(&crowd->groups.entries[number - 1]));
}

struct rb_crowding rb_crowd_worst(const struct rb_crowd *crowd)
{
	struct rb_crowding worst = { 0, 1 };

	for (uint32_t i = 0; i < crowd->machines.count; i++)
		worst = worse(worst, machine_crowding(&crowd->machines.entries[i]));
	for (uint32_t i = 0; i < crowd->groups.count; i++)
		worst = worse(worst, group_crowding(&crowd->groups.entries[i]));
	return worst.ranks > 0 ? worst : (struct rb_crowding) { 1, 1 };
}

rubato_status rb_crowd_firsts(const uint64_t *hosts, uint32_t count, bool *first, uint64_t *looks)
{
	struct rb_crowd crowd = { 0 };
	rubato_status err = RUBATO_OK;

	for (uint32_t r = 0; r < count && err == RUBATO_OK; r++) {
		uint32_t before = crowd.machines.count;

		if (entry_of(&crowd, &crowd.machines, hosts[r], 0) == NULL)
			err = RB_FAIL(RUBATO_ERR_MEMORY, "table of %u machines", before);
		first[r] = crowd.machines.count > before;
	}
	*looks = crowd.looks;
	rb_crowd_fini(&crowd);
	return err;
}
