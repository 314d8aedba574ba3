/*
 * verbs_link.c -- links that fail, what is done again of theirs, and links that rise again.
 *
 *   MAKING --HELLO--> LIVE --fails--> DRAINING --all ended--> COMPARING --both have said--> DOWN
 *      ^                                                                                     |
 *      `--------------------------- the port is active: the next life -----------------------'
 *
 * The two ends of a link need not see its failure at the same time: who hears RESUME of a link that
 * lives here lets it fail. Each life of a link has a number, and RESUME and RISE name it: what
 * speaks of an earlier life is late, and who hears of the next one's end, of which he had no
 * beginning, has nothing of it. Both go over the main link, and if that fails before they are
 * known to be taken they are said again once it has ended: two links may wait for each other. So
 * the end of the next life may be heard of before that of this one.
 *
 * Over TCP, where no link is live, both go there.
 *
 * A request that a device refused is not asked of another one for ever: an entry that failed by
 * itself a few times, or that says that it is wrong, is the end of the peer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_posts.h"
#include "transport/verbs/verbs_spare.h"

#define PROBE_TICKS_MAX 20 /* Without an answer of its device, which gives up earlier. */
#define DRAIN_TICKS 2      /* Then its queue pair goes, with what was left. */
#define MAKING_TICKS 3
#define REST_MAX 16

/* ---- Failing ---- */

static uint8_t bit_of(const struct rb_verbs_link *link)
{
	return (uint8_t)(1u << link->index);
}

static bool is_last(const struct rb_verbs *vb, const struct rb_verbs_link *link)
{
	const struct rb_verbs_peer *peer = link->peer;

	for (uint32_t i = 0; i < peer->link_count; i++)
		if (i != link->index &&
		    (rb_verbs_is_live(&peer->links[i]) ||
		     (vb->connecting && peer->links[i].state == RB_VERBS_LINK_MAKING)))
			return false;
	return true;
}

static void main_choose(struct rb_verbs_peer *peer)
{
	for (uint8_t i = 0; i < peer->link_count; i++)
		if (rb_verbs_is_live(&peer->links[i])) {
			peer->main = &peer->links[i];
			return;
		}
}

/* Else what it sent there might be overtaken. */
static void main_keep(struct rb_verbs_peer *peer)
{
	if (!rb_verbs_is_live(rb_verbs_main(peer)))
		main_choose(peer);
}

/* The first one that a rail loses is said; who is through with the peer has no use for it. */
static void lament(struct rb_verbs *vb, struct rb_verbs_link *link, const char *reason)
{
	struct rb_verbs_rail *rail = link->rail;
	bool says = rail->links_lost == 0 && !link->peer->parted;
	enum rb_log_level level = says ? RB_LOG_WARN : RB_LOG_DEBUG;

	if (link->lamented)
		return;
	link->lamented = true;
	rail->links_lost++;
	vb->counts.failed++;
	RB_LOG(level, "%s; degraded: %u of %u rails left to rank %u", reason, link->peer->live,
	       link->peer->link_count, link->peer->rank);
}

/* The peer was told goodbye, has that and all that it waits for, and may have gone. */
static bool is_of_no_matter(const struct rb_verbs *vb, const struct rb_verbs_peer *peer)
{
	if (!peer->parted || peer->out_first != NULL || peer->redo != NULL || peer->words != NULL ||
	    peer->held_by > 0)
		return false;
	for (uint32_t i = 0; i < peer->link_count; i++) {
		const struct rb_verbs_link *link = &peer->links[i];

		for (uint32_t n = link->retired; n != link->posted; n++) {
			uint8_t message = rb_verbs_entry_at(vb, link, n)->message;

			if (message == RB_VERBS_MARK || rb_verbs_is_numbered(message))
				return false;
		}
	}
	return true;
}

