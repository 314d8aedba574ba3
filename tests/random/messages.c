/*
 * messages.c -- sends and receives: all at once in any order, blocking ones in the program's,
 * expected and not, to oneself, sent long before they are received, cancelled, timed out.
 */
#include <inttypes.h>
#include <string.h>

#include "random.h"

#define TAGS 3u
#define TAG_LATE 100u
#define TAG_CANCELLED 200u
#define TAG_WOKEN 400u

static const uint32_t mosts[] = { 1, 9, 300, 4000, 100000, 300000 }; /* Bytes. */

static bool mine(const struct place *place, const struct parcel *p)
{
	return p->from == place->rank || p->to == place->rank;
}

static void parcel_say(struct place *place, const struct parcel *p, const char *what)
{
	doing(place, "%s of message %u -> %u of %u tag %u count %" PRIu64 " %s", what, p->from,
	      p->to, place->size, p->tag, p->count, rubato_type_name(p->type));
}

static void parcel_draw(struct place *place, struct parcel *p, uint32_t tag, uint32_t tags)
{
	struct draws *draws = &place->common;

	*p = (struct parcel) { .from = below(draws, place->size),
			       .to = below(draws, place->size),
			       .tag = tag + below(draws, tags),
			       .type = type_draw(draws),
			       .key = next_key(place) };
	p->count = below(draws, mosts[below(draws, 6)]) / rubato_type_bytes(p->type);
}

/* One to oneself has two sides: the receive's buffer is another's. */
static void parcel_fill(struct place *place, struct parcel *p, bool sends)
{
	size_t element = rubato_type_bytes(p->type);

	buffer_make(place, &p->buffer, p->count * element, element);
	if (sends)
		values_moved(p->key, 0, 0, p->count, p->type, p->buffer.at);
	buffer_note(&p->buffer);
	if (!sends)
		values_moved(p->key, 0, 0, p->count, p->type,
			     p->buffer.shadow + (p->buffer.at - p->buffer.memory));
}

static void parcel_make(struct place *place, struct parcel *p, bool sends)
{
	parcel_fill(place, p, sends);
	if (sends)
		must(place, rubato_op_send(place->comm, p->buffer.at, p->count, p->type, p->to,
					   p->tag, &p->op));
	else
		must(place, rubato_op_recv(place->comm, p->buffer.at, p->count, p->type, p->from,
					   p->tag, &p->op));
}

static void parcel_start(struct place *place, struct parcel *p)
{
	parcel_say(place, p, "start");
	must(place, rubato_start(p->op));
	p->started = true;
}

static void parcel_end(struct place *place, struct parcel *p)
{
	parcel_say(place, p, p->from == place->rank ? "send" : "receive");
	if (p->op != NULL) {
		await(place, p->op);
		rubato_op_free(p->op);
		p->op = NULL;
	}
	buffer_check(place, &p->buffer, rubato_type_bytes(p->type), "buffer");
	buffer_free(place, &p->buffer);
}

static void send_now(struct place *place, struct parcel *p)
{
	parcel_say(place, p, "rubato_send");
	must(place, rubato_send(place->comm, p->buffer.at, p->count, p->type, p->to, p->tag));
	p->started = true;
}

static void receive_now(struct place *place, struct parcel *p)
{
	parcel_say(place, p, "rubato_recv");
	must(place, rubato_recv(place->comm, p->buffer.at, p->count, p->type, p->from, p->tag));
	p->started = true;
}

/* Nothing between the same two with the same tag stands before it. */
static bool may_start(const struct parcel *all, uint32_t k)
{
	for (uint32_t i = 0; i < k; i++)
		if (!all[i].started && all[i].from == all[k].from && all[i].to == all[k].to &&
		    all[i].tag == all[k].tag)
			return false;
	return true;
}

/* Does something to all that are this rank's and not started, in any order that the API allows. */
static void any_order(struct place *place, struct parcel *all, uint32_t count, bool sends,
		      bool receives, void (*act)(struct place *, struct parcel *))
{
	uint32_t order[PARCELS];

	for (bool again = true; again;) {
		again = false;
		order_draw(&place->own, count, order);
		for (uint32_t i = 0; i < count; i++) {
			struct parcel *p = &all[order[i]];

			if (p->started || !may_start(all, order[i]) ||
			    !((sends && p->from == place->rank) ||
			      (receives && p->to == place->rank)))
				continue;
			act(place, p);
			again = true;
		}
	}
}

