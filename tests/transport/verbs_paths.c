/*
 * verbs_paths.c -- messages of the verbs transport, and the same transfers by a plain loop, for
 * test_verbs_paths.py to count their instructions: verbs_paths WHOSE WHAT TIMES.
 *
 *   WHOSE   ours    messages and puts
 *           beside  likewise, while a message that nobody receives lies aside at each end
 *           queue   small, put: what they take of the transport below messages, which is posting
 *                   and completing: a head of no message, the same writes
 *           plain
 *   WHAT    small   8 bytes there and back
 *           put     1 MiB there and back, from region to region, whose key is known
 *           large   1 MiB there and back, between regions
 *           bare    likewise, between buffers that are registered for the message
 *
 * Two endpoints, or two pairs of queues, in one thread on mock devices. The plain loop sends what
 * the transport sends, and as a program without a transport would: a head with tag, signature,
 * size, number and what is given back, filled for each message, its payload copied behind it; into
 * receives that it posts again, of eight one that tells its completion. It counts the peer's slots
 * and its own entries, and takes a message that has the number, tag, signature and size that are
 * due. A put is four writes and a message behind them, a large message has an invitation as well.
 * It has one peer, one rail, one message at a time that it knows to be next, and it ends where
 * anything fails: it keeps nothing that could be sent again.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/verbs-mock/mock.h"
#include "tests/verbs-mock/pair.h"
#include "transport/transport.h"
#include "transport/verbs/verbs.h"

#define LARGE ((size_t)1 << 20)
#define SMALL 8u
#define DEADLINE_NS 20000000000u

static void demand(bool so, const char *what)
{
	if (so)
		return;
	(void)fprintf(stderr, "verbs_paths: %s; %s\n", what, rubato_error_text());
	exit(1);
}

enum what { SMALL_ONE, PUT, LARGE_ONE, BARE };
static const char *const whats[] = { "small", "put", "large", "bare" };

/* ---- Ours ---- */

struct side {
	struct rb_endpoint *ep;
	struct rb_region *region;
	struct rb_where where;
	struct rb_region *regions[1];
	struct rb_remote *remote; /* The other's. */
	uint8_t address[2][RB_ADDRESS_BYTES_MAX];
	size_t address_bytes[2];
};

static const struct rb_transport_ops *const ops = &rb_transport_verbs;

static void *side_connect(void *arg)
{
	struct side *end = arg;
	const void *addresses[2] = { end->address[0], end->address[1] };
	bool use[2] = { true, true };
	rubato_status err = ops->connect(end->ep, addresses, end->address_bytes, use,
					 rb_clock_ns() + DEADLINE_NS);

	demand(err == RUBATO_OK, "no connection");
	return NULL;
}

static void remote_open(struct side *end, const struct side *other)
{
	uint8_t key[RB_KEY_BYTES_MAX];
	size_t bytes = sizeof(key);

	demand(ops->region_key(other->ep, other->region, key, &bytes) == RUBATO_OK &&
		       ops->remote_open(end->ep, other->ep->rank, key, bytes, &end->remote) ==
			       RUBATO_OK,
	       "no key");
}

static void ends_open(struct side ends[2])
{
	pthread_t thread;

	for (uint32_t r = 0; r < 2; r++) {
		struct rb_transport_options options = { .rank = r, .rank_count = 2 };
		size_t bytes = RB_ADDRESS_BYTES_MAX;

		demand(ops->open(&options, &ends[r].ep) == RUBATO_OK &&
			       ops->address(ends[r].ep, ends[0].address[r], &bytes) == RUBATO_OK,
		       "no endpoint");
		memcpy(ends[1].address[r], ends[0].address[r], bytes);
		ends[0].address_bytes[r] = ends[1].address_bytes[r] = bytes;
		demand(ops->region_alloc(ends[r].ep, 2 * LARGE, &ends[r].region) == RUBATO_OK,
		       "no region");
		ends[r].regions[0] = ends[r].region;
		ends[r].where =
			(struct rb_where) { ends[r].region->base, RB_MEMORY_HOST, ends[r].regions };
	}
	demand(pthread_create(&thread, NULL, side_connect, &ends[1]) == 0, "no thread");
	(void)side_connect(&ends[0]);
	(void)pthread_join(thread, NULL);
	remote_open(&ends[0], &ends[1]);
	remote_open(&ends[1], &ends[0]);
}

