/* waiting.h -- how long to poll, when to yield and when to sleep. */
#ifndef RB_RUNTIME_WAITING_H
#define RB_RUNTIME_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct rb_waiting {        /* From the costs of this machine. */
	uint64_t spin_ns;  /* Poll without giving the core away. */
	uint64_t yield_ns; /* Then poll between yields, for so long; then sleep. */
	uint32_t empty;    /* Polls of late in which nothing came. */
	bool gives_way;    /* Yields between polls, while it spins. */
	bool forced;       /* As it is, whatever sleeps teach. */
};

/* From waking a sleeper until it runs. Takes about half a millisecond. */
uint64_t rb_waiting_measure(void);
/* Pure: for host_ranks that share `cores`. */
struct rb_waiting rb_waiting_choose(uint64_t wake_ns, uint32_t host_ranks, uint32_t cores);
/* While a network's latency is measured, which a sleep would add to. */
void rb_waiting_unknown(struct rb_waiting *waiting);
/* Ranks are awaited over a network, too, which takes so long one way; 0: not known. */
void rb_waiting_network(struct rb_waiting *waiting, double latency_us);
/* From one thread of a core to another and no more than that: measured, takes some 0.5 ms; 0: it
 * could not be. */
uint64_t rb_waiting_turn_ns(void);
/* How long to poll now; what a poll teaches in which something came; and what a sleep does. */
uint64_t rb_waiting_spin_ns(const struct rb_waiting *waiting);
/* Polls have found nothing of late, though what they were for came soon. */
bool rb_waiting_in_vain(const struct rb_waiting *waiting);
void rb_waiting_found(struct rb_waiting *waiting);
void rb_waiting_slept(struct rb_waiting *waiting, uint64_t slept_ns);
/* Measures what *wake_ns does not say (0), and chooses; forced_ns > 0 is RUBATO_SPIN, and is taken
 * as it is. */
struct rb_waiting rb_waiting_find(uint64_t *wake_ns, uint32_t host_ranks, uint32_t cores,
				  uint64_t forced_ns);

#endif
