/*
 * log.c -- the mutable statics of the library: the log level, how many lines were dropped, and each
 * thread's last error. One more is in transport/ucx/ucx_load.c.
 */
#include "base/log.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sync.h"

#define PATIENCE_MS 100 /* Guess: a reader that is at work has read by then. */

static atomic_int current_level = RB_LOG_WARN;
static atomic_uint dropped_count; /* Lines, since the last that was written. */
static _Thread_local char last_text[RB_TEXT_BYTES];
static _Thread_local char broken_text[256];

void rb_log_level_set(enum rb_log_level level)
{
	atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool rb_log_enabled(enum rb_log_level level)
{
	return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

/* Without SIGPIPE, which would end a process whose standard error nobody reads any more. Masks are
 * a thread's on Linux, by sigprocmask, too. */
static void quietly_write(const char *line, size_t bytes)
{
	const struct timespec now = { 0, 0 };
	sigset_t pipes, before, pending;

	(void)sigemptyset(&pipes);
	(void)sigaddset(&pipes, SIGPIPE);
	if (sigprocmask(SIG_BLOCK, &pipes, &before) != 0)
		return;
	(void)sigpending(&pending);
	if (fwrite(line, 1, bytes, stderr) != bytes && !sigismember(&pending, SIGPIPE))
		(void)sigtimedwait(&pipes, NULL, &now);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Whoever logs may hold a lock that others wait for: a pipe that nobody reads holds it up once, and
 * then not again until there is room. */
static bool has_room(void)
{
	struct pollfd error = { .fd = fileno(stderr), .events = POLLOUT };
	bool full = atomic_load_explicit(&dropped_count, memory_order_relaxed) > 0;

	return error.fd < 0 || poll(&error, 1, full ? 0 : PATIENCE_MS) != 0;
}

static void line_write(const char *format, va_list args)
{
	char line[1024] = "";
	uint32_t dropped;
	int head = 0, body;
	size_t end;

	if (!has_room()) {
		(void)atomic_fetch_add_explicit(&dropped_count, 1, memory_order_relaxed);
		return;
	}
	dropped = atomic_exchange_explicit(&dropped_count, 0, memory_order_relaxed);
	if (dropped > 0)
		head = snprintf(line, sizeof(line),
				"rubato: %u lines were dropped: standard error was full\n",
				dropped);
	head += snprintf(line + head, sizeof(line) - (size_t)head, "rubato: ");
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
	end = strlen(line);
	if (body < 0)
		return;
	line[end] = '\n';
	/* One write, so that lines of several ranks do not mix. */
	quietly_write(line, end + 1);
}

void rb_log_line(enum rb_log_level level, const char *format, ...)
{
	va_list args;

	if (!rb_log_enabled(level))
		return;
	va_start(args, format);
	line_write(format, args);
	va_end(args);
}

void rb_fail_note(const char *file, int line, rubato_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(last_text, sizeof(last_text), format, args);
	va_end(args);
	RB_LOG(RB_LOG_INFO, "%s (%s, %s:%d)", last_text, rubato_status_name(status), file, line);
}

const char *rubato_error_text(void)
{
	return last_text;
}

void rb_broken_note(const char *file, int line, const char *what)
{
	(void)snprintf(broken_text, sizeof(broken_text), "%s:%d: broken invariant: %s", file, line,
		       what);
	RB_LOG(RB_LOG_WARN, "%s", broken_text);
#ifdef RB_ASSERT_ABORTS
	abort();
#endif
}

bool rb_broken_take(const char **what)
{
	static _Thread_local char taken[sizeof(broken_text)];

	if (broken_text[0] == '\0')
		return false;
	memcpy(taken, broken_text, sizeof(taken));
	broken_text[0] = '\0';
	*what = taken;
	return true;
}
