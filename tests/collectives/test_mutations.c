/*
 * test_mutations.c -- does the checker notice? Breaks every algorithm in every systematic way, one
 * change at a time, on one rank or on all, and asks for a proof. A mutant that is still proved must
 * be explained: its lost dependency follows from the others, it only reduces in another order, or
 * what it lost was said twice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "collectives/build.h"
#include "collectives/checker/joint.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define ALL_RANKS UINT32_MAX
#define NEVER INT32_MAX /* A lag that no iteration reaches. */

enum mutation {
	DROP_DEP,
	WEAKEN_DEP,
	MOVE_DEP,
	LAST_DEP_MUTATION = MOVE_DEP,
	SWAP_OPERANDS,
	DROP_OPERAND,
	FIRST_OPERAND_TWICE,
	NEXT_BLOCK,
	MORE_BLOCKS,
	NEXT_CHANNEL,
	NEXT_PEER,
	DROP_STEP,
	DROP_MESSAGE,
	TOGGLE_FINAL,
	TOGGLE_ONCE,
	TOGGLE_SIDE,
	OTHER_BUFFER,
	NEXT_SLOT,
	LESS_DEPTH,
	LESS_DEPTH_EVERYWHERE,
	OTHER_OWNER,
	TOGGLE_PART,
	NEXT_SHIFT,
	STAY_ON_SIDE,
	SWAP_SIDES,
	NEXT_ODD_SLOT,
	MUTATION_COUNT
};
static const char *const names[MUTATION_COUNT] = {
	"drop dependency",
	"weaken dependency",
	"move dependency",
	"swap operands",
	"drop operand",
	"repeat operand",
	"next block",
	"more blocks",
	"next channel",
	"next peer",
	"drop step",
	"drop message",
	"toggle final",
	"toggle once",
	"toggle side",
	"other buffer",
	"next slot",
	"less depth",
	"less depth everywhere",
	"other owner",
	"toggle part",
	"next shift",
	"stay on side",
	"swap sides",
	"next odd slot",
};

struct mutant {
	enum mutation mutation;
	uint32_t rank, step, item; /* Item: which dependency, operand or span of the step. */
};

/* ---- One change ---- */

static bool has_data(const struct rb_step *step)
{
	return step->to != RB_NO_SPAN || step->from_count > 0;
}

static uint32_t next_rank(uint32_t rank, uint32_t self, uint32_t n)
{
	do {
		rank = (rank + 1) % n;
	} while (rank == self);
	return rank;
}

static bool mutate_dep(struct rb_schedule *s, struct rb_step *step, const struct mutant *m)
{
	if (m->item >= step->dep_count)
		return false;
	struct rb_dep *dep = &s->deps[step->dep + m->item];

	if (m->mutation == DROP_DEP)
		dep->lag = NEVER;
	else if (m->mutation == WEAKEN_DEP)
		dep->lag++; /* RB_DEP_ALL becomes 0. */
	else
		dep->step = (dep->step + 1) % s->step_count;
	return true;
}

static bool mutate_operands(struct rb_schedule *s, struct rb_step *step, const struct mutant *m)
{
	if (step->kind != RB_STEP_REDUCE || m->item + 1 >= step->from_count)
		return false;
	struct rb_span *a = &s->spans[step->from + m->item], swap = *a;

	if (m->mutation == FIRST_OPERAND_TWICE) {
		a[1] = a[0];
	} else if (m->mutation == DROP_OPERAND) {
		memmove(a, a + 1, (step->from_count - m->item - 1u) * sizeof(*a));
		step->from_count--;
	} else {
		a[0] = a[1];
		a[1] = swap;
	}
	return true;
}

static void less_depth_everywhere(struct rb_joint *w, uint32_t owner, uint32_t slot)
{
	for (uint32_t r = 0; r < w->rank_count; r++)
		for (uint32_t i = 0; i < w->schedules[r].span_count; i++) {
			struct rb_span *span = &w->schedules[r].spans[i];

			if (span->buffer == RB_BUF_SCRATCH && span->slot == slot &&
			    (span->rank == RB_SELF ? r : span->rank) == owner)
				span->depth--;
		}
}

