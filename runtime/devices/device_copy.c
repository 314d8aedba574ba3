/* device_copy.c -- see device_copy.h. */
#include "runtime/devices/device_copy.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES ((uint64_t)512 << 10) /* Guess: long enough for a copy engine. */
#define LOCKED_BYTES (64u << 10) /* Guess: below it the lock costs more than it holds up. */

struct piece {                /* What goes through one of the two rooms. */
	struct rb_slot *slot; /* NULL: it was begun, and is over; or was never begun. */
	bool begun, over;
	rubato_status status;
	uint64_t first, bytes;
};

struct sides {
	uint8_t *to;
	const uint8_t *from;
	uint64_t bytes;
	bool to_device;
};

/* ---- Where memory lies ---- */

rubato_status rb_memory_kind_find(const struct rb_engine *engine, const char *call,
				  const void *base, uint64_t bytes, enum rb_memory_kind *kind,
				  struct rb_executor **device)
{
	*kind = RB_MEMORY_HOST;
	*device = NULL;
	for (uint32_t i = 0; bytes > 0 && i < engine->device_count; i++) {
		struct rb_executor *executor = engine->devices[i];
		enum rb_memory_kind found;
		size_t known = executor->ops->knows(executor, base, &found);

		if (known == 0)
			continue;
		if (found == RB_MEMORY_FOREIGN)
			return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: a buffer lies in %s", call,
				       executor->ops->why(executor));
		if (known < bytes)
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "%s: a buffer of %llu bytes in %s memory that ends after "
				       "%zu",
				       call, (unsigned long long)bytes, rb_memory_kind_name(found),
				       known);
		*kind = found;
		*device = found == RB_MEMORY_DEVICE ? executor : NULL;
		return RUBATO_OK;
	}
	return RUBATO_OK;
}

/* ---- While a copy is under way its device is polled ---- */

static struct rb_executor *device_of(const struct rb_poller *poller)
{
	return ((const struct rb_device_copy *)poller)->device;
}

static bool device_poll(struct rb_engine *engine, struct rb_poller *poller)
{
	return rb_engine_poll_executor(engine, device_of(poller));
}

static bool device_busy(const struct rb_engine *engine, const struct rb_poller *poller)
{
	struct rb_executor *device = device_of(poller);

	(void)engine;
	return device->ops->busy(device);
}

static uint64_t device_next(const struct rb_poller *poller)
{
	struct rb_executor *device = device_of(poller);

	return device->ops->next_ns != NULL ? device->ops->next_ns(device) : UINT64_MAX;
}

static const struct rb_poller_ops poller_ops = {
	.order = RB_POLLER_RUNS,
	.polled = true,
	.poll = device_poll,
	.next_ns = device_next,
	.busy = device_busy,
};

/* ---- Pieces ---- */

static void piece_over(struct rb_engine *engine, struct piece *piece)
{
	piece->status = piece->slot->work.status;
	piece->over = true;
	rb_slot_give(engine, piece->slot);
	piece->slot = NULL;
	engine->completed = true;
}

static void piece_done(struct rb_engine *engine, struct rb_slot *slot)
{
	piece_over(engine, slot->owner);
}

/* What processors copy; they need no lock for it. */
static void bytes_copy(struct rb_engine *engine, void *to, const void *from, uint64_t bytes)
{
	if (bytes > LOCKED_BYTES)
		rb_engine_leave(engine);
	memcpy(to, from, (size_t)bytes);
	if (bytes > LOCKED_BYTES)
		rb_engine_enter(engine);
}

static rubato_status piece_start(struct rb_device_copy *copy, struct piece *piece,
				 const struct rb_reduce *reduce, uint32_t element_bytes)
{
	struct rb_work *work;

	RB_ASSERT(reduce->from_count <= RB_OPERANDS_INLINE);
	piece->slot = rb_slot_take(copy->engine);
	if (piece->slot == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "%s: work of a device", copy->name);
	piece->begun = true;
	piece->slot->is_work = true;
	piece->slot->owner = piece;
	piece->slot->done = piece_done;
	work = &piece->slot->work;
	memset(work, 0, sizeof(*work));
	for (uint32_t i = 0; i < reduce->from_count; i++)
		work->operands[i] = reduce->from[i];
	work->reduce = *reduce;
	work->reduce.from = work->operands;
	work->element_bytes = element_bytes;
	work->owner = piece->slot;
	copy->device->ops->start(copy->device, work);
	if (work->state == RB_WORK_DONE)
		piece_over(copy->engine, piece);
	return RUBATO_OK;
}

