/* arguments.c -- see arguments.h. */
#include "runtime/arguments.h"

#include "base/limits.h"

static rubato_status too_large(const struct rubato_op *op)
{
	return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: %llu elements on %u ranks do not fit memory",
		       rb_kind_name(op->kind), (unsigned long long)op->count,
		       op->comm->engine.rank_count);
}

/* ---- Uneven blocks ---- */

/* Elements in all blocks, and from the buffer's begin to the end of the last one. */
static rubato_status side_measure(const struct rubato_op *op, const uint64_t *counts,
				  const uint64_t *offsets, uint64_t *total, uint64_t *extent)
{
	uint64_t most = RB_BUFFER_BYTES_MAX / rubato_type_bytes(op->type);

	*total = *extent = 0;
	for (uint32_t r = 0; r < op->comm->engine.rank_count; r++) {
		uint64_t start = offsets != NULL ? offsets[r] : *total;

		if (counts[r] > most || start > most - counts[r] || *total > most - counts[r])
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "%s: block %u of %llu elements does not fit memory",
				       rb_kind_name(op->kind), r, (unsigned long long)counts[r]);
		*total += counts[r];
		if (counts[r] > 0 && start + counts[r] > *extent)
			*extent = start + counts[r];
	}
	return RUBATO_OK;
}

/* In place, what goes to a rank and what comes from it have one place. */
static bool sides_same(const struct rb_shape *shape, uint32_t n)
{
	uint64_t in = 0, out = 0;

	for (uint32_t r = 0; r < n; r++) {
		if (shape->counts[r] != shape->out_counts[r] ||
		    (shape->offsets != NULL ? shape->offsets[r] : in) !=
			    (shape->out_offsets != NULL ? shape->out_offsets[r] : out))
			return false;
		in += shape->counts[r];
		out += shape->out_counts[r];
	}
	return true;
}

static rubato_status shape_measure(struct rubato_op *op)
{
	struct rb_shape *shape = &op->shape;
	uint64_t element = rubato_type_bytes(op->type), extent, out_total, out_extent;
	uint32_t rank = op->comm->engine.rank;
	bool two = op->kind == RB_KIND_ALLTOALLV;

	if (shape->counts == NULL || (two && shape->out_counts == NULL))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: counts are NULL", rb_kind_name(op->kind));
	RB_TRY(side_measure(op, shape->counts, shape->offsets, &op->count, &extent));
	op->in_bytes = op->kind == RB_KIND_ALLGATHERV ? shape->counts[rank] : extent;
	op->out_bytes = op->kind == RB_KIND_ALLGATHERV ? extent : shape->counts[rank];
	if (two) {
		RB_TRY(side_measure(op, shape->out_counts, shape->out_offsets, &out_total,
				    &out_extent));
		op->out_bytes = out_extent;
		if (shape->counts[rank] != shape->out_counts[rank])
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "alltoallv: rank %u sends itself %llu elements and expects "
				       "%llu",
				       rank, (unsigned long long)shape->counts[rank],
				       (unsigned long long)shape->out_counts[rank]);
		if (out_total > op->count)
			op->count = out_total;
		if (rb_op_in_place(op) && !sides_same(shape, op->comm->engine.rank_count))
			return RB_FAIL(RUBATO_ERR_ARGUMENT,
				       "alltoallv in place: what a rank sends to and receives "
				       "from another must lie in the same place");
	}
	op->in_bytes *= element;
	op->out_bytes *= element;
	shape->hash = rb_shape_hash(shape, op->comm->engine.rank_count);
	return RUBATO_OK;
}

/* ---- Arguments ---- */

/* What lies at IN and at OUT of this rank. */
static void extents_set(struct rubato_op *op)
{
	uint64_t part = op->count * rubato_type_bytes(op->type);
	uint64_t whole = part * op->comm->engine.rank_count;
	bool root = op->root == op->comm->engine.rank;

	op->in_bytes = op->out_bytes = part;
	switch (op->kind) {
	case RB_KIND_BROADCAST:
		op->in_bytes = 0;
		break;
	case RB_KIND_REDUCE:
		op->out_bytes = root ? part : 0;
		break;
	case RB_KIND_REDUCE_SCATTER:
		op->in_bytes = whole;
		break;
	case RB_KIND_ALLGATHER:
		op->out_bytes = whole;
		break;
	case RB_KIND_GATHER:
		op->out_bytes = root ? whole : 0;
		break;
	case RB_KIND_SCATTER:
		op->in_bytes = root ? whole : 0;
		break;
	case RB_KIND_ALLTOALL:
		op->in_bytes = op->out_bytes = whole;
		break;
	case RB_KIND_SENDRECV:
		*(op->sending ? &op->out_bytes : &op->in_bytes) = 0;
		break;
	default:
		break;
	}
}

rubato_status rb_op_check(struct rubato_op *op)
{
	uint32_t n = op->comm->engine.rank_count;
	uint64_t bytes = rubato_type_bytes(op->type);
	const char *name = rb_kind_name(op->kind);

	if (bytes == 0)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: unknown type %d", name, (int)op->type);
	if (rb_kind_reduces(op->kind) && (unsigned)op->op >= RUBATO_OPERATOR_COUNT)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: unknown operator %d", name, (int)op->op);
	if ((rb_kind_rooted(op->kind) || op->kind == RB_KIND_SENDRECV) && op->root >= n)
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: rank %u is not in a communicator of %u",
			       name, op->root, n);
	if (rb_kind_uneven(op->kind)) {
		RB_TRY(shape_measure(op));
	} else {
		if (op->count > RB_BUFFER_BYTES_MAX / bytes / n)
			return too_large(op);
		extents_set(op);
	}
	if ((op->in_bytes > 0 && op->in == NULL) || (op->out_bytes > 0 && op->out == NULL))
		return RB_FAIL(RUBATO_ERR_ARGUMENT, "%s: buffer is NULL", name);
	return RUBATO_OK;
}

/* What every rank must have in common; of an alltoallv, run.c compares the rest by pairs. */
struct rb_signature rb_op_signature(const struct rubato_op *op)
{
	struct rb_signature signature = {
		.kind = (uint8_t)(op->named != RB_KIND_NONE ? op->named : op->kind),
		.type = op->kind == RB_KIND_BARRIER ? 0xff : (uint8_t)op->type,
		.op = rb_kind_reduces(op->kind) ? (uint8_t)op->op : 0xff,
		.root = rb_kind_rooted(op->kind) ? op->root : UINT32_MAX,
		.count = op->count,
	};

	if (op->kind == RB_KIND_ALLTOALLV)
		signature.count = 0;
	else if (rb_kind_uneven(op->kind))
		signature.root = (uint32_t)op->shape.hash;
	return signature;
}
