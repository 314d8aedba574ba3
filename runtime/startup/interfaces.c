/*
 * interfaces.c -- which network devices reach the other machines: not what they claim, but tried.
 *
 * A device may be up, have an address and lead nowhere: a cable into the wrong switch, a bridge of
 * containers whose address every machine has. So one rank of each machine, its first, listens, and
 * connects to every address of the other machines' first ranks, all at once and for a short time.
 * Whoever connects says whom it wants to reach; so the address of a namesake does not count. A
 * device through which somebody was reached is used; nothing else is.
 *
 * "Machine" here means a network of the kernel's: a namespace, where there are several.
 */
#include "runtime/startup/interfaces.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/wire.h"
#include "runtime/startup/crowd.h"
#include "runtime/startup/host.h"

#define MACHINES_MAX 32 /* Tried from one: those that follow it. */
#define PROBES_MAX 256
#define PROBE_NS UINT64_C(1500000000) /* A lost first packet is repeated after 1 s. */
#define TOKEN_NS UINT64_C(200000000)  /* For a token that was sent before everybody had ended. */
_Static_assert(RB_INTERFACE_NAME_BYTES >= IF_NAMESIZE, "names of devices");

struct machine { /* What its first rank published. */
	uint32_t rank;
	uint16_t port;
	uint32_t address_count;
	const uint8_t *addresses; /* 17 bytes each: family, bytes. */
};

struct probing {
	struct rb_bootstrap *b;
	const char *pattern;
	uint64_t deadline_ns, here; /* here: names this network of the kernel's. */
	int listener;
	uint16_t port;
	uint32_t own_count;
	struct rb_interface_address own[RB_INTERFACE_ADDRESSES_MAX];
	bool reached[RB_INTERFACE_ADDRESSES_MAX];
	uint32_t first;   /* The first rank of this machine. */
	bool far, needed; /* Some rank is elsewhere; and there is a choice. */
	uint32_t machine_count;
	struct machine machines[MACHINES_MAX];
	uint32_t probe_count;
	struct pollfd probes[PROBES_MAX];
	uint32_t targets[PROBES_MAX]; /* The rank that each probe looks for. */
};

/* ---- Names ---- */

bool rb_interface_wanted(const char *pattern, const char *name)
{
	bool without = pattern[0] == '^', found = false;
	const char *at = pattern + without;

	if (*at == '\0')
		return true;
	while (*at != '\0') {
		size_t size = strcspn(at, ",");

		found |= size > 0 && strncmp(name, at, size) == 0;
		at += size + (at[size] == ',');
	}
	return found != without;
}

static void devices_add(char *devices, size_t devices_bytes, const char *name)
{
	size_t at = strlen(devices);

	if (at + strlen(name) + 2 <= devices_bytes)
		(void)snprintf(devices + at, devices_bytes - at, "%s%s", at > 0 ? "," : "", name);
}

/* Adds what is in a folder of /sys, by name, if the pattern wants it. */
static void folder_add(const char *path, const char *suffix, const char *pattern, char *devices,
		       size_t devices_bytes)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	while (folder != NULL && (entry = readdir(folder)) != NULL) {
		char name[300];

		(void)snprintf(name, sizeof(name), "%s%s", entry->d_name, suffix);
		if (entry->d_name[0] != '.' && rb_interface_wanted(pattern, name))
			devices_add(devices, devices_bytes, name);
	}
	if (folder != NULL)
		(void)closedir(folder);
}

static rubato_status devices_by_pattern(const char *pattern, char *devices, size_t devices_bytes)
{
	char all[512] = "";

	devices[0] = '\0';
	folder_add("/sys/class/net", "", pattern, devices, devices_bytes);
	folder_add("/sys/class/infiniband", ":1", pattern, devices, devices_bytes);
	if (devices[0] != '\0')
		return RUBATO_OK;
	folder_add("/sys/class/net", "", "", all, sizeof(all));
	folder_add("/sys/class/infiniband", ":1", "", all, sizeof(all));
	return RB_FAIL(RUBATO_ERR_ARGUMENT,
		       "RUBATO_INTERFACE=%.100s matches no device; there are %s", pattern, all);
}

static bool is_active(const char *folder, const char *device)
{
	char path[512], line[32];
	FILE *file;
	bool active;

	(void)snprintf(path, sizeof(path), "%s/%.64s/ports/1/state", folder, device);
	file = fopen(path, "re");
	active = file != NULL && fgets(line, sizeof(line), file) != NULL &&
		 strstr(line, "ACTIVE") != NULL;
	if (file != NULL)
		(void)fclose(file);
	return active;
}

