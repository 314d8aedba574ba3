/*
 * launch.h -- runs the ranks of a job on this machine: behind rubato-run, rubato-bench -n and
 * rubato-train -n. Of a job on several hosts it runs one host's part, or what reaches each host
 * (hosts.h).
 *
 * Each rank is a child in its own process group with RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT and
 * RUBATO_SECRET_FILE: a program, or a fork of this one that runs a function. Promises:
 *   - every rank ends when this process does, however it ends (parent-death signal);
 *   - when launch_ranks returns, no descendant of ours is left: processes that outlived their rank
 *     are adopted (subreaper) and ended;
 *   - the secret lies in memory, in a descriptor of this process's that RUBATO_SECRET_FILE names,
 *     mode 0600: it goes when this process does, however that ends;
 *   - ending is SIGTERM, then SIGKILL after LAUNCH_GRACE_NS;
 *   - SIGUSR1 and SIGUSR2 are passed on to the ranks of this machine.
 */
#ifndef PROGRAMS_LAUNCH_H
#define PROGRAMS_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#define LAUNCH_RANKS_MAX 4096
#define LAUNCH_GRACE_NS 3000000000u /* Guess: enough to write a checkpoint's last lines. */

struct buffer;

#define EXIT_TIMED_OUT 124
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND 127

/* Standard output and error of the ranks. */
enum launch_output {
	LAUNCH_LINES,       /* Each line with its rank before it. */
	LAUNCH_ERROR_LINES, /* Only of standard error; output as it is. */
	/* Both as they are, and of all that is said about a failure one line: that a rank was ended
	 * by a signal, else what came first. For rank_main only. */
	LAUNCH_RAW,
};

struct launch {
	const char *program; /* Who speaks in messages. */
	char *const *argv;   /* What is run: argv[0] is looked up in PATH. */
	/* In place of a program: what a rank does, in a fork; its exit status. With LAUNCH_RAW it
	 * may write one line to line_fd when it fails. */
	int (*rank_main)(void *arg, int line_fd);
	void *arg;
	uint32_t rank_count;
	uint64_t timeout_ns;  /* 0: none. */
	uint64_t patience_ns; /* From the first failure until the others are ended, too. */
	bool bind_cores;      /* Rank i on the i-th core that we may use: place.h. */
	bool keep_going;      /* A failed rank does not end the others. */
	enum launch_output output;
	/* One part of a job: the ranks from `first` on, of `size`. 0: they are all of it. */
	uint32_t first, size;
	const char *root, *secret; /* Of the whole job. */
	bool held;                 /* The ranks end when standard input does, and have none. */
	/* In place of ranks what reaches these hosts, rank_count of them: argvs[i] gets told[i] to
	 * read, and ends when there is no more. Their lines have ranks already. */
	const char *const *hosts;
	char *const *const *argvs;
	const struct buffer *told;
};

/*
 * Blocks until all ranks have ended. Returns 0, or the exit status of the first rank that failed
 * (128 + signal if one ended it), EXIT_TIMED_OUT, 128 + signal when we were told to end, or
 * EXIT_NOT_FOUND, EXIT_CANNOT_RUN.
 */
int launch_ranks(const struct launch *launch);

/* With bind_cores: says so where ranks share a core. They are slow then, and nobody sees why. */
void launch_cores_say(const struct launch *launch);

#endif
