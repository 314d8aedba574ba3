/*
 * node_speed.c -- see node_speed.h.
 *
 * On each host one rank a core measures. Each fills a piece of its memory and tells where it lies,
 * so that another one can map it. Then the first of them is alone, as all others sleep in the next
 * exchange: it copies from its own memory to its own, and from its neighbour's, whose lines lie in
 * another core's cache; the difference is what it takes to cross. Where each rank has a core, it
 * also sends its neighbour messages, else two threads of it yield to each other. When that
 * exchange is over all copy at once from their neighbours: if they take longer than the first one
 * alone, they share what memory gives.
 *
 * A copy is of 256 KiB, a piece of which nobody has read before for each time; what it takes is the
 * second best of eight slices, so a turn of somebody else does not count. All of it fits a core's
 * second cache, or nearly: what is longer than the caches costs more, for all algorithms alike.
 */
#include "runtime/engine/node_speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/engine/ping.h"
#include "runtime/startup/topology.h"

#define SLICE_BYTES (32u << 10)
#define SLICES 8u
#define PIECE_BYTES (SLICES * SLICE_BYTES)
#define PIECES 2u /* One for the first rank alone, one for all at once. */
#define PAGE 4096u

#define SMALL_TIMES 12
#define BURST_TIMES 4
#define BURST_MESSAGES 65
#define LONG_TIMES 32

/* What is not between these is no measurement: 1 MB/s and 1 TB/s; 1 ns and 5 us. */
#define BYTE_US_MIN 1e-6
#define BYTE_US_MAX 1.0
#define US_MIN 1e-3
#define US_MAX 5.0 /* More than that, and they shared a core, or one slept. */
#define TURN_US_MIN 0.05
#define TURN_US_MAX 2.0
#define CROWDED 1.6   /* Guess: so much longer, and they do hinder each other. Less is chance. */
#define CROSS_TIMES 4 /* Guess, where ranks cannot map each other's memory. */
#define PATIENCE_NS 1000000u

struct probe {
	const struct rb_node_probe *where;
	bool measures;
	uint32_t lead, partner;   /* The first rank of this host, and who messages with it; */
	uint32_t neighbour;       /* and whose memory is read here. Oneself: there is nobody. */
	struct rb_memory *shared; /* PIECES. */
	uint8_t *own;             /* PIECES: copied to. */
	const uint8_t *theirs;    /* The neighbour's; NULL: not to be mapped. */
	uint32_t their_cpu;       /* On which it was filled. */
};

struct filled {        /* As ranks tell each other. */
	uint64_t word; /* 0: not to be mapped. */
	uint32_t cpu, unused;
};

struct alone {                    /* Of a host's first rank. In microseconds; 0: not measured. */
	double core, cross, copy; /* A byte read or written: copy: of all those that cross. */
	double latency, message, message_byte, turn;
	double attach_bytes, attach_copies; /* As the transport has them. */
	double cache, outer;                /* Bytes, as the system has it. */
};

static bool is_between(double us, double least, double most)
{
	return us >= least && us <= most;
}

/* ---- Copies ---- */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

/* A byte read or written. */
static double copy_us(uint8_t *to, const uint8_t *from)
{
	double us[SLICES];

	for (uint32_t i = 0; i < SLICES; i++) {
		uint64_t begin_ns = rb_clock_ns();

		memcpy(to + (size_t)i * SLICE_BYTES, from + (size_t)i * SLICE_BYTES, SLICE_BYTES);
		__asm__ volatile("" ::: "memory"); /* It is not left out. */
		us[i] = (double)(rb_clock_ns() - begin_ns) / 1e3 / (2 * SLICE_BYTES);
	}
	qsort(us, SLICES, sizeof(us[0]), compare);
	return is_between(us[SLICES / 4], BYTE_US_MIN, BYTE_US_MAX) ? us[SLICES / 4] : 0;
}

/* So that the first copy finds it mapped. */
static void pages_touch(const uint8_t *from)
{
	for (uint32_t at = 0; at < PIECE_BYTES; at += PAGE)
		(void)*(const volatile uint8_t *)(from + at);
}

