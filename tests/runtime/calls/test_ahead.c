/*
 * test_ahead.c -- blocking calls whose ranks copy their parts into mapped scratch before they meet
 * (RB_STEP_AHEAD): results are right whichever ranks do so, and what a slow rank still reads is
 * still there. rb_exchange_ahead is watched: it is called when the copies have been made.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "collectives/build.h"
#include "runtime/op_exchange.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"

static const struct rb_transport_ops *const transports[] = { &rb_transport_shm, NULL };
static _Atomic uint32_t copied[16]; /* So many calls of a rank went ahead. */

void __real_rb_exchange_ahead(struct rubato_op *op);
void __wrap_rb_exchange_ahead(struct rubato_op *op);

void __wrap_rb_exchange_ahead(struct rubato_op *op)
{
	__real_rb_exchange_ahead(op);
	atomic_fetch_add(&copied[op->comm->engine.rank], 1);
}

static void nap(uint32_t us)
{
	struct timespec span = { .tv_nsec = (long)us * 1000 };

	(void)nanosleep(&span, NULL);
}

/* ---- A slow rank ---- */

#define WORDS 256u
#define MORE_WORDS 16000u /* Of which the scratch has no room so far. */
#define STALL_MS 5000u

static struct {
	void *page; /* Where the slow rank may not write yet. */
	size_t page_bytes;
	_Atomic bool stalled, in_vain;
} slow;

/* Rank 1 is where it writes what it reads in rank 0's slots: it waits until rank 0 has filled its
 * slots for the next call. */
static void stall(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number;
	(void)context;
	if (info->si_addr < slow.page ||
	    (char *)info->si_addr >= (char *)slow.page + slow.page_bytes)
		abort();
	atomic_store(&slow.stalled, true);
	for (uint32_t ms = 0; atomic_load(&copied[0]) < 2; ms++) {
		if (ms == STALL_MS) {
			atomic_store(&slow.in_vain, true);
			break;
		}
		nap(1000);
	}
	if (mprotect(slow.page, slow.page_bytes, PROT_READ | PROT_WRITE) != 0)
		abort();
}

static rubato_status slow_main(rubato_comm *comm, void *arg)
{
	static int32_t in[2][MORE_WORDS], plain[2 * MORE_WORDS];
	const uint32_t *later_words = arg;
	uint32_t rank = rubato_rank(comm);
	int32_t *out = rank == 1 ? slow.page : plain;

	RB_TRY(rubato_set_algorithm(comm, "allgather", "staged"));
	for (int32_t call = 0; call < 4; call++) {
		uint32_t words = call == 0 ? WORDS : *later_words;

		for (uint32_t i = 0; i < words; i++)
			in[rank][i] = 1000 * call + (int32_t)(2 * i + rank);
		RB_TRY(rubato_allgather(comm, in[rank], out, words, RUBATO_INT32));
		for (uint32_t i = 0; i < 2 * words; i++)
			EXPECT(out[i] == 1000 * call + (int32_t)(2 * (i % words) + i / words));
	}
	return RUBATO_OK;
}

static void slow_run(uint32_t later_words)
{
	struct sigaction action = { .sa_sigaction = stall, .sa_flags = SA_SIGINFO }, before;
	rubato_status err;

	slow.page_bytes = 2 * MORE_WORDS * sizeof(int32_t);
	slow.page = mmap(NULL, slow.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(slow.page, MAP_FAILED);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, &before), 0);
	err = local_run(2, transports, slow_main, &later_words, NULL);
	ck_assert_int_eq(sigaction(SIGSEGV, &before, NULL), 0);
	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	ck_assert(atomic_exchange(&slow.stalled, false));
	ck_assert(!atomic_load(&slow.in_vain));
	ck_assert_uint_eq(atomic_exchange(&copied[0], 0), 4);
	ck_assert_uint_eq(atomic_exchange(&copied[1], 0), 4);
	ck_assert_int_eq(munmap(slow.page, slow.page_bytes), 0);
}

START_TEST(what_a_slow_rank_reads_is_still_there)
{
	slow_run(WORDS);
}
END_TEST

START_TEST(what_it_reads_is_still_there_when_scratch_grows)
{
	slow_run(MORE_WORDS);
}
END_TEST

/* ---- No room ---- */

#define LEFT (256u << 10) /* Enough for the slots of a call, and not for two sets of any call's. */

static rubato_status cramped_main(rubato_comm *comm, void *arg)
{
	void *taken[64], *left;
	uint32_t rank = rubato_rank(comm), count = 0;
	int32_t in[WORDS], out[2 * WORDS];
	size_t bytes = rank == 1 ? (size_t)1 << 30 : 0;

	(void)arg;
	RB_TRY(rubato_alloc(comm, LEFT, &left));
	for (; bytes >= LEFT; bytes /= 2)
		while (count < 64 && rubato_alloc(comm, bytes, &taken[count]) == RUBATO_OK)
			count++;
	RB_TRY(rubato_free(comm, left));
	RB_TRY(rubato_set_algorithm(comm, "allgather", "staged"));
	for (int32_t call = 0; call < 6; call++) {
		uint32_t words = WORDS >> call % 3;

		for (uint32_t i = 0; i < words; i++)
			in[i] = 1000 * call + (int32_t)(2 * i + rank);
		RB_TRY(rubato_allgather(comm, in, out, words, RUBATO_INT32));
		for (uint32_t i = 0; i < 2 * words; i++)
			EXPECT(out[i] == 1000 * call + (int32_t)(2 * (i % words) + i / words));
	}
	while (count > 0)
		RB_TRY(rubato_free(comm, taken[--count]));
	return RUBATO_OK;
}

