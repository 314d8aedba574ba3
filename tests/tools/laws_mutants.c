/*
 * laws_mutants.c -- do the laws of whole jobs (rubato-sim laws) notice? The relaxed operations'
 * sources, and those of the protocol machine, with one fault at a time (tests/partial_faults.py):
 * each must break a law. A fault may end in an assertion or in no end: each runs in a process of
 * its own.
 *
 * usage: laws_mutants [NUMBER [SEED]]: all, or one from a seed on, with what it breaks.
 *
 * The list's seeds have shown the faults; a fault that has moved is looked for from there on. With
 * TEST_LENGTH=long all are looked for from seed 0: those are the seeds for the table.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults.h"
#include "tests/length.h"
#include "tools/laws/laws.h"

#define SEEDS 20000u /* To look through before a fault counts as not noticed. */
/* Of the processor, in one seed: then it has no end. A simulation waits for nothing. */
#define SECONDS 120
#define SOUND 100u /* Seeds without a fault. */
#define SOUND_SHORT 5u

/* Every nth fault: an ordinary run sees that laws still notice faults, TEST_LENGTH=long that they
 * notice each, a sanitizer looks at the programs. */
static const unsigned int strides[] = { [TEST_SHORT] = 8, [TEST_NORMAL] = 3, [TEST_LONG] = 1 };

static unsigned int fault_now; /* 0: none. */

bool fault_chosen(unsigned int number)
{
	return number == fault_now;
}

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

static _Noreturn void child(unsigned int fault, uint64_t first, uint64_t count,
			    struct report *report)
{
	const struct itimerval limit = { .it_value.tv_sec = SECONDS };
	int null = open("/dev/null", O_WRONLY);

	if (null >= 0)
		(void)dup2(null, STDERR_FILENO);
	fault_now = fault;
	for (report->seed = first; report->seed < first + count; report->seed++) {
		if (setitimer(ITIMER_PROF, &limit, NULL) != 0)
			exit(EXIT_FAILURE);
		if (!holds(report->seed, report->text))
			_exit(1);
	}
	_exit(0);
}

static bool caught(unsigned int fault, uint64_t first, uint64_t count, struct report *report)
{
	int status = 0;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(fault, first, count, report);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	if (WIFSIGNALED(status))
		(void)snprintf(report->text, sizeof(report->text), "%s",
			       WTERMSIG(status) == SIGPROF   ? "no end"
			       : WTERMSIG(status) == SIGABRT ? "an assertion"
							     : strsignal(WTERMSIG(status)));
	return pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

static uint64_t seed_of(unsigned int fault)
{
	return strtoull(faults[fault - 1].known, NULL, 10);
}

static bool report_of(unsigned int fault, uint64_t first, struct report *report)
{
	bool found = caught(fault, first, SEEDS, report);

	(void)printf("%-66s ", faults[fault - 1].name);
	if (found)
		(void)printf("seed %5" PRIu64 "%s: %s\n", report->seed,
			     report->seed == seed_of(fault) ? "" : " (no longer the list's)",
			     report->text);
	else
		(void)printf("not caught from %" PRIu64 "\n", first);
	(void)fflush(stdout);
	return found;
}

int main(int argc, char **argv)
{
	bool fresh = test_length() == TEST_LONG;
	uint32_t survivors = 0, tried = 0;
	struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (report == MAP_FAILED)
		return EXIT_FAILURE;
	if (argc > 1) {
		unsigned int fault = (unsigned int)strtoul(argv[1], NULL, 10);

		if (fault == 0 || fault > fault_count)
			return EXIT_FAILURE;
		return !report_of(fault, argc > 2 ? strtoull(argv[2], NULL, 10) : seed_of(fault),
				  report);
	}
	if (caught(0, 0, test_length() == TEST_SHORT ? SOUND_SHORT : SOUND, report)) {
		(void)printf("without a fault: seed %" PRIu64 ": %s\n", report->seed, report->text);
		return EXIT_FAILURE;
	}
	for (unsigned int i = 1; i <= fault_count; i += strides[test_length()], tried++)
		survivors += !report_of(i, fresh ? 0 : seed_of(i), report);
	(void)printf("%u of %u faults not caught, of %zu that there are\n", survivors, tried,
		     fault_count);
	return survivors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
