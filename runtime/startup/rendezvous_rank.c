/*
 * rendezvous_rank.c -- the other ranks: find the root, prove ourselves, wait, exchange.
 *
 * Until all ranks are there, every loss of the connection leads to another attempt, at the root's
 * next address and with growing pauses: the root may not have started yet, or not be the one that
 * answers. A refusal counts when no other address is left to be tried. After START nothing is
 * repeated: the root is gone, and so is the job.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/startup/rendezvous_inside.h"

#define HANDSHAKE_MAX_NS UINT64_C(20000000000) /* Guess: the longest that one attempt may take. */

static void drop(struct rb_rv *m, struct connection *c)
{
	if (c->phase != PHASE_FREE)
		rb_rv_act(m, RB_RV_ACT_CLOSE, 0);
	rb_rv_connection_reset(c, PHASE_FREE, m->now_ns);
}

/* m->fail has been set. */
static void fail(struct rb_rv *m, struct connection *c)
{
	drop(m, c);
	rb_rv_fail_act(m);
}

static void connect_now(struct rb_rv *m, struct connection *c)
{
	rb_rv_connection_reset(c, PHASE_CONNECTING, m->now_ns);
	m->retry_ns = UINT64_MAX;
	rb_rv_act(m, RB_RV_ACT_CONNECT, 0);
}

/* This attempt came to nothing, and m->refusal or m->fail says why. Where the last address has been
 * tried a round is over. */
static void attempt_again(struct rb_rv *m, struct connection *c)
{
	drop(m, c);
	if (m->more) {
		connect_now(m, c);
		return;
	}
	if (m->refusal.status != RUBATO_OK && !m->searches) {
		m->fail = m->refusal;
		fail(m, c);
		return;
	}
	if (m->listens && !m->other) {
		rb_rv_reason_peer(
			&m->fail, 0, 0,
			"rank 0 is gone: it listened at %.64s, and connections are refused",
			m->root);
		fail(m, c);
		return;
	}
	m->other = false;
	/* Between half and all of the pause, so that ranks do not come in step. */
	m->retry_ns = rb_deadline(m->now_ns,
				  m->backoff_ns / 2 + rb_rng_below(&m->rng, m->backoff_ns / 2 + 1));
	m->backoff_ns *= 2;
	if (m->backoff_ns > RB_RV_BACKOFF_MAX_NS)
		m->backoff_ns = RB_RV_BACKOFF_MAX_NS;
}

/* The root knows who is missing, and has the same deadline: it is given time to say so. */
static uint64_t deadline_of(const struct rb_rv *m, const struct connection *c)
{
	return c->phase == PHASE_MEMBER ? rb_deadline(m->deadline_ns, RB_RV_WORD_NS)
					: m->deadline_ns;
}

static void deadline_passed(struct rb_rv *m, struct connection *c)
{
	if (m->state == RB_RV_EXCHANGING)
		rb_rv_reason_set(
			&m->fail, RUBATO_ERR_TIMEOUT,
			"start-up exchange %u did not end in time: no answer from rank 0 at %s",
			m->table.round, c->address);
	else if (c->phase == PHASE_MEMBER)
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "rank 0 at %s is there, but not all %u ranks came in time",
				 c->address, m->rank_count);
	else if (m->was_member)
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "rank 0 at %.64s was there, and is gone", m->root);
	else if (m->refusal.status != RUBATO_OK)
		m->fail = m->refusal;
	else if (m->fail.text[0] != '\0') /* What the last attempt came to. */
		m->fail.status = RUBATO_ERR_TIMEOUT;
	else
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "no answer from %.64s: is rank 0 running there?", m->root);
	fail(m, c);
}

/* Whoever has our proof may count us and start the job at any time from then on: the job ends if we
 * leave it. So it gets the longest time, also with other addresses to try. */
static uint64_t attempt_end(const struct rb_rv *m, const struct connection *c)
{
	return rb_deadline(c->since_ns,
			   c->phase == PHASE_WELCOME ? HANDSHAKE_MAX_NS : m->handshake_ns);
}

/* ---- The handshake ---- */

/* With other addresses to try, one that does not answer at all is not worth much patience: growing
 * from round to round it will do for a slow root, too. */
static void connecting(struct rb_rv *m, const struct rb_rv_event *e)
{
	m->more = e->more;
	if (e->more && !m->several) {
		m->several = true;
		m->handshake_ns = RB_RV_ATTEMPT_NS;
	}
}