START_TEST(who_has_no_room_does_not_go_ahead)
{
	rubato_status err = local_run(2, transports, cramped_main, NULL, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	ck_assert_uint_eq(atomic_load(&copied[0]), 6);
	ck_assert_uint_eq(atomic_load(&copied[1]), 0);
}
END_TEST

/* ---- Any calls ---- */

#define LONGEST (2 * RB_AHEAD_BYTES / sizeof(int32_t)) /* Of a vector: half do not go ahead. */

struct buffers {
	int32_t *in[2], *out[2]; /* Plain, and from rubato_alloc. */
};

static int32_t value(uint32_t call, uint32_t rank, uint64_t i)
{
	return (int32_t)(call * 7919 + rank * 104729 + i * 31);
}

/* Of allreduce and reduce_scatter. */
static int32_t total(uint32_t call, uint32_t n, uint64_t i)
{
	int32_t sum = 0;

	for (uint32_t r = 0; r < n; r++)
		sum += value(call, r, i);
	return sum;
}

static rubato_status one_call(rubato_comm *comm, struct buffers *b, struct rb_rng *rng,
			      uint32_t call)
{
	static const char *const names[] = { "allreduce", "allgather", "reduce_scatter", "alltoall",
					     "broadcast" };
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint32_t kind = (uint32_t)rb_rng_below(rng, 5), root = (uint32_t)rb_rng_below(rng, n);
	bool through = rb_rng_below(rng, 2) == 0, small = rb_rng_below(rng, 3) > 0;
	uint64_t most = small ? 2000 : LONGEST, count = rb_rng_below(rng, most / n + 1);
	uint64_t vector = kind == 0 || kind == 4 ? count : n * count;
	uint64_t ins = kind == 1 ? count : vector, outs = kind == 2 ? count : vector;
	uint32_t mapped = (uint32_t)rb_rng_below(rng, 1u << n) &
			  (uint32_t)rb_rng_below(rng, 1u << n); /* Whose buffers are. */
	uint32_t who = (uint32_t)rb_rng_below(rng, 4 * n);
	int32_t *in = b->in[mapped >> rank & 1], *out = b->out[mapped >> rank & 1];

	if (who == rank)
		nap(300);
	RB_TRY(rubato_set_algorithm(comm, names[kind], through ? "staged" : "direct"));
	for (uint64_t i = 0; i < ins; i++)
		in[i] = value(call, rank, i);
	memset(out, -1, outs * sizeof(*out));
	if (kind == 0)
		RB_TRY(rubato_allreduce(comm, in, out, count, RUBATO_INT32, RUBATO_SUM));
	else if (kind == 1)
		RB_TRY(rubato_allgather(comm, in, out, count, RUBATO_INT32));
	else if (kind == 2)
		RB_TRY(rubato_reduce_scatter(comm, in, out, count, RUBATO_INT32, RUBATO_SUM));
	else if (kind == 3)
		RB_TRY(rubato_alltoall(comm, in, out, count, RUBATO_INT32));
	else
		RB_TRY(rubato_broadcast(comm, in, count, RUBATO_INT32, root));
	for (uint64_t i = 0; i < outs; i++) {
		uint32_t from = count > 0 ? (uint32_t)(i / count) : 0;
		uint64_t at = count > 0 ? i % count : 0;

		EXPECT(kind != 0 || out[i] == total(call, n, i));
		EXPECT(kind != 1 || out[i] == value(call, from, at));
		EXPECT(kind != 2 || out[i] == total(call, n, rank * count + i));
		EXPECT(kind != 3 || out[i] == value(call, from, rank * count + at));
		EXPECT(kind != 4 || in[i] == value(call, root, i));
	}
	return RUBATO_OK;
}

static rubato_status calls_main(rubato_comm *comm, void *arg)
{
	struct rb_rng rng = { .state = *(const uint64_t *)arg };
	uint32_t calls = test_length() == TEST_SHORT ? 100 : 600;
	size_t bytes = LONGEST * sizeof(int32_t);
	struct buffers b = { .in = { malloc(bytes) }, .out = { malloc(bytes) } };
	rubato_status err = RUBATO_OK;
	void *memory[2];

	for (uint32_t i = 0; i < 2; i++)
		RB_TRY(rubato_alloc(comm, bytes, &memory[i]));
	b.in[1] = memory[0];
	b.out[1] = memory[1];
	for (uint32_t call = 0; call < calls && err == RUBATO_OK; call++)
		err = one_call(comm, &b, &rng, call);
	free(b.in[0]);
	free(b.out[0]);
	for (uint32_t i = 0; i < 2 && err == RUBATO_OK; i++)
		err = rubato_free(comm, memory[i]);
	return err;
}

START_TEST(results_are_right_whoever_goes_ahead)
{
	bool some = false; /* In some calls not all did. */

	for (uint32_t n = 2; n <= 5; n++) {
		uint64_t seed = n;
		uint32_t least = UINT32_MAX, most = 0;
		rubato_status err = local_run(n, transports, calls_main, &seed, NULL);

		ck_assert_msg(err == RUBATO_OK, "%u ranks: %s", n, rubato_error_text());
		for (uint32_t r = 0; r < n; r++) {
			uint32_t times = atomic_exchange(&copied[r], 0);

			least = times < least ? times : least;
			most = times > most ? times : most;
		}
		ck_assert_uint_gt(least, 10);
		some |= most > least;
	}
	ck_assert(some);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ahead");

	tcase_set_timeout(tc, 250);
	tcase_add_test(tc, what_a_slow_rank_reads_is_still_there);
	tcase_add_test(tc, what_it_reads_is_still_there_when_scratch_grows);
	tcase_add_test(tc, who_has_no_room_does_not_go_ahead);
	tcase_add_test(tc, results_are_right_whoever_goes_ahead);
	return check_main("ahead", tc);
}
