/*
 * peer_bound.c -- what rubato-bench measures libraries against: the plainest program of shared
 * memory that does one operation, without matching, progress, errors or sleep. See peer_rank.h.
 *
 * usage: rubato-peer-bound SOCKET CPUS RANKS
 *
 * Each rank writes what others need of it into an area of its own, with a number in front, chunk
 * by chunk in two sets; they wait for the number, and copy or add what they need from there. So 8
 * bytes on two ranks are one exchange of cache lines, and long vectors are copied in and read once.
 * An area is free again since there are barriers between calls (peer_rank.c), and within a call
 * since ranks say which chunks they have read.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/peer_rank.h"

#define CHUNK_BYTES 65536u /* Guess: two of each rank fit a second-level cache. */
#define LINE 64u
#define TWO_STEPS_BYTES 16384u /* Guess: from here on more than two ranks reduce a part each. */

struct area {
	_Alignas(2 * LINE) _Atomic uint64_t ready; /* Number of the chunk that is here. */
	uint8_t data[CHUNK_BYTES + 2 * LINE - 8];
};

struct done {
	_Alignas(2 * LINE) _Atomic uint64_t chunks; /* That this rank has read. */
};

struct bound {
	struct area *areas; /* [2][ranks] */
	struct done *done;  /* [ranks] */
	uint64_t number;    /* Of the last chunk. */
	bool crowded;
};

/* One pass over the ranks: who gives, who takes, and what. */
struct pass {
	const uint8_t *in;
	uint8_t *out;
	size_t bytes; /* Of a block. */
	bool blocks;  /* A rank gives each other one a block of its own; else all the same. */
	bool adds;    /* float32; else the block of rank r goes to the r-th place of OUT, if */
	bool places;  /* there are such. */
	uint32_t givers_from, givers_to, takers_from, takers_to; /* Ranks from .. to - 1. */
};

static void wait_for(const struct bound *b, _Atomic uint64_t *word, uint64_t number)
{
	while (atomic_load_explicit(word, memory_order_acquire) < number) {
		if (b->crowded)
			(void)sched_yield();
#if defined(__x86_64__)
		else
			__builtin_ia32_pause();
#endif
	}
}

static struct area *area_of(const struct bound *b, uint32_t ranks, uint32_t rank)
{
	return &b->areas[b->number % 2 * ranks + rank];
}

/* `out` may be `base`. */
static void add(float *out, const float *base, const float *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = base[i] + in[i];
}

static bool within(uint32_t rank, uint32_t from, uint32_t to)
{
	return rank >= from && rank < to;
}

/* The chunk `at` .. at + bytes - 1 of what is for each taker. */
static void give(const struct peer_rank *p, const struct pass *s, size_t at, size_t bytes)
{
	const struct bound *b = p->library_data;
	struct area *area = area_of(b, p->rank_count, p->rank);

	if (!s->blocks && bytes > 0)
		memcpy(area->data, s->in + at, bytes);
	for (uint32_t r = 0; s->blocks && bytes > 0 && r < p->rank_count; r++)
		if (r != p->rank && within(r, s->takers_from, s->takers_to))
			memcpy(area->data + r * bytes, s->in + r * s->bytes + at, bytes);
	atomic_store_explicit(&area->ready, b->number, memory_order_release);
}

/* The own part of this chunk. */
static const uint8_t *own_at(const struct peer_rank *p, const struct pass *s, size_t at)
{
	return s->in + (s->blocks ? p->rank * s->bytes : 0) + at;
}

static void take(const struct peer_rank *p, const struct pass *s, uint32_t from, size_t at,
		 size_t bytes, bool first)
{
	const struct bound *b = p->library_data;
	struct area *area = area_of(b, p->rank_count, from);
	const uint8_t *data = area->data + (s->blocks ? p->rank * bytes : 0);
	uint8_t *out = s->out + (s->places ? from * s->bytes : 0) + at;

	wait_for(b, &area->ready, b->number);
	if (bytes == 0)
		return;
	if (s->adds)
		add((float *)(void *)out,
		    (const float *)(const void *)(first ? own_at(p, s, at) : out),
		    (const float *)(const void *)data, bytes / sizeof(float));
	else
		memcpy(out, data, bytes);
}

