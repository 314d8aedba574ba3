/* shm_bulks.c -- bulk buffers that change hands: see shm_bulks.h. */
#include "transport/shm_bulks.h"

void rb_shm_bulks_reset(struct rb_shm_bulks *b)
{
	b->given = b->taken = b->unseen = 0;
	for (b->held = 0; b->held < RB_SHM_BULKS; b->held++)
		b->free[b->held] = (uint8_t)(RB_SHM_BULKS - 1 - b->held);
}

/* The oldest comes on top: what its reader has just read is dear to write. */
void rb_shm_bulks_take(struct rb_shm_bulks *b, uint32_t count)
{
	uint32_t room = RB_SHM_BULKS_KEPT - b->held;

	count = count < room ? count : room; /* More only by a peer that lies. */
	b->held += count;
	for (uint32_t i = 1; i <= count; i++)
		b->free[b->held - i] = atomic_load_explicit(
			&b->theirs_credit->which[b->taken++ % RB_SHM_BULKS_GIVEN],
			memory_order_relaxed);
}

bool rb_shm_bulks_free(struct rb_shm_bulks *b, uint32_t count)
{
	if (b->held >= count && b->unseen < RB_SHM_BULKS_UNSEEN)
		return true;
	b->unseen = 0;
	rb_shm_bulks_take(b, atomic_load_explicit(&b->theirs_credit->given, memory_order_acquire) -
				     b->taken);
	return b->held >= count;
}

static void give(struct rb_shm_bulks *b, uint32_t number)
{
	atomic_store_explicit(&b->own_credit->which[b->given++ % RB_SHM_BULKS_GIVEN],
			      (uint8_t)(number ^ RB_SHM_BULK_OWN), memory_order_relaxed);
	atomic_store_explicit(&b->own_credit->given, b->given, memory_order_release);
}

void rb_shm_bulk_read(struct rb_shm_bulks *b, uint64_t word)
{
	uint32_t number = rb_shm_bulk_number(word) ^ RB_SHM_BULK_OWN;
	int8_t untaken = (int8_t)((uint8_t)(word >> 56) - (uint8_t)b->taken);

	if (untaken > 0) { /* Else we looked meanwhile; or so often that eight bits wrapped. */
		uint32_t there =
			atomic_load_explicit(&b->theirs_credit->given, memory_order_acquire) -
			b->taken;

		rb_shm_bulks_take(b, there < (uint32_t)untaken ? there : (uint32_t)untaken);
	}
	if (b->held >= RB_SHM_BULKS_KEPT) {
		give(b, number);
	} else if (b->held == 0) {
		b->free[b->held++] = (uint8_t)number;
	} else {
		b->free[b->held] = b->free[b->held - 1];
		b->free[b->held++ - 1] = (uint8_t)number;
	}
}
