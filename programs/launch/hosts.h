/*
 * hosts.h -- a job on several hosts: on each, over ssh, a rubato-run starts its part of the ranks.
 *
 * The part is told on its standard input what it is (the secret is on no command line), and ends
 * its ranks when that input ends: so they end when this process does, or ssh, or the network. Its
 * input is therefore no rank's. When something fails there, the part says its exit status on its
 * standard error at once, in a line that is not shown: so a job's is that of the failure that came
 * first here, though the host may be the last to end.
 */
#ifndef PROGRAMS_HOSTS_H
#define PROGRAMS_HOSTS_H

#include "programs/launch/launch.h"
#include "programs/values.h"

#define HOSTS_MAX 256
#define HOST_NAME_BYTES 128
#define HOSTS_SSH_WORDS 64

struct host {
	char name[HOST_NAME_BYTES]; /* Perhaps with user@ before it. */
	uint32_t room;              /* Ranks; 0: not said. */
	uint32_t first, count;      /* The ranks it gets, once they are dealt. */
};

struct hosts {
	uint32_t count;
	struct host list[HOSTS_MAX];
};

/* `text` is a file, a host a line ("node1", "node1:4", "node1 slots=4", # begins a comment), or a
 * list "node1:4,node2". A host that comes again has the room of both. */
bool hosts_read(const char *text, struct hosts *hosts, struct option_error *error);
/* In order, each as many as it has room for; where no host says, evenly. ranks 0: as many as there
 * is room for, which is one where nothing is said. */
bool hosts_deal(struct hosts *hosts, uint32_t ranks, struct option_error *error);
/* As launch_ranks(). `ssh`: 1 to HOSTS_SSH_WORDS words, before a host's name. */
int hosts_launch(const struct hosts *hosts, const struct launch *launch, const char *ssh);
/* The part of one host, on which hosts_launch() has started us. */
int hosts_part(const char *program);

#endif