/* UCX's lists: whole names, "all", and with newer ones ^ before those that are left out. */
static bool list_wants(const char *list, const char *name, bool (*is)(const char *, const char *))
{
	bool others = list[0] == '^', found = false;
	char copy[512], *rest = copy, *item;

	(void)snprintf(copy, sizeof(copy), "%s", list + others);
	while ((item = strsep(&rest, ",")) != NULL)
		found |= strcmp(item, "all") == 0 || is(item, name);
	return found != others;
}

static bool is_same(const char *item, const char *name)
{
	return strcmp(item, name) == 0;
}

static bool device_wanted(const char *list, const char *name)
{
	return list_wants(list, name, is_same);
}

/* "rc", "rc_v", "rc_mlx5", "ib"... */
static bool is_rdma(const char *item, const char *unused)
{
	static const char *const kinds[] = { "ib", "rc", "ud", "dc", "srd", "gga" };

	(void)unused;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t bytes = strlen(kinds[i]);

		if (strncmp(item, kinds[i], bytes) == 0 &&
		    (item[bytes] == '\0' || item[bytes] == '_'))
			return true;
	}
	return false;
}

/* Without any of them: those that "^rc" leaves are others of RDMA. */
static bool tls_lacks_rdma(const char *tls)
{
	return tls[0] == '^' ? strcmp(tls, "^all") == 0 || device_wanted(tls + 1, "ib")
			     : !list_wants(tls, "", is_rdma);
}

static uint32_t rdma_left(const char *folder, const char *pattern,
			  bool (*wants)(const char *pattern, const char *name), char *text,
			  size_t text_bytes)
{
	DIR *devices = opendir(folder);
	struct dirent *entry;
	uint32_t count = 0;

	text[0] = '\0';
	while (devices != NULL && (entry = readdir(devices)) != NULL) {
		char name[80];

		(void)snprintf(name, sizeof(name), "%.64s:1", entry->d_name);
		if (entry->d_name[0] == '.' || !is_active(folder, entry->d_name) ||
		    wants(pattern, name))
			continue;
		devices_add(text, text_bytes, name);
		count++;
	}
	if (devices != NULL)
		(void)closedir(devices);
	return count;
}

static bool none_wanted(const char *pattern, const char *name)
{
	(void)pattern, (void)name;
	return false;
}

const char *rb_interfaces_ucx_leaves(const char *folder, const char *interface, const char *devices,
				     const char *tls, const char **value, char *text,
				     size_t text_bytes)
{
	*value = interface;
	if (interface[0] != '\0' &&
	    rdma_left(folder, interface, rb_interface_wanted, text, text_bytes) > 0)
		return "RUBATO_INTERFACE";
	*value = devices; /* What RUBATO_INTERFACE says goes before it. */
	if (interface[0] == '\0' && devices != NULL && devices[0] != '\0' &&
	    rdma_left(folder, devices, device_wanted, text, text_bytes) > 0)
		return "UCX_NET_DEVICES";
	*value = tls;
	if (tls != NULL && tls[0] != '\0' && tls_lacks_rdma(tls) &&
	    rdma_left(folder, "", none_wanted, text, text_bytes) > 0)
		return "UCX_TLS";
	return NULL;
}

/* ---- Addresses ---- */

static bool address_take(const struct ifaddrs *at, struct rb_interface_address *out)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (at->ifa_addr == NULL ||
	    (at->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING))
		return false;
	*out = (struct rb_interface_address) { .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0 };
	(void)snprintf(out->name, sizeof(out->name), "%s", at->ifa_name);
	if (at->ifa_addr->sa_family == AF_INET) {
		memcpy(&v4, at->ifa_addr, sizeof(v4));
		out->family = 4;
		memcpy(out->bytes, &v4.sin_addr, 4);
		return true;
	}
	if (at->ifa_addr->sa_family != AF_INET6)
		return false;
	memcpy(&v6, at->ifa_addr, sizeof(v6));
	out->family = 6;
	memcpy(out->bytes, &v6.sin6_addr, 16);
	return !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr); /* It would need the peer's device, too. */
}

uint32_t rb_interface_addresses(const char *pattern, struct rb_interface_address *out,
				uint32_t count_max)
{
	struct ifaddrs *list = NULL;
	uint32_t count = 0;

	if (getifaddrs(&list) != 0)
		return 0;
	for (const struct ifaddrs *at = list; at != NULL && count < count_max; at = at->ifa_next)
		if (rb_interface_wanted(pattern, at->ifa_name) && address_take(at, &out[count]))
			count++;
	freeifaddrs(list);
	return count;
}

