/*
 * training.c -- synchronous data-parallel SGD: a line is fitted to points, of which each rank has
 * its own. Every step averages the gradients of all ranks.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rubato.h>

enum { POINTS = 256, STEPS = 400 };

static void check(rubato_status status)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	exit(1);
}

int main(void)
{
	double weights[2] = { 0, 0 }, gradient[2], mean[2], loss = 0;
	double x[POINTS], y[POINTS];
	unsigned seed;
	rubato_comm *comm;

	check(rubato_init(&comm, NULL));
	seed = rubato_rank(comm);
	for (int i = 0; i < POINTS; i++) { /* y = 3 x - 1, and noise. */
		x[i] = rand_r(&seed) / (double)RAND_MAX;
		y[i] = 3 * x[i] - 1 + 0.01 * (rand_r(&seed) / (double)RAND_MAX - 0.5);
	}
	/* All begin alike, whatever rank 0 begins with. */
	check(rubato_broadcast(comm, weights, 2, RUBATO_FLOAT64, 0));
	for (int step = 0; step < STEPS; step++) {
		gradient[0] = gradient[1] = loss = 0;
		for (int i = 0; i < POINTS; i++) {
			double error = weights[0] * x[i] + weights[1] - y[i];

			gradient[0] += 2 * error * x[i] / POINTS;
			gradient[1] += 2 * error / POINTS;
			loss += error * error / POINTS;
		}
		check(rubato_allreduce(comm, gradient, mean, 2, RUBATO_FLOAT64, RUBATO_AVG));
		for (int k = 0; k < 2; k++)
			weights[k] -= 0.5 * mean[k];
	}
	if (rubato_rank(comm) == 0)
		(void)printf("y = %.2f x %+.2f, loss %.6f\n", weights[0], weights[1], loss);
	check(rubato_finalize(comm));
	return 0;
}
