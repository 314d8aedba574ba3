/*
 * sim_net.c -- messages of the simulated network: how long they take, in which order they arrive,
 * and which receive they meet.
 *
 *   posted --latency--> at the receiver's link --link free--> arrived --their turn--> met, or kept
 *   asked for, met: --grant, latency--> at the sender --latency--> at the receiver's link --> done
 *
 * sim_way.h says which messages leave at once, on credit of their link, and which are asked for.
 *
 * A message belongs to its sender's link until it is over: `flying` in the order of the posts,
 * until it is delivered; `landed` while it waits for its receive or its data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hollow.h"
#include "transport/sim/sim_net_inside.h"
#include "transport/sim/sim_way.h"

#define BUCKETS_MIN 16
#define LINKS_MIN 8
#define HELD_ONE_IN 4     /* Guess. With reorder: so many messages ... */
#define HELD_LATENCIES 2u /* ... are held back by up to so many latencies. */

/* rb_request.backend[RB_SIM_WHERE] */
enum { NOWHERE, IN_PENDING, IN_DONE };

/* ---- Requests ---- */

static void request_begin(struct rb_request *r, enum rb_request_kind kind)
{
	r->kind = kind;
	r->state = RB_REQUEST_PENDING;
	r->status = RUBATO_OK;
	r->next = r->previous = NULL;
	memset(r->backend, 0, sizeof(r->backend));
}

static void request_end(struct rb_request *r, rubato_status status)
{
	r->state = RB_REQUEST_DONE;
	r->status = status;
	r->backend[RB_SIM_WHERE] = NOWHERE;
}

static void pending_add(struct rb_sim_nic *nic, struct rb_request *r)
{
	r->backend[RB_SIM_WHERE] = IN_PENDING;
	RB_LIST_PUSH(nic->pending, r);
}

static void pending_remove(struct rb_sim_nic *nic, struct rb_request *r)
{
	RB_LIST_REMOVE(nic->pending, r);
}

static void done_add(struct rb_sim_nic *nic, struct rb_request *r)
{
	r->backend[RB_SIM_WHERE] = IN_DONE;
	RB_QUEUE_ADD(nic->done, nic->done_last, r);
}

static void done_remove(struct rb_sim_nic *nic, struct rb_request *r)
{
	RB_QUEUE_REMOVE(nic->done, nic->done_last, r);
}

static void request_complete(struct rb_sim_nic *nic, struct rb_request *r, rubato_status status)
{
	pending_remove(nic, r);
	r->status = status;
	rb_sim_message_set(r, NULL);
	done_add(nic, r);
	rb_sim_news(nic->member);
}

/* ---- Links and messages ---- */

static struct rb_sim_member *member_of(const struct rb_sim_nic *nic, uint32_t rank)
{
	return &nic->member->comm->members[rank];
}

static struct rb_sim_nic *sender_of(const struct rb_sim_message *m)
{
	return m->link->nic;
}

static struct rb_sim_nic *receiver_of(const struct rb_sim_message *m)
{
	return member_of(m->link->nic, m->receiver)->nic;
}

/* Of this cluster: the peer has been connected to, so it has a process. */
static struct rb_sim_process *process_of(const struct rb_sim_message *m)
{
	return member_of(m->link->nic, m->receiver)->process;
}

/* To oneself, all is near. */
static bool peer_near(const struct rb_sim_nic *nic, uint32_t peer)
{
	return peer == nic->member->rank ||
	       rb_sim_member_near(nic->member->comm, nic->member->rank, peer);
}

static bool message_near(const struct rb_sim_message *m)
{
	return rb_sim_near(process_of(m)->cluster, sender_of(m)->process->rank,
			   process_of(m)->rank);
}

static struct rb_sim_link **link_slot(const struct rb_sim_nic *nic, uint32_t peer)
{
	uint32_t mask = nic->link_capacity - 1;
	uint32_t i = (uint32_t)rb_mix(peer) & mask;

	while (nic->links[i] != NULL && nic->links[i]->peer != peer)
		i = (i + 1) & mask;
	return &nic->links[i];
}

