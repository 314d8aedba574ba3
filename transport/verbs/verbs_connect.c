/*
 * verbs_connect.c -- addresses, queue pairs, hello, close.
 *
 * An address is the port and one queue pair's number for each rank. Ranks come to connect() at
 * different times, and what is sent to a queue pair that is not ready fails for good: so each
 * tells the others by datagrams (UD), again and again, that its queue pairs are ready, and only
 * then does HELLO take the way that data will take. connect() ends when every peer's HELLO has
 * come: with it the path was tried in both directions, and the job and the version are the same.
 * A GID that does not lead there is found here, and named.
 *
 * close(): BYE, or ABORT, goes behind everything that was complete, and is waited for until the
 * peer's device has acknowledged it. Then queue pairs go, then keys, then memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "transport/verbs/verbs.h"

#define ADDRESS_MAGIC 0x56524252u /* "RBRV" */
#define GRH_BYTES 40u             /* Before what a datagram brings. */
#define DATAGRAM_BYTES 64u        /* A slot: both. */
#define DATAGRAM_FIRST_NS 5000000u
#define DATAGRAM_LAST_NS 200000000u
#define ABORT_GRACE_NS 500000000u /* Guess. */
#define RETRIES 6                 /* Soft-RoCE takes 7 for endless. */
#define RETRY_TIMEOUT 14          /* 4.096 us << 14: 67 ms. */
#define LOGGED_PEERS 32u

_Static_assert(GRH_BYTES + sizeof(struct rb_verbs_greeting) <= DATAGRAM_BYTES, "it fits");

struct blob { /* An address, taken apart. */
	uint8_t job[16], host[16];
	uint32_t rank, pid, datagrams, count;
	uint8_t ethernet, mtu;
	uint16_t lid;
	union ibv_gid gid;
	const uint8_t *numbers; /* Of queue pairs, 4 bytes each. */
};

/* ---- Queue pairs ---- */

static rubato_status qp_make(struct rb_verbs *vb, enum ibv_qp_type type, uint32_t sends,
			     uint32_t receives, struct ibv_qp **out)
{
	static const uint32_t inline_sizes[] = { 220, 128, 64, 0 };

	for (size_t i = 0; i < sizeof(inline_sizes) / sizeof(inline_sizes[0]); i++) {
		struct ibv_qp_init_attr attr = { .send_cq = vb->cq,
						 .recv_cq = vb->cq,
						 .qp_type = type,
						 .cap = { .max_send_wr = sends,
							  .max_recv_wr = receives,
							  .max_send_sge = 1,
							  .max_recv_sge = 1,
							  .max_inline_data = inline_sizes[i] } };

		*out = vb->api.ibv_create_qp(vb->pd, &attr);
		if (*out == NULL)
			continue;
		if (type == IBV_QPT_RC &&
		    (vb->inline_max == 0 || attr.cap.max_inline_data < vb->inline_max))
			vb->inline_max = attr.cap.max_inline_data;
		return RUBATO_OK;
	}
	return rb_verbs_failed(vb, errno, "making a queue pair");
}

static rubato_status qp_modify(struct rb_verbs *vb, struct ibv_qp *qp, struct ibv_qp_attr *attr,
			       int mask, const char *what)
{
	int error = vb->api.ibv_modify_qp(qp, attr, mask);

	return error == 0 ? RUBATO_OK : rb_verbs_failed(vb, error, what);
}

static rubato_status qp_init(struct rb_verbs *vb, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = vb->port.number,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	return qp_modify(vb, qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			 "preparing a queue pair");
}

static uint32_t first_psn(const struct rb_verbs *vb, uint32_t from, uint32_t to)
{
	uint64_t halves[2];

	memcpy(halves, vb->job, sizeof(halves));
	return (uint32_t)rb_mix(halves[0] ^ rb_mix(halves[1] ^ ((uint64_t)from << 32 | to))) &
	       0xffffffu;
}

static struct ibv_ah_attr path_to(const struct rb_verbs *vb, const struct blob *blob)
{
	struct ibv_ah_attr attr = { .dlid = blob->lid, .port_num = vb->port.number };

	attr.is_global = vb->port.ethernet || memcmp(blob->gid.raw, vb->port.gid.raw, 8) != 0;
	attr.grh.dgid = blob->gid;
	attr.grh.sgid_index = vb->port.gid_index;
	attr.grh.hop_limit = 64;
	return attr;
}