static void all_make(struct place *place, struct parcel *all, uint32_t count, uint32_t how)
{
	for (uint32_t i = 0; i < count; i++) {
		bool sends = all[i].from == place->rank;

		all[i].started = !mine(place, &all[i]);
		if (all[i].started)
			continue;
		if (how == MESSAGES_ANY_ORDER || (how == MESSAGES_EXPECTED && !sends) ||
		    (how == MESSAGES_WAITING && sends))
			parcel_make(place, &all[i], sends);
		else
			parcel_fill(place, &all[i], sends);
	}
}

static void exchange(struct place *place, struct parcel *all, uint32_t messages, enum other how)
{
	all_make(place, all, messages, how);
	if (how == MESSAGES_ANY_ORDER) {
		any_order(place, all, messages, true, true, parcel_start);
	} else if (how == MESSAGES_EXPECTED) {
		any_order(place, all, messages, false, true, parcel_start);
		any_order(place, all, messages, true, false, send_now);
	} else if (how == MESSAGES_WAITING) {
		any_order(place, all, messages, true, false, parcel_start);
		any_order(place, all, messages, false, true, receive_now);
	}
	for (uint32_t i = 0; i < messages && how == MESSAGES_BLOCKING; i++) {
		if (all[i].from == place->rank)
			send_now(place, &all[i]);
		else if (all[i].to == place->rank)
			receive_now(place, &all[i]);
	}
	uint32_t order[PARCELS];

	order_draw(&place->own, messages, order);
	for (uint32_t i = 0; i < messages; i++)
		if (mine(place, &all[order[i]]))
			parcel_end(place, &all[order[i]]);
}

static void to_self(struct place *place)
{
	struct parcel send = { .from = place->rank, .to = place->rank, .tag = 300 }, receive;

	send.type = type_draw(&place->own);
	send.count = below(&place->own, 3000);
	send.key = draw(&place->own);
	receive = send;
	parcel_make(place, &send, true);
	parcel_make(place, &receive, false);
	if (one_in(&place->own, 2)) {
		parcel_start(place, &send);
		parcel_start(place, &receive);
	} else {
		parcel_start(place, &receive);
		parcel_start(place, &send);
	}
	parcel_end(place, &receive);
	parcel_end(place, &send);
	count(place, MESSAGES_TO_SELF);
}

/* Each sends so many ranks on, and receives from as many before. */
static void both_ways(struct place *place)
{
	uint32_t on = below(&place->common, place->size);
	rubato_type type = type_draw(&place->common);
	struct parcel send = { 0 }, receive = { 0 };

	for (uint32_t r = 0; r < place->size; r++) {
		struct parcel p;

		parcel_draw(place, &p, 0, TAGS);
		p.from = r;
		p.to = (r + on) % place->size;
		p.type = type;
		send = r == place->rank ? p : send;
		receive = p.to == place->rank ? p : receive;
	}
	parcel_fill(place, &send, true);
	parcel_fill(place, &receive, false);
	parcel_say(place, &send, "rubato_sendrecv");
	must(place,
	     rubato_sendrecv(place->comm, send.buffer.at, send.count, send.to, send.tag,
			     receive.buffer.at, receive.count, receive.from, receive.tag, type));
	parcel_end(place, &receive);
	parcel_end(place, &send);
	count(place, MESSAGES_BOTH_WAYS);
}

/* Sent now, received steps later, by whoever comes here next. */
static void send_early(struct place *place)
{
	place->late_count = 1 + below(&place->common, 4);
	for (uint32_t i = 0; i < place->late_count; i++) {
		struct parcel *p = &place->late[i];

		parcel_draw(place, p, TAG_LATE, 2);
		p->to = p->to == p->from ? (p->to + 1) % place->size : p->to;
		p->started = true;
		if (p->from != place->rank)
			continue;
		parcel_make(place, p, true);
		parcel_start(place, p);
	}
	count(place, MESSAGES_UNEXPECTED);
}

void parcels_end(struct place *place)
{
	for (uint32_t i = 0; i < place->late_count; i++) {
		place->late[i].started = place->late[i].to != place->rank;
		if (!place->late[i].started)
			parcel_fill(place, &place->late[i], false);
	}
	any_order(place, place->late, place->late_count, false, true, receive_now);
	for (uint32_t i = 0; i < place->late_count; i++)
		if (mine(place, &place->late[i]))
			parcel_end(place, &place->late[i]);
	place->late_count = 0;
}