static bool mutate_span(struct rb_joint *w, struct rb_schedule *s, struct rb_step *step,
			const struct mutant *m)
{
	uint32_t index = m->item < step->from_count ? step->from + m->item : step->to;

	if (m->item > step->from_count || index == RB_NO_SPAN)
		return false;
	struct rb_span *span = &s->spans[index];
	bool scratch = span->buffer == RB_BUF_SCRATCH, alternates = span->alternates;

	switch (m->mutation) {
	case OTHER_BUFFER:
		span->buffer = span->buffer == RB_BUF_OUT ? RB_BUF_IN : RB_BUF_OUT;
		return true;
	case NEXT_SLOT:
		span->slot++;
		return scratch;
	case LESS_DEPTH:
		span->depth--;
		return scratch && span->depth > 0;
	case LESS_DEPTH_EVERYWHERE:
		if (!scratch || span->depth < 2)
			return false;
		less_depth_everywhere(w, span->rank == RB_SELF ? s->rank : span->rank, span->slot);
		return true;
	case OTHER_OWNER:
		span->rank = span->rank == RB_SELF ? (s->rank + 1) % s->rank_count : RB_SELF;
		return s->rank_count > 1;
	case TOGGLE_PART:
		span->part ^= 1;
		return !scratch;
	case NEXT_SHIFT:
		span->shift = (span->shift + 1) % s->block_count;
		return s->block_count > 1 && !span->part &&
		       (!scratch || span->depth == RB_VECTOR_SLOT);
	case STAY_ON_SIDE:
		*span = rb_span_side(*span, false);
		return alternates;
	case SWAP_SIDES:
		*span = rb_span_alternating(rb_span_side(*span, true), rb_span_side(*span, false));
		return alternates;
	case NEXT_ODD_SLOT:
		span->odd_slot++;
		return alternates;
	default:
		return false;
	}
}

static void drop(struct rb_step *step)
{
	step->blocks = 0;
	step->flags &= (uint8_t)~RB_STEP_ONCE;
}

static bool drop_message(struct rb_joint *w, const struct rb_schedule *s, struct rb_step *step)
{
	bool sends = step->kind == RB_STEP_SEND || step->kind == RB_STEP_PUT ||
		     step->kind == RB_STEP_NOTIFY;

	if (!sends)
		return false;
	struct rb_schedule *peer = &w->schedules[step->peer];

	for (uint32_t i = 0; i < peer->step_count; i++) {
		struct rb_step *other = &peer->steps[i];

		if ((other->kind == RB_STEP_RECV || other->kind == RB_STEP_WAIT) &&
		    other->peer == s->rank && other->channel == step->channel)
			drop(other);
	}
	drop(step);
	return true;
}

static bool mutate_step(struct rb_joint *w, struct rb_schedule *s, struct rb_step *step,
			const struct mutant *m)
{
	bool local = step->peer == RB_SELF;

	if (m->item > 0)
		return false;
	switch (m->mutation) {
	case NEXT_BLOCK:
		step->block = (step->block + 1) % s->block_count;
		return s->block_count > 1 && step->blocks > 0;
	case MORE_BLOCKS:
		step->block -= step->block + 1 == s->block_count && step->block > 0;
		step->blocks++;
		return step->blocks > 1;
	case NEXT_CHANNEL:
		step->channel++;
		return !local && m->rank != ALL_RANKS; /* On all, it is only another name. */
	case NEXT_PEER:
		if (local || s->rank_count < 3)
			return false;
		step->peer = next_rank(step->peer, s->rank, s->rank_count);
		return true;
	case DROP_STEP:
		drop(step);
		return true;
	case DROP_MESSAGE:
		return drop_message(w, s, step);
	case TOGGLE_FINAL:
		step->flags ^= RB_STEP_FINAL;
		return step->kind == RB_STEP_COPY || step->kind == RB_STEP_REDUCE;
	case TOGGLE_SIDE: /* Elsewhere both sides are alike; what one gives oneself always is. */
		step->flags ^= RB_STEP_OUT;
		return w->algorithm->kind == RB_KIND_ALLTOALLV && !w->in_place &&
		       step->blocks > 0 && step->block != s->rank;
	case TOGGLE_ONCE:
		step->flags ^= RB_STEP_ONCE;
		return has_data(step) || step->blocks > 0 || !(step->flags & RB_STEP_ONCE);
	default:
		return false;
	}
}

