/*
 * test_verbs_cache.c -- registrations of plain memory that are kept: when one is used again, and
 * that none is whose memory has changed in any way.
 *
 * The mock counts registrations. It writes by address, as no device does: data that is right shows
 * nothing of a registration that is stale, so each case asks whether there was a new one; and one
 * that is blind to changes is to fail it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sync.h"
#include "tests/check_main.h"
#include "tests/length.h"
#include "tests/runtime/verbs/ends.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs_watch.h"

#define BYTES (1u << 16) /* Of a buffer. */
#define BUFFERS 16u
/* Where buffers are: which of them share a place in the tables is the same in each run. */
#define PLACE ((uint8_t *)0x7eb000000000)
#define ALL (BUFFERS * BYTES)

static bool blind; /* What has changed is not seen. */
static uint32_t fresh;

bool __real_rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t range);
bool __wrap_rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t range);
bool __wrap_rb_verbs_watch_same(struct rb_verbs_watch *watch, uint32_t range)
{
	return blind || __real_rb_verbs_watch_same(watch, range);
}

uint32_t __real_rb_verbs_watch_changes(struct rb_verbs_watch *watch);
uint32_t __wrap_rb_verbs_watch_changes(struct rb_verbs_watch *watch);
uint32_t __wrap_rb_verbs_watch_changes(struct rb_verbs_watch *watch)
{
	return blind ? 0 : __real_rb_verbs_watch_changes(watch);
}

/* ---- Buffers and messages ---- */

static void map(void *at, size_t bytes, int flags)
{
	ck_assert_msg(mmap(at, bytes, PROT_READ | PROT_WRITE,
			   MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | flags, -1, 0) == at,
		      "no memory at %p: %s", at, strerror(errno));
}

static uint8_t *buffer(uint32_t index)
{
	return PLACE + (size_t)index * BYTES;
}

static void open_ends(uint32_t rails, size_t bytes)
{
	struct rlimit locked;

	/* The cache leaves half of what may be locked. */
	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &locked), 0);
	locked.rlim_cur = locked.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &locked), 0);
	ck_assert(locked.rlim_max / 2 >= bytes);
	ends.cache_bytes = bytes;
	ends_open(rails, 0);
}

static uint64_t made(void)
{
	return mock_call_count("ibv_reg_mr");
}

static uint64_t ended(void)
{
	return mock_call_count("ibv_dereg_mr");
}

static void carry(struct rb_request *send, struct rb_request *receive, const uint8_t *from,
		  bool receive_first)
{
	uint32_t sender = receive->peer;

	if (receive_first) {
		rb_transport_verbs.recv(ends.ep[1 - sender], receive);
		move();
	}
	rb_transport_verbs.send(ends.ep[sender], send);
	for (uint32_t i = 0; i < 50 && !receive_first; i++)
		move();
	if (!receive_first)
		rb_transport_verbs.recv(ends.ep[1 - sender], receive);
	await(is_done, send, "a send");
	await(is_done, receive, "a receive");
	ck_assert_int_eq(send->status, RUBATO_OK);
	ck_assert_int_eq(receive->status, RUBATO_OK);
	ck_assert_int_eq(memcmp(from, receive->buffer, send->size_bytes), 0);
}

/* How many registrations it took. */
static uint64_t exchange_by(uint32_t sender, uint8_t *from, uint8_t *to, size_t bytes,
			    bool receive_first)
{
	struct rb_request send, receive;
	uint64_t before = made();

	ends.call++;
	fresh++;
	for (size_t i = 0; i < bytes; i++)
		from[i] = (uint8_t)(i * 31 + fresh);
	request_set(&send, sender, from, bytes);
	request_set(&receive, 1 - sender, to, bytes);
	carry(&send, &receive, from, receive_first);
	return made() - before;
}

static uint64_t exchange(uint8_t *from, uint8_t *to, size_t bytes, bool receive_first)
{
	return exchange_by(0, from, to, bytes, receive_first);
}

