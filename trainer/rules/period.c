/* period.c -- see period.h. AdaComm's interval is counted in steps, not seconds, so that all ranks
 * end it together. */
#include "trainer/rules/period.h"

#include <math.h>

void tr_period_open(struct tr_period *period, const struct tr_period_options *options,
		    uint64_t step_count)
{
	uint64_t share = options->schedule == TR_SCHEDULE_ADACOMM ? 16 : 4;

	*period = (struct tr_period) { .options = options, .steps = options->first };
	period->sample_steps = options->adapt_sample_steps;
	if (options->adapt_sample_steps == UINT64_MAX)
		period->sample_steps = step_count / share;
	if (options->schedule == TR_SCHEDULE_ADACOMM && period->sample_steps == 0)
		period->sample_steps = 1;
}

bool tr_period_full(const struct tr_period *period, uint64_t step)
{
	return period->options->schedule == TR_SCHEDULE_POST_LOCAL && step < period->sample_steps;
}

void tr_period_spread(struct tr_period *period, uint64_t step, double spread, double rate)
{
	const struct tr_period_options *options = period->options;
	uint64_t most = options->most == 0 ? UINT64_MAX : options->most;

	if (!(rate > 0.0) || !isfinite(spread)) /* A rate of 0 says nothing about the spread. */
		return;
	if (step < period->sample_steps) {
		period->samples++;
		period->constant += (spread / rate - period->constant) / (double)period->samples;
		return;
	}
	if (!(period->constant > 0.0)) /* No samples: nothing to compare with. */
		return;
	if (spread < options->adapt_low * rate * period->constant && period->steps < most)
		period->steps++;
	else if (spread > options->adapt_high * rate * period->constant && period->steps > 1)
		period->steps--;
}

void tr_period_loss(struct tr_period *period, uint64_t step, double loss)
{
	uint64_t interval = step / period->sample_steps;

	if (!(period->first_loss > 0.0))
		period->first_loss = loss;
	if (period->samples > 0 && interval > period->interval) {
		double mean = period->loss_sum / (double)period->samples;
		double wanted =
			ceil((double)period->options->first * sqrt(mean / period->first_loss));

		if (wanted < (double)period->steps) /* Of what is no number: not so. */
			period->steps = wanted < 1.0 ? 1 : (uint64_t)wanted;
		else if (period->steps > 1)
			period->steps /= 2;
		period->loss_sum = 0.0;
		period->samples = 0;
	}
	if (period->samples == 0)
		period->interval = interval;
	period->loss_sum += loss;
	period->samples++;
}

rubato_status tr_period_keep(struct tr_period *period, struct tr_archive *archive,
			     struct tr_error *error)
{
	TR_TRY(tr_archive_value(archive, "period.sample_steps", period->sample_steps, error));
	TR_TRY(tr_archive_value(archive, "period.steps", period->steps, error));
	TR_TRY(tr_archive_value(archive, "period.samples", period->samples, error));
	TR_TRY(tr_archive_value(archive, "period.constant", period->constant, error));
	TR_TRY(tr_archive_value(archive, "period.loss_sum", period->loss_sum, error));
	TR_TRY(tr_archive_value(archive, "period.first_loss", period->first_loss, error));
	return tr_archive_value(archive, "period.interval", period->interval, error);
}
