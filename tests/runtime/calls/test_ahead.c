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
	_Atomic bool stalled, gone, in_vain;
} slow;

/* Rank 1 is where it writes what it reads in rank 0's slots: it waits until rank 0 has filled its
 * slots for the next call, or is gone. */
static void stall(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number;
	(void)context;
	if (info->si_addr < slow.page ||
	    (char *)info->si_addr >= (char *)slow.page + slow.page_bytes)
		abort();
	atomic_store(&slow.stalled, true);
	for (uint32_t ms = 0; atomic_load(&copied[0]) < 2 && !atomic_load(&slow.gone); ms++) {
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

/* Rank 0 goes when its call is over. */
static rubato_status gone_main(rubato_comm *comm, void *arg)
{
	static int32_t in[2][WORDS], plain[2 * WORDS];
	uint32_t rank = rubato_rank(comm);
	int32_t *out = rank == 1 ? slow.page : plain;
	rubato_status err;

	(void)arg;
	RB_TRY(rubato_set_algorithm(comm, "allgather", "staged"));
	for (uint32_t i = 0; i < WORDS; i++)
		in[rank][i] = (int32_t)(2 * i + rank);
	err = rubato_allgather(comm, in[rank], out, WORDS, RUBATO_INT32);
	EXPECT(err == RUBATO_OK || (rank == 1 && err == RUBATO_ERR_PEER));
	for (uint32_t i = 0; err == RUBATO_OK && i < 2 * WORDS; i++)
		EXPECT(out[i] == (int32_t)(2 * (i % WORDS) + i / WORDS));
	(void)rubato_abort(comm);
	(void)rubato_finalize(comm);
	if (rank == 0)
		atomic_store(&slow.gone, true);
	return RUBATO_OK;
}

static void slow_run(rubato_status (*run)(uint32_t, const struct rb_transport_ops *const *,
					  local_main, void *, rubato_status *),
		     local_main rank_main, void *arg, uint32_t calls)
{
	struct sigaction action = { .sa_sigaction = stall, .sa_flags = SA_SIGINFO }, before;
	rubato_status err;

	slow.page_bytes = 2 * MORE_WORDS * sizeof(int32_t);
	slow.page = mmap(NULL, slow.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(slow.page, MAP_FAILED);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, &before), 0);
	err = run(2, transports, rank_main, arg, NULL);
	ck_assert_int_eq(sigaction(SIGSEGV, &before, NULL), 0);
	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	ck_assert(atomic_exchange(&slow.stalled, false));
	ck_assert(!atomic_load(&slow.in_vain));
	ck_assert_uint_eq(atomic_exchange(&copied[0], 0), calls);
	ck_assert_uint_eq(atomic_exchange(&copied[1], 0), calls);
	ck_assert_int_eq(munmap(slow.page, slow.page_bytes), 0);
}

START_TEST(what_a_slow_rank_reads_is_still_there)
{
	uint32_t words = WORDS;

	slow_run(local_run, slow_main, &words, 4);
}
END_TEST

START_TEST(what_it_reads_is_still_there_when_scratch_grows)
{
	uint32_t words = MORE_WORDS;

	slow_run(local_run, slow_main, &words, 4);
}
END_TEST

START_TEST(what_it_reads_is_still_there_when_its_owner_is_gone)
{
	slow_run(local_run_raw, gone_main, NULL, 1);
	atomic_store(&slow.gone, false);
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

/* ---- Uneven blocks: some are empty ---- */

static uint64_t block(uint32_t call, uint32_t from, uint32_t to, uint64_t most)
{
	uint64_t x = call * 31 + from * 7 + to * 3;

	return x % 4 == 0 ? 0 : x * 2654435761u % (most + 1);
}

static rubato_status scatterv_call(rubato_comm *comm, const struct buffers *b, uint32_t call,
				   uint64_t most, bool in_place)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	uint64_t counts[16], all = 0, before = 0;
	int32_t *out = b->out[0];

	for (uint32_t r = 0; r < n; r++) {
		counts[r] = block(call, r, 0, most);
		before += r < rank ? counts[r] : 0;
		all += counts[r];
	}
	for (uint64_t i = 0; i < all; i++)
		b->in[0][i] = value(call, rank, i);
	if (in_place)
		out = b->in[0] + before;
	RB_TRY(rubato_reduce_scatterv(comm, b->in[0], out, counts, NULL, RUBATO_INT32, RUBATO_SUM));
	for (uint64_t i = 0; i < counts[rank]; i++)
		EXPECT(out[i] == total(call, n, before + i));
	return RUBATO_OK;
}

/* Twice, as the second call finds what the first came to. In place: on some ranks. */
static rubato_status alltoallv_call(rubato_comm *comm, const struct buffers *b, uint32_t call,
				    uint64_t most, uint32_t mapped, uint32_t in_places)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	int32_t *in = b->in[mapped >> rank & 1], *out = b->out[mapped >> rank & 1];
	uint64_t to[16], from[16], at;

	if (in_places >> rank & 1)
		in = out;
	RB_TRY(rubato_set_algorithm(comm, "alltoallv", "direct"));
	for (uint32_t r = 0; r < n; r++) {
		bool even = in_places != 0; /* As much one way as the other. */
		uint32_t low = r < rank ? r : rank, high = r < rank ? rank : r;

		to[r] = block(call, even ? low : rank, even ? high : r, most);
		from[r] = block(call, even ? low : r, even ? high : rank, most);
	}
	for (uint32_t turn = 0; turn < 2; turn++) {
		at = 0;
		for (uint32_t r = 0; r < n; r++)
			for (uint64_t i = 0; i < to[r]; i++)
				in[at++] = value(call + turn, rank * n + r, i);
		RB_TRY(rubato_alltoallv(comm, in, to, NULL, out, from, NULL, RUBATO_INT32));
		at = 0;
		for (uint32_t r = 0; r < n; r++)
			for (uint64_t i = 0; i < from[r]; i++)
				EXPECT(out[at++] == value(call + turn, r * n + rank, i));
	}
	return RUBATO_OK;
}

