/*
 * world.c -- maps the world, makes it, guards it, and clears away what dead processes leave.
 *
 * A process holds a record lock on its slot's byte of the file. The kernel drops it when the
 * process ends, however it ends, and before its parent has waited for it: who asks is told.
 */
#include "tests/verbs-mock/world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/verbs-mock/process.h"

#define WORLD_MAGIC (0x76626d31u ^ (uint32_t)sizeof(struct world))
#define LOCK_YIELDS 50u
#define LOCK_NS 20000

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER; /* Of this process's threads. */
static struct {
	struct world *world; /* Atomic. */
	int fd;              /* -1: private memory. */
	uint32_t self;
} here = { .fd = -1 };

struct world *world_now(void)
{
	return __atomic_load_n(&here.world, __ATOMIC_ACQUIRE);
}

uint32_t world_self(void)
{
	return here.self;
}

static bool lock_byte(int fd, short type, off_t byte, bool wait)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };

	while (fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock) != 0)
		if (errno != EINTR) /* A signal of the application's. */
			return false;
	return true;
}

static void world_make(struct world *world)
{
	pthread_mutexattr_t attr;

	mock_config_default(&world->config);
	world->arena_next = (sizeof(*world) + 63) & ~(uint64_t)63;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&world->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	device_tables(world);
	world->magic = WORLD_MAGIC;
}

/* Of another build: its world is another one. */
static bool is_foreign(int fd)
{
	uint32_t magic = 0;

	return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic != 0 &&
	       magic != WORLD_MAGIC;
}

static struct world *map_file(const char *path)
{
	struct stat status;
	void *memory;

	here.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (here.fd < 0)
		return NULL;
	if (!lock_byte(here.fd, F_WRLCK, 0, true) ||
	    (is_foreign(here.fd) && ftruncate(here.fd, 0) != 0) || fstat(here.fd, &status) != 0 ||
	    (status.st_size == 0 && ftruncate(here.fd, (off_t)WORLD_BYTES) != 0))
		return NULL;
	memory = mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		      here.fd, 0);
	if (memory == MAP_FAILED)
		return NULL;
	return memory;
}

static struct world *map_private(void)
{
	void *memory = mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static bool take_slot(struct world *world)
{
	for (uint32_t i = 0; i < WORLD_PROCESSES; i++) {
		if (here.fd >= 0 && !lock_byte(here.fd, F_WRLCK, 1 + (off_t)i, false))
			continue;
		if (world->processes[i].used) /* Its owner has died, and nobody has seen it yet. */
			world_bury(world, i);
		world->processes[i] = (struct world_process) { .used = true, .pid = getpid() };
		here.self = i;
		return true;
	}
	errno = EAGAIN;
	return false;
}

static void forked_child(void)
{
	/* The engine's thread is the parent's, and so are its slot and what is open. */
	process_forget();
	faults_forget();
	if (here.world != NULL)
		(void)munmap(here.world, WORLD_BYTES);
	if (here.fd >= 0)
		(void)close(here.fd);
	here.world = NULL;
	here.fd = -1;
	pthread_mutex_init(&attaching, NULL);
}

static struct world *attach(void)
{
	static bool watched;
	const char *path = getenv("VERBS_MOCK");
	struct world *world;
	bool taken;

	world = path != NULL && *path != '\0' ? map_file(path) : map_private();
	if (world == NULL)
		return NULL;
	if (!watched) {
		pthread_atfork(NULL, NULL, forked_child);
		devices_name();
	}
	watched = true;
	if (world->magic != WORLD_MAGIC)
		world_make(world);
	if (here.fd >= 0)
		(void)lock_byte(here.fd, F_UNLCK, 0, true);
	/* Where ptrace is restricted, peers still reach this process's memory. */
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	world_lock(world);
	taken = take_slot(world);
	if (taken)
		faults_begin(world);
	world_unlock(world);
	if (!taken)
		return NULL;
	__atomic_store_n(&here.world, world, __ATOMIC_RELEASE);
	return world;
}

struct world *world_attach(void)
{
	struct world *world = world_now();