static socklen_t address_make(const uint8_t *address, uint16_t port, struct sockaddr_storage *out)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };

	memset(out, 0, sizeof(*out));
	if (address[0] == 4) {
		memcpy(&v4.sin_addr, address + 1, 4);
		memcpy(out, &v4, sizeof(v4));
		return sizeof(v4);
	}
	memcpy(&v6.sin6_addr, address + 1, 16);
	memcpy(out, &v6, sizeof(v6));
	return sizeof(v6);
}

/* ---- Who is where ---- */

/* What a visitor says to show that it looks for `rank` of this very job. */
static uint64_t token_of(const struct rb_bootstrap *b, uint32_t rank)
{
	uint64_t halves[2];

	memcpy(halves, b->job, sizeof(halves));
	return rb_mix(halves[0] ^ rb_mix(halves[1] ^ rb_mix(rank + 1)));
}

static rubato_status listener_open(struct probing *p)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(any);
	int off = 0, type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

	p->listener = socket(AF_INET6, type, 0);
	if (p->listener < 0 ||
	    setsockopt(p->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0 ||
	    bind(p->listener, (struct sockaddr *)&any, sizeof(any)) != 0) {
		if (p->listener >= 0)
			(void)close(p->listener);
		p->listener = socket(AF_INET, type, 0); /* A machine without IPv6. */
		if (p->listener < 0 ||
		    bind(p->listener, (struct sockaddr *)&any4, sizeof(any4)) != 0)
			return RB_FAIL(RUBATO_ERR_SYSTEM, "a socket to be found at: %s",
				       RB_ERRNO_TEXT(errno));
	}
	if (listen(p->listener, 4096) != 0 ||
	    getsockname(p->listener, (struct sockaddr *)&any, &bytes) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "a socket to be found at: %s",
			       RB_ERRNO_TEXT(errno));
	p->port = ntohs(any.sin6_port); /* In the same place in both families. */
	return RUBATO_OK;
}

static uint8_t own_device_count(const struct probing *p)
{
	uint8_t count = 0;

	for (uint32_t i = 0; i < p->own_count; i++) {
		uint32_t k = 0;

		while (k < i && strcmp(p->own[k].name, p->own[i].name) != 0)
			k++;
		count = (uint8_t)(count + (k == i && !p->own[i].loopback));
	}
	return count;
}

static size_t blob_write(const struct probing *p, uint8_t *blob, size_t blob_bytes)
{
	struct rb_wire w = rb_wire_over(blob, blob_bytes);

	rb_wire_put_u64(&w, p->here);
	rb_wire_put_u16(&w, p->port);
	rb_wire_put_u8(&w, own_device_count(p));
	rb_wire_put_u8(&w, p->pattern[0] != '\0');
	for (uint32_t i = 0; i < p->own_count; i++) {
		if (p->own[i].loopback)
			continue;
		rb_wire_put_u8(&w, p->own[i].family);
		rb_wire_put_bytes(&w, p->own[i].bytes, sizeof(p->own[i].bytes));
	}
	RB_ASSERT(!w.bad);
	return (size_t)(w.at - blob);
}

/* The first ranks of the other networks, starting behind us. */
static void machines_find(struct probing *p, const void *const *blobs, const size_t *bytes,
			  const bool *first)
{
	uint32_t n = p->b->rank_count;

	for (uint32_t i = 1; i < n && p->machine_count < MACHINES_MAX; i++) {
		uint32_t r = (p->b->rank + i) % n;
		struct rb_wire w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);

		if (rb_wire_get_u64(&w) == p->here || !first[r])
			continue;
		struct machine *m = &p->machines[p->machine_count++];

		*m = (struct machine) { .rank = r, .port = rb_wire_get_u16(&w) };
		m->addresses = w.at + 2;
		m->address_count = (uint32_t)((bytes[r] - 12) / 17);
	}
}

static rubato_status machines_list(struct probing *p, const void *const *blobs, const size_t *bytes)
{
	uint32_t n = p->b->rank_count;
	uint64_t *networks = malloc(n * sizeof(*networks)), looks;
	bool *first = calloc(n, sizeof(*first));
	rubato_status err = RUBATO_OK;

	if (networks == NULL || first == NULL)
		err = RB_FAIL(RUBATO_ERR_MEMORY, "devices: tables of %u ranks", n);
	for (uint32_t r = 0; err == RUBATO_OK && r < n; r++) {
		struct rb_wire w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);

		networks[r] = rb_wire_get_u64(&w);
	}
	if (err == RUBATO_OK)
		err = rb_crowd_firsts(networks, n, first, &looks);
	if (err == RUBATO_OK)
		machines_find(p, blobs, bytes, first);
	free(networks);
	free(first);
	return err;
}