static rubato_status piece_begin(struct rb_device_copy *copy, struct piece *piece, uint8_t *room,
				 const struct sides *sides, uint64_t first)
{
	const void *from = sides->to_device ? room : sides->from + first;
	struct rb_reduce move = { .type = RUBATO_UINT8, .op = RUBATO_SUM };
	uint64_t left = sides->bytes - first;

	*piece =
		(struct piece) { .first = first, .bytes = left < PIECE_BYTES ? left : PIECE_BYTES };
	if (sides->to_device)
		bytes_copy(copy->engine, room, sides->from + first, piece->bytes);
	move.to = sides->to_device ? sides->to + first : room;
	move.from = &from;
	move.from_count = 1;
	move.count = piece->bytes;
	return piece_start(copy, piece, &move, 1);
}

/* Until the device is through with it. */
static rubato_status piece_end(struct rb_device_copy *copy, struct piece *piece,
			       const uint8_t *room, const struct sides *sides, uint64_t timeout_ns)
{
	const char *why;

	if (!piece->begun)
		return RUBATO_OK;
	piece->begun = false;
	if (rb_engine_wait_for(copy->engine, &piece->over, timeout_ns) != RUBATO_OK) {
		copy->device->ops->cancel(copy->device, &piece->slot->work);
		piece_over(copy->engine, piece);
		return RB_FAIL(RUBATO_ERR_TIMEOUT, "%s: the %s does not come to an end of a copy",
			       copy->name, copy->device->ops->name);
	}
	if (piece->status != RUBATO_OK) {
		why = copy->device->ops->why != NULL ? copy->device->ops->why(copy->device) : "";
		return RB_FAIL(piece->status, "%s: a copy by the %s failed: %s", copy->name,
			       copy->device->ops->name, why);
	}
	if (!sides->to_device)
		bytes_copy(copy->engine, sides->to + piece->first, room, piece->bytes);
	return RUBATO_OK;
}

static rubato_status rooms_make(struct rb_device_copy *copy, struct rb_executor *device)
{
	void *rooms;

	if (copy->device == device)
		return RUBATO_OK;
	rb_device_copy_fini(copy);
	RB_TRY(device->ops->memory_new(device, RB_MEMORY_HOST, 2 * PIECE_BYTES, &rooms));
	copy->rooms = rooms;
	copy->device = device;
	return RUBATO_OK;
}

