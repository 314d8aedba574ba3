/*
 * verbs_large.h -- messages that are announced and invited: verbs_large.c.
 */
#ifndef RB_TRANSPORT_VERBS_LARGE_H
#define RB_TRANSPORT_VERBS_LARGE_H

#include "transport/verbs/verbs.h"

/* A send serves the invitation of its tag. False: there is none. */
bool rb_verbs_serve(struct rb_verbs *vb, struct rb_request *send);
void rb_verbs_announce(struct rb_verbs *vb, struct rb_request *send);
/* A receive in the matcher invites its message, if it is one of those. */
void rb_verbs_invite(struct rb_verbs *vb, struct rb_request *receive);
/* A receive, which is not in the matcher, meets the announced message that is the sender's flight
 * `id`. */
void rb_verbs_meet(struct rb_verbs *vb, struct rb_request *receive, uint64_t id,
		   const struct rb_signature *signature, uint64_t size_bytes);
/* One of ANNOUNCE to KEPT. */
void rb_verbs_large_arrived(struct rb_verbs *vb, uint32_t peer, const struct rb_verbs_head *head,
			    const uint8_t *payload);
/* A receive that has invited is met by what it did not invite: it ends with MISMATCH. */
void rb_verbs_revoke(struct rb_verbs *vb, struct rb_request *receive);
void rb_verbs_invites_drop(struct rb_verbs *vb, uint32_t peer);
void rb_verbs_invites_free(struct rb_verbs *vb);

#endif
