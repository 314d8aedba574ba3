/*
 * sim_net.c -- messages of the simulated network: how long they take, in which order they arrive,
 * and which receive they meet.
 *
 *   posted --latency--> at the receiver's link --link free--> arrived --their turn--> met, or kept
 *   large, met: --grant, latency--> at the sender --latency--> at the receiver's link --> done
 *
 * A message belongs to its sender's link until it is over: `flying` in the order of the posts,
 * until it is delivered; `landed` while it waits for its receive or its data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hollow.h"
#include "transport/sim/sim_cluster_inside.h"

#define BUCKETS_MIN 16
#define LINKS_MIN 8
#define HELD_ONE_IN 4     /* Guess. With reorder: so many messages ... */
#define HELD_LATENCIES 2u /* ... are held back by up to so many latencies. */

enum message_kind { EAGER, LARGE, PUT };

struct link;

struct message {
	struct rb_sim_event event;       /* First: handlers cast. */
	struct message *next, *previous; /* In its link's list. */
	struct message *chain;           /* In the receiver's bucket. */
	struct link *link;
	uint32_t sender, receiver; /* Ranks in the communicator. */
	enum message_kind kind;
	bool through; /* The receiver's link has taken it in. */
	bool arrived; /* Its turn to be delivered is all it waits for. */
	bool landed;
	bool kept;   /* In the receiver's bucket. */
	bool hollow; /* Nothing was copied: there was nothing. */
	struct rb_signature signature;
	struct rb_tag tag;
	size_t size_bytes;          /* As the receive must have it: 0 for a put. */
	struct rb_request *request; /* The sender's, while it needs us; NULL: eager, or given up. */
	struct rb_request *receive; /* Of a large one: met. */
	uint32_t region;            /* PUT: where to. */
	uint64_t offset, put_bytes;
	uint8_t data[];
};

struct link {                   /* From one rank to another. */
	struct rb_sim_nic *nic; /* The sender's. */
	uint32_t peer;
	bool leaving; /* The sender has left: after the last message, its peer learns. */
	uint64_t unmatched_bytes;
	struct message *flying, *flying_last;
	struct message *landed, *landed_last;
};

struct bucket {
	struct rb_request *receives; /* Linked by backend[CHAIN], oldest first. */
	struct message *arrivals;
};

struct rb_sim_nic {
	struct rb_sim_member *member;
	struct rb_sim_process *process;
	struct rb_endpoint *ep; /* NULL: closed. */
	bool stopped;
	struct link **links; /* Open addressing by peer; a power of 2. */
	uint32_t link_count, link_capacity;
	struct bucket *buckets; /* By peer and tag; a power of 2. */
	uint32_t bucket_count, entry_count;
	uint32_t kept_count; /* Of the entries: messages that wait for their receive. */
	struct rb_request *pending;
	struct rb_request *done, *done_last; /* Completed, not yet collected. */
};

/* rb_request.backend */
enum { CHAIN, MESSAGE, WHERE };
enum { NOWHERE, IN_PENDING, IN_DONE };

/* ---- Requests ---- */

static struct message *message_of(const struct rb_request *r)
{
	return (struct message *)(uintptr_t)r->backend[MESSAGE];
}

static void message_set(struct rb_request *r, struct message *m)
{
	r->backend[MESSAGE] = (uint64_t)(uintptr_t)m;
}

static struct rb_request *chain_of(const struct rb_request *r)
{
	return (struct rb_request *)(uintptr_t)r->backend[CHAIN];
}

static void chain_set(struct rb_request *r, struct rb_request *next)
{
	r->backend[CHAIN] = (uint64_t)(uintptr_t)next;
}

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
	r->backend[WHERE] = NOWHERE;
}

static void pending_add(struct rb_sim_nic *nic, struct rb_request *r)
{
	r->backend[WHERE] = IN_PENDING;
	RB_LIST_PUSH(nic->pending, r);
}

