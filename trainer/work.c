/* work.c -- see work.h. */
#include "trainer/work.h"

#include <stdlib.h>

struct tr_work {
	struct tr_order *order;
	uint64_t step_count;
};

rubato_status tr_work_open(struct tr_work **out, enum tr_work_kind kind, struct tr_order *order,
			   rubato_comm *comm, uint64_t step_count, struct tr_note *note)
{
	struct tr_work *work;

	(void)comm;
	if (kind == TR_WORK_SHARED)
		return tr_refuse(note, "--work shared is not in this version");
	work = calloc(1, sizeof(*work));
	if (work == NULL)
		return tr_fail(note, RUBATO_ERR_MEMORY, "work: out of memory");
	work->order = order;
	work->step_count = step_count;
	*out = work;
	return RUBATO_OK;
}

rubato_status tr_work_next(struct tr_work *work, uint64_t step, struct tr_batch *batch,
			   struct tr_note *note)
{
	(void)note;
	*batch = (struct tr_batch) { NULL, tr_order_place(work->order, step) };
	if (step < work->step_count)
		batch->rows = tr_order_batch(work->order, step);
	return RUBATO_OK;
}

void tr_work_close(struct tr_work *work)
{
	free(work);
}
