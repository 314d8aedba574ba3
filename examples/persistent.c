/*
 * persistent.c -- an allreduce that is planned once and started many times, while the rank computes
 * something else. Memory of rubato_alloc can be read by ranks of the same node in place.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rubato.h>

enum { COUNT = 1 << 18, STEPS = 10 };

static void check(rubato_status status)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	exit(1);
}

int main(void)
{
	double other = 0;
	float *in, *out;
	void *memory;
	rubato_comm *comm;
	rubato_op *sum;

	check(rubato_init(&comm, NULL));
	check(rubato_alloc(comm, 2 * COUNT * sizeof(float), &memory));
	in = memory;
	out = in + COUNT;
	check(rubato_op_allreduce(comm, in, out, COUNT, RUBATO_FLOAT32, RUBATO_SUM, &sum));
	for (int step = 0; step < STEPS; step++) {
		for (int i = 0; i < COUNT; i++)
			in[i] = (float)(step + 1);
		check(rubato_start(sum));
		for (int i = 0; i < 100000;
		     i++) /* Meanwhile; `in` and `out` are the operation's. */
			other += i * 1e-9;
		check(rubato_wait(sum, RUBATO_TIMEOUT_DEFAULT));
		if (out[0] != (float)(step + 1) * (float)rubato_size(comm) ||
		    out[COUNT - 1] != out[0])
			return 1;
	}
	if (rubato_rank(comm) == 0)
		(void)printf("%d sums of %d floats, and %.0f of something else\n", STEPS, COUNT,
			     other);
	rubato_op_free(sum);
	check(rubato_free(comm, memory));
	check(rubato_finalize(comm));
	return 0;
}