static bool links_grow(struct rb_sim_nic *nic)
{
	struct rb_sim_link **old = nic->links;
	uint32_t old_capacity = nic->link_capacity;
	struct rb_sim_link **links = calloc(old_capacity * 2u, sizeof(struct rb_sim_link *));

	if (links == NULL)
		return false;
	nic->links = links;
	nic->link_capacity = old_capacity * 2;
	for (uint32_t i = 0; i < old_capacity; i++) {
		if (old[i] != NULL)
			*link_slot(nic, old[i]->peer) = old[i];
	}
	free(old);
	return true;
}

struct rb_sim_link *rb_sim_link_to(struct rb_sim_nic *nic, uint32_t peer)
{
	struct rb_sim_link **slot = link_slot(nic, peer);
	struct rb_sim_link *l;

	if (*slot != NULL)
		return *slot;
	if (2 * (nic->link_count + 1) > nic->link_capacity && !links_grow(nic))
		return NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->nic = nic;
	l->peer = peer;
	nic->link_count++;
	*link_slot(nic, peer) = l;
	return l;
}

uint64_t rb_sim_link_credit(struct rb_sim_nic *nic, uint32_t peer)
{
	const struct rb_sim_link *l = *link_slot(nic, peer);

	return l != NULL ? l->credit_bytes : 0;
}

static void link_append(struct rb_sim_message **first, struct rb_sim_message **last,
			struct rb_sim_message *m)
{
	RB_QUEUE_ADD(*first, *last, m);
}

static void link_remove(struct rb_sim_message *m)
{
	struct rb_sim_message **first = m->landed ? &m->link->landed : &m->link->flying;
	struct rb_sim_message **last = m->landed ? &m->link->landed_last : &m->link->flying_last;

	RB_QUEUE_REMOVE(*first, *last, m);
}

static struct rb_sim_message *message_new(struct rb_sim_nic *nic, struct rb_request *r, bool put,
					  bool copy)
{
	size_t copy_bytes = copy && !rb_hollow(r->buffer) ? r->size_bytes : 0;
	struct rb_sim_link *l = rb_sim_link_to(nic, r->peer);
	struct rb_sim_message *m = l != NULL ? malloc(sizeof(*m) + copy_bytes) : NULL;

	if (m == NULL)
		return NULL;
	memset(m, 0, sizeof(*m));
	m->event.from = m->event.to = RB_SIM_NOBODY;
	m->link = l;
	m->sender = nic->member->rank;
	m->receiver = r->peer;
	m->put = put;
	m->signature = r->signature;
	m->tag = r->tag;
	if (put) {
		m->region = rb_sim_remote_region(r->remote);
		m->offset = r->remote_offset;
		m->put_bytes = r->size_bytes;
	} else {
		m->size_bytes = r->size_bytes;
	}
	m->hollow = rb_hollow(r->buffer);
	if (copy_bytes > 0)
		rb_sim_message_copy(nic->process->cluster, m->data, r->buffer, copy_bytes);
	link_append(&l->flying, &l->flying_last, m);
	return m;
}

/* ---- The end of a message ---- */

static void credit_back(struct rb_sim_message *m)
{
	m->link->credit_bytes -= m->credit_bytes;
	m->credit_bytes = 0;
}

static void message_free(struct rb_sim_cluster *c, struct rb_sim_message *m)
{
	struct rb_sim_message *after = m->next;

	rb_sim_event_unset(c, &m->event);
	if (m->kept)
		rb_sim_table_remove_arrival(receiver_of(m), m);
	credit_back(m);
	rb_sim_pair_withdrawn(m);
	link_remove(m);
	if (!m->landed && after != NULL && after == m->link->flying && after->arrived)
		rb_sim_event_set(c, &after->event, c->now_ns); /* It waited for this one only. */
	free(m);
}

/* The receiver does not want it (any more). The sender's request stays: it learns why in time. */
static void message_drop(struct rb_sim_cluster *c, struct rb_sim_message *m)
{
	if (m->request != NULL)
		rb_sim_message_set(m->request, NULL);
	message_free(c, m);
}

/* The sender takes it back; a receive that has met it waits again. */
static void message_withdraw(struct rb_sim_cluster *c, struct rb_sim_message *m)
{
	if (m->receive != NULL) {
		rb_sim_message_set(m->receive, NULL);
		rb_sim_table_add_receive(receiver_of(m), m->receive);
	}
	message_drop(c, m);
}

