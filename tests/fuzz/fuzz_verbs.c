/*
 * fuzz_verbs.c -- what a peer may send over verbs. The script is rank 0's own doing (posts,
 * cancels, polls, regions) and, between that, what rank 1's device is told to send: heads of every
 * kind and of none, payloads, counts, invitations, RDMA writes within and beside what rank 0 has
 * invited.
 * Whatever comes, rank 0 touches nothing that is not its own or rank 1's to give, no receive waits
 * beside its message, and a lost peer leaves no request behind.
 *
 * Both ends are connected as in a job, on mock devices. Then nobody polls rank 1: the script is all
 * there is of it. Its heads are right unless the script says otherwise, so that they go far.
 */
#include "tests/fuzz/fuzz_verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/verbs-mock/mock.h"
#include "transport/verbs/verbs.h"

#define REQUESTS 8u
#define REGIONS 3u
#define INVITES 4u
#define SENDS 64u
#define SINK_BYTES 65536u
#define OPS_MAX 400u /* A script goes no further. */
#define OPS_LOST 30u /* Nor long beyond the loss of rank 1. */
#define LIMIT_NS 20000000000u

#define FAST 20u

/*
 * Nobody answers rank 0: what it waits for ends by the clock, which runs FAST times as fast as that
 * of base/clock.c, whose place these two take.
 */
uint64_t rb_clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * FAST;
}

