/* pace.c -- see pace.h. */
#include "trainer/pace.h"

#include "rubato_sim.h"

static void pass_until(rubato_comm *comm, uint64_t due_ns)
{
	uint64_t now_ns = rubato_now(comm);

	if (now_ns < due_ns)
		rubato_sleep(comm, due_ns - now_ns);
}

rubato_status tr_pace_pass(const struct tr_pace *pace, rubato_comm *comm, const struct tr_cut *cut,
			   uint64_t begin_ns, const struct tr_ready *ready)
{
	double forward_ns = pace->forward * (double)pace->span_ns;
	double backward_ns = (double)pace->span_ns - forward_ns;

	for (uint32_t i = 0; i < cut->count; i++) {
		size_t first = tr_cut_begin(cut, i);
		double done = (double)(cut->total - first) / (double)cut->total;

		pass_until(comm, begin_ns + (uint64_t)(forward_ns + backward_ns * done));
		TR_TRY(ready->call(ready->arg, first));
	}
	return RUBATO_OK;
}
