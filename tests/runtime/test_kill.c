/*
 * test_kill.c -- a rank is killed at a moment that a seed draws: while it starts, in collectives,
 * in partial allreduces, in splits, in finalize; alone, leaving a forked child behind that holds
 * all its sockets, or with the connections of a half closed some time before the parent's. Each
 * other rank ends in time, and whatever error it is given names the victim, or one that UCX has
 * ended with it.
 *
 *   test_kill TRANSPORT       TEST_SEED=n: that trial alone
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sync.h"
#include "rubato.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/startup/lost_ranks.h"
#include "tests/seeds.h"

#define RANKS_MAX 6u
#define TIMEOUT_NS UINT64_C(20000000000)  /* Of the library's waits: longer than it starves; */
#define PATIENCE_NS UINT64_C(90000000000) /* and of ours for the ranks, on a busy machine. */
#define COUNT_MAX 60000u
#define SOCKETS_MAX 1024
#define DYING_NS UINT64_C(20000000) /* Between its first connection and its last. */

enum mode { START, COLLECTIVES, PARTIAL, SPLIT, FINALIZE, MODES };
static const char *const mode_names[] = { "start", "collectives", "partial", "split", "finalize" };
enum end { ALONE, WITH_CHILD, OTHER_PROGRAM, PIECEMEAL };

static const char *transport;

struct trial {
	enum mode mode;
	enum end end;
	uint64_t seed, delay_ns;
	uint32_t rank_count, victim;
};

struct shared { /* By all processes of a trial. */
	_Atomic uint32_t id_made, ready, go;
	rubato_id id;
	_Atomic int32_t child;   /* Of the victim. */
	_Atomic uint32_t closed; /* Its connections, before its end. */
	struct outcome {
		rubato_status status;
		char stage[32], text[512];
		_Atomic bool ended;
	} outcomes[RANKS_MAX];
};

/* ---- A rank ---- */

struct rank {
	const struct trial *trial;
	struct shared *shared;
	struct outcome *outcome;
	uint32_t rank;
	struct rb_rng rng; /* The same draws on every rank. */
	rubato_comm *comm;
	bool sockets[SOCKETS_MAX]; /* By descriptor: the communicator's. */
};

/* The first error counts. False: this was one. */
static bool note(struct rank *r, const char *stage, rubato_status status)
{
	if (status == RUBATO_OK)
		return true;
	if (r->outcome->status != RUBATO_OK)
		return false;
	r->outcome->status = status;
	(void)snprintf(r->outcome->stage, sizeof(r->outcome->stage), "%s", stage);
	(void)snprintf(r->outcome->text, sizeof(r->outcome->text), "%s", rubato_error_text());
	return false;
}

static bool is_connection(int fd)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
	       (domain == AF_INET || domain == AF_INET6);
}

static void stand_still(int number)
{
	(void)number;
	for (;;)
		(void)pause();
}

/* A thread that stands still may hold the allocator's lock: nothing here allocates. */
static void threads_stop(void)
{
	_Alignas(struct dirent) char entries[4096];
	int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
	pid_t self = (pid_t)syscall(SYS_gettid);
	long size;

	(void)syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1); /* The one that starts others. */
	rb_clock_sleep_until(rb_clock_ns() + 1000000);
	while (folder >= 0 &&
	       (size = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
		for (long at = 0; at < size;) {
			const struct dirent *entry = (const struct dirent *)(entries + at);
			pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);

			if (thread > 0 && thread != self && thread != getpid())
				(void)syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
			at += entry->d_reclen;
		}
	}
	(void)close(folder);
	rb_clock_sleep_until(rb_clock_ns() + 1000000);
}

/* The kernel closes the connections of who dies one by one, and may be kept from it in between. */
static void die_piecemeal(const struct rank *r)
{
	threads_stop();
	for (int fd = 0; fd < SOCKETS_MAX; fd++)
		if (!r->sockets[fd] && is_connection(fd) && shutdown(fd, SHUT_RDWR) == 0)
			atomic_fetch_add(&r->shared->closed, 1);
	rb_clock_sleep_until(rb_clock_ns() + DYING_NS);
}

