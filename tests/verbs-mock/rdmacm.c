/*
 * rdmacm.c -- a librdmacm of the tests: the functions with which queue pairs of one's own are
 * connected, and as the kernel carries them out. Symbols are of librdmacm 44.
 *
 * Addresses are IP addresses of ports' GIDs, or for InfiniBand GIDs; on iWARP 10.rail.node.1. Every
 * answer comes as an event, as late as a seed draws. On iWARP the system moves the queue pairs, and
 * who has accepted must not send before something has come.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/ib.h>

#include "tests/verbs-mock/rdmacm.h"

#define NO_LISTENER 8 /* IB_CM_REJ_INVALID_SERVICE_ID */
#define FIRST_PORT 32768u

static int failed(int error)
{
	errno = error;
	return -1;
}

static struct world_cm *world_of(struct world *world, struct rdma_cm_id *id)
{
	return &world->cms[((struct mock_cm *)id)->index];
}

/* ---- Channels and identifiers ---- */

MOCK_API struct rdma_event_channel *rdma_create_event_channel(void)
{
	int error = call_fails(CALL_rdma_create_event_channel);
	struct mock_cm_channel *channel = error == 0 ? calloc(1, sizeof(*channel)) : NULL;

	if (channel != NULL)
		error = event_queue_open(&channel->events);
	if (error != 0)
		errno = error;
	if (channel == NULL || error != 0) {
		free(channel);
		return NULL;
	}
	channel->v.fd = channel->events.fd;
	return &channel->v;
}

/* It ends; its memory is the caller's. */
static void id_free(struct world *world, struct mock_cm *cm)
{
	struct mock_cm_channel *channel = (struct mock_cm_channel *)cm->v.channel;

	cm_end(world, cm->index);
	process.cms[cm->index] = NULL;
	channel->ids--;
	event_queue_purge(&channel->events, cm);
}

MOCK_API void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct mock_cm_channel *own = (struct mock_cm_channel *)channel;
	struct world *world = world_now();

	world_lock(world);
	world->counters.left_open += own->ids;
	for (uint32_t i = 0; i < world->cm_end && own->ids > 0; i++)
		if (process.cms[i] != NULL && process.cms[i]->v.channel == channel)
			id_free(world, process.cms[i]);
	world_unlock(world);
	event_queue_close(&own->events);
	free(own);
}

MOCK_API int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
			    void *context, enum rdma_port_space space)
{
	int error = call_fails(CALL_rdma_create_id);
	struct world *world = world_now();
	struct mock_cm *cm = calloc(1, sizeof(*cm));

	if (error == 0 && cm != NULL) {
		world_lock(world);
		cm->index = cm_make(world, world_self());
		cm->known = true;
		error = cm->index == WORLD_NONE ? ENOMEM : 0;
		if (error == 0) {
			process.cms[cm->index] = cm;
			((struct mock_cm_channel *)channel)->ids++;
		}
		world_unlock(world);
	}
	if (error != 0 || cm == NULL) {
		free(cm);
		return failed(error != 0 ? error : ENOMEM);
	}
	cm->v = (struct rdma_cm_id) { .channel = channel, .context = context, .ps = space };
	*id = &cm->v;
	return 0;
}

MOCK_API int rdma_destroy_id(struct rdma_cm_id *id)
{
	int error = call_fails(CALL_rdma_destroy_id);
	struct mock_cm *cm = (struct mock_cm *)id;
	struct world *world = world_now();

	if (error != 0)
		return failed(error);
	world_lock(world);
	for (uint32_t i = 0; world_of(world, id)->state == CM_LISTENS && i < world->cm_end; i++) {
		struct mock_cm *request = process.cms[i];

		if (request == NULL || request->known || world->cms[i].listener != cm->index)
			continue;
		id_free(world, request);
		free(request);
	}
	id_free(world, cm);
	events_acknowledged(world, "rdma_destroy_id", &cm->taken, &cm->completed);
	world_unlock(world);
	free(cm);
	return 0;
}

/* ---- Events ---- */

void cm_taken(struct mock_cm *cm)
{
	cm->taken++;
	cm->known = true;
}

MOCK_API int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	int error = call_fails(CALL_rdma_get_cm_event);
	struct world *world = world_now();
	struct mock_cm_event *next;

	if (error != 0)
		return failed(error);
	world_lock(world);
	cm_raise(world);
	world_unlock(world);
	next = (struct mock_cm_event *)event_queue_take(
		world, &((struct mock_cm_channel *)channel)->events);
	if (next == NULL)
		return -1;
	*event = &next->v;
	return 0;
}