static void request_fill(struct rb_request *request, struct side *end, uint32_t peer,
			 struct rb_tag tag, size_t offset, size_t size_bytes, enum what what)
{
	*request = (struct rb_request) { .peer = peer,
					 .tag = tag,
					 .buffer = (uint8_t *)end->region->base + offset,
					 .size_bytes = size_bytes,
					 .where = what == BARE ? NULL : &end->where,
					 .remote = end->remote,
					 .remote_offset = LARGE };
}

/* One message from `from` to `to`, whose receive is posted first. */
static __attribute__((noinline)) void message(struct side *from, struct side *to, enum what what,
					      uint64_t number)
{
	size_t size_bytes = what == SMALL_ONE ? SMALL : LARGE;
	struct rb_tag tag = rb_tag_message(0, RB_TAG_ONESHOT, number, 0);
	struct rb_request send, receive;
	uint64_t rounds = 0;

	request_fill(&receive, to, from->ep->rank, tag, LARGE, what == PUT ? 0 : size_bytes, what);
	request_fill(&send, from, to->ep->rank, tag, 0, size_bytes, what);
	ops->recv(to->ep, &receive);
	(what == PUT ? ops->put : ops->send)(from->ep, &send);
	while (receive.state != RB_REQUEST_DONE || send.state != RB_REQUEST_DONE) {
		if (receive.state != RB_REQUEST_DONE)
			(void)ops->poll(to->ep);
		if (send.state != RB_REQUEST_DONE)
			(void)ops->poll(from->ep);
		demand(++rounds < 100000, "a message does not end");
	}
	demand(receive.status == RUBATO_OK && send.status == RUBATO_OK, "a message has failed");
}

/* Below messages: what this posts and that takes has a head, of nothing, as each message has. */
static __attribute__((noinline)) void transfer(struct side *from, struct side *to,
					       struct rb_verbs_flight *flight)
{
	static const struct rb_verbs_head head = { .message = RB_VERBS_CREDIT };
	struct rb_verbs *vb = (struct rb_verbs *)from->ep, *other = (struct rb_verbs *)to->ep;
	struct rb_verbs_link *link = rb_verbs_main(&vb->peers[to->ep->rank]);
	const struct rb_verbs_link *there = rb_verbs_main(&other->peers[from->ep->rank]);
	uint32_t taken = there->taken;
	uint64_t rounds = 0;

	if (flight != NULL) {
		flight->moved = 0;
		demand(rb_verbs_write_pieces(vb, flight), "no room for writes");
		link->untold = 1; /* The head tells that they have ended. */
	}
	demand(rb_verbs_link_say(vb, link, &head, from->region->base, flight != NULL ? 0 : SMALL),
	       "no room for a message");
	rb_verbs_ring(vb);
	while (there->taken == taken || (flight != NULL && flight->out > 0)) {
		if (there->taken == taken)
			(void)rb_verbs_progress(other);
		else
			(void)rb_verbs_progress(vb);
		demand(++rounds < 100000, "a transfer does not end");
	}
}

static struct rb_verbs_flight *flight_make(struct side *from, struct side *to,
					   struct rb_request *put)
{
	const struct rb_verbs_remote *remote = (const struct rb_verbs_remote *)from->remote;
	struct rb_verbs *vb = (struct rb_verbs *)from->ep;
	struct rb_verbs_flight *flight;

	request_fill(put, from, to->ep->rank, rb_tag(0, RB_TAG_ONESHOT, 0, 0), 0, LARGE, PUT);
	demand(rb_verbs_flight_begin(vb, put, &flight) == RUBATO_OK, "no flight");
	demand(rb_verbs_register(vb, flight, false) == RUBATO_OK, "not registered");
	flight->address = remote->address + LARGE;
	memcpy(flight->keys, remote->keys, sizeof(flight->keys));
	return flight;
}

static void queue(enum what what, long times)
{
	static struct side ends[2];
	struct rb_request puts[2];
	struct rb_verbs_flight *flights[2] = { NULL, NULL };

	ends_open(ends);
	for (uint32_t r = 0; r < 2 && what == PUT; r++)
		flights[r] = flight_make(&ends[r], &ends[1 - r], &puts[r]);
	for (long i = 0; i < times; i++) {
		transfer(&ends[0], &ends[1], flights[0]);
		transfer(&ends[1], &ends[0], flights[1]);
	}
	for (uint32_t r = 0; r < 2 && what == PUT; r++)
		rb_verbs_flight_end((struct rb_verbs *)ends[r].ep, flights[r]);
	ops->close(ends[0].ep, false, rb_clock_ns());
	ops->close(ends[1].ep, true, rb_clock_ns());
}

