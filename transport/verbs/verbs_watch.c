/* verbs_watch.c -- whether memory is still what it was, by userfaultfd: verbs_watch.h. */
#include "transport/verbs/verbs_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sync.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define EVENTS 16        /* Read at a time. */
#define MAPS_BYTES 8192u /* Longer than a line. */

struct range {
	uintptr_t begin, end; /* Whole pages; end 0: not watched. */
	bool changed;
};

struct rb_verbs_watch {
	struct rb_verbs_watch *next;
	_Atomic uint32_t changes;
	uint32_t range_count;
	struct range ranges[];
};

/* The process's: its only watcher. */
static struct {
	struct rb_lock opening; /* Taken first: who opens and closes allocates, and frees. */
	uint32_t users;
	pid_t pid; /* A child has none of it. */
	int fd, stop_fd;
	struct rb_thread thread;
	struct rb_lock lock; /* Of the rest, and of reading. */
	struct rb_verbs_watch *watches;
} watcher;

/* ---- The thread that reads ---- */

static void changed(uintptr_t begin, uintptr_t end)
{
	for (struct rb_verbs_watch *watch = watcher.watches; watch != NULL; watch = watch->next)
		for (uint32_t i = 0; i < watch->range_count; i++) {
			struct range *range = &watch->ranges[i];

			if (range->changed || range->end <= begin || range->begin >= end)
				continue;
			range->changed = true;
			(void)atomic_fetch_add(&watch->changes, 1);
		}
}

static void event_take(const struct uffd_msg *event)
{
	if (event->event == UFFD_EVENT_UNMAP || event->event == UFFD_EVENT_REMOVE) {
		changed(event->arg.remove.start, event->arg.remove.end);
	} else if (event->event == UFFD_EVENT_REMAP) {
		changed(event->arg.remap.from, event->arg.remap.from + event->arg.remap.len);
		changed(event->arg.remap.to, event->arg.remap.to + event->arg.remap.len);
	}
}

/* What is read has been taken before anybody else has the lock. */
static void events_take(void)
{
	struct uffd_msg events[EVENTS];
	ssize_t bytes;

	rb_lock_take(&watcher.lock);
	bytes = read(watcher.fd, events, sizeof(events));
	for (ssize_t i = 0; i < bytes / (ssize_t)sizeof(events[0]); i++)
		event_take(&events[i]);
	rb_lock_drop(&watcher.lock);
}

/* It closes the descriptor: from then on nobody waits for it, as who joins it may, who frees its
 * stack. */
static void *reader_main(void *arg)
{
	struct pollfd fds[2] = { { .fd = watcher.fd, .events = POLLIN },
				 { .fd = watcher.stop_fd, .events = POLLIN } };

	while (fds[1].revents == 0) {
		if (poll(fds, 2, -1) > 0 && fds[0].revents != 0)
			events_take();
	}
	events_take();
	(void)close(watcher.fd);
	return arg;
}

/* ---- Mappings ---- */

/* A line of /proc/self/maps. True: no further one is needed. */
typedef bool line_visit(void *arg, uintptr_t from, uintptr_t to, const char *rights,
			unsigned long inode);

/* Allocates nothing. */
static void maps_read(line_visit *visit, void *arg)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	char text[MAPS_BYTES + 1];
	size_t have = 0;
	bool over = fd < 0;

	while (!over) {
		ssize_t more = read(fd, text + have, MAPS_BYTES - have);
		char *line = text, *end;

		if (more <= 0)
			break;
		have += (size_t)more;
		text[have] = '\0';
		while (!over && (end = strchr(line, '\n')) != NULL) {
			unsigned long from, to, inode;
			char rights[5];

			*end = '\0';
			over = sscanf(line, "%lx-%lx %4s %*x %*s %lu", &from, &to, rights,
				      &inode) != 4 ||
			       visit(arg, from, to, rights, inode);
			line = end + 1;
		}
		have = (size_t)(text + have - line);
		memmove(text, line, have);
	}
	if (fd >= 0)
		(void)close(fd);
}

/* How far the mappings go that hold [begin, end). */
struct walk {
	uintptr_t begin, end; /* Asked for; */
	uintptr_t from, to;   /* found, without a gap. */
	bool good;
};

static bool line_walk(void *arg, uintptr_t from, uintptr_t to, const char *rights,
		      unsigned long inode)
{
	struct walk *walk = arg;

	if (to <= walk->begin)
		return false;
	if (from > (walk->to != 0 ? walk->to : walk->begin) || rights[1] != 'w' ||
	    rights[3] != 'p' || inode != 0)
		return true;
	if (walk->to == 0)
		walk->from = from;
	walk->to = to;
	walk->good = to >= walk->end;
	return walk->good;
}

/* Of those that are not ours nothing changes. */
static bool line_unwatch(void *arg, uintptr_t from, uintptr_t to, const char *rights,
			 unsigned long inode)
{
	struct uffdio_range range = { from, to - from };

	(void)arg;
	if (rights[3] == 'p' && inode == 0)
		(void)ioctl(watcher.fd, UFFDIO_UNREGISTER, &range);
	return false;
}

/* ---- The descriptor ---- */

static int is_of_valgrind(struct dl_phdr_info *library, size_t bytes, void *arg)
{
	(void)bytes;
	(void)arg;
	return strstr(library->dlpi_name, "/vgpreload_") != NULL;
}

/* By what each of its tools loads into the program: its header need not be there at build time. */
static bool is_under_valgrind(void)
{
	return dl_iterate_phdr(is_of_valgrind, NULL) != 0;
}

