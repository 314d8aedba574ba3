/*
 * verbs_connect.c -- addresses, datagrams, connecting, close.
 *
 * An address is what peers must know of this rank's ports. Ranks come to connect() at different
 * times, so each tells the others by datagrams (UD), again and again, of its queue pairs, or has
 * them connected by rdmacm (verbs_rdmacm.c), until every peer's HELLO has come by the way that data
 * will take (verbs_make.c), and its own has arrived: a failure behind that nobody here would see,
 * while the peer waits. A rail by which a peer has not greeted some time after another one did is
 * left out, and said. The only one that fails once it has brought a HELLO is replaced by TCP, as
 * later (verbs_spare.c).
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
#include "base/sync.h"
#include "transport/lost.h"
#include "transport/verbs/verbs_cache.h"
#include "transport/verbs/verbs_large.h"
#include "transport/verbs/verbs_link.h"
#include "transport/verbs/verbs_spare.h"

#define ADDRESS_MAGIC 0x56524252u /* "RBRV" */
#define GRH_BYTES 40u             /* Before what a datagram brings. */
#define DATAGRAM_BYTES 96u        /* A slot: both. */
#define DATAGRAM_FIRST_NS 5000000u
#define DATAGRAM_LAST_NS 200000000u
#define ABORT_GRACE_NS 500000000u        /* Guess. */
#define CALL_OFF_NS 100000000u           /* Guess: a datagram leaves in microseconds; */
#define CALL_OFF_ALL_NS 500000000u       /* those to all peers; */
#define FAREWELL_NS UINT64_C(2000000000) /* a peer answers over TCP once it is in connect(). */
#define LEFT_OUT_NS UINT64_C(2000000000) /* Guess: behind the first rail. */
#define LOGGED_PEERS 32u

_Static_assert(GRH_BYTES + sizeof(struct rb_verbs_greeting) <= DATAGRAM_BYTES, "it fits");

struct blob_rail {
	uint8_t mtu;
	uint16_t lid;
	uint32_t contact; /* Its queue pair for datagrams; rdmacm: its listener's port. */
	union ibv_gid gid;
};

struct blob { /* An address, taken apart. */
	uint8_t job[16];
	uint64_t host;
	uint32_t rank, pid, count;
	uint8_t network, rail_count; /* network: see network_of. */
	uint8_t rdmacm;              /* By it, or by datagrams. */
	struct rb_verbs_ways ways;
	struct blob_rail rails[RB_VERBS_RAILS_MAX];
};

/* ---- Datagrams ---- */

static uint32_t datagram_key(const struct rb_verbs *vb)
{
	uint64_t halves[2];

	memcpy(halves, vb->job, sizeof(halves));
	return (uint32_t)(rb_mix(halves[0] ^ rb_mix(halves[1])) & 0xffffffu) | 0x01000000u;
}

static void datagram_receive(struct rb_verbs_rail *rail, uint32_t slot)
{
	struct ibv_sge part = { (uintptr_t)(rail->datagram_slots + slot * DATAGRAM_BYTES),
				DATAGRAM_BYTES, rail->datagram_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RB_VERBS_DATAGRAM | slot,
				  .sg_list = &part,
				  .num_sge = 1 },
			   *bad;

	(void)ibv_post_recv(rail->datagrams, &wr, &bad); /* One less: they are sent again. */
}

static rubato_status datagrams_open(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	size_t bytes = 2 * RB_VERBS_DATAGRAMS * DATAGRAM_BYTES; /* Received, sent. */

	rail->datagram_slots = calloc(1, bytes);
	if (rail->datagram_slots == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for datagrams");
	rail->datagram_mr =
		vb->api.ibv_reg_mr(rail->pd, rail->datagram_slots, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (rail->datagram_mr == NULL)
		return rb_verbs_unregistered(rail, errno, "for datagrams", bytes);
	RB_TRY(rb_verbs_datagrams_make(vb, rail, datagram_key(vb)));
	for (uint32_t i = 0; i < RB_VERBS_DATAGRAMS; i++)
		datagram_receive(rail, i);
	return RUBATO_OK;
}

static void datagrams_close(struct rb_verbs *vb)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		for (uint32_t i = 0; i < vb->peers[r].link_count; i++) {
			struct rb_verbs_link *link = &vb->peers[r].links[i];

			if (link->ah != NULL)
				(void)vb->api.ibv_destroy_ah(link->ah);
			link->ah = NULL;
		}
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];

		rb_verbs_qp_drop(vb, rail->datagrams);
		if (rail->datagram_mr != NULL)
			(void)vb->api.ibv_dereg_mr(rail->datagram_mr);
		free(rail->datagram_slots);
		rail->datagrams = NULL;
		rail->datagram_mr = NULL;
		rail->datagram_slots = NULL;
	}
}

static uint32_t datagram_bit(const struct rb_verbs_link *link)
{
	return link->peer->rank % RB_VERBS_DATAGRAMS;
}

