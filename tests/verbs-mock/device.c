/*
 * device.c -- devices, ports and their tables, contexts, protection domains.
 *
 * A node has devices of its own, with the same names as on other nodes and other GIDs. The tables
 * are as mlx5 fills them: RoCE v1 and v2 of the link-local address, then of an IPv4 address.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/verbs-mock/process.h"

struct mock_device {
	struct ibv_device v;
	uint32_t index; /* In the world. */
};

static struct mock_device devices[WORLD_NODES * WORLD_DEVICES];
static __thread uint32_t thread_node = WORLD_NONE;

static uint64_t guid_of(uint32_t device, uint32_t port)
{
	return 0x0200c9fffe000000ull | (uint64_t)(device / WORLD_DEVICES) << 16 |
	       (uint64_t)(device % WORLD_DEVICES) << 8 | port;
}

/* 10.rail.node.1, as a GID. */
static union ibv_gid port_address(uint32_t device, uint32_t number)
{
	union ibv_gid gid = { { 0 } };

	gid.raw[10] = gid.raw[11] = 0xff;
	gid.raw[12] = 10;
	gid.raw[13] = (unsigned char)(device % WORLD_DEVICES * WORLD_PORTS + number);
	gid.raw[14] = (unsigned char)(device / WORLD_DEVICES);
	gid.raw[15] = 1;
	return gid;
}

/* iWARP: a MAC address. */
static union ibv_gid iwarp_gid(uint32_t device, uint32_t number)
{
	uint64_t guid = htobe64(guid_of(device, number));
	union ibv_gid gid = { { 0x02 } };

	memcpy(gid.raw + 1, (unsigned char *)&guid + 3, 5);
	return gid;
}

static void port_table(const struct mock_config *config, bool infiniband, struct world_port *port,
		       uint32_t device, uint32_t number)
{
	uint64_t guid = htobe64(guid_of(device, number));

	*port = (struct world_port) { .state = IBV_PORT_ACTIVE,
				      .infiniband = infiniband,
				      .mtu = (uint32_t)config->mtu };
	port->fabric = config->fabrics != 0 ? device % WORLD_DEVICES * WORLD_PORTS + number : 0;
	port->lid = infiniband ? (uint16_t)(1 + device * WORLD_PORTS + number) : 0;
	if (config->iwarp != 0) {
		port->gids[0] = iwarp_gid(device, number);
		return;
	}
	for (uint32_t i = 0; i < (infiniband ? 1 : 4); i++) {
		union ibv_gid *gid = &port->gids[i];

		port->gid_types[i] = infiniband   ? IBV_GID_TYPE_IB
				     : i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1
						  : IBV_GID_TYPE_ROCE_V2;
		if (i < 2) {
			gid->raw[0] = 0xfe;
			gid->raw[1] = 0x80;
			memcpy(gid->raw + 8, &guid, 8);
		} else {
			*gid = port_address(device, number);
		}
	}
}

void device_tables(struct world *world)
{
	for (uint32_t i = 0; i < WORLD_NODES * WORLD_DEVICES; i++) {
		world->devices[i] = (struct world_device) { 0 };
		for (uint32_t port = 0; port < WORLD_PORTS; port++)
			port_table(&world->config, world->config.infiniband != 0,
				   &world->devices[i].ports[port], i, port);
	}
	for (uint32_t i = 0; i < WORLD_NODES; i++)
		world->devices_of[i] = (uint32_t)world->config.devices;
}

MOCK_API void mock_set_node(uint32_t node, const char *name, uint64_t value)
{
	struct world *world = world_attach();

	world_lock(world);
	if (strcmp(name, "devices") == 0)
		world->devices_of[node] = (uint32_t)value;
	for (uint32_t i = 0; i < WORLD_DEVICES * WORLD_PORTS; i++) {
		uint32_t device = node * WORLD_DEVICES + i / WORLD_PORTS;
		struct world_port *port = &world->devices[device].ports[i % WORLD_PORTS];

		if (strcmp(name, "infiniband") == 0)
			port_table(&world->config, value != 0, port, device, i % WORLD_PORTS);
		else if (strcmp(name, "mtu") == 0)
			port->mtu = (uint32_t)value;
	}
	world_unlock(world);
}

