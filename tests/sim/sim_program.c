/* sim_program.c -- opens and connects an endpoint for each rank, then runs the body as fibers. */
#include "tests/sim/sim_program.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE_NS 60000000000u

static rubato_status rank_main(struct rb_sim_process *process, void *arg)
{
	struct program *program = arg;
	struct program_rank *r = &program->ranks[rb_sim_process_rank(process)];
	rubato_status err = program->body(r);

	if (!r->closed)
		rb_transport_sim.close(r->ep, false, 0);
	return err;
}

static void open_all(struct program *program, struct rb_sim_cluster *cluster)
{
	uint32_t n = program->options.rank_count;
	const void **addresses = calloc(n, sizeof(*addresses));
	size_t *address_bytes = calloc(n, sizeof(*address_bytes));
	bool *use = calloc(n, sizeof(*use));
	uint8_t *room = calloc(n, 64);

	ck_assert(addresses != NULL && address_bytes != NULL && use != NULL && room != NULL);
	for (uint32_t i = 0; i < n; i++) {
		struct program_rank *r = &program->ranks[i];
		struct rb_transport_options options = { .rank = i,
							.rank_count = n,
							.backend = cluster };

		*r = (struct program_rank) { NULL, i, n, false, program };
		ck_assert_int_eq(rb_transport_sim.open(&options, &r->ep), RUBATO_OK);
		addresses[i] = room + 64 * (size_t)i;
		address_bytes[i] = 64;
		use[i] = true;
		ck_assert_int_eq(
			rb_transport_sim.address(r->ep, room + 64 * (size_t)i, &address_bytes[i]),
			RUBATO_OK);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(rb_transport_sim.connect(program->ranks[i].ep, addresses,
							  address_bytes, use, MINUTE_NS),
				 RUBATO_OK);
	free(addresses);
	free(address_bytes);
	free(use);
	free(room);
}

void program_run(struct program *program)
{
	struct rb_sim_cluster *cluster;

	program->options.size_bytes = sizeof(program->options);
	program->ranks = calloc(program->options.rank_count, sizeof(*program->ranks));
	ck_assert_ptr_nonnull(program->ranks);
	ck_assert_int_eq(rb_sim_cluster_open(&program->options, &cluster), RUBATO_OK);
	open_all(program, cluster);
	program->status = rb_sim_cluster_run(cluster, rank_main, program);
	rb_sim_cluster_result(cluster, &program->result);
	rb_sim_cluster_close(cluster);
	free(program->ranks);
}

static void request_init(struct rb_request *q, uint32_t peer, uint64_t tag, const void *buffer,
			 size_t size_bytes)
{
	memset(q, 0, sizeof(*q));
	q->peer = peer;
	q->tag = (struct rb_tag) { 0, tag };
	q->signature = (struct rb_signature) { RB_KIND_SENDRECV, 0, 0xff, 0, UINT32_MAX, 7 };
	q->buffer = (void *)(uintptr_t)buffer;
	q->where = NULL;
	q->size_bytes = size_bytes;
	q->owner = q;
}

void program_send(struct program_rank *r, struct rb_request *q, uint32_t peer, uint64_t tag,
		  const void *buffer, size_t size_bytes)
{
	request_init(q, peer, tag, buffer, size_bytes);
	rb_transport_sim.send(r->ep, q);
}

void program_recv(struct program_rank *r, struct rb_request *q, uint32_t peer, uint64_t tag,
		  void *buffer, size_t size_bytes)
{
	request_init(q, peer, tag, buffer, size_bytes);
	rb_transport_sim.recv(r->ep, q);
}

void program_put(struct program_rank *r, struct rb_request *q, struct rb_remote *remote,
		 uint64_t tag, const void *buffer, size_t size_bytes, uint64_t offset)
{
	request_init(q, remote->peer, tag, buffer, size_bytes);
	q->remote = remote;
	q->remote_offset = offset;
	rb_transport_sim.put(r->ep, q);
}

rubato_status program_finish(struct program_rank *r, struct rb_request *q)
{
	uint64_t deadline_ns = program_now(r) + MINUTE_NS;

	while (q->state != RB_REQUEST_DONE) {
		if (rb_transport_sim.poll(r->ep) != NULL)
			continue;
		if (program_now(r) >= deadline_ns) {
			rb_transport_sim.cancel(r->ep, q);
			return RUBATO_ERR_TIMEOUT;
		}
		rb_transport_sim.wait(r->ep, deadline_ns);
	}
	return q->status;
}

uint64_t program_now(struct program_rank *r)
{
	return rb_transport_sim.now_ns(r->ep);
}
