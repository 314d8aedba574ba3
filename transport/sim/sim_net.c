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
#include "transport/sim/sim_world_inside.h"

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
	uint32_t sender, receiver; /* Ranks in the group. */
	enum message_kind kind;
	bool through; /* The receiver's link has taken it in. */
	bool arrived; /* Its turn to be delivered is all it waits for. */
	bool landed;
	bool kept; /* In the receiver's bucket. */
	struct rb_signature signature;
	struct rb_tag tag;
	size_t size_bytes;          /* As the receive must have it: 0 for a put. */
	struct rb_request *request; /* The sender's, while it needs us; NULL: eager, or given up. */
	struct rb_request *receive; /* Of a large one: met. */
	uint32_t region;            /* PUT: where to. */
	uint64_t offset, put_bytes;
	uint8_t data[];
};

struct link {                     /* From one rank to another. */
	struct rb_sim_port *port; /* The sender's. */
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

struct rb_sim_port {
	struct rb_sim_place *place;
	struct rb_sim_seat *seat;
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

static void pending_add(struct rb_sim_port *p, struct rb_request *r)
{
	r->backend[WHERE] = IN_PENDING;
	r->previous = NULL;
	r->next = p->pending;
	if (p->pending != NULL)
		p->pending->previous = r;
	p->pending = r;
}

static void pending_remove(struct rb_sim_port *p, struct rb_request *r)
{
	if (r->previous != NULL)
		r->previous->next = r->next;
	else
		p->pending = r->next;
	if (r->next != NULL)
		r->next->previous = r->previous;
}

static void done_add(struct rb_sim_port *p, struct rb_request *r)
{
	r->backend[WHERE] = IN_DONE;
	r->next = NULL;
	r->previous = p->done_last;
	if (p->done_last != NULL)
		p->done_last->next = r;
	else
		p->done = r;
	p->done_last = r;
}

static void done_remove(struct rb_sim_port *p, struct rb_request *r)
{
	if (r->previous != NULL)
		r->previous->next = r->next;
	else
		p->done = r->next;
	if (r->next != NULL)
		r->next->previous = r->previous;
	else
		p->done_last = r->previous;
}

static void request_complete(struct rb_sim_port *p, struct rb_request *r, rubato_status status)
{
	pending_remove(p, r);
	r->status = status;
	message_set(r, NULL);
	done_add(p, r);
	rb_sim_news(p->place);
}

/* ---- Links and messages ---- */

static struct rb_sim_place *place_of(const struct rb_sim_port *p, uint32_t rank)
{
	return &p->place->group->places[rank];
}

static struct rb_sim_port *sender_of(const struct message *m)
{
	return m->link->port;
}

static struct rb_sim_port *receiver_of(const struct message *m)
{
	return place_of(m->link->port, m->receiver)->port;
}

/* Of this world: the peer has been connected to, so it has a seat. */
static struct rb_sim_seat *seat_of(const struct message *m)
{
	return place_of(m->link->port, m->receiver)->seat;
}

static bool message_near(const struct message *m)
{
	return rb_sim_near(seat_of(m)->world, sender_of(m)->seat->rank, seat_of(m)->rank);
}

static struct link **link_slot(const struct rb_sim_port *p, uint32_t peer)
{
	uint32_t mask = p->link_capacity - 1;
	uint32_t i = (uint32_t)rb_mix(peer) & mask;

	while (p->links[i] != NULL && p->links[i]->peer != peer)
		i = (i + 1) & mask;
	return &p->links[i];
}

static bool links_grow(struct rb_sim_port *p)
{
	struct link **old = p->links;
	uint32_t old_capacity = p->link_capacity;
	struct link **links = calloc(old_capacity * 2u, sizeof(struct link *));

	if (links == NULL)
		return false;
	p->links = links;
	p->link_capacity = old_capacity * 2;
	for (uint32_t i = 0; i < old_capacity; i++) {
		if (old[i] != NULL)
			*link_slot(p, old[i]->peer) = old[i];
	}
	free(old);
	return true;
}

/* The link to a peer, made when first used; NULL: no memory. */
static struct link *link_to(struct rb_sim_port *p, uint32_t peer)
{
	struct link **slot = link_slot(p, peer);
	struct link *l;

