/* close.h -- ends communicators. */
#ifndef RB_RUNTIME_CLOSE_H
#define RB_RUNTIME_CLOSE_H

#include "runtime/comm.h"

/* Closes and frees all that there is, also of one that did not open to the end. abort_peers: those
 * who still wait for this rank are to fail. span_ns: how long closing may take. */
void rb_comm_free(struct rubato_comm *comm, bool abort_peers, uint64_t span_ns);

#endif