/* ---- Hits ---- */

/* Over one rail and two, by each way that a message goes. */
START_TEST(what_is_used_again_stays_registered)
{
	uint32_t rails = (uint32_t)_i % 2 + 1;
	bool first = _i < 2;
	uint64_t ends_before;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(rails, ALL * 4);
	ends_before = ended();
	ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES, first), 2 * rails);
	ck_assert_uint_eq(ended() - ends_before, 2 * rails);
	ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES, first), 2 * rails);
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES - i, first), 0);
	ck_assert_uint_eq(ended() - ends_before, 2 * rails);
	/* Who is written to needs more rights than who is read from; then it has both. */
	ck_assert_uint_eq(exchange_by(1, buffer(1), buffer(0), BYTES, first), rails);
	ck_assert_uint_eq(ended() - ends_before, 3 * rails);
	ck_assert_uint_eq(exchange_by(1, buffer(1), buffer(0), BYTES, first), 0);
	ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES, first), 0);
	/* More of it is another registration, and the first one ends. */
	ck_assert_uint_eq(exchange(buffer(0), buffer(2), BYTES + 1, first), 2 * rails);
	ck_assert_uint_eq(ended() - ends_before, 5 * rails);
	ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES, first), 0);
	all_rests("after messages of kept memory");
	ends_close();
}
END_TEST

/* ---- Changes ---- */

static void unmapped(uint8_t *at)
{
	ck_assert_int_eq(munmap(at, BYTES), 0);
	map(at, BYTES, MAP_PRIVATE);
}

static void mapped_over(uint8_t *at)
{
	ck_assert(mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_FIXED | MAP_PRIVATE,
		       -1, 0) == at);
}

static void discarded(uint8_t *at)
{
	ck_assert_int_eq(madvise(at, BYTES, MADV_DONTNEED), 0);
}

static void freed(uint8_t *at)
{
	ck_assert_int_eq(madvise(at, BYTES, MADV_FREE), 0);
}

static void last_page_discarded(uint8_t *at)
{
	ck_assert_int_eq(madvise(at + BYTES - 4096, 4096, MADV_DONTNEED), 0);
}

static void first_page_unmapped(uint8_t *at)
{
	ck_assert_int_eq(munmap(at, 4096), 0);
	map(at, 4096, MAP_PRIVATE);
}

static void moved_away(uint8_t *at)
{
	uint8_t *to = mremap(at, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, PLACE + 2 * ALL);

	ck_assert(to == PLACE + 2 * ALL);
	map(at, BYTES, MAP_PRIVATE);
	ck_assert_int_eq(munmap(to, BYTES), 0);
}

