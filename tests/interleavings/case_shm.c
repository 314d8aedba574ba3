/*
 * case_shm.c -- two ranks on the shared-memory transport: sleeping against posting, cells and bulk
 * buffers against their credits.
 *
 * The endpoints connect once, on real threads; each execution then starts with empty rings at a
 * position of its own, most of them just before positions wrap.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/interleavings/cases.h"
#include "tests/interleavings/ranks.h"
#include "transport/shm/shm.h"

/* ---- Two connected ranks ---- */

/* Outside of an execution: not what is explored. */
static void stop(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", what, rubato_error_text());
	abort();
}

static void *connect_main(void *arg)
{
	struct side *s = arg;
	const void *addresses[2] = { s->ranks->sides[0].address, s->ranks->sides[1].address };
	const size_t bytes[2] = { s->ranks->sides[0].address_bytes,
				  s->ranks->sides[1].address_bytes };
	const bool use[2] = { true, true };

	if (s->ep->ops->connect(s->ep, addresses, bytes, use,
				rb_clock_ns() + UINT64_C(60000000000)) != RUBATO_OK)
		stop("connect");
	return NULL;
}

static uint8_t pattern(uint32_t from, uint32_t message, size_t at)
{
	return (uint8_t)(from * 91 + message * 37 + at * 13 + at / 256 + 1);
}

static void said_fill(struct ranks *w)
{
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t m = 0; m < MESSAGES_MAX; m++)
			for (size_t i = 0; i < BYTES_MAX; i++)
				w->said[r][m][i] = pattern(r, m, i);
}

void *ranks_open(void)
{
	struct ranks *w = calloc(1, sizeof(*w));
	pthread_t other;

	if (w == NULL)
		stop("memory");
	for (uint32_t r = 0; r < 2; r++) {
		const struct rb_transport_options options = { .rank = r,
							      .rank_count = 2,
							      .heap_bytes = 1 << 21 };
		struct side *s = &w->sides[r];

		s->ranks = w;
		s->address_bytes = sizeof(s->address);
		if (rb_transport_shm.open(&options, &s->ep) != RUBATO_OK ||
		    s->ep->ops->address(s->ep, s->address, &s->address_bytes) != RUBATO_OK)
			stop("open");
	}
	said_fill(w);
	if (pthread_create(&other, NULL, connect_main, &w->sides[1]) != 0)
		stop("a thread");
	(void)connect_main(&w->sides[0]);
	(void)pthread_join(other, NULL);
	return w;
}

void ranks_close(void *world)
{
	struct ranks *w = world;

	for (uint32_t r = 0; r < 2; r++)
		w->sides[r].ep->ops->close(w->sides[r].ep, false, 0);
	free(w);
}

static void inbound_reset(struct rb_shm_inbound *in, uint32_t position)
{
	for (uint32_t i = 0; i < RB_SHM_CELLS; i++) {
		uint32_t before = position - RB_SHM_CELLS + i; /* From the lap before. */

		atomic_store(&in->ring->cells[before % RB_SHM_CELLS].word, before + 1);
	}
	atomic_store(&in->credit->consumed, position);
	atomic_store(&in->credit->released, 0);
	in->position = position;
	in->bulk = 0;
	in->released = in->held = 0;
	in->wanted = false;
	in->pieces = (struct rb_shm_pieces) { .left = 0 };
}

static void outbound_reset(struct rb_shm_outbound *out, uint32_t position)
{
	out->position = out->consumed = position;
	out->spent = out->released = 0;
	out->rung = 0;
	out->want = false;
}

/* Their counts wrap soon. */
static void bulks_reset(struct rb_shm_bulks *b)
{
	rb_shm_bulks_reset(b);
	b->given = b->taken = UINT32_MAX - 2;
	atomic_store(&b->own_credit->given, b->given);
}

void ranks_reset(struct ranks *w, uint32_t position)
{
	for (uint32_t r = 0; r < 2; r++) {
		struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)w->sides[r].ep;
		uint64_t rings;

		for (uint32_t k = 0; k < 2; k++) {
			inbound_reset(&ep->peers[k].in, position);
			outbound_reset(&ep->peers[k].out, position);
			bulks_reset(&ep->peers[k].bulks);
		}
		ep->polls = 0;
		ep->notice = false;
		atomic_store(&rb_shm_header(ep->segment)->sleeping, 0);
		(void)!read(ep->segment->doorbell, &rings, sizeof(rings));
	}
}

/* What the last answers of an execution left in the rings. */
void ranks_end(void *world)
{
	struct ranks *w = world;

	for (uint32_t i = 0; i < 8; i++)
		(void)w->sides[i % 2].ep->ops->poll(w->sides[i % 2].ep);
}