static bool datagram_post(struct rb_verbs *vb, const struct rb_verbs_link *link,
			  const struct rb_verbs_greeting *greeting)
{
	struct rb_verbs_rail *rail = link->rail;
	uint32_t bit = datagram_bit(link), slot = RB_VERBS_DATAGRAMS + bit;
	uint8_t *at = rail->datagram_slots + slot * DATAGRAM_BYTES;
	struct ibv_sge part = { (uintptr_t)at, sizeof(*greeting), rail->datagram_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = RB_VERBS_DATAGRAM | slot,
				  .sg_list = &part,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	memcpy(at, greeting, sizeof(*greeting));
	wr.wr.ud.ah = link->ah;
	wr.wr.ud.remote_qpn = link->contact;
	wr.wr.ud.remote_qkey = datagram_key(vb);
	if (ibv_post_send(rail->datagrams, &wr, &bad) != 0)
		return false;
	rail->datagrams_out |= UINT64_C(1) << bit;
	return true;
}

/* Tells the peer of this queue pair. One that gets lost is sent again. */
static void datagram_send(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	struct rb_verbs_greeting greeting;

	if (link->rail->datagrams == NULL || link->ah == NULL ||
	    link->state != RB_VERBS_LINK_MAKING ||
	    (link->rail->datagrams_out & UINT64_C(1) << datagram_bit(link)) != 0)
		return; /* Or the device still has it. */
	greeting = rb_verbs_greeting_to(link);
	(void)datagram_post(vb, link, &greeting);
}

static const char *asked_text(const struct rb_verbs_link *link, char *text, size_t text_bytes)
{
	char own[160], gid[RB_VERBS_GID_BYTES];

	(void)snprintf(text, text_bytes, "GID %s, asked by %s", rb_verbs_gid_text(&link->gid, gid),
		       rb_verbs_port_text(&link->rail->port, own, sizeof(own)));
	return text;
}

void rb_verbs_gave_up(struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	const struct rb_verbs_link *link = &peer->links[0];
	char reason[RB_VERBS_REASON_BYTES], where[RB_VERBS_REASON_BYTES];
	bool refused = link->refusal[0] != '\0';

	peer->gave_up = true;
	(void)snprintf(reason, sizeof(reason), "rank %u: it gave up%s%.40s%s; it is at %.*s",
		       peer->rank, refused ? " (" : "", link->refusal, refused ? ")" : "",
		       refused ? 100 : 160, asked_text(link, where, sizeof(where)));
	rb_verbs_lose(vb, peer->rank, reason);
}

/* Its queue pair takes no more, and peers know no other. Who is ready needs none. */
static void datagrams_failed(struct rb_verbs *vb, struct rb_verbs_rail *rail,
			     const struct ibv_wc *wc)
{
	char reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(reason, sizeof(reason),
		       "verbs: %s port %u: telling a peer of a queue pair: %s (%d)",
		       rail->port.device, rail->port.number, vb->api.ibv_wc_status_str(wc->status),
		       (int)wc->status);
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_link *link;

		if (rail->index >= vb->peers[r].link_count)
			continue;
		link = &vb->peers[r].links[rail->index];
		if (link->state == RB_VERBS_LINK_MAKING && !link->heard)
			rb_verbs_link_fail(vb, link, reason);
	}
}

void rb_verbs_datagram(struct rb_verbs *vb, struct rb_verbs_rail *rail, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	struct rb_verbs_greeting theirs;
	struct rb_verbs_link *link = NULL;

	if (slot >= RB_VERBS_DATAGRAMS) {
		rail->datagrams_out &= ~(UINT64_C(1) << slot % RB_VERBS_DATAGRAMS);
		rail->mute |= wc->status != IBV_WC_SUCCESS;
	}
	if (slot >= RB_VERBS_DATAGRAMS && wc->status != IBV_WC_SUCCESS && vb->connecting)
		datagrams_failed(vb, rail, wc);
	if (slot >= RB_VERBS_DATAGRAMS || rail->datagrams == NULL || wc->status != IBV_WC_SUCCESS)
		return;
	if (wc->byte_len >= GRH_BYTES)
		link = rb_verbs_greeting_of(
			vb, rail->datagram_slots + slot * DATAGRAM_BYTES + GRH_BYTES,
			wc->byte_len - GRH_BYTES, &theirs);
	datagram_receive(rail, slot);
	if (link == NULL) /* A stranger's. */
		return;
	if (theirs.ready != RB_VERBS_LEAVES) {
		if (link->rail == rail && rb_verbs_heard(vb, link, &theirs))
			datagram_send(vb, link);
	} else if (link->peer->live == 0) { /* Of one that is connected no datagram speaks. */
		rb_verbs_gave_up(vb, link->peer);
	}
}

/* ---- Addresses ---- */

/* What only meets its like: InfiniBand, RoCE v1, v2 over IPv6, v2 over IPv4, iWARP. */
static uint8_t network_of(const struct rb_verbs_port *port)
{
	if (!port->ethernet)
		return 0;
	if (port->roce_1)
		return 1;
	if (port->iwarp)
		return rb_verbs_is_ipv4(&port->gid) ? 5 : 4;
	return rb_verbs_is_ipv4(&port->gid) ? 3 : 2;
}

