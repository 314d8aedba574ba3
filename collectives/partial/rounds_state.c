/*
 * rounds_state.c -- what a drained machine hands on to another one, perhaps in a later job.
 *
 * Between eras nothing is on its way, so little is left to say: the number of the next round, and
 * what policies count from round to round. All of that follows from records, and is the same on all
 * ranks; only the counts of contributions are a rank's own. It is written down when the era ends:
 * others may have begun the next one before this rank asks.
 */
#include <string.h>

#include "collectives/partial/rounds_inside.h"

/* Alike on all ranks. */
enum word {
	WORD_ROUND,
	WORD_TURN,
	WORD_LAST_TURN,
	WORD_LAST_FULL,
	WORD_FULL_ROUNDS,
	WORD_ADAPTIVE /* Its words, where the policy is that. */
};
/* The rank's own: what it committed, and what became of it. */
enum own { OWN_COMMITTED, OWN_DELIVERED, OWN_DISCARDED, OWN_MERGED, OWN_LAST_STEP, OWN_WORDS };

size_t rb_rounds_common_words(const struct rb_rounds_config *config)
{
	bool adaptive = rb_rounds_policy_of(config)->learns;

	return WORD_ADAPTIVE + (adaptive ? rb_adaptive_words(rb_rounds_member_count(config)) : 0);
}

size_t rb_rounds_state_words(const struct rb_rounds_config *config)
{
	return rb_rounds_common_words(config) + OWN_WORDS;
}

void rb_rounds_cut(struct rb_rounds *m)
{
	uint64_t *words = m->era.cut, *own = words + rb_rounds_common_words(&m->config);

	m->era.cut_whole = true;
	for (uint32_t r = 0; r < m->config.rank_count; r++)
		m->era.cut_whole &= m->ranks.passive[r] == 0;
	words[WORD_ROUND] = m->round;
	words[WORD_TURN] = m->groups.turn;
	words[WORD_LAST_TURN] = m->groups.last_turn;
	words[WORD_LAST_FULL] = m->groups.last_full;
	words[WORD_FULL_ROUNDS] = m->counts.full_rounds;
	if (m->ranks.adaptive != NULL)
		rb_adaptive_save(m->ranks.adaptive, words + WORD_ADAPTIVE);
	own[OWN_COMMITTED] = m->counts.committed;
	own[OWN_DELIVERED] = m->counts.delivered;
	own[OWN_DISCARDED] = m->counts.discarded;
	own[OWN_MERGED] = m->counts.merged;
	own[OWN_LAST_STEP] = m->counts.last_step;
}

bool rb_rounds_is_between_eras(const struct rb_rounds *m)
{
	bool told = m->results.limit == RB_ROUNDS_NEVER && m->results.lent == RB_ROUNDS_NO_SLOT &&
		    m->results.next == m->era.cut[WORD_ROUND];
	bool goes_on = m->era.begun || m->era.flags != 0; /* Here: others may. */

	return m->era.cut_whole && told && !goes_on && !rb_rounds_is_over(m);
}

bool rb_rounds_save(const struct rb_rounds *m, uint64_t *words)
{
	if (!rb_rounds_is_between_eras(m))
		return false;
	memcpy(words, m->era.cut, rb_rounds_state_words(&m->config) * sizeof(*words));
	return true;
}

rubato_status rb_rounds_restore(struct rb_rounds *m, const uint64_t *words)
{
	const uint64_t *own = words + rb_rounds_common_words(&m->config);

	if (words[WORD_ROUND] > UINT64_MAX / 2 / RB_ROUNDS_RUNS ||
	    own[OWN_COMMITTED] != own[OWN_DELIVERED] + own[OWN_DISCARDED])
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: impossible numbers");
	if (m->ranks.adaptive != NULL &&
	    !rb_adaptive_restore(m->ranks.adaptive, words + WORD_ADAPTIVE))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: an impossible history");
	m->round = m->numbers.base_round = m->results.next = m->results.caught_up =
		words[WORD_ROUND];
	m->groups.turn = words[WORD_TURN];
	m->groups.last_turn = words[WORD_LAST_TURN];
	m->groups.last_full = words[WORD_LAST_FULL] != 0;
	m->counts.full_rounds = words[WORD_FULL_ROUNDS];
	m->counts.committed = own[OWN_COMMITTED];
	m->counts.delivered = own[OWN_DELIVERED];
	m->counts.discarded = own[OWN_DISCARDED];
	m->counts.merged = own[OWN_MERGED];
	m->counts.last_step = own[OWN_LAST_STEP];
	m->config.options.state = NULL; /* The caller's. */
	m->era.is_first = m->numbers.based = m->era.begun = false;
	rb_rounds_cut(m);
	rb_rounds_round_prepare(m);
	return RUBATO_OK;
}
