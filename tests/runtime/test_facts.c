/* test_facts.c -- who is a node, by what ranks say of whom they map. */
#include <string.h>

#include "base/rng.h"
#include "runtime/facts.h"
#include "tests/check_main.h"

#define RANKS 12

/* maps[a] has bit b where rank a maps rank b; a rank always maps itself. */
static void name(const uint32_t *maps, uint32_t n, uint32_t *name_of)
{
	struct rb_mapped_set sets[RANKS], found[RANKS];

	for (uint32_t r = 0; r < n; r++) {
		sets[r] = (struct rb_mapped_set) { .lowest = UINT32_MAX };
		for (uint32_t s = n; s-- > 0;) {
			if (s != r && !(maps[r] >> s & 1))
				continue;
			sets[r].lowest = s;
			sets[r].count++;
			sets[r].hash += rb_mapped_hash(s);
		}
	}
	rb_nodes_name(sets, n, name_of, found);
}

static void expect(const uint32_t *maps, uint32_t n, const uint32_t *names)
{
	uint32_t name_of[RANKS];

	name(maps, n, name_of);
	for (uint32_t r = 0; r < n; r++)
		ck_assert_msg(name_of[r] == names[r], "rank %u is of node %u, not %u", r,
			      name_of[r], names[r]);
}

START_TEST(those_who_map_each_other_are_a_node)
{
	expect((const uint32_t[]) { 0x3, 0x3, 0xc, 0xc }, 4, (const uint32_t[]) { 0, 0, 2, 2 });
	expect((const uint32_t[]) { 0x5, 0xa, 0x5, 0xa }, 4, (const uint32_t[]) { 0, 1, 0, 1 });
	expect((const uint32_t[]) { 0, 0, 0 }, 3, (const uint32_t[]) { 0, 1, 2 });
	expect((const uint32_t[]) { 1 }, 1, (const uint32_t[]) { 0 });
}
END_TEST

/* One way only, or not all: nobody of them is trusted. The others keep theirs. */
START_TEST(those_who_do_not_agree_stand_alone)
{
	expect((const uint32_t[]) { 0x3, 0x2, 0xc, 0xc }, 4, (const uint32_t[]) { 0, 1, 2, 2 });
	expect((const uint32_t[]) { 0x3, 0x7, 0x6, 0x18, 0x18 }, 5,
	       (const uint32_t[]) { 0, 1, 2, 3, 3 });
	expect((const uint32_t[]) { 0x3, 0x7, 0x7 }, 3, (const uint32_t[]) { 0, 1, 2 });
}
END_TEST

/* Whatever is mapped: two ranks share a name only if they map the same ranks, each other among
 * them, and are all of these. */
START_TEST(any_relation_gives_nodes)
{
	struct rb_rng rng = { 5 };
	uint32_t shared = 0;

	for (int i = 0; i < 200000; i++) {
		uint32_t n = 1 + (uint32_t)rb_rng_below(&rng, 6), maps[RANKS], name_of[RANKS];
		uint32_t group = (uint32_t)rb_rng_below(&rng, 1u << n);

		for (uint32_t r = 0; r < n; r++) {
			maps[r] = (group >> r & 1 ? group : ~group) & ((1u << n) - 1);
			if (rb_rng_below(&rng, 4) == 0)
				maps[r] ^= 1u << rb_rng_below(&rng, n);
			maps[r] |= 1u << r;
		}
		name(maps, n, name_of);
		for (uint32_t a = 0; a < n; a++) {
			uint32_t members = 0;

			ck_assert_uint_lt(name_of[a], n);
			for (uint32_t b = 0; b < n; b++)
				members |= (uint32_t)(name_of[b] == name_of[a]) << b;
			if (members == 1u << a)
				continue;
			shared++;
			ck_assert_uint_eq(maps[a], members);
		}
	}
	ck_assert_uint_gt(shared, 100000);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("facts");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, those_who_map_each_other_are_a_node);
	tcase_add_test(tc, those_who_do_not_agree_stand_alone);
	tcase_add_test(tc, any_relation_gives_nodes);
	return check_main("facts", tc);
}