static void begin_wrapping(void *world)
{
	ranks_reset(world, UINT32_MAX - 1);
}

static void begin_first(void *world)
{
	ranks_reset(world, 0);
}

/* ---- What ranks do ---- */

void ranks_share(struct ranks *w)
{
	for (uint32_t r = 0; r < 2; r++) {
		const struct rb_shm_segment *s =
			((struct rb_shm_endpoint *)w->sides[r].ep)->segment;

		explore_shared(s->base + s->layout.rings,
			       (size_t)(s->layout.heap - s->layout.rings));
	}
}

static void message_send(struct side *s, uint32_t message, size_t size_bytes)
{
	struct rb_request *r = &s->sends[message];

	(void)memcpy(s->out[message], s->ranks->said[s->ep->rank][message], size_bytes);
	*r = (struct rb_request) { .peer = 1 - s->ep->rank,
				   .tag = { 0, message },
				   .buffer = s->out[message],
				   .size_bytes = size_bytes };
	s->ep->ops->send(s->ep, r);
}

static void message_recv(struct side *s, uint32_t message, size_t size_bytes)
{
	struct rb_request *r = &s->recvs[message];

	memset(s->in[message], 0, size_bytes);
	*r = (struct rb_request) { .peer = 1 - s->ep->rank,
				   .tag = { 0, message },
				   .buffer = s->in[message],
				   .size_bytes = size_bytes };
	s->ep->ops->recv(s->ep, r);
}

/* As the engine: polls, and sleeps only armed. */
static void finish(struct side *s, const struct rb_request *r)
{
	struct pollfd p = { s->ep->ops->descriptor(s->ep), POLLIN, 0 };

	while (r->state != RB_REQUEST_DONE) {
		if (s->ep->ops->poll(s->ep) != NULL || r->state == RB_REQUEST_DONE)
			continue;
		if (s->ep->ops->arm(s->ep)) {
			(void)ppoll(&p, 1, NULL, NULL);
			s->ep->ops->disarm(s->ep);
		} else {
			explore_pause();
		}
	}
	explore_expect(r->status == RUBATO_OK, "rank %u: request with tag %llu ends with %d",
		       s->ep->rank, (unsigned long long)r->tag.step, (int)r->status);
}

static void message_right(const struct side *s, uint32_t message, size_t size_bytes)
{
	const uint8_t *in = s->in[message], *said = s->ranks->said[1 - s->ep->rank][message];

	if (memcmp(in, said, size_bytes) == 0)
		return;
	for (size_t i = 0; i < size_bytes; i++)
		explore_expect(in[i] == said[i], "rank %u: byte %zu of message %u is wrong",
			       s->ep->rank, i, message);
}

static void finish_recv(struct side *s, uint32_t message)
{
	finish(s, &s->recvs[message]);
	message_right(s, message, s->recvs[message].size_bytes);
}

static void two_ranks(struct ranks *w, void *(*other)(void *), void *(*first)(void *))
{
	struct rb_thread thread;

	explore_expect(rb_thread_start(&thread, other, &w->sides[1]) == RUBATO_OK, "thread");
	(void)first(&w->sides[0]);
	rb_thread_join(&thread);
}

/* ---- A word there and one back; both sleep ---- */

static void *sleep_pinger(void *arg)
{
	message_recv(arg, 0, 8);
	message_send(arg, 0, 8);
	finish_recv(arg, 0);
	return NULL;
}

static void *sleep_ponger(void *arg)
{
	message_recv(arg, 0, 8);
	finish_recv(arg, 0);
	message_send(arg, 0, 8);
	finish(arg, &((struct side *)arg)->sends[0]);
	return NULL;
}

static void sleep_body(void *world)
{
	ranks_share(world);
	two_ranks(world, sleep_ponger, sleep_pinger);
}

const struct explore_case case_shm_sleep = {
	.name = "shm-sleep",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = sleep_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 2000,
};

/* ---- Words and chains of cells both ways, across the end of the ring ---- */

static void *cells_both(void *arg)
{
	static const size_t sizes[] = { 8, 100, 0, 24, RB_SHM_INLINE_MAX };

	for (uint32_t i = 0; i < 5; i++)
		message_send(arg, i, sizes[i]);
	for (uint32_t i = 0; i < 5; i++)
		message_recv(arg, i, sizes[i]);
	for (uint32_t i = 0; i < 5; i++) {
		finish_recv(arg, i);
		finish(arg, &((struct side *)arg)->sends[i]);
	}
	return NULL;
}

static void cells_body(void *world)
{
	ranks_share(world);
	two_ranks(world, cells_both, cells_both);
}

