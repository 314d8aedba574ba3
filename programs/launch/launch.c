/*
 * launch.c -- one poll loop over signals, the ranks' output and, on a terminal, the input.
 *
 *   RUNNING ------------timeout, signal-----------> ENDING --grace is over--> KILLED
 *      |   `--a rank failed--> FAILING --patience is over--^                    |
 *      `------------- all ranks ended: sweep, last output, done ---------------'
 *
 * Output is written in pieces that cannot block once poll() says so; while a reader holds us up,
 * signals and deadlines are still served, and after KILLED output that nobody takes is dropped.
 */
#include "programs/launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/clock.h"
#include "programs/launch/launch_inside.h"
#include "programs/lines.h"

#define PIECE_BYTES 4096 /* PIPE_BUF: a pipe that polls writable takes so much unblocked. */
#define NEVER UINT64_MAX
#define NOT_ENDED (-1) /* No wait status. */
#define POLLS 5        /* Signals, input from and to, ranks' lines, who holds us; then streams. */
#define NAME_BYTES 160
#define FAILED '\036' /* A part's line that says the status of its first failure, and is no text. */
#define HOSTS_GRACE_NS 2000000000u /* Guess: that their parts take to say that they ended. */

enum phase { RUNNING, FAILING, ENDING, KILLED };

struct stream { /* One rank's standard output or error. */
	int fd; /* -1: closed. */
	int to; /* 1 or 2. */
	struct lines lines;
};

struct job {
	const struct launch *launch;
	struct launch_secret secret;
	struct launch_child child;
	struct places places;   /* The template; rank and descriptors vary. */
	pid_t *pids;            /* By rank; 0: ended, or never started. */
	int *ended;             /* By rank: a wait status that was not dealt with, or NOT_ENDED. */
	int *telling;           /* By host: its input, whose end ends it; -1: closed. */
	struct stream *streams; /* Two by rank. */
	struct pollfd *polls;
	uint32_t started, running;
	int port;                 /* Keeps the root's; -1: none. */
	int signals;              /* A signalfd. */
	int input_from, input_to; /* A terminal's input, passed on to rank 0; -1: not. */
	char input[PIECE_BYTES];
	size_t input_used;
	enum phase phase;
	uint64_t timeout_at, end_at, kill_at; /* NEVER: not set. */
	int status;                           /* 0 until something failed. */
	bool by_signal;                       /* That was a signal, to a rank or to us. */
	bool output_gone;                     /* Nobody reads ours any more. */
	struct buffer sentences;              /* What we have to say, and have not said yet. */
	/* With LAUNCH_RAW: what we have to say of the first failure, and what ranks say. */
	char said[256], line[1024];
	size_t line_used;
	int line_from; /* -1: none. */
};

/* A sentence about the end, which print_sentences() gives out. With LAUNCH_RAW one line is printed,
 * when all have ended. */
