/* processes.c -- see processes.h. */
#include "tests/cuda/fake/processes.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "rubato_cuda.h"
#include "tests/check_main.h"
#include "tests/child_fork.h"
#include "tests/limit.h"

#define ID_NS UINT64_C(60000000000)

struct shared {
	rubato_id id;
	atomic_bool id_made;
	char failed[PROCESSES_MAX][512];
};

void *processes_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

static rubato_status rank_run(const struct processes *p, struct shared *shared, uint32_t rank,
			      struct cuda_app *app)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;

	options.transport = p->transport != NULL ? p->transport : "shm";
	if (rank == 0) {
		RB_TRY(rubato_id_create(&shared->id));
		shared->id_made = true;
	}
	for (uint64_t end_ns = rb_clock_ns() + ID_NS; !shared->id_made;) {
		if (rb_clock_ns() > end_ns)
			return RB_FAIL(RUBATO_ERR_TIMEOUT, "rank 0 has made no id");
		(void)usleep(1000);
	}
	RB_TRY(rubato_init_id(&comm, &shared->id, rank, p->count, &options));
	RB_TRY(p->body(app, comm, p->arg));
	RB_TRY(rubato_finalize(comm));
	return p->after != NULL ? p->after(app) : RUBATO_OK;
}

static void rank_main(const struct processes *p, struct shared *shared, uint32_t rank)
{
	struct cuda_app app;
	struct fake_cuda_control control = p->control;
	CUcontext context;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!cuda_app_open(&app, shared->failed[rank], sizeof(shared->failed[rank])))
		return;
	control.seed = control.seed > 0 ? control.seed + rank : 0;
	if (app.fake_control != NULL)
		app.fake_control(&control);
	if (p->own_devices) {
		CUDA_APP(&app, cuDevicePrimaryCtxRelease, app.device);
		CUDA_APP(&app, cuDeviceGet, &app.device, (int)rank);
		CUDA_APP(&app, cuDevicePrimaryCtxRetain, &context, app.device);
		app.context = context;
	}
	if (p->transport != NULL)
		app.bytes_of_ucx = 100;
	cuda_app_enter(&app);
	if (rank_run(p, shared, rank, &app) != RUBATO_OK) {
		(void)snprintf(shared->failed[rank], sizeof(shared->failed[rank]), "%s",
			       rubato_error_text());
		return;
	}
	cuda_app_leave(&app);
	if (p->dies > 0) /* Whoever is killed closes nothing. */
		cuda_app_close(&app);
	else
		cuda_app_end(&app);
}

/* Less than Check gives the test, which would not say who it was. */
static uint64_t patience_ns(void)
{
	return limit_seconds(120) * 1000000000ull;
}

/* Who has not ended by then is killed, and has failed. */
static void end_await(struct shared *shared, uint32_t rank, pid_t pid, uint64_t end_ns, int *end)
{
	pid_t ended;

	while ((ended = waitpid(pid, end, WNOHANG)) == 0 && rb_clock_ns() < end_ns)
		(void)usleep(1000);
	if (ended == 0) {
		(void)kill(pid, SIGKILL);
		ended = waitpid(pid, end, 0);
		(void)snprintf(shared->failed[rank], sizeof(shared->failed[rank]),
			       "has not ended in time");
	}
	ck_assert_int_eq(ended, pid);
}

void processes_run(const struct processes *p)
{
	struct shared *shared = processes_memory(sizeof(*shared));
	uint64_t end_ns = rb_clock_ns() + patience_ns();
	pid_t pids[PROCESSES_MAX];
	int ends[PROCESSES_MAX];

	ck_assert_uint_le(p->count, PROCESSES_MAX);
	for (uint32_t r = 0; r < p->count; r++) {
		pids[r] = child_fork();
		if (pids[r] == 0) {
			rank_main(p, shared, r);
			_exit(shared->failed[r][0] != '\0');
		}
	}
	for (uint32_t r = 0; r < p->count; r++)
		end_await(shared, r, pids[r], end_ns, &ends[r]);
	for (uint32_t r = 0; r < p->count; r++) { /* The others may have failed with it. */
		bool dies = p->dies > 0 && r >= p->dies && shared->failed[r][0] == '\0';

		ck_assert_msg(dies ? WIFSIGNALED(ends[r]) : ends[r] == 0,
			      "a rank ended with %#x; ranks say: %s | %s | %s | %s", ends[r],
			      shared->failed[0], shared->failed[1], shared->failed[2],
			      shared->failed[3]);
	}
	(void)munmap(shared, sizeof(*shared));
}
