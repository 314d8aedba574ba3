/*
 * checker_order.c -- every two accesses to the same elements, one of them a write, are ordered.
 *
 * Accesses to one memory are taken in some topological order of their starts. For each interval
 * that no access cuts, it is enough to prove: the last write before each read, every read before
 * the next write, and each write before the next. The rest follows: if all of these hold, any two
 * accesses that conflict are joined by a chain of them.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "collectives/checker/checker_inside.h"

struct access {
	uint32_t space;
	bool write;
	uint64_t lo, hi;
	uint32_t start, end; /* Events between which it happens. */
	uint32_t position;   /* Of `start`. */
};

struct accesses {
	struct access *list;
	uint64_t count, capacity;
};

static void note(struct checker *k, struct accesses *a, struct access access)
{
	if (access.lo == access.hi || k->no_memory)
		return;
	a->list = check_grow(k, a->list, a->count, &a->capacity, sizeof(access));
	access.position = k->position[access.start];
	if (a->list)
		a->list[a->count++] = access;
}

static void note_span(struct checker *k, struct accesses *a, const struct check_event *e,
		      const struct rb_span *span, uint32_t end, bool write)
{
	const struct rb_step *step = &k->ranks[e->rank].schedule->steps[e->step];
	uint64_t length = check_length(k, e->rank, step, e->iteration);
	struct check_place place = check_place(k, e->rank, step, span, e->instance, e->iteration);
	uint32_t start = check_at(k, e->instance, e->rank, e->step, e->iteration, CHECK_START);

	note(k, a,
	     (struct access) { .space = place.space,
			       .write = write,
			       .lo = place.offset,
			       .hi = place.offset + length,
			       .start = start,
			       .end = end });
}

static bool same_place(const struct checker *k, const struct check_event *e,
		       const struct rb_span *from, const struct rb_span *to)
{
	const struct rb_step *step = &k->ranks[e->rank].schedule->steps[e->step];
	struct check_place a = check_place(k, e->rank, step, from, e->instance, e->iteration);
	struct check_place b = check_place(k, e->rank, step, to, e->instance, e->iteration);

	return a.space == b.space && a.offset == b.offset;
}

static void note_iteration(struct checker *k, struct accesses *a, const struct check_event *e)
{
	const struct rb_schedule *s = k->ranks[e->rank].schedule;
	const struct rb_step *step = &s->steps[e->step];
	uint32_t complete =
		check_at(k, e->instance, e->rank, e->step, e->iteration, CHECK_COMPLETE);
	uint32_t match = k->ranks[e->rank].match[e->step];

	/* Skipped by the engine: a copy onto itself. */
	if (step->kind == RB_STEP_COPY && !(step->flags & RB_STEP_FINAL) &&
	    same_place(k, e, &s->spans[step->from], &s->spans[step->to]))
		return;
	for (uint32_t i = 0; i < step->from_count; i++)
		note_span(k, a, e, &s->spans[step->from + i], complete, false);
	if (step->to == RB_NO_SPAN)
		return;
	if (step->kind == RB_STEP_PUT) /* Done when the target knows. */
		complete =
			check_at(k, e->instance, step->peer, match, e->iteration, CHECK_COMPLETE);
	note_span(k, a, e, &s->spans[step->to], complete, true);
}

/* Before, between and after the instances the owner writes both its buffers. */
static void note_owner(struct checker *k, struct accesses *a, uint32_t rank, uint32_t instance)
{
	uint32_t count = k->in->instances;
	uint32_t start = instance == 0 ? check_begin(k, 0, rank) : check_end(k, instance - 1, rank);
	uint32_t end = instance == count ? start : check_begin(k, instance, rank);

	for (uint32_t b = k->in->in_place; b < 2; b++)
		note(k, a,
		     (struct access) { .space = check_space(k, rank, b),
				       .write = true,
				       .hi = check_space_elements(k, check_space(k, rank, b)),
				       .start = start,
				       .end = end });
}

