/*
 * verbs_make.c -- queue pairs, and how the two ends of a link greet each other.
 *
 * What is sent to a queue pair that is not ready fails for good. So each end says its queue pair's
 * number, and whether it is ready, by another way: by datagrams (UD) while connecting, by a living
 * link (RISE) later; or rdmacm tells both (verbs_rdmacm.c). Who knows the other's number is ready.
 * Who knows that the other one is, sends HELLO on the link itself; and when HELLO has come, the
 * link lives: the path was tried, and the job, the rail and the version are the same. A GID that
 * does not lead there is found so.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/rng.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_spare.h"

/* ---- Queue pairs ---- */

static rubato_status qp_make(struct rb_verbs *vb, struct rb_verbs_rail *rail, enum ibv_qp_type type,
			     uint32_t sends, uint32_t receives, struct ibv_qp **out)
{
	static const uint32_t inline_sizes[] = { 220, 128, 64, 0 };

	for (size_t i = 0; i < sizeof(inline_sizes) / sizeof(inline_sizes[0]); i++) {
		struct ibv_qp_init_attr attr = { .send_cq = rail->cq,
						 .recv_cq = rail->cq,
						 .qp_type = type,
						 .cap = { .max_send_wr = sends,
							  .max_recv_wr = receives,
							  .max_send_sge = 1,
							  .max_recv_sge = 1,
							  .max_inline_data = inline_sizes[i] } };

		*out = vb->api.ibv_create_qp(rail->pd, &attr);
		if (*out == NULL)
			continue;
		if (type == IBV_QPT_RC && attr.cap.max_inline_data < vb->inline_max)
			vb->inline_max = attr.cap.max_inline_data;
		return RUBATO_OK;
	}
	return rb_verbs_failed(rail, errno, "making a queue pair");
}

static rubato_status qp_modify(struct rb_verbs *vb, const struct rb_verbs_rail *rail,
			       struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			       const char *what)
{
	int error = vb->api.ibv_modify_qp(qp, attr, mask);

	return error == 0 ? RUBATO_OK : rb_verbs_failed(rail, error, what);
}

void rb_verbs_qp_drop(struct rb_verbs *vb, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (qp != NULL && vb->api.ibv_destroy_qp(qp) != 0)
		(void)vb->api.ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

rubato_status rb_verbs_datagrams_make(struct rb_verbs *vb, struct rb_verbs_rail *rail, uint32_t key)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = rail->port.number,
				    .qkey = key };

	RB_TRY(qp_make(vb, rail, IBV_QPT_UD, RB_VERBS_DATAGRAMS, RB_VERBS_DATAGRAMS,
		       &rail->datagrams));
	RB_TRY(qp_modify(vb, rail, rail->datagrams, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
			 "preparing datagrams"));
	attr.qp_state = IBV_QPS_RTR;
	RB_TRY(qp_modify(vb, rail, rail->datagrams, &attr, IBV_QP_STATE, "receiving datagrams"));
	attr.qp_state = IBV_QPS_RTS;
	return qp_modify(vb, rail, rail->datagrams, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN,
			 "sending datagrams");
}

/* Of packets from one to the other, in a life of their link. */
static uint32_t first_psn(const struct rb_verbs_link *link, uint32_t from, uint32_t to)
{
	uint64_t halves[2], pair = (uint64_t)from << 32 | to;

	memcpy(halves, link->peer->vb->job, sizeof(halves));
	pair = rb_mix(pair ^ (uint64_t)link->life << 8 ^ link->index);
	return (uint32_t)rb_mix(halves[0] ^ rb_mix(halves[1] ^ pair)) & 0xffffffu;
}

struct ibv_ah_attr rb_verbs_path_to(const struct rb_verbs_link *link)
{
	const struct rb_verbs_port *port = &link->rail->port;
	struct ibv_ah_attr attr = { .dlid = link->lid, .port_num = port->number };

	attr.is_global = port->ethernet || memcmp(link->gid.raw, port->gid.raw, 8) != 0;
	attr.grh.dgid = link->gid;
	attr.grh.sgid_index = port->gid_index;
	attr.grh.hop_limit = 64;
	return attr;
}

rubato_status rb_verbs_link_make(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = link->rail->port.number,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int mask = link->rail->port.iwarp ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	uint32_t slots = link->peer->slots_each;

	RB_TRY(qp_make(vb, link->rail, IBV_QPT_RC, vb->queue, slots, &link->qp));
	link->made++;
	link->word = (uint64_t)(link->made & 63) << (32 + RB_VERBS_LINK_BITS) |
		     (uint64_t)(link - vb->links) << 32;
	link->sent_as = (uint32_t)(link->word >> 32);
	link->received_as = (uint32_t)((link->word | RB_VERBS_RECEIVED) >> 32);
	/* Soft-iWARP sends what does not tell its completion out of its buffer, perhaps when a
	 * later one has told its own. */
	link->untold = link->tell_each = link->rail->port.iwarp ? 1 : RB_VERBS_TELL_EACH;
	link->state = RB_VERBS_LINK_MAKING;
	link->qp_number = link->receives = link->unposted = link->folded = link->ticks = 0;
	link->heard = link->greeted = link->broken = link->probing = link->ask = false;
	link->resume_owed = link->resumed = false;
	link->sent = link->sent_known = link->taken = RB_VERBS_COUNTS_FROM;
	link->reposted = link->reposted_said = RB_VERBS_COUNTS_FROM;
	link->posted = link->retired = link->ended = RB_VERBS_COUNTS_FROM;
	link->bytes_out = 0;
	RB_TRY(qp_modify(vb, link->rail, link->qp, &attr, mask | IBV_QP_STATE | IBV_QP_ACCESS_FLAGS,
			 "preparing a queue pair"));
	for (uint32_t i = 0; i < slots && link->state == RB_VERBS_LINK_MAKING; i++)
		rb_verbs_repost(vb, link, i);
	return RUBATO_OK;
}

