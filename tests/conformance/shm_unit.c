/* shm_unit.c -- parts of shm alone: its heap, ids, matching, and how it meets strangers. */
#include "conformance.h"

#include <dirent.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "tests/child_fork.h"
#include "tests/limit.h"
#include "transport/shm/shm.h"

const struct conform_backend conform_backend = {
	.name = "shm_unit",
	.ops = &rb_transport_shm,
	.run = conform_run_threads,
};

/* ---- Heap ---- */

#define HEAP_PAGES 200u
#define TAKEN_MAX 64u

/* Random takes and gives beside a map of pages: no overlap, and a refusal only when no gap fits. */
struct heap_twin {
	uint8_t used[HEAP_PAGES];
	struct {
		uint64_t page, page_count;
	} taken[TAKEN_MAX];
	uint32_t taken_count;
};

static uint64_t longest_gap(const struct heap_twin *t)
{
	uint64_t longest = 0, gap = 0;

	for (uint32_t i = 0; i < HEAP_PAGES; i++) {
		gap = t->used[i] ? 0 : gap + 1;
		longest = gap > longest ? gap : longest;
	}
	return longest;
}

static void heap_take(struct rb_shm_heap *heap, struct heap_twin *t, uint64_t size_bytes)
{
	uint64_t pages = size_bytes == 0 ? 1 : (size_bytes + RB_SHM_PAGE - 1) / RB_SHM_PAGE;
	uint64_t offset = UINT64_MAX;
	bool fits = pages <= longest_gap(t);
	rubato_status err = rb_shm_heap_take(heap, size_bytes, &offset);

	CONFORM(err == (fits ? RUBATO_OK : RUBATO_ERR_MEMORY), "%llu pages: %s",
		(unsigned long long)pages, rubato_status_name(err));
	if (!fits)
		return;
	CONFORM(offset % RB_SHM_PAGE == 0 && offset / RB_SHM_PAGE + pages <= HEAP_PAGES,
		"offset %llu", (unsigned long long)offset);
	for (uint64_t i = 0; i < pages; i++) {
		CONFORM(!t->used[offset / RB_SHM_PAGE + i], "page is taken twice");
		t->used[offset / RB_SHM_PAGE + i] = 1;
	}
	t->taken[t->taken_count].page = offset / RB_SHM_PAGE;
	t->taken[t->taken_count++].page_count = pages;
}

static void heap_give(struct rb_shm_heap *heap, struct heap_twin *t, uint32_t index)
{
	uint64_t page = t->taken[index].page, count = t->taken[index].page_count;

	CONFORM(rb_shm_heap_give(heap, page * RB_SHM_PAGE) == count * RB_SHM_PAGE, "give");
	CONFORM(rb_shm_heap_give(heap, page * RB_SHM_PAGE) == 0, "given twice");
	memset(t->used + page, 0, count);
	t->taken[index] = t->taken[--t->taken_count];
}

START_TEST(test_heap)
{
	struct rb_rng rng = { 17 };
	struct rb_shm_heap heap;
	struct heap_twin twin = { .taken_count = 0 };
	uint64_t offset = 1;

	ck_assert_int_eq(rb_shm_heap_init(&heap, HEAP_PAGES * RB_SHM_PAGE + 100), RUBATO_OK);
	for (int i = 0; i < 20000; i++) {
		if (twin.taken_count == TAKEN_MAX ||
		    (twin.taken_count > 0 && rb_rng_below(&rng, 2) == 0))
			heap_give(&heap, &twin, (uint32_t)rb_rng_below(&rng, twin.taken_count));
		else
			heap_take(&heap, &twin, rb_rng_below(&rng, 20 * RB_SHM_PAGE));
	}
	while (twin.taken_count > 0)
		heap_give(&heap, &twin, 0);
	ck_assert_int_eq(rb_shm_heap_take(&heap, HEAP_PAGES * RB_SHM_PAGE + 1, &offset),
			 RUBATO_ERR_MEMORY);
	ck_assert_int_eq(rb_shm_heap_take(&heap, UINT64_MAX, &offset), RUBATO_ERR_MEMORY);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "RUBATO_HEAP"));
	ck_assert_uint_eq(offset, 1);
	/* One piece again. */
	ck_assert_int_eq(rb_shm_heap_take(&heap, HEAP_PAGES * RB_SHM_PAGE, &offset), RUBATO_OK);
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(rb_shm_heap_take(&heap, 1, &offset), RUBATO_ERR_MEMORY);
	ck_assert_ptr_nonnull(strstr(rubato_error_text(), "RUBATO_HEAP"));
	rb_shm_heap_fini(&heap);
}
END_TEST

