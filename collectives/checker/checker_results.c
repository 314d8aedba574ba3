/*
 * checker_results.c -- executes all ranks' steps on symbols, in a topological order: any one will
 * do, since conflicting accesses have been proved ordered.
 *
 * A memory is a list of pieces; the element at address a of a piece holds expression `expr` of the
 * vector's element number a + shift (modulo 2^64). Expressions are leaves (rank s's input of
 * instance i), op(a, b) and final(a), each kept once, so that equal numbers mean equal bits.
 * Expression 0 is what no result may hold: what was there before, or elements mixed up.
 */
#include <inttypes.h>
#include <string.h>

#include "collectives/checker/checker_inside.h"

#define GARBAGE 0

struct piece {
	uint64_t lo, hi, shift;
	uint32_t expr;
};

struct pieces { /* Ascending and without gaps. */
	struct piece *list;
	uint64_t count, capacity;
};

struct expr {
	uint32_t a,
		b; /* op(a, b); final(a): b == CHECK_NONE; leaf: a is the rank, b its instance. */
	uint32_t instance, leaves;
	bool leaf, final, twice, mixed;
	uint64_t *ranks; /* Bit set of whose elements are in it. */
};

struct machine {
	struct checker *k;
	struct pieces *spaces;   /* Of all memories. */
	struct pieces *messages; /* By the event of a SEND's start: what it carries, from 0. */
	struct pieces buffer;    /* What a step is about to write. */
	struct pieces fresh;     /* Where overwrite() joins it with its neighbours. */
	uint64_t *cursor;        /* Per operand: the piece where it is. */
	struct operand *operands;
	struct expr *exprs;
	uint64_t expr_count, expr_capacity;
	uint32_t *table; /* Open addressing into exprs. */
	uint64_t table_size;
	struct pieces *results; /* Per instance: the first rank's, for comparison. */
	uint32_t *result_rank;
};

struct operand {
	const struct pieces *pieces;
	uint64_t base; /* Address of the step's first element. */
};

/* ---- Expressions ---- */

