/*
 * partial.c -- what applications call: leases and commits, results and their release.
 *
 * Which result is next is decided here, whether to wait for one by the machine (rb_partial_ready).
 * `collected` is the next round to be delivered: under EACH all of them are, in order; LATEST skips
 * to the newest; under OWN it is the round of the last contribution, once `own_due`, and from a
 * drain on also each that follows: what is left must not get lost.
 */
#include "runtime/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/mutant.h"

#define MERGE_LOCKED_BYTES (64u << 10) /* Guess: below it the lock costs more than it holds up. */

static bool is_running(const struct rubato_partial *p)
{
	enum rb_partial_phase phase = rb_partial_phase(p->machine);

	return phase == RB_PARTIAL_EXCHANGING || phase == RB_PARTIAL_REDUCING;
}

/* How the operation ended, unless it goes on. */
static rubato_status end_check(const struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	const char *loss;
	char text[224];

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(engine->poison, "%s", engine->poison_text);
	if (p->over) {
		loss = rb_loss_behind(engine, UINT32_MAX, text, sizeof(text));
		return RB_FAIL(p->status, "partial allreduce: %s",
			       loss != NULL ? loss : "a rank was lost");
	}
	return RUBATO_OK;
}

/* ---- Contributions ---- */

/* The bits of least, greatest and one, low bytes first: identities of max, min and prod. */
static const uint64_t identities[RUBATO_TYPE_COUNT][3] = {
	[RUBATO_FLOAT32] = { 0xff800000, 0x7f800000, 0x3f800000 },
	[RUBATO_FLOAT64] = { 0xfff0000000000000, 0x7ff0000000000000, 0x3ff0000000000000 },
	[RUBATO_FLOAT16] = { 0xfc00, 0x7c00, 0x3c00 },
	[RUBATO_BFLOAT16] = { 0xff80, 0x7f80, 0x3f80 },
	[RUBATO_INT8] = { 0x80, INT8_MAX, 1 },
	[RUBATO_INT16] = { 0x8000, INT16_MAX, 1 },
	[RUBATO_INT32] = { 0x80000000, INT32_MAX, 1 },
	[RUBATO_INT64] = { 0x8000000000000000, INT64_MAX, 1 },
	[RUBATO_UINT8] = { 0, UINT8_MAX, 1 },
	[RUBATO_UINT16] = { 0, UINT16_MAX, 1 },
	[RUBATO_UINT32] = { 0, UINT32_MAX, 1 },
	[RUBATO_UINT64] = { 0, UINT64_MAX, 1 },
};

void rb_partial_identity(const struct rubato_partial *p, void *buffer)
{
	static const uint8_t columns[RUBATO_OPERATOR_COUNT] = {
		[RUBATO_MIN] = 1, [RUBATO_PROD] = 2
	};
	const size_t size = rubato_type_bytes(p->type);
	const bool adding = p->op == RUBATO_SUM || p->op == RUBATO_AVG;
	const uint64_t element = adding ? 0 : identities[p->type][columns[p->op]];

	if (element == 0) {
		memset(buffer, 0, (size_t)p->bytes);
		return;
	}
	for (uint64_t i = 0; i < p->count; i++)
		memcpy((uint8_t *)buffer + i * size, &element, size);
}

rubato_status rubato_partial_acquire(rubato_partial *p, void **buffer)
{
	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial acquire: NULL");
	*buffer = rb_partial_buffer(p, p->lease);
	if (!p->leased && p->options.zeroed)
		rb_partial_identity(p, *buffer);
	p->leased = true;
	return RUBATO_OK;
}

static rubato_status commit_check(const struct rubato_partial *p, uint64_t step, uint64_t weight)
{
	RB_TRY(end_check(p));
	if (p->draining || p->left)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: after %s",
			       (unsigned long long)step, p->left ? "leave" : "drain");
	if (!p->leased)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: nothing was acquired",
			       (unsigned long long)step);
	if (p->committed > 0 && step <= p->last_step)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit %llu: the last one was %llu",
			       (unsigned long long)step, (unsigned long long)p->last_step);
	if (weight > UINT32_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial commit: weight %llu is too large",
			       (unsigned long long)weight);
	return RUBATO_OK;
}

/* Under OWN: which round is that of a contribution just committed. */
static void own_note(struct rubato_partial *p, uint64_t step, bool in_time)
{
	uint64_t round = rb_partial_round(p->machine), next = round + is_running(p);
	uint64_t own = next;

	if (!in_time && p->options.rounds == RUBATO_ROUNDS_ALIGNED)
		own = p->base_round + (step - p->base_step);
	else if (!in_time)
		own = next > 0 ? next - 1 : 0;
	own += RB_FAULT(OWN_IS_NEXT);
	if (own < p->collected)
		return;
	p->collected = own;
	p->own_due = true;
}

