/*
 * bench_tune.c -- `rubato-bench --tune`: what links and memory cost here, as a profile for
 * RUBATO_PROFILE and rubato-sim --profile.
 *
 * Links. A small message there and back, the best of many: twice (send + latency + receive). Many
 * small ones there and one back: each further one takes what the slower end needs for it, which is
 * taken as both ends' cost, but of no more than half the way. One large one and four: their
 * difference is the bandwidth. Between nodes the first ranks of node 0 and of each other node do
 * this in turn; the slowest counts. (LogGP: Alexandrov, Ionescu, Schauser, Scheiman 1995.) There
 * each end's cost is what its call takes: the send's, and that of a receive whose message came long
 * before (Culler, Liu, Martin, Yoshikawa: Assessing fast network interfaces, 1996). Through a
 * kernel that may be all of the way, and processors that ranks share can do only one at a time.
 *
 * Memory. A rank copies alone, and then all of node 0 at the same time: bytes read and written.
 * Caches: tune_cache.c. And where the kernel lets it, it copies from its neighbour's memory.
 *
 * A turn. Two processes on one core yield to each other; and where there are several nodes, who has
 * a turn looks into the network for what it waits for.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs/clock.h"
#include "programs/launch/launch.h"
#include "programs/replace.h"
#include "programs/standard.h"
#include "tools/bench/bench.h"
#include "tools/bench/tune_cache.h"

#define SMALL_BYTES 8u
#define MIDDLE_BYTES (16u << 10)
#define LARGE_BYTES (1u << 20)
#define LARGE_MESSAGES 4u
#define BURST_MESSAGES 101u
#define SMALL_TIMES 200u
#define BURST_TIMES 20u
#define LARGE_TIMES 10u
#define COPY_NS 30000000u
#define YIELDS 4000u
#define CALL_TIMES 100u
#define CALL_LATE_NS 100000 /* So late a receive finds its message there. */
#define LOOKS 64u           /* At a time, and so many times. */
#define LOOK_TIMES 50u
#define APART 16       /* A difference of less than this part of what it would be tells nothing. */
#define FASTEST 1e12   /* Bytes a second: no link is. */
#define LEAST_US 0.001 /* What is less is written as that. */

struct given {
	char file[PATH_MAX];
	uint32_t rank_count, transport;
	uint64_t copy_bytes;
};

struct link {
	double latency_us, send_us, receive_us;
	double stack_us;  /* A byte, of either end. */
	double bandwidth; /* Bytes a second; 0: not known. */
};

struct tune {
	const struct given *given;
	struct bench bench;
	uint8_t *message;
	uint32_t node_count, near_peer; /* On rank 0's node, but rank 0; 0: there is none. */
	uint32_t node_ranks;            /* Of that node. */
	uint32_t *firsts;               /* Per node: its first rank. */
	bool of_node;                   /* This rank is on it. */
	struct link near, far, best;    /* best: of the fastest one between nodes. */
	double core, memory;            /* Bytes a second; memory 0: the node has one rank. */
	double attach;                  /* Of the kernel's copies; 0: it does not let us. */
	struct tune_cache cache;
	double turn_us;
};

static void check(struct tune *t, rubato_status status)
{
	bench_check(&t->bench, status, "--tune");
}

static void all_here(struct tune *t)
{
	check(t, rubato_barrier(t->bench.comm));
}

/* ---- Links ---- */

/* The best time of `count` messages from rank 0 to `peer` and a small one back. */
static double trip_us(struct tune *t, uint32_t peer, uint32_t bytes, uint32_t count, uint32_t times)
{
	rubato_comm *comm = t->bench.comm;
	bool first = t->bench.rank == 0;
	double best = 1e30;

	for (uint32_t i = 0; i < times; i++) {
		uint64_t begin = clock_ns();

		for (uint32_t k = 0; k < count; k++)
			check(t, first ? rubato_send(comm, t->message, bytes, RUBATO_UINT8, peer, 0)
				       : rubato_recv(comm, t->message, bytes, RUBATO_UINT8, 0, 0));
		check(t, first ? rubato_recv(comm, t->message, SMALL_BYTES, RUBATO_UINT8, peer, 0)
			       : rubato_send(comm, t->message, SMALL_BYTES, RUBATO_UINT8, 0, 0));
		double us = (double)(clock_ns() - begin) * 1e-3;

		if (i > 0 && us < best)
			best = us;
	}
	return best;
}

