/*
 * test_standard.c -- processes whose standard descriptors are closed, or lead to a pipe that nobody
 * reads: what the library logs goes into no connection of its own, and ends nobody. Name of the
 * transport as argument.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/child_fork.h"
#include "tests/expect.h"

#define RANKS 3u
#define TIMEOUT_NS UINT64_C(20000000000)

struct shared {
	atomic_uint id_made, prepared;
	rubato_id id;
};

static const char *transport;

static rubato_status use(struct shared *s, uint32_t rank)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	float in = (float)rank, out = 0;
	rubato_comm *comm, *half;

	options.transport = transport;
	options.timeout_ns = TIMEOUT_NS;
	if (rank == 0) {
		RB_TRY(rubato_id_create(&s->id));
		atomic_store(&s->id_made, 1);
	}
	while (atomic_load(&s->id_made) == 0)
		rb_clock_sleep_until(rb_clock_ns() + 1000000);
	RB_TRY(rubato_init_id(&comm, &s->id, rank, RANKS, &options));
	RB_TRY(rubato_split(comm, rank % 2, 0, &half));
	RB_TRY(rubato_finalize(half));
	RB_TRY(rubato_allreduce(comm, &in, &out, 1, RUBATO_FLOAT32, RUBATO_SUM));
	EXPECT(out == 3);
	return rubato_finalize(comm);
}

static bool all_closed(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (close(fd) != 0 || fcntl(fd, F_GETFD) >= 0)
			return false;
	return true;
}

/* Who writes there gets EPIPE, and SIGPIPE if it is not kept away. */
static bool nobody_reads(void)
{
	int ends[2];
	bool broken;

	if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) != STDERR_FILENO)
		return false;
	(void)close(ends[0]);
	(void)close(ends[1]);
	(void)signal(SIGPIPE, SIG_IGN);
	broken = write(STDERR_FILENO, "x", 1) < 0;
	(void)signal(SIGPIPE, SIG_DFL);
	return broken;
}

static void job_run(bool (*prepare)(void))
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[RANKS];

	ck_assert_ptr_ne(s, MAP_FAILED);
	for (uint32_t r = 0; r < RANKS; r++) {
		children[r] = child_fork();
		if (children[r] > 0)
			continue;
		(void)setenv("RUBATO_LOG", "data", 1);
		if (!prepare())
			_exit(3);
		atomic_fetch_add(&s->prepared, 1);
		_exit(use(s, r) != RUBATO_OK);
	}
	for (uint32_t r = 0; r < RANKS; r++) {
		int status = 0;

		ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
		ck_assert_msg(status == 0, "rank %u: status %x", r, (unsigned)status);
	}
	ck_assert_uint_eq(atomic_load(&s->prepared), RANKS);
	ck_assert_int_eq(munmap(s, sizeof(*s)), 0);
}

START_TEST(descriptors_that_are_closed_become_no_connection)
{
	job_run(all_closed);
}
END_TEST

START_TEST(what_nobody_reads_ends_nobody)
{
	job_run(nobody_reads);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("standard");

	if (argc < 2)
		return 2;
	transport = argv[1];
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, descriptors_that_are_closed_become_no_connection);
	tcase_add_test(tc, what_nobody_reads_ends_nobody);
	return check_main("standard", tc);
}
