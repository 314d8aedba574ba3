/*
 * rendezvous_root.c -- rank 0 of the rendezvous: gathers the others, then serves their exchanges.
 *
 * Who comes: HELLO, PROOF, then MEMBER (counted) or LEAVING (refused, with a reason). A refused
 * process never ends the job of the others: it may belong to another job. But when ranks are still
 * missing at the deadline, the last refusal is the likeliest cause and decides the status.
 *
 * Strangers cannot keep others out: at most strangers_max at once, each for at most
 * RB_RV_HANDSHAKE_NS, and when all places are taken the oldest makes room for a newcomer.
 *
 * In an exchange every member's blob arrives once; when all are there, each member is sent the
 * table in frames, one at a time, as fast as it takes them. The exchange ends when all have it.
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "runtime/startup/rendezvous_inside.h"

#define NOISE_MAX 16 /* Lines about strangers: what they send must not fill anybody's disk. */

/* ---- Connections end ---- */

static void forget(struct rb_rv *m, struct connection *c)
{
	if (c->phase == PHASE_MEMBER) {
		m->member[c->rank] = NO_CONNECTION;
		m->member_count--;
	} else if (c->phase != PHASE_FREE) {
		m->stranger_count--;
	}
	rb_rv_connection_reset(c, PHASE_FREE, m->now_ns);
}

static void drop(struct rb_rv *m, struct connection *c)
{
	forget(m, c);
	rb_rv_act(m, RB_RV_ACT_CLOSE, connection_number(m, c));
}

static void leave(struct connection *c)
{
	c->phase = PHASE_LEAVING;
	c->in_count = 0;
}

static void flushed(struct rb_rv *m);

/* Tells every member, and gives them RB_RV_LINGER_NS to take it. */
static void fail_all(struct rb_rv *m)
{
	rb_rv_move(m, RB_RV_FAILING);
	m->linger_ns = rb_deadline(m->now_ns, RB_RV_LINGER_NS);
	if (m->listening)
		rb_rv_act(m, RB_RV_ACT_UNLISTEN, NO_CONNECTION);
	m->listening = false;
	for (uint32_t i = 0; i < m->connection_count; i++) {
		struct connection *c = &m->connections[i];

		if (c->phase == PHASE_MEMBER)
			rb_rv_put_reason(m, c, RB_RV_FAIL, &m->fail);
		else if (c->phase != PHASE_FREE && c->phase != PHASE_LEAVING)
			drop(m, c);
	}
	flushed(m);
}

/* A member is gone, or sent what no member sends. Before START it may come again. */
static void lose(struct rb_rv *m, struct connection *c, const char *how)
{
	uint32_t rank = c->rank;
	bool finished = m->table.have_count == m->rank_count && c->table_next == m->rank_count &&
			c->out_count == 0;
	char address[RB_RV_ADDRESS_MAX];

	(void)snprintf(address, sizeof(address), "%s", c->address);
	forget(m, c);
	switch (m->state) {
	case RB_RV_JOINING:
		rb_rv_report(m, RB_LOG_INFO, "rank %u at %s %s before all ranks were there", rank,
			     address, how);
		break;
	case RB_RV_STARTING:
		rb_rv_reason_peer(&m->fail, rank, 0, "rank %u at %s %s at start-up", rank, address,
				  how);
		fail_all(m);
		break;
	case RB_RV_EXCHANGING:
		if (finished) { /* It needs nothing more of this exchange; the next will miss it. */
			flushed(m);
			break;
		}
		rb_rv_reason_peer(&m->fail, rank, 0, "rank %u at %s %s during start-up exchange %u",
				  rank, address, how, m->table.round);
		fail_all(m);
		break;
	case RB_RV_FAILING:
		flushed(m);
		break;
	case RB_RV_IDLE:
	case RB_RV_READY: /* The next exchange will miss it. */
	case RB_RV_FAILED:
		break;
	}
}

/* ---- Who is missing ---- */

