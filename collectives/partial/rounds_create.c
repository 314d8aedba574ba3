/* rounds_create.c -- what a machine is made of: its options checked, its memory cut into tables. */
#include <string.h>

#include "collectives/partial/rounds_inside.h"

static size_t part_bytes(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/* Only where it is asked: it is the largest part. */
static size_t adaptive_bytes(const struct rb_rounds_config *config)
{
	return rb_rounds_policy_of(config)->learns
		       ? part_bytes(rb_adaptive_bytes(rb_rounds_member_count(config)))
		       : 0;
}

size_t rb_rounds_bytes(const struct rb_rounds_config *config)
{
	size_t n = config->rank_count;

	return part_bytes(sizeof(struct rb_rounds)) +
	       part_bytes((rb_rounds_meets(config) ? 2 : 1) * n * sizeof(struct rb_rounds_record)) +
	       part_bytes(n * sizeof(struct rb_rounds_peer)) + adaptive_bytes(config) +
	       part_bytes(rb_rounds_slots(&config->options) * sizeof(uint64_t)) +
	       part_bytes(rb_rounds_state_words(config) * sizeof(uint64_t)) +
	       part_bytes(n * sizeof(uint32_t)) + part_bytes(n);
}

_Static_assert(sizeof(rubato_partial_options) == 104, "a field more: what is its range?");

/* Numbers of members. */
static rubato_status numbers_check(const struct rb_rounds_config *c)
{
	const rubato_partial_options *o = &c->options;
	uint32_t count = rb_rounds_member_count(c);
	const char *what = c->nodes != NULL ? "nodes" : "ranks";

	if (rb_rounds_policy_of(c)->bounded && (o->quorum == 0 || o->quorum > count))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "quorum %u of %u %s", o->quorum, count, what);
	if (!rb_rounds_policy_of(c)->grouped)
		return RUBATO_OK;
	if (o->group == 0 || count % o->group != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "group %u does not divide %u %s", o->group,
			       count, what);
	if (o->group < count && c->nodes != NULL && c->nodes->least * count != c->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT,
			       "groups of %u nodes: %u ranks lie unevenly on %u nodes", o->group,
			       c->rank_count, count);
	return RUBATO_OK;
}

static rubato_status config_check(const struct rb_rounds_config *c)
{
	const rubato_partial_options *o = &c->options;

	if (c->rank_count == 0 || c->rank >= c->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u of %u", c->rank, c->rank_count);
	if (c->rank_count > 1u << 30)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%u ranks", c->rank_count);
	if ((unsigned)o->policy >= RUBATO_POLICY_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "there is no policy %d; policies are 0 to %d",
			       (int)o->policy, RUBATO_POLICY_COUNT - 1);
	if ((unsigned)o->late > RUBATO_LATE_DROP)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "there is no late %d; it is 0 to %d",
			       (int)o->late, RUBATO_LATE_DROP);
	if ((unsigned)o->members > RUBATO_MEMBERS_NODES)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "there is no members %d; it is 0 or 1",
			       (int)o->members);
	if (c->few > RB_ROUNDS_MOST)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "few %u: %d is the most", c->few,
			       RB_ROUNDS_MOST);
	if (o->reserved != 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "reserved %u: it is 0", o->reserved);
	RB_TRY(numbers_check(c));
	if (rb_rounds_policy_of(c)->timed && o->deadline_ns > INT64_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "deadline_ns %llu is too far away",
			       (unsigned long long)o->deadline_ns);
	if (o->window_ns > INT64_MAX)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "window_ns %llu is too long",
			       (unsigned long long)o->window_ns);
	if (o->depth == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "depth 0: no result could be kept");
	return RUBATO_OK;
}

/* Cuts the memory behind the machine into its tables. */
static void tables_place(struct rb_rounds *m)
{
	size_t n = m->config.rank_count;
	uint8_t *at = (uint8_t *)m + part_bytes(sizeof(*m));

	m->exchange.records[0] = m->exchange.records[1] = (struct rb_rounds_record *)(void *)at;
	if (rb_rounds_meets(&m->config))
		m->exchange.records[1] += n;
	at += part_bytes((rb_rounds_meets(&m->config) ? 2 : 1) * n *
			 sizeof(struct rb_rounds_record));
	m->recovery.peers = (struct rb_rounds_peer *)(void *)at;
	at += part_bytes(n * sizeof(*m->recovery.peers));
	m->ranks.adaptive =
		adaptive_bytes(&m->config) > 0 ? (struct rb_adaptive *)(void *)at : NULL;
	at += adaptive_bytes(&m->config);
	m->results.kept = (uint64_t *)(void *)at;
	at += part_bytes(m->results.slot_count * sizeof(*m->results.kept));
	m->era.cut = (uint64_t *)(void *)at;
	at += part_bytes(rb_rounds_state_words(&m->config) * sizeof(*m->era.cut));
	m->ranks.absent = (uint32_t *)(void *)at;
	m->ranks.passive = at + part_bytes(n * sizeof(*m->ranks.absent));
}

rubato_status rb_rounds_init(struct rb_rounds *m, const struct rb_rounds_config *config)
{
	const rubato_partial_options *o = &config->options;
	bool aged = o->collection != RUBATO_COLLECT_LATEST;

	RB_TRY(config_check(config));
	memset(m, 0, rb_rounds_bytes(config));
	m->config = *config;
	m->results.slot_count = rb_rounds_slots(o);
	tables_place(m);
	for (uint32_t i = 0; i < m->results.slot_count; i++)
		m->results.kept[i] = RB_ROUNDS_NEVER;
	m->results.out = m->results.newest = m->results.lent = RB_ROUNDS_NO_SLOT;
	m->results.limit = RB_ROUNDS_NEVER;
	if (m->ranks.adaptive != NULL)
		rb_adaptive_init(m->ranks.adaptive, rb_rounds_member_count(config),
				 rb_rounds_is_free(m), aged ? o->depth : 0, o->quorum);
	while (m->opening.levels < 31 && 1u << m->opening.levels < rb_rounds_member_count(config))
		m->opening.levels++;
	m->era.is_first = m->numbers.based = true;
	rb_rounds_round_prepare(m);
	return RUBATO_OK;
}
