/*
 * info_rdma.c -- the doctor's lines on RDMA: what /sys tells of devices, ports and their addresses,
 * and what device memory needs. Read, not tried: whether two ranks meet is the transports' line.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef RB_HAVE_USERFAULTFD
#include <linux/userfaultfd.h>
#endif

#include "tools/info/info.h"

#define PORTS_MAX 8u
#define GIDS_MAX 256u
#define HEADERS_BYTES 96u /* The kernel's: what RoCE needs of a network device's MTU beside data. */
#define ORDERING_BIT 0x10u /* Of PCI Express's device control: relaxed ordering. */
/* UFFD_USER_MODE_ONLY, UFFD_FEATURE_WP_HUGETLBFS_SHMEM, which older headers have not. */
#define WATCH_USER_MODE 1
#define WATCH_OF_5_19 (1u << 12)

struct port {
	const char *system, *device;
	unsigned number;
	char name[96]; /* mlx5_0:1. */
};

/* Of a file of the port; false: it is not there. */
static bool port_line(const struct port *port, const char *file, char *line, size_t line_bytes)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%u/%s", port->system,
		       port->device, port->number, file);
	return info_line(path, line, line_bytes);
}

static bool is_there(const char *system, const char *file)
{
	char path[PATH_MAX];
	FILE *at;

	(void)snprintf(path, sizeof(path), "%s/%s", system, file);
	at = fopen(path, "re");
	if (at != NULL)
		(void)fclose(at);
	return at != NULL;
}

/* 0: none; then RoCE v1, v2 of this link alone, v2 of IPv6, v2 of IPv4: as verbs prefers them. */
static unsigned gid_rank(const struct port *port, unsigned index, char *gid, size_t gid_bytes)
{
	char file[32], type[32] = "";

	(void)snprintf(file, sizeof(file), "gids/%u", index);
	if (!port_line(port, file, gid, gid_bytes) || strspn(gid, "0:") == strlen(gid))
		return 0;
	(void)snprintf(file, sizeof(file), "gid_attrs/types/%u", index);
	if (!port_line(port, file, type, sizeof(type)) || strcmp(type, "RoCE v2") != 0)
		return 1;
	if (strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0)
		return 4;
	return strncmp(gid, "fe80:", 5) == 0 ? 2 : 3;
}

static void gid_check(struct info *info, const struct port *port, const char *netdev)
{
	static const char *const says[] = { NULL, "RoCE v1 only, which no router passes on",
					    "RoCE v2, of this link alone", "RoCE v2, IPv6",
					    "RoCE v2, IPv4" };
	char gid[64], best_gid[64] = "", check[112];
	unsigned best = 0, index = 0;

	for (unsigned i = 0; i < GIDS_MAX; i++) {
		unsigned rank = gid_rank(port, i, gid, sizeof(gid));

		if (rank <= best)
			continue;
		best = rank;
		index = i;
		(void)snprintf(best_gid, sizeof(best_gid), "%s", gid);
	}
	(void)snprintf(check, sizeof(check), "%s GID", port->name);
	if (best == 0)
		info_say(info, check, false, "none: give %s an address", netdev);
	else
		info_say(info, check, best >= 3, "%u: %s (%s)%s%s", index, best_gid, says[best],
			 best >= 3 ? "" : ": peers elsewhere need an IPv4 address on ",
			 best >= 3 ? "" : netdev);
}

static void mtu_check(struct info *info, const struct port *port, const char *netdev)
{
	char path[PATH_MAX], line[32], check[112];
	unsigned long netdev_mtu, carries = 256;

	(void)snprintf(path, sizeof(path), "%s/class/net/%s/mtu", port->system, netdev);
	if (!info_line(path, line, sizeof(line)))
		return;
	netdev_mtu = strtoul(line, NULL, 10);
	while (carries < 4096 && 2 * carries + HEADERS_BYTES <= netdev_mtu)
		carries *= 2;
	(void)snprintf(check, sizeof(check), "%s MTU", port->name);
	info_say(info, check, carries == 4096, "%lu, of %lu of %s%s%s%s", carries, netdev_mtu,
		 netdev, carries == 4096 ? "" : ": 4096 needs, on the whole way, ip link set ",
		 carries == 4096 ? "" : netdev, carries == 4096 ? "" : " mtu 4200");
}