static bool missing(const struct rb_rv *m, uint32_t rank)
{
	if (m->state == RB_RV_EXCHANGING)
		return m->table.have[rank] != m->table.round;
	return rank != 0 && m->member[rank] == NO_CONNECTION;
}

/* "5, 9, 12-15", at most `text_bytes`, with "..." where that is too little. */
static uint32_t missing_print(const struct rb_rv *m, char *text, size_t text_bytes)
{
	uint32_t count = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t r = 0; r < m->rank_count; r++) {
		uint32_t first = r;
		char piece[32];

		if (!missing(m, r))
			continue;
		while (r + 1 < m->rank_count && missing(m, r + 1))
			r++;
		count += r - first + 1;
		if (r > first)
			(void)snprintf(piece, sizeof(piece), "%s%u-%u", at ? ", " : "", first, r);
		else
			(void)snprintf(piece, sizeof(piece), "%s%u", at ? ", " : "", first);
		if (at + strlen(piece) + 6 > text_bytes) {
			if (text[at - 1] != '.')
				at += (size_t)snprintf(text + at, text_bytes - at, ", ...");
			continue;
		}
		at += (size_t)snprintf(text + at, text_bytes - at, "%s", piece);
	}
	return count;
}

static void waiting_report(struct rb_rv *m)
{
	char ranks[100], refused[RB_RV_TEXT_MAX] = "";
	uint32_t count = missing_print(m, ranks, sizeof(ranks));

	if (m->refusal.status != RUBATO_OK)
		(void)snprintf(refused, sizeof(refused), "; refused: %.200s", m->refusal.text);
	rb_rv_report(m, RB_LOG_WARN, "waiting for rank%s %s (%u of %u) at %.64s%s",
		     count == 1 ? "" : "s", ranks, count, m->rank_count, m->root, refused);
}

static void deadline_passed(struct rb_rv *m)
{
	char ranks[100];
	uint32_t count = missing_print(m, ranks, sizeof(ranks));

	if (m->state == RB_RV_JOINING && !m->listening && m->fail.status != RUBATO_OK)
		; /* listen_failed() said why. */
	else if (m->state == RB_RV_JOINING && m->refusal.status != RUBATO_OK)
		rb_rv_reason_set(&m->fail, m->refusal.status,
				 "rank%s %s (%u of %u) did not come to %.64s; refused: %.200s",
				 count == 1 ? "" : "s", ranks, count, m->rank_count, m->root,
				 m->refusal.text);
	else if (m->state == RB_RV_JOINING)
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "rank%s %s (%u of %u) did not come to %.64s",
				 count == 1 ? "" : "s", ranks, count, m->rank_count, m->root);
	else if (count > 0)
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "rank%s %s (%u of %u) did not come to start-up exchange %u",
				 count == 1 ? "" : "s", ranks, count, m->rank_count,
				 m->table.round);
	else
		rb_rv_reason_set(&m->fail, RUBATO_ERR_TIMEOUT,
				 "not every rank took what start-up sent it (exchange %u)",
				 m->table.round);
	fail_all(m);
}

/* ---- Joining ---- */

static void noise(struct rb_rv *m, enum rb_log_level level, const char *address, const char *what)
{
	if (m->noise_count < NOISE_MAX)
		rb_rv_report(m, level, "%s: %s", address, what);
	if (++m->noise_count == NOISE_MAX)
		rb_rv_report(m, level, "no more lines about strangers at %.64s", m->root);
}

static void refuse(struct rb_rv *m, struct connection *c, enum rb_rv_reason reason)
{
	struct rb_wire w = rb_rv_put_begin(c, RB_RV_REFUSE);

	rb_wire_put_u32(&w, (uint32_t)reason);
	rb_rv_put_end(m, c, &w, false);
	leave(c);
}

