/*
 * local.h -- n ranks as threads of this process, without sockets: a bootstrap over a condition
 * variable.
 */
#ifndef TESTS_RUNTIME_LOCAL_H
#define TESTS_RUNTIME_LOCAL_H

#include "runtime/comm.h"
#include "runtime/open.h"
#include "runtime/startup/setup.h"

typedef rubato_status (*local_main)(rubato_comm *comm, void *arg);

/*
 * Runs rank_main on `rank_count` threads, each with its communicator, finalized afterwards; fills
 * status[r] with what rank r's main returned, or the error of opening. `transports` as in rb_setup.
 * Returns the first status that is not OK.
 */
rubato_status local_run(uint32_t rank_count, const struct rb_transport_ops *const *transports,
			local_main rank_main, void *arg, rubato_status *status);

/* Without finalize: the main does that itself, or aborts. */
rubato_status local_run_raw(uint32_t rank_count, const struct rb_transport_ops *const *transports,
			    local_main rank_main, void *arg, rubato_status *status);

/* "ucx", "tcp": UCX, "verbs": libibverbs, where this is built with them; anything else: shared
 * memory. */
const struct rb_transport_ops *local_transport(const char *name);

/* What the rank's first endpoint calls from here on; others' threads may be driving it. */
void local_transport_replace(rubato_comm *comm, const struct rb_transport_ops *ops);

#endif
