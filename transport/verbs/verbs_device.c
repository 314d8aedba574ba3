/*
 * verbs_device.c -- which devices and ports carry data, and what a port's peers must know.
 *
 * Of the ports that are active, those in this process's NUMA domain, where there are some, and of
 * one link layer, are rails, in the order of the system; unless the caller names some: `mlx5_0`,
 * `mlx5_0:1`, `mlx5_0:1:3` (device, port, index of the GID), the network device that belongs to a
 * port, or the beginning of a name; ^ before the list: all others. Those that are named whole come
 * in the order of the list, wherever they are. Names that leave nothing are an error. On Ethernet
 * the address is a GID: of RoCE v2 before v1, of an IPv4 address before a global IPv6 one before a
 * link-local one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

#define INTERFACE_BYTES_MAX 512
#define GID_INDEX_ANY UINT32_MAX

rubato_status rb_verbs_failed(const struct rb_verbs_rail *rail, int error, const char *what)
{
	const struct rb_verbs_port *port = &rail->port;

	if (error == ENOMEM || error == EAGAIN)
		return RB_FAIL(RUBATO_ERR_MEMORY,
			       "verbs: %s port %u: %s: %s (enough memory to lock? ulimit -l)",
			       port->device, port->number, what, strerror(error));
	return RB_FAIL(RUBATO_ERR_SYSTEM, "verbs: %s port %u: %s: %s", port->device, port->number,
		       what, strerror(error));
}

rubato_status rb_verbs_unregistered(const struct rb_verbs_rail *rail, int error, const char *what,
				    size_t size_bytes)
{
	struct rlimit locked;
	char limit[48] = "no limit";

	if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
		(void)snprintf(limit, sizeof(limit), "at most %llu KiB",
			       (unsigned long long)locked.rlim_cur >> 10);
	return RB_FAIL(error == ENOMEM || error == EAGAIN ? RUBATO_ERR_MEMORY : RUBATO_ERR_SYSTEM,
		       "verbs: %s: registering %zu bytes %s: %s (locked memory, ulimit -l: %s; the "
		       "device: at most %u regions of %llu bytes)",
		       rail->port.device, size_bytes, what, strerror(error), limit,
		       rail->regions_max, (unsigned long long)rail->region_bytes_max);
}

uint32_t rb_verbs_mtu_bytes(uint8_t mtu)
{
	return 128u << mtu;
}

char *rb_verbs_gid_text(const union ibv_gid *gid, char text[RB_VERBS_GID_BYTES])
{
	const uint8_t *raw = gid->raw;
	size_t at = 0;

	if (rb_verbs_is_ipv4(gid)) {
		(void)snprintf(text, RB_VERBS_GID_BYTES, "::ffff:%u.%u.%u.%u", raw[12], raw[13],
			       raw[14], raw[15]);
		return text;
	}
	for (size_t i = 0; i < sizeof(gid->raw); i += 2)
		at += (size_t)snprintf(text + at, RB_VERBS_GID_BYTES - at, "%s%x", i > 0 ? ":" : "",
				       raw[i] << 8 | raw[i + 1]);
	return text;
}

char *rb_verbs_port_text(const struct rb_verbs_port *port, char *text, size_t text_bytes)
{
	char gid[RB_VERBS_GID_BYTES];

	if (port->iwarp)
		(void)snprintf(text, text_bytes, "%s port %u, iWARP, address %s, MTU %u",
			       port->device, port->number, rb_verbs_gid_text(&port->gid, gid),
			       rb_verbs_mtu_bytes(port->mtu));
	else if (port->ethernet)
		(void)snprintf(text, text_bytes, "%s port %u, RoCE %s, GID %u %s, MTU %u",
			       port->device, port->number, port->roce_1 ? "v1" : "v2",
			       port->gid_index, rb_verbs_gid_text(&port->gid, gid),
			       rb_verbs_mtu_bytes(port->mtu));
	else
		(void)snprintf(text, text_bytes, "%s port %u, InfiniBand, LID %u, GID %s, MTU %u",
			       port->device, port->number, port->lid,
			       rb_verbs_gid_text(&port->gid, gid), rb_verbs_mtu_bytes(port->mtu));
	return text;
}

/* ---- What the system says of a port ---- */