static void got_hello(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_payload(c);

	w.at += RB_RV_NONCE_BYTES;
	c->peer_has_secret = rb_wire_get_u8(&w) != 0;
	rb_rv_transcript_add(c, c->in, c->in_count);
	c->in_count = 0;

	w = rb_rv_put_begin(c, RB_RV_CHALLENGE);
	rb_wire_put_bytes(&w, c->nonce, sizeof(c->nonce));
	rb_wire_put_u8(&w, m->has_secret);
	rb_wire_put_bytes(&w, (const uint8_t[7]) { 0 }, 7);
	uint8_t *at = rb_rv_put_at(c);

	rb_rv_put_end(m, c, &w, false);
	rb_rv_transcript_add(c, at, RB_RV_CHALLENGE_BYTES);
	c->phase = PHASE_PROOF;
}

static bool proof_good(struct rb_rv *m, struct connection *c)
{
	uint8_t mac[RB_RV_MAC_BYTES];
	size_t bytes = RB_RV_PROOF_BYTES - RB_RV_MAC_BYTES;

	rb_rv_mac(m->key, "rubato rank proof", c->transcript, c->transcript_bytes, c->in, bytes,
		  mac);
	return rb_rv_mac_same(mac, c->in + bytes);
}

static void refuse_secret(struct rb_rv *m, struct connection *c)
{
	const char *why = "its secret is another";

	if (m->has_secret && !c->peer_has_secret)
		why = "it has no secret, this job has one";
	if (!m->has_secret && c->peer_has_secret)
		why = "it has a secret, this job has none";
	/* A proven process that did not fit says more than one that proved nothing. */
	if (m->refusal.status != RUBATO_ERR_MISMATCH)
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_AUTH,
				 "a process at %s did not prove that it knows the job's secret: %s",
				 c->address, why);
	noise(m, RB_LOG_WARN, c->address,
	      "did not prove that it knows the job's secret, and was refused");
	refuse(m, c, RB_RV_REASON_SECRET);
}

/* Where jobs share ports (searches), a visitor from another one is nothing to speak of. */
static void refuse_job(struct rb_rv *m, struct connection *c, uint32_t rank)
{
	if (!m->searches) {
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
				 "rank %u at %s belongs to another job than the one at %.64s", rank,
				 c->address, m->root);
		rb_rv_report(m, RB_LOG_WARN, "%s", m->refusal.text);
	}
	refuse(m, c, RB_RV_REASON_JOB);
}

static void welcome(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_put_begin(c, RB_RV_WELCOME);
	uint8_t *at = rb_rv_put_at(c);

	rb_wire_put_bytes(&w, m->job, sizeof(m->job));
	rb_wire_put_u64(&w, m->host);
	rb_wire_put_u32(&w, (uint32_t)m->process);
	size_t bytes = rb_rv_message_end(at, &w);

	rb_rv_mac(m->key, "rubato root proof", c->transcript, c->transcript_bytes, at, bytes,
		  at + bytes);
	w.at += RB_RV_MAC_BYTES;
	c->out_count += (uint32_t)(bytes + RB_RV_MAC_BYTES);
	rb_rv_act(m, RB_RV_ACT_SEND, connection_number(m, c));
}

static void start_all(struct rb_rv *m)
{
	rb_rv_move(m, RB_RV_STARTING);
	rb_rv_act(m, RB_RV_ACT_UNLISTEN, NO_CONNECTION);
	m->listening = false;
	for (uint32_t i = 0; i < m->connection_count; i++) {
		struct connection *c = &m->connections[i];

		if (c->phase == PHASE_MEMBER) {
			struct rb_wire w = rb_rv_put_begin(c, RB_RV_START);

			rb_rv_put_end(m, c, &w, true);
		} else if (c->phase != PHASE_FREE && c->phase != PHASE_LEAVING) {
			drop(m, c);
		}
	}
	flushed(m);
}

/* It is who it says, but does not fit: the same text for it, for us and for the log. */
static void turn_away(struct rb_rv *m, struct connection *c)
{
	rb_rv_report(m, RB_LOG_WARN, "%s", m->refusal.text);
	rb_rv_put_reason(m, c, RB_RV_FAIL, &m->refusal);
	leave(c);
}