void rb_verbs_link_fail(struct rb_verbs *vb, struct rb_verbs_link *link, const char *reason)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct rb_verbs_peer *peer = link->peer;
	bool last = is_last(vb, link), lived = rb_verbs_is_live(link);

	if (peer->lost ||
	    (link->state != RB_VERBS_LINK_LIVE && link->state != RB_VERBS_LINK_MAKING))
		return;
	if (last && !peer->by_tcp && !rb_verbs_spare_can(vb, peer)) {
		rb_verbs_lose(vb, peer->rank, reason);
		return;
	}
	rb_verbs_chain_drop(vb, link);
	rb_verbs_unfold(vb, link);
	peer->live -= lived;
	rb_verbs_amiss(peer);
	if (is_of_no_matter(vb, peer)) {
		rb_verbs_link_close(vb, link);
		link->state = RB_VERBS_LINK_DOWN;
		rb_verbs_retire(vb, link, link->posted);
		main_keep(peer);
		return;
	}
	if (last && !peer->by_tcp && !rb_verbs_spare_begin(vb, peer, reason)) {
		rb_verbs_lose(vb, peer->rank, "no memory for what goes to it over TCP");
		return;
	}
	if (lived || vb->connecting)
		lament(vb, link, reason);
	link->state = RB_VERBS_LINK_DRAINING;
	link->ticks = 0;
	link->probing = link->ask = link->greet_owed = false;
	link->holds = lived && link == peer->main;
	peer->held_by += link->holds;
	main_keep(peer);
	if (link->qp != NULL && vb->api.ibv_modify_qp(link->qp, &attr, IBV_QP_STATE) == 0)
		rb_verbs_drain_mark(link);
	/* If it is the peer that has gone the others tell at the same time. */
	for (uint32_t i = 0; i < peer->link_count; i++)
		peer->links[i].ask = rb_verbs_is_live(&peer->links[i]);
	rb_verbs_spare_stay(vb, peer);
	rb_verbs_trouble(peer);
	rb_verbs_stir(vb, peer);
}

/* It says that what was asked is wrong, and would be on any rail. */
static bool is_refusal(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return true;
	default:
		return false;
	}
}

void rb_verbs_link_fail_by(struct rb_verbs *vb, struct rb_verbs_link *link, const char *what,
			   const struct ibv_wc *wc)
{
	const struct rb_verbs_port *port = &link->rail->port;
	char reason[RB_VERBS_REASON_BYTES];

	if (rb_verbs_lose_ended(vb, link->peer->rank))
		return;
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: %s: %s (%d)", port->device,
		       port->number, what, vb->api.ibv_wc_status_str(wc->status), (int)wc->status);
	if (is_refusal(wc->status) && link->refused == 0)
		rb_verbs_lose(vb, link->peer->rank, reason);
	else
		rb_verbs_link_fail(vb, link, reason);
}

void rb_verbs_rail_fail(struct rb_verbs *vb, struct rb_verbs_rail *rail, const char *what)
{
	char reason[RB_VERBS_REASON_BYTES];

	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];
		struct rb_verbs_link *link;

		if (rail->index >= peer->link_count)
			continue;
		link = &peer->links[rail->index];
		(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: %s: no way to rank %u",
			       rail->port.device, rail->port.number, what, r);
		/* The last one may be back in time: what is sent tells. */
		if (rail->dead || !is_last(vb, link) || rb_verbs_spare_can(vb, peer))
			rb_verbs_link_fail(vb, link, reason);
		if (peer->troubled)
			rb_verbs_stir(vb, peer);
	}
}

/* ---- Comparing ---- */

void rb_verbs_link_close(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	rb_verbs_chain_drop(vb, link);
	rb_verbs_qp_drop(vb, link->qp);
	link->qp = NULL;
	link->sent_as = link->received_as = RB_VERBS_NOTHING; /* Whatever is still told of it. */
	rb_verbs_cm_drop(vb, link);
	link->receives = 0;
	link->ended = link->posted - link->unposted;
}

