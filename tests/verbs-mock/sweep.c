/*
 * sweep.c -- a device is closed with objects of it still there: they go from the world, as the
 * kernel takes them; what the application holds of them is memory that it has lost.
 */
#include "tests/verbs-mock/process.h"

void context_sweep(struct world *world, struct mock_context *context)
{
	struct ibv_context *v = &context->verbs.context;

	for (uint32_t i = 0; i < world->qp_end; i++)
		if (process.qps[i] != NULL && process.qps[i]->v.context == v) {
			engine_deactivate(process.qps[i]);
			process.qps[i] = NULL;
			qp_remove(world, i);
			world->counters.left_open++;
		}
	for (uint32_t i = 0; i < world->srq_end; i++)
		if (process.srqs[i] != NULL && process.srqs[i]->v.context == v) {
			process.srqs[i] = NULL;
			srq_remove(world, i);
			world->counters.left_open++;
		}
	for (uint32_t i = 0; i < world->cq_end; i++)
		if (process.cqs[i] != NULL && process.cqs[i]->v.context == v) {
			process.cqs[i] = NULL;
			cq_remove(world, i);
			world->counters.left_open++;
		}
	for (uint32_t i = 0; context->mrs > 0 && i < world->mr_end; i++)
		if (world->mrs[i].used && world->mrs[i].context == context->id) {
			process.registered -= world->mrs[i].length;
			mr_remove(world, i);
			context->mrs--;
			world->counters.left_open++;
		}
	world->counters.left_open += context->pds + context->channels;
	world->devices[context->device].pds -= context->pds;
}