static bool fits(struct rb_rv *m, struct connection *c, uint32_t rank, uint32_t rank_count)
{
	if (rank_count != m->rank_count)
		rb_rv_reason_set(
			&m->refusal, RUBATO_ERR_MISMATCH,
			"rank %u at %s says that the job has %u ranks, rank 0 at %.64s says %u",
			rank, c->address, rank_count, m->root, m->rank_count);
	else if (rank == 0 || rank >= rank_count)
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
				 "%s calls itself rank %u; at %.64s ranks 1 to %u may join",
				 c->address, rank, m->root, m->rank_count - 1);
	else if (m->member[rank] != NO_CONNECTION &&
		 memcmp(m->connections[m->member[rank]].instance, c->instance, 16) != 0)
		rb_rv_reason_set(&m->refusal, RUBATO_ERR_MISMATCH,
				 "two processes call themselves rank %u: %s and %s (refused)", rank,
				 m->connections[m->member[rank]].address, c->address);
	else
		return true;
	return false;
}

static void got_proof(struct rb_rv *m, struct connection *c)
{
	uint8_t job[16];

	if (!proof_good(m, c)) {
		refuse_secret(m, c);
		return;
	}
	struct rb_wire w = rb_rv_payload(c);
	uint32_t rank = rb_wire_get_u32(&w), rank_count = rb_wire_get_u32(&w);

	rb_wire_get_bytes(&w, c->instance, sizeof(c->instance));
	rb_wire_get_bytes(&w, job, sizeof(job));
	c->host = rb_wire_get_u64(&w);
	c->process = (int32_t)rb_wire_get_u32(&w);
	rb_rv_transcript_add(c, c->in, c->in_count);
	rb_rv_session_make(m, c);
	c->in_count = 0;
	if (!sodium_is_zero(job, sizeof(job)) && memcmp(job, m->job, sizeof(job)) != 0) {
		refuse_job(m, c, rank);
		return;
	}
	if (!fits(m, c, rank, rank_count)) {
		turn_away(m, c);
		return;
	}
	if (m->member[rank] != NO_CONNECTION) /* The same process: its old connection is dead. */
		drop(m, &m->connections[m->member[rank]]);
	m->stranger_count--;
	m->member_count++;
	m->member[rank] = connection_number(m, c);
	c->phase = PHASE_MEMBER;
	c->rank = rank;
	welcome(m, c);
	if (m->member_count == m->rank_count - 1)
		start_all(m);
}

static struct connection *oldest_stranger(const struct rb_rv *m)
{
	struct connection *oldest = NULL;

	for (uint32_t i = 0; i < m->connection_count; i++) {
		struct connection *c = &m->connections[i];

		if (c->phase != PHASE_FREE && c->phase != PHASE_MEMBER &&
		    (oldest == NULL || c->since_ns < oldest->since_ns))
			oldest = c;
	}
	return oldest;
}

bool rb_rv_accepts(const struct rb_rv *m, uint64_t now_ns)
{
	if (m->state != RB_RV_JOINING || !m->listening)
		return false;
	return m->stranger_count < m->strangers_max ||
	       rb_deadline(oldest_stranger(m)->since_ns, RB_RV_GRACE_NS) <= now_ns;
}

static void accepted(struct rb_rv *m, struct connection *c, const struct rb_rv_event *e)
{
	RB_ASSERT(rb_rv_accepts(m, e->now_ns) && c->phase == PHASE_FREE);
	if (m->stranger_count == m->strangers_max) {
		struct connection *oldest = oldest_stranger(m);

		noise(m, RB_LOG_INFO, oldest->address, "made room for a newcomer");
		drop(m, oldest);
	}
	m->stranger_count++;
	rb_rv_connection_reset(c, PHASE_HELLO, m->now_ns);
	(void)snprintf(c->address, sizeof(c->address), "%s", e->text);
	memcpy(c->nonce, e->random, sizeof(c->nonce));
}

/* ---- Exchanges ---- */

