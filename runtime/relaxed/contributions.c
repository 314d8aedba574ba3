/*
 * contributions.c -- see contributions.h. An entry: how many ranks were left out before it, a byte
 * of flags, then what the flags do not say; numbers in groups of seven bits, the lowest first.
 */
#include "runtime/relaxed/contributions.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 10u /* At most: 64 bits. */
#define ENTRY_BYTES (5 * NUMBER_BYTES + 1)
#define FEW 4u /* Ranks. Guess. */
_Static_assert(sizeof(rubato_contribution) <= ENTRY_BYTES, "there is room for them as they are");

#define FRESH 1u
#define MEMBER 2u
#define ONE 4u          /* A single contribution. */
#define ONE_STEP 8u     /* The last step is the first. */
#define SAME_STEP 16u   /* The first step is that of the entry before. */
#define SAME_WEIGHT 32u /* Likewise. */

rubato_status rb_contributions_init(struct rb_contributions *c, uint32_t rank_count)
{
	*c = (struct rb_contributions) { .rank_count = rank_count, .members = true };
	c->bytes = malloc((size_t)rank_count * ENTRY_BYTES);
	if (c->bytes == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "partial: contributions of %u ranks", rank_count);
	return RUBATO_OK;
}

void rb_contributions_free(struct rb_contributions *c)
{
	free(c->bytes);
	c->bytes = NULL;
}

static uint8_t *number_write(uint8_t *at, uint64_t number)
{
	for (; number >= 128; number >>= 7)
		*at++ = (uint8_t)(number | 128);
	*at++ = (uint8_t)number;
	return at;
}

static const uint8_t *number_read(const uint8_t *at, uint64_t *number)
{
	uint32_t shift = 0;

	*number = 0;
	do {
		*number |= (uint64_t)(*at & 127) << shift;
		shift += 7;
	} while (*at++ & 128);
	return at;
}

struct before { /* What the entry before has. */
	uint64_t step, weight;
};

static uint8_t *entry_write(uint8_t *at, const struct rb_rounds_record *r, bool member,
			    struct before *before)
{
	uint64_t weight = r->count > 0 ? r->weight : 0;
	/* Without contributions its steps mean nothing. */
	uint64_t first = r->count > 0 ? r->first_step : before->step;
	uint64_t last = r->count > 0 ? r->last_step : first;
	uint8_t flags = (uint8_t)((r->flags & RB_ROUNDS_FRESH ? FRESH : 0) | (member ? MEMBER : 0) |
				  (r->count == 1 ? ONE : 0) | (last == first ? ONE_STEP : 0) |
				  (first == before->step ? SAME_STEP : 0) |
				  (weight == before->weight ? SAME_WEIGHT : 0));

	*at++ = flags;
	if (!(flags & ONE))
		at = number_write(at, r->count);
	if (!(flags & SAME_STEP))
		at = number_write(at, first);
	if (!(flags & ONE_STEP))
		at = number_write(at, last - first);
	if (!(flags & SAME_WEIGHT))
		at = number_write(at, weight);
	*before = (struct before) { first, weight };
	return at;
}

/* As they are: of few ranks. */
static rubato_contribution *plain(const struct rb_contributions *c)
{
	return (void *)c->bytes;
}

static inline rubato_contribution contribution_of(const struct rb_rounds_record *r, bool member)
{
	bool any = r->count > 0;

	return (rubato_contribution) { .first_step = any ? r->first_step : 0,
				       .last_step = any ? r->last_step : 0,
				       .weight = any ? r->weight : 0,
				       .count = r->count,
				       .fresh = (r->flags & RB_ROUNDS_FRESH) != 0,
				       .member = member };
}

void rb_contributions_write(struct rb_contributions *c, const struct rb_rounds_record *records,
			    const uint32_t *members, uint32_t member_count)
{
	struct before before = { 0 };
	uint8_t *at = c->bytes;
	uint32_t next = 0, position = 0;

	c->members = member_count == c->rank_count;
	for (uint32_t r = 0; r < c->rank_count; r++) {
		bool member = position < member_count && members[position] == r;

		position += member;
		if (c->rank_count <= FEW) {
			plain(c)[r] = contribution_of(&records[r], member);
			continue;
		}
		if (records[r].count == 0 && !(records[r].flags & RB_ROUNDS_FRESH) &&
		    member == c->members)
			continue;
		at = number_write(at, r - next);
		at = entry_write(at, &records[r], member, &before);
		next = r + 1;
	}
	c->used = (size_t)(at - c->bytes);
	RB_ASSERT(c->used <= (size_t)c->rank_count * ENTRY_BYTES);
}

static const uint8_t *entry_read(const uint8_t *at, rubato_contribution *out, struct before *before)
{
	uint8_t flags = *at++;
	uint64_t count = 1, last = 0;

	if (!(flags & ONE))
		at = number_read(at, &count);
	if (!(flags & SAME_STEP))
		at = number_read(at, &before->step);
	if (!(flags & ONE_STEP))
		at = number_read(at, &last);
	if (!(flags & SAME_WEIGHT))
		at = number_read(at, &before->weight);
	*out = (rubato_contribution) { .first_step = count > 0 ? before->step : 0,
				       .last_step = count > 0 ? before->step + last : 0,
				       .weight = before->weight,
				       .count = (uint32_t)count,
				       .fresh = (flags & FRESH) != 0,
				       .member = (flags & MEMBER) != 0 };
	return at;
}

void rb_contributions_read(const struct rb_contributions *c, rubato_contribution *out)
{
	const uint8_t *at = c->bytes, *end = c->bytes + c->used;
	struct before before = { 0 };
	uint32_t next = 0;

	for (; c->rank_count <= FEW && next < c->rank_count; next++)
		out[next] = plain(c)[next];
	while (next < c->rank_count) {
		uint64_t left_out = c->rank_count - next;

		if (at < end)
			at = number_read(at, &left_out);
		for (; left_out > 0; left_out--)
			out[next++] = (rubato_contribution) { .member = c->members };
		if (next < c->rank_count)
			at = entry_read(at, &out[next++], &before);
	}
}