static rubato_status contact_open(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	if (vb->cm != NULL)
		return rail->listener != NULL ? RUBATO_OK : rb_verbs_cm_listen(vb, rail);
	return rail->datagrams != NULL ? RUBATO_OK : datagrams_open(vb, rail);
}

rubato_status rb_verbs_address(struct rb_endpoint *ep, void *bytes, size_t *size_bytes)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_wire w = rb_wire_over(bytes, RB_ADDRESS_BYTES_MAX);

	rb_wire_put_u32(&w, ADDRESS_MAGIC);
	rb_wire_put_u8(&w, RB_VERBS_VERSION);
	rb_wire_put_u8(&w, network_of(&vb->rails[0].port));
	rb_wire_put_u8(&w, vb->rail_count);
	rb_wire_put_u8(&w, vb->cm != NULL);
	rb_wire_put_bytes(&w, vb->job, sizeof(vb->job));
	rb_wire_put_u64(&w, vb->host);
	rb_wire_put_u32(&w, ep->rank);
	rb_wire_put_u32(&w, (uint32_t)getpid());
	rb_wire_put_u32(&w, ep->rank_count);
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];

		RB_TRY(contact_open(vb, rail));
		rb_wire_put_u8(&w, rail->port.mtu);
		rb_wire_put_u16(&w, rail->port.lid);
		rb_wire_put_bytes(&w, rail->port.gid.raw, sizeof(rail->port.gid.raw));
		rb_wire_put_u32(&w, vb->cm != NULL ? rail->listens_at : rail->datagrams->qp_num);
	}
	rb_verbs_ways_put(vb, &w);
	RB_ASSERT(!w.bad);
	*size_bytes = (size_t)(w.at - (uint8_t *)bytes);
	return RUBATO_OK;
}

static bool blob_read(const void *address, size_t size_bytes, struct blob *blob)
{
	struct rb_wire w = rb_wire_over((void *)(uintptr_t)address, size_bytes);
	uint32_t magic = rb_wire_get_u32(&w);
	uint8_t version = rb_wire_get_u8(&w);
	bool good;

	blob->network = rb_wire_get_u8(&w);
	blob->rail_count = rb_wire_get_u8(&w);
	blob->rdmacm = rb_wire_get_u8(&w);
	rb_wire_get_bytes(&w, blob->job, sizeof(blob->job));
	blob->host = rb_wire_get_u64(&w);
	blob->rank = rb_wire_get_u32(&w);
	blob->pid = rb_wire_get_u32(&w);
	blob->count = rb_wire_get_u32(&w);
	good = !w.bad && magic == ADDRESS_MAGIC && version == RB_VERBS_VERSION &&
	       blob->rail_count >= 1 && blob->rail_count <= RB_VERBS_RAILS_MAX;
	for (uint32_t i = 0; good && i < blob->rail_count; i++) {
		struct blob_rail *rail = &blob->rails[i];

		rail->mtu = rb_wire_get_u8(&w);
		rail->lid = rb_wire_get_u16(&w);
		rb_wire_get_bytes(&w, rail->gid.raw, sizeof(rail->gid.raw));
		rail->contact = rb_wire_get_u32(&w);
		good = !w.bad && rail->mtu >= IBV_MTU_256 && rail->mtu <= IBV_MTU_4096;
	}
	return good && rb_verbs_ways_get(&w, &blob->ways) && w.at == w.end;
}

bool rb_verbs_reachable(struct rb_endpoint *ep, const void *address, size_t size_bytes)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct blob blob;

	return address != NULL && blob_read(address, size_bytes, &blob) &&
	       memcmp(blob.job, vb->job, sizeof(blob.job)) == 0 && blob.rank < ep->rank_count &&
	       blob.count == ep->rank_count && blob.network == network_of(&vb->rails[0].port) &&
	       blob.rdmacm == (vb->cm != NULL);
}

void rb_verbs_apart(struct rb_endpoint *ep, const void *address, size_t size_bytes, char *text,
		    size_t text_bytes)
{
	static const char *const networks[] = { "InfiniBand",        "RoCE v1",
						"RoCE v2 over IPv6", "RoCE v2 over IPv4",
						"iWARP over IPv6",   "iWARP over IPv4" };
	const struct rb_verbs *vb = (struct rb_verbs *)ep;
	const struct rb_verbs_port *port = &vb->rails[0].port;
	char own[160], gid[RB_VERBS_GID_BYTES];
	struct blob blob;

	text[0] = '\0';
	if (!blob_read(address, size_bytes, &blob) ||
	    blob.network >= sizeof(networks) / sizeof(networks[0]))
		return;
	if (blob.network == network_of(port)) {
		if (blob.rdmacm != (vb->cm != NULL))
			(void)snprintf(text, text_bytes,
				       "there verbs connects by %s, here by %s "
				       "(RUBATO_VERBS_CONNECT)",
				       blob.rdmacm ? "rdmacm" : "exchange",
				       vb->cm != NULL ? "rdmacm" : "exchange");
		return;
	}
	(void)snprintf(text, text_bytes, "%s, GID %s, does not meet %s", networks[blob.network],
		       rb_verbs_gid_text(&blob.rails[0].gid, gid),
		       rb_verbs_port_text(port, own, sizeof(own)));
}

