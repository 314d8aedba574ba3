/* interfaces.h -- which network devices a job uses. */
#ifndef RB_RUNTIME_INTERFACES_H
#define RB_RUNTIME_INTERFACES_H

#include "runtime/startup/bootstrap.h"

#define RB_INTERFACE_ADDRESSES_MAX 32
#define RB_INTERFACE_NAME_BYTES 16

struct rb_interface_address {
	char name[RB_INTERFACE_NAME_BYTES];
	uint8_t family; /* 4 or 6. */
	bool loopback;
	uint8_t bytes[16]; /* In network order; of IPv4 the first 4. */
};

/* Whether `pattern` (RUBATO_INTERFACE) wants a device: "eth0,ib" names devices or how their names
 * begin, "^docker,lo" all but those, "" all. */
bool rb_interface_wanted(const char *pattern, const char *name);

/*
 * Which variable keeps UCX from active RDMA ports in `folder` (/sys/class/infiniband), and its
 * value: RUBATO_INTERFACE ("": not set), else UCX_NET_DEVICES, or UCX_TLS (NULL: not set). The text
 * has as many of the ports as fit: "mlx5_0:1,mlx5_1:1". NULL: none does.
 */
const char *rb_interfaces_ucx_leaves(const char *folder, const char *interface, const char *devices,
				     const char *tls, const char **value, char *text,
				     size_t text_bytes);

/* Addresses of devices that are up and running, as the system lists them; none of one link alone.
 * Returns how many. */
uint32_t rb_interface_addresses(const char *pattern, struct rb_interface_address *out,
				uint32_t count_max);

/*
 * Collective: the devices, by name and separated by ',', that a network transport should use on
 * this rank; "": as it likes. Without a pattern these are the devices through which ranks on other
 * machines could really be reached, tried where some machine has more than one. Errors: ARGUMENT
 * (a pattern that no device fits), those of the bootstrap.
 */
RB_NODISCARD rubato_status rb_interfaces_choose(struct rb_bootstrap *b, const char *pattern,
						uint64_t deadline_ns, char *devices,
						size_t devices_bytes);

#endif