static uint64_t blocks_of(const struct rb_endpoint *ep)
{
	struct stat stat;

	ck_assert_int_eq(fstat(((const struct rb_shm_endpoint *)ep)->segment->memory, &stat), 0);
	return (uint64_t)stat.st_blocks * 512;
}

/* A dropped region's memory goes back to the machine. */
static void holes(struct conform_rank *r)
{
	struct rb_region *region = NULL;
	uint64_t before = blocks_of(r->ep);

	ck_assert_int_eq(r->ops->region_alloc(r->ep, 8u << 20, &region), RUBATO_OK);
	memset(region->base, 1, region->size_bytes);
	ck_assert_uint_ge(blocks_of(r->ep), before + (8u << 20));
	r->ops->region_drop(r->ep, region);
	ck_assert_uint_le(blocks_of(r->ep), before + (1u << 20));
	ck_assert_int_eq(r->ops->region_alloc(r->ep, 65u << 20, &region), RUBATO_ERR_MEMORY);
}

START_TEST(test_holes)
{
	conform_run(1, holes);
}
END_TEST

/* Without a size the heap is as large as the machine; where that is refused, smaller. */
static void default_heap(uint64_t share_bytes, uint64_t least_bytes, uint64_t most_bytes)
{
	struct rb_transport_options options = { .rank_count = 2 };
	struct rb_endpoint *ep = NULL;
	struct rb_region *region;
	uint64_t heap_bytes;

	ck_assert_int_eq(rb_transport_shm.open(&options, &ep), RUBATO_OK);
	ck_assert_int_eq(rb_shm_segment_open((struct rb_shm_endpoint *)ep, share_bytes), RUBATO_OK);
	heap_bytes = ((struct rb_shm_endpoint *)ep)->segment->layout.heap_bytes;
	ck_assert_uint_ge(heap_bytes, least_bytes);
	ck_assert_uint_le(heap_bytes, most_bytes);
	ck_assert_int_eq(ep->ops->region_alloc(ep, heap_bytes, &region), RUBATO_OK);
	((uint8_t *)region->base)[heap_bytes - 1] = 1;
	ck_assert_uint_le(blocks_of(ep), 1u << 20);
	rb_transport_shm.close(ep, false, rb_clock_ns());
}

START_TEST(test_default_heap)
{
	uint64_t machine_bytes =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct rlimit limit = { 100u << 20, 100u << 20 };

	default_heap(UINT64_MAX, machine_bytes / 8, machine_bytes + (2u << 20));
	default_heap(200u << 20, 190u << 20, 200u << 20);
	default_heap(1000, 2u << 20, 2u << 20); /* Too little for anything: what it takes. */
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	default_heap(UINT64_MAX, 20u << 20, 100u << 20);
}
END_TEST

/* ---- Ids ---- */

START_TEST(test_ids)
{
	enum { COUNT = 1000 };
	struct rb_shm_ids ids = { 0 };
	static int objects[COUNT];
	uint64_t all[COUNT];

	ck_assert_ptr_null(rb_shm_id_find(&ids, 0));
	for (int i = 0; i < COUNT; i++)
		all[i] = rb_shm_id_take(&ids, &objects[i]);
	for (int i = 0; i < COUNT; i++)
		CONFORM(rb_shm_id_find(&ids, all[i]) == &objects[i], "id %d", i);
	for (int i = 0; i < COUNT; i += 2) {
		rb_shm_id_give(&ids, all[i]);
		CONFORM(rb_shm_id_find(&ids, all[i]) == NULL, "id %d is stale", i);
	}
	for (int i = 0; i < COUNT; i += 2) {
		uint64_t stale = all[i];

		all[i] = rb_shm_id_take(&ids, &objects[i]);
		CONFORM(rb_shm_id_find(&ids, all[i]) == &objects[i], "id %d again", i);
		CONFORM(all[i] != stale, "an id is used again");
	}
	ck_assert_uint_le(ids.slot_count, 1024);
	ck_assert_ptr_null(rb_shm_id_find(&ids, RB_SHM_ID_NONE));
	rb_shm_ids_fini(&ids);
}
END_TEST

/* ---- Matching ---- */

