/*
 * deliver.c -- what a work request does at its target: receives, writes, reads, atomics, datagrams.
 *
 * A source is read here, not when it is posted; a long one in pieces, each at a step of its own.
 *
 * Of a region with relaxed ordering, where a seed says so, pieces of writes are in memory only
 * later, in any order: at the latest when their queue pair tells its owner of anything, or fails.
 * Whoever wrote them has been told meanwhile that they arrived.
 */
#include <arpa/inet.h>
#include <string.h>

#include "tests/verbs-mock/carry.h"

#define GRH_BYTES 40u

bool gather_allowed(struct world *world, const struct mock_qp *own, const struct send *send,
		    uint32_t access)
{
	uint32_t pd = world->qps[own->index].pd;

	if ((send->flags & IBV_SEND_INLINE) != 0)
		return true;
	for (uint32_t i = 0; i < send->sge_count; i++) {
		const struct ibv_sge *sge = &send->sges[i];

		if (sge->length > 0 && mr_find(world, world_self(), pd, sge->lkey, sge->addr,
					       sge->length, access) == WORLD_NONE) {
			world->counters.outside_local++;
			return false;
		}
	}
	return true;
}

/* Own memory of a send at OFFSET, and how much of it is in one piece. */
static void *gather_at(struct world *world, const struct send *send, uint32_t offset, size_t *bytes)
{
	if ((send->flags & IBV_SEND_INLINE) != 0) {
		*bytes = send->length - offset;
		return send->inline_data + offset;
	}
	for (uint32_t i = 0; i < send->sge_count; i++) {
		const struct ibv_sge *sge = &send->sges[i];

		if (offset < sge->length) {
			const struct world_mr *mr = &world->mrs[sge->lkey >> 8];

			*bytes = sge->length - offset;
			return (void *)(uintptr_t)(mr->address + (sge->addr - mr->iova) + offset);
		}
		offset -= sge->length;
	}
	*bytes = 0;
	return NULL;
}

static bool gather_move(struct world *world, const struct send *send, uint32_t offset, uint32_t mr,
			uint64_t at, size_t bytes, bool write)
{
	while (bytes > 0) {
		size_t piece;
		void *own = gather_at(world, send, offset, &piece);

		if (piece > bytes)
			piece = bytes;
		if (!(write ? memory_write(world, mr, at, own, piece)
			    : memory_read(world, mr, at, own, piece)))
			return false;
		offset += (uint32_t)piece;
		at += piece;
		bytes -= piece;
	}
	return true;
}

bool gather_write(struct world *world, const struct send *send, uint32_t offset, uint32_t mr,
		  uint64_t at, size_t bytes)
{
	return gather_move(world, send, offset, mr, at, bytes, true);
}

/* ---- Relaxed ordering ---- */

#define LATE_BYTES ((uint64_t)4 << 20) /* At most, of all. */

/* Into memory, if its region is still there. */
static void late_end(struct world *world, uint64_t *place)
{
	struct world_late *late = world_at(world, *place);
	uint64_t offset = *place;
	uint32_t mr = late->key >> 8;

	*place = late->next;
	world->late_bytes -= late->bytes;
	if (world->mrs[mr].used && world->mrs[mr].key == late->key)
		(void)memory_write(world, mr, late->at, late + 1, late->bytes);
	world_free(world, offset, sizeof(*late) + late->bytes);
}

void late_land(struct world *world, uint32_t qp)
{
	for (uint64_t *place = &world->late_first; *place != 0;) {
		struct world_late *late = world_at(world, *place);

		if (late->qp == qp)
			late_end(world, place);
		else
			place = &late->next;
	}
}

void late_step(struct world *world)
{
	for (uint64_t *place = &world->late_first; *place != 0;) {
		struct world_late *late = world_at(world, *place);

		if (late->due <= world->step)
			late_end(world, place);
		else
			place = &late->next;
	}
}

