/* info_devices.c -- network interfaces and RDMA devices of this machine. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include "tools/info/info.h"

bool info_line(const char *path, char *line, size_t line_bytes)
{
	FILE *file = fopen(path, "re");

	if (file == NULL)
		return false;
	bool good = fgets(line, (int)line_bytes, file) != NULL;

	(void)fclose(file);
	if (good)
		line[strcspn(line, "\n")] = '\0';
	return good;
}

static void interface_one(struct info *info, json_t *list, const struct ifaddrs *at)
{
	char address[INET6_ADDRSTRLEN] = "", path[128], speed[32] = "", mtu[32] = "";
	const void *from =
		at->ifa_addr->sa_family == AF_INET
			? (const void *)&((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr
			: &((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr;
	bool up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;

	(void)inet_ntop(at->ifa_addr->sa_family, from, address, sizeof(address));
	(void)snprintf(path, sizeof(path), "/sys/class/net/%.32s/mtu", at->ifa_name);
	(void)info_line(path, mtu, sizeof(mtu));
	(void)snprintf(path, sizeof(path), "/sys/class/net/%.32s/speed", at->ifa_name);
	if (!info_line(path, speed, sizeof(speed)) || speed[0] == '-')
		speed[0] = '\0'; /* Loopback and virtual ones have none. */
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-12s %-40s %s, mtu %s%s%s%s\n", at->ifa_name, address,
			      up ? "up" : "down", mtu, speed[0] != '\0' ? ", " : "", speed,
			      speed[0] != '\0' ? " Mbit/s" : "");
	json_array_append_new(list,
			      json_pack("{s:o,s:s,s:b,s:s,s:s*}", "interface",
					results_text(at->ifa_name), "address", address, "up", up,
					"mtu", mtu, "speed_mbit", speed[0] != '\0' ? speed : NULL));
}

static json_t *interfaces(struct info *info)
{
	json_t *list = json_array();
	struct ifaddrs *all = NULL;

	if (info->text != NULL)
		(void)fprintf(info->text, "network interfaces\n");
	if (getifaddrs(&all) == 0) {
		for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next)
			if (at->ifa_addr != NULL && (at->ifa_addr->sa_family == AF_INET ||
						     at->ifa_addr->sa_family == AF_INET6))
				interface_one(info, list, at);
		freeifaddrs(all);
	}
	return list;
}

static void rdma_one(struct info *info, json_t *list, const char *name)
{
	char path[512], state[64] = "unknown", rate[64] = "unknown";

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/state", name);
	(void)info_line(path, state, sizeof(state));
	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/rate", name);
	(void)info_line(path, rate, sizeof(rate));
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-12s port 1: %s, %s\n", name, state, rate);
	json_array_append_new(list, json_pack("{s:o,s:s,s:s}", "device", results_text(name),
					      "state", state, "rate", rate));
}

void info_devices(struct info *info)
{
	DIR *devices = opendir("/sys/class/infiniband");
	json_t *interface_list = interfaces(info), *rdma = json_array();

	if (info->text != NULL)
		(void)fprintf(info->text, "RDMA devices\n");
	for (struct dirent *entry = NULL; devices != NULL && (entry = readdir(devices)) != NULL;)
		if (entry->d_name[0] != '.')
			rdma_one(info, rdma, entry->d_name);
	if (devices != NULL)
		(void)closedir(devices);
	if (info->text != NULL && json_array_size(rdma) == 0)
		(void)fprintf(info->text, "  none\n");
	json_object_set_new(info->json, "devices",
			    json_pack("{s:o,s:o}", "interfaces", interface_list, "rdma", rdma));
}
