/*
 * partial_device.c -- partial allreduces whose slab is a CUDA device's memory, or the simulated
 * device's: the same numbers of the same buffers. Whatever touches them is the device's work.
 *
 *   rounds     the plans of an allreduce, for buffers on the device. Where all ranks of the job
 *              reach each other's slabs (threads of one process, processes by CUDA IPC), in place;
 *              else by messages: of the slab itself over a network that reads and writes it, else
 *              chunk by chunk through pinned memory (collectives/stage.h)
 *   calls      what an application's thread copies or merges it waits for, without the lock
 *   survivors  what is fetched and served goes through pinned memory as a whole; what was joined in
 *              vain is merged when the application asks for it, as no machine's action may wait
 */
#include <stdlib.h>
#include <string.h>

#include "base/hollow.h"
#include "base/log.h"
#include "collectives/reduce/identity.h"
#include "runtime/call.h"
#include "runtime/devices/devices.h"
#include "runtime/relaxed/partial.h"

/* ---- Where it is ---- */

rubato_status rb_partial_device_find(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_executor *device = rb_devices_cuda(engine);

	if (!p->device.wanted)
		return RUBATO_OK;
	if (device == NULL && rb_engine_time_is_virtual(engine) && engine->device_count > 0)
		device = engine->devices[0];
	if (device == NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "partial: this communicator has no CUDA device: rubato_cuda_use");
	p->device.executor = device;
	p->device.executors[0] = engine->executor;
	p->device.executors[1] = device;
	p->device.restored = RB_PARTIAL_NONE;
	return RUBATO_OK;
}

/* ---- Plans ---- */

#define MAPPED (RB_SCHEDULE_MAPPED_BUFFERS | RB_SCHEDULE_MAPPED_SCRATCH)

bool rb_partial_device_suits(const struct rubato_partial *p, uint32_t flags)
{
	return (flags & MAPPED) == RB_SCHEDULE_MAPPED_BUFFERS && !(flags & RB_SCHEDULE_PUT) &&
	       p->device.executor->ops->word_of != NULL && p->comm->choices.nodes.count == 1;
}

/* Peers in a group's plan are places in the group, whichever ranks have them. */
static bool taken_by_all(const void *arg, uint32_t place)
{
	const struct rb_engine *engine = arg;
	bool all = true;

	(void)place;
	for (uint32_t i = 0; i < engine->endpoint_count; i++)
		all = all && rb_endpoint_reaches(engine->endpoints[i], RB_MEMORY_DEVICE);
	return all;
}

static rubato_status plan_stage(const struct rubato_partial *p, struct rb_plan *plan, bool group,
				struct rb_plan **staged)
{
	const struct rb_engine *engine = &p->comm->engine;
	bool there = group ? taken_by_all(engine, 0) : rb_memory_all_taken(engine, &plan->schedule);
	const struct rb_staging staging = {
		.kinds = { [RB_BUF_IN] = RB_MEMORY_DEVICE,
			   [RB_BUF_OUT] = RB_MEMORY_DEVICE,
			   [RB_BUF_SCRATCH] = there ? RB_MEMORY_DEVICE : RB_MEMORY_HOST },
		.takes = group ? taken_by_all : rb_memory_taken,
		.arg = engine,
		.ways = rb_memory_ways(engine),
	};

	return rb_plan_staged(plan, &staging, staged);
}

static bool scratch_there(const struct rb_plan *staged)
{
	return staged->kinds[RB_BUF_SCRATCH] == RB_MEMORY_DEVICE;
}

