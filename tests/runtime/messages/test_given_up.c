/*
 * test_given_up.c -- random sends and receives of one tag, of a few sizes, many of which are given
 * up at either end. What was sent, and that alone, is received, in its order. Name of the transport
 * as argument: shm, ucx, verbs.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/sync.h"
#include "runtime/op.h"
#include "tests/check_main.h"
#include "tests/expect.h"
#include "tests/length.h"
#include "tests/runtime/local.h"
#include "transport/transport.h"

#define RANKS_MAX 3u
#define STEPS 120u
#define FLYING_MAX 4u        /* To or from a peer. */
#define EACH_MAX (STEPS + 1) /* Of a pair, one direction, and the last one. */
#define TAG 5u
#define TAG_OTHERS 1000u
#define LAST_BYTES 24u
#define OTHERS (RB_FLOWS_MAX + 8) /* Tags: flows are forgotten. */
#define OTHERS_TURNS 3u

static const struct rb_transport_ops *transports[2];
static const char *transport_name;

static const uint32_t sizes[] = { 0, 8, 200, 4000, 16384, 16392, 60000, 300000 };

struct entry { /* A send or receive, in the order in which they were started. */
	rubato_op *op;
	uint8_t *bytes;
	uint32_t size_bytes;
	rubato_status status;
	bool over;
	uint64_t id;    /* Of what was sent, or has come; 0: it is empty. */
	bool scribbled; /* Given up: nobody writes there any more. */
};

struct way { /* From a rank to another one. */
	struct entry sends[EACH_MAX], receives[2 * EACH_MAX + 1];
	uint32_t send_count, receive_count, others;
	rubato_op *other_sends[OTHERS_TURNS * OTHERS];
};

struct world {
	uint64_t seed;
	uint32_t rank_count;
	struct way ways[RANKS_MAX][RANKS_MAX];
	_Atomic uint32_t taken_back, given_up, refused;
};

/*
 * One receive at a time has all in its order. Of several a later one may have had its message when
 * that of an earlier one is taken back, which goes on to one that is sent later.
 */
static bool in_order(const struct world *world)
{
	return world->seed % 5 < 3;
}

static void fill(struct entry *e)
{
	for (uint32_t i = 0; i + 8 <= e->size_bytes; i += 8) {
		uint64_t word = rb_mix(e->id + i) | 1;

		if (i == 0)
			word = e->id;
		memcpy(e->bytes + i, &word, 8);
	}
}

static bool is_whole(struct entry *e)
{
	if (e->size_bytes > 0)
		memcpy(&e->id, e->bytes, 8);
	for (uint32_t i = 8; i + 8 <= e->size_bytes; i += 8) {
		uint64_t word;

		memcpy(&word, e->bytes + i, 8);
		if (word != (rb_mix(e->id + i) | 1))
			return false;
	}
	return true;
}

static rubato_status over(struct world *world, struct entry *e, rubato_status status, bool sends)
{
	e->status = status;
	e->over = true;
	rubato_op_free(e->op);
	e->op = NULL;
	EXPECT(status == RUBATO_OK || status == RUBATO_ERR_CANCELLED ||
	       (!sends && status == RUBATO_ERR_MISMATCH));
	if (status == RUBATO_ERR_CANCELLED && sends)
		atomic_fetch_add(&world->taken_back, 1);
	else if (status == RUBATO_ERR_CANCELLED)
		atomic_fetch_add(&world->given_up, 1);
	if (status == RUBATO_ERR_MISMATCH)
		atomic_fetch_add(&world->refused, 1);
	if (status == RUBATO_OK && !sends)
		EXPECT(is_whole(e));
	if (status == RUBATO_ERR_CANCELLED && e->size_bytes > 0) {
		memset(e->bytes, 0xa5, e->size_bytes);
		e->scribbled = true;
	}
	return RUBATO_OK;
}