static rubato_status pieces_copy(struct rb_device_copy *copy, const struct sides *sides,
				 uint64_t timeout_ns)
{
	uint64_t count = (sides->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	struct piece pieces[2] = { 0 };
	rubato_status status = RUBATO_OK, err;
	char text[RB_TEXT_BYTES];

	text[0] = '\0';
	/* Two turns more than there are pieces: each room's last one ends, too. */
	for (uint64_t i = 0; i < count + 2; i++) {
		struct piece *piece = &pieces[i % 2];
		uint8_t *room = copy->rooms + i % 2 * PIECE_BYTES;

		err = piece_end(copy, piece, room, sides, timeout_ns);
		if (err == RUBATO_OK && status == RUBATO_OK && i < count)
			err = piece_begin(copy, piece, room, sides, i * PIECE_BYTES);
		if (err == RUBATO_OK || status != RUBATO_OK)
			continue;
		status = err;
		(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	}
	return status == RUBATO_OK ? RUBATO_OK : RB_FAIL(status, "%s", text);
}

static rubato_status device_copy(struct rb_device_copy *copy, struct rb_executor *device,
				 const struct sides *sides, uint64_t timeout_ns)
{
	rubato_status err;

	RB_TRY(rooms_make(copy, device));
	copy->poller.ops = &poller_ops;
	rb_engine_add_poller(copy->engine, &copy->poller);
	err = pieces_copy(copy, sides, timeout_ns);
	rb_engine_remove_poller(copy->engine, &copy->poller);
	return err;
}

static rubato_status any_copy(struct rb_device_copy *copy, const char *call,
			      const struct sides *sides, uint64_t timeout_ns)
{
	struct rb_engine *engine = copy->engine;
	struct rb_executor *device = NULL;
	enum rb_memory_kind kind;
	rubato_status err;

	if (sides->bytes == 0)
		return RUBATO_OK;
	if (engine->device_count > 0) {
		copy->name = call;
		rb_engine_enter(engine);
		err = rb_memory_kind_find(engine, call, sides->to_device ? sides->to : sides->from,
					  sides->bytes, &kind, &device);
		if (err == RUBATO_OK && device != NULL)
			err = device_copy(copy, device, sides, timeout_ns);
		rb_engine_leave(engine);
		if (err != RUBATO_OK || device != NULL)
			return err;
	}
	memcpy(sides->to, sides->from, (size_t)sides->bytes);
	return RUBATO_OK;
}

rubato_status rb_device_copy_in(struct rb_device_copy *copy, const char *call, void *to,
				const void *from, uint64_t bytes, uint64_t timeout_ns)
{
	return any_copy(copy, call, &(struct sides) { to, from, bytes, false }, timeout_ns);
}

rubato_status rb_device_copy_out(struct rb_device_copy *copy, const char *call, void *to,
				 const void *from, uint64_t bytes, uint64_t timeout_ns)
{
	return any_copy(copy, call, &(struct sides) { to, from, bytes, true }, timeout_ns);
}

static rubato_status reduce_run(struct rb_device_copy *copy, const struct rb_reduce *reduce,
				uint32_t element_bytes, uint64_t timeout_ns)
{
	const struct sides none = { .to_device = true }; /* Nothing comes to the host. */
	struct piece piece = { .bytes = 0 };

	RB_TRY(piece_start(copy, &piece, reduce, element_bytes));
	return piece_end(copy, &piece, copy->rooms, &none, timeout_ns);
}

rubato_status rb_device_reduce(struct rb_device_copy *copy, const char *call,
			       struct rb_executor *device, const struct rb_reduce *reduce,
			       uint32_t element_bytes, uint64_t timeout_ns)
{
	struct rb_engine *engine = copy->engine;
	rubato_status err;

	rb_engine_enter(engine);
	copy->name = call;
	err = rooms_make(copy, device);
	if (err == RUBATO_OK) {
		copy->poller.ops = &poller_ops;
		rb_engine_add_poller(engine, &copy->poller);
		err = reduce_run(copy, reduce, element_bytes, timeout_ns);
		rb_engine_remove_poller(engine, &copy->poller);
	}
	rb_engine_leave(engine);
	return err;
}

/* ---- To and from the library's memory ---- */

static rubato_status device_of_memory(struct rb_device_copy *copy, const char *call,
				      const void *base, uint64_t bytes, struct rb_executor **device)
{
	enum rb_memory_kind kind;
	rubato_status err;

	rb_engine_enter(copy->engine);
	err = rb_memory_kind_find(copy->engine, call, base, bytes, &kind, device);
	rb_engine_leave(copy->engine);
	return err;
}

static rubato_status near_copy(struct rb_device_copy *copy, const char *call,
			       struct rb_executor *device, void *to, const void *from,
			       uint64_t bytes, uint64_t timeout_ns)
{
	const struct rb_reduce move = { .type = RUBATO_UINT8,
					.op = RUBATO_SUM,
					.to = to,
					.from = &from,
					.from_count = 1,
					.count = bytes };

	return rb_device_reduce(copy, call, device, &move, 1, timeout_ns);
}

rubato_status rb_device_take(struct rb_device_copy *copy, const char *call,
			     struct rb_executor *device, void *to, const void *from, uint64_t bytes,
			     uint64_t timeout_ns)
{
	struct rb_executor *its;

	if (device == NULL)
		return rb_device_copy_in(copy, call, to, from, bytes, timeout_ns);
	RB_TRY(device_of_memory(copy, call, from, bytes, &its));
	return its == device ? near_copy(copy, call, device, to, from, bytes, timeout_ns)
			     : rb_device_copy_out(copy, call, to, from, bytes, timeout_ns);
}

rubato_status rb_device_give(struct rb_device_copy *copy, const char *call,
			     struct rb_executor *device, void *to, const void *from, uint64_t bytes,
			     uint64_t timeout_ns)
{
	struct rb_executor *its;

	if (device == NULL)
		return rb_device_copy_out(copy, call, to, from, bytes, timeout_ns);
	RB_TRY(device_of_memory(copy, call, to, bytes, &its));
	return its == device ? near_copy(copy, call, device, to, from, bytes, timeout_ns)
			     : rb_device_copy_in(copy, call, to, from, bytes, timeout_ns);
}

/* ---- Others' work ---- */

void rb_device_watch(struct rb_device_copy *copy, struct rb_executor *device)
{
	copy->device = device;
	copy->poller.ops = &poller_ops;
	rb_engine_add_poller(copy->engine, &copy->poller);
}

void rb_device_unwatch(struct rb_device_copy *copy)
{
	if (copy->device != NULL)
		rb_engine_remove_poller(copy->engine, &copy->poller);
	copy->device = NULL;
}

void rb_device_copy_fini(struct rb_device_copy *copy)
{
	if (copy->device != NULL)
		copy->device->ops->memory_free(copy->device, copy->rooms);
	copy->device = NULL;
	copy->rooms = NULL;
}