void rb_clock_sleep_until(uint64_t when_ns)
{
	uint64_t ns = when_ns / FAST;
	struct timespec when = { .tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

struct invite { /* Of rank 0, as it came. */
	uint64_t id;
	struct rb_verbs_target target;
};

struct fuzz {
	struct rb_endpoint *base[2];
	uint8_t address[2][RB_ADDRESS_BYTES_MAX];
	size_t address_bytes[2];
	pthread_barrier_t barrier;
	struct rb_verbs *vb, *theirs;
	struct fuzz_script script;
	struct rb_request requests[REQUESTS];
	struct rb_region *regions[REGIONS];
	struct rb_remote *remotes[REGIONS];
	void *memory[REGIONS];
	/* Rank 1's. */
	struct ibv_mr *sends_mr[RB_VERBS_RAILS_MAX], *sink_mr[RB_VERBS_RAILS_MAX];
	uint8_t *sends, *sink;
	uint32_t turn, number; /* Of the next one to send from, and of the stream. */
	uint32_t sent[RB_VERBS_RAILS_MAX], known[RB_VERBS_RAILS_MAX], reposted[RB_VERBS_RAILS_MAX];
	struct invite invites[INVITES];
	uint32_t invite_count;
	uint64_t left_bytes; /* Of its message whose MORE comes next. */
	uint64_t announced;  /* The last send of rank 0 that waits to be invited. */
	uint32_t got;
};

/* Sizes and ids at which something could go wrong; 0 and the script's own bytes among them. */
static uint64_t edge(struct fuzz *f)
{
	static const uint64_t edges[] = {
		0,
		1,
		2,
		8,
		RB_VERBS_PAYLOAD_MAX,
		RB_VERBS_PAYLOAD_MAX + 1,
		4096,
		RB_VERBS_EAGER_MAX,
		RB_VERBS_EAGER_MAX + 1,
		SINK_BYTES,
		SINK_BYTES + 1,
		UINT64_C(1) << 31,
		UINT64_C(1) << 32,
		(UINT64_C(1) << 32) + 1,
		UINT64_MAX - 63,
		UINT64_MAX - 1,
		UINT64_MAX,
	};
	uint8_t which = fuzz_take_u8(&f->script);

	if (which < sizeof(edges) / sizeof(edges[0]))
		return edges[which];
	return which < 200 ? which % 8 : fuzz_take_u64(&f->script);
}

static struct rb_signature signature(uint8_t which)
{
	return (struct rb_signature) { .kind = 1, .count = which % 2 };
}

static struct rb_verbs_peer *peer_of(const struct fuzz *f)
{
	return &f->vb->peers[1];
}

/* ---- Rank 1 ---- */

static void they_repost(struct fuzz *f, const struct rb_verbs_link *link, uint32_t slot)
{
	struct ibv_sge part = { (uintptr_t)(link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES),
				RB_VERBS_SLOT_BYTES, link->rail->slots_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RB_VERBS_RECEIVED | link->word | slot,
				  .sg_list = &part,
				  .num_sge = 1 },
			   *bad;

	if (ibv_post_recv(link->qp, &wr, &bad) == 0)
		f->reposted[link->index]++;
}

static void they_read(struct fuzz *f, const struct rb_verbs_link *link, uint32_t slot)
{
	const struct rb_verbs_head *head =
		(const void *)(link->slots + (size_t)slot * RB_VERBS_SLOT_BYTES);
	struct invite *invite = &f->invites[f->invite_count % INVITES];

	f->known[link->index] = head->consumed;
	if (head->message == RB_VERBS_ANNOUNCE)
		f->announced = head->id;
	if (head->message != RB_VERBS_CLEAR || head->bytes != sizeof(invite->target))
		return;
	invite->id = head->id;
	memcpy(&invite->target, head + 1, sizeof(invite->target));
	f->invite_count++;
}

static void they_take(struct fuzz *f)
{
	for (uint32_t i = 0; i < f->theirs->rail_count; i++) {
		const struct rb_verbs_link *link = &f->theirs->peers[0].links[i];
		struct ibv_wc wc;

		while (ibv_poll_cq(f->theirs->rails[i].cq, 1, &wc) == 1) {
			if ((wc.wr_id & RB_VERBS_RECEIVED) == 0 || wc.status != IBV_WC_SUCCESS)
				continue;
			they_read(f, link, (uint32_t)wc.wr_id);
			they_repost(f, link, (uint32_t)wc.wr_id);
		}
	}
}

/* The rail by which rank 0 expects messages. */
static uint32_t their_rail(struct fuzz *f)
{
	uint8_t which = fuzz_take_u8(&f->script);

	return which < 200 ? f->vb->peers[1].main->index : which % f->theirs->rail_count;
}

static void they_post(struct fuzz *f, uint32_t rail, struct ibv_send_wr *wr)
{
	struct rb_verbs_link *link = &f->theirs->peers[0].links[rail];
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	if (link->qp != NULL)
		(void)ibv_post_send(link->qp, wr, &bad);
}

static uint32_t payload_make(struct fuzz *f, uint8_t message, uint32_t rail, uint8_t *payload)
{
	struct rb_verbs_target target = { .send = f->announced };
	struct rb_verbs_greeting greeting;
	uint32_t bytes;

	switch (message) {
	case RB_VERBS_CLEAR:
		target.address = (uintptr_t)f->sink + edge(f) % (2 * SINK_BYTES);
		for (uint32_t i = 0; i < f->theirs->rail_count; i++)
			target.keys[i] = fuzz_take_u8(&f->script) < 200 ? f->sink_mr[i]->rkey : 0;
		memcpy(payload, &target, sizeof(target));
		return sizeof(target);
	case RB_VERBS_HELLO:
	case RB_VERBS_RISE:
		if (f->theirs->peers[0].links[rail].qp == NULL)
			return 0;
		greeting = rb_verbs_greeting_to(&f->theirs->peers[0].links[rail]);
		greeting.life += fuzz_take_u8(&f->script) % 3;
		memcpy(payload, &greeting, sizeof(greeting));
		return sizeof(greeting);
	case RB_VERBS_ABORT:
		fuzz_take(&f->script, payload, RB_LAST_WORDS_BYTES);
		return fuzz_take_u8(&f->script) < 128 ? RB_LAST_WORDS_BYTES : 0;
	case RB_VERBS_MORE:
		bytes = (uint32_t)(edge(f) % RB_VERBS_PAYLOAD_MAX) + 1;
		return bytes < f->left_bytes ? bytes : (uint32_t)f->left_bytes;
	case RB_VERBS_EAGER:
	case RB_VERBS_DATA:
		return (uint32_t)(edge(f) % (RB_VERBS_PAYLOAD_MAX + 1));
	default:
		return 0;
	}
}

/* Its own flights have small numbers; those of rank 0 are as they came. */
static uint64_t id_make(struct fuzz *f, uint8_t message)
{
	uint8_t which = fuzz_take_u8(&f->script);

	if (which >= 240)
		return edge(f);
	switch (message) {
	case RB_VERBS_RESUME:
		return peer_of(f)->links[which % f->theirs->rail_count].life + which / 80;
	case RB_VERBS_CLEAR:
	case RB_VERBS_ANNOUNCE:
	case RB_VERBS_GONE:
	case RB_VERBS_MARK:
		return 1 + which % 3;
	case RB_VERBS_DROP:
		return f->announced;
	default:
		return f->invites[which % INVITES].id;
	}
}

/* Those that ranks say; a few that they do not. */
static uint8_t message_make(struct fuzz *f)
{
	static const uint8_t messages[] = {
		RB_VERBS_EAGER,  RB_VERBS_EAGER,    RB_VERBS_EAGER,  RB_VERBS_EAGER,
		RB_VERBS_MORE,   RB_VERBS_ANNOUNCE, RB_VERBS_CLEAR,  RB_VERBS_CLEAR,
		RB_VERBS_CLEAR,  RB_VERBS_REFUSED,  RB_VERBS_DROP,   RB_VERBS_GONE,
		RB_VERBS_DATA,   RB_VERBS_FIN,      RB_VERBS_FIN,    RB_VERBS_STOP,
		RB_VERBS_KEPT,   RB_VERBS_STOPPED,  RB_VERBS_ENDED,  RB_VERBS_PUT,
		RB_VERBS_CREDIT, RB_VERBS_MARK,     RB_VERBS_RESUME, RB_VERBS_RISE,
	};
	uint8_t which = fuzz_take_u8(&f->script), message = messages[which % sizeof(messages)];

	if (which >= 250)
		return which % (RB_VERBS_ABORT + 2);
	if (message == RB_VERBS_EAGER || message == RB_VERBS_MORE)
		return f->left_bytes > 0 ? RB_VERBS_MORE : RB_VERBS_EAGER;
	return message;
}

static uint64_t size_make(struct fuzz *f, uint8_t message, uint8_t tag, uint16_t bytes)
{
	if (message != RB_VERBS_EAGER || tag >= 250)
		return edge(f);
	return tag % 8 < 6 || bytes == 0 ? bytes : bytes + edge(f) % (RB_VERBS_EAGER_MAX - bytes);
}

static struct rb_verbs_head head_make(struct fuzz *f, uint32_t rail, uint8_t *payload)
{
	uint8_t message = message_make(f), tag = fuzz_take_u8(&f->script);
	struct rb_verbs_head head = { .message = message,
				      .bytes = (uint16_t)payload_make(f, message, rail, payload),
				      .consumed = f->reposted[rail],
				      .freed = peer_of(f)->spent,
				      .number = f->number,
				      .tag = { 0, tag % 4 },
				      .signature = signature(tag >> 4) };

	head.size_bytes = size_make(f, message, tag, head.bytes);
	head.id = id_make(f, message);
	if (message == RB_VERBS_EAGER)
		f->left_bytes = head.size_bytes > head.bytes ? head.size_bytes : head.bytes;
	if (message == RB_VERBS_EAGER || message == RB_VERBS_MORE)
		f->left_bytes -= head.bytes;
	if (message == RB_VERBS_RESUME)
		head.size_bytes = peer_of(f)->links[rail].sent;
	if (message == RB_VERBS_RESUME)
		head.rails = tag % (uint8_t)(f->theirs->rail_count + (tag >= 250));
	if (message == RB_VERBS_MARK)
		head.rails = (uint8_t)(1u << tag % f->theirs->rail_count);
	else if (tag >= 240) /* Of an end that has MARKs to wait for. */
		head.rails = tag % 4;
	return head;
}

/* One byte of it, or none. */
static void head_spoil(struct fuzz *f, struct rb_verbs_head *head)
{
	uint8_t which = fuzz_take_u8(&f->script);

	if (which >= 250)
		((uint8_t *)head)[fuzz_take_u8(&f->script) % sizeof(*head)] ^=
			(uint8_t)(1u << which % 8);
}

static void they_say(struct fuzz *f)
{
	uint32_t rail = their_rail(f);
	uint8_t *at = f->sends + (size_t)(f->turn++ % SENDS) * RB_VERBS_SLOT_BYTES;
	struct ibv_sge part = { .addr = (uintptr_t)at, .lkey = f->sends_mr[rail]->lkey };
	struct ibv_send_wr wr = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct rb_verbs_head head;

	/* More would find no receive: the device tells of that. */
	if (f->sent[rail] - f->known[rail] >= f->theirs->peers[0].slots_each)
		return;
	head = head_make(f, rail, at + sizeof(head));
	part.length = (uint32_t)sizeof(head) + head.bytes;
	f->number += rb_verbs_is_numbered(head.message);
	head_spoil(f, &head);
	memcpy(at, &head, sizeof(head));
	if (fuzz_take_u8(&f->script) >= 253)
		part.length = fuzz_take_u8(&f->script);
	they_post(f, rail, &wr);
	f->sent[rail]++;
}

/* Where it was invited to, or beside that. */
static void they_write(struct fuzz *f)
{
	uint32_t rail = their_rail(f);
	const struct invite *invite = &f->invites[fuzz_take_u8(&f->script) % INVITES];
	uint64_t offset = fuzz_take_u8(&f->script) % 8 * 512, bytes = edge(f) % 4096;
	struct ibv_sge part = { (uintptr_t)f->sends, (uint32_t)bytes, f->sends_mr[rail]->lkey };
	struct ibv_send_wr wr = { .sg_list = &part, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	if (invite->id == 0 || invite->target.keys[rail] == 0)
		return;
	wr.wr.rdma.remote_addr = invite->target.address + offset;
	wr.wr.rdma.rkey = invite->target.keys[rail];
	they_post(f, rail, &wr);
	if (rb_verbs_flight_find(f->vb, invite->id) != NULL)
		f->got |= FUZZ_VERBS_WRITTEN;
}

static void use_key(struct fuzz *f)
{
	uint8_t key[RB_VERBS_KEY_BYTES + 8], kind = fuzz_take_u8(&f->script);
	struct rb_wire w = rb_wire_over(key, sizeof(key));
	uint32_t which = kind % REGIONS;

	if (f->remotes[which] != NULL)
		return;
	if (kind < 200) {
		rb_wire_put_u64(&w, (uintptr_t)f->sink + edge(f) % SINK_BYTES);
		rb_wire_put_u64(&w, edge(f));
		for (uint32_t i = 0; i < RB_VERBS_RAILS_MAX; i++)
			rb_wire_put_u32(&w, i < f->theirs->rail_count ? f->sink_mr[i]->rkey : 0);
		rb_wire_put_u8(&w, kind / REGIONS % 4);
	} else {
		fuzz_take(&f->script, key, sizeof(key));
		w.at = key + kind % sizeof(key);
	}
	if (rb_transport_verbs.remote_open(f->base[0], 1, key, (size_t)(w.at - key),
					   &f->remotes[which]) == RUBATO_OK)
		f->got |= FUZZ_VERBS_OPENED;
	else
		FUZZ_CHECK(f->remotes[which] == NULL);
}

/* ---- Rank 0 ---- */

static void post(struct fuzz *f, uint8_t op)
{
	uint8_t which = fuzz_take_u8(&f->script), tag = fuzz_take_u8(&f->script);
	struct rb_request *q = &f->requests[which % REQUESTS];
	uint64_t size = edge(f) % (2 * SINK_BYTES);
	struct rb_remote *remote = f->remotes[which % REGIONS];

	if (q->state == RB_REQUEST_PENDING || (op == 2 && remote == NULL))
		return;
	free(q->buffer);
	*q = (struct rb_request) { .peer = which < 240,
				   .tag = { 0, tag % 4 },
				   .signature = signature(tag >> 4),
				   .buffer = calloc(1, size), /* Exactly: sanitizers see more. */
				   .size_bytes = size };
	if (op == 2) {
		q->remote = remote;
		q->remote_offset = edge(f);
		rb_transport_verbs.put(f->base[0], q);
	} else if (op == 1) {
		rb_transport_verbs.send(f->base[0], q);
	} else {
		rb_transport_verbs.recv(f->base[0], q);
	}
}

static void cancel(struct fuzz *f)
{
	struct rb_request *q = &f->requests[fuzz_take_u8(&f->script) % REQUESTS];

	if (q->state != RB_REQUEST_PENDING)
		return;
	rb_transport_verbs.cancel(f->base[0], q);
	FUZZ_CHECK(q->state == RB_REQUEST_DONE);
}

static void region(struct fuzz *f)
{
	uint8_t which = fuzz_take_u8(&f->script);
	struct rb_region **at = &f->regions[which % REGIONS];
	void **memory = &f->memory[which % REGIONS];

	if (*at != NULL) {
		rb_transport_verbs.region_drop(f->base[0], *at);
		*at = NULL;
	} else if (which >= 128) {
		if (rb_transport_verbs.region_alloc(f->base[0], which * 100u, at) != RUBATO_OK)
			*at = NULL;
	} else {
		free(*memory);
		*memory = calloc(1, which * 100u + 1);
		if (rb_transport_verbs.region_add(f->base[0], *memory, which * 100u + 1, at) !=
		    RUBATO_OK)
			*at = NULL;
	}
}

/* ---- Laws ---- */

/* No receive waits beside its message; what lies unmatched is within rank 1's credit. While it is
 * not lost there is a way to it: rails, or TCP, which nobody answers here. */
static void laws(const struct fuzz *f)
{
	const struct rb_verbs_peer *peer = peer_of(f);

	for (uint32_t b = 0; b < RB_MATCH_BUCKETS; b++)
		for (const struct rb_request *q = peer->match.receives[b]; q != NULL; q = q->next)
			for (const struct rb_arrival *a = peer->match.arrivals[b]; a != NULL;
			     a = a->next)
				FUZZ_CHECK(!rb_tag_same(a->tag, q->tag));
	FUZZ_CHECK(peer->held <= RB_VERBS_UNITS_MAX);
	FUZZ_CHECK(peer->waiting <= RB_VERBS_WAITING_MAX);
	FUZZ_CHECK(peer->lost ? peer->live == 0 && !peer->by_tcp
			      : peer->by_tcp == (peer->live == 0));
}

static void poll_once(struct fuzz *f)
{
	struct rb_request *list = rb_transport_verbs.poll(f->base[0]);
	struct rb_failure failure;

	for (; list != NULL; list = list->next) {
		FUZZ_CHECK(list->state == RB_REQUEST_DONE);
		if (list->status == RUBATO_OK && list->kind == RB_REQUEST_RECV)
			f->got |= list->peer == 1 ? FUZZ_VERBS_RECEIVED : 0;
		else if (list->status == RUBATO_OK)
			f->got |= list->peer == 1 ? FUZZ_VERBS_SENT : 0;
		else if (list->status == RUBATO_ERR_MISMATCH)
			f->got |= FUZZ_VERBS_MISMATCH;
	}
	if (rb_transport_verbs.failure(f->base[0], &failure)) {
		FUZZ_CHECK(failure.peer == 1);
		f->got |= FUZZ_VERBS_LOST;
		for (uint32_t i = 0; i < REQUESTS; i++)
			FUZZ_CHECK(f->requests[i].state != RB_REQUEST_PENDING ||
				   f->requests[i].backend[RB_VERBS_STAGE] ==
					   RB_VERBS_STAGE_LISTED ||
				   f->requests[i].peer == 0);
	}
	f->got |= f->vb->counts.failed > 0 && !peer_of(f)->lost ? FUZZ_VERBS_DEGRADED : 0;
}

static void step(struct fuzz *f)
{
	uint8_t op = fuzz_take_u8(&f->script);

	switch (op % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		they_say(f);
		break;
	case 5:
		they_write(f);
		break;
	case 6:
		use_key(f);
		break;
	case 7:
	case 8:
		post(f, 0);
		break;
	case 9:
		post(f, 1);
		break;
	case 10:
		post(f, 2);
		break;
	case 11:
		cancel(f);
		break;
	case 12:
		region(f);
		break;
	default:
		poll_once(f);
		they_take(f);
	}
}

/* ---- The world ---- */

struct rank {
	struct fuzz *f;
	uint32_t rank;
};

static void *connect_main(void *arg)
{
	const struct rank *r = arg;
	struct fuzz *f = r->f;
	struct rb_transport_options options = { .rank = r->rank, .rank_count = 2 };
	const void *addresses[2] = { f->address[0], f->address[1] };
	bool use[2] = { true, true };
	struct rb_endpoint **ep = &f->base[r->rank];

	FUZZ_CHECK(rb_transport_verbs.open(&options, ep) == RUBATO_OK);
	FUZZ_CHECK(rb_transport_verbs.address(*ep, f->address[r->rank],
					      &f->address_bytes[r->rank]) == RUBATO_OK);
	(void)pthread_barrier_wait(&f->barrier);
	FUZZ_CHECK(rb_transport_verbs.connect(*ep, addresses, f->address_bytes, use,
					      rb_clock_ns() + LIMIT_NS) == RUBATO_OK);
	return NULL;
}

static void world_open(struct fuzz *f, uint32_t rails)
{
	struct rank ranks[2] = { { f, 0 }, { f, 1 } };
	struct mock_config config;
	pthread_t thread;

	rb_log_level_set(RB_LOG_NONE);
	mock_config_default(&config);
	config.devices = rails;
	config.thread = 0;
	FUZZ_CHECK(mock_reset(&config) == 0);
	FUZZ_CHECK(pthread_barrier_init(&f->barrier, NULL, 2) == 0);
	FUZZ_CHECK(pthread_create(&thread, NULL, connect_main, &ranks[1]) == 0);
	(void)connect_main(&ranks[0]);
	(void)pthread_join(thread, NULL);
	(void)pthread_barrier_destroy(&f->barrier);
	f->vb = (struct rb_verbs *)f->base[0];
	f->theirs = (struct rb_verbs *)f->base[1];
	f->sends = calloc(SENDS, RB_VERBS_SLOT_BYTES);
	f->sink = calloc(1, SINK_BYTES);
	f->number = peer_of(f)->their_number;
	for (uint32_t i = 0; i < f->theirs->rail_count; i++) {
		const struct rb_verbs_link *link = &f->theirs->peers[0].links[i];

		f->sends_mr[i] = f->theirs->api.ibv_reg_mr(f->theirs->rails[i].pd, f->sends,
							   SENDS * RB_VERBS_SLOT_BYTES, 0);
		f->sink_mr[i] =
			f->theirs->api.ibv_reg_mr(f->theirs->rails[i].pd, f->sink, SINK_BYTES,
						  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		FUZZ_CHECK(f->sends_mr[i] != NULL && f->sink_mr[i] != NULL);
		f->sent[i] = link->sent;
		f->known[i] = link->sent_known;
		f->reposted[i] = link->reposted;
	}
}

static void world_close(struct fuzz *f)
{
	struct mock_counters counters;

	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (f->requests[i].state == RB_REQUEST_PENDING)
			rb_transport_verbs.cancel(f->base[0], &f->requests[i]);
		FUZZ_CHECK(f->requests[i].state != RB_REQUEST_PENDING);
		free(f->requests[i].buffer);
	}
	/* Else each would wait until the other one has heard it go. */
	rb_verbs_lose(f->vb, 1, "the script is over");
	rb_verbs_lose(f->theirs, 0, "the script is over");
	rb_transport_verbs.close(f->base[0], true, 0);
	for (uint32_t i = 0; i < f->theirs->rail_count; i++) {
		(void)f->theirs->api.ibv_dereg_mr(f->sends_mr[i]);
		(void)f->theirs->api.ibv_dereg_mr(f->sink_mr[i]);
	}
	rb_transport_verbs.close(f->base[1], true, 0);
	for (uint32_t i = 0; i < REGIONS; i++)
		free(f->memory[i]);
	free(f->sends);
	free(f->sink);
	mock_counters(&counters);
	FUZZ_CHECK(counters.outside_local == 0 && counters.cq_overruns == 0);
	FUZZ_CHECK(counters.left_open == 0);
}

uint32_t fuzz_verbs_run(const uint8_t *data, size_t size_bytes)
{
	static struct fuzz f;
	uint32_t after = OPS_LOST;

	memset(&f, 0, sizeof(f));
	f.script = fuzz_script_over(data, size_bytes);
	world_open(&f, 1 + fuzz_take_u8(&f.script) % 2);
	for (uint32_t i = 0; f.script.at < f.script.end && i < OPS_MAX && after > 0; i++) {
		step(&f);
		laws(&f);
		after -= peer_of(&f)->lost;
	}
	for (uint32_t i = 0; i < 4; i++)
		poll_once(&f);
	laws(&f);
	world_close(&f);
	return f.got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	(void)fuzz_verbs_run(data, size_bytes);
	return 0;
}