__attribute__((format(printf, 2, 3))) static void say(struct job *job, const char *format, ...)
{
	char text[sizeof(job->said)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (job->launch->output == LAUNCH_RAW) {
		memcpy(job->said, text, sizeof(text));
		return;
	}
	buffer_add(&job->sentences, job->launch->program, strlen(job->launch->program));
	buffer_add(&job->sentences, ": ", 2);
	buffer_add(&job->sentences, text, strlen(text));
	buffer_add(&job->sentences, "\n", 1);
}

/* ---- Ending ---- */

/* The first reason to end is the one that counts. Whoever started this part is told at once: ranks
 * here may take seconds to end, and fail elsewhere meanwhile. */
static void status_set(struct job *job, int status)
{
	char line[16];

	if (job->status != 0 || status == 0)
		return;
	job->status = status;
	(void)snprintf(line, sizeof(line), "%c%d\n", FAILED, status);
	if (job->launch->held)
		buffer_add(&job->sentences, line, strlen(line));
}

static void close_unless(int fd, int keep)
{
	if (fd >= 0 && fd != keep)
		(void)close(fd);
}

/* "rank 3", or "host node1" where children are what reaches a host. */
static const char *name_of(const struct job *job, uint32_t child, char name[NAME_BYTES])
{
	if (job->launch->hosts != NULL)
		(void)snprintf(name, NAME_BYTES, "host %s", job->launch->hosts[child]);
	else
		(void)snprintf(name, NAME_BYTES, "rank %u", job->launch->first + child);
	return name;
}

/* What a user says to the program, not to us. Parts on other hosts are told only to end. */
static void pass_on(const struct job *job, int number)
{
	for (uint32_t rank = 0; rank < job->started && job->launch->hosts == NULL; rank++)
		if (job->pids[rank] != 0)
			(void)kill(-job->pids[rank], number);
}

static void signal_ranks(struct job *job, int number)
{
	for (uint32_t rank = 0; rank < job->started; rank++) {
		if (job->pids[rank] == 0)
			continue;
		if (job->launch->hosts != NULL && number != SIGKILL) {
			close_unless(job->telling[rank], -1);
			job->telling[rank] = -1;
			continue;
		}
		(void)kill(-job->pids[rank], number);
		(void)kill(-job->pids[rank], SIGCONT); /* A stopped process would not notice. */
	}
}

static void end_job(struct job *job, int status, int number)
{
	status_set(job, status);
	if (job->phase >= ENDING)
		return;
	job->phase = ENDING;
	job->end_at = NEVER;
	job->kill_at =
		clock_ns() + LAUNCH_GRACE_NS + (job->launch->hosts != NULL ? HOSTS_GRACE_NS : 0);
	signal_ranks(job, number);
}

/* The others may know of it from each other, and end by themselves. */
static void failed(struct job *job, int status)
{
	status_set(job, status);
	if (job->launch->keep_going || job->phase != RUNNING)
		return;
	if (job->launch->patience_ns == 0) {
		end_job(job, status, SIGTERM);
		return;
	}
	job->phase = FAILING;
	job->end_at = clock_ns() + job->launch->patience_ns;
}

static void kill_job(struct job *job)
{
	job->phase = KILLED;
	job->kill_at = NEVER;
	signal_ranks(job, SIGKILL);
}

/* A host's part has said so; it has not ended yet. */
static void host_failed(struct job *job, uint32_t host, int status)
{
	char name[NAME_BYTES];

	if (status <= 0 || job->phase != RUNNING)
		return;
	if (!job->launch->keep_going) /* Else it is said when all of the host have ended. */
		say(job, "%s failed with exit status %d; ending the others",
		    name_of(job, host, name), status);
	failed(job, status);
}

static void rank_ended(struct job *job, uint32_t rank, int wait_status)
{
	bool signalled = WIFSIGNALED(wait_status);
	int status = signalled ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

	job->pids[rank] = 0;
	job->running--;
	if (job->running == 0 && job->phase == RUNNING) /* For processes that outlive their rank. */
		job->kill_at = clock_ns() + LAUNCH_GRACE_NS;
	/* A death by signal explains why the others failed, even before it. */
	bool explains = job->phase == FAILING && signalled && !job->by_signal;

	if (status == 0 || (job->phase != RUNNING && !explains))
		return;

	bool alone = job->launch->keep_going || job->running == 0 ||
		     job->launch->output == LAUNCH_RAW; /* The others have ended when it is said. */
	const char *rest = alone ? "" : "; ending the others";
	char name[NAME_BYTES];

	if (explains)
		job->status = status;
	job->by_signal = job->by_signal || signalled;
	if (signalled)
		say(job, "%s was ended by signal %d (%s)%s", name_of(job, rank, name),
		    WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)), rest);
	else
		say(job, "%s failed with exit status %d%s", name_of(job, rank, name), status, rest);
	failed(job, status);
}

/*
 * Ranks that die take others with them, so several may have ended before we look, and waitpid names
 * them in any order. One that a signal ended is the likelier first cause.
 */
static void reap(struct job *job)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
		for (uint32_t rank = 0; rank < job->started; rank++)
			if (job->pids[rank] == pid)
				job->ended[rank] = wait_status;
	for (int signalled = 1; signalled >= 0; signalled--) {
		for (uint32_t rank = 0; rank < job->started; rank++) {
			wait_status = job->ended[rank];
			if (wait_status == NOT_ENDED || WIFSIGNALED(wait_status) != signalled)
				continue;
			job->ended[rank] = NOT_ENDED;
			rank_ended(job, rank, wait_status);
		}
	}
}