static rubato_status entry_start(rubato_comm *comm, struct entry *e, uint32_t peer,
				 uint32_t size_bytes, bool sends, uint64_t id)
{
	*e = (struct entry) { .size_bytes = size_bytes, .id = size_bytes > 0 ? id : 0 };
	e->bytes = malloc(size_bytes + 1);
	EXPECT(e->bytes != NULL);
	if (sends)
		fill(e);
	RB_TRY((sends ? rubato_op_send(comm, e->bytes, size_bytes, RUBATO_UINT8, peer, TAG, &e->op)
		      : rubato_op_recv(comm, e->bytes, size_bytes, RUBATO_UINT8, peer, TAG,
				       &e->op)));
	return rubato_start(e->op);
}

/* The n-th of those in flight; NULL: there are fewer. */
static struct entry *flying(struct entry *all, uint32_t count, uint32_t n)
{
	for (uint32_t i = 0; i < count; i++)
		if (!all[i].over && n-- == 0)
			return &all[i];
	return NULL;
}

static uint32_t flying_count(struct entry *all, uint32_t count)
{
	uint32_t n = 0;

	while (flying(all, count, n) != NULL)
		n++;
	return n;
}

/* Waits for a moment, or not, and perhaps gives it up. */
static rubato_status touch(struct world *world, struct rb_rng *rng, struct entry *e, bool sends)
{
	uint64_t how = rb_rng_next(rng) % 8;
	rubato_status status = RUBATO_ERR_TIMEOUT;
	bool done = false;

	if (how < 2) {
		status = rubato_test(e->op, &done);
		if (!done && status == RUBATO_OK)
			status = RUBATO_ERR_TIMEOUT;
	} else if (how < 7) {
		status = rubato_wait(e->op, 1000 + rb_rng_next(rng) % (how < 6 ? 100000 : 2000000));
	}
	if (status != RUBATO_ERR_TIMEOUT)
		return over(world, e, status, sends);
	if (rb_rng_next(rng) % 3 != 0)
		return RUBATO_OK;
	status = rubato_cancel(e->op);
	if (status == RUBATO_OK) /* It had ended. */
		status = rubato_wait(e->op, 0);
	return over(world, e, status, sends);
}

static rubato_status others_send(rubato_comm *comm, struct way *way, uint32_t peer)
{
	uint32_t begin = way->others++ * OTHERS;

	for (uint32_t i = begin; i < begin + OTHERS; i++) {
		RB_TRY(rubato_op_send(comm, NULL, 0, RUBATO_UINT8, peer, TAG_OTHERS + i,
				      &way->other_sends[i]));
		RB_TRY(rubato_start(way->other_sends[i]));
	}
	return RUBATO_OK;
}

/* They are received, at last. */
static rubato_status others_end(rubato_comm *comm, struct world *world)
{
	uint32_t rank = rubato_rank(comm);

	for (uint32_t peer = 0; peer < world->rank_count; peer++)
		for (uint32_t i = 0; i < world->ways[peer][rank].others * OTHERS; i++)
			RB_TRY(rubato_recv(comm, NULL, 0, RUBATO_UINT8, peer, TAG_OTHERS + i));
	for (uint32_t peer = 0; peer < world->rank_count; peer++)
		for (uint32_t i = 0; i < world->ways[rank][peer].others * OTHERS; i++) {
			RB_TRY(rubato_wait(world->ways[rank][peer].other_sends[i], 0));
			rubato_op_free(world->ways[rank][peer].other_sends[i]);
		}
	return RUBATO_OK;
}

