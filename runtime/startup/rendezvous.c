/*
 * rendezvous.c -- the machine as a whole: its life, its actions, and the bytes of connections.
 *
 *   IDLE --OPEN--> JOINING --all here--> STARTING --told--> READY <--> EXCHANGING
 *                     |                     |                 |            |
 *                     `---------------------+--- FAILING -----+------------'
 *                                                  |
 *                                               FAILED
 * (STARTING is the root's. In FAILING it tells the others why; another rank tells the root.)
 *
 * A process proves that it knows the secret before anything changes or is said: HELLO and CHALLENGE
 * carry nonces only, PROOF and WELCOME are MACs over all that crossed before, so neither can be
 * replayed, nor reflected (the labels differ). What follows carries MACs under a key of this
 * connection, numbered, so nothing can be altered, repeated, dropped or turned round.
 *
 * A connection is given one message at a time: first its head, then as many bytes as the head says
 * and the phase allows. So a stranger costs a bounded buffer and nothing else, and a rank that is
 * ahead waits in its own kernel buffers.
 */
#include "runtime/startup/rendezvous_inside.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(x) (1u << (x))

static const uint32_t allowed[] = {
	[RB_RV_IDLE] = BIT(RB_RV_JOINING) | BIT(RB_RV_READY),
	[RB_RV_JOINING] =
		BIT(RB_RV_STARTING) | BIT(RB_RV_READY) | BIT(RB_RV_FAILING) | BIT(RB_RV_FAILED),
	[RB_RV_STARTING] = BIT(RB_RV_READY) | BIT(RB_RV_FAILING),
	[RB_RV_READY] = BIT(RB_RV_EXCHANGING) | BIT(RB_RV_FAILING) | BIT(RB_RV_FAILED),
	[RB_RV_EXCHANGING] = BIT(RB_RV_READY) | BIT(RB_RV_FAILING) | BIT(RB_RV_FAILED),
	[RB_RV_FAILING] = BIT(RB_RV_FAILED),
	[RB_RV_FAILED] = 0,
};

const char *rb_rv_state_name(enum rb_rv_state state)
{
	static const char *const names[] = {
#define X(name) #name,
		RB_RV_STATES(X)
#undef X
	};

	return names[state];
}

void rb_rv_move(struct rb_rv *m, enum rb_rv_state next)
{
	RB_ASSERT(allowed[m->state] & BIT(next));
	m->state = next;
}

/* ---- Actions ---- */

void rb_rv_act(struct rb_rv *m, enum rb_rv_act act, uint32_t connection)
{
	RB_ASSERT(m->queue.count < m->queue.capacity);
	if (m->queue.count < m->queue.capacity)
		m->queue.items[m->queue.count++] =
			(struct rb_rv_action) { .act = act, .connection = connection };
}

void rb_rv_report(struct rb_rv *m, enum rb_log_level level, const char *format, ...)
{
	va_list args;

	if (m->queue.report_count == REPORTS_MAX)
		return;
	char *text = m->queue.reports[m->queue.report_count++];

	va_start(args, format);
	(void)vsnprintf(text, RB_RV_TEXT_MAX, format, args);
	va_end(args);
	rb_rv_act(m, RB_RV_ACT_REPORT, NO_CONNECTION);
	m->queue.items[m->queue.count - 1].level = level;
	m->queue.items[m->queue.count - 1].text = text;
}

void rb_rv_reason_set(struct reason *reason, rubato_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason->text, sizeof(reason->text), format, args);
	va_end(args);
	reason->status = status;
	reason->blames = 0;
}

void rb_rv_reason_peer(struct reason *reason, uint32_t rank, uint32_t blames, const char *format,
		       ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(reason->text, sizeof(reason->text), format, args);
	va_end(args);
	reason->status = RUBATO_ERR_PEER;
	reason->blames = blames > 0 ? blames : rank + 1;
}