static void moved_onto(uint8_t *at)
{
	uint8_t *other = PLACE + 2 * ALL;

	map(other, BYTES, MAP_PRIVATE);
	memset(other, 7, BYTES);
	ck_assert(mremap(other, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
}

static void shortened(uint8_t *at)
{
	ck_assert(mremap(at, BYTES, BYTES / 2, 0) == at);
	map(at + BYTES / 2, BYTES / 2, MAP_PRIVATE);
}

/* What lies beside it is none of its business. */
static void neighbour_unmapped(uint8_t *at)
{
	ck_assert_int_eq(munmap(at + BYTES, 4096), 0);
	map(at + BYTES, 4096, MAP_PRIVATE);
}

static void protected_for_a_while(uint8_t *at)
{
	ck_assert_int_eq(mprotect(at, BYTES, PROT_READ), 0);
	ck_assert_int_eq(mprotect(at, BYTES, PROT_READ | PROT_WRITE), 0);
}

static const struct {
	void (*change)(uint8_t *at);
	bool same;
} changes[] = {
	{ unmapped, false },
	{ mapped_over, false },
	{ discarded, false },
	{ freed, false },
	{ last_page_discarded, false },
	{ first_page_unmapped, false },
	{ moved_away, false },
	{ moved_onto, false },
	{ shortened, false },
	{ neighbour_unmapped, true },
	{ protected_for_a_while, true },
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static bool both_have_ended(void *before)
{
	return ended() >= *(uint64_t *)before + 2;
}

/* A kept source, or target, changes. Whether that is noticed. */
static bool is_noticed(uint32_t which, bool source)
{
	uint8_t *own = buffer(4), *other = buffer(8), *from = source ? own : other,
		*to = source ? other : own;
	uint64_t ends_before;
	bool good;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, ALL * 4);
	for (uint32_t i = 0; i < 2; i++)
		(void)exchange(from, to, BYTES, true);
	ck_assert_uint_eq(exchange(from, to, BYTES, true), 0);
	ends_before = ended();
	changes[which].change(own);
	if (changes[which].same)
		good = exchange(from, to, BYTES, true) == 0 && ended() == ends_before;
	else
		good = exchange(from, to, BYTES, true) == 1;
	/* The old one ends, and that of the message: the former when its event has been read. */
	if (!changes[which].same && !blind)
		await(both_have_ended, &ends_before, "what changed is let go");
	good = good && (changes[which].same || ended() == ends_before + 2);
	/* It is passed over for a while, and then kept again. */
	for (uint32_t i = 0; i < 20; i++)
		(void)exchange(from, to, BYTES, true);
	if (!blind)
		ck_assert_uint_eq(exchange(from, to, BYTES, true), 0);
	all_rests("after a change");
	ends_close();
	ck_assert_int_eq(munmap(PLACE, ALL), 0);
	return good;
}

START_TEST(memory_that_changed_is_registered_anew)
{
	for (uint32_t source = 0; source < 2; source++)
		ck_assert_msg(is_noticed((uint32_t)_i, source == 1), "change %d of a %s", _i,
			      source == 1 ? "source" : "target");
}
END_TEST

/* The fault: nobody looks. */
START_TEST(who_is_blind_to_changes_fails)
{
	blind = true;
	for (uint32_t source = 0; source < 2; source++)
		ck_assert(is_noticed((uint32_t)_i, source == 1) == changes[_i].same);
}
END_TEST

/* Without a message: within a look or two. */
static bool has_ended(void *before)
{
	return ended() > *(uint64_t *)before;
}

START_TEST(memory_that_is_gone_is_given_back)
{
	uint64_t before;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, ALL * 4);
	for (uint32_t i = 0; i < 2; i++)
		(void)exchange(buffer(0), buffer(1), BYTES, true);
	before = ended();
	ck_assert_int_eq(munmap(buffer(0), BYTES), 0);
	await(has_ended, &before, "what was unmapped is let go");
	ends_close();
}
END_TEST

/* ---- Memory while it changes ---- */

static struct {
	_Atomic uint32_t go, done;
	bool over;
} unmapper;

static void *unmapper_main(void *arg)
{
	for (uint32_t round = 1;; round++) {
		while (atomic_load(&unmapper.go) != round)
			rb_yield();
		if (unmapper.over)
			return arg;
		ck_assert_int_eq(munmap(PLACE, BYTES), 0);
		atomic_store(&unmapper.done, round);
	}
}

/* Who sees that it is unmapped is told so, though munmap() may not have returned. */
START_TEST(what_is_seen_to_be_unmapped_is_not_the_same)
{
	uint32_t rounds = test_length() == TEST_SHORT ? 200 : 1000, early = 0;
	struct rb_verbs_watch *watch;
	pthread_t thread;
	unsigned char there;

	ck_assert_int_eq(rb_verbs_watch_open(4, &watch), RUBATO_OK);
	ck_assert_int_eq(pthread_create(&thread, NULL, unmapper_main, NULL), 0);
	for (uint32_t round = 1; round <= rounds; round++) {
		map(PLACE, BYTES, MAP_PRIVATE);
		ck_assert(rb_verbs_watch_begin(watch, 2, PLACE, BYTES));
		ck_assert(rb_verbs_watch_same(watch, 2));
		atomic_store(&unmapper.go, round);
		while (mincore(PLACE, 4096, &there) == 0)
			rb_yield();
		ck_assert_msg(!rb_verbs_watch_same(watch, 2), "round %u", round);
		early += !rb_verbs_watch_changed(watch, 2);
		while (atomic_load(&unmapper.done) != round)
			rb_yield();
		ck_assert(rb_verbs_watch_changed(watch, 2));
		rb_verbs_watch_end(watch, 2);
		ck_assert_uint_eq(rb_verbs_watch_changes(watch), 0);
	}
	unmapper.over = true;
	atomic_store(&unmapper.go, rounds + 1);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	rb_verbs_watch_close(watch);
	(void)fprintf(stderr, "of %u, %u were known before the event was read\n", rounds, early);
}
END_TEST

/* Buffers of the program's own allocator, and of mmap: freed, moved, discarded, used, while another
 * thread does the same to memory that nobody sends. */
static void *churn_main(void *arg)
{
	struct rb_rng rng = { (uintptr_t)arg };

	while (atomic_load(&unmapper.go) == 0) {
		size_t bytes = 4096 + rb_rng_below(&rng, 1 << 18);
		uint8_t *mine = malloc(bytes);

		ck_assert_ptr_nonnull(mine);
		mine[bytes / 2] = 1;
		free(mine);
	}
	return NULL;
}

static struct owned {
	uint8_t *at;
	size_t bytes;
	bool mapped, changed;
} owned[BUFFERS];

static void owned_renew(struct owned *b, uint32_t slot, struct rb_rng *rng)
{
	if (b->at != NULL && b->mapped)
		ck_assert_int_eq(munmap(b->at, 4 * BYTES), 0);
	else
		free(b->at);
	b->mapped = rb_rng_below(rng, 2) == 0;
	b->bytes = 20000 + rb_rng_below(rng, 4 * BYTES - 20000);
	if (b->mapped)
		map(b->at = PLACE + slot * 4 * BYTES, 4 * BYTES, MAP_PRIVATE);
	else
		b->at = malloc(b->bytes);
	ck_assert_ptr_nonnull(b->at);
	b->changed =
		b->mapped; /* What malloc gives again is the same where it was never unmapped. */
}

START_TEST(random_changes)
{
	struct seeds seeds = seeds_from(__func__, 1, test_length() == TEST_SHORT ? 3 : 30);
	uint64_t hits = 0, seed;

	while (seeds_next(&seeds, &seed)) {
		struct rb_rng rng = { seed };
		pthread_t thread;

		memset(owned, 0, sizeof(owned));
		atomic_store(&unmapper.go, 0);
		open_ends(1 + seed % 2, 16 * BYTES);
		for (uint32_t i = 0; i < BUFFERS; i++)
			owned_renew(&owned[i], i, &rng);
		ck_assert_int_eq(pthread_create(&thread, NULL, churn_main, (void *)(seed + 1)), 0);
		for (uint32_t step = 0; step < 300; step++) {
			/* A few are mostly used. */
			uint32_t f = (uint32_t)rb_rng_below(&rng, 1 + rb_rng_below(&rng, BUFFERS));
			uint32_t t = (f + 1 + (uint32_t)rb_rng_below(&rng, 2)) % BUFFERS;
			struct owned *from = &owned[f], *to = &owned[t];
			size_t bytes = from->bytes < to->bytes ? from->bytes : to->bytes;
			uint64_t registered;

			if (rb_rng_below(&rng, 8) == 0)
				owned_renew(from, f, &rng);
			bytes = from->bytes < to->bytes ? from->bytes : to->bytes;
			if (from->mapped && rb_rng_below(&rng, 16) == 0) {
				discarded(from->at);
				from->changed = true;
			}
			registered = exchange(from->at, to->at, bytes, rb_rng_below(&rng, 2) == 0);
			ck_assert_msg(registered >= (uint64_t)from->changed + to->changed,
				      "seed %llu, step %u: %llu registrations",
				      (unsigned long long)seed, step,
				      (unsigned long long)registered);
			hits += registered == 0;
			from->changed = to->changed = false;
		}
		atomic_store(&unmapper.go, 1);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		all_rests("after random changes");
		ends_close();
		for (uint32_t i = 0; i < BUFFERS; i++)
			if (owned[i].mapped)
				ck_assert_int_eq(munmap(owned[i].at, 4 * BYTES), 0);
			else
				free(owned[i].at);
	}
	ck_assert_uint_gt(hits, 0);
}
END_TEST

/* ---- Limits ---- */

START_TEST(what_was_used_least_recently_makes_room)
{
	uint64_t first, kept;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, 4 * BYTES);
	first = made() - ended();
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t i = 0; i < 3; i++) {
			(void)exchange(buffer(4 * i), buffer(1), BYTES, true);
			(void)exchange(buffer(4 * i), buffer(1), BYTES, true);
		}
	/* Rank 0 keeps three, rank 1 one. */
	ck_assert_uint_eq(made() - ended() - first, 4);
	for (uint32_t i = 0; i < 6; i++) {
		(void)exchange(buffer(2 * i), buffer(1), BYTES, true);
		(void)exchange(buffer(2 * i), buffer(1), BYTES, true);
		kept = made() - ended() - first;
		ck_assert_uint_le(kept, 4 + 1);
	}
	ck_assert_uint_eq(exchange(buffer(10), buffer(1), BYTES, true), 0);
	ck_assert_uint_ne(exchange(buffer(0), buffer(1), BYTES, true), 0);
	/* What is more than all is registered for its message. */
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_gt(exchange(buffer(0), buffer(6), 5 * BYTES, true), 0);
	ends_close();
}
END_TEST

