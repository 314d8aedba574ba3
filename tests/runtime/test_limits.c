/*
 * test_limits.c -- jobs under limits of the system: descriptors, address space, threads. A job
 * works within what it may have, or ends with a sentence that names the limit; nobody spins until
 * the deadline.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/sync.h"
#include "rubato.h"
#include "tests/check_main.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RB_TESTS_SANITIZED
#endif
#define RANKS_MAX 4u
#define TIMEOUT_NS UINT64_C(1500000000)
#define PATIENCE_NS UINT64_C(20000000000) /* Of a job that may not be late on a busy machine. */
#define CPU_S_MAX 0.6 /* Of a rank: half of what one that spins until the deadline takes. */
#define COUNT 1000u

struct outcome {
	rubato_status status;
	char text[512];
	uint32_t before, inside, after; /* Open descriptors. */
	double cpu_s;
};

struct shared {
	_Atomic uint32_t id_made, opened;
	rubato_id id;
	struct outcome outcomes[RANKS_MAX];
};

struct setup {
	uint32_t rank_count;
	uint32_t limited; /* Bit r: rank r is. */
	int resource;
	uint64_t limit;
	uint64_t heap_bytes, alloc_bytes;
	bool patient;
};

static uint32_t open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t count = 0;

	while (folder != NULL && readdir(folder) != NULL)
		count++;
	if (folder != NULL)
		(void)closedir(folder);
	return count;
}

/* A sum over memory that all may map. */
static rubato_status use(rubato_comm *comm, const struct setup *setup)
{
	uint32_t n = rubato_size(comm);
	int32_t *memory, out[COUNT];
	void *more;

	RB_TRY(rubato_alloc(comm, COUNT * sizeof(*memory), (void **)&memory));
	for (uint32_t i = 0; i < COUNT; i++)
		memory[i] = (int32_t)(rubato_rank(comm) + i);
	RB_TRY(rubato_allreduce(comm, memory, out, COUNT, RUBATO_INT32, RUBATO_SUM));
	for (uint32_t i = 0; i < COUNT; i++)
		if (out[i] != (int32_t)(n * (n - 1) / 2 + n * i))
			return RB_FAIL(RUBATO_ERR_INTERNAL, "element %u is wrong", i);
	if (setup->alloc_bytes > 0)
		RB_TRY(rubato_alloc(comm, setup->alloc_bytes, &more));
	return RUBATO_OK;
}

static rubato_status join_job(struct shared *s, uint32_t rank, const struct setup *setup,
			      struct outcome *o)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	rubato_comm *comm = NULL;
	rubato_status err, end;
	int tries;

	options.timeout_ns = setup->patient ? PATIENCE_NS : TIMEOUT_NS;
	tries = (int)(2 * options.timeout_ns / 1000000);
	options.transport = "shm";
	options.heap_bytes = setup->heap_bytes;
	if (rank == 0) {
		RB_TRY(rubato_id_create(&s->id));
		atomic_store(&s->id_made, 1);
	}
	for (int i = 0; i < tries && atomic_load(&s->id_made) == 0; i++)
		rb_clock_sleep_until(rb_clock_ns() + 1000000);
	if (atomic_load(&s->id_made) == 0)
		return RB_FAIL(RUBATO_ERR_INTERNAL, "the id was not made");
	RB_TRY(rubato_init_id(&comm, &s->id, rank, setup->rank_count, &options));
	/* All are through before anybody counts. */
	atomic_fetch_add(&s->opened, 1);
	for (int i = 0; i < tries && atomic_load(&s->opened) < setup->rank_count; i++)
		rb_clock_sleep_until(rb_clock_ns() + 1000000);
	o->inside = open_descriptors();
	err = use(comm, setup);
	if (err != RUBATO_OK)
		(void)snprintf(o->text, sizeof(o->text), "%s", rubato_error_text());
	end = rubato_finalize(comm);
	return err != RUBATO_OK ? RB_FAIL(err, "%s", o->text) : end;
}

