/*
 * crossing.h -- the time of what crosses a node's link. A link may be a token bucket: after a pause
 * it lets a burst pass at once, and holds to its rate only then.
 */
#ifndef RB_COLLECTIVES_CROSSING_H
#define RB_COLLECTIVES_CROSSING_H

#include "base/link.h"

/* us a byte, in the mean, of a call that sends so many bytes over one link, which was idle. */
double rb_crossing_byte_us(const struct rb_link *link, double call_bytes);

#endif