	if (*slot != NULL)
		return *slot;
	if (2 * (p->link_count + 1) > p->link_capacity && !links_grow(p))
		return NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->port = p;
	l->peer = peer;
	p->link_count++;
	*link_slot(p, peer) = l;
	return l;
}

static void link_append(struct message **first, struct message **last, struct message *m)
{
	m->next = NULL;
	m->previous = *last;
	if (*last != NULL)
		(*last)->next = m;
	else
		*first = m;
	*last = m;
}

static void link_remove(struct message *m)
{
	struct message **first = m->landed ? &m->link->landed : &m->link->flying;
	struct message **last = m->landed ? &m->link->landed_last : &m->link->flying_last;

	if (m->previous != NULL)
		m->previous->next = m->next;
	else
		*first = m->next;
	if (m->next != NULL)
		m->next->previous = m->previous;
	else
		*last = m->previous;
}

static struct message *message_new(struct rb_sim_port *p, struct rb_request *r,
				   enum message_kind kind, size_t copy_bytes)
{
	struct link *l = link_to(p, r->peer);
	struct message *m = l != NULL ? malloc(sizeof(*m) + copy_bytes) : NULL;

	if (m == NULL)
		return NULL;
	memset(m, 0, sizeof(*m));
	m->event.from = m->event.to = RB_SIM_NOBODY;
	m->link = l;
	m->sender = p->place->rank;
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
	if (copy_bytes > 0)
		memcpy(m->data, r->buffer, copy_bytes);
	if (kind == EAGER)
		l->unmatched_bytes += m->size_bytes;
	link_append(&l->flying, &l->flying_last, m);
	return m;
}

/* ---- Matching: one table a port, by (peer, tag) ---- */

static uint64_t tag_word(struct rb_tag tag)
{
	return rb_mix(tag.call) + tag.step;
}

static struct bucket *bucket_of(const struct rb_sim_port *p, uint32_t peer, struct rb_tag tag)
{
	uint64_t hash = rb_mix(tag_word(tag) + peer * 0x9e3779b97f4a7c15u);

