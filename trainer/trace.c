/* trace.c -- a ring of spans. */
#include "trainer/trace.h"

#include <stdlib.h>

struct span {
	uint64_t begin_ns, end_ns, value;
	uint64_t kind;
};

struct tr_trace {
	struct span *ring; /* NULL: not wanted. */
	uint64_t count;    /* Of all time; the ring has the last TR_TRACE_MAX. */
};

rubato_status tr_trace_open(struct tr_trace **out, bool wanted, struct tr_note *note)
{
	struct tr_trace *trace = calloc(1, sizeof(*trace));

	if (trace != NULL && wanted)
		trace->ring = calloc(TR_TRACE_MAX, sizeof(*trace->ring));
	if (trace == NULL || (wanted && trace->ring == NULL)) {
		free(trace);
		return tr_fail(note, RUBATO_ERR_MEMORY, "trace: out of memory");
	}
	*out = trace;
	return RUBATO_OK;
}

void tr_trace_close(struct tr_trace *trace)
{
	if (trace == NULL)
		return;
	free(trace->ring);
	free(trace);
}

void tr_trace_span(struct tr_trace *trace, enum tr_span span, uint64_t begin_ns, uint64_t end_ns,
		   uint64_t value)
{
	if (trace->ring == NULL)
		return;
	trace->ring[trace->count++ % TR_TRACE_MAX] =
		(struct span) { begin_ns, end_ns, value, (uint64_t)span };
}
