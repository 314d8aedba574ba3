/*
 * test_partial_mutants.c -- do the laws notice? These are the machine's own sources with one fault
 * chosen at a time (collectives/partial_inside.h); each must break a law, and the first seed that
 * shows it is printed. A fault may end in an assertion: each runs in a process of its own.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/partial_inside.h"
#include "partial_world.h"
#include "tests/check_main.h"
#include "tests/effort.h"

enum rb_mutant rb_mutant_chosen;

static const struct {
	enum rb_mutant mutant;
	const char *what;
} mutants[] = {
	{ RB_MUTANT_FORGET_SWAP, "the pending contributions are not taken out at a join" },
	{ RB_MUTANT_KEEP_FRESH, "they are, but count as ready for the next round" },
	{ RB_MUTANT_JOIN_DURING_MERGE, "joins while a merge writes the buffer" },
	{ RB_MUTANT_IGNORE_ROOM, "joins though results would be overwritten unread" },
	{ RB_MUTANT_IGNORE_WINDOW, "joins with nothing before the window ends" },
	{ RB_MUTANT_SKIP_FULL, "full_every is skipped" },
	{ RB_MUTANT_FORGET_ABSENCE, "absences are not counted" },
	{ RB_MUTANT_COUNT_TWICE, "an arrival counts twice" },
	{ RB_MUTANT_FORWARD_TWICE, "a rank passes on what it has passed on before" },
	{ RB_MUTANT_LATE_IS_READY, "late contributions make a rank ready" },
	{ RB_MUTANT_WRONG_CHILD, "the activation goes to the wrong child" },
	{ RB_MUTANT_FEWER_CHILDREN, "a relay tells one distance too few" },
	{ RB_MUTANT_STALE_COUNT, "counts of a round are left to the one after the next" },
	{ RB_MUTANT_DRAW_DEAD, "majority draws among all ranks, passive ones included" },
	{ RB_MUTANT_OPEN_EARLY, "quorum(k) opens with k - 1" },
	{ RB_MUTANT_DEADLINE_DEAF, "nobody arms the deadline" },
	{ RB_MUTANT_HIDE_DRAIN, "a record does not tell that its rank drains" },
	{ RB_MUTANT_COUNT_PASSIVE, "others' passive ranks go on counting as live" },
	{ RB_MUTANT_KEEP_BASE, "aligned numbers go on counting from before a drain" },
	{ RB_MUTANT_KEEP_DRAINING, "a rank goes on draining when all have drained" },
	{ RB_MUTANT_LOSE_DISCARDED, "what is discarded is not counted" },
	{ RB_MUTANT_LATE_IS_FRESH, "records call late contributions fresh" },
	{ RB_MUTANT_EARLY_IS_LATE, "numbers above the open round's are late" },
	{ RB_MUTANT_GO_ON_AFTER_LOSS, "completes a round after it knows of a loss" },
	{ RB_MUTANT_END_UNEQUAL, "commits too early: ends though survivors' numbers differ" },
	{ RB_MUTANT_END_UNHEARD, "ends before all survivors have told" },
	{ RB_MUTANT_END_OTHER_DEAD, "ends though survivors know other dead" },
	{ RB_MUTANT_NEVER_FETCH, "a rank that is behind does not fetch" },
	{ RB_MUTANT_FETCH_FROM_ANY, "fetches from a rank that has no more" },
	{ RB_MUTANT_FETCH_FROM_DEAD, "goes on fetching from a rank that has died" },
	{ RB_MUTANT_TELL_ONCE, "further losses are not told" },
	{ RB_MUTANT_SILENT_AT_END, "who has ended tells no further losses" },
	{ RB_MUTANT_FORGET_RESTORE, "what was joined in no completed round is not restored" },
	{ RB_MUTANT_RESTORE_DELIVERED, "what a fetched result contains is restored, too" },
	{ RB_MUTANT_FETCH_UNCOUNTED, "what a fetched result contains is not counted" },
};
_Static_assert(sizeof(mutants) / sizeof(mutants[0]) == RB_MUTANT_COUNT - 1, "every one is here");

struct report { /* Shared with the child. */
	uint64_t seed;
	char text[256];
};

static bool caught(uint32_t i, uint64_t seeds, struct report *report)
{
	int status;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	(void)fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct partial_totals totals = { 0 };
		int null = open("/dev/null", O_WRONLY);

		if (null >= 0)
			(void)dup2(null, STDERR_FILENO);
		rb_mutant_chosen = mutants[i].mutant;
		for (report->seed = 1; report->seed <= seeds; report->seed++)
			if (partial_world_run(report->seed, &totals, report->text,
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
	/* It takes tens of thousands of seeds: not with short effort. */
	const enum rb_mutant rare = RB_MUTANT_END_OTHER_DEAD;
	uint32_t survivors = 0, count = sizeof(mutants) / sizeof(mutants[0]);
	uint64_t seeds = effort_wanted() == EFFORT_SHORT ? 10000 : 300000;
	struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(report, MAP_FAILED);
	for (uint32_t i = 0; i < count; i++) {
		if (mutants[i].mutant == rare && effort_wanted() == EFFORT_SHORT)
			continue;
		bool found = caught(i, seeds, report);

		survivors += !found;
		if (found)
			printf("%-66s seed %5" PRIu64 ": %s\n", mutants[i].what, report->seed,
			       report->text);
		else
			printf("%-66s not caught\n", mutants[i].what);
	}
	ck_assert_uint_eq(survivors, 0);
	(void)munmap(report, sizeof(*report));
}
END_TEST

START_TEST(without_a_fault_all_is_well)
{
	struct partial_totals totals = { 0 };
	char text[256] = "";

	rb_mutant_chosen = RB_MUTANT_NONE;
	for (uint64_t seed = 1; seed <= 1000; seed++)
		ck_assert_msg(partial_world_run(seed, &totals, text, sizeof(text)) == NULL,
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