/* Puts as many blobs as fit into one frame. */
static void table_put(struct rb_rv *m, struct connection *c)
{
	struct rb_wire w = rb_rv_put_begin(c, RB_RV_TABLE);
	uint32_t first = c->table_next, at = first;
	size_t room_bytes = RB_RV_PAYLOAD_MAX - RB_RV_TABLE_HEAD_BYTES;

	while (at < m->rank_count && 4 + (size_t)m->table.size_bytes[at] <= room_bytes)
		room_bytes -= 4 + (size_t)m->table.size_bytes[at++];
	rb_wire_put_u32(&w, m->table.round);
	rb_wire_put_u32(&w, first);
	rb_wire_put_u32(&w, at - first);
	for (uint32_t r = first; r < at; r++) {
		rb_wire_put_u32(&w, m->table.size_bytes[r]);
		rb_wire_put_bytes(&w, m->table.blobs + (size_t)r * RB_BLOB_BYTES_MAX,
				  m->table.size_bytes[r]);
	}
	c->table_next = at;
	rb_rv_put_end(m, c, &w, true);
}

static void have(struct rb_rv *m, uint32_t rank, const void *blob, size_t size_bytes)
{
	RB_ASSERT(m->table.have[rank] != m->table.round && size_bytes <= RB_BLOB_BYTES_MAX);
	if (size_bytes > 0)
		memcpy(m->table.blobs + (size_t)rank * RB_BLOB_BYTES_MAX, blob, size_bytes);
	m->table.size_bytes[rank] = (uint32_t)size_bytes;
	m->table.have[rank] = m->table.round;
	if (++m->table.have_count < m->rank_count)
		return;
	for (uint32_t r = 1; r < m->rank_count; r++) {
		m->connections[m->member[r]].table_next = 0;
		table_put(m, &m->connections[m->member[r]]);
	}
	flushed(m);
}

static void got_gather(struct rb_rv *m, struct connection *c)
{
	if (m->state != RB_RV_EXCHANGING || m->table.have[c->rank] == m->table.round)
		return; /* Of the next round: stays in c->in until then. */
	struct rb_wire w = rb_rv_payload(c);
	bool good = rb_rv_frame_good(m, c) && rb_wire_get_u32(&w) == m->table.round;

	if (!good) {
		c->in_count = 0;
		rb_rv_act(m, RB_RV_ACT_CLOSE, connection_number(m, c));
		lose(m, c, "sent a frame that does not belong there");
		return;
	}
	c->in_count = 0;
	have(m, c->rank, w.at, (size_t)(w.end - w.at));
}

/* A rank's start-up has failed, and so all's has. */
static void got_leave(struct rb_rv *m, struct connection *c)
{
	struct reason theirs;

	if (!rb_rv_frame_good(m, c)) {
		c->in_count = 0;
		rb_rv_act(m, RB_RV_ACT_CLOSE, connection_number(m, c));
		lose(m, c, "sent a frame that does not verify");
		return;
	}
	rb_rv_get_reason(m, c, &theirs);
	c->in_count = 0;
	/* Who leaves over another rank is not the cause, whoever else was heard first. */
	if (m->state == RB_RV_FAILING || (m->left && m->fail.blames != c->rank + 1))
		return;
	rb_rv_reason_peer(&m->fail, c->rank, theirs.blames, "start-up failed on rank %u: %.360s",
			  c->rank, theirs.text);
	if (m->state == RB_RV_READY)
		m->left = true;
	else
		fail_all(m);
}

static void exchange(struct rb_rv *m, const struct rb_rv_event *e)
{
	rb_rv_move(m, RB_RV_EXCHANGING);
	m->table.round++;
	m->table.have_count = 0;
	if (m->left) {
		fail_all(m);
		return;
	}
	for (uint32_t r = 1; r < m->rank_count; r++) {
		if (m->member[r] != NO_CONNECTION)
			continue;
		rb_rv_reason_peer(&m->fail, r, 0, "rank %u ended before start-up exchange %u", r,
				  m->table.round);
		fail_all(m);
		return;
	}
	m->report_ns = rb_deadline(m->now_ns, RB_RV_REPORT_NS);
	have(m, 0, e->bytes, e->size_bytes);
	for (uint32_t r = 1; r < m->rank_count && m->state == RB_RV_EXCHANGING; r++) {
		struct connection *c = &m->connections[m->member[r]];
		struct rb_rv_head head;

		if (c->in_count >= RB_RV_HEAD_BYTES &&
		    rb_rv_head_read(c->in, &head) == RB_RV_GOOD && c->in_count == head.total_bytes)
			got_gather(m, c);
	}
}

