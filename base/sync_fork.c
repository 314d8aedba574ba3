/*
 * sync_fork.c -- counts the forks that a process comes from: what was made before the last one is
 * its parent's. fork() itself counts, in the child, so that to look costs no system call. A child
 * made past the C library's fork(), by clone() or _Fork(), is not counted.
 */
#include <pthread.h>

#include "base/sync.h"

uint32_t rb_forks;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int refused;

static void child_counts(void)
{
	rb_forks++;
}

static void count(void)
{
	refused = pthread_atfork(NULL, NULL, child_counts);
}

rubato_status rb_forks_count(void)
{
	(void)pthread_once(&once, count);
	return refused == 0 ? RUBATO_OK : RB_FAIL(RUBATO_ERR_MEMORY, "no memory to watch forks");
}
