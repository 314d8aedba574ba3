/*
 * verbs_share.c -- messages whose bytes came by several links, and their ends.
 *
 * Behind its share of a flight each link but the main one carries a MARK, named by the sender's
 * flight and the link's bit; the end (FIN, PUT, STOPPED, ENDED), in the stream, names the bits
 * to wait for. They come in any order: what is here first waits. A MARK that is done again after
 * its link failed comes by another link, and still has the bit of its own.
 */
#include <stdlib.h>

#include "transport/verbs/verbs_posts.h"

/* ---- The sender ---- */

bool rb_verbs_mark(struct rb_verbs *vb, struct rb_verbs_flight *flight)
{
	struct rb_verbs_peer *peer = &vb->peers[flight->request->peer];
	uint8_t due = (uint8_t)(flight->rails & ~(1u << peer->main->index) & ~flight->marked);
	uint64_t id = rb_verbs_flight_id(flight);

	if ((flight->rails & 1u << peer->main->index) != 0 && !rb_verbs_is_live(peer->main))
		return false;
	if (due == 0)
		return true;
	for (uint32_t i = 0; i < peer->link_count; i++) /* One that fails is compared first. */
		if ((due & 1u << i) != 0 &&
		    (!rb_verbs_is_live(&peer->links[i]) || !rb_verbs_has_room(&peer->links[i])))
			return false;
	for (uint32_t i = 0; i < peer->link_count; i++) {
		struct rb_verbs_head head = { .message = RB_VERBS_MARK,
					      .rails = (uint8_t)(1u << i),
					      .id = id };

		if ((due & 1u << i) == 0)
			continue;
		if (!rb_verbs_link_say(vb, &peer->links[i], &head, NULL, 0) || peer->lost)
			return false;
		flight->marked |= (uint8_t)(1u << i);
	}
	return true;
}

/* ---- The receiver ---- */

static struct rb_verbs_shared *shared_of(struct rb_verbs *vb, struct rb_verbs_peer *peer,
					 uint64_t id)
{
	struct rb_verbs_shared *shared = peer->shared;

	while (shared != NULL && shared->id != id)
		shared = shared->next;
	if (shared != NULL)
		return shared;
	if (peer->waiting >= RB_VERBS_WAITING_MAX) {
		rb_verbs_wrong(vb, peer->rank, "too many messages without an end");
		return NULL;
	}
	shared = calloc(1, sizeof(*shared));
	if (shared == NULL) {
		rb_verbs_lose(vb, peer->rank, "no memory for the end of a message from it");
		return NULL;
	}
	shared->id = id;
	shared->next = peer->shared;
	peer->shared = shared;
	peer->waiting++;
	return shared;
}

static bool is_whole(const struct rb_verbs_shared *shared)
{
	return shared->ended && (shared->head.rails & ~shared->have) == 0;
}

static void shared_free(struct rb_verbs_peer *peer, struct rb_verbs_shared *shared)
{
	struct rb_verbs_shared **at = &peer->shared;

	while (*at != shared)
		at = &(*at)->next;
	*at = shared->next;
	peer->waiting--;
	free(shared);
}

void rb_verbs_mark_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			   const struct rb_verbs_head *head)
{
	struct rb_verbs_shared *shared;
	struct rb_verbs_head end;

	if (head->rails == 0 || (head->rails & (head->rails - 1)) != 0 ||
	    head->rails >> peer->link_count != 0) {
		rb_verbs_wrong(vb, peer->rank, "it speaks of a rail that is not there");
		return;
	}
	shared = shared_of(vb, peer, head->id);
	if (shared == NULL)
		return;
	shared->have |= head->rails;
	if (!is_whole(shared))
		return;
	end = shared->head;
	shared_free(peer, shared);
	rb_verbs_end_take(vb, peer->rank, &end);
	if (peer->leaving && !peer->lost && !rb_verbs_ends_wait(peer))
		rb_verbs_leave(vb, peer->rank);
}

bool rb_verbs_end_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  const struct rb_verbs_head *head)
{
	struct rb_verbs_shared *shared;

	if (head->rails == 0)
		return true;
	if (head->rails >> peer->link_count != 0) {
		rb_verbs_wrong(vb, peer->rank, "it speaks of a rail that is not there");
		return false;
	}
	shared = shared_of(vb, peer, head->size_bytes);
	if (shared == NULL)
		return false;
	shared->ended = true;
	shared->head = *head;
	if (!is_whole(shared))
		return false;
	shared_free(peer, shared);
	return true;
}

bool rb_verbs_ends_wait(const struct rb_verbs_peer *peer)
{
	for (const struct rb_verbs_shared *s = peer->shared; s != NULL; s = s->next)
		if (s->ended)
			return true;
	return false;
}

void rb_verbs_shared_drop(struct rb_verbs_peer *peer)
{
	while (peer->shared != NULL)
		shared_free(peer, peer->shared);
}
