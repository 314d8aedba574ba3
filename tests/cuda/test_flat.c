/*
 * test_flat.c -- kernels of conversions and of the coded wire, wherever they run (launcher.h), give
 * the bits of their twins on the host: counts around the ends of batches, units, warps and grids,
 * any address, with a residual and without. TEST_SEED takes back the seed of a failure.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/reduce/reduce.h"
#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/flat.h"
#include "tests/length.h"

static struct areas *areas_open(struct rb_rng *rng, uint64_t *seed)
{
	struct areas *a = launcher_memory(sizeof(*a));

	*seed = 1;
	(void)seeds_given(seed);
	rng->state = *seed;
	ck_assert(a != NULL);
	return a;
}

static uint32_t draws(uint32_t normal)
{
	uint32_t count = normal / launcher_slower;

	return test_length() == TEST_SHORT ? count / 4 : count;
}

START_TEST(conversions_are_twins)
{
	struct rb_rng rng;
	uint64_t seed;
	struct areas *a = areas_open(&rng, &seed);
	char text[1024];

	for (uint32_t i = 0; i < draws(2000); i++) {
		const char *error = flat_conversion(a, &rng, NULL, text, sizeof(text));

		if (error != NULL)
			ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

/* Every 16-bit value, to float32 and back. */
START_TEST(all_halfs_are_twins)
{
	static const char *const kernels[] = { "rb_widen_f16", "rb_widen_bf16", "rb_narrow_f16",
					       "rb_narrow_bf16" };
	const rubato_type half = _i % 2 == 0 ? RUBATO_FLOAT16 : RUBATO_BFLOAT16;
	struct {
		uint16_t halfs[65536], back[65536], plain[65536];
		float device[65536], host[65536];
	} *m = launcher_memory(sizeof(*m));
	struct rb_convert twin = { half, false, m->halfs, m->host, 65536 };
	struct rb_cuda_convert call = { m->device, m->halfs, 65536 };
	struct launcher_span spans[] = { { m->halfs, sizeof(m->halfs), false },
					 { m->device, sizeof(m->device), true } };

	ck_assert(m != NULL);
	for (uint32_t i = 0; i < 65536; i++)
		m->halfs[i] = (uint16_t)i;
	rb_convert_plain(&twin);
	ck_assert_ptr_null(launcher_run(kernels[_i], 4, 64, &call, sizeof(call), spans, 2));
	ck_assert_int_eq(memcmp(m->host, m->device, sizeof(m->host)), 0);
	twin = (struct rb_convert) { half, true, m->host, m->plain, 65536 };
	call = (struct rb_cuda_convert) { m->back, m->device, 65536 };
	spans[0] = (struct launcher_span) { m->back, sizeof(m->back), true };
	spans[1].written = false;
	rb_convert_plain(&twin);
	ck_assert_ptr_null(launcher_run(kernels[2 + _i], 4, 64, &call, sizeof(call), spans, 2));
	ck_assert_int_eq(memcmp(m->plain, m->back, sizeof(m->back)), 0);
	launcher_forget(m);
}
END_TEST

START_TEST(coders_are_twins)
{
	struct rb_rng rng;
	uint64_t seed;
	struct areas *a = areas_open(&rng, &seed);
	char text[1024];

	for (uint32_t i = 0; i < draws(3000); i++) {
		const char *error = flat_coded(a, _i != 0, &rng, NULL, text, sizeof(text));

		if (error != NULL)
			ck_abort_msg("%s, TEST_SEED=%lu", error, (unsigned long)seed);
	}
	launcher_forget(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("flat");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, conversions_are_twins);
	tcase_add_loop_test(tc, all_halfs_are_twins, 0, 2);
	tcase_add_loop_test(tc, coders_are_twins, 0, 2);
	return check_main("cuda", tc);
}
