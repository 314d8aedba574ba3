/* drive_startup.c -- seeded scripts for fuzz_startup.c, in the normal suite. */
#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/fuzz/fuzz_startup.h"

#define SCRIPTS 400u
#define SCRIPT_BYTES 120u

START_TEST(scripts_break_nothing)
{
	struct rb_rng rng = { 23 };
	uint32_t counts[4] = { 0 };
	uint8_t script[SCRIPT_BYTES];

	for (uint32_t i = 0; i < SCRIPTS; i++) {
		uint32_t got;

		for (uint32_t k = 0; k < SCRIPT_BYTES; k++)
			script[k] = (uint8_t)(rb_rng_next(&rng) >> 16);
		for (uint32_t k = 3; i % 2 == 0 && k < SCRIPT_BYTES; k++)
			script[k] &= 0x8f; /* Few changes, and the size as it should be. */
		got = fuzz_startup_run(script, sizeof(script));
		for (uint32_t b = 0; b < 4; b++)
			counts[b] += got >> b & 1;
	}
	/* They came everywhere. What is tried depends on this machine's devices. */
	for (uint32_t b = 0; b < 4; b++)
		ck_assert_msg(counts[b] >= SCRIPTS / 100 || b == 1, "bit %u: %u of %u", b,
			      counts[b], SCRIPTS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fuzz_startup");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, scripts_break_nothing);
	return check_main("runtime", tc);
}