void rb_rv_fail_act(struct rb_rv *m)
{
	rb_rv_move(m, RB_RV_FAILED);
	rb_rv_act(m, RB_RV_ACT_FAIL, NO_CONNECTION);
	m->queue.items[m->queue.count - 1].status = m->fail.status;
	m->queue.items[m->queue.count - 1].blames = m->fail.blames;
	m->queue.items[m->queue.count - 1].text = m->fail.text;
}

bool rb_rv_next(struct rb_rv *m, struct rb_rv_action *action)
{
	if (m->queue.head == m->queue.count)
		return false;
	*action = m->queue.items[m->queue.head++];
	return true;
}

/* ---- Messages out ---- */

uint8_t *rb_rv_put_at(struct connection *c)
{
	return c->out + c->out_count;
}

struct rb_wire rb_rv_put_begin(struct connection *c, enum rb_rv_kind kind)
{
	if (c->out_at > 0) {
		memmove(c->out, c->out + c->out_at, c->out_count - c->out_at);
		c->out_count -= c->out_at;
		c->out_at = 0;
	}
	return rb_rv_message_begin(rb_rv_put_at(c), OUT_BYTES - c->out_count, kind);
}

void rb_rv_put_end(struct rb_rv *m, struct connection *c, const struct rb_wire *w, bool session)
{
	uint8_t *at = rb_rv_put_at(c);
	size_t total = rb_rv_message_end(at, w);

	if (session) {
		RB_ASSERT((size_t)(w->end - w->at) >= RB_RV_MAC_BYTES);
		rb_rv_frame_mac(c->session, m->rank == 0, c->sent++, at, total, at + total);
		total += RB_RV_MAC_BYTES;
	}
	c->out_count += (uint32_t)total;
	rb_rv_act(m, RB_RV_ACT_SEND, connection_number(m, c));
}

void rb_rv_put_reason(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind,
		      const struct reason *reason)
{
	struct rb_wire w = rb_rv_put_begin(c, kind);
	size_t text_bytes = strlen(reason->text);

	rb_wire_put_u32(&w, (uint32_t) - (int32_t)reason->status);
	rb_wire_put_u32(&w, reason->blames);
	rb_wire_put_bytes(&w, reason->text,
			  text_bytes < RB_RV_FAIL_TEXT_MAX ? text_bytes : RB_RV_FAIL_TEXT_MAX);
	rb_rv_put_end(m, c, &w, true);
}

/* ---- Messages in ---- */

struct rb_wire rb_rv_payload(struct connection *c)
{
	struct rb_rv_head head;

	(void)rb_rv_head_read(c->in, &head);
	return rb_wire_over(c->in + RB_RV_HEAD_BYTES, head.payload_bytes);
}

void rb_rv_get_reason(const struct rb_rv *m, struct connection *c, struct reason *reason)
{
	struct rb_wire w = rb_rv_payload(c);
	uint32_t code = rb_wire_get_u32(&w), blames = rb_wire_get_u32(&w);
	size_t bytes = (size_t)(w.end - w.at);

	RB_ASSERT(bytes < sizeof(reason->text)); /* The head's bounds. */
	for (size_t i = 0; i < bytes; i++)
		reason->text[i] = w.at[i] >= ' ' && w.at[i] < 127 ? (char)w.at[i] : '?';
	reason->text[bytes] = '\0';
	if (code == 0 || code > (uint32_t)-RUBATO_ERR_INTERNAL)
		code = (uint32_t)-RUBATO_ERR_PEER;
	reason->status = (rubato_status) - (int32_t)code;
	reason->blames = blames <= m->rank_count ? blames : 0;
}

void rb_rv_transcript_add(struct connection *c, const uint8_t *bytes, size_t size_bytes)
{
	RB_ASSERT(c->transcript_bytes + size_bytes <= sizeof(c->transcript));
	memcpy(c->transcript + c->transcript_bytes, bytes, size_bytes);
	c->transcript_bytes += (uint32_t)size_bytes;
}

