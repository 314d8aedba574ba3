/* process.c -- see process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/rng.h"

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

bool rb_process_gone(int32_t number)
{
	int descriptor = rb_process_open(number);
	bool gone = descriptor < 0 ? errno == ESRCH && number > 0 : rb_process_ended(descriptor);

	if (descriptor >= 0)
		(void)close(descriptor);
	return gone;
}

/* A new descriptor has the lowest number that is free. A child that executes something finds them
 * closed, as it would have. */
void rb_process_standard_open(void)
{
	static const int flags[] = { O_RDONLY, O_WRONLY, O_WRONLY };

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)open("/dev/null", flags[fd] | O_CLOEXEC);
}

bool rb_boot_id(uint8_t boot[RB_BOOT_ID_BYTES])
{
	int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t count = file < 0 ? -1 : read(file, boot, RB_BOOT_ID_BYTES);

	if (file >= 0)
		(void)close(file);
	return count == RB_BOOT_ID_BYTES;
}

uint64_t rb_process_host(void)
{
	uint8_t boot[RB_BOOT_ID_BYTES];
	struct stat numbers;
	uint64_t host = 0;

	if (!rb_boot_id(boot) || stat("/proc/self/ns/pid", &numbers) != 0)
		return 0;
	for (size_t i = 0; i < sizeof(boot); i++)
		host = rb_mix(host + boot[i] + 1);
	return rb_mix(host ^ numbers.st_ino);
}
