/* info.h -- the sections of rubato-info: each prints its text and adds its JSON. */
#ifndef TOOLS_INFO_H
#define TOOLS_INFO_H

#include <stdint.h>
#include <stdio.h>

#include "programs/results.h"
#include "rubato.h"

#define INFO "rubato-info"

struct info_proof {            /* --prove: of what. */
	const char *operation; /* NULL: no proofs are wanted. */
	char *algorithm;       /* NULL or "all": all of them. */
	uint32_t root;
	uint64_t count, timeout_ns;
	/* Ranks of each node, and again from the first until all have one; none: all are on one. */
	uint32_t node_count, node_ranks[RUBATO_PROVE_RANKS_MAX];
};

struct info {
	FILE *text;          /* NULL: standard output is for JSON. */
	json_t *json;        /* An object: every section adds a key. */
	uint32_t rank_count; /* --topology: ranks to place. */
	const char *system;  /* Likewise: of whose /sys; NULL: this machine's. */
	uint32_t failures;   /* Counted by the doctor. */
	const struct info_proof *proof;
};

struct info_ranks { /* Of the job, as this rank sees them; at: the caller's to free. */
	uint32_t own, count;
	rubato_peer *at;
};

struct info_probe { /* What happened when two ranks met over one transport. */
	const char *transport;
	bool device; /* Each with CUDA device 0. */
	bool works;
	char text[256]; /* Why not. */
	char way[256];  /* What carried the data, by name; empty: it has none. */
};
#define INFO_TRANSPORTS 4
void info_probe(struct info_probe probes[INFO_TRANSPORTS]);
void info_probe_one(struct info_probe *probe);

void info_version(struct info *info, const struct info_probe probes[INFO_TRANSPORTS]);
void info_devices(struct info *info);
/* false: the topology or the settings cannot be read; said on standard error. */
bool info_topology(struct info *info);
/* Joins the job that the environment describes. false: it cannot; said on standard error. */
bool info_ranks_gather(struct info_ranks *ranks);
void info_ranks(struct info *info, const struct info_ranks *ranks);
bool info_config(struct info *info);
/* false: ranks of this machine cannot run; said in a line that begins with FAIL. */
bool info_doctor(struct info *info, const struct info_probe probes[INFO_TRANSPORTS]);

/* A line of the doctor: ok, or warn. */
void info_say(struct info *info, const char *check, bool good, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Its lines on CUDA devices. */
void info_cuda(struct info *info);
/* Its lines on RDMA; system: /sys. */
void info_rdma(struct info *info, const char *system);

/* For forms_of: what may be proved. */
const char *const *info_operations(void);
/* Ends the program where they are not good. */
void info_proof_check(const struct info_proof *wanted, uint32_t rank_count);
/* false: at least one is wrong, or not known to be right. */
bool info_prove(struct info *info);

/* First line of a small file without its end; false: cannot be read. */
bool info_line(const char *path, char *line, size_t line_bytes);

#endif