/* A piece of a write is put aside. False: it is to be written now. */
static bool late_write(struct world *world, const struct mock_qp *own, const struct send *send,
		       uint32_t peer, uint32_t offset, uint32_t mr, uint32_t bytes)
{
	static const uint32_t spans[] = { 2, 16, 256, 4096 };
	uint64_t which = ((uint64_t)own->index << 40 | send->ordinal) ^ (uint64_t)offset << 20;
	uint64_t chance = world_chance(world, 6, which), place, *before = &world->late_first;
	struct world_late *late;

	if (world->config.seed == 0 || chance % 4 == 0 ||
	    (world->mrs[mr].access & IBV_ACCESS_RELAXED_ORDERING) == 0 ||
	    world->late_bytes + bytes > LATE_BYTES)
		return false;
	place = world_alloc(world, sizeof(*late) + bytes);
	if (place == 0)
		return false;
	late = world_at(world, place);
	*late = (struct world_late) { .qp = peer,
				      .key = world->mrs[mr].key,
				      .at = send->remote + offset,
				      .bytes = bytes,
				      .due = world->step + (chance >> 8) % spans[chance >> 4 & 3] };
	for (size_t done = 0, piece; done < bytes; done += piece) {
		const void *from = gather_at(world, send, offset + (uint32_t)done, &piece);

		piece = piece < bytes - done ? piece : bytes - done;
		memcpy((char *)(late + 1) + done, from, piece);
	}
	while ((chance >> 3 & 1) != 0 && *before != 0) /* The last one, or the first. */
		before = &((struct world_late *)world_at(world, *before))->next;
	late->next = *before;
	*before = place;
	world->late_bytes += bytes;
	world->counters.late_pieces++;
	return true;
}

/* ---- What becomes of a request ---- */

static enum outcome fail(enum ibv_wc_status *status, enum ibv_wc_status with)
{
	*status = with;
	return FAILED;
}

/* What a key does not allow at home. Soft-RoCE says less of it than other devices. */
static enum outcome own_fault(const struct world *world, enum ibv_wc_status *status)
{
	return fail(status,
		    world->config.soft_roce != 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_PROT_ERR);
}

/* Memory that a key allows is not there: with its process, or taken from under its region. */
static enum outcome not_there(struct world *world, struct world_qp *peer,
			      enum ibv_wc_status *status)
{
	return world_alive(world, peer->process) ? fail(status, IBV_WC_REM_OP_ERR) : WAITS;
}

static struct world_rq *receives_of(struct world *world, struct world_qp *peer)
{
	return peer->srq != WORLD_NONE ? &world->srqs[peer->srq].rq : &peer->rq;
}

static void receive_taken(struct world *world, struct world_qp *peer)
{
	struct world_srq *srq = peer->srq != WORLD_NONE ? &world->srqs[peer->srq] : NULL;

	receives_of(world, peer)->head++;
	if (srq != NULL && srq->rq.tail - srq->rq.head < srq->limit) {
		srq->limit = 0;
		srq->raise_limit = true;
		srq_raise(world, peer->srq);
	}
}

/* The receive's memory takes SKIP bytes of something else, then the send. */
static enum ibv_wc_status scatter(struct world *world, struct world_qp *peer,
				  const struct world_receive *receive, const struct send *send,
				  const void *header, size_t header_bytes)
{
	size_t left = send->length + header_bytes, done = 0;
	uint64_t room = 0;

	for (uint32_t i = 0; i < receive->sge_count; i++)
		room += receive->sges[i].length;
	if (left > room)
		return IBV_WC_LOC_LEN_ERR;
	for (uint32_t i = 0; i < receive->sge_count && left > 0; i++) {
		const struct ibv_sge *sge = &receive->sges[i];
		size_t bytes = sge->length < left ? sge->length : left, of_header = 0;
		uint32_t mr = mr_find(world, peer->process, peer->pd, sge->lkey, sge->addr,
				      sge->length, IBV_ACCESS_LOCAL_WRITE);

		if (mr == WORLD_NONE) {
			world->counters.outside_local++;
			return IBV_WC_LOC_PROT_ERR;
		}
		if (done < header_bytes) {
			of_header = header_bytes - done < bytes ? header_bytes - done : bytes;
			if (!memory_write(world, mr, sge->addr, (const char *)header + done,
					  of_header))
				return IBV_WC_LOC_PROT_ERR;
		}
		if (!gather_write(world, send, (uint32_t)(done + of_header - header_bytes), mr,
				  sge->addr + of_header, bytes - of_header))
			return IBV_WC_LOC_PROT_ERR;
		done += bytes;
		left -= bytes;
	}
	return IBV_WC_SUCCESS;
}

/* Its receive ends with an error, its queue pair with it; what the sender is told. */
static enum outcome receive_fails(struct world *world, struct world_qp *peer, uint64_t wr_id,
				  enum ibv_wc_status here, enum ibv_wc_status *status)
{
	bool length = here == IBV_WC_LOC_LEN_ERR;