/* All that a round by this plan needs, so that no round need make anything. */
static rubato_status plan_room(struct rubato_partial *p, struct rb_plan *plan, bool group,
			       uint64_t bytes[RB_STAGE_COUNT], uint64_t scratch_bytes[2])
{
	struct rb_plan *staged;
	uint64_t *scratch;

	RB_TRY(plan_stage(p, plan, group, &staged));
	for (uint32_t s = 0; s < staged->schedule.step_count; s++) /* Whose residual is there. */
		RB_ASSERT(p->vector.wire == RUBATO_WIRE_SAME ||
			  staged->schedule.steps[s].kind != RB_STEP_REDUCE ||
			  staged->schedule.steps[s].flags & RB_STEP_DEVICE);
	scratch = &scratch_bytes[scratch_there(staged)];
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		if (staged->stage_bytes[i] > bytes[i])
			bytes[i] = staged->stage_bytes[i];
	if (staged->scratch_bytes > *scratch)
		*scratch = staged->scratch_bytes;
	return rb_run_init(&p->reduction.run, staged);
}

static uint32_t group_count(const struct rubato_partial *p)
{
	return rb_rounds_grouped(&p->config) ? rb_rounds_group_ranks(&p->config) : 0;
}

/* NULL: each piece of it is, where that can be. */
static struct rb_memory *registered(struct rubato_partial *p, void *memory, uint64_t bytes)
{
	struct rb_memory *made = NULL;

	if (rb_memory_ways(&p->comm->engine) != 0 &&
	    rb_memory_add(&p->comm->memory, memory, (size_t)bytes, &made) != RUBATO_OK)
		made = NULL;
	return made;
}

rubato_status rb_partial_device_rooms(struct rubato_partial *p)
{
	struct rb_partial_device *d = &p->device;
	const struct rb_executor_ops *ops = d->executor->ops;
	uint64_t bytes[RB_STAGE_COUNT] = { 0 }, scratch_bytes[2] = { 0 };

	for (uint32_t by = 0; by < 2; by++) {
		struct rb_plan *plan = by == 0 ? p->reduction.plan : d->apart;
		struct rb_plan **plans = by == 0 ? p->reduction.group_plans : d->group_apart;

		if (plan != NULL)
			RB_TRY(plan_room(p, plan, false, bytes, scratch_bytes));
		for (uint32_t i = 0; plans != NULL && i < group_count(p); i++)
			RB_TRY(plan_room(p, plans[i], true, bytes, scratch_bytes));
	}
	if (scratch_bytes[0] > 0 && posix_memalign(&d->scratch[0], 64, scratch_bytes[0]) != 0)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: scratch of %llu bytes",
			       (unsigned long long)scratch_bytes[0]);
	if (scratch_bytes[1] > 0) {
		RB_TRY(ops->memory_new(d->executor, RB_MEMORY_DEVICE, (size_t)scratch_bytes[1],
				       &d->scratch[1]));
		d->scratch_registered = registered(p, d->scratch[1], scratch_bytes[1]);
	}
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		if (bytes[i] > 0)
			RB_TRY(ops->memory_new(d->executor,
					       i == 0 ? RB_MEMORY_HOST : RB_MEMORY_DEVICE,
					       (size_t)bytes[i], &d->stages[i]));
	return RUBATO_OK;
}

rubato_status rb_partial_device_run(struct rubato_partial *p, struct rb_run *run)
{
	struct rb_partial_device *d = &p->device;
	bool there;

	RB_TRY(plan_stage(p, run->plan, run->ranks != NULL, &run->plan)); /* It is there already. */
	there = scratch_there(run->plan);
	run->buffers[RB_BUF_SCRATCH] =
		(struct rb_where) { .base = d->scratch[there],
				    .kind = there ? RB_MEMORY_DEVICE : RB_MEMORY_HOST,
				    .regions = there && d->scratch_registered != NULL
						       ? d->scratch_registered->regions
						       : NULL };
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		run->buffers[RB_BUF_STAGE_HOST + i] = (struct rb_where) { .base = d->stages[i] };
	run->buffers[RB_BUF_STAGE_DEVICE].kind = RB_MEMORY_DEVICE;
	run->executors = d->executors;
	run->wire = p->vector.wire;
	if (p->coded.reduction.residual != NULL) /* Behind those of the inputs. */
		run->residual = p->coded.reduction.residual + p->coded.reduction.residual_count / 2;
	return RUBATO_OK;
}