/* ---- Time ---- */

/* The processors' copies take the time within a node where memory does. A put is one piece. */
static uint64_t wire_ns(const struct rb_sim_cluster *c, const struct rb_sim_message *m,
			uint64_t size_bytes)
{
	bool near = message_near(m);
	double bandwidth = near ? c->options.node_bandwidth : c->options.bandwidth;
	double gap_ns = near ? 0 : (double)c->options.costs.gap_ns;

	if (near && c->moves)
		return 0;
	if (!m->put)
		gap_ns *= (double)rb_sim_pieces(near, size_bytes);
	return rb_sim_ns(gap_ns) + rb_sim_ns((double)size_bytes * 1e9 / bandwidth + 0.5);
}

/*
 * Cards count as if they had no bucket. What they would then be done with at done_ns passes by as
 * much earlier as a full bucket lasts: that is the generic cell rate algorithm (ITU-T I.371).
 */
static uint64_t bucket_ns(const struct rb_sim_cluster *c, bool near, uint64_t done_ns)
{
	double burst_ns = (double)c->options.costs.burst_bytes * 1e9 / c->options.bandwidth;

	if (near || burst_ns < 1)
		return done_ns;
	if (burst_ns >= (double)(done_ns - c->now_ns))
		return c->now_ns;
	return done_ns - (uint64_t)burst_ns;
}

static struct rb_sim_card *card_of(struct rb_sim_process *process, bool near)
{
	return near ? &process->inside : process->card;
}

static uint64_t travel_ns(struct rb_sim_cluster *c, const struct rb_sim_message *m)
{
	uint64_t ns = message_near(m) ? c->options.node_latency_ns : c->options.latency_ns;

	if (m->sender == m->receiver)
		return 0;
	if (c->options.jitter > 0)
		ns += (uint64_t)((double)ns * c->options.jitter * rb_rng_unit(&c->rng));
	return ns;
}

/*
 * So many bytes of it leave, and travel: sets the message's event, to when the first byte is there.
 * The first piece of them was ready at ready_ns, the last is now. Returns when the last byte
 * leaves.
 */
static uint64_t message_depart(struct rb_sim_cluster *c, struct rb_sim_message *m,
			       uint64_t size_bytes, uint64_t ready_ns, rb_sim_fire *fire)
{
	struct rb_sim_process *process = sender_of(m)->process;
	bool near = message_near(m);
	uint64_t *out_free_ns = &card_of(process, near)->out_free_ns;
	uint64_t travel = travel_ns(c, m), left_ns = c->now_ns, last_ns, wire = 0;

	if (m->sender != m->receiver) {
		wire = wire_ns(c, m, size_bytes);
		last_ns = rb_deadline(c->now_ns,
				      wire_ns(c, m, rb_sim_last_piece_bytes(near, size_bytes)));
		left_ns = *out_free_ns > ready_ns ? *out_free_ns : ready_ns;
		left_ns = rb_deadline(left_ns, wire);
		left_ns = left_ns > last_ns ? left_ns : last_ns;
		*out_free_ns = left_ns;
		left_ns = bucket_ns(c, near, left_ns);
		if (c->options.reorder != 0 && rb_rng_below(&c->rng, HELD_ONE_IN) == 0)
			travel = rb_deadline(travel,
					     rb_rng_below(&c->rng, HELD_LATENCIES * travel + 1));
	}
	m->through = false;
	m->last_ns = rb_deadline(left_ns, travel);
	m->event.from = process->rank;
	m->event.to = process_of(m)->rank;
	m->event.fire = fire;
	m->arrive_ns = m->last_ns - (wire < left_ns - c->now_ns ? wire : left_ns - c->now_ns);
	rb_sim_event_set(c, &m->event, m->arrive_ns);
	return left_ns;
}

/* The source of what has left ahead is free before it has come: at frees_ns. */
static void mostly_left(struct rb_sim_cluster *c, struct rb_sim_event *event);