const struct explore_case case_shm_cells = {
	.name = "shm-cells",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = cells_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

/* ---- More cells than the ring has; more pieces than there are bulk buffers ---- */

static void *send_many(void *arg, uint32_t count, size_t size_bytes)
{
	for (uint32_t i = 0; i < count; i++)
		message_send(arg, i, size_bytes);
	for (uint32_t i = 0; i < count; i++)
		finish(arg, &((struct side *)arg)->sends[i]);
	return NULL;
}

static void *recv_many(void *arg, uint32_t count, size_t size_bytes)
{
	for (uint32_t i = 0; i < count; i++)
		message_recv(arg, i, size_bytes);
	for (uint32_t i = 0; i < count; i++)
		finish_recv(arg, i);
	return NULL;
}

#define ROOM_COUNT 10

static void *room_first(void *arg)
{
	return send_many(arg, ROOM_COUNT, RB_SHM_INLINE_MAX);
}

static void *room_other(void *arg)
{
	return recv_many(arg, ROOM_COUNT, RB_SHM_INLINE_MAX);
}

static void room_body(void *world)
{
	ranks_share(world);
	two_ranks(world, room_other, room_first);
}

const struct explore_case case_shm_room = {
	.name = "shm-room",
	.open = ranks_open,
	.begin = begin_first,
	.body = room_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

static void *bulk_first(void *arg)
{
	return send_many(arg, RB_SHM_BULKS + 3, RB_SHM_INLINE_MAX + 100);
}

static void *bulk_other(void *arg)
{
	return recv_many(arg, RB_SHM_BULKS + 3, RB_SHM_INLINE_MAX + 100);
}

static void bulk_body(void *world)
{
	ranks_share(world);
	two_ranks(world, bulk_other, bulk_first);
}

const struct explore_case case_shm_bulk = {
	.name = "shm-bulk",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = bulk_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

#define LONG_BYTES (RB_SHM_BULK_BYTES + 100) /* Two pieces, */
#define LONG_COUNT (RB_SHM_BULKS / 2 + 2)    /* so the last ones wait for buffers of second ones. */
#define ALL_COUNT (RB_SHM_PIECES / 2)        /* All that one has when all is read. */

static void *pieces_first(void *arg)
{
	return send_many(arg, LONG_COUNT, LONG_BYTES);
}

static void *pieces_other(void *arg)
{
	return recv_many(arg, LONG_COUNT, LONG_BYTES);
}

static void pieces_body(void *world)
{
	ranks_share(world);
	two_ranks(world, pieces_other, pieces_first);
}

const struct explore_case case_shm_pieces = {
	.name = "shm-pieces",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = pieces_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

/* ---- Buffers that change hands: messages cross, then go one way, then the other ---- */

static void *hands_first(void *arg)
{
	(void)send_many(arg, 2, LONG_BYTES);
	(void)recv_many(arg, 2, LONG_BYTES);
	(void)send_many(arg, 4, LONG_BYTES);
	return recv_many(arg, ALL_COUNT, LONG_BYTES);
}

static void *hands_other(void *arg)
{
	(void)send_many(arg, 2, LONG_BYTES);
	(void)recv_many(arg, 2, LONG_BYTES);
	(void)recv_many(arg, 4, LONG_BYTES);
	return send_many(arg, ALL_COUNT, LONG_BYTES);
}

/* All is read: each is held once, and each side has what the longest message needs. */
static void hands_right(const struct ranks *w)
{
	uint32_t count[2], holders[2 * RB_SHM_BULKS] = { 0 };

	for (uint32_t r = 0; r < 2; r++) {
		const struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)w->sides[r].ep;
		struct rb_shm_bulks b = ep->peers[1 - r].bulks;

		rb_shm_bulks_take(&b, atomic_load(&b.theirs_credit->given) - b.taken);
		count[r] = b.held;
		for (uint32_t i = 0; i < b.held; i++) {
			uint32_t segment = (b.free[i] & RB_SHM_BULK_OWN) != 0 ? r : 1 - r;

			holders[segment * RB_SHM_BULKS + (b.free[i] & ~RB_SHM_BULK_OWN)]++;
		}
	}
	explore_expect(count[0] >= RB_SHM_PIECES && count[1] >= RB_SHM_PIECES,
		       "the ranks hold %u and %u bulk buffers", count[0], count[1]);
	for (uint32_t i = 0; i < 2 * RB_SHM_BULKS; i++)
		explore_expect(holders[i] == 1, "%u hold bulk buffer %u", holders[i], i);
}

static void hands_body(void *world)
{
	ranks_share(world);
	two_ranks(world, hands_other, hands_first);
	hands_right(world);
}

const struct explore_case case_shm_hands = {
	.name = "shm-hands",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = hands_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

/* ---- Messages that are taken without a request, while their sender waits for room ---- */

#define NOW_LOOKS 10
#define NOW_COUNT (ROOM_COUNT + LONG_COUNT) /* Cells, then pieces: more than there is room for. */
_Static_assert(NOW_COUNT <= MESSAGES_MAX, "fits");

static size_t now_bytes(uint32_t message)
{
	return message < ROOM_COUNT ? RB_SHM_INLINE_MAX : LONG_BYTES;
}

static void *now_first(void *arg)
{
	for (uint32_t i = 0; i < NOW_COUNT; i++)
		message_send(arg, i, now_bytes(i));
	for (uint32_t i = 0; i < NOW_COUNT; i++)
		finish(arg, &((struct side *)arg)->sends[i]);
	return NULL;
}

static bool taken_now(struct side *s, uint32_t message)
{
	const struct rb_signature signature = { 0 };
	const struct rb_message m = { .peer = 1 - s->ep->rank,
				      .tag = { 0, message },
				      .signature = &signature,
				      .buffer = s->in[message],
				      .size_bytes = now_bytes(message) };

	memset(m.buffer, 0, m.size_bytes);
	for (uint32_t i = 0; i < NOW_LOOKS; i++) {
		if (s->ep->ops->recv_now(s->ep, &m) == RB_NOW_DONE) {
			message_right(s, message, m.size_bytes);
			return true;
		}
		explore_pause();
	}
	return false;
}

/* What has not come, or is behind the wish of a sender that sleeps, takes a request. */
static void *now_other(void *arg)
{
	for (uint32_t i = 0; i < NOW_COUNT; i++) {
		if (taken_now(arg, i))
			continue;
		message_recv(arg, i, now_bytes(i));
		finish_recv(arg, i);
	}
	return NULL;
}

static void now_body(void *world)
{
	ranks_share(world);
	two_ranks(world, now_other, now_first);
}

const struct explore_case case_shm_now = {
	.name = "shm-now",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = now_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};

/* ---- Parcels both ways, then one way, more than the ring has cells ---- */

#define PARCELS_BOTH 4u
#define PARCELS_ONE_WAY (RB_SHM_CELLS + 20)

/* Whether it is done. */
static bool parcel_now(struct side *s, uint64_t tag, uint64_t *word, bool sends)
{
	const struct rb_signature signature = { 0 };
	const struct rb_parcel parcel = {
		.peer = 1 - s->ep->rank, .size_bytes = 8, .tag_step = tag, .sends = sends
	};
	void *const buffers[] = { word };
	struct rb_parcels parcels = { .parcels = &parcel,
				      .end = 1,
				      .looks = tag % 2 *
					       2, /* With pauses, in which the other goes on. */
				      .signature = &signature,
				      .buffers = buffers };

	return s->ep->ops->parcels_now(s->ep, &parcels) == RB_NOW_DONE;
}

/* What is not done at once takes a request. */
static void parcel(struct side *s, uint64_t tag, bool sends)
{
	uint64_t word = sends ? tag * 3 + s->ep->rank : UINT64_MAX;
	struct rb_request *r = sends ? &s->sends[0] : &s->recvs[0];

	if (!parcel_now(s, tag, &word, sends)) {
		*r = (struct rb_request) {
			.peer = 1 - s->ep->rank, .tag = { 0, tag }, .buffer = &word, .size_bytes = 8
		};
		(sends ? s->ep->ops->send : s->ep->ops->recv)(s->ep, r);
		finish(s, r);
	}
	explore_expect(sends || word == tag * 3 + 1 - s->ep->rank, "rank %u: parcel %llu is %llu",
		       s->ep->rank, (unsigned long long)tag, (unsigned long long)word);
}

static void *parcels_side(void *arg)
{
	struct side *s = arg;

	for (uint64_t i = 0; i < PARCELS_BOTH; i++) {
		parcel(s, i, true);
		parcel(s, i, false);
	}
	for (uint64_t i = 0; i < PARCELS_ONE_WAY; i++)
		parcel(s, PARCELS_BOTH + i, s->ep->rank == 0);
	return NULL;
}

static void parcels_body(void *world)
{
	ranks_share(world);
	two_ranks(world, parcels_side, parcels_side);
}

const struct explore_case case_shm_parcels = {
	.name = "shm-parcels",
	.open = ranks_open,
	.begin = begin_wrapping,
	.body = parcels_body,
	.end = ranks_end,
	.close = ranks_close,
	.points_max = 5000,
};
