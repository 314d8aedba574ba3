/* device_sim.h -- the simulated device of a rank, as an executor. */
#ifndef RB_RUNTIME_DEVICES_SIM_H
#define RB_RUNTIME_DEVICES_SIM_H

#include "runtime/engine/executor.h"
#include "transport/transport.h"

/* That of the rank whose endpoint this is; *out NULL: it has none. */
RB_NODISCARD rubato_status rb_device_sim_open(struct rb_endpoint *ep, struct rb_executor **out);

#endif