static bool count_visit(void *arg, uint32_t peer, struct rb_tag tag,
			const struct rb_signature *signature)
{
	(void)peer, (void)tag, (void)signature;
	++*(uint32_t *)arg;
	return false;
}

static void set_aside(struct side *from, struct side *to)
{
	struct rb_request send;
	uint32_t count = 0;

	request_fill(&send, from, to->ep->rank, rb_tag_message(1, RB_TAG_ONESHOT, 0, 0), 0, SMALL,
		     SMALL_ONE);
	ops->send(from->ep, &send);
	for (uint64_t rounds = 0; send.state != RB_REQUEST_DONE || count == 0; rounds++) {
		(void)ops->poll(from->ep);
		(void)ops->poll(to->ep);
		(void)ops->unmatched(to->ep, count_visit, &count);
		demand(rounds < 100000, "a message is not put aside");
	}
}

static void ours_beside(enum what what, long times, bool beside)
{
	static struct side ends[2];

	ends_open(ends);
	for (uint32_t r = 0; r < 2 && beside; r++)
		set_aside(&ends[r], &ends[1 - r]);
	for (long i = 0; i < times; i++) {
		message(&ends[0], &ends[1], what, 2 * (uint64_t)i);
		message(&ends[1], &ends[0], what, 2 * (uint64_t)i + 1);
	}
	ops->close(ends[0].ep, false, rb_clock_ns());
	ops->close(ends[1].ep, true, rb_clock_ns());
}

static void ours(enum what what, long times)
{
	ours_beside(what, times, false);
}

static void beside(enum what what, long times)
{
	ours_beside(what, times, true);
}

/* ---- Plain ---- */

#define QUEUE 128u /* Entries, as the transport has in a small job. */
#define RECEIVES 64u
#define SIGNAL_EACH 8u
#define COMPLETIONS 16
#define PIECE ((uint32_t)1 << 18)
#define WINDOW 56u

struct plain {
	struct end end;
	uint32_t rkey, unsignalled, posted, retired; /* Entries. */
	uint32_t sent, known, reposted;              /* Slots. */
	uint32_t number, their_number;
	uint64_t remote;
	struct rb_verbs_head head;
	uint8_t payload[SMALL + sizeof(struct rb_verbs_target)];
};

struct letter { /* What both ends know of a message. */
	struct rb_tag tag;
	struct rb_signature signature;
	size_t size_bytes;
	void *from, *to;
};

static void plain_receive(struct plain *p, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)p->end.memory + slot * RB_VERBS_SLOT_BYTES,
			       RB_VERBS_SLOT_BYTES, p->end.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	demand(ibv_post_recv(p->end.qp, &wr, &bad) == 0, "a receive cannot be posted");
}

/* Into the head and behind it; how long it is. */
static uint32_t plain_fill(struct plain *p, const struct letter *letter, uint8_t message)
{
	demand(p->sent - p->known < WINDOW && p->posted - p->retired < QUEUE, "no room");
	p->sent++;
	p->head = (struct rb_verbs_head) { .message = message,
					   .bytes = (uint16_t)letter->size_bytes,
					   .consumed = p->reposted,
					   .number = p->number++,
					   .tag = letter->tag,
					   .signature = letter->signature,
					   .size_bytes = letter->size_bytes };
	if (letter->size_bytes > 0)
		memcpy(p->payload, letter->from, letter->size_bytes);
	return (uint32_t)(sizeof(p->head) + letter->size_bytes);
}

static void plain_send(struct plain *p, const struct letter *letter)
{
	struct ibv_sge sge = { (uintptr_t)&p->head, plain_fill(p, letter, RB_VERBS_EAGER), 0 };
	struct ibv_send_wr *bad, wr = { .wr_id = UINT64_C(1) << 63 | ++p->posted,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_INLINE };

	if (++p->unsignalled == SIGNAL_EACH) {
		p->unsignalled = 0;
		wr.send_flags |= IBV_SEND_SIGNALED;
	}
	demand(ibv_post_send(p->end.qp, &wr, &bad) == 0, "a message cannot be posted");
}

