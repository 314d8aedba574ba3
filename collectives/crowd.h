/* crowd.h -- what it costs that ranks share cores: a rank that waits gives turns to the others. */
#ifndef RB_COLLECTIVES_CROWD_H
#define RB_COLLECTIVES_CROWD_H

#include "collectives/algorithms.h"

#define RB_MESSAGE_US 0.15 /* Guess: post, match and complete. */

/* Ranks for each core of the machine with the most; not known: 1. */
double rb_crowd(const struct rb_choice_facts *facts);

/*
 * Of a binomial tree, so many times as many ends of its messages are on the core that has most as
 * on one in the mean. Processes that are started one after the other are mostly left on core after
 * core, rank k on core k modulo cores: those with children are on the root's, and with two cores
 * all of them. 1: each rank has a core, or there are several machines.
 */
double rb_crowd_tree(const struct rb_choice_facts *facts);

/* Within a node, in microseconds: a wait for another rank, turns included, and what a message keeps
 * one end busy. */
double rb_crowd_phase_us(const struct rb_choice_facts *facts);
double rb_crowd_message_us(const struct rb_choice_facts *facts);

#endif
