/*
 * verbs_rdmacm.c -- links that rdmacm connects, where that is asked for or the device is iWARP.
 *
 * The queue pairs are ours, as always. librdmacm tells each end of the other's, and asks the system
 * for the way there: ARP, routes, on InfiniBand the subnet manager. Each rail listens at a port
 * that its address names, and of two ranks the lower one connects. With its request it says who it
 * is (struct rb_verbs_greeting): a request that is not of this job and version, or not of a link
 * that is being made, is rejected. Then HELLO tries the way, as always; who has connected says it
 * first, which iWARP demands.
 *
 * While connecting, a try that has failed is made again, by a new queue pair, until the time is
 * over: a listener may be late, or a rank slow to answer. Later a try is a life of its link, and
 * RISE, over a living link, says that the other end has a queue pair to be connected.
 *
 * librdmacm is loaded when it is needed, as libibverbs is. Its events come by a descriptor, which
 * is watched beside the devices': no thread waits for them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

#include "base/log.h"
#include "transport/verbs/verbs_link.h"

#define LIBRARY "librdmacm.so.1"
#define RESOLVE_MS 2000
#define BACKLOG_MAX 1024u
#define EVENTS_MAX 64u /* At a time. */

/* clang-format off */
#define FUNCTIONS(X) \
	X(rdma_create_event_channel) X(rdma_destroy_event_channel) X(rdma_create_id) \
	X(rdma_destroy_id) X(rdma_bind_addr) X(rdma_listen) X(rdma_get_src_port) \
	X(rdma_resolve_addr) X(rdma_resolve_route) X(rdma_connect) X(rdma_accept) X(rdma_reject) \
	X(rdma_establish) X(rdma_init_qp_attr) X(rdma_get_cm_event) X(rdma_ack_cm_event) \
	X(rdma_event_str)
/* clang-format on */

struct rb_verbs_cm {
	FUNCTIONS(RB_VERBS_FUNCTION)
	struct rdma_event_channel *channel;
};

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_ib ib;
};

/* ---- Addresses ---- */

/* A GID is an IPv4 or IPv6 address, but for InfiniBand, whose addresses are GIDs. Port 0: any. */
static union address address_of(const struct rb_verbs_port *own, const union ibv_gid *gid,
				uint16_t port)
{
	union address address = { .in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) } };

	if (!own->ethernet) {
		address.ib = (struct sockaddr_ib) {
			.sib_family = AF_IB,
			.sib_pkey = htons(0xffff),
			.sib_sid = htobe64(RDMA_IB_IP_PS_TCP | port),
			.sib_sid_mask = htobe64(port == 0 ? RDMA_IB_IP_PS_MASK : UINT64_MAX),
		};
		memcpy(&address.ib.sib_addr, gid->raw, sizeof(gid->raw));
	} else if (rb_verbs_is_ipv4(gid)) {
		address.in =
			(struct sockaddr_in) { .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&address.in.sin_addr, gid->raw + 12, 4);
	} else {
		memcpy(&address.in6.sin6_addr, gid->raw, sizeof(gid->raw));
		if (IN6_IS_ADDR_LINKLOCAL(&address.in6.sin6_addr))
			address.in6.sin6_scope_id = rb_verbs_netdev(own);
	}
	return address;
}

/* What librdmacm has found is the rail's port: else another device has its address. */
static bool is_of_rail(const struct rb_verbs *vb, const struct rb_verbs_rail *rail,
		       const struct rdma_cm_id *id)
{
	return id->verbs != NULL && id->port_num == rail->port.number &&
	       strcmp(vb->api.ibv_get_device_name(id->verbs->device), rail->port.device) == 0;
}

static bool binds(const struct rb_verbs *vb, const struct rb_verbs_rail *rail,
		  struct sockaddr *address)
{
	struct rdma_cm_id *id;
	bool good;

	if (vb->cm->rdma_create_id(vb->cm->channel, &id, NULL, RDMA_PS_TCP) != 0)
		return false;
	good = vb->cm->rdma_bind_addr(id, address) == 0 && is_of_rail(vb, rail, id);
	(void)vb->cm->rdma_destroy_id(id);
	return good;
}

