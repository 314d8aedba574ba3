/*
 * processes.h -- ranks as processes of this machine, over shared memory, each with a driver of its
 * own, which is the fake one.
 */
#ifndef TESTS_CUDA_FAKE_PROCESSES_H
#define TESTS_CUDA_FAKE_PROCESSES_H

#include "tests/cuda/app.h"

#define PROCESSES_MAX 4u

/* What a rank does, with the context of app->device; it may end the program. */
typedef rubato_status (*process_main)(struct cuda_app *app, rubato_comm *comm, void *arg);

struct processes {
	uint32_t count;
	bool own_devices;      /* Rank r has device r; else all have device 0. */
	uint32_t dies;         /* This rank and those after it are to be killed; 0: none is. */
	const char *transport; /* NULL: shared memory. */
	struct fake_cuda_control control;
	process_main body;
	rubato_status (*after)(
		struct cuda_app *app); /* When its communicator is finalized; or NULL. */
	void *arg;                     /* To each its copy. */
};

/* Each has ended well, and has given back what it took. */
void processes_run(const struct processes *processes);
/* Memory that all of them see, cleared; made before they are. */
void *processes_memory(size_t bytes);

#endif
