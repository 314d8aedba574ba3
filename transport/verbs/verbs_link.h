/*
 * verbs_link.h -- links that fail, and rise again: verbs_link.c.
 */
#ifndef RB_TRANSPORT_VERBS_LINK_H
#define RB_TRANSPORT_VERBS_LINK_H

#include "transport/verbs/verbs.h"

/* The link has failed: what it owes is done again elsewhere, over TCP if it was the last one;
 * where there is none, the peer is lost for this reason. */
void rb_verbs_link_fail(struct rb_verbs *vb, struct rb_verbs_link *link, const char *reason);
/* By what a completion said. */
void rb_verbs_link_fail_by(struct rb_verbs *vb, struct rb_verbs_link *link, const char *what,
			   const struct ibv_wc *wc);
/* All links of a rail, where there are others: its port is down; or its device has failed, and the
 * last ones of peers fail as well. */
void rb_verbs_rail_fail(struct rb_verbs *vb, struct rb_verbs_rail *rail, const char *what);
/* Its port is active again. */
void rb_verbs_rail_rise(struct rb_verbs *vb, struct rb_verbs_rail *rail);
/* Whatever can go on of a peer's links that are not live. */
void rb_verbs_links_step(struct rb_verbs *vb, struct rb_verbs_peer *peer);
void rb_verbs_link_tick(struct rb_verbs *vb, struct rb_verbs_link *link, bool ask);
/* RESUME, RISE. */
void rb_verbs_resume_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			     const struct rb_verbs_head *head);
void rb_verbs_rise_arrived(struct rb_verbs *vb, struct rb_verbs_peer *peer, const void *payload,
			   size_t bytes);
/* Of a peer that is lost: its links are in error; nothing is done again. */
void rb_verbs_links_end(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* Whether a way to it is being mended, which the progress thread has to know. */
void rb_verbs_mends(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* While connecting, a peer that has not greeted by a rail; verbs_connect.c. */
void rb_verbs_gave_up(struct rb_verbs *vb, struct rb_verbs_peer *peer);
/* All that was posted to it has ended, with its queue pair. */
void rb_verbs_link_close(struct rb_verbs *vb, struct rb_verbs_link *link);

#endif
