/*
 * links.h -- how fast messages are between nodes: measured once, when a communicator is made,
 * between the first ranks of each node and of the next one, all around at the same time (in turn,
 * where ranks share processors), unless a profile says it, the transport knows or the parent did;
 * and what is known of the memory of a node. All ranks get the same figures, so that they choose
 * alike: of links the slowest ones.
 */
#ifndef RB_RUNTIME_LINKS_H
#define RB_RUNTIME_LINKS_H

#include "runtime/comm.h"

/* With the nodes agreed, and runs possible; fills comm->choices.facts.network and .node. The
 * bootstrap's exchanges are collective. */
RB_NODISCARD rubato_status rb_links_agree(struct rubato_comm *comm, struct rb_bootstrap *bootstrap,
					  uint64_t deadline_ns);

#endif
