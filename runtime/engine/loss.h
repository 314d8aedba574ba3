/*
 * loss.h -- which ranks are lost, and in what words.
 *
 * What fails first is often not what went wrong: a rank that lost another gives up, and those that
 * wait for it see it go. So whoever gives up says over whom (rb_endpoint.blames), or over what (its
 * last words: its failure notice once more, which its end may overtake). A request that fails is
 * explained by what is known of its rank, asked for before anything is said.
 */
#ifndef RB_RUNTIME_LOSS_H
#define RB_RUNTIME_LOSS_H

#include "transport/transport.h"

#define RB_LOSS_BYTES 320 /* Of the sentence about one, and who is lost by now. */

struct rb_loss;

struct rb_losses {
	uint32_t rank, rank_count; /* Of this rank. */
	struct rb_endpoint **endpoints;
	const uint32_t *endpoint_count;
	const uint8_t *route;   /* Per peer: the endpoint whose word counts. NULL: any. */
	bool *lost;             /* Per peer: a failure was reported. */
	struct rb_loss *first;  /* In order; */
	uint32_t wordless;      /* and those that no memory was left for: ranks are gone through */
	uint32_t wordless_next; /* from this one on. */
	bool fresh;             /* Some are not acted upon yet. */
	uint32_t blames;        /* The rank over which this one has to give up, + 1; 0: none. */
	/* Takes the last words of a lost peer, once; NULL: nobody does. */
	void (*last_words)(void *arg, uint32_t peer, const uint8_t *words);
	void *arg;
};

RB_NODISCARD rubato_status rb_losses_init(struct rb_losses *losses, uint32_t rank,
					  uint32_t rank_count, struct rb_endpoint **endpoints,
					  const uint32_t *endpoint_count);
void rb_losses_fini(struct rb_losses *losses);
void rb_loss_record(struct rb_losses *losses, const struct rb_failure *failure);
/* What an endpoint has to say, recorded; nothing else happens. */
static inline void rb_losses_collect(struct rb_losses *losses, struct rb_endpoint *ep)
{
	struct rb_failure failure;

	failure.blames = 0;
	failure.gave_up = failure.spoke = false;
	while (__builtin_expect(ep->ops->failure(ep, &failure), 0)) {
		/* One that carries nothing to the peer may lose it. */
		if (losses->route == NULL || failure.peer >= losses->rank_count ||
		    losses->route[failure.peer] == ep->index)
			rb_loss_record(losses, &failure);
		failure.blames = 0;
		failure.gave_up = failure.spoke = false;
	}
}
/* Hands the last words of the lost on: before anything is said of them. */
void rb_losses_hear(struct rb_losses *losses);
/* Of a mismatch with `peer` in which one side finalizes. It may do so because a communicator that
 * was split off told it of a loss: a process that ends has its connections closed one by one. Looks
 * for a while whether `peer`, or that one, is lost here too. */
void rb_losses_await(struct rb_losses *losses, uint32_t peer);
/* The next one to act upon, each once, with its sentence; false: there is none. Where memory was
 * short, some again. */
bool rb_losses_next(struct rb_losses *losses, uint32_t *peer, char *text, size_t text_bytes);
/* "rank 3 is lost: process 4711 ended", and which others are; NULL: it is not known to be. */
const char *rb_loss_text(struct rb_losses *losses, uint32_t peer, char *text, size_t text_bytes);
/* The same of another rank than `peer`, which gave up because of it: if it then went on to
 * something else, it seems to call the wrong operation. Who gave up without a word may have done so
 * over a call that was wrong, and is no cause. UINT32_MAX: whatever was lost first. */
const char *rb_loss_behind(struct rb_losses *losses, uint32_t peer, char *text, size_t text_bytes);

#endif
