/*
 * test_guest.c -- UCX in an application's process: what it must not take over, and when it comes.
 *
 * An application's handlers, its alternate stack and its environment are what they were; without
 * handlers of its own, a signal does what it does by default. Jobs that need no UCX do not load it,
 * and where there is none, or no thread for it, that is an error in one line.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato.h"
#include "tests/check_main.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED /* Sanitizers have handlers of their own. */
#endif

#define SIGNALS 5
static const int signals[SIGNALS] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP };
static const char *const transports[] = { "ucx", "tcp" };

static struct sigaction at_start[SIGNALS];
static bool loaded_at_start;
static char *program;

static bool ucx_is_loaded(void)
{
	return dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD) != NULL;
}

static rubato_status job_open(rubato_comm **comm, const char *transport)
{
	rubato_options options = RUBATO_OPTIONS_INIT;

	options.transport = transport;
	return rubato_init(comm, &options);
}

static void job(const char *transport)
{
	rubato_comm *comm;

	ck_assert_msg(job_open(&comm, transport) == RUBATO_OK, "%s", rubato_error_text());
	ck_assert(ucx_is_loaded());
	ck_assert_int_eq(rubato_barrier(comm), RUBATO_OK);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}

/* ---- Handlers ---- */

static void one_handler(int s)
{
	(void)s;
}

static void another_handler(int s, siginfo_t *info, void *context)
{
	(void)s, (void)info, (void)context;
}

#ifndef SANITIZED
START_TEST(linking_takes_nothing_over)
{
	ck_assert(!loaded_at_start);
	for (int i = 0; i < SIGNALS; i++)
		ck_assert_msg(at_start[i].sa_handler == SIG_DFL, "signal %d has a handler",
			      signals[i]);
}
END_TEST
#endif

static void handlers_set(bool other)
{
	struct sigaction action = { .sa_flags = other ? SA_SIGINFO | SA_ONSTACK : SA_RESTART };

	if (other)
		action.sa_sigaction = another_handler;
	else
		action.sa_handler = one_handler;
	(void)sigaddset(&action.sa_mask, SIGUSR2);
	for (int i = 0; i < SIGNALS; i++)
		ck_assert_int_eq(sigaction(signals[i], &action, NULL), 0);
}

static void handlers_expect(bool other, const char *when)
{
	for (int i = 0; i < SIGNALS; i++) {
		struct sigaction now;

		ck_assert_int_eq(sigaction(signals[i], NULL, &now), 0);
		ck_assert_msg(other ? now.sa_sigaction == another_handler
				    : now.sa_handler == one_handler,
			      "signal %d, %s", signals[i], when);
		ck_assert_int_eq(sigismember(&now.sa_mask, SIGUSR2), 1);
	}
}

START_TEST(handlers_stay_the_applications)
{
	static uint8_t memory[1 << 16];
	stack_t stack = { .ss_sp = memory, .ss_size = sizeof(memory) }, now;
	rubato_comm *comm;

	handlers_set(false);
	ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
	ck_assert_int_eq(job_open(&comm, transports[_i]), RUBATO_OK);
	handlers_expect(false, "from before start-up");
	handlers_set(true);
	ck_assert_int_eq(rubato_barrier(comm), RUBATO_OK);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
	handlers_expect(true, "from after start-up");
	job(transports[_i]);
	handlers_expect(true, "after a second start");
	ck_assert_int_eq(sigaltstack(NULL, &now), 0);
	ck_assert_ptr_eq(now.ss_sp, memory);
}
END_TEST

static struct sigaction at_exit_expected, at_exit_found;

__attribute__((destructor)) static void at_exit(void)
{
	if (at_exit_expected.sa_handler == one_handler) {
		(void)sigaction(SIGSEGV, NULL, &at_exit_found);
		if (at_exit_found.sa_handler != one_handler)
			_exit(7);
	}
}

