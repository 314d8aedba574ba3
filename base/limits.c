/* limits.c -- see limits.h. */
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A process with so large a limit is not asked how many it has: that takes a call ... */
#define DESCRIPTORS_COUNTED 65536u
#define AT_ONCE 1024u /* ... for so many. */

static uint64_t limit_of(int resource)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

/* Of descriptors from `first` on, how many are open. */
static uint32_t open_among(uint64_t first, uint32_t count)
{
	struct pollfd fds[AT_ONCE];
	uint32_t open = 0;

	for (uint32_t i = 0; i < count; i++)
		fds[i] = (struct pollfd) { .fd = (int)(first + i) };
	if (poll(fds, count, 0) < 0)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		open += (fds[i].revents & POLLNVAL) == 0;
	return open;
}

struct rb_limit rb_limit_descriptors(void)
{
	struct rb_limit l = { .limit = limit_of(RLIMIT_NOFILE), .used = 0 };
	uint32_t count;

	/* Not from /proc: reading that takes a descriptor, and there may be none. */
	for (uint64_t fd = 0; fd < l.limit && l.limit <= DESCRIPTORS_COUNTED; fd += count) {
		count = l.limit - fd < AT_ONCE ? (uint32_t)(l.limit - fd) : AT_ONCE;
		l.used += open_among(fd, count);
	}
	return l;
}

struct rb_limit rb_limit_address_space(void)
{
	struct rb_limit l = { .limit = limit_of(RLIMIT_AS), .used = 0 };
	char text[128];
	int file = l.limit == UINT64_MAX ? -1 : open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t count = file < 0 ? 0 : read(file, text, sizeof(text) - 1);

	if (file >= 0)
		(void)close(file);
	if (count <= 0)
		return l;
	text[count] = '\0';
	l.used = strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
	return l;
}

rubato_status rb_limit_descriptors_check(const char *who, uint64_t more)
{
	struct rb_limit l = rb_limit_descriptors();

	if (l.limit == UINT64_MAX || l.used + more <= l.limit)
		return RUBATO_OK;
	return RB_FAIL(RUBATO_ERR_SYSTEM,
		       "%s needs %" PRIu64 " descriptors more; %" PRIu64 " are in use, and the "
		       "limit (ulimit -n) is %" PRIu64 ": raise it to %" PRIu64 " at least",
		       who, more, l.used, l.limit, l.used + more);
}

static void bytes_print(uint64_t bytes, char *text, size_t text_bytes)
{
	(void)snprintf(text, text_bytes, "%.4g GiB", (double)bytes / (double)(1u << 30));
}

const char *rb_limit_text(int why, char *text, size_t text_bytes)
{
	struct rb_limit l = { .limit = UINT64_MAX, .used = 0 };
	char limit[32], used[32];

	if (why == EMFILE)
		l = rb_limit_descriptors();
	else if (why == ENOMEM)
		l = rb_limit_address_space();
	if (why == EMFILE) {
		(void)snprintf(text, text_bytes,
			       "%s: the limit (ulimit -n) is %" PRIu64 ", %" PRIu64 " are in use",
			       strerror(why), l.limit, l.used);
	} else if (why == ENOMEM && l.limit != UINT64_MAX) {
		bytes_print(l.limit, limit, sizeof(limit));
		bytes_print(l.used, used, sizeof(used));
		(void)snprintf(text, text_bytes,
			       "%s: the limit of address space (ulimit -v) is %s, %s are in use",
			       strerror(why), limit, used);
	} else {
		(void)snprintf(text, text_bytes, "%s", strerror(why));
	}
	return text;
}