/* ---- The slab ---- */

/* Without the lock: the device works, and is waited for. */
static rubato_status zeros_write(struct rubato_partial *p, void *to, uint64_t bytes)
{
	const struct rb_reduce zeros = { .type = RUBATO_UINT8, .to = to, .count = bytes };

	return bytes == 0 ? RUBATO_OK
			  : rb_device_reduce(&p->copy, "partial", p->device.executor, &zeros, 1,
					     p->comm->timeout_ns);
}

static rubato_status identity_write(struct rubato_partial *p)
{
	void *to = rb_partial_buffer(p, RB_PARTIAL_IDENTITY), *from;
	const struct rb_converted *reduction = &p->coded.reduction;
	rubato_status err;

	if (reduction->residual != NULL)
		RB_TRY(zeros_write(p, reduction->residual,
				   reduction->residual_count * sizeof(float)));
	if (p->coded.lease != NULL)
		RB_TRY(zeros_write(p, p->coded.lease, p->vector.user_bytes));
	if (p->vector.op == RUBATO_SUM || p->vector.op == RUBATO_AVG)
		return zeros_write(p, to, p->vector.bytes);
	from = malloc((size_t)p->vector.bytes + 1);
	if (from == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: %llu bytes",
			       (unsigned long long)p->vector.bytes);
	rb_reduce_identity(p->vector.type, p->vector.op, from, p->vector.count);
	err = rb_device_copy_out(&p->copy, "partial", to, from, p->vector.bytes,
				 p->comm->timeout_ns);
	free(from);
	return err;
}

static rubato_status floats_new(const struct rubato_partial *p, uint64_t count, float **out)
{
	struct rb_executor *device = p->device.executor;
	void *memory = NULL;

	RB_TRY(device->ops->memory_new(device, RB_MEMORY_DEVICE,
				       (size_t)((count + 1) * sizeof(float)), &memory));
	*out = memory;
	return RUBATO_OK;
}

static rubato_status coded_make(struct rubato_partial *p)
{
	struct rb_partial_coded *c = &p->coded;

	if (p->vector.wire == RUBATO_WIRE_SAME)
		return RUBATO_OK;
	RB_TRY(floats_new(p, p->vector.count, &c->lease));
	RB_TRY(floats_new(p, p->vector.count, &c->result));
	RB_TRY(floats_new(p, p->vector.count, &c->left));
	if (!p->config.options.feedback)
		return RUBATO_OK;
	c->reduction.residual_count = 2 * p->vector.units * rb_code_values(p->vector.wire);
	return floats_new(p, c->reduction.residual_count, &c->reduction.residual);
}

/* Nothing of it is the host's. */
static void coded_release(struct rubato_partial *p, bool quiet)
{
	float **const all[] = { &p->coded.lease, &p->coded.result, &p->coded.left,
				&p->coded.reduction.residual };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (*all[i] != NULL && quiet)
			p->device.executor->ops->memory_free(p->device.executor, *all[i]);
		*all[i] = NULL;
	}
}

rubato_status rb_partial_device_slab(struct rubato_partial *p, uint32_t buffers)
{
	struct rb_executor *device = p->device.executor;
	rubato_status err;
	void *slab;

	p->device.slab_bytes = p->buffers.stride * buffers + 1;
	RB_TRY(device->ops->memory_new(device, RB_MEMORY_DEVICE, (size_t)p->device.slab_bytes,
				       &slab));
	p->buffers.base = slab;
	RB_TRY(coded_make(p));
	if (rb_hollow(slab))
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "partial: this simulation has no memory");
	p->device.registered = registered(p, slab, p->device.slab_bytes);
	rb_engine_leave(&p->comm->engine);
	err = identity_write(p);
	rb_engine_enter(&p->comm->engine);
	return err;
}

