/*
 * bench.h -- rubato-bench in three parts: options, measurement, output.
 *
 * What is timed. Before each call the inputs are written anew (a benchmark that repeats a call on
 * untouched inputs measures caches), then a barrier, then the clock around the call, on every rank.
 * An iteration's time is the mean over ranks; median, min, percentiles and max are over iterations.
 * "slowest" is the median over iterations of the largest over ranks: it holds the skew of the
 * barrier's end too. "whole" is the time from the first rank's begin to the last one's end, by the
 * clock of the machine that all run on. Where ranks share cores it is what counts: a rank that
 * keeps its core until it is done has a short time of its own, and the others have yet to begin.
 * With --aggregate N a call is N persistent operations, each on buffers of its own, all started
 * before the first is waited for; its time is an N-th of that.
 * After each call every element of every result is compared with what it must be, bit by bit.
 *
 * Other libraries take turns with ours, SLICES of a case's iterations each, and are stopped
 * meanwhile. Where ranks fit the cores, all are bound, ours as theirs: ranks that slept while a
 * peer was measured may else be woken on one core, and stay there for many calls (allgather of
 * 32 KiB on 2 ranks: 33 us instead of 9).
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "programs/figures.h"
#include "programs/options.h"
#include "programs/results.h"
#include "rubato.h"
#include "tools/bench/peers.h"
#include "tools/known/known.h"

#define BENCH "rubato-bench"

extern const char *const bench_transports[]; /* NULL-terminated; the first is auto. */
extern const char *const bench_commands[];   /* Likewise: partial, then lagged. */

/* ---- Other libraries in the same run ---- */

struct bench_peers {
	uint32_t count; /* Asked for; after bench_peers_open: running, alike on all ranks. */
	char names[PEERS_MAX][PEER_NAME_BYTES];
	struct peer list[PEERS_MAX]; /* On rank 0. */
	struct peer_place place;
	uint32_t bind; /* Of bench_binds. */
	bool leading;  /* This is rank 0. */
};

/* For struct option. */
bool bench_peers_read(const char *option, const char *text, void *to, struct option_error *error);
/* Collective. Those that do not come up are left out, with a line on standard error. */
void bench_peers_open(struct bench_peers *peers, rubato_comm *comm);
void bench_peers_close(struct bench_peers *peers);
/* An array: names, versions, and how long their ranks ran in their turns and between them. */
json_t *bench_peers_json(const struct bench_peers *peers);

extern const char *const bench_binds[]; /* NULL-terminated. */
/* Whether ours and theirs are to be bound; then peers->place has the cores. Before they start. */
bool bench_bind(struct bench_peers *peers, uint32_t rank_count);

/* ---- Options ---- */

struct bench_sizes {
	uint64_t begin_bytes, end_bytes;
};

/* Whose options: the letters, names and defaults are those of another benchmark with --like. */
enum bench_like { LIKE_NONE, LIKE_NCCL_TESTS, LIKE_OSU };
enum bench_like bench_like(int argc, char *const *argv);
/* For struct option, of struct bench_sizes: "MAX", "MIN:MAX", "MIN:". */
bool bench_sizes_read(const char *option, const char *text, void *to, struct option_error *error);
/* What --like osu takes and which is always so here: a row's place is one bool. */
#define BENCH_OSU_ALWAYS(at)                                                                       \
	{ "full", 'f', OPTION_FLAG, at, .help = "nothing: all columns are always there" },         \
		{ "tail-lat", 'z', OPTION_FLAG, at,                                                \
		  .help = "nothing: percentiles are always there" },                               \
	{                                                                                          \
		"validation", 'c', OPTION_FLAG, at, .help = "nothing: results are always checked"  \
	}

struct bench_options {
	enum operation op;
	uint32_t rank_count; /* To start here; 0: join the launcher's job. */
	struct bench_sizes sizes;
	uint64_t step_bytes, factor;
	bool types[RUBATO_TYPE_COUNT];
	bool operators[RUBATO_OPERATOR_COUNT];
	uint32_t root, warmups, iterations;
	uint32_t aggregate; /* Operations that are started before one is waited for; 0: none. */
	bool checked;
	const char *algorithm; /* A name, "auto" or "all". */
	const char *transport;
	char json[PATH_MAX], csv[PATH_MAX]; /* Empty: none. */
	bool registered, explain;
	rubato_wire wire;
	bool places[2];           /* Which to run: [0] out of place, [1] in place. */
	struct bench_peers peers; /* Asked for; those that came up are struct bench's. */
	bool bound;
	int argc;
	char **argv;
};

