/* ledger.c -- see ledger.h. */
#include "programs/ledger.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct ledger {
	FILE *file;
	char path[PATH_MAX], beside[PATH_MAX + 32];
};

struct ledger *ledger_open(const char *path)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));

	if (ledger == NULL)
		return NULL;
	(void)snprintf(ledger->path, sizeof(ledger->path), "%s", path);
	(void)snprintf(ledger->beside, sizeof(ledger->beside), "%s.%ld.part", path, (long)getpid());
	ledger->file = fopen(ledger->beside, "wxe");
	if (ledger->file != NULL)
		return ledger;
	free(ledger);
	return NULL;
}

static void numbers(FILE *file, const char *name, const rubato_round *round, uint32_t rank_count,
		    bool fresh)
{
	const char *between = "";

	(void)fprintf(file, ",\"%s\":[", name);
	for (uint32_t r = 0; r < rank_count; r++) {
		if (fresh ? !round->ranks[r].fresh : !round->ranks[r].member)
			continue;
		(void)fprintf(file, "%s%" PRIu32, between, r);
		between = ",";
	}
	(void)fputc(']', file);
}

void ledger_round(struct ledger *ledger, const char *policy, uint64_t update,
		  const rubato_round *round, uint32_t rank_count)
{
	const char *between = "";
	FILE *file = ledger->file;
	uint32_t members = 0;

	(void)fprintf(file,
		      "{\"policy\":\"%s\",\"update\":%" PRIu64 ",\"round\":%" PRIu64
		      ",\"weight_denominator\":%.17g,\"discarded\":%" PRIu64 ",\"contributions\":[",
		      policy, update, round->round, round->divisor, round->discarded);
	for (uint32_t r = 0; r < rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];

		members += c->member;
		if (c->count == 0)
			continue;
		(void)fprintf(file, "%s[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]", between, r,
			      c->first_step, c->last_step);
		between = ",";
	}
	(void)fputc(']', file);
	numbers(file, "fresh", round, rank_count, true);
	if (members < rank_count)
		numbers(file, "group", round, rank_count, false);
	(void)fputs("}\n", file);
}

bool ledger_close(struct ledger *ledger, bool keep)
{
	bool good = ferror(ledger->file) == 0;

	good = fclose(ledger->file) == 0 && good;
	if (keep && good)
		good = rename(ledger->beside, ledger->path) == 0;
	if (!keep || !good)
		(void)unlink(ledger->beside);
	free(ledger);
	return good;
}
