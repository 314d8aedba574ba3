/* test_copy.c -- copies across cores are copies: all of it, and nothing beside it. */
#include <stdint.h>
#include <string.h>

#include "base/copy.h"
#include "tests/check_main.h"

#define ROOM (RB_COPY_STRING_END + 256)

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 7 + i / 251 + 1);
}

START_TEST(copies_are_whole)
{
	static const size_t around[] = { 0, 1, 63, RB_COPY_STRING_MIN, RB_COPY_STRING_END };
	static const size_t offsets[] = { 0, 1, 8, 63 };
	static uint8_t from[ROOM + 64], to[ROOM + 64];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = byte_at(i);
	for (size_t s = 0; s < 15; s++) {
		size_t size = around[s / 3] + s % 3 - 1, f = offsets[s % 4], t = offsets[s / 4];

		if (size > ROOM)
			continue; /* One less than none. */
		memset(to, 0, sizeof(to));
		rb_copy_across()(to + t, from + f, size);
		for (size_t i = 0; i < sizeof(to); i++)
			ck_assert_uint_eq(to[i], i < t || i >= t + size ? 0 : byte_at(i - t + f));
	}
}
END_TEST

/* What was measured: below, and from there on, memcpy is as fast or faster. */
START_TEST(strings_are_for_some_lengths)
{
	ck_assert(!rb_copy_by_string(0) && !rb_copy_by_string(767));
	ck_assert(rb_copy_by_string(768) && rb_copy_by_string(8191));
	ck_assert(!rb_copy_by_string(8192) && !rb_copy_by_string(SIZE_MAX));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("copy");

	tcase_add_test(tc, copies_are_whole);
	tcase_add_test(tc, strings_are_for_some_lengths);
	return check_main("base", tc);
}