/* False where the change does not apply: all is then to be built anew, too. */
static bool mutate_rank(struct rb_joint *w, uint32_t rank, const struct mutant *m)
{
	struct rb_schedule *s = &w->schedules[rank];

	if (m->step >= s->step_count)
		return false;
	struct rb_step *step = &s->steps[m->step];

	if (m->mutation <= LAST_DEP_MUTATION)
		return mutate_dep(s, step, m);
	if (m->mutation <= FIRST_OPERAND_TWICE)
		return mutate_operands(s, step, m);
	if (m->mutation >= OTHER_BUFFER)
		return mutate_span(w, s, step, m);
	return mutate_step(w, s, step, m);
}

static bool mutate(struct rb_joint *w, const struct mutant *m)
{
	bool changed = false;

	if (m->rank != ALL_RANKS)
		return mutate_rank(w, m->rank, m);
	for (uint32_t r = 0; r < w->rank_count; r++)
		changed |= mutate_rank(w, r, m);
	return changed;
}

/* ---- Verdicts ---- */

#define LAYOUTS 4
struct spread {
	struct rb_joint_layouts layouts[LAYOUTS];
	uint32_t count;
};

/* The least that there can be: most changes are caught there, and it costs least. Then every block
 * has more chunks than there are slots, the last one in the first slot, and no two blocks as many;
 * one has none. Even blocks: many chunks; or all of them in one chunk. Where there are more slots
 * than usual, chunks for them. */
static uint64_t rising(const void *arg, uint32_t s, uint32_t d)
{
	uint32_t b = s == 0 ? d : s * *(const uint32_t *)arg + d;

	return 2 * (5 + 4 * b) - b % 2;
}

static uint64_t falling(const void *arg, uint32_t s, uint32_t d)
{
	uint32_t n = *(const uint32_t *)arg;

	return d == 1 ? 0 : 2 * (6 + 2 * (s + n - d));
}

static void build(struct rb_joint *joint, const struct rb_joint *like)
{
	*joint = *like;
	joint->schedules = NULL;
	ck_assert_int_eq(rb_joint_build(joint), RUBATO_OK);
}

/* Changes are of values alone: all arrays are as long as they were. */
static void restore(struct rb_joint *joint, const struct rb_joint *original)
{
	for (uint32_t r = 0; r < joint->rank_count; r++) {
		const struct rb_schedule *from = &original->schedules[r];
		struct rb_schedule *to = &joint->schedules[r];

		memcpy(to->steps, from->steps, from->step_count * sizeof(*from->steps));
		memcpy(to->spans, from->spans, from->span_count * sizeof(*from->spans));
		memcpy(to->deps, from->deps, from->dep_count * sizeof(*from->deps));
	}
}

static void even(struct rb_joint_layouts *layouts, const struct rb_joint *w, uint64_t count,
		 uint64_t chunk)
{
	ck_assert_int_eq(rb_joint_even(layouts, w, count, chunk, 1), RUBATO_OK);
}

static void uneven(struct rb_joint_layouts *layouts, const struct rb_joint *w, enum rb_gaps gaps,
		   rb_joint_length *length)
{
	ck_assert_int_eq(rb_joint_uneven(layouts, w, 2, gaps, length, &w->rank_count), RUBATO_OK);
}