static rubato_status qp_ready(struct rb_verbs *vb, struct rb_verbs_peer *peer,
			      const struct blob *blob)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)(blob->mtu < vb->port.mtu ? blob->mtu : vb->port.mtu),
		.dest_qp_num = peer->qp_number,
		.rq_psn = first_psn(vb, peer->rank, vb->base.rank),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = path_to(vb, blob),
	};

	RB_TRY(qp_modify(vb, peer->qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			 "readying a queue pair to receive"));
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS,
				      .timeout = RETRY_TIMEOUT,
				      .retry_cnt = RETRIES,
				      .rnr_retry = 0,
				      .sq_psn = first_psn(vb, vb->base.rank, peer->rank),
				      .max_rd_atomic = 1 };
	return qp_modify(vb, peer->qp, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
			 "readying a queue pair to send");
}

/* ---- Datagrams ---- */

static uint32_t datagram_key(const struct rb_verbs *vb)
{
	return first_psn(vb, UINT32_MAX, UINT32_MAX) | 0x01000000u;
}

static void datagram_receive(struct rb_verbs *vb, uint32_t slot)
{
	struct ibv_sge part = { (uintptr_t)(vb->datagram_slots + slot * DATAGRAM_BYTES),
				DATAGRAM_BYTES, vb->datagram_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RB_VERBS_DATAGRAM | slot,
				  .sg_list = &part,
				  .num_sge = 1 },
			   *bad;

	(void)ibv_post_recv(vb->datagrams, &wr, &bad); /* One less: they are sent again. */
}

static rubato_status datagrams_open(struct rb_verbs *vb)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = vb->port.number,
				    .qkey = datagram_key(vb) };
	size_t bytes = 2 * RB_VERBS_DATAGRAMS * DATAGRAM_BYTES; /* Received, sent. */

	RB_TRY(qp_make(vb, IBV_QPT_UD, RB_VERBS_DATAGRAMS, RB_VERBS_DATAGRAMS, &vb->datagrams));
	vb->datagram_slots = calloc(1, bytes);
	if (vb->datagram_slots == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for datagrams");
	vb->datagram_mr =
		vb->api.ibv_reg_mr(vb->pd, vb->datagram_slots, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (vb->datagram_mr == NULL)
		return rb_verbs_failed(vb, errno, "registering memory for datagrams");
	RB_TRY(qp_modify(vb, vb->datagrams, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
			 "preparing datagrams"));
	for (uint32_t i = 0; i < RB_VERBS_DATAGRAMS; i++)
		datagram_receive(vb, i);
	attr.qp_state = IBV_QPS_RTR;
	RB_TRY(qp_modify(vb, vb->datagrams, &attr, IBV_QP_STATE, "receiving datagrams"));
	attr.qp_state = IBV_QPS_RTS;
	return qp_modify(vb, vb->datagrams, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN,
			 "sending datagrams");
}

static void datagrams_close(struct rb_verbs *vb)
{
	if (vb->datagrams != NULL)
		(void)vb->api.ibv_destroy_qp(vb->datagrams);
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		if (vb->peers[r].ah != NULL)
			(void)vb->api.ibv_destroy_ah(vb->peers[r].ah);
		vb->peers[r].ah = NULL;
	}
	if (vb->datagram_mr != NULL)
		(void)vb->api.ibv_dereg_mr(vb->datagram_mr);
	free(vb->datagram_slots);
	vb->datagrams = NULL;
	vb->datagram_mr = NULL;
	vb->datagram_slots = NULL;
}

static struct rb_verbs_greeting greeting_to(const struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_greeting g = { .rank = vb->base.rank,
				       .version = RB_VERBS_VERSION,
				       .heard = vb->peers[rank].heard };

	memcpy(g.job, vb->job, sizeof(g.job));
	return g;
}

