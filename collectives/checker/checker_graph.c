/*
 * checker_graph.c -- the graph of events: its edges, a topological order, and what reaches what.
 *
 * Reachability is asked for many pairs at a time: 512 sources travel through the graph as one bit
 * each, in topological order, from the first of them to the last event asked about. Most pairs are
 * near each other: a short search backwards from each event finds them first, all that ask about
 * that event at once.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/checker/checker_inside.h"

/* ---- Edges ---- */

struct edge_sink { /* Two passes over the same edges: count, then fill. */
	struct check_edges *edges;
	bool forward; /* Neighbours are successors, else predecessors. */
	bool fill;
};

static void edge(const struct edge_sink *sink, uint32_t from, uint32_t to)
{
	uint32_t at = sink->forward ? from : to, other = sink->forward ? to : from;

	if (sink->fill)
		sink->edges->list[sink->edges->first[at]++] = other;
	else
		sink->edges->first[at + 1]++;
}

static void emit_deps(const struct checker *k, const struct edge_sink *sink, uint32_t i, uint32_t r,
		      uint32_t s, uint32_t c)
{
	const struct rb_schedule *schedule = k->ranks[r].schedule;
	const struct rb_step *step = &schedule->steps[s];
	uint32_t start = check_at(k, i, r, s, c, CHECK_START);

	for (uint32_t d = 0; d < step->dep_count; d++) {
		const struct rb_dep *dep = &schedule->deps[step->dep + d];
		uint32_t count = check_iterations(k, r, dep->step), needed = count;

		if (dep->lag != RB_DEP_ALL && c < (uint32_t)dep->lag)
			continue;
		if (dep->lag != RB_DEP_ALL && c - (uint32_t)dep->lag + 1 < count)
			needed = c - (uint32_t)dep->lag + 1;
		if (needed > 0)
			edge(sink, check_at(k, i, r, dep->step, needed - 1, CHECK_PREFIX), start);
	}
}

/* What an end of a message waits for at the other one. Of a put: when its bytes are there, its
 * source is read no more. */
static uint32_t other_end(const struct checker *k, uint32_t i, uint32_t r, uint32_t s, uint32_t c)
{
	bool put = k->ranks[r].schedule->steps[s].kind == RB_STEP_PUT;

	return check_at(k, i, r, s, c, put ? CHECK_COMPLETE : CHECK_START);
}

static void emit_step(const struct checker *k, const struct edge_sink *sink, bool strict,
		      uint32_t i, uint32_t r, uint32_t s)
{
	const struct rb_step *step = &k->ranks[r].schedule->steps[s];
	uint32_t count = check_iterations(k, r, s), match = k->ranks[r].match[s];
	bool sends = step->kind == RB_STEP_SEND || step->kind == RB_STEP_PUT ||
		     step->kind == RB_STEP_NOTIFY;

	for (uint32_t c = 0; c < count; c++) {
		uint32_t start = check_at(k, i, r, s, c, CHECK_START);

		edge(sink, check_begin(k, i, r), start);
		emit_deps(k, sink, i, r, s, c);
		edge(sink, start, start + 1);
		edge(sink, start + 1, start + 2);
		if (c > 0)
			edge(sink, start - 1, start + 2);
		if (match != CHECK_NONE && (strict || !sends))
			edge(sink, other_end(k, i, step->peer, match, c), start + 1);
		if (strict && c > 0)
			edge(sink, start - 2, start);
	}
	if (count > 0)
		edge(sink, check_at(k, i, r, s, count - 1, CHECK_PREFIX), check_end(k, i, r));
}

/* `strict`: also what a poor transport and a poor engine would make us wait for. */
static void emit(const struct checker *k, const struct edge_sink *sink, bool strict)
{
	for (uint32_t i = 0; i < k->in->instances; i++)
		for (uint32_t r = 0; r < k->n; r++) {
			if (i > 0)
				edge(sink, check_end(k, i - 1, r), check_begin(k, i, r));
			edge(sink, check_begin(k, i, r), check_end(k, i, r));
			for (uint32_t s = 0; s < k->ranks[r].schedule->step_count; s++)
				emit_step(k, sink, strict, i, r, s);
		}
}

static bool collect(struct checker *k, struct check_edges *edges, bool forward, bool strict)
{
	struct edge_sink sink = { .edges = edges, .forward = forward };

	edges->first = check_alloc(k, (uint64_t)k->event_count + 1, sizeof(uint32_t));
	if (!edges->first)
		return false;
	emit(k, &sink, strict);
	for (uint32_t e = 0; e < k->event_count; e++)
		edges->first[e + 1] += edges->first[e];
	uint32_t total = edges->first[k->event_count];

	edges->list = check_alloc(k, total, sizeof(uint32_t));
	if (!edges->list)
		return false;
	sink.fill = true;
	emit(k, &sink, strict);
	/* Filling moved each `first` to the next one's place. */
	memmove(edges->first + 1, edges->first, k->event_count * sizeof(uint32_t));
	edges->first[0] = 0;
	k->out->edges = total;
	return true;
}