/* The most that a span takes in turn. */
static uint32_t slots_of(const struct rb_joint *w)
{
	uint32_t most = 0;

	for (uint32_t r = 0; r < w->rank_count; r++)
		for (uint32_t i = 0; i < w->schedules[r].span_count; i++)
			if (rb_span_in_slots(&w->schedules[r].spans[i]) &&
			    w->schedules[r].spans[i].depth > most)
				most = w->schedules[r].spans[i].depth;
	return most;
}

static void spread_init(struct spread *spread, const struct rb_joint *w)
{
	uint32_t n = w->rank_count, blocks = rb_algorithm_blocks(w->algorithm, n, w->nodes);
	uint64_t least = rb_joint_wants_even(w) ? n : 1;
	bool barrier = w->algorithm->kind == RB_KIND_BARRIER;

	even(&spread->layouts[0], w, barrier ? 0 : least, 2);
	if (rb_joint_takes_uneven(w)) {
		bool v = rb_kind_uneven(w->algorithm->kind);

		uneven(&spread->layouts[1], w, v ? RB_GAPS_SAME : RB_GAPS_NONE, rising);
		uneven(&spread->layouts[2], w, v ? rb_joint_gaps(w) : RB_GAPS_NONE, falling);
	} else {
		even(&spread->layouts[1], w, barrier ? 0 : 13u * blocks + 1, 2);
		even(&spread->layouts[2], w, barrier ? 0 : 3u * blocks, 1000);
	}
	spread->count = 3;
	if (slots_of(w) > RB_DEPTH)
		even(&spread->layouts[spread->count++], w, 2u * (slots_of(w) + 3) * blocks + 1, 2);
}

static void spread_free(struct spread *spread)
{
	for (uint32_t i = 0; i < spread->count; i++)
		rb_joint_layouts_free(&spread->layouts[i]);
}

static bool proved(const struct rb_joint *w, const struct rb_joint_layouts *layouts, bool in_place)
{
	struct rb_check_result result;

	ck_assert_int_eq(rb_joint_check(w, layouts, in_place, 3, NULL, &result), RUBATO_OK);
	return result.proved;
}

static bool proved_everywhere(const struct rb_joint *w, const struct spread *spread)
{
	bool never = rb_joint_told_in_place(w->algorithm->kind) && !w->in_place;

	for (uint32_t i = 0; i < spread->count; i++)
		for (int in_place = 0; in_place <= !never; in_place++)
			if (!proved(w, &spread->layouts[i], in_place))
				return false;
	return true;
}

/* Whether what the dependency gave follows from what is left, on each rank that it was changed. */
static bool implied_everywhere(const struct rb_joint *mutant, const struct rb_joint *original,
			       const struct spread *spread, const struct mutant *m)
{
	struct rb_check check = { .kind = mutant->algorithm->kind,
				  .schedules = mutant->schedules,
				  .rank_count = mutant->rank_count,
				  .root = mutant->root,
				  .nodes = mutant->nodes,
				  .instances = 3,
				  .implied_step = m->step };
	struct rb_check_result result;

	for (uint32_t r = 0; r < mutant->rank_count; r++) {
		const struct rb_schedule *s = &original->schedules[r];

		if ((m->rank != ALL_RANKS && m->rank != r) || m->step >= s->step_count ||
		    m->item >= s->steps[m->step].dep_count)
			continue;
		check.implied_rank = r;
		check.implied_dep = s->deps[s->steps[m->step].dep + m->item];
		for (uint32_t i = 0; i < spread->count; i++) {
			check.layouts = spread->layouts[i].each;
			ck_assert_int_eq(rb_check_schedules(&check, &result), RUBATO_OK);
			if (!result.implied)
				return false;
		}
	}
	return true;
}

struct tally {
	uint32_t caught, implied, reordered, redundant, survived;
};

