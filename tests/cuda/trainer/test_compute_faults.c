/*
 * test_compute_faults.c -- copies of the device's backends with one fault each (compute_faults.py),
 * which what test_compute_cuda.c asks must notice.
 */
#include <stdio.h>

#include "tests/cuda/trainer/compute.h"
#include "tests/cuda/trainer/compute_faults.h"

#define DECLARE(n, what, text) extern const struct tr_compute_ops tr_compute_fault_##n;
FAULTS(DECLARE)

static const struct {
	const struct tr_compute_ops *ops;
	const char *what;
	int text; /* 1: of lstm; 2: of gpt; 0: of neither. */
} faults[] = {
#define FAULT(n, what, text) { &tr_compute_fault_##n, what, text },
	FAULTS(FAULT)
};
#define FAULT_COUNT ((int)(sizeof(faults) / sizeof(faults[0])))

/* A dense one, one with convolutions, one with shortcuts and normalisations. */
static const struct shape_case shapes[] = {
	{ TR_MLP, TR_CROSS_ENTROPY, { 13, 1, 1 }, 4, 11, 6 },
	{ TR_CNN, TR_CROSS_ENTROPY, { 1, 8, 8 }, 3, 0, 3 },
	{ TR_RESNET20, TR_CROSS_ENTROPY, { 3, 4, 4 }, 4, 0, 5 },
};
#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))
#define TRIES 50 /* What is read too early may have come: delays decide. */

START_TEST(faults_are_noticed)
{
	const struct shape_case *given = faults[_i].text != 0 ? text_cases : shapes;
	const size_t count = faults[_i].text != 0 ? (size_t)TEXT_COUNT : SHAPE_COUNT;
	const enum tr_model_kind kind = faults[_i].text == 1 ? TR_LSTM : TR_GPT;
	const char *noticed = NULL;

	for (uint64_t seed = 1; seed <= TRIES && noticed == NULL; seed++)
		for (size_t i = 0; i < count && noticed == NULL; i++)
			if (faults[_i].text == 0 || given[i].kind == kind)
				noticed = device_differs(faults[_i].ops, &given[i], seed);
	ck_assert_msg(noticed != NULL, "not noticed: %s", faults[_i].what);
	(void)printf("%s: %s\n", faults[_i].what, noticed);
}
END_TEST

START_TEST(without_a_fault_nothing_is)
{
	for (size_t i = 0; i < SHAPE_COUNT; i++)
		ck_assert_ptr_null(device_differs(&tr_compute_cuda, &shapes[i], i + 1));
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("faults");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, faults_are_noticed, 0, FAULT_COUNT);
	tcase_add_test(tests, without_a_fault_nothing_is);
	return check_main("cuda", tests);
}