void step_messages(struct place *place)
{
	struct parcel all[PARCELS];
	uint32_t messages = 1 + below(&place->common, PARCELS), what = below(&place->common, 7);

	if (place->size == 1 || what == 5) {
		to_self(place);
		return;
	}
	if (what == 6) {
		both_ways(place);
		return;
	}
	if (what == 4 && place->late_count == 0) {
		send_early(place);
		return;
	}
	if (what == 4) {
		parcels_end(place);
		return;
	}
	for (uint32_t i = 0; i < messages; i++) {
		struct parcel *p = &all[i];

		parcel_draw(place, p, 0, TAGS);
		p->to = p->to == p->from ? (p->to + 1) % place->size : p->to;
	}
	exchange(place, all, messages, (enum other)(MESSAGES_ANY_ORDER + what));
	count(place, (enum other)(MESSAGES_ANY_ORDER + what));
}

/* ---- Woken ---- */

#define WAKE_TRIES 12u
#define WAKE_SLOW 6u
#define WAKE_NAP_US 10000u
#define WOKEN_NS 50000000u /* Half of the longest sleep, after which a rank looks by itself. */
#define QUIET_NS 2000000u

/* How much longer than asked. */
static uint64_t nap_late(struct place *place, uint32_t us)
{
	uint64_t begin = rubato_now(place->comm);

	nap_unseen(us);
	return rubato_now(place->comm) - begin - UINT64_C(1000) * us;
}

/* Asks until an answer comes soon. Where naps are long, too, that it comes late says nothing. */
static void wake(struct place *place, uint32_t other)
{
	uint64_t more = 1, span_ns = UINT64_MAX, theirs, slow = 0;

	for (uint32_t i = 0; i < WAKE_TRIES && span_ns > WOKEN_NS; i++) {
		uint64_t mine_ns = nap_late(place, WAKE_NAP_US), begin = rubato_now(place->comm);

		must(place, rubato_send(place->comm, &more, 1, RUBATO_UINT64, other, TAG_WOKEN));
		must(place, rubato_recv(place->comm, &theirs, 1, RUBATO_UINT64, other, TAG_WOKEN));
		span_ns = rubato_now(place->comm) - begin;
		slow += span_ns > WOKEN_NS && mine_ns < QUIET_NS && theirs < QUIET_NS;
		if (slow == WAKE_SLOW)
			fail(place, "rank %u sleeps in a receive and is not woken: %" PRIu64 " us",
			     other, span_ns / 1000);
	}
	more = 0;
	must(place, rubato_send(place->comm, &more, 1, RUBATO_UINT64, other, TAG_WOKEN));
}

static void sleep_until_woken(struct place *place, uint32_t other)
{
	uint64_t more;

	for (;;) {
		uint64_t late_ns = nap_late(place, WAKE_NAP_US / 5);

		must(place, rubato_recv(place->comm, &more, 1, RUBATO_UINT64, other, TAG_WOKEN));
		if (more == 0)
			return;
		must(place, rubato_send(place->comm, &late_ns, 1, RUBATO_UINT64, other, TAG_WOKEN));
	}
}

void step_woken(struct place *place)
{
	uint32_t from = (uint32_t)(place->program->seed % place->size);
	uint32_t to = (from + 1) % place->size;

	doing(place, "a message from %u to %u, which sleeps", from, to);
	if (place->size == 1)
		return;
	if (place->rank == from)
		wake(place, to);
	else if (place->rank == to)
		sleep_until_woken(place, from);
	count(place, WOKEN);
}

/* ---- Taken back ---- */

/* A receive of what nobody sends ends in vain; the next one gets the message. */
static void receive_in_vain(struct place *place, const struct parcel *p, bool timed)
{
	struct parcel vain = *p;

	parcel_make(place, &vain, false);
	buffer_note(&vain.buffer);
	if (timed) {
		must(place, rubato_set_timeout(place->comm, 1000000));
		must_be(place, RUBATO_ERR_TIMEOUT,
			rubato_recv(place->comm, vain.buffer.at, p->count, p->type, p->from,
				    p->tag));
		must(place, rubato_set_timeout(place->comm, RUBATO_TIMEOUT_DEFAULT));
		count(place, RECEIVE_TIMED_OUT);
	} else {
		bool done = false;

		must(place, rubato_start(vain.op));
		must_be(place, RUBATO_ERR_ARGUMENT, rubato_start(vain.op));
		must(place, rubato_test(vain.op, &done));
		if (done)
			fail(place, "rubato_test: what nobody has sent is there");
		if (vain.buffer.comm != NULL)
			must_be(place, RUBATO_ERR_ARGUMENT,
				rubato_free(place->comm, vain.buffer.memory));
		must_be(place, RUBATO_ERR_TIMEOUT, rubato_wait(vain.op, RUBATO_NO_WAIT));
		must_be(place, RUBATO_ERR_CANCELLED, rubato_cancel(vain.op));
		count(place, RECEIVE_CANCELLED);
	}
	rubato_op_free(vain.op);
	buffer_check(place, &vain.buffer, rubato_type_bytes(p->type), "cancelled receive");
	buffer_free(place, &vain.buffer);
}