/* ---- Connecting ---- */

/* Of a link: what a peer has, shared among its links; in small jobs each has as much. */
static void window_set(const struct rb_verbs *vb, struct rb_verbs_peer *peer)
{
	uint32_t rank_count = vb->base.rank_count, each = rb_verbs_slots_all(rank_count);

	if (rank_count > RB_VERBS_FEW_RANKS)
		each /= peer->link_count;
	each = each < RB_VERBS_SLOTS_MIN ? RB_VERBS_SLOTS_MIN : each;
	peer->slots_each = (uint8_t)each;
	peer->reserve = each >= RB_VERBS_SLOTS_MAX / 2 ? 8 : 4;
	peer->units_over = each >= RB_VERBS_SLOTS_MAX / 2 ? 4 : 1;
	peer->window = (uint8_t)(each - peer->reserve);
	peer->half = peer->window / 2u;
	RB_ASSERT(peer->half > peer->reserve && peer->reserve - peer->units_over >= 3);
}

/* Of a rail, one behind the other: the slots of all its links. */
static rubato_status slots_open(struct rb_verbs *vb)
{
	uint8_t *at;
	void *memory;

	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		vb->slots_bytes += (size_t)vb->peers[r].link_count * vb->peers[r].slots_each *
				   RB_VERBS_SLOT_BYTES;
	if (vb->slots_bytes == 0)
		return RUBATO_OK;
	memory = mmap(NULL, vb->slots_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED) {
		size_t bytes = vb->slots_bytes;

		vb->slots_bytes = 0;
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory of %zu bytes to receive into",
			       bytes);
	}
	vb->slots = at = memory;
	for (uint32_t i = 0; i < vb->rail_count; i++) {
		struct rb_verbs_rail *rail = &vb->rails[i];
		uint8_t *first = at;

		for (uint32_t r = 0; r < vb->base.rank_count; r++) {
			if (i >= vb->peers[r].link_count)
				continue;
			vb->peers[r].links[i].slots = at;
			at += (size_t)vb->peers[r].slots_each * RB_VERBS_SLOT_BYTES;
		}
		if (at == first)
			continue;
		rail->slots_mr = vb->api.ibv_reg_mr(rail->pd, first, (size_t)(at - first),
						    IBV_ACCESS_LOCAL_WRITE);
		if (rail->slots_mr == NULL)
			return rb_verbs_unregistered(rail, errno, "to receive into",
						     (size_t)(at - first));
		rail->receive_part =
			(struct ibv_sge) { 0, RB_VERBS_SLOT_BYTES, rail->slots_mr->lkey };
		rail->receive =
			(struct ibv_recv_wr) { .sg_list = &rail->receive_part, .num_sge = 1 };
	}
	return RUBATO_OK;
}

static rubato_status links_open(struct rb_verbs *vb, uint32_t count)
{
	struct rb_verbs_link *link;
	struct rb_verbs_entry *entries;

	RB_ASSERT(count < 1u << RB_VERBS_LINK_BITS);
	/* Completions of datagrams seem to have the first one. */
	link = vb->links = calloc(count + 1, sizeof(*link));
	if (link != NULL && count == 0)
		return RUBATO_OK;
	entries = vb->entries = calloc((size_t)count * vb->queue, sizeof(*entries));
	if (link == NULL || entries == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "verbs: no memory for %u links", count);
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		peer->links = peer->main = link;
		for (uint32_t i = 0; i < peer->link_count; i++, link++, entries += vb->queue) {
			link->peer = peer;
			link->rail = &vb->rails[i];
			link->index = (uint8_t)i;
			link->entries = entries;
			link->rest_next = 1;
			link->state = RB_VERBS_LINK_DOWN;
		}
	}
	return slots_open(vb);
}

static void link_log(const struct rb_verbs *vb, const struct rb_verbs_link *link)
{
	enum rb_log_level level = vb->base.rank_count <= LOGGED_PEERS ? RB_LOG_INFO : RB_LOG_DEBUG;
	char own[160], gid[RB_VERBS_GID_BYTES];
	uint8_t mtu = link->rail->port.mtu;

	if (!rb_log_enabled(level))
		return;
	(void)rb_verbs_port_text(&link->rail->port, own, sizeof(own));
	(void)rb_verbs_gid_text(&link->gid, gid);
	if (vb->cm != NULL)
		rb_log_line(level, "verbs: rank %u at GID %s, rdmacm port %u, by %s",
			    link->peer->rank, gid, link->contact, own);
	else
		rb_log_line(level, "verbs: rank %u at GID %s, LID %u, path MTU %u, by %s",
			    link->peer->rank, gid, link->lid,
			    rb_verbs_mtu_bytes(link->mtu < mtu ? link->mtu : mtu), own);
}

