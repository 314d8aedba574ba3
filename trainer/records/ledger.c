/* ledger.c -- a growing array of words: each entry is its kind and then what its kind says. */
#include "trainer/records/ledger_inside.h"

#include <stdlib.h>
#include <string.h>

rubato_status tr_ledger_open(struct tr_ledger **out, bool wanted, uint32_t rank,
			     uint32_t rank_count, struct tr_error *error)
{
	struct tr_ledger *ledger = calloc(1, sizeof(*ledger));

	if (ledger == NULL)
		return tr_fail(error, RUBATO_ERR_MEMORY, "ledger: out of memory");
	ledger->wanted = wanted;
	ledger->rank = rank;
	ledger->rank_count = rank_count;
	*out = ledger;
	return RUBATO_OK;
}

void tr_ledger_close(struct tr_ledger *ledger)
{
	if (ledger == NULL)
		return;
	free(ledger->words);
	free(ledger);
}

/* False: not recorded. */
static bool append(struct tr_ledger *ledger, const uint64_t *words, size_t count)
{
	size_t room = 1024 + 2 * ledger->room;
	uint64_t *more;

	if (!ledger->wanted || ledger->lost)
		return false;
	if (ledger->count + count > ledger->room) {
		more = realloc(ledger->words, room * sizeof(*more));
		if (more == NULL) {
			ledger->lost = true;
			return false;
		}
		ledger->words = more;
		ledger->room = room;
	}
	memcpy(ledger->words + ledger->count, words, count * sizeof(*words));
	ledger->count += count;
	return true;
}
#define APPEND(ledger, ...)                                                                        \
	append(ledger, (const uint64_t[]) { __VA_ARGS__ },                                         \
	       sizeof((const uint64_t[]) { __VA_ARGS__ }) / sizeof(uint64_t))

static uint64_t bits_of(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

void tr_ledger_update(struct tr_ledger *ledger, uint64_t round, double denominator, double rate,
		      uint64_t next_step)
{
	ledger->update = ledger->count;
	APPEND(ledger, TR_ENTRY_UPDATE, round, bits_of(denominator), bits_of(rate), next_step, 0);
}

void tr_ledger_share(struct tr_ledger *ledger, uint32_t rank, uint64_t first_step,
		     uint64_t last_step)
{
	if (APPEND(ledger, rank, first_step, last_step))
		ledger->words[ledger->update + 5]++;
}

void tr_ledger_step(struct tr_ledger *ledger, uint64_t step, double rate)
{
	tr_ledger_update(ledger, step, ledger->rank_count, rate, step + 1);
	for (uint32_t rank = 0; rank < ledger->rank_count; rank++)
		tr_ledger_share(ledger, rank, step, step);
}

void tr_ledger_draw(struct tr_ledger *ledger, uint64_t step, uint64_t first_row, uint32_t rows)
{
	APPEND(ledger, TR_ENTRY_DRAW, step, first_row, rows);
}

void tr_ledger_average(struct tr_ledger *ledger, enum tr_scope scope, uint32_t first,
		       uint32_t stride, uint32_t rank_count, uint64_t step, uint64_t period)
{
	APPEND(ledger, TR_ENTRY_AVERAGE, scope, first, stride, rank_count, step, period);
}

rubato_status tr_ledger_keep(struct tr_ledger *ledger, struct tr_archive *archive,
			     struct tr_error *error)
{
	uint64_t state[3] = { ledger->count, ledger->lost, ledger->wanted };

	TR_TRY(tr_archive_bytes(archive, "ledger length", state, sizeof(state), error));
	if (tr_archive_loading(archive)) {
		uint64_t *words = malloc((state[0] + 1) * sizeof(*words));

		if (words == NULL)
			return tr_fail(error, RUBATO_ERR_MEMORY, "ledger: out of memory");
		free(ledger->words);
		ledger->words = words;
		ledger->room = state[0] + 1;
		ledger->count = state[0];
		ledger->lost = state[1] != 0;
		if (ledger->wanted && state[2] == 0)
			return tr_fail(error, RUBATO_ERR_ARGUMENT,
				       "--out: the run that is resumed was begun without, so its "
				       "ledger has no beginning");
	}
	return tr_archive_bytes(archive, "ledger", ledger->words, ledger->count * sizeof(uint64_t),
				error);
}
