/*
 * peer_rank.h -- a rank that rubato-bench leads (peer.h), whatever it measures: commands, inputs,
 * times, results. Values, barriers, and what is timed are those of rubato-bench.
 */
#ifndef TOOLS_PEER_RANK_H
#define TOOLS_PEER_RANK_H

#include "tools/bench/peer.h"
#include "tools/known/known.h"

struct peer_rank {
	int socket;
	uint32_t rank, rank_count;
	struct peer_command command;
	struct operation_call call; /* What it asks for. */
	void *in, *out;
	int *counts, *starts; /* Of the v-variants: operations.h. */
	size_t bytes;         /* Of in and of out. */
	struct known known;
	const struct peer_library *library;
	void *library_data;
};

struct peer_library {
	char name[PEER_TEXT_BYTES]; /* With its version. */
	/* Why it cannot do what p->call has; NULL: it can. */
	const char *(*fit)(struct peer_rank *p);
	void (*call)(struct peer_rank *p);
	void (*barrier)(struct peer_rank *p);
	/* In-place forms as MPI has them; else there are none. */
	bool in_place;
};

/* The rank's part, until the leader has nothing more. False: it failed. */
bool peer_rank_run(struct peer_rank *p, const char *socket_path, const char *cpus);

#endif
