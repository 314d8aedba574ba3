/* launch.c -- one poll over a signalfd (children, Ctrl-C) and the pipe with the ranks' last
 * words. */
#include "trainer/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/base/clock.h"

/* Guesses: long enough to say why, short enough not to be taken for a hang. */
#define GRACE_NS UINT64_C(1000000000)    /* From the first failure to SIGTERM. */
#define PATIENCE_NS UINT64_C(3000000000) /* From SIGTERM to SIGKILL. */
#define SECRET_BYTES 24
#define MEMORY_NOT_RUN 8u /* MFD_NOEXEC_SEAL, which older headers lack and some systems demand. */

enum phase { RUNNING, FAILING, ENDING, KILLING }; /* The last three each have a deadline. */

struct launch {
	uint32_t rank_count, alive;
	pid_t *pids; /* 0: not started, or gone. */
	sigset_t old_signals;
	int signals, line_read, line_write;
	int secret; /* Ranks are forks of ours, and have it too. */
	char root[32];
	enum phase phase;
	uint64_t deadline_ns;
	int status; /* Of the first failure. */
	bool by_signal;
	char said[80];   /* Our own sentence about that failure. */
	char line[1024]; /* What ranks wrote, the first bytes of it. */
	size_t line_bytes;
};

static int complain(const char *what)
{
	fprintf(stderr, "rubato-train: launch: %s: %s\n", what, strerror(errno));
	return TR_EXIT_FAILURE;
}

static bool pick_port(struct launch *l)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t at_bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ok = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
	     getsockname(fd, (struct sockaddr *)&at, &at_bytes) == 0;
	if (fd >= 0)
		close(fd);
	snprintf(l->root, sizeof(l->root), "127.0.0.1:%u", ntohs(at.sin_port));
	return ok;
}

/* In a file without a name, which goes when the last of us does. */
static bool write_secret(struct launch *l)
{
	uint8_t random[SECRET_BYTES];
	char text[2 * SECRET_BYTES + 1];

	l->secret = memfd_create("rubato-secret", MFD_CLOEXEC | MEMORY_NOT_RUN);
	if (l->secret < 0 && errno == EINVAL) /* Linux before 6.3. */
		l->secret = memfd_create("rubato-secret", MFD_CLOEXEC);
	if (l->secret < 0 || fchmod(l->secret, 0600) != 0 ||
	    getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return false;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	return write(l->secret, text, 2 * SECRET_BYTES) == 2 * SECRET_BYTES;
}

static bool open_signals(struct launch *l)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, &l->old_signals) != 0)
		return false;
	l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return l->signals >= 0;
}

static void set_environment(const struct launch *l, uint32_t rank)
{
	char number[16], file[32];

	snprintf(number, sizeof(number), "%u", rank);
	setenv("RUBATO_RANK", number, 1);
	snprintf(number, sizeof(number), "%u", l->rank_count);
	setenv("RUBATO_SIZE", number, 1);
	setenv("RUBATO_ROOT", l->root, 1);
	snprintf(file, sizeof(file), "/proc/self/fd/%d", l->secret);
	setenv("RUBATO_SECRET_FILE", file, 1);
}

static bool start_rank(struct launch *l, uint32_t rank, tr_rank_main rank_main, void *arg)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return false;
	if (pid > 0) {
		l->pids[rank] = pid;
		l->alive++;
		return true;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* Nobody is left behind when the parent is killed. */
	if (getppid() != parent)
		_exit(TR_EXIT_FAILURE);
	sigprocmask(SIG_SETMASK, &l->old_signals, NULL);
	close(l->signals);
	close(l->line_read);
	set_environment(l, rank);
	free(l->pids);
	exit(rank_main(arg, l->line_write));
}

static void signal_all(const struct launch *l, int number)
{
	for (uint32_t rank = 0; rank < l->rank_count; rank++)
		if (l->pids[rank] > 0)
			kill(l->pids[rank], number);
}

static void enter(struct launch *l, enum phase phase)
{
	l->phase = phase;
	l->deadline_ns = tr_clock_ns() + (phase == FAILING ? GRACE_NS : PATIENCE_NS);
	if (phase == ENDING)
		signal_all(l, SIGTERM);
	if (phase == KILLING)
		signal_all(l, SIGKILL);
}