/* It is the one that is due. */
static void plain_arrived(struct plain *p, const struct letter *letter, const struct ibv_wc *wc)
{
	const uint8_t *slot = p->end.memory + wc->wr_id * RB_VERBS_SLOT_BYTES;
	const struct rb_verbs_head *head = (const void *)slot;

	demand(wc->byte_len == sizeof(*head) + head->bytes && head->number == p->their_number++ &&
		       head->consumed - p->known <= p->sent - p->known &&
		       rb_tag_same(head->tag, letter->tag) &&
		       rb_signature_same(&head->signature, &letter->signature) &&
		       head->size_bytes == letter->size_bytes,
	       "a message is another one");
	p->known = head->consumed;
	if (head->bytes > 0)
		memcpy(letter->to, head + 1, head->bytes);
	plain_receive(p, (uint32_t)wc->wr_id);
	p->reposted++;
}

/* Until a message has come, or (NULL) all that was posted has completed. */
static void plain_take(struct plain *p, const struct letter *letter)
{
	struct ibv_wc wc[COMPLETIONS];
	bool came = false;

	for (uint32_t rounds = 0; letter != NULL ? !came : p->retired != p->posted; rounds++) {
		int count = ibv_poll_cq(p->end.cq, COMPLETIONS, wc);

		demand(count >= 0 && rounds < 100000, "nothing comes");
		for (int i = 0; i < count; i++) {
			demand(wc[i].status == IBV_WC_SUCCESS, "a completion has failed");
			if (wc[i].wr_id >> 63 != 0) {
				p->retired = (uint32_t)wc[i].wr_id;
				continue;
			}
			demand(letter != NULL, "a message that is not due");
			plain_arrived(p, letter, &wc[i]);
			came = true;
		}
	}
}

/* The pieces of 1 MiB by one doorbell, and the message behind them that tells the completion. */
static void plain_write(struct plain *p, const struct letter *letter, size_t size_bytes)
{
	struct ibv_send_wr wr[LARGE / PIECE + 1] = { 0 }, *bad;
	struct ibv_sge sge[LARGE / PIECE + 1];
	uint32_t count = 0;

	for (size_t at = 0; at < size_bytes; at += PIECE, count++) {
		size_t bytes = size_bytes - at < PIECE ? size_bytes - at : PIECE;

		demand(p->posted - p->retired < QUEUE, "no room");
		sge[count] = (struct ibv_sge) { (uintptr_t)p->end.memory + at, (uint32_t)bytes,
						p->end.mr->lkey };
		wr[count].wr_id = UINT64_C(1) << 63 | ++p->posted;
		wr[count].sg_list = &sge[count];
		wr[count].num_sge = 1;
		wr[count].opcode = IBV_WR_RDMA_WRITE;
		wr[count].wr.rdma.remote_addr = p->remote + at;
		wr[count].wr.rdma.rkey = p->rkey;
		wr[count].next = &wr[count + 1];
	}
	sge[count] =
		(struct ibv_sge) { (uintptr_t)&p->head, plain_fill(p, letter, RB_VERBS_PUT), 0 };
	wr[count].wr_id = UINT64_C(1) << 63 | ++p->posted;
	wr[count].sg_list = &sge[count];
	wr[count].num_sge = 1;
	wr[count].opcode = IBV_WR_SEND;
	wr[count].send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	p->unsignalled = 0;
	demand(ibv_post_send(p->end.qp, wr, &bad) == 0, "writes cannot be posted");
}

static struct ibv_mr *plain_register(struct plain *p, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(p->end.pd, p->end.memory, LARGE, access);

	demand(mr != NULL, "no registration");
	return mr;
}

static __attribute__((noinline)) void plain_message(struct plain *from, struct plain *to,
						    const struct letter *letter, enum what what)
{
	struct ibv_mr *source = NULL, *target = NULL;
	struct rb_verbs_target invitation = { .address = to->remote };
	struct letter other = *letter;

	if (what == SMALL_ONE) {
		plain_send(from, letter);
		plain_take(to, letter);
		return;
	}
	if (what == BARE) {
		target = plain_register(to, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		source = plain_register(from, 0);
	}
	if (what != PUT) {
		other.size_bytes = sizeof(invitation);
		other.from = other.to = &invitation;
		plain_send(to, &other);
		plain_take(from, &other);
	}
	other.size_bytes = 0;
	plain_write(from, &other, LARGE);
	plain_take(to, &other);
	plain_take(from, NULL);
	if (what == BARE)
		demand(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0,
		       "a registration does not end");
}

/* pair.c's own way is for tests alone. */
static void end_make(struct end *end)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { QUEUE, RECEIVES, 1, 1, 220 } };
	struct ibv_device **list = ibv_get_device_list(NULL);

	demand(list != NULL && (end->context = ibv_open_device(list[0])) != NULL, "no device");
	ibv_free_device_list(list);
	demand((end->pd = ibv_alloc_pd(end->context)) != NULL, "no protection domain");
	demand((end->memory = calloc(1, END_BYTES)) != NULL, "no memory");
	end->mr = ibv_reg_mr(end->pd, end->memory, END_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	end->cq = ibv_create_cq(end->context, QUEUE + RECEIVES, NULL, NULL, 0);
	demand(end->mr != NULL && end->cq != NULL, "no key, or no completion queue");
	init.send_cq = init.recv_cq = end->cq;
	demand((end->qp = ibv_create_qp(end->pd, &init)) != NULL, "no queue pair");
}

