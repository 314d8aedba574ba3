/*
 * netdevs.h -- this machine's addresses, as the mock's iWARP devices have them: in the program that
 * includes it, getifaddrs() is this one.
 */
#ifndef RB_TESTS_NETDEVS_H
#define RB_TESTS_NETDEVS_H

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>

#define NETDEVS_NODES 2u
#define NETDEVS_RAILS 2u

struct netdevs {
	struct ifaddrs list[1 + NETDEVS_NODES * NETDEVS_RAILS];
	struct sockaddr_in addresses[1 + NETDEVS_NODES * NETDEVS_RAILS];
};

__attribute__((visibility("default"))) int getifaddrs(struct ifaddrs **out)
{
	struct netdevs *all = calloc(1, sizeof(*all));
	uint32_t count = sizeof(all->list) / sizeof(all->list[0]);

	if (all == NULL)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t rail = (i + 1) / 2, node = (i + 1) % 2;

		all->list[i].ifa_next = i + 1 < count ? &all->list[i + 1] : NULL;
		all->list[i].ifa_name = i == 0 ? "lo" : "mock";
		all->list[i].ifa_flags = IFF_UP | (i == 0 ? IFF_LOOPBACK : 0);
		all->addresses[i].sin_family = AF_INET;
		all->addresses[i].sin_addr.s_addr = htonl(
			i == 0 ? INADDR_LOOPBACK : 0x0a000001u | (rail - 1) * 2 << 16 | node << 8);
		all->list[i].ifa_addr = (struct sockaddr *)&all->addresses[i];
	}
	*out = &all->list[0];
	return 0;
}

__attribute__((visibility("default"))) void freeifaddrs(struct ifaddrs *list)
{
	free(list);
}

#endif
