/* collectives.c -- the public collectives and messages: each is one call, carried out in two
 * ways. */
#include "runtime/call.h"

static struct rb_call allreduce(const void *in, void *out, uint64_t count, rubato_type type,
				rubato_operator op)
{
	return (struct rb_call) { RB_KIND_ALLREDUCE, in, out, count, type, op, .root = 0 };
}

rubato_status rubato_allreduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, rubato_operator op)
{
	const struct rb_call call = allreduce(in, out, count, type, op);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_allreduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
				  rubato_type type, rubato_operator op, rubato_op **operation)
{
	const struct rb_call call = allreduce(in, out, count, type, op);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call reduce(const void *in, void *out, uint64_t count, rubato_type type,
			     rubato_operator op, uint32_t root)
{
	return (struct rb_call) { RB_KIND_REDUCE, in, out, count, type, op, .root = root };
}

rubato_status rubato_reduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			    rubato_type type, rubato_operator op, uint32_t root)
{
	const struct rb_call call = reduce(in, out, count, type, op, root);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_reduce(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, rubato_operator op, uint32_t root,
			       rubato_op **operation)
{
	const struct rb_call call = reduce(in, out, count, type, op, root);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call reduce_scatter(const void *in, void *out, uint64_t count, rubato_type type,
				     rubato_operator op)
{
	return (struct rb_call) { RB_KIND_REDUCE_SCATTER, in, out, count, type, op, .root = 0 };
}

rubato_status rubato_reduce_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				    rubato_type type, rubato_operator op)
{
	const struct rb_call call = reduce_scatter(in, out, count, type, op);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_reduce_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				       rubato_type type, rubato_operator op, rubato_op **operation)
{
	const struct rb_call call = reduce_scatter(in, out, count, type, op);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call allgather(const void *in, void *out, uint64_t count, rubato_type type)
{
	return (struct rb_call) { RB_KIND_ALLGATHER, in, out, count, type, RUBATO_SUM, .root = 0 };
}

rubato_status rubato_allgather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type)
{
	const struct rb_call call = allgather(in, out, count, type);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_allgather(rubato_comm *comm, const void *in, void *out, uint64_t count,
				  rubato_type type, rubato_op **operation)
{
	const struct rb_call call = allgather(in, out, count, type);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call broadcast(void *buffer, uint64_t count, rubato_type type, uint32_t root)
{
	return (struct rb_call) { RB_KIND_BROADCAST, buffer,      buffer, count, type,
				  RUBATO_SUM,        .root = root };
}

rubato_status rubato_broadcast(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			       uint32_t root)
{
	const struct rb_call call = broadcast(buffer, count, type, root);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_broadcast(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
				  uint32_t root, rubato_op **operation)
{
	const struct rb_call call = broadcast(buffer, count, type, root);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call alltoall(const void *in, void *out, uint64_t count, rubato_type type)
{
	return (struct rb_call) { RB_KIND_ALLTOALL, in, out, count, type, RUBATO_SUM, .root = 0 };
}

rubato_status rubato_alltoall(rubato_comm *comm, const void *in, void *out, uint64_t count,
			      rubato_type type)
{
	const struct rb_call call = alltoall(in, out, count, type);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_alltoall(rubato_comm *comm, const void *in, void *out, uint64_t count,
				 rubato_type type, rubato_op **operation)
{
	const struct rb_call call = alltoall(in, out, count, type);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call gather(const void *in, void *out, uint64_t count, rubato_type type,
			     uint32_t root)
{
	return (struct rb_call) { RB_KIND_GATHER, in, out, count, type, RUBATO_SUM, .root = root };
}

rubato_status rubato_gather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			    rubato_type type, uint32_t root)
{
	const struct rb_call call = gather(in, out, count, type, root);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_gather(rubato_comm *comm, const void *in, void *out, uint64_t count,
			       rubato_type type, uint32_t root, rubato_op **operation)
{
	const struct rb_call call = gather(in, out, count, type, root);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call scatter(const void *in, void *out, uint64_t count, rubato_type type,
			      uint32_t root)
{
	return (struct rb_call) { RB_KIND_SCATTER, in, out, count, type, RUBATO_SUM, .root = root };
}

rubato_status rubato_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
			     rubato_type type, uint32_t root)
{
	const struct rb_call call = scatter(in, out, count, type, root);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_scatter(rubato_comm *comm, const void *in, void *out, uint64_t count,
				rubato_type type, uint32_t root, rubato_op **operation)
{
	const struct rb_call call = scatter(in, out, count, type, root);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call allgatherv(const void *in, void *out, const struct rb_shape *shape,
				 rubato_type type)
{
	return (struct rb_call) {
		RB_KIND_ALLGATHERV, in, out, 0, type, RUBATO_SUM, .shape = shape
	};
}

rubato_status rubato_allgatherv(rubato_comm *comm, const void *in, void *out,
				const uint64_t *counts, const uint64_t *offsets, rubato_type type)
{
	const struct rb_shape shape = { .counts = counts, .offsets = offsets };
	const struct rb_call call = allgatherv(in, out, &shape, type);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_allgatherv(rubato_comm *comm, const void *in, void *out,
				   const uint64_t *counts, const uint64_t *offsets,
				   rubato_type type, rubato_op **operation)
{
	const struct rb_shape shape = { .counts = counts, .offsets = offsets };
	const struct rb_call call = allgatherv(in, out, &shape, type);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call reduce_scatterv(const void *in, void *out, const struct rb_shape *shape,
				      rubato_type type, rubato_operator op)
{
	return (struct rb_call) { RB_KIND_REDUCE_SCATTERV, in, out, 0, type, op, .shape = shape };
}

rubato_status rubato_reduce_scatterv(rubato_comm *comm, const void *in, void *out,
				     const uint64_t *counts, const uint64_t *offsets,
				     rubato_type type, rubato_operator op)
{
	const struct rb_shape shape = { .counts = counts, .offsets = offsets };
	const struct rb_call call = reduce_scatterv(in, out, &shape, type, op);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_reduce_scatterv(rubato_comm *comm, const void *in, void *out,
					const uint64_t *counts, const uint64_t *offsets,
					rubato_type type, rubato_operator op, rubato_op **operation)
{
	const struct rb_shape shape = { .counts = counts, .offsets = offsets };
	const struct rb_call call = reduce_scatterv(in, out, &shape, type, op);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call alltoallv(const void *in, void *out, const struct rb_shape *shape,
				rubato_type type)
{
	return (struct rb_call) { RB_KIND_ALLTOALLV, in, out, 0, type, RUBATO_SUM, .shape = shape };
}

rubato_status rubato_alltoallv(rubato_comm *comm, const void *in, const uint64_t *send_counts,
			       const uint64_t *send_offsets, void *out,
			       const uint64_t *receive_counts, const uint64_t *receive_offsets,
			       rubato_type type)
{
	const struct rb_shape shape = { send_counts, send_offsets, receive_counts, receive_offsets,
					.hash = 0 };
	const struct rb_call call = alltoallv(in, out, &shape, type);

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_alltoallv(rubato_comm *comm, const void *in, const uint64_t *send_counts,
				  const uint64_t *send_offsets, void *out,
				  const uint64_t *receive_counts, const uint64_t *receive_offsets,
				  rubato_type type, rubato_op **operation)
{
	const struct rb_shape shape = { send_counts, send_offsets, receive_counts, receive_offsets,
					.hash = 0 };
	const struct rb_call call = alltoallv(in, out, &shape, type);

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call barrier(void)
{
	return (struct rb_call) { RB_KIND_BARRIER, NULL,       NULL,     0,
				  RUBATO_INT32,    RUBATO_SUM, .root = 0 };
}

rubato_status rubato_barrier(rubato_comm *comm)
{
	const struct rb_call call = barrier();

	return rb_call_collective(comm, &call, NULL);
}

rubato_status rubato_op_barrier(rubato_comm *comm, rubato_op **operation)
{
	const struct rb_call call = barrier();

	return rb_call_create(comm, &call, 0, false, operation);
}

static struct rb_call send_of(const void *buffer, uint64_t count, rubato_type type, uint32_t peer)
{
	return (struct rb_call) { RB_KIND_SENDRECV, buffer,      NULL, count, type,
				  RUBATO_SUM,       .root = peer };
}

rubato_status rubato_send(rubato_comm *comm, const void *buffer, uint64_t count, rubato_type type,
			  uint32_t peer, uint32_t tag)
{
	const struct rb_call call = send_of(buffer, count, type, peer);

	return rb_call_message(comm, &call, tag, true);
}

rubato_status rubato_op_send(rubato_comm *comm, const void *buffer, uint64_t count,
			     rubato_type type, uint32_t peer, uint32_t tag, rubato_op **operation)
{
	const struct rb_call call = send_of(buffer, count, type, peer);

	return rb_call_create(comm, &call, tag, true, operation);
}

static struct rb_call recv_of(void *buffer, uint64_t count, rubato_type type, uint32_t peer)
{
	return (struct rb_call) { RB_KIND_SENDRECV, NULL,        buffer, count, type,
				  RUBATO_SUM,       .root = peer };
}

rubato_status rubato_recv(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			  uint32_t peer, uint32_t tag)
{
	const struct rb_call call = recv_of(buffer, count, type, peer);

	return rb_call_message(comm, &call, tag, false);
}

rubato_status rubato_op_recv(rubato_comm *comm, void *buffer, uint64_t count, rubato_type type,
			     uint32_t peer, uint32_t tag, rubato_op **operation)
{
	const struct rb_call call = recv_of(buffer, count, type, peer);

	return rb_call_create(comm, &call, tag, false, operation);
}

rubato_status rubato_sendrecv(rubato_comm *comm, const void *in, uint64_t send_count, uint32_t to,
			      uint32_t send_tag, void *out, uint64_t receive_count, uint32_t from,
			      uint32_t receive_tag, rubato_type type)
{
	const struct rb_call send = send_of(in, send_count, type, to);
	const struct rb_call receive = recv_of(out, receive_count, type, from);

	return rb_call_sendrecv(comm, &send, send_tag, &receive, receive_tag);
}