/* ---- Order ---- */

/* Some event of the cycle: go back along events that never come, as often as there are events. */
static bool fail_cycle(struct checker *k, const struct check_edges *after, const uint32_t *missing)
{
	uint32_t *back = check_alloc(k, k->event_count, sizeof(*back)), at = 0;

	if (!back)
		return false;
	for (uint32_t e = 0; e < k->event_count; e++)
		for (uint32_t i = after->first[e]; missing[e] > 0 && i < after->first[e + 1]; i++)
			back[after->list[i]] = e;
	while (missing[at] == 0)
		at++;
	for (uint32_t i = 0; i < k->event_count; i++)
		at = back[at];
	while (check_decode(k, at).step == CHECK_NONE)
		at = back[at];
	struct check_event e = check_decode(k, at);

	return check_fail(k, e.rank, e.step, e.iteration, "waits for itself in a cycle");
}

bool check_progress(struct checker *k)
{
	struct check_edges after = { 0 };
	uint32_t count = 0;

	k->out->events = k->event_count;
	k->order = check_alloc(k, k->event_count, sizeof(uint32_t));
	k->position = check_alloc(k, k->event_count, sizeof(uint32_t));
	uint32_t *missing = check_alloc(k, k->event_count, sizeof(uint32_t));

	if (k->no_memory || !collect(k, &after, true, true))
		return false;
	for (uint32_t i = 0; i < after.first[k->event_count]; i++)
		missing[after.list[i]]++;
	for (uint32_t e = 0; e < k->event_count; e++)
		if (missing[e] == 0)
			k->order[count++] = e;
	for (uint32_t head = 0; head < count; head++) {
		uint32_t e = k->order[head];

		k->position[e] = head;
		for (uint32_t i = after.first[e]; i < after.first[e + 1]; i++)
			if (--missing[after.list[i]] == 0)
				k->order[count++] = after.list[i];
	}
	if (count < k->event_count)
		return fail_cycle(k, &after, missing);
	return collect(k, &k->before, false, false);
}

/* ---- Reachability ---- */

#define WORDS 8
#define SOURCES (64 * WORDS)

struct bits {
	uint64_t word[WORDS];
};

struct search {                  /* Backwards from one event, a bounded number of steps. */
	uint32_t *seen, *wanted; /* The turn in which an event was. */
	uint32_t *stack;
	uint64_t *last, *before; /* The pairs of an event, as lists: number + 1, 0 at the end. */
	uint32_t turn, limit;
};

static bool search_make(struct checker *k, struct search *s, const struct check_pair *pairs,
			uint64_t count)
{
	s->limit = 256 + 16 * k->n;
	s->seen = check_alloc(k, k->event_count, sizeof(*s->seen));
	s->wanted = check_alloc(k, k->event_count, sizeof(*s->wanted));
	s->stack = check_alloc(k, k->event_count, sizeof(*s->stack));
	s->last = check_alloc(k, k->event_count, sizeof(*s->last));
	s->before = check_alloc(k, count, sizeof(*s->before));
	if (k->no_memory)
		return false;
	for (uint64_t i = 0; i < count; i++) {
		s->before[i] = s->last[pairs[i].to];
		s->last[pairs[i].to] = i + 1;
	}
	return true;
}

/* Marks what `to` is wanted from; returns how many events these are, and the first one's place. */
static uint32_t search_begin(const struct checker *k, struct search *s,
			     const struct check_pair *pairs, uint32_t to, uint32_t *first)
{
	uint32_t left = 0;

	*first = k->position[to];
	s->turn++;
	for (uint64_t i = s->last[to]; i > 0; i = s->before[i - 1]) {
		uint32_t from = pairs[i - 1].from;

		left += s->wanted[from] != s->turn && from != to;
		s->wanted[from] = s->turn;
		if (k->position[from] < *first)
			*first = k->position[from];
	}
	s->seen[to] = s->turn;
	return left;
}

static void search_back(const struct checker *k, struct search *s, struct check_pair *pairs,
			uint32_t to)
{
	uint32_t depth = 0, steps = 0, first;
	uint32_t left = search_begin(k, s, pairs, to, &first);

	s->stack[depth++] = to;
	while (depth > 0 && left > 0 && steps < s->limit) {
		uint32_t e = s->stack[--depth];

		for (uint32_t i = k->before.first[e]; i < k->before.first[e + 1]; i++) {
			uint32_t other = k->before.list[i];

			if (s->seen[other] == s->turn || k->position[other] < first)
				continue;
			s->seen[other] = s->turn;
			s->stack[depth++] = other;
			left -= s->wanted[other] == s->turn;
			steps++;
		}
	}
	for (uint64_t i = s->last[to]; i > 0; i = s->before[i - 1])
		pairs[i - 1].ordered = s->seen[pairs[i - 1].from] == s->turn;
}

