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

/* Room for one more entry; NULL: not recorded. */
static uint64_t *append(struct tr_ledger *ledger, enum tr_entry entry, size_t word_count)
{
	size_t room = ledger->room == 0 ? 1024 : 2 * ledger->room;
	uint64_t *at;

	if (!ledger->wanted || ledger->lost)
		return NULL;
	while (room < ledger->count + 1 + word_count)
		room *= 2;
	if (ledger->count + 1 + word_count > ledger->room) {
		at = realloc(ledger->words, room * sizeof(*at));
		if (at == NULL) {
			ledger->lost = true;
			return NULL;
		}
		ledger->words = at;
		ledger->room = room;
	}
	at = ledger->words + ledger->count;
	ledger->count += 1 + word_count;
	at[0] = entry;
	return at + 1;
}

void tr_ledger_update(struct tr_ledger *ledger, uint64_t round, double denominator, double rate,
		      const struct tr_share *shares, uint32_t share_count, uint64_t next_step)
{
	uint64_t *at = append(ledger, TR_ENTRY_UPDATE, 5 + 3 * (size_t)share_count);

	if (at == NULL)
		return;
	at[0] = round;
	memcpy(&at[1], &denominator, sizeof(denominator));
	memcpy(&at[2], &rate, sizeof(rate));
	at[3] = next_step;
	at[4] = share_count;
	for (uint32_t i = 0; i < share_count; i++) {
		at[5 + 3 * i] = shares[i].rank;
		at[6 + 3 * i] = shares[i].first_step;
		at[7 + 3 * i] = shares[i].last_step;
	}
}

void tr_ledger_draw(struct tr_ledger *ledger, uint64_t step, uint64_t first_row, uint32_t rows)
{
	uint64_t *at = append(ledger, TR_ENTRY_DRAW, 3);

	if (at == NULL)
		return;
	at[0] = step;
	at[1] = first_row;
	at[2] = rows;
}

void tr_ledger_average(struct tr_ledger *ledger, enum tr_scope scope, uint32_t first,
		       uint32_t stride, uint32_t rank_count, uint64_t step, uint64_t period)
{
	uint64_t *at = append(ledger, TR_ENTRY_AVERAGE, 6);

	if (at == NULL)
		return;
	at[0] = scope;
	at[1] = first;
	at[2] = stride;
	at[3] = rank_count;
	at[4] = step;
	at[5] = period;
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