/* All that its block says is then a length. */
static bool names_slots_only(const struct rb_schedule *s, const struct rb_step *step)
{
	bool slots = true;

	for (uint32_t i = 0; i < step->from_count; i++)
		slots &= s->spans[step->from + i].buffer == RB_BUF_SCRATCH &&
			 s->spans[step->from + i].depth != RB_VECTOR_SLOT;
	if (step->to != RB_NO_SPAN)
		slots &= s->spans[step->to].buffer == RB_BUF_SCRATCH &&
			 s->spans[step->to].depth != RB_VECTOR_SLOT;
	return slots;
}

static bool lengths_remain(const struct rb_joint *w, const struct rb_joint *original,
			   const struct spread *spread, const struct mutant *m)
{
	for (uint32_t r = 0; r < w->rank_count; r++) {
		if ((m->rank != ALL_RANKS && m->rank != r) || m->step >= w->schedules[r].step_count)
			continue;
		const struct rb_step *step = &w->schedules[r].steps[m->step];
		const struct rb_step *before = &original->schedules[r].steps[m->step];

		if (!names_slots_only(&w->schedules[r], step))
			return false;
		for (uint32_t i = 0; i < spread->count; i++) {
			const struct rb_layout *layout = &spread->layouts[i].each[r];

			if (rb_step_range(layout, step) != rb_step_range(layout, before))
				return false;
		}
	}
	return true;
}

/* A message that a rank has come, or a wait for one. */
static bool is_entry(const struct rb_joint *original, const struct mutant *m)
{
	const struct rb_schedule *s = &original->schedules[m->rank == ALL_RANKS ? 0 : m->rank];

	if (m->rank == ALL_RANKS || m->step >= s->step_count)
		return false;
	const struct rb_step *step = &s->steps[m->step];

	if (m->mutation > LAST_DEP_MUTATION)
		return m->mutation == DROP_MESSAGE && (step->flags & RB_STEP_ENTRY);
	return m->item < step->dep_count &&
	       (s->steps[s->deps[step->dep + m->item].step].flags & RB_STEP_ENTRY);
}

static bool only_sends(const struct rb_joint *original, const struct mutant *m)
{
	for (uint32_t r = 0; r < original->rank_count; r++)
		if ((m->rank == ALL_RANKS || m->rank == r) &&
		    m->step < original->schedules[r].step_count &&
		    m->item < original->schedules[r].steps[m->step].dep_count &&
		    original->schedules[r].steps[m->step].kind != RB_STEP_SEND)
			return false;
	return true;
}

/* A step once without data, whose blocks say nothing. */
static bool is_bare(const struct rb_step *step)
{
	return step->flags & RB_STEP_ONCE && step->to == RB_NO_SPAN && step->from_count == 0;
}

/* Copies and sums of blocks that nobody sends or reads, to where nobody else writes. */
static bool writes_more(const struct rb_joint *original, const struct mutant *m)
{
	bool writes = false;

	for (uint32_t r = 0; m->mutation == MORE_BLOCKS && r < original->rank_count; r++) {
		const struct rb_schedule *s = &original->schedules[r];

		if ((m->rank != ALL_RANKS && m->rank != r) || m->step >= s->step_count ||
		    is_bare(&s->steps[m->step]))
			continue;
		const struct rb_step *step = &s->steps[m->step];

		writes = step->peer == RB_SELF && s->spans[step->to].buffer == RB_BUF_SCRATCH &&
			 s->spans[step->to].depth == RB_VECTOR_SLOT;
		if (!writes)
			return false;
	}
	return writes;
}

