/*
 * relaxed.h -- measures partial and lagged allreduces against the synchronous one, on whatever
 * transport the communicator has: rubato-bench and rubato-sim share it.
 *
 * Partial. Iteration n of rank i begins at the absolute time t0 + n * period + its skew, or when
 * its call before has ended. Timed is what a rank spends in the call: commit, and collecting until
 * there is nothing to wait for; or the synchronous allreduce. All forms run in the same job, in
 * turn, in slices of the iterations. Each partial operation is drained after its slice.
 *
 * Conditions are equal: inputs are written before each call, where nobody is late a barrier is just
 * before it, and the synchronous forms go round as many inputs and results as the first policy was
 * seen to use in the warm-up. A form that goes round eight results finds less of them in the caches
 * than one that has but one.
 *
 * With a closed loop there are no absolute times: a rank works for its skew, calls, and goes on.
 * Then the time of the whole counts, from a slice's common begin until all ranks have drained.
 *
 * Lagged. A step is `accumulate` micro-batches of compute_ns, then the reduction.
 *
 * Contribution number s of rank i is a(i, s) + b(place), small integers: a result is right when it
 * is the sum over exactly the contributions that its round names.
 */
#ifndef TOOLS_RELAXED_H
#define TOOLS_RELAXED_H

#include <limits.h>
#include <stdio.h>

#include "programs/figures.h"
#include "programs/options.h"
#include "programs/results.h"
#include "programs/skew.h"
#include "rubato_sim.h"

#define RELAXED_FORMS_MAX 16
#define RELAXED_SLICES 8
#define RELAXED_PEERS_MAX 4
#define RELAXED_POLICIES_MAX (RELAXED_FORMS_MAX - 2 - RELAXED_PEERS_MAX)

extern const char *const relaxed_types[], *const relaxed_reductions[]; /* NULL-terminated. */

struct relaxed_options {
	const char *program;
	bool lagged;
	rubato_partial_options partial; /* All but the policy. */
	struct relaxed_policy {
		rubato_partial_options options; /* Whole, after relaxed_fit. */
		char name[32];                  /* Of rubato_policy_format. */
	} policies[RELAXED_FORMS_MAX];
	uint32_t policy_count;
	struct skew skew;
	uint64_t period_ns; /* 0: a quarter more than the largest skew, and time for the call. */
	uint64_t seed;
	uint32_t iterations, warmups, loop;
	bool helped;           /* The helped allreduce, too. */
	char ledger[PATH_MAX]; /* Empty: none. See ledger.h. */
	uint64_t size_bytes;
	uint32_t type, reduction; /* Of relaxed_types, relaxed_reductions. */
	uint32_t lag, accumulate; /* accumulate 0: until done. */
	uint64_t compute_ns;
	/* Other libraries' synchronous allreduce, beside ours: how many, alike on all ranks; on
	 * rank 0 runs iterations first .. first + count - 1 of one; times: [ranks][count], us. */
	uint32_t peer_count;
	const char *peer_names[RELAXED_PEERS_MAX];
	bool (*peer_slice)(void *arg, uint32_t peer, uint32_t first, uint32_t count,
			   uint64_t period_ns, double *times, uint64_t *wrong);
	void *peer_arg;
};

/* Rows of struct relaxed_options: of both operations, and of one. */
extern const struct option relaxed_rows[], relaxed_rows_partial[], relaxed_rows_lagged[];
/* Before reading. */
void relaxed_init(struct relaxed_options *o, const char *program, bool lagged);
/* After reading: what must fit `rank_count` (0: not known yet). Ends the program if not. */
void relaxed_fit(struct relaxed_options *o, uint32_t rank_count);

struct relaxed_form {  /* One row of the result, the same on every rank afterwards. */
	char name[48]; /* "allreduce", or the policy; "allreduce", "lagged"; a peer's. */
	bool whole;    /* An allreduce of all: ours, the helped one, another library's. */
	struct times_figures times; /* In the call. Lagged: the median alone. */
	double cpu_us;              /* Of a rank's process per iteration; < 0: not known. */
	double fresh_mean, contributors_mean; /* Over rounds that a contribution opened. */
	uint64_t rounds, staleness_max, wrong;
	double round_us[4]; /* Mean over rounds, of rank 0: rubato_partial_stats. */
	double spent_us
		[5]; /* Of times.mean_us: waiting in each phase, and not waiting. Partial only. */
	double step_us, idle, overlap; /* Lagged: of a step; share not computing; hidden. */
	double loop_us;                /* Closed loop: of all slices, begin to drained. */
	struct ratio_figures over; /* Of the medians: this form's over the first's. Partial only. */
	uint32_t inputs, results;  /* Different ones that a rank has used. Not of a peer. */
};

/* Collective. Returns how many forms; < 0: failed, rubato_error_text() says why. `cpu`: whether the
 * process's CPU time means anything. */
int relaxed_measure(rubato_comm *comm, const struct relaxed_options *o, bool cpu,
		    struct relaxed_form forms[RELAXED_FORMS_MAX]);

/* The table, its head included. ratio: the first form's mean time in the call over this one's. */
void relaxed_text(FILE *file, const struct relaxed_options *o, const char *where,
		  uint32_t rank_count, const struct relaxed_form *forms, int form_count);
json_t *relaxed_json(const struct relaxed_options *o, uint32_t rank_count,
		     const struct relaxed_form *forms, int form_count);

#endif