/* Tells the peer that it can be received here. One that gets lost is sent again. */
static void datagram_send(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	uint32_t slot = RB_VERBS_DATAGRAMS + peer->rank % RB_VERBS_DATAGRAMS;
	uint8_t *at = vb->datagram_slots + slot * DATAGRAM_BYTES;
	struct ibv_sge part = { (uintptr_t)at, sizeof(struct rb_verbs_greeting),
				vb->datagram_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = RB_VERBS_DATAGRAM | slot,
				  .sg_list = &part,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct rb_verbs_greeting greeting = greeting_to(vb, peer->rank);

	if ((vb->datagrams_out & UINT64_C(1) << peer->rank % RB_VERBS_DATAGRAMS) != 0)
		return; /* The device still has it. */
	memcpy(at, &greeting, sizeof(greeting));
	wr.wr.ud.ah = peer->ah;
	wr.wr.ud.remote_qpn = peer->datagrams;
	wr.wr.ud.remote_qkey = datagram_key(vb);
	if (ibv_post_send(vb->datagrams, &wr, &bad) == 0)
		vb->datagrams_out |= UINT64_C(1) << peer->rank % RB_VERBS_DATAGRAMS;
}

static bool is_greeting(const struct rb_verbs *vb, const void *bytes, size_t size_bytes,
			struct rb_verbs_greeting *out)
{
	if (size_bytes != sizeof(*out))
		return false;
	memcpy(out, bytes, sizeof(*out));
	return memcmp(out->job, vb->job, sizeof(out->job)) == 0 &&
	       out->version == RB_VERBS_VERSION && out->rank < vb->base.rank_count &&
	       out->rank != vb->base.rank && vb->peers[out->rank].used;
}

/* The peer can receive: by its datagram, or as it has sent over its queue pair. */
static void hear(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	static const struct rb_verbs_head hello = { .message = RB_VERBS_HELLO };
	struct rb_verbs_greeting ours;

	if (peer->heard)
		return;
	peer->heard = true;
	ours = greeting_to(vb, peer->rank);
	rb_verbs_tell(vb, peer->rank, &hello, &ours, sizeof(ours));
}

void rb_verbs_datagram(struct rb_verbs *vb, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	struct rb_verbs_greeting theirs;
	struct rb_verbs_peer *peer;
	bool good;

	if (slot >= RB_VERBS_DATAGRAMS)
		vb->datagrams_out &= ~(UINT64_C(1) << slot % RB_VERBS_DATAGRAMS);
	if (slot >= RB_VERBS_DATAGRAMS || vb->datagrams == NULL || wc->status != IBV_WC_SUCCESS)
		return;
	good = wc->byte_len >= GRH_BYTES &&
	       is_greeting(vb, vb->datagram_slots + slot * DATAGRAM_BYTES + GRH_BYTES,
			   wc->byte_len - GRH_BYTES, &theirs);
	datagram_receive(vb, slot);
	if (!good)
		return; /* A stranger's. */
	peer = &vb->peers[theirs.rank];
	hear(vb, peer);
	if (theirs.heard == 0)
		datagram_send(vb, peer);
}

void rb_verbs_greeted(struct rb_verbs *vb, uint32_t rank, const void *payload, size_t bytes)
{
	struct rb_verbs_greeting theirs;

	if (!is_greeting(vb, payload, bytes, &theirs) || theirs.rank != rank) {
		rb_verbs_wrong(vb, rank, "it is not who it should be");
		return;
	}
	vb->peers[rank].greeted = true;
	hear(vb, &vb->peers[rank]); /* Its datagram may be slower, or lost. */
}

/* ---- Addresses ---- */

rubato_status rb_verbs_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_wire w = rb_wire_over(bytes, RB_ADDRESS_BYTES_MAX);

	if (vb->datagrams == NULL)
		RB_TRY(datagrams_open(vb));
	rb_wire_put_u32(&w, ADDRESS_MAGIC);
	rb_wire_put_u8(&w, RB_VERBS_VERSION);
	rb_wire_put_u8(&w, vb->port.ethernet);
	rb_wire_put_u8(&w, vb->port.mtu);
	rb_wire_put_u16(&w, vb->port.lid);
	rb_wire_put_bytes(&w, vb->port.gid.raw, sizeof(vb->port.gid.raw));
	rb_wire_put_bytes(&w, vb->job, sizeof(vb->job));
	rb_wire_put_bytes(&w, vb->host, sizeof(vb->host));
	rb_wire_put_u32(&w, ep->rank);
	rb_wire_put_u32(&w, (uint32_t)getpid());
	rb_wire_put_u32(&w, vb->datagrams->qp_num);
	rb_wire_put_u32(&w, ep->rank_count);
	for (uint32_t r = 0; r < ep->rank_count && !w.bad; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		if (r != ep->rank && peer->qp == NULL) {
			RB_TRY(qp_make(vb, IBV_QPT_RC, RB_VERBS_QUEUE, RB_VERBS_SLOTS, &peer->qp));
			RB_TRY(qp_init(vb, peer->qp));
		}
		rb_wire_put_u32(&w, r == ep->rank ? 0 : peer->qp->qp_num);
	}
	if (w.bad)
		return RB_FAIL(RUBATO_ERR_UNSUPPORTED,
			       "verbs: the queue pairs of %u ranks do not fit an address of %d "
			       "bytes",
			       ep->rank_count, RB_ADDRESS_BYTES_MAX);
	*size_bytes = (size_t)(w.at - (uint8_t *)bytes);
	return RUBATO_OK;
}

