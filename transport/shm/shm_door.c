/*
 * shm_door.c -- how ranks in one process hand each other their segments: over a table of it.
 *
 * A message that carried a reference could get lost: in the backlog of a listener that has no
 * descriptor left to accept it with, or on a socket that is closed a moment before it comes. So
 * the reference goes to the receiver's door, the message says only which one to look for, and
 * whatever lies at a door when it is closed is dropped.
 */
#include "transport/shm/shm.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/sync.h"

struct rb_shm_left {
	struct rb_shm_left *next, *previous;
	struct rb_shm_segment *segment;
};

static struct rb_shm_door *table; /* The open ones. Under rb_process_lock. */

void rb_shm_door_open(struct rb_shm_door *door, const uint8_t name[16])
{
	memcpy(door->name, name, sizeof(door->name));
	door->first = NULL;
	rb_lock_take(&rb_process_lock);
	RB_LIST_PUSH(table, door);
	door->open = true;
	rb_lock_drop(&rb_process_lock);
}

void rb_shm_door_close(struct rb_shm_door *door)
{
	if (!door->open)
		return;
	rb_lock_take(&rb_process_lock);
	RB_LIST_REMOVE(table, door);
	door->open = false;
	rb_lock_drop(&rb_process_lock);
	while (door->first != NULL) { /* Nobody else finds it any more. */
		struct rb_shm_left *left = door->first;

		door->first = left->next;
		rb_shm_segment_drop(left->segment);
		free(left);
	}
}

rubato_status rb_shm_door_leave(const uint8_t name[16], struct rb_shm_segment *segment, bool *found)
{
	struct rb_shm_left *left = malloc(sizeof(*left));
	struct rb_shm_door *door;

	if (left == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "shm: a segment for another thread");
	left->segment = segment;
	rb_lock_take(&rb_process_lock);
	door = table;
	while (door != NULL && memcmp(door->name, name, sizeof(door->name)) != 0)
		door = door->next;
	if (door != NULL) {
		rb_shm_segment_keep(segment);
		RB_LIST_PUSH(door->first, left);
	}
	rb_lock_drop(&rb_process_lock);
	*found = door != NULL;
	if (door == NULL)
		free(left);
	return RUBATO_OK;
}

struct rb_shm_segment *rb_shm_door_take(struct rb_shm_door *door, uint64_t which)
{
	struct rb_shm_segment *segment = NULL;
	struct rb_shm_left *left;

	rb_lock_take(&rb_process_lock);
	left = door->open ? door->first : NULL;
	while (left != NULL && (uintptr_t)left->segment != which)
		left = left->next;
	if (left != NULL) {
		RB_LIST_REMOVE(door->first, left);
		segment = left->segment;
	}
	rb_lock_drop(&rb_process_lock);
	free(left);
	return segment;
}
