/*
 * laws_mutants.c -- do the laws of whole jobs (rubato-sim laws) notice? The relaxed operations'
 * sources, and those of the protocol machine, with one fault at a time (runtime/mutant.h,
 * collectives/partial_inside.h): each must break a law. A fault may end in an assertion or in no
 * end: each runs in a process of its own.
 *
 * usage: laws_mutants [NUMBER [SEED]]: all, or one from a seed on, with what it breaks.
 *
 * The seeds below have shown the faults; a fault that has moved is looked for from there on. With
 * TEST_EFFORT=long all are looked for from seed 0: those are the seeds for the table.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/partial_inside.h"
#include "runtime/mutant.h"
#include "tests/effort.h"
#include "tools/laws.h"

#define SEEDS 20000u /* To look through before a fault counts as not noticed. */
#define SECONDS 120u /* Then it has no end. */
#define SOUND 100u   /* Seeds without a fault. */
#define SOUND_SHORT 5u

enum rb_mutant rb_mutant_chosen;
enum rb_fault rb_fault_chosen;

#define RUNTIME(name, seed, what)                                                                  \
	{                                                                                          \
		RB_FAULT_##name, RB_MUTANT_NONE, seed, what                                        \
	}
#define MACHINE(name, seed, what)                                                                  \
	{                                                                                          \
		RB_FAULT_NONE, RB_MUTANT_##name, seed, what                                        \
	}

static const struct mutant {
	enum rb_fault fault;
	enum rb_mutant machine;
	uint64_t seed;
	const char *what;
} mutants[] = {
	RUNTIME(SHARE_BUFFER, 0, "the next contribution is written into the pending one's buffer"),
	RUNTIME(READ_LEASED, 0, "the leased buffer is reduced, not the joined one"),
	RUNTIME(NAME_IDENTITY, 0, "peers are told the identity's buffer, not the joined one"),
	RUNTIME(MERGE_TWICE, 0, "a late contribution is added twice"),
	RUNTIME(MERGE_AWAY, 0, "a late contribution is counted but not added"),
	RUNTIME(MERGE_UNCOUNTED, 13, "a late contribution is added but not counted"),
	RUNTIME(MERGE_UNTOLD, 0, "the machine is not told that a merge is over"),
	RUNTIME(RESTORE_NOTHING, 13, "what was joined in vain is dropped"),
	RUNTIME(RESTORE_OVER, 329, "what was joined in vain replaces what is pending"),
	RUNTIME(SERVE_IDENTITY, 66, "a survivor is served the wrong buffer"),
	RUNTIME(FETCH_HALF, 1100, "a fetch ends when half of it is here"),
	RUNTIME(OVERWRITE_NEWEST, 0, "a round is written over the newest result"),
	RUNTIME(RELEASE_AHEAD, 0, "one result more is released than was"),
	RUNTIME(DELIVER_TWICE, 0, "results are delivered twice"),
	RUNTIME(DELIVER_SKIPPING, 0, "every other result is skipped"),
	RUNTIME(OLD_RECORDS, 0, "a result has the records of an older one"),
	RUNTIME(DIVIDE_BY_RANKS, 4, "an average is divided by the ranks, whatever was asked"),
	RUNTIME(OWN_IS_NEXT, 83, "own: the round after one's own is delivered"),
	RUNTIME(WAIT_SILENTLY, 4991, "who waits in one operation does not tell the others"),
	RUNTIME(FREE_INTERESTED, 145, "who frees goes on holding up rounds"),
	RUNTIME(LOSE_QUEUED, 3, "what happens during a step is lost"),
	RUNTIME(UNNUMBERED, 95, "messages overtake each other"),
	RUNTIME(DEAF_AFTER_LOSS, 13, "after a loss only neighbours are listened to"),
	RUNTIME(NO_ORPHAN, 362653, "whom a loss met while creating takes no part in the agreement"),
	RUNTIME(LAGGED_KEEP_SUM, 99, "lagged: a buffer comes round with its old sum"),
	RUNTIME(LAGGED_KEEP_WEIGHT, 99, "lagged: a buffer comes round with its old weight"),
	RUNTIME(LAGGED_EARLY, 54, "lagged: collects one step too early"),
	RUNTIME(LAGGED_DROP_LAST, 54, "lagged: the last step is not flushed"),
	MACHINE(FORGET_SWAP, 0, "machine: pending contributions are not taken out at a join"),
	MACHINE(COUNT_TWICE, 3, "machine: an arrival counts twice"),
	MACHINE(SKIP_FULL, 7, "machine: full_every is skipped"),
	MACHINE(WRONG_CHILD, 0, "machine: the activation goes to the wrong child"),
	MACHINE(OPEN_EARLY, 59, "machine: quorum(k) opens with k - 1"),
	MACHINE(IGNORE_ROOM, 32, "machine: joins though results would be overwritten unread"),
	MACHINE(LATE_IS_FRESH, 26, "machine: records call late contributions fresh"),
	MACHINE(END_UNEQUAL, 66, "machine: commits too early after a crash"),
	MACHINE(NEVER_FETCH, 66, "machine: a rank that is behind does not fetch"),
	MACHINE(FORGET_RESTORE, 13, "machine: what was joined in vain is not restored"),
	MACHINE(FETCH_UNCOUNTED, 66, "machine: what a fetched result contains is not counted"),
};
#define MUTANTS (sizeof(mutants) / sizeof(mutants[0]))