/* What one rank alone asks in vain changes nothing. */
static rubato_status in_vain(rubato_comm *comm, const struct buffers *b)
{
	EXPECT(rubato_allgather(comm, NULL, b->out[0], 7, RUBATO_INT32) == RUBATO_ERR_ARGUMENT);
	EXPECT(rubato_allreduce(comm, b->in[0], b->out[0], 7, (rubato_type)99, RUBATO_SUM) ==
	       RUBATO_ERR_ARGUMENT);
	return RUBATO_OK;
}

/* Its scratch is its own. */
static rubato_status persistent_call(rubato_comm *comm, const struct buffers *b, uint32_t call)
{
	uint32_t n = rubato_size(comm), rank = rubato_rank(comm);
	rubato_op *op;

	RB_TRY(rubato_op_allgather(comm, b->in[0], b->out[0], 100, RUBATO_INT32, &op));
	for (uint32_t turn = 0; turn < 2; turn++) {
		for (uint64_t i = 0; i < 100; i++)
			b->in[0][i] = value(call + turn, rank, i);
		RB_TRY(rubato_start(op));
		RB_TRY(rubato_wait(op, RUBATO_TIMEOUT_DEFAULT));
		for (uint64_t i = 0; i < 100 * n; i++)
			EXPECT(b->out[0][i] == value(call + turn, (uint32_t)(i / 100), i % 100));
	}
	rubato_op_free(op);
	return RUBATO_OK;
}