/* Reads what all published: whether trying is needed, and whom to try. */
static rubato_status blobs_read(struct probing *p, const void *const *blobs, const size_t *bytes)
{
	uint32_t n = p->b->rank_count;
	bool choice = false;

	p->first = UINT32_MAX;
	for (uint32_t r = 0; r < n; r++) {
		struct rb_wire w = rb_wire_over((void *)(uintptr_t)blobs[r], bytes[r]);
		uint64_t network = rb_wire_get_u64(&w);

		w.at += w.bad ? 0 : 2;
		uint8_t devices = rb_wire_get_u8(&w), named = rb_wire_get_u8(&w);

		if (w.bad || (bytes[r] - 12) % 17 != 0)
			return RB_FAIL(RUBATO_ERR_MISMATCH,
				       "rank %u's list of devices is malformed", r);
		choice |= devices > 1 && named == 0;
		p->far |= network != p->here;
		if (network == p->here && p->first == UINT32_MAX)
			p->first = r;
	}
	p->needed = choice && p->far;
	return p->needed ? machines_list(p, blobs, bytes) : RUBATO_OK;
}

/* ---- Trying ---- */

static void probes_begin(struct probing *p)
{
	for (uint32_t i = 0; i < p->machine_count; i++) {
		const struct machine *m = &p->machines[i];

		for (uint32_t k = 0; k < m->address_count && p->probe_count < PROBES_MAX; k++) {
			struct sockaddr_storage to;
			socklen_t to_bytes = address_make(m->addresses + k * 17, m->port, &to);
			int fd =
				socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

			if (fd < 0)
				continue;
			if (connect(fd, (struct sockaddr *)&to, to_bytes) != 0 &&
			    errno != EINPROGRESS) {
				(void)close(fd);
				continue;
			}
			p->targets[p->probe_count] = m->rank;
			p->probes[p->probe_count++] =
				(struct pollfd) { .fd = fd, .events = POLLOUT };
		}
	}
}

/* Each probe that gets through says whom it looks for; what is not through in time is not used. */
static void probes_run(struct probing *p)
{
	uint64_t until = rb_deadline(rb_clock_ns(), PROBE_NS), now;
	uint32_t pending = p->probe_count;

	while (pending > 0 && (now = rb_clock_ns()) < until) {
		if (poll(p->probes, p->probe_count, (int)((until - now) / 1000000) + 1) <= 0)
			continue;
		for (uint32_t i = 0; i < p->probe_count; i++) {
			uint64_t token = token_of(p->b, p->targets[i]);

			if (p->probes[i].events == 0 || p->probes[i].revents == 0)
				continue;
			(void)!send(p->probes[i].fd, &token, sizeof(token), MSG_NOSIGNAL);
			p->probes[i].fd = ~p->probes[i].fd; /* poll() passes over it. */
			p->probes[i].events = 0;
			pending--;
		}
	}
}

static void probes_end(struct probing *p)
{
	for (uint32_t i = 0; i < p->probe_count; i++)
		(void)close(p->probes[i].fd < 0 ? ~p->probes[i].fd : p->probes[i].fd);
	p->probe_count = 0;
}

/* Marks the own address at which a visitor came in, if it looked for us and says so in time. */
static void visitor_take(struct probing *p, int fd, uint64_t until_ns)
{
	uint64_t now_ns = rb_clock_ns(), left_ns = now_ns < until_ns ? until_ns - now_ns : 0;
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct sockaddr_storage here;
	socklen_t here_bytes = sizeof(here);
	uint64_t token = 0;
	uint8_t bytes[16] = { 0 };
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (poll(&wait, 1, (int)(left_ns / 1000000)) != 1 ||
	    recv(fd, &token, sizeof(token), MSG_DONTWAIT) != sizeof(token) ||
	    token != token_of(p->b, p->b->rank) ||
	    getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0)
		return;
	memcpy(&v6, &here, sizeof(v6));
	memcpy(&v4, &here, sizeof(v4));
	bool four = here.ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);

	if (here.ss_family == AF_INET)
		memcpy(bytes, &v4.sin_addr, 4);
	else
		memcpy(bytes, four ? v6.sin6_addr.s6_addr + 12 : v6.sin6_addr.s6_addr,
		       four ? 4 : 16);
	for (uint32_t i = 0; i < p->own_count; i++)
		p->reached[i] |= p->own[i].family == (four ? 4 : 6) &&
				 memcmp(p->own[i].bytes, bytes, sizeof(bytes)) == 0;
}