/* ---- Who ---- */

static uint32_t host_of(const struct rb_node_probe *where, uint32_t rank)
{
	return where->host_of[where->nodes->node_of[rank]];
}

/* The next rank after `rank` of those from `lead` on that measure, on the same node and around. */
static uint32_t next_of(const struct probe *p, uint32_t rank)
{
	const struct rb_node_probe *where = p->where;
	const uint32_t *node_of = where->nodes->node_of;
	uint32_t first = rank, ranks = 0;

	for (uint32_t r = p->lead; r < where->engine->rank_count; r++) {
		if (host_of(where, r) != host_of(where, rank) || ranks == where->cores)
			continue;
		ranks++;
		if (node_of[r] != node_of[rank])
			continue;
		if (r > rank)
			return r;
		first = r < first ? r : first;
	}
	return first;
}

static void places_find(struct probe *p)
{
	const struct rb_node_probe *where = p->where;
	uint32_t me = where->engine->rank, before = 0;

	p->lead = me;
	for (uint32_t r = 0; r < me; r++) {
		if (host_of(where, r) != host_of(where, me))
			continue;
		p->lead = r < p->lead ? r : p->lead;
		before++;
	}
	p->measures = before < where->cores;
	p->partner = next_of(p, p->lead);
	p->neighbour = next_of(p, me);
}

/* ---- Steps ---- */

/* That peers may map. Its word; 0: there is none. */
static uint64_t shared_alloc(struct probe *p)
{
	struct rb_engine *engine = p->where->engine;
	struct rb_endpoint *ep = engine->endpoints[0];
	uint64_t word = 0;

	rb_engine_enter(engine);
	if (rb_memory_alloc(p->where->memories, PIECES * PIECE_BYTES, &p->shared) == RUBATO_OK)
		word = ep->ops->word_of(ep, p->shared->base, PIECES * PIECE_BYTES);
	rb_engine_leave(engine);
	return word;
}

/* Without the memory for it this rank measures nothing. */
static void probe_open(struct probe *p, struct filled *filled)
{
	const struct rb_transport_ops *ops = p->where->engine->endpoints[0]->ops;

	*filled = (struct filled) { .cpu = RB_CPU_NONE };
	if (!p->measures)
		return;
	p->own = aligned_alloc(PAGE, PIECES * PIECE_BYTES);
	if (p->own == NULL)
		return;
	memset(p->own, 1, PIECES * PIECE_BYTES);
	if (p->neighbour == p->where->engine->rank || ops->word_of == NULL)
		return;
	filled->word = shared_alloc(p);
	if (p->shared == NULL)
		return;
	memset(p->shared->base, 2, PIECES * PIECE_BYTES);
	filled->cpu = rb_cpu_here();
}

static void neighbour_map(struct probe *p, uint64_t word)
{
	struct rb_engine *engine = p->where->engine;
	struct rb_endpoint *ep = engine->endpoints[0];

	if (word == 0 || p->neighbour == engine->rank || ep->ops->word_map == NULL)
		return;
	rb_engine_enter(engine);
	p->theirs = ep->ops->word_map(ep, p->neighbour, word, PIECES * PIECE_BYTES);
	rb_engine_leave(engine);
}

static void probe_close(struct probe *p)
{
	rb_engine_enter(p->where->engine);
	if (p->shared != NULL)
		rb_memory_drop(p->where->memories, p->shared);
	rb_engine_leave(p->where->engine);
	free(p->own);
}