static void take_signals(struct job *job)
{
	struct signalfd_siginfo info;

	while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int number = (int)info.ssi_signo;

		if (number == SIGCHLD) {
			reap(job);
		} else if (number == SIGUSR1 || number == SIGUSR2) {
			pass_on(job, number);
		} else if (job->phase < ENDING) {
			if (job->phase == RUNNING)
				say(job, "ended by signal %d (%s)", number, strsignal(number));
			job->by_signal = true;
			end_job(job, 128 + number, number);
		} else {
			kill_job(job); /* Asked twice. */
		}
	}
}

static void take_deadlines(struct job *job)
{
	uint64_t now = clock_ns();

	if (now >= job->timeout_at) {
		job->timeout_at = NEVER;
		if (job->phase == RUNNING && job->running > 0) {
			say(job, "timeout after %g s: ending %u ranks",
			    (double)job->launch->timeout_ns / 1e9, job->running);
			end_job(job, EXIT_TIMED_OUT, SIGTERM);
		}
	}
	if (now >= job->end_at)
		end_job(job, job->status, SIGTERM);
	if (now >= job->kill_at)
		kill_job(job);
}

/* Milliseconds until something is due, for poll(). */
static int patience_ms(const struct job *job)
{
	uint64_t at = job->timeout_at < job->kill_at ? job->timeout_at : job->kill_at;
	uint64_t now = clock_ns();

	at = job->end_at < at ? job->end_at : at;

	if (at == NEVER)
		return -1;
	if (at <= now)
		return 0;
	uint64_t ms = (at - now) / 1000000 + 1;

	return ms > 1000000 ? 1000000 : (int)ms;
}

/* ---- Output and input ---- */

/* Nobody reads it, which needs no words; or it cannot be written. */
static void output_lost(struct job *job, int to, int reason)
{
	job->output_gone = true;
	if (reason != EPIPE && job->phase < ENDING)
		say(job, "standard %s could not be written: %s; ending the ranks",
		    to == 1 ? "output" : "error", strerror(reason));
	end_job(job, reason == EPIPE ? 128 + SIGPIPE : EXIT_FAILURE, SIGTERM);
}

static void write_out(struct job *job, int to, const struct buffer *out)
{
	size_t done = 0;

	while (done < out->used && !job->output_gone) {
		struct pollfd polls[2] = { { .fd = to, .events = POLLOUT },
					   { .fd = job->signals, .events = POLLIN } };

		if (poll(polls, 2, patience_ms(job)) < 0 && errno != EINTR)
			return;
		take_signals(job);
		take_deadlines(job);
		if (polls[0].revents == 0) {
			if (job->phase == KILLED)
				return;
			continue;
		}
		size_t left = out->used - done;
		ssize_t put = write(to, out->data + done, left < PIECE_BYTES ? left : PIECE_BYTES);

		if (put > 0)
			done += (size_t)put;
		else if (put < 0 && errno != EINTR && errno != EAGAIN)
			output_lost(job, to, errno);
	}
}

/* What a host's part says for us only; the rest stays. Lines of ranks begin with "[". */
static void take_failures(struct job *job, uint32_t host, struct buffer *out)
{
	size_t kept = 0;

	for (size_t at = 0, end; at < out->used; at = end) {
		const char *newline = memchr(out->data + at, '\n', out->used - at);

		end = newline != NULL ? (size_t)(newline - out->data) + 1 : out->used;
		if (out->data[at] == FAILED) {
			host_failed(job, host, (int)strtol(out->data + at + 1, NULL, 10));
			continue;
		}
		memmove(out->data + kept, out->data + at, end - at);
		kept += end - at;
	}
	out->used = kept;
}

/* Gives out what has come of a stream. */
static void stream_write(struct job *job, const struct stream *stream, struct buffer *out)
{
	uint32_t child = (uint32_t)(stream - job->streams) / 2;

	if (job->launch->hosts != NULL && stream->to == 2)
		take_failures(job, child, out);
	write_out(job, stream->to, out);
	buffer_fini(out);
}

static void stream_close(struct job *job, struct stream *stream)
{
	struct buffer out = { 0 };

	(void)close(stream->fd);
	stream->fd = -1;
	lines_end(&stream->lines, &out);
	stream_write(job, stream, &out);
}

