/* global_model.c -- see global_model.h. */
#include "trainer/rules/global_model.h"

rubato_status tr_global_model_open(struct tr_global_model *global, struct tr_rule_context *ctx,
				   const struct tr_outer_options *outer,
				   const struct tr_averaging_options *averaging,
				   uint32_t extra_count, bool model)
{
	static const struct tr_outer_options none = { .kind = TR_OUTER_NONE };

	*global = (struct tr_global_model) { .ctx = ctx };
	ctx->replicas_differ = true;
	ctx->average_statistics = ctx->bn == TR_BN_AVERAGE;
	TR_TRY(tr_outer_open(&global->outer, ctx->vectors, outer == NULL ? &none : outer,
			     model || averaging->compression != TR_COMPRESSION_F32, ctx->parameters,
			     ctx->parameter_count, ctx->error));
	return tr_averaging_open(&global->averaging, ctx, ctx->comm, averaging, extra_count);
}

void tr_global_model_close(struct tr_global_model *global)
{
	tr_averaging_close(global->averaging);
	tr_outer_close(&global->outer);
}

rubato_status tr_global_model_mean(struct tr_global_model *global, uint64_t done, double *extras)
{
	struct tr_rule_context *ctx = global->ctx;
	uint64_t before = rubato_now(ctx->comm);

	TR_TRY(tr_averaging_begin(global->averaging, global->outer.model, extras));
	TR_TRY(tr_averaging_end(global->averaging, global->outer.model, extras));
	tr_trace_span(ctx->trace, TR_SPAN_AVERAGE, before, rubato_now(ctx->comm), done);
	return RUBATO_OK;
}

void tr_global_model_move(struct tr_global_model *global, uint64_t done, enum tr_move move)
{
	struct tr_rule_context *ctx = global->ctx;
	const float *mean = tr_averaging_parameters(global->averaging);

	if (move == TR_MOVE_PLAIN)
		tr_outer_adopt(&global->outer, mean, ctx->parameters);
	else
		tr_outer_move(&global->outer, tr_rate_at(ctx->rate, done - 1), mean,
			      ctx->parameters);
	tr_averaging_adopt(global->averaging);
	tr_global_model_count(global, done);
}

rubato_status tr_global_model_average(struct tr_global_model *global, uint64_t done,
				      enum tr_move move)
{
	TR_TRY(tr_global_model_mean(global, done, NULL));
	tr_global_model_move(global, done, move);
	return RUBATO_OK;
}

static void count_round(struct tr_rule_context *ctx)
{
	ctx->counts.global_reductions++;
	tr_count_round(ctx, ctx->rank_count, ctx->rank_count);
}

void tr_global_model_count(struct tr_global_model *global, uint64_t done)
{
	struct tr_rule_context *ctx = global->ctx;

	tr_ledger_average(ctx->ledger, TR_SCOPE_GLOBAL, 0, 1, ctx->rank_count, done,
			  done - global->last);
	global->last = done;
	count_round(ctx);
}

void tr_global_model_agree(struct tr_global_model *global, uint64_t done)
{
	struct tr_rule_context *ctx = global->ctx;

	tr_outer_adopt(&global->outer, ctx->parameters, ctx->parameters);
	global->last = done;
	count_round(ctx);
}

rubato_status tr_global_model_keep(struct tr_global_model *global, struct tr_archive *archive)
{
	TR_TRY(tr_archive_value(archive, "averaging.last", global->last, global->ctx->error));
	TR_TRY(tr_outer_keep(&global->outer, archive, global->ctx->error));
	return tr_averaging_keep(global->averaging, "averaging", archive);
}