static bool line_read(const char *path, char *line, int line_bytes)
{
	FILE *file = fopen(path, "re");
	bool got = file != NULL && fgets(line, line_bytes, file) != NULL;

	if (file != NULL)
		(void)fclose(file);
	if (got)
		line[strcspn(line, "\n")] = '\0';
	return got;
}

/* The network device of a port; empty: it has none, or none is said. */
static void netdev_of(const char *device, uint8_t port, char *name, int name_bytes)
{
	char path[256];

	name[0] = '\0';
	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/0",
		       device, port);
	if (!line_read(path, name, name_bytes))
		name[0] = '\0';
}

uint32_t rb_verbs_netdev(const struct rb_verbs_port *port)
{
	char name[64], path[256], line[32];

	netdev_of(port->device, port->number, name, sizeof(name));
	(void)snprintf(path, sizeof(path), "/sys/class/net/%s/ifindex", name);
	return line_read(path, line, sizeof(line)) ? (uint32_t)strtoul(line, NULL, 10) : 0;
}

static int32_t domain_of(const char *device)
{
	char path[256], line[32];

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", device);
	return line_read(path, line, sizeof(line)) ? (int32_t)strtol(line, NULL, 10) : -1;
}

static int32_t domain_here(void)
{
	unsigned cpu, node;

	return syscall(SYS_getcpu, &cpu, &node, NULL) == 0 ? (int32_t)node : -1;
}

/* ---- Names ---- */

/* `text` begins with `name` and goes on with nothing, or with :NUMBER. */
static const char *behind(const char *text, const char *name)
{
	size_t bytes = strlen(name);

	if (strncmp(text, name, bytes) != 0 || (text[bytes] != '\0' && text[bytes] != ':'))
		return NULL;
	return text + bytes;
}

/* Digits behind a colon, and nothing else. */
static bool number_read(const char **text, uint32_t *number)
{
	unsigned long long value;
	char *end;

	if ((*text)[0] != ':' || (*text)[1] < '0' || (*text)[1] > '9')
		return false;
	value = strtoull(*text + 1, &end, 10);
	*text = end;
	*number = (uint32_t)value;
	return value < GID_INDEX_ANY;
}

/* mlx5_0[:PORT[:GID]]. */
static bool item_names(const char *item, const char *device, uint8_t port, uint32_t *gid_index)
{
	const char *rest = behind(item, device);
	uint32_t number, gid = *gid_index;

	if (rest == NULL || *rest == '\0')
		return rest != NULL;
	if (!number_read(&rest, &number) || number != port)
		return false;
	if (*rest != '\0' && (!number_read(&rest, &gid) || *rest != '\0'))
		return false;
	*gid_index = gid;
	return true;
}

static bool begins(const char *name, const char *item)
{
	return strncmp(name, item, strlen(item)) == 0;
}

#define UNPLACED UINT32_MAX

/* Whether the list lets a port be used, with which GID; its place there, if it is named whole. */
static bool is_named(const char *interface, const char *device, uint8_t port, uint32_t *gid_index,
		     uint32_t *place)
{
	char list[INTERFACE_BYTES_MAX], netdev[64], *rest = list, *item;
	bool others = interface[0] == '^', found = false;
	uint32_t at = 0;

	(void)snprintf(list, sizeof(list), "%s", interface + others);
	netdev_of(device, port, netdev, sizeof(netdev));
	while (!found && (item = strsep(&rest, ",")) != NULL) {
		bool whole = *item != '\0' && (item_names(item, device, port, gid_index) ||
					       strcmp(netdev, item) == 0);

		found = *item != '\0' && (whole || begins(device, item) || begins(netdev, item));
		if (whole)
			*place = at;
		at++;
	}
	return found != others;
}

/* ---- GIDs ---- */

static bool is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return memcmp(gid, &zero, sizeof(zero)) == 0;
}

/* Before rdma-core 31 the system's files say of which kind a GID is. */
static bool gid_by_files(const struct rb_verbs *vb, struct ibv_context *context,
			 const struct rb_verbs_port *port, uint32_t index,
			 struct ibv_gid_entry *entry)
{
	char path[256], line[32] = "";

