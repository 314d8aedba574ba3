/* launch_inside.h -- the parts of a launch that touch the system: one rank's process, the secret,
 * the port, and ending whatever is left. */
#ifndef PROGRAMS_LAUNCH_INSIDE_H
#define PROGRAMS_LAUNCH_INSIDE_H

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "programs/launch/launch.h"
#include "programs/place.h"

struct launch_secret {
	int fd; /* -1: none. */
	char file[48];
};

struct launch_child {
	const struct launch *launch;
	uint32_t rank;
	int in, out, err;            /* Become 0, 1, 2. */
	char root[192];              /* host:port */
	const struct places *places; /* With bind_cores. */
	const char *secret_file;
	sigset_t mask;                          /* What was in force before we blocked signals. */
	void (*on_pipe)(int), (*on_input)(int); /* Likewise: SIGPIPE, SIGTTIN. */
	struct rlimit files;                    /* Likewise, before we raised it. */
	int line;                               /* For rank_main; -1: none. */
};

#define LAUNCH_SECRET_TEXT 65 /* 32 bytes in hexadecimal digits. */

/* False: errno says why. */
bool launch_secret_draw(char text[LAUNCH_SECRET_TEXT]);
/* All three print why and return false, or an errno where it says so. given: NULL for a new one. */
bool launch_secret_make(struct launch_secret *secret, const char *given, const char *program);
void launch_secret_remove(struct launch_secret *secret);
/* 127.0.0.1 and a port that nobody uses, which *held keeps from those who ask for any until it is
 * closed; rank 0 may listen there. */
bool launch_root_pick(char *root, size_t root_bytes, const char *program, int *held);

/* Returns 0 once the program or function runs, or an errno: it could not be started. */
int launch_child_start(const struct launch_child *child, pid_t *pid);

/* SIGKILL to all children of ours, adopted ones too, until there are none. */
void launch_sweep(void);

#endif
