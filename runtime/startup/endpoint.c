/* endpoint.c -- see endpoint.h. */
#include "runtime/startup/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rubato_status endpoint_bad(const char *text, size_t size_bytes, const char *why)
{
	return RB_FAIL(RUBATO_ERR_ARGUMENT,
		       "\"%.*s\" is not host:port (%s): expected something like node1:29400, "
		       "10.0.0.1:29400 or [fd00::1]:29400",
		       (int)(size_bytes < 200 ? size_bytes : 200), text, why);
}

static rubato_status endpoint_parse(const char *text, size_t size_bytes, struct rb_endpoint *out)
{
	const char *end = text + size_bytes, *colon = memrchr(text, ':', size_bytes);
	const char *host = text;

	if (colon == NULL)
		return endpoint_bad(text, size_bytes, "the port is missing");
	size_t host_bytes = (size_t)(colon - text), port_bytes = (size_t)(end - colon - 1);

	if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
		host++;
		host_bytes -= 2;
	} else if (memchr(host, ':', host_bytes) != NULL) {
		return endpoint_bad(text, size_bytes, "an IPv6 address needs brackets");
	}
	if (host_bytes == 0 || host_bytes >= sizeof(out->host))
		return endpoint_bad(text, size_bytes, "the host is missing");
	if (port_bytes == 0 || port_bytes >= sizeof(out->port) ||
	    strspn(colon + 1, "0123456789") < port_bytes)
		return endpoint_bad(text, size_bytes, "the port is no number");
	memcpy(out->host, host, host_bytes);
	out->host[host_bytes] = '\0';
	memcpy(out->port, colon + 1, port_bytes);
	out->port[port_bytes] = '\0';
	long port = strtol(out->port, NULL, 10);

	if (port < 1 || port > 65535)
		return endpoint_bad(text, size_bytes, "ports are 1 to 65535");
	return RUBATO_OK;
}

/* "host:first-last": as many endpoints as ports. */
static rubato_status range_parse(const char *text, const char *dash, struct rb_endpoints *out)
{
	struct rb_endpoint *first = &out->items[0];
	size_t digits = strspn(dash + 1, "0123456789");

	RB_TRY(endpoint_parse(text, (size_t)(dash - text), first));
	long low = strtol(first->port, NULL, 10), high = strtol(dash + 1, NULL, 10);

	if (digits == 0 || dash[1 + digits] != '\0' || high < low || high > 65535 ||
	    high - low >= RB_ENDPOINTS_MAX)
		return endpoint_bad(text, strlen(text), "no range of at most 16 ports");
	for (long port = low; port <= high; port++) {
		struct rb_endpoint *e = &out->items[out->count++];

		*e = *first;
		(void)snprintf(e->port, sizeof(e->port), "%u", (unsigned)port & 0xffffu);
	}
	out->range = true;
	return RUBATO_OK;
}

rubato_status rb_endpoints_parse(const char *text, struct rb_endpoints *out)
{
	const char *at = text, *colon = strrchr(text, ':');
	const char *dash = colon != NULL ? strchr(colon, '-') : NULL;

	out->count = 0;
	out->range = false;
	if (dash != NULL && strchr(text, ',') == NULL && dash > colon + 1)
		return range_parse(text, dash, out);
	for (;;) {
		size_t size_bytes = strcspn(at, ",");

		if (out->count == RB_ENDPOINTS_MAX)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "\"%.200s\": more than %d addresses",
				       text, RB_ENDPOINTS_MAX);
		RB_TRY(endpoint_parse(at, size_bytes, &out->items[out->count]));
		out->count++;
		if (at[size_bytes] == '\0')
			return RUBATO_OK;
		at += size_bytes + 1;
	}
}

int rb_endpoint_resolve(const struct rb_endpoint *endpoint, bool passive, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0) };

	return getaddrinfo(endpoint->host, endpoint->port, &hints, out);
}

bool rb_address_loopback(const struct sockaddr *address, socklen_t address_bytes)
{
	if (address->sa_family == AF_INET && address_bytes >= sizeof(struct sockaddr_in)) {
		struct sockaddr_in v4;

		memcpy(&v4, address, sizeof(v4));
		return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
	}
	if (address->sa_family == AF_INET6 && address_bytes >= sizeof(struct sockaddr_in6)) {
		struct sockaddr_in6 v6;

		memcpy(&v6, address, sizeof(v6));
		return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
		       (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
	}
	return false;
}

void rb_address_print(const struct sockaddr *address, socklen_t address_bytes, char *text,
		      size_t text_bytes)
{
	char host[64], port[8];

	if (getnameinfo(address, address_bytes, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		(void)snprintf(text, text_bytes, "an unknown address");
	else if (strncmp(host, "::ffff:", 7) == 0) /* IPv4, seen through an IPv6 listener. */
		(void)snprintf(text, text_bytes, "%s:%s", host + 7, port);
	else if (address->sa_family == AF_INET6)
		(void)snprintf(text, text_bytes, "[%s]:%s", host, port);
	else
		(void)snprintf(text, text_bytes, "%s:%s", host, port);
}
