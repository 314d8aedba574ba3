/* sim_match.c -- messages that have arrived and receives that wait, by (peer, tag). */
#include <stdlib.h>

#include "transport/sim/sim_net_inside.h"

static struct rb_sim_bucket *bucket_of(const struct rb_sim_nic *nic, uint32_t peer,
				       struct rb_tag tag)
{
	uint64_t hash = rb_mix(rb_sim_tag_word(tag) + peer * 0x9e3779b97f4a7c15u);

	return &nic->buckets[(uint32_t)hash & (nic->bucket_count - 1)];
}

static void bucket_add_receive(struct rb_sim_nic *nic, struct rb_request *r)
{
	struct rb_sim_bucket *b = bucket_of(nic, r->peer, r->tag);
	struct rb_request *last = b->receives;

	rb_sim_chain_set(r, NULL);
	if (last == NULL) {
		b->receives = r;
		return;
	}
	while (rb_sim_chain_of(last) != NULL)
		last = rb_sim_chain_of(last);
	rb_sim_chain_set(last, r);
}

static void bucket_add_arrival(struct rb_sim_nic *nic, struct rb_sim_message *m)
{
	struct rb_sim_message **at = &bucket_of(nic, m->sender, m->tag)->arrivals;

	while (*at != NULL)
		at = &(*at)->chain;
	m->chain = NULL;
	*at = m;
}

/* Keeps chains short. Without memory for it they only grow longer. */
static void buckets_grow(struct rb_sim_nic *nic)
{
	struct rb_sim_bucket *old = nic->buckets;
	uint32_t old_count = nic->bucket_count;
	struct rb_sim_bucket *buckets;

	if (nic->entry_count <= old_count)
		return;
	buckets = calloc(old_count * 2u, sizeof(*buckets));
	if (buckets == NULL)
		return;
	nic->buckets = buckets;
	nic->bucket_count = old_count * 2;
	for (uint32_t i = 0; i < old_count; i++) {
		for (struct rb_request *r = old[i].receives, *next; r != NULL; r = next) {
			next = rb_sim_chain_of(r);
			bucket_add_receive(nic, r);
		}
		for (struct rb_sim_message *m = old[i].arrivals, *next; m != NULL; m = next) {
			next = m->chain;
			bucket_add_arrival(nic, m);
		}
	}
	free(old);
}

void rb_sim_table_add_receive(struct rb_sim_nic *nic, struct rb_request *r)
{
	nic->entry_count++;
	buckets_grow(nic);
	bucket_add_receive(nic, r);
}

void rb_sim_table_add_arrival(struct rb_sim_nic *nic, struct rb_sim_message *m)
{
	m->kept = true;
	nic->kept_count++;
	nic->entry_count++;
	buckets_grow(nic);
	bucket_add_arrival(nic, m);
}

struct rb_request *rb_sim_table_take_receive(struct rb_sim_nic *nic, uint32_t peer,
					     struct rb_tag tag)
{
	struct rb_sim_bucket *b = bucket_of(nic, peer, tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = rb_sim_chain_of(r)) {
		if (r->peer != peer || !rb_tag_same(r->tag, tag))
			continue;
		if (before != NULL)
			rb_sim_chain_set(before, rb_sim_chain_of(r));
		else
			b->receives = rb_sim_chain_of(r);
		nic->entry_count--;
		return r;
	}
	return NULL;
}

struct rb_sim_message *rb_sim_table_find_arrival(struct rb_sim_nic *nic, uint32_t peer,
						 struct rb_tag tag)
{
	struct rb_sim_message *m = bucket_of(nic, peer, tag)->arrivals;

	while (m != NULL && (m->sender != peer || !rb_tag_same(m->tag, tag)))
		m = m->chain;
	return m;
}

void rb_sim_table_remove_receive(struct rb_sim_nic *nic, struct rb_request *gone)
{
	struct rb_sim_bucket *b = bucket_of(nic, gone->peer, gone->tag);
	struct rb_request *before = NULL;

	for (struct rb_request *r = b->receives; r != NULL; before = r, r = rb_sim_chain_of(r)) {
		if (r != gone)
			continue;
		if (before != NULL)
			rb_sim_chain_set(before, rb_sim_chain_of(r));
		else
			b->receives = rb_sim_chain_of(r);
		nic->entry_count--;
		return;
	}
	RB_ASSERT(false); /* A pending receive without message is in the table. */
}

void rb_sim_table_remove_arrival(struct rb_sim_nic *nic, struct rb_sim_message *gone)
{
	struct rb_sim_message **at = &bucket_of(nic, gone->sender, gone->tag)->arrivals;

	while (*at != gone)
		at = &(*at)->chain;
	*at = gone->chain;
	gone->kept = false;
	nic->kept_count--;
	nic->entry_count--;
}
