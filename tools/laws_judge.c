/* laws_judge.c -- the laws themselves: as each round is collected, and over the whole run. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/laws.h"
#include "tools/options.h"
#include "tools/sim.h"

void laws_break(struct laws_trial *trial, const char *format, ...)
{
	va_list args;

	if (trial->broken[0] != '\0')
		return;
	va_start(args, format);
	(void)vsnprintf(trial->broken, sizeof(trial->broken), format, args);
	va_end(args);
}

bool laws_victim(const struct laws_trial *trial, uint32_t rank)
{
	for (uint32_t i = 0; i < trial->world.fault_count; i++)
		if (trial->faults[i].kind == RUBATO_SIM_CRASH && trial->faults[i].rank == rank)
			return true;
	return false;
}

static struct laws_round *round_of(struct laws_op *op, uint64_t number)
{
	while (number >= op->round_capacity) {
		uint64_t capacity = op->round_capacity > 0 ? 2 * op->round_capacity : 64;
		struct laws_round *rounds = realloc(op->rounds, capacity * sizeof(*rounds));

		if (rounds == NULL)
			option_fail(SIM, "out of memory");
		memset(rounds + op->round_capacity, 0,
		       (capacity - op->round_capacity) * sizeof(*rounds));
		op->rounds = rounds;
		op->round_capacity = capacity;
	}
	if (number >= op->round_end)
		op->round_end = number + 1;
	return &op->rounds[number];
}

static uint64_t mixed(uint64_t digest, uint64_t word)
{
	return random_mix(digest ^ word) + 0x9e3779b97f4a7c15u;
}

/* Of what all ranks see alike: the counts are those of the group. */
static uint64_t digest_records(const rubato_round *round, uint32_t n)
{
	uint64_t digest = round->round;

	for (uint32_t i = 0; i < n; i++) {
		const rubato_contribution *c = &round->ranks[i];

		digest = mixed(digest, (uint64_t)c->count << 1 | c->fresh);
		if (c->count > 0)
			digest =
				mixed(mixed(mixed(digest, c->first_step), c->last_step), c->weight);
	}
	return digest;
}

static uint64_t digest_words(const uint64_t *words, uint64_t count)
{
	uint64_t digest = count;

	for (uint64_t i = 0; i < count; i++)
		digest = mixed(digest, words[i]);
	return digest | 1;
}

/* ---- As a round is collected ---- */

/* What a sum is divided by: by the records, as options.normalise says. */
static uint64_t divisor_of(const struct laws_trial *trial, const struct laws_op *op,
			   const rubato_round *round)
{
	uint64_t members = 0, contributors = 0, weight = 0, divisor;

	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];

		members += c->member;
		contributors += c->member && c->count > 0;
		weight += c->member && c->count > 0 ? c->weight : 0;
	}
	if (op->reduction != RUBATO_AVG)
		return 1;
	divisor = op->options.normalise == RUBATO_BY_RANKS          ? members
		  : op->options.normalise == RUBATO_BY_CONTRIBUTORS ? contributors
								    : weight;
	return divisor > 0 ? divisor : 1;
}

static void see_result(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
		       const uint64_t *result, const rubato_round *round)
{
	const struct laws_op *op = &trial->ops[op_index];
	uint64_t divisor = divisor_of(trial, op, round);

	if (round->divisor != (double)divisor)
		laws_break(trial, "operation %u, round %" PRIu64 " is divided by %g, not %" PRIu64,
			   op_index, round->round, round->divisor, divisor);
	for (uint64_t i = 0; i < op->count; i++) {
		uint64_t want = laws_identity(op->reduction);

		for (uint32_t r = 0; r < trial->world.rank_count; r++) {
			const rubato_contribution *c = &round->ranks[r];

			for (uint64_t k = c->first_step;
			     c->member && c->count > 0 && k <= c->last_step; k++)
				want = laws_reduce(op->reduction, want,
						   laws_word(trial, op_index, r, k, i));
		}
		if (divisor > 1) /* Toward zero, as C does. */
			want = (uint64_t)((int64_t)want / (int64_t)divisor);
		if (result[i] != want) {
			laws_break(trial,
				   "conservation: operation %u, round %" PRIu64 ", element %" PRIu64
				   " at rank %u is not the reduction of what the round names",
				   op_index, round->round, i, rank);
			return;
		}
	}
}

/* Aligned, and until somebody drains: contribution k is for round k, and fresh if it is in
 * there. */