	world->counters.length_errors += length;
	if (length && world->config.soft_roce != 0) {
		here = IBV_WC_LOC_QP_OP_ERR;
		length = false;
	}
	receive_end(world, peer, wr_id, (struct ibv_wc) { .status = here }, true);
	qp_fail(world, (uint32_t)(peer - world->qps));
	return fail(status, length ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
}

/* A receive ends well, unless that is to fail. */
static enum outcome receive_ends(struct world *world, struct world_qp *peer, uint64_t wr_id,
				 struct ibv_wc wc, const struct send *send,
				 enum ibv_wc_status *status)
{
	struct world_fault *fault = fault_of(world, peer->process, true);

	if (fault != NULL) {
		fault->fired++;
		world->counters.faults_fired++;
		return receive_fails(world, peer, wr_id, fault->status, status);
	}
	if (send->opcode == IBV_WR_SEND_WITH_IMM || send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = send->imm;
	}
	receive_end(world, peer, wr_id, wc, (send->flags & IBV_SEND_SOLICITED) != 0);
	return DELIVERED;
}

static enum outcome message(struct world *world, struct mock_qp *own, struct send *send,
			    struct world_qp *peer, enum ibv_wc_status *status)
{
	struct world_rq *rq = receives_of(world, peer);
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .byte_len = send->length };
	struct world_receive *receive;
	enum ibv_wc_status here;
	uint64_t wr_id;

	if (rq->head == rq->tail)
		return NOT_READY;
	if (!gather_allowed(world, own, send, 0))
		return own_fault(world, status);
	receive = rq_entry(world, rq, rq->head);
	wr_id = receive->wr_id;
	here = scatter(world, peer, receive, send, NULL, 0);
	receive_taken(world, peer);
	if (here != IBV_WC_SUCCESS)
		return receive_fails(world, peer, wr_id, here, status);
	wc.src_qp = own->v.qp_num;
	return receive_ends(world, peer, wr_id, wc, send, status);
}

/* Its place has not been used since. */
static bool key_is_stale(const struct world *world, uint32_t key)
{
	const struct world_mr *mr = key >> 8 < WORLD_MRS ? &world->mrs[key >> 8] : NULL;

	return mr != NULL && !mr->used && mr->key == key;
}

/* The peer's region, if its keys and its queue pair allow it. */
static uint32_t remote_region(struct world *world, struct world_qp *peer, const struct send *send,
			      uint32_t access)
{
	uint32_t mr = WORLD_NONE;

	if ((peer->attr.qp_access_flags & access) == access)
		mr = mr_find(world, peer->process, peer->pd, send->rkey, send->remote, send->length,
			     access);
	if (mr == WORLD_NONE) {
		world->counters.outside_remote++;
		world->counters.stale_remote += key_is_stale(world, send->rkey);
		if (world->config.soft_roce == 0)
			qp_event(world, (uint32_t)(peer - world->qps), IBV_EVENT_QP_ACCESS_ERR);
		qp_fail(world, (uint32_t)(peer - world->qps));
	}
	return mr;
}

/* How much of a long one moves at once: the seed's, else as much as there is budget. */
static uint32_t piece_bytes(const struct world *world, const struct mock_qp *own,
			    const struct send *send, size_t budget)
{
	static const uint32_t pieces[] = { 64, 512, 4096, 65536, 1u << 20, 1u << 20 };
	uint32_t left = send->length - send->moved, most = (uint32_t)budget;

	if (world->config.seed != 0) {
		uint64_t which = (uint64_t)own->index << 40 | send->ordinal;
		uint32_t piece = pieces[world_chance(world, 4, which) % 6];

		if (send->length / 64 > piece) /* No more than 64 pieces. */
			piece = send->length / 64;
		most = piece < most ? piece : most;
	}
	return left < most ? left : most;
}

/* A piece of a write or read; the last one first, where a seed says so: there is no order in it. */
static enum outcome move_piece(struct world *world, struct mock_qp *own, struct send *send,
			       struct world_qp *peer, size_t *budget, enum ibv_wc_status *status)
{
	bool write = send->opcode != IBV_WR_RDMA_READ;
	uint32_t bytes = piece_bytes(world, own, send, *budget), offset = send->moved, mr;