static void gid_set(struct rb_verbs_port *port, const struct sockaddr *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;

	memset(&port->gid, 0, sizeof(port->gid));
	if (address->sa_family == AF_INET) {
		port->gid.raw[10] = port->gid.raw[11] = 0xff;
		memcpy(port->gid.raw + 12, &in->sin_addr, 4);
	} else {
		memcpy(port->gid.raw, &in6->sin6_addr, sizeof(port->gid.raw));
	}
}

/* iWARP: the first IPv4 address, else IPv6, of this machine's that leads to the port. */
static rubato_status address_find(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	static const sa_family_t families[] = { AF_INET, AF_INET6 };
	struct ifaddrs *all = NULL;
	bool found = false;

	if (getifaddrs(&all) != 0)
		return rb_verbs_failed(rail, errno, "looking for its address");
	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++)
		for (struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
			const struct sockaddr_in6 *in6 = (const void *)at->ifa_addr;

			if (at->ifa_addr == NULL || at->ifa_addr->sa_family != families[f] ||
			    (at->ifa_flags & IFF_LOOPBACK) != 0 ||
			    (families[f] == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)))
				continue;
			found = binds(vb, rail, at->ifa_addr);
			if (found)
				gid_set(&rail->port, at->ifa_addr);
		}
	freeifaddrs(all);
	if (!found)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: %s port %u, iWARP, has no address of this machine's",
			       rail->port.device, rail->port.number);
	return RUBATO_OK;
}

/* ---- Opening ---- */

static rubato_status library_load(struct rb_verbs_cm *cm)
{
#define FUNCTION(name) { #name, (void **)(void *)&cm->name },
	const struct rb_verbs_symbol symbols[] = { FUNCTIONS(FUNCTION) };
#undef FUNCTION

	return rb_verbs_library_load(LIBRARY, symbols, sizeof(symbols) / sizeof(symbols[0]));
}

rubato_status rb_verbs_cm_open(struct rb_verbs *vb)
{
	vb->cm = calloc(1, sizeof(*vb->cm));
	if (vb->cm == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for connections");
	RB_TRY(library_load(vb->cm));
	vb->cm->channel = vb->cm->rdma_create_event_channel();
	if (vb->cm->channel == NULL)
		return rb_verbs_failed(&vb->rails[0], errno, "making a channel of rdmacm");
	for (uint32_t i = 0; i < vb->rail_count; i++)
		if (vb->rails[i].port.iwarp)
			RB_TRY(address_find(vb, &vb->rails[i]));
	return RUBATO_OK;
}

int rb_verbs_cm_fd(const struct rb_verbs *vb)
{
	return vb->cm->channel->fd;
}

rubato_status rb_verbs_cm_listen(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	union address address = address_of(&rail->port, &rail->port.gid, 0);
	uint32_t peers = vb->base.rank_count;

	if (vb->cm->rdma_create_id(vb->cm->channel, &rail->listener, NULL, RDMA_PS_TCP) != 0)
		return rb_verbs_failed(rail, errno, "making a listener");
	if (vb->cm->rdma_bind_addr(rail->listener, &address.any) != 0)
		return rb_verbs_failed(rail, errno, "binding a listener to its address");
	if (!is_of_rail(vb, rail, rail->listener))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: %s port %u: its address is another device's for rdmacm",
			       rail->port.device, rail->port.number);
	if (vb->cm->rdma_listen(rail->listener, (int)(peers < BACKLOG_MAX ? peers : BACKLOG_MAX)) !=
	    0)
		return rb_verbs_failed(rail, errno, "listening");
	rail->listens_at = ntohs(vb->cm->rdma_get_src_port(rail->listener));
	return RUBATO_OK;
}

void rb_verbs_cm_close(struct rb_verbs *vb)
{
	if (vb->cm == NULL)
		return;
	for (uint32_t i = 0; i < vb->rail_count; i++)
		if (vb->rails[i].listener != NULL)
			(void)vb->cm->rdma_destroy_id(vb->rails[i].listener);
	if (vb->cm->channel != NULL)
		vb->cm->rdma_destroy_event_channel(vb->cm->channel);
	free(vb->cm);
	vb->cm = NULL;
}

/* ---- Tries ---- */

void rb_verbs_cm_drop(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	if (link->id != NULL)
		(void)vb->cm->rdma_destroy_id(link->id);
	link->id = NULL;
}

static bool connects(const struct rb_verbs *vb, const struct rb_verbs_link *link)
{
	return vb->base.rank < link->peer->rank;
}