/* Random posts and arrivals of 200 tags: each tag's two sides meet, once. */
START_TEST(test_match)
{
	enum { TAGS = 200, STEPS = 20000 };
	static struct rb_match_peer peer;
	static struct rb_request requests[TAGS];
	static struct rb_arrival arrivals[TAGS];
	uint8_t posted[TAGS] = { 0 }, arrived[TAGS] = { 0 };
	struct rb_rng rng = { 5 };
	uint32_t met = 0, left = 0;

	for (int i = 0; i < STEPS; i++) {
		uint64_t k = rb_rng_below(&rng, TAGS), tag = k << 17;
		struct rb_tag name = { tag % 3, tag / 3 };
		uint64_t draw = rb_rng_below(&rng, 8);

		if (posted[k] && draw == 0) {
			CONFORM(rb_match_remove_receive(&peer, &requests[k]), "not there");
			CONFORM(!rb_match_remove_receive(&peer, &requests[k]), "still there");
			posted[k] = 0;
		} else if (draw % 2 == 0 && !posted[k]) {
			struct rb_arrival *a = rb_match_arrival(&peer, name);

			CONFORM((a == &arrivals[k]) == arrived[k] && (a != NULL) == arrived[k],
				"the wrong arrival");
			met += arrived[k];
			requests[k].tag = name;
			if (!arrived[k])
				rb_match_add_receive(&peer, &requests[k]);
			posted[k] = !arrived[k];
			arrived[k] = 0;
		} else if (draw % 2 == 1 && !arrived[k]) {
			struct rb_request *q = rb_match_receive(&peer, name);

			CONFORM((q == &requests[k]) == posted[k] && (q != NULL) == posted[k],
				"the wrong receive");
			met += posted[k];
			arrivals[k].tag = name;
			if (!posted[k])
				rb_match_add_arrival(&peer, &arrivals[k]);
			arrived[k] = !posted[k];
			posted[k] = 0;
		}
	}
	ck_assert_uint_gt(met, 1000);
	for (int i = 0; i < TAGS; i++)
		left += posted[i] + arrived[i];
	while (rb_match_any_receive(&peer) != NULL || rb_match_any_arrival(&peer) != NULL)
		left--;
	ck_assert_uint_eq(left, 0);
}
END_TEST

/* ---- Strangers ---- */

static struct rb_endpoint *endpoint_of(uint32_t rank, uint32_t rank_count, uint8_t job)
{
	struct rb_transport_options options = {
		.rank = rank, .rank_count = rank_count, .heap_bytes = 1u << 20, .job = { job }
	};
	struct rb_endpoint *ep = NULL;

	ck_assert_int_eq(rb_transport_shm.open(&options, &ep), RUBATO_OK);
	return ep;
}

struct caller {
	struct rb_endpoint *ep;
	const void *addresses[2];
	size_t address_bytes[2];
	uint64_t patience_ns;
	rubato_status status;
	char text[200];
};

static void call(void *arg, uint32_t rank)
{
	struct caller *c = (struct caller *)arg + rank;
	static const bool use[2] = { true, true };

	c->status = rb_transport_shm.connect(c->ep, c->addresses, c->address_bytes, use,
					     rb_clock_ns() + c->patience_ns);
	(void)snprintf(c->text, sizeof(c->text), "%s", rubato_error_text());
}

static void callers_open(struct caller *callers, uint8_t addresses[2][RB_ADDRESS_BYTES_MAX],
			 const uint8_t jobs[2], uint64_t patience_ns)
{
	for (uint32_t i = 0; i < 2; i++) {
		size_t size_bytes = RB_ADDRESS_BYTES_MAX;

		callers[i].ep = endpoint_of(i, 2, jobs[i]);
		ck_assert_int_eq(rb_transport_shm.address(callers[i].ep, addresses[i], &size_bytes),
				 RUBATO_OK);
		for (uint32_t k = 0; k < 2; k++) {
			callers[k].addresses[i] = addresses[i];
			callers[k].address_bytes[i] = size_bytes;
		}
		callers[i].patience_ns = patience_ns;
	}
}

static void callers_close(struct caller *callers)
{
	for (uint32_t i = 0; i < 2; i++)
		rb_transport_shm.close(callers[i].ep, false, rb_clock_ns());
}

START_TEST(test_alone)
{
	static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
	struct caller callers[2] = { { 0 } };

	callers_open(callers, addresses, (const uint8_t[2]) { 1, 1 }, 30000000);
	call(callers, (uint32_t)_i);
	ck_assert_int_eq(callers[_i].status, RUBATO_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(callers[_i].text, _i == 0 ? "rank 1" : "rank 0"));
	callers_close(callers);
}
END_TEST

START_TEST(test_other_job)
{
	static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
	struct caller callers[2] = { { 0 } };

	callers_open(callers, addresses, (const uint8_t[2]) { 1, 2 }, 200000000);
	callers[0].patience_ns = 30000000000; /* It is told, however late rank 1 begins. */
	ck_assert(conform_run_threads(NULL, 2, call, callers));
	ck_assert_int_eq(callers[0].status, RUBATO_ERR_PEER);    /* Rank 1 hung up on it. */
	ck_assert_int_eq(callers[1].status, RUBATO_ERR_TIMEOUT); /* And went on waiting. */
	callers_close(callers);
}
END_TEST