void rb_rv_session_make(struct rb_rv *m, struct connection *c)
{
	RB_ASSERT(c->transcript_bytes == RB_RV_TRANSCRIPT_BYTES);
	rb_rv_mac(m->key, "rubato session", c->transcript, c->transcript_bytes, NULL, 0,
		  c->session);
}

bool rb_rv_frame_good(struct rb_rv *m, struct connection *c)
{
	uint8_t mac[RB_RV_MAC_BYTES];
	size_t frame_bytes = c->in_count - RB_RV_MAC_BYTES;

	rb_rv_frame_mac(c->session, m->rank != 0, c->received++, c->in, frame_bytes, mac);
	return rb_rv_mac_same(mac, c->in + frame_bytes);
}

void rb_rv_connection_reset(struct connection *c, enum phase phase, uint64_t now_ns)
{
	/* Not the buffers: they are large, and nothing reads past their counts. */
	sodium_memzero(c, offsetof(struct connection, in));
	c->phase = phase;
	c->since_ns = now_ns;
}

static uint32_t expected(const struct rb_rv *m, const struct connection *c)
{
	switch (c->phase) {
	case PHASE_HELLO:
		return BIT(RB_RV_HELLO);
	case PHASE_CHALLENGE:
		return BIT(RB_RV_CHALLENGE) | BIT(RB_RV_REFUSE);
	case PHASE_PROOF:
		return BIT(RB_RV_PROOF);
	case PHASE_WELCOME:
		return BIT(RB_RV_WELCOME) | BIT(RB_RV_REFUSE) | BIT(RB_RV_FAIL);
	case PHASE_MEMBER:
		return m->rank == 0 ? BIT(RB_RV_GATHER) | BIT(RB_RV_LEAVE)
				    : BIT(RB_RV_START) | BIT(RB_RV_TABLE) | BIT(RB_RV_FAIL);
	case PHASE_FREE:
	case PHASE_CONNECTING:
	case PHASE_LEAVING:
		break;
	}
	return 0;
}

/* How many bytes the message at hand has in all, as far as is known. */
static size_t wanted(const struct connection *c)
{
	struct rb_rv_head head;

	if (c->in_count < RB_RV_HEAD_BYTES)
		return RB_RV_HEAD_BYTES;
	return rb_rv_head_read(c->in, &head) == RB_RV_GOOD ? head.total_bytes : c->in_count;
}

size_t rb_rv_room(const struct rb_rv *m, uint32_t connection)
{
	const struct connection *c = &m->connections[connection];

	if (expected(m, c) == 0 || m->state == RB_RV_FAILING || m->state == RB_RV_FAILED)
		return 0;
	return wanted(c) - c->in_count;
}

/* What GATHER brought before its round began stays in c->in until then. */
static void received(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	struct rb_rv_head head;

	RB_ASSERT(e->size_bytes > 0 && e->size_bytes <= rb_rv_room(m, connection_number(m, c)));
	memcpy(c->in + c->in_count, e->bytes, e->size_bytes);
	c->in_count += (uint32_t)e->size_bytes;
	if (c->in_count < RB_RV_HEAD_BYTES)
		return;
	enum rb_rv_verdict verdict = rb_rv_head_read(c->in, &head);

	if (verdict == RB_RV_GOOD && !(expected(m, c) & BIT(head.kind)))
		verdict = RB_RV_JUNK;
	if (verdict != RB_RV_GOOD) {
		if (m->rank == 0)
			rb_rv_root_bad(m, c, verdict);
		else
			rb_rv_rank_bad(m, c, &head, verdict);
	} else if (c->in_count == head.total_bytes) {
		if (m->rank == 0)
			rb_rv_root_got(m, c, head.kind);
		else
			rb_rv_rank_got(m, c, head.kind);
	}
}

/* ---- Questions ---- */

