/*
 * hier.c -- Hier-AVG: the mean of each group's models every K1 steps, that of all ranks every
 * K2 (Zhou, Cong, arXiv 1903.05133); where both are due only the second. With --outer the global
 * model has reduction momentum, at averages of all ranks only (Cong, Yang, Zhou, ICPP-W 2019).
 *
 * Groups are --group consecutive ranks (the last may be smaller), or the ranks of a node. A group
 * of one has nothing to average and counts no reductions.
 */
#include <stdlib.h>

#include "trainer/rules/global_model.h"

struct hier_options {
	struct tr_rule_options run;
	uint64_t k1, k2; /* Local steps between averages: in a group, of all. */
	uint32_t group;  /* Ranks of one; 0: those of a node. */
	struct tr_outer_options outer;
	struct tr_averaging_options averaging;
};

#define AT(member) offsetof(struct hier_options, member)

static const struct option rows[] = {
	{ "k1", .kind = OPTION_U64, .at = AT(k1), .value = "K", .min = 1, .max = UINT32_MAX,
	  .preset = "4", .help = "steps between averages in a group", .key = "k1" },
	{ "k2", .kind = OPTION_U64, .at = AT(k2), .value = "K", .min = 1, .max = UINT32_MAX,
	  .preset = "32", .help = "steps between averages of all", .key = "k2" },
	{ "group", .kind = OPTION_U32, .at = AT(group), .value = "S", .min = 1, .max = TR_RANKS_MAX,
	  .help = "ranks of a group (those of a node)", .key = "group" },
	{ 0 },
};

static const struct tr_option_group groups[] = {
	{ rows, 0 },
	{ tr_outer_rows, AT(outer) },
	TR_AVERAGING_GROUPS(struct hier_options, averaging),
	{ 0 },
};

struct tr_rule_state {
	const struct hier_options *own;
	struct tr_global_model global;
	uint32_t first, stride, count; /* The ranks of this group. */
	rubato_comm *comm;             /* Of the group; NULL: it is this rank alone. */
	struct tr_averaging *local;
	float *model;   /* That the group had in common last; NULL: nobody asks (--wire f32). */
	uint64_t last;  /* Local steps done at the last average, of the group or all. */
	uint64_t bytes; /* Sent on `comm`, and counted. */
	bool finished;
};

static rubato_status hier_judge(struct tr_rule_options *options,
				const struct tr_rule_request *request, struct tr_error *error)
{
	struct hier_options *own = (struct hier_options *)options;

	TR_TRY(tr_outer_judge(&own->outer, request, error));
	if (own->group == 1)
		return tr_refuse(error, "--group 1: a rank alone has nobody to average with");
	TR_TRY(tr_option_needs(request, "k1", own->k1 % own->k2 != 0,
			       "a --k2 that it is no multiple of", error));
	return tr_opt_state_judge(request, error);
}

/* A group's communicator is left together only after a run that went well. */
static void hier_close(struct tr_rule_state *state)
{
	tr_averaging_close(state->local);
	if (state->comm != NULL && !state->finished)
		(void)rubato_abort(state->comm);
	if (state->comm != NULL)
		(void)rubato_finalize(state->comm);
	tr_global_model_close(&state->global);
	if (state->model != NULL)
		state->global.ctx->vectors->free(state->global.ctx->vectors, NULL, state->model);
}

/* The ranks of this rank's node, which must be evenly spaced: so the ledger names them. */
static rubato_status find_node(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->global.ctx;
	uint64_t *nodes = calloc(ctx->rank_count, sizeof(*nodes));
	rubato_status err;
	uint32_t last = 0;
	bool any = false;

	if (nodes == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "hier: out of memory");
	err = tr_check(ctx->error, rubato_allgather(ctx->comm, &ctx->node, nodes, 1, RUBATO_UINT64),
		       "allgather of nodes");
	state->stride = 1;
	for (uint32_t r = 0; err == RUBATO_OK && r < ctx->rank_count; r++) {
		if (nodes[r] != ctx->node)
			continue;
		if (state->count == 0)
			state->first = r;
		else if (state->count == 1)
			state->stride = r - state->first;
		else if (r - last != state->stride)
			err = tr_fail(ctx->error, RUBATO_ERR_UNSUPPORTED,
				      "hier: the ranks of a node are not evenly spaced: say "
				      "--group");
		last = r;
		state->count++;
	}
	for (uint32_t a = 0; a < ctx->rank_count; a++)
		for (uint32_t b = 0; b < a; b++)
			any = any || nodes[a] == nodes[b];
	if (err == RUBATO_OK && !any && ctx->rank_count > 1)
		err = tr_refuse(ctx->error, "hier: each rank is a node of its own: say --group");
	free(nodes);
	return err;
}

/* What the group has sent since the last time; what it took to make it is not the run's. */
static rubato_status count_bytes(struct tr_rule_state *state, uint64_t *more)
{
	rubato_stats stats = { .size_bytes = sizeof(stats) };

	TR_TRY(tr_check(state->global.ctx->error, rubato_get_stats(state->comm, &stats),
			"get_stats"));
	*more += stats.bytes_sent - state->bytes;
	state->bytes = stats.bytes_sent;
	return RUBATO_OK;
}