/* What a rank has of its own goes the short way. */
static void own(const struct peer_rank *p, const struct pass *s, size_t at, size_t bytes)
{
	const uint8_t *in = own_at(p, s, at);
	uint8_t *out = s->out + (s->places ? p->rank * s->bytes : 0) + at;

	if (out != in)
		memcpy(out, in, bytes);
}

static void pass(struct peer_rank *p, const struct pass *s)
{
	struct bound *b = p->library_data;
	size_t whole = CHUNK_BYTES / (s->blocks ? p->rank_count : 1) / LINE * LINE, at = 0;
	bool gives = within(p->rank, s->givers_from, s->givers_to);
	bool takes = within(p->rank, s->takers_from, s->takers_to);

	for (uint32_t chunk = 0; chunk == 0 || at < s->bytes; chunk++) {
		size_t bytes = s->bytes - at < whole ? s->bytes - at : whole;

		b->number++;
		for (uint32_t r = 0; r < p->rank_count && gives && chunk >= 2; r++)
			wait_for(b, &b->done[r].chunks, b->number - 2);
		if (gives)
			give(p, s, at, bytes);
		if (gives && takes && bytes > 0 && (!s->adds || p->rank_count == 1))
			own(p, s, at, bytes);
		for (uint32_t i = 1; i < p->rank_count && takes; i++) {
			uint32_t from = (p->rank + i) % p->rank_count;

			if (within(from, s->givers_from, s->givers_to))
				take(p, s, from, at, bytes, i == 1);
		}
		if (s->bytes > whole)
			atomic_store_explicit(&b->done[p->rank].chunks, b->number,
					      memory_order_release);
		at += bytes;
	}
}

/* ---- Operations ---- */

static struct pass pass_of_all(const struct peer_rank *p, size_t bytes)
{
	return (struct pass) { .in = p->call.in,
			       .out = p->call.out,
			       .bytes = bytes,
			       .givers_to = p->rank_count,
			       .takers_to = p->rank_count };
}

/* Each reduces a part, and gives that to all. */
static void allreduce_in_two(struct peer_rank *p, size_t bytes)
{
	size_t part = bytes / p->rank_count / sizeof(float) * sizeof(float);
	size_t rest = bytes - part * p->rank_count;
	struct pass s = pass_of_all(p, part);

	s.blocks = s.adds = true;
	s.out = (uint8_t *)p->call.out + p->rank * part;
	pass(p, &s);
	s = pass_of_all(p, part);
	s.in = (uint8_t *)p->call.out + p->rank * part;
	s.places = true;
	pass(p, &s);
	if (rest == 0)
		return;
	s = pass_of_all(p, rest);
	s.adds = true;
	s.in = (const uint8_t *)p->call.in + part * p->rank_count;
	s.out = (uint8_t *)p->call.out + part * p->rank_count;
	pass(p, &s);
}

static void sendrecv(struct peer_rank *p, size_t bytes)
{
	struct pass s = pass_of_all(p, bytes);
	struct bound *b = p->library_data;
	uint32_t left = (p->rank + p->rank_count - 1) % p->rank_count;

	for (size_t at = 0; at == 0 || at < bytes; at += CHUNK_BYTES) {
		size_t piece = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

		b->number++;
		if (at >= 2 * CHUNK_BYTES)
			wait_for(b, &b->done[(p->rank + 1) % p->rank_count].chunks, b->number - 2);
		give(p, &s, at, piece);
		take(p, &s, left, at, piece, true);
		if (bytes > CHUNK_BYTES)
			atomic_store_explicit(&b->done[p->rank].chunks, b->number,
					      memory_order_release);
	}
}