	if (!gather_allowed(world, own, send, write ? 0 : IBV_ACCESS_LOCAL_WRITE))
		return own_fault(world, status);
	mr = remote_region(world, peer, send,
			   write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
	if (mr == WORLD_NONE)
		return fail(status, IBV_WC_REM_ACCESS_ERR);
	if (world->config.seed != 0 && world_chance(world, 5, send->ordinal) % 2 == 0)
		offset = send->length - send->moved - bytes;
	if (!write)
		late_land(world, (uint32_t)(peer - world->qps));
	if (!(write &&
	      late_write(world, own, send, (uint32_t)(peer - world->qps), offset, mr, bytes)) &&
	    !gather_move(world, send, offset, mr, send->remote + offset, bytes, write))
		return not_there(world, peer, status);
	send->moved += bytes;
	*budget -= bytes;
	return DELIVERED;
}

static enum outcome write_or_read(struct world *world, struct mock_qp *own, struct send *send,
				  struct world_qp *peer, size_t *budget, enum ibv_wc_status *status)
{
	struct ibv_wc wc = { .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = send->length };
	struct world_rq *rq = receives_of(world, peer);
	uint64_t wr_id;

	while (send->moved < send->length) {
		enum outcome outcome = move_piece(world, own, send, peer, budget, status);

		if (outcome != DELIVERED)
			return outcome;
		if (send->moved < send->length && (world->config.seed != 0 || *budget == 0))
			return WAITS;
	}
	if (send->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		return DELIVERED;
	if (rq->head == rq->tail)
		return NOT_READY;
	wr_id = rq_entry(world, rq, rq->head)->wr_id;
	receive_taken(world, peer);
	wc.src_qp = own->v.qp_num;
	return receive_ends(world, peer, wr_id, wc, send, status);
}

static enum outcome atomic(struct world *world, struct mock_qp *own, struct send *send,
			   struct world_qp *peer, enum ibv_wc_status *status)
{
	uint64_t old, new;
	uint32_t mr;

	if (send->length != 8 || send->remote % 8 != 0) {
		qp_fail(world, (uint32_t)(peer - world->qps));
		return fail(status, IBV_WC_REM_INV_REQ_ERR);
	}
	if (!gather_allowed(world, own, send, IBV_ACCESS_LOCAL_WRITE))
		return own_fault(world, status);
	mr = remote_region(world, peer, send, IBV_ACCESS_REMOTE_ATOMIC);
	if (mr == WORLD_NONE)
		return fail(status, IBV_WC_REM_ACCESS_ERR);
	late_land(world, (uint32_t)(peer - world->qps));
	if (!gather_move(world, send, 0, mr, send->remote, 8, false) ||
	    !memory_read(world, mr, send->remote, &old, 8))
		return not_there(world, peer, status);
	new = send->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? old + send->compare_add
	      : old == send->compare_add                  ? send->swap
							  : old;
	return memory_write(world, mr, send->remote, &new, 8) ? DELIVERED
							      : not_there(world, peer, status);
}

static uint32_t packets(const struct world_qp *qp, uint32_t length)
{
	uint32_t mtu = 128u << qp->attr.path_mtu;

	return length == 0 ? 1 : (length + mtu - 1) / mtu;
}

enum outcome deliver(struct world *world, struct mock_qp *own, struct send *send,
		     struct world_qp *peer, size_t *budget, enum ibv_wc_status *status)
{
	struct world_qp *qp = &world->qps[own->index];
	enum outcome outcome;

	if (peer->state == IBV_QPS_RTR && !peer->heard) {
		peer->heard = true;
		qp_event(world, (uint32_t)(peer - world->qps), IBV_EVENT_COMM_EST);
	}
	peer->waits_first = false;
	if (peer->attr.path_mtu != qp->attr.path_mtu && packets(qp, send->length) > 1) {
		qp_fail(world, (uint32_t)(peer - world->qps));
		return fail(status, IBV_WC_REM_INV_REQ_ERR);
	}
	switch (send->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		outcome = message(world, own, send, peer, status);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		outcome = atomic(world, own, send, peer, status);
		break;
	default:
		outcome = write_or_read(world, own, send, peer, budget, status);
	}
	if (outcome == DELIVERED) {
		qp->psn_sent = (qp->psn_sent + packets(qp, send->length)) & 0xffffff;
		peer->psn_expected = qp->psn_sent;
	}
	return outcome;
}

static struct world_qp *datagram_target(struct world *world, const struct mock_qp *own,
					const struct send *send)
{
	const struct world_qp *qp = &world->qps[own->index];
	struct world_qp *peer = &world->qps[send->qpn % WORLD_QPS];
	uint32_t device, port, qkey = send->qkey;

	if ((qkey & 0x80000000u) != 0)
		qkey = qp->attr.qkey;
	if (!device_find(world, qp->device, &send->to, &device, &port) || !peer->used ||
	    peer->number != send->qpn || peer->type != IBV_QPT_UD || peer->device != device ||
	    peer->attr.port_num != port + 1 || peer->attr.qkey != qkey ||
	    (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS) || peer->silent ||
	    qp->silent || world->devices[device].ports[port].state != IBV_PORT_ACTIVE ||
	    world->devices[qp->device].ports[qp->attr.port_num - 1].state != IBV_PORT_ACTIVE)
		return NULL;
	return world_alive(world, peer->process) ? peer : NULL;
}

static struct {
	mock_carry *see;
	void *arg;
} carrier;

static struct held { /* A datagram that is late. */
	bool used;
	uint32_t qp;
	struct send send;
	unsigned char bytes[MOCK_DATAGRAM_BYTES];
} held;

MOCK_API void mock_carry_datagrams(mock_carry *see, void *arg)
{
	struct world *world = world_attach();

	world_lock(world);
	carrier.arg = arg;
	carrier.see = see;
	held.used = false;
	world_unlock(world);
}

static void datagram_arrives(struct world *world, struct mock_qp *own, struct send *send,
			     struct world_qp *peer)
{
	const struct world_qp *qp = &world->qps[own->index];
	struct ibv_wc wc = { .opcode = IBV_WC_RECV, .wc_flags = IBV_WC_GRH };
	struct ibv_grh grh = { .version_tclass_flow = htonl(6u << 28), .next_hdr = 0x1b };
	struct world_rq *rq = peer != NULL ? receives_of(world, peer) : NULL;
	enum ibv_wc_status here, told;
	uint64_t wr_id;

