/*
 * rounds_state.c -- what a drained machine hands on to another one, perhaps in a later job.
 *
 * Between eras nothing is on its way, so little is left to say: the number of the next round, and
 * what policies count from round to round. All of that follows from records, and is the same on all
 * ranks; only the counts of contributions are a rank's own.
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
	bool adaptive = config->options.policy == RUBATO_POLICY_ADAPTIVE;

	return WORD_ADAPTIVE + (adaptive ? rb_adaptive_words(config->rank_count) : 0);
}

size_t rb_rounds_state_words(const struct rb_rounds_config *config)
{
	return rb_rounds_common_words(config) + OWN_WORDS;
}

bool rb_rounds_save(const struct rb_rounds *m, uint64_t *words)
{
	uint64_t *own = words + rb_rounds_common_words(&m->config);
	bool idle = m->phase == RB_ROUNDS_OPEN && m->pending.count == 0 && m->flags == 0 &&
		    m->live == m->config.rank_count;
	bool told = !m->first_era && m->limit == RB_ROUNDS_NEVER && m->next == m->round &&
		    m->lent == RB_ROUNDS_NO_SLOT;

	if (!idle || !told)
		return false;
	words[WORD_ROUND] = m->round;
	words[WORD_TURN] = m->turn;
	words[WORD_LAST_TURN] = m->last_turn;
	words[WORD_LAST_FULL] = m->last_full;
	words[WORD_FULL_ROUNDS] = m->full_rounds;
	if (m->adaptive != NULL)
		rb_adaptive_save(m->adaptive, words + WORD_ADAPTIVE);
	own[OWN_COMMITTED] = m->committed;
	own[OWN_DELIVERED] = m->delivered;
	own[OWN_DISCARDED] = m->discarded;
	own[OWN_MERGED] = m->merged;
	own[OWN_LAST_STEP] = m->last_step;
	return true;
}

rubato_status rb_rounds_restore(struct rb_rounds *m, const uint64_t *words)
{
	const uint64_t *own = words + rb_rounds_common_words(&m->config);

	if (words[WORD_ROUND] > UINT64_MAX / 2 / RB_ROUNDS_RUNS ||
	    own[OWN_COMMITTED] != own[OWN_DELIVERED] + own[OWN_DISCARDED])
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: impossible numbers");
	if (m->adaptive != NULL && !rb_adaptive_restore(m->adaptive, words + WORD_ADAPTIVE))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: an impossible history");
	m->round = m->base_round = m->next = m->caught_up = words[WORD_ROUND];
	m->turn = words[WORD_TURN];
	m->last_turn = words[WORD_LAST_TURN];
	m->last_full = words[WORD_LAST_FULL] != 0;
	m->full_rounds = words[WORD_FULL_ROUNDS];
	m->committed = own[OWN_COMMITTED];
	m->delivered = own[OWN_DELIVERED];
	m->discarded = own[OWN_DISCARDED];
	m->merged = own[OWN_MERGED];
	m->last_step = own[OWN_LAST_STEP];
	m->config.options.state = NULL; /* The caller's. */
	m->first_era = m->based = m->counted = false;
	rb_rounds_round_prepare(m);
	return RUBATO_OK;
}
