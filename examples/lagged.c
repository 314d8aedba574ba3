/*
 * lagged.c -- gradients of step j are applied at step j + 2, while their allreduce runs in the
 * background (LAGA: Hakimi et al., ICDM 2021). The model is one number, which goes to 5.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rubato.h>

enum { LAG = 2, STEPS = 200 };

static void check(rubato_status status)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	exit(1);
}

static double apply(double model, const void *mean)
{
	return mean == NULL ? model : model - 0.1 * *(const double *)mean;
}

int main(void)
{
	double model = 0, gradient;
	rubato_lagged *lagged;
	const void *mean;
	rubato_comm *comm;
	uint64_t weight;

	check(rubato_init(&comm, NULL));
	check(rubato_lagged_create(comm, 1, RUBATO_FLOAT64, RUBATO_AVG, LAG, &lagged));
	for (int step = 0; step < STEPS; step++) {
		gradient = model - 5;
		check(rubato_lagged_accumulate(lagged, &gradient, 1));
		check(rubato_lagged_begin(lagged));
		/* Of two begins ago: NULL in the first two steps. */
		check(rubato_lagged_collect(lagged, &mean, &weight, RUBATO_TIMEOUT_DEFAULT));
		model = apply(model, mean);
	}
	do { /* What is still in flight. */
		check(rubato_lagged_flush(lagged, &mean, &weight, RUBATO_TIMEOUT_DEFAULT));
		model = apply(model, mean);
	} while (mean != NULL);
	if (rubato_rank(comm) == 0)
		(void)printf("%.3f after %d steps, each two steps late\n", model, STEPS);
	check(rubato_lagged_free(lagged));
	check(rubato_finalize(comm));
	return 0;
}