/* All in the time of one: tokens were sent before anybody came here. */
static void visitors_take(struct probing *p)
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), TOKEN_NS);

	for (uint32_t i = 0; i < PROBES_MAX; i++) { /* Strangers do not keep us for ever. */
		int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
			continue;
		if (fd < 0)
			return;
		visitor_take(p, fd, until_ns);
		(void)close(fd);
	}
}

/* Devices of RDMA are none of TCP's, and stay. */
static void devices_reached(const struct probing *p, char *devices, size_t devices_bytes)
{
	devices[0] = '\0';
	for (uint32_t i = 0; i < p->own_count; i++) {
		bool before = false;

		for (uint32_t k = 0; k < i; k++)
			before |= p->reached[k] && strcmp(p->own[k].name, p->own[i].name) == 0;
		if (p->reached[i] && !before)
			devices_add(devices, devices_bytes, p->own[i].name);
	}
	if (devices[0] != '\0')
		folder_add("/sys/class/infiniband", ":1", "", devices, devices_bytes);
}

/* Ranks that share a network of the kernel's need no other device of TCP's than its loopback: what
 * listens there is out of others' reach. */
static void devices_here(const struct probing *p, char *devices, size_t devices_bytes)
{
	for (uint32_t i = 0; i < p->own_count && devices[0] == '\0'; i++)
		if (p->own[i].loopback)
			devices_add(devices, devices_bytes, p->own[i].name);
	if (devices[0] != '\0')
		folder_add("/sys/class/infiniband", ":1", "", devices, devices_bytes);
}

static rubato_status exchange(struct probing *p, const void *in, size_t in_bytes,
			      const void *const **out, const size_t **out_bytes)
{
	return p->b->allgather(p->b, in, in_bytes, out, out_bytes, p->deadline_ns);
}

static rubato_status choose(struct probing *p, char *devices, size_t devices_bytes)
{
	uint8_t blob[16 + 17 * RB_INTERFACE_ADDRESSES_MAX];
	const void *const *blobs;
	const size_t *bytes;
	char found[256] = "";

	RB_TRY(exchange(p, blob, blob_write(p, blob, sizeof(blob)), &blobs, &bytes));
	RB_TRY(blobs_read(p, blobs, bytes));
	if (!p->far && p->pattern[0] == '\0')
		devices_here(p, devices, devices_bytes);
	if (!p->needed)
		return RUBATO_OK;
	if (p->first == p->b->rank) {
		probes_begin(p);
		probes_run(p);
	}
	RB_TRY(exchange(p, "", 0, &blobs, &bytes)); /* All have tried. */
	if (p->first == p->b->rank) {
		visitors_take(p);
		devices_reached(p, found, sizeof(found));
		RB_LOG(RB_LOG_INFO, "devices through which others reach this machine: %s",
		       found[0] != '\0' ? found : "none was tried with success; any may be used");
	}
	probes_end(p);
	RB_TRY(exchange(p, found, strlen(found), &blobs, &bytes));
	if (p->pattern[0] == '\0')
		(void)snprintf(devices, devices_bytes, "%.*s", (int)bytes[p->first],
			       (const char *)blobs[p->first]);
	return RUBATO_OK;
}

rubato_status rb_interfaces_choose(struct rb_bootstrap *b, const char *pattern,
				   uint64_t deadline_ns, char *devices, size_t devices_bytes)
{
	struct probing *p = calloc(1, sizeof(*p));
	rubato_status err = RUBATO_OK;

	devices[0] = '\0';
	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "devices: %zu bytes", sizeof(*p));
	*p = (struct probing) { .b = b,
				.pattern = pattern,
				.deadline_ns = deadline_ns,
				.here = rb_network_number(),
				.listener = -1 };
	p->own_count = rb_interface_addresses(pattern, p->own, RB_INTERFACE_ADDRESSES_MAX);
	if (pattern[0] != '\0')
		err = devices_by_pattern(pattern, devices, devices_bytes);
	if (err == RUBATO_OK)
		err = listener_open(p);
	if (err == RUBATO_OK)
		err = choose(p, devices, devices_bytes);
	probes_end(p);
	if (p->listener >= 0)
		(void)close(p->listener);
	free(p);
	return err;
}