static socklen_t listener_name(const struct caller *callers, uint32_t rank, struct sockaddr_un *to)
{
	const uint8_t *name =
		(const uint8_t *)callers[0].addresses[rank] + callers[0].address_bytes[rank] - 16;
	int at;

	*to = (struct sockaddr_un) { .sun_family = AF_UNIX };
	at = snprintf(to->sun_path + 1, sizeof(to->sun_path) - 1, "rubato-");
	for (int i = 0; i < 16; i++)
		at += snprintf(to->sun_path + 1 + at, 3, "%02x", name[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at);
}

/* Somebody who found the name says nonsense; the ranks meet all the same. */
START_TEST(test_stranger)
{
	static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
	struct caller callers[2] = { { 0 } };
	struct sockaddr_un to;
	socklen_t to_bytes;
	int socks[3];

	callers_open(callers, addresses, (const uint8_t[2]) { 1, 1 }, CONFORM_DEADLINE_NS);
	to_bytes = listener_name(callers, 1, &to);
	for (int i = 0; i < 3; i++) {
		char junk[200] = "nonsense";

		socks[i] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		ck_assert_int_eq(connect(socks[i], (const struct sockaddr *)&to, to_bytes), 0);
		if (i > 0) /* The first one keeps silent. */
			ck_assert_int_gt(send(socks[i], junk, i == 1 ? 3 : sizeof(junk), 0), 0);
	}
	ck_assert(conform_run_threads(NULL, 2, call, callers));
	ck_assert_int_eq(callers[0].status, RUBATO_OK);
	ck_assert_int_eq(callers[1].status, RUBATO_OK);
	for (int i = 0; i < 3; i++)
		(void)close(socks[i]);
	callers_close(callers);
}
END_TEST

/* One call with `count` descriptors and a message too short to be a HELLO; none: silence. */
static bool crowd_call(const struct sockaddr_un *to, socklen_t to_bytes, uint32_t count)
{
	union {
		struct cmsghdr head;
		uint8_t bytes[CMSG_SPACE(3 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec part = { "stray", 5 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
	int ours[3] = { 0, 1, 2 };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	if (sock < 0 || connect(sock, (const struct sockaddr *)to, to_bytes) != 0)
		return false;
	if (count == 0)
		return true;
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.head), ours, count * sizeof(int));
	return sendmsg(sock, &message, MSG_NOSIGNAL) == 5;
}

/* Calls from a process of its own, of this user or another one; told, they are all there. */
static pid_t crowd_open(const struct sockaddr_un *to, socklen_t to_bytes, bool foreign,
			uint32_t count, int *told)
{
	int ends[2];
	pid_t child;
	char done;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		bool good = !foreign || (setgid(65534) == 0 && setuid(65534) == 0);

		for (uint32_t i = 0; good && i < count; i++)
			good = crowd_call(to, to_bytes, i % 4);
		(void)!write(ends[1], good ? "y" : "n", 1);
		(void)pause();
		_exit(0);
	}
	(void)close(ends[1]);
	ck_assert_int_eq(read(ends[0], &done, 1), 1);
	ck_assert_int_eq(done, 'y');
	*told = ends[0];
	return child;
}

static uint32_t open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t count = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder) != NULL)
		count++;
	(void)closedir(folder);
	return count;
}

/* Some, or many, who call and say nothing, or send descriptors that nobody wants: the ranks meet
 * all the same, and keep none of them. Of another user they do not even take a place. */
START_TEST(test_crowd)
{
	static uint8_t addresses[2][RB_ADDRESS_BYTES_MAX];
	struct caller callers[2] = { { 0 } };
	bool foreign = _i % 2 == 1;
	uint32_t descriptors[2];
	struct sockaddr_un to;
	socklen_t to_bytes;
	pid_t child = -1;
	int told = -1;

	if (foreign && geteuid() != 0)
		return; /* Nobody else can be had. */
	for (uint32_t crowded = 0; crowded < 2; crowded++) {
		callers_open(callers, addresses, (const uint8_t[2]) { 1, 1 }, 10000000000u);
		to_bytes = listener_name(callers, 1, &to);
		if (crowded == 1)
			child = crowd_open(&to, to_bytes, foreign, _i < 2 ? 20 : 300, &told);
		ck_assert(conform_run_threads(NULL, 2, call, callers));
		ck_assert_msg(callers[0].status == RUBATO_OK, "%s", callers[0].text);
		ck_assert_msg(callers[1].status == RUBATO_OK, "%s", callers[1].text);
		descriptors[crowded] = open_descriptors();
		callers_close(callers);
	}
	(void)close(told);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_uint_eq(descriptors[1], descriptors[0] + 1); /* The pipe. */
}
END_TEST

