/*
 * stragglers.c -- averaging that does not wait for the slowest rank: a round of a partial allreduce
 * is complete when half of the ranks have contributed. What comes late is in the next round, and
 * nothing is lost: the sum over all rounds is the sum over all contributions.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rubato.h>

enum { STEPS = 20 };

static void check(rubato_status status)
{
	if (status == RUBATO_OK)
		return;
	(void)fprintf(stderr, "%s\n", rubato_error_text());
	exit(1);
}

int main(void)
{
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_round round = { .size_bytes = sizeof(round) };
	uint32_t without = 0; /* Rounds that some rank was late for. */
	double one = 1, sum = 0, result, all;
	rubato_partial *partial;
	rubato_comm *comm;
	bool collected;

	check(rubato_init(&comm, NULL));
	options.policy = RUBATO_POLICY_QUORUM; /* 0: of half the ranks. */
	check(rubato_partial_create(comm, 1, RUBATO_FLOAT64, RUBATO_SUM, &options, &partial));
	for (uint64_t step = 1; step <= STEPS; step++) {
		/* What stands for computing; the last rank is three times slower. */
		rubato_sleep(comm, rubato_rank(comm) + 1 == rubato_size(comm) ? 6000000 : 2000000);
		check(rubato_partial_contribute(partial, &one, step, 1));
		check(rubato_partial_collect(partial, &result, &collected, &round,
					     RUBATO_TIMEOUT_DEFAULT));
		if (!collected)
			continue;
		sum += result;
		without += round.contributors < rubato_size(comm);
	}
	check(rubato_partial_drain(partial)); /* Nobody contributes any more: the rest. */
	for (;;) {
		check(rubato_partial_collect(partial, &result, &collected, &round,
					     RUBATO_TIMEOUT_DEFAULT));
		if (!collected)
			break;
		sum += result;
	}
	all = STEPS * (double)rubato_size(comm);
	(void)printf(
		"rank %u: %g of %g contributions in %llu rounds, %u of them without somebody\n",
		rubato_rank(comm), sum, all, (unsigned long long)round.round + 1, without);
	check(rubato_partial_free(partial));
	check(rubato_finalize(comm));
	return sum != all;
}
