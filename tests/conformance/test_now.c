/* test_now.c -- messages at once or not at all: where they go, they are messages like all others,
 * and where they do not, nothing has happened. A backend without them has nothing to show. */
#include "conformance.h"

#include <string.h>

#include "tests/length.h"

#define BYTES_MAX 40000u

static struct rb_message now_message(uint32_t peer, uint64_t tag,
				     const struct rb_signature *signature, void *buffer,
				     size_t size_bytes)
{
	return (struct rb_message) { .peer = peer,
				     .tag = { tag >> 32, tag & 0xffffffff },
				     .signature = signature,
				     .buffer = buffer,
				     .size_bytes = size_bytes };
}

/* As a message or, where the backend has these, as a parcel: there is no difference. */
static enum rb_now one_now(struct conform_rank *r, const struct rb_message *m, bool sends)
{
	const struct rb_parcel parcel = { .peer = m->peer,
					  .size_bytes = (uint32_t)m->size_bytes,
					  .tag_step = m->tag.step,
					  .sends = sends };
	struct rb_parcels parcels = { .parcels = &parcel,
				      .end = 1,
				      .looks = (uint32_t)rb_rng_below(&r->rng, 2),
				      .tag = { m->tag.call, 0 },
				      .signature = m->signature,
				      .buffers = &m->buffer };
	enum rb_now got;

	if (r->ops->parcels_now == NULL || rb_rng_below(&r->rng, 2) == 0)
		return sends ? r->ops->send_now(r->ep, m) : r->ops->recv_now(r->ep, m);
	got = r->ops->parcels_now(r->ep, &parcels);
	CONFORM(parcels.at == (got == RB_NOW_DONE), "%u parcels of one are done", parcels.at);
	return got;
}

static enum rb_now send_now(struct conform_rank *r, uint32_t peer, uint64_t tag, void *buffer,
			    size_t size_bytes)
{
	const struct rb_signature signature = conform_signature(size_bytes);
	const struct rb_message m = now_message(peer, tag, &signature, buffer, size_bytes);

	return one_now(r, &m, true);
}

static enum rb_now recv_now(struct conform_rank *r, uint32_t peer, uint64_t tag, void *buffer,
			    size_t size_bytes)
{
	const struct rb_signature signature = conform_signature(size_bytes);
	const struct rb_message m = now_message(peer, tag, &signature, buffer, size_bytes);

	return one_now(r, &m, false);
}

/* ---- Mixed with requests ---- */

static size_t size_of(uint64_t tag)
{
	struct rb_rng rng;

	rng.state = tag;
	return (size_t)(rb_rng_below(&rng, 4) == 0 ? rb_rng_below(&rng, BYTES_MAX)
						   : rb_rng_below(&rng, 500));
}

static void mixed_send(struct conform_rank *r, uint64_t tag, uint32_t *at_once)
{
	static _Thread_local uint8_t buffer[BYTES_MAX];
	struct conform_request c;

	conform_fill(buffer, size_of(tag), tag);
	if (rb_rng_below(&r->rng, 3) > 0 &&
	    send_now(r, 1, tag, buffer, size_of(tag)) == RB_NOW_DONE) {
		++*at_once;
		return;
	}
	conform_send(r, &c, 1, tag, buffer, size_of(tag));
	conform_finish_ok(r, &c);
}

static void mixed_recv(struct conform_rank *r, uint64_t tag, uint32_t *at_once)
{
	static _Thread_local uint8_t buffer[BYTES_MAX + 1];
	enum rb_now got = RB_NOW_REFUSED;
	uint64_t looks = rb_rng_below(&r->rng, 3) * 200;
	struct conform_request c;

	memset(buffer, 0xee, sizeof(buffer));
	for (uint64_t i = 0; i < looks && (i == 0 || got == RB_NOW_ABSENT); i++) {
		got = recv_now(r, 0, tag, buffer, size_of(tag));
		conform_pause(r);
	}
	if (got != RB_NOW_DONE) {
		CONFORM(buffer[0] == 0xee, "what was not received is here");
		conform_recv(r, &c, 0, tag, buffer, size_of(tag));
		conform_finish_ok(r, &c);
	}
	*at_once += got == RB_NOW_DONE;
	conform_verify(buffer, size_of(tag), tag);
	CONFORM(buffer[size_of(tag)] == 0xee, "more came than was sent");
}

