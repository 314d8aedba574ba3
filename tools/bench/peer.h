/*
 * peer.h -- other libraries measured in the same run: rubato-bench --peer.
 *
 * Rank 0 of the benchmark starts each peer's ranks (mpirun, or one process a rank) and leads them
 * over a socket a rank: they are stopped (SIGSTOP) while others are measured, and our ranks sleep
 * while they are. A command is a slice of iterations of one case; the answer is when each began
 * and ended.
 *
 * A rank's command line: SOCKET CPUS [RANKS]. CPUS is "-", or a list with commas between: rank i
 * binds itself to the i-th, as ours is bound.
 */
#ifndef TOOLS_PEER_H
#define TOOLS_PEER_H

#include <stdint.h>

#define PEER_MAGIC 0x52504532u
#define PEER_TEXT_BYTES 128
#define PEER_NAME_BYTES 32

struct peer_hello { /* From each rank, once. */
	uint32_t magic, rank, rank_count, reserved;
	char library[PEER_TEXT_BYTES]; /* "Open MPI 4.1.4" */
};

struct peer_command {
	uint32_t magic;
	uint32_t end; /* 1: there is nothing more; no answer. */
	char op[24], type[16], reduction[8];
	uint32_t root, in_place;
	uint32_t iterations, skew_kind;
	uint64_t count, size_bytes;
	uint64_t call; /* Number of the first: makes inputs differ. */
	/* Under skew: iteration i begins at t0_ns + i * period_ns + its skew, on
	 * CLOCK_MONOTONIC. */
	uint64_t t0_ns, period_ns, skew_ns, skew_seed;
	uint32_t skew_rank, first_iteration;
};

struct peer_time { /* Of one call on one rank: CLOCK_MONOTONIC. */
	double begin_us, end_us;
};

struct peer_answer { /* Then `iterations` of struct peer_time. */
	uint32_t magic;
	uint32_t unsupported; /* 1: `text` says why; no times follow. */
	uint64_t wrong;
	char text[PEER_TEXT_BYTES];
};

#endif
