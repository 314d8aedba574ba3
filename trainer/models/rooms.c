/* rooms.c -- what a backend has for its own, made and freed. */
#include "trainer/models/compute.h"

#include <stdlib.h>

rubato_status tr_compute_open(struct tr_compute **out, const struct tr_compute_ops *ops,
			      const struct tr_compute_setup *setup, struct tr_error *error)
{
	struct tr_compute *c = calloc(1, ops->state_bytes);
	rubato_status err;

	if (c == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "compute: out of memory");
	err = ops->open(c, ops, setup, error);
	if (err)
		tr_compute_close(ops, c);
	else
		*out = c;
	return err;
}

void tr_compute_close(const struct tr_compute_ops *ops, struct tr_compute *c)
{
	if (c != NULL)
		ops->close(c);
	free(c);
}

void *tr_room(struct tr_rooms *rooms, size_t rows, size_t row_bytes)
{
	void *room = rooms->lost || rooms->count == TR_ROOMS_MAX ? NULL : calloc(rows, row_bytes);

	rooms->lost = room == NULL;
	if (room != NULL)
		rooms->rooms[rooms->count++] = room;
	return room;
}

void tr_rooms_free(struct tr_rooms *rooms)
{
	while (rooms->count > 0)
		free(rooms->rooms[--rooms->count]);
}