static uint64_t hash(uint32_t a, uint32_t b, bool leaf)
{
	uint64_t h = ((uint64_t)a << 32 | b) * 2 + leaf;

	h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

static void describe(struct machine *m, struct expr *e)
{
	uint32_t words = (m->k->n + 63) / 64;

	e->ranks = check_alloc(m->k, words, sizeof(*e->ranks));
	if (!e->ranks)
		return;
	if (e->leaf) {
		e->ranks[e->a / 64] = (uint64_t)1 << e->a % 64;
		e->instance = e->b;
		e->leaves = 1;
		return;
	}
	const struct expr *a = &m->exprs[e->a], *b = e->b == CHECK_NONE ? NULL : &m->exprs[e->b];

	e->final = !b;
	e->instance = a->instance;
	e->twice = a->twice || (b && b->twice);
	/* Nothing may follow the final operation; instances stay apart. */
	e->mixed =
		a->mixed || a->final || (b && (b->mixed || b->final || b->instance != a->instance));
	for (uint32_t w = 0; w < words; w++) {
		uint64_t other = b ? b->ranks[w] : 0;

		e->twice |= (a->ranks[w] & other) != 0;
		e->ranks[w] = a->ranks[w] | other;
		e->leaves += (uint32_t)__builtin_popcountll(e->ranks[w]);
	}
}

static bool grow_table(struct machine *m)
{
	uint64_t size = m->table_size ? m->table_size * 2 : 1024;
	uint32_t *table = check_alloc(m->k, size, sizeof(*table));

	if (!table)
		return false;
	for (uint64_t i = 1; i < m->expr_count; i++) {
		const struct expr *e = &m->exprs[i];
		uint64_t at = hash(e->a, e->b, e->leaf) % size;

		while (table[at])
			at = (at + 1) % size;
		table[at] = (uint32_t)i;
	}
	m->table = table;
	m->table_size = size;
	return true;
}

static uint32_t intern(struct machine *m, uint32_t a, uint32_t b, bool leaf)
{
	if (!leaf && (a == GARBAGE || b == GARBAGE))
		return GARBAGE;
	if (m->expr_count * 2 >= m->table_size && !grow_table(m))
		return GARBAGE;
	uint64_t at = hash(a, b, leaf) % m->table_size;

	for (; m->table[at]; at = (at + 1) % m->table_size) {
		const struct expr *e = &m->exprs[m->table[at]];

		if (e->a == a && e->b == b && e->leaf == leaf)
			return m->table[at];
	}
	m->exprs = check_grow(m->k, m->exprs, m->expr_count, &m->expr_capacity, sizeof(*m->exprs));
	if (!m->exprs)
		return GARBAGE;
	m->exprs[m->expr_count] = (struct expr) { .a = a, .b = b, .leaf = leaf };
	describe(m, &m->exprs[m->expr_count]);
	m->table[at] = (uint32_t)m->expr_count;
	return (uint32_t)m->expr_count++;
}

/* ---- Pieces ---- */

static void append(struct machine *m, struct pieces *p, struct piece piece)
{
	if (piece.lo == piece.hi || m->k->no_memory)
		return;
	if (piece.expr == GARBAGE)
		piece.shift = 0;
	if (p->count > 0) {
		struct piece *last = &p->list[p->count - 1];

		if (last->hi == piece.lo && last->expr == piece.expr &&
		    last->shift == piece.shift) {
			last->hi = piece.hi;
			return;
		}
	}
	p->list = check_grow(m->k, p->list, p->count, &p->capacity, sizeof(piece));
	if (p->list)
		p->list[p->count++] = piece;
}

/* The piece that holds address `at`. */
static uint64_t find(const struct pieces *p, uint64_t at)
{
	uint64_t low = 0, high = p->count;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (p->list[middle].lo <= at)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Replaces what `with` covers; `with` must lie inside. */
static void overwrite(struct machine *m, struct pieces *p, const struct pieces *with)
{
	if (with->count == 0 || m->k->no_memory)
		return;
	uint64_t lo = with->list[0].lo, hi = with->list[with->count - 1].hi;
	uint64_t first = find(p, lo), last = find(p, hi - 1), tail = p->count - last - 1;
	struct piece left = p->list[first], right = p->list[last];

	m->fresh.count = 0;
	left.hi = lo;
	right.lo = hi;
	if (first > 0)
		append(m, &m->fresh, p->list[first - 1]);
	append(m, &m->fresh, left);
	for (uint64_t i = 0; i < with->count; i++)
		append(m, &m->fresh, with->list[i]);
	append(m, &m->fresh, right);
	if (tail > 0)
		append(m, &m->fresh, p->list[last + 1]);
	uint64_t from = first - (first > 0), skip = last + 1 + (tail > 0);
	uint64_t rest = p->count - skip, count = from + m->fresh.count + rest;

	while (p->capacity < count) {
		p->list = check_grow(m->k, p->list, p->capacity, &p->capacity, sizeof(*p->list));
		if (!p->list)
			return;
	}
	if (m->k->no_memory)
		return;
	memmove(p->list + from + m->fresh.count, p->list + skip, rest * sizeof(*p->list));
	memcpy(p->list + from, m->fresh.list, m->fresh.count * sizeof(*p->list));
	p->count = count;
}

static void fill(struct machine *m, uint32_t space, struct check_range range, uint64_t shift,
		 uint32_t expr)
{
	m->buffer.count = 0;
	append(m, &m->buffer, (struct piece) { range.lo, range.hi, shift, expr });
	overwrite(m, &m->spaces[space], &m->buffer);
}

/* ---- Steps ---- */

/* m->buffer: the operands' reduction, as it will lie from address `to`. */
static void fold(struct machine *m, const struct operand *operands, uint32_t count, uint64_t length,
		 bool final, uint64_t to)
{
	m->buffer.count = 0;
	for (uint32_t i = 0; i < count; i++)
		m->cursor[i] = find(operands[i].pieces, operands[i].base);
	for (uint64_t p = 0, next; p < length && !m->k->no_memory; p = next) {
		uint32_t expr = GARBAGE;
		uint64_t origin = 0;

		next = length;
		for (uint32_t i = 0; i < count; i++) {
			uint64_t at = operands[i].base + p;
			const struct piece *piece = &operands[i].pieces->list[m->cursor[i]];

			if (piece->hi <= at)
				piece = &operands[i].pieces->list[++m->cursor[i]];
			if (piece->hi - operands[i].base < next)
				next = piece->hi - operands[i].base;
			if (i == 0) {
				expr = piece->expr;
				origin = at + piece->shift;
			} else {
				expr = origin == at + piece->shift
					       ? intern(m, expr, piece->expr, false)
					       : GARBAGE;
			}
		}
		if (final)
			expr = intern(m, expr, CHECK_NONE, false);
		append(m, &m->buffer, (struct piece) { to + p, to + next, origin - to - p, expr });
	}
}

static void execute(struct machine *m, const struct check_event *e)
{
	struct operand *operands = m->operands;
	struct checker *k = m->k;
	const struct rb_schedule *s = k->ranks[e->rank].schedule;
	const struct rb_step *step = &s->steps[e->step];
	uint32_t at = check_at(k, e->instance, e->rank, e->step, e->iteration, CHECK_START);
	uint64_t length = check_length(k, e->rank, step, e->iteration);
	bool receives = step->kind == RB_STEP_RECV, sends = step->kind == RB_STEP_SEND;
	struct check_place to = { 0 };
	uint32_t count = receives ? 1 : step->from_count;

	if (length == 0 || count == 0 || receives != (e->phase == CHECK_COMPLETE))
		return;
	for (uint32_t i = 0; i < step->from_count; i++) {
		struct check_place from = check_place(k, e->rank, step, &s->spans[step->from + i],
						      e->instance, e->iteration);

		operands[i] = (struct operand) { &m->spaces[from.space], from.offset };
	}
	if (receives)
		operands[0] =
			(struct operand) { &m->messages[check_at(k, e->instance, step->peer,
								 k->ranks[e->rank].match[e->step],
								 e->iteration, CHECK_START)],
					   0 };
	if (step->to != RB_NO_SPAN)
		to = check_place(k, e->rank, step, &s->spans[step->to], e->instance, e->iteration);
	fold(m, operands, count, length, step->flags & RB_STEP_FINAL, sends ? 0 : to.offset);
	if (!sends)
		overwrite(m, &m->spaces[to.space], &m->buffer);
	for (uint64_t i = 0; sends && i < m->buffer.count; i++)
		append(m, &m->messages[at], m->buffer.list[i]);
}

/* ---- Between instances ---- */

/* The vector's elements are numbered block by block, without the gaps. */
static uint64_t number(const struct checker *k, uint32_t rank, uint32_t block)
{
	return rb_layout_length(check_layout(k, rank), 0, block);
}

static void begin(struct machine *m, uint32_t instance, uint32_t rank)
{
	struct checker *k = m->k;
	enum rb_buffer source = k->in->kind == RB_KIND_BROADCAST ? RB_BUF_OUT : RB_BUF_IN;
	struct check_range blocks = check_blocks(k, rank, source);
	uint32_t space = check_space(k, rank, k->in->in_place ? RB_BUF_OUT : (uint32_t)source);

	for (uint32_t which = 0; which < 2; which++) {
		uint32_t own = check_space(k, rank, which);

		fill(m, own, (struct check_range) { 0, check_space_elements(k, own) }, 0, GARBAGE);
	}
	if (source == RB_BUF_OUT && rank != k->in->root)
		return;
	for (uint32_t b = (uint32_t)blocks.lo; b < blocks.hi; b++) {
		struct check_range block = check_block(k, rank, source, b);

		fill(m, space, block, number(k, rank, b) - block.lo,
		     intern(m, rank, instance, true));
	}
}

struct expected {       /* What a block of OUT must hold. */
	uint32_t rank;  /* Whose elements: one rank's, or all (CHECK_NONE). */
	uint64_t first; /* Number of its first element. */
};

static struct expected expected(const struct checker *k, uint32_t rank, uint32_t block)
{
	uint32_t root = k->in->root;

	switch (k->in->kind) {
	case RB_KIND_BROADCAST:
		return (struct expected) { root, number(k, root, block) };
	case RB_KIND_SENDRECV:
		return (struct expected) { 0, number(k, 0, block) };
	case RB_KIND_SCATTER:
		return (struct expected) { root, number(k, root, rank) };
	case RB_KIND_ALLGATHER:
	case RB_KIND_ALLGATHERV:
	case RB_KIND_GATHER:
		return (struct expected) { block, number(k, block, block) };
	case RB_KIND_ALLTOALL:
	case RB_KIND_ALLTOALLV:
		return (struct expected) { block, number(k, block, rank) };
	default:
		return (struct expected) { CHECK_NONE, number(k, rank, block) };
	}
}

static bool check_piece(struct machine *m, uint32_t instance, uint32_t rank, uint64_t at,
			const struct piece *piece, uint32_t want, uint64_t shift)
{
	struct checker *k = m->k;
	const struct expr *e = &m->exprs[piece->expr];
	const char *what = NULL;

	if (piece->expr == GARBAGE)
		what = "holds no result";
	else if (piece->shift != shift)
		what = "holds another element";
	else if (e->instance != instance)
		what = "is of another instance";
	else if (want != CHECK_NONE && !(e->leaf && e->a == want))
		what = "is not the element of the rank that it should be";
	else if (want == CHECK_NONE && e->twice)
		what = "has some rank's element twice";
	else if (want == CHECK_NONE && e->leaves < k->n)
		what = "lacks some rank's element";
	else if (want == CHECK_NONE && (!e->final || e->mixed))
		what = e->final ? "goes on after FINAL" : "has no FINAL operation";
	return !what ||
	       check_fail(k, rank, CHECK_NONE, 0, "instance %u: element %" PRIu64 " of OUT %s",
			  instance, at, what);
}

/* The same expression on every rank that has the element. */
static bool check_same(struct machine *m, uint32_t instance, uint32_t rank,
		       struct check_range range)
{
	struct pieces *first = &m->results[instance];
	const struct pieces *mine = &m->spaces[check_space(m->k, rank, RB_BUF_OUT)];
	uint64_t i = 0, at = range.lo;

	if (m->k->in->kind != RB_KIND_ALLREDUCE)
		return true;
	if (m->result_rank[instance] == CHECK_NONE) {
		m->result_rank[instance] = rank;
		for (uint64_t p = 0; p < mine->count; p++)
			append(m, first, mine->list[p]);
		return true;
	}
	for (uint64_t p = find(mine, at); at < range.hi;) {
		if (first->list[i].expr != mine->list[p].expr)
			return check_fail(m->k, rank, CHECK_NONE, 0,
					  "instance %u: element %" PRIu64 " of OUT is reduced in "
					  "another order than rank %u's",
					  instance, at, m->result_rank[instance]);
		at = first->list[i].hi < mine->list[p].hi ? first->list[i].hi : mine->list[p].hi;
		i += first->list[i].hi == at;
		p += mine->list[p].hi == at;
	}
	return true;
}

static bool end(struct machine *m, uint32_t instance, uint32_t rank)
{
	struct checker *k = m->k;
	struct check_range blocks = check_blocks(k, rank, RB_BUF_OUT);
	struct check_range all = { 0, rb_layout_extent(check_layout(k, rank), RB_BUF_OUT) };
	const struct pieces *out = &m->spaces[check_space(k, rank, RB_BUF_OUT)];

	for (uint32_t b = (uint32_t)blocks.lo; b < blocks.hi && !k->no_memory; b++) {
		struct check_range block = check_block(k, rank, RB_BUF_OUT, b);
		struct expected want = expected(k, rank, b);

		for (uint64_t at = block.lo; at < block.hi;) {
			const struct piece *piece = &out->list[find(out, at)];

			if (!check_piece(m, instance, rank, at, piece, want.rank,
					 want.first - block.lo))
				return false;
			at = piece->hi;
		}
	}
	return k->no_memory || all.lo == all.hi || check_same(m, instance, rank, all);
}

static bool prepare(struct machine *m)
{
	struct checker *k = m->k;
	uint32_t spaces = k->n * check_spaces(k), operands = 1;

	for (uint32_t r = 0; r < k->n; r++)
		for (uint32_t i = 0; i < k->ranks[r].schedule->step_count; i++)
			if (k->ranks[r].schedule->steps[i].from_count > operands)
				operands = k->ranks[r].schedule->steps[i].from_count;
	m->spaces = check_alloc(k, spaces, sizeof(*m->spaces));
	m->messages = check_alloc(k, k->event_count, sizeof(*m->messages));
	m->cursor = check_alloc(k, operands, sizeof(*m->cursor));
	m->operands = check_alloc(k, operands, sizeof(*m->operands));
	m->exprs = check_alloc(k, 16, sizeof(*m->exprs));
	m->results = check_alloc(k, k->in->instances, sizeof(*m->results));
	m->result_rank = check_alloc(k, k->in->instances, sizeof(*m->result_rank));
	if (k->no_memory)
		return false;
	m->expr_capacity = 16;
	m->expr_count = 1; /* GARBAGE. */
	for (uint32_t i = 0; i < k->in->instances; i++)
		m->result_rank[i] = CHECK_NONE;
	for (uint32_t s = 0; s < spaces; s++)
		append(m, &m->spaces[s],
		       (struct piece) { 0, check_space_elements(k, s), 0, GARBAGE });
	return !k->no_memory;
}

bool check_results(struct checker *k)
{
	struct machine m = { .k = k };

	if (!prepare(&m))
		return false;
	for (uint32_t p = 0; p < k->event_count && !k->no_memory; p++) {
		struct check_event e = check_decode(k, k->order[p]);

		if (check_stopped(k, p))
			return false;
		if (e.step == CHECK_NONE && e.phase == CHECK_START)
			begin(&m, e.instance, e.rank);
		else if (e.step == CHECK_NONE) {
			if (!end(&m, e.instance, e.rank))
				return false;
		} else if (e.phase != CHECK_PREFIX) {
			execute(&m, &e);
		}
	}
	return !k->no_memory;
}