/* The child's exit status, or 128 and the signal that ended it; `said`: what it wrote. */
static int child(void (*body)(const char *transport), const char *transport, char said[512])
{
	int ends[2], status = 0;
	size_t at = 0;
	ssize_t count;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(ends[1], 1);
		(void)dup2(ends[1], 2);
		(void)close(ends[0]);
		body(transport);
		exit(0);
	}
	(void)close(ends[1]);
	while (at < 511 && (count = read(ends[0], said + at, 511 - at)) > 0)
		at += (size_t)count;
	said[at] = '\0';
	(void)close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void job_and_handler(const char *transport)
{
	job(transport);
	handlers_set(false);
	at_exit_expected.sa_handler = one_handler;
}

START_TEST(handlers_stay_until_the_end)
{
	char said[512];

	ck_assert_int_eq(child(job_and_handler, transports[_i], said), 0);
}
END_TEST

static void hang_up(const char *transport)
{
	rubato_comm *comm;

	if (job_open(&comm, transport) == RUBATO_OK)
		(void)raise(SIGHUP);
}

START_TEST(a_hang_up_ends_a_rank)
{
	char said[512];

	ck_assert_int_eq(child(hang_up, transports[_i], said), 128 + SIGHUP);
	ck_assert_str_eq(said, "");
}
END_TEST

#ifndef SANITIZED
static void crash(const char *transport)
{
	rubato_comm *comm;

	if (job_open(&comm, transport) == RUBATO_OK)
		(void)raise(SIGSEGV);
}

START_TEST(a_crash_is_the_applications)
{
	char said[512];

	ck_assert_int_eq(child(crash, transports[_i], said), 128 + SIGSEGV);
	ck_assert_str_eq(said, "");
}
END_TEST
#endif

static _Atomic pid_t handled_in;

static void note_thread(int s)
{
	(void)s;
	handled_in = gettid();
}

/* Blocked in the application's only thread, a signal stays pending: nobody else takes it. */
START_TEST(signals_reach_no_thread_of_ucx)
{
	struct sigaction action = { .sa_handler = note_thread };
	sigset_t usr1;
	rubato_comm *comm;

	ck_assert_int_eq(job_open(&comm, transports[_i]), RUBATO_OK);
	ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
	(void)sigemptyset(&usr1);
	(void)sigaddset(&usr1, SIGUSR1);
	ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
	ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
	for (int i = 0; i < 100 && handled_in == 0; i++)
		(void)usleep(1000);
	ck_assert_int_eq(handled_in, 0);
	ck_assert_int_eq(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
	ck_assert_int_eq(handled_in, gettid());
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}
END_TEST

/* ---- What others can see ---- */

/* Whether this process has a socket with that inode. */
static bool socket_is_ours(unsigned long inode)
{
	char name[64], target[64], path[300];
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	bool found = false;

	ck_assert_ptr_nonnull(folder);
	(void)snprintf(name, sizeof(name), "socket:[%lu]", inode);
	while ((entry = readdir(folder)) != NULL) {
		ssize_t count;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		count = readlink(path, target, sizeof(target) - 1);
		target[count > 0 ? count : 0] = '\0';
		found |= strcmp(target, name) == 0;
	}
	(void)closedir(folder);
	return found;
}

/* Our listening sockets at the loopback device's addresses, and at others. */
static void listeners_count(const char *table, int *here, int *elsewhere)
{
	FILE *file = fopen(table, "r");
	char line[512], address[64];
	unsigned state;
	unsigned long inode;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		/* sl local remote st queues timer retransmits uid timeout inode */
		if (sscanf(line, "%*s %63[0-9A-F]:%*x %*s %x %*s %*s %*s %*s %*s %lu", address,
			   &state, &inode) != 3 ||
		    state != 0x0a || !socket_is_ours(inode))
			continue;
		*(strcmp(address, "0100007F") == 0 ? here : elsewhere) += 1;
	}
	if (file != NULL)
		(void)fclose(file);
}