START_TEST(test_reachable)
{
	static uint8_t address[RB_ADDRESS_BYTES_MAX];
	struct rb_endpoint *ep = endpoint_of(0, 1, 1);
	size_t size_bytes = RB_ADDRESS_BYTES_MAX;

	ck_assert_int_eq(ep->ops->address(ep, address, &size_bytes), RUBATO_OK);
	ck_assert(ep->ops->reachable(ep, address, size_bytes));
	ck_assert(!ep->ops->reachable(ep, address, size_bytes - 1));
	ck_assert(!ep->ops->reachable(ep, address, 0));
	for (size_t i = 0; i < size_bytes - 36; i++) { /* All but room, process and name. */
		address[i] ^= 1;
		CONFORM(!ep->ops->reachable(ep, address, size_bytes), "byte %zu", i);
		address[i] ^= 1;
	}
	ep->ops->close(ep, false, rb_clock_ns());
	rb_transport_shm.close(NULL, false, rb_clock_ns());
}
END_TEST

/* ---- Nonsense in a ring ---- */

/* A valid sequence number, and random bits else: the receiver may lose the peer, no more. */
static void scribble(struct conform_rank *r)
{
	struct rb_shm_outbound *out = &((struct rb_shm_endpoint *)r->ep)->peers[0].out;

	for (uint32_t i = 0; i < 40; i++) {
		struct rb_shm_cell *cell = &out->ring->cells[i % RB_SHM_CELLS];
		uint64_t kind = rb_rng_below(&r->rng, 15);
		uint64_t size = rb_rng_below(&r->rng, kind == RB_SHM_EAGER ? 600 : 24);

		cell->tag = (struct rb_tag) { 0, rb_rng_below(&r->rng, 4) };
		cell->signature = conform_signature(rb_rng_below(&r->rng, 200));
		for (int k = 0; k < 3; k++)
			cell->arg[k] = rb_rng_next(&r->rng) >> rb_rng_below(&r->rng, 64);
		atomic_store(&cell->word, (uint64_t)(i + 1) | (kind << 32) | (size << 48));
	}
}

static uint64_t nonsense_seed;
static _Atomic uint32_t nonsense_noticed; /* Runs in which rank 1 was caught. */

static void nonsense(struct conform_rank *r)
{
	struct conform_request recvs[4], sends[4];
	struct rb_failure failure;
	uint8_t *bytes = calloc(1, 200000);

	CONFORM(bytes != NULL, "memory");
	r->rng.state = rb_mix(nonsense_seed);
	if (r->rank == 0) {
		for (uint64_t i = 0; i < 4; i++) {
			conform_recv(r, &recvs[i], 1, i, bytes, 100 * i);
			conform_send(r, &sends[i], 1, i, bytes, 50000 * i);
		}
	}
	conform_barrier(r, "posted requests");
	if (r->rank == 1)
		scribble(r);
	conform_barrier(r, "scribbled cells");
	if (r->rank == 0) {
		for (int i = 0; i < 50; i++)
			(void)conform_poll(r);
		if (r->ops->failure(r->ep, &failure))
			(void)atomic_fetch_add(&nonsense_noticed, 1);
		for (uint64_t i = 0; i < 4; i++) {
			if (recvs[i].request.state == RB_REQUEST_PENDING)
				conform_cancel(r, &recvs[i]);
			if (sends[i].request.state == RB_REQUEST_PENDING)
				conform_cancel(r, &sends[i]);
		}
	}
	r->ops->close(r->ep, true, r->ops->now_ns(r->ep));
	r->closed = true;
	free(bytes);
}

START_TEST(test_nonsense)
{
	struct seeds seeds = seeds_from(__func__, 0, 60);

	while (seeds_next(&seeds, &nonsense_seed))
		conform_run(2, nonsense);
	if (seeds_chosen())
		return;
	ck_assert_uint_gt(atomic_load(&nonsense_noticed), 30);
}
END_TEST

/* ---- A message that nobody waits for stays in its cell while a poll has something to tell ---- */