/* A send that may be over already: if not, it is started once more. */
static void send_cancelled(struct place *place, struct parcel *p)
{
	rubato_status status;

	must(place, rubato_start(p->op));
	if (one_in(&place->own, 2))
		nap(place, below(&place->own, 100));
	status = rubato_cancel(p->op);
	if (status != RUBATO_OK) {
		must_be(place, RUBATO_ERR_CANCELLED, status);
		count(place, SEND_CANCELLED);
		must(place, rubato_start(p->op));
	}
	count(place, CANCEL_RACED);
}

/* One cancelled receive; true: it has its message. */
static bool receive_cancelled(struct place *place, const struct parcel *p)
{
	struct parcel first = *p;
	rubato_status status;

	parcel_make(place, &first, false);
	must(place, rubato_start(first.op));
	if (one_in(&place->own, 2))
		nap(place, below(&place->own, 100));
	status = rubato_cancel(first.op);
	if (status == RUBATO_OK) {
		parcel_end(place, &first);
		return true;
	}
	must_be(place, RUBATO_ERR_CANCELLED, status);
	memcpy(first.buffer.shadow + (first.buffer.at - first.buffer.memory), first.buffer.at,
	       first.buffer.bytes); /* Some of it may have come. */
	rubato_op_free(first.op);
	buffer_check(place, &first.buffer, 8, "cancelled receive");
	buffer_free(place, &first.buffer);
	return false;
}

/*
 * A receive is cancelled when its message may have come, may be on its way, or not have begun. In
 * the last case the next receive gets it; if it has begun to come, the message is gone, and the
 * next receive gets the next one.
 */
static void receive_raced(struct place *place, struct parcel *p)
{
	struct parcel next;
	struct draws after;
	bool has;

	p->type = RUBATO_UINT64;
	p->count = 1 + p->count / 8;
	next = *p;
	next.key = mixed(p->key, 1);
	if (p->from == place->rank) {
		parcel_make(place, p, true);
		parcel_make(place, &next, true);
		parcel_start(place, p);
		parcel_start(place, &next);
		parcel_end(place, p);
		parcel_end(place, &next);
		return;
	}
	count(place, CANCEL_RACED);
	after.state = draw(&place->own); /* However this goes. */
	has = receive_cancelled(place, p);
	parcel_make(place, &next, false);
	parcel_start(place, &next);
	await(place, next.op);
	if (!has) {
		uint64_t of_first;

		values_moved(p->key, 0, 0, 1, p->type, (uint8_t *)&of_first);
		has = memcmp(&of_first, next.buffer.at, sizeof(of_first)) == 0;
		if (has) { /* All of it, and another one comes. */
			values_moved(p->key, 0, 0, p->count, p->type,
				     next.buffer.shadow + (next.buffer.at - next.buffer.memory));
			parcel_end(place, &next);
			parcel_make(place, &next, false);
			parcel_start(place, &next);
		}
	}
	parcel_end(place, &next);
	place->own = after;
}

void step_cancel(struct place *place)
{
	struct parcel p;
	uint32_t how = below(&place->common, 4);

	if (place->size == 1)
		return;
	parcel_draw(place, &p, TAG_CANCELLED, 1);
	p.to = p.to == p.from ? (p.to + 1) % place->size : p.to;
	parcel_say(place, &p, "cancel");
	if (how < 2 && p.to == place->rank)
		receive_in_vain(place, &p, how == 1);
	if (how < 2)
		must(place, rubato_barrier(place->comm));
	if (!mine(place, &p))
		return;
	if (how == 2) {
		receive_raced(place, &p);
		return;
	}
	parcel_make(place, &p, p.from == place->rank);
	if (how == 3 && p.from == place->rank)
		send_cancelled(place, &p);
	else
		parcel_start(place, &p);
	parcel_end(place, &p);
}
