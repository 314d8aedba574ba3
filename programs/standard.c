/* standard.c -- see standard.h. */
#include "programs/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A new descriptor has the lowest number that is free. */
void standard_open(void)
{
	static const int flags[] = { O_RDONLY, O_RDONLY, O_WRONLY };

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)open("/dev/null", flags[fd]);
}

bool standard_flush(char *text, size_t text_bytes)
{
	int reason = fflush(stdout) != 0 ? errno : 0;

	if (reason == 0 && ferror(stdout) == 0)
		return true;
	(void)snprintf(text, text_bytes, "standard output could not be written%s%s",
		       reason != 0 ? ": " : "", reason != 0 ? strerror(reason) : "");
	return false;
}

bool standard_written(const char *program)
{
	char text[128];

	if (standard_flush(text, sizeof(text)))
		return true;
	(void)fprintf(stderr, "%s: %s\n", program, text);
	return false;
}
