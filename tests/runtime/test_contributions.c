/* test_contributions.c -- who had what in a result, packed and read again: as it was, whoever has
 * something, and however large the numbers are; and small where little is in it. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "runtime/relaxed/contributions.h"
#include "tests/check_main.h"
#include "tests/length.h"

#define RANKS_MAX 300

static uint64_t number_draw(struct rb_rng *rng)
{
	uint64_t n = rb_rng_next(rng);

	return n >> (n % 64);
}

static struct rb_rounds_record record_draw(struct rb_rng *rng, uint64_t kind)
{
	struct rb_rounds_record r = {
		.base_step = rb_rng_next(rng),
		.duration_ns = rb_rng_next(rng),
		.flags = (uint32_t)(rb_rng_next(rng) & ~(uint64_t)RB_ROUNDS_FRESH),
	};

	if (kind == 0)
		return r;
	r.first_step = kind == 1 ? 77 : number_draw(rng);
	r.last_step = r.first_step;
	if (kind > 2 && r.first_step < UINT64_MAX / 2)
		r.last_step += number_draw(rng) / 2;
	r.count = kind <= 2 ? 1 : (uint32_t)number_draw(rng);
	r.weight = kind == 1 ? 5 : number_draw(rng);
	r.flags |= rb_rng_next(rng) % 2 ? RB_ROUNDS_FRESH : 0;
	return r;
}

/* Bytes that they took; `sparse`: one rank in so many has something. */
static size_t try(uint64_t seed, uint32_t n, uint32_t sparse, uint64_t kinds)
{
	struct rb_rounds_record records[RANKS_MAX];
	rubato_contribution read[RANKS_MAX];
	uint32_t members[RANKS_MAX], member_count = 0;
	bool member[RANKS_MAX];
	struct rb_rng rng = { seed };
	bool all = rb_rng_next(&rng) % 2 == 0;
	struct rb_contributions c;

	for (uint32_t r = 0; r < n; r++) {
		bool some = rb_rng_next(&rng) % sparse == 0;

		records[r] = record_draw(&rng, some ? 1 + rb_rng_next(&rng) % kinds : 0);
		member[r] = all || rb_rng_next(&rng) % 4 == 0;
		if (member[r])
			members[member_count++] = r;
	}
	ck_assert_int_eq(rb_contributions_init(&c, n), RUBATO_OK);
	rb_contributions_write(&c, records, members, member_count);
	memset(read, 0xa5, sizeof(read));
	rb_contributions_read(&c, read);
	for (uint32_t r = 0; r < n; r++) {
		const struct rb_rounds_record *from = &records[r];
		const rubato_contribution *to = &read[r];

		ck_assert_msg(to->count == from->count &&
				      to->fresh == ((from->flags & RB_ROUNDS_FRESH) != 0) &&
				      to->member == member[r] && to->reserved == 0 &&
				      to->weight == (from->count > 0 ? from->weight : 0) &&
				      to->first_step == (from->count > 0 ? from->first_step : 0) &&
				      to->last_step == (from->count > 0 ? from->last_step : 0),
			      "seed %llu, %u ranks: rank %u differs", (unsigned long long)seed, n,
			      r);
	}
	ck_assert_uint_eq(((uint8_t *)&read[n])[-1], 0);
	if (n < RANKS_MAX)
		ck_assert_uint_eq(*(uint8_t *)&read[n], 0xa5); /* And no more. */
	size_t used = c.used;

	rb_contributions_free(&c);
	return all ? used : 0;
}

START_TEST(they_are_read_as_they_were)
{
	uint64_t seeds = test_is_interpreted() ? 300 : 3000;

	for (uint64_t seed = 1; seed <= seeds; seed++)
		(void)try(seed, 1 + (uint32_t)(seed * 7 % RANKS_MAX), 1 + (uint32_t)(seed % 5), 3);
}
END_TEST

START_TEST(little_takes_little)
{
	size_t half = 0, few = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		size_t of_half = try(seed, 256, 2, 1), of_few = try(seed, 256, 64, 1);

		half = of_half > half ? of_half : half;
		few = of_few > few ? of_few : few;
	}
	ck_assert_uint_gt(few, 0);
	ck_assert_uint_lt(few, 60);
	ck_assert_uint_lt(half, 2 * 160 + 20);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("contributions");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, they_are_read_as_they_were);
	tcase_add_test(tc, little_takes_little);
	return check_main("contributions", tc);
}
