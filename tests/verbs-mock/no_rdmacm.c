/*
 * no_rdmacm.c -- where rdmacm's header is not there nobody has identifiers of it.
 */
#include "tests/verbs-mock/process.h"

void cm_raise(struct world *world)
{
	(void)world;
}

void cm_bury(struct world *world, uint32_t owner)
{
	(void)world, (void)owner;
}

void cm_taken(struct mock_cm *cm)
{
	(void)cm;
}