/* Returns false when there was nothing to read for now. */
static bool stream_read(struct job *job, struct stream *stream)
{
	char data[65536];
	struct buffer out = { 0 };
	ssize_t got = read(stream->fd, data, sizeof(data));

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		stream_close(job, stream);
		return true;
	}
	lines_feed(&stream->lines, data, (size_t)got, &out);
	stream_write(job, stream, &out);
	return true;
}

/* What ranks said last stands before what is said of their end. One read takes all that a pipe
 * holds, the next one sees its end; a rank that goes on writes no end of it. */
static void print_sentences(struct job *job)
{
	if (job->sentences.used == 0)
		return;
	for (uint32_t i = 0; i < 2 * job->started; i++)
		for (int reads = 0; reads < 2 && job->streams[i].fd >= 0; reads++)
			(void)stream_read(job, &job->streams[i]);
	(void)fwrite(job->sentences.data, 1, job->sentences.used, stderr);
	job->sentences.used = 0;
}

static void input_close(struct job *job)
{
	if (job->input_to >= 0)
		(void)close(job->input_to);
	job->input_to = -1;
	job->input_from = -1;
	job->input_used = 0;
}

/* A terminal gives its input to its foreground process group only, which is ours: pass it on. */
static void input_pass(struct job *job, const struct pollfd *from, const struct pollfd *to)
{
	if (job->input_used == 0 && (from->revents != 0)) {
		ssize_t got = read(job->input_from, job->input, sizeof(job->input));

		if (got > 0)
			job->input_used = (size_t)got;
		else if (got == 0 || errno != EINTR) /* EIO: we are in the background. */
			input_close(job);
	} else if (job->input_used > 0 && to->revents != 0) {
		ssize_t put = write(job->input_to, job->input, job->input_used);

		if (put > 0) {
			job->input_used -= (size_t)put;
			memmove(job->input, job->input + put, job->input_used);
		} else if (put < 0 && errno != EAGAIN && errno != EINTR) {
			input_close(job);
		}
	}
}

/* What ranks say about their failures: the first bytes of it. */
static void line_read(struct job *job)
{
	char bytes[512];
	ssize_t got;

	while (job->line_from >= 0 && (got = read(job->line_from, bytes, sizeof(bytes))) > 0) {
		size_t room = sizeof(job->line) - job->line_used;
		size_t part = (size_t)got < room ? (size_t)got : room;

		memcpy(job->line + job->line_used, bytes, part);
		job->line_used += part;
	}
}

static void failure_print(const struct job *job)
{
	const char *end = memchr(job->line, '\n', job->line_used);

	if (job->said[0] == '\0') /* It was said when it came. */
		return;
	if (!job->by_signal && end != NULL)
		(void)fprintf(stderr, "%.*s\n", (int)(end - job->line), job->line);
	else
		(void)fprintf(stderr, "%s: %s\n", job->launch->program, job->said);
}

/* Who started this part is gone, or wants it to end. Nothing is said to us any more. */
static void held_read(struct job *job, const struct pollfd *poll)
{
	char byte;

	if (poll->revents != 0 && read(0, &byte, 1) <= 0)
		end_job(job, 128 + SIGHUP, SIGTERM);
}

/* ---- The loop ---- */

static bool streams_open(const struct job *job)
{
	for (uint32_t i = 0; i < 2 * job->started; i++)
		if (job->streams[i].fd >= 0)
			return true;
	return false;
}

static void loop(struct job *job)
{
	uint32_t stream_count = 2 * job->started;
	struct pollfd *signals = job->polls, *from = job->polls + 1, *to = job->polls + 2;
	struct pollfd *streams = job->polls + POLLS;

	while (job->running > 0 || (streams_open(job) && job->phase != KILLED)) {
		*signals = (struct pollfd) { .fd = job->signals, .events = POLLIN };
		*from = (struct pollfd) { .fd = job->input_used == 0 ? job->input_from : -1,
					  .events = POLLIN };
		*to = (struct pollfd) { .fd = job->input_used > 0 ? job->input_to : -1,
					.events = POLLOUT };
		job->polls[3] = (struct pollfd) { .fd = job->line_from, .events = POLLIN };
		job->polls[4] =
			(struct pollfd) { .fd = job->launch->held && job->phase < ENDING ? 0 : -1,
					  .events = POLLIN };
		for (uint32_t i = 0; i < stream_count; i++)
			streams[i] = (struct pollfd) { .fd = job->streams[i].fd, .events = POLLIN };
		if (poll(job->polls, POLLS + stream_count, patience_ms(job)) < 0 &&
		    errno != EINTR) {
			perror(job->launch->program);
			kill_job(job);
		}
		for (uint32_t i = 0; i < stream_count; i++)
			if (streams[i].revents != 0)
				(void)stream_read(job, &job->streams[i]);
		input_pass(job, from, to);
		line_read(job);
		held_read(job, &job->polls[4]);
		take_signals(job);
		take_deadlines(job);
		print_sentences(job);
	}
	launch_sweep();
	line_read(job);
	for (uint32_t i = 0; i < stream_count; i++) {
		while (job->streams[i].fd >= 0 && stream_read(job, &job->streams[i]))
			;
		if (job->streams[i].fd >= 0)
			stream_close(job, &job->streams[i]);
	}
	print_sentences(job);
}