/* Sets the event to at_ns, or to when the source is free, if that is earlier. */
static void message_at(struct rb_sim_cluster *c, struct rb_sim_message *m, uint64_t at_ns)
{
	bool frees = m->frees_ns > 0 && m->frees_ns <= at_ns;

	m->arrive_ns = at_ns;
	if (frees)
		m->event.fire = mostly_left;
	rb_sim_event_set(c, &m->event, frees ? m->frees_ns : at_ns);
}

/*
 * Whether the receiver's link has taken in so many bytes of it; if not, the event comes again when
 * it has. Its turn is that of its first byte: a shorter message that is there before its last one
 * is behind it. The link is held by what is more_bytes behind them, too.
 */
static bool message_through(struct rb_sim_cluster *c, struct rb_sim_message *m, uint64_t size_bytes,
			    uint64_t more_bytes)
{
	bool near = message_near(m);
	uint64_t *in_free_ns = &card_of(process_of(m), near)->in_free_ns;
	uint64_t through_ns, last_ns;

	if (m->through || m->sender == m->receiver)
		return true;
	/* It may have been held up. */
	last_ns = rb_deadline(m->last_ns, c->now_ns - m->arrive_ns);
	/* What a bucket lets come faster than the card's rate is taken out of its own one. */
	if (c->options.costs.burst_bytes > 0 && *in_free_ns < c->now_ns)
		*in_free_ns = c->now_ns;
	through_ns = rb_deadline(*in_free_ns, wire_ns(c, m, size_bytes));
	if (through_ns < last_ns)
		through_ns = last_ns;
	*in_free_ns = rb_deadline(through_ns, more_bytes > 0 ? wire_ns(c, m, more_bytes) : 0);
	through_ns = bucket_ns(c, near, through_ns);
	if (through_ns < last_ns)
		through_ns = last_ns;
	m->through = true;
	if (through_ns <= c->now_ns)
		return true;
	message_at(c, m, through_ns);
	return false;
}

/* ---- Meeting ---- */

static void asked_done(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct rb_sim_message *m = (struct rb_sim_message *)event;
	struct rb_sim_nic *sender = sender_of(m), *receiver = receiver_of(m);
	struct rb_request *request = m->request, *receive = m->receive;

	if (!message_through(c, m, m->size_bytes - m->ahead_bytes, 0))
		return;
	rb_sim_trace(c, RB_SIM_TRACE_DATA, sender->process->rank, receiver->process->rank,
		     m->size_bytes, rb_sim_tag_word(m->tag));
	rb_sim_message_copy(c, receive->buffer, request->buffer, m->size_bytes);
	receiver->ep->bytes_received += m->size_bytes;
	receive->backend[RB_SIM_THEIRS] = (uintptr_t)request->buffer;
	request->backend[RB_SIM_THEIRS] = (uintptr_t)receive->buffer;
	message_free(c, m);
	request_complete(receiver, receive, RUBATO_OK);
	request_complete(sender, request, RUBATO_OK);
}

static void asked_granted(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct rb_sim_message *m = (struct rb_sim_message *)event;

	rb_sim_trace(c, RB_SIM_TRACE_GRANT, process_of(m)->rank, sender_of(m)->process->rank,
		     m->size_bytes, rb_sim_tag_word(m->tag));
	(void)message_depart(c, m, m->size_bytes - m->ahead_bytes, c->now_ns, asked_done);
}

/* Whether the receive is over, its status set; if not, the data is yet to come. */
static bool meet(struct rb_sim_nic *nic, struct rb_request *receive, struct rb_sim_message *m)
{
	struct rb_sim_cluster *c = nic->process->cluster;

	if (!rb_signature_same(&receive->signature, &m->signature) ||
	    receive->size_bytes != m->size_bytes) {
		receive->theirs = m->signature;
		receive->their_bytes = m->size_bytes;
		receive->status = RUBATO_ERR_MISMATCH;
		if (m->request != NULL) /* Nobody will read the source any more. */
			request_complete(sender_of(m), m->request, RUBATO_OK);
		rb_sim_pair_read(nic, m->sender, &m->buffers);
		message_free(c, m);
		return true;
	}
	credit_back(m);
	if (m->asked) {
		m->receive = receive;
		rb_sim_message_set(receive, m);
		m->event.from = nic->process->rank;
		m->event.to = sender_of(m)->process->rank;
		m->event.fire = asked_granted;
		rb_sim_event_set(c, &m->event, rb_deadline(c->now_ns, travel_ns(c, m)));
		return false;
	}
	if (!m->put && !m->hollow)
		rb_sim_message_copy(c, receive->buffer, m->data, m->size_bytes);
	nic->ep->bytes_received += m->size_bytes;
	receive->backend[RB_SIM_CAME_NS] = m->came_ns;
	memcpy(&receive->backend[RB_SIM_BUFFERS], &m->buffers, sizeof(m->buffers));
	receive->status = RUBATO_OK;
	message_free(c, m);
	return true;
}