static rubato_status link_open(struct rb_verbs *vb, struct rb_verbs_link *link,
			       const struct blob_rail *theirs)
{
	struct ibv_ah_attr path;

	link->contact = theirs->contact;
	link->gid = theirs->gid;
	link->lid = theirs->lid;
	link->mtu = theirs->mtu;
	RB_TRY(rb_verbs_link_make(vb, link));
	if (link->peer->lost)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "%s", link->peer->reason);
	link_log(vb, link);
	if (vb->cm != NULL)
		return RUBATO_OK;
	path = rb_verbs_path_to(link);
	link->ah = vb->api.ibv_create_ah(link->rail->pd, &path);
	if (link->ah == NULL)
		return rb_verbs_failed(link->rail, errno, "making the address of a peer");
	return RUBATO_OK;
}

static rubato_status peer_open(struct rb_verbs *vb, uint32_t rank, const struct blob *blob)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];

	peer->pid = blob->pid;
	if (vb->host != 0 && blob->host == vb->host)
		RB_TRY(rb_verbs_watch_process(vb, peer));
	for (uint32_t i = 0; i < peer->link_count && !peer->lost; i++)
		RB_TRY(link_open(vb, &peer->links[i], &blob->rails[i]));
	return RUBATO_OK;
}

/* Checks all addresses, and counts the links. */
static rubato_status blobs_read(struct rb_verbs *vb, const void *const *addresses,
				const size_t *address_bytes, struct blob *blobs, uint32_t *links)
{
	*links = 0;
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		struct rb_verbs_peer *peer = &vb->peers[r];

		if (!peer->used || r == vb->base.rank)
			continue;
		if (!rb_verbs_reachable(&vb->base, addresses[r], address_bytes[r]) ||
		    !blob_read(addresses[r], address_bytes[r], &blobs[r]) || blobs[r].rank != r)
			return RB_FAIL(RUBATO_ERR_PEER,
				       "rank %u gave an address that is not its own", r);
		peer->link_count =
			blobs[r].rail_count < vb->rail_count ? blobs[r].rail_count : vb->rail_count;
		window_set(vb, peer);
		rb_verbs_ways_keep(vb, r, &blobs[r].ways,
				   vb->host != 0 && blobs[r].host == vb->host);
		*links += peer->link_count;
	}
	return RUBATO_OK;
}

/* Which of the used peers have not greeted, and (`some`) may still: "1,4 (2 of 7)". 0: none. */
static uint32_t missing(const struct rb_verbs *vb, bool some, char *text, size_t text_bytes,
			uint32_t *first)
{
	uint32_t count = 0, used = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		if (vb->peers[r].link_count == 0)
			continue;
		used++;
		if (vb->peers[r].live > 0 || vb->peers[r].by_tcp || vb->peers[r].left ||
		    (some && vb->peers[r].lost))
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
	const struct rb_verbs_link *link = &vb->peers[first].links[0];
	char where[RB_VERBS_REASON_BYTES];

	return RB_FAIL(RUBATO_ERR_TIMEOUT, "verbs: no answer from ranks %s; the first is at %s%s%s",
		       ranks, asked_text(link, where, sizeof(where)),
		       link->refusal[0] != '\0' ? ": " : "", link->refusal);
}

/* Over whom we then give up, others are told. */
static rubato_status lost_while_connecting(struct rb_verbs *vb, uint32_t rank)
{
	uint32_t blames = vb->peers[rank].blames, cause = rank;
	struct rb_lost lost = { .count = 0 };

	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		const struct rb_verbs_peer *peer = &vb->peers[r];

		(void)rb_verbs_lose_ended(vb, r);
		if (!peer->lost || peer->left)
			continue;
		rb_lost_add(&lost, r);
		blames = blames > 0 ? blames : peer->blames;
		cause = vb->peers[cause].gave_up ? r : cause; /* Rather one that said nothing. */
	}
	vb->base.blames = blames > 0 ? blames : cause + 1;
	return rb_lost_fail(&lost, vb->base.rank_count, rank, vb->peers[rank].reason, blames);
}

/* Its HELLO has not arrived, as far as is known: should it fail, this rank is to see it. */
static bool is_unheard(const struct rb_verbs_link *link)
{
	return link->state == RB_VERBS_LINK_LIVE && link->retired == RB_VERBS_COUNTS_FROM;
}

/* It has failed since, and the peer may wait here for what it did not bring. */
static bool is_untold(const struct rb_verbs_link *link)
{
	return link->peer->by_tcp && (link->state == RB_VERBS_LINK_DRAINING || link->resume_owed ||
				      rb_verbs_spare_owes(link->peer));
}

