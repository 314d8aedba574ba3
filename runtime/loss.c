/*
 * loss.c -- which ranks are lost, and in what words.
 *
 * What fails first is often not what went wrong: a rank that lost another gives up, and those that
 * wait for it see it go. So whoever gives up says over whom (rb_endpoint.blames), or over what (its
 * last words: its news once more, which its end may overtake). A request that fails is explained by
 * what is known of its rank, asked for before anything is said.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/engine.h"
#include "runtime/relaxed/plug.h"

struct rb_loss {
	struct rb_loss *next;
	uint32_t peer;
	bool acted;
	bool unexplained; /* It gave up, and did not say over whom. */
	bool spoke;       /* Last words, not heard yet. */
	char text[160];
	uint8_t last_words[RB_LAST_WORDS_BYTES];
};

void rb_loss_note(struct rb_engine *engine, const struct rb_failure *failure)
{
	struct rb_loss *loss, **last = &engine->losses;
	const char *text = failure->text;
	char prefix[32];
	uint32_t blames = failure->blames <= engine->rank_count ? failure->blames : 0;

	if (failure->peer >= engine->rank_count || engine->lost[failure->peer])
		return;
	loss = calloc(1, sizeof(*loss));
	engine->losses_new = true;
	engine->lost[failure->peer] = true;
	if (engine->blames == 0)
		engine->blames = blames > 0 ? blames : failure->peer + 1;
	if (loss == NULL) { /* Without a sentence of its own. */
		engine->losses_untold++;
		return;
	}
	loss->peer = failure->peer;
	loss->unexplained = failure->gave_up && blames == 0;
	loss->spoke = failure->gave_up && failure->spoke;
	if (loss->spoke)
		memcpy(loss->last_words, failure->last_words, sizeof(loss->last_words));
	(void)snprintf(prefix, sizeof(prefix), "rank %u: ", failure->peer);
	text += strncmp(text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
	if (blames > 0 && blames != failure->peer + 1)
		(void)snprintf(loss->text, sizeof(loss->text), "rank %u gave up over rank %u",
			       failure->peer, blames - 1);
	else
		(void)snprintf(loss->text, sizeof(loss->text), "rank %u is lost: %s", failure->peer,
			       text);
	while (*last != NULL)
		last = &(*last)->next;
	*last = loss;
	RB_LOG(RB_LOG_INFO, "rank %u: %s", engine->rank, loss->text);
}

/* Looks for losses now: what one of them is explained with may be another. */
static void look(struct rb_engine *engine)
{
	for (uint32_t i = 0; i < engine->endpoint_count; i++) {
		struct rb_endpoint *ep = engine->endpoints[i];

		if (ep->ops->look != NULL)
			ep->ops->look(ep);
		rb_losses_collect(engine, ep);
	}
}

/* One of several: the first to be seen need not be the first to go. */
static const char *sentence(struct rb_engine *engine, const struct rb_loss *loss, char *text,
			    size_t text_bytes)
{
	size_t at = (size_t)snprintf(text, text_bytes, "%.*s", (int)text_bytes / 2, loss->text);
	uint32_t count = 0;

	for (const struct rb_loss *other = engine->losses; other != NULL; other = other->next)
		count += other != loss;
	if (count == 0 || at + 48 > text_bytes)
		return text;
	at += (size_t)snprintf(text + at, text_bytes - at, "; lost by now: ranks ");
	count = 0;
	for (uint32_t r = 0; r < engine->rank_count; r++) {
		if (!engine->lost[r])
			continue;
		if (at + 28 < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%u",
					       count > 0 ? ", " : "", r);
		count++;
	}
	(void)snprintf(text + at, text_bytes - at, " (%u of %u)", count, engine->rank_count);
	return text;
}

void rb_losses_hear(struct rb_engine *engine)
{
	look(engine);
	for (struct rb_loss *loss = engine->losses; loss != NULL; loss = loss->next) {
		if (!loss->spoke || engine->last_words == NULL)
			continue;
		loss->spoke = false;
		engine->last_words(engine, loss->peer, loss->last_words);
	}
}

const char *rb_loss_text(struct rb_engine *engine, uint32_t peer, char *text, size_t text_bytes)
{
	const struct rb_loss *loss;

	look(engine);
	loss = engine->losses;
	while (loss != NULL && loss->peer != peer)
		loss = loss->next;
	return loss != NULL ? sentence(engine, loss, text, text_bytes) : NULL;
}

const char *rb_loss_behind(struct rb_engine *engine, uint32_t peer, char *text, size_t text_bytes)
{
	const struct rb_loss *loss;

	look(engine);
	loss = engine->losses;
	while (loss != NULL && peer != UINT32_MAX && (loss->peer == peer || loss->unexplained))
		loss = loss->next;
	return loss != NULL ? sentence(engine, loss, text, text_bytes) : NULL;
}

static void act(struct rb_engine *engine, uint32_t peer, const char *text)
{
	rb_plug_peer_lost(engine, peer);
	if (engine->runs != NULL || rb_plug_surviving(engine))
		rb_engine_poison(engine, RUBATO_ERR_PEER, text);
}

void rb_losses_act(struct rb_engine *engine)
{
	char text[224];

	rb_losses_hear(engine);
	engine->losses_new = false;
	for (struct rb_loss *loss = engine->losses; loss != NULL; loss = loss->next) {
		if (loss->acted)
			continue;
		loss->acted = true;
		act(engine, loss->peer, sentence(engine, loss, text, sizeof(text)));
	}
	if (engine->losses_untold == 0)
		return;
	engine->losses_untold = 0;
	for (uint32_t r = 0; r < engine->rank_count; r++) /* Some again: no harm. */
		if (engine->lost[r])
			act(engine, r, "a rank is lost, and there is no memory to say which");
}

void rb_losses_fini(struct rb_engine *engine)
{
	while (engine->losses != NULL) {
		struct rb_loss *next = engine->losses->next;

		free(engine->losses);
		engine->losses = next;
	}
}