uint64_t rb_rv_wake_ns(const struct rb_rv *m)
{
	if (m->state == RB_RV_FAILING)
		return m->linger_ns;
	return m->rank == 0 ? rb_rv_root_wake_ns(m) : rb_rv_rank_wake_ns(m);
}

int32_t rb_rv_process(const struct rb_rv *m, uint32_t connection)
{
	const struct connection *c = &m->connections[connection];

	return c->phase == PHASE_MEMBER && m->host != 0 && c->host == m->host ? c->process : 0;
}

size_t rb_rv_outbox(const struct rb_rv *m, uint32_t connection, const uint8_t **bytes)
{
	const struct connection *c = &m->connections[connection];

	if (c->phase == PHASE_FREE || c->phase == PHASE_CONNECTING)
		return 0;
	*bytes = c->out + c->out_at;
	return c->out_count - c->out_at;
}

uint32_t rb_rv_connection_count(const struct rb_rv *m)
{
	return m->connection_count;
}

enum rb_rv_state rb_rv_state_of(const struct rb_rv *m)
{
	return m->state;
}

const uint8_t *rb_rv_job(const struct rb_rv *m)
{
	return m->job;
}

const void *rb_rv_blob(const struct rb_rv *m, uint32_t rank, size_t *size_bytes)
{
	RB_ASSERT(m->state == RB_RV_READY && m->table.have[rank] == m->table.round);
	*size_bytes = m->table.size_bytes[rank];
	return m->table.blobs + (size_t)rank * RB_BLOB_BYTES_MAX;
}

static bool connection_valid(const struct rb_rv *m, const struct connection *c)
{
	return c->in_count <= wanted(c) && c->out_at <= c->out_count && c->out_count <= OUT_BYTES &&
	       RB_IMPLIES(m->rank == 0 && c->phase == PHASE_MEMBER,
			  m->member[c->rank] == connection_number(m, c));
}

/* What can be checked at every step, whatever the number of ranks. */
static bool counts_valid(const struct rb_rv *m)
{
	return m->rank < m->rank_count && m->member_count < m->rank_count &&
	       m->stranger_count <= m->strangers_max && m->table.have_count <= m->rank_count &&
	       RB_IMPLIES(m->state == RB_RV_STARTING, m->rank == 0);
}

bool rb_rv_valid(const struct rb_rv *m)
{
	uint32_t members = 0, strangers = 0;

	for (uint32_t i = 0; i < m->connection_count; i++) {
		const struct connection *c = &m->connections[i];

		members += c->phase == PHASE_MEMBER;
		strangers += c->phase != PHASE_MEMBER && c->phase != PHASE_FREE;
		if (!connection_valid(m, c))
			return false;
	}
	return counts_valid(m) && RB_IMPLIES(m->rank == 0, members == m->member_count &&
								   strangers == m->stranger_count);
}

/* ---- Steps ---- */

void rb_rv_step(struct rb_rv *m, const struct rb_rv_event *e)
{
	RB_ASSERT(e->connection < m->connection_count);
	RB_ASSERT(m->queue.head == m->queue.count); /* All actions of the last event were taken. */
	m->queue.head = m->queue.count = m->queue.report_count = 0;
	m->now_ns = e->now_ns;
	if (m->state == RB_RV_FAILED)
		return;
	if (e->kind == RB_RV_EV_OPEN || e->kind == RB_RV_EV_GATHER)
		m->deadline_ns = e->deadline_ns;
	if (e->kind == RB_RV_EV_RECEIVED) {
		received(m, &m->connections[e->connection], e);
	} else {
		if (e->kind == RB_RV_EV_SENT) {
			struct connection *c = &m->connections[e->connection];

			RB_ASSERT(e->size_bytes <= c->out_count - c->out_at);
			c->out_at += (uint32_t)e->size_bytes;
			if (c->out_at == c->out_count)
				c->out_at = c->out_count = 0;
		}
		if (m->rank == 0)
			rb_rv_root_step(m, e);
		else
			rb_rv_rank_step(m, e);
	}
	RB_ASSERT(counts_valid(m) && connection_valid(m, &m->connections[e->connection]));
}