/* ---- Start ---- */

static bool pipe_make(int *ours, int *theirs, bool ours_reads)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	*ours = ends[ours_reads ? 0 : 1];
	*theirs = ends[ours_reads ? 1 : 0];
	(void)fcntl(*ours, F_SETFL, O_NONBLOCK);
	return true;
}

static bool streams_make(struct job *job, uint32_t rank)
{
	struct stream *out = &job->streams[(size_t)2 * rank], *err = out + 1;

	out->to = 1;
	err->to = 2;
	lines_init(&out->lines, job->launch->first + rank);
	lines_init(&err->lines, job->launch->first + rank);
	if (job->launch->hosts != NULL) /* They come with ranks. */
		out->lines.prefix[0] = err->lines.prefix[0] = '\0';
	job->child.out = 1;
	job->child.err = 2;
	return (job->launch->output != LAUNCH_LINES ||
		pipe_make(&out->fd, &job->child.out, true)) &&
	       (job->launch->output == LAUNCH_RAW || pipe_make(&err->fd, &job->child.err, true));
}

/* What a host is told fits into its pipe: hosts.c sees to it. */
static bool host_tell(struct job *job, uint32_t host)
{
	const struct buffer *told = &job->launch->told[host];

	return pipe_make(&job->telling[host], &job->child.in, false) &&
	       write(job->telling[host], told->data, told->used) == (ssize_t)told->used;
}

/* 0, or the exit status that says why not. */
static int start_rank(struct job *job, uint32_t rank, int null)
{
	const struct launch *launch = job->launch;
	bool own = rank == 0 && !launch->held && launch->hosts == NULL;
	bool terminal = own && isatty(0);
	int reason = 0;

	job->child.rank = rank;
	job->child.in = own ? 0 : null;
	if (!streams_make(job, rank) || (launch->hosts != NULL && !host_tell(job, rank)) ||
	    (terminal && !pipe_make(&job->input_to, &job->child.in, false)))
		reason = errno;
	else
		reason = launch_child_start(&job->child, &job->pids[rank]);
	close_unless(job->child.out, 1);
	close_unless(job->child.err, 2);
	if (launch->hosts != NULL)
		close_unless(job->child.in, null);
	if (terminal) {
		close_unless(job->child.in, 0);
		job->input_from = 0;
	}
	if (reason == 0) {
		job->started = rank + 1;
		job->running++;
		return 0;
	}
	job->pids[rank] = 0;
	(void)fprintf(stderr, "%s: cannot run %s: %s\n", launch->program,
		      launch->rank_main != NULL ? "a rank"
		      : launch->hosts != NULL   ? launch->argvs[rank][0]
						: launch->argv[0],
		      strerror(reason));
	return reason == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

static void start_ranks(struct job *job)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)fflush(NULL); /* A fork would write it again. */
	for (uint32_t rank = 0; rank < job->launch->rank_count && job->phase == RUNNING; rank++) {
		int status = start_rank(job, rank, null);

		if (status != 0)
			end_job(job, status, SIGTERM);
	}
	close_unless(null, -1);
	close_unless(job->child.line, -1);
}