/* Locked memory is wanted for a region. */
START_TEST(what_is_kept_gives_way_to_regions)
{
	struct rb_region *region;
	uint64_t before, count;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, ALL);
	for (uint32_t i = 0; i < 4; i++) {
		(void)exchange(buffer(i), buffer(8 + i), BYTES, true);
		(void)exchange(buffer(i), buffer(8 + i), BYTES, true);
	}
	before = ended();
	count = made();
	int fault = mock_fail_call("ibv_reg_mr", 1, 1, ENOMEM);
	ck_assert_int_eq(rb_transport_verbs.region_add(ends.ep[0], buffer(0), ALL, &region),
			 RUBATO_OK);
	ck_assert_uint_eq(mock_fired(fault), 1);
	ck_assert_uint_eq(made() - count, 2);
	ck_assert_uint_eq(ended() - before, 4);
	rb_transport_verbs.region_drop(ends.ep[0], region);
	/* Nothing is left to give way: it is sent in copies. */
	fault = mock_fail_call("ibv_reg_mr", 1, 0, ENOMEM);
	(void)exchange(buffer(0), buffer(9), BYTES, false);
	ck_assert_uint_gt(mock_fired(fault), 0);
	ends_close();
}
END_TEST

/* ---- What is not kept ---- */

enum { SHARED, OF_A_FILE, READ_ONLY, WITH_A_GAP, NO_DESCRIPTORS, UNWATCHED };

