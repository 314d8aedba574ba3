/*
 * unmatched.h -- messages that have come and find no receive: most are of calls that this rank has
 * yet to make. Some tell that ranks call different things: those of a call that this rank is in,
 * with another signature, and those of a call that it has completed without them, since a
 * collective's messages all have their receive in the same call.
 *
 * So two ranks that never wait for each other (a small broadcast with two roots) are found out,
 * too: at the next sleep, within RB_CALLS_REMEMBERED calls, or when the communicator ends. Two that
 * both only wait (a gather with two roots) send each other nothing, so who has waited for long
 * tells those that it waits for what it calls: a probe is a message that never has a receive.
 */
#ifndef RB_RUNTIME_UNMATCHED_H
#define RB_RUNTIME_UNMATCHED_H

#include "runtime/comm.h"

/* From then on looked for before each sleep. */
void rb_unmatched_open(struct rubato_comm *comm);
/* Whether a message lies here that shows that ranks call different things: that poisons. */
void rb_unmatched_look(struct rubato_comm *comm);
/* The same when all ranks have come to the end: then nothing may be left. */
RB_NODISCARD rubato_status rb_unmatched_end(struct rubato_comm *comm);
/* "; rank 2 is in barrier, call 3, which rank 0 has not called", if a message tells of one; else
 * nothing. `run`: of those that it waits for, only; NULL: of all. Returns text. */
char *rb_unmatched_ahead(struct rubato_comm *comm, const struct rb_run *run, char *text,
			 size_t text_bytes);
/* "; rank 0 has started persistent operation 3, allreduce ..., which rank 1 has not", if a rank
 * that the blocking call in flight waits for has begun the persistent form of it, or "makes" one,
 * of whatever kind, if it waits in there; else nothing. Only a deadline makes that an error:
 * another thread may yet do so here. Returns text. */
char *rb_unmatched_persistent(struct rubato_comm *comm, char *text, size_t text_bytes);

#endif