static rubato_status other_call(rubato_comm *comm, const struct buffers *b, struct rb_rng *rng,
				uint32_t call)
{
	uint32_t n = rubato_size(comm);
	uint32_t which = (uint32_t)rb_rng_below(rng, 10),
		 sets = (uint32_t)rb_rng_below(rng, 1u << n);
	uint64_t most = rb_rng_below(rng, 3) == 0 ? LONGEST / n : 500;

	if (rb_rng_below(rng, 2 * n) == rubato_rank(comm))
		RB_TRY(in_vain(comm, b));
	if (which == 0)
		return persistent_call(comm, b, call);
	if (which == 1)
		return rubato_barrier(comm);
	if (which == 2 || which == 4)
		return alltoallv_call(comm, b, call, most, sets,
				      which == 4 ? (uint32_t)rb_rng_below(rng, 1u << n) : 0);
	if (which == 3)
		return scatterv_call(comm, b, call, most, (sets >> rubato_rank(comm) & 1) != 0);
	return RUBATO_OK;
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

	uint32_t in_places =
		(uint32_t)rb_rng_below(rng, 1u << n) & (uint32_t)rb_rng_below(rng, 1u << n);

	if (in_places >> rank & 1) {
		if (kind == 0 || kind == 3)
			in = out;
		else if (kind == 1)
			in = out + rank * count;
		else if (kind == 2)
			out = in + rank * count;
	}
	if (who == rank)
		nap(300);
	RB_TRY(other_call(comm, b, rng, call));
	RB_TRY(rubato_set_algorithm(comm, names[kind], through ? "staged" : "direct"));
	memset(out, -1, outs * sizeof(*out));
	for (uint64_t i = 0; i < ins; i++)
		in[i] = value(call, rank, i);
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

struct calls {
	uint64_t seed;
	uint32_t count;
};

static rubato_status calls_run(rubato_comm *comm, uint64_t seed, uint32_t calls)
{
	struct rb_rng rng = { .state = seed };
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

struct beside { /* Another communicator's calls, of another thread. */
	rubato_comm *comm;
	const struct calls *calls;
	rubato_status err;
};

static void *beside_main(void *arg)
{
	struct beside *beside = arg;
	rubato_status end;

	beside->err = calls_run(beside->comm, beside->calls->seed + 100, beside->calls->count);
	end = rubato_finalize(beside->comm);
	beside->err = beside->err != RUBATO_OK ? beside->err : end;
	return NULL;
}

static rubato_status calls_main(rubato_comm *comm, void *arg)
{
	const struct calls *calls = arg;
	struct beside beside = { .calls = calls };
	rubato_status err;
	pthread_t thread;

	RB_TRY(rubato_split(comm, 0, -(int32_t)rubato_rank(comm), &beside.comm));
	if (pthread_create(&thread, NULL, beside_main, &beside) != 0)
		abort();
	err = calls_run(comm, calls->seed, calls->count);
	(void)pthread_join(thread, NULL);
	return err != RUBATO_OK ? err : beside.err;
}

START_TEST(results_are_right_whoever_goes_ahead)
{
	bool some = false; /* In some calls not all did. */

	for (uint32_t seed = 2; seed < (test_length() == TEST_LONG ? 200 : 6); seed++) {
		uint32_t n = 2 + seed % 4;
		struct calls calls = { seed, test_length() == TEST_SHORT ? 100 : 400 };
		uint32_t least = UINT32_MAX, most = 0;
		rubato_status err = local_run(n, transports, calls_main, &calls, NULL);

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

/* Of many chunks none go ahead, of one chunk some. */
START_TEST(results_are_right_in_small_chunks)
{
	struct calls calls = { 3, 60 };
	rubato_status err;

	ck_assert_int_eq(setenv("RUBATO_CHUNK", "256", 1), 0);
	err = local_run(4, transports, calls_main, &calls, NULL);
	ck_assert_int_eq(unsetenv("RUBATO_CHUNK"), 0);
	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
}
END_TEST

START_TEST(of_many_ranks_none_goes_ahead)
{
	struct calls calls = { 1, 20 };
	rubato_status err = local_run(RB_AHEAD_RANKS + 1, transports, calls_main, &calls, NULL);

	ck_assert_msg(err == RUBATO_OK, "%s", rubato_error_text());
	for (uint32_t r = 0; r <= RB_AHEAD_RANKS; r++)
		ck_assert_uint_eq(atomic_load(&copied[r]), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ahead");

	tcase_set_timeout(tc, 250);
	tcase_add_test(tc, what_a_slow_rank_reads_is_still_there);
	tcase_add_test(tc, what_it_reads_is_still_there_when_scratch_grows);
	tcase_add_test(tc, what_it_reads_is_still_there_when_its_owner_is_gone);
	tcase_add_test(tc, who_has_no_room_does_not_go_ahead);
	tcase_add_test(tc, results_are_right_whoever_goes_ahead);
	tcase_add_test(tc, results_are_right_in_small_chunks);
	tcase_add_test(tc, of_many_ranks_none_goes_ahead);
	return check_main("ahead", tc);
}
