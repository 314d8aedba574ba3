/*
 * inject.c -- what happens to devices, ports and queues from outside.
 */
#include <errno.h>
#include <string.h>

#include "tests/verbs-mock/process.h"

static struct world_port *port_at(struct world *world, uint32_t node, uint32_t device,
				  uint32_t port)
{
	return &world->devices[node * WORLD_DEVICES + device].ports[port - 1];
}

static void device_dies(struct world *world, uint32_t index)
{
	world->devices[index].dead = true;
	for (uint32_t i = 0; i < world->qp_end; i++)
		if (world->qps[i].used && world->qps[i].device == index)
			qp_fail(world, i);
}

MOCK_API void mock_device_event(uint32_t node, uint32_t device, uint32_t port,
				enum ibv_event_type type)
{
	struct world *world = world_attach();
	struct world_port *at = port_at(world, node, device, port);

	world_lock(world);
	if (type == IBV_EVENT_PORT_ERR)
		at->state = IBV_PORT_DOWN;
	else if (type == IBV_EVENT_PORT_ACTIVE)
		at->state = IBV_PORT_ACTIVE;
	else if (type == IBV_EVENT_LID_CHANGE && at->lid != 0)
		at->lid = (uint16_t)(at->lid + 0x1000);
	else if (type == IBV_EVENT_DEVICE_FATAL)
		device_dies(world, node * WORLD_DEVICES + device);
	device_event(world, node * WORLD_DEVICES + device, type, port);
	world_unlock(world);
}

MOCK_API void mock_link(uint32_t node, uint32_t device, uint32_t port, bool up)
{
	mock_device_event(node, device, port, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

MOCK_API void mock_loss(uint32_t node, uint32_t device, uint32_t port, uint32_t permille)
{
	struct world *world = world_attach();

	world_lock(world);
	port_at(world, node, device, port)->loss_permille = permille;
	world_unlock(world);
}

MOCK_API void mock_slow(uint32_t node, uint32_t device, uint32_t port, uint32_t microseconds)
{
	struct world *world = world_attach();

	world_lock(world);
	port_at(world, node, device, port)->slow_us = microseconds;
	world_unlock(world);
}

MOCK_API void mock_gid(uint32_t node, uint32_t device, uint32_t port, uint32_t index,
		       const union ibv_gid *gid)
{
	static const union ibv_gid none;
	struct world *world = world_attach();

	world_lock(world);
	port_at(world, node, device, port)->gids[index] = gid != NULL ? *gid : none;
	device_event(world, node * WORLD_DEVICES + device, IBV_EVENT_GID_CHANGE, port);
	world_unlock(world);
}

static uint32_t qp_numbered(const struct world *world, uint32_t number)
{
	uint32_t index = number % WORLD_QPS;

	return world->qps[index].used && world->qps[index].number == number ? index : WORLD_NONE;
}

MOCK_API uint32_t mock_qp_numbers(uint32_t *numbers, uint32_t max)
{
	struct world *world = world_attach();
	uint32_t count = 0;

	world_lock(world);
	for (uint32_t i = 0; i < world->qp_end && count < max; i++)
		if (world->qps[i].used)
			numbers[count++] = world->qps[i].number;
	world_unlock(world);
	return count;
}

MOCK_API void mock_silence(uint32_t number, bool silent)
{
	struct world *world = world_attach();
	uint32_t index;

	world_lock(world);
	index = qp_numbered(world, number);
	if (index != WORLD_NONE)
		world->qps[index].silent = silent;
	world_unlock(world);
}

MOCK_API int mock_qp_event(uint32_t number, enum ibv_event_type type)
{
	struct world *world = world_attach();
	uint32_t index;

	world_lock(world);
	index = qp_numbered(world, number);
	if (index != WORLD_NONE) {
		qp_event(world, index, type);
		if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
		    type == IBV_EVENT_QP_ACCESS_ERR)
			qp_fail(world, index);
	}
	world_unlock(world);
	return index == WORLD_NONE ? ENOENT : 0;
}

MOCK_API int mock_cq_error(uint32_t number)
{
	struct world *world = world_attach();
	uint32_t index;

	world_lock(world);
	index = qp_numbered(world, number);
	if (index != WORLD_NONE)
		cq_break(world, world->qps[index].send_cq);
	world_unlock(world);
	return index == WORLD_NONE ? ENOENT : 0;
}