static void see_fresh(struct laws_trial *trial, uint32_t op_index, const rubato_round *round)
{
	const struct laws_op *op = &trial->ops[op_index];

	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];
		bool due = c->count > 0 && c->last_step >= round->round;

		if (op->passive || op->options.rounds != RUBATO_ROUNDS_ALIGNED)
			return;
		if ((c->fresh != 0) != due)
			laws_break(trial,
				   "freshness: operation %u, round %" PRIu64
				   " has rank %u as %s, with step %" PRIu64,
				   op_index, round->round, r, c->fresh ? "fresh" : "late",
				   c->count > 0 ? c->last_step : 0);
	}
}

static void see_records(struct laws_trial *trial, uint32_t op_index, const rubato_round *round)
{
	const struct laws_op *op = &trial->ops[op_index];
	const rubato_partial_options *o = &op->options;
	uint32_t n = trial->world.rank_count, contributors = 0, fresh = 0, all_fresh = 0;
	bool full = o->full_every > 0 && (round->round + 1) % o->full_every == 0;
	uint64_t weight = 0;

	for (uint32_t r = 0; r < n; r++) {
		const rubato_contribution *c = &round->ranks[r];
		uint64_t steps = 0;

		if (c->count == 0)
			continue;
		contributors += c->member;
		fresh += c->member ? c->fresh : 0;
		all_fresh += c->fresh;
		weight += c->member ? c->weight : 0;
		if (c->last_step < c->first_step || c->last_step >= op->committed[r] ||
		    c->last_step - c->first_step + 1 != c->count)
			laws_break(trial,
				   "conservation: operation %u, round %" PRIu64
				   " names steps %" PRIu64 " to %" PRIu64
				   " (%u) of rank %u, which has "
				   "committed %" PRIu64,
				   op_index, round->round, c->first_step, c->last_step, c->count, r,
				   op->committed[r]);
		else if (o->late != RUBATO_LATE_ACCUMULATE && c->count > 1 && trial->op_count == 1)
			laws_break(trial,
				   "operation %u, round %" PRIu64 " has %u contributions of "
				   "rank %u though late ones do not accumulate",
				   op_index, round->round, c->count, r);
		else
			for (uint64_t k = c->first_step; k <= c->last_step; k++)
				steps += k + 1;
		if (steps != c->weight)
			laws_break(trial, "operation %u, round %" PRIu64 ": weight of rank %u",
				   op_index, round->round, r);
	}
	if (contributors != round->contributors || fresh != round->fresh || weight != round->weight)
		laws_break(trial,
			   "operation %u, round %" PRIu64 ": its counts are not its records'",
			   op_index, round->round);
	see_fresh(trial, op_index, round);
	/* Side by side, free rounds count who waits elsewhere. */
	if (op->passive || (trial->op_count > 1 && o->rounds == RUBATO_ROUNDS_FREE))
		return;
	if (full && all_fresh != n)
		laws_break(trial,
			   "fairness: operation %u, round %" PRIu64 " is full, %u of %u fresh",
			   op_index, round->round, all_fresh, n);
	if (o->policy == RUBATO_POLICY_QUORUM && fresh < o->quorum)
		laws_break(trial, "quorum: operation %u, round %" PRIu64 ": %u fresh, not %u",
			   op_index, round->round, fresh, o->quorum);
	if (all_fresh == 0)
		laws_break(trial, "operation %u, round %" PRIu64 " has nobody fresh", op_index,
			   round->round);
}

static void see_wagma(struct laws_trial *trial, struct laws_op *op, struct laws_round *seen,
		      uint32_t rank, const uint64_t *result, const rubato_round *round)
{
	uint32_t n = trial->world.rank_count, members = 0;

	if (seen->digests == NULL) {
		seen->digests = calloc(n, sizeof(*seen->digests));
		seen->members = calloc((size_t)n * n, 1);
	}
	if (seen->digests == NULL || seen->members == NULL)
		option_fail(SIM, "out of memory");
	seen->digests[rank] = digest_words(result, op->count);
	for (uint32_t i = 0; i < n; i++) {
		seen->members[(size_t)rank * n + i] = round->ranks[i].member != 0;
		members += round->ranks[i].member;
	}
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *theirs = seen->members + (size_t)i * n;

		if (!round->ranks[i].member || seen->digests[i] == 0)
			continue;
		if (seen->digests[i] != seen->digests[rank] ||
		    memcmp(theirs, seen->members + (size_t)rank * n, n) != 0)
			laws_break(trial,
				   "agreement: round %" PRIu64 ": ranks %u and %u of one "
				   "group differ",
				   round->round, rank, i);
	}
	if (!round->ranks[rank].member ||
	    (members != (op->options.group > 0 ? op->options.group : n) && members != n))
		laws_break(trial, "round %" PRIu64 ": rank %u is in a group of %u", round->round,
			   rank, members);
}

