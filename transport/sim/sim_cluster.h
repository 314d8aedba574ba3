/*
 * sim_cluster.h -- a cluster of ranks in one thread, in virtual time: what runs on it, not in it.
 *
 * Each rank is a process; its main runs as a fiber until it blocks in the transport's wait (or
 * sleep). When every rank blocks, time jumps to the next event. Events are ordered by (time, order
 * of making), chance comes from the seed, so that a cluster is a function of its options and its
 * program.
 *
 * The model (docs/simulator.md). A message of s bytes leaves when its sender's card is free, takes
 * s / bandwidth on it, travels for one latency (stretched by jitter), and arrives when the
 * receiver's card has been free for s / bandwidth. Cards serve whole messages in turn; the ranks of
 * a node may share some. Within a node each rank has a link of its own, and there is another
 * latency; a message to oneself takes no time. With `reorder`, one message in four is held back by
 * up to two latencies more; without, messages of one pair arrive in order. sim_way.h says what
 * leaves at once and what waits for its receive: request, grant and data take three latencies.
 * Computation takes no time, except in sleep. Nor do messages' handling, copies and reductions, but
 * for options.costs: what these say keeps the fiber from running for so long, so that its processor
 * does one thing at a time; where memory takes time, messages within a node take a copy by each
 * side instead of a link. Ranks may share cores (sim_core.c): then they also take turns.
 *
 * Faults. Frozen: what would happen to the rank waits, in its order, until it thaws. Cut: messages
 * between the two wait until the cut ends. Crashed: the rank stops where it blocks; what it had
 * sent eagerly still arrives; its peers learn of it detect_ns later.
 *
 * The afterlife. When the others have ended, a crashed rank is entered once more, on a network that
 * has gone silent and with a clock that jumps to whatever it waits for: its calls time out, so it
 * returns and frees what it holds. The same happens to all ranks when the cluster ends early,
 * because time_max_ns has passed or because nothing can happen any more and somebody waits without
 * deadline.
 */
#ifndef RB_TRANSPORT_SIM_CLUSTER_H
#define RB_TRANSPORT_SIM_CLUSTER_H

#include "base/status.h"
#include "rubato_sim.h"

struct rb_sim_cluster; /* rb_transport_options.backend of its endpoints. */
struct rb_sim_process; /* One rank: its fiber. */

/* Copies the options; 0 means the defaults of rubato_sim.h. Errors: ARGUMENT, MEMORY. */
RB_NODISCARD rubato_status rb_sim_cluster_open(const rubato_sim_options *options,
					       struct rb_sim_cluster **out);
/* Frees everything, endpoints and memory of ranks included. NULL is fine. */
void rb_sim_cluster_close(struct rb_sim_cluster *cluster);

struct rb_sim_process *rb_sim_cluster_process(struct rb_sim_cluster *cluster, uint32_t rank);

/* Runs main as a fiber for each rank until all have returned; once in a cluster's life. The status
 * is TIMEOUT when the cluster had to end them, else the first error that a rank returned, crashed
 * ranks left out. */
RB_NODISCARD rubato_status rb_sim_cluster_run(struct rb_sim_cluster *cluster,
					      rubato_status (*main)(struct rb_sim_process *process,
								    void *arg),
					      void *arg);
void rb_sim_cluster_result(const struct rb_sim_cluster *cluster, rubato_sim_result *result);

/* rubato_sim_reseed: of the network, and of this rank. */
struct rb_endpoint;
void rb_sim_reseed(struct rb_endpoint *ep, uint64_t number);
/* rubato_sim_hollow: of this rank. NULL: not in a hollow cluster, or all is given out. */
void *rb_sim_hollow(struct rb_endpoint *ep, size_t bytes);

/* ---- For what runs beside an endpoint, on a rank's fiber: start-up ---- */

uint32_t rb_sim_process_rank(const struct rb_sim_process *process);
uint64_t rb_sim_process_now(const struct rb_sim_process *process);
/* Blocks until unpark, a lost rank, or the deadline. May return early: ask again for what it
 * was. */
void rb_sim_process_park(struct rb_sim_process *process, uint64_t deadline_ns);
void rb_sim_process_unpark(struct rb_sim_process *process);
/* Whether this rank has crashed or its cluster has ended: nobody will answer any more. */
bool rb_sim_process_alone(const struct rb_sim_process *process);
/* Whether peers have learned of a crash or an abort, and of whose first. */
bool rb_sim_cluster_lost(const struct rb_sim_cluster *cluster, uint32_t *rank);

#endif