static bool gid_same(const union ibv_gid *a, const union ibv_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool port_has(const struct world_port *port, const struct ibv_ah_attr *to)
{
	if (!to->is_global)
		return port->lid != 0 && port->lid == to->dlid;
	for (uint32_t i = 0; i < WORLD_GIDS; i++)
		if (gid_same(&port->gids[i], &to->grh.dgid))
			return true;
	return false;
}

bool device_find(const struct world *world, uint32_t from, const struct ibv_ah_attr *to,
		 uint32_t *device, uint32_t *port)
{
	const struct world_port *source = &world->devices[from].ports[to->port_num - 1];

	for (uint32_t i = 0; i < WORLD_NODES * WORLD_DEVICES; i++)
		for (uint32_t j = 0; j < world->config.ports; j++) {
			const struct world_port *at = &world->devices[i].ports[j];

			if (i % WORLD_DEVICES >= world->devices_of[i / WORLD_DEVICES] ||
			    at->fabric != source->fabric || !port_has(at, to))
				continue;
			*device = i;
			*port = j;
			return true;
		}
	return false;
}

static bool port_addressed(const struct world *world, uint32_t device, uint32_t port,
			   const union ibv_gid *address)
{
	const struct ibv_ah_attr to = { .is_global = 1, .grh.dgid = *address };
	const union ibv_gid own = port_address(device, port);

	return world->config.iwarp != 0 ? gid_same(&own, address)
					: port_has(&world->devices[device].ports[port], &to);
}

bool device_addressed(const struct world *world, uint32_t node, const union ibv_gid *address,
		      uint32_t *device, uint32_t *port)
{
	for (uint32_t i = 0; i < WORLD_NODES * WORLD_DEVICES; i++)
		for (uint32_t j = 0; j < world->config.ports; j++) {
			if (i % WORLD_DEVICES >= world->devices_of[i / WORLD_DEVICES] ||
			    (node != WORLD_NONE && i / WORLD_DEVICES != node) ||
			    !port_addressed(world, i, j, address))
				continue;
			*device = i;
			*port = j;
			return true;
		}
	return false;
}

struct ibv_device *device_at(uint32_t index)
{
	return &devices[index].v;
}

MOCK_API void mock_node(uint32_t node)
{
	thread_node = node;
}

uint32_t device_node(void)
{
	const char *text = getenv("VERBS_MOCK_NODE");
	uint32_t node = thread_node;

	if (node == WORLD_NONE)
		node = text == NULL ? 0 : (uint32_t)strtoul(text, NULL, 10);
	return node < WORLD_NODES ? node : 0;
}

void devices_name(void)
{
	for (uint32_t i = 0; i < WORLD_NODES * WORLD_DEVICES; i++) {
		struct ibv_device *v = &devices[i].v;

		devices[i].index = i;
		v->node_type = IBV_NODE_CA;
		v->transport_type = IBV_TRANSPORT_IB;
		(void)snprintf(v->name, sizeof(v->name), "mock%u", i % WORLD_DEVICES);
		(void)snprintf(v->dev_name, sizeof(v->dev_name), "uverbs%u", i % WORLD_DEVICES);
	}
}

/* What it is depends on the world, which is not there when devices are named. */
static void device_type_set(struct world *world, struct ibv_device *device)
{
	enum ibv_transport_type type =
		config_now(world).iwarp != 0 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;

	world_lock(world);
	if (device->transport_type != type)
		device->transport_type = type;
	world_unlock(world);
}

MOCK_API struct ibv_device **ibv_get_device_list(int *count)
{
	int error = call_fails(CALL_ibv_get_device_list);
	struct world *world = error == 0 ? world_attach() : NULL;
	struct ibv_device **list;
	uint32_t found;

	if (error != 0)
		errno = error;
	if (world == NULL)
		return NULL;
	list = calloc(WORLD_DEVICES + 1, sizeof(*list));
	if (list == NULL)
		return NULL;
	world_lock(world);
	found = world->devices_of[device_node()];
	world_unlock(world);
	for (uint32_t i = 0; i < found; i++) {
		list[i] = &devices[device_node() * WORLD_DEVICES + i].v;
		device_type_set(world, list[i]);
	}
	if (count != NULL)
		*count = (int)found;
	return list;
}

MOCK_API void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

MOCK_API const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

MOCK_API __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(guid_of(((struct mock_device *)device)->index, 0xff));
}

MOCK_API int ibv_get_device_index(struct ibv_device *device)
{
	return (int)(((struct mock_device *)device)->index % WORLD_DEVICES);
}

struct mock_context *context_of(struct ibv_context *context)
{
	return (struct mock_context *)verbs_get_ctx(context);
}

