/* drive_rendezvous.c -- seeded scripts for fuzz_rendezvous.c, in the normal suite. */
#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/fuzz/fuzz_rendezvous.h"

#define SCRIPTS 2000
#define SCRIPT_BYTES 6000

/* Sends, receives and exchanges mostly; every fourth script is noise from end to end. */
static void script_make(struct rb_rng *rng, bool noise, uint8_t *script)
{
	static const uint8_t steps[] = { 0x47, 0xc7, 0x07, 0x87, 0x04, 0x84 };
	uint64_t faults = rb_rng_below(rng, 3) == 0 ? 10 : 200;

	for (uint32_t i = 0; i < SCRIPT_BYTES; i++)
		script[i] = (uint8_t)rb_rng_next(rng);
	for (uint32_t i = 0; !noise && i + 3 <= SCRIPT_BYTES; i += 3) {
		if (rb_rng_below(rng, faults) == 0)
			continue;
		script[i] = steps[rb_rng_below(rng, sizeof(steps))];
		if (rb_rng_below(rng, faults) != 0)
			script[i + 2] &= 0x7f; /* Nothing is altered on the way. */
	}
}

START_TEST(scripts_break_nothing)
{
	static uint8_t script[SCRIPT_BYTES];
	struct seeds seeds = seeds_from(__func__, 0, SCRIPTS);
	uint32_t exchanged = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct rb_rng rng = { rb_mix(seed) };

		script_make(&rng, seed % 4 == 0, script);
		exchanged +=
			fuzz_rendezvous_run(script, (size_t)rb_rng_below(&rng, SCRIPT_BYTES + 1));
	}
	if (seeds_chosen())
		return;
	/* Some came all the way, some did not: both sides of every check were walked. */
	ck_assert_uint_gt(exchanged, SCRIPTS / 50);
	ck_assert_uint_lt(exchanged, SCRIPTS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fuzz_rendezvous");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, scripts_break_nothing);
	return check_main("runtime", tc);
}