static void mixed(struct conform_rank *r)
{
	uint64_t count = test_length() == TEST_SHORT ? 300 : 3000, bytes = 0;
	uint32_t at_once = 0;

	for (uint64_t tag = 0; tag < count; tag++) {
		bytes += size_of(tag);
		(r->rank == 0 ? mixed_send : mixed_recv)(r, tag, &at_once);
		if (tag % 64 == 63) /* Now and then the receiver has nothing of the sender's. */
			conform_barrier(r, "a part is over");
	}
	CONFORM(at_once > 0 && at_once < count, "%u of %llu at once", at_once,
		(unsigned long long)count);
	CONFORM((r->rank == 0 ? r->ep->bytes_sent : r->ep->bytes_received) == bytes,
		"counted are other bytes than %llu", (unsigned long long)bytes);
}

START_TEST(test_mixed)
{
	if (conform_backend.ops->send_now != NULL)
		conform_run(2, mixed);
}
END_TEST

/* ---- What is not the next message ---- */

/* Without polls, which would take what comes off its way. */
static void await_word(struct conform_rank *r, uint32_t i, const char *what)
{
	uint64_t since_ns = r->ops->now_ns(r->ep);

	while (atomic_load(&r->shared->word[i]) == 0) {
		conform_expire(r, since_ns, what);
		conform_pause(r);
	}
}

static void refused(struct conform_rank *r)
{
	struct rb_signature other = conform_signature(8);
	uint64_t word = 4711, got = 0;
	struct conform_request c;

	if (r->rank == 0) {
		await_word(r, 1, "that nothing has come");
		CONFORM(send_now(r, 1, 1, &word, 8) == RB_NOW_DONE, "there is room");
		CONFORM(send_now(r, 1, 2, NULL, 0) == RB_NOW_DONE, "there is room");
		atomic_store(&r->shared->word[0], 1);
		conform_barrier(r, "all has come");
		return;
	}
	CONFORM(recv_now(r, 0, 1, &got, 8) == RB_NOW_ABSENT, "nothing was sent");
	atomic_store(&r->shared->word[1], 1);
	await_word(r, 0, "two messages");
	other.op = 7;
	CONFORM(recv_now(r, 0, 2, NULL, 0) == RB_NOW_REFUSED, "it is the second");
	CONFORM(recv_now(r, 0, 1, &got, 4) == RB_NOW_REFUSED, "it has 8 bytes");
	const struct rb_message m = now_message(0, 1, &other, &got, 8);

	CONFORM(one_now(r, &m, false) == RB_NOW_REFUSED, "it is another operation's");
	CONFORM(got == 0 && r->ep->bytes_received == 0, "what was refused left something");
	CONFORM(recv_now(r, 0, 1, &got, 8) == RB_NOW_DONE && got == 4711, "it is this one");
	conform_recv(r, &c, 0, 2, NULL, 0);
	conform_finish_ok(r, &c);
	conform_barrier(r, "all has come");
}

START_TEST(test_refused)
{
	if (conform_backend.ops->send_now != NULL)
		conform_run(2, refused);
}
END_TEST

/* ---- Beside what was put aside ---- */

static bool count_visit(void *arg, uint32_t peer, struct rb_tag tag,
			const struct rb_signature *signature)
{
	(void)peer, (void)tag, (void)signature;
	++*(uint32_t *)arg;
	return false;
}

static uint32_t aside(struct conform_rank *r)
{
	uint32_t count = 0;

	CONFORM(!r->ops->unmatched(r->ep, count_visit, &count), "no visit ends it");
	return count;
}

static void beside(struct conform_rank *r)
{
	uint64_t first = 4711, second = 4712, got = 0, since_ns = r->ops->now_ns(r->ep);
	struct conform_request c;

	if (r->rank == 0) {
		CONFORM(send_now(r, 1, 1, &first, 8) == RB_NOW_DONE, "there is room");
		await_word(r, 0, "that it was put aside");
		CONFORM(send_now(r, 1, 2, &second, 8) == RB_NOW_DONE, "there is room");
		atomic_store(&r->shared->word[1], 1);
		conform_barrier(r, "all has come");
		return;
	}
	while (aside(r) == 0) {
		conform_expire(r, since_ns, "a message that nobody receives");
		conform_poll(r);
	}
	atomic_store(&r->shared->word[0], 1);
	await_word(r, 1, "the second message");
	CONFORM(recv_now(r, 0, 1, &got, 8) == RB_NOW_REFUSED && got == 0, "it lies aside");
	CONFORM(recv_now(r, 0, 2, &got, 8) == RB_NOW_DONE && got == 4712, "it is the next one");
	CONFORM(recv_now(r, 0, 1, &got, 8) == RB_NOW_REFUSED, "it lies aside still");
	conform_recv(r, &c, 0, 1, &got, 8);
	conform_finish_ok(r, &c);
	CONFORM(got == 4711 && aside(r) == 0, "it is this one, and was the last");
	conform_barrier(r, "all has come");
}

