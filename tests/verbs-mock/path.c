/*
 * path.c -- whether packets of a queue pair get to its peer, and the answers back.
 */
#include <string.h>

#include "tests/verbs-mock/carry.h"

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static bool port_works(const struct world *world, const struct world_qp *qp)
{
	const struct world_device *device = &world->devices[qp->device];

	return !device->dead && !qp->silent && qp->attr.port_num >= 1 &&
	       device->ports[qp->attr.port_num - 1].state == IBV_PORT_ACTIVE &&
	       device->ports[qp->attr.port_num - 1].loss_permille < 1000;
}

/* Whether the path of one queue pair leads to the port of another. */
static bool leads_to(const struct world *world, const struct world_qp *from,
		     const struct world_qp *to)
{
	const struct world_port *source, *target;
	const struct ibv_ah_attr *path = &from->attr.ah_attr;
	uint32_t type;

	source = &world->devices[from->device].ports[from->attr.port_num - 1];
	target = &world->devices[to->device].ports[to->attr.port_num - 1];
	if (source->fabric != target->fabric)
		return false;
	if (!path->is_global)
		return target->lid != 0 && target->lid == path->dlid;
	type = source->gid_types[path->grh.sgid_index]; /* Of RoCE v1 a v2 port knows nothing. */
	for (uint32_t i = 0; i < WORLD_GIDS; i++)
		if (memcmp(&target->gids[i], &path->grh.dgid, sizeof(path->grh.dgid)) == 0 &&
		    target->gid_types[i] == type)
			return true;
	return false;
}

static bool receives(const struct world_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* Whether both speak RoCE v1, or both v2: what is more than some devices ask for. */
static bool same_type(const struct world *world, const struct world_qp *a, const struct world_qp *b)
{
	const struct ibv_ah_attr *of_a = &a->attr.ah_attr, *of_b = &b->attr.ah_attr;

	return of_a->is_global == of_b->is_global &&
	       (!of_a->is_global || world->devices[a->device]
						    .ports[of_a->port_num - 1]
						    .gid_types[of_a->grh.sgid_index] ==
					    world->devices[b->device]
						    .ports[of_b->port_num - 1]
						    .gid_types[of_b->grh.sgid_index]);
}

/* Chance takes a message, or an answer, at one of the two ports. */
static bool lost(struct world *world, const struct mock_qp *own, const struct send *send,
		 const struct world_qp *peer, uint64_t what)
{
	const struct world_qp *qp = &world->qps[own->index];
	uint64_t which = (uint64_t)own->index << 48 | send->ordinal << 8 | own->attempts;
	uint32_t permille =
		world->devices[qp->device].ports[qp->attr.port_num - 1].loss_permille +
		world->devices[peer->device].ports[peer->attr.port_num - 1].loss_permille;

	if (permille == 0 || world_chance(world, what, which) % 1000 >= permille)
		return false;
	world->counters.packets_lost++;
	return true;
}

static struct world_qp *peer_of(struct world *world, const struct world_qp *qp)
{
	struct world_qp *peer = &world->qps[qp->attr.dest_qp_num % WORLD_QPS];

	return peer->used && peer->number == qp->attr.dest_qp_num && peer->type == IBV_QPT_RC &&
			       receives(peer) && peer->attr.dest_qp_num == qp->number &&
			       world_alive(world, peer->process)
		       ? peer
		       : NULL;
}

struct world_qp *peer_reached(struct world *world, const struct mock_qp *own,
			      const struct send *send)
{
	struct world_qp *qp = &world->qps[own->index], *peer = peer_of(world, qp);
	enum ibv_mtu wire = (enum ibv_mtu)world->config.mtu, theirs;

	if (peer == NULL || !port_works(world, qp) || !port_works(world, peer) ||
	    !leads_to(world, qp, peer) || !leads_to(world, peer, qp) ||
	    !same_type(world, qp, peer) || qp->psn_sent != peer->psn_expected)
		return NULL;
	theirs = (enum ibv_mtu)world->devices[peer->device].ports[peer->attr.port_num - 1].mtu;
	wire = theirs < wire ? theirs : wire;
	if (qp->attr.path_mtu > wire && send->length > mtu_bytes(wire))
		return NULL; /* Its packets are too long for the wire. */
	return lost(world, own, send, peer, 6) ? NULL : peer;
}

bool answer_arrives(struct world *world, const struct mock_qp *own, const struct send *send)
{
	struct world_qp *qp = &world->qps[own->index];
	struct world_qp *peer = &world->qps[qp->attr.dest_qp_num % WORLD_QPS];

	if (!port_works(world, qp))
		return false;
	if (send->ack_lost) /* Then the peer must answer once more. */
		peer = peer_of(world, qp);
	else if (!peer->used || peer->number != qp->attr.dest_qp_num)
		return true; /* It had answered before it went. */
	return peer != NULL && port_works(world, peer) && !lost(world, own, send, peer, 7);
}
