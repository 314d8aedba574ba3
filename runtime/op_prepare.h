/*
 * op_prepare.h -- from arguments to plans: which algorithm, which schedule, which scratch.
 *
 * Choosing and planning take longer than a small operation, so that both are remembered: choices by
 * count, plans by signature, and what a call came to as a whole.
 */
#ifndef RB_RUNTIME_OP_PREPARE_H
#define RB_RUNTIME_OP_PREPARE_H

#include "runtime/op.h"

/* Checks the arguments, chooses, plans. The op must be zeroed but for what a former use left. */
RB_NODISCARD rubato_status rb_op_prepare(struct rubato_op *op);
/* Likewise, of an allreduce that is helped (op->helped): by two_shot_late, whoever will be late. */
RB_NODISCARD rubato_status rb_op_prepare_late(struct rubato_op *op);
/* Of such a one: plan, scratch and run are for this late rank. Not in flight. */
RB_NODISCARD rubato_status rb_op_plan_late(struct rubato_op *op, uint32_t late);
/* What is chosen where puts do not reach all buffers, and nobody knows whose are mapped. */
RB_NODISCARD rubato_status rb_choose_without_puts(const struct rb_choice_facts *facts,
						  enum rb_kind kind, uint64_t count,
						  uint32_t element_bytes, struct rb_choice *choice);
/* Plan, scratch and run become that one's. Not in flight; on all ranks. */
RB_NODISCARD rubato_status rb_op_plan_without_puts(struct rubato_op *op);
/* Likewise, by pairs: where those of op->exchange.apart are. This rank's own affair. */
RB_NODISCARD rubato_status rb_op_plan_apart(struct rubato_op *op);
/* Forgets all choices: they are made anew. */
void rb_choices_forget(struct rubato_comm *comm);

/* ---- What calls came to ---- */

/* All that distinguishes a call from another, but for its count and its blocks. */
static inline uint64_t rb_prepared_what(enum rb_kind kind, enum rb_kind named, rubato_type type,
					rubato_operator op, uint32_t root, bool in_place)
{
	return (uint64_t)root << 32 | (uint64_t)kind << 24 | (uint64_t)named << 16 |
	       (uint64_t)type << 9 | (uint64_t)op << 1 | in_place;
}

_Static_assert(RUBATO_TYPE_COUNT < 128 && RUBATO_OPERATOR_COUNT < 256 && RB_KIND_COUNT < 256,
	       "the bits of rb_prepared_what");

/* Where such a call has its place; NULL: it is none of those that are kept. */
static inline struct rb_prepared *rb_prepared_place(struct rubato_comm *comm, enum rb_kind kind,
						    rubato_type type, rubato_operator op,
						    uint64_t count, const struct rb_shape *shape,
						    uint64_t what)
{
	uint64_t hash;

	if (rb_kind_uneven(kind)) {
		if (shape->counts == NULL ||
		    (kind == RB_KIND_ALLTOALLV && shape->out_counts == NULL))
			return NULL;
		/* Where blocks change from call to call, these do. */
		count = shape->counts[0] + 3 * shape->counts[comm->engine.rank_count - 1];
	}
	hash = count * 0x9e3779b97f4a7c15u + what;
	if (kind == RB_KIND_SENDRECV || (unsigned)type >= RUBATO_TYPE_COUNT ||
	    (unsigned)op >= RUBATO_OPERATOR_COUNT || comm->converts)
		return NULL;
	return &comm->prepared[(hash * 0xbf58476d1ce4e5b9u) >> 58 & (RB_MEMO_COUNT - 1)];
}

static inline bool rb_prepared_fits(const struct rb_prepared *p, const struct rubato_comm *comm,
				    const void *in, const void *out, uint64_t count,
				    const struct rb_shape *shape, uint64_t what)
{
	return p->count == count && p->what == what && p->plan != NULL &&
	       p->evictions == comm->plans.cache.evictions && (p->in_bytes == 0 || in != NULL) &&
	       (p->out_bytes == 0 || out != NULL) &&
	       (!p->uneven || rb_plan_has_blocks(p->plan, shape));
}

#endif