static int compare_accesses(const void *left, const void *right)
{
	const struct access *a = left, *b = right;

	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	if (a->position != b->position)
		return a->position < b->position ? -1 : 1;
	return (int)a->write - (int)b->write; /* Of one iteration: it reads first. */
}

static int compare_u64(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

/* ---- Sweep ---- */

struct reader {
	uint32_t access;
	uint32_t next; /* In sweep.readers. */
};

struct sweep {
	const struct access *list;
	uint64_t *cuts;
	uint64_t cut_count;
	uint32_t *writer, *first_reader; /* Per interval between two cuts. */
	struct reader *readers;
	uint64_t reader_count, reader_capacity;
	struct check_pair *pairs;
	uint64_t pair_count, pair_capacity;
};

static void add_pair(struct checker *k, struct sweep *s, uint32_t first, uint32_t second)
{
	const struct access *a = &s->list[first], *b = &s->list[second];

	if (a->start == b->start || k->no_memory)
		return;
	if (s->pair_count > 0) { /* Many intervals give the same. */
		const struct check_pair *last = &s->pairs[s->pair_count - 1];

		if (last->first == first && last->second == second)
			return;
	}
	s->pairs = check_grow(k, s->pairs, s->pair_count, &s->pair_capacity, sizeof(*s->pairs));
	if (s->pairs)
		s->pairs[s->pair_count++] = (struct check_pair) {
			.from = a->end, .to = b->start, .first = first, .second = second
		};
}

static void visit(struct checker *k, struct sweep *s, uint32_t index, uint64_t cell)
{
	uint32_t writer = s->writer[cell];

	if (!s->list[index].write) {
		if (writer != CHECK_NONE)
			add_pair(k, s, writer, index);
		s->readers = check_grow(k, s->readers, s->reader_count, &s->reader_capacity,
					sizeof(*s->readers));
		if (!s->readers)
			return;
		s->readers[s->reader_count] = (struct reader) { index, s->first_reader[cell] };
		s->first_reader[cell] = (uint32_t)s->reader_count++;
		return;
	}
	for (uint32_t i = s->first_reader[cell]; i != CHECK_NONE; i = s->readers[i].next)
		add_pair(k, s, s->readers[i].access, index);
	if (writer != CHECK_NONE)
		add_pair(k, s, writer, index);
	s->writer[cell] = index;
	s->first_reader[cell] = CHECK_NONE;
}

/* Accesses first .. end - 1 of one memory. */
static void sweep_space(struct checker *k, struct sweep *s, uint64_t first, uint64_t end)
{
	uint64_t unique = 0;

	s->cut_count = 0;
	for (uint64_t i = first; i < end; i++) {
		s->cuts[s->cut_count++] = s->list[i].lo;
		s->cuts[s->cut_count++] = s->list[i].hi;
	}
	qsort(s->cuts, s->cut_count, sizeof(*s->cuts), compare_u64);
	for (uint64_t i = 0; i < s->cut_count; i++)
		if (unique == 0 || s->cuts[i] != s->cuts[unique - 1])
			s->cuts[unique++] = s->cuts[i];
	s->cut_count = unique;
	for (uint64_t i = 0; i < unique; i++)
		s->writer[i] = s->first_reader[i] = CHECK_NONE;
	s->reader_count = 0;
	for (uint64_t i = first; i < end && !k->no_memory; i++) {
		uint64_t low = 0, high = unique;

		while (high - low > 1) {
			uint64_t middle = low + (high - low) / 2;

			if (s->cuts[middle] <= s->list[i].lo)
				low = middle;
			else
				high = middle;
		}
		for (uint64_t cell = low; s->cuts[cell] < s->list[i].hi; cell++)
			visit(k, s, (uint32_t)i, cell);
	}
}

static bool find_pairs(struct checker *k, struct accesses *a, struct sweep *s)
{
	qsort(a->list, a->count, sizeof(*a->list), compare_accesses);
	s->list = a->list;
	s->cuts = check_alloc(k, 2 * a->count, sizeof(*s->cuts));
	s->writer = check_alloc(k, 2 * a->count, sizeof(*s->writer));
	s->first_reader = check_alloc(k, 2 * a->count, sizeof(*s->first_reader));
	if (k->no_memory)
		return false;
	for (uint64_t first = 0, end; first < a->count; first = end) {
		end = first + 1;
		while (end < a->count && a->list[end].space == a->list[first].space)
			end++;
		sweep_space(k, s, first, end);
	}
	return !k->no_memory;
}

/* ---- Verdict ---- */

static bool fail_pair(struct checker *k, const struct sweep *s, const struct check_pair *pair)
{
	const struct access *a = &s->list[pair->first], *b = &s->list[pair->second];
	struct check_event e = check_decode(k, a->start), f = check_decode(k, b->start);
	uint32_t which = a->space % check_spaces(k), owner = a->space / check_spaces(k);
	uint64_t lo = a->lo > b->lo ? a->lo : b->lo;
	const char *name = which == 0 ? "IN" : which == 1 ? "OUT" : "scratch";
	char other[160] = "its owner between instances";

	if (e.step == CHECK_NONE) {
		const struct access *swap = a;
		struct check_event swap_event = e;

		a = b, b = swap;
		e = f, f = swap_event;
	}
	if (f.step != CHECK_NONE)
		(void)rb_step_text(k->ranks[f.rank].schedule, f.step, other, sizeof(other));
	return check_fail(k, e.rank, e.step, e.iteration,
			  "%s element %" PRIu64 " of rank %u's %s (instance %u) unordered with the "
			  "%s by rank %u instance %u iteration %u: %s",
			  a->write ? "writes" : "reads", lo, owner, name, e.instance,
			  b->write ? "write" : "read", f.rank, f.instance,
			  f.step == CHECK_NONE ? 0 : f.iteration, other);
}

/* Nobody leaves a barrier before everyone has come. */
static bool check_barrier(struct checker *k)
{
	uint64_t count = 0;
	struct check_pair *pairs =
		check_alloc(k, (uint64_t)k->n * k->n * k->in->instances, sizeof(*pairs));

	if (!pairs)
		return false;
	for (uint32_t i = 0; i < k->in->instances; i++)
		for (uint32_t r = 0; r < k->n; r++)
			for (uint32_t s = 0; s < k->n; s++)
				pairs[count++] = (struct check_pair) { .from = check_begin(k, i, s),
								       .to = check_end(k, i, r),
								       .first = s,
								       .second = r };
	if (!check_reach(k, pairs, count))
		return false;
	for (uint64_t i = 0; i < count; i++)
		if (!pairs[i].ordered)
			return check_fail(k, pairs[i].second, CHECK_NONE, 0,
					  "can leave before rank %u has come", pairs[i].first);
	return true;
}

bool check_order(struct checker *k)
{
	struct accesses accesses = { 0 };
	struct sweep sweep = { 0 };

	for (uint32_t i = 0; i < k->in->instances; i++)
		for (uint32_t r = 0; r < k->n; r++) {
			struct check_event e = { .instance = i, .rank = r };
			uint32_t steps = k->ranks[r].schedule->step_count;

			note_owner(k, &accesses, r, i);
			if (i + 1 == k->in->instances)
				note_owner(k, &accesses, r, i + 1);
			for (e.step = 0; e.step < steps; e.step++)
				for (e.iteration = 0; e.iteration < check_iterations(k, r, e.step);
				     e.iteration++)
					note_iteration(k, &accesses, &e);
		}
	if (k->no_memory || (accesses.count > 0 && !find_pairs(k, &accesses, &sweep)))
		return false;
	k->out->pairs = sweep.pair_count;
	if (!check_reach(k, sweep.pairs, sweep.pair_count))
		return false;
	for (uint64_t i = 0; i < sweep.pair_count; i++)
		if (!sweep.pairs[i].ordered)
			return fail_pair(k, &sweep, &sweep.pairs[i]);
	return k->in->kind != RB_KIND_BARRIER || check_barrier(k);
}
