/* endpoint.h -- host:port as text and as addresses. */
#ifndef RB_RUNTIME_ENDPOINT_H
#define RB_RUNTIME_ENDPOINT_H

#include <sys/socket.h>

#include "base/status.h"

#define RB_ENDPOINTS_MAX 16

struct rb_endpoint {
	char host[256];
	char port[6];
};

struct rb_endpoints {
	uint32_t count;
	bool range; /* Of one host's ports. */
	struct rb_endpoint items[RB_ENDPOINTS_MAX];
};

/* "host:port[,host:port...]" or "host:first-last"; an IPv6 address stands in brackets. Errors:
 * ARGUMENT. */
RB_NODISCARD rubato_status rb_endpoints_parse(const char *text, struct rb_endpoints *out);

struct addrinfo;
/* 0, or a code for gai_strerror(); then `out` is for freeaddrinfo(). May block as long as the
 * system's resolver does; never for numbers. */
int rb_endpoint_resolve(const struct rb_endpoint *endpoint, bool passive, struct addrinfo **out);

bool rb_address_loopback(const struct sockaddr *address, socklen_t address_bytes);
/* "127.0.0.1:4000", "[::1]:4000". */
void rb_address_print(const struct sockaddr *address, socklen_t address_bytes, char *text,
		      size_t text_bytes);

#endif
