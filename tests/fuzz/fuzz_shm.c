/*
 * fuzz_shm.c -- what a peer may write into shared memory. The script is rank 0's own doing (posts,
 * cancels, polls) and, between that, what rank 1 writes: cells of every kind and of none, bulk
 * buffers, credits, keys and words that name memory. Whatever comes, rank 0 touches nothing that is
 * not its own or rank 1's to give, and no receive waits beside its message.
 *
 * Rank 1 has a segment and no code: the script is all there is of it.
 */
#include "tests/fuzz/fuzz_shm.h"

#include <stdlib.h>

#include "base/log.h"
#include "tests/fuzz/fuzz.h"
#include "transport/shm/shm.h"

#define HEAP_BYTES 65536u
#define REQUESTS 8u
#define REGIONS 3u
#define OPS_MAX 600u /* A script goes no further. */

struct fuzz {
	struct rb_endpoint *base;
	struct rb_shm_endpoint *ep;
	struct rb_shm_segment *theirs;
	struct fuzz_script script;
	uint32_t position, seen; /* Of rank 1 in its ring. */
	struct rb_request requests[REQUESTS];
	struct rb_region *regions[REGIONS];
	struct rb_remote *remotes[REGIONS];
	void *memory[REGIONS];
};

/* Sizes and ids at which something could go wrong; 0 and the script's own bytes among them. */
static uint64_t edge(struct fuzz *f)
{
	static const uint64_t edges[] = {
		0,
		1,
		2,
		8,
		RB_SHM_CELL_PAYLOAD,
		RB_SHM_INLINE_MAX,
		RB_SHM_INLINE_MAX + 1,
		4096,
		RB_SHM_BULK_BYTES,
		RB_SHM_BULK_BYTES + 1,
		HEAP_BYTES,
		UINT64_C(1) << 31,
		UINT64_C(1) << 32,
		(UINT64_C(1) << 32) + 1,
		UINT64_MAX - 31,
		UINT64_MAX - 1,
		UINT64_MAX,
		RB_SHM_EAGER_MAX,
		RB_SHM_EAGER_MAX + 1,
	};
	uint8_t which = fuzz_take_u8(&f->script);

	if (which < sizeof(edges) / sizeof(edges[0]))
		return edges[which];
	return which < 200 ? which % 8 : fuzz_take_u64(&f->script);
}

static struct rb_signature signature(uint8_t which)
{
	return (struct rb_signature) { .kind = 1, .count = which % 2 };
}

/* ---- Rank 1 ---- */

static void write_cell(struct fuzz *f)
{
	struct rb_shm_inbound *in = &f->ep->peers[1].in;
	struct rb_shm_cell *cell = &in->ring->cells[f->position & (RB_SHM_CELLS - 1)];
	uint8_t kind = fuzz_take_u8(&f->script), tag = fuzz_take_u8(&f->script);
	uint16_t size = (uint16_t)edge(f);

	cell->tag = (struct rb_tag) { 0, tag % 4 };
	cell->signature = signature(tag >> 4);
	for (int i = 0; i < 3; i++)
		cell->arg[i] = edge(f);
	atomic_store(&cell->word, (uint64_t)(f->position + 1) | (uint64_t)(kind % 16) << 32 |
					  (uint64_t)size << 48);
	f->position +=
		kind % 16 == RB_SHM_EAGER && size > RB_SHM_CELL_PAYLOAD && size <= RB_SHM_INLINE_MAX
			? 1 + (size - RB_SHM_CELL_PAYLOAD + RB_SHM_CHAIN_PAYLOAD - 1) /
					  RB_SHM_CHAIN_PAYLOAD
			: 1;
}

static void write_raw(struct fuzz *f)
{
	struct rb_shm_inbound *in = &f->ep->peers[1].in;
	struct rb_shm_cell *cell = &in->ring->cells[f->position & (RB_SHM_CELLS - 1)];

	fuzz_take(&f->script, (uint8_t *)cell + 8, sizeof(*cell) - 8);
	atomic_store(&cell->word,
		     (fuzz_take_u64(&f->script) & ~(uint64_t)UINT32_MAX) | (f->position + 1));
	f->position++;
}