/* A put's data; false: there is no such memory. */
static bool put_lands(struct rb_sim_nic *nic, struct rb_sim_message *m)
{
	void *to = rb_sim_memory(nic->ep, m->region, m->offset, m->put_bytes);

	if (to == NULL) {
		if (m->request != NULL)
			request_complete(sender_of(m), m->request, RUBATO_ERR_ARGUMENT);
		return false;
	}
	if (!m->hollow)
		rb_sim_message_copy(nic->process->cluster, to,
				    m->request != NULL ? m->request->buffer : m->data,
				    m->put_bytes);
	nic->ep->bytes_received += m->put_bytes;
	if (m->request != NULL)
		request_complete(sender_of(m), m->request, RUBATO_OK);
	m->request = NULL;
	return true;
}

static void deliver(struct rb_sim_cluster *c, struct rb_sim_message *m)
{
	struct rb_sim_nic *nic = receiver_of(m);
	struct rb_sim_link *l = m->link;
	uint32_t sender = m->sender;
	struct rb_request *receive;

	rb_sim_trace(c, RB_SIM_TRACE_ARRIVE, sender_of(m)->process->rank, process_of(m)->rank,
		     m->size_bytes + m->put_bytes, rb_sim_tag_word(m->tag));
	link_remove(m);
	m->landed = true;
	link_append(&l->landed, &l->landed_last, m);
	if (nic == NULL || nic->ep == NULL || nic->stopped) {
		message_drop(c, m);
		return;
	}
	if (m->put && !put_lands(nic, m)) {
		message_free(c, m);
		return;
	}
	rb_sim_pair_came(nic, m);
	receive = rb_sim_table_take_receive(nic, m->sender, m->tag);
	if (receive == NULL) {
		rb_sim_table_add_arrival(nic, m);
		if (rb_tag_is_probe(m->tag)) /* For who sleeps; others look by themselves. */
			rb_sim_news(nic->member);
	} else if (meet(nic, receive, m)) {
		request_complete(nic, receive, receive->status);
	}
	if (l->leaving && l->flying == NULL)
		rb_sim_nic_lost(nic, sender, false);
}

static void arrives(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct rb_sim_message *m = (struct rb_sim_message *)event;
	struct rb_sim_link *l = m->link;
	uint64_t wire_bytes = m->asked ? m->first_bytes : m->size_bytes + m->put_bytes;

	if (!message_through(c, m, wire_bytes, m->asked ? m->ahead_bytes - m->first_bytes : 0))
		return;
	m->arrived = true;
	if (c->options.reorder != 0) {
		deliver(c, m);
		return;
	}
	while (l->flying != NULL && l->flying->arrived)
		deliver(c, l->flying);
}

/* ---- Posts ---- */

static bool post_begin(struct rb_sim_nic *nic, struct rb_request *r, enum rb_request_kind kind)
{
	request_begin(r, kind);
	if (r->peer >= nic->member->comm->rank_count) {
		request_end(r, RUBATO_ERR_ARGUMENT);
		return false;
	}
	if (nic->process->ghost) { /* Nothing comes and nothing goes. */
		pending_add(nic, r);
		return false;
	}
	return true;
}

/* NULL: the request is over. */
static struct rb_sim_message *message_post(struct rb_sim_nic *nic, struct rb_request *r, bool put,
					   bool copy)
{
	struct rb_sim_cluster *c = nic->process->cluster;
	struct rb_sim_message *m = message_new(nic, r, put, copy);

	if (m == NULL) {
		request_end(r, RUBATO_ERR_MEMORY);
		return NULL;
	}
	nic->ep->bytes_sent += r->size_bytes;
	if (m->sender != m->receiver) {
		c->result.messages++;
		c->result.message_bytes += r->size_bytes;
	}
	return m;
}