static bool blob_read(const void *address, size_t size_bytes, struct blob *blob)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)address, size_bytes);
	uint32_t magic = rb_wire_get_u32(&w);
	uint8_t version = rb_wire_get_u8(&w);

	blob->ethernet = rb_wire_get_u8(&w);
	blob->mtu = rb_wire_get_u8(&w);
	blob->lid = rb_wire_get_u16(&w);
	rb_wire_get_bytes(&w, blob->gid.raw, sizeof(blob->gid.raw));
	rb_wire_get_bytes(&w, blob->job, sizeof(blob->job));
	rb_wire_get_bytes(&w, blob->host, sizeof(blob->host));
	blob->rank = rb_wire_get_u32(&w);
	blob->pid = rb_wire_get_u32(&w);
	blob->datagrams = rb_wire_get_u32(&w);
	blob->count = rb_wire_get_u32(&w);
	blob->numbers = w.at;
	return !w.bad && magic == ADDRESS_MAGIC && version == RB_VERBS_VERSION &&
	       blob->mtu >= IBV_MTU_256 && blob->mtu <= IBV_MTU_4096 &&
	       (size_t)(w.end - w.at) == (size_t)blob->count * sizeof(uint32_t);
}

bool rb_verbs_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct blob blob;

	return address != NULL && blob_read(address, size_bytes, &blob) &&
	       memcmp(blob.job, vb->job, sizeof(blob.job)) == 0 && blob.rank < ep->rank_count &&
	       blob.count == ep->rank_count && blob.ethernet == vb->port.ethernet;
}

/* ---- Connecting ---- */

static rubato_status slots_open(struct rb_verbs *vb, uint32_t used)
{
	size_t each = (size_t)RB_VERBS_SLOTS * RB_VERBS_SLOT_BYTES;
	void *memory;
	uint32_t next = 0;

	if (used == 0)
		return RUBATO_OK;
	memory =
		mmap(NULL, used * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory to receive from %u ranks",
			       used);
	vb->slots = memory;
	vb->slots_bytes = used * each;
	vb->slots_mr = vb->api.ibv_reg_mr(vb->pd, memory, vb->slots_bytes, IBV_ACCESS_LOCAL_WRITE);
	if (vb->slots_mr == NULL)
		return rb_verbs_failed(vb, errno, "registering memory to receive into");
	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		if (vb->peers[r].used && r != vb->base.rank)
			vb->peers[r].slots = vb->slots + next++ * each;
	return RUBATO_OK;
}

static void peer_log(const struct rb_verbs *vb, const struct blob *blob)
{
	char own[160], gid[RB_VERBS_GID_BYTES];
	uint8_t mtu = blob->mtu < vb->port.mtu ? blob->mtu : vb->port.mtu;

	if (!rb_log_enabled(vb->base.rank_count <= LOGGED_PEERS ? RB_LOG_INFO : RB_LOG_DEBUG))
		return;
	rb_log_line(vb->base.rank_count <= LOGGED_PEERS ? RB_LOG_INFO : RB_LOG_DEBUG,
		    "verbs: rank %u at GID %s, LID %u, path MTU %u, by %s", blob->rank,
		    rb_verbs_gid_text(&blob->gid, gid), blob->lid, rb_verbs_mtu_bytes(mtu),
		    rb_verbs_port_text(&vb->port, own, sizeof(own)));
}

