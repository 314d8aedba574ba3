/*
 * ledger_write.c -- the ranks' records, one after the other, become the lines of ledger.jsonl.
 *
 * What several ranks recorded alike is one line: the same round with the same divisor, rate and
 * shares; the same average. So rank 0 holds each line once, however many ranks there are. Lines
 * that should be equal and are not stay two: a reader sees it.
 *
 * First come the draws, by place; then updates by round, and each average after the newest round
 * that one of its ranks had applied before.
 */
#include "trainer/records/ledger_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "programs/ledger.h"
#include "trainer/base/agree.h"

#define PIECE_WORDS 65536 /* Of a message. */
#define TAG 0x1ed6

struct line {
	/* Of an update round + 1 and 0; of an average newest round + 1, 1, step; a draw's place. */
	uint64_t order[3];
	uint64_t *entry;   /* A copy. */
	uint64_t *applied; /* Pairs of rank and step: who applied it, or drew. */
	uint32_t applied_count;
	uint32_t next; /* With the same hash; 0: none. */
};

struct book {               /* On rank 0. */
	struct line *lines; /* Number 0 is unused. */
	uint32_t line_count, line_room;
	uint32_t *heads; /* [head_count] */
	uint32_t head_count;
};

/* ---- Collecting lines ---- */

static size_t entry_words(const uint64_t *entry)
{
	switch ((enum tr_entry)entry[0]) {
	case TR_ENTRY_UPDATE:
		return 6 + 3 * (size_t)entry[5];
	case TR_ENTRY_DRAW:
		return 4;
	case TR_ENTRY_AVERAGE:
		return 7;
	}
	return SIZE_MAX;
}

/* All that makes two records one line: all but the step after which an update was applied. */
static uint64_t hash_of(const uint64_t *entry)
{
	uint64_t hash = TR_HASH_INIT;

	if (entry[0] != TR_ENTRY_UPDATE)
		return tr_hash(hash, entry, entry_words(entry) * sizeof(*entry));
	hash = tr_hash(hash, entry, 4 * sizeof(*entry));
	return tr_hash(hash, entry + 5, (entry_words(entry) - 5) * sizeof(*entry));
}

static bool same(const uint64_t *a, const uint64_t *b)
{
	if (a[0] != b[0] || entry_words(a) != entry_words(b))
		return false;
	if (a[0] != TR_ENTRY_UPDATE)
		return memcmp(a, b, entry_words(a) * sizeof(*a)) == 0;
	return memcmp(a, b, 4 * sizeof(*a)) == 0 &&
	       memcmp(a + 5, b + 5, (entry_words(a) - 5) * sizeof(*a)) == 0;
}

static bool rehash(struct book *book)
{
	uint32_t count = book->head_count == 0 ? 1024 : 2 * book->head_count;
	uint32_t *heads = calloc(count, sizeof(*heads));

	if (heads == NULL)
		return false;
	free(book->heads);
	book->heads = heads;
	book->head_count = count;
	for (uint32_t i = 1; i < book->line_count; i++) {
		uint32_t *head = &heads[hash_of(book->lines[i].entry) & (count - 1)];

		book->lines[i].next = *head;
		*head = i;
	}
	return true;
}

static bool grow(struct book *book)
{
	struct line *more;

	if (book->line_count == book->line_room) {
		book->line_room = book->line_room == 0 ? 1024 : 2 * book->line_room;
		more = realloc(book->lines, book->line_room * sizeof(*more));
		if (more == NULL)
			return false;
		book->lines = more;
		if (book->line_count == 0)
			book->line_count = 1;
	}
	return book->line_count < book->head_count || rehash(book);
}

/* NULL: no memory. */
static struct line *line_of(struct book *book, const uint64_t *entry)
{
	struct line *line;
	uint32_t *head;

	if (!grow(book))
		return NULL;
	head = &book->heads[hash_of(entry) & (book->head_count - 1)];
	for (uint32_t i = *head; i != 0; i = book->lines[i].next)
		if (same(book->lines[i].entry, entry))
			return &book->lines[i];
	line = &book->lines[book->line_count];
	*line = (struct line) { .entry = malloc(entry_words(entry) * sizeof(*entry)),
				.next = *head };
	if (line->entry == NULL)
		return NULL;
	memcpy(line->entry, entry, entry_words(entry) * sizeof(*entry));
	*head = book->line_count++;
	return line;
}

