/* notice.c -- see notice.h. */
#include "runtime/engine/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"

static const struct rb_signature notice_signature = {
	.kind = RB_KIND_CONTROL, .type = 0xff, .op = 0xff, .root = UINT32_MAX
};

#define TEXT_BYTES 192
#define NOTICE_BYTES (12 + TEXT_BYTES) /* status, origin, over whom, text. */
_Static_assert(NOTICE_BYTES == RB_LAST_WORDS_BYTES, "last words are the notice once more");

static void request_prepare(struct rb_engine *engine, struct rb_slot *slot, uint32_t peer,
			    uint8_t *bytes)
{
	slot->is_work = false;
	slot->request.peer = peer;
	slot->request.tag = rb_tag_message(engine->epoch, RB_TAG_NOTICE, 0, 0);
	slot->request.signature = notice_signature;
	slot->request.buffer = bytes;
	slot->request.where = NULL;
	slot->request.size_bytes = NOTICE_BYTES;
	slot->request.owner = slot;
	slot->request.state = RB_REQUEST_IDLE;
}

/* What `peer` sent, or left as its last words. */
static void hear(struct rb_notices *notices, uint32_t peer, const uint8_t *bytes)
{
	struct rb_engine *engine = notices->engine;
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)bytes, NOTICE_BYTES);
	rubato_status status = (rubato_status)rb_wire_get_u32(&w);
	uint32_t origin = rb_wire_get_u32(&w), blames = rb_wire_get_u32(&w);
	char text[TEXT_BYTES], line[256];

	rb_wire_get_bytes(&w, text, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	for (char *at = text; *at != '\0'; at++)
		*at = *at >= ' ' && *at < 127 ? *at : '?';
	if (status >= RUBATO_OK || status < RUBATO_ERR_INTERNAL)
		status = RUBATO_ERR_PEER;
	if (origin >= engine->rank_count)
		origin = peer;
	if (engine->losses.blames == 0 && blames <= engine->rank_count)
		engine->losses.blames = blames;
	if (engine->poison == RUBATO_OK) {
		notices->origin = origin;
		notices->status = status;
		(void)snprintf(notices->text, sizeof(notices->text), "%s", text);
	}
	(void)snprintf(line, sizeof(line), "rank %u failed: %s", origin, text);
	/* A mismatch has two sides, both of which should see it as such. */
	rb_engine_poison(engine,
			 status == RUBATO_ERR_MISMATCH ? RUBATO_ERR_MISMATCH : RUBATO_ERR_PEER,
			 status == RUBATO_ERR_MISMATCH ? text : line);
	/* It lives, but takes part in nothing any more: to those who want to agree it is lost. */
	if (status != RUBATO_ERR_PEER)
		rb_engine_peer_lost(engine, origin);
}

static void last_words_hear(void *arg, uint32_t peer, const uint8_t *words)
{
	hear(arg, peer, words);
}

static void receive_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_notice *notice = slot->owner;
	rubato_status status = slot->request.status;

	notice->slot = NULL;
	rb_slot_give(engine, slot);
	if (status == RUBATO_OK)
		hear(notice->notices, notice->peer, notice->bytes);
}

static rubato_status receive_post(struct rb_engine *engine, struct rb_notice *notice)
{
	struct rb_endpoint *ep = rb_engine_endpoint(engine, notice->peer);
	struct rb_slot *slot = rb_slot_take(engine);

	if (slot == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "failure notices: no slot");
	request_prepare(engine, slot, notice->peer, notice->bytes);
	slot->is_notice = true;
	slot->owner = notice;
	slot->done = receive_done;
	notice->slot = slot;
	ep->ops->recv(ep, &slot->request);
	if (slot->request.state == RB_REQUEST_DONE)
		receive_done(engine, slot);
	return RUBATO_OK;
}

static bool neighbour_known(const struct rb_notices *notices, uint32_t peer)
{
	for (uint32_t i = 0; i < notices->count; i++)
		if (notices->at[i].peer == peer)
			return true;
	return peer == notices->engine->rank;
}

static void neighbour_add(struct rb_notices *notices, uint32_t peer)
{
	if (neighbour_known(notices, peer))
		return;
	notices->at[notices->count].notices = notices;
	notices->at[notices->count++].peer = peer;
}

static const struct rb_poller_ops notices_ops;