/* In UCX's list: by its whole name, by "all", or, behind ^, not there. */
static bool is_listed(const char *list, const char *name)
{
	bool others = list[0] == '^', found = false;
	char copy[512], *rest = copy, *item;

	(void)snprintf(copy, sizeof(copy), "%s", list + others);
	while ((item = strsep(&rest, ",")) != NULL)
		found |= strcmp(item, name) == 0 || strcmp(item, "all") == 0;
	return found != others;
}

/* "rc", "rc_v", "ud_mlx5": whether UCX's list has one for RDMA. */
static bool lists_rdma(const char *list)
{
	static const char *const kinds[] = { "all", "ib", "rc", "ud", "dc", "srd", "gga" };
	char copy[512], *rest = copy, *item;
	bool found = false;

	if (list[0] == '^') /* Those that are left out by one are not all. */
		return is_listed(list, "ib");
	(void)snprintf(copy, sizeof(copy), "%s", list);
	while ((item = strsep(&rest, ",")) != NULL)
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			size_t bytes = strlen(kinds[i]);

			found |= strncmp(item, kinds[i], bytes) == 0 &&
				 (item[bytes] == '\0' || item[bytes] == '_');
		}
	return found;
}

/* Whether UCX may use an active port, by its own variables, as they are here. */
static void ucx_check(struct info *info, const struct port *port)
{
	const char *devices = getenv("UCX_NET_DEVICES"), *tls = getenv("UCX_TLS");
	bool left = devices != NULL && !is_listed(devices, port->name);
	char check[112];

	(void)snprintf(check, sizeof(check), "%s UCX", port->name);
	if (left)
		info_say(info, check, false, "UCX_NET_DEVICES=%s leaves it unused: name it, too",
			 devices);
	else if (tls != NULL && !lists_rdma(tls))
		info_say(info, check, false, "UCX_TLS=%s leaves it unused: name rc, too", tls);
	else
		info_say(info, check, true, "UCX may use it%s%s",
			 devices != NULL ? "; UCX_NET_DEVICES=" : "",
			 devices != NULL ? devices : "");
}

static void port_check(struct info *info, const struct port *port)
{
	char state[64], rate[64] = "", layer[32] = "", netdev[64];
	bool active, ethernet;

	if (!port_line(port, "state", state, sizeof(state)))
		return;
	(void)port_line(port, "rate", rate, sizeof(rate));
	(void)port_line(port, "link_layer", layer, sizeof(layer));
	if (!port_line(port, "gid_attrs/ndevs/0", netdev, sizeof(netdev)))
		(void)snprintf(netdev, sizeof(netdev), "its network device");
	active = strstr(state, "ACTIVE") != NULL;
	ethernet = strcmp(layer, "Ethernet") == 0;
	info_say(info, port->name, active, "%s, %s, %s%s%s", state, layer, rate,
		 active     ? ""
		 : ethernet ? ": not used; cable and switch, or ip link set up "
			    : ": not used; cable, switch, subnet manager",
		 !active && ethernet ? netdev : "");
	if (active)
		ucx_check(info, port);
	if (!active || !ethernet)
		return;
	gid_check(info, port, netdev);
	mtu_check(info, port, netdev);
}

/* Whether the device may reorder its writes. Its configuration behind the first 64 bytes is for
 * root. */