static void see_order(struct laws_trial *trial, uint32_t op_index, uint32_t rank, uint64_t number)
{
	struct laws_op *op = &trial->ops[op_index];
	bool each = op->options.collection == RUBATO_COLLECT_EACH;

	if (each ? number != op->collected[rank] : number < op->collected[rank])
		laws_break(trial, "operation %u: rank %u collects round %" PRIu64 " after %" PRIu64,
			   op_index, rank, number, op->collected[rank] - 1);
	op->collected[rank] = number + 1;
	for (uint32_t i = 0; i < trial->world.rank_count && each; i++) {
		/* rubato_partial_collect has released a round before we see it. */
		if (i != trial->leaver && !laws_victim(trial, i) &&
		    number + 1 > op->collected[i] + op->options.depth + trial->convenient)
			laws_break(trial,
				   "staleness: operation %u: round %" PRIu64
				   " is complete, rank %u has collected %" PRIu64 ", depth %u",
				   op_index, number, i, op->collected[i], op->options.depth);
	}
}

void laws_see(struct laws_trial *trial, uint32_t op_index, uint32_t rank, const uint64_t *result,
	      const rubato_round *round)
{
	struct laws_op *op = &trial->ops[op_index];
	struct laws_round *seen = round_of(op, round->round);
	uint32_t n = trial->world.rank_count;
	bool wagma = op->options.policy == RUBATO_POLICY_WAGMA;
	uint64_t digest = digest_records(round, n);

	trial->rounds++;
	if (!wagma)
		digest = mixed(digest, digest_words(result, op->count));
	see_order(trial, op_index, rank, round->round);
	if (!seen->known) {
		seen->known = true;
		seen->digest = digest;
		seen->ranks = malloc(n * sizeof(*seen->ranks));
		if (seen->ranks == NULL)
			option_fail(SIM, "out of memory");
		memcpy(seen->ranks, round->ranks, n * sizeof(*seen->ranks));
		see_records(trial, op_index, round);
	} else if (seen->digest != digest) {
		laws_break(trial,
			   "agreement: operation %u, round %" PRIu64
			   " at rank %u is another than before",
			   op_index, round->round, rank);
	}
	if (wagma || seen->digest != digest || rank % 4 == round->round % 4 || n < 4)
		see_result(trial, op_index, rank, result, round);
	if (wagma)
		see_wagma(trial, op, seen, rank, result, round);
}

/* ---- Over the whole run ---- */

/* The rank's contributions, in order, each once. Returns the step that would come next. */
static uint64_t judge_chain(struct laws_trial *trial, uint32_t op_index, uint32_t rank,
			    uint64_t *delivered, bool *whole)
{
	struct laws_op *op = &trial->ops[op_index];
	bool accumulate = op->options.late == RUBATO_LATE_ACCUMULATE;
	uint64_t next = 0, absent = 0, end = op->round_end;

	/* A round that only those collected who then crashed is lost with them. */
	if (op->ended[rank] && op->stats[rank].rounds < end)
		end = op->stats[rank].rounds;
	*delivered = 0;
	*whole = true;
	for (uint64_t r = 0; r < end; r++) {
		const rubato_contribution *c;

		if (!op->rounds[r].known) {
			*whole = false;
			absent = 0;
			continue;
		}
		c = &op->rounds[r].ranks[rank];
		absent = c->count > 0 ? 0 : absent + 1;
		if (op->options.max_absence > 0 && absent > op->options.max_absence &&
		    r < op->passive_from[rank])
			laws_break(trial,
				   "fairness: operation %u: rank %u is in none of the %" PRIu64
				   " rounds up to %" PRIu64,
				   op_index, rank, absent, r);
		if (c->count == 0)
			continue;
		if (c->first_step < next || (accumulate && *whole && c->first_step != next))
			laws_break(trial,
				   "conservation: operation %u, round %" PRIu64 ": step %" PRIu64
				   " of rank %u, where %" PRIu64 " comes next",
				   op_index, r, c->first_step, rank, next);
		next = c->last_step + 1;
		*delivered += c->count;
	}
	return next;
}

