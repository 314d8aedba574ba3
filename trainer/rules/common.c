/* common.c -- see common.h. */
#include "trainer/rules/common.h"

rubato_status tr_common_open(struct tr_common *common, struct tr_rule_context *ctx,
			     uint32_t extra_count, bool model)
{
	rubato_status err;

	*common = (struct tr_common) { .ctx = ctx };
	ctx->replicas_differ = true;
	ctx->average_statistics = ctx->own->bn == TR_BN_AVERAGE;
	err = tr_outer_open(&common->outer, ctx->own, model || ctx->own->wire != TR_WIRE_F32,
			    ctx->parameters, ctx->parameter_count, ctx->error);
	if (err == RUBATO_OK)
		err = tr_averaging_open(&common->averaging, ctx, ctx->comm, extra_count);
	if (err)
		tr_common_close(common);
	return err;
}

void tr_common_close(struct tr_common *common)
{
	tr_averaging_close(common->averaging);
	common->averaging = NULL;
	tr_outer_close(&common->outer);
}

rubato_status tr_common_mean(struct tr_common *common, uint64_t done, double *extras)
{
	struct tr_rule_context *ctx = common->ctx;
	uint64_t before = rubato_now(ctx->comm);

	TR_TRY(tr_averaging_begin(common->averaging, common->outer.model, extras));
	TR_TRY(tr_averaging_end(common->averaging, common->outer.model, extras));
	tr_trace_span(ctx->trace, TR_SPAN_AVERAGE, before, rubato_now(ctx->comm), done);
	return RUBATO_OK;
}

void tr_common_move(struct tr_common *common, uint64_t done, enum tr_move move)
{
	struct tr_rule_context *ctx = common->ctx;
	const float *mean = tr_averaging_parameters(common->averaging);

	if (move == TR_MOVE_PLAIN)
		tr_outer_adopt(&common->outer, mean, ctx->parameters);
	else
		tr_outer_move(&common->outer, tr_rate_at(ctx->rate, done - 1), mean,
			      ctx->parameters);
	tr_averaging_adopt(common->averaging);
	tr_common_count(common, done);
}

rubato_status tr_common_average(struct tr_common *common, uint64_t done, enum tr_move move)
{
	TR_TRY(tr_common_mean(common, done, NULL));
	tr_common_move(common, done, move);
	return RUBATO_OK;
}

static void count_round(struct tr_rule_context *ctx)
{
	ctx->counts.global_reductions++;
	ctx->counts.rounds++;
	ctx->counts.fresh_sum += ctx->rank_count;
	ctx->counts.contributors_sum += ctx->rank_count;
}

void tr_common_count(struct tr_common *common, uint64_t done)
{
	struct tr_rule_context *ctx = common->ctx;

	tr_ledger_average(ctx->ledger, TR_SCOPE_GLOBAL, 0, 1, ctx->rank_count, done,
			  done - common->last);
	common->last = done;
	count_round(ctx);
}

void tr_common_agree(struct tr_common *common, uint64_t done)
{
	struct tr_rule_context *ctx = common->ctx;

	tr_outer_adopt(&common->outer, ctx->parameters, ctx->parameters);
	common->last = done;
	count_round(ctx);
}

rubato_status tr_common_keep(struct tr_common *common, struct tr_archive *archive)
{
	TR_TRY(tr_archive_bytes(archive, "averaging.last", &common->last, sizeof(common->last),
				common->ctx->error));
	TR_TRY(tr_outer_keep(&common->outer, archive, common->ctx->error));
	return tr_averaging_keep(common->averaging, "averaging", archive);
}