/* What lies in the segment of rank 1, which rank 0 reads as a sender. */
static void write_credit(struct fuzz *f)
{
	struct rb_shm_outbound *out = &f->ep->peers[1].out;
	uint8_t which = fuzz_take_u8(&f->script);

	if (which % 6 == 0)
		atomic_store(&out->credit->released, edge(f));
	else if (which % 6 == 1)
		atomic_store(&out->credit->consumed, (uint32_t)edge(f));
	else if (which % 6 == 2)
		atomic_store(&out->credit->consumed, out->position); /* As it should be. */
	else if (which % 6 == 3)
		atomic_store(&out->credit->given, (uint32_t)edge(f));
	else if (which % 6 == 4)
		atomic_store(&out->credit->which[which / 6], (uint8_t)edge(f));
	else
		atomic_store(&out->header->sleeping, (uint32_t)edge(f));
}

static uint32_t use_key(struct fuzz *f)
{
	uint8_t key[24], kind = fuzz_take_u8(&f->script);
	struct rb_wire w = rb_wire_over(key, sizeof(key));
	uint32_t which = kind % REGIONS;

	if (f->remotes[which] != NULL)
		return 0;
	if (kind < 200) {
		rb_wire_put_u8(&w, kind / REGIONS % 4);
		rb_wire_put_u64(&w, edge(f));
		rb_wire_put_u64(&w, edge(f));
	} else {
		fuzz_take(&f->script, key, sizeof(key));
		w.at = key + kind % sizeof(key);
	}
	if (rb_transport_shm.remote_open(f->base, 1, key, (size_t)(w.at - key),
					 &f->remotes[which]) != RUBATO_OK) {
		FUZZ_CHECK(f->remotes[which] == NULL);
		return 0;
	}
	return FUZZ_SHM_OPENED;
}

/* ---- Rank 0 ---- */

static void post(struct fuzz *f, uint8_t op)
{
	uint8_t which = fuzz_take_u8(&f->script), tag = fuzz_take_u8(&f->script);
	struct rb_request *q = &f->requests[which % REQUESTS];
	uint64_t size = edge(f);
	struct rb_remote *remote = f->remotes[which % REGIONS];

	if (q->state == RB_REQUEST_PENDING || (op == 2 && remote == NULL))
		return;
	size %= 2 * RB_SHM_EAGER_MAX;
	free(q->buffer);
	*q = (struct rb_request) { .peer = which < 240,
				   .tag = { 0, tag % 4 },
				   .signature = signature(tag >> 4),
				   .buffer = calloc(1, size), /* Exactly: sanitizers see more. */
				   .size_bytes = size };
	if (op == 2) {
		q->remote = remote;
		q->remote_offset = edge(f);
		rb_transport_shm.put(f->base, q);
	} else if (op == 1) {
		rb_transport_shm.send(f->base, q);
	} else {
		rb_transport_shm.recv(f->base, q);
	}
}

static void cancel(struct fuzz *f)
{
	struct rb_request *q = &f->requests[fuzz_take_u8(&f->script) % REQUESTS];

	if (q->state == RB_REQUEST_PENDING)
		rb_transport_shm.cancel(f->base, q);
}

static void region(struct fuzz *f)
{
	uint8_t which = fuzz_take_u8(&f->script);
	struct rb_region **at = &f->regions[which % REGIONS];
	void **memory = &f->memory[which % REGIONS];

	if (*at != NULL) {
		rb_transport_shm.region_drop(f->base, *at);
		*at = NULL;
	} else if (which >= 128) {
		if (rb_transport_shm.region_alloc(f->base, which * 100u, at) != RUBATO_OK)
			*at = NULL;
	} else {
		free(*memory);
		*memory = calloc(1, which * 100u);
		if (rb_transport_shm.region_add(f->base, *memory, which * 100u, at) != RUBATO_OK)
			*at = NULL;
	}
}

/* ---- Laws ---- */