MOCK_API int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct mock_cm_event *own =
		(struct mock_cm_event *)((char *)event - offsetof(struct mock_cm_event, v));
	struct world *world = world_now();

	world_lock(world);
	own->base.id->completed++;
	world_unlock(world);
	free(own);
	return 0;
}

MOCK_API const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const texts[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
		"RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
		"RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	return (uint32_t)event < sizeof(texts) / sizeof(texts[0]) ? texts[event] : "UNKNOWN EVENT";
}

/* ---- Addresses ---- */

static bool address_read(const struct sockaddr *address, union ibv_gid *gid, uint16_t *number)
{
	const struct sockaddr_in *in = (const void *)address;
	const struct sockaddr_in6 *in6 = (const void *)address;
	const struct sockaddr_ib *ib = (const void *)address;

	memset(gid, 0, sizeof(*gid));
	switch (address->sa_family) {
	case AF_INET:
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &in->sin_addr, 4);
		*number = ntohs(in->sin_port);
		return true;
	case AF_INET6:
		memcpy(gid->raw, &in6->sin6_addr, sizeof(gid->raw));
		*number = ntohs(in6->sin6_port);
		return true;
	case AF_IB:
		memcpy(gid->raw, &ib->sib_addr, sizeof(gid->raw));
		*number = (uint16_t)be64toh(ib->sib_sid);
		return true;
	default:
		return false;
	}
}

static int bind_to(struct world *world, struct mock_cm *cm, const struct sockaddr *address)
{
	struct world_cm *at = &world->cms[cm->index];
	uint16_t number;

	if (!address_read(address, &at->address, &number))
		return EAFNOSUPPORT;
	if (!device_addressed(world, device_node(), &at->address, &at->device, &at->port) ||
	    (address->sa_family == AF_IB) != world->devices[at->device].ports[at->port].infiniband)
		return EADDRNOTAVAIL;
	if (number != 0 && cm_listener(world, at->device, at->port, number) != WORLD_NONE)
		return EADDRINUSE;
	at->number = number;
	cm->context.device = device_at(at->device);
	cm->v.verbs = &cm->context;
	cm->v.port_num = (uint8_t)(at->port + 1);
	return 0;
}

MOCK_API int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	int error = call_fails(CALL_rdma_bind_addr);
	struct world *world = world_now();

	world_lock(world);
	if (error == 0)
		error = bind_to(world, (struct mock_cm *)id, address);
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

MOCK_API int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int error = call_fails(CALL_rdma_listen);
	struct world *world = world_now();
	struct world_cm *cm = world_of(world, id);

	(void)backlog;
	if (error != 0 || id->verbs == NULL)
		return failed(error != 0 ? error : EINVAL);
	world_lock(world);
	while (cm->number == 0 ||
	       cm_listener(world, cm->device, cm->port, cm->number) != WORLD_NONE)
		cm->number = (uint16_t)(FIRST_PORT + world->cm_ports++ % (65536 - FIRST_PORT));
	cm->state = CM_LISTENS;
	world_unlock(world);
	return 0;
}

MOCK_API __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	struct world *world = world_now();
	uint16_t number;

	world_lock(world);
	number = world_of(world, id)->number;
	world_unlock(world);
	return htons(number);
}

static bool port_is_up(const struct world *world, uint32_t device, uint32_t port)
{
	const struct world_port *at = &world->devices[device].ports[port];

	return !world->devices[device].dead && at->state == IBV_PORT_ACTIVE &&
	       at->loss_permille < 1000;
}

static bool fails_with(struct mock_cm *cm, enum rdma_cm_event_type type)
{
	return cm->error != NULL && cm->error->type == type;
}

static void error_tell(struct world *world, struct mock_cm *cm)
{
	cm->error->fired++;
	world->counters.faults_fired++;
	cm_tell(world, cm->index, cm->error->type, cm->error->status);
}

MOCK_API int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
			       struct sockaddr *target, int timeout_ms)
{
	int error = call_fails(CALL_rdma_resolve_addr);
	struct mock_cm *cm = (struct mock_cm *)id;
	struct world *world = world_now();
	struct world_cm *at = world_of(world, id);
	uint32_t device, port;

