/*
 * averaging.c -- one vector: parameters, statistics, optimizer's states, extras. In float32 one
 * allreduce takes it all; otherwise the parameters have one of their own, over a wire of fewer bits
 * (rubato_set_wire), which feeds back what rounding loses.
 *
 * A float32 sum would round an extra, and of the difference of two nearly equal ones (the spread of
 * models, say) nothing might be left. So it travels as the digits of a fixed-point number, base
 * 256, from 2^56 down to 2^-72, a float each: their sums over up to 4096 ranks are exact.
 */
#include "trainer/rules/averaging.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGIT_COUNT 16
#define DIGIT_BASE 256.0
#define DIGIT_TOP 0x1p56

struct tr_averaging {
	struct tr_rule_context *ctx;
	rubato_comm *comm;
	const struct tr_averaging_options *options;
	uint32_t rank_count, extra_count;
	size_t statistics_count, state_count; /* Floats that are averaged: 0 where they are not. */
	float *vector;
	rubato_op *mean;  /* Of what travels as float32; NULL: nothing does. */
	rubato_op *coded; /* Of the parameters, in fewer bits; NULL: they are in `mean`. */
	double square;    /* Of the way to the mean. */
	bool in_flight;
};

void tr_averaging_close(struct tr_averaging *a)
{
	if (a == NULL)
		return;
	rubato_op_free(a->mean);
	rubato_op_free(a->coded);
	a->ctx->vectors->free(a->ctx->vectors, a->comm, a->vector);
	free(a);
}

static size_t tail_count(const struct tr_averaging *a)
{
	return a->statistics_count + a->state_count;
}

static float *states_of(struct tr_averaging *a)
{
	return a->vector + a->ctx->parameter_count + a->statistics_count;
}

static rubato_status open_coded(struct tr_averaging *a)
{
	static const rubato_wire wires[] = {
		[TR_COMPRESSION_F32] = RUBATO_WIRE_SAME,
		[TR_COMPRESSION_BF16] = RUBATO_WIRE_BFLOAT16,
		[TR_COMPRESSION_INT8] = RUBATO_WIRE_INT8,
	};
	const struct tr_rule_context *ctx = a->ctx;

	TR_TRY(tr_check(ctx->error, rubato_set_wire(a->comm, wires[a->options->compression], true),
			"set_wire"));
	TR_TRY(tr_check(ctx->error,
			rubato_op_allreduce(a->comm, a->vector, a->vector, ctx->parameter_count,
					    RUBATO_FLOAT32, RUBATO_AVG, &a->coded),
			"op_allreduce of rounded models"));
	return tr_check(ctx->error, rubato_set_wire(a->comm, RUBATO_WIRE_SAME, false), "set_wire");
}

static rubato_status open_vector(struct tr_averaging *a)
{
	const struct tr_rule_context *ctx = a->ctx;
	bool whole = a->options->compression == TR_COMPRESSION_F32;
	size_t digits = a->extra_count * DIGIT_COUNT;
	size_t total = ctx->parameter_count + tail_count(a) + digits;
	size_t first = whole ? 0 : ctx->parameter_count;

	TR_TRY(ctx->vectors->make(ctx->vectors, a->comm, total, "alloc for the average of models",
				  &a->vector, ctx->error));
	if (!whole)
		TR_TRY(open_coded(a));
	if (first == total)
		return RUBATO_OK;
	return tr_check(ctx->error,
			rubato_op_allreduce(a->comm, a->vector + first, a->vector + first,
					    total - first, RUBATO_FLOAT32, RUBATO_AVG, &a->mean),
			"op_allreduce of models");
}

rubato_status tr_averaging_open(struct tr_averaging **out, struct tr_rule_context *ctx,
				rubato_comm *comm, const struct tr_averaging_options *options,
				uint32_t extra_count)
{
	struct tr_averaging *a = calloc(1, sizeof(*a));
	rubato_status err;

	if (a == NULL)
		return tr_fail(ctx->error, RUBATO_ERR_MEMORY, "average of models: out of memory");
	a->ctx = ctx;
	a->comm = comm;
	a->options = options;
	a->rank_count = rubato_size(comm);
	a->extra_count = extra_count;
	if (ctx->bn == TR_BN_AVERAGE)
		a->statistics_count = ctx->statistics_count;
	if (options->opt_state == TR_STATE_AVERAGE)
		a->state_count = ctx->optimizer->state_count * ctx->parameter_count;
	err = open_vector(a);
	if (err) {
		tr_averaging_close(a);
		return err;
	}
	*out = a;
	return RUBATO_OK;
}

/* ---- Extras as digits ---- */

static void put_digits(float *digits, double value)
{
	double unit = DIGIT_TOP;

	/* Beyond the range, and NaN, stay what they are for all ranks: not a number. */
	if (!(value >= 0.0 && value < DIGIT_TOP))
		value = NAN;
	for (int i = 0; i < DIGIT_COUNT; i++) {
		unit /= DIGIT_BASE;
		double digit = floor(value / unit);

		digits[i] = (float)digit;
		value -= digit * unit;
	}
}

/* `ranks` times the mean of a digit is a whole number again. */
static double take_digits(const float *digits, uint32_t ranks)
{
	double unit = DIGIT_TOP, sum = 0.0;

	for (int i = 0; i < DIGIT_COUNT; i++) {
		unit /= DIGIT_BASE;
		sum += rint((double)digits[i] * ranks) * unit;
	}
	return sum / ranks;
}