static void device_attr(struct world *world, uint32_t device, struct ibv_device_attr *attr)
{
	const struct mock_config config = config_now(world), *c = &config;

	*attr = (struct ibv_device_attr) {
		.fw_ver = "1.0",
		.node_guid = htobe64(guid_of(device, 0xff)),
		.sys_image_guid = htobe64(guid_of(device, 0xff)),
		.max_mr_size = c->max_mr_size,
		.page_size_cap = 4096,
		.max_qp = (int)c->max_qp,
		.max_qp_wr = (int)c->max_qp_wr,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_SRQ_RESIZE,
		.max_sge = (int)c->max_sge,
		.max_sge_rd = (int)c->max_sge,
		.max_cq = (int)c->max_cq,
		.max_cqe = (int)c->max_cqe,
		.max_mr = (int)c->max_mr,
		.max_pd = (int)c->max_pd,
		.max_qp_rd_atom = (int)c->max_rd_atomic,
		.max_qp_init_rd_atom = (int)c->max_rd_atomic,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_ah = 65536,
		.max_srq = (int)c->max_srq,
		.max_srq_wr = (int)c->max_srq_wr,
		.max_srq_sge = (int)c->max_sge,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = (uint8_t)c->ports,
	};
}

MOCK_API int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int error = call_fails(CALL_ibv_query_device);

	if (error == 0)
		device_attr(world_now(), context_of(context)->device, attr);
	return error;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t bytes)
{
	int error = call_fails(CALL_ibv_query_device);
	struct ibv_device_attr_ex all = { .phys_port_cnt_ex =
						  (uint32_t)config_now(world_now()).ports };

	(void)input;
	if (error != 0)
		return error;
	device_attr(world_now(), context_of(context)->device, &all.orig_attr);
	memset(attr, 0, bytes);
	memcpy(attr, &all, bytes < sizeof(all) ? bytes : sizeof(all));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr,
		      size_t bytes)
{
	int error = call_fails(CALL_ibv_query_port);
	struct world *world = world_now();
	const struct world_port *port;
	struct ibv_port_attr all;

	if (error == 0 && (number < 1 || number > config_now(world).ports))
		error = EINVAL;
	if (error != 0)
		return error;
	world_lock(world);
	port = &world->devices[context_of(context)->device].ports[number - 1];
	all = (struct ibv_port_attr) {
		.state = port->state,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = (enum ibv_mtu)port->mtu,
		.gid_tbl_len = WORLD_GIDS,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = (uint32_t)world->config.max_msg,
		.pkey_tbl_len = 1,
		.lid = port->lid,
		.sm_lid = port->lid != 0 ? 1 : 0,
		.max_vl_num = 1,
		.active_width = 2,  /* 4x */
		.active_speed = 32, /* EDR */
		.phys_state = port->state == IBV_PORT_ACTIVE ? 5 : 3,
		.link_layer =
			port->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
	};
	world_unlock(world);
	memset(attr, 0, bytes);
	memcpy(attr, &all, bytes < sizeof(all) ? bytes : sizeof(all));
	return 0;
}

/* The symbol of old programs, whose struct ends at link_layer and what pads it. */
#undef ibv_query_port
MOCK_API int ibv_query_port(struct ibv_context *context, uint8_t number,
			    struct _compat_ibv_port_attr *attr)
{
	return query_port(context, number, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

MOCK_API int ibv_query_gid(struct ibv_context *context, uint8_t number, int index,
			   union ibv_gid *gid)
{
	int error = call_fails(CALL_ibv_query_gid);
	struct world *world = world_now();

	if (error == 0 && (number < 1 || number > config_now(world).ports || index < 0 ||
			   index >= (int)WORLD_GIDS))
		error = EINVAL;
	if (error != 0) {
		errno = error;
		return -1;
	}
	world_lock(world);
	*gid = world->devices[context_of(context)->device].ports[number - 1].gids[index];
	world_unlock(world);
	return 0;
}

static bool gid_entry(const struct world *world, uint32_t device, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry)
{
	static const union ibv_gid none;
	const struct world_port *at = &world->devices[device].ports[port];

	if (gid_same(&at->gids[index], &none))
		return false;
	*entry = (struct ibv_gid_entry) {
		.gid = at->gids[index],
		.gid_index = index,
		.port_num = port + 1,
		.gid_type = at->gid_types[index],
		.ndev_ifindex = world->config.infiniband != 0 ? 0 : 1,
	};
	return true;
}

MOCK_API int _ibv_query_gid_ex(struct ibv_context *context, uint32_t number, uint32_t index,
			       struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	int error = call_fails(CALL_ibv_query_gid_ex);
	struct world *world = world_now();
	struct ibv_gid_entry all;

	if (error == 0 && (number < 1 || number > config_now(world).ports || index >= WORLD_GIDS ||
			   flags != 0 || bytes > sizeof(all)))
		error = EINVAL;
	if (error != 0)
		return error;
	world_lock(world);
	if (gid_entry(world, context_of(context)->device, number - 1, index, &all))
		memcpy(entry, &all, bytes);
	else
		error = ENODATA;
	world_unlock(world);
	return error;
}

MOCK_API ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				      size_t max, uint32_t flags, size_t bytes)
{
	int error = call_fails(CALL_ibv_query_gid_table);
	struct world *world = world_now();
	size_t count = 0;

	if (error == 0 && (flags != 0 || bytes > sizeof(*entries)))
		error = EINVAL;
	if (error != 0)
		return -error;
	world_lock(world);
	for (uint32_t port = 0; port < world->config.ports; port++)
		for (uint32_t i = 0; i < WORLD_GIDS && count < max; i++) {
			struct ibv_gid_entry all;

			if (!gid_entry(world, context_of(context)->device, port, i, &all))
				continue;
			memcpy((char *)entries + count * bytes, &all, bytes);
			count++;
		}
	world_unlock(world);
	return (ssize_t)count;
}

MOCK_API int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
	int error = call_fails(CALL_ibv_query_pkey);