/* ---- Whether all reach it ---- */

struct address {         /* Of a rank's slab, to the others. */
	uint64_t word;   /* Of the device's; 0: it has none. */
	uint64_t shared; /* 1: this is what other processes find it by. */
	struct rb_share share;
};
_Static_assert(sizeof(struct address) % sizeof(uint64_t) == 0, "it travels as words");
#define ADDRESS_WORDS (sizeof(struct address) / sizeof(uint64_t))
_Static_assert(ADDRESS_WORDS <= RB_PARTIAL_WORDS_MIN, "and the caller has room for them");

static void address_write(struct rubato_partial *p, struct address *own)
{
	struct rb_executor *device = p->device.executor;

	if (rb_comm_in_process(p->comm))
		own->word = device->ops->word_of(device, p->buffers.base);
	else if (!p->comm->sharing_refused && device->ops->share_of != NULL)
		own->shared = device->ops->share_of(device, p->buffers.base, &own->share);
}

/* Where it is here; NULL: nowhere. */
static uint8_t *address_open(struct rubato_partial *p, const struct address *own,
			     const struct address *theirs)
{
	struct rb_executor *device = p->device.executor;
	void *base = NULL;

	if (own->word != 0 && theirs->word != 0)
		return device->ops->word_kin(theirs->word) == device->ops->word_kin(own->word)
			       ? device->ops->word_map(device, theirs->word, p->device.slab_bytes)
			       : NULL;
	if (own->shared == 1 && theirs->shared == 1 && device->ops->share_open != NULL &&
	    device->ops->share_open(device, &theirs->share, p->device.slab_bytes, &base) !=
		    RUBATO_OK)
		base = NULL;
	p->device.shared |= base != NULL;
	return base;
}

static bool bases_open(struct rubato_partial *p, const struct address *all)
{
	uint32_t n = p->config.rank_count, me = p->config.rank;
	bool here = true;

	for (uint32_t r = 0; r < n; r++) {
		p->buffers.bases[r] =
			r == me ? p->buffers.base : address_open(p, &all[me], &all[r]);
		here = here && p->buffers.bases[r] != NULL;
	}
	return here;
}

void rb_partial_device_close(struct rubato_partial *p)
{
	struct rb_executor *device = p->device.executor;

	for (uint32_t r = 0; p->buffers.bases != NULL && r < p->config.rank_count; r++) {
		if (p->device.shared && r != p->config.rank && p->buffers.bases[r] != NULL)
			device->ops->share_close(device, p->buffers.bases[r]);
		p->buffers.bases[r] = NULL;
	}
	p->device.shared = false;
}

static void apart_use(struct rubato_partial *p)
{
	struct rb_plan *plan = p->reduction.plan, **plans = p->reduction.group_plans;

	p->reduction.plan = p->device.apart;
	p->reduction.group_plans = p->device.group_apart;
	p->device.apart = plan; /* To be freed. */
	p->device.group_apart = plans;
}

/* All ranks go one way: *here is what this one says, then what all say. */
static rubato_status bases_agree(struct rubato_partial *p, uint64_t *words, bool *here)
{
	struct rb_engine *engine = &p->comm->engine;
	uint32_t n = p->config.rank_count;
	const struct address *all = (const struct address *)(const void *)words;
	struct address own = { .word = 0 };
	int64_t mine;

	rb_engine_enter(engine);
	address_write(p, &own);
	rb_engine_leave(engine);
	RB_TRY(rb_call_gather(p->comm, RB_KIND_PARTIAL, &own, words, ADDRESS_WORDS, NULL));
	rb_engine_enter(engine);
	mine = bases_open(p, all);
	rb_engine_leave(engine);
	RB_TRY(rb_call_gather(p->comm, RB_KIND_PARTIAL, &mine, words, 1, NULL));
	*here = true;
	for (uint32_t r = 0; r < n; r++)
		*here = *here && words[r] == 1;
	return RUBATO_OK;
}