/*
 * Six changes leave a collective right. A barrier's whole meaning is that every end follows every
 * begin, which was proved; where those that meet are no power of two its rounds tell some the same
 * thing twice, and one word fewer is enough. Where each rank reduces one block for the root, it
 * does not matter which, as long as all move on by one. And a message that names slots only says
 * by its block how long it is: another that is as long will do. Pairwise exchanges send round by
 * round, and alltoall flat a few blocks at a time, in order not to flood anybody, scatter_gather
 * chunk by chunk in order not to hold up results: not to be right. Who packs messages, or puts out
 * of a vector slot, may write more into it than is asked for, where it has room. And where rounds
 * wait for rounds (alltoall direct in place, within nodes, too), one may follow from another rank's
 * word that a third has come.
 */
static bool is_redundant(const struct rb_joint *w, const struct rb_joint *original,
			 const struct spread *spread, const struct mutant *m)
{
	bool by_node = w->algorithm->by_node;
	uint32_t meet = !by_node ? w->rank_count : w->nodes != NULL ? w->nodes->count : 1;
	bool power = (meet & (meet - 1)) == 0;
	bool direct = strncmp(w->algorithm->name, "hierarchical_direct", 19) == 0;
	bool alltoall =
		w->algorithm->kind == RB_KIND_ALLTOALL || w->algorithm->kind == RB_KIND_ALLTOALLV;
	bool paced = alltoall && !w->in_place && strcmp(w->algorithm->name, "flat") == 0;

	if (w->algorithm->kind == RB_KIND_BARRIER)
		return m->mutation <= LAST_DEP_MUTATION && !power;
	if (w->in_place && (direct || strcmp(w->algorithm->name, "direct") == 0) &&
	    is_entry(original, m))
		return true;
	if (m->mutation <= LAST_DEP_MUTATION &&
	    (direct || paced || strcmp(w->algorithm->name, "pairwise") == 0 ||
	     strcmp(w->algorithm->name, "scatter_gather") == 0))
		return only_sends(original, m);
	if ((w->algorithm->packs || w->algorithm->flags & RB_SCHEDULE_PUT) &&
	    writes_more(original, m))
		return true;
	if (m->mutation != NEXT_BLOCK)
		return false;
	if (m->rank == ALL_RANKS && w->algorithm->kind == RB_KIND_REDUCE &&
	    w->algorithm->blocks != RB_BLOCKS_ONE)
		return true;
	return lengths_remain(w, original, spread, m);
}

/* `w`: with the change. */
static void judge(const struct rb_joint *w, const struct rb_joint *original,
		  const struct spread *spread, const struct mutant *m, struct tally *tally)
{
	char text[300];

	if (!proved_everywhere(w, spread)) {
		tally->caught++;
	} else if (m->mutation <= LAST_DEP_MUTATION && implied_everywhere(w, original, spread, m)) {
		tally->implied++;
	} else if (m->mutation == SWAP_OPERANDS) {
		tally->reordered++; /* Proved: the same elements, in one order on all ranks. */
	} else if (is_redundant(w, original, spread, m)) {
		tally->redundant++;
	} else {
		const struct rb_schedule *s =
			&original->schedules[m->rank == ALL_RANKS ? 0 : m->rank];

		text[0] = '\0';
		if (m->step < s->step_count)
			(void)rb_step_text(s, m->step, text, sizeof(text));
		printf("  survived: %s %s, %u ranks: %s %u on rank %d: %s\n",
		       rb_kind_name(w->algorithm->kind), w->algorithm->name, w->rank_count,
		       names[m->mutation], m->item, (int)m->rank, text);
		tally->survived++;
	}
}

#define ITEMS 12u

/* One in six, as if drawn; short: in twelve; long: all. */
static bool is_wanted(const struct mutant *m)
{
	uint64_t index = ((m->rank * 1000u + m->step) * MUTATION_COUNT + m->mutation) * ITEMS;
	uint32_t one_in = test_length() == TEST_SHORT ? 12 : test_length() == TEST_LONG ? 1 : 6;

	return rb_mix(index + m->item) % one_in == 0;
}