static bool add_applied(struct line *line, uint32_t rank, uint64_t step)
{
	uint32_t count = line->applied_count;
	uint64_t *more;

	if ((count & (count - 1)) == 0) { /* A power of two, or none. */
		more = realloc(line->applied,
			       2 * (count == 0 ? 1 : 2 * (size_t)count) * sizeof(*more));
		if (more == NULL)
			return false;
		line->applied = more;
	}
	line->applied[2 * count] = rank;
	line->applied[2 * count + 1] = step;
	line->applied_count++;
	return true;
}

static bool add_entry(struct book *book, uint32_t rank, const uint64_t *entry, uint64_t *rounds)
{
	struct line *line;

	line = line_of(book, entry);
	if (line == NULL)
		return false;
	if (entry[0] == TR_ENTRY_DRAW) {
		line->order[2] = entry[2];
		return add_applied(line, rank, entry[1]);
	}
	if (entry[0] == TR_ENTRY_UPDATE) {
		*rounds = entry[1] + 1;
		line->order[0] = *rounds;
		return add_applied(line, rank, entry[4]);
	}
	if (line->order[0] < *rounds)
		line->order[0] = *rounds;
	line->order[1] = 1;
	line->order[2] = entry[5];
	return true;
}

static bool add_rank(struct book *book, uint32_t rank, const uint64_t *words, size_t word_count)
{
	uint64_t rounds = 0; /* The newest that the rank has applied, + 1. */

	for (size_t at = 0; at < word_count; at += entry_words(words + at))
		if (!add_entry(book, rank, words + at, &rounds))
			return false;
	return true;
}

/* ---- Lines in their order ---- */

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_lines(const void *a, const void *b)
{
	const struct line *one = a, *other = b;
	int order = 0;

	for (int i = 0; i < 3 && order == 0; i++)
		order = compare(one->order[i], other->order[i]);
	/* Several averages of a step: of groups, by their first rank, then of all. Several updates
	 * of a round: by who applied them. */
	for (int i = 1; i < 3 && order == 0 && one->entry[0] == TR_ENTRY_AVERAGE; i++)
		order = i == 1 ? compare(other->entry[1], one->entry[1])
			       : compare(one->entry[2], other->entry[2]);
	if (order == 0 && one->applied_count > 0 && other->applied_count > 0)
		order = compare(one->applied[0], other->applied[0]);
	return order;
}

static double real(uint64_t word)
{
	double value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

static void write_update(struct ledger *file, uint64_t number, const struct line *line)
{
	const uint64_t *e = line->entry;

	ledger_update(file, &(struct ledger_update) { .update = number,
						      .round = e[1],
						      .denominator = real(e[2]),
						      .rate = real(e[3]),
						      .contributions = e + 6,
						      .contribution_count = e[5],
						      .applied = line->applied,
						      .applied_count = line->applied_count });
}

static void write_average(struct ledger *file, uint64_t number, const struct line *line)
{
	const uint64_t *e = line->entry;

	ledger_average(file, number, e[1] == TR_SCOPE_GLOBAL ? "global" : "local", e[2], e[3], e[4],
		       e[5], e[6]);
}

static void write_draw(struct ledger *file, const struct line *line)
{
	for (uint32_t i = 0; i < line->applied_count; i++)
		ledger_draw(file, line->applied[2 * i], line->applied[2 * i + 1], line->entry[2],
			    line->entry[3]);
}

static void write_lines(struct book *book, struct ledger *file)
{
	uint64_t number = 0;

	if (book->line_count > 1)
		qsort(book->lines + 1, book->line_count - 1, sizeof(*book->lines), compare_lines);
	for (uint32_t i = 1; i < book->line_count; i++)
		if (book->lines[i].entry[0] == TR_ENTRY_DRAW)
			write_draw(file, &book->lines[i]);
		else if (book->lines[i].entry[0] == TR_ENTRY_UPDATE)
			write_update(file, number++, &book->lines[i]);
		else
			write_average(file, number++, &book->lines[i]);
}

static rubato_status write_book(struct book *book, const char *folder, struct tr_error *error)
{
	char path[TR_PATH_BYTES];
	struct ledger *file;
	int reason;

	TR_TRY(tr_path(path, error, "%s/ledger.jsonl", folder));
	file = ledger_open(path);
	if (file == NULL)
		return tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
	write_lines(book, file);
	reason = ledger_close(file, true);
	return reason == 0 ? RUBATO_OK
			   : tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(reason));
}