	(void)timeout_ms;
	world_lock(world);
	cm->error = cm_error_of(world);
	if (error == 0)
		error = bind_to(world, cm, source);
	if (error == 0 && !address_read(target, &at->to, &at->to_number))
		error = EAFNOSUPPORT;
	if (error == 0 && fails_with(cm, RDMA_CM_EVENT_ADDR_ERROR))
		error_tell(world, cm);
	else if (error == 0)
		cm_tell(world, cm->index,
			port_is_up(world, at->device, at->port) &&
					device_addressed(world, WORLD_NONE, &at->to, &device, &port)
				? RDMA_CM_EVENT_ADDR_RESOLVED
				: RDMA_CM_EVENT_ADDR_ERROR,
			0);
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

MOCK_API int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int error = call_fails(CALL_rdma_resolve_route);
	struct mock_cm *cm = (struct mock_cm *)id;
	struct world *world = world_now();

	(void)timeout_ms;
	if (error != 0)
		return failed(error);
	world_lock(world);
	if (fails_with(cm, RDMA_CM_EVENT_ROUTE_ERROR))
		error_tell(world, cm);
	else
		cm_tell(world, cm->index, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	world_unlock(world);
	return 0;
}

/* ---- Connecting ---- */

static bool qp_is_own(const struct world *world, const struct world_cm *cm, uint32_t number)
{
	const struct world_qp *qp = &world->qps[number % WORLD_QPS];

	return qp->used && qp->number == number && qp->process == world_self() &&
	       qp->device == cm->device && qp->state == IBV_QPS_INIT;
}

/* The listener's end of a new connection. */
static void request_make(struct world *world, uint32_t index, uint32_t listener,
			 const struct rdma_conn_param *param)
{
	struct world_cm *at = &world->cms[index], *end;
	uint32_t other = cm_make(world, world->cms[listener].process);

	if (other == WORLD_NONE)
		abort();
	end = &world->cms[other];
	end->state = CM_REQUESTED;
	end->passive = true;
	end->listener = listener;
	end->device = world->cms[listener].device;
	end->port = world->cms[listener].port;
	end->address = at->to;
	end->to = at->address;
	end->peer = index;
	end->peer_generation = at->generation;
	memcpy(end->data, param->private_data, param->private_data_len);
	at->peer = other;
	at->peer_generation = end->generation;
	cm_tell(world, other, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
}

MOCK_API int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int error = call_fails(CALL_rdma_connect);
	struct mock_cm *cm = (struct mock_cm *)id;
	struct world *world = world_now();
	struct world_cm *at = world_of(world, id);
	uint32_t device, port, listener = WORLD_NONE;
	bool reached;

	world_lock(world);
	if (error == 0 && ((world->config.iwarp != 0 && !qp_is_own(world, at, param->qp_num)) ||
			   param->private_data_len > WORLD_CM_DATA))
		error = EINVAL;
	at->qp = param->qp_num;
	at->state = CM_CONNECTS;
	reached = port_is_up(world, at->device, at->port) &&
		  device_addressed(world, WORLD_NONE, &at->to, &device, &port) &&
		  port_is_up(world, device, port);
	if (reached)
		listener = cm_listener(world, device, port, at->to_number);
	if (listener != WORLD_NONE && !world_alive(world, world->cms[listener].process))
		listener = WORLD_NONE;
	if (error == 0 && cm->error != NULL)
		error_tell(world, cm);
	else if (error == 0 && !reached)
		cm_tell(world, cm->index, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	else if (error == 0 && listener == WORLD_NONE)
		cm_tell(world, cm->index, RDMA_CM_EVENT_REJECTED, NO_LISTENER);
	else if (error == 0)
		request_make(world, cm->index, listener, param);
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

/* What both ends of a connection can take. */
static enum ibv_mtu mtu_between(const struct world *world, const struct world_cm *a,
				const struct world_cm *b)
{
	uint32_t of_a = world->devices[a->device].ports[a->port].mtu;
	uint32_t of_b = world->devices[b->device].ports[b->port].mtu;

	return (enum ibv_mtu)(of_a < of_b ? of_a : of_b);
}

/* iWARP: the system moves both queue pairs. */
static void iwarp_join(struct world *world, const struct world_cm *from, const struct world_cm *to)
{
	struct world_qp *qp = &world->qps[from->qp % WORLD_QPS];

	if (!qp->used || qp->number != from->qp || qp->state != IBV_QPS_INIT)
		return;
	qp->attr.dest_qp_num = to->qp;
	qp->attr.port_num = (uint8_t)(from->port + 1);
	qp->attr.path_mtu = mtu_between(world, from, to);
	qp->attr.timeout = 14;
	qp->attr.retry_cnt = 6;
	qp->attr.ah_attr = (struct ibv_ah_attr) { .is_global = 1, .port_num = qp->attr.port_num };
	qp->attr.ah_attr.grh.dgid = world->devices[to->device].ports[to->port].gids[0];
	qp->state = IBV_QPS_RTS;
	qp->waits_first = from->passive;
	if (qp->process == world_self())
		process.qps[from->qp % WORLD_QPS]->v.state = IBV_QPS_RTS;
}

static int accept_as(struct world *world, uint32_t index, uint32_t qp)
{
	struct world_cm *cm = &world->cms[index], *peer = cm_peer(world, cm);

	if (cm->state != CM_REQUESTED)
		return EINVAL;
	cm->qp = qp;
	if (peer == NULL)
		return ECONNRESET;
	if (world->config.iwarp != 0) {
		iwarp_join(world, cm, peer);
		iwarp_join(world, peer, cm);
		cm->state = peer->state = CM_CONNECTED;
		cm_tell(world, cm->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
		cm_tell(world, index, RDMA_CM_EVENT_ESTABLISHED, 0);
		return 0;
	}
	cm->state = CM_ACCEPTED;
	cm_tell(world, cm->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	return 0;
}

MOCK_API int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int error = call_fails(CALL_rdma_accept);
	struct world *world = world_now();

	if (error != 0)
		return failed(error);
	world_lock(world);
	error = accept_as(world, ((struct mock_cm *)id)->index, param->qp_num);
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

MOCK_API int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
	int error = call_fails(CALL_rdma_reject);
	struct world *world = world_now();
	struct world_cm *cm = world_of(world, id), *peer;

	(void)data, (void)bytes;
	if (error != 0)
		return failed(error);
	world_lock(world);
	peer = cm_peer(world, cm);
	error = cm->state == CM_REQUESTED ? 0 : EINVAL;
	if (error == 0 && peer != NULL) {
		cm_tell(world, cm->peer, RDMA_CM_EVENT_REJECTED, 28);
		peer->state = CM_OVER;
	}
	if (error == 0)
		cm->state = CM_OVER;
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

MOCK_API int rdma_establish(struct rdma_cm_id *id)
{
	int error = call_fails(CALL_rdma_establish);
	struct world *world = world_now();
	struct world_cm *cm = world_of(world, id), *peer;

	if (error != 0)
		return failed(error);
	world_lock(world);
	peer = cm_peer(world, cm);
	if (cm->state != CM_CONNECTS || peer == NULL || peer->state != CM_ACCEPTED) {
		error = EINVAL;
	} else {
		cm->state = peer->state = CM_CONNECTED;
		cm_tell(world, cm->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	world_unlock(world);
	return error == 0 ? 0 : failed(error);
}

static uint8_t gid_index(const struct world_port *port, const union ibv_gid *gid)
{
	uint8_t found = 0;

	for (uint8_t i = 0; i < WORLD_GIDS; i++) /* The later one is of RoCE v2. */
		if (memcmp(&port->gids[i], gid, sizeof(*gid)) == 0)
			found = i;
	return found;
}

MOCK_API int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int error = call_fails(CALL_rdma_init_qp_attr);
	struct world *world = world_now();
	const struct world_cm *cm = world_of(world, id), *peer;
	enum ibv_qp_state to = attr->qp_state;

	if (error != 0)
		return failed(error);
	world_lock(world);
	peer = cm_peer(world, cm);
	if (peer != NULL) {
		const struct world_port *port = &world->devices[cm->device].ports[cm->port];

		*attr = (struct ibv_qp_attr) { .qp_state = to,
					       .path_mtu = mtu_between(world, cm, peer),
					       .dest_qp_num = peer->qp,
					       .rq_psn = peer->psn,
					       .sq_psn = cm->psn };
		attr->ah_attr = (struct ibv_ah_attr) { .is_global = 1,
						       .port_num = (uint8_t)(cm->port + 1) };
		attr->ah_attr.grh.dgid = cm->to;
		attr->ah_attr.grh.sgid_index = gid_index(port, &cm->address);
		*mask = IBV_QP_STATE;
	}
	world_unlock(world);
	return peer != NULL ? 0 : failed(EINVAL);
}

MOCK_API int mock_disconnect(uint32_t qp_number)
{
	struct world *world = world_attach();
	int found = ENOENT;

	world_lock(world);
	for (uint32_t i = 0; i < world->cm_end && (found != 0 || qp_number != 0); i++) {
		struct world_cm *cm = &world->cms[i];

		if (!cm->used || (qp_number != 0 && cm->qp != qp_number) ||
		    cm->state != CM_CONNECTED)
			continue;
		cm->state = CM_OVER;
		cm_tell(world, i, RDMA_CM_EVENT_DISCONNECTED, 0);
		found = 0;
	}
	world_unlock(world);
	return found;
}
