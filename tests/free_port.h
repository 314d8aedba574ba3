/*
 * free_port.h -- a port to listen at, at all addresses, that nothing takes meanwhile: connections
 * get ports of the kernel's own range, and other tests see that it is taken.
 */
#ifndef RB_TESTS_FREE_PORT_H
#define RB_TESTS_FREE_PORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"

#define FREE_PORT_FIRST 10000u
#define FREE_PORT_COUNT 20000u /* The kernel's range begins at 32768. */

/* Whether nobody has the port, at any address; then it is the caller's: a socket that does not
 * listen keeps other tests off, lets ranks listen beside it, and stays until the process ends. */
static inline bool port_take(uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0)
		return true;
	if (fd >= 0)
		(void)close(fd);
	return false;
}

/* 0: none. */
static inline uint16_t free_port(void)
{
	struct timespec now;
	struct rb_rng rng;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	rng.state = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)getpid() << 44;

	for (int tries = 0; tries < 1000; tries++) {
		uint16_t port = (uint16_t)(FREE_PORT_FIRST + rb_rng_below(&rng, FREE_PORT_COUNT));

		if (port_take(port))
			return port;
	}
	return 0;
}

#endif
