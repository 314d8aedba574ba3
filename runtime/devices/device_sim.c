/*
 * device_sim.c -- the simulated device of a rank: copies and reductions in virtual time, beside
 * what its processor does.
 *
 * Three queues, as a GPU has them: a copy engine each way, and all else. When a piece of work is
 * through is known when it is started, from its queue, what it waits for, and its bytes; so its
 * event is that time, and what waits for it, here or on another simulated device, begins then. What
 * it does to memory is done when its time has come, in the order of these times.
 */
#include "runtime/devices/device_sim.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/reduce/coded.h"
#include "transport/sim/sim_device.h"

enum queue { QUEUE_IN, QUEUE_OUT, QUEUE_OTHER, QUEUES };

struct device {
	struct rb_executor base;
	struct rb_endpoint *ep; /* For the time. */
	struct rb_sim_cluster *cluster;
	const rubato_sim_device *costs;
	uint32_t rank;
	rb_reduce_fn reduce;
	struct rb_work *first; /* By their times, `number`. */
	uint64_t free_ns[QUEUES];
};

static bool on_device(const struct device *device, const void *address, bool managed_too)
{
	enum rb_memory_kind kind;
	uint32_t rank;

	return rb_sim_device_find(device->cluster, address, &kind, &rank) > 0 &&
	       (managed_too || kind == RB_MEMORY_DEVICE);
}

static bool is_copy(const struct rb_work *work)
{
	return work->reduce.from_count == 1 && work->reduce.final_count == 0 &&
	       work->reduce.coding == RB_CODING_NONE;
}

static enum queue queue_of(const struct device *device, const struct rb_work *work)
{
	bool from, to;

	if (!is_copy(work))
		return QUEUE_OTHER;
	from = on_device(device, work->reduce.from[0], true);
	to = on_device(device, work->reduce.to, true);
	if (from == to)
		return QUEUE_OTHER;
	return to ? QUEUE_IN : QUEUE_OUT;
}