START_TEST(what_cannot_be_watched_is_registered_for_its_message)
{
	struct rlimit files, few;

	map(PLACE, ALL, _i == SHARED ? MAP_SHARED : MAP_PRIVATE);
	if (_i == OF_A_FILE) {
		FILE *file = tmpfile();

		ck_assert_ptr_nonnull(file);
		ck_assert_int_eq(ftruncate(fileno(file), ALL), 0);
		ck_assert(mmap(PLACE, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
			       fileno(file), 0) == PLACE);
		(void)fclose(file);
	}
	if (_i == WITH_A_GAP) { /* Half of it is another's. */
		ck_assert_int_eq(munmap(buffer(0) + BYTES / 2, BYTES), 0);
		map(buffer(0) + BYTES / 2, BYTES, MAP_SHARED);
	}
	open_ends(1, ALL * 4);
	if (_i == NO_DESCRIPTORS) {
		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
		few = (struct rlimit) { 3, files.rlim_max };
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	}
	for (uint32_t i = 0; i < 5; i++)
		if (_i == READ_ONLY) {
			struct rb_request send, receive;
			uint64_t before = made();

			if (i == 0)
				memset(buffer(0), 9, BYTES);
			ck_assert_int_eq(mprotect(buffer(0), BYTES, PROT_READ), 0);
			ends.call++;
			request_set(&send, 0, buffer(0), BYTES);
			request_set(&receive, 1, buffer(2), BYTES);
			carry(&send, &receive, buffer(0), true);
			ck_assert_uint_ge(made() - before, 1);
		} else {
			ck_assert_uint_ge(exchange(buffer(0), buffer(2), BYTES, true), 1);
		}
	if (_i == NO_DESCRIPTORS) {
		ck_assert_uint_eq(verbs_of(0)->cache_bytes, 0);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	}
	ends_close();
}
END_TEST