static rubato_status messages_time(struct probe *p, uint64_t deadline_ns, struct alone *alone)
{
	const uint32_t ends[2] = { p->lead, p->partner };
	uint64_t small_ns = 0, burst_ns = 0, short_ns = 0, long_ns = 0;
	struct rb_ping *ping;
	rubato_status err;

	RB_TRY(rb_ping_new(p->where->engine, ends, 0, deadline_ns, &ping));
	err = rb_ping_time(ping, RB_PING_SMALL_BYTES, 1, SMALL_TIMES, &small_ns);
	if (err == RUBATO_OK)
		err = rb_ping_time(ping, RB_PING_SMALL_BYTES, BURST_MESSAGES, BURST_TIMES,
				   &burst_ns);
	if (err == RUBATO_OK)
		err = rb_ping_exchange(ping, RB_PING_SMALL_BYTES, LONG_TIMES, &short_ns);
	if (err == RUBATO_OK)
		err = rb_ping_exchange(ping, RB_PING_EXCHANGE_BYTES, LONG_TIMES, &long_ns);
	rb_ping_free(ping);
	if (err != RUBATO_OK)
		return err;
	double byte =
		((double)long_ns - (double)short_ns) / 2e3 / RB_PING_EXCHANGE_BYTES - alone->core;
	double message = ((double)burst_ns - (double)small_ns) / 1e3 / (BURST_MESSAGES - 1);

	/* In shared memory a message is under way while its ends are still busy with it. */
	if (message > (double)small_ns / 8e3)
		message = (double)small_ns / 8e3;
	double latency = (double)small_ns / 2e3 - 2 * message;

	alone->message_byte = is_between(byte, BYTE_US_MIN, BYTE_US_MAX) ? byte : 0;
	alone->message = is_between(message, US_MIN, US_MAX) ? message : 0;
	alone->latency = is_between(latency, US_MIN, US_MAX) ? latency : 0;
	return RUBATO_OK;
}

/* To another core than `cpu`, which is ours. */
static bool leave(uint32_t cpu)
{
	uint64_t allowed[RB_CPU_WORDS];

	rb_cpus_allowed(allowed);
	for (uint32_t i = 0; i < 64 * RB_CPU_WORDS; i++)
		if (i != cpu && (allowed[i / 64] >> i % 64 & 1) != 0)
			return rb_thread_move(i, PATIENCE_NS);
	return false;
}

static void copies_time(struct probe *p, struct alone *alone)
{
	bool here = p->theirs != NULL && p->their_cpu == rb_cpu_here();

	bool apart = p->theirs != NULL && (!here || leave(p->their_cpu));

	memset(p->own, 1, PIECES * PIECE_BYTES); /* Perhaps on another core than before. */
	alone->core = alone->copy = copy_us(p->own, p->own + PIECE_BYTES);
	if (p->theirs != NULL) {
		pages_touch(p->theirs);
		alone->copy = copy_us(p->own, p->theirs);
	}
	/* One byte of two crosses. */
	alone->cross = apart ? 2 * alone->copy - alone->core : CROSS_TIMES * alone->core;
	if (alone->core == 0 || alone->cross < alone->core)
		alone->cross = alone->core;
}

/* More is no turn, but somebody else's. */
static double turn_us(void)
{
	double us = (double)rb_waiting_turn_ns() / 1e3;

	return is_between(us, TURN_US_MIN, TURN_US_MAX) ? us : 0;
}

/* Of messages that the kernel copies. */
static void attach_time(struct rb_engine *engine, struct alone *alone)
{
	struct rb_endpoint *ep = engine->endpoints[0];
	struct rb_node_speed known = { 0 };

	rb_engine_enter(engine);
	if (ep->ops->node_speed != NULL && ep->ops->node_speed(ep, &known)) {
		alone->attach_bytes = known.attach_bytes;
		alone->attach_copies = known.attach_copies;
	}
	rb_engine_leave(engine);
}

/* The first rank of each host, and as far as it needs it its partner. */
static rubato_status alone_measure(struct probe *p, uint64_t deadline_ns, struct alone *alone)
{
	uint32_t me = p->where->engine->rank;
	bool crowded = p->where->host_ranks > p->where->cores, leads = me == p->lead;

	*alone = (struct alone) { 0 };
	if (leads && p->own != NULL)
		copies_time(p, alone);
	if (!crowded && p->lead != p->partner && (leads || me == p->partner))
		RB_TRY(messages_time(p, deadline_ns, alone));
	if (!leads)
		*alone = (struct alone) { 0 };
	else if (crowded)
		alone->turn = turn_us();
	if (leads) {
		struct rb_shared_cache outer;

		rb_shared_cache_of(rb_cpu_here(), &outer);
		alone->outer =
			(double)outer.size_bytes / rb_cache_ranks(&outer, p->where->host_ranks);
		alone->cache = (double)rb_cache_of(rb_cpu_here());
	}
	if (leads)
		attach_time(p->where->engine, alone);
	return RUBATO_OK;
}