	if (vb->api.ibv_query_gid(context, port->number, (int)index, &entry->gid) != 0)
		return false;
	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%u",
		       port->device, port->number, index);
	(void)line_read(path, line, sizeof(line));
	entry->gid_type =
		strcmp(line, "RoCE v2") == 0 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return true;
}

static bool gid_read(const struct rb_verbs *vb, struct ibv_context *context,
		     const struct rb_verbs_port *port, uint32_t index, struct ibv_gid_entry *entry)
{
	bool read = vb->api._ibv_query_gid_ex != NULL
			    ? vb->api._ibv_query_gid_ex(context, port->number, index, entry, 0,
							sizeof(*entry)) == 0
			    : gid_by_files(vb, context, port, index, entry);

	return read && !is_zero(&entry->gid);
}

static uint32_t gid_rank(const struct ibv_gid_entry *entry)
{
	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	if (rb_verbs_is_ipv4(&entry->gid))
		return 4;
	return entry->gid.raw[0] == 0xfe && entry->gid.raw[1] == 0x80 ? 2 : 3;
}

/* False: the port has none that serves. */
static bool gid_choose(const struct rb_verbs *vb, struct ibv_context *context,
		       const struct ibv_port_attr *attr, uint32_t wanted,
		       struct rb_verbs_port *port)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < (uint32_t)attr->gid_tbl_len && i < UINT8_MAX; i++) {
		struct ibv_gid_entry entry = { .gid_type = IBV_GID_TYPE_IB };
		uint32_t rank;

		if ((wanted != GID_INDEX_ANY && i != wanted) ||
		    !gid_read(vb, context, port, i, &entry))
			continue;
		rank = port->ethernet ? gid_rank(&entry) : 1;
		if (rank <= best)
			continue;
		best = rank;
		port->gid = entry.gid;
		port->gid_index = (uint8_t)i;
		port->roce_1 = port->ethernet && entry.gid_type != IBV_GID_TYPE_ROCE_V2;
	}
	return best > 0;
}

/* ---- Ports ---- */

static int port_query(const struct rb_verbs *vb, struct ibv_context *context, uint8_t number,
		      struct ibv_port_attr *attr)
{
	/* The macro is an expression of statements. */
	struct verbs_context *inside = __extension__ verbs_get_ctx_op(context, query_port);

	memset(attr, 0, sizeof(*attr));
	return inside != NULL
		       ? inside->query_port(context, number, attr, sizeof(*attr))
		       : vb->api.ibv_query_port(context, number,
						(struct _compat_ibv_port_attr *)(void *)attr);
}

bool rb_verbs_is_active(const struct rb_verbs *vb, const struct rb_verbs_rail *rail)
{
	struct ibv_port_attr attr;

	return port_query(vb, rail->context, rail->port.number, &attr) == 0 &&
	       attr.state == IBV_PORT_ACTIVE;
}

#define FOUND_MAX 32u

struct search {
	const char *interface;
	int32_t domain;
	uint32_t devices, ports, named; /* Seen. */
	uint32_t refused;               /* Devices: the first, and why. */
	const char *refused_first;
	int refused_error;
	uint32_t count;
	struct found {
		struct rb_verbs_port port;
		struct ibv_device *device;
		uint32_t place; /* In the list. */
		bool near;
	} found[FOUND_MAX];
};

static void port_try(struct rb_verbs *vb, struct search *s, struct ibv_context *context,
		     struct ibv_device *device, uint8_t number)
{
	const char *name = vb->api.ibv_get_device_name(device);
	struct found one = { .device = device, .place = UNPLACED };
	uint32_t gid_index = GID_INDEX_ANY;
	struct ibv_port_attr attr;

	if (port_query(vb, context, number, &attr) != 0 || attr.state != IBV_PORT_ACTIVE)
		return;
	s->ports++;
	if (s->interface != NULL && !is_named(s->interface, name, number, &gid_index, &one.place))
		return;
	s->named++;
	(void)snprintf(one.port.device, sizeof(one.port.device), "%s", name);
	one.port.number = number;
	one.port.domain = domain_of(name);
	one.near = one.port.domain == s->domain;
	one.port.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	one.port.iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
	one.port.mtu = (uint8_t)attr.active_mtu;
	one.port.lid = attr.lid;
	/* iWARP has IP addresses, which rdmacm knows. */
	if (s->count < FOUND_MAX &&
	    (one.port.iwarp || gid_choose(vb, context, &attr, gid_index, &one.port)))
		s->found[s->count++] = one;
}