static void *kill_later(void *arg)
{
	struct rank *r = arg;
	const struct trial *trial = r->trial;

	rb_clock_sleep_until(rb_clock_ns() + trial->delay_ns);
	if (trial->end == WITH_CHILD) {
		pid_t child = fork();

		if (child == 0) {
			(void)sleep(120);
			_exit(0);
		}
		atomic_store(&r->shared->child, child);
	}
	if (trial->end == PIECEMEAL)
		die_piecemeal(r);
	if (trial->end == OTHER_PROGRAM)
		(void)execl("/bin/sleep", "sleep", "120", (char *)NULL);
	(void)kill(getpid(), SIGKILL);
	return NULL;
}

static void doom(struct rank *r)
{
	pthread_t thread;

	for (int fd = 0; fd < SOCKETS_MAX; fd++)
		r->sockets[fd] = is_connection(fd);
	if (r->rank == r->trial->victim)
		(void)!pthread_create(&thread, NULL, kill_later, r);
}

static bool collective(struct rank *r, void *in, void *out)
{
	static const uint64_t counts[] = { 1, 1000, COUNT_MAX / RANKS_MAX };
	uint64_t count = counts[rb_rng_below(&r->rng, 3)], draw = rb_rng_below(&r->rng, 8);
	uint32_t root = (uint32_t)rb_rng_below(&r->rng, r->trial->rank_count);
	rubato_comm *c = r->comm;

	switch (draw) {
	case 0:
		return note(r, "broadcast", rubato_broadcast(c, out, count, RUBATO_INT32, root));
	case 1:
		return note(r, "barrier", rubato_barrier(c));
	case 2:
		return note(r, "allgather", rubato_allgather(c, in, out, count, RUBATO_INT32));
	case 3:
		return note(r, "alltoall", rubato_alltoall(c, in, out, count, RUBATO_INT32));
	case 4:
		return note(r, "reduce",
			    rubato_reduce(c, in, out, count, RUBATO_INT32, RUBATO_SUM, root));
	case 5:
		return note(r, "gather", rubato_gather(c, in, out, count, RUBATO_INT32, root));
	default:
		return note(r, "allreduce",
			    rubato_allreduce(c, in, out, count, RUBATO_INT32, RUBATO_SUM));
	}
}

static void collectives(struct rank *r)
{
	bool allocated = rb_rng_below(&r->rng, 2) == 0;
	void *in = NULL, *out = NULL;

	if (allocated && (!note(r, "alloc", rubato_alloc(r->comm, COUNT_MAX * 4, &in)) ||
			  !note(r, "alloc", rubato_alloc(r->comm, COUNT_MAX * 4, &out))))
		return;
	if (!allocated) {
		in = calloc(COUNT_MAX, 4);
		out = calloc(COUNT_MAX, 4);
	}
	/* A third of the ranks computes a little, so that some wait and some come late. */
	for (uint32_t i = 0; i < 100000; i++) {
		if (!collective(r, in, out))
			return;
		if (r->rank % 3 == 1 && i % 5 == 0)
			rb_clock_sleep_until(rb_clock_ns() + 300000);
	}
}

static void partial(struct rank *r)
{
	static const rubato_policy policies[] = { RUBATO_POLICY_SOLO, RUBATO_POLICY_MAJORITY,
						  RUBATO_POLICY_QUORUM };
	rubato_partial_options options = RUBATO_PARTIAL_OPTIONS_INIT;
	rubato_partial *p = NULL;

	options.policy = policies[rb_rng_below(&r->rng, 3)];
	options.quorum = options.policy == RUBATO_POLICY_QUORUM ? 2 : 0;
	if (!note(r, "create",
		  rubato_partial_create(r->comm, 1000, RUBATO_INT32, RUBATO_SUM, &options, &p)))
		return;
	for (uint64_t step = 0; step < 100000; step++) {
		rubato_round round = { .size_bytes = sizeof(round) };
		void *buffer;
		const void *view;

		if (!note(r, "acquire", rubato_partial_acquire(p, &buffer)))
			break;
		memset(buffer, 1, 4000);
		if (!note(r, "commit", rubato_partial_commit(p, step, 1)) ||
		    !note(r, "collect", rubato_partial_collect_view(p, &view, &round, TIMEOUT_NS)))
			break;
		if (view != NULL)
			(void)rubato_partial_release(p);
		if (r->rank % 3 == 1)
			rb_clock_sleep_until(rb_clock_ns() + 200000);
	}
	(void)note(r, "free", rubato_partial_free(p));
}

