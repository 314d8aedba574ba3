/* identity.h -- the element that changes nothing in a reduction: for who brings nothing to it. */
#ifndef RB_COLLECTIVES_REDUCE_IDENTITY_H
#define RB_COLLECTIVES_REDUCE_IDENTITY_H

#include <stdint.h>

#include "base/status.h"

/* Writes `count` elements: 0 for SUM and AVG, 1 for PROD, the type's least value (floats: -inf) for
 * MAX, its greatest for MIN. */
void rb_reduce_identity(rubato_type type, rubato_operator op, void *to, uint64_t count);

#endif