static void cell_fill(struct rb_shm_peer *peer, uint32_t position, enum rb_shm_cell_kind kind,
		      uint64_t tag)
{
	struct rb_shm_cell *cell = &peer->in.ring->cells[position % RB_SHM_CELLS];

	cell->tag = (struct rb_tag) { 0, tag };
	cell->signature = (struct rb_signature) { 0 };
	cell->arg[0] = 8; /* Of a bulk buffer, the first. */
	atomic_store(&cell->word, (uint64_t)(position + 1) | (uint64_t)kind << 32 |
					  (kind == RB_SHM_EAGER ? UINT64_C(8) << 48 : 0));
}

static struct rb_request later_receive(uint32_t peer, uint64_t tag)
{
	static uint64_t bytes;

	return (struct rb_request) {
		.peer = peer, .tag = { 0, tag }, .buffer = &bytes, .size_bytes = 8
	};
}

static void later_end(struct rb_shm_peer *peer, uint32_t aside)
{
	struct rb_arrival *arrival;

	ck_assert_uint_eq(peer->match.arrival_count, aside);
	while ((arrival = rb_match_any_arrival(&peer->match)) != NULL)
		free(arrival);
	peer->in.held = 0;
}

/* Of `count` messages the first is waited for. */
static void later_run(struct rb_shm_endpoint *ep, enum rb_shm_cell_kind kind, uint32_t count)
{
	struct rb_shm_peer *peer = &ep->peers[1];
	struct rb_request q = later_receive(1, 0);

	for (uint32_t i = 0; i < count; i++)
		cell_fill(peer, peer->in.position + i, kind, i);
	rb_transport_shm.recv(&ep->base, &q);
	ck_assert_ptr_eq(rb_transport_shm.poll(&ep->base), &q);
	ck_assert_int_eq(q.status, RUBATO_OK);
	ck_assert_uint_eq(peer->match.arrival_count, 0);
	ck_assert_ptr_null(rb_transport_shm.poll(&ep->base));
	later_end(peer, count - 1);
}

/* Each poll completes something of rank 1, for as long as one likes: what rank 2 has put behind a
 * message that nobody waits for comes all the same. */
static void later_once(struct rb_shm_endpoint *ep, enum rb_shm_cell_kind kind)
{
	struct rb_shm_peer *first = &ep->peers[1], *second = &ep->peers[2];
	struct rb_request waited = later_receive(2, 6), q;

	cell_fill(second, second->in.position, kind, 5);
	cell_fill(second, second->in.position + 1, kind, 6);
	rb_transport_shm.recv(&ep->base, &waited);
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(waited.state, RB_REQUEST_PENDING);
		ck_assert_uint_eq(second->match.arrival_count, 0);
		q = later_receive(1, 0);
		cell_fill(first, first->in.position, RB_SHM_EAGER, 0);
		rb_transport_shm.recv(&ep->base, &q);
		ck_assert_ptr_nonnull(rb_transport_shm.poll(&ep->base));
		ck_assert_int_ne(q.state, RB_REQUEST_PENDING);
	}
	ck_assert_int_ne(waited.state, RB_REQUEST_PENDING);
	later_end(second, 1);
}

START_TEST(test_later)
{
	static const enum rb_shm_cell_kind kinds[] = { RB_SHM_EAGER, RB_SHM_BULK };
	struct rb_transport_options options = { .rank_count = 3, .heap_bytes = 1u << 20 };
	struct rb_shm_segment *theirs = NULL;
	struct rb_endpoint *base = NULL;
	struct rb_shm_endpoint *ep;

	ck_assert_int_eq(rb_transport_shm.open(&options, &base), RUBATO_OK);
	ep = (struct rb_shm_endpoint *)base;
	ck_assert_int_eq(rb_shm_segment_open(ep, UINT64_MAX), RUBATO_OK);
	for (uint32_t r = 1; r < 3; r++) {
		ck_assert_int_eq(rb_shm_segment_create(3, 1u << 20, UINT64_MAX, &theirs),
				 RUBATO_OK);
		rb_shm_wire(ep, &ep->peers[r], theirs);
	}
	for (uint32_t k = 0; k < 2; k++) {
		later_run(ep, kinds[k], 2);
		later_run(ep, kinds[k], 10);
		later_once(ep, kinds[k]);
	}
	rb_transport_shm.close(base, true, 0);
}
END_TEST

/* ---- Cells that change while they are read ---- */

#ifndef __SANITIZE_THREAD__ /* It is the race that is tested. */
#define FLIPS 1000000

struct flipper {
	struct rb_shm_cell *cells;
	_Atomic bool over;
};