/* Ends the program with a line on standard error when something is wrong. */
void bench_options_read(int argc, char **argv, struct bench_options *options);

/* ---- Measurement ---- */

struct bench_case { /* One cell of the table to be. */
	rubato_type type;
	rubato_operator op;
	const char *algorithm; /* "auto", or one that is forced. */
	uint64_t count;        /* As the call takes it; v-variants: the even share. */
	uint64_t size_bytes;   /* As nccl-tests counts: of all ranks for scattered operations. */
	bool in_place;
};

struct bench_result {
	bool ran; /* false: not wanted, or the algorithm cannot run here. */
	double median_us, mean_us, min_us, p90_us, p99_us, max_us, slowest_us;
	double whole_us;                       /* NAN: the ranks have several clocks. */
	uint64_t wrong;                        /* Elements, over all ranks and iterations. */
	struct ratio_figures over, whole_over; /* A peer's: our time over its time. */
};

struct bench {
	const struct bench_options *options;
	rubato_comm *comm;
	uint32_t rank, rank_count;
	void *in, *out;
	size_t call_bytes;   /* Of these, for each of the calls that are timed at once. */
	struct known *known; /* Of each call that is timed at once; its number: calls so far. */
	struct peer_time *times, *all_times; /* iterations; rank_count * iterations. */
	double *sorted;                      /* iterations */
	double *means, *wholes;              /* iterations, in order: of ours. */
	bool one_clock;
	uint64_t *counts; /* Of the v-variants. */
	struct bench_peers peers;
};

/* Fails with a line on standard error and status 1. */
void bench_open(struct bench *bench, const struct bench_options *options);
void bench_close(struct bench *bench);
/* Ours and, in turn with it, each peer's; theirs[] is filled on rank 0, ran false where one cannot
 * (its why_not says why). */
rubato_status bench_measure(struct bench *bench, const struct bench_case *what,
			    struct bench_result *ours, struct bench_result theirs[PEERS_MAX]);
/* If `status` is an error: says what failed, and ends the program. */
void bench_check(const struct bench *bench, rubato_status status, const char *what);

/* Runs rank_main in this process, or in `rank_count` ranks that it starts here; the exit status. */
int bench_start(uint32_t rank_count, bool bind, int (*rank_main)(void *arg, int line_fd),
		void *arg);
/* The operations partial and lagged. */
int bench_relaxed(int argc, char **argv, bool lagged);

/* With --overlap: how much of an operation is hidden behind computation. */
int bench_overlap(int argc, char **argv);
/* With --tune: a profile of this job's links and memory. */
int bench_tune(int argc, char **argv);

/* ---- Output ---- */

struct bench_output {
	const struct bench_options *options;
	const struct bench_peers *peers;
	uint32_t rank_count;
	FILE *text;      /* NULL: not on this rank, or standard output is for JSON. */
	json_t *results; /* An array. */
	uint64_t wrong, rows;
	double busbw_sum, busbw_peak, floor_us;
};

/* Ends the program with a line where one cannot be written ("": none). Rank 0's, and before that of
 * who starts ranks: one that ends later makes the others say so, too. */
void bench_results_check(const char *json, const char *csv);
void bench_output_open(struct bench_output *output, struct bench *bench);
/* places[0] and [1]: out of place and in place. `used`: the algorithm that runs; `why`: or NULL. */
void bench_output_row(struct bench_output *output, const struct bench_case *what, const char *used,
		      const char *why, const struct bench_result places[2]);
/* A peer's row: its name in place of the algorithm's, and our time over its. */
void bench_output_peer(struct bench_output *output, const struct bench_case *what,
		       const struct peer *peer, const struct bench_result places[2]);
void bench_output_note(struct bench_output *output, const char *text);
/* What was given. */
json_t *bench_args_json(int argc, char **argv);
/* The program's exit status. */
int bench_output_close(struct bench_output *output);

#endif