static void connected(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	RB_ASSERT(c->phase == PHASE_CONNECTING);
	m->more = e->more;
	(void)snprintf(c->address, sizeof(c->address), "%s", e->text);
	struct rb_wire w = rb_rv_put_begin(c, RB_RV_HELLO);

	rb_wire_put_bytes(&w, e->random, RB_RV_NONCE_BYTES);
	rb_wire_put_u8(&w, m->has_secret);
	rb_wire_put_bytes(&w, (const uint8_t[7]) { 0 }, 7);
	rb_rv_put_end(m, c, &w, false);
	rb_rv_transcript_add(c, c->out, RB_RV_HELLO_BYTES);
	c->phase = PHASE_CHALLENGE;
	m->other = true;
}

static void connect_failed(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	rb_rv_connection_reset(c, PHASE_FREE, m->now_ns);
	m->more = e->more;
	m->other |= !e->refused;
	if (!e->retry) {
		rb_rv_reason_set(&m->fail, e->status, "%s", e->text);
		fail(m, c);
		return;
	}
	rb_rv_reason_set(&m->fail, RUBATO_OK, "no answer from %.64s: is rank 0 running there? (%s)",
			 m->root, e->text);
	attempt_again(m, c);
}

static void got_challenge(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_payload(c);

	w.at += RB_RV_NONCE_BYTES;
	c->peer_has_secret = rb_wire_get_u8(&w) != 0;
	rb_rv_transcript_add(c, c->in, c->in_count);
	c->in_count = 0;

	w = rb_rv_put_begin(c, RB_RV_PROOF);
	uint8_t *at = rb_rv_put_at(c);

	rb_wire_put_u32(&w, m->rank);
	rb_wire_put_u32(&w, m->rank_count);
	rb_wire_put_bytes(&w, m->instance, sizeof(m->instance));
	rb_wire_put_bytes(&w, m->job_expected, sizeof(m->job_expected));
	rb_wire_put_u64(&w, m->host);
	rb_wire_put_u32(&w, (uint32_t)m->process);
	size_t bytes = rb_rv_message_end(at, &w);

	rb_rv_mac(m->key, "rubato rank proof", c->transcript, c->transcript_bytes, at, bytes,
		  at + bytes);
	c->out_count += (uint32_t)(bytes + RB_RV_MAC_BYTES);
	rb_rv_transcript_add(c, at, bytes + RB_RV_MAC_BYTES);
	rb_rv_session_make(m, c);
	rb_rv_act(m, RB_RV_ACT_SEND, 0);
	c->phase = PHASE_WELCOME;
	c->since_ns = m->now_ns;
}

static void got_welcome(struct rb_rv *m, struct connection *c)
{
	uint8_t mac[RB_RV_MAC_BYTES];
	size_t bytes = c->in_count - RB_RV_MAC_BYTES;
	struct rb_wire w = rb_rv_payload(c);

	rb_rv_mac(m->key, "rubato root proof", c->transcript, c->transcript_bytes, c->in, bytes,
		  mac);
	if (!rb_rv_mac_same(mac, c->in + bytes)) {
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_AUTH,
				 "%s did not prove that it knows the job's secret", c->address);
		attempt_again(m, c);
		return;
	}
	rb_wire_get_bytes(&w, m->job, sizeof(m->job));
	c->host = rb_wire_get_u64(&w);
	c->process = (int32_t)rb_wire_get_u32(&w);
	c->in_count = 0;
	c->phase = PHASE_MEMBER;
	m->was_member = true;
	m->backoff_ns = RB_RV_BACKOFF_MIN_NS;
}

static void got_refusal(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_payload(c);
	const char *why = "the secrets differ (or another job is at that address)";

	if (c->peer_has_secret && !m->has_secret)
		why = "that job has a secret and this process none: set RUBATO_SECRET_FILE";
	if (!c->peer_has_secret && m->has_secret)
		why = "that job has no secret and this process has one";
	uint32_t reason = rb_wire_get_u32(&w);

	if (reason == RB_RV_REASON_JOB && c->phase == PHASE_WELCOME)
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
				 "rank %u belongs to another job than the one at %s", m->rank,
				 c->address);
	else if (reason == RB_RV_REASON_VERSION || c->phase == PHASE_CHALLENGE)
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
				 "%s speaks another version of the rendezvous: ranks run different "
				 "builds of Rubato",
				 c->address);
	else
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_AUTH, "%s refused this process: %s",
				 c->address, why);
	attempt_again(m, c);
}

/* ---- Frames ---- */

