/*
 * sync_fork.c -- counts the forks that a process comes from: what was made before the last one is
 * its parent's. fork() itself counts, in the child, so that to look costs no system call. A child
 * made past the C library's fork(), by clone() or _Fork(), is not counted.
 *
 * The lock of what a process's threads share is held over a fork: of those that might hold it then,
 * the child has none that would drop it.
 */
#include <pthread.h>

#include "base/sync.h"

uint32_t rb_forks;
struct rb_lock rb_process_lock;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int refused;

static void fork_begins(void)
{
	rb_lock_take(&rb_process_lock);
}

static void parent_goes_on(void)
{
	rb_lock_drop(&rb_process_lock);
}

static void child_counts(void)
{
	rb_forks++;
	rb_lock_drop(&rb_process_lock);
}

static void count(void)
{
	refused = pthread_atfork(fork_begins, parent_goes_on, child_counts);
}

rubato_status rb_forks_count(void)
{
	(void)pthread_once(&once, count);
	return refused == 0 ? RUBATO_OK : RB_FAIL(RUBATO_ERR_MEMORY, "no memory to watch forks");
}