static double at_least(double us)
{
	return us > LEAST_US ? us : LEAST_US;
}

/* The best times of the two calls that a message from rank 0 to `peer` takes, by themselves. */
static void calls_measure(struct tune *t, uint32_t peer, uint32_t bytes, double *send_us,
			  double *receive_us)
{
	const struct timespec late = { .tv_nsec = CALL_LATE_NS };
	rubato_comm *comm = t->bench.comm;
	bool first = t->bench.rank == 0;
	double best = 1e30, us = 0;

	for (uint32_t i = 0; i < CALL_TIMES; i++) {
		uint64_t begin;

		if (!first) /* The other one may need this processor. */
			(void)nanosleep(&late, NULL);
		begin = clock_ns();
		check(t, first ? rubato_send(comm, t->message, bytes, RUBATO_UINT8, peer, 0)
			       : rubato_recv(comm, t->message, bytes, RUBATO_UINT8, 0, 0));
		us = (double)(clock_ns() - begin) * 1e-3;
		best = i > 0 && us < best ? us : best;
		check(t, first ? rubato_recv(comm, &us, 1, RUBATO_FLOAT64, peer, 0)
			       : rubato_send(comm, &best, 1, RUBATO_FLOAT64, 0, 0));
	}
	*send_us = best;
	*receive_us = us; /* Rank 0: the other one's best. */
}

/* What ends are busy with between nodes: as long as their calls take, which may be longer than the
 * way, as a message may be there before the call that sends it has returned. */
static void ends_measure(struct tune *t, uint32_t peer, struct link *link)
{
	double way = 2 * link->send_us + link->latency_us, send, receive;

	calls_measure(t, peer, SMALL_BYTES, &link->send_us, &link->receive_us);
	calls_measure(t, peer, MIDDLE_BYTES, &send, &receive);
	link->latency_us = at_least(way - link->send_us - link->receive_us);
	link->stack_us = (send + receive - link->send_us - link->receive_us) / 2 / MIDDLE_BYTES;
}

/* Of the times of one large message and of some. On a crowded node they may be alike: then what is
 * known is how fast all of them were. 0: they took no time. */
static double bandwidth_of(double one_us, double some_us)
{
	const double bytes = (double)LARGE_BYTES * (LARGE_MESSAGES - 1);
	double us = some_us - one_us, all_us = some_us * (LARGE_MESSAGES - 1) / LARGE_MESSAGES;

	if (us < all_us / APART)
		us = all_us;
	return us * 1e-6 > bytes / FASTEST ? bytes * 1e6 / us : 0;
}

/* On rank 0 and `peer`; others wait where all meet next. */
static struct link link_measure(struct tune *t, uint32_t peer)
{
	double small = trip_us(t, peer, SMALL_BYTES, 1, SMALL_TIMES);
	double burst = trip_us(t, peer, SMALL_BYTES, BURST_MESSAGES, BURST_TIMES);
	double one = trip_us(t, peer, LARGE_BYTES, 1, LARGE_TIMES);
	double some = trip_us(t, peer, LARGE_BYTES, LARGE_MESSAGES, LARGE_TIMES);
	double message = at_least((burst - small) / (BURST_MESSAGES - 1));

	/* In shared memory a message is under way while its ends are still busy with it. */
	if (message > small / 8)
		message = small / 8;

	return (struct link) {
		.send_us = message,
		.receive_us = message,
		.latency_us = at_least(small / 2 - 2 * message),
		.bandwidth = bandwidth_of(one, some),
	};
}