/* Goes on where something waited for outboxes to empty. */
static void flushed(struct rb_rv *m)
{
	bool empty = true;

	if (m->state == RB_RV_EXCHANGING && m->table.have_count < m->rank_count)
		return;
	if (m->state != RB_RV_STARTING && m->state != RB_RV_EXCHANGING && m->state != RB_RV_FAILING)
		return;
	for (uint32_t i = 0; i < m->connection_count && empty; i++) {
		const struct connection *c = &m->connections[i];
		bool table = m->state == RB_RV_EXCHANGING && c->phase == PHASE_MEMBER;

		if (c->phase != PHASE_MEMBER && m->state != RB_RV_FAILING)
			continue; /* The refused must not hold up the others. */
		empty = c->out_count == 0 && (!table || c->table_next == m->rank_count);
	}
	if (!empty)
		return;
	if (m->state == RB_RV_FAILING) {
		rb_rv_fail_act(m);
		return;
	}
	rb_rv_move(m, RB_RV_READY);
	rb_rv_act(m, RB_RV_ACT_DONE, NO_CONNECTION);
}

static void sent(struct rb_rv *m, struct connection *c)
{
	if (c->out_count > 0)
		return;
	if (c->phase == PHASE_LEAVING)
		drop(m, c);
	else if (m->state == RB_RV_EXCHANGING && c->phase == PHASE_MEMBER &&
		 m->table.have_count == m->rank_count && c->table_next < m->rank_count)
		table_put(m, c);
	flushed(m);
}

/* ---- Events ---- */

void rb_rv_root_got(struct rb_rv *m, struct connection *c, enum rb_rv_kind kind)
{
	if (kind == RB_RV_HELLO)
		got_hello(m, c);
	else if (kind == RB_RV_PROOF)
		got_proof(m, c);
	else if (kind == RB_RV_LEAVE)
		got_leave(m, c);
	else
		got_gather(m, c);
}

void rb_rv_root_bad(struct rb_rv *m, struct connection *c, enum rb_rv_verdict verdict)
{
	c->in_count = 0;
	if (c->phase == PHASE_MEMBER) {
		rb_rv_act(m, RB_RV_ACT_CLOSE, connection_number(m, c));
		lose(m, c, "sent bytes that are no message");
	} else if (verdict == RB_RV_OTHER_VERSION && c->phase == PHASE_HELLO) {
		noise(m, RB_LOG_WARN, c->address, "speaks another version of the rendezvous");
		refuse(m, c, RB_RV_REASON_VERSION);
	} else {
		noise(m, RB_LOG_INFO, c->address, "sent bytes that are no rendezvous; closed");
		drop(m, c);
	}
}

static void listen_failed(struct rb_rv *m, const struct rb_rv_event *e)
{
	uint64_t until_ns = m->listen_until_ns;

	/* A name may become known, at any time before the deadline; a port rarely becomes free. */
	if (e->more)
		until_ns = m->deadline_ns;
	rb_rv_reason_set(&m->fail, e->status, "%s", e->text);
	if (e->retry && m->now_ns < until_ns) {
		m->retry_ns = rb_deadline(m->now_ns, RB_RV_BACKOFF_MAX_NS / 5);
		return;
	}
	fail_all(m);
}

