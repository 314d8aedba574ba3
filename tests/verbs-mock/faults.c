/*
 * faults.c -- counts calls and completions, and fails those that a test or VERBS_MOCK_FAULTS names.
 *
 * Faults of calls are the process's own: a call is counted without a lock, so its faults are added
 * under one and then published by their count. Faults of completions are in the world: a receive
 * is completed by who sends.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

#define CALL_FAULTS 64u

struct call_fault {
	enum call call;
	uint64_t first, last; /* Calls that fail. */
	int error;
	uint64_t fired;
};

static struct {
	uint64_t counts[CALL_COUNT];
	struct call_fault faults[CALL_FAULTS];
	uint32_t count;
} calls;

static struct {
	mock_watch *see;
	void *arg;
} watch;

_Static_assert((int)CALL_COUNT <= 64, "struct world counts 64 functions");

#define CALL_NAME(name) #name,
static const char *const names[] = { CALLS(CALL_NAME) };

static void wrong(const char *what, const char *value)
{
	(void)fprintf(stderr, "verbs-mock: %s: '%s'\n", what, value);
	abort();
}

int call_fails(enum call call)
{
	uint64_t number = __atomic_add_fetch(&calls.counts[call], 1, __ATOMIC_RELAXED);
	struct world *world = world_attach(); /* Which may bring faults. */
	uint32_t count;
	int error;

	if (world == NULL)
		return errno;
	(void)__atomic_add_fetch(&world->calls[call], 1, __ATOMIC_RELAXED);
	error = watch.see != NULL ? watch.see(watch.arg, names[call]) : 0;
	if (error != 0) {
		(void)__atomic_add_fetch(&world->counters.faults_fired, 1, __ATOMIC_RELAXED);
		return error;
	}
	count = __atomic_load_n(&calls.count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++) {
		struct call_fault *fault = &calls.faults[i];

		if (fault->call != call || number < fault->first || number > fault->last)
			continue;
		(void)__atomic_add_fetch(&fault->fired, 1, __ATOMIC_RELAXED);
		(void)__atomic_add_fetch(&world->counters.faults_fired, 1, __ATOMIC_RELAXED);
		return fault->error;
	}
	return 0;
}

static enum call call_named(const char *name)
{
	for (uint32_t i = 0; i < CALL_COUNT; i++)
		if (strcmp(names[i], name) == 0)
			return (enum call)i;
	wrong("no function that is counted has this name", name);
	return CALL_COUNT;
}

MOCK_API const char *mock_call_name(uint32_t index)
{
	return index < CALL_COUNT ? names[index] : NULL;
}

MOCK_API uint64_t mock_call_count(const char *function)
{
	struct world *world = world_attach();

	return __atomic_load_n(&world->calls[call_named(function)], __ATOMIC_RELAXED);
}

static int call_fault_add(const char *function, uint64_t nth, uint64_t times, int error)
{
	enum call call = call_named(function);
	uint64_t before = __atomic_load_n(&calls.counts[call], __ATOMIC_RELAXED);

	if (calls.count == CALL_FAULTS || nth == 0 || error <= 0)
		wrong("no room for this fault, or it fails no call", function);
	calls.faults[calls.count] = (struct call_fault) {
		.call = call,
		.first = before + nth,
		.last = times == 0 ? UINT64_MAX : before + nth + times - 1,
		.error = error,
	};
	__atomic_store_n(&calls.count, calls.count + 1, __ATOMIC_RELEASE);
	return (int)calls.count - 1;
}

MOCK_API int mock_fail_call(const char *function, uint64_t nth, uint64_t times, int error)
{
	struct world *world = world_attach();
	int fault;

	world_lock(world);
	fault = call_fault_add(function, nth, times, error);
	world_unlock(world);
	return fault;
}

MOCK_API void mock_watch_calls(mock_watch *see, void *arg)
{
	watch.arg = arg;
	watch.see = see;
}

static int completion_fault_add(struct world *world, struct world_fault fault)
{
	const struct world_process *slot = &world->processes[world_self()];

	if (world->fault_count == WORLD_FAULTS || fault.nth == 0 || fault.status == IBV_WC_SUCCESS)
		wrong("no room for this fault, or it is none", ibv_wc_status_str(fault.status));
	fault.process = world_self();
	fault.nth += fault.receive ? slot->receives : slot->sends;
	world->faults[world->fault_count++] = fault;
	return (int)(CALL_FAULTS + world->fault_count - 1);
}