static void splits(struct rank *r)
{
	for (uint32_t i = 0; i < 100000; i++) {
		rubato_comm *half = NULL;
		bool good;

		if (!note(r, "split", rubato_split(r->comm, r->rank % 2, (int32_t)r->rank, &half)))
			return;
		good = note(r, "barrier of a half", rubato_barrier(half));
		good = note(r, "finalize of a half", rubato_finalize(half)) && good;
		if (!good)
			return;
	}
}

static bool await(const _Atomic uint32_t *word, uint32_t value)
{
	uint64_t until = rb_clock_ns() + PATIENCE_NS / 2;

	while (atomic_load(word) < value && rb_clock_ns() < until)
		rb_clock_sleep_until(rb_clock_ns() + 20000);
	return atomic_load(word) >= value;
}

static bool rank_open(struct rank *r)
{
	rubato_options options = RUBATO_OPTIONS_INIT;
	bool start = r->trial->mode == START;

	options.timeout_ns = TIMEOUT_NS;
	options.transport = transport;
	if (r->rank == 0) {
		if (!note(r, "id", rubato_id_create(&r->shared->id)))
			return false;
		atomic_store(&r->shared->id_made, 1);
	} else if (!await(&r->shared->id_made, 1)) {
		return note(r, "the id was not made in time", RUBATO_ERR_INTERNAL);
	}
	if (start)
		doom(r);
	if (!note(r, "init",
		  rubato_init_id(&r->comm, &r->shared->id, r->rank, r->trial->rank_count,
				 &options)))
		return false;
	if (start)
		return true;
	atomic_fetch_add(&r->shared->ready, 1);
	if (!await(&r->shared->ready, r->trial->rank_count))
		return note(r, "not all were ready in time", RUBATO_ERR_INTERNAL);
	doom(r);
	return true;
}

static void rank_run(struct rank *r)
{
	if (!rank_open(r))
		return;
	switch (r->trial->mode) {
	case PARTIAL:
		partial(r);
		break;
	case SPLIT:
		splits(r);
		break;
	case FINALIZE: /* One is late, the others wait for it in finalize. */
		(void)note(r, "barrier", rubato_barrier(r->comm));
		if (r->rank == r->trial->seed % r->trial->rank_count)
			rb_clock_sleep_until(rb_clock_ns() + 3000000);
		break;
	default:
		collectives(r);
	}
	(void)note(r, "finalize", rubato_finalize(r->comm));
	if (r->rank == r->trial->victim)
		(void)pause(); /* It is to be killed, be it after all. */
}

/* ---- The judge ---- */

/*
 * Errors of a half speak of it in its own numbers, those of its start-up where they say so. Of the
 * half that the victim is not in nothing more can be known than who has given up: whoever was in
 * both.
 */
static bool named(uint32_t rank, const struct outcome *o, uint32_t lost)
{
	bool halves = strstr(o->stage, "of a half") != NULL ||
		      strstr(o->text, "numbered from 0 in what follows") != NULL;

	if (!halves && strstr(o->text, "split, of ranks") == NULL)
		return names(o->text, lost);
	if (rank % 2 == lost % 2)
		return names(o->text, halves ? lost / 2 : lost);
	return strstr(o->text, "rank ") != NULL;
}

struct tally {
	uint32_t trials, fired, piecemeal, errors, unnamed, hung, foreign;
	char first[700];
};

