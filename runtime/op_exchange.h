/*
 * op_exchange.h -- where peers' buffers are, for algorithms that touch them in place.
 *
 * A persistent operation binds: it exchanges that once, when it is created; a one-shot does so at
 * every call, by an allgather of one record per rank, which serves as the entry synchronisation
 * too (RB_STEP_ENTRY steps are then left out). Every rank sees all records, so all see alike
 * whether all buffers are mapped: if not, all take the algorithm that stages the data through
 * mapped scratch. So callers may mix plain and allocated buffers as they like. Who knows by its own
 * that they are not does its first copies before it writes its record, and says so there
 * (RB_STEP_AHEAD). An algorithm that
 * touches the memory of its own node only (rb_algorithm.by_node) asks the ranks of that node
 * alone: nodes may decide differently, as both of its forms send the same messages between them.
 *
 * An ALLTOALLV is exchanged by pairs (rb_plan_by_pairs). Two ranks that have only short blocks for
 * each other send these, and tell each other nothing. The others tell each other where the blocks
 * lie that concern the two, and decide for themselves what is mapped: to work in each other's
 * memory, or to send messages after all. What a pair does no third rank needs to know, as the
 * messages of its other pairs are the same. What both have for each other is compared by the
 * signature that their records carry, as by that of their messages.
 *
 * For puts a record also has keys of what they may write: not one for each peer, but one for each
 * transport, so that records stay as long as they are however many ranks there are. A peer opens
 * that of the transport between the two, and only where it puts. A rank that has no key of what
 * should be put to, as the memory cannot be registered or lies on a device that the transport does
 * not reach, says so in its record; then all take an algorithm without puts.
 *
 * A word of device memory is its address where all of the node are one process. Else it is that
 * of a share (executor.h), which lies in memory that peers map. Whether they can open it, they know
 * when they have tried, so a second exchange follows: whether each could. When that is over all
 * shares have been read. If one rank could not, all take the other form, and the communicator
 * shares no device memory any more; by pairs, those two.
 */
#ifndef RB_RUNTIME_OP_EXCHANGE_H
#define RB_RUNTIME_OP_EXCHANGE_H

#include "runtime/op.h"

/* Room for the records, and op->exchange ready to run. */
RB_NODISCARD rubato_status rb_exchange_prepare(struct rubato_op *op);
/* This rank's record; op->exchange carries it. */
void rb_exchange_write(struct rubato_op *op);
/* It has been written: by it alone, all ranks will take the algorithm through scratch. */
bool rb_exchange_is_staged(const struct rubato_op *op);
void rb_exchange_ahead(struct rubato_op *op); /* Says in it that this rank has gone ahead. */
/* With all records here: *asks: device memory of other processes is to be opened, and was, so far
 * as it could be; op->exchange then carries whether all of it, from `opened` to `all_opened`. */
RB_NODISCARD rubato_status rb_exchange_open(struct rubato_op *op, bool *asks);
void rb_exchange_opened(struct rubato_op *op); /* It has. */
/* With all records here: which plan can run, the same on every rank; op->peers is filled. NULL:
 * neither, as puts do not reach all that they would write; or, by pairs, one where others are
 * apart, as op->exchange.apart says. */
RB_NODISCARD rubato_status rb_exchange_use(struct rubato_op *op, struct rb_plan **out);
/* Peers' memory is let go, and what was registered for them. */
void rb_exchange_release(struct rubato_op *op);

#endif
