/*
 * sim.h -- rubato-sim in four parts: options, one simulated call after the other, campaigns, and
 * the program with its output.
 *
 * Everything that is printed is a function of the command line: times are virtual, nothing of this
 * machine or this moment is in it, so equal seeds give equal bytes.
 */
#ifndef TOOLS_SIM_H
#define TOOLS_SIM_H

#include <limits.h>

#include "programs/figures.h"
#include "programs/operations.h"
#include "programs/options.h"
#include "programs/results.h"
#include "programs/rng.h"
#include "programs/skew.h"
#include "rubato_sim.h"

#define SIM "rubato-sim"
#define SIM_FAULTS_MAX 64
#define SIM_NODES_MAX 64
#define SIM_ALGORITHM_BYTES 64

extern const char
	*const sim_commands[]; /* NULL-terminated: partial, lagged, laws, choice, campaign. */

struct sim_options {
	enum operation op;
	rubato_sim_options cluster;
	rubato_sim_fault faults[SIM_FAULTS_MAX];
	uint32_t node_ranks[SIM_NODES_MAX];
	uint64_t begin_bytes, end_bytes, factor;
	rubato_type type;
	rubato_operator reduction;
	uint32_t iterations, root;
	struct skew skew;
	char algorithm[SIM_ALGORITHM_BYTES]; /* A name or "auto". */
	char json[PATH_MAX];                 /* Empty: none. */
	bool reorder;                        /* As cluster has it. */
	bool helped, at_once;
	int argc;
	char **argv;
};

/* Ends the program with a line on standard error when something is wrong. */
void sim_options_read(int argc, char **argv, struct sim_options *options);
/* Its parts, for the other commands: what comes before reading; rows of struct sim_options, of the
 * simulated cluster, its network and --json; what was given, but for --json. */
void sim_options_init(struct sim_options *options, int argc, char **argv);
extern const struct option sim_cluster_rows[], sim_json_rows[];
/* Ends the program, too, where there can be no such cluster: the simulator is asked. */
void sim_cluster_fit(const struct sim_options *options);
/* After a run of `what`: a line on standard error where some were of no effect. */
void sim_faults_tell(const struct sim_options *options, const char *what,
		     const rubato_sim_result *result);
json_t *sim_args_json(int argc, char **argv);
/* Takes the document; false after a line on standard error: not all of it could be written. */
bool sim_json_write(const char *path, json_t *root);

/* ---- Calls with known results ---- */

struct sim_inputs {     /* Of all ranks, which are many: cuts of some sequences (known.h). */
	char *at;       /* These, one after the other. */
	uint64_t count; /* Elements of each. */
	uint64_t salt;  /* Of the call that they are written for, */
	bool written;   /* if for any. */
};

struct sim_call { /* The same on every rank. */
	enum operation op;
	rubato_type type;
	rubato_operator reduction;
	uint64_t count; /* As the call takes it; v-variants: the even share (operations.h). */
	uint32_t root;
	uint64_t salt; /* Makes each call's inputs differ. */
	bool rough;    /* Floats that round: only the equality of ranks' bits can be checked. */
	struct sim_inputs *inputs; /* NULL: each rank writes its own. */
	rubato_op *started;        /* Made of these: started instead of a call. NULL: none. */
};

struct sim_times { /* Of one rank in one call, virtual. */
	uint64_t enter_ns, leave_ns;
};

/* Makes shared inputs for calls like this one among so many ranks, if that spares memory; false: no
 * memory. The caller frees inputs->at. */
bool sim_inputs_open(struct sim_inputs *inputs, struct sim_call *call, uint32_t rank_count);
/* This rank's of them. */
void *sim_inputs_of(const struct sim_call *call, uint32_t rank);
/* Writes the inputs, waits until times->enter_ns, makes the call, and adds the number of elements
 * that are wrong. `in` and `out` have room for operation_in and operation_out elements; the caller
 * has put into `out` what is no result. */
rubato_status sim_call_make(rubato_comm *comm, const struct sim_call *call, void *in, void *out,
			    struct sim_times *times, uint64_t *wrong);
uint64_t sim_call_out_bytes(rubato_comm *comm, const struct sim_call *call);
/* Of the output, where this rank has one that all ranks (with one) share; else 0. */
uint64_t sim_call_digest(rubato_comm *comm, const struct sim_call *call, const void *out);

/* Measures sizes and prints the table. The exit status. */
int sim_table(const struct sim_options *options);
/* The commands partial and lagged: argv[0] is the word. The exit status. */
int sim_relaxed_command(int argc, char **argv, bool lagged);
/* The commands choice and campaign: likewise. */
int sim_choice_command(int argc, char **argv);
int sim_campaign_command(int argc, char **argv);

#endif