/* To all that have not answered. How many rails are missing though the peer is there. */
static uint32_t greet(struct rb_verbs *vb, bool send)
{
	uint32_t late = 0;

	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		for (uint32_t i = 0; i < vb->peers[r].link_count; i++) {
			struct rb_verbs_link *link = &vb->peers[r].links[i];

			late += is_unheard(link) || is_untold(link);
			if (link->state != RB_VERBS_LINK_MAKING)
				continue;
			late += vb->peers[r].live > 0;
			if (send && vb->cm != NULL)
				rb_verbs_cm_connect(vb, link);
			else if (send)
				datagram_send(vb, link);
		}
	return late;
}

static void leave_out(struct rb_verbs *vb, struct rb_verbs_link *link)
{
	char own[160], gid[RB_VERBS_GID_BYTES], reason[360];

	(void)snprintf(reason, sizeof(reason), "verbs: rank %u at GID %s does not answer by %s%s%s",
		       link->peer->rank, rb_verbs_gid_text(&link->gid, gid),
		       rb_verbs_port_text(&link->rail->port, own, sizeof(own)),
		       link->refusal[0] != '\0' ? ": " : "", link->refusal);
	rb_verbs_link_fail(vb, link, reason);
}

static void leave_out_all(struct rb_verbs *vb)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		for (uint32_t i = 0; i < vb->peers[r].link_count; i++)
			if (vb->peers[r].links[i].state == RB_VERBS_LINK_MAKING)
				leave_out(vb, &vb->peers[r].links[i]);
}

/* `some`: a peer that is lost, or too late, is no error. */
static rubato_status await_greetings(struct rb_verbs *vb, bool some, uint64_t deadline_ns)
{
	uint64_t again_ns = 0, period_ns = DATAGRAM_FIRST_NS, patience_ns = 0;
	uint32_t first = 0;
	char text[160];

	for (;;) {
		uint64_t now_ns = rb_clock_ns(), until_ns;
		bool is_due = now_ns >= again_ns;
		uint32_t late = greet(vb, is_due);
		uint32_t absent = missing(vb, some, text, sizeof(text), &first);

		if (absent == 0 && late == 0)
			return RUBATO_OK;
		if (absent != 0 && now_ns >= deadline_ns && !some)
			return too_late(vb, text, first);
		if (absent == 0 && patience_ns == 0)
			patience_ns = rb_deadline(now_ns, LEFT_OUT_NS);
		if (now_ns >= deadline_ns || (absent == 0 && now_ns >= patience_ns)) {
			leave_out_all(vb);
			return RUBATO_OK;
		}
		if (is_due) {
			again_ns = now_ns + period_ns;
			period_ns = period_ns < DATAGRAM_LAST_NS ? 2 * period_ns : period_ns;
		}
		until_ns = again_ns < deadline_ns ? again_ns : deadline_ns;
		rb_verbs_move(vb, until_ns);
		for (uint32_t r = 0; r < vb->base.rank_count && !some; r++)
			if (vb->peers[r].lost && !vb->peers[r].left)
				return lost_while_connecting(vb, r);
	}
}

static rubato_status peers_open(struct rb_verbs *vb, const void *const *addresses,
				const size_t *address_bytes, bool some)
{
	struct blob *blobs = calloc(vb->base.rank_count, sizeof(*blobs));
	uint32_t links = 0;
	rubato_status status;

	if (blobs == NULL)
		return RB_FAIL(RUBATO_ERR_MEMORY, "no memory for %u addresses",
			       vb->base.rank_count);
	status = blobs_read(vb, addresses, address_bytes, blobs, &links);
	if (status == RUBATO_OK)
		status = links_open(vb, links);
	for (uint32_t r = 0; r < vb->base.rank_count && status != RUBATO_OK; r++)
		if (vb->peers[r].links == NULL)
			vb->peers[r].link_count = 0; /* Nobody closes what was not made. */
	for (uint32_t r = 0; r < vb->base.rank_count && status == RUBATO_OK; r++) {
		if (vb->peers[r].link_count > 0)
			status = peer_open(vb, r, &blobs[r]);
		if (status != RUBATO_OK && some) {
			rb_verbs_lose(vb, r, rubato_error_text());
			status = RUBATO_OK;
		}
	}
	free(blobs);
	return status;
}

static rubato_status connect_peers(struct rb_verbs *vb, const void *const *addresses,
				   const size_t *address_bytes, const bool *use, bool some,
				   uint64_t deadline_ns)
{
	static const struct itimerspec each_second = { .it_interval = { .tv_sec = 1 },
						       .it_value = { .tv_sec = 1 } };
	rubato_status status;

	for (uint32_t r = 0; r < vb->base.rank_count; r++)
		vb->peers[r].used = use[r];
	vb->connecting = true;
	RB_TRY(peers_open(vb, addresses, address_bytes, some));
	if (timerfd_settime(vb->clock_fd, 0, &each_second, NULL) != 0)
		return RB_FAIL(RUBATO_ERR_SYSTEM, "timerfd_settime: %s", strerror(errno));
	status = await_greetings(vb, some, deadline_ns);
	vb->connecting = false;
	if (status == RUBATO_OK) /* Else they tell the others: call_off(). */
		datagrams_close(vb);
	return status;
}

