/* drive_verbs.c -- seeded scripts for fuzz_verbs.c, in the normal suite. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/fuzz/fuzz_verbs.h"
#include "tests/length.h"

#define SCRIPT_BYTES 500u

/* A post, a head that may meet it, a write, and polls; what they say is mostly what ranks say. */
static size_t exchange_make(struct rb_rng *rng, uint8_t *script)
{
	uint8_t tag = (uint8_t)rb_rng_below(rng, 4), size = (uint8_t)rb_rng_below(rng, 10);
	const uint8_t bytes[] = {
		(uint8_t)(7 + rb_rng_below(rng, 6)), /* recv, send, put, cancel, region */
		(uint8_t)rb_rng_below(rng, 8),       /* which request, of rank 1 */
		tag,
		size,
		size,
		13,                              /* poll */
		0,                               /* A head: */
		0,                               /* by the main rail */
		(uint8_t)rb_rng_below(rng, 240), /* kind */
		tag,
		size, /* of the payload, or what else it needs */
		size,
		size,
		(uint8_t)rb_rng_below(rng, 200), /* whose id */
		(uint8_t)rb_rng_below(rng, 3),
		0, /* nothing is spoiled */
		0,
		13,
		5, /* A write: */
		0,
		(uint8_t)rb_rng_below(rng, 4),
		(uint8_t)rb_rng_below(rng, 8),
		size,
		6, /* a key */
		(uint8_t)rb_rng_below(rng, 9),
		size,
		(uint8_t)rb_rng_below(rng, 9),
		13,
	};

	memcpy(script, bytes, sizeof(bytes));
	return sizeof(bytes);
}

/* Of any bytes, or of exchanges with some of their bytes replaced. */
static size_t script_make(struct rb_rng *rng, bool noise, uint8_t *script)
{
	uint64_t faults = 1 + rb_rng_below(rng, 300);
	size_t at = 1;

	script[0] = (uint8_t)rb_rng_next(rng); /* One rail, or two. */
	while (at + 64 <= SCRIPT_BYTES) {
		if (noise)
			script[at++] = (uint8_t)rb_rng_next(rng);
		else
			at += exchange_make(rng, script + at);
	}
	for (size_t i = 1; i < at; i++)
		if (rb_rng_below(rng, faults) == 0)
			script[i] = (uint8_t)rb_rng_next(rng);
	return at;
}

START_TEST(scripts_break_nothing)
{
	static uint8_t script[SCRIPT_BYTES];
	struct rb_rng rng = { 29 };
	uint32_t scripts = test_length() == TEST_SHORT ? 300 : 2000;
	uint32_t counts[FUZZ_VERBS_BITS] = { 0 };

	for (uint32_t i = 0; i < scripts; i++) {
		size_t size_bytes = script_make(&rng, i % 4 == 0, script);
		uint32_t got = fuzz_verbs_run(script, size_bytes);

		for (uint32_t b = 0; b < FUZZ_VERBS_BITS; b++)
			counts[b] += got >> b & 1;
	}
	/* They came everywhere. */
	for (uint32_t b = 0; b < FUZZ_VERBS_BITS; b++)
		ck_assert_msg(counts[b] >= scripts / 100, "bit %u: %u of %u", b, counts[b],
			      scripts);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fuzz_verbs");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, scripts_break_nothing);
	return check_main("transport", tc);
}
