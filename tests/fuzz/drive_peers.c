/* drive_peers.c -- seeded scripts for fuzz_peers.c, in the normal suite. */
#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/fuzz/fuzz_peers.h"

#define SCRIPTS 6000u
#define SCRIPT_BYTES 200u

START_TEST(scripts_break_nothing)
{
	struct rb_rng rng = { 29 };
	uint32_t counts[FUZZ_PEERS_BITS] = { 0 };
	uint8_t script[SCRIPT_BYTES];

	for (uint32_t i = 0; i < SCRIPTS; i++) {
		uint32_t got;

		for (uint32_t k = 0; k < SCRIPT_BYTES; k++) {
			script[k] = (uint8_t)(rb_rng_next(&rng) >> 16);
			if (i % 4 > 0 && rb_rng_below(&rng, 8) > 0)
				script[k] &= 0x8f; /* Mostly peers that are alike. */
		}
		got = fuzz_peers_run(script, sizeof(script));
		for (uint32_t b = 0; b < FUZZ_PEERS_BITS; b++)
			counts[b] += got >> b & 1;
	}
	for (uint32_t b = 0; b < FUZZ_PEERS_BITS; b++)
		ck_assert_msg(counts[b] >= SCRIPTS / 100, "bit %u: %u of %u", b, counts[b],
			      SCRIPTS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("fuzz_peers");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, scripts_break_nothing);
	return check_main("runtime", tc);
}