	(void)context;
	if (error == 0 && (number < 1 || number > config_now(world_now()).ports || index != 0))
		error = EINVAL;
	if (error != 0) {
		errno = error;
		return -1;
	}
	*pkey = htons(0xffff);
	return 0;
}

MOCK_API int ibv_get_pkey_index(struct ibv_context *context, uint8_t number, __be16 pkey)
{
	(void)context;
	return number >= 1 && number <= config_now(world_now()).ports && pkey == htons(0xffff) ? 0
											       : -1;
}

static struct ibv_context_ops context_ops(void)
{
	return (struct ibv_context_ops) {
		.poll_cq = poll_cq,
		.req_notify_cq = req_notify_cq,
		.post_send = post_send,
		.post_recv = post_recv,
		.post_srq_recv = post_srq_recv,
	};
}

MOCK_API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int error = call_fails(CALL_ibv_open_device);
	struct world *world = error == 0 ? world_attach() : NULL;
	struct mock_context *context = world != NULL ? calloc(1, sizeof(*context)) : NULL;

	if (context != NULL)
		error = event_queue_open(&context->events);
	if (error != 0)
		errno = error;
	if (context == NULL || error != 0) {
		free(context);
		return NULL;
	}
	context->device = ((struct mock_device *)device)->index;
	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = query_port;
	context->verbs.query_device_ex = query_device_ex;
	context->verbs.context = (struct ibv_context) {
		.device = device,
		.ops = context_ops(),
		.cmd_fd = -1,
		.async_fd = context->events.fd,
		.num_comp_vectors = 4,
		.abi_compat = __VERBS_ABI_IS_EXTENDED,
	};
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	world_lock(world);
	context->id = ++world->pd_last;
	context->device_events = world->devices[context->device].event_count;
	context->next = process.contexts;
	process.contexts = context;
	world_unlock(world);
	engine_start();
	return &context->verbs.context;
}

MOCK_API int ibv_close_device(struct ibv_context *context)
{
	struct mock_context *own = context_of(context);
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_close_device);
	bool last;

	if (error != 0) {
		errno = error;
		return -1;
	}
	world_lock(world);
	context_sweep(world, own);
	for (struct mock_context **at = &process.contexts; *at != NULL; at = &(*at)->next)
		if (*at == own) {
			*at = own->next;
			break;
		}
	last = process.contexts == NULL;
	world_unlock(world);
	if (last)
		engine_stop();
	event_queue_close(&own->events);
	pthread_mutex_destroy(&context->mutex);
	free(own);
	return 0;
}

MOCK_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	int error = call_fails(CALL_ibv_alloc_pd);
	struct mock_context *own = context_of(context);
	struct world *world = world_now();
	struct mock_pd *pd = error == 0 ? calloc(1, sizeof(*pd)) : NULL;

	if (error != 0)
		errno = error;
	if (pd == NULL)
		return NULL;
	world_lock(world);
	if (world->devices[own->device].pds >= world->config.max_pd) {
		world_unlock(world);
		free(pd);
		errno = ENOMEM;
		return NULL;
	}
	world->devices[own->device].pds++;
	own->pds++;
	pd->id = ++world->pd_last;
	pd->v = (struct ibv_pd) { .context = context, .handle = pd->id };
	world_unlock(world);
	return &pd->v;
}

MOCK_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct mock_pd *own = (struct mock_pd *)pd;
	struct mock_context *context = context_of(pd->context);
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_dealloc_pd);
	bool busy;

	if (error != 0)
		return error;
	world_lock(world);
	busy = own->users > 0;
	if (!busy) {
		world->devices[context->device].pds--;
		context->pds--;
	}
	world_unlock(world);
	if (busy)
		return EBUSY;
	free(own);
	return 0;
}