static void bound_barrier(struct peer_rank *p)
{
	const struct pass s = pass_of_all(p, 0);

	pass(p, &s);
}

static void bound_call(struct peer_rank *p)
{
	size_t bytes = p->call.count * rubato_type_bytes(p->call.type);
	struct pass s = pass_of_all(p, bytes);
	uint32_t root = p->call.root;

	switch (p->call.op) {
	case OP_ALLREDUCE:
		if (p->rank_count > 2 && bytes >= TWO_STEPS_BYTES) {
			allreduce_in_two(p, bytes);
			return;
		}
		s.adds = true;
		break;
	case OP_REDUCE_SCATTER:
		s.blocks = s.adds = true;
		break;
	case OP_ALLGATHER:
		s.places = true;
		break;
	case OP_ALLTOALL:
		s.blocks = s.places = true;
		break;
	case OP_BROADCAST:
		s.givers_from = root;
		s.givers_to = root + 1;
		break;
	case OP_REDUCE:
		s.adds = true;
		s.takers_from = root;
		s.takers_to = root + 1;
		break;
	case OP_GATHER:
		s.places = true;
		s.takers_from = root;
		s.takers_to = root + 1;
		break;
	case OP_SCATTER:
		s.blocks = true;
		s.givers_from = root;
		s.givers_to = root + 1;
		break;
	case OP_SENDRECV:
		sendrecv(p, bytes);
		return;
	default:
		break;
	}
	pass(p, &s);
}

static const char *bound_fit(struct peer_rank *p)
{
	enum operation op = p->call.op;

	if (operation_uneven(op))
		return "the bound is of even blocks";
	if (p->call.type >= RUBATO_TYPE_COUNT && op != OP_BARRIER)
		return "there is no such type";
	if (operation_reduces(op) &&
	    (p->call.type != RUBATO_FLOAT32 || p->call.reduction != RUBATO_SUM))
		return "the bound is of float32 sums";
	if (p->command.period_ns != 0)
		return "the bound needs barriers between its calls";
	return NULL;
}

/* ---- Ranks ---- */

static const struct peer_library library = {
	.name = "a plain program of shared memory",
	.fit = bound_fit,
	.call = bound_call,
	.barrier = bound_barrier,
};

/* The first that fails takes the others with it. */
static int ranks_wait(const pid_t *pids, uint32_t rank_count)
{
	bool good = true;

	for (uint32_t left = rank_count; left > 0; left--) {
		int status = 1;

		if (wait(&status) >= 0 && status == 0)
			continue;
		for (uint32_t i = 0; good && i < rank_count; i++)
			(void)kill(pids[i], SIGKILL);
		good = false;
	}
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	static struct peer_rank p; /* Large. */
	uint32_t rank_count = argc == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	size_t bytes = rank_count * (2 * sizeof(struct area) + sizeof(struct done));
	pid_t *pids = calloc(rank_count + 1, sizeof(*pids)), parent = getpid();
	struct bound b = { 0 };
	cpu_set_t allowed;

	if (rank_count == 0 || rank_count > CHUNK_BYTES / LINE || pids == NULL)
		return fprintf(stderr, "rubato-peer-bound: SOCKET CPUS RANKS\n"), EXIT_FAILURE;
	b.areas = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b.areas == MAP_FAILED)
		return perror("rubato-peer-bound: memory"), EXIT_FAILURE;
	b.done = (struct done *)(void *)(b.areas + (size_t)2 * rank_count);
	(void)sched_getaffinity(0, sizeof(allowed), &allowed);
	b.crowded = rank_count > (uint32_t)CPU_COUNT(&allowed);
	for (uint32_t i = 0; i < rank_count; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
			_exit(EXIT_FAILURE);
		p = (struct peer_rank) { .socket = -1,
					 .rank = i,
					 .rank_count = rank_count,
					 .library = &library,
					 .library_data = &b };
		_exit(peer_rank_run(&p, argv[1], argv[2]) ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	return ranks_wait(pids, rank_count);
}