/* ---- Life ---- */

static bool allocate(struct rb_rv *m)
{
	size_t n = m->rank_count;

	/* The root keeps one more than its bound while it makes room for a newcomer. */
	m->connection_count = m->rank == 0 ? (uint32_t)n + RB_RV_STRANGERS_MAX : 1;
	m->queue.capacity = 2 * m->connection_count + 16;
	m->connections = calloc(m->connection_count, sizeof(*m->connections));
	m->buffers = calloc(m->connection_count, IN_BYTES + OUT_BYTES);
	m->queue.items = calloc(m->queue.capacity, sizeof(*m->queue.items));
	m->table.have = calloc(n, sizeof(*m->table.have));
	m->table.size_bytes = calloc(n, sizeof(*m->table.size_bytes));
	m->table.blobs = calloc(n, RB_BLOB_BYTES_MAX);
	m->member = calloc(n, sizeof(*m->member));
	for (uint32_t i = 0;
	     m->connections != NULL && m->buffers != NULL && i < m->connection_count; i++) {
		m->connections[i].in = m->buffers + (size_t)i * (IN_BYTES + OUT_BYTES);
		m->connections[i].out = m->connections[i].in + IN_BYTES;
	}
	return m->connections != NULL && m->buffers != NULL && m->queue.items != NULL &&
	       m->table.have != NULL && m->table.size_bytes != NULL && m->table.blobs != NULL &&
	       m->member != NULL;
}

rubato_status rb_rv_init(const struct rb_rv_options *o, struct rb_rv **out)
{
	uint64_t seed;

	if (o->rank_count == 0 || o->rank >= o->rank_count)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "rank %u in a job of %u", o->rank,
			       o->rank_count);
	if (o->rank_count > RB_RV_RANKS_MAX)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED, "%u ranks: a rendezvous gathers at most %u",
			       o->rank_count, RB_RV_RANKS_MAX);
	struct rb_rv *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "rendezvous: no %zu bytes", sizeof(*m));
	m->rank = o->rank;
	m->rank_count = o->rank_count;
	if (!allocate(m)) {
		rb_rv_fini(m);
		return RB_FAIL(RUBATO_ERR_MEMORY, "rendezvous: no memory for %u ranks",
			       o->rank_count);
	}
	for (uint32_t i = 0; i < m->rank_count; i++)
		m->member[i] = NO_CONNECTION;
	m->has_secret = o->secret_bytes > 0;
	m->searches = o->searches;
	m->listens = o->listens;
	(void)snprintf(m->root, sizeof(m->root), "%s", o->root);
	rb_rv_key_make(o->secret, o->secret_bytes, m->key);
	memcpy(m->job, o->job, sizeof(m->job));
	memcpy(m->job_expected, o->job, sizeof(m->job_expected));
	memcpy(m->instance, o->instance, sizeof(m->instance));
	m->strangers_max = o->strangers_max > 0 && o->strangers_max < RB_RV_STRANGERS_MAX
				   ? o->strangers_max
				   : RB_RV_STRANGERS_MAX;
	m->host = o->host;
	m->process = o->process;
	memcpy(&seed, o->instance, sizeof(seed));
	m->rng.state = seed;
	m->deadline_ns = m->retry_ns = UINT64_MAX;
	*out = m;
	return RUBATO_OK;
}

void rb_rv_fini(struct rb_rv *m)
{
	if (m == NULL)
		return;
	for (uint32_t i = 0; m->connections != NULL && i < m->connection_count; i++)
		rb_rv_connection_reset(&m->connections[i], PHASE_FREE, 0);
	sodium_memzero(m->key, sizeof(m->key));
	free(m->connections);
	free(m->buffers);
	free(m->queue.items);
	free(m->table.have);
	free(m->table.size_bytes);
	free(m->table.blobs);
	free(m->member);
	free(m);
}