static void lose(struct rb_rv *m, struct connection *c, const char *how)
{
	if (m->state == RB_RV_JOINING) {
		rb_rv_reason_set(&m->fail, RUBATO_OK, "%s %s: is that the root of this job?",
				 c->address, how);
		attempt_again(m, c);
		return;
	}
	rb_rv_reason_peer(&m->fail, 0, 0, "rank 0 at %s %s during start-up exchange %u", c->address,
			  how, m->table.round);
	fail(m, c);
}

static void got_failure(struct rb_rv *m, struct connection *c)
{
	rb_rv_get_reason(m, c, &m->fail);
	fail(m, c);
}

/* Whether the payload is the next part of this round's table; then it has been taken. */
static bool table_take(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_payload(c);
	uint32_t round = rb_wire_get_u32(&w), first = rb_wire_get_u32(&w);
	uint32_t count = rb_wire_get_u32(&w);

	if (m->state != RB_RV_EXCHANGING || round != m->table.round || first != c->table_next ||
	    count == 0 || count > m->rank_count - first)
		return false;
	for (uint32_t r = first; r < first + count; r++) {
		uint32_t size_bytes = rb_wire_get_u32(&w);

		if (size_bytes > RB_BLOB_BYTES_MAX || size_bytes > (size_t)(w.end - w.at))
			return false;
		rb_wire_get_bytes(&w, m->table.blobs + (size_t)r * RB_BLOB_BYTES_MAX, size_bytes);
		m->table.size_bytes[r] = size_bytes;
		m->table.have[r] = round;
	}
	c->table_next = first + count;
	m->table.have_count = c->table_next;
	return !w.bad && w.at == w.end;
}

static void got_table(struct rb_rv *m, struct connection *c)
{
	if (!table_take(m, c)) {
		lose(m, c, "sent a table that does not belong there");
		return;
	}
	c->in_count = 0;
	if (c->table_next < m->rank_count)
		return;
	rb_rv_move(m, RB_RV_READY);
	rb_rv_act(m, RB_RV_ACT_DONE, NO_CONNECTION);
}

static void got_start(struct rb_rv *m, struct connection *c)
{
	if (m->state != RB_RV_JOINING) {
		lose(m, c, "started the job twice");
		return;
	}
	c->in_count = 0;
	rb_rv_move(m, RB_RV_READY);
	rb_rv_act(m, RB_RV_ACT_DONE, NO_CONNECTION);
}

void rb_rv_rank_got(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind)
{
	bool framed = kind == RB_RV_START || kind == RB_RV_TABLE || kind == RB_RV_FAIL;

	if (framed && !rb_rv_frame_good(m, c))
		lose(m, c, "sent a frame that does not verify");
	else if (kind == RB_RV_CHALLENGE)
		got_challenge(m, c);
	else if (kind == RB_RV_WELCOME)
		got_welcome(m, c);
	else if (kind == RB_RV_REFUSE)
		got_refusal(m, c);
	else if (kind == RB_RV_FAIL)
		got_failure(m, c);
	else if (kind == RB_RV_START)
		got_start(m, c);
	else
		got_table(m, c);
}

void rb_rv_rank_bad(struct rb_rv *m, struct connection *c, const struct rb_rv_head *head,
		    enum rb_rv_verdict verdict)
{
	c->in_count = 0;
	if (verdict != RB_RV_OTHER_VERSION || m->state != RB_RV_JOINING) {
		lose(m, c, "sent bytes that are no message of the rendezvous");
		return;
	}
	rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
			 "%s speaks version %u of the rendezvous, this process version %u: ranks "
			 "run different builds of Rubato",
			 c->address, head->version, RB_RV_VERSION);
	attempt_again(m, c);
}

/* ---- Events ---- */

static void exchange(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	rb_rv_move(m, RB_RV_EXCHANGING);
	m->table.round++;
	m->table.have_count = c->table_next = 0;
	RB_ASSERT(e->size_bytes <= RB_BLOB_BYTES_MAX);
	if (c->phase != PHASE_MEMBER) {
		rb_rv_reason_peer(&m->fail, 0, 0, "rank 0 ended before start-up exchange %u",
				  m->table.round);
		fail(m, c);
		return;
	}
	struct rb_wire w = rb_rv_put_begin(c, RB_RV_GATHER);

	rb_wire_put_u32(&w, m->table.round);
	rb_wire_put_bytes(&w, e->bytes, e->size_bytes);
	rb_rv_put_end(m, c, &w, true);
}

/* The root passes it on, and knows what came first. */
static void give_up(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	rb_rv_reason_peer(&m->fail, m->rank, e->blames, "%.399s", e->text);
	rb_rv_move(m, RB_RV_FAILING);
	m->linger_ns = rb_deadline(m->now_ns, RB_RV_WORD_NS);
	if (c->phase == PHASE_MEMBER)
		rb_rv_put_reason(m, c, RB_RV_LEAVE, &m->fail);
	else
		fail(m, c);
}