static rubato_status peer_open(struct rb_verbs *vb, uint32_t rank, const void *address,
			       size_t size_bytes)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct ibv_ah_attr path;
	struct blob blob;

	if (!rb_verbs_reachable(&vb->base, address, size_bytes) ||
	    !blob_read(address, size_bytes, &blob) || blob.rank != rank)
		return RB_FAIL(RUBATO_ERR_PEER, "rank %u gave an address that is not its own",
			       rank);
	peer->pid = blob.pid;
	peer->datagrams = blob.datagrams;
	peer->gid = blob.gid;
	memcpy(&peer->qp_number, blob.numbers + vb->base.rank * sizeof(uint32_t),
	       sizeof(peer->qp_number));
	if (memcmp(blob.host, vb->host, sizeof(vb->host)) == 0)
		RB_TRY(rb_verbs_watch_process(vb, peer));
	for (uint32_t i = 0; i < RB_VERBS_SLOTS; i++)
		rb_verbs_repost(vb, peer, i);
	if (peer->lost)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "%s", peer->reason);
	path = path_to(vb, &blob);
	peer->ah = vb->api.ibv_create_ah(vb->pd, &path);
	if (peer->ah == NULL)
		return rb_verbs_failed(vb, errno, "making the address of a peer");
	peer_log(vb, &blob);
	return qp_ready(vb, peer, &blob);
}

/* Which of the used peers have not greeted: "1,4 (2 of 7)". 0: none. */
static uint32_t missing(const struct rb_verbs *vb, char *text, size_t text_bytes, uint32_t *first)
{
	uint32_t count = 0, used = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		if (!vb->peers[r].used || r == vb->base.rank)
			continue;
		used++;
		if (vb->peers[r].greeted)
			continue;
		*first = count == 0 ? r : *first;
		if (at + 32 < text_bytes)
			at += (size_t)snprintf(text + at, text_bytes - at,
					       count == 0 ? "%u" : ",%u", r);
		count++;
	}
	if (at + 32 < text_bytes)
		(void)snprintf(text + at, text_bytes - at, " (%u of %u)", count, used);
	return count;
}

static rubato_status too_late(const struct rb_verbs *vb, const char *ranks, uint32_t first)
{
	char own[160], gid[RB_VERBS_GID_BYTES];

	return RB_FAIL(RUBATO_ERR_TIMEOUT,
		       "verbs: no answer from ranks %s; the first is at GID %s, asked by %s", ranks,
		       rb_verbs_gid_text(&vb->peers[first].gid, gid),
		       rb_verbs_port_text(&vb->port, own, sizeof(own)));
}

/* Over whom we then give up, others are told. */
static rubato_status lost_while_connecting(struct rb_verbs *vb, uint32_t rank)
{
	const struct rb_verbs_peer *peer = &vb->peers[rank];

	vb->base.blames = peer->blames > 0 ? peer->blames : rank + 1;
	if (peer->blames > 0 && peer->blames != rank + 1)
		return RB_FAIL(RUBATO_ERR_PEER,
			       "while connecting: rank %u gave up because of rank %u", rank,
			       peer->blames - 1);
	return RB_FAIL(RUBATO_ERR_PEER, "while connecting: %s", peer->reason);
}

static rubato_status await_greetings(struct rb_verbs *vb, uint64_t deadline_ns)
{
	uint64_t again_ns = 0, period_ns = DATAGRAM_FIRST_NS;
	uint32_t first = 0;
	char text[160];

	while (missing(vb, text, sizeof(text), &first) != 0) {
		uint64_t now_ns = rb_clock_ns();

		if (now_ns >= deadline_ns)
			return too_late(vb, text, first);
		for (uint32_t r = 0; r < vb->base.rank_count && now_ns >= again_ns; r++)
			if (vb->peers[r].ah != NULL && !vb->peers[r].greeted)
				datagram_send(vb, &vb->peers[r]);
		if (now_ns >= again_ns) {
			again_ns = now_ns + period_ns;
			period_ns = period_ns < DATAGRAM_LAST_NS ? 2 * period_ns : period_ns;
		}
		rb_verbs_move(vb, again_ns < deadline_ns ? again_ns : deadline_ns);
		for (uint32_t r = 0; r < vb->base.rank_count; r++)
			if (vb->peers[r].lost && !vb->peers[r].left)
				return lost_while_connecting(vb, r);
	}
	return RUBATO_OK;
}