static void merge(struct rubato_partial *p)
{
	struct rb_engine *engine = &p->comm->engine;
	/* The machine keeps it where it is until it is told that this is over. */
	uint32_t pending = p->pending.buffer;

	if (p->bytes > MERGE_LOCKED_BYTES)
		rb_engine_leave(engine);
	if (!RB_FAULT(MERGE_AWAY))
		rb_partial_merge(p, pending, p->lease, false);
	if (RB_FAULT(MERGE_TWICE))
		rb_partial_merge(p, pending, p->lease, false);
	if (p->bytes > MERGE_LOCKED_BYTES)
		rb_engine_enter(engine);
	if (!RB_FAULT(MERGE_UNTOLD))
		rb_partial_call(p, RB_PARTIAL_MERGED, NULL, 0);
}

static rubato_status commit(struct rubato_partial *p, uint64_t step, uint64_t weight)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_partial_commit c = { .step = step, .weight = weight };
	bool in_time;

	RB_TRY(commit_check(p, step, weight));
	if (p->work_since_ns > 0)
		c.duration_ns = rb_engine_now(engine) - p->work_since_ns;
	if (!p->based) {
		p->based = true;
		p->base_step = step;
	}
	if (p->options.collection == RUBATO_COLLECT_OWN) {
		uint64_t next = rb_partial_round(p->machine) + is_running(p);

		in_time = p->options.rounds == RUBATO_ROUNDS_FREE
				  ? p->collected_all_at == next
				  : p->base_round + (step - p->base_step) >= next;
		own_note(p, step, in_time);
	}
	p->leased = p->flushing = false;
	p->committed++;
	p->last_step = step;
	rb_partial_call(p, RB_PARTIAL_COMMIT, &c, sizeof(c));
	if (rb_partial_verdict(p->machine) == RB_PARTIAL_MERGE)
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
	p->call_ns += rb_engine_now(&p->comm->engine) - begin;
	return err;
}