static rubato_status open_group(struct tr_rule_state *state)
{
	struct tr_rule_context *ctx = state->global.ctx;
	uint32_t size = state->own->group;
	uint64_t making = 0;

	if (size == 0) {
		TR_TRY(find_node(state));
	} else {
		uint32_t left = ctx->rank_count - ctx->rank / size * size;

		state->first = ctx->rank / size * size;
		state->stride = 1;
		state->count = size < left ? size : left;
	}
	/* Collective, so also by those that are alone. */
	TR_TRY(tr_check(ctx->error,
			rubato_split(ctx->comm, state->count > 1 ? state->first : RUBATO_COLOR_NONE,
				     (int32_t)ctx->rank, &state->comm),
			"split into groups"));
	if (state->comm == NULL)
		return RUBATO_OK;
	if (state->own->averaging.compression != TR_COMPRESSION_F32) {
		TR_TRY(ctx->vectors->make(ctx->vectors, NULL, ctx->parameter_count, "hier",
					  &state->model, ctx->error));
		ctx->vectors->copy(ctx->vectors, state->model, ctx->parameters,
				   ctx->parameter_count);
	}
	TR_TRY(tr_averaging_open(&state->local, ctx, state->comm, &state->own->averaging, 0));
	return count_bytes(state, &making);
}

static rubato_status hier_open(struct tr_rule_state *state, struct tr_rule_context *ctx)
{
	state->own = (const struct hier_options *)ctx->own;
	ctx->counts.period = state->own->k2;
	TR_TRY(tr_global_model_open(&state->global, ctx, &state->own->outer, &state->own->averaging,
				    0, false));
	return open_group(state);
}

static void share_model(struct tr_rule_state *state, uint64_t done)
{
	const struct tr_rule_context *ctx = state->global.ctx;

	state->last = done;
	if (state->model != NULL)
		ctx->vectors->copy(ctx->vectors, state->model, ctx->parameters,
				   ctx->parameter_count);
}

static rubato_status average_group(struct tr_rule_state *state, uint64_t done)
{
	struct tr_rule_context *ctx = state->global.ctx;
	uint64_t before = rubato_now(ctx->comm);

	if (state->local == NULL)
		return RUBATO_OK;
	TR_TRY(tr_averaging_begin(state->local, state->model, NULL));
	TR_TRY(tr_averaging_end(state->local, state->model, NULL));
	ctx->vectors->copy(ctx->vectors, ctx->parameters, tr_averaging_parameters(state->local),
			   ctx->parameter_count);
	tr_averaging_adopt(state->local);
	tr_trace_span(ctx->trace, TR_SPAN_AVERAGE, before, rubato_now(ctx->comm), done);
	tr_ledger_average(ctx->ledger, TR_SCOPE_LOCAL, state->first, state->stride, state->count,
			  done, done - state->last);
	ctx->counts.local_reductions++;
	TR_TRY(count_bytes(state, &ctx->counts.group_bytes));
	share_model(state, done);
	return RUBATO_OK;
}

static rubato_status average_all(struct tr_rule_state *state, uint64_t done, enum tr_move move)
{
	TR_TRY(tr_global_model_average(&state->global, done, move));
	share_model(state, done);
	return RUBATO_OK;
}

static rubato_status hier_step(struct tr_rule_state *state, uint64_t step)
{
	struct tr_rule_context *ctx = state->global.ctx;

	tr_local_step(ctx, step);
	if ((step + 1) % state->own->k2 == 0)
		return average_all(state, step + 1, TR_MOVE_OUTER);
	if ((step + 1) % state->own->k1 == 0)
		return average_group(state, step + 1);
	return RUBATO_OK;
}

static rubato_status hier_finish(struct tr_rule_state *state, uint64_t step_count)
{
	if (step_count != state->global.last)
		TR_TRY(average_all(state, step_count, TR_MOVE_PLAIN));
	state->finished = true;
	return RUBATO_OK;
}

static rubato_status hier_keep(struct tr_rule_state *state, struct tr_archive *archive)
{
	struct tr_rule_context *ctx = state->global.ctx;

	TR_TRY(tr_global_model_keep(&state->global, archive));
	if (state->local == NULL)
		return RUBATO_OK;
	TR_TRY(tr_archive_value(archive, "hier.last", state->last, ctx->error));
	if (state->model != NULL)
		TR_TRY(tr_archive_vector(archive, "hier.model", ctx->vectors, state->model,
					 ctx->parameter_count, ctx->error));
	return tr_averaging_keep(state->local, "hier", archive);
}

const struct tr_rule tr_rule_hier = {
	.name = "hier",
	.options_bytes = sizeof(struct hier_options),
	.state_bytes = sizeof(struct tr_rule_state),
	.groups = groups,
	.judge = hier_judge,
	.open = hier_open,
	.step = hier_step,
	.finish = hier_finish,
	.keep = hier_keep,
	.close = hier_close,
};