/* Pairs that the search did not find, by the position of their sources. */
struct far {
	uint32_t from, to; /* Positions. */
	uint64_t pair;
};

static int compare_far(const void *left, const void *right)
{
	const struct far *a = left, *b = right;

	if (a->from != b->from)
		return a->from < b->from ? -1 : 1;
	return a->to < b->to ? -1 : a->to > b->to;
}

/* far[0 .. count - 1] have at most SOURCES different sources. */
static void travel(const struct checker *k, struct check_pair *pairs, const struct far *far,
		   uint64_t count, struct bits *bits)
{
	uint32_t low = far[0].from, high = 0, source = 0;

	for (uint64_t i = 0; i < count; i++)
		if (far[i].to > high)
			high = far[i].to;
	if (high < low)
		return;
	uint32_t next = far[0].from;
	uint64_t at = 0;

	for (uint32_t p = low; p <= high; p++) {
		uint32_t e = k->order[p];
		struct bits sum = { { 0 } };

		for (uint32_t i = k->before.first[e]; i < k->before.first[e + 1]; i++) {
			uint32_t from = k->position[k->before.list[i]];

			for (uint32_t w = 0; from >= low && w < WORDS; w++)
				sum.word[w] |= bits[from - low].word[w];
		}
		if (at < count && p == next) {
			sum.word[source / 64] |= (uint64_t)1 << source % 64;
			source++;
			while (at < count && far[at].from == next)
				at++;
			next = at < count ? far[at].from : next;
		}
		bits[p - low] = sum;
	}
	source = 0;
	for (uint64_t i = 0; i < count; i++) {
		source += i > 0 && far[i].from != far[i - 1].from;
		pairs[far[i].pair].ordered =
			far[i].to >= far[i].from &&
			bits[far[i].to - low].word[source / 64] >> source % 64 & 1;
	}
}

bool check_reach(struct checker *k, struct check_pair *pairs, uint64_t count)
{
	struct search search = { 0 };
	uint64_t far_count = 0;
	struct far *far = check_alloc(k, count, sizeof(*far));

	if (!search_make(k, &search, pairs, count))
		return false;
	for (uint32_t e = 0; e < k->event_count; e++)
		if (check_stopped(k, e))
			return false;
		else if (search.last[e] > 0)
			search_back(k, &search, pairs, e);
	for (uint64_t i = 0; i < count; i++)
		if (!pairs[i].ordered)
			far[far_count++] = (struct far) { k->position[pairs[i].from],
							  k->position[pairs[i].to], i };
	if (far_count == 0)
		return true;
	struct bits *bits = check_alloc(k, k->event_count, sizeof(*bits));

	if (!bits)
		return false;
	qsort(far, far_count, sizeof(*far), compare_far);
	for (uint64_t first = 0; first < far_count;) {
		uint64_t end = first;

		for (uint32_t sources = 0; end < far_count; end++) {
			sources += end == first || far[end].from != far[end - 1].from;
			if (sources > SOURCES)
				break;
		}
		if (check_stopped(k, 0))
			return false;
		travel(k, pairs, far + first, end - first, bits);
		first = end;
	}
	return true;
}

bool check_implied(struct checker *k)
{
	uint32_t r = k->in->implied_rank, s = k->in->implied_step;
	struct rb_dep dep = k->in->implied_dep;

	if (r == RB_NO_SPAN)
		return true;
	uint32_t count = check_iterations(k, r, s), before = check_iterations(k, r, dep.step);
	struct check_pair *pairs =
		check_alloc(k, (uint64_t)count * k->in->instances, sizeof(*pairs));
	uint64_t used = 0;

	for (uint32_t i = 0; pairs && i < k->in->instances; i++)
		for (uint32_t c = 0; c < count; c++) {
			uint32_t last = before, lag = (uint32_t)dep.lag;

			if (dep.lag != RB_DEP_ALL && (c < lag || before == 0))
				continue;
			if (dep.lag != RB_DEP_ALL && c - lag + 1 < before)
				last = c - lag + 1;
			if (last > 0)
				pairs[used++] = (struct check_pair) {
					.from = check_at(k, i, r, dep.step, last - 1, CHECK_PREFIX),
					.to = check_at(k, i, r, s, c, CHECK_START),
				};
		}
	if (!pairs || !check_reach(k, pairs, used))
		return false;
	k->out->implied = true;
	for (uint64_t i = 0; i < used; i++)
		k->out->implied &= pairs[i].ordered;
	return true;
}