/* The message needs the request until it is done. */
static void message_holds(struct rb_sim_nic *nic, struct rb_sim_message *m, struct rb_request *r)
{
	m->request = r;
	rb_sim_message_set(r, m);
	pending_add(nic, r);
}

/* All but what a copy holds has left. */
static void mostly_left(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct rb_sim_message *m = (struct rb_sim_message *)event;

	if (m->request != NULL)
		request_complete(sender_of(m), m->request, RUBATO_OK);
	m->request = NULL;
	m->frees_ns = 0;
	event->fire = arrives;
	rb_sim_event_set(c, event, m->arrive_ns);
}

static void send_ahead(struct rb_sim_cluster *c, struct rb_sim_message *m, uint64_t ready_ns)
{
	uint64_t left_ns = message_depart(c, m, m->size_bytes, ready_ns, arrives);
	uint64_t copy_ns = wire_ns(c, m, (uint64_t)RB_SIM_PIECES_OUT * RB_SIM_PIECE_BYTES);

	m->frees_ns = left_ns > copy_ns ? left_ns - copy_ns : 1;
	message_at(c, m, m->arrive_ns);
}

/* Its first piece announces it. */
static void send_asked(struct rb_sim_cluster *c, struct rb_sim_message *m, uint64_t ready_ns)
{
	uint64_t *out_free_ns = &card_of(sender_of(m)->process, message_near(m))->out_free_ns;

	m->asked = true;
	m->first_bytes = m->ahead_bytes < RB_SIM_PIECE_BYTES ? m->ahead_bytes : RB_SIM_PIECE_BYTES;
	(void)message_depart(c, m, m->first_bytes, ready_ns, arrives);
	if (m->ahead_bytes > m->first_bytes)
		*out_free_ns =
			rb_deadline(*out_free_ns, wire_ns(c, m, m->ahead_bytes - m->first_bytes));
}

void rb_sim_send(struct rb_sim_nic *nic, struct rb_request *r, const struct rb_sim_post *post)
{
	uint64_t ready_ns = post->ready_ns;
	struct rb_sim_cluster *c = nic->process->cluster;
	struct rb_sim_way way = post->way;
	struct rb_sim_message *m;

	if (!post_begin(nic, r, RB_REQUEST_SEND))
		return;
	if (member_of(nic, r->peer)->gone) {
		request_end(r, RUBATO_ERR_PEER);
		return;
	}
	if (!peer_near(nic, r->peer))
		way = rb_sim_way_of(false, false, r->size_bytes, rb_sim_link_credit(nic, r->peer));
	m = message_post(nic, r, false, way.kind != RB_SIM_ASKED);
	if (m == NULL)
		return;
	m->buffers = post->buffers;
	rb_sim_pair_posted(m);
	m->ahead_bytes = way.ahead_bytes;
	m->credit_bytes = way.credit_bytes;
	m->link->credit_bytes += way.credit_bytes;
	if (way.kind == RB_SIM_COPIED) {
		m->came_ns = c->now_ns - ready_ns;
		(void)message_depart(c, m, m->size_bytes, ready_ns, arrives);
		request_end(r, RUBATO_OK);
		return;
	}
	message_holds(nic, m, r);
	if (way.kind == RB_SIM_AHEAD)
		send_ahead(c, m, ready_ns);
	else
		send_asked(c, m, ready_ns);
}

void rb_sim_put(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct rb_sim_cluster *c = nic->process->cluster;
	bool copy = r->size_bytes <= RB_SIM_PUT_COPY_BYTES_MAX;
	struct rb_sim_message *m;

	if (!post_begin(nic, r, RB_REQUEST_PUT))
		return;
	if (member_of(nic, r->peer)->gone) {
		request_end(r, RUBATO_ERR_PEER);
		return;
	}
	if (r->remote == NULL || r->remote->peer != r->peer ||
	    r->remote_offset > r->remote->size_bytes ||
	    r->size_bytes > r->remote->size_bytes - r->remote_offset) {
		request_end(r, RUBATO_ERR_ARGUMENT);
		return;
	}
	m = message_post(nic, r, true, copy);
	if (m == NULL)
		return;
	(void)message_depart(c, m, m->put_bytes, c->now_ns, arrives);
	if (copy)
		request_end(r, RUBATO_OK);
	else
		message_holds(nic, m, r);
}