static rubato_status descriptor_open(int *out)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
					      UFFD_FEATURE_EVENT_REMAP |
					      UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
	int fd;

	/* There one thread runs at a time, and none while another one unmaps: forever. */
	if (is_under_valgrind())
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "not under valgrind");
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "userfaultfd: %s", strerror(errno));
	if (ioctl(fd, UFFDIO_API, &api) != 0) {
		(void)close(fd);
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "this kernel's userfaultfd is older than Linux 5.19's");
	}
	*out = fd;
	return RUBATO_OK;
}

static rubato_status process_open(void)
{
	rubato_status status;

	RB_TRY(descriptor_open(&watcher.fd));
	watcher.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (watcher.stop_fd < 0)
		status = RB_FAIL(RUBATO_ERR_SYSTEM, "eventfd: %s", strerror(errno));
	else
		status = rb_thread_start(&watcher.thread, reader_main, NULL);
	if (status == RUBATO_OK) {
		watcher.pid = getpid();
		return RUBATO_OK;
	}
	(void)close(watcher.fd);
	if (watcher.stop_fd >= 0)
		(void)close(watcher.stop_fd);
	return status;
}

static void process_close(void)
{
	uint64_t one = 1;

	/* A child may hold the descriptor: then closing it frees nobody. */
	maps_read(line_unwatch, NULL);
	(void)!write(watcher.stop_fd, &one, sizeof(one));
	rb_thread_join(&watcher.thread);
	(void)close(watcher.stop_fd);
}

/* In a child: what it has is its parent's. */
static void process_forget(void)
{
	if (watcher.users == 0 || watcher.pid == getpid())
		return;
	(void)close(watcher.fd);
	(void)close(watcher.stop_fd);
	watcher.users = 0;
	watcher.thread.running = false;
	watcher.watches = NULL;
	rb_lock_init(&watcher.lock);
}

rubato_status rb_verbs_watch_open(uint32_t range_count, struct rb_verbs_watch **out)
{
	struct rb_verbs_watch *watch =
		calloc(1, sizeof(*watch) + range_count * sizeof(watch->ranges[0]));
	rubato_status status = RUBATO_OK;

	if (watch == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory to watch memory");
	watch->range_count = range_count;
	rb_lock_take(&watcher.opening);
	process_forget();
	if (watcher.users == 0)
		status = process_open();
	if (status == RUBATO_OK) {
		watcher.users++;
		rb_lock_take(&watcher.lock);
		watch->next = watcher.watches;
		watcher.watches = watch;
		rb_lock_drop(&watcher.lock);
	}
	rb_lock_drop(&watcher.opening);
	if (status == RUBATO_OK)
		*out = watch;
	else
		free(watch);
	return status;
}

void rb_verbs_watch_close(struct rb_verbs_watch *watch)
{
	struct rb_verbs_watch **at = &watcher.watches;

	if (watch == NULL)
		return;
	rb_lock_take(&watcher.opening);
	process_forget();
	rb_lock_take(&watcher.lock);
	while (*at != NULL && *at != watch)
		at = &(*at)->next;
	if (*at != NULL) {
		*at = watch->next;
		watcher.users--;
	}
	rb_lock_drop(&watcher.lock);
	if (watcher.users == 0 && watcher.thread.running)
		process_close();
	rb_lock_drop(&watcher.opening);
	free(watch);
}

/* ---- Ranges ---- */

bool rb_verbs_watch_begin(struct rb_verbs_watch *watch, uint32_t index, const void *base,
			  size_t bytes)
{
	struct range *range = &watch->ranges[index];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)base / page * page;
	struct walk walk = { .begin = first, .end = (uintptr_t)base + bytes };
	struct uffdio_register mapped = { .mode = UFFDIO_REGISTER_MODE_WP };

	if (bytes > 0)
		maps_read(line_walk, &walk);
	if (!walk.good)
		return false;
	/* Before the kernel is asked: nothing that it tells is missed. */
	rb_lock_take(&watcher.lock);
	*range = (struct range) { first, (walk.end + page - 1) / page * page, false };
	rb_lock_drop(&watcher.lock);
	mapped.range.start = walk.from;
	mapped.range.len = walk.to - walk.from;
	if (watcher.pid == getpid() && ioctl(watcher.fd, UFFDIO_REGISTER, &mapped) == 0)
		return true;
	rb_verbs_watch_end(watch, index);
	return false;
}

void rb_verbs_watch_end(struct rb_verbs_watch *watch, uint32_t index)
{
	rb_lock_take(&watcher.lock);
	if (watch->ranges[index].changed)
		(void)atomic_fetch_sub(&watch->changes, 1);
	watch->ranges[index] = (struct range) { 0 };
	rb_lock_drop(&watcher.lock);
}

/* Of nothing: EAGAIN while somebody waits until we have read what he does; else EINVAL. */
static bool is_quiet(void)
{
	struct uffdio_writeprotect nothing = { 0 };

	return ioctl(watcher.fd, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EINVAL;
}

bool rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t index)
{
	bool same;

	rb_lock_take(&watcher.lock);
	/* In this order: what was read has been taken, and nothing waits to be. */
	same = is_quiet() && !watch->ranges[index].changed;
	rb_lock_drop(&watcher.lock);
	return same;
}

bool rb_verbs_watch_changed(struct rb_verbs_watch *watch, uint32_t index)
{
	bool is;

	rb_lock_take(&watcher.lock);
	is = watch->ranges[index].changed;
	rb_lock_drop(&watcher.lock);
	return is;
}

uint32_t rb_verbs_watch_changes(struct rb_verbs_watch *watch)
{
	return atomic_load(&watch->changes);
}