static void complain(struct tally *tally, const struct trial *t, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void complain(struct tally *tally, const struct trial *t, const char *format, ...)
{
	char text[640];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)fprintf(stderr, "seed %llu, %s over %s, %u ranks, rank %u is killed%s: %s\n",
		      (unsigned long long)t->seed, mode_names[t->mode], transport, t->rank_count,
		      t->victim,
		      t->end == ALONE        ? ""
		      : t->end == WITH_CHILD ? " and leaves a child"
		      : t->end == PIECEMEAL  ? " piecemeal"
					     : " by another program",
		      text);
	if (tally->first[0] == '\0')
		(void)snprintf(tally->first, sizeof(tally->first), "seed %llu: %s",
			       (unsigned long long)t->seed, text);
}

/* Whether UCX ended it: then it is one more that is lost. */
static bool not_ended(const struct trial *t, uint32_t rank, pid_t *child, int output,
		      struct tally *tally)
{
	char said[400];
	int status = 0;

	if (waitpid(*child, &status, WNOHANG) == *child)
		*child = -1;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && ended_by_ucx(output)) {
		tally->foreign++;
		return true;
	}
	tally->hung++;
	said_last(output, said, sizeof(said));
	complain(tally, t, "rank %u has not ended well (signal %d), the ranks said: %s", rank,
		 WIFSIGNALED(status) ? WTERMSIG(status) : 0, said);
	return false;
}

static void judge(const struct trial *t, const struct shared *s, pid_t *children, int output,
		  struct tally *tally)
{
	bool lost[RANKS_MAX] = { false };

	lost[t->victim] = true;
	for (uint32_t r = 0; r < t->rank_count; r++)
		if (r != t->victim && !atomic_load(&s->outcomes[r].ended))
			lost[r] = not_ended(t, r, &children[r], output, tally);
	for (uint32_t r = 0; r < t->rank_count; r++) {
		const struct outcome *o = &s->outcomes[r];
		bool is_named = false;

		if (r == t->victim || !atomic_load(&o->ended) || o->status == RUBATO_OK)
			continue;
		tally->errors++;
		for (uint32_t l = 0; l < t->rank_count; l++)
			is_named = is_named || (lost[l] && named(r, o, l));
		if (is_named)
			continue;
		tally->unnamed++;
		complain(tally, t, "rank %u, %s: %s: %s", r, o->stage,
			 rubato_status_name(o->status), o->text);
	}
}

/* ---- Trials ---- */

static struct trial trial_draw(enum mode mode, enum end end, uint64_t seed)
{
	bool network = strcmp(transport, "shm") != 0;
	uint64_t span_ms[MODES] = { network ? 300 : 60, 60, 40, network ? 300 : 60, 6 };
	struct rb_rng rng = { seed };
	struct trial t = { .mode = mode, .end = end, .seed = seed };

	t.rank_count = 3 + (uint32_t)rb_rng_below(&rng, RANKS_MAX - 2);
	t.victim = (uint32_t)rb_rng_below(&rng, t.rank_count);
	t.delay_ns = rb_rng_below(&rng, span_ms[mode] * 1000000);
	return t;
}

static void child_main(const struct trial *t, struct shared *s, uint32_t rank, int output)
{
	struct rank r = { .trial = t,
			  .shared = s,
			  .outcome = &s->outcomes[rank],
			  .rank = rank,
			  .rng = { t->seed ^ 0x6b696c6c } };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)signal(SIGUSR1, stand_still);
	if (getenv("RUBATO_LOG") == NULL)
		(void)dup2(output, STDERR_FILENO);
	rank_run(&r);
	atomic_store(&r.outcome->ended, true);
	_exit(0);
}

static bool all_ended(const struct trial *t, const struct shared *s)
{
	for (uint32_t r = 0; r < t->rank_count; r++)
		if (r != t->victim && !atomic_load(&s->outcomes[r].ended))
			return false;
	return true;
}