rubato_status rb_partial_device_meet(struct rubato_partial *p, uint64_t *words)
{
	bool here = false;
	rubato_status err;

	if (p->device.apart == NULL) /* All know: the algorithm is one of messages. */
		return RUBATO_OK;
	err = bases_agree(p, words, &here);
	rb_engine_enter(&p->comm->engine);
	if (err != RUBATO_OK || !here) {
		rb_partial_device_close(p);
		apart_use(p);
	}
	if (err == RUBATO_OK && !here && !rb_comm_in_process(p->comm)) {
		p->comm->sharing_refused = true;
		RB_LOG(RB_LOG_INFO,
		       "rank %u: a partial allreduce goes through the host's memory, as not all "
		       "ranks could open the others' on devices",
		       p->config.rank);
	}
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* ---- The application's copies and merges ---- */

rubato_status rb_partial_device_reduce(struct rubato_partial *p, const char *call,
				       const struct rb_reduce *reduce)
{
	return rb_device_reduce(&p->copy, call, p->device.executor, reduce,
				(uint32_t)rubato_type_bytes(p->vector.type), p->comm->timeout_ns);
}

rubato_status rb_partial_device_code(struct rubato_partial *p, const char *call,
				     enum rb_coding coding, const struct rb_coded *coded)
{
	const struct rb_reduce reduce = { .type = p->vector.type,
					  .op = p->vector.op,
					  .final_count = coded->final_count,
					  .to = coded->to,
					  .from = coded->from,
					  .from_count = coded->from_count,
					  .count = coded->count,
					  .coding = coding,
					  .wire = coded->wire,
					  .residual = coded->residual };
	uint32_t element_bytes =
		coding == RB_CODING_REDUCE ? rb_code_bytes(coded->wire) : (uint32_t)sizeof(float);

	return coded->count == 0 ? RUBATO_OK
				 : rb_device_reduce(&p->copy, call, p->device.executor, &reduce,
						    element_bytes, p->comm->timeout_ns);
}

rubato_status rb_partial_device_identity(struct rubato_partial *p, void *to)
{
	const void *from = rb_partial_buffer(p, RB_PARTIAL_IDENTITY);
	const struct rb_reduce copy = { .type = p->vector.type,
					.op = RUBATO_SUM,
					.to = to,
					.from = &from,
					.from_count = 1,
					.count = p->vector.count };

	return p->vector.wire != RUBATO_WIRE_SAME /* Then it is a sum's. */
		       ? zeros_write(p, to, p->vector.user_bytes)
		       : rb_partial_device_reduce(p, "partial acquire", &copy);
}

/* ---- The end ---- */

void rb_partial_device_release(struct rubato_partial *p, bool quiet)
{
	struct rb_partial_device *d = &p->device;
	const struct rb_executor_ops *ops;

	rb_plan_free(d->apart);
	for (uint32_t i = 0; d->group_apart != NULL && i < group_count(p); i++)
		rb_plan_free(d->group_apart[i]);
	free(d->group_apart);
	free(d->scratch[0]);
	if (d->executor == NULL)
		return;
	ops = d->executor->ops;
	coded_release(p, quiet);
	rb_partial_device_close(p);
	if (d->registered != NULL && quiet)
		rb_memory_drop(&p->comm->memory, d->registered);
	if (d->scratch_registered != NULL && quiet)
		rb_memory_drop(&p->comm->memory, d->scratch_registered);
	if (d->scratch[1] != NULL && quiet)
		ops->memory_free(d->executor, d->scratch[1]);
	for (uint32_t i = 0; i < RB_STAGE_COUNT; i++)
		if (d->stages[i] != NULL)
			ops->memory_free(d->executor, d->stages[i]);
	/* Where others may still work in it, it stays until the device goes. */
	if (p->buffers.base != NULL && quiet)
		ops->memory_free(d->executor, p->buffers.base);
}