static void links_measure(struct tune *t)
{
	bool leads = t->bench.rank == 0;

	for (uint32_t node = 1; node < t->node_count; node++) {
		if (leads || t->bench.rank == t->firsts[node]) {
			struct link link = link_measure(t, t->firsts[node]);

			ends_measure(t, t->firsts[node], &link);

			if (node == 1)
				t->far = t->best = link;
			if (link.latency_us > t->far.latency_us)
				t->far.latency_us = link.latency_us;
			if (link.send_us > t->far.send_us)
				t->far.send_us = link.send_us;
			if (link.receive_us > t->far.receive_us)
				t->far.receive_us = link.receive_us;
			if (link.stack_us > t->far.stack_us)
				t->far.stack_us = link.stack_us;
			if (t->far.bandwidth == 0 ||
			    (link.bandwidth > 0 && link.bandwidth < t->far.bandwidth))
				t->far.bandwidth = link.bandwidth;
			if (link.bandwidth > t->best.bandwidth)
				t->best.bandwidth = link.bandwidth;
		}
		all_here(t);
	}
	if (t->near_peer != 0 && (leads || t->bench.rank == t->near_peer))
		t->near = link_measure(t, t->near_peer);
	all_here(t);
}

/* ---- Memory, and turns ---- */

static double copy_rate(struct tune *t)
{
	double rate = tune_copy_rate(t->given->copy_bytes, COPY_NS);

	if (rate == 0)
		option_fail(BENCH, "--copy: no memory");
	return rate;
}

/* Where a rank's vector lies, and how it begins. */
struct lent {
	uint64_t process, address, word;
};

#define LENT_WORD UINT64_C(0x7461636168617474)

/* Bytes read and written; 0: it could not. */
static double attach_rate(const struct lent *lent, uint8_t *to, uint64_t size_bytes)
{
	struct iovec own = { to, size_bytes };
	struct iovec theirs = { (void *)(uintptr_t)lent->address, size_bytes };
	uint64_t begin = 0, copied = 0, word;

	for (bool first = true; first || clock_ns() - begin < COPY_NS; first = false) {
		if (process_vm_readv((pid_t)lent->process, &own, 1, &theirs, 1, 0) !=
		    (ssize_t)size_bytes)
			return 0;
		memcpy(&word, to, sizeof(word));
		if (word != lent->word)
			return 0;
		if (first)
			begin = clock_ns();
		else
			copied += 2 * size_bytes;
	}
	return (double)copied * 1e9 / (double)(clock_ns() - begin);
}

/* Rank 0 copies from its neighbour, which waits. */
static void attach_measure(struct tune *t)
{
	uint64_t size_bytes = t->given->copy_bytes;
	uint8_t *vector = malloc(size_bytes);
	struct lent lent = { (uint64_t)getpid(), (uintptr_t)vector, LENT_WORD };

	if (vector == NULL)
		option_fail(BENCH, "--copy: no memory");
	memset(vector, 1, size_bytes);
	if (t->bench.rank == 0) {
		check(t, rubato_recv(t->bench.comm, &lent, sizeof(lent), RUBATO_UINT8, t->near_peer,
				     0));
		t->attach = attach_rate(&lent, vector, size_bytes);
	} else {
		memcpy(vector, &lent.word, sizeof(lent.word));
		check(t, rubato_send(t->bench.comm, &lent, sizeof(lent), RUBATO_UINT8, 0, 0));
		check(t, rubato_recv(t->bench.comm, &lent, 1, RUBATO_UINT8, 0, 0));
	}
	if (t->bench.rank == 0)
		check(t, rubato_send(t->bench.comm, &lent, 1, RUBATO_UINT8, t->near_peer, 0));
	free(vector);
}

static void memory_measure(struct tune *t)
{
	double rate = 0;

	if (t->bench.rank == 0) {
		t->cache = tune_cache_measure();
		t->core = copy_rate(t);
	}
	if (t->near_peer != 0 && (t->bench.rank == 0 || t->bench.rank == t->near_peer))
		attach_measure(t);
	all_here(t);
	if (t->of_node && t->node_ranks > 1)
		rate = copy_rate(t);
	check(t, rubato_allreduce(t->bench.comm, &rate, &t->memory, 1, RUBATO_FLOAT64, RUBATO_SUM));
}