rubato_status rb_verbs_connect(struct rb_endpoint *ep, const void *const *addresses,
			       const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	static const struct itimerspec each_second = { .it_interval = { .tv_sec = 1 },
						       .it_value = { .tv_sec = 1 } };
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	uint32_t used = 0;
	rubato_status status;

	for (uint32_t r = 0; r < ep->rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		peer->used = use[r];
		used += use[r] && r != ep->rank;
		if (use[r] || peer->qp == NULL)
			continue;
		(void)vb->api.ibv_destroy_qp(peer->qp);
		peer->qp = NULL;
	}
	RB_TRY(slots_open(vb, used));
	for (uint32_t r = 0; r < ep->rank_count; r++)
		if (use[r] && r != ep->rank)
			RB_TRY(peer_open(vb, r, addresses[r], address_bytes[r]));
	if (timerfd_settime(vb->clock_fd, 0, &each_second, NULL) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "timerfd_settime: %s", strerror(errno));
	status = await_greetings(vb, deadline_ns);
	datagrams_close(vb);
	return status;
}

/* ---- Close ---- */

static bool all_left(const struct rb_verbs *vb)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		const struct rb_verbs_peer *peer = &vb->peers[r];

		if (peer->parted && !peer->lost &&
		    (peer->out_first != NULL || peer->posted != peer->retired))
			return false;
	}
	return true;
}

static void say_goodbye(struct rb_verbs *vb, bool abort, uint64_t deadline_ns)
{
	struct rb_verbs_head head = { .message = abort ? RB_VERBS_ABORT : RB_VERBS_BYE,
				      .id = abort ? vb->base.blames : 0 };
	uint64_t until_ns = abort ? rb_deadline(rb_clock_ns(), ABORT_GRACE_NS) : deadline_ns;
	bool words = abort && vb->base.last_words != NULL;

	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		if (!peer->heard || peer->lost)
			continue;
		rb_verbs_tell(vb, r, &head, vb->base.last_words, words ? RB_LAST_WORDS_BYTES : 0);
		peer->parted = true;
	}
	rb_verbs_ring(vb);
	while (!all_left(vb) && rb_clock_ns() < until_ns)
		rb_verbs_move(vb, until_ns);
}

/* Requests are their owners' again; nobody writes into them or reads them any more. */
static void queues_close(struct rb_verbs *vb)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		peer->lost = peer->left = true;
		rb_verbs_unwatch(vb, peer);
		if (peer->qp != NULL)
			(void)vb->api.ibv_destroy_qp(peer->qp);
		peer->qp = NULL;
		rb_verbs_outs_drop(vb, peer);
		rb_verbs_invites_drop(vb, r);
		rb_verbs_arrivals_drop(vb, r, true);
	}
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		struct rb_verbs_flight *flight =
			&vb->flights[i / RB_VERBS_FLIGHTS_EACH][i % RB_VERBS_FLIGHTS_EACH];

		if (!flight->used)
			continue;
		rb_verbs_unregister(vb, flight);
		free(flight->invite);
	}
	for (uint32_t i = 0; i < vb->flight_count; i += RB_VERBS_FLIGHTS_EACH)
		free(vb->flights[i / RB_VERBS_FLIGHTS_EACH]);
	free(vb->flights);
}

static void device_close(struct rb_verbs *vb)
{
	if (vb->slots_mr != NULL)
		(void)vb->api.ibv_dereg_mr(vb->slots_mr);
	if (vb->slots != NULL)
		(void)munmap(vb->slots, vb->slots_bytes);
	rb_verbs_slots_free(vb);
	if (vb->cq_events > 0)
		vb->api.ibv_ack_cq_events(vb->cq, vb->cq_events);
	if (vb->cq != NULL)
		(void)vb->api.ibv_destroy_cq(vb->cq);
	if (vb->channel != NULL)
		(void)vb->api.ibv_destroy_comp_channel(vb->channel);
	if (vb->pd != NULL)
		(void)vb->api.ibv_dealloc_pd(vb->pd);
	if (vb->context != NULL)
		(void)vb->api.ibv_close_device(vb->context);
}

void rb_verbs_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	const int fds[] = { vb == NULL ? -1 : vb->epoll_fd, vb == NULL ? -1 : vb->watch_fd,
			    vb == NULL ? -1 : vb->wake_fd, vb == NULL ? -1 : vb->clock_fd };

	if (ep == NULL)
		return;
	if (vb->cq != NULL)
		say_goodbye(vb, abort, deadline_ns);
	datagrams_close(vb);
	queues_close(vb);
	while (vb->remotes != NULL)
		rb_verbs_remote_close(ep, &vb->remotes->base);
	while (vb->regions != NULL)
		rb_verbs_region_drop(ep, &vb->regions->base);
	device_close(vb);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	free(vb);
}
