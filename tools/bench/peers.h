/* peers.h -- leads other libraries' ranks: the leader's side of peer.h. On rank 0 only. */
#ifndef TOOLS_PEERS_H
#define TOOLS_PEERS_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tools/bench/peer.h"

#define PEERS_MAX 8

struct peer_place {        /* Where peers are found, and where their ranks run. */
	char prefix[1000]; /* Of tools/peers; empty: the system's. */
	char cpus[1000];   /* "0,2": rank i on the i-th; empty: anywhere. */
	cpu_set_t allowed; /* What they start with: the leader may be bound already. */
};

struct peer {
	char name[PEER_NAME_BYTES];        /* As --peer has it. */
	char library[PEER_TEXT_BYTES];     /* As it says itself. */
	char why_not[2 * PEER_TEXT_BYTES]; /* Not running: why. */
	char folder[64];                   /* Of its socket. */
	bool running;
	pid_t pid;
	int output;   /* What it prints: shown when it fails. */
	int *sockets; /* Per rank. */
	pid_t *pids;  /* Likewise: its processes. */
	pid_t helper; /* Wakes them when we have gone: peer_stop.c. */
	int helper_pipe;
	bool stopped;
	/* CPU time of all ranks: in all, in its turns, between them, when it was to be stopped. */
	uint64_t ran_ns, turn_ns, between_ns;
	uint32_t turns;
	uint32_t rank_count;
	uint64_t timeout_ns;
};

/* Whether `name` is one that --peer takes; the list of them, for messages. */
extern const char *const peer_names[]; /* NULL-terminated. */

/* A program of ours that users do not start: beside rubato-bench, or where it is installed, which
 * is told from where we are. */
bool bench_helper_find(const char *name, char *path, size_t path_bytes);

/* Starts it; its ranks are stopped but while peer_run runs. false: not here, or it did not come up;
 * why_not says it. */
bool peer_open(struct peer *peer, const char *name, const struct peer_place *place,
	       uint32_t rank_count, uint64_t timeout_ns);
/* times: [rank_count][iterations]. false: not supported, or it failed (then
 * peer->running is false); why_not says it. */
bool peer_run(struct peer *peer, const struct peer_command *command, struct peer_time *times,
	      uint64_t *wrong);
/* Ends it, bounded. */
void peer_close(struct peer *peer);

#endif
