/* info_devices.c -- network interfaces and RDMA devices of this machine. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include "tools/info.h"

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

static void interface_one(struct info *info, const struct ifaddrs *at)
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
	if (info->json == NULL)
		return;
	json_begin(info->json, NULL, '{');
	json_text(info->json, "interface", at->ifa_name);
	json_text(info->json, "address", address);
	json_bool(info->json, "up", up);
	json_text(info->json, "mtu", mtu);
	if (speed[0] != '\0')
		json_text(info->json, "speed_mbit", speed);
	json_end(info->json, '}');
}

static void interfaces(struct info *info)
{
	struct ifaddrs *all = NULL;

	if (info->text != NULL)
		(void)fprintf(info->text, "network interfaces\n");
	if (info->json != NULL)
		json_begin(info->json, "interfaces", '[');
	if (getifaddrs(&all) == 0) {
		for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next)
			if (at->ifa_addr != NULL && (at->ifa_addr->sa_family == AF_INET ||
						     at->ifa_addr->sa_family == AF_INET6))
				interface_one(info, at);
		freeifaddrs(all);
	}
	if (info->json != NULL)
		json_end(info->json, ']');
}

static void rdma_one(struct info *info, const char *name)
{
	char path[512], state[64] = "unknown", rate[64] = "unknown";

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/state", name);
	(void)info_line(path, state, sizeof(state));
	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/rate", name);
	(void)info_line(path, rate, sizeof(rate));
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-12s port 1: %s, %s\n", name, state, rate);
	if (info->json == NULL)
		return;
	json_begin(info->json, NULL, '{');
	json_text(info->json, "device", name);
	json_text(info->json, "state", state);
	json_text(info->json, "rate", rate);
	json_end(info->json, '}');
}

void info_devices(struct info *info)
{
	DIR *devices = opendir("/sys/class/infiniband");
	uint32_t count = 0;

	if (info->json != NULL)
		json_begin(info->json, "devices", '{');
	interfaces(info);
	if (info->text != NULL)
		(void)fprintf(info->text, "RDMA devices\n");
	if (info->json != NULL)
		json_begin(info->json, "rdma", '[');
	for (struct dirent *entry = NULL; devices != NULL && (entry = readdir(devices)) != NULL;) {
		if (entry->d_name[0] == '.')
			continue;
		rdma_one(info, entry->d_name);
		count++;
	}
	if (devices != NULL)
		(void)closedir(devices);
	if (info->text != NULL && count == 0)
		(void)fprintf(info->text, "  none\n");
	if (info->json != NULL) {
		json_end(info->json, ']');
		json_end(info->json, '}');
	}
}
