/*
 * trace.c -- a ring of spans; in the end the ranks send it piece by piece, all at the same pace,
 * and rank 0 writes what comes as it comes: nobody ever holds more than one piece of each rank.
 *
 * The file is in the Trace Event Format: a process is a rank, a thread one kind of span.
 */
#include "trainer/records/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/replace.h"
#include "trainer/base/agree.h"

#define PIECE 256 /* Spans: 8 KiB of each rank at a time. */

struct span {
	uint64_t begin_ns, end_ns, value;
	uint64_t kind;
};
#define SPAN_WORDS (sizeof(struct span) / sizeof(uint64_t))

struct tr_trace {
	struct span *ring; /* NULL: not wanted. */
	uint64_t count;    /* Of all time; the ring has the last TR_TRACE_MAX. */
};

static const char *const names[TR_SPAN_COUNT] = {
	[TR_SPAN_COMPUTE] = "compute",     [TR_SPAN_COMMUNICATION] = "communication",
	[TR_SPAN_DELAY] = "delay",         [TR_SPAN_PAUSE] = "pause",
	[TR_SPAN_UPDATE] = "update",       [TR_SPAN_AVERAGE] = "average",
	[TR_SPAN_REDUCTION] = "reduction",
};

rubato_status tr_trace_open(struct tr_trace **out, bool wanted, struct tr_error *error)
{
	struct tr_trace *trace = calloc(1, sizeof(*trace));

	if (trace != NULL && wanted)
		trace->ring = calloc(TR_TRACE_MAX, sizeof(*trace->ring));
	if (trace == NULL || (wanted && trace->ring == NULL)) {
		free(trace);
		return tr_fail(error, RUBATO_ERR_MEMORY, "trace: out of memory");
	}
	*out = trace;
	return RUBATO_OK;
}

void tr_trace_close(struct tr_trace *trace)
{
	if (trace == NULL)
		return;
	free(trace->ring);
	free(trace);
}

void tr_trace_span(struct tr_trace *trace, enum tr_span span, uint64_t begin_ns, uint64_t end_ns,
		   uint64_t value)
{
	if (trace->ring == NULL)
		return;
	trace->ring[trace->count++ % TR_TRACE_MAX] =
		(struct span) { begin_ns, end_ns, value, (uint64_t)span };
}

/* ---- Writing ---- */

struct writer { /* Rank 0's. */
	struct replacement to;
	const char *comma; /* Before the next event. */
	rubato_status err; /* The first; from then on nothing is written. */
};

