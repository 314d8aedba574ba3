/*
 * partial.c -- what applications call: leases and commits, results and their release. What comes of
 * a call is the machine's decision (collectives/partial/rounds.c); here threads wait.
 */
#include "runtime/relaxed/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/reduce/identity.h"
#include "runtime/unmatched.h"

#define MERGE_LOCKED_BYTES (64u << 10) /* Guess: below it the lock costs more than it holds up. */

bool rb_partial_over(const struct rubato_partial *p)
{
	return p->driver.over || rb_rounds_phase_of(p->machine) == RB_ROUNDS_OVER;
}

/* How the operation ended, unless it goes on. */
static rubato_status end_check(const struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	const char *loss;
	char text[224];

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(engine->poison, "%s", engine->poison_text);
	if (!rb_partial_over(p))
		return RUBATO_OK;
	loss = rb_loss_behind(&engine->losses, UINT32_MAX, text, sizeof(text));
	if (loss != NULL)
		return RB_FAIL(RUBATO_ERR_PEER, "partial allreduce: %s", loss);
	/* The survivors' agreement may be here before our own connection to the lost one ends. */
	return RB_FAIL(RUBATO_ERR_PEER, "partial allreduce: rank %u is lost, others say",
		       rb_rounds_lost(p->machine));
}

/* ---- Contributions ---- */

rubato_status rubato_partial_acquire(rubato_partial *p, void **buffer)
{
	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial acquire: NULL");
	*buffer = rb_partial_buffer(p, p->buffers.lease);
	if (!p->buffers.leased && p->config.options.zeroed)
		rb_reduce_identity(p->vector.type, p->vector.op, *buffer, p->vector.count);
	p->buffers.leased = true;
	return RUBATO_OK;
}

static rubato_status commit_check(const struct rubato_partial *p, uint64_t step, uint64_t weight)
{
	struct rb_rounds_view view = rb_rounds_view_of(p->machine);

	RB_TRY(end_check(p));
	if (view.left || view.draining)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: after %s",
			       (unsigned long long)step,
			       view.left ? "leave" : "drain: collect until there is none first");
	if (!p->buffers.leased)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: nothing was acquired",
			       (unsigned long long)step);
	if (view.committed > 0 && step <= view.last_step)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: the last one was %llu",
			       (unsigned long long)step, (unsigned long long)view.last_step);
	if (weight > UINT32_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit: weight %llu is too large",
			       (unsigned long long)weight);
	return RUBATO_OK;
}

static void merge(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	/* The machine keeps it where it is until it is told that this is over. */
	uint32_t pending = p->buffers.pending;

	if (p->vector.bytes > MERGE_LOCKED_BYTES)
		rb_engine_leave(engine);
	rb_partial_merge(p, pending, p->buffers.lease, false);
	if (p->vector.bytes > MERGE_LOCKED_BYTES)
		rb_engine_enter(engine);
	rb_partial_call(p, RB_ROUNDS_MERGED, NULL, 0);
}

static rubato_status commit(struct rubato_partial *p, uint64_t step, uint64_t weight)
{
	struct rb_rounds_commit c = { .step = step, .weight = weight };

	RB_TRY(commit_check(p, step, weight));
	if (p->clocks.work_since_ns > 0)
		c.duration_ns = rb_engine_now(&p->comm->engine) - p->clocks.work_since_ns;
	p->buffers.leased = false;
	rb_partial_call(p, RB_ROUNDS_COMMIT, &c, sizeof(c));
	if (rb_rounds_view_of(p->machine).verdict == RB_ROUNDS_MERGE)
		merge(p);
	return RUBATO_OK;
}

rubato_status rubato_partial_commit(rubato_partial *p, uint64_t step, uint64_t weight)
{
	rubato_status err;
	uint64_t begin;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit: NULL");
	begin = rb_engine_now(&p->comm->engine);
	rb_engine_enter(&p->comm->engine);
	err = commit(p, step, weight);
	rb_engine_leave(&p->comm->engine);
	p->clocks.call_ns += rb_engine_now(&p->comm->engine) - begin;
	return err;
}

