/* peers_inside.h -- what peers.c, peer_start.c and peer_stop.c share. */
#ifndef TOOLS_PEERS_INSIDE_H
#define TOOLS_PEERS_INSIDE_H

#include "tools/bench/peers.h"

/* peer->why_not, with its name before. */
void peer_why(struct peer *peer, const char *text);

/* Starts its program, whose ranks will connect to the socket. false: peer->why_not says why. */
bool peer_start(struct peer *peer, const struct peer_place *place, const char *socket_path);

/* Once all ranks are there: their processes sleep from now on but between peer_go and peer_stop,
 * whatever threads they have. A helper wakes them when we have gone. false: why_not. */
bool peer_hold(struct peer *peer);
void peer_go(struct peer *peer);
bool peer_stop(struct peer *peer);
/* They run on, without a helper. */
void peer_free(struct peer *peer);

#endif