/* ---- The mean ---- */

static void pack(struct tr_averaging *a, const float *reference, const double *extras)
{
	const struct tr_rule_context *ctx = a->ctx;
	const struct tr_vectors *v = ctx->vectors;
	float digits[TR_EXTRAS_MAX * DIGIT_COUNT];

	v->copy(v, a->vector + ctx->parameter_count, ctx->statistics, a->statistics_count);
	for (size_t i = 0; a->state_count > 0 && i < ctx->optimizer->state_count; i++)
		v->copy(v, states_of(a) + i * ctx->parameter_count, ctx->optimizer->states[i],
			ctx->parameter_count);
	if (reference == NULL)
		v->copy(v, a->vector, ctx->parameters, ctx->parameter_count);
	else
		v->subtract(v, a->vector, ctx->parameters, reference, ctx->parameter_count);
	for (uint32_t e = 0; e < a->extra_count; e++)
		put_digits(digits + e * DIGIT_COUNT, extras[e]);
	v->put(v, states_of(a) + a->state_count, digits, a->extra_count * DIGIT_COUNT);
}

rubato_status tr_averaging_begin(struct tr_averaging *a, const float *reference,
				 const double *extras)
{
	struct tr_rule_context *ctx = a->ctx;
	uint64_t before = rubato_now(ctx->comm);

	pack(a, reference, extras);
	a->in_flight = true;
	if (a->mean != NULL)
		TR_TRY(ctx->vectors->start(ctx->vectors, a->mean, "start of the average",
					   ctx->error));
	if (a->coded != NULL)
		TR_TRY(ctx->vectors->start(ctx->vectors, a->coded, "start of the average",
					   ctx->error));
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before;
	return RUBATO_OK;
}

/* The way becomes where it leads. */
static void arrive(struct tr_averaging *a, const float *reference)
{
	const struct tr_vectors *v = a->ctx->vectors;

	a->square = v->square(v, a->vector, a->ctx->parameter_count);
	v->add(v, a->vector, reference, a->ctx->parameter_count);
}

rubato_status tr_averaging_end(struct tr_averaging *a, const float *reference, double *extras)
{
	struct tr_rule_context *ctx = a->ctx;
	uint64_t before = rubato_now(ctx->comm);
	float digits[TR_EXTRAS_MAX * DIGIT_COUNT];

	if (a->mean != NULL)
		TR_TRY(tr_check(ctx->error, rubato_wait(a->mean, RUBATO_TIMEOUT_DEFAULT),
				"average of models"));
	if (a->coded != NULL)
		TR_TRY(tr_check(ctx->error, rubato_wait(a->coded, RUBATO_TIMEOUT_DEFAULT),
				"average of rounded models"));
	ctx->vectors->get(ctx->vectors, digits, states_of(a) + a->state_count,
			  a->extra_count * DIGIT_COUNT);
	for (uint32_t e = 0; e < a->extra_count; e++)
		extras[e] = take_digits(digits + e * DIGIT_COUNT, a->rank_count);
	a->in_flight = false;
	ctx->counts.communication_ns += rubato_now(ctx->comm) - before;
	if (reference != NULL)
		arrive(a, reference);
	return RUBATO_OK;
}

double tr_averaging_square(const struct tr_averaging *a)
{
	return a->square;
}

float *tr_averaging_parameters(struct tr_averaging *a)
{
	return a->vector;
}

float *tr_averaging_statistics(struct tr_averaging *a)
{
	return a->statistics_count > 0 ? a->vector + a->ctx->parameter_count : NULL;
}

bool tr_averaging_in_flight(const struct tr_averaging *a)
{
	return a->in_flight;
}

void tr_averaging_adopt(struct tr_averaging *a)
{
	struct tr_rule_context *ctx = a->ctx;

	const struct tr_vectors *v = ctx->vectors;

	if (a->statistics_count > 0)
		v->copy(v, ctx->statistics, tr_averaging_statistics(a), a->statistics_count);
	for (size_t i = 0; a->state_count > 0 && i < ctx->optimizer->state_count; i++)
		v->copy(v, ctx->optimizer->states[i], states_of(a) + i * ctx->parameter_count,
			ctx->parameter_count);
	if (a->options->opt_state == TR_STATE_RESET)
		tr_optimizer_reset(ctx->optimizer);
}

rubato_status tr_averaging_keep(struct tr_averaging *a, const char *name,
				struct tr_archive *archive)
{
	struct tr_error *error = a->ctx->error;
	float *residual;
	uint64_t count;
	char piece[64];

	/* Else nothing outlives an average: one rank alone rounds nothing. */
	if (a->coded == NULL || a->rank_count == 1)
		return RUBATO_OK;
	TR_TRY(tr_check(error, rubato_op_residual(a->coded, &residual, &count),
			"residual of the average"));
	snprintf(piece, sizeof(piece), "%s.residual", name);
	return tr_archive_vector(archive, piece, a->ctx->vectors, residual, count, error);
}

rubato_status tr_averaging_keep_mean(struct tr_averaging *a, struct tr_archive *archive)
{
	return tr_archive_vector(archive, "averaging.mean", a->ctx->vectors, a->vector,
				 a->ctx->parameter_count + a->statistics_count, a->ctx->error);
}