/* One rank speaks for all who wait for the root; the root itself names those who wait with it. */
static void waiting_report(struct rb_rv *m, const struct connection *c)
{
	enum rb_log_level level = m->rank == 1 ? RB_LOG_WARN : RB_LOG_INFO;

	if (m->state == RB_RV_JOINING && c->phase != PHASE_MEMBER)
		rb_rv_report(m, level, "rank %u looks for rank 0 at %.64s: %s", m->rank, m->root,
			     m->refusal.status != RUBATO_OK ? m->refusal.text
			     : m->fail.text[0] != '\0'      ? m->fail.text
							    : "no answer yet");
}

static void tick(struct rb_rv *m, struct connection *c)
{
	if (m->state == RB_RV_FAILING && m->now_ns >= m->linger_ns)
		fail(m, c);
	if (m->state != RB_RV_JOINING && m->state != RB_RV_EXCHANGING)
		return;
	if (m->now_ns >= deadline_of(m, c)) {
		deadline_passed(m, c);
		return;
	}
	if (m->now_ns >= m->report_ns) {
		m->report_ns = rb_deadline(m->now_ns, RB_RV_REPORT_NS);
		waiting_report(m, c);
	}
	if (m->now_ns >= m->retry_ns) {
		connect_now(m, c);
	} else if (c->phase != PHASE_FREE && c->phase != PHASE_MEMBER &&
		   m->now_ns >= attempt_end(m, c)) {
		rb_rv_reason_set(&m->fail, RUBATO_OK,
				 "no answer from %.64s: is rank 0 running there? (%s)", m->root,
				 c->phase == PHASE_CONNECTING ? "nothing comes back"
							      : "it accepts and says nothing");
		if (!m->more && m->handshake_ns < HANDSHAKE_MAX_NS)
			m->handshake_ns *= 2;
		m->other = m->more;
		drop(m, c); /* No pause: this took long enough. */
		connect_now(m, c);
	}
}

uint64_t rb_rv_rank_wake_ns(const struct rb_rv *m)
{
	const struct connection *c = &m->connections[0];
	bool waiting = m->state == RB_RV_JOINING || m->state == RB_RV_EXCHANGING;
	uint64_t wake = m->retry_ns;

	if (waiting && deadline_of(m, c) < wake)
		wake = deadline_of(m, c);
	if (m->state == RB_RV_JOINING && m->report_ns < wake)
		wake = m->report_ns;
	if (m->state == RB_RV_JOINING && c->phase != PHASE_FREE && c->phase != PHASE_MEMBER) {
		uint64_t end = attempt_end(m, c);

		wake = end < wake ? end : wake;
	}
	return wake;
}

void rb_rv_rank_step(struct rb_rv *m, const struct rb_rv_event *e)
{
	struct connection *c = &m->connections[0];

	switch (e->kind) {
	case RB_RV_EV_OPEN:
		rb_rv_move(m, RB_RV_JOINING);
		m->backoff_ns = RB_RV_BACKOFF_MIN_NS;
		m->report_ns = rb_deadline(m->now_ns, RB_RV_REPORT_NS);
		m->handshake_ns = RB_RV_HANDSHAKE_NS;
		connect_now(m, c);
		break;
	case RB_RV_EV_CONNECTING:
		connecting(m, e);
		break;
	case RB_RV_EV_CONNECTED:
		connected(m, c, e);
		break;
	case RB_RV_EV_CONNECT_FAILED:
		connect_failed(m, c, e);
		break;
	case RB_RV_EV_CLOSED:
		c->phase = PHASE_FREE;
		if (m->state == RB_RV_JOINING || m->state == RB_RV_EXCHANGING)
			lose(m, c, e->text != NULL ? e->text : "closed the connection");
		else if (m->state == RB_RV_FAILING)
			fail(m, c);
		break;
	case RB_RV_EV_TICK:
		tick(m, c);
		break;
	case RB_RV_EV_GATHER:
		exchange(m, c, e);
		break;
	case RB_RV_EV_GIVE_UP:
		give_up(m, c, e);
		break;
	case RB_RV_EV_SENT:
		if (m->state == RB_RV_FAILING && c->out_count == 0)
			fail(m, c);
		break;
	case RB_RV_EV_RECEIVED: /* rb_rv_step() took it. */
	case RB_RV_EV_ACCEPTED:
	case RB_RV_EV_LISTENING:
	case RB_RV_EV_LISTEN_FAILED:
		break;
	}
}