void rb_sim_recv(struct rb_sim_nic *nic, struct rb_request *r)
{
	const struct rb_sim_member *peer;
	struct rb_sim_message *m;
	struct rb_sim_link *l;

	if (!post_begin(nic, r, RB_REQUEST_RECV))
		return;
	m = rb_sim_table_find_arrival(nic, r->peer, r->tag);
	if (m != NULL) {
		rb_sim_pairs_take(nic); /* Who finds it has polled. */
		rb_sim_table_remove_arrival(nic, m);
		if (meet(nic, r, m))
			request_end(r, r->status);
		else
			pending_add(nic, r);
		return;
	}
	peer = member_of(nic, r->peer);
	if (peer->gone) {
		l = peer->gone_fails ? NULL : *link_slot(peer->nic, nic->member->rank);
		if (l == NULL || l->flying == NULL) {
			request_end(r, RUBATO_ERR_PEER);
			return;
		}
	}
	pending_add(nic, r);
	rb_sim_table_add_receive(nic, r);
}

/* Ends a pending request: nobody will look at its buffer again. */
static void request_abandon(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct rb_sim_cluster *c = nic->process->cluster;
	struct rb_sim_message *m = rb_sim_message_of(r);

	rb_sim_message_set(r, NULL);
	if (r->kind != RB_REQUEST_RECV) {
		if (m != NULL)
			message_withdraw(c, m);
		return;
	}
	if (m == NULL) {
		if (!nic->stopped)
			rb_sim_table_remove_receive(nic, r);
		return;
	}
	m->receive = NULL; /* As if they had not met. */
	rb_sim_event_unset(c, &m->event);
	rb_sim_table_add_arrival(nic, m);
}

void rb_sim_cancel(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct rb_sim_buffers buffers;

	if (r->backend[RB_SIM_WHERE] == IN_DONE) {
		done_remove(nic, r);
		if (r->kind == RB_REQUEST_RECV && r->status == RUBATO_OK) {
			memcpy(&buffers, &r->backend[RB_SIM_BUFFERS], sizeof(buffers));
			rb_sim_pair_read(nic, r->peer, &buffers);
		}
		request_end(r, r->status);
	} else if (r->backend[RB_SIM_WHERE] == IN_PENDING) {
		pending_remove(nic, r);
		request_abandon(nic, r);
		request_end(r, RUBATO_ERR_CANCELLED);
	}
}

struct rb_request *rb_sim_collect(struct rb_sim_nic *nic)
{
	struct rb_request *list = nic->done;

	for (struct rb_request *r = list; r != NULL; r = r->next)
		request_end(r, r->status);
	nic->done = nic->done_last = NULL;
	return list;
}

bool rb_sim_collectable(const struct rb_sim_nic *nic)
{
	return nic->done != NULL;
}

bool rb_sim_recall(struct rb_sim_nic *nic, struct rb_request *r)
{
	if (r->backend[RB_SIM_WHERE] != IN_PENDING)
		return false;
	rb_sim_cancel(nic, r);
	r->state = RB_REQUEST_IDLE;
	return true;
}

bool rb_sim_unmatched(const struct rb_sim_nic *nic, rb_unmatched_visit *visit, void *arg)
{
	for (uint32_t b = 0; b < nic->bucket_count && nic->kept_count > 0; b++)
		for (const struct rb_sim_message *m = nic->buckets[b].arrivals; m != NULL;
		     m = m->chain)
			if (visit(arg, m->sender, m->tag, &m->signature))
				return true;
	return false;
}

void rb_sim_describe(struct rb_sim_nic *nic, void (*line)(void *arg, const char *text), void *arg)
{
	static const char *const kinds[] = { "send to", "receive from", "put to" };
	char text[160], what[80];

	for (const struct rb_request *r = nic->pending; r != NULL; r = r->next) {
		(void)snprintf(text, sizeof(text), "%s %u tag %llx:%llx %zu bytes %s: %s",
			       kinds[r->kind], r->peer, (unsigned long long)r->tag.call,
			       (unsigned long long)r->tag.step, r->size_bytes,
			       rb_sim_message_of(r) != NULL ? "under way" : "no message yet",
			       rb_signature_text(&r->signature, what, sizeof(what)));
		line(arg, text);
	}
}