	if (rq == NULL || rq->head == rq->tail) {
		world->counters.datagrams_lost++;
		return;
	}
	grh.paylen = htons((uint16_t)send->length);
	grh.hop_limit = send->to.grh.hop_limit;
	grh.sgid = world->devices[qp->device]
			   .ports[qp->attr.port_num - 1]
			   .gids[send->to.grh.sgid_index];
	grh.dgid = send->to.grh.dgid;
	wr_id = rq_entry(world, rq, rq->head)->wr_id;
	here = scatter(world, peer, rq_entry(world, rq, rq->head), send, &grh, GRH_BYTES);
	receive_taken(world, peer);
	wc.byte_len = send->length + GRH_BYTES;
	wc.src_qp = own->v.qp_num;
	if (here != IBV_WC_SUCCESS)
		(void)receive_fails(world, peer, wr_id, here, &told);
	else
		(void)receive_ends(world, peer, wr_id, wc, send, &told);
}

/* A copy of the send that carries other bytes. */
static void carry_as(struct world *world, struct mock_qp *own, const struct send *send,
		     struct world_qp *peer)
{
	unsigned char bytes[MOCK_DATAGRAM_BYTES];
	uint32_t at = 0, size_bytes = send->length;
	struct send other = *send;
	enum mock_fate fate;

	while (at < send->length) {
		size_t piece;
		const void *from = gather_at(world, send, at, &piece);

		memcpy(bytes + at, from, piece);
		at += (uint32_t)piece;
	}
	fate = carrier.see(carrier.arg, world->qps[own->index].device / WORLD_DEVICES, bytes,
			   &size_bytes);
	other.flags |= IBV_SEND_INLINE;
	other.inline_data = bytes;
	other.length = size_bytes;
	if (fate == MOCK_LOST) {
		world->counters.datagrams_lost++;
		return;
	}
	if (fate == MOCK_LATE && !held.used) {
		held = (struct held) { .used = true, .qp = own->index, .send = other };
		memcpy(held.bytes, bytes, sizeof(bytes));
		return;
	}
	for (uint32_t i = 0; i < (fate == MOCK_TWICE ? 2 : 1); i++)
		datagram_arrives(world, own, &other, peer);
	if (held.used && held.qp == own->index && held.send.qpn == send->qpn) {
		held.used = false;
		held.send.inline_data = held.bytes;
		datagram_arrives(world, own, &held.send, peer);
	}
}

/* Nobody says whether a datagram arrives. */
enum outcome datagram(struct world *world, struct mock_qp *own, struct send *send,
		      enum ibv_wc_status *status)
{
	struct world_qp *peer;

	if (send->length > 128u << world->config.mtu)
		return fail(status, IBV_WC_LOC_LEN_ERR);
	if (!gather_allowed(world, own, send, 0))
		return own_fault(world, status);
	peer = datagram_target(world, own, send);
	if (carrier.see != NULL && peer != NULL && send->length <= MOCK_DATAGRAM_BYTES)
		carry_as(world, own, send, peer);
	else
		datagram_arrives(world, own, send, peer);
	return DELIVERED; /* Nobody tells its sender. */
}
