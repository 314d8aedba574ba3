/*
 * sim_pair.c -- what two ranks of a node know of each other's messages, by the code of shared
 * memory: whether long ones cross (transport/shm_pieces.h), and which bulk buffers each of the two
 * holds (transport/shm_bulks.h).
 *
 * A rank takes what has come when it polls, as it takes what is in its rings: until then its own
 * messages say that it has not. Without caches it does not count where buffers lie.
 */
#include <stdlib.h>

#include "transport/shm_bulks.h"
#include "transport/sim/sim_net_inside.h"

struct rb_sim_pair { /* As one of the two has it. */
	struct rb_shm_longs longs;
	uint32_t came, theirs; /* Long ones since it polled; what the last one says. */
	struct rb_sim_pair *next;
	struct rb_shm_bulks bulks; /* There from the first message in buffers on. */
	struct rb_shm_credit credit;
};

static struct rb_sim_pair *pair_of(struct rb_sim_nic *nic, uint32_t peer)
{
	struct rb_sim_link *l = nic != NULL ? rb_sim_link_to(nic, peer) : NULL;

	if (l != NULL && l->pair == NULL)
		l->pair = calloc(1, sizeof(*l->pair));
	return l != NULL ? l->pair : NULL;
}

/* At an address that no other memory has, nor another pair of ranks, or of the same in another
 * communicator. */
static uint8_t *segment_new(struct rb_sim_cluster *c)
{
	return (uint8_t *)(uintptr_t)(UINT64_C(3) << 62 | c->segments++ << 20);
}
_Static_assert(RB_SHM_BULKS *RB_SHM_BULK_BYTES <= 1u << 20, "fits");

static void bulks_open(struct rb_sim_pair *one, struct rb_sim_pair *other, uint8_t *own,
		       uint8_t *theirs)
{
	one->bulks = (struct rb_shm_bulks) { .theirs = theirs,
					     .own = own,
					     .theirs_credit = &other->credit,
					     .own_credit = &one->credit };
	rb_shm_bulks_reset(&one->bulks);
}

/* With its buffers; NULL: there are none. */
static struct rb_sim_pair *pair_with_bulks(struct rb_sim_nic *nic, uint32_t peer)
{
	const struct rb_sim_member *other = &nic->member->comm->members[peer];
	struct rb_sim_pair *here = pair_of(nic, peer), *there;
	uint8_t *own, *theirs;

	if (here == NULL || here->bulks.own != NULL)
		return here;
	there = pair_of(other->nic, nic->member->rank);
	if (there == NULL)
		return NULL;
	own = segment_new(nic->process->cluster);
	theirs = segment_new(nic->process->cluster);
	bulks_open(here, there, own, theirs);
	bulks_open(there, here, theirs, own);
	return here;
}

void rb_sim_pair_sends(struct rb_sim_nic *nic, const struct rb_request *r, struct rb_sim_post *post)
{
	bool self = r->peer == nic->member->rank,
	     is_long = r->size_bytes >= RB_SHM_ATTACH_BYTES_MIN;
	struct rb_sim_pair *pair = is_long && !self ? pair_of(nic, r->peer) : NULL;
	uint32_t pieces = (uint32_t)rb_sim_pieces(true, r->size_bytes);

	post->way = rb_sim_way_of(
		true, !nic->process->cluster->attaches || (pair != NULL && pair->longs.cross),
		r->size_bytes, rb_sim_link_credit(nic, r->peer));
	post->buffers.whole = post->way.kind == RB_SIM_COPIED;
	if (!post->buffers.whole || self || r->size_bytes <= RB_SHM_INLINE_MAX ||
	    nic->process->cluster->caches == NULL)
		return;
	pair = pair_with_bulks(nic, r->peer);
	if (pair == NULL || !rb_shm_bulks_free(&pair->bulks, pieces))
		return;
	for (uint32_t i = 0; i < pieces; i++)
		post->buffers.number[i] = pair->bulks.free[--pair->bulks.held];
	pair->bulks.unseen += pieces;
	post->buffers.count = (uint8_t)pieces;
	post->buffers.given = (uint8_t)pair->bulks.given;
}

const uint8_t *rb_sim_bulk_sent(struct rb_sim_nic *nic, uint32_t peer,
				const struct rb_sim_buffers *buffers, uint32_t piece)
{
	return rb_shm_bulk_at(&pair_of(nic, peer)->bulks, buffers->number[piece]);
}

const uint8_t *rb_sim_bulk_read(struct rb_sim_nic *nic, uint32_t peer,
				const struct rb_sim_buffers *buffers, uint32_t piece)
{
	struct rb_shm_bulks *bulks = &pair_of(nic, peer)->bulks;
	uint64_t number = buffers->number[piece];

	rb_shm_bulk_read(bulks, number << 48 | (uint64_t)buffers->given << 56);
	return rb_shm_bulk_at(bulks, (uint32_t)number ^ RB_SHM_BULK_OWN);
}

void rb_sim_pair_read(struct rb_sim_nic *nic, uint32_t peer, const struct rb_sim_buffers *buffers)
{
	for (uint32_t i = 0; i < buffers->count; i++)
		(void)rb_sim_bulk_read(nic, peer, buffers, i);
}

void rb_sim_pair_posted(struct rb_sim_message *m)
{
	struct rb_sim_pair *pair = m->link->pair;

	if (m->put || pair == NULL || m->size_bytes < RB_SHM_ATTACH_BYTES_MIN)
		return;
	m->taken = rb_shm_long_sent(&pair->longs, m->size_bytes);
	m->under_way = true;
}

void rb_sim_pair_withdrawn(struct rb_sim_message *m)
{
	if (m->under_way)
		m->link->pair->longs.sent--;
	m->under_way = false;
}

void rb_sim_pair_came(struct rb_sim_nic *nic, struct rb_sim_message *m)
{
	struct rb_sim_pair *pair = m->under_way ? pair_of(nic, m->sender) : NULL;

	if (pair == NULL)
		return;
	m->under_way = false;
	if (pair->came++ == 0) {
		pair->next = nic->came;
		nic->came = pair;
	}
	pair->theirs = m->taken;
}

void rb_sim_pairs_take(struct rb_sim_nic *nic)
{
	for (struct rb_sim_pair *pair = nic->came; pair != NULL; pair = pair->next)
		for (; pair->came > 0; pair->came--)
			rb_shm_long_taken(&pair->longs, RB_SHM_ATTACH_BYTES_MIN, pair->theirs);
	nic->came = NULL;
}