/* What all of a host that measure take for a byte, at once. */
static double crowd_measure(struct probe *p)
{
	if (p->own == NULL)
		return 0;
	if (p->theirs == NULL)
		return copy_us(p->own, p->own + PIECE_BYTES);
	memset(p->own, 1, PIECE_BYTES);
	pages_touch(p->theirs + PIECE_BYTES);
	return copy_us(p->own, p->theirs + PIECE_BYTES);
}

/* ---- What all make of it ---- */

static rubato_status blob_check(size_t bytes, size_t expected, uint32_t rank)
{
	return bytes == expected ? RUBATO_OK
				 : RB_FAIL(RUBATO_ERR_MISMATCH,
					   "rank %u's start-up measurement is malformed", rank);
}

static void slower(double *all, double one)
{
	if (isfinite(one) && one > *all)
		*all = one;
}

/* Of those who know it. */
static void smaller(double *all, double one)
{
	if (isfinite(one) && one > 0 && (*all == 0 || one < *all))
		*all = one;
}

/* The slowest host counts. */
static rubato_status alone_join(const struct probe *p, const void *const *blobs,
				const size_t *bytes, struct alone *out)
{
	struct alone theirs;

	*out = (struct alone) { 0 };
	for (uint32_t r = 0; r < p->where->engine->rank_count; r++) {
		RB_TRY(blob_check(bytes[r], sizeof(theirs), r));
		memcpy(&theirs, blobs[r], sizeof(theirs));
		slower(&out->core, theirs.core);
		slower(&out->cross, theirs.cross);
		slower(&out->copy, theirs.copy);
		slower(&out->latency, theirs.latency);
		slower(&out->message, theirs.message);
		slower(&out->message_byte, theirs.message_byte);
		slower(&out->turn, theirs.turn);
		slower(&out->attach_bytes, theirs.attach_bytes);
		slower(&out->attach_copies, theirs.attach_copies);
		smaller(&out->cache, theirs.cache);
		smaller(&out->outer, theirs.outer);
	}
	return RUBATO_OK;
}

bool rb_node_is_shared(double at_once_us, double alone_us)
{
	return at_once_us > CROWDED * alone_us;
}

/* A byte of a host's memory, where its ranks take longer at once than one alone: `copy`. */
static rubato_status crowd_join(const struct probe *p, const void *const *blobs,
				const size_t *bytes, double copy, double *memory)
{
	const struct rb_node_probe *where = p->where;
	uint32_t hosts = where->host_count;
	double *rates = calloc(2 * (size_t)hosts, sizeof(*rates)), *ranks;
	rubato_status err = RUBATO_OK;

	*memory = 0;
	if (rates == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "speeds of %u hosts", hosts);
	ranks = rates + hosts;
	for (uint32_t r = 0; r < where->engine->rank_count && err == RUBATO_OK; r++) {
		double us = 0;

		err = blob_check(bytes[r], sizeof(us), r);
		if (err == RUBATO_OK)
			memcpy(&us, blobs[r], sizeof(us));
		if (!is_between(us, BYTE_US_MIN, BYTE_US_MAX))
			continue;
		rates[host_of(where, r)] += 1 / us;
		ranks[host_of(where, r)]++;
	}
	for (uint32_t h = 0; h < hosts; h++)
		if (ranks[h] > 1 && rb_node_is_shared(ranks[h] / rates[h], copy))
			slower(memory, 1 / rates[h]);
	free(rates);
	return err;
}

/* In steps of 20 %: jobs on one machine shall choose alike, as a rule. */
static void fill(double *said, double measured)
{
	if (*said == 0 && measured > 0)
		*said = exp2(round(4 * log2(measured)) / 4);
}