rubato_status rubato_partial_contribute(rubato_partial *p, const void *buffer, uint64_t step,
					uint64_t weight)
{
	void *lease;

	if (p == NULL || (buffer == NULL && p->vector.count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial contribute: NULL");
	RB_TRY(rubato_partial_acquire(p, &lease));
	if (p->vector.count > 0)
		memcpy(lease, buffer, (size_t)p->vector.bytes);
	return rubato_partial_commit(p, step, weight);
}

/* ---- Results ---- */

/* Of all but `except`. */
static char *partials_text(const struct rubato_comm *comm, const struct rubato_partial *except,
			   char *text, size_t text_bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (const struct rubato_partial *p = comm->partials; p != NULL; p = p->next) {
		struct rb_rounds_view view = rb_rounds_view_of(p->machine);
		int length;

		if (p == except || rb_partial_over(p) || used >= text_bytes)
			continue;
		length = snprintf(text + used, text_bytes - used,
				  "; partial allreduce %llu (%s): round %llu is %s",
				  (unsigned long long)p->driver.number,
				  rubato_policy_name(p->config.options.policy),
				  (unsigned long long)view.round, rb_rounds_phase_name(view.phase));
		used += length > 0 ? (size_t)length : 0;
	}
	return text;
}

static rubato_status timeout_fail(struct rubato_partial *p, uint64_t timeout_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_rounds_view view = rb_rounds_view_of(p->machine);
	const struct rb_run *run = p->exchange.run.active ? &p->exchange.run : &p->reduction.run;
	char absent[128] = "", calls[256], others[160];

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "partial allreduce: the survivors have not agreed after %.3g s (%s)",
			       (double)timeout_ns * 1e-9, engine->poison_text);
	if (run->active)
		(void)rb_run_absent(run, absent, sizeof(absent));
	return RB_FAIL(
		RUBATO_ERR_TIMEOUT,
		"partial allreduce %llu (%s): round %llu is %s after %.3g s (needs %u of %u live "
		"ranks)%s%s%s%s",
		(unsigned long long)p->driver.number, rubato_policy_name(p->config.options.policy),
		(unsigned long long)view.round, rb_rounds_phase_name(view.phase),
		(double)timeout_ns * 1e-9, view.need, view.live,
		absent[0] != '\0' ? ": waits for" : "", absent,
		rb_unmatched_ahead(p->comm, calls, sizeof(calls)),
		partials_text(p->comm, p, others, sizeof(others)));
}

/*
 * While this thread waits here, it commits nothing to the others. Whether one of them cannot go on
 * without this application: rounds there and here might wait for each other for ever.
 */
static bool is_wanted_elsewhere(struct rubato_partial *p)
{
	struct rb_rounds_view here = rb_rounds_view_of(p->machine);
	bool wanted = false;

	for (struct rubato_partial *q = p->comm->partials; q != NULL; q = q->next) {
		bool unread;

		if (q == p || rb_partial_over(q))
			continue;
		if (here.phase == RB_ROUNDS_OPEN)
			rb_partial_call(q, RB_ROUNDS_WAITING, NULL, 0);
		if (rb_rounds_wants(q->machine, &unread))
			wanted |= unread || here.phase == RB_ROUNDS_OPEN;
	}
	return wanted && !here.draining && !here.left;
}

static uint64_t waited(const struct rubato_partial *p)
{
	const uint64_t *ns = p->clocks.wait_ns;

	return ns[0] + ns[1] + ns[2] + ns[3];
}

/* Whether the machine has still to hear of what poisoned the engine: then there will be more. */
static bool is_loss_unheard(const struct rubato_partial *p)
{
	return p->comm->engine.poison != RUBATO_OK &&
	       rb_rounds_phase_of(p->machine) < RB_ROUNDS_RECOVERING;
}

static rubato_status change_wait(struct rubato_partial *p, uint64_t *deadline_ns,
				 uint64_t timeout_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	uint64_t begin_ns = rb_engine_now(engine);
	rubato_status err;

	p->clocks.wait_since_ns = begin_ns;
	if (*deadline_ns == 0) {
		err = rb_engine_wait_for(engine, &p->changed, timeout_ns);
		*deadline_ns = rb_deadline(begin_ns, timeout_ns);
	} else {
		err = rb_engine_wait(engine, &p->changed, *deadline_ns);
	}
	rb_partial_wait_clock(p, rb_engine_now(engine));
	p->clocks.wait_since_ns = 0;
	return err == RUBATO_OK ? RUBATO_OK : timeout_fail(p, timeout_ns);
}

/* *slot: where the result is, or NO_SLOT: there is none. */
static rubato_status result_wait(struct rubato_partial *p, uint64_t timeout_ns, uint32_t *slot)
{
	bool look = timeout_ns == RUBATO_NO_WAIT, looked = false;
	uint64_t deadline_ns = 0;

	if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
		timeout_ns = p->comm->timeout_ns;
	*slot = RB_ROUNDS_NO_SLOT;
	for (;;) {
		if (p->driver.over)
			return end_check(p);
		rb_partial_call(p, look ? RB_ROUNDS_LOOK : RB_ROUNDS_COLLECT, NULL, 0);
		switch (rb_rounds_view_of(p->machine).offer) {
		case RB_ROUNDS_RESULT:
			*slot = rb_rounds_view_of(p->machine).lent;
			return RUBATO_OK;
		case RB_ROUNDS_ERA_OVER:
			return RUBATO_OK;
		case RB_ROUNDS_NO_MORE:
			return end_check(p);
		case RB_ROUNDS_NOTHING:
			if (!is_loss_unheard(p))
				return RUBATO_OK;
			break;
		case RB_ROUNDS_WAIT:
			break;
		}
		if (looked)
			return RUBATO_OK;
		if (look) {
			(void)rb_engine_look(&p->comm->engine, &looked);
			looked = true;
			continue;
		}
		p->changed = false;
		if (is_wanted_elsewhere(p))
			return RUBATO_OK;
		RB_TRY(change_wait(p, &deadline_ns, timeout_ns));
	}
}

static void round_fill(struct rubato_partial *p, const struct rb_partial_result *r,
		       rubato_round *round)
{
	uint32_t size_bytes = round->size_bytes;

	*round = r->summary;
	round->size_bytes = size_bytes;
	for (uint32_t i = 0; i < p->comm->engine.rank_count; i++) {
		const struct rb_rounds_record *record = &r->records[i];

		p->results.lent_ranks[i] = (rubato_contribution) {
			.first_step = record->first_step,
			.last_step = record->last_step,
			.weight = record->count > 0 ? record->weight : 0,
			.count = record->count,
			.fresh = (record->flags & RB_ROUNDS_FRESH) != 0,
			.member = r->member[i],
		};
	}
	round->ranks = p->results.lent_ranks;
}

rubato_status rubato_partial_collect_view(rubato_partial *p, const void **result,
					  rubato_round *round, uint64_t timeout_ns)
{
	uint32_t slot = RB_ROUNDS_NO_SLOT;
	struct rb_engine *engine;
	uint64_t begin, before;
	rubato_status err;

	if (p == NULL || result == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: NULL");
	if (round != NULL && round->size_bytes < sizeof(*round))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: round.size_bytes is not set");
	engine = &p->comm->engine;
	begin = rb_engine_now(engine);
	rb_engine_enter(engine);
	before = waited(p);
	if (rb_rounds_view_of(p->machine).lent != RB_ROUNDS_NO_SLOT && !p->driver.over)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: release the last one first");
	else
		err = result_wait(p, timeout_ns, &slot);
	if (slot != RB_ROUNDS_NO_SLOT && round != NULL)
		round_fill(p, &p->results.slots[slot], round);
	before = waited(p) - before;
	rb_engine_leave(engine);
	p->clocks.work_since_ns = rb_engine_now(engine);
	p->clocks.call_ns += p->clocks.work_since_ns - begin - before;
	if (err == RUBATO_OK)
		*result = slot != RB_ROUNDS_NO_SLOT
				  ? rb_partial_buffer(p, p->results.slots[slot].buffer)
				  : NULL;
	return err;
}

rubato_status rubato_partial_release(rubato_partial *p)
{
	rubato_status err = RUBATO_OK;
	uint64_t begin;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial release: NULL");
	begin = rb_engine_now(&p->comm->engine);
	rb_engine_enter(&p->comm->engine);
	if (rb_rounds_view_of(p->machine).lent == RB_ROUNDS_NO_SLOT)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial release: nothing is lent");
	else
		rb_partial_call(p, RB_ROUNDS_RELEASE, NULL, 0);
	rb_engine_leave(&p->comm->engine);
	p->clocks.call_ns += rb_engine_now(&p->comm->engine) - begin;
	return err;
}

rubato_status rubato_partial_collect(rubato_partial *p, void *out, bool *collected,
				     rubato_round *round, uint64_t timeout_ns)
{
	const void *result;

	if (p == NULL || collected == NULL || (out == NULL && p->vector.count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: NULL");
	RB_TRY(rubato_partial_collect_view(p, &result, round, timeout_ns));
	*collected = result != NULL;
	if (result == NULL)
		return RUBATO_OK;
	if (p->vector.count > 0)
		memcpy(out, result, (size_t)p->vector.bytes);
	return rubato_partial_release(p);
}

/* ---- Drain, leave, and what is left ---- */

static rubato_status passive(rubato_partial *p, enum rb_rounds_call call, const char *name)
{
	struct rb_rounds_view view;
	rubato_status err;

	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial %s: NULL", name);
	rb_engine_enter(&p->comm->engine);
	view = rb_rounds_view_of(p->machine);
	err = end_check(p);
	if (err == RUBATO_OK && (view.draining || view.left))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial %s: after %s", name,
			      view.left ? "leave" : "drain: collect until there is none first");
	if (err == RUBATO_OK)
		rb_partial_call(p, call, NULL, 0);
	rb_engine_leave(&p->comm->engine);
	return err;
}

rubato_status rubato_partial_drain(rubato_partial *p)
{
	return passive(p, RB_ROUNDS_DRAIN, "drain");
}

rubato_status rubato_partial_leave(rubato_partial *p)
{
	return passive(p, RB_ROUNDS_LEAVE, "leave");
}

rubato_status rubato_partial_pending(rubato_partial *p, const void **buffer,
				     rubato_contribution *contribution)
{
	rubato_status err = RUBATO_OK;

	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: NULL");
	rb_engine_enter(&p->comm->engine);
	if (!rb_partial_over(p)) {
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: the rounds go on");
	} else {
		*buffer = p->buffers.pending != RB_PARTIAL_NONE
				  ? rb_partial_buffer(p, p->buffers.pending)
				  : NULL;
		if (contribution != NULL)
			*contribution = rb_rounds_pending(p->machine);
	}
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* ---- Insight ---- */

rubato_status rubato_partial_get_stats(rubato_partial *p, rubato_partial_stats *stats)
{
	struct rb_rounds_view view;

	if (p == NULL || stats == NULL || stats->size_bytes < sizeof(*stats))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial stats: NULL, or size_bytes is not set");
	rb_engine_enter(&p->comm->engine);
	view = rb_rounds_view_of(p->machine);
	*stats = (rubato_partial_stats) {
		.size_bytes = stats->size_bytes,
		.quorum = view.need,
		.rounds = view.round,
		.full_rounds = view.full_rounds,
		.committed = view.committed,
		.delivered = view.delivered,
		.discarded = view.discarded,
		.pending = view.pending + view.joined,
		.merged = view.merged,
		.call_ns = p->clocks.call_ns,
	};
	memcpy(stats->round_ns, p->clocks.phase_ns, sizeof(stats->round_ns));
	memcpy(stats->wait_ns, p->clocks.wait_ns, sizeof(stats->wait_ns));
	rb_engine_leave(&p->comm->engine);
	return RUBATO_OK;
}

char *rb_partials_text(const struct rubato_comm *comm, char *text, size_t text_bytes)
{
	return partials_text(comm, NULL, text, text_bytes);
}

void rb_partials_dump(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		      void *arg)
{
	char text[300];

	for (const struct rubato_partial *p = comm->partials; p != NULL; p = p->next) {
		struct rb_rounds_view view = rb_rounds_view_of(p->machine);

		(void)snprintf(
			text, sizeof(text),
			"r%u partial#%llu %s %s x %llu %s round %llu ready %u need %u live %u "
			"full %u collected %llu pending %llu%s%s",
			comm->engine.rank, (unsigned long long)p->driver.number,
			rubato_operator_name(p->vector.op), rubato_type_name(p->vector.type),
			(unsigned long long)p->vector.count, rb_rounds_phase_name(view.phase),
			(unsigned long long)view.round, view.ready, view.need, view.live, view.full,
			(unsigned long long)view.next, (unsigned long long)view.pending,
			view.draining ? " draining" : "", view.left ? " left" : "");
		line(arg, text);
	}
}