/* No receive waits beside its message; what lies unmatched is within rank 1's credit. */
static void laws(const struct fuzz *f)
{
	const struct rb_shm_peer *peer = &f->ep->peers[1];

	for (uint32_t b = 0; b < RB_MATCH_BUCKETS; b++)
		for (const struct rb_request *q = peer->match.receives[b]; q != NULL; q = q->next)
			for (const struct rb_arrival *a = peer->match.arrivals[b]; a != NULL;
			     a = a->next)
				FUZZ_CHECK(!rb_tag_same(a->tag, q->tag));
	FUZZ_CHECK(peer->bulks.held <= RB_SHM_BULKS_KEPT);
	FUZZ_CHECK(peer->in.held <= RB_UNEXPECTED_BYTES_MAX || peer->doom != RUBATO_OK ||
		   peer->state == RB_SHM_GONE);
}

static uint32_t poll_once(struct fuzz *f)
{
	struct rb_request *list = rb_transport_shm.poll(f->base);
	struct rb_failure failure;
	uint32_t got = 0;

	for (; list != NULL; list = list->next) {
		if (list->status == RUBATO_OK && list->kind == RB_REQUEST_RECV)
			got |= list->peer == 1 ? FUZZ_SHM_RECEIVED : 0;
		else if (list->status == RUBATO_OK)
			got |= FUZZ_SHM_SENT;
		else if (list->status == RUBATO_ERR_MISMATCH)
			got |= FUZZ_SHM_MISMATCH;
	}
	if (rb_transport_shm.failure(f->base, &failure)) {
		FUZZ_CHECK(failure.peer == 1);
		got |= FUZZ_SHM_LOST;
	}
	f->position = f->ep->peers[1].in.position;
	return got;
}

static uint32_t step(struct fuzz *f)
{
	uint8_t op = fuzz_take_u8(&f->script);

	switch (op % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		write_cell(f);
		break;
	case 4:
		write_raw(f);
		break;
	case 5:
		write_credit(f);
		break;
	case 6:
		return use_key(f);
	case 7:
	case 8:
		post(f, 0);
		break;
	case 9:
		post(f, 1);
		break;
	case 10:
		post(f, 2);
		break;
	case 11:
		cancel(f);
		break;
	case 12:
		region(f);
		break;
	case 13:
		memset(f->ep->peers[1].bulks.own, op, RB_SHM_BULK_BYTES);
		break;
	default:
		return poll_once(f);
	}
	return 0;
}

static void world_open(struct fuzz *f)
{
	struct rb_transport_options options = { .rank_count = 2, .heap_bytes = HEAP_BYTES };

	rb_log_level_set(RB_LOG_NONE);
	FUZZ_CHECK(rb_transport_shm.open(&options, &f->base) == RUBATO_OK);
	f->ep = (struct rb_shm_endpoint *)f->base;
	FUZZ_CHECK(rb_shm_segment_open(f->ep, UINT64_MAX) == RUBATO_OK);
	FUZZ_CHECK(rb_shm_segment_create(2, HEAP_BYTES, UINT64_MAX, &f->theirs) == RUBATO_OK);
	rb_shm_segment_keep(f->ep->segment);
	rb_shm_wire(f->ep, &f->ep->peers[0], f->ep->segment);
	rb_shm_wire(f->ep, &f->ep->peers[1], f->theirs);
}

static void world_close(struct fuzz *f)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (f->requests[i].state == RB_REQUEST_PENDING)
			rb_transport_shm.cancel(f->base, &f->requests[i]);
		free(f->requests[i].buffer);
	}
	rb_transport_shm.close(f->base, true, 0);
	for (uint32_t i = 0; i < REGIONS; i++)
		free(f->memory[i]);
}

uint32_t fuzz_shm_run(const uint8_t *data, size_t size_bytes)
{
	struct fuzz f = { .script = fuzz_script_over(data, size_bytes) };
	uint32_t got = 0;

	world_open(&f);
	for (uint32_t i = 0; f.script.at < f.script.end && i < OPS_MAX; i++) {
		got |= step(&f);
		laws(&f);
	}
	for (uint32_t i = 0; i < 4; i++)
		got |= poll_once(&f);
	laws(&f);
	world_close(&f);
	return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	(void)fuzz_shm_run(data, size_bytes);
	return 0;
}