static void rank_main(struct shared *s, uint32_t rank, const struct setup *setup)
{
	struct outcome *o = &s->outcomes[rank];
	struct rlimit limit = { setup->limit, setup->limit };
	struct rusage usage;

	if ((setup->limited >> rank & 1) != 0 &&
	    setrlimit((__rlimit_resource_t)setup->resource, &limit) != 0)
		_exit(3);
	/* No limit on processes holds for root. */
	if (setup->resource == RLIMIT_NPROC && (setgid(65534) != 0 || setuid(65534) != 0))
		_exit(3);
	o->before = open_descriptors();
	o->status = join_job(s, rank, setup, o);
	if (o->status != RUBATO_OK)
		(void)snprintf(o->text, sizeof(o->text), "%s", rubato_error_text());
	o->after = open_descriptors();
	(void)getrusage(RUSAGE_SELF, &usage);
	o->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
	_exit(0);
}

static struct shared *job_run(const struct setup *setup)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[RANKS_MAX];
	int status;

	ck_assert_ptr_ne(s, MAP_FAILED);
	(void)fflush(NULL);
	for (uint32_t r = 0; r < setup->rank_count; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			rank_main(s, r, setup);
	}
	for (uint32_t r = 0; r < setup->rank_count; r++) {
		ck_assert_int_eq(waitpid(children[r], &status, 0), children[r]);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			      "rank %u ended with %#x under limit %llu", r, (unsigned)status,
			      (unsigned long long)setup->limit);
#ifndef RB_TESTS_SANITIZED
		ck_assert_msg(s->outcomes[r].cpu_s < CPU_S_MAX,
			      "rank %u took %.2f s of CPU under limit %llu: %s", r,
			      s->outcomes[r].cpu_s, (unsigned long long)setup->limit,
			      s->outcomes[r].text);
#endif
	}
	return s;
}

/* Whether the job ran, and whether one of the ranks said `words` where it did not. */
static bool job_try(const struct setup *setup, const char *words, bool *said, char *all,
		    size_t all_bytes)
{
	struct shared *s = job_run(setup);
	bool good = true;

	*said = false;
	all[0] = '\0';
	for (uint32_t r = 0; r < setup->rank_count; r++) {
		const struct outcome *o = &s->outcomes[r];
		size_t at = strlen(all);

		good = good && o->status == RUBATO_OK;
		*said = *said || (o->status != RUBATO_OK && strstr(o->text, words) != NULL);
		(void)snprintf(all + at, all_bytes - at, "\n  rank %u: %s: %s", r,
			       rubato_status_name(o->status), o->text);
	}
	if (getenv("RUBATO_LOG") != NULL)
		(void)fprintf(stderr, "limit %llu:%s\n", (unsigned long long)setup->limit, all);
	(void)munmap(s, sizeof(*s));
	return good;
}

/*
 * Whether the job ran. If not, one of the limited ranks says why, with `words`. A rank that got no
 * processor for as long as the short deadline ends the job, too, before it meets its limit: then
 * the job runs once more, with patience, and must say it.
 */
static bool job_judge(const struct setup *setup, const char *words)
{
	struct setup again = *setup;
	char all[2100];
	bool said, good = job_try(setup, words, &said, all, sizeof(all));

	if (!good && !said && !setup->patient) {
		again.patient = true;
		good = job_try(&again, words, &said, all, sizeof(all));
	}
	ck_assert_msg(good || said, "under limit %llu nobody says \"%s\":%s",
		      (unsigned long long)setup->limit, words, all);
	return good;
}

/* From too few for anything to more than enough: each number of descriptors alone. */
START_TEST(too_few_descriptors_are_named)
{
	static const uint32_t limited[] = { 0xf, 0x1, 0x2 }; /* All, the root, another. */
	uint32_t failures = 0, first_good = 0;

	for (uint32_t limit = 6; limit <= 48; limit += limit < 40 ? 1 : 8) {
		struct setup setup = { .rank_count = 3,
				       .limited = limited[_i],
				       .resource = RLIMIT_NOFILE,
				       .limit = limit };
		bool good = job_judge(&setup, "ulimit -n");

		failures += !good;
		if (good && first_good == 0)
			first_good = limit;
	}
	ck_assert_uint_gt(failures, 0);
	/* Besides what a process has open: 4 for strangers, 1 for the root, some for a rank. */
	ck_assert_uint_gt(first_good, 0);
	ck_assert_uint_le(first_good, 40);
}
END_TEST