static void pending_remove(struct rb_sim_nic *nic, struct rb_request *r)
{
	RB_LIST_REMOVE(nic->pending, r);
}

static void done_add(struct rb_sim_nic *nic, struct rb_request *r)
{
	r->backend[WHERE] = IN_DONE;
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
	message_set(r, NULL);
	done_add(nic, r);
	rb_sim_news(nic->member);
}

/* ---- Links and messages ---- */

static struct rb_sim_member *member_of(const struct rb_sim_nic *nic, uint32_t rank)
{
	return &nic->member->comm->members[rank];
}

static struct rb_sim_nic *sender_of(const struct message *m)
{
	return m->link->nic;
}

static struct rb_sim_nic *receiver_of(const struct message *m)
{
	return member_of(m->link->nic, m->receiver)->nic;
}

/* Of this cluster: the peer has been connected to, so it has a process. */
static struct rb_sim_process *process_of(const struct message *m)
{
	return member_of(m->link->nic, m->receiver)->process;
}

static bool message_near(const struct message *m)
{
	return rb_sim_near(process_of(m)->cluster, sender_of(m)->process->rank,
			   process_of(m)->rank);
}

static struct link **link_slot(const struct rb_sim_nic *nic, uint32_t peer)
{
	uint32_t mask = nic->link_capacity - 1;
	uint32_t i = (uint32_t)rb_mix(peer) & mask;

	while (nic->links[i] != NULL && nic->links[i]->peer != peer)
		i = (i + 1) & mask;
	return &nic->links[i];
}