rubato_status rubato_partial_contribute(rubato_partial *p, const void *buffer, uint64_t step,
					uint64_t weight)
{
	void *lease;

	if (p == NULL || (buffer == NULL && p->count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial contribute: NULL");
	RB_TRY(rubato_partial_acquire(p, &lease));
	if (p->count > 0)
		memcpy(lease, buffer, (size_t)p->bytes);
	return rubato_partial_commit(p, step, weight);
}

/* ---- Results ---- */

static void released_tell(struct rubato_partial *p, uint64_t below)
{
	rb_partial_call(p, RB_PARTIAL_RELEASED, &below, sizeof(below));
	if (below == rb_partial_round(p->machine))
		p->collected_all_at = below + is_running(p);
}

/* The next to deliver, if it is here. */
static struct rb_partial_result *next_find(struct rubato_partial *p)
{
	struct rb_partial_result *next = NULL;

	if (p->options.collection == RUBATO_COLLECT_LATEST)
		return p->newest != NULL && p->newest->round >= p->collected ? p->newest : NULL;
	if (p->options.collection == RUBATO_COLLECT_OWN && !p->own_due && !p->flushing)
		return NULL;
	for (uint32_t i = 0; i < p->result_count; i++) {
		struct rb_partial_result *r = &p->results[i];

		if (r->round == RB_PARTIAL_NO_ROUND || r->round < p->collected)
			continue;
		if (next == NULL || r->round < next->round)
			next = r;
	}
	return next;
}

/* Whether there is something to wait for, when nothing can be delivered now. */
static bool waits(const struct rubato_partial *p)
{
	if (p->over)
		return false;
	if (p->comm->engine.poison != RUBATO_OK || rb_partial_ready(p->machine))
		return true; /* The survivors are about to agree; or a round will come. */
	return p->options.collection == RUBATO_COLLECT_OWN && p->own_due && is_running(p) &&
	       p->collected <= rb_partial_round(p->machine);
}

static rubato_status timeout_fail(struct rubato_partial *p, uint64_t timeout_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	static const char *const names[] = { "open",     "joining",    "exchanging",
					     "reducing", "recovering", "fetching" };
	enum rb_partial_phase phase = rb_partial_phase(p->machine);
	const struct rb_run *run = p->exchange.active ? &p->exchange : &p->reduce;
	char absent[128] = "";

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "partial allreduce: the survivors have not agreed after %.3g s (%s)",
			       (double)timeout_ns * 1e-9, engine->poison_text);
	if (run->active)
		(void)rb_run_absent(run, absent, sizeof(absent));
	return RB_FAIL(
		RUBATO_ERR_TIMEOUT,
		"partial allreduce: round %llu is %s after %.3g s (needs %u of %u live ranks)"
		"%s%s",
		(unsigned long long)rb_partial_round(p->machine), names[phase],
		(double)timeout_ns * 1e-9, rb_partial_need(p->machine), rb_partial_live(p->machine),
		absent[0] != '\0' ? ": waits for" : "", absent);
}

/* All that there is has been taken: rounds need not wait for that, and free ones go by it. */
static void nothing_left(struct rubato_partial *p)
{
	uint64_t round = rb_partial_round(p->machine);
	bool own = p->options.collection == RUBATO_COLLECT_OWN && !p->own_due && !p->flushing;
	bool free_rounds = p->options.rounds == RUBATO_ROUNDS_FREE;

	if (own && free_rounds)
		p->collected = round; /* Those between are not wanted. */
	if (free_rounds || rb_partial_uninterested(p))
		released_tell(p, p->collected < round ? p->collected : round);
}

/* While this thread waits here, it commits nothing to the others. */
static void others_tell(struct rubato_partial *p)
{
	for (struct rubato_partial *q = p->comm->partials; q != NULL; q = q->next)
		if (q != p && !RB_FAULT(WAIT_SILENTLY) && q->options.rounds == RUBATO_ROUNDS_FREE &&
		    !q->over)
			rb_partial_call(q, RB_PARTIAL_WAITING, NULL, 0);
}

static uint64_t waited(const struct rubato_partial *p)
{
	return p->wait_ns[0] + p->wait_ns[1] + p->wait_ns[2] + p->wait_ns[3];
}

static rubato_status result_wait(struct rubato_partial *p, uint64_t timeout_ns,
				 struct rb_partial_result **out)
{
	struct rb_engine *engine = &p->comm->engine;
	bool look = timeout_ns == RUBATO_NO_WAIT, looked = false;
	uint64_t deadline_ns = 0;

	if (timeout_ns == RUBATO_TIMEOUT_DEFAULT)
		timeout_ns = p->comm->timeout_ns;
	for (;;) {
		rubato_status err;

		if (p->over && p->status != RUBATO_ERR_PEER)
			return end_check(p);
		*out = next_find(p);
		if (*out != NULL)
			return RUBATO_OK;
		if (p->over)
			return end_check(p);
		nothing_left(p);
		if (!waits(p) || looked)
			return RUBATO_OK;
		if (look) {
			(void)rb_engine_look(engine, &looked);
			looked = true;
			continue;
		}
		p->changed = false;
		others_tell(p);
		p->wait_since_ns = rb_engine_now(engine);
		if (deadline_ns == 0) {
			err = rb_engine_wait_for(engine, &p->changed, timeout_ns);
			deadline_ns = rb_deadline(rb_engine_now(engine), timeout_ns);
		} else {
			err = rb_engine_wait(engine, &p->changed, deadline_ns);
		}
		rb_partial_wait_note(p, rb_engine_now(engine));
		p->wait_since_ns = 0;
		if (err != RUBATO_OK)
			return timeout_fail(p, timeout_ns);
	}
}

static void round_fill(struct rubato_partial *p, const struct rb_partial_result *r,
		       rubato_round *round)
{
	uint32_t size_bytes = round->size_bytes;

	*round = r->summary;
	round->size_bytes = size_bytes;
	for (uint32_t i = 0; i < p->comm->engine.rank_count; i++) {
		const struct rb_partial_record *record = &r->records[i];

		p->lent_ranks[i] = (rubato_contribution) {
			.first_step = record->first_step,
			.last_step = record->last_step,
			.weight = record->count > 0 ? record->weight : 0,
			.count = record->count,
			.fresh = (record->flags & RB_PARTIAL_FRESH) != 0,
			.member = r->member[i],
		};
	}
	round->ranks = p->lent_ranks;
}

rubato_status rubato_partial_collect_view(rubato_partial *p, const void **result,
					  rubato_round *round, uint64_t timeout_ns)
{
	struct rb_partial_result *found = NULL;
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
	if (p->lent != NULL)
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: release the last one first");
	else
		err = result_wait(p, timeout_ns, &found);
	if (err == RUBATO_OK && found != NULL) {
		p->lent = found;
		p->collected = found->round + 1 + RB_FAULT(DELIVER_SKIPPING);
		if (RB_FAULT(DELIVER_TWICE) && p->options.collection == RUBATO_COLLECT_EACH)
			p->collected -= !p->own_due;
		p->own_due = RB_FAULT(DELIVER_TWICE) && p->collected == found->round;
		if (round != NULL)
			round_fill(p, found, round);
	}
	before = waited(p) - before;
	rb_engine_leave(engine);
	p->work_since_ns = rb_engine_now(engine);
	p->call_ns += p->work_since_ns - begin - before;
	if (err == RUBATO_OK)
		*result = found != NULL ? rb_partial_buffer(p, found->buffer) : NULL;
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
	if (p->lent == NULL) {
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial release: nothing is lent");
	} else {
		uint64_t below = p->lent->round + 1 + RB_FAULT(RELEASE_AHEAD);

		p->lent = NULL;
		released_tell(p, below);
	}
	rb_engine_leave(&p->comm->engine);
	p->call_ns += rb_engine_now(&p->comm->engine) - begin;
	return err;
}

rubato_status rubato_partial_collect(rubato_partial *p, void *out, bool *collected,
				     rubato_round *round, uint64_t timeout_ns)
{
	const void *result;

	if (p == NULL || collected == NULL || (out == NULL && p->count > 0))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial collect: NULL");
	RB_TRY(rubato_partial_collect_view(p, &result, round, timeout_ns));
	*collected = result != NULL;
	if (result == NULL)
		return RUBATO_OK;
	if (p->count > 0)
		memcpy(out, result, (size_t)p->bytes);
	return rubato_partial_release(p);
}

/* ---- Drain, leave, and what is left ---- */

static rubato_status passive(rubato_partial *p, enum rb_partial_call call, const char *name,
			     bool *flag)
{
	rubato_status err;

	rb_engine_enter(&p->comm->engine);
	err = end_check(p);
	if (err == RUBATO_OK && (p->draining || p->left))
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial %s: after %s", name,
			      p->left ? "leave" : "drain");
	if (err == RUBATO_OK) {
		*flag = true;
		rb_partial_call(p, call, NULL, 0);
	}
	rb_engine_leave(&p->comm->engine);
	return err;
}