rubato_status rb_verbs_link_ready(struct rb_verbs *vb, struct rb_verbs_link *link,
				  const struct ibv_qp_attr *ends)
{
	struct ibv_qp_attr attr = *ends;

	attr.qp_state = IBV_QPS_RTR;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	RB_TRY(qp_modify(vb, link->rail, link->qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			 "readying a queue pair to receive"));
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS,
				      .timeout = vb->resend,
				      .retry_cnt = RB_VERBS_RETRIES,
				      .rnr_retry = 0,
				      .sq_psn = ends->sq_psn,
				      .max_rd_atomic = 1 };
	return qp_modify(vb, link->rail, link->qp, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
			 "readying a queue pair to send");
}

/* The other end's queue pair is known, and its number. */
static rubato_status link_meet(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	uint8_t mtu = link->rail->port.mtu;
	const struct ibv_qp_attr attr = {
		.path_mtu = (enum ibv_mtu)(link->mtu < mtu ? link->mtu : mtu),
		.dest_qp_num = link->qp_number,
		.rq_psn = first_psn(link, link->peer->rank, vb->base.rank),
		.sq_psn = first_psn(link, vb->base.rank, link->peer->rank),
		.ah_attr = rb_verbs_path_to(link),
	};

	if (vb->cm == NULL)
		return rb_verbs_link_ready(vb, link, &attr);
	rb_verbs_cm_connect(vb, link);
	return RUBATO_OK;
}

/* ---- Greetings ---- */

struct rb_verbs_greeting rb_verbs_greeting_to(const struct rb_verbs_link *link)
{
	const struct rb_verbs *vb = link->peer->vb;
	struct rb_verbs_greeting g = { .rank = vb->base.rank,
				       .qp_number = link->qp->qp_num,
				       .life = link->life,
				       .version = RB_VERBS_VERSION,
				       .rail = link->index,
				       .attempt = link->attempt,
				       .ready = link->qp_number != 0 };

	memcpy(g.job, vb->job, sizeof(g.job));
	return g;
}

struct rb_verbs_link *rb_verbs_greeting_of(struct rb_verbs *vb, const void *bytes,
					   size_t size_bytes, struct rb_verbs_greeting *out)
{
	if (size_bytes != sizeof(*out))
		return NULL;
	memcpy(out, bytes, sizeof(*out));
	if (memcmp(out->job, vb->job, sizeof(out->job)) != 0 || out->version != RB_VERBS_VERSION ||
	    out->rank >= vb->base.rank_count || out->rail >= vb->peers[out->rank].link_count ||
	    out->qp_number == 0)
		return NULL;
	return &vb->peers[out->rank].links[out->rail];
}

void rb_verbs_hear(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	static const struct rb_verbs_head hello = { .message = RB_VERBS_HELLO };
	struct rb_verbs_greeting ours = rb_verbs_greeting_to(link);

	if (!link->heard && link->state == RB_VERBS_LINK_MAKING)
		link->heard = rb_verbs_link_say(vb, link, &hello, &ours, sizeof(ours));
}

bool rb_verbs_heard(struct rb_verbs *vb, struct rb_verbs_link *link,
		    const struct rb_verbs_greeting *theirs)
{
	if (link->state != RB_VERBS_LINK_MAKING || theirs->life != link->life)
		return false;
	if (link->qp_number == 0) {
		link->qp_number = theirs->qp_number;
		if (link_meet(vb, link) != RUBATO_OK) {
			rb_verbs_link_fail(vb, link, rubato_error_text());
			return false;
		}
	}
	if (theirs->ready != 0 && vb->cm == NULL)
		rb_verbs_hear(vb, link);
	return theirs->ready == 0;
}

void rb_verbs_greeted(struct rb_verbs *vb, struct rb_verbs_link *link, const void *payload,
		      size_t bytes)
{
	struct rb_verbs_greeting theirs;

	if (rb_verbs_greeting_of(vb, payload, bytes, &theirs) != link ||
	    theirs.life != link->life || link->greeted) {
		rb_verbs_wrong(vb, link->peer->rank, "it is not who it should be");
		return;
	}
	link->greeted = true;
	rb_verbs_hear(vb, link); /* What says that it is ready may be slower, or lost. */
	if (link->state != RB_VERBS_LINK_MAKING)
		return;
	if (link->peer->by_tcp)
		rb_verbs_spare_leave(vb, link->peer);
	else
		rb_verbs_link_lives(vb, link);
}