static void *flip(void *arg)
{
	struct flipper *f = arg;

	for (uint64_t i = 0; !atomic_load(&f->over); i++) {
		for (uint32_t c = 0; c < RB_SHM_CELLS; c++) {
			volatile struct rb_shm_cell *cell = &f->cells[c];

			cell->tag.step = 1 + i % 2;
			cell->arg[0] = i % 4 < 2 ? 8 : UINT64_MAX - 31;
		}
	}
	return NULL;
}

/* Cells say tag 1 or 2, and 8 bytes or far too many, in turn. Receives of 2 wait all the while, so
 * no message of 2 may be put aside. Returns how often one was. */
static uint32_t flips_run(struct rb_shm_endpoint *ep)
{
	struct rb_shm_peer *peer = &ep->peers[1];
	struct rb_arrival *arrival;
	uint32_t beside = 0, met = 0, lost = 0;

	for (uint32_t i = 0; i < FLIPS; i++) {
		struct rb_shm_cell *cell = &peer->in.ring->cells[i % RB_SHM_CELLS];
		uint64_t bytes = 0;
		struct rb_request q = {
			.peer = 1, .tag = { 0, 2 }, .buffer = &bytes, .size_bytes = 8
		};

		rb_transport_shm.recv(&ep->base, &q);
		cell->signature = (struct rb_signature) { 0 };
		atomic_store(&cell->word, (uint64_t)(i + 1) | (uint64_t)RB_SHM_BULK << 32);
		rb_shm_drain(ep, peer, false);
		ep->done = (struct rb_shm_queue) { NULL, NULL };
		met += q.state == RB_REQUEST_DONE;
		lost += peer->doom != RUBATO_OK;
		peer->doom = RUBATO_OK; /* Another life: there is much to try. */
		peer->in.held = 0;
		if (q.state == RB_REQUEST_PENDING) {
			while ((arrival = rb_match_arrival(&peer->match, q.tag)) != NULL) {
				beside++;
				free(arrival);
			}
			rb_transport_shm.cancel(&ep->base, &q);
		}
		while ((arrival = rb_match_any_arrival(&peer->match)) != NULL)
			free(arrival);
		ck_assert_uint_eq(peer->in.position, i + 1);
	}
	ck_assert_uint_gt(met, 0);
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_lt(met + lost, FLIPS);
	return beside;
}

START_TEST(test_flips)
{
	struct rb_transport_options options = { .rank_count = 2, .heap_bytes = 1u << 20 };
	struct rb_endpoint *base = NULL;
	struct rb_shm_segment *theirs = NULL;
	struct flipper f = { .over = false };
	struct rb_shm_endpoint *ep;
	struct rb_thread thread;

	ck_assert_int_eq(rb_transport_shm.open(&options, &base), RUBATO_OK);
	ep = (struct rb_shm_endpoint *)base;
	ck_assert_int_eq(rb_shm_segment_open(ep, UINT64_MAX), RUBATO_OK);
	ck_assert_int_eq(rb_shm_segment_create(2, 1u << 20, UINT64_MAX, &theirs), RUBATO_OK);
	rb_shm_wire(ep, &ep->peers[1], theirs);
	f.cells = ep->peers[1].in.ring->cells;
	ck_assert_int_eq(rb_thread_start(&thread, flip, &f), RUBATO_OK);
	ck_assert_uint_eq(flips_run(ep), 0);
	atomic_store(&f.over, true);
	rb_thread_join(&thread);
	rb_transport_shm.close(base, true, 0);
}
END_TEST
#endif

/* ---- Doors ---- */

#define DOOR_FORKS 100u

struct doorman {
	struct rb_shm_door door;
	uint8_t name[16];
	_Atomic bool over;
	_Atomic uint32_t openings;
	struct rb_thread thread;
};

static void *doorman_main(void *arg)
{
	struct doorman *d = arg;

	while (!atomic_load(&d->over)) {
		rb_shm_door_open(&d->door, d->name);
		rb_shm_door_close(&d->door);
		atomic_fetch_add(&d->openings, 1);
	}
	return NULL;
}

