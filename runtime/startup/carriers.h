/*
 * carriers.h -- which transport carries what each two ranks send each other, where several could.
 *
 * RUBATO_TRANSPORT is a list, best first. Shared memory carries all that it reaches. Of the others,
 * the networks, a pair takes the first of the list by which both ends reach each other, unless a
 * later one was found to be a tenth faster, or more: links are timed by each network when a
 * communicator is made, along a ring of groups of ranks that share memory, so what a rank does does
 * not grow with their number. A pair of two other groups goes by the worse of what both have seen;
 * so both ends come to the same, and so does everybody who looks.
 *
 * A network whose connect_some() leaves a peer out is not used between these two; what carries
 * their data instead is said as a warning.
 */
#ifndef RB_RUNTIME_CARRIERS_H
#define RB_RUNTIME_CARRIERS_H

#include "runtime/startup/bootstrap.h"
#include "transport/transport.h"

#define RB_CARRIERS_MAX 4u
#define RB_CARRIER_NONE 0xffu

/* What RUBATO_TRANSPORT names, NULL-terminated; *tcp: UCX shall use TCP alone. Errors: ARGUMENT;
 * UNSUPPORTED (not built). */
RB_NODISCARD rubato_status rb_carriers_list(const char *text,
					    const struct rb_transport_ops *out[RB_CARRIERS_MAX + 1],
					    bool *tcp);

/* Everything but shared memory. */
static inline bool rb_carrier_is_network(const struct rb_transport_ops *ops)
{
	return (ops->caps & RB_CAP_MAP) == 0;
}

/* Whether the list has several networks. */
bool rb_carriers_differ(const struct rb_transport_ops *const *transports);

struct rb_carriers {
	struct rb_bootstrap *bootstrap;
	const struct rb_transport_ops *const *transports; /* NULL-terminated; the same for all. */
	struct rb_endpoint *const *opened;                /* NULL: not on this machine. */
	/* Of peer r, for transport i. */
	const void *(*address)(void *arg, uint32_t i, uint32_t r, size_t *bytes);
	void *arg;
	bool measures;  /* Else the list alone says it. */
	uint8_t *reach; /* Per peer: bits 1 << transport. What does not hold good is taken off. */
	uint8_t *route; /* Per peer: a transport; on return the one that carries its data. */
	uint64_t deadline_ns;
};

/* Connects all networks, and chooses: collective, where several ranks have opened several. */
RB_NODISCARD rubato_status rb_carriers_choose(struct rb_carriers *c);

/* ---- For tests ---- */

/* What a group of ranks has seen of its links in the ring, by transport: a cost each. 0: it was
 * not timed; below 0: it does not work. */
struct rb_carrier_view {
	double next[RB_CARRIERS_MAX], previous[RB_CARRIERS_MAX];
};
/* Between groups `a` and `b` of the ring; views[g], group_count of them. Of the transports in
 * `reach`; RB_CARRIER_NONE: of none. */
uint8_t rb_carrier_between(const struct rb_carrier_view *views, uint32_t group_count, uint32_t a,
			   uint32_t b, uint8_t reach);

#endif
