/*
 * launch.h -- starts N ranks of this program on this machine and looks after them.
 *
 * The parent forks; each child finds RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT (a free loopback port)
 * and RUBATO_SECRET_FILE (random, mode 0600, in a private folder that is removed at the end) in its
 * environment and runs `rank_main`. The first failure ends all: the others have a moment to end by
 * themselves, then SIGTERM, then SIGKILL. SIGINT and SIGTERM are passed on. Of what the ranks say
 * about a failure one line is printed: the victim of a signal first, else the line that came first.
 */
#ifndef TR_LAUNCH_H
#define TR_LAUNCH_H

#include "trainer/base/error.h"

/* In a rank: writes at most one line, on failure, to `line_fd`, and returns the exit status. */
typedef int (*tr_rank_main)(void *arg, int line_fd);

/* Returns the exit status of the launch: 0, or that of the first failure (128 + signal). */
int tr_launch(uint32_t rank_count, tr_rank_main rank_main, void *arg);

#endif