static bool links_grow(struct rb_sim_nic *nic)
{
	struct link **old = nic->links;
	uint32_t old_capacity = nic->link_capacity;
	struct link **links = calloc(old_capacity * 2u, sizeof(struct link *));

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

/* The link to a peer, made when first used; NULL: no memory. */
static struct link *link_to(struct rb_sim_nic *nic, uint32_t peer)
{
	struct link **slot = link_slot(nic, peer);
	struct link *l;

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

static void link_append(struct message **first, struct message **last, struct message *m)
{
	RB_QUEUE_ADD(*first, *last, m);
}

static void link_remove(struct message *m)
{
	struct message **first = m->landed ? &m->link->landed : &m->link->flying;
	struct message **last = m->landed ? &m->link->landed_last : &m->link->flying_last;

	RB_QUEUE_REMOVE(*first, *last, m);
}

static struct message *message_new(struct rb_sim_nic *nic, struct rb_request *r,
				   enum message_kind kind, size_t copy_bytes)
{
	struct link *l = link_to(nic, r->peer);
	struct message *m = l != NULL ? malloc(sizeof(*m) + copy_bytes) : NULL;

	if (m == NULL)
		return NULL;
	memset(m, 0, sizeof(*m));
	m->event.from = m->event.to = RB_SIM_NOBODY;
	m->link = l;
	m->sender = nic->member->rank;
	m->receiver = r->peer;
	m->kind = kind;
	m->signature = r->signature;
	m->tag = r->tag;
	if (kind == PUT) {
		m->region = rb_sim_remote_region(r->remote);
		m->offset = r->remote_offset;
		m->put_bytes = r->size_bytes;
	} else {
		m->size_bytes = r->size_bytes;
	}
	m->hollow = rb_hollow(r->buffer);
	if (copy_bytes > 0)
		rb_sim_message_copy(nic->process->cluster, m->data, r->buffer, copy_bytes);
	if (kind == EAGER)
		l->unmatched_bytes += m->size_bytes;
	link_append(&l->flying, &l->flying_last, m);
	return m;
}

/* ---- Matching: one table a card, by (peer, tag) ---- */

static uint64_t tag_word(struct rb_tag tag)
{
	return rb_mix(tag.call) + tag.step;
}

static struct bucket *bucket_of(const struct rb_sim_nic *nic, uint32_t peer, struct rb_tag tag)
{
	uint64_t hash = rb_mix(tag_word(tag) + peer * 0x9e3779b97f4a7c15u);

	return &nic->buckets[(uint32_t)hash & (nic->bucket_count - 1)];
}

static void bucket_add_receive(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct bucket *b = bucket_of(nic, r->peer, r->tag);
	struct rb_request *last = b->receives;

	chain_set(r, NULL);
	if (last == NULL) {
		b->receives = r;
		return;
	}
	while (chain_of(last) != NULL)
		last = chain_of(last);
	chain_set(last, r);
}

static void bucket_add_arrival(struct rb_sim_nic *nic, struct message *m)
{
	struct message **at = &bucket_of(nic, m->sender, m->tag)->arrivals;

	while (*at != NULL)
		at = &(*at)->chain;
	m->chain = NULL;
	*at = m;
}

/* Keeps chains short. Without memory for it they only grow longer. */
static void buckets_grow(struct rb_sim_nic *nic)
{
	struct bucket *old = nic->buckets;
	uint32_t old_count = nic->bucket_count;
	struct bucket *buckets;

	if (nic->entry_count <= old_count)
		return;
	buckets = calloc(old_count * 2u, sizeof(*buckets));
	if (buckets == NULL)
		return;
	nic->buckets = buckets;
	nic->bucket_count = old_count * 2;
	for (uint32_t i = 0; i < old_count; i++) {
		for (struct rb_request *r = old[i].receives, *next; r != NULL; r = next) {
			next = chain_of(r);
			bucket_add_receive(nic, r);
		}
		for (struct message *m = old[i].arrivals, *next; m != NULL; m = next) {
			next = m->chain;
			bucket_add_arrival(nic, m);
		}
	}
	free(old);
}

static void table_add_receive(struct rb_sim_nic *nic, struct rb_request *r)
{
	nic->entry_count++;
	buckets_grow(nic);
	bucket_add_receive(nic, r);
}

static void table_add_arrival(struct rb_sim_nic *nic, struct message *m)
{
	m->kept = true;
	nic->kept_count++;
	nic->entry_count++;
	buckets_grow(nic);
	bucket_add_arrival(nic, m);
}

static struct rb_request *table_take_receive(struct rb_sim_nic *nic, uint32_t peer,
					     struct rb_tag tag)
{
	struct bucket *b = bucket_of(nic, peer, tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = chain_of(r)) {
		if (r->peer != peer || !rb_tag_same(r->tag, tag))
			continue;
		if (before != NULL)
			chain_set(before, chain_of(r));
		else
			b->receives = chain_of(r);
		nic->entry_count--;
		return r;
	}
	return NULL;
}

static struct message *table_find_arrival(struct rb_sim_nic *nic, uint32_t peer, struct rb_tag tag)
{
	struct message *m = bucket_of(nic, peer, tag)->arrivals;

	while (m != NULL && (m->sender != peer || !rb_tag_same(m->tag, tag)))
		m = m->chain;
	return m;
}

static void table_remove_receive(struct rb_sim_nic *nic, struct rb_request *gone)
{
	struct bucket *b = bucket_of(nic, gone->peer, gone->tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = chain_of(r)) {
		if (r != gone)
			continue;
		if (before != NULL)
			chain_set(before, chain_of(r));
		else
			b->receives = chain_of(r);
		nic->entry_count--;
		return;
	}
	RB_ASSERT(false); /* A pending receive without message is in the table. */
}

static void table_remove_arrival(struct rb_sim_nic *nic, struct message *gone)
{
	struct message **at = &bucket_of(nic, gone->sender, gone->tag)->arrivals;

	while (*at != gone)
		at = &(*at)->chain;
	*at = gone->chain;
	gone->kept = false;
	nic->kept_count--;
	nic->entry_count--;
}

/* ---- The end of a message ---- */

static void message_free(struct rb_sim_cluster *c, struct message *m)
{
	struct message *after = m->next;

	rb_sim_event_unset(c, &m->event);
	if (m->kept)
		table_remove_arrival(receiver_of(m), m);
	if (m->kind == EAGER)
		m->link->unmatched_bytes -= m->size_bytes;
	link_remove(m);
	if (!m->landed && after != NULL && after == m->link->flying && after->arrived)
		rb_sim_event_set(c, &after->event, c->now_ns); /* It waited for this one only. */
	free(m);
}

/* The receiver does not want it (any more). The sender's request stays: it learns why in time. */
static void message_drop(struct rb_sim_cluster *c, struct message *m)
{
	if (m->request != NULL)
		message_set(m->request, NULL);
	message_free(c, m);
}

/* The sender takes it back; a receive that has met it waits again. */
static void message_withdraw(struct rb_sim_cluster *c, struct message *m)
{
	if (m->receive != NULL) {
		message_set(m->receive, NULL);
		table_add_receive(receiver_of(m), m->receive);
	}
	message_drop(c, m);
}

/* ---- Time ---- */

/* The processors' copies take the time within a node where memory does. */
static uint64_t wire_ns(const struct rb_sim_cluster *c, bool near, uint64_t size_bytes)
{
	double bandwidth = near ? c->options.node_bandwidth : c->options.bandwidth;
	uint64_t gap_ns = near ? 0 : c->options.costs.gap_ns;

	if (near && c->moves)
		return 0;
	return gap_ns + (uint64_t)((double)size_bytes * 1e9 / bandwidth + 0.5);
}

static struct rb_sim_card *card_of(struct rb_sim_process *process, bool near)
{
	return near ? &process->inside : process->card;
}

static uint64_t travel_ns(struct rb_sim_cluster *c, const struct message *m)
{
	uint64_t ns = message_near(m) ? c->options.node_latency_ns : c->options.latency_ns;

	if (m->sender == m->receiver)
		return 0;
	if (c->options.jitter > 0)
		ns += (uint64_t)((double)ns * c->options.jitter * rb_rng_unit(&c->rng));
	return ns;
}

/* The last byte leaves, and travels: sets the message's event. */
static void message_depart(struct rb_sim_cluster *c, struct message *m, uint64_t size_bytes,
			   rb_sim_fire *fire)
{
	struct rb_sim_process *process = sender_of(m)->process;
	bool near = message_near(m);
	uint64_t *out_free_ns = &card_of(process, near)->out_free_ns;
	uint64_t travel = travel_ns(c, m), left_ns = c->now_ns;

	if (m->sender != m->receiver) {
		left_ns = *out_free_ns > c->now_ns ? *out_free_ns : c->now_ns;
		left_ns += wire_ns(c, near, size_bytes);
		*out_free_ns = left_ns;
		if (c->options.reorder != 0 && rb_rng_below(&c->rng, HELD_ONE_IN) == 0)
			travel += rb_rng_below(&c->rng, HELD_LATENCIES * travel + 1);
	}
	m->through = false;
	m->event.from = process->rank;
	m->event.to = process_of(m)->rank;
	m->event.fire = fire;
	rb_sim_event_set(c, &m->event, rb_deadline(left_ns, travel));
}

/* Whether the receiver's link has taken it in; if not, the event comes again when it has. */
static bool message_through(struct rb_sim_cluster *c, struct message *m, uint64_t size_bytes)
{
	uint64_t *in_free_ns = &card_of(process_of(m), message_near(m))->in_free_ns;
	uint64_t through_ns;

	if (m->through || m->sender == m->receiver)
		return true;
	through_ns = *in_free_ns + wire_ns(c, message_near(m), size_bytes);
	if (through_ns < c->now_ns)
		through_ns = c->now_ns;
	*in_free_ns = through_ns;
	m->through = true;
	if (through_ns == c->now_ns)
		return true;
	rb_sim_event_set(c, &m->event, through_ns);
	return false;
}

/* ---- Meeting ---- */

static void large_done(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct message *m = (struct message *)event;
	struct rb_sim_nic *sender = sender_of(m), *receiver = receiver_of(m);
	struct rb_request *request = m->request, *receive = m->receive;

	if (!message_through(c, m, m->size_bytes))
		return;
	rb_sim_trace(c, RB_SIM_TRACE_DATA, sender->process->rank, receiver->process->rank,
		     m->size_bytes, tag_word(m->tag));
	rb_sim_message_copy(c, receive->buffer, request->buffer, m->size_bytes);
	receiver->ep->bytes_received += m->size_bytes;
	message_free(c, m);
	request_complete(receiver, receive, RUBATO_OK);
	request_complete(sender, request, RUBATO_OK);
}

static void large_granted(struct rb_sim_cluster *c, struct rb_sim_event *event)
{
	struct message *m = (struct message *)event;

	rb_sim_trace(c, RB_SIM_TRACE_GRANT, process_of(m)->rank, sender_of(m)->process->rank,
		     m->size_bytes, tag_word(m->tag));
	message_depart(c, m, m->size_bytes, large_done);
}

/* Whether the receive is over, its status set; if not, the data is yet to come. */
static bool meet(struct rb_sim_nic *nic, struct rb_request *receive, struct message *m)
{
	struct rb_sim_cluster *c = nic->process->cluster;

	if (!rb_signature_same(&receive->signature, &m->signature) ||
	    receive->size_bytes != m->size_bytes) {
		receive->theirs = m->signature;
		receive->their_bytes = m->size_bytes;
		receive->status = RUBATO_ERR_MISMATCH;
		if (m->request != NULL) /* Nobody will read the source any more. */
			request_complete(sender_of(m), m->request, RUBATO_OK);
		message_free(c, m);
		return true;
	}
	if (m->kind == LARGE) {
		m->receive = receive;
		message_set(receive, m);
		m->event.from = nic->process->rank;
		m->event.to = sender_of(m)->process->rank;
		m->event.fire = large_granted;
		rb_sim_event_set(c, &m->event, rb_deadline(c->now_ns, travel_ns(c, m)));
		return false;
	}
	if (m->kind == EAGER && !m->hollow)
		rb_sim_message_copy(c, receive->buffer, m->data, m->size_bytes);
	nic->ep->bytes_received += m->size_bytes;
	receive->status = RUBATO_OK;
	message_free(c, m);
	return true;
}

/* A put's data; false: there is no such memory. */
static bool put_lands(struct rb_sim_nic *nic, struct message *m)
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

static void deliver(struct rb_sim_cluster *c, struct message *m)
{
	struct rb_sim_nic *nic = receiver_of(m);
	struct link *l = m->link;
	uint32_t sender = m->sender;
	struct rb_request *receive;

	rb_sim_trace(c, RB_SIM_TRACE_ARRIVE, sender_of(m)->process->rank, process_of(m)->rank,
		     m->size_bytes + m->put_bytes, tag_word(m->tag));
	link_remove(m);
	m->landed = true;
	link_append(&l->landed, &l->landed_last, m);
	if (nic == NULL || nic->ep == NULL || nic->stopped) {
		message_drop(c, m);
		return;
	}
	if (m->kind == PUT && !put_lands(nic, m)) {
		message_free(c, m);
		return;
	}
	receive = table_take_receive(nic, m->sender, m->tag);
	if (receive == NULL) {
		table_add_arrival(nic, m);
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
	struct message *m = (struct message *)event;
	struct link *l = m->link;
	uint64_t wire_bytes = m->kind == LARGE ? 0 : m->size_bytes + m->put_bytes;

	if (!message_through(c, m, wire_bytes))
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

static void post_message(struct rb_sim_nic *nic, struct rb_request *r, enum message_kind kind,
			 bool copy)
{
	struct rb_sim_cluster *c = nic->process->cluster;
	bool full = copy && !rb_hollow(r->buffer);
	struct message *m = message_new(nic, r, kind, full ? r->size_bytes : 0);

	if (m == NULL) {
		request_end(r, RUBATO_ERR_MEMORY);
		return;
	}
	nic->ep->bytes_sent += r->size_bytes;
	if (m->sender != m->receiver) {
		c->result.messages++;
		c->result.message_bytes += r->size_bytes;
	}
	message_depart(c, m, kind == LARGE ? 0 : r->size_bytes, arrives);
	if (copy) {
		request_end(r, RUBATO_OK);
		return;
	}
	m->request = r;
	message_set(r, m);
	pending_add(nic, r);
}

void rb_sim_send(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct link *l;
	bool eager;

	if (!post_begin(nic, r, RB_REQUEST_SEND))
		return;
	if (member_of(nic, r->peer)->gone) {
		request_end(r, RUBATO_ERR_PEER);
		return;
	}
	l = link_to(nic, r->peer);
	eager = r->size_bytes <= RB_SIM_EAGER_BYTES_MAX && l != NULL &&
		l->unmatched_bytes + r->size_bytes <= RB_UNEXPECTED_BYTES_MAX;
	post_message(nic, r, eager ? EAGER : LARGE, eager);
}

void rb_sim_put(struct rb_sim_nic *nic, struct rb_request *r)
{
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
	post_message(nic, r, PUT, r->size_bytes <= RB_SIM_EAGER_BYTES_MAX);
}

void rb_sim_recv(struct rb_sim_nic *nic, struct rb_request *r)
{
	const struct rb_sim_member *peer;
	struct message *m;
	struct link *l;

	if (!post_begin(nic, r, RB_REQUEST_RECV))
		return;
	m = table_find_arrival(nic, r->peer, r->tag);
	if (m != NULL) {
		table_remove_arrival(nic, m);
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
	table_add_receive(nic, r);
}

/* Ends a pending request: nobody will look at its buffer again. */
static void request_abandon(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct rb_sim_cluster *c = nic->process->cluster;
	struct message *m = message_of(r);

	message_set(r, NULL);
	if (r->kind != RB_REQUEST_RECV) {
		if (m != NULL)
			message_withdraw(c, m);
		return;
	}
	if (m == NULL) {
		if (!nic->stopped)
			table_remove_receive(nic, r);
		return;
	}
	m->receive = NULL; /* As if they had not met. */
	rb_sim_event_unset(c, &m->event);
	table_add_arrival(nic, m);
}

void rb_sim_cancel(struct rb_sim_nic *nic, struct rb_request *r)
{
	if (r->backend[WHERE] == IN_DONE) {
		done_remove(nic, r);
		request_end(r, r->status);
	} else if (r->backend[WHERE] == IN_PENDING) {
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
	if (r->backend[WHERE] != IN_PENDING)
		return false;
	rb_sim_cancel(nic, r);
	r->state = RB_REQUEST_IDLE;
	return true;
}

bool rb_sim_unmatched(const struct rb_sim_nic *nic, rb_unmatched_visit *visit, void *arg)
{
	for (uint32_t b = 0; b < nic->bucket_count && nic->kept_count > 0; b++)
		for (const struct message *m = nic->buckets[b].arrivals; m != NULL; m = m->chain)
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
			       message_of(r) != NULL ? "under way" : "no message yet",
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
		nic->links = calloc(LINKS_MIN, sizeof(struct link *));
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
		struct message *m = message_of(r);

		if (m == NULL)
			continue;
		if (r->kind == RB_REQUEST_RECV) {
			message_set(r, NULL);
			message_drop(c, m);
		} else {
			message_withdraw(c, m);
		}
	}
	arrivals_drop(nic);
	for (uint32_t i = 0; i < nic->bucket_count; i++)
		nic->buckets[i] = (struct bucket) { NULL, NULL };
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
		struct link *l = nic->links[i];

		while (l != NULL && l->flying != NULL)
			message_free(nic->process->cluster, l->flying);
		while (l != NULL && l->landed != NULL)
			message_free(nic->process->cluster, l->landed);
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
	struct link *l = other != NULL ? *link_slot(other, nic->member->rank) : NULL;
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