static void end_join(struct end *end, const struct end *other)
{
	struct address address = { .qpn = other->qp->qp_num };
	struct ibv_qp_attr init = end_init_attr(), rtr, rts = end_rts_attr();

	demand(ibv_query_gid(other->context, 1, 3, &address.gid) == 0, "no GID");
	rtr = end_rtr_attr(&address);
	demand(ibv_modify_qp(end->qp, &init, INIT_MASK) == 0 &&
		       ibv_modify_qp(end->qp, &rtr, RTR_MASK) == 0 &&
		       ibv_modify_qp(end->qp, &rts, RTS_MASK) == 0,
	       "a queue pair cannot be readied");
}

static void end_drop(struct end *end)
{
	demand(ibv_destroy_qp(end->qp) == 0 && ibv_destroy_cq(end->cq) == 0 &&
		       ibv_dereg_mr(end->mr) == 0 && ibv_dealloc_pd(end->pd) == 0 &&
		       ibv_close_device(end->context) == 0,
	       "what was made cannot be dropped");
	free(end->memory);
}

/* What a caller does. */
static __attribute__((noinline)) void plain_letter(struct plain *from, struct plain *to,
						   enum what what, uint64_t number)
{
	uint64_t payload = number, got = 0;
	struct letter letter = { .tag = rb_tag_message(0, RB_TAG_ONESHOT, number, 0),
				 .size_bytes = SMALL,
				 .from = &payload,
				 .to = &got };

	plain_message(from, to, &letter, what);
	demand(what != SMALL_ONE || got == payload, "a message is another one");
}

static void plain(enum what what, long times)
{
	static struct plain sides[2];

	for (uint32_t r = 0; r < 2; r++)
		end_make(&sides[r].end);
	for (uint32_t r = 0; r < 2; r++) {
		end_join(&sides[r].end, &sides[1 - r].end);
		sides[r].remote = (uintptr_t)sides[1 - r].end.memory;
		sides[r].rkey = sides[1 - r].end.mr->rkey;
		for (uint32_t i = 0; i < RECEIVES; i++)
			plain_receive(&sides[r], i);
	}
	for (long i = 0; i < times; i++) {
		plain_letter(&sides[0], &sides[1], what, 2 * (uint64_t)i);
		plain_letter(&sides[1], &sides[0], what, 2 * (uint64_t)i + 1);
	}
	end_drop(&sides[0].end);
	end_drop(&sides[1].end);
}

/* Calls of libibverbs that move messages, of all. */
static uint64_t entries(void)
{
	static const char *const names[] = { "ibv_post_send",     "ibv_post_recv", "ibv_poll_cq",
					     "ibv_req_notify_cq", "ibv_reg_mr",    "ibv_dereg_mr" };
	uint64_t count = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		count += mock_call_count(names[i]);
	return count;
}

int main(int argc, char **argv)
{
	static void (*const ways[])(enum what what, long times) = { ours, beside, queue, plain };
	static const char *const whose[] = { "ours", "beside", "queue", "plain" };
	struct mock_config config;
	uint32_t way = 0, what = 0;

	while (argc == 4 && way < 4 && strcmp(argv[1], whose[way]) != 0)
		way++;
	while (argc == 4 && what < 4 && strcmp(argv[2], whats[what]) != 0)
		what++;
	if (argc != 4 || way == 4 || what == 4)
		return fprintf(stderr,
			       "verbs_paths: ours|beside|queue|plain small|put|large|bare TIMES\n"),
		       2;
	mock_config_default(&config);
	config.thread = 0;
	demand(mock_reset(&config) == 0, "no world");
	ways[way]((enum what)what, strtol(argv[3], NULL, 10));
	printf("%llu entries\n", (unsigned long long)entries());
	return 0;
}
