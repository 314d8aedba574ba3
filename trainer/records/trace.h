/*
 * trace.h -- what each rank did when, for a timeline: spans of time, kept in memory (the last
 * TR_TRACE_MAX of a rank) and written as trace.json, which Perfetto and chrome://tracing open.
 */
#ifndef TR_TRACE_H
#define TR_TRACE_H

#include <stdbool.h>

#include "trainer/base/error.h"

#define TR_TRACE_MAX (1u << 17) /* Spans of a rank; 32 bytes each. */

enum tr_span {
	TR_SPAN_COMPUTE,       /* A gradient; value: the local step. */
	TR_SPAN_COMMUNICATION, /* Blocked in the library; value: the local step. */
	TR_SPAN_DELAY,         /* An injected delay; value: the local step. */
	TR_SPAN_PAUSE,         /* Tests and reports: not counted as time of the run. */
	TR_SPAN_UPDATE,        /* A moment: an update was applied; value: its round. */
	TR_SPAN_AVERAGE,       /* Models are averaged; value: the local step. */
	TR_SPAN_REDUCTION,     /* One is in flight behind the computation; value: its round. */
	TR_SPAN_COUNT
};

struct tr_trace;

/* `wanted`, the same on all ranks, false: nothing is recorded, and every call is cheap. */
rubato_status tr_trace_open(struct tr_trace **out, bool wanted, struct tr_error *error);
void tr_trace_close(struct tr_trace *trace); /* NULL is fine. */

/* Times are rubato_now()'s; begin = end: a moment, which an update always is. */
void tr_trace_span(struct tr_trace *trace, enum tr_span span, uint64_t begin_ns, uint64_t end_ns,
		   uint64_t value);

/* Collective. `start_ns`: when the run began on this rank. Rank 0 writes folder/trace.json whole or
 * not at all; the others need no folder. */
rubato_status tr_trace_write(struct tr_trace *trace, rubato_comm *comm, const char *folder,
			     uint64_t start_ns, struct tr_error *error);

#endif