static void open_writer(struct writer *w, const char *folder, struct tr_error *error)
{
	char path[TR_PATH_BYTES];

	w->err = tr_path(path, error, "%s/trace.json", folder);
	if (w->err)
		return;
	if (!replacement_open(&w->to, path)) {
		w->err = tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", path, strerror(errno));
		return;
	}
	fprintf(w->to.file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
	w->comma = "\n";
}

/* What a viewer shows beside the rows; `lost`: spans that fell out of the rank's ring. */
static void write_names(struct writer *w, uint32_t rank, uint64_t lost)
{
	if (w->err)
		return;
	fprintf(w->to.file,
		"%s{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"rank "
		"%u\"}},\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_sort_index\",\"args\":"
		"{\"sort_index\":%u}}",
		w->comma, rank, rank, rank, rank);
	w->comma = ",\n";
	for (int i = 0; i < TR_SPAN_COUNT; i++)
		fprintf(w->to.file,
			",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
			"{\"name\":\"%s\"}}",
			rank, i, names[i]);
	if (lost > 0)
		fprintf(w->to.file,
			",\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_labels\",\"args\":"
			"{\"labels\":\"the first %llu spans are left out\"}}",
			rank, (unsigned long long)lost);
}

static void write_span(struct writer *w, uint32_t rank, const struct span *s)
{
	const bool of_round = s->kind == TR_SPAN_UPDATE || s->kind == TR_SPAN_REDUCTION;
	const char *value = of_round ? "round" : "step";
	uint64_t kind = s->kind < TR_SPAN_COUNT ? s->kind : TR_SPAN_PAUSE;

	if (w->err)
		return;
	fprintf(w->to.file, "%s{\"name\":\"%s\",\"pid\":%u,\"tid\":%llu,\"ts\":%.3f,", w->comma,
		names[kind], rank, (unsigned long long)kind, (double)s->begin_ns * 1e-3);
	if (s->end_ns > s->begin_ns && kind != TR_SPAN_UPDATE)
		fprintf(w->to.file, "\"ph\":\"X\",\"dur\":%.3f,",
			(double)(s->end_ns - s->begin_ns) * 1e-3);
	else
		fprintf(w->to.file, "\"ph\":\"i\",\"s\":\"t\",");
	fprintf(w->to.file, "\"args\":{\"%s\":%llu}}", value, (unsigned long long)s->value);
}

static void close_writer(struct writer *w, struct tr_error *error)
{
	int reason;

	if (w->to.file == NULL)
		return;
	fprintf(w->to.file, "\n]}\n");
	reason = replacement_close(&w->to, w->err == RUBATO_OK);
	if (w->err == RUBATO_OK && reason != 0)
		w->err = tr_fail(error, RUBATO_ERR_SYSTEM, "%s: %s", w->to.path, strerror(reason));
}

/* Piece `k` of the ring, oldest first, its times counted from the start; the rest is zeros. */
static void fill_piece(const struct tr_trace *trace, uint64_t k, uint64_t start_ns,
		       struct span *piece)
{
	uint64_t held = trace->count < TR_TRACE_MAX ? trace->count : TR_TRACE_MAX;

	memset(piece, 0, PIECE * sizeof(*piece));
	for (uint64_t i = 0; i < PIECE && trace->ring != NULL && k * PIECE + i < held; i++) {
		uint64_t at = trace->count - held + k * PIECE + i;
		struct span s = trace->ring[at % TR_TRACE_MAX];

		s.begin_ns = s.begin_ns > start_ns ? s.begin_ns - start_ns : 0;
		s.end_ns = s.end_ns > start_ns ? s.end_ns - start_ns : 0;
		piece[i] = s;
	}
}

static rubato_status write_pieces(struct tr_trace *trace, rubato_comm *comm, uint64_t start_ns,
				  const uint64_t *counts, struct span *pieces, struct writer *w,
				  struct tr_error *error)
{
	uint32_t rank = rubato_rank(comm), rank_count = rubato_size(comm);
	uint64_t held, most = 0;

	for (uint32_t r = 0; r < rank_count; r++)
		most = counts[r] > most ? counts[r] : most;
	most = most < TR_TRACE_MAX ? most : TR_TRACE_MAX;
	for (uint64_t k = 0; k * PIECE < most; k++) {
		fill_piece(trace, k, start_ns, pieces);
		TR_TRY(tr_check(
			error,
			rubato_gather(comm, pieces, pieces, PIECE * SPAN_WORDS, RUBATO_UINT64, 0),
			"gather of the trace"));
		for (uint32_t r = 0; rank == 0 && r < rank_count; r++) {
			held = counts[r] < TR_TRACE_MAX ? counts[r] : TR_TRACE_MAX;
			for (uint64_t i = 0; i < PIECE && k * PIECE + i < held; i++)
				write_span(w, r, &pieces[r * PIECE + i]);
		}
	}
	return RUBATO_OK;
}

rubato_status tr_trace_write(struct tr_trace *trace, rubato_comm *comm, const char *folder,
			     uint64_t start_ns, struct tr_error *error)
{
	uint32_t rank = rubato_rank(comm), rank_count = rubato_size(comm);
	uint64_t *counts;
	struct span *pieces;
	struct writer *w;
	rubato_status err = RUBATO_OK;

	if (trace->ring == NULL)
		return RUBATO_OK;
	counts = calloc(rank_count, sizeof(*counts));
	pieces = calloc((size_t)(rank == 0 ? rank_count : 1) * PIECE, sizeof(*pieces));
	w = calloc(1, sizeof(*w));
	if (counts == NULL || pieces == NULL || w == NULL)
		err = tr_fail(error, RUBATO_ERR_MEMORY, "trace: no memory to write it");
	err = tr_agree(comm, err, error);
	if (err)
		goto out;
	err = tr_check(error, rubato_allgather(comm, &trace->count, counts, 1, RUBATO_UINT64),
		       "allgather of the trace's length");
	if (err)
		goto out;
	if (rank == 0)
		open_writer(w, folder, error);
	for (uint32_t r = 0; rank == 0 && r < rank_count; r++)
		write_names(w, r, counts[r] > TR_TRACE_MAX ? counts[r] - TR_TRACE_MAX : 0);
	err = write_pieces(trace, comm, start_ns, counts, pieces, w, error);
	if (err && !w->err)
		w->err = err;
	close_writer(w, error);
	if (err == RUBATO_OK)
		err = tr_agree(comm, w->err, error);
out:
	free(w);
	free(pieces);
	free(counts);
	return err;
}