rubato_status rb_verbs_connect(struct rb_endpoint *ep, const void *const *addresses,
			       const size_t *address_bytes, const bool *use, uint64_t deadline_ns)
{
	return connect_peers((struct rb_verbs *)ep, addresses, address_bytes, use, false,
			     deadline_ns);
}

/* Of a peer that did not greet: it is not reached from here, whatever it thinks. */
static void do_without(struct rb_verbs *vb, uint32_t rank)
{
	struct rb_verbs_peer *peer = &vb->peers[rank];
	const struct rb_verbs_link *link = peer->link_count > 0 ? &peer->links[0] : NULL;
	const struct rb_verbs_rail *rail = link != NULL ? link->rail : &vb->rails[0];
	char own[160], gid[RB_VERBS_GID_BYTES] = "?", reason[RB_VERBS_REASON_BYTES];

	(void)snprintf(reason, sizeof(reason), "%s", peer->lost ? peer->reason : "no answer");
	if (link != NULL)
		(void)rb_verbs_gid_text(&link->gid, gid);
	RB_LOG(RB_LOG_WARN,
	       "verbs: rank %u at GID %s is not reached by %s; another network is used: %s", rank,
	       gid, rb_verbs_port_text(&rail->port, own, sizeof(own)), reason);
	rb_verbs_lose(vb, rank, reason);
}

rubato_status rb_verbs_connect_some(struct rb_endpoint *ep, const void *const *addresses,
				    const size_t *address_bytes, bool *use, uint64_t deadline_ns)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;

	ep->on_trial = true;
	RB_TRY(connect_peers(vb, addresses, address_bytes, use, true, deadline_ns));
	for (uint32_t r = 0; r < ep->rank_count; r++) {
		if (!use[r] || r == ep->rank || (vb->peers[r].live > 0 && !vb->peers[r].lost))
			continue;
		do_without(vb, r);
		use[r] = false;
	}
	return RUBATO_OK;
}

/* ---- Giving up ---- */

/* Whether the device has none of those to that peer any more. */
static bool datagram_await(struct rb_verbs *vb, const struct rb_verbs_link *link)
{
	uint64_t until_ns = rb_deadline(rb_clock_ns(), CALL_OFF_NS);
	uint64_t bit = UINT64_C(1) << datagram_bit(link);
	struct rb_verbs_rail *rail = link->rail;
	struct ibv_wc wc;
	bool over = false;

	until_ns = until_ns < vb->call_off_ns ? until_ns : vb->call_off_ns;
	while ((rail->datagrams_out & bit) != 0 && !over) {
		over = rb_clock_ns() >= until_ns;
		if (vb->links != NULL) {
			rb_verbs_move(vb, until_ns);
			continue;
		}
		while (ibv_poll_cq(rail->cq, 1, &wc) > 0)
			rb_verbs_datagram(vb, rail, &wc); /* There is nothing else yet. */
		rb_pause();
	}
	rail->mute |= (rail->datagrams_out & bit) != 0;
	return !rail->mute;
}

/* By a datagram, which waits at a peer that is not in connect() yet. False: not by this rail. */
static bool datagram_leave(struct rb_verbs *vb, struct rb_verbs_link *link,
			   const struct blob_rail *theirs)
{
	struct rb_verbs_greeting greeting = { .rank = vb->base.rank,
					      .qp_number = 1, /* None has 0. */
					      .version = RB_VERBS_VERSION,
					      .ready = RB_VERBS_LEAVES };
	struct ibv_ah_attr path;
	bool told = false;

	if (link->rail->datagrams == NULL || link->rail->mute ||
	    !datagram_await(vb, link)) /* What it may have been told before. */
		return false;
	memcpy(greeting.job, vb->job, sizeof(greeting.job));
	link->gid = theirs->gid;
	link->lid = theirs->lid;
	link->contact = theirs->contact;
	path = rb_verbs_path_to(link);
	link->ah = vb->api.ibv_create_ah(link->rail->pd, &path);
	if (link->ah == NULL)
		return false;
	if (datagram_post(vb, link, &greeting))
		told = datagram_await(vb, link);
	(void)vb->api.ibv_destroy_ah(link->ah);
	return told;
}

/* By the first rail that can; else over TCP, when this end closes. */
void rb_verbs_call_off(struct rb_endpoint *ep, uint32_t rank, const void *address, size_t bytes)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	struct rb_verbs_peer *peer = &vb->peers[rank];
	struct blob blob;

	if (rank == ep->rank || peer->live > 0 || peer->by_tcp || peer->left || peer->gave_up ||
	    !rb_verbs_reachable(ep, address, bytes) || !blob_read(address, bytes, &blob))
		return;
	if (vb->call_off_ns == 0)
		vb->call_off_ns = rb_deadline(rb_clock_ns(), CALL_OFF_ALL_NS);
	for (uint32_t i = 0; i < vb->rail_count && i < blob.rail_count; i++) {
		struct rb_verbs_link link = { .peer = peer, .rail = &vb->rails[i] };

		if (datagram_leave(vb, &link, &blob.rails[i]))
			return;
	}
	rb_verbs_ways_keep(vb, rank, &blob.ways, vb->host != 0 && blob.host == vb->host);
	rb_verbs_farewell_owe(vb, peer);
}

