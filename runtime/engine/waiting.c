/*
 * waiting.c -- how long to poll, how long to yield, when to sleep.
 *
 * A cross-core wake-up is dear (some 30 us one way on virtual machines), a yield to another
 * runnable thread cheap (under 1 us), a cache line cheapest. Each stage lasts in proportion to what
 * the next one costs: having waited as long as that costs, one has lost at most as much again by
 * not having gone on at once. With a core for each rank, poll for several wake-ups' time, for
 * nobody else wants the core. With more ranks than cores, polling keeps the awaited rank from
 * running, or another one with something to do: yield after each poll. Either way sleep when
 * nothing has come for long; where polls keep finding nothing, they get shorter. What a wake-up
 * costs is measured when a communicator opens.
 *
 * What comes over a network takes its latency at least, and an answer twice that: with a core for
 * each rank, poll for some of them, or every answer is awaited asleep, and the wake-up comes on
 * top. A network that is slower than that is worth is slept for. Its latency is measured by polls
 * alone, or it would have wake-ups in it. Where a yield is cheap beside the latency, polls give
 * way: the kernel's own threads may be what moves the awaited (TCP, RDMA in software), and they
 * would wait for the end of a turn of milliseconds, again and again.
 */
#include "runtime/engine/waiting.h"

#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "runtime/startup/topology.h"

#define ROUNDS 6            /* Enough for a median, at some 70 us each. */
#define SPIN_WAKEUPS 4      /* Guess: polls for that many wake-ups' time before it sleeps. */
#define SPIN_LATENCIES 10   /* Guess: of a network, likewise, */
#define SPIN_NS_MAX 2000000 /* at most for so long, and not at all if no answer is so soon. */
#define GIVE_WAY_US 20      /* Guess: from here on a yield is cheap beside the latency. */
#define YIELD_WAKEUPS 40    /* Guess: other ranks run meanwhile, so it costs them little. */
#define WAKE_NS_MIN 20000   /* Both threads of the measurement may have shared a core. */
#define WAKE_NS_MAX 200000
#define ECHO_NS_MAX 100000000

#define EMPTY_MANY 4   /* Guess: so many, and the awaited rank is taken to share the core, */
#define EMPTY_MAX 64   /* and so many until a poll of the usual length is tried again. */
#define EMPTY_SHARE 16 /* Guess: of the usual length: some 5 us. */

#define YIELD_BATCHES 8
#define YIELDS 32                  /* In a batch. */
#define YIELD_TRIAL_NS_MAX 5000000 /* Other ranks may have the core all the while. */

struct echo {
	_Atomic uint32_t word; /* Only grows. Odd: the helper's turn. */
};

/* ---- A wake-up ---- */

/* Until the word has come to `turn`; false: that took too long, so the measurement is over. */
static bool echo_await(struct echo *echo, uint32_t turn)
{
	uint64_t until = rb_deadline(rb_clock_ns(), ECHO_NS_MAX);
	uint32_t seen;

	while ((seen = atomic_load(&echo->word)) < turn)
		if (!rb_futex_wait(&echo->word, seen, until))
			return false;
	return true;
}

static void *echo_main(void *arg)
{
	struct echo *echo = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (!echo_await(echo, 2 * i + 1))
			break;
		atomic_store(&echo->word, 2 * i + 2);
		rb_futex_wake(&echo->word, 1);
	}
	return NULL;
}

/* The fastest of some round trips between two sleeping threads, halved; bounded. */
uint64_t rb_waiting_measure(void)
{
	struct echo echo = { 0 };
	struct rb_thread thread;
	uint64_t best = WAKE_NS_MAX * 2;

	if (rb_thread_start(&thread, echo_main, &echo) != RUBATO_OK)
		return WAKE_NS_MAX;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t start = rb_clock_ns(), took;

		atomic_store(&echo.word, 2 * i + 1);
		rb_futex_wake(&echo.word, 1);
		if (!echo_await(&echo, 2 * i + 2))
			break;
		took = rb_clock_ns() - start;
		best = took < best ? took : best;
	}
	rb_thread_join(&thread);
	best /= 2;
	return best < WAKE_NS_MIN ? WAKE_NS_MIN : best > WAKE_NS_MAX ? WAKE_NS_MAX : best;
}

/* ---- A yield ---- */

struct turns { /* Two threads on one core that do nothing but yield to each other. */
	uint64_t cpus[RB_CPU_WORDS];
	_Atomic uint32_t present;
	_Atomic bool over;
	uint64_t best_ns; /* Of a yield and the one back; 0: never measured. */
};

static void *partner_main(void *arg)
{
	struct turns *turns = arg;
	uint64_t until = rb_deadline(rb_clock_ns(), 2 * YIELD_TRIAL_NS_MAX);

	rb_thread_confine(turns->cpus, RB_CPU_WORDS);
	atomic_fetch_add(&turns->present, 1);
	while (!atomic_load(&turns->over) && rb_clock_ns() < until)
		rb_yield();
	return NULL;
}

