/* place.c -- see place.h. */
#include "programs/place.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The processors that are number `turn` of those allowed in their core; whether there are any. */
static bool turn_add(struct places *places, const struct machine *machine,
		     const bool allowed[PLACES_MAX], uint32_t turn)
{
	uint32_t before = places->count, place = 0;

	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		const struct machine_cpu *cpu = &machine->cpus[i];

		if (i == 0 || cpu->core != machine->cpus[i - 1].core)
			place = 0; /* A core's processors stand side by side. */
		if ((allowed == NULL || allowed[cpu->number]) && place++ == turn)
			places->cpus[places->count++] = cpu->number;
	}
	return places->count > before;
}

void places_find(const struct machine *machine, const bool allowed[PLACES_MAX],
		 struct places *places)
{
	memset(places, 0, sizeof(*places));
	for (uint32_t turn = 0; turn_add(places, machine, allowed, turn); turn++)
		if (turn == 0)
			places->core_count = places->count;
}

void places_find_here(struct places *places)
{
	struct machine *machine = malloc(sizeof(*machine));
	bool allowed[PLACES_MAX];
	cpu_set_t set;

	CPU_ZERO(&set);
	(void)sched_getaffinity(0, sizeof(set), &set);
	for (size_t cpu = 0; cpu < PLACES_MAX; cpu++)
		allowed[cpu] = CPU_ISSET(cpu, &set);
	memset(places, 0, sizeof(*places));
	if (machine != NULL && machine_read(MACHINE_HERE, machine))
		places_find(machine, allowed, places);
	free(machine);
	for (uint32_t cpu = 0; places->core_count == 0 && cpu < PLACES_MAX; cpu++)
		if (allowed[cpu])
			places->cpus[places->count++] = cpu;
	if (places->core_count == 0)
		places->core_count = places->count;
}