static void ordering_check(struct info *info, const char *system, const char *device)
{
	uint8_t config[256] = { 0 };
	char path[PATH_MAX], check[112];
	FILE *file;
	size_t bytes = 0, at;

	(void)snprintf(path, sizeof(path), "%s/class/infiniband/%s/device/config", system, device);
	(void)snprintf(check, sizeof(check), "%s PCI", device);
	file = fopen(path, "re");
	if (file == NULL)
		return; /* It is none of PCI's. */
	bytes = fread(config, 1, sizeof(config), file);
	(void)fclose(file);
	at = bytes > 64 ? config[0x34] & 0xfcu : 0;
	for (unsigned k = 0; k < 48 && at >= 64 && at + 10 <= bytes && config[at] != 0x10; k++)
		at = config[at + 1] & 0xfcu;
	if (at < 64 || at + 10 > bytes || config[at] != 0x10) {
		info_say(info, check, true, "relaxed ordering: not known%s",
			 bytes <= 64 ? ", only root may read it" : "");
		return;
	}
	info_say(info, check, true, "relaxed ordering %s",
		 (config[at + 8] & ORDERING_BIT) != 0 ? "allowed" : "not allowed by the system");
}

static void library_check(struct info *info, bool devices)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *open = library != NULL ? dlsym(library, "ibv_open_device") : NULL;
	char path[PATH_MAX];
	Dl_info where;

	if (open == NULL) {
		info_say(info, "libibverbs", !devices, "not there%s",
			 devices ? ": RDMA devices are not used; install libibverbs1 and "
				   "ibverbs-providers"
				 : ", and no RDMA device either");
		return;
	}
	info_say(info, "libibverbs", true, "%s", /* The file's name has the version. */
		 dladdr(open, &where) != 0 && realpath(where.dli_fname, path) != NULL ? path
										      : "loaded");
	if (devices)
		info_say(info, "dma-buf", true, "libibverbs %s register device memory by it",
			 dlsym(library, "ibv_reg_dmabuf_mr") != NULL ? "can" : "cannot");
}

/* As verbs does: transport/verbs/verbs_watch.c. */
static void watch_check(struct info *info)
{
#ifdef RB_HAVE_USERFAULTFD
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
					      UFFD_FEATURE_EVENT_REMAP | WATCH_OF_5_19 };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | WATCH_USER_MODE);
	bool good = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0;

	if (good)
		info_say(info, "userfaultfd", true,
			 "registrations of plain memory that is used again are kept");
	else
		info_say(info, "userfaultfd", false,
			 "%s: each message of plain memory is registered by itself",
			 fd < 0 ? strerror(errno) : "older than Linux 5.19");
	if (fd >= 0)
		(void)close(fd);
#else
	info_say(info, "userfaultfd", false,
		 "built without it: each message of plain memory is registered by itself");
#endif
}

static void peermem_check(struct info *info, const char *system)
{
	bool loaded = is_there(system, "module/nvidia_peermem/initstate") ||
		      is_there(system, "module/nv_peer_mem/initstate");
	bool cards = is_there(system, "module/nvidia/initstate");

	info_say(
		info, "peermem", loaded || !cards, "%s",
		loaded  ? "nvidia_peermem is loaded"
		: cards ? "not loaded: device memory goes by dma-buf or through the host; modprobe "
			  "nvidia_peermem"
			: "not loaded, and no NVIDIA driver either");
}

void info_rdma(struct info *info, const char *system)
{
	char path[PATH_MAX];
	bool found = false;
	DIR *devices;

	(void)snprintf(path, sizeof(path), "%s/class/infiniband", system);
	devices = opendir(path);
	for (struct dirent *entry; devices != NULL && (entry = readdir(devices)) != NULL;) {
		struct port port = { .system = system, .device = entry->d_name };

		if (entry->d_name[0] == '.')
			continue;
		found = true;
		for (port.number = 1; port.number <= PORTS_MAX; port.number++) {
			(void)snprintf(port.name, sizeof(port.name), "%.64s:%u", entry->d_name,
				       port.number);
			port_check(info, &port);
		}
		ordering_check(info, system, entry->d_name);
	}
	if (devices != NULL)
		(void)closedir(devices);
	if (!found)
		info_say(info, "RDMA", true, "no device: networks go by TCP");
	library_check(info, found);
	if (found)
		watch_check(info);
	if (found)
		peermem_check(info, system);
}