static rubato_status step(rubato_comm *comm, struct world *world, struct rb_rng *rng,
			  uint32_t number)
{
	uint32_t rank = rubato_rank(comm);
	uint32_t peer = (rank + 1 + (uint32_t)(rb_rng_next(rng) % (world->rank_count - 1))) %
			world->rank_count;
	bool sends = rb_rng_next(rng) % 2 == 0;
	struct way *way = sends ? &world->ways[rank][peer] : &world->ways[peer][rank];
	struct entry *all = sends ? way->sends : way->receives;
	uint32_t *count = sends ? &way->send_count : &way->receive_count;
	uint32_t in_flight = flying_count(all, *count);
	uint32_t most = sends || !in_order(world) ? FLYING_MAX : 1;
	/* Few sizes at a time, so that most fit. */
	uint32_t size = sizes[(world->seed + number / 40 + (rb_rng_next(rng) % 8 == 0)) % 8];

	if (rb_rng_next(rng) % 12 == 0)
		(void)usleep((useconds_t)(rb_rng_next(rng) % 300));
	if (sends && world->seed % 3 == 0 && way->others < OTHERS_TURNS &&
	    rb_rng_next(rng) % 24 == 0)
		return others_send(comm, way, peer);
	if (in_flight == most || (in_flight > 0 && rb_rng_next(rng) % 2 == 0))
		return touch(world, rng,
			     flying(all, *count, (uint32_t)(rb_rng_next(rng) % in_flight)), sends);
	++*count;
	return entry_start(comm, &all[*count - 1], peer, size, sends,
			   (uint64_t)(rank + 1) << 32 | *count);
}

/* ---- The end ---- */

/* All receives are given up; what is left is received by others, up to the last message. */
static rubato_status receives_end(rubato_comm *comm, struct world *world, uint32_t peer)
{
	struct way *way = &world->ways[peer][rubato_rank(comm)];

	for (struct entry *e; (e = flying(way->receives, way->receive_count, 0)) != NULL;) {
		rubato_status status = rubato_cancel(e->op);

		if (status == RUBATO_OK)
			status = rubato_wait(e->op, 0);
		RB_TRY(over(world, e, status, false));
	}
	return RUBATO_OK;
}

static rubato_status last_step(rubato_comm *comm, struct world *world, uint32_t peer, bool *more)
{
	struct way *way = &world->ways[peer][rubato_rank(comm)];
	struct entry *e = &way->receives[way->receive_count - 1];
	rubato_status status;

	if (e->over)
		return RUBATO_OK;
	*more = true;
	status = rubato_wait(e->op, 200000);
	if (status == RUBATO_ERR_TIMEOUT)
		return RUBATO_OK;
	RB_TRY(over(world, e, status, false));
	if (status == RUBATO_OK)
		return RUBATO_OK;
	EXPECT(way->receive_count < sizeof(way->receives) / sizeof(way->receives[0]));
	return entry_start(comm, &way->receives[way->receive_count++], peer, LAST_BYTES, false, 0);
}

static rubato_status finish(rubato_comm *comm, struct world *world)
{
	uint32_t rank = rubato_rank(comm);
	bool more = true;

	for (uint32_t peer = 0; peer < world->rank_count; peer++)
		if (peer != rank)
			RB_TRY(receives_end(comm, world, peer));
	RB_TRY(rubato_barrier(comm)); /* The last message is nobody else's. */
	for (uint32_t peer = 0; peer < world->rank_count; peer++) {
		struct way *to = &world->ways[rank][peer], *from = &world->ways[peer][rank];

		if (peer == rank)
			continue;
		RB_TRY(entry_start(comm, &to->sends[to->send_count++], peer, LAST_BYTES, true,
				   UINT64_MAX - rank));
		RB_TRY(entry_start(comm, &from->receives[from->receive_count++], peer, LAST_BYTES,
				   false, 0));
	}
	while (more) {
		more = false;
		for (uint32_t peer = 0; peer < world->rank_count; peer++)
			if (peer != rank)
				RB_TRY(last_step(comm, world, peer, &more));
	}
	for (uint32_t peer = 0; peer < world->rank_count; peer++) {
		struct way *to = &world->ways[rank][peer];

		for (struct entry *e; (e = flying(to->sends, to->send_count, 0)) != NULL;)
			RB_TRY(over(world, e, rubato_wait(e->op, 0), true));
	}
	RB_TRY(rubato_barrier(comm));
	RB_TRY(others_end(comm, world));
	return rubato_barrier(comm);
}