/* Two processes that yield to each other on this one's core, for as long as that takes. */
static double turn_measure(void)
{
	cpu_set_t before, one;
	int cpu = sched_getcpu();
	pid_t other;
	double us;

	CPU_ZERO(&one);
	if (cpu < 0 || sched_getaffinity(0, sizeof(before), &before) != 0)
		return 0;
	CPU_SET((unsigned)cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0)
		return 0;
	other = fork();
	if (other == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)sched_yield();
	}
	for (uint32_t i = 0; i < YIELDS / 10; i++)
		(void)sched_yield();
	uint64_t begin = clock_ns();

	for (uint32_t i = 0; i < YIELDS; i++)
		(void)sched_yield();
	us = (double)(clock_ns() - begin) * 1e-3 / (2 * YIELDS);
	(void)sched_setaffinity(0, sizeof(before), &before);
	if (other < 0)
		return 0;
	(void)kill(other, SIGKILL);
	(void)waitpid(other, NULL, 0);
	return at_least(us);
}

/* What rank 0 does in vain while it waits for a message from another node. */
static double look_measure(struct tune *t)
{
	double best = 1e30;
	bool done = false;
	rubato_op *op;

	check(t, rubato_op_recv(t->bench.comm, t->message, SMALL_BYTES, RUBATO_UINT8, t->firsts[1],
				1, &op));
	check(t, rubato_start(op));
	for (uint32_t i = 0; i < LOOK_TIMES; i++) {
		uint64_t begin = clock_ns();

		for (uint32_t k = 0; k < LOOKS; k++)
			check(t, rubato_test(op, &done));
		double us = (double)(clock_ns() - begin) * 1e-3 / LOOKS;

		best = us < best ? us : best;
	}
	rubato_op_free(op); /* Which ends it. */
	return best;
}

/* ---- The profile ---- */

static void profile_print(FILE *file, const struct tune *t)
{
	char day[32] = "";
	time_t now = time(NULL);
	struct tm parts;

	if (localtime_r(&now, &parts) != NULL)
		(void)strftime(day, sizeof(day), "%Y-%m-%d %H:%M", &parts);
	(void)fprintf(
		file, "# rubato-bench --tune, %s: %u ranks on %u nodes, copies of %llu bytes\n",
		day, t->bench.rank_count, t->node_count, (unsigned long long)t->given->copy_bytes);
	if (t->node_count > 1) {
		(void)fprintf(file,
			      "# Of %u links from node 0, the slowest; the fastest %.4fGB/s\n",
			      t->node_count - 1, t->best.bandwidth * 1e-9);
		(void)fprintf(file, "latency %.3fus\n", t->far.latency_us);
		if (t->far.bandwidth > 0)
			(void)fprintf(file, "bandwidth %.4fGB/s\n", t->far.bandwidth * 1e-9);
		(void)fprintf(file, "send %.3fus\nreceive %.3fus\n", t->far.send_us,
			      t->far.receive_us);
	}
	/* The copy comes beside it. */
	if (t->node_count > 1 && t->far.stack_us * 1e-6 > 2 / t->core)
		(void)fprintf(file, "stack-bandwidth %.4fGB/s\n",
			      1e-9 / (t->far.stack_us * 1e-6 - 2 / t->core));
	if (t->near_peer != 0) {
		(void)fprintf(file, "node-latency %.3fus\n", t->near.latency_us);
		(void)fprintf(file, "node-send %.3fus\nnode-receive %.3fus\n", t->near.send_us,
			      t->near.receive_us);
		if (t->near.bandwidth > 0)
			(void)fprintf(file, "node-bandwidth %.4fGB/s\n", t->near.bandwidth * 1e-9);
		(void)fprintf(file, "memory-bandwidth %.4fGB/s\n", t->memory * 1e-9);
	}
	(void)fprintf(file, "core-bandwidth %.4fGB/s\n", t->core * 1e-9);
	if (t->attach > 0)
		(void)fprintf(file, "attach-bandwidth %.4fGB/s\n", t->attach * 1e-9);
	if (t->cache.size_bytes > 0) {
		(void)fprintf(file, "cache %llu\ncached-bandwidth %.4fGB/s\n",
			      (unsigned long long)t->cache.size_bytes, t->cache.cached * 1e-9);
		if (t->cache.reduced > 0)
			(void)fprintf(file, "reduced-bandwidth %.4fGB/s\n",
				      t->cache.reduced * 1e-9);
		if (t->cache.shared > 0)
			(void)fprintf(file, "shared-bandwidth %.4fGB/s\nshared-latency %.3fus\n",
				      t->cache.shared * 1e-9, t->cache.shared_latency_us);
	}
	if (t->turn_us > 0)
		(void)fprintf(file, "turn %.3fus\n", t->turn_us);
}