	return &p->buckets[(uint32_t)hash & (p->bucket_count - 1)];
}

static void bucket_add_receive(struct rb_sim_port *p, struct rb_request *r)
{
	struct bucket *b = bucket_of(p, r->peer, r->tag);
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

static void bucket_add_arrival(struct rb_sim_port *p, struct message *m)
{
	struct message **at = &bucket_of(p, m->sender, m->tag)->arrivals;

	while (*at != NULL)
		at = &(*at)->chain;
	m->chain = NULL;
	*at = m;
}

/* Keeps chains short. Without memory for it they only grow longer. */
static void buckets_grow(struct rb_sim_port *p)
{
	struct bucket *old = p->buckets;
	uint32_t old_count = p->bucket_count;
	struct bucket *buckets;

	if (p->entry_count <= old_count)
		return;
	buckets = calloc(old_count * 2u, sizeof(*buckets));
	if (buckets == NULL)
		return;
	p->buckets = buckets;
	p->bucket_count = old_count * 2;
	for (uint32_t i = 0; i < old_count; i++) {
		for (struct rb_request *r = old[i].receives, *next; r != NULL; r = next) {
			next = chain_of(r);
			bucket_add_receive(p, r);
		}
		for (struct message *m = old[i].arrivals, *next; m != NULL; m = next) {
			next = m->chain;
			bucket_add_arrival(p, m);
		}
	}
	free(old);
}

static void table_add_receive(struct rb_sim_port *p, struct rb_request *r)
{
	p->entry_count++;
	buckets_grow(p);
	bucket_add_receive(p, r);
}

static void table_add_arrival(struct rb_sim_port *p, struct message *m)
{
	m->kept = true;
	p->kept_count++;
	p->entry_count++;
	buckets_grow(p);
	bucket_add_arrival(p, m);
}

static struct rb_request *table_take_receive(struct rb_sim_port *p, uint32_t peer,
					     struct rb_tag tag)
{
	struct bucket *b = bucket_of(p, peer, tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = chain_of(r)) {
		if (r->peer != peer || !rb_tag_same(r->tag, tag))
			continue;
		if (before != NULL)
			chain_set(before, chain_of(r));
		else
			b->receives = chain_of(r);
		p->entry_count--;
		return r;
	}
	return NULL;
}

static struct message *table_find_arrival(struct rb_sim_port *p, uint32_t peer, struct rb_tag tag)
{
	struct message *m = bucket_of(p, peer, tag)->arrivals;

	while (m != NULL && (m->sender != peer || !rb_tag_same(m->tag, tag)))
		m = m->chain;
	return m;
}

static void table_remove_receive(struct rb_sim_port *p, struct rb_request *gone)
{
	struct bucket *b = bucket_of(p, gone->peer, gone->tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = chain_of(r)) {
		if (r != gone)
			continue;
		if (before != NULL)
			chain_set(before, chain_of(r));
		else
			b->receives = chain_of(r);
		p->entry_count--;
		return;
	}
	RB_ASSERT(false); /* A pending receive without message is in the table. */
}

static void table_remove_arrival(struct rb_sim_port *p, struct message *gone)
{
	struct message **at = &bucket_of(p, gone->sender, gone->tag)->arrivals;

	while (*at != gone)
		at = &(*at)->chain;
	*at = gone->chain;
	gone->kept = false;
	p->kept_count--;
	p->entry_count--;
}

/* ---- The end of a message ---- */

static void message_free(struct rb_sim_world *w, struct message *m)
{
	struct message *after = m->next;

	rb_sim_event_unset(w, &m->event);
	if (m->kept)
		table_remove_arrival(receiver_of(m), m);
	if (m->kind == EAGER)
		m->link->unmatched_bytes -= m->size_bytes;
	link_remove(m);
	if (!m->landed && after != NULL && after == m->link->flying && after->arrived)
		rb_sim_event_set(w, &after->event, w->now_ns); /* It waited for this one only. */
	free(m);
}

/* The receiver does not want it (any more). The sender's request stays: it learns why in time. */
static void message_drop(struct rb_sim_world *w, struct message *m)
{
	if (m->request != NULL)
		message_set(m->request, NULL);
	message_free(w, m);
}

/* The sender takes it back; a receive that has met it waits again. */
static void message_withdraw(struct rb_sim_world *w, struct message *m)
{
	if (m->receive != NULL) {
		message_set(m->receive, NULL);
		table_add_receive(receiver_of(m), m->receive);
	}
	message_drop(w, m);
}

/* ---- Time ---- */

static uint64_t wire_ns(const struct rb_sim_world *w, bool near, uint64_t size_bytes)
{
	double bandwidth = near ? w->options.node_bandwidth : w->options.bandwidth;

	return (uint64_t)((double)size_bytes * 1e9 / bandwidth + 0.5);
}

static uint64_t travel_ns(struct rb_sim_world *w, const struct message *m)
{
	uint64_t ns = message_near(m) ? w->options.node_latency_ns : w->options.latency_ns;

	if (m->sender == m->receiver)
		return 0;
	if (w->options.jitter > 0)
		ns += (uint64_t)((double)ns * w->options.jitter * rb_rng_unit(&w->rng));
	return ns;
}

/* The last byte leaves, and travels: sets the message's event. */
static void message_depart(struct rb_sim_world *w, struct message *m, uint64_t size_bytes,
			   rb_sim_fire *fire)
{
	struct rb_sim_seat *seat = sender_of(m)->seat;
	bool near = message_near(m);
	uint64_t *out_free_ns = &seat->out_free_ns[near];
	uint64_t travel = travel_ns(w, m), left_ns = w->now_ns;

	if (m->sender != m->receiver) {
		left_ns = *out_free_ns > w->now_ns ? *out_free_ns : w->now_ns;
		left_ns += wire_ns(w, near, size_bytes);
		*out_free_ns = left_ns;
		if (w->options.reorder != 0 && rb_rng_below(&w->rng, HELD_ONE_IN) == 0)
			travel += rb_rng_below(&w->rng, HELD_LATENCIES * travel + 1);
	}
	m->through = false;
	m->event.from = seat->rank;
	m->event.to = seat_of(m)->rank;
	m->event.fire = fire;
	rb_sim_event_set(w, &m->event, rb_deadline(left_ns, travel));
}

/* Whether the receiver's link has taken it in; if not, the event comes again when it has. */
static bool message_through(struct rb_sim_world *w, struct message *m, uint64_t size_bytes)
{
	uint64_t *in_free_ns = &seat_of(m)->in_free_ns[message_near(m)];
	uint64_t through_ns;

	if (m->through || m->sender == m->receiver)
		return true;
	through_ns = *in_free_ns + wire_ns(w, message_near(m), size_bytes);
	if (through_ns < w->now_ns)
		through_ns = w->now_ns;
	*in_free_ns = through_ns;
	m->through = true;
	if (through_ns == w->now_ns)
		return true;
	rb_sim_event_set(w, &m->event, through_ns);
	return false;
}

/* ---- Meeting ---- */

static void large_done(struct rb_sim_world *w, struct rb_sim_event *event)
{
	struct message *m = (struct message *)event;
	struct rb_sim_port *sender = sender_of(m), *receiver = receiver_of(m);
	struct rb_request *request = m->request, *receive = m->receive;

	if (!message_through(w, m, m->size_bytes))
		return;
	rb_sim_trace(w, RB_SIM_TRACE_DATA, sender->seat->rank, receiver->seat->rank, m->size_bytes,
		     tag_word(m->tag));
	memcpy(receive->buffer, request->buffer, m->size_bytes);
	receiver->ep->bytes_received += m->size_bytes;
	message_free(w, m);
	request_complete(receiver, receive, RUBATO_OK);
	request_complete(sender, request, RUBATO_OK);
}

static void large_granted(struct rb_sim_world *w, struct rb_sim_event *event)
{
	struct message *m = (struct message *)event;

	rb_sim_trace(w, RB_SIM_TRACE_GRANT, seat_of(m)->rank, sender_of(m)->seat->rank,
		     m->size_bytes, tag_word(m->tag));
	message_depart(w, m, m->size_bytes, large_done);
}

/* Whether the receive is over, its status set; if not, the data is yet to come. */
static bool meet(struct rb_sim_port *p, struct rb_request *receive, struct message *m)
{
	struct rb_sim_world *w = p->seat->world;

	if (!rb_signature_same(&receive->signature, &m->signature) ||
	    receive->size_bytes != m->size_bytes) {
		receive->theirs = m->signature;
		receive->their_bytes = m->size_bytes;
		receive->status = RUBATO_ERR_MISMATCH;
		if (m->request != NULL) /* Nobody will read the source any more. */
			request_complete(sender_of(m), m->request, RUBATO_OK);
		message_free(w, m);
		return true;
	}
	if (m->kind == LARGE) {
		m->receive = receive;
		message_set(receive, m);
		m->event.from = p->seat->rank;
		m->event.to = sender_of(m)->seat->rank;
		m->event.fire = large_granted;
		rb_sim_event_set(w, &m->event, rb_deadline(w->now_ns, travel_ns(w, m)));
		return false;
	}
	if (m->kind == EAGER && m->size_bytes > 0)
		memcpy(receive->buffer, m->data, m->size_bytes);
	p->ep->bytes_received += m->size_bytes;
	receive->status = RUBATO_OK;
	message_free(w, m);
	return true;
}

/* A put's data; false: there is no such memory. */
static bool put_lands(struct rb_sim_port *p, struct message *m)
{
	void *to = rb_sim_memory(p->ep, m->region, m->offset, m->put_bytes);

	if (to == NULL) {
		if (m->request != NULL)
			request_complete(sender_of(m), m->request, RUBATO_ERR_ARGUMENT);
		return false;
	}
	if (m->put_bytes > 0)
		memcpy(to, m->request != NULL ? m->request->buffer : m->data, m->put_bytes);
	p->ep->bytes_received += m->put_bytes;
	if (m->request != NULL)
		request_complete(sender_of(m), m->request, RUBATO_OK);
	m->request = NULL;
	return true;
}

static void deliver(struct rb_sim_world *w, struct message *m)
{
	struct rb_sim_port *p = receiver_of(m);
	struct link *l = m->link;
	uint32_t sender = m->sender;
	struct rb_request *receive;

	rb_sim_trace(w, RB_SIM_TRACE_ARRIVE, sender_of(m)->seat->rank, seat_of(m)->rank,
		     m->size_bytes + m->put_bytes, tag_word(m->tag));
	link_remove(m);
	m->landed = true;
	link_append(&l->landed, &l->landed_last, m);
	if (p == NULL || p->ep == NULL || p->stopped) {
		message_drop(w, m);
		return;
	}
	if (m->kind == PUT && !put_lands(p, m)) {
		message_free(w, m);
		return;
	}
	receive = table_take_receive(p, m->sender, m->tag);
	if (receive == NULL) {
		table_add_arrival(p, m);
		if (rb_tag_is_probe(m->tag)) /* For who sleeps; others look by themselves. */
			rb_sim_news(p->place);
	} else if (meet(p, receive, m)) {
		request_complete(p, receive, receive->status);
	}
	if (l->leaving && l->flying == NULL)
		rb_sim_port_lost(p, sender, false);
}

static void arrives(struct rb_sim_world *w, struct rb_sim_event *event)
{
	struct message *m = (struct message *)event;
	struct link *l = m->link;
	uint64_t wire_bytes = m->kind == LARGE ? 0 : m->size_bytes + m->put_bytes;

	if (!message_through(w, m, wire_bytes))
		return;
	m->arrived = true;
	if (w->options.reorder != 0) {
		deliver(w, m);
		return;
	}
	while (l->flying != NULL && l->flying->arrived)
		deliver(w, l->flying);
}

/* ---- Posts ---- */

static bool post_begin(struct rb_sim_port *p, struct rb_request *r, enum rb_request_kind kind)
{
	request_begin(r, kind);
	if (r->peer >= p->place->group->rank_count) {
		request_end(r, RUBATO_ERR_ARGUMENT);
		return false;
	}
	if (p->seat->ghost) { /* Nothing comes and nothing goes. */
		pending_add(p, r);
		return false;
	}
	return true;
}

static void post_message(struct rb_sim_port *p, struct rb_request *r, enum message_kind kind,
			 bool copy)
{
	struct rb_sim_world *w = p->seat->world;
	struct message *m = message_new(p, r, kind, copy ? r->size_bytes : 0);

	if (m == NULL) {
		request_end(r, RUBATO_ERR_MEMORY);
		return;
	}
	p->ep->bytes_sent += r->size_bytes;
	if (m->sender != m->receiver) {
		w->result.messages++;
		w->result.message_bytes += r->size_bytes;
	}
	message_depart(w, m, kind == LARGE ? 0 : r->size_bytes, arrives);
	if (copy) {
		request_end(r, RUBATO_OK);
		return;
	}
	m->request = r;
	message_set(r, m);
	pending_add(p, r);
}

void rb_sim_send(struct rb_sim_port *p, struct rb_request *r)
{
	struct link *l;
	bool eager;

	if (!post_begin(p, r, RB_REQUEST_SEND))
		return;
	if (place_of(p, r->peer)->gone) {
		request_end(r, RUBATO_ERR_PEER);
		return;
	}
	l = link_to(p, r->peer);
	eager = r->size_bytes <= RB_SIM_EAGER_BYTES_MAX && l != NULL &&
		l->unmatched_bytes + r->size_bytes <= RB_UNEXPECTED_BYTES_MAX;
	post_message(p, r, eager ? EAGER : LARGE, eager);
}

void rb_sim_put(struct rb_sim_port *p, struct rb_request *r)
{
	if (!post_begin(p, r, RB_REQUEST_PUT))
		return;
	if (place_of(p, r->peer)->gone) {
		request_end(r, RUBATO_ERR_PEER);
		return;
	}
	if (r->remote == NULL || r->remote->peer != r->peer ||
	    r->remote_offset > r->remote->size_bytes ||
	    r->size_bytes > r->remote->size_bytes - r->remote_offset) {
		request_end(r, RUBATO_ERR_ARGUMENT);
		return;
	}
	post_message(p, r, PUT, r->size_bytes <= RB_SIM_EAGER_BYTES_MAX);
}

void rb_sim_recv(struct rb_sim_port *p, struct rb_request *r)
{
	const struct rb_sim_place *peer;
	struct message *m;
	struct link *l;

	if (!post_begin(p, r, RB_REQUEST_RECV))
		return;
	m = table_find_arrival(p, r->peer, r->tag);
	if (m != NULL) {
		table_remove_arrival(p, m);
		if (meet(p, r, m))
			request_end(r, r->status);
		else
			pending_add(p, r);
		return;
	}
	peer = place_of(p, r->peer);
	if (peer->gone) {
		l = peer->gone_fails ? NULL : *link_slot(peer->port, p->place->rank);
		if (l == NULL || l->flying == NULL) {
			request_end(r, RUBATO_ERR_PEER);
			return;
		}
	}
	pending_add(p, r);
	table_add_receive(p, r);
}

/* Ends a pending request: nobody will look at its buffer again. */
static void request_abandon(struct rb_sim_port *p, struct rb_request *r)
{
	struct rb_sim_world *w = p->seat->world;
	struct message *m = message_of(r);

	message_set(r, NULL);
	if (r->kind != RB_REQUEST_RECV) {
		if (m != NULL)
			message_withdraw(w, m);
		return;
	}
	if (m == NULL) {
		if (!p->stopped)
			table_remove_receive(p, r);
		return;
	}
	m->receive = NULL; /* As if they had not met. */
	rb_sim_event_unset(w, &m->event);
	table_add_arrival(p, m);
}

void rb_sim_cancel(struct rb_sim_port *p, struct rb_request *r)
{
	if (r->backend[WHERE] == IN_DONE) {
		done_remove(p, r);
		request_end(r, r->status);
	} else if (r->backend[WHERE] == IN_PENDING) {
		pending_remove(p, r);
		request_abandon(p, r);
		request_end(r, RUBATO_ERR_CANCELLED);
	}
}

struct rb_request *rb_sim_collect(struct rb_sim_port *p)
{
	struct rb_request *list = p->done;

	for (struct rb_request *r = list; r != NULL; r = r->next)
		request_end(r, r->status);
	p->done = p->done_last = NULL;
	return list;
}

bool rb_sim_collectable(const struct rb_sim_port *p)
{
	return p->done != NULL;
}

bool rb_sim_recall(struct rb_sim_port *p, struct rb_request *r)
{
	if (r->backend[WHERE] != IN_PENDING)
		return false;
	rb_sim_cancel(p, r);
	r->state = RB_REQUEST_IDLE;
	return true;
}

bool rb_sim_unmatched(const struct rb_sim_port *p, rb_unmatched_visit *visit, void *arg)
{
	for (uint32_t b = 0; b < p->bucket_count && p->kept_count > 0; b++)
		for (const struct message *m = p->buckets[b].arrivals; m != NULL; m = m->chain)
			if (visit(arg, m->sender, m->tag, &m->signature))
				return true;
	return false;
}

void rb_sim_describe(struct rb_sim_port *p, void (*line)(void *arg, const char *text), void *arg)
{
	static const char *const kinds[] = { "send to", "receive from", "put to" };
	char text[160], what[80];

	for (const struct rb_request *r = p->pending; r != NULL; r = r->next) {
		(void)snprintf(text, sizeof(text), "%s %u tag %llx:%llx %zu bytes %s: %s",
			       kinds[r->kind], r->peer, (unsigned long long)r->tag.call,
			       (unsigned long long)r->tag.step, r->size_bytes,
			       message_of(r) != NULL ? "under way" : "no message yet",
			       rb_signature_text(&r->signature, what, sizeof(what)));
		line(arg, text);
	}
}

/* ---- Ports ---- */

rubato_status rb_sim_port_open(struct rb_sim_place *place, struct rb_endpoint *ep)
{
	struct rb_sim_port *p = place->port;
	struct rb_sim_seat *seat = place->seat;

	if (p == NULL) {
		p = calloc(1, sizeof(*p));
		if (p == NULL)
			return RB_FAIL(RUBATO_ERR_MEMORY, "sim: %zu bytes", sizeof(*p));
		p->place = place;
		p->seat = seat;
		p->link_capacity = LINKS_MIN;
		p->bucket_count = BUCKETS_MIN;
		p->links = calloc(LINKS_MIN, sizeof(struct link *));
		p->buckets = calloc(BUCKETS_MIN, sizeof(*p->buckets));
		place->port = p;
	}
	if (p->links == NULL || p->buckets == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "sim: tables of rank %u", seat->rank);
	if (p->ep != NULL)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "sim: rank %u has an endpoint already",
			       seat->rank);
	p->ep = ep;
	p->stopped = seat->ghost;
	return RUBATO_OK;
}

/* Forgets what has arrived. */
static void arrivals_drop(struct rb_sim_port *p)
{
	for (uint32_t i = 0; i < p->bucket_count; i++) {
		while (p->buckets[i].arrivals != NULL)
			message_drop(p->seat->world, p->buckets[i].arrivals);
	}
}

void rb_sim_port_stop(struct rb_sim_port *p)
{
	struct rb_sim_world *w = p->seat->world;

	if (p->ep == NULL || p->stopped)
		return;
	for (struct rb_request *r = p->pending; r != NULL; r = r->next) {
		struct message *m = message_of(r);

		if (m == NULL)
			continue;
		if (r->kind == RB_REQUEST_RECV) {
			message_set(r, NULL);
			message_drop(w, m);
		} else {
			message_withdraw(w, m);
		}
	}
	arrivals_drop(p);
	for (uint32_t i = 0; i < p->bucket_count; i++)
		p->buckets[i] = (struct bucket) { NULL, NULL };
	p->entry_count = 0;
	p->stopped = true;
}

void rb_sim_port_close(struct rb_sim_port *p)
{
	rb_sim_port_stop(p);
	p->pending = p->done = p->done_last = NULL;
	p->ep = NULL;
}

void rb_sim_port_free(struct rb_sim_port *p)
{
	if (p == NULL)
		return;
	for (uint32_t i = 0; p->links != NULL && i < p->link_capacity; i++) {
		struct link *l = p->links[i];

		while (l != NULL && l->flying != NULL)
			message_free(p->seat->world, l->flying);
		while (l != NULL && l->landed != NULL)
			message_free(p->seat->world, l->landed);
		free(l);
	}
	free(p->links);
	free(p->buckets);
	free(p);
}

struct rb_endpoint *rb_sim_port_endpoint(const struct rb_sim_port *p)
{
	return p != NULL ? p->ep : NULL;
}

bool rb_sim_port_at_work(const struct rb_sim_port *p)
{
	return p->pending != NULL;
}

void rb_sim_port_lost(struct rb_sim_port *p, uint32_t peer, bool failed)
{
	struct rb_sim_port *other = place_of(p, peer)->port;
	struct link *l = other != NULL ? *link_slot(other, p->place->rank) : NULL;
	bool more = !failed && l != NULL && l->flying != NULL;

	if (l != NULL)
		l->leaving = more;
	for (struct rb_request *r = p->pending, *next; r != NULL; r = next) {
		next = r->next;
		if (r->peer != peer || (more && r->kind == RB_REQUEST_RECV))
			continue;
		request_abandon(p, r);
		request_complete(p, r, RUBATO_ERR_PEER);
	}
}