/* ---- Network cards ---- */

rubato_status rb_sim_nic_open(struct rb_sim_member *member, struct rb_endpoint *ep)
{
	struct rb_sim_nic *nic = member->nic;
	struct rb_sim_process *process = member->process;

	if (nic == NULL) {
		nic = calloc(1, sizeof(*nic));
		if (nic == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*nic));
		nic->member = member;
		nic->process = process;
		nic->link_capacity = LINKS_MIN;
		nic->bucket_count = BUCKETS_MIN;
		nic->links = calloc(LINKS_MIN, sizeof(struct rb_sim_link *));
		nic->buckets = calloc(BUCKETS_MIN, sizeof(*nic->buckets));
		member->nic = nic;
	}
	if (nic->links == NULL || nic->buckets == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: tables of rank %u", process->rank);
	if (nic->ep != NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "sim: rank %u has an endpoint already",
			       process->rank);
	nic->ep = ep;
	nic->stopped = process->ghost;
	return RUBATO_OK;
}

/* Forgets what has arrived. */
static void arrivals_drop(struct rb_sim_nic *nic)
{
	for (uint32_t i = 0; i < nic->bucket_count; i++) {
		while (nic->buckets[i].arrivals != NULL)
			message_drop(nic->process->cluster, nic->buckets[i].arrivals);
	}
}

void rb_sim_nic_stop(struct rb_sim_nic *nic)
{
	struct rb_sim_cluster *c = nic->process->cluster;

	if (nic->ep == NULL || nic->stopped)
		return;
	for (struct rb_request *r = nic->pending; r != NULL; r = r->next) {
		struct rb_sim_message *m = rb_sim_message_of(r);

		if (m == NULL)
			continue;
		if (r->kind == RB_REQUEST_RECV) {
			rb_sim_message_set(r, NULL);
			message_drop(c, m);
		} else {
			message_withdraw(c, m);
		}
	}
	arrivals_drop(nic);
	for (uint32_t i = 0; i < nic->bucket_count; i++)
		nic->buckets[i] = (struct rb_sim_bucket) { NULL, NULL };
	nic->entry_count = 0;
	nic->stopped = true;
}

void rb_sim_nic_close(struct rb_sim_nic *nic)
{
	rb_sim_nic_stop(nic);
	nic->pending = nic->done = nic->done_last = NULL;
	nic->ep = NULL;
}

void rb_sim_nic_free(struct rb_sim_nic *nic)
{
	if (nic == NULL)
		return;
	for (uint32_t i = 0; nic->links != NULL && i < nic->link_capacity; i++) {
		struct rb_sim_link *l = nic->links[i];

		while (l != NULL && l->flying != NULL)
			message_free(nic->process->cluster, l->flying);
		while (l != NULL && l->landed != NULL)
			message_free(nic->process->cluster, l->landed);
		if (l != NULL)
			free(l->pair);
		free(l);
	}
	free(nic->links);
	free(nic->buckets);
	free(nic);
}

struct rb_endpoint *rb_sim_nic_endpoint(const struct rb_sim_nic *nic)
{
	return nic != NULL ? nic->ep : NULL;
}

bool rb_sim_nic_at_work(const struct rb_sim_nic *nic)
{
	return nic->pending != NULL;
}

void rb_sim_nic_lost(struct rb_sim_nic *nic, uint32_t peer, bool failed)
{
	struct rb_sim_nic *other = member_of(nic, peer)->nic;
	struct rb_sim_link *l = other != NULL ? *link_slot(other, nic->member->rank) : NULL;
	bool more = !failed && l != NULL && l->flying != NULL;

	if (l != NULL)
		l->leaving = more;
	for (struct rb_request *r = nic->pending, *next; r != NULL; r = next) {
		next = r->next;
		if (r->peer != peer || (more && r->kind == RB_REQUEST_RECV))
			continue;
		request_abandon(nic, r);
		request_complete(nic, r, RUBATO_ERR_PEER);
	}
}