START_TEST(it_listens_where_only_this_machine_comes)
{
	int here = 0, elsewhere = 0;
	rubato_comm *comm;

	ck_assert_int_eq(job_open(&comm, transports[_i]), RUBATO_OK);
	listeners_count("/proc/self/net/tcp", &here, &elsewhere);
	listeners_count("/proc/self/net/tcp6", &here, &elsewhere);
	ck_assert_int_eq(elsewhere, 0);
	ck_assert_int_eq(here, 1);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}
END_TEST

/* Such files stay when the process is killed at the wrong time. */
START_TEST(it_makes_no_files_in_shared_memory)
{
	char line[512];
	rubato_comm *comm;
	void *memory;
	FILE *maps;

	ck_assert_int_eq(job_open(&comm, "ucx"), RUBATO_OK);
	ck_assert_int_eq(rubato_alloc(comm, 1 << 20, &memory), RUBATO_OK);
	maps = fopen("/proc/self/maps", "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		ck_assert_msg(strstr(line, "ucx_shm_posix") == NULL, "%s", line);
	(void)fclose(maps);
	ck_assert_int_eq(rubato_finalize(comm), RUBATO_OK);
}
END_TEST

/* ---- The environment ---- */

START_TEST(the_environment_stays)
{
	char *before[1024];
	size_t count = 0;

	for (; environ[count] != NULL && count < 1024; count++)
		before[count] = strdup(environ[count]);
	job(transports[_i]);
	for (size_t i = 0; i < count; i++) {
		ck_assert_ptr_nonnull(environ[i]);
		ck_assert_str_eq(environ[i], before[i]);
		free(before[i]);
	}
	ck_assert_ptr_null(environ[count]);
}
END_TEST

/* ---- When it comes ---- */

struct two {
	rubato_id id;
	const char *transport;
	rubato_status status[2];
};

struct two_rank {
	struct two *two;
	uint32_t rank;
};

static void *two_main(void *arg)
{
	struct two_rank *me = arg;
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	rubato_status *status = &me->two->status[me->rank];

	options.transport = me->two->transport;
	*status = rubato_init_id(&comm, &me->two->id, me->rank, 2, &options);
	if (*status == RUBATO_OK)
		*status = rubato_finalize(comm);
	return NULL;
}

START_TEST(a_job_on_one_machine_does_not_load_it)
{
	static const char *const local[] = { "auto", "shm" };
	struct two two = { .transport = local[_i] };
	struct two_rank ranks[2] = { { &two, 0 }, { &two, 1 } };
	pthread_t threads[2];

	ck_assert_int_eq(rubato_id_create(&two.id), RUBATO_OK);
	for (int r = 0; r < 2; r++)
		ck_assert_int_eq(pthread_create(&threads[r], NULL, two_main, &ranks[r]), 0);
	for (int r = 0; r < 2; r++) {
		ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
		ck_assert_int_eq(two.status[r], RUBATO_OK);
	}
	ck_assert(!ucx_is_loaded());
}
END_TEST

/* Run by the case below, where the system's UCX is hidden by a file that is none. */
static int without_ucx(void)
{
	rubato_comm *comm;

	for (int i = 0; i < 2; i++) {
		if (job_open(&comm, transports[i]) != RUBATO_ERR_UNSUPPORTED)
			return 1;
		(void)printf("%s\n", rubato_error_text());
	}
	return job_open(&comm, "auto") == RUBATO_OK && rubato_finalize(comm) == RUBATO_OK ? 0 : 2;
}

#ifndef RB_UCX_FOLDER /* That one is not looked for. */
START_TEST(where_there_is_none_that_is_one_line)
{
	char folder[] = "/tmp/rubato-guest-XXXXXX", command[1200], line[600];
	FILE *said;
	int lines = 0;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(command, sizeof(command),
		       "touch %s/libucp.so.0 && LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH %s without-ucx "
		       "2>&1",
		       folder, folder, program);
	said = popen(command, "r");
	ck_assert_ptr_nonnull(said);
	for (; fgets(line, sizeof(line), said) != NULL; lines++)
		ck_assert_msg(strstr(line, "UCX cannot be loaded: ") != NULL &&
				      strstr(line, "libucp.so.0") != NULL,
			      "%s", line);
	ck_assert_int_eq(pclose(said), 0);
	ck_assert_int_eq(lines, 2);
	(void)snprintf(command, sizeof(command), "rm -r %s", folder);
	ck_assert_int_eq(system(command), 0);
}
END_TEST
#endif

static void without_threads(const char *transport)
{
	struct rlimit none = { 1, 1 };
	rubato_comm *comm;

	/* Of the superuser no threads are counted. */
	if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0))
		_exit(3);
	if (job_open(&comm, transport) != RUBATO_ERR_UNSUPPORTED)
		_exit(4);
	(void)dprintf(1, "%s", rubato_error_text());
	_exit(0);
}

