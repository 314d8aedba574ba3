/*
 * address.c -- address handles of datagrams: made by attributes, or as the way back of one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

MOCK_API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	int error = call_fails(CALL_ibv_create_ah);
	struct world *world = world_now();
	struct mock_ah *ah;

	if (error == 0 && (attr->port_num < 1 || attr->port_num > config_now(world).ports ||
			   (!attr->is_global && config_now(world).infiniband == 0) ||
			   (attr->is_global && attr->grh.sgid_index >= WORLD_GIDS)))
		error = EINVAL;
	ah = error == 0 ? calloc(1, sizeof(*ah)) : NULL;
	if (error != 0)
		errno = error;
	if (ah == NULL)
		return NULL;
	ah->v = (struct ibv_ah) { .context = pd->context, .pd = pd };
	ah->attr = *attr;
	world_lock(world);
	((struct mock_pd *)pd)->users++;
	world_unlock(world);
	return &ah->v;
}

MOCK_API int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct world *world = world_now();
	int error = call_fails(CALL_ibv_destroy_ah);

	if (error != 0)
		return error;
	world_lock(world);
	((struct mock_pd *)ah->pd)->users--;
	world_unlock(world);
	free(ah);
	return 0;
}

MOCK_API int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t number, struct ibv_wc *wc,
				 struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct world *world = world_now();
	const struct world_port *port;
	uint32_t index = 0;

	if (number < 1 || number > config_now(world).ports) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr) { .dlid = wc->slid, .sl = wc->sl, .port_num = number };
	attr->src_path_bits = wc->dlid_path_bits;
	if ((wc->wc_flags & IBV_WC_GRH) == 0)
		return 0;
	world_lock(world);
	port = &world->devices[context_of(context)->device].ports[number - 1];
	while (index < WORLD_GIDS && (memcmp(&port->gids[index], &grh->dgid, 16) != 0 ||
				      port->gid_types[index] == IBV_GID_TYPE_ROCE_V1))
		index++;
	world_unlock(world);
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.hop_limit = 0xff;
	attr->grh.flow_label = ntohl(grh->version_tclass_flow) & 0xfffff;
	attr->grh.traffic_class = (uint8_t)(ntohl(grh->version_tclass_flow) >> 20);
	errno = EINVAL;
	return index < WORLD_GIDS ? 0 : -1;
}

MOCK_API struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					      struct ibv_grh *grh, uint8_t number)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, number, wc, grh, &attr) == 0
		       ? ibv_create_ah(pd, &attr)
		       : NULL;
}

MOCK_API int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}

MOCK_API int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}