/* A child has none of the threads that are at the table when it is forked. */
START_TEST(test_doors_of_a_child)
{
	static struct doorman doormen[2];
	struct rb_shm_door door = { .open = false };

	ck_assert_int_eq(rb_forks_count(), RUBATO_OK);
	for (uint32_t i = 0; i < 2; i++) {
		doormen[i].name[0] = (uint8_t)i;
		ck_assert_int_eq(rb_thread_start(&doormen[i].thread, doorman_main, &doormen[i]),
				 RUBATO_OK);
	}
	for (uint32_t i = 0; i < DOOR_FORKS; i++) {
		uint32_t seen = atomic_load(&doormen[i % 2].openings);
		int status = -1;
		pid_t child;

		while (atomic_load(&doormen[i % 2].openings) == seen)
			rb_yield();
		child = child_fork();
		if (child == 0) {
			limit_start(30);
			rb_shm_door_open(&door, (const uint8_t[16]) { 7 });
			rb_shm_door_close(&door);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(status == 0, "child %u ended with %x", i, (unsigned)status);
	}
	for (uint32_t i = 0; i < 2; i++) {
		atomic_store(&doormen[i].over, true);
		rb_thread_join(&doormen[i].thread);
	}
}
END_TEST

/* ---- Which way long messages come ---- */

START_TEST(test_kernel_judged)
{
	ck_assert_int_eq(rb_shm_kernel_judge(3999, 1000), RB_SHM_KERNEL_FAST);
	ck_assert_int_eq(rb_shm_kernel_judge(4000, 1000), RB_SHM_KERNEL_SLOW);
	ck_assert_int_eq(rb_shm_kernel_judge(7999, 1000), RB_SHM_KERNEL_SLOW);
	ck_assert_int_eq(rb_shm_kernel_judge(8000, 1000), RB_SHM_KERNEL_HOPELESS);
}
END_TEST

/* Of `count` receives of messages of 1 MiB, how many ask for them by a joint. None is met. */
static uint32_t attached(enum rb_shm_kernel kernel, uint32_t count)
{
	struct rb_transport_options options = { .rank_count = 2, .heap_bytes = 1u << 20 };
	struct rb_shm_segment *theirs = NULL;
	struct rb_endpoint *base = NULL;
	struct rb_request q = { .peer = 1, .kind = RB_REQUEST_RECV, .size_bytes = 1u << 20 };
	struct rb_shm_endpoint *ep;
	struct rb_shm_peer *peer;
	uint32_t asked = 0;
	uint8_t byte;

	q.buffer = &byte; /* Nothing comes. */
	ck_assert_int_eq(rb_transport_shm.open(&options, &base), RUBATO_OK);
	ep = (struct rb_shm_endpoint *)base;
	ck_assert_int_eq(rb_shm_segment_open(ep, UINT64_MAX), RUBATO_OK);
	ck_assert_int_eq(rb_shm_segment_create(2, 1u << 20, UINT64_MAX, &theirs), RUBATO_OK);
	peer = &ep->peers[1];
	rb_shm_wire(ep, peer, theirs);
	peer->attach = RB_SHM_ATTACH_PROCESS;
	ep->kernel = kernel;
	for (uint32_t i = 0; i < RB_SHM_CLASSES; i++) /* As if it were told what each way takes. */
		ep->ways[i].each[RB_SHM_STREAMED] = ep->ways[i].each[RB_SHM_ATTACHED] = 1000;
	for (uint32_t i = 0; i < count; i++) {
		struct rb_shm_ways *ways = &ep->ways[3];

		asked += rb_shm_join(ep, peer, &q, 1) != 0;
		rb_shm_part(ep, peer, &q);
		ways->each[ways->way] = 1000;
	}
	rb_transport_shm.close(base, true, 0);
	return asked;
}

/* Where it is fast most come so, where it is slow those of trials, where it is hopeless none. */
START_TEST(test_kernel_tried)
{
	const uint32_t many = 2000;
	uint32_t fast = attached(RB_SHM_KERNEL_FAST, many);
	uint32_t slow = attached(RB_SHM_KERNEL_SLOW, many);

	ck_assert_msg(fast > many / 2 && fast < many, "fast: %u of %u", fast, many);
	ck_assert_msg(slow > 0 && slow < many / 2, "slow: %u of %u", slow, many);
	ck_assert_uint_eq(attached(RB_SHM_KERNEL_HOPELESS, many), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shm_unit");
	TCase *t = tcase_create("unit");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_heap);
	tcase_add_test(t, test_holes);
	tcase_add_test(t, test_default_heap);
	tcase_add_test(t, test_ids);
	tcase_add_test(t, test_match);
	tcase_add_loop_test(t, test_alone, 0, 2);
	tcase_add_test(t, test_other_job);
	tcase_add_test(t, test_stranger);
	tcase_add_loop_test(t, test_crowd, 0, 4);
	tcase_add_test(t, test_reachable);
	tcase_add_test(t, test_nonsense);
	tcase_add_test(t, test_later);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(t, test_flips);
#endif
	tcase_add_test(t, test_doors_of_a_child);
	tcase_add_test(t, test_kernel_judged);
	tcase_add_test(t, test_kernel_tried);
	suite_add_tcase(suite, t);
	return check_suite(suite);
}
