/* ping.c -- see ping.h. */
#include "runtime/engine/ping.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/absent.h"
#include "runtime/engine/run.h"

#define ALIGN 64        /* As buffers of applications usually are. */
#define NUMBER_SHIFT 16 /* A ping has fewer messages than that. */

struct rb_ping {
	struct rb_engine *engine;
	uint64_t deadline_ns;
	uint32_t ranks[2]; /* Who sends, who receives: of the messages that this rank starts. */
	bool first;        /* This rank sends first. */
	uint64_t number;
	bool done;
	_Alignas(ALIGN)
		uint8_t bytes[3 * RB_PING_EXCHANGE_BYTES]; /* What one gives; what both get. */
};
_Static_assert(RB_PING_LARGE_BYTES <= 3 * RB_PING_EXCHANGE_BYTES, "large ones fit");

static void message_done(struct rb_engine *engine, struct rb_run *run)
{
	(void)engine;
	((struct rb_ping *)run->owner)->done = true;
}

static rubato_status plan_run(struct rb_ping *p, struct rb_plan *plan, const uint32_t ranks[2],
			      void *out)
{
	struct rb_engine *engine = p->engine;
	struct rb_run run = { .ranks = ranks,
			      .type = RUBATO_UINT8,
			      .buffers = { { .base = p->bytes }, { .base = out } },
			      .tag = rb_tag(engine->epoch, RB_TAG_LINK, p->number++, 0),
			      .signature = { .kind = plan->key.kind,
					     .type = RUBATO_UINT8,
					     .op = 0xff,
					     .root = UINT32_MAX,
					     .count = plan->key.count },
			      .done = message_done,
			      .owner = p };
	rubato_status err;

	RB_TRY(rb_run_init(&run, plan));
	p->done = false;
	rb_engine_enter(engine);
	err = rb_engine_check(engine);
	if (err == RUBATO_OK) {
		rb_run_start(engine, &run);
		err = rb_engine_wait(engine, &p->done, p->deadline_ns);
		if (err != RUBATO_OK)
			rb_run_give_up(engine, &run, err, "start-up: timing messages");
		err = run.status != RUBATO_OK ? RB_FAIL(run.status, "%s", run.failure) : err;
	}
	rb_engine_leave(engine);
	rb_run_fini(&run);
	return err;
}

static rubato_status message_run(struct rb_ping *p, struct rb_plan *plan, bool sends)
{
	const uint32_t ranks[2] = { p->ranks[p->first != sends], p->ranks[p->first == sends] };

	return plan_run(p, plan, ranks, p->bytes);
}

static rubato_status plan_make(enum rb_kind kind, const char *name, uint64_t bytes, uint32_t rank,
			       struct rb_plan **out)
{
	int algorithm = rb_algorithm_find(kind, name);
	struct rb_plan_key key = { .count = bytes,
				   .kind = (uint8_t)kind,
				   .element_bytes = 1,
				   .algorithm = (uint8_t)algorithm };
	struct rb_choice choice = { .align = 1, .chunk = bytes };
	struct rb_build who = { .rank = rank, .rank_count = 2 };

	RB_ASSERT(algorithm >= 0);
	return rb_plan_make(&key, NULL, &choice, &who, out);
}

static rubato_status message_make(uint64_t bytes, bool sends, struct rb_plan **out)
{
	return plan_make(RB_KIND_SENDRECV, "eager", bytes, sends ? 0 : 1, out);
}

rubato_status rb_ping_time(struct rb_ping *p, uint64_t bytes, uint32_t count, uint32_t times,
			   uint64_t *best_ns)
{
	struct rb_plan *there = NULL, *back = NULL;
	rubato_status err = message_make(bytes, p->first, &there);

	*best_ns = UINT64_MAX;
	if (err == RUBATO_OK)
		err = message_make(RB_PING_SMALL_BYTES, !p->first, &back);
	for (uint32_t i = 0; i < times && err == RUBATO_OK; i++) {
		uint64_t begin_ns = rb_engine_now(p->engine), ns;

		for (uint32_t k = 0; k < count && err == RUBATO_OK; k++)
			err = message_run(p, there, p->first);
		if (err == RUBATO_OK)
			err = message_run(p, back, !p->first);
		ns = rb_engine_now(p->engine) - begin_ns;
		if (i > 0 && ns < *best_ns)
			*best_ns = ns;
	}
	rb_plan_free(there);
	rb_plan_free(back);
	return err;
}

rubato_status rb_ping_exchange(struct rb_ping *p, uint64_t bytes, uint32_t times, uint64_t *best_ns)
{
	struct rb_plan *plan = NULL;
	rubato_status err = plan_make(RB_KIND_ALLGATHER, "flat", bytes, !p->first, &plan);

	RB_ASSERT(bytes <= RB_PING_EXCHANGE_BYTES);
	*best_ns = UINT64_MAX;
	for (uint32_t i = 0; i < times && err == RUBATO_OK; i++) {
		uint64_t begin_ns = rb_engine_now(p->engine), ns;

		err = plan_run(p, plan, p->ranks, p->bytes + bytes);
		ns = rb_engine_now(p->engine) - begin_ns;
		if (ns < *best_ns)
			*best_ns = ns;
	}
	rb_plan_free(plan);
	return err;
}

rubato_status rb_ping_new(struct rb_engine *engine, const uint32_t ranks[2], uint32_t number,
			  uint64_t deadline_ns, struct rb_ping **out)
{
	struct rb_ping *p = aligned_alloc(ALIGN, sizeof(*p));

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "ping: %zu bytes", sizeof(*p));
	memset(p, 0, sizeof(*p));
	p->engine = engine;
	p->deadline_ns = deadline_ns;
	p->number = (uint64_t)number << NUMBER_SHIFT;
	p->ranks[0] = ranks[0];
	p->ranks[1] = ranks[1];
	p->first = engine->rank == ranks[0];
	*out = p;
	return RUBATO_OK;
}

void rb_ping_free(struct rb_ping *p)
{
	free(p);
}
