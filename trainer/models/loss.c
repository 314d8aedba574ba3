/* loss.c -- the two losses and their slopes at the outputs; the same for every host backend. */
#include <math.h>

#include "trainer/models/compute.h"

/* Softmax cross-entropy of one row: loss = log(sum exp(o - max)) - (o[label] - max). */
static double cross_entropy(const float *o, uint32_t count, int32_t label, float scale,
			    float *slope, bool *correct)
{
	uint32_t best = 0;
	double sum = 0.0;

	for (uint32_t k = 1; k < count; k++)
		if (o[k] > o[best])
			best = k;
	for (uint32_t k = 0; k < count; k++)
		sum += (double)expf(o[k] - o[best]);
	*correct = best == (uint32_t)label;
	if (slope != NULL) {
		float inverse = (float)(1.0 / sum);
		for (uint32_t k = 0; k < count; k++)
			slope[k] = scale * expf(o[k] - o[best]) * inverse;
		slope[label] -= scale;
	}
	return log(sum) - (double)(o[label] - o[best]);
}

static double half_square(const float *o, uint32_t count, const float *target, float scale,
			  float *slope)
{
	double sum = 0.0;

	for (uint32_t k = 0; k < count; k++) {
		float difference = o[k] - target[k];

		sum += (double)difference * (double)difference;
		if (slope != NULL)
			slope[k] = scale * difference;
	}
	return 0.5 * sum;
}

void tr_loss_score(const struct tr_model *model, const float *outputs, struct tr_answers answers,
		   uint32_t rows, float *slope, struct tr_score *score)
{
	uint32_t count = model->output_count;
	float scale = 1.0f / (float)rows;

	for (uint32_t row = 0; row < rows; row++) {
		const float *o = outputs + (size_t)row * count;
		float *s = slope == NULL ? NULL : slope + (size_t)row * count;
		bool correct = false;

		switch (model->loss) {
		case TR_CROSS_ENTROPY:
			score->loss +=
				cross_entropy(o, count, answers.labels[row], scale, s, &correct);
			break;
		case TR_HALF_SQUARE:
			score->loss += half_square(o, count, answers.targets + (size_t)row * count,
						   scale, s);
			break;
		}
		score->correct += correct ? 1 : 0;
	}
	score->rows += rows;
}