/* The next try has a queue pair of its own. */
static void again(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	rb_verbs_link_close(vb, link);
	if (rb_verbs_link_make(vb, link) != RUBATO_OK)
		rb_verbs_link_fail(vb, link, rubato_error_text());
}

static void try_failed(struct rb_verbs *vb, struct rb_verbs_link *link, const char *what,
		       int status)
{
	char gid[RB_VERBS_GID_BYTES], reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(link->refusal, sizeof(link->refusal), "%s (%d)", what, status);
	/* What has said HELLO may be alive at the other end: then both compare what has come. */
	if (vb->connecting && !link->heard) {
		RB_LOG(RB_LOG_DEBUG, "verbs: rank %u at GID %s: %s", link->peer->rank,
		       rb_verbs_gid_text(&link->gid, gid), link->refusal);
		again(vb, link);
		return;
	}
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: connecting rank %u: %s",
		       link->rail->port.device, link->rail->port.number, link->peer->rank,
		       link->refusal);
	rb_verbs_link_fail(vb, link, reason);
}

void rb_verbs_cm_connect(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	union address from = address_of(&link->rail->port, &link->rail->port.gid, 0);
	union address to = address_of(&link->rail->port, &link->gid, (uint16_t)link->contact);

	if (!connects(vb, link) || link->state != RB_VERBS_LINK_MAKING || link->id != NULL)
		return;
	link->attempt++;
	if (vb->cm->rdma_create_id(vb->cm->channel, &link->id, link, RDMA_PS_TCP) != 0)
		try_failed(vb, link, "making an identifier of rdmacm", errno);
	else if (vb->cm->rdma_resolve_addr(link->id, &from.any, &to.any, RESOLVE_MS) != 0)
		try_failed(vb, link, "resolving its address", errno);
}

static struct rdma_conn_param param_of(const struct rb_verbs_link *link)
{
	return (struct rdma_conn_param) { .responder_resources = 1,
					  .initiator_depth = 1,
					  .flow_control = 1,
					  .retry_count = RB_VERBS_RETRIES,
					  .qp_num = link->qp->qp_num };
}

static void address_resolved(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	if (!is_of_rail(vb, link->rail, link->id))
		try_failed(vb, link, "the way to it leads by another device", 0);
	else if (vb->cm->rdma_resolve_route(link->id, RESOLVE_MS) != 0)
		try_failed(vb, link, "resolving a route", errno);
}

static void route_resolved(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_greeting ours = rb_verbs_greeting_to(link);
	struct rdma_conn_param param = param_of(link);

	param.private_data = &ours;
	param.private_data_len = sizeof(ours);
	if (vb->cm->rdma_connect(link->id, &param) != 0)
		try_failed(vb, link, "connecting", errno);
}

/* Both queue pairs are known to rdmacm. On iWARP the system moves them. */
static rubato_status ready(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR }, sends = { .qp_state = IBV_QPS_RTS };
	int mask;

	if (link->rail->port.iwarp)
		return RUBATO_OK;
	if (vb->cm->rdma_init_qp_attr(link->id, &attr, &mask) != 0 ||
	    vb->cm->rdma_init_qp_attr(link->id, &sends, &mask) != 0)
		return rb_verbs_failed(link->rail, errno, "asking rdmacm for a queue pair's path");
	attr.sq_psn = sends.sq_psn;
	return rb_verbs_link_ready(vb, link, &attr);
}

/* Who connects has its answer. */
static void answered(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	if (ready(vb, link) != RUBATO_OK)
		try_failed(vb, link, rubato_error_text(), errno);
	else if (vb->cm->rdma_establish(link->id) != 0)
		try_failed(vb, link, "establishing", errno);
	else
		rb_verbs_hear(vb, link);
}

/* ---- Requests ---- */

static void reject(struct rb_verbs *vb, struct rdma_cm_id *id)
{
	(void)vb->cm->rdma_reject(id, NULL, 0);
	(void)vb->cm->rdma_destroy_id(id);
}

static bool awaits(const struct rb_verbs *vb, const struct rb_verbs_link *link,
		   const struct rb_verbs_greeting *theirs, const struct rdma_cm_id *listener)
{
	return link->rail->listener == listener && !connects(vb, link) && !link->peer->lost &&
	       link->state == RB_VERBS_LINK_MAKING && theirs->life == link->life &&
	       (link->id == NULL || (int8_t)(theirs->attempt - link->attempt) > 0);
}

