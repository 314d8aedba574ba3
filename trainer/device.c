/* device.c -- where a run computes (--device): its vectors and its backend lie there. */
#include "rubato_cuda.h"
#include "trainer/run.h"

#ifdef TR_HAVE_CUDA
#include "trainer/cuda/device.h"
#include "trainer/cuda/vectors.h"

/* The communicator's device, too: collectives take what lies there. */
static rubato_status open_cuda(struct tr_run *run)
{
	uint32_t number = run->options->device.number;

	TR_TRY(tr_cuda_open(&run->cuda, number, run->error));
	TR_TRY(tr_cuda_vectors_open(&run->cuda_vectors, run->cuda, run->error));
	run->vectors = &run->cuda_vectors;
	run->ctx.vectors = run->vectors;
	run->ops = tr_compute_device(run->options->model);
	return tr_check(run->error, rubato_cuda_use(run->comm, (int)number),
			"--device cuda: a communicator on it");
}

void tr_run_close_device(struct tr_run *run)
{
	tr_cuda_vectors_close(&run->cuda_vectors);
	tr_cuda_close(run->cuda);
}
#else
static rubato_status open_cuda(struct tr_run *run)
{
	return tr_refuse(run->error, "--device cuda: not in this build");
}

void tr_run_close_device(struct tr_run *run)
{
	(void)run;
}
#endif

rubato_status tr_run_open_device(struct tr_run *run)
{
	run->vectors = &tr_vectors_host;
	run->ctx.vectors = run->vectors;
	run->ops = tr_compute_host(run->options->model);
	return run->options->device.is_cuda ? open_cuda(run) : RUBATO_OK;
}