rubato_status rubato_partial_drain(rubato_partial *p)
{
	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial drain: NULL");
	RB_TRY(passive(p, RB_PARTIAL_DRAIN, "drain", &p->draining));
	p->flushing = true;
	return RUBATO_OK;
}

rubato_status rubato_partial_leave(rubato_partial *p)
{
	if (p == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial leave: NULL");
	return passive(p, RB_PARTIAL_LEAVE, "leave", &p->left);
}

rubato_status rubato_partial_pending(rubato_partial *p, const void **buffer,
				     rubato_contribution *contribution)
{
	rubato_status err = RUBATO_OK;

	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: NULL");
	rb_engine_enter(&p->comm->engine);
	if (!p->over) {
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: the rounds go on");
	} else if (p->pending.buffer == RB_PARTIAL_NONE) {
		*buffer = NULL;
		if (contribution != NULL)
			*contribution = (rubato_contribution) { .count = 0 };
	} else {
		*buffer = rb_partial_buffer(p, p->pending.buffer);
		if (contribution != NULL)
			*contribution = p->pending.what;
	}
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* ---- Insight ---- */

rubato_status rubato_partial_get_stats(rubato_partial *p, rubato_partial_stats *stats)
{
	struct rb_partial_counts counts;

	if (p == NULL || stats == NULL || stats->size_bytes < sizeof(*stats))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial stats: NULL, or size_bytes is not set");
	rb_engine_enter(&p->comm->engine);
	counts = rb_partial_counts(p->machine);
	*stats = (rubato_partial_stats) {
		.size_bytes = stats->size_bytes,
		.quorum = rb_partial_need(p->machine),
		.rounds = p->rounds,
		.full_rounds = p->full_rounds,
		.committed = counts.produced,
		.delivered = counts.delivered,
		.discarded = counts.discarded,
		.pending = counts.pending + counts.joined,
		.merged = p->merged,
	};
	stats->call_ns = p->call_ns;
	memcpy(stats->round_ns, p->phase_ns, sizeof(stats->round_ns));
	memcpy(stats->wait_ns, p->wait_ns, sizeof(stats->wait_ns));
	rb_engine_leave(&p->comm->engine);
	return RUBATO_OK;
}

void rb_partials_dump(struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		      void *arg)
{
	static const char *const phases[] = { "open",       "joining",  "exchanging", "reducing",
					      "recovering", "fetching", "over" };
	char text[300];

	for (const struct rubato_partial *p = comm->partials; p != NULL; p = p->next) {
		(void)snprintf(text, sizeof(text),
			       "r%u partial#%u %s %s x %llu %s round %llu ready %u need %u live %u "
			       "full %u collected %llu pending %u%s%s",
			       comm->engine.rank, p->plug.number, rubato_operator_name(p->op),
			       rubato_type_name(p->type), (unsigned long long)p->count,
			       phases[rb_partial_phase(p->machine)],
			       (unsigned long long)rb_partial_round(p->machine),
			       rb_partial_ready(p->machine), rb_partial_need(p->machine),
			       rb_partial_live(p->machine), rb_partial_full(p->machine),
			       (unsigned long long)p->collected,
			       p->pending.buffer != RB_PARTIAL_NONE ? p->pending.what.count : 0,
			       p->draining ? " draining" : "", p->left ? " left" : "");
		line(arg, text);
	}
}
