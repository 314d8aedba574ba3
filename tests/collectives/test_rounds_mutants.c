/*
 * test_rounds_mutants.c -- do the laws notice? These are the machine's own sources with one fault
 * chosen at a time (tests/partial_faults.py); each must break a law, and the first seed that shows
 * it is printed. A fault may end in an assertion: each runs in a process of its own.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rounds_world.h"
#include "tests/check_main.h"
#include "tests/faults.h"
#include "tests/length.h"

static unsigned int fault_now; /* 0: none. */

bool fault_chosen(unsigned int number)
{
	return number == fault_now;
}

struct report { /* Shared with the child. */
	uint64_t seed;
	char text[256];
};

static bool caught(uint32_t i, uint64_t first, uint64_t seeds, struct report *report)
{
	int status;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	(void)fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct rounds_totals totals = { 0 };
		int null = open("/dev/null", O_WRONLY);

		if (null >= 0)
			(void)dup2(null, STDERR_FILENO);
		fault_now = i + 1;
		for (report->seed = first; report->seed < first + seeds; report->seed++)
			if (rounds_world_run(report->seed, &totals, report->text,
					     sizeof(report->text)) != NULL)
				_exit(1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		(void)snprintf(report->text, sizeof(report->text), "an assertion (%s)",
			       strsignal(WTERMSIG(status)));
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

START_TEST(every_fault_breaks_a_law)
{
	const char *rare = "other dead"; /* From seed 1 on it takes most of the time. */
	const uint64_t rare_first = 183400;
	uint32_t survivors = 0;
	uint64_t seeds = test_length() == TEST_SHORT ? 10000 : 300000;
	struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(report, MAP_FAILED);
	for (uint32_t i = 0; i < fault_count; i++) {
		bool known = strstr(faults[i].name, rare) != NULL && test_length() != TEST_LONG;
		bool found = caught(i, known ? rare_first : 1, seeds, report);

		survivors += !found;
		if (found)
			printf("%-66s seed %5" PRIu64 ": %s\n", faults[i].name, report->seed,
			       report->text);
		else
			printf("%-66s not caught\n", faults[i].name);
	}
	ck_assert_uint_eq(survivors, 0);
	(void)munmap(report, sizeof(*report));
}
END_TEST

START_TEST(without_a_fault_all_is_well)
{
	struct rounds_totals totals = { 0 };
	char text[256] = "";

	fault_now = 0;
	for (uint64_t seed = 1; seed <= 1000; seed++)
		ck_assert_msg(rounds_world_run(seed, &totals, text, sizeof(text)) == NULL,
			      "seed %" PRIu64 ": %s", seed, text);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("partial_mutants");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, every_fault_breaks_a_law);
	tcase_add_test(tc, without_a_fault_all_is_well);
	return check_main("partial_mutants", tc);
}