static uint64_t span_ns(double bytes, double bandwidth)
{
	return bandwidth > 0 ? (uint64_t)(bytes / bandwidth * 1e9) : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* When it is through. */
static uint64_t time_of(struct device *device, const struct rb_work *work)
{
	const rubato_sim_device *costs = device->costs;
	enum queue queue = queue_of(device, work);
	double bytes = (double)work->reduce.count * work->element_bytes;
	uint64_t at = device->ep->ops->now_ns(device->ep) + costs->launch_ns;

	at = later(at, device->free_ns[queue]);
	for (uint32_t i = 0; i < work->after_count; i++)
		at = later(at, work->after[i].number);
	at += queue == QUEUE_OTHER
		      ? span_ns(bytes * (work->reduce.from_count + 1), costs->memory_bandwidth)
		      : span_ns(bytes, costs->copy_bandwidth);
	device->free_ns[queue] = at;
	return at;
}

static void device_start(struct rb_executor *executor, struct rb_work *work)
{
	struct device *device = (struct device *)executor;
	struct rb_work **at = &device->first;

	work->status = RUBATO_OK;
	work->state = RB_WORK_PENDING;
	work->number = time_of(device, work);
	while (*at != NULL && (*at)->number <= work->number)
		at = &(*at)->next;
	work->next = *at;
	*at = work;
}

static void memory_access(const struct device *device, const struct rb_reduce *r, bool open)
{
	void (*access)(struct rb_sim_cluster * cluster, const void *address) =
		open ? rb_sim_device_open : rb_sim_device_shut;

	access(device->cluster, r->to);
	if (r->residual != NULL)
		access(device->cluster, r->residual);
	for (uint32_t i = 0; i < r->from_count; i++)
		access(device->cluster, r->from[i]);
}

/* It computes on its own memory only; copies go anywhere. */
static bool reaches(const struct device *device, const struct rb_work *work)
{
	const struct rb_reduce *r = &work->reduce;
	bool all = is_copy(work) || on_device(device, r->to, true);

	all = all && (r->residual == NULL || on_device(device, r->residual, true));
	for (uint32_t i = 0; i < r->from_count && !is_copy(work); i++)
		all = all && on_device(device, r->from[i], true);
	return all;
}

static void code(const struct device *device, const struct rb_reduce *r)
{
	const struct rb_coders *coders = rb_coders_of(device->reduce);
	const struct rb_coded coded = { .wire = r->wire,
					.final_count = r->final_count,
					.to = r->to,
					.from = r->from,
					.from_count = r->from_count,
					.count = r->count,
					.residual = r->residual };

	if (r->coding == RB_CODING_ENCODE)
		coders->encode(&coded);
	else if (r->coding == RB_CODING_DECODE)
		coders->decode(&coded);
	else
		coders->reduce(&coded);
}

static void carry_out(const struct device *device, struct rb_work *work)
{
	const struct rb_reduce *r = &work->reduce;

	work->state = RB_WORK_DONE;
	if (!reaches(device, work)) {
		work->status = RUBATO_ERR_INTERNAL;
		return;
	}
	memory_access(device, r, true);
	if (r->from_count == 0)
		memset(r->to, 0, (size_t)r->count * work->element_bytes);
	else if (r->coding != RB_CODING_NONE)
		code(device, r);
	else if (!is_copy(work))
		device->reduce(r);
	else if (r->to != r->from[0])
		memcpy(r->to, r->from[0], (size_t)r->count * work->element_bytes);
	memory_access(device, r, false);
}

static struct rb_work *device_poll(struct rb_executor *executor)
{
	struct device *device = (struct device *)executor;
	uint64_t now = device->ep->ops->now_ns(device->ep);
	struct rb_work *list = device->first, **end = &device->first;

	while (*end != NULL && (*end)->number <= now) {
		carry_out(device, *end);
		end = &(*end)->next;
	}
	if (end == &device->first)
		return NULL;
	device->first = *end;
	*end = NULL;
	return list;
}

static void device_cancel(struct rb_executor *executor, struct rb_work *work)
{
	struct device *device = (struct device *)executor;
	struct rb_work **at = &device->first;

	if (work->state != RB_WORK_PENDING)
		return;
	while (*at != work)
		at = &(*at)->next;
	*at = work->next;
	work->state = RB_WORK_DONE;
	work->status = RUBATO_ERR_CANCELLED;
}

/* Only time is waited for. */
static bool device_busy(struct rb_executor *executor)
{
	(void)executor;
	return false;
}

static void device_close(struct rb_executor *executor)
{
	free(executor);
}

static uint64_t device_next_ns(const struct rb_executor *executor)
{
	const struct device *device = (const struct device *)executor;

	return device->first != NULL ? device->first->number : UINT64_MAX;
}

/* Their events are times of one clock. */
static bool device_waits_for(const struct rb_executor *executor, const struct rb_executor *other)
{
	return executor->ops == other->ops;
}

static size_t device_knows(const struct rb_executor *executor, const void *address,
			   enum rb_memory_kind *kind)
{
	const struct device *device = (const struct device *)executor;
	uint32_t rank;
	size_t bytes = rb_sim_device_find(device->cluster, address, kind, &rank);

	return bytes > 0 && rank == device->rank ? bytes : 0;
}

static rubato_status device_memory_new(struct rb_executor *executor, enum rb_memory_kind kind,
				       size_t size_bytes, void **out)
{
	struct device *device = (struct device *)executor;

	if (kind != RB_MEMORY_HOST)
		return rb_sim_device_new(device->cluster, device->rank, kind, size_bytes, out);
	*out = calloc(1, size_bytes + 1);
	return *out != NULL ? RUBATO_OK
			    : RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes for a device", size_bytes);
}

static void device_memory_free(struct rb_executor *executor, void *memory)
{
	struct device *device = (struct device *)executor;

	if (memory != NULL && !rb_sim_device_free(device->cluster, memory))
		free(memory);
}

static const struct rb_executor_ops device_ops = {
	.name = "sim device",
	.start = device_start,
	.poll = device_poll,
	.cancel = device_cancel,
	.busy = device_busy,
	.close = device_close,
	.waits_for = device_waits_for,
	.next_ns = device_next_ns,
	.knows = device_knows,
	.memory_new = device_memory_new,
	.memory_free = device_memory_free,
};

rubato_status rb_device_sim_open(struct rb_endpoint *ep, struct rb_executor **out)
{
	struct device *device;

	*out = NULL;
	if (rb_sim_device_of(ep) == NULL)
		return RUBATO_OK;
	device = calloc(1, sizeof(*device));
	if (device == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "simulated device: %zu bytes", sizeof(*device));
	device->base.ops = &device_ops;
	device->ep = ep;
	device->cluster = rb_sim_cluster_of(ep);
	device->costs = rb_sim_device_of(ep);
	device->rank = rb_sim_rank_of(ep);
	device->reduce = rb_reduce_best();
	*out = &device->base;
	return RUBATO_OK;
}
