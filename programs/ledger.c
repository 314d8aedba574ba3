/* ledger.c -- see ledger.h. */
#include "programs/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "programs/replace.h"

struct ledger {
	struct replacement to;
	int reason; /* Of a line that is missing. */
};

struct ledger *ledger_open(const char *path)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));
	int reason;

	if (ledger == NULL || replacement_open(&ledger->to, path))
		return ledger;
	reason = errno;
	free(ledger);
	errno = reason;
	return NULL;
}

int ledger_close(struct ledger *ledger, bool keep)
{
	int missing = ledger->reason;
	int reason = replacement_close(&ledger->to, keep && missing == 0);

	free(ledger);
	return missing != 0 ? missing : reason;
}

/* ,"name":[[1,2],[3,4]]: `width` numbers each; of width 1 without inner brackets. */
static void lists(FILE *file, const char *name, const uint64_t *words, uint64_t count,
		  uint32_t width)
{
	(void)fprintf(file, ",\"%s\":[", name);
	for (uint64_t i = 0; i < count; i++) {
		(void)fprintf(file, "%s%s", i == 0 ? "" : ",", width == 1 ? "" : "[");
		for (uint32_t k = 0; k < width; k++)
			(void)fprintf(file, "%s%" PRIu64, k == 0 ? "" : ",", words[i * width + k]);
		(void)fputs(width == 1 ? "" : "]", file);
	}
	(void)fputc(']', file);
}

void ledger_update(struct ledger *ledger, const struct ledger_update *u)
{
	FILE *file = ledger->to.file;

	(void)fprintf(file,
		      "{\"update\":%" PRIu64 ",\"round\":%" PRIu64
		      ",\"rate\":%.17g,\"weight_denominator\":%.17g",
		      u->update, u->round, u->rate, u->denominator);
	lists(file, "contributions", u->contributions, u->contribution_count, 3);
	lists(file, "applied", u->applied, u->applied_count, 2);
	(void)fputs("}\n", file);
}

void ledger_average(struct ledger *ledger, uint64_t update, const char *scope, uint64_t first,
		    uint64_t stride, uint64_t rank_count, uint64_t step, uint64_t period)
{
	FILE *file = ledger->to.file;

	(void)fprintf(file,
		      "{\"update\":%" PRIu64 ",\"kind\":\"average\",\"scope\":\"%s\",\"ranks\":[",
		      update, scope);
	for (uint64_t i = 0; i < rank_count; i++)
		(void)fprintf(file, "%s%" PRIu64, i == 0 ? "" : ",", first + i * stride);
	(void)fprintf(file, "],\"step\":%" PRIu64 ",\"period\":%" PRIu64 "}\n", step, period);
}

void ledger_draw(struct ledger *ledger, uint64_t rank, uint64_t step, uint64_t first_row,
		 uint64_t rows)
{
	(void)fprintf(ledger->to.file,
		      "{\"kind\":\"draw\",\"rank\":%" PRIu64 ",\"step\":%" PRIu64
		      ",\"first_row\":%" PRIu64 ",\"rows\":%" PRIu64 "}\n",
		      rank, step, first_row, rows);
}

/* Ranks that are fresh, or members, into `words`; returns how many. */
static uint64_t ranks_of(const rubato_round *round, uint32_t rank_count, bool fresh,
			 uint64_t *words)
{
	uint64_t count = 0;

	for (uint32_t r = 0; r < rank_count; r++)
		if (fresh ? round->ranks[r].fresh : round->ranks[r].member)
			words[count++] = r;
	return count;
}

void ledger_round(struct ledger *ledger, const char *policy, uint64_t update,
		  const rubato_round *round, uint32_t rank_count)
{
	uint64_t *words = calloc(3 * (size_t)rank_count, sizeof(*words)), count = 0;
	FILE *file = ledger->to.file;

	if (words == NULL) {
		ledger->reason = ENOMEM;
		return;
	}
	(void)fprintf(file,
		      "{\"policy\":\"%s\",\"update\":%" PRIu64 ",\"round\":%" PRIu64
		      ",\"weight_denominator\":%.17g,\"discarded\":%" PRIu64,
		      policy, update, round->round, round->divisor, round->discarded);
	for (uint32_t r = 0; r < rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];

		if (c->count == 0)
			continue;
		words[3 * count] = r;
		words[3 * count + 1] = c->first_step;
		words[3 * count + 2] = c->last_step;
		count++;
	}
	lists(file, "contributions", words, count, 3);
	count = ranks_of(round, rank_count, true, words);
	lists(file, "fresh", words, count, 1);
	count = ranks_of(round, rank_count, false, words);
	if (count < rank_count)
		lists(file, "group", words, count, 1);
	(void)fputs("}\n", file);
	free(words);
}