static bool has_ended(const struct rb_verbs_link *link)
{
	uint32_t posted = link->posted - link->unposted;

	return link->receives == 0 && (link->retired == posted || link->ended == posted);
}

static bool speaks_of_links(const struct rb_verbs_entry *entry)
{
	return entry->message == RB_VERBS_RESUME || entry->message == RB_VERBS_RISE;
}

/* To be compared: speech of links is on its way already. */
static bool is_worth_it(const struct rb_verbs_entry *entry)
{
	return entry->message != 0
		       ? entry->message != RB_VERBS_CREDIT && entry->message != RB_VERBS_HELLO &&
				 !speaks_of_links(entry)
		       : entry->flight != 0;
}

/* Of a link that has ended. Two links may wait for what either was to bring of the other, so that
 * is said again, whether or not it has come: what comes twice is late. */
static void words_take(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;
	struct rb_verbs_redo **at = &peer->words;

	while (*at != NULL)
		at = &(*at)->next;
	for (uint32_t n = link->retired; n != link->posted; n++) {
		struct rb_verbs_entry *entry = rb_verbs_entry_at(vb, link, n);
		struct rb_verbs_redo *redo;

		if (!speaks_of_links(entry))
			continue;
		redo = malloc(sizeof(*redo));
		if (redo == NULL) {
			rb_verbs_lose(vb, peer->rank, "no memory for what a failed link owed it");
			return;
		}
		*redo = (struct rb_verbs_redo) { .entry = *entry };
		entry->slot = NULL;
		*at = redo;
		at = &redo->next;
	}
}

/* What the other end did not take is done again, before all that is to be done again already: that
 * had waited for it. False: the peer is lost. */
static bool leave_to_others(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;
	struct rb_verbs_redo *rest = peer->redo, **at = &peer->redo;

	for (uint32_t n = link->retired; n != link->posted; n++) {
		struct rb_verbs_entry *entry = rb_verbs_entry_at(vb, link, n);
		struct rb_verbs_redo *redo;

		if (!is_worth_it(entry)) {
			rb_verbs_slot_give(vb, entry->slot);
			entry->slot = NULL;
			continue;
		}
		redo = malloc(sizeof(*redo));
		if (redo == NULL) {
			*at = rest;
			rb_verbs_lose(vb, peer->rank, "no memory for what a failed link owed it");
			return false;
		}
		redo->entry = *entry;
		entry->slot = NULL;
		*at = redo;
		at = &redo->next;
	}
	*at = rest;
	link->retired = link->posted;
	return true;
}

static void flights_tell(struct rb_verbs *vb, const struct rb_verbs_link *link)
{
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used && flight->request->peer == link->peer->rank)
			flight->rails &= (uint8_t)~bit_of(link);
	}
}

/* Its next life, of which the other end has said how it ended: here it had no beginning. */
static void adopt(struct rb_verbs *vb, struct rb_verbs_link *link, uint32_t their_taken)
{
	link->life++;
	link->state = RB_VERBS_LINK_COMPARING;
	link->sent = link->taken = RB_VERBS_COUNTS_FROM;
	link->retired = link->ended = link->posted;
	link->unposted = 0;
	link->resume_owed = link->resumed = true;
	link->their_taken = their_taken;
	link->early = false;
	rb_verbs_trouble(link->peer);
	rb_verbs_stir(vb, link->peer);
}

/* Of each key that it has taken back, a write may be refused once a rail. Else the peer is lost. */
static bool is_borne(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;
	char reason[RB_VERBS_REASON_BYTES];
	uint32_t bytes = link->refused;

	link->refused = 0;
	if (bytes == 0 || peer->borne < link->their_revoked * peer->link_count) {
		peer->borne += bytes != 0;
		return true;
	}
	(void)snprintf(reason, sizeof(reason),
		       "verbs: %s port %u: RDMA write of %u bytes to rank %u: %s (%d)",
		       link->rail->port.device, link->rail->port.number, bytes, peer->rank,
		       vb->api.ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR),
		       (int)IBV_WC_REM_ACCESS_ERR);
	rb_verbs_lose(vb, peer->rank, reason);
	return false;
}