static bool visit_message(void *arg, uint32_t peer, struct rb_tag tag,
			  const struct rb_signature *signature)
{
	(void)peer;
	(void)signature;
	*(uint32_t *)arg += rb_tag_class_of(tag) == RB_TAG_P2P;
	return false;
}

static rubato_status rank_main(rubato_comm *comm, void *arg)
{
	struct world *world = arg;
	uint32_t rank = rubato_rank(comm), left_over = 0;
	struct rb_rng rng = { rb_mix(world->seed * RANKS_MAX + rank) };
	struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, (rank + 1) % world->rank_count);

	for (uint32_t i = 0; i < STEPS; i++)
		RB_TRY(step(comm, world, &rng, i));
	RB_TRY(finish(comm, world));
	rb_engine_enter(&comm->engine);
	(void)ep->ops->unmatched(ep, visit_message, &left_over);
	rb_engine_leave(&comm->engine);
	EXPECT(left_over == 0);
	return RUBATO_OK;
}

static rubato_status meeting_main(rubato_comm *comm, void *arg)
{
	rubato_status err = rank_main(comm, arg);

	if (err == RUBATO_OK)
		return RUBATO_OK;
	/* The others would wait for it. */
	(void)fprintf(stderr, "seed %" PRIu64 " rank %u: %s: %s\n", ((struct world *)arg)->seed,
		      rubato_rank(comm), rubato_status_name(err), rubato_error_text());
	_exit(EXIT_FAILURE);
}

/* ---- What must be so ---- */

/* Whether the receive may have had that message. */
static bool fits(const struct entry *receive, const struct entry *message)
{
	bool same = receive->size_bytes == message->size_bytes;

	return receive->status == RUBATO_ERR_CANCELLED ||
	       (receive->status == RUBATO_ERR_MISMATCH ? !same
						       : same && receive->id == message->id);
}

/* What was sent has come once, and no more than that. */
static void count_check(const struct world *world, const struct way *way, uint32_t from,
			uint32_t to)
{
	uint32_t sent = 0, had = 0, perhaps = 0;

	for (uint32_t i = 0; i < way->send_count; i++)
		sent += way->sends[i].status == RUBATO_OK;
	for (uint32_t i = 0; i < way->receive_count; i++) {
		const struct entry *receive = &way->receives[i];
		uint32_t times = 0;

		for (uint32_t b = 0; receive->scribbled && b < receive->size_bytes; b++)
			ck_assert_msg(receive->bytes[b] == 0xa5, "seed %" PRIu64 ": written later",
				      world->seed);
		had += receive->status != RUBATO_ERR_CANCELLED;
		perhaps += receive->status == RUBATO_ERR_CANCELLED;
		for (uint32_t k = 0; k < way->send_count; k++)
			times += way->sends[k].status == RUBATO_OK && fits(receive, &way->sends[k]);
		ck_assert_msg(times > 0 || receive->status == RUBATO_ERR_CANCELLED,
			      "seed %" PRIu64 ": receive %u of %u from %u, %s of %u bytes, %" PRIx64
			      ", of what was not sent",
			      world->seed, i, to, from, rubato_status_name(receive->status),
			      receive->size_bytes, receive->id);
		for (uint32_t k = 0; k < i && receive->status == RUBATO_OK && receive->id != 0; k++)
			ck_assert_msg(way->receives[k].id != receive->id ||
					      way->receives[k].status != RUBATO_OK,
				      "seed %" PRIu64 ": received twice", world->seed);
	}
	ck_assert_msg(had <= sent && sent <= had + perhaps,
		      "seed %" PRIu64 ": of %u messages from %u to %u %u have come", world->seed,
		      sent, from, to, had);
}