static void judge_rank(struct laws_trial *trial, uint32_t op_index, uint32_t rank)
{
	struct laws_op *op = &trial->ops[op_index];
	const rubato_partial_stats *stats = &op->stats[rank];
	bool accumulate = op->options.late == RUBATO_LATE_ACCUMULATE, whole;
	uint64_t delivered, next = judge_chain(trial, op_index, rank, &delivered, &whole);

	if (!whole && op->options.collection == RUBATO_COLLECT_EACH)
		laws_break(trial, "operation %u: a round was collected by nobody", op_index);
	if (rank == trial->leaver || laws_victim(trial, rank) ||
	    (!op->drained[rank] && !op->ended[rank]))
		return; /* Its figures are of the moment it left, or crashed. */
	if (stats->committed != op->committed[rank] ||
	    stats->committed != stats->delivered + stats->discarded + stats->pending)
		laws_break(trial,
			   "conservation: operation %u: rank %u committed %" PRIu64
			   ", by its own count %" PRIu64 " = %" PRIu64 " delivered + %" PRIu64
			   " discarded + %" PRIu64 " pending",
			   op_index, rank, op->committed[rank], stats->committed, stats->delivered,
			   stats->discarded, stats->pending);
	if (accumulate && stats->discarded > 0)
		laws_break(trial,
			   "operation %u: rank %u discarded %" PRIu64 " though late ones "
			   "accumulate",
			   op_index, rank, stats->discarded);
	/* Elsewhere nobody may have collected the last rounds. */
	if (whole && op->options.collection == RUBATO_COLLECT_EACH && stats->delivered != delivered)
		laws_break(trial,
			   "conservation: operation %u: rank %u delivered %" PRIu64
			   ", the rounds hold %" PRIu64,
			   op_index, rank, stats->delivered, delivered);
	if (op->drained[rank] && !op->ended[rank] && stats->pending > 0)
		laws_break(trial, "operation %u: rank %u has drained, and %" PRIu64 " are pending",
			   op_index, rank, stats->pending);
	if (op->ended[rank] && stats->pending != op->pending_count[rank])
		laws_break(trial,
			   "recovery: operation %u: rank %u has %" PRIu64
			   " pending, was given back %u",
			   op_index, rank, stats->pending, op->pending_count[rank]);
	if (op->ended[rank] && accumulate && whole && op->round_end >= stats->rounds &&
	    op->pending_count[rank] > 0 && op->pending_first[rank] != next)
		laws_break(trial,
			   "recovery: operation %u: rank %u was given back steps from %" PRIu64
			   ", where %" PRIu64 " comes next",
			   op_index, rank, op->pending_first[rank], next);
}

/* Survivors of a crash have completed the same rounds, all that anybody has collected. */
static void judge_recovery(struct laws_trial *trial, uint32_t op_index)
{
	struct laws_op *op = &trial->ops[op_index];
	uint32_t first = LAWS_NONE;

	for (uint32_t r = 0; r < trial->world.rank_count; r++) {
		if (!op->ended[r] || laws_victim(trial, r))
			continue;
		first = first == LAWS_NONE ? r : first;
		if (op->stats[r].rounds != op->stats[first].rounds &&
		    op->options.policy != RUBATO_POLICY_WAGMA)
			laws_break(trial,
				   "recovery: operation %u ends after %" PRIu64
				   " rounds at rank %u, %" PRIu64 " at rank %u",
				   op_index, op->stats[first].rounds, first, op->stats[r].rounds,
				   r);
	}
	for (uint32_t r = 0; r < trial->world.rank_count && first != LAWS_NONE; r++) {
		bool survived = (op->ended[r] || op->drained[r]) && !laws_victim(trial, r);

		if (survived && op->collected[r] > op->stats[first].rounds &&
		    op->options.policy != RUBATO_POLICY_WAGMA)
			laws_break(trial,
				   "recovery: operation %u: rank %u has collected %" PRIu64
				   " rounds, the survivors end after %" PRIu64,
				   op_index, r, op->collected[r], op->stats[first].rounds);
	}
}

void laws_judge(struct laws_trial *trial, rubato_status status, const rubato_sim_result *result)
{
	bool crash = trial->kinds[RUBATO_SIM_CRASH] > 0;
	/* A cut fires when it finds a message to hold back: that is up to chance. */
	uint32_t must = trial->kinds[RUBATO_SIM_CRASH] + trial->kinds[RUBATO_SIM_FREEZE];

	if (status != RUBATO_OK && !(crash && status == RUBATO_ERR_PEER))
		laws_break(trial, "progress: rank %u: %s", result->failed_rank,
			   rubato_error_text());
	if (result->faults_fired < must)
		laws_break(trial, "%u of %u faults fired", result->faults_fired, must);
	for (uint32_t op = 0; op < trial->op_count && !trial->lagged; op++) {
		for (uint32_t r = 0; r < trial->world.rank_count; r++)
			judge_rank(trial, op, r);
		judge_recovery(trial, op);
	}
}
