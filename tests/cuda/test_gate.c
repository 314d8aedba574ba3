/*
 * test_gate.c -- the kernel at which streams wait, wherever it runs (launcher.h): it says that it
 * is reached, goes on when it has been opened and not before, also where the words wrap, and writes
 * nothing else.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/kernels.h"
#include "tests/check_main.h"
#include "tests/cuda/launcher.h"

#define PATIENCE_NS (UINT64_C(20) * 1000000000)

struct words { /* Those of the gate stand between others. */
	uint32_t before, reached, between, opened, again, passed, behind;
};

struct opener {
	struct words *words;
	uint32_t value;
	atomic_bool seen; /* That it was reached, and not passed; then it is opened. */
};

static void *opener_main(void *arg)
{
	struct opener *opener = arg;
	const uint64_t until = rb_clock_ns() + PATIENCE_NS;

	while (__atomic_load_n(&opener->words->reached, __ATOMIC_ACQUIRE) != opener->value &&
	       rb_clock_ns() < until)
		(void)usleep(10);
	(void)usleep(3000);
	opener->seen =
		__atomic_load_n(&opener->words->reached, __ATOMIC_ACQUIRE) == opener->value &&
		__atomic_load_n(&opener->words->passed, __ATOMIC_ACQUIRE) != opener->value;
	__atomic_store_n(&opener->words->opened, opener->value, __ATOMIC_RELEASE);
	return NULL;
}

static void gate_run(struct words *words, uint32_t value)
{
	const struct rb_cuda_gate gate = { &words->reached, &words->passed, &words->opened, value,
					   0 };
	const struct launcher_span spans[] = { { &words->reached, 4, true },
					       { &words->passed, 4, true },
					       { &words->opened, 4, false } };
	const char *error = launcher_run("rb_gate", 1, 1, &gate, sizeof(gate), spans, 3);

	ck_assert_msg(error == NULL, "%s", error);
	ck_assert_uint_eq(words->reached, value);
	ck_assert_uint_eq(words->passed, value);
	ck_assert(words->before == 77 && words->between == 78 && words->again == 78 &&
		  words->behind == 79);
}

START_TEST(a_gate_waits_until_it_is_opened)
{
	static const uint32_t values[] = { 1, 2, 0x7fffffff, 0x80000000, UINT32_MAX, 0, 1 };
	struct words *words = launcher_memory(sizeof(*words));

	ck_assert_ptr_nonnull(words);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct opener opener = { .words = words, .value = values[i] };
		pthread_t thread;

		*words = (struct words) { 77, values[i] - 1, 78, values[i] - 1,
					  78, values[i] - 1, 79 };
		ck_assert_int_eq(pthread_create(&thread, NULL, opener_main, &opener), 0);
		gate_run(words, values[i]);
		/* Else it had gone on before. */
		ck_assert(__atomic_load_n(&words->opened, __ATOMIC_ACQUIRE) == values[i]);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert(opener.seen);
	}
	launcher_forget(words);
}
END_TEST

START_TEST(an_open_gate_holds_nothing_up)
{
	struct words *words = launcher_memory(sizeof(*words));

	for (uint32_t further = 0; further < 3; further++) {
		*words = (struct words) { 77, 5, 78, UINT32_MAX + further, 78, 5, 79 };
		gate_run(words, UINT32_MAX);
	}
	launcher_forget(words);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("gate");

	if (!launcher_open())
		return 77;
	tcase_add_test(tc, a_gate_waits_until_it_is_opened);
	tcase_add_test(tc, an_open_gate_holds_nothing_up);
	return check_main("gate", tc);
}