static void device_refused(struct rb_verbs *vb, struct search *s, struct ibv_device *device,
			   int error)
{
	const char *name = vb->api.ibv_get_device_name(device);

	RB_LOG(RB_LOG_INFO, "verbs: %s cannot be opened: %s", name, strerror(error));
	if (s->refused++ > 0)
		return;
	s->refused_first = name;
	s->refused_error = error;
}

static void device_try(struct rb_verbs *vb, struct search *s, struct ibv_device *device)
{
	struct ibv_context *context = vb->api.ibv_open_device(device);
	struct ibv_device_attr attr;
	int error = context == NULL ? errno : vb->api.ibv_query_device(context, &attr);

	s->devices++;
	if (error != 0)
		device_refused(vb, s, device, error);
	for (uint32_t p = 1; error == 0 && p <= attr.phys_port_cnt; p++)
		port_try(vb, s, context, device, (uint8_t)p);
	if (context != NULL)
		(void)vb->api.ibv_close_device(context);
}

static rubato_status nothing_found(const struct search *s)
{
	if (s->devices == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "verbs: this machine has no RDMA device");
	if (s->ports == 0 && s->refused > 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: %u of %u RDMA devices cannot be opened; %s: %s", s->refused,
			       s->devices, s->refused_first, strerror(s->refused_error));
	if (s->ports == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: none of %u RDMA devices has an active port", s->devices);
	if (s->named == 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: RUBATO_INTERFACE=%s names none of %u active RDMA ports",
			       s->interface, s->ports);
	if (s->interface == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "verbs: none of %u RDMA ports has a GID",
			       s->named);
	return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
		       "verbs: none of %u RDMA ports has a GID as RUBATO_INTERFACE=%s wants it",
		       s->named, s->interface);
}

/* Whether a stands before b: by the list, then the near ones, then as they were found. */
static bool is_before(const struct found *a, const struct found *b)
{
	if (a->place != b->place)
		return a->place < b->place;
	return a->place == UNPLACED ? a->near && !b->near : false;
}

/* The first, and those that go with it. iWARP is one rail: it calls a write complete before the
 * other end has it, so that nobody knows what a rail that failed has brought over. */
static rubato_status rails_open(struct rb_verbs *vb, const struct search *s)
{
	const struct found *first = &s->found[0], *next;
	bool taken[FOUND_MAX] = { false };
	char text[160];

	for (uint32_t i = 1; i < s->count; i++)
		if (is_before(&s->found[i], first))
			first = &s->found[i];
	for (next = first; next != NULL && vb->rail_count < RB_VERBS_RAILS_MAX;) {
		struct rb_verbs_rail *rail = &vb->rails[vb->rail_count];

		taken[next - s->found] = true;
		rail->index = vb->rail_count;
		rail->port = next->port;
		rail->context = vb->api.ibv_open_device(next->device);
		if (rail->context == NULL)
			return rb_verbs_failed(rail, errno, "opening it");
		vb->rail_count++;
		RB_LOG(RB_LOG_INFO, "verbs: by %s",
		       rb_verbs_port_text(&rail->port, text, sizeof(text)));
		next = NULL;
		for (uint32_t i = 0; i < s->count; i++) {
			const struct found *at = &s->found[i];

			if (!taken[i] && !first->port.iwarp && !at->port.iwarp &&
			    at->port.ethernet == first->port.ethernet &&
			    (at->place != UNPLACED ||
			     (first->place == UNPLACED && at->near == first->near)) &&
			    (next == NULL || is_before(at, next)))
				next = at;
		}
	}
	return RUBATO_OK;
}

rubato_status rb_verbs_devices_open(struct rb_verbs *vb, const char *interface)
{
	struct search s = { .interface = interface, .domain = domain_here() };
	int count = 0;
	struct ibv_device **devices = vb->api.ibv_get_device_list(&count);
	rubato_status status;

	for (int i = 0; devices != NULL && i < count; i++)
		device_try(vb, &s, devices[i]);
	status = s.count == 0 ? nothing_found(&s) : rails_open(vb, &s);
	if (devices != NULL)
		vb->api.ibv_free_device_list(devices);
	return status;
}
