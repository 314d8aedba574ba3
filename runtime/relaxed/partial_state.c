/*
 * partial_state.c -- what a drained partial allreduce hands on to another one (rubato_partial_save,
 * options.state): a head, the machine's words, and a checksum of both; and beside it what its
 * rounding has lost.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/relaxed/partial.h"

struct head {
	char magic[8];
	uint32_t rank_count, policy; /* policy: and whom it counts. */
};
static const char magic[8] = "RBPART1";

static uint32_t policy_word(const rubato_partial_options *o)
{
	return (uint32_t)o->policy | (uint32_t)o->members << 16;
}

static size_t machine_bytes(const struct rubato_partial *p)
{
	return rb_rounds_state_words(&p->config) * sizeof(uint64_t);
}

static size_t state_bytes(const struct rubato_partial *p)
{
	return sizeof(struct head) + machine_bytes(p) + sizeof(uint64_t);
}

static uint64_t checksum(const void *bytes, size_t size_bytes) /* FNV-1a. */
{
	const uint8_t *at = bytes;
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < size_bytes; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash;
}

/* ---- Save ---- */

static rubato_status save(struct rubato_partial *p, void *state)
{
	size_t bytes = state_bytes(p), before = bytes - sizeof(uint64_t);
	struct head head = { .rank_count = p->config.rank_count,
			     .policy = policy_word(&p->config.options) };
	uint64_t *words = calloc(1, machine_bytes(p));
	uint8_t *at = state;
	uint64_t sum;

	if (words == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial save: %zu bytes", bytes);
	if (!rb_rounds_save(p->machine, words)) {
		free(words);
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial save: all ranks drain, and this one collects all");
	}
	memcpy(head.magic, magic, sizeof(magic));
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), words, machine_bytes(p));
	sum = checksum(state, before);
	memcpy(at + before, &sum, sizeof(sum));
	free(words);
	return RUBATO_OK;
}

rubato_status rubato_partial_save(rubato_partial *p, void *state, uint64_t *bytes)
{
	rubato_status err;
	uint64_t room;

	if (p == NULL || bytes == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial save: NULL");
	RB_TRY(rb_engine_ours(&p->comm->engine));
	room = *bytes;
	*bytes = state_bytes(p);
	if (state == NULL)
		return RUBATO_OK;
	if (room < *bytes)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial save: room for %llu bytes, of %llu that are needed",
			       (unsigned long long)room, (unsigned long long)*bytes);
	rb_engine_enter(&p->comm->engine);
	if (p->comm->engine.poison != RUBATO_OK)
		err = RB_FAIL(p->comm->engine.poison, "%s", p->comm->engine.poison_text);
	else
		err = save(p, state);
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* ---- What rounding has lost ---- */

static rubato_status residual_check(const struct rubato_partial *p)
{
	const rubato_partial_options *o = &p->config.options;
	struct rb_rounds_view view = rb_rounds_view_of(p->machine);
	bool fresh = view.committed == 0 && !view.draining && !view.left;

	if (p->comm->engine.poison != RUBATO_OK)
		return RB_FAIL(p->comm->engine.poison, "%s", p->comm->engine.poison_text);
	if (o->wire == RUBATO_WIRE_SAME || !o->feedback)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial residual: nothing is fed back");
	if (!fresh && !rb_rounds_is_between_eras(p->machine))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial residual: all ranks drain, and this one collects all");
	return RUBATO_OK;
}

rubato_status rubato_partial_residual(rubato_partial *p, float **residual, uint64_t *count)
{
	rubato_status err;

	if (p == NULL || residual == NULL || count == NULL)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial residual: NULL");
	RB_TRY(rb_engine_call(&p->comm->engine));
	err = residual_check(p);
	if (err == RUBATO_OK) {
		*residual = p->coded.reduction.residual;
		*count = p->coded.reduction.residual_count;
	}
	rb_engine_leave(&p->comm->engine);
	return err;
}

/* ---- Take ---- */

static rubato_status check(const struct rubato_partial *p)
{
	const rubato_partial_options *o = &p->config.options;
	size_t before = state_bytes(p) - sizeof(uint64_t);
	struct head head;
	uint64_t sum;

	if (o->state == NULL || o->state_bytes < sizeof(head))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: %llu bytes are none",
			       (unsigned long long)o->state_bytes);
	memcpy(&head, o->state, sizeof(head));
	if (memcmp(head.magic, magic, sizeof(magic)) != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: not of this version");
	if (head.rank_count != p->config.rank_count || head.policy != policy_word(o))
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "partial: state: of policy %u, members %u on %u ranks, not %u, "
			       "members %u on %u",
			       head.policy & 0xffff, head.policy >> 16, head.rank_count,
			       (uint32_t)o->policy, (uint32_t)o->members, p->config.rank_count);
	if (o->state_bytes == before + sizeof(sum)) {
		memcpy(&sum, (const uint8_t *)o->state + before, sizeof(sum));
		if (sum == checksum(o->state, before))
			return RUBATO_OK;
	}
	return RB_FAIL(RUBATO_ERR_ARGUMENT, "partial: state: damaged, or cut short");
}

static rubato_status take(struct rubato_partial *p, uint64_t *words)
{
	const uint8_t *at = p->config.options.state;

	memcpy(words, at + sizeof(struct head), machine_bytes(p));
	RB_TRY(rb_rounds_restore(p->machine, words));
	p->state_hash = checksum(words, rb_rounds_common_words(&p->config) * sizeof(*words));
	return RUBATO_OK;
}

rubato_status rb_partial_state_take(struct rubato_partial *p)
{
	uint64_t *words;
	rubato_status err;

	if (p->config.options.state == NULL && p->config.options.state_bytes == 0)
		return RUBATO_OK;
	RB_TRY(check(p));
	words = calloc(1, machine_bytes(p));
	if (words == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: %zu bytes of state", machine_bytes(p));
	err = take(p, words);
	free(words);
	return err;
}