/* Both ends know what the other one has taken. */
static void compare(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;
	uint32_t sends = 0, taken, n;
	char reason[RB_VERBS_REASON_BYTES];

	if (!is_borne(vb, link))
		return;
	for (n = link->retired; n != link->posted; n++)
		sends += rb_verbs_entry_at(vb, link, n)->message != 0;
	taken = link->their_taken - (link->sent - sends);
	if (taken > sends) {
		(void)snprintf(reason, sizeof(reason),
			       "verbs: %s port %u: rank %u has not got what its device "
			       "acknowledged",
			       link->rail->port.device, link->rail->port.number, peer->rank);
		rb_verbs_lose(vb, peer->rank, reason);
		return;
	}
	for (n = link->retired; taken > 0; n++)
		taken -= rb_verbs_entry_at(vb, link, n)->message != 0;
	rb_verbs_retire(vb, link, n);
	if (!leave_to_others(vb, link))
		return;
	flights_tell(vb, link);
	peer->held_by -= link->holds;
	link->holds = false;
	link->state = RB_VERBS_LINK_DOWN;
	RB_LOG(RB_LOG_DEBUG, "verbs: the link to rank %u by %s port %u is compared", peer->rank,
	       link->rail->port.device, link->rail->port.number);
	if (link->early)
		adopt(vb, link, link->early_taken);
}

void rb_verbs_resume_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			     const struct rb_verbs_head *head)
{
	uint32_t life = (uint32_t)head->id;
	char reason[RB_VERBS_REASON_BYTES];
	struct rb_verbs_link *link;

	if (head->rails >= peer->link_count) {
		rb_verbs_wrong(vb, peer->rank, "it speaks of a rail that is not there");
		return;
	}
	link = &peer->links[head->rails];
	if (link->state == RB_VERBS_LINK_DOWN && life == link->life + 1) {
		adopt(vb, link, (uint32_t)head->size_bytes);
		return;
	}
	if (link->state == RB_VERBS_LINK_COMPARING && life == link->life + 1) {
		link->early = true; /* What was said of this life is yet to be said again. */
		link->early_taken = (uint32_t)head->size_bytes;
		return;
	}
	if (life != link->life || link->state == RB_VERBS_LINK_DOWN || link->resumed)
		return; /* It is late. */
	link->resumed = true;
	link->their_taken = (uint32_t)head->size_bytes;
	link->their_revoked = (uint32_t)head->tag.step;
	(void)snprintf(reason, sizeof(reason), "verbs: %s port %u: rank %u's end has failed",
		       link->rail->port.device, link->rail->port.number, peer->rank);
	rb_verbs_link_fail(vb, link, reason);
	rb_verbs_trouble(peer);
	rb_verbs_stir(vb, peer);
}

/* ---- Rising ---- */

static void rise(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;

	if (link->state != RB_VERBS_LINK_DOWN || peer->lost || peer->parted ||
	    (peer->live == 0 && !peer->by_tcp) || link->rail->dead ||
	    !rb_verbs_is_active(vb, link->rail))
		return;
	link->rest = link->rest_next;
	link->rest_next = 2 * link->rest_next < REST_MAX ? 2 * link->rest_next : REST_MAX;
	link->life++;
	link->attempt = 0;
	if (rb_verbs_link_make(vb, link) != RUBATO_OK) {
		rb_verbs_link_close(vb, link);
		link->state = RB_VERBS_LINK_DOWN;
		link->life--; /* Of which nobody has heard. */
		return;
	}
	link->greet_owed = link->state == RB_VERBS_LINK_MAKING;
	rb_verbs_trouble(peer);
	rb_verbs_stir(vb, peer);
}

