/* test_copy.c -- copies across cores are copies: all of it, and nothing beside it. Those of some
 * lengths are no call of memcpy, which the linker leads here. */
#include <stdint.h>
#include <string.h>

#include "base/copy.h"
#include "tests/check_main.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ROOM (RB_COPY_STRING_END + 256)

static uint32_t calls; /* Of memcpy. */

void *__real_memcpy(void *to, const void *from, size_t size_bytes);
void *__wrap_memcpy(void *to, const void *from, size_t size_bytes);

void *__wrap_memcpy(void *to, const void *from, size_t size_bytes)
{
	calls++;
	return __real_memcpy(to, from, size_bytes);
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 7 + i / 251 + 1);
}

/* Where `size` bytes from `f` on have gone to `t`, and all else is 0. One check for all: of each
 * Check writes to a file under ThreadSanitizer (check_main.h). */
static size_t wrong_bytes(const uint8_t *to, size_t to_bytes, size_t t, size_t f, size_t size)
{
	size_t wrong = 0;

	for (size_t i = 0; i < to_bytes; i++)
		wrong += to[i] != (i < t || i >= t + size ? 0 : byte_at(i - t + f));
	return wrong;
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
		ck_assert_uint_eq(wrong_bytes(to, sizeof(to), t, f, size), 0);
	}
}
END_TEST

START_TEST(copies_past_the_caches_are_whole)
{
	static uint8_t from[1024], to[1024];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = byte_at(i);
	for (size_t size = 0; size < 400; size += size < 140 ? 1 : 37) {
		for (size_t t = 0; t < 70; t++) {
			size_t f = (t * 5 + size) % 67;

			memset(to, 0, sizeof(to));
			rb_copy_past(to + t, from + f, size);
			ck_assert_uint_eq(wrong_bytes(to, sizeof(to), t, f, size), 0);
		}
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

/* Others may have them: an Intel processor that says so does. */
static bool strings_are_fast_surely(void)
{
#if defined(__x86_64__) && !RB_COPY_WATCHED
	uint32_t a = 0, vendor = 0, b = 0, c = 0, d = 0;

	return __get_cpuid(0, &a, &vendor, &c, &d) && vendor == signature_INTEL_ebx &&
	       __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 4 & 1) != 0;
#else
	return false;
#endif
}

/* By memcpy each, or as rb_copy_by_string says. */
START_TEST(copies_go_the_way_that_is_said)
{
	static const size_t sizes[] = { 8,    767,  768,  769,  2000,
					4096, 8190, 8191, 8192, RB_COPY_STRING_END + 200 };
	static uint8_t from[ROOM], to[ROOM];
	uint32_t by_string = 0, said = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t before = calls, copies;

		rb_copy_across()(to, from, sizes[i]);
		copies = calls - before; /* libcheck may make others. */
		ck_assert_msg(copies == 1 || (copies == 0 && rb_copy_by_string(sizes[i])),
			      "%u for %zu bytes", copies, sizes[i]);
		by_string += copies == 0;
		said += rb_copy_by_string(sizes[i]);
	}
	ck_assert_uint_eq(said, 6);
	ck_assert(by_string == said || (by_string == 0 && !strings_are_fast_surely()));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("copy");

	tcase_add_test(tc, copies_are_whole);
	tcase_add_test(tc, copies_past_the_caches_are_whole);
	tcase_add_test(tc, strings_are_for_some_lengths);
	if (!RB_COPY_WATCHED) /* Else a sanitizer may have a memcpy of its own. */
		tcase_add_test(tc, copies_go_the_way_that_is_said);
	return check_main("base", tc);
}
