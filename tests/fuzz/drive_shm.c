/* drive_shm.c -- seeded scripts for fuzz_shm.c, in the normal suite. */
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/fuzz/fuzz_shm.h"
#include "transport/shm/shm.h"

#define SCRIPTS 3000u
#define SCRIPT_BYTES 600u

/* Among the edges of fuzz_shm.c: a byte more than a bulk buffer, than all. */
#define TWO_PIECES 9
#define TOO_LONG 18

/* A post and a cell that may meet, and a poll; what they say is mostly what ranks say. */
static size_t exchange_make(struct rb_rng *rng, uint8_t *script)
{
	uint8_t tag = (uint8_t)rb_rng_below(rng, 4), size = (uint8_t)rb_rng_below(rng, 12);
	const uint8_t bytes[] = {
		(uint8_t)(7 + rb_rng_below(rng, 6)), /* recv, send, put, cancel, region */
		(uint8_t)rb_rng_below(rng, 8),       /* which request, of rank 1 */
		tag,
		size,
		0,                              /* A cell: */
		(uint8_t)rb_rng_below(rng, 16), /* kind */
		tag,
		size,
		(uint8_t)(200 + rb_rng_below(rng, 56)), /* arg: 8 bytes of the script, */
		(uint8_t)rb_rng_below(rng, 4),
		0,
		0,
		0, /* an id of low generation */
		(uint8_t)rb_rng_below(rng, 3),
		0,
		0,
		0,
		size,
		size,
		5, /* credit as it should be */
		2,
		6, /* a key */
		(uint8_t)rb_rng_below(rng, 9),
		(uint8_t)rb_rng_below(rng, 4),
		size,
		15,
	};

	memcpy(script, bytes, sizeof(bytes));
	return sizeof(bytes);
}

/* A receive, mostly of the message that comes in two pieces; now and then one is missing. */
static size_t pieces_make(struct rb_rng *rng, uint8_t *script)
{
	uint8_t tag = (uint8_t)rb_rng_below(rng, 4);
	const uint8_t first[] = {
		7, /* recv */
		(uint8_t)rb_rng_below(rng, 8),
		rb_rng_below(rng, 8) > 0 ? tag : 0,
		rb_rng_below(rng, 2) > 0 ? TWO_PIECES : 1, /* One byte meets more. */
		0, /* A cell: kind, tag, no bytes in it, args. */
		RB_SHM_BULK,
		tag,
		0,
		TWO_PIECES,
		0,
		0,
	};
	const uint8_t second[] = { 0, RB_SHM_MORE, tag, 0, 0, 0, 0 };
	size_t at = sizeof(first);

	memcpy(script, first, sizeof(first));
	if (rb_rng_below(rng, 8) > 0) {
		memcpy(script + at, second, sizeof(second));
		at += sizeof(second);
	}
	script[at++] = 15; /* poll */
	return at;
}

/* A send that is announced, and what the receiver says to it. */
static size_t announced_make(struct rb_rng *rng, uint8_t *script)
{
	uint8_t tag = (uint8_t)rb_rng_below(rng, 4);
	const uint8_t bytes[] = {
		9, /* send */
		(uint8_t)rb_rng_below(rng, 8),
		tag,
		TOO_LONG,
		0, /* A cell: kind, tag, no bytes in it, args. */
		rb_rng_below(rng, 2) > 0 ? RB_SHM_ENOUGH : RB_SHM_CLEAR,
		tag,
		0,
		200, /* arg: 8 bytes of the script, */
		(uint8_t)rb_rng_below(rng, 2),
		0,
		0,
		0, /* an id of low generation */
		(uint8_t)rb_rng_below(rng, 3),
		0,
		0,
		0,
		1,
		0,
		15, /* poll, credit as it should be, poll */
		5,
		2,
		15,
	};

	memcpy(script, bytes, sizeof(bytes));
	return sizeof(bytes);
}

/* Of any bytes, or of exchanges with some of their bytes replaced. */
static size_t script_make(struct rb_rng *rng, bool noise, uint8_t *script)
{
	uint64_t faults = 1 + rb_rng_below(rng, 300);
	size_t at = 0;

	while (at + 64 <= SCRIPT_BYTES) {
		uint64_t which = rb_rng_below(rng, 8);

		if (noise)
			script[at++] = (uint8_t)rb_rng_next(rng);
		else
			at += which == 0   ? pieces_make(rng, script + at)
			      : which == 1 ? announced_make(rng, script + at)
					   : exchange_make(rng, script + at);
	}
	for (size_t i = 0; i < at; i++)
		if (rb_rng_below(rng, faults) == 0)
			script[i] = (uint8_t)rb_rng_next(rng);
	return at;
}

START_TEST(scripts_break_nothing)
{
	static uint8_t script[SCRIPT_BYTES];
	struct rb_rng rng = { 17 };
	uint32_t counts[5] = { 0 };

	for (uint32_t i = 0; i < SCRIPTS; i++) {
		size_t size_bytes = script_make(&rng, i % 4 == 0, script);
		uint32_t got = fuzz_shm_run(script, size_bytes);

		for (uint32_t b = 0; b < 5; b++)
			counts[b] += got >> b & 1;
	}
	/* They came everywhere. */
	for (uint32_t b = 0; b < 5; b++)
		ck_assert_msg(counts[b] >= SCRIPTS / 100, "bit %u: %u of %u", b, counts[b],
			      SCRIPTS);
}
END_TEST

/* A message's size near 2^64, with the id that stands for "its payload is here". */
START_TEST(an_announcement_of_any_size_is_no_allocation)
{
	static const uint8_t script[] = { 0, RB_SHM_ANNOUNCE, 0, 0, 16, 14, 0, 15, 15 };

	ck_assert_uint_eq(fuzz_shm_run(script, sizeof(script)), FUZZ_SHM_LOST);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fuzz_shm");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, scripts_break_nothing);
	tcase_add_test(tc, an_announcement_of_any_size_is_no_allocation);
	return check_main("transport", tc);
}