static void speed_fill(const struct alone *alone, double memory, struct rb_node_speed *speed)
{
	if (speed->core_byte_us == 0) {
		fill(&speed->core_byte_us, alone->core);
		fill(&speed->cross_byte_us, alone->cross);
		fill(&speed->message_byte_us, alone->message_byte);
		fill(&speed->memory_byte_us, memory);
	}
	if (speed->latency_us == 0 && alone->latency > 0) {
		fill(&speed->latency_us, alone->latency);
		fill(&speed->message_us, alone->message);
	}
	fill(&speed->turn_us, alone->turn);
	fill(&speed->attach_copies, alone->attach_copies);
	if (speed->cache_bytes == 0)
		speed->cache_bytes = alone->cache;
	if (speed->outer_bytes == 0)
		speed->outer_bytes = alone->outer;
	if (speed->attach_bytes == 0 && isfinite(alone->attach_bytes))
		speed->attach_bytes = alone->attach_bytes;
	RB_LOG(RB_LOG_INFO,
	       "within nodes: %.2f us, %.3f us a message, long ones %.3g GB/s, memory %.3g, %.3g "
	       "from core to core, %.3g shared, a turn %.2f us, the kernel's copy %.2g others, "
	       "a core's cache %.3g KiB, a rank's part of the outer one %.3g (0: not measured)",
	       speed->latency_us, speed->message_us,
	       speed->message_byte_us > 0 ? 1e-3 / speed->message_byte_us : 0.0,
	       speed->core_byte_us > 0 ? 1e-3 / speed->core_byte_us : 0.0,
	       speed->cross_byte_us > 0 ? 1e-3 / speed->cross_byte_us : 0.0,
	       speed->memory_byte_us > 0 ? 1e-3 / speed->memory_byte_us : 0.0, speed->turn_us,
	       speed->attach_copies, speed->cache_bytes / 1024, speed->outer_bytes / 1024);
}

static rubato_status steps(struct probe *p, struct rb_bootstrap *bootstrap, uint64_t deadline_ns,
			   struct rb_node_speed *speed)
{
	const void *const *blobs;
	const size_t *bytes;
	struct filled filled;
	struct alone alone;
	double memory;

	probe_open(p, &filled);
	RB_TRY(bootstrap->allgather(bootstrap, &filled, sizeof(filled), &blobs, &bytes,
				    deadline_ns));
	RB_TRY(blob_check(bytes[p->neighbour], sizeof(filled), p->neighbour));
	memcpy(&filled, blobs[p->neighbour], sizeof(filled));
	p->their_cpu = filled.cpu;
	neighbour_map(p, filled.word);
	RB_TRY(alone_measure(p, deadline_ns, &alone));
	RB_TRY(bootstrap->allgather(bootstrap, &alone, sizeof(alone), &blobs, &bytes, deadline_ns));
	RB_TRY(alone_join(p, blobs, bytes, &alone));
	memory = crowd_measure(p);
	RB_TRY(bootstrap->allgather(bootstrap, &memory, sizeof(memory), &blobs, &bytes,
				    deadline_ns));
	RB_TRY(crowd_join(p, blobs, bytes, alone.copy, &memory));
	speed_fill(&alone, memory, speed);
	return RUBATO_OK;
}

rubato_status rb_node_speed_measure(const struct rb_node_probe *where,
				    struct rb_bootstrap *bootstrap, uint64_t deadline_ns,
				    struct rb_node_speed *speed)
{
	struct probe p = { .where = where };
	rubato_status err;

	places_find(&p);
	err = steps(&p, bootstrap, deadline_ns, speed);
	probe_close(&p);
	return err;
}

/* Where both a collective and whoever reads its result gain: measured, docs/performance.md, "Past
 * the caches". A large cache is one that many cores fill. */
#define PAST_TIMES UINT64_C(2)
#define PAST_BYTES (UINT64_C(64) << 20)
#define PAST_SHARE UINT64_C(5)

uint64_t rb_past_bytes(const struct rb_shared_cache *cache, uint32_t host_ranks)
{
	uint64_t small = PAST_TIMES * cache->size_bytes, large = cache->size_bytes / PAST_SHARE;
	uint64_t all = small < PAST_BYTES ? small : PAST_BYTES;

	return (large > all ? large : all) / rb_cache_ranks(cache, host_ranks);
}