rubato_status rb_notices_open(struct rb_notices *notices, struct rb_engine *engine)
{
	uint32_t rank = engine->rank, n = engine->rank_count, most = 1;

	for (uint64_t distance = 1; distance < n; distance *= 2)
		most += 2;
	notices->at = calloc(most, sizeof(*notices->at));
	if (notices->at == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "failure notices: %u neighbours", most);
	notices->engine = engine;
	notices->poller.ops = &notices_ops;
	rb_engine_add_poller(engine, &notices->poller);
	engine->losses.last_words = last_words_hear;
	engine->losses.arg = notices;
	for (uint64_t distance = 1; distance < n; distance *= 2) {
		neighbour_add(notices, (uint32_t)((rank + distance) % n));
		neighbour_add(notices, (uint32_t)((rank + n - distance) % n));
	}
	for (uint32_t i = 0; i < notices->count && engine->poison == RUBATO_OK; i++)
		RB_TRY(receive_post(engine, &notices->at[i]));
	return RUBATO_OK;
}

void rb_notices_close(struct rb_notices *notices)
{
	for (uint32_t i = 0; i < notices->count; i++) {
		struct rb_notice *notice = &notices->at[i];
		struct rb_slot *slot = notice->slot;
		struct rb_endpoint *ep = rb_engine_endpoint(notices->engine, notice->peer);

		notice->slot = NULL;
		if (slot == NULL)
			continue;
		notices->engine->telling -= !slot->is_notice;
		if (slot->request.state == RB_REQUEST_PENDING)
			ep->ops->cancel(ep, &slot->request);
		rb_slot_give(notices->engine, slot);
	}
	free(notices->at);
	notices->at = NULL;
	notices->count = 0;
}

static void send_done(struct rb_engine *engine, struct rb_slot *slot)
{
	struct rb_notice *notice = slot->owner;

	engine->telling--;
	notice->slot = NULL;
	rb_slot_give(engine, slot);
}

/* What is passed on keeps its origin and its words. Returns the status. */
static rubato_status notice_write(const struct rb_notices *notices, uint8_t bytes[NOTICE_BYTES])
{
	const struct rb_engine *engine = notices->engine;
	bool ours = notices->status == RUBATO_OK;
	rubato_status status = ours ? engine->poison : notices->status;
	const char *text = ours ? engine->poison_text : notices->text;
	struct rb_wire w = rb_wire_over(bytes, NOTICE_BYTES);

	memset(bytes, 0, NOTICE_BYTES);
	rb_wire_put_u32(&w, (uint32_t)status);
	rb_wire_put_u32(&w, ours ? engine->rank : notices->origin);
	rb_wire_put_u32(&w, engine->losses.blames);
	rb_wire_put_bytes(&w, text, strnlen(text, TEXT_BYTES - 1));
	return status;
}

bool rb_notices_last_words(const struct rb_notices *notices, uint8_t words[RB_LAST_WORDS_BYTES])
{
	return notices->engine != NULL && notices->engine->poison != RUBATO_OK &&
	       notice_write(notices, words) != RUBATO_ERR_PEER;
}

static void notices_send(struct rb_engine *engine, struct rb_poller *poller, rubato_status status,
			 const char *text)
{
	struct rb_notices *notices = (struct rb_notices *)poller;

	(void)status;
	(void)text;
	for (uint32_t i = 0; i < notices->count; i++) {
		struct rb_notice *notice = &notices->at[i];
		struct rb_endpoint *ep = rb_engine_endpoint(engine, notice->peer);
		struct rb_slot *slot =
			engine->losses.lost[notice->peer] ? NULL : rb_slot_take(engine);

		if (slot == NULL)
			continue;
		if (notice->slot != NULL) {
			/* The buffer is needed, and there is nothing left to learn. */
			ep->ops->cancel(ep, &notice->slot->request);
			rb_slot_give(engine, notice->slot);
			notice->slot = NULL;
		}
		(void)notice_write(notices, notice->bytes);
		request_prepare(engine, slot, notice->peer, notice->bytes);
		slot->owner = notice;
		slot->done = send_done;
		notice->slot = slot; /* Cancelled by rb_notices_close at the latest. */
		engine->telling++;
		ep->ops->send(ep, &slot->request);
		if (slot->request.state == RB_REQUEST_DONE)
			send_done(engine, slot);
	}
}

static const struct rb_poller_ops notices_ops = {
	.order = RB_POLLER_NOTICE,
	.poisoned = notices_send,
};

/* ---- Lack of memory ---- */

rubato_status rb_notice_memory(struct rb_engine *engine, rubato_status err)
{
	char text[RB_TEXT_BYTES];

	if (err != RUBATO_ERR_MEMORY)
		return err;
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_poison(engine, err, text);
	return RB_FAIL(err, "%s", text);
}

rubato_status rb_notice_memory_outside(struct rb_engine *engine, rubato_status err)
{
	char text[RB_TEXT_BYTES];

	if (err != RUBATO_ERR_MEMORY)
		return err;
	rb_engine_enter(engine);
	(void)rb_notice_memory(engine, err);
	(void)snprintf(text, sizeof(text), "%s", rubato_error_text());
	rb_engine_leave(engine);
	return RB_FAIL(err, "%s", text);
}
