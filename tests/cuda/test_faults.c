/*
 * test_faults.c -- what the twins' test finds: copies of the kernels with one fault each, of
 * faults.py, are run until it is noticed. One that is not, or not as the list says, fails.
 */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check_main.h"
#include "tests/cuda/faults.h"
#include "tests/cuda/flat.h"
#include "tests/cuda/twins.h"

#define FAULTS (sizeof(faults) / sizeof(*faults))

static rubato_type type_of(const char *name)
{
	for (uint32_t type = 0; type < RUBATO_TYPE_COUNT; type++)
		if (strcmp(twins_types[type], name) == 0)
			return (rubato_type)type;
	ck_abort_msg("no type %s", name);
}

/* What is first noticed of it in calls of all kinds; NULL: nothing. */
static const char *noticed(struct twins_bench *b, uint32_t number, rubato_type type)
{
	struct rb_rng rng = { number };
	char kernel[32];

	(void)snprintf(kernel, sizeof(kernel), "rb_fault_%u", number);
	twins_fill(b, type, 8, number);
	for (uint32_t i = 0; i < 4000; i++) {
		struct rb_reduce r = {
			.type = type,
			.op = (rubato_operator)(i % RUBATO_OPERATOR_COUNT),
			.from_count = 2 + (uint32_t)rb_rng_below(&rng, 7),
			.count = rb_rng_below(&rng, 120),
		};
		struct twins_place p = {
			.kernel = kernel,
			.grid = 1 + (uint32_t)rb_rng_below(&rng, 3),
			.block = 1 + (uint32_t)rb_rng_below(&rng, 4),
			.alias = (uint32_t)rb_rng_below(&rng, 10),
			.shift = (uint32_t)(rb_rng_below(&rng, 2) * rb_rng_below(&rng, 16)),
			.differs = (uint32_t)(rb_rng_below(&rng, 2) * rb_rng_below(&rng, 16)),
		};
		const char *error;

		if (r.op == RUBATO_AVG)
			r.final_count = 1 + (uint32_t)rb_rng_below(&rng, 9);
		if ((error = twins_compare(b, r, &p)) != NULL)
			return error;
	}
	return NULL;
}

/* The same of a kernel of conversions or of the wire. */
static const char *flat_noticed(uint32_t number, const char *of, char *text, size_t text_bytes)
{
	struct areas *a = launcher_memory(sizeof(*a));
	struct rb_rng rng = { number };
	char kernel[32];
	const struct flat_fault fault = { of, kernel };
	const char *error = NULL;

	ck_assert(a != NULL);
	(void)snprintf(kernel, sizeof(kernel), "rb_fault_%u", number);
	for (uint32_t i = 0; i < 4000 && error == NULL; i++) {
		error = flat_conversion(a, &rng, &fault, text, text_bytes);
		if (error == NULL)
			error = flat_coded(a, i % 2 != 0, &rng, &fault, text, text_bytes);
	}
	launcher_forget(a);
	return error;
}

START_TEST(faults_are_noticed)
{
	char text[1024];
	struct twins_bench *b = launcher_memory(sizeof(*b));
	const char *error, *wanted = LAUNCHER_PTX ? faults[_i].ptx : "";
	const bool there = LAUNCHER_PTX || faults[_i].host != 0;
	const bool silent = !LAUNCHER_PTX && faults[_i].host == 1;

	ck_assert(b != NULL);
	error = !there ? NULL
		: strncmp(faults[_i].type, "rb_", 3) == 0
			? flat_noticed((uint32_t)_i, faults[_i].type, text, sizeof(text))
			: noticed(b, (uint32_t)_i, type_of(faults[_i].type));
	printf("%s: %s\n", faults[_i].what,
	       !there          ? "only on a device"
	       : error != NULL ? error
			       : "not noticed");
	if (there && silent)
		ck_assert_msg(error == NULL, "%s is noticed: %s", faults[_i].what, error);
	else if (there)
		ck_assert_msg(error != NULL && strstr(error, wanted) != NULL, "%s: %s",
			      faults[_i].what, error != NULL ? error : "not noticed");
	launcher_forget(b);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("faults");

	if (!launcher_open())
		return 77;
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, faults_are_noticed, 0, (int)FAULTS);
	return check_main("cuda", tc);
}