/* The fastest batch: in the others, somebody else had a turn as well. */
static void *timer_main(void *arg)
{
	struct turns *turns = arg;
	uint64_t until = rb_deadline(rb_clock_ns(), YIELD_TRIAL_NS_MAX);

	rb_thread_confine(turns->cpus, RB_CPU_WORDS);
	while (atomic_load(&turns->present) == 0 && rb_clock_ns() < until)
		rb_yield();
	for (uint32_t i = 0; i < YIELD_BATCHES && atomic_load(&turns->present) > 0; i++) {
		uint64_t start = rb_clock_ns(), took;

		for (uint32_t k = 0; k < YIELDS; k++)
			rb_yield();
		took = (rb_clock_ns() - start) / YIELDS;
		if (turns->best_ns == 0 || took < turns->best_ns)
			turns->best_ns = took > 0 ? took : 1;
		if (rb_clock_ns() >= until)
			break;
	}
	atomic_store(&turns->over, true);
	return NULL;
}

uint64_t rb_waiting_turn_ns(void)
{
	struct turns turns = { .best_ns = 0 };
	struct rb_thread partner, timer;
	int cpu = sched_getcpu();

	if (cpu < 0 || cpu >= 64 * RB_CPU_WORDS)
		return 0;
	turns.cpus[cpu / 64] = UINT64_C(1) << cpu % 64;
	if (rb_thread_start(&partner, partner_main, &turns) != RUBATO_OK)
		return 0;
	if (rb_thread_start(&timer, timer_main, &turns) != RUBATO_OK)
		atomic_store(&turns.over, true);
	rb_thread_join(&timer);
	rb_thread_join(&partner);
	return turns.best_ns / 2;
}

/* ---- The choice ---- */

struct rb_waiting rb_waiting_choose(uint64_t wake_ns, uint32_t host_ranks, uint32_t cores)
{
	if (host_ranks <= cores)
		return (struct rb_waiting) { .spin_ns = SPIN_WAKEUPS * wake_ns, .yield_ns = 0 };
	return (struct rb_waiting) { .spin_ns = 0, .yield_ns = YIELD_WAKEUPS * wake_ns };
}

struct rb_waiting rb_waiting_find(uint64_t *wake_ns, uint32_t host_ranks, uint32_t cores,
				  uint64_t forced_ns)
{
	struct rb_waiting waiting = { .spin_ns = forced_ns, .yield_ns = 0, .forced = true };

	if (forced_ns > 0)
		return waiting;
	if (*wake_ns == 0)
		*wake_ns = rb_waiting_measure();
	waiting = rb_waiting_choose(*wake_ns, host_ranks, cores);
	RB_LOG(RB_LOG_INFO,
	       "waiting: %u ranks on %u cores, a wake-up takes %llu ns: polls for %llu ns, yields "
	       "for %llu",
	       host_ranks, cores, (unsigned long long)*wake_ns, (unsigned long long)waiting.spin_ns,
	       (unsigned long long)waiting.yield_ns);
	return waiting;
}

/* RUBATO_SPIN goes before it, and so do other ranks who want the core. */
static bool may_poll_longer(const struct rb_waiting *waiting)
{
	return !waiting->forced && waiting->yield_ns == 0;
}

void rb_waiting_unknown(struct rb_waiting *waiting)
{
	if (may_poll_longer(waiting))
		waiting->spin_ns = SPIN_NS_MAX;
}

void rb_waiting_network(struct rb_waiting *waiting, double latency_us)
{
	double answer_ns = 2 * latency_us * 1e3, spin_ns = SPIN_LATENCIES * latency_us * 1e3;

	if (spin_ns > SPIN_NS_MAX)
		spin_ns = SPIN_NS_MAX;
	if (!may_poll_longer(waiting) || latency_us <= 0 || answer_ns > SPIN_NS_MAX)
		return;
	waiting->gives_way = latency_us >= GIVE_WAY_US;
	if (spin_ns > (double)waiting->spin_ns)
		waiting->spin_ns = (uint64_t)spin_ns;
	RB_LOG(RB_LOG_INFO, "waiting: polls for %llu ns%s, as the network takes %.1f us",
	       (unsigned long long)waiting->spin_ns, waiting->gives_way ? " between yields" : "",
	       latency_us);
}

/* ---- What sleeps teach ---- */

/*
 * Where others keep the cores busy, a rank and the one that it waits for may be left with one of
 * them: then each polls to the end, and what it polled for happens while it sleeps and the other
 * polls. Longer sleeps say that the awaited rank was late, wherever it ran.
 */
void rb_waiting_slept(struct rb_waiting *waiting, uint64_t slept_ns)
{
	if (slept_ns > 2 * waiting->spin_ns)
		waiting->empty = 0;
	else if (++waiting->empty == EMPTY_MAX)
		waiting->empty = EMPTY_MANY - 1;
}

/* Of the usual length: the awaited rank runs elsewhere, and was late now and then. */
void rb_waiting_found(struct rb_waiting *waiting)
{
	if (!rb_waiting_in_vain(waiting))
		waiting->empty = 0;
}

bool rb_waiting_in_vain(const struct rb_waiting *waiting)
{
	return waiting->empty >= EMPTY_MANY && waiting->yield_ns == 0;
}

uint64_t rb_waiting_spin_ns(const struct rb_waiting *waiting)
{
	if (!rb_waiting_in_vain(waiting) || waiting->forced)
		return waiting->spin_ns;
	return waiting->spin_ns / EMPTY_SHARE;
}