/* What start-up took is given back when it is over: rank 0 has no more than the others. */
START_TEST(start_up_keeps_no_descriptors)
{
	struct setup setup = { .rank_count = 4, .resource = RLIMIT_NOFILE, .patient = true };
	struct shared *s = job_run(&setup);
	uint32_t own[RANKS_MAX];

	for (uint32_t r = 0; r < 4; r++) {
		const struct outcome *o = &s->outcomes[r];

		ck_assert_msg(o->status == RUBATO_OK, "%s", o->text);
		ck_assert_uint_eq(o->after, o->before);
		own[r] = o->inside - o->before;
	}
	/* Memory, doorbell, epoll; of each peer a process and a doorbell; a socket to rank 3. */
	for (uint32_t r = 0; r < 3; r++)
		ck_assert_uint_le(own[r], 3 + 3 * 2 + 1);
	ck_assert_uint_le(own[3], 3 + 3 * 3);
	ck_assert_uint_eq(own[0], own[1]);
	(void)munmap(s, sizeof(*s));
}
END_TEST

#ifndef RB_TESTS_SANITIZED /* They take terabytes of address space. */
#define GIB (UINT64_C(1) << 30)

START_TEST(address_space_is_shared_out)
{
	static const uint32_t limited[] = { 0xf, 0x2 };
	static const uint64_t limits[] = { GIB / 2, GIB, 3 * GIB, 20 * GIB, 40 * GIB, 60 * GIB };

	for (uint32_t i = 0; i < 6; i++) {
		struct setup setup = { .rank_count = 4,
				       .limited = limited[_i],
				       .resource = RLIMIT_AS,
				       .limit = limits[i],
				       .alloc_bytes = limits[i] / 16,
				       .patient = true };

		ck_assert_msg(job_judge(&setup, "ulimit -v"), "limit %llu",
			      (unsigned long long)limits[i]);
	}
}
END_TEST

START_TEST(too_little_address_space_is_named)
{
	struct setup tiny = { .rank_count = 4, .limited = 0xf, .resource = RLIMIT_AS };
	struct setup asked = { .rank_count = 2,
			       .limited = 0x3,
			       .resource = RLIMIT_AS,
			       .limit = GIB,
			       .heap_bytes = 2 * GIB };
	uint32_t failures = 0;

	for (tiny.limit = GIB / 64; tiny.limit <= GIB / 4; tiny.limit += GIB / 64)
		failures += !job_judge(&tiny, "");
	ck_assert_uint_gt(failures, 0);
	ck_assert(!job_judge(&asked, "ulimit -v"));
	ck_assert(!job_judge(&asked, "RUBATO_HEAP"));
}
END_TEST

START_TEST(no_thread_to_be_had_is_named)
{
	struct setup setup = {
		.rank_count = 2, .limited = 0x3, .resource = RLIMIT_NPROC, .limit = 1
	};

	if (geteuid() != 0)
		return; /* Others have processes already. */
	ck_assert(!job_judge(&setup, "no thread could be started"));
}
END_TEST
#endif

int main(void)
{
	TCase *tc = tcase_create("limits");

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, too_few_descriptors_are_named, 0, 3);
	tcase_add_test(tc, start_up_keeps_no_descriptors);
#ifndef RB_TESTS_SANITIZED
	tcase_add_loop_test(tc, address_space_is_shared_out, 0, 2);
	tcase_add_test(tc, too_little_address_space_is_named);
	tcase_add_test(tc, no_thread_to_be_had_is_named);
#endif
	return check_main("runtime", tc);
}
