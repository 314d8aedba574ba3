/*
 * news.c -- a rank that fails tells the others, so that they need not wait for their deadlines.
 *
 * Each rank keeps one receive posted for each neighbour at distance 1, 2, 4, ... both ways. A rank
 * whose communicator is poisoned sends its reason to all of them; who receives it is poisoned in
 * turn and so passes it on: every live rank is reached in about log2 n hops, around lost ones.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/comm.h"
#include "runtime/relaxed/plug.h"

static const struct rb_signature news_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

#define TEXT_BYTES 192
#define NEWS_BYTES (12 + TEXT_BYTES) /* status, origin, over whom, text. */
_Static_assert(NEWS_BYTES == RB_LAST_WORDS_BYTES, "last words are the news once more");

static void request_prepare(struct rb_engine *engine, struct rb_slot *slot, uint32_t peer,
			    uint8_t *bytes)
{
	slot->is_work = false;
	slot->request.peer = peer;
	slot->request.tag = rb_tag_message(engine->epoch, RB_TAG_NEWS, 0, 0);
	slot->request.signature = news_signature;
	slot->request.buffer = bytes;
	slot->request.size_bytes = NEWS_BYTES;
	slot->request.owner = slot;
	slot->request.state = RB_REQUEST_IDLE;
}

void rb_news_hear(struct rb_engine *engine, uint32_t peer, const uint8_t *words)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)words, NEWS_BYTES);
	rubato_status status = (rubato_status)rb_wire_get_u32(&w);
	uint32_t origin = rb_wire_get_u32(&w), blames = rb_wire_get_u32(&w);
	char text[TEXT_BYTES], line[256];

	struct rubato_comm *comm = engine->owner;

	rb_wire_get_bytes(&w, text, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	for (char *at = text; *at != '\0'; at++)
		*at = *at >= ' ' && *at < 127 ? *at : '?';
	if (status >= RUBATO_OK || status < RUBATO_ERR_INTERNAL)
		status = RUBATO_ERR_PEER;
	if (origin >= engine->rank_count)
		origin = peer;
	if (engine->blames == 0 && blames <= engine->rank_count)
		engine->blames = blames;
	if (engine->poison == RUBATO_OK) {
		comm->news_origin = origin;
		comm->news_status = status;
		(void)snprintf(comm->news_text, sizeof(comm->news_text), "%s", text);
	}
	(void)snprintf(line, sizeof(line), "rank %u failed: %s", origin, text);
	/* A mismatch has two sides, both of which should see it as such. */
	rb_engine_poison(engine,
			 status == RUBATO_ERR_MISMATCH ? RUBATO_ERR_MISMATCH : RUBATO_ERR_PEER,
			 status == RUBATO_ERR_MISMATCH ? text : line);
	/* It lives, but takes part in nothing any more: to those who want to agree it is lost. */
	if (status != RUBATO_ERR_PEER)
		rb_plug_peer_lost(engine, origin);
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_news *news = slot->owner;
	rubato_status status = slot->request.status;

	news->slot = NULL;
	rb_slot_give(engine, slot);
	if (status == RUBATO_OK)
		rb_news_hear(engine, news->peer, news->bytes);
}

static rubato_status receive_post(struct rb_engine *engine, struct rb_news *news)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, news->peer);
	struct rb_slot *slot = rb_slot_take(engine);

	if (slot == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "failure news: no slot");
	request_prepare(engine, slot, news->peer, news->bytes);
	slot->is_news = true;
	slot->owner = news;
	slot->done = receive_done;
	news->slot = slot;
	ep->ops->recv(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		receive_done(engine, slot);
	return RUBATO_OK;
}

static bool neighbour_known(const struct rubato_comm *comm, uint32_t peer)
{
	for (uint32_t i = 0; i < comm->news_count; i++)
		if (comm->news[i].peer == peer)
			return true;
	return peer == comm->engine.rank;
}

static void neighbour_add(struct rubato_comm *comm, uint32_t peer)
{
	if (!neighbour_known(comm, peer))
		comm->news[comm->news_count++].peer = peer;
}

rubato_status rb_news_open(struct rubato_comm *comm)
{
	uint32_t rank = comm->engine.rank, n = comm->engine.rank_count;

	for (uint64_t distance = 1; distance < n; distance *= 2) {
		neighbour_add(comm, (uint32_t)((rank + distance) % n));
		neighbour_add(comm, (uint32_t)((rank + n - distance) % n));
	}
	for (uint32_t i = 0; i < comm->news_count && comm->engine.poison == RUBATO_OK; i++)
		RB_TRY(receive_post(&comm->engine, &comm->news[i]));
	return RUBATO_OK;
}

void rb_news_close(struct rubato_comm *comm)
{
	for (uint32_t i = 0; i < comm->news_count; i++) {
		struct rb_slot *slot = comm->news[i].slot;
		struct rb_endpoint *ep = rb_engine_endpoint(&comm->engine, comm->news[i].peer);

		comm->news[i].slot = NULL;
		if (slot == NULL)
			continue;
		if (slot->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &slot->request);
		rb_slot_give(&comm->engine, slot);
	}
}

static void send_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_news *news = slot->owner;

	news->slot = NULL;
	rb_slot_give(engine, slot);
}

/* What is passed on keeps its origin and its words. Returns the status. */
static rubato_status news_write(const struct rubato_comm *comm, uint8_t bytes[NEWS_BYTES])
{
	const struct rb_engine *engine = &comm->engine;
	bool ours = comm->news_status == RUBATO_OK;
	rubato_status status = ours ? engine->poison : comm->news_status;
	const char *text = ours ? engine->poison_text : comm->news_text;
	struct rb_wire w = rb_wire_over(bytes, NEWS_BYTES);

	memset(bytes, 0, NEWS_BYTES);
	rb_wire_put_u32(&w, (uint32_t)status);
	rb_wire_put_u32(&w, ours ? engine->rank : comm->news_origin);
	rb_wire_put_u32(&w, engine->blames);
	rb_wire_put_bytes(&w, text, strnlen(text, TEXT_BYTES - 1));
	return status;
}

bool rb_news_last_words(const struct rubato_comm *comm, uint8_t words[RB_LAST_WORDS_BYTES])
{
	return comm->engine.poison != RUBATO_OK && news_write(comm, words) != RUBATO_ERR_PEER;
}

void rb_news_tell(struct rb_engine *engine, void *arg)
{
	struct rubato_comm *comm = arg;

	for (uint32_t i = 0; i < comm->news_count; i++) {
		struct rb_news *news = &comm->news[i];
		struct rb_endpoint *ep = rb_engine_endpoint(engine, news->peer);
		struct rb_slot *slot = engine->lost[news->peer] ? NULL : rb_slot_take(engine);

		if (slot == NULL)
			continue;
		if (news->slot != NULL) {
			/* The buffer is needed, and there is nothing left to learn. */
			ep->ops->cancel(ep, &news->slot->request);
			rb_slot_give(engine, news->slot);
			news->slot = NULL;
		}
		(void)news_write(comm, news->bytes);
		request_prepare(engine, slot, news->peer, news->bytes);
		slot->owner = news;
		slot->done = send_done;
		news->slot = slot; /* Cancelled by rb_news_close at the latest. */
		ep->ops->send(ep, &slot->request);
		if (slot->request.state == RB_REQUEST_DONE)
			send_done(engine, slot);
	}
}