static int profile_write(const struct tune *t)
{
	struct replacement to;
	int failed;

	profile_print(stdout, t);
	if (!standard_written(BENCH))
		return EXIT_FAILURE;
	failed = replacement_open(&to, t->given->file) ? 0 : -1;
	if (failed == 0) {
		profile_print(to.file, t);
		failed = replacement_close(&to, true);
	}
	if (failed != 0)
		(void)fprintf(stderr, "%s: --tune: '%s' could not be written\n", BENCH,
			      t->given->file);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Who is where: nodes are numbered in the order of their first ranks. */
static void places_find(struct tune *t)
{
	rubato_peer peer = { .size_bytes = sizeof(peer) };
	uint32_t n = t->bench.rank_count;

	t->firsts = calloc(n, sizeof(*t->firsts));
	t->message = calloc(LARGE_BYTES, 1);
	if (t->firsts == NULL || t->message == NULL)
		option_fail(BENCH, "--tune: no memory");
	for (uint32_t r = 0; r < n; r++) {
		check(t, rubato_get_peer(t->bench.comm, r, &peer));
		if (peer.node == t->node_count)
			t->firsts[t->node_count++] = r;
		if (peer.node != 0)
			continue;
		t->node_ranks++;
		t->of_node = t->of_node || r == t->bench.rank;
		if (t->near_peer == 0)
			t->near_peer = r;
	}
}

static int tune_rank(void *arg, int line_fd)
{
	struct tune t = { .given = arg };
	rubato_options init = RUBATO_OPTIONS_INIT;
	rubato_comm *comm;
	int status = EXIT_SUCCESS;

	(void)line_fd;
	if (t.given->transport > 0)
		init.transport = bench_transports[t.given->transport];
	check(&t, rubato_init(&t.bench.comm, &init));
	t.bench.rank = rubato_rank(t.bench.comm);
	t.bench.rank_count = rubato_size(t.bench.comm);
	places_find(&t);
	links_measure(&t);
	memory_measure(&t);
	if (t.bench.rank == 0)
		t.turn_us = turn_measure();
	if (t.bench.rank == 0 && t.node_count > 1 && t.turn_us > 0)
		t.turn_us += look_measure(&t);
	all_here(&t);
	if (t.bench.rank == 0)
		status = profile_write(&t);
	free(t.firsts);
	free(t.message);
	comm = t.bench.comm;
	t.bench.comm = NULL;
	check(&t, rubato_finalize(comm));
	return status;
}

#define AT(member) offsetof(struct given, member)

static const struct option rows[] = {
	{ "tune", 0, OPTION_TEXT, AT(file), "FILE", .max = PATH_MAX,
	  .help = "where the profile goes; what was there is replaced when all is measured" },
	{ "ranks", 'n', OPTION_U32, AT(rank_count), "N", .min = 1, .max = LAUNCH_RANKS_MAX,
	  .help = "start N ranks here (absent: join the launcher's job)" },
	{ "transport", 0, OPTION_CHOICE, AT(transport), "NAME", .forms = bench_transports,
	  .preset = "auto", .help = "%s" },
	{ "copy", 0, OPTION_BYTES, AT(copy_bytes), "SIZE", .min = 64, .preset = "8M",
	  .help = "bytes that memory is copied by; bandwidths are those of this size" },
	{ 0 },
};

int bench_tune(int argc, char **argv)
{
	static struct given given; /* Large. */
	const struct option_table tables[] = { { .rows = rows, .to = &given }, { 0 } };
	const struct options options = {
		.program = BENCH,
		.usage = "--tune FILE [options]",
		.about = "Measures links and memory, and writes a profile: for RUBATO_PROFILE and "
			 "rubato-sim --profile.\n",
		.tables = tables,
	};

	for (int i = 1; i + 1 < argc; i++) /* Which is no name of a file here. */
		if (strcmp(argv[i], "--tune") == 0 && strcmp(argv[i + 1], "--help") == 0)
			argv[i] = argv[i + 1];
	(void)options_read(&options, argc, argv);
	if (given.file[0] == '\0')
		option_fail(BENCH, "--tune takes a file");
	return bench_start(given.rank_count, false, tune_rank, &given);
}
