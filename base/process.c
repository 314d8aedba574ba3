/* process.c -- see process.h. */
#include "base/process.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int rb_process_open(int32_t number)
{
	if (number <= 0) {
		errno = ESRCH;
		return -1;
	}
	return (int)syscall(SYS_pidfd_open, (pid_t)number, 0u); /* Closed on exec, always. */
}

bool rb_process_ended(int descriptor)
{
	struct pollfd p = { descriptor, POLLIN, 0 };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}
