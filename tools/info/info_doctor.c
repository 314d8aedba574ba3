/*
 * info_doctor.c -- is this machine, as it is set up now, a good place to run? One line a check: ok;
 * warn: it runs, but could be set up better; FAIL: ranks of this machine cannot run. After the last
 * two what to do. Nothing here changes anything.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "rubato.h"
#include "tools/info/info.h"

#define MAPPED_BYTES (1u << 20)
#define LOCKED_BYTES_LEAST (64u << 20)   /* Guess: UCX's own, and buffers of messages. */
#define LOCKED_BYTES_A_PEER (64u << 10)  /* Of verbs. */
#define FILES_LEAST 1024                 /* Each peer and each local rank costs a few. */
#define MAPS_LEAST 16384                 /* Each peer's heap is a mapping or more. */
#define SPACE_LEAST (UINT64_C(64) << 30) /* Two ranks' heaps of full size, and the rest. */
#define THREADS_LEAST 256                /* One or two a rank, and all else of this user. */

static void line(struct info *info, const char *check, const char *result, const char *format,
		 va_list args)
{
	char text[512];

	(void)vsnprintf(text, sizeof(text), format, args);
	if (info->text != NULL)
		(void)fprintf(info->text, "  %-4s %-14s %s\n", result, check, text);
	json_array_append_new(json_object_get(info->json, "doctor"),
			      json_pack("{s:s,s:s,s:o}", "check", check, "result", result, "text",
					results_text(text)));
}

static void fail(struct info *info, const char *check, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void info_say(struct info *info, const char *check, bool good, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line(info, check, good ? "ok" : "warn", format, args);
	va_end(args);
}

static void fail(struct info *info, const char *check, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line(info, check, "FAIL", format, args);
	va_end(args);
	info->failures++;
}

/* Shared memory without names: what the shm transport's heaps are made of. */
static void check_memfd(struct info *info)
{
	int fd = memfd_create("rubato-doctor", MFD_CLOEXEC);
	const char *failed = NULL;
	char *memory = MAP_FAILED;

	if (fd < 0)
		failed = "memfd_create";
	else if (ftruncate(fd, MAPPED_BYTES) != 0)
		failed = "ftruncate";
	else
		memory = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (failed == NULL && memory == MAP_FAILED)
		failed = "mmap";
	if (failed != NULL) {
		fail(info, "memfd",
		     "%s: %s; ranks cannot share memory: allow it in the container's profile",
		     failed, strerror(errno));
	} else {
		memory[MAPPED_BYTES - 1] = 1;
		info_say(info, "memfd", true, "anonymous shared memory works");
		(void)munmap(memory, MAPPED_BYTES);
	}
	if (fd >= 0)
		(void)close(fd);
}

static void check_space(struct info *info)
{
	struct rlimit space, threads;

	if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY)
		info_say(info, "address space", true, "no limit");
	else if (getrlimit(RLIMIT_AS, &space) == 0)
		info_say(info, "address space", space.rlim_cur >= SPACE_LEAST, "limit %.4g GiB%s",
			 (double)space.rlim_cur / (double)(1u << 30),
			 space.rlim_cur >= SPACE_LEAST
				 ? ""
				 : ": ranks get smaller heaps, which share it; "
				   "ulimit -v unlimited");
	if (getrlimit(RLIMIT_NPROC, &threads) == 0 && threads.rlim_cur == RLIM_INFINITY)
		info_say(info, "threads", true, "no limit");
	else if (getrlimit(RLIMIT_NPROC, &threads) == 0)
		info_say(info, "threads", threads.rlim_cur >= THREADS_LEAST, "limit %" PRIu64 "%s",
			 (uint64_t)threads.rlim_cur,
			 threads.rlim_cur >= THREADS_LEAST
				 ? ""
				 : ", of all this user's processes: little for "
				   "many ranks; raise it with ulimit -u");
}

static void check_limits(struct info *info)
{
	uint64_t peers = info->rank_count > 1 ? info->rank_count - 1 : 1;
	uint64_t needed = LOCKED_BYTES_LEAST + peers * LOCKED_BYTES_A_PEER;
	struct rlimit locked, files;
	char line[64], little[96];

	(void)snprintf(little, sizeof(little),
		       ": little for RDMA with %" PRIu64 " ranks; ulimit -l %" PRIu64 " or more",
		       peers + 1, needed >> 10);

	if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0) {
		if (locked.rlim_cur == RLIM_INFINITY)
			info_say(info, "locked memory", true, "no limit");
		else
			info_say(info, "locked memory", locked.rlim_cur >= needed,
				 "limit %" PRIu64 " KiB%s", (uint64_t)locked.rlim_cur >> 10,
				 locked.rlim_cur >= needed ? "" : little);
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		info_say(info, "open files", files.rlim_cur >= FILES_LEAST, "limit %" PRIu64 "%s",
			 (uint64_t)files.rlim_cur,
			 files.rlim_cur >= FILES_LEAST ? ""
						       : ": little for many ranks; ulimit -n 4096");
	check_space(info);
	if (info_line("/proc/sys/vm/max_map_count", line, sizeof(line))) {
		bool good = strtoull(line, NULL, 10) >= MAPS_LEAST;

		info_say(info, "mappings", good, "vm.max_map_count %s%s", line,
			 good ? "" : ": little for many peers; sysctl vm.max_map_count=65530");
	}
	if (info_line("/proc/sys/vm/overcommit_memory", line, sizeof(line)))
		info_say(info, "overcommit", line[0] != '2',
			 line[0] != '2' ? "vm.overcommit_memory %s"
					: "vm.overcommit_memory %s: reserving heaps may fail; set "
					  "RUBATO_HEAP to what is needed",
			 line);
}

