/* loss.c -- see loss.h. */
#include "runtime/engine/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define DYING_NS 200000000u /* Guess: between a process's first and last connection, when busy. */
#define LOOK_NS 200000u

struct rb_loss {
	struct rb_loss *next;
	uint32_t peer;
	bool acted;
	bool unexplained; /* It gave up, and did not say over whom. */
	bool spoke;       /* Last words, not heard yet. */
	char text[224];   /* What was noticed, and of whom. */
	uint8_t last_words[RB_LAST_WORDS_BYTES];
};

rubato_status rb_losses_init(struct rb_losses *losses, uint32_t rank, uint32_t rank_count,
			     struct rb_endpoint **endpoints, const uint32_t *endpoint_count)
{
	*losses = (struct rb_losses) { .rank = rank,
				       .rank_count = rank_count,
				       .endpoints = endpoints,
				       .endpoint_count = endpoint_count };
	losses->lost = calloc(rank_count, sizeof(*losses->lost));
	return losses->lost != NULL ? RUBATO_OK
				    : RB_FAIL(RUBATO_ERR_MEMORY, "losses of %u ranks", rank_count);
}

void rb_loss_record(struct rb_losses *losses, const struct rb_failure *failure)
{
	struct rb_loss *loss, **last = &losses->first;
	const char *text = failure->text;
	char prefix[32];
	uint32_t blames = failure->blames <= losses->rank_count ? failure->blames : 0;

	if (failure->peer >= losses->rank_count || losses->lost[failure->peer])
		return;
	loss = calloc(1, sizeof(*loss));
	losses->fresh = true;
	losses->lost[failure->peer] = true;
	if (losses->blames == 0)
		losses->blames = blames > 0 ? blames : failure->peer + 1;
	if (loss == NULL) { /* Without a sentence of its own. */
		losses->wordless++;
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
		(void)snprintf(loss->text, sizeof(loss->text), "rank %u gave up because of rank %u",
			       failure->peer, blames - 1);
	else
		(void)snprintf(loss->text, sizeof(loss->text), "rank %u is lost: %s", failure->peer,
			       text);
	while (*last != NULL)
		last = &(*last)->next;
	*last = loss;
	RB_LOG(RB_LOG_INFO, "rank %u: %s", losses->rank, loss->text);
}

/* Looks for losses now: what one of them is explained with may be another. */
static void look(struct rb_losses *losses)
{
	for (uint32_t i = 0; i < *losses->endpoint_count; i++) {
		struct rb_endpoint *ep = losses->endpoints[i];

		if (ep->ops->look != NULL)
			ep->ops->look(ep);
		rb_losses_collect(losses, ep);
	}
}

/* One of several: the first to be seen need not be the first to go. */
static const char *sentence(struct rb_losses *losses, const struct rb_loss *loss, char *text,
			    size_t text_bytes)
{
	size_t at = (size_t)snprintf(text, text_bytes, "%s", loss->text);
	uint32_t count = 0;

	for (const struct rb_loss *other = losses->first; other != NULL; other = other->next)
		count += other != loss;
	if (count == 0 || at + 48 > text_bytes)
		return text;
	at += (size_t)snprintf(text + at, text_bytes - at, "; lost by now: ranks ");
	count = 0;
	for (uint32_t r = 0; r < losses->rank_count; r++) {
		if (!losses->lost[r])
			continue;
		if (at + 28 < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%u",
					       count > 0 ? ", " : "", r);
		count++;
	}
	(void)snprintf(text + at, text_bytes - at, " (%u of %u)", count, losses->rank_count);
	return text;
}

void rb_losses_hear(struct rb_losses *losses)
{
	look(losses);
	for (struct rb_loss *loss = losses->first; loss != NULL; loss = loss->next) {
		if (!loss->spoke || losses->last_words == NULL)
			continue;
		loss->spoke = false;
		losses->last_words(losses->arg, loss->peer, loss->last_words);
	}
}

const char *rb_loss_text(struct rb_losses *losses, uint32_t peer, char *text, size_t text_bytes)
{
	const struct rb_loss *loss;

	look(losses);
	loss = losses->first;
	while (loss != NULL && loss->peer != peer)
		loss = loss->next;
	return loss != NULL ? sentence(losses, loss, text, text_bytes) : NULL;
}

const char *rb_loss_behind(struct rb_losses *losses, uint32_t peer, char *text, size_t text_bytes)
{
	const struct rb_loss *loss;

	look(losses);
	loss = losses->first;
	while (loss != NULL && peer != UINT32_MAX && (loss->peer == peer || loss->unexplained))
		loss = loss->next;
	return loss != NULL ? sentence(losses, loss, text, text_bytes) : NULL;
}

void rb_losses_await(struct rb_losses *losses, uint32_t peer)
{
	uint64_t until_ns = rb_clock_ns() + DYING_NS;
	char text[8];

	if ((losses->endpoints[0]->ops->caps & RB_CAP_VIRTUAL_TIME) != 0)
		return;
	while (!losses->lost[peer] && rb_loss_behind(losses, peer, text, sizeof(text)) == NULL &&
	       rb_clock_ns() < until_ns)
		rb_clock_sleep_until(rb_clock_ns() + LOOK_NS);
}

bool rb_losses_next(struct rb_losses *losses, uint32_t *peer, char *text, size_t text_bytes)
{
	for (struct rb_loss *loss = losses->first; loss != NULL; loss = loss->next) {
		if (loss->acted)
			continue;
		loss->acted = true;
		*peer = loss->peer;
		(void)sentence(losses, loss, text, text_bytes);
		return true;
	}
	while (losses->wordless > 0 && losses->wordless_next < losses->rank_count) {
		*peer = losses->wordless_next++;
		if (!losses->lost[*peer])
			continue;
		(void)snprintf(text, text_bytes,
			       "a rank is lost, and there is no memory to say which");
		return true;
	}
	losses->wordless = losses->wordless_next = 0;
	return false;
}

void rb_losses_fini(struct rb_losses *losses)
{
	while (losses->first != NULL) {
		struct rb_loss *next = losses->first->next;

		free(losses->first);
		losses->first = next;
	}
	free(losses->lost);
	losses->lost = NULL;
}
