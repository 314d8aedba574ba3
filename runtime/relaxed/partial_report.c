/*
 * partial_report.c -- what a partial allreduce tells of itself: what is left of it after a loss,
 * its statistics, the dump, and the sentences of errors.
 */
#include "runtime/relaxed/partial.h"

#include <stdio.h>
#include <string.h>

#include "runtime/engine/absent.h"
#include "runtime/unmatched.h"

/* ---- To applications ---- */

rubato_status rubato_partial_pending(rubato_partial *p, const void **buffer,
				     rubato_contribution *contribution)
{
	rubato_status err = RUBATO_OK;
	uint32_t pending = RB_PARTIAL_NONE;

	if (p == NULL || buffer == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: NULL");
	RB_TRY(rb_engine_ours(&p->comm->engine));
	if (p->device.executor != NULL)
		RB_TRY(rb_partial_restored(p));
	rb_engine_enter(&p->comm->engine);
	if (!rb_partial_over(p)) {
		err = RB_FAIL(RUBATO_ERR_ARGUMENT, "partial pending: the rounds go on");
	} else {
		*buffer = NULL;
		pending = p->buffers.pending; /* It stays. */
		if (contribution != NULL)
			*contribution = rb_rounds_pending(p->machine);
	}
	rb_engine_leave(&p->comm->engine);
	return pending != RB_PARTIAL_NONE
		       ? rb_partial_decoded(p, "partial pending", pending, p->coded.left, buffer)
		       : err;
}

rubato_status rubato_partial_get_stats(rubato_partial *p, rubato_partial_stats *stats)
{
	struct rb_rounds_view view;

	if (p == NULL || stats == NULL || stats->size_bytes < sizeof(*stats))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial stats: NULL, or size_bytes is not set");
	RB_TRY(rb_engine_call(&p->comm->engine));
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

/* ---- To who looks for what is wrong ---- */

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

char *rb_partials_text(const struct rubato_comm *comm, char *text, size_t text_bytes)
{
	return partials_text(comm, NULL, text, text_bytes);
}

/* "; node 2 (ranks 4, 5) is in none of the last 3 rounds": of nodes the one that has been out
 * longest; records show it. Empty: none. */
static char *out_text(const struct rubato_partial *p, char *text, size_t text_bytes)
{
	const struct rb_nodes *nodes = p->config.nodes;
	uint32_t longest = 0, found = 0, size, used;

	text[0] = '\0';
	for (uint32_t i = 0; nodes != NULL && i < nodes->count; i++) {
		uint32_t absent = rb_rounds_absent(p->machine, i);

		if (absent <= longest)
			continue;
		longest = absent;
		found = i;
	}
	if (longest == 0)
		return text;
	size = rb_node_size(nodes, found);
	used = (uint32_t)snprintf(text, text_bytes, "; node %u (rank", found);
	for (uint32_t k = 0; k < size && k < 4; k++)
		used += (uint32_t)snprintf(text + used, text_bytes - used, "%s %u",
					   k > 0 ? "," : "", rb_node_rank(nodes, found, k));
	(void)snprintf(text + used, text_bytes - used, "%s) is in none of the last %u rounds",
		       size > 4 ? ", ..." : "", longest);
	return text;
}

void rb_partials_dump(const struct rubato_comm *comm, void (*line)(void *arg, const char *text),
		      void *arg)
{
	char text[400], out[96];

	for (const struct rubato_partial *p = comm->partials; p != NULL; p = p->next) {
		struct rb_rounds_view view = rb_rounds_view_of(p->machine);

		(void)snprintf(
			text, sizeof(text),
			"r%u partial#%llu %s %s x %llu %s round %llu ready %u need %u live %u "
			"full %u collected %llu pending %llu%s%s%s%s",
			comm->engine.rank, (unsigned long long)p->driver.number,
			rubato_operator_name(p->vector.op), rubato_type_name(p->vector.type),
			(unsigned long long)p->vector.count, rb_rounds_phase_name(view.phase),
			(unsigned long long)view.round, view.ready, view.need, view.live, view.full,
			(unsigned long long)view.next, (unsigned long long)view.pending,
			view.draining ? " draining" : "", view.left ? " left" : "",
			p->config.nodes != NULL ? " nodes" : "", out_text(p, out, sizeof(out)));
		line(arg, text);
	}
}

/* ---- Errors ---- */

char *rb_partial_absent(const struct rubato_partial *p, char *text, size_t text_bytes)
{
	const struct rb_run *run = p->exchange.run.active ? &p->exchange.run : &p->reduction.run;
	enum rb_rounds_phase phase = rb_rounds_phase_of(p->machine);
	char ranks[128] = "";
	size_t used = 0;

	for (uint32_t r = 0; r < p->config.rank_count && used < sizeof(ranks); r++)
		if (rb_rounds_awaits(p->machine, r))
			used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s rank %u",
						 used > 0 ? "," : "", r);
	if (used == 0 && run->active)
		(void)rb_run_absent(run, ranks, sizeof(ranks));
	(void)snprintf(text, text_bytes, "%s%s",
		       ranks[0] == '\0'          ? ""
		       : phase == RB_ROUNDS_OPEN ? ": not ready:"
						 : ": waits for",
		       ranks);
	return text;
}

rubato_status rb_partial_timeout_fail(struct rubato_partial *p, uint64_t timeout_ns)
{
	struct rb_engine *engine = &p->comm->engine;
	struct rb_rounds_view view = rb_rounds_view_of(p->machine);
	char absent[160], calls[256], others[160], out[96];

	if (engine->poison != RUBATO_OK)
		return RB_FAIL(RUBATO_ERR_TIMEOUT,
			       "partial allreduce: the survivors have not agreed after %.3g s (%s)",
			       (double)timeout_ns * 1e-9, engine->poison_text);
	return RB_FAIL(
		RUBATO_ERR_TIMEOUT,
		"partial allreduce %llu (%s): round %llu is %s after %.3g s (needs %u of %u live "
		"%s)%s%s%s%s",
		(unsigned long long)p->driver.number, rubato_policy_name(p->config.options.policy),
		(unsigned long long)view.round, rb_rounds_phase_name(view.phase),
		(double)timeout_ns * 1e-9, view.need, view.live,
		p->config.nodes != NULL ? "nodes" : "ranks", out_text(p, out, sizeof(out)),
		rb_partial_absent(p, absent, sizeof(absent)),
		rb_unmatched_ahead(p->comm, NULL, calls, sizeof(calls)),
		partials_text(p->comm, p, others, sizeof(others)));
}

void rb_partial_mismatch(struct rb_engine *engine, const struct rubato_partial *p)
{
	uint32_t ranks[2];
	uint64_t steps[2];
	char text[160];

	rb_rounds_mismatch(p->machine, ranks, steps);
	(void)snprintf(
		text, sizeof(text),
		"partial: the first number after a drain is %llu on rank %u, %llu on rank %u",
		(unsigned long long)steps[0], ranks[0], (unsigned long long)steps[1], ranks[1]);
	rb_engine_poison(engine, RUBATO_ERR_MISMATCH, text);
}
