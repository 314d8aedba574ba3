/* copy.c -- see copy.h. */
#include "base/copy.h"

#include <string.h>

static void copy_plain(void *to, const void *from, size_t size_bytes)
{
	memcpy(to, from, size_bytes);
}

#if defined(__x86_64__) && !RB_COPY_WATCHED
#include <cpuid.h>
#include <emmintrin.h>

#define FAST_SHORT_STRINGS (1u << 4) /* Leaf 7, EDX. */
#define ZEN_3_AND_4 0x19u

/* Zen 3 and 4 say so, too, but take many times as long where the low bits of both addresses nearly
 * agree; so glibc keeps away from it there (bug 30994). */
static bool strings_are_fast(void)
{
	uint32_t a = 0, b, c, d, vendor = 0, family;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & FAST_SHORT_STRINGS) == 0)
		return false;
	(void)__get_cpuid(0, &a, &vendor, &c, &d);
	(void)__get_cpuid(1, &a, &b, &c, &d);
	family = (a >> 8 & 0xf) + ((a >> 8 & 0xf) == 0xf ? a >> 20 & 0xff : 0);
	return vendor != signature_AMD_ebx || family != ZEN_3_AND_4;
}

static void copy_short_by_string(void *to, const void *from, size_t size_bytes)
{
	if (rb_copy_by_string(size_bytes))
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
	else
		memcpy(to, from, size_bytes);
}

rb_copy_fn *rb_copy_across(void)
{
	return strings_are_fast() ? copy_short_by_string : copy_plain;
}

#define LINE_BYTES 64u

static void line_past(uint8_t *to, const uint8_t *from)
{
	__m128i line[LINE_BYTES / sizeof(__m128i)];

	for (uint32_t i = 0; i < LINE_BYTES / sizeof(__m128i); i++)
		line[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
	for (uint32_t i = 0; i < LINE_BYTES / sizeof(__m128i); i++)
		_mm_stream_si128((__m128i *)(void *)to + i, line[i]);
}

void rb_copy_past(void *to, const void *from, size_t size_bytes)
{
	size_t head = -(uintptr_t)to & (LINE_BYTES - 1), at;

	if (size_bytes < head + LINE_BYTES) {
		memcpy(to, from, size_bytes);
		return;
	}
	memcpy(to, from, head);
	for (at = head; size_bytes - at >= LINE_BYTES; at += LINE_BYTES)
		line_past((uint8_t *)to + at, (const uint8_t *)from + at);
	memcpy((uint8_t *)to + at, (const uint8_t *)from + at, size_bytes - at);
	_mm_sfence(); /* Whoever is told that it is there finds it. */
}
#else
void rb_copy_past(void *to, const void *from, size_t size_bytes)
{
	memcpy(to, from, size_bytes);
}

rb_copy_fn *rb_copy_across(void)
{
	return copy_plain;
}
#endif