struct report { /* Shared with the child. */
	uint64_t seed;
	char text[LAWS_TEXT_BYTES];
};

/* Whether the laws hold. */
static bool holds(uint64_t seed, char *text)
{
	struct laws_trial *trial = malloc(sizeof(*trial));
	rubato_sim_result result;
	rubato_status status;
	bool held;

	if (trial == NULL)
		exit(EXIT_FAILURE);
	laws_draw(trial, seed);
	trial->world.timeout_ns = 20000000000u;
	status = rubato_sim_run(&trial->world, laws_rank, trial, &result);
	laws_judge(trial, status, &result);
	held = trial->broken[0] == '\0';
	(void)snprintf(text, LAWS_TEXT_BYTES, "%s", trial->broken);
	laws_free(trial);
	free(trial);
	return held;
}

static _Noreturn void child(const struct mutant *mutant, uint64_t first, uint64_t count,
			    struct report *report)
{
	int null = open("/dev/null", O_WRONLY);

	if (null >= 0)
		(void)dup2(null, STDERR_FILENO);
	(void)alarm(SECONDS);
	rb_fault_chosen = mutant->fault;
	rb_mutant_chosen = mutant->machine;
	for (report->seed = first; report->seed < first + count; report->seed++)
		if (!holds(report->seed, report->text))
			_exit(1);
	_exit(0);
}

static bool caught(const struct mutant *mutant, uint64_t first, uint64_t count,
		   struct report *report)
{
	int status = 0;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(mutant, first, count, report);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	if (WIFSIGNALED(status))
		(void)snprintf(report->text, sizeof(report->text), "%s",
			       WTERMSIG(status) == SIGALRM   ? "no end"
			       : WTERMSIG(status) == SIGABRT ? "an assertion"
							     : strsignal(WTERMSIG(status)));
	return pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

static bool report_of(const struct mutant *mutant, uint64_t first, struct report *report)
{
	bool found = caught(mutant, first, SEEDS, report);

	(void)printf("%-66s ", mutant->what);
	if (found)
		(void)printf("seed %5" PRIu64 ": %s\n", report->seed, report->text);
	else
		(void)printf("not caught from %" PRIu64 "\n", first);
	(void)fflush(stdout);
	return found;
}

int main(int argc, char **argv)
{
	bool fresh = effort_wanted() == EFFORT_LONG;
	uint32_t survivors = 0;
	static const struct mutant sound = RUNTIME(NONE, 0, "none");
	struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (report == MAP_FAILED)
		return EXIT_FAILURE;
	if (argc > 1) {
		uint64_t number = strtoull(argv[1], NULL, 10);

		if (number >= MUTANTS)
			return EXIT_FAILURE;
		return !report_of(&mutants[number],
				  argc > 2 ? strtoull(argv[2], NULL, 10) : mutants[number].seed,
				  report);
	}
	if (caught(&sound, 0, effort_wanted() == EFFORT_SHORT ? SOUND_SHORT : SOUND, report)) {
		(void)printf("without a fault: seed %" PRIu64 ": %s\n", report->seed, report->text);
		return EXIT_FAILURE;
	}
	for (uint32_t i = 0; i < MUTANTS; i++)
		survivors += !report_of(&mutants[i], fresh ? 0 : mutants[i].seed, report);
	(void)printf("%u of %zu faults not caught\n", survivors, MUTANTS);
	return survivors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