/* Whether receives, in their order, can have had all that was sent, in its order. */
static void way_check(const struct world *world, const struct way *way, uint32_t from, uint32_t to)
{
	const struct entry *sent[EACH_MAX + 1];
	bool may[EACH_MAX + 2] = { true }; /* The first so many have been had. */
	uint32_t count = 0;

	count_check(world, way, from, to);
	if (!in_order(world))
		return;
	for (uint32_t i = 0; i < way->send_count; i++)
		if (way->sends[i].status == RUBATO_OK)
			sent[count++] = &way->sends[i];
	for (uint32_t i = 0; i < way->receive_count; i++) {
		const struct entry *receive = &way->receives[i];
		bool next[EACH_MAX + 2] = { false }, any = false;

		for (uint32_t k = 0; k <= count; k++) {
			if (!may[k])
				continue;
			if (receive->status == RUBATO_ERR_CANCELLED)
				next[k] = true;
			if (k < count && fits(receive, sent[k]))
				next[k + 1] = true;
		}
		memcpy(may, next, sizeof(may));
		for (uint32_t k = 0; k <= count; k++)
			any |= may[k];
		ck_assert_msg(any,
			      "seed %" PRIu64 ": receive %u of %u from %u, %s of %u bytes, %" PRIx64
			      ", out of order, or of what was not sent",
			      world->seed, i, to, from, rubato_status_name(receive->status),
			      receive->size_bytes, receive->id);
	}
	ck_assert_msg(may[count], "seed %" PRIu64 ": a message from %u to %u is lost", world->seed,
		      from, to);
}

static void world_free(struct world *world)
{
	for (uint32_t from = 0; from < RANKS_MAX; from++)
		for (uint32_t to = 0; to < RANKS_MAX; to++) {
			struct way *way = &world->ways[from][to];

			for (uint32_t i = 0; i < way->send_count; i++)
				free(way->sends[i].bytes);
			for (uint32_t i = 0; i < way->receive_count; i++)
				free(way->receives[i].bytes);
		}
	free(world);
}

START_TEST(what_was_sent_is_received_in_its_order)
{
	struct seeds seeds = seeds_from(__func__, 1,
					test_length() == TEST_SHORT    ? 6
					: test_length() == TEST_NORMAL ? 24
								       : 300);
	uint32_t taken_back = 0, given_up = 0, refused = 0;

	for (uint64_t seed; seeds_next(&seeds, &seed);) {
		struct world *world = calloc(1, sizeof(*world));
		rubato_status err;

		ck_assert_ptr_nonnull(world);
		world->seed = seed;
		world->rank_count = 2 + seed % 2;
		ck_assert_int_eq(setenv("RUBATO_BACKGROUND", seed / 2 % 2 == 0 ? "0" : "1", 1), 0);
		ck_assert_int_eq(setenv("RUBATO_ATTACH", seed / 4 % 2 == 0 ? "never" : "auto", 1),
				 0);
		err = local_run(world->rank_count, transports, meeting_main, world, NULL);
		ck_assert_msg(err == RUBATO_OK, "%s: %s", rubato_status_name(err),
			      rubato_error_text());
		for (uint32_t from = 0; from < world->rank_count; from++)
			for (uint32_t to = 0; to < world->rank_count; to++)
				way_check(world, &world->ways[from][to], from, to);
		taken_back += atomic_load(&world->taken_back);
		given_up += atomic_load(&world->given_up);
		refused += atomic_load(&world->refused);
		world_free(world);
	}
	ck_assert(seeds_chosen() || (taken_back > 0 && given_up > 0 && refused > 0));
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("given up");

	transport_name = argc > 1 ? argv[1] : "shm";
	transports[0] = local_transport(transport_name);
	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, what_was_sent_is_received_in_its_order);
	return check_main("given up", tc);
}
