/*
 * shm_parcels.c -- short messages in a row, each of one cell: as shm_send.c and shm_receive.c do
 * it, for what is there at once. Whatever is not so simple goes their way.
 */
#include "transport/shm/shm.h"

#include <string.h>

#define MASK (RB_SHM_CELLS - 1)

/* A field of shared memory, read once. */
#define ONCE(field) (*(const volatile __typeof__(field) *)&(field))

static inline void *place(const struct rb_parcels *x, const struct rb_parcel *p)
{
	return (uint8_t *)x->buffers[p->buffer] + p->at;
}

/* By what does it for any message. */
static __attribute__((noinline)) enum rb_now parcel_else(struct rb_shm_endpoint *ep,
							 const struct rb_parcels *x)
{
	const struct rb_parcel *p = &x->parcels[x->at];
	const struct rb_message message = { .peer = p->peer,
					    .tag = { x->tag.call, x->tag.step | p->tag_step },
					    .signature = x->signature,
					    .buffer = p->size_bytes > 0 ? place(x, p) : NULL,
					    .size_bytes = p->size_bytes };

	return p->sends ? rb_shm_send_now(&ep->base, &message)
			: rb_shm_recv_now(&ep->base, &message);
}

/* Of some bytes most often eight: a move then, not a call. */
static inline void copy(void *to, const void *from, size_t size_bytes)
{
	if (size_bytes == 8)
		memcpy(to, from, 8);
	else if (size_bytes > 0)
		memcpy(to, from, size_bytes);
}

/* As shm_send.c does it: why the fence is there, its top says. */
static inline void publish(struct rb_shm_peer *peer, struct rb_shm_cell *cell, uint32_t size_bytes)
{
	struct rb_shm_outbound *out = &peer->out;
	uint64_t word = rb_shm_cell_word(out->position, RB_SHM_EAGER, size_bytes);
	uint32_t sleeping;

	atomic_store_explicit(&cell->word, word, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	out->position++;
	sleeping = atomic_load_explicit(&out->header->sleeping, memory_order_relaxed);
	if (__builtin_expect((sleeping & 1) != 0 && sleeping != out->rung, 0)) {
		out->rung = sleeping;
		rb_shm_doorbell(peer->segment);
	}
}

static inline bool parcel_send(struct rb_shm_endpoint *ep, const struct rb_parcels *x,
			       const struct rb_parcel *p)
{
	struct rb_shm_peer *peer = &ep->peers[p->peer];
	struct rb_shm_outbound *out = &peer->out;
	struct rb_shm_cell *cell = &out->ring->cells[out->position & MASK];
	uint32_t size_bytes = p->size_bytes;
	uint64_t spent = out->spent + size_bytes + RB_SHM_ARRIVAL_BYTES;

	if (__builtin_expect(size_bytes > RB_SHM_CELL_PAYLOAD || peer->state != RB_SHM_CONNECTED ||
				     peer->sends.first != NULL ||
				     spent - out->released > RB_UNEXPECTED_BYTES_MAX ||
				     out->position - out->consumed + 1 >= RB_SHM_CELLS,
			     0))
		return false;
	out->spent = spent;
	cell->tag.call = x->tag.call;
	cell->tag.step = x->tag.step | p->tag_step;
	cell->signature = *x->signature;
	if (size_bytes > 0)
		copy(cell->payload, place(x, p), size_bytes);
	publish(peer, cell, size_bytes);
	if (out->further > 0)
		rb_shm_next_prefetch(out, 1);
	ep->base.bytes_sent += size_bytes;
	return true;
}

static inline enum rb_now parcel_take(struct rb_shm_endpoint *ep, const struct rb_parcels *x,
				      const struct rb_parcel *p)
{
	struct rb_shm_peer *peer = &ep->peers[p->peer];
	struct rb_shm_inbound *in = &peer->in;
	const struct rb_shm_cell *cell = &in->ring->cells[in->position & MASK];
	uint32_t position = in->position + 1, size_bytes = p->size_bytes;
	struct rb_signature signature;
	uint64_t word, call, step;

	if (__builtin_expect(size_bytes > RB_SHM_CELL_PAYLOAD || peer->state != RB_SHM_CONNECTED ||
				     peer->doom != RUBATO_OK || peer->match.arrival_count > 0,
			     0))
		return parcel_else(ep, x);
	word = atomic_load_explicit(&cell->word, memory_order_acquire);
	if ((uint32_t)word != position)
		return RB_NOW_ABSENT;
	call = ONCE(cell->tag.call);
	step = ONCE(cell->tag.step);
	signature = ONCE(cell->signature);
	if (word != rb_shm_cell_word(position - 1, RB_SHM_EAGER, size_bytes) ||
	    call != x->tag.call || step != (x->tag.step | p->tag_step) ||
	    !rb_signature_same(&signature, x->signature))
		return RB_NOW_REFUSED;
	if (size_bytes > 0)
		copy(place(x, p), cell->payload, size_bytes);
	in->position = position;
	in->released += size_bytes + RB_SHM_ARRIVAL_BYTES;
	atomic_store_explicit(&in->credit->released, in->released, memory_order_release);
	atomic_store_explicit(&in->credit->consumed, position, memory_order_release);
	ep->base.bytes_received += size_bytes;
	rb_prefetch_write(&peer->out.ring->cells[peer->out.position & MASK]);
	return RB_NOW_DONE;
}

enum rb_now rb_shm_parcels_now(struct rb_endpoint *base, struct rb_parcels *x)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;
	const struct rb_parcel *p = &x->parcels[x->at];

	for (; x->at < x->end; x->at++, p++) {
		enum rb_now got = RB_NOW_DONE;

		if (!p->sends)
			got = parcel_take(ep, x, p);
		else if (!parcel_send(ep, x, p))
			got = parcel_else(ep, x);
		for (uint32_t i = 0; got == RB_NOW_ABSENT && i < x->looks; i++) {
			rb_pause();
			got = parcel_take(ep, x, p);
		}
		if (got != RB_NOW_DONE)
			return got;
	}
	return RB_NOW_DONE;
}