START_TEST(no_thread_for_it_is_one_line)
{
	char said[512];

	ck_assert_int_eq(child(without_threads, transports[_i], said), 0);
	ck_assert_msg(strstr(said, "UCX needs threads") != NULL && strchr(said, '\n') == NULL, "%s",
		      said);
}
END_TEST

/* ---- And when its host goes ---- */

static void plugged_job(const char *transport)
{
	void *library = dlopen(RUBATO_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	rubato_status (*init)(rubato_comm **, const rubato_options *);
	rubato_status (*finalize)(rubato_comm *);
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;

	if (library == NULL)
		_exit(3);
	*(void **)(void *)&init = dlsym(library, "rubato_init");
	*(void **)(void *)&finalize = dlsym(library, "rubato_finalize");
	options.transport = transport;
	if (init(&comm, &options) != RUBATO_OK || finalize(comm) != RUBATO_OK)
		_exit(4);
	(void)dlclose(library);
}

START_TEST(a_plugin_may_close_the_library)
{
	char said[512];

	ck_assert_int_eq(child(plugged_job, transports[_i], said), 0);
	ck_assert_str_eq(said, "");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc;

	program = argv[0];
	loaded_at_start = ucx_is_loaded();
	for (int i = 0; i < SIGNALS; i++) {
		(void)sigaction(signals[i], NULL, &at_start[i]);
		if (at_start[i].sa_handler == SIG_IGN) /* Of whoever started us: nohup. */
			at_start[i].sa_handler =
				signal(signals[i], SIG_DFL) == SIG_ERR ? SIG_ERR : SIG_DFL;
	}
	if (argc > 1 && strcmp(argv[1], "without-ucx") == 0)
		return without_ucx();
	tc = tcase_create("guest");
	tcase_set_timeout(tc, 60);
#ifndef SANITIZED
	tcase_add_test(tc, linking_takes_nothing_over);
	tcase_add_loop_test(tc, a_crash_is_the_applications, 0, 2);
#endif
	tcase_add_loop_test(tc, handlers_stay_the_applications, 0, 2);
	tcase_add_loop_test(tc, handlers_stay_until_the_end, 0, 2);
	tcase_add_loop_test(tc, a_hang_up_ends_a_rank, 0, 2);
	tcase_add_loop_test(tc, signals_reach_no_thread_of_ucx, 0, 2);
	tcase_add_loop_test(tc, it_listens_where_only_this_machine_comes, 0, 2);
	if (getenv("UCX_TLS") == NULL) /* ThreadSanitizer needs such files. */
		tcase_add_test(tc, it_makes_no_files_in_shared_memory);
	tcase_add_loop_test(tc, the_environment_stays, 0, 2);
	tcase_add_loop_test(tc, a_job_on_one_machine_does_not_load_it, 0, 2);
#ifndef RB_UCX_FOLDER
	tcase_add_test(tc, where_there_is_none_that_is_one_line);
#endif
	tcase_add_loop_test(tc, no_thread_for_it_is_one_line, 0, 2);
	tcase_add_loop_test(tc, a_plugin_may_close_the_library, 0, 2);
	return check_main("guest", tc);
}