static void trial_run(const struct trial *t, struct tally *tally)
{
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t until = rb_clock_ns() + PATIENCE_NS;
	pid_t children[RANKS_MAX];
	int status, output = memfd_create("output", 0);

	ck_assert_ptr_ne(s, MAP_FAILED);
	ck_assert_int_ge(output, 0);
	(void)fflush(NULL);
	for (uint32_t r = 0; r < t->rank_count; r++) {
		children[r] = fork();
		ck_assert_int_ge(children[r], 0);
		if (children[r] == 0)
			child_main(t, s, r, output);
	}
	while (!all_ended(t, s) && rb_clock_ns() < until)
		rb_clock_sleep_until(rb_clock_ns() + 500000);
	judge(t, s, children, output, tally);
	(void)close(output);
	tally->trials++;
	tally->piecemeal += atomic_load(&s->closed) > 0;
	if (waitpid(children[t->victim], &status, WNOHANG) == children[t->victim]) {
		tally->fired += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		children[t->victim] = -1;
	} else if (t->end == OTHER_PROGRAM) {
		tally->fired++;
	}
	if (atomic_load(&s->child) > 0)
		(void)kill(atomic_load(&s->child), SIGKILL);
	for (uint32_t r = 0; r < t->rank_count; r++) {
		if (children[r] < 0)
			continue;
		(void)kill(children[r], SIGKILL);
		(void)waitpid(children[r], NULL, 0);
	}
	(void)munmap(s, sizeof(*s));
}

static uint32_t trials_wanted(void)
{
	switch (test_length()) {
	case TEST_SHORT:
		return test_is_threads_only() ? 2 : 4;
	case TEST_LONG:
		return 200;
	default:
		return 16;
	}
}

static void trials_run(enum mode mode, enum end end)
{
	uint32_t count = trials_wanted();
	struct seeds seeds = seeds_from(__func__, 1, (uint64_t)8 * count);
	struct tally tally = { 0 };

	/* A kill comes too late where all is over by then, and finds no connection of a half where
	 * none is made yet: then there are more trials. */
	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct trial t = trial_draw(mode, end, seed);

		if (tally.trials < count || tally.fired < (count + 1) / 2 ||
		    (end == PIECEMEAL && tally.piecemeal < count / 4))
			trial_run(&t, &tally);
	}
	(void)fprintf(stderr,
		      "%s: %s: %u trials, %u kills, %u errors, %u without the victim, %u ranks "
		      "ended by UCX\n",
		      transport, mode_names[mode], tally.trials, tally.fired, tally.errors,
		      tally.unnamed, tally.foreign);
	/* UCX 1.13.1 ends one in 36 of such jobs over TCP: docs/security.md. Of few trials two
	 * may be among them. */
	ck_assert_uint_le(tally.foreign, tally.trials / 8 + 2);
	ck_assert_msg(tally.unnamed == 0 && tally.hung == 0, "%s", tally.first);
	ck_assert(seeds_chosen() || tally.fired >= (count + 1) / 2);
	ck_assert(seeds_chosen() || end != PIECEMEAL || tally.piecemeal >= count / 4);
	if (mode != FINALIZE) /* Most are through by then. */
		ck_assert_uint_ge(tally.errors, tally.trials / 2);
}

START_TEST(whoever_is_left_names_the_victim)
{
	trials_run((enum mode)_i, ALONE);
}
END_TEST

START_TEST(a_forked_child_hides_nothing)
{
	trials_run((enum mode)_i, WITH_CHILD);
}
END_TEST

START_TEST(a_half_may_see_it_go_before_its_parent)
{
	trials_run(SPLIT, PIECEMEAL);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("kill");

	if (argc != 2)
		return 2;
	transport = argv[1];
	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(tc, whoever_is_left_names_the_victim, 0, MODES);
	tcase_add_loop_test(tc, a_forked_child_hides_nothing, 0, MODES);
	if (strcmp(transport, "tcp") == 0)
		tcase_add_test(tc, a_half_may_see_it_go_before_its_parent);
	return check_main("runtime", tc);
}