MOCK_API int mock_fail_send(uint64_t nth, enum ibv_wc_status status, bool delivered)
{
	struct world_fault fault = { .nth = nth, .status = status, .delivered = delivered };
	struct world *world = world_attach();
	int number;

	world_lock(world);
	number = completion_fault_add(world, fault);
	world_unlock(world);
	return number;
}

MOCK_API int mock_fail_receive(uint64_t nth, enum ibv_wc_status status)
{
	struct world_fault fault = { .nth = nth, .status = status, .receive = true };
	struct world *world = world_attach();
	int number;

	world_lock(world);
	number = completion_fault_add(world, fault);
	world_unlock(world);
	return number;
}

MOCK_API int mock_fail_connect(uint64_t nth, uint32_t event, int status)
{
	struct world *world = world_attach();
	int number;

	world_lock(world);
	if (world->cm_error_count == WORLD_FAULTS || nth == 0)
		wrong("no room for this fault, or it is none", "mock_fail_connect");
	world->cm_errors[world->cm_error_count++] =
		(struct world_cm_error) { .process = world_self(),
					  .type = event,
					  .status = status,
					  .nth = world->cm_tries[world_self()] + nth };
	number = (int)(CALL_FAULTS + WORLD_FAULTS + world->cm_error_count - 1);
	world_unlock(world);
	return number;
}

struct world_cm_error *cm_error_of(struct world *world)
{
	uint64_t number = ++world->cm_tries[world_self()];

	for (uint32_t i = 0; i < world->cm_error_count; i++)
		if (world->cm_errors[i].process == world_self() &&
		    world->cm_errors[i].nth == number)
			return &world->cm_errors[i];
	return NULL;
}

MOCK_API uint64_t mock_fired(int fault)
{
	struct world *world = world_attach();
	uint64_t fired;

	if (fault >= 0 && fault < (int)CALL_FAULTS)
		return __atomic_load_n(&calls.faults[fault].fired, __ATOMIC_RELAXED);
	world_lock(world);
	fired = fault < (int)(CALL_FAULTS + WORLD_FAULTS)
			? world->faults[(uint32_t)fault - CALL_FAULTS].fired
			: world->cm_errors[(uint32_t)fault - CALL_FAULTS - WORLD_FAULTS].fired;
	world_unlock(world);
	return fired;
}

struct world_fault *fault_of(struct world *world, uint32_t owner, bool receive)
{
	struct world_process *slot = &world->processes[owner];
	uint64_t number = receive ? ++slot->receives : ++slot->sends;

	for (uint32_t i = 0; i < world->fault_count; i++) {
		struct world_fault *fault = &world->faults[i];

		if (fault->process == owner && fault->receive == receive && fault->nth == number)
			return fault;
	}
	return NULL;
}

/* One of VERBS_MOCK_FAULTS. */
static void fault_read(struct world *world, const char *text)
{
	unsigned long long nth, value, times = 1;
	char name[64], ending[16] = "", rest;

	if (sscanf(text, "call:%63[a-z_]:%llu:%llu:%llu%c", name, &nth, &value, &times, &rest) ==
		    4 ||
	    sscanf(text, "call:%63[a-z_]:%llu:%llu%c", name, &nth, &value, &rest) == 3) {
		(void)call_fault_add(name, nth, times, (int)value);
		return;
	}
	if (sscanf(text, "receive:%llu:%llu%c", &nth, &value, &rest) == 2) {
		(void)completion_fault_add(world, (struct world_fault) { .nth = nth,
									 .status = (uint32_t)value,
									 .receive = true });
		return;
	}
	if (sscanf(text, "send:%llu:%llu%c", &nth, &value, &rest) != 2 &&
	    (sscanf(text, "send:%llu:%llu:%15s", &nth, &value, ending) != 3 ||
	     strcmp(ending, "delivered") != 0))
		wrong("VERBS_MOCK_FAULTS has no such form", text);
	(void)completion_fault_add(world, (struct world_fault) { .nth = nth,
								 .status = (uint32_t)value,
								 .delivered = ending[0] != '\0' });
}

void faults_forget(void)
{
	memset(&calls, 0, sizeof(calls));
}

void faults_begin(struct world *world)
{
	const char *text = getenv("VERBS_MOCK_FAULTS");
	char *copy = text != NULL ? strdup(text) : NULL, *at = copy, *one;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < world->fault_count; i++) /* Of who had this slot before. */
		if (world->faults[i].process != world_self())
			world->faults[kept++] = world->faults[i];
	world->fault_count = kept;
	while ((one = strsep(&at, ",")) != NULL)
		if (*one != '\0')
			fault_read(world, one);
	free(copy);
}