/* Notes how a rank ended. A death by signal explains what the others then say: it goes first. */
static void rank_ended(struct launch *l, uint32_t rank, int wait_status)
{
	bool by_signal = WIFSIGNALED(wait_status);
	int status = by_signal ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

	l->pids[rank] = 0;
	l->alive--;
	if (status == 0 || l->phase == ENDING || l->phase == KILLING)
		return;
	if (l->phase == RUNNING || (by_signal && !l->by_signal)) {
		l->status = status;
		l->by_signal = by_signal;
		if (by_signal)
			snprintf(l->said, sizeof(l->said), "rank %u was ended by signal %d (%s)",
				 rank, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
		else
			snprintf(l->said, sizeof(l->said), "rank %u ended with status %d", rank,
				 status);
	}
	if (l->phase == RUNNING)
		enter(l, FAILING);
}

static void reap(struct launch *l)
{
	for (uint32_t rank = 0; rank < l->rank_count; rank++) {
		int wait_status;

		if (l->pids[rank] > 0 &&
		    waitpid(l->pids[rank], &wait_status, WNOHANG) == l->pids[rank])
			rank_ended(l, rank, wait_status);
	}
}

static void take_signals(struct launch *l)
{
	struct signalfd_siginfo info;

	while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue; /* reap() looks at everyone: such signals merge. */
		if (l->phase == RUNNING || l->phase == FAILING) {
			l->status = 128 + (int)info.ssi_signo;
			l->by_signal = true;
			snprintf(l->said, sizeof(l->said), "ended by signal %u (%s)",
				 info.ssi_signo, strsignal((int)info.ssi_signo));
			enter(l, ENDING);
		}
	}
}

static void take_lines(struct launch *l)
{
	char bytes[512];
	ssize_t got;

	while ((got = read(l->line_read, bytes, sizeof(bytes))) > 0) {
		size_t room = sizeof(l->line) - l->line_bytes;
		size_t part = (size_t)got < room ? (size_t)got : room;

		memcpy(l->line + l->line_bytes, bytes, part);
		l->line_bytes += part;
	}
}

static void look_after(struct launch *l)
{
	while (l->alive > 0) {
		struct pollfd fds[2] = { { .fd = l->signals, .events = POLLIN },
					 { .fd = l->line_read, .events = POLLIN } };
		uint64_t now = tr_clock_ns();
		int timeout_ms = -1;

		if (l->phase != RUNNING)
			timeout_ms = l->deadline_ns <= now
					     ? 0
					     : (int)((l->deadline_ns - now) / 1000000) + 1;
		poll(fds, 2, timeout_ms);
		take_signals(l);
		take_lines(l);
		reap(l);
		if (l->phase != RUNNING && l->alive > 0 && tr_clock_ns() >= l->deadline_ns)
			enter(l, l->phase == FAILING ? ENDING : KILLING);
	}
	take_lines(l);
}

static void print_failure(const struct launch *l)
{
	const char *end = memchr(l->line, '\n', l->line_bytes);

	if (!l->by_signal && end != NULL)
		fprintf(stderr, "%.*s\n", (int)(end - l->line), l->line);
	else
		fprintf(stderr, "rubato-train: %s\n", l->said);
}

static int run(struct launch *l, tr_rank_main rank_main, void *arg)
{
	int fds[2];

	if (!pick_port(l))
		return complain("no loopback port");
	if (!write_secret(l))
		return complain("secret");
	if (pipe2(fds, O_CLOEXEC) != 0)
		return complain("pipe");
	l->line_read = fds[0];
	l->line_write = fds[1];
	fcntl(l->line_read, F_SETFL, O_NONBLOCK);
	if (!open_signals(l))
		return complain("signalfd");
	fflush(NULL);
	for (uint32_t rank = 0; rank < l->rank_count; rank++)
		if (!start_rank(l, rank, rank_main, arg)) {
			l->status = complain("fork");
			enter(l, ENDING);
			break;
		}
	close(l->line_write);
	l->line_write = -1;
	bool forked = l->phase == RUNNING;
	look_after(l);
	if (l->status != 0 && forked)
		print_failure(l);
	return l->status;
}

static void close_launch(struct launch *l)
{
	if (l->line_read >= 0)
		close(l->line_read);
	if (l->line_write >= 0)
		close(l->line_write);
	if (l->signals >= 0) {
		close(l->signals);
		sigprocmask(SIG_SETMASK, &l->old_signals, NULL);
	}
	if (l->secret >= 0)
		close(l->secret);
	free(l->pids);
}

int tr_launch(uint32_t rank_count, tr_rank_main rank_main, void *arg)
{
	struct launch l = { .rank_count = rank_count,
			    .signals = -1,
			    .line_read = -1,
			    .line_write = -1,
			    .secret = -1 };
	int status;

	l.pids = calloc(rank_count, sizeof(*l.pids));
	if (l.pids == NULL)
		return complain("memory");
	status = run(&l, rank_main, arg);
	close_launch(&l);
	return status;
}