static void accept_from(struct rb_verbs *vb, struct rb_verbs_link *link, struct rdma_cm_id *id,
			const struct rb_verbs_greeting *theirs)
{
	struct rdma_conn_param param;

	link->id = id;
	id->context = link;
	link->attempt = theirs->attempt;
	link->qp_number = theirs->qp_number;
	param = param_of(link);
	if (ready(vb, link) != RUBATO_OK)
		try_failed(vb, link, rubato_error_text(), errno);
	else if (vb->cm->rdma_accept(id, &param) != 0)
		try_failed(vb, link, "accepting", errno);
}

struct happening { /* What an event said, which is acknowledged by now. */
	struct rdma_cm_id *id, *listener;
	enum rdma_cm_event_type type;
	int status;
	bool greets;
	struct rb_verbs_greeting greeting;
};

static void requested(struct rb_verbs *vb, const struct happening *h)
{
	struct rb_verbs_greeting theirs;
	struct rb_verbs_link *link = NULL;

	if (h->greets)
		link = rb_verbs_greeting_of(vb, &h->greeting, sizeof(h->greeting), &theirs);
	if (link == NULL || !awaits(vb, link, &theirs, h->listener)) {
		reject(vb, h->id);
		return;
	}
	if (link->id != NULL) /* Of an earlier try, which has failed at the other end. */
		again(vb, link);
	if (link->state == RB_VERBS_LINK_MAKING && link->qp != NULL)
		accept_from(vb, link, h->id, &theirs);
	else
		reject(vb, h->id);
}

/* ---- Events ---- */

static void disconnected(struct rb_verbs *vb, struct rb_verbs_link *link, const struct happening *h)
{
	struct rb_verbs_peer *peer = link->peer;
	char reason[RB_VERBS_REASON_BYTES];

	rb_verbs_hear_out(vb, peer); /* Its BYE, perhaps. */
	if (peer->lost || link->id != h->id || rb_verbs_lose_ended(vb, peer->rank))
		return;
	if (link->state == RB_VERBS_LINK_MAKING) {
		try_failed(vb, link, vb->cm->rdma_event_str(h->type), h->status);
		return;
	}
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: rank %u has disconnected",
		       link->rail->port.device, link->rail->port.number, peer->rank);
	rb_verbs_link_fail(vb, link, reason);
}

static void removed(struct rb_verbs *vb, const struct rdma_cm_id *id)
{
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];
		const struct rb_verbs_link *link = id->context;

		if (rail->dead || (rail->listener != id && (link == NULL || link->rail != rail)))
			continue;
		rail->dead = true;
		rb_verbs_rail_fail(vb, rail, "its device was removed");
	}
}

static void happened(struct rb_verbs *vb, const struct happening *h)
{
	struct rb_verbs_link *link = h->id->context;

	if (h->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		requested(vb, h);
		return;
	}
	if (h->type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		removed(vb, h->id);
		return;
	}
	if (link == NULL || link->peer->lost || link->id != h->id)
		return;
	if (h->type == RDMA_CM_EVENT_DISCONNECTED)
		disconnected(vb, link, h);
	if (link->state != RB_VERBS_LINK_MAKING)
		return;
	switch (h->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(vb, link);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(vb, link);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		answered(vb, link);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (connects(vb, link))
			rb_verbs_hear(vb, link);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		try_failed(vb, link, vb->cm->rdma_event_str(h->type), h->status);
		break;
	default:
		break;
	}
}

bool rb_verbs_cm_take(struct rb_verbs *vb)
{
	struct rdma_cm_event *event;

	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		struct happening h;

		if (vb->cm->rdma_get_cm_event(vb->cm->channel, &event) != 0)
			return errno == EAGAIN || errno == EINTR;
		h = (struct happening) { .id = event->id,
					 .listener = event->listen_id,
					 .type = event->event,
					 .status = event->status };
		h.greets = h.type == RDMA_CM_EVENT_CONNECT_REQUEST &&
			   event->param.conn.private_data_len >= sizeof(h.greeting);
		if (h.greets)
			memcpy(&h.greeting, event->param.conn.private_data, sizeof(h.greeting));
		/* Identifiers go by what follows, which waits for what is not acknowledged. */
		(void)vb->cm->rdma_ack_cm_event(event);
		happened(vb, &h);
		rb_verbs_ring(vb);
	}
	return true;
}