void rb_verbs_rail_rise(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		if (rail->index < vb->peers[r].link_count)
			rise(vb, &vb->peers[r].links[rail->index]);
}

void rb_verbs_rise_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer, const void *payload,
			   size_t bytes)
{
	struct rb_verbs_greeting theirs;
	struct rb_verbs_link *link = rb_verbs_greeting_of(vb, payload, bytes, &theirs);

	if (link == NULL || link->peer != peer) {
		rb_verbs_wrong(vb, peer->rank, "it makes a link that is none");
		return;
	}
	if (theirs.life == link->life + 1)
		rise(vb, link);
	link->greet_owed |= rb_verbs_heard(vb, link, &theirs);
	rb_verbs_trouble(peer);
	rb_verbs_stir(vb, peer);
}

void rb_verbs_link_lives(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;
	struct rb_verbs_rail *rail = link->rail;

	link->state = RB_VERBS_LINK_LIVE;
	link->ticks = 0;
	peer->live++;
	rb_verbs_spare_end(vb, peer);
	/* Until the stream has begun it may begin anywhere; its count comes round again. */
	if (!rb_verbs_is_live(rb_verbs_main(peer)) ||
	    (vb->connecting && peer->number == RB_VERBS_COUNTS_FROM))
		main_choose(peer);
	rb_verbs_stir(vb, peer);
	if (!link->lamented)
		return;
	link->lamented = false;
	vb->counts.risen++;
	if (--rail->links_lost == 0)
		RB_LOG(RB_LOG_WARN, "verbs: %s port %u is back: %u of %u rails to rank %u",
		       rail->port.device, rail->port.number, peer->live, peer->link_count,
		       peer->rank);
}

/* ---- Going on ---- */

static bool say_over_main(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			  const struct rb_verbs_head *head, const void *payload, size_t bytes)
{
	struct rb_verbs_link *main = rb_verbs_main(peer);

	if (peer->by_tcp)
		return rb_verbs_spare_say(vb, peer, head, payload, bytes);
	return rb_verbs_is_live(main) && rb_verbs_has_room(main) &&
	       rb_verbs_link_say(vb, main, head, payload, bytes);
}

static void step(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_peer *peer = link->peer;

	if (link->state == RB_VERBS_LINK_DRAINING && (has_ended(link) || link->rail->dead)) {
		rb_verbs_link_close(vb, link);
		link->state = RB_VERBS_LINK_COMPARING;
		link->resume_owed = true;
		words_take(vb, link);
		if (peer->lost)
			return;
	}
	if (link->resume_owed) {
		struct rb_verbs_head head = { .message = RB_VERBS_RESUME,
					      .rails = link->index,
					      .tag = { .step = peer->revoked },
					      .size_bytes = link->taken,
					      .id = link->life };

		link->resume_owed = !say_over_main(vb, peer, &head, NULL, 0);
	}
	if (link->state == RB_VERBS_LINK_COMPARING && !link->resume_owed && link->resumed)
		compare(vb, link);
	if (link->greet_owed && link->state == RB_VERBS_LINK_MAKING) {
		struct rb_verbs_head head = { .message = RB_VERBS_RISE };
		struct rb_verbs_greeting ours = rb_verbs_greeting_to(link);

		link->greet_owed = !say_over_main(vb, peer, &head, &ours, sizeof(ours));
	}
	if (link->ask && rb_verbs_is_live(link) && !link->probing) {
		link->probing = true;
		link->ticks = 0;
		rb_verbs_probe(vb, link);
	}
	link->ask = false;
}

void rb_verbs_links_step(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	bool troubled = false;

	for (uint32_t i = 0; i < peer->link_count && !peer->lost; i++) {
		step(vb, &peer->links[i]);
		troubled |= !rb_verbs_is_live(&peer->links[i]);
	}
	peer->troubled = troubled || peer->words != NULL;
}

