/*
 * laws_see.c -- a round as a rank is given it: is it this rank's turn, does it hold what it names,
 * is it the same as for everybody else? What only the whole history can tell is in laws_judge.c and
 * laws_rounds.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "programs/options.h"
#include "tools/laws/laws.h"
#include "tools/sim/sim.h"

struct laws_round *laws_round_of(struct laws_op *op, uint64_t number)
{
	while (number >= op->round_room) {
		uint64_t room = op->round_room > 0 ? 2 * op->round_room : 64;
		struct laws_round *rounds = realloc(op->rounds, room * sizeof(*rounds));

		if (rounds == NULL)
			option_fail(SIM, "out of memory");
		memset(rounds + op->round_room, 0, (room - op->round_room) * sizeof(*rounds));
		op->rounds = rounds;
		op->round_room = room;
	}
	if (number >= op->round_end)
		op->round_end = number + 1;
	return &op->rounds[number];
}

uint32_t laws_index_of(const struct laws_op *op, uint32_t rank, uint64_t step)
{
	const struct laws_rank *side = &op->ranks[rank];
	uint32_t low = 0, high = side->commit_count;

	while (low < high) { /* They grow. */
		uint32_t middle = (low + high) / 2;

		if (side->commits[middle].step < step)
			low = middle + 1;
		else
			high = middle;
	}
	return low < side->commit_count && side->commits[low].step == step ? low : LAWS_NONE;
}

/* ---- What it names ---- */

/* The contributions of a rank in it: they follow each other. False: it names others. */
static bool part_of(const struct laws_op *op, uint32_t rank, const rubato_contribution *c,
		    struct laws_part *part)
{
	uint32_t first = laws_index_of(op, rank, c->first_step);
	uint32_t last = laws_index_of(op, rank, c->last_step);

	*part = (struct laws_part) { rank, first, c->count };
	return first != LAWS_NONE && last != LAWS_NONE && last - first + 1 == c->count;
}

static void see_part(const struct laws_op *op, uint32_t rank, const rubato_round *round)
{
	const rubato_contribution *c = &round->ranks[rank];
	struct laws_part part;
	uint64_t weight = 0;

	if (c->fresh > 1 || c->member > 1 || c->reserved != 0)
		laws_break_round(op, NULL, round->round, ": flags of rank %u", rank);
	if (c->count == 0) {
		if (c->weight != 0)
			laws_break_round(op, NULL, round->round,
					 ": rank %u has a weight of nothing", rank);
		return;
	}
	if (!part_of(op, rank, c, &part)) {
		laws_break_round(op, "conservation", round->round,
				 " names numbers %" PRIu64 " to %" PRIu64
				 " (%u) of rank %u, which has committed others",
				 c->first_step, c->last_step, c->count, rank);
		return;
	}
	for (uint32_t k = 0; k < part.count; k++)
		weight += op->ranks[rank].commits[part.first + k].weight;
	if (weight != c->weight)
		laws_break_round(op, NULL, round->round,
				 ": rank %u weighs %" PRIu64 ", not %" PRIu64, rank, c->weight,
				 weight);
}

static void see_sums(const struct laws_op *op, const rubato_round *round)
{
	uint32_t contributors = 0, fresh = 0;
	uint64_t weight = 0;

	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		const rubato_contribution *c = &round->ranks[r];

		see_part(op, r, round);
		contributors += c->member && c->count > 0;
		fresh += c->member && c->fresh;
		weight += c->member ? c->weight : 0;
	}
	if (contributors != round->contributors || fresh != round->fresh || weight != round->weight)
		laws_break_round(op, NULL, round->round, ": its sums are not its records'");
}

/* ---- What it is divided by ---- */

static void see_divisor(const struct laws_op *op, const rubato_round *round)
{
	uint32_t members = 0, least = 0, most = 0;
	double want = 1;

	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		enum laws_maybe left = laws_had_left(op, r, round->round);

		members += round->ranks[r].member;
		least += round->ranks[r].member && left == LAWS_NO;
		most += round->ranks[r].member && left != LAWS_YES;
	}
	if (op->reduction == RUBATO_AVG)
		switch (op->options.normalise) {
		case RUBATO_BY_RANKS:
			want = members;
			break;
		case RUBATO_BY_CONTRIBUTORS:
			want = round->contributors;
			break;
		case RUBATO_BY_WEIGHT:
			want = (double)round->weight;
			break;
		case RUBATO_BY_REMAINING: /* All ranks must say the same: it is in the digest. */
			want = round->divisor == (double)most ? most : least;
			break;
		}
	want = want > 0 ? want : 1;
	if (round->divisor != want)
		laws_break_round(op, NULL, round->round, " is divided by %g, not %g",
				 round->divisor, want);
}

static void see_result(const struct laws_op *op, uint32_t rank, const void *result,
		       const rubato_round *round)
{
	struct laws_part parts[LAWS_RANKS_MAX];
	uint32_t count = 0;
	uint64_t at;

	for (uint32_t r = 0; r < op->trial->world.rank_count; r++)
		if (round->ranks[r].member && round->ranks[r].count > 0 &&
		    part_of(op, r, &round->ranks[r], &parts[count]))
			count++;
	if (!laws_result_right(op, parts, count, round->divisor, result, &at))
		laws_break_round(op, "conservation", round->round,
				 ", element %" PRIu64
				 " at rank %u is not the reduction of what the round names",
				 at, rank);
}

/* ---- Whether all see the same ---- */