static void tick(struct rb_rv *m)
{
	if (m->state == RB_RV_FAILING) {
		if (m->now_ns >= m->linger_ns)
			rb_rv_fail_act(m);
		return;
	}
	if (m->state != RB_RV_JOINING && m->state != RB_RV_STARTING && m->state != RB_RV_EXCHANGING)
		return;
	if (m->now_ns >= m->deadline_ns) {
		deadline_passed(m);
		return;
	}
	if (m->now_ns >= m->retry_ns) {
		m->retry_ns = UINT64_MAX;
		rb_rv_act(m, RB_RV_ACT_LISTEN, NO_CONNECTION);
	}
	if (m->state != RB_RV_STARTING && m->now_ns >= m->report_ns) {
		m->report_ns = rb_deadline(m->now_ns, RB_RV_REPORT_NS);
		waiting_report(m);
	}
	for (uint32_t i = 0; i < m->connection_count && m->stranger_count > 0; i++) {
		struct connection *c = &m->connections[i];

		if (c->phase == PHASE_FREE || c->phase == PHASE_MEMBER ||
		    rb_deadline(c->since_ns, RB_RV_HANDSHAKE_NS) > m->now_ns)
			continue;
		if (c->phase != PHASE_LEAVING)
			noise(m, RB_LOG_INFO, c->address, "did not prove itself in time; closed");
		drop(m, c);
	}
	flushed(m);
}

uint64_t rb_rv_root_wake_ns(const struct rb_rv *m)
{
	bool waiting = m->state == RB_RV_JOINING || m->state == RB_RV_STARTING ||
		       m->state == RB_RV_EXCHANGING;
	uint64_t wake = waiting && m->deadline_ns < m->retry_ns ? m->deadline_ns : m->retry_ns;

	if ((m->state == RB_RV_JOINING || m->state == RB_RV_EXCHANGING) && m->report_ns < wake)
		wake = m->report_ns;
	if (m->stranger_count > 0 && m->state != RB_RV_READY) {
		uint64_t since = oldest_stranger(m)->since_ns;
		uint64_t limit = m->stranger_count == m->strangers_max &&
						 rb_deadline(since, RB_RV_GRACE_NS) > m->now_ns
					 ? RB_RV_GRACE_NS
					 : RB_RV_HANDSHAKE_NS;

		if (rb_deadline(since, limit) < wake)
			wake = rb_deadline(since, limit);
	}
	return wake;
}

static void open_job(struct rb_rv *m)
{
	if (m->rank_count == 1) {
		rb_rv_move(m, RB_RV_READY);
		rb_rv_act(m, RB_RV_ACT_DONE, NO_CONNECTION);
		return;
	}
	rb_rv_move(m, RB_RV_JOINING);
	m->report_ns = rb_deadline(m->now_ns, RB_RV_REPORT_NS);
	m->listen_until_ns = rb_deadline(m->now_ns, RB_RV_LISTEN_NS);
	rb_rv_act(m, RB_RV_ACT_LISTEN, NO_CONNECTION);
}

void rb_rv_root_step(struct rb_rv *m, const struct rb_rv_event *e)
{
	struct connection *c = &m->connections[e->connection];

	switch (e->kind) {
	case RB_RV_EV_OPEN:
		open_job(m);
		break;
	case RB_RV_EV_LISTENING:
		m->listening = true;
		break;
	case RB_RV_EV_LISTEN_FAILED:
		listen_failed(m, e);
		break;
	case RB_RV_EV_ACCEPTED:
		accepted(m, c, e);
		break;
	case RB_RV_EV_SENT:
		sent(m, c);
		break;
	case RB_RV_EV_CLOSED:
		if (c->phase == PHASE_MEMBER)
			lose(m, c, e->text != NULL ? e->text : "closed its connection");
		else
			forget(m, c);
		flushed(m);
		break;
	case RB_RV_EV_TICK:
		tick(m);
		break;
	case RB_RV_EV_GATHER:
		exchange(m, e);
		break;
	case RB_RV_EV_GIVE_UP:
		if (!m->left)
			rb_rv_reason_peer(&m->fail, 0, e->blames,
					  "start-up failed on rank 0: %.360s", e->text);
		fail_all(m);
		break;
	case RB_RV_EV_CONNECTING:
	case RB_RV_EV_CONNECTED:
	case RB_RV_EV_CONNECT_FAILED:
	case RB_RV_EV_RECEIVED: /* rb_rv_step() took it. */
		break;
	}
}