static void judge_all(const struct rb_joint *original, struct tally *tally)
{
	struct spread spread = { 0 };
	struct rb_joint changed;
	uint32_t steps = 0;

	spread_init(&spread, original);
	build(&changed, original);
	ck_assert(proved_everywhere(original, &spread));
	for (uint32_t r = 0; r < original->rank_count; r++)
		if (original->schedules[r].step_count > steps)
			steps = original->schedules[r].step_count;
	/* A change on all ranks at once, and on each alone. */
	for (uint32_t r = 0; r <= original->rank_count; r++)
		for (uint32_t i = 0; i < steps; i++)
			for (int kind = 0; kind < MUTATION_COUNT; kind++)
				for (uint32_t item = 0; item < ITEMS; item++) {
					struct mutant m = { (enum mutation)kind,
							    r < original->rank_count ? r
										     : ALL_RANKS,
							    i, item };

					if (!is_wanted(&m))
						continue;
					if (mutate(&changed, &m))
						judge(&changed, original, &spread, &m, tally);
					restore(&changed, original);
				}
	rb_joint_free(&changed);
	spread_free(&spread);
}

static void judge_ranks(const struct rb_algorithm *a, uint32_t n, const struct rb_nodes *nodes,
			struct tally *tally)
{
	bool pairs = a->kind == RB_KIND_ALLTOALLV && a->flags != 0;
	int tolds = 1 + rb_joint_told_in_place(a->kind);
	uint8_t apart[64];

	ck_assert_uint_le(n * n, sizeof(apart));
	for (uint32_t i = 0; i < n * n; i++) /* 0 and 1 are, 1 and 2, and so on. */
		apart[i] = (i / n + i % n) % 2;
	for (int i = 0; i < tolds * (1 + pairs); i++) {
		struct rb_joint joint, what = { .algorithm = a,
						.rank_count = n,
						.root = rb_algorithm_rooted(a) ? 1 : 0,
						.nodes = nodes,
						.apart = i < tolds ? NULL : apart,
						.in_place = i % tolds };

		build(&joint, &what);
		judge_all(&joint, tally);
		rb_joint_free(&joint);
	}
}

/* Nodes of one rank and two; three nodes; two lanes, the nodes' ranks in turn. */
static void judge_nodes(const struct rb_algorithm *a, struct tally *tally)
{
	static const uint32_t name_of[][4] = { { 0, 1, 1 }, { 0, 1, 2, 0 }, { 0, 1, 0, 1 } };
	static const uint32_t ranks[] = { 3, 4, 4 };
	uint32_t placements = test_length() == TEST_SHORT || rb_kind_uneven(a->kind) ? 1 : 3;

	for (uint32_t i = 0; i < placements; i++) {
		uint32_t words[RB_NODES_WORDS(4)];
		struct rb_nodes nodes;

		rb_nodes_make(&nodes, words, name_of[i], ranks[i]);
		judge_ranks(a, ranks[i], &nodes, tally);
	}
}

START_TEST(every_change_is_noticed)
{
	const struct rb_algorithm *a = &rb_algorithms[_i];
	/* The Vs have the others' builders, whose graphs are changed there. */
	uint32_t wanted = test_length() == TEST_SHORT || rb_kind_uneven(a->kind) ? 3 : 5;
	uint32_t most = a->rank_max < wanted ? a->rank_max : wanted;
	struct tally tally = { 0 };

	for (uint32_t n = 2; n <= most; n++)
		judge_ranks(a, n, NULL, &tally);
	if (a->by_node)
		judge_nodes(a, &tally);
	printf("%-15s %-26s caught %5u  implied %3u  other order %2u  redundant %2u  "
	       "survived %u\n",
	       rb_kind_name(a->kind), a->name, tally.caught, tally.implied, tally.reordered,
	       tally.redundant, tally.survived);
	(void)fflush(stdout);
	ck_assert_uint_gt(tally.caught, 0);
	ck_assert_uint_eq(tally.survived, 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("mutations");

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, every_change_is_noticed, 0, (int)rb_algorithm_count);
	return check_main("mutations", tc);
}
