/* eval_model.c -- see eval_model.h. */
#include "trainer/eval_model.h"

#include <stdlib.h>

rubato_status tr_average_statistics(struct tr_rule_context *ctx)
{
	if (ctx->statistics_count == 0 || ctx->bn == TR_BN_LOCAL)
		return RUBATO_OK;
	return tr_average(ctx, ctx->statistics, ctx->statistics_count, "average of the statistics");
}

static void put(struct tr_rule_context *ctx, const float *model)
{
	const struct tr_vectors *v = ctx->vectors;

	v->put(v, ctx->parameters, model, ctx->parameter_count);
	v->put(v, ctx->statistics, model + ctx->parameter_count, ctx->statistics_count);
}

float *tr_eval_model_keep(const struct tr_rule_context *ctx)
{
	const struct tr_vectors *v = ctx->vectors;
	float *kept = malloc((ctx->parameter_count + ctx->statistics_count) * sizeof(float));

	if (kept == NULL)
		return NULL;
	v->get(v, kept, ctx->parameters, ctx->parameter_count);
	v->get(v, kept + ctx->parameter_count, ctx->statistics, ctx->statistics_count);
	return kept;
}

rubato_status tr_eval_model_begin(struct tr_rule_context *ctx, float **kept)
{
	*kept = NULL;
	if (!ctx->replicas_differ && ctx->statistics_count == 0)
		return RUBATO_OK;
	*kept = tr_eval_model_keep(ctx);
	if (*kept == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "no memory to average the models");
	if (ctx->replicas_differ)
		TR_TRY(tr_average(ctx, ctx->parameters, ctx->parameter_count,
				  "average of the models"));
	return tr_average_statistics(ctx);
}

void tr_eval_model_end(struct tr_rule_context *ctx, float *kept)
{
	if (kept != NULL)
		put(ctx, kept);
	free(kept);
}

rubato_status tr_eval_model_show(struct tr_rule_context *ctx, const struct tr_snapshot *snapshot)
{
	if (ctx->rank == 0)
		put(ctx, snapshot->model);
	TR_TRY(ctx->vectors->wait(ctx->vectors, ctx->error));
	TR_TRY(tr_check(ctx->error,
			rubato_broadcast(ctx->comm, ctx->parameters, ctx->parameter_count,
					 RUBATO_FLOAT32, 0),
			"broadcast of a snapshot"));
	if (ctx->statistics_count == 0)
		return RUBATO_OK;
	return tr_check(ctx->error,
			rubato_broadcast(ctx->comm, ctx->statistics, ctx->statistics_count,
					 RUBATO_FLOAT32, 0),
			"broadcast of a snapshot's statistics");
}