/* ---- Life ---- */

/* A child has all descriptors; when the last endpoint has closed nobody reads what they tell. */
START_TEST(a_child_changes_nothing)
{
	int pipes[2], status;
	pid_t child;
	char byte = 0;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, ALL * 4);
	for (uint32_t i = 0; i < 3; i++)
		(void)exchange(buffer(0), buffer(1), BYTES, true);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		(void)close(pipes[1]);
		(void)munmap(PLACE, ALL);
		_exit((int)read(pipes[0], &byte, 1));
	}
	ck_assert_int_gt(child, 0);
	ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES, true), 0);
	ends_close();
	ck_assert_int_eq(munmap(PLACE, ALL), 0); /* It returns. */
	ck_assert_int_eq(write(pipes[1], &byte, 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__)
/* What it watches is its own, while its parent watches. */
START_TEST(a_child_watches_by_itself)
{
	struct rb_verbs_watch *before, *watch;
	int status;
	pid_t child;

	map(PLACE, ALL, MAP_PRIVATE);
	ck_assert_int_eq(rb_verbs_watch_open(1, &before), RUBATO_OK);
	ck_assert(rb_verbs_watch_begin(before, 0, PLACE, BYTES));
	child = fork();
	if (child == 0) {
		bool good = rb_verbs_watch_open(1, &watch) == RUBATO_OK &&
			    rb_verbs_watch_begin(watch, 0, PLACE, BYTES) &&
			    rb_verbs_watch_same(watch, 0) && munmap(PLACE, BYTES) == 0 &&
			    !rb_verbs_watch_same(watch, 0);

		rb_verbs_watch_close(watch);
		rb_verbs_watch_close(before);
		_exit(good ? 0 : 1);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert(rb_verbs_watch_same(before, 0));
	ck_assert_int_eq(munmap(PLACE, ALL), 0);
	ck_assert(!rb_verbs_watch_same(before, 0));
	rb_verbs_watch_close(before);
}
END_TEST
#endif

/* Both ranks watch the same mapping; then others come, after all have gone. */
START_TEST(one_mapping_is_watched_for_all)
{
	for (uint32_t life = 0; life < 3; life++) {
		map(PLACE, ALL, MAP_PRIVATE);
		open_ends(1, ALL * 4);
		for (uint32_t i = 0; i < 2; i++)
			(void)exchange(buffer(0), buffer(1), BYTES - 100, true);
		ck_assert_uint_eq(exchange(buffer(0), buffer(1), BYTES - 100, true), 0);
		ends_close();
		ck_assert_int_eq(munmap(PLACE, ALL), 0);
	}
}
END_TEST

static bool second_has_lost(void *unused)
{
	(void)unused;
	return peer_of(1)->lost;
}

/* A receive is cancelled whose sender computes: its key goes, though it was kept; unless another
 * message uses it. */
START_TEST(a_key_that_was_kept_is_taken_back)
{
	bool shared = _i == 1;
	struct rb_request receive, other;
	uint64_t before;

	map(PLACE, ALL, MAP_PRIVATE);
	open_ends(1, ALL * 4);
	for (uint32_t i = 0; i < 3; i++)
		(void)exchange(buffer(0), buffer(1), BYTES, true);
	before = ended();
	ends.call++;
	request_set(&receive, 1, buffer(1), BYTES);
	rb_transport_verbs.recv(ends.ep[1], &receive);
	if (shared) {
		ends.call++;
		request_set(&other, 1, buffer(1), BYTES);
		rb_transport_verbs.recv(ends.ep[1], &other);
	}
	ck_assert_uint_eq(ended(), before);
	rb_transport_verbs.cancel(ends.ep[1], &receive);
	ck_assert_int_eq(receive.state, RB_REQUEST_DONE);
	ck_assert(second_has_lost(NULL) == shared);
	if (shared) {
		for (uint32_t r = 0; r < 2; r++)
			rb_transport_verbs.close(ends.ep[r], true, rb_clock_ns());
		return;
	}
	ck_assert_uint_eq(ended(), before + 1);
	(void)exchange(buffer(0), buffer(1), BYTES, true);
	all_rests("after a receive was cancelled");
	ends_close();
}
END_TEST

/* Whatever the kernel and valgrind know. */
START_TEST(under_valgrind_nothing_is_watched)
{
	struct rb_verbs_watch *watch;

	ck_assert_int_eq(rb_verbs_watch_open(1, &watch), RUBATO_ERR_UNSUPPORTED);
	ck_assert_str_eq(rubato_error_text(), "not under valgrind");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc;
	struct rb_verbs_watch *watch;
	struct rlimit locked;

	if (argc > 1 && strcmp(argv[1], "refused") == 0) {
		tc = tcase_create("refused");
		tcase_add_test(tc, under_valgrind_nothing_is_watched);
		return check_main("verbs-cache-valgrind", tc);
	}
	if (rb_verbs_watch_open(1, &watch) != RUBATO_OK) {
		(void)printf("SKIP: this machine cannot watch memory: %s\n", rubato_error_text());
		return 77;
	}
	rb_verbs_watch_close(watch);
	if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_max / 2 < ALL * 4) {
		(void)printf("SKIP: less than %u KiB may be locked (ulimit -Hl)\n", ALL * 8 >> 10);
		return 77;
	}
	tc = tcase_create("cache");
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, what_is_used_again_stays_registered, 0, 4);
	tcase_add_loop_test(tc, memory_that_changed_is_registered_anew, 0, CHANGES);
	tcase_add_loop_test(tc, who_is_blind_to_changes_fails, 0, CHANGES);
	tcase_add_test(tc, memory_that_is_gone_is_given_back);
	tcase_add_test(tc, what_is_seen_to_be_unmapped_is_not_the_same);
	tcase_add_test(tc, random_changes);
	tcase_add_test(tc, what_was_used_least_recently_makes_room);
	tcase_add_test(tc, what_is_kept_gives_way_to_regions);
	tcase_add_loop_test(tc, what_cannot_be_watched_is_registered_for_its_message, 0, UNWATCHED);
	tcase_add_test(tc, a_child_changes_nothing);
	if (!test_is_threads_only()) /* Whose children start no threads. */
#if !defined(__SANITIZE_ADDRESS__) /* Its allocator may be locked by another thread at the fork. */
		tcase_add_test(tc, a_child_watches_by_itself);
#endif
	tcase_add_test(tc, one_mapping_is_watched_for_all);
	tcase_add_loop_test(tc, a_key_that_was_kept_is_taken_back, 0, 2);
	return check_main("verbs-cache", tc);
}