START_TEST(test_beside)
{
	if (conform_backend.ops->send_now != NULL)
		conform_run(2, beside);
}
END_TEST

/* ---- In a row ---- */

/* Each sends two and takes two, the second of which comes later. */
static void row(struct conform_rank *r)
{
	const struct rb_signature signature = conform_signature(8);
	uint32_t peer = 1 - r->rank;
	uint64_t out[2] = { 4711 + r->rank, 4721 + r->rank }, in[2] = { 0, 0 };
	void *const buffers[] = { out, in };
	const struct rb_parcel parcels[] = {
		{ .peer = peer, .size_bytes = 8, .tag_step = 1, .sends = true },
		{ .peer = peer, .size_bytes = 8, .tag_step = 1, .buffer = 1 },
		{ .peer = peer, .size_bytes = 8, .tag_step = 2, .at = 8, .sends = true },
		{ .peer = peer, .size_bytes = 8, .tag_step = 2, .at = 8, .buffer = 1 },
	};
	struct rb_parcels p = { .parcels = parcels,
				.end = 3,
				.tag = { 7, 16 },
				.signature = &signature,
				.buffers = buffers };
	uint64_t since_ns = r->ops->now_ns(r->ep);
	enum rb_now got;

	if (r->rank == 0) {
		CONFORM(r->ops->parcels_now(r->ep, &p) == RB_NOW_ABSENT && p.at == 1, "%u are done",
			p.at);
		atomic_store(&r->shared->word[0], 1);
	} else {
		await_word(r, 0, "that the first has come");
		CONFORM(r->ops->parcels_now(r->ep, &p) == RB_NOW_DONE && p.at == 3, "%u are done",
			p.at);
	}
	p.end = 4;
	p.looks = 10;
	while ((got = r->ops->parcels_now(r->ep, &p)) == RB_NOW_ABSENT) {
		conform_expire(r, since_ns, "the other's");
		conform_pause(r);
	}
	CONFORM(got == RB_NOW_DONE && p.at == 4, "%u are done", p.at);
	CONFORM(in[0] == 4711 + peer && in[1] == 4721 + peer, "%llu and %llu came",
		(unsigned long long)in[0], (unsigned long long)in[1]);
	CONFORM(r->ep->bytes_sent == 16 && r->ep->bytes_received == 16, "others are counted");
	conform_barrier(r, "all has come");
}

START_TEST(test_row)
{
	if (conform_backend.ops->parcels_now != NULL)
		conform_run(2, row);
}
END_TEST

/* ---- No room ---- */

static void full(struct conform_rank *r)
{
	enum { MOST = 100000 };
	uint64_t word, sent = 0;
	struct conform_request c;

	if (r->rank == 0) {
		while (sent < MOST && send_now(r, 1, sent, &sent, 8) == RB_NOW_DONE)
			sent++;
		CONFORM(sent > 0 && sent < MOST, "%llu messages that nobody receives",
			(unsigned long long)sent);
		CONFORM(send_now(r, 1, sent, &sent, 8) == RB_NOW_REFUSED, "it is full still");
		CONFORM(r->ep->bytes_sent == 8 * sent, "what was refused is counted");
		word = sent;
		conform_send(r, &c, 1, sent, &word, 8);
		atomic_store(&r->shared->word[0], sent + 1);
		conform_finish_ok(r, &c);
		conform_barrier(r, "all has come");
		return;
	}
	await_word(r, 0, "that there is no room");
	for (sent = atomic_load(&r->shared->word[0]); sent-- > 0;) {
		conform_recv(r, &c, 0, sent, &word, 8);
		conform_finish_ok(r, &c);
		CONFORM(word == sent, "message %llu has %llu", (unsigned long long)sent,
			(unsigned long long)word);
	}
	conform_barrier(r, "all has come");
}

START_TEST(test_full)
{
	if (conform_backend.ops->send_now != NULL)
		conform_run(2, full);
}
END_TEST

TCase *conform_now_case(void)
{
	TCase *t = tcase_create("now");

	tcase_add_test(t, test_mixed);
	tcase_add_test(t, test_refused);
	tcase_add_test(t, test_beside);
	tcase_add_test(t, test_row);
	tcase_add_test(t, test_full);
	return t;
}
