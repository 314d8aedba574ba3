/* test_dump.c -- rubato_dump to a pipe that nobody reads: who dumps waits, and nobody else. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/runtime/local.h"

static const struct rb_transport_ops *const shm[] = { &rb_transport_shm, NULL };

#define MANY 2000u /* Operations: more lines than a pipe holds. */
#define WAIT_NS 200000000u

struct dumper {
	rubato_comm *comm;
	int fd;
	atomic_bool begun;
};

static void *dumper_main(void *arg)
{
	struct dumper *dumper = arg;

	atomic_store(&dumper->begun, true);
	rubato_dump(dumper->comm, dumper->fd);
	return NULL;
}

/* All of it comes, line by line, the last one too. */
static rubato_status read_all(int fd, uint32_t *lines)
{
	char piece[4096], last = 0;
	ssize_t got;

	*lines = 0;
	while ((got = read(fd, piece, sizeof(piece))) > 0) {
		for (ssize_t i = 0; i < got; i++)
			*lines += piece[i] == '\n';
		last = piece[got - 1];
		if (*lines >= MANY && last == '\n')
			return RUBATO_OK;
	}
	EXPECT(got >= 0);
	return RUBATO_OK;
}

static rubato_status unread_main(rubato_comm *comm, void *arg)
{
	static float values[MANY];
	rubato_op *ops[MANY];
	struct dumper dumper = { .comm = comm };
	uint64_t begin_ns;
	pthread_t thread;
	uint32_t lines;
	int ends[2];

	(void)arg;
	for (uint32_t i = 0; i < MANY; i++) {
		RB_TRY(rubato_op_recv(comm, &values[i], 1, RUBATO_FLOAT32, 0, i, &ops[i]));
		RB_TRY(rubato_start(ops[i]));
	}
	EXPECT(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
	dumper.fd = ends[1];
	EXPECT(pthread_create(&thread, NULL, dumper_main, &dumper) == 0);
	while (!atomic_load(&dumper.begun))
		rubato_sleep(NULL, 0);
	begin_ns = rb_clock_ns();
	do /* Its lines are there, and more than fit. */
		EXPECT(rubato_wait(ops[0], WAIT_NS) == RUBATO_ERR_TIMEOUT);
	while (rb_clock_ns() - begin_ns < 2 * WAIT_NS);
	EXPECT(rb_clock_ns() - begin_ns < 20 * (uint64_t)WAIT_NS);
	RB_TRY(read_all(ends[0], &lines));
	EXPECT(lines >= MANY);
	EXPECT(close(ends[0]) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
	EXPECT(close(ends[1]) == 0);
	for (uint32_t i = 0; i < MANY; i++)
		rubato_op_free(ops[i]);
	return RUBATO_OK;
}

START_TEST(who_does_not_read_holds_up_nobody)
{
	ck_assert_ptr_ne((void *)(uintptr_t)signal(SIGPIPE, SIG_IGN), (void *)(uintptr_t)SIG_ERR);
	ck_assert_int_eq(local_run(1, shm, unread_main, NULL, NULL), RUBATO_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dump");
	TCase *tc = tcase_create("dump");

	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, who_does_not_read_holds_up_nobody);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