/* ---- Bringing the records together ---- */

static rubato_status send_words(const struct tr_ledger *ledger, rubato_comm *comm,
				struct tr_error *error)
{
	for (size_t at = 0; at < ledger->count; at += PIECE_WORDS) {
		size_t left = ledger->count - at;

		TR_TRY(tr_check(error,
				rubato_send(comm, ledger->words + at,
					    left < PIECE_WORDS ? left : PIECE_WORDS, RUBATO_UINT64,
					    0, TAG),
				"ledger: send"));
	}
	return RUBATO_OK;
}

static rubato_status receive_words(uint64_t *words, uint64_t count, uint32_t rank,
				   rubato_comm *comm, struct tr_error *error)
{
	for (uint64_t at = 0; at < count; at += PIECE_WORDS) {
		uint64_t left = count - at;

		TR_TRY(tr_check(error,
				rubato_recv(comm, words + at,
					    left < PIECE_WORDS ? left : PIECE_WORDS, RUBATO_UINT64,
					    rank, TAG),
				"ledger: receive"));
	}
	return RUBATO_OK;
}

static void close_book(struct book *book)
{
	for (uint32_t i = 1; i < book->line_count; i++) {
		free(book->lines[i].entry);
		free(book->lines[i].applied);
	}
	free(book->lines);
	free(book->heads);
}

static rubato_status fill_book(struct book *book, const struct tr_ledger *ledger,
			       const uint64_t *counts, rubato_comm *comm, struct tr_error *error)
{
	rubato_status err = RUBATO_OK;
	bool whole = add_rank(book, 0, ledger->words, ledger->count);

	for (uint32_t rank = 1; whole && err == RUBATO_OK && rank < ledger->rank_count; rank++) {
		uint64_t *words = malloc((counts[rank] + 1) * sizeof(*words));

		whole = words != NULL;
		if (whole)
			err = receive_words(words, counts[rank], rank, comm, error);
		if (whole && err == RUBATO_OK)
			whole = add_rank(book, rank, words, counts[rank]);
		free(words);
	}
	return whole ? err : tr_fail(error, RUBATO_ERR_MEMORY, "ledger: out of memory");
}

/* Rank 0. An error before all have sent leaves them waiting: the run is over. */
static rubato_status collect(struct tr_ledger *ledger, rubato_comm *comm, const uint64_t *counts,
			     const char *folder, struct tr_error *error)
{
	struct book book = { 0 };
	rubato_status err = fill_book(&book, ledger, counts, comm, error);

	if (err == RUBATO_OK)
		err = tr_agree(comm, write_book(&book, folder, error), error);
	close_book(&book);
	return err;
}

rubato_status tr_ledger_write(struct tr_ledger *ledger, rubato_comm *comm, const char *folder,
			      struct tr_error *error)
{
	uint64_t count = ledger->count, *counts;
	rubato_status err = RUBATO_OK;

	if (!ledger->wanted)
		return RUBATO_OK;
	counts = calloc(ledger->rank_count, sizeof(*counts));
	if (ledger->lost || counts == NULL)
		err = tr_fail(error, RUBATO_ERR_MEMORY, "ledger: out of memory");
	err = tr_agree(comm, err, error);
	if (err == RUBATO_OK)
		err = tr_check(error, rubato_gather(comm, &count, counts, 1, RUBATO_UINT64, 0),
			       "ledger: gather");
	if (err == RUBATO_OK && ledger->rank == 0)
		err = collect(ledger, comm, counts, folder, error);
	else if (err == RUBATO_OK)
		err = send_words(ledger, comm, error);
	free(counts);
	if (err == RUBATO_OK && ledger->rank != 0)
		err = tr_agree(comm, RUBATO_OK, error);
	return err;
}