static bool signals_open(struct job *job)
{
	/* All whose default is to end us and that others send: batch systems at a limit, users. */
	static const int numbers[] = { SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,   SIGCHLD,
				       SIGUSR1, SIGUSR2, SIGXCPU, SIGVTALRM, SIGPROF,
				       SIGALRM, SIGPWR,  SIGIO };
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		(void)sigaddset(&set, numbers[i]);
	(void)sigprocmask(SIG_BLOCK, &set, &job->child.mask);
	job->child.on_pipe = signal(SIGPIPE, SIG_IGN);
	job->child.on_input = signal(SIGTTIN, SIG_IGN);
	job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return job->signals >= 0;
}

static bool job_open(struct job *job)
{
	uint32_t count = job->launch->rank_count;
	struct rlimit raised;

	job->pids = calloc(count, sizeof(*job->pids));
	job->ended = malloc(count * sizeof(*job->ended));
	job->telling = malloc(count * sizeof(*job->telling));
	job->streams = calloc(2 * (size_t)count, sizeof(*job->streams));
	job->polls = calloc(2 * (size_t)count + POLLS, sizeof(*job->polls));
	if (job->pids == NULL || job->ended == NULL || job->telling == NULL ||
	    job->streams == NULL || job->polls == NULL)
		return false;
	for (uint32_t i = 0; i < 2 * count; i++)
		job->streams[i].fd = -1;
	for (uint32_t i = 0; i < count; i++) {
		job->ended[i] = NOT_ENDED;
		job->telling[i] = -1;
	}
	(void)getrlimit(RLIMIT_NOFILE, &job->child.files);
	raised = job->child.files;
	raised.rlim_cur = raised.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &raised);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (job->launch->output == LAUNCH_RAW &&
	    !pipe_make(&job->line_from, &job->child.line, true))
		return false;
	return signals_open(job);
}

static void job_close(struct job *job)
{
	launch_secret_remove(&job->secret);
	for (uint32_t i = 0; job->streams != NULL && i < 2 * job->launch->rank_count; i++) {
		close_unless(job->streams[i].fd, -1);
		lines_fini(&job->streams[i].lines);
	}
	for (uint32_t i = 0; job->telling != NULL && i < job->launch->rank_count; i++)
		close_unless(job->telling[i], -1);
	input_close(job);
	close_unless(job->port, -1);
	close_unless(job->signals, -1);
	close_unless(job->line_from, -1);
	buffer_fini(&job->sentences);
	free(job->pids);
	free(job->ended);
	free(job->telling);
	free(job->streams);
	free(job->polls);
}

void launch_cores_say(const struct launch *launch)
{
	struct places places;

	if (!launch->bind_cores)
		return;
	places_find_here(&places);
	if (places.core_count > 0 && launch->rank_count > places.core_count)
		(void)fprintf(stderr, "%s: --bind core: %u ranks share %u cores\n", launch->program,
			      launch->rank_count, places.core_count);
}

/* Where the ranks meet, and their secret. */
static bool place_make(struct job *job)
{
	const struct launch *launch = job->launch;

	if (!launch_secret_make(&job->secret, launch->secret, launch->program))
		return false;
	job->child.secret_file = job->secret.file;
	if (launch->root == NULL)
		return launch_root_pick(job->child.root, sizeof(job->child.root), launch->program,
					&job->port);
	(void)snprintf(job->child.root, sizeof(job->child.root), "%s", launch->root);
	return true;
}

int launch_ranks(const struct launch *launch)
{
	struct job job = { .launch = launch,
			   .secret = { .fd = -1 },
			   .port = -1,
			   .signals = -1,
			   .input_from = -1,
			   .input_to = -1,
			   .line_from = -1,
			   .child.line = -1,
			   .timeout_at = NEVER,
			   .end_at = NEVER,
			   .kill_at = NEVER };

	assert(launch->rank_main != NULL || launch->output != LAUNCH_RAW);

	job.child.launch = launch;
	job.child.places = &job.places;
	if (launch->bind_cores)
		places_find_here(&job.places);
	if (launch->timeout_ns > 0)
		job.timeout_at = clock_ns() + launch->timeout_ns;
	if (!job_open(&job)) {
		perror(launch->program);
		job.status = EXIT_FAILURE;
	} else if (launch->hosts == NULL && !place_make(&job)) {
		job.status = EXIT_FAILURE;
	} else {
		start_ranks(&job);
		loop(&job);
		failure_print(&job);
	}
	job_close(&job);
	return job.status;
}