/* What it was sent may be lost, and so may what it asks for: who only waits for it in another
 * communicator, or computes, would find out too late. That a rail is down is borne. */
void rb_verbs_mends(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	bool mends = peer->held_by > 0 || peer->redo != NULL || peer->words != NULL ||
		     rb_verbs_spare_mends(peer);

	for (uint32_t i = 0; i < peer->link_count; i++) {
		enum rb_verbs_link_state state = peer->links[i].state;

		mends |= state != RB_VERBS_LINK_LIVE && state != RB_VERBS_LINK_DOWN;
	}
	mends &= !peer->lost;
	vb->base.mending += (uint32_t)mends - (uint32_t)peer->mends;
	peer->mends = mends;
}

static void live_tick(struct rb_verbs *vb, struct rb_verbs_link *link, bool ask)
{
	char reason[RB_VERBS_REASON_BYTES];

	link->rest_next -= link->rest_next > 1;
	if (link->probing && ++link->ticks >= PROBE_TICKS_MAX) {
		(void)snprintf(reason, sizeof(reason),
			       "verbs: %s port %u: rank %u's device has not answered for %u s",
			       link->rail->port.device, link->rail->port.number, link->peer->rank,
			       link->ticks);
		rb_verbs_link_fail(vb, link, reason);
	} else if (ask && !link->probing) {
		link->probing = true;
		link->ticks = 0;
		rb_verbs_probe(vb, link);
	}
}

/* Its device has told the peer's that what is here has come: that must be counted. */
static void drain_end(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	(void)rb_verbs_progress(vb);
	if (link->state != RB_VERBS_LINK_DRAINING)
		return;
	vb->counts.by_clock++;
	rb_verbs_link_close(vb, link);
	rb_verbs_stir(vb, link->peer);
}

void rb_verbs_link_tick(struct rb_verbs *vb, struct rb_verbs_link *link, bool ask)
{
	switch (link->state) {
	case RB_VERBS_LINK_MAKING:
		if (!vb->connecting && ++link->ticks >= MAKING_TICKS)
			rb_verbs_link_fail(vb, link, "verbs: a link did not come back");
		break;
	case RB_VERBS_LINK_LIVE:
		live_tick(vb, link, ask);
		break;
	case RB_VERBS_LINK_DRAINING:
		if (++link->ticks >= DRAIN_TICKS)
			drain_end(vb, link);
		break;
	case RB_VERBS_LINK_COMPARING:
		break;
	case RB_VERBS_LINK_DOWN:
		if (link->rest > 0)
			link->rest--;
		else
			rise(vb, link);
		break;
	}
}

/* ---- The end ---- */

static void redo_drop(struct rb_verbs *vb, struct rb_verbs_redo **list)
{
	while (*list != NULL) {
		struct rb_verbs_redo *redo = *list;

		*list = redo->next;
		rb_verbs_slot_give(vb, redo->entry.slot);
		free(redo);
	}
}

void rb_verbs_links_end(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	for (uint32_t i = 0; i < peer->link_count; i++) {
		struct rb_verbs_link *link = &peer->links[i];

		rb_verbs_chain_drop(vb, link);
		if (link->qp != NULL)
			(void)vb->api.ibv_modify_qp(link->qp, &attr, IBV_QP_STATE);
		link->state = RB_VERBS_LINK_DOWN;
		if (link->broken || link->qp == NULL) /* What the device still has follows. */
			rb_verbs_retire(vb, link, link->ended);
		link->rail->links_lost -= link->lamented;
		link->lamented = false;
	}
	peer->live = 0;
	rb_verbs_spare_shut(vb, peer);
	redo_drop(vb, &peer->redo);
	redo_drop(vb, &peer->words);
	vb->base.mending -= peer->mends;
	peer->mends = false;
}