/* ---- Close ---- */

static bool all_left(const struct rb_verbs *vb)
{
	for (uint32_t r = 0; r < vb->base.rank_count; r++) {
		const struct rb_verbs_peer *peer = &vb->peers[r];

		if (peer->parted && !peer->lost &&
		    (peer->out_first != NULL || peer->redo != NULL || peer->words != NULL ||
		     peer->held_by > 0 || rb_verbs_spare_owes(peer)))
			return false;
		for (uint32_t i = 0; peer->parted && !peer->lost && i < peer->link_count; i++) {
			const struct rb_verbs_link *link = &peer->links[i];

			if (link->state != RB_VERBS_LINK_DOWN &&
			    link->state != RB_VERBS_LINK_MAKING && link->posted != link->retired)
				return false;
		}
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

		if ((peer->live == 0 && !peer->by_tcp) || peer->lost)
			continue;
		rb_verbs_tell(vb, r, &head, vb->base.last_words, words ? RB_LAST_WORDS_BYTES : 0);
		peer->parted = true;
		rb_verbs_amiss(peer);
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
		for (uint32_t i = 0; i < peer->link_count; i++)
			rb_verbs_link_close(vb, &peer->links[i]);
		rb_verbs_links_end(vb, peer);
		rb_verbs_spare_free(vb, peer);
		rb_verbs_outs_drop(vb, peer);
		rb_verbs_shared_drop(peer);
		rb_verbs_invites_drop(vb, r);
		rb_verbs_arrivals_drop(vb, r, true);
	}
	for (uint32_t i = 0; i < vb->flight_count; i++) {
		struct rb_verbs_flight *flight = rb_verbs_flight_at(vb, i);

		if (flight->used)
			(void)rb_verbs_unregister(vb, flight);
	}
	for (uint32_t i = 0; i < vb->flight_count; i += RB_VERBS_FLIGHTS_EACH)
		free(vb->flights[i / RB_VERBS_FLIGHTS_EACH]);
	free(vb->flights);
}

static void rail_close(struct rb_verbs *vb, struct rb_verbs_rail *rail)
{
	if (rail->slots_mr != NULL)
		(void)vb->api.ibv_dereg_mr(rail->slots_mr);
	if (rail->cq_events > 0)
		vb->api.ibv_ack_cq_events(rail->cq, rail->cq_events);
	if (rail->cq != NULL)
		(void)vb->api.ibv_destroy_cq(rail->cq);
	if (rail->channel != NULL)
		(void)vb->api.ibv_destroy_comp_channel(rail->channel);
	if (rail->pd != NULL)
		(void)vb->api.ibv_dealloc_pd(rail->pd);
	(void)vb->api.ibv_close_device(rail->context);
}

static void rails_close(struct rb_verbs *vb)
{
	if (vb->counts.failed > 0)
		RB_LOG(RB_LOG_INFO,
		       "verbs: %llu links failed, %llu rose again; %llu messages and writes were "
		       "done again",
		       (unsigned long long)vb->counts.failed, (unsigned long long)vb->counts.risen,
		       (unsigned long long)vb->counts.again);
	rb_verbs_slots_free(vb);
	for (uint32_t i = 0; i < vb->rail_count; i++)
		rail_close(vb, &vb->rails[i]);
	if (vb->slots != NULL)
		(void)munmap(vb->slots, vb->slots_bytes);
	free(vb->links);
	free(vb->entries);
}

void rb_verbs_close(struct rb_endpoint *ep, bool abort, uint64_t deadline_ns)
{
	struct rb_verbs *vb = (struct rb_verbs *)ep;
	const int fds[] = { vb == NULL ? -1 : vb->epoll_fd, vb == NULL ? -1 : vb->watch_fd,
			    vb == NULL ? -1 : vb->wake_fd, vb == NULL ? -1 : vb->clock_fd };

	if (ep == NULL)
		return;
	if (vb->links != NULL && vb->entries != NULL)
		say_goodbye(vb, abort, deadline_ns);
	if (vb->call_off_ns != 0)
		rb_verbs_farewells(vb, rb_deadline(rb_clock_ns(), FAREWELL_NS));
	datagrams_close(vb);
	queues_close(vb);
	rb_verbs_cache_close(vb);
	rb_verbs_cm_close(vb);
	while (vb->remotes != NULL)
		rb_verbs_remote_close(ep, &vb->remotes->base);
	while (vb->regions != NULL)
		rb_verbs_region_drop(ep, &vb->regions->base);
	rb_verbs_stuck_end(vb);
	rb_verbs_invites_free(vb);
	rb_verbs_listener_close(vb);
	rails_close(vb);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	free(vb);
}