	if (world != NULL)
		return world;
	pthread_mutex_lock(&attaching);
	world = here.world != NULL ? here.world : attach();
	pthread_mutex_unlock(&attaching);
	return world;
}

void world_detach(void)
{
	struct world *world = here.world;

	if (world == NULL)
		return;
	faults_forget();
	world_lock(world);
	world->processes[here.self].used = false;
	world_unlock(world);
	(void)munmap(world, WORLD_BYTES);
	if (here.fd >= 0)
		(void)close(here.fd);
	here.world = NULL;
	here.fd = -1;
}

/*
 * By trying: a robust mutex's waiter that is killed after it was woken takes the wake-up with it,
 * and no other one is woken. Who dies within it leaves counts that are whole: each is written last.
 */
void world_lock(struct world *world)
{
	const struct timespec pause = { .tv_nsec = LOCK_NS };
	int error;

	for (uint32_t tries = 1; (error = pthread_mutex_trylock(&world->lock)) == EBUSY; tries++)
		if (tries % LOCK_YIELDS != 0)
			(void)sched_yield();
		else
			(void)nanosleep(&pause, NULL);
	if (error == EOWNERDEAD)
		(void)pthread_mutex_consistent(&world->lock);
}

void world_unlock(struct world *world)
{
	(void)pthread_mutex_unlock(&world->lock);
}

void world_notify(struct world *world, uint32_t owner)
{
	struct world_process *slot = &world->processes[owner];

	slot->attention = true;
	__atomic_fetch_add(&slot->doorbell, 1, __ATOMIC_RELEASE);
	(void)syscall(SYS_futex, &slot->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

bool world_alive(struct world *world, uint32_t owner)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = 1 + (off_t)owner, .l_len = 1 };

	if (!world->processes[owner].used)
		return false;
	if (owner == here.self || here.fd < 0)
		return true;
	if (fcntl(here.fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
		return true;
	world->counters.processes_died++;
	world_bury(world, owner);
	return false;
}

/* What the kernel does for a process that ends: all that it had is gone, without a word. */
void world_bury(struct world *world, uint32_t owner)
{
	cm_bury(world, owner);
	for (uint32_t i = 0; i < world->qp_end; i++)
		if (world->qps[i].used && world->qps[i].process == owner)
			qp_remove(world, i);
	for (uint32_t i = 0; i < world->srq_end; i++)
		if (world->srqs[i].used && world->srqs[i].process == owner)
			srq_remove(world, i);
	for (uint32_t i = 0; i < world->cq_end; i++)
		if (world->cqs[i].used && world->cqs[i].process == owner)
			cq_remove(world, i);
	for (uint32_t i = 0; i < world->mr_end; i++)
		if (world->mrs[i].used && world->mrs[i].process == owner)
			mr_remove(world, i);
	world->processes[owner].used = false;
}

static uint32_t size_class(size_t bytes)
{
	uint32_t class = 6;

	while (((size_t)1 << class) < bytes)
		class ++;
	return class;
}

uint64_t world_alloc(struct world *world, size_t bytes)
{
	uint32_t class = size_class(bytes);
	uint64_t at = world->arena_free[class];

	if (at != 0) {
		world->arena_free[class] = *(uint64_t *)world_at(world, at);
	} else {
		at = world->arena_next;
		if (at + ((uint64_t)1 << class) > WORLD_BYTES)
			return 0;
		world->arena_next = at + ((uint64_t)1 << class);
	}
	memset(world_at(world, at), 0, bytes);
	return at;
}

void world_free(struct world *world, uint64_t offset, size_t bytes)
{
	uint32_t class = size_class(bytes);

	if (offset == 0)
		return;
	*(uint64_t *)world_at(world, offset) = world->arena_free[class];
	world->arena_free[class] = offset;
}
