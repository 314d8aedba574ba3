/* machine.h -- the processors of a machine, and what they share, as Linux tells it under /sys. */
#ifndef PROGRAMS_MACHINE_H
#define PROGRAMS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_HERE "/sys/devices/system"
#define MACHINE_CPUS_MAX 1024
#define MACHINE_LEVELS 3 /* Of caches that hold data. */
#define MACHINE_NONE UINT32_MAX

struct machine_cpu {
	uint32_t number;        /* The system's. */
	uint32_t core, package; /* The lowest processor's number there: that one stands for it. */
	uint32_t domain;        /* The NUMA node's number; MACHINE_NONE: the system knows none. */
	uint32_t
		cache[MACHINE_LEVELS]; /* The lowest processor's that shares it; or MACHINE_NONE. */
};

struct machine {
	uint32_t cpu_count;
	struct machine_cpu cpus[MACHINE_CPUS_MAX]; /* Who shares more stands closer. */
	uint32_t domain_count;                     /* Those of memory alone included. */
	uint64_t cache_bytes[MACHINE_LEVELS];      /* Of the first one of each level. */
};

/* All processors that are online, of the machine whose /sys/devices/system this folder is (of
 * MACHINE_HERE, or a copy). False: it tells of none. */
bool machine_read(const char *system, struct machine *machine);

#endif
