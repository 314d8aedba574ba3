/*
 * judge_adaptive.c -- FIRST COUNT: the table of docs/relaxed.md: time of the adaptive quorum over
 * that of the best fixed one, chosen with hindsight, on seeds FIRST .. FIRST + COUNT - 1.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adaptive_judge.h"

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 10;
	static const uint32_t sizes[] = { 4, 8, 16, 32 };

	printf("| delays | rounds | ranks | time / best, mean | worst seed | k chosen | best k "
	       "|\n");
	printf("|---|---|---|---|---|---|---|\n");
	for (int family = 0; family < JUDGE_FAMILIES; family++)
		for (int form = 0; form < 2; form++)
			for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
				double sum = 0, worst = 0, all = 0, quorums = 0, bests = 0;

				for (uint64_t seed = first; seed < first + count; seed++) {
					struct judge_world world = {
						.family = (enum judge_family)family,
						.free_rounds = form == 1,
						.rank_count = sizes[s],
						.steps = 600,
						.depth = 8,
						.seed = seed,
					};
					struct judge_verdict v = judge(&world);

					sum += v.ratio;
					all += v.all;
					quorums += v.quorum;
					bests += v.best;
					worst = v.ratio > worst ? v.ratio : worst;
				}
				printf("| %s | %s | %u | %.3f | %.3f | %.2f | %.1f | %.1f |\n",
				       judge_family_names[family], form == 1 ? "free" : "aligned",
				       sizes[s], sum / (double)count, worst, all / (double)count,
				       quorums / (double)count, bests / (double)count);
			}
	return 0;
}