/* Less than the cores at hand: ranks that spin would use it up, so they do not. */
static void check_quota(struct info *info, int cores)
{
	uint32_t milli = rubato_processor_limit();

	if (milli == 0 || milli >= (uint32_t)cores * 1000)
		info_say(info, "processor time", true, "no limit below the cores");
	else
		info_say(info, "processor time", milli >= 2000,
			 "a control group allows that of %.4g processors%s", milli / 1000.0,
			 milli >= 2000
				 ? ""
				 : ": progress and computation take turns; widen the container's "
				   "--cpus");
}

static void check_cores(struct info *info)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t allowed;

	CPU_ZERO(&allowed);
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
		info_say(info, "cores", false, "cannot be asked: %s", strerror(errno));
		return;
	}
	int may = CPU_COUNT(&allowed);

	if (may == 1 && online > 1)
		info_say(info, "cores", false,
			 "bound to 1 of %ld: progress and computation take turns; widen the "
			 "launcher's "
			 "binding",
			 online);
	else
		info_say(info, "cores", true, "%d of %ld may be used", may, online);
	check_quota(info, may);
}

static void check_loopback(struct info *info)
{
	struct ifaddrs *all = NULL;
	bool up = false;

	if (getifaddrs(&all) == 0) {
		for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next)
			up = up ||
			     ((at->ifa_flags & IFF_LOOPBACK) != 0 && (at->ifa_flags & IFF_UP) != 0);
		freeifaddrs(all);
	}
	if (up)
		info_say(info, "loopback", true, "up");
	else
		fail(info, "loopback", "down: local ranks cannot meet; ip link set lo up");
}

static void check_secret(struct info *info)
{
	const char *path = getenv("RUBATO_SECRET_FILE");
	struct stat file;

	if (path == NULL)
		return;
	if (stat(path, &file) != 0)
		fail(info, "secret", "RUBATO_SECRET_FILE %s: %s", path, strerror(errno));
	else if ((file.st_mode & 077) != 0)
		fail(info, "secret", "RUBATO_SECRET_FILE %s is open to others: chmod 600", path);
	else
		info_say(info, "secret", true, "RUBATO_SECRET_FILE %s is private", path);
}

static void count_row(void *arg, const char *variable, const char *value, const char *source,
		      const char *help)
{
	uint32_t *set = arg;

	(void)variable;
	(void)value;
	(void)help;
	*set += strcmp(source, "environment") == 0;
}

static void check_environment(struct info *info)
{
	static const char *const together[] = { "RUBATO_RANK", "RUBATO_SIZE", "RUBATO_ROOT" };
	uint32_t set = 0, of_job = 0;

	if (rubato_config_each(count_row, &set) != RUBATO_OK)
		fail(info, "settings", "%s", rubato_error_text());
	else
		info_say(info, "settings", true, "%u RUBATO_* variables set, all of them valid",
			 set);
	for (size_t i = 0; i < sizeof(together) / sizeof(together[0]); i++)
		of_job += getenv(together[i]) != NULL;
	if (of_job != 0 && of_job != 3)
		fail(info, "job",
		     "%u of RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT are set: set all three or none",
		     of_job);
	else
		info_say(info, "job", true, of_job == 0 ? "none described: one rank" : "described");
	check_secret(info);
}

bool info_doctor(struct info *info, const struct info_probe probes[INFO_TRANSPORTS])
{
	info->failures = 0;
	if (info->text != NULL)
		(void)fprintf(info->text, "doctor\n");
	json_object_set_new(info->json, "doctor", json_array());
	check_memfd(info);
	check_limits(info);
	check_cores(info);
	check_loopback(info);
	/* Ranks of one machine need shared memory alone. */
	for (uint32_t i = 0; i < INFO_TRANSPORTS; i++) {
		if (!probes[i].works && strcmp(probes[i].transport, "shm") == 0)
			fail(info, "shm", "%s", probes[i].text);
		else
			info_say(info, probes[i].transport, probes[i].works, "%s%s%s",
				 probes[i].works ? "two ranks met over it" : probes[i].text,
				 probes[i].works && probes[i].way[0] != '\0' ? ", by " : "",
				 probes[i].works ? probes[i].way : "");
	}
	info_rdma(info, "/sys");
	info_cuda(info);
	check_environment(info);
	return info->failures == 0;
}