static uint64_t digest_of(const rubato_round *round, uint32_t n, bool grouped)
{
	uint64_t words[8] = { round->round, round->discarded };
	uint64_t digest;

	if (!grouped) {
		words[2] = round->contributors;
		words[3] = round->fresh;
		words[4] = round->weight;
		words[5] = round->staleness_min;
		words[6] = round->staleness_max;
		memcpy(&words[7], &round->divisor, sizeof(words[7]));
	}
	digest = laws_digest(words, sizeof(words));
	for (uint32_t r = 0; r < n; r++) {
		rubato_contribution c = round->ranks[r];

		c.member = grouped ? 0 : c.member;
		if (c.count == 0)
			c.first_step = c.last_step = 0;
		digest = rng_mix(digest ^ laws_digest(&c, sizeof(c)));
	}
	return digest;
}

/* Wagma: those who are in one group say so of each other, and have the same. */
static void see_group(const struct laws_op *op, struct laws_round *seen, uint32_t rank,
		      const rubato_round *round, uint64_t digest)
{
	uint32_t n = op->trial->world.rank_count;

	if (seen->digests == NULL) {
		seen->digests = calloc(n, sizeof(*seen->digests));
		seen->groups = calloc(n, sizeof(*seen->groups));
	}
	if (seen->digests == NULL || seen->groups == NULL)
		option_fail(SIM, "out of memory");
	seen->digests[rank] = digest;
	for (uint32_t r = 0; r < n; r++)
		seen->groups[rank] |= (uint64_t)(round->ranks[r].member != 0) << r;
	for (uint32_t r = 0; r < n; r++)
		if (seen->digests[r] != 0 && seen->digests[r] != digest && round->ranks[r].member)
			laws_break_round(op, "agreement", round->round,
					 ": ranks %u and %u of one group differ", rank, r);
}

static uint64_t group_digest(const struct laws_op *op, const void *result,
			     const rubato_round *round, uint32_t n)
{
	uint64_t words[7] = {
		round->contributors,
		round->fresh,
		round->weight,
		round->staleness_min,
		round->staleness_max,
		laws_digest(result, (size_t)op->count * rubato_type_bytes(op->type))
	};
	uint64_t digest;

	memcpy(&words[6], &round->divisor, sizeof(words[6]));
	digest = laws_digest(words, sizeof(words));
	for (uint32_t r = 0; r < n; r++)
		digest = rng_mix(digest ^ round->ranks[r].member);
	return digest | 1;
}

/* ---- Whose turn it is ---- */

static void see_order(struct laws_op *op, uint32_t rank, uint64_t number)
{
	struct laws_rank *side = &op->ranks[rank];
	bool each = op->options.collection == RUBATO_COLLECT_EACH && !side->left;

	if (each ? number != side->next : number < side->next)
		laws_break_rank(op, "order", rank,
				" is given round %" PRIu64 ", where %" PRIu64 " comes next", number,
				side->next);
	side->next = number + 1;
	for (uint32_t r = 0; r < op->trial->world.rank_count; r++) {
		const struct laws_rank *other = &op->ranks[r];

		/* What is lent is not released; rubato_partial_collect has released a round before
		 * we see it. */
		if (op->options.collection == RUBATO_COLLECT_EACH && !other->left &&
		    !other->freed && !laws_victim(op->trial, r) &&
		    number + 1 + other->holds > other->next + op->depth + op->trial->convenient)
			laws_break(op->trial,
				   "staleness: operation %u: round %" PRIu64
				   " is complete, rank %u has had %" PRIu64 ", depth %u",
				   op->index, number, r, other->next, op->depth);
	}
}

void laws_note(struct laws_op *op, uint32_t rank, const struct laws_collect *collect)
{
	struct laws_rank *side = &op->ranks[rank];
	struct laws_collect *noted;

	side->collects = laws_grow(side->collects, side->collect_count, &side->collect_room,
				   sizeof(*side->collects));
	noted = &side->collects[side->collect_count++];
	*noted = *collect;
	noted->era = side->era;
	noted->committed = side->commit_count;
	noted->flushing = side->drains || side->left;
}

static void first_seen(struct laws_trial *trial, struct laws_round *seen, const rubato_round *round,
		       uint64_t digest, uint64_t now_ns)
{
	uint32_t n = trial->world.rank_count;

	seen->known = true;
	seen->digest = digest;
	seen->first_ns = now_ns;
	seen->seen = *round;
	seen->ranks = malloc(n * sizeof(*seen->ranks));
	if (seen->ranks == NULL)
		option_fail(SIM, "out of memory");
	memcpy(seen->ranks, round->ranks, n * sizeof(*seen->ranks));
	seen->seen.ranks = seen->ranks;
}

void laws_see(struct laws_op *op, uint32_t rank, const void *result, const rubato_round *round,
	      uint64_t now_ns)
{
	struct laws_round *seen = laws_round_of(op, round->round);
	uint32_t n = op->trial->world.rank_count;
	bool grouped = op->options.policy == RUBATO_POLICY_WAGMA, first = !seen->known;
	uint64_t digest = digest_of(round, n, grouped);
	uint64_t of_result =
		grouped ? 0 : laws_digest(result, (size_t)op->count * rubato_type_bytes(op->type));

	op->trial->rounds++;
	see_order(op, rank, round->round);
	digest = rng_mix(digest ^ of_result);
	if (first)
		first_seen(op->trial, seen, round, digest, now_ns);
	else if (seen->digest != digest)
		laws_break_round(op, "agreement", round->round,
				 " at rank %u is another than before", rank);
	if (first || grouped) {
		see_sums(op, round);
		see_divisor(op, round);
		see_result(op, rank, result, round);
	}
	if (grouped)
		see_group(op, seen, rank, round, group_digest(op, result, round, n));
}
